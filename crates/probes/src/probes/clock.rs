//! The probe `clock`: what a tick is worth here, how still the core clock stands, which events can
//! be counted, and how far a measurement taken now could be trusted.
//!
//! *Effect.* The core clock moves while the time stamp counter does not; neighbours, interrupts and
//! hypervisors take time away. *Sign.* Ticks per dependent addition, no-ops per cycle, and the
//! share of samples whose two halves disagree. *Literature.* See the room `clock`.
//!
//! Contrast: short against long chains. Placebo: the same chain on both sides of every sample.
//! Control: a multiplication must take three additions. Refusal: too few clean samples give no
//! number.

use std::sync::atomic::Ordering;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::protocol::PinnedCore;
use super::{Bench, Probe, ProbeError, ProbeReport, Protocol, UpdatesProfile};
use crate::clock::environment::Moments;
use crate::clock::{
    Clock, Environment, Level, LinuxPerf, Pmu, Reading, Summary, Surroundings, SurveyPlan, survey,
};
use crate::machine::{ClockLevel, Design, Machine, ProfileClock};
use crate::model::{Measurement, Unit};

/// Report of this probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockReport {
    /// The processor as it presents itself, asked on `cpu`.
    pub machine: Machine,
    /// The logical processor that was measured.
    pub cpu: usize,
    /// How many processors this thread may use.
    pub cpus_allowed: usize,
    /// Rate of the time stamp counter, MHz.
    pub tick_rate: Option<Measurement>,
    /// Largest difference of that rate between windows, parts per million.
    pub tick_spread_ppm: f64,
    /// The counter moves in steps of this many ticks.
    pub tick_step_ticks: u64,
    /// Cost of one fenced look at the counter, ticks.
    pub read_overhead: Option<Measurement>,
    /// Core cycles per tick at the main level; where there is none, over all steady samples.
    pub cycles_per_tick: Reading,
    /// The same as the core's frequency, MHz.
    pub core_rate: Reading,
    /// Levels of the core clock, largest share first.
    pub levels: Vec<Level>,
    /// Width of the middle 90 % of all steady readings of the core clock, percent.
    pub wander_percent: f64,
    /// Change of the core clock from the first to the last quarter of the samples, percent.
    pub drift_percent: f64,
    /// Additions that take as long as one multiplication; 3.00 where cycles are core cycles.
    pub adds_per_multiply: Option<Measurement>,
    /// Core cycles for 64 no-ops.
    pub throughput: Option<Measurement>,
    /// Number of samples, clean or not.
    pub samples: usize,
    /// Clean samples, percent.
    pub clean_percent: f64,
    /// Samples in which the clock moved or the thread was interrupted, percent.
    pub interrupted_percent: f64,
    /// Samples in which another process used the core, percent.
    pub shared_percent: f64,
    /// Which events can be counted.
    pub pmu: Pmu,
    /// How far to trust a measurement here.
    pub environment: Environment,
    /// What would make it better, or what to rely on; each a sentence.
    pub advice: Vec<String>,
}

/// The probe.
pub const PROBE: Probe = Probe {
    id: "clock",
    title: "what a tick is worth, and how quiet it is here",
    prices: false,
    run,
    wide: None,
};

fn run(bench: &Bench<'_>) -> Result<ProbeReport, ProbeError> {
    let mut core = PinnedCore::take(bench)?;
    let pmu = Pmu::detect(&mut LinuxPerf, &core.machine);
    let before = Moments::now(core.cpu, core.clock.now_raw_ns());
    let seen = survey(&mut core.clock, &SurveyPlan::default());
    let around = before.until(&Moments::now(core.cpu, core.clock.now_raw_ns()));
    if bench.interrupt.load(Ordering::Relaxed) {
        return Err(ProbeError::Interrupted);
    }
    let place = CpuChoice { cpu: core.cpu, cpus_allowed: core.cpus_allowed };
    let report = ClockReport::new(core.machine, place, pmu, &seen.summary(), &around);
    Ok(ProbeReport::Clock(Box::new(report)))
}

/// Processor that the probe ran on.
#[derive(Clone, Copy, Debug)]
pub struct CpuChoice {
    /// The logical processor.
    pub cpu: usize,
    /// How many the thread may use.
    pub cpus_allowed: usize,
}

impl ClockReport {
    /// Joins what was seen into a report. Pure, so that invented machines have reports too.
    #[must_use]
    pub fn new(
        machine: Machine,
        place: CpuChoice,
        pmu: Pmu,
        summary: &Summary,
        around: &Surroundings,
    ) -> Self {
        let environment = Environment::judge(summary, around, &machine);
        let advice = advice(summary, &pmu, &machine);
        let s = summary.clone();
        Self {
            machine,
            cpu: place.cpu,
            cpus_allowed: place.cpus_allowed,
            core_rate: core_rate(&s),
            tick_rate: s.tick_mhz,
            tick_spread_ppm: s.tick_spread_ppm,
            tick_step_ticks: s.step_ticks,
            read_overhead: s.read_overhead_ticks,
            cycles_per_tick: s.cycles_per_tick,
            levels: s.levels,
            wander_percent: s.wander_percent,
            drift_percent: s.drift_percent,
            adds_per_multiply: s.adds_per_multiply,
            throughput: s.throughput_cycles,
            samples: s.samples,
            clean_percent: s.clean_percent,
            interrupted_percent: s.interrupted_percent,
            shared_percent: s.shared_percent,
            pmu,
            environment,
            advice,
        }
    }
}

impl UpdatesProfile for ClockReport {
    fn protocol(&self) -> Option<&Protocol> {
        None
    }

