//! `layout` from outside: programs that this test compiles and runs, recordings that are broken, and
//! the case of code that nobody touched.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{refused, result_in, run, stallscope};

/// `before` and `after`: the second has a function more in front of `work`.
fn two_builds(folder: &Path) {
    let source = "
__attribute__((noinline)) int first(int x) { return x * 3; }
#ifdef PADDED
__attribute__((noinline, used)) int pad(int x) { return x * 5 + x / 7 + (x << 3) % 11; }
#endif
__attribute__((noinline)) int work(int n) {
    volatile int sum = 0;
    for (int i = 0; i < n; i++) sum += i ^ (sum >> 3);
    return sum;
}
int main(int argc, char **argv) {
    (void)argv;
    return first(argc) + work(argc * 40000000) == 123456789;
}";
    fs::write(folder.join("work.c"), source).unwrap();
    for (name, flags) in [("before", &[][..]), ("after", &["-DPADDED"])] {
        let compiled = Command::new("cc")
            .current_dir(folder)
            .args([
                "-O1",
                "-no-pie",
                "-fno-toplevel-reorder",
                "-Wl,--build-id",
                "-o",
                name,
                "work.c",
            ])
            .args(flags)
            .status();
        assert!(compiled.unwrap().success());
    }
}

fn result(folder: &Path, args: &[&str]) -> serde_json::Value {
    let output = run(folder, &[&["layout", "--json", "-"], args].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    result_in(&output.stdout)
}

#[test]
fn what_moved_is_named_with_its_cause_and_sampled_sets_come_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    two_builds(here);
    let value = result(here, &["./before", "./after"]);
    let functions = value["shift"]["functions"].as_array().unwrap();
    let find = |name: &str| functions.iter().find(|f| f["name"] == name).unwrap();
    assert_eq!(find("pad")["change"], "new");
    assert!(find("work")["change"]["moved"]["by_bytes"].as_i64().unwrap() > 0, "{functions:#?}");
    let runs = value["shift"]["runs"].as_array().unwrap();
    assert!(runs.iter().any(|r| r["cause"]["function"] == "pad"), "{runs:#?}");
    assert!(value["sets"].is_null());

    let value = result(here, &["--csv", "tables", "./before", "./after", "--run"]);
    assert_eq!(value["sets"]["function"], "work");
    let sets = value["sets"]["sets"].as_array().unwrap();
    let samples = |key: &str| -> u64 {
        let part = |s: &serde_json::Value| {
            s[key]["function"].as_u64().unwrap() + s[key]["peers"].as_u64().unwrap()
        };
        sets.iter().map(part).sum()
    };
    assert_eq!(Some(samples("after")), value["sets"]["heat"][1]["samples"].as_u64());
    for name in ["shifts", "runs", "functions", "sets", "occupants"] {
        let table = fs::read_to_string(here.join("tables").join(format!("{name}.csv"))).unwrap();
        assert!(table.lines().count() > 1, "{name}: {table}");
    }
    // And a screen, without colours where they are not wanted.
    let output = stallscope(here, &["layout", "./before", "./after"]).output().unwrap();
    let screen = String::from_utf8(output.stdout).unwrap();
    assert!(screen.contains("pad is new"), "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
}

#[test]
fn what_cannot_be_used_is_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    two_builds(here);
    fs::write(here.join("text"), "no recording").unwrap();
    fs::write(here.join("cut"), b"PERFILE2\x68\0\0\0\0\0\0\0").unwrap();
    refused(here, &["layout", "./before", "/no/such"], &["no such program: /no/such"]);
    // No program is called so, and the file right here is none.
    assert!(Command::new("mkfifo").arg(here.join("a-pipe")).status().unwrap().success());
    refused(here, &["layout", "a-pipe", "./before"], &["a-pipe", "not a regular file"]);
    refused(here, &["layout", "./before", "."], &[". is a directory"]);
    refused(here, &["layout", ""], &["the name of the program is empty"]);
    refused(here, &["layout", "./before", "--samples", "text"], &["text is no perf.data file"]);
    refused(here, &["layout", "./before", "--samples", "cut"], &["cut is truncated"]);
    refused(here, &["layout", "./before", "--samples", "none"], &["none cannot be read"]);
    refused(here, &["layout", "./before", "./after", "--samples", "text"], &["2 programs and 1"]);
    refused(
        here,
        &["layout", "./before", "-f", "work"],
        &["--function, --shift and --measured need samples"],
    );
    refused(here, &["layout", "./before", "--l1i", "1,2"], &["expected SIZE,WAYS,LINE"]);
    refused(here, &["layout", "./before", "--suggest"], &["--suggest needs a window"]);
    refused(
        here,
        &["layout", "./before", "--as", "pentium"],
        &["unknown design `pentium`; known: nehalem"],
    );
    let measured = |text| ["layout", "./before", "./after", "--run", "--measured", text];
    refused(here, &measured("15"), &["neither a difference like 15%"]);
    refused(here, &measured("15%"), &["executions were counted"]);
    let traced = ["layout", "./before", "./after", "--trace", "first", "--measured", "15%"];
    refused(here, &traced, &["how long it took: --takes"]);
    let own = assert_cmd::cargo::cargo_bin!("stallscope").display().to_string();
    refused(here, &["layout", &own, "./before"], &["do not look like two builds"]);
}

