//! The sweep itself: build all cells, try each once, run round by round, judge.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::axes::{ALIGN, Variant, fill, variants};
use super::build::{BuildOutcome, Builder, quoted};
use super::knob::{Knob, joined};
use super::machines::{Asked, join};
use super::order_file;
use super::parallel::parallel;
use super::pilot::LayoutPlan;
use super::report::{CellRecord, SweepNote, SweepReport};
use super::rounds::Known;
use super::{Cell, SweepError, SweepRun, SweepSettings};
use crate::compare::amounts::{Amounts, NoAmounts, measured};
use crate::compare::layouts::AS_BUILT;
use crate::compare::neighbours::Guard;
use crate::compare::warning::take_turns;
use crate::run::child::{ChildError, Launch, Limits, resolve_program};
use crate::run::look::Seen;

/// Bytes of environment that placements of the stack are drawn from, a page of 16-byte steps.
pub(super) const STACK_STEPS: u64 = 256;

/// Where a sweep keeps things.
#[derive(Clone, Debug)]
pub struct Folders {
    /// Builds and journals go below this one.
    pub cache: PathBuf,
    /// What the builds are made of; their content is part of the key.
    pub sources: Vec<PathBuf>,
    /// Forget runs of an interrupted sweep of the same settings.
    pub fresh: bool,
}

/// How far a sweep has come.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    /// Programs are being built.
    Building {
        /// Number that have ended.
        done: u64,
        /// Number of all of them.
        of: u64,
    },
    /// Runs of earlier sweeps are used.
    Resumed {
        /// Number of runs that are used again.
        runs: u64,
    },
    /// Something is known before anything runs.
    Known(SweepNote),
    /// The first rounds are over: what they promise. Not when nothing is left to plan.
    Piloted(LayoutPlan),
    /// Programs are being run.
    Running {
        /// Number that have ended.
        done: u64,
        /// Of so many, as planned so far.
        of: u64,
        /// What is left, in nanoseconds.
        left_ns: u64,
    },
}

pub(super) struct Ready {
    pub(super) cell: Cell,
    pub(super) program: PathBuf,
    pub(super) args: Vec<OsString>,
    padding_bytes: Option<usize>,
}

/// Does what `settings` say and judges it.
///
/// # Errors
/// See [`SweepError`]; a variant that does not build is a missing cell of the report, no error.
pub fn sweep(
    settings: &SweepSettings,
    folders: &Folders,
    interrupt: &AtomicBool,
    progress: &(dyn Fn(Stage) + Sync),
) -> Result<SweepReport, SweepError> {
    let variants = variants(&settings.axes)?;
    let Prepared { plan, builder, cells, identical, known, ready, .. } =
        prepare(settings, &variants, folders, interrupt, progress)?;
    let known_pairs = Known { cells: &cells, identical: &identical };
    let ran = plan.rounds(&builder, folders, &known_pairs, &ready, interrupt, progress)?;
    cells.iter().try_for_each(CellRecord::check)?;
    let asked = Asked { settings, variants: &variants, cells: &cells, identical: &identical };
    let mut result = join(&asked, ran.blocks)?;
    result.earlier_runs = ran.earlier_runs;
    let hot = plan.same_hot_code(&result, &ready, interrupt);
    result.notes.splice(0..0, known.into_iter().chain(hot));
    Ok(result)
}

/// What there is before the first round.
pub(super) struct Prepared<'a> {
    pub(super) plan: Plan<'a>,
    pub(super) builder: Builder,
    pub(super) cells: Vec<CellRecord>,
    pub(super) identical: Vec<[u32; 2]>,
    pub(super) known: Vec<SweepNote>,
    pub(super) ready: Vec<Ready>,
    /// What one run of every build took.
    pub(super) round_ns: u64,
}

/// Builds everything and tries each build once.
pub(super) fn prepare<'a>(
    settings: &'a SweepSettings,
    variants: &'a [Variant],
    folders: &Folders,
    interrupt: &AtomicBool,
    progress: &(dyn Fn(Stage) + Sync),
) -> Result<Prepared<'a>, SweepError> {
    settings.measure.check()?;
    let plan = Plan::new(settings, variants)?;
    let builder = Builder::new(&folders.cache.join("builds"), &folders.sources)?;
    let mut cells = plan.build(&builder, interrupt, progress)?;
    plan.check(&mut cells)?;
    let identical = plan.identical(&cells);
    let mut known = plan.same_code(&cells, &identical);
    known.iter().for_each(|note| progress(Stage::Known(note.clone())));
    let ready = plan.ready(&cells)?;
    let (mut threads, mut round_ns) = (0, 0_u64);
    for one in &ready {
        let mut seen = Seen::default();
        let wall_ns = plan.run(one, 0, Some(&mut seen), interrupt)?.wall_ns;
        let fixed_ns = settings.operations_in_ms.unwrap_or(0).saturating_mul(1_000_000);
        round_ns = round_ns.saturating_add(wall_ns.max(fixed_ns));
        threads = threads.max(seen.threads);
    }
    if take_turns(settings.cpus.as_ref(), &[threads]) {
        known.push(SweepNote::ThreadsOnOneProcessor { threads });
        known.last().into_iter().for_each(|note| progress(Stage::Known(note.clone())));
    }
    // Another sweep may share the cache.
    cells.iter().try_for_each(CellRecord::check)?;
    Ok(Prepared { plan, builder, cells, identical, known, ready, round_ns })
}

