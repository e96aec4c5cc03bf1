//! `stallscope env`: what this machine is set to, what of it disturbs measurements, and what to do.

use anyhow::Context as _;
use clap::Args;
use stallscope::clock::{
    Influence, Setting, SystemFiles, SystemReport, allowed_cpus, system_settings,
};
use stallscope::machine::Machine;

use crate::context::{Context, Outcome};
use crate::terminal::{CAUTION, FAINT, GOOD, STRONG, paint, wrap};
use crate::{output, terminal};

const EXAMPLES: &str = "\
Examples:
  What disturbs measurements here, and what to do about it
    stallscope env
  A gate before a benchmark: exit code 1 when something disturbs
    stallscope env --gate

Nothing is changed: what is advised is for you to run. How this machine really behaves
is measured by `stallscope probe clock`.

Exit codes: 0 looked, 1 something disturbs (--gate), 2 bad usage.";

/// Arguments of `env`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct EnvArgs {
    /// Exit with 1 when something disturbs
    #[arg(long)]
    gate: bool,
}

/// Runs the command.
pub fn run(args: &EnvArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    let cpus = allowed_cpus().context("which processors may be used")?;
    let report = system_settings(&SystemFiles::here(), &Machine::detect(), &cpus);
    output::result(context, "env", &report)?;
    if context.shows_screen() {
        terminal::print(&screen(&report))?;
    }
    let disturbs = report.settings.iter().any(|s| s.influence == Influence::Disturbs);
    Ok(if args.gate && disturbs { Outcome::Gated } else { Outcome::Fine })
}

/// The whole screen, styled; ends in a newline.
fn screen(report: &SystemReport) -> String {
    let count = |influence| report.settings.iter().filter(|s| s.influence == influence).count();
    let counts = format!(
        "disturb measurements: {} of {}; limit what can be seen: {}; not shown by the kernel: {}",
        count(Influence::Disturbs),
        report.settings.len(),
        count(Influence::Limits),
        count(Influence::Unknown)
    );
    let mut out = paint(STRONG, wrap("", &counts).trim_end()) + "\n\n";
    out.extend(report.settings.iter().map(lines));
    out
}

fn lines(setting: &Setting) -> String {
    let (word, style) = match setting.influence {
        Influence::Disturbs => ("disturbs", CAUTION),
        Influence::Limits => ("limits", CAUTION),
        Influence::Unknown => ("unknown", FAINT),
        Influence::Fine => ("fine", GOOD),
    };
    let label = format!("{word:<9} {:<17}", setting.id);
    let text = wrap(&label, &setting.found);
    // The label is painted behind the folding, which counts characters.
    let mut out = format!("{}{}", paint(style, &label[..9]), &text[9..]);
    if let Some(advice) = &setting.advice {
        out += &wrap(&" ".repeat(label.len()), advice);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::plain;

    #[test]
    fn what_disturbs_comes_first_with_what_to_do() {
        let setting = |id: &str, influence, found: &str, advice: Option<&str>| Setting {
            id: id.into(),
            found: found.into(),
            influence,
            advice: advice.map(str::to_owned),
        };
        let governor = "powersave (intel_pstate)";
        let advice =
            "`sudo cpupower frequency-set -g performance`: the clock no longer follows the load";
        let report = SystemReport {
            settings: vec![
                setting("governor", Influence::Disturbs, governor, Some(advice)),
                setting("counters", Influence::Limits, "perf_event_paranoid is 2", None),
                setting("turbo", Influence::Unknown, "the kernel does not show it", None),
                setting("sibling-threads", Influence::Fine, "off", None),
            ],
        };
        insta::assert_snapshot!(plain(&screen(&report)));
    }
}
