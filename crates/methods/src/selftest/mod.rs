//! Tests of the tester itself, for `drophammer selftest`. They run on a loop without router or on the reference device;
//! on a router they would measure the router. There is one file per test; the self-test of crate `testbed` defines
//! their order.

pub mod counter_proof;
pub mod latency_floor;
pub mod loss_floor;
pub mod pacing;
pub mod tester_ceiling;

use drophammer_model::param::Param;
use std::time::Duration;

/// `trial_duration`, for tests of the tester itself.
pub const TRIAL_DURATION: Param<Duration> = Param::new("trial_duration", "1 s", "10 s", "length of a trial");
