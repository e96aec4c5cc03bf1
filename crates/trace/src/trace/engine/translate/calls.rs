//! What becomes of a system call that the program makes in the copy.
//!
//! The original will make it again, for real. So in the copy a call may run only if nobody else can
//! notice; what others would notice is answered as if it had been done; and where no honest answer
//! can be invented, the copy ends there or is given up and the original followed instead.

use std::collections::VecDeque;
use std::os::unix::fs::FileTypeExt;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::PAGE_BYTES;
use crate::trace::engine::process::Process;
pub(super) use ids::Start;
pub(super) use kinds::MAY_WAIT;
use kinds::{ALWAYS, IDLE, MAKES_OBJECTS};
use written::Written;

mod ids;
mod kinds;
mod sockets;
mod written;

/// What to do with one system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Let the copy make it.
    Run,
    /// Let the copy make this call in its place.
    RunInstead(i64, [u64; 6]),
    /// Do not make it; this is the answer.
    Answer(i64),
    /// It is made, and has opened this descriptor.
    Opened(i32),
    /// The handler of a signal returns.
    SignalReturn,
    /// It starts a thread or a process.
    Start(Start),
    /// The program, or the thread, ends with this code.
    Exit(i32),
    /// The program replaces itself.
    Exec,
    /// It cannot be answered honestly.
    GiveUp(String),
}

/// What a copy is like when it makes a call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Copies {
    /// Its process.
    pub(super) process: i32,
    /// It has one thread in all.
    pub(super) is_alone: bool,
    /// It has other processes.
    pub(super) is_several: bool,
    /// The first argument names another process or thread of it.
    pub(super) names_own: bool,
    /// Its run is counted to the end, with all threads and processes.
    pub(super) counts: bool,
}

/// What is remembered of the calls so far.
#[derive(Clone, Default)]
pub(super) struct Calls {
    /// The ids that the original goes by.
    pub(super) pid: i32,
    pub(super) tid: i32,
    /// That of its parent, where the copy has started it.
    parent: Option<i32>,
    /// Descriptors that the copy opened itself, or that have been given a description of their own.
    own: FxHashMap<i32, Writes>,
    /// What it has written to files.
    written: Written,
    /// Descriptors to which a write was only pretended.
    pretended: FxHashSet<i32>,
    /// Instructions before each of the latest calls by which a program passes the time.
    idling: VecDeque<u64>,
    /// How many bytes and calls were held back.
    pub(super) withheld_bytes: u64,
    pub(super) withheld_calls: u64,
}

/// What becomes of a write to a descriptor of the copy's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writes {
    /// It concerns others.
    Withheld,
    /// The file is the copy's own.
    Made,
}

/// So many calls to pass the time, one after the other, ...
const MANY_IDLE: usize = 300;
/// ... with fewer instructions than this to each: it waits for what will not come.
const FEW_BETWEEN: u64 = 20_000;

/// What kind of thing a descriptor of the copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A file or folder, with a position.
    Positioned,
    /// `/dev/null` and the like: no state.
    Stateless,
    /// A pipe, socket, terminal: what is read is gone for others.
    Stream,
    /// Not open.
    Closed,
}

const STATELESS: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/full"];

fn kind(copy: i32, fd: i32) -> Kind {
    let path = format!("/proc/{copy}/fd/{fd}");
    let Ok(target) = std::fs::read_link(&path) else {
        return Kind::Closed;
    };
    let name = target.to_string_lossy();
    if STATELESS.contains(&name.as_ref()) {
        return Kind::Stateless;
    }
    match std::fs::metadata(&path).map(|m| m.file_type()) {
        Ok(t) if t.is_file() || t.is_dir() => Kind::Positioned,
        Ok(t) if t.is_char_device() || t.is_fifo() || t.is_socket() || t.is_block_device() => {
            Kind::Stream
        }
        _ => Kind::Stream,
    }
}

