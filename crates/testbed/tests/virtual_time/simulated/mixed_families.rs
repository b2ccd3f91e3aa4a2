//! Mixed IPv4 and IPv6 on the reference device: the results must match the device's configuration, and a device that
//! treats a frame wrongly is detected.

use crate::common::*;
use drophammer_model::outcome::Outcome;

/// A suite of the test on a device with `params` between ports of 100 Mbit/s: 128 bytes of IPv4, 528 of IPv6.
fn mixed(params: &str, rest: &str) -> Memory {
    let suite = suite(
        params,
        &format!(
            "defaults: {{direction: unidirectional, pause: 1 ms}}\ntests:\n  - mixed_families: {{frame_sizes: [128], ipv6_frame_size: 528, \
             trial_duration: 200 ms{rest}}}\n"
        ),
    );
    let mut memory = Memory::default();
    let tally = run(&suite, &mut memory).unwrap();
    assert_eq!((tally.completed, tally.failed), (1, 0), "{:?}", memory.tests().last().map(|t| &t.status));
    memory
}

fn rate(outcome: &Outcome, row: usize, column: &str) -> f64 {
    cell(outcome, "mixed_families", row, column).unwrap_or_else(|| panic!("no {column} in row {row}"))
}

fn family(outcome: &Outcome, row: usize, column: &str) -> f64 {
    cell(outcome, "mixed_families_latency", row, column).unwrap_or_else(|| panic!("no {column} in row {row}"))
}

/// Line rate of a mix with this percentage of IPv6.
fn line(percent: f64) -> f64 {
    1e8 / (8.0 * (20.0 + 128.0 * (1.0 - percent / 100.0) + 528.0 * percent / 100.0))
}

#[test]
fn a_second_router_in_series_adds_its_own_delay() {
    let suite = read_suite(
        "suite: series\nprofile: quick\nseed: 11\nduts:\n  - {name: one, kind: reference, delay: 10 us}\n  \
         - {name: two, kind: reference, delay: 10 us, topology: {chain: 2}}\nports:\n  - {name: p1, speed: 20 Mbit/s}\n  \
         - {name: p2, speed: 20 Mbit/s}\ndefaults: {direction: unidirectional, pause: 1 ms}\ntests:\n  \
         - mixed_families: {frame_sizes: [128], ipv6_frame_size: 528, ipv6_shares: [15], latency_load: 10, trial_duration: 200 ms, \
         final_trial_duration: 200 ms}\n",
    );
    let mut memory = Memory::default();
    run(&suite, &mut memory).unwrap();
    for (dut, delay) in [("one", 10.0), ("two", 20.0)] {
        let test = memory.tests().into_iter().find(|t| t.dut == dut).unwrap();
        assert_eq!(rows(&test.outcome, "mixed_families_latency").len(), 3, "{:?}", test.status);
        for row in 0..3 {
            for column in ["min_us", "mean_us", "max_us"] {
                let found = family(&test.outcome, row, column);
                assert!((found - delay).abs() < 1e-6, "{dut}, {column} of row {row}: {found}");
            }
            assert_eq!((family(&test.outcome, row, "lost"), family(&test.outcome, row, "out_of_order")), (0.0, 0.0));
        }
    }
}

#[test]
fn a_router_at_line_rate_carries_every_share() {
    let memory = mixed(", delay: 10 us", ", ipv6_shares: [15, 25, 100], latency_load: 10");
    let outcome = memory.outcome("mixed_families");
    for (row, percent) in [0.0, 15.0, 25.0, 100.0].into_iter().enumerate() {
        assert_eq!(rate(outcome, row, "ipv6_percent"), percent);
        let (sent, line) = (rate(outcome, row, "sent_pps"), line(percent));
        assert!((sent / line - 1.0).abs() < 1e-3, "{percent}: {sent} {line}");
        // Whole rounds of 20 or 4 frames except for the last one.
        let ipv6 = rate(outcome, row, "ipv6_sent_pps");
        assert!((ipv6 - sent * percent / 100.0).abs() <= 20.0 / 0.2, "{percent}: {ipv6} of {sent}");
        assert_eq!(rate(outcome, row, "received_pps"), sent);
        assert_eq!(rate(outcome, row, "ipv6_received_pps"), ipv6);
        for column in ["lost_pps", "loss_percent"] {
            assert_eq!(rate(outcome, row, column), 0.0, "{column}");
        }
        assert_eq!(rate(outcome, row, "l2_percent"), 100.0);
    }
    // Pure IPv4, two families twice, pure IPv6.
    assert_eq!(rows(outcome, "mixed_families_latency").len(), 6);
    for row in 0..6 {
        for column in ["lost", "out_of_order", "stray", "corrupted", "duplicated"] {
            assert_eq!(family(outcome, row, column), 0.0, "{column}");
        }
    }
    // The device takes the same time for every frame.
    for row in 0..6 {
        assert_eq!(["min_us", "mean_us", "max_us"].map(|column| family(outcome, row, column)), [10.0; 3]);
        // Longer frames make another load, for which latency is not compared.
        assert_eq!(cell(outcome, "mixed_families_latency", row, "mean_of_ipv4_percent"), None);
    }
    let memory = mixed(", delay: 10 us", ", ipv6_shares: [15], latency_load: 10, max_load: 5 kfps");
    let outcome = memory.outcome("mixed_families");
    let of_ipv4 = [0, 1, 2].map(|row| cell(outcome, "mixed_families_latency", row, "mean_of_ipv4_percent"));
    assert_eq!(of_ipv4, [None, Some(100.0), Some(100.0)]);
    assert_eq!(outcome.ranks.iter().filter(|figure| figure.key == "mixed_128_15_latency_us").count(), 1);
}

