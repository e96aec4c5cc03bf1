//! All rules over all functions of a program, in parallel.

use std::sync::Arc;

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use schemars::JsonSchema;
use serde::Serialize;

use super::finding::{Describer, first_site};
use super::strings::{self, StringEntry, StringSummary};
use super::{CallGraph, Callees, Calls, Candidate, FunctionView, HAZARDS, Hazard, Heat, Needs};
use crate::code::{
    Addresses, Coverage, DebugInfo, Function, FunctionCode, FunctionQuery, FunctionSource, Image,
    NeededLibrary, global_functions,
};
use crate::foreign::plain;
use crate::machine::Design;
use crate::model::{Finding, Site, Svma};

/// Without a profile, longer functions that a loop calls are not looked at outside their own loops: a
/// call takes long beside what one load waits.
const SHORT_FUNCTION_BYTES: u64 = 256;

/// How much less such a function counts that no loop of its file calls: one that other files call, in an
/// object file, or that was asked for by name.
const NOT_CALLED: f64 = 0.25;

/// Rules to look with.
pub type RuleSet = Vec<&'static dyn Hazard>;

/// Which part of a program to look at, and with which rules.
#[derive(Clone)]
pub struct ScanFilter {
    /// Only these functions; `None` takes all.
    pub function: Option<FunctionQuery>,
    /// Only functions in which the profile has a sample.
    pub only_hot: bool,
    /// Rules to run.
    pub rules: RuleSet,
}

impl Default for ScanFilter {
    fn default() -> Self {
        Self { function: None, only_hot: false, rules: HAZARDS.to_vec() }
    }
}

impl ScanFilter {
    /// The functions to look at, in the order of their addresses.
    fn chosen<'i>(&self, image: &'i Image, heat: Option<&Heat>) -> Vec<&'i Function> {
        let mut chosen = match &self.function {
            Some(query) => query.all_in(image),
            None => image.functions().iter().collect(),
        };
        if let Some(heat) = heat.filter(|_| self.only_hot) {
            chosen.retain(|function| heat.runs(function));
        }
        chosen
    }

    fn counts_strings(&self) -> bool {
        self.rules.iter().any(|r| r.id() == super::REP_STRING.id())
    }
}

/// What a scan saw.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ScanReport {
    /// The program.
    pub program: String,
    /// Its build id, if the linker left one.
    pub build_id: Option<String>,
    /// Where function boundaries came from.
    pub function_source: FunctionSource,
    /// The rules that looked.
    pub rules: Vec<String>,
    /// Functions that were looked at.
    pub functions: usize,
    /// Bytes of machine code in them.
    pub code_bytes: u64,
    /// How much of the program's machine code that is; absent where only some functions were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<Coverage>,
    /// Libraries that the program names and that hold more code than it does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub larger_libraries: Vec<NeededLibrary>,
    /// Findings, most deserving first.
    pub findings: Vec<Finding>,
    /// Inlined string instructions, when `rep-string` looked.
    pub strings: Option<StringSummary>,
    /// Share of the samples of a profile that fell on this program, when one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heat_share: Option<f64>,
    /// What is missing from it and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Runs the rules over the functions that the filter takes. Source lines are not filled in; see