/// Whether it is a call by which a program passes the time.
pub(super) fn is_idle(number: i64) -> bool {
    IDLE.contains(&number)
}

impl Calls {
    pub(super) fn new(pid: i32, tid: i32) -> Self {
        Self { pid, tid, ..Self::default() }
    }

    /// Judges a call. `arguments` are `rdi`, `rsi`, `rdx`, `r10`, `r8`, `r9`.
    pub(super) fn judge(
        &mut self,
        copy: &mut Process,
        like: Copies,
        number: i64,
        arguments: [u64; 6],
    ) -> Verdict {
        if number == libc::SYS_rt_sigreturn {
            return Verdict::SignalReturn;
        }
        if installs_a_filter(number, arguments) {
            // The filter would judge the calls that we put into the copy, too.
            return Verdict::GiveUp("it installs a filter of system calls in the window".into());
        }
        match self.written.judge(copy, number, arguments) {
            Err(reason) => return Verdict::GiveUp(reason),
            Ok(_) if like.is_several && !self.written.is_empty() => {
                return Verdict::GiveUp("it writes files while it has several processes".into());
            }
            Ok(None) => {}
            Ok(Some(verdict)) => {
                if let Verdict::Opened(fd) = verdict {
                    self.opened(fd, Writes::Made);
                }
                return verdict;
            }
        }
        if let (libc::SYS_getppid, Some(parent)) = (number, self.parent) {
            return Verdict::Answer(parent.into());
        }
        if ALWAYS.contains(&number) {
            return Verdict::Run;
        }
        self.identity(copy, like, number, arguments)
            .or_else(|| self.own_objects(like, number, arguments))
            .or_else(|| self.files(copy, number, arguments))
            .or_else(|| sockets::judge(copy, number, arguments))
            .or_else(|| self.memory(number, arguments))
            .or_else(|| self.waiting(copy, like, number, arguments))
            .unwrap_or_else(|| {
                Verdict::GiveUp(format!("it makes system call {number} in the window"))
            })
    }

    /// What a process remembers that this one has started.
    pub(super) fn of_child(&self, pid: i32) -> Self {
        Self { pid, tid: pid, parent: Some(self.pid), ..self.clone() }
    }

    /// Whether it has created, written or deleted files.
    pub(super) fn has_written(&self) -> bool {
        !self.written.is_empty()
    }

    /// The process has replaced itself: descriptors may have been closed.
    pub(super) fn has_new_image(&mut self, process: i32) {
        self.own.retain(|fd, _| kind(process, *fd) != Kind::Closed);
        self.pretended.retain(|fd| kind(process, *fd) != Kind::Closed);
    }

    /// Whether the program only waits, with this call and those before it, for what will not come
    /// from anywhere in the copy: the instructions before it began to. It has executed
    /// `instructions` so far.
    pub(super) fn waits(&mut self, number: i64, instructions: u64) -> Option<u64> {
        if !is_idle(number) {
            self.idling.clear();
            return None;
        }
        self.idling.push_back(instructions);
        if self.idling.len() < MANY_IDLE {
            return None;
        }
        let since = self.idling.pop_front()?;
        (instructions.saturating_sub(since) < MANY_IDLE as u64 * FEW_BETWEEN).then_some(since)
    }

