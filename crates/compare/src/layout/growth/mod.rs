//! Which functions of two builds differ in size, and why.
//!
//! Sizes by symbol alone mislead: a function that became its own clone counts as gone and as new,
//! static functions of equal names are added up across files, what was split off as cold counts like
//! the rest, alignment counts as code, and half of a section may belong to no symbol. So functions
//! are told apart by the object they come from ([`pairing`]), clones and split-off parts are folded,
//! cold code and alignment stand apart ([`measure`]), sections stand beside the sums of their
//! symbols, and each change says what came and went: string instructions, calls, loops, inlining.

mod compare;
mod measure;
mod pairing;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rayon::prelude::*;

use crate::code::{Function, Image, Origins, Section, sections};
use compare::Outcome;
pub use measure::callee;
pub(in crate::layout) use pairing::stem;
pub use report::{
    CallChange, FunctionGrowth, FunctionSize, Growth, GrowthCounts, Reasons, SectionGrowth,
    SizeDifference, StringChange, StringEffect,
};

/// Two builds of which less than this share of functions belongs together get a warning.
const FEW_ALIKE: f64 = 0.50;

/// One build: a program, or the object files of an archive.
pub struct Build<'a> {
    members: Vec<Member<'a>>,
}

struct Member<'a> {
    image: &'a Image,
    /// Its name in the archive; `None` for a file of its own.
    label: Option<String>,
    origins: Origins,
    sections: Vec<Section>,
}

/// Where the compiler put a piece of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextSection {
    Hot,
    Cold,
    Init,
}

impl<'a> Build<'a> {
    /// The images that were read from a file.
    #[must_use]
    pub fn of(path: &Path, images: &'a [Image]) -> Self {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let mut members = Vec::with_capacity(images.len());
        for image in images {
            let label = (image.path() != path).then(|| {
                let whole = image.path().display().to_string();
                let name = whole.rsplit_once('(').map_or(whole.as_str(), |(_, name)| name);
                let name = name.trim_end_matches(')').to_owned();
                let count = seen.entry(name.clone()).and_modify(|n| *n += 1).or_insert(1);
                if *count > 1 { format!("{name}#{count}") } else { name }
            });
            let origins = Origins::of(image);
            members.push(Member { image, label, origins, sections: sections(image) });
        }
        Self { members }
    }

    fn function_bytes(&self) -> u64 {
        self.functions().map(|f| f.size_bytes).sum()
    }

    fn functions(&self) -> impl Iterator<Item = &Function> {
        self.members.iter().flat_map(|m| m.image.functions())
    }

    fn defined(&self) -> BTreeSet<&str> {
        self.functions().map(|f| stem(&f.symbol)).collect()
    }

    fn compilers(&self) -> BTreeSet<&str> {
        self.members.iter().flat_map(|m| m.origins.compilers()).map(String::as_str).collect()
    }
}

impl Member<'_> {
    fn place(&self, function: &Function) -> TextSection {
        let symbol = &function.symbol;
        if symbol.ends_with(".cold") || symbol.contains(".cold.") {
            return TextSection::Cold;
        }
        let holds = |s: &&Section| {
            function.start.distance_from(s.start).is_some_and(|skip| skip < s.size_bytes)
        };
        match self.sections.iter().find(holds).map(|s| family(&s.name)) {
            Some(".text.unlikely") => TextSection::Cold,
            Some(
                ".text.startup" | ".text.exit" | ".init.text" | ".exit.text" | ".init" | ".fini",
            ) => TextSection::Init,
            _ => TextSection::Hot,
        }
    }
}

