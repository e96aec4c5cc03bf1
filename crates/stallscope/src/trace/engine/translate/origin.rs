//! The original: started under `ptrace`, brought to the window's start, held there, let go.
//!
//! All waiting for it is done in short turns between which [`Child`](crate::trace::child::Child)
//! empties its output, so that a program never blocks on a full pipe while we wait for it to stop.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use object::{Object, ObjectSegment};

use super::process::{Process, Stopped, request};
use super::setup::{self, MapLine};
use crate::model::Svma;
use crate::trace::engine::{EngineError, Start};

const OPTIONS: i32 = libc::PTRACE_O_EXITKILL
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC;
/// How long one turn may look for the next stop before output is looked after.
pub(super) const TURN: Duration = Duration::from_micros(500);
const BREAKPOINT: u8 = 0xcc;

/// A thread of the original.
struct Thread {
    tid: i32,
    stopped: bool,
    /// A signal to deliver when it goes on.
    signal: i32,
}

/// Something that the original did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Nothing yet.
    Nothing,
    /// It executed its program, and stands before the first instruction of it or of the loader.
    Exec,
    /// This thread came to a breakpoint, and stands at it.
    Arrived { tid: i32, address: u64 },
    /// It has ended.
    Gone,
}

/// The traced command.
pub(super) struct Origin {
    pub(super) pid: i32,
    threads: Vec<Thread>,
    memory: Option<File>,
    /// Breakpoints: address and the byte under each.
    breakpoints: Vec<(u64, u8)>,
}

impl Origin {
    /// Attaches to a child that is held before its exec.
    pub(super) fn attach(pid: i32) -> Result<Self, EngineError> {
        request(libc::PTRACE_SEIZE, pid, 0, OPTIONS as usize).map_err(|cause| {
            EngineError::Forbidden(format!(
                "the system forbids ptrace ({cause}); in a container add the capability \
                 SYS_PTRACE, or see kernel.yama.ptrace_scope"
            ))
        })?;
        let threads = vec![Thread { tid: pid, stopped: false, signal: 0 }];
        Ok(Self { pid, threads, memory: None, breakpoints: Vec::new() })
    }

    /// Looks for the next event, for so long.
    pub(super) fn turn(&mut self, patience: Duration) -> io::Result<Event> {
        let began = Instant::now();
        loop {
            let mut index = 0;
            while index < self.threads.len() {
                let thread = &self.threads[index];
                if thread.stopped {
                    index += 1;
                    continue;
                }
                let (tid, is_main) = (thread.tid, thread.tid == self.pid);
                match look(tid, is_main)? {
                    None => index += 1,
                    Some(Stopped::Exited(_) | Stopped::Killed(_)) if is_main => {
                        return Ok(Event::Gone);
                    }
                    Some(Stopped::Exited(_) | Stopped::Killed(_)) => {
                        self.threads.swap_remove(index);
                    }
                    Some(stopped) => {
                        let event = self.stopped(index, stopped)?;
                        if event != Event::Nothing {
                            return Ok(event);
                        }
                        index += 1;
                    }
                }
            }
            if began.elapsed() >= patience {
                return Ok(Event::Nothing);
            }
            std::thread::yield_now();
        }
    }

    /// Deals with one stop; the thread goes on unless an event is handed back.
    fn stopped(&mut self, index: usize, stopped: Stopped) -> io::Result<Event> {
        let tid = self.threads[index].tid;
        match stopped {
            Stopped::Event(libc::PTRACE_EVENT_EXEC) => {
                self.threads.retain(|t| t.tid == tid);
                self.breakpoints.clear();
                let path = format!("/proc/{}/mem", self.pid);
                self.memory = Some(OpenOptions::new().read(true).write(true).open(path)?);
                if let Some(thread) = self.threads.first_mut() {
                    thread.stopped = true;
                }
                return Ok(Event::Exec);
            }
            Stopped::Event(libc::PTRACE_EVENT_CLONE) => {
                let new = message(tid)?;
                self.threads.push(Thread { tid: new, stopped: false, signal: 0 });
            }
            Stopped::Event(libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK) => {
                self.release_child(message(tid)?, stopped)?;
            }
            Stopped::Signal(libc::SIGTRAP) => {
                let process = Process::borrowed(tid)?;
                let mut registers = process.registers()?;
                let address = registers.rip.wrapping_sub(1);
                if self.breakpoints.iter().any(|(at, _)| *at == address) {
                    registers.rip = address;
                    process.set_registers(&registers)?;
                    self.threads[index].stopped = true;
                    return Ok(Event::Arrived { tid, address });
                }
                resume(tid, libc::SIGTRAP)?;
                return Ok(Event::Nothing);
            }
            Stopped::Signal(signal) => {
                resume(tid, signal)?;
                return Ok(Event::Nothing);
            }
            _ => {}
        }
        resume(tid, 0)?;
        Ok(Event::Nothing)
    }

