//! A command that gives a server its work: it runs against the child once that waits for work, and then the child is
//! told to end.
//!
//! A child waits for work when a process of its group listens on a socket, or when all threads of the group have been
//! asleep for a while without using the processor. It ends on `SIGTERM`, as servers do for every init system.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::error::{ChildError, last_lines};
use super::{Background, Child, Exit, Launch, Limits, Status, schedule_ns};
use crate::foreign::{Stat, processes, threads};

/// How long a server may take until it waits for work, and how long to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// A group that sleeps for so long without a socket waits for work, too.
const ASLEEP: Duration = Duration::from_millis(100);
/// What a load may take behind the end of a server that ends by itself.
const GRACE: Duration = Duration::from_secs(1);
const NAP: Duration = Duration::from_millis(2);
/// The option that names it.
const OPTION: &str = "load";

/// What gives a child its work.
#[derive(Clone, Debug)]
pub struct Load {
    /// How it is run.
    pub launch: Launch,
    /// The command as it was typed, for messages.
    pub command: String,
}

/// Runs what belongs to the run of another command to its end; what it leaves running goes on until it is dropped.
///
/// # Errors
/// [`ChildError::Step`] when it cannot be run or fails, and [`ChildError::Interrupted`].
pub fn run_step(
    step: &'static str,
    command: &str,
    launch: Result<Launch, ChildError>,
    limits: &Limits<'_>,
) -> Result<(Exit, Background), ChildError> {
    let done =
        launch.and_then(|launch| Child::hold(&launch)).and_then(|child| child.wait_keeping(limits));
    match done {
        Ok((exit, background)) if exit.status.success() => Ok((exit, background)),
        Ok((exit, _)) => {
            let what = format!("failed: {}", exit.status);
            Err(failed(step, command, what, last_lines(&exit.stderr.tail)))
        }
        Err(ChildError::Interrupted) => Err(ChildError::Interrupted),
        Err(cause) => Err(failed(step, command, format!("did not run: {cause}"), String::new())),
    }
}

fn failed(step: &'static str, command: &str, what: String, said: String) -> ChildError {
    ChildError::Step { step, command: command.to_owned(), what, said }
}

/// Whether a server ends so that is told to: by the signal, by the code that shells give it, or as it likes.
pub(super) fn is_told_to_end(status: Status) -> bool {
    let told = [Status::Signal(libc::SIGTERM), Status::Code(128 + libc::SIGTERM)];
    status.success() || told.contains(&status)
}

/// A load on its way.
pub(super) struct Loading {
    command: String,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64, ChildError>>,
}

impl Loading {
    /// Begins to watch a child that is about to execute its program; `alive` stands for it.
    pub(super) fn begin(load: &Load, pid: libc::pid_t, alive: OwnedFd) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (command, load, stopped) = (load.command.clone(), load.clone(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let done = drive(&load, pid, &stopped);
            // Nobody waits for a child that is told to end by others, or that has ended.
            if !stopped.load(Ordering::Relaxed) {
                end(&alive);
            }
            done
        });
        Self { command, stop, thread }
    }

    /// Nanoseconds that the load took, once the child has ended in this way; by then it is over, or stopped.
    ///
    /// # Errors
    /// [`ChildError::Step`] when it failed, or the child had ended before it.
    pub(super) fn finish(self, status: Status, said: &str) -> Result<u64, ChildError> {
        let was_told = is_told_to_end(status);
        let ended = Instant::now();
        // One that serves so much and then ends by itself has given its last answer a moment ago.
        while was_told && !self.thread.is_finished() && ended.elapsed() < GRACE {
            std::thread::sleep(NAP);
        }
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(Ok(wall_ns)) => Ok(wall_ns),
            Ok(Err(failed @ ChildError::Step { .. })) if was_told => Err(failed),
            _ => {
                let what = format!("was not done when the command ended: {status}");
                Err(failed(OPTION, &self.command, what, last_lines(said)))
            }
        }
    }

    /// Ends it with the child.
    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
    }
}

/// Waits until the child waits for work and gives it the work; nanoseconds that it took.
fn drive(load: &Load, pid: libc::pid_t, stop: &AtomicBool) -> Result<u64, ChildError> {
    let began = Instant::now();
    let mut asleep: Option<(Instant, u64)> = None;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(ChildError::Interrupted);
        }
        let group = group(pid);
        if group.iter().any(|pid| listens(*pid)) {
            break;
        }
        let used = group.iter().filter_map(|pid| schedule_ns(*pid)).map(|[on, _]| on).sum();
        asleep = match asleep {
            _ if group.is_empty() || !group.iter().all(|pid| sleeps(*pid)) => None,
            Some((since, before)) if before == used => Some((since, before)),
            _ => Some((Instant::now(), used)),
        };
        if asleep.is_some_and(|(since, _)| since.elapsed() >= ASLEEP) {
            break;
        }
        if began.elapsed() >= PATIENCE {
            let what =
                "was not run: the command neither listens on a socket nor waits for anything";
            let limit = format!("{what} within {PATIENCE:?}");
            return Err(failed(OPTION, &load.command, limit, String::new()));
        }
        std::thread::sleep(NAP);
    }
    let limits = Limits { timeout: None, interrupt: stop };
    let (exit, _background) = run_step(OPTION, &load.command, Ok(load.launch.clone()), &limits)?;
    Ok(exit.wall_ns)
}

