//! Calls that name processes and threads: the copy goes by the ids of the original.

use std::path::Path;

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
            libc::SYS_kill => arguments[0] = own as u64,
            libc::SYS_tkill => arguments[0] = thread(arguments[0]),
            libc::SYS_tgkill => {
                (arguments[0], arguments[1]) = (own as u64, thread(arguments[1]));
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
            libc::SYS_clone | libc::SYS_clone3
                if like.counts && starts_thread(copy, number, arguments) =>
            {
                Verdict::StartThread
            }
            libc::SYS_exit | libc::SYS_exit_group => Verdict::Exit(arguments[0] as i32 & 0xff),
            libc::SYS_execve | libc::SYS_execveat => Verdict::Exec,
            libc::SYS_fork | libc::SYS_vfork | libc::SYS_clone | libc::SYS_clone3 => {
                Verdict::GiveUp("it starts a process or thread in the window".into())
            }
            // The driver puts in the copy's own id.
            libc::SYS_kill | libc::SYS_tkill | libc::SYS_tgkill => {
                let to = arguments[0] as i32;
                let is_own = |to: i32| number == libc::SYS_tkill && thread_exists(like.process, to);
                if to == self.pid || to == self.tid || is_own(to) {
                    Verdict::Run
                } else {
                    self.withhold(0)
                }
            }
            libc::SYS_sched_getaffinity | libc::SYS_prlimit64 | libc::SYS_sched_setaffinity => {
                Verdict::Run
            }
            _ => return None,
        };
        Some(verdict)
    }
}

/// Whether this thread is one of a process.
fn thread_exists(process: i32, tid: i32) -> bool {
    Path::new(&format!("/proc/{process}/task/{tid}")).exists()
}

/// Whether a call starts a thread of the process that makes it.
fn starts_thread(copy: &Process, number: i64, arguments: [u64; 6]) -> bool {
    let flags = match number {
        libc::SYS_clone3 => copy.word(arguments[0]).unwrap_or(0),
        _ => arguments[0],
    };
    flags & libc::CLONE_THREAD as u64 != 0
}
