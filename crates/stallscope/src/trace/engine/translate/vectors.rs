//! Vector and mask registers of a stopped thread.

use std::arch::x86_64::__cpuid_count;
use std::io;

use iced_x86::Register;

/// The extended state as the kernel hands it out: the layout of `xsave` without compaction.
pub(super) struct Vectors {
    bytes: Vec<u8>,
    offsets: Offsets,
}

/// Where the parts of the state begin.
#[derive(Clone, Copy)]
struct Offsets {
    /// Bits 128 to 255 of the first sixteen.
    high_ymm: usize,
    masks: usize,
    /// Bits 256 to 511 of the first sixteen.
    high_zmm: usize,
    /// All of the second sixteen.
    upper: usize,
}

impl Offsets {
    fn here() -> Self {
        let at = |component| __cpuid_count(0xd, component).ebx as usize;
        Self { high_ymm: at(2), masks: at(5), high_zmm: at(6), upper: at(7) }
    }
}

impl Vectors {
    /// Reads them.
    pub(super) fn of(pid: i32) -> io::Result<Self> {
        const NT_X86_XSTATE: usize = 0x202;
        let mut bytes = vec![0_u8; 16384];
        let mut window = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: the kernel writes at most `iov_len` bytes to a vector that outlives the call.
        let result =
            unsafe { libc::ptrace(libc::PTRACE_GETREGSET, pid, NT_X86_XSTATE, &raw mut window) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        bytes.truncate(window.iov_len);
        Ok(Self { bytes, offsets: Offsets::here() })
    }

    fn part(&self, at: usize, length: usize) -> &[u8] {
        self.bytes.get(at..at + length).unwrap_or_default()
    }

    /// All 64 bytes of a vector register; what the processor does not have is 0.
    pub(super) fn vector(&self, register: Register) -> [u8; 64] {
        let mut all = [0; 64];
        let number = register.number();
        let Offsets { high_ymm, high_zmm, upper, .. } = self.offsets;
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(room) = all.get_mut(at..at + bytes.len()) {
                room.copy_from_slice(bytes);
            }
        };
        if number < 16 {
            put(0, self.part(160 + 16 * number, 16));
            put(16, self.part(high_ymm + 16 * number, 16));
            put(32, self.part(high_zmm + 32 * number, 32));
        } else {
            put(0, self.part(upper + 64 * (number - 16), 64));
        }
        all
    }

    /// A mask register.
    pub(super) fn mask(&self, register: Register) -> u64 {
        let at = self.offsets.masks + 8 * register.number();
        self.part(at, 8).try_into().map_or(0, u64::from_le_bytes)
    }
}
