//! Which frames the device forwards, when it forwards them, and which it drops.

use crate::common::*;
use drophammer_model::Instant;
use drophammer_model::quantity::Bandwidth;
use drophammer_model::trial::Family;
use drophammer_wire::{MacAddr, icmpv4, icmpv6, ipv4, ipv6};
use std::time::Duration;

#[test]
fn frames_go_to_the_right_port_with_one_hop_less() {
    let mut bench = Bench::new(config(3));
    for (i, (to, family)) in
        [(1, Family::Ipv4), (2, Family::Ipv4), (1, Family::Ipv6), (2, Family::Ipv6)].into_iter().enumerate()
    {
        bench.offer(Instant(1_000 + i as u64), 0, &Test::new(0, to, family).frame(i as u32));
    }
    let sent = bench.finish();
    assert_eq!(sent.iter().map(|s| s.1).collect::<Vec<_>>(), [1, 2, 1, 2]);
    for (i, (at, port, frame)) in sent.iter().enumerate() {
        assert_eq!(*at, Instant(1_000 + i as u64), "no capacity, no delay: at once");
        assert_eq!(read(frame), Some(Seen { number: i as u32, ttl: 63, intact: true }));
        assert_eq!(frame[..6], MacAddr::local(0x200 + *port as u64).0);
        assert_eq!(frame[6..12], MacAddr::local(0x100 + *port as u64).0);
    }
    let t = bench.router.truth();
    assert_eq!((t.transit, t.forwarded, t.test_frames, t.dropped.total()), (4, 4, 4, 0));
    bench.check_sums();
}

#[test]
fn everything_but_ttl_checksum_and_macs_is_left_alone() {
    let mut bench = Bench::new(config(2));
    let frame = Test { size: 1518, ..Test::new(0, 1, Family::Ipv4) }.frame(5);
    bench.offer(Instant(0), 0, &frame);
    let sent = bench.finish();
    let differs: Vec<_> = (0..frame.len()).filter(|i| frame[*i] != sent[0].2[*i]).collect();
    assert_eq!(sent[0].2.len(), frame.len());
    assert!(differs.iter().all(|i| *i < 12 || [22, 24, 25].contains(i)), "{differs:?}");
}

#[test]
fn departures_are_service_plus_delay_plus_line() {
    let mut config = config(2);
    config.capacity_pps = Some(300_000);
    config.delay = Duration::from_micros(10);
    config.ports[1].speed = Some(Bandwidth(1_000_000_000));
    let mut bench = Bench::new(config);
    for i in 0..6 {
        bench.offer(Instant(SECOND), 0, &Test::new(0, 1, Family::Ipv4).frame(i));
    }
    // 3333 1/3 ns of service each, rounded up; 10 us; 672 ns on the line.
    let expected = [3_334, 6_667, 10_000, 13_334, 16_667, 20_000].map(|ns| Instant(SECOND + ns + 10_672));
    assert_eq!(bench.finish().iter().map(|s| s.0).collect::<Vec<_>>(), expected);
}

#[test]
fn jitter_stays_in_its_width_and_keeps_order() {
    let departures = |seed| {
        let mut config = config(2);
        (config.delay, config.jitter, config.seed) = (Duration::from_nanos(500), Duration::from_nanos(1_000), seed);
        let mut bench = Bench::new(config);
        for i in 0..2_000u32 {
            bench.offer(Instant(SECOND + u64::from(i) * 300), 0, &Test::new(0, 1, Family::Ipv4).frame(i));
        }
        let sent = bench.finish();
        assert_eq!(numbers(&sent), (0..2_000).collect::<Vec<_>>());
        let delays: Vec<_> = sent.iter().enumerate().map(|(i, s)| s.0.0 - SECOND - i as u64 * 300).collect();
        assert!(delays.iter().all(|d| (500..=1_500).contains(d)));
        assert!(delays.iter().max().unwrap() - delays.iter().min().unwrap() > 900);
        delays
    };
    assert_eq!(departures(1), departures(1));
    assert_ne!(departures(1), departures(2));
}

#[test]
fn a_burst_beyond_the_buffer_is_lost_to_the_frame() {
    let mut config = config(2);
    (config.capacity_pps, config.buffer) = (Some(1_000_000), 512);
    let mut bench = Bench::new(config);
    for i in 0..2_000 {
        bench.offer(Instant(SECOND), 0, &Test::new(0, 1, Family::Ipv6).frame(i));
    }
    assert_eq!(numbers(&bench.finish()), (0..512).collect::<Vec<_>>());
    assert_eq!(bench.router.truth().dropped.buffer, 2_000 - 512);
    assert_eq!(bench.router.counters(0).unwrap().in_discards, 2_000 - 512);
    bench.check_sums();
}

#[test]
fn a_slow_line_drops_behind_its_own_buffer() {
    let mut config = config(2);
    config.ports[1].speed = Some(Bandwidth(10_000_000));
    config.ports[1].egress_buffer = 10;
    let mut bench = Bench::new(config);
    for i in 0..25 {
        bench.offer(Instant(SECOND), 0, &Test::new(0, 1, Family::Ipv4).frame(i));
    }
    let sent = bench.finish();
    assert_eq!(numbers(&sent), (0..10).collect::<Vec<_>>());
    assert_eq!(sent[9].0, Instant(SECOND + 10 * 67_200));
    assert_eq!(bench.router.truth().dropped.egress, 15);
    assert_eq!(bench.router.counters(1).unwrap().out_discards, 15);
}

