//! How the tests of a run ended.

use drophammer_model::record::TestStatus;

/// Number of tests by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tests that ran to their end.
    pub completed: usize,
    /// Tests that did not run to their end because of the DUT or the user.
    pub failed: usize,
    /// Tests that the tester or the host spoilt, so that nothing is known about the DUT.
    pub unfit: usize,
    /// Tests that do not apply to their DUT.
    pub skipped: usize,
}

impl Tally {
    /// Adds the tests of another tally.
    pub(super) fn add(&mut self, other: Tally) {
        self.completed += other.completed;
        self.failed += other.failed;
        self.unfit += other.unfit;
        self.skipped += other.skipped;
    }

    /// Counts a test that ended with this status.
    pub(super) fn count(&mut self, status: &TestStatus) {
        *match status {
            TestStatus::Completed => &mut self.completed,
            TestStatus::Skipped(_) => &mut self.skipped,
            TestStatus::NotAsked => return,
            TestStatus::Unfit(_) => &mut self.unfit,
            _ => &mut self.failed,
        } += 1;
    }
}
