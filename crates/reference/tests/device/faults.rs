//! Each fault acts as documented, to the frame, and is counted.

use crate::common::*;
use drophammer_model::Instant;
use drophammer_model::trial::Family;
use drophammer_reference::{
    Class, Config, ConfigError, Corrupt, DropAtLowLoad, DropGrowth, Faults, Hold, Misroute, NOBODY, OwnFrames, Reorder,
    Router, Sag, Truth, WrongNextHop,
};
use drophammer_wire::ethernet::ethertype;
use std::time::Duration;

const FRAMES: u32 = 1_000;
const GAP: u64 = 1_000;

/// `FRAMES` frames, one per microsecond from second 1, numbered from 1, port 0 to port 1.
fn run(faults: Faults, family: Family) -> (Vec<Sent>, Truth) {
    run_with(Config { faults, ..config(3) }, family)
}

fn run_with(config: Config, family: Family) -> (Vec<Sent>, Truth) {
    let mut bench = Bench::new(config);
    let test = Test { size: 128, ..Test::new(0, 1, family) };
    for number in 1..=FRAMES {
        bench.offer(Instant(SECOND + u64::from(number) * GAP), 0, &test.frame(number));
    }
    let sent = {
        bench.run_until(Instant(2 * SECOND));
        std::mem::take(&mut bench.sent)
    };
    bench.check_sums();
    assert_eq!(bench.router.truth().queued, 0);
    (sent, *bench.router.truth())
}

fn all_but(without: impl Fn(u32) -> bool) -> Vec<u32> {
    (1..=FRAMES).filter(|n| !without(*n)).collect()
}

#[test]
fn none_by_default() {
    let (sent, truth) = run(Faults::default(), Family::Ipv4);
    assert_eq!(numbers(&sent), all_but(|_| false));
    assert_eq!(truth.forwarded, u64::from(FRAMES));
    assert_eq!(truth.dropped.total(), 0);
}

#[test]
fn every_seventh_is_dropped() {
    let (sent, truth) = run(Faults { drop_every: 7, ..Faults::default() }, Family::Ipv6);
    assert_eq!(numbers(&sent), all_but(|n| n % 7 == 0));
    assert_eq!(truth.dropped.fault_every, 142);
}

#[test]
fn a_share_is_dropped_the_same_each_time() {
    let faults = Faults { drop_share: 0.25, ..Faults::default() };
    let (sent, truth) = run(faults.clone(), Family::Ipv4);
    assert_eq!(numbers(&sent).len() as u64 + truth.dropped.fault_share, u64::from(FRAMES));
    // Six standard deviations of a binomial of 1000 with 0.25.
    assert!((168..=332).contains(&truth.dropped.fault_share), "{}", truth.dropped.fault_share);
    assert_eq!(numbers(&run(faults.clone(), Family::Ipv4).0), numbers(&sent));
    let other_seed = Config { faults, seed: 43, ..config(3) };
    assert_ne!(numbers(&run_with(other_seed, Family::Ipv4).0), numbers(&sent));
    let (sent, _) = run(Faults { drop_share: 1.0, ..Faults::default() }, Family::Ipv4);
    assert!(numbers(&sent).is_empty());
}

#[test]
fn a_window_is_closed_below_and_open_above() {
    let window = Some((Instant(SECOND + 100 * GAP), Instant(SECOND + 200 * GAP)));
    let (sent, truth) = run(Faults { drop_window: window, ..Faults::default() }, Family::Ipv4);
    assert_eq!(numbers(&sent), all_but(|n| (100..200).contains(&n)));
    assert_eq!(truth.dropped.fault_window, 100);
}

#[test]
fn a_share_that_grows_is_evenly_spaced() {
    // 0.1 % more with each frame, from the 501st on: the sum of the shares of n frames is n (n + 1) / 2000.
    let growth = |from: u64, millionths_per_second: u64| {
        let drop_growth = Some(DropGrowth { from: Instant(SECOND + from * GAP), millionths_per_second });
        run(Faults { drop_growth, ..Faults::default() }, Family::Ipv4)
    };
    let dropped = |n: u32| {
        let sum = |frames: u32| frames * (frames + 1) / 2_000;
        n > 500 && sum(n - 500) > sum(n - 501)
    };
    let (sent, truth) = growth(500, 1_000_000_000);
    assert_eq!(numbers(&sent), all_but(dropped));
    assert_eq!(truth.dropped.fault_growth, 125);
    // Never more than all frames.
    let (sent, truth) = growth(900, 1_000_000_000_000);
    assert_eq!(numbers(&sent), all_but(|n| n > 900));
    assert_eq!((truth.dropped.fault_growth, truth.dropped.total()), (100, 100));
    assert_eq!(growth(1_001, 1_000_000_000).1.dropped.total(), 0, "not yet");
}

