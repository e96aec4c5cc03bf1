//! What is left of a run: nothing, however the run or stallscope itself ends.

mod support;

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How long what is asynchronous may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A script that starts one process in its own group and one as a daemon, and its two sleepers'
/// arguments, which no other process has. They write nowhere and would sleep for hours.
fn forking(folder: &Path, ends: bool) -> [String; 2] {
    let number = std::process::id() * 100 + u32::from(ends);
    let seconds = [format!("{number}.25"), format!("{number}.75")];
    let [near, daemon] = &seconds;
    let rest = if ends { "exit 0" } else { "wait" };
    let script = format!(
        "#!/bin/sh\nexec >/dev/null 2>&1\nsleep {near} &\nsetsid sh -c 'sleep {daemon} & exit' &\n\
         while ! grep -qsa {daemon} /proc/[0-9]*/cmdline; do :; done\n{rest}\n"
    );
    support::program(folder, "forking", script.as_bytes());
    seconds
}

/// Which of the sleepers run.
fn running(seconds: &[String; 2]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|b| *b == 0).collect();
        if words.first() == Some(&&b"sleep"[..]) {
            found.extend(seconds.iter().filter(|s| words[1] == s.as_bytes()).cloned());
        }
    }
    found
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn comparing(folder: &Path) -> Child {
    let args = ["compare", "--quiet", "./forking", "/bin/true"];
    support::stallscope(folder, &args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn nothing_outlives_a_killed_comparison() {
    let folder = tempfile::tempdir().unwrap();
    let seconds = forking(folder.path(), false);
    for signal in [libc::SIGKILL, libc::SIGQUIT, libc::SIGINT] {
        let mut child = comparing(folder.path());
        wait_for("the sleepers start", || running(&seconds).len() == 2);
        // SAFETY: plain integers; the child has not been collected, so the number is its own.
        unsafe { libc::kill(child.id() as i32, signal) };
        child.wait().unwrap();
        wait_for("the sleepers are ended", || running(&seconds).is_empty());
    }
}

#[test]
fn what_a_command_leaves_behind_is_ended_and_said() {
    let folder = tempfile::tempdir().unwrap();
    let seconds = forking(folder.path(), true);
    let args = ["trace", "--function", "_start", "--window", "1", "--engine", "step", "--budget"];
    let output = support::run(folder.path(), &[&args[..], &["100ms", "--", "./forking"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(running(&seconds).is_empty(), "{said}");
    let args = ["compare", "--pairs", "6", "./forking", "./forking"];
    let output = support::run(folder.path(), &args);
    let said = String::from_utf8_lossy(&output.stdout);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("12 runs left processes behind ("), "{said}");
    assert!(running(&seconds).is_empty(), "{said}");
}

#[test]
fn a_parent_that_ignores_the_end_of_children_does_no_harm() {
    let program = assert_cmd::cargo::cargo_bin!("stallscope").display();
    // Not behind a shell: some set what is done with it anew.
    let script = format!(
        "trap '' CHLD; exec {program} compare -N --pairs 6 /bin/true \
         'env -C /proc/self grep -q ^SigIgn:.*[13579bdf]....$ status'"
    );
    let output = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
}
