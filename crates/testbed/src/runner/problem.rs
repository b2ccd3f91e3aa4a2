//! Why tests cannot be begun, and who is at fault.

use drophammer_methods::TestError;
use drophammer_model::record::TestStatus;

/// The reason why the remaining tests of a DUT cannot be begun.
#[derive(Debug)]
pub(super) struct Problem {
    /// The reason, for the user. Lines after the first one are from logs.
    pub(super) why: String,
    /// True if the tester is at fault, so that nothing is known about the DUT.
    of_tester: bool,
}

impl Problem {
    /// A problem of the DUT.
    pub(super) fn of_dut(why: impl Into<String>) -> Problem {
        Problem { why: why.into(), of_tester: false }
    }

    /// A problem of the tester.
    pub(super) fn of_tester(why: impl Into<String>) -> Problem {
        Problem { why: why.into(), of_tester: true }
    }

    /// The problem behind an error; `why` describes it.
    pub(super) fn of(error: &TestError, why: impl Into<String>) -> Problem {
        Problem { why: why.into(), of_tester: matches!(error, TestError::Unfit(_)) }
    }

    /// Returns the status of a test that was not begun. A note contains the full report with log lines; the tests only
    /// repeat its first line.
    pub(super) fn status(&self) -> TestStatus {
        let why = format!("not begun: {}", self.why.lines().next().unwrap_or_default());
        if self.of_tester { TestStatus::Unfit(why) } else { TestStatus::Failed(why) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_of_the_tester_fails_no_router() {
        let not_begun = "not begun: no port".to_owned();
        let of = |error: TestError| Problem::of(&error, "no port\nits log").status();
        assert_eq!(of(TestError::Unfit(vec![])), TestStatus::Unfit(not_begun.clone()));
        assert_eq!(of(TestError::DutDied(String::new())), TestStatus::Failed(not_begun.clone()));
        assert_eq!(Problem::of_tester("no port").status(), TestStatus::Unfit(not_begun.clone()));
        assert_eq!(Problem::of_dut("no port").status(), TestStatus::Failed(not_begun));
    }
}
