//! The seven tests on the reference device, run as part of a suite: their results must match the device's
//! configuration.

use crate::common::*;
use drophammer_model::figure::Decision;
use drophammer_model::outcome::Verdict;
use drophammer_model::record::{Record, TestStatus};
use drophammer_testbed::{RunError, kinds};

/// Line rate of 64-byte frames at 100 Mbit/s.
const LINE: f64 = 1e8 / (84.0 * 8.0);
const CAPACITY: f64 = 20_000.0;
const BUFFER: f64 = 4.0;

/// Runs one test in one direction, on a device with 20,000 fps, a buffer of 4 frames and a delay of 10 µs.
fn one(test: &str) -> Memory {
    let suite = suite(
        ", capacity: 20 kfps, buffer: 4, delay: 10 us",
        &format!("defaults: {{frame_sizes: [64], direction: unidirectional, pause: 1 ms}}\ntests:\n  - {test}\n"),
    );
    let mut memory = Memory::default();
    let tally = run(&suite, &mut memory).unwrap();
    assert_eq!((tally.completed, tally.failed), (1, 0), "{:?}", memory.tests().last().map(|t| &t.status));
    assert!(memory.trials().iter().all(|t| t.result.validity.is_valid() && t.attempt == 1));
    memory
}

fn found(memory: &Memory, test: &str, row: usize, column: &str) -> f64 {
    cell(memory.outcome(test), test, row, column).unwrap_or_else(|| panic!("{test}: no {column}"))
}

#[test]
fn throughput_and_pdr_are_found_within_the_width() {
    for (direction, senders) in [("unidirectional", 1.0), ("bidirectional", 2.0)] {
        let memory = one(&format!("throughput: {{direction: {direction}, width: 1}}"));
        let get = |column| found(&memory, "throughput", 0, column);
        let (lower, upper) = (get("throughput_pps"), get("upper_bound_pps"));
        // In addition to the frames that are served during a trial, the trial may fill the buffer.
        let shortest = memory.trials().iter().map(|t| t.spec.duration_s).fold(f64::INFINITY, f64::min);
        let capacity = CAPACITY / senders;
        let slack = (BUFFER + 1.0) / shortest / senders;
        assert!(lower <= capacity + slack && upper >= capacity, "{direction}: {lower} to {upper}");
        // The number of offered frames is a whole number.
        assert!((upper - lower) <= 0.01 * upper + 1.0 / shortest, "{direction}: {lower} to {upper}");
        let pdr = get("pdr_0_5_pps");
        let at_half_percent = capacity / 0.995;
        assert!(pdr <= at_half_percent + slack && pdr >= at_half_percent * 0.99 - slack, "{direction}: {pdr}");
        assert_eq!(rows(memory.outcome("throughput"), "throughput")[0].trials.len(), memory.trials().len());
    }
}

#[test]
fn forwarding_rate_under_overload_is_the_capacity() {
    let memory = one("forwarding_rate: {repeats: 2}");
    for column in ["forwarding_rate_pps", "min_pps", "max_pps"] {
        let rate = found(&memory, "forwarding_rate", 0, column);
        assert!((rate / CAPACITY - 1.0).abs() < 1e-3, "{column}: {rate}");
    }
    let loss = found(&memory, "forwarding_rate", 0, "loss_percent");
    assert!((loss - (1.0 - CAPACITY / LINE) * 100.0).abs() < 0.05, "{loss}");
}

#[test]
fn recovery_is_instant_where_nothing_lasts() {
    let memory = one("system_recovery: {overload_duration: 300 ms, recovery_duration: 300 ms}");
    assert_eq!(found(&memory, "system_recovery", 0, "recovery_ms"), 0.0);
    let trial = memory.trials().into_iter().find(|t| t.spec.purpose.starts_with("system recovery")).unwrap().clone();
    assert!(trial.result.lost() > 0);
}

