//! The whole answer of `layout`: what moved, and which sets became crowded, as far as it is known.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Serialize;

use super::sets::{Cluster, HotBuild, SetRow, clusters, set_rows};
use super::{
    Budget, BuildSummary, FrontEnd, LineHeat, Occupancy, Samples, ShiftMap, Shifts, Suggestions,
    TracedWindow, WhatIf, match_functions,
};
use crate::code::{Function, FunctionQuery, Image};
use crate::machine::{CacheGeometry, Design, Microarchitecture};

/// Fewer samples than this give no picture of 64 sets.
const FEW_SAMPLES: u64 = 2000;

/// The samples of one build, summed up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HeatSummary {
    /// File or engine that the samples came from.
    pub source: String,
    /// Whether every execution was counted, and not only samples taken.
    pub is_complete: bool,
    /// Samples (or executed instructions) in the program.
    pub samples: u64,
    /// Lines in use; with samples, a lower bound.
    pub lines: usize,
    /// Sets with more lines in use than the cache has ways.
    pub overfull_sets: u32,
    /// Simulated misses of the instruction cache, where they were simulated.
    pub misses: Option<u64>,
}

/// Sets of the instruction cache and who is in them.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SetReport {
    /// Geometry of the instruction cache.
    pub geometry: CacheGeometry,
    /// The samples of the first build, and of the second where there is one.
    pub heat: Vec<HeatSummary>,
    /// The function that is held against all others.
    pub function: Option<String>,
    /// All sets of the cache.
    pub sets: Vec<SetRow>,
    /// Functions whose hot lines stand at one offset, in the last build.
    pub clusters: Vec<Cluster>,
    /// What shifts of the last build would do, when they were asked for.
    pub what_if: Option<WhatIf>,
    /// What a reader must know.
    pub notes: Vec<String>,
}

/// The result of `layout`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LayoutReport {
    /// What moved, when there are two builds.
    pub shift: Option<ShiftMap>,
    /// The build, when there is one.
    pub build: Option<BuildSummary>,
    /// The sets, when there are samples.
    pub sets: Option<SetReport>,
    /// Windows of the builds in the modelled cache, when they were traced.
    pub windows: Vec<Occupancy>,
    /// The processor that is judged for.
    pub design: Microarchitecture,
    /// Whether the erratum on jumps at 32-byte boundaries applies to it.
    pub jump_erratum: bool,
    /// How the builds lie in its front end, when there are samples.
    pub front_end: Vec<FrontEnd>,
    /// What each effect can cost, when executions of two builds were counted.
    pub budget: Option<Budget>,
    /// What other arrangements would do, when that was asked for.
    pub suggestions: Option<Suggestions>,
}

/// Which function to hold against the others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FocusError {
    /// No such function has samples.
    #[error("no {0} has samples; leave --function out to see which are hot")]
    Cold(String),
}

/// Builds the tables of sets; `builds` are one or two programs with their samples, `shifts` what to
/// try and the traced window of the last build, where there is one.
///
/// # Errors
/// [`FocusError`] when the function that was asked for is not there.
pub fn set_report(
    builds: &[(&Image, &Samples)],
    design: &Design,
    function: Option<&FunctionQuery>,
    shifts: Option<(Shifts, Option<&TracedWindow>)>,
) -> Result<SetReport, FocusError> {
    let geometry = design.code_cache().value;
    let heats: Vec<LineHeat> =
        builds.iter().map(|(image, s)| LineHeat::of(image, geometry, s)).collect();
    let focus = focus(builds, &heats, geometry, function)?;
    let hot = |i: usize| {
        let i = i.min(builds.len() - 1);
        HotBuild { image: builds[i].0, heat: &heats[i], focus: focus[i] }
    };
    let (Some(last), Some(last_focus)) = (builds.last(), focus.last()) else {
        return Err(FocusError::Cold(String::new()));
    };
    let sets = set_rows(hot(0), (builds.len() > 1).then(|| hot(1)), geometry);
    let named = last_focus.and_then(|i| last.0.functions().get(i)).map(Function::name);
    let what_if = shifts
        .zip(*last_focus)
        .and_then(|((s, window), at)| WhatIf::of(last.0, (last.1, window), geometry, at, s));
    let heat = builds.iter().zip(&heats).enumerate();
    let heat = heat.map(|(arm, ((_, samples), heat))| HeatSummary {
        source: samples.source.clone(),
        is_complete: samples.is_complete,
        samples: heat.samples,
        lines: heat.lines.values().filter(|l| l.is_in_use).count(),
        misses: heat.misses,
        overfull_sets: overfull(&sets, arm, geometry),
    });
    Ok(SetReport {
        geometry,
        heat: heat.collect(),
        function: named,
        clusters: clusters(hot(1), geometry),
        sets,
        what_if,
        notes: notes(builds, &heats, geometry),
    })
}

