//! Observers of a run, such as the store and the progress display.

use drophammer_model::record::Record;
use drophammer_model::trial::{TrialResult, TrialSpec};
use drophammer_rig::Live;
use std::time::Duration;

/// Watches a run and can stop it. If several DUTs are up at the same time, their threads call it in turns.
pub trait Observer {
    /// Stores a record. Called as soon as something ends; a result that is not stored here is lost.
    ///
    /// # Errors
    /// Why the record could not be stored, for the user. The run then ends.
    fn record(&mut self, record: &Record) -> Result<(), String>;

    /// Shows the current activity.
    fn progress(&mut self, progress: &Progress<'_>);

    /// True if the user has asked to stop. Called between bursts, so it must be cheap.
    fn stopped(&self) -> bool;

    /// Returns the current time in UTC (RFC 3339).
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
        /// The DUT's name.
        dut: &'a str,
        /// Title of the test.
        title: &'a str,
        /// Number of this test among all tests on all DUTs, from 1.
        number: usize,
        /// Total number of these tests.
        of: usize,
        /// Estimated time left for the whole run.
        left: Duration,
    },
    /// The next messages are about this DUT.
    GoesOn {
        /// The DUT's name.
        dut: &'a str,
    },
    /// The test reports its current step.
    Step {
        /// Description of the step.
        what: &'a str,
        /// Steps done.
        done: usize,
        /// Estimated number of steps; 0 if the test does not count steps.
        of: usize,
        /// Estimated time left for the whole run.
        left: Duration,
    },
    /// A trial starts.
    TrialStarted {
        /// The trial.
        spec: &'a TrialSpec,
    },
    /// The trial's frames are about to be sent. The traffic has ended when `live` reports its end, or when the trial's
    /// record arrives.
    Traffic {
        /// The DUT's name.
        dut: &'a str,
        /// Name of the test.
        test: &'a str,
        /// The trial.
        spec: &'a TrialSpec,
        /// Access to the trial's counts for another thread, because the calling thread drives the traffic.
        live: &'a Live,
    },
    /// A trial ended.
    TrialEnded {
        /// The trial.
        spec: &'a TrialSpec,
        /// Its result.
        result: &'a TrialResult,
        /// Number of the attempt, from 1.
        attempt: u32,
    },
    /// A test ended.
    TestEnded {
        /// The DUT's name.
        dut: &'a str,
        /// Title of the test.
        title: &'a str,
        /// Why the test could not be completed, if it was not.
        problem: Option<&'a str>,
    },
    /// A remark.
    Note {
        /// The remark.
        text: &'a str,
        /// True if something went wrong.
        problem: bool,
    },
}
