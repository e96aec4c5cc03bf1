//! A sweep as pictures: each question with the difference taken apart and what each machine says, each variant's layouts
//! as dots.

use std::collections::BTreeMap;

use super::bar::Bar;
use super::number::{Number, amount};
use super::parts::{Part, Row};
use super::scale::Scale;
use crate::compare::layouts::{self, AS_BUILT, Source, Split};
use crate::compare::sweep::{AcrossMachines, LevelResult, Spread, SweepComparison, SweepReport};
use crate::report::words::percent;
use crate::stats::robust::median;

/// Machines of a level, variants and questions that are shown; the rest is in the JSON.
const MOST_MACHINES: usize = 100;
const MOST_VARIANTS: usize = 200;

/// The parts of its page.
pub(super) fn parts(report: &SweepReport) -> Vec<Part> {
    let mut parts = Vec::new();
    for comparison in report.comparisons.iter().take(MOST_VARIANTS) {
        let title = format!("{} against {}", comparison.candidate, comparison.base);
        parts.push(Part::Title(title, Some(comparison.decision)));
        if let Some(matched) = &comparison.matched {
            parts.push(Part::Words(format!("All levels: {}.", matched.agreement.words())));
        }
        if comparison.levels.is_empty() {
            parts.push(Part::Words("One of them could not be built: nothing to compare.".into()));
        } else {
            parts.push(effects(report, comparison));
        }
    }
    parts.push(Part::Title("Where the layouts lie".into(), None));
    parts.extend(layouts_of_all(report));
    let notes: Vec<String> = report.notes.iter().map(ToString::to_string).collect();
    parts.extend((!notes.is_empty()).then_some(Part::Notes(notes)));
    parts
}

/// A difference, before its scale is known.
struct Effect {
    name: String,
    note: String,
    number: Number,
    percent: [f64; 3],
    class: &'static str,
}

impl Effect {
    fn of(part: layouts::Part, name: &str, note: String, class: &'static str, from: &str) -> Self {
        let logs = [part.low_log, part.log_ratio, part.high_log];
        Self {
            name: name.to_owned(),
            note,
            number: Number::change(logs[1], logs[0], logs[2], from),
            percent: logs.map(percent),
            class,
        }
    }
}

/// One question at every level, with the machines.
fn effects(report: &SweepReport, comparison: &SweepComparison) -> Part {
    let all: Vec<Effect> =
        comparison.levels.iter().flat_map(|level| at_level(report, level)).collect();
    let scale = Scale::over(all.iter().flat_map(|e| e.percent).chain([0.0])).wider(0.03);
    let row = |effect: Effect| Row {
        bar: Bar::effect(scale, effect.percent, effect.class),
        name: effect.name,
        note: effect.note,
        numbers: vec![effect.number],
    };
    Part::Rows {
        head: vec!["what", "change", "picture, with a line where nothing changes"],
        rows: all.into_iter().map(row).collect(),
    }
}

fn at_level(report: &SweepReport, level: &LevelResult) -> Vec<Effect> {
    let mut all = Vec::new();
    let note = |text: &str| match level.level.as_str() {
        "" => text.to_owned(),
        name => format!("{name}: {text}"),
    };
    if let Some(split) = &level.split {
        all.extend(split_effects(split, &note));
    }
    if let Some(part) = level.by_rounds.filter(|_| level.split.is_none()) {
        let from = "signed ranks of log ratios, 95 % interval";
        all.push(Effect::of(part, "as they come", note(&level.decision.to_string()), "s7", from));
    }
    if let Some(machines) = &level.machines {
        all.extend(machine_effects(report, machines, &note));
    }
    all
}

fn split_effects(split: &Split, note: &dyn Fn(&str) -> String) -> Vec<Effect> {
    let [a, b] = split.placed();
    let over = format!("Welch's interval over {a} and {b} random layouts, 95 %");
    let decision = match split.source {
        Source::Open => split.decision.to_string(),
        source => format!("{}: {}", split.decision, source.words()),
    };
    let observed = "difference of the builds as they come, with the noise of runs, 95 %";
    let placement = "what the builds as they come show, less what stays over random layouts, 99 %";
    let all = [
        (split.observed, "as built", note("both builds as they come"), "s7", observed),
        (split.code, "the code", note(&decision), "s3", over.as_str()),
        (split.placement, "where it sits", note("of the builds as they come"), "s4", placement),
    ];
    let known = all.into_iter().filter_map(|(part, name, note, class, from)| {
        Some(Effect::of(part?, name, note, class, from))
    });
    known.collect()
}

