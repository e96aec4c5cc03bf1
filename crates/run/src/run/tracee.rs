//! The `ptrace` and `waitid` calls that sampling and following need, each as a safe function.
//!
//! All must be called from the thread that attached.

use std::io;
use std::mem::MaybeUninit;

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::{Pid, geteuid};

use crate::model::{Avma, PAGE_BYTES};

/// What a look at a thread without waiting found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs, or waits in the kernel.
    Running,
    /// It stopped with this signal and this event (0 for a signal that is being delivered).
    Stopped {
        /// `SIGTRAP` for events.
        signal: i32,
        /// A `PTRACE_EVENT_` number, or 0.
        event: i32,
    },
    /// It has ended and been collected, or is not ours (any more).
    Gone,
}

/// What `ptrace` takes its request as: another type in every C library.
#[cfg(target_env = "musl")]
pub type Request = libc::c_int;
/// What `ptrace` takes its request as: another type in every C library.
#[cfg(not(target_env = "musl"))]
pub type Request = libc::c_uint;

fn request(what: Request, tid: i32, data: usize) -> io::Result<()> {
    // SAFETY: none of the requests made through here reads or writes our memory.
    Errno::result(unsafe { libc::ptrace(what, tid, 0_usize, data) })?;
    Ok(())
}

/// What the kernel lets programs trace, as a digit; empty where it does not say.
pub fn scope() -> String {
    std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default()
}

/// Why a process that ran before cannot be traced, and what to do about it; the process is the subject.
pub fn why_not_ours(cause: &io::Error) -> String {
    format!("cannot be traced ({cause}): {}", refusal(scope().trim(), geteuid().is_root()))
}

fn refusal(scope: &str, is_root: bool) -> &'static str {
    match (scope, is_root) {
        ("3", _) => {
            "kernel.yama.ptrace_scope is 3, which lasts until the machine is started anew with another setting"
        }
        // To be root is not all that counts: of its rights a container leaves what it likes.
        (_, true) => {
            "the kernel refuses that to this root, who lacks a capability (CAP_SYS_PTRACE, or one that the process \
             has), or is in another user namespace; run stallscope outside the container, or start that with \
             --cap-add=SYS_PTRACE"
        }
        ("1", false) => {
            "kernel.yama.ptrace_scope is 1, which lets programs trace only what they start; run as root, or set it \
             to 0 (sysctl kernel.yama.ptrace_scope=0)"
        }
        (_, false) => "it is another user's, or a container forbids it; run as root",
    }
}

/// Attaches without stopping, with these `PTRACE_O_` options.
pub fn seize(pid: i32, options: libc::c_int) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, pid, options as usize)
}

/// Gives a stopped thread other `PTRACE_O_` options; what it starts later has them, too.
pub fn set_options(tid: i32, options: libc::c_int) -> io::Result<()> {
    request(libc::PTRACE_SETOPTIONS, tid, options as usize)
}

/// Asks a seized thread to stop; it does so soon, not at once.
pub fn interrupt(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0)
}

/// Lets a stopped thread run on, delivering `signal` unless it is 0.
pub fn resume(tid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, signal as usize)
}

/// As [`resume`], until the thread next enters or leaves the kernel by a system call.
pub fn resume_to_system_call(tid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, tid, signal as usize)
}

/// As [`resume`], for one instruction.
pub fn step(tid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_SINGLESTEP, tid, signal as usize)
}

/// As [`resume`], to the next taken branch where the processor lets the kernel ask for that; else
/// for one instruction, and no error says so.
#[cfg(target_arch = "x86_64")]
pub fn step_branch(tid: i32) -> io::Result<()> {
    const PTRACE_SINGLEBLOCK: Request = 33;
    request(PTRACE_SINGLEBLOCK, tid, 0)
}

/// Leaves a thread stopped, as the job control that stopped it wants, until it is continued.
pub fn listen(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_LISTEN, tid, 0)
}

