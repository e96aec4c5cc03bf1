//! A process that ran before we came: traced for a while, and let go of as it was.
//!
//! It is not ours: it never ends because we do, and whatever goes wrong, it is let go of. While its threads are stopped and
//! let go, a system call that waits may end early (`EINTR`) where the kernel does not begin it anew by itself, as
//! with `strace -p`.

use std::fs;
use std::io;
use std::time::Duration;

use super::{FOLLOWED, Target};
use crate::foreign::{Status, threads};
use crate::run::child::Limits;
use crate::run::tracee::{self, why_not_ours};
use crate::trace::engine::EngineError;

/// How long the window's start may be waited for, where nothing is said.
const PATIENCE: Duration = Duration::from_secs(60);

impl<'a> Target<'a> {
    /// Traces a process that runs, with all its threads.
    ///
    /// # Errors
    /// When there is no such process, or it is not ours to trace.
    pub(super) fn attach(pid: i32, limits: Limits<'a>) -> Result<Self, EngineError> {
        let refused = |why: String| EngineError::Forbidden(format!("process {pid} {why}"));
        if pid == std::process::id().cast_signed() {
            return Err(refused("is stallscope itself".into()));
        }
        let status = Status::of(pid).map_err(|_| refused("does not exist".into()))?;
        if let Some(process) = status.process("Tgid").filter(|process| *process != pid) {
            return Err(refused(format!("is a thread of process {process}: give that one")));
        }
        if let Some(tracer) = status.process("TracerPid").filter(|tracer| *tracer != 0) {
            return Err(refused(format!("is traced by process {tracer} (a debugger, or strace)")));
        }
        let path = fs::read_link(format!("/proc/{pid}/exe"))
            .map_err(|cause| refused(why_no_program(&cause)))?;
        let mut target = Self::new(pid, None, path, limits);
        // Until no look finds another thread: those that start meanwhile may be started by threads that are not traced yet.
        loop {
            let new: Vec<i32> =
                threads(pid).into_iter().filter(|tid| !target.threads.contains_key(tid)).collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                match tracee::seize(tid, FOLLOWED) {
                    Ok(()) => drop(target.threads.insert(tid, false)),
                    Err(cause) if cause.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(cause) => return Err(refused(why_not_ours(&cause))),
                }
            }
        }
        if target.threads.is_empty() {
            return Err(refused("has ended".into()));
        }
        target.count_from_now();
        Ok(target)
    }

    /// Whether the window's start has been waited for long enough.
    pub(super) fn check_patience(&self) -> Result<(), EngineError> {
        let patience = self.limits.timeout.unwrap_or(PATIENCE);
        // No thread has been held yet: then its memory is open.
        match self.memory.is_none() && self.began.elapsed() >= patience {
            true => Err(EngineError::NeverStarted(format!(
                "process {} did not come there in {patience:?}: it may be waiting (--timeout waits longer); it runs on",
                self.leader
            ))),
            false => Ok(()),
        }
    }
}

/// Why nobody tells which program a process runs.
fn why_no_program(cause: &io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::PermissionDenied => why_not_ours(cause),
        _ => "runs no program: it is a thread of the kernel, or has ended".into(),
    }
}
