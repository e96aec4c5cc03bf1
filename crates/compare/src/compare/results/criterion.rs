//! Criterion's folders: `<benchmark>/new/sample.json` holds iterations and total times of the
//! samples, `benchmark.json` the name. The format is private to criterion, so what is missing or
//! unknown is passed over.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Format, MOST_BYTES, ResultError, ResultFile, Series};
use crate::compare::fingerprint;
use crate::foreign;

/// Folders below each other that are searched.
const DEEPEST: usize = 6;

#[derive(Deserialize)]
struct Sample {
    iters: Vec<f64>,
    times: Vec<f64>,
}

#[derive(Deserialize)]
struct Benchmark {
    full_id: Option<String>,
}

/// Whether there is a sample of criterion's anywhere below.
pub(super) fn holds_results(folder: &Path) -> bool {
    let mut found = Vec::new();
    search(folder, DEEPEST, &mut found);
    !found.is_empty()
}

/// Collects the folders that hold a `sample.json`: `new` ones, or whatever was named itself.
fn search(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    if folder.join("sample.json").is_file() {
        found.push(folder.into());
        return;
    }
    if folder.join("new/sample.json").is_file() {
        found.push(folder.join("new"));
        return;
    }
    let Some(depth) = depth.checked_sub(1) else { return };
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut below: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    below.sort();
    for path in below {
        // A link may lead back up.
        if path.is_dir() && !path.is_symlink() {
            search(&path, depth, found);
        }
    }
}

pub(super) fn read(folder: &Path, shown: &str) -> Result<ResultFile, ResultError> {
    let mut folders = Vec::new();
    search(folder, DEEPEST, &mut folders);
    let mut file = ResultFile {
        path: shown.into(),
        format: Format::Criterion,
        series: Vec::new(),
        config: BTreeMap::new(),
        digest: 0,
        one_process: true,
        interleaved: false,
        threats: Vec::new(),
    };
    for sample in folders {
        let (series, hash) = series(&file, folder, &sample)?;
        file.digest = file.digest.rotate_left(1) ^ hash;
        file.series.push(series);
    }
    if file.series.is_empty() {
        let (path, why) = (shown.into(), String::new());
        return Err(ResultError::NoSamples { path, format: Format::Criterion, why });
    }
    Ok(file)
}

fn series(file: &ResultFile, root: &Path, folder: &Path) -> Result<(Series, u64), ResultError> {
    let path = folder.join("sample.json");
    let shown = path.display().to_string();
    let text = foreign::read_text(&path, MOST_BYTES)
        .map_err(|cause| ResultError::Unreadable { path: shown.clone(), cause })?;
    let sample: Sample = foreign::from_json(&text).map_err(|cause| ResultError::Json {
        path: shown.clone(),
        what: "criterion's sample.json".into(),
        cause,
    })?;
    if sample.iters.len() != sample.times.len() {
        let what = format!("{} times for {} iterations", sample.times.len(), sample.iters.len());
        return Err(ResultError::Line { path: shown, line: 1, what });
    }
    let values = sample
        .times
        .iter()
        .zip(&sample.iters)
        .map(|(time, iterations)| file.checked(&shown, time / iterations))
        .collect::<Result<Vec<f64>, ResultError>>()?;
    let named: Option<Benchmark> = foreign::read_text(&folder.join("benchmark.json"), MOST_BYTES)
        .ok()
        .and_then(|text| foreign::from_json(&text).ok());
    let name = named.and_then(|b| b.full_id).unwrap_or_else(|| {
        let benchmark = folder.parent().unwrap_or(folder);
        let name = benchmark.strip_prefix(root).unwrap_or(benchmark);
        foreign::plain(&name.to_string_lossy()).into_owned()
    });
    let covered_s = Some(sample.times.iter().sum::<f64>() / 1e9);
    let series = Series { values, covered_s, ..Series::named(&name, "ns") };
    Ok((series, fingerprint::of(text.as_bytes())))
}
