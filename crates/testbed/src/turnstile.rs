//! Decides which of several DUTs that are up at the same time is measured.
//!
//! The tests of each DUT run in their own thread, and one of these threads at a time owns the machine. It passes the
//! machine on when a step of its test is complete, so that figures of different DUTs are from the same minute: whatever
//! slows the host down slows it down for all of them.
//!
//! # Several DUTs in turns
//!
//! Each DUT has a thread with its own ports, rig and emulated routers, and methods do not know about the other DUTs.
//! One thread at a time owns the machine (`testbed/src/turnstile.rs`, `Place`). When a step starts
//! (`Testbed::progress`), it passes the machine to the next of the threads that have started the fewest tests. So all
//! DUTs run a test before one of them runs the next, and their figures are from the same minute. A waiting thread
//! answers its DUT every second, so that sessions and neighbours stay up. A waiting DUT that is not idle counts as
//! another program on the processor of the measured DUT, and voids the trial. `Session` contains what all threads
//! share; each has a copy of the runner's `State`. With too little memory (`runner/memory.rs`), the DUTs are up one
//! after another.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a waiting thread answers its DUT. A router probes a neighbour for three seconds, and a BGP peer for much longer.
const SERVE: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct State {
    /// The place that owns the machine.
    running: usize,
    /// Number of tests that each place has started; `None` if it has left.
    begun: Vec<Option<usize>>,
}

impl State {
    /// Returns the next place after `place` among those that are furthest behind: all DUTs finish a test before one of
    /// them starts the next.
    fn next(&self, place: usize) -> Option<usize> {
        let least = self.begun.iter().flatten().min()?;
        let places = self.begun.len();
        (1..=places).map(|ahead| (place + ahead) % places).find(|at| self.begun[*at].as_ref() == Some(least))
    }
}

/// Passes the machine from thread to thread.
#[derive(Debug)]
struct Turnstile {
    state: Mutex<State>,
    handed_over: Condvar,
}

impl Turnstile {
    fn state(&self) -> MutexGuard<'_, State> {
        // The state stays consistent: no code that holds the lock can panic in the middle of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one DUT's thread at the turnstile.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    turnstile: Arc<Turnstile>,
    index: usize,
}

impl Place {
    /// Returns places for `count` threads. The first one owns the machine.
    pub(crate) fn of(count: usize) -> Vec<Place> {
        let state = Mutex::new(State { running: 0, begun: vec![Some(0); count] });
        let turnstile = Arc::new(Turnstile { state, handed_over: Condvar::new() });
        (0..count).map(|index| Place { turnstile: turnstile.clone(), index }).collect()
    }

    /// Waits for the machine. Calls `serve` every second while other threads own it.
    pub(crate) fn wait(&self, mut serve: impl FnMut()) {
        let mut state = self.turnstile.state();
        while state.running != self.index {
            let waited = self.turnstile.handed_over.wait_timeout(state, SERVE);
            let timed_out;
            (state, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
            if timed_out.timed_out() && state.running != self.index {
                drop(state);
                serve();
                state = self.turnstile.state();
            }
        }
    }

    /// Passes the machine to the other DUTs, and waits for its turn again; see [`Place::wait`]. Returns true if another
    /// DUT used it.
    pub(crate) fn hand_over(&self, serve: impl FnMut()) -> bool {
        let handed = self.pass_on();
        if handed {
            self.wait(serve);
        }
        handed
    }

    /// Announces that the next test has this number, from 1.
    pub(crate) fn begin(&self, test: usize) {
        self.turnstile.state().begun[self.index] = Some(test);
    }

    /// Gives up the machine for good.
    pub(crate) fn leave(&self) {
        self.turnstile.state().begun[self.index] = None;
        self.pass_on();
    }

    /// Passes the machine to the next place. False if no other place can take it.
    fn pass_on(&self) -> bool {
        let mut state = self.turnstile.state();
        let Some(next) = state.next(self.index) else { return false };
        state.running = next;
        self.turnstile.handed_over.notify_all();
        next != self.index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs one thread per element of `steps`, which lists the number of steps of each test. Returns the order of `place test`.
    fn order(steps: &[&[usize]]) -> Vec<String> {
        let done = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for (place, steps) in Place::of(steps.len()).into_iter().zip(steps) {
                let done = &done;
                scope.spawn(move || {
                    place.wait(|| ());
                    for (test, steps) in steps.iter().enumerate() {
                        place.begin(test + 1);
                        for _ in 0..*steps {
                            place.hand_over(|| ());
                            done.lock().unwrap().push(format!("{}{}", place.index, test + 1));
                        }
                    }
                    place.leave();
                });
            }
        });
        done.into_inner().unwrap()
    }

    #[test]
    fn places_take_turns_step_by_step_and_test_by_test() {
        assert_eq!(order(&[&[2, 1], &[2, 1]]), ["01", "11", "01", "11", "02", "12"]);
        // The first thread needs fewer steps for its first test, and waits for the other thread.
        assert_eq!(order(&[&[1, 2], &[3, 1]]), ["01", "11", "11", "11", "02", "12", "02"]);
        assert_eq!(order(&[&[3]]), ["01", "01", "01"]);
        // A thread without tests leaves.
        assert_eq!(order(&[&[], &[1], &[2]]), ["11", "21", "21"]);
    }

    #[test]
    fn who_waits_serves() {
        let places = Place::of(2);
        let (first, second) = (&places[0], &places[1]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The machine arrives after this thread has served once.
                second.wait(|| first.leave());
                assert_eq!(second.turnstile.state().running, 1);
            });
        });
    }
}
