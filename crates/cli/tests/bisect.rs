//! `bisect` from outside: what it refuses, and that nothing of it is left.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn git(here: &Path, args: &[&str]) -> String {
    let identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
    let done = Command::new("git").arg("-C").arg(here).args(identity).args(args).output().unwrap();
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// Two commits of a script.
fn repository(folder: &Path) {
    git(folder, &["init", "--quiet"]);
    for n in ["1", "2"] {
        std::fs::write(folder.join("run"), format!("#!/bin/sh\nexit 0 # {n}\n")).unwrap();
        git(folder, &["add", "."]);
        git(folder, &["commit", "--quiet", "-m", n]);
        git(folder, &["tag", &format!("v{n}")]);
    }
}

#[test]
fn what_cannot_be_searched_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let between = ["bisect", "--good", "v1", "--bad", "v2", "--build"];
    support::refused(here, &[&between[..], &["cp run {out}"]].concat(), &["not a git repository"]);
    repository(here);
    support::refused(here, &[&between[..], &["make"]].concat(), &["--build: name {out}"]);
    support::refused(
        here,
        &[&between[..], &["echo error: no cc >&2; false {out}"]].concat(),
        &["the good commit", "cannot be built: exit code 1: error: no cc"],
    );
    support::refused(here, &[&between[..], &["true {out}"]].concat(), &["wrote nothing to {out}"]);
    support::refused(here, &[&between[..], &["echo {x} {out}"]].concat(), &["--build", "{x}"]);
    let same = "printf '#!/bin/sh\\nexit 0' > {out}; chmod +x {out}";
    support::refused(
        here,
        &[&between[..], &[same, "--pairs", "6"]].concat(),
        &["the builds of good and bad do not differ by enough"],
    );
    assert_eq!(git(here, &["worktree", "list"]).lines().count(), 1);
}

#[test]
fn ctrl_c_leaves_neither_worktree_nor_process() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    repository(here);
    let temporary = here.join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let seconds = format!("{}.125", 1_000_000 + std::process::id());
    let build = format!("touch '{}'; sleep {seconds}; : {{out}}", here.join("begun").display());
    let args = ["bisect", "--good", "v1", "--bad", "v2", "--build", &build];
    let mut child = support::stallscope(here, &args)
        .env("TMPDIR", &temporary)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while !here.join("begun").exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "the build does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(git(here, &["worktree", "list"]).lines().count(), 2);
    // SAFETY: plain integers; the child has not been collected, so the number is its own.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(git(here, &["worktree", "list"]).lines().count(), 1);
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        assert!(words != format!("sleep\0{seconds}\0").as_bytes(), "the build goes on");
    }
}
