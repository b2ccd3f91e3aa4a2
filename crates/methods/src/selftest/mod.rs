//! Tests of the tester itself, for `drophammer selftest`. They run on a loop without router or on the reference device; on a
//! router they would measure the router. One file each, like all tests, and one line in [`SELF_TESTS`].

pub mod counter_proof;
pub mod latency_floor;
pub mod loss_floor;
pub mod pacing;

use crate::Method;

/// All of them, in the order in which they are run.
pub static SELF_TESTS: &[&dyn Method] =
    &[&loss_floor::LossFloor, &pacing::Pacing, &latency_floor::LatencyFloor, &counter_proof::CounterProof];
