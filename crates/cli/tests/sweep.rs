//! `sweep` and the gates from outside: real compilers and a scratch repository, no claim about speed.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use support::{refused, result_in, run, said, stallscope};

const SOURCE: &str = "#include <stdio.h>
__attribute__((noinline)) int f0(int x) { return x * 3 + 0; }
__attribute__((noinline)) int f1(int x) { return x * 4 + 1; }
__attribute__((noinline)) int f2(int x) { return x * 5 + 2; }
__attribute__((noinline)) int f3(int x) { return x * 6 + 3; }
__attribute__((noinline)) int f4(int x) { return x * 7 + 4; }
__attribute__((noinline)) int f5(int x) { return x * 8 + 5; }
__attribute__((noinline)) int f6(int x) { return x * 9 + 6; }
__attribute__((noinline)) int f7(int x) { return x * 10 + 7; }
int main(void) { int x = 1; for (int i = 0; i < 1000; i++) x = f7(f6(f5(f4(f3(f2(f1(f0(x)))))))); printf(\"%d\\n\", x); }
";

fn sweep(folder: &Path, args: &[&str]) -> Output {
    stallscope(folder, &[&["sweep"], args].concat())
        .env("XDG_CACHE_HOME", folder.join(".cache"))
        .output()
        .unwrap()
}

#[test]
fn gnu_ld_places_functions_in_random_order() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("x.c"), SOURCE).unwrap();
    let args = [
        "-L",
        "level",
        "1,2",
        "--layouts",
        "3",
        "--runs",
        "2",
        "--knob",
        "gnu-ld",
        "--json",
        "r.json",
        "--build",
        "cc -O{level} {layout} -o {out} x.c",
        "--run",
        "{out}",
        "--source",
        "x.c",
    ];
    let output = sweep(here, &args);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("level=2 against level=1"), "{}", said(&output));
    let text = fs::read_to_string(here.join("r.json")).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["kind"], "sweep");
    let cells = value["result"]["cells"].as_array().unwrap();
    let prints: std::collections::BTreeSet<_> =
        cells.iter().map(|c| c["fingerprint"].as_str().unwrap()).collect();
    assert!(cells.len() == 8 && prints.len() == 8, "{prints:?}");
    // Everything is there the second time.
    let again = sweep(here, &args);
    assert!(said(&again).contains("0 builds made, 8 from the cache"), "{}", said(&again));
}

#[test]
fn a_variant_that_does_not_build_is_one_missing_cell() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("x.c"), SOURCE).unwrap();
    let args = [
        "-L",
        "flag",
        "-O1,-O2,--no-such-flag",
        "--runs",
        "6",
        "--build",
        "cc {flag} -o {out} x.c",
        "--run",
        "{out}",
        "--source",
        "x.c",
    ];
    let output = sweep(here, &args);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("missing: flag=--no-such-flag") && text.contains(".log"), "{text}");
    assert!(text.contains("flag=-O2 against flag=-O1"), "{text}");
}

#[test]
fn threads_on_one_processor_are_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let source = "#include <pthread.h>
#include <unistd.h>
static void *wait(void *x) { usleep(100000); return x; }
int main(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, wait, 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
}
";
    fs::write(here.join("x.c"), source).unwrap();
    let args = ["--runs", "1", "--build", "cc -pthread -o {out} x.c", "--run", "{out}"];
    let with = |more: &[&str]| said(&sweep(here, &[&args, more].concat()));
    let text = with(&["--json", "r.json"]);
    assert!(text.contains("all runs stay on one processor") && text.contains("--cpus 4"), "{text}");
    let json = fs::read_to_string(here.join("r.json")).unwrap();
    assert!(json.contains("threads-on-one-processor"), "{json}");
    let text = with(&["--cpu", "none"]);
    assert!(!text.contains("stay on one processor"), "{text}");
}

#[test]
fn what_cannot_be_swept_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    refused(here, &["sweep"], &["--run"]);
    refused(here, &["sweep", "--build", "true", "--run", "{out}"], &["does not name {out}"]);
    refused(
        here,
        &["sweep", "--build", "true {out}", "--run", "{out}"],
        &["wrote nothing to {out}"],
    );
    refused(here, &["sweep", "-L", "x", "a,a", "--run", "true"], &["axis `x`", "twice"]);
    refused(here, &["sweep", "--run", "true {y}"], &["`{y}`"]);
    refused(here, &["sweep", "--run", "false"], &["does not run", "exit code 1"]);
    let align = ["sweep", "--build", "true {out}", "--run", "{out}"];
    let aligns = |more: &[&'static str]| [&align[..], more].concat();
    for (more, value) in [
        (&["--align", "16,64,junk"][..], "`junk`"),
        (&["--align", "-8"], "`-8`"),
        (&["-L", "align", "16,24"], "`24`"),
    ] {
        refused(here, &aligns(more), &["axis `align`", value, "powers of two"]);
    }
    let silent = ["sweep", "--build", "false {out}{lv}", "-L", "lv", "1,2", "--run", "{out}"];
    refused(here, &silent, &["the first failure: exit code 1 (log: "]);
    refused(here, &["sweep", "--knob", "magic", "--run", "true"], &["magic"]);
    refused(here, &["sweep", "--fail-if", "bigger", "--run", "true"], &["slower:2%"]);
}

