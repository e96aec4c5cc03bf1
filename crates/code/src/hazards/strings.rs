//! How many string instructions a program has, which, and of what size: the summary in a scan.

use schemars::JsonSchema;
use serde::Serialize;

use crate::code::{
    FunctionCode, Image, MOST_FUNCTION_BYTES, StringKind, StringSite, may_hold_strings,
    string_sites,
};
use crate::model::Svma;

/// Upper ends of the size classes, the last without end.
const CLASSES_BYTES: [Option<u64>; 8] =
    [Some(32), Some(64), Some(96), Some(128), Some(192), Some(256), Some(1024), None];

/// One inlined string instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StringEntry {
    /// The symbol of its function; `None` for code that belongs to none.
    pub function: Option<String>,
    /// Its address.
    pub svma: Svma,
    /// `rep movsq` and the like.
    pub instruction: String,
    /// Bytes moved; `None` where only the run knows.
    pub size_bytes: Option<u64>,
    /// Whether the size was hidden behind an alignment prologue.
    pub behind_prologue: bool,
}

/// Sites of one instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct InstructionCount {
    /// `rep movsq` and the like.
    pub instruction: String,
    /// Number of sites.
    pub sites: usize,
    /// How many of them have a known size.
    pub with_size: usize,
}

/// Sites of known size in one class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SizeClass {
    /// Largest size of the class in bytes; `None` for the last, which has no end.
    pub up_to_bytes: Option<u64>,
    /// Sites that copy (`movs`).
    pub moves: usize,
    /// Sites that fill (`stos`).
    pub stores: usize,
}

/// All inlined string instructions of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StringSummary {
    /// Number of string instructions.
    pub sites: usize,
    /// How many have a known size.
    pub with_size: usize,
    /// How many of those were behind an alignment prologue.
    pub behind_prologue: usize,
    /// By instruction, the commonest first.
    pub by_instruction: Vec<InstructionCount>,
    /// Known sizes by class.
    pub by_size: Vec<SizeClass>,
    /// Every site, by address.
    pub list: Vec<StringEntry>,
}

impl StringEntry {
    /// One site of a function.
    #[must_use]
    pub fn of(function: Option<&str>, site: &StringSite) -> Self {
        let stem = match site.kind {
            StringKind::Move => "movs",
            StringKind::Store => "stos",
        };
        let unit = match site.unit_bytes {
            1 => 'b',
            2 => 'w',
            4 => 'd',
            _ => 'q',
        };
        Self {
            function: function.map(str::to_owned),
            svma: site.svma,
            instruction: format!("rep {stem}{unit}"),
            size_bytes: site.size_bytes,
            behind_prologue: site.behind_prologue,
        }
    }

    fn is_move(&self) -> bool {
        self.instruction.starts_with("rep movs")
    }
}

impl StringSummary {
    /// Counts a list of sites.
    pub(super) fn of(mut list: Vec<StringEntry>) -> Self {
        list.sort_by_key(|e| e.svma);
        let mut by_instruction: Vec<InstructionCount> = Vec::new();
        let mut by_size = CLASSES_BYTES
            .map(|up_to_bytes| SizeClass { up_to_bytes, moves: 0, stores: 0 })
            .to_vec();
        for entry in &list {
            let known = usize::from(entry.size_bytes.is_some());
            match by_instruction.iter_mut().find(|c| c.instruction == entry.instruction) {
                Some(count) => {
                    count.sites += 1;
                    count.with_size += known;
                }
                None => by_instruction.push(InstructionCount {
                    instruction: entry.instruction.clone(),
                    sites: 1,
                    with_size: known,
                }),
            }
            let fits = |c: &&mut SizeClass| {
                entry.size_bytes.is_some_and(|n| c.up_to_bytes.is_none_or(|most| n <= most))
            };
            if let Some(class) = by_size.iter_mut().find(fits) {
                let count = if entry.is_move() { &mut class.moves } else { &mut class.stores };
                *count += 1;
            }
        }
        by_instruction
            .sort_by(|a, b| b.sites.cmp(&a.sites).then(a.instruction.cmp(&b.instruction)));
        by_size.retain(|c| c.moves + c.stores > 0);
        Self {
            sites: list.len(),
            with_size: list.iter().filter(|e| e.size_bytes.is_some()).count(),
            behind_prologue: list.iter().filter(|e| e.behind_prologue).count(),
            by_instruction,
            by_size,
            list,
        }
    }
}

/// The string instructions in code that belongs to no function.
pub(super) fn outside_functions(image: &Image) -> Vec<StringEntry> {
    let mut found = Vec::new();
    for (start, size_bytes) in image.unowned_code() {
        let whole = image.code_at(start, size_bytes);
        for (number, bytes) in whole.chunks(MOST_FUNCTION_BYTES).enumerate() {
            if may_hold_strings(bytes) {
                let start = start.offset((number * MOST_FUNCTION_BYTES) as i64);
                let sites = string_sites(bytes, &FunctionCode::decode(bytes, start));
                found.extend(sites.iter().map(|site| StringEntry::of(None, site)));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_are_counted_by_instruction_and_by_size() {
        let entry = |svma, instruction: &str, size_bytes| StringEntry {
            function: None,
            svma: Svma(svma),
            instruction: instruction.into(),
            size_bytes,
            behind_prologue: false,
        };
        let summary = StringSummary::of(vec![
            entry(3, "rep stosq", Some(48)),
            entry(1, "rep movsq", Some(168)),
            entry(2, "rep stosq", None),
            entry(4, "rep stosq", Some(8192)),
        ]);
        assert_eq!((summary.sites, summary.with_size), (4, 3));
        assert_eq!(summary.by_instruction[0].instruction, "rep stosq");
        assert_eq!(summary.by_instruction[0].with_size, 2);
        let classes: Vec<_> =
            summary.by_size.iter().map(|c| (c.up_to_bytes, c.moves, c.stores)).collect();
        assert_eq!(classes, [(Some(64), 0, 1), (Some(192), 1, 0), (None, 0, 1)]);
        assert!(summary.list.is_sorted_by_key(|e| e.svma));
    }
}
