//! What a reader should know before believing a comparison, each with what to do about it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::analysis::{Analysis, Metric};
use super::identical::{COUNTS_NOT_COMPARED, SameCode, SameHotCode};
use super::neighbours::Disturbances;
use super::program::ArmRecord;
use super::schedule::Arm;
use super::strata::{Strata, Stratum};
use super::waiting::WaitedFor;
use crate::clock::Cpus;

/// How much a warning matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Information; the conclusion stands.
    Note,
    /// May change the conclusion.
    Caution,
}

/// One thing to know. [`std::fmt::Display`] says it as advice; shares and logs are as in
/// [`super::Diagnostics`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Warning {
    /// Always there: runs of one build are no evidence about a source change.
    OneBuildEach,
    /// Too few pairs for any exact test.
    FewPairs {
        /// Number of pairs that were measured.
        pairs: u32,
        /// How many could.
        fewest: u32,
    },
    /// The runs are so short that starting a process is most of them.
    TooShort {
        /// The shorter median wall time, in nanoseconds.
        median_ns: f64,
    },
    /// Most of the wall time is not spent on the processor.
    MostlyWaiting {
        /// Processor time as a share of wall time.
        cpu_share: f64,
        /// What the rest was spent on.
        waited_for: WaitedFor,
    },
    /// The machine became slower or faster during the comparison.
    Drift {
        /// From the first third to the last, as a log ratio.
        change_log: f64,
        /// Rank correlation of time with order.
        spearman: f64,
    },
    /// The second run of a pair differs from the first, whatever is run.
    SlotEffect {
        /// Second over first, as a log ratio.
        second_over_first_log: f64,
    },
    /// Neighbouring pairs resemble each other.
    Autocorrelated {
        /// Rank correlation of each pair with the next.
        lag_1: f64,
    },
    /// Some runs are far slower than the rest.
    Spikes {
        /// Their share of all runs.
        share: f64,
        /// Fastest B over fastest A, as a log ratio: a second opinion without spikes.
        minimum_log_ratio: f64,
    },
    /// Signed ranks and the paired t-test come to different conclusions.
    TestsDisagree {
        /// p-value of the signed-rank test.
        signed_rank_p: f64,
        /// p-value of the paired t-test.
        t_p: f64,
    },
    /// Wall time and processor time come to different conclusions.
    CpuTimeDisagrees {
        /// Log ratio of wall times.
        wall_log_ratio: f64,
        /// Log ratio of processor times.
        cpu_log_ratio: f64,
    },
    /// The runs waited for the processor, so the verdict is about processor time.
    JudgedByProcessorTime {
        /// The part of their wall time that they were not on it.
        waiting_share: f64,
        /// Estimate, lower and upper end of wall time, as log ratios.
        wall_log: [f64; 3],
    },
    /// Wall time is far noisier than processor time: others compete for the processor.
    Contended {
        /// How many times narrower the interval of processor time is.
        narrower: f64,
        /// Estimate, lower and upper end of processor time, as log ratios.
        cpu_log: [f64; 3],
    },
    /// Many pairs show no difference at all: the timer's steps are coarser than the noise.
    CoarseTimer {
        /// Number of pairs without any difference.
        zeros: u32,
    },
    /// A run may have needed less memory than the process had before it executed the program.
    HiddenMemory {
        /// The arms with such runs.
        arms: Vec<Arm>,
        /// What that process held, in bytes.
        floor_bytes: u64,
    },
    /// Both arms run the same bytes with the same arguments.
    IdenticalPrograms,
    /// A program with threads was held on one processor, where they take turns.
    ThreadsOnOneProcessor {
        /// The most threads that were seen at once, of A and of B.
        threads: [u32; 2],
    },
    /// Programs that keep more than one processor busy were given several.
    Spread {
        /// The processors that they were held on.
        cpus: String,
    },
    /// The arms map libraries of one name that do not hold the same bytes.
    DifferentLibraries {
        /// Names of the libraries, without versions.
        names: Vec<String>,
    },
    /// A shell ran an arm, and what it takes to start was taken off.
    ShellStart {
        /// The arm.
        arm: Arm,
        /// What was taken off every run, in nanoseconds.
        start_ns: u64,
        /// That as a share of what a run took with it.
        share: f64,
    },
    /// Every function of both programs holds the same code.
    IdenticalCode(SameCode),
    /// The functions in which both programs spend their time hold the same code.
    IdenticalHotCode(SameHotCode),
    /// Runs were repeated, or kept, because the machine was disturbed.
    Disturbed(Disturbances),
    /// Another process was on the core beside some of the runs.
    SharedCore(Box<Strata>),
    /// Each arm always prints the same, but not the same as the other.
    OutputDiffers,
    /// The output of an arm changes from run to run.
    OutputVaries {
        /// Arms that it is about.
        arms: Vec<Arm>,
    },
    /// Processes were still running when their run had ended, and were killed.
    LeftBehind {
        /// How many runs left any.
        runs: u32,
        /// Names of the processes.
        names: Vec<String>,
    },
    /// Likewise, of as many commands as there are.
    FailuresOfSeveral {
        /// Failed runs of each, A first.
        failed: Vec<u32>,
    },
    /// Runs that failed were counted.
    FailuresIgnored {
        /// Failed runs of A.
        a: u32,
        /// Failed runs of B.
        b: u32,
    },
}

