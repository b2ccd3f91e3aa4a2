//! How the device resolves its neighbours, and how they resolve it.

use crate::common::*;
use drophammer_emulation::compose::{self, Link};
use drophammer_emulation::tcp::{TcpConfig, TcpStack, link};
use drophammer_model::Instant;
use drophammer_model::trial::Family;
use drophammer_reference::{BgpConfig, BgpPeer, Config};
use drophammer_wire::{MacAddr, icmpv4, ipv4};
use std::time::Duration;

#[test]
fn cold_frames_wait_for_their_next_hop() {
    for family in [Family::Ipv4, Family::Ipv6] {
        let mut bench = Bench::cold(config(2));
        let test = Test::new(0, 1, family);
        for i in 0..5 {
            bench.router.receive(Instant(SECOND), 0, &test.frame(i));
        }
        assert_eq!(bench.router.truth().queued, 3);
        let sent = bench.finish();
        assert_eq!(numbers(&sent), [0, 1, 2], "three wait, as many as configured");
        let t = bench.router.truth();
        assert_eq!((t.dropped.unresolved, t.resolution_requests, t.forwarded), (2, 1, 3));
        let next_hop = if family == Family::Ipv4 { net4(1, 2).into() } else { net6(1, 2).into() };
        assert_eq!(bench.router.neighbour(1, next_hop), Some(MacAddr::local(0x201)));
        bench.check_sums();
    }
}

#[test]
fn hosts_on_the_link_are_reached_without_a_route() {
    for (family, destination) in [(Family::Ipv4, net4(1, 2).into()), (Family::Ipv6, net6(1, 2).into())] {
        let mut bench = Bench::new(config(2));
        bench.offer(Instant(SECOND), 0, &Test { destination, ..Test::new(0, 1, family) }.frame(1));
        assert_eq!(numbers(&bench.finish()), [1]);
    }
}

#[test]
fn a_silent_next_hop_is_asked_three_times_and_reported() {
    let mut bench = Bench::new(config(2));
    let nobody = Test { destination: net4(1, 77).into(), ..Test::new(0, 1, Family::Ipv4) };
    bench.offer(Instant(SECOND), 0, &nobody.frame(1));
    let sent = bench.finish();
    let asked: Vec<_> = sent.iter().filter(|s| s.2[12..14] == [8, 6]).map(|s| s.0.0 / MS).collect();
    assert_eq!(asked, [1_000, 2_000, 3_000]);
    let (at, port, report) = sent.last().unwrap();
    assert_eq!((at.0 / MS, *port), (4_000, 0));
    let (_, payload) = ipv4::Repr::parse(&report[14..]).unwrap();
    assert!(matches!(icmpv4::Repr::parse(payload), Ok(icmpv4::Repr::DestinationUnreachable { code: 1, .. })));
    assert_eq!(bench.router.truth().dropped.unresolved, 1);
    bench.check_sums();
    // The next frame starts resolution again.
    bench.offer(Instant(2_000_000 * SECOND), 0, &nobody.frame(2));
    assert_eq!(bench.router.truth().resolution_requests, 4);
}

#[test]
fn neighbours_are_asked_anew_and_kept_while_they_answer() {
    let mut bench = Bench::new(Config { neighbour_lifetime: Some(Duration::from_secs(30)), ..config(2) });
    bench.run_until(Instant(91 * SECOND));
    // Two ports, two families, at 30, 60 and 90 s, each at the known address.
    assert_eq!(bench.sent.len(), 12);
    assert!(bench.sent.iter().all(|s| s.2[0] & 1 == 0));
    bench.offer(Instant(92 * SECOND), 0, &Test::new(0, 1, Family::Ipv4).frame(1));
    bench.run_until(Instant(92 * SECOND));
    assert_eq!(numbers(&bench.sent), [1]);
}

#[test]
fn it_answers_pings_in_both_families() {
    let mut bench = Bench::new(config(2));
    for family in [Family::Ipv4, Family::Ipv6] {
        assert!(ping(&mut bench.hosts[0], Instant(SECOND), family));
        bench.wake_hosts(Instant(SECOND));
        assert_eq!(ping_stats(&bench.hosts[0], family).map(|s| (s.sent, s.received)), Some((1, 1)));
    }
    assert_eq!(bench.router.truth().echo_replies, 2);
    bench.check_sums();
}

