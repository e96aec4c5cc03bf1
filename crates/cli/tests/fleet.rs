//! A planned sweep from outside: blocks, workers, the join. Slurm and ssh are in `make test-fleet`.

mod support;

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use support::{refused, stallscope};

const BUILD: &str = "printf '%s\\n' '#!/bin/sh' ': {layout}' \
    'echo value $(( {seed} % 23 + ${#STALLSCOPE_PADDING} / 16 % 11 + {n} ))' > {out} && chmod +x {out}";

fn run(here: &Path, args: &[&str]) -> Output {
    stallscope(here, args).env("XDG_CACHE_HOME", here.join(".cache")).output().unwrap()
}

fn sweep(here: &Path, more: &[&str]) -> Output {
    let build = BUILD.replace("${#STALLSCOPE_PADDING}", "${{#STALLSCOPE_PADDING}}");
    let args = [
        "sweep",
        "-L",
        "n",
        "1000,1100",
        "--layouts",
        "3",
        "--knob",
        "lld",
        "--runs",
        "8",
        "--keep-disturbed",
        "--metric",
        r"regex:value (\d+)",
        "--build",
        &build,
        "--run",
        "{out}",
        "--source",
        "s",
    ];
    fs::write(here.join("s"), "").unwrap();
    run(here, &[&args, more].concat())
}

fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn result(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["result"].take()
}

#[test]
fn a_plan_that_is_run_and_joined_is_the_sweep() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    assert!(sweep(here, &["--json", "here.json"]).status.success());
    let planned = sweep(here, &["--plan", "plan.jsonl", "--per-block", "2"]);
    assert!(said(&planned).contains("4 blocks, each 2 rounds of 8 builds"), "{}", said(&planned));
    // Two workers, a block of one of them twice, and the rest by the engine of this machine.
    let worker = |blocks: &str, out: &str| {
        run(here, &["worker", "plan.jsonl", "--block", blocks, "--out", out])
    };
    assert!(said(&worker("2-3", "results")).contains("block 3: 18 runs on"));
    assert!(said(&worker("3", "results")).contains("already there: block 3"));
    assert!(worker("3", "more").status.success());
    let early = run(here, &["collect", "results"]);
    assert!(
        said(&early).contains("2 of 4 blocks came back")
            && said(&early).contains("not back: block 0-1")
    );
    let submitted = run(here, &["submit", "plan.jsonl", "--out", "results"]);
    assert!(
        said(&submitted).contains("2 blocks handed out")
            && said(&submitted).contains("2 were there already"),
        "{}",
        said(&submitted)
    );
    let collected = run(here, &["collect", "--follow", "results", "more", "--json", "there.json"]);
    assert!(
        said(&collected).contains("4 of 4 blocks; 1 came twice and count once"),
        "{}",
        said(&collected)
    );
    let [one, two] = ["here.json", "there.json"].map(|name| result(&here.join(name)));
    for part in ["metric", "settings", "variants", "spreads", "comparisons"] {
        assert_eq!(one[part].to_string(), two[part].to_string(), "{part}");
    }
    assert_eq!(two["machines"].as_array().unwrap().len(), 1);
}

#[test]
fn machines_that_call_themselves_something_else_are_several() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    assert!(sweep(here, &["--plan", "plan.jsonl"]).status.success());
    for (blocks, name) in [("0-2", "a"), ("3-4", "b"), ("5-7", "c\u{1b}[2J")] {
        let args = ["worker", "plan.jsonl", "--block", blocks, "--out", "r", "--machine", name];
        assert!(run(here, &args).status.success());
    }
    let collected = run(here, &["collect", "r", "--json", "r.json"]);
    let text = said(&collected);
    assert!(text.contains("3 machines: ") && text.contains("on 3 machines"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    let across = &result(&here.join("r.json"))["comparisons"][0]["levels"][0]["machines"];
    assert_eq!(across["each"].as_array().unwrap().len(), 3);
}

#[test]
fn an_engine_of_ones_own_gets_every_task_and_keeps_what_it_said() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    assert!(sweep(here, &["--plan", "plan.jsonl"]).status.success());
    let template = ["submit", "plan.jsonl", "--out", "r", "--at-once", "2", "--template"];
    let with = |text: &str| run(here, &[&template[..], &[text]].concat());
    let submitted = with("{worker} --quiet && echo job-{task}");
    assert!(said(&submitted).contains("jobs: job-0 job-1"), "{}", said(&submitted));
    assert!(said(&run(here, &["collect", "--follow", "r"])).contains("8 of 8 blocks"));
    refused(here, &["collect", "--cancel", "r"], &["only the engine", "job-0, job-1"]);
    refused(here, &["submit", "plan.jsonl", "--out", "n", "--template", "{no}"], &["`{no}`"]);
    let failing = ["submit", "plan.jsonl", "--out", "n", "--template", "echo no room >&2; exit 3"];
    refused(here, &failing, &["no room"]);
}

