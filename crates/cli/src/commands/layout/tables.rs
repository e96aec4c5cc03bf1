//! Every table of `layout` as a file of comma-separated values.

use std::path::Path;

use anyhow::Context as _;
use stallscope::layout::{
    Budget, Change, LayoutReport, Placement, STRIDES_BYTES, SetReport, ShiftMap, Suggestions,
    WhatIf,
};
use stallscope::report;

/// Rows of text cells; the first is the header.
type Table = Vec<Vec<String>>;

/// Writes `shifts.csv`, `runs.csv`, `functions.csv`, `sets.csv`, `occupants.csv`, `fighters.csv`,
/// `jumps.csv`, `loops.csv`, `budget.csv`, `suggestions.csv` and `what-if.csv`, as far as there is
/// something to write.
///
/// # Errors
/// When the folder or a file cannot be written.
pub fn write(folder: &Path, report: &LayoutReport) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let mut tables: Vec<(&str, Table)> = Vec::new();
    if let Some(map) = &report.shift {
        tables.push(("shifts", shifts(map)));
        tables.push(("runs", runs(map)));
        tables.push(("functions", functions(map)));
    }
    if let Some(sets) = &report.sets {
        tables.push(("sets", set_heat(sets)));
        tables.push(("occupants", occupants(sets)));
        if !report.windows.is_empty() {
            tables.push(("fighters", fighters(report)));
        }
        if !report.front_end.is_empty() {
            tables.push(("jumps", jumps(report)));
            tables.push(("loops", loops(report)));
        }
        if let Some(budget) = &report.budget {
            tables.push(("budget", effects(budget)));
        }
        if let Some(found) = &report.suggestions {
            tables.push(("suggestions", suggestions(found)));
        }
        if let Some(what_if) = &sets.what_if {
            tables.push(("what-if", what_ifs(what_if)));
        }
    }
    for (name, table) in tables {
        report::write_file(&folder.join(format!("{name}.csv")), &text(&table)?)?;
    }
    Ok(())
}

