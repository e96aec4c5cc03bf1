//! The part of the screen about windows: who fights for a set, the front end, the budget, what if.

use stallscope::layout::{
    Arrangement, Budget, Effect, EffectKind, FrontEnd, LayoutReport, MeasuredDifference, Occupancy,
    OverfullSet, Payment, Suggestions,
};

use crate::commands::site::{clip, short_name};
use crate::terminal::{CAUTION, FAINT, STRONG, paint, width, wrap};

/// Crowded sets whose lines are shown, and lines of each.
const MOST_SETS: usize = 3;
const MOST_LINES: usize = 10;
const MOST_LOOPS: usize = 3;
/// Two names stand on one line.
const NAME_WIDTH: usize = 20;

/// The windows: lines and misses per operation, and the fighters of the worst sets.
pub fn windows(report: &LayoutReport) -> String {
    let Some(sets) = &report.sets else { return String::new() };
    if report.windows.is_empty() {
        return String::new();
    }
    let two = report.windows.len() > 1;
    let labels: &[&str] = if two { &["before", "after"] } else { &["window"] };
    let mut out = String::new();
    for (label, window) in labels.iter().zip(&report.windows) {
        out += &wrap(&format!("{label:<9}"), &window_words(window));
    }
    for (label, window) in labels.iter().zip(&report.windows) {
        for set in window.overfull.iter().take(MOST_SETS) {
            out += &fighters(label, set, sets.geometry.ways);
        }
        let more = window.overfull.len().saturating_sub(MOST_SETS);
        if more > 0 {
            out +=
                &paint(FAINT, format!("and {more} more overfull sets {label} (--json has all)\n"));
        }
    }
    out + "\n"
}

fn window_words(window: &Occupancy) -> String {
    let part = if window.is_whole { "" } else { "; of its beginning only: the rest is too long" };
    format!(
        "{:.1} simulated misses per operation, {} lines, {} sets overfull ({}; {} instructions in {} \
         {}{part})",
        window.misses_per_operation,
        window.lines,
        window.overfull.len(),
        window.source,
        window.instructions,
        window.operations,
        if window.operations == 1 { "operation" } else { "operations" },
    )
}

fn fighters(label: &str, set: &OverfullSet, ways: u32) -> String {
    let head = format!(
        "\nset {:<3} {label}: {} lines, {ways} ways, {} misses\n   misses  line\n",
        set.set, set.lines, set.misses
    );
    let mut out = paint(STRONG, head);
    for resident in set.residents.iter().take(MOST_LINES) {
        let line = resident.line.map(|l| format!("{l}  ")).unwrap_or_default();
        let evicts = resident.evicts.first().map(|evicted| {
            let name = clip(short_name(&evicted.function), NAME_WIDTH);
            format!(" evicts {name}+{:#x}", evicted.offset_bytes)
        });
        let name = clip(short_name(&resident.function), NAME_WIDTH);
        let text = format!(
            "{:>9}  {line}{name}+{:#x}{}",
            resident.misses,
            resident.offset_bytes,
            evicts.unwrap_or_default()
        );
        out += &clip(&text, width());
        out.push('\n');
    }
    let more = set.residents.len().saturating_sub(MOST_LINES);
    if more > 0 {
        out += &paint(FAINT, format!("           and {more} more lines\n"));
    }
    out
}

