//! Runs a command until it has used so much time of the processor, and holds the thread that is at work then.

use std::collections::HashMap;
use std::time::Duration;

use super::{Mapping, OPTIONS_WITH_CHILDREN, Target, mappings};
use crate::model::Avma;
use crate::run::child::schedule_ns;
use crate::run::maps;
use crate::run::tracee::{self, News};
use crate::trace::engine::EngineError;

/// Looks at the time that threads have been on the processor.
#[derive(Default)]
pub(super) struct Looks {
    /// A thread is stopped when all of them together have been there for so long.
    stop_after: Option<Duration>,
    /// How long each had been there at the last look.
    at_last_look_ns: HashMap<i32, u64>,
    /// How long those had been there that have ended.
    of_ended_ns: u64,
    /// How long all of them had been there when the watching began.
    before_ns: u64,
    /// The thread that was asked to stop.
    asked: Option<i32>,
    /// The thread that was asked last and was elsewhere.
    was_elsewhere: Option<i32>,
}

impl Target<'_> {
    /// Runs the command until its threads, and those of the processes that it starts, have been on the processor for
    /// so long, and holds the one that is at work there, where it is in the program's own code; `made`: in code without a file.
    pub(super) fn run_for(&mut self, time: Duration, made: bool) -> Result<i32, EngineError> {
        self.looks.stop_after = Some(time);
        if let Some(tid) = self.held.take() {
            // Refused by a thread that is gone; its end is the next news.
            let _ = tracee::set_options(tid, OPTIONS_WITH_CHILDREN);
            self.go(tid, 0);
        }
        loop {
            match self.next()? {
                News::Stopped { tid, signal: libc::SIGTRAP, event: libc::PTRACE_EVENT_STOP }
                    if self.looks.asked == Some(tid) =>
                {
                    self.looks.asked = None;
                    let is_there =
                        |at: tracee::Position| !at.in_kernel && (!made || is_made(tid, at.address));
                    if tracee::position(tid).is_ok_and(is_there) {
                        self.hold(tid);
                        return Ok(tid);
                    }
                    // In a system call that would have to be made again, or in other code: at the next look.
                    self.looks.was_elsewhere = Some(tid);
                    self.looks.stop_after = Some(time);
                    self.go(tid, 0);
                }
                News::Stopped { tid, signal, event } => self.answer(tid, signal, event)?,
                News::Gone { tid } if self.looks.asked == Some(tid) => {
                    self.looks.asked = None;
                    self.looks.stop_after = Some(time);
                }
                News::Ended => {
                    let code = if made { "code without a file" } else { "its own code" };
                    let reason = format!(
                        "no thread was in {code} after {:.3} s on the processor",
                        time.as_secs_f64()
                    );
                    return Err(self.ended_before(&reason));
                }
                News::None | News::Gone { .. } => {}
            }
        }
    }

    /// How long each thread has been on the processor.
    fn used_ns(&self) -> HashMap<i32, u64> {
        let used = self.threads.keys().filter_map(|tid| Some((*tid, schedule_ns(*tid)?[0])));
        used.collect()
    }

    /// Has the time on the processor count from now on.
    pub(super) fn count_from_now(&mut self) {
        let now = self.used_ns();
        self.looks.before_ns = now.values().sum();
        self.looks.at_last_look_ns = now;
    }

    /// Asks the thread to stop that has been on the processor most since the last look, when all of them together
    /// have been there for as long as is wanted.
    pub(super) fn stop_when_it_is_time(&mut self) {
        let Some(time) = self.looks.stop_after else { return };
        let now = self.used_ns();
        let before = std::mem::take(&mut self.looks.at_last_look_ns);
        let ended = before.iter().filter(|(tid, _)| !now.contains_key(tid));
        self.looks.of_ended_ns += ended.map(|(_, ns)| ns).sum::<u64>();
        let all_ns = (self.looks.of_ended_ns + now.values().sum::<u64>())
            .saturating_sub(self.looks.before_ns);
        let since = |(tid, ns): &(&i32, &u64)| {
            let ns = *ns - before.get(tid).map_or(0, |old| *old.min(ns));
            // Another one than the last, if there is one.
            (ns > 0 && self.looks.was_elsewhere != Some(**tid), ns)
        };
        let at_work = now.iter().max_by_key(since).map(|(tid, _)| *tid);
        self.looks.at_last_look_ns = now;
        if let Some(tid) = at_work.filter(|_| u128::from(all_ns) >= time.as_nanos()) {
            self.looks.stop_after = None;
            self.looks.asked = Some(tid);
            // Refused only by a thread that is gone; its end is the next news.
            let _ = tracee::interrupt(tid);
        }
    }
}

/// Whether the code here is none of a file.
fn is_made(pid: i32, at: Avma) -> bool {
    Mapping::find(&mappings(pid), at).is_none_or(|(mapping, _)| !maps::has_code(&mapping.path))
}
