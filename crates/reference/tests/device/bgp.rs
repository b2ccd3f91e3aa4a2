//! BGP of the device with emulated speakers: its messages, their times (to the nanosecond), and every fault.

use crate::common::{MS, SECOND, Test, net4, net6, numbers};
use crate::speakers::{DUT, Heard, World, announce, asn, attributes, config, next_hop, update, withdraw};
use drophammer_emulation::bgp::Cause;
use drophammer_emulation::bgp::session::State;
use drophammer_model::Instant;
use drophammer_model::trial::Family;
use drophammer_reference::{Beyond, BgpConfig, BgpFaults, Config, Faults, RibLimit};
use std::net::IpAddr;
use std::time::Duration;

fn plain(ports: usize) -> World {
    World::new(config(ports, false, BgpConfig::default()))
}

fn with_faults(bgp: BgpFaults) -> World {
    let mut world = plain(2);
    world.router.set_faults(Faults { bgp, ..Faults::default() }).unwrap();
    world
}

/// All prefixes of some UPDATEs in order.
fn announced(heard: &[Heard]) -> Vec<String> {
    heard.iter().flat_map(|h| h.announced.clone()).collect()
}

fn withdrawn(heard: &[Heard]) -> Vec<String> {
    heard.iter().flat_map(|h| h.withdrawn.clone()).collect()
}

fn names(numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
    numbers.into_iter().map(|n| format!("{}.{}.{}.0/24", 10 + (n >> 16), n >> 8 & 255, n & 255)).collect()
}

/// A test frame from a port to a route of [`speakers::net24`].
fn probe(from: usize, n: u32, number: u32) -> Vec<u8> {
    let destination = IpAddr::from([10, (n >> 8) as u8, n as u8, 77]);
    Test { source: net4(from, 2).into(), destination, size: 128, ..Test::new(from, 0, Family::Ipv4) }.frame(number)
}

#[test]
fn routes_come_out_with_the_attributes_of_an_external_router() {
    let mut world = plain(3);
    let community = [0xc0, 8, 4, 0, 1, 0, 2];
    let med = [0x80, 4, 4, 0, 0, 0, 7];
    let with = [attributes(&[asn(0), 64_999]), next_hop(net4(0, 2)), med.to_vec(), community.to_vec()].concat();
    world.speakers[0].say(&update(&[], &with, &[24, 203, 0, 113, 8, 11]));
    world.run_until(Instant(SECOND));
    for port in [1, 2] {
        let heard = world.heard(port);
        assert_eq!(announced(&heard), ["203.0.113.0/24", "11.0.0.0/8"], "in the order in which they came");
        let path = attributes(&[DUT, asn(0), 64_999]);
        let expected = [path, next_hop(net4(port, 1)), community.to_vec()].concat();
        assert_eq!((heard.len(), &heard[0].attributes), (1, &expected), "no MED, the own AS and address");
    }
    assert_eq!(world.heard(0), []);
    world.speakers[0].say(&update(&[8, 11], &[], &[]));
    world.run_until(Instant(2 * SECOND));
    let gone = world.heard(2);
    assert_eq!((withdrawn(&gone), announced(&gone)), (vec!["11.0.0.0/8".to_owned()], vec![]));
    let truth = world.router.truth().bgp;
    assert_eq!((truth.routes_received, truth.withdrawals_received, truth.updates_received), (2, 1, 2));
    assert_eq!((truth.routes_sent, truth.withdrawals_sent, truth.updates_sent), (4, 2, 4));
    assert_eq!((truth.sessions, truth.established, truth.routes, truth.paths), (3, 3, 1, 1));
    assert_eq!((world.router.truth().fib.ipv4, world.router.truth().fib.ipv6), (1, 0));
}

