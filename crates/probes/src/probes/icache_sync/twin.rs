//! The same memory twice: once to write, once to execute.

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::unistd::ftruncate;

use crate::probes::emit::EmitError;

/// Two mappings of one piece of memory; neither is both writable and executable.
#[derive(Debug)]
pub struct TwinPages {
    writable: NonNull<c_void>,
    executable: NonNull<c_void>,
    bytes: NonZeroUsize,
}

impl TwinPages {
    /// Makes room for `bytes` of code, all zero.
    pub fn new(bytes: usize) -> Result<Self, EmitError> {
        let failed = |source| EmitError::Pages { action: "map", source };
        let bytes =
            NonZeroUsize::new(bytes.next_multiple_of(4096).max(4096)).unwrap_or(NonZeroUsize::MIN);
        let file = memfd_create(c"stallscope-code", MFdFlags::MFD_CLOEXEC).map_err(failed)?;
        ftruncate(&file, bytes.get() as i64).map_err(failed)?;
        let writable = map(&file, bytes, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)?;
        match map(&file, bytes, ProtFlags::PROT_READ | ProtFlags::PROT_EXEC) {
            Ok(executable) => Ok(Self { writable, executable, bytes }),
            Err(error) => {
                // SAFETY: made above, and nobody else knows it.
                let _ = unsafe { munmap(writable, bytes.get()) };
                Err(error)
            }
        }
    }

    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// Where code is executed and read.
    pub fn executable(&self) -> *mut u8 {
        self.executable.as_ptr().cast()
    }

    /// Writes code from the start on; what does not fit is left out.
    pub fn write(&mut self, code: &[u8]) {
        let n = code.len().min(self.bytes());
        // SAFETY: `n` bytes fit into the writable mapping, which is this value's own; the code in
        // it is not being executed, because that takes `&self` and this takes `&mut self`.
        unsafe {
            std::ptr::copy_nonoverlapping(code.as_ptr(), self.writable.as_ptr().cast(), n);
        }
    }
}

fn map(
    file: &OwnedFd,
    bytes: NonZeroUsize,
    access: ProtFlags,
) -> Result<NonNull<c_void>, EmitError> {
    // SAFETY: a shared mapping of a file that only this process knows, at an address of the
    // kernel's choice.
    unsafe { mmap(None, bytes, access, MapFlags::MAP_SHARED, file, 0) }
        .map_err(|source| EmitError::Pages { action: "map", source })
}

impl Drop for TwinPages {
    fn drop(&mut self) {
        for base in [self.writable, self.executable] {
            // SAFETY: both mappings belong to this value alone. A failure would leak pages.
            let _ = unsafe { munmap(base, self.bytes.get()) };
        }
    }
}
