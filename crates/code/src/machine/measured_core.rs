//! What a probe measured of a core, and how it goes before the table's row.
//!
//! Latencies stand as they are. Of the interval between two operations the model needs units: as many as the interval
//! has room for in a cycle, or one that is taken for several cycles.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::core::{CoreShape, Execution, MemoryRenaming, OpClass, UpperHalves};
use super::design::PriceOrigin;
use super::false_dependency::FalseDependency;
use crate::model::Measurement;

/// Something that a core takes cycles for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CoreCost {
    /// From operand to result of an operation.
    Latency(OpClass),
    /// From the start of one operation to that of the next, where they wait for nothing.
    Interval(OpClass),
    /// The same of what is done while renaming: a slot of the dispatcher.
    Dispatch,
    /// The same of loads into general registers.
    Load,
    /// The same of loads into vector registers.
    VectorLoad,
    /// The same of stores to as many lines.
    Commit,
    /// The same of stores to four lines in turn.
    CombinedCommit,
    /// The same of loads across two lines.
    SplitLoad,
    /// The same of stores across two lines.
    SplitStore,
    /// The same of stores across two pages.
    PageSplitStore,
    /// What an atomic operation adds to a chain through loads behind it.
    LockedWait,
    /// From one atomic operation to the next, with [`BESIDE_LOCKED`] additions that wait for nothing between.
    LockedApart,
    /// From one addition of a small constant to a register of 64 bits to the next.
    AddConstant,
    /// From address to value, out of the first data cache.
    LoadLatency,
    /// The same across two lines.
    SplitLoadLatency,
    /// The same across two pages.
    PageSplitLoadLatency,
    /// From address to value, where a store in front of the load has its address at the same time and goes to the same place of
    /// another page.
    AliasedLoad,
    /// From a store's value to that of the load behind it, where both name their place alike.
    SameName,
    /// The same where they name it by different registers.
    SameStore,
    /// What moving the upper halves of vector registers takes, one way: see [`UpperHalves::Moved`].
    UpperHalves,
    /// From one instruction to the next that writes the same register and reads others: what it waits for where that is
    /// longer than what one takes from the other otherwise.
    SameDestination(FalseDependency),
    /// From the resolution of a mispredicted branch to the dispatch of what is right.
    Misprediction,
}

impl CoreCost {
    /// A stable name, as in the JSON: `core.latency.multiply`, `core.dispatch`.
    #[must_use]
    pub fn id(self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::Object(one)) => {
                let part = |(kind, class): (&String, &serde_json::Value)| {
                    format!("core.{kind}.{}", class.as_str().unwrap_or_default())
                };
                one.iter().map(part).collect()
            }
            Ok(name) => format!("core.{}", name.as_str().unwrap_or_default()),
            Err(_) => String::new(),
        }
    }
}

/// What one of these takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CoreCycles {
    /// What it is.
    pub cost: CoreCost,
    /// Core cycles, with their interval and count.
    pub cycles: Measurement,
}

/// What a probe measured of a core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredCore {
    /// All that had clean samples enough.
    pub costs: Vec<CoreCycles>,
    /// Source of these figures.
    pub origin: PriceOrigin,
}

/// See [`CoreCost::LockedApart`]: so many, because those of Redwood Cove are farther apart with 40 between than with 24.
pub const BESIDE_LOCKED: usize = 40;

/// No core takes so many cycles for an operation, or does more of them in a cycle.
const MOST_CYCLES: f64 = 250.0;
const MOST_PER_CYCLE: f64 = 16.0;
/// Loads that wait for an atomic operation wait for longer.
const LEAST_WAIT_CYCLES: f64 = 5.0;
/// Upper halves that are moved take longer.
const LEAST_MOVED_CYCLES: f64 = 20.0;
/// Instructions that wait for what their destination held take longer from one to the next.
const LEAST_HELD_CYCLES: f64 = 1.75;
/// Additions take up to so many times longer beside an atomic operation.
const ADDITIONS_TAKE: f64 = 1.1;
/// Loads that are taken for others wait longer.
const LEAST_ALIASED_CYCLES: u8 = 2;
/// A value that goes through memory in less is handed on while renaming.
const MOST_RENAMED_CYCLES: f64 = 2.5;
/// An interval below is that of several units, above of one that is taken for longer.
const ONE_UNIT_CYCLES: f64 = 0.75;

