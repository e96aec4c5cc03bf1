//! `stallscope explain` from outside, on real programs: what it must not say. No claim about speed.

mod support;

use std::path::Path;
use std::process::Command;

/// A program twice, over a library of one function that works four times as long in AFTER, and is built with `-O0` there:
/// `$1` is the library's level of optimisation in BEFORE, `$2` that of the program. (`-O0` alone costs a third of the time
/// on cores that rename memory: too little for the shares of a difference to be told from a few hundred samples.)
const OVER_TWO_LIBRARIES: &str = r"
cat > work.c <<'END'
unsigned work(unsigned n) {
    unsigned s = 1;
    for (unsigned i = 0; i < n * TIMES; i++) s += (i * 31) ^ (i >> 3);
    return s;
}
END
mkdir before after
gcc $1 -DTIMES=1 -shared -fPIC work.c -Wl,-soname,libwork.so.1 -o before/libwork.so.1
gcc -O0 -DTIMES=4 -shared -fPIC work.c -Wl,-soname,libwork.so.1 -o after/libwork.so.1
gcc $2 main.c -Lbefore -l:libwork.so.1 -Wl,-rpath,'$ORIGIN' -o before/main
cp before/main after/main
";

fn build_over_two_libraries(folder: &Path, main: &str, [library, program]: [&str; 2]) {
    std::fs::write(folder.join("main.c"), main).unwrap();
    let mut sh = Command::new("sh");
    sh.args(["-ec", OVER_TWO_LIBRARIES, "sh", library, program]).current_dir(folder);
    assert!(sh.status().unwrap().success());
}

#[test]
fn a_library_that_differs_is_named_and_placement_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let main = "unsigned work(unsigned);\nint main(void) { return work(20000000) == 7; }\n";
    build_over_two_libraries(here, main, ["-O2", "-O1"]);
    let output = support::run(here, &["explain", "--pairs", "8", "before/main", "after/main"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("libwork.so"), "{text}");
    for never in ["byte-identical", "same code in both", "must differ", "placement or noise"] {
        assert!(!text.contains(never), "{never}: {text}");
    }
}

#[test]
fn a_script_is_explained_by_what_executes_it() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for (name, turns) in [("before", 20_000), ("after", 60_000)] {
        let text = format!("#!/bin/sh\nn=0\nwhile [ $n -lt {turns} ]; do n=$((n + 1)); done\n");
        support::program(here, name, text.as_bytes());
    }
    let args = ["explain", "--pairs", "6", "--json", "why.json", "./before", "./after"];
    let output = support::run(here, &args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let arms =
        &support::result_in(&std::fs::read(here.join("why.json")).unwrap())["comparison"]["arms"];
    let shell = std::path::Path::new("/bin/sh").canonicalize().unwrap();
    for (arm, script) in [(0, "./before"), (1, "./after")] {
        let command = arms[arm]["command"].as_array().unwrap();
        assert!(command[1].as_str().unwrap().ends_with(script), "{command:?}");
        let program = std::path::Path::new(arms[arm]["program"].as_str().unwrap());
        assert_eq!(program.canonicalize().unwrap(), shell);
    }
    // The same program: what differs is what it is given.
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains("byte-identical"), "{text}");
}

/// A library function that is called for 70 and for 30 parts of its work.
#[cfg(target_arch = "x86_64")]
const CALLED_FROM_TWO_PLACES: &str = r"
unsigned work(unsigned);
__attribute__((noinline)) static unsigned parse(unsigned n) { return work(7 * n) + 1; }
__attribute__((noinline)) static unsigned flush(unsigned n) { return work(3 * n) + 2; }
int main(void) {
    unsigned s = 0;
    for (unsigned i = 0; i < 6000; i++) s += parse(700 + i % 3) ^ flush(700 + i % 3);
    return s == 7;
}
";

#[test]
#[cfg(target_arch = "x86_64")]
fn both_callers_of_a_library_are_told_with_their_part() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    build_over_two_libraries(here, CALLED_FROM_TWO_PLACES, ["-O1", "-O2"]);
    let args =
        ["explain", "--no-cure", "--pairs", "6", "--json", "why.json", "before/main", "after/main"];
    let output = support::run(here, &args);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("libwork.so.1 is called from: parse "), "{text}");
    let stacks = &support::result_in(&std::fs::read(here.join("why.json")).unwrap())["stacks"];
    let parts: Vec<(&str, f64)> = stacks["called_from"]["callers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|caller| {
            let part = &caller["share_of_difference"]["percent"]["value"];
            (caller["function"]["name"].as_str().unwrap(), part.as_f64().unwrap())
        })
        .collect();
    let [("parse", parse), ("flush", flush), ..] = parts[..] else { panic!("{parts:?}") };
    let share = parse / (parse + flush);
    assert!((0.62..0.78).contains(&share), "{parts:?}");
    // The way from the start: `main` has inlined neither.
    let names: Vec<&str> = stacks["functions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["name"].as_str().unwrap())
        .collect();
    let heaviest: Vec<&str> = stacks["stacks"][0]["frames"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| names[n.as_u64().unwrap() as usize])
        .collect();
    assert!(heaviest.ends_with(&["main", "parse", "work"]), "{heaviest:?}");

    for args in [
        &["render", "why.json", "--html", "why.html"][..],
        &["render", "why.json", "--svg", "why.svg"],
    ] {
        let output = support::run(here, args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let read = |name: &str| std::fs::read_to_string(here.join(name)).unwrap();
    assert!(read("why.svg").starts_with("<svg xmlns="));
    for drawn in [read("why.svg"), read("why.html")] {
        assert!(drawn.contains("<title>parse: ") && drawn.contains("<title>flush: "));
    }
    assert!(read("why.html").contains("libwork.so.1</span> is called from"));
}
