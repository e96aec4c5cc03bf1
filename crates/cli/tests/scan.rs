//! `scan` from outside on a program that this test compiles: what the system's C compiler and its
//! debug information must give.

mod support;

use std::fs;
use std::process::Command;

/// Two halves are written, the whole is read back: volatile, so that no compiler mends it.
const RING: &str = "
#include <stdint.h>
struct pair { uint32_t lo, hi; };
int main(void) {
    volatile struct pair ring[16];
    uint64_t x = 1;
    for (long i = 0; i < 1000; i++) {
        ring[i & 15].lo = (uint32_t)x;
        ring[i & 15].hi = (uint32_t)(x >> 32);
        x = *(volatile uint64_t *)&ring[i & 15] + 1;
    }
    return (int)x;
}";

fn scan(flags: &[&str]) -> serde_json::Value {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("ring.c"), RING).unwrap();
    let compiled = Command::new("cc")
        .current_dir(here)
        .args(["-O2", "-g", "-o", "ring", "ring.c"])
        .args(flags)
        .status();
    assert!(compiled.unwrap().success());
    let output = support::run(here, &["scan", "--json", "-", "ring"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result = support::result_in(&output.stdout);
    let findings = result[0]["findings"].as_array().unwrap();
    let in_main =
        |f: &&serde_json::Value| f["site"]["variable"] == "ring" && f["rule"] == "store-forward";
    findings.iter().find(in_main).unwrap_or_else(|| panic!("{findings:#?}")).clone()
}

#[test]
fn a_load_of_two_stores_is_found_with_its_line_and_its_variable() {
    for flags in [&["-fPIE", "-pie"][..], &["-no-pie"], &["-static"]] {
        let finding = scan(flags);
        assert_eq!(finding["certainty"], "definite", "{flags:?}");
        assert_eq!(finding["site"]["access_bytes"], 8);
        assert_eq!(finding["site"]["source"][0]["line"], 10);
        let stores = finding["others"].as_array().unwrap();
        assert_eq!(stores.len(), 2, "{stores:#?}");
        assert!(stores.iter().all(|s| s["variable"] == "ring"));
    }
}

/// A structure of 168 bytes that is cleared and copied, without vectors: what a kernel is full of.
const STRUCTURES: &str = "
#include <string.h>
struct regs { long words[21]; };
__attribute__((noinline)) void copy(struct regs *to, const struct regs *from) { *to = *from; }
__attribute__((noinline)) void clear(struct regs *to) { memset(to, 0, sizeof *to); }
int main(void) { struct regs a, b; clear(&a); copy(&b, &a); return (int)b.words[3]; }";

fn structures() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("src")).unwrap();
    fs::write(folder.path().join("src/s.c"), STRUCTURES).unwrap();
    let compiled = Command::new("cc")
        .current_dir(folder.path())
        .args(["-O2", "-g", "-mno-sse", "-mtune=generic", "-o", "s", "src/s.c"])
        .status();
    assert!(compiled.unwrap().success());
    folder
}

#[test]
fn a_baseline_hides_what_is_known_and_the_gate_sees_only_the_rest() {
    let folder = structures();
    let code = |args: &[&str]| {
        let args = [&["scan", "--rule", "rep-string", "-f", "c"], args, &["s"]].concat();
        support::run(folder.path(), &args).status.code()
    };
    assert_eq!(code(&["--fail-on", "rep-string"]), Some(1));
    assert_eq!(code(&["--fail-on", "score=100000"]), Some(0));
    assert_eq!(code(&["--write-baseline", "known.json"]), Some(0));
    assert_eq!(code(&["--baseline", "known.json", "--gate"]), Some(0));
    support::refused(folder.path(), &["scan", "--baseline", "no.json", "s"], &["no.json"]);
    support::refused(folder.path(), &["scan", "--fail-on", "x", "s"], &["score=N"]);
    support::refused(folder.path(), &["scan", "--rule", "x", "s"], &["`x`", "rep-string"]);
}

#[test]
fn sarif_names_source_lines_relative_to_the_folder() {
    let folder = structures();
    let args = ["scan", "-q", "--rule", "rep-string", "--sarif", "o.sarif", "-f", "c", "s"];
    assert!(support::run(folder.path(), &args).status.success());
    let text = fs::read_to_string(folder.path().join("o.sarif")).unwrap();
    let log: serde_json::Value = serde_json::from_str(&text).unwrap();
    let results = log["runs"][0]["results"].as_array().unwrap();
    let uris: Vec<_> = results
        .iter()
        .map(|r| &r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])
        .collect();
    assert!(uris.iter().any(|uri| *uri == "src/s.c"), "{uris:?}");
    assert!(results.iter().any(|r| r["message"]["text"].as_str().unwrap().contains("168 bytes")));
}

