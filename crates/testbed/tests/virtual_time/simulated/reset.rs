//! The test `reset` on the reference device, which loses all its state at a reset and then does nothing for a known
//! time.

use crate::common::*;
use crate::shared_clock::SharedClock;
use drophammer_lab::{Dut, LabError, Resets};
use drophammer_methods::{TestError, Testbed, Trial};
use drophammer_model::environment::DutRecord;
use drophammer_model::outcome::{Blame, Outcome, RankFigure};
use drophammer_model::quantity::Instant;
use drophammer_model::record::Record;
use drophammer_model::reset::{Reset, ResetKind};
use drophammer_model::suite::Suite;
use drophammer_model::trial::{Family, FlowSpec, Load, TrialSpec};
use drophammer_port::Clock;
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::simulated::{self, ReferenceDut};
use drophammer_testbed::{Observer, Progress};
use std::cell::Cell as Shared;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

fn number(outcome: &Outcome, row: usize, column: &str) -> Option<f64> {
    cell(outcome, "reset", row, column)
}

fn near(found: Option<f64>, expected: f64, within: f64) -> bool {
    found.is_some_and(|found| (found - expected).abs() <= within)
}

/// The reference device, which needs this time to show its counters.
struct Slow {
    device: ReferenceDut,
    clock: SharedClock,
    time: Duration,
}

impl Dut for Slow {
    fn record(&self) -> DutRecord {
        self.device.record()
    }

    fn check(&mut self) -> Result<(), LabError> {
        self.device.check()
    }

    fn counters(&mut self) -> Result<BTreeMap<String, u64>, LabError> {
        let shown = self.clock.now() + self.time;
        while self.clock.now() < shown {
            self.clock.wait(shown);
        }
        self.device.counters()
    }

    fn resets(&mut self) -> Option<&mut dyn Resets> {
        self.device.resets()
    }
}

/// A user who stops the run at an instant.
struct User {
    clock: SharedClock,
    stops_at: Rc<Shared<Option<Instant>>>,
}

impl Observer for User {
    fn record(&mut self, _: &Record) -> Result<(), String> {
        Ok(())
    }

