//! Determines which measurements of an interrupted run are kept, and where the run continues.
//!
//! The unit is a turn: the tests of one round on one DUT, or on all DUTs that are up at the same time. A DUT is brought
//! up for its turn, and its tests build on each other. Complete turns are kept; the interrupted turn is measured again
//! from its start. If all turns are complete, the turns in which the tester or its host spoilt a test are measured
//! again. The tester's own ceilings are kept from the start of the run. The highest loads that the tester can offer are
//! determined again.
//!
//! # Resumed runs
//!
//! `testbed/src/runner/resume.rs` reads the records of a run that was cut off. It keeps whole turns (the tests of one
//! round on one DUT, or on all DUTs that are up at the same time) and the tester's ceilings. From a complete run it
//! drops the turns with a test that the tester or host spoilt, and these are measured again; readers sort tests by
//! round. `RunWriter::resume` moves the dropped records aside. `Started::digest` shows if suite and options are
//! unchanged. `runner/plan.rs` defines the order of turns and the estimates.

use super::Tally;
use super::plan::turns;
use crate::route_ceiling::{self, Ceilings};
use drophammer_methods::{ping_delay, tester_ceiling};
use drophammer_model::environment::{DutRecord, Environment, TESTER};
use drophammer_model::outcome::Blame;
use drophammer_model::record::{Record, Started, TestRecord, TestStatus, TrialRecord};
use drophammer_model::suite::Suite;
use drophammer_model::trial::{TrialResult, TrialSpec};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// An earlier part of a run.
#[derive(Clone, Debug, Default)]
pub struct Earlier {
    /// Positions of the records to keep, in order.
    pub keep: Vec<Range<usize>>,
    /// Places in the run of the turns that are incomplete or measured again.
    pub todo: Vec<usize>,
    /// Number of turns of the whole run.
    pub of: usize,
    /// Number of the last trial that is kept.
    pub(crate) trial: u64,
    /// How the tests of the kept turns ended.
    pub(crate) tally: Tally,
    /// The tester's ceilings, if their measurement was complete.
    pub(crate) ceilings: Option<Ceilings>,
    /// Versions of the DUTs that were up, by name of the DUT.
    pub(crate) versions: BTreeMap<String, String>,
    /// Durations of tests, by their place in the suite.
    pub(crate) elapsed: BTreeMap<usize, Duration>,
}

/// A test of a turn: round, name of the DUT, and place of the test in the suite.
type Done<'a> = (u32, &'a str, usize);

/// Returns the tests of each turn, one for each DUT. DUTs that are up at the same time can end a test in any order.
fn tests_of_turns(suite: &Suite) -> Vec<Vec<Done<'_>>> {
    let of_turn = |turn: super::plan::Turn| {
        let of_test =
            |test: &usize| turn.duts.iter().map(|dut| (turn.round, &*suite.duts[*dut].name, *test)).collect::<Vec<_>>();
        turn.tests.iter().flat_map(of_test).collect()
    };
    turns(suite).into_iter().map(of_turn).collect()
}

/// The reason why a run cannot be continued here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The suite, options or variables differ.
    #[error("the suite, or an option on the command line, differs from that of the run")]
    Suite,
    /// The program differs.
    #[error("the run was begun by Drophammer {0}, this is {1}")]
    Program(String, String),
    /// The machine differs.
    #[error("the run was begun on another machine: {0}")]
    Machine(String),
    /// There is nothing to do.
    #[error("the run is complete, and no test was spoilt")]
    Complete,
}