#[test]
fn a_call_is_followed_in_both_builds_and_everything_that_counts_is_priced() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    two_builds(here);
    let judged =
        ["--as", "cascade-lake", "--measured", "20%", "--takes", "10ns", "--csv", "tables"];
    let traced = ["./before", "./after", "--trace", "first", "--suggest", "--order-file", "order"];
    // `first` returns at once; what runs behind it would be followed for hours, and is not.
    let value = result(here, &[&judged[..], &traced[..], &["--shift", "0..128:64"]].concat());
    let windows = value["windows"].as_array().unwrap();
    assert_eq!(windows.len(), 2, "{windows:#?}");
    for window in windows {
        assert_eq!(window["operations"], 1);
        assert!(window["instructions"].as_u64().unwrap() > 1, "{window:#?}");
        // A call of a few instructions fits, and the second time nothing misses.
        assert_eq!((&window["misses"], &window["overfull"]), (&0.into(), &serde_json::json!([])));
    }
    assert_eq!(value["design"], "cascade_lake");
    assert_eq!(value["jump_erratum"], true);
    let effects = value["budget"]["effects"].as_array().unwrap();
    let kinds: Vec<&str> = effects.iter().map(|e| e["count"]["kind"].as_str().unwrap()).collect();
    for kind in ["boundary_jumps", "code_misses", "decoded_misses", "extra_windows"] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
    assert!(value["budget"]["named"].is_null(), "{:#?}", value["budget"]);
    let options = value["suggestions"]["options"].as_array().unwrap();
    assert_eq!(options.len(), 5);
    assert_eq!(options[0]["option"], "-falign-functions=16");
    assert!(options[0]["warning"].as_str().unwrap().contains("harmful on Cascade Lake"));
    assert_eq!(fs::read_to_string(here.join("order")).unwrap(), "first\n");
    assert_eq!(value["sets"]["what_if"]["outcomes"][1]["misses"], 0);
    for name in ["fighters", "jumps", "loops", "budget", "suggestions", "what-if"] {
        assert!(here.join("tables").join(format!("{name}.csv")).exists(), "{name}");
    }
}

