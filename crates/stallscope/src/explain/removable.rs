//! Which instructions a mechanism can be removed at, and what takes their place.

use std::collections::BTreeMap;

use super::FunctionRow;
use super::prediction::LEAST_RATIO;
use super::windows::BothArms;
use crate::code::x86::{Patch, PatchError, split_loads, string_loops, without_false_dependencies};
use crate::code::{Architecture, Image};
use crate::compare::Arm;
use crate::counted::RARE_PART;
use crate::model::Svma;
use crate::sim::core::{Account, Mechanism};

/// Instructions that are replaced, at the most.
const MOST_TARGETS: usize = 24;
/// An instruction is worth replacing if it has this part of the events of its place.
const LEAST_OF_PLACE: f64 = 0.03;
/// If all events cost the most and it were less than this part of the difference, in per cent, nothing is tried.
const LEAST_POSSIBLE: f64 = 15.0;

type Built = Result<[Patch; 2], (Svma, PatchError)>;

/// A mechanism that can be removed.
pub(super) struct Removable {
    pub mechanism: Mechanism,
    /// What one event costs at the most, by every probe so far.
    most_cycles: f64,
    /// Pieces up to which what is put in costs next to nothing, so that a cure that brings back nothing says
    /// something; 0 where it always costs.
    free_pieces: u32,
    /// Control and cure.
    build: fn(&Image, &[Target]) -> Built,
}

/// All that can be.
pub(super) const REMOVABLE: [Removable; 3] = [
    Removable {
        mechanism: Mechanism::BlockedLoads,
        most_cycles: 40.0,
        free_pieces: 2,
        build: |image, targets| {
            split_loads(image, &targets.iter().map(|it| (it.svma, it.piece_bytes)).collect())
        },
    },
    Removable {
        mechanism: Mechanism::Microcode,
        most_cycles: 200.0,
        free_pieces: 0,
        build: |image, targets| string_loops(image, &sites(targets)),
    },
    Removable {
        mechanism: Mechanism::FalseDependencies,
        most_cycles: 20.0,
        free_pieces: 1,
        build: |image, targets| without_false_dependencies(image, &sites(targets)),
    },
];

/// An instruction to be replaced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Target {
    pub svma: Svma,
    /// How often it had the mechanism in the windows.
    events: u64,
    /// Of a load: what every piece of it between the edges of stores can be cut into; 0 without edges.
    piece_bytes: u32,
    /// Pieces between these edges.
    pieces: u32,
}

fn sites(targets: &[Target]) -> Vec<Svma> {
    targets.iter().map(|target| target.svma).collect()
}

impl Removable {
    /// Whether what takes the place of these costs next to nothing.
    pub fn is_free(&self, targets: &[Target]) -> bool {
        targets.iter().all(|target| target.pieces <= self.free_pieces)
    }

    /// Control and cure for those targets that can be replaced; why, when none can.
    pub fn patches(
        &self,
        image: &Image,
        mut targets: Vec<Target>,
    ) -> Result<([Patch; 2], Vec<Target>), String> {
        if image.architecture() != Architecture::X86_64 {
            return Err("only x86-64 code can be replaced".into());
        }
        let mut refused = Vec::new();
        while !targets.is_empty() {
            match (self.build)(image, &targets) {
                Ok(both) if both.iter().all(Patch::runs_here) => return Ok((both, targets)),
                Ok(_) => {
                    return Err(
                        "this processor lacks instructions that it needs (BMI2, SSE4.1)".into()
                    );
                }
                Err((svma, error)) => {
                    refused.push(format!("the instruction at {svma} cannot be replaced: {error}"));
                    targets.retain(|target| target.svma != svma);
                }
            }
        }
        Err(refused.join("; "))
    }
}

/// A search for what has a mechanism clearly more often in the slow build.
pub(super) struct Search<'a> {
    pub removable: &'a Removable,
    pub rows: &'a [FunctionRow],
    pub windows: &'a BothArms,
    pub slow: Arm,
    pub difference_ns: f64,
}