/// `.text.unlikely.f` is `.text.unlikely`, `.rodata.str1.1` is `.rodata`.
fn family(section: &str) -> &str {
    const FAMILIES: [&str; 13] = [
        ".text.unlikely",
        ".text.startup",
        ".text.exit",
        ".text",
        ".rodata",
        ".data.rel.ro",
        ".data",
        ".bss",
        ".tdata",
        ".tbss",
        ".init.text",
        ".exit.text",
        ".eh_frame",
    ];
    FAMILIES
        .into_iter()
        .find(|f| {
            section.strip_prefix(f).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
        .unwrap_or(section)
}

impl SizeDifference {
    /// What grew and shrank from one build to the other.
    #[must_use]
    pub fn of(before: &Build<'_>, after: &Build<'_>) -> Self {
        let pairs = pairing::pairs(before, after);
        let builds = compare::Builds {
            before,
            after,
            defined_before: before.defined(),
            defined_after: after.defined(),
        };
        let outcomes: Vec<Outcome> = pairs.par_iter().map(|p| builds.compare(p)).collect();
        let matched = pairs.iter().filter(|p| p.before.is_some() && p.after.is_some()).count();
        let mut difference = Self {
            function_bytes: [before.function_bytes(), after.function_bytes()],
            hot_change_bytes: 0,
            cold_change_bytes: 0,
            init_change_bytes: 0,
            alignment_change_bytes: 0,
            counts: GrowthCounts::default(),
            rep_sites: [0; 2],
            lost_rep: StringEffect::default(),
            gained_rep: StringEffect::default(),
            sections: section_growth(before, after),
            functions: Vec::new(),
            warnings: warnings(before, after, matched),
        };
        for outcome in outcomes {
            difference.book(outcome);
        }
        let order = |f: &FunctionGrowth| {
            (std::cmp::Reverse(f.change_bytes.unsigned_abs()), f.name.clone(), f.object.clone())
        };
        difference.functions.sort_by_cached_key(order);
        difference
    }

    fn book(&mut self, outcome: Outcome) {
        let function = match outcome {
            Outcome::Same { rep_sites } => {
                self.counts.same += 1;
                self.rep_sites.iter_mut().for_each(|sites| *sites += rep_sites);
                return;
            }
            Outcome::Padding { change_bytes } => {
                self.alignment_change_bytes += change_bytes;
                return;
            }
            Outcome::Changed(function) => *function,
        };
        let sizes = [function.before, function.after].map(Option::unwrap_or_default);
        let change =
            |part: fn(&FunctionSize) -> u64| part(&sizes[1]) as i64 - part(&sizes[0]) as i64;
        self.hot_change_bytes += change(|s| s.hot_bytes);
        self.cold_change_bytes += change(|s| s.cold_bytes);
        self.init_change_bytes += change(|s| s.init_bytes);
        self.alignment_change_bytes += change(|s| s.alignment_bytes);
        let [had, has] = sizes.map(|s| s.rep_sites);
        self.rep_sites[0] += had;
        self.rep_sites[1] += has;
        if function.before.is_some() && function.after.is_some() && had != has {
            let effect = if has < had { &mut self.lost_rep } else { &mut self.gained_rep };
            effect.functions += 1;
            effect.sites += had.abs_diff(has);
            effect.change_bytes += function.change_bytes;
        }
        *match function.growth {
            Growth::Grew => &mut self.counts.grew,
            Growth::Shrank => &mut self.counts.shrank,
            Growth::Rewritten => &mut self.counts.rewritten,
            Growth::New => &mut self.counts.new,
            Growth::Gone => &mut self.counts.gone,
        } += 1;
        self.functions.push(function);
    }
}

fn section_growth(before: &Build<'_>, after: &Build<'_>) -> Vec<SectionGrowth> {
    let mut rows: Vec<SectionGrowth> = Vec::new();
    for (side, build) in [before, after].into_iter().enumerate() {
        for section in build.members.iter().flat_map(|m| &m.sections) {
            let (name, role) = (family(&section.name), section.role);
            let at = rows.iter().position(|r| r.name == name && r.role == role);
            let row = match at {
                Some(at) => &mut rows[at],
                None => {
                    let name = name.to_owned();
                    let (section_bytes, symbol_bytes) = ([0; 2], [0; 2]);
                    rows.push(SectionGrowth { name, role, section_bytes, symbol_bytes });
                    let last = rows.len() - 1;
                    &mut rows[last]
                }
            };
            row.section_bytes[side] = row.section_bytes[side].saturating_add(section.size_bytes);
            row.symbol_bytes[side] = row.symbol_bytes[side].saturating_add(section.symbol_bytes);
        }
    }
    rows.sort_by(|a, b| (a.role, &a.name).cmp(&(b.role, &b.name)));
    rows
}

fn warnings(before: &Build<'_>, after: &Build<'_>, matched: usize) -> Vec<String> {
    let mut warnings = Vec::new();
    let (old, new) = (before.compilers(), after.compilers());
    if old != new && !old.is_empty() && !new.is_empty() {
        let list = |of: &BTreeSet<&str>| of.iter().copied().collect::<Vec<_>>().join(", ");
        warnings.push(format!(
            "built by different compilers: {} against {}; what changed may be their work",
            list(&old),
            list(&new)
        ));
    }
    let [old, new] = [before, after].map(|b| b.defined().len());
    let of = old.max(new);
    if (matched as f64) < FEW_ALIKE * of as f64 {
        warnings.push(format!(
            "only {matched} of {of} functions belong together: are these two builds of one program?"
        ));
    }
    if [before, after].iter().any(|b| b.functions().all(|f| !f.named)) {
        warnings.push(
            "a stripped program: functions are matched by their code and their neighbours".into(),
        );
    }
    warnings
}

#[cfg(test)]
mod tests;
