//! `compare --history`, `history` and `env` from outside: what is kept, what is refused; no claim about speed.

mod support;

use std::fs;
use std::path::Path;

use support::{refused, run};

fn compare(folder: &Path, label: &str, more: &[&str]) -> std::process::Output {
    let args = ["compare", "-q", "--pairs", "6", "--history", "h.jsonl", "--label", label];
    run(folder, &[&args, more, &["true", "true"]].concat())
}

#[test]
fn verdicts_are_kept_line_by_line_and_judged() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for label in ["one", "two", "three"] {
        let output = compare(here, label, &["--layout-spread", "0.5%"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let text = fs::read_to_string(here.join("h.jsonl")).unwrap();
    assert_eq!(text.lines().count(), 3);
    let entry: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!((&entry["label"], &entry["pairs"]), (&"one".into(), &6.into()));
    assert!(
        entry["layout_sd_log"].as_f64().unwrap() > 0.0 && entry["time_s"].as_u64().unwrap() > 0
    );
    let output = run(here, &["history", "h.jsonl", "--json", "-"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&value["kind"], &value["result"]["series"][0]["enough"]),
        (&"history".into(), &false.into())
    );
    let screen = String::from_utf8(run(here, &["history", "--gate", "h.jsonl"]).stdout).unwrap();
    assert!(screen.contains("too few commits to tell a step from noise: 3 of 14"), "{screen}");
}

#[test]
fn what_is_no_history_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("h.jsonl"), "int main(void) {}\n").unwrap();
    let output = compare(here, "x", &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("line 1 is no entry"), "{said}");
    assert_eq!(fs::read_to_string(here.join("h.jsonl")).unwrap(), "int main(void) {}\n");
    refused(here, &["history", "h.jsonl"], &["holds no entry", "line 1"]);
    refused(here, &["history", "none"], &["cannot use the history none"]);
    fs::write(here.join("empty"), "").unwrap();
    refused(here, &["history", "empty"], &["is empty"]);
    refused(here, &["compare", "--history", "new", "true", "true"], &["--label"]);
    let three = ["compare", "--history", "new", "--label", "x", "true", "true", "true"];
    refused(here, &three, &["--history goes with two commands"]);
    let lines = ["compare", "--history", "new", "--label", "a\nb", "true", "true"];
    refused(here, &lines, &["--label: its label is"]);
}

#[test]
fn arguments_stay_out_of_a_history_where_they_are_redacted() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let output = run(
        here,
        &[
            "compare",
            "-q",
            "--redact-args",
            "--pairs",
            "6",
            "--history",
            "h",
            "--label",
            "x",
            "true",
            "true",
            "--",
            "secret",
        ],
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!fs::read_to_string(here.join("h")).unwrap().contains("secret"));
}

#[test]
fn the_settings_of_this_machine_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["env", "--json", "-"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["kind"], "env");
    let settings = value["result"]["settings"].as_array().unwrap();
    assert_eq!(settings.len(), 11);
    // The load may change between two looks, so only that there is an answer.
    let gated = run(folder.path(), &["env", "-q", "--gate"]).status.code();
    assert!(matches!(gated, Some(0 | 1)), "{gated:?}");
}
