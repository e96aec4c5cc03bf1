//! What the tests from outside share: run the program, expect a refusal, make files to refuse.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The program with these arguments, in a folder, with nothing to read.
pub fn stallscope(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("stallscope"));
    command.current_dir(folder).args(args).stdin(Stdio::null());
    // What this machine's probes have found before must not show in what is expected.
    command.env("XDG_CACHE_HOME", folder.join("no-cache"));
    command
}

/// Runs it to its end.
pub fn run(folder: &Path, args: &[&str]) -> Output {
    stallscope(folder, args).output().unwrap()
}

/// All that it said, in words: screens are folded, and what is looked for may not be.
pub fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The result in a JSON document.
pub fn result_in(document: &[u8]) -> serde_json::Value {
    serde_json::from_slice::<serde_json::Value>(document).unwrap()["result"].take()
}

/// Exit code 2, nothing on standard output, and a complaint that holds all of `parts`.
pub fn refused(folder: &Path, args: &[&str], parts: &[&str]) {
    let output = run(folder, args);
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {complaint}");
    assert!(output.stdout.is_empty(), "{args:?}");
    for part in parts {
        assert!(complaint.contains(part), "{args:?} lacks `{part}`: {complaint}");
    }
}

/// An executable file with these bytes.
pub fn program(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}
