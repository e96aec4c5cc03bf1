//! The copy as a traced process: registers, memory, stops, and system calls put into it.
//!
//! All calls must come from the thread that started the command, as `ptrace` demands.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;

use crate::foreign::Status;
use crate::run::child::pid_fd;
use crate::run::maps::{self, Line};
use crate::run::tracee::{self, Request};

/// The signal that a stop before a system call looks like.
pub(super) const CALL_STOP: i32 = libc::SIGTRAP | 0x80;

/// The general registers of a thread.
pub(super) type Registers = libc::user_regs_struct;

/// What a wait found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// This signal is about to be delivered, or a trap.
    Signal(i32),
    /// A `PTRACE_EVENT_` number.
    Event(i32),
    /// It exited with this code.
    Exited(i32),
    /// This signal ended it.
    Killed(i32),
}

/// A stopped thread that we trace, with its memory.
pub(super) struct Process {
    pub(super) pid: i32,
    memory: File,
    /// Address of a `syscall` instruction in it.
    gadget: u64,
    /// Signals that came while we used it for our own calls.
    pub(super) held: Vec<i32>,
    /// Whether it is to block `SIGTRAP` behind its next stop.
    blocks_traps: Cell<bool>,
    /// Whether it must be killed and collected by us.
    ours: Cell<bool>,
    /// Copies of it that are its children.
    copies: Vec<i32>,
}

/// A process that can be stopped from another thread than the one that traces it.
pub(super) struct Handle(OwnedFd);

impl Handle {
    pub(super) fn of(pid: i32) -> io::Result<Self> {
        Ok(Self(pid_fd(pid)?))
    }

    /// Lets its tracer see it stop for a signal that says nothing; it may be over already.
    pub(super) fn stop(&self) {
        let nothing = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open, and no information about the signal is handed over.
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.0.as_raw_fd(),
                libc::SIGSTOP,
                nothing,
                0,
            )
        };
    }
}

fn open_memory(pid: i32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"))
}

/// One `ptrace` request whose answer is its return value.
pub(super) fn request(what: Request, pid: i32, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: the requests made through here read or write our memory only where a caller's
    // pointer to a live local says so.
    Errno::result(unsafe { libc::ptrace(what, pid, address, data) })?;
    Ok(())
}

/// Waits for the next stop or end of this one process.
pub(super) fn wait(pid: i32) -> io::Result<Stopped> {
    loop {
        if let Some(stopped) = collect(pid, 0)? {
            return Ok(stopped);
        }
    }
}

/// As [`wait`], without waiting.
fn look(pid: i32) -> io::Result<Option<Stopped>> {
    collect(pid, libc::WNOHANG)
}

/// Waits until one of these threads, which this thread traces, stops or ends; says which, and how.
pub(super) fn wait_for_any(tids: impl Iterator<Item = i32> + Clone) -> io::Result<(i32, Stopped)> {
    const NAP: Duration = Duration::from_micros(100);
    loop {
        let first = match tracee::first_news(0) {
            Err(Errno::EINTR) => continue,
            first => first?.0,
        };
        let is_one = tids.clone().any(|tid| tid == first);
        for tid in is_one.then_some(first).into_iter().chain(tids.clone()) {
            if let Some(stopped) = look(tid)? {
                return Ok((tid, stopped));
            }
        }
        // Somebody else's end, which they have not collected yet.
        std::thread::sleep(NAP);
    }
}

fn collect(pid: i32, options: i32) -> io::Result<Option<Stopped>> {
    let mut status = 0;
    // SAFETY: the status is a local that outlives the call.
    let got = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL | options) };
    if got < 0 && Errno::last() != Errno::EINTR {
        return Err(io::Error::last_os_error());
    }
    Ok((got == pid).then(|| Stopped::from_status(status)))
}

impl Stopped {
    /// What a status of `waitpid` says.
    pub(super) fn from_status(status: i32) -> Self {
        if libc::WIFEXITED(status) {
            Self::Exited(libc::WEXITSTATUS(status))
        } else if libc::WIFSIGNALED(status) {
            Self::Killed(libc::WTERMSIG(status))
        } else if status >> 16 != 0 {
            Self::Event(status >> 16)
        } else {
            Self::Signal(libc::WSTOPSIG(status))
        }
    }
}

