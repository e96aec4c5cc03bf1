//! `stallscope scan`: hazards in the machine code of programs.

mod diff;
mod diff_screen;
mod gate;
mod run;
mod run_screen;
mod screen;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use stallscope::code::{DebugInfo, FunctionQuery, Images, larger_libraries};
use stallscope::hazards::{
    HAZARDS, Hazard, Heat, RuleCard, RuleSet, ScanFilter, ScanReport, describe_sites, find_rule,
    scan,
};
use stallscope::machine::{Design, start_threads};
use stallscope::model::{Finding, HotSpot};
use stallscope::report;

use super::target;
use crate::context::{Context, Outcome};
use crate::terminal::{FAINT, paint, wrap};
use crate::{output, profile, terminal};
pub use diff::ScanDifference;
pub use gate::Baseline;
use gate::FailOn;

const EXAMPLES: &str = "\
Examples:
  The twenty findings that deserve attention most
    stallscope scan ./server
  One function, one rule, everything in it
    stallscope scan --function decodeIndexBuffer --rule store-forward --top 0 ./codec
  Which string instructions are inlined, of what size
    stallscope scan --rule rep-string --sites vmlinux
  What really happens: run a command, and count in its hot code, libraries included
    stallscope scan --run -- ./server --once input.json
  Rank by where a run spent its time
    perf record ./server && perf script > hot.txt
    stallscope scan --profile-data hot.txt ./server
  In CI: fail on findings that are not known yet, and show them in the review
    stallscope scan --write-baseline known.json ./server
    stallscope scan --baseline known.json --fail-on definite --sarif out.sarif ./server
  What a change brought: new findings, and which functions grew and why
    stallscope scan --diff --fail-on any ./server.old ./server

A finding is a pattern: the code has a shape that costs when it runs and when its
data make the accesses meet. `stallscope list` names the rules, `stallscope rule
store-forward` explains one. Gates, baselines, SARIF and --diff leave out what comes
and goes with where the linker puts code and data, unless a profile calls it hot.

Exit codes: 0 scanned (with --fail-on: nothing that counts), 1 findings that count
(--fail-on, --gate; with --diff only new ones), 2 bad usage or a file that cannot be
read as a program, 3 a gate where less than 95 % of the machine code was scanned, or
a command that could not be followed.";

/// Arguments of `scan`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ScanArgs {
    /// Programs, libraries, object files, archives, kernel images (x86-64, AArch64)
    #[arg(required_unless_present = "run", conflicts_with = "run", value_name = "BINARY")]
    binaries: Vec<PathBuf>,
    /// Run COMMAND, scan the hot code of all files that it executes, and show what was counted there
    #[arg(long, requires = "command", conflicts_with_all = ["diff", "function", "sites", "profile_data", "sarif",
          "baseline", "write_baseline"])]
    run: bool,
    /// The command for --run
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// Compare two builds, OLD and NEW: findings new, gone and moved; which functions grew and why
    #[arg(long, conflicts_with_all = ["sites", "write_baseline"])]
    diff: bool,
    /// Only functions whose name contains NAME, or that FUNCTION means otherwise: 0xADDR, FILE:LINE,
    /// each with a library in front (LIB:NAME) or not
    #[arg(long, short, value_name = "FUNCTION")]
    function: Option<String>,
    /// Only this rule (may be given again); `stallscope list` names them
    #[arg(long, value_name = "ID")]
    rule: Vec<String>,
    /// Show the N findings that rank highest; 0 shows all
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// List every inlined string instruction with its size
    #[arg(long)]
    sites: bool,
    /// Rank by this profile: perf.data, `perf script` text, callgrind output or Go pprof
    #[arg(long, value_name = "FILE")]
    profile_data: Option<PathBuf>,
    /// Write the findings as SARIF 2.1.0, source paths relative to the current directory
    #[arg(long, value_name = "FILE")]
    sarif: Option<PathBuf>,
    /// Write the N findings that rank highest to --sarif; 0 writes all
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "sarif")]
    sarif_most: usize,
    /// Leave out the findings that this file knows
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write the findings to a file for --baseline, but those that placement makes
    #[arg(long, value_name = "FILE")]
    write_baseline: Option<PathBuf>,
    /// Exit with 1 on a finding that is: any, definite, score=N, or of a rule (may be given again)
    #[arg(long, value_name = "WHAT")]
    fail_on: Vec<FailOn>,
    /// The same as --fail-on any
    #[arg(long)]
    gate: bool,
}

impl ScanArgs {
    /// What makes it fail.
    fn conditions(&self) -> Vec<FailOn> {
        self.fail_on.iter().cloned().chain(self.gate.then_some(FailOn::Any)).collect()
    }
}

