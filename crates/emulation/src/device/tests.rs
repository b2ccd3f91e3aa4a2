//! Tests of a single device: ARP, Neighbor Discovery, ping.

use super::*;
use crate::compose::{self, Link};
use crate::ping::{Echo, Ping, PingStats};
use drophammer_wire::ethernet::{self, ethertype};
use drophammer_wire::icmpv6::ndp;
use drophammer_wire::{arp, icmpv4, icmpv6, ipv4, ipv6};
use proptest::prelude::*;
use std::time::Duration;

mod many;

const BUDGET: usize = 64 << 10;

fn address4(own: u8, gateway: u8) -> Option<Address<Ipv4Addr>> {
    Some(Address { address: [198, 18, 1, own].into(), prefix_len: 24, gateway: [198, 18, 1, gateway].into() })
}

fn address6(own: u16, gateway: u16) -> Option<Address<Ipv6Addr>> {
    let at = |host| Ipv6Addr::new(0x2001, 2, 0, 1, 0, 0, 0, host);
    Some(Address { address: at(own), prefix_len: 64, gateway: at(gateway) })
}

/// A host at .2 whose gateway is a second host at .1.
fn pair() -> [Device; 2] {
    [(1, 2), (2, 1)].map(|(own, other)| {
        let mac = MacAddr::local(u64::from(own));
        Device::new(DeviceConfig {
            ipv4: address4(own, other),
            ipv6: address6(own.into(), other.into()),
            ..DeviceConfig::new(format!("d{own}"), mac, 0x1234_5678_9abc_def0 + u64::from(own))
        })
    })
}

/// Makes a device ping its gateway. False if the device does not use this family.
fn ping(device: &mut Device, now: Instant, family: Family) -> bool {
    device.command(now, "ping", &Command::Ping(Echo::gateway(family))).is_ok()
}

fn ping_stats(device: &Device, family: Family) -> PingStats {
    device.protocol::<Ping>().and_then(|ping| ping.stats(family)).unwrap()
}

/// Polls both devices once and exchanges frames until none is left; returns the frames.
fn exchange(hosts: &mut [Device; 2], now: Instant) -> Vec<(usize, Vec<u8>)> {
    let mut seen = Vec::new();
    for (i, host) in hosts.iter_mut().enumerate() {
        host.poll(now, BUDGET, &mut |f| seen.push((i, f.to_vec())));
    }
    let mut next = 0;
    while let Some((from, frame)) = seen.get(next).cloned() {
        hosts[1 - from].receive(now, &frame, &mut |f| seen.push((1 - from, f.to_vec())));
        next += 1;
    }
    seen
}

const BOTH: [Family; 2] = [Family::Ipv4, Family::Ipv6];

#[test]
fn two_hosts_find_each_other_and_ping() {
    let mut hosts = pair();
    assert_eq!(hosts[0].next_deadline(), Some(Instant(0)));
    assert!(!hosts[0].is_ready());
    assert!(BOTH.iter().all(|f| ping(&mut hosts[0], Instant(0), *f)), "asked before the gateway is known");
    let start = Instant(1_000);
    let frames = exchange(&mut hosts, start);
    assert!(hosts.iter().all(Device::is_ready));
    for family in BOTH {
        assert_eq!(hosts[0].gateway_mac(family), Some(hosts[1].mac()));
        assert_eq!(hosts[0].gateway_confirmed(family), Some(start));
        let stats = ping_stats(&hosts[0], family);
        assert_eq!((stats.sent, stats.received), (1, 1));
    }
    for (_, frame) in &frames {
        etherparse::SlicedPacket::from_ethernet(frame).unwrap();
    }
    assert_eq!(hosts[0].next_deadline(), Some(start + REFRESH));
    assert!(hosts.iter().all(|h| h.oddities() == Oddities::default()));
}

#[test]
fn the_gateway_is_refreshed_before_it_grows_stale() {
    let mut hosts = pair();
    exchange(&mut hosts, Instant(0));
    for _ in 0..10 {
        let due = hosts[0].next_deadline().unwrap();
        assert!(!exchange(&mut hosts, due).is_empty());
        assert_eq!(hosts[0].gateway_confirmed(Family::Ipv4), Some(due));
        assert_eq!(hosts[0].gateway_confirmed(Family::Ipv6), Some(due));
        assert_eq!(hosts[0].next_deadline(), Some(due + REFRESH));
    }
}

