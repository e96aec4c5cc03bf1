//! The cases that come with the source, from outside: what `scan` must find in the slow build and
//! must not find in the fast one. `make cases` builds them; under CI a missing build is a failure.

mod support;

use std::path::{Path, PathBuf};

fn case(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases").join(name).join("build")
}

/// The two builds, or a loud word about why not.
#[expect(clippy::print_stderr, reason = "a skipped test must be heard")]
fn builds(folder: &Path, names: [&str; 2]) -> Option<[PathBuf; 2]> {
    let paths = names.map(|name| folder.join(name));
    if paths.iter().all(|p| p.exists()) {
        return Some(paths);
    }
    let missing = format!("{} is not built: run `make cases`", folder.display());
    assert!(std::env::var_os("CI").is_none(), "{missing}");
    eprintln!("SKIPPED: {missing}");
    None
}

fn findings(program: &Path, function: &str) -> Vec<serde_json::Value> {
    let folder = tempfile::tempdir().unwrap();
    let program = program.canonicalize().unwrap();
    let program = program.to_str().unwrap();
    let rule = ["--rule", "store-forward"];
    let args = [&["scan", "--json", "-", "--function", function, program][..], &rule].concat();
    let output = support::run(folder.path(), &args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    support::result_in(&output.stdout)[0]["findings"].as_array().unwrap().clone()
}

#[test]
fn the_index_decoder_has_the_merged_load_in_one_build_only() {
    let folder = case("upstream-index-decoder");
    let Some([slow, fast]) = builds(&folder, ["decoder-clang-16", "decoder-clang-19"]) else {
        return;
    };
    assert!(findings(&fast, "decodeIndexBuffer").is_empty());
    let found = findings(&slow, "decodeIndexBuffer");
    assert_eq!(found.len(), 1, "{found:#?}");
    let finding = &found[0];
    assert_eq!(finding["rule"], "store-forward");
    assert_eq!(finding["site"]["function"], "meshopt_decodeIndexBuffer");
    assert_eq!(finding["site"]["access_bytes"], 8);
    assert_eq!(finding["site"]["variable"], "edgefifo");
    let stores = finding["others"].as_array().unwrap();
    assert!(stores.len() >= 2 && stores.iter().all(|s| s["access_bytes"] == 4), "{stores:#?}");
    let lines = |site: &serde_json::Value| site["source"][0]["file"].as_str().map(str::to_owned);
    assert!(stores.iter().filter_map(lines).all(|file| file.ends_with("indexcodec.cpp")));
}

/// What `scan --diff` says about the two builds of a library, and its exit code.
fn difference(old: &Path, new: &Path, more: &[&str]) -> (serde_json::Value, Option<i32>) {
    let folder = tempfile::tempdir().unwrap();
    let paths = [old, new].map(|p| p.canonicalize().unwrap());
    let [old, new] = [0, 1].map(|i| paths[i].to_str().unwrap());
    let args =
        [&["scan", "--diff", "--rule", "rep-string", "--json", "-", old, new], more].concat();
    let output = support::run(folder.path(), &args);
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["kind"], "scan-difference");
    (document["result"].clone(), output.status.code())
}

#[test]
fn a_strategy_takes_string_instructions_out_and_the_difference_says_where_and_for_how_much() {
    let folder = case("rep-strategy");
    let Some([old, new]) = builds(&folder, ["default.a", "strategy.a"]) else { return };
    let (found, code) = difference(&old, &new, &["--gate"]);
    assert_eq!(code, Some(0), "nothing is new: {}", found["findings"]["new"]);
    assert!(found["before"].as_array().unwrap().len() >= 30);
    let size = &found["size"];
    let number = |value: &serde_json::Value| value.as_i64().unwrap();
    let [had, has] = [0, 1].map(|i| number(&size["rep_sites"][i]));
    assert!(had > 50 && has * 20 < had, "{had} and {has}");
    assert_eq!(size["counts"]["new"], 0, "{}", size["counts"]);
    assert_eq!(size["counts"]["gone"], 0);
    assert_eq!(size["warnings"].as_array().unwrap().len(), 0, "{}", size["warnings"]);
    // Each function that lost one says which, and their bytes add up to what is said of all.
    let functions = size["functions"].as_array().unwrap();
    let lost = |f: &&serde_json::Value| {
        let rep = |side: &str| number(&f[side]["rep_sites"]);
        rep("after") < rep("before")
    };
    let losers: Vec<_> = functions.iter().filter(lost).collect();
    assert!(losers.iter().all(|f| !f["why"]["rep_removed"].as_array().unwrap().is_empty()));
    assert!(losers.iter().all(|f| f["object"].as_str().unwrap().ends_with(".o")));
    let sum: i64 = losers.iter().map(|f| number(&f["change_bytes"])).sum();
    assert_eq!(size["lost_rep"]["functions"], losers.len());
    assert_eq!(number(&size["lost_rep"]["change_bytes"]), sum);
    // The way back brings them, which a gate must see.
    let (back, code) = difference(&new, &old, &["--gate"]);
    assert_eq!(code, Some(1));
    assert_eq!(
        back["findings"]["new"].as_array().unwrap().len(),
        found["findings"]["gone"].as_array().unwrap().len()
    );
    assert_eq!(back["size"]["gained_rep"]["sites"], size["lost_rep"]["sites"]);
}
