//! What is asked: one store (or several) and one load of bytes that they wrote.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which registers the data go through.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Registers {
    /// General registers: 1, 2, 4 and 8 bytes.
    General,
    /// Vector registers: 4, 8, 16 and 32 bytes.
    Vector,
    /// General registers store, a vector register loads; the way back is part of the round trip.
    IntoVector,
    /// Vector registers store, a general register loads; the way back is part of the round trip.
    IntoGeneral,
    /// Vector registers up to 64 bytes, narrower ones beside them, in a process of their own.
    Wide,
}

impl Registers {
    /// All of them, in the order of the screen.
    pub const ALL: [Self; 5] =
        [Self::General, Self::Vector, Self::IntoVector, Self::IntoGeneral, Self::Wide];

    /// Widths of the matrix, bytes: of stores and of loads.
    fn widths(self) -> (&'static [u16], &'static [u16]) {
        const GENERAL: &[u16] = &[1, 2, 4, 8];
        const VECTOR: &[u16] = &[4, 8, 16, 32];
        const WIDE: &[u16] = &[8, 16, 32, 64];
        match self {
            Self::General => (GENERAL, GENERAL),
            Self::Vector => (VECTOR, VECTOR),
            Self::IntoVector => (&[4, 8], VECTOR),
            Self::IntoGeneral => (VECTOR, &[4, 8]),
            Self::Wide => (WIDE, WIDE),
        }
    }

    /// Whether stores take a vector register.
    pub(super) fn stores_vectors(self) -> bool {
        matches!(self, Self::Vector | Self::IntoGeneral | Self::Wide)
    }

    /// Whether loads fill a vector register.
    pub(super) fn loads_vectors(self) -> bool {
        matches!(self, Self::Vector | Self::IntoVector | Self::Wide)
    }
}

/// What a case is for.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Group {
    /// One store inside a cache line, every offset: the rule is inferred from these alone.
    Matrix,
    /// The same bytes through another base register: a renamed access is one whose two addresses
    /// look alike, so this one is not.
    OtherBase,
    /// Several stores before one load.
    Several,
    /// Across the end of a cache line.
    LineSplit,
    /// Across the end of a page.
    PageSplit,
    /// Other bytes at the same place in another page.
    Alias,
    /// Other bytes, far away: nothing can forward and nothing needs to.
    Disjoint,
    /// The same question again: two equal cells must agree.
    Placebo,
    /// No instruction needs the load's result.
    Unused,
    /// A point of the delay curve.
    Delay,
}

/// Bytes relative to the case's own place.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct Access {
    /// Position of the first byte.
    pub offset_bytes: i32,
    /// Width of the access.
    pub bytes: u16,
}

/// One question to the hardware. Unless the group is `Unused`, the load's result is what the next
/// repetition stores, so that one repetition takes one round trip from store to load.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Case {
    /// Part of the report that uses it.
    pub group: Group,
    /// Through which registers.
    pub registers: Registers,
    /// Stores in program order.
    pub stores: Vec<Access>,
    /// The load behind them.
    pub load: Access,
    /// Dependent one-cycle steps between the stored value and the load's address.
    pub steps: u32,
    /// Independent instructions between store and load.
    pub fillers: u32,
}

impl Case {
    /// One store at 0 and one load, in the matrix.
    pub fn pair(
        registers: Registers,
        store_bytes: u16,
        load_bytes: u16,
        offset_bytes: i32,
    ) -> Self {
        Self {
            group: Group::Matrix,
            registers,
            stores: vec![Access { offset_bytes: 0, bytes: store_bytes }],
            load: Access { offset_bytes, bytes: load_bytes },
            steps: 0,
            fillers: 0,
        }
    }

    /// Several stores, as (offset, bytes), and a load at 0.
    pub fn several(registers: Registers, stores: &[(i32, u16)], load_bytes: u16) -> Self {
        let stores =
            stores.iter().map(|&(offset_bytes, bytes)| Access { offset_bytes, bytes }).collect();
        let pair = Self::pair(registers, 1, load_bytes, 0);
        Self { group: Group::Several, stores, ..pair }
    }

    /// The same in another group.
    #[must_use]
    pub fn in_group(self, group: Group) -> Self {
        Self { group, ..self }
    }

    /// Whether every byte of the load lies in one single store.
    pub fn contained(&self) -> bool {
        let load_end = self.load.offset_bytes + i32::from(self.load.bytes);
        self.stores.iter().any(|s| {
            s.offset_bytes <= self.load.offset_bytes
                && load_end <= s.offset_bytes + i32::from(s.bytes)
        })
    }