#[test]
fn every_tenth_comes_twice() {
    let (sent, truth) = run(Faults { duplicate_every: 10, ..Faults::default() }, Family::Ipv4);
    let expected: Vec<_> = (1..=FRAMES).flat_map(|n| vec![n; if n % 10 == 0 { 2 } else { 1 }]).collect();
    assert_eq!(numbers(&sent), expected);
    assert_eq!((truth.duplicated, truth.forwarded), (100, 1_100));
}

#[test]
fn every_tenth_is_passed_by_three() {
    let reorder = Some(Reorder { every: 10, positions: 3 });
    let (sent, truth) = run(Faults { reorder, ..Faults::default() }, Family::Ipv4);
    // The last three never get their three followers: 1000 departs at its time limit.
    let mut expected: Vec<u32> = Vec::new();
    for n in all_but(|n| n % 10 == 0) {
        expected.push(n);
        if n % 10 == 3 && n > 10 {
            expected.push(n - 3);
        }
    }
    expected.push(1000);
    assert_eq!(numbers(&sent), expected);
    assert_eq!((truth.reordered, truth.reorder_expired), (99, 1));
    let at = |n: u32| sent.iter().find(|s| read(&s.2).unwrap().number == n).unwrap().0;
    assert_eq!(at(10), at(13));
    assert_eq!(at(1000), Instant(SECOND + 1000 * GAP) + drophammer_reference::REORDER_LIMIT);
}

#[test]
fn overlapping_reorders_are_passed_by_frames_that_keep_their_place() {
    let reorder = Some(Reorder { every: 2, positions: 2 });
    let (sent, truth) = run(Faults { reorder, ..Faults::default() }, Family::Ipv4);
    assert_eq!(numbers(&sent)[..8], [1, 3, 5, 2, 7, 4, 9, 6]);
    assert_eq!(truth.reordered + truth.reorder_expired, 500);
    assert_eq!(truth.reorder_expired, 2, "998 and 1000 lack followers");
}

#[test]
fn corruption_shows_in_the_checksum_or_in_nothing_but_the_content() {
    for family in [Family::Ipv4, Family::Ipv6] {
        for (offset, fix_checksum) in [(None, false), (None, true), (Some(4), false), (Some(5), true), (Some(81), true)]
        {
            let corrupt = Some(Corrupt { every: 4, offset, fix_checksum });
            let (sent, truth) = run(Faults { corrupt, ..Faults::default() }, family);
            assert_eq!((truth.corrupted, truth.forwarded), (250, 1_000));
            let (good, _) = run(Faults::default(), family);
            for (i, (bad, good)) in sent.iter().zip(&good).enumerate() {
                let damaged = (i + 1) % 4 == 0;
                let seen = read(&bad.2).unwrap();
                assert_eq!(seen.intact, !damaged || fix_checksum, "{family} {i}");
                let header = if family == Family::Ipv4 { 42 } else { 62 };
                let differ: Vec<_> = (header..bad.2.len()).filter(|b| bad.2[*b] != good.2[*b]).collect();
                assert_eq!(differ.len(), usize::from(damaged));
                if let (Some(offset), [at]) = (offset, &differ[..]) {
                    assert_eq!(*at - header, offset % (bad.2.len() - header));
                }
            }
        }
    }
}

#[test]
fn every_eighth_is_misrouted_and_late_frames_are_late() {
    let misroute = Some(Misroute { every: 8, to_port: 2 });
    let hold = Some(Hold { every: 100, time: Duration::from_millis(3) });
    let (sent, truth) = run(Faults { misroute, hold, ..Faults::default() }, Family::Ipv4);
    assert_eq!((truth.misrouted, truth.held), (125, 10));
    for (at, port, frame) in &sent {
        let n = read(frame).unwrap().number;
        assert_eq!(*port, if n.is_multiple_of(8) { 2 } else { 1 });
        assert_eq!(at.0, SECOND + u64::from(n) * GAP + if n.is_multiple_of(100) { 3 * MS } else { 0 });
        assert_eq!(frame[..6], drophammer_wire::MacAddr::local(0x200 + *port as u64).0);
    }
    // A frame that belongs to `to_port` is not misrouted.
    let (_, truth) =
        run(Faults { misroute: Some(Misroute { every: 8, to_port: 1 }), ..Faults::default() }, Family::Ipv4);
    assert_eq!(truth.misrouted, 0);
}