impl Warning {
    /// Whether the warning may change the conclusion.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self {
            Self::ShellStart { share, .. } if *share < MOST_OF_SHELL => Severity::Note,
            Self::SharedCore(strata) if !strata.go_apart() => Severity::Note,
            Self::OneBuildEach
            | Self::IdenticalPrograms
            | Self::Spread { .. }
            | Self::DifferentLibraries { .. }
            | Self::IdenticalCode(_)
            | Self::IdenticalHotCode(_)
            | Self::Disturbed(_)
            | Self::OutputVaries { .. }
            | Self::MostlyWaiting { waited_for: WaitedFor::Blocked | WaitedFor::Unknown, .. } => {
                Severity::Note
            }
            _ => Severity::Caution,
        }
    }
}

/// A shell that takes more of a run is more than a correction.
const MOST_OF_SHELL: f64 = 0.25;

/// Arms by their letters.
fn named(arms: &[Arm]) -> String {
    arms.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

/// A log ratio as a signed change in per cent.
fn percent(log: f64) -> f64 {
    100.0 * log.exp_m1()
}

/// Whether programs with so many threads are held on one processor.
pub(super) fn take_turns(cpus: Option<&Cpus>, threads: &[u32]) -> bool {
    cpus.is_some_and(|cpus| cpus.single().is_some()) && threads.iter().any(|n| *n > 1)
}

/// What that means. `threads` says how many they have, and `most` how many at the most.
pub(super) fn threads_in_turns(threads: &str, most: u32) -> String {
    format!(
        "all runs stay on one processor, and the programs have threads ({threads}): they take turns, so \
         these are not the times that they take with a processor each; --cpus {most}, or as many as \
         there are, lets them run side by side"
    )
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Each part knows its own warnings and is silent about the others.
        self.say_about_runs(f)?;
        self.say_about_machine(f)?;
        self.say_about_conclusion(f)
    }
}

fn say_what_for(waited_for: WaitedFor, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    const ADVICE: &str = "wall time compares them as well; judge by --metric cpu, or choose an idle \
                          processor (--cpu) or a quieter moment";
    match waited_for {
        WaitedFor::Processor { queue_share: Some(share) } => write!(
            f,
            "{:.0} % of the rest was spent in the queue for the processor, on which others ran, and \
             {ADVICE}",
            100.0 * share
        ),
        WaitedFor::Processor { queue_share: None } => {
            write!(f, "the runs were taken off it by others more often than they gave it up, and {ADVICE}")
        }
        WaitedFor::Blocked => f.write_str(
            "this compares waiting (files, network, locks, sleep), which a change of code may not touch",
        ),
        WaitedFor::Unknown => f.write_str(
            "whether the rest was waiting for the processor or for something else is not known here",
        ),
    }
}

