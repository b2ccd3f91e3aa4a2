//! The tests of routers, in virtual time on reference devices whose routing is known: results are compared with the
//! device's configuration, exact to the route and to the frame.

mod bed;
mod core_mesh;
mod forwarding;
mod internal;
mod pressure;
mod refusals;

use crate::common::{Memory, read_suite, run};
use drophammer_model::outcome::{Cell, Outcome, Point, Row};
use drophammer_model::record::TestStatus;
use drophammer_model::routes::{Order, RouteRange, Routes};
use drophammer_model::suite::Suite;
use drophammer_model::trial::Family;

/// The seed of the suites.
const SEED: u64 = 11;
/// Longest interval at which emulated hosts and routers check for frames to send.
const TICK_S: f64 = 50e-6;

/// A suite of `tests` on one reference device with `params`, `ports` ports and the section `bgp`.
fn suite(params: &str, ports: usize, bgp: &str, tests: &str) -> Suite {
    let ports: String = (1..=ports).map(|n| format!("  - {{name: p{n}, speed: 1 Gbit/s}}\n")).collect();
    read_suite(&format!(
        "suite: known\nprofile: quick\nseed: {SEED}\nduts:\n  - {{name: box, kind: reference{params}}}\n\
         ports:\n{ports}bgp: {bgp}\ntests:\n{tests}"
    ))
}

/// Runs such a suite to its end, regardless of the results of its tests.
fn run_all(params: &str, ports: usize, bgp: &str, tests: &str) -> Memory {
    let suite = suite(params, ports, bgp, tests);
    let mut memory = Memory::default();
    run(&suite, &mut memory).unwrap();
    assert_eq!(memory.tests().len(), suite.tests.len());
    memory
}

/// Like [`run_all`], for one test that must complete; also returns its outcome.
fn completed(params: &str, ports: usize, test: &str) -> (Memory, Outcome) {
    let memory = run_all(params, ports, "{}", &format!("  - {test}\n"));
    let record = memory.tests()[0];
    assert_eq!(record.status, TestStatus::Completed, "{params}: {:#?}", record.outcome);
    let outcome = record.outcome.clone();
    (memory, outcome)
}

/// The routes of a test whose table has default parameters.
fn internet(family: Family, count: u32) -> Routes {
    RouteRange::internet(family, count, SEED).unwrap().in_order(Order::Clustered).into()
}

fn rows<'a>(outcome: &'a Outcome, table: &str) -> &'a [Row] {
    crate::common::rows(outcome, table)
}

/// The numbers in a column.
fn column(outcome: &Outcome, table: &str, column: &str) -> Vec<Option<f64>> {
    (0..rows(outcome, table).len()).map(|row| crate::common::cell(outcome, table, row, column)).collect()
}

/// The numbers in a column that has a number in every row.
fn full(outcome: &Outcome, table: &str, name: &str) -> Vec<f64> {
    let numbers = column(outcome, table, name);
    numbers.iter().map(|n| n.unwrap_or_else(|| panic!("{name}: {numbers:?}"))).collect()
}

/// A figure for the ranking.
fn figure(outcome: &Outcome, key: &str) -> Option<f64> {
    outcome.ranks.iter().find(|r| r.key == key).unwrap_or_else(|| panic!("no {key} in {:?}", outcome.ranks)).value
}

/// Points of a series of a plot.
fn points<'a>(outcome: &'a Outcome, plot: &str, series: &str) -> &'a [Point] {
    let plot = outcome.plots.iter().find(|p| p.key == plot).unwrap_or_else(|| panic!("no plot {plot}"));
    &plot.series.iter().find(|s| s.name == series).unwrap_or_else(|| panic!("no series {series}")).points
}

/// True if one note contains all of these texts.
fn noted(outcome: &Outcome, parts: &[&str]) -> bool {
    outcome.notes.iter().any(|note| parts.iter().all(|part| note.contains(part)))
}

/// Asserts that `value` is between `expected` and `expected + more`.
#[track_caller]
fn about(value: f64, expected: f64, more: f64) {
    assert!(
        value > expected - 1e-5 && value < expected + more + 1e-5,
        "{value}, not {expected} to {}",
        expected + more
    );
}
