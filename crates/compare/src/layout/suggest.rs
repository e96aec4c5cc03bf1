//! What another alignment or order would do: the traced window over again with functions elsewhere.
//!
//! Functions are placed as a linker would place them, one behind the other at multiples of the
//! alignment, and the models go over the same run. What the model leaves out is what a real build
//! changes besides: the padding inside functions that an assembler makes for one alignment only. It
//! is exact about sets and about jumps at boundaries, and says nothing of time.

use schemars::JsonSchema;
use serde::Serialize;

use super::occupancy::misses_placed;
use super::{JumpCounts, Samples, TracedWindow, function_index};
use crate::code::{Function, FunctionSource, Image};
use crate::machine::Design;
use crate::model::Svma;

const ALIGNMENTS_BYTES: [u64; 4] = [16, 32, 64, 128];
/// More room than this between two functions is no padding: another section begins.
const LARGEST_PADDING_BYTES: u64 = 128;
/// Code is aligned to the largest power of two that this share of functions stands at.
const ALIGNED_SHARE: f64 = 0.95;

/// What built the program, as far as it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Toolchain {
    /// Go's own linker.
    Go,
    /// rustc.
    Rust,
    /// A compiler of C or C++.
    C,
}

/// A placement of functions to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arrangement {
    /// In the order of now, at multiples of so many bytes.
    Aligned {
        /// Alignment of every function, bytes.
        bytes: u64,
    },
    /// Those of the window one behind the other, in the order in which they first run.
    FirstUse,
}

/// One arrangement and what it is predicted to do.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Suggestion {
    /// Placement of functions to try.
    pub arrangement: Arrangement,
    /// What to tell the toolchain.
    pub option: String,
    /// Simulated misses of one operation.
    pub misses_per_operation: f64,
    /// Jumps at 32-byte boundaries that one operation executes.
    pub boundary_jumps_per_operation: f64,
    /// Why it does harm, where it does.
    pub warning: Option<String>,
}

/// All arrangements of one build.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Suggestions {
    /// Toolchain that built the program.
    pub toolchain: Toolchain,
    /// The alignment of its functions now.
    pub alignment_bytes: u64,
    /// Simulated misses of one operation now.
    pub misses_per_operation: f64,
    /// Jumps at 32-byte boundaries that one operation executes now.
    pub boundary_jumps_per_operation: f64,
    /// What can be asked for.
    pub options: Vec<Suggestion>,
    /// Symbols of the window in the order of their first use, for an order file.
    pub order: Vec<String>,
}

/// Tries what can be asked of the toolchain on the traced window. `None` for a cache that cannot be
/// modelled.
#[must_use]
pub fn suggest(
    image: &Image,
    (samples, window): (&Samples, &TracedWindow),
    design: &Design,
) -> Option<Suggestions> {
    let (geometry, fusion) = (design.code_cache().value, design.fusion().value);
    let toolchain = toolchain(image);
    let order = first_use(image, window);
    let operations = window.kept_operations() as f64;
    let judge = |moved: &[i64]| {
        let misses = misses_placed(window, geometry, |insn| {
            let index = insn.svma.and_then(|at| function_index(image, at));
            insn.avma.offset(index.map_or(0, |i| moved[i]))
        })?;
        let jumps = JumpCounts::placed(image, samples, fusion, |index| moved[index]);
        let on_boundary = jumps.executed_on_boundary.unwrap_or(0) as f64;
        Some((misses as f64 / operations, on_boundary / window.operations as f64))
    };
    let still = vec![0; image.functions().len()];
    let now = judge(&still)?;
    let mut options = Vec::new();
    let mut arrangements: Vec<Arrangement> =
        ALIGNMENTS_BYTES.into_iter().map(|bytes| Arrangement::Aligned { bytes }).collect();
    // Go's linker keeps its own order.
    if toolchain != Toolchain::Go {
        arrangements.push(Arrangement::FirstUse);
    }
    for arrangement in arrangements {
        let moved = match arrangement {
            Arrangement::Aligned { bytes } => aligned(image, bytes),
            Arrangement::FirstUse => in_order(image, &order, alignment_bytes(image)),
        };
        let (misses_per_operation, boundary_jumps_per_operation) = judge(&moved)?;
        options.push(Suggestion {
            arrangement,
            option: option(toolchain, arrangement),
            misses_per_operation,
            boundary_jumps_per_operation,
            warning: warning(arrangement, design),
        });
    }
    let symbol = |i: &usize| image.functions()[*i].symbol.clone();
    Some(Suggestions {
        toolchain,
        alignment_bytes: alignment_bytes(image),
        misses_per_operation: now.0,
        boundary_jumps_per_operation: now.1,
        options,
        order: order.iter().map(symbol).collect(),
    })
}

