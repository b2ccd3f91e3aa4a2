use super::*;
use crate::tally::Protocol;
use proptest::prelude::*;
use std::time::Duration;

fn address4(own: u8, gateway: u8) -> Option<HostAddress<Ipv4Addr>> {
    Some(HostAddress { address: [198, 18, 1, own].into(), prefix_len: 24, gateway: [198, 18, 1, gateway].into() })
}

fn address6(own: u16, gateway: u16) -> Option<HostAddress<Ipv6Addr>> {
    let at = |host| Ipv6Addr::new(0x2001, 2, 0, 1, 0, 0, 0, host);
    Some(HostAddress { address: at(own), prefix_len: 64, gateway: at(gateway) })
}

/// A host at .2 whose gateway is a second host at .1.
fn pair() -> [HostStack; 2] {
    [(1, 2), (2, 1)].map(|(own, other)| {
        HostStack::new(HostConfig {
            mac: MacAddr::local(u64::from(own)),
            ipv4: address4(own, other),
            ipv6: address6(own.into(), other.into()),
            seed: 0x1234_5678_9abc_def0 + u64::from(own),
        })
    })
}

/// Polls both once and carries frames between them until none is left; returns them.
fn exchange(hosts: &mut [HostStack; 2], now: Instant) -> Vec<(usize, Vec<u8>)> {
    let mut seen = Vec::new();
    for (i, host) in hosts.iter_mut().enumerate() {
        host.poll(now, &mut |f| seen.push((i, f.to_vec())));
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
    assert!(BOTH.iter().all(|f| hosts[0].ping(Instant(0), *f)), "asked before the gateway is known");
    let start = Instant(1_000);
    let frames = exchange(&mut hosts, start);
    assert!(hosts.iter().all(HostStack::is_ready));
    for family in BOTH {
        assert_eq!(hosts[0].gateway_mac(family), Some(hosts[1].mac()));
        assert_eq!(hosts[0].gateway_confirmed(family), Some(start));
        assert_eq!(hosts[0].ping_stats(family).map(|s| (s.sent, s.received)), Some((1, 1)));
    }
    for (_, frame) in &frames {
        etherparse::SlicedPacket::from_ethernet(frame).unwrap();
    }
    assert_eq!(hosts[0].next_deadline(), Some(start + REFRESH));
    assert!(hosts.iter().all(|h| h.oddities() == Oddities::default()));
    // What one saw is what the other sent.
    let sent = |i| frames.iter().filter(|(from, _)| *from == i).count() as u64;
    assert_eq!([hosts[0].tally().total().frames, hosts[1].tally().total().frames], [sent(1), sent(0)]);
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
    host.ping(Instant(0), Family::Ipv4);
    let mut asked = Vec::new();
    while asked.len() < 12 {
        let now = host.next_deadline().unwrap();
        host.poll(now, &mut |f| asked.push((now.0 / 1_000_000, Protocol::of(f))));
    }
    let times: Vec<_> = asked.iter().filter(|a| a.1 == Protocol::Arp).map(|a| a.0).collect();
    assert_eq!(times, [0, 100, 300, 700, 1500, 2500]);
    assert_eq!(asked.iter().filter(|a| a.1 == Protocol::Ndp).count(), 6);
    assert_eq!(host.ping_stats(Family::Ipv4).map(|s| (s.asked, s.sent)), Some((1, 0)));
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
    // From beyond the link (hop limit below 255) it is not believed.
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
    assert!(hosts[0].ping(Instant(900), Family::Ipv6));
    assert_eq!(hosts[0].next_deadline(), Some(Instant(900)), "at once");
    let (mut request, mut reply) = (Vec::new(), Vec::new());
    hosts[0].poll(Instant(1_000), &mut |f| request = f.to_vec());
    hosts[1].receive(Instant(1_000), &request, &mut |f| reply = f.to_vec());
    hosts[0].receive(Instant(43_000), &reply, &mut |_| panic!("a reply wants no answer"));
    hosts[0].receive(Instant(44_000), &reply, &mut |_| panic!("a reply wants no answer"));
    let stats = hosts[0].ping_stats(Family::Ipv6).unwrap();
    assert_eq!((stats.sent, stats.received, stats.last_rtt), (1, 1, Some(Duration::from_micros(42))));
}

#[test]
fn further_addresses_are_answered_for_like_its_own() {
    let [mut host, other] = pair();
    let (own, more, beyond) = ("198.18.1.1", "198.18.2.3", "198.18.2.4");
    assert!(host.also("198.18.1.100".parse().unwrap(), 160) && host.also("2001:2:0:1::100".parse().unwrap(), 16));
    assert!(!host.also("198.18.1.100".parse().unwrap(), 0));
    // The gateway among them stays what it is.
    assert!(host.also("198.18.1.1".parse().unwrap(), 3) && host.also("2001:2:0:1::1".parse().unwrap(), 3));
    let mut hosts = [host, other];
    exchange(&mut hosts, Instant(0));
    let [mut host, other] = hosts;
    assert!(host.is_ready() && host.oddities() == Oddities::default());
    let asker: Ipv4Addr = [198, 18, 1, 2].into();
    let link = Link { source: other.mac(), destination: host.mac() };
    let ask = |host: &mut HostStack, frame: &[u8]| {
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
    // Somebody else says that it has one of them.
    compose::request(&mut frame, other.mac(), more.parse().unwrap(), more.parse().unwrap());
    assert!(ask(&mut host, &frame).is_empty());
    assert_eq!(host.oddities(), Oddities { malformed: 0, conflicts: 1 });
}

#[test]
fn what_is_for_others_is_counted_and_left_alone() {
    let [mut host, other] = pair();
    let mut frame = Vec::new();
    compose::request(&mut frame, other.mac(), [198, 18, 1, 2].into(), [198, 18, 1, 9].into());
    host.receive(Instant(0), &frame, &mut |_| panic!("not asked"));
    let link = Link { source: other.mac(), destination: MacAddr::local(9) };
    let echo = icmpv4::Repr::EchoRequest { identifier: 0, sequence: 0, data: &[] };
    compose::icmpv4(&mut frame, link, [198, 18, 1, 2].into(), [198, 18, 1, 1].into(), 0, &echo);
    host.receive(Instant(0), &frame, &mut |_| panic!("not its address"));
    assert_eq!(host.tally().get(Protocol::Arp).frames, 1);
    assert_eq!(host.tally().get(Protocol::Icmp).frames, 1);
    // Its own address in another's mouth.
    compose::request(&mut frame, other.mac(), [198, 18, 1, 1].into(), [198, 18, 1, 1].into());
    host.receive(Instant(0), &frame, &mut |_| panic!("no quarrel"));
    assert_eq!(host.oddities(), Oddities { malformed: 0, conflicts: 1 });
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
        prop_assert_eq!(host.tally().total().frames, 2);
    }

    #[test]
    fn damaged_frames_never_panic_and_never_count_as_replies(at in 0usize..98, bit in 0u8..8) {
        let mut hosts = pair();
        exchange(&mut hosts, Instant(0));
        hosts[0].ping(Instant(0), Family::Ipv4);
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        hosts[0].poll(Instant(1), &mut |f| request = f.to_vec());
        hosts[1].receive(Instant(1), &request, &mut |f| reply = f.to_vec());
        prop_assert_eq!(reply.len(), 98);
        reply[at] ^= 1 << bit;
        hosts[0].receive(Instant(2), &reply, &mut |_| {});
        // Ethernet source and the type of service are under no check that this host relies on.
        let free = (6..12).contains(&at) || (0..6).contains(&at) && bit == 0 && at == 0;
        prop_assert_eq!(hosts[0].ping_stats(Family::Ipv4).unwrap().received, u64::from(free));
    }
}
