//! The test `ping_delay` on the reference device, whose delay and answers are known.

use crate::common::*;
use drophammer_methods::Method;
use drophammer_methods::ping_delay::{OwnDelay, PingDelay};
use drophammer_model::figure::{Figure, RoundFigure};
use drophammer_model::outcome::Outcome;
use drophammer_model::trial::Family;
use drophammer_reference::{Faults, ManagementFault};
use std::time::Duration;

fn read(device: &str, more: &str) -> drophammer_model::suite::Suite {
    let test = format!("ping_delay: {{pings: 20, ping_every: 20 ms, pause: 1 ms{more}}}");
    suite(&format!(", delay: 40 us{device}"), &format!("tests:\n  - {test}\n"))
}

/// Runs the test on a device with this fault at any load.
fn with_fault(fault: ManagementFault) -> Outcome {
    let suite = read("", ", frame_sizes: [64]");
    with_bed(
        &suite,
        &[Family::Ipv4],
        |_| {},
        |bed, reference| {
            reference.set_faults(Faults { management: Some(fault), ..Faults::default() }).unwrap();
            let mut outcome = Outcome::default();
            PingDelay.run(bed, &suite.tests[0].params, &mut outcome).unwrap();
            outcome
        },
    )
}

const FAULT: ManagementFault = ManagementFault { waiting: 0, drop_every: 0, delay: Duration::ZERO, dies: false };

fn get(outcome: &Outcome, row: usize, column: &str) -> f64 {
    cell(outcome, "ping_delay", row, column).unwrap_or_else(|| panic!("no {column} in row {row}"))
}

fn close(outcome: &Outcome, row: usize, column: &str, wanted: f64) {
    let found = get(outcome, row, column);
    assert!((found - wanted).abs() < 1e-6, "{column} of row {row}: {found}, not {wanted}");
}

#[test]
fn the_time_of_the_routers_own_answers_is_its_own() {
    let outcome = with_fault(ManagementFault { delay: Duration::from_micros(300), ..FAULT });
    close(&outcome, 0, "delay_max_us", 40.0);
    for column in ["delay_min_us", "delay_us", "delay_max_us", "round_trip_us"] {
        close(&outcome, 1, column, 300.0);
    }
    assert!(outcome.ranks.iter().any(|r| r.key == "ping_answer_64_us" && (r.value.unwrap() - 300.0).abs() < 1e-6));
}

#[test]
fn a_router_that_does_not_answer_is_named() {
    let outcome = with_fault(ManagementFault { drop_every: 4, ..FAULT });
    assert_eq!(get(&outcome, 1, "answered"), 15.0);
    assert_eq!(rows(&outcome, "ping_delay")[1].marks, ["5 without a reply"]);
    let said = "64 bytes: IPv4: no reply to 5 of 20 echo requests to the router.";
    assert!(outcome.notes.iter().any(|note| note == said), "{:?}", outcome.notes);
    let outcome = with_fault(ManagementFault { dies: true, ..FAULT });
    assert_eq!(cell(&outcome, "ping_delay", 1, "delay_us"), None);
    let said = "64 bytes: IPv4: no reply to any of 20 echo requests to the router.";
    assert!(outcome.notes.iter().any(|note| note == said), "{:?}", outcome.notes);
    assert!(outcome.ranks.iter().any(|r| r.key == "ping_answer_64_us" && r.value.is_none()));
    assert!(outcome.ranks.iter().any(|r| r.key == "ping_answered_64_percent" && r.value == Some(0.0)));
}

#[test]
fn what_the_tester_needs_is_subtracted() {
    let suite = read("", ", frame_sizes: [64]");
    let outcome = with_bed(
        &suite,
        &[Family::Ipv4],
        |_| {},
        |bed, _| {
            let own = OwnDelay { echo: Duration::from_micros(7), frames: Duration::from_micros(5) };
            bed.facts_mut().own_delays.insert((Family::Ipv4, 64), own);
            let mut outcome = Outcome::default();
            PingDelay.run(bed, &suite.tests[0].params, &mut outcome).unwrap();
            outcome
        },
    );
    close(&outcome, 0, "delay_us", 33.0);
    close(&outcome, 0, "frames_us", 35.0);
    close(&outcome, 0, "round_trip_us", 66.0 + get(&outcome, 0, "tester_us"));
    // The router answers immediately, faster than the tester's own delay. The figure is a bound: the whole round trip.
    assert_eq!(cell(&outcome, "ping_delay", 1, "delay_us"), None);
    let answer = outcome.ranks.iter().find(|r| r.key == "ping_answer_64_us").unwrap();
    assert_eq!(answer.round(), RoundFigure::Measured(Figure::at_most(0.0)));
    let through = outcome.ranks.iter().find(|r| r.key == "ping_delay_64_us").unwrap();
    assert!(through.figure().unwrap().is_exact());
    let marks = &rows(&outcome, "ping_delay")[1].marks;
    assert_eq!(marks[0], "some round trips are below the tester's own share");
    assert_eq!(marks[1], "median below the tester's own share: a delay of at most 0.0 µs");
    let said = "round trips to the router are below the tester's own share, so the delay is at most 0.0 µs";
    assert!(outcome.notes.iter().any(|note| note.contains(said)), "{:?}", outcome.notes);
}

#[test]
fn the_tester_itself_is_measured_with_the_same_traffic() {
    let suite = read("", ", frame_sizes: [64, imix, 1518], families: [ipv4, ipv6]");
    let (found, outcome) = with_bed(
        &suite,
        &[Family::Ipv4, Family::Ipv6],
        |_| {},
        |bed, _| {
            let mut outcome = Outcome::default();
            let found = drophammer_methods::ping_delay::own_delays(bed, &suite.tests[0].params, &mut outcome).unwrap();
            (found, outcome)
        },
    );
    let wanted = OwnDelay { echo: Duration::from_micros(40), frames: Duration::from_micros(40) };
    let keys = [(Family::Ipv4, 64), (Family::Ipv4, 1518), (Family::Ipv6, 78), (Family::Ipv6, 1518)];
    assert_eq!(found, keys.map(|key| (key, wanted)).into());
    assert_eq!(rows(&outcome, "ping_delay_own").len(), 4);
}
