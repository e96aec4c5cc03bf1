//! When a scan fails: what is known already, and which of the rest counts.

use std::collections::BTreeSet;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use stallscope::foreign;
use stallscope::hazards::{HAZARDS, ScanReport};
use stallscope::model::{Certainty, Finding};
use stallscope::report;

/// What makes a scan fail.
#[derive(Clone, Debug, PartialEq)]
pub enum FailOn {
    Any,
    Rule(String),
    /// A finding whose addresses are certain.
    Definite,
    /// A finding that scores so much or more.
    Score(f64),
}

impl FromStr for FailOn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rules = || HAZARDS.iter().map(|h| h.id()).collect::<Vec<_>>();
        match text {
            "any" => Ok(Self::Any),
            "definite" => Ok(Self::Definite),
            rule if rules().contains(&rule) => Ok(Self::Rule(rule.to_owned())),
            other => match other.strip_prefix("score=").map(f64::from_str) {
                Some(Ok(least)) if least.is_finite() => Ok(Self::Score(least)),
                Some(_) => Err("score= takes a number, for example score=10".to_owned()),
                None => Err(format!("one of any, definite, score=N, {}", rules().join(", "))),
            },
        }
    }
}

impl FailOn {
    fn holds(&self, finding: &Finding) -> bool {
        match self {
            Self::Any => true,
            Self::Rule(rule) => finding.rule == *rule,
            Self::Definite => finding.certainty == Certainty::Definite,
            Self::Score(least) => finding.score >= *least,
        }
    }
}

/// Whether any finding counts.
pub fn fails<'a>(conditions: &[FailOn], mut findings: impl Iterator<Item = &'a Finding>) -> bool {
    findings.any(|f| conditions.iter().any(|c| c.holds(f)))
}

/// One known finding: its program's file name and its id; the rest is for people who read the file.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Known {
    program: String,
    id: String,
    rule: String,
    function: String,
}

/// The findings of the largest programs take a third of it.
const MOST_BYTES: u64 = 32 << 20;

const KIND: &str = "scan-baseline";

/// Findings that are known already and shall not be shown again.
#[derive(Debug)]
pub struct Baseline(BTreeSet<(String, String)>);

impl Baseline {
    /// Reads a baseline file.
    ///
    /// # Errors
    /// When it is not there or is none.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let text = foreign::read_text(path, MOST_BYTES).with_context(|| {
            format!("cannot read the baseline {name} (`--write-baseline {name}` makes one)")
        })?;
        Self::parse(&name.to_string(), &text)
    }

    /// Reads a baseline that is in memory; `name` is for messages.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(name: &str, text: &str) -> anyhow::Result<Self> {
        let document: report::Document<Vec<Known>> =
            foreign::from_json(text).with_context(|| format!("{name} is no baseline of a scan"))?;
        if !document.is_ours() || document.kind != KIND {
            bail!("{name} is no baseline of a scan but a `{}`", document.kind);
        }
        if document.newer().is_some() {
            bail!("{name} was written by a newer stallscope; update this one");
        }
        Ok(Self(document.result.into_iter().map(|k| (k.program, k.id)).collect()))
    }

    /// Takes the known findings out of a report; how many there were.
    pub fn subtract(&self, scan: &mut ScanReport) -> usize {
        let before = scan.findings.len();
        let program = file_name(&scan.program);
        scan.findings.retain(|f| !self.0.contains(&(program.clone(), f.id.0.clone())));
        before - scan.findings.len()
    }
}

/// Writes all findings of some scans as a baseline.
///
/// # Errors
/// When the file cannot be written.
pub fn write_baseline(path: &Path, reports: &[ScanReport]) -> anyhow::Result<()> {
    let mut known: Vec<Known> = reports
        .iter()
        .flat_map(|r| {
            r.findings.iter().map(|f| Known {
                program: file_name(&r.program),
                id: f.id.0.clone(),
                rule: f.rule.clone(),
                function: f.site.function.clone(),
            })
        })
        .collect();
    known.sort();
    report::write_file(path, &report::to_json(KIND, &known)?)?;
    Ok(())
}

fn file_name(program: &str) -> String {
    program.rsplit('/').next().unwrap_or(program).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_and_others_refused() {
        assert_eq!("any".parse(), Ok(FailOn::Any));
        assert_eq!("rep-string".parse(), Ok(FailOn::Rule("rep-string".into())));
        assert_eq!("score=2.5".parse(), Ok(FailOn::Score(2.5)));
        assert!("score=x".parse::<FailOn>().unwrap_err().contains("score=10"));
        assert!("nonsense".parse::<FailOn>().unwrap_err().contains("store-forward"));
    }

    #[test]
    fn a_baseline_must_be_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.json");
        let complaint = |text: &str| {
            std::fs::write(&path, text).unwrap();
            format!("{:#}", Baseline::read(&path).unwrap_err())
        };
        assert!(complaint("{").contains("no baseline"));
        let other = "{\"format\":\"stallscope\",\"version\":1,\"kind\":\"scan\",\"result\":[]}";
        assert!(complaint(other).contains("but a `scan`"));
        write_baseline(&path, &[]).unwrap();
        assert!(Baseline::read(&path).unwrap().0.is_empty());
        let missing = Baseline::read(Path::new("/no/such")).unwrap_err().to_string();
        assert!(missing.contains("--write-baseline"), "{missing}");
    }
}
