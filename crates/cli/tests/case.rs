//! `case` from outside: the list, what to type, the programs of the gallery, refusals. No claim about speed.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use stallscope::code::Image;
use support::{refused, run, stallscope};

#[test]
fn without_a_name_all_cases_are_listed_and_those_of_the_tree_say_what_to_type() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["case"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success());
    for (case, step) in [
        ("upstream-index-decoder", "stallscope explain"),
        ("index-codec", "cargo run"),
        ("rep-strategy", "scan --diff"),
        ("go-untouched-code", "stallscope layout"),
    ] {
        assert!(text.contains(case), "{text}");
        let output = run(folder.path(), &["case", case]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains(step), "{text}");
    }
}

#[test]
fn what_cannot_be_done_is_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    refused(here, &["case", "nonsense"], &["no case `nonsense`", "index-codec", "sorted-array"]);
    refused(here, &["case", "index-codec", "--trap"], &["takes the source tree"]);
    let no_compiler = ["case", "sorted-array", "--cc", "no-such-compiler"];
    refused(here, &no_compiler, &["no C compiler `no-such-compiler`", "install gcc or clang"]);
    refused(here, &["case", "sorted-array", "--cc", "false"], &["`false` does not build it"]);
}

fn gallery(here: &Path) -> Vec<String> {
    let output = run(here, &["case", "--json", "-"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let cases = document["result"].as_array().unwrap().iter();
    let built = cases.filter(|case| case["is_built_here"] == true);
    built.map(|case| case["id"].as_str().unwrap().to_owned()).collect()
}

fn built(here: &Path, case: &str, which: &[&str]) -> [PathBuf; 2] {
    let args = [&["case", case, "--build-only", "--json", "-"], which].concat();
    let output = stallscope(here, &args).output().unwrap();
    assert!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    serde_json::from_value(document["result"]["programs"].clone()).unwrap()
}

fn said(program: &Path) -> Vec<u8> {
    // A few turns tell as well as all whether the arms do the same.
    let output = Command::new(program).arg("3").output().unwrap();
    assert!(output.status.success() && !output.stdout.is_empty(), "{}", program.display());
    output.stdout
}

fn has_function(program: &Path, name: &str) -> bool {
    let image = Image::open(program).unwrap();
    // Compilers make clones with a suffix: `sum_of.constprop.0`.
    let is_it = |found: &str| found.split('.').next() == Some(name);
    image.functions().iter().any(|function| is_it(&function.symbol))
}

/// Whether there is a C compiler, or a loud word about it.
#[expect(clippy::print_stderr, reason = "a skipped test must be heard")]
fn has_compiler() -> bool {
    let found = Command::new("cc").arg("--version").output().is_ok();
    assert!(found || std::env::var_os("CI").is_none(), "there is no C compiler `cc`");
    if !found {
        eprintln!("SKIPPED: the gallery is not built: there is no C compiler `cc`");
    }
    found
}

#[test]
fn both_arms_of_every_pair_are_built_do_the_same_and_have_the_function() {
    if !cfg!(target_arch = "x86_64") || !has_compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let cases = gallery(here);
    assert!(cases.len() >= 20, "{cases:?}");
    let definitions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases/gallery");
    for case in cases {
        let text = std::fs::read_to_string(definitions.join(&case).join("case.toml")).unwrap();
        let definition: toml::Table = text.parse().unwrap();
        let function = definition["case"]["function"].as_str().unwrap();
        for which in [&[][..], &["--trap"]] {
            let programs = built(here, &case, which);
            let [before, after] = programs.each_ref().map(|program| said(program));
            assert!(before == after, "the arms of {case} {which:?} print different things");
            if which.is_empty() {
                assert!(has_function(&programs[1], function), "{case}: {function}");
            }
        }
    }
}
