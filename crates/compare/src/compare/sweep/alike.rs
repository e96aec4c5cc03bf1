//! Which variants are the same: byte for byte, or in all of their code, or in all that is hot.

use std::sync::atomic::AtomicBool;

use super::Cell;
use super::build::fingerprint_of;
use super::report::{CellRecord, SweepNote, SweepReport};
use super::run::{Plan, Ready};
use crate::compare::identical::{same_code, sample_hot_code};
use crate::compare::layouts::{AS_BUILT, Source};
use crate::compare::verdict::Decision;
use crate::run::child::resolve_program;

impl Plan<'_> {
    /// The build as it comes of each value of the first axis beside that of its base, at the first
    /// level of the others.
    fn questions(&self) -> impl Iterator<Item = [u32; 2]> {
        let values = self.settings.axes.first().map_or(0, |axis| axis.values.len());
        let step = self.variants.len() / values.max(1);
        (1..values).map(move |value| [0, (value * step) as u32])
    }

    /// Variants of the first axis that run the same bytes with the same arguments as their base.
    pub(super) fn identical(&self, cells: &[CellRecord]) -> Vec<[u32; 2]> {
        let values = self.settings.axes.first().map_or(1, |axis| axis.values.len());
        let levels = (self.variants.len() / values.max(1)) as u32;
        let pairs = (levels..self.variants.len() as u32).map(|v| [v % levels, v]);
        pairs.filter(|pair| self.run_alike(*pair, cells)).collect()
    }

    fn run_alike(&self, pair: [u32; 2], cells: &[CellRecord]) -> bool {
        let built = pair.map(|variant| Cell { variant, layout: AS_BUILT });
        let record = |cell: Cell| cells.iter().find(|c| c.cell == cell && c.failure.is_none());
        let ([Some(a), Some(b)], [Ok(first), Ok(second)]) =
            (built.map(record), built.map(|cell| self.run_words(cell, "")))
        else {
            return false;
        };
        let print = |name: &String| {
            let program = resolve_program(name.as_ref()).ok()?;
            fingerprint_of(&program).ok()
        };
        let started_alike = first[0] == second[0]
            || print(&first[0]).is_some_and(|a| print(&second[0]).is_some_and(|b| a == b));
        (a.program_bytes, &a.fingerprint) == (b.program_bytes, &b.fingerprint)
            && first[1..] == second[1..]
            && started_alike
    }

    /// Variants whose programs differ and hold the same code.
    pub(super) fn same_code(&self, cells: &[CellRecord], identical: &[[u32; 2]]) -> Vec<SweepNote> {
        let built = |variant: u32| {
            cells.iter().find(|c| c.cell == Cell { variant, layout: AS_BUILT })?.program.as_ref()
        };
        let look = |[a, b]: [u32; 2]| {
            let [first, second] = [built(a)?, built(b)?];
            let same = (first != second).then(|| same_code(first, second)).flatten()?;
            let [a, b] = [a, b].map(|v| self.variants[v as usize].label());
            Some(SweepNote::SameCode { a, b, functions: same.functions, moved: same.moved })
        };
        self.questions().filter(|pair| !identical.contains(pair)).filter_map(look).collect()
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
            let differs = matches!(comparison.decision, Decision::Slower | Decision::Faster)
                || comparison.source == Source::Placement;
            let one_program = first.program == second.program
                || fingerprint_of(&first.program).ok() == fingerprint_of(&second.program).ok();
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
