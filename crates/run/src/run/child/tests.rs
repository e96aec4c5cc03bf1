//! Real children of the test: how they end, what is left of them.

use super::*;

fn limits(timeout: Option<Duration>) -> Limits<'static> {
    Limits { timeout, ..Limits::default() }
}

#[test]
fn reports_status_output_and_times() {
    let exit = Child::hold(&Launch::shell("echo out; echo err >&2; exit 3"))
        .and_then(|c| c.wait(&limits(None)))
        .unwrap();
    assert_eq!(exit.status, Status::Code(3));
    assert_eq!(exit.stdout.tail, "out\n");
    assert_eq!(exit.stderr.tail, "err\n");
    assert!(exit.wall_ns > 0);
    let told = std::path::Path::new("/proc/self/schedstat").exists();
    assert_eq!(exit.off_processor.run_queue_ns.is_some(), told);
}

#[test]
fn a_signal_is_told_from_an_exit_code() {
    let exit =
        Child::hold(&Launch::shell("kill -SEGV $$")).and_then(|c| c.wait(&limits(None))).unwrap();
    assert_eq!(exit.status, Status::Signal(libc::SIGSEGV));
    assert_eq!(exit.status.to_string(), "killed by SIGSEGV");
}

#[test]
fn a_program_that_is_still_being_written_is_waited_for() {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    let mut file =
        std::fs::File::options().write(true).create_new(true).mode(0o755).open(&path).unwrap();
    file.write_all(b"#!/bin/sh\necho whole\n").unwrap();
    let child = Child::hold(&Launch { program: path, ..Launch::default() }).unwrap();
    let exit = std::thread::scope(|threads| {
        let running = threads.spawn(|| child.wait(&limits(None)));
        std::thread::sleep(Duration::from_millis(50));
        drop(file);
        running.join().unwrap()
    });
    assert_eq!(exit.unwrap().stdout.tail, "whole\n");
}

#[test]
fn a_limit_kills_the_whole_group() {
    let child = Child::hold(&Launch::shell("sleep 1000 & echo $!; wait")).unwrap();
    let group = child.pid();
    let error = child.wait(&limits(Some(Duration::from_millis(200)))).unwrap_err();
    assert!(matches!(error, ChildError::TimedOut { .. }), "{error}");
    // Signal 0 asks whether anybody is left in the group; zombies of init may take a moment.
    let gone = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        // SAFETY: plain integers.
        unsafe { libc::killpg(group, 0) != 0 }
    });
    assert!(gone, "the sleeper outlived its killed parent");
}

#[test]
fn a_child_that_leaves_a_helper_behind_does_not_hang_us() {
    let exit =
        Child::hold(&Launch::shell("sleep 1000 & exit 0")).and_then(|c| c.wait(&limits(None)));
    assert!(exit.unwrap().status.success());
}

#[test]
fn what_is_kept_runs_on_until_it_is_dropped() {
    let script = "sleep 1000 & echo $!; setsid sleep 1001 & echo $!";
    let (exit, kept) =
        Child::hold(&Launch::shell(script)).and_then(|c| c.wait_keeping(&limits(None))).unwrap();
    let sleepers: Vec<i32> =
        exit.stdout.tail.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    // SAFETY: signal 0 only asks whether the process is there.
    let running = || sleepers.iter().filter(|pid| unsafe { libc::kill(**pid, 0) } == 0).count();
    // Other runs that come and go leave it alone.
    Child::hold(&Launch::shell("true")).and_then(|c| c.wait(&limits(None))).unwrap();
    assert_eq!((sleepers.len(), running()), (2, 2));
    drop(kept);
    assert_eq!(running(), 0);
}

#[test]
fn an_interrupt_stops_the_wait() {
    let stop = AtomicBool::new(true);
    let limits = Limits { timeout: None, interrupt: &stop };
    let error =
        Child::hold(&Launch::shell("sleep 1000")).and_then(|c| c.wait(&limits)).unwrap_err();
    assert!(matches!(error, ChildError::Interrupted));
}

#[test]
fn what_cannot_run_says_why() {
    let launch = |p: &str| Launch { program: p.into(), ..Launch::shell("") };
    let run = |p: &str| Child::hold(&launch(p)).and_then(|c| c.wait(&limits(None))).unwrap_err();
    assert!(matches!(run("/no/such/program"), ChildError::NotFound(_)));
    assert!(run("/etc/passwd").to_string().contains("executable?"));
}

#[test]
fn equal_output_has_equal_digests_and_padding_reaches_the_child() {
    let run = |script: &str, padding| {
        let launch = Launch { environment_padding_bytes: padding, ..Launch::shell(script) };
        Child::hold(&launch).and_then(|c| c.wait(&limits(None))).unwrap().stdout
    };
    assert_eq!(run("echo a", 0).digest, run("echo a", 64).digest);
    assert_ne!(run("echo a", 0).digest, run("echo b", 0).digest);
    assert_eq!(run("printf %s ${#STALLSCOPE_PADDING}", 64).tail, "64");
}

#[test]
fn variables_and_the_folder_are_those_of_the_launch() {
    let folder = tempfile::tempdir().unwrap();
    let launch = Launch {
        environment: vec![("HOME".into(), "a b".into()), ("NEW_ONE".into(), "".into())],
        folder: Some(folder.path().into()),
        ..Launch::shell(
            "printf '%s,%s,' \"$HOME\" \"${NEW_ONE-unset}\"; pwd -P; env | grep -c ^HOME=",
        )
    };
    let told = Child::hold(&launch).and_then(|c| c.wait(&limits(None))).unwrap().stdout.tail;
    let here = folder.path().canonicalize().unwrap();
    assert_eq!(told, format!("a b,,{}\n1\n", here.display()));
    let nowhere = Launch { folder: Some(here.join("no")), ..Launch::shell("true") };
    let said = Child::hold(&nowhere).err().unwrap().to_string();
    assert!(said.contains("no folder") && said.contains("/no"), "{said}");
}

#[test]
fn large_output_is_digested_not_kept() {
    let out = Child::hold(&Launch::shell("head -c 3000000 /dev/zero"))
        .and_then(|c| c.wait(&limits(None)))
        .unwrap()
        .stdout;
    assert_eq!(out.bytes, 3_000_000);
    assert!(out.tail.len() <= output::KEPT_BYTES);
}