#[test]
fn a_sag_halves_what_is_forwarded_from_its_instant() {
    let sag = Some(Sag { from: Instant(SECOND + 500 * GAP), capacity_pps: 500_000 });
    let config =
        Config { capacity_pps: Some(1_000_000), buffer: 2, faults: Faults { sag, ..Faults::default() }, ..config(3) };
    let (sent, truth) = run_with(config, Family::Ipv4);
    let got = numbers(&sent);
    assert_eq!(got[..499], (1..=499).collect::<Vec<_>>());
    // From 500 on each takes 2 us and there is room for two: 500, 501 and 502 find room, then every second frame, so
    // that 503, 505 and so on to 999 are lost.
    assert_eq!(got[499..], (500..=1000).filter(|n| *n < 503 || n % 2 == 0).collect::<Vec<_>>());
    assert_eq!(truth.dropped.buffer, 249);
    assert_eq!(got.len() as u64 + truth.dropped.buffer, u64::from(FRAMES));
}

#[test]
fn it_speaks_unasked_and_miscounts() {
    let own_frames = Some(OwnFrames { interval: Duration::from_millis(100), port: 1 });
    let faults = Faults { own_frames, counter_error: -1, ..Faults::default() };
    let mut bench = Bench::new(Config { faults, ..config(2) });
    bench.run_until(Instant(SECOND));
    assert_eq!(
        bench.sent.iter().map(|s| (s.0.0 / MS, s.1)).collect::<Vec<_>>(),
        (1..=10).map(|i| (i * 100, 1)).collect::<Vec<_>>()
    );
    let lldp = bench.sent.iter().filter(|s| s.2[12..14] == ethertype::LLDP.to_be_bytes()).count();
    assert_eq!(lldp, 10);
    assert_eq!(bench.router.truth().own_frames, 10);
    let before = bench.router.counters(1).unwrap();
    assert_eq!(before.out_group, 10);
    bench.router.set_faults(Faults::default()).unwrap();
    assert_eq!(bench.router.counters(1).unwrap().out_unicast, before.out_unicast + 1);
    assert_eq!(bench.router.next_deadline(), None);
}

#[test]
fn faults_combine_in_their_order() {
    let faults = Faults {
        drop_every: 2,
        duplicate_every: 3,
        corrupt: Some(Corrupt { every: 9, offset: Some(10), fix_checksum: false }),
        ..Faults::default()
    };
    let (sent, truth) = run(faults, Family::Ipv4);
    let odd_thirds = (1..=FRAMES).filter(|n| n % 2 == 1 && n % 3 == 0).count() as u64;
    assert_eq!((truth.dropped.fault_every, truth.duplicated), (500, odd_thirds));
    let odd_ninths: Vec<_> = (1..=FRAMES).filter(|n| n % 2 == 1 && n % 9 == 0).flat_map(|n| [n, n]).collect();
    assert_eq!(truth.corrupted, odd_ninths.len() as u64 / 2);
    let broken: Vec<_> = sent.iter().filter_map(|s| read(&s.2)).filter(|s| !s.intact).map(|s| s.number).collect();
    assert_eq!(broken, odd_ninths, "copies carry the damage");
}