pub(super) struct Plan<'a> {
    pub(super) settings: &'a SweepSettings,
    pub(super) variants: &'a [Variant],
    cells: Vec<Cell>,
}

/// Flags for `{layout}`, variables that carry them where the template does not.
type Flags = (String, Vec<(&'static str, String)>);

/// Whether a template has a place for the value of `name`.
fn names(template: &str, name: &str) -> bool {
    template.contains(&format!("{{{name}}}"))
}

impl<'a> Plan<'a> {
    pub(super) fn new(
        settings: &'a SweepSettings,
        variants: &'a [Variant],
    ) -> Result<Self, SweepError> {
        let run_names_out = settings.run.contains("{out}");
        let problem = |text: &str| Err(SweepError::Templates(text.into()));
        match &settings.build {
            Some(build) if !build.contains("{out}") => {
                return problem("--build does not name {out}, the file that it has to write");
            }
            Some(_) if !run_names_out => {
                return problem(
                    "--run does not name {out}, so what --build makes would not be run",
                );
            }
            None if run_names_out => {
                return problem("--run names {out}, and there is no --build that writes it");
            }
            None if settings.layouts > 0 && settings.knob.rebuilds() => {
                return problem(
                    "--layouts needs --build, because placements are made by the linker (or choose \
                     --knob env, which only moves the stack)",
                );
            }
            _ => {}
        }
        let layouts = 0..=settings.layouts;
        let cells = (0..variants.len() as u32)
            .flat_map(|variant| layouts.clone().map(move |layout| Cell { variant, layout }))
            .collect();
        let named = settings.build.iter().chain([&settings.run]).any(|it| names(it, ALIGN));
        if let Some(axis) = settings.axes.iter().find(|axis| axis.name == ALIGN && !named)
            && settings.build.is_some()
        {
            axis.check_alignments()?;
        }
        let plan = Self { settings, variants, cells };
        // Typing errors in templates show before the first build.
        for cell in &plan.cells {
            plan.build_command(*cell, "out", "")?;
            plan.run_words(*cell, "out")?;
        }
        Ok(plan)
    }

    /// The seed of a placement; none for the build as it comes. Seeds differ between variants: a
    /// seed does not pair layouts of different code.
    fn seed(&self, cell: Cell) -> Option<u64> {
        let mut rng = Pcg64Mcg::seed_from_u64(self.settings.seed ^ 0x1a70);
        let steps = cell.variant * (self.settings.layouts + 1) + cell.layout;
        let mut seed = 0;
        for _ in 0..=steps {
            // Linkers take 31 bits, and Go takes 0 for "none".
            seed = (rng.next_u64() >> 34) + 1;
        }
        (cell.layout != AS_BUILT).then_some(seed)
    }

    fn values<'b>(&'b self, cell: Cell, more: &[(&'b str, &'b str)]) -> Vec<(&'b str, &'b str)> {
        let axes = &self.variants[cell.variant as usize].values;
        axes.iter().map(|(k, v)| (k.as_str(), v.as_str())).chain(more.iter().copied()).collect()
    }

    fn build_command(&self, cell: Cell, out: &str, flags: &str) -> Result<String, SweepError> {
        let seed = self.seed(cell).unwrap_or(0).to_string();
        let more = [("out", out), ("layout", flags), ("seed", seed.as_str())];
        fill(self.settings.build.as_deref().unwrap_or(""), &self.values(cell, &more))
    }

    pub(super) fn run_words(&self, cell: Cell, out: &str) -> Result<Vec<String>, SweepError> {
        let wrong = || SweepError::RunTemplate(self.settings.run.clone());
        let words = shlex::split(&self.settings.run).ok_or_else(wrong)?;
        let more = [("out", out)];
        let values = self.values(cell, &more);
        let words: Vec<String> =
            words.iter().map(|w| fill(w, &values)).collect::<Result<_, SweepError>>()?;
        if words.is_empty() { Err(wrong()) } else { Ok(words) }
    }

    fn flags(&self, cell: Cell, order: Option<&str>) -> Flags {
        let knob = self.settings.knob;
        let mut parts = vec![knob.flags(self.seed(cell), order)];
        if self.settings.layouts == 0 {
            parts.clear();
        }
        let axes = &self.variants[cell.variant as usize].values;
        let used =
            |name: &str| self.settings.build.as_deref().is_some_and(|build| names(build, name));
        if let Some((_, bytes)) = axes.iter().find(|(name, _)| name == ALIGN && !used(ALIGN)) {
            parts.extend(bytes.parse().ok().map(|bytes| knob.align_flags(bytes)));
        }
        let flags = joined(knob, &parts);
        let carried =
            if used("layout") || used("seed") { Vec::new() } else { knob.variables(&flags) };
        (flags, carried)
    }

    fn build(
        &self,
        builder: &Builder,
        interrupt: &AtomicBool,
        progress: &(dyn Fn(Stage) + Sync),
    ) -> Result<Vec<CellRecord>, SweepError> {
        if self.settings.build.is_none() {
            return Ok(self.cells.iter().map(|c| CellRecord::unbuilt(*c)).collect());
        }
        let rebuilds = self.settings.knob.rebuilds();
        let (plain, placed): (Vec<Cell>, Vec<Cell>) =
            self.cells.iter().partition(|c| c.layout == AS_BUILT);
        let of = if rebuilds { self.cells.len() } else { plain.len() } as u64;
        let done = AtomicUsize::new(0);
        let tick = || {
            let done = done.fetch_add(1, Ordering::Relaxed) as u64 + 1;
            progress(Stage::Building { done, of });
        };
        // Those as they come first: GNU ld's order is made from their symbols.
        let mut records = parallel(&plain, |cell| {
            let outcome = self.build_one(builder, *cell, None, interrupt);
            tick();
            outcome
        })?;
        let first = records.clone();
        let base = |cell: &Cell| first.iter().find(|r| r.cell.variant == cell.variant);
        if !rebuilds {
            records.extend(
                placed
                    .iter()
                    .filter_map(|cell| Some(CellRecord { cell: *cell, ..base(cell)?.clone() })),
            );
            return Ok(records);
        }
        records.extend(parallel(&placed, |cell| {
            let outcome = match base(cell) {
                // What does not build as it comes will not build in another order.
                Some(r) if r.program.is_none() => Ok(CellRecord { cell: *cell, ..r.clone() }),
                r => self.build_one(builder, *cell, r.and_then(|r| r.program.clone()), interrupt),
            };
            tick();
            outcome
        })?);
        records.sort_by_key(|r| r.cell);
        Ok(records)
    }

    fn build_one(
        &self,
        builder: &Builder,
        cell: Cell,
        base: Option<PathBuf>,
        interrupt: &AtomicBool,
    ) -> Result<CellRecord, SweepError> {
        let script = match (self.settings.knob, self.seed(cell), base) {
            (Knob::GnuLd, Some(seed), Some(base)) => {
                let bytes = std::fs::read(&base)
                    .map_err(|cause| SweepError::File { path: base.clone(), cause })?;
                match order_file::script(&bytes, seed) {
                    Some(text) => Some(builder.keep(&format!("order-{seed}.ld"), &text)?),
                    None => {
                        let why = "no function of the first build has a section of its own, so that nothing can be \
                                   ordered: build with -ffunction-sections, or vary something else (--knob)";
                        return Ok(CellRecord {
                            failure: Some(why.into()),
                            ..CellRecord::unbuilt(cell)
                        });
                    }
                }
            }
            _ => None,
        };
        let word = script.as_deref().map(quoted).transpose()?;
        let (flags, carried) = self.flags(cell, word.as_deref());
        // What a variable carries is split at blanks by its reader; quotes do not help there.
        let is_plain = script.as_ref().map(|p| p.to_string_lossy().into_owned()) == word;
        if !carried.is_empty() && !is_plain {
            return Err(SweepError::Templates(
                "the cache folder's path has characters that no flags variable can carry: put {layout} \
                 into --build where flags go, or choose another folder"
                    .into(),
            ));
        }
        // Symbols are part of the order, so of the key, by way of the script's own content.
        let key = builder.key(&self.build_command(cell, "", &flags)?, &carried);
        let command = |out: &str| self.build_command(cell, out, &flags);
        Ok(match builder.build(key, command, &carried, interrupt)? {
            BuildOutcome::Built { program, build_ns, cached } => {
                CellRecord::built(cell, program, build_ns, cached)?
            }
            BuildOutcome::Failed { why, log } => CellRecord::failed(cell, why, log),
        })
    }

    /// Placements that are all one file were no placements.
    fn check(&self, cells: &mut [CellRecord]) -> Result<(), SweepError> {
        if cells.iter().all(|c| c.failure.is_some()) {
            let first = cells.iter().find_map(|c| c.why_unbuilt()).unwrap_or_default();
            return Err(SweepError::NothingBuilt(first));
        }
        if self.settings.layouts == 0 || !self.settings.knob.rebuilds() {
            return Ok(());
        }
        for (index, variant) in self.variants.iter().enumerate() {
            let built: Vec<&CellRecord> = cells
                .iter()
                .filter(|c| c.cell.variant == index as u32 && c.program.is_some())
                .collect();
            let placed: Vec<&CellRecord> =
                built.iter().copied().filter(|c| c.cell.layout != AS_BUILT).collect();
            if placed.len() > 1 && placed.iter().all(|c| c.fingerprint == placed[0].fingerprint) {
                return Err(SweepError::KnobWithoutEffect {
                    variant: variant.label(),
                    layouts: placed.len() as u32,
                    knob: self.settings.knob.name().into(),
                });
            }
        }
        Ok(())
    }

    pub(super) fn ready(&self, cells: &[CellRecord]) -> Result<Vec<Ready>, SweepError> {
        let mut ready = Vec::new();
        for record in cells.iter().filter(|c| c.failure.is_none()) {
            let out = record.program.as_ref().map(|p| p.to_string_lossy().into_owned());
            let mut words = self.run_words(record.cell, out.as_deref().unwrap_or(""))?.into_iter();
            let name: OsString = words.next().unwrap_or_default().into();
            let program = resolve_program(&name)?;
            let stack = self.settings.knob == Knob::Environment && record.cell.layout != AS_BUILT;
            let padding_bytes = if self.settings.knob == Knob::Environment {
                let seed = self.seed(record.cell).filter(|_| stack).unwrap_or(0);
                Some((seed % STACK_STEPS * 16) as usize)
            } else {
                None
            };
            ready.push(Ready {
                cell: record.cell,
                program,
                args: words.map(Into::into).collect(),
                padding_bytes,
            });
        }
        Ok(ready)
    }

    pub(super) fn launch(&self, one: &Ready, padding: usize) -> Launch {
        Launch {
            program: one.program.clone(),
            args: one.args.clone(),
            environment_padding_bytes: one.padding_bytes.unwrap_or(padding),
            cpu: self.settings.cpus.clone(),
            ..Launch::default()
        }
    }

    pub(super) fn limits<'b>(&self, interrupt: &'b AtomicBool) -> Limits<'b> {
        Limits { timeout: self.settings.timeout_ms.map(Duration::from_millis), interrupt }
    }

    /// One process, with what the answer is about.
    pub(super) fn run(
        &self,
        one: &Ready,
        padding: usize,
        seen: Option<&mut Seen>,
        interrupt: &AtomicBool,
    ) -> Result<Amounts, SweepError> {
        let unmeasured = |what| SweepError::Unmeasured { cell: self.name(one), what };
        let result = measured(
            &self.launch(one, padding),
            &self.limits(interrupt),
            &self.settings.measure,
            seen,
        );
        let (exit, amounts) = result.map_err(|cause| match cause {
            NoAmounts::Child(ChildError::Interrupted) => SweepError::Interrupted,
            NoAmounts::Child(cause) => self.explain_words(one, cause.to_string()),
            NoAmounts::Unmeasured(what) => unmeasured(what),
        })?;
        if !exit.status.success() {
            let told = exit.stderr.complaint().unwrap_or_default();
            let what = format!("{}; {}", exit.status, told.replace(char::is_control, " "));
            return Err(self.explain_words(one, what.trim_end_matches("; ").into()));
        }
        amounts.judged(&self.settings.measure).map_err(unmeasured)?;
        Ok(amounts)
    }

    fn name(&self, one: &Ready) -> String {
        let variant = self.variants[one.cell.variant as usize].label();
        format!("layout {} of {variant}", one.cell.layout)
    }

    fn explain_words(&self, one: &Ready, what: String) -> SweepError {
        let words: Vec<String> = std::iter::once(one.program.to_string_lossy().into_owned())
            .chain(one.args.iter().map(|a| a.to_string_lossy().into_owned()))
            .collect();
        SweepError::Run { cell: self.name(one), command: words.join(" "), what }
    }

    pub(super) fn guarded(
        &self,
        one: &Ready,
        round: u32,
        padding: usize,
        guard: &mut Option<Guard>,
        interrupt: &AtomicBool,
    ) -> Result<SweepRun, SweepError> {
        let time = self.settings.operations_in_ms.map(Duration::from_millis);
        let run = || Amounts::in_time(time, || self.run(one, padding, None, interrupt));
        let (amounts, repeats) = match guard {
            Some(guard) => {
                let watched = guard.watch(run)?;
                (watched.value, watched.repeats)
            }
            None => (run()?, 0),
        };
        Ok(SweepRun { cell: one.cell, round, amounts, repeats, machine: 0 })
    }
}