/// Who else was on the core, and what the difference is without and with them.
fn say_strata(strata: &Strata, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    let Strata { alone, shared, other_pairs, judged_alone, .. } = strata;
    write!(
        f,
        "another process shared the core, which nothing inside a guest shows, beside {} of {} pairs, and beside \
         a part of {other_pairs} more",
        shared.pairs,
        strata.pairs()
    )?;
    let said = |Stratum { pairs, ratio }: &Stratum| {
        ratio.as_ref().map(|ratio| {
            let [low, centre, high] = [ratio.low_log, ratio.log_ratio, ratio.high_log].map(percent);
            format!("{centre:+.1} % [{low:+.1}, {high:+.1}] ({pairs} pairs)")
        })
    };
    let (Some(alone), Some(shared)) = (said(alone), said(shared)) else {
        return f.write_str("; too few pairs were alone, or beside it, to tell the two apart");
    };
    write!(f, ": alone {alone}, beside it {shared}; ")?;
    f.write_str(match (strata.go_apart(), judged_alone) {
        (false, _) => "no difference between the two is seen",
        (true, true) => "both are true, of different machines, and the verdict is about the pairs that were alone",
        (true, false) => {
            "both are true, of different machines, and the verdict is about all pairs (a fixed number of --pairs \
             is judged by those that were alone)"
        }
    })
}

/// How many runs of each arm failed, A first.
fn say_failures(failed: &[u32], f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    let each = Arm::first(failed.len()).zip(failed);
    let each: Vec<String> = each.map(|(arm, n)| format!("{n} of {arm}")).collect();
    write!(f, "failing runs were counted ({}): a program that fails early is fast", each.join(", "))
}

impl Warning {
    /// What shells took, by what the runs of every arm took without them.
    pub(super) fn of_shells(arms: &[ArmRecord; 2], analysis: &Analysis) -> Vec<Self> {
        let Some(wall) = analysis.contrast(Metric::Wall) else { return Vec::new() };
        let took = [(Arm::A, &wall.a), (Arm::B, &wall.b)].into_iter().zip(arms);
        took.filter_map(|((arm, took), record)| Self::of_shell(arm, record, took.value)).collect()
    }

    /// What the shell of one arm took, beside the `rest_ns` of a run.
    pub(super) fn of_shell(arm: Arm, record: &ArmRecord, rest_ns: f64) -> Option<Self> {
        let start_ns = record.shell_start_ns?;
        let share = start_ns as f64 / (start_ns as f64 + rest_ns);
        Some(Self::ShellStart { arm, start_ns, share })
    }

