//! From samples to the lengths that are learned.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Case, Drawn, ID, SHORT, all_cases};
use crate::machine::{Design, MeasuredBranches, PriceOrigin, ProfileEnvironment};
use crate::model::{Measurement, Unit};
use crate::probes::UpdatesProfile;
use crate::probes::protocol::{Answer, Control, Protocol};
use crate::probes::sampling::Sampled;

/// A sequence that never comes again takes longer by this at least, per branch, or there is nothing to be divided.
const LEAST_CYCLES: f64 = 3.0;
/// Short sequences may differ by this part of that.
const AS_SHORT: f64 = 0.1;

/// One sequence and what a branch of it takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BranchRow {
    /// What is drawn.
    pub drawn: Drawn,
    /// Its branches; absent where it never comes again.
    pub length: Option<u32>,
    /// Core cycles of one branch and the loop around it; absent where too few samples were clean.
    pub cycles: Option<Measurement>,
    /// Of what a sequence that never comes again takes more than a short one, the part that this one takes more, per cent.
    pub missed_percent: Option<f64>,
}

/// What the probe found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BranchReport {
    /// How it was measured.
    #[serde(flatten)]
    pub protocol: Protocol,
    /// In the order of the cases.
    pub rows: Vec<BranchRow>,
    /// The length of which half is learned, or the longest that was tried; absent where that was not found.
    pub directions: Option<Measurement>,
    /// The same of targets.
    pub targets: Option<Measurement>,
}

impl BranchReport {
    /// Joins samples into a report; a cell of `sampled` for each case.
    #[must_use]
    pub fn new(sampled: &Sampled, mut protocol: Protocol) -> Self {
        protocol.count(sampled);
        let cells = all_cases().into_iter().zip(&sampled.cells);
        let cells: Vec<(Case, Option<Measurement>)> =
            cells.map(|(case, cell)| (case, cell.cycles.clone())).collect();
        let of = |drawn, length: Option<u32>| {
            let case = Case { drawn, length };
            cells.iter().find(|(other, _)| *other == case)?.1.as_ref()
        };
        // From what is learned to what cannot be.
        let ends = |drawn| Some([of(drawn, Some(SHORT[1]))?.value, of(drawn, None)?.value]);
        let part = |drawn, cycles: f64| {
            let [learned, never] = ends(drawn).filter(|[a, b]| b - a >= LEAST_CYCLES)?;
            Some((cycles - learned) / (never - learned))
        };
        let rows: Vec<BranchRow> = cells
            .iter()
            .map(|(Case { drawn, length }, cycles)| BranchRow {
                drawn: *drawn,
                length: *length,
                cycles: cycles.clone(),
                missed_percent: cycles.as_ref().and_then(|m| Some(100.0 * part(*drawn, m.value)?)),
            })
            .collect();
        let learned = |drawn| {
            let ladder = cells.iter().filter(|(case, _)| case.drawn == drawn);
            let ladder: Vec<(u32, &Measurement)> =
                ladder.filter_map(|(case, m)| Some((case.length?, m.as_ref()?))).collect();
            let crossing = |of: fn(&Measurement) -> f64| {
                let points = ladder.iter().map(|(length, m)| Some((*length, part(drawn, of(m))?)));
                half_of(&points.collect::<Option<Vec<_>>>()?)
            };
            Some(Measurement {
                value: crossing(|m| m.value)?,
                unit: Unit::Count,
                low: crossing(|m| m.high).unwrap_or(f64::from(ladder.first()?.0)),
                high: crossing(|m| m.low)?,
                n: ladder.iter().map(|(_, m)| m.n).min()?,
                how: "where half is mispredicted, between two lengths".into(),
            })
        };
        let (directions, targets) = (learned(Drawn::Directions), learned(Drawn::Targets));
        let longer = |a: &Measurement, b: &Measurement| b.low > a.high + LEAST_CYCLES;
        protocol.controls = [Drawn::Directions, Drawn::Targets]
            .into_iter()
            .flat_map(|drawn| {
                let what = match drawn {
                    Drawn::Directions => ["known and new directions", "known directions"],
                    Drawn::Targets => ["known and new targets", "known targets"],
                };
                let [short, other, never] =
                    [Some(SHORT[1]), Some(SHORT[0]), None].map(|length| of(drawn, length));
                let near = ends(drawn).map_or(0.0, |[learned, never]| AS_SHORT * (never - learned));
                let same = |a: &Measurement, b: &Measurement| (a.value - b.value).abs() <= near;
                [
                    Control::compare("positive", what[0], short, never, longer),
                    Control::compare("negative", what[1], short, other, same),
                ]
            })
            .collect();
        let said = |m: &Measurement, drawn| {
            let longest = cells.iter().filter(|(case, _)| case.drawn == drawn);
            let longest = longest.filter_map(|(case, _)| case.length).max();
            let is_longest = longest.is_some_and(|longest| m.value >= f64::from(longest));
            format!("{}{:.0}", if is_longest { "more than " } else { "" }, m.value)
        };
        let answer = match (&directions, &targets) {
            (Some(directions), Some(targets)) => Answer::Found(format!(
                "of a sequence that comes again, half is learned of {} random directions and of {} random targets",
                said(directions, Drawn::Directions),
                said(targets, Drawn::Targets)
            )),
            _ => Answer::Open("too few clean samples".into()),
        };
        protocol.conclude(answer);
        Self { protocol, rows, directions, targets }
    }
}

/// The length at which a half is missed, on a line over the logarithm of the length; the longest where less is missed of
/// all, nothing where more is of the shortest.
fn half_of(points: &[(u32, f64)]) -> Option<f64> {
    let above = points.iter().position(|(_, missed)| *missed >= 0.5);
    let Some(above) = above else { return points.last().map(|(length, _)| f64::from(*length)) };
    let ((shorter, less), (longer, more)) = (*points.get(above.checked_sub(1)?)?, points[above]);
    let along = (0.5 - less) / (more - less);
    let [shorter, longer] = [shorter, longer].map(|length| f64::from(length).ln());
    Some((shorter + along * (longer - shorter)).exp())
}

impl UpdatesProfile for BranchReport {
    fn protocol(&self) -> Option<&Protocol> {
        Some(&self.protocol)
    }

    fn put_into(&self, profile: &mut Design) {
        let (Some(directions), Some(targets)) = (self.directions.clone(), self.targets.clone())
        else {
            return;
        };
        let origin = PriceOrigin::Probed { probe: ID.to_owned() };
        profile.measured_branches = Some(MeasuredBranches { directions, targets, origin });
        profile.environment.get_or_insert_with(|| ProfileEnvironment::of(&self.protocol.machine));
    }
}
