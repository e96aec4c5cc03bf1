//! What to run, and the child's side of the fork.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::error::ChildError;
use super::guardian::VARIABLE;
use super::load::Load;
use crate::clock::Cpus;

/// What the child's standard streams are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Streams {
    /// Nothing to read; output goes through pipes into a digest.
    #[default]
    Captured,
    /// As `Captured`, reading this file from its start.
    Fed(PathBuf),
    /// Ours, as if the user had started the command alone; its output is not seen by us. A
    /// terminal is not handed on for reading: the child is in a process group of its own, which the
    /// kernel would stop for that.
    Inherited,
}

/// What to run and how to place it.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// The program file; see [`resolve_program`].
    pub program: PathBuf,
    /// Its arguments, without the program's own name.
    pub args: Vec<OsString>,
    /// Variables that are set for it, beside ours.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it starts; `None` for where we are. The program's path is not relative to it.
    pub folder: Option<PathBuf>,
    /// Bytes added to the environment, so that the stack starts elsewhere in every run.
    pub environment_padding_bytes: usize,
    /// The logical processors to stay on; `None` leaves the choice to the scheduler.
    pub cpu: Option<Cpus>,
    /// Where it reads from and writes to.
    pub streams: Streams,
    /// For a server: what is run against it, and is what its wall time is the time of.
    pub load: Option<Box<Load>>,
}

impl Launch {
    /// The system's shell with this script.
    ///
    /// ```
    /// use stallscope_run::run::child::Launch;
    /// assert_eq!(Launch::shell("exit 3").args, ["-c", "exit 3"]);
    /// ```
    pub fn shell(script: impl Into<OsString>) -> Self {
        Self {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            ..Self::default()
        }
    }
}

/// The file that is our own standard input, if that is one: what is given to us shall not be ignored.
///
/// # Errors
/// [`ChildError::OwnInput`] when it holds what only one run could read.
pub fn own_input() -> Result<Option<PathBuf>, ChildError> {
    let stdin = Path::new("/proc/self/fd/0");
    let Ok(kind) = stdin.metadata().map(|known| known.file_type()) else { return Ok(None) };
    if kind.is_file() {
        let path = stdin.read_link().ok().filter(|path| path.is_file());
        return path.map(Some).ok_or(ChildError::OwnInput("is a file that has no name any more"));
    }
    let input = std::io::stdin();
    let mut waiting = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
    let is_ready = kind.is_fifo() && poll(&mut waiting, PollTimeout::ZERO).is_ok_and(|n| n > 0);
    let holds = waiting[0].revents().is_some_and(|seen| seen.contains(PollFlags::POLLIN));
    match is_ready && holds {
        true => Err(ChildError::OwnInput(
            "is a pipe that holds something, which one run could read and no other",
        )),
        false => Ok(None),
    }
}

/// The file that a command's first word means: a path if it has a slash, else the first hit on `PATH`.
///
/// # Errors
/// [`ChildError::NotFound`] when there is none, and [`ChildError::NoName`] for no name.
pub fn resolve_program(name: &OsStr) -> Result<PathBuf, ChildError> {
    resolve_on(name, std::env::var_os("PATH").as_deref())
}

/// As [`resolve_program`], with this `PATH`.
///
/// # Errors
/// As there.
pub fn resolve_on(name: &OsStr, search: Option<&OsStr>) -> Result<PathBuf, ChildError> {
    let path = Path::new(name);
    if name.is_empty() {
        return Err(ChildError::NoName);
    }
    if name.as_bytes().contains(&b'/') {
        return if path.exists() {
            Ok(path.into())
        } else {
            Err(ChildError::NotFound(path.into()))
        };
    }
    search
        .iter()
        .flat_map(std::env::split_paths)
        .map(|dir| dir.join(path))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| ChildError::NotFound(path.into()))
}

/// Everything the child needs between fork and exec, allocated before the fork.
pub(super) struct Prepared {
    path: CString,
    pub(super) argv: Vec<CString>,
    pub(super) envp: Vec<CString>,
    folder: Option<CString>,
    cpu_set: Option<libc::cpu_set_t>,
    ignores_sigchld: bool,
}

/// Has the kernel tell us how children end, which it does not while `SIGCHLD` is ignored, as our
/// parent may have left it. True from then on if it was; the commands we start get it back so.
pub(super) fn hear_of_children() -> bool {
    use std::sync::OnceLock;
    static WAS_IGNORED: OnceLock<bool> = OnceLock::new();
    *WAS_IGNORED.get_or_init(|| {
        // SAFETY: an all-zero sigaction is valid and is filled by the first call; the second sets the
        // default action.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGCHLD, std::ptr::null(), &raw mut action);
            let ignored = action.sa_sigaction == libc::SIG_IGN;
            if ignored {
                libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            }
            ignored
        }
    })
}

