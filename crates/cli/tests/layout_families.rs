//! `layout` on families of functions whose sets are known beforehand: K functions of four lines, at a
//! distance that puts them all into the same four sets (4096 bytes) or spreads them (5120, 4608).
//! What it reports must be what cachegrind counts.

mod support;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

const ROUNDS: u64 = 100;
const WAYS: u64 = 8;
const CACHE: &str = "32768,8,64";

/// Assembly without a library: the functions in sets 0 to 3, what calls them from set 32 on.
fn source(functions: u64, stride: u64) -> String {
    // Valgrind reads the symbols of programs that also have data to write.
    let mut text = String::from(".data\n.quad 1\n.text\n.balign 4096\n");
    for i in 0..functions {
        let _ = writeln!(
            text,
            ".org {}\n.type f{i},@function\nf{i}:\n.rept 63\n.byte 0x0f,0x1f,0x40,0x00\n.endr\nret\n\
             .size f{i},.-f{i}",
            i * stride
        );
    }
    // In front of the first function's page would be other sets for every stride; a page of its own.
    let _ = write!(
        text,
        ".balign 4096\n.org .+2048\n.globl _start\n.type _start,@function\n_start:\nmov ${ROUNDS}, %ebx\n1:\n"
    );
    for i in 0..functions {
        let _ = writeln!(text, "call f{i}");
    }
    text + "dec %ebx\njne 1b\nmov $60, %eax\nxor %edi, %edi\nsyscall\n.size _start,.-_start\n"
}

struct Family {
    misses: u64,
    overfull_sets: u64,
    /// (set, lines in use, misses) of sets that miss in every round.
    crowded: Vec<(u64, u64, u64)>,
    fighters: Vec<String>,
}

