//! From where a library is called that takes more time: which function of the program calls which of its functions more
//! often in the slow build.
//!
//! What a library executes is what was asked of it, memory most of all, which is counted wherever it is asked for. The calls of
//! whole runs are counted instruction by instruction; the program's tables name what each of them reaches through the linker's
//! stubs.

use std::collections::{BTreeMap, HashSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ByPlace;
use crate::code::{Function, Image, LONGEST_INSN_BYTES, Origins, demangle};
use crate::compare::Arm;
use crate::layout::{ReadableNames, callee};
use crate::model::FileOffset;

/// Of all calls of libraries that the slow build makes more, one function must make this part to be named.
const LEAST_PART: f64 = 0.5;
/// Fewer calls more are no reason for anything.
const LEAST_CALLS: u64 = 1000;

/// Calls of one function of a library by one function of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LibraryCalls {
    /// The function of the program.
    pub caller: String,
    /// What it calls.
    pub callee: String,
    /// In a whole run of each arm.
    pub calls: [u64; 2],
}

impl std::fmt::Display for LibraryCalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { caller, callee, calls: [before, after] } = self;
        write!(f, "{caller} calls {callee} {after} times in AFTER and {before} in BEFORE")
    }
}

/// A call that a whole run makes.
pub(super) struct Call<'a> {
    caller: &'a Function,
    /// The symbol that it reaches, where the program's tables tell.
    callee: Option<String>,
    times: u64,
}

/// What the program's own file calls in a run of each build.
pub(super) fn made<'a>(
    images: &'a [Image; 2],
    runs: [Option<&ByPlace>; 2],
) -> Option<[Vec<Call<'a>>; 2]> {
    let of = |image: &'a Image, run: &ByPlace| {
        let origins = Origins::of(image);
        let call = |(at, times): &(FileOffset, u64)| {
            let svma = image.svma_of(*at)?;
            let caller = image.function_at(svma)?;
            let code = image.code_at(svma, LONGEST_INSN_BYTES as u64);
            let insn = image.architecture().decode(code, svma);
            let callee = insn.first().and_then(|insn| callee(image, &origins, caller, insn));
            Some(Call { caller, callee, times: *times })
        };
        run.calls.iter().filter_map(call).collect()
    };
    let [before, after] = runs;
    Some([of(&images[0], before?), of(&images[1], after?)])
}

/// The calls of libraries of which the slow build makes most more, if that is most of what it makes more of all.
pub(super) fn most(
    images: &[Image; 2],
    made: &[Vec<Call<'_>>; 2],
    slow: Arm,
) -> Option<LibraryCalls> {
    let mut all: BTreeMap<(String, Option<String>), [u64; 2]> = BTreeMap::new();
    for (arm, (image, calls)) in images.iter().zip(made).enumerate() {
        let names = ReadableNames::of(image);
        let own: HashSet<&str> =
            image.functions().iter().filter(|f| f.named).map(|f| f.symbol.as_str()).collect();
        for Call { caller, callee, times } in calls {
            if !callee.as_deref().is_some_and(|symbol| own.contains(symbol)) {
                // What a register leads to may be a library's, too.
                let callee = callee.as_deref().map(demangle);
                all.entry((names.of_function(caller), callee)).or_default()[arm] += times;
            }
        }
    }
    chosen(all, slow)
}

/// How often each build's own code asks for memory. What gives memory may ask another one for it.
pub(super) fn allocations(made: &[Vec<Call<'_>>; 2]) -> [u64; 2] {
    let asks = |call: &&Call<'_>| {
        call.callee.as_deref().is_some_and(allocates) && !allocates(&call.caller.symbol)
    };
    made.each_ref().map(|calls| calls.iter().filter(asks).map(|call| call.times).sum())
}

/// Whether a function of this symbol gives memory: of C, C++, Rust and Go.
fn allocates(symbol: &str) -> bool {
    const OF_C: [&str; 6] =
        ["malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign", "memalign"];
    const OF_RUST: [&str; 5] =
        ["__rust_alloc", "__rust_alloc_zeroed", "__rust_realloc", "__rdl_alloc", "__rdl_realloc"];
    OF_C.contains(&symbol)
        || ["_Znw", "_Zna", "runtime.mallocgc"].iter().any(|start| symbol.starts_with(start))
        || OF_RUST.iter().any(|end| symbol.ends_with(end))
}

fn chosen(all: BTreeMap<(String, Option<String>), [u64; 2]>, slow: Arm) -> Option<LibraryCalls> {
    let more = |calls: &[u64; 2]| calls[slow.index()].saturating_sub(calls[slow.other().index()]);
    let in_all: u64 = all.values().map(more).sum();
    let ((caller, callee), calls) = all.into_iter().max_by_key(|(_, calls)| more(calls))?;
    let most = more(&calls);
    let is_most = most >= LEAST_CALLS && most as f64 >= LEAST_PART * in_all as f64;
    callee.filter(|_| is_most).map(|callee| LibraryCalls { caller, callee, calls })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(calls: &[(&str, &str, [u64; 2])], slow: Arm) -> Option<String> {
        let name = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        let all = calls.iter().map(|(a, b, calls)| ((a.to_string(), name(b)), *calls));
        chosen(all.collect(), slow).map(|found| found.to_string())
    }

    #[test]
    fn functions_that_give_memory_are_known_by_their_symbols() {
        for symbol in [
            "malloc",
            "_Znwm",
            "_ZnamRKSt9nothrow_t",
            "runtime.mallocgcSmallNoscan",
            "__rust_alloc",
        ] {
            assert!(allocates(symbol), "{symbol}");
        }
        assert!(allocates("_RNvCsfLfy6EI15iL_7___rustc12___rust_alloc"));
        for symbol in ["free", "_ZdlPv", "my_malloc", "malloc_usable_size", "runtime.newobject"] {
            assert!(!allocates(symbol), "{symbol}");
        }
    }

    #[test]
    fn the_function_that_makes_most_of_the_calls_that_are_more_is_named() {
        let all = [("walk", "memmove", [12, 9000]), ("main", "printf", [500, 1500])];
        let said = "walk calls memmove 9000 times in AFTER and 12 in BEFORE";
        assert_eq!(of(&all, Arm::B).unwrap(), said);
        assert_eq!(of(&all, Arm::A), None, "none of the fast build's");
        assert_eq!(of(&[("walk", "memmove", [12, 1011])], Arm::B), None, "few");
        let spread = [("a", "f", [0, 2000]), ("b", "f", [0, 2000]), ("c", "f", [0, 1999])];
        assert_eq!(of(&spread, Arm::B), None, "a third");
        let through_register = [("a", "f", [0, 2000]), ("a", "", [0, 2001])];
        assert_eq!(of(&through_register, Arm::B), None, "nothing tells what that was");
    }
}
