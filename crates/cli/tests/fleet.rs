//! A planned sweep from outside: blocks, workers, the join. Slurm and ssh are in `make test-fleet`.

mod support;

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use support::{refused, result_in, said, stallscope};

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

fn result(path: &Path) -> Value {
    result_in(&fs::read(path).unwrap())
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

#[test]
#[cfg(target_arch = "x86_64")]
fn machines_that_are_probed_come_back_as_a_survey() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let plan = ["probe", "clock", "--plan", "plan.jsonl", "--machines", "3"];
    let planned = run(here, &[&plan[..], &["--json", "b.json"]].concat());
    assert!(
        said(&planned).contains("3 machines, a block each: clock, at the most"),
        "{}",
        said(&planned)
    );
    assert_eq!(result(&here.join("b.json"))["probes"][0], "clock");
    for (block, name) in [("0", "a"), ("1", "a"), ("2", "b")] {
        let args = ["worker", "plan.jsonl", "--block", block, "--out", "r", "--machine", name];
        let worked = run(here, &args);
        assert!(said(&worked).contains(&format!("block {block}: clock on {name}")));
    }
    let collected = run(here, &["collect", "r", "--profiles", "kept", "--json", "s.json"]);
    let text = said(&collected);
    assert!(text.contains("of 2 machines") && text.contains("once more: block 1"), "{text}");
    let kept: Vec<_> =
        fs::read_dir(here.join("kept")).unwrap().map(|f| f.unwrap().path()).collect();
    assert_eq!(
        (kept.len(), result(&here.join("s.json"))["machines"].as_array().unwrap().len()),
        (2, 2)
    );
    // What was kept is what `survey` reads.
    let kept: Vec<&str> = kept.iter().map(|path| path.to_str().unwrap()).collect();
    let again = run(here, &[&["survey"], &kept[..]].concat());
    assert!(said(&again).contains("of 2 machines"), "{}", said(&again));
    refused(here, &["collect", "r", "--fail-if", "slower:2%"], &["--fail-if"]);
    refused(here, &["probe", "nonsense", "--plan", "p"], &["nonsense"]);
    refused(here, &["probe", "--machines", "2"], &["--plan"]);
}

#[test]
fn machines_that_explain_come_back_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let explain = |more: &[&str]| {
        let args = ["explain", "--pairs", "6", "/bin/true", "/bin/true"];
        run(here, &[&args, more].concat())
    };
    let planned = explain(&["--plan", "plan.jsonl", "--machines", "4", "--json", "b.json"]);
    let text = said(&planned);
    assert!(text.contains("4 blocks, an explanation each, at the most about"), "{text}");
    assert_eq!(result(&here.join("b.json"))["explained"][1]["command"][0], "/bin/true");
    for (block, name) in [("0", "a"), ("1", "a"), ("2", "b")] {
        let args = ["worker", "plan.jsonl", "--block", block, "--out", "r", "--machine", name];
        let worked = run(here, &args);
        let text = said(&worked);
        assert!(text.contains(&format!("block {block}: explained, nothing on {name}")), "{text}");
    }
    let collected = run(here, &["collect", "r", "--json", "r.json"]);
    let text = said(&collected);
    assert!(text.contains("nothing in 3 of 3 explanations, 2 machines"), "{text}");
    assert!(text.contains("not back: block 3"), "{text}");
    let many = result(&here.join("r.json"));
    assert_eq!(many["difference"]["kinds"][0]["machines"], 2);
    assert_eq!(many["code"], Value::Null);
    refused(here, &["collect", "r", "--fail-if", "slower:2%"], &["explanations"]);
    refused(here, &["explain", "--machines", "2", "/bin/true", "/bin/true"], &["--plan"]);
}

#[test]
fn each_kind_of_node_gets_its_share_and_nothing_is_left_at_work() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    // What Slurm would say: a number for each array, and nothing of nodes that there are none of.
    let sbatch = "#!/bin/sh\ncat >/dev/null; echo \"$*\" >>calls\n\
                  case $* in *none*) echo no such node >&2; exit 1;; esac\nwc -l <calls\n";
    support::program(here, "sbatch", sbatch.as_bytes());
    support::program(here, "scancel", b"#!/bin/sh\necho \"$*\" >taken-back\n");
    let path = format!("{}:{}", here.display(), std::env::var("PATH").unwrap());
    let slurm = |args: &[&str]| stallscope(here, args).env("PATH", &path).output().unwrap();
    let plan = ["probe", "clock", "--plan", "plan.jsonl", "--machines", "5"];
    assert!(run(here, &plan).status.success());
    let submit = ["submit", "plan.jsonl", "--slurm=-Cone -pquiet", "--out"];
    let handed = slurm(&[&submit[..], &["r", "--slurm=-Ctwo"]].concat());
    assert!(said(&handed).contains("5 blocks handed out") && said(&handed).contains("jobs: 1 2"));
    let calls = fs::read_to_string(here.join("calls")).unwrap();
    let calls: Vec<&str> = calls.lines().collect();
    assert!(calls[0].contains("--array=0-2") && calls[0].ends_with("-Cone -pquiet"), "{calls:?}");
    assert!(calls[1].contains("--array=0-1") && calls[1].ends_with("-Ctwo"), "{calls:?}");
    let mut lists: Vec<String> = fs::read_dir(here.join("r"))
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|file| file.extension().is_some_and(|end| end == "txt"))
        .map(|file| fs::read_to_string(file).unwrap())
        .collect();
    lists.sort_unstable();
    assert_eq!(lists, ["0\n2\n4\n", "1\n3\n"]);
    let refused = slurm(&[&submit[..], &["n", "--slurm=-Cnone"]].concat());
    assert!(said(&refused).contains("no such node"), "{}", said(&refused));
    assert_eq!(refused.status.code(), Some(2));
    // The first array was taken: nobody would know of it.
    assert_eq!(fs::read_to_string(here.join("taken-back")).unwrap(), "3\n");
}
