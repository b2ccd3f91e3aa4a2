//! The clock of a run. Ports own it, and all layers above get the time from them.

use drophammer_model::quantity::Instant;
use std::time::Duration;

/// Time since the start of the run.
pub trait Clock {
    /// Returns the current time.
    fn now(&self) -> Instant;

    /// Waits until `deadline`, but returns earlier when frames may have arrived. A system clock spins during short
    /// waits, because a thread that slept would send late. A virtual clock jumps.
    fn wait(&mut self, deadline: Instant);

    /// Waits until `deadline`, but returns earlier when a frame has arrived that may need an answer. Test frames that
    /// arrive in the meantime wait at their ports, each with its arrival time.
    fn pass(&mut self, deadline: Instant) {
        self.wait(deadline);
    }

    /// True if [`Clock::pass`] differs from [`Clock::wait`], so that handing over frames ahead of time
    /// ([`crate::SendAhead`]) is worthwhile.
    fn passes(&self) -> bool {
        false
    }

    /// Returns wall clock minus steady clock in nanoseconds. A change during a trial is a clock step. Constant in virtual time.
    fn wall_offset(&self) -> i128;

    /// True if time is simulated.
    fn is_virtual(&self) -> bool;
}

fn read(clock: libc::clockid_t) -> i128 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid timespec for the call to fill. Both clocks used here exist on every Linux.
    unsafe { libc::clock_gettime(clock, &mut ts) };
    i128::from(ts.tv_sec) * 1_000_000_000 + i128::from(ts.tv_nsec)
}

/// Clock that the packet loop and the kernel's programs use.
pub(crate) fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC) as u64
}

/// Returns the processor time of all threads of this process, including threads that have ended.
pub fn process_time() -> Duration {
    Duration::from_nanos(u64::try_from(read(libc::CLOCK_PROCESS_CPUTIME_ID)).unwrap_or(0))
}

/// The machine's steady clock, counted from its creation. Copies show the same time.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: i128,
}

/// Longer waits sleep first, and spin for this time before they end.
const SPIN: Duration = Duration::from_micros(300);
/// How often a sleeping wait checks for frames.
const NAP: Duration = Duration::from_millis(1);

impl SystemClock {
    /// Starts the clock at 1 ns, so that a deadline of 0 can mean "never".
    pub fn start() -> SystemClock {
        SystemClock { start: read(libc::CLOCK_MONOTONIC) - 1 }
    }

    /// Returns a clock that shows 0 when `CLOCK_MONOTONIC` is `origin_ns`. This can be the clock of another process, or
    /// of another host if the difference between the clocks of the hosts is known.
    pub fn with_origin(origin_ns: i64) -> SystemClock {
        SystemClock { start: i128::from(origin_ns) }
    }

    /// Returns `CLOCK_MONOTONIC` in ns at instant 0 of this clock.
    pub fn origin_ns(&self) -> u64 {
        self.start as u64
    }

    /// Converts the wall-clock time `wall_ns` (since 1970) to an instant, with `offset` from [`Clock::wall_offset`].
    #[inline]
    pub fn from_wall(&self, wall_ns: i128, offset: i128) -> Instant {
        Instant(u64::try_from(wall_ns - offset - self.start).unwrap_or(0))
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Instant {
        Instant((read(libc::CLOCK_MONOTONIC) - self.start) as u64)
    }

    fn wait(&mut self, deadline: Instant) {
        let left = deadline.since(self.now());
        if left > SPIN {
            std::thread::sleep((left - SPIN).min(NAP));
        } else {
            std::hint::spin_loop();
        }
    }

    fn wall_offset(&self) -> i128 {
        // The reading with the shortest interval has the smallest error.
        (0..5)
            .map(|_| {
                let before = read(libc::CLOCK_MONOTONIC);
                let wall = read(libc::CLOCK_REALTIME);
                let after = read(libc::CLOCK_MONOTONIC);
                (after - before, wall - (before + after) / 2)
            })
            .min_by_key(|(bracket, _)| *bracket)
            .map_or(0, |(_, offset)| offset)
    }

    fn is_virtual(&self) -> bool {
        false
    }
}
