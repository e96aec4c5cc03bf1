//! The one screen of `trace`.

use stallscope::code::SourceText;
use stallscope::model::Avma;
use stallscope::sim::TraceReport;
use stallscope::sim::l1i::L1iReport;
use stallscope::sim::store_buffer::LoadSite;

use super::super::{site, words};
use super::cycles;
use crate::terminal::{CAUTION, FAINT, STRONG, paint, wrap};

/// A mechanism with less of the cycles is not told first.
const LEAST_SHARE: f64 = 0.05;
const MOST_LOADS: usize = 3;
const MOST_SETS: usize = 3;
/// Functions named for one set.
const MOST_FIGHTERS: usize = 6;
const MOST_JUMPS: usize = 3;

pub fn screen(report: &TraceReport, title: &str, text: &mut SourceText) -> String {
    let mut out = wrap("", &bottom_line(report));
    out += &(paint(STRONG, title) + "\n");
    if let Some(cycles) = &report.cycles {
        // What was asked for stands alone; the rest is in the JSON.
        out += &cycles::screen(cycles, report, text);
        out += &window(report);
    } else {
        out += &window(report);
        out += &loads(report, text);
        out += &sets(report);
        out += &jumps(report);
    }
    for note in &report.notes {
        out += &wrap("note     ", note);
    }
    out
}

/// What the window says first of all.
fn bottom_line(report: &TraceReport) -> String {
    let at = |address: Option<Avma>| {
        let site = address.and_then(|at| report.place(at)).and_then(|place| place.site.as_ref());
        site.map_or(String::new(), |site| {
            let line = site.line().map(|line| format!(" ({line})")).unwrap_or_default();
            format!(", most of all at {} in {}{line}", site.svma, site::short_name(&site.function))
        })
    };
    if let Some(cycles) = &report.cycles {
        let first = cycles.waits.first().filter(|wait| wait.share >= LEAST_SHARE);
        let waits = first.map_or("no mechanism alone has a good part of it".to_owned(), |wait| {
            let part = 100.0 * wait.share;
            format!("{part:.0} % of it is {}{}", wait.mechanism, at(wait.most_at))
        });
        return format!(
            "{:.2} cycles an instruction by the model of the core; {waits}",
            cycles.cycles_per_instruction
        );
    }
    let most = report.store_buffer.sites.first().filter(|load| load.blocked > 0);
    let loads = match report.store_buffer.blocked {
        0 => "no load was blocked by a store in flight".to_owned(),
        _ => format!(
            "{:.1} of 1000 instructions are loads that stores in flight blocked{}",
            report.blocked_per_thousand(),
            at(most.map(|load| load.insn))
        ),
    };
    let overfull = report.l1i.as_ref().map_or(0, |l1i| l1i.overfull().len());
    let sets = match overfull {
        0 => String::new(),
        n => format!("; {n} sets of the instruction cache are overfull"),
    };
    loads + &sets
}

fn window(report: &TraceReport) -> String {
    let window = &report.window;
    let mut out = wrap(
        "window   ",
        &format!("{} instructions, ended {}", words::grouped(window.instructions), window.ended),
    );
    let pace = window.instructions as f64 / (window.wall_ns.max(1) as f64 / 1e9);
    out += &wrap(
        "engine   ",
        &format!(
            "{}, {} in the window ({} instructions a second)",
            window.engine,
            words::rough(window.wall_ns),
            words::grouped(pace as u64)
        ),
    );
    let check = match (&window.self_check, window.self_check_passed) {
        (Some(what), Some(true)) => format!("passed: {what}"),
        (Some(what), _) => paint(CAUTION, format!("failed: {what}")),
        (None, _) if window.engine == "translate" => "none was possible, see the notes".into(),
        (None, _) => "follows the original run, so there is nothing to compare it with".into(),
    };
    out += &wrap("check    ", &check);
    out + &match &window.command {
        Some(command) => wrap("command  ", &format!("ended with {command}")),
        None => wrap("process  ", "runs on"),
    }
}

fn loads(report: &TraceReport, text: &mut SourceText) -> String {
    let counted = &report.store_buffer;
    let mut out = String::from("\n");
    out += &wrap(
        "loads    ",
        &format!(
            "{} of {} could not be forwarded, {:.1} per 1000 instructions; {} were, {} met a store \
             only in the low 12 bits of its address",
            words::grouped(counted.blocked),
            words::grouped(counted.loads),
            report.blocked_per_thousand(),
            words::grouped(counted.forwarded),
            words::grouped(counted.aliased),
        ),
    );
    out += &wrap(
        "model    ",
        &format!(
            "{}; {} stores and {} instructions in flight",
            counted.rule.sentence(),
            counted.shape.depth,
            counted.shape.window_instructions
        ),
    );
    for load in counted.sites.iter().filter(|s| s.blocked > 0).take(MOST_LOADS) {
        out += &one_load(report, load, text);
    }
    let rest = counted.sites.iter().filter(|s| s.blocked > 0).count().saturating_sub(MOST_LOADS);
    if rest > 0 {
        out += &format!("         and {rest} more loads (--json lists them)\n");
    }
    out
}

