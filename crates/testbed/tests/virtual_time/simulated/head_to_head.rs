//! The test `head_to_head` on reference devices that are up in one virtual time.

use crate::common::{Memory, read_suite, read_suite_in_rounds, run};
use drophammer_model::environment::Environment;
use drophammer_model::outcome::{Cell, Outcome};
use drophammer_model::record::{Record, TestStatus};
use drophammer_testbed::Earlier;

const TEST: &str = "head_to_head";
const DUEL: &str = "  - head_to_head: {frame_sizes: [64], trials: 5, trial_duration: 300 ms}\n";

fn text(duts: &[&str], tests: &str) -> String {
    let duts: Vec<String> = duts.iter().map(|dut| format!("  - {{kind: reference, {dut}}}\n")).collect();
    let (duts, ports) = (duts.concat(), "ports: [{name: p1, speed: 100 Mbit/s}, {name: p2, speed: 100 Mbit/s}]\n");
    format!("suite: duel\nprofile: quick\nseed: 11\nduts:\n{duts}{ports}tests:\n{tests}")
}

fn ran(duts: &[&str], tests: &str) -> Memory {
    let mut memory = Memory::default();
    run(&read_suite(&text(duts, tests)), &mut memory).unwrap();
    memory
}

fn outcome<'a>(memory: &'a Memory, dut: &str) -> &'a Outcome {
    let found = memory.tests().into_iter().find(|test| test.test == TEST && test.dut == dut);
    &found.unwrap_or_else(|| panic!("nothing of {dut}")).outcome
}

fn cells(outcome: &Outcome, table: &str) -> Vec<Vec<Cell>> {
    let table = outcome.tables.iter().find(|found| found.key == table).unwrap();
    table.rows.iter().map(|row| row.cells.clone()).collect()
}

fn number(cell: &Cell) -> f64 {
    if let Cell::Number(number) = cell { *number } else { panic!("{cell:?}") }
}

#[test]
fn rates_and_ratio_are_those_of_the_devices() {
    let memory = ran(&["name: fast, capacity: 60 kfps", "name: slow, capacity: 50 kfps"], DUEL);
    for (dut, rate) in [("fast", 30_000.0), ("slow", 25_000.0)] {
        let figure = outcome(&memory, dut).ranks.iter().find(|rank| rank.key == "head_to_head_64_pps").unwrap();
        assert!((figure.value.unwrap() / rate - 1.0).abs() < 1e-4, "{dut}: {figure:?}");
        assert!(figure.samples.len() == 5 && !figure.tester_limited);
    }
    assert!(cells(outcome(&memory, "fast"), "head_to_head_ratio").is_empty(), "it is the first");
    let ratios = cells(outcome(&memory, "slow"), "head_to_head_ratio");
    let [ratio, low, high] = [3, 4, 5].map(|at| number(&ratios[0][at]));
    assert!((ratio - 50.0 / 60.0).abs() < 1e-4 && low < ratio && ratio < high && high < 0.86, "{ratios:?}");
    assert_eq!(ratios.len(), 1, "simulated devices have no processor time");

    // Each device has its own record of each trial, as if it had been alone.
    for dut in ["fast", "slow"] {
        let trials: Vec<_> = memory.trials().into_iter().filter(|trial| trial.dut == dut).collect();
        assert_eq!(trials.len(), 5);
        for trial in trials {
            assert!(trial.spec.flows.iter().all(|flow| flow.from < 2 && flow.to < 2), "{:?}", trial.spec.flows);
            assert_eq!((trial.result.groups.len(), trial.result.senders), (1, 2));
            let own = trial.result.dut_counters["truth.received"];
            assert_eq!(own, trial.result.offered(), "{dut}: the device's own count");
        }
    }
    let mut numbers: Vec<u64> = memory.trials().iter().map(|trial| trial.result.trial).collect();
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), count, "each record has a number of its own");
}

