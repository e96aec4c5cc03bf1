//! The functions of two builds, side by side.
//!
//! By name first, then by name without the suffixes that compilers put on clones, then by
//! normalised bytes (so that functions of stripped programs find each other), then by readable name without the
//! program's own crate (hashes and the names of files change where the source does not), then by that without parameters,
//! and what is nameless and changed by standing between the same neighbours. Equal names (static functions of different
//! files) are paired in the order of their addresses.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::code::{Function, Image, short_name};
use crate::model::Svma;

/// What became of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The same code at the same address.
    Same,
    /// The same code at another address.
    Moved {
        /// By how much; positive is towards higher addresses.
        by_bytes: i64,
    },
    /// The instructions differ.
    Changed,
    /// Only in the second build.
    New,
    /// Only in the first build.
    Gone,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same => f.write_str("same bytes, same address"),
            Self::Moved { by_bytes } => write!(f, "same bytes, moved by {by_bytes:+}"),
            Self::Changed => f.write_str("code changed"),
            Self::New => f.write_str("new"),
            Self::Gone => f.write_str("gone"),
        }
    }
}

/// One function of either build, or the same function of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionMatch<'a> {
    /// The function in BEFORE; `None` where it is new.
    pub before: Option<&'a Function>,
    /// The function in AFTER; `None` where it is gone.
    pub after: Option<&'a Function>,
    /// Whether the function changed, moved, came or went.
    pub change: Change,
}

/// Matches all functions of two builds; those of the first come in address order, then the new ones.
#[must_use]
pub fn match_functions<'a>(before: &'a Image, after: &'a Image) -> Vec<FunctionMatch<'a>> {
    let mut left: Vec<&Function> = before.functions().iter().collect();
    let mut right: Vec<&Function> = after.functions().iter().collect();
    let mut pairs: Vec<(&Function, &Function)> = Vec::new();
    let named = |f: &Function| f.named.then(|| f.symbol.clone());
    let stem = |f: &Function| f.named.then(|| without_clone_suffix(&f.symbol).to_owned());
    pair_by(&mut left, &mut right, &mut pairs, named, named);
    pair_by(&mut left, &mut right, &mut pairs, stem, stem);
    pair_by(&mut left, &mut right, &mut pairs, |f| body(before, f), |f| body(after, f));
    let names = [readable_names(before, &left), readable_names(after, &right)];
    let by_name = |names: &BTreeMap<Svma, String>, f: &Function| names.get(&f.start).cloned();
    let [of_before, of_after] = &names;
    pair_by(&mut left, &mut right, &mut pairs, |f| by_name(of_before, f), |f| by_name(of_after, f));
    let short = [alone_by_short_name(&left, of_before), alone_by_short_name(&right, of_after)];
    let [of_before, of_after] = &short;
    pair_by(&mut left, &mut right, &mut pairs, |f| by_name(of_before, f), |f| by_name(of_after, f));
    let [gaps_before, gaps_after] = gaps(&left, &right, &pairs);
    let gap = |gaps: &BTreeMap<Svma, Gap>, f: &Function| gaps.get(&f.start).copied();
    pair_by(&mut left, &mut right, &mut pairs, |f| gap(&gaps_before, f), |f| gap(&gaps_after, f));

    let mut matches: Vec<FunctionMatch<'a>> = pairs
        .into_iter()
        .map(|(b, a)| FunctionMatch {
            before: Some(b),
            after: Some(a),
            change: change(before, b, after, a),
        })
        .chain(left.into_iter().map(|b| FunctionMatch {
            before: Some(b),
            after: None,
            change: Change::Gone,
        }))
        .collect();
    matches.sort_by_key(|m| m.before.map(|f| f.start));
    matches.extend(right.into_iter().map(|a| FunctionMatch {
        before: None,
        after: Some(a),
        change: Change::New,
    }));
    matches
}

fn readable_names(image: &Image, functions: &[&Function]) -> BTreeMap<Svma, String> {
    let names = ReadableNames::of(image);
    let named = functions.iter().filter(|function| function.named);
    named.map(|function| (function.start, names.of_function(function))).collect()
}

/// Names without parameters: with other ones it is another symbol, and the same function if no second one has its name.
fn alone_by_short_name(
    functions: &[&Function],
    names: &BTreeMap<Svma, String>,
) -> BTreeMap<Svma, String> {
    let mut by_name: BTreeMap<&str, Vec<Svma>> = BTreeMap::new();
    for function in functions {
        if let Some(name) = names.get(&function.start) {
            by_name.entry(short_name(name)).or_default().push(function.start);
        }
    }
    let alone = by_name.into_iter().filter_map(|(name, starts)| match starts[..] {
        [start] => Some((start, name.to_owned())),
        _ => None,
    });
    alone.collect()
}

fn body(image: &Image, function: &Function) -> Option<Vec<u8>> {
    // Tiny bodies are alike by chance.
    (function.size_bytes >= 16).then(|| image.normalised(function))
}

