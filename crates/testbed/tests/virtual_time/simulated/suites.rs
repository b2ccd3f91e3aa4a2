//! Runs suites on various devices to their end, and checks that the counts of every recorded trial add up.

use crate::common::*;
use drophammer_model::record::{Record, TestStatus};
use proptest::prelude::*;

fn any_device() -> impl Strategy<Value = String> {
    let every = |key: &'static str| proptest::option::weighted(0.3, 1u64..3_000).prop_map(move |n| (key, n));
    let faults = [every("drop_every"), every("duplicate_every"), every("corrupt_every"), every("misroute_every")];
    let capacity = proptest::option::of(200u64..400_000);
    (faults, capacity, 1u64..300, 1u64..500, prop_oneof![Just(0u64), 0u64..2_000]).prop_map(
        |(faults, capacity, buffer, delay, jitter)| {
            let mut params = format!(", buffer: {buffer}, delay: {delay} us, jitter: {jitter} us");
            if let Some(capacity) = capacity {
                params += &format!(", capacity: {capacity} fps");
            }
            for (key, every) in faults {
                if let Some(every) = every {
                    params += &format!(", {key}: {every}");
                }
            }
            params
        },
    )
}

fn any_tests() -> impl Strategy<Value = String> {
    let sizes = prop_oneof![Just("64"), Just("64, imix"), Just("ip40"), Just("1518"), Just("65, 1517")];
    let families = prop_oneof![Just("ipv4"), Just("ipv6"), Just("ipv4, ipv6")];
    let direction = prop_oneof![Just("bidirectional"), Just("unidirectional")];
    let all = vec![
        "throughput: {final_trial_duration: 100 ms, search_duration_max: 5 s}",
        "forwarding_rate: {repeats: 1, trial_duration: 50 ms}",
        "frame_loss_rate: {trial_duration: 50 ms}",
        "latency: {loads: [10, 100], trial_duration: 50 ms}",
        "back_to_back: {repeats: 1, max_burst_duration: 200 ms}",
        "system_recovery: {overload_duration: 100 ms, recovery_duration: 100 ms}",
        "tester_ceiling: {trial_duration: 50 ms}",
    ];
    (sizes, families, direction, proptest::sample::subsequence(all, 1..4)).prop_map(
        |(sizes, families, direction, tests)| {
            let tests: String = tests.iter().map(|t| format!("  - {t}\n")).collect();
            format!(
                "defaults: {{frame_sizes: [{sizes}], families: [{families}], direction: {direction}}}\ntests:\n{tests}"
            )
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn every_suite_ends_and_every_trial_adds_up(device in any_device(), tests in any_tests()) {
        let suite = suite(&device, &tests);
        let mut memory = Memory::default();
        let tally = run(&suite, &mut memory).unwrap();
        prop_assert_eq!(tally.completed + tally.failed + tally.unfit + tally.skipped, suite.tests.len());
        prop_assert_eq!(memory.tests().len(), suite.tests.len());
        prop_assert!(matches!(memory.records.last(), Some(Record::Ended(_))));
        for trial in memory.trials() {
            let r = &trial.result;
            // In virtual time the tester is never at fault.
            prop_assert!(r.validity.is_valid() && r.health.unsent == 0 && r.health.receive_drops == 0, "{:?}", r);
            prop_assert_eq!(r.intended(), trial.spec.intended_per_port() * u64::from(r.senders));
            for g in &r.groups {
                prop_assert_eq!(g.offered, g.received + g.lost);
                prop_assert_eq!(g.latency.frames, g.received);
                prop_assert_eq!(g.last_loss_ns.is_some(), g.lost > 0);
                prop_assert!(g.bins.iter().all(|b| b.delivered <= b.offered));
            }
            // The frames offered during a trial cannot come out faster than the device serves them.
            if let Some(capacity) = suite.duts[0].params.rate("capacity") {
                let copies = if device.contains("duplicate") { 2.0 } else { 1.0 };
                let rate = r.forwarding_rate().pps() * f64::from(r.senders);
                let buffered = 302.0 / r.sending_s.max(1e-9);
                prop_assert!(rate <= capacity.pps() * copies + buffered, "{} of {}", rate, capacity);
            }
        }
        for test in memory.tests() {
            if let TestStatus::Failed(why) = &test.status {
                prop_assert!(!why.is_empty());
            }
        }
        for record in &memory.records {
            let text = serde_json::to_string(record).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Record>(&text).unwrap(), record);
        }
    }
}