#[test]
fn frames_numbered_by_port_do_not_depend_on_other_ports() {
    let faults = Faults { by_port: true, drop_every: 7, duplicate_every: 10, ..Faults::default() };
    // The frames of port 0, alone or between two frames of port 1 each, and after frames that were sent before the faults were set.
    let of_port_0 = |others: u64, earlier: u32| {
        let mut bench = Bench::new(config(3));
        let [from_0, from_1] = [0, 1].map(|port| Test { size: 128, ..Test::new(port, 2, Family::Ipv4) });
        for number in 0..earlier {
            bench.offer(Instant(SECOND / 2 + u64::from(number) * GAP), 0, &from_0.frame(FRAMES + number));
        }
        bench.run_until(Instant(SECOND - 1));
        bench.sent.clear();
        bench.router.set_faults(faults.clone()).unwrap();
        for number in 1..=FRAMES {
            let at = SECOND + u64::from(number) * GAP;
            (0..others).for_each(|i| bench.offer(Instant(at + i), 1, &from_1.frame(2 * FRAMES)));
            bench.offer(Instant(at + others), 0, &from_0.frame(number));
        }
        bench.run_until(Instant(2 * SECOND));
        bench.check_sums();
        let mut sent = numbers(&bench.sent);
        sent.retain(|number| *number <= FRAMES);
        sent
    };
    let twice = |n: u32| std::iter::repeat_n(n, if n.is_multiple_of(10) { 2 } else { 1 });
    let alone: Vec<_> = all_but(|n| n % 7 == 0).into_iter().flat_map(twice).collect();
    assert_eq!(of_port_0(0, 0), alone);
    assert_eq!(of_port_0(2, 3), alone);
}

#[test]
fn faults_leave_other_protocols_alone() {
    let mut bench = Bench::new(Config { faults: Faults { drop_every: 1, ..Faults::default() }, ..config(2) });
    let mut frame = Test::new(0, 1, Family::Ipv4).frame(0);
    // TCP, with the header checksum corrected by hand: protocol 17 to 6 is 11 less.
    frame[23] = 6;
    let sum = drophammer_wire::checksum::update(u16::from_be_bytes([frame[24], frame[25]]), 64 << 8 | 17, 64 << 8 | 6);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    bench.offer(Instant(SECOND), 0, &frame);
    assert_eq!(bench.finish().len(), 1);
    assert_eq!(bench.router.truth().test_frames, 0);
}

#[test]
fn impossible_devices_are_refused() {
    let refused = |change: fn(&mut Config)| {
        let mut config = config(2);
        change(&mut config);
        Router::new(config).err().expect("refused")
    };
    assert_eq!(refused(|c| c.capacity_pps = Some(0)), ConfigError::Limit("capacity_pps"));
    assert_eq!(refused(|c| c.buffer = 0), ConfigError::Limit("buffer"));
    assert_eq!(refused(|c| c.routes[0].port = 2), ConfigError::NoSuchPort(2));
    assert_eq!(refused(|c| c.routes[0].prefix_len = 33), ConfigError::PrefixLength(33));
    assert!(matches!(refused(|c| c.routes[0].next_hop = net6(0, 2).into()), ConfigError::Family(_)));
    assert_eq!(refused(|c| c.faults.misroute = Some(Misroute { every: 1, to_port: 9 })), ConfigError::NoSuchPort(9));
}

#[test]
fn a_wrong_next_hop_has_the_frame_by_the_right_port() {
    let wrong_next_hop = Some(WrongNextHop { every: 5, mac: NOBODY });
    let (sent, truth) = run(Faults { wrong_next_hop, ..Faults::default() }, Family::Ipv6);
    assert_eq!((truth.wrong_next_hop, truth.forwarded), (200, u64::from(FRAMES)));
    for ((_, port, frame), number) in sent.iter().zip(numbers(&sent)) {
        assert_eq!((*port, frame[..6] == NOBODY.0), (1, number % 5 == 0), "{number}");
    }
}

#[test]
fn low_load_is_judged_by_the_interval_before() {
    // One frame per microsecond from second 1 on; intervals of 100 µs have 100 frames, the first one none before it.
    let fault = |below_frames| DropAtLowLoad { every: 10, interval: Duration::from_micros(100), below_frames };
    for (below_frames, dropped) in [(0, 0), (1, 9), (100, 19), (101, 100)] {
        let faults = Faults { drop_at_low_load: Some(fault(below_frames)), ..Faults::default() };
        let (sent, truth) = run(faults, Family::Ipv4);
        // Frames 1 to 99 are in the first interval, so the second interval sees one frame less than the others.
        assert_eq!(truth.dropped.fault_low_load, dropped, "below {below_frames}");
        assert_eq!(
            numbers(&sent),
            all_but(|n| n % 10 == 0 && u64::from(n) <= 10 * dropped + 9),
            "below {below_frames}"
        );
    }
}