    /// A child of the original is none of our business, once our breakpoints are out of it.
    fn release_child(&self, child: i32, how: Stopped) -> io::Result<()> {
        super::process::wait(child)?;
        if how == Stopped::Event(libc::PTRACE_EVENT_FORK) {
            let path = format!("/proc/{child}/mem");
            let memory = OpenOptions::new().read(true).write(true).open(path)?;
            for (address, byte) in &self.breakpoints {
                memory.write_all_at(&[*byte], *address)?;
            }
        }
        request(libc::PTRACE_DETACH, child, 0, 0)
    }

    fn memory(&self) -> io::Result<&File> {
        self.memory.as_ref().ok_or_else(|| io::Error::other("the program has not begun"))
    }

    /// Puts a breakpoint.
    pub(super) fn put(&mut self, address: u64) -> io::Result<()> {
        if self.breakpoints.iter().any(|(at, _)| *at == address) {
            return Ok(());
        }
        let mut byte = [0];
        self.memory()?.read_exact_at(&mut byte, address)?;
        self.memory()?.write_all_at(&[BREAKPOINT], address)?;
        self.breakpoints.push((address, byte[0]));
        Ok(())
    }

    /// Takes a breakpoint away.
    pub(super) fn take(&mut self, address: u64) -> io::Result<()> {
        if let Some(index) = self.breakpoints.iter().position(|(at, _)| *at == address) {
            let (_, byte) = self.breakpoints.swap_remove(index);
            self.memory()?.write_all_at(&[byte], address)?;
        }
        Ok(())
    }

    /// Lets a thread that stands at a breakpoint execute what is under it, and go on.
    pub(super) fn pass(&mut self, tid: i32, address: u64) -> io::Result<()> {
        self.take(address)?;
        let process = Process::borrowed(tid)?;
        loop {
            match process.step(0)? {
                Stopped::Signal(libc::SIGTRAP) => break,
                Stopped::Signal(signal) => {
                    if let Some(thread) = self.threads.iter_mut().find(|t| t.tid == tid) {
                        thread.signal = signal;
                    }
                }
                Stopped::Event(libc::PTRACE_EVENT_STOP) => {}
                _ => break,
            }
        }
        self.put(address)?;
        self.go(tid)
    }

    /// Lets one stopped thread go on.
    pub(super) fn go(&mut self, tid: i32) -> io::Result<()> {
        if let Some(thread) = self.threads.iter_mut().find(|t| t.tid == tid && t.stopped) {
            thread.stopped = false;
            resume(tid, std::mem::take(&mut thread.signal))?;
        }
        Ok(())
    }

    /// Lets all stopped threads but one go on.
    pub(super) fn go_others(&mut self, but: i32) -> io::Result<()> {
        let all: Vec<i32> =
            self.threads.iter().filter(|t| t.stopped && t.tid != but).map(|t| t.tid).collect();
        all.into_iter().try_for_each(|tid| self.go(tid))
    }

    /// Lets all stopped threads go on.
    pub(super) fn go_all(&mut self) -> io::Result<()> {
        let all: Vec<i32> = self.threads.iter().filter(|t| t.stopped).map(|t| t.tid).collect();
        all.into_iter().try_for_each(|tid| self.go(tid))
    }

    /// Signals that came to a thread while we used it, to be delivered when it goes on.
    pub(super) fn deliver_later(&mut self, tid: i32, signals: &[i32]) {
        if let Some(thread) = self.threads.iter_mut().find(|t| t.tid == tid)
            && let Some(last) = signals.last()
        {
            thread.signal = *last;
        }
    }

    /// Stops all threads but those that are stopped already. Hands back how many there are.
    pub(super) fn hold_all(&mut self) -> io::Result<usize> {
        let mut index = 0;
        while index < self.threads.len() {
            let thread = &self.threads[index];
            if thread.stopped {
                index += 1;
                continue;
            }
            if request(libc::PTRACE_INTERRUPT, thread.tid, 0, 0).is_err() {
                // It has ended; unless it is collected, the command's end would never show.
                look(thread.tid, thread.tid == self.pid)?;
                self.threads.swap_remove(index);
                continue;
            }
            let (tid, is_main) = (thread.tid, thread.tid == self.pid);
            let stopped = loop {
                match look(tid, is_main)? {
                    Some(stopped) => break stopped,
                    None => std::thread::yield_now(),
                }
            };
            match stopped {
                Stopped::Signal(signal) => self.threads[index].signal = signal,
                Stopped::Event(libc::PTRACE_EVENT_CLONE) => {
                    let new = message(tid)?;
                    self.threads.push(Thread { tid: new, stopped: false, signal: 0 });
                }
                Stopped::Event(_) | Stopped::Exited(_) | Stopped::Killed(_) => {}
            }
            self.threads[index].stopped = true;
            index += 1;
        }
        Ok(self.threads.len())
    }