#[test]
fn a_silent_gateway_is_asked_again_and_pings_wait() {
    let [mut host, _] = pair();
    ping(&mut host, Instant(0), Family::Ipv4);
    let mut asked = Vec::new();
    while asked.len() < 12 {
        let now = host.next_deadline().unwrap();
        host.poll(now, BUDGET, &mut |f| asked.push((now.0 / 1_000_000, f[13])));
    }
    let times: Vec<_> = asked.iter().filter(|a| a.1 == 0x06).map(|a| a.0).collect();
    assert_eq!(times, [0, 100, 300, 700, 1500, 2500]);
    assert_eq!(asked.iter().filter(|a| a.1 == 0xdd).count(), 6);
    let stats = ping_stats(&host, Family::Ipv4);
    assert_eq!((stats.asked, stats.sent), (1, 0));
}

#[test]
fn announcements_move_the_gateway() {
    let mut hosts = pair();
    exchange(&mut hosts, Instant(0));
    let moved = MacAddr::local(77);
    let now = Instant(5_000_000_000);
    let mut frame = Vec::new();
    let gateway4 = Ipv4Addr::new(198, 18, 1, 2);
    compose::request(&mut frame, moved, gateway4, gateway4);
    hosts[0].receive(now, &frame, &mut |_| panic!("an announcement wants no answer"));
    assert_eq!(hosts[0].gateway_mac(Family::Ipv4), Some(moved));

    let gateway6 = address6(1, 2).unwrap().gateway;
    let all_nodes: Ipv6Addr = "ff02::1".parse().unwrap();
    let link = Link { source: moved, destination: ndp::multicast_mac(all_nodes) };
    for (over_ride, expected) in [(false, hosts[1].mac()), (true, moved)] {
        let na = ndp::Repr::NeighborAdvertisement {
            router: true,
            solicited: false,
            over_ride,
            target: gateway6,
            target_mac: Some(moved),
        };
        compose::icmpv6(&mut frame, link, gateway6, all_nodes, 255, &icmpv6::Repr::Ndp(na));
        hosts[0].receive(now, &frame, &mut |_| panic!("an advertisement wants no answer"));
        assert_eq!(hosts[0].gateway_mac(Family::Ipv6), Some(expected));
    }
    // An advertisement from another link (hop limit below 255) is ignored.
    let na = ndp::Repr::NeighborAdvertisement {
        router: true,
        solicited: false,
        over_ride: true,
        target: gateway6,
        target_mac: Some(MacAddr::local(99)),
    };
    compose::icmpv6(&mut frame, link, gateway6, all_nodes, 254, &icmpv6::Repr::Ndp(na));
    hosts[0].receive(now, &frame, &mut |_| {});
    assert_eq!(hosts[0].gateway_mac(Family::Ipv6), Some(moved));
    assert_eq!(hosts[0].oddities().malformed, 1);
}

#[test]
fn the_link_local_address_answers_and_so_does_duplicate_address_detection() {
    let [mut host, other] = pair();
    let target = ndp::link_local(host.mac());
    let mut frame = Vec::new();
    let mut answers = Vec::new();
    compose::solicitation(&mut frame, other.mac(), ndp::link_local(other.mac()), target);
    host.receive(Instant(0), &frame, &mut |f| answers.push(f.to_vec()));
    compose::solicitation(&mut frame, other.mac(), Ipv6Addr::UNSPECIFIED, target);
    host.receive(Instant(0), &frame, &mut |f| answers.push(f.to_vec()));
    let read = |frame: &[u8]| {
        let (ethernet, packet) = ethernet::Repr::parse(frame).unwrap();
        let (ip, message) = ipv6::Repr::parse(packet).unwrap();
        let icmpv6::Repr::Ndp(ndp::Repr::NeighborAdvertisement { solicited, target: t, target_mac, .. }) =
            icmpv6::Repr::parse(message, ip.pseudo_header_sum()).unwrap()
        else {
            panic!("not an advertisement")
        };
        assert_eq!((t, target_mac, ip.hop_limit), (target, Some(host.mac()), 255));
        (ethernet.destination, ip.destination, solicited)
    };
    assert_eq!(answers.len(), 2);
    assert_eq!(read(&answers[0]), (other.mac(), ndp::link_local(other.mac()), true));
    let all_nodes: Ipv6Addr = "ff02::1".parse().unwrap();
    assert_eq!(read(&answers[1]), ("33:33:00:00:00:01".parse().unwrap(), all_nodes, false));
}

