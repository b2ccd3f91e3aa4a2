//! The tests of the self-test, in virtual time, where the right answers are known.

use crate::common::*;
use drophammer_lab::{Dut, LabError};
use drophammer_methods::parameters::{DRAIN, FRAME_SIZES, PAUSE};
use drophammer_methods::selftest::{TRIAL_DURATION, counter_proof, latency_floor, loss_floor, pacing};
use drophammer_methods::tester_ceiling::REPEATS;
use drophammer_methods::{Method, TestError};
use drophammer_model::environment::DutRecord;
use drophammer_model::outcome::{Cell, Outcome};
use drophammer_model::suite::{Params, Profile, Suite};
use drophammer_model::traffic::Deviation;
use drophammer_model::trial::Family;
use drophammer_reference::{Corrupt, Encapsulation, Faults, Hold, Misroute, NOBODY, Reorder, WrongNextHop};
use drophammer_testbed::simulated::{self, ReferenceDut};
use std::collections::BTreeMap;
use std::time::Duration;

/// A device that reports a value above the real one for one counter.
struct Boaster {
    device: ReferenceDut,
    counter: &'static str,
    readings: u64,
}

impl Dut for Boaster {
    fn record(&self) -> DutRecord {
        self.device.record()
    }

    fn check(&mut self) -> Result<(), LabError> {
        self.device.check()
    }

    fn forwards(&mut self) -> Result<(), LabError> {
        self.device.forwards()
    }

    fn counters(&mut self) -> Result<BTreeMap<String, u64>, LabError> {
        let mut counters = self.device.counters()?;
        self.readings += 1;
        *counters.entry(self.counter.into()).or_default() += self.readings;
        Ok(counters)
    }
}

fn params(method: &dyn Method, seconds: f64) -> Params {
    let mut params = drophammer_suite::defaults(method.spec().params, Profile::Quick);
    FRAME_SIZES.set(&mut params, vec!["64".parse().unwrap()]);
    TRIAL_DURATION.set(&mut params, Duration::from_secs_f64(seconds));
    if REPEATS.find(&params).is_some() {
        REPEATS.set(&mut params, 2);
    }
    DRAIN.set(&mut params, Duration::from_millis(1_500));
    if PAUSE.find(&params).is_some() {
        PAUSE.set(&mut params, Duration::from_millis(10));
    }
    params
}

/// Runs `method` on the device of `suite` with `faults`; with `boast`, the device reports a wrong value for that
/// counter.
fn run(
    suite: &Suite,
    method: &dyn Method,
    faults: Faults,
    boast: Option<&'static str>,
) -> (Outcome, Result<(), TestError>) {
    let dut = &suite.duts[0];
    let mut config = simulated::config(dut, &suite.ports, suite.seed);
    config.faults = faults;
    let parts = simulated::build_with(config, dut, &suite.ports, suite.seed).unwrap();
    let ports = one_thread(parts.ports, Box::new(parts.clock));
    let mut device: Box<dyn Dut> = match boast {
        Some(counter) => Box::new(Boaster { device: parts.device, counter, readings: 0 }),
        None => Box::new(parts.device),
    };
    with_setup(suite, &[Family::Ipv4], ports, device.as_mut(), &mut Memory::default(), |bed| {
        bed.await_forwarding(&[Family::Ipv4]).unwrap();
        let mut outcome = Outcome::default();
        let result = method.run(bed, &params(method, 0.5), &mut outcome);
        (outcome, result)
    })
}

/// A device with two ports at 1 Gbit/s.
fn device(params: &str) -> Suite {
    read_suite(&format!(
        "suite: self\nprofile: quick\nseed: 11\nduts:\n  - {{name: box, kind: reference{params}}}\nports:\n  - {{name: p1, \
         speed: 1 Gbit/s}}\n  - {{name: p2, speed: 1 Gbit/s}}\ntests:\n  - throughput\n"
    ))
}

