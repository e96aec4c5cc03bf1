//! Results for a comment on a pull request: one line with the word, one table, one picture, the doubts folded away.
//!
//! The picture is a Mermaid chart: GitHub and GitLab draw those where the text stands, and GitHub takes `<svg>` elements out of
//! what is written (github/markup issue 1065).

use std::fmt::Write;

use super::words::{change, change_of, is_open, p_words, percent, row_change};
use crate::compare::results::{Change, Judgement};
use crate::compare::{Comparison, Decision, Metric, Warning, pair_up};
use crate::explain::{Explanation, Ledger};
use crate::foreign::plain;
use crate::machine::PriceOrigin;
use crate::machine::survey::{Entry, Relation, Survey};
use crate::stats::robust::median;

/// Places that are listed.
const MOST_PLACES: usize = 5;
/// Points that a comment has room for.
const MOST_POINTS: usize = 40;

/// Text that does not end a table's cell.
pub(super) fn cell(text: &str) -> String {
    plain(&text.replace(['\n', '\r'], " ")).replace('|', "\\|").replace('<', "&lt;")
}

fn details(out: &mut String, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let items: String = lines.iter().map(|line| format!("- {}\n", cell(line))).collect();
    *out += &folded("What to know before believing it", &items);
}

/// What is shown when its title is asked for.
fn folded(title: &str, body: &str) -> String {
    format!("\n<details><summary>{title}</summary>\n\n{body}\n</details>\n")
}

fn sign(word: Decision) -> &'static str {
    match word {
        Decision::Slower => "🔴",
        Decision::Faster => "🟢",
        Decision::Equivalent => "⚪",
        Decision::Inconclusive => "❔",
    }
}

/// A comparison of two programs.
#[must_use]
pub fn comparison(comparison: &Comparison) -> String {
    let mut out = verdict(comparison) + &metrics(comparison, ["A", "B"]) + &pairs(comparison);
    let doubts: Vec<String> = comparison.analysis.warnings.iter().map(Warning::to_string).collect();
    details(&mut out, &doubts);
    out
}

/// Machines side by side: a row for each fact that a probe or the system told of one at least, in bold where they differ.
#[must_use]
pub fn survey(survey: &Survey) -> String {
    let mut out = format!(
        "| | {} |\n",
        survey.machines.iter().map(|m| cell(m)).collect::<Vec<_>>().join(" | ")
    );
    let _ = writeln!(out, "|---|{}", "---|".repeat(survey.machines.len()));
    let is_found = |entry: &Entry| matches!(entry.origin, None | Some(PriceOrigin::Probed { .. }));
    for row in &survey.rows {
        if !row.machines.iter().flatten().any(is_found) {
            continue;
        }
        let bold = if row.relation == Relation::Apart { "**" } else { "" };
        let words = |entry: &Option<Entry>| match entry {
            Some(entry) if is_found(entry) => cell(&entry.text),
            Some(entry) => format!("*{}*", cell(&entry.text)),
            None => "-".to_owned(),
        };
        let entries: Vec<String> = row.machines.iter().map(words).collect();
        let _ = writeln!(out, "| {bold}{}{bold} | {} |", row.id, entries.join(" | "));
    }
    out
}

