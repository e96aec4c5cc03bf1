//! `stallscope trace`: a stretch of a run, followed instruction by instruction.
//!
//! The command's standard streams are the user's own, so its output is what it would be without us.
//! What we have to say therefore goes to standard error.

mod check;
mod cycles;
mod kept;
pub(in crate::commands) mod progress;
mod screen;
pub(in crate::commands) mod start;

use std::ffi::OsString;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use stallscope::code::{Architecture, CodeError, Image};
use stallscope::explain::CheckedTrace;
use stallscope::foreign;
use stallscope::model::Capability;
use stallscope::run::child::{Launch, Limits, Streams, resolve_program};
use stallscope::sim::{Fan, Modelled, Models};
use stallscope::trace::engine::{
    ENGINES, Ended, Engine, Length, Recording, Sink, Subject, Window, engine, preferred,
};
use stallscope::trace::recorded;

use super::words;
use crate::commands::trace::kept::Kept;
use crate::commands::trace::progress::FollowProgress;
use crate::context::{Context, Outcome};
use crate::{output, profile, terminal};

const EXAMPLES: &str = "\
Examples:
  The hottest function of a run
    stallscope trace -- ./program input.bin
  The third call of a function, whole
    stallscope trace --function decode --skip 2 --window 1 -- ./program
  What that call waits for, in cycles, by a model of the core
    stallscope trace --cycles --function decode --skip 2 --window 1 -- ./program
  What a running process waits for, wherever it is at work now
    stallscope trace --cycles --pid 1234
  Whether that model is right about this command, on this machine
    stallscope trace --cycles --check -- ./program input.bin
  What another processor would have made of the same run
    stallscope trace --function decode --record run.trace -- ./program
    stallscope trace --replay run.trace --as cascade-lake

The command's input and output are its own: what it prints is what it prints
without being traced. The report goes to standard error, behind it.

Exit codes: 0 traced, 2 bad usage, a program that cannot be read or run, or a
system that forbids tracing, 130 interrupted (143 by SIGTERM).";

/// Arguments of `trace`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct TraceArgs {
    /// The command to run
    #[arg(last = true, value_name = "COMMAND", required_unless_present_any = ["replay", "pid"])]
    command: Vec<OsString>,
    /// Follow a window of this running process, which runs on behind it
    #[arg(long, value_name = "PID", conflicts_with_all = ["command", "replay", "check"],
          value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,
    /// Start at this function: NAME, 0xADDR or FILE:LINE, of the program or of a library (LIB:NAME)
    /// [default: the hottest, found by a sampled run before; of a running process wherever it is at work]
    #[arg(long, short, value_name = "FUNCTION", conflicts_with = "replay")]
    function: Option<String>,
    /// Let N arrivals at the function pass first
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "replay")]
    skip: u64,
    /// Follow N whole calls of the function
    #[arg(long, value_name = "N", conflicts_with_all = ["instructions", "replay"],
          value_parser = clap::value_parser!(u64).range(1..))]
    window: Option<u64>,
    /// Follow N instructions, to the end of a block [default: as many as the engine follows in
    /// some seconds; 5 million with --cycles]
    #[arg(long, value_name = "N", conflicts_with = "replay",
          value_parser = clap::value_parser!(u64).range(1..))]
    instructions: Option<u64>,
    /// Follow with this engine (`stallscope list` shows them) [default: the first that works here;
    /// qemu for a program of another processor]
    #[arg(long, value_name = "ENGINE", conflicts_with = "replay")]
    engine: Option<String>,
    /// Say how many cycles the window takes and what it waits for, by a model of the core (x86-64 only)
    #[arg(long)]
    cycles: bool,
    /// Hold the model against the clock: run the command some thirty times more, and say by how much it is off
    #[arg(long, requires = "cycles", conflicts_with = "replay")]
    check: bool,
    /// Keep what was followed in FILE
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    record: Option<PathBuf>,
    /// Run no command: model what FILE holds
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// End the window after this time, however long it is by then (10s, 500ms, 2m)
    #[arg(long, value_name = "DURATION", value_parser = words::duration, default_value = "60s")]
    budget: Duration,
    /// Give up when the command takes longer than this, or a running process does not come to the
    /// window's start [default: none, 60s] (10s, 500ms, 2m)
    #[arg(long, value_name = "DURATION", value_parser = words::duration)]
    timeout: Option<Duration>,
}