impl MeasuredCore {
    /// What one of these was measured to take.
    pub(super) fn cycles_of(&self, cost: CoreCost) -> Option<&Measurement> {
        self.costs.iter().find(|row| row.cost == cost).map(|row| &row.cycles)
    }

    /// Puts what was measured into a row of the table.
    pub(super) fn put_into(&self, shape: &mut CoreShape) {
        // Units that operations of some kind use; classes that have more than the row knows use others of these.
        let all = shape.execution.iter().fold(0, |all, row| all | row.ports);
        for CoreCycles { cost, cycles } in &self.costs {
            let whole = whole_cycles(cycles.value);
            let per_cycle = per_cycle(cycles.value);
            match cost {
                CoreCost::Latency(class) => shape.row_mut(*class).latency_cycles = whole,
                CoreCost::Interval(class) => {
                    let row = shape.row_mut(*class);
                    *row = with_interval(*row, cycles.value, all);
                    if is_fence(*class) {
                        row.latency_cycles = row.busy_cycles - 1;
                    }
                }
                CoreCost::Dispatch => shape.dispatch_width = per_cycle,
                CoreCost::Load => shape.loads_per_cycle = per_cycle,
                CoreCost::VectorLoad => shape.vector_loads_per_cycle = per_cycle,
                // Where stores are combined, to as many lines they take what a line does.
                CoreCost::Commit if shape.combined_lines > 0 => {}
                CoreCost::CombinedCommit if shape.combined_lines == 0 => {}
                CoreCost::Commit | CoreCost::CombinedCommit => shape.commits_per_cycle = per_cycle,
                CoreCost::SplitLoad => {
                    let slots = cycles.value * f64::from(shape.loads_per_cycle);
                    shape.split_load_slots = whole_cycles(slots).into();
                }
                CoreCost::LockedWait => shape.locked_is_fence = cycles.value > LEAST_WAIT_CYCLES,
                CoreCost::AddConstant => {
                    shape.renames_additions = cycles.value < ONE_UNIT_CYCLES;
                }
                CoreCost::UpperHalves => {
                    shape.upper_halves = match shape.upper_halves {
                        _ if cycles.value >= LEAST_MOVED_CYCLES => {
                            UpperHalves::Moved { cycles: whole }
                        }
                        UpperHalves::Merged => UpperHalves::Merged,
                        _ => UpperHalves::Free,
                    };
                }
                CoreCost::SameDestination(kind) => {
                    let waits = cycles.value >= LEAST_HELD_CYCLES;
                    shape.false_dependency_cycles[*kind as usize] = if waits { whole } else { 0 };
                }
                CoreCost::SplitStore => shape.split_store_cycles[0] = whole,
                CoreCost::PageSplitStore => shape.split_store_cycles[1] = whole,
                CoreCost::LoadLatency => shape.load_cycles = whole,
                CoreCost::SameName
                | CoreCost::SameStore
                | CoreCost::SplitLoadLatency
                | CoreCost::PageSplitLoadLatency
                | CoreCost::LockedApart
                | CoreCost::AliasedLoad => {}
                CoreCost::Misprediction => shape.mispredict_cycles = whole,
            }
        }
        let split = [CoreCost::SplitLoadLatency, CoreCost::PageSplitLoadLatency];
        for (longer, cost) in shape.split_load_cycles.iter_mut().zip(split) {
            if let Some(cycles) = self.cycles_of(cost) {
                *longer = whole_cycles(cycles.value).saturating_sub(shape.load_cycles);
            }
        }
        if let Some(cycles) = self.cycles_of(CoreCost::AliasedLoad) {
            let longer = whole_cycles(cycles.value).saturating_sub(shape.load_cycles);
            shape.alias_cycles = if longer >= LEAST_ALIASED_CYCLES { longer } else { 0 };
        }
        if let Some(cycles) = self.cycles_of(CoreCost::LockedApart) {
            // What the additions take themselves tells nothing (Zen 4: 10.3 cycles, and 6.5 with 20 of them).
            let addition = self.cycles_of(CoreCost::Interval(OpClass::Integer));
            let additions = BESIDE_LOCKED as f64 * addition.map_or(0.0, |cycles| cycles.value);
            let shows = cycles.value > additions * ADDITIONS_TAKE;
            let nearest = shape.execution(OpClass::Locked).busy_cycles;
            shape.locked_apart_cycles = if shows { whole_cycles(cycles.value) } else { nearest };
        }
        let is_renamed =
            |cost: CoreCost| self.cycles_of(cost).map(|cycles| cycles.value < MOST_RENAMED_CYCLES);
        shape.renames_memory = match [CoreCost::SameName, CoreCost::SameStore].map(is_renamed) {
            [Some(true), Some(true)] => match shape.renames_memory {
                MemoryRenaming::SameName | MemoryRenaming::SameStart => MemoryRenaming::SameStart,
                _ => MemoryRenaming::SameStore,
            },
            [Some(true), Some(false)] => MemoryRenaming::SameName,
            [Some(false), _] => MemoryRenaming::Never,
            _ => shape.renames_memory,
        };
    }
}

