//! The screen of `layout`: what moved and why first, then the sets.

use stallscope::layout::{
    BuildSummary, Change, ChangeCounts, HeatSummary, LayoutReport, STRIDES_BYTES, SetChange,
    SetReport, SetRow, ShiftCause, ShiftMap, ShiftOutcome, ShiftRun, WhatIf,
};
use stallscope::machine::Microarchitecture;

use super::heatmap::heatmap;
use super::placement;
use crate::commands::site::{clip, short_name};
use crate::terminal::{CAUTION, FAINT, STRONG, paint, width, wrap};

const MOST_OCCUPANTS: usize = 5;

/// The whole screen; at most `most` rows in each table.
pub fn screen(report: &LayoutReport, most: usize) -> String {
    let mut out = bottom_line(report).map_or(String::new(), |line| wrap("", &line));
    if let Some(map) = &report.shift {
        out += &shift(map, most);
    }
    if let Some(build) = &report.build {
        out += &program("BUILD", build);
        out += &aligned(&[build]);
    }
    if let Some(sets) = &report.sets {
        out += &set_tables(report, sets, most);
    } else {
        out += &wrap(
            "next     ",
            "which cache sets became crowded takes samples: add the arguments to run with behind \
             --, or --samples FILE for each program",
        );
    }
    out
}

/// What moved and why, or what is hot where, in one sentence.
fn bottom_line(report: &LayoutReport) -> Option<String> {
    let overfull = |sets: &SetReport| {
        let counts: Vec<String> =
            sets.heat.iter().map(|heat| heat.overfull_sets.to_string()).collect();
        format!("sets with more lines than ways: {}", counts.join(" -> "))
    };
    let sets = report.sets.as_ref().map(overfull);
    let moved = report.shift.as_ref().map(|map| {
        let why = pushed(&map.runs).first().map(|(_, cause)| cause_words(cause));
        let why = why.map(|why| format!(" (most of all: {why})")).unwrap_or_default();
        let ChangeCounts { moved, changed, new, gone, .. } = map.counts;
        format!("{moved} functions moved{why}, {changed} changed, {new} are new, {gone} gone")
    });
    match (moved, sets) {
        (Some(moved), Some(sets)) => Some(format!("{moved}; {sets}")),
        (moved, sets) => moved.or(sets),
    }
}

fn program(label: &str, build: &BuildSummary) -> String {
    let mut out = format!("{:<8} {}\n", paint(STRONG, format!("{label:<8}")), build.program);
    out += &paint(
        FAINT,
        format!("         {} functions, {} bytes of code\n", build.functions, build.code_bytes),
    );
    out
}

fn shift(map: &ShiftMap, most: usize) -> String {
    let counts = map.counts;
    let mut out = program("BEFORE", &map.before) + &program("AFTER", &map.after);
    for warning in &map.warnings {
        out += &paint(CAUTION, wrap("warning  ", warning));
    }
    out += &format!(
        "code     {} the same, {} moved, {} changed, {} new, {} gone\n\n",
        counts.same, counts.moved, counts.changed, counts.new, counts.gone
    );
    out += &paint(STRONG, "shift       functions  changed  code bytes   mod 16   32   64  4096\n");
    for row in map.shifts.iter().take(most) {
        let [a, b, c, d] = row.remainders_bytes;
        out += &format!(
            "{:<+11} {:>9}  {:>7}  {:>10}   {a:>6}  {b:>3}  {c:>3}  {d:>4}\n",
            row.by_bytes, row.functions, row.changed, row.code_bytes
        );
    }
    out += &left_out(map.shifts.len(), most, "distance", "distances");
    out.push('\n');
    out += &causes(&map.runs, most);
    out + &aligned(&[&map.before, &map.after])
}

/// The runs that something pushed, largest first.
fn pushed(runs: &[ShiftRun]) -> Vec<(&ShiftRun, &ShiftCause)> {
    let mut pushed: Vec<_> =
        runs.iter().filter_map(|run| Some((run, run.cause.as_ref()?))).collect();
    pushed.sort_by_key(|(run, _)| std::cmp::Reverse(run.functions));
    pushed
}

