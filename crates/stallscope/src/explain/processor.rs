//! Is the difference on the processor at all, and how much of it can samples of user code locate?
//!
//! Processor time is the one whole that shares of the difference are taken of: the kernel measures it
//! exactly, and what waits is not in it. A contrast that is not significant proves nothing: "not on the
//! processor" is said only when the interval of processor time leaves no room for the difference.

use crate::compare::{Arm, Comparison, Contrast, Metric, Ratio, RunSample, WaitedFor, waited_for};
use crate::model::{Measurement, Unit};
use crate::run::sample::Engine;

use super::heat::{ArmHeat, Heat};
use super::{Conclusion, Share, WaitingCalls, Whole};

/// The part of the difference in wall time that processor time may reach before it counts as involved.
const NOT_INVOLVED: f64 = 0.5;
/// A part of the difference that is worth a word, in per cent.
pub(super) const LEAST_PART: f64 = 10.0;

/// Where the difference is, as far as clocks can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Involved {
    /// Processor time changed as wall time did.
    Yes,
    /// It changed, and by less than half of what wall time did.
    Little,
    /// It did not, and the interval shows that.
    No,
    /// Either may be so.
    Open,
}

/// Processor time of both arms, and what can be said of it.
pub(super) struct ProcessorTime<'a> {
    comparison: &'a Comparison,
    cpu: Option<&'a Contrast>,
    involved: Involved,
}

/// What the runs of one build waited for.
fn waited_for_in(comparison: &Comparison, arm: Arm) -> WaitedFor {
    let of_arm = |s: &&RunSample| s.plan.arm == arm;
    waited_for(comparison.samples.iter().filter(of_arm).map(|s| &s.amounts))
}

/// Whether the most that processor time can have changed by is less than half of the least of wall time, where the verdict
/// is about that.
fn is_little(comparison: &Comparison, cpu: Option<&Contrast>) -> bool {
    let first = comparison.analysis.contrasts.first();
    let wall = first.filter(|first| first.metric == Metric::Wall);
    let excludes_zero = wall.and_then(|wall| wall.ratio.as_ref()).is_some_and(Ratio::excludes_zero);
    let ends_ns = |contrast: Option<&Contrast>| {
        let [low, _, high] = contrast.and_then(longer_ns)?.map(f64::abs);
        Some([low.min(high), low.max(high)])
    };
    let ends = ends_ns(wall).zip(ends_ns(cpu));
    excludes_zero
        && ends.is_some_and(|([least_wall_ns, _], [_, most_cpu_ns])| {
            most_cpu_ns <= NOT_INVOLVED * least_wall_ns
        })
}

/// The most that something can have changed by in the direction of `towards`; less than nothing where it changed the other way.
fn most_towards(ratio: &Ratio, towards: f64) -> f64 {
    (ratio.low_log * towards.signum()).max(ratio.high_log * towards.signum())
}

/// What AFTER takes longer by pairs of runs, between the ends of its interval, in nanoseconds.
fn longer_ns(contrast: &Contrast) -> Option<[f64; 3]> {
    let ratio = contrast.ratio.as_ref()?;
    let logs = [ratio.low_log, ratio.log_ratio, ratio.high_log];
    Some(logs.map(|log| contrast.a.value * log.exp_m1()))
}

fn milliseconds(ns: f64) -> String {
    format!("{:.1} ms", ns / 1e6)
}

impl<'a> ProcessorTime<'a> {
    pub fn of(comparison: &'a Comparison) -> Self {
        let cpu = comparison.analysis.contrast(Metric::Cpu);
        let wall_log = comparison.analysis.wall.log_ratio;
        let ratio = cpu.and_then(|c| c.ratio.as_ref());
        let change = cpu.map_or(0.0, |c| c.b.value - c.a.value);
        let involved = match ratio {
            Some(r)
                if r.excludes_zero()
                    && [r.log_ratio, change].iter().all(|x| x * wall_log > 0.0) =>
            {
                // What others keep from the processor is no part of what the builds differ in.
                let slow = if wall_log < 0.0 { Arm::A } else { Arm::B };
                let is_queued =
                    matches!(waited_for_in(comparison, slow), WaitedFor::Processor { .. });
                match is_little(comparison, cpu) && !is_queued {
                    true => Involved::Little,
                    false => Involved::Yes,
                }
            }
            Some(r) if most_towards(r, wall_log) <= NOT_INVOLVED * wall_log.abs() => Involved::No,
            _ => Involved::Open,
        };
        Self { comparison, cpu, involved }
    }

