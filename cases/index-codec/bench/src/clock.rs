//! The core clock, measured by a chain of additions that each wait for the one before.
//!
//! One such addition takes one cycle on every x86-64 core. Two chains of different length are
//! timed and subtracted, so that the cost of reading the clock drops out.

#[cfg(target_arch = "x86_64")]
use std::time::Instant;

/// The length of one core cycle, as it is now.
pub struct Calibration {
    /// Nanoseconds.
    pub ns_per_cycle: f64,
}

impl Calibration {
    /// Measures for some 100 microseconds; `None` where we have no such chain.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn take() -> Option<Self> {
        None
    }

    /// Measures for some 100 microseconds; `None` where we have no such chain.
    #[cfg(target_arch = "x86_64")]
    pub fn take() -> Option<Self> {
        const SHORT_ROUNDS: u64 = 200;
        const LONG_ROUNDS: u64 = 1200;
        const REPEATS: usize = 5;
        let least = |rounds| (0..REPEATS).map(|_| chain_ns(rounds)).fold(f64::MAX, f64::min);
        let adds = ((LONG_ROUNDS - SHORT_ROUNDS) * ADDS_PER_ROUND) as f64;
        let ns_per_cycle = (least(LONG_ROUNDS) - least(SHORT_ROUNDS)) / adds;
        (ns_per_cycle > 0.0).then_some(Self { ns_per_cycle })
    }
}

#[cfg(target_arch = "x86_64")]
const ADDS_PER_ROUND: u64 = 50;

/// Time of `rounds * ADDS_PER_ROUND` dependent additions.
#[cfg(target_arch = "x86_64")]
fn chain_ns(rounds: u64) -> f64 {
    let start = Instant::now();
    // SAFETY: registers only. The addend is a register because some cores fold constants away.
    unsafe {
        std::arch::asm!(
            "2:",
            ".rept {adds}",
            "add {sum}, {addend}",
            ".endr",
            "dec {rounds}",
            "jnz 2b",
            adds = const ADDS_PER_ROUND,
            sum = inout(reg) 0_u64 => _,
            addend = in(reg) 1_u64,
            rounds = inout(reg) rounds => _,
            options(nomem, nostack),
        );
    }
    start.elapsed().as_nanos() as f64
}
