//! The slow build with its functions placed as the fast one has them, or elsewhere within a line of code.
//!
//! Where both builds hold the same code in a function and it takes longer in one of them, where it lies can be the
//! reason: sets of the instruction cache, windows of fetch and decoding, entries of predictors. Its instructions do
//! not tell, and no model is needed: the functions are run from copies that lie as far into a page as those of the
//! fast build ([`place_functions`]), beside both builds with copies that lie as their originals do.
//!
//! Where the code differs, a loop may lie across a line or a window of decoding in the slow build alone. Then the functions
//! of both builds are run from copies at each [`SHIFTS_BYTES`]: what the slow build gains at its best place, beyond what
//! the fast one gains at its own best, is what the places cost it.

use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;

use super::bench::or_why;
use super::cure::{self, ARMS};
use super::work::MOST;
use super::{Bench, Cure, FunctionRow, Removed};
use crate::code::x86::{Patch, PatchError, place_functions, place_in_page};
use crate::code::{Architecture, DebugInfo, Function, Image, sections};
use crate::compare::Arm;
use crate::model::{PAGE_BYTES, Svma};
use crate::sim::Sites;
use crate::trace::engine::{Change, EngineError};

/// Builds with copies of functions differ by at least and at most this part of what the builds differ by.
const OF_BUILDS: [f64; 2] = [0.5, 4.0];
/// How far copies are moved on: places within a line of code.
const SHIFTS_BYTES: [i64; ARMS] = [0, 16, 32, 48];
/// How often each of these is run before the best one is asked for proof.
const LOOKS: usize = 3;
/// The best of these places is worth a proof where it takes back this part of the difference.
const LEAST_GAINED: f64 = 0.25;
/// A function that has less of the difference, in per cent, stays where it is.
const LEAST_MOVED: f64 = 10.0;
/// The part of the time of both builds that the functions take which are moved whatever they differ by.
const HOT: f64 = 0.8;
/// Random places lie so far apart.
const PLACE_STEP_BYTES: u64 = 4;
/// Functions that are placed, at the most.
const MOST_FUNCTIONS: usize = 64;

/// Functions that both builds have: in the slow one and in the fast one.
pub(super) struct Placement<'a> {
    functions: Vec<[&'a Function; 2]>,
}

impl<'a> Placement<'a> {
    /// Of the functions that hold the difference with the same code in both builds; `None` where these are not most
    /// of it, or lie alike in both.
    pub fn of(rows: &'a [FunctionRow], slow: Arm) -> Option<Self> {
        let same_code = |row: &FunctionRow| row.place.is_unchanged();
        let found = Self::of_functions(rows, slow, same_code)?;
        let lies_alike = |[here, there]: &[&Function; 2]| {
            place_in_page(here.start) == place_in_page(there.start)
        };
        (!found.functions.iter().all(lies_alike)).then_some(found)
    }

    /// Of the functions that hold the difference in both builds, whatever their code; `None` where these are not most
    /// of it.
    pub fn of_any(rows: &'a [FunctionRow], slow: Arm) -> Option<Self> {
        let holds = |row: &FunctionRow| row.share_of_difference.percent.value >= LEAST_MOVED;
        let found = Self::of_functions(rows, slow, holds)?;
        // The same code at the same address has one alignment in both.
        let is_one = |[here, there]: &[&Function; 2]| here.start == there.start;
        let differs = rows.iter().any(|row| holds(row) && !row.place.is_unchanged());
        (differs || !found.functions.iter().all(is_one)).then_some(found)
    }