/// The largest of them.
fn causes(runs: &[ShiftRun], most: usize) -> String {
    let pushed = pushed(runs);
    let mut out = String::new();
    for (run, cause) in pushed.iter().take(most.min(5)) {
        let names = match run.functions {
            1 => format!("1 function, {}", short_name(&run.first)),
            n => format!("{n} functions, {} to {}", short_name(&run.first), short_name(&run.last)),
        };
        let text = format!("{names}: {}", cause_words(cause));
        out += &wrap(&format!("{:<+8} ", run.by_bytes), &text);
    }
    out + &left_out(pushed.len(), most.min(5), "run", "runs")
}

/// What pushed a run, in words.
pub fn cause_words(cause: &ShiftCause) -> String {
    match cause {
        ShiftCause::Sizes { function, change, grew_bytes, others } => {
            let name = short_name(function);
            let first = match change {
                Change::New => format!("{name} is new ({grew_bytes} bytes)"),
                Change::Gone => format!("{name} is gone ({} bytes)", grew_bytes.unsigned_abs()),
                _ if *grew_bytes > 0 => format!("{name} grew by {grew_bytes} bytes"),
                _ => format!("{name} shrank by {} bytes", grew_bytes.unsigned_abs()),
            };
            match others {
                0 => format!("{first} in front of it"),
                1 => format!("{first} in front of it, and one more function"),
                n => format!("{first} in front of it, and {n} more functions"),
            }
        }
        ShiftCause::Order => "the functions stand in another order".to_owned(),
        ShiftCause::Padding => {
            "no function in front of it has another size: padding, or the start of the code, moved"
                .to_owned()
        }
    }
}

fn aligned(builds: &[&BuildSummary]) -> String {
    let cells: Vec<String> = STRIDES_BYTES
        .iter()
        .enumerate()
        .map(|(i, stride)| {
            let counts: Vec<String> =
                builds.iter().map(|b| b.aligned_functions[i].to_string()).collect();
            format!("{stride}: {}", counts.join(" -> "))
        })
        .collect();
    wrap("aligned  ", &format!("functions that start at a multiple of {}", cells.join(", ")))
}

fn set_tables(report: &LayoutReport, sets: &SetReport, most: usize) -> String {
    let g = sets.geometry;
    let mut out = format!(
        "\n{}\n",
        paint(
            STRONG,
            format!(
                "instruction cache: {} sets, {} ways, {}-byte lines",
                g.sets, g.ways, g.line_bytes
            )
        )
    );
    for (label, heat) in ["before", "after"].iter().zip(&sets.heat) {
        out += &wrap(
            &format!("{:<9}", if sets.heat.len() > 1 { label } else { "samples" }),
            &heat_words(heat),
        );
    }
    out += &heatmap(sets);
    out.push('\n');
    if let Some(function) = &sets.function {
        out += &clip(&format!("function {}", short_name(function)), width());
        out.push('\n');
    }
    let counted = sets.heat.iter().all(|h| h.misses.is_some());
    out += &match (counted, sets.heat.len()) {
        (true, _) => {
            missing_sets(sets, most, report.windows.is_empty()) + &placement::windows(report)
        }
        (false, 1) => hottest_sets(sets, most),
        (false, _) => changed_sets(sets, most),
    };
    for cluster in &sets.clusters {
        let names: Vec<&str> = cluster.functions.iter().take(4).map(|n| short_name(n)).collect();
        let text = format!(
            "{} functions have hot lines {} bytes behind a multiple of {}: {}{}",
            cluster.functions.len(),
            cluster.offset_bytes,
            cluster.modulus_bytes,
            names.join(", "),
            if cluster.functions.len() > 4 { ", …" } else { "" }
        );
        out += &wrap("cluster  ", &text);
    }
    out + &judgement(report, sets)
}

/// What if, the front end, the budget, suggestions, and what a reader must know.
fn judgement(report: &LayoutReport, sets: &SetReport) -> String {
    let mut out = String::new();
    if let Some(what_if) = &sets.what_if {
        out += &wrap("what if  ", &what_if_words(what_if));
    }
    out += &wrap("jumps    ", &jump_words(report));
    out += &placement::front_end(report);
    if let Some(budget) = &report.budget {
        out += &placement::budget(budget, report.windows.is_empty());
    }
    if let Some(found) = &report.suggestions {
        out += &placement::suggestions(found);
    }
    out += &wrap("open     ", what_is_open(sets));
    for note in &sets.notes {
        out += &wrap("note     ", note);
    }
    out
}

