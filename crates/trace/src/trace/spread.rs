//! Windows spread over a run: each runs the command once and starts after a part of its processor time, because the
//! beginning of a run is not like the rest of it.
//!
//! Their starts are no even parts of the run: a program that does the same in turns, a frame or a round at a time, would be
//! met in the same part of its turn by all of them. They are multiples of the golden ratio, of which any number lie evenly
//! enough, so that more can be followed later. Literature: J. van der Corput, "Verteilungsfunktionen" (1935); H. Niederreiter,
//! "Random Number Generation and Quasi-Monte Carlo Methods" (1992), 3.1.

use std::ops::Range;
use std::time::Duration;

use super::engine::EngineError;

/// Windows where a run takes up to [`SHORT_RUN_NS`], and where it takes longer.
const WINDOWS: [usize; 2] = [4, 2];
const SHORT_RUN_NS: f64 = 2e9;

/// Where the first one starts, and how far behind it, around the whole, the next.
const FIRST: f64 = 0.286;
const APART: f64 = 0.618_033_988_749_895;
/// Starts are in this part of a run: behind it there is no room for a window.
const WITH_ROOM: f64 = 0.96;

/// A command whose first windows fail so often has none.
const FAILURES: usize = 2;

/// How many windows a run of this length is followed in.
#[must_use]
pub fn count(run_ns: f64) -> usize {
    WINDOWS[usize::from(run_ns > SHORT_RUN_NS)]
}

/// The part of a run after which a window starts.
#[must_use]
pub fn start(n: usize) -> f64 {
    WITH_ROOM * (FIRST + APART * n as f64).fract()
}

/// Follows the windows of these numbers of a run that takes `run_ns`: `follow` gets the number of each, and after how much
/// processor time it starts (`None`: at its first instruction). The inner error says why there are none.
///
/// # Errors
/// Only when the user wants an end.
pub fn follow<T>(
    run_ns: f64,
    numbers: Range<usize>,
    follow: &mut dyn FnMut(usize, Option<Duration>) -> Result<T, EngineError>,
) -> Result<Result<Vec<T>, EngineError>, EngineError> {
    let (mut windows, mut failed) = (Vec::new(), 0);
    for n in numbers {
        let after = Duration::from_nanos((run_ns * start(n)) as u64);
        let window = match follow(n, Some(after)) {
            // Shorter than it was, or never in its own code when it was looked at.
            Err(EngineError::NeverStarted(_)) if n == 0 => follow(n, None),
            Err(EngineError::NeverStarted(_)) => continue,
            window => window,
        };
        match window {
            Ok(window) => windows.push(window),
            Err(error) if error.is_interrupt() => return Err(error),
            // A signal or a thread may spoil one window and not the next.
            Err(error) => {
                failed += 1;
                if windows.is_empty() && failed >= FAILURES {
                    return Ok(Err(error));
                }
            }
        }
    }
    Ok(Ok(windows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::child::ChildError;

    fn never() -> EngineError {
        EngineError::NeverStarted("it ended".into())
    }

    #[test]
    fn windows_lie_in_all_parts_of_a_run() {
        let mut starts = Vec::new();
        let mut numbers = Vec::new();
        for some in [0..2, 2..4] {
            let windows = follow(1000.0, some, &mut |n, after| {
                starts.push(after.unwrap().as_nanos());
                Ok(n)
            });
            numbers.extend(windows.unwrap().unwrap());
        }
        assert_eq!((numbers, starts), (vec![0, 1, 2, 3], vec![274, 867, 501, 134]));
        assert_eq!((count(2e9), count(2.1e9)), (4, 2));
        // Eight have one in each eighth but for neighbours.
        let mut eight: Vec<f64> = (0..8).map(start).collect();
        eight.sort_by(f64::total_cmp);
        assert!(eight.windows(2).all(|two| two[1] - two[0] < 0.25), "{eight:?}");
        assert!(eight[0] < 0.15 && eight[7] > 0.85, "{eight:?}");
    }

    #[test]
    fn a_program_that_does_the_same_in_turns_is_met_in_all_parts_of_its_turn() {
        // In 7 to 200 turns each: windows of four that lie within one third of the turn.
        let is_alike = |turns: &u32| {
            let parts: Vec<f64> = (0..4).map(|n| (f64::from(*turns) * start(n)).fract()).collect();
            (0..20).any(|from| {
                let from = f64::from(from) / 20.0;
                parts.iter().all(|part| (part - from).rem_euclid(1.0) < 1.0 / 3.0)
            })
        };
        let alike = (7..=200).filter(is_alike).count();
        assert!(alike <= 30, "{alike} of 194");
    }

    #[test]
    fn a_run_that_is_shorter_is_followed_from_its_start_and_one_that_fails_is_not() {
        let windows = follow(800.0, 0..4, &mut |_, after| after.map_or(Ok(()), |_| Err(never())));
        assert_eq!(windows.unwrap().unwrap(), [()]);
        let forbidden = |_, _| -> Result<(), _> { Err(EngineError::Forbidden("no".into())) };
        let mut asked = 0;
        let none = follow(800.0, 0..4, &mut |n, after| {
            asked += 1;
            forbidden(n, after)
        });
        assert!(none.unwrap().is_err());
        assert_eq!(asked, 2);
        let interrupted = |_, _| -> Result<(), _> { Err(ChildError::Interrupted.into()) };
        assert!(follow(800.0, 0..4, &mut { interrupted }).is_err());
        // What fails once there was a window leaves one out.
        let some =
            follow(800.0, 0..4, &mut |n, after| if n == 2 { forbidden(n, after) } else { Ok(()) });
        assert_eq!(some.unwrap().unwrap().len(), 3);
    }
}
