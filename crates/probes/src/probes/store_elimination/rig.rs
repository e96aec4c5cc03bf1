//! Regions of this machine's memory, filled by machine code.
//!
//! One line of store code serves every value: what is stored is data. The kernel is given a block
//! of four words: where to start, the value of even lines, that of odd lines, and unused.

use iced_x86::IcedError;
use iced_x86::code_asm::*;

use super::Fill;
use super::sampling::Filler;
use crate::clock::{Clock, HardwareClock, HoldsClock};
use crate::probes::emit::{CodePages, CodeWriter, EmitError, Entry};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    Sse,
    Avx2,
    /// 64 bytes; in a child process only.
    Avx512,
}

/// Two lines per turn.
const TURN_BYTES: usize = 128;

pub struct HardwareFiller {
    clock: HardwareClock,
    pages: CodePages,
    dense: Entry,
    sparse: Entry,
    region: Vec<Lines>,
}

#[derive(Clone)]
#[repr(C, align(4096))]
struct Lines([u8; 4096]);

#[repr(C)]
struct Order {
    start: *mut u8,
    even: u32,
    odd: u32,
}

impl HardwareFiller {
    /// Makes the kernels; the processor must have stores of that width.
    pub fn new(clock: HardwareClock, width: Width) -> Result<Self, EmitError> {
        let mut writer = CodeWriter::new(4096)?;
        let dense = writer.add(0, |a| dense(width, a))?;
        let sparse = writer.add(0, sparse)?;
        Ok(Self { clock, pages: writer.seal()?, dense, sparse, region: Vec::new() })
    }
}

fn dense(width: Width, a: &mut CodeAssembler) -> Result<(), IcedError> {
    if width == Width::Avx512 {
        a.lfence()?;
    }
    a.mov(rax, qword_ptr(rdi))?;
    match width {
        Width::Sse => {
            a.movd(xmm0, dword_ptr(rdi + 8))?;
            a.pshufd(xmm0, xmm0, 0)?;
            a.movd(xmm1, dword_ptr(rdi + 12))?;
            a.pshufd(xmm1, xmm1, 0)?;
        }
        Width::Avx2 => {
            a.vbroadcastss(ymm0, dword_ptr(rdi + 8))?;
            a.vbroadcastss(ymm1, dword_ptr(rdi + 12))?;
        }
        Width::Avx512 => {
            a.vbroadcastss(zmm0, dword_ptr(rdi + 8))?;
            a.vbroadcastss(zmm1, dword_ptr(rdi + 12))?;
        }
    }
    let mut top = a.create_label();
    a.set_label(&mut top)?;
    let step = match width {
        Width::Sse => 16,
        Width::Avx2 => 32,
        Width::Avx512 => 64,
    };
    for at in (0..TURN_BYTES as i32).step_by(step) {
        let odd = at >= 64;
        match (width, odd) {
            (Width::Sse, false) => a.movdqu(xmmword_ptr(rax + at), xmm0)?,
            (Width::Sse, true) => a.movdqu(xmmword_ptr(rax + at), xmm1)?,
            (Width::Avx2, false) => a.vmovdqu(ymmword_ptr(rax + at), ymm0)?,
            (Width::Avx2, true) => a.vmovdqu(ymmword_ptr(rax + at), ymm1)?,
            (Width::Avx512, false) => a.vmovdqu64(zmmword_ptr(rax + at), zmm0)?,
            (Width::Avx512, true) => a.vmovdqu64(zmmword_ptr(rax + at), zmm1)?,
        }
    }
    a.add(rax, TURN_BYTES as i32)?;
    a.dec(rsi)?;
    a.jnz(top)?;
    if width != Width::Sse {
        a.vzeroupper()?;
    }
    Ok(())
}

/// One integer in each line.
fn sparse(a: &mut CodeAssembler) -> Result<(), IcedError> {
    a.mov(rax, qword_ptr(rdi))?;
    a.mov(ecx, dword_ptr(rdi + 8))?;
    let mut top = a.create_label();
    a.set_label(&mut top)?;
    a.mov(dword_ptr(rax), ecx)?;
    a.mov(dword_ptr(rax + 64), ecx)?;
    a.add(rax, TURN_BYTES as i32)?;
    a.dec(rsi)?;
    a.jnz(top)
}

impl Filler for HardwareFiller {
    fn prepare(&mut self, bytes: usize) {
        // Given back first, so that two regions never exist at once; touched, so that no page fault
        // falls into a sample.
        self.region = Vec::new();
        self.region = vec![Lines([7; 4096]); bytes.div_ceil(4096)];
    }

    fn fill(&mut self, fill: Fill, start: usize, bytes: usize, passes: u64) {
        let (even, odd, entry) = match fill {
            Fill::Zero => (0, 0, self.dense),
            Fill::One | Fill::Shorter => (1, 1, self.dense),
            Fill::Two => (2, 2, self.dense),
            Fill::Alternating => (0, 1, self.dense),
            Fill::SparseOne => (1, 1, self.sparse),
            Fill::SparseZero => (0, 0, self.sparse),
        };
        let held = self.region.len() * 4096;
        let bytes = bytes.min(held.saturating_sub(start));
        let turns = match fill {
            Fill::Shorter => bytes / TURN_BYTES * 19 / 20,
            _ => bytes / TURN_BYTES,
        };
        if turns == 0 {
            return;
        }
        for _ in 0..passes {
            let first = self.region.as_mut_ptr().cast::<u8>();
            // SAFETY: `start + turns * TURN_BYTES` lies inside the region, as computed above; the
            // kernels read the order and write nothing else.
            unsafe {
                let mut order = Order { start: first.add(start), even, odd };
                self.pages.run(entry, (&raw mut order).cast(), turns as u64);
            }
        }
    }

    fn read(&mut self, bytes: usize) {
        let pages = self.region.iter().take(bytes / size_of::<Lines>());
        let first = pages.flat_map(|page| page.0.chunks_exact(64)).map(|line| line[0]);
        std::hint::black_box(first.fold(0, u8::wrapping_add));
    }
}

impl HoldsClock for HardwareFiller {
    fn held_clock(&mut self) -> &mut impl Clock {
        &mut self.clock
    }
}
