//! How far a measurement taken here and now can be trusted, and why.
//!
//! The grade is the worst of a few facts, and every fact is said, also the good ones: a grade
//! without its reasons could be neither believed nor improved.

use std::fmt;
use std::fs;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Summary;
use super::survey::MAIN_LEVEL_PERCENT;
use crate::machine::Machine;

/// How quiet it is here, best first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum EnvironmentGrade {
    /// Differences of a tenth of a percent mean something.
    Quiet,
    /// Differences of a percent mean something; guards reject the rest.
    Usable,
    /// Only guarded, interleaved and repeated measurements mean something.
    Noisy,
    /// No verdict can be trusted.
    Hostile,
}

impl EnvironmentGrade {
    /// The word that reports use, and that the JSON uses.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Usable => "usable",
            Self::Noisy => "noisy",
            Self::Hostile => "hostile",
        }
    }
}

impl fmt::Display for EnvironmentGrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// One fact and the best grade that it still allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// The best grade that this fact permits.
    pub allows: EnvironmentGrade,
    /// The fact, without a final stop.
    pub text: String,
}

/// The grade with its reasons, worst first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// The worst of the reasons.
    pub grade: EnvironmentGrade,
    /// All facts, worst first.
    pub reasons: Vec<Reason>,
}

/// What the kernel says about the time of a survey.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Surroundings {
    /// Share of the processor's time that the hypervisor gave to others, percent.
    pub steal_percent: Option<f64>,
    /// Load average over one minute.
    pub load_average: Option<f64>,
    /// Times per second that this thread was pushed off the processor.
    pub involuntary_switches_per_s: Option<f64>,
}

/// Counts at one moment; two of them make [`Surroundings`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moments {
    steal: Option<(u64, u64)>,
    involuntary: Option<u64>,
    at_ns: u64,
}

impl Moments {
    /// The counts for `cpu` and the calling thread, at `at_ns` on any clock in nanoseconds.
    #[must_use]
    pub fn now(cpu: usize, at_ns: u64) -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_THREAD);
        Self {
            steal: steal_of(&stat, cpu),
            involuntary: usage
                .ok()
                .and_then(|u| u64::try_from(u.involuntary_context_switches()).ok()),
            at_ns,
        }
    }

    /// What happened between `self` and `later`.
    #[must_use]
    pub fn until(&self, later: &Self) -> Surroundings {
        let seconds = later.at_ns.saturating_sub(self.at_ns) as f64 * 1e-9;
        let steal_percent = self.steal.zip(later.steal).and_then(|(a, b)| {
            let (stolen, all) = (b.0.saturating_sub(a.0), b.1.saturating_sub(a.1));
            (all > 0).then(|| 100.0 * stolen as f64 / all as f64)
        });
        let switches = self.involuntary.zip(later.involuntary);
        Surroundings {
            steal_percent,
            load_average: load_of(&fs::read_to_string("/proc/loadavg").unwrap_or_default()),
            involuntary_switches_per_s: switches
                .filter(|_| seconds > 0.0)
                .map(|(a, b)| b.saturating_sub(a) as f64 / seconds),
        }
    }
}

