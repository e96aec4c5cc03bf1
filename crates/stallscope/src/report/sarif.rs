//! Scan results as SARIF 2.1.0, the form that code review tools read.
//!
//! Only the part of the standard that a scan needs, as plain types. A finding stands at its source
//! line where debug information gives one below the source root (reviewers show nothing else), with
//! the function as logical location; else at its address in the program. The stable id of a finding
//! is its fingerprint, so that it stays the same finding when code around it changes.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::Serialize;

use crate::foreign::escape_json;
use crate::hazards::{RuleCard, ScanReport};
use crate::model::{Certainty, Finding, Site, SourceLine};

/// The schema that the document follows.
pub const SARIF_SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// The base that relative paths hang on.
const ROOT: &str = "%SRCROOT%";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Log {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: Vec<Run>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    tool: Tool,
    original_uri_base_ids: BTreeMap<&'static str, ArtifactLocation>,
    results: Vec<Outcome>,
    column_kind: &'static str,
}

#[derive(Serialize)]
struct Tool {
    driver: Driver,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Driver {
    name: &'static str,
    version: &'static str,
    rules: Vec<Rule>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    id: &'static str,
    short_description: Message,
    full_description: Message,
    help: Message,
}

#[derive(Serialize)]
struct Message {
    text: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    rule_id: String,
    rule_index: usize,
    level: &'static str,
    message: Message,
    locations: Vec<Location>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    related_locations: Vec<Location>,
    partial_fingerprints: BTreeMap<&'static str, String>,
    rank: f64,
    properties: Properties,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Properties {
    score: f64,
    grade: String,
    cycles_lost: String,
    instruction: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<usize>,
    physical_location: PhysicalLocation,
    logical_locations: Vec<LogicalLocation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Message>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PhysicalLocation {
    artifact_location: ArtifactLocation,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<Region>,
    address: Address,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ArtifactLocation {
    uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    uri_base_id: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Region {
    start_line: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Address {
    absolute_address: u64,
    kind: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LogicalLocation {
    fully_qualified_name: String,
    kind: &'static str,
}

/// Scans as one SARIF document. `root` is the folder of the repository, absolute.
///
/// # Errors
/// When a number in a report has no form in JSON.
pub fn to_sarif(
    reports: &[ScanReport],
    cards: &[RuleCard],
    root: &Path,
) -> Result<String, serde_json::Error> {
    let results = reports
        .iter()
        .flat_map(|report| {
            let count = report.findings.len() as f64;
            report.findings.iter().enumerate().map(move |(place, finding)| {
                let rank = 100.0 * (1.0 - place as f64 / count);
                outcome(report, finding, cards, rank, root)
            })
        })
        .collect();
    let base = ArtifactLocation { uri: format!("{}/", file_uri(root)), uri_base_id: None };
    let driver = Driver {
        name: "stallscope",
        version: env!("CARGO_PKG_VERSION"),
        rules: cards.iter().map(rule).collect(),
    };
    let log = Log {
        schema: SARIF_SCHEMA,
        version: "2.1.0",
        runs: vec![Run {
            tool: Tool { driver },
            original_uri_base_ids: BTreeMap::from([(ROOT, base)]),
            results,
            column_kind: "utf16CodeUnits",
        }],
    };
    Ok(escape_json(&serde_json::to_string_pretty(&log)?).into_owned() + "\n")
}

fn rule(card: &RuleCard) -> Rule {
    let message = |text: &str| Message { text: text.to_owned() };
    Rule {
        id: card.id,
        short_description: message(card.title),
        full_description: message(card.effect),
        help: message(&format!("{}\n{}", card.detection, card.remedies.join("\n"))),
    }
}

fn outcome(
    report: &ScanReport,
    finding: &Finding,
    cards: &[RuleCard],
    rank: f64,
    root: &Path,
) -> Outcome {
    let place = |site: &Site| location(&report.program, site, root);
    let related = finding.others.iter().enumerate().map(|(i, site)| Location {
        id: Some(i + 1),
        message: Some(Message { text: site.text.clone() }),
        ..place(site)
    });
    Outcome {
        rule_id: finding.rule.clone(),
        rule_index: cards.iter().position(|c| c.id == finding.rule).unwrap_or(0),
        level: match finding.certainty {
            Certainty::Definite => "warning",
            Certainty::Probable => "note",
        },
        message: Message { text: format!("{}. Try: {}", finding.mechanism, finding.remedy) },
        locations: vec![place(&finding.site)],
        related_locations: related.collect(),
        partial_fingerprints: BTreeMap::from([("stallscopeFinding/v1", finding.id.0.clone())]),
        rank,
        properties: Properties {
            score: finding.score,
            grade: finding.grade.to_string(),
            cycles_lost: finding.cycles_lost.to_string(),
            instruction: finding.site.text.clone(),
        },
    }
}

fn location(program: &str, site: &Site, root: &Path) -> Location {
    let below_root = |line: &&SourceLine| relative(&line.file, root).is_some();
    let line = site.source.iter().find(below_root).or(site.source.first());
    let artifact_location = match line {
        Some(line) => artifact(&line.file, root),
        None => artifact(program, root),
    };
    let region = line.filter(|l| l.line > 0).map(|l| Region { start_line: l.line });
    Location {
        id: None,
        physical_location: PhysicalLocation {
            artifact_location,
            region,
            address: Address { absolute_address: site.svma.0, kind: "instruction" },
        },
        logical_locations: vec![LogicalLocation {
            fully_qualified_name: site.function.clone(),
            kind: "function",
        }],
        message: None,
    }
}

fn artifact(file: &str, root: &Path) -> ArtifactLocation {
    match relative(file, root) {
        Some(path) => {
            ArtifactLocation { uri: encode(&path.to_string_lossy()), uri_base_id: Some(ROOT) }
        }
        None => ArtifactLocation { uri: file_uri(Path::new(file)), uri_base_id: None },
    }
}

/// The path below the root, without `.` and `..`; relative ones count from the root. The compiler
/// writes what it was called with, so that no link is followed here.
fn relative(file: &str, root: &Path) -> Option<PathBuf> {
    let plain = |path: &Path| {
        let mut out = PathBuf::new();
        for part in path.components() {
            match part {
                Component::ParentDir => {
                    out.pop();
                }
                Component::CurDir => {}
                other => out.push(other),
            }
        }
        out
    };
    let below = plain(&root.join(file)).strip_prefix(plain(root)).ok()?.to_owned();
    (!below.as_os_str().is_empty()).then_some(below)
}

fn file_uri(path: &Path) -> String {
    let encoded = encode(path.to_string_lossy().trim_end_matches('/'));
    if path.is_absolute() { format!("file://{encoded}") } else { encoded }
}

/// Percent encoding of what a path in an address must not hold.
fn encode(path: &str) -> String {
    path.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' | b'+' => {
                out.push(char::from(byte));
            }
            other => out += &format!("%{other:02X}"),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{Image, fixture};
    use crate::hazards::{HAZARDS, ScanFilter, scan};
    use crate::machine::{Design, Microarchitecture};

    fn document(file: &str) -> serde_json::Value {
        let profile = Design::of(Microarchitecture::Zen5);
        let wide = fixture::ring_loop(true);
        let program = fixture::program(&[("decode", &wide)]);
        let image = Image::parse(Path::new("/repo/build/p"), program).unwrap();
        let mut report = scan(&image, &ScanFilter::default(), &profile, None);
        let line = SourceLine { file: file.into(), line: 7, function: None };
        report.findings[0].site.source = vec![line];
        let cards: Vec<RuleCard> = HAZARDS.iter().map(|h| h.card(&profile)).collect();
        let text = to_sarif(&[report], &cards, Path::new("/repo")).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// What the standard and the readers of it require of a log, and what GitHub adds.
    #[test]
    fn the_document_has_the_required_shape() {
        let log = document("/repo/src/a b.c");
        assert_eq!(log["version"], "2.1.0");
        assert!(log["$schema"].as_str().unwrap().ends_with("sarif-schema-2.1.0.json"));
        let run = &log["runs"][0];
        let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
        assert_eq!(run["tool"]["driver"]["name"], "stallscope");
        assert!(run["originalUriBaseIds"][ROOT]["uri"].as_str().unwrap().ends_with('/'));
        let results = run["results"].as_array().unwrap();
        assert!(!results.is_empty());
        for result in results {
            let index = result["ruleIndex"].as_u64().unwrap() as usize;
            assert_eq!(rules[index]["id"], result["ruleId"]);
            assert!(
                ["none", "note", "warning", "error"].contains(&result["level"].as_str().unwrap())
            );
            assert!(!result["message"]["text"].as_str().unwrap().is_empty());
            let fingerprints = result["partialFingerprints"].as_object().unwrap();
            assert!(fingerprints.values().all(serde_json::Value::is_string));
            let rank = result["rank"].as_f64().unwrap();
            assert!((0.0..=100.0).contains(&rank));
            for location in result["locations"].as_array().unwrap() {
                let physical = &location["physicalLocation"];
                assert!(physical["artifactLocation"]["uri"].is_string());
                assert!(physical["address"]["absoluteAddress"].is_u64());
                assert_eq!(location["logicalLocations"][0]["kind"], "function");
            }
        }
    }

    #[test]
    fn source_lines_are_relative_to_the_repository() {
        let place = |file: &str| {
            document(file)["runs"][0]["results"][0]["locations"][0]["physicalLocation"].clone()
        };
        let inside = place("/repo/src/../src/a b.c");
        assert_eq!(inside["artifactLocation"]["uri"], "src/a%20b.c");
        assert_eq!(inside["artifactLocation"]["uriBaseId"], ROOT);
        assert_eq!(inside["region"]["startLine"], 7);
        let outside = place("/usr/include/x.h");
        assert_eq!(outside["artifactLocation"]["uri"], "file:///usr/include/x.h");
        assert!(outside["artifactLocation"]["uriBaseId"].is_null());
        assert_eq!(place("src/b.c")["artifactLocation"]["uri"], "src/b.c");
    }
}