pub fn run(args: &TraceArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    let chosen = profile::load(context)?;
    if args.check && chosen.named {
        bail!(
            "--check holds the model against the clock of this machine, and --as names a processor: leave one out"
        );
    }
    let mut models = Models::new(&chosen.design);
    let followed = match &args.replay {
        Some(file) => Followed::again(file, args.cycles, context, &mut models)?,
        None => follow(args, context, &mut models)?,
    };
    let kept = followed.kept.as_deref();
    let accounts =
        kept.map(|recorded| cycles::model(recorded, &chosen.design, context)).transpose()?;
    let core = accounts.as_ref().map(|accounts| Modelled { accounts, calls: followed.calls });
    let report = models.report(followed.recording, core, &chosen.design);
    let check = args.check.then(|| check::run(&args.command, &chosen, context)).transpose()?;
    let report = CheckedTrace { trace: report, check };
    output::result(context, "trace", &report)?;
    if context.shows_screen() {
        terminal::print_to_stderr(&chosen.announcement());
        // Of no program's folder: a recording names the programs, and may come from elsewhere.
        let text = &mut context.source_text([])?;
        terminal::print_to_stderr(&screen::screen(&report.trace, &followed.title, text));
        if let Some(check) = &report.check {
            terminal::print_to_stderr(&check::screen(check));
        }
    }
    Ok(Outcome::Fine)
}

/// A window that the models were told.
struct Followed {
    recording: Recording,
    /// What to call it on the screen.
    title: String,
    /// The window itself, for the model of the core.
    kept: Option<Vec<u8>>,
    /// Whole calls in it.
    calls: Option<u64>,
}

impl Followed {
    /// Out of a file.
    fn again(
        file: &Path,
        keeps: bool,
        context: &Context,
        models: &mut dyn Sink,
    ) -> anyhow::Result<Self> {
        let kept = keeps.then(|| kept::read(file)).transpose()?;
        let recording = match &kept {
            Some(bytes) => recorded::replay(&bytes[..], context.interrupt(), models)
                .with_context(|| file.display().to_string())?,
            None => replay(file, context, models)?,
        };
        Ok(Self { recording, title: format!("replay of {}", file.display()), kept, calls: None })
    }
}

/// A recording that is larger is not read: some two thousand million instructions.
const MOST_RECORDED_BYTES: u64 = 4 << 30;

/// Tells `models` what a recorded window holds.
pub(in crate::commands) fn replay(
    file: &Path,
    context: &Context,
    models: &mut dyn Sink,
) -> anyhow::Result<Recording> {
    let open = foreign::open_within(file, MOST_RECORDED_BYTES)
        .with_context(|| format!("cannot open {}", file.display()))?;
    recorded::replay(BufReader::with_capacity(1 << 20, open), context.interrupt(), models)
        .with_context(|| file.display().to_string())
}