/// Loops, pages and the cache of decoded instructions.
pub fn front_end(report: &LayoutReport) -> String {
    let each = |of: &dyn Fn(&FrontEnd) -> String| {
        report.front_end.iter().map(of).collect::<Vec<_>>().join(" -> ")
    };
    let Some(last) = report.front_end.last() else { return String::new() };
    let mut out = String::new();
    if let Some(jump) = last.boundary_jumps.first().filter(|_| report.jump_erratum) {
        let name = short_name(&jump.function);
        let text = format!("most often {name}+{:#x}, {}", jump.offset_bytes, jump.executions);
        out += &wrap("         ", &text);
    }
    let counts = each(&|f| f.loops.len().to_string());
    let mut text =
        format!("{counts} hot loops over more {}-byte windows than they need", last.window_bytes);
    let names: Vec<String> = last.loops.iter().take(MOST_LOOPS).map(loop_words).collect();
    if !names.is_empty() {
        text += &format!(": {}", names.join(", "));
    }
    out += &wrap("loops    ", &text);
    out += &wrap("pages    ", &page_words(report, last));
    let decoded = report.front_end.iter().filter_map(|f| f.decoded.as_ref());
    let decoded: Vec<String> = decoded
        .map(|d| {
            let [least, most] = d.overfull_sets;
            let per_operation = bracket(d.misses_per_operation);
            format!("{per_operation} per operation, {least} to {most} sets overfull")
        })
        .collect();
    if !decoded.is_empty() {
        let text = format!("windows decoded anew on {}: {}", report.design, decoded.join(" -> "));
        out += &wrap("decoded  ", &text);
    }
    out
}

/// Pages in use, functions over two, and what that comes to where a window says so.
fn page_words(report: &LayoutReport, last: &FrontEnd) -> String {
    let each = |of: &dyn Fn(&FrontEnd) -> String| {
        report.front_end.iter().map(of).collect::<Vec<_>>().join(" -> ")
    };
    let pages = each(&|f| f.pages.to_string());
    let straddlers = each(&|f| f.straddlers.len().to_string());
    let mut text = format!("{pages} of code in use; {straddlers} hot functions over two of them");
    if let Some(s) = last.straddlers.first() {
        text += &format!(", the hottest {}", short_name(&s.function));
    }
    let refills: Vec<String> =
        report.front_end.iter().filter_map(|f| f.page_refills).map(bracket).collect();
    text + &match refills.is_empty() {
        true => "; what that costs is not known without a window: nothing while the TLB for code \
                 holds all pages in use"
            .to_owned(),
        false => format!(
            "; {} refills of the first-level TLB for code per operation",
            refills.join(" -> ")
        ),
    }
}

/// `619.0`, or `619.0 to 2401.0` where two models differ.
fn bracket([x, y]: [f64; 2]) -> String {
    let (least, most) = (x.min(y), x.max(y));
    if least == most { format!("{least:.1}") } else { format!("{least:.1} to {most:.1}") }
}

fn loop_words(spread: &stallscope::layout::SpreadLoop) -> String {
    format!(
        "{}+{:#x} ({} bytes in {} instead of {})",
        short_name(&spread.function),
        spread.offset_bytes,
        spread.size_bytes,
        spread.windows,
        spread.needed
    )
}

/// What each effect can cost, against what was measured; of whole runs where there is no window.
pub fn budget(budget: &Budget, whole_runs: bool) -> String {
    let unit = if whole_runs { "run" } else { "operation" };
    let mut out = budget.measured.as_ref().map(|m| measured(m, unit)).unwrap_or_default();
    if budget.effects.is_empty() {
        let text = "no executions were counted to hold against it: add --trace FUNCTION with \
                    --operations, or callgrind's counts as --samples";
        return out + &wrap("         ", text);
    }
    let head = format!("{:<26}", format!("effect (per {unit})"));
    out += &paint(STRONG, format!("{head} {:>16} {:>16}   cycles\n", "before", "after"));
    for effect in &budget.effects {
        out += &row(effect);
    }
    let Some(measured) = &budget.measured else {
        let text = "nothing was measured to hold this against: add --measure, or --measured";
        return out + &wrap("", text);
    };
    if !measured.is_difference() {
        let text =
            "the runs show no difference that these could be the cause of, and none is named";
        return out + &paint(CAUTION, wrap("cause    ", text));
    }
    out + &match budget.named {
        Some(kind) => wrap("cause    ", &cause_words(kind, budget)),
        None => paint(
            CAUTION,
            wrap(
                "cause    ",
                "none of these can pay for it: where the code sits is no explanation \
                  that these models can give",
            ),
        ),
    }
}

