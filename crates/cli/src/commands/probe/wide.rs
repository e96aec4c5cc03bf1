//! Kernels in a process of their own, this program again with a hidden command: 512-bit ones, and the user's code.

use std::ffi::OsString;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use stallscope::probes::snippet::{self, Snippet};
use stallscope::probes::{self, Bench, Isolated, NotIsolated};
use stallscope::run::child::{Child, ChildError, Launch, Limits};

use crate::context::{Context, Outcome};

/// Arguments of the hidden command `probe-wide`.
#[derive(Debug, Args)]
pub struct WideArgs {
    /// The probe whose 512-bit part is wanted; `snippet` where there is code
    probe: String,
    /// Where the answer goes
    answer: std::path::PathBuf,
    /// The beginning and the body of a snippet, in hexadecimal digits
    code: Vec<String>,
}

/// Measures and writes the answer: the child's side.
pub fn run(args: &WideArgs, context: &Context) -> anyhow::Result<Outcome> {
    let bench = Bench::new(context.seed(), context.interrupt());
    let answer = if let [init, body] = &args.code[..] {
        let code = |text: &str| bytes_of(text).context("no hexadecimal digits");
        let snippet = Snippet::new(&code(init)?, &code(body)?)?;
        serde_json::to_string(&snippet::run(&bench, &snippet)?)
    } else {
        let probe = probes::find(&args.probe)?;
        let none = || format!("probe `{}` has no 512-bit part", args.probe);
        serde_json::to_string(&probe.wide.with_context(none)?(&bench)?)
    };
    std::fs::write(&args.answer, answer?)
        .with_context(|| format!("cannot write {}", args.answer.display()))?;
    Ok(Outcome::Fine)
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[derive(Debug)]
pub struct OwnProcess<'a> {
    /// Set when the user gave up.
    pub interrupt: &'a AtomicBool,
}

/// No part takes longer, even beside other work.
const LIMIT: Duration = Duration::from_secs(40);

impl Isolated for OwnProcess<'_> {
    fn wide(&self, probe: &str, seed: u64) -> Result<String, NotIsolated> {
        self.answer(probe, seed, &[]).map_err(|why| format!("their process {why}").into())
    }
}

/// What is said of a process that does not come to its end; a clause behind its name.
pub fn too_long() -> String {
    format!("took longer than {} s", LIMIT.as_secs())
}

impl OwnProcess<'_> {
    /// What a process says of a probe's 512-bit part, or of code; a clause behind its name where it says nothing.
    pub fn answer(&self, probe: &str, seed: u64, code: &[String]) -> Result<String, String> {
        let folder = tempfile::tempdir().map_err(|e| format!("has no temporary folder: {e}"))?;
        let answer = folder.path().join("answer.json");
        let program = std::env::current_exe().map_err(|e| format!("has no program: {e}"))?;
        let mut args: Vec<OsString> = vec!["probe-wide".into(), probe.into()];
        args.push(answer.clone().into());
        args.extend(code.iter().map(OsString::from));
        args.extend(["--seed".into(), seed.to_string().into()]);
        let launch = Launch { program, args, ..Launch::default() };
        let limits = Limits { timeout: Some(LIMIT), interrupt: self.interrupt };
        let exit =
            Child::hold(&launch).and_then(|child| child.wait(&limits)).map_err(|e| match e {
                ChildError::TimedOut { .. } => too_long(),
                other => format!("was not run: {other}"),
            })?;
        if !exit.status.success() {
            return Err(format!("ended ({})", exit.status));
        }
        std::fs::read_to_string(&answer).map_err(|e| format!("left no answer: {e}"))
    }
}
