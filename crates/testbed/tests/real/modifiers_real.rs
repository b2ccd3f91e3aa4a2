//! The modifiers of RFC 2544 section 11 on real routers. With `filters`, each test frame passes the last condition of
//! the router's nftables filter, which is removed afterwards. For a router without filters, only the rows without
//! filters are measured. FRR drops broadcast frames. While it forwards test frames, it answers queries and advertises
//! changed routes.

use crate::anew::{Case, Checked};
use crate::common::program::run_in_lab;
use crate::common::{cell, rows};
use drophammer_lab::Lab;
use drophammer_model::record::{TestStatus, TrialRecord};

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}

fn suite(kind: &str, families: &str) -> String {
    format!(
        "suite: filters\nprofile: quick\nrounds: 1\nduts: [{{name: box, kind: {kind}}}]\n\
         ports:\n  - {{name: p1, speed: 2 Mbit/s}}\n  - {{name: p2, speed: 2 Mbit/s}}\n\
         tests:\n  - frame_loss_rate: {{modifiers: [filters, none], filter_conditions: 10, step: 50, families: [{families}], \
         frame_sizes: [128], trial_duration: 500 ms, pause: 1 ms}}\n"
    )
}

fn matches(trial: &TrialRecord, rule: usize) -> Option<u64> {
    trial.result.dut_counters.get(&format!("filter{rule}.matches")).copied()
}

fn filters(lab: &mut Lab, kind: &str, families: &str) -> Checked {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let memory = run_in_lab(lab, &suite(kind, families), folder.path())?;
    let tests = memory.tests();
    let test = tests.iter().find(|test| test.test == "frame_loss_rate").ok_or("no test")?;
    ensure(test.status == TestStatus::Completed, || format!("{kind}: {:?}", test.status))?;
    let (with, without): (Vec<_>, Vec<_>) = memory.trials().into_iter().partition(|trial| trial.filtered);
    ensure(with.len() >= 2 && without.len() >= 2, || format!("{} and {} trials", with.len(), without.len()))?;
    for trial in &with {
        // The filter of the first port comes first: ten conditions, and the rule that denies everything else.
        let (received, lost) = (trial.result.sum(|group| group.received), trial.result.lost());
        let permitted: u64 = [9, 20].iter().filter_map(|rule| matches(trial, *rule)).sum();
        let others: u64 =
            (0..22).filter(|rule| *rule != 9 && *rule != 20).filter_map(|rule| matches(trial, rule)).sum();
        println!("    {kind} {families}: {received} received, {lost} lost, {permitted} permitted, {others} others");
        ensure(received > 100 && permitted >= received && permitted <= trial.result.offered() && others == 0, || {
            format!("{:?}", trial.result.dut_counters)
        })?;
    }
    ensure(without.iter().all(|trial| matches(trial, 9).is_none()), || "a filter stayed".into())?;
    let matched = cell(&test.outcome, "modifiers", 0, "matched");
    ensure(matched.is_some_and(|matched| matched > 100.0), || format!("{matched:?} matched"))?;
    let marks = &rows(&test.outcome, "modifiers")[0].marks;
    ensure(marks.is_empty(), || format!("{marks:?}"))
}

/// A kind that supports no filters gets the rows without filters, and a note.
fn none(lab: &mut Lab) -> Checked {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let memory = run_in_lab(lab, &suite("ovs", "ipv4"), folder.path())?;
    let tests = memory.tests();
    let test = tests.iter().find(|test| test.test == "frame_loss_rate").ok_or("no test")?;
    ensure(test.status == TestStatus::Completed, || format!("{:?}", test.status))?;
    let said = |note: &String| note.contains("filters of 10 conditions not tested: this router cannot be given");
    ensure(test.outcome.notes.iter().any(said), || format!("{:?}", test.outcome.notes))?;
    ensure(memory.trials().iter().all(|trial| !trial.filtered), || "a filter without filters".into())
}

/// FRR with broadcast frames, with queries to it and to its SNMP agent, and with routes that change.
fn beside(lab: &mut Lab) -> Checked {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let text = suite("frr, snmp: true", "ipv4")
        .replace("modifiers: [filters, none]", "modifiers: [broadcast, management, routing_update]")
        .replace("\ntests:", "\nbgp: {families: [ipv4]}\ntests:");
    let memory = run_in_lab(lab, &text, folder.path())?;
    let tests = memory.tests();
    let test = tests.iter().find(|test| test.test == "frame_loss_rate").ok_or("no test")?;
    ensure(test.status == TestStatus::Completed, || format!("{:?}", test.status))?;
    let found = rows(&test.outcome, "modifiers").len();
    ensure(found == 3, || format!("{found} modifiers: {:?}", test.outcome.notes))?;
    let of = |row: usize, column: &str| cell(&test.outcome, "modifiers", row, column);
    let pairs = [(0, "sent", "forwarded"), (1, "asked", "answered"), (2, "updates", "processed")];
    for (row, done, seen) in pairs {
        let marks = &rows(&test.outcome, "modifiers")[row].marks;
        let (done, seen) = (of(row, done), of(row, seen));
        println!("    {}: {done:?} and {seen:?}", pairs[row].1);
        // A broadcast frame is not forwarded. A query is answered, and a changed route is advertised.
        let right = if row == 0 { seen == Some(0.0) } else { seen == done };
        ensure(done.is_some_and(|done| done > 0.0) && right && marks.is_empty(), || format!("{marks:?}"))?;
    }
    let share = of(0, "share_percent");
    ensure(share.is_some_and(|share| (0.7..=1.1).contains(&share)), || format!("{share:?} % broadcast frames"))
}

/// The test.
pub fn cases() -> Vec<Case> {
    let all = |lab: &mut Lab| {
        beside(lab)?;
        filters(lab, "linux", "ipv4")?;
        filters(lab, "linux", "ipv6")?;
        filters(lab, "linux, filters: sets", "ipv4")?;
        none(lab)
    };
    vec![Case::in_lab("a_real_router_does_its_tasks_beside_the_test_frames", all).again().long()]
}
