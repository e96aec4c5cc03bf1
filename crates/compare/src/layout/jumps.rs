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
use crate::machine::Fusion;

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
    pub fn of(image: &Image, samples: &Samples, fusion: Fusion) -> Self {
        Self::placed(image, samples, fusion, |_| 0)
    }

    /// The same if each function, by its position in [`Image::functions`], stood so many bytes further.
    pub(super) fn placed(
        image: &Image,
        samples: &Samples,
        fusion: Fusion,
        moved_bytes: impl Fn(usize) -> i64 + Sync,
    ) -> Self {
        let seen = image
            .functions()
            .par_iter()
            .enumerate()
            .filter(|(_, f)| samples.hits.range(f.start..f.end()).next().is_some());
        let parts = seen.map(|(index, function)| {
            let mut counts = Self::default();
            let mut executed = [0_u64; 2];
            let by = moved_bytes(index);
            let start = function.start.offset(by);
            for jump in x86::jumps(image.function_bytes(function), start, fusion) {
                let on_boundary = jump.is_on_boundary();
                let runs = samples.hits.get(&jump.insn.offset(-by)).copied().unwrap_or(0);
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

/// A jump on a boundary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BoundaryJump {
    /// Function that the jump is in.
    pub function: String,
    /// Where in it the jump is, or what is fused with it.
    pub offset_bytes: u64,
    /// Executions, or samples where executions were not counted.
    pub executions: u64,
}

/// The jumps on boundaries that have samples, most first.
#[must_use]
pub fn boundary_jumps(image: &Image, samples: &Samples, fusion: Fusion) -> Vec<BoundaryJump> {
    let seen = image
        .functions()
        .par_iter()
        .filter(|f| samples.hits.range(f.start..f.end()).next().is_some());
    let mut all: Vec<BoundaryJump> = seen
        .flat_map_iter(|function| {
            let jumps = x86::jumps(image.function_bytes(function), function.start, fusion);
            jumps.into_iter().filter(|jump| jump.is_on_boundary()).filter_map(|jump| {
                Some(BoundaryJump {
                    function: function.name(),
                    offset_bytes: jump.start.distance_from(function.start)?,
                    executions: *samples.hits.get(&jump.insn)?,
                })
            })
        })
        .collect();
    all.sort_by(|a, b| {
        (b.executions, &a.function, a.offset_bytes).cmp(&(
            a.executions,
            &b.function,
            b.offset_bytes,
        ))
    });
    all
}

fn add(x: Option<u64>, y: Option<u64>) -> Option<u64> {
    match (x, y) {
        (None, None) => None,
        (x, y) => Some(x.unwrap_or(0) + y.unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::fixture;

    /// 29 nops and a fused `cmp eax, ebx; je`: bytes 29 to 33.
    #[test]
    fn a_fused_pair_over_a_boundary_counts_once() {
        let program = |nops: usize| {
            let mut code = vec![0x90_u8; nops];
            code.extend([0x39, 0xd8, 0x74, 0x00, 0xc3]);
            fixture::image(&[("f", &code)]).unwrap()
        };
        let start = fixture::CODE_START.0;
        let counts = |nops: usize, is_complete: bool| {
            let at = start.offset(nops as i64 + 2);
            let hits = [(start, 9), (at, 5)].into();
            let samples = Samples { hits, is_complete, ..Samples::default() };
            JumpCounts::of(&program(nops), &samples, Fusion::SandyBridge)
        };
        let crossing = counts(29, true);
        assert_eq!((crossing.jumps, crossing.on_boundary), (2, 1));
        assert_eq!((crossing.executed, crossing.executed_on_boundary), (Some(5), Some(5)));
        // The pair ends at the boundary: counted. One byte earlier it does not touch it.
        assert_eq!(counts(28, true).on_boundary, 1);
        assert_eq!(counts(20, true).on_boundary, 0);
        assert_eq!(counts(29, false).executed, None);
        let hits = [(start.offset(31), 5)].into();
        let samples = Samples { hits, is_complete: true, ..Samples::default() };
        let sites = boundary_jumps(&program(29), &samples, Fusion::SandyBridge);
        let wanted = BoundaryJump { function: "f".into(), offset_bytes: 29, executions: 5 };
        assert_eq!(sites, [wanted]);
        // Sixteen bytes further the same pair stands in the middle of a window.
        let moved = JumpCounts::placed(&program(29), &samples, Fusion::SandyBridge, |_| 16);
        assert_eq!((moved.executed, moved.executed_on_boundary), (Some(5), Some(0)));
    }
}
