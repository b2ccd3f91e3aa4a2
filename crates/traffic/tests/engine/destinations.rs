//! Counts by destination, compared with a device that records the fate of every frame by address.

use crate::common::*;
use drophammer_model::quantity::Instant;
use drophammer_model::routes::{AttributePattern, Prefix, RouteRange, RouteTable, Routes};
use drophammer_model::trial::{
    AddressRange, DestinationCounts, DestinationSummary, Family, FlowSpec, Load, Targets, TrialResult, TrialSpec,
};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

/// What the device did with frames to one address.
#[derive(Clone, Debug, Default)]
struct Seen {
    offered: u32,
    received: u32,
    /// When lost frames arrived at the device.
    lost: Vec<u64>,
}

type Truth = Rc<RefCell<HashMap<IpAddr, Seen>>>;

/// Loses frames if `loses` is true, and delays or duplicates some of the others.
fn lossy(loses: impl Fn(&Offered<'_>) -> bool + 'static) -> (Bench, Truth) {
    let truth = Truth::default();
    let notes = truth.clone();
    let bench = Bench::new(2, move |f, out| {
        let mut notes = notes.borrow_mut();
        let seen = notes.entry(destination(f.frame)).or_default();
        seen.offered += 1;
        if loses(f) {
            seen.lost.push(f.at.0);
            return;
        }
        seen.received += 1;
        // Late and duplicate frames count as received.
        out.push(f.on(if f.nth(7) { 300 * US } else { DELAY }));
        if f.nth(11) {
            out.push(f.on(DELAY + 50 * US));
        }
    });
    (bench, truth)
}

/// Index of the target that has this address.
fn place(targets: &Targets, address: IpAddr) -> usize {
    match targets {
        Targets::Addresses(range) => {
            let number = |a: IpAddr| match a {
                IpAddr::V4(a) => u128::from(u32::from(a)),
                IpAddr::V6(a) => u128::from(a),
            };
            ((number(address) - number(range.first)) / u128::from(range.step)) as usize
        }
        Targets::Routes { routes, first, .. } => {
            let longest = if address.is_ipv4() { 32 } else { 128 };
            let found = (0..=longest).rev().find_map(|length| routes.index_of(&Prefix::masked(address, length)?));
            (found.expect("no route leads there") - first) as usize
        }
    }
}

/// Checks that the counts equal the counts of the device.
fn same(spec: &TrialSpec, counts: &DestinationCounts, truth: &HashMap<IpAddr, Seen>, start: u64) {
    let targets = &spec.flows[counts.flow].destinations;
    let mut expected = vec![Seen::default(); targets.count() as usize];
    for (address, seen) in truth.iter().filter(|(a, _)| a.is_ipv4() == (targets.family() == Family::Ipv4)) {
        let at = &mut expected[place(targets, *address)];
        at.offered += seen.offered;
        at.received += seen.received;
        at.lost.extend(seen.lost.iter().map(|at| (at - start) / 1_000));
    }
    let column = |of: fn(&Seen) -> u32| expected.iter().map(of).collect::<Vec<_>>();
    assert_eq!(counts.offered, column(|s| s.offered));
    assert_eq!(counts.received, column(|s| s.received));
    let never = DestinationCounts::NEVER;
    let time = |of: fn(&Vec<u64>) -> Option<&u64>| {
        expected.iter().map(|s| of(&s.lost).map_or(never, |us| *us as u32)).collect::<Vec<_>>()
    };
    assert_eq!(counts.first_lost_us, time(|lost| lost.iter().min()));
    assert_eq!(counts.last_lost_us, time(|lost| lost.iter().max()));
    let summary = DestinationSummary {
        flow: counts.flow,
        destinations: expected.len() as u64,
        offered: expected.iter().filter(|s| s.offered > 0).count() as u64,
        with_loss: expected.iter().filter(|s| !s.lost.is_empty()).count() as u64,
        unreached: expected.iter().filter(|s| s.offered > 0 && s.received == 0).count() as u64,
    };
    assert_eq!(counts.summary(), summary);
}

/// Runs the trial, and checks the counts of every flow that is counted by destination.
fn compared(spec: &TrialSpec, loses: impl Fn(&Offered<'_>) -> bool + 'static) -> TrialResult {
    let (mut bench, truth) = lossy(loses);
    use drophammer_port::Clock;
    let start = bench.clock.now().0 + US;
    let result = bench.run(spec);
    let flows: Vec<_> = spec.flows.iter().enumerate().filter(|(_, f)| f.per_destination).map(|(i, _)| i).collect();
    assert_eq!(result.destinations.iter().map(|d| d.flow).collect::<Vec<_>>(), flows);
    result.destinations.iter().for_each(|d| same(spec, d, &truth.borrow(), start));
    let summaries: Vec<_> = result.destinations.iter().map(DestinationCounts::summary).collect();
    assert_eq!(result.destination_summaries, summaries);
    result
}

fn counted(family: Family, destinations: Targets, weight: f64) -> FlowSpec {
    FlowSpec { destinations, per_destination: true, ..flow(&family.to_string(), 0, 1, family, 1, weight) }
}

fn addresses(family: Family, count: u32, step: u64) -> Targets {
    let first = if family == Family::Ipv4 { "16.0.0.1" } else { "2400::1" };
    AddressRange { first: first.parse().unwrap(), step, count }.into()
}

fn routes(routes: impl Into<Routes>, first: u32, count: u32) -> Targets {
    Targets::Routes { routes: Arc::new(routes.into()), first, count }
}

fn internet(family: Family, count: u32) -> RouteRange {
    RouteRange::internet(family, count, 5).unwrap()
}

#[test]
fn one_lost_frame_is_one_destinations() {
    let flows = vec![counted(Family::Ipv4, addresses(Family::Ipv4, 100, 256), 1.0)];
    let spec = spec("64", flows, Load::Constant { rate_pps: 1_000.0 }, 1.0);
    let result = compared(&spec, |f| f.number == 433);
    let counts = &result.destinations[0];
    let hit = counts.received.iter().position(|n| *n == 9).unwrap();
    assert_eq!((counts.offered.iter().all(|n| *n == 10), counts.lost(hit)), (true, 1));
    assert_eq!((counts.first_lost_us[hit], counts.last_lost_us[hit]), (432_000, 432_000));
    let expected = DestinationSummary { flow: 0, destinations: 100, offered: 100, with_loss: 1, unreached: 0 };
    assert_eq!(result.destination_summaries, [expected]);
}

#[test]
fn a_window_of_loss_hits_the_destinations_of_these_frames_and_no_others() {
    // 1,000 frames per round. The device loses frames from 0.25 s to 0.5 s of the first second; the trial has two and a
    // half rounds.
    let targets = routes(internet(Family::Ipv4, 5_000), 2_000, 1_000);
    let spec = spec("64", vec![counted(Family::Ipv4, targets, 1.0)], Load::Constant { rate_pps: 1_000.0 }, 2.5);
    let result = compared(&spec, |f| (250 * MS..500 * MS).contains(&(f.at.0 - US - 1)));
    let counts = &result.destinations[0];
    let of = |offered, received| {
        (0..1_000).filter(|i| (counts.offered[*i], counts.received[*i]) == (offered, received)).count()
    };
    assert_eq!((of(3, 2), of(3, 3), of(2, 2)), (250, 250, 500));
    assert!(counts.last_lost_us.iter().all(|us| *us == DestinationCounts::NEVER || (250_000..500_000).contains(us)));
}

#[test]
fn destinations_that_no_frame_was_for_are_not_unreached() {
    let flows = vec![counted(Family::Ipv6, addresses(Family::Ipv6, 1_000, 1), 1.0)];
    let spec = spec("64", flows, Load::Burst { frames: 10, rate_pps: 1e6 }, 1.0);
    let result = compared(&spec, |f| f.nth(2));
    let expected = DestinationSummary { flow: 0, destinations: 1_000, offered: 10, with_loss: 5, unreached: 5 };
    assert_eq!(result.destination_summaries, [expected]);
}

#[test]
fn every_route_is_aimed_at_once_per_round_and_each_round_elsewhere() {
    let prefix = |text: &str| text.parse::<Prefix>().unwrap();
    let uniform = |first: &str| RouteRange::uniform(prefix(first), 700, 3, AttributePattern::default()).unwrap();
    // A route within another route, and a host route.
    let nested = ["20.0.0.0/8", "20.1.0.0/16", "20.1.2.0/24", "20.1.2.3/32", "30.0.0.0/31"];
    let table = RouteTable::new("nested", Family::Ipv4, nested.map(|p| (prefix(p), Default::default())));
    let cases = [
        (routes(internet(Family::Ipv4, 3_000), 0, 3_000), true),
        (routes(internet(Family::Ipv6, 3_000), 500, 1_777), true),
        (routes(uniform("20.0.0.0/24"), 0, 700), true),
        (routes(uniform("2400::/48"), 100, 1), true),
        (routes(table, 0, 5), false),
    ];
    for (targets, varied) in cases {
        let (family, count) = (targets.family(), targets.count() as usize);
        let (mut bench, notes) = noted(|f| destination(f.frame));
        let load = Load::Burst { frames: 4 * count as u64 + 3.min(count as u64), rate_pps: 1e6 };
        let result = bench.run(&spec("64", vec![counted(family, targets.clone(), 1.0)], load, 1.0));
        assert_eq!(result.lost(), 0);
        let addresses = notes.borrow();
        let mut rounds = Vec::new();
        for round in addresses.chunks_exact(count) {
            let mut by_place = vec![None; count];
            round.iter().for_each(|a| assert_eq!(by_place[place(&targets, *a)].replace(*a), None, "{a} twice"));
            rounds.push(by_place);
        }
        // The order repeats itself, the addresses do not.
        let order = |round: usize| -> Vec<usize> {
            addresses[round * count..][..count].iter().map(|a| place(&targets, *a)).collect()
        };
        assert_eq!(order(0), order(3));
        assert!(count < 100 || order(0).windows(2).filter(|w| w[0] < w[1]).count() < count * 6 / 10);
        assert!(!varied || rounds[0] != rounds[1] && rounds[1] != rounds[2]);
    }
}

/// Senders to the same routes share one order, each starting at its own place. Together they reach every route once before they reach any route
/// twice.
#[test]
fn several_senders_share_the_routes_behind_a_port() {
    const ROUTES: u32 = 1_000;
    for (senders, each, reached) in [(3, 334, 1_000), (3, 100, 300), (7, 143, 1_000), (1, 500, 500), (7, 286, 1_000)] {
        let targets = routes(internet(Family::Ipv4, ROUTES + 50), 50, ROUTES);
        let flows: Vec<FlowSpec> = (0..senders)
            .map(|from| FlowSpec {
                destinations: targets.clone(),
                per_destination: true,
                ..flow("IPv4", from, senders, Family::Ipv4, 1, 1.0)
            })
            .collect();
        let notes = Rc::new(RefCell::new(vec![0u32; ROUTES as usize]));
        let (kept, aimed) = (notes.clone(), targets.clone());
        let mut bench = Bench::new(senders + 1, move |f, out| {
            kept.borrow_mut()[place(&aimed, destination(f.frame))] += 1;
            out.push(Out { at: Instant(f.at.0 + DELAY), port: senders, frame: f.frame.to_vec() });
        });
        let result = bench.run(&spec("64", flows, Load::Burst { frames: each, rate_pps: 1e6 }, 1.0));
        assert_eq!((result.lost(), result.offered()), (0, each * senders as u64));
        let notes = notes.borrow();
        let (least, most) = (*notes.iter().min().unwrap(), *notes.iter().max().unwrap());
        assert_eq!(notes.iter().filter(|n| **n > 0).count(), reached, "{senders} senders");
        // Uneven only if the senders' parts are uneven.
        assert!(most <= least + 2, "{least} to {most}");
        // Counts by destination know the order.
        let counted = |route: usize| result.destinations.iter().map(|d| d.offered[route]).sum::<u32>();
        assert!((0..ROUTES as usize).all(|route| counted(route) == notes[route]));
    }
}

#[test]
fn counts_by_destination_change_no_other_count() {
    let with = spec(
        "imix",
        vec![
            counted(Family::Ipv4, addresses(Family::Ipv4, 50, 1), 1.0),
            counted(Family::Ipv6, addresses(Family::Ipv6, 70, 1), 2.5),
        ],
        Load::Constant { rate_pps: 7_000.0 },
        1.0,
    );
    let mut without = with.clone();
    without.flows.iter_mut().for_each(|f| f.per_destination = false);
    let (with, without) = (compared(&with, |f| f.nth(13)), compared(&without, |f| f.nth(13)));
    assert_eq!((&with.groups, without.destinations.len()), (&without.groups, 0));
    for (g, d) in with.groups.iter().zip(&with.destinations) {
        let sum = |counts: &[u32]| counts.iter().map(|n| u64::from(*n)).sum::<u64>();
        assert_eq!((sum(&d.offered), sum(&d.received)), (g.offered, g.received));
        let last = d.last_lost_us.iter().filter(|us| **us != DestinationCounts::NEVER).max();
        assert_eq!(last.map(|us| u64::from(*us)), g.last_loss_ns.map(|ns| ns / 1_000));
    }
}

#[test]
fn what_is_stored_has_no_long_vectors() {
    let flows = vec![counted(Family::Ipv4, addresses(Family::Ipv4, 1_000, 1), 1.0)];
    let result = compared(&spec("64", flows, Load::Constant { rate_pps: 5_000.0 }, 1.0), |f| f.nth(100));
    let stored = serde_json::to_string(&result).unwrap();
    assert!(stored.len() < 4_000 && stored.contains("\"with_loss\":"), "{stored}");
    let read: TrialResult = serde_json::from_str(&stored).unwrap();
    assert_eq!(read, result.stored());
    assert_eq!(TrialResult { destinations: result.destinations.clone(), ..read }, result);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn counts_are_the_devices_whatever_it_loses(
        counts in proptest::array::uniform2(1u32..400), of_routes in proptest::array::uniform2(any::<bool>()), weight in 0.1f64..4.0,
        rate in 1_000.0f64..200_000.0, seed: u64, share in 0u64..100, window in proptest::array::uniform2(0u64..50)
    ) {
        let flow = |n: usize, family, weight| {
            let routes = of_routes[n].then(|| routes(internet(family, counts[n] + 9), 4, counts[n]));
            counted(family, routes.unwrap_or_else(|| addresses(family, counts[n], 3)), weight)
        };
        let flows = vec![flow(0, Family::Ipv4, 1.0), flow(1, Family::Ipv6, weight)];
        let spec = spec("128", flows, Load::Constant { rate_pps: rate }, 0.04);
        let loses = move |f: &Offered<'_>| {
            let Instant(at) = f.at;
            let hash = (f.number ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            hash % 100 < share || (window[0] * MS..window[1] * MS).contains(&at)
        };
        compared(&spec, loses);
    }
}