#[test]
fn places_swapped_give_the_inverse() {
    let ratio = |duts: [&str; 2], second: &str| {
        let memory = ran(&duts, DUEL);
        number(&cells(outcome(&memory, second), "head_to_head_ratio")[0][3])
    };
    let (fast, slow) = ("name: fast, capacity: 60 kfps", "name: slow, capacity: 50 kfps");
    let product = ratio([fast, slow], "slow") * ratio([slow, fast], "fast");
    assert!((product - 1.0).abs() < 1e-3, "{product}");
}

#[test]
fn a_router_that_waits_for_frames_has_only_a_bound() {
    let memory = ran(&["name: fast", "name: slow, capacity: 50 kfps"], DUEL);
    for dut in ["fast", "slow"] {
        let outcome = outcome(&memory, dut);
        assert!(outcome.ranks[0].tester_limited, "{dut}: {:?}", outcome.ranks);
        let row = &outcome.tables[0].rows[0];
        assert_eq!(row.marks, ["tester-limited: all routers were saturated in 0 of 5 trials"]);
    }
    assert!(cells(outcome(&memory, "slow"), "head_to_head_ratio").is_empty());
}

#[test]
fn delays_at_one_load_are_those_of_the_devices() {
    let test = "  - head_to_head: {frame_sizes: [64], trials: 5, trial_duration: 300 ms, delay_at: 5 kfps}\n";
    let memory = ran(&["name: a, delay: 20 us", "name: b, delay: 50 us"], test);
    for (dut, us) in [("a", 20.0), ("b", 50.0)] {
        let figure = outcome(&memory, dut).ranks.iter().find(|rank| rank.key == "head_to_head_64_latency_us").unwrap();
        let median = figure.value.unwrap();
        assert!((median - us - 0.1).abs() <= 0.1 + 1e-9, "{dut}: {median}");
        assert_eq!(figure.load_pps, Some(5_000.0));
    }
}

