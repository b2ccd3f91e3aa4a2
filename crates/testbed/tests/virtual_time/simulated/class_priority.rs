//! The test `class_of_service` with strict priority, on reference devices in virtual time: the rate that the first
//! classes leave is exact to the frame, at an output port and on the links between routers; and devices that serve in
//! another order.

use crate::common::*;
use drophammer_model::classes::Scheduling;
use drophammer_model::outcome::Cell;
use drophammer_model::record::{ClassRecord, Record};

const TEST: &str = "class_of_service";
const AS_IT_MUST: &str = "as it must";
const NAMES: [&str; 3] = ["gold", "silver", "bronze"];

/// The test with these parameters on a device with four ports of 100 Mbit/s (148,809 frames per second).
fn classes(device: &str, params: &str) -> Memory {
    let ports: String = (1..=4).map(|n| format!("  - {{name: p{n}, speed: 100 Mbit/s}}\n")).collect();
    let text = format!(
        "suite: classes\nprofile: quick\nseed: 11\nduts:\n  - {{name: box, kind: reference, delay: 10 us{device}}}\nports:\n{ports}tests:\n  \
         - {TEST}: {{scheduling: priority, trial_duration: 200 ms, pause: 1 ms, {params}}}\n"
    );
    let mut memory = Memory::default();
    run(&read_suite(&text), &mut memory).unwrap();
    memory
}

fn get(memory: &Memory, row: usize, column: &str) -> f64 {
    let value = cell(memory.outcome(TEST), TEST, row, column);
    value.unwrap_or_else(|| panic!("row {row} has no {column}: {:?}", memory.tests()[0].status))
}

fn verdicts(memory: &Memory, table: &str) -> Vec<String> {
    let of = |row: &drophammer_model::outcome::Row| match row.cells.last() {
        Some(Cell::Text(text)) => text.clone(),
        other => panic!("{other:?}"),
    };
    rows(memory.outcome(TEST), table).iter().map(of).collect()
}

fn column(memory: &Memory, rows: [usize; 3], column: &str) -> [f64; 3] {
    rows.map(|row| get(memory, row, column))
}

fn near(found: [f64; 3], expected: [f64; 3], by: f64) {
    assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= by), "{found:?}, not {expected:?}");
}

fn classed(memory: &Memory) -> Vec<&ClassRecord> {
    memory.records.iter().filter_map(|r| if let Record::Classes(classes) = r { Some(classes) } else { None }).collect()
}

#[test]
fn the_first_class_has_all_that_it_offers_and_the_next_one_the_rest() {
    let memory = classes("", "overload: [120, 150, 300]");
    assert!(verdicts(&memory, TEST).iter().all(|verdict| verdict == AS_IT_MUST), "{:?}", verdicts(&memory, TEST));
    let loads = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]];
    let shares = [[100.0 / 3.0; 3], [40.0, 40.0, 20.0], [50.0, 50.0, 0.0], [100.0, 0.0, 0.0]];
    for (rows, shares) in loads.into_iter().zip(shares) {
        near(column(&memory, rows, "share_percent"), shares, 0.1);
        near(column(&memory, rows, "expected_percent"), shares, 0.1);
    }
    assert_eq!(column(&memory, loads[0], "lost"), [0.0; 3]);
    // At 120 % the two classes before the last one get all they need, and their frames wait for at most a frame in
    // service and one of each other port.
    assert_eq!(column(&memory, loads[1], "lost")[..2], [0.0; 2]);
    assert!(get(&memory, 3, "latency_max_us") < 100.0);
    // The device counts the same frames, class by class.
    for (trial, rows) in memory.trials().into_iter().zip(loads) {
        for (row, name) in rows.into_iter().zip(NAMES) {
            let count = |what: &str| trial.result.dut_counters.get(&format!("d3.{name}.{what}")).copied().unwrap_or(0);
            let found = (count("served") as f64, count("dropped") as f64);
            assert_eq!(found, (get(&memory, row, "received"), get(&memory, row, "lost")));
        }
    }
    let notes = &memory.outcome(TEST).notes;
    assert!(notes.iter().any(|note| note.contains("strict priority gives of all that arrived")), "{notes:?}");
    let given: Vec<_> = classed(&memory).iter().flat_map(|record| &record.lists).map(|list| list.scheduling).collect();
    assert_eq!(given, [Scheduling::Priority]);
}

#[test]
fn a_device_that_serves_in_another_order_is_found() {
    // Bronze is served before gold, and nothing is left for silver.
    let memory = classes(", class_last_weight: 100", "overload: [150]");
    let found = verdicts(&memory, TEST);
    assert!(found[..3].iter().all(|verdict| verdict == AS_IT_MUST), "{found:?}");
    assert!(found[4].contains("points too low") && found[5].contains("points too high"), "{found:?}");
    let memory = classes(", classes_ignored: true", "overload: [170]");
    assert!(verdicts(&memory, TEST)[3..].iter().any(|verdict| verdict != AS_IT_MUST), "{:?}", verdicts(&memory, TEST));
}

#[test]
fn links_between_routers_serve_by_priority_too() {
    let topology = ", topology: {mesh: 4, core_speed: 20 Mbit/s}";
    let memory = classes(topology, "core_links_down: 2, overload: [200], queue: 64");
    for table in [TEST, "class_of_service_links", "class_of_service_losses"] {
        assert!(verdicts(&memory, table).iter().all(|v| v == AS_IT_MUST), "{table}: {:?}", verdicts(&memory, table));
    }
    // Two thirds of each link are gold and the last third is silver.
    assert_eq!(get(&memory, 3, "lost"), 0.0);
    assert!(get(&memory, 4, "lost") > 1_000.0 && get(&memory, 5, "share_percent") < 2.0);
    let lists: Vec<usize> = classed(&memory).iter().map(|record| record.lists.len()).collect();
    assert_eq!(lists, [8, 0]);
}