impl CoreShape {
    /// What the model takes for one of these, in core cycles.
    #[must_use]
    pub fn cycles_of(&self, cost: CoreCost) -> f64 {
        let row = |class| self.execution(class);
        match cost {
            CoreCost::Latency(class) => f64::from(row(class).latency_cycles),
            CoreCost::Interval(class) => {
                let row = row(class);
                let busy = f64::from(row.busy_cycles * row.times());
                let of_units = busy / f64::from(row.ports.count_ones().max(1));
                of_units.max(1.0 / f64::from(self.dispatch_width))
            }
            CoreCost::Dispatch => 1.0 / f64::from(self.dispatch_width),
            CoreCost::Load => 1.0 / f64::from(self.loads_per_cycle),
            CoreCost::VectorLoad => 1.0 / f64::from(self.vector_loads_per_cycle),
            CoreCost::Commit if self.combined_lines > 0 => 1.0,
            CoreCost::Commit | CoreCost::CombinedCommit => 1.0 / f64::from(self.commits_per_cycle),
            CoreCost::SplitLoad => {
                f64::from(self.split_load_slots) / f64::from(self.loads_per_cycle)
            }
            CoreCost::LockedWait => match self.locked_is_fence {
                true => self.cycles_of(CoreCost::Interval(OpClass::Locked)),
                false => 0.0,
            },
            CoreCost::LockedApart => match self.locked_hold_cycles {
                [0, _] => f64::from(self.locked_apart_cycles),
                // The additions are dispatched behind it.
                [hold, _] => {
                    f64::from(hold) + BESIDE_LOCKED as f64 * self.cycles_of(CoreCost::Dispatch)
                }
            },
            CoreCost::AddConstant => match self.renames_additions {
                true => self.cycles_of(CoreCost::Dispatch),
                false => self.cycles_of(CoreCost::Latency(OpClass::Integer)),
            },
            CoreCost::UpperHalves => match self.upper_halves {
                UpperHalves::Moved { cycles } => f64::from(cycles),
                UpperHalves::Merged | UpperHalves::Free => 0.0,
            },
            CoreCost::SameDestination(kind) => {
                f64::from(self.false_dependency_cycles(kind)).max(1.0)
            }
            CoreCost::SplitStore => f64::from(self.split_store_cycles[0]),
            CoreCost::PageSplitStore => f64::from(self.split_store_cycles[1]),
            CoreCost::LoadLatency => f64::from(self.load_cycles),
            CoreCost::SplitLoadLatency => f64::from(self.load_cycles + self.split_load_cycles[0]),
            CoreCost::PageSplitLoadLatency => {
                f64::from(self.load_cycles + self.split_load_cycles[1])
            }
            CoreCost::AliasedLoad => f64::from(self.load_cycles + self.alias_cycles),
            CoreCost::SameName if self.renames_memory == MemoryRenaming::SameName => 0.0,
            CoreCost::SameName | CoreCost::SameStore => match self.renames_memory {
                MemoryRenaming::SameStore | MemoryRenaming::SameStart => 0.0,
                MemoryRenaming::Never | MemoryRenaming::SameName => f64::from(self.forward_cycles),
            },
            CoreCost::Misprediction => f64::from(self.mispredict_cycles),
        }
    }
}

