//! Histories with a known truth, and files that others have edited.

use std::fs;

use super::simulate::{commit, commits};
use super::*;
use crate::compare::simulate::{Noise, SimulatedMachine};
use crate::compare::{Decision, Metric, Settings, compare};

fn judged(entries: Vec<HistoryEntry>) -> HistoryReport {
    judge("h", HistoryFile { entries, damaged: Vec::new() }, 0.01, 1)
}

/// Steps that are called.
fn called(report: &HistoryReport) -> Vec<&HistoryStep> {
    report.series.iter().flat_map(|s| &s.steps).filter(|s| s.is_called()).collect()
}

#[test]
fn a_step_of_2_percent_in_30_commits_is_found_with_its_commit() {
    let (mut found, mut near) = (0, 0);
    for seed in 0..40 {
        let at = 8 + seed as usize % 15;
        let report = judged(commits(seed, 30, 0.005, at, 0.02_f64.ln_1p()));
        let steps = called(&report);
        found += usize::from(steps.len() == 1 && steps[0].word == StepWord::Slower);
        near += usize::from(steps.iter().any(|s| (s.at as usize).abs_diff(at) <= 1));
    }
    assert!(found >= 39 && near >= 38, "{found} found, {near} at their commit");
}

#[test]
fn equal_commits_have_no_step() {
    let false_steps: usize =
        (0..100).map(|seed| called(&judged(commits(seed, 40, 0.01, 0, 0.0))).len()).sum();
    assert_eq!(false_steps, 0);
}

#[test]
fn a_step_that_placement_explains_is_not_called() {
    let mut entries = commits(3, 40, 0.002, 20, 0.015);
    assert_eq!(called(&judged(entries.clone())).len(), 1);
    entries[10].layout_sd_log = Some(0.008);
    let report = judged(entries.clone());
    assert_eq!(called(&report).len(), 0);
    let step = &report.series[0].steps[0];
    assert_eq!(
        (step.word, step.label.as_str(), step.before.as_str()),
        (StepWord::WithinLayoutSpread, "c20", "c19")
    );
    assert!((step.layout_reach_log.unwrap() - 0.0222).abs() < 1e-4);
    // What was told last counts.
    entries[30].layout_sd_log = Some(0.001);
    assert_eq!(called(&judged(entries)).len(), 1);
}

/// Commits with a noise of 0.5 %, of which each takes so much longer.
fn shaped(seed: u64, n: usize, level: impl Fn(usize) -> f64) -> Vec<HistoryEntry> {
    let mut entries = commits(seed, n, 0.005, 0, 0.0);
    entries.iter_mut().enumerate().for_each(|(i, e)| e.log_ratio += level(i));
    entries
}

#[test]
fn a_ramp_drifts_and_no_commit_is_named() {
    let (mut drifting, mut steps) = (0, 0);
    for seed in 0..20 {
        let report = judged(shaped(seed, 30, |i| 0.04 * i as f64 / 29.0));
        let found = &report.series[0].steps;
        drifting += usize::from(found.iter().any(|s| s.word == StepWord::DriftSlower));
        steps += usize::from(found.iter().any(HistoryStep::is_called));
        assert_eq!(report.decision(), Decision::Slower);
    }
    assert!(drifting >= 18 && steps <= 2, "{drifting} drift, {steps} step");
    // Steps that follow each other are no ramp, and a step is none.
    let stairs = judged(shaped(3, 45, |i| 0.03 * (i / 15) as f64));
    let labels: Vec<&str> = called(&stairs).iter().map(|s| s.label.as_str()).collect();
    assert_eq!(labels, ["c15", "c30"]);
}