#[test]
fn a_full_fib_swallows_what_its_last_routes_attract() {
    let mut bench = Bench::new(Config { fib_limit: Some(5), ..config(3) });
    let offer = |bench: &mut Bench, to: usize, family: Family| {
        let before = *bench.router.truth();
        let now = bench.router.now();
        bench.offer(Instant(now.0 + 1_000), 0, &Test { size: 128, ..Test::new(0, to, family) }.frame(1));
        bench.run_until(Instant(now.0 + 2_000));
        let truth = bench.router.truth();
        (truth.forwarded - before.forwarded, truth.dropped.fib_full - before.dropped.fib_full)
    };
    // Six routes: the last one is the IPv6 route to port 2.
    assert_eq!(offer(&mut bench, 1, Family::Ipv6), (1, 0));
    assert_eq!(offer(&mut bench, 2, Family::Ipv4), (1, 0));
    assert_eq!(offer(&mut bench, 2, Family::Ipv6), (0, 1));
    assert_eq!(bench.router.truth().icmp_errors, 0);
    // Removing that route frees no room; removing another one does, so the first fits when it is added again. A changed
    // route keeps its place.
    let last = config(3).routes[5];
    assert!(bench.router.remove_route(last.prefix, last.prefix_len));
    bench.router.add_route(last).unwrap();
    assert_eq!(offer(&mut bench, 2, Family::Ipv6), (0, 1));
    let first = config(3).routes[2];
    bench.router.add_route(first).unwrap();
    assert!(bench.router.remove_route(first.prefix, first.prefix_len));
    assert_eq!(offer(&mut bench, 2, Family::Ipv6), (0, 1));
    bench.router.add_route(last).unwrap();
    assert_eq!(offer(&mut bench, 2, Family::Ipv6), (1, 0));
    bench.router.add_route(first).unwrap();
    assert_eq!(offer(&mut bench, 1, Family::Ipv4), (0, 1));
}

#[test]
fn classes_share_the_server_by_their_weights_and_each_has_its_buffer() {
    // Expedited, assured and the rest, 7 : 2 : 1, at a thousand frames per second; a burst of 100 of each in one instant.
    let class = |dscp: &[u8], weight, buffer| Class { dscp: dscp.to_vec(), weight, buffer, buffer_bytes: None };
    let classes = vec![class(&[46], 7, 70), class(&[10], 2, 20), class(&[], 1, 1_000)];
    for family in [Family::Ipv4, Family::Ipv6] {
        let mut bench = Bench::new(Config { capacity_pps: Some(1_000), classes: classes.clone(), ..config(2) });
        let test = Test { size: 128, ..Test::new(0, 1, family) };
        for number in 1..=100 {
            for dscp in [46u8, 10, 0] {
                let mut frame = test.frame(number);
                if family == Family::Ipv4 {
                    // RFC 1624: the header checksum is updated for the changed byte.
                    let old = u16::from_be_bytes([frame[14], frame[15]]);
                    frame[15] = dscp << 2;
                    let new = u16::from_be_bytes([frame[14], frame[15]]);
                    let sum = u16::from_be_bytes([frame[24], frame[25]]);
                    let sum = drophammer_wire::checksum::update(sum, old, new);
                    frame[24..26].copy_from_slice(&sum.to_be_bytes());
                } else {
                    frame[14] = 0x60 | dscp >> 2;
                    frame[15] = dscp << 6;
                }
                bench.offer(Instant(SECOND), 0, &frame);
            }
        }
        // Ten turns of ten frames, the last of which ends after a tenth of a second.
        bench.run_until(Instant(SECOND + 100 * MS));
        let served: Vec<(u64, u64)> = bench.router.class_counters().iter().map(|c| (c.served, c.dropped)).collect();
        assert_eq!(served, [(70, 30), (20, 80), (10, 0)], "{family}");
        assert_eq!((bench.sent.len(), bench.router.truth().dropped.buffer), (100, 110));
        bench.check_sums();
        bench.run_until(Instant(2 * SECOND));
        assert_eq!((bench.router.truth().forwarded, bench.router.truth().queued), (190, 0), "nothing is left behind");
        bench.check_sums();
    }
    assert!(Router::new(Config { classes: classes.clone(), ..config(2) }).is_err(), "no capacity to share");
    let sag = Some(Sag { from: Instant(0), capacity_pps: 1 });
    let faults = Faults { sag, ..Faults::default() };
    assert!(Router::new(Config { classes, capacity_pps: Some(1), faults, ..config(2) }).is_err());
}
