//! From where a library is called that takes more time: which function of the program calls which of its functions more
//! often in the slow build.
//!
//! What a library executes is what was asked of it. The calls of whole runs are counted instruction by instruction; the
//! program's tables name what each of them reaches through the linker's stubs.

use std::collections::{BTreeMap, HashSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ByPlace;
use crate::code::{Image, LONGEST_INSN_BYTES, Origins, demangle};
use crate::compare::Arm;
use crate::layout::{ReadableNames, callee};

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

/// The calls of libraries of which the slow build makes most more, if that is most of what it makes more of all.
pub(super) fn most(
    images: &[Image; 2],
    runs: [Option<&ByPlace>; 2],
    slow: Arm,
) -> Option<LibraryCalls> {
    let mut all: BTreeMap<(String, Option<String>), [u64; 2]> = BTreeMap::new();
    for (arm, (image, run)) in images.iter().zip(runs).enumerate() {
        let (origins, names) = (Origins::of(image), ReadableNames::of(image));
        let own: HashSet<&str> =
            image.functions().iter().filter(|f| f.named).map(|f| f.symbol.as_str()).collect();
        for (at, times) in &run?.calls {
            let Some(svma) = image.svma_of(*at) else { continue };
            let Some(function) = image.function_at(svma) else { continue };
            let code = image.code_at(svma, LONGEST_INSN_BYTES as u64);
            let insn = image.architecture().decode(code, svma);
            let callee = insn.first().and_then(|insn| callee(image, &origins, function, insn));
            let is_own = callee.as_ref().is_some_and(|name| own.contains(name.as_str()));
            if !is_own {
                // What a register leads to may be a library's, too.
                let callee = callee.as_deref().map(demangle);
                all.entry((names.of_function(function), callee)).or_default()[arm] += times;
            }
        }
    }
    chosen(all, slow)
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
