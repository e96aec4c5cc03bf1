//! Who shares which set of the instruction cache, before and after: the fourth story's tables.
//!
//! A set keeps as many lines as it has ways. When more lines that are all in use fall into one set,
//! each brings in another's eviction, however empty the rest of the cache is. Samples show where
//! time goes, not which lines are in use: a line that runs once per operation is rarely sampled
//! and takes a way all the same. So the table of heat says *where to look*, and the numbers of
//! lines are lower bounds. What a set costs, only a trace and a simulation count.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LineHeat;
use crate::code::{Function, Image};
use crate::machine::CacheGeometry;
use crate::model::Svma;

/// Heat that grows or shrinks by this factor is heavier or calmer.
const CLEAR_CHANGE: f64 = 1.5;
/// A part is hot in a set with this share of what it would have if all samples were spread evenly.
const HOT_SHARE: f64 = 0.25;
/// A cluster has at least so many functions, and this many times what chance gives.
const LEAST_CLUSTER: usize = 4;
const CLUSTER_EXCESS: f64 = 2.0;

/// Samples in one set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetHeat {
    /// Samples of the function in question.
    pub function: u64,
    /// Samples of all other lines of the set.
    pub peers: u64,
    /// Lines in use; with samples, a lower bound.
    pub lines: u32,
    /// Simulated misses of its lines, where they were simulated.
    pub misses: Option<u64>,
}

/// What became of a set.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum SetChange {
    /// Function and peers were not both hot here and are now.
    NewCollision,
    /// Both were hot and are clearly hotter.
    HeavierCollision,
    /// Both were hot; now one is not, or both are clearly less.
    CalmedDown,
    /// The function's heat came here, where nothing else is hot.
    MovedHere,
    /// No clear change.
    Unchanged,
}

impl SetChange {
    /// As a reader is told.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::NewCollision => "new collision",
            Self::HeavierCollision => "heavier collision",
            Self::CalmedDown => "calmed down",
            Self::MovedHere => "moved here",
            Self::Unchanged => "unchanged",
        }
    }
}

/// One line that occupies a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Occupant {
    /// Address of the line.
    pub line: Svma,
    /// Its samples, or the executions of its instructions.
    pub samples: u64,
    /// Its simulated misses, where they were simulated.
    pub misses: Option<u64>,
    /// The demangled function that has most of them; absent for code outside functions.
    pub function: Option<String>,
    /// Where in the function the line (or its first byte of the function) is.
    pub offset_bytes: u64,
}

/// One set, in both builds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetRow {
    /// Number of the set.
    pub set: u32,
    /// Samples of the set in BEFORE.
    pub before: SetHeat,
    /// After; the same as before when there is one build.
    pub after: SetHeat,
    /// Whether the set became more or less crowded.
    pub change: SetChange,
    /// The lines of the first build: those with most misses first, then the hottest.
    pub occupants_before: Vec<Occupant>,
    /// The lines of the second build; empty when there is one build.
    pub occupants_after: Vec<Occupant>,
}

/// Functions whose hot lines stand at the same offset from a multiple of a power of two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Cluster {
    /// Distance at which addresses collide, bytes; a power of two.
    pub modulus_bytes: u64,
    /// The offset that they share.
    pub offset_bytes: u64,
    /// Functions at that distance, hottest first.
    pub functions: Vec<String>,
    /// Samples in their lines at that offset.
    pub samples: u64,
}

/// One build with its samples.
#[derive(Clone, Copy)]
pub struct HotBuild<'a> {
    /// The program.
    pub image: &'a Image,
    /// Its samples.
    pub heat: &'a LineHeat,
    /// The function in question, by position.
    pub focus: Option<usize>,
}

/// All sets of one build or of two, in order of their numbers.
#[must_use]
pub fn set_rows(
    before: HotBuild<'_>,
    after: Option<HotBuild<'_>>,
    geometry: CacheGeometry,
) -> Vec<SetRow> {
    let both = [before, after.unwrap_or(before)];
    let heats = both.map(|build| per_set(build, geometry));
    let even = both.map(|b| b.heat.samples as f64 / f64::from(geometry.sets));
    let mut occupants =
        [Some(before), after].map(|b| b.map(|b| occupants(b, geometry)).unwrap_or_default());
    (0..geometry.sets)
        .map(|set| {
            let [b, a] = [0, 1].map(|arm| heats[arm][set as usize]);
            SetRow {
                set,
                before: b,
                after: a,
                change: change(b, a, even),
                occupants_before: occupants[0].remove(&set).unwrap_or_default(),
                occupants_after: occupants[1].remove(&set).unwrap_or_default(),
            }
        })
        .collect()
}

