//! `store-forward` against the truth: functions drawn by a seed, compiled by many compilers and
//! written in assembly, each executed and judged by what its own accesses did.
//!
//! Every day a part of them is enough. `make bench-truth-scan` takes all and prints the table.
#![cfg(target_arch = "x86_64")]
#![allow(clippy::print_stdout, reason = "the table is half of what this file is for")]

mod aarch64;
mod build;
mod c;
mod execute;
mod members;
mod shape;
mod x86;

use std::collections::BTreeMap;

use build::{TOOLCHAINS, Toolchain};
use shape::Shape;
use stallscope::code::Image;
use stallscope::hazards::{STORE_FORWARD, ScanFilter, scan};
use stallscope::machine::{Design, Microarchitecture};
use stallscope::sim::store_buffer::StoreBufferReport;

const SEED: u64 = 0x57a1_15c0;
const EVERYDAY_SHAPES: usize = 60;
const ALL_SHAPES: usize = 240;
const LEAST_RECALL: f64 = 0.98;
/// Of the shapes in `members`: as far as the rule has come.
const LEAST_RECALL_OF_MEMBERS: f64 = 0.5;
const MOST_FALSE: f64 = 0.02;

/// How the rule did.
#[derive(Clone, Copy, Default)]
struct Score {
    blocking: usize,
    found: usize,
    innocent: usize,
    accused: usize,
    /// Findings in blocking functions at loads that were not blocked, and all findings there.
    wrong_sites: usize,
    sites: usize,
    /// Blocked only by stores further back than the rule looks.
    afar: usize,
}

impl Score {
    fn add(&mut self, other: Self) {
        self.blocking += other.blocking;
        self.found += other.found;
        self.innocent += other.innocent;
        self.accused += other.accused;
        self.wrong_sites += other.wrong_sites;
        self.sites += other.sites;
        self.afar += other.afar;
    }

    fn recall(&self) -> f64 {
        self.found as f64 / self.blocking.max(1) as f64
    }

    fn false_share(&self) -> f64 {
        self.accused as f64 / self.innocent.max(1) as f64
    }

    fn row(&self) -> String {
        format!(
            "{:5} of {:5} ({:5.1} %) {:5} of {:5} ({:4.1} %) {:5} of {:5} {:5}",
            self.found,
            self.blocking,
            100.0 * self.recall(),
            self.accused,
            self.innocent,
            100.0 * self.false_share(),
            self.wrong_sites,
            self.sites,
            self.afar
        )
    }
}

