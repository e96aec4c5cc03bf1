//! The trace engines on real programs: what they tell is what was executed.
//!
//! Every engine in `ENGINES` runs the same list of programs. What must come out stands beside the
//! instructions (assembly), or is the number of times that each function is entered and the
//! command's own output (C and C++); and whatever the program, every instruction must be one that
//! the one before it can lead to. Engines must agree with each other instruction by instruction.
#![cfg(target_arch = "x86_64")]

mod agreement;
mod available;
mod changed;
mod decoder;
mod endings;
mod faults;
mod foreign;
mod programs;
mod recorder;
mod truth;

use std::collections::HashMap;
use std::path::Path;

use available::{engines, engines_for};
use programs::{ASSEMBLY, COMPILED, Program};
use recorder::{Step, function, record, window};
use stallscope::code::{Flow, Image, x86};
use stallscope::model::Svma;
use stallscope::trace::engine::{AccessKind, Ended, SelfCheck};
use truth::ExpectedAddress;

/// The distance from stated addresses to those in the process.
fn bias(path: &Path, steps: &[Step]) -> u64 {
    steps[0].address - function(path, "window").0
}

fn check_assembly(engine: &str, program: &Program, path: &Path, steps: &[Step]) {
    let image = Image::open(path).unwrap();
    let expected = truth::expected(&program.source_path());
    let symbols = truth::symbols(path);
    // The window's last instruction takes its return address from where the entry's pointer shows.
    let stack = steps.last().and_then(|s| s.accesses.last()).expect("a window ends with ret").2;
    let absolute = |place: &ExpectedAddress| match place {
        ExpectedAddress::Symbol(name, offset) => symbols[name].wrapping_add_signed(*offset),
        ExpectedAddress::Stack(offset) => stack.wrapping_add_signed(*offset),
    };
    for (index, (step, expected)) in steps.iter().zip(&expected).enumerate() {
        let is_told = |kind: AccessKind| engine != "qemu" || agreement::is_told_by_emulator(kind);
        let expected = expected.iter().filter(|access| is_told(access.0));
        let expected: Vec<_> = expected.map(|(k, n, p)| (*k, *n, absolute(p))).collect();
        let svma = Svma(step.address);
        let text = x86::text(image.code_at(svma, u64::from(step.size_bytes)), svma);
        if engine == "qemu" && agreement::is_whole_masked_load(&text, &expected, &step.accesses) {
            continue;
        }
        assert_eq!(step.accesses, expected, "{} step {index} at {:#x}", program.name, step.address);
    }
    assert_eq!(steps.len(), expected.len(), "{}", program.name);
}

/// Every instruction follows from the one before, as far as the program's own code goes.
fn check_flow(program: &Program, path: &Path, steps: &[Step]) {
    let (image, bias) = (Image::open(path).unwrap(), bias(path, steps));
    for pair in steps.windows(2) {
        let next = pair[0].address + u64::from(pair[0].size_bytes);
        if pair[1].address == next || program.has_signals {
            continue;
        }
        let svma = Svma(pair[0].address.wrapping_sub(bias));
        let bytes = image.code_at(svma, u64::from(pair[0].size_bytes));
        let Some(insn) = x86::decode(bytes, svma).first().copied() else { continue };
        let leads = match insn.flow {
            Flow::Next | Flow::Stop => false,
            Flow::Jump(to) | Flow::Branch(to) => to.0 == pair[1].address.wrapping_sub(bias),
            Flow::IndirectJump | Flow::Call | Flow::Return => true,
        };
        assert!(leads, "{}: {svma} does not lead to {:#x}", program.name, pair[1].address - bias);
    }
}

fn check_counts(program: &Program, path: &Path, steps: &[Step]) {
    let bias = bias(path, steps);
    let mut entries: HashMap<u64, u64> = HashMap::new();
    for step in steps {
        *entries.entry(step.address.wrapping_sub(bias)).or_default() += 1;
    }
    for (name, count) in program.entries {
        let found = entries.get(&function(path, name).0).copied().unwrap_or(0);
        assert_eq!(found, *count, "{}: entries of {name}", program.name);
    }
}

/// Has the commands that this thread starts lie at the same addresses in every run, so that engines can
/// be compared address by address.
fn fix_addresses() {
    // SAFETY: changes how programs that this thread starts are laid out, and nothing else.
    unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
}

fn run(program: &Program) {
    if !program.runs_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = program.build(folder.path());
    fix_addresses();
    let mut first: Option<Vec<Step>> = None;
    for engine in engines_for(program) {
        let [skip, calls] = program.window;
        let (recording, steps) = record(engine, &path, &window(&path, skip, calls))
            .unwrap_or_else(|e| panic!("{} by {}: {e}", program.name, engine.id()));
        assert_eq!(recording.ended, Ended::Length, "{}", program.name);
        let steps_instead = program.steps && engine.id() == "translate";
        let by = if steps_instead { "step" } else { engine.id() };
        assert_eq!(recording.engine, by, "{}: {:?}", program.name, recording.notes);
        assert!(
            !matches!(recording.self_check, SelfCheck::Differs(_)),
            "{:?}",
            recording.self_check
        );
        assert!(
            recording.exit.as_ref().unwrap().status.success(),
            "{}: {}",
            program.name,
            recording.exit.as_ref().unwrap().status
        );
        assert_eq!(
            recording.exit.as_ref().unwrap().stdout.tail,
            program.output,
            "{}",
            program.name
        );
        if program.is_assembly() {
            check_assembly(engine.id(), program, &path, &steps);
        }
        check_flow(program, &path, &steps);
        check_counts(program, &path, &steps);
        let Some(before) = first.as_deref().filter(|_| program.repeats_itself) else {
            first = Some(steps);
            continue;
        };
        if engine.id() == "qemu" {
            // Assembly has its truth beside it already.
            if !program.is_assembly() {
                agreement::check(program, &path, [before, &steps].map(|s| (bias(&path, s), s)));
            }
            continue;
        }
        let differs = before.iter().zip(&steps).position(|(a, b)| a != b);
        let at = differs.map(|n| (n, &before[n], &steps[n]));
        assert_eq!(at, None, "{}: {} differs", program.name, engine.id());
        assert_eq!(before.len(), steps.len(), "{}: {}", program.name, engine.id());
    }
}

#[test]
fn assembly_does_what_stands_beside_it() {
    ASSEMBLY.iter().for_each(run);
}

#[test]
fn compiled_programs_are_followed() {
    COMPILED.iter().for_each(run);
}

#[test]
fn a_start_in_a_library_is_found_when_it_is_loaded() {
    use stallscope::trace::engine::{Length, Start, Window};
    let program = COMPILED.iter().find(|p| p.name == "library").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = program.build(folder.path());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let libc =
        maps.lines().find(|l| l.contains("/libc.so.6")).expect("the tests use the C library");
    let libc = Path::new(&libc[libc.find('/').unwrap()..]);
    let start = Start::At { object: Some(libc.into()), svma: function(libc, "qsort") };
    let window = Window { start, skip: 0, length: Length::Calls(1), memory: false, budget: None };
    for engine in engines() {
        let (recording, steps) = record(engine, &path, &window).unwrap();
        assert_eq!(recording.ended, Ended::Length);
        assert!(steps.len() > 500 && steps.iter().all(|s| s.accesses.is_empty()));
        assert!(recording.mappings.iter().any(|m| m.path == libc));
    }
}
