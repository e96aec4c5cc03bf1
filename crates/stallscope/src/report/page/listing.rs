//! The hot loop around a blocked load: each instruction with its samples, and an arrow from each store to the load that reads
//! from it; the hottest loop of the other build beside it.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use askama::filters::HtmlSafe;

use super::bar::Bar;
use super::number::Number;
use super::scale::Scale;
use crate::compare::Arm;
use crate::explain::{Cause, LoopHeat};
use crate::model::{Grade, Site, SourceLine, Svma};

/// Height of a line of the listing, in pixels.
const LINE: usize = 22;
/// In a longer listing, only lines near a site or with so many per cent of its samples are shown.
const LONG: usize = 60;
const LEAST_PERCENT: f64 = 1.0;
/// Lines around a site that are shown.
const NEAR: usize = 3;

/// The instructions of one cause.
#[derive(Debug)]
pub(super) struct Listing {
    pub function: String,
    pub mechanism: String,
    pub remedy: String,
    pub grade: Grade,
    pub about: String,
    pub lines: Vec<Line>,
    /// What the other build's loop is, and its instructions.
    pub other: Option<(String, Vec<Line>)>,
    pub arrows: Vec<Arrow>,
    pub height: usize,
    pub facts: Vec<(&'static str, Number)>,
}

/// One instruction with its source.
#[derive(Debug, Default, Template)]
#[template(path = "line.html")]
pub(super) struct Line {
    address: String,
    text: String,
    source: String,
    /// What it is to the cause: `load`, `store`, or nothing.
    role: &'static str,
    /// Whether the other build's loop has no such instruction.
    is_changed: bool,
    samples: Option<(Number, Bar)>,
}

impl HtmlSafe for Line {}

/// From a store to the load.
#[derive(Debug)]
pub(super) struct Arrow {
    pub path: String,
    pub head: String,
    pub title: String,
}

impl Listing {
    pub fn of(cause: &Cause) -> Self {
        let finding = &cause.finding;
        let set = finding.sets.get(cause.hottest_set.unwrap_or(0));
        let stores = set.into_iter().flatten().filter_map(|index| finding.others.get(*index));
        let stores: Vec<&Site> = stores.collect();
        let sites = stores.iter().map(|site| (*site, "store")).chain([(&finding.site, "load")]);
        let other = cause.other_loop.as_ref();
        let [here, there] = [cause.arm, cause.arm.other()];
        let lines = lines(here, &cause.loop_heat, sites, other);
        let middle = |svma: Svma| {
            let address = svma.to_string();
            let line = lines.iter().position(|line| line.address == address);
            LINE * line.unwrap_or(0) + LINE / 2
        };
        let to = middle(finding.site.svma);
        let arrow = |(nth, store): (usize, &&Site)| {
            let (from, left) = (middle(store.svma), 30 - 9 * (nth % 4));
            Arrow {
                path: format!("M50 {from}H{left}V{to}H44"),
                head: format!("M42 {}L50 {to}L42 {}Z", to.saturating_sub(5), to + 5),
                title: format!(
                    "the load at {} reads what the store at {} wrote",
                    finding.site.svma, store.svma
                ),
            }
        };
        Self {
            function: finding.site.function.clone(),
            mechanism: finding.mechanism.clone(),
            remedy: finding.remedy.clone(),
            grade: finding.grade,
            arrows: stores.iter().enumerate().map(arrow).collect(),
            height: LINE * lines.len(),
            about: about(here, &cause.loop_heat),
            other: other.map(|of| {
                let lines = self::lines(there, of, std::iter::empty(), Some(&cause.loop_heat));
                (about(there, of), lines)
            }),
            lines,
            facts: facts(cause),
        }
    }
}

/// Which loop it is.
fn about(arm: Arm, of: &LoopHeat) -> String {
    let build = ["BEFORE", "AFTER"][arm.index()];
    let share = of.share_of_function.percent.value;
    format!("{build}: {} to {}, {share:.1} % of its function's samples", of.start, of.end)
}

/// An instruction without where it jumps to, which differs from build to build.
fn kept(text: &str) -> &str {
    let is_jump = text.starts_with('j') || text.starts_with("call");
    if is_jump { text.split(' ').next().unwrap_or(text) } else { text }
}

/// The loop and the sites by address; of a long one, what is near a site or hot.
fn lines<'a>(
    arm: Arm,
    of: &LoopHeat,
    sites: impl Iterator<Item = (&'a Site, &'static str)>,
    other: Option<&LoopHeat>,
) -> Vec<Line> {
    let hot = &of.instructions;
    let others: Option<BTreeSet<&str>> =
        other.map(|of| of.instructions.iter().map(|insn| kept(&insn.text)).collect());
    let (all, most) = hot.iter().fold((0, 0), |(all, most): (u64, u64), insn| {
        (all.saturating_add(insn.samples), most.max(insn.samples))
    });
    let scale = Scale::over([0.0, most as f64]);
    let percent = |samples: u64| 100.0 * samples as f64 / all.max(1) as f64;
    let mut by_address: BTreeMap<Svma, (Line, bool)> = BTreeMap::new();
    for insn in hot {
        let share = percent(insn.samples);
        let from = format!("{} of {all} samples in this loop", insn.samples);
        let bar = Bar::between(scale, [0.0, insn.samples as f64], None, ["a", "b"][arm.index()]);
        let line = Line {
            address: insn.svma.to_string(),
            text: insn.text.clone(),
            source: source(insn.source.as_ref()),
            role: "",
            is_changed: others.as_ref().is_some_and(|texts| !texts.contains(kept(&insn.text))),
            samples: (insn.samples > 0).then(|| (Number::new(format!("{share:.1} %"), from), bar)),
        };
        by_address.insert(insn.svma, (line, share >= LEAST_PERCENT));
    }
    for (site, role) in sites {
        let line = by_address.entry(site.svma).or_default();
        let variable = site.variable.as_ref().map(|name| format!("  ; {name}")).unwrap_or_default();
        line.0 = Line {
            address: site.svma.to_string(),
            text: format!("{}{variable}", site.text),
            source: source(site.line()),
            role,
            is_changed: line.0.is_changed,
            samples: line.0.samples.take(),
        };
    }
    shortened(by_address.into_values().collect())
}

