//! What is said about a difference in size: the types that are written to a file.

use schemars::JsonSchema;
use serde::Serialize;

use crate::code::SectionRole;

/// What became of a function's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Growth {
    /// It has more code.
    Grew,
    /// It has less code.
    Shrank,
    /// Other code of the same size.
    Rewritten,
    /// Only in the second build.
    New,
    /// Only in the first build.
    Gone,
}

/// The code of one function in one build, its clones and split-off parts with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FunctionSize {
    /// Code where the compiler expects it to run.
    pub hot_bytes: u64,
    /// Code that the compiler or the programmer put aside as cold.
    pub cold_bytes: u64,
    /// Code that runs at the start or the end only.
    pub init_bytes: u64,
    /// Bytes inside it that only align what is behind them; in no other figure.
    pub alignment_bytes: u64,
    /// Inlined string instructions.
    pub rep_sites: usize,
    /// Natural loops.
    pub loops: usize,
    /// Clones and parts that were folded into it, itself included.
    pub parts: usize,
}

impl FunctionSize {
    /// All of its code, alignment not counted.
    #[must_use]
    pub fn code_bytes(&self) -> u64 {
        self.hot_bytes + self.cold_bytes + self.init_bytes
    }
}

/// String instructions of one kind and size that came or went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StringChange {
    /// `rep movsq` and the like.
    pub instruction: String,
    /// Bytes moved; `None` where only the run knows.
    pub size_bytes: Option<u64>,
    /// Number of call sites.
    pub sites: usize,
}

/// Calls of one function that came or went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CallChange {
    /// Who is called, clones folded.
    pub callee: String,
    /// Number of calls.
    pub calls: usize,
}

/// What a function has gained and lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Reasons {
    /// String instructions that are no longer there.
    pub rep_removed: Vec<StringChange>,
    /// String instructions that were not there.
    pub rep_added: Vec<StringChange>,
    /// Calls that are no longer there and not explained by inlining.
    pub calls_removed: Vec<CallChange>,
    /// Calls that were not there.
    pub calls_added: Vec<CallChange>,
    /// Functions of this program that it no longer calls while it grew: most likely inlined.
    pub inlined: Vec<String>,
    /// New functions of this program that it calls while it shrank: most likely split off.
    pub split_off: Vec<String>,
    /// Loops more, or fewer.
    pub loops_change: i64,
}

/// One function whose code has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FunctionGrowth {
    /// Its demangled name, without what compilers append.
    pub name: String,
    /// The archive's member, or the source file of a local function of a linked program.
    pub object: Option<String>,
    /// Its name in the first build, where that was another.
    pub renamed_from: Option<String>,
    /// Whether the function grew, shrank, came or went.
    pub growth: Growth,
    /// By how many bytes of code, alignment not counted.
    pub change_bytes: i64,
    /// The function in BEFORE; `None` where it is new.
    pub before: Option<FunctionSize>,
    /// The function in AFTER; `None` where it is gone.
    pub after: Option<FunctionSize>,
    /// What the change in size consists of.
    pub why: Reasons,
}

/// Sections of one name, those of all object files together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SectionGrowth {
    /// The name, `.text.f` counted as `.text`.
    pub name: String,
    /// Kind of content of the section.
    pub role: SectionRole,
    /// Its bytes in both builds.
    pub section_bytes: [u64; 2],
    /// Of these, bytes in functions or variables that symbols name, in both builds.
    pub symbol_bytes: [u64; 2],
}

/// How many functions of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct GrowthCounts {
    /// Functions with more code.
    pub grew: usize,
    /// Functions with less code.
    pub shrank: usize,
    /// Other code of the same size.
    pub rewritten: usize,
    /// Only in the second build.
    pub new: usize,
    /// Only in the first build.
    pub gone: usize,
    /// Functions with the same code.
    pub same: usize,
}

/// Functions that lost (or gained) string instructions, and what became of their size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StringEffect {
    /// Number of functions.
    pub functions: usize,
    /// String instructions that they lost (or gained).
    pub sites: usize,
    /// Bytes by which their code changed in all, for whatever reason.
    pub change_bytes: i64,
}

/// How two builds differ in size, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SizeDifference {
    /// Bytes of all functions in both builds, by their symbols, alignment inside them included.
    pub function_bytes: [u64; 2],
    /// By how many bytes the code changed that is expected to run.
    pub hot_change_bytes: i64,
    /// By how many bytes the code changed that was put aside as cold.
    pub cold_change_bytes: i64,
    /// By how many bytes the code changed that runs at the start or the end only.
    pub init_change_bytes: i64,
    /// By how many bytes the alignment inside functions changed.
    pub alignment_change_bytes: i64,
    /// Functions by what became of them.
    pub counts: GrowthCounts,
    /// Inlined string instructions of both builds.
    pub rep_sites: [usize; 2],
    /// Functions that lost string instructions.
    pub lost_rep: StringEffect,
    /// Functions that gained string instructions.
    pub gained_rep: StringEffect,
    /// Sections, symbols beside them.
    pub sections: Vec<SectionGrowth>,
    /// Every function whose code changed, the largest change first.
    pub functions: Vec<FunctionGrowth>,
    /// What a reader must know.
    pub warnings: Vec<String>,
}

impl SizeDifference {
    /// By how many bytes of code the builds differ, alignment not counted.
    #[must_use]
    pub fn change_bytes(&self) -> i64 {
        self.hot_change_bytes + self.cold_change_bytes + self.init_change_bytes
    }
}
