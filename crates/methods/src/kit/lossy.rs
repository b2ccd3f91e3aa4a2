//! Frame sizes without a throughput, in tests whose load is a share of the throughput. The test applies to the router,
//! and the router has failed it.

use crate::pattern::Pattern;
use crate::report::{deviate, note};
use crate::testbed::TestError;
use drophammer_model::outcome::Outcome;

/// Why there is no load.
pub(crate) const NO_THROUGHPUT: &str = "no throughput was found: the router loses frames at every load";

/// True if the router loses frames of some size at every load. The other sizes are still tested.
#[derive(Debug, Default)]
pub(crate) struct Lossy(bool);

impl Lossy {
    /// Skips a size, with a note.
    pub fn leave_out(&mut self, outcome: &mut Outcome, pattern: &Pattern) {
        self.0 = true;
        deviate(outcome, pattern, "not tested");
        note(outcome, format!("{} not tested: {NO_THROUGHPUT}", pattern.size_text()));
    }

    /// Ends the test after its last size.
    ///
    /// # Errors
    /// [`TestError::Failed`] if a size was skipped: its criteria must fail instead of being dropped.
    pub fn end(&self) -> Result<(), TestError> {
        if self.0 { Err(TestError::Failed(NO_THROUGHPUT.into())) } else { Ok(()) }
    }
}
