//! `trace` from outside: the command's output is its own, the report is beside it, a recording says
//! the same again, and what cannot work is refused with a sentence.
#![cfg(target_arch = "x86_64")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use stallscope::sim::core::Mechanism;
use support::{refused, run};

const SOURCE: &str = r#"
#include <stdio.h>
#include <unistd.h>
struct { unsigned int half[2]; } ring[16];
unsigned long sum;
__attribute__((noinline)) void work(int n) {
    for (int i = 0; i < n; i++) {
        volatile unsigned int *to = ring[i & 15].half;
        to[0] = i;
        to[1] = i;
        sum += *(volatile unsigned long *)to;
    }
}
int main(void) {
    char text[64];
    long got = read(0, text, sizeof text);
    for (int i = 0; i < 4; i++)
        work(500);
    fwrite(text, 1, got > 0 ? got : 0, stdout);
    fprintf(stderr, "sum %lu\n", sum);
    return 5;
}
"#;

fn program(folder: &Path) -> PathBuf {
    let (source, path) = (folder.join("ring.c"), folder.join("ring"));
    fs::write(&source, SOURCE).unwrap();
    let built = Command::new("cc").args(["-g", "-O1", "-o"]).args([&path, &source]).status();
    assert!(built.expect("a C compiler (scripts/setup-test)").success());
    path
}

fn result(folder: &Path, name: &str) -> serde_json::Value {
    let text = fs::read_to_string(folder.join(name)).unwrap();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["kind"], "trace");
    document["result"].clone()
}

#[test]
fn the_output_is_the_commands_own_and_the_report_is_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    program(folder.path());
    fs::write(folder.path().join("input"), "typed").unwrap();
    let args = [
        "trace",
        "--json",
        "out.json",
        "--record",
        "run.trace",
        "--function",
        "work",
        "--skip",
        "1",
        "--window",
        "1",
        "--engine",
        "step",
        "--",
        "./ring",
    ];
    let mut command = support::stallscope(folder.path(), &args);
    command.stdin(fs::File::open(folder.path().join("input")).unwrap());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(output.stdout, b"typed");
    assert_eq!(said.lines().filter(|line| line.starts_with("sum ")).count(), 1, "{said}");
    for part in ["work in ring", "500 of ", "ring.c:", "ended with exit code 5", "reuse", "price"] {
        assert!(said.contains(part), "lacks `{part}`: {said}");
    }
    let traced = result(folder.path(), "out.json");
    assert_eq!(traced["store_buffer"]["blocked"], 500);
    assert_eq!(traced["store_buffer"]["sites"][0]["distances"]["reuse_iterations"][0], 500);
    assert_eq!(traced["window"]["engine"], "step");

    let replayed = run(folder.path(), &["trace", "--replay", "run.trace", "--json", "again.json"]);
    assert_eq!(replayed.status.code(), Some(0));
    let again = result(folder.path(), "again.json");
    assert_eq!(again["store_buffer"], traced["store_buffer"]);
    assert_eq!(again["l1i"], traced["l1i"]);
    let other = ["trace", "--replay", "run.trace", "--as", "zen-4", "--json", "zen4.json", "-q"];
    assert!(run(folder.path(), &other).stderr.is_empty());
    assert_eq!(result(folder.path(), "zen4.json")["store_buffer"]["shape"]["depth"], 64);
}