/// [`describe_sites`].
#[must_use]
pub fn scan(
    image: &Image,
    filter: &ScanFilter,
    design: &Design,
    heat: Option<&Heat>,
) -> ScanReport {
    let chosen: Vec<&Function> = filter.chosen(image, heat);
    let of_program: RuleSet =
        filter.rules.iter().copied().filter(|r| r.needs() == Needs::Program).collect();
    let understood = || filter.rules.iter().filter(|r| r.understands(image.architecture()));
    let asks_for_calls =
        understood().any(|r| r.needs() == Needs::Program || r.looks_where_called());
    let callees = Arc::<Callees>::default();
    let parts: Vec<Part> = chosen
        .par_iter()
        .map(|f| {
            let view = FunctionView::of(image, f).knowing(&callees);
            let mut part = look(&view, &filter.rules, design, heat);
            part.calls = if asks_for_calls { Calls::of(&view) } else { None };
            part
        })
        .filter(Part::has_something)
        .collect();
    let count = parts.iter().map(|part| part.findings.len()).sum();
    let mut findings: Vec<Finding> = Vec::with_capacity(count);
    let mut strings = Vec::new();
    let mut calls = Vec::with_capacity(parts.len());
    for part in parts {
        findings.extend(part.findings);
        strings.extend(part.strings);
        calls.extend(part.calls.map(|c| (c.function, c)));
    }
    let graph = CallGraph::of(image, calls.into_iter().collect());
    for rule in of_program {
        findings.extend(look_around(&graph, rule, design, heat));
    }
    let called: Vec<(&Function, f64)> = if understood().any(|r| r.looks_where_called()) {
        let by_loops = graph.called_from_loops().into_iter();
        let by_loops: FxHashSet<Svma> =
            by_loops.map(|target| callees.reached(image, target)).collect();
        let by_others = global_functions(image);
        // How much each counts.
        let runs = |f: &Function| {
            let is_short = f.size_bytes <= SHORT_FUNCTION_BYTES;
            match heat {
                Some(heat) => heat.runs(f).then_some(1.0),
                None if is_short && by_loops.contains(&f.start) => Some(1.0),
                None if filter.function.is_some() => Some(NOT_CALLED),
                None => {
                    (is_short && by_others.binary_search(&f.start).is_ok()).then_some(NOT_CALLED)
                }
            }
        };
        chosen.iter().filter_map(|f| Some((*f, runs(f)?))).collect()
    } else {
        Vec::new()
    };
    for rule in understood().filter(|r| r.looks_where_called()) {
        findings.par_extend(called.par_iter().flat_map_iter(|(f, counts)| {
            let view = FunctionView::of(image, f).knowing(&callees);
            let mut describer = Describer::of(&view, design, heat).outside_loops();
            let candidates = rule.look_where_called(&view, design).into_iter();
            let weighed = candidates.map(|c| Candidate { weight: c.weight * counts, ..c });
            weighed.map(|c| describer.finding(*rule, c)).collect::<Vec<_>>()
        }));
    }
    findings
        .sort_by(|a: &Finding, b| b.score.total_cmp(&a.score).then(a.site.svma.cmp(&b.site.svma)));
    let strings = filter.counts_strings().then(|| {
        if filter.function.is_none() {
            strings.extend(strings::outside_functions(image));
        }
        StringSummary::of(strings)
    });
    ScanReport {
        program: plain(&image.path().to_string_lossy()).into_owned(),
        build_id: image.build_id().map(str::to_owned),
        function_source: image.function_source(),
        rules: filter.rules.iter().map(|r| r.id().to_owned()).collect(),
        functions: chosen.len(),
        code_bytes: chosen.iter().map(|f| f.size_bytes).sum(),
        coverage: (filter.function.is_none() && !filter.only_hot).then(|| image.coverage()),
        larger_libraries: Vec::new(),
        findings,
        strings,
        heat_share: heat.map(Heat::program_share),
        notes: Vec::new(),
    }
}

struct Part {
    findings: Vec<Finding>,
    strings: Vec<StringEntry>,
    calls: Option<Calls>,
}

impl Part {
    fn has_something(&self) -> bool {
        !self.findings.is_empty() || !self.strings.is_empty() || self.calls.is_some()
    }
}

/// Runs a rule that looks at several functions at once.
fn look_around(
    graph: &CallGraph<'_>,
    rule: &'static dyn Hazard,
    design: &Design,
    heat: Option<&Heat>,
) -> Vec<Finding> {
    let view_of =
        |start: Svma| graph.image.function_at(start).map(|f| FunctionView::of(graph.image, f));
    let found = rule.look_at_program(graph, design);
    // Many loops call the same functions.
    let mut starts: Vec<Svma> = found.iter().flat_map(|(.., others)| others).copied().collect();
    starts.sort_unstable();
    starts.dedup();
    let first_sites: FxHashMap<Svma, Site> = starts
        .into_par_iter()
        .filter_map(|start| Some((start, first_site(&view_of(start)?)?)))
        .collect();
    let by_function: Vec<&[(Svma, Candidate, Vec<Svma>)]> =
        found.chunk_by(|a, b| a.0 == b.0).collect();
    by_function
        .into_par_iter()
        .filter_map(|group| Some((view_of(group.first()?.0)?, group)))
        .flat_map_iter(|(view, group)| {
            let mut describer = Describer::of(&view, design, heat);
            let describe = |(_, candidate, others): &(Svma, Candidate, Vec<Svma>)| {
                let mut finding = describer.finding(rule, candidate.clone());
                let sites = others.iter().filter_map(|start| first_sites.get(start));
                finding.others = sites.cloned().collect();
                finding
            };
            group.iter().map(describe).collect::<Vec<_>>()
        })
        .collect()
}

