//! Does what the model of the core predicts for a command agree with the clock?
//!
//! *Effect.* The model ([`crate::sim::core`]) leaves things out, and its numbers may be those of another core. *Sign.* The
//! cycles that whole runs take for each instruction, place by place: processor time by the kernel, shared out by samples,
//! times the core clock, over the instructions of a run that was followed whole. No counter is needed. Windows spread
//! over the run stand for all of it in the model, as they do in `explain`. Runs beside another process on the core, which
//! nothing inside a guest shows, do not count where enough others were alone.

use std::path::Path;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bench::or_why;
use super::heat::{self, ArmHeat, Heat};
use super::object::ObjectCode;
use super::processor::by_samples;
use super::rows::Place;
use super::run_count::{self, InRun};
use super::side::Side;
use super::windows::ArmWindows;
use super::{Bench, CoreNow, ExplainError, Stage};
use crate::code::{Function, Image};
use crate::compare::Arm;
use crate::layout::Change;
use crate::machine::Design;
use crate::model::{Measurement, Unit};
use crate::sim::TraceReport;
use crate::stats::robust::{median, sorted};
use crate::trace::engine::Change as RunChange;
use crate::trace::spread;

/// Runs that are timed alone on the core; where others share it, so many and so long are tried, and with fewer alone than the
/// least all of them count.
const TIMED_RUNS: usize = 7;
const MOST_RUNS: usize = 21;
const MOST_TIME: Duration = Duration::from_secs(10);
const LEAST_ALONE: usize = 3;
/// Places with fewer of the samples, in per cent, are not told.
const LEAST_SHARE: f64 = 5.0;
/// By how much the model is off at the most where it is as good as it claims to be.
pub const STATED_ERROR: f64 = 0.15;

/// What a trace says, with what the clock says of the same command.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CheckedTrace {
    /// One window.
    #[serde(flatten)]
    pub trace: TraceReport,
    /// Whole runs; absent where that was not asked for.
    pub check: Option<ModelCheck>,
}

/// What the model predicts for a command, and what the clock says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelCheck {
    /// The core clock between the timed runs, in MHz.
    pub core_clock: Measurement,
    /// Processor time of a run in user code, in nanoseconds.
    pub user_ns: Measurement,
    /// How the time was shared out.
    pub sampled: ArmHeat,
    /// Windows that went through the model.
    pub windows: usize,
    /// All user code.
    pub all: CheckedPlace,
    /// Functions of the program, and other files, with most samples first.
    pub places: Vec<CheckedPlace>,
    /// What was measured of the machine for this.
    pub notes: Vec<String>,
}

/// What the model predicts for one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckedPlace {
    /// The function, or the file.
    pub name: String,
    /// Its part of the samples in user code.
    pub share: Measurement,
    /// Instructions of a whole run.
    pub instructions: u64,
    /// Cycles an instruction by the clock; the ends are those of time, share and clock together.
    pub measured: Measurement,
    /// The same by the model, with the least and the most of its windows; absent where they hold too little of it.
    pub predicted: Option<Measurement>,
}

impl CheckedPlace {
    /// What the model predicts over what was measured, less one.
    #[must_use]
    pub fn off(&self) -> Option<f64> {
        self.predicted.as_ref().map(|predicted| predicted.value / self.measured.value - 1.0)
    }

    /// Whether that is more than the model states, and more than the measurement's own doubt explains.
    #[must_use]
    pub fn is_off(&self) -> bool {
        let Some(predicted) = &self.predicted else { return false };
        predicted.value > self.measured.high * (1.0 + STATED_ERROR)
            || predicted.value < self.measured.low * (1.0 - STATED_ERROR)
    }
}

/// The runs that count, and what they were run on.
struct Timed {
    /// Their processor times, ascending.
    run_ns: Vec<f64>,
    /// Readings of the core clock between all runs.
    clocks: Vec<Measurement>,
    /// What to know of other processes on the core.
    note: Option<String>,
}

/// Times runs until enough of them were alone on the core; the inner error says why there are none.
fn timed(bench: &mut dyn Bench) -> Result<Result<Timed, String>, ExplainError> {
    let begun = Instant::now();
    let (mut all, mut alone, mut clocks) = (Vec::new(), Vec::new(), Vec::new());
    let mut before = bench.core_now();
    while alone.len() < TIMED_RUNS
        && all.len() < MOST_RUNS
        && (all.len() < TIMED_RUNS || begun.elapsed() < MOST_TIME)
    {
        let run_ns = match or_why(bench.run_changed(Arm::A, RunChange::Nothing, all.len()))? {
            Ok(exit) => exit.processor_ns() as f64,
            Err(why) => return Ok(Err(why)),
        };
        let after = bench.core_now();
        all.push(run_ns);
        if !before.iter().chain(&after).any(CoreNow::is_shared) {
            alone.push(run_ns);
        }
        clocks.extend(before.and_then(|core| core.clock));
        before = after;
    }
    clocks.extend(before.and_then(|core| core.clock));
    let counts = if alone.len() >= LEAST_ALONE { &alone } else { &all };
    let note = (alone.len() < all.len()).then(|| {
        format!(
            "another process shared the core beside {} of {} runs: {}",
            all.len() - alone.len(),
            all.len(),
            match alone.len() >= LEAST_ALONE {
                true => "the others count",
                false =>
                    "all count, and what keeps the core busy took up to twice as long as alone",
            }
        )
    });
    Ok(Ok(Timed { run_ns: sorted(counts), clocks, note }))
}

