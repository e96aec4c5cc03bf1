//! The real clock: `rdtsc` and three kernels in machine code.
//!
//! The additions are `add r, r2` with both registers unknown to the renamer. `add r, imm` would
//! not do: Golden Cove and later cores fold chains of small immediates at rename, so such a chain
//! runs at less than one cycle per addition and the clock looks too fast. Nor may both operands be
//! the same register (`add r, r` is a shift to some cores). `imul r, r2` has had a latency of three
//! cycles on every core from Nehalem and Zen on and is never folded, so "three additions per
//! multiplication" checks the additions on the spot.

use super::{ADDS_PER_GROUP, Clock, ClockError};

/// The processor this code runs on. Meaningful only while the thread is pinned.
#[derive(Debug)]
pub struct HardwareClock(());

impl HardwareClock {
    /// The hardware clock.
    ///
    /// # Errors
    /// [`ClockError::UnsupportedArchitecture`] elsewhere than on x86-64.
    pub fn new() -> Result<Self, ClockError> {
        if cfg!(target_arch = "x86_64") {
            Ok(Self(()))
        } else {
            Err(ClockError::UnsupportedArchitecture { arch: std::env::consts::ARCH })
        }
    }
}

/// `CLOCK_MONOTONIC_RAW` in nanoseconds; 0 if the kernel has none, which Linux always has.
fn raw_ns() -> u64 {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_MONOTONIC_RAW).map_or(0, |t| {
        (t.tv_sec() as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec() as u64)
    })
}

fn groups(n: u64) -> u64 {
    n.div_ceil(ADDS_PER_GROUP).max(1)
}

#[cfg(target_arch = "x86_64")]
impl Clock for HardwareClock {
    fn now_ticks(&mut self) -> u64 {
        use std::arch::x86_64::{_mm_lfence, _rdtsc};
        // SAFETY: lfence (SSE2) and rdtsc exist on every x86-64 processor and touch no memory;
        // a system that traps rdtsc for user code ends the process, as any program there.
        unsafe {
            // The first fence waits for the work before, the second keeps the work after from
            // starting early; `rdtscp` would order only the former.
            _mm_lfence();
            let ticks = _rdtsc();
            _mm_lfence();
            ticks
        }
    }

    fn now_raw_ns(&mut self) -> u64 {
        raw_ns()
    }

    fn run_latency_chain(&mut self, adds: u64) {
        // SAFETY: registers and flags only; the counter starts at 1 or more, so the loop ends.
        unsafe {
            std::arch::asm!(
                ".p2align 6",
                "2:",
                "add {x}, {y}",
                "add {x}, {y}",
                "add {x}, {y}",
                "add {x}, {y}",
                "add {x}, {y}",
                "add {x}, {y}",
                "add {x}, {y}",
                "add {x}, {y}",
                "dec {n}",
                "jnz 2b",
                x = inout(reg) adds => _,
                y = in(reg) adds | 1,
                n = inout(reg) groups(adds) => _,
                options(nomem, nostack),
            );
        }
    }

    fn run_multiply_chain(&mut self, multiplies: u64) {
        // SAFETY: registers and flags only; the counter starts at 1 or more, so the loop ends.
        unsafe {
            std::arch::asm!(
                ".p2align 6",
                "2:",
                "imul {x}, {y}",
                "imul {x}, {y}",
                "imul {x}, {y}",
                "imul {x}, {y}",
                "imul {x}, {y}",
                "imul {x}, {y}",
                "imul {x}, {y}",
                "imul {x}, {y}",
                "dec {n}",
                "jnz 2b",
                x = inout(reg) multiplies | 1 => _,
                y = in(reg) multiplies | 3,
                n = inout(reg) groups(multiplies) => _,
                options(nomem, nostack),
            );
        }
    }

    fn run_throughput_chain(&mut self, passes: u64) {
        // SAFETY: one register and flags; the counter starts at 1 or more, so the loop ends.
        unsafe {
            std::arch::asm!(
                ".p2align 6",
                "2:",
                ".rept 64",
                "nop",
                ".endr",
                "dec {n}",
                "jnz 2b",
                n = inout(reg) passes.max(1) => _,
                options(nomem, nostack),
            );
        }
    }
}

// A `HardwareClock` cannot be made here; the implementation exists so that callers compile.
#[cfg(not(target_arch = "x86_64"))]
impl Clock for HardwareClock {
    fn now_ticks(&mut self) -> u64 {
        raw_ns()
    }
    fn now_raw_ns(&mut self) -> u64 {
        raw_ns()
    }
    fn run_latency_chain(&mut self, _adds: u64) {}
    fn run_multiply_chain(&mut self, _multiplies: u64) {}
    fn run_throughput_chain(&mut self, _passes: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_rounded_up_to_whole_groups() {
        assert_eq!((groups(0), groups(8), groups(9)), (1, 1, 2));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_real_kernels_end() {
        let mut clock = HardwareClock::new().unwrap();
        clock.run_latency_chain(0);
        clock.run_multiply_chain(1);
        clock.run_throughput_chain(0);
        let _ = (clock.now_ticks(), clock.now_raw_ns());
    }
}