#[test]
fn ipv6_routes_come_out_by_a_session_of_their_own() {
    let mut world = World::new(config(2, true, BgpConfig::default()));
    let reach = |hop: std::net::Ipv6Addr| {
        let mut value = vec![0x80, 14, 28, 0, 2, 1, 16];
        value.extend(hop.octets());
        value.extend([0, 48, 0x20, 1, 0x0d, 0xb8, 0, 1]);
        value
    };
    world.speakers[0].say(&update(&[], &[reach(net6(0, 2)), attributes(&[asn(0)])].concat(), &[]));
    world.run_until(Instant(SECOND));
    let heard = world.heard(1);
    assert_eq!((heard.len(), announced(&heard)), (1, vec!["2001:db8:1::/48".to_owned()]));
    assert_eq!((heard[0].next_hop, &heard[0].attributes), (Some(net6(1, 1).into()), &attributes(&[DUT, asn(0)])));
    let destination = "2001:db8:1::9".parse().unwrap();
    let test = Test { source: net6(1, 2).into(), destination, size: 128, ..Test::new(1, 0, Family::Ipv6) };
    world.offer(1, &test.frame(5));
    world.settle();
    assert_eq!(
        world.frames[0].iter().filter_map(|f| crate::common::read(&f.1)).map(|s| s.number).collect::<Vec<_>>(),
        [5]
    );
    world.speakers[0].say(&update(&[], &[0x80, 15, 10, 0, 2, 1, 48, 0x20, 1, 0x0d, 0xb8, 0, 1], &[]));
    world.run_until(Instant(2 * SECOND));
    assert_eq!(withdrawn(&world.heard(1)), ["2001:db8:1::/48"]);
}

#[test]
fn every_route_is_told_and_forwards_at_its_instant() {
    let times = BgpConfig {
        propagation_delay: Duration::from_micros(1_500),
        fib_delay: Duration::from_millis(3),
        fib_time_per_route: Duration::from_micros(10),
        ..BgpConfig::default()
    };
    let mut world = World::new(config(2, false, times));
    let start = Instant(SECOND);
    world.run_until(start);
    world.speakers[0].say(&announce(0, 0, 200));
    world.settle();
    assert_eq!(world.router.truth().bgp.routes, 200, "all in one instant");
    world.run_until(start + Duration::from_nanos(1_499_999));
    assert_eq!(world.heard(1), []);
    world.run_until(start + Duration::from_micros(1_500));
    let heard = world.heard(1);
    assert_eq!(announced(&heard), names(0..200));
    assert!(heard.iter().all(|h| h.at == start + Duration::from_micros(1_500)));
    // Route n is installed 3 ms + n * 10 us after it was received: the previous one is forwarded, the next one is not yet.
    for n in [0u64, 1, 99, 199] {
        let at = start + Duration::from_micros(3_000 + 10 * n);
        world.run_until(Instant(at.0 - 1));
        let before = *world.router.truth();
        world.offer(1, &probe(1, n as u32, 1));
        assert_eq!(world.router.truth().dropped.no_route, before.dropped.no_route + 1, "route {n} a nanosecond early");
        world.now = at;
        world.offer(1, &probe(1, n as u32, 2));
        world.settle();
        assert_eq!(world.router.truth().forwarded, before.forwarded + 1, "route {n}");
        assert_eq!(world.router.truth().fib.ipv4, n + 1);
    }
    let truth = world.router.truth().bgp;
    assert_eq!((truth.fib_changes, truth.fib_backlog), (200, 0));
    assert_eq!(truth.fib_changed_at, (start + Duration::from_micros(3_000 + 1_990)).0);
    // A withdrawal has the same delays.
    let gone = Instant(2 * SECOND);
    world.run_until(gone);
    world.speakers[0].say(&withdraw(0, 200));
    world.run_until(gone + Duration::from_micros(1_500));
    assert_eq!(withdrawn(&world.heard(1)), names(0..200));
    world.run_until(gone + Duration::from_micros(3_000 + 10 * 99));
    assert_eq!((world.router.truth().fib.ipv4, world.router.truth().bgp.fib_backlog), (100, 100));
}