impl Prepared {
    /// `mark` names the run in its environment.
    pub(super) fn new(
        launch: &Launch,
        mark: &str,
        ignores_sigchld: bool,
    ) -> Result<Self, ChildError> {
        let c = |bytes: &[u8]| {
            CString::new(bytes).map_err(|_| ChildError::ZeroByte(launch.program.clone()))
        };
        let path = c(launch.program.as_os_str().as_bytes())?;
        let mut argv = vec![path.clone()];
        for arg in &launch.args {
            argv.push(c(arg.as_bytes())?);
        }
        let folder = launch.folder.as_ref().map(|folder| match folder.is_dir() {
            true => c(folder.as_os_str().as_bytes()),
            false => Err(ChildError::NoFolder(folder.clone())),
        });
        let mut envp = Vec::new();
        let mut marks = mark.to_owned();
        let is_set = |key: &OsStr| launch.environment.iter().any(|(name, _)| name == key);
        let ours = std::env::vars_os().filter(|(key, _)| !is_set(key));
        for (key, value) in ours.chain(launch.environment.iter().cloned()) {
            if key == VARIABLE {
                // We are ourselves in a run, whose guardian looks for its own mark.
                marks = format!("{} {mark}", value.display());
                continue;
            }
            let mut pair = key.into_vec();
            pair.push(b'=');
            pair.extend(value.into_vec());
            envp.push(c(&pair)?);
        }
        envp.push(c(format!("{VARIABLE}={marks}").as_bytes())?);
        let padding = "x".repeat(launch.environment_padding_bytes);
        envp.push(c(format!("STALLSCOPE_PADDING={padding}").as_bytes())?);
        let cpu_set = launch.cpu.as_ref().map(|cpus| {
            // SAFETY: a cpu_set_t is plain bits, all zero is the empty set; CPU_SET checks the index.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                for cpu in cpus.iter() {
                    libc::CPU_SET(cpu % libc::CPU_SETSIZE as usize, &mut set);
                }
                set
            }
        });
        Ok(Self { path, argv, envp, folder: folder.transpose()?, cpu_set, ignores_sigchld })
    }
}

/// The null-terminated array that `execve` wants; valid as long as `strings`.
pub(super) fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
}

/// The lowest free descriptors are given out first: so far behind ours is what other threads open just now. All of 1,024
/// took a tenth of a millisecond, which the kernel counts as the program's.
const NEAR_DESCRIPTORS: RawFd = 64;

/// A program that was written a moment ago is busy while a child that another thread forked meanwhile still has the
/// descriptor. One second in all.
const BUSY_TRIES: u32 = 200;
const BUSY_PAUSE_US: u32 = 5_000;

/// The child's side of the fork. Never returns.
///
/// # Safety
/// Must be called in a freshly forked child; the pointer arrays must end in null.
pub(super) unsafe fn become_program(
    prepared: &Prepared,
    argv: &[*const libc::c_char],
    envp: &[*const libc::c_char],
    [null, out, err]: [RawFd; 3],
    go: RawFd,
    fail: RawFd,
    parent: libc::pid_t,
) -> ! {
    // SAFETY: async-signal-safe calls only, on memory from before the fork.
    unsafe {
        libc::setpgid(0, 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::_exit(127);
        }
        libc::dup2(null, 0);
        libc::dup2(out, 1);
        libc::dup2(err, 2);
        // Rust ignores SIGPIPE; the program expects the default. Masks are inherited too.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        if prepared.ignores_sigchld {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        if let Some(set) = &prepared.cpu_set {
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set);
        }
        // What exec would close is closed now: a file that another thread writes stays busy as long as this child is held.
        for fd in (3..go.max(fail) + NEAR_DESCRIPTORS).filter(|fd| ![go, fail].contains(fd)) {
            if libc::fcntl(fd, libc::F_GETFD) == libc::FD_CLOEXEC {
                libc::close(fd);
            }
        }
        let mut byte = 0_u8;
        if libc::read(go, (&raw mut byte).cast(), 1) != 1 {
            libc::_exit(127);
        }
        // The kernel goes on counting from here: what of the largest resident set is ours.
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        let resident_kib = usage.ru_maxrss.to_ne_bytes();
        libc::write(fail, resident_kib.as_ptr().cast(), resident_kib.len());
        let moved = prepared.folder.as_ref().is_none_or(|folder| libc::chdir(folder.as_ptr()) == 0);
        let mut tries_left = if moved { BUSY_TRIES } else { 0 };
        while tries_left > 0 {
            libc::execve(prepared.path.as_ptr(), argv.as_ptr(), envp.as_ptr());
            if Errno::last() != Errno::ETXTBSY {
                break;
            }
            tries_left -= 1;
            libc::usleep(BUSY_PAUSE_US);
        }
        let errno = (Errno::last_raw()).to_ne_bytes();
        libc::write(fail, errno.as_ptr().cast(), errno.len());
        libc::_exit(127)
    }
}