#[test]
fn a_profile_is_read_or_refused() {
    let folder = structures();
    let script = "s 1 2.5: 900 cycles: 401000 clear+0x0 (/elsewhere/s)\n\
                  s 1 2.5: 100 cycles: 401000 copy+0x0 (/elsewhere/s)\n";
    fs::write(folder.path().join("p.txt"), script).unwrap();
    let args = ["scan", "--json", "-", "--profile-data", "p.txt", "--rule", "rep-string", "s"];
    let output = support::run(folder.path(), &args);
    let first = &support::result_in(&output.stdout)[0]["findings"][0];
    assert_eq!(first["site"]["function"], "clear");
    assert_eq!(first["heat_share"], 0.9);
    fs::write(folder.path().join("p.txt"), "nothing\n").unwrap();
    support::refused(folder.path(), &args, &["p.txt", "perf script"]);
}

/// Two builds of one file: with and without a call that the compiler may inline, and another size.
const OLD: &str = "
#include <string.h>
struct regs { long words[21]; };
static __attribute__((noinline)) void clear(struct regs *to) { memset(to, 0, sizeof *to); }
__attribute__((noinline)) void both(struct regs *a, struct regs *b) { clear(a); clear(b); }
int main(void) { struct regs a, b; both(&a, &b); return (int)(a.words[3] + b.words[4]); }";

fn two_builds() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let build = |name: &str, source: &str, flags: &[&str]| {
        fs::write(here.join(format!("{name}.c")), source).unwrap();
        let (source, object) = (format!("{name}.c"), format!("{name}.o"));
        for target in [
            &["-c", "-o", &object][..],
            &["-o", name],
            &["-shared", "-fPIC", "-o", &format!("lib{name}.so")],
        ] {
            let compiled = Command::new("cc")
                .current_dir(here)
                .args(["-O2", "-g", "-mno-sse", "-mtune=generic"])
                .args(flags)
                .args(target)
                .arg(&source)
                .status();
            assert!(compiled.unwrap().success());
        }
        let archive = format!("lib{name}.a");
        assert!(
            Command::new("ar")
                .current_dir(here)
                .args(["rcs", &archive, &object])
                .status()
                .unwrap()
                .success()
        );
    };
    build("old", OLD, &[]);
    build("new", &OLD.replace("noinline)) void clear", "always_inline)) inline void clear"), &[]);
    folder
}

#[test]
fn two_builds_of_anything_are_compared() {
    let folder = two_builds();
    let here = folder.path();
    for (old, new) in
        [("old", "new"), ("old.o", "new.o"), ("libold.so", "libnew.so"), ("libold.a", "libnew.a")]
    {
        let args = ["scan", "--diff", "--rule", "rep-string", "--json", "-", old, new];
        let output = support::run(here, &args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let size = &support::result_in(&output.stdout)["size"];
        let functions = size["functions"].as_array().unwrap();
        let both = functions.iter().find(|f| f["name"] == "both").unwrap();
        assert_eq!(both["growth"], "grew", "{old}: {both:#}");
        assert_eq!(both["why"]["inlined"], serde_json::json!(["clear"]), "{old}");
        assert_eq!(both["why"]["rep_added"][0]["size_bytes"], 168, "{old}");
        let clear = functions.iter().find(|f| f["name"] == "clear").unwrap();
        assert_eq!(clear["growth"], "gone", "{old}");
        let screen = support::run(here, &["scan", "--diff", old, new]);
        let screen = String::from_utf8_lossy(&screen.stdout).into_owned();
        assert!(screen.contains("inlined clear") && screen.contains(".text"), "{screen}");
    }
}

#[test]
fn a_difference_fails_on_what_is_new_only() {
    let folder = two_builds();
    let here = folder.path();
    let code = |args: &[&str]| {
        let args = [&["scan", "--diff", "--rule", "rep-string"], args].concat();
        support::run(here, &args).status.code()
    };
    assert_eq!(code(&["--gate", "old", "old"]), Some(0), "what was there before is no news");
    assert_eq!(code(&["old", "new"]), Some(0));
    assert_eq!(code(&["--fail-on", "rep-string", "old", "new"]), Some(1));
    assert_eq!(code(&["--fail-on", "score=100000", "old", "new"]), Some(0));
    let known = ["scan", "--rule", "rep-string", "--write-baseline", "known.json", "new"];
    assert!(support::run(here, &known).status.success());
    assert_eq!(code(&["--gate", "--baseline", "known.json", "old", "new"]), Some(0));
    assert_eq!(code(&["-q", "--sarif", "o.sarif", "old", "new"]), Some(0));
    let log = fs::read_to_string(here.join("o.sarif")).unwrap();
    let log: serde_json::Value = serde_json::from_str(&log).unwrap();
    let results = log["runs"][0]["results"].as_array().unwrap();
    let both = |r: &serde_json::Value| r.to_string().contains("both");
    assert!(!results.is_empty() && results.iter().all(both), "{results:#?}");
    support::refused(here, &["scan", "--diff", "old"], &["two files"]);
    support::refused(here, &["scan", "--diff", "--sites", "old", "new"], &["--sites"]);
    support::refused(here, &["scan", "--diff", "old", "none"], &["none"]);
    support::refused(
        here,
        &["scan", "--diff", "-f", "no_such", "old", "new"],
        &["neither", "no_such"],
    );
}

/// Bytes that are no instructions, among the code and in no function.
const DATA_IN_CODE: &str = "
__asm__(\".text; .type f, @function; f: ret; .size f, . - f; .skip 65536, 0x06\");
int main(void) { return 0; }";

#[test]
fn a_gate_says_that_it_did_not_see_enough() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("d.c"), DATA_IN_CODE).unwrap();
    let compiled = Command::new("cc").current_dir(here).args(["-O2", "-o", "d", "d.c"]).status();
    assert!(compiled.unwrap().success());
    let plain = support::run(here, &["scan", "d"]);
    assert_eq!(plain.status.code(), Some(0));
    let screen = String::from_utf8_lossy(&plain.stdout).into_owned();
    assert!(screen.contains("% of the executable"), "{screen}");
    assert!(screen.starts_with("nothing was run"), "{screen}");
    let gate = support::run(here, &["scan", "-q", "--gate", "d"]);
    assert_eq!(gate.status.code(), Some(3));
    let said = String::from_utf8_lossy(&gate.stderr).into_owned();
    assert!(said.contains("not decided") && said.contains("95 %"), "{said}");
}

