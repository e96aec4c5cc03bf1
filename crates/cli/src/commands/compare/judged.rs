//! `compare OLD NEW` with results of other tools: reading, the table in the manner of benchstat, and
//! the list of what can be held against the numbers.

use std::fmt::Write;
use std::path::Path;

use anyhow::bail;
use stallscope::compare::Decision;
use stallscope::compare::results::{
    Centre, Judgement, ResultError, ResultFile, Row, halves, judge, read,
};
use stallscope::report;

use super::CompareArgs;
use crate::commands::words::{change, counted, is_open, p_words, row_change, style_of};
use crate::context::{Context, Outcome};
use crate::terminal::{CAUTION, FAINT, STRONG, clip, paint, wrap};
use crate::{output, terminal};

/// Threats of single rows that are shown; the rest is counted, and all are in the JSON.
const SHOWN_THREATS: usize = 8;

pub fn run(args: &CompareArgs, context: &Context, paths: [&Path; 2]) -> anyhow::Result<Outcome> {
    if args.history.is_given() {
        bail!("--history keeps what two programs were found to be, not files of other tools");
    }
    let same = paths[0].canonicalize().ok().zip(paths[1].canonicalize().ok());
    if same.is_some_and(|(a, b)| a == b) {
        let [a, b] = paths.map(|p| p.display().to_string());
        return Err(ResultError::SameFile(a, b).into());
    }
    let [old, new] = [read(paths[0])?, read(paths[1])?];
    judged(args, context, [&old, &new])
}

/// The same of one file that holds two commands.
pub fn run_one(args: &CompareArgs, context: &Context, path: &Path) -> anyhow::Result<Outcome> {
    let [old, new] = halves(read(path)?)?;
    judged(args, context, [&old, &new])
}

fn judged(
    args: &CompareArgs,
    context: &Context,
    [old, new]: [&ResultFile; 2],
) -> anyhow::Result<Outcome> {
    let judgement = judge(old, new, args.effect(), args.adjustment())?;
    output::result(context, "judgement", &judgement)?;
    if context.shows_screen() {
        let text = if args.markdown {
            report::markdown::judgement(&judgement)
        } else {
            screen(&judgement)
        };
        terminal::print(&text)?;
    }
    let decisions: Vec<Decision> = judgement.rows.iter().map(|r| r.decision).collect();
    Ok(args.gate().map_or(Outcome::Fine, |gate| gate.outcome(&decisions)))
}

/// The whole screen, styled; ends in a newline.
fn screen(judgement: &Judgement) -> String {
    let mut out = String::new();
    // A rate that is the reciprocal of a time is the same finding.
    let own: Vec<&Row> = judgement.rows.iter().filter(|r| r.reciprocal_of.is_none()).collect();
    let count = |word| own.iter().filter(|r| r.decision == word).count();
    let words = [Decision::Slower, Decision::Faster, Decision::Equivalent, Decision::Inconclusive];
    let counts: Vec<String> = words
        .into_iter()
        .filter(|w| count(*w) > 0)
        .map(|w| paint(style_of(w), format!("{} {w}", count(w))))
        .collect();
    let _ = writeln!(out, "{} of {}", counts.join(", "), counted(own.len(), "benchmark"));
    for (name, file) in ["OLD", "NEW"].into_iter().zip(&judgement.files) {
        let _ = writeln!(out, "{} {} ({})", paint(STRONG, name), file.path, file.format);
    }
    out.push('\n');
    out += &table(judgement);
    for (name, only) in ["OLD", "NEW"].into_iter().zip(&judgement.only_in) {
        if !only.is_empty() {
            out += &wrap("", &format!("only in {name}: {}", only.join(", ")));
        }
    }
    out += &threats(judgement);
    out
}

fn table(judgement: &Judgement) -> String {
    let width =
        judgement.rows.iter().map(|r| r.name.chars().count()).max().unwrap_or(0).clamp(9, 22);
    let mut out = String::new();
    let mut unit = None;
    let mut rows: Vec<&Row> = judgement.rows.iter().collect();
    let mut units: Vec<&str> = Vec::new();
    for row in &judgement.rows {
        if !units.contains(&row.unit.as_str()) {
            units.push(&row.unit);
        }
    }
    rows.sort_by_key(|r| units.iter().position(|u| *u == r.unit));
    for row in rows {
        if unit != Some(&row.unit) {
            out += &mean(judgement, unit, width);
            let shown = if row.unit.is_empty() { "values" } else { &row.unit };
            let head = format!("{shown:<width$} {:>11} {:>11}  NEW vs OLD", "OLD", "NEW");
            let _ = writeln!(out, "{}", paint(STRONG, head.trim_end()));
            unit = Some(&row.unit);
        }
        out += &line(row, width);
    }
    out + &mean(judgement, unit, width)
}