/// Returns the properties of the machine that must not change.
fn machine(environment: &Environment) -> [(&'static str, &str); 3] {
    [
        ("kernel", &environment.kernel),
        ("processor", &environment.cpu_model),
        ("processors of tester and routers", &environment.cpus),
    ]
}

impl Earlier {
    /// Number of completed tests on DUTs.
    pub(super) fn done(&self, suite: &Suite) -> usize {
        let done = |at: &usize| self.of > 0 && !self.todo.contains(at);
        turns(suite).iter().enumerate().filter(|(at, _)| done(at)).map(|(_, turn)| turn.len()).sum()
    }

    /// Evaluates the records of a run of `suite`. `digest` and `environment` belong to the run that is to continue.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn of(suite: &Suite, digest: &str, environment: &Environment, records: &[Record]) -> Result<Earlier, Refusal> {
        let Some(Record::Started(started)) = records.first() else { return Err(Refusal::Suite) };
        may_go_on(started, digest, environment)?;
        let turns = tests_of_turns(suite);
        let begun = records.iter().position(|record| is_about_a_router(suite, record));
        let done = complete(suite, &turns, records, begun.unwrap_or(1));
        let all = done.len() == turns.len();
        // If all turns are complete, only the record of the run's end is missing.
        let ended = all && matches!(records.last(), Some(Record::Ended(ended)) if !ended.interrupted);
        let is_kept = |turn: &&TurnDone| !ended || !turn.spoilt;
        let kept: Vec<&TurnDone> = done.iter().filter(is_kept).collect();
        if ended && kept.len() == done.len() {
            return Err(Refusal::Complete);
        }
        let mut found =
            Earlier { of: turns.len(), keep: std::iter::once(0..begun.unwrap_or(1)).collect(), ..Earlier::default() };
        found.ceilings = begun.map(|begun| ceilings(&records[..begun]));
        found.todo = (0..turns.len()).filter(|at| !kept.iter().any(|turn| turn.place == *at)).collect();
        found.keep.extend(kept.iter().map(|turn| turn.records.clone()));
        let kept_records = || found.keep.iter().flat_map(|range| &records[range.clone()]);
        let last = kept_records().filter_map(trial).map(|trial| trial.result.trial).max().unwrap_or(0);
        let tests = kept_records().filter_map(|record| if let Record::Test(test) = record { Some(test) } else { None });
        let tests: Vec<&TestRecord> = tests.map(|test| &**test).filter(|test| test.dut != TESTER).collect();
        let duts = kept_records().filter_map(|record| if let Record::Dut(dut) = record { Some(dut) } else { None });
        found.versions = duts.map(|dut: &DutRecord| (dut.name.clone(), dut.version.clone())).collect();
        found.trial = last;
        for test in tests {
            found.tally.count(&test.status);
            let place = suite.tests.iter().position(|config| config.test == test.test);
            if let Some(place) = place.filter(|_| test.status == TestStatus::Completed) {
                found.elapsed.insert(place, Duration::from_secs_f64(test.elapsed_s.max(0.0)));
            }
        }
        Ok(found)
    }
}

/// A complete turn.
struct TurnDone {
    /// The turn's place in the run.
    place: usize,
    /// Positions of the turn's records.
    records: Range<usize>,
    /// True if the tester or its host spoilt a test.
    spoilt: bool,
}

/// True if the tester or host spoilt the test or one of its figures.
fn is_spoilt(test: &TestRecord) -> bool {
    let missing = test.outcome.ranks.iter().filter_map(|rank| rank.missing.as_ref());
    matches!(test.status, TestStatus::Unfit(_)) || missing.into_iter().any(|missing| missing.by == Blame::Spoilt)
}

