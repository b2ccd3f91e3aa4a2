//! The test `packet_order` on the reference device: it holds some frames for a known time, so others overtake them from
//! a known load on.

use crate::common::*;
use drophammer_methods::packet_order::PacketOrder;
use drophammer_methods::tester_ceiling::LoopOrder;
use drophammer_methods::{Method, Testbed};
use drophammer_model::outcome::{Cell, Outcome};
use drophammer_model::record::TestStatus;
use drophammer_model::suite::Suite;
use drophammer_model::trial::Family;

const TEST: &str = "frame_sizes: [64], direction: unidirectional, pause: 1 ms, trial_duration: 100 ms, repeats: 3";

/// Ports on which exactly 100,000 frames of 64 bytes per second are line rate.
fn order_suite(device: &str, more: &str) -> Suite {
    read_suite(&format!(
        "suite: order\nprofile: quick\nseed: 11\nduts:\n  - {{name: box, kind: reference, delay: 10 us{device}}}\n\
         ports:\n  - {{name: p1, speed: 67.2 Mbit/s}}\n  - {{name: p2, speed: 67.2 Mbit/s}}\n\
         tests:\n  - packet_order: {{{TEST}{more}}}\n"
    ))
}

fn measured(device: &str, more: &str) -> Outcome {
    let mut memory = Memory::default();
    run(&order_suite(device, more), &mut memory).unwrap();
    let tests = memory.tests();
    assert_eq!(tests[0].status, TestStatus::Completed, "{device}");
    tests[0].outcome.clone()
}

fn text(outcome: &Outcome, table: &str, row: usize, column: &str) -> Option<String> {
    let table = outcome.tables.iter().find(|t| t.key == table).unwrap();
    let at = table.columns.iter().position(|c| c.key == column).unwrap();
    match &table.rows[row].cells[at] {
        Cell::Text(text) => Some(text.clone()),
        Cell::None => None,
        other => panic!("{column}: {other:?}"),
    }
}

fn figure(outcome: &Outcome, key: &str) -> Option<(f64, bool)> {
    outcome.ranks.iter().find(|r| r.key == key).and_then(|r| Some((r.value?, r.tester_limited)))
}

#[test]
fn frames_are_out_of_order_as_often_and_as_far_as_they_are_overtaken() {
    let outcome = measured(", hold_every: 100, hold_time: 55 us", ", loads: [10, 100, 50, 20, 18]");
    // Load in %, frames per trial, frames that overtake a held one within 55 µs.
    let expected = [(100.0, 10_000, 5), (50.0, 5_000, 2), (20.0, 2_000, 1), (18.0, 1_800, 0), (10.0, 1_000, 0)];
    assert_eq!(rows(&outcome, "packet_order").len(), expected.len());
    for (row, (load, frames, overtaking)) in expected.into_iter().enumerate() {
        let get =
            |column| cell(&outcome, "packet_order", row, column).unwrap_or_else(|| panic!("{column} at {load} %"));
        // The last frame of each trial is held too, and no frame is left to overtake it.
        let late = if overtaking > 0 { 3 * (frames / 100 - 1) } else { 0 };
        let (received, share) = (3.0 * f64::from(frames), f64::from(late) / (3.0 * f64::from(frames)) * 100.0);
        assert_eq!((get("load_percent"), get("received"), get("loss_percent")), (load, received, 0.0));
        assert!((get("line_percent") - load).abs() < 0.1, "{}", get("line_percent"));
        assert_eq!(
            (get("reordered"), get("max_extent"), get("duplicated")),
            (f64::from(late), f64::from(overtaking), 0.0)
        );
        for column in ["reordered_percent", "least_percent", "most_percent"] {
            assert!((get(column) - share).abs() < 1e-9, "{load} %: {column} is {}, not {share}", get(column));
        }
        // The first frame that overtakes, the late one, and the one after that.
        assert!((get("out_of_sequence_percent") - 3.0 * share).abs() < 1e-9, "{}", get("out_of_sequence_percent"));
        let three = if overtaking >= 3 { share } else { 0.0 };
        assert!((get("reordered_3_percent") - three).abs() < 1e-9);
        assert_eq!(text(&outcome, "packet_order", row, "order").unwrap(), if late > 0 { "changed" } else { "kept" });
        let worst = (late > 0).then(|| "IPv4, p1 to p2".to_owned());
        assert_eq!(text(&outcome, "packet_order", row, "worst_flow"), worst);
        assert_eq!(cell(&outcome, "packet_order", row, "loop_percent"), None, "there is no loop in virtual time");
    }
    let onset = |column| cell(&outcome, "packet_order_onset", 0, column).unwrap();
    assert!((onset("begins_percent") - 20.0).abs() < 1e-9 && (onset("below_percent") - 18.0).abs() < 1e-9);
    assert_eq!(
        text(&outcome, "packet_order_onset", 0, "begins").unwrap(),
        "above 18.0 %, at most at 20.0 % of line rate"
    );
    assert_eq!(text(&outcome, "packet_order_onset", 0, "doubt"), None);
    assert!(
        figure(&outcome, "reordering_begins_64_percent").is_some_and(|(at, least)| (at - 20.0).abs() < 1e-9 && !least)
    );
    assert!(figure(&outcome, "reordered_64_percent").is_some_and(|(share, _)| (share - 0.99).abs() < 1e-9));
}

