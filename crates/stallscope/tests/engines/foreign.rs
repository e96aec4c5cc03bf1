//! AArch64 programs on this machine, under the emulator.

use std::path::{Path, PathBuf};
use std::process::Command;

use stallscope::machine::{Design, Microarchitecture};
use stallscope::model::Capability;
use stallscope::run::child::Limits;
use stallscope::sim::Fan;
use stallscope::sim::store_buffer::{StoreBuffer, StoreBufferShape};
use stallscope::trace::engine::{Ended, Engine, Length, Start, Window, engine};

use crate::decoder::{Visits, triangles};
use crate::programs::{COMPILED, Program};
use crate::recorder::{function, launch, record, window};
use crate::truth::{self, ExpectedAddress};

const COMPILER: &str = "aarch64-linux-gnu-gcc";

/// The emulating engine, where it and the cross compiler are.
#[expect(clippy::print_stderr, reason = "a skipped test must be heard")]
fn emulating() -> Option<&'static dyn Engine> {
    let qemu = engine("qemu").expect("it is in the list");
    let missing = match qemu.available() {
        Capability::Absent { cause } => cause,
        Capability::Present => match Command::new(COMPILER).arg("--version").output() {
            Ok(_) => return Some(qemu),
            Err(cause) => format!("{COMPILER}: {cause} (scripts/setup-test)"),
        },
    };
    assert!(std::env::var_os("CI").is_none(), "{missing}");
    eprintln!("SKIPPED: AArch64 programs: {missing}");
    None
}

fn build(folder: &Path, name: &str, inputs: &[&Path], flags: &[&str]) -> PathBuf {
    let out = folder.join(name);
    let mut command = Command::new(COMPILER);
    command.args(["-g", "-O1", "-pthread", "-o"]).arg(&out).args(inputs).args(flags);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    out
}

#[test]
fn every_form_of_access_is_what_stands_beside_it() {
    let Some(qemu) = emulating() else { return };
    let folder = tempfile::tempdir().unwrap();
    let source = Program::named("aarch64", "aarch64.S").source_path();
    let path = build(folder.path(), "aarch64", &[&source], &["-static", "-z", "noexecstack"]);
    let (recording, steps) = record(qemu, &path, &window(&path, 0, 1)).unwrap();
    assert_eq!(recording.ended, Ended::Length);
    let (expected, symbols) = (truth::expected(&source), truth::symbols(&path));
    for (index, (step, expected)) in steps.iter().zip(&expected).enumerate() {
        let expected: Vec<_> = expected
            .iter()
            .map(|(kind, size, place)| match place {
                ExpectedAddress::Symbol(name, offset) => {
                    (*kind, *size, symbols[name].wrapping_add_signed(*offset))
                }
                ExpectedAddress::Stack(_) => unreachable!("no register is known"),
            })
            .collect();
        assert_eq!(step.accesses, expected, "step {index} at {:#x}", step.address);
        assert_eq!(step.size_bytes, 4);
    }
    assert_eq!(steps.len(), expected.len());
}

#[test]
fn compiled_programs_enter_their_functions_as_often_as_they_should() {
    let Some(qemu) = emulating() else { return };
    let folder = tempfile::tempdir().unwrap();
    // A call that is jumped out of is not told from one that goes on, where calls store nothing.
    let names = ["calls", "recursion", "jump_table", "threads", "library", "red_zone"];
    for program in COMPILED.iter().filter(|p| names.contains(&p.name)) {
        for how in ["-static", "-pie"] {
            let flags: Vec<&str> =
                program.flags.iter().copied().filter(|f| !f.starts_with("-fcf")).collect();
            let path = build(
                folder.path(),
                program.name,
                &[&program.source_path()],
                &[&flags[..], &[how]].concat(),
            );
            let [skip, calls] = program.window;
            let (recording, steps) = record(qemu, &path, &window(&path, skip, calls))
                .unwrap_or_else(|e| panic!("{} {how}: {e}", program.name));
            assert_eq!(recording.ended, Ended::Length, "{} {how}", program.name);
            assert_eq!(
                recording.exit.as_ref().unwrap().stdout.tail,
                program.output,
                "{} {how}",
                program.name
            );
            let bias = steps[0].address - function(&path, "window").0;
            for (name, count) in program.entries {
                // The arguments of a call are evaluated from the left here: the larger comes first.
                let count = if program.name == "recursion" { &109 } else { count };
                let start = function(&path, name).0 + bias;
                let found = steps.iter().filter(|s| s.address == start).count() as u64;
                assert_eq!(found, *count, "{} {how}: entries of {name}", program.name);
            }
        }
    }
}

/// Blocked loads per triangle of the first story's decoder, as a Neoverse V2 would have them.
#[test]
#[expect(clippy::print_stderr, reason = "the figures are worth reading")]
fn the_merged_load_is_blocked_on_neoverse_too() {
    let Some(qemu) = emulating() else { return };
    let folder = tempfile::tempdir().unwrap();
    let main = Program::named("decoder", "aarch64_decoder.c").source_path();
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases/upstream-index-decoder");
    for version in [15, 16, 19] {
        let object = cases.join(format!("build/decoder-aarch64-clang-{version}.o"));
        if !object.exists() {
            assert!(std::env::var_os("CI").is_none(), "{} is not built", object.display());
            eprintln!("SKIPPED: {} is not built: run `make cases`", object.display());
            continue;
        }
        let path = build(folder.path(), "decoder", &[&main, &object], &[]);
        let start = function(&path, "meshopt_decodeIndexBuffer");
        let window = Window {
            start: Start::At { object: None, svma: start },
            skip: 1,
            length: Length::Calls(1),
            memory: true,
            budget: None,
        };
        let profile = Design::of(Microarchitecture::NeoverseV2);
        let shape = StoreBufferShape::of(&profile);
        let mut model = StoreBuffer::new(profile.forwarding_rule, shape);
        let mut visits = Visits::default();
        let limits = Limits::default();
        let mut fan = Fan(vec![&mut visits, &mut model]);
        let recording = qemu.record(&launch(&path), &window, limits, &mut fan).unwrap();
        assert_eq!(recording.ended, Ended::Length);
        assert!(
            recording.exit.as_ref().unwrap().stdout.tail.starts_with("0 "),
            "{}",
            recording.exit.as_ref().unwrap().stdout.tail
        );
        let triangles = triangles(&path, start, &visits);
        assert_eq!(triangles, 4000);
        let share = model.report().blocked as f64 / triangles as f64;
        eprintln!("clang {version} for AArch64, strips: {share:.4} blocked loads per triangle");
        match version {
            16 => assert!(share >= 0.98, "{share}"),
            _ => assert!(share <= 0.01, "{share}"),
        }
    }
}
