//! Each counter of the tester against the reference device, which does one thing wrong at a time and tells how often.

use super::SelfTest;
use crate::bed::Left;
use crate::observer::Observer;
use crate::session::Session;
use drophammer_methods::TestError;
use drophammer_methods::selftest::counter_proof;
use drophammer_model::outcome::Outcome;
use drophammer_port::Backend;
use std::time::Duration;

pub(super) const NAME: &str = counter_proof::NAME;
pub(super) const TITLE: &str = counter_proof::TITLE;

/// Time that all of it takes.
pub(super) fn estimate() -> Duration {
    Duration::from_secs(15)
}

/// Proves the counters of `backend`.
///
/// # Errors
/// Whatever stopped it.
pub(super) fn prove(
    _test: &mut SelfTest<'_>,
    _backend: &'static Backend,
    _session: &mut Session,
    _observer: &mut dyn Observer,
    _left: Left,
    _outcome: &mut Outcome,
) -> Result<(), TestError> {
    Err(TestError::NotApplicable("waits for the device".into()))
}
