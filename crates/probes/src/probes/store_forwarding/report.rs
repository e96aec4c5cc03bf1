//! What the probe found, joined from samples by code that runs nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::case::{Case, Group, Registers};
use super::classify::{Boundaries, Class, classify};
use super::delay::DelayCurve;
use super::infer::{RuleFinding, infer};
use super::pairs;
use crate::clock::counters::CounterCheck;
use crate::machine::{Design, PriceOrigin, PriceRange, ProfileEnvironment};
use crate::model::Measurement;
use crate::probes::protocol::{Control, Protocol};
use crate::probes::sampling::Sampled;
use crate::probes::{UpdatesProfile, published};

/// One case with its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellReport {
    /// The case in words.
    pub name: String,
    /// The case that was measured.
    pub case: Case,
    /// What happened to the load.
    pub class: Class,
    /// Core cycles per repetition; absent with too few clean samples.
    pub cycles: Option<Measurement>,
    /// Clean samples, percent of those taken.
    pub clean_percent: f64,
}

/// Report of this probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ForwardingReport {
    /// How it was measured; raw visits are without those of 64-byte accesses.
    #[serde(flatten)]
    pub protocol: Protocol,
    /// Every case with its class.
    pub cells: Vec<CellReport>,
    /// Where forwarding ends.
    pub boundaries: Boundaries,
    /// The rule that the matrix shows.
    pub rule: RuleFinding,
    /// What a forwarded load takes from the store, over the matrix.
    pub forwarded: Option<PriceRange>,
    /// What a blocked load takes from the store, over everything inside one line.
    pub blocked: Option<PriceRange>,
    /// From where on a blocked load is free.
    pub delay: DelayCurve,
    /// The maker's counter of blocked loads; absent where the design has none that is published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<CounterCheck>,
}

/// The id of the probe, and of the origin of its prices.
pub const ID: &str = "store-forwarding";

impl ForwardingReport {
    /// Evaluates the samples.
    #[must_use]
    pub fn new(cases: &[Case], sampled: &Sampled, mut protocol: Protocol) -> Self {
        let boundaries = Boundaries::find(cases, &sampled.cells);
        let classes = classify(cases, &sampled.cells, &boundaries);
        let rule = infer(cases, &classes);
        let cells: Vec<CellReport> = cases
            .iter()
            .zip(&sampled.cells)
            .zip(&classes)
            .map(|((case, cell), class)| CellReport {
                name: case.to_string(),
                case: case.clone(),
                class: *class,
                cycles: cell.cycles.clone(),
                clean_percent: cell.clean_percent,
            })
            .collect();
        let look_up = |name: &str| cells.iter().find(|c| c.name == name)?.cycles.clone();
        protocol.count(sampled);
        protocol.controls = controls(&cells);
        protocol.published = published::compare(protocol.machine.microarchitecture, ID, look_up);
        let mut report = Self {
            forwarded: price(&cells, Class::Forwarded, &[Group::Matrix]),
            blocked: price(&cells, Class::Blocked, &[Group::Matrix, Group::Several]),
            delay: DelayCurve::of(cases, &sampled.cells),
            counter: None,
            protocol,
            cells,
            boundaries,
            rule,
        };
        (report.protocol.conclusive, report.protocol.verdict) = verdict(&report);
        report
    }

    /// The answer to one question.
    #[must_use]
    pub fn cell(&self, case: &Case) -> Option<&CellReport> {
        find(&self.cells, case)
    }

    /// Cases that deserve another look: undecided, against the rule, or unlike what was published.
    pub(super) fn doubtful(&self) -> Vec<usize> {
        let published = &self.protocol.published;
        let disagrees =
            |name: &str| published.iter().any(|r| r.agrees == Some(false) && r.quantity == name);
        let all = self.cells.iter().enumerate();
        let doubtful = all.filter(|(_, c)| {
            let undecided = c.class == Class::Inconclusive && c.case.group != Group::Delay;
            undecided
                || c.cycles.is_none()
                || self.rule.against.contains(&c.name)
                || disagrees(&c.name)
        });
        doubtful.map(|(index, _)| index).collect()
    }
}

impl UpdatesProfile for ForwardingReport {
    fn protocol(&self) -> Option<&Protocol> {
        Some(&self.protocol)
    }

    fn put_into(&self, profile: &mut Design) {
        if let Some(blocked) = &self.blocked {
            profile.store_forward_blocked_cycles = blocked.clone();
            profile.store_forward_blocked_pairs = pairs::prices(&self.cells);
            profile.store_forward_cycles = self.forwarded.clone();
            profile.store_forward_free_after_cycles = self.delay.free_after_cycles;
            if let Some(rule) = self.rule.rule {
                profile.forwarding_rule = rule;
                profile.forwarding_rule_origin = probed();
            }
            let machine = &self.protocol.machine;
            profile.microarchitecture = machine.microarchitecture;
            profile.environment = Some(ProfileEnvironment::of(machine));
        }
    }
}

fn probed() -> PriceOrigin {
    PriceOrigin::Probed { probe: ID.to_owned() }
}