/// What follows waits for it, and starts in the cycle behind.
fn is_fence(class: OpClass) -> bool {
    matches!(class, OpClass::Fence | OpClass::LoadFence | OpClass::StoreFence)
}

/// A profile may hold anything; what is not a number becomes 0 on its way to a whole one.
fn whole_cycles(cycles: f64) -> u8 {
    (cycles.round().clamp(1.0, MOST_CYCLES) as u8).max(1)
}

fn per_cycle(interval_cycles: f64) -> u32 {
    ((1.0 / interval_cycles).round().clamp(1.0, MOST_PER_CYCLE) as u32).max(1)
}

/// A row whose operations start this many cycles behind one another.
fn with_interval(row: Execution, cycles: f64, all_ports: u32) -> Execution {
    let cycles = cycles / f64::from(row.times());
    if cycles >= ONE_UNIT_CYCLES {
        let ports = lowest(row.ports, 1);
        return Execution { busy_cycles: whole_cycles(cycles), ports, ..row };
    }
    let units = per_cycle(cycles);
    let missing = units.saturating_sub(row.ports.count_ones());
    let ports = lowest(row.ports, units) | lowest(all_ports & !row.ports, missing);
    Execution { busy_cycles: 1, ports, ..row }
}

/// The lowest of a set of ports, so many of them.
fn lowest(ports: u32, count: u32) -> u32 {
    (0..u32::BITS).map(|bit| ports & (1 << bit)).filter(|bit| *bit != 0).take(count as usize).sum()
}

#[cfg(test)]
mod tests {
    use super::super::{Design, Microarchitecture};
    use super::*;
    use crate::model::Unit;

    fn measured(cost: CoreCost, value: f64) -> CoreCycles {
        let how = String::new();
        let unit = Unit::Cycles;
        let cycles = Measurement { value, unit, low: value, high: value, n: 32, how };
        CoreCycles { cost, cycles }
    }

    fn core(costs: Vec<CoreCycles>) -> CoreShape {
        core_of(Microarchitecture::Zen4, costs)
    }

    fn core_of(design: Microarchitecture, costs: Vec<CoreCycles>) -> CoreShape {
        let mut design = Design::of(design);
        let origin = PriceOrigin::Probed { probe: "core".into() };
        design.measured_core = Some(MeasuredCore { costs, origin });
        design.core().value
    }

