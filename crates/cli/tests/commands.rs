//! Arms as commands: variables, folders, shells, and what is run around the runs.

mod support;

use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::Value;

fn compare(folder: &Path, args: &[&str]) -> Output {
    support::run(folder, &[&["compare", "--quiet", "--json", "r.json"], args].concat())
}

/// The result of what has to succeed.
fn result(folder: &Path, args: &[&str]) -> Value {
    let output = compare(folder, args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    support::result_in(&fs::read(folder.join("r.json")).unwrap())
}

/// What has to fail by exit code 2, and what it says.
fn refused(folder: &Path, args: &[&str]) -> String {
    let output = compare(folder, args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    said
}

#[test]
fn each_arm_has_its_variables_and_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::create_dir_all(here.join("one/two")).unwrap();
    support::program(here, "one/say", b"#!/bin/sh\necho \"$X$Y\"; pwd -P\n");
    let told = result(
        here,
        &[
            "--pairs", "2", "-a", "./say", "-b", "../say", "--dir-a", "one", "--dir-b", "one/two",
            "--env", "X=1", "--env-a", "Y=2", "--env-b", "Y=3",
        ],
    );
    for (n, (variables, place)) in
        [(["X=1", "Y=2"], "one"), (["X=1", "Y=3"], "one/two")].iter().enumerate()
    {
        let arm = &told["arms"][n];
        assert_eq!(arm["environment"], serde_json::json!(variables));
        assert_eq!(arm["folder"], *place);
    }
    let said = refused(here, &["-a", "true", "-b", "true", "--dir", "no"]);
    assert!(said.contains("no folder no"), "{said}");
    assert!(refused(here, &["-a", "true"]).contains("-b <CMD>"));
    assert!(refused(here, &["-a", "true", "-b", "true", "true"]).contains("cannot be used with"));
    assert!(refused(here, &["true", "true", "--env", "X"]).contains("NAME=VALUE"));
}

#[test]
fn one_program_under_two_environments_is_not_one_thing() {
    let folder = tempfile::tempdir().unwrap();
    let script = b"#!/bin/sh\n[ \"$SLOW\" ] && sleep 0.03\nexit 0\n";
    support::program(folder.path(), "p", script);
    let told = result(folder.path(), &["--pairs", "6", "--env-b", "SLOW=1", "./p", "./p"]);
    assert_eq!(told["analysis"]["verdict"]["decision"], "slower");
}

/// Everything that is run writes a line.
#[test]
fn steps_come_in_order_and_around_every_run() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let told = result(
        here,
        &[
            "--pairs",
            "2",
            "-w",
            "2",
            "-s",
            "echo setup >> log",
            "-p",
            "echo a >> log",
            "-p",
            "echo b >> log",
            "-C",
            "echo done >> log",
            "-c",
            "echo cleanup >> log",
            "sh -c 'echo A >> log'",
            "sh -c 'echo B >> log'",
        ],
    );
    let log = fs::read_to_string(here.join("log")).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines[..2], ["setup"; 2]);
    assert_eq!(lines[lines.len() - 2..], ["cleanup"; 2]);
    let runs: Vec<&[&str]> = lines[2..lines.len() - 2].chunks(3).collect();
    // Two warm-ups and two runs of each.
    assert_eq!(runs.len(), 8, "{log}");
    for run in runs {
        assert!(run == ["a", "A", "done"] || run == ["b", "B", "done"], "{log}");
    }
    let steps = told["arms"][1]["steps"].as_array().unwrap();
    let names: Vec<&str> = steps.iter().map(|step| step["step"].as_str().unwrap()).collect();
    assert_eq!(names, ["setup", "prepare", "conclude", "cleanup"]);
    assert_eq!(steps[1]["command"][2], "echo b >> log");
}

