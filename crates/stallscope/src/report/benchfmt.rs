//! The Go benchmark data format, so that `benchstat` can read what we measured:
//! `benchstat -col arm FILE`.

use std::fmt::Write;

use crate::compare::{Arm, Comparison, Metric};

/// Every run as a line of its arm, in order of time.
#[must_use]
pub fn benchfmt(comparison: &Comparison) -> String {
    let mut out =
        String::from("note: runs were interleaved in random order; benchstat cannot see that\n");
    for arm in [Arm::A, Arm::B] {
        let command = comparison.arms[arm.index()].command.join(" ");
        // A key of its own for each arm (`command: …`) would put them into two tables.
        let _ = writeln!(out, "\n# {arm}: {}", command.replace(char::is_control, " "));
        let _ = writeln!(out, "arm: {arm}");
        for sample in comparison.samples.iter().filter(|s| s.plan.arm == arm) {
            let run = &sample.amounts;
            let operations = run.operations.unwrap_or(1);
            let _ = write!(out, "BenchmarkRun {operations} {} ns/op", run.wall_ns);
            let _ = write!(out, " {} cpu-ns/op", run.cpu_ns);
            for (part, name) in [(run.user_ns, "user"), (run.system_ns, "sys")] {
                if let Some(ns) = part {
                    let _ = write!(out, " {ns} {name}-ns/op");
                }
            }
            let _ = write!(out, " {} peak-B", Metric::Memory.of(run));
            if let Some(printed) = run.printed {
                let _ = write!(out, " {printed} printed");
            }
            if let Some(counted) = run.counted {
                let _ = write!(out, " {counted} counted");
            }
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::results;
    use crate::compare::simulate::{Noise, SimulatedMachine};
    use crate::compare::{Settings, compare};

    #[test]
    fn what_is_written_is_read_again() {
        let mut machine = SimulatedMachine::new(Noise::Quiet, 8, 1);
        let settings = Settings { pairs: 8, ..Settings::default() };
        let comparison = compare(&mut machine, &settings, &mut |_| {}).unwrap();
        let text = benchfmt(&comparison);
        let file = results::parse("f", &text).unwrap();
        let wall = file.series.iter().find(|s| s.unit == "ns/op").unwrap();
        assert_eq!(wall.values.len(), 16);
        assert!(text.contains("\narm: B\n"));
    }
}