impl<'a> Search<'a> {
    /// Those of the program's own functions.
    pub fn in_program(&self) -> Vec<Target> {
        let arm = &self.windows.arms[self.slow.index()];
        let of_row = |row: &FunctionRow| {
            let function = row.place.function(self.slow)?;
            self.of_place(row, &arm.insns(function.start, function.end()), Some)
        };
        most_frequent(self.rows().filter_map(of_row).flatten().collect())
    }

    /// Those of the first library that has any, with the library; no other is opened.
    pub fn in_libraries(&self) -> Option<(Image, Vec<Target>)> {
        let arm = &self.windows.arms[self.slow.index()];
        self.rows().find_map(|row| {
            let path = row.place.object(self.slow)?;
            let insns = arm.insns_of_object(path);
            self.of_place(row, &insns, |_| Some(Svma(0)))?;
            let image = Image::open(path).ok()?;
            let targets = most_frequent(self.of_place(row, &insns, |at| image.svma_of(at))?);
            (!targets.is_empty()).then_some((image, targets))
        })
    }

    /// The places that hold enough of the difference.
    fn rows(&self) -> impl Iterator<Item = &'a FunctionRow> {
        let least = super::cause::LEAST_PART;
        self.rows.iter().filter(move |row| row.share_of_difference.percent.value >= least)
    }

    /// The instructions of a place that have the mechanism often, if it has it clearly more often than in the fast
    /// build; none with an address that `svma_of` does not know.
    fn of_place<A: Copy>(
        &self,
        row: &FunctionRow,
        insns: &BTreeMap<A, Account>,
        svma_of: impl Fn(A) -> Option<Svma>,
    ) -> Option<Vec<Target>> {
        let (slow, fast) = (self.slow, self.slow.other());
        let here: Account = insns.values().sum();
        let there: Account =
            self.windows.arms[fast.index()].in_place(fast, &row.place).iter().sum();
        let events = |account: &Account| account.events_of(self.removable.mechanism) as f64;
        let in_a_run = |account: &Account, arm: Arm| {
            let executed = row.instructions().map_or(account.executions, |both| both[arm.index()]);
            events(account) * executed as f64 / account.executions.max(1) as f64
        };
        let time_ns = if slow == Arm::A { row.before.value } else { row.after.value };
        let cycles = events(&here) * self.removable.most_cycles;
        let possible = 100.0 * time_ns * cycles / here.cycles.max(1) as f64;
        if in_a_run(&here, slow) <= LEAST_RATIO * in_a_run(&there, fast)
            || possible < LEAST_POSSIBLE * self.difference_ns.abs()
        {
            return None;
        }
        let is_often = |account: &Account| {
            events(account) >= RARE_PART * account.executions as f64
                && events(account) >= LEAST_OF_PLACE * events(&here)
        };
        let often = insns.iter().filter(|(_, account)| is_often(account));
        let target = |(at, account): (&A, &Account)| {
            Some(Target {
                svma: svma_of(*at)?,
                events: account.events_of(self.removable.mechanism),
                piece_bytes: piece_bytes(account.store_edges),
                pieces: account.store_edges.count_ones() + 1,
            })
        };
        Some(often.filter_map(target).collect())
    }
}

fn most_frequent(mut targets: Vec<Target>) -> Vec<Target> {
    targets.sort_by_key(|target| (std::cmp::Reverse(target.events), target.svma));
    targets.truncate(MOST_TARGETS);
    targets
}

/// The largest power of two by which all edges, bit n for byte n, are apart from the load's start; 0 without any.
fn piece_bytes(edges: u64) -> u32 {
    let positions = (1..64_u32).filter(|n| edges >> n & 1 != 0);
    positions.map(|n| 1 << n.trailing_zeros()).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_where_stores_end() {
        assert_eq!(piece_bytes(0), 0);
        assert_eq!(piece_bytes(1 << 4), 4);
        assert_eq!(piece_bytes(1 << 8 | 1 << 12), 4);
        assert_eq!(piece_bytes(1 << 8 | 1 << 24), 8);
        assert_eq!(piece_bytes(1 << 4 | 1 << 7), 1);
    }
}
