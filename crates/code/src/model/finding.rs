//! Sites, and findings about them.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FileOffset, Grade, Svma};

/// One frame of a source position; inlined callers follow the innermost frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceLine {
    /// The file as the debug information names it.
    pub file: String,
    /// Line, from 1; 0 where the debug information has none.
    pub line: u32,
    /// The (demangled) function whose code stands there, where known.
    pub function: Option<String>,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.file.rsplit('/').next().unwrap_or(&self.file);
        write!(f, "{name}:{}", self.line)
    }
}

/// An instruction that can cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Site {
    /// Demangled name of the function it stands in.
    pub function: String,
    /// Bytes from the function's start.
    pub offset_bytes: u64,
    /// Address as stated in the file.
    pub svma: Svma,
    /// The instruction, in Intel syntax.
    pub text: String,
    /// How many bytes it reads or writes in memory; 0 when that is not known.
    pub access_bytes: u16,
    /// Innermost source frame first; empty without debug information.
    pub source: Vec<SourceLine>,
    /// The variable that it reads or writes, where debug information names it.
    pub variable: Option<String>,
}

impl Site {
    /// The innermost source line, where one is known.
    #[must_use]
    pub fn line(&self) -> Option<&SourceLine> {
        self.source.first().filter(|source| source.line > 0)
    }
}

/// How certain a static finding is about the addresses involved.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// Same array, different indices: the two can meet, whether they do is up to the data.
    Probable,
    /// Same symbolic address with constant offsets: they meet whenever the path is taken.
    Definite,
}

impl fmt::Display for Certainty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Probable => "probable",
            Self::Definite => "definite",
        })
    }
}

/// A name for a finding that survives unrelated edits and moved code.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct FindingId(pub String);

impl fmt::Display for FindingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Core cycles that one execution of a site loses, as a range: what out-of-order execution can hide
/// and what it cannot.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CyclesLost {
    /// When the code around it hides as much as it can.
    pub low: f64,
    /// Cycles where no other work overlaps the stall.
    pub high: f64,
}

impl CyclesLost {
    /// The middle of the range, for ranking.
    #[must_use]
    pub fn middle(&self) -> f64 {
        f64::midpoint(self.low, self.high)
    }
}

impl fmt::Display for CyclesLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = (format!("{:.0}", self.low), format!("{:.0}", self.high));
        if low == high { write!(f, "{low}") } else { write!(f, "{low} to {high}") }
    }
}

/// Where in a file an instruction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InFile {
    /// Its first byte.
    pub offset: FileOffset,
    /// Its length.
    pub size_bytes: u8,
}

/// The share of a run from which a place matters.
pub const LEAST_SHARE: f64 = 0.005;

/// A reason to suspect one load (or other main site) and the sites that make it suspect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The rule that found it, for example `store-forward`.
    pub rule: String,
    /// Name that survives a rebuild; see [`FindingId`].
    pub id: FindingId,
    /// The instruction that pays.
    pub site: Site,
    /// Where in the file that stands; absent where no file holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_file: Option<InFile>,
    /// The instructions that make it pay, in address order (for `store-forward`: the stores).
    pub others: Vec<Site>,
    /// Which of `others`, by position, act together; the set nearest to the site first.
    pub sets: Vec<Vec<usize>>,
    /// How certain the addresses are.
    pub certainty: Certainty,
    /// Whether it is where the linker has put code or data that makes it: any edit elsewhere may bring it or take it
    /// away.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_placement: bool,
    /// Strength of the evidence.
    pub grade: Grade,
    /// Loop nesting depth of the site, from 1; 0 outside loops.
    pub loop_depth: u32,
    /// Instructions on the shortest path from the nearest of `others` to `site`; 0 for rules whose
    /// sites stand alone.
    pub distance_instructions: u32,
    /// What one execution loses, by the machine profile.
    pub cycles_lost: CyclesLost,
    /// Share of the samples of a profile that fell on the site's loop (its function, outside
    /// loops), from 0 to 1; absent when no profile was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heat_share: Option<f64>,
    /// The most that the site's own block can have had of the run: its share of the profile, and
    /// what so few samples can have missed; less where `others` run less often than it; absent
    /// without a profile, and where the loop pays as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_share: Option<f64>,
    /// Rank within a list: larger is more deserving of attention. No unit.
    pub score: f64,
    /// The mechanism in one sentence about these very instructions.
    pub mechanism: String,
    /// What to do about it.
    pub remedy: String,
}

impl Finding {
    /// Whether gates, baselines, differences and reviews look at it: what placement makes comes and goes with edits
    /// elsewhere, and counts only where a profile says that it is hot.
    #[must_use]
    pub fn is_judged(&self) -> bool {
        !self.by_placement || self.heat_share.is_some_and(|share| share >= LEAST_SHARE)
    }
}
