//! The test `counter_accuracy` on the reference device, whose counters are right or wrong by a known number of frames.

use crate::common::*;
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
    let device = ", capacity: 60 kfps, buffer: 10, own_frames: 3 s";
    let outcome = counted(device, "frame_sizes: [64, 1518], families: [ipv4, ipv6], frames: 3000, load: 10 kfps");
    assert_eq!(outcome.verdicts.len(), 1);
    assert!(outcome.verdicts[0].pass, "{}", outcome.verdicts[0].found);
    assert_eq!(outcome.ranks[0].value, Some(0.0));
}

#[test]
fn a_counter_that_is_off_by_one_is_named() {
    let device = ", counter_error: 1, counter_error_after: 2000";
    let test = "frame_sizes: [64], direction: unidirectional, frames: 3000, load: 10 kfps, overload: false";
    let outcome = counted(device, test);
    let verdict = &outcome.verdicts[0];
    assert!(!verdict.pass);
    assert!(verdict.found.starts_with("2 of "), "{}", verdict.found);
    for name in ["device ifHCInUcastPkts of p1", "device ifHCOutUcastPkts of p2"] {
        let named = format!("{name}: off by +1 (64 bytes, moderate load)");
        assert!(verdict.found.contains(&named), "{}", verdict.found);
        assert!(outcome.notes.iter().any(|note| note.starts_with(&named)), "{:?}", outcome.notes);
    }
    let traffic = "moderate load";
    let (expected, counted, said) = row(&outcome, traffic, "ifHCInUcastPkts", "p1");
    assert_eq!((expected, counted, said.as_str()), (Some(3000.0), Some(3001.0), "off by +1"));
    // The octets are right, and the text names which octets they are.
    let (expected, counted, said) = row(&outcome, traffic, "ifHCInOctets", "p1");
    assert_eq!((expected, counted, said.as_str()), (Some(192_000.0), Some(192_000.0), "exact, octets with FCS"));
    assert_eq!(outcome.ranks[0].value, Some(2.0));
}

#[test]
fn what_is_discarded_is_looked_for_in_the_counters() {
    let test = "frame_sizes: [64], direction: unidirectional, frames: 3000, load: 10 kfps";
    let outcome = counted(", capacity: 30 kfps, buffer: 16", test);
    assert!(outcome.verdicts[0].pass, "{}", outcome.verdicts[0].found);
    let (expected, counted, said) = row(&outcome, "half with TTL 1", "header errors", "");
    assert_eq!((expected, counted, said.as_str()), (Some(1500.0), Some(1500.0), "exact"));
    let (expected, counted, said) = row(&outcome, "highest load", "all discards", "");
    // 3,000 frames at line rate, 148,810 fps: 20.16 ms, in which 605 are served, and 16 wait.
    assert!(
        expected == counted && (2379.0..=2381.0).contains(&expected.unwrap()) && said == "exact",
        "{expected:?} {said}"
    );
    let (_, counted, said) = row(&outcome, "highest load", "ifInDiscards", "p1");
    assert_eq!((counted, said.as_str()), (expected, "as the loss allows"));
    // ICMP errors for expired packets, at most a hundred times per second, are other frames: they are counted and spoil nothing.
    let (expected, counted, _) = row(&outcome, "half with TTL 1", "ifHCOutUcastPkts", "p1");
    assert!(expected == counted && expected.unwrap() >= 25.0, "{expected:?}");
    // Frames that the device drops without a counter are missing.
    let outcome = counted_with_drops();
    assert!(
        outcome.verdicts[0].found.contains("device all discards: 30 lost frames are in no counter"),
        "{}",
        outcome.verdicts[0].found
    );
    // A load that should be without loss was not, and the report says so.
    assert!(
        outcome.verdicts[0].found.contains("(64 bytes, moderate load, 30 frames lost)"),
        "{}",
        outcome.verdicts[0].found
    );
    let lost = "64 bytes: moderate load: 30 frames were lost that the router should forward.";
    assert!(outcome.notes.iter().any(|note| note == lost), "{:?}", outcome.notes);
    let (.., said) = row(&outcome, "moderate load", "errors out", "p1");
    assert_eq!(said, "not present");
}

fn counted_with_drops() -> Outcome {
    let test =
        "frame_sizes: [64], direction: unidirectional, frames: 3000, load: 10 kfps, overload: false, discard: false";
    counted(", drop_every: 100", test)
}
