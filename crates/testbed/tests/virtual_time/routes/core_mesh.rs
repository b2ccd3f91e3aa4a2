//! The tests of the suite core-2001 on its bed: four routers, fully meshed, with three ports each. Every port sends to
//! every other port. The behaviour of the routers is known exactly, to the frame.

use super::*;
use crate::common::with_faults_of_the_first;
use drophammer_model::record::TrialRecord;
use drophammer_reference::{Faults, Hold};
use std::time::Duration;

/// The ports of the suite.
const OC48: &str = "speed: 2488.32 Mbit/s, medium: ppp-over-sonet";
/// Ports on which exactly 33,000 frames of `ip40` per second are line rate.
const SLOW: &str = "speed: 22.176 Mbit/s";
/// Each port sends a frame every 454.5 us, so 200 frames per second to the routes behind each other port.
const TRAFFIC: &str = "rate: 2200 fps, distribution: fully_meshed, pause: 1 ms, drain: 100 ms";

/// A suite with these tests on twelve ports of this kind, of four routers of this kind.
fn mesh(device: &str, port: &str, tests: &str) -> Suite {
    let ports: String = (1..=12).map(|n| format!("  - {{name: p{n}, {port}}}\n")).collect();
    read_suite(&format!(
        "suite: core\nprofile: quick\nseed: {SEED}\n\
         duts:\n  - {{name: box, kind: reference, topology: {{mesh: 4}}{device}}}\n\
         ports:\n{ports}bgp: {{families: [ipv4]}}\ntests:\n{tests}"
    ))
}

fn counter(trial: &TrialRecord, name: &str) -> u64 {
    trial.result.dut_counters.get(name).copied().unwrap_or(0)
}

fn get(outcome: &Outcome, table: &str, row: usize, column: &str) -> f64 {
    crate::common::cell(outcome, table, row, column).unwrap_or_else(|| panic!("row {row} of {table} has no {column}"))
}

fn text<'a>(outcome: &'a Outcome, table: &str, row: usize, column: &str) -> &'a str {
    let table = outcome.tables.iter().find(|t| t.key == table).unwrap();
    let at = table.columns.iter().position(|c| c.key == column).unwrap();
    match &table.rows[row].cells[at] {
        Cell::Text(text) => text,
        other => panic!("{column}: {other:?}"),
    }
}

const FILTERING: &str = "routes: 240, frames_per_route: 1, trial_duration: 200 ms";

#[test]
fn one_frame_that_one_router_leaks_is_found_and_named_by_its_route() {
    let test = format!(
        "  - route_filtering: {{{FILTERING}, filter_at: [egress], actions: [deny], frame_sizes: [ip40], {TRAFFIC}}}\n"
    );
    // The first router denies the frames that eleven ports send to its three ports: 20 each. The last of these frames
    // leaks.
    let faults = Faults { filter_leak_every: 660, ..Faults::default() };
    let (outcome, memory) = with_faults_of_the_first(&mesh("", OC48, &test), faults);
    let leaked = |row| get(&outcome, "route_filtering", row, "leaked");
    assert_eq!((leaked(0), leaked(1)), (0.0, 1.0));
    assert_eq!(figure(&outcome, "route_filtering_ipv4_leaked"), Some(1.0));
    assert_eq!(rows(&outcome, "route_filtering_leaks").len(), 1);
    assert_eq!(get(&outcome, "route_filtering_leaks", 0, "frames"), 1.0);
    // The first ten of the 20 routes behind each port are denied. The first 60 routes are behind the ports of that
    // router.
    let route = text(&outcome, "route_filtering_leaks", 0, "route");
    let index = internet(Family::Ipv4, 240).index_of(&route.parse().unwrap()).unwrap();
    assert!(index < 60 && index % 20 < 10, "{route} is route {index}");
    let denying = memory.trials().into_iter().find(|trial| trial.spec.flows.iter().any(|flow| flow.denied)).unwrap();
    let counters = ["truth.leaked", "r1.truth.leaked", "truth.dropped.filtered"].map(|name| counter(denying, name));
    assert_eq!(counters, [1, 1, 2_639]);
}

const ORDER: &str = "distribution: fully_meshed, routes: 240, trial_duration: 200 ms, repeats: 1, pause: 1 ms";

/// The first router delays four of the 3,600 frames that pass it in the first trial, and two of the 1,800 in the second
/// trial. It has also numbered the learning frames, so only a number that divides both counts gives these results. A
/// flow sends a frame every 3.33 ms, or every 6.67 ms at half of the load.
#[test]
fn frames_that_one_router_holds_are_out_of_order_where_others_overtake_them() {
    let test = format!("  - packet_order: {{frame_sizes: [ip40], loads: [10, 5], {ORDER}}}\n");
    let faults = Faults { hold: Some(Hold { every: 900, time: Duration::from_millis(5) }), ..Faults::default() };
    let (outcome, memory) = with_faults_of_the_first(&mesh("", SLOW, &test), faults);
    let held: Vec<u64> = memory.trials().iter().map(|trial| counter(trial, "r1.truth.held")).collect();
    assert_eq!(held, [4, 2]);
    for (row, frames, late) in [(0, 7_920.0, 4.0), (1, 3_960.0, 0.0)] {
        let get = |column| get(&outcome, "packet_order", row, column);
        assert_eq!(["received", "loss_percent", "duplicated", "reordered"].map(get), [frames, 0.0, 0.0, late]);
        assert_eq!(get("max_extent"), if late > 0.0 { 1.0 } else { 0.0 });
        assert!((get("reordered_percent") - late / frames * 100.0).abs() < 1e-9, "{}", get("reordered_percent"));
        // The frame that overtakes, the late frame, and the frame after that.
        let out_of_sequence = get("out_of_sequence_percent");
        assert!((out_of_sequence - 3.0 * late / frames * 100.0).abs() < 1e-9, "{out_of_sequence}");
        assert_eq!(text(&outcome, "packet_order", row, "order"), if late > 0.0 { "changed" } else { "kept" });
    }
    // This flow passes the router.
    let worst = text(&outcome, "packet_order", 0, "worst_flow");
    assert!(worst.split_whitespace().any(|word| ["p1", "p2", "p3"].contains(&word)), "{worst}");
    let begins = text(&outcome, "packet_order_onset", 0, "begins");
    assert_eq!(begins, "above 5.0 %, at most at 10.0 % of line rate");
    about(figure(&outcome, "reordering_begins_ip40_percent").unwrap(), 10.0, 0.0);
}
