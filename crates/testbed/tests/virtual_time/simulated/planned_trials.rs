//! On the reference device, tests run as many trials as the plan of the suite announces.

use crate::common::*;
use drophammer_model::record::{Record, TestStatus};
use drophammer_model::suite::Suite;
use drophammer_testbed::estimates;

/// A device that is slower than the ports of [`suite`].
const DEVICE: &str = ", capacity: 60 kfps, buffer: 40, delay: 10 us";

/// Number of trials of each test, in order, without repetitions of invalid trials.
fn measured(memory: &Memory) -> Vec<usize> {
    let (mut tests, mut trials) = (Vec::new(), 0);
    for record in &memory.records {
        match record {
            Record::Trial(trial) if trial.attempt == 1 => trials += 1,
            Record::Test(_) => tests.push(std::mem::take(&mut trials)),
            _ => {}
        }
    }
    tests
}

/// Runs a suite whose tests must all complete, and compares its trials with the plan. Returns the plan as text.
fn as_planned(suite: &Suite) -> Vec<String> {
    let mut memory = Memory::default();
    run(suite, &mut memory).unwrap();
    let (tests, measured) = (memory.tests(), measured(&memory));
    assert_eq!((tests.len(), measured.len()), (suite.tests.len(), suite.tests.len()));
    let mut plan = Vec::new();
    for (at, (_, planned)) in estimates(suite).into_iter().enumerate() {
        let (test, found) = (tests[at], measured[at]);
        assert_eq!(test.status, TestStatus::Completed, "{}: {:?}", test.test, test.outcome.notes);
        let within = found >= planned.least && planned.most.is_none_or(|most| found <= most);
        // A search on this device may need fewer or more trials than on an ordinary router.
        let searched = planned.most.is_none() && planned.about > planned.least;
        let near = !searched || (found * 3 >= planned.about && found <= planned.about * 3);
        assert!(within && near, "{}: {found}, not {planned}", test.test);
        plan.push(planned.to_string());
    }
    plan
}

#[test]
fn tests_by_frame_size_have_the_trials_of_their_parameters() {
    let trials = "trial_duration: 50 ms";
    let tests = [
        "throughput: {frame_sizes: [64], pdr: false}".to_owned(),
        format!("forwarding_rate: {{repeats: 2, {trials}}}"),
        format!("frame_loss_rate: {{{trials}}}"),
        // The throughput of 64 bytes is known; the throughput of 128 bytes is not.
        format!("latency: {{loads: [10, 50], repeats: 2, {trials}}}"),
        format!("latency: {{loads: [10], compare_at: 5 kfps, {trials}}}"),
        "back_to_back: {repeats: 2, verify: 2}".into(),
        "system_recovery: {overload_duration: 100 ms, recovery_duration: 100 ms, repeats: 2}".into(),
        format!("packet_order: {{loads: [100, 50], repeats: 2, {trials}}}"),
        format!("packet_order: {{loads: [100, 50], repeats: 2, load_of: line, {trials}}}"),
        format!("overload: {{ask_after: 100 ms, {trials}}}"),
        "soak: {frame_size: 128, duration: 3 s, interval: 500 ms}".into(),
        format!("filters: {{frame_sizes: [64], conditions: [1, 10], {trials}}}"),
    ];
    let tests: String = tests.iter().map(|test| format!("  - {test}\n")).collect();
    let defaults = "defaults: {frame_sizes: [64, 128], direction: unidirectional, pause: 1 ms}\n";
    let plan = as_planned(&suite(DEVICE, &format!("{defaults}tests:\n{tests}")));
    assert_eq!(plan[1..3], ["4 trials", "4 to 10 trials"]);
    assert!(plan[0].starts_with("about ") && plan[3].starts_with("about "), "{plan:?}");
    assert_eq!(plan[4], "4 trials");
    assert_eq!(plan[6..11], ["4 trials", "8 trials", "up to 8 trials", "2 to 6 trials", "up to 6 trials"]);
}