    fn progress(&mut self, _: &Progress<'_>) {}

    fn stopped(&self) -> bool {
        self.stops_at.get().is_some_and(|at| self.clock.now() >= at)
    }

    fn time(&self) -> String {
        "2026-01-01T00:00:00Z".into()
    }
}

/// Calls `use_it` with a bed whose device needs `slow` to show its counters. The cell contains the instant of a stop.
fn on_slow_device(suite: &Suite, slow: Duration, use_it: impl FnOnce(&mut TestSetup<'_>, &Shared<Option<Instant>>)) {
    let dut = &suite.duts[0];
    let config = simulated::config(dut, &suite.ports, suite.seed);
    let parts = simulated::build_with(config, dut, &suite.ports, suite.seed).unwrap();
    let clock = SharedClock::new(parts.clock);
    let ports = one_thread(parts.ports, Box::new(clock.clone()));
    let stops_at = Rc::new(Shared::new(None));
    let mut user = User { clock: clock.clone(), stops_at: stops_at.clone() };
    let mut device = Slow { device: parts.device, clock, time: slow };
    with_setup(suite, &[Family::Ipv4], ports, &mut device, &mut user, |bed| {
        let method = drophammer_methods::find("reset").unwrap();
        let params = drophammer_suite::defaults(method.spec().params, drophammer_model::suite::Profile::Quick);
        bed.begin_test(method, &params, bed.left);
        resolve(bed);
        use_it(bed, &stops_at);
    });
}

#[test]
fn a_reset_is_timed_where_it_was_although_traffic_started_after_the_request() {
    let suite = suite(
        ", delay: 10 us, boot_time: 100 ms",
        "tests:\n  - reset: {rate: 10 kfps, pause: 1 ms, window: 2 s, resets: [software]}\n",
    );
    // This is three times the tolerance for loss before a reset.
    on_slow_device(&suite, Duration::from_millis(60), |bed, _| {
        let mut found = Outcome::default();
        drophammer_methods::find("reset").unwrap().run(bed, &suite.tests[0].params, &mut found).unwrap();
        assert!(near(number(&found, 0, "loss_ms"), 100.0, 0.11), "{:?}", number(&found, 0, "loss_ms"));
        assert!(near(number(&found, 0, "begins_ms"), 0.0, 0.11), "{:?}", number(&found, 0, "begins_ms"));
        assert_eq!(rows(&found, "reset")[0].marks, Vec::<String>::new());
    });
}

#[test]
fn a_reset_before_the_traffic_is_no_result() {
    let suite = suite(
        ", delay: 10 us, boot_time: 100 ms",
        "tests:\n  - reset: {rate: 10 kfps, pause: 1 ms, window: 2 s, resets: [software]}\n",
    );
    on_slow_device(&suite, Duration::from_millis(1_200), |bed, _| {
        let mut found = Outcome::default();
        let end = drophammer_methods::find("reset").unwrap().run(bed, &suite.tests[0].params, &mut found);
        assert!(matches!(&end, Err(TestError::Unfit(why)) if why[0].contains("before the traffic began")), "{end:?}");
        let spoilt = |figure: &RankFigure| {
            figure.value.is_none() && figure.missing.as_ref().is_some_and(|m| m.by == Blame::Spoilt)
        };
        assert!(found.ranks.len() == 1 && found.ranks.iter().all(spoilt), "{:?}", found.ranks);
    });
}

#[test]
fn the_record_says_when_the_router_was_reset() {
    let suite = suite(", delay: 10 us, boot_time: 100 ms", "tests: [throughput]\n");
    // Reading the counters delays the start of the traffic, but not the reset.
    on_slow_device(&suite, Duration::from_millis(60), |bed, _| {
        let reset =
            Reset { kind: ResetKind::Software, at_s: 1.0, down: Duration::ZERO, limit: Duration::from_secs(10) };
        let spec = kilo(bed, 2.0);
        let seen = bed.attempt(&Trial { reset: Some((reset, 1)), ..Trial::new(spec) }, 1).unwrap();
        let (result, seen) = (seen.result, seen.reset.unwrap());
        let [event] = &result.events[..] else { panic!("{:?}", result.events) };
        assert!((event.at_s - 0.94).abs() < 0.001 && (event.at_s - seen.at_s).abs() < 0.001, "{event:?}, {seen:?}");
        let first = result.losses.episodes[0].from_ns as f64 / 1e9;
        assert!((first - event.at_s).abs() < 0.002, "the first frame was lost at {first} s, {event:?}");
    });
}

/// A trial with 1,000 frames per second from the first port to the second.
fn kilo(bed: &TestSetup<'_>, duration_s: f64) -> TrialSpec {
    let range = |port: usize| bed.ports()[port].addressing(Family::Ipv4).unwrap().destinations;
    TrialSpec {
        purpose: "reset".into(),
        size: "64".parse().unwrap(),
        flows: vec![FlowSpec::new("all", 0, 1, range(0), range(1))],
        load: Load::Constant { rate_pps: 1_000.0 },
        duration_s,
        bin_s: None,
        drain_s: 0.3,
        events: vec![],
    }
}

#[test]
fn a_link_is_up_again_after_a_reset_that_was_cut_short() {
    let suite = suite("", "tests: [throughput]\n");
    on_slow_device(&suite, Duration::ZERO, |bed, stops_at| {
        let spec = kilo(bed, 8.0);
        let second = Duration::from_secs(1);
        let reset = Reset { kind: ResetKind::Link, at_s: 1.0, down: 5 * second, limit: 10 * second };
        stops_at.set(Some(bed.rig().now() + 2 * second));
        assert_eq!(
            bed.attempt(&Trial { reset: Some((reset, 1)), ..Trial::new(spec.clone()) }, 1).map(drop),
            Err(TestError::Interrupted)
        );
        assert!(bed.rig().now() < stops_at.get().unwrap() + 2 * second, "the link was to come up later");
        stops_at.set(None);
        bed.settle(Duration::from_millis(50)).unwrap();
        let result = bed.trial(&TrialSpec { duration_s: 0.1, ..spec }).unwrap();
        assert_eq!((result.offered(), result.lost()), (100, 0));
    });
}