/// Lets a stopped thread go for good, delivering `signal` unless it is 0.
pub fn detach(tid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, signal as usize)
}

/// The number that comes with an event: the new thread, or the former one.
pub fn event_message(tid: i32) -> io::Result<i32> {
    let message = ptrace::getevent(Pid::from_raw(tid))?;
    i32::try_from(message).map_err(|_| io::Error::from_raw_os_error(libc::ERANGE))
}

/// Where a stopped thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The instruction that it executes next.
    pub address: Avma,
    /// Whether it was inside a system call; `false` where the processor's registers do not tell.
    pub in_kernel: bool,
}

/// Where a stopped thread is.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub fn position(tid: i32) -> io::Result<Position> {
    const NT_PRSTATUS: usize = 1;
    let mut registers = MaybeUninit::<libc::user_regs_struct>::zeroed();
    let mut window = libc::iovec {
        iov_base: registers.as_mut_ptr().cast(),
        iov_len: size_of::<libc::user_regs_struct>(),
    };
    // SAFETY: the kernel writes at most `iov_len` bytes to a local that outlives the call.
    Errno::result(unsafe {
        libc::ptrace(libc::PTRACE_GETREGSET, tid, NT_PRSTATUS, &raw mut window)
    })?;
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

/// Not on this processor.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn position(_tid: i32) -> io::Result<Position> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

/// Looks at a thread without waiting. The end of the child itself must stay visible to
/// [`crate::run::child::Child`], which collects it: pass `collect_end` false for it.
pub fn look(tid: i32, collect_end: bool) -> State {
    let Ok(id) = libc::id_t::try_from(tid) else {
        return State::Gone;
    };
    let ends = if collect_end { libc::WEXITED } else { 0 };
    let options = libc::WSTOPPED | libc::WNOHANG | libc::__WALL | ends;
    // ECHILD: gone, or never ours. EINTR does not happen with WNOHANG.
    let Ok(info) = waited(libc::P_PID, id, options) else { return State::Gone };
    // SAFETY: plain integers.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    match info.si_code {
        _ if pid == 0 => State::Running,
        libc::CLD_TRAPPED | libc::CLD_STOPPED => {
            State::Stopped { signal: status & 0xff, event: status >> 8 }
        }
        _ => State::Gone,
    }
}

/// What has happened to any thread that this thread of ours traces or has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// No thread has stopped or ended.
    None,
    /// A thread waits to be resumed.
    Stopped {
        /// Which.
        tid: i32,
        /// `SIGTRAP` for events.
        signal: i32,
        /// A `PTRACE_EVENT_` number, or 0.
        event: i32,
    },
    /// A thread has ended and been collected.
    Gone {
        /// Which.
        tid: i32,
    },
    /// The process has ended with all its threads, and can be collected.
    Ended,
}

/// Which of the threads that this one traces, or of its children, has news, and the `si_code` of it; 0 when none has and
/// `options` has `WNOHANG`. The news stays where it is.
pub fn first_news(options: libc::c_int) -> Result<(i32, i32), Errno> {
    // Without `__WNOTHREAD` we would take away what other threads of ours wait for.
    let options =
        options | libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT | libc::__WALL | libc::__WNOTHREAD;
    let info = waited(libc::P_ALL, 0, options)?;
    // SAFETY: a plain integer.
    Ok((unsafe { info.si_pid() }, info.si_code))
}

/// What `waitid` tells; all zero where nothing has happened.
fn waited(
    whom: libc::idtype_t,
    id: libc::id_t,
    options: libc::c_int,
) -> Result<libc::siginfo_t, Errno> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the kernel writes one siginfo to a local that outlives the call.
    Errno::result(unsafe { libc::waitid(whom, id, info.as_mut_ptr(), options) })?;
    // SAFETY: plain integers, all of which were zero before the kernel filled them.
    Ok(unsafe { info.assume_init() })
}

