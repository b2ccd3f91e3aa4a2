//! A run combined into a single round: the rounds of each test are merged.

use crate::baseline;
use drophammer_judge::doubt;
use drophammer_judge::refutation;
use drophammer_judge::rounds::combine;
use drophammer_model::record::{TestRecord, TestStatus};
use drophammer_store::Run;
use std::collections::HashSet;

/// The run with one record per DUT and test, combined from all rounds. Figures that other trials contradict, and those
/// that depend on frames lost beside an idle processor, are marked. Verdicts name the baseline that they depend on.
pub fn combined(run: &Run) -> Run {
    let mut records = run.tests.clone();
    refutation::mark(&mut records, &run.trials);
    let is_simulated = |name: &str| run.duts.iter().any(|dut| dut.name == name && dut.simulated);
    doubt::mark(&mut records, &run.trials, &|trial| run.occurrence(trial), &is_simulated);
    let mut tests: Vec<(&TestRecord, usize, Vec<&TestRecord>)> = Vec::new();
    let mut seen: Vec<(&TestRecord, usize)> = Vec::new();
    for record in &records {
        // If a suite has a test twice, the second one of a round belongs to the second ones of the other rounds.
        let same_round =
            |(r, _): &&(&TestRecord, usize)| (&r.dut, &r.test, r.round) == (&record.dut, &record.test, record.round);
        let occurrence = seen.iter().filter(same_round).count();
        seen.push((record, occurrence));
        let same = tests.iter_mut().find(|(r, n, _)| (&r.dut, &r.test, *n) == (&record.dut, &record.test, occurrence));
        match same {
            Some((_, _, rounds)) => rounds.push(record),
            None => tests.push((record, occurrence, vec![record])),
        }
    }
    let mut combined_tests: Vec<(usize, TestRecord)> =
        tests.iter().filter_map(|(_, occurrence, rounds)| Some((*occurrence, combine(rounds)?))).collect();
    leave_out_criteria_that_do_not_apply(&mut combined_tests);
    let tests = combined_tests.into_iter().map(|(_, record)| record).collect();
    let mut combined = Run { tests, ..run.clone() };
    baseline::name_in_verdicts(&mut combined);
    combined
}

/// Removes the verdicts of tests that do not apply to their DUT: there is nothing to judge. They stay, undecided, if the
/// criterion is about this DUT by name, or if the test applies to no DUT: a criterion must not pass because nothing was
/// measured.
fn leave_out_criteria_that_do_not_apply(tests: &mut [(usize, TestRecord)]) {
    let is_skipped = |record: &TestRecord| matches!(record.status, TestStatus::Skipped(_));
    let applied: HashSet<(String, usize)> = tests
        .iter()
        .filter(|(_, record)| !is_skipped(record))
        .map(|(occurrence, record)| (record.test.clone(), *occurrence))
        .collect();
    for (occurrence, record) in tests.iter_mut().filter(|(_, record)| is_skipped(record)) {
        if applied.contains(&(record.test.clone(), *occurrence)) {
            record.outcome.verdicts.retain(|verdict| verdict.expected.as_ref().is_none_or(|e| e.dut.is_some()));
        }
    }
}
