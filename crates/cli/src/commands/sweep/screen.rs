//! The screen of `sweep`: the answer first, then its parts, then what was built and what to know.

use std::fmt::Write;

use comfy_table::Table;
use stallscope::compare::layouts::{Source, Split};
use stallscope::compare::sweep::{
    AcrossMachines, LevelResult, SetAside, SweepComparison, SweepReport,
};
use stallscope::compare::{Decision, Measure};
use stallscope::model::Unit;

use crate::commands::cpu_args;
use crate::commands::words::{part_words, percent, rough, signed, style_of};
use crate::terminal::{CAUTION, FAINT, STRONG, clip, paint, wrap};

/// The whole screen, styled; ends in a newline.
pub fn screen(report: &SweepReport) -> String {
    let mut out = String::new();
    for comparison in &report.comparisons {
        out += &answer(report, comparison);
        out.push('\n');
    }
    out += &spreads(report);
    out += &missing(report);
    out += &set_aside(report);
    out += &provenance(report);
    for note in &report.notes {
        out += &wrap("note: ", &note.to_string());
    }
    out
}

fn answer(report: &SweepReport, comparison: &SweepComparison) -> String {
    let mut out = format!(
        "{} against {}: {}\n",
        paint(STRONG, &comparison.candidate),
        comparison.base,
        paint(style_of(comparison.decision), comparison.decision),
    );
    if comparison.levels.is_empty() {
        return out
            + &wrap("  ", "one of them could not be built at any level: nothing to compare");
    }
    for level in &comparison.levels {
        out += &at_level(report, level);
    }
    if let Some(matched) = &comparison.matched {
        out += &wrap("  all levels  ", matched.agreement.words());
    }
    out
}

fn at_level(report: &SweepReport, level: &LevelResult) -> String {
    let first =
        if level.level.is_empty() { "  ".to_owned() } else { format!("  {}  ", level.level) };
    let text = match (&level.split, level.by_rounds) {
        _ if level.machines.as_ref().is_some_and(|m| m.kinds.len() > 1) => {
            format!("by kind of machine -> {}", level.decision)
        }
        (Some(split), _) => sentence(split),
        (None, Some(part)) => {
            let what = report.settings.measure.noun();
            let of = if level.machines.is_some() { "machines" } else { "pairs of runs" };
            format!("{what} changes by {} ({of}, one build each)", part_words(part))
        }
        (None, None) => "fewer than six runs of each: nothing can be said".into(),
    };
    let mut out = wrap(&first, &text);
    if let Some(split) = &level.split {
        if let Some(part) = split.placement.filter(|_| split.source == Source::Placement) {
            let text = format!("placement of the builds as they come {} (99 %)", part_words(part));
            out += &wrap("  ", &text);
        }
        out += &outlook(report, split);
    }
    if let Some(machines) = &level.machines {
        let name = |n: u32| report.machines.get(n as usize).map_or("", |m| m.host.name.as_str());
        out += &across(&name, machines);
    }
    out
}

/// Machines, and what they find, that are listed one by one.
pub const MOST_LISTED: usize = 12;

/// "amd-25-97-2, 12 machines: +1.2 % [+0.9, +1.5], spread 0.4 %, one more [+0.2, +2.1] -> slower"; `name` knows what a machine
/// is called.
pub fn across<'a>(name: &dyn Fn(u32) -> &'a str, machines: &AcrossMachines) -> String {
    let mut out = String::new();
    for kind in &machines.kinds {
        let count = kind.machines;
        let mut text = match count {
            1 => format!("one machine, which tells of itself alone: {}", part_words(kind.effect)),
            _ => format!("{count} machines: {}", part_words(kind.effect)),
        };
        if count > 1 {
            let _ = write!(text, "; machine spread {:.1} %", percent(kind.machine_sd_log));
        }
        if let Some(another) = kind.another {
            let [low, high] = [another.low_log, another.high_log].map(|log| signed(log, 1));
            let _ = write!(text, "; one more of them lies within {low} and {high}");
        }
        out += &wrap("  ", &format!("{}, {text} -> {}", kind.kind, kind.decision));
    }
    if machines.each.len() > MOST_LISTED {
        return out;
    }
    for one in &machines.each {
        let name = name(one.machine);
        let text = one.alone.map_or_else(|| signed(one.log_ratio, 1), part_words);
        out += &wrap("    ", &format!("{name} {text}"));
    }
    out
}

