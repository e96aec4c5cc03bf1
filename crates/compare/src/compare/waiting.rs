//! Where runs were when they were not on the processor: in the queue for it, or blocked.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::amounts::Amounts;

/// Part of the time off the processor that decides what it was spent on.
const MOST: f64 = 0.5;

/// The part of wall time that runs may be in the queue for the processor before a verdict is about processor time.
const MOST_QUEUED: f64 = 0.02;
/// The part that they may wait for something else, or wall time stays what it is about.
const MOST_BLOCKED: f64 = 0.01;

/// What the time off the processor was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitedFor {
    /// For the processor itself: others ran on it.
    Processor {
        /// The part of that time that was measured in the run queue, where it was.
        queue_share: Option<f64>,
    },
    /// For files, network, locks, other processes, or sleep.
    Blocked,
    /// The kernel did not say.
    Unknown,
}

/// How much of their wall time runs were not on a processor, and what for.
pub(super) struct Waiting {
    /// The part of wall time that they were off the processor.
    pub share: f64,
    /// The part that was measured in the run queue; absent where the kernel does not tell.
    queue_share: Option<f64>,
    pub waited_for: WaitedFor,
}

impl Waiting {
    pub fn of<'a>(runs: impl Iterator<Item = &'a Amounts> + Clone) -> Self {
        let sum = |of: fn(&Amounts) -> u64| runs.clone().map(of).sum::<u64>() as f64;
        let wall_ns = sum(|run| run.wall_ns).max(1.0);
        let share = 1.0 - sum(|run| run.cpu_ns) / wall_ns;
        let queue_ns = runs.clone().map(|run| run.run_queue_ns).sum::<Option<u64>>();
        let queue_share = queue_ns.map(|ns| ns as f64 / wall_ns);
        Self { share, queue_share, waited_for: waited_for(runs.clone()) }
    }

    /// The part of wall time that runs waited for the processor: what was measured in the queue for it, where it was.
    pub fn for_processor(&self) -> f64 {
        self.queue_share.unwrap_or(self.share)
    }

    /// Whether wall time tells more of the machine than of the programs: what others did meanwhile is in it,
    /// and next to nothing that the programs waited for themselves. Only time that was measured in the queue
    /// counts, and only of runs whose time off the processor holds it: several at once take more processor time than
    /// wall time, and that tells nothing of who waited.
    pub fn decides(&self) -> bool {
        self.queue_share.is_some_and(|queue| {
            queue > MOST_QUEUED && (-MOST_BLOCKED..MOST_BLOCKED).contains(&(self.share - queue))
        })
    }
}

/// What the time that `runs` were not on the processor was spent on.
///
/// The kernel tells the time in the run queue of a process' first thread only, and of none of its
/// children. Where that explains little, the switches of all of them are the witness: who is blocked
/// gives the processor up, who competes for it is taken off.
#[must_use]
pub fn waited_for<'a>(runs: impl IntoIterator<Item = &'a Amounts>) -> WaitedFor {
    let (mut off_ns, mut queue_ns, mut voluntary, mut involuntary) = (0.0, Some(0.0), 0, 0);
    for run in runs {
        off_ns += run.wall_ns.saturating_sub(run.cpu_ns) as f64;
        queue_ns = queue_ns.zip(run.run_queue_ns).map(|(sum, ns)| sum + ns as f64);
        voluntary += run.voluntary_switches;
        involuntary += run.involuntary_switches;
    }
    let queue_share = queue_ns.filter(|_| off_ns > 0.0).map(|ns: f64| (ns / off_ns).min(1.0));
    match queue_share {
        Some(share) if share >= MOST => WaitedFor::Processor { queue_share },
        _ if involuntary > voluntary => WaitedFor::Processor { queue_share: None },
        Some(_) if voluntary > 0 => WaitedFor::Blocked,
        _ => WaitedFor::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_told_from_blocking() {
        let run = |run_queue_ns, voluntary_switches, involuntary_switches| Amounts {
            wall_ns: 100,
            cpu_ns: 30,
            run_queue_ns,
            voluntary_switches,
            involuntary_switches,
            ..Amounts::default()
        };
        // A pure loop beside others; the same where it runs in a child of a script.
        let queued = waited_for(&[run(Some(60), 1, 20)]);
        assert!(matches!(queued, WaitedFor::Processor { queue_share: Some(share) } if share > 0.8));
        assert_eq!(waited_for(&[run(Some(2), 3, 20)]), WaitedFor::Processor { queue_share: None });
        assert_eq!(waited_for(&[run(Some(2), 40, 3)]), WaitedFor::Blocked);
        assert_eq!(waited_for(&[run(None, 40, 3)]), WaitedFor::Unknown);
        assert_eq!(waited_for(&[]), WaitedFor::Unknown);
        // From half of the time on, of all runs together; no more than all of it.
        let half = WaitedFor::Processor { queue_share: Some(0.5) };
        assert_eq!(waited_for(&[run(Some(35), 9, 0)]), half);
        assert_eq!(waited_for(&[run(Some(70), 9, 0), run(Some(0), 9, 0)]), half);
        assert_eq!(waited_for(&[run(Some(34), 9, 0)]), WaitedFor::Blocked);
        assert_eq!(
            waited_for(&[run(Some(99), 9, 0)]),
            WaitedFor::Processor { queue_share: Some(1.0) }
        );
        // As many switches of either kind accuse nobody of competing, and none tell nothing.
        assert_eq!(waited_for(&[run(Some(2), 3, 3)]), WaitedFor::Blocked);
        assert_eq!(waited_for(&[run(Some(2), 0, 0)]), WaitedFor::Unknown);
        assert_eq!(
            waited_for(&[run(Some(2), 3, 1), run(Some(2), 0, 3)]),
            WaitedFor::Processor { queue_share: None }
        );
    }

    #[test]
    fn runs_that_take_more_processor_time_than_wall_time_waited_as_long_as_they_were_in_the_queue()
    {
        let waited = |run_queue_ns| {
            let run = Amounts { wall_ns: 1000, cpu_ns: 1050, run_queue_ns, ..Amounts::default() };
            Waiting::of([run].iter()).for_processor()
        };
        assert!((waited(Some(30)) - 0.03).abs() < 1e-9 && (waited(None) + 0.05).abs() < 1e-9);
    }

    #[test]
    fn the_queue_decides_when_it_is_long_and_explains_all_the_waiting() {
        let decides = |cpu_ns, run_queue_ns| {
            let run = Amounts { wall_ns: 1000, cpu_ns, run_queue_ns, ..Amounts::default() };
            Waiting::of([run, run].iter()).decides()
        };
        assert!(decides(970, Some(30)));
        assert!(decides(979, Some(21)) && !decides(980, Some(20)), "more than 2 %");
        // Less than 1 % off the processor for other reasons, and as little unexplained.
        assert!(decides(961, Some(30)) && !decides(959, Some(30)));
        assert!(decides(979, Some(30)) && !decides(981, Some(30)));
        assert!(!decides(970, None));
        let share = |runs: &[Amounts]| Waiting::of(runs.iter()).share;
        let run = |wall_ns, cpu_ns| Amounts { wall_ns, cpu_ns, ..Amounts::default() };
        assert_eq!(share(&[run(100, 100), run(300, 0)]), 0.75);
        assert_eq!(share(&[]), 1.0);
    }
}
