//! Joins everything: is the difference real, where is it, which mechanism at which instruction.
//!
//! Comparison first; when it finds no difference there is nothing to explain and nothing is made
//! up. Then both builds are sampled, the samples are booked on functions, loops and instructions,
//! the functions of the two builds are matched, and the code that is hot, that differs and that
//! accounts for the difference is searched for hazards. What is found there is a candidate. Windows of
//! both builds, spread over the run, go through the model of the core: it predicts what each place
//! takes, with and without each mechanism, and only what happens more often in the slow build and makes
//! up the difference is named. What is not explained is said too.
//!
//! Processes run behind [`Bench`], so that the whole chain is tested with invented machines.

mod answer;
mod bench;
mod built;
mod callers;
mod cause;
mod check;
mod counts;
mod cure;
mod events;
mod heat;
mod hot_code;
mod joined;
mod kernel;
mod ledger;
mod library_calls;
mod machines;
mod measured;
mod object;
mod only_in_slow;
mod open;
mod placement;
mod placements;
mod prediction;
mod processor;
mod removable;
mod rows;
mod run_count;
mod share;
mod side;
pub mod simulate;
mod stacks;
mod summary;
mod switch;
mod unseen;
mod variants;
mod why_more;
mod windows;
mod work;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use answer::Answer;
pub use bench::{Bench, CoreNow, ProcessBench, TimeLeft};
pub use built::Built;
pub use callers::{CalledFrom, Caller};
pub use cause::Cause;
pub use check::{CheckedPlace, CheckedTrace, ModelCheck, STATED_ERROR, check};
pub use counts::{Counted, Tally};
pub use cure::{Cure, CureVerdict, Removed};
pub use events::Counts;
pub use heat::{ArmHeat, Heat, ObjectHeat};
pub use hot_code::{BlockedLoad, HotBuild, HotCode, HotInstruction, LoopHeat, Occurrence};
pub use kernel::{Kernel, NamedCalls, WaitingCalls};
pub use ledger::{CoreTaken, Ledger, LedgerLine};
pub use library_calls::LibraryCalls;
pub use machines::{AnswerCount, ExplainResult, FoundThere, Joining, ManyExplained};
pub use measured::{MeasuredLayout, measured_difference, shows_difference};
pub use object::ObjectCode;
pub use only_in_slow::OnlyInSlow;
pub use placements::Placements;
pub use rows::{FunctionRow, Place};
pub use run_count::{ByPlace, Executed, WorkCount};
pub use share::{Share, Whole};
pub use stacks::{CallStacks, FoldedStack, StackFunction};
pub use windows::{CodeAt, ObjectInsns, WindowCount};
pub use work::Work;

use bench::SHARED_PERCENT;
use ledger::Together;
use placement::Placement;
use processor::ProcessorTime;
use variants::Followed;
use windows::BothArms;

use crate::code::{CodeError, DebugInfo, Image, SourceText};
use crate::compare::{Arm, CompareError, Comparison, Decision, Progress};
use crate::layout::{ChangeCounts, match_functions};
use crate::machine::Design;
use crate::model::Grade;
use crate::probes::ProbeError;
use crate::run::sample::SampleError;
use crate::trace::engine::EngineError;

