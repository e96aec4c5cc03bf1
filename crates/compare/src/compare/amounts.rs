//! What one run took, and how it is measured: one definition for comparisons and sweeps.

use std::io;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::analysis::Metric;
use super::measure::{Measure, MeasureError};
use crate::clock::tells_user_from_system;
use crate::run::child::{Child, ChildError, Exit, Launch, Limits};
use crate::run::counter::Counter;
use crate::run::look::Seen;

/// The kernel adds pages up in batches: so far may what it says of one process be apart.
const BATCH_BYTES: u64 = 256 << 10;
/// Between two chances to look at a run: libraries are mapped within the first millisecond.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Times, memory and whatever else a verdict may be about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Amounts {
    /// From the first instruction of the program's start to its end, in nanoseconds.
    pub wall_ns: u64,
    /// Time on the processor, of the program and the children it waited for, in nanoseconds.
    #[serde(default)]
    pub cpu_ns: u64,
    /// The part of it in user mode; absent where the kernel only guesses it from ticks (see
    /// [`crate::clock::tells_user_from_system`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_ns: Option<u64>,
    /// The part of it in the kernel, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_ns: Option<u64>,
    /// Time in the queue for a processor, of its first thread, in nanoseconds; absent where the kernel
    /// does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_queue_ns: Option<u64>,
    /// How often it gave the processor up, with the children it waited for.
    #[serde(default)]
    pub voluntary_switches: u64,
    /// How often it was taken off the processor, likewise.
    #[serde(default)]
    pub involuntary_switches: u64,
    /// Pages that it touched and the kernel had to provide, likewise.
    #[serde(default)]
    pub page_faults: u64,
    /// The largest resident set, in bytes; never less than `memory_before_exec_bytes`.
    #[serde(default)]
    pub peak_memory_bytes: u64,
    /// What the process held before it executed the program: the kernel counts that, too, so that a program
    /// that needs less shows this.
    #[serde(default)]
    pub memory_before_exec_bytes: u64,
    /// What it printed, where the verdict is about that; less is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub printed: Option<f64>,
    /// What the performance counter said, where the verdict is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<u64>,
    /// Processes that ran within the fixed time, where the times are those of one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<u64>,
}

/// Why a process that was started has no amounts.
#[derive(Debug)]
pub(super) enum NoAmounts {
    /// It did not start, or did not end by itself.
    Child(ChildError),
    /// What the verdict is about could not be found out.
    Unmeasured(MeasureError),
}

impl From<ChildError> for NoAmounts {
    fn from(cause: ChildError) -> Self {
        Self::Child(cause)
    }
}

/// Runs one process to its end with what `measure` needs around it; looks at it where `seen` is given,
/// which costs time that a measured run does not have.
pub(super) fn measured(
    launch: &Launch,
    limits: &Limits<'_>,
    measure: &Measure,
    seen: Option<&mut Seen>,
) -> Result<(Exit, Amounts), NoAmounts> {
    let child = Child::hold(launch)?;
    let counter = match measure {
        Measure::Counter { event } => {
            let refused = |cause: io::Error| {
                NoAmounts::Unmeasured(MeasureError::NotCounted(*event, cause.to_string()))
            };
            Some(Counter::attach(child.pid(), *event).map_err(refused)?)
        }
        _ => None,
    };
    let exit = match seen {
        None => child.wait(limits),
        Some(seen) => {
            let look = |pid| {
                seen.look(pid);
                Ok(())
            };
            child.wait_with(limits, look, LOOK_INTERVAL)
        }
    }
    .map_err(NoAmounts::Child)?;
    let is_split = tells_user_from_system().is_present();
    let mut amounts = Amounts {
        wall_ns: exit.wall_ns,
        cpu_ns: exit.user_ns.saturating_add(exit.system_ns),
        user_ns: is_split.then_some(exit.user_ns),
        system_ns: is_split.then_some(exit.system_ns),
        run_queue_ns: exit.off_processor.run_queue_ns,
        voluntary_switches: exit.off_processor.voluntary_switches,
        involuntary_switches: exit.off_processor.involuntary_switches,
        page_faults: exit.page_faults,
        peak_memory_bytes: exit.peak_memory_bytes,
        memory_before_exec_bytes: exit.memory_before_exec_bytes,
        ..Amounts::default()
    };
    if let Some(counter) = counter {
        amounts.counted = Some(counter.read().map_err(|e| NoAmounts::Unmeasured(e.into()))?);
    }
    // What a failed program has printed is no measurement, tolerated failures included.
    if exit.status.success() {
        amounts.printed = measure.printed(&exit).map_err(NoAmounts::Unmeasured)?;
    }
    Ok((exit, amounts))
}

