//! The test `reset` on the reference device, which does nothing for a known time after a reset and loses all its state.

use crate::common::*;
use crate::shared_clock::SharedClock;
use drophammer_lab::{Dut, LabError, Resets};
use drophammer_methods::{TestError, Testbed, Trial};
use drophammer_model::environment::DutRecord;
use drophammer_model::outcome::{Cell, Outcome};
use drophammer_model::quantity::Instant;
use drophammer_model::record::{Record, TestStatus};
use drophammer_model::reset::{Reset, ResetKind};
use drophammer_model::suite::Suite;
use drophammer_model::trial::{Family, FlowSpec, Load, TrialSpec};
use drophammer_port::{Clock, Port};
use drophammer_rig::{Ports, Rig};
use drophammer_testbed::config::hosts_and_routers;
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::simulated::{self, ReferenceDut};
use drophammer_testbed::{Observer, Progress, Session};
use std::cell::Cell as Shared;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Resets of the device; 10,000 frames per second.
fn outcome(device: &str, bgp: &str, test: &str) -> (TestStatus, Outcome) {
    let suite = suite(
        &format!(", delay: 10 us{device}"),
        &format!("{bgp}tests:\n  - reset: {{rate: 10 kfps, pause: 1 ms{test}}}\n"),
    );
    let mut memory = Memory::default();
    run(&suite, &mut memory).unwrap();
    let tests = memory.tests();
    (tests[0].status.clone(), tests[0].outcome.clone())
}

fn measured(device: &str, bgp: &str, test: &str) -> Outcome {
    let (status, outcome) = outcome(device, bgp, test);
    assert_eq!(status, TestStatus::Completed, "{device}");
    outcome
}

fn text(outcome: &Outcome, row: usize, column: &str) -> String {
    let table = outcome.tables.iter().find(|t| t.key == "reset").unwrap();
    let at = table.columns.iter().position(|c| c.key == column).unwrap();
    match &table.rows[row].cells[at] {
        Cell::Text(text) => text.clone(),
        other => panic!("{column}: {other:?}"),
    }
}

fn number(outcome: &Outcome, row: usize, column: &str) -> Option<f64> {
    cell(outcome, "reset", row, column)
}

fn near(found: Option<f64>, expected: f64, within: f64) -> bool {
    found.is_some_and(|found| (found - expected).abs() <= within)
}

#[test]
fn the_reset_time_is_the_time_of_booting_to_the_frame() {
    for boot_ms in [1u32, 250, 700] {
        let found = measured(&format!(", boot_time: {boot_ms} ms"), "", ", window: 2 s, resets: [process], repeats: 2");
        assert_eq!(rows(&found, "reset").len(), 2);
        let boot = f64::from(boot_ms);
        for row in 0..2 {
            assert_eq!(number(&found, row, "lost"), Some(boot * 10.0), "frames of {boot_ms} ms");
            assert!(near(number(&found, row, "loss_ms"), boot, 1e-6), "{boot_ms}");
            assert!(near(number(&found, row, "stamps_ms"), boot, 1e-3), "{boot_ms}");
            assert!(near(number(&found, row, "begins_ms"), 0.0, 0.2), "{:?}", number(&found, row, "begins_ms"));
            assert!(near(number(&found, row, "restarted_ms"), boot, 1e-6));
            assert_eq!((number(&found, row, "episodes"), number(&found, row, "sessions_ms")), (Some(1.0), None));
            assert_eq!(
                [text(&found, row, "forwarding"), text(&found, row, "routes")],
                ["interrupted", "static routes"]
            );
        }
        let rank = found.ranks.iter().find(|r| r.key == "reset_process_ipv4_ms").unwrap();
        assert!(near(rank.value, boot, 1e-6));
    }
}

#[test]
fn a_link_is_away_as_long_as_it_is_down() {
    let found = measured("", "", ", window: 2 s, resets: [link], down: 300 ms");
    assert!(near(number(&found, 0, "loss_ms"), 300.0, 1.0), "{:?}", number(&found, 0, "loss_ms"));
    assert!(near(number(&found, 0, "stamps_ms"), 300.0, 1.0));
    assert_eq!((text(&found, 0, "forwarding").as_str(), number(&found, 0, "restarted_ms")), ("interrupted", None));
}

#[test]
fn a_router_that_forwards_on_has_no_reset_time() {
    let found = measured(", reset_unaffected: true", "", ", window: 2 s, resets: [software]");
    assert_eq!((number(&found, 0, "lost"), text(&found, 0, "forwarding").as_str()), (Some(0.0), "went on"));
    assert_eq!((number(&found, 0, "loss_ms"), number(&found, 0, "stamps_ms")), (Some(0.0), None));
}

