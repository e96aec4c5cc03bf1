//! From samples to what operations take.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Case, ID, ONE_IN, all_cases};
use crate::machine::{
    CoreCost, CoreCycles, Design, MeasuredCore, OpClass, PriceOrigin, ProfileEnvironment,
};
use crate::model::Measurement;
use crate::probes::UpdatesProfile;
use crate::probes::protocol::{Answer, Control, Protocol};
use crate::probes::sampling::Sampled;

/// What an addition takes: the clock counts these.
const ADDITION_CYCLES: [f64; 2] = [0.95, 1.1];
/// The branch and the test before it: from the random number to the resolution, and from dispatch to execution.
const AROUND_A_BRANCH_CYCLES: f64 = 3.0;
/// Of random jumps, one in so many is predicted wrong.
const JUMPS_A_MISPREDICTION: f64 = 2.0;

/// What was asked, what it takes here, and what the model takes for it without this probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CoreRow {
    /// What it is.
    pub cost: CoreCost,
    /// Core cycles; absent where too few samples were clean.
    pub cycles: Option<Measurement>,
    /// Published or assumed for the design that this processor was taken for, core cycles.
    pub tabled_cycles: f64,
}

/// What the probe found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CoreReport {
    /// How it was measured.
    #[serde(flatten)]
    pub protocol: Protocol,
    /// In the order of the cases.
    pub rows: Vec<CoreRow>,
}

impl CoreReport {
    /// Joins samples into a report; a cell of `sampled` for each case.
    #[must_use]
    pub fn new(sampled: &Sampled, mut protocol: Protocol) -> Self {
        protocol.count(sampled);
        let tabled = Design::of_machine(&protocol.machine).core().value;
        let cases = all_cases();
        let raw = |case: Case| {
            let n = cases.iter().position(|other| *other == case)?;
            sampled.cells.get(n)?.cycles.as_ref()
        };
        let of = |cost| raw(Case { cost, is_plain: false });
        let cycles = |cost: CoreCost| {
            let m = of(cost)?;
            match cost {
                // An addition closes the chain.
                CoreCost::Latency(OpClass::Divide32 | OpClass::Divide64) => {
                    Some(less(m, of(CoreCost::Latency(OpClass::Integer))?, 1.0, 0.0))
                }
                CoreCost::Latency(OpClass::FloatRoot32 | OpClass::FloatRoot64) => {
                    Some(less(m, of(CoreCost::Latency(OpClass::FloatAdd))?, 1.0, 0.0))
                }
                // There and back.
                CoreCost::Latency(
                    OpClass::Convert
                    | OpClass::ConvertIn
                    | OpClass::ConvertAcross
                    | OpClass::CrossIn
                    | OpClass::Cross,
                ) => Some(m.map(|cycles| cycles / 2.0)),
                CoreCost::SameStore | CoreCost::LockedApart | CoreCost::AliasedLoad => {
                    let one_in = Case { cost, is_plain: false }.one_in();
                    Some(m.map(|cycles| cycles * one_in as f64))
                }
                // There and back.
                CoreCost::UpperHalves => Some(m.map(|cycles| cycles * ONE_IN as f64 / 2.0)),
                CoreCost::LockedWait => {
                    Some(less(m, raw(Case { cost, is_plain: true })?, 1.0, 0.0))
                }
                CoreCost::Misprediction => {
                    let plain = raw(Case { cost, is_plain: true })?;
                    Some(less(m, plain, JUMPS_A_MISPREDICTION, AROUND_A_BRANCH_CYCLES))
                }
                _ => Some(m.clone()),
            }
        };
        let asked = cases.iter().filter(|case| !case.is_plain);
        let rows: Vec<CoreRow> = asked
            .map(|Case { cost, .. }| CoreRow {
                cost: *cost,
                cycles: cycles(*cost),
                tabled_cycles: tabled.cycles_of(*cost),
            })
            .collect();
        let addition = of(CoreCost::Latency(OpClass::Integer));
        let multiplication = of(CoreCost::Latency(OpClass::Multiply));
        let longer = |a: &Measurement, b: &Measurement| b.low > a.high;
        let [least, most] = ADDITION_CYCLES;
        let is_one = |a: &Measurement, _: &Measurement| (least..=most).contains(&a.value);
        protocol.controls = vec![
            Control::compare(
                "positive",
                "addition and multiplication",
                addition,
                multiplication,
                longer,
            ),
            Control::compare("negative", "addition", addition, addition, is_one),
        ];
        let measured = rows.iter().filter(|row| row.cycles.is_some()).count();
        let answer = match measured {
            0 => Answer::Open("too few clean samples".into()),
            n => Answer::Found(format!("{n} of {} figures were measured", rows.len())),
        };
        protocol.conclude(answer);
        Self { protocol, rows }
    }
}

