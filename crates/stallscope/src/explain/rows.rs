//! The difference, function by function.
//!
//! Time in a function is the arm's time in user code times the function's share of its samples. Its
//! part of the difference is what it took longer, over what the whole program took longer on the
//! processor, in the kernel as well: one whole for all rows.

use std::collections::BTreeSet;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::heat::ObjectHeat;
use super::object::{self, ObjectCode};
use super::processor::share;
use super::summary::LEAST_BESIDE;
use super::work::MOST;
use super::{Executed, Heat, Share};
use crate::code::Function;
use crate::compare::{Arm, library_name};
use crate::layout::{Change, FunctionMatch};
use crate::model::Measurement;

/// Parts of the difference below this share are not worth a row.
const LEAST_SHARE: f64 = 0.5;

/// A place that can take time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// A function of the program.
    Function {
        /// Its demangled name.
        name: String,
        /// It, in BEFORE.
        before: Option<Function>,
        /// It, in AFTER.
        after: Option<Function>,
        /// What became of it.
        change: Change,
    },
    /// Another file: a library, the kernel's page, generated code.
    Object {
        /// The file's name.
        name: String,
        /// What it is in the two arms.
        code: ObjectCode,
        /// The function in it whose time differs most, where it has a name.
        most_in: Option<String>,
    },
}

/// The place that has most of the difference.
pub(super) fn most(rows: &[FunctionRow]) -> Option<&FunctionRow> {
    let part = |row: &&FunctionRow| row.share_of_difference.percent.value;
    rows.iter().max_by(|a, b| part(a).total_cmp(&part(b)))
}

/// Whether a place goes the other way by a good part of the difference: then no sum tells why single places differ.
pub(super) fn go_apart(rows: &[FunctionRow]) -> bool {
    rows.iter().any(|row| row.share_of_difference.percent.high <= -LEAST_BESIDE)
}

/// Whether most of the difference is in code that was made at run time.
pub(super) fn are_most_in_made_code(rows: &[FunctionRow]) -> bool {
    let made = rows.iter().filter(|row| row.place.is_made());
    made.map(|row| row.share_of_difference.percent.value).sum::<f64>() >= MOST
}

impl Place {
    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Function { name, .. } | Self::Object { name, .. } => name,
        }
    }

    /// By which name its samples and instructions are kept, where it is no function of the program.
    pub(super) fn object_name(&self) -> String {
        match self {
            Self::Function { name, .. }
            | Self::Object { name, code: ObjectCode::Generated, .. } => name.clone(),
            Self::Object { name, .. } => library_name(Path::new(name)),
        }
    }

    /// The function in this arm's build, where the place is one and the build has it.
    pub(super) fn function(&self, arm: Arm) -> Option<&Function> {
        match self {
            Self::Function { before, after, .. } => [before, after][arm.index()].as_ref(),
            Self::Object { .. } => None,
        }
    }

    /// The file in this arm, where the place is one.
    pub(super) fn object(&self, arm: Arm) -> Option<&Path> {
        match self {
            Self::Function { .. } => None,
            Self::Object { code: ObjectCode::Differs { paths, .. }, .. } => {
                Some(&paths[arm.index()])
            }
            Self::Object { code: ObjectCode::Same { path }, .. } => Some(path),
            Self::Object { .. } => None,
        }
    }

    /// Whether both builds have it: the function, or a file with the same code.
    pub(super) fn is_in_both(&self) -> bool {
        match self {
            Self::Function { before, after, .. } => before.is_some() && after.is_some(),
            Self::Object { code, .. } => matches!(code, ObjectCode::Same { .. }),
        }
    }

    /// Whether it is code that was made at run time, in no file.
    pub(super) fn is_made(&self) -> bool {
        match self {
            Self::Function { .. } => false,
            Self::Object { code, .. } => {
                *code == ObjectCode::Generated || self.object_name() == library_name(Path::new(""))
            }
        }
    }

    /// Where it is: its name, for a file with that of the function that most of it is in.
    pub(super) fn where_words(&self) -> String {
        match self {
            Self::Object { name, most_in: Some(function), .. } => format!("{function} in {name}"),
            Self::Object { name, .. } | Self::Function { name, .. } => name.clone(),
        }
    }

    /// What became of it, in words.
    #[must_use]
    pub fn change_words(&self) -> String {
        match self {
            Self::Function { change, .. } => change.to_string(),
            Self::Object { code, most_in: None, .. } => code.to_string(),
            Self::Object { code, most_in: Some(function), .. } => {
                format!("{code}; most of it in {function}")
            }
        }
    }

    /// Whether the code here was compared and is the same in both builds.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        match self {
            Self::Function { change, .. } => matches!(change, Change::Same | Change::Moved { .. }),
            Self::Object { code, .. } => code.is_unchanged(),
        }
    }
}