    /// What the slower build spends longer on the processor, in nanoseconds: the whole of all shares.
    pub fn difference_ns(&self) -> f64 {
        self.cpu.map_or(0.0, |c| c.b.value - c.a.value)
    }

    /// What AFTER takes longer on the processor, as [`longer_ns`].
    pub fn longer_ns(&self) -> [f64; 3] {
        self.cpu.and_then(longer_ns).unwrap_or_default()
    }

    /// What a run of each build spends on the processor, in nanoseconds.
    pub fn of_runs_ns(&self) -> [f64; 2] {
        self.cpu.map_or([0.0; 2], |c| [c.a.value, c.b.value])
    }

    /// Time in user code of one run of each arm. Without a kernel that measures it, the samples do: each
    /// stands for the time between two.
    pub fn in_user_code(&self, heats: &[Heat; 2]) -> [Measurement; 2] {
        if let Some(user) = self.comparison.analysis.contrast(Metric::User) {
            return [user.a.clone(), user.b.clone()];
        }
        [0, 1].map(|arm| {
            let whole = self.whole_ns(arm);
            by_samples(&heats[arm].summary, whole.value).unwrap_or_else(|| whole.clone())
        })
    }

    fn whole_ns(&self, arm: usize) -> &Measurement {
        let wall = &self.comparison.analysis.wall.estimate;
        self.cpu.map_or(wall, |c| [&c.a, &c.b][arm])
    }

    /// What is in the kernel, and what a run of each arm spends there in nanoseconds, where the kernel accounts for it or
    /// is sampled.
    pub fn in_kernel(&self, heats: &[Heat; 2]) -> Option<(Share, [f64; 2])> {
        let whole = self.difference_ns();
        if let Some(system) = self.comparison.analysis.contrast(Metric::System) {
            let part = share(&system.a, &system.b, whole, "medians and quartiles");
            let real = system.ratio.as_ref().is_some_and(Ratio::excludes_zero);
            return real.then_some((part, [system.a.value, system.b.value]));
        }
        let of_arm = |arm: usize| {
            let heat = &heats[arm].summary;
            Some(of_ticks(heat.in_kernel?, heat, self.whole_ns(arm).value))
        };
        let [a, b] = [of_arm(0)?, of_arm(1)?];
        Some((share(&a, &b, whole, "samples in the kernel"), [a.value, b.value]))
    }

    /// Why nothing is located, where it is not, and what that comes to.
    pub fn why_not_located(
        &self,
        slow: Arm,
        waits: &[WaitingCalls],
    ) -> Option<(Conclusion, String)> {
        let changed = || match self.cpu.and_then(|c| c.ratio.as_ref()) {
            None => "a run took no processor time that the kernel could see".to_owned(),
            Some(r) => {
                let percent = [r.log_ratio, r.low_log, r.high_log].map(|x| 100.0 * x.exp_m1());
                let [c, low, high] = percent;
                format!("processor time changes by {c:+.1} % [{low:+.1}, {high:+.1}]")
            }
        };
        match self.involved {
            Involved::Yes => None,
            Involved::Little => {
                let wall = self.comparison.analysis.contrast(Metric::Wall);
                let wall_ns = wall.map_or(0.0, |wall| (wall.b.value - wall.a.value).abs());
                let why = format!(
                    "not running: of {} that {} takes longer, {} are on the processor, and the rest is in \
                     waiting; {}",
                    milliseconds(wall_ns),
                    slow.build_name(),
                    milliseconds(self.difference_ns().abs()),
                    self.what_was_waited_for(slow, waits)
                );
                Some((Conclusion::NotRunning, why))
            }
            Involved::No => {
                let why = format!(
                    "not running: {}, too little for the difference in wall time, which is in waiting; {}",
                    changed(),
                    self.what_was_waited_for(slow, waits)
                );
                Some((Conclusion::NotRunning, why))
            }
            Involved::Open => {
                let why = format!(
                    "{}: that neither shows nor excludes that the difference is in what is executed, so \
                     it was not located; more pairs narrow it (--pairs)",
                    changed()
                );
                Some((Conclusion::NoMechanism, why))
            }
        }
    }

    /// How much longer the slow build waits for something other than the processor, in nanoseconds, where that is the
    /// difference.
    pub fn blocked_ns(&self, slow: Arm) -> Option<f64> {
        let is_waiting = matches!(self.involved, Involved::No | Involved::Little);
        if !is_waiting
            || matches!(waited_for_in(self.comparison, slow), WaitedFor::Processor { .. })
        {
            return None;
        }
        let wall = self.comparison.analysis.contrast(Metric::Wall)?;
        Some((wall.b.value - wall.a.value - self.difference_ns()).abs())
    }

