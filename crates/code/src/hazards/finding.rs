//! From a candidate to a finding: addresses, text, stable id, rank.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hasher;
use std::ops::Range;

use super::{Candidate, FunctionView, Hazard, Heat};
use crate::code::{Image, Insn, LONGEST_INSN_BYTES};
use crate::machine::Design;
use crate::model::{Finding, FindingId, Site, Svma};

/// What a finding keeps of its rank when a profile was given and has no sample there: enough for an
/// order among the cold, too little to stand before anything that ran.
const COLD: f64 = 0.001;

/// Turns the candidates of one function into findings.
pub(super) struct Describer<'a> {
    pub view: &'a FunctionView<'a>,
    pub design: &'a Design,
    pub heat: Option<&'a Heat>,
    /// What tells findings in loops from others with the same text.
    part: &'static str,
    repeats: HashMap<u64, u32>,
}

impl<'a> Describer<'a> {
    pub fn of(view: &'a FunctionView<'a>, design: &'a Design, heat: Option<&'a Heat>) -> Self {
        Self { view, design, heat, part: "", repeats: HashMap::new() }
    }

    /// For what stands outside the loops of a function.
    pub fn outside_loops(self) -> Self {
        Self { part: " outside loops", ..self }
    }

    pub(super) fn finding(&mut self, rule: &dyn Hazard, candidate: Candidate) -> Finding {
        let view = self.view;
        let main = site(view, candidate.site);
        let indices: BTreeSet<usize> = candidate.sets.iter().flatten().copied().collect();
        let mut others: Vec<Site> = indices.iter().map(|i| site(view, *i)).collect();
        let place = |insn: &usize| indices.range(..insn).count();
        let sets = candidate.sets.iter().map(|set| set.iter().map(place).collect()).collect();
        others.extend(candidate.elsewhere.iter().filter_map(|svma| site_at(view.image, *svma)));
        let heat_share = self.heat.map(|h| h.share(view.function, &around(view, candidate.site)));
        let block_share = self
            .heat
            .filter(|_| rule.pays_at_site())
            .map(|h| block_share(h, view, candidate.site, &candidate.sets));
        let share = heat_share.map(|all| block_share.map_or(all, |own| own.min(all)));
        // One per cent of a run counts as much as no profile does, so that scores stay readable.
        let heat = share.map_or(1.0, |share| (100.0 * share).max(COLD));
        Finding {
            rule: rule.id().to_owned(),
            id: {
                let place = [&view.function.symbol, self.part];
                stable_id(rule.id(), place, &main, &others, &mut self.repeats)
            },
            loop_depth: view.loop_depth(candidate.site),
            site: main,
            others,
            sets,
            certainty: candidate.certainty,
            grade: rule.grade(self.design),
            distance_instructions: candidate.distance_instructions,
            score: candidate.cycles_lost.middle() * candidate.weight * heat,
            cycles_lost: candidate.cycles_lost,
            heat_share,
            block_share,
            mechanism: candidate.mechanism,
            remedy: candidate.remedy,
        }
    }
}

/// The innermost loop around an instruction, the function where there is none.
fn around(view: &FunctionView<'_>, insn: usize) -> Vec<Range<Svma>> {
    let code = view.code();
    match code.innermost_loop(code.block_of(insn)) {
        Some(inner) => code.ranges(inner).collect(),
        None => vec![view.function.start..view.function.end()],
    }
}

/// The most that the block of an instruction can have had of the run; less where all that makes it pay
/// stands in blocks that run less often than it does.
fn block_share(heat: &Heat, view: &FunctionView<'_>, insn: usize, sets: &[Vec<usize>]) -> f64 {
    let code = view.code();
    // The most of the run, and that by how many instructions there are: how often at the most.
    let most_and_often = |insn: usize| {
        let block = &code.blocks[code.block_of(insn)];
        let range = code.insns[block.first].svma..code.insns[block.end - 1].end();
        let most = heat.most(view.function, &range);
        (most, most / (block.end - block.first) as f64)
    };
    let often = |insn: &usize| most_and_often(*insn).1;
    let together = |set: &Vec<usize>| set.iter().map(often).fold(f64::INFINITY, f64::min);
    let partners = sets.iter().map(together).fold(0.0, f64::max);
    let (most, own) = most_and_often(insn);
    if own > 0.0 && partners < own && !sets.is_empty() { most * partners / own } else { most }
}

