//! What moved between two builds, by how much, and which change pushed it.
//!
//! The machine code of a function does not know where it stands, but caches, the branch predictor
//! and the decoders do: they pick their entry by bits of the address. A linker lays functions one
//! behind the other, so one function that grows moves everything behind it by the same distance. A
//! *run* is a stretch of functions that moved together; its cause is what stands before it and has
//! another size.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::matching::{Change, FunctionMatch, match_functions};
use crate::code::{Function, FunctionSource, Image};
use crate::model::Svma;

/// The strides that hardware tables and fetch windows are known to use.
pub const STRIDES_BYTES: [u64; 4] = [16, 32, 64, 4096];

/// Two builds of which less than this share of functions belongs together are not compared.
const LEAST_ALIKE: f64 = 0.10;
/// Below this share there is a warning.
const FEW_ALIKE: f64 = 0.50;

/// Why two programs cannot be compared.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the parts are")]
pub enum LayoutError {
    /// Hardly any function of one is a function of the other.
    #[error(
        "{before} and {after} do not look like two builds of one program: {matched} of {of} \
         functions of the larger one belong together; name two builds of the same program"
    )]
    Unrelated { before: String, after: String, matched: usize, of: usize },
}

/// Address and length of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Placement {
    /// Address of the first byte.
    pub start: Svma,
    /// Length, bytes.
    pub size_bytes: u64,
    /// The remainder of its address by 16, 32, 64 and 4096.
    pub remainders_bytes: [u64; 4],
}

impl Placement {
    /// Where `function` stands.
    #[must_use]
    pub fn of(function: &Function) -> Self {
        Self {
            start: function.start,
            size_bytes: function.size_bytes,
            remainders_bytes: STRIDES_BYTES.map(|stride| function.start.0 % stride),
        }
    }
}

/// One function of either build or of both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ShiftedFunction {
    /// Demangled name of the function.
    pub name: String,
    /// Whether the function changed, moved, came or went.
    pub change: Change,
    /// Placement in BEFORE; absent where it is new.
    pub before: Option<Placement>,
    /// Placement in AFTER; absent where it is gone.
    pub after: Option<Placement>,
}

/// File, functions and code size of one build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BuildSummary {
    /// Path of the program.
    pub program: String,
    /// The linker's build id, where there is one.
    pub build_id: Option<String>,
    /// Where its list of functions came from.
    pub function_source: FunctionSource,
    /// How many functions it has.
    pub functions: usize,
    /// Bytes of machine code.
    pub code_bytes: u64,
    /// How many functions start at a multiple of 16, 32, 64 and 4096.
    pub aligned_functions: [usize; 4],
}

impl BuildSummary {
    /// Counts what there is to count about one program.
    #[must_use]
    pub fn of(image: &Image) -> Self {
        let aligned = |stride| image.functions().iter().filter(|f| f.start.0 % stride == 0).count();
        Self {
            program: image.path().display().to_string(),
            build_id: image.build_id().map(str::to_owned),
            function_source: image.function_source(),
            functions: image.functions().len(),
            code_bytes: image.code_bytes(),
            aligned_functions: STRIDES_BYTES.map(aligned),
        }
    }
}

/// How many functions of each kind of change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeCounts {
    /// The same code at the same address.
    pub same: usize,
    /// Functions with the same code at another address.
    pub moved: usize,
    /// Functions whose instructions differ.
    pub changed: usize,
    /// Only in the second build.
    pub new: usize,
    /// Only in the first build.
    pub gone: usize,
}

impl ChangeCounts {
    /// Counts the functions of two builds.
    #[must_use]
    pub fn of(matches: &[FunctionMatch<'_>]) -> Self {
        let mut counts = Self::default();
        for m in matches {
            *match m.change {
                Change::Same => &mut counts.same,
                Change::Moved { .. } => &mut counts.moved,
                Change::Changed => &mut counts.changed,
                Change::New => &mut counts.new,
                Change::Gone => &mut counts.gone,
            } += 1;
        }
        counts
    }
}

/// Functions that moved by one distance: a row of the histogram.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ShiftRow {
    /// How far; positive is towards higher addresses.
    pub by_bytes: i64,
    /// How many functions, those with changed code included.
    pub functions: usize,
    /// How many of them have changed code.
    pub changed: usize,
    /// Their bytes in the second build.
    pub code_bytes: u64,
    /// The remainder of the distance by 16, 32, 64 and 4096; zero keeps that alignment.
    pub remainders_bytes: [u64; 4],
}

