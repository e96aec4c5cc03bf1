//! The screen of `compare`: the verdict first, then the numbers with their spread, then doubts.

use std::fmt::Write;

use anstyle::Style;
use stallscope::compare::{
    Analysis, ArmRecord, Comparison, Contrast, Decision, Doubt, MAX_PAIRS, Measure, Metric,
    Severity, Warning,
};

use crate::commands::cpu_args;
use crate::commands::words::{change, decimals, percent, rough, share_words};
use crate::terminal::{BAD, CAUTION, FAINT, GOOD, STRONG, clip, paint, width, wrap};

/// The whole screen, styled; ends in a newline. Notes that nothing depends on are counted, unless all are asked for.
pub fn screen(comparison: &Comparison, verbose: bool) -> String {
    let analysis = &comparison.analysis;
    let mut out = String::new();
    out += &verdict(comparison);
    out.push('\n');
    for (name, arm) in ["A", "B"].into_iter().zip(&comparison.arms) {
        let _ = writeln!(out, "{} {}", paint(STRONG, name), shortened(arm));
    }
    out.push('\n');
    out += &table(analysis);
    out.push('\n');
    out += &provenance(comparison);
    let is_told = |known: &&Warning| verbose || is_needed(known, analysis.verdict.decision);
    for known in analysis.warnings.iter().filter(is_told) {
        out += &warning(known, known.severity());
    }
    let left_out = analysis.warnings.iter().filter(|known| !is_told(known)).count();
    if left_out > 0 {
        let notes = if left_out == 1 { "note" } else { "notes" };
        let _ = writeln!(out, "{}", paint(FAINT, format!("{left_out} more {notes}: --verbose")));
    }
    out
}

/// Whether a reader must know it before believing the verdict: of what changes nothing in it, where there is one, what is
/// about the programs.
fn is_needed(warning: &Warning, verdict: Decision) -> bool {
    let is_decided = matches!(verdict, Decision::Slower | Decision::Faster);
    let is_of_machine =
        matches!(warning, Warning::Spread { .. } | Warning::Disturbed(_) | Warning::SharedCore(_));
    warning.severity() == Severity::Caution || is_decided && !is_of_machine
}

/// A warning behind its label.
pub fn warning(warning: &Warning, severity: Severity) -> String {
    let (label, style) = match severity {
        Severity::Caution => ("warning: ", CAUTION),
        Severity::Note => ("note: ", FAINT),
    };
    wrapped(&paint(style, label.trim_end()), label.len() - 1, &warning.to_string())
}

/// The word with its interval, and how it was found.
pub fn verdict(comparison: &Comparison) -> String {
    let analysis = &comparison.analysis;
    let wall = &analysis.wall;
    let [low, centre, high] = analysis.judged().map(percent);
    let d = decimals(low, high);
    let word = analysis.verdict.decision;
    let signed = change(analysis.judged(), 0);
    let effect = share_words(comparison.settings.effect);
    let by_processor =
        comparison.settings.measure == Measure::Auto && analysis.metric() == Metric::Cpu;
    let what = if by_processor { Measure::Cpu } else { comparison.settings.measure.clone() }.noun();
    let in_what = if by_processor { ", in processor time" } else { "" };
    let (style, rest) = match word {
        Decision::Slower => (BAD, format!(" by {centre:.d$} % [{low:.d$}, {high:.d$}]{in_what}")),
        Decision::Faster => {
            (GOOD, format!(" by {:.d$} % [{:.d$}, {:.d$}]{in_what}", -centre, -high, -low))
        }
        Decision::Equivalent => (GOOD, format!(" within ±{effect}: {what} changes by {signed}")),
        Decision::Inconclusive => (CAUTION, format!(": {what} changes by {signed}")),
    };
    let mut out = format!("{}{rest}\n", paint(style, word));
    let confidence = match wall.confidence {
        c if c >= 0.95 => "95 % interval".to_owned(),
        c => format!("only {:.0} % interval", 100.0 * c),
    };
    let n = wall.estimate.n;
    let pairs = if n == 1 { "pair" } else { "pairs" };
    let how = match &analysis.sequence {
        Some(_) => format!(
            "{n} {pairs}, looked at after every pair: 95 % confidence sequence of the mean log ratio"
        ),
        None => format!(
            "{confidence}, {n} {pairs}, Hodges-Lehmann of paired log ratios, p = {}",
            p_value(wall.signed_rank.p_value)
        ),
    };
    out += &wrapped("", 1, &how);
    for line in outlook(comparison) {
        out += &wrapped("", 1, &line);
    }
    out
}

