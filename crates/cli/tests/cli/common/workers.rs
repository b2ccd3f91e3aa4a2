//! Work shared by threads, for tests that do not depend on the time that it takes.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `work` with each of `all` and its index, on one thread for each processor.
///
/// # Panics
/// If a call panics. The other threads do the rest before.
pub fn for_each<T: Sync>(all: &[T], work: impl Fn(usize, &T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(one) = all.get(index) else { return };
                    work(index, one);
                }
            });
        }
    });
}
