//! Sizes, families, addresses, weights and load shapes on a perfect wire.

use crate::common::*;
use drophammer_model::quantity::Instant;
use drophammer_model::trial::{AddressRange, Family, FlowSpec, Load, LoadStep, Targets, TrialSpec};
use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use Family::{Ipv4, Ipv6};

#[test]
fn frames_of_all_sizes_and_families_arrive_and_are_counted_in_bytes() {
    let bytes = |size, family| match (size, family) {
        ("64" | "65" | "ip40", Ipv6) => 78,
        ("ip40", Ipv4) => 64,
        ("ip41", Ipv4) => 64,
        ("ip41", Ipv6) => 78,
        ("ip1500", _) => 1518,
        (n, _) => n.parse().unwrap(),
    };
    for size in ["64", "65", "66", "67", "79", "1517", "1518", "9000", "9216", "ip40", "ip41", "ip1500"] {
        for family in [Ipv4, Ipv6] {
            let (mut bench, lengths) = noted(|f| f.frame.len() as u64 + 4);
            let result = bench.run(&one(size, family, 400.0));
            let expected =
                if size.parse::<u64>().is_ok_and(|n| n < 78) && family == Ipv6 { 78 } else { bytes(size, family) };
            assert_eq!(result.groups, [all_well(&result, 0, 400, expected)], "{size} {family}");
            assert!(lengths.borrow().iter().all(|n| *n == expected), "{size} {family}");
        }
    }
}

#[test]
fn a_mix_is_sent_in_its_proportions() {
    for (mix, per_round, bytes) in [
        ("imix", 12, [(64u64, 7u64), (512, 4), (1518, 1)].as_slice()),
        ("imix:3x100,1x1517,1x9000", 5, &[(100, 3), (1517, 1), (9000, 1)]),
    ] {
        let (mut bench, lengths) = noted(|f| f.frame.len() as u64 + 4);
        let frames = 100 * per_round;
        let result = bench.run(&one(mix, Ipv4, frames as f64));
        let all: u64 = bytes.iter().map(|(size, n)| size * n * 100).sum();
        let expected = drophammer_model::trial::GroupCounts { received_bytes: all, ..all_well(&result, 0, frames, 0) };
        assert_eq!(result.groups, [expected], "{mix}");
        for round in lengths.borrow().chunks(per_round as usize) {
            let mut found = BTreeMap::new();
            round.iter().for_each(|n| *found.entry(*n).or_insert(0) += 1);
            assert_eq!(found, bytes.iter().copied().collect(), "{mix}");
        }
    }
}

#[test]
fn both_families_in_groups_of_their_own_share_a_port() {
    let mut bench = wire();
    let flows = vec![
        flow("IPv4", 0, 1, Ipv4, 10, 1.0),
        flow("IPv6", 0, 1, Ipv6, 10, 1.0),
        flow("IPv4", 1, 0, Ipv4, 10, 1.0),
        flow("IPv6", 1, 0, Ipv6, 10, 1.0),
    ];
    let result = bench.run(&spec("64", flows, Load::Constant { rate_pps: 1_000.0 }, 2.0));
    assert_eq!(result.groups, [all_well(&result, 0, 2_000, 64), all_well(&result, 1, 2_000, 78)]);
    assert_eq!((result.groups[0].group.as_str(), result.groups[1].group.as_str(), result.senders), ("IPv4", "IPv6", 2));
    assert_eq!((result.offered_load().pps(), result.sending_s), (1_000.0, 2.0));
}

#[test]
fn loss_of_one_group_is_no_loss_of_the_other() {
    // The device loses IPv6 only.
    let mut bench = Bench::new(2, |f, out| {
        if udp_at(f.frame) == 34 {
            out.push(f.on(DELAY));
        }
    });
    let flows = vec![flow("IPv4", 0, 1, Ipv4, 10, 1.0), flow("IPv6", 0, 1, Ipv6, 10, 1.0)];
    let result = bench.run(&spec("64", flows, Load::Constant { rate_pps: 1_000.0 }, 1.0));
    assert_eq!(result.groups[0], all_well(&result, 0, 500, 64));
    assert_eq!((result.groups[1].received, result.groups[1].lost), (0, 500));
    assert_eq!(result.loss_ratio(), 0.5);
}

/// The members of a range.
fn members(flow: &FlowSpec) -> HashSet<IpAddr> {
    let Targets::Addresses(r) = &flow.destinations else { panic!("a flow to addresses") };
    (0..u64::from(r.count))
        .map(|i| match r.first {
            IpAddr::V4(a) => Ipv4Addr::from(u32::from(a) + (i * r.step) as u32).into(),
            IpAddr::V6(a) => Ipv6Addr::from(u128::from(a) + u128::from(i * r.step)).into(),
        })
        .collect()
}