/// Returns the complete turns, whose records start at `begun`. Turns that were measured again follow turns that come
/// later in the run.
fn complete(suite: &Suite, turns: &[Vec<Done<'_>>], records: &[Record], begun: usize) -> Vec<TurnDone> {
    let mut open: Vec<usize> = (0..turns.len()).collect();
    let mut done = Vec::new();
    // The turn being read, its tests that have not ended, and whether one was spoilt.
    let (mut reading, mut spoilt, mut first): (Option<(usize, Vec<Done<'_>>)>, bool, usize) = (None, false, begun);
    let mut at = begun;
    while at < records.len() {
        let next = at + 1;
        if let Record::Test(test) = &records[at]
            && test.status != TestStatus::Interrupted
        {
            let is_it = |(round, dut, place): &Done<'_>| {
                (*round, *dut, &*suite.tests[*place].test) == (test.round, &*test.dut, &*test.test)
            };
            if reading.is_none() {
                let turn = open.iter().copied().find(|turn| turns[*turn].iter().any(is_it));
                reading = turn.map(|turn| (turn, turns[turn].clone()));
            }
            if let Some((turn, left)) = &mut reading
                && let Some(place) = left.iter().position(is_it)
            {
                left.remove(place);
                spoilt |= is_spoilt(test);
                if left.is_empty() {
                    let end = next + remarks(&records[next..], &test.dut);
                    done.push(TurnDone { place: *turn, records: first..end, spoilt });
                    open.retain(|other| other != turn);
                    (reading, spoilt, first, at) = (None, false, end, end);
                    continue;
                }
            }
        }
        at = next;
    }
    done
}

fn may_go_on(started: &Started, digest: &str, environment: &Environment) -> Result<(), Refusal> {
    let (then, now) = (&started.environment, environment);
    if then.drophammer != now.drophammer {
        return Err(Refusal::Program(then.drophammer.clone(), now.drophammer.clone()));
    }
    if started.digest.is_empty() || started.digest != digest {
        return Err(Refusal::Suite);
    }
    let other = machine(then).into_iter().zip(machine(now)).find(|(then, now)| then != now);
    match other {
        Some(((what, then), (_, now))) => Err(Refusal::Machine(format!("its {what} was `{then}`, here it is `{now}`"))),
        None => Ok(()),
    }
}

/// Counts the notes about `dut` at the start of `records`. Notes after the last test of a turn belong to the turn: the
/// routers' memory, an incomplete capture, or a DUT that could not be taken down.
fn remarks(records: &[Record], dut: &str) -> usize {
    let of_dut = |record: &&Record| matches!(record, Record::Note(note) if note.dut.as_deref() == Some(dut));
    records.iter().take_while(of_dut).count()
}

/// True if the record belongs to a turn. A router that does not come up has no [`Record::Dut`]: its turn starts with a note.
fn is_about_a_router(suite: &Suite, record: &Record) -> bool {
    match record {
        Record::Dut(dut) => dut.name != TESTER,
        Record::Test(test) => test.dut != TESTER,
        Record::Note(note) => suite.duts.iter().any(|dut| dut.name != TESTER && note.dut.as_ref() == Some(&dut.name)),
        _ => false,
    }
}

fn trial(record: &Record) -> Option<&TrialRecord> {
    if let Record::Trial(trial) = record { Some(trial) } else { None }
}

/// Returns the ceilings that were measured before the first DUT.
fn ceilings(records: &[Record]) -> Ceilings {
    // The ports of each measurement are recorded before its trials.
    let mut by_backend: BTreeMap<String, Vec<(&TrialSpec, &TrialResult)>> = BTreeMap::new();
    let (mut backend, mut orders) = (String::new(), BTreeMap::new());
    for record in records {
        match record {
            Record::Dut(dut) if dut.name == TESTER => {
                backend = dut.ports.first().map_or(String::new(), |port| port.backend.clone());
            }
            Record::Trial(t) if t.dut == TESTER && t.test == tester_ceiling::NAME => {
                by_backend.entry(backend.clone()).or_default().push((&t.spec, &t.result));
            }
            _ => {}
        }
    }
    let last = by_backend.get(&backend);
    for measured in by_backend.iter().filter(|(name, _)| **name != backend).map(|(_, m)| m).chain(last) {
        orders.extend(tester_ceiling::orders(measured.iter().copied()));
    }
    let test = |name: &str| {
        records.iter().find_map(|record| match record {
            Record::Test(test) if test.dut == TESTER && test.test == name => Some(&**test),
            _ => None,
        })
    };
    let outcome = |test: Option<&TestRecord>| test.map(|test| test.outcome.clone()).unwrap_or_default();
    Ceilings {
        frames: by_backend.into_iter().map(|(name, m)| (name, tester_ceiling::ceilings(m))).collect(),
        orders,
        own_delays: ping_delay::own_delays_of(&outcome(test(ping_delay::OWN))),
        routes: route_ceiling::of_record(&outcome(test(route_ceiling::NAME))),
    }
}
