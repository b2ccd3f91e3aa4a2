//! The reference router: whatever comes in, and whatever it does wrong, its counts add up and what it sends is sound.

use super::frames::{Stations, assert_checksums, assert_sound, frame};
use super::input::Input;
use super::provider;
use drophammer_model::Instant;
use drophammer_model::quantity::Bandwidth;
use drophammer_model::role::{Policy, PolicySource, PolicyTarget, Tunnel};
use drophammer_reference::{
    Config, Corrupt, DropAtLowLoad, Faults, Hold, Misroute, NOBODY, OwnFrames, PortConfig, Reorder, Route, Router, Sag,
    Truth, WrongNextHop,
};
use drophammer_wire::MacAddr;
use std::time::Duration;

fn faults(input: &mut Input, now: Instant) -> Faults {
    let chosen = input.u16();
    let on = |bit: u32| chosen & 1 << bit != 0;
    let every = u64::from(input.u8() % 8);
    Faults {
        drop_every: if on(0) { every } else { 0 },
        drop_share: if on(1) { 0.25 } else { 0.0 },
        drop_window: on(2).then(|| (now, now + Duration::from_micros(u64::from(input.u16())))),
        corrupt: on(3).then(|| Corrupt {
            every,
            offset: input.flag().then(|| usize::from(input.u16())),
            fix_checksum: input.flag(),
        }),
        misroute: on(4).then(|| Misroute { every, to_port: input.below(2) }),
        duplicate_every: if on(5) { every } else { 0 },
        hold: on(6).then(|| Hold { every, time: Duration::from_micros(u64::from(input.u16())) }),
        reorder: on(7).then(|| Reorder { every, positions: u64::from(input.u8() % 6) }),
        sag: on(8).then(|| Sag { from: now, capacity_pps: 1 + u64::from(input.u32() % 1_000_000_000) }),
        own_frames: on(9).then(|| OwnFrames { interval: Duration::from_millis(20), port: input.below(2) }),
        counter_error: if on(10) { -1 } else { 0 },
        drop_at_low_load: on(11).then(|| DropAtLowLoad { every, interval: Duration::from_micros(50), below_frames: 2 }),
        wrong_next_hop: on(12).then_some(WrongNextHop { every, mac: NOBODY }),
        ..Faults::default()
    }
}

fn config(input: &mut Input, stations: &Stations) -> Config {
    let port = |i: usize, input: &mut Input| PortConfig {
        ipv4: Some((stations.ipv4[i], [24, 30, 31, 32][input.below(4)])),
        ipv6: Some((stations.ipv6[i], [64, 127][input.below(2)])),
        mtu: [1500, 1280, 576][input.below(3)],
        speed: input.flag().then(|| Bandwidth(1 + u64::from(input.u32()))),
        egress_buffer: 1 + input.below(8),
        ..PortConfig::new(stations.macs[i])
    };
    // One tunnel to a station on each port; what comes out of the first goes on by a policy.
    let tunnel = |i: usize, mtu: u32| Tunnel { local: stations.ipv4[i], remote: stations.ipv4[i + 2], mtu };
    let on = PolicyTarget::NextHop { via: stations.ipv4[3], interface: 1 };
    let mut policies = vec![Policy { from: PolicySource::Tunnel(0), to: on }];
    let ports = vec![port(0, input), port(1, input)];
    if ports[0].egress_buffer.is_multiple_of(2) {
        policies.push(Policy { from: PolicySource::Interface(1), to: PolicyTarget::Tunnel(0) });
    }
    Config {
        ports,
        tunnels: vec![tunnel(0, 1476), tunnel(1, 600)],
        policies,
        routes: vec![
            Route { prefix: "198.19.0.0".parse().unwrap(), prefix_len: 16, port: 1, next_hop: stations.ipv4[3].into() },
            Route { prefix: "2001:2:1::".parse().unwrap(), prefix_len: 48, port: 1, next_hop: stations.ipv6[3].into() },
        ],
        capacity_pps: input.flag().then(|| 1 + u64::from(input.u32() % 1_000_000_000)),
        buffer: 1 + input.below(8),
        delay: Duration::from_nanos(u64::from(input.u16())),
        jitter: Duration::from_nanos(u64::from(input.u16())),
        seed: 3,
        faults: faults(input, Instant(1)),
        ..Config::default()
    }
}

