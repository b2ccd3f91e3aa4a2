//! The reference device as a process behind veth pairs receives a table in many TCP segments, and starts to forward to
//! each route after the configured delay. The tester's figures must match the device's.

use crate::anew::Case;
use crate::common::program::run_in_lab;
use crate::common::{cell, rows};
use drophammer_lab::Lab;

/// About 12,000 octets of UPDATEs, whose segments the kernel could merge.
const ROUTES: f64 = 2_000.0;
/// Delay until the device forwards to the first route; for the last route it is twice as long.
const DELAY_MS: f64 = 400.0;
/// Interval of the frames to each route, which limits the resolution of times.
const BIN_MS: f64 = 50.0;
/// Other programs may delay a frame, a processor or a route for this long.
const SLACK_MS: f64 = 200.0;

fn suite() -> String {
    let per_route_us = DELAY_MS * 1e3 / ROUTES;
    format!(
        "suite: late\nprofile: quick\nrounds: 1\n\
         duts: [{{name: box, kind: reference, links: veth, fib_delay: {DELAY_MS} ms, fib_time_per_route: {per_route_us} us}}]\n\
         ports:\n  - {{name: p1, speed: 1 Gbit/s}}\n  - {{name: p2, speed: 1 Gbit/s}}\nbgp: {{families: [ipv4]}}\n\
         tests:\n  - fib_convergence: {{families: [ipv4], routes: {ROUTES}, rate: 40 kfps, window: 4 s}}\n"
    )
}

fn once(lab: &mut Lab) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let memory = run_in_lab(lab, &suite(), folder.path())?;
    let test = memory.tests().into_iter().find(|t| t.test == "fib_convergence").ok_or("the test left no record")?;
    let table = "fib_convergence";
    let found = rows(&test.outcome, table).len();
    if found == 0 {
        return Err(format!("{:?}: {:?}", test.status, test.outcome.notes));
    }
    for (column, true_ms) in [("median_ms", DELAY_MS * 1.5), ("max_ms", DELAY_MS * 2.0)] {
        let ms = cell(&test.outcome, table, 0, column).ok_or(format!("no {column}"))?;
        if !(true_ms - BIN_MS..=true_ms + BIN_MS + SLACK_MS).contains(&ms) {
            return Err(format!("{column} is {ms}, the device's {true_ms}"));
        }
    }
    Ok(())
}

/// The test.
pub fn cases() -> Vec<Case> {
    vec![Case::in_lab("each_route_is_as_late_as_the_device_makes_it", once).again().long()]
}
