//! The registers of a stopped thread, by the decoder's names.

use iced_x86::Register;

use crate::run::tracee;

/// Enough for every component that a processor has so far.
const AREA_BYTES: usize = 16 << 10;
/// Components of the `XSAVE` area, by the processor's numbering.
const AVX: u32 = 2;
const OPMASK: u32 = 5;
const ZMM_HIGH: u32 = 6;
const ZMM_16: u32 = 7;
const TILE_CONFIGURATION: u32 = 17;
const COMPONENTS: usize = 18;

/// Where each component lies in the standard layout; zero for one that this processor lacks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    offset: [usize; COMPONENTS],
}

impl Layout {
    /// That of this processor.
    pub(super) fn detect() -> Self {
        let mut offset = [0; COMPONENTS];
        for component in [AVX, OPMASK, ZMM_HIGH, ZMM_16, TILE_CONFIGURATION] {
            offset[component as usize] =
                std::arch::x86_64::__cpuid_count(0xd, component).ebx as usize;
        }
        Self { offset }
    }
}

/// The vector and mask registers, read only when an instruction asks for them.
pub(super) struct Extended {
    layout: Layout,
    area: Vec<u8>,
}

impl Extended {
    /// For threads on this processor.
    pub(super) fn new() -> Self {
        Self { layout: Layout::detect(), area: vec![0; AREA_BYTES] }
    }

    /// Reads those of a stopped thread; all zero when the kernel refuses.
    pub(super) fn read(&mut self, tid: i32) {
        let written = tracee::extended_state(tid, &mut self.area).unwrap_or(0);
        self.area[written..].fill(0);
    }

    fn part(&self, component: u32, index: usize, size: usize) -> &[u8] {
        let offset = self.layout.offset[component as usize];
        let start = offset + index * size;
        match offset {
            0 => &[],
            _ => self.area.get(start..start + size).unwrap_or(&[]),
        }
    }

    /// The bytes of a vector register, all 64 of them; of an MMX register, the first eight.
    pub(super) fn vector(&self, register: Register) -> [u8; 64] {
        let mut bytes = [0; 64];
        let mut put = |at: usize, from: &[u8]| bytes[at..at + from.len()].copy_from_slice(from);
        let index = register.number();
        if register.is_mm() {
            put(0, &self.area[32 + 16 * index..][..8]);
        } else if index < 16 {
            put(0, &self.area[160 + 16 * index..][..16]);
            put(16, self.part(AVX, index, 16));
            put(32, self.part(ZMM_HIGH, index, 32));
        } else {
            put(0, self.part(ZMM_16, index - 16, 64));
        }
        bytes
    }

    /// Rows of a tile register, and the bytes of each, as the program has configured it.
    pub(super) fn tile_shape(&self, register: Register) -> (u64, u32) {
        const BYTES_OF_TILES: usize = 16;
        const ROWS_OF_TILES: usize = 48;
        let configuration = self.part(TILE_CONFIGURATION, 0, 64);
        let byte = |at: usize| configuration.get(at).copied().unwrap_or(0);
        let tile = register.number();
        let bytes = [byte(BYTES_OF_TILES + 2 * tile), byte(BYTES_OF_TILES + 2 * tile + 1)];
        (byte(ROWS_OF_TILES + tile).into(), u16::from_le_bytes(bytes).into())
    }

    pub(super) fn mask(&self, register: Register) -> u64 {
        let bytes = self.part(OPMASK, register.number(), 8);
        bytes.try_into().map_or(0, u64::from_le_bytes)
    }
}

/// A general register, or the base of a segment; `None` for anything else.
pub(super) fn general(registers: &libc::user_regs_struct, register: Register) -> Option<u64> {
    use Register as R;
    let full = match register.full_register() {
        R::RAX => registers.rax,
        R::RCX => registers.rcx,
        R::RDX => registers.rdx,
        R::RBX => registers.rbx,
        R::RSP => registers.rsp,
        R::RBP => registers.rbp,
        R::RSI => registers.rsi,
        R::RDI => registers.rdi,
        R::R8 => registers.r8,
        R::R9 => registers.r9,
        R::R10 => registers.r10,
        R::R11 => registers.r11,
        R::R12 => registers.r12,
        R::R13 => registers.r13,
        R::R14 => registers.r14,
        R::R15 => registers.r15,
        R::RIP => registers.rip,
        R::FS => registers.fs_base,
        R::GS => registers.gs_base,
        R::CS | R::DS | R::ES | R::SS => 0,
        _ => return None,
    };
    Some(match register.size() {
        _ if register.is_segment_register() => full,
        8 => full,
        4 => full & 0xffff_ffff,
        2 => full & 0xffff,
        _ => full & 0xff,
    })
}