#[test]
fn tests_of_other_kinds_have_the_trials_of_their_parameters() {
    let tests = [
        "ping_delay: {frame_sizes: [64, 1518], families: [ipv4, ipv6], pings: 5}",
        "mixed_families: {frame_sizes: [128], ipv6_frame_size: 528, trial_duration: 200 ms}",
        // 80 bytes leave no room for these headers.
        "extension_headers: {frame_sizes: [80, 128], headers: [fragment, chain], hop_by_hop_loads: [1], trial_duration: 100 ms}",
        "flood: {frame_sizes: [64], trial_duration: 100 ms, ask_after: 100 ms}",
        "idle_traffic: {duration: 1 s}",
        "error_frames: {frames: 7, trial_duration: 100 ms, drain: 10 ms}",
        "counter_accuracy: {frame_sizes: [64], frames: 1000}",
        "reset: {rate: 10 kfps, resets: [process, link], repeats: 2, window: 2 s}",
    ];
    let tests: String = tests.iter().map(|test| format!("  - {test}\n")).collect();
    let defaults = "defaults: {direction: unidirectional, pause: 1 ms}\n";
    let plan = as_planned(&suite(DEVICE, &format!("{defaults}tests:\n{tests}")));
    assert_eq!(plan[0], "4 trials");
    assert_eq!(plan[3..], ["3 trials", "no trials", "29 to 30 trials", "3 trials", "4 trials"]);
}

#[test]
fn congestion_of_four_ports_has_a_trial_for_each_load() {
    let ports: String = (1..=4).map(|n| format!("  - {{name: p{n}, speed: 100 Mbit/s}}\n")).collect();
    let plan = as_planned(&read_suite(&format!(
        "suite: congestion\nprofile: quick\nseed: 11\nduts:\n  - {{name: box, kind: reference, delay: 10 us}}\nports:\n{ports}\
         defaults: {{pause: 1 ms, trial_duration: 100 ms}}\ntests:\n  - class_of_service: {{overload: [150, 200]}}\n  \
         - head_of_line_blocking: {{frame_sizes: [64, 128]}}\n"
    )));
    assert_eq!(plan, ["3 trials", "4 trials"]);
}

#[test]
fn tests_of_routes_have_a_trial_for_each_state_and_probes_before() {
    let traffic = "rate: 20 kfps, drain: 100 ms";
    let tests = [
        "bgp_pass_through: {samples: 5}".to_owned(),
        format!("rib_fib_capacity: {{step: 200, max_routes: 400, {traffic}}}"),
        format!("longest_match: {{routes: 1000, covering: 100, pause: 1 ms, {traffic}}}"),
        format!("fib_convergence: {{routes: 200, window: 500 ms, {traffic}}}"),
        format!("route_flap: {{routes: 400, flapped: 100, interval: 500 ms, cycles: 1, pause: 1 ms, {traffic}}}"),
        format!("link_failover: {{families: [ipv4, ipv6], routes: 200, window: 1 s, {traffic}}}"),
        // The first of these tests searches for the throughput, which is then known for the second test.
        "fib_convergence: {routes: 200, window: 500 ms, pause: 1 ms, drain: 100 ms}".into(),
        "fib_convergence: {routes: 200, window: 500 ms, pause: 1 ms, drain: 100 ms}".into(),
        format!(
            "route_flap: {{routes: 400, flapped: 100, interval: 500 ms, cycles: 1, distribution: fully_meshed, {traffic}}}"
        ),
        format!(
            "convergence_skyline: {{routes: 400, interval: 500 ms, cycles: 1, distribution: fully_meshed, {traffic}}}"
        ),
    ];
    let tests: String = tests.iter().map(|test| format!("  - {test}\n")).collect();
    let ports: String = (1..=3).map(|n| format!("  - {{name: p{n}, speed: 100 Mbit/s}}\n")).collect();
    let plan = as_planned(&read_suite(&format!(
        "suite: routes\nprofile: quick\nseed: 11\nduts:\n  - {{name: box, kind: reference{DEVICE}}}\n\
         ports:\n{ports}bgp: {{}}\ntests:\n{tests}"
    )));
    assert_eq!(plan[..3], ["no trials", "about 2 trials", "3 or more trials"]);
    assert_eq!(plan[3..6], ["1 trial", "3 or more trials", "6 or more trials"]);
    assert!(plan[6].starts_with("about "), "{plan:?}");
    assert_eq!(plan[7..], ["1 trial", "3 or more trials", "1 trial"]);
}