/// Looks for news without waiting. The end of `leader` is left to be collected.
pub fn news(leader: i32) -> News {
    let Ok((tid, code)) = first_news(libc::WNOHANG) else { return News::Ended };
    match (tid, code) {
        (0, _) => News::None,
        (_, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED) if tid == leader => News::Ended,
        _ => match look(tid, true) {
            State::Running => News::None,
            State::Stopped { signal, event } => News::Stopped { tid, signal, event },
            State::Gone => News::Gone { tid },
        },
    }
}

/// Sleeps until this thread stops or ends, without taking the news away.
pub fn await_stop(tid: i32) {
    let Ok(id) = libc::id_t::try_from(tid) else { return };
    let options = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT | libc::__WALL;
    let _ = waited(libc::P_PID, id, options);
}

/// The general registers of a stopped thread.
#[cfg(target_arch = "x86_64")]
pub fn registers(tid: i32) -> io::Result<libc::user_regs_struct> {
    Ok(ptrace::getregs(Pid::from_raw(tid))?)
}

/// The number of the system call at which a thread is stopped, and whether it is about to enter the kernel; none of a
/// 32-bit program, whose numbers are others.
#[cfg(target_arch = "x86_64")]
pub fn call_number(tid: i32) -> Option<(u64, bool)> {
    // What the kernel puts there before it knows of any result.
    const NO_RESULT: u64 = (-libc::ENOSYS as i64).cast_unsigned();
    registers_of_64_bits(tid).map(|r| (r.orig_rax, r.rax == NO_RESULT))
}

/// As above, which is asked for on x86-64 only so far.
#[cfg(not(target_arch = "x86_64"))]
pub fn call_number(_tid: i32) -> Option<(u64, bool)> {
    None
}

/// The general registers of a stopped thread; none of a 32-bit program.
#[cfg(target_arch = "x86_64")]
pub fn registers_of_64_bits(tid: i32) -> Option<libc::user_regs_struct> {
    const CODE_OF_64_BITS: u64 = 0x33;
    registers(tid).ok().filter(|r| r.cs == CODE_OF_64_BITS)
}

/// Up to so many bytes of a stopped thread's memory, as far as they can be read without a gap.
pub fn read_memory(tid: i32, start: Avma, most_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; most_bytes];
    let (mut remote, mut at, mut left) = (Vec::new(), start.0, most_bytes);
    // Page by page: of a part that is not all there the kernel may read nothing.
    while left > 0 {
        let len = left.min((PAGE_BYTES - at % PAGE_BYTES) as usize);
        remote.push(RemoteIoVec { base: at as usize, len });
        (at, left) = (at.wrapping_add(len as u64), left - len);
    }
    let local = &mut [io::IoSliceMut::new(&mut bytes)];
    let read = process_vm_readv(Pid::from_raw(tid), local, &remote).unwrap_or(0);
    bytes.truncate(read);
    bytes
}

/// Sets the general registers of a stopped thread.
#[cfg(target_arch = "x86_64")]
pub fn set_registers(tid: i32, registers: &libc::user_regs_struct) -> io::Result<()> {
    Ok(ptrace::setregs(Pid::from_raw(tid), *registers)?)
}

/// The vector and mask registers of a stopped thread, in the standard layout of `XSAVE`; fills
/// `area` and returns how much of it the kernel wrote.
#[cfg(target_arch = "x86_64")]
pub fn extended_state(tid: i32, area: &mut [u8]) -> io::Result<usize> {
    const NT_X86_XSTATE: usize = 0x202;
    let mut window = libc::iovec { iov_base: area.as_mut_ptr().cast(), iov_len: area.len() };
    // SAFETY: the kernel writes at most `iov_len` bytes to a slice that outlives the call.
    Errno::result(unsafe {
        libc::ptrace(libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE, &raw mut window)
    })?;
    Ok(window.iov_len)
}

