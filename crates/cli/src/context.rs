//! What every command shares: where results go, whether to show progress, the interrupt flag.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;
use stallscope::code::SourceText;
use stallscope::foreign::SourceRoots;
use stallscope::machine::Microarchitecture;
use stallscope::report::Defaults;

use crate::args::CommonArgs;

/// How a command ended when nothing went wrong on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to complain about, or not asked to gate.
    Fine,
    /// A finding or regression, and the user asked to gate on it.
    Gated,
    /// Bad usage or input.
    Unusable,
    /// The data do not decide, and the user asked to gate.
    Inconclusive,
    /// Ctrl-C, or another of the signals that ask for an end: its number.
    Interrupted(u8),
}

impl Outcome {
    /// The process exit code.
    pub fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Fine => 0,
            Self::Gated => 1,
            Self::Unusable => 2,
            Self::Inconclusive => 3,
            // As a shell tells of a program that this signal ended: 130 for Ctrl-C, 143 for SIGTERM.
            Self::Interrupted(signal) => 128 + signal,
        })
    }
}

/// Shared state of one invocation.
pub struct Context {
    interrupt: OnceLock<Arc<AtomicBool>>,
    /// The last signal that has set it.
    signal: Arc<AtomicUsize>,
    json: Option<PathBuf>,
    json_dir: Option<PathBuf>,
    defaults: Option<Defaults>,
    html: Option<PathBuf>,
    opens: bool,
    profile: Option<PathBuf>,
    design: Option<Microarchitecture>,
    quiet: bool,
    /// Whether notes are told that nothing depends on.
    pub verbose: bool,
    progress: bool,
    seed: Option<u64>,
    redacts_args: bool,
    source_roots: Vec<PathBuf>,
}

impl Context {
    /// Reads the common arguments.
    pub fn new(common: &CommonArgs) -> Self {
        Self {
            interrupt: OnceLock::new(),
            signal: Arc::default(),
            json: common.json.clone(),
            json_dir: common.json_dir.clone(),
            defaults: None,
            html: common.html.clone(),
            opens: common.open,
            profile: common.profile.clone(),
            design: common.design,
            quiet: common.quiet,
            verbose: common.verbose,
            progress: !common.no_progress && !common.quiet,
            seed: common.seed,
            redacts_args: common.redact_args,
            source_roots: common.source_root.clone(),
        }
    }

    /// The same with what a file has set.
    pub fn with_defaults(self, defaults: Option<Defaults>) -> Self {
        Self { defaults, ..self }
    }

    /// What a file has set.
    pub fn defaults(&self) -> Option<&Defaults> {
        self.defaults.as_ref()
    }

    /// The flag that Ctrl-C sets, for commands that have something to clean up: they look at it at
    /// least ten times a second. Without this call Ctrl-C ends the program at once.
    pub fn interrupt(&self) -> &AtomicBool {
        self.interrupt.get_or_init(|| {
            let set = Arc::new(AtomicBool::new(false));
            for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
                // Which one it was is there before the flag is seen. Only an invalid signal number can fail
                // here; then Ctrl-C still ends us, and the kernel ends the child with us.
                let _ = flag::register_usize(signal, Arc::clone(&self.signal), signal as usize);
                let _ = flag::register(signal, Arc::clone(&set));
            }
            set
        })
    }

    /// How it ends where Ctrl-C was pressed, or another signal has asked for an end.
    pub fn interrupted(&self) -> Option<Outcome> {
        let is_set = self.interrupt.get().is_some_and(|flag| flag.load(Ordering::SeqCst));
        is_set.then(|| Outcome::Interrupted(self.signal.load(Ordering::SeqCst) as u8))
    }

    /// Where the machine-readable result goes; `-` is standard output and replaces the screen.
    pub fn json(&self) -> Option<&Path> {
        self.json.as_deref()
    }

    /// The folder in which every result is kept; the command line's own `--json` goes before one of a file.
    pub fn json_dir(&self) -> Option<&Path> {
        self.json_dir.as_deref().filter(|_| self.json.is_none())
    }

    /// Where the result goes as a page.
    pub fn html(&self) -> Option<&Path> {
        self.html.as_deref()
    }

    /// Whether the page is shown, too.
    pub fn opens(&self) -> bool {
        self.opens
    }

    /// Whether arguments of programs stay out of the JSON.
    pub fn redacts_args(&self) -> bool {
        self.redacts_args
    }

    /// The source text that may be shown about these programs.
    ///
    /// # Errors
    /// When a folder that the user named is not there.
    pub fn source_text<'a>(
        &self,
        programs: impl IntoIterator<Item = &'a Path>,
    ) -> anyhow::Result<SourceText> {
        let mut roots = SourceRoots::of(&self.source_roots).context("--source-root")?;
        programs.into_iter().for_each(|program| roots.add_folder_of(program));
        Ok(SourceText::below(roots))
    }

    /// The machine profile that the user named.
    pub fn profile(&self) -> Option<&Path> {
        self.profile.as_deref()
    }

    /// The processor design that the user named.
    pub fn design(&self) -> Option<Microarchitecture> {
        self.design
    }

    /// Whether the screen is wanted: not with `--quiet`, and not when JSON owns standard output.
    pub fn shows_screen(&self) -> bool {
        !self.quiet && self.json.as_deref() != Some(Path::new("-"))
    }

    /// The seed the user gave, or a fresh one; printed with every result so that it can be repeated.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| {
            use std::hash::{BuildHasher, RandomState};
            RandomState::new().hash_one(std::process::id()) & 0xffff_ffff
        })
    }

    /// The seed the user gave.
    pub fn given_seed(&self) -> Option<u64> {
        self.seed
    }

    /// A progress bar on standard error; invisible when that is no terminal or with `--no-progress`.
    pub fn progress(&self, steps: u64, what: &str) -> ProgressBar {
        if !self.progress {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{msg:>12} [{bar:30}] {pos}/{len}{eta_if_known}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        // Before the first step there is nothing to tell it from.
        let eta = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            if state.pos() > 0 {
                let _ = write!(out, " eta {:#}", HumanDuration(state.eta()));
            }
        };
        bar.set_style(style.progress_chars("=> ").with_key("eta_if_known", eta));
        bar.set_message(what.to_owned());
        bar
    }
}