/// Runs rules over one function.
#[must_use]
pub fn scan_function(
    image: &Image,
    function: &Function,
    rules: &[&'static dyn Hazard],
    design: &Design,
) -> Vec<Finding> {
    look(&FunctionView::of(image, function), rules, design, None).findings
}

fn look(
    view: &FunctionView<'_>,
    rules: &[&'static dyn Hazard],
    design: &Design,
    heat: Option<&Heat>,
) -> Part {
    let mut describer = Describer::of(view, design, heat);
    let mut part = Part { findings: Vec::new(), strings: Vec::new(), calls: None };
    let architecture = view.image.architecture();
    for rule in rules.iter().filter(|r| r.understands(architecture) && view.has(r.needs())) {
        for candidate in rule.look(view, design) {
            part.findings.push(describer.finding(*rule, candidate));
        }
        if rule.id() == super::REP_STRING.id() {
            let symbol = Some(view.function.symbol.as_str());
            part.strings.extend(view.strings().iter().map(|s| StringEntry::of(symbol, s)));
        }
    }
    part
}

/// Fills in what debug information knows about the sites of findings: lines and variables.
pub fn describe_sites(image: &Image, debug: &DebugInfo<'_>, findings: &mut [Finding]) {
    for finding in findings {
        let Some(function) = image.function_at(finding.site.svma) else { continue };
        let code = FunctionCode::of(image, function);
        let addresses = Addresses::of(&code);
        for site in std::iter::once(&mut finding.site).chain(&mut finding.others) {
            site.source = debug.frames(site.svma);
            let Some(index) = code.insn_at(site.svma) else { continue };
            let (insn, load) = (&code.insns[index], addresses.load(&code, index));
            if let Some(access) = insn.load.or(insn.store) {
                let symbolic = load.or(addresses.store(&code, index));
                site.variable = debug.variable(function.start, &access.address, symbolic.as_ref());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::code::fixture;
    use crate::machine::Microarchitecture;
    use crate::model::{FileOffset, HotPlace, HotSpot};

    /// mov ecx, 21; rep movsq; ret
    const COPY: &[u8] = &[0xb9, 21, 0, 0, 0, 0xf3, 0x48, 0xa5, 0xc3];

    fn image() -> Image {
        let functions: [(&str, &[u8]); 3] =
            [("first_copy", COPY), ("still", &[0x90, 0xc3]), ("copy", COPY)];
        Image::parse(Path::new("p"), fixture::program(&functions)).unwrap()
    }

    fn scanned(filter: &ScanFilter, heat: Option<&Heat>) -> ScanReport {
        scan(&image(), filter, &Design::of(Microarchitecture::CascadeLake), heat)
    }

    /// A profile of a thousand samples, so many of them in a function.
    fn profile(name: &str, hits: usize) -> Heat {
        let spot = |object: Option<&str>, name: &str| HotSpot {
            object: object.map(str::to_owned),
            place: HotPlace::Function { name: name.into(), offset_bytes: Some(0) },
            weight: 1.0,
        };
        let spots = [vec![spot(None, name); hits], vec![spot(Some("q"), name); 1000 - hits]];
        Heat::of(&image(), &spots.concat())
    }

    #[test]
    fn a_scan_sees_all_functions_or_those_with_such_a_name() {
        let all = scanned(&ScanFilter::default(), None);
        assert_eq!((all.functions, all.code_bytes, all.rules.len()), (3, 20, HAZARDS.len()));
        assert!(all.coverage.is_some() && all.heat_share.is_none());
        let names: Vec<&str> = all.findings.iter().map(|f| f.site.function.as_str()).collect();
        assert_eq!(names, ["first_copy", "copy"], "equal scores come by address");
        assert_eq!(all.strings.unwrap().sites, 2);
        let named = |name: &str| {
            scanned(
                &ScanFilter { function: Some(FunctionQuery::new(name)), ..ScanFilter::default() },
                None,
            )
        };
        assert_eq!(
            [named("copy").functions, named("first").functions, named("x").functions],
            [2, 1, 0]
        );
        assert!(named("copy").coverage.is_none());
        // Without the rule nobody counts strings.
        let others = HAZARDS.iter().copied().filter(|r| r.id() != "rep-string").collect();
        let others = scanned(&ScanFilter { rules: others, ..ScanFilter::default() }, None);
        assert!(others.findings.is_empty() && others.strings.is_none());
    }

    #[test]
    fn what_a_profile_saw_comes_first_and_alone_where_that_is_asked_for() {
        let heat = profile("copy", 300);
        let all = scanned(&ScanFilter::default(), Some(&heat));
        assert_eq!((all.functions, all.heat_share), (3, Some(0.3)));
        let [hot, cold] = &all.findings[..] else { panic!("{:?}", all.findings) };
        assert_eq!(
            (hot.site.function.as_str(), cold.site.function.as_str()),
            ("copy", "first_copy")
        );
        assert_eq!((hot.heat_share, cold.heat_share), (Some(0.3), Some(0.0)));
        // Its score is in per cent of the run, outside of loops a quarter; what was not seen keeps a thousandth.
        let each = hot.cycles_lost.middle() * 0.25;
        assert!((hot.score - each * 30.0).abs() < 1e-9, "{hot:?}");
        assert!((cold.score - each * 0.001).abs() < 1e-9, "{cold:?}");
        let plain = &scanned(&ScanFilter::default(), None).findings[0];
        assert_eq!((plain.score, plain.heat_share, plain.block_share), (each, None, None));
        // Three samples may have been missed where there was none.
        assert!(cold.block_share.is_some_and(|share| (share - 0.003).abs() < 1e-9), "{cold:?}");
        let only = ScanFilter { only_hot: true, ..ScanFilter::default() };
        let hot = scanned(&only, Some(&heat));
        assert_eq!((hot.functions, hot.findings.len(), hot.coverage.is_some()), (1, 1, false));
        assert_eq!(scanned(&only, None).functions, 3, "without a profile all are");
        let both = ScanFilter { function: Some(FunctionQuery::new("first")), ..only };
        assert_eq!(scanned(&both, Some(&heat)).functions, 0);
    }

    #[test]
    fn straight_code_that_is_asked_for_by_name_is_looked_at() {
        // mov [rdi], esi; mov [rdi+4], esi; mov rax, [rdi]; ret
        let line = [0x89, 0x37, 0x89, 0x77, 0x04, 0x48, 0x8b, 0x07, 0xc3];
        // (loop:) call called, 16 bytes behind; dec edi; jnz loop; ret
        let caller = [0xe8, 11, 0, 0, 0, 0xff, 0xcf, 0x75, 0xf7, 0xc3];
        let functions: [(&str, &[u8]); 3] =
            [("caller", &caller), ("called", &line), ("alone", &line)];
        let image = fixture::image(&functions).unwrap();
        let design = Design::of(Microarchitecture::CascadeLake);
        let scores = |name: Option<&str>| {
            let function = name.map(FunctionQuery::new);
            let rules = vec![&super::super::STORE_FORWARD as &dyn Hazard];
            let found =
                scan(&image, &ScanFilter { function, only_hot: false, rules }, &design, None);
            let told = |f: &Finding| (f.site.function.clone(), f.score);
            found.findings.iter().map(told).collect::<Vec<_>>()
        };
        let (all, asked) = (scores(None), scores(Some("alone")));
        assert_eq!((all.len(), all[0].0.as_str()), (1, "called"));
        assert_eq!((asked.len(), asked[0].0.as_str()), (1, "alone"));
        assert!((asked[0].1 - all[0].1 / 4.0).abs() < 1e-9, "{asked:?} {all:?}");
    }

    #[test]
    fn string_instructions_are_named_by_what_they_move() {
        // rep movsb; rep movsw; rep movsd; rep stosd; rep stosb
        let code = [0xf3, 0xa4, 0xf3, 0x66, 0xa5, 0xf3, 0xa5, 0xf3, 0xab, 0xf3, 0xaa, 0xc3];
        let image = Image::parse(Path::new("p"), fixture::program(&[("f", &code)])).unwrap();
        let design = Design::of(Microarchitecture::CascadeLake);
        let found = scan(&image, &ScanFilter::default(), &design, None).strings.unwrap();
        let names: Vec<&str> = found.list.iter().map(|e| e.instruction.as_str()).collect();
        assert_eq!(names, ["rep movsb", "rep movsw", "rep movsd", "rep stosd", "rep stosb"]);
        assert!(found.list.iter().all(|e| e.function.as_deref() == Some("f")));
    }

    #[test]
    fn one_function_is_looked_at_with_the_rules_that_are_given() {
        let (image, design) = (image(), Design::of(Microarchitecture::CascadeLake));
        let first = &image.functions()[0];
        assert_eq!(scan_function(&image, first, HAZARDS, &design).len(), 1);
        assert!(scan_function(&image, first, &[], &design).is_empty());
        let found = scan_function(&image, first, HAZARDS, &design).remove(0);
        assert_eq!(
            (found.rule.as_str(), found.site.offset_bytes, found.loop_depth),
            ("rep-string", 5, 0)
        );
        let place = found.in_file.unwrap();
        assert_eq!((place.offset, place.size_bytes), (FileOffset(fixture::CODE_START.1.0 + 5), 3));
    }
}
