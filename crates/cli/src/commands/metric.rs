//! What a verdict is about, as typed: the arguments that `compare` and `sweep` share.

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use stallscope::compare::Measure;
use stallscope::run::counter::CounterEvent;

use super::words;

#[derive(Debug, Args)]
pub struct MetricArgs {
    /// What the verdict is about: wall, user, system, cpu, memory, a counter (counter:cycles), or
    /// what is printed: go-bench, google-bench, regex:EXPRESSION. auto is wall time, or processor time
    /// where the runs of a comparison waited for the processor
    #[arg(long, value_name = "METRIC", default_value = "auto", value_parser = measure)]
    metric: Measure,
    /// The number that --metric regex finds is better when higher
    #[arg(long)]
    higher_is_better: bool,
    /// Run each command again and again for this long and count: one run is many operations
    #[arg(long, value_name = "DURATION", value_parser = words::duration)]
    ops_in: Option<Duration>,
}

impl MetricArgs {
    /// What the verdict is about.
    pub fn measure(&self) -> anyhow::Result<Measure> {
        Ok(match (&self.metric, self.higher_is_better) {
            (Measure::Regex { pattern, .. }, higher) => {
                Measure::Regex { pattern: pattern.clone(), higher_is_better: higher }
            }
            (_, true) => bail!("--higher-is-better goes with --metric regex:…"),
            (other, false) => other.clone(),
        })
    }

    /// The fixed time of a run of many operations, in milliseconds.
    pub fn operations_in_ms(&self) -> Option<u64> {
        self.ops_in.map(|d| d.as_millis().max(1) as u64)
    }
}

fn measure(text: &str) -> Result<Measure, String> {
    let names = || CounterEvent::ALL.map(|(name, _)| name).join(", ");
    Ok(match text {
        "auto" => Measure::Auto,
        "wall" => Measure::Wall,
        "user" => Measure::User,
        "system" => Measure::System,
        "cpu" => Measure::Cpu,
        "memory" => Measure::PeakMemory,
        "go-bench" => Measure::GoBench,
        "google-bench" => Measure::GoogleBench,
        _ => match text.split_once(':') {
            Some(("regex", pattern)) => {
                let wanted = Measure::Regex { pattern: pattern.into(), higher_is_better: false };
                wanted.check().map_err(|e| e.to_string())?;
                wanted
            }
            Some(("counter", name)) => match CounterEvent::named(name) {
                Some(event) => Measure::Counter { event },
                None => return Err(format!("there is no counter `{name}`, but {}", names())),
            },
            _ => {
                return Err(
                    "choose auto, wall, user, system, cpu, memory, counter:NAME, go-bench, \
                            google-bench or regex:EXPRESSION"
                        .into(),
                );
            }
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_named() {
        assert_eq!(measure("user"), Ok(Measure::User));
        assert_eq!(
            measure("counter:page-faults"),
            Ok(Measure::Counter { event: CounterEvent::PageFaults })
        );
        assert!(measure("counter:luck").unwrap_err().contains("page-faults"));
        assert!(measure("regex:(").unwrap_err().contains("not valid"));
        assert!(measure("speed").unwrap_err().contains("choose auto, wall"));
    }
}