/// Reads memory of the copy.
pub(super) trait Memories {
    /// Fills as much of `into` as can be read from there, and says how much that is.
    fn read(&self, address: u64, into: &mut [u8]) -> usize;
}

impl Memories for Process {
    fn read(&self, address: u64, into: &mut [u8]) -> usize {
        let mut got = 0;
        while let Some(rest) = into.get_mut(got..).filter(|rest| !rest.is_empty()) {
            match self.memory.read_at(rest, address.wrapping_add(got as u64)) {
                Ok(0) | Err(_) => break,
                Ok(n) => got += n,
            }
        }
        got
    }
}

impl Process {
    fn new(pid: i32, gadget: u64, is_ours: bool) -> io::Result<Self> {
        Ok(Self {
            pid,
            memory: open_memory(pid)?,
            gadget,
            held: Vec::new(),
            blocks_traps: Cell::new(false),
            ours: Cell::new(is_ours),
            copies: Vec::new(),
        })
    }

    /// A stopped thread that somebody else answers for; it is not killed on drop.
    pub(super) fn borrowed(pid: i32) -> io::Result<Self> {
        Self::new(pid, 0, false)
    }

    /// As [`Self::borrowed`], ready to make system calls.
    pub(super) fn borrowed_for_calls(pid: i32) -> io::Result<Self> {
        let mut new = Self::borrowed(pid)?;
        new.gadget = new.find_syscall()?;
        Ok(new)
    }

    /// A `syscall` instruction that exists already, so that no code needs to be changed under the
    /// feet of other threads: the vdso has one, and so has any file with code that makes calls.
    fn find_syscall(&self) -> io::Result<u64> {
        let lines = maps::read(self.pid)?.into_iter();
        let mut candidates: Vec<(u64, u64, bool)> = lines
            .filter(|line| line.readable && !line.writable && line.executable)
            .map(|Line { mapping: m, .. }| (m.start.0, m.end.0, m.path == Path::new("[vdso]")))
            .filter(|(start, ..)| *start < 1 << 47)
            .collect();
        candidates.sort_by_key(|c| !c.2);
        for (start, end, _) in candidates {
            let mut code = vec![0; (end - start).min(16 << 20) as usize];
            let got = self.read(start, &mut code);
            if let Some(at) = code[..got].windows(2).position(|pair| pair == [0x0f, 0x05]) {
                return Ok(start + at as u64);
            }
        }
        Err(io::Error::other("the program has no system call instruction to borrow"))
    }

    pub(super) fn registers(&self) -> io::Result<Registers> {
        tracee::registers(self.pid)
    }

