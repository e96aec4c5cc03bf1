//! The budget: counts of both builds, and the measured difference: stated, from a file, or measured here.

use std::path::Path;

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde::de::IgnoredAny;
use stallscope::compare::{Comparison, Decision, Metric};
use stallscope::explain::{measured_difference, shows_difference};
use stallscope::foreign;
use stallscope::layout::{Budget, EffectKind, EventCount, LayoutReport, MeasuredDifference};
use stallscope::machine::Design;

use super::LayoutArgs;

/// Where the machine profile has no clock.
const USUAL_GHZ: f64 = 3.0;

/// A difference of whole runs, and the time before where that is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// What was found; its cycles are not known yet.
    found: MeasuredDifference,
    before_ns: Option<f64>,
}

impl Difference {
    /// What was measured here.
    pub fn of(comparison: &Comparison) -> Self {
        let before_ns = comparison.analysis.contrast(Metric::Wall).map(|wall| wall.a.value);
        Self { found: measured_difference(comparison, 0.0), before_ns }
    }
}

/// More than this is no comparison of programs.
const MOST_BYTES: u64 = 16 << 20;

/// What is needed of the JSON of `compare`; the rest is not kept.
#[derive(Deserialize)]
struct Document {
    result: Compared,
}

#[derive(Deserialize)]
struct Compared {
    analysis: Analysed,
    #[serde(default)]
    samples: Vec<IgnoredAny>,
}

#[derive(Deserialize)]
struct Analysed {
    wall: Wall,
    verdict: Option<Verdict>,
    #[serde(default)]
    contrasts: Vec<Contrast>,
}

#[derive(Deserialize)]
struct Wall {
    log_ratio: f64,
    low_log: Option<f64>,
    high_log: Option<f64>,
}

#[derive(Deserialize)]
struct Verdict {
    decision: Decision,
}

#[derive(Deserialize)]
struct Contrast {
    a: Median,
}

#[derive(Deserialize)]
struct Median {
    value: f64,
    unit: String,
}

impl Document {
    fn difference(self) -> Difference {
        let Analysed { wall, verdict, contrasts } = self.result.analysis;
        let decision = verdict.map(|v| v.decision);
        let nanoseconds = |before: &Median| match before.unit.as_str() {
            "nanoseconds" => Some(before.value),
            "seconds" => Some(before.value * 1e9),
            _ => None,
        };
        let before_ns = contrasts.first().and_then(|contrast| nanoseconds(&contrast.a));
        let interval = wall.low_log.zip(wall.high_log);
        let found = MeasuredDifference {
            interval: interval.map(|(low, high)| [low.exp_m1(), high.exp_m1()]),
            differs: decision.map(shows_difference),
            verdict: decision.map(|d| d.to_string()),
            pairs: Some(self.result.samples.len() / 2).filter(|pairs| *pairs > 0),
            ..MeasuredDifference::stated(0.0, wall.log_ratio.exp_m1())
        };
        Difference { found, before_ns }
    }
}

/// Reads `15%`, `-3 %`, or the JSON result of `compare`.
pub fn difference(text: &str) -> anyhow::Result<Difference> {
    if let Some(number) = text.trim().strip_suffix('%') {
        let percent: f64 =
            number.trim().parse().ok().filter(|n: &f64| n.is_finite()).with_context(|| {
                format!("--measured {text}: write a difference like 15% or -3%, or name a file")
            })?;
        let found = MeasuredDifference::stated(0.0, percent / 100.0);
        return Ok(Difference { found, before_ns: None });
    }
    let path = Path::new(text);
    let content = foreign::read_text(path, MOST_BYTES).with_context(|| {
        format!("--measured {text}: neither a difference like 15% nor a file that can be read")
    })?;
    let document = foreign::from_json::<Document>(&content).ok();
    document.map(Document::difference).with_context(|| {
        format!("{text} is no result of `stallscope compare --json {text} BEFORE AFTER`")
    })
}

/// A time with its unit in nanoseconds: `36.5us`, `1.2s`.
pub fn time_ns(text: &str) -> Result<f64, String> {
    let wrong = || "write a time with its unit, like 36us, 5ms or 1.2s".to_owned();
    let split = text.find(|c: char| c.is_alphabetic()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err(wrong()),
    };
    let value: f64 = number.trim().parse().map_err(|_| wrong())?;
    if value.is_finite() && value > 0.0 { Ok(value * scale) } else { Err(wrong()) }
}

/// Everything that was counted in both builds, priced; `None` for one build or without counts.
pub fn budget(
    args: &LayoutArgs,
    profile: &Design,
    report: &LayoutReport,
    difference: Option<Difference>,
) -> anyhow::Result<Option<Budget>> {
    let counts = counts(profile, report);
    if counts.is_empty() && !args.measure {
        if difference.is_some() {
            bail!(
                "--measured needs two builds of which executions were counted: add --trace \
                 FUNCTION, --windows, or callgrind's counts as --samples"
            );
        }
        return Ok(None);
    }
    let measured = difference.map(|d| measured(args, profile, report, d)).transpose()?;
    Ok(Some(Budget::of(counts, measured)))
}

