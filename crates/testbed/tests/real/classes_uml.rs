//! Classes of service of a User Mode Linux guest: scheduled by weight, by the priorities of HTB, and by `prio` below
//! HTB. Each queue counts the losses of its class.

use crate::anew;
use crate::common::program::run_in_lab;
use crate::common::{cell, rows};
use drophammer_lab::Lab;
use drophammer_lab::kinds::uml;
use drophammer_model::outcome::Cell;
use drophammer_model::record::{Record, TestRecord, TrialRecord};

const TEST: &str = "class_of_service";
const NAMES: [&str; 3] = ["gold", "silver", "bronze"];
const BY_WEIGHT: [f64; 3] = [50.0, 40.0, 10.0];
const STRICT: [f64; 3] = [50.0, 50.0, 0.0];
/// Tolerance of a share, in percentage points.
const NEAR: f64 = 2.0;

/// A test's request to a guest: the scheduling, the expected shares at 150 %, and true if they pass the test.
type Case = (&'static str, [f64; 3], bool);

/// The schedulers of guests, each with the tests of one guest, in order.
const GUESTS: [(&str, [Case; 2]); 2] = [
    ("htb", [("weights", BY_WEIGHT, true), ("priority", STRICT, true)]),
    // This scheduler supports only priorities.
    ("prio", [("priority", STRICT, true), ("weights", STRICT, false)]),
];

/// Brings up a guest and runs its tests. The `id` of each test is its scheduling.
fn guest(lab: &mut Lab, scheduler: &str, cases: &[Case]) -> Result<(), String> {
    let test = |(scheduling, ..): &Case| {
        format!(
            "  - {TEST}: {{id: {scheduling}, bottleneck: 2 Mbit/s, queue: 64, scheduling: {scheduling}, tolerance: {NEAR}, trial_duration: 2 s, \
             pause: 1 ms, drain: 500 ms}}\n"
        )
    };
    let tests: String = cases.iter().map(test).collect();
    let suite = format!(
        "suite: classes\nprofile: quick\nrounds: 1\n\
         duts: [{{name: box, kind: uml, routing: static, memory: 128, links: veth, scheduler: {scheduler}}}]\n\
         ports:\n  - {{name: p1, speed: 100 Mbit/s, ipv6: off}}\n  - {{name: p2, speed: 100 Mbit/s, ipv6: off}}\n  \
         - {{name: p3, speed: 100 Mbit/s, ipv6: off}}\n  - {{name: p4, speed: 100 Mbit/s, ipv6: off}}\n\
         tests:\n{tests}"
    );
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let memory = run_in_lab(lab, &suite, folder.path())?;
    // The trials of a test are stored before the test.
    let (mut trials, mut ended) = (Vec::new(), 0);
    for record in &memory.records {
        match record {
            Record::Trial(trial) if trial.test == TEST => trials.push(&**trial),
            Record::Test(test) if test.test == TEST => {
                let case = cases.iter().find(|(scheduling, ..)| test.id.as_deref() == Some(*scheduling));
                let case = case.ok_or_else(|| format!("{scheduler}: a test {:?}", test.id))?;
                classes(scheduler, case, test, &std::mem::take(&mut trials))?;
                ended += 1;
            }
            _ => {}
        }
    }
    if ended == cases.len() { Ok(()) } else { Err(format!("{scheduler}: {ended} tests ended")) }
}

/// Checks the result of a test, and the guest's counters in each of its trials.
fn classes(scheduler: &str, case: &Case, test: &TestRecord, trials: &[&TrialRecord]) -> Result<(), String> {
    let (scheduling, shares, right) = *case;
    let case = format!("{scheduler}, {scheduling}");
    let status = || format!("{case}: {:?} {:?}", test.status, test.outcome.notes);
    let outcome = &test.outcome;
    if outcome.tables.iter().all(|table| table.key != TEST || table.rows.len() != 6) {
        return Err(status());
    }
    let get = |row, column| cell(outcome, TEST, row, column).unwrap_or(-1.0);
    // The first rows are without overload, the others with overload.
    for row in 0..6 {
        let (lost, name) = (get(row, "lost"), NAMES[row % 3]);
        let counters = &trials.get(row / 3).ok_or_else(status)?.result.dut_counters;
        let count = |what: &str| counters.get(&format!("d3.{name}.{what}")).copied().unwrap_or(0) as f64;
        if count("dropped") != lost || count("served") < get(row, "received") || (lost > 0.0 && row <= 3) {
            return Err(format!("{case}: {lost} of {name} lost in row {row}, counters {counters:?}"));
        }
    }
    let found = [3, 4, 5].map(|row| get(row, "share_percent"));
    if found.iter().zip(shares).any(|(found, wanted)| (found - wanted).abs() > NEAR) {
        return Err(format!("{case}: shares are {found:?}, not {shares:?}"));
    }
    let last = |row: usize| match rows(outcome, TEST)[row].cells.last() {
        Some(Cell::Text(text)) => text.clone(),
        other => format!("{other:?}"),
    };
    let verdicts = [3, 4, 5].map(last);
    match verdicts.iter().all(|verdict| verdict == "as expected") == right {
        true => Ok(()),
        false => Err(format!("{case}: {verdicts:?}")),
    }
}

/// The test.
pub fn cases() -> Vec<anew::Case> {
    let all = |lab: &mut Lab| GUESTS.iter().try_for_each(|(scheduler, cases)| guest(lab, scheduler, cases));
    vec![
        anew::Case::in_lab("a_guest_serves_classes_as_its_scheduler_does", all)
            .again()
            .long()
            .unless(uml::unfit_processor()),
    ]
}