    /// Where the case's place lies in the buffer, behind the start of the second page: inside a
    /// line, at the end of one, or at the end of the page, so that the bytes that are asked for
    /// straddle it in the middle.
    pub fn place_bytes(&self) -> i32 {
        let end = self.load.offset_bytes + i32::from(self.load.bytes);
        match self.group {
            Group::LineSplit => 128 - end / 2,
            Group::PageSplit => 4096 - end / 2,
            // A load that starts before its store must find its line there.
            _ if self.load.offset_bytes < 0 => 96,
            _ => 64,
        }
    }

    /// Whether the case stays inside one cache line, as those of the matrix must.
    pub fn in_one_line(&self) -> bool {
        let place = self.place_bytes();
        let all = self.stores.iter().chain([&self.load]);
        let ends = all.map(|a| {
            let first = place + a.offset_bytes;
            (first.div_euclid(64), (first + i32::from(a.bytes) - 1).div_euclid(64))
        });
        let mut lines = ends.flat_map(|(a, b)| [a, b]);
        let first = lines.next();
        lines.all(|line| Some(line) == first)
    }
}

impl fmt::Display for Case {
    /// `8 -> 4 at +4`, `4+4 -> 8`, with the unusual said behind.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stores: Vec<String> = self.stores.iter().map(|s| s.bytes.to_string()).collect();
        write!(f, "{} -> {}", stores.join("+"), self.load.bytes)?;
        if self.load.offset_bytes != 0 {
            write!(f, " at {:+}", self.load.offset_bytes)?;
        }
        f.write_str(match self.registers {
            Registers::General => "",
            Registers::Vector => " vector",
            Registers::IntoVector => " into vector",
            Registers::IntoGeneral => " from vector",
            Registers::Wide => " wide",
        })?;
        let descending = self.stores.windows(2).any(|w| w[0].offset_bytes > w[1].offset_bytes);
        if descending && self.stores.iter().all(|s| s.bytes == self.stores[0].bytes) {
            f.write_str(", high half first")?;
        }
        match self.group {
            Group::OtherBase => f.write_str(", other base"),
            Group::LineSplit => f.write_str(", across a line"),
            Group::PageSplit => f.write_str(", across a page"),
            Group::Placebo => f.write_str(", again"),
            Group::Unused => f.write_str(", result unused"),
            Group::Delay => write!(f, ", {} steps, {} fillers", self.steps, self.fillers),
            Group::Matrix | Group::Several | Group::Alias | Group::Disjoint => Ok(()),
        }
    }
}

/// Numbers of dependent steps on the delay curve.
pub const STEPS: &[u32] =
    &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 20, 24, 28, 32];

/// Numbers of filler instructions on the delay curve.
pub const FILLERS: &[u32] = &[0, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192];

/// Everything that is asked in this process, without what this processor has no registers for.
pub fn all_cases(vectors: bool) -> Vec<Case> {
    let mut cases = matrix(Registers::General);
    if vectors {
        for registers in [Registers::Vector, Registers::IntoVector, Registers::IntoGeneral] {
            cases.extend(matrix(registers));
        }
    }
    cases.extend(specials(vectors));
    cases.extend(delays());
    cases
}

/// What is asked in a process of its own.
pub fn wide_cases() -> Vec<Case> {
    matrix(Registers::Wide)
}

/// Every store width, load width and offset at which the two overlap; where vectors take part, the
/// partly overlapping ones are thinned out, for there is nothing about them that differs.
fn matrix(registers: Registers) -> Vec<Case> {
    let (stores, loads) = registers.widths();
    let mut cases = Vec::new();
    for &store in stores {
        for &load in loads {
            let (s, l) = (i32::from(store), i32::from(load));
            for offset in 1 - l..s {
                let partial = offset < 0 || offset + l > s;
                let odd = offset.rem_euclid(4) != 0 && offset != 1 - l && offset != s - 1;
                let thin = registers != Registers::General && partial && odd;
                let case = Case::pair(registers, store, load, offset);
                if !thin && case.in_one_line() {
                    cases.push(case);
                }
            }
        }
    }
    cases
}

