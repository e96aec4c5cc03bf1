//! How late a sample lands: a loop of which it is known where its time goes, sampled.
//!
//! The kernel's clock interrupts between two instructions, and the processor lets the one that it
//! waits for finish first. So a sample names the instruction behind the one that took the time: on a
//! Cascade Lake guest 98.9 % behind a load that misses, 91 % behind a division. Whether that holds
//! here is not assumed: a division in a loop takes nearly all of its time, and samples of it say
//! where they land.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Engine, SampleRun};
use crate::model::{Avma, FileOffset};
use crate::run::maps::{self, Line};

/// Fewer samples in the loop tell nothing.
const LEAST_SAMPLES: u64 = 100;
/// A place is where samples land with this share of those in the loop.
const CLEAR_SHARE: f64 = 0.6;

/// Where samples of the kernel's clock land.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Skid {
    /// Instructions between the one that takes the time and the one that is named: 0 or 1; `None`
    /// when the samples are too few or land here and there.
    pub instructions: Option<u32>,
    /// The share of samples in the loop that landed there.
    pub share: f64,
    /// Samples in the loop.
    pub samples: u64,
}

/// Addresses in the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landmarks {
    slow: Avma,
    behind: Avma,
    end: Avma,
}

/// Divides so many times and says where. `None` on processors other than x86-64.
#[inline(never)]
#[must_use]
pub fn divide(turns: u64) -> Option<Landmarks> {
    #[cfg(target_arch = "x86_64")]
    {
        let (slow, behind, end): (u64, u64, u64);
        // SAFETY: registers only, all of them declared. The divisor is 3 and the upper half of the
        // dividend 0, so that no division can fail; the loop ends when `turns` has become 0.
        unsafe {
            std::arch::asm!(
                "lea {slow}, [rip + 3f]",
                "lea {behind}, [rip + 4f]",
                "lea {end}, [rip + 5f]",
                "test {turns}, {turns}",
                "jz 5f",
                "2:",
                "xor edx, edx",
                "3:",
                "div {three}",
                "4:",
                "nop",
                "nop",
                "nop",
                "nop",
                "dec {turns}",
                "jnz 2b",
                "5:",
                slow = out(reg) slow,
                behind = out(reg) behind,
                end = out(reg) end,
                turns = inout(reg) turns => _,
                three = in(reg) 3_u64,
                inout("rax") u64::MAX => _,
                out("rdx") _,
                options(nomem, nostack),
            );
        }
        Some(Landmarks { slow: Avma(slow), behind: Avma(behind), end: Avma(end) })
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = turns;
        None
    }
}

/// Reads the skid off a sampled run of this very program that did nothing but [`divide`]. `None`
/// when that cannot be said of the run.
#[must_use]
pub fn skid_of(run: &SampleRun) -> Option<Skid> {
    if run.engine != Engine::PerfClock {
        return None;
    }
    let marks = divide(0)?;
    let maps = maps::read("self").ok()?;
    let own = run.samples.iter().find(|object| object.is_main_program)?;
    let place = |at: Avma| offset_of(&maps, at, &own.path);
    let (slow, behind, end) = (place(marks.slow)?, place(marks.behind)?, place(marks.end)?);
    // The loop starts with the instruction in front of the division, of two bytes.
    let start = FileOffset(slow.0.saturating_sub(2));
    let hits = |at: FileOffset| own.hits.get(&at).copied().unwrap_or(0);
    let all = own.hits.range(start..end).map(|(_, n)| n).sum();
    Some(judged(hits(slow), hits(behind), all))
}

fn judged(slow: u64, behind: u64, all: u64) -> Skid {
    let share = |part: u64| part as f64 / all.max(1) as f64;
    let places = [(Some(0), share(slow)), (Some(1), share(behind))];
    let clear = places.into_iter().find(|(_, share)| all >= LEAST_SAMPLES && *share >= CLEAR_SHARE);
    let (instructions, share) = clear.unwrap_or((None, share(slow.max(behind))));
    Skid { instructions, share, samples: all }
}

fn offset_of(maps: &[Line], at: Avma, program: &Path) -> Option<FileOffset> {
    let own = maps.iter().map(|line| &line.mapping).filter(|m| m.path == program);
    own.filter_map(|mapping| mapping.offset_of(at)).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_place_must_hold_most_samples() {
        assert_eq!(judged(5, 940, 1000).instructions, Some(1));
        assert_eq!(judged(900, 50, 1000).instructions, Some(0));
        assert_eq!(judged(450, 450, 1000).instructions, None);
        assert_eq!(judged(0, 50, 50).instructions, None);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_landmarks_stand_in_this_program() {
        let marks = divide(10).unwrap();
        assert!(marks.slow < marks.behind && marks.behind < marks.end, "{marks:?}");
        let maps = maps::read("self").unwrap();
        let own = std::env::current_exe().unwrap().canonicalize().unwrap();
        assert!(offset_of(&maps, marks.slow, &own).is_some());
        assert_eq!(divide(0), Some(marks));
    }
}
