//! Code that is replaced in a process does what it did: every load of some programs, in pieces of every size.

use std::collections::BTreeMap;
use std::path::Path;

use super::programs::{COMPILED, Program};
use stallscope::code::x86::{Patch, place_functions, split_loads, string_loops};
use stallscope::code::{Function, FunctionCode, Image};
use stallscope::model::Svma;
use stallscope::run::child::{Launch, Limits};
use stallscope::trace::engine::{Change, EngineError, run_changed};

fn run(path: &Path, change: Change<'_>) -> Result<String, EngineError> {
    let launch = Launch { program: path.into(), ..Launch::default() };
    let exit = run_changed(&launch, change, Limits::default())?;
    Ok(format!("{}{}", exit.stdout.tail, exit.status))
}

/// The functions that the source has.
fn of_source(image: &Image) -> Vec<&Function> {
    let of_library =
        |name: &str| name.starts_with('_') || name.contains("_tm_clones") || name.contains("dtors");
    image.functions().iter().filter(|f| !of_library(&f.symbol)).collect()
}

/// Loads of the functions that the source has, each taken apart into pieces of `piece_bytes` where it can be.
fn loads(image: &Image, piece_bytes: u32) -> BTreeMap<Svma, u32> {
    let mut found = BTreeMap::new();
    for function in of_source(image) {
        for insn in &FunctionCode::of(image, function).insns {
            let alone = BTreeMap::from([(insn.svma, piece_bytes)]);
            if insn.load.is_some() && split_loads(image, &alone).is_ok() {
                found.insert(insn.svma, piece_bytes);
            }
        }
    }
    // Two that are too near to each other have no room for two jumps.
    while let Err((svma, _)) = split_loads(image, &found) {
        assert!(found.remove(&svma).is_some(), "{svma}");
    }
    found
}

fn check(program: &Program) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let path = program.build(folder.path());
    let image = Image::open(&path).unwrap();
    let alone = run(&path, Change::Nothing).unwrap();
    assert_eq!(alone, format!("{}exit code 0", program.output), "{}", program.name);
    let mut replaced = 0;
    for piece_bytes in [1, 2, 4, 8, 16] {
        let loads = loads(&image, piece_bytes);
        let both = split_loads(&image, &loads).unwrap();
        if !both.iter().all(Patch::runs_here) {
            continue;
        }
        for (patch, name) in both.iter().zip(["control", "cure"]) {
            let got = run(&path, Change::Code(patch)).unwrap();
            assert_eq!(got, alone, "{} in pieces of {piece_bytes}, {name}", program.name);
        }
        replaced += loads.len();
    }
    replaced
}

#[test]
fn loads_in_pieces_load_the_same() {
    let named = |name: &str| *COMPILED.iter().find(|p| p.name == name).unwrap();
    let programs = [
        named("calls"),
        named("calls_fixed"),
        named("calls_unoptimised"),
        named("recursion"),
        named("jump_table"),
        named("red_zone"),
        named("vectors_128"),
        named("vectors_256"),
        Program { name: "vectors_unoptimised", flags: &["-O0"], ..named("vectors_128") },
    ];
    let mut replaced = 0;
    for program in programs.iter().filter(|p| p.runs_here()) {
        replaced += check(program);
    }
    assert!(replaced > 200, "only {replaced} loads were replaced");
}

#[test]
fn functions_do_the_same_from_copies_anywhere_in_a_page() {
    let mut copied = 0;
    for name in ["calls", "calls_fixed", "calls_unoptimised", "recursion", "red_zone"] {
        let folder = tempfile::tempdir().unwrap();
        let path = COMPILED.iter().find(|p| p.name == name).unwrap().build(folder.path());
        let image = Image::open(&path).unwrap();
        let alone = run(&path, Change::Nothing).unwrap();
        let can_be = |f: &&Function| place_functions(&image, &[(*f, 0)]).is_ok();
        let functions: Vec<&Function> = of_source(&image).into_iter().filter(can_be).collect();
        for place in [0, 17, 64, 4090] {
            let all: Vec<_> = functions.iter().map(|function| (*function, place)).collect();
            let patch = place_functions(&image, &all).unwrap();
            assert_eq!(run(&path, Change::Code(&patch)).unwrap(), alone, "{name} at {place}");
        }
        copied += functions.len();
    }
    assert!(copied > 10, "only {copied} functions were copied");
}

#[test]
fn loops_do_what_string_instructions_do() {
    let folder = tempfile::tempdir().unwrap();
    let plain = COMPILED.iter().find(|p| p.name == "red_zone").unwrap();
    let program =
        Program { name: "string_copies", source: "string_copies.c", flags: &[], ..*plain };
    let path = program.build(folder.path());
    let image = Image::open(&path).unwrap();
    let strings = |f: &&Function| f.symbol.starts_with("move") || f.symbol.starts_with("store");
    let insns =
        image.functions().iter().filter(strings).flat_map(|f| FunctionCode::of(&image, f).insns);
    let sites: Vec<Svma> =
        insns.map(|insn| insn.svma).filter(|at| string_loops(&image, &[*at]).is_ok()).collect();
    assert_eq!(sites.len(), 8, "each width, moved and stored");
    let alone = run(&path, Change::Nothing).unwrap();
    assert!(alone.ends_with("exit code 0"), "{alone}");
    for patch in string_loops(&image, &sites).unwrap() {
        assert_eq!(run(&path, Change::Code(&patch)).unwrap(), alone);
    }
    // One at a time: what differs is then known.
    for site in sites {
        let [_, cure] = string_loops(&image, &[site]).unwrap();
        assert_eq!(run(&path, Change::Code(&cure)).unwrap(), alone, "{site}");
    }
}

#[test]
fn code_that_is_not_what_the_file_holds_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let build = |name| {
        let program = COMPILED.iter().find(|p| p.name == name).unwrap();
        program.build(folder.path())
    };
    let (one, other) = (build("calls_unoptimised"), build("recursion"));
    let image = Image::open(&one).unwrap();
    let loads = loads(&image, 2);
    assert!(!loads.is_empty());
    let [_, cure] = split_loads(&image, &loads).unwrap();
    std::fs::copy(&other, &one).unwrap();
    let error = run(&one, Change::Code(&cure)).unwrap_err().to_string();
    assert!(error.contains("not what the file holds"), "{error}");
}

#[test]
fn on_one_processor_a_program_stays_there_whatever_it_asks_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = Program::named("processors", "processors.c").build(folder.path());
    let allowed = stallscope::clock::allowed_cpus().unwrap().len();
    let said = |n| format!("main: {n}, refused 0\nthread: {n}, refused 0\nexit code 0");
    assert_eq!(run(&path, Change::OneProcessor).unwrap(), said(1));
    assert_eq!(run(&path, Change::Nothing).unwrap(), said(allowed));
}
