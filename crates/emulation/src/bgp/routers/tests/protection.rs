//! TCP MD5 and GTSM: sides with equal protection communicate; segments of other sides are refused and counted.

use super::*;
use crate::bgp::RouteSet;
use crate::protocol::{Command, Protocol, ProtocolConfig};
use drophammer_model::routes::Change;

fn key(key: &str) -> Protection {
    Protection { md5_key: Some(key.into()), ..Protection::default() }
}

fn hops(hops: u8) -> Protection {
    Protection { ttl_security_hops: Some(hops), ..Protection::default() }
}

fn world(protections: [Protection; 2]) -> World {
    let mut world = World::new(1, [false, true], 3);
    for (side, protection) in (0..).zip(&protections) {
        world.sides[usize::from(side)] = protected(side, 1, side == 1, 3 + u64::from(side), protection);
    }
    let now = world.now;
    world.sides.iter_mut().for_each(|side| side.start(now, 0));
    world
}

fn counter(world: &World, side: usize, name: &str) -> u64 {
    let routers: &Routers = &world.sides[side];
    routers.state().counter(name)
}

#[test]
fn sessions_with_the_same_key_and_on_the_same_link_carry_tables() {
    let both = Protection { ttl_security_hops: Some(1), ..key("secret") };
    for (protections, ttl) in
        [([key("secret"), key("secret")], 64), ([hops(1), hops(1)], 255), ([both.clone(), both], 255)]
    {
        let signed = protections[0].md5_key.is_some();
        let mut world = world(protections);
        let all = routes(20_000, 5);
        let id = world.expect(0, &all);
        world.advertise(0, &all);
        world.check = Some(Box::new(move |packet| {
            let sliced = etherparse::SlicedPacket::from_ip(packet).unwrap();
            let Some(etherparse::TransportSlice::Tcp(tcp)) = &sliced.transport else { panic!("not TCP") };
            let Some(etherparse::NetSlice::Ipv4(ip)) = &sliced.net else { panic!("not IPv4") };
            let header = ip.header();
            assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
            assert_eq!(tcp.checksum(), tcp.calc_checksum_ipv4(header.source(), header.destination()).unwrap());
            let total = usize::from(header.total_len());
            assert!(header.ttl() == ttl && total <= 1_500, "{total} bytes, TTL {}", header.ttl());
            assert_eq!(tcp.options().starts_with(&[1, 1, 19, 18]), signed);
        }));
        assert!(world.run(Duration::from_secs(10), |sides| sides[1].adj_rib_in(0).is_complete(id)));
        assert_eq!(world.sides[1].adj_rib_in(0).report(id).wrong, 0);
        let refused = |side| ["md5_missing", "md5_wrong", "ttl_low"].map(|name| counter(&world, side, name));
        assert_eq!((refused(0), refused(1)), ([0; 3], [0; 3]));
        assert_eq!((world.sides[0].losses(0).0, world.sides[1].losses(0).0), (0, 0));
    }
}

#[test]
fn lost_segments_are_signed_again() {
    let mut world = world([key("k"), key("k")]);
    world.lost = |n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60 == 0;
    let all = routes(3_000, 8);
    let id = world.expect(0, &all);
    world.advertise(0, &all);
    assert!(world.run(Duration::from_secs(120), |sides| sides[1].adj_rib_in(0).is_complete(id)));
    assert_eq!((counter(&world, 0, "md5_wrong"), counter(&world, 1, "md5_wrong")), (0, 0));
}

#[test]
fn a_peer_with_another_key_or_none_is_refused_and_counted() {
    let none = Protection::default();
    for (protections, counts) in [
        ([key("one"), key("two")], [("md5_wrong", 1), ("md5_missing", 1)]),
        ([none.clone(), key("two")], [("md5_missing", 1), ("md5_wrong", 1)]),
        ([none, hops(1)], [("ttl_low", 1), ("md5_wrong", 1)]),
        ([key("one"), hops(1)], [("ttl_low", 1), ("md5_missing", 1)]),
    ] {
        let shown = format!("{protections:?}");
        let mut world = world(protections);
        assert!(!world.up(20.0), "{shown}");
        let [(refused, side), (other, same)] = counts;
        assert!(counter(&world, side, refused) >= 2, "{shown}");
        assert_eq!(counter(&world, same, other), 0, "{shown}");
        // It gets no answer.
        assert_eq!(world.sides[side].session(0).received().opens, 0);
        assert!(world.sides[0].session(0).ended().is_none_or(|cause| *cause != Cause::Refused));
    }
}