#[test]
fn a_step_that_fails_is_named_and_nothing_is_compared() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for (option, text) in [
        ("--prepare", "sh -c 'echo no disk >&2; exit 3'"),
        ("--setup", "exit 3"),
        ("--conclude", "exit 3"),
    ] {
        let said = refused(here, &[option, text, "true", "true"]);
        for part in ["arm ", option, "exit code 3"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert_eq!(said.contains("no disk"), option == "--prepare", "{said}");
    }
    let said = refused(here, &["-p", "no-such-program", "true", "true"]);
    assert!(said.contains("--prepare `no-such-program` did not run: no such program"), "{said}");
    assert!(!here.join("r.json").exists());
}

#[test]
fn a_setup_may_build_the_program_and_a_preparation_its_input() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let build = "printf '#!/bin/sh\\nread x < $1 && rm $1\\n' > p; chmod +x p";
    result(here, &["--pairs", "3", "-s", build, "-p", "echo 1 > in", "./p", "./p", "--", "in"]);
    // The same, as standard input.
    let args = ["--pairs", "3", "-p", "date +%N > in", "--input", "in", "cat", "cat"];
    fs::write(here.join("in"), "").unwrap();
    result(here, &args);
}

#[test]
fn a_server_is_given_its_load_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let server = "trap 'echo told; exit 0' TERM; mkfifo in; \
        while :; do read n < in && echo $n > out.$n; done";
    fs::write(here.join("server"), format!("#!/bin/sh\nrm -f in\n{server}\n")).unwrap();
    let load = "echo 7 > in; while [ ! -e out.7 ]; do sleep 0.01; done; rm out.7";
    let told = result(here, &["--pairs", "2", "--load", load, "sh server", "sh server"]);
    for sample in told["samples"].as_array().unwrap() {
        assert!(sample.get("left_behind").is_none(), "{sample}");
    }
    assert_eq!(told["arms"][0]["steps"][0]["step"], "load");
    let said = refused(here, &["--load", "echo no answer >&2; exit 3", "sh server", "sh server"]);
    assert!(said.contains("--load `echo no answer >&2; exit 3` failed: exit code 3"), "{said}");
    assert!(said.contains("no answer"), "{said}");
    let said = refused(here, &["--load", "sleep 1000", "sleep 0.2", "sleep 0.2"]);
    assert!(said.contains("was not done when the command ended: exit code 0"), "{said}");
}

#[test]
fn a_server_of_the_setup_runs_as_long_as_it_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let server = "sleep 1000 & echo $! > pid";
    let alive = "kill -0 $(cat pid)";
    result(here, &["--pairs", "3", "-s", server, alive, alive, alive]);
    let pid: i32 = fs::read_to_string(here.join("pid")).unwrap().trim().parse().unwrap();
    // SAFETY: signal 0 only asks whether the process is there.
    assert_ne!(unsafe { libc::kill(pid, 0) }, 0, "the server outlived the comparison");
}

#[test]
fn ctrl_c_ends_a_step_too() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["compare", "-p", "sh -c 'echo $$ > pid; exec sleep 1000'", "true", "true"];
    let mut ours = support::stallscope(folder.path(), &args);
    let mut ours = ours.stderr(std::process::Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    let pid = loop {
        let text = fs::read_to_string(folder.path().join("pid")).unwrap_or_default();
        if let Ok(pid) = text.trim().parse::<i32>() {
            break pid;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "the preparation starts");
        std::thread::sleep(Duration::from_millis(20));
    };
    // SAFETY: plain integers; the process is our own child.
    unsafe { libc::kill(ours.id() as i32, libc::SIGINT) };
    assert_eq!(ours.wait().unwrap().code(), Some(130));
    // SAFETY: signal 0 only asks whether the process is there.
    assert_ne!(unsafe { libc::kill(pid, 0) }, 0, "the preparation outlived the interrupt");
}