/// Tells the child to end, and kills it where it does not.
fn end(alive: &OwnedFd) {
    let signal = |number: libc::c_int| {
        let null = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: plain integers and a null pointer; the descriptor stands for this process and no other.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, alive.as_raw_fd(), number, null, 0) };
    };
    signal(libc::SIGTERM);
    let mut ended = [PollFd::new(alive.as_fd(), PollFlags::POLLIN)];
    let patience = PollTimeout::try_from(PATIENCE).unwrap_or(PollTimeout::MAX);
    if poll(&mut ended, patience) == Ok(0) {
        signal(libc::SIGKILL);
    }
}

/// Which processes are in the group of this leader.
fn group(leader: libc::pid_t) -> Vec<i32> {
    let is_in = |pid: &i32| Stat::of(pid).is_some_and(|stat| stat.group == leader);
    processes().filter(is_in).collect()
}

/// Whether all threads of a process sleep.
fn sleeps(pid: i32) -> bool {
    let stats = threads(pid).into_iter().filter_map(|tid| Stat::of(format!("{pid}/task/{tid}")));
    stats.into_iter().all(|stat| stat.state == 'S')
}

/// The sockets that a process has open, by number.
fn sockets(pid: i32) -> BTreeSet<String> {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return BTreeSet::new() };
    let links = open.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    let number =
        |to: PathBuf| Some(to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned());
    links.filter_map(number).collect()
}

/// Whether a process listens on a socket.
fn listens(pid: i32) -> bool {
    let sockets = sockets(pid);
    let table = |name: &str| {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{name}"));
        listening(name, &text.unwrap_or_default())
    };
    !sockets.is_empty()
        && ["tcp", "tcp6", "unix"].into_iter().flat_map(table).any(|n| sockets.contains(&n))
}

/// The numbers of the sockets of a table of the kernel's that are listened on.
fn listening(name: &str, table: &str) -> Vec<String> {
    /// `TCP_LISTEN`.
    const LISTEN: &str = "0A";
    /// `__SO_ACCEPTCON`.
    const ACCEPTS: u32 = 0x1_0000;
    let of = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (is_open, number) = if name == "unix" {
            let flags = u32::from_str_radix(words.get(3)?, 16).ok()?;
            (flags & ACCEPTS != 0, words.get(6)?)
        } else {
            (*words.get(3)? == LISTEN, words.get(9)?)
        };
        is_open.then(|| (*number).to_owned())
    };
    table.lines().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listened_on_is_found_in_the_kernels_tables() {
        let tcp = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n   \
            1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 20 4 30 10 -1\n";
        assert_eq!(listening("tcp", tcp), ["4711"]);
        let unix = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0: 00000002 00000000 00010000 0001 01 81 /run/a\n0: 00000003 00000000 00000000 0001 03 82\nbroken\n";
        assert_eq!(listening("unix", unix), ["81"]);
    }

    fn served(server: &str, load: &str) -> Result<Exit, ChildError> {
        let load = Load { launch: Launch::shell(load), command: load.into() };
        let launch = Launch { load: Some(Box::new(load)), ..Launch::shell(server) };
        Child::hold(&launch)?.wait(&Limits::default())
    }

    #[test]
    fn a_server_gets_its_load_when_it_waits_and_is_told_to_end() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe").display().to_string();
        // It says what it was given, and that it was told to end.
        let server = format!(
            "trap 'echo told; exit 0' TERM; mkfifo {pipe}; while :; do read line < {pipe} && echo $line; done"
        );
        let exit = served(&server, &format!("echo work > {pipe}; sleep 0.2")).unwrap();
        assert_eq!((exit.stdout.tail.as_str(), exit.status), ("work\ntold\n", Status::Code(0)));
        // Its time is that of the load.
        assert!(exit.wall_ns >= 200_000_000);
        // One that knows no SIGTERM ends by it, and that is well, too.
        assert_eq!(served("exec sleep 1000", "true").unwrap().status, Status::Code(0));
    }

    #[test]
    fn a_load_that_fails_and_a_server_that_ends_early_are_errors() {
        let said = |server, load| served(server, load).unwrap_err().to_string();
        let failed = said("exec sleep 1000", "echo nobody answers >&2; exit 4");
        assert!(
            failed.contains("--load `echo nobody answers >&2; exit 4` failed: exit code 4"),
            "{failed}"
        );
        assert!(failed.contains("nobody answers"), "{failed}");
        let ended = said("sleep 0.3; echo no port >&2; exit 7", "sleep 1000");
        assert!(ended.contains("was not done when the command ended: exit code 7"), "{ended}");
        assert!(ended.contains("no port"), "{ended}");
    }

    #[test]
    fn a_load_ends_with_a_child_that_is_dropped() {
        let load = Load { launch: Launch::shell("sleep 1000"), command: String::new() };
        let launch = Launch { load: Some(Box::new(load)), ..Launch::shell("exec sleep 1000") };
        let began = Instant::now();
        let limits = Limits { timeout: Some(Duration::from_millis(300)), ..Limits::default() };
        let error = Child::hold(&launch).and_then(|child| child.wait(&limits)).unwrap_err();
        assert!(matches!(error, ChildError::TimedOut { .. }), "{error}");
        assert!(began.elapsed() < Duration::from_secs(100));
    }
}