fn shortened(lines: Vec<(Line, bool)>) -> Vec<Line> {
    let is_long = lines.len() > LONG;
    let is_site: Vec<bool> = lines.iter().map(|(line, _)| !line.role.is_empty()).collect();
    let near = |n: usize| {
        is_site[n.saturating_sub(NEAR)..(n + NEAR + 1).min(is_site.len())].contains(&true)
    };
    let mut shown: Vec<Line> = Vec::new();
    let mut left_out = 0;
    let gap = |left_out| Line { text: format!("… {left_out} instructions"), ..Line::default() };
    for (n, (line, is_hot)) in lines.into_iter().enumerate() {
        if is_long && !is_hot && !near(n) {
            left_out += 1;
            continue;
        }
        if left_out > 0 {
            shown.push(gap(std::mem::take(&mut left_out)));
        }
        shown.push(line);
    }
    shown.extend((left_out > 0).then(|| gap(left_out)));
    shown
}

fn source(line: Option<&SourceLine>) -> String {
    line.map(ToString::to_string).unwrap_or_default()
}

/// What was counted and sampled about it.
fn facts(cause: &Cause) -> Vec<(&'static str, Number)> {
    let heat = &cause.loop_heat;
    let place = format!("the loop {} to {}", heat.start, heat.end);
    let in_loop = Number::share(&heat.share_of_function, &place);
    let behind = Number::share(&cause.share_behind_site, "the load and what waits for it");
    let mut facts = vec![
        ("of its function's samples are in the loop", in_loop),
        ("of the loop's samples are on the load and behind it", behind),
    ];
    if let Some(counted) = &cause.counted {
        let text = format!("{:.1} %", 100.0 * counted.blocked_share());
        let (here, windows) = (counted.here.per_thousand(), counted.here.windows);
        let from =
            format!("{} of {} executions, windows: {windows}", counted.blocked, counted.executions);
        facts.push(("of its executions were blocked", Number::new(text, from)));
        let there = counted.there.as_ref();
        let there = there.map_or("-".to_owned(), |tally| format!("{:.1}", tally.per_thousand()));
        let number = Number::new(
            format!("{here:.1}, other build {there}"),
            "counted in the windows of both builds",
        );
        facts.push(("blocked loads in 1000 instructions of the function", number));
    }
    facts
}