/// What built a program, by the names of functions that every program of the language has.
#[must_use]
pub fn toolchain(image: &Image) -> Toolchain {
    let has = |name: &str| image.functions().iter().any(|f| f.symbol == name);
    if image.function_source() == FunctionSource::GoTable || has("runtime.mstart1") {
        Toolchain::Go
    } else if image.functions().iter().any(|f| f.symbol.contains("rust_eh_personality")) {
        Toolchain::Rust
    } else {
        Toolchain::C
    }
}

fn option(toolchain: Toolchain, arrangement: Arrangement) -> String {
    let lld = "-Wl,--symbol-ordering-file=FILE (lld)";
    match (toolchain, arrangement) {
        (Toolchain::Go, Arrangement::Aligned { bytes }) => {
            format!("go build -ldflags=-funcalign={bytes}")
        }
        (Toolchain::Rust, Arrangement::Aligned { bytes }) => {
            format!("-C llvm-args=-align-all-functions={}", bytes.trailing_zeros())
        }
        (Toolchain::C, Arrangement::Aligned { bytes }) => format!("-falign-functions={bytes}"),
        (Toolchain::Rust, Arrangement::FirstUse) => {
            format!("-C link-arg=-fuse-ld=lld -C link-arg={lld}")
        }
        (_, Arrangement::FirstUse) => format!("-ffunction-sections -fuse-ld=lld {lld}"),
    }
}

fn warning(arrangement: Arrangement, design: &Design) -> Option<String> {
    let below = matches!(arrangement, Arrangement::Aligned { bytes } if bytes < 32);
    (below && design.jump_erratum().value).then(|| {
        format!(
            "harmful on {}: code that was padded so that no jump touches a 32-byte boundary \
             touches them again when functions start in between",
            design.microarchitecture
        )
    })
}

/// The alignment that nearly all functions have now.
fn alignment_bytes(image: &Image) -> u64 {
    let functions = image.functions();
    let share = |stride: u64| {
        functions.iter().filter(|f| f.start.0.is_multiple_of(stride)).count() as f64
            / functions.len().max(1) as f64
    };
    [64, 32, 16].into_iter().find(|stride| share(*stride) >= ALIGNED_SHARE).unwrap_or(1)
}

/// How far each function moves when all stand at multiples of `bytes`. One that left out a place that
/// would have done has an alignment of its own, and keeps it.
fn aligned(image: &Image, bytes: u64) -> Vec<i64> {
    let now = alignment_bytes(image);
    let mut moved = Vec::with_capacity(image.functions().len());
    let mut previous: Option<(Svma, u64)> = None;
    for function in image.functions() {
        let start = match previous {
            None => function.start.0,
            Some((old_end, new_end)) => {
                let room = function.start.distance_from(old_end).unwrap_or(0);
                let section = if room > LARGEST_PADDING_BYTES { room } else { 0 };
                let is_usual = old_end.0.next_multiple_of(now) == function.start.0;
                let own = 1 << function.start.0.trailing_zeros().min(6);
                let stride = if is_usual { bytes } else { bytes.max(own) };
                (new_end + section).next_multiple_of(stride)
            }
        };
        moved.push(start.wrapping_sub(function.start.0) as i64);
        let code = trimmed(image, function);
        previous = Some((function.start.offset(code as i64), start.wrapping_add(code)));
    }
    moved
}

/// How far each function moves when those in `order` stand in that order in front.
fn in_order(image: &Image, order: &[usize], alignment_bytes: u64) -> Vec<i64> {
    let functions = image.functions();
    let mut moved = vec![0; functions.len()];
    let mut at = functions.first().map_or(0, |f| f.start.0);
    for index in order {
        let Some(function) = functions.get(*index) else { continue };
        at = at.next_multiple_of(alignment_bytes);
        moved[*index] = at.wrapping_sub(function.start.0) as i64;
        at = at.wrapping_add(trimmed(image, function));
    }
    moved
}

/// The size of a function without the padding behind it that Go's table counts in.
fn trimmed(image: &Image, function: &Function) -> u64 {
    if image.function_source() == FunctionSource::Symbols {
        return function.size_bytes.max(1);
    }
    let bytes = image.function_bytes(function);
    let padding = bytes.iter().rev().take_while(|b| matches!(b, 0xcc | 0x90)).count() as u64;
    function.size_bytes.saturating_sub(padding).max(1)
}

