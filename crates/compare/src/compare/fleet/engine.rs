//! What starts workers elsewhere, behind one small trait.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::selection::Selection;
use super::{Hosts, Slurm, Template};

/// Why work could not be handed out, asked for or taken back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the parts are")]
pub enum EngineError {
    #[error("cannot run `{command}`: {cause}")]
    Start { command: String, cause: std::io::Error },
    #[error("`{command}` failed: {said}")]
    Failed { command: String, said: String },
    #[error("cannot use {path}: {cause}")]
    File { path: PathBuf, cause: std::io::Error },
    #[error("{0}")]
    Unfit(String),
}

/// Blocks of a plan that have to be run.
#[derive(Clone, Debug)]
pub struct Work {
    /// This program, as it is called on the machines.
    pub worker: PathBuf,
    /// The plan, from the root.
    pub plan: PathBuf,
    /// Where the results go, from the root.
    pub out: PathBuf,
    /// Where relative names in the plan start.
    pub folder: PathBuf,
    /// Files that are run and read.
    pub files: Vec<PathBuf>,
    /// The blocks.
    pub blocks: Selection,
    /// What one of them takes, in nanoseconds.
    pub cost_ns: u64,
    /// Machines, or tasks, at work at once; absent: as many as there are.
    pub at_once: Option<u32>,
}

/// What is given to one worker.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its blocks.
    pub blocks: Selection,
    /// The most that it may take, in seconds.
    pub limit_s: u64,
}

/// How much longer than the pilot a block may take: disturbed runs are done again up to five times, and machines differ.
const PATIENCE: u64 = 6;
/// What starting a worker takes at the most, in seconds.
const START_S: u64 = 60;

impl Work {
    /// The work in at most `most` tasks.
    #[must_use]
    pub fn tasks(&self, most: usize) -> Vec<Task> {
        let task = |blocks: Selection| {
            let count = blocks.blocks().len() as u64;
            let cost_ns = self.cost_ns.saturating_mul(count).saturating_mul(PATIENCE);
            Task { blocks, limit_s: START_S + cost_ns.div_ceil(1_000_000_000) }
        };
        self.blocks.parts(most).into_iter().map(task).collect()
    }
}

/// The engines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "engine", rename_all = "kebab-case")]
pub enum EngineKind {
    /// This machine, one block behind the other.
    Local(Local),
    /// An array of jobs.
    Slurm(Slurm),
    /// Machines that are reached by ssh.
    Hosts(Hosts),
    /// A command line of one's own for each task.
    Template(Template),
}

impl EngineKind {
    /// The engine itself.
    #[must_use]
    pub fn engine(&self) -> &dyn Engine {
        match self {
            Self::Local(engine) => engine,
            Self::Slurm(engine) => engine,
            Self::Hosts(engine) => engine,
            Self::Template(engine) => engine,
        }
    }
}

/// Who has the blocks of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ticket {
    /// The engine.
    #[serde(flatten)]
    pub kind: EngineKind,
    /// What it calls the jobs.
    pub jobs: Vec<String>,
}

/// How many jobs have not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Alive {
    /// They wait for a machine.
    pub waiting: u32,
    /// They run.
    pub running: u32,
}

impl Alive {
    /// Whether no worker runs any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.waiting + self.running == 0
    }
}

/// Hands out work and takes it back. What has been done is not asked here: that is in the files.
pub trait Engine {
    /// Hands the work out and returns what the engine calls the jobs; they go on without us.
    ///
    /// # Errors
    /// When the engine refuses.
    fn submit(&self, work: &Work) -> Result<Vec<String>, EngineError>;

    /// How many have not ended, with whatever brings their results here; `None` where the engine cannot tell.
    ///
    /// # Errors
    /// When the engine does not answer.
    fn poll(&self, jobs: &[String], out: &Path) -> Result<Option<Alive>, EngineError>;

    /// Takes back what has not ended.
    ///
    /// # Errors
    /// When the engine refuses.
    fn cancel(&self, jobs: &[String]) -> Result<(), EngineError>;
}

/// This machine: a worker that is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Local {}

impl Engine for Local {
    fn submit(&self, work: &Work) -> Result<Vec<String>, EngineError> {
        let blocks = work.blocks.to_string();
        let mut command = Command::new(&work.worker);
        command.arg("worker").arg(&work.plan).args(["--block", &blocks, "--out"]).arg(&work.out);
        let name = || format!("{} worker", work.worker.display());
        let started = |cause| EngineError::Start { command: name(), cause };
        let status = command.current_dir(&work.folder).status().map_err(started)?;
        let failed = || EngineError::Failed { command: name(), said: status.to_string() };
        status.success().then(Vec::new).ok_or_else(failed)
    }

    fn poll(&self, _: &[String], _: &Path) -> Result<Option<Alive>, EngineError> {
        Ok(Some(Alive::default()))
    }

    fn cancel(&self, _: &[String]) -> Result<(), EngineError> {
        Ok(())
    }
}

/// Runs a command to its end, with `input`, and returns what it printed.
pub(super) fn said(words: &[String], input: &str) -> Result<String, EngineError> {
    let command = || words.join(" ");
    let started = |cause| EngineError::Start { command: command(), cause };
    let (name, args) = words.split_first().ok_or(EngineError::Unfit("an empty command".into()))?;
    let mut child = Command::new(name)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(started)?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not read ends by itself and says why.
        let _ = std::io::Write::write_all(&mut stdin, input.as_bytes());
    }
    let Output { status, stdout, stderr } = child.wait_with_output().map_err(started)?;
    let text = |bytes: &[u8]| crate::foreign::plain_bytes(bytes).replace("\\n", "\n");
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let lines = text(&stderr);
    let last = lines.lines().rfind(|l| !l.trim().is_empty()).unwrap_or("it said nothing");
    Err(EngineError::Failed { command: command(), said: format!("{status}; {last}") })
}

/// Words as one line for a shell.
pub(super) fn shell_line<S: AsRef<str>>(words: &[S]) -> Result<String, EngineError> {
    shlex::try_join(words.iter().map(AsRef::as_ref))
        .map_err(|_| EngineError::Unfit("no shell can be given a NUL byte".into()))
}

/// A path as a word.
pub(super) fn word(path: &Path) -> Result<String, EngineError> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| EngineError::Unfit(format!("{} is no UTF-8", path.display())))
}