fn measured(
    args: &LayoutArgs,
    profile: &Design,
    report: &LayoutReport,
    difference: Difference,
) -> anyhow::Result<MeasuredDifference> {
    let probed = || profile.environment.as_ref()?.clock.as_ref()?.core_rate.as_ref();
    let probed = probed().map(|mhz| mhz.value / 1000.0);
    let ghz = args.ghz.or(probed).unwrap_or(USUAL_GHZ);
    if !(ghz.is_finite() && ghz > 0.0) {
        bail!("--ghz {ghz}: write the clock of the processor, like 3.07");
    }
    // A comparison gives the time of whole runs; a window is one operation of a run.
    let operations = match (args.operations, report.windows.is_empty()) {
        (Some(operations), _) => Some(operations as f64),
        (None, whole_runs) => whole_runs.then_some(1.0),
    };
    let of_runs = difference.before_ns.zip(operations).map(|(ns, operations)| ns / operations);
    let before_ns = args.takes.or(of_runs).context(
        "--measured also needs how long it took: --takes DURATION, of one call of the window or of \
         the whole run that was counted",
    )?;
    Ok(MeasuredDifference { operation_cycles: before_ns * ghz, ..difference.found })
}

fn counts(profile: &Design, report: &LayoutReport) -> Vec<EventCount> {
    let ([before, after], Some(sets)) = (report.front_end.as_slice(), &report.sets) else {
        return Vec::new();
    };
    if !sets.heat.iter().all(|h| h.is_complete) {
        return Vec::new();
    }
    let operations = |arm: usize| report.windows.get(arm).map_or(1.0, |w| w.operations as f64);
    let each = |before: u64, after: u64| {
        ([before as f64 / operations(0); 2], [after as f64 / operations(1); 2])
    };
    let mut all = Vec::new();
    let mut add = |kind, (before, after), each| {
        all.push(EventCount { kind, before, after, each });
    };
    if let (Some(price), Some(b), Some(a)) = (
        profile.jump_at_boundary_price(),
        before.jumps.executed_on_boundary,
        after.jumps.executed_on_boundary,
    ) {
        add(EffectKind::BoundaryJumps, each(b, a), price);
    }
    let misses = match report.windows.as_slice() {
        [b, a] => Some(([b.misses_per_operation; 2], [a.misses_per_operation; 2])),
        _ => sets.heat[0].misses.zip(sets.heat[1].misses).map(|(b, a)| each(b, a)),
    };
    if let Some(misses) = misses {
        add(EffectKind::CodeMisses, misses, profile.code_miss_price());
    }
    if let (Some(b), Some(a)) = (&before.decoded, &after.decoded) {
        let misses = (b.misses_per_operation, a.misses_per_operation);
        add(EffectKind::DecodedMisses, misses, profile.decode_again_price());
    }
    if let (Some(b), Some(a)) = (before.page_refills, after.page_refills) {
        add(EffectKind::PageRefills, (b, a), profile.code_tlb_refill_price());
    }
    let windows = each(before.extra_windows, after.extra_windows);
    add(EffectKind::ExtraWindows, windows, profile.extra_window_price());
    all
}

#[cfg(test)]
mod tests {
    use stallscope::compare::simulate::{Noise, SimulatedMachine};
    use stallscope::compare::{Settings, compare};

    use super::*;

    #[test]
    fn differences_and_times_are_read_with_their_units() {
        let share = |text| difference(text).unwrap().found.share;
        assert!((share("15%") - 0.15).abs() < 1e-12 && (share("-3 %") + 0.03).abs() < 1e-12);
        assert!(difference("15").unwrap_err().to_string().contains("neither"));
        assert!(difference("x%").is_err() && difference("inf%").is_err());
        let close = |text, ns: f64| (time_ns(text).unwrap() / ns - 1.0).abs() < 1e-9;
        assert!(close("36.5us", 36_500.0) && close("1.2s", 1.2e9) && close("7 ns", 7.0));
        assert!(time_ns("36").is_err() && time_ns("0s").is_err() && time_ns("1h").is_err());
    }

    #[test]
    fn a_result_of_compare_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("r.json");
        let text = r#"{"result":{"analysis":{"wall":{"log_ratio":0.0953101798},
            "contrasts":[{"a":{"value":2.5,"unit":"seconds"}}]}}}"#;
        std::fs::write(&file, text).unwrap();
        let found = difference(file.to_str().unwrap()).unwrap();
        assert!((found.found.share - 0.1).abs() < 1e-6, "{found:?}");
        assert_eq!((found.before_ns, found.found.interval), (Some(2.5e9), None));
        std::fs::write(&file, "{}").unwrap();
        assert!(difference(file.to_str().unwrap()).is_err());
    }

    /// A file of `compare` says the same as the comparison that it was written from.
    #[test]
    fn a_comparison_says_the_same_here_and_from_its_file() {
        let settings = Settings::default();
        let mut machine = SimulatedMachine::new(Noise::Quiet, settings.pairs, 3);
        machine.effect_log = 0.05;
        let comparison = compare(&mut machine, &settings, &mut |_| {}).unwrap();
        let here = Difference::of(&comparison);
        assert!((here.before_ns.unwrap() / machine.base_ns - 1.0).abs() < 0.05, "{here:?}");
        assert!(here.found.is_difference());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("r.json");
        let document = serde_json::json!({ "result": comparison });
        std::fs::write(&file, document.to_string()).unwrap();
        let read = difference(file.to_str().unwrap()).unwrap();
        assert_eq!((read.found.differs, &read.found.verdict), (Some(true), &here.found.verdict));
        assert_eq!(read.found.pairs, Some(settings.pairs as usize));
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let ([a, b], [c, d]) = (read.found.interval.unwrap(), here.found.interval.unwrap());
        assert!(close(a, c) && close(b, d) && close(read.found.share, here.found.share));
    }
}
