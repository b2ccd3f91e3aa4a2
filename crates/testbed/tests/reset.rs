//! The test `reset` on the reference device, which does nothing for a known time after a reset and loses all its state.

mod common;

use common::*;
use drophammer_model::outcome::{Cell, Outcome};
use drophammer_model::record::TestStatus;

/// Resets of the device; 10,000 frames per second.
fn outcome(device: &str, bgp: &str, test: &str) -> (TestStatus, Outcome) {
    let suite = suite(
        &format!(", delay: 10 us{device}"),
        &format!("{bgp}tests:\n  - reset: {{rate: 10 kfps, pause: 1 ms{test}}}\n"),
    );
    let mut memory = Memory::default();
    run(&suite, &mut memory).unwrap();
    let tests = memory.tests();
    (tests[0].status.clone(), tests[0].outcome.clone())
}

fn measured(device: &str, bgp: &str, test: &str) -> Outcome {
    let (status, outcome) = outcome(device, bgp, test);
    assert_eq!(status, TestStatus::Completed, "{device}");
    outcome
}

fn text(outcome: &Outcome, row: usize, column: &str) -> String {
    let table = outcome.tables.iter().find(|t| t.key == "reset").unwrap();
    let at = table.columns.iter().position(|c| c.key == column).unwrap();
    match &table.rows[row].cells[at] {
        Cell::Text(text) => text.clone(),
        other => panic!("{column}: {other:?}"),
    }
}

fn number(outcome: &Outcome, row: usize, column: &str) -> Option<f64> {
    cell(outcome, "reset", row, column)
}

fn near(found: Option<f64>, expected: f64, within: f64) -> bool {
    found.is_some_and(|found| (found - expected).abs() <= within)
}

#[test]
fn the_reset_time_is_the_time_of_booting_to_the_frame() {
    for boot_ms in [1u32, 250, 700] {
        let found = measured(&format!(", boot_time: {boot_ms} ms"), "", ", window: 2 s, resets: [process], repeats: 2");
        assert_eq!(rows(&found, "reset").len(), 2);
        let boot = f64::from(boot_ms);
        for row in 0..2 {
            assert_eq!(number(&found, row, "lost"), Some(boot * 10.0), "frames of {boot_ms} ms");
            assert!(near(number(&found, row, "loss_ms"), boot, 1e-6), "{boot_ms}");
            assert!(near(number(&found, row, "stamps_ms"), boot, 1e-3), "{boot_ms}");
            assert!(near(number(&found, row, "begins_ms"), 0.0, 0.2), "{:?}", number(&found, row, "begins_ms"));
            assert!(near(number(&found, row, "restarted_ms"), boot, 1e-6));
            assert_eq!((number(&found, row, "episodes"), number(&found, row, "sessions_ms")), (Some(1.0), None));
            assert_eq!(
                [text(&found, row, "forwarding"), text(&found, row, "routes")],
                ["interrupted", "static routes"]
            );
        }
        let rank = found.ranks.iter().find(|r| r.key == "reset_process_ipv4_ms").unwrap();
        assert!(near(rank.value, boot, 1e-6));
    }
}

#[test]
fn a_link_is_away_as_long_as_it_is_down() {
    let found = measured("", "", ", window: 2 s, resets: [link], down: 300 ms");
    assert!(near(number(&found, 0, "loss_ms"), 300.0, 1.0), "{:?}", number(&found, 0, "loss_ms"));
    assert!(near(number(&found, 0, "stamps_ms"), 300.0, 1.0));
    assert_eq!((text(&found, 0, "forwarding").as_str(), number(&found, 0, "restarted_ms")), ("interrupted", None));
}

#[test]
fn a_router_that_forwards_on_has_no_reset_time() {
    let found = measured(", reset_unaffected: true", "", ", window: 2 s, resets: [software]");
    assert_eq!((number(&found, 0, "lost"), text(&found, 0, "forwarding").as_str()), (Some(0.0), "went on"));
    assert_eq!((number(&found, 0, "loss_ms"), number(&found, 0, "stamps_ms")), (Some(0.0), None));
}

#[test]
fn a_router_that_does_not_come_back_is_named() {
    let (status, found) =
        outcome(", reset_never_back: true", "", ", window: 2 s, resets: [software, process], limit: 5 s");
    let TestStatus::Failed(cause) = status else { panic!("{status:?}") };
    assert!(cause.contains("not recovered from a software reset") && cause.contains("within 5 s"), "{cause}");
    assert_eq!(rows(&found, "reset").len(), 1, "a broken router is not reset again");
    assert_eq!(text(&found, 0, "forwarding"), "not back within the window");
    for column in ["loss_ms", "stamps_ms", "restarted_ms"] {
        assert_eq!(number(&found, 0, column), None, "{column}");
    }
    let marks = &rows(&found, "reset")[0].marks;
    assert!(marks.iter().any(|m| m.contains("did not run again within 5 s")), "{marks:?}");
    assert!(marks.iter().any(|m| m.contains("at least 2000 ms")), "{marks:?}");
    assert_eq!(found.ranks.iter().find(|r| r.key == "reset_software_ipv4_ms").map(|r| r.value), Some(None));
}

#[test]
fn sessions_and_routes_come_back_and_are_timed() {
    let found = measured(
        ", boot_time: 100 ms",
        "bgp: {hold_time: 9 s}\n",
        ", resets: [process], routes: 50, limit: 100 s, window: 20 s",
    );
    assert_eq!([text(&found, 0, "routes"), text(&found, 1, "routes")], ["static routes", "BGP routes"]);
    assert!(near(number(&found, 0, "loss_ms"), 100.0, 0.21), "{:?}", number(&found, 0, "loss_ms"));
    for row in 0..2 {
        assert_eq!(number(&found, row, "sessions_lost"), Some(2.0));
    }
    let sessions = number(&found, 1, "sessions_ms").unwrap();
    let routes = number(&found, 1, "routes_ms").unwrap();
    let without = number(&found, 1, "loss_ms").unwrap();
    // The device forgot its sessions. The peers notice at their next KEEPALIVE, within a third of the hold time.
    assert!(sessions > 100.0 && routes >= sessions && routes < 20_000.0, "{sessions}, {routes}");
    assert!(
        without > 100.0 && without <= routes + 1.0,
        "BGP routes were away for {without} ms, back after {routes} ms"
    );
    assert_eq!(number(&found, 0, "routes_ms"), None, "static routes are not advertised");
}
