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

use super::screen;
use crate::context::Outcome;

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
            Self::Any => finding.is_judged(),
            // Asked for by its name.
            Self::Rule(rule) => finding.rule == *rule,
            Self::Definite => finding.is_judged() && finding.certainty == Certainty::Definite,
            Self::Score(least) => finding.is_judged() && finding.score >= *least,
        }
    }
}

/// Whether any finding counts.
pub fn fails<'a>(conditions: &[FailOn], mut findings: impl Iterator<Item = &'a Finding>) -> bool {
    findings.any(|f| conditions.iter().any(|c| c.holds(f)))
}

/// What gates say where less than this was looked at: that nothing was found in the rest is no news.
const LEAST_COVERAGE: f64 = 0.95;

/// The outcome for these findings and programs, and why nothing was decided. What counts goes before what was not seen.
pub fn outcome<'a>(
    conditions: &[FailOn],
    findings: impl Iterator<Item = &'a Finding>,
    reports: impl Iterator<Item = &'a ScanReport>,
) -> (Outcome, Vec<String>) {
    if fails(conditions, findings) {
        return (Outcome::Gated, Vec::new());
    }
    if conditions.is_empty() {
        return (Outcome::Fine, Vec::new());
    }
    let unseen = |report: &ScanReport| {
        let coverage = report.coverage.filter(|coverage| coverage.share() < LEAST_COVERAGE)?;
        Some(format!(
            "not decided: {} of {} were scanned, and a gate takes {:.0} %\n",
            screen::covered(&coverage),
            report.program,
            100.0 * LEAST_COVERAGE
        ))
    };
    let why: Vec<String> = reports.filter_map(unseen).collect();
    (if why.is_empty() { Outcome::Fine } else { Outcome::Inconclusive }, why)
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

    /// Takes out of a report what is known, and what no baseline holds because placement makes it.
    pub fn subtract(&self, scan: &mut ScanReport) -> LeftOut {
        let program = file_name(&scan.program);
        let mut left_out = LeftOut::default();
        scan.findings.retain(|f| {
            let is_known = self.0.contains(&(program.clone(), f.id.0.clone()));
            left_out.known += usize::from(is_known);
            left_out.by_placement += usize::from(!is_known && !f.is_judged());
            !is_known && f.is_judged()
        });
        left_out
    }
}

/// How many findings of a scan a baseline has left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Those that it holds.
    pub known: usize,
    /// Those that placement makes.
    pub by_placement: usize,
}

/// Writes the findings of some scans that are judged as a baseline.
///
/// # Errors
/// When the file cannot be written.
pub fn write_baseline(path: &Path, reports: &[ScanReport]) -> anyhow::Result<()> {
    let mut known: Vec<Known> = reports
        .iter()
        .flat_map(|r| {
            r.findings.iter().filter(|f| f.is_judged()).map(|f| Known {
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
    use stallscope::code::{Coverage, Image, fixture};
    use stallscope::hazards::{ScanFilter, scan};
    use stallscope::machine::{Design, Microarchitecture};

    use super::*;

    #[test]
    fn conditions_are_read_and_others_refused() {
        assert_eq!("any".parse(), Ok(FailOn::Any));
        assert_eq!("rep-string".parse(), Ok(FailOn::Rule("rep-string".into())));
        assert_eq!("score=2.5".parse(), Ok(FailOn::Score(2.5)));
        assert!("score=x".parse::<FailOn>().unwrap_err().contains("score=10"));
        assert!("nonsense".parse::<FailOn>().unwrap_err().contains("store-forward"));
    }

    fn report() -> ScanReport {
        let ring = fixture::ring_loop(true);
        let image = fixture::program(&[("decode", &ring), ("again", &ring)]);
        let image = Image::parse(Path::new("dir/p"), image).unwrap();
        scan(&image, &ScanFilter::default(), &Design::of(Microarchitecture::Zen5), None)
    }

    #[test]
    fn what_placement_makes_falls_no_gate_unless_it_is_hot_or_asked_for() {
        let report = report();
        let placed = report.findings.iter().find(|f| f.rule == "loop-alignment").unwrap();
        assert!(placed.by_placement && placed.certainty == Certainty::Definite);
        let holds = |what: &str, finding: &Finding| what.parse::<FailOn>().unwrap().holds(finding);
        for what in ["any", "definite", "score=0"] {
            assert!(!holds(what, placed), "{what}");
            let hot = Finding { heat_share: Some(0.2), ..placed.clone() };
            assert!(holds(what, &hot), "{what}");
        }
        assert!(holds("loop-alignment", placed) && !holds("rep-string", placed));
        let other = report.findings.iter().find(|f| f.rule == "store-forward").unwrap();
        assert!(holds("any", other) && holds("score=0", other) && !other.by_placement);
    }

    #[test]
    fn a_baseline_holds_nothing_of_placement_and_lets_nothing_of_it_through() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.json");
        let mut report = report();
        write_baseline(&path, std::slice::from_ref(&report)).unwrap();
        let baseline = Baseline::read(&path).unwrap();
        assert_eq!(baseline.0.len(), 2, "two of the ring, none of its loops");
        let by_placement = report.findings.iter().filter(|f| f.by_placement).count();
        assert!(by_placement > 0);
        assert_eq!(baseline.subtract(&mut report), LeftOut { known: 2, by_placement });
        assert!(report.findings.is_empty());
    }

    #[test]
    fn a_gate_decides_nothing_where_too_little_was_scanned() {
        let mut report = report();
        let none = || std::iter::empty();
        let gate = |conditions: &[FailOn], report: &ScanReport| {
            outcome(conditions, none(), std::iter::once(report))
        };
        assert_eq!(gate(&[FailOn::Any], &report).0, Outcome::Fine);
        let coverage =
            Coverage { executable_bytes: 1000, scanned_bytes: 949, unlisted_functions: 0 };
        report.coverage = Some(coverage);
        let (short, why) = gate(&[FailOn::Any], &report);
        assert_eq!(short, Outcome::Inconclusive);
        assert!(why[0].contains("94.9 % of the executable bytes of dir/p"), "{why:?}");
        assert_eq!(gate(&[], &report).0, Outcome::Fine, "nobody asked");
        let found = outcome(&[FailOn::Any], report.findings.iter(), std::iter::once(&report));
        assert_eq!(found.0, Outcome::Gated, "what was found goes first");
        report.coverage = Some(Coverage { scanned_bytes: 950, ..coverage });
        assert_eq!(gate(&[FailOn::Any], &report).0, Outcome::Fine);
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
