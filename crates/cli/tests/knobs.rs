//! The knobs of `sweep` on the real toolchains: every one of them really moves code (or the stack), and
//! moves nothing else. No claim about speed.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use stallscope::code::Image;
use support::{result_in, stallscope};

/// Functions of every program here: what moves.
const FUNCTIONS: usize = 12;

fn c_source() -> String {
    let functions: String = (0..FUNCTIONS)
        .map(|i| {
            format!(
                "__attribute__((noinline)) int fun{i}(int x) {{ for (int i = 0; i < x; i++) \
                 x ^= i * {}; return x * {}; }}\n",
                i + 3,
                i + 5
            )
        })
        .collect();
    let calls: String = (0..FUNCTIONS).map(|i| format!("x = fun{i}(x & 15);")).collect();
    format!(
        "#include <stdio.h>\n{functions}int main(void) {{ int x = 1; {calls} printf(\"%d\\n\", x); }}\n"
    )
}

fn rust_source() -> String {
    let functions: String = (0..FUNCTIONS)
        .map(|i| {
            format!(
                "#[inline(never)] #[unsafe(no_mangle)] fn fun{i}(x: u32) -> u32 {{ std::hint::black_box(x) * {} }}\n",
                i + 3
            )
        })
        .collect();
    let calls: String = (0..FUNCTIONS).map(|i| format!("x = fun{i}(x & 15);")).collect();
    format!("{functions}fn main() {{ let mut x = 1; {calls} println!(\"{{x}}\"); }}\n")
}

fn go_source() -> String {
    let functions: String = (0..FUNCTIONS)
        .map(|i| format!("//go:noinline\nfunc fun{i}(x int) int {{ return x * {} }}\n", i + 3))
        .collect();
    let calls: String = (0..FUNCTIONS).map(|i| format!("x = fun{i}(x & 15); ")).collect();
    format!("package main\n{functions}func main() {{ x := 1; {calls}; println(x) }}\n")
}

/// Whether the tools are here; says loudly that a test is skipped, and under CI it must not be.
#[expect(clippy::print_stderr, reason = "a skipped test must be heard")]
fn have(tools: &[&str]) -> bool {
    let missing = tools.iter().find(|tool| {
        let version = if **tool == "go" { "version" } else { "--version" };
        Command::new(tool).arg(version).output().is_err()
    });
    if let Some(tool) = missing {
        assert!(
            std::env::var_os("CI").is_none(),
            "{tool} is not installed: run scripts/setup-test"
        );
        eprintln!("SKIPPED: {tool} is not installed: scripts/setup-test installs it");
    }
    missing.is_none()
}

/// One build of a sweep: variant, placement, file.
struct Built {
    variant: u64,
    layout: u64,
    program: String,
}

/// Sweeps and reads back what was built, and the whole result.
fn sweep(here: &Path, args: &[&str]) -> (Vec<Built>, serde_json::Value) {
    let mut fixed = vec!["sweep", "--quiet", "--json", "r.json", "--keep-disturbed"];
    if !args.contains(&"--runs") {
        fixed.extend(["--runs", "2"]);
    }
    // Go's own cache of builds, wherever ours is.
    let go_cache = Command::new("go").args(["env", "GOCACHE"]).output();
    let mut command = stallscope(here, &[&fixed[..], args].concat());
    command.env("XDG_CACHE_HOME", here.join(".cache")).env("GO111MODULE", "off");
    if let Ok(output) = go_cache {
        command.env("GOCACHE", String::from_utf8_lossy(&output.stdout).trim());
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result = result_in(&fs::read(here.join("r.json")).unwrap());
    let built = result["cells"].as_array().unwrap().iter().map(|cell| Built {
        variant: cell["variant"].as_u64().unwrap(),
        layout: cell["layout"].as_u64().unwrap(),
        program: cell["program"].as_str().unwrap_or_default().to_owned(),
    });
    (built.collect(), result)
}

/// Start and size of each of our functions, by number.
fn places(program: &str) -> Vec<(u64, u64)> {
    let image = Image::open(Path::new(program)).unwrap();
    let place = |i: usize| {
        let names = [format!("fun{i}"), format!("main.fun{i}")];
        let function = image.functions().iter().find(|f| names.contains(&f.symbol));
        let function = function.unwrap_or_else(|| panic!("{program} has no fun{i}"));
        (function.start.0, function.size_bytes)
    };
    (0..FUNCTIONS).map(place).collect()
}

/// The functions by address: who is whose neighbour.
fn order(program: &str) -> Vec<usize> {
    let places = places(program);
    let mut order: Vec<usize> = (0..FUNCTIONS).collect();
    order.sort_by_key(|i| places[*i].0);
    order
}

/// Four placements in four orders, none that of the build as it comes, all of the same code.
fn shuffles(source: (&str, &str), knob: &str, build: &str) {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join(source.0), source.1).unwrap();
    let args = [
        "--layouts",
        "4",
        "--knob",
        knob,
        "--source",
        source.0,
        "--build",
        build,
        "--run",
        "{out}",
    ];
    let (built, result) = sweep(here, &args);
    assert_eq!(built.len(), 5, "{knob}: {result}");
    let orders: BTreeSet<Vec<usize>> = built.iter().map(|b| order(&b.program)).collect();
    assert_eq!(orders.len(), 5, "{knob} does not move functions: {orders:?}");
    let sizes = |b: &Built| -> Vec<u64> { places(&b.program).iter().map(|p| p.1).collect() };
    assert!(built.iter().all(|b| sizes(b) == sizes(&built[0])), "{knob} changes the code");
    let again = sweep(here, &args).0;
    let same = |(a, b): (&Built, &Built)| a.program == b.program && a.layout == b.layout;
    assert!(built.iter().zip(&again).all(same), "{knob}: another placement for the same seed");
}