fn heat_words(heat: &HeatSummary) -> String {
    let (what, lines) = match heat.is_complete {
        true => ("instructions", "in use"),
        false => ("samples", "sampled"),
    };
    let misses = heat.misses.map(|n| format!(", {n} simulated misses")).unwrap_or_default();
    format!(
        "{} {what}, {} lines {lines}{misses} ({}); {} sets with more lines {lines} than ways",
        heat.samples, heat.lines, heat.source, heat.overfull_sets
    )
}

fn what_if_words(what_if: &WhatIf) -> String {
    let function = short_name(&what_if.function);
    let head = format!(
        "fragility {:.0} %: so many of {} shifts of everything from {function} on would give more",
        100.0 * what_if.worse_share,
        what_if.outcomes.len(),
    );
    let range = |of: &dyn Fn(&ShiftOutcome) -> u64| {
        let all = what_if.outcomes.iter().map(of);
        (all.clone().min().unwrap_or(0), all.max().unwrap_or(0))
    };
    if let Some(now) = what_if.now.misses {
        let (least, most) = range(&|o| o.misses.unwrap_or(0));
        return format!(
            "{head} simulated misses in the window than the {now} of now; from {least} to {most}"
        );
    }
    let (least, most) = range(&|o| u64::from(o.excess_lines));
    let bound =
        if what_if.is_complete { "" } else { "; with samples all of these are lower bounds" };
    format!(
        "{head} lines beyond the ways of their sets than the {} of now; from {least} to {most}{bound}",
        what_if.now.excess_lines
    )
}

/// Jumps at 32-byte boundaries, and whether that can cost anything here.
fn jump_words(report: &LayoutReport) -> String {
    let jumps = report.front_end.iter().map(|f| f.jumps);
    let words = jumps.map(|jumps| match (jumps.executed, jumps.executed_on_boundary) {
        (Some(all), Some(some)) => format!("{some} of {all} executed ({:.1} %)", share(some, all)),
        _ => {
            let (some, all) = (jumps.on_boundary, jumps.jumps);
            format!("{some} of {all} ({:.1} %)", share(some, all))
        }
    });
    let shares: Vec<String> = words.collect();
    let here = erratum_words(report.design, report.jump_erratum);
    format!("that cross or end at a 32-byte boundary: {}; {here}", shares.join(" -> "))
}

fn erratum_words(design: Microarchitecture, erratum: bool) -> String {
    let name = match design {
        Microarchitecture::Unknown => "this processor".to_owned(),
        design => design.to_string(),
    };
    match (design, erratum) {
        (_, true) => format!("{name} has the erratum that makes each of them decode anew"),
        (Microarchitecture::Unknown, false) => {
            format!("{name} is not known to have the erratum that makes them slow")
        }
        _ => format!(
            "{name} does not have the erratum that makes them slow: no cause of a difference there"
        ),
    }
}

fn share(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

fn what_is_open(sets: &SetReport) -> &'static str {
    if sets.heat.iter().all(|h| h.is_complete) {
        "misses are those of a model without prefetching; what one costs depends on what the \
         processor does meanwhile: from nothing to the whole latency of the next cache"
    } else {
        "samples show where time goes, not which lines are in use: lines that run once per \
         operation are missing here, and whether a set really thrashes, and what that costs, is \
         not known from samples"
    }
}

