//! What `scan` reads, from outside: object files, archives, stripped Go programs, and the AArch64
//! build of the first story's decoder.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use stallscope::code::fixture;

/// Two halves are written, the whole is read back.
const RING: &str = "
typedef unsigned long u64;
typedef unsigned u32;
u64 ring(u64 x, long n) {
    volatile u32 at[32];
    for (long i = 0; i < n; i++) {
        at[2 * (i & 15)] = (u32)x;
        at[2 * (i & 15) + 1] = (u32)(x >> 32);
        x = *(volatile u64 *)&at[2 * (i & 15)] + 1;
    }
    return x;
}
int other;
int add(int n) { other += n; return other; }";

/// Runs a tool of the tests; false, loudly, where it is missing (under CI it must not be).
#[expect(clippy::print_stderr, reason = "a skipped test must be heard")]
fn tool(here: &Path, program: &str, args: &[&str]) -> bool {
    match Command::new(program).current_dir(here).args(args).env("GOFLAGS", "-mod=mod").output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            true
        }
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "{program}: {error} (scripts/setup-test)");
            eprintln!("SKIPPED: {program} is not installed: scripts/setup-test installs it");
            false
        }
    }
}

fn result(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    support::result_in(&output.stdout)
}

fn screen(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn an_object_file_and_an_archive_of_it_have_the_finding_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("ring.c"), RING).unwrap();
    fs::write(here.join("none.c"), "int none(int n) { return n + 1; }").unwrap();
    assert!(tool(here, "cc", &["-O2", "-g", "-ffunction-sections", "-c", "ring.c", "none.c"]));
    assert!(tool(here, "ar", &["rcs", "libring.a", "none.o", "ring.o"]));
    for (file, program) in [("ring.o", "ring.o"), ("libring.a", "libring.a(ring.o)")] {
        let reports =
            result(&support::run(here, &["scan", "--rule", "store-forward", "--json", "-", file]));
        assert_eq!(reports.as_array().unwrap().len(), 1, "{reports:#}");
        assert_eq!(reports[0]["program"], program);
        let site = &reports[0]["findings"][0]["site"];
        assert_eq!(site["function"], "ring");
        assert_eq!(site["source"][0]["line"], 9, "{reports:#}");
    }
    let shown = screen(&support::run(here, &["scan", "libring.a"]));
    assert!(shown.contains("2 object files read"), "{shown}");
    let output = support::run(here, &["explain", "libring.a", "libring.a"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_stripped_go_program_keeps_its_names() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let source = "package main\n\nimport \"os\"\n\n//go:noinline\nfunc fill(n int) (s int) {\n\
                  \tfor i := 0; i < n; i++ {\n\t\ts += i * n\n\t}\n\treturn\n}\n\n\
                  func main() { os.Exit(fill(len(os.Args)) & 1) }\n";
    fs::write(here.join("main.go"), source).unwrap();
    for flags in ["-buildmode=exe", "-buildmode=pie"] {
        if !tool(here, "go", &["build", flags, "-ldflags=-s -w", "-o", "main", "main.go"]) {
            return;
        }
        let reports =
            result(&support::run(here, &["scan", "--json", "-", "-f", "main.fill", "main"]));
        assert_eq!(reports[0]["function_source"], "go_table", "{flags}");
        assert_eq!(reports[0]["functions"], 1, "{flags}");
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test must be heard")]
fn only_clang_16_merges_the_decoders_loads_for_aarch64_too() {
    let build =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases/upstream-index-decoder/build");
    let folder = tempfile::tempdir().unwrap();
    for version in [15, 16, 19] {
        let object = build.join(format!("decoder-aarch64-clang-{version}.o"));
        let Ok(object) = object.canonicalize() else {
            assert!(std::env::var_os("CI").is_none(), "not built: run `make cases`");
            eprintln!("SKIPPED: {} is not built: run `make cases`", object.display());
            return;
        };
        let object = object.to_str().unwrap();
        let decoder = "meshopt_decodeIndexBuffer";
        let scan = |more: &[&str]| {
            let args = [&["scan", "--json", "-", "-f", decoder, object], more].concat();
            result(&support::run(folder.path(), &args))[0]["findings"].as_array().unwrap().clone()
        };
        let merged = |finding: &&serde_json::Value| {
            finding["site"]["text"].as_str().is_some_and(|text| text.starts_with("ldr d"))
        };
        let found = scan(&[]);
        assert_eq!(found.iter().filter(merged).count(), usize::from(version == 16), "{found:#?}");
        // A core that puts the bytes of all stores together has nothing to wait for.
        assert!(scan(&["--as", "apple-firestorm"]).is_empty());
        let shown = screen(&support::run(folder.path(), &["scan", object]));
        assert!(shown.contains("Ampere Skylark") && shown.contains("--as"), "{shown}");
    }
}

#[test]
fn absurd_files_get_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let sparse = fs::File::create(here.join("sparse")).unwrap();
    sparse.set_len(4 << 30).unwrap();
    fs::write(here.join("empty"), b"").unwrap();
    fs::write(here.join("archive"), b"!<arch>\ngarbage").unwrap();
    let whole = fs::read(std::env::current_exe().unwrap()).unwrap();
    fs::write(here.join("half"), &whole[..whole.len() / 2]).unwrap();
    // A section table with sizes from another world.
    let mut absurd = whole;
    let table = u64::from_le_bytes(absurd[0x28..0x30].try_into().unwrap()) as usize;
    for section in 1..8 {
        let at = table + 64 * section + 0x20;
        absurd[at..at + 8].copy_from_slice(&(u64::MAX / 2).to_le_bytes());
    }
    fs::write(here.join("absurd"), absurd).unwrap();
    // A program whose code goes on for gigabytes that the file has, all of them holes.
    let mut endless = fixture::program(&[("main", &[0xc3])]);
    let table = u64::from_le_bytes(endless[0x28..0x30].try_into().unwrap()) as usize;
    for at in [64 + 32, 64 + 40, table + 64 + 0x20] {
        endless[at..at + 8].copy_from_slice(&(3_u64 << 30).to_le_bytes());
    }
    fs::write(here.join("endless"), endless).unwrap();
    fs::File::options().write(true).open(here.join("endless")).unwrap().set_len(4 << 30).unwrap();
    for file in ["sparse", "empty", "archive", "half", "absurd", "endless"] {
        // With no more than a gigabyte of addresses.
        let program = support::stallscope(here, &[]).get_program().to_owned();
        let output = Command::new("sh")
            .current_dir(here)
            .args(["-c", "ulimit -v 1000000; exec \"$0\" scan \"$1\""])
            .arg(program)
            .arg(file)
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{file}: {message}");
        assert!(message.contains(file) && message.lines().count() <= 3, "{file}: {message}");
        assert!(output.stdout.is_empty());
        support::refused(here, &["scan", "--diff", file, "sparse"], &[file]);
    }
}

#[test]
fn overlapping_symbols_of_absurd_sizes_are_cut_where_the_next_begins() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let functions: [(&str, &[u8]); 3] = [("f", &[0x90, 0xc3]), ("g", &[0xc3]), ("h", &[0xc3])];
    let whole = fixture::program(&functions);
    let scan = |program: &[u8]| {
        fs::write(here.join("p"), program).unwrap();
        result(&support::run(here, &["scan", "--json", "-", "p"]))[0].clone()
    };
    let mut damaged = whole.clone();
    // The symbols: each 24 bytes, the size last; the table is the third section.
    let table = u64::from_le_bytes(damaged[0x28..0x30].try_into().unwrap()) as usize;
    let symbols = table + 2 * 64 + 0x18;
    let symbols = u64::from_le_bytes(damaged[symbols..symbols + 8].try_into().unwrap()) as usize;
    for (symbol, size) in [(1, u64::MAX), (2, 1 << 40), (3, 0)] {
        let at = symbols + 24 * symbol + 16;
        damaged[at..at + 8].copy_from_slice(&size.to_le_bytes());
    }
    assert_eq!(scan(&damaged)["functions"], 3);
    assert!(scan(&damaged)["code_bytes"].as_u64() < Some(64));
}