#[test]
fn pipelines_run_in_a_shell_whose_start_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("words"), "b\na\n").unwrap();
    let told = result(
        here,
        &[
            "--pairs",
            "6",
            "--input",
            "words",
            "sort | head -1; sleep 0.01",
            "cat | wc -l; sleep 0.01",
        ],
    );
    for n in [0, 1] {
        assert!(told["arms"][n]["shell_start_ns"].as_u64().unwrap() > 0);
    }
    let warnings = told["analysis"]["warnings"].as_array().unwrap();
    let shells = warnings.iter().filter(|w| w["id"] == "shell-start").count();
    assert_eq!(shells, 2, "{warnings:?}");
    // Without one there is nothing to be taken off.
    let told = result(here, &["-N", "--pairs", "2", "sleep 0.01", "echo ; *"]);
    assert!(told["arms"][1]["shell_start_ns"].is_null());
    assert_eq!(told["arms"][1]["command"], serde_json::json!(["echo", ";", "*"]));
}

#[test]
fn several_commands_are_ranked_and_one_is_timed() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let args = ["-r", "9", "-L", "delay", "0.06,0.01,0.03", "sleep {delay}"];
    let exports = ["--export-json", "e.json", "--export-markdown", "e.md", "--export-csv", "e.csv"];
    let told = result(here, &[&args[..], &exports].concat());
    assert_eq!(told["order"], serde_json::json!(["b", "c", "a"]));
    for (n, least) in [(0, 3.0), (2, 1.5)] {
        let against = &told["commands"][n]["against_fastest"];
        assert_eq!(against["verdict"]["decision"], "slower");
        assert!(against["wall"]["estimate"]["value"].as_f64().unwrap() > least, "{against}");
    }
    assert_eq!(told["commands"][0]["arm"]["parameters"]["delay"], "0.06");
    let exported: Value = serde_json::from_slice(&fs::read(here.join("e.json")).unwrap()).unwrap();
    assert_eq!(exported["results"][2]["command"], "sleep 0.03");
    assert_eq!(exported["results"][2]["times"].as_array().unwrap().len(), 9);
    assert!(fs::read_to_string(here.join("e.md")).unwrap().contains("| `sleep 0.01` |"));
    assert!(fs::read_to_string(here.join("e.csv")).unwrap().contains("parameter_delay"));

    let alone = result(here, &["-r", "3", "sleep 0.01"]);
    assert_eq!(alone["commands"][0]["runs"].as_array().unwrap().len(), 3);
    let said = refused(here, &["--until", "verdict", "true", "true", "true"]);
    assert!(said.contains("--until goes with two commands"), "{said}");
    let said = refused(here, &["-P", "n", "1", "99", "echo {n}"]);
    assert!(said.contains("99 values"), "{said}");
    assert!(refused(here, &["true", "--export-json", "no/x"]).contains("--export-json"));
}

#[test]
fn values_of_variables_are_left_out_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let args = [
        "--redact-args",
        "--pairs",
        "2",
        "--env",
        "KEY=secret",
        "-p",
        "echo secret",
        "true",
        "true",
    ];
    let text = result(folder.path(), &args).to_string();
    assert!(!text.contains("secret") && text.contains("KEY=[redacted]"), "{text}");
}

#[test]
fn a_file_above_sets_defaults_which_the_json_tells() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("a/b");
    std::fs::create_dir_all(&inner).unwrap();
    let file = folder.path().join(".stallscope.toml");
    std::fs::write(&file, "json-dir = 'kept'\nseed = 5\n[scan]\nrule = ['rep-string']\n").unwrap();
    let output = support::run(&inner, &["list", "--verbose"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && said.contains("seed = 5") && !said.contains("rule"),
        "{said}"
    );
    let kept: Vec<_> = std::fs::read_dir(folder.path().join("kept")).unwrap().collect();
    let text = std::fs::read_to_string(kept[0].as_ref().unwrap().path()).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["defaults"]["set"]["seed"][0], "5", "{text}");
    assert!(json["defaults"]["file"].as_str().unwrap().ends_with(".stallscope.toml"));
    std::fs::write(&file, "sed = 5").unwrap();
    support::refused(&inner, &["list"], &[".stallscope.toml:1: `sed` is no option; known keys: "]);
    assert!(support::run(&inner, &["list", "--no-config"]).status.success());
    std::fs::write(&file, vec![b'#'; 1 << 17]).unwrap();
    support::refused(&inner, &["list"], &["cannot read", "larger"]);
}
