//! Stops a copy whose time is up: a loop that is only counted fills no log, so that nothing else does.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::trace::engine::process::Handle;

/// How often it is looked whether the time is up.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Follows the copy, in this thread, as long as there is time and nobody interrupts; then it is stopped again and again,
/// and whoever follows it is to see why.
pub(super) fn watched<T, E: From<io::Error>>(
    copy: Handle,
    until: Option<Instant>,
    interrupt: &AtomicBool,
    follow: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let is_over =
        || interrupt.load(Ordering::Relaxed) || until.is_some_and(|until| Instant::now() >= until);
    std::thread::scope(|scope| {
        let (running, done) = mpsc::channel::<()>();
        std::thread::Builder::new().spawn_scoped(scope, move || {
            while done.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                if is_over() {
                    copy.stop();
                }
            }
        })?;
        let followed = follow();
        drop(running);
        followed
    })
}