    fn what_was_waited_for(&self, slow: Arm, waits: &[WaitingCalls]) -> String {
        if !waits.is_empty() {
            let all: Vec<String> = waits.iter().map(ToString::to_string).collect();
            return format!(
                "the slower build is blocked in {}, by one run of each that was stopped at every system call",
                all.join(" and ")
            );
        }
        match waited_for_in(self.comparison, slow) {
            WaitedFor::Processor { .. } => {
                "the slower build waited for the processor, on which others ran: choose an idle one \
                 (--cpu) or a quieter moment"
            }
            WaitedFor::Blocked => {
                "the slower build was blocked: look at files, locks, network and sleep (strace -c -w, \
                 perf trace -s)"
            }
            WaitedFor::Unknown => "what for, the kernel does not tell here",
        }
        .to_owned()
    }

    /// What is not in user code, where that was measured and is worth a sentence.
    pub fn parts_outside(
        &self,
        in_user_code: &[Measurement; 2],
        in_kernel: Option<&(Share, [f64; 2])>,
    ) -> Vec<String> {
        let mut said = Vec::new();
        let whole = self.difference_ns();
        let is_split = self.comparison.analysis.contrast(Metric::System).is_some();
        match in_kernel {
            Some((part, [before, after])) => {
                if part.percent.value >= LEAST_PART && part.percent.low > 0.0 {
                    said.push(format!(
                        "{part} is in the kernel ({} -> {}): look at system calls and page faults \
                         (strace -c, perf trace)",
                        milliseconds(*before),
                        milliseconds(*after)
                    ));
                }
            }
            None if is_split => {}
            None => {
                let in_user = in_user_code[1].value - in_user_code[0].value;
                let rest = 100.0 * (1.0 - in_user / whole);
                if rest.abs() >= LEAST_PART {
                    said.push(format!(
                        "the samples of user code hold {:.0} % of {}; the rest is in the kernel or was \
                         not sampled, which this kernel's accounting does not tell apart",
                        100.0 - rest,
                        Whole::DifferenceInProcessorTime
                    ));
                }
            }
        }
        if let Some(wall) = self.comparison.analysis.contrast(Metric::Wall) {
            let wall_ns = wall.b.value - wall.a.value;
            let waiting_ns = wall_ns - whole;
            if waiting_ns * wall_ns > 0.0 && 100.0 * waiting_ns / wall_ns >= LEAST_PART {
                let slow = if wall_ns > 0.0 { Arm::B } else { Arm::A };
                said.push(format!(
                    "wall time changes by {} more than processor time does: that is waiting; {}",
                    milliseconds(waiting_ns.abs()),
                    self.what_was_waited_for(slow, &[])
                ));
            }
        }
        said
    }
}

/// User time of a run by the number of its samples. What sampling itself takes is not in `whole_ns`, the processor
/// time of a run that is not sampled.
pub(super) fn by_samples(heat: &ArmHeat, whole_ns: f64) -> Option<Measurement> {
    (heat.engine == Engine::PerfClock && heat.samples > 0)
        .then(|| of_ticks(heat.samples, heat, whole_ns))
}

/// What so many samples stand for. The clock ticks so often in any case, and each tick is in a place or not: the spread
/// is that of such a count, and of the ticks at the ends of the runs.
fn of_ticks(samples: u64, heat: &ArmHeat, whole_ns: f64) -> Measurement {
    let n = samples as f64;
    let ticks = match heat.in_kernel {
        Some(in_kernel) => (heat.samples + in_kernel) as f64,
        None => heat.processor_ns.max(1) as f64 / heat.period_ns.max(1) as f64,
    };
    let ns = |samples: f64| samples * whole_ns / ticks.max(1.0);
    let all = ticks.max(n + 1.0);
    let spread = 1.96 * (n * (1.0 - n / all) + f64::from(heat.runs)).sqrt();
    Measurement {
        value: ns(n),
        unit: Unit::Nanoseconds,
        low: ns((n - spread).max(0.0)),
        high: ns(n + spread),
        n: samples as usize,
        how: "samples x time between two, 95 % of a count among so many ticks".into(),
    }
}

