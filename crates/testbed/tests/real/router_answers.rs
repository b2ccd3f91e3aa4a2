//! A Linux router that is queried over its links: pings through it and to it, the banner of the SSH server on it, and
//! the same over a separate management link.

use crate::anew::Case;
use crate::common::program::run_in_lab;
use crate::common::{cell, rows};
use drophammer_lab::Lab;
use drophammer_model::outcome::{Cell, Outcome};

const SUITE: &str = "suite: answers\nprofile: quick\nrounds: 1\n\
    duts: [{name: box, kind: linux, ssh: true, snmp: true, management: true}]\n\
    ports:\n  - {name: p1, speed: 5 Mbit/s}\n  - {name: p2, speed: 5 Mbit/s}\n\
    defaults: {frame_sizes: [128]}\ntests:\n\
    \x20 - ping_delay: {families: [ipv4, ipv6], pings: 10}\n\
    \x20 - overload: {management: [ping, ssh, snmp], direction: unidirectional, trial_duration: 1500 ms, final_trial_duration: 1 s, search_duration_max: 6 s}\n";

fn text(outcome: &Outcome, table: &str, row: usize, column: &str) -> String {
    let table = outcome.tables.iter().find(|t| t.key == table);
    let found = table.and_then(|t| Some(&t.rows[row].cells[t.columns.iter().position(|c| c.key == column)?]));
    if let Some(Cell::Text(text)) = found { text.clone() } else { format!("{found:?}") }
}

fn once(lab: &mut Lab) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let memory = run_in_lab(lab, SUITE, folder.path())?;
    let of = |test: &str| {
        let found =
            memory.tests().into_iter().find(|t| t.test == test).ok_or_else(|| format!("no record of {test}"))?;
        println!("    {test}: {:?} {:?}", found.status, found.outcome.notes);
        Ok::<_, String>(&found.outcome)
    };
    let own = of("ping_delay_own")?;
    let delay = of("ping_delay")?;
    if rows(own, "ping_delay_own").len() != 2 || rows(delay, "ping_delay").len() != 4 {
        return Err("a row of delays is missing".into());
    }
    for row in 0..4 {
        let get = |column: &str| cell(delay, "ping_delay", row, column);
        let found = (get("answered"), get("round_trip_us"), get("tester_us"), get("delay_us"), get("frames_us"));
        println!("    {}: {found:?}", text(delay, "ping_delay", row, "way"));
        if get("answered") != Some(10.0) {
            return Err(format!("{found:?}: ten pings of each way"));
        }
        // The delay is positive, and shorter than the round trip. Through the router, it can be less than what the tester's own share differs by
        // from ping to ping: then it has an upper bound instead, and no figure.
        let (trip, tester) = (get("round_trip_us").unwrap_or(0.0), get("tester_us").unwrap_or(0.0));
        let positive = match get("delay_us") {
            Some(us) => us > 0.0 && us < trip,
            None => rows(delay, "ping_delay")[row].marks.iter().any(|mark| mark.contains("a delay of at most")),
        };
        let through = text(delay, "ping_delay", row, "way") == "through the router";
        if !(trip > 0.0 && tester > 0.0 && positive && (through || get("delay_us").is_some())) {
            return Err(format!("{found:?}"));
        }
    }
    let overload = of("overload")?;
    let asked = |row: usize, column| text(overload, "overload_answers", row, column);
    let all = 0..rows(overload, "overload_answers").len();
    // Queries go over the link of the first port and over the management link; SNMP queries only over the latter.
    let link = "management link mgmt0";
    for (question, over) in [("ping", "port p1"), ("ssh", "port p1"), ("ping", link), ("ssh", link), ("snmp", link)] {
        let first = all.clone().find(|row| asked(*row, "question") == question && asked(*row, "over") == over);
        let first = first.ok_or_else(|| format!("no {question} over {over}: {:?}", overload.notes))?;
        let get = |column: &str| cell(overload, "overload_answers", first, column);
        let found = (get("asked"), get("answered"), get("median_ms"), get("answered_after"));
        println!("    {question} over {over}: {found:?}");
        match (get("answered"), get("median_ms"), get("answered_after")) {
            (Some(answered), Some(median), Some(after)) if answered >= 1.0 && median > 0.0 && after >= 1.0 => {}
            _ => return Err(format!("{question} over {over} at the throughput: {found:?}, {:?}", overload.notes)),
        }
    }
    let loopback = all.clone().any(|row| asked(row, "over") == "loopback");
    if loopback { Err("SNMP was asked over loopback as well".into()) } else { Ok(()) }
}

/// The test.
pub fn cases() -> Vec<Case> {
    vec![Case::in_lab("a_router_is_asked_over_its_links", once).again().long()]
}
