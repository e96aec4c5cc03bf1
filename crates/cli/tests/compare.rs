//! `stallscope compare` from outside: every bad input has its own sentence and exit code, nothing
//! is left running or half written. Real programs, but no claim about their speed.

mod support;

use std::fs;
use std::path::Path;
use std::process::Output;

use support::program;

/// `compare` with these arguments.
fn compare(folder: &Path, args: &[&str]) -> Output {
    support::run(folder, &[&["compare"], args].concat())
}

/// Arguments of `compare` that must be refused.
fn refused(folder: &Path, args: &[&str], parts: &[&str]) {
    support::refused(folder, &[&["compare"], args].concat(), parts);
}

#[test]
fn what_is_no_program_is_said_in_its_own_words() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let elf = fs::read("/proc/self/exe").unwrap();
    program(here, "text", b"hello\n");
    program(here, "empty", b"");
    program(here, "cut", &elf[..2000]);
    let mut foreign = elf;
    foreign[18..20].copy_from_slice(&243_u16.to_le_bytes());
    program(here, "foreign", &foreign);
    fs::write(here.join("plain"), "not executable").unwrap();
    refused(here, &["/no/such/file", "true"], &["arm A", "no such program: /no/such/file"]);
    refused(here, &["true", "no-such-command-anywhere"], &["arm B", "no such program"]);
    refused(here, &[".", "true"], &["arm A", ". is a directory"]);
    refused(here, &["./", "true"], &["arm A", "./ is a directory"]);
    refused(here, &["true", "plain"], &["arm B", "no such program: plain on PATH", "./plain"]);
    refused(here, &["plain", "none.json"], &["no such file: none.json", "plain is no program"]);
    refused(here, &["none.json", "plain"], &["no such file: none.json"]);
    refused(here, &["--dir", "none", "./true", "true"], &["arm A", "there is no folder none"]);
    refused(here, &["./plain", "true"], &["arm A", "./plain", "marked executable"]);
    refused(here, &["./text", "true"], &["arm A", "./text", "text without a #! line"]);
    refused(here, &["true", "./empty"], &["arm B", "./empty", "seems to be empty"]);
    refused(here, &["true", "./cut"], &["arm B", "./cut", "cut off"]);
    refused(here, &["./foreign", "true"], &["arm A", "./foreign", "RISC-V"]);
}

#[test]
fn what_fails_or_never_ends_is_named_with_its_arm() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let failing = "sh -c 'echo all is lost >&2; exit 7'";
    refused(here, &["true", failing], &["arm B", "exit code 7", "all is lost", "--ignore-failure"]);
    refused(here, &["sh -c 'kill -SEGV $$'", "true"], &["arm A", "SIGSEGV"]);
    let endless = ["--timeout", "200ms", "--json", "r.json", "true", "sleep 1000"];
    refused(here, &endless, &["arm B", "did not end within 200ms"]);
    assert_eq!(fs::read_dir(here).unwrap().count(), 0, "a file was left behind");
}

#[test]
fn what_is_typed_wrongly_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let touch = "sh -c 'echo ran > ran'";
    refused(here, &[], &["<COMMAND>"]);
    refused(here, &["--gate", touch], &["a gate goes with two commands"]);
    refused(here, &["true 'x", touch], &["quote"]);
    refused(here, &["", touch], &["empty command"]);
    refused(here, &["--effect", "1", touch, touch], &["1%"]);
    refused(here, &["--timeout", "10", touch, touch], &["10s"]);
    refused(here, &["--pairs", "0", touch, touch], &["--pairs"]);
    refused(here, &["--cpu", "x", touch, touch], &["logical processor"]);
    refused(here, &["--cpu", "1000", touch, touch], &["1000", "not available"]);
    refused(here, &["--json", "no/such/r.json", touch, touch], &["no directory no/such"]);
    refused(here, &["--json", ".", touch, touch], &["a directory"]);
    assert_eq!(fs::read_dir(here).unwrap().count(), 0, "something ran");
}

