//! Tests of forwarding begin when the forwarding plane has all advertised routes, no matter how late that is.

use super::bed::faults;
use super::*;
use drophammer_methods::{Facts, Known, METHODS, Routing, Seen, TestError, Testbed, Trial};
use drophammer_reference::BgpFaults;
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::simulated::Reference;
use std::time::Duration;

const LONGEST: &str =
    "longest_match: {routes: 2000, covering: 300, frames_per_route: 5, rate: 100 kfps, drain: 100 ms, pause: 1 ms}";
const FAILOVER: &str = "link_failover: {routes: 500, window: 5 s, rate: 100 kfps, drain: 100 ms}";
/// Routes reach the forwarding table 3 s late, and the last of 2,000 another 200 ms later.
const LATE: &str = ", fib_delay: 3 s, fib_time_per_route: 100 us";

/// Runs a test on a device that does not report the number of routes in its forwarding plane.
fn untold(params: &str, test: &str) -> Outcome {
    let suite = suite(params, 4, "{}", &format!("  - {test}\n"));
    let name = test.split(':').next().unwrap();
    let method = METHODS.iter().find(|m| m.spec().name == name).unwrap();
    let mut outcome = Outcome::default();
    let faults = crate::common::faults_of(&suite);
    crate::common::with_bed(
        &suite,
        &[Family::Ipv4],
        |_| {},
        |bed, device| {
            device.begin(faults).unwrap();
            method.run(bed, &suite.tests[0].params, &mut outcome).unwrap();
        },
    );
    outcome
}

#[test]
fn no_frame_is_lost_to_a_table_that_comes_late() {
    let told = completed(LATE, 4, LONGEST).1;
    for outcome in [told, untold(LATE, LONGEST)] {
        let column = |name| full(&outcome, "longest_match", name);
        assert_eq!((column("right"), column("offered")[0]), (column("offered"), 10_000.0));
        assert_eq!((column("wrong"), column("lost")), (vec![0.0; 3], vec![0.0; 3]));
        assert!(!noted(&outcome, &["not ready"]), "{:?}", outcome.notes);
    }
}

#[test]
fn the_outage_of_a_late_table_is_that_of_its_change_alone() {
    let told = completed(LATE, 4, FAILOVER).1;
    for outcome in [told, untold(LATE, FAILOVER)] {
        let curve = points(&outcome, "link_failover", "IPv4, link down");
        let resolution = full(&outcome, "link_failover", "resolution_ms")[0];
        assert_eq!(curve.len(), 500);
        for (i, point) in (0..).zip(curve) {
            let truth = 3_000.0 + 0.1 * f64::from(i);
            assert!((point.y - truth).abs() <= resolution + 0.1, "{i}: {} not {truth}", point.y);
        }
        assert!(!noted(&outcome, &["not ready"]), "{:?}", outcome.notes);
    }
}

#[test]
fn what_never_comes_is_named_and_the_rest_measured() {
    let all = internet(Family::Ipv4, 500);
    for outcome in [completed(", blackhole_every: 100", 4, FAILOVER).1, untold(", blackhole_every: 100", FAILOVER)] {
        let said = format!("frames to 5 of 500 routes, such as {}, did not arrive at the right port", all.prefix(99));
        assert!(noted(&outcome, &["the forwarding plane was not ready", &said, "for 10 s"]), "{:?}", outcome.notes);
        assert_eq!(full(&outcome, "link_failover", "unreachable"), [5.0]);
    }
}

/// A bed whose router fails after the second state of `longest_match`.
struct Failing<'a, 'b> {
    bed: &'a mut TestSetup<'b>,
    device: &'a Reference,
    /// If true, the router dies in the trial of the third state. Otherwise it does not read a withdrawal.
    dies: bool,
}

impl Testbed for Failing<'_, '_> {
    fn facts(&self) -> &Facts {
        self.bed.facts()
    }

    fn attempt(&mut self, trial: &Trial, number: u32) -> Result<Seen, TestError> {
        let purpose = &trial.spec.purpose;
        if self.dies && purpose.ends_with(": covering prefixes alone") {
            return Err(TestError::DutDied("killed by signal 11".into()));
        }
        let seen = self.bed.attempt(trial, number)?;
        if !self.dies && purpose.ends_with(": table and covering prefixes") {
            faults(self.device, BgpFaults { never_reads: true, ..BgpFaults::default() });
        }
        Ok(seen)
    }

    fn settle(&mut self, time: Duration) -> Result<(), TestError> {
        self.bed.settle(time)
    }

    fn routing(&mut self) -> Result<&mut dyn Routing, TestError> {
        self.bed.routing()
    }

    fn known(&mut self) -> &mut Known {
        self.bed.known()
    }

    fn progress(&mut self, _: &str) {}

    fn note(&mut self, _: &str) {}
}

#[test]
fn a_withdrawal_that_fails_costs_the_states_before_it_nothing() {
    let test = LONGEST.replace("pause: 1 ms", "pause: 1 ms, patience: 2 s");
    let suite = suite("", 4, "{}", &format!("  - {test}\n"));
    let method = METHODS.iter().find(|method| method.spec().name == "longest_match").unwrap();
    for dies in [false, true] {
        let mut outcome = Outcome::default();
        let end = crate::common::with_bed(
            &suite,
            &[Family::Ipv4],
            |_| {},
            |bed, device| {
                let mut bed = Failing { bed, device, dies };
                method.run(&mut bed, &suite.tests[0].params, &mut outcome)
            },
        );
        match end {
            Err(TestError::DutDied(_)) => assert!(dies),
            Err(TestError::Failed(why)) => assert!(!dies && why.starts_with("the router did not follow"), "{why}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(rows(&outcome, "longest_match").len(), 2);
        let keys: Vec<&str> = outcome.ranks.iter().map(|rank| rank.key.as_str()).collect();
        assert_eq!(keys, ["longest_match_ipv4_wrong_frames", "longest_match_ipv4_64_percent"]);
    }
}
