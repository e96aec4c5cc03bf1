//! Whether a copy is believed: native copies must end as it does, and so must the original.

use std::time::{Duration, Instant};

use super::{Copied, Failure, RETRY_DIVISOR, Refused, Session, failed};
use crate::run::tracee::State;
use crate::trace::engine::process::{Process, Registers};
use crate::trace::engine::translate::finish::Finish;
use crate::trace::engine::translate::setup::{self, SetupError};
use crate::trace::engine::translate::verify::{self, Comparison, Native, Pace};
use crate::trace::engine::{EngineError, SelfCheck};

/// How fast the native copies run whose differences are excused, one after the other while they are
/// needed.
const PACES: [Pace; 4] = [Pace::Full, Pace::Slow, Pace::Full, Pace::Slow];

/// A native copy may take so much longer than the translated one, which is slower, and this long at least.
const PATIENCE: (u32, Duration) = (4, Duration::from_secs(10));

/// The other threads of a program may be kept waiting so long while the original runs the window
/// alone.
const MOST_WAITING: Duration = Duration::from_secs(2);

/// Native copies at the window's end.
struct Natives {
    /// One with its registers; `None` when it did not get there.
    control: Option<(Process, Registers)>,
    /// How others differ from it.
    noise: Vec<Comparison>,
    /// What of it equals the translated copy.
    equal: SelfCheck,
}

impl Session<'_> {
    /// Compares the copy with native copies, then with the original.
    ///
    /// What differs between two native copies is excused: clocks, random numbers. All copies are
    /// forks, so what differs between them and the original is not.
    pub(super) fn compare(
        &mut self,
        thread: &mut Process,
        copied: Copied,
    ) -> Result<SelfCheck, Failure> {
        let finish = match &copied.finish {
            Ok(finish) => finish,
            Err(reason) => {
                self.notes.push(format!("not compared with the original: {reason}"));
                return Ok(SelfCheck::NotCompared);
            }
        };
        let natives = self.confirmed(thread, &copied, finish)?;
        if natives.equal == SelfCheck::NotCompared {
            self.notes.push("no native copy came to the window's end".into());
        }
        if let Finish::Counted { left, .. } = finish {
            self.notes.push(format!(
                "not compared with the original: it passes the window's end {left} times"
            ));
            return Ok(natives.equal);
        }
        // Started last and not run yet, for what the time of day changes.
        let mut late = self.fork(thread)?;
        let signals = self.target.signals_delivered();
        let Some(at) = self.original_at_end(finish)? else {
            self.notes
                .push("not compared with the original: it did not come to the window's end".into());
            return Ok(natives.equal);
        };
        let mut found =
            verify::compare(&copied.copy, &copied.program, thread, &at).map_err(failed)?;
        let before = found.pages.len();
        natives.noise.iter().for_each(|two| found.excuse(two));
        if !found.is_equal()
            && let (Some((control, its)), Some(late)) = (&natives.control, &mut late)
            && let Native::Arrived(at) =
                self.run_native(late, finish, patience(copied.wall_ns), Pace::Full)?
        {
            found.excuse(&verify::compare(late, &at, control, its).map_err(failed)?);
        }
        let signals = self.target.signals_delivered() - signals;
        let cause = if found.is_equal() {
            None
        } else if signals > 0 {
            Some(format!("{signals} signals came to it in the window, and copies get none"))
        } else if !self.target.others_stand_still() {
            Some("it needed its other threads to come to the window's end".to_owned())
        } else {
            None
        };
        let Some(cause) = cause else {
            let excused = before - found.pages.len();
            return Ok(verdict(&found, excused, "the original's"));
        };
        self.notes.push(format!("not compared with the original: {cause}"));
        Ok(natives.equal)
    }

    /// Whether a signal that ends the translated copy also ends a native one.
    pub(super) fn native_dies(
        &self,
        thread: &mut Process,
        signal: i32,
        wall_ns: u64,
    ) -> Result<bool, EngineError> {
        let Some(mut copy) = self.fork(thread)? else { return Ok(true) };
        let end = self.run_native(&mut copy, &Finish::Never, patience(wall_ns), Pace::Full)?;
        Ok(matches!(end, Native::Killed(number) if number == signal))
    }

    /// Refuses the translated copy when native copies do not end as it does.
    fn confirmed(
        &self,
        thread: &mut Process,
        copied: &Copied,
        finish: &Finish,
    ) -> Result<Natives, Failure> {
        let patience = patience(copied.wall_ns);
        let control = self.native(thread, finish, patience, Pace::Full)?;
        let mut natives =
            Natives { control: None, noise: Vec::new(), equal: SelfCheck::NotCompared };
        let Some((control, at)) = control else { return Ok(natives) };
        let mut found =
            verify::compare(&copied.copy, &copied.program, &control, &at).map_err(failed)?;
        let before = found.pages.len();
        for pace in PACES {
            if found.is_equal() {
                break;
            }
            if let Some((other, its)) = self.native(thread, finish, patience, pace)? {
                let two = verify::compare(&other, &its, &control, &at).map_err(failed)?;
                found.excuse(&two);
                natives.noise.push(two);
            }
        }
        if !found.is_equal() {
            let reason = format!(
                "at {:#x} the translated copy is not what a native one is: {}",
                copied.program.rip,
                differences(&found)
            );
            let shorter = Some(copied.instructions / RETRY_DIVISOR);
            return Err(Refused { reason, shorter }.into());
        }
        natives.equal = verdict(&found, before - found.pages.len(), "a native copy's");
        natives.control = Some((control, at));
        Ok(natives)
    }

    /// A copy at the window's start; `None` when it cannot be made as the others were.
    fn fork(&self, thread: &mut Process) -> Result<Option<Process>, EngineError> {
        let mut copy = thread.fork().map_err(failed)?;
        Ok(setup::complete(&mut copy, thread).is_ok().then_some(copy))
    }

    fn run_native(
        &self,
        copy: &mut Process,
        finish: &Finish,
        patience: Duration,
        pace: Pace,
    ) -> Result<Native, EngineError> {
        let until = Instant::now() + patience;
        let is_over = || Instant::now() >= until || self.target.check_limits().is_err();
        let ran = verify::run_natively(copy, &mut self.calls(), finish.clone(), &is_over, pace);
        self.target.check_limits()?;
        match ran {
            Ok(native) => Ok(native),
            // No room for a counter, or the like.
            Err(SetupError::Unsuitable(_) | SetupError::Call { .. }) => Ok(Native::Lost),
            Err(SetupError::System(cause)) => Err(failed(cause)),
        }
    }

    /// A copy that ran the window natively, and its registers there; `None` when it got lost.
    fn native(
        &self,
        thread: &mut Process,
        finish: &Finish,
        patience: Duration,
        pace: Pace,
    ) -> Result<Option<(Process, Registers)>, EngineError> {
        let Some(mut copy) = self.fork(thread)? else { return Ok(None) };
        Ok(match self.run_native(&mut copy, finish, patience, pace)? {
            Native::Arrived(registers) => Some((copy, *registers)),
            Native::Killed(_) | Native::Lost => None,
        })
    }

    /// Lets the original run the window; its registers at the end. The other threads stand still as
    /// they do in the copies, unless it takes too long.
    fn original_at_end(&mut self, finish: &Finish) -> Result<Option<Registers>, EngineError> {
        let mut finish = finish.clone();
        self.target.release_others_after(MOST_WAITING);
        loop {
            // From the window's start, or from a stop on the way, without that stop; see `run_natively`.
            match self.target.step(self.tid, 0, true)? {
                State::Stopped { signal, event: 0 } if signal != libc::SIGTRAP => {
                    self.target.deliver_later(signal);
                }
                State::Stopped { .. } => {}
                State::Gone | State::Running => return Ok(None),
            }
            if !self.target.run_until(self.tid, &finish.addresses())? {
                return Ok(None);
            }
            let thread = Process::borrowed(self.tid).map_err(failed)?;
            let registers = thread.registers().map_err(failed)?;
            if finish.arrived(&registers, &thread) {
                return Ok(Some(registers));
            }
        }
    }
}

