//! Calls that name processes and threads: the copy goes by the ids of the original.

use super::{Calls, Copies, Verdict};
use crate::trace::engine::process::Process;

impl Calls {
    /// The arguments, with the copy's own id where the program names the original.
    pub(in crate::trace::engine::translate) fn with_own_ids(
        &self,
        own: i32,
        number: i64,
        mut arguments: [u64; 6],
    ) -> [u64; 6] {
        let thread = |id: u64| match id as i32 {
            id if [self.pid, self.tid].contains(&id) => own as u64,
            _ => id,
        };
        match number {
            libc::SYS_kill | libc::SYS_tkill => arguments[0] = thread(arguments[0]),
            libc::SYS_tgkill => {
                (arguments[0], arguments[1]) = (thread(arguments[0]), thread(arguments[1]));
            }
            libc::SYS_sched_getaffinity
            | libc::SYS_sched_setaffinity
            | libc::SYS_prlimit64
            | libc::SYS_getpgid
            | libc::SYS_getsid
                if [self.pid, self.tid].contains(&(arguments[0] as i32)) =>
            {
                arguments[0] = 0;
            }
            _ => {}
        }
        arguments
    }

    /// Who we are, whom we signal, and how we end.
    pub(super) fn identity(
        &mut self,
        copy: &Process,
        like: Copies,
        number: i64,
        arguments: [u64; 6],
    ) -> Option<Verdict> {
        let verdict = match number {
            libc::SYS_getpid => Verdict::Answer(self.pid.into()),
            libc::SYS_gettid | libc::SYS_set_tid_address if copy.pid == like.process => {
                Verdict::Answer(self.tid.into())
            }
            // Threads that the copy has started have ids of their own.
            libc::SYS_gettid | libc::SYS_set_tid_address => Verdict::Run,
            libc::SYS_exit | libc::SYS_exit_group => Verdict::Exit(arguments[0] as i32 & 0xff),
            libc::SYS_execve | libc::SYS_execveat => Verdict::Exec,
            libc::SYS_fork | libc::SYS_vfork | libc::SYS_clone | libc::SYS_clone3 => {
                match start(copy, number, arguments).filter(|_| like.counts) {
                    Some(Start::Process(_)) if !self.written.is_empty() => {
                        Verdict::GiveUp("it starts a process after it has written files".into())
                    }
                    Some(start) => Verdict::Start(start),
                    None => Verdict::GiveUp("it starts a process or thread in the window".into()),
                }
            }
            // The driver puts in the copy's own id.
            libc::SYS_kill | libc::SYS_tkill | libc::SYS_tgkill => {
                let to = arguments[0] as i32;
                if to == self.pid || to == self.tid || like.names_own {
                    Verdict::Run
                } else {
                    self.withhold(0)
                }
            }
            // A group of its own, for the copy.
            libc::SYS_setpgid if like.counts && arguments[..2] == [0, 0] => Verdict::Run,
            libc::SYS_sched_getaffinity | libc::SYS_prlimit64 | libc::SYS_sched_setaffinity => {
                Verdict::Run
            }
            _ => return None,
        };
        Some(verdict)
    }
}

/// What a call starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::trace::engine::translate) enum Start {
    /// A thread.
    Thread,
    /// A process, by a `clone` with these arguments.
    Process([u64; 6]),
}

/// What a call starts; none where that is neither a thread nor a process like those of `fork`. A child that would have
/// its parent's memory until it calls another program gets memory of its own: what it writes before it does so, its parent
/// does not read if all goes well.
fn start(copy: &Process, number: i64, a: [u64; 6]) -> Option<Start> {
    const THREAD: u64 = libc::CLONE_THREAD as u64;
    const SHARES_MEMORY: u64 = (libc::CLONE_VM | libc::CLONE_VFORK) as u64;
    const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
    const IDS: i32 =
        libc::CLONE_PARENT_SETTID | libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID;
    const OF_A_FORK: u64 = 0xff | SHARES_MEMORY | CLONE_CLEAR_SIGHAND | IDS as u64;
    let [flags, stack, parent_tid, child_tid] = match number {
        libc::SYS_clone => [a[0], a[1], a[2], a[3]],
        libc::SYS_clone3 => {
            let word = |n: u64| copy.word(a[0].wrapping_add(8 * n));
            let (flags, signal) = (word(0)?, word(4)?);
            [flags | signal, word(5)?.wrapping_add(word(6)?), word(3)?, word(2)?]
        }
        _ => [libc::SIGCHLD as u64, 0, 0, 0],
    };
    if flags & THREAD != 0 {
        return Some(Start::Thread);
    }
    let shared = flags & SHARES_MEMORY;
    let is_fork = (shared == 0 || shared == SHARES_MEMORY)
        && flags & !OF_A_FORK == 0
        && flags & 0xff == libc::SIGCHLD as u64;
    is_fork.then_some(Start::Process([flags & !SHARES_MEMORY, stack, parent_tid, child_tid, 0, 0]))
}
