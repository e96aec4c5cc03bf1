//! The engine `qemu`: whole programs under the user-mode emulator, AArch64 ones among them.
//!
//! The program runs under `qemu-x86_64` or `qemu-aarch64`, with a plugin of ours inside ([`build`])
//! that tells what one thread executes through memory shared with us ([`channel`]). The thread
//! followed is the one that comes to the start of the window; the others run on and are not
//! followed. Nothing is single-stepped and nothing needs `ptrace`, so it works where that is
//! forbidden, and a whole run takes a hundredth of what `step` takes.
//!
//! What the reader must know: it is another processor. The emulator has instruction set extensions
//! of its own choice (AVX2 and no AVX-512; all of AArch64), so libraries that choose their code by
//! them choose otherwise than on the machine at hand; a program built for AVX-512 dies. Time passes
//! ten to forty times faster for the program, which lets a runtime's timers do more in a window.
//! `dc zva`, which clears a line on AArch64, is not reported as a store.

mod build;
mod channel;
mod code;
mod follower;
mod frames;
mod guest;
mod pieces;
mod shape;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use super::{Ended, Engine, EngineError, Mapping, Recording, SelfCheck, Sink, Subject, Window};
use crate::code::Architecture;
use crate::model::Capability;
use crate::run::child::{Child, ChildError, Exit, Launch, Limits, Status, resolve_program};
use channel::Channel;
use follower::Follower;
use guest::{Guest, Wanted};

/// The longest that events lie in the ring before we look.
const SLICE: Duration = Duration::from_millis(1);
/// How long a question to the emulator itself, or building its plugin, may take on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);
/// The emulators, by the processor of the program.
const EMULATORS: [&str; 2] = ["qemu-x86_64", "qemu-aarch64"];

pub(super) struct Qemu;

fn failed(reason: &str) -> EngineError {
    EngineError::Unsupported { engine: "qemu", reason: reason.into() }
}

impl Engine for Qemu {
    fn id(&self) -> &'static str {
        "qemu"
    }

    fn summary(&self) -> &'static str {
        "the whole program under qemu-user, AArch64 ones too: some 20 million a second"
    }

    fn available(&self) -> Capability {
        let Some(emulator) =
            EMULATORS.iter().find_map(|name| resolve_program(OsStr::new(name)).ok())
        else {
            return Capability::absent(
                "neither qemu-x86_64 nor qemu-aarch64 is installed (Debian: qemu-user)",
            );
        };
        if build::compiler().is_none() {
            return Capability::absent(
                "there is no C compiler (cc) to build the emulator's plugin with",
            );
        }
        let limits = Limits { timeout: Some(PATIENCE), ..Limits::default() };
        match build::run(&emulator, vec!["-h".into()], &limits) {
            Ok((_, text)) if text.contains("-plugin") => Capability::Present,
            Ok(_) => Capability::absent(format!(
                "{} was built without plugins; take one configured with --enable-plugins",
                emulator.display()
            )),
            Err(error) => Capability::absent(error.to_string()),
        }
    }

    fn is_emulator(&self) -> bool {
        true
    }

    fn follow(
        &self,
        subject: Subject<'_>,
        window: &Window,
        limits: Limits<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Recording, EngineError> {
        let launch = match subject {
            Subject::Command(launch) => launch,
            Subject::Process(pid) => {
                let reason = format!("it starts programs itself, and process {pid} runs already");
                return Err(EngineError::Unsupported { engine: self.id(), reason });
            }
        };
        let guest = Guest::of(launch)?;
        let mut wanted = guest.wanted(&window.start)?;
        let mut channel = Channel::new(window.skip, window.memory)
            .map_err(|e| failed(&format!("no memory to share with the emulator: {e}")))?;
        let (emulated, _plugin) = emulated(launch, &guest, &channel, &limits)?;
        let mut follower = Follower::new(guest.architecture, window, sink);
        let mut mapped = Vec::new();
        let exit = Child::hold(&emulated)?
            .wait_with(
                &limits,
                |_| {
                    look(&mut channel, &mut wanted, &mut mapped, &mut follower);
                    if window.budget.is_some_and(|budget| follower.has_run_for(budget)) {
                        follower.stop_early();
                        channel.stop();
                    }
                    Ok(())
                },
                SLICE,
            )
            .map_err(|error| of_program(error, &launch.program))?;
        if !channel.installed() {
            return Err(not_installed(&exit));
        }
        if !follower.has_begun() {
            return Err(never_started(&channel, &wanted, window, &exit));
        }
        follower.end();
        Ok(Recording {
            engine: self.id(),
            instructions: follower.instructions(),
            wall_ns: follower.wall_ns(),
            ended: ended(&follower, &channel, &exit),
            mappings: mapped,
            self_check: SelfCheck::NotCompared,
            notes: notes(&follower, &channel, &guest),
            code: Vec::new(),
            exit: Some(exit),
        })
    }
}

