//! One clock event on one processor and the memory in which the kernel leaves its records.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use perf_event_open_sys::bindings as sys;

use super::records::REGISTERS;
use super::stacks::STACK_BYTES;
use crate::clock::perf::open_event;

/// A power of two of pages. At 10 kHz a sample's 32 bytes fill it in 0.4 s; an ordinary user may
/// lock 512 KiB per processor, this and what stacks need together.
const DATA_BYTES: usize = 128 << 10;
/// Fifteen stacks: one comes in a millisecond.
const STACK_DATA_BYTES: usize = 256 << 10;

/// What a clock brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Samples in user code, and what happens to the process.
    User,
    /// Samples in the kernel as well, which not everybody may ask for.
    UserAndKernel,
    /// Samples in user code with registers and stack, and nothing else.
    Stacks,
}

/// Opens a `cpu-clock` event for a process and all it will start, counting from its next exec. `cpu` -1 means any, which cannot
/// be combined with a ring.
///
/// # Errors
/// The kernel's refusal.
pub(super) fn open_clock_event(
    pid: i32,
    cpu: i32,
    period_ns: u64,
    wanted: Wanted,
) -> io::Result<OwnedFd> {
    let has_stacks = wanted == Wanted::Stacks;
    let mut attr = sys::perf_event_attr {
        type_: sys::PERF_TYPE_SOFTWARE,
        config: sys::PERF_COUNT_SW_CPU_CLOCK.into(),
        sample_type: (sys::PERF_SAMPLE_IP | sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME).into(),
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = period_ns;
    attr.set_disabled(1);
    attr.set_enable_on_exec(1);
    attr.set_inherit(1);
    attr.set_exclude_kernel((wanted != Wanted::UserAndKernel).into());
    attr.set_exclude_hv(1);
    for set in [
        sys::perf_event_attr::set_mmap,
        sys::perf_event_attr::set_mmap2,
        sys::perf_event_attr::set_comm,
        sys::perf_event_attr::set_comm_exec,
        sys::perf_event_attr::set_task,
    ] {
        set(&mut attr, (!has_stacks).into());
    }
    if has_stacks {
        attr.sample_type |= u64::from(sys::PERF_SAMPLE_REGS_USER | sys::PERF_SAMPLE_STACK_USER);
        attr.sample_regs_user = REGISTERS.iter().map(|(bit, _)| 1 << bit).sum();
        attr.sample_stack_user = STACK_BYTES as u32;
    }
    attr.set_sample_id_all(1);
    Ok(open_event(&mut attr, pid, cpu)?)
}

/// The ring of one event. Records are published by the kernel whole and in order.
pub(super) struct Ring {
    _event: OwnedFd,
    page: NonNull<sys::perf_event_mmap_page>,
    page_bytes: usize,
    data_bytes: usize,
}

impl Ring {
    /// Opens the event and maps its ring.
    ///
    /// # Errors
    /// The kernel's refusal of either.
    pub(super) fn open(pid: i32, cpu: i32, period_ns: u64, wanted: Wanted) -> io::Result<Self> {
        let event = open_clock_event(pid, cpu, period_ns, wanted)?;
        let data_bytes = if wanted == Wanted::Stacks { STACK_DATA_BYTES } else { DATA_BYTES };
        // SAFETY: no memory involved.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page_bytes = usize::try_from(page_bytes).map_err(|_| io::Error::last_os_error())?;
        let bytes = NonZeroUsize::new(page_bytes + data_bytes).unwrap_or(NonZeroUsize::MIN);
        let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a fresh mapping, at an address of the kernel's choice, of a descriptor that we own.
        let start = unsafe { mmap(None, bytes, rights, MapFlags::MAP_SHARED, &event, 0) }?;
        Ok(Self { _event: event, page: start.cast(), page_bytes, data_bytes })
    }

    /// Moves all published records to the end of `out` and gives their room back to the kernel.
    pub(super) fn drain_into(&mut self, out: &mut Vec<u8>) {
        let page = self.page.as_ptr();
        // SAFETY: the first page of the mapping is this structure; the kernel writes `data_head`
        // and reads `data_tail` concurrently, hence atomics, and both are aligned words.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*page).data_head),
                AtomicU64::from_ptr(&raw mut (*page).data_tail),
            )
        };
        let end = head.load(Ordering::Acquire);
        let start = tail.load(Ordering::Relaxed);
        let len = (end.wrapping_sub(start) as usize).min(self.data_bytes);
        let from = start as usize % self.data_bytes;
        let before_wrap = len.min(self.data_bytes - from);
        // SAFETY: the data follow the first page and are `data_bytes` long; both pieces lie within,
        // and the kernel does not write between tail and head.
        unsafe {
            let data = self.page.as_ptr().cast::<u8>().add(self.page_bytes);
            out.extend_from_slice(std::slice::from_raw_parts(data.add(from), before_wrap));
            out.extend_from_slice(std::slice::from_raw_parts(data, len - before_wrap));
        }
        tail.store(end, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `open` made, and nothing borrows from it.
        let _ = unsafe { munmap(self.page.cast(), self.page_bytes + self.data_bytes) };
    }
}