#[test]
fn tester_ceiling_in_virtual_time_is_all_that_is_asked_for() {
    let memory = one("tester_ceiling: {trial_duration: 100 ms}");
    let outcome = memory.outcome("tester_ceiling");
    let offered: Vec<f64> = memory.trials().iter().map(|t| t.result.offered_load().pps()).collect();
    assert!(!outcome.tables.is_empty() && offered.iter().all(|o| (o / (4.0 * LINE) - 1.0).abs() < 1e-3), "{offered:?}");
}

/// All tests with short durations, in both families and directions.
const ALL: &str = "\
defaults: {frame_sizes: [64, imix], families: [ipv4, ipv6], pause: 1 ms}
tests:
  - throughput: {final_trial_duration: 300 ms}
  - forwarding_rate: {repeats: 1, trial_duration: 100 ms}
  - frame_loss_rate: {trial_duration: 100 ms}
  - latency: {loads: [50], trial_duration: 100 ms}
  - back_to_back: {repeats: 1}
  - system_recovery: {overload_duration: 100 ms, recovery_duration: 100 ms}
  - tester_ceiling: {trial_duration: 100 ms}
";
const BOX: &str = ", capacity: 9 kfps, buffer: 20, jitter: 30 us";

/// The content of a record without times.
fn timeless(record: &Record) -> Record {
    let mut record = record.clone();
    match &mut record {
        Record::Test(t) => t.elapsed_s = 0.0,
        Record::Started(s) => s.time.clear(),
        Record::Trial(t) => t.time.clear(),
        Record::Note(n) => n.time.clear(),
        Record::Ended(e) => e.time.clear(),
        Record::Dut(_) | Record::Filter(_) | Record::Classes(_) | Record::CoreLinks(_) => {}
    }
    record
}

#[test]
fn records_come_in_order_parse_back_and_are_the_same_for_the_same_seed() {
    let suite = suite(BOX, ALL);
    let mut memory = Memory::default();
    let tally = run(&suite, &mut memory).unwrap();
    let problems: Vec<_> = memory.tests().iter().map(|t| (t.test.clone(), t.status.clone())).collect();
    assert_eq!((tally.completed, tally.failed), (7, 0), "{problems:?}");

    let records = &memory.records;
    assert!(matches!(&records[0], Record::Started(s) if s.tests.len() == 7 && s.seed == 11 && s.duts == ["box"]));
    assert!(matches!(&records[1], Record::Dut(d) if d.simulated && d.kind == kinds::REFERENCE && d.ports.len() == 2));
    assert!(matches!(records.last(), Some(Record::Ended(e)) if !e.interrupted));
    // Trials come before the test that they belong to, with ascending numbers.
    let mut pending: Vec<&str> = Vec::new();
    let mut last = 0;
    for record in &records[2..records.len() - 1] {
        match record {
            Record::Trial(t) => {
                assert!(t.result.trial > last && t.dut == "box", "{} after {last}", t.result.trial);
                last = t.result.trial;
                pending.push(&t.test);
            }
            Record::Test(t) => {
                assert!(pending.drain(..).all(|p| p == t.test));
            }
            Record::Note(note) => assert!(!note.problem, "{note:?}"),
            other => panic!("in the midst: {other:?}"),
        }
    }
    let order: Vec<_> = memory.tests().iter().map(|t| t.test.as_str()).collect();
    assert_eq!(order, suite.tests.iter().map(|t| t.test.as_str()).collect::<Vec<_>>());
    assert_eq!(memory.tests_begun, (1..=7).map(|n| (n, 7)).collect::<Vec<_>>());
    // Every trial that a table names must be on record.
    for test in memory.tests() {
        for number in test.outcome.tables.iter().flat_map(|t| &t.rows).flat_map(|r| &r.trials) {
            assert!(memory.trials().iter().any(|t| t.result.trial == *number), "{}: trial {number}", test.test);
        }
    }
    for record in records {
        let text = serde_json::to_string(record).unwrap();
        assert!(!text.contains('\n'));
        assert_eq!(&serde_json::from_str::<Record>(&text).unwrap(), record);
    }

    let mut again = Memory::default();
    run(&suite, &mut again).unwrap();
    assert_eq!(records.len(), again.records.len());
    for (a, b) in records.iter().zip(&again.records) {
        assert_eq!(timeless(a), timeless(b));
    }
    let mut other = suite.clone();
    other.seed += 1;
    let mut different = Memory::default();
    run(&other, &mut different).unwrap();
    assert_ne!(
        records.iter().map(timeless).collect::<Vec<_>>(),
        different.records.iter().map(timeless).collect::<Vec<_>>()
    );
}