/// Machines that are not believed, and why.
fn set_aside(report: &SweepReport) -> String {
    let is_alone = report.machines.len() == 1;
    let all = || report.machines.iter().filter_map(|m| Some((&m.host.name, m.set_aside?)));
    let mut out = String::new();
    for (name, why) in all().take(MOST_LISTED) {
        let mut text = match why {
            SetAside::Placebo { log_ratio } => {
                format!("{name}: one build beside itself differs by {}", signed(log_ratio, 1))
            }
            SetAside::Clock { log_ratio } => {
                format!("{name}: its two clocks differ by {}", signed(log_ratio, 2))
            }
            SetAside::FarOff { log_ratio, usual_log } => format!(
                "{name}: it says {} where others of its kind say {}",
                signed(log_ratio, 1),
                signed(usual_log, 1)
            ),
        };
        if is_alone {
            text += "; it is the only one, and is judged all the same";
        }
        out += paint(CAUTION, wrap("set aside: ", &text).trim_end()).as_str();
        out.push('\n');
    }
    let more = all().count().saturating_sub(MOST_LISTED);
    if more > 0 {
        out += &wrap("set aside: ", &format!("and {more} more machines (all are in the JSON)"));
    }
    out
}

/// "observed -3.2 %; run noise ±0.2 %; layout spread 2.9 % over 12 layouts; code effect +0.3 % [-1.4,
/// +2.0] -> where the code sits".
pub fn sentence(split: &Split) -> String {
    let mut parts = Vec::new();
    // Those that were built and run, of the arm that has fewer.
    let [a, b] = split.placed();
    let layouts = a.min(b);
    if let Some(observed) = split.observed {
        parts.push(format!("observed {}", signed(observed.log_ratio, 1)));
        let reach = observed.high_log - observed.log_ratio;
        parts.push(format!("run noise ±{:.1} %", percent(reach)));
    }
    parts.push(match layouts {
        0 => "no layout of both was run: how far they lie apart is not known".to_owned(),
        1 => "one layout: what another would change is not known".to_owned(),
        _ => {
            format!("layout spread {:.1} % over {layouts} layouts", percent(split.layout_sd_log))
        }
    });
    if let Some(code) = split.code {
        parts.push(format!("code effect {}", part_words(code)));
    }
    format!("{} -> {}", parts.join("; "), split.source.words())
}

fn outlook(report: &SweepReport, split: &Split) -> String {
    if split.decision != Decision::Inconclusive {
        return String::new();
    }
    let effect = percent(report.settings.effect.ln_1p());
    match split.layouts_needed {
        Some(n) if n > u64::from(report.settings.layouts) => {
            let per_layout: u64 = report.runs.iter().map(|run| run.amounts.time_ns()).sum::<u64>()
                + report.cells.iter().map(|c| c.build_ns).sum::<u64>();
            let each = per_layout / (report.cells.len().max(1) as u64);
            let time =
                rough(each.saturating_mul(n + 1).saturating_mul(report.variants.len() as u64));
            wrap("  ", &format!("to see {effect:.2} % here: --layouts {n}, about {time}"))
        }
        _ => split.detectable_log.map_or_else(String::new, |log| {
            let text = format!(
                "smallest effect these layouts show in 4 of 5 tries: {:.2} %",
                percent(log)
            );
            wrap("  ", &text)
        }),
    }
}

/// Columns that the name of a variant has in a table: whole command lines may be one.
const MOST_LABEL: usize = 40;