/// Holds the model against whole runs of the command that `bench` has as its first arm; the inner error says why there is
/// nothing to hold it against.
///
/// # Errors
/// See [`ExplainError`].
pub fn check(
    program: &Path,
    bench: &mut dyn Bench,
    profile: &Design,
    progress: &mut dyn FnMut(Stage),
) -> Result<Result<ModelCheck, String>, ExplainError> {
    let image = Image::open(program)?;
    let heat = heat::of_one(&image, bench, progress)?;
    let mut design = profile.clone();
    let mut notes = bench.measure(&mut design, true)?;
    let Timed { run_ns, clocks, note } = match timed(bench)? {
        Ok(timed) => timed,
        Err(why) => return Ok(Err(why)),
    };
    notes.extend(note);
    let Some(core_clock) = of_all(&clocks) else {
        return Ok(Err("the core clock could not be measured (stallscope probe clock)".to_owned()));
    };
    let typical_ns = median(&run_ns).unwrap_or_default();
    let user_code = by_samples(&heat.summary, typical_ns);
    let in_user_code = user_code.map_or(1.0, |user_code| user_code.value / typical_ns.max(1.0));
    let user_ns = Measurement {
        value: typical_ns * in_user_code,
        unit: Unit::Nanoseconds,
        low: run_ns[0] * in_user_code,
        high: run_ns[run_ns.len() - 1] * in_user_code,
        n: run_ns.len(),
        how: "processor time, median and ends; the kernel's samples left out".to_owned(),
    };
    let counting = &mut |done, of| progress(Stage::Counting { done, of });
    let work = match run_count::budget(typical_ns) {
        Ok(budget) => or_why(bench.work(Arm::A, budget))?,
        Err(why) => Err(why),
    };
    let work = match work {
        Ok(work) => work,
        Err(why) => return Ok(Err(why)),
    };
    // Twice those of `explain`, which adds more where they go apart: a run has phases (bzip2: 0.24 to 0.71 cycles an instruction).
    let count = 2 * spread::count(typical_ns);
    let shape = [design.core().value];
    let windows = spread::follow(typical_ns, 0..count, &mut |n, after| {
        counting(n as u32, count as u32);
        bench.window(Arm::A, after.into(), 0, &design, &shape)
    })?;
    let executed = InRun::of(&work.executed, &image);
    let mut followed = ArmWindows::of_run(executed.insns());
    match windows {
        Ok(windows) => windows.into_iter().flatten().for_each(|it| followed.add(&image, it)),
        Err(why) => return Ok(Err(why.to_string())),
    }
    let checked = |name: &str, hits: u64, instructions: u64, accounts| {
        let share = heat.share(hits);
        let cycles_per_insn = |ns: f64, mhz: f64, percent: f64| {
            ns * mhz / 1e3 * percent / 100.0 / instructions.max(1) as f64
        };
        CheckedPlace {
            name: name.to_owned(),
            measured: Measurement {
                value: cycles_per_insn(user_ns.value, core_clock.value, share.value),
                unit: Unit::Cycles,
                low: cycles_per_insn(user_ns.low, core_clock.low, share.low),
                high: cycles_per_insn(user_ns.high, core_clock.high, share.high),
                n: run_ns.len(),
                how: "time in user code x share of samples x core clock, over instructions"
                    .to_owned(),
            },
            predicted: Side::of(instructions, accounts).cycles_per_insn(),
            share,
            instructions,
        }
    };
    let mut places: Vec<CheckedPlace> = of_image(&image, &heat)
        .map(|(place, hits)| {
            let instructions = executed.in_place(Arm::A, &place).instructions;
            checked(place.name(), hits, instructions, followed.in_place(Arm::A, &place))
        })
        .filter(|it| it.share.value >= LEAST_SHARE && it.instructions > 0)
        .collect();
    places.sort_by(|a, b| b.share.value.total_cmp(&a.share.value));
    let all =
        checked("user code", heat.summary.samples, work.instructions, followed.in_whole_run());
    let windows = followed.len();
    Ok(Ok(ModelCheck { core_clock, user_ns, sampled: heat.summary, windows, all, places, notes }))
}

/// Every place of one build that has samples.
fn of_image<'a>(image: &'a Image, heat: &'a Heat) -> impl Iterator<Item = (Place, u64)> + 'a {
    let hits = |function: &Function| heat.between(function.start, function.end());
    let functions = image.functions().iter().map(move |function| (function, hits(function)));
    // Names are made of those alone that are told of.
    let functions = functions.filter(|(_, hits)| *hits > 0).map(|(function, hits)| {
        let (name, before) = (function.name(), Some(function.clone()));
        (Place::Function { name, before, after: None, change: Change::Same }, hits)
    });
    let objects = heat.by_object.iter().map(|(name, object)| {
        let code = ObjectCode::Same { path: object.path.clone() };
        (Place::Object { name: name.clone(), code, most_in: None }, object.hits)
    });
    functions.chain(objects)
}