fn change(before: &Image, b: &Function, after: &Image, a: &Function) -> Change {
    let code = |image: &Image, f: &Function| image.normalised(f);
    // Equal bytes stay equal when normalised, and most are equal: nothing to decode.
    let equal = b.size_bytes == a.size_bytes
        && (before.function_bytes(b) == after.function_bytes(a)
            || code(before, b) == code(after, a));
    if !equal {
        Change::Changed
    } else if b.start == a.start {
        Change::Same
    } else {
        Change::Moved { by_bytes: a.start.0.wrapping_sub(b.start.0) as i64 }
    }
}

/// Names of functions as both builds have them: a Rust program that is built from another file is another crate.
#[derive(Debug)]
pub struct ReadableNames {
    /// The program's own crate and what follows it in names, such as `decoder::`.
    own: Option<String>,
}

impl ReadableNames {
    /// Those of a program's functions.
    #[must_use]
    pub fn of(image: &Image) -> Self {
        // Names are long to read: as compilers mangle them, all of these have this in them.
        let may_be = |f: &&Function| f.named && f.symbol.contains("4main");
        Self::without(image.functions().iter().filter(may_be).map(Function::name))
    }

    fn without(mut names: impl Iterator<Item = String>) -> Self {
        let own = names.find_map(|name| {
            let own = name.strip_suffix("::main")?;
            let is_crate = own.chars().all(|c| c.is_alphanumeric() || c == '_');
            (is_crate && !own.is_empty()).then(|| format!("{own}::"))
        });
        Self { own }
    }

    /// The readable name without the program's own crate.
    #[must_use]
    pub fn of_function(&self, function: &Function) -> String {
        self.stripped(&function.name())
    }

    fn stripped(&self, name: &str) -> String {
        let Some(own) = &self.own else { return name.to_owned() };
        let mut parts = name.split(own.as_str());
        let mut kept = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            // `decoder::` of `index_decoder::` is no name of its own.
            if kept.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
                kept += own;
            }
            kept += part;
        }
        kept
    }
}

/// `decode.isra.0` and `decode.llvm.123` are `decode`; `decode.cold` is code of its own.
fn without_clone_suffix(symbol: &str) -> &str {
    ["constprop", "isra", "part", "llvm", "lto_priv"]
        .iter()
        .filter_map(|kind| symbol.find(&format!(".{kind}.")))
        .min()
        .map_or(symbol, |at| &symbol[..at])
}

/// Where a nameless function without partner stands: behind which matched function of the second
/// build, as which of how many.
type Gap = (Svma, usize, usize);

/// The gaps of both builds that hold such functions.
fn gaps(
    left: &[&Function],
    right: &[&Function],
    pairs: &[(&Function, &Function)],
) -> [BTreeMap<Svma, Gap>; 2] {
    let partner_of_left = pairs.iter().map(|(b, a)| (b.start, a.start)).collect();
    let partner_of_right = pairs.iter().map(|(_, a)| (a.start, a.start)).collect();
    [positions(left, &partner_of_left), positions(right, &partner_of_right)]
}

fn positions(unmatched: &[&Function], partners: &BTreeMap<Svma, Svma>) -> BTreeMap<Svma, Gap> {
    let mut by_gap: BTreeMap<Svma, Vec<Svma>> = BTreeMap::new();
    for function in unmatched.iter().filter(|f| !f.named) {
        let behind = partners.range(..function.start).next_back().map(|(_, partner)| *partner);
        by_gap.entry(behind.unwrap_or_default()).or_default().push(function.start);
    }
    by_gap
        .into_iter()
        .flat_map(|(behind, starts)| {
            let count = starts.len();
            starts.into_iter().enumerate().map(move |(i, start)| (start, (behind, i, count)))
        })
        .collect()
}