/// By what is printed, not by time: a busy machine decides nothing here.
#[test]
fn gates_answer_with_their_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let code = |pairs: &str, more: &[&str]| {
        let common = ["--quiet", "--metric", "regex:([0-9]+)", "--pairs", pairs];
        compare(folder.path(), &[&common, more].concat()).status.code()
    };
    assert_eq!(code("6", &["echo 10", "echo 20"]), Some(0));
    assert_eq!(code("6", &["--gate", "echo 10", "echo 20"]), Some(1));
    assert_eq!(code("6", &["--gate", "echo 20", "echo 10"]), Some(0));
    assert_eq!(code("3", &["--gate", "echo 10", "echo 20"]), Some(3));
}

#[test]
fn the_json_holds_every_run_in_order_and_replaces_the_screen() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--json", "-", "--seed", "5", "--pairs", "4", "echo", "echo", "--", "hello"];
    let output = compare(folder.path(), &args);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["kind"], "comparison");
    let result = &value["result"];
    assert_eq!(result["settings"]["seed"], 5);
    assert_eq!(result["arms"][1]["command"], serde_json::json!(["echo", "hello"]));
    let samples = result["samples"].as_array().unwrap();
    let orders: Vec<_> = samples.iter().map(|s| s["order"].as_u64().unwrap()).collect();
    assert_eq!(orders, (0..8).collect::<Vec<u64>>());
    assert!(samples.iter().all(|s| s["wall_ns"].as_u64().unwrap() > 0));

    let quiet = compare(folder.path(), &["-q", "--json", "r.json", "--pairs", "2", "true", "true"]);
    assert!(quiet.stdout.is_empty() && quiet.stderr.is_empty());
    let text = fs::read_to_string(folder.path().join("r.json")).unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut ours = std::process::Command::new(env!("CARGO_BIN_EXE_stallscope"))
        .current_dir(folder.path())
        .args(["compare", "--json", "r.json", "sh -c 'echo $$ > pid; exec sleep 1000'", "true"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let pid_file = folder.path().join("pid");
    let pid = (0..500).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::read_to_string(&pid_file).ok()?.trim().parse::<i32>().ok()
    });
    // SAFETY: plain integers; the process is our own child.
    unsafe { libc::kill(ours.id() as i32, libc::SIGINT) };
    assert_eq!(ours.wait().unwrap().code(), Some(130));
    // SAFETY: signal 0 only asks whether the process is there.
    let alive = pid.is_none_or(|pid| unsafe { libc::kill(pid, 0) } == 0);
    assert!(!alive, "the command outlived the interrupt");
    assert!(!folder.path().join("r.json").exists());
}

#[test]
fn hot_code_that_is_the_same_is_said_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let build = |name: &str, turns: &str| {
        // `main` is not the same; the loop, where the time goes, is.
        let source = format!(
            "__attribute__((noinline)) long work(long n) {{ volatile long x = 0; \
             for (long i = 0; i < n; i++) x += i; return x; }}\n\
             int main(void) {{ return work({turns}) == 0; }}\n"
        );
        fs::write(here.join("x.c"), source).unwrap();
        let status = std::process::Command::new("cc")
            .current_dir(here)
            .args(["-O1", "-o", name, "x.c"])
            .status()
            .unwrap();
        assert!(status.success());
    };
    build("a", "60000000");
    build("b", "60000000 + 60000000 * 2L");
    let args = ["--metric", "cpu", "--pairs", "6", "--json", "r.json", "./a", "./b"];
    let output = compare(here, &args);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.starts_with("slower"), "{text}");
    let json = fs::read_to_string(here.join("r.json")).unwrap();
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let warnings = value["result"]["analysis"]["warnings"].as_array().unwrap();
    let same = warnings.iter().find(|w| w["id"] == "identical-hot-code");
    let same = same.unwrap_or_else(|| panic!("{text}"));
    assert!(text.contains("the hot code is the same in both"), "{text}");
    assert!(same["functions"].as_u64().unwrap() >= 1);
}

