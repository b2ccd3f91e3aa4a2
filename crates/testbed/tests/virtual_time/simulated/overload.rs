//! The test `overload` on the reference device, whose rates and answers under overload are known.

use crate::common::*;
use drophammer_model::outcome::{Cell, Outcome};
use drophammer_model::record::TestStatus;

const CAPACITY: f64 = 20_000.0;
const LINE: f64 = 1e8 / (84.0 * 8.0);

/// A throughput at which nothing waits: at the one that the search finds, the buffer may be full by the end of a trial.
const BELOW: &str = ", max_load: 19 kfps";

fn overloaded(device: &str, more: &str) -> Outcome {
    asked_every("50 ms", device, more)
}

fn asked_every(interval: &str, device: &str, more: &str) -> Outcome {
    let test = format!(
        "frame_sizes: [64], direction: unidirectional, width: 1, pause: 1 ms, trial_duration: 1 s, ask_every: {interval}, ask_after: 500 ms"
    );
    let suite = suite(
        &format!(", capacity: 20 kfps, buffer: 100, delay: 10 us{device}"),
        &format!("tests:\n  - overload: {{{test}{more}}}\n"),
    );
    let mut memory = Memory::default();
    run(&suite, &mut memory).unwrap();
    let tests = memory.tests();
    assert_eq!(tests[0].status, TestStatus::Completed);
    tests[0].outcome.clone()
}

fn text(outcome: &Outcome, row: usize, column: &str) -> String {
    let table = outcome.tables.iter().find(|t| t.key == "overload_answers").unwrap();
    let at = table.columns.iter().position(|c| c.key == column).unwrap();
    match &table.rows[row].cells[at] {
        Cell::Text(text) => text.clone(),
        other => panic!("{column}: {other:?}"),
    }
}

fn answer(outcome: &Outcome, row: usize, column: &str) -> f64 {
    cell(outcome, "overload_answers", row, column).unwrap_or_else(|| panic!("no {column} in row {row}"))
}

#[test]
fn rates_are_those_of_the_device() {
    let outcome = overloaded("", "");
    let get = |column| cell(&outcome, "overload", 0, column).unwrap();
    assert!((get("line_pps") - LINE).abs() < 1.0);
    let throughput = get("throughput_pps");
    assert!(throughput > CAPACITY * 0.985 && throughput < CAPACITY * 1.03, "{throughput}");
    let offered = get("overload_offered_pps");
    assert!((offered / (throughput * 1.25) - 1.0).abs() < 1e-3, "{offered}");
    assert!((get("flood_offered_pps") / LINE - 1.0).abs() < 1e-3);
    for (rate, loss, offered) in
        [("overload_pps", "overload_loss_percent", offered), ("flood_pps", "flood_loss_percent", LINE)]
    {
        assert!((get(rate) / CAPACITY - 1.0).abs() < 2e-3, "{rate}: {}", get(rate));
        // The 100 frames in the buffer are forwarded after the last departure.
        let expected = (1.0 - (CAPACITY + 100.0) / offered) * 100.0;
        assert!((get(loss) - expected).abs() < 0.05, "{loss}: {} for {expected}", get(loss));
    }
    for row in 0..3 {
        assert_eq!(
            ["load", "state", "state_after", "question", "over"].map(|column| text(&outcome, row, column)),
            [["throughput", "+25 %", "flood"][row], "ok", "ok", "ping", "port p1"]
        );
        assert_eq!((answer(&outcome, row, "asked"), answer(&outcome, row, "answered")), (20.0, 20.0));
        assert_eq!((answer(&outcome, row, "asked_after"), answer(&outcome, row, "answered_after")), (10.0, 10.0));
    }
    assert!(outcome.ranks.iter().any(|r| r.key == "flood_64_answered_percent" && r.value == Some(100.0)));
}

#[test]
fn answers_that_come_late_or_not_are_counted_one_by_one() {
    // Under overload the buffer is full except for what has just been served.
    let outcome = overloaded(", management_waiting: 90, management_drop_every: 4, management_delay: 30 ms", BELOW);
    assert_eq!(text(&outcome, 0, "state"), "ok");
    assert!(answer(&outcome, 0, "worst_ms") < 1.0);
    for row in [1, 2] {
        assert_eq!((answer(&outcome, row, "asked"), answer(&outcome, row, "answered")), (20.0, 15.0), "row {row}");
        assert_eq!(text(&outcome, row, "state"), "15 of 20");
        let (median, worst) = (answer(&outcome, row, "median_ms"), answer(&outcome, row, "worst_ms"));
        assert!((30.0..30.2).contains(&median) && (30.0..30.2).contains(&worst), "{median} {worst}");
        assert_eq!(text(&outcome, row, "state_after"), "ok");
        assert!(answer(&outcome, row, "worst_after_ms") < 1.0);
    }
    assert!(outcome.ranks.iter().any(|r| r.key == "flood_64_answered_percent" && r.value == Some(75.0)));
}

