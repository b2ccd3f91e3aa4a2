//! Flows with their own rates, sizes, starts and lengths, on a perfect wire.

use crate::common::*;
use drophammer_model::trial::{Family, FlowDuration, FlowSchedule, FlowSpec, Load, TrialSpec};
use std::collections::BTreeMap;

use Family::{Ipv4, Ipv6};

fn scheduled(group: &str, size: &str, rate_pps: f64, delay_s: f64, duration: FlowDuration) -> FlowSpec {
    FlowSpec {
        size: Some(size.parse().unwrap()),
        schedule: Some(FlowSchedule { rate_pps, delay_s, duration }),
        ..flow(group, 0, 1, Ipv4, 16, 1.0)
    }
}

fn flows(flows: Vec<FlowSpec>, duration_s: f64) -> TrialSpec {
    spec("64", flows, Load::Flows, duration_s)
}

#[test]
fn each_flow_of_a_port_has_its_own_rate_size_start_and_length() {
    // Departure of each frame in ns, and its size with FCS.
    let (mut bench, notes) = noted(|f| (f.at.0, f.frame.len() as u64 + 4));
    let result = bench.run(&flows(
        vec![
            scheduled("voice", "128", 1_000.0, 0.0, FlowDuration::Continuous),
            scheduled("video", "1518", 333.0, 0.25, FlowDuration::Seconds(1.0)),
            scheduled("probe", "64", 50.0, 0.5, FlowDuration::Frames(7)),
        ],
        2.0,
    ));
    let expected = [("voice", 2_000, 128), ("video", 333, 1_518), ("probe", 7, 64)];
    for (group, (name, frames, bytes)) in expected.into_iter().enumerate() {
        let expected = drophammer_model::trial::GroupCounts {
            bins: result.groups[group].bins.clone(),
            ..all_well(&result, group, frames, bytes)
        };
        assert_eq!(result.groups[group], expected, "{name}");
        assert_eq!(result.groups[group].group, name);
        assert_eq!(
            (result.groups[group].latency.min_ns, result.groups[group].latency.max_ns),
            (DELAY, DELAY),
            "{name}"
        );
    }
    assert_eq!((result.senders, result.health.unsent, result.lost()), (1, 0, 0));
    // Every frame leaves when its own rate says, whatever the other flows do.
    let mut departures: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let notes = notes.borrow();
    let start = notes[0].0;
    notes.iter().for_each(|(at, size)| departures.entry(*size).or_default().push(at - start));
    assert!(departures[&128].iter().enumerate().all(|(i, at)| *at == i as u64 * 1_000_000));
    assert_eq!((departures[&1518][0], departures[&1518][1]), (250_000_000, 253_003_004));
    assert!(departures[&64].iter().enumerate().all(|(i, at)| *at == 500_000_000 + i as u64 * 20_000_000));
}

#[test]
fn flows_with_and_without_a_schedule_share_a_port() {
    let mut bench = wire();
    let mut shared = spec(
        "64",
        vec![
            flow("gold", 0, 1, Ipv4, 4, 3.0),
            scheduled("probe", "256", 100.0, 0.0, FlowDuration::Continuous),
            flow("silver", 0, 1, Ipv6, 4, 1.0),
        ],
        Load::Constant { rate_pps: 4_000.0 },
        1.0,
    );
    shared.bin_s = None;
    let result = bench.run(&shared);
    let received: Vec<_> = result.groups.iter().map(|g| (g.group.as_str(), g.offered, g.received)).collect();
    assert_eq!(received, [("gold", 3_000, 3_000), ("probe", 100, 100), ("silver", 1_000, 1_000)]);
    assert_eq!(result.groups[1].received_bytes, 25_600);
    assert!((shared.peak_pps() - 4_100.0).abs() < 1e-9);
}

#[test]
fn a_thousand_flows_of_one_port_keep_their_rates() {
    let mut bench = wire();
    let many =
        (0..1_000).map(|i| scheduled(&format!("f{i}"), "64", 10.0 + f64::from(i), 0.0, FlowDuration::Continuous));
    let result = bench.run(&flows(many.collect(), 0.5));
    for (i, group) in result.groups.iter().enumerate() {
        let expected = (10.0 + i as f64) * 0.5;
        assert!((group.offered as f64 - expected).abs() <= 0.5, "flow {i}: {} frames, {expected}", group.offered);
        assert_eq!((group.received, group.in_sequence, group.intended), (group.offered, group.offered, group.offered));
    }
}

#[test]
fn loss_of_one_flow_is_its_own() {
    // Every tenth frame of 128 bytes is lost.
    let mut seen = 0u64;
    let mut bench = Bench::new(2, move |f, out| {
        if f.frame.len() == 124 {
            seen += 1;
            if seen.is_multiple_of(10) {
                return;
            }
        }
        out.push(f.on(DELAY));
    });
    let result = bench.run(&flows(
        vec![
            scheduled("a", "128", 500.0, 0.1, FlowDuration::Continuous),
            scheduled("b", "64", 3_000.0, 0.0, FlowDuration::Continuous),
        ],
        1.1,
    ));
    let counts: Vec<_> = result.groups.iter().map(|g| (g.offered, g.lost, g.last_loss_ns)).collect();
    // Frame 500 of flow a leaves 499 intervals of 2 ms after 100 ms.
    assert_eq!(counts, [(500, 50, Some(1_098_000_000)), (3_300, 0, None)]);
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_sent() {
    let (mut bench, notes) = noted(|_| ());
    let good = || scheduled("a", "64", 100.0, 0.0, FlowDuration::Continuous);
    let schedule = |rate_pps, delay_s, duration| Some(FlowSchedule { rate_pps, delay_s, duration });
    for (flow, part) in [
        (FlowSpec { schedule: None, ..good() }, "no rate of its own"),
        (FlowSpec { schedule: schedule(0.0, 0.0, FlowDuration::Continuous), ..good() }, "rate is not above 0"),
        (FlowSpec { schedule: schedule(f64::NAN, 0.0, FlowDuration::Continuous), ..good() }, "rate is not above 0"),
        (FlowSpec { schedule: schedule(1.0, -1.0, FlowDuration::Continuous), ..good() }, "delay"),
        (FlowSpec { schedule: schedule(1.0, 0.0, FlowDuration::Seconds(-1.0)), ..good() }, "length"),
    ] {
        let error = bench.try_plan(&flows(vec![good(), flow], 1.0)).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains(part), "{error}");
    }
    assert!(notes.borrow().is_empty());
}
