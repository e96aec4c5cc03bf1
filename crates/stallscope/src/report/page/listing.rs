//! The hot code of a place in both builds, side by side: each instruction with its samples and what happened to it, and an arrow
//! from each store to the load that it blocks.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use askama::filters::HtmlSafe;

use super::bar::Bar;
use super::number::Number;
use super::scale::Scale;
use crate::compare::Arm;
use crate::explain::{Cause, Explanation, HotBuild, HotCode, HotInstruction};
use crate::model::{Grade, Site, SourceLine, Svma};
use crate::report::words::grouped;

/// Height of a line of the listing, in pixels.
const LINE: usize = 22;
/// In a longer listing, only lines near a site or with so many per cent of its samples are shown.
const LONG: usize = 60;
const LEAST_PERCENT: f64 = 1.0;
/// Lines around a site that are shown.
const NEAR: usize = 3;
/// Arrows that are drawn, from the stores that block most.
const MOST_ARROWS: usize = 8;

/// The instructions of one place.
#[derive(Debug)]
pub(super) struct Listing {
    pub place: String,
    /// What a rule says of it, how certain that is, and what to try.
    pub found: Option<Found>,
    /// BEFORE and AFTER, where they have it.
    pub columns: Vec<Column>,
}

/// What a rule found there.
#[derive(Debug)]
pub(super) struct Found {
    pub mechanism: String,
    pub remedy: String,
    pub grade: Grade,
    pub facts: Vec<(&'static str, Number)>,
}

/// The instructions of one build.
#[derive(Debug)]
pub(super) struct Column {
    pub about: String,
    pub build: &'static str,
    pub lines: Vec<Line>,
    pub arrows: Vec<Arrow>,
    pub height: usize,
}

/// One instruction with its source.
#[derive(Debug, Default, Template)]
#[template(path = "line.html")]
pub(super) struct Line {
    address: String,
    text: String,
    source: String,
    /// What it is to the cause: `load`, `store`, `site`, or nothing.
    role: &'static str,
    /// Whether the other build's code has no such instruction.
    is_changed: bool,
    samples: Option<(Number, Bar)>,
    /// How often it had which mechanism.
    events: Vec<(String, Number)>,
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
    pub fn of(hot: &HotCode, explanation: &Explanation) -> Self {
        let cause = explanation.causes.iter().find(|it| it.finding.site.function == hot.place);
        let ledger = explanation.ledgers.iter().find(|ledger| ledger.place == hot.place);
        let named =
            ledger.and_then(|ledger| Some((ledger.slow_arm, ledger.named()?.site.as_ref()?)));
        let rule = cause.map(|cause| (cause.arm, &cause.finding.site));
        let columns = [Arm::A, Arm::B].into_iter().filter_map(|arm| {
            let build = hot.builds[arm.index()].as_ref()?;
            let sites = [rule, named].into_iter().flatten();
            let sites = sites.filter(|(of, site)| *of == arm && site.function == build.function);
            let other = hot.builds[arm.other().index()].as_ref();
            Some(Column::of(arm, build, sites.map(|(_, site)| site), other))
        });
        Self { place: hot.place.clone(), found: cause.map(Found::of), columns: columns.collect() }
    }
}

impl Column {
    fn of<'a>(
        arm: Arm,
        build: &'a HotBuild,
        named: impl Iterator<Item = &'a Site>,
        other: Option<&HotBuild>,
    ) -> Self {
        let blocked = &build.blocked[..build.blocked.len().min(MOST_ARROWS)];
        let stores = blocked.iter().map(|it| (&it.store, "store"));
        let named = named.map(|site| (site, "site"));
        let mut by_address = lines(arm, build, other);
        for (site, role) in stores.chain(named) {
            let (line, _) = by_address.entry(site.svma).or_default();
            let variable =
                site.variable.as_ref().map(|name| format!("  ; {name}")).unwrap_or_default();
            line.address = site.svma.to_string();
            line.text = format!("{}{variable}", site.text);
            line.source = source(site.line());
            line.role = role;
        }
        for load in blocked.iter().map(|it| it.load) {
            by_address.entry(load).and_modify(|(line, _)| line.role = "load");
        }
        let lines = shortened(by_address.into_values().collect());
        let middle = |svma: Svma| {
            let address = svma.to_string();
            let line = lines.iter().position(|line| line.address == address)?;
            Some(LINE * line + LINE / 2)
        };
        let arrows = blocked.iter().enumerate().filter_map(|(nth, pair)| {
            let (from, to) = (middle(pair.store.svma)?, middle(pair.load)?);
            let left = 30 - 9 * (nth % 4);
            Some(Arrow {
                path: format!("M50 {from}H{left}V{to}H44"),
                head: format!("M42 {}L50 {to}L42 {}Z", to.saturating_sub(5), to + 5),
                title: format!(
                    "the load at {} waits for what the store at {} wrote in {:.1} % of its executions ({} times in the windows)",
                    pair.load,
                    pair.store.svma,
                    pair.percent,
                    grouped(pair.times)
                ),
            })
        });
        let arrows = arrows.collect();
        let (extent, name) = (&build.extent, arm.build_name());
        let share = extent.share_of_function.percent.value;
        let lines_of = match &extent.lines {
            Some((first, last)) => format!(" ({first} to {})", last.line),
            None => String::new(),
        };
        Self {
            about: format!(
                "{name}: {} to {}{lines_of}, {share:.1} % of its function's samples",
                extent.start, extent.end
            ),
            build: name,
            height: LINE * lines.len(),
            lines,
            arrows,
        }
    }
}

