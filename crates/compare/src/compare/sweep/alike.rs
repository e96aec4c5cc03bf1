//! Which variants hold the same code, all of it or all that is hot.

use std::sync::atomic::AtomicBool;

use super::Cell;
use super::report::{CellRecord, SweepNote, SweepReport};
use super::run::{Plan, Ready};
use crate::compare::identical::{same_code, sample_hot_code};
use crate::compare::layouts::{AS_BUILT, Source};
use crate::compare::verdict::Decision;

impl Plan<'_> {
    /// The build as it comes of each value of the first axis beside that of its base, at the first
    /// level of the others.
    fn questions(&self) -> impl Iterator<Item = [u32; 2]> {
        let values = self.settings.axes.first().map_or(0, |axis| axis.values.len());
        let step = self.variants.len() / values.max(1);
        (1..values).map(move |value| [0, (value * step) as u32])
    }

    /// Variants whose programs differ and hold the same code.
    pub(super) fn same_code(&self, cells: &[CellRecord]) -> Vec<SweepNote> {
        let built = |variant: u32| {
            cells.iter().find(|c| c.cell == Cell { variant, layout: AS_BUILT })?.program.as_ref()
        };
        let look = |[a, b]: [u32; 2]| {
            let [first, second] = [built(a)?, built(b)?];
            let same = (first != second).then(|| same_code(first, second)).flatten()?;
            let [a, b] = [a, b].map(|v| self.variants[v as usize].label());
            Some(SweepNote::SameCode { a, b, functions: same.functions, moved: same.moved })
        };
        self.questions().filter_map(look).collect()
    }

    /// Variants that differ in time and not in the code that takes it; asks only where there is a
    /// difference, and no earlier answer.
    pub(super) fn same_hot_code(
        &self,
        result: &SweepReport,
        ready: &[Ready],
        interrupt: &AtomicBool,
    ) -> Vec<SweepNote> {
        let mut notes = Vec::new();
        for ([a, b], comparison) in self.questions().zip(&result.comparisons) {
            let find =
                |variant| ready.iter().find(|r| r.cell == Cell { variant, layout: AS_BUILT });
            let (Some(first), Some(second)) = (find(a), find(b)) else { continue };
            let print = |one: &Ready| {
                let record = result.cells.iter().find(|c| c.cell == one.cell);
                record.map(|c| c.fingerprint.clone())
            };
            let differs = matches!(comparison.decision, Decision::Slower | Decision::Faster)
                || comparison.source == Source::Placement;
            let one_program = first.program == second.program || print(first) == print(second);
            if !differs || one_program {
                continue;
            }
            let launches = [self.launch(first, 0), self.launch(second, 0)];
            let found = sample_hot_code([&launches[0], &launches[1]], &self.limits(interrupt));
            notes.extend(found.map(|same| {
                let [a, b] = [a, b].map(|v| self.variants[v as usize].label());
                SweepNote::SameHotCode { a, b, same }
            }));
        }
        notes
    }
}
