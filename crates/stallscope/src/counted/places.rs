//! The places of one file of which something was counted: instructions where it happened, with the finding that names
//! them where one does, and what the rules say of code that costs each time that it runs.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;

use super::sampled::Sampled;
use super::window::{Happened, Windows};
use super::{CountedSite, Event, Folded, LEAST_EXECUTIONS, RARE_PART};
use crate::code::{DebugInfo, FunctionCode, Image};
use crate::hazards::{
    Hazard, RuleSet, SPLIT_ACCESS, STORE_FORWARD, ScanFilter, ScanReport, find_rule, scan,
};
use crate::machine::Design;
use crate::model::{FileOffset, Finding, Grade, LEAST_SHARE, Measurement, Site, Svma};
use crate::sim::Sites;
use crate::stats::shares::share_of_samples;

/// Nothing prices a load that meets a store in the low bits of its address only; what was measured is 1 to 3 cycles.
const ALIASED_CYCLES: f64 = 2.0;

/// A place with fewer samples is not told, however few there are in all.
const LEAST_SAMPLES: f64 = 4.5;

/// What was found in a file.
pub(super) struct Looked {
    pub functions: usize,
    pub findings: usize,
    pub sites: Vec<CountedSite>,
    pub folded: Folded,
    pub notes: Vec<String>,
}

/// What happened at an instruction.
struct Counted<'a> {
    svma: Svma,
    event: Event,
    events: u64,
    happened: &'a Happened,
    finding: Option<&'a Finding>,
}

/// Scans the hot functions of a file and holds them against what happened in them.
pub(super) fn look(
    image: &Image,
    path: &Path,
    sampled: &Sampled,
    windows: &Windows,
    rules: &RuleSet,
    design: &Design,
) -> Looked {
    let heat = sampled.heat(image, path);
    let filter = ScanFilter { function: None, only_hot: true, rules: rules.clone() };
    let report = scan(image, &filter, design, Some(&heat));
    let svma = |at: &FileOffset| image.svma_of(*at);
    let hits = sampled.files.get(path).into_iter().flatten();
    let hits = hits.filter_map(|(at, n)| Some((svma(at)?, *n))).collect();
    let happened: BTreeMap<Svma, &Happened> =
        windows.in_file(path).filter_map(|(at, it)| Some((svma(&at)?, it))).collect();
    let mut folded = Folded::default();
    let counted = counted(&report, rules, &happened, &mut folded);
    let debug = DebugInfo::of(image);
    let mut shares = Shares { image, hits, total: sampled.sampling.samples, code: None };
    let mut sites = Sites::new(image, &debug);
    let mut shown = Vec::new();
    for one in counted {
        let Some(share) = shares.of(&one) else { continue };
        let samples = share.value / 100.0 * share.n as f64;
        if share.value < 100.0 * LEAST_SHARE || samples < LEAST_SAMPLES {
            folded.below_share += 1;
            continue;
        }
        let stores = one.happened.stores.iter().max_by_key(|(_, count)| **count);
        let stores = stores.filter(|_| one.event == Event::Blocked).map(|(stores, _)| stores);
        let mut place = |svma| sites.site(svma);
        let Some(site) = place(one.svma) else { continue };
        let stores = stores.into_iter().flatten().filter_map(svma);
        let stores: Vec<Site> = stores.filter_map(place).collect();
        let part = one.events as f64 / one.happened.executions.max(1) as f64;
        shown.push(CountedSite {
            file: path.to_owned(),
            event: one.event,
            events: one.events,
            executions: one.happened.executions,
            score: cycles(&one, design) * part * share.value,
            share,
            site,
            stores,
            finding: one
                .finding
                .cloned()
                .map(|finding| Finding { grade: finding.grade.max(Grade::Counted), ..finding }),
        });
    }
    let notes = debug.refused();
    let (functions, findings) = (report.functions, report.findings.len());
    Looked { functions, findings, sites: shown, folded, notes }
}

/// A load that meets a store in the low bits of its address waits for a cycle or a few: seldom, that is nothing.
const ALIASED_PART: f64 = 0.5;

/// Whether something happened often enough to be told.
fn is_often(happened: &Happened, event: Event) -> bool {
    let part = if event == Event::Aliased { ALIASED_PART } else { RARE_PART };
    let (events, executions) = (events_of(happened, event), happened.executions);
    executions >= LEAST_EXECUTIONS && events as f64 >= part * executions as f64
}