#[test]
fn an_ssh_server_is_asked_for_its_banner() {
    let outcome = overloaded(", ssh: true", ", management: [ssh, ping]");
    for row in 0..6 {
        let question = ["ping", "ssh"][row % 2];
        assert_eq!(
            ["question", "over", "state", "state_after"].map(|column| text(&outcome, row, column)),
            [question, "port p1", "ok", "ok"]
        );
        assert_eq!((answer(&outcome, row, "asked"), answer(&outcome, row, "answered")), (20.0, 20.0));
        assert_eq!((answer(&outcome, row, "asked_after"), answer(&outcome, row, "answered_after")), (10.0, 10.0));
        assert!(answer(&outcome, row, "worst_ms") < 1.0);
    }
    // Over IPv6 too.
    let outcome = overloaded(", ssh: true", ", management: [ssh], families: [ipv6]");
    assert_eq!((text(&outcome, 2, "question"), text(&outcome, 2, "state")), ("ssh".into(), "ok".into()));
}

#[test]
fn an_ssh_server_that_is_late_or_silent_under_load_is_found() {
    let busy = ", ssh: true, management_waiting: 90";
    let late = overloaded(
        &format!("{busy}, management_drop_every: 4, management_delay: 30 ms"),
        &format!("{BELOW}, management: [ssh]"),
    );
    assert_eq!(text(&late, 0, "state"), "ok");
    for row in [1, 2] {
        assert_eq!((answer(&late, row, "asked"), answer(&late, row, "answered")), (20.0, 15.0), "row {row}");
        let (median, worst) = (answer(&late, row, "median_ms"), answer(&late, row, "worst_ms"));
        assert!((30.0..30.3).contains(&median) && (30.0..30.3).contains(&worst), "{median} {worst}");
        assert_eq!(text(&late, row, "state_after"), "ok");
    }
    let dead = overloaded(&format!("{busy}, management_dies: true"), &format!("{BELOW}, management: [ssh]"));
    assert_eq!(["state", "state_after"].map(|column| text(&dead, 2, column)), ["dead", "dead"]);
    let said = "64 bytes: the router did not answer ssh over port p1 during the load \"flood\".";
    assert!(dead.notes.iter().any(|note| note == said), "{:?}", dead.notes);
    assert!(dead.ranks.iter().any(|r| r.key == "flood_64_answered_percent" && r.value == Some(0.0)));
}

#[test]
fn a_router_without_a_server_is_not_asked_and_the_report_says_why() {
    let outcome = overloaded("", ", management: [ping, ssh, snmp]");
    assert_eq!(rows(&outcome, "overload_answers").len(), 3);
    for said in [
        "The router was not asked by ssh: it has no SSH server",
        "The router was not asked by snmp: it has no SNMP agent",
    ] {
        assert!(outcome.notes.iter().any(|note| note.starts_with(said)), "{:?}", outcome.notes);
    }
}

#[test]
fn a_router_that_was_not_asked_is_not_called_dead() {
    // The first question would come after 2 s, when the trial is over.
    let outcome = asked_every("4 s", "", "");
    for row in 0..3 {
        assert_eq!(["state", "state_after"].map(|column| text(&outcome, row, column)), ["not asked", "ok"]);
        assert_eq!(answer(&outcome, row, "asked"), 0.0);
    }
    assert!(outcome.notes.iter().all(|note| !note.contains("did not answer")), "{:?}", outcome.notes);
    assert!(outcome.ranks.iter().all(|r| r.key != "flood_64_answered_percent"), "{:?}", outcome.ranks);
}

#[test]
fn a_router_that_does_not_answer_under_flood_is_named() {
    let outcome = overloaded(", management_waiting: 90, management_drop_every: 1", BELOW);
    let states = |column| (0..3).map(|row| text(&outcome, row, column)).collect::<Vec<_>>();
    assert_eq!(states("state"), ["ok", "dead", "dead"]);
    assert_eq!(states("state_after"), ["ok", "ok", "ok"]);
    let said = "64 bytes: the router did not answer ping over port p1 during the load \"flood\".";
    assert!(outcome.notes.iter().any(|note| note == said), "{:?}", outcome.notes);
    assert!(outcome.ranks.iter().any(|r| r.key == "flood_64_answered_percent" && r.value == Some(0.0)));
    // A device that never recovers.
    let outcome = overloaded(", management_waiting: 90, management_dies: true", BELOW);
    assert_eq!(text(&outcome, 2, "state_after"), "dead");
    let said = "64 bytes: the router did not answer ping over port p1 after the load \"flood\".";
    assert!(outcome.notes.iter().any(|note| note == said), "{:?}", outcome.notes);
}
