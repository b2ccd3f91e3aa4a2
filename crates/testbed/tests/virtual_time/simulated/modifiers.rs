//! Modifiers of RFC 2544 section 11 on reference devices in virtual time: additional frames change no count of test
//! frames, and their effect on a device is found.

use crate::common::*;
use drophammer_model::outcome::RankFigure;
use drophammer_model::pattern::PatternKey;
use drophammer_model::record::TestStatus;

/// Two ports of 100 Mbit/s, one way, and `tests` on a device with `params`.
fn measured(params: &str, more: &str, tests: &str) -> Memory {
    let rest =
        format!("{more}defaults: {{frame_sizes: [64], direction: unidirectional, pause: 1 ms}}\ntests:\n{tests}");
    let mut memory = Memory::default();
    run(&suite(params, &rest), &mut memory).unwrap();
    memory
}

fn get(memory: &Memory, table: &str, row: usize, column: &str) -> Option<f64> {
    cell(&memory.tests()[0].outcome, table, row, column)
}

fn rank<'a>(memory: &'a Memory, key: &str) -> &'a RankFigure {
    let ranks = &memory.tests()[0].outcome.ranks;
    ranks.iter().find(|rank| rank.key == key).unwrap_or_else(|| panic!("no {key}: {ranks:?}"))
}

const THROUGHPUT: &str = "  - throughput: {modifiers: [none, broadcast], width: 0.2, goal: ci-quick, final_trial_duration: 1 s, pdr: false}\n";

#[test]
fn broadcast_frames_count_apart_and_cost_a_device_that_ignores_them_nothing() {
    let memory = measured(", capacity: 30 kfps, buffer: 2", "", THROUGHPUT);
    let of = |key: &str| rank(&memory, key).value.unwrap();
    let (alone, beside) = (of("throughput_64_pps"), of("throughput_64_broadcast_pps"));
    // A trial of a second keeps two frames in the buffer.
    for found in [alone, beside] {
        assert!((29_900.0..=30_003.0).contains(&found), "{found}");
    }
    assert!(rank(&memory, "throughput_64_broadcast_pps").title.ends_with("64 bytes beside 1 % broadcast frames"));
    assert!(memory.trials().iter().any(|trial| PatternKey::of(&trial.spec).modifier.word() == "broadcast"));
    for trial in memory.trials() {
        let result = &trial.result;
        assert_eq!(result.groups.len(), 1);
        assert!(result.losses.episodes.iter().all(|episode| episode.groups == [0]));
        let device = |what: &str| result.dut_counters.get(&format!("truth.{what}")).copied().unwrap_or(0);
        // Only test frames were to be forwarded, and all others were ignored.
        assert_eq!(result.offered(), device("transit"));
        let Some(background) = result.background.first() else { continue };
        assert_eq!((background.group.as_str(), background.received, background.stray), ("broadcast", 0, 0));
        assert_eq!(background.offered, device("ignored"));
        let share = background.offered as f64 / (background.offered + result.offered()) as f64;
        assert!((share - 0.01).abs() < 2e-4 || result.offered() < 5_000, "{share} of {}", result.offered());
    }
    let total: u64 =
        memory.trials().iter().flat_map(|trial| &trial.result.background).map(|counts| counts.offered).sum();
    assert_eq!(get(&memory, "modifiers", 0, "sent"), Some(total as f64));
    assert_eq!(get(&memory, "modifiers", 0, "forwarded"), Some(0.0));
    assert!(rows(&memory.tests()[0].outcome, "modifiers")[0].marks.is_empty());
    // One frame in a hundred takes room on the line that test frames do not get.
    let theoretical = [0, 1].map(|row| get(&memory, "throughput", row, "theoretical_pps").unwrap());
    assert!((theoretical[1] / theoretical[0] - 0.99).abs() < 1e-12);
}

#[test]
fn a_device_that_is_slow_with_broadcast_frames_loses_as_much_throughput() {
    let memory = measured(", capacity: 30 kfps, buffer: 60, broadcast_services: 50", "", THROUGHPUT);
    let of = |key: &str| rank(&memory, key).value.unwrap();
    // Each frame takes one service, and its share of a broadcast frame, a ninety-ninth, takes 50.
    let expected = 30_000.0 / (1.0 + 50.0 / 99.0);
    let found = of("throughput_64_broadcast_pps");
    assert!((expected * 0.996..=expected + 70.0).contains(&found), "{found}, not {expected}");
    assert!((29_900.0..=30_061.0).contains(&of("throughput_64_pps")));
}

#[test]
fn broadcast_frames_that_a_device_forwards_are_named() {
    let memory = measured(
        ", broadcast_flooded: true",
        "",
        "  - forwarding_rate: {modifiers: [broadcast], repeats: 1, trial_duration: 100 ms}\n",
    );
    let trial = memory.trials()[0];
    let sent = trial.result.background[0].offered;
    assert_eq!(get(&memory, "modifiers", 0, "forwarded"), Some(sent as f64), "{:?}", trial.result.background);
    let marks = &rows(&memory.tests()[0].outcome, "modifiers")[0].marks;
    assert_eq!(marks, &[format!("the router forwarded {sent} broadcast frames")]);
    assert_eq!((trial.result.lost(), trial.result.sum(|group| group.stray)), (0, 0));
}

