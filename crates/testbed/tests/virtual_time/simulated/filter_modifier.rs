//! The modifier `filters` of RFC 2544 section 11.4 on reference devices in virtual time: each test of the RFC finds what
//! a router with this cost per rule can do, each frame passes the filter, and nothing of it stays.

use crate::common::*;
use drophammer_methods::METHODS;
use drophammer_model::outcome::RankFigure;
use drophammer_model::record::{Record, TestStatus, TrialRecord};
use drophammer_model::registry::Registry;
use drophammer_suite::{Overrides, read};
use drophammer_testbed::kinds;

/// A device of 20,000 frames per second that takes 1 us longer for each rule that it looks at.
const DEVICE: &str = ", capacity: 20 kfps, buffer: 2, delay: 10 us, filter_time_per_rule: 1 us";
/// Frames per second through 25 conditions, all of which it looks at.
const THROUGH: f64 = 1e6 / 75.0;

fn measured(device: &str, more: &str, tests: &str) -> Memory {
    let rest =
        format!("{more}defaults: {{frame_sizes: [64], direction: unidirectional, pause: 1 ms}}\ntests:\n{tests}");
    let mut memory = Memory::default();
    run(&suite(device, &rest), &mut memory).unwrap();
    memory
}

fn rank<'a>(memory: &'a Memory, key: &str) -> &'a RankFigure {
    let ranks = memory.tests().into_iter().flat_map(|test| &test.outcome.ranks);
    ranks.into_iter().find(|rank| rank.key == key).unwrap_or_else(|| panic!("no {key}"))
}

fn value(memory: &Memory, key: &str) -> f64 {
    rank(memory, key).value.unwrap_or_else(|| panic!("{key} has no value"))
}

/// Frames that a rule of a filter matched, by its number.
fn matches(trial: &TrialRecord, rule: usize) -> u64 {
    trial.result.dut_counters.get(&format!("filter{rule}.matches")).copied().unwrap_or(0)
}

#[test]
fn a_filter_costs_throughput_what_its_conditions_cost() {
    let tests = "  - throughput: {modifiers: [none, filters], width: 0.2, final_trial_duration: 1 s, pdr: false}\n  \
                 - latency: {modifiers: [none, filters], loads: [50], trial_duration: 200 ms}\n";
    let memory = measured(DEVICE, "", tests);
    let (alone, through) = (value(&memory, "throughput_64_pps"), value(&memory, "throughput_64_filters_pps"));
    assert!((19_940.0..=20_003.0).contains(&alone), "{alone}");
    assert!((THROUGH * 0.997..=THROUGH + 3.0).contains(&through), "{through}, not {THROUGH}");
    assert!(rank(&memory, "throughput_64_filters_pps").title.ends_with("64 bytes through filters of 25 conditions"));
    // Half of the throughput that was found with the same filter: nothing waits.
    let latency = memory.outcome("latency");
    let loads = [0, 1].map(|row| cell(latency, "latency", row, "offered_load_pps").unwrap());
    for (load, found) in loads.into_iter().zip([alone, through]) {
        assert!((load / found - 0.5).abs() < 0.01, "{load} of {found}");
    }
    let medians = ["latency_64_median_us", "latency_64_filters_median_us"].map(|key| value(&memory, key));
    for (median, expected) in medians.into_iter().zip([60.0, 85.0]) {
        assert!((median - expected).abs() < expected * 0.02, "{median}, not {expected}");
    }
    // The last condition, and no other rule, matched each frame that the device was to forward.
    let (with, without): (Vec<_>, Vec<_>) = memory.trials().into_iter().partition(|trial| trial.filtered);
    assert!(with.len() > 4 && without.len() > 4);
    for trial in with {
        let counters = &trial.result.dut_counters;
        assert_eq!(matches(trial, 24), trial.result.offered() - counters.get("truth.dropped.overflow").unwrap_or(&0));
        assert_eq!(counters.keys().filter(|name| name.ends_with(".matches")).count(), 1, "{counters:?}");
    }
    assert!(without.iter().all(|trial| trial.result.dut_counters.keys().all(|name| !name.ends_with(".matches"))));
    let row = |column| cell(memory.outcome("throughput"), "modifiers", 0, column);
    assert!(row("matched").is_some_and(|matched| matched > 10_000.0) && row("asked").is_none());
    assert!(rows(memory.outcome("throughput"), "modifiers")[0].marks.is_empty());
}

#[test]
fn one_condition_costs_one_condition() {
    let tests = "  - throughput: {modifiers: [filters], filter_conditions: 1, width: 0.2, final_trial_duration: 1 s, pdr: false}\n";
    let memory = measured(DEVICE, "", tests);
    let (found, expected) = (value(&memory, "throughput_64_filters_pps"), 1e6 / 51.0);
    assert!((expected * 0.997..=expected + 3.0).contains(&found), "{found}, not {expected}");
    assert!(rank(&memory, "throughput_64_filters_pps").title.ends_with("through a filter of 1 condition"));
}