/// What could have been seen, and what to do next.
fn outlook(comparison: &Comparison) -> Vec<String> {
    let verdict = &comparison.analysis.verdict;
    let effect = share_words(comparison.settings.effect);
    let mut lines = Vec::new();
    if let (Some(log), Decision::Inconclusive | Decision::Equivalent) =
        (verdict.detectable_log, verdict.decision)
    {
        lines.push(format!(
            "smallest effect these pairs show in 4 of 5 tries: {:.2} %",
            percent(log)
        ));
    }
    match verdict.doubt {
        Some(Doubt::TooFewPairs) => {
            lines.push("fewer than 6 pairs never decide: use --pairs 20".into());
        }
        Some(Doubt::RealButSmall) => lines.push(format!(
            "there is a difference, but whether it reaches {effect} is open: more pairs, or a \
             smaller --effect"
        )),
        Some(Doubt::IdenticalFiles) => lines.push(
            "the files are byte-identical, so this difference is the machine's, or comes from the path, \
             the name or the environment: it is no difference between two programs"
                .into(),
        ),
        Some(Doubt::HiddenMemory) => lines.push(
            "both may need less memory than the copy of stallscope that each run begins as, which the \
             kernel counts, too: how they differ is not known"
                .into(),
        ),
        Some(Doubt::TooNoisy) => lines.push(more_pairs(comparison, &effect)),
        _ => {}
    }
    lines
}

fn more_pairs(comparison: &Comparison, effect: &str) -> String {
    let have = comparison.analysis.wall.estimate.n as u64;
    let total_ns: u64 = comparison.samples.iter().map(|s| s.amounts.wall_ns).sum();
    match comparison.analysis.verdict.pairs_needed {
        Some(n) if n > u64::from(MAX_PAIRS) => {
            format!(
                "too noisy for {effect} ({n} pairs): a quieter machine or longer runs are needed"
            )
        }
        Some(n) if n > have => format!(
            "to see {effect} here: --pairs {n}, about {}",
            rough(total_ns / have.max(1) * n)
        ),
        Some(_) => format!("these pairs should have shown {effect}; try again with twice as many"),
        None => format!("too noisy for {effect}: a quieter machine or longer runs are needed"),
    }
}

fn p_value(p: f64) -> String {
    if p < 0.0001 { format!("{p:.0e}") } else { format!("{p:.4}") }
}

pub fn shortened(arm: &ArmRecord) -> String {
    clip(&arm.display().replace(char::is_control, " "), width() - 2)
}

fn table(analysis: &Analysis) -> String {
    let changes = format!("B vs A [{:.0} %]", 100.0 * analysis.wall.confidence.min(0.95));
    let head = ["", "A median [quartiles]", "B median [quartiles]", &changes];
    let mut out = row(head, STRONG);
    for (number, contrast) in analysis.contrasts.iter().enumerate() {
        let (scale, unit) = scale_of(contrast);
        let typical = |m: &stallscope::model::Measurement| {
            let [value, low, high] = [m.value, m.low, m.high].map(|ns| three_digits(ns / scale));
            format!("{value} [{low}, {high}]")
        };
        let change = contrast.ratio.as_ref().map_or_else(
            || "- (too short to time)".into(),
            |r| {
                // What is judged comes first, and has the same interval here as in the verdict.
                let logs = match number {
                    0 => analysis.judged(),
                    _ => [r.low_log, r.log_ratio, r.high_log],
                };
                change(logs, 0)
            },
        );
        let name = match contrast.metric {
            Metric::Wall => "wall",
            Metric::Cpu => "cpu",
            Metric::User => "user",
            Metric::System => "system",
            Metric::Memory => "peak",
            Metric::Printed => "printed",
            Metric::Counted => "counted",
        };
        let name = format!("{name} {unit}");
        out += &row([&name, &typical(&contrast.a), &typical(&contrast.b), &change], Style::new());
    }
    out
}

fn row([name, a, b, change]: [&str; 4], style: Style) -> String {
    let line = format!("{name:<10} {a:<22} {b:<22} {change}");
    format!("{}\n", paint(style, line.trim_end()))
}

fn scale_of(contrast: &Contrast) -> (f64, &'static str) {
    match contrast.metric {
        Metric::Memory => return (f64::from(1 << 20), "MiB"),
        Metric::Printed | Metric::Counted => return (1.0, ""),
        _ => {}
    }
    time_scale([contrast.a.value, contrast.b.value].into_iter())
}

/// The unit in which these times, in nanoseconds, read well.
pub fn time_scale(times_ns: impl Iterator<Item = f64>) -> (f64, &'static str) {
    match times_ns.fold(0.0, f64::max) {
        ns if ns >= 1e9 => (1e9, "s"),
        ns if ns >= 1e6 => (1e6, "ms"),
        _ => (1e3, "us"),
    }
}