fn find<'a>(cells: &'a [CellReport], case: &Case) -> Option<&'a CellReport> {
    cells.iter().find(|c| c.case == *case)
}

/// The range of a class over some groups. Round trips that contain a move between register files
/// would count that move as well.
fn price(cells: &[CellReport], class: Class, groups: &[Group]) -> Option<PriceRange> {
    let of_class = |c: &&CellReport| {
        let plain = matches!(c.case.registers, Registers::General | Registers::Vector);
        c.class == class && groups.contains(&c.case.group) && plain
    };
    range(cells.iter().filter(of_class))
}

/// What these cells span; the one in the middle stands for them.
pub(super) fn range<'a>(cells: impl Iterator<Item = &'a CellReport>) -> Option<PriceRange> {
    let mut all: Vec<&Measurement> = cells.filter_map(|c| c.cycles.as_ref()).collect();
    all.sort_by(|a, b| a.value.total_cmp(&b.value));
    Some(PriceRange {
        low_cycles: all.first()?.value,
        high_cycles: all.last()?.value,
        origin: probed(),
        measured: all.get(all.len() / 2).map(|m| (*m).clone()),
    })
}

fn controls(cells: &[CellReport]) -> Vec<Control> {
    let cycles = |case: Case| find(cells, &case)?.cycles.as_ref();
    let control = |kind: &str, passed, words| Control { kind: kind.to_owned(), passed, words };
    let no_data = |what: &str| format!("{what}: too few clean samples");
    let general = |store, load, at| Case::pair(Registers::General, store, load, at);
    let (forwarded, blocked) = (cycles(general(8, 4, 4)), cycles(general(4, 8, 0)));
    let disjoint = cycles(general(8, 8, 512).in_group(Group::Disjoint));
    let mut all = Vec::new();

    all.push(match (forwarded, blocked) {
        (Some(f), Some(b)) => control(
            "positive",
            Some(b.low > f.high),
            format!("4 -> 8 takes {:.1}, 8 -> 4 at +4 takes {:.1}: apart", b.value, f.value),
        ),
        _ => control("positive", None, no_data("4 -> 8 against 8 -> 4 at +4")),
    });
    all.push(match (disjoint, forwarded) {
        (Some(d), Some(f)) => control(
            "negative",
            Some(d.high < f.low),
            format!("a load of other bytes takes {:.1}: no round trip", d.value),
        ),
        _ => control("negative", None, no_data("a load of other bytes")),
    });
    for case in [general(8, 4, 4), general(4, 8, 0)] {
        let name = case.to_string();
        let again = cycles(case.clone().in_group(Group::Placebo));
        all.push(match (cycles(case), again) {
            (Some(a), Some(b)) => control(
                "placebo",
                Some((a.value - b.value).abs() <= PLACEBO_CYCLES),
                format!("{name} twice: {:.2} and {:.2}", a.value, b.value),
            ),
            _ => control("placebo", None, no_data(&format!("{name} twice"))),
        });
    }
    all
}

/// Two equal cells may differ by this much; classes lie at least ten times as far apart.
const PLACEBO_CYCLES: f64 = 0.25;

fn verdict(report: &ForwardingReport) -> (bool, String) {
    let failed: Vec<&Control> =
        report.protocol.controls.iter().filter(|c| c.passed != Some(true)).collect();
    let merges = report.rule.rule.is_some_and(|r| r.merges());
    // Where everything is forwarded there is no blocked load to separate from.
    let failed: Vec<&&Control> =
        failed.iter().filter(|c| !(merges && c.kind == "positive")).collect();
    if let Some(control) = failed.first() {
        let how = if control.passed.is_none() { "inconclusive" } else { "failed" };
        return (
            false,
            format!(
                "inconclusive: {:.0} % clean samples, {} control {how} ({})",
                report.protocol.clean_percent.unwrap_or(0.0),
                control.kind,
                control.words
            ),
        );
    }
    let amount = |price: &Option<PriceRange>| price.as_ref().map(PriceRange::amount);
    match (amount(&report.blocked), amount(&report.forwarded), report.rule.rule) {
        (Some(blocked), Some(forwarded), Some(rule)) => {
            let free = match report.delay.free_after_cycles {
                Some(n) => format!("; {n} cycles behind the store that costs nothing"),
                None => String::new(),
            };
            let rule = rule.sentence();
            let open = match &report.rule.open[..] {
                [] => String::new(),
                open => format!("; too few decided of {}", open.join(", of ")),
            };
            // Prices are of what stays inside: the rest is in the table.
            let of = "inside one line and registers of one kind";
            (true, format!("{rule}: {forwarded} cycles, otherwise {blocked}, {of}{free}{open}"))
        }
        (Some(blocked), Some(forwarded), None) if report.rule.is_open() => {
            let rule = &report.rule.sentence;
            (
                true,
                format!(
                    "a load is forwarded in {forwarded} cycles, otherwise {blocked}; rule {rule}"
                ),
            )
        }
        (None, Some(forwarded), Some(rule)) => {
            (merges, format!("{}: {forwarded} cycles; nothing was blocked", rule.sentence()))
        }
        _ => (false, format!("inconclusive: {}", report.rule.sentence)),
    }
}