#[test]
fn a_better_path_takes_over_and_its_end_brings_the_alternate_back() {
    let mut world = plain(3);
    world.speakers[0].say(&announce(0, 0, 50));
    world.run_until(Instant(SECOND));
    // A shorter path for the first twenty, through port 1.
    let short = [attributes(&[asn(1)]), next_hop(net4(1, 2))].concat();
    let nets: Vec<u8> = (0..20).flat_map(crate::speakers::net24).collect();
    world.speakers[1].say(&update(&[], &short, &nets));
    world.run_until(Instant(2 * SECOND));
    let heard = world.heard(2);
    assert_eq!(announced(&heard), names((0..50).chain(0..20)));
    assert_eq!(heard[1].attributes, [attributes(&[DUT, asn(1)]), next_hop(net4(2, 1))].concat());
    assert_eq!(announced(&world.heard(0)), names(0..20));
    let to_one = world.heard(1);
    assert_eq!((announced(&to_one), withdrawn(&to_one)), (names(0..50), names(0..20)), "not what is its own");
    let goes_to = |world: &mut World, n| {
        world.frames.iter_mut().for_each(Vec::clear);
        world.offer(2, &probe(2, n, 1));
        world.settle();
        (0..3).find(|port| !numbers_on(world, *port).is_empty())
    };
    assert_eq!((goes_to(&mut world, 5), goes_to(&mut world, 25)), (Some(1), Some(0)));
    // Two ways to lose the better path, both with the same result at the same instant.
    let ends: [fn(&mut World); 2] = [
        |world| world.router.set_link(world.now, 1, false),
        |world| {
            let now = world.now;
            world.speakers[1].session.abort(now);
        },
    ];
    for (i, end) in ends.into_iter().enumerate() {
        let now = Instant((10 + 10 * i as u64) * SECOND);
        world.run_until(now);
        world.heard(2);
        assert_eq!(world.router.truth().bgp.paths, 70);
        end(&mut world);
        world.settle();
        assert_eq!((world.router.truth().bgp.sessions, world.router.truth().bgp.paths), (2, 50));
        let heard = world.heard(2);
        assert_eq!(announced(&heard), names(0..20));
        assert!(heard.iter().all(|h| h.at == now));
        assert_eq!((goes_to(&mut world, 5), goes_to(&mut world, 25)), (Some(0), Some(0)));
        // It comes back, and advertises its routes again.
        world.router.set_link(now, 1, true);
        world.speakers[1].say(&update(&[8, 99], &[], &[]));
        world.run_until(now + Duration::from_secs(8));
        assert_eq!(world.router.truth().bgp.sessions, 3, "{i}");
        world.speakers[1].say(&update(&[], &short, &nets));
        world.run_until(now + Duration::from_secs(9));
        assert_eq!(announced(&world.heard(2)), names(0..20));
    }
}

fn numbers_on(world: &World, port: usize) -> Vec<u32> {
    let frames: Vec<_> = world.frames[port].iter().map(|(at, frame)| (*at, port, frame.clone())).collect();
    numbers(&frames)
}

#[test]
fn nothing_passes_a_link_that_is_down() {
    let mut world = plain(2);
    world.speakers[0].say(&announce(0, 0, 10));
    world.run_until(Instant(SECOND));
    let before = *world.router.truth();
    world.router.set_link(world.now, 0, false);
    world.offer(0, &probe(0, 1, 1));
    assert_eq!(world.router.truth().ignored, before.ignored + 1);
    // The peer's route is gone, and so is the route to the network of the link.
    world.offer(1, &probe(1, 1, 2));
    assert_eq!(world.router.truth().dropped.no_route, before.dropped.no_route + 1);
    let link = Test { destination: net4(0, 2).into(), ..Test::new(1, 0, Family::Ipv4) };
    world.offer(1, &link.frame(3));
    world.settle();
    assert_eq!(world.router.truth().dropped.link_down, before.dropped.link_down + 1);
    assert_eq!(withdrawn(&world.heard(1)), names(0..10));
    world.router.set_link(world.now, 0, true);
    world.offer(1, &link.frame(4));
    world.settle();
    assert_eq!(numbers_on(&world, 0), [4]);
}

#[test]
fn limits_are_exact() {
    let limit = |beyond| Some(RibLimit { paths: 150, beyond });
    let mut world =
        World::new(config(2, false, BgpConfig { rib_limit: limit(Beyond::Ignore), ..BgpConfig::default() }));
    world.speakers[0].say(&announce(0, 0, 400));
    world.run_until(Instant(SECOND));
    assert_eq!(announced(&world.heard(1)), names(0..150));
    let truth = world.router.truth().bgp;
    assert_eq!((truth.paths, truth.over_limit, truth.sessions), (150, 250, 2));

    let mut world = World::new(config(2, false, BgpConfig { rib_limit: limit(Beyond::Reset), ..BgpConfig::default() }));
    world.speakers[0].say(&announce(0, 0, 150));
    world.run_until(Instant(SECOND));
    assert_eq!(world.router.truth().bgp.sessions, 2);
    world.speakers[0].say(&announce(0, 150, 151));
    world.settle();
    let Some(Cause::PeerNotification(why)) = world.speakers[0].session.ended() else { panic!("no NOTIFICATION") };
    assert_eq!((why.code, why.subcode, &why.data[..]), (6, 1, &[0, 1, 1, 0, 0, 0, 150][..]));
    let heard = world.heard(1);
    assert_eq!((announced(&heard), withdrawn(&heard)), (names(0..150), names(0..150)));
    assert_eq!((world.router.truth().bgp.sessions, world.router.truth().bgp.notifications_sent), (1, 1));

    // The forwarding table is full: all routes are advertised, but only the first ones forward.
    let mut world = World::new(Config { fib_limit_ipv4: Some(120), ..config(2, false, BgpConfig::default()) });
    world.speakers[0].say(&announce(0, 0, 200));
    world.run_until(Instant(SECOND));
    assert_eq!(announced(&world.heard(1)), names(0..200));
    (0..200).for_each(|n| world.offer(1, &probe(1, n, n)));
    world.settle();
    assert_eq!(numbers_on(&world, 0), (0..120).collect::<Vec<_>>());
    let truth = world.router.truth();
    assert_eq!((truth.fib.ipv4, truth.fib.without_room, truth.dropped.fib_full), (120, 80, 80));
}