    #[test]
    fn atomic_operations_are_no_farther_apart_than_additions_beside_them_show() {
        let apart = |addition: f64, both: f64| {
            let interval = |class, value| measured(CoreCost::Interval(class), value);
            let costs = vec![
                measured(CoreCost::LockedApart, both),
                interval(OpClass::Integer, addition),
                interval(OpClass::Locked, 7.0),
            ];
            core_of(Microarchitecture::Zen4, costs).locked_apart_cycles
        };
        assert_eq!([apart(0.25, 10.3), apart(0.25, 24.0), apart(0.2, 10.3)], [7, 24, 10]);
        // Measured on Zen 5: 22.
        let of = |design| core_of(design, vec![]).cycles_of(CoreCost::LockedApart);
        assert_eq!([Microarchitecture::Zen4, Microarchitecture::Zen5].map(of), [7.0, 22.0]);
    }

    #[test]
    fn what_takes_a_unit_twice_has_room_for_both() {
        let interval = |class, cycles| {
            let costs = vec![measured(CoreCost::Interval(class), cycles)];
            let shape = core_of(Microarchitecture::Skylake, costs);
            (shape.cycles_of(CoreCost::Interval(class)), shape.execution(class).ports.count_ones())
        };
        let tabled = core_of(Microarchitecture::Skylake, vec![]);
        assert_eq!(tabled.execution(OpClass::ShiftByCount).operations, 2);
        assert_eq!(interval(OpClass::ShiftByCount, 1.0), (1.0, 2));
        assert_eq!(interval(OpClass::ShiftByCount, 2.0), (2.0, 1));
        assert_eq!(interval(OpClass::Shift, 1.0), (1.0, 1));
        assert_eq!(interval(OpClass::Divide32, 6.0), (6.0, 1));
    }

    #[test]
    fn stores_that_are_combined_take_a_cycle_a_line() {
        let of = |design, cost, cycles| core_of(design, vec![measured(cost, cycles)]);
        use Microarchitecture::{Zen4, Zen5};
        assert_eq!(of(Zen5, CoreCost::Commit, 1.04).commits_per_cycle, 2);
        assert_eq!(of(Zen5, CoreCost::CombinedCommit, 1.0).commits_per_cycle, 1);
        assert_eq!(of(Zen4, CoreCost::CombinedCommit, 0.5).commits_per_cycle, 1);
        assert_eq!(of(Zen4, CoreCost::Commit, 0.5).commits_per_cycle, 2);
        let tabled = |cost| core_of(Zen5, vec![]).cycles_of(cost);
        assert_eq!([CoreCost::Commit, CoreCost::CombinedCommit].map(tabled), [1.0, 0.5]);
    }

    #[test]
    fn what_was_measured_goes_before_the_table() {
        let tabled = core(Vec::new());
        assert_eq!(tabled, Design::of(Microarchitecture::Zen4).core().value);
        let shape = core(vec![
            measured(CoreCost::Latency(OpClass::FloatAdd), 3.98),
            measured(CoreCost::Interval(OpClass::FloatDivide64), 6.6),
            measured(CoreCost::Interval(OpClass::Multiply), 0.34),
            measured(CoreCost::Interval(OpClass::Vector), 0.5),
            measured(CoreCost::Interval(OpClass::LoadFence), 14.2),
            measured(CoreCost::Dispatch, 0.126),
            measured(CoreCost::SplitLoadLatency, 6.0),
            measured(CoreCost::LoadLatency, 4.1),
            measured(CoreCost::Misprediction, 18.7),
        ]);
        assert_eq!(shape.execution(OpClass::FloatAdd).latency_cycles, 4);
        let divide = shape.execution(OpClass::FloatDivide64);
        assert_eq!((divide.busy_cycles, divide.ports.count_ones()), (7, 1));
        let multiply = shape.execution(OpClass::Multiply);
        assert_eq!((multiply.busy_cycles, multiply.ports.count_ones()), (1, 3));
        let fence = shape.execution(OpClass::LoadFence);
        assert_eq!((fence.latency_cycles, fence.busy_cycles), (13, 14));
        assert_eq!(shape.split_load_cycles, [2, tabled.split_load_cycles[1]]);
        let before = tabled.execution(OpClass::Multiply).ports;
        assert_eq!(multiply.ports & before, before, "the table's unit stays");
        let vector = shape.execution(OpClass::Vector).ports;
        assert_eq!(
            (vector.count_ones(), vector & !tabled.execution(OpClass::Vector).ports),
            (2, 0)
        );
        assert_eq!((shape.dispatch_width, shape.mispredict_cycles), (8, 19));
    }

