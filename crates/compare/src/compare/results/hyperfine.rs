//! hyperfine JSON: one entry per command with its times in seconds.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{ResultError, ResultFile, Series, Summary, Threat};

#[derive(Deserialize)]
struct Document {
    results: Vec<Entry>,
    /// Whether the commands took turns: hyperfine's do not, and it does not write this.
    #[serde(default)]
    interleaved: bool,
}

#[derive(Deserialize)]
struct Entry {
    command: String,
    mean: Option<f64>,
    stddev: Option<f64>,
    user: Option<f64>,
    system: Option<f64>,
    #[serde(default)]
    times: Vec<Option<f64>>,
    /// Of each run; null where a signal ended it.
    #[serde(default)]
    exit_codes: Vec<Option<i64>>,
    #[serde(default)]
    parameters: BTreeMap<String, Value>,
}

pub(super) fn read(file: &mut ResultFile, text: &str) -> Result<(), ResultError> {
    let document: Document = file.document(text, "hyperfine JSON")?;
    file.interleaved = document.interleaved;
    for entry in document.results {
        let mut values = Vec::with_capacity(entry.times.len());
        for time in &entry.times {
            // JSON has no NaN: serialisers write null.
            values.push(file.checked(&entry.command, time.unwrap_or(f64::NAN))?);
        }
        let summary = match (values.is_empty(), entry.mean) {
            (true, Some(mean)) => Some(Summary {
                mean: file.checked(&entry.command, mean)?,
                sd: entry.stddev,
                n: None,
            }),
            (true, None) => continue,
            _ => None,
        };
        let parameters: Vec<String> =
            entry.parameters.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let name = if parameters.is_empty() { entry.command } else { parameters.join(",") };
        let busy = entry.user.zip(entry.system).map(|(user, system)| user + system);
        let cpu_share =
            busy.zip(entry.mean).filter(|(_, mean)| *mean > 0.0).map(|(b, mean)| b / mean);
        let failed = entry.exit_codes.iter().filter(|code| **code != Some(0)).count();
        if failed > 0 {
            let runs = entry.exit_codes.len();
            file.threats.push(Threat::Failed {
                name: Some(name.clone()),
                file: file.path.clone(),
                what: format!("{failed} of {runs} runs ended with another exit code than 0"),
            });
        }
        let cpu_share = cpu_share.filter(|share| share.is_finite() && *share >= 0.0);
        file.series.push(Series { values, summary, cpu_share, ..Series::named(&name, "s") });
    }
    Ok(())
}
