//! Observers of a run: the store, the progress display.

use drophammer_model::record::Record;
use drophammer_model::trial::{TrialResult, TrialSpec};
use drophammer_rig::Live;
use std::time::Duration;

/// Watches a run and may stop it. The threads of several DUTs that are up at the same time call it by turns.
pub trait Observer {
    /// Stores a record. Called the moment something ended; what is not stored here is lost.
    ///
    /// # Errors
    /// Why it could not be stored, for the user; the run then ends.
    fn record(&mut self, record: &Record) -> Result<(), String>;

    /// Shows what is going on.
    fn progress(&mut self, progress: &Progress<'_>);

    /// Whether the user has asked to stop. Called between bursts, so it must be cheap.
    fn stopped(&self) -> bool;

    /// Current time, UTC, RFC 3339.
    fn time(&self) -> String;
}

/// Progress of a run.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A DUT is being brought up.
    BringUp {
        /// Its name.
        dut: &'a str,
        /// Its kind.
        kind: &'a str,
    },
    /// A test starts.
    Test {
        /// DUT.
        dut: &'a str,
        /// Title of the test.
        title: &'a str,
        /// Number of this test among all tests on all DUTs, from 1.
        number: usize,
        /// How many there are.
        of: usize,
        /// Time left for the whole run, estimated.
        left: Duration,
    },
    /// The next messages are about this DUT.
    GoesOn {
        /// DUT.
        dut: &'a str,
    },
    /// The test reports its current step.
    Step {
        /// Description of the step.
        what: &'a str,
        /// Steps done.
        done: usize,
        /// Estimated number of steps; 0 if the test has none that are counted.
        of: usize,
        /// Time left for the whole run, estimated.
        left: Duration,
    },
    /// A trial starts.
    TrialStarted {
        /// The trial.
        spec: &'a TrialSpec,
    },
    /// The frames of the trial are about to be sent. It has ended when it is over for `live`, or with the record of the trial.
    Traffic {
        /// DUT.
        dut: &'a str,
        /// Name of the test.
        test: &'a str,
        /// The trial.
        spec: &'a TrialSpec,
        /// Access to its counts, for another thread: the calling one drives the traffic.
        live: &'a Live,
    },
    /// A trial ended.
    TrialEnded {
        /// The trial.
        spec: &'a TrialSpec,
        /// Its result.
        result: &'a TrialResult,
        /// Attempt, from 1.
        attempt: u32,
    },
    /// A test ended.
    TestEnded {
        /// DUT.
        dut: &'a str,
        /// Title of the test.
        title: &'a str,
        /// Why it could not be completed, if so.
        problem: Option<&'a str>,
    },
    /// A remark.
    Note {
        /// The remark.
        text: &'a str,
        /// Something went wrong.
        problem: bool,
    },
}
