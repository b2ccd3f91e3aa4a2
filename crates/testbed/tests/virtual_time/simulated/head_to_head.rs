//! The test `head_to_head` on reference devices that share one virtual time.

use crate::common::{Memory, read_suite, run};
use drophammer_model::environment::Environment;
use drophammer_model::record::Record;
use drophammer_testbed::Earlier;

const DUEL: &str = "  - head_to_head: {frame_sizes: [64], trials: 5, trial_duration: 300 ms}\n";

fn text(duts: &[&str], tests: &str) -> String {
    let duts: Vec<String> = duts.iter().map(|dut| format!("  - {{kind: reference, {dut}}}\n")).collect();
    let (duts, ports) = (duts.concat(), "ports: [{name: p1, speed: 100 Mbit/s}, {name: p2, speed: 100 Mbit/s}]\n");
    format!("suite: duel\nprofile: quick\nseed: 11\nduts:\n{duts}{ports}tests:\n{tests}")
}

#[test]
fn a_run_goes_on_before_and_after_the_turn_together() {
    let tests = format!("  - forwarding_rate: {{frame_sizes: [64], repeats: 1, trial_duration: 100 ms}}\n{DUEL}");
    let suite = read_suite(&text(&["name: a, capacity: 60 kfps", "name: b, capacity: 54 kfps"], &tests));
    let mut memory = Memory::default();
    run(&suite, &mut memory).unwrap();
    let mut records = memory.records;
    let Record::Started(started) = &mut records[0] else { panic!("no start of a run") };
    started.digest = "of the suite".into();
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
