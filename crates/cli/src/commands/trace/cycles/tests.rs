//! The screen of an invented program whose recording is made by hand.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use stallscope::code::fixture;
use stallscope::machine::Microarchitecture;
use stallscope::model::FileOffset;
use stallscope::run::child::{Exit, Status};
use stallscope::sim::{Modelled, Models};
use stallscope::trace::engine::{
    AccessKind, Block, BlockId, BlockInsn, Ended, Mapping, MemoryAccess, Recording, SelfCheck, Sink,
};
use stallscope::trace::recorded::{Writer, replay};

use super::*;
use crate::commands::trace::screen;
use crate::terminal::plain;

/// A loop over two stores and the load that spans them, a call of a division behind every eighth turn.
const TURNS: u64 = 4000;
/// Lengths of the instructions of [`fixture::ring_loop`] up to the jump.
const DECODE: [u8; 9] = [3, 4, 7, 2, 3, 5, 5, 3, 2];
/// Nobody interrupts.
static GO_ON: AtomicBool = AtomicBool::new(false);
/// `xor edx, edx; div ecx; ret`
const DIVIDE: &[u8] = &[0x31, 0xd2, 0xf7, 0xf1, 0xc3];

fn block(start: u64, sizes: &[u8]) -> Block {
    let mut at = start;
    let mut block = Block::default();
    for size_bytes in sizes {
        block.insns.push(BlockInsn {
            address: Avma(at),
            size_bytes: *size_bytes,
            drains_stores: false,
        });
        at += u64::from(*size_bytes);
    }
    block
}

fn access(insn: u32, kind: AccessKind, size_bytes: u32, address: u64) -> MemoryAccess {
    MemoryAccess { insn, kind, size_bytes, address: Avma(address) }
}

/// The window as bytes; code outside of `program` is executed where `unread` says how often a turn.
fn recorded(program: &Path, unread: u64) -> Vec<u8> {
    let starts = fixture::starts(&[("decode", &fixture::ring_loop(true)), ("divide", DIVIDE)]);
    let mut writer = Writer::new(Vec::new());
    writer.describe(BlockId(0), &block(starts[0].0, &DECODE));
    writer.describe(BlockId(1), &block(starts[1].0, &[2, 2, 1]));
    writer.describe(BlockId(2), &block(0x7000_0000, &[3, 3]));
    let mut instructions = 0;
    for turn in 0..TURNS {
        let slot = 0x7fff_0000 + turn % 16 * 8;
        writer.run(
            BlockId(0),
            &[
                // What the turn before has stored.
                access(2, AccessKind::Load, 8, 0x7fff_0000 + (turn + 15) % 16 * 8),
                access(5, AccessKind::Store, 4, slot),
                access(6, AccessKind::Store, 4, slot + 4),
            ],
        );
        instructions += DECODE.len() as u64;
        if turn % 8 == 0 {
            writer.run(BlockId(1), &[access(2, AccessKind::Load, 8, 0x7ffe_fff8)]);
            instructions += 3;
        }
        for _ in 0..unread {
            writer.run(BlockId(2), &[]);
            instructions += 2;
        }
    }
    writer.finish(&recording(program, instructions)).unwrap()
}

fn recording(program: &Path, instructions: u64) -> Recording {
    let (start, file_offset) = fixture::CODE_START;
    let mapping = Mapping {
        start: Avma(start.0),
        end: Avma(start.0 + 0x1000),
        file_offset: FileOffset(file_offset.0),
        path: program.into(),
    };
    Recording {
        engine: "step",
        instructions,
        wall_ns: 1_000_000_000,
        ended: Ended::Length,
        mappings: vec![mapping],
        self_check: SelfCheck::NotCompared,
        notes: Vec::new(),
        code: Vec::new(),
        exit: Some(Exit::of(Status::Code(0))),
    }
}

/// The report and the screen of the invented window, by Golden Cove; `calls` as if it had been asked for.
fn traced(unread: u64, calls: Option<u64>) -> (TraceReport, String) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("decoder");
    let decode = fixture::ring_loop(true);
    let bytes = fixture::program(&[("decode", &decode), ("divide", DIVIDE)]);
    std::fs::write(&program, bytes).unwrap();
    let recorded = recorded(&program, unread);
    let design = Design::of(Microarchitecture::GoldenCove);
    let mut models = Models::new(&design);
    let recording = replay(&recorded[..], &GO_ON, &mut models).unwrap();
    let accounts = RecordedWindow::read(&recorded, &design, &GO_ON)
        .unwrap()
        .account(&design.core().value)
        .unwrap();
    let core = Modelled { accounts: &accounts, calls };
    let report = models.report(recording, Some(core), &design);
    let shown = screen::screen(&report, "decode in decoder", &mut SourceText::default());
    (report, plain(&shown))
}

#[test]
fn a_window_of_calls() {
    let (report, shown) = traced(0, Some(500));
    insta::assert_snapshot!(shown);
    let cycles = report.cycles.unwrap();
    assert_eq!(cycles.waits.len(), stallscope::sim::core::Mechanism::ALL.len());
    let own: u64 = cycles.functions.iter().map(|function| function.account.cycles).sum();
    assert_eq!(own, cycles.cycles, "every cycle is a function's");
    let insns: u64 = cycles.insns.iter().map(|i| i.account.executions).sum();
    assert_eq!(insns, cycles.instructions, "few enough to be listed all");
}

#[test]
fn code_that_no_file_holds_is_said() {
    let (report, shown) = traced(1, None);
    assert!(shown.contains("unread   1") && shown.contains("code that no file holds"), "{shown}");
    assert!(!shown.contains("a call"), "{shown}");
    let cycles = report.cycles.unwrap();
    assert_eq!(cycles.unread_executions, 6000);
}

#[test]
fn a_window_that_cannot_be_read_has_no_cycles() {
    let (report, shown) = traced(9, None);
    assert!(report.cycles.is_none());
    assert!(shown.contains("no cycles: ") && shown.contains("could not be read"), "{shown}");
    assert!(shown.contains("loads    "), "the rest is said all the same: {shown}");
}