#[test]
fn a_router_that_keeps_the_order_has_no_onset_whatever_it_loses() {
    let outcome = measured(", drop_every: 50, duplicate_every: 70", ", loads: [100, 40]");
    for row in 0..2 {
        let get = |column| cell(&outcome, "packet_order", row, column).unwrap();
        assert_eq!((get("reordered"), get("max_extent")), (0.0, 0.0));
        assert!(get("loss_percent") > 1.9 && get("duplicated") > 0.0);
        // Each gap is followed by one frame that is out of sequence; a gap at the end is not.
        assert!(get("out_of_sequence_percent") > 1.9 && get("out_of_sequence_percent") < 2.1);
    }
    assert_eq!(text(&outcome, "packet_order_onset", 0, "begins").unwrap(), "not up to 100.0 % of line rate");
    assert_eq!(figure(&outcome, "reordering_begins_64_percent").map(|(_, least)| least), Some(true));
}

#[test]
fn a_router_that_always_reorders_is_found_at_every_load() {
    let outcome = measured(", reorder_every: 40, reorder_by: 3", ", loads: [100, 1]");
    for row in 0..2 {
        assert_eq!(cell(&outcome, "packet_order", row, "max_extent"), Some(3.0));
        assert_eq!(text(&outcome, "packet_order", row, "order").unwrap(), "changed");
    }
    let begins = text(&outcome, "packet_order_onset", 0, "begins").unwrap();
    assert_eq!(begins, "at 1.0 % of line rate or below: at all loads that were tried");
}

#[test]
fn what_the_loop_shows_is_not_the_routers() {
    let suite = order_suite(", hold_every: 1000, hold_time: 55 us", ", loads: [100]");
    let of_loop = |reordered: u64, worst_percent: f64| {
        with_bed(
            &suite,
            &[Family::Ipv4],
            |_| {},
            |bed, device| {
                device.begin(faults_of(&suite)).unwrap();
                let key = one_way("64");
                bed.facts_mut()
                    .orders
                    .insert(key, LoopOrder { trials: 3, received: 100_000, reordered, worst_percent });
                assert!(bed.facts().orders.contains_key(&one_way("64")));
                let mut outcome = Outcome::default();
                PacketOrder.run(bed, &suite.tests[0].params, &mut outcome).unwrap();
                outcome
            },
        )
    };
    // The router: 3 x 9 or 3 x 10 of 30,000 frames, 0.1 %.
    let same = of_loop(100, 0.12);
    assert_eq!(text(&same, "packet_order", 0, "order").unwrap(), "not told apart from the tester");
    assert!(figure(&same, "reordered_64_percent").is_none() && figure(&same, "reordering_begins_64_percent").is_none());
    assert!(text(&same, "packet_order_onset", 0, "begins").unwrap().starts_with("not known"));
    assert!((cell(&same, "packet_order", 0, "loop_percent").unwrap() - 0.1).abs() < 1e-9);
    let less = of_loop(1, 0.003);
    assert_eq!(text(&less, "packet_order", 0, "order").unwrap(), "changed");
    assert!(figure(&less, "reordered_64_percent").is_some());
}

#[test]
fn loads_are_shares_of_the_throughput_where_that_is_asked_for() {
    let device = ", capacity: 50 kfps, buffer: 10, hold_every: 100, hold_time: 55 us";
    let outcome = measured(device, ", load_of: throughput, loads: [100, 50], width: 1");
    for (row, share) in [(0, 1.0), (1, 0.5)] {
        let line = cell(&outcome, "packet_order", row, "line_percent").unwrap();
        assert!((line / share - 50.0).abs() < 1.5, "{line}");
    }
}
