//! In virtual time the number of queues changes no figure: the frames leave at the same times, and all of them are
//! counted, wherever they arrive. Only the order of frames that arrived at different queues is unknown.
use crate::common::{Memory, read_suite, run_on_queues};
use drophammer_model::outcome::{Cell, Outcome};
use drophammer_model::record::Record;
use drophammer_model::trial::TrialResult;

/// Trials and outcomes of `suite` with `queues` queues.
fn figures(suite: &str, queues: u32) -> (Vec<TrialResult>, Vec<(String, Outcome)>) {
    let mut memory = Memory::default();
    let tally = run_on_queues(&read_suite(suite), queues, &mut memory).unwrap();
    assert_eq!(tally.failed, 0);
    let trials = memory.trials().iter().map(|t| t.result.clone()).collect();
    let queues_told = |r: &Record| match r {
        Record::Dut(dut) => dut.ports.iter().map(|p| p.queues).collect(),
        _ => vec![],
    };
    let told: Vec<u32> = memory.records.iter().flat_map(queues_told).collect();
    assert!(!told.is_empty() && told.iter().all(|n| *n == queues), "{told:?}");
    (trials, memory.tests().iter().map(|t| (t.test.clone(), t.outcome.clone())).collect())
}

/// The result without the order of frames if it is unknown in either of the two results, and without the figures of
/// each burst.
fn comparable(mut result: TrialResult, other: &TrialResult) -> TrialResult {
    (result.health.departure_error, result.health.departure_errors) = (vec![], vec![]);
    for (g, other) in result.groups.iter_mut().zip(&other.groups) {
        if g.order_unknown + other.order_unknown > 0 {
            (g.order_unknown, g.reordered, g.reordered_3, g.in_sequence, g.max_reordering_extent) = (0, 0, 0, 0, 0);
        }
    }
    result
}

/// The outcome without the order of frames in each table that has it.
fn without_order(mut outcome: Outcome) -> Outcome {
    for table in &mut outcome.tables {
        let order = table.columns.iter().position(|column| column.key == "reordered");
        table.rows.iter_mut().for_each(|row| _ = order.map(|at| row.cells[at] = Cell::None));
    }
    outcome
}

/// Compares the figures with 1 queue and with `queues`; returns the number of frames of unknown order.
fn same_figures(suite: &str, queues: u32) -> u64 {
    let ((one, outcomes), (many, others)) = (figures(suite, 1), figures(suite, queues));
    assert_eq!(one.len(), many.len());
    for (a, b) in one.iter().zip(&many) {
        assert_eq!(comparable(a.clone(), b), comparable(b.clone(), a), "{queues} queues, trial {}", a.trial);
        assert_eq!((a.sum(|g| g.order_unknown), b.health.copies_apart), (0, 0));
    }
    assert_eq!(outcomes.len(), others.len());
    for ((test, a), (_, b)) in outcomes.into_iter().zip(others) {
        assert_eq!(without_order(a), without_order(b), "{test} on {queues} queues");
    }
    many.iter().map(|result| result.sum(|g| g.order_unknown)).sum()
}

/// No two flows of a port send at the same instant, because it is then not specified in which order the queues of a
/// port are served.
#[test]
fn flows_have_the_same_figures_by_any_number_of_queues() {
    let suite = "suite: queues\nduts:\n  - {name: box, kind: reference, capacity: 90 kfps, buffer: 40, delay: 3 us, \
                 drop_every: 97, duplicate_every: 53, corrupt_every: 71, reorder_every: 89}\n\
                 ports:\n  - {name: p1, speed: 100 Mbit/s}\n  - {name: p2, speed: 100 Mbit/s}\n  \
                 - {name: p3, speed: 100 Mbit/s}\n  - {name: p4, speed: 100 Mbit/s}\n\
                 flows:\n  - {name: a, from: p1, to: p2, size: 64, rate: 10.007 kfps}\n  \
                 - {name: b, from: p1, to: p3, size: 128, rate: 5.003 kfps, start: 7 us}\n  \
                 - {name: c, from: p2, to: p3, size: imix, rate: 3.001 kfps, start: 9 us}\n  \
                 - {name: d, from: p3, to: p1, size: 64, rate: 7.009 kfps, start: 5 us}\n  \
                 - {name: e, from: p1, to: p2, size: 64, rate: 9.001 kfps, start: 13 us}\n\
                 tests:\n  - fixed_rate: {trial_duration: 1 s}\n  \
                 - frame_loss_rate: {frame_sizes: [64, imix], families: [ipv4, ipv6]}\n";
    for queues in [2, 3] {
        let unknown = same_figures(suite, queues);
        assert!(unknown > 0, "frames of one flow come to several queues");
    }
}

#[test]
fn routes_have_the_same_figures_by_any_number_of_queues() {
    let suite = "suite: queues\nduts:\n  - {name: box, kind: reference}\nbgp: {}\n\
                 ports:\n  - {name: p1, speed: 100 Mbit/s}\n  - {name: p2, speed: 100 Mbit/s}\n  \
                 - {name: p3, speed: 100 Mbit/s}\n\
                 tests:\n  - fib_convergence: {routes: 500}\n";
    assert!(same_figures(suite, 2) > 0);
}
