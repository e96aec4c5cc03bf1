//! The case from outside: what scan finds in each decoder, refusals.

use std::path::Path;
use std::process::{Command, Output, Stdio};

fn run(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_index-codec-case"));
    command.current_dir(folder).args(args).stdin(Stdio::null());
    // What this machine's probes have found before must not show in what is expected.
    command.env("XDG_CACHE_HOME", folder.join("no-cache"));
    command.output().unwrap()
}

#[test]
fn scan_finds_the_conflict_in_the_decoders_that_have_it() {
    let folder = tempfile::tempdir().unwrap();
    let mesh = folder.path().join("square.obj");
    std::fs::write(&mesh, "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nf 1 2 3 4\n").unwrap();
    let args = ["--rounds", "6", "--seed", "1", "--mesh", "square.obj", "--json", "-"];
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
    std::fs::write(here.join("empty.obj"), "").unwrap();
    assert!(Command::new("mkfifo").current_dir(here).arg("pipe").status().unwrap().success());
    let refused = [
        (["--mesh", "none.ply"], "none.ply"),
        (["--rounds", "1"], "--rounds"),
        (["--mesh", "empty.obj"], "no triangles"),
        (["--mesh", "pipe"], "not a regular file"),
        (["--mesh", "/dev/zero"], "not a regular file"),
    ];
    for (args, why) in refused {
        let output = run(here, &args);
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {complaint}");
        assert!(output.stdout.is_empty() && complaint.contains(why), "{args:?}: {complaint}");
    }
}