#[test]
fn rtt_is_the_time_between_poll_and_receive() {
    let mut hosts = pair();
    exchange(&mut hosts, Instant(0));
    assert!(ping(&mut hosts[0], Instant(900), Family::Ipv6));
    assert_eq!(hosts[0].next_deadline(), Some(Instant(900)), "now");
    let (mut request, mut reply) = (Vec::new(), Vec::new());
    hosts[0].poll(Instant(1_000), BUDGET, &mut |f| request = f.to_vec());
    hosts[1].receive(Instant(1_000), &request, &mut |f| reply = f.to_vec());
    hosts[0].receive(Instant(43_000), &reply, &mut |_| panic!("a reply wants no answer"));
    hosts[0].receive(Instant(44_000), &reply, &mut |_| panic!("a reply wants no answer"));
    let stats = ping_stats(&hosts[0], Family::Ipv6);
    assert_eq!((stats.sent, stats.received, stats.last_rtt), (1, 1, Some(Duration::from_micros(42))));
}

#[test]
fn further_addresses_are_answered_for_like_its_own() {
    let [mut host, other] = pair();
    let (own, more, beyond) = ("198.18.1.1", "198.18.2.3", "198.18.2.4");
    assert!(
        host.add_addresses("198.18.1.100".parse().unwrap(), 160)
            && host.add_addresses("2001:2:0:1::100".parse().unwrap(), 16)
    );
    assert!(!host.add_addresses("198.18.1.100".parse().unwrap(), 0));
    // The gateway's address is in the range, but still belongs to the gateway.
    assert!(
        host.add_addresses("198.18.1.1".parse().unwrap(), 3) && host.add_addresses("2001:2:0:1::1".parse().unwrap(), 3)
    );
    let mut hosts = [host, other];
    exchange(&mut hosts, Instant(0));
    let [mut host, other] = hosts;
    assert!(host.is_ready() && host.oddities() == Oddities::default());
    let asker: Ipv4Addr = [198, 18, 1, 2].into();
    let link = Link { source: other.mac(), destination: host.mac() };
    let ask = |host: &mut Device, frame: &[u8]| {
        let mut answers = Vec::new();
        host.receive(Instant(0), frame, &mut |f| answers.push(f.to_vec()));
        answers
    };
    let mut frame = Vec::new();
    for (target, answered) in [(own, true), (more, true), (beyond, false)] {
        let target: Ipv4Addr = target.parse().unwrap();
        compose::request(&mut frame, other.mac(), asker, target);
        let answers = ask(&mut host, &frame);
        assert_eq!(answers.len(), usize::from(answered));
        if answered {
            let reply = arp::Repr::parse(&answers[0][14..]).unwrap();
            assert_eq!((reply.sender_ip, reply.sender_mac), (target, host.mac()));
        }
        let echo = icmpv4::Repr::EchoRequest { identifier: 1, sequence: 1, data: b"x" };
        compose::icmpv4(&mut frame, link, asker, target, 0, &echo);
        let answers = ask(&mut host, &frame);
        assert_eq!(answers.len(), usize::from(answered));
        if answered {
            assert_eq!(ipv4::Repr::parse(&answers[0][14..]).unwrap().0.source, target);
        }
    }
    let asker = ndp::link_local(other.mac());
    for (target, answered) in [("2001:2:0:1::ff", false), ("2001:2:0:1::100", true), ("2001:2:0:1::10f", true)] {
        let target: Ipv6Addr = target.parse().unwrap();
        compose::solicitation(&mut frame, other.mac(), asker, target);
        let answers = ask(&mut host, &frame);
        assert_eq!(answers.len(), usize::from(answered));
        if answered {
            let (ip, message) = ipv6::Repr::parse(&answers[0][14..]).unwrap();
            let message = icmpv6::Repr::parse(message, ip.pseudo_header_sum()).unwrap();
            let told = matches!(message, icmpv6::Repr::Ndp(ndp::Repr::NeighborAdvertisement { target: t, target_mac, .. })
                if t == target && target_mac == Some(host.mac()));
            assert!(told && ip.source == target, "{message:?}");
        }
        let echo = icmpv6::Repr::EchoRequest { identifier: 1, sequence: 1, data: b"x" };
        compose::icmpv6(&mut frame, link, asker, target, 64, &echo);
        let answers = ask(&mut host, &frame);
        assert_eq!(answers.len(), usize::from(answered));
        if answered {
            assert_eq!(ipv6::Repr::parse(&answers[0][14..]).unwrap().0.source, target);
        }
    }
    // Another station claims one of the addresses.
    compose::request(&mut frame, other.mac(), more.parse().unwrap(), more.parse().unwrap());
    assert!(ask(&mut host, &frame).is_empty());
    assert_eq!(host.oddities(), Oddities { malformed: 0, conflicts: 1 });
}