fn overfull(sets: &[SetRow], arm: usize, geometry: CacheGeometry) -> u32 {
    let lines = |row: &SetRow| if arm == 0 { row.before.lines } else { row.after.lines };
    sets.iter().filter(|row| lines(row) > geometry.ways).count() as u32
}

fn notes(
    builds: &[(&Image, &Samples)],
    heats: &[LineHeat],
    geometry: CacheGeometry,
) -> Vec<String> {
    let mut notes: Vec<String> = builds.iter().flat_map(|(_, s)| s.notes.clone()).collect();
    if let Some(few) = heats.iter().map(|h| h.samples).min().filter(|n| *n < FEW_SAMPLES)
        && builds.iter().any(|(_, s)| !s.is_complete)
    {
        notes.push(format!(
            "{few} samples are too few to say which sets are crowded: a hundred thousand find about \
             85 % of the lines that a program touches"
        ));
    }
    if !geometry.is_fixed_by_the_file() {
        notes.push(
            "this cache takes its set from bits above the page: sets hold for one load address only"
                .to_owned(),
        );
    }
    let mut seen = std::collections::BTreeSet::new();
    notes.retain(|note| seen.insert(note.clone()));
    notes
}

/// The function in question, in each build: the one that was asked for; else the hottest whose sets
/// changed; else the hottest.
fn focus(
    builds: &[(&Image, &Samples)],
    heats: &[LineHeat],
    geometry: CacheGeometry,
    wanted: Option<&FunctionQuery>,
) -> Result<Vec<Option<usize>>, FocusError> {
    let index = |image: &Image, f: &Function| {
        image.functions().binary_search_by_key(&f.start, |other| other.start).ok()
    };
    let heat = |arm: usize, at: Option<usize>| {
        at.and_then(|i| heats[arm].functions.get(&i)).copied().unwrap_or(0) as f64
            / heats[arm].samples.max(1) as f64
    };
    let meant: Option<Vec<HashSet<usize>>> = wanted.map(|query| {
        let all = |image| query.all_in(image).into_iter().filter_map(|f| index(image, f)).collect();
        builds.iter().map(|(image, _)| all(*image)).collect()
    });
    let is_meant = |places: &[Option<usize>]| {
        meant.as_ref().is_none_or(|meant| {
            meant.iter().zip(places).any(|(meant, at)| at.is_some_and(|at| meant.contains(&at)))
        })
    };
    let mut candidates: Vec<(bool, f64, Vec<Option<usize>>)> = Vec::new();
    let mut consider = |sets_changed: bool, places: Vec<Option<usize>>| {
        let hot = (0..places.len()).map(|arm| heat(arm, places[arm])).sum();
        if hot > 0.0 && is_meant(&places) {
            candidates.push((sets_changed, hot, places));
        }
    };
    match builds {
        [(before, _), (after, _)] => {
            for m in match_functions(before, after) {
                let places = vec![
                    m.before.and_then(|f| index(before, f)),
                    m.after.and_then(|f| index(after, f)),
                ];
                let sets_changed = m.before.zip(m.after).is_none_or(|(b, a)| {
                    b.start.0.wrapping_sub(a.start.0) % geometry.period_bytes() != 0
                });
                consider(sets_changed, places);
            }
        }
        [(image, _), ..] => {
            for i in 0..image.functions().len() {
                consider(false, vec![Some(i)]);
            }
        }
        [] => {}
    }
    let best = candidates
        .into_iter()
        .max_by(|x, y| (x.0, x.1).partial_cmp(&(y.0, y.1)).unwrap_or(std::cmp::Ordering::Equal));
    match (best, wanted) {
        (Some((.., places)), _) => Ok(places),
        (None, Some(query)) => Err(FocusError::Cold(query.to_string())),
        (None, None) => Ok(vec![None; builds.len()]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sets::SetChange;
    use super::*;
    use crate::code::fixture;

    #[test]
    fn a_set_is_overfull_with_more_lines_than_ways_in_its_own_build() {
        let heat = |lines| super::super::SetHeat { lines, ..Default::default() };
        let row = |before, after| SetRow {
            set: 0,
            before: heat(before),
            after: heat(after),
            change: SetChange::Unchanged,
            occupants_before: Vec::new(),
            occupants_after: Vec::new(),
        };
        let geometry = CacheGeometry { sets: 4, ways: 2, line_bytes: 64 };
        let rows = [row(1, 3), row(2, 3), row(3, 0), row(0, 9)];
        assert_eq!([overfull(&rows, 0, geometry), overfull(&rows, 1, geometry)], [1, 3]);
    }

    #[test]
    fn few_samples_and_sets_that_the_loader_chooses_are_noted_once() {
        let image = fixture::image(&[("f", &[0x90; 16])]).unwrap();
        let said = |samples: u64, is_complete: bool, sets: u32| {
            let own = Samples { is_complete, notes: vec!["noted".into()], ..Samples::default() };
            let heats = [2000, samples].map(|samples| LineHeat { samples, ..LineHeat::default() });
            let geometry = CacheGeometry { sets, ways: 8, line_bytes: 64 };
            notes(&[(&image, &own), (&image, &own)], &heats, geometry)
        };
        assert_eq!(said(2000, false, 64), ["noted"]);
        let few = said(1999, false, 64);
        assert!(few.len() == 2 && few[1].starts_with("1999 samples are too few"), "{few:?}");
        assert_eq!(said(1999, true, 64), ["noted"], "all of it was counted");
        let unsure = said(2000, false, 128);
        assert!(unsure.len() == 2 && unsure[1].contains("above the page"), "{unsure:?}");
    }

    /// `peer` stays, `pad` grows by 16 lines, `hot` moves by as much: onto the sets of `peer`.
    #[test]
    fn a_function_that_moves_onto_its_peer_is_a_new_collision() {
        let nops = |size: usize| vec![0x90_u8; size];
        let build = |pad: usize| {
            let (peer, pad, hot) = (nops(200), nops(pad), nops(200));
            fixture::image(&[("peer", &peer), ("pad", &pad), ("hot", &hot)]).unwrap()
        };
        let (before, after) = (build(2031), build(4096 - 209));
        let samples = |image: &Image| {
            let mut hits = std::collections::BTreeMap::new();
            for function in image.functions().iter().filter(|f| f.symbol != "pad") {
                for i in 0..4 {
                    hits.insert(function.start.offset(48 * i), 5000);
                }
            }
            Samples { source: "invented".into(), hits, ..Samples::default() }
        };
        let (b, a) = (samples(&before), samples(&after));
        let lake = Design::of(Microarchitecture::CascadeLake);
        let report = set_report(&[(&before, &b), (&after, &a)], &lake, None, None).unwrap();
        assert_eq!(report.function.as_deref(), Some("hot"));
        let collisions = |r: &SetReport| {
            let new = r.sets.iter().filter(|s| s.change == SetChange::NewCollision);
            new.map(|s| s.set).collect::<Vec<_>>()
        };
        assert_eq!(collisions(&report), [0, 1, 2]);
        assert_eq!(report.sets[0].occupants_after.len(), 2);
        // One build alone has sets and no change.
        let single =
            set_report(&[(&after, &a)], &lake, Some(&FunctionQuery::new("peer")), None).unwrap();
        assert_eq!(collisions(&single), [0_u32; 0]);
        assert!(
            set_report(&[(&after, &a)], &lake, Some(&FunctionQuery::new("pad")), None).is_err()
        );
    }
}
