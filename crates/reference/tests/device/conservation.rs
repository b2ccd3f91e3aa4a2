//! Under any configuration no frame appears or vanishes without being counted.

use crate::common::*;
use drophammer_model::Instant;
use drophammer_model::quantity::Bandwidth;
use drophammer_model::trial::Family;
use drophammer_reference::{
    Config, Corrupt, DropAtLowLoad, Faults, Hold, Misroute, NOBODY, Reorder, Sag, WrongNextHop,
};
use proptest::prelude::*;
use std::time::Duration;

fn faults() -> impl Strategy<Value = Faults> {
    let every = || prop_oneof![Just(0u64), 1u64..12];
    (
        (every(), 0.0..0.5f64, proptest::option::of((0u64..200_000, 0u64..400_000))),
        (every(), proptest::option::of(0usize..64), any::<bool>(), every(), 0usize..3),
        (every(), every(), 0u64..200_000_000, every(), 0u64..6),
        (proptest::option::of((0u64..300_000, 1u64..2_000_000)), every(), every(), 0u64..20),
    )
        .prop_map(
            |(
                (drop_every, drop_share, window),
                (c, offset, fix_checksum, m, to_port),
                (d, h, time, r, positions),
                (sag, w, l, below_frames),
            )| {
                Faults {
                    drop_every,
                    drop_share: if drop_share < 0.25 { 0.0 } else { drop_share },
                    drop_window: window.map(|(a, b)| (Instant(SECOND + a), Instant(SECOND + b))),
                    corrupt: Some(Corrupt { every: c, offset, fix_checksum }),
                    misroute: Some(Misroute { every: m, to_port }),
                    duplicate_every: d,
                    hold: Some(Hold { every: h, time: Duration::from_nanos(time) }),
                    reorder: Some(Reorder { every: r, positions }),
                    sag: sag.map(|(from, capacity_pps)| Sag { from: Instant(SECOND + from), capacity_pps }),
                    wrong_next_hop: Some(WrongNextHop { every: w, mac: NOBODY }),
                    drop_at_low_load: Some(DropAtLowLoad {
                        every: l,
                        interval: Duration::from_micros(10),
                        below_frames,
                    }),
                    ..Faults::default()
                }
            },
        )
}

fn any_config() -> impl Strategy<Value = Config> {
    (
        faults(),
        (proptest::option::of(1u64..5_000_000), 1usize..40, 0u64..50_000, 0u64..50_000, any::<u64>()),
        proptest::option::of(1_000_000u64..10_000_000_000),
        1usize..30,
    )
        .prop_map(|(faults, (capacity_pps, buffer, delay, jitter, seed), speed, egress_buffer)| {
            let mut config = Config { faults, capacity_pps, buffer, seed, ..config(3) };
            (config.delay, config.jitter) = (Duration::from_nanos(delay), Duration::from_nanos(jitter));
            for port in &mut config.ports {
                (port.speed, port.egress_buffer) = (speed.map(Bandwidth), egress_buffer);
            }
            config
        })
}

#[derive(Clone, Debug)]
struct Offered {
    gap: u64,
    from: usize,
    to: usize,
    v6: bool,
    ttl: u8,
    size: usize,
    known: bool,
    /// Byte to corrupt, if any.
    broken: Option<(usize, u8)>,
}

fn offered() -> impl Strategy<Value = Offered> {
    let broken = proptest::option::weighted(0.1, (0usize..60, any::<u8>()));
    (prop_oneof![Just(0u64), 0u64..3_000], 0usize..3, 0usize..3, any::<bool>(), 0u8..8, 66usize..140, 0u8..10, broken)
        .prop_map(|(gap, from, to, v6, ttl, size, known, broken)| Offered {
            gap,
            from,
            to,
            v6,
            ttl,
            size: if v6 { size + 20 } else { size },
            known: known > 0,
            broken,
        })
}

proptest! {
    #[test]
    fn in_is_out_and_dropped_and_queued(config in any_config(), load in proptest::collection::vec(offered(), 0..300), cold: bool) {
        let mut bench = if cold { Bench::cold(config) } else { Bench::new(config) };
        let before = *bench.router.truth();
        let mut now = SECOND;
        for (i, o) in load.iter().enumerate() {
            let family = if o.v6 { Family::Ipv6 } else { Family::Ipv4 };
            let mut test = Test { ttl: o.ttl, size: o.size, ..Test::new(o.from, o.to, family) };
            if !o.known {
                test.destination = if o.v6 { "2001:db8::1".parse().unwrap() } else { "203.0.113.1".parse().unwrap() };
            }
            let mut frame = test.frame(i as u32);
            if let Some((at, value)) = o.broken {
                frame[at] = value;
            }
            now += o.gap;
            bench.offer(Instant(now), o.from, &frame);
            bench.check_sums();
        }
        let end = now;
        bench.run_until(Instant(end));
        bench.check_sums();
        let sent = {
            let mut sent = std::mem::take(&mut bench.sent);
            sent.extend(bench.finish());
            sent
        };
        bench.check_sums();
        let t = bench.router.truth();
        prop_assert_eq!(t.queued, 0);
        prop_assert_eq!(t.reordered + t.reorder_expired <= t.test_frames, true);
        // The frames that left are those that the device counted, in order of time.
        let own = t.icmp_errors + t.echo_replies + t.resolution_requests + t.resolution_replies
            - before.icmp_errors - before.echo_replies - before.resolution_requests - before.resolution_replies;
        prop_assert_eq!(sent.len() as u64, t.forwarded - before.forwarded + own);
        prop_assert!(sent.windows(2).all(|w| w[0].0 <= w[1].0));
        let out: u64 = (0..3).map(|p| bench.router.counters(p).unwrap()).map(|c| c.out_unicast + c.out_group).sum();
        prop_assert_eq!(out, t.forwarded + t.icmp_errors + t.echo_replies + t.resolution_requests + t.resolution_replies);
    }

    #[test]
    fn arbitrary_frames_never_panic(bodies in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..120), 0usize..5, any::<bool>()), 0..40)) {
        let mut bench = Bench::new(Config { faults: Faults { corrupt: Some(Corrupt { every: 1, offset: None, fix_checksum: true }), ..Faults::default() }, ..config(2) });
        for (i, (mut body, kind, group)) in bodies.into_iter().enumerate() {
            if kind < 4 {
                let mut frame = if group { vec![0xff; 6] } else { drophammer_wire::MacAddr::local(0x100).0.to_vec() };
                frame.extend_from_slice(&[2, 0, 0, 0, 0, 9]);
                frame.extend_from_slice(&[[8u8, 0], [0x86, 0xdd], [8, 6], [0x88, 0xcc]][kind]);
                if let Some(first) = body.first_mut() {
                    *first = [0x45, 0x60, 0, 0][kind];
                }
                frame.append(&mut body);
                body = frame;
            }
            bench.offer(Instant(SECOND + i as u64), 0, &body);
            bench.check_sums();
        }
        bench.finish();
        bench.check_sums();
    }
}