/// (stolen, all) jiffies of one processor from the text of `/proc/stat`.
fn steal_of(stat: &str, cpu: usize) -> Option<(u64, u64)> {
    let name = format!("cpu{cpu}");
    let line = stat.lines().find(|l| l.split_whitespace().next() == Some(&name))?;
    let fields: Vec<u64> = line.split_whitespace().skip(1).map_while(|f| f.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guest time is already within user time.
    let stolen = *fields.get(7)?;
    Some((stolen, fields[..8].iter().sum()))
}

pub(super) fn load_of(loadavg: &str) -> Option<f64> {
    loadavg.split_whitespace().next()?.parse().ok()
}

use EnvironmentGrade::{Hostile, Noisy, Quiet, Usable};

/// The grade of a value for which more is worse: at most `limits[0]` is quiet, and so on.
fn more_is_worse(value: f64, limits: [f64; 3]) -> EnvironmentGrade {
    match limits.iter().position(|limit| value <= *limit) {
        Some(0) => Quiet,
        Some(1) => Usable,
        Some(2) => Noisy,
        _ => Hostile,
    }
}

impl Environment {
    /// Judges a survey on `machine` in `surroundings`.
    #[must_use]
    pub fn judge(summary: &Summary, surroundings: &Surroundings, machine: &Machine) -> Self {
        let mut reasons = from_samples(summary);
        reasons.extend(from_clock(summary, machine));
        reasons.extend(from_kernel(surroundings, machine));
        reasons.extend(from_topology(machine));
        // Stable: facts of one grade stay in the order of their importance.
        reasons.sort_by_key(|r| std::cmp::Reverse(r.allows));
        Self { grade: reasons.first().map_or(Quiet, |r| r.allows), reasons }
    }
}

fn reason(allows: EnvironmentGrade, text: String) -> Reason {
    Reason { allows, text }
}

fn from_samples(s: &Summary) -> Vec<Reason> {
    let (clean, n) = (s.clean_percent, s.samples);
    let mut reasons = vec![
        reason(
            more_is_worse(100.0 - clean, [5.0, 20.0, 50.0]),
            format!("{clean:.1} % of {n} samples are clean"),
        ),
        reason(
            more_is_worse(s.shared_percent, [2.0, 10.0, 30.0]),
            format!("core shared in {:.1} % of samples", s.shared_percent),
        ),
    ];
    reasons.extend(from_levels(s));
    reasons
}

/// Levels and wandering are handled by calibrating each sample, so alone they never make it hostile.
fn from_levels(s: &Summary) -> Option<Reason> {
    let (share, wander) = (s.levels.first()?.share_percent, s.wander_percent);
    let allows = if share >= 90.0 || wander <= 1.0 {
        Quiet
    } else if share >= 60.0 || wander <= 5.0 {
        Usable
    } else {
        Noisy
    };
    let text = match s.levels.len() {
        _ if share < MAIN_LEVEL_PERCENT => {
            format!("core clock has no main level, it wanders over {wander:.1} %")
        }
        1 => format!("core clock at one level in {share:.1} % of steady samples"),
        n => format!("core clock at its main level in {share:.1} % of samples, {n} levels"),
    };
    Some(reason(allows, text))
}

fn from_clock(s: &Summary, machine: &Machine) -> Vec<Reason> {
    let drift = s.drift_percent;
    let mut reasons = vec![reason(
        more_is_worse(drift.abs(), [0.3, 2.0, 100.0]),
        format!("core clock drifted by {drift:+.2} % from first to last quarter"),
    )];
    if !machine.features.invariant_tsc {
        let text = "the time stamp counter is not invariant: ticks are not time".to_owned();
        reasons.push(reason(Noisy, text));
    }
    if s.tick_spread_ppm > 200.0 {
        let text =
            format!("the counter's rate differs by {:.0} ppm between windows", s.tick_spread_ppm);
        reasons.push(reason(Noisy, text));
    }
    match &s.adds_per_multiply {
        Some(m) if (m.value - 3.0).abs() > 0.06 => reasons.push(reason(
            Noisy,
            format!(
                "a multiplication takes {:.2} additions, not 3: cycles here are not core cycles",
                m.value
            ),
        )),
        _ => {}
    }
    reasons
}

fn from_kernel(around: &Surroundings, machine: &Machine) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if let Some(steal) = around.steal_percent {
        reasons.push(reason(
            more_is_worse(steal, [0.5, 2.0, 10.0]),
            format!("hypervisor stole {steal:.1} % of the time"),
        ));
    }
    if let Some(switches) = around.involuntary_switches_per_s {
        reasons.push(reason(
            more_is_worse(switches, [10.0, 100.0, 1_000.0]),
            format!("pushed off the CPU {switches:.0} times per second"),
        ));
    }
    if let Some(load) = around.load_average {
        let cpus = machine.logical_cpus.max(1);
        // A loaded machine was measured well behind guards: load alone forbids only `quiet`.
        let allows = if load < 0.75 * f64::from(cpus) { Quiet } else { Usable };
        let text = format!("load average {load:.2} on {cpus} CPUs");
        reasons.push(reason(allows, text));
    }
    reasons
}