#[test]
fn filters_slow_each_router_by_its_own_rules() {
    let test = "  - head_to_head: {frame_sizes: [64], trials: 5, trial_duration: 300 ms, filter_conditions: 10}\n";
    // A frame takes 20 µs, and 1 or 2 µs for each of ten conditions.
    let memory = ran(
        &[
            "name: a, capacity: 50 kfps, filter_time_per_rule: 1 us",
            "name: b, capacity: 50 kfps, filter_time_per_rule: 2 us",
        ],
        test,
    );
    for (dut, us) in [("a", 30.0), ("b", 40.0)] {
        let figure = outcome(&memory, dut).ranks.iter().find(|rank| rank.key == "head_to_head_64_pps").unwrap();
        assert!((figure.value.unwrap() / (1e6 / us / 2.0) - 1.0).abs() < 1e-3, "{dut}: {figure:?}");
        let trials: Vec<_> = memory.trials().into_iter().filter(|trial| trial.dut == dut).collect();
        assert!(trials.iter().all(|trial| trial.filtered && trial.filter_rules == Some(22)), "{:?}", trials[0]);
        let lists: Vec<_> = memory
            .records
            .iter()
            .filter_map(|record| if let Record::Filter(filter) = record { Some(filter) } else { None })
            .filter(|filter| filter.dut == dut)
            .map(|filter| {
                filter.lists.iter().map(|list| (list.interfaces.clone(), list.rules.len())).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(lists, [vec![(vec![0], 11), (vec![1], 11)], vec![]], "set as if it were alone, and removed");
    }
}

#[test]
fn every_router_learns_the_table_first() {
    let test = "bgp: {families: [ipv4]}\ntests:\n  - head_to_head: {frame_sizes: [64], trials: 5, trial_duration: 300 ms, routes: 200}\n";
    let duts = ["name: fast, capacity: 60 kfps", "name: slow, capacity: 50 kfps"];
    let text = text(&duts, "").replace("tests:\n", test);
    let mut memory = Memory::default();
    run(&read_suite(&text), &mut memory).unwrap();
    for (dut, rate) in [("fast", 30_000.0), ("slow", 25_000.0)] {
        let outcome = outcome(&memory, dut);
        let figure = outcome.ranks.iter().find(|rank| rank.key == "head_to_head_64_pps").unwrap();
        assert!((figure.value.unwrap() / rate - 1.0).abs() < 1e-4, "{dut}: {figure:?}");
        let routed = outcome.tables.iter().find(|table| table.key == "routed").unwrap();
        let at = |key: &str| routed.columns.iter().position(|column| column.key == key).unwrap();
        let percent = |key: &str| Some(routed.rows[0].cells[at(key)].clone());
        assert_eq!(
            [percent("before_percent"), percent("after_percent")],
            [Some(Cell::Number(100.0)), Some(Cell::Number(100.0))]
        );
        let learned = cells(outcome, "head_to_head_table");
        assert_eq!((learned.len(), &learned[0][1]), (1, &Cell::Count(200)));
        let trials = memory.trials().into_iter().filter(|trial| trial.dut == dut);
        assert!(
            trials
                .flat_map(|trial| &trial.spec.flows)
                .all(|flow| format!("{:?}", flow.destinations).contains("Routes"))
        );
    }
}

#[test]
fn three_routers_have_their_turns_and_then_one_together() {
    let tests = format!("  - forwarding_rate: {{frame_sizes: [64], repeats: 1, trial_duration: 100 ms}}\n{DUEL}");
    let duts = ["name: a, capacity: 60 kfps", "name: b, capacity: 54 kfps", "name: c, capacity: 30 kfps"];
    let suite = read_suite_in_rounds(&text(&duts, &tests), Some(2));
    let mut memory = Memory::default();
    let tally = run(&suite, &mut memory).unwrap();
    assert_eq!((tally.completed, tally.failed), (12, 0));
    let ended: Vec<(u32, &str, &str)> = memory.tests().iter().map(|t| (t.round, &*t.test, &*t.dut)).collect();
    for round in [1, 2] {
        let own: Vec<_> = ended.iter().filter(|(of, ..)| *of == round).collect();
        assert_eq!(own[..3].iter().filter(|(_, test, _)| *test == "forwarding_rate").count(), 3);
        let together: Vec<&str> = own[3..].iter().map(|(.., dut)| *dut).collect();
        assert_eq!(together, ["a", "b", "c"], "in the order of the suite, whatever the order of bring-up");
    }
    let begun: Vec<usize> = memory.tests_begun.iter().map(|(number, _)| *number).collect();
    assert_eq!(begun, [1, 2, 3, 4, 5, 6, 7, 8], "the tests together count once");
    assert!(memory.tests_begun.iter().all(|(_, of)| *of == 8));
    for (dut, rate) in [("a", 30_000.0), ("b", 27_000.0), ("c", 15_000.0)] {
        let figure = &outcome(&memory, dut).ranks[0];
        assert!((figure.value.unwrap() / rate - 1.0).abs() < 1e-4, "{dut}: {figure:?}");
    }
}

#[test]
fn a_suite_of_this_test_alone_records_its_routers() {
    let memory = ran(&["name: a, capacity: 60 kfps", "name: b, capacity: 60 kfps"], DUEL);
    let duts: Vec<&str> =
        memory.records.iter().filter_map(|r| if let Record::Dut(dut) = r { Some(&*dut.name) } else { None }).collect();
    assert_eq!(duts, ["a", "b"]);
}

#[test]
fn one_router_has_no_opponent() {
    let memory = ran(&["name: a, capacity: 60 kfps"], DUEL);
    let tests = memory.tests();
    assert!(
        matches!(&tests[0].status, TestStatus::Skipped(why) if why.contains("second router")),
        "{:?}",
        tests[0].status
    );
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
    // Tests that are kept, and the turns that are whole then: the one together is whole with the record of the last DUT.
    for (tests, turns) in [(1, 1), (2, 2), (3, 2), (4, 3)] {
        let kept = &records[..=at[tests - 1]];
        let earlier = Earlier::of(&suite, "of the suite", &Environment::default(), kept).unwrap();
        assert_eq!((earlier.of - earlier.todo.len(), earlier.of), (turns, 3), "{tests} tests");
    }
}
