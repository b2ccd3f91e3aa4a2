//! The test `packet_order` on the reference device. The device delays some frames by a known time, so that other frames
//! overtake them above a known load.

use crate::common::*;
use drophammer_methods::packet_order::PacketOrder;
use drophammer_methods::tester_ceiling::LoopOrder;
use drophammer_methods::{Method, Testbed};
use drophammer_model::outcome::{Cell, Outcome};
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
    // The router reorders 3 x 9 or 3 x 10 of 30,000 frames, 0.1 %.
    let same = of_loop(100, 0.12);
    assert_eq!(text(&same, "packet_order", 0, "order").unwrap(), "not told apart from the tester");
    assert!(figure(&same, "reordered_64_percent").is_none() && figure(&same, "reordering_begins_64_percent").is_none());
    assert!(text(&same, "packet_order_onset", 0, "begins").unwrap().starts_with("not known"));
    assert!((cell(&same, "packet_order", 0, "loop_percent").unwrap() - 0.1).abs() < 1e-9);
    let less = of_loop(1, 0.003);
    assert_eq!(text(&less, "packet_order", 0, "order").unwrap(), "changed");
    assert!(figure(&less, "reordered_64_percent").is_some());
}
