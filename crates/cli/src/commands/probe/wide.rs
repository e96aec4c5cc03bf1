//! 512-bit kernels in a process of their own: this program again, with a hidden command.

use std::ffi::OsString;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use stallscope::probes::{self, Bench, Isolated, NotIsolated};
use stallscope::run::child::{Child, Launch, Limits};

use crate::context::{Context, Outcome};

/// Arguments of the hidden command `probe-wide`.
#[derive(Debug, Args)]
pub struct WideArgs {
    /// The probe whose 512-bit part is wanted
    probe: String,
    /// Where the answer goes
    answer: std::path::PathBuf,
}

/// Measures and writes the answer: the child's side.
pub fn run(args: &WideArgs, context: &Context) -> anyhow::Result<Outcome> {
    let probe = probes::find(&args.probe)?;
    let wide = probe.wide.with_context(|| format!("probe `{}` has no 512-bit part", args.probe))?;
    let sampled = wide(&Bench::new(context.seed(), context.interrupt()))?;
    std::fs::write(&args.answer, serde_json::to_string(&sampled)?)
        .with_context(|| format!("cannot write {}", args.answer.display()))?;
    Ok(Outcome::Fine)
}

#[derive(Debug)]
pub struct OwnProcess<'a> {
    /// Set when the user gave up.
    pub interrupt: &'a AtomicBool,
}

/// No 512-bit part takes longer, even beside other work.
const LIMIT: Duration = Duration::from_secs(40);

impl Isolated for OwnProcess<'_> {
    fn wide(&self, probe: &str, seed: u64) -> Result<String, NotIsolated> {
        let folder = tempfile::tempdir().map_err(|e| format!("no temporary folder: {e}"))?;
        let answer = folder.path().join("answer.json");
        let program = std::env::current_exe().map_err(|e| format!("this program is gone: {e}"))?;
        let mut args: Vec<OsString> = vec!["probe-wide".into(), probe.into()];
        args.push(answer.clone().into());
        args.extend(["--seed".into(), seed.to_string().into()]);
        let launch = Launch { program, args, ..Launch::default() };
        let limits = Limits { timeout: Some(LIMIT), interrupt: self.interrupt };
        let exit = Child::hold(&launch)
            .and_then(|child| child.wait(&limits))
            .map_err(|e| format!("their process: {e}"))?;
        if !exit.status.success() {
            return Err(format!("their process ended with {}", exit.status).into());
        }
        Ok(std::fs::read_to_string(&answer)
            .map_err(|e| format!("their process left no answer: {e}"))?)
    }
}