/// The shape that a function belongs to: `f12`, `f12_in`, a clone of them.
fn number(symbol: &str) -> Option<usize> {
    let digits = symbol.strip_prefix('f')?;
    digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Per shape: the scores of the functions made of it. None when a tool is missing.
fn judge(toolchain: &Toolchain, shapes: &[Shape]) -> Option<Vec<Score>> {
    let folder = tempfile::tempdir().unwrap();
    let keep = std::env::var_os("STALLSCOPE_CORPUS_FOLDER");
    let path = keep.map_or(folder.path().to_path_buf(), |keep| {
        std::path::Path::new(&keep).join(toolchain.name.replace(' ', "-"))
    });
    std::fs::create_dir_all(&path).unwrap();
    let program = toolchain.build(shapes, &path)?;
    let design = if toolchain.is_x86 {
        Microarchitecture::CascadeLake
    } else {
        Microarchitecture::AmpereSkylark
    };
    let profile = Design::of(design);
    let rule = profile.forwarding_rule;
    let truth = if toolchain.is_x86 {
        execute::natively(&program, rule)
    } else {
        execute::emulated(&program, &path, rule)
    };
    let truth = truth.unwrap_or_else(|error| panic!("{}: {error}", toolchain.name));
    let image = Image::open(&program).unwrap();
    let shape_at = |address: u64| {
        let function = image.function_at(stallscope::model::Svma(address))?;
        number(&function.symbol)
    };
    let sites = |report: &StoreBufferReport| {
        let mut blocked: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for site in report.sites.iter().filter(|s| s.blocked > 0) {
            if let Some(shape) = shape_at(site.insn.0) {
                blocked.entry(shape).or_default().push(site.insn.0);
            }
        }
        blocked
    };
    let (blocked, from_afar) = (sites(&truth.near), sites(&truth.far));
    let mut findings: BTreeMap<usize, Vec<Vec<u64>>> = BTreeMap::new();
    let filter = ScanFilter { rules: vec![&STORE_FORWARD], ..ScanFilter::default() };
    for finding in scan(&image, &filter, &profile, None).findings {
        if let Some(shape) = shape_at(finding.site.svma.0) {
            // Behind a call the load is in the function called, beside the stores.
            let sites = std::iter::once(&finding.site).chain(&finding.others);
            findings.entry(shape).or_default().push(sites.map(|s| s.svma.0).collect());
        }
    }
    let score = |shape: &Shape| {
        let real = blocked.get(&shape.number).map_or(&[][..], Vec::as_slice);
        let said = findings.get(&shape.number).map_or(&[][..], Vec::as_slice);
        let right = said.iter().filter(|f| f.iter().any(|s| real.contains(s))).count();
        let blocking = !real.is_empty();
        if !blocking && from_afar.contains_key(&shape.number) {
            // Neither: the rule does not look so far back.
            return Score { afar: 1, ..Score::default() };
        }
        let score = Score {
            blocking: usize::from(blocking),
            found: usize::from(right > 0),
            innocent: usize::from(!blocking),
            accused: usize::from(!blocking && !said.is_empty()),
            wrong_sites: if blocking { said.len() - right } else { 0 },
            sites: if blocking { said.len() } else { 0 },
            afar: 0,
        };
        if score.blocking > score.found || score.accused > 0 {
            let what = if blocking { "missed" } else { "false alarm" };
            println!("  {what}: f{} of {}, {}", shape.number, toolchain.name, shape.kind);
        }
        score
    };
    Some(shapes.iter().map(score).collect())
}

#[test]
fn the_rule_finds_what_execution_shows() {
    let whole = std::env::var_os("STALLSCOPE_CORPUS").is_some_and(|v| v == "whole");
    let count = if whole { ALL_SHAPES } else { EVERYDAY_SHAPES };
    let mut lines = Vec::new();
    let mut kinds: BTreeMap<String, Score> = BTreeMap::new();
    let (mut all, mut members) = (Score::default(), Score::default());
    for toolchain in TOOLCHAINS.iter().filter(|t| whole || t.is_everyday) {
        let shapes = toolchain.shapes(SEED, count);
        let Some(scores) = judge(toolchain, &shapes) else {
            assert!(std::env::var_os("CI").is_none(), "{}: scripts/setup-test", toolchain.name);
            println!("SKIPPED: {} is not installed", toolchain.name);
            continue;
        };
        let mut sum = Score::default();
        for (shape, score) in shapes.iter().zip(scores) {
            if shape.text.is_some() {
                members.add(score)
            } else {
                sum.add(score)
            }
            kinds.entry(shape.kind.clone()).or_default().add(score);
        }
        all.add(sum);
        lines.push(format!("{:30} {}", toolchain.name, sum.row()));
    }
    let head = format!(
        "{:30} {:>24} {:>23} {:>14} {:>5}",
        "", "found", "false alarms", "wrong sites", "afar"
    );
    println!("{head}\n{}", lines.join("\n"));
    println!("{:30} {}", "all", all.row());
    println!("{:30} {}\n\n{head}", "members, of all", members.row());
    for (kind, score) in &kinds {
        println!("{kind:30} {}", score.row());
    }
    assert!(all.blocking > 0 && all.innocent > 0, "nothing was built");
    assert!(all.recall() >= LEAST_RECALL, "recall {:.3}", all.recall());
    assert!(members.recall() >= LEAST_RECALL_OF_MEMBERS, "members {:.3}", members.recall());
    for score in [all, members] {
        assert!(score.false_share() <= MOST_FALSE, "false alarms {:.3}", score.false_share());
    }
}
