//! Blocks and their dispatcher as machine code.
//!
//! The dispatcher draws a block with a multiplicative generator and jumps there; the block is a run
//! of no-ops and a jump back. How many blocks take part is data, so that one layout serves all
//! numbers.

use iced_x86::code_asm::*;
use iced_x86::{BlockEncoderOptions, IcedError};

use super::{Case, Layout, MOST_BLOCKS, all_layouts};
use crate::clock::{Clock, HardwareClock, HoldsClock};
use crate::probes::emit::{CodePages, CodeWriter, EmitError, Entry};
use crate::probes::rig::Rig;

const COPIES: usize = 2;

/// Dispatches in K.
const REPETITIONS: u64 = 384;

pub struct DispatchRig {
    clock: HardwareClock,
    pages: CodePages,
    /// By copy and layout.
    entries: Vec<Vec<Entry>>,
    /// By case: which layout, how many blocks.
    cases: Vec<(usize, u64)>,
    data: Data,
}

/// What the dispatcher reads: how many blocks, and where the generator stands.
#[repr(C, align(64))]
struct Data {
    blocks: u64,
    state: u64,
}

impl DispatchRig {
    pub fn new(clock: HardwareClock, cases: &[Case]) -> Result<Self, EmitError> {
        let layouts = all_layouts();
        let room = |l: &Layout| (l.position(MOST_BLOCKS) + 3 * 4096) as usize;
        let capacity = COPIES * layouts.iter().map(room).sum::<usize>();
        let mut writer = CodeWriter::new(capacity)?;
        let mut entries = Vec::with_capacity(COPIES);
        for _ in 0..COPIES {
            let make = |layout: &Layout| make_layout(&mut writer, *layout);
            entries.push(layouts.iter().map(make).collect::<Result<Vec<_>, _>>()?);
        }
        let place = |case: &Case| {
            let layout = layouts.iter().position(|l| *l == case.layout).unwrap_or(0);
            (layout, u64::from(case.blocks.clamp(1, MOST_BLOCKS)))
        };
        let cases = cases.iter().map(place).collect();
        let data = Data { blocks: 1, state: 0x9e37_79b9_7f4a_7c15 };
        Ok(Self { clock, pages: writer.seal()?, entries, cases, data })
    }
}

/// Blocks first, on a page boundary; the dispatcher behind them, in sets of its own.
fn make_layout(writer: &mut CodeWriter, layout: Layout) -> Result<Entry, EmitError> {
    let blocks = writer.reserve(layout.position(MOST_BLOCKS) as usize + 64)?;
    let dispatcher = writer.reserve(2 * 4096)?;
    // Blocks start in the first sets; half a page on lies the dispatcher.
    let start = 2048;
    let (code, back) =
        dispatch(layout, writer.address(blocks, 0), writer.address(dispatcher, start))?;
    writer.put(dispatcher, start, &code)?;
    for i in 0..MOST_BLOCKS {
        let at = layout.position(i) as usize;
        let bytes = block(layout, i, writer.address(blocks, at), back);
        writer.put(blocks, at, &bytes)?;
    }
    Ok(writer.inside(dispatcher, start))
}

/// No-ops and a jump to `back`, filling their line, or half of one where every second block lies
/// half a line further on. One-byte no-ops are as many instructions as a line can have: on Zen 5 a
/// line of 59 takes ten of the sixteen places that its set has for decoded instructions, so that
/// those overflow with the second block and stay overflown. With blocks of one place or two they
/// would hide the cache, or show knees of their own at 16 or at 8. Where in its line the jump
/// stands varies a little: equal places would compete in the branch target buffer.
fn block(layout: Layout, i: u32, address: u64, back: u64) -> Vec<u8> {
    let noops = if layout.odd_bytes > 0 { 24 + i % 4 } else { 52 + 2 * (i % 4) };
    let mut bytes = vec![0x90; noops as usize];
    let distance = back.wrapping_sub(address + u64::from(noops) + 5) as i64 as i32;
    bytes.push(0xe9);
    bytes.extend(distance.to_le_bytes());
    bytes
}

/// The dispatcher, and the address at which blocks come back.
fn dispatch(layout: Layout, blocks: u64, address: u64) -> Result<(Vec<u8>, u64), IcedError> {
    let mut a = CodeAssembler::new(64)?;
    let (mut top, mut back) = (a.create_label(), a.create_label());
    a.mov(r8, qword_ptr(rdi))?;
    a.mov(r9, qword_ptr(rdi + 8))?;
    a.mov(r10, 6_364_136_223_846_793_005u64)?;
    a.mov(r11, blocks)?;
    a.set_label(&mut top)?;
    a.imul_2(r9, r10)?;
    a.add(r9, 1_442_695_041)?;
    a.mov(rax, r9)?;
    a.shr(rax, 33)?;
    a.imul_2(rax, r8)?;
    a.shr(rax, 31)?;
    a.imul_3(rcx, rax, layout.position(2) as i32 / 2)?;
    a.and(eax, 1)?;
    a.imul_3(eax, eax, layout.odd_bytes as i32)?;
    a.add(rcx, rax)?;
    a.add(rcx, r11)?;
    a.jmp(rcx)?;
    a.set_label(&mut back)?;
    a.dec(rsi)?;
    a.jnz(top)?;
    a.mov(qword_ptr(rdi + 8), r9)?;
    a.ret()?;
    let done = a.assemble_options(address, BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS)?;
    let back = done.label_ip(&back)?;
    Ok((done.inner.code_buffer, back))
}

impl Rig for DispatchRig {
    fn placements(&self) -> usize {
        COPIES
    }

    fn repetitions(&self, _case: usize) -> u64 {
        REPETITIONS
    }

    fn run_case(&mut self, case: usize, placement: usize, repetitions: u64) {
        let (layout, blocks) = self.cases[case];
        self.data.blocks = blocks;
        let entry = self.entries[placement % COPIES][layout];
        // SAFETY: the dispatcher reads and writes the 16 bytes of `data`, jumps to one of at most
        // MOST_BLOCKS blocks that were put there, and each of these jumps back.
        unsafe { self.pages.run(entry, (&raw mut self.data).cast(), repetitions) }
    }
}

impl HoldsClock for DispatchRig {
    fn held_clock(&mut self) -> &mut impl Clock {
        &mut self.clock
    }
}