/// How long a native copy of what the translated one did may take.
fn patience(wall_ns: u64) -> Duration {
    PATIENCE.1.max(Duration::from_nanos(wall_ns) * PATIENCE.0)
}

fn verdict(found: &Comparison, excused: usize, whose: &str) -> SelfCheck {
    if !found.is_equal() {
        return SelfCheck::Differs(format!(
            "at the window's end these differ from {whose}: {}",
            differences(found)
        ));
    }
    let mut text = format!(
        "18 registers and {} pages of memory equal {whose} at the window's end",
        found.compared_pages as usize - excused
    );
    if excused > 0 {
        text.push_str(&format!("; {excused} pages differ as they do between two native runs"));
    }
    if found.left_out_bytes > 0 {
        text.push_str(&format!("; {} MiB were not compared", found.left_out_bytes >> 20));
    }
    SelfCheck::Equal(text)
}

fn differences(found: &Comparison) -> String {
    let registers = found.registers.iter();
    let mut what = registers
        .map(|(name, ours, theirs)| format!("{name} ({ours:#x}, not {theirs:#x})"))
        .collect::<Vec<_>>()
        .join(", ");
    if !found.pages.is_empty() {
        if !what.is_empty() {
            what.push_str(" and ");
        }
        what.push_str(&format!(
            "{} pages of memory, first at {:#x}",
            found.pages.len(),
            found.bytes.first().copied().unwrap_or(0)
        ));
    }
    what
}