/// The middle of several readings of the clock, and all of their intervals.
fn of_all(readings: &[Measurement]) -> Option<Measurement> {
    let values: Vec<f64> = readings.iter().map(|reading| reading.value).collect();
    Some(Measurement {
        value: median(&values)?,
        unit: Unit::Megahertz,
        low: readings.iter().map(|reading| reading.low).fold(f64::INFINITY, f64::min),
        high: readings.iter().map(|reading| reading.high).fold(0.0, f64::max),
        n: readings.len(),
        how: "median of readings between the runs, ends of all".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::tests::Scene;
    use crate::explain::{ByPlace, Executed, WorkCount};
    use crate::machine::Microarchitecture;

    /// The decoder has 80 % of the samples and 400 of 500 instructions; runs take 2 ms at 2 GHz.
    fn checked(cycles: u64, kernel: Option<u64>) -> Result<ModelCheck, String> {
        checked_beside(&[], cycles, kernel)
    }

    /// The same where looks at the core see others in so many stretches.
    fn checked_beside(
        shared: &[f64],
        cycles: u64,
        kernel: Option<u64>,
    ) -> Result<ModelCheck, String> {
        let mut scene = Scene::new([true, true], 0.0, [(800, 200), (800, 200)]);
        let bench = &mut scene.bench;
        bench.kernel_samples = kernel.map(|samples| [samples; 2]);
        bench.patched_ns = Some([2_000_000; 4]);
        bench.shared_percents = shared.iter().rev().copied().collect();
        let window = bench.counts[0].as_mut().unwrap();
        for (_, account) in &mut window.program {
            account.cycles = account.executions / 1000 * cycles;
        }
        let at = |n: usize| window.program[n].0;
        let million = Executed { instructions: 1_000_000, ..Executed::default() };
        let executed = ByPlace { program: vec![(at(0), million)], ..ByPlace::default() };
        bench.work[0] =
            Some(WorkCount { instructions: 1_250_000, executed, ..WorkCount::default() });
        let design = Design::of(Microarchitecture::Zen5);
        check(&scene.programs()[0], &mut scene.bench, &design, &mut |_| {}).unwrap()
    }

    #[test]
    fn cycles_by_the_clock_are_held_against_those_of_the_model() {
        // 2 ms at 2 GHz are 4 million cycles, of which the decoder has four fifths, for a million instructions.
        let check = checked(3200, None).unwrap();
        let decoder = &check.places[0];
        assert_eq!(decoder.name, "decode");
        assert!((decoder.measured.value - 3.2).abs() < 0.01, "{decoder:?}");
        assert!(decoder.measured.low < 3.15 && decoder.measured.high > 3.25, "{decoder:?}");
        assert!(decoder.off().unwrap().abs() < 0.01 && !decoder.is_off(), "{decoder:?}");
        assert!((check.all.measured.value - 3.2).abs() < 0.01, "{:?}", check.all);
        assert_eq!(check.places.len(), 1, "nothing is said of places without instructions");
    }

    #[test]
    fn a_model_that_is_off_by_more_than_it_states_is_told() {
        let is_off = |cycles| checked(cycles, None).unwrap().places[0].is_off();
        assert!(!is_off(3600) && is_off(4000) && !is_off(2800) && is_off(2500));
    }

    #[test]
    fn time_in_the_kernel_is_left_out() {
        let half = checked(1600, Some(1000)).unwrap();
        assert!((half.places[0].measured.value - 1.6).abs() < 0.01, "{half:?}");
    }

    #[test]
    fn runs_beside_another_process_count_only_where_hardly_any_were_alone() {
        let told = |shared: &[f64]| {
            let check = checked_beside(shared, 3200, None).unwrap();
            (check.user_ns.n, check.notes.last().cloned().unwrap_or_default())
        };
        assert_eq!(told(&[9.9; 8]), (7, String::new()));
        let (n, note) = told(&[0.0, 10.0, 0.0, 60.0]);
        assert!(n == 7 && note.contains("beside 4 of 11 runs: the others count"), "{n} {note}");
        let (n, note) = told(&[50.0; 20]);
        assert!(n == 21 && note.contains("beside 20 of 21 runs: all count"), "{n} {note}");
    }

    #[test]
    fn where_runs_cannot_be_held_there_is_a_reason() {
        let mut scene = Scene::new([true, true], 0.0, [(800, 200), (800, 200)]);
        let design = Design::of(Microarchitecture::Zen5);
        let why = check(&scene.programs()[0], &mut scene.bench, &design, &mut |_| {}).unwrap();
        assert!(why.unwrap_err().contains("ptrace is forbidden"));
    }
}
