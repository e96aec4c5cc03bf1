//! Windows spread over a run: each runs the command once and starts after a part of its processor time, because the
//! beginning of a run is not like the rest of it.

use std::time::Duration;

use super::engine::EngineError;

/// Windows where a run takes up to [`SHORT_RUN_NS`], and where it takes longer.
const WINDOWS: [usize; 2] = [4, 2];
const SHORT_RUN_NS: f64 = 2e9;

/// A command whose first windows fail so often has none.
const FAILURES: usize = 2;

/// How many windows a run of this length is followed in.
#[must_use]
pub fn count(run_ns: f64) -> usize {
    WINDOWS[usize::from(run_ns > SHORT_RUN_NS)]
}

/// Follows `count` windows of a run that takes `run_ns`: `follow` gets the number of each, and after how much processor
/// time it starts (`None`: at its first instruction). The inner error says why there are none.
///
/// # Errors
/// Only when the user wants an end.
pub fn follow<T>(
    run_ns: f64,
    count: usize,
    follow: &mut dyn FnMut(usize, Option<Duration>) -> Result<T, EngineError>,
) -> Result<Result<Vec<T>, EngineError>, EngineError> {
    let (mut windows, mut failed) = (Vec::new(), 0);
    for n in 0..count {
        let part = (n as f64 + 0.5) / count as f64;
        let window = match follow(n, Some(Duration::from_nanos((run_ns * part) as u64))) {
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
    fn windows_stand_in_the_middle_of_equal_parts() {
        let mut starts = Vec::new();
        let windows = follow(800.0, 4, &mut |n, after| {
            starts.push(after.map(|after| after.as_nanos()));
            Ok(n)
        });
        assert_eq!(windows.unwrap().unwrap(), [0, 1, 2, 3]);
        assert_eq!(starts, [Some(100), Some(300), Some(500), Some(700)]);
        assert_eq!((count(2e9), count(2.1e9)), (4, 2));
    }

    #[test]
    fn a_run_that_is_shorter_is_followed_from_its_start_and_one_that_fails_is_not() {
        let windows = follow(800.0, 4, &mut |_, after| after.map_or(Ok(()), |_| Err(never())));
        assert_eq!(windows.unwrap().unwrap(), [()]);
        let forbidden = |_, _| -> Result<(), _> { Err(EngineError::Forbidden("no".into())) };
        let mut asked = 0;
        let none = follow(800.0, 4, &mut |n, after| {
            asked += 1;
            forbidden(n, after)
        });
        assert!(none.unwrap().is_err());
        assert_eq!(asked, 2);
        let interrupted = |_, _| -> Result<(), _> { Err(ChildError::Interrupted.into()) };
        assert!(follow(800.0, 4, &mut { interrupted }).is_err());
        // What fails once there was a window leaves one out.
        let some =
            follow(800.0, 4, &mut |n, after| if n == 2 { forbidden(n, after) } else { Ok(()) });
        assert_eq!(some.unwrap().unwrap().len(), 3);
    }
}