fn one_load(report: &TraceReport, load: &LoadSite, text: &mut SourceText) -> String {
    let share = percent(load.blocked, load.executions);
    let title = format!("blocked {share} of {} times", words::grouped(load.executions));
    let mut out = format!("\n  {}\n", paint(STRONG, title));
    out += &place(report, load.insn, text);
    if let Some(first) = load.blockers.first() {
        let share = percent(first.count, load.blocked);
        out += &format!("    by what these stored ({share} of the time)\n");
        for same in first.stores.chunk_by(|a, b| a == b) {
            out += &place(report, same[0], text);
            if same.len() > 1 {
                out += &format!("      {} times in a row\n", same.len());
            }
        }
    }
    let reuse = &load.distances.reuse_iterations;
    let named: Vec<String> = (0..)
        .zip(reuse)
        .filter(|(_, count)| **count > 0)
        .map(|(k, count)| {
            let and_more = if k == reuse.len() - 1 { " or more" } else { "" };
            format!("{k}{and_more}: {}", percent(*count, load.blocked))
        })
        .collect();
    out += &wrap("    reuse  ", &format!("iterations since the store: {}", named.join(", ")));
    let k = (0_u32..).zip(reuse).max_by_key(|(_, count)| **count).map_or(0, |(k, _)| k);
    let share = f64::from(k) + 1.0;
    let (what, price) = match report.load_price(load.insn) {
        Some(price) => (price.sentence(), &price.cycles),
        None => ("a blocked load".to_owned(), &report.blocked_load_cycles),
    };
    let [low, high] =
        [price.low_cycles, price.high_cycles].map(|cycles| format!("{:.1}", cycles / share));
    let ends = if low == high { low } else { format!("{low} to {high}") };
    out + &wrap(
        "    price  ",
        &format!(
            "a loop of this takes at least {ends} cycles an iteration, and no more than before if it \
             takes that long anyway ({what}: {})",
            price.sentence()
        ),
    )
}

pub fn place(report: &TraceReport, address: Avma, text: &mut SourceText) -> String {
    match report.place(address) {
        Some(place) => match (&place.site, &place.object) {
            (Some(at), _) => site::site(at, 4, text),
            (None, Some(object)) => format!("    {address}  in {}\n", object.display()),
            (None, None) => format!("    {address}  in code that no file holds\n"),
        },
        None => format!("    {address}\n"),
    }
}

fn sets(report: &TraceReport) -> String {
    let Some(l1i) = &report.l1i else {
        return "\n".to_owned()
            + &wrap("sets     ", "the shape of the instruction cache is not known here");
    };
    let geometry = l1i.geometry;
    let overfull = l1i.overfull();
    let mut out = String::from("\n");
    out += &wrap(
        "sets     ",
        &format!(
            "{} of {} sets of the instruction cache ({} ways, {}-byte lines, LRU) are overfull; \
             {} of {} misses are first touches",
            overfull.len(),
            geometry.sets,
            geometry.ways,
            geometry.line_bytes,
            words::grouped(l1i.cold_misses),
            words::grouped(l1i.misses)
        ),
    );
    for set in overfull.iter().take(MOST_SETS) {
        let fighters = fighters(report, l1i, set.set);
        let line = format!(
            "set {}: {} lines, {} misses: {fighters}",
            set.set,
            set.lines.len(),
            words::grouped(set.misses)
        );
        out += &wrap("         ", &line);
    }
    out
}

/// Functions with lines in a set, most misses first.
fn fighters(report: &TraceReport, l1i: &L1iReport, number: u32) -> String {
    let lines = l1i.sets.iter().find(|s| s.set == number).map_or(&[][..], |s| &s.lines);
    let mut names: Vec<(String, u64)> = Vec::new();
    for line in lines {
        let site = report.place(line.first_insn).and_then(|p| p.site.as_ref());
        let name = site.map_or("?", |s| site::short_name(&s.function)).to_owned();
        match names.iter_mut().find(|(known, _)| *known == name) {
            Some((_, misses)) => *misses += line.misses,
            None => names.push((name, line.misses)),
        }
    }
    names.sort_by_key(|(_, misses)| std::cmp::Reverse(*misses));
    let rest = names.len().saturating_sub(MOST_FIGHTERS);
    let shown =
        names.iter().take(MOST_FIGHTERS).map(|(name, n)| format!("{} {n}", site::clip(name, 30)));
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if rest > 0 {
        text += &format!(", {rest} more");
    }
    text
}

fn jumps(report: &TraceReport) -> String {
    let Some(price) = &report.boundary_jump_cycles else {
        return wrap("jumps    ", "this processor does not mind jumps at 32-byte boundaries");
    };
    let counted = &report.jumps;
    let mut out = wrap(
        "jumps    ",
        &format!(
            "{} of {} cross a 32-byte boundary or end at one; at most {} cycles each",
            words::grouped(counted.on_boundary),
            words::grouped(counted.jumps),
            price.amount()
        ),
    );
    for jump in counted.sites.iter().take(MOST_JUMPS) {
        let site = report.place(jump.insn).and_then(|p| p.site.as_ref());
        let at = match site {
            Some(site) => {
                format!("{:#x} {} in {}", site.svma.0, site.text, site::short_name(&site.function))
            }
            None => jump.insn.to_string(),
        };
        out += &paint(
            FAINT,
            format!("         {} times {}\n", words::grouped(jump.executions), site::clip(&at, 55)),
        );
    }
    out
}

pub fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(words::grouped(0), "0");
        assert_eq!(words::grouped(999), "999");
        assert_eq!(words::grouped(1000), "1,000");
        assert_eq!(words::grouped(1_234_567), "1,234,567");
    }
}
