//! The proof where there is no instruction to replace: something is switched off for whole runs of both builds.
//!
//! Denormal numbers become zero, all threads stay on one processor, or the kernel gives no huge pages. Both builds run as
//! they are and so, in turn. What the switch takes from one build and not from the other is what they differ by; what it
//! takes from both is the control.

use std::time::Duration;

use super::Bench;
use super::bench::or_why;
use super::cure::{ARMS, Cure, Removed, judged, run, typical_times};
use crate::code::x86::without_control_loads;
use crate::code::{DebugInfo, Image};
use crate::compare::{Arm, Comparison};
use crate::model::Site;
use crate::sim::Sites;
use crate::trace::engine::{Change, EngineError};

/// Whether both builds were seen with several threads, which may be on different processors.
pub(super) fn has_threads_on_several_processors(comparison: &Comparison) -> bool {
    let cpus = comparison.settings.cpus.as_ref();
    let several = cpus.is_none_or(|cpus| cpus.single().is_none());
    several && comparison.arms.iter().all(|arm| arm.threads.is_some_and(|threads| threads > 1))
}

/// Lets both builds take denormal numbers for zero, where the slow one meets any; as
/// [`attempt`](super::cure::attempt). Here the control is the fast build: what becomes faster in both is not what they differ by.
///
/// # Errors
/// Only when the user wants an end.
pub(super) fn flush_to_zero(
    bench: &mut dyn Bench,
    [image, fast_image]: [&Image; 2],
    debug: &DebugInfo<'_>,
    slow: Arm,
    run_ns: [f64; 2],
    progress: &mut dyn FnMut(u32, u32),
) -> Result<Option<Result<Cure, String>>, EngineError> {
    let half = Duration::from_nanos((run_ns[slow.index()] / 2.0) as u64);
    let mut met = or_why(bench.denormals(slow, half))?.unwrap_or_default();
    if met.is_empty() {
        return Ok(None);
    }
    met.sort_by_key(|it| std::cmp::Reverse(it.times));
    // What a program sets itself would undo it.
    let patches = without_control_loads(fast_image)
        .and_then(|fast| Ok([fast, without_control_loads(image)?]));
    let tried = match &patches {
        Ok([fast, slow_patch]) => {
            let changes = [fast, slow_patch].map(Change::FlushToZero);
            switched(bench, (changes, Removed::DenormalNumbers), slow, run_ns, progress)?
        }
        Err((at, why)) => {
            Err(format!("the program sets the rules of arithmetic itself at {at}, and {why}"))
        }
    };
    let file = &met[0].file;
    let sites_in = |image: &Image, debug: &DebugInfo<'_>| -> Vec<Site> {
        let mut all = Sites::new(image, debug);
        let here = met.iter().filter(|it| it.file == *file);
        here.filter_map(|it| all.site(image.svma_of(it.offset)?)).collect()
    };
    let is_program = image.path().canonicalize().is_ok_and(|own| own == *file);
    let (library, sites) = if is_program {
        (None, sites_in(image, debug))
    } else {
        let sites = Image::open(file).map(|image| sites_in(&image, &DebugInfo::of(&image)));
        (Some(file.clone()), sites.unwrap_or_default())
    };
    let met =
        sites.first().map(|site| format!("; it meets them in {} at {}", site.function, site.svma));
    Ok(Some(match tried {
        Ok(cure) => Ok(Cure { library, sites, ..cure }),
        Err(why) => Err(why + &met.unwrap_or_default()),
    }))
}

/// Keeps all threads of both builds on one processor, where nothing is shared with another one; as [`flush_to_zero`].
///
/// # Errors
/// Only when the user wants an end.
pub(super) fn on_one_processor(
    bench: &mut dyn Bench,
    slow: Arm,
    run_ns: [f64; 2],
    progress: &mut dyn FnMut(u32, u32),
) -> Result<Result<Cure, String>, EngineError> {
    switched(bench, ([Change::OneProcessor; 2], Removed::SharedLines), slow, run_ns, progress)
}