/// What pushed a run of functions to where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum ShiftCause {
    /// Functions before it have another size, are new or are gone.
    Sizes {
        /// Demangled name of the first such function.
        function: String,
        /// What became of the first.
        change: Change,
        /// By how much the first grew, padding not counted; its whole size when it is new.
        grew_bytes: i64,
        /// How many more there are between the run before and this one.
        others: usize,
    },
    /// The functions stand in another order.
    Order,
    /// All functions before it have their old size: the start of the code or the padding moved.
    Padding,
}

/// Functions one behind the other that moved by the same distance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ShiftRun {
    /// Distance, bytes; negative towards lower addresses.
    pub by_bytes: i64,
    /// Number of functions in the run.
    pub functions: usize,
    /// Demangled name of the first function of the run.
    pub first: String,
    /// Demangled name of the last function of the run.
    pub last: String,
    /// What pushed it away from the run before; absent for a first run that did not move.
    pub cause: Option<ShiftCause>,
}

/// What became of the functions of a program between two builds.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ShiftMap {
    /// Summary of BEFORE.
    pub before: BuildSummary,
    /// Summary of AFTER.
    pub after: BuildSummary,
    /// Functions by what became of them.
    pub counts: ChangeCounts,
    /// By distance, the one of most functions first.
    pub shifts: Vec<ShiftRow>,
    /// In the order of addresses in the first build.
    pub runs: Vec<ShiftRun>,
    /// Every function; those of the first build by address, then the new ones.
    pub functions: Vec<ShiftedFunction>,
    /// What a reader must know.
    pub warnings: Vec<String>,
}

impl ShiftMap {
    /// Matches the functions of two builds and says what moved them.
    ///
    /// # Errors
    /// [`LayoutError::Unrelated`] when hardly any function has a partner.
    pub fn of(before: &Image, after: &Image) -> Result<Self, LayoutError> {
        let matches = match_functions(before, after);
        let counts = ChangeCounts::of(&matches);
        let pairs: Vec<(&Function, &Function, Change)> =
            matches.iter().filter_map(|m| Some((m.before?, m.after?, m.change))).collect();
        // Of the larger one: what every small program has in common is its start-up code.
        let of = before.functions().len().max(after.functions().len());
        let alike = pairs.len() as f64 / of.max(1) as f64;
        let summaries = [before, after].map(BuildSummary::of);
        if alike < LEAST_ALIKE {
            let [before, after] = summaries.map(|s| s.program);
            return Err(LayoutError::Unrelated { before, after, matched: pairs.len(), of });
        }
        let mut warnings = Vec::new();
        if alike < FEW_ALIKE {
            warnings.push(format!(
                "only {} of {of} functions belong together: are these two builds of one program?",
                pairs.len()
            ));
        }
        let [summary_before, summary_after] = summaries;
        Ok(Self {
            before: summary_before,
            after: summary_after,
            counts,
            shifts: histogram(&pairs),
            runs: runs(&pairs, &matches),
            functions: matches.iter().map(shifted).collect(),
            warnings,
        })
    }
}

fn shifted(m: &FunctionMatch<'_>) -> ShiftedFunction {
    ShiftedFunction {
        name: m.after.or(m.before).map(Function::name).unwrap_or_default(),
        change: m.change,
        before: m.before.map(Placement::of),
        after: m.after.map(Placement::of),
    }
}

fn distance(before: &Function, after: &Function) -> i64 {
    after.start.0.wrapping_sub(before.start.0) as i64
}