fn per_set(build: HotBuild<'_>, geometry: CacheGeometry) -> Vec<SetHeat> {
    let mut sets = vec![SetHeat::default(); geometry.sets as usize];
    for (line, hot) in &build.heat.lines {
        let set = &mut sets[geometry.set_of(*line) as usize];
        set.lines += u32::from(hot.is_in_use);
        set.misses = build.heat.misses.map(|_| set.misses.unwrap_or(0) + hot.misses);
        let in_focus = build.focus.is_some() && hot.function == build.focus;
        *(if in_focus { &mut set.function } else { &mut set.peers }) += hot.samples;
    }
    sets
}

/// Samples are compared as shares of an even spread: the two runs may have different lengths.
fn change(before: SetHeat, after: SetHeat, even: [f64; 2]) -> SetChange {
    let relative = |heat: SetHeat, arm: usize| {
        let even = f64::max(even[arm], 1.0);
        (heat.function as f64 / even, heat.peers as f64 / even)
    };
    let (function_before, peers_before) = relative(before, 0);
    let (function_after, peers_after) = relative(after, 1);
    let hot = |share: f64| share >= HOT_SHARE;
    let both_before = hot(function_before) && hot(peers_before);
    let both_after = hot(function_after) && hot(peers_after);
    let growth = (function_after + peers_after) / (function_before + peers_before).max(1e-9);
    match (both_before, both_after) {
        (false, true) => SetChange::NewCollision,
        (true, true) if growth >= CLEAR_CHANGE => SetChange::HeavierCollision,
        (true, true) if growth > 1.0 / CLEAR_CHANGE => SetChange::Unchanged,
        (true, _) => SetChange::CalmedDown,
        (false, false) if hot(function_after) && !hot(function_before) => SetChange::MovedHere,
        (false, false) => SetChange::Unchanged,
    }
}

fn occupants(build: HotBuild<'_>, geometry: CacheGeometry) -> BTreeMap<u32, Vec<Occupant>> {
    let mut sets: BTreeMap<u32, Vec<Occupant>> = BTreeMap::new();
    for (line, hot) in build.heat.lines.iter().filter(|(_, hot)| hot.samples > 0 || hot.is_in_use) {
        let function = hot.function.and_then(|i| build.image.functions().get(i));
        let occupant = Occupant {
            line: *line,
            samples: hot.samples,
            misses: build.heat.misses.map(|_| hot.misses),
            function: function.map(Function::name),
            offset_bytes: function.and_then(|f| line.distance_from(f.start)).unwrap_or(0),
        };
        sets.entry(geometry.set_of(*line)).or_default().push(occupant);
    }
    for lines in sets.values_mut() {
        lines.sort_by_key(|o| (std::cmp::Reverse((o.misses, o.samples)), o.line));
    }
    sets
}

/// Offsets at which clearly more functions have hot lines than chance would put there; for each
/// modulus the one with the most functions.
#[must_use]
pub fn clusters(build: HotBuild<'_>, geometry: CacheGeometry) -> Vec<Cluster> {
    let least = (HOT_SHARE * build.heat.samples as f64 / f64::from(geometry.sets)).max(1.0) as u64;
    [512, 4096].into_iter().filter_map(|modulus| cluster(build, geometry, modulus, least)).collect()
}