/// Follows the command, or the running process.
fn follow(args: &TraceArgs, context: &Context, models: &mut Models) -> anyhow::Result<Followed> {
    if context.json() == Some(Path::new("-")) && args.pid.is_none() {
        bail!("--json -: standard output is the command's own; name a file");
    }
    let (program, words) = match (args.pid, args.command.as_slice()) {
        (Some(pid), _) => (start::program_of(pid)?, [].as_slice()),
        (None, [program, words @ ..]) => (resolve_program(program)?, words),
        (None, []) => bail!("no command to run"),
    };
    let foreign = is_foreign(&program)?;
    if foreign && args.cycles {
        bail!(
            "--cycles: the model of the core knows x86-64 only, which {} is not",
            program.display()
        );
    }
    let engine = choose(args.engine.as_deref().or(foreign.then_some("qemu")))?;
    let launch = Launch {
        program: program.clone(),
        args: words.to_vec(),
        streams: Streams::Inherited,
        ..Launch::default()
    };
    let limits = Limits { timeout: args.timeout, interrupt: context.interrupt() };
    let found = match (&args.function, args.pid) {
        (Some(name), _) => start::named(&program, name)?,
        (None, Some(pid)) => start::at_work(pid, &program),
        (None, None) if foreign => bail!(
            "{} is for another processor, so it cannot be sampled to find where its time goes: \
             name a function with --function",
            program.display()
        ),
        (None, None) => start::hottest(&launch, limits, context)?,
    };
    let length = match (args.window, args.instructions) {
        (Some(calls), _) => Length::Calls(calls),
        (None, Some(count)) => Length::Instructions(count),
        (None, None) => Length::Instructions(usual_instructions(engine, args.cycles)),
    };
    let window = Window {
        start: found.start,
        skip: args.skip,
        length,
        memory: true,
        budget: Some(args.budget),
    };
    let mut file = args.record.as_deref().map(recorded::create).transpose();
    let file = file.as_mut().map_err(|e| anyhow::anyhow!("cannot write the trace: {e}"))?;
    let instructions = match length {
        Length::Instructions(count) => Some(count),
        Length::Calls(_) | Length::ToEnd => None,
    };
    let mut kept = args.cycles.then(Kept::writer);
    let mut progress = FollowProgress::new(context, instructions);
    let mut sinks: Vec<&mut dyn Sink> = vec![models, &mut progress];
    if let Some(file) = file {
        sinks.push(file);
    }
    if let Some(kept) = &mut kept {
        sinks.push(kept);
    }
    let sink = &mut Fan(sinks);
    let subject = args.pid.map_or(Subject::Command(&launch), Subject::Process);
    let recording = engine.follow(subject, &window, limits, sink)?;
    if let (Some(file), Some(path)) = (file.take(), &args.record) {
        recorded::keep(file, &recording)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let kept = kept.map(|kept| kept::finish(kept, &recording)).transpose()?;
    let calls = args.window.filter(|_| recording.ended == Ended::Length);
    Ok(Followed { recording, title: found.title, kept, calls })
}

/// Whether the program is for another processor than this, and only an emulator can run it.
///
/// # Errors
/// When it is for one that no engine knows, 32-bit x86 among them.
fn is_foreign(program: &Path) -> anyhow::Result<bool> {
    match Image::open(program) {
        Ok(image) => Ok(Some(image.architecture()) != Architecture::HOST),
        Err(error @ CodeError::Foreign { .. }) => Err(error.into()),
        // A script, or what the kernel will refuse with its own words.
        Err(_) => Ok(false),
    }
}

/// What an engine follows in some seconds, and the model of the core, which runs ten times, too.
fn usual_instructions(engine: &dyn Engine, cycles: bool) -> u64 {
    match (engine.id(), cycles) {
        ("step", _) => 100_000,
        (_, true) => 5_000_000,
        (_, false) => 100_000_000,
    }
}

/// The engine with this id, else the first that works here and follows the program on this
/// processor.
pub(in crate::commands) fn choose(asked: Option<&str>) -> anyhow::Result<&'static dyn Engine> {
    if let Some(id) = asked {
        let known = || ENGINES.iter().map(|e| e.id()).collect::<Vec<_>>().join(", ");
        let engine = engine(id)
            .with_context(|| format!("no engine is called `{id}`; known: {}", known()))?;
        return match engine.available() {
            Capability::Present => Ok(engine),
            Capability::Absent { cause } => bail!("engine {id} does not work here: {cause}"),
        };
    }
    let causes = match preferred() {
        Ok(engine) => return Ok(engine),
        Err(error) => error,
    };
    let instead = ENGINES.iter().find(|e| e.is_emulator() && e.available().is_present());
    let instead = instead.map_or(String::new(), |engine| {
        format!(
            " (--engine {} runs the command on an emulated processor and works here)",
            engine.id()
        )
    });
    bail!("no engine works here: {causes}{instead}")
}