/// Pairs what has the same key, in order, and removes it from both sides.
fn pair_by<'a, K: Ord>(
    left: &mut Vec<&'a Function>,
    right: &mut Vec<&'a Function>,
    pairs: &mut Vec<(&'a Function, &'a Function)>,
    left_key: impl Fn(&Function) -> Option<K>,
    right_key: impl Fn(&Function) -> Option<K>,
) {
    let mut waiting: BTreeMap<K, VecDeque<&'a Function>> = BTreeMap::new();
    for function in right.iter() {
        if let Some(key) = right_key(function) {
            waiting.entry(key).or_default().push_back(function);
        }
    }
    let mut taken = HashSet::new();
    left.retain(|function| {
        let partner =
            left_key(function).and_then(|key| waiting.get_mut(&key)).and_then(VecDeque::pop_front);
        if let Some(partner) = partner {
            taken.insert(partner.start);
            pairs.push((function, partner));
        }
        partner.is_none()
    });
    right.retain(|function| !taken.contains(&function.start));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_code_is_the_same_wherever_it_calls_to_and_other_code_of_that_size_is_not() {
        use crate::code::fixture;
        // f calls g, which stands behind the padding.
        let build = |padding: usize, other: u8| {
            let to = (16 + (padding / 16 + 1) * 16) as i32 - 5;
            let f = [&[0xe8][..], &to.to_le_bytes(), &[0xc3]].concat();
            let (pad, g) = (vec![0x90; padding], [0x31, other, 0xc3]);
            fixture::image(&[("f", &f), ("pad", &pad), ("g", &g)]).unwrap()
        };
        let (before, after) = (build(20, 0xc0), build(60, 0xc9));
        let changes: Vec<(String, Change)> = match_functions(&before, &after)
            .iter()
            .map(|m| (m.before.unwrap().symbol.clone(), m.change))
            .collect();
        let named = |name: &str| changes.iter().find(|c| c.0 == name).unwrap().1;
        assert_eq!(
            [named("f"), named("pad"), named("g")],
            [Change::Same, Change::Changed, Change::Changed]
        );
        let moved = build(60, 0xc0);
        let g =
            match_functions(&before, &moved).into_iter().find(|m| m.before.unwrap().symbol == "g");
        assert_eq!(g.unwrap().change, Change::Moved { by_bytes: 32 });
    }

    #[test]
    fn a_function_with_other_parameters_is_the_same_one_unless_several_have_its_name() {
        use crate::code::fixture;
        let build = |names: &[&str]| {
            let code = |n: usize| {
                [&[0x05][..], &(names[0].len() + n).to_le_bytes()[..4], &[0xc3]].concat()
            };
            let codes: Vec<Vec<u8>> = (0..names.len()).map(code).collect();
            let all: Vec<(&str, &[u8])> =
                names.iter().zip(&codes).map(|(name, code)| (*name, &code[..])).collect();
            fixture::image(&all).unwrap()
        };
        let change = |before: &[&str], after: &[&str]| {
            let [before, after] = [build(before), build(after)];
            match_functions(&before, &after)[0].change
        };
        // collect(int const&), collect(int), collect(long)
        let [by_reference, by_value, other] = ["_Z7collectRKi", "_Z7collecti", "_Z7collectl"];
        assert_eq!(change(&[by_reference, "main"], &[by_value, "main"]), Change::Changed);
        assert_eq!(change(&[by_reference, "main"], &[by_value, other, "main"]), Change::Gone);
    }

    #[test]
    fn what_became_of_a_function_is_said() {
        let all = [
            Change::Same,
            Change::Moved { by_bytes: -16 },
            Change::Changed,
            Change::New,
            Change::Gone,
        ];
        assert_eq!(
            all.map(|change| change.to_string()),
            ["same bytes, same address", "same bytes, moved by -16", "code changed", "new", "gone"]
        );
    }

    #[test]
    fn a_program_matches_itself() {
        let image = Image::open(&std::env::current_exe().unwrap()).unwrap();
        let matches = match_functions(&image, &image);
        assert_eq!(matches.len(), image.functions().len());
        assert!(matches.iter().all(|m| m.change == Change::Same));
    }

    #[test]
    fn a_nameless_function_is_found_between_its_neighbours() {
        let function = |start: u64| Function {
            symbol: format!("fn_{start:x}"),
            start: Svma(start),
            size_bytes: 16,
            named: false,
        };
        let (b, a) = ([10, 20, 30].map(function), [110, 120, 130].map(function));
        let pairs = [(&b[0], &a[0]), (&b[2], &a[2])];
        let [left, right] = gaps(&[&b[1]], &[&a[1]], &pairs);
        assert_eq!(left[&Svma(20)], right[&Svma(120)]);
        let extra = function(125);
        let [left, right] = gaps(&[&b[1]], &[&a[1], &extra], &pairs);
        assert_ne!(left[&Svma(20)], right[&Svma(120)], "two where there was one: no guess");
    }

    #[test]
    fn the_crate_of_a_program_is_no_part_of_its_names() {
        let names = |of: &[&str]| ReadableNames::without(of.iter().map(|name| name.to_string()));
        let own = names(&["std::rt::lang_start", "before::Table::add", "before::main"]);
        assert_eq!(own.stripped("before::Table::add"), "Table::add");
        assert_eq!(
            own.stripped("<before::Row as core::fmt::Debug>::fmt"),
            "<Row as core::fmt::Debug>::fmt"
        );
        let other = "not_before::add<std::before::Row>";
        assert_eq!(own.stripped(other), other);
        // Go's and C's are as they are.
        for program in
            [&["main.main", "main.add"][..], &["main", "add"], &["a::b::main"], &["::main"]]
        {
            assert_eq!(names(program).stripped("main.add"), "main.add");
        }
    }

    #[test]
    fn clone_suffixes_are_dropped_and_cold_parts_kept() {
        assert_eq!(without_clone_suffix("decode.isra.0"), "decode");
        assert_eq!(without_clone_suffix("decode.part.0.constprop.1"), "decode");
        assert_eq!(without_clone_suffix("decode.cold"), "decode.cold");
    }
}