fn cluster(
    build: HotBuild<'_>,
    geometry: CacheGeometry,
    modulus: u64,
    least: u64,
) -> Option<Cluster> {
    let mut classes: BTreeMap<u64, BTreeMap<usize, u64>> = BTreeMap::new();
    let mut hot_pairs = 0;
    for (line, hot) in &build.heat.lines {
        let Some(function) = hot.function.filter(|_| hot.samples >= least) else { continue };
        let members = classes.entry(line.0 % modulus).or_default();
        hot_pairs += usize::from(!members.contains_key(&function));
        *members.entry(function).or_default() += hot.samples;
    }
    let expected = hot_pairs as f64 / (modulus / u64::from(geometry.line_bytes)) as f64;
    let (offset_bytes, members) =
        classes.into_iter().max_by_key(|(_, m)| (m.len(), m.values().sum::<u64>()))?;
    let enough =
        members.len() >= LEAST_CLUSTER && members.len() as f64 >= CLUSTER_EXCESS * expected;
    let samples = members.values().sum();
    let mut functions: Vec<(usize, u64)> = members.into_iter().collect();
    functions.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let name = |(i, _): &(usize, u64)| build.image.functions().get(*i).map(Function::name);
    let functions = functions.iter().filter_map(name).collect();
    enough.then_some(Cluster { modulus_bytes: modulus, offset_bytes, functions, samples })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heat(function: u64, peers: u64) -> SetHeat {
        SetHeat { function, peers, lines: 2, misses: None }
    }

    /// The published table; an even spread of that run is about 1760 samples a set.
    #[test]
    fn the_fourth_storys_sets_are_called_what_its_author_called_them() {
        let rows = [
            (25, (28, 24), (4470, 2671), SetChange::NewCollision),
            (26, (17, 447), (5646, 5144), SetChange::NewCollision),
            (27, (63, 536), (8145, 1912), SetChange::NewCollision),
            (28, (171, 1859), (4711, 2362), SetChange::NewCollision),
            (29, (21, 367), (19364, 2596), SetChange::NewCollision),
            (30, (14, 2417), (2536, 4779), SetChange::NewCollision),
            (31, (740, 4247), (4959, 4607), SetChange::HeavierCollision),
            (33, (5445, 3887), (3464, 2418), SetChange::CalmedDown),
            (36, (11119, 1777), (3378, 1106), SetChange::CalmedDown),
            (58, (0, 665), (12743, 119), SetChange::MovedHere),
        ];
        for (set, before, after, wanted) in rows {
            let said = change(heat(before.0, before.1), heat(after.0, after.1), [1760.0; 2]);
            // Set 58 has hot peers before and cold ones after; the function came to it.
            assert_eq!(said, wanted, "set {set}");
        }
    }

    #[test]
    fn runs_of_different_length_are_compared_by_share() {
        let said = change(heat(1000, 1000), heat(2000, 2000), [1000.0, 2000.0]);
        assert_eq!(said, SetChange::Unchanged);
        assert_eq!(change(heat(0, 0), heat(0, 0), [0.0; 2]), SetChange::Unchanged);
    }

    #[test]
    fn a_quarter_of_an_even_spread_is_hot_and_half_as_much_again_is_heavier() {
        let said = |before: (u64, u64), after: (u64, u64)| {
            change(heat(before.0, before.1), heat(after.0, after.1), [1000.0; 2])
        };
        assert_eq!(said((0, 0), (250, 250)), SetChange::NewCollision);
        assert_eq!(said((0, 0), (250, 249)), SetChange::MovedHere);
        assert_eq!(said((0, 0), (249, 250)), SetChange::Unchanged);
        assert_eq!(said((250, 0), (250, 0)), SetChange::Unchanged, "it was here before");
        let grown = |before: u64, after: (u64, u64)| {
            change(heat(before, before), heat(after.0, after.1), [1024.0; 2])
        };
        assert_eq!(grown(512, (768, 768)), SetChange::HeavierCollision);
        assert_eq!(grown(512, (768, 767)), SetChange::Unchanged);
        assert_eq!(grown(768, (513, 512)), SetChange::Unchanged);
        assert_eq!(grown(768, (512, 512)), SetChange::CalmedDown);
        assert_eq!(said((600, 600), (249, 2000)), SetChange::CalmedDown);
        let all = [
            SetChange::NewCollision,
            SetChange::HeavierCollision,
            SetChange::CalmedDown,
            SetChange::MovedHere,
            SetChange::Unchanged,
        ];
        let words: std::collections::BTreeSet<&str> = all.map(SetChange::words).into();
        assert_eq!(words.len(), 5);
        // A run without samples is spread over nothing, not divided by it.
        assert_eq!(change(heat(0, 0), heat(1, 1), [0.0, 0.5]), SetChange::NewCollision);
    }

    use crate::code::fixture;
    use crate::layout::Samples;

    const FOUR_SETS: CacheGeometry = CacheGeometry { sets: 4, ways: 1, line_bytes: 64 };

    /// A program of functions of this many bytes, and its heat.
    fn heated(sizes: &[usize], hits: &[(i64, u64)], misses: &[(i64, u64)]) -> (Image, LineHeat) {
        let names: Vec<String> = (0..sizes.len()).map(|i| format!("f{i}")).collect();
        let bodies: Vec<Vec<u8>> = sizes.iter().map(|size| vec![0x90; *size]).collect();
        let functions: Vec<(&str, &[u8])> =
            names.iter().zip(&bodies).map(|(n, b)| (n.as_str(), &b[..])).collect();
        let image = fixture::image(&functions).unwrap();
        let at = |list: &[(i64, u64)]| {
            list.iter().map(|(at, n)| (fixture::CODE_START.0.offset(*at), *n)).collect()
        };
        let misses = (!misses.is_empty()).then(|| at(misses));
        let samples = Samples { hits: at(hits), misses, ..Samples::default() };
        let heat = LineHeat::of(&image, FOUR_SETS, &samples);
        (image, heat)
    }

    #[test]
    fn a_set_holds_the_function_in_question_and_its_peers() {
        // f0 in lines 0 and 1, f1 in lines 2 to 4: line 4 is in set 0 again.
        let hits = [(0, 5), (64, 7), (128, 20), (256, 9)];
        let (image, heat) = heated(&[127, 300], &hits, &[(0, 2), (256, 3)]);
        let build = HotBuild { image: &image, heat: &heat, focus: Some(0) };
        let rows = set_rows(build, None, FOUR_SETS);
        let first = FOUR_SETS.set_of(fixture::CODE_START.0) as usize;
        let row = &rows[first];
        assert_eq!((rows.len(), row.set as usize), (4, first));
        let wanted = SetHeat { function: 5, peers: 9, lines: 2, misses: Some(5) };
        assert_eq!((row.before, row.after), (wanted, wanted));
        assert!(row.occupants_after.is_empty());
        // Those with most misses first.
        let seen: Vec<_> =
            row.occupants_before.iter().map(|o| (o.samples, o.misses, o.offset_bytes)).collect();
        assert_eq!(seen, [(9, Some(3), 128), (5, Some(2), 0)]);
        assert_eq!(row.occupants_before[1].function.as_deref(), Some("f0"));
        let second = &rows[(first + 1) % 4];
        assert_eq!((second.before.function, second.before.peers, second.before.lines), (7, 0, 1));
        let empty = &rows[(first + 3) % 4];
        assert_eq!((empty.before.lines, empty.occupants_before.len()), (0, 0));
        // Without a function in question all are peers; two builds have two lists.
        let plain = HotBuild { focus: None, ..build };
        let rows = set_rows(plain, Some(plain), FOUR_SETS);
        assert_eq!((rows[first].before.function, rows[first].before.peers), (0, 14));
        assert_eq!(rows[first].occupants_after, rows[first].occupants_before);
    }

    #[test]
    fn four_functions_at_one_offset_are_a_cluster_where_chance_gives_half_as_many() {
        // Functions of 512 bytes, each hot in its first line.
        let sizes = [511; 5];
        let hits: Vec<(i64, u64)> = (0..5).map(|i| (512 * i, 10 + i as u64)).collect();
        let at = |hits: &[(i64, u64)]| {
            let (image, heat) = heated(&sizes, hits, &[]);
            clusters(HotBuild { image: &image, heat: &heat, focus: None }, FOUR_SETS)
        };
        let found = at(&hits);
        assert_eq!(found.len(), 1, "no two are 4096 bytes apart: {found:?}");
        let cluster = &found[0];
        assert_eq!((cluster.modulus_bytes, cluster.samples), (512, 60));
        assert_eq!(cluster.offset_bytes, fixture::CODE_START.0.0 % 512);
        assert_eq!(cluster.functions, ["f4", "f3", "f2", "f1", "f0"]);
        assert_eq!(at(&hits[..4]).len(), 1);
        assert!(at(&hits[..3]).is_empty());
        // Hot in every line, each offset has all of them, and none is special.
        let everywhere: Vec<(i64, u64)> = (0..40).map(|i| (64 * i, 10)).collect();
        assert!(at(&everywhere).is_empty());
        assert!(at(&[]).is_empty());
        // A sample or two beside a hot line make no member: a quarter of 1/4 of all is asked for.
        let mut cold = hits.clone();
        cold[4].1 = 400;
        assert!(at(&cold).is_empty());
    }
}