/// Runs both builds without huge pages: the fast one loses what they gave it; as [`flush_to_zero`], with the slow build as
/// the control.
///
/// # Errors
/// Only when the user wants an end.
pub(super) fn on_small_pages(
    bench: &mut dyn Bench,
    slow: Arm,
    run_ns: [f64; 2],
    progress: &mut dyn FnMut(u32, u32),
) -> Result<Result<Cure, String>, EngineError> {
    let times = times(bench, [Change::SmallPages; 2], slow, run_ns, progress)?;
    Ok(times.and_then(|times| against_slow(&times, Removed::HugePages, slow)))
}

/// Both builds as they are and with a change of the whole run; the control as in [`against_fast`].
fn switched(
    bench: &mut dyn Bench,
    (changes, removed): ([Change<'_>; 2], Removed),
    slow: Arm,
    run_ns: [f64; 2],
    progress: &mut dyn FnMut(u32, u32),
) -> Result<Result<Cure, String>, EngineError> {
    let times = times(bench, changes, slow, run_ns, progress)?;
    Ok(times.and_then(|times| against_fast(&times, removed, slow)))
}

/// Times of the fast and the slow build as they are, and of both with a change of the whole run.
fn times(
    bench: &mut dyn Bench,
    [of_fast, of_slow]: [Change<'_>; 2],
    slow: Arm,
    run_ns: [f64; 2],
    progress: &mut dyn FnMut(u32, u32),
) -> Result<Result<Vec<[f64; ARMS]>, String>, EngineError> {
    let fast = slow.other();
    let arms = [(fast, Change::Nothing), (slow, Change::Nothing), (fast, of_fast), (slow, of_slow)];
    run(bench, arms, run_ns, progress)
}

/// Judges runs of both builds without and with a change. The control is the fast build: what it gains, too, is not
/// what they differ by.
pub(super) fn against_fast(
    times: &[[f64; ARMS]],
    removed: Removed,
    slow: Arm,
) -> Result<Cure, String> {
    against(times, removed, slow, |[fast, slow, fast_changed, slow_changed]| {
        let gained = fast - fast_changed;
        [fast, slow, slow - gained, slow_changed + gained]
    })
}

/// The same where the change takes from the fast build what the slow one does not have: what the slow build loses, too, is
/// the control.
fn against_slow(times: &[[f64; ARMS]], removed: Removed, slow: Arm) -> Result<Cure, String> {
    against(times, removed, slow, |[fast, slow, fast_changed, slow_changed]| {
        [fast, slow, slow_changed, slow_changed - (fast_changed - fast)]
    })
}

/// Judges what `compared` makes of the times of a round; those that were measured are told.
fn against(
    times: &[[f64; ARMS]],
    removed: Removed,
    slow: Arm,
    compared: impl Fn([f64; ARMS]) -> [f64; ARMS],
) -> Result<Cure, String> {
    let compared: Vec<_> = times.iter().copied().map(compared).collect();
    let cure = judged(&compared, (removed, true), slow)?;
    Ok(Cure { times: typical_times(times), ..cure })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::CureVerdict;

    #[test]
    fn what_the_fast_build_alone_loses_is_what_it_had() {
        let judged = |fast_changed: f64, slow_changed: f64| {
            let round = |n: f64| [100.0 + n, 200.0 + n, fast_changed + n, slow_changed + n];
            let times: Vec<_> = (0..8).map(f64::from).map(round).collect();
            against_slow(&times, Removed::HugePages, Arm::B).unwrap()
        };
        for (fast, slow, want, recovered) in [
            (195.0, 200.0, CureVerdict::Confirmed, 95.0),
            (145.0, 200.0, CureVerdict::Partly, 45.0),
            (100.0, 200.0, CureVerdict::Refuted, 0.0),
            // Both lose as much: the difference is what it was.
            (200.0, 300.0, CureVerdict::Open, 0.0),
            // The difference is gone because the slow build gained: it had what both lose.
            (100.0, 105.0, CureVerdict::Open, 95.0),
        ] {
            let cure = judged(fast, slow);
            assert_eq!(cure.verdict, want, "{fast} {slow}: {cure:?}");
            assert!((cure.recovered.percent.value - recovered).abs() < 0.1, "{cure:?}");
        }
    }
}
