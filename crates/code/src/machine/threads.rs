//! How many threads this process may have: a limit (`ulimit -u`, a container's pids) allows fewer
//! than there are processors, and asking for one too many must not end us.

use std::num::NonZero;
use std::sync::Mutex;
use std::thread::{self, Builder};

use rayon::{ThreadPoolBuildError, ThreadPoolBuilder};

/// Sets up the threads that scans share: one for each processor, or as many as can be had, else the
/// one that calls. To be called once and before the first scan; without it there is one for each
/// processor, and a panic where that is too many.
///
/// # Errors
/// When threads are set up already, or were taken from us meanwhile.
pub fn start_threads() -> Result<(), ThreadPoolBuildError> {
    let wanted = thread::available_parallelism().map_or(1, NonZero::get);
    let builder = ThreadPoolBuilder::new();
    match most_at_once(wanted) {
        0 => builder.num_threads(1).use_current_thread().build_global(),
        count => builder.num_threads(count).build_global(),
    }
}

/// How many of `wanted` threads can run at the same time. The shared ones cannot be asked for twice
/// when the first answer is no, so it is found out beforehand.
fn most_at_once(wanted: usize) -> usize {
    let gate = Mutex::new(());
    thread::scope(|scope| {
        let closed = gate.lock();
        let starts = || Builder::new().spawn_scoped(scope, || drop(gate.lock())).is_ok();
        let count = (0..wanted).take_while(|_| starts()).count();
        drop(closed);
        count
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_wanted_are_found_where_nothing_limits_them() {
        assert_eq!(most_at_once(3), 3);
        assert_eq!(most_at_once(0), 0);
    }
}
