//! DUTs that are up at the same time, each with its own tests: the machine switches from one to the next after each
//! step.

use crate::common::{Memory, read_suite_in_rounds, run};
use drophammer_model::record::{Record, TestStatus};
use drophammer_model::suite::Suite;
use drophammer_testbed::RunError;

const TESTS: &str = "  - forwarding_rate: {frame_sizes: [64], repeats: 3, trial_duration: 50 ms}\n  \
                     - frame_loss_rate: {frame_sizes: [64], trial_duration: 50 ms}\n";

fn suite(duts: &[&str], tests: &str) -> Suite {
    let duts: String = duts.iter().map(|dut| format!("  - {{{dut}}}\n")).collect();
    let text = format!(
        "suite: abreast\nprofile: quick\nseed: 3\nrounds: 2\nduts:\n{duts}\
         ports:\n  - {{name: p1, speed: 100 Mbit/s}}\n  - {{name: p2, speed: 100 Mbit/s}}\ntests:\n{tests}"
    );
    read_suite_in_rounds(&text, None)
}

const A: &str = "name: a, kind: reference, capacity: 60 kfps";
const B: &str = "name: b, kind: reference, capacity: 54 kfps";

/// `DUT test` for each trial record of one round, in order.
fn trials(memory: &Memory, round: u32) -> Vec<(String, String)> {
    let of_round = memory.trials().into_iter().filter(|trial| trial.round == round && trial.dut != "tester");
    of_round.map(|trial| (trial.dut.clone(), trial.test.clone())).collect()
}

#[test]
fn the_machine_goes_from_dut_to_dut_after_each_step() {
    let mut memory = Memory::default();
    let tally = run(&suite(&[A, B], TESTS), &mut memory).unwrap();
    assert_eq!((tally.completed, tally.failed), (8, 0));
    for round in 1..=2 {
        let trials = trials(&memory, round);
        let steps = trials.iter().filter(|(_, test)| test == "forwarding_rate").collect::<Vec<_>>();
        assert!(steps.len() == 6 && steps.windows(2).all(|two| two[0].0 != two[1].0), "round {round}: {trials:?}");
        assert!(
            trials.len() > steps.len() && trials.is_sorted_by_key(|(_, test)| test != "forwarding_rate"),
            "{trials:?}"
        );
    }
    let numbers: Vec<u64> = memory.trials().iter().map(|trial| trial.result.trial).collect();
    assert!(numbers.is_sorted() && numbers.windows(2).all(|two| two[0] != two[1]), "{numbers:?}");
    assert_eq!(memory.tests_begun, (1..=8).map(|number| (number, 8)).collect::<Vec<_>>());
}

#[test]
fn a_dut_has_the_figures_that_it_has_alone() {
    let mut together = Memory::default();
    run(&suite(&[A, B], TESTS), &mut together).unwrap();
    for dut in [A, B] {
        let mut alone = Memory::default();
        run(&suite(&[dut], TESTS), &mut alone).unwrap();
        for test in alone.tests() {
            let same = together
                .tests()
                .into_iter()
                .find(|t| (&t.dut, t.round, &t.test) == (&test.dut, test.round, &test.test));
            let figures = |test: &drophammer_model::record::TestRecord| {
                test.outcome.ranks.iter().map(|rank| (rank.key.clone(), rank.value)).collect::<Vec<_>>()
            };
            assert!(!figures(test).is_empty());
            assert_eq!(figures(test), figures(same.unwrap()), "{} {}", test.dut, test.test);
        }
    }
}

#[test]
fn a_stop_ends_the_tests_of_all_duts() {
    let mut memory = Memory { stop_after: Some(4), ..Memory::default() };
    assert!(matches!(run(&suite(&[A, B], TESTS), &mut memory), Err(RunError::Interrupted)));
    let ended: Vec<_> = memory.tests().iter().map(|test| (&*test.dut, test.status.clone())).collect();
    assert_eq!(ended.len(), 2, "{ended:?}");
    assert!(ended.iter().all(|(_, status)| *status == TestStatus::Interrupted), "{ended:?}");
    assert!(matches!(memory.records.last(), Some(Record::Ended(ended)) if ended.interrupted));
}

#[test]
fn a_full_disk_ends_the_tests_of_all_duts() {
    let mut memory = Memory { full_after: Some(4), ..Memory::default() };
    let ended = run(&suite(&[A, B], TESTS), &mut memory);
    assert!(matches!(&ended, Err(RunError::Store(why)) if why.contains("no space")), "{ended:?}");
    assert_eq!(memory.trials().len(), 4);
}

#[test]
fn a_dut_that_is_not_up_holds_nobody_up() {
    let mut memory = Memory::default();
    let tally = run(&suite(&["name: a, kind: reference, capacity: 1 fps", B], TESTS), &mut memory).unwrap();
    assert_eq!((tally.completed, tally.failed), (4, 4));
}