fn faults() -> Vec<Faults> {
    let none = Faults::default();
    vec![
        none.clone(),
        Faults { drop_every: 97, ..none.clone() },
        Faults { drop_share: 0.01, ..none.clone() },
        Faults { duplicate_every: 89, ..none.clone() },
        Faults { reorder: Some(Reorder { every: 101, positions: 3 }), ..none.clone() },
        Faults { corrupt: Some(Corrupt { every: 83, offset: None, fix_checksum: true }), ..none.clone() },
        Faults { misroute: Some(Misroute { every: 103, to_port: 0 }), ..none.clone() },
        Faults { wrong_next_hop: Some(WrongNextHop { every: 107, mac: NOBODY }), ..none.clone() },
        Faults { encapsulation: Some(Encapsulation { every: 109, change: Deviation::VlanUnexpected }), ..none.clone() },
        Faults { hold: Some(Hold { every: 1_009, time: Duration::from_millis(1_200) }), ..none },
    ]
}

#[test]
fn counters_are_equal_on_every_device() {
    for faults in faults() {
        let text = format!("{faults:?}");
        let (outcome, result) = run(&device(""), &counter_proof::CounterProof, faults, None);
        assert_eq!(result, Ok(()), "{text}");
        assert!(outcome.verdicts.len() == 1 && outcome.verdicts[0].pass, "{text}: {:#?}", outcome.tables);
        assert_eq!(cell(&outcome, "counter_proof", 0, "tester"), Some(20_000.0), "10,000 frames each way");
    }
}

#[test]
fn a_counter_that_is_one_off_is_found() {
    let told = [
        ("truth.transit", "offered"),
        ("truth.dropped.buffer", "lost"),
        ("truth.duplicated", "duplicated"),
        ("truth.reordered", "reordered (RFC 4737)"),
        ("truth.corrupted", "corrupted"),
        ("truth.misrouted", "stray"),
        ("truth.wrong_next_hop", "stray"),
        ("truth.encapsulation", "wrong encapsulation"),
        ("truth.held", "late"),
    ];
    for (counter, name) in told {
        let (outcome, result) = run(&device(""), &counter_proof::CounterProof, Faults::default(), Some(counter));
        assert_eq!(result, Ok(()));
        assert!(!outcome.verdicts[0].pass && outcome.verdicts[0].found.contains(name), "{:?}", outcome.verdicts);
    }
}

#[test]
fn the_loss_floor_is_below_the_capacity_and_near_it() {
    // 1 Gbit/s: 1,488,095 fps per port at 64 bytes; the device serves 400,000 of both ports together. The rate starts
    // at line rate and decreases by a factor of 0.85 each time: the tenth step, 292,964 fps, is too much, ... the first
    // step below 200,000 is 179,910.
    let (outcome, result) = run(&device(", capacity: 400 kfps"), &loss_floor::LossFloor, Faults::default(), None);
    assert_eq!(result, Ok(()));
    let found = loss_floor::TABLE.rows(&outcome.tables)[0].loss_free_pps;
    let line = 1e9 / 8.0 / 84.0;
    let expected = (0..).map(|step| line * 0.85f64.powi(step)).find(|load| *load <= 200e3).unwrap();
    assert!((found - expected).abs() < 1.0, "{found} instead of {expected}");
}

#[test]
fn the_latency_floor_is_the_delay_of_the_device() {
    let (outcome, result) = run(&device(", delay: 50 us"), &latency_floor::LatencyFloor, Faults::default(), None);
    assert_eq!(result, Ok(()));
    let floor = &latency_floor::TABLE.rows(&outcome.tables)[0];
    assert_eq!(floor.floor_us, Some(50.0));
    assert_eq!(floor.resolution_us, Some(0.0));
}

#[test]
fn in_virtual_time_no_frame_is_late() {
    let (outcome, result) = run(&device(""), &pacing::Pacing, Faults::default(), None);
    assert_eq!(result, Ok(()));
    for row in rows(&outcome, "pacing") {
        assert_eq!(row.cells[4..8], [Cell::Number(0.0), Cell::Number(0.0), Cell::Number(0.0), Cell::Number(0.0)]);
    }
    // All frames are in the first bar.
    let plot = &outcome.plots[0];
    assert!(plot.series.iter().all(|s| s.points.len() == 1 && s.points[0].y == 100.0), "{:?}", plot.series);
}
