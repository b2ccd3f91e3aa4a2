//! Who watches a run: the store, the progress display.

use drophammer_model::record::Record;
use drophammer_model::trial::{TrialResult, TrialSpec};
use std::time::Duration;

/// Watches a run and may stop it.
pub trait Observer {
    /// Keeps a record. Called the moment something ended; what is not kept here is lost.
    ///
    /// # Errors
    /// Why it could not be kept, for the user; the run then ends.
    fn record(&mut self, record: &Record) -> Result<(), String>;

    /// Shows what is going on.
    fn progress(&mut self, progress: &Progress<'_>);

    /// Has the user asked to stop? Looked at between bursts, so it must be cheap.
    fn stopped(&self) -> bool;

    /// Now, UTC, RFC 3339.
    fn time(&self) -> String;
}

/// What is going on.
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
    /// The test says what it is at.
    Step {
        /// In its own words.
        what: &'a str,
        /// Steps done.
        done: u32,
        /// Of about how many.
        of: u32,
        /// Time left for the whole run, estimated.
        left: Duration,
    },
    /// A trial starts.
    TrialStarted {
        /// What it offers.
        spec: &'a TrialSpec,
    },
    /// A trial ended.
    TrialEnded {
        /// What it offered.
        spec: &'a TrialSpec,
        /// What came of it.
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