/// The signals that a stopped thread has blocked, one bit each.
pub fn signal_mask(tid: i32) -> io::Result<u64> {
    const PTRACE_GETSIGMASK: Request = 0x420a;
    let mut mask = 0_u64;
    // SAFETY: the kernel writes one word to a local that outlives the call.
    Errno::result(unsafe {
        libc::ptrace(PTRACE_GETSIGMASK, tid, size_of::<u64>(), &raw mut mask)
    })?;
    Ok(mask)
}

/// The bit of `SIGTRAP` among blocked signals.
const TRAP_BIT: u64 = 1 << (libc::SIGTRAP - 1);

/// Whether the thread blocks `SIGTRAP`; `false` where the kernel does not say.
pub fn blocks_traps(tid: i32) -> bool {
    signal_mask(tid).is_ok_and(|mask| mask & TRAP_BIT != 0)
}

/// Blocks `SIGTRAP` again in a stopped thread. A trap of ours has unblocked it: the kernel lets no
/// processor's trap wait.
pub fn block_traps(tid: i32) -> io::Result<()> {
    set_signal_mask(tid, signal_mask(tid)? | TRAP_BIT)
}

/// Has a stopped thread block all signals that it can but `SIGTRAP`, which our steps raise; the signals
/// that it blocked before.
pub fn block_all_but_traps(tid: i32) -> io::Result<u64> {
    let before = signal_mask(tid)?;
    set_signal_mask(tid, !TRAP_BIT | before)?;
    Ok(before)
}

/// Has a stopped thread block these signals and no others.
pub fn set_signal_mask(tid: i32, mask: u64) -> io::Result<()> {
    const PTRACE_SETSIGMASK: Request = 0x420b;
    // SAFETY: the kernel reads one word from a local that outlives the call.
    Errno::result(unsafe {
        libc::ptrace(PTRACE_SETSIGMASK, tid, size_of::<u64>(), &raw const mask)
    })?;
    Ok(())
}

/// Whether `SIGTRAP` is blocked behind a system call that the program makes; `blocked` says whether
/// it is before. `word` reads the program's memory.
#[cfg(target_arch = "x86_64")]
pub fn blocks_traps_behind(
    before: &libc::user_regs_struct,
    blocked: bool,
    word: impl Fn(u64) -> Option<u64>,
) -> bool {
    // In the frame that the kernel has put behind the return address of a signal handler.
    const MASK_IN_FRAME: u64 = 296;
    let set = |at: u64| word(at).map(|mask| mask & TRAP_BIT != 0);
    match before.rax.cast_signed() {
        libc::SYS_rt_sigreturn => set(before.rsp.wrapping_add(MASK_IN_FRAME)).unwrap_or(blocked),
        libc::SYS_rt_sigprocmask if before.rsi != 0 => {
            let given = set(before.rsi).unwrap_or(false);
            match before.rdi as i32 {
                libc::SIG_BLOCK => blocked || given,
                libc::SIG_UNBLOCK => blocked && !given,
                libc::SIG_SETMASK => given,
                _ => blocked,
            }
        }
        _ => blocked,
    }
}

/// The `si_code` of the signal that a thread is stopped by: a `TRAP_` number for a trap of the
/// processor, `SIGTRAP` for a stop that the kernel made for us.
pub fn signal_code(tid: i32) -> io::Result<i32> {
    Ok(ptrace::getsiginfo(Pid::from_raw(tid))?.si_code)
}

/// `si_code` of a processor's breakpoint.
pub const TRAP_HWBKPT: i32 = 4;

/// Whether a thread stopped for a trap that the program asked for or was sent. All others are ours, from
/// a breakpoint or a step, whatever code they have: a guest's processor sometimes raises them with its
/// record of the cause (DR6) empty or old, and a breakpoint is then reached once more on the way on.
#[cfg(target_arch = "x86_64")]
pub fn is_own_trap(tid: i32) -> bool {
    let (Ok(code), Ok(registers)) = (signal_code(tid), registers(tid)) else { return false };
    own_trap(code, registers.eflags, || {
        let at = registers.rip.wrapping_sub(1) as *mut libc::c_void;
        ptrace::read(Pid::from_raw(tid), at).ok().map(|word| word as u8)
    })
}

