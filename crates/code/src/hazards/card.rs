//! The card about one rule: what a reader needs to judge a finding.

use schemars::JsonSchema;
use serde::Serialize;

/// One rule, explained.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RuleCard {
    /// The rule's id.
    pub id: &'static str,
    /// A title of a few words.
    pub title: &'static str,
    /// What the processor does, in plain words.
    pub effect: &'static str,
    /// A drawing of the effect in plain text.
    pub picture: &'static str,
    /// What it costs here, and how that is known.
    pub price: String,
    /// What the rule looks for, and what it leaves out.
    pub detection: &'static str,
    /// What to do about it.
    pub remedies: &'static [&'static str],
    /// Where to read on.
    pub literature: &'static [&'static str],
}