    /// Notes beside prices how the core clock behaved meanwhile. Prices of another run keep their
    /// own note, and a profile without any has no place for one.
    fn put_into(&self, profile: &mut Design) {
        let Some(environment) = &mut profile.environment else { return };
        let core_rate = match &self.core_rate {
            Reading::Measured(rate) => Some(rate.clone()),
            Reading::Inconclusive { .. } => None,
        };
        let level = |l: &Level| ClockLevel {
            cycles_per_tick: l.cycles_per_tick,
            share_percent: l.share_percent,
        };
        environment.clock = Some(ProfileClock {
            core_rate,
            levels: self.levels.iter().map(level).collect(),
            surroundings: self.environment.reasons.iter().map(|r| r.text.clone()).collect(),
        });
    }
}

/// The counter's rate is known a thousand times better than the ratio, so the ratio's interval is
/// scaled by the rate's middle.
/// The core's frequency in MHz, by what a survey saw.
#[must_use]
pub fn core_rate(s: &Summary) -> Reading {
    match (&s.cycles_per_tick, &s.tick_mhz) {
        (Reading::Measured(ratio), Some(rate)) => Reading::Measured(Measurement {
            value: ratio.value * rate.value,
            unit: Unit::Megahertz,
            low: ratio.low * rate.value,
            high: ratio.high * rate.value,
            n: ratio.n,
            how: "cycles per tick times tick rate".to_owned(),
        }),
        (inconclusive, _) => match inconclusive {
            Reading::Measured(m) => {
                Reading::Inconclusive { clean_percent: s.clean_percent, n: m.n }
            }
            other => other.clone(),
        },
    }
}

fn advice(s: &Summary, pmu: &Pmu, machine: &Machine) -> Vec<String> {
    let mut advice = Vec::new();
    if !pmu.hardware.is_present() {
        advice.push(
            "Without counters, rely on interleaved timing, traces and models; every \
             stallscope command works that way by default."
                .to_owned(),
        );
    }
    if s.levels.len() > 1 || s.drift_percent.abs() > 0.3 {
        advice.push(
            "The core clock moves: compare cycles calibrated beside each sample, never \
             ticks or seconds of two separate runs."
                .to_owned(),
        );
    }
    if s.shared_percent > 2.0 {
        advice.push(
            "Another process shares the core: keep its sibling thread idle, or in a guest reject \
             the samples that the throughput canary marks."
                .to_owned(),
        );
    }
    if s.interrupted_percent > 20.0 {
        advice.push(
            "Interrupted too often: stop other work on this machine or move the run to \
             another one."
                .to_owned(),
        );
    }
    if !machine.features.invariant_tsc {
        advice.push(
            "The time stamp counter is not invariant: use wall-clock time, or count cycles \
             where counters exist."
                .to_owned(),
        );
    }
    advice
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{FakeClock, PmuVerdict};
    use crate::machine::invented;
    use crate::model::Capability;

    fn report_of(mut clock: FakeClock, machine: Machine) -> ClockReport {
        let plan = SurveyPlan { windows: 3, window_ns: 3_000_000, sample: None };
        let pmu = Pmu {
            verdict: PmuVerdict::NoPerf,
            hardware: Capability::absent("no perf"),
            sampling: Capability::Present,
        };
        let place = CpuChoice { cpu: 1, cpus_allowed: 2 };
        let summary = survey(&mut clock, &plan).summary();
        ClockReport::new(machine, place, pmu, &summary, &Surroundings::default())
    }

    #[test]
    fn the_core_rate_is_the_product() {
        let machine = Machine::from_facts(&invented::cascade_lake_guest());
        let r = report_of(FakeClock::quiet(2.5, 3.1), machine);
        assert!((r.core_rate.value().unwrap() - 3100.0).abs() < 5.0);
        assert_eq!(r.advice.len(), 1, "{:?}", r.advice);
        let text = serde_json::to_string(&ProbeReport::Clock(Box::new(r.clone()))).unwrap();
        assert!(text.starts_with("{\"probe\":\"clock\""), "{text}");
    }

    #[test]
    fn notes_stand_in_a_profile_only_beside_new_prices() {
        let machine = Machine::from_facts(&invented::cascade_lake_guest());
        let mut profile = Design::of_machine(&machine);
        profile.environment = Some(crate::machine::ProfileEnvironment::of(&machine));
        let before = profile.clone();
        let report = ProbeReport::Clock(Box::new(report_of(FakeClock::quiet(2.5, 3.1), machine)));
        assert!(!report.has_prices());
        crate::probes::apply(std::slice::from_ref(&report), &mut profile);
        assert_eq!(profile, before);
        report.parts().1.apply_to(&mut profile);
        assert_ne!(profile, before, "it has something to note");
    }

    #[test]
    fn no_number_where_too_little_is_clean() {
        let machine = Machine::from_facts(&invented::raptor_lake());
        let r = report_of(FakeClock::quiet(2.5, 3.1).preempted(2_000.0, 4_000.0), machine);
        assert_eq!((r.cycles_per_tick.value(), r.core_rate.value()), (None, None));
        assert!(r.advice.iter().any(|a| a.contains("Interrupted")));
        // Numbers that are not finite would make the JSON unreadable.
        let text = serde_json::to_string(&r).unwrap();
        assert!(serde_json::from_str::<ClockReport>(&text).is_ok(), "{text}");
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_hardware_path_ends_in_a_report() {
        let interrupt = std::sync::atomic::AtomicBool::new(false);
        let bench = Bench::new(1, &interrupt);
        let ProbeReport::Clock(report) = run(&bench).unwrap() else {
            panic!("another probe's report")
        };
        assert!(report.samples > 0 && !report.environment.reasons.is_empty());
        interrupt.store(true, Ordering::Relaxed);
        let bench = Bench::new(1, &interrupt);
        assert!(matches!(run(&bench), Err(ProbeError::Interrupted)));
    }
}