#[test]
fn the_way_of_a_drift_is_that_of_its_line() {
    let report = judged(shaped(1, 60, |i| -0.06 * i as f64 / 59.0));
    let [drift] = &report.series[0].steps[..] else { panic!("{:?}", report.series[0].steps) };
    assert_eq!(
        (drift.word, drift.before.as_str(), drift.label.as_str()),
        (StepWord::DriftFaster, "c0", "c59")
    );
    let part = drift.change;
    assert!(
        part.low_log < -0.06 && -0.06 < part.high_log && (part.log_ratio + 0.06).abs() < 0.006,
        "{part:?}"
    );
    assert_eq!(report.decision(), Decision::Equivalent);
}

#[test]
fn the_newest_commits_that_differ_are_told_before_they_are_a_step() {
    for (count, step) in [(1, 0.5), (2, 0.5), (2, -0.5)] {
        let report = judged(shaped(2, 30, |i| if i >= 30 - count { step } else { 0.0 }));
        let newest = report.series[0].newest.as_ref().unwrap();
        assert_eq!(
            (newest.count as usize, newest.label.as_str()),
            (count, ["c29", "c28"][count - 1])
        );
        let want = if step > 0.0 { Decision::Inconclusive } else { Decision::Equivalent };
        assert_eq!((called(&report).len(), report.decision()), (0, want));
    }
    let flat =
        (0..100).filter(|seed| judged(shaped(*seed, 30, |_| 0.0)).series[0].newest.is_some());
    assert!(flat.count() <= 1);
}

#[test]
fn a_gate_knows_when_it_knows_nothing() {
    let line = |e: &HistoryEntry| serde_json::to_string(e).unwrap() + "\n";
    let text: String = commits(5, 20, 0.002, 0, 0.0).iter().map(line).collect();
    let decision = |text: &str| judge("h", parse(text), 0.01, 1).decision();
    assert_eq!(decision(&text), Decision::Equivalent);
    assert_eq!(decision(&("x\n".to_owned() + &text)), Decision::Equivalent);
    assert_eq!(decision(&("x\n".repeat(21) + &text)), Decision::Inconclusive);
    assert_eq!(decision(&(text.clone() + "x\n")), Decision::Inconclusive);
    let few: String = commits(5, 13, 0.002, 6, 0.5).iter().map(line).collect();
    assert_eq!(decision(&few), Decision::Inconclusive);
    let slower: String = commits(5, 40, 0.002, 20, 0.05).iter().map(line).collect();
    assert_eq!(decision(&("\u{feff}".to_owned() + &slower)), Decision::Slower);
}

#[test]
fn labels_that_are_there_twice_have_their_line_and_time_runs_on() {
    let mut entries = commits(5, 40, 0.002, 20, 0.05);
    for at in [19, 20, 30] {
        entries[at].label = "again".into();
    }
    entries[33].time_s = 7;
    let text: String = entries.iter().map(|e| serde_json::to_string(e).unwrap() + "\n").collect();
    let report = judge("h", parse(&("x\n".to_owned() + &text)), 0.01, 1);
    let step = called(&report)[0];
    assert_eq!((step.before.as_str(), step.label.as_str()), ("again (line 21)", "again (line 22)"));
    assert_eq!(report.series[0].back_in_time.as_deref(), Some("c33"));
    assert_eq!(judged(commits(5, 20, 0.002, 0, 0.0)).series[0].back_in_time, None);
}

#[test]
fn what_is_too_small_to_matter_is_no_step() {
    let report = judged(commits(4, 40, 0.0005, 20, 0.004));
    assert_eq!(report.series[0].steps[0].word, StepWord::TooSmall);
    let faster = judged(commits(4, 40, 0.002, 20, -0.03));
    assert_eq!(called(&faster)[0].word, StepWord::Faster);
}

#[test]
fn other_references_metrics_and_machines_are_other_series() {
    let mut entries = commits(5, 40, 0.002, 20, 0.05);
    for late in &mut entries[20..] {
        late.series.reference_fnv1a = "rebuilt".into();
    }
    // By which time a commit was judged is no other question.
    entries[5].metric = Metric::Cpu;
    let report = judged(entries);
    assert_eq!(report.series.len(), 2);
    assert_eq!((called(&report).len(), report.series[1].entries[0].label.as_str()), (0, "c20"));
    let few = judged(commits(5, 13, 0.002, 6, 0.5));
    assert!(!few.series[0].enough && few.series[0].steps.is_empty());
}

