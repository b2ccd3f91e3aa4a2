//! The turn of several DUTs that are up at the same time, each with its own tests.

use super::{RunError, Runner, State, Tally, memory};
use crate::observer::{Observer, Progress};
use crate::route_ceiling::Ceilings;
use crate::turnstile::Place;
use drophammer_model::pattern::PatternKey;
use drophammer_model::quantity::FrameRate;
use drophammer_model::record::Record;
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{panicking, scope};

/// The observer of the run, for the threads of all DUTs.
struct Shared<'a> {
    observer: Mutex<Watched<'a>>,
    /// True if the tests of any DUT ended in a way that ends the run.
    ended: AtomicBool,
}

struct Watched<'a> {
    observer: &'a mut (dyn Observer + Send),
    /// Place of the DUT that reported last.
    last: usize,
}

/// The observer of one DUT.
struct OfOne<'a, 'o> {
    shared: &'a Shared<'o>,
    place: usize,
    dut: &'a str,
}

impl<'o> OfOne<'_, 'o> {
    fn watched(&self) -> MutexGuard<'_, Watched<'o>> {
        self.shared.observer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for OfOne<'_, '_> {
    fn record(&mut self, record: &Record) -> Result<(), String> {
        self.watched().observer.record(record)
    }

    fn progress(&mut self, progress: &Progress<'_>) {
        let mut watched = self.watched();
        if std::mem::replace(&mut watched.last, self.place) != self.place {
            watched.observer.progress(&Progress::GoesOn { dut: self.dut });
        }
        watched.observer.progress(progress);
    }

    fn stopped(&self) -> bool {
        self.shared.ended.load(Ordering::Relaxed) || self.watched().observer.stopped()
    }

    fn time(&self) -> String {
        self.watched().observer.time()
    }
}

/// Leaves the turnstile however the thread ends. If the thread panics, the other threads end too.
struct Leave<'a, 'o>(Place, &'a Shared<'o>);

impl Drop for Leave<'_, '_> {
    fn drop(&mut self) {
        if panicking() {
            self.1.ended.store(true, Ordering::Relaxed);
        }
        self.0.leave();
    }
}

/// Adds the rates of `found`. If a pattern has two rates, the one that `better` prefers is kept.
fn merge(
    rates: &mut BTreeMap<PatternKey, FrameRate>,
    found: BTreeMap<PatternKey, FrameRate>,
    better: fn(f64, f64) -> f64,
) {
    for (key, rate) in found {
        let kept = rates.entry(key).or_insert(rate);
        *kept = FrameRate(better(kept.pps(), rate.pps()));
    }
}

impl<'a, 'l> Runner<'_, 'a, 'l> {
    /// Brings up all DUTs of the turn and runs the tests of each in its own thread. If the machine is too small for
    /// that, the DUTs are up one after another.
    pub(super) fn abreast(&mut self, ceilings: &Ceilings) -> Result<(), RunError> {
        let at_once = match self.state.at_once {
            Some(at_once) => at_once,
            None => self.how_many()?,
        };
        // The number is the same in all rounds.
        self.state.at_once = Some(at_once);
        let results = self.by_turns(ceilings, at_once);
        self.state.number = self.state.begun + self.state.turn.len();
        let mut ended = Ok(());
        for (result, found) in results {
            self.learn(found);
            ended = match (ended, result) {
                // The other DUTs stopped only because this one did.
                (Ok(()) | Err(RunError::Interrupted), Err(e)) => Err(e),
                (ended, _) => ended,
            };
        }
        ended
    }

    /// Returns how many DUTs can be up at the same time: all of them, or one.
    fn how_many(&mut self) -> Result<usize, RunError> {
        let (suite, count) = (self.state.suite, self.state.turn.duts.len());
        let neighbours = || self.lab()?.too_many_neighbours(&suite.ports, count);
        let Some(why) = memory::short(suite).or_else(neighbours) else { return Ok(count) };
        self.note(None, &format!("the routers are up one after another, not at the same time: {why}"))?;
        Ok(1)
    }

    /// Runs the tests of each DUT, with `at_once` DUTs at a time. Returns how they ended and what they found.
    fn by_turns(&mut self, ceilings: &Ceilings, at_once: usize) -> Vec<(Result<(), RunError>, State<'a, 'l>)> {
        let Runner { observer, state } = self;
        let state = &*state;
        let watched = Mutex::new(Watched { observer: &mut **observer, last: 0 });
        let shared = Shared { observer: watched, ended: AtomicBool::new(false) };
        let step = state.turn.duts.len();
        let run = |index: usize, place: Place| {
            let _leave = Leave(place.clone(), &shared);
            place.wait(|| ());
            let session = state.session.at(place);
            let first_port = if at_once > 1 { index * state.suite.ports.len() } else { 0 };
            let (begun, tally) = (state.begun + index, Tally::default());
            let own = State { session, step, first_port, begun, number: begun, tally, ..state.clone() };
            let dut = &state.suite.duts[state.turn.duts[index]];
            let mut observer = OfOne { shared: &shared, place: index, dut: &dut.name };
            let mut runner = Runner { observer: &mut observer, state: own };
            let result = runner.turn(dut, ceilings);
            if result.is_err() {
                shared.ended.store(true, Ordering::Relaxed);
            }
            (result, runner.state)
        };
        let together = |indices: &[usize]| {
            scope(|scope| {
                let run = &run;
                let places = Place::of(indices.len()).into_iter().zip(indices.iter().copied());
                let threads: Vec<_> = places.map(|(place, index)| scope.spawn(move || run(index, place))).collect();
                let ended = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|e| resume_unwind(e)));
                ended.collect::<Vec<_>>()
            })
        };
        let indices: Vec<usize> = (0..step).collect();
        let mut ended = Vec::new();
        for indices in indices.chunks(at_once) {
            ended.extend(together(indices));
        }
        ended
    }

    /// Keeps the findings of one DUT's tests for the rest of the run.
    fn learn(&mut self, one: State<'_, '_>) {
        let state = &mut self.state;
        state.tally.add(one.tally);
        state.elapsed.extend(one.elapsed);
        state.recorded.extend(one.recorded);
        for (backend, found) in one.highest {
            let highest = state.highest.entry(backend).or_default();
            merge(&mut highest.constant, found.constant, f64::min);
            merge(&mut highest.maximum, found.maximum, f64::min);
        }
        for (backend, found) in one.beaten {
            merge(state.beaten.entry(backend).or_default(), found, f64::max);
        }
    }
}
