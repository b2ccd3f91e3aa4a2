//! The test `soak` on reference devices in virtual time: devices that age by a known amount, and those that do not.

use crate::common::*;
use drophammer_model::outcome::Cell;
use drophammer_model::record::TestStatus;

const TEST: &str = "soak";

fn soaked(device: &str, params: &str) -> Memory {
    let mut memory = Memory::default();
    soak(device, params, &mut memory).unwrap();
    memory
}

fn soak(
    device: &str,
    params: &str,
    memory: &mut Memory,
) -> Result<drophammer_testbed::runner::Tally, drophammer_testbed::RunError> {
    let interval = if params.contains("interval") { "" } else { "interval: 1 s, " };
    let tests = format!(
        "tests:\n  - {TEST}: {{duration: 20 s, {interval}rate: 2 kfps, direction: unidirectional, {params}}}\n"
    );
    run(&suite(device, &tests), memory)
}

/// Number and verdict of a row of the drifts.
fn drift(memory: &Memory, quantity: &str, column: &str) -> (Option<f64>, String) {
    let all = rows(memory.outcome(TEST), "soak_drift");
    let named = |cell: &Cell| *cell == Cell::Text(quantity.into());
    let row = all.iter().position(|row| named(&row.cells[0])).unwrap_or_else(|| panic!("no {quantity}: {all:?}"));
    let Some(Cell::Text(verdict)) = all[row].cells.last() else { panic!("{:?}", all[row]) };
    (cell(memory.outcome(TEST), "soak_drift", row, column), verdict.clone())
}

fn figure(memory: &Memory, key: &str) -> Option<f64> {
    memory.outcome(TEST).ranks.iter().find(|rank| rank.key == key)?.value
}

const QUANTITIES: [&str; 4] = ["Loss", "Forwarding rate", "Median latency", "99 % latency"];

#[test]
fn a_device_that_does_not_age_is_steady() {
    let memory = soaked(", capacity: 20 kfps, delay: 50 us, jitter: 20 us, drop_every: 1000", "drain: 1 ms");
    assert_eq!(rows(memory.outcome(TEST), "soak_intervals").len(), 20);
    for quantity in QUANTITIES {
        assert_eq!(drift(&memory, quantity, "intervals"), (Some(20.0), "steady".into()), "{quantity}");
    }
    assert!((figure(&memory, "soak_loss_percent").unwrap() - 0.1).abs() < 0.001);
    assert_eq!(figure(&memory, "soak_rate_growth_percent"), Some(0.0));
    assert_eq!(figure(&memory, "soak_latency_growth_percent"), Some(0.0));
    assert_eq!(figure(&memory, "soak_memory_growth_percent"), None, "nobody knows");
    // Trials in sequence, with a gap for late frames.
    let at: Vec<f64> = (0..20).map(|row| cell(memory.outcome(TEST), "soak_intervals", row, "at_s").unwrap()).collect();
    assert!(at.windows(2).all(|pair| (pair[1] - pair[0] - 1.001).abs() < 1e-3), "{at:?}");
}

#[test]
fn latency_and_memory_that_grow_are_found_with_their_slope() {
    let memory = soaked(", delay: 50 us, ageing_delay: 3 us, ageing_memory: 1048576", "");
    // 3 µs and a MiB per second, 10.8 ms and 3,600 MiB per hour.
    let (latency, verdict) = drift(&memory, "Median latency", "per_hour");
    assert!((latency.unwrap() / 10_800.0 - 1.0).abs() < 2e-3, "{latency:?}");
    assert_eq!(verdict, "drifts");
    let (grown, verdict) = drift(&memory, "Memory of its daemons", "per_hour");
    assert!((grown.unwrap() / 3_600.0 - 1.0).abs() < 2e-3, "{grown:?}");
    assert_eq!(verdict, "drifts");
    for (column, bound) in [("per_hour_low", -1.0), ("per_hour_high", 1.0)] {
        let found = drift(&memory, "Median latency", column).0.unwrap();
        assert!((found - latency.unwrap()) * bound >= 0.0 && (found / 10_800.0 - 1.0).abs() < 0.02, "{column} {found}");
    }
    assert_eq!(drift(&memory, "Loss", "change"), (Some(0.0), "steady".into()));
    // 19 s of 3 µs each, relative to a median of about 80 µs in the middle.
    let growth = figure(&memory, "soak_latency_growth_percent").unwrap();
    assert!((50.0..100.0).contains(&growth), "{growth}");
    let notes = &memory.outcome(TEST).notes;
    assert!(notes.iter().any(|note| note.contains("Median latency drifts by +108")), "{notes:?}");
    // Latency only.
    let slower = soaked(", delay: 50 us, ageing_delay: 3 us", "");
    assert_eq!(drift(&slower, "Memory of its daemons", "change"), (Some(0.0), "steady".into()));
    assert_eq!(figure(&slower, "soak_memory_growth_percent"), Some(0.0));
    // The same growth is not a drift if it is too small to count.
    let tolerant = soaked(", delay: 50 us, ageing_delay: 3 us, ageing_memory: 1048576", "least_drift: 100");
    assert_eq!(drift(&tolerant, "Median latency", "change").1, "steady");
    assert_eq!(figure(&tolerant, "soak_latency_growth_percent"), Some(0.0));
}

