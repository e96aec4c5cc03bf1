//! Builds on all processors.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;

use super::SweepError;

/// Runs `work` over `items` on all processors; results come as they end. Children belong to the threads that start them, which
/// live until all is done.
pub(super) fn parallel<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R, SweepError> + Sync,
) -> Result<Vec<R>, SweepError> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Result<R, SweepError>>> = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        let run = || {
            while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                let result = work(item);
                if result.is_err() {
                    // No other one is started.
                    next.store(items.len(), Ordering::Relaxed);
                }
                if let Ok(mut all) = results.lock() {
                    all.push(result);
                }
            }
        };
        // This thread is one of them, so that all is done even where no other can be had.
        for _ in 1..workers.min(items.len()) {
            let _ = Builder::new().spawn_scoped(scope, run);
        }
        run();
    });
    results.into_inner().unwrap_or_default().into_iter().collect()
}