#[test]
fn what_must_not_be_forwarded_is_not_and_is_counted_by_cause() {
    let mut bench = Bench::new(config(2));
    let good = Test::new(0, 1, Family::Ipv4);
    let good6 = Test::new(0, 1, Family::Ipv6);
    let broken = |at: usize, value: u8| {
        let mut frame = good.frame(0);
        frame[at] = value;
        frame
    };
    let at = |i: u64| Instant(SECOND + i * MS);
    let frames = [
        Test { ttl: 1, ..good }.frame(0),
        Test { ttl: 0, ..good }.frame(0),
        Test { ttl: 1, ..good6 }.frame(0),
        broken(24, 0xaa),
        broken(14, 0x44),
        broken(14, 0x65),
        broken(16, 0x20),
        Test { destination: "203.0.113.1".parse().unwrap(), ..good }.frame(0),
        Test { destination: "2001:db8::1".parse().unwrap(), ..good6 }.frame(0),
        Test { destination: net4(1, 255).into(), ..good }.frame(0),
        Test { size: 1519, ..good }.frame(0),
        Test { size: 1519, ..good6 }.frame(0),
        broken(5, 0x77),
        Test { destination: "224.0.0.5".parse().unwrap(), ..good }.frame(0),
        Test { destination: "127.0.0.1".parse().unwrap(), ..good }.frame(0),
        Test { source: "fe80::9".parse().unwrap(), ..good6 }.frame(0),
        vec![1, 2, 3],
    ];
    for (i, frame) in frames.iter().enumerate() {
        bench.offer(at(i as u64), 0, frame);
    }
    let sent = bench.finish();
    assert!(numbers(&sent).is_empty(), "{:?}", numbers(&sent));
    let d = bench.router.truth().dropped;
    assert_eq!((d.ttl, d.checksum, d.malformed, d.no_route, d.mtu), (3, 1, 3, 3, 2));
    assert_eq!(d.total(), 12);
    assert_eq!(bench.router.truth().ignored, 5);
    bench.check_sums();
    // Each of the eight that require one gets an ICMP error that quotes it.
    let mut kinds = Vec::new();
    for (_, port, frame) in &sent {
        assert_eq!((*port, &frame[..6]), (0, &MacAddr::local(0x200).0[..]));
        if let Ok((ip, payload)) = ipv4::Repr::parse(&frame[14..]) {
            assert_eq!((ip.source, ip.destination), (net4(0, 1), behind4(0, 9)));
            kinds.push(match icmpv4::Repr::parse(payload).unwrap() {
                icmpv4::Repr::TimeExceeded { code: 0, original } if original[..20] == frames[0][14..34] => "ttl",
                icmpv4::Repr::TimeExceeded { .. } => "ttl 0",
                icmpv4::Repr::DestinationUnreachable { code: 0, .. } => "net",
                icmpv4::Repr::DestinationUnreachable { code: 4, next_hop_mtu: 1500, .. } => "big",
                other => panic!("{other:?}"),
            });
        } else {
            let (ip, payload) = ipv6::Repr::parse(&frame[14..]).unwrap();
            kinds.push(match icmpv6::Repr::parse(payload, ip.pseudo_header_sum()).unwrap() {
                icmpv6::Repr::TimeExceeded { code: 0, .. } => "ttl6",
                icmpv6::Repr::DestinationUnreachable { code: 0, .. } => "net6",
                icmpv6::Repr::PacketTooBig { mtu: 1500, original } => {
                    assert_eq!(original.len(), 1280 - 48);
                    "big6"
                }
                other => panic!("{other:?}"),
            });
        }
    }
    assert_eq!(kinds, ["ttl", "ttl 0", "ttl6", "net", "net6", "net", "big", "big6"]);
}

#[test]
fn icmp_errors_keep_to_their_rate() {
    let mut config = config(2);
    config.icmp_errors_per_second = 10;
    let mut bench = Bench::new(config);
    for i in 0..3_000 {
        bench.offer(Instant(SECOND + i * MS), 0, &Test { ttl: 1, ..Test::new(0, 1, Family::Ipv4) }.frame(0));
    }
    assert_eq!(bench.finish().len(), 30);
    let t = bench.router.truth();
    assert_eq!((t.icmp_errors, t.icmp_suppressed, t.dropped.ttl), (30, 2_970, 3_000));
}

#[test]
fn conformant_searches_need_millions_of_frames_per_second() {
    let mut config = config(2);
    (config.capacity_pps, config.buffer, config.delay) = (Some(5_000_000), 512, Duration::from_micros(5));
    let mut bench = Bench::new(config);
    let frame = Test::new(0, 1, Family::Ipv4).frame(0);
    let frames = 1_000_000u64;
    let start = std::time::Instant::now();
    let mut departed = 0u64;
    for i in 0..frames {
        let now = Instant(SECOND + i * 200);
        bench.router.receive(now, 0, &frame);
        bench.router.poll(now, &mut |_, _, _| departed += 1);
    }
    bench.router.poll(Instant(10 * SECOND), &mut |_, _, _| departed += 1);
    let rate = frames as f64 / start.elapsed().as_secs_f64();
    assert_eq!(departed, frames);
    println!("{:.2} million frames per second", rate / 1e6);
    // Far below its speed even without optimisation; the limit detects a slowdown by a large factor.
    assert!(rate > 100_000.0, "{rate} frames per second");
}
