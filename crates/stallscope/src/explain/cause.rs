//! Hazards in the code that is hot, that differs and that holds the difference.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::counts::{Candidate, Counted};
use super::hot_code::{LoopHeat, loop_hits};
use super::rows::{FunctionRow, Place};
use super::{Heat, Share, Whole};
use crate::code::{DebugInfo, Function, FunctionCode, Image, SourceText};
use crate::compare::Arm;
use crate::hazards::{Hazard, STORE_FORWARD, describe_sites, scan_function};
use crate::machine::Design;
use crate::model::{Finding, Site, SourceLine};
use crate::stats::shares::share_of_samples;

/// A function must hold this part of the difference, in per cent, to be searched.
pub(super) const LEAST_PART: f64 = 10.0;
/// A loop must hold this share of its function's samples, in per cent, to be the cause.
const LEAST_LOOP_SHARE: f64 = 10.0;
/// A blocked load shows on the instructions that wait for it: those close behind.
const SHADOW_INSTRUCTIONS: usize = 8;

/// Below this share of the loop's samples, in per cent, nobody waits for the site.
const LEAST_SHADOW: f64 = 5.0;
/// Lines that name the site's variable, at the most.
const MOST_MENTIONS: usize = 4;

/// A finding where the difference is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cause {
    /// The arm whose code has it: the slow one.
    pub arm: Arm,
    /// The finding, with its grade.
    pub finding: Finding,
    /// The part of the difference that lies in its function.
    pub part_in_function: Share,
    /// The loop around the site.
    pub loop_heat: LoopHeat,
    /// Share of the loop's samples on the site and the few instructions behind it, which wait.
    pub share_behind_site: Share,
    /// Findings of the same rule in the same function of the other arm; absent when the other arm
    /// has no such function.
    pub in_other_arm: Option<usize>,
    /// How often it happened in windows of both builds.
    pub counted: Option<Counted>,
    /// Lines of the function that name the variable which the site touches, for a site without a
    /// line of its own (the compiler made it out of several); from readable sources only.
    pub mentions: Vec<SourceLine>,
    /// Of the sets of stores in the finding, the one whose code runs most.
    pub hottest_set: Option<usize>,
}

/// Everything the search needs about one arm.
struct Side<'a> {
    image: &'a Image,
    heat: &'a Heat,
}

/// The rules whose findings can be weighed against a measured difference so far.
const EXPLAINING: &[&dyn Hazard] = &[&STORE_FORWARD];

/// All candidates, most deserving first.
pub(super) fn find(
    images: &[Image; 2],
    debug: &[DebugInfo<'_>; 2],
    heats: &[Heat; 2],
    rows: &[FunctionRow],
    slow: Arm,
    profile: &Design,
    text: &mut SourceText,
) -> Vec<Candidate> {
    let side = |arm: usize| Side { image: &images[arm], heat: &heats[arm] };
    let (slow_side, fast_side) = (side(slow.index()), side(1 - slow.index()));
    let mut causes = Vec::new();
    for row in rows.iter().filter(|r| r.share_of_difference.percent.value >= LEAST_PART) {
        let Place::Function { before, after, .. } = &row.place else { continue };
        let (slow_function, fast_function) =
            if slow == Arm::A { (before, after) } else { (after, before) };
        // The same code in both builds has the same hazards: they cannot be what differs.
        let (Some(function), false) = (slow_function, row.place.is_unchanged()) else { continue };
        let others =
            fast_function.as_ref().map(|f| scan_function(fast_side.image, f, EXPLAINING, profile));
        let code = FunctionCode::of(slow_side.image, function);
        let findings = scan_function(slow_side.image, function, EXPLAINING, profile);
        let count = |list: &[Finding], rule: &str| list.iter().filter(|f| f.rule == rule).count();
        for finding in &findings {
            let in_other_arm = others.as_ref().map(|o| count(o, &finding.rule));
            let base = Base { row, function, code: &code, debug: &debug[slow.index()] };
            let cause = weigh(&slow_side, &base, finding.clone(), slow, in_other_arm, text);
            causes.extend(cause.map(|cause| Candidate {
                cause,
                function: function.clone(),
                other: fast_function.clone(),
            }));
        }
    }
    causes.sort_by(|a, b| weight(&b.cause).total_cmp(&weight(&a.cause)));
    causes
}

struct Base<'a> {
    row: &'a FunctionRow,
    function: &'a Function,
    code: &'a FunctionCode,
    debug: &'a DebugInfo<'a>,
}