#[test]
fn cycles_of_a_window_are_those_of_its_recording() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    program(here);
    let shared = ["trace", "--cycles", "--as", "golden-cove", "--json"];
    let live = ["live.json", "--record", "run.trace", "--function", "work", "--window", "4"];
    let live = [&shared[..], &live, &["--engine", "step", "--", "./ring"]].concat();
    let output = run(here, &live);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for part in
        ["an instruction", "a call", "nothing here was measured", "blocked loads", "left out"]
    {
        assert!(said.contains(part), "lacks `{part}`: {said}");
    }
    let traced = result(here, "live.json");
    let cycles = &traced["cycles"];
    assert_eq!(cycles["waits"][0]["mechanism"], "blocked_loads", "{cycles}");
    assert_eq!(cycles["calls"], 4);
    assert_eq!(cycles["design"], "golden_cove");
    let at = &cycles["waits"][0]["most_at"];
    let place = traced["places"].as_array().unwrap().iter().find(|place| place["avma"] == *at);
    assert_eq!(place.unwrap()["site"]["function"], "work");
    assert!(cycles["functions"][0]["account"]["cycles"].as_u64() > Some(0));
    let parts = |name: &str| cycles["insns"][0]["account"][name].as_array().unwrap().len();
    assert_eq!([parts("cycles_without"), parts("events")], [Mechanism::ALL.len(); 2]);
    assert!(cycles["inputs"].as_array().unwrap().iter().all(|input| !input["origin"].is_null()));

    let replayed = [&shared[..], &["again.json", "--replay", "run.trace"]].concat();
    assert_eq!(run(here, &replayed).status.code(), Some(0));
    let mut again = result(here, "again.json")["cycles"].clone();
    // Nothing in a recording says that its window was asked for in calls.
    assert_eq!([&again["calls"], &again["cycles_per_call"]], [&serde_json::Value::Null; 2]);
    for name in ["calls", "cycles_per_call"] {
        again[name] = cycles[name].clone();
    }
    assert_eq!(again, *cycles);

    fs::remove_file(here.join("ring")).unwrap();
    let gone = run(here, &[&shared[..], &["gone.json", "--replay", "run.trace"]].concat());
    let said = String::from_utf8_lossy(&gone.stderr);
    assert!(said.contains("no cycles: ") && said.contains("could not be read"), "{said}");
    assert!(result(here, "gone.json")["cycles"].is_null());
}

#[test]
fn a_running_process_is_traced_and_runs_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut shell =
        std::process::Command::new("/bin/sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let pid = shell.id().to_string();
    let args =
        ["trace", "--cycles", "--as", "golden-cove", "--pid", &pid, "--instructions", "20000"];
    let output = run(folder.path(), &[&args[..], &["--json", "-"]].concat());
    let is_alive = shell.try_wait().unwrap().is_none();
    shell.kill().unwrap();
    shell.wait().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && is_alive, "{said}");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(told["result"]["window"]["command"].is_null());
    assert!(told["result"]["cycles"]["cycles_per_instruction"].as_f64().unwrap() > 0.0);
    let output = run(folder.path(), &["trace", "--pid", &pid]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&format!("no process {pid}")));
}

#[test]
fn what_cannot_be_traced_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let ring = program(folder.path());
    let ring = ring.to_str().unwrap();
    fs::write(folder.path().join("text"), "no trace").unwrap();
    let folder = folder.path();
    let by = |args: &[&'static str]| [&["trace"], args].concat();
    refused(folder, &by(&["--", "/no/such/program"]), &["no such program"]);
    refused(folder, &by(&["--engine", "magic", "--", "/bin/true"]), &["no engine", "step"]);
    refused(
        folder,
        &by(&["--as", "6502", "--", "/bin/true"]),
        &["unknown design `6502`; known: nehalem"],
    );
    refused(folder, &by(&["--json", "-", "--", "/bin/true"]), &["the command's own"]);
    refused(folder, &by(&["--replay", "text"]), &["not a recorded trace"]);
    refused(folder, &by(&["--replay", "none"]), &["cannot open none"]);
    refused(folder, &["trace", "--function", "nowhere", "--", ring], &["no function"]);
    let late = ["trace", "--function", "work", "--skip", "9", "--quiet", "--", ring];
    let output = run(folder, &late);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("came to its start 4 times"));
}

#[test]
fn a_command_that_crashes_at_once_is_said_to_crash() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("crash.c"), "int main(void) { return *(volatile int *)8; }").unwrap();
    let built =
        Command::new("cc").current_dir(here).args(["-o", "crash", "crash.c"]).status().unwrap();
    assert!(built.success());
    let args = ["trace", "--instructions", "1000", "--", "./crash"];
    refused(here, &args, &["`./crash` failed", "killed by SIGSEGV"]);
    refused(here, &["trace", "--", ""], &["the name of the program is empty"]);
}