/// An instruction without where it jumps to and how far its data are, which differ from build to build.
fn kept(text: &str) -> String {
    if text.starts_with('j') || text.starts_with("call") {
        return text.split(' ').next().unwrap_or(text).to_owned();
    }
    match text.split_once("[rip") {
        Some((start, rest)) => {
            format!("{start}[rip{}", rest.split_once(']').map_or("", |(_, behind)| behind))
        }
        None => text.to_owned(),
    }
}

/// The instructions by address, and whether each is hot.
fn lines(arm: Arm, build: &HotBuild, other: Option<&HotBuild>) -> BTreeMap<Svma, (Line, bool)> {
    let hot = &build.instructions;
    let others: Option<BTreeSet<String>> =
        other.map(|of| of.instructions.iter().map(|insn| kept(&insn.text)).collect());
    let (all, most) = hot.iter().fold((0, 0), |(all, most): (u64, u64), insn| {
        (all.saturating_add(insn.samples), most.max(insn.samples))
    });
    let scale = Scale::over([0.0, most as f64]);
    let line = |insn: &HotInstruction| {
        let share = 100.0 * insn.samples as f64 / all.max(1) as f64;
        let from = format!("{} of {all} samples that are shown here", insn.samples);
        let bar = Bar::between(scale, [0.0, insn.samples as f64], None, ["a", "b"][arm.index()]);
        let events = insn.events.iter().map(|event| {
            let executed = grouped(insn.executions);
            let from = format!("of {executed} executions in the windows, by the model of the core");
            let text = format!("{:.1} %", event.percent);
            (event.mechanism.to_string(), Number::told(text, from, event.percent))
        });
        let line = Line {
            address: insn.svma.to_string(),
            text: insn.text.clone(),
            source: source(insn.source.as_ref()),
            role: "",
            is_changed: others.as_ref().is_some_and(|texts| !texts.contains(&kept(&insn.text))),
            samples: (insn.samples > 0).then(|| (Number::new(format!("{share:.1} %"), from), bar)),
            events: events.collect(),
        };
        (insn.svma, (line, share >= LEAST_PERCENT))
    };
    hot.iter().map(line).collect()
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

impl Found {
    fn of(cause: &Cause) -> Self {
        Self {
            mechanism: cause.finding.mechanism.clone(),
            remedy: cause.finding.remedy.clone(),
            grade: cause.finding.grade,
            facts: facts(cause),
        }
    }
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
