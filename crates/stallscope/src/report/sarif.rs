//! Scan results as SARIF 2.1.0, the form that code review tools read.
//!
//! Only the part of the standard that a scan needs, as plain types. A finding stands at its source
//! line where debug information gives one below the source root (reviewers show nothing else), with
//! the function as logical location; else at its bytes in the program. The stable id of a finding
//! is its fingerprint, so that it stays the same finding when code around it changes. What placement
//! makes is left out for the same reason, and so are all but the findings that rank highest: reviewers
//! refuse larger documents. What was left out, the document says.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::Serialize;

use crate::foreign::escape_json;
use crate::hazards::{RuleCard, ScanReport};
use crate::model::{Certainty, Finding, InFile, Site, SourceLine};

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
    invocations: Vec<Invocation>,
    original_uri_base_ids: BTreeMap<String, ArtifactLocation>,
    results: Vec<Outcome>,
    column_kind: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Invocation {
    execution_successful: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_execution_notifications: Vec<Notification>,
}

#[derive(Serialize)]
struct Notification {
    level: &'static str,
    message: Message,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
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
    uri_base_id: Option<String>,
}

#[derive(Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
enum Region {
    Text { start_line: u32 },
    Binary { byte_offset: u64, byte_length: u8 },
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

/// Scans as one SARIF document of the `most` findings that rank highest. `root` is the folder of the repository,
/// absolute.
///
/// # Errors
/// When a number in a report has no form in JSON.
pub fn to_sarif(
    reports: &[ScanReport],
    cards: &[RuleCard],
    root: &Path,
    most: usize,
) -> Result<String, serde_json::Error> {
    let all = reports.iter().flat_map(|r| std::iter::repeat(r).zip(&r.findings));
    let mut judged: Vec<(&ScanReport, &Finding)> = all.filter(|(_, f)| f.is_judged()).collect();
    judged.sort_by(|(_, a), (_, b)| b.score.total_cmp(&a.score));
    let count = judged.len();
    let by_placement = reports.iter().map(|r| r.findings.len()).sum::<usize>() - count;
    let mut folders = Folders { root, others: Vec::new() };
    let ranked = judged.iter().take(most).enumerate();
    let results = ranked
        .map(|(place, (report, finding))| {
            let rank = 100.0 * (1.0 - place as f64 / count as f64);
            outcome(report, finding, cards, rank, &mut folders)
        })
        .collect();
    let driver = Driver {
        name: "stallscope",
        version: env!("CARGO_PKG_VERSION"),
        rules: cards.iter().map(rule).collect(),
    };
    let invocation = Invocation {
        execution_successful: true,
        tool_execution_notifications: left_out(&judged, most, by_placement),
    };
    let log = Log {
        schema: SARIF_SCHEMA,
        version: "2.1.0",
        runs: vec![Run {
            tool: Tool { driver },
            invocations: vec![invocation],
            original_uri_base_ids: folders.bases(),
            results,
            column_kind: "utf16CodeUnits",
        }],
    };
    Ok(escape_json(&serde_json::to_string_pretty(&log)?).into_owned() + "\n")
}

/// What the document does not hold, in words.
fn left_out(
    judged: &[(&ScanReport, &Finding)],
    most: usize,
    by_placement: usize,
) -> Vec<Notification> {
    let note = |text| Notification { level: "note", message: Message { text } };
    let mut notes = Vec::new();
    if let Some(rest) = judged.get(most..).filter(|rest| !rest.is_empty()) {
        let mut by_rule: BTreeMap<&str, usize> = BTreeMap::new();
        rest.iter().for_each(|(_, f)| *by_rule.entry(&f.rule).or_default() += 1);
        let rules: Vec<String> = by_rule.iter().map(|(rule, n)| format!("{rule} {n}")).collect();
        notes.push(note(format!(
            "The findings that rank lowest were left out, {} of {} ({}): --sarif-most raises the limit of {most}.",
            rest.len(),
            judged.len(),
            rules.join(", ")
        )));
    }
    if by_placement > 0 {
        notes.push(note(format!(
            "Findings that come and go with where the linker puts code and data, and that no profile calls hot, were left \
             out: {by_placement}."
        )));
    }
    notes
}

/// What relative paths hang on.
struct Folders<'a> {
    root: &'a Path,
    /// Folders outside of the root, by number.
    others: Vec<PathBuf>,
}

impl Folders<'_> {
    fn artifact(&mut self, file: &str) -> ArtifactLocation {
        if let Some(path) = relative(file, self.root) {
            let uri = encode(&path.to_string_lossy());
            return ArtifactLocation { uri, uri_base_id: Some(ROOT.to_owned()) };
        }
        let whole = plain(&self.root.join(file));
        let folder = whole.parent().unwrap_or(self.root).to_owned();
        let number = self.others.iter().position(|other| *other == folder).unwrap_or_else(|| {
            self.others.push(folder);
            self.others.len() - 1
        });
        let uri = encode(&whole.file_name().unwrap_or_default().to_string_lossy());
        ArtifactLocation { uri, uri_base_id: Some(base_name(number)) }
    }

    fn bases(&self) -> BTreeMap<String, ArtifactLocation> {
        let base = |path: &Path| {
            let encoded = encode(path.to_string_lossy().trim_end_matches('/'));
            ArtifactLocation { uri: format!("file://{encoded}/"), uri_base_id: None }
        };
        let others = self.others.iter().enumerate().map(|(n, path)| (base_name(n), base(path)));
        others.chain([(ROOT.to_owned(), base(self.root))]).collect()
    }
}

