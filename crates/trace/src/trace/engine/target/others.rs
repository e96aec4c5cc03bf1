//! The other threads of the window's process: kept stopped while one is followed, and let go again.

use std::time::{Duration, Instant};

use super::Target;
use crate::run::tracee::{self, News};
use crate::trace::engine::EngineError;

impl Target<'_> {
    /// Stops all threads of the held one's process but that one, and keeps them stopped. How many there are in all.
    pub(in crate::trace::engine) fn stop_others(&mut self) -> Result<usize, EngineError> {
        self.others_run = false;
        let held = self.held;
        // Refused only by a thread that has ended: its end is the next news, or was news already.
        let gone = self.own_threads().filter(|tid| {
            Some(*tid) != held && tracee::interrupt(*tid).is_err() && !self.is_own(*tid)
        });
        for tid in gone.collect::<Vec<_>>() {
            self.threads.remove(&tid);
        }
        while self.own_threads().count() > self.parked.len() + usize::from(self.held.is_some()) {
            match self.next()? {
                News::Stopped { tid, event: libc::PTRACE_EVENT_EXIT, .. } => self.go(tid, 0),
                News::Stopped { tid, signal, event } if !self.is_own(tid) => {
                    self.answer(tid, signal, event)?;
                }
                News::Stopped { tid, event: libc::PTRACE_EVENT_CLONE, .. } => {
                    self.note_started_by(tid);
                    self.parked.push((tid, 0));
                }
                News::Stopped { tid, signal, event: 0 } if !self.is_ours(tid, signal) => {
                    self.parked.push((tid, signal));
                }
                News::Stopped { tid, .. } => self.parked.push((tid, 0)),
                News::Ended => break,
                News::None | News::Gone { .. } => {}
            }
        }
        Ok(self.own_threads().count())
    }

    /// As [`Target::release_others`], once this time has gone by.
    pub(in crate::trace::engine) fn release_others_after(&mut self, patience: Duration) {
        self.release_at = Some(Instant::now() + patience);
    }

    /// Whether all threads but one have been stopped since [`Target::stop_others`].
    pub(in crate::trace::engine) fn others_stand_still(&self) -> bool {
        !self.others_run
    }

    /// Lets the threads that [`Target::stop_others`] stopped run on.
    pub(in crate::trace::engine) fn release_others(&mut self) {
        self.others_run |= !self.parked.is_empty();
        for (tid, signal) in std::mem::take(&mut self.parked) {
            self.go(tid, signal);
        }
    }
}