/// `a` without `b`, so many times, and without a fixed amount; never less than nothing.
fn less(a: &Measurement, b: &Measurement, times: f64, fixed: f64) -> Measurement {
    let of = |a: f64, b: f64| (times * (a - b) - fixed).max(0.0);
    Measurement {
        value: of(a.value, b.value),
        low: of(a.low, b.high),
        high: of(a.high, b.low),
        n: a.n.min(b.n),
        ..a.clone()
    }
}

impl UpdatesProfile for CoreReport {
    fn protocol(&self) -> Option<&Protocol> {
        Some(&self.protocol)
    }

    fn put_into(&self, profile: &mut Design) {
        let costs: Vec<CoreCycles> = self
            .rows
            .iter()
            .filter_map(|row| Some(CoreCycles { cost: row.cost, cycles: row.cycles.clone()? }))
            .collect();
        if costs.is_empty() {
            return;
        }
        let origin = PriceOrigin::Probed { probe: ID.to_owned() };
        profile.measured_core = Some(MeasuredCore { costs, origin });
        profile.environment.get_or_insert_with(|| ProfileEnvironment::of(&self.protocol.machine));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::FakeClock;
    use crate::machine::{Machine, Microarchitecture, UpperHalves, invented};
    use crate::probes::fake::{quiet, sampled};

    fn report(clock: FakeClock, cycles: impl Fn(Case) -> f64) -> CoreReport {
        let cases = all_cases();
        let sampled = sampled(clock, cases.len(), |case| cycles(cases[case]));
        let machine = Machine::from_facts(&invented::zen_5_guest());
        CoreReport::new(&sampled, Protocol::new(machine, 1))
    }

    /// A core of an invented kind.
    fn invented_cycles(case: Case) -> f64 {
        match (case.cost, case.is_plain) {
            (CoreCost::Latency(OpClass::Integer), _) => 1.0,
            (CoreCost::Latency(OpClass::Divide64), _) => 13.0,
            (CoreCost::Latency(OpClass::FloatAdd), _) => 4.0,
            (CoreCost::Latency(OpClass::FloatRoot64), _) => 24.0,
            (CoreCost::Latency(OpClass::Convert), _) => 14.0,
            (CoreCost::Interval(OpClass::Integer) | CoreCost::Dispatch, _) => 0.25,
            (CoreCost::LockedApart, _) => 24.0 / 8.0,
            (CoreCost::AddConstant, _) => 0.17,
            (CoreCost::UpperHalves, _) => 300.0 / 8.0,
            (CoreCost::Misprediction, false) => 18.0,
            (CoreCost::Misprediction, true) => 7.0,
            _ => 3.0,
        }
    }

    #[test]
    fn what_closes_a_chain_is_no_part_of_it() {
        let found = report(quiet(), invented_cycles);
        assert!(found.protocol.conclusive, "{}", found.protocol.verdict);
        let mut design = Design::of(Microarchitecture::Zen5);
        found.apply_to(&mut design);
        let core = design.core().value;
        let latency = |class| core.execution(class).latency_cycles;
        assert_eq!(latency(OpClass::Divide64), 12);
        assert_eq!(latency(OpClass::FloatRoot64), 20);
        assert_eq!(latency(OpClass::Convert), 7);
        // Twice the difference of 11, less what is around the branch.
        assert_eq!(core.mispredict_cycles, 19);
        assert_eq!(core.dispatch_width, 4);
        assert_eq!((core.locked_apart_cycles, core.renames_additions), (24, true));
        assert_eq!(core.upper_halves, UpperHalves::Moved { cycles: 150 }, "half of there and back");
        assert_eq!(core.execution(OpClass::Integer).ports.count_ones(), 4);
    }

    #[test]
    fn a_core_on_which_an_addition_takes_longer_is_not_believed() {
        let slow = |case| invented_cycles(case) * 1.3;
        let found = report(quiet(), slow);
        assert!(!found.protocol.conclusive, "{}", found.protocol.verdict);
        let before = Design::of(Microarchitecture::Zen5);
        let mut after = before.clone();
        found.apply_to(&mut after);
        assert_eq!(after, before);
    }
}