#[test]
fn gnu_ld_by_its_script() {
    shuffles(("x.c", &c_source()), "gnu-ld", "cc -O1 {layout} -o {out} x.c");
}

#[test]
fn lld_by_its_shuffle() {
    if have(&["ld.lld"]) {
        shuffles(("x.c", &c_source()), "lld", "cc -O1 {layout} -o {out} x.c");
    }
}

/// Five placements in one order, that of the build as it comes, with other distances.
#[test]
fn lld_by_its_padding() {
    if !have(&["ld.lld-22"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("x.c"), c_source()).unwrap();
    // GCC takes a linker by its plain name out of this folder.
    fs::create_dir(here.join("tools")).unwrap();
    std::os::unix::fs::symlink("/usr/bin/ld.lld-22", here.join("tools/ld.lld")).unwrap();
    let build = "cc -B tools -O1 {layout} -o {out} x.c";
    let args = ["--layouts", "4", "--knob", "lld-padding", "--source", "x.c", "--run", "{out}"];
    let (built, _) = sweep(here, &[&args[..], &["--build", build]].concat());
    assert_eq!(built.len(), 5);
    assert!(built.iter().all(|b| order(&b.program) == order(&built[0].program)), "order changes");
    // It pads the segment, and few of the sections.
    let starts = |b: &Built| -> Vec<u64> { places(&b.program).iter().map(|p| p.0).collect() };
    let all: BTreeSet<Vec<u64>> = built.iter().map(starts).collect();
    assert_eq!(all.len(), 5, "the padding does not move functions: {all:?}");
}

#[test]
fn mold_by_its_shuffle() {
    if have(&["mold"]) {
        shuffles(("x.c", &c_source()), "mold", "cc -O1 {layout} -o {out} x.c");
    }
}

#[test]
fn rust_by_way_of_lld() {
    if have(&["ld.lld", "rustc"]) {
        let build = "rustc -C opt-level=1 {layout} -o {out} x.rs";
        shuffles(("x.rs", &rust_source()), "rust", build);
    }
}

#[test]
fn go_by_its_linker() {
    if have(&["go"]) {
        shuffles(("x.go", &go_source()), "go", "go build {layout} -o {out} x.go");
    }
}

#[test]
fn flags_reach_a_build_that_names_none_through_its_variables() {
    // `make` hands CFLAGS and LDFLAGS on, as most builds do.
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("x.c"), c_source()).unwrap();
    let args = [
        "--layouts",
        "3",
        "--source",
        "x.c",
        "--run",
        "{out}",
        "--build",
        "cc -O1 $CFLAGS -c -o {out}.o x.c && cc {out}.o $LDFLAGS -o {out}",
    ];
    let (built, result) = sweep(here, &args);
    assert_eq!(result["settings"]["knob"], "gnu-ld");
    let orders: BTreeSet<Vec<usize>> = built.iter().map(|b| order(&b.program)).collect();
    assert_eq!(orders.len(), 4);
}

