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

/// A device that sends no KEEPALIVE on sessions that are up, under floods of 4 s and 200 ms of questions behind each. The sessions come up before each flood.
fn silent(hold_s: u32) -> Outcome {
    let test = "frame_sizes: [64], direction: unidirectional, pause: 1 ms, trial_duration: 4 s, ask_every: 500 ms, ask_after: 200 ms";
    let text = format!(
        "suite: silent\nprofile: quick\nseed: 11\nduts:\n  - {{name: box, kind: reference, bgp_hold_silence: true}}\nports:\n  - \
         {{name: p1, speed: 10 Mbit/s}}\n  - {{name: p2, speed: 10 Mbit/s}}\nbgp: {{hold_time: {hold_s} s}}\ntests:\n  - flood: {{{test}}}\n"
    );
    let mut memory = Memory::default();
    run(&read_suite(&text), &mut memory).unwrap();
    assert_eq!(memory.tests()[0].status, TestStatus::Completed);
    memory.outcome("flood").clone()
}

#[test]
fn sessions_that_go_down_in_a_flood_are_counted_and_named() {
    let ended = silent(3);
    let figure = |outcome: &Outcome, target: &str| {
        let key = format!("flood_{target}_64_sessions_lost");
        outcome.ranks.iter().find(|figure| figure.key == key).unwrap_or_else(|| panic!("no {key}")).value
    };
    let named = ["p1", "p2"].map(|name| {
        format!("the session of {name} went down: nothing was heard from the peer for the hold time of 3 s")
    });
    for (row, target) in TARGETS.into_iter().enumerate() {
        assert_eq!(text(&ended, row, "target"), target);
        assert_eq!((get(&ended, row, "sessions"), get(&ended, row, "sessions_lost")), (2.0, 2.0), "{target}");
        assert_eq!(figure(&ended, target), Some(2.0), "{target}");
        assert_eq!(rows(&ended, "flood")[row].marks, named, "{target}");
        let note = format!("64 bytes: flood to {target}: {}.", named.join("; "));
        assert!(ended.notes.contains(&note), "{note}, {:?}", ended.notes);
    }
    // The same device under the same floods, which are shorter than this hold time.
    let kept = silent(9);
    for (row, target) in TARGETS.into_iter().enumerate() {
        assert_eq!((get(&kept, row, "sessions"), get(&kept, row, "sessions_lost")), (2.0, 0.0), "{target}");
        assert_eq!((figure(&kept, target), rows(&kept, "flood")[row].marks.len()), (Some(0.0), 0), "{target}");
    }
}
