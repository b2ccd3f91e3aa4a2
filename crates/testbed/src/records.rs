//! What a run keeps of a test: its record, how it ended, and what the suite expected of it.

use crate::runner::method;
use drophammer_methods::TestError;
use drophammer_model::outcome::{Outcome, Verdict};
use drophammer_model::record::{Record, TestRecord, TestStatus};
use drophammer_model::suite::{DutConfig, TestConfig};
use std::time::Duration;

/// What the run keeps of a test.
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
        round,
        title: method(test).spec().title.into(),
        parameters: test.params.to_json(),
        elapsed_s: elapsed.as_secs_f64(),
        status,
        outcome,
    }))
}

/// Why a test could not be completed, where that is a problem.
pub(crate) fn problem_of(status: &TestStatus) -> Option<&str> {
    match status {
        TestStatus::Failed(cause) | TestStatus::Partly(cause) | TestStatus::Unfit(cause) => Some(cause),
        TestStatus::Completed | TestStatus::Interrupted | TestStatus::Skipped(_) => None,
    }
}

/// How a test ended.
pub(crate) fn status_of(result: &Result<(), TestError>) -> TestStatus {
    match result {
        Ok(()) => TestStatus::Completed,
        Err(TestError::Interrupted) => TestStatus::Interrupted,
        Err(TestError::NotApplicable(why)) => TestStatus::Skipped(why.clone()),
        Err(e @ TestError::Unfit(_)) => TestStatus::Unfit(e.to_string()),
        Err(e) => TestStatus::Failed(e.to_string()),
    }
}

/// Holds what was found against what the suite expects.
pub(crate) fn verdicts(test: &TestConfig, outcome: &Outcome) -> Vec<Verdict> {
    test.expect
        .iter()
        .map(|expected| {
            let sign = if expected.at_least { ">=" } else { "<=" };
            let criterion = format!("{} {sign} {}", expected.figure, expected.bound);
            let found = outcome.ranks.iter().find(|r| r.key == expected.figure).and_then(|r| r.value);
            let pass = found.is_some_and(|v| if expected.at_least { v >= expected.bound } else { v <= expected.bound });
            Verdict { criterion, pass, found: found.map_or("not measured".into(), |v| v.to_string()) }
        })
        .collect()
}