/// Whether every function of the variant starts at a multiple of `bytes`.
fn aligned(built: &[Built], variant: u64, bytes: u64) -> bool {
    let program = &built.iter().find(|b| b.variant == variant).unwrap().program;
    places(program).iter().all(|(start, _)| start % bytes == 0)
}

#[test]
fn functions_are_aligned_as_asked_and_sixteen_bytes_are_warned_of_where_they_hurt() {
    let mut cases = vec![("x.c", c_source(), "gnu-ld", "cc -O1 {layout} -o {out} x.c")];
    if have(&["go"]) {
        cases.push(("x.go", go_source(), "go", "go build {layout} -o {out} x.go"));
    }
    for (name, source, knob, build) in cases {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        fs::write(here.join(name), source).unwrap();
        let args = [
            "--align",
            "16,64,128",
            "--knob",
            knob,
            "--source",
            name,
            "--build",
            build,
            "--run",
            "{out}",
        ];
        let (built, result) = sweep(here, &args);
        assert!(aligned(&built, 0, 16) && aligned(&built, 1, 64), "{knob}");
        assert!(aligned(&built, 2, 128) && !aligned(&built, 0, 128), "{knob}");
        let notes = result["notes"].as_array().unwrap();
        let warned = notes.iter().any(|n| n["id"] == "jump-erratum");
        assert_eq!(warned, stallscope::machine::Machine::detect().jcc_erratum);
    }
}

#[test]
fn loops_are_aligned_as_asked() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    fs::write(here.join("x.c"), c_source()).unwrap();
    let build = "cc -O2 -falign-loops={loops} -o {out} x.c";
    let args = ["-L", "loops", "1,64", "--source", "x.c", "--build", build, "--run", "{out}"];
    let (built, _) = sweep(here, &args);
    let sizes = |b: &Built| -> u64 { places(&b.program).iter().map(|p| p.1).sum() };
    assert!(sizes(&built[1]) > sizes(&built[0]), "no padding before any loop");
}

#[test]
fn the_environment_moves_the_stack_and_nothing_is_built() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let print = "sh -c 'echo size 1${#STALLSCOPE_PADDING}'";
    let args = ["--knob", "env", "--layouts", "4", "--metric", "regex:size (.*)", "--run", print];
    let (built, result) = sweep(here, &args);
    assert!(built.iter().all(|b| b.program.is_empty()));
    let mut sizes: Vec<BTreeSet<String>> = vec![BTreeSet::new(); 5];
    for run in result["runs"].as_array().unwrap() {
        sizes[run["layout"].as_u64().unwrap() as usize].insert(run["printed"].to_string());
    }
    // One size for each placement in all of its runs, and another for each other.
    assert!(sizes.iter().all(|s| s.len() == 1), "{sizes:?}");
    assert_eq!(sizes.iter().flatten().collect::<BTreeSet<_>>().len(), 5, "{sizes:?}");
    assert!(result["notes"].as_array().unwrap().iter().any(|n| n["id"] == "stack-only"));
}

/// Every run of a placement has its stack at the same address, and every other placement has another.
#[test]
fn a_placement_of_the_stack_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let source =
        "#include <stdio.h>\nint main(void) { int x; printf(\"at %lu\\n\", (unsigned long)&x); }\n";
    fs::write(here.join("x.c"), source).unwrap();
    let built = Command::new("cc").args(["-O1", "-o", "x", "x.c"]).current_dir(here).status();
    assert!(built.unwrap().success());
    let args =
        ["--knob", "env", "--layouts", "4", "--metric", "regex:at (.*)", "--run", "./x", "--runs"];
    let (_, result) = sweep(here, &[&args[..], &["4"]].concat());
    let refused = result["notes"].as_array().unwrap().iter().any(|n| n["id"] == "random-addresses");
    let mut stacks: Vec<BTreeSet<String>> = vec![BTreeSet::new(); 5];
    for run in result["runs"].as_array().unwrap() {
        stacks[run["layout"].as_u64().unwrap() as usize].insert(run["printed"].to_string());
    }
    let fixed = stacks.iter().all(|s| s.len() == 1);
    assert_eq!(fixed, !refused, "{stacks:?}");
    assert!(refused || stacks.iter().flatten().collect::<BTreeSet<_>>().len() == 5, "{stacks:?}");
}