fn assert_conserved(truth: &Truth) {
    assert_eq!(truth.received, truth.control + truth.ignored + truth.transit, "{truth:?}");
    let gone = truth.forwarded + truth.dropped.total() + truth.queued;
    assert_eq!(truth.transit + truth.duplicated, gone, "{truth:?}");
}

/// Stations on both ports of a router, by the input's configuration, frames, times and faults. Inputs that begin with `core` are for a
/// provider's router.
pub fn run(data: &[u8]) {
    if let Some(rest) = data.strip_prefix(b"core") {
        return provider::run(rest);
    }
    let mut input = Input(data);
    let stations = Stations {
        macs: [MacAddr::local(1), MacAddr::local(2)],
        ipv4: ["198.18.0.1", "198.18.1.1", "198.18.0.2", "198.18.1.2"].map(|a| a.parse().unwrap()),
        ipv6: ["2001:2::1", "2001:2:0:1::1", "2001:2::2", "2001:2:0:1::2"].map(|a| a.parse().unwrap()),
    };
    let mut router = Router::new(config(&mut input, &stations)).unwrap();
    let mut now = Instant(1);
    let mut last_out = Instant(0);
    let (mut sent, mut received) = (0u64, 0u64);
    while !input.is_empty() {
        match input.below(8) {
            0 => {
                now = now + Duration::from_nanos(u64::from(input.u32()));
                poll(&mut router, now, &mut last_out, &mut sent);
            }
            1 => now = now + Duration::from_nanos(u64::from(input.u16())),
            2 => router.set_faults(faults(&mut input, now)).unwrap(),
            3 => {
                let prefix = stations.ipv4[input.below(4)].into();
                let (prefix_len, port) = (input.u8() % 33, input.below(2));
                if input.flag() {
                    router.add_route(Route { prefix, prefix_len, port, next_hop: stations.ipv4[3].into() }).unwrap();
                } else {
                    router.remove_route(prefix, prefix_len);
                }
            }
            _ => {
                let port = input.below(2);
                let frame = frame(&mut input, &stations);
                router.receive(now, port, &frame);
                received += 1;
            }
        }
        assert_conserved(router.truth());
        assert_eq!(router.truth().received, received);
    }
    // All that is under way comes out, or is given up, in the end: a line of 1 bit/s takes hours for each of its frames.
    router.set_faults(Faults::default()).unwrap();
    for _ in 0..40 {
        now = router.next_deadline().map_or(now, |next| next.max(now)) + Duration::from_secs(3_600);
        poll(&mut router, now, &mut last_out, &mut sent);
    }
    let truth = *router.truth();
    assert_conserved(&truth);
    assert_eq!(truth.queued, 0, "{truth:?}");
    let own = truth.own_frames + truth.icmp_errors + truth.echo_replies;
    assert_eq!(sent, truth.forwarded + own + truth.resolution_replies + truth.resolution_requests, "{truth:?}");
}

fn poll(router: &mut Router, now: Instant, last_out: &mut Instant, sent: &mut u64) {
    let before = *router.truth();
    let mut out = Vec::new();
    router.poll(now, &mut |at, port, frame| {
        assert!(at >= *last_out && at <= now && port < 2, "{at:?} after {last_out:?}, polled at {now:?}");
        *last_out = at;
        assert_checksums(frame);
        out.push(frame.to_vec());
    });
    *sent += out.len() as u64;
    let transit = router.truth().forwarded - before.forwarded;
    assert!(transit <= out.len() as u64);
    if transit == 0 {
        out.iter().for_each(|frame| assert_sound(frame));
    }
    assert!(router.next_deadline().is_none_or(|next| next > now), "it would be polled for ever");
}
