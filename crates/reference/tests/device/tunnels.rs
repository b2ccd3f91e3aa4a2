//! GRE tunnels and policies, to the byte.

use crate::common::*;
use drophammer_model::Instant;
use drophammer_model::role::{Policy, PolicySource, PolicyTarget, TUNNEL_OVERHEAD, Tunnel};
use drophammer_model::traffic::{FieldName, Header, HeaderKind};
use drophammer_model::trial::Family;
use drophammer_reference::{Config, ConfigError, Faults, Router, TunnelCounters};
use drophammer_wire::stack::{decode, is_intact};
use drophammer_wire::{ethernet, ipv4};

/// A tunnel to the station on the second port: packets that arrive on the first port enter it, and packets from
/// the tunnel go to the first port.
fn tunnelled() -> Config {
    let mut config = config(2);
    config.ports[1].mtu = 1500 + TUNNEL_OVERHEAD;
    config.tunnels = vec![Tunnel { local: net4(1, 1), remote: net4(1, 2), mtu: 1500 }];
    config.policies = vec![
        Policy { from: PolicySource::Interface(0), to: PolicyTarget::Tunnel(0) },
        Policy { from: PolicySource::Tunnel(0), to: PolicyTarget::NextHop { via: net4(0, 2), interface: 0 } },
    ];
    config
}

/// The same frame from the other end of the tunnel.
fn returned(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let (packet, swapped) = (ethernet::LEN, [frame[6..12].to_vec(), frame[..6].to_vec()].concat());
    frame[..12].copy_from_slice(&swapped);
    let swapped = [frame[packet + 16..packet + 20].to_vec(), frame[packet + 12..packet + 16].to_vec()].concat();
    frame[packet + 12..packet + 20].copy_from_slice(&swapped);
    frame
}

fn values(frame: &[u8], kind: HeaderKind, name: FieldName) -> Vec<u128> {
    let headers = decode(frame).headers;
    let of_kind = headers.iter().filter(|header| header.kind() == kind);
    of_kind.map(|header| header.field(name).map_or(0, |field| field.bits(0))).collect()
}

/// To hosts without a route: only policies lead there.
fn nowhere() -> Test {
    Test { destination: "100.126.0.9".parse().unwrap(), ..Test::new(0, 1, Family::Ipv4) }
}

#[test]
fn a_packet_goes_into_the_tunnel_and_comes_out_of_it() {
    let mut bench = Bench::new(tunnelled());
    let (small, large) = (nowhere(), Test { size: 1518, ..nowhere() });
    bench.offer(Instant(SECOND), 0, &small.frame(1));
    bench.offer(Instant(SECOND), 0, &large.frame(2));
    let sent = bench.finish();
    assert_eq!(sent.len(), 2);
    for ((_, port, frame), inner) in sent.iter().zip([46, 1500]) {
        assert_eq!((*port, frame.len()), (1, ethernet::LEN + 24 + inner));
        let kinds: Vec<_> = decode(frame).headers.iter().map(Header::kind).collect();
        let tunnel = [HeaderKind::Ethernet, HeaderKind::Ipv4, HeaderKind::Gre, HeaderKind::Ipv4, HeaderKind::Udp];
        assert_eq!(kinds[..5], tunnel);
        assert!(is_intact(frame));
        assert_eq!(values(frame, HeaderKind::Ipv4, FieldName::Ttl), [64, 63]);
        assert_eq!(values(frame, HeaderKind::Ipv4, FieldName::DontFragment), [1, 1]);
        let address = |port, host| u128::from(net4(port, host).to_bits());
        assert_eq!(values(frame, HeaderKind::Ipv4, FieldName::Source)[0], address(1, 1));
        assert_eq!(values(frame, HeaderKind::Ipv4, FieldName::Destination)[0], address(1, 2));
    }
    let out = TunnelCounters { out_packets: 2, out_octets: 1546, ..TunnelCounters::default() };
    assert_eq!(bench.router.tunnel_counters(0), Some(out));
    // From the other end: one more router has decremented the TTL, and the padding of the line is there again.
    let back: Vec<_> = sent.iter().map(|(_, _, frame)| returned(frame)).collect();
    for frame in &back {
        bench.offer(Instant(2 * SECOND), 1, frame);
    }
    let sent = bench.finish();
    let seen: Vec<_> = sent.iter().map(|(_, port, frame)| (*port, frame.len(), read(frame).unwrap())).collect();
    assert_eq!(
        seen,
        [(0, 60, Seen { number: 1, ttl: 62, intact: true }), (0, 1514, Seen { number: 2, ttl: 62, intact: true })]
    );
    let both = TunnelCounters { in_packets: 2, in_octets: 1546, ..out };
    assert_eq!((bench.router.tunnel_counters(0), bench.router.tunnel_counters(1)), (Some(both), None));
    bench.check_sums();
    let frames: Vec<_> = back.iter().map(|frame| (0, &frame[..])).collect();
    let fields = ["frame.protocols", "_ws.malformed", "ip.checksum.status", "gre.proto"];
    if let Some(lines) = crate::tshark::decode("tunnels", &frames, &fields) {
        for line in lines {
            assert!(line[0].contains("ip:gre:ip:udp") && line[1].is_empty(), "{line:?}");
            assert_eq!(line[3], "0x0800");
        }
    }
}