fn machine_effects(
    report: &SweepReport,
    machines: &AcrossMachines,
    note: &dyn Fn(&str) -> String,
) -> Vec<Effect> {
    let kinds = machines.kinds.iter().map(|kind| {
        let (spread, decision) = (percent(kind.machine_sd_log), kind.decision);
        let words = match kind.machines {
            1 => format!("one machine, which tells of itself alone: {decision}"),
            machines => format!("{machines} machines, {spread:.1} % apart: {decision}"),
        };
        Effect::of(
            kind.effect,
            &kind.kind,
            note(&words),
            "s0",
            "mean over machines like these, 95 %",
        )
    });
    let each = machines.each.iter().take(MOST_MACHINES).map(|one| {
        let machine = report.machines.get(one.machine as usize);
        let name = machine.map_or("a machine", |machine| machine.host.name.as_str());
        let is_aside = machine.is_some_and(|machine| machine.set_aside.is_some());
        let words =
            note(if is_aside { "this machine alone, set aside" } else { "this machine alone" });
        let alone = layouts::Part {
            log_ratio: one.log_ratio,
            low_log: one.log_ratio,
            high_log: one.log_ratio,
        };
        let class = if is_aside { "s6" } else { "s1" };
        Effect::of(
            one.alone.unwrap_or(alone),
            name,
            words,
            class,
            "what this machine's runs say, 95 %",
        )
    });
    kinds.chain(each).collect()
}

/// Every layout of every variant as a dot at its median run.
fn layouts_of_all(report: &SweepReport) -> [Part; 2] {
    let mut by_cell: BTreeMap<(u32, u32), Vec<f64>> = BTreeMap::new();
    for run in &report.runs {
        let values = by_cell.entry((run.cell.variant, run.cell.layout)).or_default();
        values.push(report.metric.of(&run.amounts));
    }
    let medians: Vec<(String, u32, f64, usize)> = by_cell
        .into_iter()
        .filter_map(|((variant, layout), values)| {
            let label = report.variants.get(variant as usize)?.label();
            Some((label, layout, median(&values)?, values.len()))
        })
        .collect();
    // Of many machines the runs are not kept: the ends are known all the same.
    let ends = |s: &Spread| [s.best_log, 0.0, s.worst_log].map(|log| s.typical * log.exp());
    let known = report.spreads.iter().flat_map(|s| ends(s).into_iter().chain(s.as_built));
    let scale = Scale::over(known.chain(medians.iter().map(|m| m.2))).wider(0.03);
    let row = |spread: &Spread| {
        let of = |text: &str| format!("{text} of {}", spread.variant);
        let told = |value: f64| amount(value, spread.unit);
        let mine = medians.iter().filter(|m| m.0 == spread.variant);
        let mut dots: Vec<(f64, &'static str, String)> = mine
            .map(|(_, layout, value, runs)| match *layout {
                AS_BUILT => {
                    (*value, "s1", format!("as built: {}, median of {runs} runs", told(*value)))
                }
                n => (*value, "s0", format!("layout {n}: {}, median of {runs} runs", told(*value))),
            })
            .collect();
        if dots.is_empty() {
            let names = ["best", "typical", "worst"];
            let dot = |(value, name)| (value, "s0", format!("{name} layout: {}", told(value)));
            dots.extend(ends(spread).into_iter().zip(names).map(dot));
            dots.extend(
                spread.as_built.map(|value| (value, "s1", format!("as built: {}", told(value)))),
            );
        }
        // What is drawn last lies on top.
        dots.sort_by_key(|dot| dot.1);
        let as_built = spread.as_built.map_or_else(
            || Number::new("-", of("no build as it comes")),
            |value| Number::plain(value, spread.unit, of("median of the build as it comes,")),
        );
        let typical = Number::plain(
            spread.typical,
            spread.unit,
            of(&format!("median of the medians of {} random layouts", spread.layouts)),
        );
        Row {
            name: spread.variant.clone(),
            note: format!(
                "layouts {:.2} % apart, runs {:.2} % (standard deviations)",
                percent(spread.layout_sd_log),
                percent(spread.run_sd_log)
            ),
            numbers: vec![as_built, typical],
            bar: Bar::dots(scale, dots),
        }
    };
    let unit = report.spreads.first().map(|spread| spread.unit).unwrap_or(report.metric.unit());
    let lines: Vec<String> = scale.ticks(4.0).into_iter().map(|at| amount(at, unit)).collect();
    [
        Part::Words(format!(
            "Each dot is a layout at its median run, the build as it comes in the second colour; the lines are at {}.",
            lines.join(", ")
        )),
        Part::Rows {
            head: vec!["variant", "as built", "typical", "layouts"],
            rows: report.spreads.iter().take(MOST_VARIANTS).map(row).collect(),
        },
    ]
}
