//! One child process: held before its first instruction, started, measured, never left behind.
//!
//! `std::process` cannot hold a child before `exec` (a sampler has to attach first), cannot
//! report the resources of *this* child (`wait4`), and cannot wait with a limit. So the fork is
//! our own: the child puts itself into its own process group, asks the kernel to kill it when we
//! die, waits for one byte, then executes. Wall time runs from that byte to the exit, so the fork
//! itself is not in it. Output goes through pipes into a running digest, so that a program which
//! prints gigabytes costs no memory. A limit, an interrupt or a dropped value kills the whole group;
//! what has left the group is found among our own children (`leftovers`), and should we be killed
//! ourselves, a guardian ends what is left (`guardian`).

mod addresses;
mod error;
mod guardian;
mod launch;
mod leftovers;
mod load;
mod output;

use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, pipe2, setpgid};

pub use addresses::FixedAddresses;
pub use error::{ChildError, last_lines};
pub use guardian::dismiss_guardian;
pub use launch::{Launch, Streams, own_input, resolve_on, resolve_program};
pub use load::{Load, run_step};
pub use output::Output;

use error::{not_executable, system};
use launch::{Prepared, become_program, pointers};
use load::Loading;
use output::Stream;

/// How long a wait may sleep before it looks at the interrupt flag again.
const SLICE: Duration = Duration::from_millis(100);

/// When to give up on a child.
#[derive(Clone, Copy, Debug)]
pub struct Limits<'a> {
    /// Longest wall time; `None` waits forever.
    pub timeout: Option<Duration>,
    /// Set from outside (Ctrl-C) to stop.
    pub interrupt: &'a AtomicBool,
}

/// An interrupt that does not come.
pub static NEVER: AtomicBool = AtomicBool::new(false);

impl Default for Limits<'_> {
    /// Waits for ever.
    fn default() -> Self {
        Self { timeout: None, interrupt: &NEVER }
    }
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It exited by itself with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl Status {
    /// What stands before the code where a status is written out.
    pub const CODE: &'static str = "exit code ";

    /// Whether it exited with code 0.
    #[must_use]
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "{}{code}", Self::CODE),
            Self::Signal(number) => match nix::sys::signal::Signal::try_from(*number) {
                Ok(signal) => write!(f, "killed by {signal}"),
                Err(_) => write!(f, "killed by signal {number}"),
            },
        }
    }
}

/// Why a child was not on the processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffProcessor {
    /// Time in the run queue, of its first thread; absent where the kernel does not tell.
    pub run_queue_ns: Option<u64>,
    /// How often it gave the processor up, with all threads and the children it waited for.
    pub voluntary_switches: u64,
    /// How often it was taken off, likewise.
    pub involuntary_switches: u64,
}

/// A finished child.
#[derive(Clone, Debug)]
pub struct Exit {
    /// Its number, which other processes may have by now; 0 where that is not known.
    pub pid: i32,
    /// From the start signal to the exit; that of the load where there is one.
    pub wall_ns: u64,
    /// Processor time in user mode, of the child and the children it waited for.
    pub user_ns: u64,
    /// Processor time in the kernel, likewise.
    pub system_ns: u64,
    /// The largest resident set, in bytes; never less than `memory_before_exec_bytes`, because the kernel
    /// counts the child from the fork on.
    pub peak_memory_bytes: u64,
    /// What was resident of the copy of ourselves that became the program.
    pub memory_before_exec_bytes: u64,
    /// Why it was not on the processor.
    pub off_processor: OffProcessor,
    /// Pages that it touched and the kernel had to provide, with the children it waited for.
    pub page_faults: u64,
    /// How it ended.
    pub status: Status,
    /// What it wrote to standard output.
    pub stdout: Output,
    /// What it wrote to standard error.
    pub stderr: Output,
    /// Names of the processes that were still there when it had ended; they were killed.
    pub left_behind: Vec<String>,
}

impl Exit {
    /// All processor time.
    #[must_use]
    pub fn processor_ns(&self) -> u64 {
        self.user_ns + self.system_ns
    }

    /// That of a child of which nothing else is known.
    #[must_use]
    pub fn of(status: Status) -> Self {
        Self {
            pid: 0,
            wall_ns: 0,
            user_ns: 0,
            system_ns: 0,
            peak_memory_bytes: 0,
            memory_before_exec_bytes: 0,
            off_processor: OffProcessor::default(),
            page_faults: 0,
            status,
            stdout: Output::default(),
            stderr: Output::default(),
            left_behind: Vec::new(),
        }
    }
}

