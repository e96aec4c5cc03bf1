//! Results for a comment on a pull request: one line with the word, one table, the doubts folded away.

use std::fmt::Write;

use crate::compare::results::{Change, Judgement};
use crate::compare::{Comparison, Decision, Metric, Warning};
use crate::explain::{Explanation, Ledger};
use crate::foreign::plain;
use crate::machine::PriceOrigin;
use crate::machine::survey::{Entry, Relation, Survey};

/// Places that are listed.
const MOST_PLACES: usize = 5;

/// A log ratio with its interval in per cent.
fn change(log: f64, low: f64, high: f64) -> String {
    let [c, l, h] = [log, low, high].map(|x| 100.0 * x.exp_m1());
    format!("{c:+.1} % [{l:+.1}, {h:+.1}]")
}

/// Text that does not end a table's cell.
pub(super) fn cell(text: &str) -> String {
    plain(&text.replace(['\n', '\r'], " ")).replace('|', "\\|").replace('<', "&lt;")
}

fn details(out: &mut String, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    out.push_str("\n<details><summary>What to know before believing it</summary>\n\n");
    for line in lines {
        let _ = writeln!(out, "- {}", cell(line));
    }
    out.push_str("\n</details>\n");
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
    let mut out = verdict(comparison) + &metrics(comparison, ["A", "B"]);
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
            "| `{}` | {} | {:.1} % | {} |",
            cell(&ledger.place),
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
    let [low, log, high] = analysis.judged();
    format!(
        "{} **{word}**: {} (95 % interval, {} pairs)\n\n",
        sign(word),
        change(log, low, high),
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
            .map_or("-".into(), |r| change(r.log_ratio, r.low_log, r.high_log));
        let [a, b] = [&contrast.a, &contrast.b].map(|m| format!("{:.3}", m.value / scale));
        let _ = writeln!(out, "| {name} | {a} | {b} | {ratio} |");
    }
    out
}

/// A comparison of two result files.
#[must_use]
pub fn judgement(judgement: &Judgement) -> String {
    let mut out = format!("{} **{}**\n\n", sign(judgement.decision), judgement.decision);
    out += "| benchmark | unit | old | new | change | p | |\n|---|---|---|---|---|---|---|\n";
    let shown = |c: &Change| change(c.log_ratio, c.low_log, c.high_log);
    for row in &judgement.rows {
        let _ = writeln!(
            out,
            "| {} | {} | {:.4} | {:.4} | {} | {} | {} {} |",
            cell(&row.name),
            cell(&row.unit),
            row.old.value,
            row.new.value,
            row.change.as_ref().map_or("-".into(), shown),
            row.p_value.map_or("-".into(), |p| format!("{p:.3}")),
            sign(row.decision),
            row.decision
        );
    }
    for mean in &judgement.geomeans {
        let _ = writeln!(
            out,
            "| geomean of {} | {} | | | {} | | |",
            mean.rows,
            mean.unit,
            shown(&mean.change)
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
    fn a_comparison_is_a_line_a_table_and_doubts() {
        let mut machine = SimulatedMachine::new(Noise::Quiet, 20, 1);
        machine.effect_log = 0.2;
        let result = compare(&mut machine, &Settings::default(), &mut |_| {}).unwrap();
        let text = comparison(&result);
        assert!(text.starts_with("🔴 **slower**: +2"), "{text}");
        assert_eq!(text.lines().filter(|l| l.starts_with('|')).count(), 6);
        assert!(text.contains("<details>"));
        assert_eq!(cell("a|b\nc"), "a\\|b c");
    }
}