/// Why there is no explanation at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExplainError {
    /// One of the programs cannot be read.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// The comparison failed.
    #[error(transparent)]
    Compare(#[from] CompareError),
    /// Where the time goes cannot be found out.
    #[error("arm {arm}: {cause}")]
    Sample {
        /// Which arm.
        arm: Arm,
        /// What the sampler reported.
        cause: SampleError,
    },
    /// What the machine takes was being measured, and that was interrupted.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The windows were interrupted.
    #[error(transparent)]
    Count(#[from] EngineError),
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// The two programs take the same time, or the runs do not decide: nothing to explain.
    NothingToExplain,
    /// A mechanism was found where the difference is.
    Mechanism,
    /// The slower build executes more instructions, and that is most of the difference.
    MoreWork,
    /// Instructions of the slower build take longer, that is most of the difference, and no rule knows why.
    SlowerWork,
    /// Most of the difference is in the kernel: the slower build asks more of it, or is there longer.
    Kernel,
    /// More instructions, slower ones and the kernel each have a good part of the difference, and none of them most of it
    /// for certain.
    InParts,
    /// The slower build waits longer, and that is the difference.
    NotRunning,
    /// The difference is real, and no rule knows the cause.
    NoMechanism,
    /// The difference is real, and nothing here may look at where it is.
    NotLocated,
}

/// The whole answer.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// Is it real, and how large.
    pub comparison: Comparison,
    /// How it ended.
    pub conclusion: Conclusion,
    /// The cause, or the conclusion where none is told, as one word.
    pub answer: Answer,
    /// The cause in one sentence, to be pasted; absent when there is nothing to explain.
    pub summary: Option<String>,
    /// The arm that takes longer, when one does.
    pub slow_arm: Option<Arm>,
    /// The two program files.
    pub programs: [PathBuf; 2],
    /// How their functions relate.
    pub census: ChangeCounts,
    /// How the files were made, where they differ in it.
    pub built: Option<Built>,
    /// How the time was located in each arm; absent when there was nothing to locate.
    pub heat: Option<[ArmHeat; 2]>,
    /// What each build executes; absent where a run could not be followed to its end.
    pub work: Option<Work>,
    /// Places that the fast build hardly enters.
    pub only_in_slow: Option<OnlyInSlow>,
    /// What the builds ask of the kernel, where they differ in it.
    pub kernel: Kernel,
    /// Where the difference is, largest share first.
    pub rows: Vec<FunctionRow>,
    /// Call stacks of both builds; absent where none could be taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stacks: Option<CallStacks>,
    /// What the model of the core predicts for the places that hold the difference.
    pub ledgers: Vec<Ledger>,
    /// Runs of the slow build without a mechanism; absent where there was nothing to remove.
    pub cure: Option<Cure>,
    /// The difference over random places of the hot functions; absent where that was not asked for, or could not be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placements: Option<Placements>,
    /// What causes it, most deserving first.
    pub causes: Vec<Cause>,
    /// The hot code of the places with most of the difference.
    #[serde(default)]
    pub hot_code: Vec<HotCode>,
    /// The strongest grade among the causes.
    pub grade: Option<Grade>,
    /// What the causes leave open, a sentence each.
    pub unexplained: Vec<String>,
    /// What a reader must know: stripped programs, fallbacks, few samples.
    pub notes: Vec<String>,
}

impl Explanation {
    /// The first ledger that names a mechanism.
    #[must_use]
    pub fn named_ledger(&self) -> Option<&Ledger> {
        self.ledgers.iter().find(|ledger| ledger.named().is_some())
    }

    /// Decides how it ends, and by which grade. What was proved goes first, then what is most of the difference.
    fn conclude(&mut self) {
        let slow = self.slow_arm.unwrap_or(Arm::B);
        // Other work holds a mechanism of its own: the larger part is the answer, also where its interval is too
        // wide to be called the cause. Where each instruction takes less, and nothing is left without the mechanism, more of them
        // cost nothing.
        let is_all = self.named_ledger().is_some_and(Ledger::is_all_of_it);
        let is_free = |work: &Work| is_all && work.is_cheaper(slow);
        let rival = self.work.as_ref().filter(|work| work.may_be_the_cause() && !is_free(work));
        let rival = rival.map_or(0.0, Work::least_of_more);
        let least = rival.max(work::MOST);
        let named = Together::of(&self.ledgers).map_or(0.0, |named| named.without);
        let more = self.work.as_ref().filter(|work| work.is_the_cause());
        let is_named = named >= least;
        let is_more = more.is_some() && !is_named;
        let grades = self.causes.iter().map(|cause| cause.finding.grade);
        let found =
            [self.is_confirmed().then_some(Grade::Confirmed), is_named.then_some(Grade::Counted)];
        let grade = grades.chain(found.into_iter().flatten()).max();
        self.conclusion = if grade.is_some() && (self.is_confirmed() || !is_more) {
            Conclusion::Mechanism
        } else if more.is_some() {
            Conclusion::MoreWork
        } else if self.kernel.is_the_cause(slow, &self.rows) {
            Conclusion::Kernel
        } else if summary::part_of_strings(self).is_some()
            || self.work.is_none()
                && self.only_in_slow.as_ref().is_some_and(|it| it.share.is_most())
        {
            Conclusion::MoreWork
        } else if self
            .work
            .as_ref()
            .is_some_and(|work| work.is_slower() && !summary::has_more_beside(work))
        {
            Conclusion::SlowerWork
        } else if summary::parts(self, slow).len() > 1 {
            Conclusion::InParts
        } else {
            Conclusion::NoMechanism
        };
        self.grade = grade.filter(|_| self.conclusion == Conclusion::Mechanism);
        // A mechanism beside more work, or of slower work, is told as such, if it is a good part of the difference.
        let is_beside = matches!(self.conclusion, Conclusion::MoreWork | Conclusion::SlowerWork)
            && named >= summary::LEAST_BESIDE;
        if !is_named && !is_beside {
            cure::rename(self, |_| false);
        }
    }

