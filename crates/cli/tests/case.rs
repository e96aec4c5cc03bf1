//! `case` from outside: the list, the index codec with what scan finds in each decoder, refusals.

mod support;

use support::{refused, run};

#[test]
fn without_a_name_all_cases_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["case"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success());
    assert!(text.contains("index-codec") && text.contains("upstream-index-decoder"), "{text}");
    let output = run(folder.path(), &["case", "upstream-index-decoder"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("build.sh"), "{text}");
}

#[test]
fn scan_finds_the_conflict_in_the_decoders_that_have_it() {
    let folder = tempfile::tempdir().unwrap();
    let mesh = folder.path().join("square.obj");
    std::fs::write(&mesh, "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nf 1 2 3 4\n").unwrap();
    let args = [
        "case",
        "index-codec",
        "--rounds",
        "6",
        "--seed",
        "1",
        "--mesh",
        "square.obj",
        "--json",
        "-",
    ];
    let output = run(folder.path(), &args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let result = &document["result"];
    let meshes = result["meshes"].as_array().unwrap();
    let names: Vec<&str> = meshes.iter().map(|m| m["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["strips", "grid", "random", "square"]);
    assert_eq!(meshes[3]["triangles"], 2);
    let scans = result["scans"].as_array().unwrap();
    let variants = meshes[0]["variants"].as_array().unwrap();
    assert_eq!((scans.len(), variants.len()), (10, 10));
    for (variant, scan) in variants.iter().zip(scans) {
        let name = variant["name"].as_str().unwrap();
        let findings = scan["looked"]["findings"].as_array().unwrap();
        // The one without `unsafe` is pinned to nothing: compilers may copy its corners as they like.
        if name != "checked" {
            assert_eq!(!findings.is_empty(), name.ends_with("wide load"), "{name}: {findings:#?}");
        }
        assert!(findings.iter().all(|f| f["rule"] == "store-forward"), "{name}: {findings:#?}");
    }
    for round in meshes[0]["samples"]["rounds"].as_array().unwrap() {
        assert_eq!(round["ticks"].as_array().unwrap().len(), 10);
    }
}

#[test]
fn what_cannot_be_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    refused(here, &["case", "nonsense"], &["no case `nonsense`", "index-codec"]);
    refused(here, &["case", "index-codec", "--mesh", "none.ply"], &["none.ply"]);
    refused(here, &["case", "index-codec", "--rounds", "1"], &["--rounds"]);
    std::fs::write(here.join("empty.obj"), "").unwrap();
    refused(here, &["case", "index-codec", "--mesh", "empty.obj"], &["no triangles"]);
    refused(here, &["case", "upstream-index-decoder", "--mesh", "x"], &["--mesh"]);
}