#[test]
fn recorded_windows_say_the_same_as_followed_ones() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    two_builds(here);
    for name in ["before", "after"] {
        let program = format!("./{name}");
        let (record, file) = (["trace", "-f", "first", "--window", "1"], format!("{name}.trace"));
        let output = run(here, &[&record[..], &["--record", &file, "--", &program]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let windows = ["--windows", "before.trace", "--windows", "after.trace"];
    let value = result(here, &[&["./before", "./after"], &windows[..]].concat());
    let followed = result(here, &["./before", "./after", "--trace", "first"]);
    let count = |value: &serde_json::Value| value["windows"][1]["instructions"].as_u64().unwrap();
    assert_eq!(count(&value), count(&followed));
    let screen = stallscope(here, &[&["layout", "./before", "./after"], &windows[..]].concat());
    let screen = String::from_utf8({ screen }.output().unwrap().stdout).unwrap();
    assert!(screen.contains("misses per operation"), "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");

    refused(here, &["layout", "./before", "--windows", "none"], &["cannot open none"]);
    refused(here, &["layout", "./before", "./after", "--windows", "before.trace"], &["2 programs"]);
    let own = assert_cmd::cargo::cargo_bin!("stallscope").display().to_string();
    let wrong = ["layout", &own, "--windows", "before.trace"];
    refused(here, &wrong, &["none of its code is of"]);
}

/// Short runs: how long they take is not asked.
#[test]
fn the_difference_is_measured_in_pairs_when_asked_and_held_against_the_counts() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    two_builds(here);
    let measure = ["./before", "./after", "--measure", "--for", "100ms"];
    let counted = ["--trace", "first", "--operations", "10", "--csv", "tables"];
    let value = result(here, &[&measure[..], &counted].concat());
    let runs = value["comparison"]["samples"].as_array().unwrap();
    assert!(runs.len() >= 12, "{}", runs.len());
    let measured = &value["budget"]["measured"];
    assert_eq!(measured["pairs"].as_u64().unwrap() as usize, runs.len() / 2);
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let (low, high) = (number(&measured["interval"][0]), number(&measured["interval"][1]));
    assert!(low <= high, "{measured:#?}");
    assert!(number(&measured["operation_cycles"]) > 0.0);
    // `first` is a few instructions: whatever the runs say, they cannot be why.
    assert!(value["budget"]["named"].is_null(), "{:#?}", value["budget"]);
    assert!(!value["budget"]["effects"].as_array().unwrap().is_empty());
    assert!(here.join("tables/budget.csv").exists());

    // With samples alone there is a difference and nothing to hold against it.
    let line = ["layout", "./before", "./after", "--measure", "--for", "100ms", "--run"];
    let output = stallscope(here, &line).output().unwrap();
    let screen = String::from_utf8(output.stdout).unwrap();
    assert!(screen.contains("pairs of runs"), "{screen}");
    assert!(screen.contains("no executions were counted"), "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");

    refused(here, &["layout", "./before", "--measure"], &["<AFTER>"]);
    refused(
        here,
        &[&["layout"], &measure[..], &["--trace", "first"]].concat(),
        &["--operations N"],
    );
    let recorded = ["layout", "./before", "--samples", "text", "--", "input"];
    refused(here, &recorded, &["nothing is run", "--measure"]);
}

#[test]
fn printed_samples_are_read_by_name_and_distance() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    two_builds(here);
    let line =
        |object: &str| format!("before 1 2.5: 100000 cpu-clock:u:  401136 work+0x4 ({object})\n");
    fs::write(here.join("text"), line("/x/before").repeat(3) + &line("/x/libc.so")).unwrap();
    let value = result(here, &["./before", "--samples", "text"]);
    let heat = &value["sets"]["heat"][0];
    assert_eq!((&heat["samples"], &heat["lines"]), (&3.into(), &1.into()));
    assert!(value["sets"]["notes"].to_string().contains("1 of 4 samples are in other files"));
    fs::write(here.join("text"), line("/x/libc.so")).unwrap();
    refused(
        here,
        &["layout", "./before", "--samples", "text"],
        &["no samples in", "perf.data itself"],
    );
}