#[test]
fn what_is_no_plan_and_no_result_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("empty"), "").unwrap();
    fs::write(here.join("wrong"), "{}\n").unwrap();
    refused(here, &["sweep", "--run", "true", "--plan", "p"], &["--runs"]);
    refused(here, &["sweep", "--run", "true", "--runs", "1", "--plan", "no/p"], &["--plan"]);
    refused(here, &["worker", "wrong", "--out", "r"], &["wrong, line 1", "no block"]);
    refused(here, &["worker", "wrong", "--out", "r", "--block", "3-1"], &["3-1"]);
    refused(here, &["worker", "empty", "--out", "r", "--block", "0"], &["has 0 blocks"]);
    refused(here, &["submit", "empty", "--out", "r"], &["has 0 blocks"]);
    refused(here, &["submit", "wrong", "--out", "r", "--slurm", "--hosts", "h"], &["--hosts"]);
    refused(here, &["collect", "."], &["holds no plan"]);
    refused(here, &["collect", "nowhere"], &["nowhere"]);
    refused(here, &["collect", "--cancel", "."], &["no blocks were handed out"]);
}

#[test]
fn a_comparison_that_is_planned_is_run_and_joined_as_a_sweep() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for (name, value) in [("before", 100), ("after", 110)] {
        support::program(here, name, format!("#!/bin/sh\necho value {value}\n").as_bytes());
    }
    let compare = |more: &[&str]| {
        let args = ["compare", "--metric", r"regex:value (\d+)", "--pairs", "12"];
        run(here, &[&args, more, &["./before", "./after"]].concat())
    };
    let planned = compare(&["--plan", "plan.jsonl", "--per-block", "4", "--json", "block.json"]);
    let text = said(&planned);
    assert!(text.contains("3 blocks, each 4 rounds of 2 commands and about"), "{text}");
    assert_eq!(result(&here.join("block.json"))["commands"]["arms"][1]["command"][0], "./after");
    assert!(compare(&["--plan", "again.jsonl", "--per-block", "4"]).status.success());
    for (block, plan) in [("0", "plan.jsonl"), ("1", "again.jsonl"), ("2", "plan.jsonl")] {
        let args = ["worker", plan, "--block", block, "--out", "r", "--machine", block];
        assert!(said(&run(here, &args)).contains(&format!("block {block}: 12 runs on {block}")));
    }
    let collected = run(here, &["collect", "r", "--json", "r.json", "--fail-if", "slower:2%"]);
    let text = said(&collected);
    assert!(text.contains("command=./after against command=./before"), "{text}");
    assert!(text.contains("3 machines: +10.0 %") && text.contains("3 of 3 blocks"), "{text}");
    let across = &result(&here.join("r.json"))["comparisons"][0]["levels"][0]["machines"];
    assert_eq!(across["each"].as_array().unwrap().len(), 3);
    refused(here, &["compare", "--plan", "p", "./before"], &["two commands or more"]);
    refused(here, &["compare", "--plan", "p", "--gate", "./before", "./after"], &["--gate"]);
    refused(here, &["compare", "--plan", "no/p", "./before", "./after"], &["--plan"]);
    refused(here, &["compare", "--per-block", "2", "./before", "./after"], &["--plan"]);
}
