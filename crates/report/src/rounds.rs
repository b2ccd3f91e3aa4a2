//! A run combined into a single round: the rounds of each test are merged.

use crate::baseline;
use drophammer_model::doubt;
use drophammer_model::record::TestRecord;
use drophammer_model::refutation;
use drophammer_model::rounds::combine;
use drophammer_store::Run;

/// The run with one record per DUT and test, combined from all rounds. Figures that other trials contradict, and those
/// that depend on frames lost beside an idle processor, are marked. Verdicts name the baseline that they depend on.
pub fn combined(run: &Run) -> Run {
    let mut records = run.tests.clone();
    refutation::mark(&mut records, &run.trials);
    doubt::mark(&mut records, &run.trials, &|name| run.duts.iter().any(|dut| dut.name == name && dut.simulated));
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
    let tests = tests.iter().filter_map(|(_, _, rounds)| combine(rounds)).collect();
    let mut combined = Run { tests, ..run.clone() };
    baseline::name_in_verdicts(&mut combined);
    combined
}