fn specials(vectors: bool) -> Vec<Case> {
    use Registers::{General, Vector};
    let pair = Case::pair;
    let mut cases: Vec<Case> =
        [1, 2, 4, 8].map(|w| pair(General, w, w, 0).in_group(Group::OtherBase)).into();
    cases.push(pair(General, 8, 4, 4).in_group(Group::OtherBase));
    cases.push(pair(General, 4, 8, 0).in_group(Group::OtherBase));
    for (stores, load) in [
        (&[(0, 4), (4, 4)][..], 8),
        (&[(4, 4), (0, 4)], 8),
        (&[(0, 2), (2, 2)], 4),
        (&[(0, 1), (1, 1)], 2),
        (&[(0, 1), (1, 1), (2, 1), (3, 1)], 4),
        (&[(0, 2), (2, 2), (4, 2), (6, 2)], 8),
        (&[(0, 8), (0, 4)], 8),
        (&[(0, 4), (0, 8)], 8),
    ] {
        cases.push(Case::several(General, stores, load));
    }
    for group in [Group::LineSplit, Group::PageSplit] {
        cases.push(pair(General, 8, 8, 0).in_group(group));
        cases.push(Case::several(General, &[(0, 4), (4, 4)], 8).in_group(group));
    }
    // The next page, and two pages on: the same low twelve bits of the address.
    cases.push(pair(General, 8, 8, 4096).in_group(Group::Alias));
    cases.push(pair(General, 8, 8, 8192).in_group(Group::Alias));
    cases.push(pair(General, 8, 8, 4096 + 512).in_group(Group::Disjoint));
    cases.push(pair(General, 8, 8, 512).in_group(Group::Disjoint));
    cases.push(pair(General, 8, 4, 4).in_group(Group::Placebo));
    cases.push(pair(General, 4, 8, 0).in_group(Group::Placebo));
    cases.push(pair(General, 8, 8, 0).in_group(Group::Unused));
    cases.push(Case::several(General, &[(0, 4), (4, 4)], 8).in_group(Group::Unused));
    if vectors {
        for (stores, load) in [
            (&[(0, 8), (8, 8)][..], 16),
            (&[(0, 4), (4, 4), (8, 4), (12, 4)], 16),
            (&[(0, 16), (16, 16)], 32),
        ] {
            cases.push(Case::several(Vector, stores, load));
        }
        // As uarch-bench asks it.
        cases.push(Case::several(Registers::IntoVector, &[(0, 8), (8, 8)], 16));
        cases.push(pair(Vector, 16, 16, 0).in_group(Group::OtherBase));
        cases.push(pair(Vector, 16, 16, 0).in_group(Group::LineSplit));
        cases.push(pair(Vector, 32, 32, 0).in_group(Group::LineSplit));
        cases.push(pair(Vector, 16, 16, 0).in_group(Group::PageSplit));
    }
    cases
}

/// The delay curve, three ways side by side. All load the upper half of eight bytes: a
/// load from the start of its store may be renamed, which is another contrast than this one.
fn delays() -> Vec<Case> {
    let points = STEPS
        .iter()
        .map(|&steps| (steps, 0))
        .chain(FILLERS.iter().skip(1).map(|&fillers| (0, fillers)));
    let all = |(steps, fillers)| {
        [Served::Blocked, Served::Forwarded, Served::Cache].map(|by| delay(by, steps, fillers))
    };
    points.flat_map(all).collect()
}

/// Who serves the load of a point on the delay curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// No store can: two narrow stores hold its halves.
    Blocked,
    /// The store buffer: one store holds it.
    Forwarded,
    /// The cache: the store wrote other bytes.
    Cache,
}

/// One point of the delay curve.
pub fn delay(by: Served, steps: u32, fillers: u32) -> Case {
    let case = match by {
        Served::Blocked => {
            let halves = Case::several(Registers::General, &[(4, 2), (6, 2)], 4);
            Case { load: Access { offset_bytes: 4, bytes: 4 }, ..halves }
        }
        Served::Forwarded => Case::pair(Registers::General, 8, 4, 4),
        Served::Cache => Case::pair(Registers::General, 8, 4, 516),
    };
    Case { steps, fillers, ..case.in_group(Group::Delay) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_distinct_and_their_names_too() {
        let cases = [all_cases(true), wide_cases()].concat();
        let mut names: Vec<String> = cases.iter().map(|c| format!("{:?} {c}", c.group)).collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!((150..900).contains(&count), "{count}");
        assert!(all_cases(false).iter().all(|c| c.registers == Registers::General));
    }

    #[test]
    fn the_matrix_stays_in_its_line_and_splits_do_not() {
        for case in [all_cases(true), wide_cases()].concat() {
            let splits = matches!(case.group, Group::LineSplit | Group::PageSplit);
            let far = case.load.offset_bytes > 500;
            assert!(far || case.in_one_line() != splits, "{case}");
        }
    }

    #[test]
    fn names_say_what_is_asked() {
        use Registers::{General, Vector};
        assert_eq!(Case::pair(General, 8, 4, 4).to_string(), "8 -> 4 at +4");
        assert_eq!(Case::pair(Vector, 16, 8, -4).to_string(), "16 -> 8 at -4 vector");
        let halves = Case::several(General, &[(4, 4), (0, 4)], 8);
        assert_eq!(halves.to_string(), "4+4 -> 8, high half first");
        assert!(!halves.contained() && Case::pair(General, 8, 8, 0).contained());
    }
}