#[test]
fn an_announcement_moves_a_neighbour() {
    let mut bench = Bench::new(config(2));
    let moved = MacAddr::local(0x999);
    let mut frame = Vec::new();
    compose::request(&mut frame, moved, net4(1, 2), net4(1, 2));
    bench.offer(Instant(SECOND), 1, &frame);
    bench.offer(Instant(SECOND + 1), 0, &Test::new(0, 1, Family::Ipv4).frame(1));
    assert_eq!(bench.finish()[0].2[..6], moved.0);
    // A request from an unknown station creates no entry.
    compose::request(&mut frame, moved, net4(1, 50), net4(1, 50));
    bench.offer(Instant(2_000_000 * SECOND), 1, &frame);
    assert_eq!(bench.router.neighbour(1, net4(1, 50).into()), None);
}

#[test]
fn datagrams_to_the_router_itself_find_a_closed_port() {
    let mut bench = Bench::new(config(2));
    // Also to the address of the other port.
    for (family, destination) in [(Family::Ipv4, net4(1, 1).into()), (Family::Ipv6, net6(1, 1).into())] {
        bench.offer(Instant(SECOND), 0, &Test { destination, ..Test::new(0, 1, family) }.frame(1));
    }
    assert_eq!(bench.finish().len(), 2);
    let t = bench.router.truth();
    assert_eq!((t.icmp_errors, t.transit), (2, 0));
    // No error is sent about an error.
    let link = Link { source: MacAddr::local(0x200), destination: MacAddr::local(0x100) };
    let error = icmpv4::Repr::TimeExceeded { code: 0, original: &[0x45; 28] };
    let mut frame = Vec::new();
    compose::icmpv4(&mut frame, link, behind4(0, 9), "203.0.113.9".parse().unwrap(), 1, &error);
    bench.offer(Instant(2_000_000 * SECOND), 0, &frame);
    assert!(bench.finish().is_empty());
    assert_eq!(bench.router.truth().dropped.no_route, 1);
}

#[test]
fn who_connects_first_and_is_not_known_yet_is_answered_once_it_is() {
    for family in [Family::Ipv4, Family::Ipv6] {
        let address = if family == Family::Ipv4 { net4(0, 9).into() } else { net6(0, 9).into() };
        let dut: std::net::IpAddr = if family == Family::Ipv4 { net4(0, 1).into() } else { net6(0, 1).into() };
        let peer = BgpPeer { port: 0, address, asn: 65_001, connect: false, client: false };
        let bgp = Some(BgpConfig { asn: 65_000, peers: vec![peer], ..BgpConfig::default() });
        let mut bench = Bench::new(Config { bgp, ..config(1) });
        bench.hosts[0].add_addresses(address, 1);
        let mut stack = TcpStack::new(TcpConfig::default());
        stack.add_host(address);
        let mac = bench.hosts[0].mac();
        let to_dut = Link { source: mac, destination: MacAddr::local(0x100) };
        let mut syns = Vec::new();
        (0..5).for_each(|_| _ = stack.connect(Instant(SECOND), address, (dut, 179).into()));
        stack.poll(Instant(SECOND), &mut |packet| {
            let mut frame = vec![0; link::frame_len(packet)];
            link::write_frame(&mut frame, to_dut, packet);
            syns.push(frame);
        });
        syns.iter().for_each(|syn| bench.router.receive(Instant(SECOND), 0, syn));
        bench.run_until(Instant(SECOND + MS));
        // One request, and after its answer as many segments as transit frames could have waited.
        let asked = bench.router.truth().resolution_requests;
        let answers: Vec<_> = bench.sent.iter().filter_map(|s| link::packet(&s.2, mac)).collect();
        let answers = answers.into_iter().filter(|p| stack.receive(Instant(SECOND), p)).count();
        assert_eq!((asked, answers), (1, 3), "{family}");
        // The other segments are answered when they are sent again, and nothing is left waiting.
        bench.check_sums();
    }
}

#[test]
fn what_waits_for_a_peer_that_is_not_there_is_forgotten() {
    let peer = BgpPeer { port: 0, address: net4(0, 9).into(), asn: 65_001, connect: true, client: false };
    let bgp = Some(BgpConfig { asn: 65_000, peers: vec![peer], ..BgpConfig::default() });
    let mut bench = Bench::new(Config { bgp, ..config(1) });
    bench.run_until(Instant(600 * SECOND));
    let sent = |kind: [u8; 2]| bench.sent.iter().filter(|s| s.2[12..14] == kind).count();
    assert!(sent([8, 6]) > 10, "it goes on asking");
    assert_eq!(sent([8, 0]), 0);
    bench.check_sums();
}
