//! `stallscope probe` from outside: exit codes, messages, the shape of the JSON. No test here
//! depends on how fast or how quiet the machine is.

use assert_cmd::Command;

fn stallscope() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("stallscope"))
}

#[test]
fn an_unknown_probe_is_a_usage_error_that_names_the_known_ones() {
    let output = stallscope().args(["probe", "nonsense"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("`nonsense`") && message.contains("clock"), "{message}");
    assert!(output.stdout.is_empty());
}

#[test]
#[cfg(target_arch = "x86_64")]
fn json_goes_to_standard_output_alone() {
    let output =
        stallscope().args(["probe", "clock", "--json", "-", "--seed", "7"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["kind"], "probe");
    assert_eq!(document["result"]["seed"], 7);
    let report = &document["result"]["probes"][0];
    assert_eq!(report["probe"], "clock");
    assert!(report["samples"].as_u64().unwrap() > 0);
    assert!(report["environment"]["reasons"][0]["text"].is_string());
}