#[test]
fn every_load_of_the_tests_of_rfc_2544_has_its_broadcast_frames() {
    let tests = "  - frame_loss_rate: {modifiers: [broadcast], trial_duration: 100 ms}\n  - latency: {modifiers: [broadcast], loads: [50], trial_duration: 100 ms}\n  \
                 - back_to_back: {modifiers: [broadcast], repeats: 2, max_burst_duration: 200 ms}\n  - system_recovery: {modifiers: [broadcast], overload_duration: 100 ms, recovery_duration: 100 ms}\n";
    let memory = measured(", capacity: 30 kfps, buffer: 200", "", tests);
    for test in memory.tests() {
        assert_eq!(test.status, TestStatus::Completed, "{}", test.test);
        assert!(test.outcome.ranks.iter().all(|rank| rank.key.contains("_64_broadcast_")), "{:?}", test.outcome.ranks);
        let sent = cell(&test.outcome, "modifiers", 0, "sent");
        assert!(sent.is_some_and(|sent| sent > 0.0), "{}: {sent:?}", test.test);
    }
}

#[test]
fn the_router_is_asked_while_frames_pass() {
    let tests = "  - forwarding_rate: {modifiers: [none, management], repeats: 2, trial_duration: 3 s}\n";
    let memory = measured(", capacity: 20 kfps, buffer: 20", "", tests);
    // One question in each second, and none of its frames is a test frame.
    assert_eq!(
        (get(&memory, "modifiers", 0, "asked"), get(&memory, "modifiers", 0, "answered")),
        (Some(6.0), Some(6.0))
    );
    let rates = [0, 1].map(|row| get(&memory, "forwarding_rate", row, "forwarding_rate_pps").unwrap());
    assert!((rates[0] / rates[1] - 1.0).abs() < 1e-9, "{rates:?}");
    assert!(rank(&memory, "forwarding_rate_64_management_pps").value.is_some());
    // Half of the questions are not answered under overload.
    let device = ", capacity: 20 kfps, buffer: 20, management_waiting: 5, management_drop_every: 2";
    let memory = measured(device, "", tests);
    assert_eq!(
        (get(&memory, "modifiers", 0, "asked"), get(&memory, "modifiers", 0, "answered")),
        (Some(6.0), Some(3.0))
    );
    assert_eq!(rows(&memory.tests()[0].outcome, "modifiers")[0].marks, ["3 questions without an answer"]);
}

#[test]
fn routes_change_while_frames_pass() {
    let tests =
        "  - forwarding_rate: {modifiers: [routing_update], repeats: 2, trial_duration: 31 s, frame_sizes: [1518]}\n";
    let memory = measured("", "bgp: {}\n", tests);
    // At 0 and 30 s of two trials: advertised, withdrawn, and the same again.
    assert_eq!(
        (get(&memory, "modifiers", 0, "updates"), get(&memory, "modifiers", 0, "processed")),
        (Some(4.0), Some(4.0))
    );
    let events: Vec<_> =
        memory.trials()[0].result.events.iter().map(|event| (event.at_s, event.label.clone())).collect();
    assert_eq!(events, [(0.0, "routing update: advertise".to_owned()), (30.0, "routing update: withdraw".to_owned())]);
    assert_eq!(memory.trials()[0].result.dut_counters.get("truth.bgp.withdrawals_received"), Some(&25));
    assert!(memory.trials().iter().all(|trial| trial.result.lost() == 0));

    // A router that does not pass a route on.
    let memory = measured(
        ", route_lost_every: 20",
        "bgp: {}\n",
        "  - forwarding_rate: {modifiers: [routing_update], repeats: 1, trial_duration: 100 ms}\n",
    );
    assert_eq!(
        (get(&memory, "modifiers", 0, "updates"), get(&memory, "modifiers", 0, "processed")),
        (Some(1.0), Some(0.0))
    );
    assert_eq!(rows(&memory.tests()[0].outcome, "modifiers")[0].marks, ["1 changes of routes were not passed on"]);

    // A suite without routers reports that, and the sizes without the modifier are measured.
    let memory = measured(
        "",
        "",
        "  - forwarding_rate: {modifiers: [none, routing_update], repeats: 1, trial_duration: 100 ms}\n",
    );
    assert_eq!(rows(&memory.tests()[0].outcome, "forwarding_rate").len(), 1);
    let notes = &memory.tests()[0].outcome.notes;
    assert!(
        notes.iter().any(|note| note.starts_with("64 bytes beside routing updates not tested: the suite has no BGP")),
        "{notes:?}"
    );
}
