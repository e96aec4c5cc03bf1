//! `stallscope explain` from outside, on real programs: what it must not say. No claim about speed.

mod support;

use std::path::Path;
use std::process::Command;

fn shell(folder: &Path, script: &str) {
    let status = Command::new("sh").arg("-ec").arg(script).current_dir(folder).status().unwrap();
    assert!(status.success(), "{script}");
}

/// The same program twice, over a library that was built with optimisation and without.
const OVER_TWO_LIBRARIES: &str = r"
cat > work.c <<'END'
unsigned work(unsigned n) {
    unsigned s = 1;
    for (unsigned i = 0; i < n; i++) s += (i * 31) ^ (i >> 3);
    return s;
}
END
cat > main.c <<'END'
unsigned work(unsigned);
int main(void) { return work(20000000) == 7; }
END
mkdir before after
gcc -O2 -shared -fPIC work.c -Wl,-soname,libwork.so.1 -o before/libwork.so.1
gcc -O0 -shared -fPIC work.c -Wl,-soname,libwork.so.1 -o after/libwork.so.1
gcc -O1 main.c -Lbefore -l:libwork.so.1 -Wl,-rpath,'$ORIGIN' -o before/main
cp before/main after/main
";

#[test]
fn a_library_that_differs_is_named_and_placement_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    shell(here, OVER_TWO_LIBRARIES);
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
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(here.join("why.json")).unwrap()).unwrap();
    let arms = &json["result"]["comparison"]["arms"];
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

/// A library function that is called for 70 and for 30 parts of its work, and that is built without optimisation in AFTER.
const CALLED_FROM_TWO_PLACES: &str = r"
cat > work.c <<'END'
unsigned work(unsigned n) {
    unsigned s = 1;
    for (unsigned i = 0; i < n; i++) s += (i * 31) ^ (i >> 3);
    return s;
}
END
cat > main.c <<'END'
unsigned work(unsigned);
__attribute__((noinline)) static unsigned parse(unsigned n) { return work(7 * n) + 1; }
__attribute__((noinline)) static unsigned flush(unsigned n) { return work(3 * n) + 2; }
int main(void) {
    unsigned s = 0;
    for (unsigned i = 0; i < 4000; i++) s += parse(700 + i % 3) ^ flush(700 + i % 3);
    return s == 7;
}
END
mkdir before after
gcc -O1 -shared -fPIC work.c -Wl,-soname,libwork.so.1 -o before/libwork.so.1
gcc -O0 -shared -fPIC work.c -Wl,-soname,libwork.so.1 -o after/libwork.so.1
gcc -O2 main.c -Lbefore -l:libwork.so.1 -Wl,-rpath,'$ORIGIN' -o before/main
cp before/main after/main
";

#[test]
#[cfg(target_arch = "x86_64")]
fn both_callers_of_a_library_are_told_with_their_part() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    shell(here, CALLED_FROM_TWO_PLACES);
    let args =
        ["explain", "--no-cure", "--pairs", "6", "--json", "why.json", "before/main", "after/main"];
    let output = support::run(here, &args);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("libwork.so.1 is called from: parse "), "{text}");
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(here.join("why.json")).unwrap()).unwrap();
    let stacks = &json["result"]["stacks"];
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