#[test]
fn a_router_that_does_not_come_back_is_named() {
    let (status, found) =
        outcome(", reset_never_back: true", "", ", window: 2 s, resets: [software, process], limit: 5 s");
    let TestStatus::Failed(cause) = status else { panic!("{status:?}") };
    assert!(cause.contains("not recovered from a software reset") && cause.contains("within 5 s"), "{cause}");
    assert_eq!(rows(&found, "reset").len(), 1, "a broken router is not reset again");
    assert_eq!(text(&found, 0, "forwarding"), "not back within the window");
    for column in ["loss_ms", "stamps_ms", "restarted_ms"] {
        assert_eq!(number(&found, 0, column), None, "{column}");
    }
    let marks = &rows(&found, "reset")[0].marks;
    assert!(marks.iter().any(|m| m.contains("did not run again within 5 s")), "{marks:?}");
    assert!(marks.iter().any(|m| m.contains("at least 2000 ms")), "{marks:?}");
    assert_eq!(found.ranks.iter().find(|r| r.key == "reset_software_ipv4_ms").map(|r| r.value), Some(None));
}

#[test]
fn sessions_and_routes_come_back_and_are_timed() {
    let found = measured(
        ", boot_time: 100 ms",
        "bgp: {hold_time: 9 s}\n",
        ", resets: [process], routes: 50, limit: 100 s, window: 20 s",
    );
    assert_eq!([text(&found, 0, "routes"), text(&found, 1, "routes")], ["static routes", "BGP routes"]);
    assert!(near(number(&found, 0, "loss_ms"), 100.0, 0.21), "{:?}", number(&found, 0, "loss_ms"));
    for row in 0..2 {
        assert_eq!(number(&found, row, "sessions_lost"), Some(2.0));
    }
    let sessions = number(&found, 1, "sessions_ms").unwrap();
    let routes = number(&found, 1, "routes_ms").unwrap();
    let without = number(&found, 1, "loss_ms").unwrap();
    // The device forgot its sessions. The peers notice at their next KEEPALIVE, within a third of the hold time.
    assert!(sessions > 100.0 && routes >= sessions && routes < 20_000.0, "{sessions}, {routes}");
    assert!(
        without > 100.0 && without <= routes + 1.0,
        "BGP routes were away for {without} ms, back after {routes} ms"
    );
    assert_eq!(number(&found, 0, "routes_ms"), None, "static routes are not advertised");
}

/// The reference device, which takes this time to show its counters.
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

/// Runs `use_it` on a bed whose device takes `slow` to show its counters. The cell has the instant of a stop.
fn on_slow_device(suite: &Suite, slow: Duration, use_it: impl FnOnce(&mut TestSetup<'_>, &Shared<Option<Instant>>)) {
    let dut = &suite.duts[0];
    let config = simulated::config(dut, &suite.ports, suite.seed);
    let parts = simulated::build_with(config, dut, &suite.ports, suite.seed).unwrap();
    let clock = SharedClock::new(parts.clock);
    let ports = parts.ports.into_iter().map(|port| Box::new(port) as Box<dyn Port>).collect();
    let ports = Ports::One { ports, clock: Box::new(clock.clone()) };
    let rig = Rig::new(ports, &hosts_and_routers(&suite.ports, &[Family::Ipv4], suite.seed));
    let mut session = Session::new(suite.seed, suite.profile, 5);
    let stops_at = Rc::new(Shared::new(None));
    let mut user = User { clock: clock.clone(), stops_at: stops_at.clone() };
    let mut device = Slow { device: parts.device, clock, time: slow };
    let mut bed = TestSetup::new(&dut.name, &suite.ports, rig, &mut device, &mut session, &mut user);
    let method = drophammer_methods::find("reset").unwrap();
    let params = drophammer_suite::defaults(method.spec().params, drophammer_model::suite::Profile::Quick);
    bed.begin_test(method, &params, bed.left);
    for _ in 0..100 {
        if bed.rig().unresolved().is_some() {
            bed.settle(Duration::from_millis(20)).unwrap();
        }
    }
    use_it(&mut bed, &stops_at);
}

#[test]
fn a_reset_is_timed_where_it_was_although_traffic_started_after_the_request() {
    let suite = suite(
        ", delay: 10 us, boot_time: 100 ms",
        "tests:\n  - reset: {rate: 10 kfps, pause: 1 ms, window: 2 s, resets: [software]}\n",
    );
    // Three times as long as the tolerance for loss before a reset.
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
        assert_eq!(found.ranks, []);
    });
}

#[test]
fn the_record_says_when_the_router_was_reset() {
    let suite = suite(", delay: 10 us, boot_time: 100 ms", "tests: [throughput]\n");
    // Reading the counters puts off the start of the traffic, but not the reset.
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

/// 1,000 frames per second from the first port to the second.
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