/// Functions of the window by their first execution, by position in [`Image::functions`].
fn first_use(image: &Image, window: &TracedWindow) -> Vec<usize> {
    let mut seen = vec![false; image.functions().len()];
    let mut known = vec![false; window.blocks.len()];
    let mut order = Vec::new();
    for id in &window.order {
        let Some(block) = window.blocks.get(*id as usize) else { continue };
        if std::mem::replace(&mut known[*id as usize], true) {
            continue;
        }
        for index in block.iter().filter_map(|i| function_index(image, i.svma?)) {
            if !std::mem::replace(&mut seen[index], true) {
                order.push(index);
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::super::window::tests::window;
    use super::*;
    use crate::code::fixture;
    use crate::machine::Microarchitecture;

    /// Nine short functions a page apart, with large ones that never run in between.
    fn crowded() -> (Image, TracedWindow, Samples) {
        let (hot, cold) = (vec![0x55_u8; 62], vec![0x55_u8; 4096 - 64 - 2]);
        let names: Vec<(String, String)> =
            (0..9).map(|i| (format!("h{i}"), format!("c{i}"))).collect();
        let functions: Vec<(&str, &[u8])> = names
            .iter()
            .flat_map(|(h, c)| [(h.as_str(), &hot[..]), (c.as_str(), &cold[..])])
            .collect();
        let image = fixture::image(&functions).unwrap();
        let blocks: Vec<(u64, usize)> = (0..9).map(|i| (4096 * i, 12)).collect();
        let order: Vec<u32> = (0..18).map(|i| i % 9).collect();
        let window = window(&blocks, &order);
        let samples = window.samples(None);
        (image, window, samples)
    }

    #[test]
    fn functions_that_run_together_fit_when_they_stand_together() {
        let (image, window, samples) = crowded();
        let lake = Design::of(Microarchitecture::CascadeLake);
        let found = suggest(&image, (&samples, &window), &lake).unwrap();
        assert_eq!((found.toolchain, found.alignment_bytes), (Toolchain::C, 64));
        assert!((found.misses_per_operation - 9.0).abs() < 1e-9);
        let by = |wanted| found.options.iter().find(|o| o.arrangement == wanted).unwrap();
        let order = by(Arrangement::FirstUse);
        assert_eq!(order.misses_per_operation, 0.0);
        assert!(order.option.contains("symbol-ordering-file"));
        assert_eq!(found.order[..2], ["h0", "h1"]);
        // At multiples of 64 everything stays where it is.
        assert!(aligned(&image, 64).iter().all(|by| *by == 0));
        let same = by(Arrangement::Aligned { bytes: 64 });
        assert!((same.misses_per_operation - 9.0).abs() < 1e-9);
        assert_eq!(same.warning, None);
        let tight = by(Arrangement::Aligned { bytes: 16 });
        assert!(tight.warning.as_ref().unwrap().contains("Cascade Lake"));
        let zen = Design::of(Microarchitecture::Zen4);
        let zen = suggest(&image, (&samples, &window), &zen).unwrap();
        assert!(zen.options.iter().all(|o| o.warning.is_none()));
    }

    #[test]
    fn functions_are_aligned_as_nearly_all_of_them_are() {
        let of = |size: usize| {
            let code = vec![0x90_u8; size];
            let names: Vec<String> = (0..8).map(|i| format!("f{i}")).collect();
            let functions: Vec<(&str, &[u8])> =
                names.iter().map(|n| (n.as_str(), &code[..])).collect();
            alignment_bytes(&fixture::image(&functions).unwrap())
        };
        assert_eq!([of(15), of(31), of(63), of(127), of(79)], [16, 32, 64, 64, 16]);
    }

    #[test]
    fn alignment_keeps_the_order_and_never_overlaps() {
        let (image, ..) = crowded();
        for bytes in ALIGNMENTS_BYTES {
            let moved = aligned(&image, bytes);
            let starts: Vec<u64> =
                image.functions().iter().zip(&moved).map(|(f, by)| f.start.offset(*by).0).collect();
            assert!(starts[1..].iter().all(|s| s.is_multiple_of(bytes)), "{bytes}");
            let sizes = image.functions().iter().map(|f| trimmed(&image, f));
            let ends: Vec<u64> = starts.iter().zip(sizes).map(|(s, n)| s + n).collect();
            assert!(starts[1..].iter().zip(&ends).all(|(next, end)| next >= end), "{bytes}");
        }
    }
}
