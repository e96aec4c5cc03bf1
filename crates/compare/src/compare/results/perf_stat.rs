//! `perf stat -x,` and `perf stat -j`: a line per event. Several runs of one event in a file (made
//! with `-o FILE --append`) are samples; `-r N` keeps only the mean and its spread.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{Better, ResultError, ResultFile, Summary};
use crate::foreign;

/// Separators that `-x` is commonly given.
const SEPARATORS: [char; 4] = [',', ';', '\t', '|'];

/// Value, unit, event and relative spread in per cent.
type Fields<'a> = (&'a str, &'a str, &'a str, Option<f64>);

/// Whether a line is one of `perf stat -x`.
pub(super) fn is_line(line: &str) -> bool {
    fields(line).is_some()
}

fn fields(line: &str) -> Option<Fields<'_>> {
    SEPARATORS.iter().find_map(|separator| {
        let parts: Vec<&str> = line.split(*separator).map(str::trim).collect();
        let [value, unit, event, rest @ ..] = parts.as_slice() else { return None };
        let counted = value.parse::<f64>().is_ok() || value.starts_with("<not");
        let named =
            event.starts_with(|c: char| c.is_ascii_alphabetic()) && event.parse::<f64>().is_err();
        let plain_unit = unit.parse::<f64>().is_err();
        // With -r the relative spread stands before the running time.
        let spread = rest.iter().find_map(|f| f.strip_suffix('%')?.parse().ok());
        (counted && named && plain_unit && rest.len() >= 2)
            .then_some((*value, *unit, *event, spread))
    })
}

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "counter-value")]
    value: Option<Value>,
    #[serde(default)]
    unit: String,
    event: Option<String>,
    variance: Option<f64>,
}

pub(super) fn read(file: &mut ResultFile, text: &str) -> Result<(), ResultError> {
    let mut index = BTreeMap::new();
    let mut spreads = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong =
            |what: String| ResultError::Line { path: file.path.clone(), line: number + 1, what };
        let (value, unit, event, spread) = if line.starts_with('{') {
            let parsed: Line = foreign::from_json(line)
                .map_err(|cause| wrong(format!("not whole JSON of perf stat: {cause}")))?;
            // Lines of metrics alone have no event.
            let (Some(event), Some(value)) = (parsed.event, parsed.value) else { continue };
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (text, parsed.unit, event, parsed.variance)
        } else {
            let (value, unit, event, spread) = fields(line).ok_or_else(|| {
                wrong("not a line of `perf stat -x`: value, unit, event, …".into())
            })?;
            (value.to_owned(), unit.to_owned(), event.to_owned(), spread)
        };
        if value.starts_with("<not") {
            file.config.insert(format!("not counted: {event}"), value);
            continue;
        }
        let value: f64 = value
            .parse()
            .map_err(|_| wrong(format!("`{value}` stands where a number is expected")))?;
        let value = file.checked(&format!("line {}", number + 1), value)?;
        let unit = if unit.is_empty() { "events".to_owned() } else { unit };
        file.add(&mut index, &event, &unit, value);
        if let Some(percent) = spread {
            spreads.insert((event, unit), percent);
        }
    }
    without_samples(file, &spreads);
    Ok(())
}

/// One value with a spread is the mean of runs that were not kept.
fn without_samples(file: &mut ResultFile, spreads: &BTreeMap<(String, String), f64>) {
    for series in &mut file.series {
        series.better = Better::Lower;
        let spread = spreads.get(&(series.name.clone(), series.unit.clone()));
        if let (Some(percent), [mean]) = (spread, series.values.as_slice()) {
            series.summary =
                Some(Summary { mean: *mean, sd: Some(mean * percent / 100.0), n: None });
            series.values.clear();
        }
    }
}
