//! Measures the tester's own delay of pings and test frames at a low load, on a loop without a DUT.

use crate::config::joined_in_pairs_of;
use crate::observer::Progress;
use crate::records::{problem_of, status_of};
use crate::setup::{Left, TestSetup};
use drophammer_methods::parameters::FAMILIES;
use drophammer_methods::ping_delay::{self, OwnDelays, PingDelay};
use drophammer_methods::{Method, TestError};
use drophammer_model::environment::TESTER;
use drophammer_model::outcome::Outcome;
use drophammer_model::record::{Record, TestRecord};
use drophammer_model::suite::{PortConfig, Suite};
use drophammer_model::trial::Family;
use std::time::{Duration, Instant};

const TITLE: &str = "Tester's own delay";

/// Measures the delay for each ping delay test, on a setup whose ports, `configs`, form the loop. The setup's devices
/// get addresses for that and keep them. Returns the delays, their record, and true if the user stopped the
/// measurement.
pub(super) fn measure(
    setup: &mut TestSetup<'_>,
    suite: &Suite,
    configs: &[PortConfig],
    after: Duration,
) -> (OwnDelays, Option<Record>, bool) {
    let tests: Vec<_> = suite.tests.iter().filter(|test| test.test == ping_delay::NAME).collect();
    let mut found = OwnDelays::new();
    let Some(first) = tests.first() else { return (found, None, false) };
    let begun = Instant::now();
    let test = tests.iter().map(|test| PingDelay.plan(&test.params).estimate(0)).sum();
    setup.begin_own(ping_delay::OWN, Left { since: begun, ..Left::new(after, test) });
    let (left, of) = (setup.left.now(), suite.duts.len() * suite.tests.len());
    setup.observer().progress(&Progress::Test { dut: TESTER, title: TITLE, number: 0, of, left });
    let mut families: Vec<Family> = tests.iter().flat_map(|test| FAMILIES.get(&test.params)).collect();
    families.sort_unstable();
    families.dedup();
    let mut outcome = Outcome::default();
    let config = joined_in_pairs_of(configs, &families, suite.seed);
    let mut result = setup.rig().apply(&config).map_err(|e| TestError::Failed(e.to_string()));
    for test in &tests {
        if result.is_err() {
            break;
        }
        match ping_delay::own_delays(setup, &test.params, &mut outcome) {
            Ok(of_test) => found.extend(of_test),
            Err(e) => result = Err(e),
        }
    }
    let status = status_of(&result);
    setup.observer().progress(&Progress::TestEnded { dut: TESTER, title: TITLE, problem: problem_of(&status) });
    let record = Record::Test(Box::new(TestRecord {
        dut: TESTER.into(),
        round: 1,
        test: ping_delay::OWN.into(),
        id: None,
        title: TITLE.into(),
        parameters: first.params.to_json(),
        elapsed_s: begun.elapsed().as_secs_f64(),
        status,
        outcome,
    }));
    (found, Some(record), matches!(result, Err(TestError::Interrupted)))
}