#[test]
fn a_rate_that_falls_is_found_with_its_slope() {
    let expect = "drain: 1 ms, expect: {soak_rate_growth_percent: \">= -10\"}";
    let pass = |memory: &Memory| memory.outcome(TEST).verdicts.iter().map(|verdict| verdict.pass).collect::<Vec<_>>();
    // Of 2,000 frames per second, 20 more are lost in each second: 72,000 fps per hour, and one percentage point of loss.
    let memory = soaked(", delay: 50 us, drop_growth: 1", expect);
    assert_eq!((pass(&memory), pass(&soaked(", delay: 50 us", expect))), (vec![false], vec![true]));
    assert_eq!(drift(&memory, "Forwarding rate", "intervals"), (Some(20.0), "drifts".into()));
    let of = |quantity: &str, column: &str| drift(&memory, quantity, column).0.unwrap();
    let slope = of("Forwarding rate", "per_hour");
    assert!((slope / -72_000.0 - 1.0).abs() < 0.01, "{slope}");
    let loss = of("Loss", "per_hour");
    assert!((loss / 3_600.0 - 1.0).abs() < 0.01, "{loss}");
    // 19 intervals of 1.001 s lie between the first and the last one. In the middle, about 1,800 fps are left.
    let change = slope / 3_600.0 * 19.0 * 1.001;
    assert!((of("Forwarding rate", "change") - change).abs() < 0.5, "{change}");
    let growth = figure(&memory, "soak_rate_growth_percent").unwrap();
    assert!((growth - change / of("Forwarding rate", "level") * 100.0).abs() < 0.05, "{growth}");
    assert!((-22.5..-20.5).contains(&growth), "{growth}");
    let rank = memory.outcome(TEST).ranks.iter().find(|rank| rank.key == "soak_rate_growth_percent").unwrap();
    assert!(rank.higher_is_better, "the more a rate falls, the worse");
    let notes = &memory.outcome(TEST).notes;
    assert!(notes.iter().any(|note| note.contains("Forwarding rate drifts by -7")), "{notes:?}");
    // The device has lost what the intervals miss.
    let counted: f64 = (0..20).map(|row| cell(memory.outcome(TEST), "soak_intervals", row, "lost").unwrap()).sum();
    let dropped = |trial: &drophammer_model::record::TrialRecord| {
        trial.result.dut_counters.get("truth.dropped.fault_growth").copied().unwrap_or(0)
    };
    let intervals = memory.trials().into_iter().rev().take(20);
    assert_eq!(intervals.map(dropped).sum::<u64>() as f64, counted);
    // Latency does not change, and a fall that is too small to count is none.
    assert_eq!(figure(&memory, "soak_latency_growth_percent"), Some(0.0));
    let tolerant = soaked(", delay: 50 us, drop_growth: 1", "drain: 1 ms, least_drift: 30");
    assert_eq!(drift(&tolerant, "Forwarding rate", "change").1, "steady");
    assert_eq!(figure(&tolerant, "soak_rate_growth_percent"), Some(0.0));
}

#[test]
fn a_few_intervals_show_nothing() {
    let memory = soaked(", ageing_delay: 3 us", "interval: 5 s");
    assert_eq!(drift(&memory, "Median latency", "intervals"), (Some(4.0), "not known: too few intervals".into()));
    assert_eq!(figure(&memory, "soak_rate_growth_percent"), None);
    assert_eq!(figure(&memory, "soak_latency_growth_percent"), None);
    assert_eq!(figure(&memory, "soak_loss_percent"), Some(0.0));
}

#[test]
fn what_was_measured_before_a_stop_counts() {
    let mut memory = Memory { stop_after: Some(9), ..Memory::default() };
    assert!(soak(", ageing_delay: 3 us", "", &mut memory).is_err());
    assert_eq!(memory.tests()[0].status, TestStatus::Interrupted);
    let intervals = rows(memory.outcome(TEST), "soak_intervals").len();
    assert!((8..=9).contains(&intervals), "{intervals}");
    let (slope, verdict) = drift(&memory, "Median latency", "per_hour");
    assert!((slope.unwrap() / 10_800.0 - 1.0).abs() < 2e-3 && verdict == "drifts", "{slope:?} {verdict}");
}

#[test]
fn the_load_is_a_share_of_the_throughput_and_bad_times_are_refused() {
    let tests =
        format!("tests:\n  - {TEST}: {{duration: 4 s, interval: 500 ms, load: 50, final_trial_duration: 500 ms}}\n");
    let mut memory = Memory::default();
    run(&suite(", capacity: 20 kfps, buffer: 2", &tests), &mut memory).unwrap();
    let offered = cell(memory.outcome(TEST), "soak_intervals", 0, "offered_load_pps").unwrap();
    assert!((4_700.0..5_050.0).contains(&offered), "{offered}");
    for (params, cause) in [
        ("interval: 1 ms", "give an `interval` of 1 s or more"),
        ("interval: 60 s", "`duration` is shorter than half of an `interval`"),
    ] {
        let memory = soaked("", params);
        let TestStatus::Skipped(why) = &memory.tests()[0].status else { panic!("{:?}", memory.tests()[0].status) };
        assert!(why.contains(cause), "{why}");
    }
}