/// Everything that happened often enough, with the findings about it.
fn counted<'a>(
    report: &'a ScanReport,
    rules: &RuleSet,
    happened: &BTreeMap<Svma, &'a Happened>,
    folded: &mut Folded,
) -> Vec<Counted<'a>> {
    let mut named: HashMap<(Svma, Event), &Finding> = HashMap::new();
    let mut all = Vec::new();
    for finding in &report.findings {
        let (svma, event) = asks_about(finding);
        let often = |it: &&Happened| it.executions >= LEAST_EXECUTIONS;
        let Some(it) = happened.get(&svma).copied().filter(often) else {
            folded.not_run += 1;
            continue;
        };
        match event {
            Event::Ran => {
                let (events, finding) = (it.executions, Some(finding));
                all.push(Counted { svma, event, events, happened: it, finding });
            }
            _ if !is_often(it, event) => folded.not_counted += 1,
            _ => drop(named.insert((svma, event), finding)),
        }
    }
    let asked = |rule: &dyn Hazard| rules.iter().any(|r| r.id() == rule.id());
    let loads = [Event::Blocked, Event::Aliased];
    let mut events: Vec<Event> = if asked(&STORE_FORWARD) { loads.to_vec() } else { Vec::new() };
    events.extend(asked(&SPLIT_ACCESS).then_some(Event::Split));
    for (svma, it) in happened {
        for event in &events {
            let (svma, event) = (*svma, *event);
            if is_often(it, event) {
                let finding = named.get(&(svma, event)).copied();
                all.push(Counted {
                    svma,
                    event,
                    events: events_of(it, event),
                    happened: it,
                    finding,
                });
            }
        }
    }
    all
}

fn events_of(happened: &Happened, event: Event) -> u64 {
    match event {
        Event::Blocked => happened.blocked,
        Event::Split => happened.split,
        Event::Aliased => happened.aliased,
        Event::Ran => happened.executions,
    }
}

/// At which instruction what would make a finding true.
fn asks_about(finding: &Finding) -> (Svma, Event) {
    let site = finding.site.svma;
    if finding.rule == SPLIT_ACCESS.id() {
        return (site, Event::Split);
    }
    if finding.rule != STORE_FORWARD.id() {
        return (site, Event::Ran);
    }
    // At a call the load is the last of the others, in the function called.
    let load = finding.others.last().filter(|_| finding.site.text.starts_with("call"));
    (load.map_or(site, |load| load.svma), Event::Blocked)
}

/// Cycles that one event loses.
fn cycles(one: &Counted<'_>, design: &Design) -> f64 {
    let middle = |low: f64, high: f64| f64::midpoint(low, high);
    match (one.finding, one.event) {
        (Some(finding), _) => finding.cycles_lost.middle(),
        (None, Event::Blocked) => {
            let price = &design.store_forward_blocked_cycles;
            middle(price.low_cycles, price.high_cycles)
        }
        (None, Event::Split) => middle(0.0, design.line_split_price().high_cycles),
        (None, Event::Aliased | Event::Ran) => ALIASED_CYCLES,
    }
}

/// Which share of the run is where.
struct Shares<'a> {
    image: &'a Image,
    hits: BTreeMap<Svma, u64>,
    total: u64,
    /// The function that was asked about last.
    code: Option<(Svma, FunctionCode)>,
}

impl Shares<'_> {
    /// Of a place; `None` where no function holds it.
    fn of(&mut self, one: &Counted<'_>) -> Option<Measurement> {
        let of_loop = one
            .finding
            .filter(|finding| find_rule(&finding.rule).is_some_and(|rule| !rule.pays_at_site()));
        if let Some(share) = of_loop.and_then(|finding| finding.heat_share) {
            return Some(share_of_samples((share * self.total as f64).round() as u64, self.total));
        }
        let function = self.image.function_at(one.svma)?;
        if self.code.as_ref().is_none_or(|(start, _)| *start != function.start) {
            self.code = Some((function.start, FunctionCode::of(self.image, function)));
        }
        let (_, code) = self.code.as_ref()?;
        let range = around(code, code.insn_at(one.svma)?);
        let hits = self.hits.range(range).map(|(_, n)| n).sum();
        Some(share_of_samples(hits, self.total))
    }
}

/// The block of an instruction, and the instruction behind it, on which a sample of its last one lands.
fn around(code: &FunctionCode, insn: usize) -> Range<Svma> {
    let block = code.block_range(insn);
    let behind = code.insn_at(block.end).map_or(block.end, |behind| code.insns[behind].end());
    block.start..behind
}