    /// Whether no cause was found that a change of whole runs could not prove wrong.
    fn is_open(&self) -> bool {
        use Conclusion::{InParts, NoMechanism, SlowerWork};
        matches!(self.conclusion, SlowerWork | InParts | NoMechanism)
    }

    /// Takes what runs with a change have shown, unless something else was tried that tells as much; `open` goes before
    /// why there were none.
    fn keep(&mut self, tried: Result<Cure, String>, open: &str) {
        match tried {
            Ok(cure) => {
                let is_more = cure.verdict == CureVerdict::Confirmed
                    || cure.verdict.is_proof()
                        && !self.cure.as_ref().is_some_and(|it| it.verdict.is_proof());
                if is_more || self.cure.is_none() {
                    self.cure = Some(cure);
                }
            }
            Err(why) => self.unexplained.push(format!("{open}: {why}")),
        }
        self.conclude();
    }

    /// Whether removing what causes it brought the time back.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.confirmed_cure().is_some()
    }

    /// What brought the time back.
    fn confirmed_cure(&self) -> Option<&Cure> {
        self.cure.as_ref().filter(|cure| cure.verdict == CureVerdict::Confirmed)
    }
}

/// What the work has come to, for a progress bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stage {
    /// Running the comparison.
    Comparing(Progress),
    /// Sampling has taken this many runs of so many.
    Sampling {
        /// Runs that have ended.
        done: u32,
        /// Runs at the most.
        of: u32,
    },
    /// So many runs of so many without a mechanism have ended.
    Removing {
        /// Runs that have ended.
        done: u32,
        /// Runs in all.
        of: u32,
    },
    /// This many windows of the functions in question have been followed of so many.
    Counting {
        /// Windows that have been followed.
        done: u32,
        /// Windows in all.
        of: u32,
    },
}

/// Explains the difference between two programs.
///
/// # Errors
/// See [`ExplainError`]; then there is no partial result.
pub fn explain(
    programs: [PathBuf; 2],
    bench: &mut dyn Bench,
    profile: &Design,
    text: &mut SourceText,
    progress: &mut dyn FnMut(Stage),
) -> Result<Explanation, ExplainError> {
    let mut explanation = look(programs, bench, profile, text, progress)?;
    explanation.answer = Answer::of(&explanation);
    Ok(explanation)
}