#[test]
fn what_is_not_usable_is_not_told() {
    let mut world = plain(2);
    let loops = [attributes(&[asn(0), DUT]), next_hop(net4(0, 2))].concat();
    let elsewhere = [attributes(&[asn(0)]), next_hop(net4(1, 2))].concat();
    world.speakers[0].say(&update(&[], &loops, &[8, 11, 8, 12]));
    world.speakers[0].say(&update(&[], &elsewhere, &[8, 13]));
    world.speakers[0].say(&update(&[], &[0x40, 1, 1, 9], &[8, 14]));
    world.run_until(Instant(SECOND));
    assert_eq!(world.heard(1), []);
    let truth = world.router.truth().bgp;
    assert_eq!((truth.looped, truth.unreachable, truth.treated_as_withdrawn), (2, 1, 1));
    assert_eq!((truth.paths, truth.routes, truth.sessions), (3, 0, 2));
    // A route that becomes a loop counts as withdrawn.
    world.speakers[0].say(&announce(0, 0, 1));
    world.speakers[0].say(&update(&[], &loops, &crate::speakers::net24(0)));
    world.run_until(Instant(2 * SECOND));
    assert_eq!(world.router.truth().bgp.routes, 0);
}

#[test]
fn a_peer_that_comes_later_is_told_all_and_asks_again() {
    let mut world = World::idle(config(2, false, BgpConfig::default()));
    world.speakers[1].quiet = true;
    world.speakers[0].say(&announce(0, 0, 1_000));
    world.run_until(Instant(SECOND));
    assert_eq!(world.router.truth().bgp.routes, 1_000);
    world.speakers[1].quiet = false;
    world.run_until(Instant(2 * SECOND));
    let heard = world.heard(1);
    assert_eq!(announced(&heard), names(0..1_000));
    // Packed into the longest messages that were negotiated, followed by an End-of-RIB.
    assert_eq!(heard.len(), 2);
    assert!(heard[1].announced.is_empty() && heard[1].withdrawn.is_empty() && heard[1].bytes == 23);
    assert!(world.speakers[1].session.request_refresh(drophammer_wire::bgp::AfiSafi::IPV4_UNICAST));
    world.run_until(Instant(3 * SECOND));
    assert_eq!(announced(&world.heard(1)), names(0..1_000));
}

#[test]
fn a_black_hole_shows_in_traffic_only() {
    let mut world = with_faults(BgpFaults { blackhole_every: 7, ..BgpFaults::default() });
    world.speakers[0].say(&announce(0, 0, 100));
    world.run_until(Instant(SECOND));
    assert_eq!(announced(&world.heard(1)), names(0..100));
    (0..100).for_each(|n| world.offer(1, &probe(1, n, n)));
    world.settle();
    assert_eq!(numbers_on(&world, 0), (0..100).filter(|n| (n + 1) % 7 != 0).collect::<Vec<_>>());
    let truth = world.router.truth();
    assert_eq!((truth.dropped.fault_blackhole, truth.fib.sunk, truth.fib.ipv4), (14, 14, 86));
}