    /// Remembers what a call that was made has opened.
    pub(super) fn made(&mut self, number: i64, arguments: [u64; 6], answer: i64) {
        let Ok(answer) = i32::try_from(answer) else {
            return;
        };
        if answer < 0 {
            return;
        }
        match number {
            libc::SYS_open | libc::SYS_openat => self.opened(answer, Writes::Withheld),
            libc::SYS_memfd_create => self.opened(answer, Writes::Made),
            libc::SYS_socket => self.opened(answer, Writes::Withheld),
            // What pipes are, is in memory.
            libc::SYS_pipe | libc::SYS_pipe2 | libc::SYS_socketpair => {}
            libc::SYS_close_range if arguments[2] == 0 => {
                let closed = arguments[0]..=arguments[1];
                self.own.retain(|fd, _| !closed.contains(&(*fd as u64)));
                self.pretended.retain(|fd| !closed.contains(&(*fd as u64)));
            }
            _ if MAKES_OBJECTS.contains(&number) => self.opened(answer, Writes::Made),
            libc::SYS_close => {
                self.own.remove(&(arguments[0] as i32));
                self.pretended.remove(&(arguments[0] as i32));
            }
            libc::SYS_dup | libc::SYS_dup2 | libc::SYS_dup3 | libc::SYS_fcntl => {
                let duplicated = number != libc::SYS_fcntl
                    || matches!(arguments[1] as i32, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC);
                if duplicated {
                    match self.own.get(&(arguments[0] as i32)) {
                        Some(writes) => self.own.insert(answer, *writes),
                        None => self.own.remove(&answer),
                    };
                }
            }
            _ => {}
        }
    }

    /// Remembers both ends of a pipe that the copy has made, where this call has made one.
    pub(super) fn made_pipe(&mut self, copy: &Process, number: i64, arguments: [u64; 6]) {
        let at = match number {
            libc::SYS_pipe | libc::SYS_pipe2 => arguments[0],
            libc::SYS_socketpair => arguments[3],
            _ => return,
        };
        let both = copy.word(at).unwrap_or(u64::MAX);
        self.opened(both as i32, Writes::Made);
        self.opened((both >> 32) as i32, Writes::Made);
    }

    fn opened(&mut self, fd: i32, writes: Writes) {
        self.own.insert(fd, writes);
        self.pretended.remove(&fd);
    }

    fn is_written_for_real(&self, fd: i32) -> bool {
        self.own.get(&fd) == Some(&Writes::Made)
    }

    /// Gives a descriptor of the copy a description of its own, at the same position: the one it has
    /// is the original's too, and reading would move both.
    fn reopen(&mut self, copy: &mut Process, fd: i32) -> Result<(), String> {
        let info = std::fs::read_to_string(format!("/proc/{}/fdinfo/{fd}", copy.pid))
            .map_err(no_own_view)?;
        let field = |name: &str, radix| {
            let text = info.lines().find_map(|line| line.strip_prefix(name))?.trim();
            u64::from_str_radix(text, radix).ok()
        };
        let position = field("pos:", 10).unwrap_or(0);
        let flags = field("flags:", 8).unwrap_or(0) as i32;
        let keep = libc::O_CLOEXEC | libc::O_DIRECTORY | libc::O_NONBLOCK;
        let opened = open_again(copy, fd, flags & keep)?;
        call(copy, libc::SYS_lseek, [opened, position, libc::SEEK_SET as u64, 0, 0, 0])?;
        let on_exec = (flags & libc::O_CLOEXEC) as u64;
        call(copy, libc::SYS_dup3, [opened, fd as u64, on_exec, 0, 0, 0])?;
        call(copy, libc::SYS_close, [opened, 0, 0, 0, 0, 0])?;
        self.own.insert(fd, Writes::Withheld);
        Ok(())
    }

    fn withhold(&mut self, bytes: u64) -> Verdict {
        self.withheld_calls += 1;
        self.withheld_bytes += bytes;
        Verdict::Answer(bytes as i64)
    }

    /// Pipes and the like, which threads of the copy share with nobody else.
    fn own_objects(&self, like: Copies, number: i64, arguments: [u64; 6]) -> Option<Verdict> {
        let makes = MAKES_OBJECTS.contains(&number);
        let uses = matches!(
            number,
            libc::SYS_epoll_ctl | libc::SYS_timerfd_settime | libc::SYS_timerfd_gettime
        );
        let own = uses && self.is_written_for_real(arguments[0] as i32);
        (like.counts && (makes || own)).then_some(Verdict::Run)
    }