#[test]
fn a_stripped_program_without_unwind_tables_is_scanned_all_the_same() {
    let folder = structures();
    let here = folder.path();
    let compiled = Command::new("cc")
        .current_dir(here)
        .args(["-O2", "-mno-sse", "-mtune=generic", "-fno-asynchronous-unwind-tables", "-static"])
        .args(["-nostdlib", "-fno-stack-protector", "-Wl,-e,main", "-s", "-o", "bare", "src/s.c"])
        .status();
    assert!(compiled.unwrap().success());
    let output = support::run(here, &["scan", "--json", "-", "bare"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result = &support::result_in(&output.stdout)[0];
    assert!(result["coverage"]["unlisted_functions"].as_u64().unwrap() >= 3, "{result:#}");
    let findings = result["findings"].as_array().unwrap();
    assert!(findings.iter().any(|f| f["rule"] == "rep-string"), "{findings:#?}");
}

#[test]
fn a_small_program_says_that_its_library_holds_its_code() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let body: String =
        (0..400).map(|n| format!("int f{n}(int x) {{ return x * {n} + 1; }}\n")).collect();
    fs::write(here.join("big.c"), body).unwrap();
    fs::write(here.join("small.c"), "int f3(int); int main(void) { return f3(1); }").unwrap();
    let cc = |args: &[&str]| {
        let status = Command::new("cc").current_dir(here).args(args).status();
        assert!(status.unwrap().success());
    };
    cc(&["-shared", "-fPIC", "-o", "libbig.so", "big.c"]);
    cc(&["-o", "small", "small.c", "-L.", "-lbig", "-Wl,-rpath,$ORIGIN"]);
    let screen = support::run(here, &["scan", "small"]);
    let screen = String::from_utf8_lossy(&screen.stdout).into_owned();
    assert!(screen.contains("most of its code is in libraries: libbig.so"), "{screen}");
    let of_library = support::run(here, &["scan", "libbig.so"]);
    assert!(!String::from_utf8_lossy(&of_library.stdout).contains("in libraries"));
}

#[test]
fn a_run_tells_what_was_blocked_in_it_and_its_share() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("ring.c"), RING.replace("i < 1000", "i < 4000000")).unwrap();
    let mut compiler = Command::new("cc");
    let compiled = compiler.current_dir(here).args(["-O2", "-g", "-o", "ring", "ring.c"]);
    assert!(compiled.status().unwrap().success());
    let args = ["scan", "--run", "--no-progress", "--json", "run.json", "--", "./ring"];
    let output = support::run(here, &args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let screen = String::from_utf8_lossy(&output.stdout).into_owned();
    let document = fs::read_to_string(here.join("run.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["kind"], "scan-run");
    let result = &document["result"];
    let sites = result["sites"].as_array().unwrap();
    let in_main = |site: &&serde_json::Value| {
        site["event"] == "blocked" && site["site"]["function"] == "main"
    };
    let site = sites.iter().find(in_main).unwrap_or_else(|| panic!("{result:#}"));
    assert_eq!(site["finding"]["rule"], "store-forward");
    assert_eq!(site["finding"]["grade"], "counted");
    assert_eq!(site["stores"].as_array().unwrap().len(), 2);
    assert!(site["events"].as_u64() > Some(1000), "{site:#}");
    for site in sites {
        assert!(site["share"]["value"].as_f64().unwrap() >= 0.5, "{site:#}");
        assert!(site["executions"].as_u64() > Some(0), "{site:#}");
    }
    let words = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("blocked in") && words.contains("of the run in its block"), "{screen}");
    let gate =
        ["scan", "--run", "-q", "--no-progress", "--fail-on", "store-forward", "--", "./ring"];
    assert_eq!(support::run(here, &gate).status.code(), Some(1));
    support::refused(here, &["scan", "--run"], &["COMMAND"]);
    support::refused(here, &["scan", "ring", "--", "./ring"], &["--run"]);
    support::refused(here, &["scan", "--run", "--", "./no-such"], &["no-such"]);
}