/// The case's builds, or a loud word about why not.
#[expect(clippy::print_stderr, reason = "a skipped test must be heard")]
fn case() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases/go-untouched-code/build");
    if folder.join("stamp").exists() {
        return Some(folder.canonicalize().unwrap());
    }
    let missing = "cases/go-untouched-code is not built: it needs Go; run `make cases`";
    // No Debian package of Go is new enough, so scripts/setup-test cannot bring it.
    let has_go = Command::new("go").arg("version").output().is_ok();
    assert!(std::env::var_os("CI").is_none() || !has_go, "{missing}");
    eprintln!("SKIPPED: {missing}");
    None
}

#[test]
fn dead_code_in_front_of_the_hot_file_moves_exactly_what_stands_behind_it() {
    let Some(folder) = case() else { return };
    let value = result(&folder, &["./before", "./after"]);
    let shifts = value["shift"]["shifts"].as_array().unwrap();
    let distances: Vec<i64> = shifts.iter().map(|s| s["by_bytes"].as_i64().unwrap()).collect();
    assert_eq!(distances, [0, 416], "{shifts:#?}");
    assert_eq!(value["shift"]["counts"]["new"], 13);
    let runs = value["shift"]["runs"].as_array().unwrap();
    let pushed = runs.iter().find(|r| r["by_bytes"] == 416).unwrap();
    assert_eq!(pushed["cause"]["change"], "new");
    assert!(pushed["cause"]["function"].as_str().unwrap().contains("layoutPad"));
}

/// A window of one operation of a build of the case, if this machine can record one.
#[expect(clippy::print_stderr, reason = "a skipped test must be heard")]
fn followed(folder: &Path, scratch: &Path, build: &str) -> Option<String> {
    let file = scratch.join(format!("{build}.trace")).display().to_string();
    let program = format!("./{build}");
    let record =
        ["trace", "-f", "main.compress", "--skip", "20", "--window", "1", "--record", &file];
    let mut command = stallscope(folder, &record);
    command.args(["--", &program, "input.json", "100"]);
    command.envs([("GODEBUG", "asyncpreemptoff=1"), ("GOMAXPROCS", "1"), ("GOGC", "off")]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        assert!(std::env::var_os("CI").is_none(), "{said}");
        eprintln!("SKIPPED: the case cannot be followed here: {said}");
        return None;
    }
    Some(file)
}

/// Measured on a Cascade Lake at 3.07 GHz: 36.5 us per operation, and 15 % more with functions at
/// multiples of 16. The instructions are the same on every x86-64 processor; who is slowed down is not.
#[test]
fn jumps_at_boundaries_rank_first_for_16_byte_alignment_where_the_erratum_is() {
    let Some(folder) = case() else { return };
    let scratch = tempfile::tempdir().unwrap();
    let windows =
        ["before", "before-align16"].map(|build| followed(&folder, scratch.path(), build));
    let [Some(before), Some(after)] = windows else { return };
    let judged = |design: &str| {
        let files = ["--windows", &before, "--windows", &after, "--as", design];
        let measured = ["--measured", "15%", "--takes", "36.5us", "--ghz", "3.07"];
        let builds = ["./before", "./before-align16"];
        result(&folder, &[&builds[..], &files, &measured].concat())["budget"].clone()
    };
    let lake = judged("cascade-lake");
    assert_eq!(lake["named"], "boundary_jumps", "{lake:#?}");
    let first = &lake["effects"][0];
    assert_eq!(
        (&first["count"]["kind"], &first["payment"]),
        (&"boundary_jumps".into(), &"can_pay".into())
    );
    // Count times price, the price in the middle of its bracket, against what was measured there.
    let paid = |end: usize| first["paid_share"][end].as_f64().unwrap();
    let middle = (paid(0) + paid(1)) / 2.0;
    assert!((0.7..=1.3).contains(&middle), "{middle}: {first:#?}");
    let misses = lake["effects"].as_array().unwrap();
    let misses = misses.iter().find(|e| e["count"]["kind"] == "code_misses").unwrap();
    // How many there are depends on what Go's runtime did meanwhile, in either build.
    assert_ne!(misses["payment"], "can_pay", "{misses:#?}");
    // Without the erratum the same counts explain nothing.
    assert!(judged("zen-4")["named"].is_null());
}
