//! The counter itself: its rate against a clock that is never adjusted, its step, the cost of a look.

use super::Clock;

/// A moment on both clocks. The counter is read before and after the kernel's clock and the
/// tightest of a few tries is kept: an interrupt between the two would otherwise become rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    ticks: f64,
    raw_ns: u64,
}

impl Moment {
    pub(super) fn now<C: Clock + ?Sized>(clock: &mut C) -> Self {
        let mut best: Option<(u64, Self)> = None;
        for _ in 0..7 {
            let before = clock.now_ticks();
            let raw_ns = clock.now_raw_ns();
            let width = clock.now_ticks().wrapping_sub(before);
            if best.is_none_or(|(w, _)| width < w) {
                let ticks = before as f64 + width as f64 / 2.0;
                best = Some((width, Self { ticks, raw_ns }));
            }
        }
        best.map_or(Self { ticks: 0.0, raw_ns: 0 }, |(_, moment)| moment)
    }

    /// Ticks per microsecond (MHz) between two moments; NaN when no time passed.
    pub(super) fn mhz_until(self, later: Self) -> f64 {
        let ns = later.raw_ns.saturating_sub(self.raw_ns);
        if ns == 0 {
            return f64::NAN;
        }
        (later.ticks - self.ticks) * 1_000.0 / ns as f64
    }
}

/// What looking at the counter costs and how finely it counts.
#[derive(Clone, Debug, PartialEq)]
pub struct TickReading {
    /// Differences of neighbouring readings, ticks.
    pub overheads_ticks: Vec<f64>,
    /// Every difference seen is a multiple of this many ticks.
    pub step_ticks: u64,
}

impl TickReading {
    /// Looks `n` times, after as many looks that do not count.
    pub fn take<C: Clock + ?Sized>(clock: &mut C, n: usize) -> Self {
        let mut overheads_ticks = Vec::with_capacity(n);
        let mut step_ticks = 0;
        for i in 0..2 * n {
            let before = clock.now_ticks();
            // Varying work, so that a coarse counter cannot hide behind a constant distance.
            let apart = clock.now_ticks().wrapping_sub(before);
            if i >= n {
                overheads_ticks.push(apart as f64);
            }
            clock.run_latency_chain((i as u64 % 13) * 8);
            step_ticks = gcd(step_ticks, clock.now_ticks().wrapping_sub(before));
        }
        Self { overheads_ticks, step_ticks: step_ticks.max(1) }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::super::FakeClock;
    use super::*;

    #[test]
    fn finds_the_rate() {
        let mut clock = FakeClock::quiet(2.5, 3.1);
        let start = Moment::now(&mut clock);
        clock.run_latency_chain(31_000_000);
        let mhz = start.mhz_until(Moment::now(&mut clock));
        assert!((mhz - 2500.0).abs() < 0.1, "{mhz}");
        assert!(start.mhz_until(start).is_nan());
    }

    #[test]
    fn finds_the_step_and_the_overhead() {
        let reading = TickReading::take(&mut FakeClock::quiet(2.5, 3.1), 50);
        assert_eq!(reading.overheads_ticks.len(), 50);
        assert_eq!(reading.step_ticks, 1);
        assert_eq!((gcd(0, 78), gcd(78, 52)), (78, 26));
    }
}