/// `behind` reads the byte before the program's next instruction.
fn own_trap(code: i32, eflags: u64, behind: impl FnOnce() -> Option<u8>) -> bool {
    const TRAP_BRKPT: i32 = 1;
    const TRAP_TRACE: i32 = 2;
    const TRAP_BRANCH: i32 = 3;
    /// The flag by which a program steps itself; the kernel hides ours.
    const TRAP_FLAG: u64 = 1 << 8;
    const INT1: u8 = 0xf1;
    match code {
        TRAP_TRACE => eflags & TRAP_FLAG != 0,
        TRAP_BRKPT => behind() == Some(INT1),
        // The last is the kernel's stop at the entry of a signal handler, while stepping.
        TRAP_BRANCH | TRAP_HWBKPT | libc::SIGTRAP => false,
        // `int3`, or sent.
        _ => true,
    }
}

/// Which of the processor's four breakpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(pub usize);

/// Makes one stopped thread stop before it executes the instruction at `address`, or no longer.
/// The program's memory is not touched, and no other thread notices.
#[cfg(target_arch = "x86_64")]
pub fn set_breakpoint(tid: i32, slot: Slot, address: Option<Avma>) -> io::Result<()> {
    let thread = Pid::from_raw(tid);
    let register = |index: usize| {
        (std::mem::offset_of!(libc::user, u_debugreg) + index * 8) as *mut libc::c_void
    };
    let poke = |index, value: u64| ptrace::write_user(thread, register(index), value.cast_signed());
    let control = ptrace::read_user(thread, register(7))?;
    let enabled = 1_u64 << (2 * slot.0);
    let others = control.cast_unsigned() & !(0b11 << (2 * slot.0)) & !(0xf << (16 + 4 * slot.0));
    poke(7, others)?;
    if let Some(address) = address {
        poke(slot.0, address.0)?;
        poke(7, others | enabled)?;
    }
    Ok(())
}

/// As [`set_breakpoint`], at these addresses, two at most, and no others but that of slot 0 and 1.
#[cfg(target_arch = "x86_64")]
pub fn set_breakpoints(tid: i32, addresses: &[Avma]) -> io::Result<()> {
    let mut addresses = addresses.iter().copied();
    set_breakpoint(tid, Slot(2), addresses.next())?;
    set_breakpoint(tid, Slot(3), addresses.next())
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::{own_trap, refusal};

    #[test]
    fn a_trap_is_the_programs_only_if_the_program_can_have_raised_it() {
        let int1 = || Some(0xf1);
        let other = || Some(0x90);
        // Ours, with the code that the kernel read from a DR6 that says so, or not.
        for code in [1, 2, 3, 4, 5] {
            assert!(!own_trap(code, 0x202, other), "{code}");
        }
        assert!(!own_trap(1, 0x202, || None));
        assert!(own_trap(1, 0x202, int1));
        assert!(own_trap(2, 0x302, other));
        // int3, kill, sigqueue, a counter's trap.
        for code in [128, 0, -1, -6, 6] {
            assert!(own_trap(code, 0x202, other), "{code}");
        }
    }

    #[test]
    fn root_is_not_told_to_be_root() {
        for scope in ["", "0", "1", "2"] {
            assert!(refusal(scope, true).contains("--cap-add=SYS_PTRACE"), "{scope}");
            assert!(!refusal(scope, true).contains("as root"), "{scope}");
            assert!(refusal(scope, false).contains("run as root"), "{scope}");
        }
        assert!(refusal("1", false).contains("ptrace_scope is 1"));
        assert_eq!(refusal("3", true), refusal("3", false));
    }
}