    #[test]
    fn how_memory_is_renamed_is_told_by_two_round_trips() {
        let renames = |name: Option<f64>, store: Option<f64>| {
            let of = |cost, cycles: Option<f64>| cycles.map(|cycles| measured(cost, cycles));
            let costs = [of(CoreCost::SameName, name), of(CoreCost::SameStore, store)];
            core(costs.into_iter().flatten().collect()).renames_memory
        };
        assert_eq!(renames(Some(1.0), Some(1.0)), MemoryRenaming::SameStore);
        assert_eq!(renames(Some(2.4), Some(2.5)), MemoryRenaming::SameName);
        assert_eq!(renames(Some(5.0), Some(5.0)), MemoryRenaming::Never);
        let both = vec![measured(CoreCost::SameName, 0.5), measured(CoreCost::SameStore, 0.5)];
        let of = |design| core_of(design, both.clone()).renames_memory;
        for design in [Microarchitecture::RedwoodCove, Microarchitecture::GoldenCove] {
            assert_eq!(of(design), MemoryRenaming::SameStart, "{design:?}");
        }
        assert_eq!(of(Microarchitecture::Zen5), MemoryRenaming::SameStore);
        let tabled = core(Vec::new()).renames_memory;
        assert_eq!([renames(None, Some(5.0)), renames(Some(1.0), None)], [tabled; 2]);
    }

    #[test]
    fn upper_halves_are_moved_where_that_takes_long() {
        let of = |design, cycles| {
            core_of(design, vec![measured(CoreCost::UpperHalves, cycles)]).upper_halves
        };
        use Microarchitecture::{CascadeLake, RedwoodCove};
        assert_eq!(of(RedwoodCove, 203.0), UpperHalves::Moved { cycles: 203 });
        assert_eq!(of(RedwoodCove, 19.0), UpperHalves::Free);
        assert_eq!(of(CascadeLake, 1.0), UpperHalves::Merged, "that costs nothing in this probe");
        assert_eq!(of(CascadeLake, 20.0), UpperHalves::Moved { cycles: 20 });
    }

    #[test]
    fn a_destination_is_waited_for_where_one_instruction_holds_up_the_next() {
        let of = |design, kind, cycles| {
            let cost = CoreCost::SameDestination(kind);
            core_of(design, vec![measured(cost, cycles)]).false_dependency_cycles(kind)
        };
        use Microarchitecture::{CascadeLake, RedwoodCove};
        assert_eq!(of(RedwoodCove, FalseDependency::BitCount, 2.9), 3);
        assert_eq!(of(CascadeLake, FalseDependency::BitCount, 1.7), 0, "whatever the table says");
        assert_eq!(of(RedwoodCove, FalseDependency::Root, 12.6), 13);
    }

    #[test]
    fn absurd_figures_of_a_profile_stay_inside_what_a_core_can_do() {
        for value in [0.0, -3.0, 1e300, f64::NAN, f64::INFINITY] {
            let costs = [CoreCost::Dispatch, CoreCost::Load, CoreCost::LoadLatency];
            let classes =
                [CoreCost::Latency(OpClass::Integer), CoreCost::Interval(OpClass::Integer)];
            let costs = costs.into_iter().chain(classes).map(|cost| measured(cost, value));
            let shape = core(costs.collect());
            assert!((1..=16).contains(&shape.dispatch_width), "{value}: {shape:?}");
            let integer = shape.execution(OpClass::Integer);
            assert!(integer.busy_cycles >= 1 && integer.ports != 0, "{value}: {integer:?}");
        }
    }
}