/// One place and its part of the difference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FunctionRow {
    /// Where.
    pub place: Place,
    /// User time in BEFORE, per run.
    pub before: Measurement,
    /// User time in AFTER, per run.
    pub after: Measurement,
    /// Its part of the difference; negative when it went the other way.
    pub share_of_difference: Share,
    /// What a whole run of BEFORE and of AFTER executes here, where that was counted.
    pub executed: Option<[Executed; 2]>,
}

impl FunctionRow {
    /// Whether it is code that both builds make at run time.
    pub(super) fn is_made_in_both(&self) -> bool {
        self.place.is_made() && self.before.value > 0.0 && self.after.value > 0.0
    }

    /// Instructions that a whole run of BEFORE and of AFTER executes here, where they were counted.
    #[must_use]
    pub fn instructions(&self) -> Option<[u64; 2]> {
        self.executed.map(|both| both.map(|executed| executed.instructions))
    }
}

/// All places with a part of the difference, largest first.
pub(super) fn rows(
    matches: &[FunctionMatch<'_>],
    heats: &[Heat; 2],
    user: &[Measurement; 2],
    difference_ns: f64,
) -> Vec<FunctionRow> {
    let hits_in =
        |arm: usize, f: Option<&Function>| f.map_or(0, |f| heats[arm].between(f.start, f.end()));
    let functions = matches.iter().map(|m| {
        let name = m.after.or(m.before).map(Function::name).unwrap_or_default();
        let place = Place::Function {
            name,
            before: m.before.cloned(),
            after: m.after.cloned(),
            change: m.change,
        };
        (place, [hits_in(0, m.before), hits_in(1, m.after)])
    });
    let names: BTreeSet<&String> = heats.iter().flat_map(|h| h.by_object.keys()).collect();
    let objects = names.into_iter().map(|name| {
        let found = heats.each_ref().map(|heat| heat.by_object.get(name));
        let code = ObjectCode::of(found);
        let name = if code == ObjectCode::Generated { name.clone() } else { shown_name(found) };
        let place = Place::Object { name, code, most_in: None };
        (place, found.map(|object| object.map_or(0, |o| o.hits)))
    });
    let mut rows: Vec<FunctionRow> = functions
        .chain(objects)
        .filter(|(_, hits)| hits.iter().sum::<u64>() > 0)
        .map(|(place, hits)| row(place, hits, heats, user, difference_ns))
        .filter(|r| r.share_of_difference.percent.value.abs() >= LEAST_SHARE)
        .collect();
    let of_a_hit_ns = [0, 1].map(|arm| user[arm].value / heats[arm].summary.samples.max(1) as f64);
    for row in &mut rows {
        let name = row.place.object_name();
        if let Place::Object { most_in, .. } = &mut row.place {
            *most_in =
                object::most_in(heats.each_ref().map(|h| h.by_object.get(&name)), of_a_hit_ns);
        }
    }
    // What went the other way is as large a part as its amount: left out, the others exceed 100 %.
    let size = |row: &FunctionRow| row.share_of_difference.percent.value.abs();
    rows.sort_by(|a, b| size(b).total_cmp(&size(a)));
    rows
}

/// The name of a file with its version, as AFTER has it.
fn shown_name(objects: [Option<&ObjectHeat>; 2]) -> String {
    let path = objects.into_iter().rev().flatten().map(|o| o.path.as_path()).next();
    let name = path.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| library_name(path.unwrap_or(Path::new(""))))
}

fn row(
    place: Place,
    hits: [u64; 2],
    heats: &[Heat; 2],
    user: &[Measurement; 2],
    difference_ns: f64,
) -> FunctionRow {
    let time = |arm: usize| time_of(&heats[arm].share(hits[arm]), &user[arm]);
    let (before, after) = (time(0), time(1));
    let how = "time in user code by share of samples";
    let share_of_difference = share(&before, &after, difference_ns, how);
    FunctionRow { place, before, after, share_of_difference, executed: None }
}

