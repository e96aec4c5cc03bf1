//! A process that ends what we started should we be killed.
//!
//! The kernel kills our children when we die, and leaves theirs alone. So a shell waits beside us for
//! the end of a pipe that only we hold, and then ends every process whose environment names us: each
//! command is started with [`mark`] in it, and processes hand their environment on, to daemons too.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The variable that names us and the run in every process that a run starts.
pub(super) const VARIABLE: &str = "STALLSCOPE_RUN";

/// Waits for the end of its input. A line there says that nothing is left to be ended.
const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM
read -r line && exit
for round in 1 2 3 4 5 6 7 8 9 10; do
    found=
    for file in $(grep -ls "$1" /proc/[0-9]*/environ); do
        process=${file#/proc/}
        kill -KILL "${process%/environ}" && found=yes
    done
    [ "$found" ] || exit
done
"#;

static GUARDIAN: Mutex<Option<Child>> = Mutex::new(None);

/// Names this process among all that there were, always as long: the environment's size moves a
/// program's stack.
pub(super) fn mark() -> &'static str {
    static MARK: OnceLock<String> = OnceLock::new();
    MARK.get_or_init(|| {
        use std::hash::{BuildHasher, RandomState};
        format!("{:016x}", RandomState::new().hash_one(std::process::id()))
    })
}

/// Starts the guardian unless there is one. Where it cannot be started (no shell, no process left),
/// the kernel still kills our own children with us.
pub(super) fn start() {
    let mut guardian = GUARDIAN.lock().unwrap_or_else(PoisonError::into_inner);
    if guardian.is_none() {
        *guardian = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "stallscope-guardian", mark()])
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok();
    }
}

/// Its process id, if there is one.
pub(super) fn pid() -> Option<i32> {
    let guardian = GUARDIAN.lock().unwrap_or_else(PoisonError::into_inner);
    guardian.as_ref().and_then(|child| i32::try_from(child.id()).ok())
}

/// Ends the process that watches over us, when nothing is left to be watched. A program that has run
/// commands calls this before it exits; else the guardian notices by itself, some milliseconds later.
pub fn dismiss_guardian() {
    let mut guardian = GUARDIAN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(mut child) = guardian.take() {
        if let Some(mut pipe) = child.stdin.take() {
            // Fails only when it was killed.
            let _ = pipe.write_all(b"done\n");
        }
        let _ = child.wait();
    }
}
