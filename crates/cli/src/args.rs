//! What can be typed. Help, man pages and shell completions all come from these definitions.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use stallscope::machine::Microarchitecture;

pub use crate::commands::bisect::BisectArgs;
pub use crate::commands::case::CaseArgs;
pub use crate::commands::compare::CompareArgs;
pub use crate::commands::env::EnvArgs;
pub use crate::commands::explain::ExplainArgs;
pub use crate::commands::fleet::collect::CollectArgs;
pub use crate::commands::fleet::submit::SubmitArgs;
pub use crate::commands::fleet::worker::WorkerArgs;
pub use crate::commands::history::HistoryArgs;
pub use crate::commands::layout::LayoutArgs;
pub use crate::commands::layout::skid::SampleLoopArgs;
pub use crate::commands::list::ListArgs;
pub use crate::commands::manual::{CompletionsArgs, ManArgs};
pub use crate::commands::probe::ProbeArgs;
pub use crate::commands::probe::wide::WideArgs;
pub use crate::commands::render::RenderArgs;
pub use crate::commands::rule::RuleArgs;
pub use crate::commands::scan::ScanArgs;
pub use crate::commands::survey::SurveyArgs;
pub use crate::commands::sweep::SweepArgs;
pub use crate::commands::trace::TraceArgs;

const EXAMPLES: &str = "\
Examples:
  stallscope explain ./before ./after -- input.bin    is it real, where, and why
  stallscope compare ./before ./after -- input.bin    is it real
  stallscope layout ./before ./after                  what moved
  stallscope sweep -L cxx a,b --layouts 12 …          is it only where the code sits
  stallscope scan ./program                           which code could have a hazard
  stallscope probe clock                              can this machine be trusted
  stallscope render result.json --html page.html      a result to look at

Exit codes: 0 fine, 1 a finding or regression (--gate), 2 bad usage or input,
3 inconclusive (--gate), 130 interrupted (143 by SIGTERM).";

/// Explains performance that changes without a visible reason.
#[derive(Debug, Parser)]
#[command(name = "stallscope", version, about, propagate_version = true, max_term_width = 100, after_help = EXAMPLES)]
pub struct Cli {
    /// Options that every command takes.
    #[command(flatten)]
    pub common: CommonArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options that every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Common options")]
pub struct CommonArgs {
    /// Write the result as JSON to FILE, or to standard output with `-`
    #[arg(long, value_name = "FILE", global = true)]
    pub json: Option<PathBuf>,
    /// Keep every result as JSON in DIR, in a file of its own, such as compare-1764057600123.json
    #[arg(long, value_name = "DIR", global = true, conflicts_with = "json")]
    pub json_dir: Option<PathBuf>,
    /// Write the result to FILE as one HTML page without scripts or network
    #[arg(long, value_name = "FILE", global = true)]
    pub html: Option<PathBuf>,
    /// Show the page of --html with the program that $BROWSER names, or else the desktop's own
    #[arg(long, global = true, requires = "html")]
    pub open: bool,
    /// Print nothing but errors (and JSON, if asked for)
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// Never draw a progress bar
    #[arg(long, global = true)]
    pub no_progress: bool,
    /// Read and write this machine profile, not the cached one
    #[arg(long, value_name = "FILE", global = true)]
    pub profile: Option<PathBuf>,
    /// Judge for this processor design, such as cascade-lake or zen-4, not for the one at hand; with
    /// --profile, what that file measured goes first (`stallscope list designs` shows them all)
    #[arg(long = "as", value_name = "NAME", global = true)]
    pub design: Option<Microarchitecture>,
    /// Leave the arguments of programs out of the JSON: they can be secrets
    #[arg(long, global = true)]
    pub redact_args: bool,
    /// Show source text below DIR, too, not only below the current directory and the program's
    /// own (may be given again)
    #[arg(long, value_name = "DIR", global = true)]
    pub source_root: Vec<PathBuf>,
    /// Seed of everything random, as printed by an earlier run
    #[arg(long, value_name = "N", global = true)]
    pub seed: Option<u64>,
    /// Take defaults of options from FILE, not from the nearest .stallscope.toml here or above
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// Take defaults of options from no file
    #[arg(long, global = true, conflicts_with = "config")]
    pub no_config: bool,
    /// Say which options a file has set, and every note about a comparison
    #[arg(long, short, global = true, conflicts_with = "quiet")]
    pub verbose: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Find the first commit that is slower: builds and compares commits as `git bisect` asks for them
    Bisect(Box<BisectArgs>),
    /// Build one of the famous questions about speed, explain it, and say whether this machine has it
    Case(CaseArgs),
    /// Join what the machines of a plan have sent back
    Collect(CollectArgs),
    /// Say whether one of two programs or commands is slower, by how much and how sure
    Compare(Box<CompareArgs>),
    /// Print the completions of a shell
    Completions(CompletionsArgs),
    /// Say what on this machine disturbs measurements, and what to do about it
    Env(EnvArgs),
    /// Find out why AFTER runs slower or faster than BEFORE: the main job
    Explain(Box<ExplainArgs>),
    /// Find since which commit it is slower, in what `compare --history` has kept
    History(HistoryArgs),
    /// See what moved between two builds and which cache sets became crowded
    Layout(Box<LayoutArgs>),
    /// List the probes, hazard rules, trace engines and cases
    List(ListArgs),
    /// Print the man page, or write those of all commands
    Man(ManArgs),
    /// Ask this processor what it charges
    Probe(ProbeArgs),
    /// The 512-bit part of a probe, or a snippet, in a process of its own
    #[command(hide = true)]
    ProbeWide(WideArgs),
    /// A loop that is sampled to learn where samples land
    #[command(hide = true)]
    SampleLoop(SampleLoopArgs),
    /// Draw a result that --json has kept: a page, or one of its charts as a picture
    Render(RenderArgs),
    /// Show one card about a hazard rule
    Rule(RuleArgs),
    /// Find hazards in the machine code of a program
    Scan(ScanArgs),
    /// Hand the blocks of a plan to Slurm, to machines by ssh, or to any other engine
    Submit(SubmitArgs),
    /// Put what machines charge side by side, from their profiles
    Survey(SurveyArgs),
    /// Run many builds: does it hold across compilers, flags, alignments and placements?
    Sweep(SweepArgs),
    /// Follow a stretch of a run and count which loads really failed to forward
    Trace(TraceArgs),
    /// Run blocks of a plan on this machine
    Worker(WorkerArgs),
}
