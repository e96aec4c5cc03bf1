//! `compare` of one command, or of three and more: the runs, the table with the fastest first.

use std::fmt::Write;

use anyhow::bail;
use stallscope::compare::{
    Arm, CommandLine, MAX_PAIRS, Measure, ProcessRunner, Ranked, Ranking, Severity, Warning, rank,
};
use stallscope::report::export::Exported;

use super::{CompareArgs, screen, show};
use crate::commands::cpu_args;
use crate::commands::words::{decimals, style_of};
use crate::context::{Context, Outcome};
use crate::terminal::{FAINT, STRONG, paint};
use crate::{output, terminal};

pub fn run(
    args: &CompareArgs,
    context: &Context,
    lines: Vec<CommandLine>,
) -> anyhow::Result<Outcome> {
    let only_of_two = [
        (args.gate().is_some(), "a gate"),
        (args.run.stop.until().is_some(), "--until"),
        (args.benchfmt.is_some(), "--benchfmt"),
        (args.history.is_given(), "--history"),
    ];
    if let Some((_, what)) = only_of_two.iter().find(|(given, _)| *given) {
        bail!("{what} goes with two commands: BEFORE and AFTER (there are {})", lines.len());
    }
    let commands = lines.len() as u64;
    let settings = args.settings(context.seed())?;
    let limits = settings.limits(context.interrupt());
    let mut runner = ProcessRunner::new(lines, limits)?.measuring(&settings)?;
    let bar = context.progress(commands * u64::from(settings.pairs.min(MAX_PAIRS)), "warming up");
    let result = rank(&mut runner, &settings, &mut |progress| show(&bar, progress, commands));
    bar.finish_and_clear();
    let cleaned = runner.clean_up();
    let mut ranking = result?;
    cleaned?;
    ranking.warnings.extend(runner.disturbances().map(Warning::Disturbed));
    output::result(context, "ranking", &ranking)?;
    let exported = Exported::of_ranking(&ranking);
    args.export.write(&exported)?;
    if context.shows_screen() {
        terminal::print(&match args.markdown {
            true => stallscope::report::export::markdown(&exported),
            false => shown(&ranking),
        })?;
    }
    Ok(Outcome::Fine)
}

/// The whole screen, styled; ends in a newline.
fn shown(ranking: &Ranking) -> String {
    let settings = &ranking.settings;
    let runs = ranking.commands.first().map_or(0, |command| command.runs.len());
    let mut out = match ranking.commands.len() {
        1 => format!("{runs} runs of one command: a second one would be compared with it\n\n"),
        n => format!(
            "{n} commands, {runs} runs of each in rounds; how often the fastest would run in that time,\n\
             95 % interval (Hodges-Lehmann of paired log ratios; words adjusted by Holm)\n\n"
        ),
    };
    let (scale, unit) = match settings.measure {
        Measure::PeakMemory => (f64::from(1 << 20), "MiB"),
        Measure::Wall | Measure::User | Measure::System | Measure::Cpu => {
            screen::time_scale(ranking.commands.iter().map(|c| c.typical.value))
        }
        _ => (1.0, ""),
    };
    let head = format!("  median [quartiles] {unit}");
    let _ = writeln!(out, "{}", paint(STRONG, head.trim_end()));
    for arm in &ranking.order {
        if let Some(command) = ranking.command(*arm) {
            out += &row(*arm, command, scale, ranking.commands.len() == 1);
        }
    }
    let cpu = cpu_args::words(settings.cpus.as_ref());
    let how = format!("\nrounds in random order, seed {}, {cpu}", settings.seed);
    let _ = writeln!(out, "{}", paint(FAINT, how));
    for warning in &ranking.warnings {
        out += &screen::warning(warning, severity(warning, ranking));
    }
    out
}

/// Nothing is concluded of one command alone.
fn severity(warning: &Warning, ranking: &Ranking) -> Severity {
    if ranking.commands.len() == 1 { Severity::Note } else { warning.severity() }
}

fn row(arm: Arm, command: &Ranked, scale: f64, alone: bool) -> String {
    let typical = &command.typical;
    let [value, low, high] =
        [typical.value, typical.low, typical.high].map(|n| screen::three_digits(n / scale));
    let times = format!("{value} [{low}, {high}]");
    let (against, word) = match &command.against_fastest {
        None if alone => (String::new(), String::new()),
        None => ("1".to_owned(), String::new()),
        Some(analysis) => {
            let ratio = &analysis.wall.estimate;
            let d = decimals(100.0 * (ratio.low - 1.0), 100.0 * (ratio.high - 1.0));
            let d = (2 + d).saturating_sub(usize::from(ratio.value > 2.0)).clamp(2, 4);
            let [value, low, high] =
                [ratio.value, ratio.low, ratio.high].map(|r| format!("{r:.d$}"));
            let decision = analysis.verdict.decision;
            (format!("{value} [{low}, {high}]"), paint(style_of(decision), decision))
        }
    };
    let line = format!("{} {times:<26} {against:<22} {word}", paint(STRONG, arm));
    let name = screen::shortened(&command.arm);
    format!("{}\n    {}\n", line.trim_end(), paint(FAINT, name))
}
