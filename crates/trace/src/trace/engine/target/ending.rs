//! The end of the watching: every thread let go of, the command's end awaited; or the command killed.

use std::time::{Duration, Instant};

use super::{NAPS, Target};
use crate::run::child::{ChildError, Exit};
use crate::run::tracee::{self, News, Slot};
use crate::trace::engine::EngineError;

/// How long the end of what was killed may take.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

impl Target<'_> {
    /// Lets everything run on untraced. A command is waited for and collected; nothing is known of the end of a process that
    /// ran before.
    ///
    /// # Errors
    /// As [`Child::wait`].
    pub(in crate::trace::engine) fn finish(&mut self) -> Result<Option<Exit>, EngineError> {
        self.let_go();
        let limits = self.limits;
        match self.child.take() {
            // A thread that was made while we let go of the others, or that would not stop in time,
            // is let go of when it stops; else it would keep the command from ending.
            Some(child) => {
                Ok(Some(child.wait_with(&limits, |_| self.let_go_of_stopped(), NAPS.1)?))
            }
            None if self.is_attached => Ok(None),
            None => Err(ChildError::Interrupted.into()),
        }
    }

    /// As [`Target::finish`], of a command.
    pub(in crate::trace::engine) fn finish_command(&mut self) -> Result<Exit, EngineError> {
        self.finish()?.ok_or_else(|| ChildError::Interrupted.into())
    }

    /// Detaches from all threads, which run on.
    fn let_go(&mut self) {
        let began = Instant::now();
        self.awaited = None;
        self.breakpoint = None;
        if let Some(tid) = self.held.take() {
            let signal = std::mem::take(&mut self.undelivered);
            self.detach(tid, signal);
        }
        for (tid, signal) in std::mem::take(&mut self.parked) {
            self.detach(tid, signal);
        }
        for tid in self.threads.keys() {
            let _ = tracee::interrupt(*tid);
        }
        while !self.threads.is_empty() && began.elapsed() < LAST_PATIENCE {
            match tracee::news(self.leader) {
                News::None => std::thread::sleep(NAPS.0),
                News::Ended => break,
                News::Gone { tid } => drop(self.threads.remove(&tid)),
                News::Stopped { tid, signal, event } => self.detach_stopped(tid, signal, event),
            }
        }
        if self.is_attached {
            // Its end is told to us as the tracer first, and to its parent when we have taken note.
            tracee::look(self.leader, true);
        }
    }

    fn let_go_of_stopped(&mut self) -> Result<(), ChildError> {
        while let News::Stopped { tid, signal, event } = tracee::news(self.leader) {
            self.detach_stopped(tid, signal, event);
        }
        Ok(())
    }

    fn detach_stopped(&mut self, tid: i32, signal: i32, event: i32) {
        let ours = event != 0 || self.is_ours(tid, signal);
        self.detach(tid, if ours { 0 } else { signal });
    }

    fn detach(&mut self, tid: i32, signal: i32) {
        // All fail only for a thread that was killed meanwhile.
        let _ = tracee::set_breakpoint(tid, Slot(0), None);
        let _ = tracee::set_breakpoints(tid, &[]);
        if tracee::detach(tid, signal).is_ok() {
            self.threads.remove(&tid);
        }
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        if self.is_attached && !self.threads.is_empty() {
            self.let_go();
        }
        if self.child.is_none() {
            return;
        }
        // SAFETY: plain integers; the group is the child's own, never ours.
        unsafe { libc::killpg(self.leader, libc::SIGKILL) };
        let began = Instant::now();
        while began.elapsed() < LAST_PATIENCE {
            match tracee::news(self.leader) {
                News::Ended => return,
                News::None => std::thread::sleep(NAPS.0),
                News::Gone { .. } => {}
                // On its way out it may stop once more.
                News::Stopped { tid, .. } => drop(tracee::resume(tid, 0)),
            }
        }
    }
}