#[test]
fn routes_are_told_wrong_by_their_numbers() {
    let mut world = with_faults(BgpFaults {
        wrong_next_hop_every: 10,
        wrong_as_path_every: 4,
        lost_route_every: 25,
        ..BgpFaults::default()
    });
    world.speakers[0].say(&announce(0, 0, 100));
    world.run_until(Instant(SECOND));
    let heard = world.heard(1);
    assert_eq!(announced(&heard), names((0..100).filter(|n| (n + 1) % 25 != 0)));
    for update in &heard {
        for prefix in &update.announced {
            let number = names(0..100).iter().position(|n| n == prefix).unwrap() + 1;
            let path = if number % 4 == 0 { vec![DUT, DUT] } else { vec![DUT] };
            let hop = if number % 10 == 0 { net4(0, 2) } else { net4(1, 1) };
            let expected = [attributes(&[path, vec![asn(0), 64_999]].concat()), next_hop(hop)].concat();
            assert_eq!(update.attributes, expected, "number {number}");
        }
    }
    let truth = world.router.truth().bgp;
    assert_eq!((truth.wrong_next_hop, truth.wrong_as_path, truth.lost, truth.routes_sent), (8, 24, 4, 96));
    // All routes forward.
    (0..100).for_each(|n| world.offer(1, &probe(1, n, n)));
    world.settle();
    assert_eq!(numbers_on(&world, 0).len(), 100);
}

#[test]
fn a_late_withdrawal_is_late_to_the_nanosecond() {
    let mut world = with_faults(BgpFaults { withdraw_late: Duration::from_millis(250), ..BgpFaults::default() });
    world.speakers[0].say(&announce(0, 0, 10));
    let start = Instant(SECOND);
    world.run_until(start);
    world.heard(1);
    world.speakers[0].say(&withdraw(0, 10));
    world.run_until(Instant(start.0 + 250 * MS - 1));
    assert_eq!((world.heard(1), world.router.truth().fib.ipv4), (vec![], 10));
    world.run_until(Instant(start.0 + 250 * MS));
    assert_eq!((withdrawn(&world.heard(1)), world.router.truth().fib.ipv4), (names(0..10), 0));
}

#[test]
fn a_reset_in_the_middle_of_the_table() {
    let mut world = with_faults(BgpFaults { reset_after: 155, ..BgpFaults::default() });
    world.speakers[0].say(&announce(0, 0, 400));
    world.settle();
    let Some(Cause::PeerNotification(why)) = world.speakers[0].session.ended() else { panic!("no NOTIFICATION") };
    assert_eq!((why.code, why.subcode), (6, 4));
    let truth = world.router.truth().bgp;
    assert_eq!((truth.routes_received, truth.paths, truth.routes, truth.sessions), (155, 0, 0, 1));
    // The fault happens only once.
    world.run_until(Instant(5 * SECOND));
    assert_eq!(world.router.truth().bgp.sessions, 2);
    world.heard(1);
    world.speakers[0].say(&announce(0, 0, 400));
    world.run_until(Instant(6 * SECOND));
    assert_eq!(announced(&world.heard(1)), names(0..400));
}

#[test]
fn a_malformed_update_behind_a_route() {
    let mut world = with_faults(BgpFaults { malformed_after: 42, ..BgpFaults::default() });
    // The speakers of this test read every valid UPDATE; the malformed one is recognized by its bytes.
    world.speakers[0].say(&announce(0, 0, 41));
    world.run_until(Instant(SECOND));
    assert_eq!((announced(&world.heard(1)).len(), world.router.truth().bgp.malformed_sent), (41, 0));
    world.speakers[1].strict = true;
    world.speakers[0].say(&announce(0, 41, 100));
    world.settle();
    assert_eq!(announced(&world.heard(1)), names(41..42), "the message ends behind route 42");
    assert_eq!(world.router.truth().bgp.malformed_sent, 1);
    let Some(Cause::Malformed(notification)) = world.speakers[1].session.ended() else { panic!("it was taken") };
    assert_eq!((notification.code, notification.subcode), (3, 1));
    assert_eq!(world.router.truth().bgp.notifications_received, 1);
    world.run_until(Instant(10 * SECOND));
    assert_eq!(announced(&world.heard(1)), names(0..100), "the next session is told all");
}

#[test]
fn who_never_reads_fills_the_window() {
    let mut world = with_faults(BgpFaults { never_reads: true, ..BgpFaults::default() });
    world.speakers[0].say(&announce(0, 0, 65_000));
    world.speakers[0].say(&announce(0, 0, 65_000));
    world.run_until(Instant(SECOND));
    let truth = world.router.truth().bgp;
    assert_eq!((truth.updates_received, truth.sessions), (0, 2));
    assert!(world.speakers[0].waiting() > 50_000, "the rest waits at the speaker");
    // When it reads again, nothing is lost.
    world.router.set_faults(Faults::default()).unwrap();
    world.run_until(Instant(2 * SECOND));
    assert_eq!(world.router.truth().bgp.routes_received, 130_000);
    assert_eq!(announced(&world.heard(1)), names(0..65_000));
}