fn histogram(pairs: &[(&Function, &Function, Change)]) -> Vec<ShiftRow> {
    let mut rows: BTreeMap<i64, ShiftRow> = BTreeMap::new();
    for (before, after, change) in pairs {
        let by_bytes = distance(before, after);
        let row = rows.entry(by_bytes).or_insert_with(|| ShiftRow {
            by_bytes,
            functions: 0,
            changed: 0,
            code_bytes: 0,
            remainders_bytes: STRIDES_BYTES.map(|s| by_bytes.rem_euclid(s as i64) as u64),
        });
        row.functions += 1;
        row.changed += usize::from(*change == Change::Changed);
        row.code_bytes += after.size_bytes;
    }
    let mut rows: Vec<ShiftRow> = rows.into_values().collect();
    rows.sort_by_key(|r| (std::cmp::Reverse(r.functions), r.by_bytes));
    rows
}

fn runs(pairs: &[(&Function, &Function, Change)], matches: &[FunctionMatch<'_>]) -> Vec<ShiftRun> {
    let unmatched = Unmatched::of(matches);
    let in_after: BTreeSet<Svma> = pairs.iter().map(|(_, after, _)| after.start).collect();
    let mut previous: Option<(&Function, &Function, Change)> = None;
    pairs
        .chunk_by(|x, y| distance(x.0, x.1) == distance(y.0, y.1))
        .filter_map(|run| {
            let (first, last) = (run.first()?, run.last()?);
            let by_bytes = distance(first.0, first.1);
            let before_it = in_after.range(..first.1.start).next_back();
            let is_reordered = before_it != previous.map(|(_, after, _)| after.start).as_ref();
            let cause = (previous.is_some() || by_bytes != 0).then(|| match is_reordered {
                true => ShiftCause::Order,
                false => unmatched.cause(previous, (first.0, first.1)),
            });
            previous = Some(*last);
            Some(ShiftRun {
                by_bytes,
                functions: run.len(),
                first: first.1.name(),
                last: last.1.name(),
                cause,
            })
        })
        .collect()
}

/// Functions of one build only, by address.
struct Unmatched<'a> {
    gone: BTreeMap<Svma, &'a Function>,
    new: BTreeMap<Svma, &'a Function>,
}