/// What the other build does not have comes first, then what is hot, then what the rule ranks high.
fn weight(cause: &Cause) -> f64 {
    let only_here = if cause.in_other_arm.unwrap_or(0) == 0 { 4.0 } else { 1.0 };
    let heat =
        cause.loop_heat.share_of_function.percent.value * cause.share_behind_site.percent.value;
    only_here * heat * cause.finding.score
}

fn weigh(
    side: &Side<'_>,
    base: &Base<'_>,
    mut finding: Finding,
    arm: Arm,
    in_other_arm: Option<usize>,
    text: &mut SourceText,
) -> Option<Cause> {
    let code = base.code;
    let site = code.insn_at(finding.site.svma)?;
    let around = code.innermost_loop(code.block_of(site))?;
    let in_loop = loop_hits(&side.heat.by_svma, code, around);
    let in_function = side.heat.between(base.function.start, base.function.end());
    let share_of_function = share_of(in_loop, in_function, Whole::FunctionSamples);
    if share_of_function.percent.value < LEAST_LOOP_SHARE {
        return None;
    }
    let behind = (site + SHADOW_INSTRUCTIONS).min(code.insns.len() - 1);
    let shadow = side.heat.between(finding.site.svma, code.insns[behind].svma);
    let share_behind_site = share_of(shadow, in_loop, Whole::LoopSamples);
    if share_behind_site.percent.value < LEAST_SHADOW {
        return None;
    }
    describe_sites(side.image, base.debug, std::slice::from_mut(&mut finding));
    let loop_heat = LoopHeat::of(code.bodies(around), code, base.debug, share_of_function);
    Some(Cause {
        arm,
        part_in_function: base.row.share_of_difference.clone(),
        mentions: mentions(&finding.site, loop_heat.lines.as_ref(), text),
        loop_heat,
        share_behind_site,
        in_other_arm,
        counted: None,
        hottest_set: hottest_set(side.heat, code, &finding),
        finding,
    })
}

/// Lines between the first and last of the loop that index the site's variable.
fn mentions(
    site: &Site,
    lines: Option<&(SourceLine, SourceLine)>,
    text: &mut SourceText,
) -> Vec<SourceLine> {
    let (Some(variable), Some((first, last))) = (&site.variable, lines) else { return Vec::new() };
    if site.line().is_some() {
        return Vec::new();
    }
    let element = format!("{variable}[");
    (first.line..=last.line)
        .map(|line| SourceLine { line, ..first.clone() })
        .filter(|at| text.line(at).is_some_and(|code| code.contains(&element)))
        .take(MOST_MENTIONS)
        .collect()
}

pub(super) fn share_of(hits: u64, total: u64, of: Whole) -> Share {
    Share { percent: share_of_samples(hits, total), of }
}

fn block_hits(heat: &Heat, code: &FunctionCode, block: usize) -> u64 {
    let body = &code.blocks[block];
    heat.between(code.insns[body.first].svma, code.insns[body.end - 1].end())
}

/// The set whose blocks were sampled most; ties go to the nearer one.
fn hottest_set(heat: &Heat, code: &FunctionCode, finding: &Finding) -> Option<usize> {
    let hits = |set: &Vec<usize>| {
        set.iter()
            .filter_map(|at| code.insn_at(finding.others.get(*at)?.svma))
            .map(|insn| block_hits(heat, code, code.block_of(insn)))
            .min()
            .unwrap_or(0)
    };
    let best = finding.sets.iter().map(hits).max()?;
    finding.sets.iter().position(|set| hits(set) == best)
}