#[test]
fn what_is_for_others_is_left_alone() {
    let [mut host, other] = pair();
    let mut frame = Vec::new();
    compose::request(&mut frame, other.mac(), [198, 18, 1, 2].into(), [198, 18, 1, 9].into());
    assert!(host.receive(Instant(0), &frame, &mut |_| panic!("not asked")), "all hear a broadcast");
    let link = Link { source: other.mac(), destination: MacAddr::local(9) };
    let echo = icmpv4::Repr::EchoRequest { identifier: 0, sequence: 0, data: &[] };
    compose::icmpv4(&mut frame, link, [198, 18, 1, 2].into(), [198, 18, 1, 1].into(), 0, &echo);
    assert!(!host.receive(Instant(0), &frame, &mut |_| panic!("not its address")));
    // Another station claims the device's own address.
    compose::request(&mut frame, other.mac(), [198, 18, 1, 1].into(), [198, 18, 1, 1].into());
    host.receive(Instant(0), &frame, &mut |_| panic!("no quarrel"));
    assert_eq!(host.oddities(), Oddities { malformed: 0, conflicts: 1 });
}

#[test]
fn packets_to_others_reach_protocols_only_with_router_alert() {
    /// Counts packets by destination.
    #[derive(Default)]
    struct Listener(Vec<IpAddr>);
    impl Protocol for Listener {
        fn name(&self) -> &'static str {
            "listener"
        }
        fn matches(&self) -> &[Match] {
            &[Match::RouterAlert(46), Match::IpProtocol(46)]
        }
        fn receive(&mut self, _: Instant, input: crate::protocol::Input<'_>, _: &mut Output<'_>) {
            if let crate::protocol::Input::Packet(packet) = input {
                assert_eq!(packet.payload, [7; 4]);
                self.0.push(packet.destination);
            }
        }
        fn poll(&mut self, _: Instant, _: usize, _: &mut Output<'_>) {}
        fn next_deadline(&self) -> Option<Instant> {
            None
        }
        fn command(&mut self, _: Instant, _: &Command) -> Result<(), Refused> {
            Ok(())
        }
        fn state(&self) -> crate::protocol::State {
            Default::default()
        }
    }
    let [mut host, other] = pair();
    host.add_protocol(Box::<Listener>::default());
    let own = host.config().ipv4.unwrap().address;
    let mut send = |destination: Ipv4Addr, protocol: u8, alert: bool, change: fn(&mut [u8])| {
        let mut frame = vec![7; ethernet::LEN + ipv4::LEN_ROUTER_ALERT + 4];
        ethernet::Repr { destination: host.mac(), source: other.mac(), ethertype: ethertype::IPV4 }.emit(&mut frame);
        let (source, tos, identification) = ([10, 0, 0, 1].into(), 0, 0);
        let (dont_fragment, ttl, payload_len) = (false, 1, 4);
        let ip = ipv4::Repr { tos, identification, dont_fragment, ttl, protocol, source, destination, payload_len };
        match alert {
            true => ip.emit_with_router_alert(&mut frame[ethernet::LEN..]),
            false => ip.emit(&mut frame[ethernet::LEN..]),
        }
        change(&mut frame);
        host.receive(Instant(0), &frame, &mut |_| panic!("no answer"));
        std::mem::take(&mut host.protocol_mut::<Listener>().unwrap().0)
    };
    let far = Ipv4Addr::new(10, 9, 9, 9);
    assert_eq!(send(far, 46, true, |_| {}), [far]);
    assert_eq!(send(own, 46, true, |_| {}), [own], "once");
    assert_eq!(send(own, 46, false, |_| {}), [own]);
    assert!(send(far, 46, false, |_| {}).is_empty(), "no option");
    assert!(send(far, 47, true, |_| {}).is_empty(), "another protocol");
    assert!(send(far, 46, true, |frame| frame[ethernet::LEN + 6] = 0x20).is_empty(), "a fragment");
    assert!(send(far, 46, true, |frame| frame[ethernet::LEN + 10] ^= 1).is_empty(), "a wrong checksum");
    assert_eq!(host.oddities().malformed, 1);
}