/// A share of the samples as time.
pub(super) fn time_of(share: &Measurement, user: &Measurement) -> Measurement {
    let of = |percent: f64| user.value * percent / 100.0;
    Measurement {
        value: of(share.value),
        unit: user.unit,
        low: of(share.low),
        high: of(share.high),
        n: share.n,
        how: "time in user code x share of samples, Wilson 95 %".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_was_made_at_run_time_keeps_its_name_and_a_library_loses_its_version() {
        let place = |name: &str, code| Place::Object { name: name.into(), code, most_in: None };
        let made = place("JS:*sum /tmp/a.js:3", ObjectCode::Generated);
        assert_eq!(made.object_name(), "JS:*sum /tmp/a.js:3");
        assert_eq!((made.is_unchanged(), made.is_in_both()), (false, false));
        let library = place("libz.so.1.3", ObjectCode::NotCompared);
        assert_eq!(library.object_name(), "libz.so");
    }
    use crate::explain::ArmHeat;
    use crate::model::{Svma, Unit};
    use crate::run::sample::Engine;

    fn heat(hits: &[(u64, u64)]) -> Heat {
        let by_svma: std::collections::BTreeMap<Svma, u64> =
            hits.iter().map(|(at, n)| (Svma(*at), *n)).collect();
        let samples = by_svma.values().sum();
        Heat {
            summary: ArmHeat {
                engine: Engine::PerfClock,
                period_ns: 100_000,
                processor_ns: 0,
                runs: 2,
                samples,
                in_kernel: None,
                in_program: samples,
                lost: 0,
                notes: vec![],
            },
            by_svma,
            by_object: [].into(),
            stacks: vec![],
        }
    }

    fn user(ms: f64) -> Measurement {
        Measurement {
            value: ms,
            unit: Unit::Nanoseconds,
            low: ms,
            high: ms,
            n: 20,
            how: "median".into(),
        }
    }

    #[test]
    fn the_function_that_got_slower_has_the_difference() {
        let f = |symbol: &str, start| Function {
            symbol: symbol.into(),
            start: Svma(start),
            size_bytes: 16,
            named: true,
        };
        let (hot, cold) = (f("hot", 0x10), f("cold", 0x20));
        let both = |f| FunctionMatch { before: Some(f), after: Some(f), change: Change::Changed };
        // 100 -> 200 in time; cold stays at 20.
        let heats = [heat(&[(0x10, 8000), (0x25, 2000)]), heat(&[(0x1f, 9000), (0x20, 1000)])];
        let rows = rows(&[both(&hot), both(&cold)], &heats, &[user(100.0), user(200.0)], 100.0);
        assert_eq!(rows[0].place.name(), "hot");
        let share = &rows[0].share_of_difference.percent;
        assert!((share.value - 100.0).abs() < 1e-9 && share.low > 95.0);
        assert_eq!(rows.len(), 1, "what did not change has no row");
    }

    #[test]
    fn parts_that_went_the_other_way_are_listed_so_that_all_are_one_whole() {
        let f = |symbol: &str, start| Function {
            symbol: symbol.into(),
            start: Svma(start),
            size_bytes: 16,
            named: true,
        };
        let (slower, faster) = (f("slower", 0x10), f("faster", 0x20));
        let both = |f| FunctionMatch { before: Some(f), after: Some(f), change: Change::Changed };
        // 20 -> 190 and 80 -> 10: +170 % and -70 % of what the program takes longer.
        let heats = [heat(&[(0x10, 2000), (0x20, 8000)]), heat(&[(0x10, 19_000), (0x20, 1000)])];
        let matches = [both(&slower), both(&faster)];
        let rows = rows(&matches, &heats, &[user(100.0), user(200.0)], 100.0);
        let shares: Vec<f64> = rows.iter().map(|r| r.share_of_difference.percent.value).collect();
        assert_eq!(shares.len(), 2);
        assert!((shares.iter().sum::<f64>() - 100.0).abs() < 1e-9, "{shares:?}");
        let text = rows[0].share_of_difference.to_string();
        assert!(text.contains("of the difference in processor time"), "{text}");
    }
}
