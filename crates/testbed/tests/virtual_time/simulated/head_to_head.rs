//! The test `head_to_head` on reference devices that share one virtual time.

use crate::common::{Memory, read_suite, run, run_of};
use drophammer_model::environment::Environment;
use drophammer_model::record::{Record, TestStatus};
use drophammer_model::suite::Suite;
use drophammer_testbed::{Earlier, Run, RunError, run_suite};

const DUEL: &str = "  - head_to_head: {frame_sizes: [64], trials: 5, trial_duration: 300 ms}\n";

fn text(duts: &[&str], tests: &str) -> String {
    let duts: Vec<String> = duts.iter().map(|dut| format!("  - {{kind: reference, {dut}}}\n")).collect();
    let (duts, ports) = (duts.concat(), "ports: [{name: p1, speed: 100 Mbit/s}, {name: p2, speed: 100 Mbit/s}]\n");
    format!("suite: duel\nprofile: quick\nseed: 11\nduts:\n{duts}{ports}tests:\n{tests}")
}

/// A suite with a turn for each DUT and one for both, and the records of its run.
fn alone_and_together() -> (Suite, Vec<Record>) {
    let tests = format!("  - forwarding_rate: {{frame_sizes: [64], repeats: 1, trial_duration: 100 ms}}\n{DUEL}");
    let suite = read_suite(&text(&["name: a, capacity: 60 kfps", "name: b, capacity: 54 kfps"], &tests));
    let mut memory = Memory::default();
    run(&suite, &mut memory).unwrap();
    let mut records = memory.records;
    let Record::Started(started) = &mut records[0] else { panic!("no start of a run") };
    started.digest = "of the suite".into();
    (suite, records)
}

#[test]
fn a_run_goes_on_before_and_after_the_turn_together() {
    let (suite, records) = alone_and_together();
    let at: Vec<usize> = (0..records.len()).filter(|at| matches!(records[*at], Record::Test(_))).collect();
    assert_eq!(at.len(), 4);
    // Number of tests that are kept, and number of turns that are then complete. The joint test is complete with the
    // record of the last DUT.
    for (tests, turns) in [(1, 1), (2, 2), (3, 2), (4, 3)] {
        let kept = &records[..=at[tests - 1]];
        let earlier = Earlier::of(&suite, "of the suite", &Environment::default(), kept).unwrap();
        assert_eq!((earlier.of - earlier.todo.len(), earlier.of), (turns, 3), "{tests} tests");
    }
}

#[test]
fn a_resumed_run_refuses_another_version_before_the_joint_turn() {
    let (suite, mut records) = alone_and_together();
    // Only the joint turn is left.
    let at: Vec<usize> = (0..records.len()).filter(|at| matches!(records[*at], Record::Test(_))).collect();
    records.truncate(at[1] + 1);
    let go_on = |records: &[Record]| {
        let earlier = Earlier::of(&suite, "of the suite", &Environment::default(), records).unwrap();
        assert_eq!(earlier.todo, [2]);
        run_suite(Run { earlier: Some(earlier), ..run_of(&suite, 1) }, &mut Memory::default())
    };
    assert!(go_on(&records).is_ok());
    for record in &mut records {
        if let Record::Dut(dut) = record
            && dut.name == "b"
        {
            dut.version = "older".into();
        }
    }
    match go_on(&records) {
        Err(RunError::Changed(why)) => assert!(why.starts_with("b was `older` when the run began"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_records_of_a_test_follow_its_trials() {
    let small = "  - head_to_head: {id: small, frame_sizes: [64], trials: 2, trial_duration: 300 ms}\n";
    let large = "  - head_to_head: {id: large, frame_sizes: [128], trials: 2, trial_duration: 300 ms}\n";
    let tests = format!("{small}{large}");
    let suite = read_suite(&text(&["name: a, capacity: 60 kfps", "name: b, capacity: 54 kfps"], &tests));
    let mut memory = Memory::default();
    run(&suite, &mut memory).unwrap();
    let short = |record: &Record| match record {
        Record::Trial(_) => Some("trial".to_owned()),
        Record::Test(test) => Some(format!("{} of {}", test.id.as_deref().unwrap_or_default(), test.dut)),
        _ => None,
    };
    let mut order: Vec<String> = memory.records.iter().filter_map(short).collect();
    order.dedup();
    assert_eq!(order, ["trial", "small of a", "small of b", "trial", "large of a", "large of b"]);
}

#[test]
fn a_router_that_does_not_forward_fails_only_its_own_tests() {
    let suite = read_suite(&text(&["name: alive, capacity: 60 kfps", "name: dead, capacity: 1 fps"], DUEL));
    let mut memory = Memory::default();
    let tally = run(&suite, &mut memory).unwrap();
    assert_eq!((tally.failed, tally.skipped, tally.unfit), (1, 1, 0));
    for test in memory.tests() {
        match (&*test.dut, &test.status) {
            ("dead", TestStatus::Failed(why)) => assert!(why.starts_with("not begun: "), "{why}"),
            ("alive", TestStatus::Skipped(why)) => {
                assert_eq!(why, "`dead` did not forward, so there was nothing to compare with");
            }
            other => panic!("{other:?}"),
        }
    }
}