fn line(row: &Row, width: usize) -> String {
    let name = clip(&row.name, width);
    let [old, new] = [row.old, row.new].map(amount);
    let change = row_change(row);
    let p = row.p_value.map_or(String::new(), |p| format!(" {}", p_words(p)));
    let n = match (row.old.n, row.new.n) {
        (0, 0) if row.p_value.is_some() => " (of means: normal noise)".into(),
        (0, 0) => String::new(),
        (a, b) if a == b => format!(" n={a}"),
        (a, b) => format!(" n={a}+{b}"),
    };
    let word = paint(style_of(row.decision), short(row.decision));
    format!("{name:<width$} {old:>11} {new:>11}  {word} {change}{p}{n}\n")
}

/// A sign that stands in for the word in a narrow table.
fn short(word: Decision) -> &'static str {
    match word {
        Decision::Slower => "worse ",
        Decision::Faster => "better",
        Decision::Equivalent => "same  ",
        Decision::Inconclusive => "~     ",
    }
}

fn mean(judgement: &Judgement, unit: Option<&String>, width: usize) -> String {
    let found = judgement.geomeans.iter().find(|g| Some(&g.unit) == unit);
    let Some(mean) = found else {
        return if unit.is_some() { "\n".into() } else { String::new() };
    };
    let c = &mean.change;
    let text = change([c.low_log, c.log_ratio, c.high_log], 2);
    let (word, open) = match is_open(judgement, &mean.unit) {
        true => ("~", ", no row is decided"),
        false => ("", ""),
    };
    let text = format!("{:<width$} {:>11} {:>11}  {word:<6} {text}{open}", "geomean", "", "");
    format!("{}\n\n", paint(FAINT, text))
}

/// The middle with half the distance of the quartiles (of the spread, where only that was kept).
fn amount(centre: Centre) -> String {
    let half = (centre.high - centre.low) / 2.0 / centre.value;
    let spread = match 100.0 * half {
        _ if centre.value == 0.0 || (centre.n == 0 && half == 0.0) => String::new(),
        half if half < 100.0 => format!("±{half:.0}%"),
        _ => "±>99%".into(),
    };
    middle(centre.value) + &spread
}

fn middle(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        v if v.abs() >= 1e7 => format!("{v:.4e}"),
        v if v.abs() >= 1000.0 => format!("{v:.0}"),
        v if v.abs() >= 10.0 => format!("{v:.2}"),
        v if v.abs() >= 0.001 => format!("{v:.5}"),
        v => format!("{v:.3e}"),
    }
}

fn threats(judgement: &Judgement) -> String {
    let mut out = String::new();
    let label = |text: &str| -> String {
        let lines = wrap("threat: ", text);
        format!("{}{}", paint(CAUTION, "threat:"), &lines["threat:".len()..])
    };
    for threat in &judgement.threats {
        out += &label(&threat.to_string());
    }
    let of_rows: Vec<_> = judgement.rows.iter().flat_map(|r| &r.threats).collect();
    for threat in of_rows.iter().take(SHOWN_THREATS) {
        out += &label(&threat.to_string());
    }
    if let Some(more) = of_rows.len().checked_sub(SHOWN_THREATS).filter(|n| *n > 0) {
        out += &format!("and {more} more about single benchmarks (--json lists them)\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use stallscope::compare::results::parse;
    use stallscope::stats::families::Adjustment;

    use super::*;
    use crate::terminal::plain;

    #[test]
    fn a_go_file_in_the_manner_of_benchstat() {
        let text = |name: &str| {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../compare/tests/results/");
            parse(name, &std::fs::read_to_string(format!("{path}{name}")).unwrap()).unwrap()
        };
        let judged = judge(&text("old.txt"), &text("new.txt"), 0.01, Adjustment::Holm).unwrap();
        insta::assert_snapshot!(plain(&screen(&judged)));
    }
}