    /// Sets the registers, and makes sure that no system call is restarted.
    pub(super) fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        let mut registers = *registers;
        registers.orig_rax = u64::MAX;
        tracee::set_registers(self.pid, &registers)
    }

    /// Signal, code and address of the signal that it stopped for.
    pub(super) fn signal_info(&self) -> io::Result<(i32, i32, u64)> {
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        request(libc::PTRACE_GETSIGINFO, self.pid, 0, info.as_mut_ptr() as usize)?;
        // SAFETY: plain bytes, all zero before the kernel filled them; the address is read from a
        // union whose every member is an integer or a pointer.
        unsafe {
            let info = info.assume_init();
            Ok((info.si_signo, info.si_code, info.si_addr() as u64))
        }
    }

    fn resume(&self, how: Request, signal: i32) -> io::Result<Stopped> {
        self.go_on(how, signal)?;
        self.stopped(wait(self.pid)?)
    }

    /// Lets it run on without waiting for its next stop, which is to be told to [`Self::stopped`].
    fn go_on(&self, how: Request, signal: i32) -> io::Result<()> {
        self.blocks_traps.set(tracee::blocks_traps(self.pid));
        request(how, self.pid, 0, signal as usize)
    }

    /// Behind a stop: `SIGTRAP` is blocked again if it was before, or is to be behind a system call.
    pub(super) fn stopped(&self, stopped: Stopped) -> io::Result<Stopped> {
        match stopped {
            Stopped::Exited(_) | Stopped::Killed(_) => {
                // Its number may be somebody else's from now on.
                self.ours.set(false);
            }
            Stopped::Signal(_) | Stopped::Event(_) if self.blocks_traps.get() => {
                tracee::block_traps(self.pid)?;
            }
            Stopped::Signal(_) | Stopped::Event(_) => {}
        }
        Ok(stopped)
    }

    /// Lets it run, delivering `signal` unless it is 0, and waits for the next stop.
    pub(super) fn run(&self, signal: i32) -> io::Result<Stopped> {
        self.resume(libc::PTRACE_CONT, signal)
    }

    /// As [`Self::run`], without waiting.
    pub(super) fn start(&self, signal: i32) -> io::Result<()> {
        self.go_on(libc::PTRACE_CONT, signal)
    }

    /// It has replaced itself by another program.
    pub(super) fn has_new_image(&mut self) -> io::Result<()> {
        self.memory = open_memory(self.pid)?;
        self.gadget = self.find_syscall()?;
        Ok(())
    }

    /// As [`Self::step`], for a system call with these registers, which may change the signals that
    /// are blocked; without waiting.
    fn enter_kernel(&self, call: &Registers) -> io::Result<()> {
        let blocked = tracee::blocks_traps(self.pid);
        self.blocks_traps.set(tracee::blocks_traps_behind(call, blocked, |at| self.word(at)));
        request(libc::PTRACE_SINGLESTEP, self.pid, 0, 0)
    }

    fn step_into_kernel(&self, call: &Registers) -> io::Result<Stopped> {
        self.enter_kernel(call)?;
        self.stopped(wait(self.pid)?)
    }

    /// As [`Self::run`], for one instruction, or up to a signal handler's first.
    pub(super) fn step(&self, signal: i32) -> io::Result<Stopped> {
        self.resume(libc::PTRACE_SINGLESTEP, signal)
    }

    /// As [`Self::step`], stopping with [`CALL_STOP`] before a system call, which is then not executed.
    pub(super) fn step_without_calls(&self, signal: i32) -> io::Result<Stopped> {
        const PTRACE_SYSEMU_SINGLESTEP: Request = 32;
        self.resume(PTRACE_SYSEMU_SINGLESTEP, signal)
    }

    /// As [`Self::run`], stopping with [`CALL_STOP`] before each system call, which is then not
    /// executed; and, if asked for, also after a fraction of a millisecond. `None` when it has not
    /// stopped before `is_over`; it still runs, and can only be dropped.
    pub(super) fn run_without_calls(
        &self,
        signal: i32,
        is_over: &dyn Fn() -> bool,
        briefly: bool,
    ) -> io::Result<Option<Stopped>> {
        const PTRACE_SYSEMU: Request = 31;
        const EAGER_LOOKS: u32 = 200;
        const NAP: Duration = Duration::from_micros(100);
        self.go_on(PTRACE_SYSEMU, signal)?;
        for looks in 0.. {
            if let Some(stopped) = look(self.pid)? {
                return self.stopped(stopped).map(Some);
            }
            if looks < EAGER_LOOKS {
                std::thread::yield_now();
            } else if briefly && looks == EAGER_LOOKS {
                tracee::interrupt(self.pid)?;
            } else if is_over() {
                break;
            } else {
                std::thread::sleep(NAP);
            }
        }
        Ok(None)
    }

    /// Where the kernel notes for this thread which processor it is on; empty when nowhere.
    pub(super) fn processor_notes(&self) -> std::ops::Range<u64> {
        const PTRACE_GET_RSEQ_CONFIGURATION: Request = 0x420f;
        let mut configuration = [0_u64; 3];
        let to = configuration.as_mut_ptr() as usize;
        let size = size_of_val(&configuration);
        let known = request(PTRACE_GET_RSEQ_CONFIGURATION, self.pid, size, to).is_ok();
        let [at, length, _] = configuration;
        if known && at != 0 { at..at + (length & 0xffff_ffff).max(32) } else { 0..0 }
    }

    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_all_at(bytes, address)
    }

    /// One word of its memory.
    pub(super) fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (self.read(address, &mut bytes) == 8).then(|| u64::from_ne_bytes(bytes))
    }

    /// Lets it make a system call; its registers are as before afterwards but for the bases of its
    /// segments, which the call may set. The kernel's answer is handed back as it stands, negative for
    /// an error.
    pub(super) fn call(&mut self, number: i64, arguments: [u64; 6]) -> io::Result<i64> {
        self.call_with(number, arguments, |_| Ok(()))
    }

    /// As [`Self::call`]; the kernel's refusal is the error.
    pub(super) fn checked_call(&mut self, number: i64, arguments: [u64; 6]) -> io::Result<u64> {
        match self.call(number, arguments)? {
            answer @ -4095..0 => Err(io::Error::from_raw_os_error(-answer as i32)),
            answer => Ok(answer.cast_unsigned()),
        }
    }

    fn call_with(
        &mut self,
        number: i64,
        arguments: [u64; 6],
        on_event: impl FnMut(&Self) -> io::Result<()>,
    ) -> io::Result<i64> {
        let mut before = self.registers()?;
        let registers = self.prepare_call(&before, number, arguments)?;
        self.through_kernel(&registers, on_event)?;
        let after = self.registers()?;
        (before.fs_base, before.gs_base) = (after.fs_base, after.gs_base);
        self.set_registers(&before)?;
        Ok(after.rax.cast_signed())
    }

    /// Puts it, with the other registers as they are `before`, before a system call; those that it has there.
    fn prepare_call(
        &self,
        before: &Registers,
        number: i64,
        arguments: [u64; 6],
    ) -> io::Result<Registers> {
        let mut registers = *before;
        registers.rip = self.gadget;
        registers.rax = number as u64;
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        (registers.rdi, registers.rsi, registers.rdx) = (rdi, rsi, rdx);
        (registers.r10, registers.r8, registers.r9) = (r10, r8, r9);
        self.set_registers(&registers)?;
        Ok(registers)
    }

    /// As [`Self::call`], without waiting for its end: its next stop but for those by signals is behind the call.
    /// It then has no more of the registers `before` than the kernel leaves.
    pub(super) fn start_call(
        &self,
        before: &Registers,
        number: i64,
        arguments: [u64; 6],
    ) -> io::Result<()> {
        let registers = self.prepare_call(before, number, arguments)?;
        self.enter_kernel(&registers)
    }

    /// Whether it has not made the call that it has started.
    pub(super) fn is_before_call(&self, registers: &Registers) -> bool {
        registers.rip == self.gadget && registers.orig_rax.cast_signed() < 0
    }

    /// Lets it go on with a call that it has started and stopped in, without the signal that it stopped for.
    pub(super) fn go_on_with_call(&self) -> io::Result<()> {
        request(libc::PTRACE_SINGLESTEP, self.pid, 0, 0)
    }

    /// Lets it start a thread or a process by a system call; the kernel's answer as it stands, and what was started,
    /// which stands behind the call.
    pub(super) fn start_another(
        &mut self,
        number: i64,
        arguments: [u64; 6],
    ) -> io::Result<(i64, Option<Self>)> {
        let mut new = None;
        let answer = self.call_with(number, arguments, |process| {
            new = Some(tracee::event_message(process.pid)?);
            Ok(())
        })?;
        if answer < 0 {
            return Ok((answer, None));
        }
        let Some(tid) = new else {
            return Err(io::Error::other("what it starts was not announced"));
        };
        let new = Self::new(tid, self.gadget, true)?;
        // It stops before its first instruction.
        match wait(tid)? {
            Stopped::Signal(_) | Stopped::Event(_) => Ok((answer, Some(new))),
            stopped => {
                new.stopped(stopped)?;
                Err(io::Error::from_raw_os_error(libc::ESRCH))
            }
        }
    }

    /// Lets it make the call that ends a signal handler, whose frame its stack pointer points to.
    /// Hands back the registers of what had been interrupted.
    pub(super) fn return_from_signal(&mut self, program: &Registers) -> io::Result<Registers> {
        let mut registers = *program;
        registers.rip = self.gadget;
        registers.rax = libc::SYS_rt_sigreturn as u64;
        self.set_registers(&registers)?;
        self.through_kernel(&registers, |_| Ok(()))?;
        self.registers()
    }

    /// Lets it make a prepared call, until it stops behind that; signals that come meanwhile are held.
    fn through_kernel(
        &mut self,
        registers: &Registers,
        mut on_event: impl FnMut(&Self) -> io::Result<()>,
    ) -> io::Result<()> {
        loop {
            match self.step_into_kernel(registers)? {
                Stopped::Event(libc::PTRACE_EVENT_STOP) => {}
                Stopped::Event(_) => on_event(self)?,
                Stopped::Signal(libc::SIGTRAP) => return Ok(()),
                Stopped::Signal(signal) => self.held.push(signal),
                Stopped::Exited(_) | Stopped::Killed(_) => {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
            }
        }
    }

    /// Forks it. The copy has this thread alone, is traced and stopped as this one is, dies with
    /// us, and is our child rather than this process's, which never hears of it. Where this one is not our
    /// child itself, the copy is its child, by whose end no signal comes, and which only waits that ask for
    /// such ones see, until [`Self::collect_copies`]. Signals that come meanwhile wait, with all that they say, until this one runs on.
    pub(super) fn fork(&mut self) -> io::Result<Self> {
        let parent = Status::of(self.pid)?.process("PPid");
        let is_our_child = parent == i32::try_from(std::process::id()).ok();
        // Without a signal among the flags this is a clone to the tracer, not a fork.
        let flags = if is_our_child { libc::CLONE_PARENT as u64 } else { 0 };
        let blocked = tracee::block_all_but_traps(self.pid)?;
        let started = self.start_another(libc::SYS_clone, [flags, 0, 0, 0, 0, 0]);
        tracee::set_signal_mask(self.pid, blocked)?;
        let (answer, copy) = started?;
        let copy = copy.ok_or_else(|| io::Error::from_raw_os_error(-answer as i32))?;
        let (pid, registers) = (copy.pid, self.registers()?);
        copy.set_registers(&registers)?;
        tracee::set_signal_mask(pid, blocked)?;
        // What the original is asked to tell does not matter here.
        let options = libc::PTRACE_O_EXITKILL
            | libc::PTRACE_O_TRACESYSGOOD
            | libc::PTRACE_O_TRACECLONE
            | libc::PTRACE_O_TRACEFORK
            | libc::PTRACE_O_TRACEEXEC;
        request(libc::PTRACE_SETOPTIONS, pid, 0, options as usize)?;
        if !is_our_child {
            self.copies.push(pid);
        }
        Ok(copy)
    }

    /// Lets it collect the ends of copies that are its children, so that it never hears of them.
    pub(super) fn collect_copies(&mut self) {
        const OF_COPIES: u64 = (libc::__WALL | libc::WNOHANG) as u64;
        for copy in std::mem::take(&mut self.copies) {
            // Refused only by a process that is gone.
            let _ = self.call(libc::SYS_wait4, [copy as u64, 0, OF_COPIES, 0, 0, 0]);
        }
    }

    /// Collects it once more if its end, which was seen here as that of a traced process, is now seen here as that of a
    /// child.
    pub(super) fn collect_orphan(&self) {
        // Usually whoever started it has.
        let _ = look(self.pid);
    }

    /// Kills and collects it, if it is ours and that is still to be done. The first thread of a process only when all
    /// others have been collected.
    pub(super) fn end(&self) {
        if self.ours.replace(false) {
            // SAFETY: plain integers; the process is ours and has not been collected, or is gone.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            while let Ok(Stopped::Signal(_) | Stopped::Event(_)) = wait(self.pid) {}
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
