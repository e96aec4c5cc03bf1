//! One screen: the difference, the function, the site, the mechanism, the grade, what is open.

use stallscope::code::SourceText;
use stallscope::compare::{Comparison, Decision, Metric};
use stallscope::explain::{Cause, Conclusion, Explanation, FunctionRow};
use stallscope::model::Measurement;

use crate::commands::site;
use crate::terminal::{BAD, CAUTION, FAINT, GOOD, STRONG, WIDTH, paint, wrap};

/// Further rows of the difference that are shown.
const MOST_ROWS: usize = 5;
const INDENT: usize = 9;

/// The whole answer as text.
pub fn screen(explanation: &Explanation, text: &mut SourceText) -> String {
    let mut out = verdict(&explanation.comparison);
    match explanation.conclusion {
        Conclusion::NothingToExplain => {
            out += &wrap("so       ", "there is no difference to explain, and none was looked for");
        }
        Conclusion::Mechanism => {
            if let Some(cause) = explanation.causes.first() {
                out += &cause_text(explanation, cause, text);
            }
        }
        Conclusion::NoMechanism => {
            for (label, row) in std::iter::once("where    ")
                .chain(std::iter::repeat("         "))
                .zip(&explanation.rows)
                .take(MOST_ROWS)
            {
                out += &row_text(label, row);
            }
        }
    }
    for open in &explanation.unexplained {
        out += &wrap("open     ", open);
    }
    if let Some(heat) = &explanation.heat {
        let [a, b] = heat;
        let sampled = format!(
            "{} every {:.1} ms: {} samples in {} runs of BEFORE, {} in {} of AFTER; of {} functions {} changed, {} moved, {} new, {} gone",
            a.engine,
            a.period_ns as f64 / 1e6,
            a.samples,
            a.runs,
            b.samples,
            b.runs,
            explanation.census.same
                + explanation.census.moved
                + explanation.census.changed
                + explanation.census.gone,
            explanation.census.changed,
            explanation.census.moved,
            explanation.census.new,
            explanation.census.gone,
        );
        out += &wrap("how      ", &sampled);
    }
    for note in &explanation.notes {
        out += &wrap("note     ", note);
    }
    for warning in &explanation.comparison.analysis.warnings {
        out += &wrap("note     ", &warning.to_string());
    }
    out
}

fn verdict(comparison: &Comparison) -> String {
    let analysis = &comparison.analysis;
    let style = match analysis.verdict.decision {
        Decision::Slower => BAD,
        Decision::Faster | Decision::Equivalent => GOOD,
        Decision::Inconclusive => CAUTION,
    };
    let percent = |log: f64| 100.0 * log.exp_m1();
    let wall = &analysis.wall;
    let mut out = format!(
        "{} by {:+.1} % [{:+.1}, {:+.1}]\n",
        paint(style, analysis.verdict.decision),
        percent(wall.log_ratio),
        percent(wall.low_log),
        percent(wall.high_log),
    );
    out += &paint(
        FAINT,
        wrap(
            "         ",
            &format!(
                "AFTER against BEFORE in wall time, {:.0} %, {} pairs, Hodges-Lehmann of paired log ratios, seed {}",
                100.0 * wall.confidence,
                comparison.settings.pairs,
                comparison.settings.seed,
            ),
        ),
    );
    let contrast = analysis.contrasts.iter().find(|c| c.metric == Metric::Wall);
    if let Some(contrast) = contrast {
        for (name, arm, time) in [("BEFORE", 0, &contrast.a), ("AFTER ", 1, &contrast.b)] {
            out += &format!(
                "{name}   {}  {}\n",
                milliseconds(time),
                comparison.arms[arm].command.join(" ")
            );
        }
    }
    out
}

fn milliseconds(m: &Measurement) -> String {
    format!("{:.1} ms [{:.1}, {:.1}]", m.value / 1e6, m.low / 1e6, m.high / 1e6)
}

fn percent(m: &Measurement) -> String {
    format!("{:.1} % [{:.1}, {:.1}]", m.value, m.low, m.high)
}

fn row_text(label: &str, row: &FunctionRow) -> String {
    let name = site::clip(site::short_name(row.place.name()), 60);
    format!("{label}{} ({})\n", paint(STRONG, name), row.place.change_words())
        + &wrap(
            "         ",
            &format!(
                "user time {} -> {}: {} of the difference",
                milliseconds(&row.before),
                milliseconds(&row.after),
                percent(&row.share_of_difference),
            ),
        )
}

fn cause_text(explanation: &Explanation, cause: &Cause, text: &mut SourceText) -> String {
    let finding = &cause.finding;
    let mut out = String::new();
    if let Some(row) = explanation.rows.iter().find(|r| r.place.name() == finding.site.function) {
        out += &row_text("where    ", row);
    }
    let lines = cause
        .loop_heat
        .lines
        .as_ref()
        .map(|(first, last)| format!(", {first}-{}", last.line))
        .unwrap_or_default();
    out += &wrap(
        "         ",
        &format!(
            "loop {}..{}{lines}: {} of the function's samples",
            cause.loop_heat.start,
            cause.loop_heat.end,
            percent(&cause.loop_heat.share_of_function),
        ),
    );
    out += "site     this load\n";
    out += &site::site(&finding.site, INDENT, text);
    for line in &cause.mentions {
        let line = site::clip(&site::source_line(line, text), WIDTH - INDENT - 10);
        out += &format!("                   {}\n", paint(FAINT, line));
    }
    out += "         reads what these stores wrote\n";
    out += &site::stores(finding, cause.hottest_set.unwrap_or(0), INDENT, text);
    out += &wrap(
        "         ",
        &format!(
            "{} of the loop's samples are on the load and the few instructions behind it, which wait",
            percent(&cause.share_behind_site),
        ),
    );
    out += &wrap("why      ", &format!("store-to-load forwarding fails: {}", finding.mechanism));
    let other = match cause.in_other_arm {
        0 => "the matching function of the other build has no such site".to_owned(),
        n => format!("the matching function of the other build has {n} such sites too"),
    };
    out += &wrap("grade    ", &format!("{}: {}; {other}", finding.grade, finding.grade.meaning()));
    out += &wrap("try      ", &finding.remedy);
    out
}