impl Amounts {
    /// The time that the whole run took, also when it was many operations.
    #[must_use]
    pub fn time_ns(&self) -> u64 {
        self.wall_ns.saturating_mul(self.operations.unwrap_or(1))
    }

    /// The amount that a verdict about `measure` needs, or why there is none above zero.
    ///
    /// # Errors
    /// [`MeasureError::Absent`].
    pub fn judged(&self, measure: &Measure) -> Result<f64, MeasureError> {
        let metric = Metric::for_verdict(measure);
        let amount = metric.of(self);
        if amount > 0.0 { Ok(amount) } else { Err(MeasureError::Absent(metric.absence())) }
    }

    /// Whether the largest resident set may be that of the copy of ourselves that became the program.
    pub(super) fn hides_memory(&self) -> bool {
        self.peak_memory_bytes <= self.memory_before_exec_bytes + BATCH_BYTES
    }

    /// Without the times of something that was run along with it, such as a shell that started it.
    pub(super) fn less(self, other: &Self) -> Self {
        let both = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_sub(b.unwrap_or(0)));
        Self {
            wall_ns: self.wall_ns.saturating_sub(other.wall_ns),
            cpu_ns: self.cpu_ns.saturating_sub(other.cpu_ns),
            user_ns: both(self.user_ns, other.user_ns),
            system_ns: both(self.system_ns, other.system_ns),
            ..self
        }
    }

    /// One operation, or as many as fit into a fixed `time`, as what one of them took.
    pub(super) fn in_time<E>(
        time: Option<Duration>,
        mut one: impl FnMut() -> Result<Self, E>,
    ) -> Result<Self, E> {
        type Optional = fn(&mut Amounts) -> &mut Option<u64>;
        const PARTS: [Optional; 4] =
            [|a| &mut a.user_ns, |a| &mut a.system_ns, |a| &mut a.run_queue_ns, |a| &mut a.counted];
        type Total = fn(&mut Amounts) -> &mut u64;
        const TOTALS: [Total; 5] = [
            |a| &mut a.wall_ns,
            |a| &mut a.cpu_ns,
            |a| &mut a.voluntary_switches,
            |a| &mut a.involuntary_switches,
            |a| &mut a.page_faults,
        ];
        let mut sum = one()?;
        let Some(time) = time else {
            return Ok(sum);
        };
        let mut operations = 1;
        while u128::from(sum.wall_ns) < time.as_nanos() {
            let mut next = one()?;
            TOTALS.iter().for_each(|of| *of(&mut sum) += *of(&mut next));
            for of in PARTS {
                *of(&mut sum) = of(&mut sum).zip(*of(&mut next)).map(|(a, b)| a + b);
            }
            sum.peak_memory_bytes = sum.peak_memory_bytes.max(next.peak_memory_bytes);
            sum.memory_before_exec_bytes =
                sum.memory_before_exec_bytes.max(next.memory_before_exec_bytes);
            operations += 1;
        }
        TOTALS.iter().for_each(|of| *of(&mut sum) /= operations);
        PARTS.iter().for_each(|of| *of(&mut sum) = of(&mut sum).map(|total| total / operations));
        sum.operations = Some(operations);
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn operations_in_a_fixed_time_become_what_one_takes() {
        let mut calls = 0;
        let mut one = || {
            calls += 1;
            Ok::<_, Infallible>(Amounts {
                wall_ns: 30,
                cpu_ns: 20,
                peak_memory_bytes: 100 + calls,
                counted: Some(6),
                ..Amounts::default()
            })
        };
        let single = Amounts::in_time(None, &mut one).unwrap();
        assert_eq!((single.wall_ns, single.operations), (30, None));
        let many = Amounts::in_time(Some(Duration::from_nanos(100)), &mut one).unwrap();
        assert_eq!((many.wall_ns, many.operations, many.counted), (30, Some(4), Some(6)));
        assert_eq!(many.peak_memory_bytes, 105);
    }

    #[test]
    fn what_has_no_amount_says_why() {
        let run = Amounts { wall_ns: 5, ..Amounts::default() };
        assert_eq!(run.judged(&Measure::Wall).unwrap(), 5.0);
        for (measure, want) in [
            (Measure::User, "by its clock's ticks"),
            (Measure::Cpu, "processor time"),
            (Measure::PeakMemory, "no size"),
            (Measure::GoBench, "no number"),
        ] {
            assert!(run.judged(&measure).unwrap_err().to_string().contains(want), "{want}");
        }
    }
}
