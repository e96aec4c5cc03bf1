//! The few `ptrace` and `waitid` calls that sampling needs, each as a safe function.
//!
//! All must be called from the thread that attached.

use std::io;
use std::mem::MaybeUninit;

use crate::model::Avma;

/// Follow threads and children, report execs, and never let a stopped program outlive us.
const OPTIONS: libc::c_int = libc::PTRACE_O_EXITKILL
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC;

/// What a look at a thread without waiting found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing to report.
    Running,
    /// It stopped with this signal and this event (0 for a signal that is being delivered).
    Stopped {
        /// The signal number.
        signal: i32,
        /// A `PTRACE_EVENT_` number, or 0.
        event: i32,
    },
    /// It has ended and been collected, or is not ours (any more).
    Gone,
}

fn request(what: libc::c_uint, tid: i32, data: usize) -> io::Result<()> {
    // SAFETY: none of the requests made through here reads or writes our memory.
    let result = unsafe { libc::ptrace(what, tid, 0_usize, data) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Attaches without stopping.
pub(super) fn seize(pid: i32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, pid, OPTIONS as usize)
}

/// Asks a running thread to stop soon.
pub(super) fn interrupt(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0)
}

/// Lets a stopped thread run on, delivering `signal` unless it is 0.
pub(super) fn resume(tid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, signal as usize)
}

/// Leaves a thread stopped, as the job control that stopped it wants, until it is continued.
pub(super) fn listen(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_LISTEN, tid, 0)
}

/// Lets a stopped thread go for good, delivering `signal` unless it is 0.
pub(super) fn detach(tid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, signal as usize)
}

/// The number that comes with an event: the new thread, or the former one.
pub(super) fn event_message(tid: i32) -> io::Result<i32> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: the kernel writes one word to a local that outlives the call.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, tid, 0_usize, &raw mut message) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    i32::try_from(message).map_err(|_| io::Error::from_raw_os_error(libc::ERANGE))
}

/// Where a stopped thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// The instruction it will execute next.
    pub(super) address: Avma,
    /// Whether it was inside a system call; `false` where the processor's registers do not tell.
    pub(super) in_kernel: bool,
}

/// Reads the position of a stopped thread.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) fn position(tid: i32) -> io::Result<Position> {
    const NT_PRSTATUS: usize = 1;
    let mut registers = MaybeUninit::<libc::user_regs_struct>::zeroed();
    let mut window = libc::iovec {
        iov_base: registers.as_mut_ptr().cast(),
        iov_len: size_of::<libc::user_regs_struct>(),
    };
    // SAFETY: the kernel writes at most `iov_len` bytes to a local that outlives the call.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, tid, NT_PRSTATUS, &raw mut window) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: plain integers, all of which were zero before the kernel filled them.
    let registers = unsafe { registers.assume_init() };
    #[cfg(target_arch = "x86_64")]
    let position = Position {
        address: Avma(registers.rip),
        // The number of the system call; -1 when an interrupt brought it into the kernel.
        in_kernel: registers.orig_rax.cast_signed() >= 0,
    };
    #[cfg(target_arch = "aarch64")]
    let position = Position { address: Avma(registers.pc), in_kernel: false };
    Ok(position)
}

/// Reads the position of a stopped thread.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn position(_tid: i32) -> io::Result<Position> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

/// Looks at a thread without waiting. The end of the child itself must stay visible to
/// [`crate::trace::child::Child`], which collects it: pass `collect_end` false for it.
pub(super) fn look(tid: i32, collect_end: bool) -> State {
    let Ok(id) = libc::id_t::try_from(tid) else {
        return State::Gone;
    };
    let ends = if collect_end { libc::WEXITED } else { 0 };
    let options = libc::WSTOPPED | libc::WNOHANG | libc::__WALL | ends;
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the kernel writes one siginfo to a local that outlives the call.
    let result = unsafe { libc::waitid(libc::P_PID, id, info.as_mut_ptr(), options) };
    if result < 0 {
        // ECHILD: gone, or never ours. EINTR does not happen with WNOHANG.
        return State::Gone;
    }
    // SAFETY: plain integers, all zero unless the kernel filled them, which says nothing happened.
    let (pid, code, status) = unsafe {
        let info = info.assume_init();
        (info.si_pid(), info.si_code, info.si_status())
    };
    match code {
        _ if pid == 0 => State::Running,
        libc::CLD_TRAPPED | libc::CLD_STOPPED => {
            State::Stopped { signal: status & 0xff, event: status >> 8 }
        }
        _ => State::Gone,
    }
}
