//! Compares the counters of a Linux router, from its kernel and from an SNMP agent, with the frames that were sent: all
//! must agree. The agent is queried over the loopback interface of the router, and over its management link.

use crate::anew::Case;
use crate::common::program::run_in_lab;
use crate::common::rows;
use drophammer_lab::Lab;
use drophammer_model::outcome::Cell;
use std::collections::BTreeMap;

const TABLE: &str = "counter_accuracy";

const SUITE: &str = "suite: counters\nprofile: quick\nrounds: 1\n\
    duts: [{name: box, kind: linux, snmp: true}]\n\
    ports:\n  - {name: p1, speed: 100 Mbit/s}\n  - {name: p2, speed: 100 Mbit/s}\n\
    tests:\n  - counter_accuracy: {frame_sizes: [128], families: [ipv4, ipv6], frames: 2000, overload: false}\n";

fn once(lab: &mut Lab) -> Result<(), String> {
    agree(lab, SUITE).map_err(|e| format!("over loopback: {e}"))?;
    let managed = SUITE.replacen("snmp: true", "snmp: true, management: true", 1);
    agree(lab, &managed).map_err(|e| format!("over the management link: {e}"))
}

fn agree(lab: &mut Lab, suite: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let memory = run_in_lab(lab, suite, folder.path())?;
    let test = memory.tests().into_iter().find(|t| t.test == TABLE).ok_or("the test left no record")?;
    let table = test.outcome.tables.iter().find(|table| table.key == TABLE).ok_or("no table")?;
    let place = |key: &str| table.columns.iter().position(|column| column.key == key).ok_or(format!("no {key}"));
    let (source, counter, verdict) = (place("source")?, place("counter")?, place("verdict")?);
    let text = |cell: &Cell| if let Cell::Text(text) = cell { text.clone() } else { String::new() };
    let (mut exact, mut off) = (BTreeMap::<String, usize>::new(), Vec::new());
    for row in rows(&test.outcome, TABLE) {
        let verdict = text(&row.cells[verdict]);
        match verdict.starts_with("off") {
            true => off.push(format!("{} {}: {verdict}", text(&row.cells[source]), text(&row.cells[counter]))),
            false => *exact.entry(text(&row.cells[source])).or_default() += 1,
        }
    }
    println!("    {exact:?}");
    if !off.is_empty() {
        return Err(off.join("; "));
    }
    if exact.len() < 2 || exact.values().any(|counters| *counters < 10) {
        return Err(format!("too few counters: {exact:?}, {:?}, {:?}", test.status, test.outcome.notes));
    }
    Ok(())
}

/// The test.
pub fn cases() -> Vec<Case> {
    vec![Case::in_lab("counters_of_kernel_and_agent_agree_with_the_frames", once).again().long()]
}