#[test]
fn more_conditions_than_a_filter_may_have_are_refused_with_the_suite() {
    let tests: Vec<_> = METHODS.iter().map(|m| m.spec()).collect();
    let kinds = kinds::specs();
    let registry = Registry { tests: &tests, kinds: &kinds };
    // Place, message and remedy of the first error; the test is in line 8.
    let refused = |test: &str, conditions: &str| {
        let text = format!(
            "suite: s\nduts:\n  - {{name: box, kind: reference}}\nports:\n  - {{name: p1, speed: 100 Mbit/s}}\n  \
             - {{name: p2, speed: 100 Mbit/s}}\ntests:\n  - {}\n",
            test.replace("N", conditions)
        );
        let errors = read::read(&text, "s.yaml", &registry, &Overrides::default()).err()?;
        let first = errors.errors.into_iter().next()?;
        Some((first.line, first.column, first.message, first.help))
    };
    let of = |column: usize, what: &str, n: &str| {
        let message = format!("{what} is {n}, which is out of range");
        Some((8, column, message, "write a number from 1 to 100000".to_owned()))
    };
    let [modifier, filters] =
        ["throughput: {filter_conditions: N, modifiers: [filters]}", "filters: {conditions: [1, N]}"];
    for n in ["100001", "18446744073709551615"] {
        assert_eq!(refused(modifier, n), of(37, "`filter_conditions`", n));
        assert_eq!(refused(filters, n), of(31, "an item of `conditions`", n));
    }
    assert_eq!((refused(modifier, "100000"), refused(filters, "100000")), (None, None));
}

#[test]
fn loss_and_bursts_are_those_of_the_slower_router() {
    let tests = "  - frame_loss_rate: {modifiers: [none, filters], step: 50, trial_duration: 1 s}\n  \
                 - back_to_back: {modifiers: [none, filters], repeats: 2, step: 1, max_burst_duration: 200 ms}\n";
    let memory = measured(&DEVICE.replace("buffer: 2,", "buffer: 1000,"), "", tests);
    let line = 100e6 / 8.0 / 84.0;
    // At line rate: what it serves in a second, and what its buffer still holds then.
    let loss = memory.outcome("frame_loss_rate");
    let at_line = |row: usize| cell(loss, "frame_loss_rate", row, "loss_percent").unwrap();
    let rows_of = rows(loss, "frame_loss_rate").len();
    for (row, rate) in [(0, 20_000.0), (rows_of / 2, THROUGH)] {
        let expected = 100.0 * (1.0 - (rate + 1_000.0) / line);
        assert!((at_line(row) - expected).abs() < 0.01, "{} %, not {expected} %", at_line(row));
    }
    // A burst fits as long as the buffer holds what is not yet served.
    for (key, rate) in [("back_to_back_64_frames", 20_000.0), ("back_to_back_64_filters_frames", THROUGH)] {
        let (found, expected) = (value(&memory, key), 1_000.0 / (1.0 - rate / line));
        assert!((found - expected).abs() <= 3.0, "{key}: {found}, not {expected}");
    }
}

#[test]
fn nothing_of_a_filter_stays_for_what_comes_after() {
    let tests = "  - forwarding_rate: {modifiers: [filters, none], repeats: 1, trial_duration: 100 ms}\n  \
                 - forwarding_rate: {repeats: 1, trial_duration: 100 ms}\n";
    let memory = measured(DEVICE, "", tests);
    let filtered: Vec<bool> = memory.trials().iter().map(|trial| trial.filtered).collect();
    assert_eq!(filtered, [true, false, false]);
    // 25 conditions for one flow, and the last rule.
    let rules: Vec<Option<u64>> = memory.trials().iter().map(|trial| trial.filter_rules).collect();
    assert_eq!(rules, [Some(26), None, None]);
    let changes: Vec<usize> = memory
        .records
        .iter()
        .filter_map(|record| if let Record::Filter(filter) = record { Some(filter.lists.len()) } else { None })
        .collect();
    assert_eq!(changes, [1, 0]);
}

#[test]
fn a_filter_that_lets_nothing_through_shows_in_every_test() {
    let tests = "  - forwarding_rate: {modifiers: [filters], repeats: 1, trial_duration: 100 ms}\n";
    let memory = measured(&format!("{DEVICE}, filter_deny_every: 1"), "", tests);
    let trial = memory.trials()[0];
    assert_eq!((trial.result.lost(), trial.result.offered() > 1_000), (trial.result.offered(), true));
}

#[test]
fn what_filters_do_not_look_at_is_not_tested() {
    let one = "  - forwarding_rate: {modifiers: [none, filters], repeats: 1, trial_duration: 100 ms, routes: 100}\n";
    let memory = measured("", "bgp: {}\n", one);
    let test = memory.tests()[0];
    assert_eq!(test.status, TestStatus::Completed);
    assert_eq!(rows(&test.outcome, "forwarding_rate").len(), 1);
    let said = |note: &String| note.contains("through filters of 25 conditions not tested: the filters of `modifiers`");
    assert!(test.outcome.notes.iter().any(said), "{:?}", test.outcome.notes);
}