/// Answers the plugin and takes what it has told since the last look.
fn look(
    channel: &mut Channel,
    wanted: &mut Wanted,
    mapped: &mut Vec<Mapping>,
    follower: &mut Follower<'_>,
) {
    if let Some(question) = channel.question() {
        channel.answer(wanted.look_in(&question));
        if !mapped.contains(&question) {
            mapped.push(question);
        }
    }
    channel.drain(|word| follower.word(word));
    if follower.is_over() {
        channel.stop();
    }
}

/// The command that runs the emulator on the program, and the plugin that it loads.
fn emulated(
    launch: &Launch,
    guest: &Guest,
    channel: &Channel,
    limits: &Limits<'_>,
) -> Result<(Launch, build::Plugin), EngineError> {
    let name = guest.emulator();
    let emulator = resolve_program(OsStr::new(name))
        .map_err(|_| failed(&format!("{name} is not installed (Debian: qemu-user)")))?;
    let questions = Limits { timeout: Some(PATIENCE), interrupt: limits.interrupt };
    let plugin = build::plugin(&emulator, &questions)?;
    let mut option = OsString::from("file=");
    // A comma ends an option, two are one.
    option.push(plugin.path.to_string_lossy().replace(',', ",,"));
    option.push(format!(",control={}", channel.path()));
    let mut args: Vec<OsString> = vec!["-plugin".into(), option, "-cpu".into()];
    args.push(match guest.architecture {
        Architecture::X86_64 => "max".into(),
        // Pointer authentication by the architecture's own cipher takes half of the time.
        Architecture::Aarch64 => "max,pauth-impdef=on".into(),
    });
    if let Some(root) = guest.root() {
        args.extend(["-L".into(), root.into()]);
    }
    args.push(guest.program.clone().into());
    args.extend(guest.args.iter().cloned());
    Ok((Launch { program: emulator, args, ..launch.clone() }, plugin))
}

/// An error about the emulator as one about the program, which is what the user started.
fn of_program(error: ChildError, program: &Path) -> ChildError {
    match error {
        ChildError::TimedOut { limit, .. } => ChildError::TimedOut { path: program.into(), limit },
        other => other,
    }
}

fn not_installed(exit: &Exit) -> EngineError {
    let said = exit.stderr.tail.trim();
    let said = if said.is_empty() { "its words are above" } else { said };
    failed(&format!("the emulator ended with {} before the program began: {said}", exit.status))
}

fn never_started(channel: &Channel, wanted: &Wanted, window: &Window, exit: &Exit) -> EngineError {
    let reason = match (wanted.is_found(), channel.arrivals()) {
        (false, _) => format!("{} was never loaded", wanted.object().display()),
        (true, 0) => "execution never came to its start".to_owned(),
        (true, n) => format!(
            "execution came to its start {n} times, and the first {} were to pass",
            window.skip
        ),
    };
    EngineError::NeverStarted(format!("{reason}; the command ended with {}", exit.status))
}

fn ended(follower: &Follower<'_>, channel: &Channel, exit: &Exit) -> Ended {
    match exit.status {
        _ if follower.ended_early() => Ended::Short,
        _ if follower.is_over() => Ended::Length,
        _ if channel.executing() => Ended::Exec,
        Status::Signal(signal) => Ended::Signal(signal),
        Status::Code(_) => Ended::Exit,
    }
}

fn notes(follower: &Follower<'_>, channel: &Channel, guest: &Guest) -> Vec<String> {
    let mut notes = vec![format!(
        "run by an emulator: another {} processor, with extensions of its own, and time that goes \
         by faster",
        guest.architecture
    )];
    if follower.ended_early() {
        notes.push(format!("the window ends early: {}", crate::trace::engine::OUT_OF_TIME));
    }
    let others = channel.most_threads().saturating_sub(1);
    if others > 0 {
        notes.push(format!("{others} other threads ran on and were not followed"));
        if !follower.is_over() {
            notes.push(
                "the thread came to its end before the window's: if the program moves work between \
                 threads, keep it on one (a Go program: GOMAXPROCS=1)"
                    .into(),
            );
        }
    }
    if follower.unreported() > 0 {
        notes.push(format!(
            "{} instructions touched memory that the emulator did not report",
            follower.unreported()
        ));
    }
    if follower.masked_loads() > 0 {
        notes.push(format!(
            "{} loads under a mask are told with all their lanes: the emulator does not say which \
             are wanted",
            follower.masked_loads()
        ));
    }
    notes
}
