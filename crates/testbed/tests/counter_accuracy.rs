//! The test `counter_accuracy` on the reference device, whose counters are right or wrong by a known number of frames.

mod common;

use common::*;
use drophammer_model::outcome::{Cell, Outcome};
use drophammer_model::record::TestStatus;

fn counted(params: &str, test: &str) -> Outcome {
    let suite = suite(params, &format!("tests:\n  - counter_accuracy: {{{test}, pause: 1 ms}}\n"));
    let mut memory = Memory::default();
    run(&suite, &mut memory).unwrap();
    let tests = memory.tests();
    assert_eq!(tests[0].status, TestStatus::Completed);
    tests[0].outcome.clone()
}

fn text<'a>(outcome: &'a Outcome, row: usize, column: &str) -> &'a str {
    let table = &outcome.tables[0];
    let at = table.columns.iter().position(|c| c.key == column).unwrap();
    match &table.rows[row].cells[at] {
        Cell::Text(text) => text,
        Cell::None => "",
        other => panic!("{column}: {other:?}"),
    }
}

/// Rows of a kind of traffic by counter and port: expected, counted, verdict.
fn row(outcome: &Outcome, traffic: &str, counter: &str, port: &str) -> (Option<f64>, Option<f64>, String) {
    let is = |row: &usize| {
        let [t, c, p] = ["traffic", "counter", "port"].map(|column| text(outcome, *row, column));
        (t, c, p) == (traffic, counter, port)
    };
    let row = (0..outcome.tables[0].rows.len()).find(is).unwrap_or_else(|| panic!("{traffic}, {counter}, {port}"));
    let number = |column| cell(outcome, "counter_accuracy", row, column);
    (number("expected"), number("counted"), text(outcome, row, "verdict").to_owned())
}

#[test]
fn right_counters_agree_to_the_frame_and_the_octet() {
    let device = ", capacity: 60 kfps, buffer: 10, own_frames: 7 ms";
    let outcome = counted(device, "frame_sizes: [64, 1518], families: [ipv4, ipv6], frames: 3000, load: 10 kfps");
    assert_eq!(outcome.verdicts.len(), 1);
    assert!(outcome.verdicts[0].pass, "{}", outcome.verdicts[0].found);
    assert_eq!(outcome.ranks[0].value, Some(0.0));
}