#[test]
fn what_the_emulator_lacks_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let ring = program(folder.path());
    let args = ["trace", "--engine", "qemu", "--function", "work", "--", ring.to_str().unwrap()];
    let output =
        support::stallscope(folder.path(), &args).env("PATH", "/nowhere").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("qemu-x86_64") && said.contains("Debian: qemu-user"), "{said}");
}

/// A tracer that is itself traced cannot be had here; a filter that forbids `ptrace` can.
#[test]
fn where_tracing_is_forbidden_it_says_what_to_do() {
    use std::os::unix::process::CommandExt;
    let folder = tempfile::tempdir().unwrap();
    let ring = program(folder.path());
    let args = ["trace", "--function", "work", "--", ring.to_str().unwrap()];
    let mut command = support::stallscope(folder.path(), &args);
    // SAFETY: between fork and exec only system calls are made, on memory of before the fork.
    unsafe { command.pre_exec(forbid_ptrace) };
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("ptrace fails") && said.contains("--cap-add=SYS_PTRACE"), "{said}");
}

fn forbid_ptrace() -> std::io::Result<()> {
    let statement = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let give = libc::BPF_RET | libc::BPF_K;
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let mut filter = [
        statement(load, 0, 0, 0),
        statement(equal, 0, 1, libc::SYS_ptrace as u32),
        statement(give, 0, 0, refuse),
        statement(give, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the filter outlives the call, which copies it.
    let result = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[test]
fn a_killed_tracer_takes_the_command_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let source = "int main(void) { volatile unsigned long n = 0; for (;;) n++; }";
    fs::write(folder.path().join("spin.c"), source).unwrap();
    let built = Command::new("cc")
        .current_dir(folder.path())
        .args(["-o", "spin-for-the-trace-test", "spin.c"])
        .status();
    assert!(built.unwrap().success());
    let args = ["trace", "--function", "main", "--", "./spin-for-the-trace-test"];
    let args = [&args[..3], &["--instructions", "100000000"], &args[3..]].concat();
    let mut tracer = support::stallscope(folder.path(), &args).spawn().unwrap();
    let children = || {
        let path = format!("/proc/{0}/task/{0}/children", tracer.id());
        fs::read_to_string(path).unwrap_or_default()
    };
    let mut child = String::new();
    for _ in 0..500 {
        child = children().trim().to_owned();
        let name = fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default();
        if name.starts_with("spin-for") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(!child.is_empty(), "the command was not started");
    tracer.kill().unwrap();
    tracer.wait().unwrap();
    let gone = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        // A zombie waits for whoever adopted it.
        stat.is_empty() || stat.contains(") Z ")
    });
    assert!(gone, "the command outlived its tracer");
}

/// A loop that begins with a load from 1.9 GB behind the code: it cannot be moved to where a counter
/// would stand.
const FAR: &str = r#"
#include <stdio.h>
static char far_away[1900u << 20] __attribute__((used));
int main(void) {
    __asm__ volatile("mov $3000000, %%ecx\n1: mov far_away+(1899 << 20)(%%rip), %%eax\n"
                     "dec %%ecx\njne 1b" : : : "eax", "ecx");
    puts("arrived");
}
"#;

#[test]
fn a_counter_that_cannot_be_placed_costs_a_check_and_not_the_window() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("far.c"), FAR).unwrap();
    let built = Command::new("cc")
        .current_dir(here)
        .args(["-O1", "-fPIE", "-pie", "-o", "far", "far.c"])
        .status();
    assert!(built.expect("a C compiler (scripts/setup-test)").success());
    let args =
        ["trace", "--engine", "translate", "--function", "main", "--instructions", "2000000"];
    let args = [&args[..], &["--json", "r.json", "--", "./far"]].concat();
    let output = run(here, &args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(output.stdout, b"arrived\n", "the program itself goes on: {said}");
    let report = result(here, "r.json");
    assert_eq!(report["window"]["engine"], "translate", "{said}");
    assert_eq!(report["window"]["self_check_passed"], serde_json::Value::Null, "{said}");
    assert!(said.contains("no native copy came to the window's end"), "{said}");
}