fn spreads(report: &SweepReport) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["variant", "as built", "typical", "best", "worst", "layout sd", "run sd"]);
    for spread in &report.spreads {
        let placed = spread.layouts > 1;
        let amount = |value| amount(value, spread.unit);
        let dash = |text: String| if placed { text } else { "-".into() };
        table.add_row([
            clip(&spread.variant, MOST_LABEL),
            spread.as_built.map_or("-".into(), amount),
            dash(amount(spread.typical)),
            dash(signed(spread.best_log, 1)),
            dash(signed(spread.worst_log, 1)),
            dash(format!("{:.2} %", percent(spread.layout_sd_log))),
            format!("{:.2} %", percent(spread.run_sd_log)),
        ]);
    }
    let lines: Vec<String> = table.to_string().lines().map(|l| l.trim_end().to_owned()).collect();
    lines.join("\n") + "\n\n"
}

fn amount(amount: f64, unit: Unit) -> String {
    let (value, unit) = match amount {
        bytes if unit == Unit::Bytes => (bytes / f64::from(1 << 20), "MiB"),
        number if unit != Unit::Nanoseconds => {
            return if number >= 0.01 { format!("{number:.4}") } else { format!("{number:.3e}") };
        }
        ns if ns >= 1e9 => (ns / 1e9, "s"),
        ns if ns >= 1e6 => (ns / 1e6, "ms"),
        ns => (ns / 1e3, "us"),
    };
    format!("{value:.2} {unit}")
}

fn missing(report: &SweepReport) -> String {
    let mut out = String::new();
    let mut said = Vec::new();
    for cell in report.cells.iter().filter(|c| c.failure.is_some()) {
        let variant = report.variants[cell.cell.variant as usize].label();
        let why = cell.failure.clone().unwrap_or_default();
        if said.contains(&(variant.clone(), why.clone())) {
            continue;
        }
        let unbuilt = cell.why_unbuilt().unwrap_or_default();
        let text = format!("{variant}, layout {}: {unbuilt}", cell.cell.layout);
        let _ = write!(out, "{}", paint(CAUTION, wrap("missing: ", &text).trim_end()));
        out.push('\n');
        said.push((variant, why));
    }
    out
}

fn provenance(report: &SweepReport) -> String {
    let settings = &report.settings;
    let programs = || report.cells.iter().filter(|c| c.program.is_some());
    let kept = programs().filter(|c| c.cached).count();
    let built = programs().count() - kept;
    let cpu = cpu_args::words(settings.cpus.as_ref());
    let runs: u64 = report.machines.iter().map(|m| m.runs).sum();
    let mut parts = vec![match report.machines.len() {
        1 => format!("{runs} runs, random order in rounds, {cpu}"),
        machines => format!("{runs} runs on {machines} machines, random order in rounds"),
    }];
    if let Some(tally) = report.blocks {
        parts.push(format!("{} of {} blocks", tally.done, tally.of));
        if tally.duplicates > 0 {
            parts.push(format!("{} came twice and count once", tally.duplicates));
        }
        if tally.unusable > 0 {
            parts.push(format!("{} lines are no result of this plan", tally.unusable));
        }
    }
    if report.earlier_runs > 0 {
        parts.push(format!("{} of them of earlier sweeps of these builds", report.earlier_runs));
    }
    if !matches!(settings.measure, Measure::Auto | Measure::Wall) {
        parts.push(format!("judged by {}", settings.measure.noun()));
    }
    if settings.layouts > 0 {
        parts.push(format!("placements by {}", settings.knob.name()));
    }
    if settings.build.is_some() {
        parts.push(format!("{built} builds made, {kept} from the cache"));
    }
    if let Some(seen) = report.disturbances {
        parts.push(format!(
            "{} runs repeated because the machine was disturbed, {} kept although it was",
            seen.repeated, seen.kept_disturbed
        ));
    }
    parts.push(format!("seed {}", settings.seed));
    paint(FAINT, wrap("", &parts.join("; ")).trim_end()) + "\n"
}