/// A number with about four significant digits, without an exponent.
pub fn three_digits(value: f64) -> String {
    match value {
        v if v >= 1000.0 => format!("{v:.0}"),
        v if v >= 100.0 => format!("{v:.1}"),
        v if v >= 10.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

fn provenance(comparison: &Comparison) -> String {
    let settings = &comparison.settings;
    let cpu = cpu_args::words(settings.cpus.as_ref());
    let line = format!(
        "order {}, seed {}, {cpu}, noise of a pair {:.2} % (robust sd)",
        settings.order,
        settings.seed,
        percent(comparison.analysis.diagnostics.pair_sd_log)
    );
    format!("{}\n", paint(FAINT, line))
}

/// `text` behind `label` (of `label_width` columns), folded at blanks, hanging under its first word.
fn wrapped(label: &str, label_width: usize, text: &str) -> String {
    // The label may be painted, so it replaces as many blanks as it is wide.
    let blanks = " ".repeat(label_width + 1);
    let lines = wrap(&blanks, text);
    if label.is_empty() { lines } else { format!("{label} {}", &lines[blanks.len()..]) }
}

#[cfg(test)]
mod tests {
    use stallscope::clock::Cpus;
    use stallscope::compare::simulate::{Noise, SimulatedMachine};
    use stallscope::compare::{Settings, compare};

    use super::*;
    use crate::terminal::plain;

    fn shown(change: impl Fn(&mut SimulatedMachine), noise: Noise, pairs: u32) -> String {
        let mut machine = SimulatedMachine::new(noise, pairs, 11);
        change(&mut machine);
        let settings =
            Settings { pairs, seed: 42, cpus: Some(Cpus::one(1)), ..Settings::default() };
        let result = compare(&mut machine, &settings, &mut |_| {}).unwrap();
        plain(&screen(&result, false))
    }

    #[test]
    fn slower() {
        insta::assert_snapshot!(shown(|m| m.effect_log = 0.345, Noise::Quiet, 20));
    }

    #[test]
    fn faster() {
        insta::assert_snapshot!(shown(|m| m.effect_log = -0.1, Noise::Quiet, 20));
    }

    #[test]
    fn equivalent() {
        insta::assert_snapshot!(shown(|m| m.run_sd_log = 0.004, Noise::Quiet, 40));
    }

    #[test]
    fn inconclusive() {
        insta::assert_snapshot!(shown(|m| m.run_sd_log = 0.03, Noise::Quiet, 20));
    }

    #[test]
    fn what_is_judged_has_one_interval() {
        let mut machine = SimulatedMachine::new(Noise::Quiet, 200, 11);
        machine.effect_log = 0.05;
        let until = Some(stallscope::compare::Until::Verdict);
        let settings = Settings { pairs: 200, until, ..Settings::default() };
        let result = compare(&mut machine, &settings, &mut |_| {}).unwrap();
        let text = plain(&screen(&result, false));
        let bracket = |line: &str| {
            let inside = line.rsplit_once('[').and_then(|(_, rest)| rest.split_once(']'));
            inside.map(|(ends, _)| ends.replace('+', "")).unwrap_or_default()
        };
        let headline = bracket(text.lines().next().unwrap());
        let row = bracket(text.lines().find(|l| l.starts_with("wall")).unwrap());
        assert!(!row.is_empty() && headline == row, "{text}");
    }

    #[test]
    fn notes_that_nothing_depends_on_are_counted_unless_all_are_asked_for() {
        let machine = || SimulatedMachine::new(Noise::Quiet, 40, 11);
        let of = |effect_log: f64, verbose: bool| {
            let mut machine = machine();
            machine.effect_log = effect_log;
            let settings = Settings { pairs: 40, seed: 42, ..Settings::default() };
            let mut result = compare(&mut machine, &settings, &mut |_| {}).unwrap();
            result.analysis.warnings.push(Warning::Spread { cpus: "CPUs 0-1".into() });
            plain(&screen(&result, verbose))
        };
        let same = of(0.0, false);
        assert!(!same.contains("note:") && same.contains("2 more notes: --verbose"), "{same}");
        // Of a difference, that it is one of two builds must be known.
        let slower = of(0.3, false);
        assert!(slower.contains("one build each") && slower.contains("1 more note: --verbose"));
        let all = of(0.0, true);
        assert!(all.matches("note:").count() == 2 && !all.contains("more note"), "{all}");
    }

    #[test]
    fn real_but_small() {
        let change = |m: &mut SimulatedMachine| (m.effect_log, m.run_sd_log) = (0.0075, 0.006);
        insta::assert_snapshot!(shown(change, Noise::Quiet, 20));
    }

    #[test]
    fn too_few_pairs() {
        insta::assert_snapshot!(shown(|m| m.effect_log = 0.2, Noise::Quiet, 4));
    }

    #[test]
    fn drifting_with_spikes_and_waiting() {
        let change = |m: &mut SimulatedMachine| {
            m.base_ns = 0.7e6;
            m.slot_effect_log = 0.05;
        };
        insta::assert_snapshot!(shown(change, Noise::LinearDrift(0.1), 30));
        insta::assert_snapshot!(shown(|_| {}, Noise::Spikes(0.2), 40));
    }
}