/// The difference, its interval, and where it comes from.
fn measured(m: &MeasuredDifference, unit: &str) -> String {
    let percent = |share: f64| format!("{:+.1}", 100.0 * share);
    let interval = |of: &dyn Fn(f64) -> String| {
        m.interval.map(|[low, high]| format!(" [{}, {}]", of(low), of(high))).unwrap_or_default()
    };
    let cycles = |share: f64| format!("{:+.0}", share * m.operation_cycles);
    let pairs = m.pairs.map(|n| format!(", {n} pairs of runs")).unwrap_or_default();
    let decision = m.verdict.as_ref().map(|v| format!(", {v}")).unwrap_or_default();
    let text = format!(
        "measured: {}{} % of {:.0} cycles per {unit}: {}{} cycles{pairs}{decision}",
        percent(m.share),
        interval(&percent),
        m.operation_cycles,
        cycles(m.share),
        interval(&cycles),
    );
    wrap("budget   ", &text)
}

fn cause_words(kind: EffectKind, budget: &Budget) -> String {
    let least = budget.effects.iter().find(|e| e.count.kind == kind).and_then(|e| e.paid_share);
    let events = kind.events();
    if least.is_some_and(|[least, _]| least > 0.0) {
        return format!("{events} can pay for it");
    }
    format!(
        "{events} can pay for it, and may as well cost nothing: build it with only them changed, and \
         measure"
    )
}

/// As [`bracket`], in a column.
fn narrow([x, y]: [f64; 2]) -> String {
    let (least, most) = (x.min(y), x.max(y));
    if least == most { format!("{least:.1}") } else { format!("{least:.0}..{most:.0}") }
}

fn row(effect: &Effect) -> String {
    let [least, most] = effect.added_cycles;
    let count = &effect.count;
    let mut out = format!(
        "{:<31} {:>11} {:>16}   {least:+.0} to {most:+.0}\n",
        count.kind.events(),
        narrow(count.before),
        narrow(count.after),
    );
    let shares = effect
        .paid_share
        .map(|[least, most]| format!("pays for {:.0} to {:.0} %: ", 100.0 * least, 100.0 * most));
    let verdict = match effect.payment {
        Payment::Unmeasured | Payment::NoDifference => return out,
        Payment::Nothing => "pays for nothing of it".to_owned(),
        Payment::TooLittle => shares.unwrap_or_default() + "cannot be the cause",
        Payment::CanPay => shares.unwrap_or_default() + "can be the cause",
        Payment::TooMuch => {
            shares.unwrap_or_default()
                + "more than was measured even at its least; something hides it"
        }
    };
    let origin = count.each.origin.word();
    let (low, high) = (count.each.low_cycles, count.each.high_cycles);
    let text = format!("{verdict} ({low} to {high} cycles each, {origin})");
    out += &paint(FAINT, wrap("    ", &text));
    out
}

pub fn suggestions(found: &Suggestions) -> String {
    let mut out = paint(STRONG, "\nwhat if      misses  jumps at 32  per operation\n");
    let row = |label: &str, misses: f64, jumps: f64, option: &str| {
        clip(&format!("{label:<9} {misses:>9.1} {jumps:>12.1}  {option}"), width()) + "\n"
    };
    let now = format!("as it is: functions at multiples of {}", found.alignment_bytes);
    out += &row("now", found.misses_per_operation, found.boundary_jumps_per_operation, &now);
    for s in &found.options {
        let label = match s.arrangement {
            Arrangement::Aligned { bytes } => format!("align {bytes}"),
            Arrangement::FirstUse => "order".to_owned(),
        };
        out += &row(&label, s.misses_per_operation, s.boundary_jumps_per_operation, &s.option);
        if let Some(warning) = &s.warning {
            out += &paint(CAUTION, wrap("  warning  ", warning));
        }
    }
    out + &wrap(
        "         ",
        "predicted by placing the functions of this build anew; padding inside functions stays as \
         it is, and what it gains in time only a build and a measurement tell",
    )
}
