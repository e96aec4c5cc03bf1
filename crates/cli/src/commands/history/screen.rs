//! The screen of `history`: for each series where it steps, the picture, and what could be seen.

use stallscope::compare::history::{
    FEWEST, FEWEST_ON_A_SIDE, HistoryReport, HistorySeries, HistoryStep, NewestCommits, StepWord,
};

use super::chart::chart;
use crate::commands::words::{counted, part_words, percent};
use crate::terminal::{BAD, CAUTION, FAINT, GOOD, STRONG, paint, wrap};

/// Lines that are not believed and are shown; the rest is counted.
const SHOWN_DAMAGED: usize = 5;

/// The whole screen, styled; ends in a newline.
pub fn screen(report: &HistoryReport) -> String {
    let mut out = String::new();
    for series in &report.series {
        out += &of_series(series, report.effect);
        out.push('\n');
    }
    for damaged in report.damaged.iter().take(SHOWN_DAMAGED) {
        let text = format!("line {} is not believed: {}", damaged.line, damaged.what);
        out += &wrap("warning: ", &text);
    }
    let more = report.damaged.len().saturating_sub(SHOWN_DAMAGED);
    if more > 0 {
        let verb = if more == 1 { "is" } else { "are" };
        let text = format!("and {} {verb} not believed", counted(more, "more line"));
        out += &wrap("warning: ", &text);
    }
    if report.series.len() > 1 {
        let text = format!(
            "{} series: entries are held together only where reference, command, metric and machine are \
             the same",
            report.series.len()
        );
        out += &wrap("note: ", &text);
    }
    out
}

fn of_series(series: &HistorySeries, effect: f64) -> String {
    let key = &series.series;
    let title = format!("{} against {}", key.command.join(" "), key.reference.join(" "));
    let mut out = paint(STRONG, wrap("", &title).trim_end()) + "\n";
    let count = series.entries.len();
    let what = format!("{}, {}, {}", key.measure.noun(), counted(count, "commit"), key.machine);
    out += &paint(FAINT, wrap("  ", &what).trim_end());
    out.push('\n');
    for step in &series.steps {
        out += &sentence(step);
    }
    if series.steps.is_empty() {
        out += &wrap("  ", &without_step(series, effect));
    }
    if let Some(newest) = &series.newest {
        out += &wrap("  ", &newest_words(newest));
    }
    out += &chart(series);
    if series.left_out > 0 {
        out += &wrap("  ", &format!("{} older entries are left out", series.left_out));
    }
    if let Some(label) = &series.back_in_time {
        let text = format!(
            "{label} was measured before the commit in front of it: steps are about the order of the lines"
        );
        out += &wrap("warning: ", &text);
    }
    out
}

fn newest_words(newest: &NewestCommits) -> String {
    let which = match newest.count {
        1 => format!("the last commit, {}, differs", newest.label),
        count => format!("the last {count} commits, since {}, differ", newest.label),
    };
    format!(
        "{which} from those before: {}; too few for a step, which takes {FEWEST_ON_A_SIDE} and often more: \
         measure more commits, or this one again",
        part_words(newest.change)
    )
}

fn sentence(step: &HistoryStep) -> String {
    let (word, style) = match step.word {
        StepWord::Slower => ("slower", BAD),
        StepWord::Faster => ("faster", GOOD),
        StepWord::DriftSlower => ("drifts slower", BAD),
        StepWord::DriftFaster => ("drifts faster", GOOD),
        _ => ("no step", CAUTION),
    };
    if step.is_drift() {
        let text = format!(
            "from {} to {}: {}; a line over these commits fits as well as steps do, so no single one is named",
            step.before,
            step.label,
            part_words(step.change)
        );
        let text = wrap(&format!("  {word} "), &text);
        return format!("  {}{}", paint(style, word), &text[2 + word.len()..]);
    }
    let numbers =
        format!("since {}: {}, p = {:.4}", step.label, part_words(step.change), step.p_value);
    let rest = match (step.word, step.layout_reach_log) {
        (StepWord::WithinLayoutSpread, Some(reach)) => format!(
            "; placements of the same code differ by up to {:.1} %, so this can be where the code sits: \
             sweep {} and {} with --layouts",
            percent(reach),
            step.before,
            step.label
        ),
        (StepWord::TooSmall, _) => "; less than what matters (--effect)".to_owned(),
        (_, Some(reach)) => format!(
            "; the last one before is {}; placement alone would give at most {:.1} %",
            step.before,
            percent(reach)
        ),
        _ => format!(
            "; the last one before is {}. Placement alone moves programs by 1-3 %, and no layout spread \
             is known (compare --layout-spread, as sweep tells it)",
            step.before
        ),
    };
    // Painted behind the folding, which counts characters.
    let text = wrap(&format!("  {word} "), &(numbers + &rest));
    format!("  {}{}", paint(style, word), &text[2 + word.len()..])
}

fn without_step(series: &HistorySeries, effect: f64) -> String {
    if !series.enough {
        return format!(
            "too few commits to tell a step from noise: {} of {FEWEST}",
            series.entries.len()
        );
    }
    format!(
        "no step of {:.1} % or more; commits differ by {:.2} % (standard deviation)",
        100.0 * effect,
        percent(series.commit_sd_log)
    )
}

#[cfg(test)]
mod tests {
    use stallscope::compare::history::{HistoryFile, judge, parse};

    use super::*;
    use crate::terminal::plain;

    /// Commits whose noise is the digits of a well-known number.
    fn history(commits: usize, step_at: usize, layout: Option<f64>) -> HistoryFile {
        let digits = b"314159265358979323846264338327950288419716939937510582097494";
        let line = |i: usize| {
            let noise = f64::from(digits[i % digits.len()] - b'0') * 0.001;
            let log = noise + if i >= step_at { 0.02 } else { 0.0 };
            let layout = layout.map_or(String::new(), |sd| format!(",\"layout_sd_log\":{sd}"));
            format!(
                "{{\"label\":\"c{i}\",\"time_s\":1,\"reference\":[\"./reference\"],\
                 \"reference_fnv1a\":\"a\",\"command\":[\"./app\",\"input\"],\"metric\":\"wall\",\"measure\":\"auto\",\
                 \"machine\":\"amd-25-17-1\",\"program_fnv1a\":\"b\",\"decision\":\"inconclusive\",\
                 \"log_ratio\":{log},\"low_log\":{},\"high_log\":{},\"pairs\":20{layout}}}\n",
                log - 0.004,
                log + 0.004
            )
        };
        parse(&(0..commits).map(line).collect::<String>())
    }

    fn shown(mut file: HistoryFile, damaged: &str) -> String {
        file.damaged = parse(damaged).damaged;
        plain(&screen(&judge("speed.jsonl", file, 0.01, 1)))
    }

    #[test]
    fn a_step() {
        insta::assert_snapshot!(shown(history(40, 25, None), ""));
    }

    #[test]
    fn a_step_that_placement_explains() {
        insta::assert_snapshot!(shown(history(40, 25, Some(0.012)), ""));
    }

    #[test]
    fn no_step_and_damaged_lines() {
        insta::assert_snapshot!(shown(history(200, 999, None), &"x\n".repeat(7)));
    }

    #[test]
    fn too_few() {
        insta::assert_snapshot!(shown(history(6, 3, None), ""));
    }
}