/// A child that was forked and has not been waited for yet. Dropping it kills its process group.
pub struct Child {
    pid: libc::pid_t,
    path: PathBuf,
    go: Option<File>,
    exec_failure: File,
    stdout: Stream,
    stderr: Stream,
    memory_before_exec_bytes: u64,
    started: Option<Instant>,
    reaped: bool,
    load: Option<Box<Load>>,
    /// Present from the start on.
    loading: Option<Loading>,
    /// Absent once its background has been handed on.
    run: Option<leftovers::Run>,
}

/// A descriptor that stands for the process `pid`, and for no other that gets its number later.
///
/// # Errors
/// What the kernel says: no such process, or a kernel before Linux 5.3.
pub fn pid_fd(pid: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: pidfd_open takes two integers and returns a new descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(Errno::last());
    }
    // SAFETY: the kernel has just given us this descriptor, nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

impl Child {
    /// Forks a child that waits, before its program's first instruction, for [`Child::start`].
    /// Call it from a thread that lives until the child has ended: the kernel kills the child when
    /// the thread that forked it goes away.
    ///
    /// # Errors
    /// When the system has no process or descriptor left, or an argument holds a zero byte.
    pub fn hold(launch: &Launch) -> Result<Self, ChildError> {
        let sigchld_was_ignored = launch::hear_of_children();
        leftovers::adopt_orphans();
        guardian::start();
        let mark = leftovers::next_mark();
        let prepared = Prepared::new(launch, &mark, sigchld_was_ignored)?;
        let argv = pointers(&prepared.argv);
        let envp = pointers(&prepared.envp);
        let pipe = || pipe2(OFlag::O_CLOEXEC).map_err(system("make a pipe"));
        let output_pipe = || {
            let (read, write) = pipe()?;
            // Only our end: the program expects writes that block.
            fcntl(&read, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(system("make a pipe"))?;
            Ok::<_, ChildError>((read, write))
        };
        let (go_read, go_write) = pipe()?;
        let (fail_read, fail_write) = pipe()?;
        let (out_read, out_write) = output_pipe()?;
        let (err_read, err_write) = output_pipe()?;
        let input = match &launch.streams {
            Streams::Fed(path) => crate::foreign::open(path)
                .map_err(|cause| ChildError::Input { path: path.clone(), cause })?,
            Streams::Captured | Streams::Inherited => File::open("/dev/null")
                .map_err(|cause| ChildError::System { action: "open /dev/null", cause })?,
        };
        let parent = std::process::id() as libc::pid_t;
        let stdin_is_terminal = std::io::stdin().is_terminal();
        // SAFETY: between fork and exec the child calls only async-signal-safe functions on memory
        // that was allocated before the fork.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let fds = match launch.streams {
                Streams::Captured | Streams::Fed(_) => {
                    [input.as_raw_fd(), out_write.as_raw_fd(), err_write.as_raw_fd()]
                }
                Streams::Inherited if stdin_is_terminal => [input.as_raw_fd(), 1, 2],
                Streams::Inherited => [0, 1, 2],
            };
            // SAFETY: we are the child; the pointers end in null and outlive the call.
            unsafe {
                become_program(
                    &prepared,
                    &argv,
                    &envp,
                    fds,
                    go_read.as_raw_fd(),
                    fail_write.as_raw_fd(),
                    parent,
                )
            }
        }
        if pid < 0 {
            return Err(system("start a process")(Errno::last()));
        }
        // Also from this side, so that the group exists whoever runs first.
        // A failure (the child has already done it) is harmless.
        let _ = setpgid(Pid::from_raw(pid), Pid::from_raw(pid));
        Ok(Self {
            pid,
            path: launch.program.clone(),
            go: Some(go_write.into()),
            exec_failure: fail_read.into(),
            stdout: Stream::new(out_read),
            stderr: Stream::new(err_read),
            memory_before_exec_bytes: 0,
            started: None,
            reaped: false,
            load: launch.load.clone(),
            loading: None,
            run: Some(leftovers::Run::begun(pid, mark)),
        })
    }

    /// The process id, which is also its process group.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets the held child execute its program. Wall time starts here.
    ///
    /// # Errors
    /// When the program cannot be executed (the reason is the kernel's).
    pub fn start(&mut self) -> Result<(), ChildError> {
        let Some(mut go) = self.go.take() else {
            return Ok(());
        };
        if let Some(load) = self.load.take() {
            self.loading = Some(Loading::begin(&load, self.pid, self.pid_fd()?));
        }
        self.started = Some(Instant::now());
        go.write_all(b"g")
            .map_err(|cause| ChildError::System { action: "start the child", cause })?;
        Ok(())
    }

    /// Reports whether the exec itself failed. Blocks until the child has executed.
    pub(crate) fn check_exec(&mut self) -> Result<(), ChildError> {
        let (mut resident_kib, mut code) = ([0_u8; size_of::<libc::c_long>()], [0_u8; 4]);
        // Nothing where it was killed before.
        if self.exec_failure.read_exact(&mut resident_kib).is_err() {
            return Ok(());
        }
        let resident_kib = u64::try_from(libc::c_long::from_ne_bytes(resident_kib)).unwrap_or(0);
        self.memory_before_exec_bytes = resident_kib.saturating_mul(1024);
        match self.exec_failure.read_exact(&mut code) {
            Ok(()) => {
                let errno = Errno::from_raw(i32::from_ne_bytes(code));
                Err(not_executable(&self.path, errno))
            }
            Err(_) => Ok(()),
        }
    }

    /// Starts the child if it is still held, waits for its end and reaps it.
    ///
    /// # Errors
    /// [`ChildError::TimedOut`] and [`ChildError::Interrupted`] after its group has been killed;
    /// [`ChildError::NotExecutable`] when the exec failed.
    pub fn wait(self, limits: &Limits<'_>) -> Result<Exit, ChildError> {
        self.wait_with(limits, |_| Ok(()), SLICE)
    }

    /// As [`Child::wait`], but what it leaves behind goes on until the second value is dropped: a server that
    /// was started for the runs that follow.
    ///
    /// # Errors
    /// As [`Child::wait`]; then nothing is left of it.
    pub fn wait_keeping(self, limits: &Limits<'_>) -> Result<(Exit, Background), ChildError> {
        let (exit, run) = self.watch(limits, |_| Ok(()), SLICE, true)?;
        Ok((exit, Background(run)))
    }

    /// As [`Child::wait`], calling `tick` at least every `slice` while the child runs; an error from
    /// `tick` kills the child and is handed back.
    ///
    /// # Errors
    /// As [`Child::wait`], and whatever `tick` returns.
    pub fn wait_with(
        self,
        limits: &Limits<'_>,
        tick: impl FnMut(i32) -> Result<(), ChildError>,
        slice: Duration,
    ) -> Result<Exit, ChildError> {
        Ok(self.watch(limits, tick, slice, false)?.0)
    }

    fn watch(
        mut self,
        limits: &Limits<'_>,
        mut tick: impl FnMut(i32) -> Result<(), ChildError>,
        slice: Duration,
        keeps: bool,
    ) -> Result<(Exit, Option<leftovers::Run>), ChildError> {
        self.start()?;
        let started = self.started.unwrap_or_else(Instant::now);
        let pid_fd = self.pid_fd()?;
        self.check_exec()?;
        loop {
            if limits.interrupt.load(Ordering::Relaxed) {
                return Err(ChildError::Interrupted);
            }
            let mut patience = slice;
            if let Some(limit) = limits.timeout {
                let left = limit.saturating_sub(started.elapsed());
                if left.is_zero() {
                    return Err(ChildError::TimedOut { path: self.path.clone(), limit });
                }
                patience = patience.min(left);
            }
            if self.poll_once(&pid_fd, patience)? {
                break;
            }
            tick(self.pid)?;
        }
        tick(self.pid)?;
        self.reap(started, keeps)
    }

    /// Takes what the child has written so far, so that it need not wait for a reader.
    pub fn drain(&mut self) {
        for stream in [&mut self.stdout, &mut self.stderr] {
            while stream.drain() {}
        }
    }

    /// When it was let go; `None` while it is held.
    pub fn started(&self) -> Option<Instant> {
        self.started
    }

    fn pid_fd(&self) -> Result<OwnedFd, ChildError> {
        pid_fd(self.pid).map_err(system("watch the child (pidfd_open, Linux 5.3 or newer)"))
    }

    /// Sleeps until something happens; true when the child has ended.
    fn poll_once(&mut self, pid_fd: &OwnedFd, patience: Duration) -> Result<bool, ChildError> {
        let mut fds = vec![PollFd::new(pid_fd.as_fd(), PollFlags::POLLIN)];
        for file in [&self.stdout.file, &self.stderr.file].into_iter().flatten() {
            fds.push(PollFd::new(file.as_fd(), PollFlags::POLLIN));
        }
        // Rounded up: a patience below a millisecond must not become a busy loop.
        let millis = patience.as_micros().div_ceil(1000).clamp(1, 60_000) as u16;
        match poll(&mut fds, PollTimeout::from(millis)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(system("wait for the child")(e)),
        }
        let happened = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
        let ended = happened(&fds[0]);
        let mut ready = fds[1..].iter().map(happened).collect::<Vec<_>>().into_iter();
        for stream in [&mut self.stdout, &mut self.stderr] {
            if stream.file.is_some() && ready.next().unwrap_or(false) {
                stream.drain();
            }
        }
        Ok(ended)
    }

    fn reap(
        mut self,
        started: Instant,
        keeps: bool,
    ) -> Result<(Exit, Option<leftovers::Run>), ChildError> {
        let mut wall_ns = started.elapsed().as_nanos() as u64;
        let left_behind = self.run.as_ref().map(leftovers::Run::left_behind).unwrap_or_default();
        if !keeps {
            // Before the wait, while the number is still ours.
            kill_group(self.pid);
        }
        // Nothing of this is left once it has been collected.
        let run_queue_ns = schedule_ns(self.pid).map(|[_, waited]| waited);
        let mut status = 0;
        // SAFETY: an all-zero rusage is valid, wait4 fills it.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to locals that outlive the call.
        let got = unsafe { libc::wait4(self.pid, &mut status, 0, &mut usage) };
        if got != self.pid {
            return Err(system("collect the child's end")(Errno::last()));
        }
        self.reaped = true;
        let run = self.run.take();
        if let Some(run) = run.as_ref().filter(|_| !keeps) {
            run.end_orphans();
        }
        // What is in the pipes now, not until they close: a daemon may hold them open for ever.
        for stream in [&mut self.stdout, &mut self.stderr] {
            while stream.drain() {}
        }
        let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
        let mut status = if libc::WIFSIGNALED(status) {
            Status::Signal(libc::WTERMSIG(status))
        } else {
            Status::Code(libc::WEXITSTATUS(status))
        };
        let [stdout, stderr] = [self.stdout.finish(), self.stderr.finish()];
        if let Some(loading) = self.loading.take() {
            wall_ns = loading.finish(status, &stderr.tail)?;
            if load::is_told_to_end(status) {
                status = Status::Code(0);
            }
        }
        let exit = Exit {
            pid: self.pid,
            wall_ns,
            user_ns: ns(usage.ru_utime),
            system_ns: ns(usage.ru_stime),
            peak_memory_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0).saturating_mul(1024),
            memory_before_exec_bytes: self.memory_before_exec_bytes,
            page_faults: u64::try_from(usage.ru_minflt.saturating_add(usage.ru_majflt))
                .unwrap_or(0),
            off_processor: OffProcessor {
                run_queue_ns,
                voluntary_switches: u64::try_from(usage.ru_nvcsw).unwrap_or(0),
                involuntary_switches: u64::try_from(usage.ru_nivcsw).unwrap_or(0),
            },
            status,
            stdout,
            stderr,
            left_behind,
        };
        Ok((exit, run.filter(|_| keeps)))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(loading) = self.loading.take() {
            loading.stop();
        }
        if self.reaped {
            return;
        }
        kill_group(self.pid);
        // SAFETY: plain integers and a null pointer; the child is dying, so this ends.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            while libc::waitpid(self.pid, std::ptr::null_mut(), 0) < 0
                && Errno::last() == Errno::EINTR
            {}
        }
        if let Some(run) = &self.run {
            run.end_orphans();
        }
    }
}

/// What a command has left running for others. Dropping it ends that.
#[derive(Debug)]
pub struct Background(Option<leftovers::Run>);

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(run) = &self.0 {
            run.end_orphans();
        }
    }
}

/// Nanoseconds that the first thread of a process was on the processor, and in which it could have run and
/// did not; `None` where the kernel does not say.
pub fn schedule_ns(pid: libc::pid_t) -> Option<[u64; 2]> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok());
    Some([numbers.next()?, numbers.next()?])
}

fn kill_group(pid: libc::pid_t) {
    // SAFETY: plain integers; the group is the child's own, never ours.
    unsafe { libc::killpg(pid, libc::SIGKILL) };
}

#[cfg(test)]
mod tests;
