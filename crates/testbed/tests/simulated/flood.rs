//! The test `flood` on the reference device: forwarded frames, ICMP errors, and whether the router still answers.

use crate::common::*;
use drophammer_model::outcome::{Cell, Outcome};
use drophammer_model::record::TestStatus;

fn flooded(device: &str, rest: &str) -> Outcome {
    let test = "frame_sizes: [64], direction: unidirectional, pause: 1 ms, trial_duration: 500 ms, ask_every: 50 ms, ask_after: 200 ms";
    let suite = suite(device, &format!("{rest}tests:\n  - flood: {{{test}}}\n"));
    let mut memory = Memory::default();
    run(&suite, &mut memory).unwrap();
    let tests = memory.tests();
    assert_eq!(tests[0].status, TestStatus::Completed);
    tests[0].outcome.clone()
}

fn get(outcome: &Outcome, row: usize, column: &str) -> f64 {
    cell(outcome, "flood", row, column).unwrap_or_else(|| panic!("no {column} in row {row}"))
}

fn text(outcome: &Outcome, row: usize, column: &str) -> String {
    let table = outcome.tables.iter().find(|t| t.key == "flood").unwrap();
    let at = table.columns.iter().position(|c| c.key == column).unwrap();
    match &table.rows[row].cells[at] {
        Cell::Text(text) => text.clone(),
        other => panic!("{column}: {other:?}"),
    }
}

const TARGETS: [&str; 3] = ["forwarded", "own", "unroutable"];

#[test]
fn frames_to_the_router_and_to_nowhere_are_answered_and_not_forwarded() {
    let outcome = flooded("", "");
    // 64 bytes at 100 Mbit/s for half a second.
    let offered = (0.5 * 1e8 / (84.0 * 8.0)) as u64;
    for (row, target) in TARGETS.into_iter().enumerate() {
        assert_eq!(text(&outcome, row, "target"), target);
        assert!((get(&outcome, row, "offered") - offered as f64).abs() <= 1.0);
        let forwarded = if row == 0 { get(&outcome, row, "offered") } else { 0.0 };
        assert_eq!(get(&outcome, row, "forwarded"), forwarded, "{target}");
        assert_eq!((text(&outcome, row, "state"), text(&outcome, row, "state_after")), ("ok".into(), "ok".into()));
        assert_eq!(get(&outcome, row, "answered"), get(&outcome, row, "asked"));
    }
    let errors = [0, 1, 2].map(|row| get(&outcome, row, "icmp_errors"));
    assert_eq!(errors[0], 0.0);
    // At most 100 in a second: those of half a second, and those allowed at once.
    assert!(errors[1..].iter().all(|errors| (1.0..=150.0).contains(errors)), "{errors:?}");
    let silent = flooded(", no_icmp: true", "");
    assert_eq!([0, 1, 2].map(|row| get(&silent, row, "icmp_errors")), [0.0; 3]);
}

#[test]
fn sessions_are_looked_at_where_there_are_any() {
    let outcome = flooded("", "bgp: {}\n");
    for row in 0..3 {
        assert_eq!((get(&outcome, row, "sessions"), get(&outcome, row, "sessions_lost")), (2.0, 0.0));
    }
    assert!(outcome.ranks.iter().any(|figure| figure.key == "flood_own_64_sessions_lost"));
    let without = flooded("", "");
    assert_eq!(cell(&without, "flood", 0, "sessions"), None);
}
