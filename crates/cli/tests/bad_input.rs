//! `scan` and `explain` from outside with everything that can be wrong: each has its own sentence
//! and exit code 2, nothing is left running and nothing half-written.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use stallscope::machine::{Design, Microarchitecture};
use support::{program, refused, run, stallscope};

/// Compiles a C program; the C compiler is there wherever Rust links.
fn compile(folder: &Path, name: &str, source: &str, flags: &[&str]) {
    let file = folder.join(format!("{name}.c"));
    fs::write(&file, source).unwrap();
    let status = Command::new("cc")
        .current_dir(folder)
        .args(["-O1", "-o", name])
        .arg(&file)
        .args(flags)
        .status()
        .unwrap();
    assert!(status.success());
    fs::remove_file(file).unwrap();
}

const SPIN: &str =
    "__attribute__((noinline)) long less(long n) { __asm__ volatile(\"\"); return n - 1; }
    int main(int c, char **v) { volatile long n = c > 1 ? 1L << 62 : 3000000;
    while (n > 0) n = less(n); return 0; }";

/// Comes to where its window would start for as long as it runs.
#[cfg(target_arch = "x86_64")]
const ARRIVES_FOREVER: [&str; 8] =
    ["trace", "--function", "less", "--skip", "99999999999", "--", "./spin", "forever"];

#[test]
fn files_that_are_no_programs_are_said_in_their_own_words() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let elf = fs::read("/proc/self/exe").unwrap();
    program(here, "text", b"hello\n");
    program(here, "cut", &elf[..elf.len() / 2]);
    let mut foreign = elf.clone();
    foreign[18..20].copy_from_slice(&8_u16.to_le_bytes());
    program(here, "foreign", &foreign);
    program(here, "whole", &elf);
    let cases: [(&str, &[&str]); 5] = [
        ("/no/such/file", &["no such"]),
        ("./", &["directory"]),
        ("./text", &["./text", "text"]),
        ("./cut", &["./cut", "truncated"]),
        ("./foreign", &["./foreign", "Mips", "x86-64"]),
    ];
    for (file, parts) in cases {
        refused(here, &["scan", file], parts);
        refused(here, &["explain", file, "./whole"], parts);
        refused(here, &["explain", "./whole", file], parts);
    }
    refused(here, &["scan", "--function", "no_such_function", "./whole"], &["no_such_function"]);
    refused(here, &["scan"], &["BINARY"]);
    refused(here, &["rule", "nonsense"], &["nonsense", "store-forward"]);
    refused(here, &["scan", "--json", "no/folder/x.json", "./whole"], &["no/folder"]);
}

#[test]
fn a_refusal_says_nothing_on_standard_output_even_with_a_profile_at_hand() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let profile = Design::of(Microarchitecture::Zen5);
    fs::write(here.join("p.json"), profile.to_json().unwrap()).unwrap();
    let with = ["--profile", "p.json"];
    refused(here, &[&["scan"], &with[..], &["/no/such/file"]].concat(), &["no such file"]);
    refused(here, &[&["explain"], &with[..], &["/no/a", "/no/b"]].concat(), &["no such program"]);
    refused(here, &[&["rule"], &with[..], &["nonsense"]].concat(), &["nonsense"]);
}

#[test]
fn a_stripped_program_works_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    compile(here, "stripped", SPIN, &["-s"]);
    let output = run(here, &["scan", "stripped"]);
    let screen = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{screen}");
    assert!(screen.contains("stripped") && screen.contains("unwind tables"), "{screen}");
    let args = ["explain", "--pairs", "6", "./stripped", "./stripped"];
    let output = run(here, &args);
    let screen = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{screen}");
    assert!(screen.contains("stripped"), "{screen}");
}

#[test]
fn a_failing_arm_and_an_endless_one_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    compile(here, "good", SPIN, &[]);
    compile(here, "bad", "int main(void) { return 7; }", &[]);
    let json = ["--json", "r.json"];
    let with = |args: &[&'static str]| -> Vec<&'static str> { [args, &json].concat() };
    refused(here, &with(&["explain", "./good", "./bad"]), &["arm B", "exit code 7"]);
    refused(here, &with(&["explain", "./bad", "./good"]), &["arm A", "exit code 7"]);
    let endless = with(&["explain", "--timeout", "200ms", "./good", "./good", "--", "forever"]);
    // The arguments behind `--` must stay last.
    let endless: Vec<&str> = ["explain", "--json", "r.json"]
        .into_iter()
        .chain(endless.iter().copied().filter(|a| !["explain", "--json", "r.json"].contains(a)))
        .collect();
    refused(here, &endless, &["did not end within 200ms", "--timeout"]);
    assert!(!here.join("r.json").exists(), "a result was written");
}

#[test]
fn outputs_that_differ_between_the_arms_are_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    compile(here, "one", "#include <stdio.h>\nint main(void) { puts(\"1\"); return 0; }", &[]);
    compile(here, "two", "#include <stdio.h>\nint main(void) { puts(\"2\"); return 0; }", &[]);
    let output = run(here, &["compare", "--pairs", "6", "./one", "./two"]);
    let screen = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{screen}");
    assert!(screen.contains("output"), "{screen}");
}

/// Whether any process runs a program from `folder`.
fn anything_runs_in(folder: &Path) -> bool {
    let folder = folder.canonicalize().unwrap();
    fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe.starts_with(&folder))
    })
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_window_whose_start_is_counted_on_and_on_ends_at_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    compile(here, "spin", SPIN, &[]);
    let args = [&ARRIVES_FOREVER[..1], &["--timeout", "200ms"], &ARRIVES_FOREVER[1..]].concat();
    refused(here, &args, &["did not end within 200ms", "--timeout"]);
    assert!(!anything_runs_in(here), "the program outlived it");
}

#[test]
fn ctrl_c_ends_the_run_and_its_children() {
    let explain = ["explain", "./spin", "./spin", "--", "forever"];
    let compare = ["compare", "./spin", "./spin", "--", "forever"];
    for (command, signal) in [
        (&compare[..], libc::SIGINT),
        (&explain, libc::SIGINT),
        (&compare, libc::SIGTERM),
        #[cfg(target_arch = "x86_64")]
        (&ARRIVES_FOREVER, libc::SIGINT),
        #[cfg(target_arch = "x86_64")]
        (&ARRIVES_FOREVER, libc::SIGTERM),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        compile(here, "spin", SPIN, &[]);
        let args = [&command[..1], &["--json", "r.json"], &command[1..]].concat();
        let command = format!("{command:?}, signal {signal}");
        let mut child =
            stallscope(here, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let started = Instant::now();
        while !anything_runs_in(here) {
            assert!(started.elapsed() < Duration::from_secs(30), "no child was started");
            sleep(Duration::from_millis(20));
        }
        // SAFETY: plain integers; the process is our own child.
        unsafe { libc::kill(child.id() as i32, signal) };
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(started.elapsed() < Duration::from_secs(60), "it does not end");
            sleep(Duration::from_millis(20));
        };
        assert_eq!(status.code(), Some(128 + signal), "{command}");
        assert!(!anything_runs_in(here), "{command}: a child outlived it");
        assert!(!here.join("r.json").exists(), "{command}: a result was written");
    }
}
