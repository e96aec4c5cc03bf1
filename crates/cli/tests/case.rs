//! `case` from outside: the list, what to type for each, refusals.

mod support;

use support::{refused, run};

#[test]
fn without_a_name_all_cases_are_listed_and_each_says_what_to_type() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["case"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success());
    assert!(text.contains("index-codec") && text.contains("upstream-index-decoder"), "{text}");
    for (case, step) in [("upstream-index-decoder", "build.sh"), ("index-codec", "cargo run")] {
        let output = run(folder.path(), &["case", case]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains(step), "{text}");
    }
}

#[test]
fn what_is_no_case_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    refused(here, &["case", "nonsense"], &["no case `nonsense`", "index-codec"]);
}
