//! What every report has in common: where it was measured, the checks of the method, published
//! figures beside its own, and whether it may be believed.

use std::time::Instant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::published::Published;
use super::sampling::{RawVisit, Sampled};
use super::{Bench, ProbeError};
use crate::clock::{HardwareClock, Pin, allowed_cpus, choose_cpu};
use crate::foreign;
use crate::machine::Machine;
use crate::model::Measurement;

/// A check of the method itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Control {
    /// `positive`, `negative` or `placebo`.
    pub kind: String,
    /// Whether it came out as it must; absent where the samples do not say.
    pub passed: Option<bool>,
    /// What was compared, with the numbers.
    pub words: String,
}

impl Control {
    /// Compares two measurements; undecided where one is missing.
    pub(super) fn compare(
        kind: &str,
        what: &str,
        a: Option<&Measurement>,
        b: Option<&Measurement>,
        passes: impl Fn(&Measurement, &Measurement) -> bool,
    ) -> Self {
        let (passed, words) = match (a, b) {
            (Some(a), Some(b)) => {
                let words =
                    format!("{what}: {:.2} and {:.2} {}", a.value, b.value, b.unit.suffix());
                (Some(passes(a, b)), words)
            }
            _ => (None, format!("{what}: too few clean samples")),
        };
        Self { kind: kind.to_owned(), passed, words }
    }

    /// The same measured twice: the values differ by less than a `share`, or the intervals meet.
    pub(super) fn placebo(
        what: &str,
        a: Option<&Measurement>,
        b: Option<&Measurement>,
        share: f64,
    ) -> Self {
        Self::compare("placebo", what, a, b, |a, b| {
            (a.value - b.value).abs() < share * a.value || (a.low <= b.high && b.low <= a.high)
        })
    }
}

/// Where, with which checks and how well it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Protocol {
    /// The processor as it presents itself.
    pub machine: Machine,
    /// The logical processor that was measured.
    pub cpu: usize,
    /// Checks of the method.
    pub controls: Vec<Control>,
    /// Published figures beside the measured ones.
    #[serde(default)]
    pub published: Vec<Published>,
    /// What was not asked, and why, a sentence each.
    pub skipped: Vec<String>,
    /// Conclusion as a sentence.
    pub verdict: String,
    /// Whether the result may be used: every control passed and something was found.
    pub conclusive: bool,
    /// Number of samples, clean or not.
    pub samples: usize,
    /// Clean samples, percent; absent where samples are not guarded one by one.
    pub clean_percent: Option<f64>,
    /// The whole probe, milliseconds.
    pub took_ms: u64,
    /// Every visit in its order, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<Vec<RawVisit>>,
}

/// What the measurements say, when no control speaks against them.
pub(super) enum Answer {
    /// Conclusion as a sentence.
    Found(String),
    Open(String),
}

impl Protocol {
    /// An empty one for `machine`.
    #[must_use]
    pub fn new(machine: Machine, cpu: usize) -> Self {
        Self {
            machine,
            cpu,
            controls: Vec::new(),
            published: Vec::new(),
            skipped: Vec::new(),
            verdict: String::new(),
            conclusive: false,
            samples: 0,
            clean_percent: None,
            took_ms: 0,
            raw: None,
        }
    }

    /// Says that what needs a feature was not asked where this processor does not show it.
    pub(super) fn leave_out_without(&mut self, feature: &str, there: bool, what: &str) {
        if !there {
            self.skipped.push(lacks(feature, what));
        }
    }

    pub(super) fn count(&mut self, sampled: &Sampled) {
        (self.samples, self.clean_percent) = (sampled.taken, Some(sampled.clean_percent));
    }

    /// The verdict, unless a control speaks against the method.
    pub(super) fn conclude(&mut self, answer: Answer) {
        let failed = self.controls.iter().find(|c| c.passed != Some(true));
        let clean =
            self.clean_percent.map_or(String::new(), |p| format!(" ({p:.0} % clean samples)"));
        (self.conclusive, self.verdict) = match (failed, answer) {
            (Some(c), _) => {
                let how = if c.passed.is_none() { "undecided" } else { "failed" };
                let words = format!("{} control {how}: {}{clean}", c.kind, c.words);
                (false, format!("inconclusive: {words}"))
            }
            (None, Answer::Open(reason)) => (false, format!("inconclusive: {reason}{clean}")),
            (None, Answer::Found(words)) => (true, words),
        };
    }
}