    fn files(&mut self, copy: &mut Process, number: i64, arguments: [u64; 6]) -> Option<Verdict> {
        let fd = arguments[0] as i32;
        let verdict = match number {
            libc::SYS_write | libc::SYS_pwrite64 => {
                self.write(copy, fd, arguments[2].min(0x7fff_f000))
            }
            libc::SYS_writev => {
                let total = vector_bytes(copy, arguments[1], arguments[2]);
                self.write(copy, fd, total)
            }
            libc::SYS_sendto => self.write(copy, fd, arguments[2]),
            // There is no position in a pipe, socket or terminal, and the kernel says so.
            libc::SYS_lseek if kind(copy.pid, fd) == Kind::Stream => Verdict::Run,
            libc::SYS_getdents64 if self.written.changes_folder(copy.pid, fd) => {
                Verdict::GiveUp("it lists, in the window, a folder that it changes".into())
            }
            libc::SYS_read | libc::SYS_readv | libc::SYS_lseek | libc::SYS_getdents64 => {
                self.read(copy, fd)
            }
            libc::SYS_ftruncate | libc::SYS_fcntl if self.is_written_for_real(fd) => Verdict::Run,
            libc::SYS_fallocate if self.is_written_for_real(fd) => {
                if_done(self.written.grow(arguments[3]))
            }
            libc::SYS_ftruncate | libc::SYS_fallocate => {
                self.pretended.insert(fd);
                self.withhold(0)
            }
            // What is written to files is kept under descriptors, too.
            libc::SYS_close_range if self.written.is_empty() => Verdict::Run,
            libc::SYS_fcntl => match arguments[1] as i32 {
                libc::F_GETFD
                | libc::F_SETFD
                | libc::F_GETFL
                | libc::F_DUPFD
                | libc::F_DUPFD_CLOEXEC => Verdict::Run,
                // The kernel tells which locks others hold; ours are pretended, as those of `flock`.
                libc::F_GETLK | libc::F_OFD_GETLK => Verdict::Run,
                libc::F_SETFL
                | libc::F_SETLK
                | libc::F_SETLKW
                | libc::F_OFD_SETLK
                | libc::F_OFD_SETLKW => self.withhold(0),
                other => Verdict::GiveUp(format!("it controls a file ({other}) in the window")),
            },
            libc::SYS_ioctl => match arguments[1] as libc::Ioctl {
                libc::TCGETS
                | libc::TCGETS2
                | libc::TIOCGWINSZ
                | libc::TIOCGPGRP
                | libc::TIOCGSID
                | libc::TIOCOUTQ
                | libc::FIONREAD
                | libc::FIOCLEX
                | libc::FIONCLEX => Verdict::Run,
                other => {
                    Verdict::GiveUp(format!("it controls a device ({other:#x}) in the window"))
                }
            },
            libc::SYS_fsync
            | libc::SYS_fdatasync
            | libc::SYS_setsockopt
            | libc::SYS_shutdown
            | libc::SYS_flock
            | libc::SYS_fchmod
            | libc::SYS_fchown
            | libc::SYS_utimensat => self.withhold(0),
            _ => return None,
        };
        Some(verdict)
    }

    fn write(&mut self, copy: &Process, fd: i32, bytes: u64) -> Verdict {
        if self.is_written_for_real(fd) {
            if kind(copy.pid, fd) == Kind::Stream {
                return Verdict::Run;
            }
            return if_done(self.written.grow(bytes));
        }
        match kind(copy.pid, fd) {
            Kind::Closed | Kind::Stateless => return Verdict::Run,
            Kind::Positioned | Kind::Stream => {}
        }
        self.pretended.insert(fd);
        self.withhold(bytes)
    }