#[test]
fn a_peer_farther_away_is_refused_by_its_ttl() {
    for (allowed, ttl, comes) in [(1, 255, true), (1, 254, false), (3, 253, true), (3, 252, false)] {
        let mut world = world([hops(allowed), hops(allowed)]);
        world.change = Some(Box::new(move |packet| {
            packet[8] = ttl;
            packet[10..12].fill(0);
            let sum = drophammer_wire::checksum::finish(drophammer_wire::checksum::sum(&packet[..20]));
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }));
        assert_eq!(world.up(5.0), comes, "{allowed} {ttl}");
        assert_eq!(counter(&world, 1, "ttl_low") > 0, !comes);
    }
}

#[test]
fn segments_that_were_changed_on_the_way_are_refused() {
    let mut world = world([key("k"), key("k")]);
    assert!(world.up(4.0));
    let before = counter(&world, 1, "md5_wrong");
    // The last byte of each segment with data: the type of a KEEPALIVE.
    world.change = Some(Box::new(|packet| {
        let data = 20 + usize::from(packet[32] >> 4) * 4;
        if packet.len() > data {
            *packet.last_mut().unwrap() ^= 1;
        }
    }));
    world.wait(5.0);
    assert!(counter(&world, 1, "md5_wrong") > before);
    assert_eq!(world.sides[1].losses(0), (0, None), "the session does not see them");
}

#[test]
fn protections_that_cannot_be_are_refused() {
    for (protection, reason) in [
        (key(""), "peer 0: a TCP MD5 key of 0 bytes: use 1 to 80"),
        (key(&"x".repeat(81)), "peer 0: a TCP MD5 key of 81 bytes: use 1 to 80"),
        (hops(0), "peer 0: 0 hops are out of range: use 1 to 254"),
    ] {
        let side = protected(0, 1, false, 1, &Protection::default());
        let mut config = side.peers[0].config().clone();
        config.protection = protection;
        let refused = ProtocolConfig::Bgp(vec![config]).create(side.device.config()).err().unwrap();
        assert_eq!(refused.reason, reason);
    }
}

#[test]
fn commands_name_a_peer_that_there_is() {
    let mut world = World::new(1, [false, true], 1);
    let now = world.now;
    let table = routes(10, 1);
    let id = world.expect(0, &table);
    let mut command =
        |side: usize, command: BgpCommand| world.sides[side].device.command(now, "bgp", &Command::Bgp(command));
    assert_eq!(command(1, BgpCommand::Start(0)), Ok(()));
    assert_eq!(command(0, BgpCommand::Start(0)), Ok(()));
    let refused = command(0, BgpCommand::Start(1)).unwrap_err();
    assert_eq!(refused.to_string(), "bgp: there is no peer 1: the device has 1 peers, numbered from 0");
    let set = |part| RouteSet::unicast(table.clone(), part, Packing::default());
    let advertise = BgpCommand::Routes { peer: 0, change: Change::Advertise, set: set(0..10) };
    assert_eq!(command(0, advertise), Ok(()));
    assert!(world.run(Duration::from_secs(5), |sides| sides[1].adj_rib_in(0).is_complete(id)));
    let withdraw = BgpCommand::Routes { peer: 0, change: Change::Withdraw, set: set(0..4) };
    world.sides[0].device.command(world.now, "bgp", &Command::Bgp(withdraw)).unwrap();
    assert!(world.run(Duration::from_secs(1), |sides| sides[1].adj_rib_in(0).present(id) == 6));
    let now = world.now;
    world.sides[0].device.command(now, "bgp", &Command::Bgp(BgpCommand::Stop(0))).unwrap();
    assert!(world.run(Duration::from_secs(1), |sides| !sides[1].established(0)));
}
