//! All rules over all functions of a program, in parallel.

use rayon::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hasher;

use super::{Candidate, HAZARDS, Hazard};
use crate::code::{Addresses, DebugInfo, Function, FunctionCode, FunctionSource, Image, x86};
use crate::machine::MachineProfile;
use crate::model::{Finding, FindingId, Grade, Site};

/// Which part of a program to look at.
#[derive(Clone, Debug, Default)]
pub struct ScanFilter {
    /// Only functions whose name contains this text; `None` takes all.
    pub function: Option<String>,
}

impl ScanFilter {
    fn takes(&self, function: &Function) -> bool {
        self.function.as_ref().is_none_or(|wanted| {
            function.symbol.contains(wanted.as_str()) || function.name().contains(wanted.as_str())
        })
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
    /// Functions that were looked at.
    pub functions: usize,
    /// Their machine code.
    pub code_bytes: u64,
    /// Findings, most deserving first.
    pub findings: Vec<Finding>,
}

/// Runs all rules over the functions that the filter takes. Source lines are not filled in; see
/// [`describe_sites`].
#[must_use]
pub fn scan(image: &Image, filter: &ScanFilter, profile: &MachineProfile) -> ScanReport {
    let chosen: Vec<&Function> = image.functions().iter().filter(|f| filter.takes(f)).collect();
    let mut findings: Vec<Finding> =
        chosen.par_iter().flat_map_iter(|f| scan_function(image, f, profile)).collect();
    findings.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.site.svma.cmp(&b.site.svma)));
    ScanReport {
        program: image.path().display().to_string(),
        build_id: image.build_id().map(str::to_owned),
        function_source: image.function_source(),
        functions: chosen.len(),
        code_bytes: chosen.iter().map(|f| f.size_bytes).sum(),
        findings,
    }
}

/// Runs all rules over one function.
#[must_use]
pub fn scan_function(image: &Image, function: &Function, profile: &MachineProfile) -> Vec<Finding> {
    let code = FunctionCode::of(image, function);
    // Every rule so far is about loops; most functions have none.
    if code.loops.is_empty() {
        return Vec::new();
    }
    let addresses = Addresses::of(&code);
    let mut repeats = HashMap::new();
    HAZARDS
        .iter()
        .flat_map(|rule| rule.check(&code, &addresses, profile).into_iter().map(move |c| (rule, c)))
        .map(|(rule, candidate)| {
            let mut finding = finding(image, function, &code, *rule, candidate, &mut repeats);
            finding.grade = rule.grade(profile);
            finding
        })
        .collect()
}

/// Fills in what debug information knows about the sites of findings: lines and variables.
pub fn describe_sites(image: &Image, debug: &DebugInfo, findings: &mut [Finding]) {
    for finding in findings {
        let Some(function) = image.function_at(finding.site.svma) else { continue };
        let code = FunctionCode::of(image, function);
        let addresses = Addresses::of(&code);
        for site in std::iter::once(&mut finding.site).chain(&mut finding.others) {
            site.source = debug.frames(site.svma);
            let Some(index) = code.insn_at(site.svma) else { continue };
            let (insn, load) = (&code.insns[index], addresses.load(index));
            if let Some(access) = insn.load.or(insn.store) {
                let symbolic = load.or(addresses.store(index));
                site.variable = debug.variable(function.start, &access.address, symbolic.as_ref());
            }
        }
    }
}

fn site(image: &Image, function: &Function, code: &FunctionCode, index: usize) -> Site {
    let insn = &code.insns[index];
    let bytes = image.code_at(insn.svma, u64::from(insn.length_bytes));
    Site {
        function: function.name(),
        offset_bytes: insn.svma.distance_from(function.start).unwrap_or(0),
        svma: insn.svma,
        text: x86::text(bytes, insn.svma),
        access_bytes: insn.load.or(insn.store).map_or(0, |a| a.size_bytes),
        source: Vec::new(),
        variable: None,
    }
}

fn finding(
    image: &Image,
    function: &Function,
    code: &FunctionCode,
    rule: &dyn Hazard,
    candidate: Candidate,
    repeats: &mut HashMap<u64, u32>,
) -> Finding {
    let main = site(image, function, code, candidate.site);
    let indices: BTreeSet<usize> = candidate.sets.iter().flatten().copied().collect();
    let others: Vec<Site> = indices.iter().map(|i| site(image, function, code, *i)).collect();
    let place = |insn: &usize| indices.range(..insn).count();
    let sets = candidate.sets.iter().map(|set| set.iter().map(place).collect()).collect();
    Finding {
        rule: rule.id().to_owned(),
        id: stable_id(rule.id(), &function.symbol, &main, &others, repeats),
        loop_depth: code.innermost_loop(code.block_of(candidate.site)).map_or(0, |l| l.depth),
        site: main,
        others,
        sets,
        certainty: candidate.certainty,
        grade: Grade::Pattern,
        distance_instructions: candidate.distance_instructions,
        score: candidate.score,
        mechanism: candidate.mechanism,
        remedy: candidate.remedy,
    }
}

/// A name made of the rule, the function and the instructions' text, not of addresses, so that it
/// survives moved code and edits elsewhere. Equal ones in a function are numbered.
fn stable_id(
    rule: &str,
    symbol: &str,
    main: &Site,
    others: &[Site],
    repeats: &mut HashMap<u64, u32>,
) -> FindingId {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    let stem = symbol.split('.').next().unwrap_or(symbol);
    for text in [rule, stem, &main.text].into_iter().chain(others.iter().map(|s| s.text.as_str())) {
        hash.write(text.as_bytes());
        hash.write(&[0]);
    }
    let repeat = repeats.entry(hash.finish()).and_modify(|n| *n += 1).or_insert(0);
    hash.write(&repeat.to_le_bytes());
    FindingId(format!("{rule}-{:08x}", hash.finish() as u32))
}

/// FNV-1a: the standard library's hasher may change from release to release, ids may not.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Svma;

    fn at(svma: u64, text: &str) -> Site {
        Site {
            function: "f".into(),
            offset_bytes: 0,
            svma: Svma(svma),
            text: text.into(),
            access_bytes: 0,
            source: vec![],
            variable: None,
        }
    }

    #[test]
    fn ids_survive_moved_code_and_tell_repeats_apart() {
        let id = |base: u64, symbol: &str, repeats: &mut _| {
            stable_id("r", symbol, &at(base, "load"), &[at(base + 4, "store")], repeats)
        };
        let mut repeats = HashMap::new();
        let first = id(0x1000, "f", &mut repeats);
        assert_eq!(first, id(0x2000, "f.isra.0", &mut HashMap::new()));
        assert_ne!(first, id(0x1000, "f", &mut repeats));
        assert_ne!(first, id(0x1000, "g", &mut HashMap::new()));
        assert_eq!(first.0.len(), "r-".len() + 8);
    }
}
