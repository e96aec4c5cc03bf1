//! What is written is read back; what is damaged gives an error.

use std::sync::atomic::AtomicBool;

use proptest::prelude::*;

use super::*;
use crate::model::{Avma, FileOffset};
use crate::run::child::{Exit, Status};
use crate::trace::engine::{
    AccessKind, Block, BlockId, BlockInsn, CodePage, Ended, Mapping, MemoryAccess, Recording,
    SelfCheck, Sink,
};

/// Nobody interrupts.
static GO_ON: AtomicBool = AtomicBool::new(false);

#[derive(Default, Debug, PartialEq)]
struct Log(Vec<(BlockId, Block, Vec<MemoryAccess>)>, Vec<Block>);

impl Sink for Log {
    fn describe(&mut self, id: BlockId, block: &Block) {
        assert_eq!(id.0 as usize, self.1.len());
        self.1.push(block.clone());
    }

    fn restart(&mut self) {
        *self = Self::default();
    }

    fn run(&mut self, id: BlockId, accesses: &[MemoryAccess]) {
        self.0.push((id, self.1[id.0 as usize].clone(), accesses.to_vec()));
    }
}

fn recording() -> Recording {
    let path = std::path::PathBuf::from("/bin/a b");
    Recording {
        engine: crate::trace::engine::ENGINES.first().map_or("another", |e| e.id()),
        instructions: 7,
        wall_ns: 1 << 40,
        ended: Ended::Signal(11),
        mappings: vec![Mapping {
            start: Avma(0x1000),
            end: Avma(u64::MAX),
            path,
            file_offset: FileOffset(5),
        }],
        self_check: SelfCheck::Differs("rax differs".into()),
        notes: vec!["a note".into(), String::new()],
        code: vec![CodePage { start: Avma(0x7000), bytes: vec![0xc3, 0] }],
        exit: Some(Exit::of(Status::Signal(11))),
    }
}

prop_compose! {
    fn insn()(address: u64, size_bytes in 1..=15_u8, drains_stores: bool) -> BlockInsn {
        BlockInsn { address: Avma(address), size_bytes, drains_stores }
    }
}

prop_compose! {
    fn access()(insn in 0..3_u32, kind in 0..4, size_bytes in 1..=u32::MAX, address: u64) -> MemoryAccess {
        let (kind, size_bytes) = match kind {
            0 => (AccessKind::Load, size_bytes),
            1 => (AccessKind::Store, size_bytes),
            2 => (AccessKind::Prefetch, 1),
            _ => (AccessKind::Value, 8),
        };
        MemoryAccess { insn, kind, size_bytes, address: Avma(address) }
    }
}

fn written(blocks: &[Vec<BlockInsn>], runs: &[(usize, Vec<MemoryAccess>)]) -> (Log, Vec<u8>) {
    let (mut log, mut writer) = (Log::default(), Writer::new(Vec::new()));
    for (number, insns) in (0..).zip(blocks) {
        let block = Block { insns: insns.clone() };
        log.describe(BlockId(number), &block);
        writer.describe(BlockId(number), &block);
    }
    for (block, accesses) in runs {
        let mut accesses = accesses.clone();
        accesses.sort_by_key(|a| a.insn);
        let id = BlockId((block % blocks.len()) as u32);
        log.run(id, &accesses);
        writer.run(id, &accesses);
    }
    (log, writer.finish(&recording()).unwrap())
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        blocks in prop::collection::vec(prop::collection::vec(insn(), 3..6), 1..5),
        runs in prop::collection::vec((0..9_usize, prop::collection::vec(access(), 0..5)), 0..20),
        cut in any::<prop::sample::Index>(),
        change in (any::<prop::sample::Index>(), any::<u8>()),
    ) {
        let (told, mut bytes) = written(&blocks, &runs);
        let mut read = Log::default();
        let end = replay(&bytes[..], &GO_ON, &mut read).unwrap();
        prop_assert_eq!(&read, &told);
        prop_assert_eq!(format!("{end:?}"), format!("{:?}", recording()));
        let part = &bytes[..cut.index(bytes.len())];
        prop_assert!(replay(part, &GO_ON, &mut Log::default()).is_err());
        // Changed bytes may still make sense; they must not do worse than an error.
        let at = change.0.index(bytes.len());
        bytes[at] = change.1;
        let _ = replay(&bytes[..], &GO_ON, &mut Ignore);
    }

    #[test]
    fn any_bytes_give_an_end_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = replay(&[&MAGIC[..], &[VERSION], &bytes].concat()[..], &GO_ON, &mut Ignore);
        prop_assert!(matches!(replay(&bytes[..], &GO_ON, &mut Ignore), Err(ReplayError::NotATrace)));
    }
}

struct Ignore;

impl Sink for Ignore {
    fn describe(&mut self, _: BlockId, _: &Block) {}

    fn restart(&mut self) {}

    fn run(&mut self, _: BlockId, _: &[MemoryAccess]) {}
}

#[test]
fn an_interrupt_ends_a_replay_before_the_next_block() {
    let block = vec![BlockInsn { address: Avma(1), size_bytes: 1, drains_stores: false }; 3];
    let (_, bytes) = written(&[block], &[(0, Vec::new())]);
    let mut read = Log::default();
    let ended = replay(&bytes[..], &AtomicBool::new(true), &mut read).unwrap_err();
    assert!(matches!(ended, ReplayError::Interrupted), "{ended}");
    assert!(ended.of_engine("translate").is_interrupt(), "no reason to go on without the window");
    assert!(!ReplayError::CutOff(9).of_engine("translate").is_interrupt());
}

#[test]
fn what_is_a_value_was_no_store_before_version_5() {
    let insn = BlockInsn { address: Avma(1), size_bytes: 3, drains_stores: false };
    let value = MemoryAccess { insn: 0, kind: AccessKind::Value, size_bytes: 8, address: Avma(77) };
    let (told, mut bytes) = written(&[vec![insn]], &[(0, vec![value])]);
    let mut read = Log::default();
    replay(&bytes[..], &GO_ON, &mut read).unwrap();
    assert_eq!(read, told);
    bytes[MAGIC.len()] = 4;
    let error = replay(&bytes[..], &GO_ON, &mut Ignore).unwrap_err().to_string();
    assert!(error.contains("a store without bytes"), "{error}");
}

#[test]
fn other_files_are_told_apart() {
    let said = |bytes: &[u8]| replay(bytes, &GO_ON, &mut Ignore).unwrap_err().to_string();
    assert!(said(b"").contains("not a recorded trace"));
    assert!(said(b"\x7fELF....").contains("not a recorded trace"));
    assert!(said(b"STLTRC\0\x06").contains("version 6"));
    assert!(said(b"STLTRC\0\x01").contains("ends too early"));
    assert!(said(b"STLTRC\0\x01\x09").contains("damaged at byte 9"));
}

#[test]
fn files_of_the_first_version_end_before_the_code() {
    let (told, bytes) = written(
        &[vec![BlockInsn { address: Avma(1), size_bytes: 1, drains_stores: false }; 3]],
        &[],
    );
    let mut first = bytes;
    first[MAGIC.len()] = 1;
    // How many pages, where the one is, how many bytes it has, these.
    first.truncate(first.len() - 1 - 3 - 1 - 2);
    let mut read = Log::default();
    let end = replay(&first[..], &GO_ON, &mut read).unwrap();
    assert!(read == told && end.code.is_empty() && end.notes == recording().notes);
}