#[test]
fn protocols_say_what_they_are_and_do() {
    let [device, _] = pair();
    let names: Vec<_> = device.protocols().map(Protocol::name).collect();
    assert_eq!(names, ["arp", "nd", "ping", "banner"]);
    for standard in ProtocolConfig::STANDARD {
        assert!(!standard.create(device.config()).unwrap().matches().is_empty());
    }
    let refused = ProtocolConfig::Bgp(Vec::new()).create(device.config()).err().unwrap();
    assert_eq!(refused.to_string(), "bgp: its configuration needs at least one peer");
    let [mut device, _] = pair();
    let refused =
        |device: &mut Device, name: &str| device.command(Instant(0), name, &Command::Start).unwrap_err().to_string();
    assert_eq!(refused(&mut device, "ospf"), "device: d1 has no protocol `ospf`, only arp, nd, ping, banner");
    assert_eq!(refused(&mut device, "arp"), "arp: this protocol has no such command");
    let mut bare = Device::new(DeviceConfig::new("bare", MacAddr::local(1), 1));
    let refused = bare.command(Instant(0), "ping", &Command::Ping(Echo::gateway(Family::Ipv4))).unwrap_err();
    assert!(refused.reason.contains("no IPv4 address"), "{refused}");
    assert_eq!((bare.next_deadline(), bare.is_ready()), (None, true));
}

proptest! {
    #[test]
    fn arbitrary_frames_never_panic(body in proptest::collection::vec(any::<u8>(), 0..120), kind in 0usize..4) {
        let [mut host, _] = pair();
        let mut frame = host.mac().0.to_vec();
        frame.extend_from_slice(&[2, 0, 0, 0, 0, 9]);
        frame.extend_from_slice(&[[8u8, 0], [0x86, 0xdd], [8, 6], [0x88, 0xcc]][kind]);
        frame.extend_from_slice(&body);
        host.receive(Instant(0), &frame, &mut |_| {});
        host.receive(Instant(0), &body, &mut |_| {});
        let odd = host.oddities();
        prop_assert!(odd.malformed + odd.conflicts <= 2);
    }

    #[test]
    fn damaged_frames_never_panic_and_never_count_as_replies(at in 0usize..98, bit in 0u8..8) {
        let mut hosts = pair();
        exchange(&mut hosts, Instant(0));
        ping(&mut hosts[0], Instant(0), Family::Ipv4);
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        hosts[0].poll(Instant(1), BUDGET, &mut |f| request = f.to_vec());
        hosts[1].receive(Instant(1), &request, &mut |f| reply = f.to_vec());
        prop_assert_eq!(reply.len(), 98);
        reply[at] ^= 1 << bit;
        hosts[0].receive(Instant(2), &reply, &mut |_| {});
        // This host checks nothing that covers the Ethernet source or the type of service.
        let free = (6..12).contains(&at) || (0..6).contains(&at) && bit == 0 && at == 0;
        prop_assert_eq!(ping_stats(&hosts[0], Family::Ipv4).received, u64::from(free));
    }
}