#[test]
fn latency_of_an_overloaded_router_is_no_figure() {
    // In the short trials of the search the buffer absorbs half as much again as the device serves over longer times.
    for (load, known) in [(50, true), (100, false)] {
        let rest = format!(", ipv6_shares: [15], final_trial_duration: 100 ms, latency_load: {load}");
        let memory = mixed(", capacity: 10 kfps, buffer: 500", &rest);
        let outcome = memory.outcome("mixed_families");
        let latency = |share: u32| {
            let key = format!("mixed_128_{share}_latency_us");
            outcome.ranks.iter().find(|figure| figure.key == key).unwrap().value
        };
        assert_eq!([0, 15].map(|share| latency(share).is_some()), [known; 2], "{load} %");
        let compared = (1..3).filter_map(|row| cell(outcome, "mixed_families_latency", row, "mean_of_ipv4_percent"));
        assert_eq!(compared.count(), if known { 2 } else { 0 }, "{load} %");
    }
}

#[test]
fn an_overloaded_router_loses_of_each_family_what_it_is_sent_beyond_its_capacity() {
    let memory = mixed(", capacity: 10 kfps, buffer: 2", ", ipv6_shares: [50]");
    let outcome = memory.outcome("mixed_families");
    for row in 0..2 {
        let (sent, received) = (rate(outcome, row, "sent_pps"), rate(outcome, row, "received_pps"));
        // The buffer is in addition to what is served in 200 ms.
        assert!((received - 10_000.0).abs() <= 3.0 / 0.2, "{received}");
        let loss = (1.0 - received / sent) * 100.0;
        assert!((rate(outcome, row, "loss_percent") - loss).abs() < 1e-6);
        assert!((rate(outcome, row, "lost_pps") - (sent - received)).abs() < 1e-6);
        let throughput = rate(outcome, row, "throughput_pps");
        assert!(throughput <= 10_000.0 + 3.0 / 0.2 && throughput > 9_600.0, "{throughput}");
    }
    let (ipv4, ipv6) = (rate(outcome, 1, "ipv4_loss_percent"), rate(outcome, 1, "ipv6_loss_percent"));
    assert!(((ipv4 + ipv6) / 2.0 - rate(outcome, 1, "loss_percent")).abs() < 0.1, "{ipv4} {ipv6}");
    // Each family has half of the frames, and the octets that arrived are those of the frames that arrived.
    let octets = |v4: f64, v6: f64| 128.0 * v4 + 528.0 * v6;
    let expected = octets(100.0 - ipv4, 100.0 - ipv6) / octets(1.0, 1.0);
    assert!((rate(outcome, 1, "l2_percent") - expected).abs() < 0.1);
}

/// Every seventh frame: of 1,000 frames in rounds of 17 and 3, that is 142 or 143, of both families.
#[test]
fn what_a_router_does_wrong_is_counted_by_family() {
    let once_of_7 = |found: f64| found == 142.0 || found == 143.0;
    // A frame that three others overtake is out of order only if one of them belongs to its own flow: IPv6 frames are
    // further apart.
    for (params, column, ipv6) in [
        ("duplicate_every: 7", "duplicated", 20.0..=23.0),
        ("reorder_every: 7, reorder_by: 3", "out_of_order", 0.0..=0.0),
    ] {
        let memory = mixed(&format!(", {params}"), ", ipv6_shares: [15], latency_load: 100, max_load: 5 kfps");
        let outcome = memory.outcome("mixed_families");
        // Pure IPv4, then both families of the mix.
        let found = [0, 1, 2].map(|row| family(outcome, row, column));
        assert_eq!([0, 1, 2].map(|row| family(outcome, row, "received")), [1_000.0, 850.0, 150.0]);
        assert!(once_of_7(found[0]) && (119.0..=123.0).contains(&found[1]), "{params}: {found:?}");
        assert!(ipv6.contains(&found[2]), "{params}: {found:?}");
    }
    let memory = mixed(", misroute_every: 7", ", ipv6_shares: [15], max_load: 5 kfps");
    let outcome = memory.outcome("mixed_families");
    for row in 0..2 {
        let stray = rate(outcome, row, "stray");
        assert!(once_of_7(stray) && (rate(outcome, row, "lost_pps") - stray / 0.2).abs() < 1e-6, "{stray}");
    }
}

#[test]
fn a_share_of_one_family_alone_is_refused() {
    use drophammer_methods::METHODS;
    use drophammer_model::registry::Registry;
    use drophammer_suite::{Overrides, read};
    let text = "suite: s\nduts: [{name: box, kind: reference}]\nports: [{name: p1}, {name: p2}]\n\
                tests:\n  - throughput: {ipv6_share: 15}\n";
    let tests: Vec<_> = METHODS.iter().map(|m| m.spec()).collect();
    let kinds = drophammer_testbed::kinds::specs();
    let registry = Registry { tests: &tests, kinds: &kinds };
    let errors = read::read(text, "s.yaml", &registry, &Overrides::default()).unwrap_err().to_string();
    assert!(errors.contains("`ipv6_share` of the test `throughput` is for traffic of both families"), "{errors}");
}
