//! A history as pictures: every commit of a series with its interval, lines where the series steps, and what is said of
//! each step.

use super::bar::Bar;
use super::chart::{Dot, Mark, Plot};
use super::number::Number;
use super::parts::{Figure, Part, Picture, Row};
use super::scale::Scale;
use crate::compare::history::{HistoryReport, HistorySeries, HistoryStep, StepWord};
use crate::report::words::{change as change_words, counted, percent};

/// Series that are drawn; the rest is in the JSON.
const MOST_SERIES: usize = 20;

/// The parts of its page.
pub(super) fn parts(report: &HistoryReport) -> Vec<Part> {
    let mut parts: Vec<Part> = report
        .series
        .iter()
        .take(MOST_SERIES)
        .flat_map(|series| of_series(series, report.effect))
        .collect();
    let damaged = report.damaged.iter();
    let damaged: Vec<String> =
        damaged.map(|line| format!("Line {} is not believed: {}.", line.line, line.what)).collect();
    parts.extend((!damaged.is_empty()).then_some(Part::Notes(damaged)));
    parts
}

fn of_series(series: &HistorySeries, effect: f64) -> Vec<Part> {
    let key = &series.series;
    let title = format!("{} against {}", key.command.join(" "), key.reference.join(" "));
    let mut parts =
        vec![Part::Title(title, series.decision()), Part::Figure(Box::new(figure(series)))];
    if series.steps.is_empty() {
        let words = match series.enough {
            true => format!(
                "No step was found; commits lie {:.2} % apart (standard deviation).",
                percent(series.commit_sd_log)
            ),
            false => "Too few commits for any step to be found.".to_owned(),
        };
        parts.push(Part::Words(words));
    } else {
        parts.push(steps(&series.steps, effect));
    }
    if let Some(newest) = &series.newest {
        let commits = counted(newest.count as usize, "commit");
        let change = [newest.change.low_log, newest.change.log_ratio, newest.change.high_log];
        parts.push(Part::Words(format!(
            "The newest {commits} (since {}) lie {} from those before, and are too few for a step.",
            newest.label,
            change_words(change, 1)
        )));
    }
    if let Some(label) = &series.back_in_time {
        parts.push(Part::Words(format!("{label} was measured before the commit in front of it.")));
    }
    if series.left_out > 0 {
        parts.push(Part::Words(format!("{} older commits are left out.", series.left_out)));
    }
    parts
}

fn figure(series: &HistorySeries) -> Figure {
    let key = &series.series;
    let numbers = series.entries.iter().enumerate().map(|(nth, entry)| {
        let from = format!("{}, {} pairs, 95 % interval", entry.label, entry.pairs);
        let number = Number::change(entry.log_ratio, entry.low_log, entry.high_log, from);
        let dot = Dot {
            x: nth as f64,
            y: percent(entry.log_ratio),
            interval: Some([percent(entry.low_log), percent(entry.high_log)]),
            class: "s0",
            title: format!("{}: {}", entry.label, number.text),
        };
        (dot, (entry.label.clone(), vec![number]))
    });
    let (dots, rows): (Vec<Dot>, Vec<(String, Vec<Number>)>) = numbers.unzip();
    let ends = dots.iter().flat_map(|dot| dot.interval.into_iter().flatten());
    let called = series.steps.iter().filter(|step| step.is_called());
    let picture = Plot {
        title: "every commit against the reference, in their order; the table below has the same"
            .into(),
        unit: "%",
        along: "commit, counted from the first",
        scale: Scale::over(ends.chain([0.0])).wider(0.06),
        signed: true,
        marks: vec![Mark {
            ends: [0.0, 0.0],
            class: "zero",
            title: "as fast as the reference".into(),
        }],
        limits: called.map(|step| (step.at as f64 - 0.5, step.label.clone())).collect(),
        dots,
        ..Plot::default()
    };
    Figure {
        caption: format!(
            "{} of every commit against the reference, with 95 % intervals; {}. A line stands where the series steps.",
            key.measure.noun(),
            key.machine
        ),
        keys: Vec::new(),
        picture: Picture::Scatter(picture.draw()),
        head: vec!["commit".into(), "change".into()],
        rows,
    }
}

fn steps(steps: &[HistoryStep], effect: f64) -> Part {
    let ends = |step: &HistoryStep| {
        [step.change.low_log, step.change.log_ratio, step.change.high_log].map(percent)
    };
    let scale = Scale::over(steps.iter().flat_map(ends).chain([0.0])).wider(0.03);
    let row = |step: &HistoryStep| {
        let (class, word) = match step.word {
            StepWord::Slower => ("more", "slower".to_owned()),
            StepWord::Faster => ("less", "faster".to_owned()),
            StepWord::DriftSlower => ("more", "drifts slower, at no single commit".to_owned()),
            StepWord::DriftFaster => ("less", "drifts faster, at no single commit".to_owned()),
            StepWord::WithinLayoutSpread => (
                "part",
                format!(
                    "no more than placements of the same code differ by, {:.1} %",
                    percent(step.layout_reach_log.unwrap_or(0.0))
                ),
            ),
            _ => ("part", format!("less than {:.1} %, which is what matters", 100.0 * effect)),
        };
        let from = "mean behind over mean before, Welch's interval of commits, 95 %";
        let p = Number::told(
            format!("{:.4}", step.p_value),
            "how often shuffled commits change as much",
            step.p_value,
        );
        let part = step.change;
        let (name, note) = match step.is_drift() {
            true => (format!("from {} to {}", step.before, step.label), word),
            false => {
                let note = format!("{word}; the last one before is {}", step.before);
                (format!("since {}", step.label), note)
            }
        };
        Row {
            name,
            note,
            numbers: vec![Number::change(part.log_ratio, part.low_log, part.high_log, from), p],
            bar: Bar::effect(scale, ends(step), class),
        }
    };
    Part::Rows {
        head: vec!["step", "change", "p", "picture, with a line where nothing changes"],
        rows: steps.iter().map(row).collect(),
    }
}
