//! Functions of two builds by what they are in the source: clones and split-off parts folded, and
//! told apart by the object they come from.
//!
//! Equal keys first; then what is alone under its name on both sides, whatever object it is in;
//! then what is matched by its bytes or by its neighbours ([`super::super::match_functions`]).

use std::collections::{BTreeMap, BTreeSet};

use super::Build;
use crate::code::Function;
use crate::layout::match_functions;
use crate::model::Svma;

/// An object (an archive's member, the source file of a local function; empty where the name alone
/// says which it is) and a name without what compilers append.
pub(super) type Key = (String, String);

/// The parts of one function: the image they are in, and where.
pub(super) type Group<'a> = Vec<(usize, &'a Function)>;

/// One function of either build or of both.
pub(super) struct Pair<'a> {
    pub before: Option<(Key, Group<'a>)>,
    pub after: Option<(Key, Group<'a>)>,
}

/// `decode.isra.0`, `decode.llvm.123` and `decode.cold` are `decode`.
pub(in crate::layout) fn stem(symbol: &str) -> &str {
    const NUMBERED: [&str; 5] = ["constprop", "isra", "part", "llvm", "lto_priv"];
    const BARE: [&str; 2] = ["cold", "localalias"];
    let is_suffix = |at: usize| {
        let mut words = symbol[at + 1..].split('.');
        let word = words.next().unwrap_or_default();
        let number = words.next().and_then(|n| n.bytes().next());
        BARE.contains(&word)
            || NUMBERED.contains(&word) && number.is_some_and(|b| b.is_ascii_digit())
    };
    symbol
        .match_indices('.')
        .map(|(at, _)| at)
        .find(|at| *at > 0 && is_suffix(*at))
        .map_or(symbol, |at| &symbol[..at])
}

type Groups<'a> = BTreeMap<Key, Group<'a>>;

fn groups<'a>(build: &'a Build<'_>) -> Groups<'a> {
    let mut groups = Groups::new();
    for (index, member) in build.members.iter().enumerate() {
        for function in member.image.functions() {
            let object = match &member.label {
                Some(label) => label.clone(),
                None => member.origins.file(function.start).unwrap_or_default().to_owned(),
            };
            groups
                .entry((object, stem(&function.symbol).to_owned()))
                .or_default()
                .push((index, function));
        }
    }
    groups
}

pub(super) fn pairs<'a>(before: &'a Build<'_>, after: &'a Build<'_>) -> Vec<Pair<'a>> {
    let (mut left, mut right) = (groups(before), groups(after));
    let mut pairs = Vec::new();
    // A name that was made up from an address says nothing.
    let is_named = |group: &Group<'_>| group.iter().all(|(_, f)| f.named);
    let equal: Vec<Key> = left
        .iter()
        .filter(|(k, g)| is_named(g) && right.contains_key(*k))
        .map(|(k, _)| k.clone())
        .collect();
    for key in equal {
        join(&mut left, &mut right, &key, &key.clone(), &mut pairs);
    }
    for (from, to) in alone_by_name(&left, &right) {
        join(&mut left, &mut right, &from, &to, &mut pairs);
    }
    for (from, to) in by_bytes(before, after, &left, &right) {
        join(&mut left, &mut right, &from, &to, &mut pairs);
    }
    pairs.extend(left.into_iter().map(|g| Pair { before: Some(g), after: None }));
    pairs.extend(right.into_iter().map(|g| Pair { before: None, after: Some(g) }));
    pairs
}

/// Takes two groups out of the lists, if both are still there.
fn join<'a>(
    left: &mut Groups<'a>,
    right: &mut Groups<'a>,
    from: &Key,
    to: &Key,
    pairs: &mut Vec<Pair<'a>>,
) {
    if left.contains_key(from) && right.contains_key(to) {
        let (before, after) = (left.remove_entry(from), right.remove_entry(to));
        pairs.push(Pair { before, after });
    }
}

/// What has moved to another object: one function of that name is left on each side.
fn alone_by_name(left: &Groups<'_>, right: &Groups<'_>) -> Vec<(Key, Key)> {
    let by_stem = |groups: &Groups<'_>| {
        let mut keys: BTreeMap<String, Vec<Key>> = BTreeMap::new();
        for (key, group) in groups {
            if group.iter().all(|(_, f)| f.named) {
                keys.entry(key.1.clone()).or_default().push(key.clone());
            }
        }
        keys
    };
    let others = by_stem(right);
    by_stem(left)
        .into_iter()
        .filter_map(|(name, keys)| match (keys.as_slice(), others.get(&name)?.as_slice()) {
            ([from], [to]) => Some((from.clone(), to.clone())),
            _ => None,
        })
        .collect()
}

/// What has another name, or none, and the same code or the same neighbours.
fn by_bytes(
    before: &Build<'_>,
    after: &Build<'_>,
    left: &Groups<'_>,
    right: &Groups<'_>,
) -> Vec<(Key, Key)> {
    if left.is_empty() || right.is_empty() {
        return Vec::new();
    }
    let keys = |groups: &Groups<'_>| -> BTreeMap<(usize, Svma), Key> {
        let parts = |(key, group): (&Key, &Group<'_>)| {
            group.iter().map(|(i, f)| ((*i, f.start), key.clone())).collect::<Vec<_>>()
        };
        groups.iter().flat_map(parts).collect()
    };
    let (lonely_before, lonely_after) = (keys(left), keys(right));
    let images: BTreeSet<usize> = lonely_before.keys().map(|(i, _)| *i).collect();
    let mut found = Vec::new();
    for i in images {
        let label = &before.members[i].label;
        let Some(j) = after.members.iter().position(|m| m.label == *label) else { continue };
        for m in match_functions(before.members[i].image, after.members[j].image) {
            let (Some(b), Some(a)) = (m.before, m.after) else { continue };
            let ends = (lonely_before.get(&(i, b.start)), lonely_after.get(&(j, a.start)));
            if let (Some(from), Some(to)) = ends {
                found.push((from.clone(), to.clone()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_compilers_append_is_dropped() {
        assert_eq!(stem("decode.isra.0"), "decode");
        assert_eq!(stem("decode.part.0.constprop.1"), "decode");
        assert_eq!(stem("decode.isra.0.cold"), "decode");
        assert_eq!(stem("decode.cold"), "decode");
        assert_eq!(stem("main.(*T).part"), "main.(*T).part", "a method in Go");
        assert_eq!(stem("encoding/json.partial"), "encoding/json.partial");
        assert_eq!(stem(".cold"), ".cold");
    }
}