fn valgrind(folder: &Path, args: &[&str], program: &str) -> String {
    let output = Command::new("valgrind").current_dir(folder).args(args).arg(program).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

fn measure(folder: &Path, functions: u64, stride: u64) -> (Family, u64) {
    fs::write(folder.join("family.s"), source(functions, stride)).unwrap();
    let (program, counts) = (format!("./family-{stride}"), format!("counted-{stride}"));
    let built = Command::new("cc")
        .current_dir(folder)
        .args(["-nostdlib", "-static", "-o", &program, "family.s"])
        .status();
    assert!(built.unwrap().success());
    let cache = format!("--I1={CACHE}");
    let counted = ["--tool=callgrind", "--dump-instr=yes", "--cache-sim=yes", &cache];
    let out = format!("--callgrind-out-file={counts}");
    valgrind(folder, &[&counted[..], &[&out]].concat(), &program);
    let said = valgrind(
        folder,
        &["--tool=cachegrind", "--cache-sim=yes", &cache, "--cachegrind-out-file=/dev/null"],
        &program,
    );
    let reference = said.lines().find_map(|line| line.split_once("I1  misses:")).unwrap().1;
    let reference = reference.trim().replace(',', "").parse().unwrap();

    let args = ["layout", "--json", "-", "--l1i", CACHE, "--samples", &counts, &program];
    let output = support::run(folder, &args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let sets = &support::result_in(&output.stdout)["sets"];
    let rows = sets["sets"].as_array().unwrap();
    // A set without lines has no misses to speak of.
    let number = |row: &serde_json::Value, key: &str| row["before"][key].as_u64().unwrap_or(0);
    let crowded: Vec<&serde_json::Value> =
        rows.iter().filter(|r| number(r, "misses") > 2 * ROUNDS).collect();
    let fighters = crowded.iter().flat_map(|r| r["occupants_before"].as_array().unwrap());
    let mut fighters: Vec<String> =
        fighters.map(|o| o["function"].as_str().unwrap().to_owned()).collect();
    fighters.sort();
    fighters.dedup();
    let family = Family {
        misses: sets["heat"][0]["misses"].as_u64().unwrap(),
        overfull_sets: sets["heat"][0]["overfull_sets"].as_u64().unwrap(),
        crowded: crowded
            .iter()
            .map(|r| (r["set"].as_u64().unwrap(), number(r, "lines"), number(r, "misses")))
            .collect(),
        fighters,
    };
    (family, reference)
}

/// (functions, ns per round 5120 and 4096 bytes apart), as it was measured on a Cascade Lake.
const MEASURED: [(u64, f64, f64); 5] =
    [(8, 45.9, 46.9), (9, 52.3, 62.9), (12, 81.1, 107.2), (16, 103.7, 130.0), (24, 164.3, 216.8)];

/// Which effect `layout` names when the family at `after` bytes takes `slower` more of `round_ns` than
/// the one at `before`; both must have been counted.
fn named(folder: &Path, (before, after): (u64, u64), round_ns: f64, slower: f64) -> Option<String> {
    let counts = [before, after].map(|stride| format!("counted-{stride}"));
    let programs = [before, after].map(|stride| format!("./family-{stride}"));
    let measured = format!("{:.3}%", 100.0 * slower);
    let takes = format!("{}ns", round_ns * ROUNDS as f64);
    let output = support::run(
        folder,
        &[
            "layout",
            "--json",
            "-",
            "--l1i",
            CACHE,
            "--as",
            "cascade-lake",
            "--ghz",
            "3.07",
            "--measured",
            &measured,
            "--takes",
            &takes,
            "--samples",
            &counts[0],
            "--samples",
            &counts[1],
            &programs[0],
            &programs[1],
        ],
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    support::result_in(&output.stdout)["budget"]["named"].as_str().map(str::to_owned)
}

/// Who is slower, and whether the instruction cache can be why.
fn blamed_where_it_can_pay_only(folder: &Path, functions: u64) {
    let Some((_, apart, together)) = MEASURED.iter().find(|row| row.0 == functions) else { return };
    let slower = together / apart - 1.0;
    let wanted = (functions > WAYS).then(|| "code_misses".to_owned());
    let name = format!("{functions} functions");
    assert_eq!(named(folder, (5120, 4096), *apart, slower), wanted, "{name}: 4096 is slower");
    // The other way round the difference has the other sign, and so has the prediction.
    let faster = apart / together - 1.0;
    assert_eq!(named(folder, (4096, 5120), *together, faster), wanted, "{name}: 5120 is faster");
    // Nobody is slower by the instruction cache where it does not miss: up to 46 % were measured
    // between 4096 and 4608 at 8 functions, and that is something else.
    assert_eq!(named(folder, (5120, 4608), *apart, 0.46), None, "{name}: the control");
    assert_eq!(named(folder, (4608, 5120), *apart, 0.46), None, "{name}: the control");
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test must be heard")]
fn overfull_sets_fighters_and_misses_are_exact() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        assert!(
            std::env::var_os("CI").is_none(),
            "valgrind is not installed: run scripts/setup-test"
        );
        eprintln!("SKIPPED: valgrind is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for functions in [6, 8, 9, 12, 16, 24] {
        for stride in [4096, 5120, 4608] {
            let (found, reference) = measure(folder.path(), functions, stride);
            let name = format!("{functions} functions, {stride} bytes apart");
            assert_eq!(found.misses, reference, "{name}: cachegrind's total");
            if stride == 4096 && functions > WAYS {
                let crowded: Vec<_> = (0..4).map(|s| (s, functions, functions * ROUNDS)).collect();
                assert_eq!(found.crowded, crowded, "{name}");
                assert_eq!(found.overfull_sets, 4, "{name}");
                assert_eq!(found.fighters.len() as u64, functions, "{name}");
                assert!(found.fighters.iter().all(|f| f.starts_with('f')), "{name}");
            } else {
                // The same size, and where it does slow down, the instruction cache is not why.
                assert_eq!((found.overfull_sets, found.crowded), (0, vec![]), "{name}");
                assert!(found.misses < 5 * functions + 10, "{name}: {}", found.misses);
            }
        }
        blamed_where_it_can_pay_only(folder.path(), functions);
    }
}