    /// Lets go of the command for good. What it does from now on is its own business.
    pub(super) fn let_go(&mut self) -> io::Result<()> {
        for (address, _) in self.breakpoints.clone() {
            self.take(address)?;
        }
        self.hold_all()?;
        // The first thread last: once it runs it may end all others before we let go of them.
        let first = self.pid;
        self.threads.sort_by_key(|t| t.tid == first);
        for thread in self.threads.drain(..) {
            let signal = thread.signal as usize;
            let refused = request(libc::PTRACE_DETACH, thread.tid, 0, signal).is_err();
            if refused && thread.tid != first {
                // Killed meanwhile. Unless we collect it, the command's end would never show.
                while let Ok(Stopped::Signal(_) | Stopped::Event(_)) =
                    super::process::wait(thread.tid)
                {}
            }
        }
        Ok(())
    }

    /// Where the program itself starts, behind the loader.
    pub(super) fn entry(&self) -> io::Result<u64> {
        const AT_ENTRY: u64 = 9;
        let bytes = std::fs::read(format!("/proc/{}/auxv", self.pid))?;
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .filter_map(|word| Some(u64::from_ne_bytes(word.try_into().ok()?)))
            .collect();
        let entry = words.chunks_exact(2).find(|pair| pair[0] == AT_ENTRY).map(|pair| pair[1]);
        entry.ok_or_else(|| io::Error::other("the kernel does not say where the program starts"))
    }

    /// Where the window's start is in the process.
    pub(super) fn resolve(&self, start: &Start) -> Result<u64, EngineError> {
        let never = |reason: String| EngineError::NeverStarted(reason);
        let Start::At { object, svma } = start else {
            return self.entry().map_err(|e| never(e.to_string()));
        };
        let path = match object {
            Some(path) => std::fs::canonicalize(path),
            None => std::fs::read_link(format!("/proc/{}/exe", self.pid)),
        }
        .map_err(|e| never(e.to_string()))?;
        let maps = setup::maps(self.pid).map_err(|e| never(e.to_string()))?;
        locate(&path, *svma, &maps).map_err(never)
    }
}

/// Where an address of a file is in a process that has the file mapped.
fn locate(path: &Path, svma: Svma, maps: &[MapLine]) -> Result<u64, String> {
    let shown = path.display();
    let bytes = std::fs::read(path).map_err(|e| format!("{shown} cannot be read: {e}"))?;
    let file = object::File::parse(&*bytes).map_err(|e| format!("{shown}: {e}"))?;
    let offset = file
        .segments()
        .find(|s| s.address() <= svma.0 && svma.0 < s.address() + s.size())
        .map(|s| s.file_range().0 + (svma.0 - s.address()))
        .ok_or_else(|| format!("{svma} is in no loaded part of {shown}"))?;
    maps.iter()
        .find(|m| {
            Path::new(&m.path) == path
                && m.offset <= offset
                && offset < m.offset + (m.end - m.start)
                && m.executable
        })
        .map(|m| m.start + (offset - m.offset))
        .ok_or_else(|| format!("{shown} is not mapped where the program starts"))
}

/// Lets go of a process or thread that has just been made.
pub(super) fn release(new: i32) -> io::Result<()> {
    super::process::wait(new)?;
    request(libc::PTRACE_DETACH, new, 0, 0)
}

fn resume(tid: i32, signal: i32) -> io::Result<()> {
    match request(libc::PTRACE_CONT, tid, 0, signal as usize) {
        // Killed meanwhile: the next look tells.
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        other => other,
    }
}

pub(super) fn message(tid: i32) -> io::Result<i32> {
    let mut message: libc::c_ulong = 0;
    request(libc::PTRACE_GETEVENTMSG, tid, 0, &raw mut message as usize)?;
    Ok(message as i32)
}

/// Whether a thread has stopped or ended, without waiting. The end of the command itself is left
/// for its parent to collect.
pub(super) fn look(tid: i32, is_main: bool) -> io::Result<Option<Stopped>> {
    if is_main {
        // SAFETY: an all-zero siginfo is valid, and the kernel fills it.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let flags = libc::WEXITED | libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
        // SAFETY: the info is a local that outlives the call.
        if unsafe { libc::waitid(libc::P_PID, tid as u32, &raw mut info, flags) } < 0 {
            return Ok(Some(Stopped::Exited(0)));
        }
        // SAFETY: filled by `waitid`, or still zero when nothing happened.
        if unsafe { info.si_pid() } == 0 {
            return Ok(None);
        }
        if matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED) {
            return Ok(Some(Stopped::Exited(0)));
        }
        return super::process::wait(tid).map(Some);
    }
    let mut status = 0;
    // SAFETY: the status is a local that outlives the call.
    let got = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::WNOHANG) };
    if got == 0 {
        return Ok(None);
    }
    if got < 0 {
        return Ok(Some(Stopped::Exited(0)));
    }
    Ok(Some(Stopped::from_status(status)))
}