fn look(
    programs: [PathBuf; 2],
    bench: &mut dyn Bench,
    profile: &Design,
    text: &mut SourceText,
    progress: &mut dyn FnMut(Stage),
) -> Result<Explanation, ExplainError> {
    // Before any run: a program that cannot be read should not cost a minute first.
    let images = [Image::open(&programs[0])?, Image::open(&programs[1])?];
    let comparison = bench.compare(&mut |p| progress(Stage::Comparing(p)))?;
    let matches = match_functions(&images[0], &images[1]);
    let mut explanation = Explanation {
        conclusion: Conclusion::NothingToExplain,
        answer: Answer::Ended(Conclusion::NothingToExplain),
        summary: None,
        slow_arm: slow_arm(&comparison),
        census: ChangeCounts::of(&matches),
        built: None,
        heat: None,
        work: None,
        only_in_slow: None,
        kernel: Kernel::of_compared_runs(&comparison),
        rows: Vec::new(),
        stacks: None,
        ledgers: Vec::new(),
        cure: None,
        placements: None,
        causes: Vec::new(),
        hot_code: Vec::new(),
        grade: None,
        unexplained: Vec::new(),
        notes: open::stripped(&images),
        programs,
        comparison,
    };
    let Some(slow) = explanation.slow_arm else { return Ok(explanation) };

    explanation.conclusion = Conclusion::NoMechanism;
    let time = ProcessorTime::of(&explanation.comparison);
    if let Some(blocked_ns) = time.blocked_ns(slow) {
        let waits = kernel::waits(bench, &images, slow, blocked_ns);
        explanation.kernel.waits =
            waits.map_err(|cause| ExplainError::Sample { arm: slow, cause })?;
    }
    if let Some((conclusion, why)) = time.why_not_located(slow, &explanation.kernel.waits) {
        // In waiting, or open: `why` is the answer.
        explanation.conclusion = conclusion;
        explanation.summary = Some(why.clone());
        explanation.unexplained.push(why);
        return Ok(explanation);
    }
    let heats = match heat::locate(&images, bench, progress) {
        Err(ExplainError::Sample { cause: cause @ SampleError::NoEngine { .. }, .. }) => {
            explanation.conclusion = Conclusion::NotLocated;
            explanation.unexplained.push(open::not_located(&cause));
            explanation.summary = summary::summary(&explanation);
            return Ok(explanation);
        }
        heats => heats?,
    };
    bench.check_files()?;
    let in_user_code = time.in_user_code(&heats);
    let in_kernel = time.in_kernel(&heats);
    let outside = time.parts_outside(&in_user_code, in_kernel.as_ref());
    explanation.kernel.part = in_kernel.map(|(part, _)| part);
    explanation.rows = rows::rows(&matches, &heats, &in_user_code, time.difference_ns());
    explanation.stacks = CallStacks::of(
        &images,
        &matches,
        &heats,
        &explanation.rows,
        &in_user_code,
        time.difference_ns(),
    );
    explanation.notes.extend(explanation.stacks.as_ref().and_then(CallStacks::note));
    explanation.unexplained.extend(outside);
    let counting = &mut |done, of| progress(Stage::Counting { done, of });
    let run_ns = time.of_runs_ns();
    let [before, after] = &in_user_code;
    let all = work::UserCode {
        share: processor::share(before, after, time.difference_ns(), "user code"),
        ns: [before.value, after.value],
        longer_ns: time.longer_ns(),
    };
    let longest_ns = run_ns[0].max(run_ns[1]);
    let mut insns = Default::default();
    match work::count(bench, &images, &mut explanation.rows, &all, longest_ns, counting)? {
        Ok((work, counts)) => (explanation.work, insns) = (Some(work), counts),
        Err(why) => explanation
            .unexplained
            .push(format!("how many instructions each build executes was not counted: {why}")),
    }
    let (work, rows) = (explanation.work.as_ref(), &explanation.rows);
    explanation
        .kernel
        .add_system_calls(bench, &images, work, rows, time.difference_ns())
        .map_err(|cause| ExplainError::Sample { arm: slow, cause })?;
    let mut design = profile.clone();
    let debug = images.each_ref().map(DebugInfo::of);
    explanation.built = Built::of(&images, &debug, &explanation.rows);
    let (mut tried, mut windows) = (None, Vec::new());
    let (causes, mut acquitted) = match &explanation.work {
        Some(work)
            if work.leaves_less_than(cause::LEAST_PART)
                && !work.is_cheaper(slow)
                && !rows::go_apart(&explanation.rows) =>
        {
            (Vec::new(), Vec::new())
        }
        _ => {
            let strings = explanation.work.as_ref().is_some_and(Work::moves_strings);
            explanation.notes.extend(bench.measure(&mut design, strings)?);
            // What is judged by the pairs that were alone is modelled alone.
            let alone = explanation.comparison.analysis.is_judged_alone();
            let now = bench.core_now().map(|core| core.shared_percent);
            let shared = explanation.comparison.shared_percent().into_iter().chain(now);
            let shared = shared.reduce(f64::max);
            let shared = shared.filter(|percent| !alone && *percent >= SHARED_PERCENT);
            explanation.notes.extend(shared.map(open::is_shared));
            let in_made_code =
                explanation.work.is_none() && rows::are_most_in_made_code(&explanation.rows);
            let followed =
                Followed::none(&design, shared.is_some(), &insns).in_made_code(in_made_code);
            let ledgers = |windows: &[BothArms]| {
                ledger::ledgers(
                    &explanation.rows,
                    (&all, explanation.work.as_ref()),
                    windows,
                    &images,
                    &debug,
                    slow,
                    time.difference_ns(),
                )
            };
            let (rows, counted) = (&explanation.rows, (&images, run_ns, &design));
            let judged = followed.until_seen(bench, counted, rows, &ledgers, counting)?;
            (windows, explanation.ledgers) = (judged.windows, judged.ledgers);
            let first = windows.first().map(|both| &both.arms);
            explanation.only_in_slow = OnlyInSlow::of(&explanation.rows, slow, first);
            let why = judged.why_none.map(|why| why.to_string());
            if let Some(why) = &why {
                explanation.unexplained.push(format!("no windows were followed: {why}"));
            }
            let rows = &explanation.rows;
            let candidates = cause::find(&images, &debug, &heats, rows, slow, &design, text);
            // What is blocked is nearly the same for all shapes of a core.
            let none = || why.unwrap_or_else(|| "there is no window".to_owned());
            let first = windows.first().map(|both| &both.arms).ok_or_else(none);
            let instructions = explanation.work.as_ref().map(|work| work.instructions.typical());
            let found = counts::confirm(candidates, first, &explanation.ledgers, instructions);
            if let Some(both) = windows.first() {
                let of_slow = (&images[slow.index()], &debug[slow.index()]);
                let removing = &mut |done, of| progress(Stage::Removing { done, of });
                let rows = &explanation.rows;
                tried = cure::attempt(bench, of_slow, rows, both, slow, run_ns, removing)?;
            }
            found
        }
    };
    explanation.causes = causes;
    acquitted.extend(cure::apply(&mut explanation, tried));
    acquitted.extend(cure::withdraw_unsupported(&mut explanation));
    explanation.hot_code = hot_code::find(&hot_code::Known {
        images: &images,
        debug: &debug,
        heats: &heats,
        rows: &explanation.rows,
        ledgers: &explanation.ledgers,
        causes: &explanation.causes,
        windows: &windows,
    });
    drop(windows);
    explanation.conclude();
    let both = [slow, slow.other()].map(|arm| &images[arm.index()]);
    let of_slow = &debug[slow.index()];
    let removing = &mut |done, of| progress(Stage::Removing { done, of });
    if explanation.is_open()
        && let Some(tried) = switch::flush_to_zero(bench, both, of_slow, slow, run_ns, removing)?
    {
        explanation.keep(tried, "what runs without denormal numbers take was not measured");
    }
    // Locks that threads wait for are in the kernel, too.
    if (explanation.is_open() || explanation.conclusion == Conclusion::Kernel)
        && switch::has_threads_on_several_processors(&explanation.comparison)
    {
        let tried = switch::on_one_processor(bench, slow, run_ns, removing)?;
        explanation.keep(tried, "what runs on one processor take was not measured");
    }
    if explanation.is_open() && explanation.kernel.may_have_huge_pages(slow) {
        let tried = switch::on_small_pages(bench, slow, run_ns, removing)?;
        explanation.keep(tried, "what runs without huge pages take was not measured");
    }
    if explanation.is_open()
        && let Some(placement) = Placement::of(&explanation.rows, slow)
    {
        let placed = placement::place(bench, both, of_slow, placement, slow, run_ns, removing)?;
        explanation.keep(placed, "whether where the code lies is the reason was not tried");
    }
    if explanation.is_open()
        && let Some(placement) = Placement::of_any(&explanation.rows, slow)
    {
        let aligned = placement::align(bench, both, of_slow, placement, slow, run_ns, removing)?;
        explanation.keep(aligned, "whether the code's alignment is the reason was not tried");
    }
    if bench.placements() > 0 {
        let settings = (&explanation.comparison.settings, run_ns);
        match placements::run(bench, both, &explanation.rows, slow, settings, removing)? {
            Ok(found) => explanation.placements = Some(found),
            Err(why) => explanation
                .unexplained
                .push(format!("whether it is the code or its place was not tried: {why}")),
        }
    }
    bench.check_files()?;
    explanation.unexplained.extend(open::what_is_open(&explanation, &design));
    explanation.unexplained.extend(acquitted);
    let sampled = heats.iter().flat_map(|h| h.summary.notes.clone());
    for note in sampled.chain(debug.iter().flat_map(DebugInfo::refused)) {
        if !explanation.notes.contains(&note) {
            explanation.notes.push(note);
        }
    }
    explanation.heat = Some(heats.map(|h| h.summary));
    explanation.summary = summary::summary(&explanation);
    Ok(explanation)
}

fn slow_arm(comparison: &Comparison) -> Option<Arm> {
    match comparison.analysis.verdict.decision {
        Decision::Slower => Some(Arm::B),
        Decision::Faster => Some(Arm::A),
        Decision::Equivalent | Decision::Inconclusive => None,
    }
}

#[cfg(test)]
pub(crate) mod tests;
