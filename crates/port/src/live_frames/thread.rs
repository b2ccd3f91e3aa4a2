//! The thread in which the kernel generates frames. It makes the blocking calls.

use super::layout::{Maps, state};
use crate::bpf;
use crate::clock::monotonic_ns;
use crate::priority::{restrict, take_turns};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Runs of the program per call. A call costs about 17 µs in which no frame leaves, and a run without a due frame about
/// 60 ns, so this is 0.2 % of the time. The last call ends about 10 ms after the last frame.
const REPEAT: u32 = 131_072;
/// Number of runs after which the kernel does other work. Frames leave no later than at the end of such a batch.
const BATCH: u32 = 32;
/// If a call does not return within this time, it never will.
const STOP: Duration = Duration::from_secs(5);
/// Nice values: high priority on its own processor, like the packet loop on its own processor; otherwise a lower
/// priority than the packet loop.
const ALONE: i32 = -20;
const SHARED: i32 = -10;
/// Time slice of such threads, in ns, if several share a processor. It is longer than the time slice of the packet loop
/// ([`super::TURN_NS`]), so that the packet loop runs first whenever it wakes.
const TURN_NS: u64 = 300_000;

/// A program that is ready to run.
pub struct Loaded {
    // The link is dropped before the program.
    pub _link: OwnedFd,
    pub program: OwnedFd,
    pub maps: Maps,
    /// Initial contents of pages.
    pub frame: Vec<u8>,
}

impl Loaded {
    /// True if the program will never send another frame.
    fn finished(&self) -> bool {
        let state = |word| self.maps.state.get(0, word);
        let elapsed = monotonic_ns().checked_sub(state(state::START));
        state(state::INDEX) >= state(state::TOTAL) || elapsed.is_some_and(|ns| ns >= state(state::END))
    }
}

/// Processors on which the thread can run.
pub struct Place {
    pub processors: Vec<usize>,
    /// True if the thread shares the processor of the packet loop.
    pub shared: bool,
}

enum Work {
    None,
    Run(Arc<Loaded>, Place),
    End,
}

struct Shared {
    work: Mutex<Work>,
    changed: Condvar,
    /// True from the request to run until the last call returns.
    running: AtomicBool,
    stop: AtomicBool,
    /// The kernel error that ended the run; see [`Runner::failure`].
    error: AtomicI32,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        loop {
            let mut work = self.lock();
            let (loaded, place) = loop {
                match std::mem::replace(&mut *work, Work::None) {
                    Work::Run(loaded, place) => break (loaded, place),
                    Work::End => return,
                    Work::None => work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(work);
            take_turns(TURN_NS, Some(if place.shared { SHARED } else { ALONE }));
            if let Err(e) = restrict(&place.processors).and_then(|()| self.run(&loaded)) {
                self.error.store(e.raw_os_error().unwrap_or(libc::EIO), Ordering::Release);
            }
            // Releases the program before the port is notified.
            drop(loaded);
            let work = self.lock();
            self.running.store(false, Ordering::Release);
            self.changed.notify_all();
            drop(work);
        }
    }

    fn run(&self, loaded: &Loaded) -> io::Result<()> {
        while !self.stop.load(Ordering::Acquire) && !loaded.finished() {
            match bpf::run_live(&loaded.program, &loaded.frame, REPEAT, BATCH) {
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                other => other?,
            }
        }
        Ok(())
    }
}

/// Handle of the thread. Dropping it ends the thread.
pub struct Runner {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Runner {
    /// Starts the thread, which is idle at first, in the caller's network namespace.
    pub fn new() -> io::Result<Runner> {
        let shared = Arc::new(Shared {
            work: Mutex::new(Work::None),
            changed: Condvar::new(),
            running: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            error: AtomicI32::new(0),
        });
        let its = shared.clone();
        let thread = std::thread::Builder::new().name("live-frames".into()).spawn(move || its.work())?;
        Ok(Runner { shared, thread: Some(thread) })
    }

    /// Runs `loaded` at `place` until it finishes or is stopped.
    pub fn run(&self, loaded: Arc<Loaded>, place: Place) {
        let mut work = self.shared.lock();
        self.shared.stop.store(false, Ordering::Release);
        self.shared.error.store(0, Ordering::Release);
        self.shared.running.store(true, Ordering::Release);
        *work = Work::Run(loaded, place);
        self.shared.changed.notify_all();
    }

    /// True while the thread runs a program.
    pub fn is_running(&self) -> bool {
        self.shared.running.load(Ordering::Acquire)
    }

    /// Returns the error that ended the run. It is returned only once: the next stream starts without it.
    pub fn failure(&self) -> io::Result<()> {
        match self.shared.error.swap(0, Ordering::AcqRel) {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// Stops the run and waits until it has ended.
    pub fn stop(&self) -> io::Result<()> {
        self.shared.stop.store(true, Ordering::Release);
        let work = self.shared.lock();
        let waited = self.shared.changed.wait_timeout_while(work, STOP, |_| self.is_running());
        let (work, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(work);
        if timeout.timed_out() { Err(io::ErrorKind::TimedOut.into()) } else { self.failure() }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        *self.shared.lock() = Work::End;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_kernel_ends_one_stream_and_not_the_next() {
        let runner = Runner::new().unwrap();
        let fails = || runner.shared.error.store(libc::ENOMEM, Ordering::Release);
        // The error is found while the stream runs, or when it is stopped. The port stops the runner again before the next stream.
        fails();
        assert_eq!(runner.failure().unwrap_err().raw_os_error(), Some(libc::ENOMEM));
        runner.stop().unwrap();
        fails();
        assert_eq!(runner.stop().unwrap_err().raw_os_error(), Some(libc::ENOMEM));
        runner.stop().unwrap();
        runner.failure().unwrap();
    }
}