    fn read(&mut self, copy: &mut Process, fd: i32) -> Verdict {
        match kind(copy.pid, fd) {
            Kind::Stream if self.is_written_for_real(fd) => Verdict::Run,
            Kind::Closed | Kind::Stateless => Verdict::Run,
            Kind::Positioned if self.pretended.contains(&fd) => {
                Verdict::GiveUp("it reads back, in the window, a file that it writes".into())
            }
            Kind::Positioned if self.own.contains_key(&fd) => Verdict::Run,
            // Files opened before the fork share their position with the original.
            Kind::Positioned => if_done(self.reopen(copy, fd)),
            Kind::Stream => {
                Verdict::GiveUp("it reads from a pipe, socket or terminal in the window".into())
            }
        }
    }

    fn memory(&mut self, number: i64, arguments: [u64; 6]) -> Option<Verdict> {
        if number != libc::SYS_mmap {
            return None;
        }
        let [_, bytes, rights, flags, fd, _] = arguments;
        let shared = flags & libc::MAP_TYPE as u64 != libc::MAP_PRIVATE as u64;
        let writable = rights & libc::PROT_WRITE as u64 != 0;
        let file = flags & libc::MAP_ANONYMOUS as u64 == 0;
        if !(shared && writable && file) {
            return Some(Verdict::Run);
        }
        if !self.is_written_for_real(fd as i32) {
            return Some(Verdict::GiveUp("it maps a file for writing in the window".into()));
        }
        Some(if_done(self.written.grow(bytes)))
    }

    /// Calls that may wait: for other threads, for time, for events.
    fn waiting(
        &mut self,
        copy: &Process,
        like: Copies,
        number: i64,
        arguments: [u64; 6],
    ) -> Option<Verdict> {
        let verdict = match number {
            libc::SYS_futex => futex(copy, like, arguments),
            _ if !like.is_alone && MAY_WAIT.contains(&number) => Verdict::Run,
            // It has no child that lives.
            libc::SYS_wait4 | libc::SYS_waitid if like.counts => Verdict::Run,
            libc::SYS_nanosleep | libc::SYS_clock_nanosleep => self.withhold(0),
            libc::SYS_poll if arguments[2] == 0 => Verdict::Run,
            libc::SYS_poll
            | libc::SYS_ppoll
            | libc::SYS_select
            | libc::SYS_pselect6
            | libc::SYS_epoll_wait
            | libc::SYS_epoll_pwait
            | libc::SYS_epoll_pwait2 => Verdict::GiveUp("it waits for events in the window".into()),
            _ => return None,
        };
        Some(verdict)
    }
}

fn installs_a_filter(number: i64, arguments: [u64; 6]) -> bool {
    number == libc::SYS_seccomp
        || number == libc::SYS_prctl && arguments[0] == libc::PR_SET_SECCOMP as u64
}

/// Lets the copy make a call of ours.
fn call(copy: &mut Process, number: i64, arguments: [u64; 6]) -> Result<u64, String> {
    copy.checked_call(number, arguments).map_err(no_own_view)
}

fn no_own_view(cause: std::io::Error) -> String {
    format!("the copy cannot have its own view of an open file ({cause})")
}

/// The call is made if what it needs was done; else the copy is given up.
fn if_done(done: Result<(), String>) -> Verdict {
    done.map_or_else(Verdict::GiveUp, |()| Verdict::Run)
}

/// Opens the file of a descriptor of the copy once more, with a position of its own; the new descriptor.
fn open_again(copy: &mut Process, fd: i32, flags: i32) -> Result<u64, String> {
    let path = format!("/proc/self/fd/{fd}\0");
    with_bytes(copy, path.as_bytes(), |copy, path| {
        call(copy, libc::SYS_open, [path, flags as u64, 0, 0, 0, 0])
    })
}

/// Has `act` done with `bytes` at an address in the copy.
fn with_bytes<T>(
    copy: &mut Process,
    bytes: &[u8],
    act: impl FnOnce(&mut Process, u64) -> Result<T, String>,
) -> Result<T, String> {
    let rights = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let private = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let page = call(copy, libc::SYS_mmap, [0, PAGE_BYTES, rights, private, u64::MAX, 0])?;
    copy.write(page, bytes).map_err(no_own_view)?;
    let done = act(copy, page);
    call(copy, libc::SYS_munmap, [page, PAGE_BYTES, 0, 0, 0, 0])?;
    done
}

