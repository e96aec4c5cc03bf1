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

#[test]
#[cfg(target_arch = "x86_64")]
fn what_was_found_is_kept_and_read_again() {
    let cache = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let mut command = stallscope();
        command.env("XDG_CACHE_HOME", cache.path()).args(args).output().unwrap()
    };
    let output = run(&["probe", "store-forwarding", "--json", "-", "--seed", "7"]);
    assert_eq!(output.status.code(), Some(0));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let report = &document["result"]["probes"][0];
    assert_eq!(report["probe"], "store-forwarding");
    let kept = std::fs::read_dir(cache.path().join("stallscope/profiles"))
        .map(|folder| folder.filter_map(Result::ok).map(|f| f.path()).collect::<Vec<_>>())
        .unwrap_or_default();
    // A machine too restless to say anything keeps nothing.
    if report["conclusive"] == true && !report["blocked"].is_null() {
        assert_eq!(kept.len(), 1);
        let card = String::from_utf8(run(&["rule", "store-forward"]).stdout).unwrap();
        assert!(card.contains("profile  ") && card.contains("measured here"), "{card}");
    } else {
        assert!(kept.is_empty());
    }
}

#[test]
fn a_profile_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.json");
    let rule = || {
        let mut command = stallscope();
        command.args(["rule", "store-forward", "--profile"]).arg(&path).output().unwrap()
    };
    let missing = rule();
    assert_eq!(missing.status.code(), Some(2));
    let message = String::from_utf8(missing.stderr).unwrap();
    assert!(message.contains("mine.json") && message.contains("makes one"), "{message}");
    std::fs::write(&path, "{\"version\": 99}").unwrap();
    let newer = rule();
    assert_eq!(newer.status.code(), Some(2));
    let message = String::from_utf8(newer.stderr).unwrap();
    assert!(message.contains("mine.json") && message.contains("99"), "{message}");
}

/// What `probe snippet` says of code.
#[cfg(target_arch = "x86_64")]
fn snippet(args: &[&str]) -> std::process::Output {
    stallscope().args(["probe", "snippet"]).args(args).output().unwrap()
}

#[test]
#[cfg(target_arch = "x86_64")]
fn code_that_cannot_be_timed_is_refused_before_it_runs() {
    for (code, why) in [
        ("ret", "`ret` leaves the loop"),
        ("inc r15", "`inc r15` uses r15, in which the loop counts"),
        ("nonsense rax", "does not take `nonsense rax`"),
        (" ", "the body has no instruction"),
        ("mov rax, [elsewhere]", "names something outside of it"),
    ] {
        let output = snippet(&[code]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{code}: {said}");
        assert!(said.contains(why), "{code}: {said}");
    }
    let output = snippet(&["nop", "--assembler", "/nowhere/as"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no assembler `/nowhere/as`"));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn code_that_crashes_takes_nothing_else_with_it() {
    let output = snippet(&["mov rax, [rbx]", "--init", "xor ebx, ebx"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("SIGSEGV") && said.contains("rdi"), "{said}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_snippet_is_timed_or_the_machine_is_too_restless() {
    let output = snippet(&["imul rax, rax", "--json", "-"]);
    assert!(output.status.success());
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let report = &document["result"];
    assert_eq!((report["instructions"].as_u64(), report["bytes"].as_u64()), (Some(1), Some(4)));
    let is_there = !report["cycles"].is_null();
    assert!(is_there || report["conclusive"] == false, "{report}");
}