    /// Of the functions that both builds have and that take most of the time of both, whatever their code; `None` where there
    /// are none.
    pub fn of_hot(rows: &'a [FunctionRow], slow: Arm) -> Option<Self> {
        let ns = |row: &FunctionRow| row.before.value + row.after.value;
        let both = |row: &'a FunctionRow| {
            Some((ns(row), [row.place.function(slow)?, row.place.function(slow.other())?]))
        };
        let mut known: Vec<(f64, [&Function; 2])> = rows.iter().filter_map(both).collect();
        known.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut left_ns = HOT * rows.iter().map(ns).sum::<f64>();
        let is_hot = |(ns, _): &(f64, _)| {
            let is_hot = left_ns > 0.0;
            left_ns -= ns;
            is_hot
        };
        let hot = known.into_iter().take_while(is_hot).take(MOST_FUNCTIONS);
        let functions: Vec<_> = hot.map(|(_, functions)| functions).collect();
        (!functions.is_empty()).then_some(Self { functions })
    }

    fn of_functions(
        rows: &'a [FunctionRow],
        slow: Arm,
        is_one: impl Fn(&FunctionRow) -> bool,
    ) -> Option<Self> {
        let both = |row: &'a FunctionRow| {
            let functions = [row.place.function(slow)?, row.place.function(slow.other())?];
            is_one(row).then_some((functions, row.share_of_difference.percent.value))
        };
        let found = rows.iter().filter_map(both).take(MOST_FUNCTIONS);
        let (functions, held): (Vec<_>, Vec<f64>) = found.unzip();
        (held.iter().sum::<f64>() >= MOST).then_some(Self { functions })
    }

    /// Both builds, the fast one first, with copies as far into their pages as their originals, and the slow one with
    /// copies as far as in the fast one; or why there are none. All pay alike for being entered by a jump.
    pub fn patches(&mut self, images: [&Image; 2]) -> Result<[Patch; 3], String> {
        self.keep_what_can_be_copied(images)?;
        let [slow, fast] = images;
        Ok([self.as_built(fast, 1)?, self.as_built(slow, 0)?, self.placed(slow, 0, 1, 0)?])
    }

    /// The slow build and the fast one with copies at each of the [`SHIFTS_BYTES`] from their originals' places.
    pub fn shifted(&mut self, images: [&Image; 2]) -> Result<[[Patch; ARMS]; 2], String> {
        self.keep_what_can_be_copied(images)?;
        let of = |n: usize| -> Result<[Patch; ARMS], String> {
            let [a, b, c, d] = SHIFTS_BYTES.map(|by| self.placed(images[n], n, n, by));
            Ok([a?, b?, c?, d?])
        };
        Ok([of(0)?, of(1)?])
    }

    /// Copies of the functions of one build, the slow one (0) or the fast one (1), where their originals lie in their pages.
    pub fn as_built(&self, image: &Image, of: usize) -> Result<Patch, String> {
        self.placed(image, of, of, 0)
    }

    /// The same at random places in pages.
    pub fn anywhere(
        &self,
        image: &Image,
        of: usize,
        random: &mut Pcg64Mcg,
    ) -> Result<Patch, String> {
        let mut place = |both: &[&'a Function; 2]| {
            (both[of], PLACE_STEP_BYTES * random.random_range(0..PAGE_BYTES / PLACE_STEP_BYTES))
        };
        let functions: Vec<_> = self.functions.iter().map(&mut place).collect();
        place_functions(image, &functions).map_err(said)
    }

    /// Copies of the functions of one build, as far into their pages as those of one, and so many bytes further.
    fn placed(&self, image: &Image, of: usize, like: usize, by: i64) -> Result<Patch, String> {
        let place =
            |both: &[&'a Function; 2]| (both[of], place_in_page(both[like].start.offset(by)));
        let functions: Vec<_> = self.functions.iter().map(place).collect();
        place_functions(image, &functions).map_err(said)
    }

    /// Leaves out what cannot be copied; why, if that is all.
    pub fn keep_what_can_be_copied(&mut self, [slow, fast]: [&Image; 2]) -> Result<(), String> {
        if slow.architecture() != Architecture::X86_64 {
            return Err("only x86-64 code can be placed elsewhere".into());
        }
        if sections(slow).iter().any(|section| section.name.ends_with("gopclntab")) {
            return Err("Go's runtime looks up where its functions lie".into());
        }
        // Whether a function can be copied does not depend on where to.
        let mut refused = Vec::new();
        self.functions.retain(|[here, there]| {
            let alone = place_functions(slow, &[(here, 0)])
                .and_then(|_| place_functions(fast, &[(there, 0)]));
            refused.extend(alone.as_ref().err().copied().map(said));
            alone.is_ok()
        });
        if self.functions.is_empty() {
            return Err(refused.join("; "));
        }
        Ok(())
    }

    /// What they are called in the slow build.
    pub fn names(&self) -> Vec<String> {
        self.functions.iter().map(|[here, _]| here.name()).collect()
    }

    /// Where the functions are in the slow build and in the fast one.
    pub fn addresses(&self) -> Vec<[Svma; 2]> {
        self.functions.iter().map(|both| both.map(|function| function.start)).collect()
    }
}

fn said((svma, error): (Svma, PatchError)) -> String {
    format!("the function at {svma} cannot be copied: {error}")
}

