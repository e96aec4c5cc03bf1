//! Where this thread may run, and holding it there.
//!
//! A sample that migrates compares two cores. The pin restores the mask it found, so a library
//! caller gets its thread back as it was.

use std::fmt;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Clock, ClockError, SamplePlan, TickReading, take_sample};
use crate::stats::percent;

/// This thread, held on one processor until the value is dropped.
#[derive(Debug)]
pub struct Pin {
    before: CpuSet,
}

fn current_mask() -> Result<CpuSet, ClockError> {
    sched_getaffinity(Pid::from_raw(0))
        .map_err(|source| ClockError::Affinity { action: "read", source })
}

fn set_mask(mask: &CpuSet) -> Result<(), ClockError> {
    sched_setaffinity(Pid::from_raw(0), mask)
        .map_err(|source| ClockError::Affinity { action: "set", source })
}

impl Pin {
    /// Holds the calling thread on `cpu`.
    ///
    /// # Errors
    /// [`ClockError::Affinity`] when the kernel refuses, for example for a CPU outside the cpuset.
    pub fn to(cpu: usize) -> Result<Self, ClockError> {
        let before = current_mask()?;
        let mut pin = Self { before };
        pin.move_to(cpu)?;
        Ok(pin)
    }

    /// Moves the pin to another processor; the mask to restore stays the original one.
    ///
    /// # Errors
    /// As [`Pin::to`]; the thread then stays where it was.
    pub fn move_to(&mut self, cpu: usize) -> Result<(), ClockError> {
        let mut mask = CpuSet::new();
        mask.set(cpu).map_err(|source| ClockError::Affinity { action: "set", source })?;
        set_mask(&mask)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // A drop cannot report it; the worst that happens is a thread that stays pinned.
        let _: Result<(), Errno> = sched_setaffinity(Pid::from_raw(0), &self.before);
    }
}

/// The processors that the calling thread may run on, ascending.
///
/// # Errors
/// [`ClockError::Affinity`] when the kernel does not say, [`ClockError::NoCpu`] when it names none.
pub fn allowed_cpus() -> Result<Vec<usize>, ClockError> {
    let mask = current_mask()?;
    let cpus: Vec<usize> =
        (0..CpuSet::count()).filter(|cpu| mask.is_set(*cpu).unwrap_or(false)).collect();
    if cpus.is_empty() { Err(ClockError::NoCpu) } else { Ok(cpus) }
}

/// `0-3,8` and the like; what cannot be read is left out.
pub(crate) fn parse_processor_list(text: &str) -> Vec<i32> {
    /// More than any kernel is built for; keeps a nonsensical range from filling memory.
    const MOST: i32 = 16384;
    let mut numbers = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) {
            numbers.extend(first.max(0)..=last.min(MOST));
        }
    }
    numbers
}

/// The logical processors that a process stays on: one, or several for one with threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Cpus(Vec<usize>);

impl Cpus {
    /// The set of one processor.
    #[must_use]
    pub fn one(cpu: usize) -> Self {
        Self(vec![cpu])
    }

    /// The last `count` of `allowed`, because interrupts and everything that starts at boot gather on
    /// the first; `None` when there are not as many, or `count` is none.
    #[must_use]
    pub fn last(count: usize, allowed: &[usize]) -> Option<Self> {
        let from = allowed.len().checked_sub(count).filter(|_| count > 0)?;
        Some(Self(allowed[from..].to_vec()))
    }

    /// The processor, where it is a single one.
    #[must_use]
    pub fn single(&self) -> Option<usize> {
        if let [cpu] = self.0[..] { Some(cpu) } else { None }
    }

    /// Its processors, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied()
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        write!(f, "cpu{} {}", if words.len() == 1 { "" } else { "s" }, words.join(", "))
    }
}

/// At most this many processors are tried; on a large machine they are spread evenly.
const MOST_CANDIDATES: usize = 8;

/// Samples per candidate: 2 to 5 ms each.
const SAMPLES: usize = 120;

