//! Misses of a 32 KiB, 8-way instruction cache over a whole run, by the engine `qemu`: from the
//! dynamic loader's first instruction to the exit. For comparison with cachegrind.
//!
//! `l1i_whole COMMAND ARGS...`; prints instructions, misses and seconds. The command's own output
//! is thrown away.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::PathBuf;

use object::Object;
use object::read::elf::{ElfFile64, ProgramHeader};
use stallscope::machine::CacheGeometry;
use stallscope::model::Svma;
use stallscope::run::child::{Launch, Limits, resolve_program};
use stallscope::sim::l1i::{InstructionCache, Replacement};
use stallscope::trace::engine::{Length, Start, Window, engine};

const L1I: CacheGeometry = CacheGeometry { sets: 64, ways: 8, line_bytes: 64 };

/// The first instruction of all: the dynamic loader's, or the program's own.
fn first_instruction(program: &PathBuf) -> Result<Start, Box<dyn Error>> {
    let data = std::fs::read(program)?;
    let file = ElfFile64::<object::Endianness>::parse(&*data)?;
    let headers = file.elf_program_headers();
    let loader = headers.iter().find_map(|h| h.interpreter(file.endian(), &*data).ok().flatten());
    let Some(loader) = loader else { return Ok(Start::Entry) };
    let loader = PathBuf::from(std::str::from_utf8(loader)?).canonicalize()?;
    let data = std::fs::read(&loader)?;
    let entry = ElfFile64::<object::Endianness>::parse(&*data)?.entry();
    Ok(Start::At { object: Some(loader), svma: Svma(entry) })
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [program, rest @ ..] = &args[..] else { return Err("no command to run".into()) };
    let program = resolve_program(program.as_ref())?;
    let window = Window {
        start: first_instruction(&program)?,
        skip: 0,
        length: Length::Instructions(u64::MAX),
        memory: false,
        budget: None,
    };
    let launch =
        Launch { program, args: rest.iter().map(Into::into).collect(), ..Launch::default() };
    let mut cache = InstructionCache::new(L1I, Replacement::Lru).ok_or("no such cache")?;
    let limits = Limits::default();
    let engine = engine("qemu").ok_or("no engine qemu for this processor")?;
    let recording = engine.record(&launch, &window, limits, &mut cache)?;
    if let Some(exit) = recording.exit.filter(|exit| !exit.status.success()) {
        return Err(format!("{}: {}", exit.status, exit.stderr.tail).into());
    }
    let seconds = recording.wall_ns as f64 / 1e9;
    println!("{} {} {seconds:.2}", recording.instructions, cache.report().misses);
    Ok(())
}
