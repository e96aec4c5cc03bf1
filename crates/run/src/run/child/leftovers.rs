//! What a run leaves behind: found, ended and named.
//!
//! A process whose parent has ended becomes a child of ours (`PR_SET_CHILD_SUBREAPER`), a daemon
//! too. So whatever of a run is still there behind its end is among our children.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::guardian;
use crate::foreign::{Stat, children, plain};

/// How long the end of what was killed may take.
const PATIENCE: Duration = Duration::from_secs(2);
const NAP: Duration = Duration::from_millis(1);

/// Commands that have not been collected, by process id.
static LIVE: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn live() -> std::sync::MutexGuard<'static, BTreeSet<i32>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One run, by its process and what its environment says.
#[derive(Debug)]
pub(super) struct Run {
    pid: i32,
    mark: String,
}

/// The mark for the environment of the next run.
pub(super) fn next_mark() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{}-{:08x}", guardian::mark(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Makes orphans of our children our own.
pub(super) fn adopt_orphans() {
    // It fails on no kernel that has what else we need.
    let _ = set_child_subreaper(true);
}

impl Run {
    /// A command that has just been forked.
    pub(super) fn begun(pid: i32, mark: String) -> Self {
        live().insert(pid);
        Self { pid, mark }
    }

    /// The names of the processes that outlive the command.
    pub(super) fn left_behind(&self) -> Vec<String> {
        let orphans = self.orphans();
        orphans.into_iter().filter(|orphan| !orphan.is_dead).map(|orphan| orphan.name).collect()
    }

    /// Kills and collects all that is left of it but the command itself.
    pub(super) fn end_orphans(&self) {
        let until = Instant::now() + PATIENCE;
        // A dead one has no environment any more to tell whose it was.
        let mut killed = BTreeSet::new();
        loop {
            let orphans = self.orphans();
            let are_new = !orphans.is_empty();
            for orphan in orphans {
                // It is our child and not collected, so that the number is its own.
                let _ = kill(Pid::from_raw(orphan.pid), Signal::SIGKILL);
                killed.insert(orphan.pid);
            }
            // SAFETY: plain integers and a null pointer, of children of ours that nobody else collects.
            killed.retain(|pid| unsafe {
                libc::waitpid(*pid, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL) == 0
            });
            // What was killed may have left orphans of its own.
            if killed.is_empty() && !are_new || Instant::now() >= until {
                return;
            }
            std::thread::sleep(NAP);
        }
    }

    fn orphans(&self) -> Vec<Process> {
        let only_run = live().len() <= 1;
        children(std::process::id() as i32)
            .into_iter()
            .filter(|pid| !live().contains(pid) && guardian::pid() != Some(*pid))
            .filter_map(Process::read)
            .filter(|process| self.owns(process, only_run))
            .collect()
    }

    /// Whether a child of ours that we did not start comes from this run.
    fn owns(&self, orphan: &Process, only_run: bool) -> bool {
        match orphan.mark.as_deref() {
            Some(marks) => marks.contains(&self.mark),
            None if orphan.group == self.pid => true,
            // A daemon without our environment, or dead: one of this run if there is no other, and
            // if it has left the session that whoever calls us shares with us.
            // SAFETY: plain integers.
            None => only_run && orphan.session != unsafe { libc::getsid(0) },
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        live().remove(&self.pid);
    }
}

/// What `/proc` says of one.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    name: String,
    is_dead: bool,
    group: i32,
    session: i32,
    /// Our variable in its environment.
    mark: Option<String>,
}

impl Process {
    fn read(pid: i32) -> Option<Self> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        Self::parse(pid, &String::from_utf8_lossy(&stat), &environment)
    }

    fn parse(pid: i32, stat: &str, environment: &[u8]) -> Option<Self> {
        let Stat { name, state, group, session, .. } = Stat::parse(stat)?;
        let prefix = [guardian::VARIABLE.as_bytes(), b"="].concat();
        let mark = environment.split(|b| *b == 0).find_map(|pair| pair.strip_prefix(&prefix[..]));
        Some(Self {
            pid,
            name: plain(&name).into_owned(),
            is_dead: matches!(state, 'Z' | 'X'),
            group,
            session,
            mark: mark.map(|mark| String::from_utf8_lossy(mark).into_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(environment: &str, group: i32, session: i32) -> Process {
        let stat = format!("77 (a) b) S 1 {group} {session} 0");
        Process::parse(77, &stat, environment.as_bytes()).unwrap()
    }

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let read = process("A=1\0STALLSCOPE_RUN=abc-00000001\0", 5, 6);
        assert_eq!((read.name.as_str(), read.group, read.session), ("a) b", 5, 6));
        assert_eq!(read.mark.as_deref(), Some("abc-00000001"));
        assert!(!read.is_dead);
        assert!(Process::parse(1, "1 (x) Z 1 2 3 0", b"").unwrap().is_dead);
        assert_eq!(Process::parse(1, "nonsense", b""), None);
    }

    #[test]
    fn only_what_comes_from_the_run_is_its_own() {
        // SAFETY: plain integers.
        let ours = unsafe { libc::getsid(0) };
        let run = Run { pid: 1_000_000, mark: "abc-00000001".into() };
        assert!(run.owns(&process("STALLSCOPE_RUN=outer-1 abc-00000001\0", 5, ours), false));
        assert!(!run.owns(&process("STALLSCOPE_RUN=abc-00000002\0", 5, ours + 1), true));
        // Without the mark: by its group, or as a daemon while no other run could have left it.
        assert!(run.owns(&process("", 1_000_000, ours), false));
        assert!(run.owns(&process("", 5, ours + 1), true));
        assert!(!run.owns(&process("", 5, ours + 1), false));
        assert!(!run.owns(&process("", 5, ours), true));
    }
}
