//! The record that a run stores for a test: how it ended, its outcome, and the verdicts on the suite's criteria.

use crate::runner::method;
use drophammer_judge::criteria;
use drophammer_methods::TestError;
use drophammer_model::outcome::{Outcome, Verdict};
use drophammer_model::record::{Record, TestRecord, TestStatus};
use drophammer_model::suite::{DutConfig, Expectation, TestConfig};
use std::time::Duration;

/// Returns the record of a test.
pub(crate) fn test_record(
    dut: &DutConfig,
    test: &TestConfig,
    round: u32,
    elapsed: Duration,
    status: TestStatus,
    outcome: Outcome,
) -> Record {
    Record::Test(Box::new(TestRecord {
        dut: dut.name.clone(),
        test: test.test.clone(),
        id: test.id.clone(),
        round,
        title: method(test).spec().title.into(),
        parameters: test.params.to_json(),
        elapsed_s: elapsed.as_secs_f64(),
        status,
        outcome,
    }))
}

/// Returns why a test could not be completed, if the reason is a problem.
pub(crate) fn problem_of(status: &TestStatus) -> Option<&str> {
    match status {
        TestStatus::Failed(cause) | TestStatus::Partly(cause) | TestStatus::Unfit(cause) => Some(cause),
        TestStatus::Completed
        | TestStatus::FewerRounds(_)
        | TestStatus::Interrupted
        | TestStatus::Skipped(_)
        | TestStatus::NotAsked => None,
    }
}

/// Returns how a test ended.
pub(crate) fn status_of(result: &Result<(), TestError>) -> TestStatus {
    match result {
        Ok(()) => TestStatus::Completed,
        Err(TestError::Interrupted) => TestStatus::Interrupted,
        Err(TestError::NotApplicable(why)) => TestStatus::Skipped(why.clone()),
        Err(e @ TestError::Unfit(_)) => TestStatus::Unfit(e.to_string()),
        Err(e) => TestStatus::Failed(e.to_string()),
    }
}

/// Judges the results of a DUT in one round by the criteria of the suite.
pub(crate) fn verdicts(dut: &str, test: &TestConfig, outcome: &Outcome, status: &TestStatus) -> Vec<Verdict> {
    let judged = |expected: &Expectation| criteria::verdict(expected, &[criteria::in_round(expected, outcome, status)]);
    let of_dut = |expected: &&Expectation| expected.dut.as_ref().is_none_or(|name| name == dut);
    test.expect.iter().filter(of_dut).map(judged).collect()
}