fn base_name(number: usize) -> String {
    format!("FOLDER{}", number + 1)
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
    folders: &mut Folders<'_>,
) -> Outcome {
    let main = location(&report.program, &finding.site, finding.in_file, folders);
    let related = finding.others.iter().enumerate().map(|(i, site)| Location {
        id: Some(i + 1),
        message: Some(Message { text: site.text.clone() }),
        ..location(&report.program, site, None, folders)
    });
    Outcome {
        related_locations: related.collect(),
        rule_id: finding.rule.clone(),
        rule_index: cards.iter().position(|c| c.id == finding.rule).unwrap_or(0),
        level: match finding.certainty {
            Certainty::Definite => "warning",
            Certainty::Probable => "note",
        },
        message: Message { text: format!("{}. Try: {}", finding.mechanism, finding.remedy) },
        locations: vec![main],
        partial_fingerprints: BTreeMap::from([("stallscopeFinding/v1", finding.id.0.clone())]),
        rank,
        properties: Properties {
            score: finding.score,
            grade: finding.grade.to_string(),
            cycles_lost: finding.cycles_lost.to_string(),
            instruction: finding.site.text.clone(),
            source: finding.site.line().map(|line| format!("{}:{}", line.file, line.line)),
        },
    }
}

fn location(
    program: &str,
    site: &Site,
    in_file: Option<InFile>,
    folders: &mut Folders<'_>,
) -> Location {
    let is_shown =
        |line: &&SourceLine| line.line > 0 && relative(&line.file, folders.root).is_some();
    let line = site.source.iter().find(is_shown);
    let region = match line {
        Some(line) => Some(Region::Text { start_line: line.line }),
        None => in_file
            .map(|at| Region::Binary { byte_offset: at.offset.0, byte_length: at.size_bytes }),
    };
    Location {
        id: None,
        physical_location: PhysicalLocation {
            artifact_location: folders.artifact(line.map_or(program, |line| &line.file)),
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

/// The path below the root; relative ones count from the root. The compiler writes what it was called with, so that no
/// link is followed here.
fn relative(file: &str, root: &Path) -> Option<PathBuf> {
    let below = plain(&root.join(file)).strip_prefix(plain(root)).ok()?.to_owned();
    (!below.as_os_str().is_empty()).then_some(below)
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
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
        of_most(file, usize::MAX)
    }

    fn of_most(file: &str, most: usize) -> serde_json::Value {
        let profile = Design::of(Microarchitecture::Zen5);
        let wide = fixture::ring_loop(true);
        let program = fixture::program(&[("decode", &wide), ("again", &wide)]);
        let image = Image::parse(Path::new("/elsewhere/p"), program).unwrap();
        let mut report = scan(&image, &ScanFilter::default(), &profile, None);
        let line = SourceLine { file: file.into(), line: 7, function: None };
        report.findings[0].site.source = vec![line];
        let cards: Vec<RuleCard> = HAZARDS.iter().map(|h| h.card(&profile)).collect();
        let text = to_sarif(&[report], &cards, Path::new("/repo"), most).unwrap();
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
                let uri = physical["artifactLocation"]["uri"].as_str().unwrap();
                assert!(!uri.starts_with('/') && !uri.contains("://"), "{uri}");
                let base = physical["artifactLocation"]["uriBaseId"].as_str().unwrap();
                assert!(run["originalUriBaseIds"][base]["uri"].is_string(), "{base}");
                let region = &physical["region"];
                assert!(region["startLine"].is_u64() || region["byteOffset"].is_u64());
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
        assert_eq!(place("src/b.c")["artifactLocation"]["uri"], "src/b.c");
    }

    #[test]
    fn what_has_no_line_below_the_folder_stands_at_its_bytes() {
        let log = document("/usr/include/x.h");
        let result = &log["runs"][0]["results"][0];
        let outside = &result["locations"][0]["physicalLocation"];
        assert_eq!(outside["artifactLocation"]["uri"], "p");
        assert_eq!(outside["artifactLocation"]["uriBaseId"], "FOLDER1");
        assert_eq!(log["runs"][0]["originalUriBaseIds"]["FOLDER1"]["uri"], "file:///elsewhere/");
        let first = fixture::CODE_START.1.0;
        let offset = outside["region"]["byteOffset"].as_u64().unwrap();
        assert!((first..first + 400).contains(&offset), "{offset:#x}");
        assert_eq!(result["properties"]["source"], "/usr/include/x.h:7");
    }

    #[test]
    fn the_document_says_what_it_leaves_out() {
        let all = document("a.c");
        let results =
            |log: &serde_json::Value| log["runs"][0]["results"].as_array().unwrap().clone();
        assert_eq!(results(&all).len(), 2);
        let notes = |log: &serde_json::Value| {
            log["runs"][0]["invocations"][0]["toolExecutionNotifications"].to_string()
        };
        assert!(notes(&all).contains("calls hot, were left out: 1."), "{all:#}");
        let short = of_most("a.c", 1);
        assert_eq!(results(&short), results(&all)[..1]);
        assert!(notes(&short).contains("left out, 1 of 2 (store-forward 1)"), "{short:#}");
    }
}
