//! Memory. Decoded functions come and go by the thousand: a tenth of a scan is asking for memory, so
//! that it comes from mimalloc. Where there is no more (`ulimit -v`, a container), that is said, and
//! it ends with the exit code of bad input, not with an abort.

use std::alloc::{GlobalAlloc, Layout};

use mimalloc::MiMalloc;

/// Gives memory, or says that there is none and ends.
pub struct OrSay;

/// The sentence and the end. Nothing here may ask for memory.
fn checked(given: *mut u8) -> *mut u8 {
    const WORDS: &str = "error: out of memory: a limit on this process (ulimit -v, a container) \
        leaves too little for this input; raise it, or look at fewer files at once\n";
    if given.is_null() {
        // SAFETY: writes bytes of a constant, and ends. Results are written whole or not at all,
        // and the kernel ends our children with us.
        unsafe {
            libc::write(libc::STDERR_FILENO, WORDS.as_ptr().cast(), WORDS.len());
            libc::_exit(2);
        }
    }
    given
}

// SAFETY: all calls are mimalloc's, with what we were given; where it has no memory, none returns.
unsafe impl GlobalAlloc for OrSay {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as promised by our caller.
        checked(unsafe { MiMalloc.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as promised by our caller.
        checked(unsafe { MiMalloc.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as promised by our caller.
        checked(unsafe { MiMalloc.realloc(old, layout, size) })
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: as promised by our caller.
        unsafe { MiMalloc.dealloc(old, layout) }
    }
}