/// What took longer in one place, as a part of what all took longer. Both ends at their worst: wider
/// than the truth, never narrower.
pub(super) fn share(before: &Measurement, after: &Measurement, whole_ns: f64, how: &str) -> Share {
    let part = |slow: f64, fast: f64| 100.0 * (slow - fast) / whole_ns;
    let (x, y) = (part(after.low, before.high), part(after.high, before.low));
    let percent = Measurement {
        value: part(after.value, before.value),
        unit: Unit::Percent,
        low: x.min(y),
        high: x.max(y),
        n: before.n + after.n,
        how: format!("{how}, ends of both intervals"),
    };
    Share { percent, of: Whole::DifferenceInProcessorTime }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::simulate::{Noise, SimulatedMachine};
    use crate::compare::{Amounts, Decision, Measure, Settings, compare};

    /// What is said about a difference in wall time, with these times on the processor per pair and arm.
    fn said_about(cpu_ns: impl Fn(u32, Arm) -> u64, change: impl Fn(&mut Amounts)) -> String {
        let mut machine = SimulatedMachine::new(Noise::Quiet, 20, 5);
        machine.effect_log = 0.02_f64.ln_1p();
        machine.run_sd_log = 0.002;
        let settings = Settings { measure: Measure::Wall, ..Settings::default() };
        let mut comparison = compare(&mut machine, &settings, &mut |_| {}).unwrap();
        for sample in &mut comparison.samples {
            sample.amounts.cpu_ns = cpu_ns(sample.plan.pair, sample.plan.arm);
            change(&mut sample.amounts);
        }
        let Comparison { arms, settings, samples, .. } = comparison;
        let comparison = Comparison::new(arms, settings, samples).unwrap();
        assert_eq!(comparison.analysis.verdict.decision, Decision::Slower);
        ProcessorTime::of(&comparison)
            .why_not_located(Arm::B, &[])
            .map(|(_, why)| why)
            .unwrap_or_default()
    }

    #[test]
    fn what_is_not_significant_proves_nothing() {
        // Processor time is so noisy that +2 % may or may not be in it.
        let noisy = |pair: u32, arm: Arm| {
            40_000_000 + u64::from((pair * 7 + 3 * arm.index() as u32) % 11) * 800_000
        };
        let said = said_about(noisy, |_| {});
        assert!(said.contains("neither shows nor excludes"), "{said}");
        for never in ["system calls", "waiting;", "user", "strace"] {
            assert!(!said.contains(never), "{never}: {said}");
        }
    }

    #[test]
    fn waiting_is_said_where_processor_time_shows_it_and_by_what_was_waited_for() {
        let steady = |pair: u32, _| 40_000_000 + u64::from(pair) * 1000;
        let queued =
            said_about(steady, |a| (a.run_queue_ns, a.involuntary_switches) = (Some(a.wall_ns), 9));
        assert!(
            queued.contains("waited for the processor") && !queued.contains("strace"),
            "{queued}"
        );
        let blocked = said_about(steady, |a| (a.run_queue_ns, a.voluntary_switches) = (Some(0), 9));
        assert!(blocked.contains("was blocked") && blocked.contains("strace"), "{blocked}");
        // Less time on the processor, though by how much is open: all the more is in waiting.
        let less = |pair: u32, arm: Arm| {
            let less_ns = u64::from((pair * 7) % 11) * 800_000;
            40_000_000 - if arm == Arm::B { less_ns } else { 0 }
        };
        let opposite = said_about(less, |a| (a.run_queue_ns, a.voluntary_switches) = (Some(0), 9));
        assert!(opposite.contains("not running") && opposite.contains("was blocked"), "{opposite}");
        let unknown = said_about(steady, |_| {});
        assert!(unknown.contains("does not tell"), "{unknown}");
    }

    #[test]
    fn where_waiting_is_most_of_the_difference_that_is_the_answer() {
        // Wall time: 50 to 51 ms; processor time: 10 ms and a part of that one.
        let part = |more_ns: u64| {
            said_about(
                move |pair, arm| {
                    10_000_000 + u64::from(pair) + if arm == Arm::B { more_ns } else { 0 }
                },
                |a| (a.run_queue_ns, a.voluntary_switches) = (Some(0), 9),
            )
        };
        let little = part(300_000);
        assert!(
            little.contains("ms that AFTER takes longer, 0.3 ms are on the processor"),
            "{little}"
        );
        assert!(little.contains("was blocked"), "{little}");
        assert_eq!(part(800_000), "", "it is located");
        // What others kept from the processor is not what the builds differ in, however little is left.
        let queued = said_about(
            |pair, arm| 10_000_000 + u64::from(pair) + if arm == Arm::B { 300_000 } else { 0 },
            |a| (a.run_queue_ns, a.involuntary_switches) = (Some(a.wall_ns), 9),
        );
        assert_eq!(queued, "", "it is located");
    }
}