/// Where nobody else is in the copy, who would wait for a change waits for ever.
fn futex(copy: &Process, like: Copies, arguments: [u64; 6]) -> Verdict {
    let operation = arguments[1] as i32 & 0x7f;
    let waits = like.is_alone && matches!(operation, libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET);
    let holds = copy.word(arguments[0] & !7).map(|word| (word >> (8 * (arguments[0] & 4))) as u32)
        == Some(arguments[2] as u32);
    match operation {
        _ if waits && holds && arguments[3] == 0 => {
            Verdict::GiveUp("it waits for another thread in the window".into())
        }
        _ if waits && holds => Verdict::Answer(-i64::from(libc::ETIMEDOUT)),
        libc::FUTEX_WAIT
        | libc::FUTEX_WAIT_BITSET
        | libc::FUTEX_WAKE
        | libc::FUTEX_WAKE_BITSET
        | libc::FUTEX_WAKE_OP
        | libc::FUTEX_REQUEUE
        | libc::FUTEX_CMP_REQUEUE => Verdict::Run,
        _ => Verdict::GiveUp("it takes a lock of the kernel's in the window".into()),
    }
}

/// The sum of the lengths in an array of `iovec`.
fn vector_bytes(copy: &Process, at: u64, count: u64) -> u64 {
    (0..count.min(1024)).filter_map(|n| copy.word(at.wrapping_add(n * 16 + 8))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_mappings_for_writing_are_not_made() {
        let map = |fd: u64, rights: i32, flags: i32| {
            let mut calls = Calls::new(1, 1);
            calls.made(libc::SYS_memfd_create, [0; 6], 5);
            calls.memory(libc::SYS_mmap, [0, 4096, rights as u64, flags as u64, fd, 0])
        };
        let both = libc::PROT_READ | libc::PROT_WRITE;
        assert_eq!(map(3, both, libc::MAP_PRIVATE), Some(Verdict::Run));
        assert_eq!(map(3, libc::PROT_READ, libc::MAP_SHARED), Some(Verdict::Run));
        assert_eq!(map(3, both, libc::MAP_SHARED | libc::MAP_ANONYMOUS), Some(Verdict::Run));
        assert!(matches!(map(3, both, libc::MAP_SHARED), Some(Verdict::GiveUp(_))));
        assert_eq!(map(5, both, libc::MAP_SHARED), Some(Verdict::Run), "nobody else has it");
    }

    #[test]
    fn waiting_for_others_is_told_from_working_between_rests() {
        let mut calls = Calls::new(1, 1);
        let yields = |calls: &mut Calls, each: u64| {
            (0..2 * MANY_IDLE as u64)
                .find_map(|n| calls.waits(libc::SYS_sched_yield, 5_000_000 + n * each))
        };
        assert_eq!(yields(&mut calls, 100), Some(5_000_000));
        assert_eq!(calls.waits(libc::SYS_read, 0), None);
        assert_eq!(yields(&mut calls, 10 * FEW_BETWEEN), None);
    }

    #[test]
    fn descriptors_opened_by_the_copy_are_its_own() {
        let mut calls = Calls::new(1, 1);
        calls.made(libc::SYS_openat, [0; 6], 5);
        calls.made(libc::SYS_dup, [5, 0, 0, 0, 0, 0], 6);
        assert!(calls.own.contains_key(&5) && calls.own.contains_key(&6));
        calls.made(libc::SYS_close, [5, 0, 0, 0, 0, 0], 0);
        assert!(!calls.own.contains_key(&5) && calls.own.contains_key(&6));
        calls.made(libc::SYS_dup2, [1, 6, 0, 0, 0, 0], 6);
        assert!(!calls.own.contains_key(&6), "it now is the original's standard output");
    }
}