#[test]
fn expectations_are_held_against_what_was_found() {
    let suite = suite(
        ", capacity: 20 kfps, buffer: 4",
        "tests:\n  - throughput:\n      frame_sizes: [64]\n      direction: unidirectional\n      expect:\n        \
         throughput_64_pps: \">= 15 kfps\"\n  - forwarding_rate:\n      frame_sizes: [64]\n      direction: unidirectional\n      \
         expect: {forwarding_rate_64_pps: \">= 25 kfps\"}\n",
    );
    let mut memory = Memory::default();
    let tally = run(&suite, &mut memory).unwrap();
    assert_eq!((tally.completed, tally.failed), (2, 0));
    let verdicts: Vec<_> = memory.tests().iter().flat_map(|t| &t.outcome.verdicts).map(Verdict::decision).collect();
    assert_eq!(verdicts, [Decision::Met, Decision::Missed]);
}

#[test]
fn a_stopped_run_keeps_its_trials_and_says_that_it_was_stopped() {
    for k in [1, 3, 8] {
        let mut memory = Memory { stop_after: Some(k), ..Memory::default() };
        let end = run(&suite(BOX, ALL), &mut memory);
        assert!(matches!(end, Err(RunError::Interrupted)), "{end:?}");
        assert_eq!(memory.trials().len(), k);
        assert!(memory.trials().iter().all(|t| t.result.validity.is_valid()));
        assert_eq!(memory.tests().last().unwrap().status, TestStatus::Interrupted);
        assert!(matches!(memory.records.last(), Some(Record::Ended(e)) if e.interrupted));
    }
    // The run is stopped before anything is measured.
    let mut memory = Memory { stop_after: Some(0), ..Memory::default() };
    assert!(matches!(run(&suite(BOX, ALL), &mut memory), Err(RunError::Interrupted)));
    assert!(matches!(memory.records.last(), Some(Record::Ended(e)) if e.interrupted));
}

#[test]
fn a_full_disk_ends_the_run_and_the_run_does_not_look_whole() {
    for k in [0, 5] {
        let mut memory = Memory { full_after: Some(k), ..Memory::default() };
        match run(&suite(BOX, ALL), &mut memory) {
            Err(RunError::Store(why)) => assert!(why.contains("no space"), "{why}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(memory.trials().len(), k);
        assert_eq!(memory.tests_begun.len(), 1, "nothing is begun that cannot be kept");
        // A run without a last line was cut off; with that line it would look complete.
        assert!(!memory.records.iter().any(|r| matches!(r, Record::Ended(_))));
    }
}

#[test]
fn a_device_that_does_not_forward_has_its_tests_failed_with_the_reason() {
    let text = "suite: known\nprofile: quick\nduts:\n  - {name: dead, kind: reference, capacity: 1 fps}\n  - {name: alive, kind: reference}\n\
         ports:\n  - {name: p1, speed: 100 Mbit/s}\n  - {name: p2, speed: 100 Mbit/s}\n\
         tests:\n  - forwarding_rate: {frame_sizes: [64], repeats: 1}\n  - frame_loss_rate: {frame_sizes: [64]}\n";
    let mut memory = Memory::default();
    let tally = run(&read_suite(text), &mut memory).unwrap();
    assert_eq!((tally.completed, tally.failed), (2, 2));
    let tests = memory.tests();
    let failed: Vec<_> = tests.iter().filter(|t| t.dut == "dead").collect();
    assert_eq!(failed.len(), 2);
    for test in failed {
        assert!(matches!(&test.status, TestStatus::Failed(why) if why.contains("not begun")), "{:?}", test.status);
    }
    assert!(tests.iter().filter(|t| t.dut == "alive").all(|t| t.status == TestStatus::Completed));
}