pub fn run(args: &ScanArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    start_threads().context("cannot start threads")?;
    for file in [&args.sarif, &args.write_baseline].into_iter().flatten() {
        output::check_target(file)?;
    }
    if args.run {
        return run::run(args, context);
    }
    if !args.command.is_empty() {
        anyhow::bail!("a command is run with --run only: scan --run -- COMMAND");
    }
    if args.diff {
        return diff::run(args, context);
    }
    let chosen = profile::load(context)?;
    let filter = filter(args)?;
    let baseline = args.baseline.as_deref().map(Baseline::read).transpose()?;
    let hot = hot_spots(args.profile_data.as_deref())?;
    let mut reports = Vec::new();
    let mut all = Vec::new();
    // Shown when everything has been read: a damaged member leaves no half of a result.
    let mut shown = String::new();
    for path in &args.binaries {
        let (mut members, mut functions) = (0, 0);
        let mut text = context.source_text([path.as_path()])?;
        for image in Images::open(path)? {
            let image = image?;
            let judge = target::judge(&image, &chosen)?;
            let heat = hot.as_deref().map(|spots| Heat::of(&image, spots));
            let mut report = scan(&image, &filter, &judge.design, heat.as_ref());
            members += 1;
            functions += report.functions;
            if args.write_baseline.is_some() {
                all.push(report.clone());
            }
            let known = baseline.as_ref().map(|b| b.subtract(&mut report)).unwrap_or_default();
            // Of an archive only the members that have something to say.
            let is_member = image.path() != path;
            if report.functions == 0 || is_member && report.findings.is_empty() {
                continue;
            }
            let show = screen::Show { most: most(args.top), sites: args.sites, left_out: known };
            let described = described(&report.findings, args);
            let debug = DebugInfo::of(&image);
            describe_sites(&image, &debug, &mut report.findings[..described]);
            report.notes = debug.refused();
            if !is_member && filter.function.is_none() {
                report.larger_libraries = larger_libraries(&image);
            }
            if shown.is_empty() {
                shown = paint(FAINT, screen::nothing_was_run(args.profile_data.as_deref()));
                shown += &match &judge.note {
                    Some(note) => paint(FAINT, note),
                    None => chosen.announcement(),
                };
            }
            shown += &screen::screen(&report, &show, &mut text);
            reports.push(report);
        }
        shown += &close(path, members, functions, &filter)?;
    }
    if context.shows_screen() {
        terminal::print(&shown)?;
    }
    if let Some(file) = &args.write_baseline {
        gate::write_baseline(file, &all)?;
    }
    write_sarif(args, &reports, &filter.rules, &chosen.design)?;
    output::result(context, "scan", &reports)?;
    Ok(outcome(args, reports.iter().flat_map(|r| &r.findings), reports.iter()))
}

/// How the scan ends, with a sentence where it was to be a gate and decides nothing.
fn outcome<'a>(
    args: &ScanArgs,
    findings: impl Iterator<Item = &'a Finding>,
    reports: impl Iterator<Item = &'a ScanReport>,
) -> Outcome {
    let (outcome, why) = gate::outcome(&args.conditions(), findings, reports);
    why.iter().for_each(|line| terminal::print_to_stderr(&wrap("", line)));
    outcome
}

fn most(top: usize) -> usize {
    if top == 0 { usize::MAX } else { top }
}

/// How many findings are shown or written with their source lines.
fn described(findings: &[Finding], args: &ScanArgs) -> usize {
    let shown = most(args.top).min(findings.len());
    if args.sarif.is_none() {
        return shown;
    }
    let judged = findings.iter().enumerate().filter(|(_, f)| f.is_judged());
    let last = judged.take(most(args.sarif_most)).last().map_or(0, |(place, _)| place + 1);
    shown.max(last)
}

/// What is to be said of a file when all of its members have been looked at.
fn close(
    path: &Path,
    members: usize,
    functions: usize,
    filter: &ScanFilter,
) -> anyhow::Result<String> {
    if members == 0 {
        anyhow::bail!("{} is an archive without machine code", path.display());
    }
    if let (0, Some(query)) = (functions, &filter.function) {
        anyhow::bail!("{} has no {query}", path.display());
    }
    if members < 2 {
        return Ok(String::new());
    }
    Ok(paint(FAINT, format!("{}: {members} object files read\n", path.display())))
}

/// What was asked for.
fn filter(args: &ScanArgs) -> anyhow::Result<ScanFilter> {
    let function = args.function.as_deref().map(FunctionQuery::new);
    let rules = rules(&args.rule)?;
    Ok(ScanFilter { function, rules, ..ScanFilter::default() })
}

/// The rules with these ids, all where none is named.
fn rules(ids: &[String]) -> anyhow::Result<RuleSet> {
    if ids.is_empty() {
        return Ok(HAZARDS.to_vec());
    }
    ids.iter()
        .map(|id| {
            let known = || HAZARDS.iter().map(|h| h.id()).collect::<Vec<_>>().join(", ");
            find_rule(id)
                .with_context(|| format!("there is no rule `{id}`; the rules are: {}", known()))
        })
        .collect()
}

fn hot_spots(file: Option<&Path>) -> anyhow::Result<Option<Vec<HotSpot>>> {
    let Some(file) = file else { return Ok(None) };
    Ok(Some(stallscope::import::profile_data::read(file)?))
}

/// Writes what --sarif asks for.
fn write_sarif(
    args: &ScanArgs,
    reports: &[ScanReport],
    rules: &[&'static dyn Hazard],
    profile: &Design,
) -> anyhow::Result<()> {
    let Some(file) = &args.sarif else { return Ok(()) };
    let cards: Vec<RuleCard> = rules.iter().map(|r| r.card(profile)).collect();
    let root = std::env::current_dir().context("cannot tell the current directory")?;
    report::write_file(file, &report::to_sarif(reports, &cards, &root, most(args.sarif_most))?)?;
    Ok(())
}
