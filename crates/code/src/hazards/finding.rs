//! From a candidate to a finding: addresses, text, stable id, rank.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hasher;
use std::ops::Range;

use super::{Candidate, FunctionView, Hazard, Heat};
use crate::code::{Image, Insn, LONGEST_INSN_BYTES};
use crate::machine::Design;
use crate::model::{Finding, FindingId, InFile, Site, Svma};

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
    /// Of the function, once it is needed.
    name: Option<String>,
    repeats: HashMap<u64, u32>,
}

impl<'a> Describer<'a> {
    pub fn of(view: &'a FunctionView<'a>, design: &'a Design, heat: Option<&'a Heat>) -> Self {
        Self { view, design, heat, part: "", name: None, repeats: HashMap::new() }
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
        let sets = candidate.sets.iter().map(|set| set.iter().map(place).collect());
        let mut sets: Vec<Vec<usize>> = sets.collect();
        let own = others.len();
        others.extend(candidate.elsewhere.iter().filter_map(|svma| site_at(view.image, *svma)));
        if own < others.len() {
            match sets.first_mut() {
                Some(nearest) => nearest.extend(own..others.len()),
                None => sets.push((own..others.len()).collect()),
            }
        }
        others.extend(candidate.pays_elsewhere.and_then(|svma| site_at(view.image, svma)));
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
                let name = self.name.get_or_insert_with(|| lasting_name(view));
                let sites = std::iter::once(&main).chain(&others);
                let texts = sites.map(|site| unplaced(&lasting_text(view.image, site)));
                stable_id(rule.id(), [name, self.part], texts, &mut self.repeats)
            },
            loop_depth: view.loop_depth(candidate.site),
            in_file: in_file(view, candidate.site),
            site: main,
            others,
            sets,
            certainty: candidate.certainty,
            by_placement: candidate.by_placement,
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
        let most = heat.most(view.function, &code.block_range(insn));
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

fn in_file(view: &FunctionView<'_>, index: usize) -> Option<InFile> {
    let insn = &view.code().insns[index];
    let offset = view.image.offset_of(insn.svma)?;
    Some(InFile { offset, size_bytes: insn.length_bytes })
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

/// What a function is called in ids: its symbol without what compilers append, or, where its name was made from its
/// address, its code.
fn lasting_name(view: &FunctionView<'_>) -> String {
    let function = view.function;
    if function.named {
        return function.symbol.split('.').next().unwrap_or(&function.symbol).to_owned();
    }
    let mut hash = Fnv::default();
    hash.write(&view.image.normalised(function));
    format!("{:x}", hash.finish())
}

/// The text of an instruction, without the addresses that it holds.
fn lasting_text<'a>(image: &Image, site: &'a Site) -> Cow<'a, str> {
    match image.normalised_insn(site.svma) {
        Some(bytes) => image.architecture().text(&bytes, site.svma).into(),
        None => site.text.as_str().into(),
    }
}