#[test]
fn entries_are_added_whole_and_only_behind_entries() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("h.jsonl");
    for (label, log) in [("one", 0.01), ("two", -0.02)] {
        History::open(&path).unwrap().add(&commit(label, log)).unwrap();
    }
    let read_again = read(&path).unwrap();
    assert_eq!(read_again.entries, [commit("one", 0.01), commit("two", -0.02)]);
    assert_eq!(read_again.damaged, []);
    // Cut off in the last line, as by a full disk.
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 20]).unwrap();
    let said = History::open(&path).unwrap_err().to_string();
    assert!(said.contains("line 2 is no entry") && said.contains("nothing is added"), "{said}");
    let read_again = read(&path).unwrap();
    assert_eq!((read_again.entries.len(), read_again.damaged[0].line), (1, 2));
    // Whole but for the end of its line: another entry would be glued to it.
    fs::write(&path, whole.trim_end()).unwrap();
    assert!(History::open(&path).is_err());
    // What somebody else wrote stays as it is.
    fs::write(&path, "int main(void) {}\n").unwrap();
    assert!(History::open(&path).is_err());
    assert_eq!(fs::read_to_string(&path).unwrap(), "int main(void) {}\n");
    assert!(History::open(folder.path()).is_err());
    assert!(read(&folder.path().join("none")).is_err());
}

#[test]
fn claims_that_cannot_be_are_not_believed() {
    let line = |change: &dyn Fn(&mut HistoryEntry)| {
        let mut changed = commit("x", 0.01);
        change(&mut changed);
        serde_json::to_string(&changed).unwrap() + "\n"
    };
    let good = line(&|_| {});
    let bad = [
        line(&|e| e.low_log = 0.5),
        line(&|e| (e.log_ratio, e.high_log) = (1e300, 1e300)),
        line(&|e| e.pairs = 0),
        line(&|e| e.layout_sd_log = Some(-0.1)),
        line(&|e| e.label = String::new()),
        line(&|e| e.label = "x".repeat(201)),
        "null\n".into(),
        "\n".into(),
        good.replace("0.01,", "NaN,"),
    ];
    for text in &bad {
        let found = parse(&(good.clone() + text + &good));
        assert_eq!((found.entries.len(), found.damaged.len()), (2, 1), "{text}");
        assert_eq!(found.damaged[0].line, 2);
    }
    assert_eq!(label_objection("3f2a1c fix the parser"), None);
    assert!(label_objection("two\nlines").is_some());
}

#[test]
fn a_comparison_becomes_an_entry() {
    let mut machine = SimulatedMachine::new(Noise::Quiet, 20, 11);
    machine.effect_log = 0.2;
    let result = compare(&mut machine, &Settings::default(), &mut |_| {}).unwrap();
    let entry = HistoryEntry::of(&result, "3f2a1c", 7, "m", Some(0.01));
    assert_eq!((entry.decision, entry.pairs, entry.metric), (Decision::Slower, 20, Metric::Wall));
    assert_eq!(
        [entry.low_log, entry.high_log],
        [result.analysis.wall.low_log, result.analysis.wall.high_log]
    );
    assert_eq!(entry.objection(), None);
    let again = parse(&(serde_json::to_string(&entry).unwrap() + "\n"));
    assert!(again.damaged.is_empty() && again.entries[0].series == entry.series);
    assert!((again.entries[0].high_log - entry.high_log).abs() < 1e-12);
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_named(text in "\\PC{0,200}(\n\\PC{0,80}){0,4}") {
        let found = parse(&text);
        let lines = text.split_inclusive('\n').count();
        proptest::prop_assert_eq!(found.entries.len() + found.damaged.len(), lines);
    }
}