fn every_address_once_per_round(mut flow: FlowSpec, count: u32, step: u64, rounds: u64) {
    let Targets::Addresses(range) = flow.destinations else { panic!("a flow to addresses") };
    flow.destinations = AddressRange { count, step, ..range }.into();
    let (mut bench, addresses) = noted(|f| destination(f.frame));
    let expected = members(&flow);
    let frames = u64::from(count) * rounds + 3;
    let mut spec = spec("64", vec![flow], Load::Burst { frames, rate_pps: 1e6 }, 1.0);
    spec.bin_s = None;
    let result = bench.run(&spec);
    assert_eq!((result.received(), result.lost()), (frames, 0));
    let addresses = addresses.borrow();
    for round in addresses.chunks_exact(count as usize) {
        let found: HashSet<_> = round.iter().copied().collect();
        assert_eq!(found.len(), expected.len());
        assert!(found == expected, "count {count}, step {step}");
    }
    assert!(addresses.iter().all(|a| expected.contains(a)));
}

#[test]
fn every_destination_comes_once_per_round() {
    for family in [Ipv4, Ipv6] {
        for (count, step, rounds) in [(1, 1, 5), (2, 1, 5), (3, 256, 5), (255, 1, 3), (1_000, 256, 3), (65_537, 1, 1)] {
            every_address_once_per_round(flow("all", 0, 1, family, 1, 1.0), count, step, rounds);
        }
    }
}

#[test]
fn a_million_destinations_come_once_per_round() {
    every_address_once_per_round(flow("all", 0, 1, Ipv4, 1, 1.0), 1_000_000, 1, 1);
}

#[test]
fn flows_share_a_port_by_weight_to_the_frame() {
    let mut bench = wire();
    let flows = vec![
        flow("gold", 0, 1, Ipv4, 16, 70.0),
        flow("silver", 0, 1, Ipv4, 16, 20.0),
        flow("bronze", 0, 1, Ipv6, 16, 5.0),
    ];
    let result = bench.run(&spec("128", flows, Load::Constant { rate_pps: 19_000.0 }, 1.0));
    let expected: Vec<_> =
        [14_000, 4_000, 1_000].into_iter().enumerate().map(|(i, n)| all_well(&result, i, n, 128)).collect();
    assert_eq!(result.groups, expected);
}

/// Checks that departures are on schedule, rounded up to the nanosecond.
fn evenly_spaced(at: &[Instant], rate: f64) {
    for (i, t) in at.iter().enumerate() {
        let ideal = i as f64 * 1e9 / rate;
        let found = (t.0 - at[0].0) as f64;
        assert!(found >= ideal - 1e-3 && found <= ideal + 1.0, "frame {i} at {found} instead of {ideal} ({rate} fps)");
    }
    for pair in at.windows(2) {
        let gap = (pair[1].0 - pair[0].0) as f64;
        assert!((gap - 1e9 / rate).abs() <= 1.0, "a gap of {gap} at {rate} fps");
    }
}

#[test]
fn departures_are_evenly_spaced() {
    for rate in [1.0, 3.0, 997.0, 1_000.0, 333_333.3, 1_488_095.238, 14_880_952.38] {
        let (mut bench, at) = noted(|f| f.at);
        let seconds = (20_000.0f64 / rate).clamp(0.01, 5.0);
        let result = bench.run(&one_for("64", Ipv4, rate, seconds));
        assert_eq!(result.lost(), 0);
        // Durations are rounded to nanoseconds, frames down.
        assert!((result.received() as f64 - rate * seconds).abs() < 1.0 + 1e-6, "{} frames", result.received());
        evenly_spaced(&at.borrow(), rate);
    }
}

fn one_for(size: &str, family: Family, rate_pps: f64, seconds: f64) -> TrialSpec {
    spec(size, one(size, family, 1.0).flows, Load::Constant { rate_pps }, seconds)
}

#[test]
fn ports_depart_side_by_side_and_the_load_is_per_port() {
    let (mut bench, at) = noted(|f| (f.port, f.at));
    let flows = vec![flow("there", 0, 1, Ipv4, 256, 1.0), flow("back", 1, 0, Ipv4, 256, 1.0)];
    let result = bench.run(&spec("64", flows, Load::Constant { rate_pps: 7_000.0 }, 1.0));
    assert_eq!(result.groups, [all_well(&result, 0, 7_000, 64), all_well(&result, 1, 7_000, 64)]);
    for port in [0, 1] {
        let mine: Vec<_> = at.borrow().iter().filter(|(p, _)| *p == port).map(|(_, at)| *at).collect();
        evenly_spaced(&mine, 7_000.0);
    }
    assert_eq!((result.offered_load().pps(), result.forwarding_rate().pps()), (7_000.0, 7_000.0));
}