/// An explanation: the difference, its cause, where it is, what the model of the core says, what is open.
#[must_use]
pub fn explanation(explanation: &Explanation) -> String {
    let comparison = &explanation.comparison;
    let mut out = verdict(comparison);
    if let Some(summary) = &explanation.summary {
        let grade = explanation.grade.map(|grade| format!(" Grade: {grade}, {}.", grade.meaning()));
        let _ = writeln!(out, "{}{}\n", cell(summary), grade.unwrap_or_default());
    }
    out += &metrics(comparison, ["BEFORE", "AFTER"]);
    out += &pairs(comparison);
    if !explanation.rows.is_empty() {
        out +=
            "\n| where | user time BEFORE | AFTER | part of the difference |\n|---|---|---|---|\n";
    }
    for row in explanation.rows.iter().take(MOST_PLACES) {
        let [a, b] = [&row.before, &row.after].map(|time| format!("{:.3} ms", time.value / 1e6));
        let name = cell(row.place.name());
        let _ = writeln!(out, "| `{name}` | {a} | {b} | {} |", row.share_of_difference);
    }
    let believed: Vec<&Ledger> = explanation.ledgers.iter().filter(|l| l.agrees).collect();
    if !believed.is_empty() {
        out += "\n| model of | predicts | measured | gone without |\n|---|---|---|---|\n";
    }
    for ledger in believed {
        let parts = ledger
            .lines
            .iter()
            .map(|line| format!("{}: {:.1} %", line.mechanism, line.part.percent.value));
        let _ = writeln!(
            out,
            "| `{}`{} | {} | {:.1} % | {} |",
            cell(&ledger.place),
            cell(&ledger.with_words()),
            ledger.predicted,
            ledger.measured.percent.value,
            parts.collect::<Vec<String>>().join(", ")
        );
    }
    let told = |line: &&String| explanation.summary.as_ref() != Some(*line);
    let open = explanation.unexplained.iter().filter(told).chain(&explanation.notes).cloned();
    let warnings = comparison.analysis.warnings.iter().filter(|w| **w != Warning::OneBuildEach);
    let lines: Vec<String> = open.chain(warnings.map(Warning::to_string)).collect();
    details(&mut out, &lines);
    out
}

fn verdict(comparison: &Comparison) -> String {
    let analysis = &comparison.analysis;
    let word = analysis.verdict.decision;
    format!(
        "{} **{word}**: {} (95 % interval, {} pairs)\n\n",
        sign(word),
        change(analysis.judged(), 1),
        analysis.wall.estimate.n
    )
}

fn metrics(comparison: &Comparison, builds: [&str; 2]) -> String {
    let [a, b] = comparison.arms.each_ref().map(|a| cell(&a.display()));
    let [first, second] = builds;
    let mut out =
        format!("| | {first} `{a}` | {second} `{b}` | {second} vs {first} |\n|---|---|---|---|\n");
    for contrast in &comparison.analysis.contrasts {
        let (name, scale) = match contrast.metric {
            Metric::Wall => ("wall ms", 1e6),
            Metric::Cpu => ("cpu ms", 1e6),
            Metric::User => ("user ms", 1e6),
            Metric::System => ("system ms", 1e6),
            Metric::Memory => ("peak MiB", f64::from(1 << 20)),
            Metric::Printed => ("printed", 1.0),
            Metric::Counted => ("counted", 1.0),
        };
        let ratio = contrast
            .ratio
            .as_ref()
            .map_or("-".into(), |r| change([r.low_log, r.log_ratio, r.high_log], 1));
        let [a, b] = [&contrast.a, &contrast.b].map(|m| format!("{:.3}", m.value / scale));
        let _ = writeln!(out, "| {name} | {a} | {b} | {ratio} |");
    }
    out
}

/// Every pair in order of time, the estimate and no difference as lines; nothing of fewer than two pairs. (Bars of such a
/// chart start at the lower end of its axis, not at nothing.)
fn pairs(comparison: &Comparison) -> String {
    let metric = comparison.analysis.metric();
    let Ok(pairs) = pair_up(&comparison.samples) else { return String::new() };
    let changes: Vec<f64> =
        pairs.iter().map(|runs| change_of(runs, metric)).filter(|c| c.is_finite()).collect();
    let in_a_point = changes.len().div_ceil(MOST_POINTS).max(1);
    let points: Vec<f64> = changes.chunks(in_a_point).filter_map(median).collect();
    if points.len() < 2 {
        return String::new();
    }
    let [_, centre, _] = comparison.analysis.judged().map(percent);
    let (least, most) =
        points.iter().fold((centre.min(0.0), centre.max(0.0)), |(low, high), point| {
            (low.min(*point), high.max(*point))
        });
    let room = 0.05 * (most - least).max(0.1);
    let list = |values: &mut dyn Iterator<Item = f64>| {
        values.map(|value| format!("{value:.2}")).collect::<Vec<_>>().join(", ")
    };
    let of_each = match in_a_point {
        1 => "each pair".to_owned(),
        n => format!("each {n} pairs (median)"),
    };
    let chart = format!(
        "```mermaid\nxychart-beta\n  \
         title \"Change of {of_each} in order of time; estimate {centre:+.2} %\"\n  \
         x-axis 1 --> {}\n  y-axis \"change, %\" {:.2} --> {:.2}\n  line [{}]\n  line [{}]\n  line [{}]\n```\n",
        points.len(),
        least - room,
        most + room,
        list(&mut points.iter().copied()),
        list(&mut points.iter().map(|_| centre)),
        list(&mut points.iter().map(|_| 0.0)),
    );
    folded("Every pair", &chart)
}