fn text(table: &Table) -> anyhow::Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in table {
        writer.write_record(row)?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

fn shifts(map: &ShiftMap) -> Table {
    let mut table = vec![row(["by_bytes", "functions", "changed", "code_bytes"])];
    table[0].extend(STRIDES_BYTES.map(|s| format!("mod_{s}")));
    for shift in &map.shifts {
        let mut cells = vec![
            shift.by_bytes.to_string(),
            shift.functions.to_string(),
            shift.changed.to_string(),
            shift.code_bytes.to_string(),
        ];
        cells.extend(shift.remainders_bytes.map(|r| r.to_string()));
        table.push(cells);
    }
    table
}

fn runs(map: &ShiftMap) -> Table {
    let mut table = vec![row(["by_bytes", "functions", "first", "last", "cause"])];
    for run in &map.runs {
        let cause = run.cause.as_ref().map(super::screen::cause_words).unwrap_or_default();
        table.push(vec![
            run.by_bytes.to_string(),
            run.functions.to_string(),
            run.first.clone(),
            run.last.clone(),
            cause,
        ]);
    }
    table
}

fn functions(map: &ShiftMap) -> Table {
    let mut table = vec![row(["name", "change", "moved_by_bytes"])];
    for arm in ["before", "after"] {
        table[0].extend([format!("{arm}_start"), format!("{arm}_size_bytes")]);
        table[0].extend(STRIDES_BYTES.map(|s| format!("{arm}_mod_{s}")));
    }
    for f in &map.functions {
        let change = match f.change {
            Change::Same => "same",
            Change::Moved { .. } => "moved",
            Change::Changed => "changed",
            Change::New => "new",
            Change::Gone => "gone",
        };
        let moved = f.before.zip(f.after).map(|(b, a)| a.start.0.wrapping_sub(b.start.0) as i64);
        let moved = moved.map(|by| by.to_string()).unwrap_or_default();
        let mut cells = vec![f.name.clone(), change.to_owned(), moved];
        cells.extend(placement(f.before.as_ref()));
        cells.extend(placement(f.after.as_ref()));
        table.push(cells);
    }
    table
}

fn placement(place: Option<&Placement>) -> Vec<String> {
    let Some(place) = place else { return vec![String::new(); 2 + STRIDES_BYTES.len()] };
    let mut cells = vec![place.start.to_string(), place.size_bytes.to_string()];
    cells.extend(place.remainders_bytes.map(|r| r.to_string()));
    cells
}

fn set_heat(sets: &SetReport) -> Table {
    let mut table = vec![row([
        "set",
        "before_function",
        "before_peers",
        "before_lines",
        "before_misses",
        "after_function",
        "after_peers",
        "after_lines",
        "after_misses",
        "change",
    ])];
    for s in &sets.sets {
        let mut cells = vec![s.set.to_string()];
        for heat in [s.before, s.after] {
            cells.extend([
                heat.function.to_string(),
                heat.peers.to_string(),
                heat.lines.to_string(),
                heat.misses.map(|n| n.to_string()).unwrap_or_default(),
            ]);
        }
        cells.push(super::screen::change_words(s.change).to_owned());
        table.push(cells);
    }
    table
}

fn occupants(sets: &SetReport) -> Table {
    let mut table =
        vec![row(["build", "set", "line", "samples", "misses", "function", "offset_bytes"])];
    for s in &sets.sets {
        let before = s.occupants_before.iter().map(|o| ("before", o));
        let after = s.occupants_after.iter().map(|o| ("after", o));
        for (build, o) in before.chain(after) {
            table.push(vec![
                build.to_owned(),
                s.set.to_string(),
                o.line.to_string(),
                o.samples.to_string(),
                o.misses.map(|n| n.to_string()).unwrap_or_default(),
                o.function.clone().unwrap_or_default(),
                o.offset_bytes.to_string(),
            ]);
        }
    }
    table
}

const BUILDS: [&str; 2] = ["before", "after"];

fn fighters(report: &LayoutReport) -> Table {
    let mut table = vec![row([
        "build",
        "set",
        "lines",
        "line",
        "function",
        "offset_bytes",
        "misses",
        "evicts",
        "evictions",
    ])];
    for (build, window) in BUILDS.iter().zip(&report.windows) {
        for set in &window.overfull {
            for resident in &set.residents {
                let first = resident.evicts.first();
                table.push(vec![
                    (*build).to_owned(),
                    set.set.to_string(),
                    set.lines.to_string(),
                    resident.line.map(|l| l.to_string()).unwrap_or_default(),
                    resident.function.clone(),
                    resident.offset_bytes.to_string(),
                    resident.misses.to_string(),
                    first
                        .map(|r| format!("{}+{:#x}", r.function, r.offset_bytes))
                        .unwrap_or_default(),
                    first.map(|r| r.count.to_string()).unwrap_or_default(),
                ]);
            }
        }
    }
    table
}

fn jumps(report: &LayoutReport) -> Table {
    let mut table = vec![row(["build", "function", "offset_bytes", "executions"])];
    for (build, front_end) in BUILDS.iter().zip(&report.front_end) {
        for jump in &front_end.boundary_jumps {
            table.push(vec![
                (*build).to_owned(),
                jump.function.clone(),
                jump.offset_bytes.to_string(),
                jump.executions.to_string(),
            ]);
        }
    }
    table
}

fn loops(report: &LayoutReport) -> Table {
    let mut table = vec![row([
        "build",
        "function",
        "offset_bytes",
        "size_bytes",
        "windows",
        "needed",
        "turns",
    ])];
    for (build, front_end) in BUILDS.iter().zip(&report.front_end) {
        for spread in &front_end.loops {
            table.push(vec![
                (*build).to_owned(),
                spread.function.clone(),
                spread.offset_bytes.to_string(),
                spread.size_bytes.to_string(),
                spread.windows.to_string(),
                spread.needed.to_string(),
                spread.turns.to_string(),
            ]);
        }
    }
    table
}

fn effects(budget: &Budget) -> Table {
    let mut table = vec![row([
        "effect",
        "before",
        "before_other_model",
        "after",
        "after_other_model",
        "least_cycles",
        "most_cycles",
        "least_share",
        "most_share",
    ])];
    for effect in &budget.effects {
        let [least, most] = effect.added_cycles;
        let shares = effect.paid_share.map(|s| s.map(|x| x.to_string())).unwrap_or_default();
        let mut cells = vec![
            effect.count.kind.events().to_owned(),
            effect.count.before[0].to_string(),
            effect.count.before[1].to_string(),
            effect.count.after[0].to_string(),
            effect.count.after[1].to_string(),
            least.to_string(),
            most.to_string(),
        ];
        cells.extend(shares);
        table.push(cells);
    }
    table
}

fn suggestions(found: &Suggestions) -> Table {
    let mut table =
        vec![row(["option", "misses_per_operation", "boundary_jumps_per_operation", "warning"])];
    for s in &found.options {
        table.push(vec![
            s.option.clone(),
            s.misses_per_operation.to_string(),
            s.boundary_jumps_per_operation.to_string(),
            s.warning.clone().unwrap_or_default(),
        ]);
    }
    table
}

fn what_ifs(what_if: &WhatIf) -> Table {
    let mut table = vec![row(["by_bytes", "overfull_sets", "excess_lines", "misses"])];
    for o in &what_if.outcomes {
        table.push(vec![
            o.by_bytes.to_string(),
            o.overfull_sets.to_string(),
            o.excess_lines.to_string(),
            o.misses.map(|n| n.to_string()).unwrap_or_default(),
        ]);
    }
    table
}