    /// Advice about what was run; empty for other warnings.
    fn say_about_runs(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OneBuildEach => f.write_str(
                "these are runs of one build each: this says these two binaries differ (or not), \
                 not that the source change does it (layout alone moves programs by 1-3 %); \
                 `stallscope explain` looks for the reason",
            ),
            Self::TooShort { median_ns } => write!(
                f,
                "a run takes {:.2} ms: starting the process is most of it; give the program more \
                 work per run, at least some tens of milliseconds",
                median_ns / 1e6
            ),
            Self::MostlyWaiting { cpu_share, waited_for } => {
                write!(f, "only {:.0} % of the wall time is processor time: ", 100.0 * cpu_share)?;
                say_what_for(*waited_for, f)
            }
            Self::IdenticalCode(SameCode { functions, moved }) => write!(
                f,
                "all {functions} functions of the two program files (not of their libraries) hold the same \
                 code ({moved} lie elsewhere); {COUNTS_NOT_COMPARED}"
            ),
            Self::ThreadsOnOneProcessor { threads: [a, b] } => {
                f.write_str(&threads_in_turns(&format!("A {a}, B {b}"), *a.max(b)))
            }
            Self::DifferentLibraries { names } => write!(
                f,
                "the arms do not map the same libraries: {} is another file with other bytes in each; \
                 a difference may lie there",
                names.join(", ")
            ),
            Self::ShellStart { arm, start_ns, share } => write!(
                f,
                "a shell ran {arm}: the {:.2} ms that it takes to start (the fastest of some empty commands), {:.0} % of a run, \
                 are taken off; without a shell (-N) nothing has to be",
                *start_ns as f64 / 1e6,
                100.0 * share
            ),
            Self::IdenticalHotCode(same) => std::fmt::Display::fmt(same, f),
            Self::Disturbed(Disturbances { repeated, kept_disturbed, .. }) => write!(
                f,
                "{repeated} runs were repeated because the machine was slower than its best around them, \
                 {kept_disturbed} were kept although it was"
            ),
            Self::IdenticalPrograms => f.write_str(
                "both arms run the same bytes with the same arguments, so a difference is the \
                 machine's, or comes from the path or the name under which the program runs",
            ),
            Self::Spread { cpus } => write!(
                f,
                "the programs keep more than one processor busy, so that all runs are on {cpus} and not on \
                 one (--cpu or --cpus chooses)"
            ),
            Self::OutputDiffers => f.write_str(
                "the two arms print different output, each the same in every run: do they do the same work?",
            ),
            Self::OutputVaries { arms } => {
                write!(
                    f,
                    "the output of {} changes from run to run (it probably prints timings), so equal \
                     work could not be checked",
                    named(arms)
                )
            }
            Self::LeftBehind { runs, names } => write!(
                f,
                "{runs} runs left processes behind ({}), which were killed: their time is in no \
                 figure here",
                names.join(", ")
            ),
            Self::FailuresOfSeveral { failed } => say_failures(failed, f),
            Self::FailuresIgnored { a, b } => say_failures(&[*a, *b], f),
            _ => Ok(()),
        }
    }

    /// Advice about the machine at that time; empty for other warnings.
    fn say_about_machine(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Drift { change_log, spearman } => write!(
                f,
                "the machine drifted by {:+.1} % over the comparison (Spearman {spearman:+.2}); \
                 pairs cancel that, but a quieter machine would give a narrower interval",
                percent(*change_log)
            ),
            Self::SlotEffect { second_over_first_log } => write!(
                f,
                "the second run of a pair differs by {:+.1} % from the first, whatever is run; the \
                 order is balanced, so this adds noise, not bias: more pairs help",
                percent(*second_over_first_log)
            ),
            Self::Autocorrelated { lag_1 } => write!(
                f,
                "neighbouring pairs resemble each other (lag-1 correlation {lag_1:+.2}): the \
                 interval is too narrow; repeat the comparison later before believing it"
            ),
            Self::Spikes { share, minimum_log_ratio } => write!(
                f,
                "{:.0} % of the runs are spikes (another process, interrupts); the estimate resists \
                 them, the interval gets wider. Fastest runs alone: {:+.1} %",
                100.0 * share,
                percent(*minimum_log_ratio)
            ),
            Self::JudgedByProcessorTime { waiting_share, wall_log: [centre, low, high] } => write!(
                f,
                "others ran on this processor: the runs waited for it {:.*} % of their time, so this is \
                 about processor time; wall time changes by {:+.1} % [{:+.1}, {:+.1}] (--metric wall \
                 judges that)",
                usize::from(*waiting_share < 0.01),
                100.0 * waiting_share,
                percent(*centre),
                percent(*low),
                percent(*high)
            ),
            Self::Contended { narrower, cpu_log: [centre, low, high] } => write!(
                f,
                "others compete for this processor: the interval of processor time is \
                 {narrower:.0} times narrower ({:+.1} % [{:+.1}, {:+.1}]); choose an idle one \
                 (--cpu) or a quieter moment",
                percent(*centre),
                percent(*low),
                percent(*high)
            ),
            Self::SharedCore(strata) => say_strata(strata, f),
            Self::HiddenMemory { arms, floor_bytes } => {
                write!(
                    f,
                    "{} may need less memory than is shown: the kernel counts the copy of stallscope that \
                     a run begins as, {:.1} MiB",
                    named(arms),
                    *floor_bytes as f64 / (1 << 20) as f64
                )
            }
            Self::CoarseTimer { zeros } => write!(
                f,
                "{zeros} pairs show no difference at all: the timer is too coarse for this \
                 program; give it more work per run"
            ),
            _ => Ok(()),
        }
    }

    /// Advice about the conclusion; empty for other warnings.
    fn say_about_conclusion(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::FewPairs { pairs, fewest } => write!(
                f,
                "{pairs} pairs cannot reach p < 0.05 in any exact test of what is compared here; use at least \
                 {fewest} (--pairs 20)"
            ),
            Self::TestsDisagree { signed_rank_p, t_p } => write!(
                f,
                "signed ranks (p = {signed_rank_p:.3}) and the paired t-test (p = {t_p:.3}) \
                 disagree: noise is spiky or skewed; the ranks decide, more pairs would settle it"
            ),
            Self::CpuTimeDisagrees { wall_log_ratio, cpu_log_ratio } => write!(
                f,
                "wall time changed by {:+.1} %, processor time by {:+.1} %: the difference is in \
                 waiting or scheduling rather than in what the code executes (or the other way round)",
                percent(*wall_log_ratio),
                percent(*cpu_log_ratio)
            ),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_warning_has_advice() {
        let all = [
            Warning::OneBuildEach,
            Warning::FewPairs { pairs: 3, fewest: 6 },
            Warning::TooShort { median_ns: 5e5 },
            Warning::MostlyWaiting { cpu_share: 0.2, waited_for: WaitedFor::Blocked },
            Warning::Drift { change_log: 0.02, spearman: 0.9 },
            Warning::SlotEffect { second_over_first_log: 0.02 },
            Warning::Autocorrelated { lag_1: 0.5 },
            Warning::Spikes { share: 0.1, minimum_log_ratio: 0.0 },
            Warning::TestsDisagree { signed_rank_p: 0.01, t_p: 0.2 },
            Warning::CpuTimeDisagrees { wall_log_ratio: 0.1, cpu_log_ratio: 0.0 },
            Warning::JudgedByProcessorTime { waiting_share: 0.4, wall_log: [0.1, 0.0, 0.2] },
            Warning::Contended { narrower: 9.0, cpu_log: [0.0, -0.01, 0.01] },
            Warning::CoarseTimer { zeros: 9 },
            Warning::HiddenMemory { arms: vec![Arm::B], floor_bytes: 9 << 20 },
            Warning::IdenticalPrograms,
            Warning::ThreadsOnOneProcessor { threads: [1, 4] },
            Warning::Spread { cpus: "CPUs 0-1".into() },
            Warning::ShellStart { arm: Arm::B, start_ns: 900_000, share: 0.5 },
            Warning::DifferentLibraries { names: vec!["libbz2.so".into()] },
            Warning::IdenticalCode(SameCode { functions: 9, moved: 2 }),
            Warning::IdenticalHotCode(SameHotCode {
                samples: [900, 1000],
                alike_share: [1.0, 0.996],
                functions: 7,
                moved: 3,
            }),
            Warning::OutputDiffers,
            Warning::OutputVaries { arms: vec![Arm::A, Arm::B] },
            Warning::FailuresIgnored { a: 1, b: 0 },
            Warning::FailuresOfSeveral { failed: vec![1, 0, 2] },
            Warning::LeftBehind { runs: 3, names: vec!["sleep".into()] },
        ];
        let mut said: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert!(said.iter().all(|s| s.len() > 40), "{said:#?}");
        said.sort();
        said.dedup();
        assert_eq!(said.len(), all.len());
        for warning in all {
            let text = serde_json::to_string(&warning).unwrap();
            assert_eq!(serde_json::from_str::<Warning>(&text).unwrap(), warning);
        }
    }
}