impl<'a> Unmatched<'a> {
    fn of(matches: &[FunctionMatch<'a>]) -> Self {
        let only = |this: Option<&'a Function>, other: Option<&'a Function>| {
            this.filter(|_| other.is_none()).map(|f| (f.start, f))
        };
        Self {
            gone: matches.iter().filter_map(|m| only(m.before, m.after)).collect(),
            new: matches.iter().filter_map(|m| only(m.after, m.before)).collect(),
        }
    }

    /// What stands between the last function of the run before and the first of this one.
    fn cause(
        &self,
        previous: Option<(&Function, &Function, Change)>,
        first: (&Function, &Function),
    ) -> ShiftCause {
        let from = previous.map_or((Svma(0), Svma(0)), |(b, a, _)| (b.start, a.start));
        // A function that no table gives a size reaches to the next one, padding included.
        let resized = previous.filter(|(_, _, change)| *change == Change::Changed);
        let resized = resized.filter(|(b, a, _)| b.size_bytes != a.size_bytes).map(|(b, a, _)| {
            (a, Change::Changed, (a.size_bytes as i64).wrapping_sub(b.size_bytes as i64))
        });
        let gone = self.gone.range(from.0..first.0.start).map(|(_, f)| *f);
        let new = self.new.range(from.1..first.1.start).map(|(_, f)| *f);
        let mut all = resized
            .into_iter()
            .chain(gone.map(|f| (f, Change::Gone, -(f.size_bytes as i64))))
            .chain(new.map(|f| (f, Change::New, f.size_bytes as i64)));
        match all.next() {
            Some((function, change, grew_bytes)) => ShiftCause::Sizes {
                function: function.name(),
                change,
                grew_bytes,
                others: all.count(),
            },
            None => ShiftCause::Padding,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::fixture;

    fn image(functions: &[(&str, &[u8])]) -> Image {
        fixture::image(functions).unwrap()
    }

    /// `size` bytes of `nop` and a return.
    fn nops(size: usize) -> Vec<u8> {
        let mut code = vec![0x90; size - 1];
        code.push(0xc3);
        code
    }

    fn histogram_of(map: &ShiftMap) -> Vec<(i64, usize)> {
        map.shifts.iter().map(|s| (s.by_bytes, s.functions)).collect()
    }

    #[test]
    fn a_function_that_grows_moves_what_stands_behind_it() {
        let (small, large) = (nops(20), nops(60));
        let before = image(&[("a", &small), ("b", &small), ("c", &small), ("d", &small)]);
        let after = image(&[("a", &small), ("b", &large), ("c", &small), ("d", &small)]);
        let map = ShiftMap::of(&before, &after).unwrap();
        assert_eq!(histogram_of(&map), [(0, 2), (32, 2)]);
        assert_eq!((map.counts.same, map.counts.moved, map.counts.changed), (1, 2, 1));
        let cause = map.runs[1].cause.clone().unwrap();
        let wanted = ShiftCause::Sizes {
            function: "b".into(),
            change: Change::Changed,
            grew_bytes: 40,
            others: 0,
        };
        assert_eq!(cause, wanted);
        assert_eq!(map.runs[0].cause, None);
        assert_eq!(map.shifts[1].remainders_bytes, [0, 0, 32, 32]);
    }

    #[test]
    fn a_placement_has_the_remainders_that_hardware_looks_at() {
        let code = nops(40);
        let image = image(&[("a", &code), ("b", &code)]);
        let second = &image.functions()[1];
        let placement = Placement::of(second);
        assert_eq!((placement.start, placement.size_bytes), (second.start, 40));
        assert_eq!(placement.remainders_bytes, [0, 16, 48, second.start.0 % 4096]);
        let summary = BuildSummary::of(&image);
        // 40 bytes, padding to 48, and 40 more.
        assert_eq!((summary.functions, summary.code_bytes), (2, 88));
        assert_eq!(summary.aligned_functions[..3], [2, 1, 1]);
    }

    #[test]
    fn new_and_gone_functions_push_too() {
        let code = nops(20);
        let one = image(&[("a", &code), ("b", &code)]);
        let two = image(&[("a", &code), ("x", &code), ("y", &code), ("b", &code)]);
        let map = ShiftMap::of(&one, &two).unwrap();
        assert_eq!(histogram_of(&map), [(0, 1), (64, 1)]);
        let Some(ShiftCause::Sizes { function, change, others, .. }) = &map.runs[1].cause else {
            panic!("{:?}", map.runs);
        };
        assert_eq!((function.as_str(), *change, *others), ("x", Change::New, 1));
        let map = ShiftMap::of(&two, &one).unwrap();
        assert_eq!(histogram_of(&map), [(-64, 1), (0, 1)]);
    }

    #[test]
    fn another_order_is_called_so() {
        let code = nops(20);
        let one = image(&[("a", &code), ("b", &code)]);
        let two = image(&[("b", &code), ("a", &code)]);
        let map = ShiftMap::of(&one, &two).unwrap();
        assert_eq!(map.runs[1].cause, Some(ShiftCause::Order));
        // Also of the one that went behind others.
        let one = image(&[("m", &nops(40)), ("a", &code), ("b", &code)]);
        let two = image(&[("a", &code), ("b", &code), ("m", &nops(40))]);
        let map = ShiftMap::of(&one, &two).unwrap();
        let causes: Vec<_> = map.runs.iter().map(|run| run.cause.clone()).collect();
        assert_eq!(causes, [Some(ShiftCause::Order), Some(ShiftCause::Order)]);
    }

    #[test]
    fn unrelated_programs_are_refused() {
        let code: Vec<Vec<u8>> = (0..30_u8)
            .map(|i| {
                let mut body = nops(40);
                body[0] = 0x50 + i % 8;
                body[1] = 0x50 + i / 8;
                body
            })
            .collect();
        let named = |prefix: &str, skip: usize| {
            let names: Vec<String> = (0..15).map(|i| format!("{prefix}{i}")).collect();
            let rows: Vec<(&str, &[u8])> =
                names.iter().zip(&code[skip..]).map(|(n, c)| (n.as_str(), c.as_slice())).collect();
            image(&rows)
        };
        let error = ShiftMap::of(&named("f", 0), &named("g", 15)).unwrap_err();
        assert!(error.to_string().contains("0 of 15 functions"), "{error}");
        // The same code under other names is the same program.
        assert!(ShiftMap::of(&named("f", 0), &named("g", 0)).is_ok());
    }
}
