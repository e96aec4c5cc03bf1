//! What a sample takes from the program that is sampled, measured here, and the periods that follow.
//!
//! Each tick of the kernel's clock is an interrupt, and in a guest an exit to the host as well: some 0.3 µs on a bare
//! machine, 10 to 50 µs were measured in a guest. A period near that cost leaves the program hardly any time of its own: at
//! 10 µs a run of 0.5 s took 15 to 24 s there. So the cost is measured before anything is sampled.

use std::hint::black_box;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::time::Instant;

use nix::errno::Errno;

use super::ring::{Wanted, open_clock_event};

/// Nobody needs samples closer than this, whatever they cost; and farther apart they tell too little.
const LEAST_PERIOD_NS: u64 = 20_000;
const LARGEST_PERIOD_NS: u64 = 1_000_000;
/// The most that sampling may add to a run's time when a period is asked for that adds more.
const MOST_OVERHEAD: f64 = 1.0;
/// Where the cost cannot be measured.
const USUAL_PERIOD_NS: u64 = 200_000;
/// Short enough for some ten ticks in a piece of work, long enough to leave it most of its time.
const TRIAL_PERIOD_NS: u64 = 100_000;
/// A piece of work takes about a millisecond.
const TURNS: u64 = 5_000_000;
const PIECES: usize = 10;

/// The shortest period in ns that adds at most this share to a run's time here, but no more than 1 ms.
#[must_use]
pub fn period_for_overhead(most_share: f64) -> u64 {
    cost_ns().map_or(USUAL_PERIOD_NS, |cost_ns| period(cost_ns, most_share))
}

/// The shortest period that is used, whatever was asked for.
pub(super) fn least_period_ns() -> u64 {
    period_for_overhead(MOST_OVERHEAD)
}

/// In whole steps of 10 µs, as it is printed.
fn period(cost_ns: f64, most_share: f64) -> u64 {
    let exact_ns = cost_ns * (1.0 + 1.0 / most_share);
    let steps_of_10_us = (exact_ns / 10_000.0).ceil() as u64;
    (steps_of_10_us * 10_000).clamp(LEAST_PERIOD_NS, LARGEST_PERIOD_NS)
}

/// Time in ns that a tick takes from its program; `None` where the kernel refuses its clock.
fn cost_ns() -> Option<f64> {
    static COST: OnceLock<Option<f64>> = OnceLock::new();
    *COST.get_or_init(|| {
        // The least of each, by turns: whatever disturbs only adds.
        let mut least_ns = [f64::INFINITY; 2];
        for _ in 0..PIECES {
            let [plain, ticking] = [Ok(work()), ticking()];
            for (least, ns) in least_ns.iter_mut().zip([plain, ticking]) {
                *least = least.min(ns.ok()?);
            }
        }
        Some(from_times(least_ns))
    })
}

fn from_times([plain_ns, ticking_ns]: [f64; 2]) -> f64 {
    (ticking_ns - plain_ns).max(0.0) * TRIAL_PERIOD_NS as f64 / ticking_ns
}

fn work() -> f64 {
    let start = Instant::now();
    (0..TURNS).for_each(|turn| {
        black_box(turn);
    });
    start.elapsed().as_nanos() as f64
}

/// The same work with the clock ticking on this thread.
fn ticking() -> io::Result<f64> {
    let event = open_clock_event(0, -1, TRIAL_PERIOD_NS, Wanted::User)?;
    // SAFETY: the descriptor is an event of ours, and the request takes no memory.
    Errno::result(unsafe { perf_event_open_sys::ioctls::ENABLE(event.as_raw_fd(), 0) })?;
    Ok(work())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_follows_from_the_cost_and_the_overhead_that_is_allowed() {
        assert_eq!(period(10_000.0, 0.02), 510_000);
        assert_eq!(period(10_000.0, MOST_OVERHEAD), 20_000);
        assert_eq!(period(50_000.0, MOST_OVERHEAD), 100_000);
        assert_eq!(period(50_000.0, 0.02), LARGEST_PERIOD_NS);
        assert_eq!(period(300.0, 0.02), LEAST_PERIOD_NS);
        assert_eq!(period(0.0, 0.02), LEAST_PERIOD_NS);
    }

    #[test]
    fn the_cost_is_what_a_tick_adds() {
        // Ten ticks in a millisecond, each of which took 10 µs of it.
        let cost = from_times([900_000.0, 1_000_000.0]);
        assert!((cost - 10_000.0).abs() < 1e-6, "{cost}");
        assert!(from_times([1_000_000.0, 900_000.0]).abs() < 1e-6);
    }
}