/// A name made of the rule, the function and the instructions' text, not of addresses, so that it
/// survives moved code and edits elsewhere. Equal ones in a function are numbered.
fn stable_id(
    rule: &str,
    [name, part]: [&str; 2],
    texts: impl Iterator<Item = String>,
    repeats: &mut HashMap<u64, u32>,
) -> FindingId {
    let mut hash = Fnv::default();
    for text in [rule.to_owned(), name.to_owned()].into_iter().chain(texts) {
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

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

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
    use std::path::Path;

    use super::*;
    use crate::code::fixture;

    #[test]
    fn ids_survive_moved_code_and_tell_repeats_apart() {
        let id = |name: &str, repeats: &mut _| {
            let texts = ["load", "store"].map(str::to_owned).into_iter();
            stable_id("r", [name, ""], texts, repeats)
        };
        let mut repeats = HashMap::new();
        let first = id("f", &mut repeats);
        assert_eq!(first, id("f", &mut HashMap::new()));
        assert_ne!(first, id("f", &mut repeats));
        assert_ne!(first, id("g", &mut HashMap::new()));
        assert_eq!(first.0.len(), "r-".len() + 8);
        assert_eq!(unplaced("mov rax, qword ptr [rip+0x2345]"), "mov rax, qword ptr [rip]");
        assert_eq!(unplaced("jne 0x401234"), "jne");
    }

    #[test]
    fn a_place_outside_of_the_program_is_left_out_of_a_text_and_nothing_else_is() {
        assert_eq!(unplaced("call 0x401234"), "call");
        assert_eq!(unplaced("lea rax, [rip-0x20]"), "lea rax, [rip]");
        assert_eq!(unplaced("mov dword ptr [rip+0x20], 5"), "mov dword ptr [rip], 5");
        assert_eq!(unplaced("ret"), "ret");
        assert_eq!(unplaced("mov rax, [rsp+8]"), "mov rax, [rsp+8]");
    }

    #[test]
    fn a_hash_is_that_of_fnv() {
        // FNV-1a of nothing and of "a", folded.
        let of = |text: &str| {
            let mut hash = Fnv::default();
            hash.write(text.as_bytes());
            hash.finish()
        };
        let folded = |full: u64| full ^ (full >> 32);
        assert_eq!(of(""), folded(0xcbf2_9ce4_8422_2325));
        assert_eq!(of("a"), folded(0xaf63_dc4c_8601_ec8c));
    }

    #[test]
    fn a_block_has_what_was_seen_there_and_no_more_than_what_makes_it_pay() {
        use crate::model::{HotPlace, HotSpot};
        // inc eax; inc eax; je over; inc eax; (over:) ret
        let code = [0xff, 0xc0, 0xff, 0xc0, 0x74, 0x02, 0xff, 0xc0, 0xc3];
        let image = Image::parse(Path::new("p"), fixture::program(&[("f", &code)])).unwrap();
        let view = FunctionView::of(&image, &image.functions()[0]);
        let start = view.function.start;
        let spots = |at: i64, count: usize| {
            let place = HotPlace::Stated(start.offset(at));
            vec![HotSpot { object: None, place, weight: 1.0 }; count]
        };
        // 600 samples in three instructions, 390 in one, none in the return; 10 behind the function.
        let heat = Heat::of(&image, &[spots(0, 600), spots(6, 390), spots(64, 10)].concat());
        let share = |insn: usize, sets: &[Vec<usize>]| block_share(&heat, &view, insn, sets);
        let near = |got: f64, want: f64| assert!((got - want).abs() < 1e-9, "{got} {want}");
        // Three samples in a thousand may have been missed.
        near(share(0, &[]), 0.603);
        near(share(3, &[]), 0.393);
        // Each instruction of the first block ran 0.201 of that; the third, 0.393.
        near(share(3, &[vec![0]]), 0.201);
        near(share(3, &[vec![0], vec![4]]), 0.201);
        near(share(3, &[vec![0, 4]]), 0.003);
        near(share(0, &[vec![3]]), 0.603);
        near(share(3, &[vec![3]]), 0.393);
        let site = first_site(&view).unwrap();
        assert_eq!((site.svma, site.offset_bytes, site.text.as_str()), (start, 0, "inc eax"));
    }

    #[test]
    fn names_and_texts_hold_no_addresses_of_a_fixed_program() {
        // mov eax, [rax*4+TO]; call behind the end; ret
        let code = |to: u32| {
            let mut code = vec![0x8b, 0x04, 0x85];
            code.extend(to.to_le_bytes());
            code.extend([0xe8, 0, 1, 0, 0, 0xc3]);
            code
        };
        let named = |symbol: &str, named, to| {
            let image = fixture::program(&[("pad", &[0xc3; 40]), (symbol, &code(to))]);
            let image = Image::parse(Path::new("p"), image).unwrap();
            let function = crate::code::Function { named, ..image.functions()[1].clone() };
            let view = FunctionView::of(&image, &function);
            let text = lasting_text(&image, &site(&view, 0)).into_owned();
            (lasting_name(&view), text)
        };
        let first = fixture::CODE_START.0.0 as u32;
        let one = named("f.isra.0", true, first + 8);
        assert_eq!(one, named("f.constprop.1", true, first + 16));
        assert_eq!(one.0, "f");
        assert_ne!(one.1, named("f", true, 8).1, "no address: it is a distance");
        let nameless = named("fn_1", false, first + 8).0;
        assert_eq!(nameless, named("fn_2", false, first + 16).0);
        assert_ne!(nameless, named("fn_1", false, 8).0);
    }
}