#[test]
fn a_ttl_that_ends_behind_the_tunnel_is_reported_by_the_routes() {
    let mut bench = Bench::new(tunnelled());
    bench.offer(Instant(SECOND), 0, &Test { ttl: 2, ..nowhere() }.frame(1));
    let sent = bench.finish();
    bench.offer(Instant(2 * SECOND), 1, &returned(&sent[0].2));
    let sent = bench.finish();
    // The source is behind the first port, although the packet arrived on the second.
    let [(_, 0, error)] = &sent[..] else { panic!("{sent:?}") };
    let (ip, message) = ipv4::Repr::parse(&error[ethernet::LEN..]).unwrap();
    assert_eq!((ip.source, ip.destination), (net4(0, 1), behind4(0, 9)));
    assert_eq!((message[0], message[1], message[8 + 16]), (11, 0, 100), "time exceeded, about the packet inside");
    assert_eq!((bench.router.truth().dropped.ttl, bench.router.truth().icmp_errors), (1, 1));
    bench.check_sums();
}

#[test]
fn what_is_too_large_for_the_tunnel_is_dropped() {
    let mut config = tunnelled();
    config.tunnels[0].mtu = 1400;
    let mut bench = Bench::new(config);
    let large = Test { size: 1419, ..nowhere() };
    bench.offer(Instant(SECOND), 0, &large.frame(1));
    let mut may_fragment = large.frame(2);
    may_fragment[ethernet::LEN + 6] = 0;
    let sum = drophammer_wire::checksum::update(
        u16::from_be_bytes([may_fragment[ethernet::LEN + 10], may_fragment[ethernet::LEN + 11]]),
        0x4000,
        0,
    );
    may_fragment[ethernet::LEN + 10..ethernet::LEN + 12].copy_from_slice(&sum.to_be_bytes());
    bench.offer(Instant(SECOND), 0, &may_fragment);
    bench.offer(Instant(SECOND), 0, &Test { size: 1418, ..nowhere() }.frame(3));
    let sent = bench.finish();
    assert_eq!(bench.router.truth().dropped.mtu, 2);
    let errors: Vec<_> = sent.iter().filter(|(_, port, _)| *port == 0).collect();
    let [(_, _, error)] = &errors[..] else { panic!("{sent:?}") };
    let (_, message) = ipv4::Repr::parse(&error[ethernet::LEN..]).unwrap();
    assert_eq!((&message[..2], &message[6..8]), (&[3, 4][..], &1400u16.to_be_bytes()[..]));
    assert_eq!(sent.len(), 2);
    bench.check_sums();
}

#[test]
fn other_packets_of_gre_are_not_those_of_the_tunnel() {
    let mut bench = Bench::new(tunnelled());
    bench.offer(Instant(SECOND), 0, &nowhere().frame(1));
    let good = returned(&bench.finish()[0].2);
    let at = ethernet::LEN + ipv4::LEN;
    let mut keyed = good.clone();
    keyed[at] = 0x20;
    let mut inside = good.clone();
    inside[at + 4 + 10] ^= 1;
    for frame in [&keyed, &inside] {
        bench.offer(Instant(2 * SECOND), 1, frame);
    }
    assert_eq!(bench.finish(), []);
    let truth = bench.router.truth();
    assert_eq!((truth.dropped.malformed, truth.dropped.checksum), (1, 1));
    // A packet from another address belongs to no tunnel and is dropped.
    let mut stranger = good;
    let mut header = ipv4::Repr::parse(&stranger[ethernet::LEN..]).unwrap().0;
    header.source = net4(1, 3);
    header.emit(&mut stranger[ethernet::LEN..]);
    bench.offer(Instant(3 * SECOND), 1, &stranger);
    assert_eq!(bench.finish(), []);
    assert_eq!(bench.router.tunnel_counters(0).unwrap().in_packets, 1);
    bench.check_sums();
}

#[test]
fn faults_of_tunnels_and_policies_are_exact() {
    let sent = |faults: Faults| {
        let mut bench = Bench::new(Config { faults, ..tunnelled() });
        for number in 0..7 {
            let test = Test::new(0, 1, Family::Ipv4);
            bench.offer(Instant(SECOND), 0, &test.frame(number));
        }
        let sent = bench.finish();
        bench.check_sums();
        (sent, *bench.router.truth())
    };
    let (lost, truth) = sent(Faults { tunnel_drop_every: 3, ..Faults::default() });
    assert_eq!((lost.len(), truth.dropped.fault_tunnel, truth.tunnelled), (5, 2, 7));
    let (kept, truth) = sent(Faults { tunnel_keeps_ttl: true, ..Faults::default() });
    assert_eq!((values(&kept[6].2, HeaderKind::Ipv4, FieldName::Ttl), truth.ttl_kept), (vec![64, 64], 7));
    let (plain, truth) = sent(Faults { policy_ignored: true, ..Faults::default() });
    assert_eq!((numbers(&plain), truth.tunnelled), ((0..7).collect(), 0));
}

#[test]
fn tunnels_and_policies_that_cannot_be_are_refused() {
    let refused = |change: fn(&mut Config)| {
        let mut config = tunnelled();
        change(&mut config);
        Router::new(config).map(|_| ()).unwrap_err()
    };
    assert!(matches!(refused(|c| c.tunnels[0].local = net4(1, 7)), ConfigError::Tunnel(..)));
    assert!(matches!(refused(|c| c.tunnels.push(c.tunnels[0])), ConfigError::Tunnel(..)));
    assert_eq!(refused(|c| c.policies[0].from = PolicySource::Interface(2)), ConfigError::NoSuchPort(2));
    assert!(matches!(refused(|c| c.policies[0].to = PolicyTarget::Tunnel(1)), ConfigError::Limit(_)));
    assert!(matches!(refused(|c| c.policies.push(c.policies[0])), ConfigError::Limit(_)));
}
