//! The screen of the probe `core`.

use stallscope::machine::{CoreCost, FalseDependency, OpClass};
use stallscope::probes::CoreReport;
use stallscope::probes::core::{CLASSES, CoreRow, FENCES};

use super::page::Page;

/// The page of `core`: latencies and intervals by class, then what is no operation.
pub fn screen(report: &CoreReport) -> String {
    let mut page = Page::default();
    page.head(&report.protocol);
    page.blank();
    page.text += &format!(
        "{:<26}{:>27}{:>27}\n",
        "core cycles (by the table)", "from operand to result", "from one to the next"
    );
    let find = |cost: CoreCost| report.rows.iter().find(|row| row.cost == cost);
    for class in CLASSES.into_iter().chain(FENCES) {
        let [latency, interval] = [CoreCost::Latency(class), CoreCost::Interval(class)].map(find);
        page.text +=
            &format!("{:<26}{:>27}{:>27}\n", class_words(class), cell(latency), cell(interval));
    }
    page.blank();
    let held = CoreCost::SameDestination;
    let others = [
        ("one operation to the next, while renaming", CoreCost::Dispatch),
        ("one load to the next", CoreCost::Load),
        ("one vector load to the next", CoreCost::VectorLoad),
        ("one store to the next, 32 lines", CoreCost::Commit),
        ("one store to the next, four lines in turn", CoreCost::CombinedCommit),
        ("one load across two lines to the next", CoreCost::SplitLoad),
        ("one store across two lines to the next", CoreCost::SplitStore),
        ("one store across two pages to the next", CoreCost::PageSplitStore),
        ("load, from address to value", CoreCost::LoadLatency),
        ("load across two lines, from address to value", CoreCost::SplitLoadLatency),
        ("load across two pages, from address to value", CoreCost::PageSplitLoadLatency),
        ("load beside a store to its place in another page", CoreCost::AliasedLoad),
        ("stored value to that of a load, named alike", CoreCost::SameName),
        ("the same, named by another register", CoreCost::SameStore),
        ("atomic operation, of a chain through later loads", CoreCost::LockedWait),
        ("the same to the next, 40 additions between", CoreCost::LockedApart),
        ("addition of a constant, 64 bits, in a chain", CoreCost::AddConstant),
        ("upper halves of vectors, put away or brought back", CoreCost::UpperHalves),
        ("conversions to one register, one to the next", held(FalseDependency::Conversion)),
        ("roundings to one register", held(FalseDependency::Rounding)),
        ("square roots to one register", held(FalseDependency::Root)),
        ("popcnt to one register", held(FalseDependency::BitCount)),
        ("tzcnt to one register", held(FalseDependency::ZeroCount)),
        ("vpermd to one register", held(FalseDependency::Permutation)),
        ("mispredicted branch, resolved to dispatched", CoreCost::Misprediction),
    ];
    for (words, cost) in others {
        page.text += &format!("{words:<53}{:>27}\n", cell(find(cost)));
    }
    page.blank();
    page.trust(&report.protocol);
    page.text
}

fn cell(row: Option<&CoreRow>) -> String {
    let Some(row) = row else { return "-".to_owned() };
    let tabled = (row.tabled_cycles * 100.0).round() / 100.0;
    match &row.cycles {
        Some(m) => format!("{:.2} [{:.2}, {:.2}] ({tabled})", m.value, m.low, m.high),
        None => format!("too few clean samples ({tabled})"),
    }
}

fn class_words(class: OpClass) -> &'static str {
    match class {
        OpClass::Renamed => "no-op or move",
        OpClass::Integer => "addition",
        OpClass::Shift => "shift by a constant",
        OpClass::ShiftByCount => "shift by a register",
        OpClass::SlowAddress => "address of three parts",
        OpClass::Multiply => "multiplication",
        OpClass::BitCount => "bit count or scan",
        OpClass::Divide32 => "division, 32 bits",
        OpClass::Divide64 => "division, 64 bits",
        OpClass::Branch => "branch",
        OpClass::Vector => "vector of integers",
        OpClass::VectorShift => "vector shift",
        OpClass::Shuffle => "shuffle",
        OpClass::VectorMultiply => "vector multiplication",
        OpClass::Cipher => "round of AES",
        OpClass::Digest => "round of SHA",
        OpClass::FloatAdd => "floating addition",
        OpClass::FloatMultiply => "floating multiplication",
        OpClass::FloatDivide32 => "floating division, single",
        OpClass::FloatDivide64 => "floating division, double",
        OpClass::FloatRoot32 => "square root, single",
        OpClass::FloatRoot64 => "square root, double",
        OpClass::Convert => "conversion of format",
        OpClass::ConvertIn => "conversion into vectors",
        OpClass::ConvertAcross => "conversion out of vectors",
        OpClass::CrossIn => "move into vectors",
        OpClass::Cross => "move out of vectors",
        OpClass::Locked => "atomic operation",
        OpClass::Fence => "fence",
        OpClass::LoadFence => "fence for loads",
        OpClass::StoreFence => "fence for stores",
        OpClass::Microcode => "microcode",
    }
}