/// A comparison of two result files.
#[must_use]
pub fn judgement(judgement: &Judgement) -> String {
    let mut out = format!("{} **{}**\n\n", sign(judgement.decision), judgement.decision);
    out += "| benchmark | unit | old | new | change | p | |\n|---|---|---|---|---|---|---|\n";
    let shown = |c: &Change| change([c.low_log, c.log_ratio, c.high_log], 1);
    for row in &judgement.rows {
        let _ = writeln!(
            out,
            "| {} | {} | {:.4} | {:.4} | {} | {} | {} {} |",
            cell(&row.name),
            cell(&row.unit),
            row.old.value,
            row.new.value,
            row_change(row),
            row.p_value.map_or("-".into(), p_words),
            sign(row.decision),
            row.decision
        );
    }
    for mean in &judgement.geomeans {
        let _ = writeln!(
            out,
            "| geomean of {} | {} | | | {} | | {} |",
            mean.rows,
            mean.unit,
            shown(&mean.change),
            if is_open(judgement, &mean.unit) { "no row is decided" } else { "" }
        );
    }
    let of_rows = judgement.rows.iter().flat_map(|r| &r.threats);
    let doubts: Vec<String> =
        judgement.threats.iter().chain(of_rows).map(ToString::to_string).collect();
    details(&mut out, &doubts);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::simulate::{Noise, SimulatedMachine};
    use crate::compare::{Settings, compare};

    #[test]
    fn many_pairs_share_bars_and_one_pair_has_none() {
        let text = |pairs| {
            let mut machine = SimulatedMachine::new(Noise::Quiet, pairs, 1);
            let settings = Settings { pairs, ..Settings::default() };
            comparison(&compare(&mut machine, &settings, &mut |_| {}).unwrap())
        };
        assert!(!text(1).contains("mermaid"));
        let many = text(90);
        assert!(
            many.contains("Change of each 3 pairs (median)") && many.contains("1 --> 30\n"),
            "{many}"
        );
    }

    #[test]
    fn a_comparison_is_a_line_a_table_and_doubts() {
        let mut machine = SimulatedMachine::new(Noise::Quiet, 20, 1);
        machine.effect_log = 0.2;
        let result = compare(&mut machine, &Settings::default(), &mut |_| {}).unwrap();
        let text = comparison(&result);
        assert!(text.starts_with("🔴 **slower**: +2"), "{text}");
        assert_eq!(text.lines().filter(|l| l.starts_with('|')).count(), 6);
        assert!(text.contains("<details>"));
        let chart = text.split("```mermaid\n").nth(1).unwrap().split("```").next().unwrap();
        assert!(chart.contains("Change of each pair in order of time; estimate +2"), "{chart}");
        let lines = chart.split("line [").skip(1).map(|rest| {
            let list = rest.split(']').next().unwrap().split(", ");
            list.map(|n| n.parse::<f64>().unwrap()).collect::<Vec<_>>()
        });
        let lines: Vec<Vec<f64>> = lines.collect();
        assert_eq!(lines.iter().map(Vec::len).collect::<Vec<_>>(), [20; 3]);
        assert!(lines[0].iter().all(|change| (10.0..40.0).contains(change)), "{chart}");
        assert!(lines[1].iter().all(|change| *change == lines[1][0]) && lines[2] == [0.0; 20]);
        assert_eq!(cell("a|b\nc"), "a\\|b c");
    }
}