fn site(view: &FunctionView<'_>, index: usize) -> Site {
    site_of(view, &view.code().insns[index])
}

/// The first instruction of a function, without decoding the rest; `None` when it has no bytes.
pub(super) fn first_site(view: &FunctionView<'_>) -> Option<Site> {
    let start = view.function.start;
    let bytes = view.bytes().get(..view.bytes().len().min(LONGEST_INSN_BYTES))?;
    let insns = view.image.architecture().decode(bytes, start);
    insns.first().map(|insn| site_of(view, insn))
}

fn site_of(view: &FunctionView<'_>, insn: &Insn) -> Site {
    Site {
        function: view.name().to_owned(),
        offset_bytes: insn.svma.distance_from(view.function.start).unwrap_or(0),
        svma: insn.svma,
        text: view.image.architecture().text(view.bytes_of(insn), insn.svma),
        access_bytes: insn.load.or(insn.store).map_or(0, |a| a.size_bytes),
        source: Vec::new(),
        variable: None,
    }
}

/// An instruction of any function, without decoding the rest.
fn site_at(image: &Image, svma: Svma) -> Option<Site> {
    let function = image.function_at(svma)?;
    let room = function.end().distance_from(svma)?.min(LONGEST_INSN_BYTES as u64);
    let insns = image.architecture().decode(image.code_at(svma, room), svma);
    Some(site_of(&FunctionView::of(image, function), insns.first()?))
}

/// A name made of the rule, the function and the instructions' text, not of addresses, so that it
/// survives moved code and edits elsewhere. Equal ones in a function are numbered.
fn stable_id(
    rule: &str,
    [symbol, part]: [&str; 2],
    main: &Site,
    others: &[Site],
    repeats: &mut HashMap<u64, u32>,
) -> FindingId {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    let stem = symbol.split('.').next().unwrap_or(symbol);
    let texts = std::iter::once(main).chain(others).map(|s| unplaced(&s.text));
    for text in [rule.to_owned(), stem.to_owned()].into_iter().chain(texts) {
        hash.write(text.as_bytes());
        hash.write(&[0]);
    }
    hash.write(part.as_bytes());
    let repeat = repeats.entry(hash.finish()).and_modify(|n| *n += 1).or_insert(0);
    hash.write(&repeat.to_le_bytes());
    FindingId(format!("{rule}-{:08x}", hash.finish() as u32))
}

/// The text of an instruction without what changes when code or data move: targets of jumps, and
/// distances from the instruction to a global.
fn unplaced(text: &str) -> String {
    let (mnemonic, _) = text.split_once(' ').unwrap_or((text, ""));
    if mnemonic.starts_with('j') || mnemonic == "call" {
        return mnemonic.to_owned();
    }
    let Some(at) = text.find("[rip") else { return text.to_owned() };
    let end = text[at..].find(']').map_or(text.len(), |close| at + close);
    format!("{}{}", &text[..at + "[rip".len()], &text[end..])
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
            stable_id("r", [symbol, ""], &at(base, "load"), &[at(base + 4, "store")], repeats)
        };
        let mut repeats = HashMap::new();
        let first = id(0x1000, "f", &mut repeats);
        assert_eq!(first, id(0x2000, "f.isra.0", &mut HashMap::new()));
        assert_ne!(first, id(0x1000, "f", &mut repeats));
        assert_ne!(first, id(0x1000, "g", &mut HashMap::new()));
        assert_eq!(first.0.len(), "r-".len() + 8);
        assert_eq!(unplaced("mov rax, qword ptr [rip+0x2345]"), "mov rax, qword ptr [rip]");
        assert_eq!(unplaced("jne 0x401234"), "jne");
    }
}