#[test]
fn silence_ends_a_session_after_the_hold_time() {
    let hold_time = Duration::from_secs(9);
    let mut world = World::new(config(2, false, BgpConfig { hold_time, ..BgpConfig::default() }));
    world.run_until(Instant(30 * SECOND));
    assert!(world.speakers.iter().all(|s| s.session.established_at().is_some_and(|at| at < Instant(SECOND))));
    world
        .router
        .set_faults(Faults { bgp: BgpFaults { hold_silence: true, ..BgpFaults::default() }, ..Faults::default() })
        .unwrap();
    world.run_until(Instant(40 * SECOND));
    for speaker in &world.speakers {
        assert_eq!(speaker.session.ended(), Some(&Cause::HoldTimerExpired(hold_time)));
        let at = speaker.session.ended_at().unwrap();
        assert!(Instant(36 * SECOND) < at && at <= Instant(39 * SECOND), "{at:?}");
    }
    assert!(world.router.truth().bgp.silenced >= 4);
    assert_eq!(world.router.truth().bgp.notifications_received, 2);
    world.router.set_faults(Faults::default()).unwrap();
    world.run_until(Instant(60 * SECOND));
    assert!(world.speakers.iter().all(|s| s.session.state() == State::Established));
}

#[test]
fn a_slow_reader_takes_its_share_and_the_window_closes() {
    // 3,000 messages with ten routes of 4 bytes each; 400 bytes are read every 10 ms.
    let mut world = with_faults(BgpFaults { reads_per_second: 40_000, ..BgpFaults::default() });
    let one = announce(0, 0, 10).len() as u64;
    (0..3_000).for_each(|n| world.speakers[0].say(&announce(0, 10 * n, 10 * n + 10)));
    let start = world.now;
    for seconds in 1..=5 {
        world.run_until(start + Duration::from_secs(seconds));
        let read = world.router.truth().bgp.updates_received * one;
        // A message that has been started waits for the next share.
        let share = 40_000 * seconds;
        assert!(read <= share + 400 && share < read + 400 + one, "{read} of {share} after {seconds} s");
    }
    assert!(world.router.truth().bgp.sessions == 2, "KEEPALIVEs are late, the session is not lost");
    world.router.set_faults(Faults::default()).unwrap();
    world.run_until(start + Duration::from_secs(7));
    assert_eq!(world.router.truth().bgp.routes_received, 30_000);
}

#[test]
fn routes_that_flap_go_and_come_for_ever_and_stay_when_that_ends() {
    let mut world = plain(2);
    world.speakers[0].say(&announce(0, 0, 10));
    world.run_until(Instant(SECOND));
    assert_eq!(announced(&world.heard(1)), names(0..10));
    let flap_interval = Duration::from_millis(40);
    let bgp = BgpFaults { flap_every: 3, flap_interval, ..BgpFaults::default() };
    world.router.set_faults(Faults { bgp, ..Faults::default() }).unwrap();
    world.run_until(Instant(2 * SECOND - 1));
    let heard = world.heard(1);
    // 1040, 1080 ... 1960 ms.
    let at: Vec<u64> = heard.iter().map(|h| h.at.0 / MS).collect();
    assert_eq!(at, (1..25).map(|n| 1_000 + 40 * n).collect::<Vec<_>>());
    for (n, told) in heard.iter().enumerate() {
        let [there, gone] = [&told.announced, &told.withdrawn];
        let (moved, other) = if n % 2 == 0 { (gone, there) } else { (there, gone) };
        assert_eq!((moved, other), (&names([2, 5, 8]), &vec![]));
    }
    assert_eq!((world.router.truth().fib.ipv4, world.router.truth().bgp.routes), (10, 10), "forwarded all the while");
    // Withdrawn at 2000 ms, and back without the fault.
    world.run_until(Instant(2 * SECOND));
    assert_eq!(withdrawn(&world.heard(1)), names([2, 5, 8]));
    world.router.set_faults(Faults::default()).unwrap();
    world.run_until(Instant(3 * SECOND));
    assert_eq!(announced(&world.heard(1)), names([2, 5, 8]));
}