/// Sets by the growth of their simulated misses, or by their misses.
fn missing_sets(sets: &SetReport, most: usize, with_occupants: bool) -> String {
    let two = sets.heat.len() > 1;
    let misses = |row: &SetRow| {
        let [before, after] = [row.before.misses, row.after.misses].map(|m| m.unwrap_or(0) as i64);
        if two { after - before } else { after }
    };
    let mut rows: Vec<&SetRow> = sets.sets.iter().filter(|row| misses(row) != 0).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(misses(row)));
    let total = rows.len();
    rows.truncate(most);
    let ways = sets.geometry.ways;
    let mut out = String::new();
    if rows.is_empty() {
        return "no set misses in the simulated cache\n".to_owned();
    }
    if two {
        out += &paint(STRONG, "set      misses before       after      growth   lines, ways\n");
    } else {
        out += &paint(STRONG, "set      misses   lines, ways\n");
    }
    for row in &rows {
        let [before, after] = [row.before.misses, row.after.misses].map(|m| m.unwrap_or(0));
        out += &if two {
            let lines = format!("{} -> {}, {ways}", row.before.lines, row.after.lines);
            format!("{:<3} {before:>18} {after:>11} {:>+11}   {lines}\n", row.set, misses(row))
        } else {
            format!("{:<3} {after:>11}   {}, {ways}\n", row.set, row.after.lines)
        };
    }
    out += &left_out(total, most, "set", "sets");
    for row in rows.iter().take(3).filter(|_| with_occupants) {
        out += &occupants(row);
    }
    out + "\n"
}

/// What became of a set, in words; nothing where nothing did.
pub fn change_words(change: SetChange) -> &'static str {
    if change == SetChange::Unchanged { "" } else { change.words() }
}

fn changed_sets(sets: &SetReport, most: usize) -> String {
    let mut changed: Vec<&SetRow> =
        sets.sets.iter().filter(|row| row.change != SetChange::Unchanged).collect();
    if changed.is_empty() {
        return "no set became clearly more or less crowded\n".to_owned();
    }
    changed
        .sort_by_key(|row| (row.change, std::cmp::Reverse(row.after.function + row.after.peers)));
    let total = changed.len();
    changed.truncate(most);
    let [before, after] = ["before: function + peers", "after: function + peers"];
    let mut out =
        paint(STRONG, format!("set  {before:>25}  {after:>25}  {:<6}  change\n", "lines"));
    for row in &changed {
        out += &format!(
            "{:<3}  {:>13} + {:>9}  {:>13} + {:>9}  {:>2}->{:<2}  {}\n",
            row.set,
            row.before.function,
            row.before.peers,
            row.after.function,
            row.after.peers,
            row.before.lines,
            row.after.lines,
            change_words(row.change).trim_end_matches(" collision"),
        );
    }
    out += &left_out(total, most, "set", "sets");
    for row in changed.iter().filter(|r| r.change < SetChange::CalmedDown).take(3) {
        out += &occupants(row);
    }
    out + "\n"
}

fn hottest_sets(sets: &SetReport, most: usize) -> String {
    let mut rows: Vec<&SetRow> = sets.sets.iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.after.lines));
    let mut out = paint(STRONG, "set         function +      peers   sampled lines\n");
    for row in rows.iter().take(most) {
        out += &format!(
            "{:<3}  {:>15} + {:>10}   {:>13}\n",
            row.set, row.after.function, row.after.peers, row.after.lines
        );
    }
    if let Some(row) = rows.first() {
        out += &occupants(row);
    }
    out
}

fn occupants(row: &SetRow) -> String {
    let mut out = String::new();
    let all = [&row.occupants_after, &row.occupants_before].into_iter().find(|o| !o.is_empty());
    let all = all.map(Vec::as_slice).unwrap_or_default();
    let misses = if all.iter().any(|o| o.misses.is_some()) { "   misses " } else { "" };
    out += &paint(FAINT, format!("\nset {:<3}{misses}      heat  line\n", row.set));
    for o in all.iter().take(MOST_OCCUPANTS) {
        let name = o.function.as_deref().map_or("(no function)", short_name);
        let misses = o.misses.map(|n| format!("{n:>9} ")).unwrap_or_default();
        let line = format!("{misses}{:>11}  {}  {name}+{:#x}", o.samples, o.line, o.offset_bytes);
        out += &clip(&line, width());
        out.push('\n');
    }
    let more = all.len().saturating_sub(MOST_OCCUPANTS);
    if more > 0 {
        out += &paint(FAINT, format!("           and {more} more lines\n"));
    }
    out
}

fn left_out(total: usize, most: usize, one: &str, many: &str) -> String {
    match total.saturating_sub(most) {
        0 => String::new(),
        1 => paint(FAINT, format!("and one more {one} (--json and --csv have all)\n")),
        n => paint(FAINT, format!("and {n} more {many} (--json and --csv have all)\n")),
    }
}