/// Moves the functions of both builds to where each is fastest; as [`attempt`](super::cure::attempt). Those places are
/// looked for in runs of their own: chance that made one of them look best has no part in the proof.
///
/// # Errors
/// Only when the user wants an end.
pub(super) fn align(
    bench: &mut dyn Bench,
    images: [&Image; 2],
    debug: &DebugInfo<'_>,
    mut placement: Placement<'_>,
    slow: Arm,
    run_ns: [f64; 2],
    progress: &mut dyn FnMut(u32, u32),
) -> Result<Result<Cure, String>, EngineError> {
    let patches = match placement.shifted(images) {
        Ok(patches) => patches,
        Err(why) => return Ok(Err(why)),
    };
    if let Some(why) = cure::takes_too_long(bench, (LOOKS * ARMS) as f64 * (run_ns[0] + run_ns[1]))
    {
        return Ok(Err(why));
    }
    let arms = [slow, slow.other()];
    let difference_ns = (run_ns[1] - run_ns[0]).abs();
    let mut best = [0; 2];
    for n in 0..2 {
        let mut times = [f64::INFINITY; ARMS];
        for look in 0..LOOKS * ARMS {
            progress((n * LOOKS * ARMS + look) as u32, (2 * LOOKS * ARMS) as u32);
            let which = look % ARMS;
            let change = Change::Code(&patches[n][which]);
            match or_why(bench.run_changed(arms[n], change, look / ARMS))? {
                Ok(exit) => times[which] = times[which].min(exit.processor_ns() as f64),
                Err(why) => return Ok(Err(why)),
            }
        }
        best[n] = (0..ARMS).min_by(|a, b| times[*a].total_cmp(&times[*b])).unwrap_or(0);
        if n == 0 && times[0] - times[best[0]] < LEAST_GAINED * difference_ns {
            return Ok(Err("at no other place within a line does it take much less time".into()));
        }
    }
    let [slow_best, fast_best] = best;
    let of = |n: usize, which: usize| (arms[n], Change::Code(&patches[n][which]));
    let runs = [of(1, 0), of(0, 0), of(1, fast_best), of(0, slow_best)];
    let times = cure::run(bench, runs, run_ns, progress)?;
    let tried =
        times.and_then(|times| super::switch::against_fast(&times, Removed::CodeAlignment, slow));
    let by = SHIFTS_BYTES[slow_best];
    let placed = placement.addresses().into_iter().map(|[here, _]| [here, here.offset(by)]);
    Ok(of_builds(tried, placed.collect(), (images[0], debug), run_ns))
}

/// What runs with copies of functions tell, if these differ as the builds do.
fn of_builds(
    tried: Result<Cure, String>,
    placed: Vec<[Svma; 2]>,
    (image, debug): (&Image, &DebugInfo<'_>),
    run_ns: [f64; 2],
) -> Result<Cure, String> {
    let cure = tried?;
    let difference_ns = (run_ns[1] - run_ns[0]).abs();
    let copies_ns = cure.times[1].value - cure.times[0].value;
    // As parts of the fast build's time: the host may have been slower while the builds were compared.
    let of_fast = difference_ns / run_ns[cure.arm.other().index()];
    let copies_of_fast = copies_ns / cure.times[0].value;
    if !(OF_BUILDS[0]..=OF_BUILDS[1]).contains(&(copies_of_fast / of_fast)) {
        return Err(format!(
            "with their functions run from copies the builds differ by {:.1} ms, without by {:.1} ms",
            copies_ns / 1e6,
            difference_ns / 1e6
        ));
    }
    let mut all = Sites::new(image, debug);
    let sites = placed.iter().filter_map(|[here, _]| all.site(*here)).collect();
    Ok(Cure { sites, placed, ..cure })
}

/// Places the functions of the slow build as the fast one has them; as [`attempt`](super::cure::attempt). What is
/// compared is builds with copies: only if these differ as the builds do does that tell anything of the builds.
///
/// # Errors
/// Only when the user wants an end.
pub(super) fn place(
    bench: &mut dyn Bench,
    images: [&Image; 2],
    debug: &DebugInfo<'_>,
    mut placement: Placement<'_>,
    slow: Arm,
    run_ns: [f64; 2],
    progress: &mut dyn FnMut(u32, u32),
) -> Result<Result<Cure, String>, EngineError> {
    let [fast, as_is, as_fast] = match placement.patches(images) {
        Ok(patches) => patches,
        Err(why) => return Ok(Err(why)),
    };
    let what = (Removed::CodePlacement, true);
    let fast = (slow.other(), Change::Code(&fast));
    let [as_is, as_fast] = [&as_is, &as_fast].map(|patch| (slow, Change::Code(patch)));
    let times = cure::run(bench, [fast, as_is, as_is, as_fast], run_ns, progress)?;
    let tried = times.and_then(|times| cure::judged(&times, what, slow));
    Ok(of_builds(tried, placement.addresses(), (images[0], debug), run_ns))
}
