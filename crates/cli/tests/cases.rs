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
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    document["result"][0]["findings"].as_array().unwrap().clone()
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
