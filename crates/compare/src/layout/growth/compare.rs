//! One function of two builds: its sizes, and what came and went.

use std::collections::{BTreeMap, BTreeSet};

use super::measure::{self, Measured, Strings};
use super::pairing::{Group, Key, Pair};
use super::report::{CallChange, FunctionGrowth, FunctionSize, Growth, Reasons, StringChange};
use super::{Build, TextSection};
use crate::code::{Function, Image, demangle};

/// Two builds, with the names of their functions.
pub(super) struct Builds<'a> {
    pub before: &'a Build<'a>,
    pub after: &'a Build<'a>,
    pub defined_before: BTreeSet<&'a str>,
    pub defined_after: BTreeSet<&'a str>,
}

pub(super) enum Outcome {
    /// The same code, perhaps elsewhere.
    Same { rep_sites: usize },
    /// Nothing but padding under a name.
    Padding { change_bytes: i64 },
    /// The instructions differ.
    Changed(Box<FunctionGrowth>),
}

impl Builds<'_> {
    pub fn compare(&self, pair: &Pair<'_>) -> Outcome {
        if let (Some((_, before)), Some((_, after))) = (&pair.before, &pair.after)
            && self.is_same(before, after)
        {
            let sites = before.iter().map(|(i, f)| {
                measure::strings(self.before.members[*i].image, f, None).values().sum::<usize>()
            });
            return Outcome::Same { rep_sites: sites.sum() };
        }
        let before = pair.before.as_ref().map(|(key, group)| (key, measured(self.before, group)));
        let after = pair.after.as_ref().map(|(key, group)| (key, measured(self.after, group)));
        let sizes = [&before, &after].map(|side| side.as_ref().map(|(_, (size, _))| *size));
        let [old, new] = sizes.map(Option::unwrap_or_default);
        if old.code_bytes() == 0 && new.code_bytes() == 0 {
            let change_bytes = new.alignment_bytes as i64 - old.alignment_bytes as i64;
            return Outcome::Padding { change_bytes };
        }
        let change_bytes = new.code_bytes() as i64 - old.code_bytes() as i64;
        let growth = match (sizes, change_bytes) {
            ([None, _], _) => Growth::New,
            ([_, None], _) => Growth::Gone,
            (_, 1..) => Growth::Grew,
            (_, 0) => Growth::Rewritten,
            _ => Growth::Shrank,
        };
        let key = after.as_ref().or(before.as_ref()).map(|(key, _)| (*key).clone());
        let (object, name) = key.unwrap_or_default();
        let why = self.why(before.as_ref(), after.as_ref(), change_bytes);
        let renamed = before.map(|((_, old), _)| old).filter(|old| **old != name);
        Outcome::Changed(Box::new(FunctionGrowth {
            name: demangle(&name),
            object: Some(object).filter(|o| !o.is_empty()),
            renamed_from: renamed.map(|old| demangle(old)),
            growth,
            change_bytes,
            before: sizes[0],
            after: sizes[1],
            why,
        }))
    }

    /// Whether all parts are the same but for where they and others stand.
    fn is_same(&self, before: &Group<'_>, after: &Group<'_>) -> bool {
        let normalised = |image: &Image, f: &Function| image.normalised(f);
        let sizes = |group: &Group<'_>| group.iter().map(|(_, f)| f.size_bytes).sum::<u64>();
        before.len() == after.len()
            && sizes(before) == sizes(after)
            && sorted(before).into_iter().zip(sorted(after)).all(|((i, b), (j, a))| {
                let (old, new) = (self.before.members[i].image, self.after.members[j].image);
                b.size_bytes == a.size_bytes
                    && (old.function_bytes(b) == new.function_bytes(a)
                        || normalised(old, b) == normalised(new, a))
            })
    }

    fn why(
        &self,
        before: Option<&(&Key, (FunctionSize, Measured))>,
        after: Option<&(&Key, (FunctionSize, Measured))>,
        change_bytes: i64,
    ) -> Reasons {
        let nothing = Measured::default();
        let [old, new] = [before, after].map(|side| side.map_or(&nothing, |(_, (_, m))| m));
        let mut why = Reasons {
            rep_removed: string_changes(&old.strings, &new.strings),
            rep_added: string_changes(&new.strings, &old.strings),
            ..Reasons::default()
        };
        if before.is_none() || after.is_none() {
            return why;
        }
        why.loops_change = new.loops as i64 - old.loops as i64;
        for change in fewer(&old.calls, &new.calls) {
            let callee = change.callee.as_str();
            let is_own = self.defined_before.contains(callee) && !new.calls.contains_key(callee);
            if is_own && change_bytes > 0 {
                why.inlined.push(demangle(callee));
            } else {
                why.calls_removed.push(readable(change));
            }
        }
        for change in fewer(&new.calls, &old.calls) {
            let callee = change.callee.as_str();
            let is_new =
                self.defined_after.contains(callee) && !self.defined_before.contains(callee);
            if is_new && change_bytes < 0 {
                why.split_off.push(demangle(callee));
            } else {
                why.calls_added.push(readable(change));
            }
        }
        why
    }
}

fn readable(change: CallChange) -> CallChange {
    CallChange { callee: demangle(&change.callee), calls: change.calls }
}

/// The parts in an order that does not depend on addresses.
fn sorted<'a>(group: &Group<'a>) -> Group<'a> {
    let mut parts = group.clone();
    parts.sort_by(|a, b| (&a.1.symbol, a.1.start).cmp(&(&b.1.symbol, b.1.start)));
    parts
}

/// What there is less of in `to`.
fn fewer(from: &BTreeMap<String, usize>, to: &BTreeMap<String, usize>) -> Vec<CallChange> {
    from.iter()
        .filter_map(|(callee, count)| {
            let left = to.get(callee).copied().unwrap_or(0);
            let calls = count.checked_sub(left).filter(|n| *n > 0)?;
            Some(CallChange { callee: callee.clone(), calls })
        })
        .collect()
}

fn string_changes(from: &Strings, to: &Strings) -> Vec<StringChange> {
    from.iter()
        .filter_map(|((instruction, size_bytes), count)| {
            let left = to.get(&(instruction.clone(), *size_bytes)).copied().unwrap_or(0);
            let sites = count.checked_sub(left).filter(|n| *n > 0)?;
            let (instruction, size_bytes) = (instruction.clone(), *size_bytes);
            Some(StringChange { instruction, size_bytes, sites })
        })
        .collect()
}

/// All parts of a function, measured and added up.
fn measured(build: &Build<'_>, group: &Group<'_>) -> (FunctionSize, Measured) {
    let mut size = FunctionSize { parts: group.len(), ..FunctionSize::default() };
    let mut sum = Measured::default();
    for (index, function) in group {
        let member = &build.members[*index];
        let part = Measured::of(member.image, &member.origins, function);
        *match member.place(function) {
            TextSection::Hot => &mut size.hot_bytes,
            TextSection::Cold => &mut size.cold_bytes,
            TextSection::Init => &mut size.init_bytes,
        } += part.code_bytes;
        sum.add(&part);
    }
    size.alignment_bytes = sum.alignment_bytes;
    size.rep_sites = sum.strings.values().sum();
    size.loops = sum.loops;
    (size, sum)
}