/// The quieter of `cpus`: most steady samples first (in steps of 5 %), then the faster core (which
/// on a hybrid part is a performance core), then the higher number, because interrupts favour the
/// first. `pin` moves the thread; a processor that it refuses is passed over.
pub fn choose_cpu<C: Clock + ?Sized>(
    clock: &mut C,
    cpus: &[usize],
    mut pin: impl FnMut(usize) -> Result<(), ClockError>,
) -> Result<usize, ClockError> {
    let stride = cpus.len().div_ceil(MOST_CANDIDATES).max(1);
    let mut best: Option<((i64, i64), usize)> = None;
    let mut refusal = ClockError::NoCpu;
    for &cpu in cpus.iter().step_by(stride) {
        if let Err(error) = pin(cpu) {
            refusal = error;
            continue;
        }
        let plan = SamplePlan::for_step(TickReading::take(clock, 64).step_ticks);
        // The first samples wake the core and are not counted.
        let samples: Vec<_> =
            (0..SAMPLES).map(|_| take_sample(clock, &plan)).skip(SAMPLES / 4).collect();
        let steady = samples.iter().filter(|s| s.is_steady());
        let speeds = steady.map(|s| s.cycles_per_tick);
        let speeds = crate::stats::robust::finite(speeds);
        let steady_steps = (percent(speeds.len(), samples.len()) / 5.0) as i64;
        let speed_steps = (crate::stats::robust::quantile(&speeds, 0.5) * 20.0).round() as i64;
        let score = (steady_steps, speed_steps);
        if best.is_none_or(|(s, _)| score >= s) {
            best = Some((score, cpu));
        }
    }
    let (_, cpu) = best.ok_or(refusal)?;
    pin(cpu)?;
    Ok(cpu)
}

#[cfg(test)]
mod tests {
    #[test]
    fn several_processors_are_the_last_ones_and_no_more_than_there_are() {
        let last = |count| Cpus::last(count, &[0, 2, 5]);
        assert_eq!(last(1), Some(Cpus::one(5)));
        assert_eq!(last(2).unwrap().to_string(), "cpus 2, 5");
        assert_eq!((last(2).unwrap().single(), last(1).unwrap().single()), (None, Some(5)));
        assert_eq!((last(0), last(4)), (None, None));
    }

    use super::super::FakeClock;
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    /// Several invented processors behind one clock.
    struct Many {
        at: Rc<Cell<usize>>,
        cpus: Vec<FakeClock>,
    }

    impl Many {
        fn here(&mut self) -> &mut FakeClock {
            &mut self.cpus[self.at.get()]
        }
    }

    impl Clock for Many {
        fn now_ticks(&mut self) -> u64 {
            self.here().now_ticks()
        }
        fn now_raw_ns(&mut self) -> u64 {
            self.here().now_raw_ns()
        }
        fn run_latency_chain(&mut self, adds: u64) {
            self.here().run_latency_chain(adds);
        }
        fn run_multiply_chain(&mut self, multiplies: u64) {
            self.here().run_multiply_chain(multiplies);
        }
        fn run_throughput_chain(&mut self, passes: u64) {
            self.here().run_throughput_chain(passes);
        }
    }

    fn choose(cpus: Vec<FakeClock>, forbidden: Option<usize>) -> Result<usize, ClockError> {
        let at = Rc::new(Cell::new(0));
        let names: Vec<usize> = (0..cpus.len()).collect();
        let mut clock = Many { at: Rc::clone(&at), cpus };
        choose_cpu(&mut clock, &names, |cpu| {
            if Some(cpu) == forbidden {
                return Err(ClockError::NoCpu);
            }
            at.set(cpu);
            Ok(())
        })
    }

    #[test]
    fn takes_the_quieter_then_the_faster_then_the_later() {
        let quiet = || FakeClock::quiet(2.5, 3.1);
        let noisy = || quiet().preempted(30_000.0, 4_000.0);
        assert_eq!(choose(vec![quiet(), noisy()], None).unwrap(), 0);
        let slow = || FakeClock::quiet(2.5, 2.0);
        assert_eq!(choose(vec![slow(), quiet(), slow()], None).unwrap(), 1);
        assert_eq!(choose(vec![quiet(), quiet()], None).unwrap(), 1);
        assert_eq!(choose(vec![quiet(), quiet()], Some(1)).unwrap(), 0);
        assert!(choose(Vec::new(), None).is_err());
    }

    #[test]
    fn processor_lists_are_read() {
        assert_eq!(parse_processor_list("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(parse_processor_list("3"), [3]);
        assert!(parse_processor_list("").is_empty());
        assert!(parse_processor_list("x-9").is_empty());
    }

    #[test]
    fn a_pin_restores_the_mask() {
        let before = allowed_cpus().unwrap();
        {
            let _pin = Pin::to(before[0]).unwrap();
            assert_eq!(allowed_cpus().unwrap(), [before[0]]);
        }
        assert_eq!(allowed_cpus().unwrap(), before);
        assert!(Pin::to(CpuSet::count() + 1).is_err());
    }
}
