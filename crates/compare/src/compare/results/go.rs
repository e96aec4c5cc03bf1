//! `go test -bench` text: configuration lines (`key: value`) and result lines (name, iterations,
//! then pairs of value and unit), as the Go benchmark data format has them. Other lines (`PASS`,
//! `ok`, logs) are passed over, as benchstat does.

use std::collections::BTreeMap;

use super::{ResultError, ResultFile, Threat};

pub(super) fn is_result(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let name = words.next().is_some_and(|w| {
        w.strip_prefix("Benchmark").is_some_and(|rest| {
            // `Benchmarking` is a word of English, not the name of a benchmark.
            rest.chars().next().is_none_or(|c| !c.is_lowercase())
        })
    });
    name && words.next().is_some_and(|w| w.parse::<u64>().is_ok()) && words.next().is_some()
}

/// Whether a line is a result that ends behind its iterations.
fn is_cut_off(line: &str) -> bool {
    line.split_whitespace().count() == 2 && is_result(&format!("{line} 0"))
}

/// A configuration line: a key that starts in lower case and holds no blank, and its value.
fn config(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(':')?;
    let fits = key.starts_with(char::is_lowercase)
        && !key.contains(|c: char| c.is_whitespace() || c.is_uppercase());
    fits.then(|| (key, value.trim()))
}

pub(super) fn read(file: &mut ResultFile, text: &str) -> Result<(), ResultError> {
    let mut index = BTreeMap::new();
    let (mut package, mut failures) = (String::new(), 0);
    for (number, line) in text.lines().enumerate() {
        if is_result(line) {
            result(file, &mut index, &package, number + 1, line)?;
        } else if is_cut_off(line) {
            file.threats.push(Threat::CutOff { file: file.path.clone(), line: number + 1 });
        } else if line == "FAIL" || line.starts_with("FAIL\t") || line.starts_with("--- FAIL") {
            failures += 1;
        } else if let Some((key, value)) = config(line) {
            if key == "pkg" {
                package = value.into();
            }
            file.config.insert(key.into(), value.into());
        }
    }
    if failures > 0 {
        let what = "its tests end in FAIL".to_owned();
        file.threats.push(Threat::Failed { name: None, file: file.path.clone(), what });
    }
    // Names of packages are noise when there is one; with several they keep benchmarks apart.
    let packages: std::collections::BTreeSet<&str> =
        file.series.iter().filter_map(|s| s.name.split_once('\t').map(|n| n.0)).collect();
    let several = packages.len() > 1;
    for series in &mut file.series {
        if let Some((package, name)) = series.name.split_once('\t') {
            series.name = if several { format!("{package}.{name}") } else { name.to_owned() };
        }
    }
    Ok(())
}

fn result(
    file: &mut ResultFile,
    index: &mut BTreeMap<(String, String), usize>,
    package: &str,
    number: usize,
    line: &str,
) -> Result<(), ResultError> {
    let path = file.path.clone();
    let wrong = |what: String| ResultError::Line { path: path.clone(), line: number, what };
    let mut words = line.split_whitespace();
    let name = words.next().unwrap_or_default();
    let name = name.strip_prefix("Benchmark").unwrap_or(name);
    let name = format!("{package}\t{name}");
    let iterations: Option<f64> = words.next().and_then(|word| word.parse().ok());
    let rest: Vec<&str> = words.collect();
    if !rest.len().is_multiple_of(2) {
        return Err(wrong("a value without its unit: is the line cut off?".into()));
    }
    for pair in rest.chunks_exact(2) {
        let value: f64 = pair[0]
            .parse()
            .map_err(|_| wrong(format!("`{}` stands where a number is expected", pair[0])))?;
        let value = file.checked(&format!("line {number}"), value)?;
        file.add(index, &name, pair[1], value);
    }
    let ns =
        rest.chunks_exact(2).find(|pair| pair[1] == "ns/op").and_then(|p| p[0].parse::<f64>().ok());
    if let Some((iterations, ns)) = iterations.zip(ns) {
        for series in file.series.iter_mut().filter(|s| s.name == name) {
            *series.covered_s.get_or_insert(0.0) += iterations * ns / 1e9;
        }
    }
    Ok(())
}