#[test]
fn a_sweep_goes_on_after_ctrl_c() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let args = ["sweep", "-L", "t", "0.01,0.011", "--runs", "40", "--run", "sleep {t}"];
    let start = || {
        let mut command = stallscope(here, &args);
        command
            .env("XDG_CACHE_HOME", here.join(".cache"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut child = start();
    let folder_of_runs = here.join(".cache/stallscope/sweeps");
    let lines = || -> usize {
        let mut files = fs::read_dir(&folder_of_runs).into_iter().flatten().flatten();
        files
            .next()
            .and_then(|f| fs::read_to_string(f.path()).ok())
            .map_or(0, |t| t.lines().count())
    };
    for _ in 0..1500 {
        if lines() > 8 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // SAFETY: plain integers; the process is our own child.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(lines() > 8);
    let output = start().wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(said(&output).contains("80 runs"), "{}", said(&output));
}

#[test]
fn git_bisect_finds_a_planted_regression() {
    let folder = tempfile::tempdir().unwrap();
    let repo = folder.path().join("repo");
    fs::create_dir(&repo).unwrap();
    let git = |args: &[&str]| {
        let output = Command::new("git")
            .current_dir(&repo)
            .args([
                "-c",
                "user.name=t",
                "-c",
                "user.email=t@example.com",
                "-c",
                "advice.detachedHead=false",
            ])
            .args(args)
            .output()
            .expect("git is part of every development machine");
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        said(&output)
    };
    git(&["init", "-q"]);
    // The fifth of eight commits does half as much work again, and says so: no test asserts a time.
    for commit in 1..=8 {
        let work = if commit >= 5 { 150 } else { 100 };
        fs::write(repo.join("run.sh"), format!("#!/bin/sh\n# {commit}\necho work {work}\n"))
            .unwrap();
        git(&["add", "."]);
        git(&["commit", "-q", "-m", &format!("commit {commit}")]);
    }
    let first = git(&["rev-list", "--max-parents=0", "HEAD"]);
    let good = folder.path().join("good.sh");
    fs::write(&good, "#!/bin/sh\necho work 100\n").unwrap();
    git(&["bisect", "start", "HEAD", first.trim()]);
    // The recipe of docs/compare.md: inconclusive (3) and broken (2) are skipped, not blamed.
    let step = format!(
        "{} compare -q --pairs 6 --metric 'regex:work (.*)' --fail-if slower:2% 'sh {}' 'sh run.sh'; code=$?; \
         test $code -le 1 && exit $code; exit 125",
        assert_cmd::cargo::cargo_bin!("stallscope").display(),
        good.display()
    );
    let found = git(&["bisect", "run", "sh", "-c", &step]);
    assert!(found.contains("first bad commit") && found.contains("commit 5"), "{found}");
}

#[test]
fn the_other_measures_work() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let code = |args: &[&str]| {
        let output = run(here, &[&["compare", "--pairs", "6"], args].concat());
        (output.status.code(), said(&output))
    };
    let rate = |n: u32| format!("sh -c 'echo rate: {n}'");
    let (exit, text) = code(&[
        "--metric",
        "regex:rate: (\\d+)",
        "--higher-is-better",
        "--fail-if",
        "slower:10%",
        &rate(100),
        &rate(50),
    ]);
    assert_eq!(exit, Some(1), "{text}");
    assert!(text.contains("slower by 100"), "{text}");
    // 40 MB, and less than the copy of ourselves that each begins as.
    let dd = "dd if=/dev/zero of=/dev/null bs=40M count=1";
    assert_eq!(code(&["--metric", "memory", dd, dd]).0, Some(0));
    let (exit, text) = code(&["--metric", "memory", "--gate", "true", "true"]);
    assert_eq!(exit, Some(3), "{text}");
    assert!(text.contains("how they differ is not known"), "{text}");
    let (exit, text) = code(&["--ops-in", "60ms", "sleep 0.01", "sleep 0.01"]);
    assert_eq!(exit, Some(0), "{text}");
    refused(here, &["compare", "--metric", "regex:(", "true", "true"], &["not valid"]);
    refused(here, &["compare", "--metric", "speed", "true", "true"], &["choose auto, wall"]);
    refused(here, &["sweep", "--metric", "speed", "--run", "true"], &["choose auto, wall"]);
    refused(here, &["sweep", "--metric", "counter:luck", "--run", "true"], &["page-faults"]);
    refused(
        here,
        &["sweep", "--metric", "regex:x", "--run", "true"],
        &["layout 0 of the build", "nothing that it printed"],
    );
    refused(
        here,
        &["compare", "--metric", "regex:x", "true", "true"],
        &["arm", "nothing that it printed"],
    );
    refused(here, &["compare", "--metric", "go-bench", "true", "true"], &["arm", "empty"]);
}

#[test]
fn a_sweep_is_about_what_a_comparison_is_about() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let at = |args: &[&str]| {
        let fixed = ["-L", "n", "100,150", "--runs", "6", "--keep-disturbed", "--json", "r.json"];
        let output = sweep(here, &[&fixed[..], args].concat());
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        (said(&output), result_in(&fs::read(here.join("r.json")).unwrap()))
    };
    let (text, result) = at(&["--metric", "regex:work (.*)", "--run", "echo work {n}"]);
    assert!(text.contains("slower") && text.contains("+50"), "{text}");
    assert!(text.contains("judged by what is printed"), "{text}");
    assert!((result["spreads"][1]["as_built"].as_f64().unwrap() - 150.0).abs() < 1e-6);
    assert!(result["runs"][0]["wall_ns"].as_u64().unwrap() > 0);
    let go = "printf 'BenchmarkX 10 {n} ns/op\\n'";
    assert!(at(&["--metric", "go-bench", "--run", go]).0.contains("+50"));
    let google = r#"echo '{{"benchmarks":[{{"name":"x","run_type":"iteration","real_time":{n},"cpu_time":1,"time_unit":"ns"}}]}}'"#;
    assert!(at(&["--metric", "google-bench", "--run", google]).0.contains("+50"));
    let (text, result) = at(&["--metric", "memory", "--run", "echo {n}"]);
    assert!(text.contains("MiB"), "{text}");
    assert!(result["runs"][0]["peak_memory_bytes"].as_u64().unwrap() > 0);
    let (_, result) = at(&["--ops-in", "20ms", "--run", "echo {n}"]);
    assert!(result["runs"][0]["operations"].as_u64().unwrap() >= 1);
}

#[test]
fn variants_with_the_same_code_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(
        here.join("x.c"),
        "volatile long turns = TURNS;
        #ifdef OTHER
        __attribute__((noinline)) int other(int x) { return x * OTHER; }
        #else
        __attribute__((noinline)) int other(int x) { return x + 1; }
        #endif
        __attribute__((noinline)) long work(long n) { volatile long x = 0; for (long i = 0; i < n; i++) x += i; return x; }
        int main(int c, char **v) { return work(turns) == other(c); }",
    )
    .unwrap();
    let at = |flags: &str| {
        let build = "cc -O1 {flags} -o {out} x.c";
        let args = ["-L", "flags", flags, "--runs", "6", "--build", build, "--run", "{out}"];
        let output = sweep(here, &[&args[..], &["--source", "x.c"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        said(&output)
    };
    // Other data alone: known before anything runs, so on standard error as well.
    let text = at("-DTURNS=1000,-DTURNS=1001");
    assert_eq!(text.matches("as built hold the same code").count(), 2, "{text}");
    // Another function that takes no time, and more work for the one that does.
    let text = at("-DTURNS=60000000,-DTURNS=180000000 -DOTHER=7");
    assert!(text.contains("the hot code is the same in both"), "{text}");
}

#[test]
fn counters_are_counted_or_the_cause_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for counter in ["cycles", "page-faults"] {
        let metric = format!("counter:{counter}");
        let args = ["compare", "--pairs", "6", "--metric", metric.as_str(), "true", "true"];
        let output = run(here, &args);
        let text = said(&output);
        match output.status.code() {
            Some(0) => assert!(text.contains("counted"), "{text}"),
            // Why, in words that end somewhere else than in an error number.
            code => assert!(
                code == Some(2) && text.contains(&format!("cannot count {counter}: ")),
                "{text}"
            ),
        }
    }
}

#[test]
fn a_verdict_is_waited_for_and_the_noise_floor_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let at = |args: &[&str]| {
        let output = stallscope(here, &[&["compare"], args].concat())
            .env("XDG_CACHE_HOME", here.join(".cache"))
            .output()
            .unwrap();
        (output.status.code(), said(&output))
    };
    let number = ["--metric", "regex:(.*)"];
    let waiting = ["--until", "verdict", "--pairs", "30", "echo 100", "echo 150"];
    let (code, text) = at(&[&number[..], &waiting].concat());
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("slower by 50") && text.contains("10 pairs, looked at"), "{text}");
    let (code, text) = at(&["--aa", "--pairs", "6", "sleep 0.01"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("noise floor of this command here"), "{text}");
    let (_, text) = at(&["--pairs", "6", "sleep 0.01", "sleep 0.012"]);
    assert!(text.contains("noise floor of A here"), "{text}");
    let (code, text) = at(&["--for", "1s", "true", "true"]);
    assert_eq!(code, Some(0), "{text}");
}