/// Why `what` is left out, as a sentence.
fn lacks(feature: &str, what: &str) -> String {
    format!("{what}: this processor (or its hypervisor) shows no {feature}")
}

/// A chosen processor, pinned to until dropped.
pub(super) struct PinnedCore {
    pub clock: HardwareClock,
    pub machine: Machine,
    pub cpu: usize,
    /// How many processors this thread may use.
    pub cpus_allowed: usize,
    pub start: Instant,
    _pin: Pin,
}

impl PinnedCore {
    pub fn take(bench: &Bench<'_>) -> Result<Self, ProbeError> {
        let start = Instant::now();
        let mut clock = HardwareClock::new()?;
        let cpus = allowed_cpus()?;
        let mut pin = Pin::to(*cpus.first().unwrap_or(&0))?;
        let cpu = choose_cpu(&mut clock, &cpus, |cpu| pin.move_to(cpu))?;
        if bench.interrupt.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(ProbeError::Interrupted);
        }
        // Only now: on a hybrid part the answer depends on the core that gives it.
        let machine = Machine::detect();
        Ok(Self { clock, machine, cpu, cpus_allowed: cpus.len(), start, _pin: pin })
    }
}

impl Protocol {
    /// `count` cells of a probe that need 512-bit vectors, measured in a process of their own. Where
    /// there are none, the protocol says why.
    pub(super) fn ask_wide(
        &mut self,
        bench: &Bench<'_>,
        id: &str,
        count: usize,
    ) -> Option<Sampled> {
        const WIDE: &str = "512-bit vectors";
        let reason = if !self.machine.features.avx512f {
            lacks("AVX-512", WIDE)
        } else if let Some(isolated) = bench.isolated {
            let parsed = |answer: String| {
                foreign::from_json(&answer).map_err(|e| format!("the child's answer: {e}").into())
            };
            match isolated.wide(id, bench.seed).and_then(parsed) {
                Ok(Sampled { cells, .. }) if cells.len() != count => {
                    format!("{WIDE}: the child's answer is cut")
                }
                Ok(sampled) => return Some(sampled),
                Err(cause) => format!("{WIDE}: {cause}"),
            }
        } else {
            format!(
                "{WIDE}: they lower the clock of what runs after them and need a process of their \
                 own, which was not offered"
            )
        };
        self.skipped.push(reason);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Features, invented};
    use crate::probes::{Isolated, NotIsolated};
    use std::sync::atomic::AtomicBool;

    #[derive(Debug)]
    struct NeverAsked;

    impl Isolated for NeverAsked {
        fn wide(&self, probe: &str, _seed: u64) -> Result<String, NotIsolated> {
            panic!("{probe}: 512-bit kernels would be run where there are none")
        }
    }

    #[test]
    fn without_avx_512_no_process_is_started_and_the_feature_is_named() {
        let mut machine = Machine::from_facts(&invented::zen_5_guest());
        machine.features = Features { avx512f: false, ..machine.features };
        let interrupt = AtomicBool::new(false);
        let bench = Bench { isolated: Some(&NeverAsked), ..Bench::new(1, &interrupt) };
        for id in ["store-forwarding", "string-copy", "store-elimination"] {
            let mut protocol = Protocol::new(machine.clone(), 0);
            assert!(protocol.ask_wide(&bench, id, 1).is_none());
            let [reason] = &protocol.skipped[..] else { panic!("{:?}", protocol.skipped) };
            assert!(reason.contains("512-bit") && reason.ends_with("shows no AVX-512"), "{reason}");
        }
    }

    #[test]
    fn what_a_feature_is_missing_for_is_left_out_by_name() {
        let mut protocol = Protocol::new(Machine::from_facts(&invented::zen_5_guest()), 0);
        protocol.leave_out_without("AVX2", true, "32-byte moves");
        assert!(protocol.skipped.is_empty());
        protocol.leave_out_without("AVX2", false, "32-byte moves");
        let said = "32-byte moves: this processor (or its hypervisor) shows no AVX2";
        assert_eq!(protocol.skipped, [said]);
    }
}