#[test]
fn what_is_replaced_in_the_middle_gives_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    program(here, "quick", b"#!/bin/sh\necho ran >> ran\n");
    program(here, "slow", b"#!/bin/sh\nsleep 0.02\n");
    fs::write(here.join("input"), "old").unwrap();
    // A build that ends, or an input that is made anew, while the comparison is going on.
    for (victim, role) in [("slow", "the program"), ("input", "an argument")] {
        fs::write(here.join("ran"), "").unwrap();
        let begun = || fs::read(here.join("ran")).map_or(0, |text| text.len()) > 40;
        let output = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !begun() {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                program(here, "new", b"#!/bin/sh\nexit 0\n");
                fs::rename(here.join("new"), here.join(victim)).unwrap();
            });
            let args = ["--json", "r.json", "--pairs", "2000", "./quick", "./slow", "--", "input"];
            compare(here, &args)
        });
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        for part in [victim, role, "replaced", "compare again"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(output.stdout.is_empty() && !here.join("r.json").exists(), "nothing half written");
    }
}

#[test]
fn copies_of_one_file_are_never_slower() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    // The same bytes, slower by where they lie.
    let script = b"#!/bin/sh\ncase $0 in ./slow*) sleep 0.05;; esac\n";
    program(here, "quick", script);
    program(here, "slow", script);
    let output = compare(here, &["--pairs", "8", "--gate", "./quick", "./slow"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(3), "inconclusive: {text}");
    assert!(text.starts_with("inconclusive"), "{text}");
    assert!(text.contains("byte-identical"), "{text}");
}

#[test]
fn threads_that_share_one_processor_are_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let source = "#include <pthread.h>\n#include <unistd.h>\n\
        void *nap(void *p) { usleep(20000); return p; }\n\
        int main(void) { pthread_t t[3]; for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, nap, 0);\n\
        for (int i = 0; i < 3; i++) pthread_join(t[i], 0); }\n";
    fs::write(here.join("t.c"), source).unwrap();
    let built = std::process::Command::new("gcc")
        .args(["-pthread", "-O1", "t.c", "-o", "t"])
        .current_dir(here)
        .status();
    assert!(built.unwrap().success());
    let said = |args: &[&str]| {
        let output = compare(here, &[args, &["--pairs", "2", "./t", "true"]].concat());
        String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let one = said(&["--cpus", "1"]);
    assert!(one.contains("take turns") && one.contains("--cpus 4"), "{one}");
    // Left open, it is tried on several where there are, and these threads keep none busy.
    let tried = std::thread::available_parallelism().is_ok_and(|n| n.get() > 1);
    let open = said(&[]);
    assert_eq!(open.contains("take turns"), !tried, "{open}");
    assert!(!open.contains("processor busy"), "{open}");
    assert!(!said(&["--cpu", "none"]).contains("take turns"));
    refused(here, &["--cpus", "100000", "./t", "true"], &["choose between 1 and"]);
    refused(here, &["--cpus", "1", "--cpu", "0", "./t", "true"], &["cannot be used with"]);
}

/// Both arms succeed only if they read the word.
#[test]
fn every_run_reads_the_same_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("words"), "word\n").unwrap();
    let reads = "sh -c 'read x && test \"$x\" = word'";
    let named = compare(here, &["--pairs", "6", "--input", "words", reads, reads]);
    assert!(named.status.success(), "{}", String::from_utf8_lossy(&named.stderr));
    let args = ["compare", "--pairs", "6", "--json", "r.json", reads, reads];
    let mut handed_on = support::stallscope(here, &args);
    let output = handed_on.stdin(fs::File::open(here.join("words")).unwrap()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(here.join("r.json")).unwrap()).unwrap();
    let input = json["result"]["settings"]["input"].as_str().unwrap();
    assert!(input.ends_with("/words"), "{input}");
    assert_eq!(json["result"]["arms"][0]["files"][0]["role"], "input");
    refused(here, &["--pairs", "6", reads, reads], &["exit code 1"]);
    refused(here, &["--pairs", "6", "--input", "no", "true", "true"], &["cannot read no"]);
}

#[test]
fn what_can_be_read_once_is_refused_and_not_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["compare", "--pairs", "6", "cat", "cat"];
    let mut piped = support::stallscope(folder.path(), &args);
    let (reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, b"word\n").unwrap();
    let output = piped.stdin(reader).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("is a pipe") && said.contains("--input FILE"), "{said}");
}
