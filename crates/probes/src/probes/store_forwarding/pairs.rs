//! Prices of blocked loads by kind, out of the measured cells.

use super::case::{Case, Group, Registers};
use super::classify::Class;
use super::report::{CellReport, range};
use crate::machine::{PairKind, PairPrice, RegisterFile};

/// One price for each kind of which a cell was blocked, by kind.
pub(super) fn prices(cells: &[CellReport]) -> Vec<PairPrice> {
    let blocked = |c: &&CellReport| {
        c.class == Class::Blocked && matches!(c.case.group, Group::Matrix | Group::Several)
    };
    let mut of_kind: Vec<(PairKind, &CellReport)> =
        cells.iter().filter(blocked).filter_map(|c| Some((kind(&c.case)?, c))).collect();
    of_kind.sort_by_key(|(kind, _)| *kind);
    of_kind
        .chunk_by(|a, b| a.0 == b.0)
        .filter_map(|cells| {
            // Widths that both processes measured count where the machine is not yet that wide.
            let narrow = |c: &&CellReport| c.case.registers != Registers::Wide;
            let all = || cells.iter().map(|(_, cell)| *cell);
            let cycles = range(all().filter(narrow)).or_else(|| range(all()))?;
            Some(PairPrice { kind: cells[0].0, cycles })
        })
        .collect()
}

fn kind(case: &Case) -> Option<PairKind> {
    let file = |vector| if vector { RegisterFile::Vector } else { RegisterFile::General };
    Some(PairKind {
        store_bytes: case.stores.last()?.bytes,
        store: file(case.registers.stores_vectors()),
        load_bytes: case.load.bytes,
        load: file(case.registers.loads_vectors()),
    })
}
