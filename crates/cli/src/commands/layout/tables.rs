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

/// A row of whatever can be shown.
macro_rules! cells {
    ($($cell:expr),* $(,)?) => { vec![$($cell.to_string()),*] };
}

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

fn table(header: &str, rows: impl IntoIterator<Item = Vec<String>>) -> Table {
    std::iter::once(header.split(' ').map(str::to_owned).collect()).chain(rows).collect()
}

fn or_empty(value: Option<impl ToString>) -> String {
    value.map(|v| v.to_string()).unwrap_or_default()
}

fn shifts(map: &ShiftMap) -> Table {
    let rows = map.shifts.iter().map(|s| {
        let mut row = cells![s.by_bytes, s.functions, s.changed, s.code_bytes];
        row.extend(s.remainders_bytes.map(|r| r.to_string()));
        row
    });
    let mut table = table("by_bytes functions changed code_bytes", rows);
    table[0].extend(STRIDES_BYTES.map(|s| format!("mod_{s}")));
    table
}

fn runs(map: &ShiftMap) -> Table {
    let rows = map.runs.iter().map(|run| {
        let cause = run.cause.as_ref().map(super::screen::cause_words);
        cells![run.by_bytes, run.functions, run.first, run.last, or_empty(cause)]
    });
    table("by_bytes functions first last cause", rows)
}

fn functions(map: &ShiftMap) -> Table {
    let rows = map.functions.iter().map(|f| {
        let change = match f.change {
            Change::Same => "same",
            Change::Moved { .. } => "moved",
            Change::Changed => "changed",
            Change::New => "new",
            Change::Gone => "gone",
        };
        let moved = f.before.zip(f.after).map(|(b, a)| a.start.0.wrapping_sub(b.start.0) as i64);
        let mut row = cells![f.name, change, or_empty(moved)];
        row.extend(placement(f.before.as_ref()));
        row.extend(placement(f.after.as_ref()));
        row
    });
    let mut table = table("name change moved_by_bytes", rows);
    for arm in BUILDS {
        table[0].extend([format!("{arm}_start"), format!("{arm}_size_bytes")]);
        table[0].extend(STRIDES_BYTES.map(|s| format!("{arm}_mod_{s}")));
    }
    table
}

fn placement(place: Option<&Placement>) -> Vec<String> {
    let Some(place) = place else { return vec![String::new(); 2 + STRIDES_BYTES.len()] };
    let mut cells = cells![place.start, place.size_bytes];
    cells.extend(place.remainders_bytes.map(|r| r.to_string()));
    cells
}

fn set_heat(sets: &SetReport) -> Table {
    let rows = sets.sets.iter().map(|s| {
        let mut row = cells![s.set];
        for heat in [s.before, s.after] {
            row.extend(cells![heat.function, heat.peers, heat.lines, or_empty(heat.misses)]);
        }
        row.push(super::screen::change_words(s.change).to_owned());
        row
    });
    table(
        "set before_function before_peers before_lines before_misses after_function after_peers \
         after_lines after_misses change",
        rows,
    )
}

fn occupants(sets: &SetReport) -> Table {
    let rows = sets.sets.iter().flat_map(|s| {
        let before = s.occupants_before.iter().map(|o| ("before", o));
        let after = s.occupants_after.iter().map(|o| ("after", o));
        before.chain(after).map(|(build, o)| {
            let function = or_empty(o.function.as_ref());
            cells![build, s.set, o.line, o.samples, or_empty(o.misses), function, o.offset_bytes]
        })
    });
    table("build set line samples misses function offset_bytes", rows)
}

const BUILDS: [&str; 2] = ["before", "after"];

fn fighters(report: &LayoutReport) -> Table {
    let sets = BUILDS.iter().zip(&report.windows);
    let sets = sets.flat_map(|(build, window)| window.overfull.iter().map(move |s| (build, s)));
    let rows = sets.flat_map(|(build, set)| {
        set.residents.iter().map(move |resident| {
            let first = resident.evicts.first();
            cells![
                build,
                set.set,
                set.lines,
                or_empty(resident.line),
                resident.function,
                resident.offset_bytes,
                resident.misses,
                or_empty(first.map(|r| format!("{}+{:#x}", r.function, r.offset_bytes))),
                or_empty(first.map(|r| r.count)),
            ]
        })
    });
    table("build set lines line function offset_bytes misses evicts evictions", rows)
}

fn jumps(report: &LayoutReport) -> Table {
    let rows = BUILDS.iter().zip(&report.front_end).flat_map(|(build, front_end)| {
        let jumps = front_end.boundary_jumps.iter();
        jumps.map(move |j| cells![build, j.function, j.offset_bytes, j.executions])
    });
    table("build function offset_bytes executions", rows)
}

fn loops(report: &LayoutReport) -> Table {
    let rows = BUILDS.iter().zip(&report.front_end).flat_map(|(build, front_end)| {
        front_end.loops.iter().map(move |l| {
            let place = cells![build, l.function, l.offset_bytes, l.size_bytes];
            [place, cells![l.windows, l.needed, l.turns]].concat()
        })
    });
    table("build function offset_bytes size_bytes windows needed turns", rows)
}

fn effects(budget: &Budget) -> Table {
    let rows = budget.effects.iter().map(|effect| {
        let ([b, b_other], [a, a_other]) = (effect.count.before, effect.count.after);
        let [least, most] = effect.added_cycles;
        let mut row = cells![effect.count.kind.events(), b, b_other, a, a_other, least, most];
        row.extend(effect.paid_share.map(|s| s.map(|x| x.to_string())).unwrap_or_default());
        row
    });
    table(
        "effect before before_other_model after after_other_model least_cycles most_cycles \
         least_share most_share",
        rows,
    )
}

fn suggestions(found: &Suggestions) -> Table {
    let rows = found.options.iter().map(|s| {
        let warning = or_empty(s.warning.as_ref());
        cells![s.option, s.misses_per_operation, s.boundary_jumps_per_operation, warning]
    });
    table("option misses_per_operation boundary_jumps_per_operation warning", rows)
}

fn what_ifs(what_if: &WhatIf) -> Table {
    let rows = what_if.outcomes.iter();
    let rows =
        rows.map(|o| cells![o.by_bytes, o.overfull_sets, o.excess_lines, or_empty(o.misses)]);
    table("by_bytes overfull_sets excess_lines misses", rows)
}