#[test]
fn steps_follow_one_another_without_gap_or_burst() {
    let (mut bench, at) = noted(|f| f.at);
    let steps = vec![
        LoadStep { duration_s: 0.5, rate_pps: 10_000.0 },
        LoadStep { duration_s: 0.25, rate_pps: 2_000.0 },
        LoadStep { duration_s: 0.25, rate_pps: 40_000.0 },
    ];
    let mut spec = spec("64", one("64", Ipv4, 1.0).flows, Load::Steps { steps }, 1.0);
    spec.bin_s = Some(0.25);
    let result = bench.run(&spec);
    assert_eq!(result.groups, [all_well(&result, 0, 15_500, 64)]);
    let bins: Vec<_> = result.groups[0].bins.iter().take(5).map(|b| (b.offered, b.delivered)).collect();
    assert_eq!(bins, [(2_500, 2_500), (2_500, 2_500), (500, 500), (10_000, 10_000), (0, 0)]);
    let at = at.borrow();
    evenly_spaced(&at[..5_000], 10_000.0);
    evenly_spaced(&at[5_000..5_500], 2_000.0);
    evenly_spaced(&at[5_500..], 40_000.0);
    assert_eq!((at[5_000].0 - at[0].0, at[5_500].0 - at[0].0), (500 * MS, 750 * MS));
}

#[test]
fn a_burst_is_as_long_as_it_is_asked_for() {
    for frames in [1, 2, 63, 64, 65, 4_321] {
        let (mut bench, at) = noted(|f| f.at);
        let rate_pps = 1_488_095.0;
        let mut spec = spec("64", one("64", Ipv4, 1.0).flows, Load::Burst { frames, rate_pps }, 0.0);
        spec.bin_s = None;
        let result = bench.run(&spec);
        assert_eq!(result.groups, [all_well(&result, 0, frames, 64)]);
        evenly_spaced(&at.borrow(), rate_pps);
        let nominal = frames as f64 / rate_pps;
        assert!((result.sending_s - nominal).abs() < 2e-9, "{} {nominal}", result.sending_s);
    }
}

#[test]
fn the_maximum_is_the_limit_where_the_port_takes_everything() {
    let mut bench = wire();
    let result = bench.run(&spec("64", one("64", Ipv4, 1.0).flows, Load::Maximum { limit_pps: 200_000.0 }, 0.1));
    assert_eq!(result.groups, [all_well(&result, 0, 20_000, 64)]);
    assert_eq!((result.health.unsent, result.offered_load().pps()), (0, 200_000.0));
}

#[test]
fn bins_tell_when_frames_left_and_when_they_came() {
    // Frames of the second quarter are held for 300 ms.
    let mut bench = Bench::new(2, |f, out| {
        let n = f.number;
        out.push(f.on(if n > 250 && n <= 500 { 300 * MS } else { DELAY }));
    });
    let mut spec = one("64", Ipv4, 1_000.0);
    spec.bin_s = Some(0.25);
    let result = bench.run(&spec);
    let bins: Vec<_> = result.groups[0].bins.iter().take(5).map(|b| (b.offered, b.delivered, b.arrived)).collect();
    // Held frames arrive from 550 ms on: in the third quarter if they left from 250 to 449 ms, the other 50 in the
    // fourth.
    assert_eq!(bins, [(250, 250, 250), (250, 250, 0), (250, 250, 450), (250, 250, 300), (0, 0, 0)]);
}

#[test]
fn bins_of_any_width_keep_step_with_the_clock() {
    // The binary value of 0.0003 s is a little smaller. Over 2,000 bins, a width of 299,999 ns would drift by 2 µs.
    let mut bench = wire();
    let mut spec = one_for("64", Ipv4, 1e6 / 3.0, 0.6);
    spec.bin_s = Some(0.0003);
    let result = bench.run(&spec);
    assert!(result.groups[0].bins[..2_000].iter().all(|b| b.offered == 100 && b.delivered == 100));
}

#[test]
fn forwarding_rate_under_overload_is_that_of_the_bottleneck() {
    // One frame passes every 10 µs; each port offers 250,000 fps.
    for (flows, per_port) in [
        (vec![flow("a", 0, 1, Ipv4, 16, 1.0)], 100_000.0),
        (vec![flow("a", 0, 1, Ipv4, 16, 1.0), flow("b", 1, 0, Ipv4, 16, 1.0)], 50_000.0),
    ] {
        let mut free = 0u64;
        let mut bench = Bench::new(2, move |f, out| {
            // A server with room for 100 frames, 10 µs each.
            let start = free.max(f.at.0);
            if start - f.at.0 < 100 * 10 * US {
                free = start + 10 * US;
                out.push(f.on(free - f.at.0));
            }
        });
        let result = bench.run(&spec("64", flows, Load::Constant { rate_pps: 250_000.0 }, 0.1));
        let found = result.forwarding_rate().pps();
        assert!(result.lost() > 0 && (found / per_port - 1.0).abs() < 1e-4, "{found} instead of {per_port}");
        assert!(found <= per_port * (1.0 + 1e-6), "{found} is more than {per_port}");
    }
}
