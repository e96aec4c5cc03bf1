//! Machine code made at run time, for kernels whose shape is a parameter of the experiment.
//!
//! Pages are writable while code is put into them and executable afterwards, never both at once,
//! and end in a page that nothing may touch. A kernel is `fn(buffer, iterations)` of the System V
//! convention: buffer in `rdi`, iterations (at least 1) in `rsi`. It may change `rax`, `rcx`,
//! `rdx`, `rsi`, `rdi`, `r8` to `r11`, the vector registers and the flags, and nothing else; what
//! it pushes it pops. A kernel that touches the upper halves of vectors ends in `vzeroupper`.

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use iced_x86::IcedError;
use iced_x86::code_asm::CodeAssembler;
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// Why a kernel could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the parts are")]
pub enum EmitError {
    /// The assembler refused an instruction: a mistake in a kernel, not in the machine.
    #[error("a kernel cannot be assembled: {0}")]
    Assemble(#[from] IcedError),
    /// The kernel gave no memory, or would not make it executable.
    #[error("cannot {action} pages for measured code: {source}")]
    Pages {
        /// `map` or `protect`
        action: &'static str,
        source: Errno,
    },
    #[error("measured code needs more than {capacity_bytes} bytes")]
    Full { capacity_bytes: usize },
}

const PAGE_BYTES: usize = crate::model::PAGE_BYTES as usize;

/// Kernels start at a chosen distance from a boundary of this many bytes.
pub const PLACEMENT_BYTES: usize = 64;

/// Where a kernel starts in its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(usize);

/// A mapping that is given back when dropped.
#[derive(Debug)]
struct OwnedPages {
    base: NonNull<c_void>,
    bytes: usize,
}

impl Drop for OwnedPages {
    fn drop(&mut self) {
        // SAFETY: `base` and `bytes` are what `mmap` gave to this value alone, and every reference
        // into the pages borrows from their owner. A failure would leak pages, nothing worse.
        let _ = unsafe { munmap(self.base, self.bytes) };
    }
}

/// Pages under construction: writable, not executable.
#[derive(Debug)]
pub struct CodeWriter {
    mapping: OwnedPages,
    capacity_bytes: usize,
    used_bytes: usize,
}

impl CodeWriter {
    /// Maps room for `capacity_bytes` of code and a page behind it that nothing may touch.
    ///
    /// # Errors
    /// [`EmitError::Pages`] when the kernel gives no memory.
    pub fn new(capacity_bytes: usize) -> Result<Self, EmitError> {
        let capacity_bytes = capacity_bytes.next_multiple_of(PAGE_BYTES).max(PAGE_BYTES);
        let bytes = capacity_bytes + PAGE_BYTES;
        let failed = |action| move |source| EmitError::Pages { action, source };
        let length = NonZeroUsize::new(bytes).unwrap_or(NonZeroUsize::MIN);
        let writable = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: an anonymous private mapping at an address of the kernel's choice; nothing else
        // can refer to it.
        let base = unsafe { mmap_anonymous(None, length, writable, MapFlags::MAP_PRIVATE) }
            .map_err(failed("map"))?;
        let mapping = OwnedPages { base, bytes };
        // SAFETY: the last page lies inside the mapping just made, and holds nothing yet.
        unsafe {
            let guard = mapping.base.byte_add(capacity_bytes);
            mprotect(guard, PAGE_BYTES, ProtFlags::PROT_NONE).map_err(failed("protect"))?;
        }
        Ok(Self { mapping, capacity_bytes, used_bytes: 0 })
    }

    /// Adds a kernel that starts `start_bytes` (modulo [`PLACEMENT_BYTES`]) behind a boundary.
    /// `body` is followed by a `ret`.
    ///
    /// # Errors
    /// [`EmitError::Assemble`] for instructions that do not exist, [`EmitError::Full`].
    pub fn add(
        &mut self,
        start_bytes: usize,
        body: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>,
    ) -> Result<Entry, EmitError> {
        let mut asm = CodeAssembler::new(64)?;
        body(&mut asm)?;
        asm.ret()?;
        let at = self.used_bytes.next_multiple_of(PLACEMENT_BYTES) + start_bytes % PLACEMENT_BYTES;
        let entry = Entry(at);
        let code = asm.assemble(self.address(entry, 0))?;
        self.put(entry, 0, &code)?;
        self.used_bytes = at + code.len();
        Ok(entry)
    }

