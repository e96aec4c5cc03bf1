//! How many instructions a second an engine follows: one window, counted and thrown away.
//!
//! `trace_speed ENGINE memory|blocks OBJECT|- ADDRESS|entry SKIP calls:N|insns:N COMMAND ARGS...`; the address
//! is as stated in the file, in hexadecimal; `-` is the launched program.

#![allow(clippy::print_stdout)]

use std::error::Error;

use stallscope::model::Svma;
use stallscope::run::child::{Launch, Limits};
use stallscope::trace::engine::{
    AccessKind, Block, BlockId, ENGINES, Length, MemoryAccess, Sink, Start, Window,
};

#[derive(Default)]
struct Counting {
    blocks: u64,
    runs: u64,
    loads: u64,
    stores: u64,
}

impl Sink for Counting {
    fn describe(&mut self, _id: BlockId, _block: &Block) {
        self.blocks += 1;
    }

    fn restart(&mut self) {
        *self = Self::default();
    }

    fn run(&mut self, _id: BlockId, accesses: &[MemoryAccess]) {
        self.runs += 1;
        let stores = accesses.iter().filter(|a| a.kind == AccessKind::Store).count() as u64;
        self.stores += stores;
        self.loads += accesses.len() as u64 - stores;
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [engine, mode, object, address, skip, length, program, rest @ ..] = &args[..] else {
        return Err("see the first lines of this file for the arguments".into());
    };
    let engine =
        ENGINES.iter().find(|e| e.id() == engine).ok_or_else(|| format!("no engine {engine}"))?;
    let start = if address == "entry" {
        Start::Entry
    } else {
        let svma = Svma(u64::from_str_radix(address.trim_start_matches("0x"), 16)?);
        Start::At { object: (object != "-").then(|| object.into()), svma }
    };
    let length = match length.split_once(':') {
        Some(("calls", n)) => Length::Calls(n.parse()?),
        Some(("insns", n)) => Length::Instructions(n.parse()?),
        _ => return Err("the length is calls:N or insns:N".into()),
    };
    let window =
        Window { start, skip: skip.parse()?, length, memory: mode == "memory", budget: None };
    let launch = Launch {
        program: stallscope::run::child::resolve_program(program.as_ref())?,
        args: rest.iter().map(Into::into).collect(),
        ..Launch::default()
    };
    let mut counted = Counting::default();
    let limits = Limits::default();
    let recording = engine.record(&launch, &window, limits, &mut counted)?;
    println!(
        "{:>7.1} M/s  {} instructions in {:.3} s, {} blocks described, {} run, {} loads, {} stores, {}, {:?}",
        recording.instructions as f64 * 1e3 / recording.wall_ns as f64,
        recording.instructions,
        recording.wall_ns as f64 / 1e9,
        counted.blocks,
        counted.runs,
        counted.loads,
        counted.stores,
        recording.engine,
        recording.ended,
    );
    println!("         self-check: {:?}", recording.self_check);
    for note in &recording.notes {
        println!("         note: {note}");
    }
    Ok(())
}
