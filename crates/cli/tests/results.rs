//! `compare OLD NEW` with files of results, from outside: which arguments are results, what is
//! refused, what comes out in which form.

mod support;

use std::fs;
use std::path::Path;

use support::{program, refused, run};

const OLD: &str = include_str!("../../compare/tests/results/old.txt");
const NEW: &str = include_str!("../../compare/tests/results/new.txt");

fn files(folder: &Path) {
    fs::write(folder.join("old.txt"), OLD).unwrap();
    fs::write(folder.join("new.txt"), NEW).unwrap();
}

fn said(folder: &Path, args: &[&str]) -> (Option<i32>, String) {
    let output = run(folder, args);
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn two_files_of_results_are_read_and_gate() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    files(here);
    let (code, screen) = said(here, &["compare", "old.txt", "new.txt"]);
    assert_eq!(code, Some(0), "{screen}");
    for part in ["Encode/js-2", "p=0.315 n=10", "go test -bench", "one layout", "geomean"] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    let gate =
        |limit: &str| said(here, &["compare", "-q", "--fail-if", limit, "old.txt", "new.txt"]).0;
    assert_eq!((gate("slower:2%"), gate("faster:50%")), (Some(1), Some(3)));
    let (_, text) = said(here, &["compare", "--json", "-", "old.txt", "new.txt"]);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&value["kind"], &value["result"]["decision"]),
        (&"judgement".into(), &"slower".into())
    );
    let (_, text) = said(here, &["compare", "--markdown", "old.txt", "new.txt"]);
    assert!(text.contains("| Encode/js-2 | ns/op |"), "{text}");
}

#[test]
fn two_commands_in_one_file_of_hyperfine_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let times = |from: f64| {
        (0..9).map(|i| format!("{}", from + 1e-4 * f64::from(i))).collect::<Vec<_>>().join(",")
    };
    let entry = |name: &str, from: f64| {
        format!(r#"{{"command":"{name}","mean":{from},"times":[{}]}}"#, times(from))
    };
    let both = format!(r#"{{"results":[{},{}]}}"#, entry("./a", 0.1), entry("./b", 0.2));
    fs::write(here.join("both.json"), both).unwrap();
    let (code, screen) = said(here, &["compare", "both.json"]);
    assert!(code == Some(0) && screen.contains("1 slower of 1 benchmark\n"), "{screen}");
    assert!(
        screen.contains("OLD both.json: ./a") && screen.contains("NEW both.json: ./b"),
        "{screen}"
    );
    fs::write(here.join("one.txt"), "1\n2\n").unwrap();
    refused(here, &["compare", "one.txt"], &["holds 1 series", "give OLD and NEW"]);
}

#[test]
fn what_is_run_and_what_is_read_is_not_a_guess() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    files(here);
    // Marked executable, so it is a program, whatever its content.
    program(here, "old-program", OLD.as_bytes());
    refused(here, &["compare", "./old-program", "./old-program"], &["arm", "cannot be executed"]);
    let both = ["compare", "-q", "--kind", "results", "./old-program", "new.txt"];
    assert_eq!(said(here, &both).0, Some(0));
    // One of each is a pair of programs, one of which cannot be run.
    refused(here, &["compare", "./old.txt", "true"], &["arm A", "./old.txt"]);
    refused(here, &["compare", "--kind", "programs", "./old.txt", "./new.txt"], &["arm"]);
}

#[test]
fn broken_results_have_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    files(here);
    let case = |text: &str, parts: &[&str]| {
        fs::write(here.join("bad"), text).unwrap();
        refused(here, &["compare", "old.txt", "bad"], parts);
    };
    case("", &["bad is empty"]);
    case("hello\n", &["bad is in no format"]);
    case("{\"results\": [", &["bad is not whole hyperfine JSON"]);
    case("BenchmarkEncode/js-2 10 NaN ns/op\n", &["bad, line 1", "NaN is no amount"]);
    case("BenchmarkOther-2 10 5 ns/op\n", &["no benchmark in common", "Other-2"]);
    refused(here, &["compare", "old.txt", "./old.txt"], &["are the same file"]);
    fs::write(here.join("ms.csv"), "t_ms,x\n1,\"a\"\n2,\"b\"\n").unwrap();
    fs::write(here.join("b.csv"), "t (B),x\n1,\"a\"\n2,\"b\"\n").unwrap();
    refused(here, &["compare", "ms.csv", "b.csv"], &["is in ms in one file and in B in the other"]);
    fs::write(here.join("bytes"), [0xff, 0xfe, 0, 1]).unwrap();
    refused(here, &["compare", "old.txt", "bytes"], &["bytes is no text"]);
}

#[test]
fn samples_without_any_spread_are_said_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("a"), "BenchmarkX 1 5 ns/op\n".repeat(8)).unwrap();
    fs::write(here.join("b"), "BenchmarkX 1 5 ns/op\n".repeat(9)).unwrap();
    let (code, screen) = said(here, &["compare", "a", "b"]);
    assert_eq!(code, Some(0));
    assert!(screen.contains("no variance"), "{screen}");
}

#[test]
fn a_benchmark_of_one_file_is_named_and_files_of_one_content_are_a_threat() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let both = "BenchmarkBoth-2 10 5 ns/op\n".repeat(6);
    fs::write(here.join("a"), both.clone() + "BenchmarkGone-2 10 5 ns/op\n").unwrap();
    fs::write(here.join("b"), both.clone() + "BenchmarkFresh-2 10 5 ns/op\n").unwrap();
    let (code, screen) = said(here, &["compare", "a", "b"]);
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("only in OLD: Gone-2") && screen.contains("only in NEW: Fresh-2"));
    fs::copy(here.join("a"), here.join("copy")).unwrap();
    let (_, screen) = said(here, &["compare", "a", "copy"]);
    assert!(screen.contains("same content"), "{screen}");
}

#[test]
fn malformed_json_of_each_tool_names_the_tool() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    files(here);
    for (text, parts) in [
        ("{\"results\":[{\"command\":", &["not whole hyperfine JSON"][..]),
        ("{\"context\":{},\"benchmarks\":[{\"na", &["not whole google-benchmark JSON"]),
        (
            "{\"counter-value\" : \"4\", \"event\":\"x\", \"unit\":\"\"}\n{\"cou\n",
            &["line 2", "JSON"],
        ),
        ("1.5,msec,task-clock,1,100.00,,\ngarbage\n", &["line 2", "perf stat"]),
    ] {
        fs::write(here.join("bad"), text).unwrap();
        refused(here, &["compare", "old.txt", "bad"], parts);
    }
    let criterion = here.join("criterion/x/new");
    fs::create_dir_all(&criterion).unwrap();
    fs::write(criterion.join("sample.json"), "{\"iters\":[1.0,").unwrap();
    fs::write(criterion.join("benchmark.json"), "{\"full_id\":\"x\"}").unwrap();
    refused(here, &["compare", "criterion", "criterion/x"], &["sample.json is not whole"]);
}

#[test]
fn what_we_measure_can_be_read_by_benchstat_and_by_us() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let args = ["compare", "-q", "--pairs", "4", "--benchfmt", "out.txt", "true", "true"];
    assert_eq!(said(here, &args).0, Some(0));
    let text = fs::read_to_string(here.join("out.txt")).unwrap();
    assert_eq!(text.lines().filter(|l| l.starts_with("BenchmarkRun 1 ")).count(), 8);
    fs::write(here.join("other.txt"), &text).unwrap();
    assert_eq!(said(here, &["compare", "-q", "out.txt", "other.txt"]).0, Some(0));
}