    /// Puts aside `bytes` of code from a page boundary on, zeroed; where they start.
    ///
    /// # Errors
    /// [`EmitError::Full`].
    pub fn reserve(&mut self, bytes: usize) -> Result<Entry, EmitError> {
        let at = self.used_bytes.next_multiple_of(PAGE_BYTES);
        if at + bytes > self.capacity_bytes {
            return Err(EmitError::Full { capacity_bytes: self.capacity_bytes });
        }
        self.used_bytes = at + bytes;
        Ok(Entry(at))
    }

    /// The entry `offset` bytes behind another one.
    pub fn inside(&self, entry: Entry, offset: usize) -> Entry {
        Entry(entry.0 + offset)
    }

    /// The address that the byte `offset` behind `entry` will have.
    pub fn address(&self, entry: Entry, offset: usize) -> u64 {
        self.mapping.base.as_ptr() as u64 + (entry.0 + offset) as u64
    }

    /// Copies finished machine code to `offset` behind `entry`.
    ///
    /// # Errors
    /// [`EmitError::Full`] when it does not fit.
    pub fn put(&mut self, entry: Entry, offset: usize, code: &[u8]) -> Result<(), EmitError> {
        let at = entry.0 + offset;
        if at + code.len() > self.capacity_bytes {
            return Err(EmitError::Full { capacity_bytes: self.capacity_bytes });
        }
        // SAFETY: the range lies inside the writable part of this value's own mapping, and `code`
        // is another allocation.
        unsafe {
            let target = self.mapping.base.as_ptr().cast::<u8>().add(at);
            std::ptr::copy_nonoverlapping(code.as_ptr(), target, code.len());
        }
        Ok(())
    }

    /// Makes the pages executable and read-only.
    ///
    /// # Errors
    /// [`EmitError::Pages`] where a security policy forbids it.
    pub fn seal(self) -> Result<CodePages, EmitError> {
        let executable = ProtFlags::PROT_READ | ProtFlags::PROT_EXEC;
        // SAFETY: the pages belong to this value, which is consumed, so nobody can write any more.
        unsafe { mprotect(self.mapping.base, self.capacity_bytes, executable) }
            .map_err(|source| EmitError::Pages { action: "protect", source })?;
        Ok(CodePages { mapping: self.mapping })
    }
}

#[derive(Debug)]
pub struct CodePages {
    mapping: OwnedPages,
}

impl CodePages {
    /// Runs the kernel at `entry`, which must come from the writer of these pages.
    ///
    /// # Safety
    /// The kernel obeys the conventions of this module, this processor has every instruction in
    /// it, and every byte that it reads or writes relative to `buffer` is valid for that.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn run(&self, entry: Entry, buffer: *mut u8, iterations: u64) {
        // SAFETY: the entry is the first byte of a kernel in executable pages; the signature is
        // that of the module's convention.
        unsafe {
            let start = self.mapping.base.as_ptr().cast::<u8>().add(entry.0);
            let kernel: extern "sysv64" fn(*mut u8, u64) = std::mem::transmute(start);
            kernel(buffer, iterations.max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::code_asm::*;

    #[test]
    fn kernels_start_where_they_were_told_to() {
        let mut writer = CodeWriter::new(1).unwrap();
        let first = writer.add(0, |a| a.nop()).unwrap();
        let second = writer.add(13, |a| a.nop()).unwrap();
        assert_eq!((first.0 % PLACEMENT_BYTES, second.0 % PLACEMENT_BYTES), (0, 13));
        assert!(second.0 > first.0);
    }

    #[test]
    fn too_much_code_is_an_error() {
        let mut writer = CodeWriter::new(PAGE_BYTES).unwrap();
        let many = |a: &mut CodeAssembler| (0..PAGE_BYTES).try_for_each(|_| a.nop());
        assert!(matches!(writer.add(0, many), Err(EmitError::Full { .. })));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_kernel_runs_as_often_as_it_was_told_to() {
        let mut writer = CodeWriter::new(PAGE_BYTES).unwrap();
        let entry = writer
            .add(7, |a| {
                let mut top = a.create_label();
                a.set_label(&mut top)?;
                a.add(qword_ptr(rdi), 3)?;
                a.dec(rsi)?;
                a.jnz(top)
            })
            .unwrap();
        let pages = writer.seal().unwrap();
        let mut cell = 0u64;
        // SAFETY: the kernel above touches the eight bytes of `cell` and scratch registers only.
        unsafe { pages.run(entry, (&raw mut cell).cast(), 5) };
        assert_eq!(cell, 15);
    }
}
