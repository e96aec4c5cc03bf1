//! Jumps that cross or end at a 32-byte boundary.
//!
//! On Intel's cores from Skylake to Cascade Lake an erratum keeps the 32 bytes around such a jump out
//! of the cache of decoded instructions: they are decoded anew each time, at some two cycles a jump.
//! A compare or test that is fused with the jump behind it counts as part of the jump. Assemblers
//! that pad jumps do so from the start of a function, so functions that start at an odd multiple of
//! 16 undo it. Literature: Intel, "Mitigations for Jump Conditional Code Erratum", 2019.

use rayon::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;

use super::Samples;
use crate::code::{Image, x86};

const WINDOW_BYTES: u64 = 32;

/// The jumps of one build.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct JumpCounts {
    /// Jumps, calls and returns in the code that was seen running.
    pub jumps: u64,
    /// Those that cross or end at a 32-byte boundary.
    pub on_boundary: u64,
    /// How often jumps ran; absent where executions were not counted.
    pub executed: Option<u64>,
    /// How often jumps on a boundary ran.
    pub executed_on_boundary: Option<u64>,
}

impl JumpCounts {
    /// Counts the jumps in functions that have samples.
    #[must_use]
    pub fn of(image: &Image, samples: &Samples) -> Self {
        let seen = image
            .functions()
            .par_iter()
            .filter(|f| samples.hits.range(f.start..f.end()).next().is_some());
        let parts = seen.map(|function| {
            let mut counts = Self::default();
            let mut executed = [0_u64; 2];
            for jump in x86::jumps(image.function_bytes(function), function.start) {
                let last = jump.end.0.wrapping_sub(1);
                let on_boundary = jump.start.0 / WINDOW_BYTES != last / WINDOW_BYTES
                    || jump.end.0.is_multiple_of(WINDOW_BYTES);
                let runs = samples.hits.get(&jump.insn).copied().unwrap_or(0);
                counts.jumps += 1;
                counts.on_boundary += u64::from(on_boundary);
                executed[0] += runs;
                executed[1] += if on_boundary { runs } else { 0 };
            }
            if samples.is_complete {
                counts.executed = Some(executed[0]);
                counts.executed_on_boundary = Some(executed[1]);
            }
            counts
        });
        parts.reduce(Self::default, |x, y| Self {
            jumps: x.jumps + y.jumps,
            on_boundary: x.on_boundary + y.on_boundary,
            executed: add(x.executed, y.executed),
            executed_on_boundary: add(x.executed_on_boundary, y.executed_on_boundary),
        })
    }
}

fn add(x: Option<u64>, y: Option<u64>) -> Option<u64> {
    match (x, y) {
        (None, None) => None,
        (x, y) => Some(x.unwrap_or(0) + y.unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::code::fixture;

    /// 29 nops and a fused `cmp eax, ebx; je`: bytes 29 to 33.
    #[test]
    fn a_fused_pair_over_a_boundary_counts_once() {
        let program = |nops: usize| {
            let mut code = vec![0x90_u8; nops];
            code.extend([0x39, 0xd8, 0x74, 0x00, 0xc3]);
            Image::parse(Path::new("f"), fixture::program(&[("f", &code)])).unwrap()
        };
        let start = fixture::CODE_START.0;
        let counts = |nops: usize, is_complete: bool| {
            let at = start.offset(nops as i64 + 2);
            let hits = [(start, 9), (at, 5)].into();
            JumpCounts::of(&program(nops), &Samples { hits, is_complete, ..Samples::default() })
        };
        let crossing = counts(29, true);
        assert_eq!((crossing.jumps, crossing.on_boundary), (2, 1));
        assert_eq!((crossing.executed, crossing.executed_on_boundary), (Some(5), Some(5)));
        // The pair ends at the boundary: counted. One byte earlier it does not touch it.
        assert_eq!(counts(28, true).on_boundary, 1);
        assert_eq!(counts(20, true).on_boundary, 0);
        assert_eq!(counts(29, false).executed, None);
    }
}