fn from_topology(machine: &Machine) -> Option<Reason> {
    if machine.smt_is_doubtful() {
        let text = "guest shows 1 thread per core; a neighbour may still share it";
        Some(reason(Usable, text.to_owned()))
    } else if machine.threads_per_core > 1 {
        let text =
            format!("{} threads share a core: keep the sibling idle", machine.threads_per_core);
        Some(reason(Quiet, text))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FakeClock, SurveyPlan, survey};
    use super::*;
    use crate::machine::invented;

    fn grade_of(mut clock: FakeClock, around: Surroundings, machine: &Machine) -> Environment {
        let plan = SurveyPlan { windows: 4, window_ns: 5_000_000, sample: None };
        Environment::judge(&survey(&mut clock, &plan).summary(), &around, machine)
    }

    fn calm() -> Surroundings {
        Surroundings {
            steal_percent: Some(0.0),
            load_average: Some(0.1),
            involuntary_switches_per_s: Some(0.0),
        }
    }

    fn metal() -> Machine {
        Machine::from_facts(&invented::raptor_lake())
    }

    fn quiet() -> FakeClock {
        FakeClock::quiet(3.0, 5.0)
    }

    #[test]
    fn quiet_bare_metal_is_quiet() {
        let e = grade_of(quiet(), calm(), &metal());
        assert_eq!(e.grade, Quiet, "{:#?}", e.reasons);
    }

    #[test]
    fn a_guest_is_at_best_usable_because_its_topology_may_be_a_lie() {
        let guest = Machine::from_facts(&invented::cascade_lake_guest());
        let e = grade_of(quiet(), calm(), &guest);
        assert_eq!(e.grade, Usable);
        assert!(e.reasons[0].text.contains("neighbour"), "{:?}", e.reasons);
    }

    #[test]
    fn each_disturbance_lowers_the_grade_with_its_own_reason() {
        let worst = |clock, word: &str| {
            let e = grade_of(clock, calm(), &metal());
            assert!(e.reasons[0].text.contains(word), "{word}: {:#?}", e.reasons);
            e.grade
        };
        assert_eq!(worst(quiet().busy_sibling(0.2), "shared"), Noisy);
        assert_eq!(worst(quiet().busy_sibling(0.45), "shared"), Hostile);
        assert_eq!(worst(quiet().drifting(-0.35), "drift"), Usable);
        assert_eq!(worst(quiet().preempted(6_000.0, 4_000.0), "clean"), Hostile);
        assert_eq!(worst(quiet().stepping(2e6, 0.3, 0.8), "levels"), Usable);
        assert_eq!(worst(quiet().folding_adds(0.5), "multiplication"), Noisy);
    }

    #[test]
    fn a_counter_that_is_not_invariant_is_noisy() {
        let mut machine = metal();
        machine.features.invariant_tsc = false;
        let clock = quiet().stepping(7.3e6, 0.5, 0.8).tsc_follows_core();
        assert_eq!(grade_of(clock, calm(), &machine).grade, Noisy);
    }

    #[test]
    fn steal_and_switches_count() {
        let stolen = Surroundings { steal_percent: Some(15.0), ..calm() };
        assert_eq!(grade_of(quiet(), stolen, &metal()).grade, Hostile);
        let pushed = Surroundings { involuntary_switches_per_s: Some(50.0), ..calm() };
        assert_eq!(grade_of(quiet(), pushed, &metal()).grade, Usable);
        let unknown = Surroundings::default();
        assert_eq!(grade_of(quiet(), unknown, &metal()).grade, Quiet);
    }

    #[test]
    fn reads_the_kernels_texts() {
        let stat = "cpu  1 1 1 1 1 1 1 1\ncpu1 10 0 5 80 0 0 1 4 0 0\n";
        assert_eq!(steal_of(stat, 1), Some((4, 100)));
        assert_eq!(steal_of(stat, 7), None);
        assert_eq!(steal_of("cpu1 1 2\n", 1), None);
        assert_eq!(load_of("0.52 0.4 0.3 1/85 11409\n"), Some(0.52));
        let early = Moments { steal: Some((0, 100)), involuntary: Some(5), at_ns: 0 };
        let late = Moments { steal: Some((1, 200)), involuntary: Some(15), at_ns: 2_000_000_000 };
        let around = early.until(&late);
        assert_eq!(around.steal_percent, Some(1.0));
        assert_eq!(around.involuntary_switches_per_s, Some(5.0));
    }
}
