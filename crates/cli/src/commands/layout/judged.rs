//! The budget: counts of both builds, and the measured difference as the user gives it.

use std::path::Path;

use anyhow::{Context as _, bail};
use stallscope::layout::{Budget, EffectKind, EventCount, LayoutReport, MeasuredDifference};
use stallscope::machine::MachineProfile;

use super::LayoutArgs;

/// A difference, and the time before where the file says it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    share: f64,
    before_ns: Option<f64>,
}

/// Reads `15%`, `-3 %`, or the JSON result of `compare`.
pub fn difference(text: &str) -> anyhow::Result<Difference> {
    if let Some(number) = text.trim().strip_suffix('%') {
        let percent: f64 =
            number.trim().parse().ok().filter(|n: &f64| n.is_finite()).with_context(|| {
                format!("--measured {text}: write a difference like 15% or -3%, or name a file")
            })?;
        return Ok(Difference { share: percent / 100.0, before_ns: None });
    }
    let path = Path::new(text);
    let content = std::fs::read_to_string(path).with_context(|| {
        format!("--measured {text}: neither a difference like 15% nor a file that can be read")
    })?;
    let of_json = || {
        let value: serde_json::Value = serde_json::from_str(&content).ok()?;
        let analysis = &value["result"]["analysis"];
        let share = analysis["wall"]["log_ratio"].as_f64()?.exp_m1();
        let before = &analysis["contrasts"][0]["a"];
        let scale = match before["unit"].as_str() {
            Some("nanoseconds") => Some(1.0),
            Some("seconds") => Some(1e9),
            _ => None,
        };
        let before_ns = before["value"].as_f64().zip(scale).map(|(value, scale)| value * scale);
        Some(Difference { share, before_ns })
    };
    of_json().with_context(|| {
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
    profile: &MachineProfile,
    report: &LayoutReport,
    difference: Option<Difference>,
) -> anyhow::Result<Option<Budget>> {
    let counts = counts(profile, report);
    if counts.is_empty() {
        if difference.is_some() {
            bail!(
                "--measured needs two builds of which executions were counted: add --trace \
                 FUNCTION, --windows, or callgrind's counts as --samples"
            );
        }
        return Ok(None);
    }
    let measured = difference.map(|d| measured(args, report, d)).transpose()?;
    Ok(Some(Budget::of(counts, measured)))
}

fn measured(
    args: &LayoutArgs,
    report: &LayoutReport,
    difference: Difference,
) -> anyhow::Result<MeasuredDifference> {
    if !(args.ghz.is_finite() && args.ghz > 0.0) {
        bail!("--ghz {}: write the clock of the processor, like 3.07", args.ghz);
    }
    // A file gives the time of whole runs; a window is one operation of a run.
    let of_file = difference.before_ns.filter(|_| report.windows.is_empty());
    let before_ns = args.takes.or(of_file).context(
        "--measured also needs how long it took: --takes DURATION, of one call of the window or of \
         the whole run that was counted",
    )?;
    Ok(MeasuredDifference { operation_cycles: before_ns * args.ghz, share: difference.share })
}

fn counts(profile: &MachineProfile, report: &LayoutReport) -> Vec<EventCount> {
    let ([before, after], Some(sets)) = (report.front_end.as_slice(), &report.sets) else {
        return Vec::new();
    };
    if !sets.heat.iter().all(|h| h.is_complete) {
        return Vec::new();
    }
    let operations = |arm: usize| report.windows.get(arm).map_or(1.0, |w| w.operations as f64);
    let each =
        |before: u64, after: u64| (before as f64 / operations(0), after as f64 / operations(1));
    let mut all = Vec::new();
    let mut add = |kind, (before, after), each| {
        all.push(EventCount { kind, before, after, each });
    };
    if let (Some(price), Some(b), Some(a)) = (
        profile.jump_at_boundary_price().filter(|_| report.jump_erratum),
        before.jumps.executed_on_boundary,
        after.jumps.executed_on_boundary,
    ) {
        add(EffectKind::BoundaryJumps, each(b, a), price);
    }
    let misses = match report.windows.as_slice() {
        [b, a] => Some((b.misses_per_operation, a.misses_per_operation)),
        _ => sets.heat[0].misses.zip(sets.heat[1].misses).map(|(b, a)| each(b, a)),
    };
    if let Some(misses) = misses {
        add(EffectKind::CodeMisses, misses, profile.code_miss_price());
    }
    if let (Some(b), Some(a)) = (&before.decoded, &after.decoded) {
        let misses = (b.misses_per_operation, a.misses_per_operation);
        add(EffectKind::DecodedMisses, misses, profile.decode_again_price());
    }
    let windows = each(before.extra_windows, after.extra_windows);
    add(EffectKind::ExtraWindows, windows, profile.extra_window_price());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_and_times_are_read_with_their_units() {
        let share = |text| difference(text).unwrap().share;
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
        assert!((found.share - 0.1).abs() < 1e-6, "{found:?}");
        assert_eq!(found.before_ns, Some(2.5e9));
        std::fs::write(&file, "{}").unwrap();
        assert!(difference(file.to_str().unwrap()).is_err());
    }
}
