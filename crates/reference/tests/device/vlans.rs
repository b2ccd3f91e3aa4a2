//! VLAN sub-interfaces of the device: up to 1,000 emulated devices behind one port, each behind its own tags and with its
//! own BGP session.

use crate::common::MS;
use drophammer_emulation::bgp::{Expected, NextHops, Packing, PeerConfig, RouteSource, Routers};
use drophammer_emulation::compose::Link;
use drophammer_emulation::device::{Address, Device, DeviceConfig, DeviceId, Devices, Tag, Tags, tags};
use drophammer_emulation::protocol::Command;
use drophammer_emulation::tcp::link;
use drophammer_model::Instant;
use drophammer_model::routes::{RouteRange, Routes};
use drophammer_model::suite::VlanTag;
use drophammer_model::trial::Family;
use drophammer_reference::{BgpConfig, BgpPeer, Config, ConfigError, PortConfig, Router, SubInterface};
use drophammer_wire::bgp::AfiSafi;
use drophammer_wire::{MacAddr, arp, checksum};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

const DEVICES: u16 = 1_000;
/// Devices that advertise, and routes of each.
const SENDERS: u16 = 4;
const ROUTES: u32 = 50;
const DUT: u32 = 65_000;
const DUT_MAC: MacAddr = MacAddr([2, 0, 0, 0, 1, 0]);

fn asn(n: u16) -> u32 {
    1_000 + u32::from(n)
}

fn address(n: u16, host: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a40_0000 + 4 * u32::from(n) + host)
}

/// Even devices are in an 802.1Q VLAN, odd devices have two tags.
fn tags_of(n: u16) -> Vec<Tag> {
    let inner = Tag { tpid: tags::DOT1Q, vid: n % 500 + 1 };
    match n % 2 {
        0 => vec![Tag { vid: 2_000 + n, ..inner }],
        _ => vec![Tag { tpid: tags::DOT1AD, vid: 100 + n / 500 }, inner],
    }
}

fn mac(n: u16) -> MacAddr {
    MacAddr::local(0x7000 + u64::from(n))
}

/// A frame behind the tags of device `n`.
fn tagged(n: u16, frame: &[u8]) -> Vec<u8> {
    let tags: Vec<u8> = tags_of(n).iter().flat_map(|t| [t.tpid.to_be_bytes(), t.vid.to_be_bytes()].concat()).collect();
    [&frame[..12], &tags, &frame[12..]].concat()
}

fn device(n: u16) -> Device {
    let peer = PeerConfig {
        address: address(n, 2).into(),
        dut: address(n, 1).into(),
        asn: asn(n),
        four_octet_as: true,
        dut_as: DUT,
        router_id: address(n, 2),
        hold: Duration::from_secs(90),
        families: vec![AfiSafi::IPV4_UNICAST],
        multiple_labels: vec![],
        add_path: vec![],
        graceful_restart: None,
        next_hops: NextHops { ipv4: Some(address(n, 2)), ..NextHops::default() },
        passive: false,
        protection: Default::default(),
    };
    let mut device = Device::new(DeviceConfig {
        tags: Tags::new(&tags_of(n)).unwrap(),
        ipv4: Some(Address { address: address(n, 2), prefix_len: 30, gateway: address(n, 1) }),
        ..DeviceConfig::new(format!("device {n}"), mac(n), u64::from(n))
    });
    device.add_protocol(Box::new(Routers::new(u64::from(n), vec![peer]).with_buffer(16 << 10)));
    device
}

fn vlan_tags(n: u16) -> Vec<VlanTag> {
    tags_of(n).into_iter().map(|tag| VlanTag { tpid: tag.tpid, vid: tag.vid }).collect()
}

/// One port with this many sub-interfaces.
fn config(devices: u16) -> Config {
    let sub = |n| SubInterface { port: 0, tags: vlan_tags(n), ipv4: Some((address(n, 1), 30)), ipv6: None };
    let peer = |n: u16| BgpPeer {
        port: 1 + usize::from(n),
        address: address(n, 2).into(),
        asn: asn(n),
        connect: false,
        client: false,
    };
    Config {
        ports: vec![PortConfig::new(DUT_MAC)],
        sub_interfaces: (0..devices).map(sub).collect(),
        bgp: Some(BgpConfig { asn: DUT, peers: (0..devices).map(peer).collect(), ..BgpConfig::default() }),
        ..Config::default()
    }
}

struct World {
    now: Instant,
    router: Router,
    devices: Devices,
}

/// The frames that the router sends at `now`.
fn polled(router: &mut Router, now: Instant) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    router.poll(now, &mut |_, _, frame| sent.push(frame.to_vec()));
    sent
}

impl World {
    fn new(devices: u16) -> (World, Vec<DeviceId>) {
        let router = Router::new(config(devices)).unwrap();
        let mut world = World { now: Instant(1_000_000), router, devices: Devices::default() };
        let ids = (0..devices).map(|n| world.devices.add(device(n)).unwrap()).collect();
        (world, ids)
    }

    /// Runs until `enough`, for at most `time`. Returns true if `enough` became true.
    fn run(&mut self, time: Duration, enough: impl Fn(&World) -> bool) -> bool {
        let end = self.now + time;
        loop {
            let World { now, router, devices } = self;
            let now = *now;
            let mut outgoing = Vec::new();
            devices.poll(now, 64 << 10, &mut |frame| outgoing.push(frame.to_vec()));
            outgoing.iter().for_each(|frame| router.receive(now, 0, frame));
            let sent = polled(router, now);
            outgoing.clear();
            for frame in &sent {
                assert!(
                    devices.receive(now, frame, &mut |answer| outgoing.push(answer.to_vec())),
                    "each frame has its device"
                );
            }
            outgoing.iter().for_each(|frame| router.receive(now, 0, frame));
            if enough(self) {
                return true;
            }
            if self.now >= end {
                return false;
            }
            let next = self.devices.next_deadline().into_iter().chain(self.router.next_deadline()).min();
            self.now = next.unwrap_or(end).clamp(now + Duration::from_micros(50), end);
        }
    }

    fn routers(&self, id: DeviceId) -> &Routers {
        self.devices.get(id).protocol().unwrap()
    }
}

#[test]
fn a_thousand_emulated_devices_in_vlans_of_their_own_exchange_routes_through_the_device() {
    let (mut world, ids) = World::new(DEVICES);
    for id in &ids {
        world.devices.command(world.now, *id, "bgp", &Command::Start).unwrap();
    }
    let up = |world: &World| world.router.truth().bgp.sessions == u64::from(DEVICES);
    assert!(world.run(Duration::from_secs(10), up), "{:?}", world.router.truth());
    assert!(world.run(Duration::from_secs(1), |w| ids.iter().all(|id| w.routers(*id).established(0))));

    // Each sender has its own table, which must be advertised to all others.
    let now = world.now;
    let (mut expectations, mut tables) = (Vec::new(), Vec::new());
    for sender in 0..SENDERS {
        let table: Arc<Routes> =
            Arc::new(RouteRange::internet(Family::Ipv4, ROUTES, 1 + u64::from(sender)).unwrap().into());
        for (n, id) in (0..DEVICES).zip(&ids) {
            let bgp = world.devices.protocol_mut::<Routers>(*id).unwrap();
            if n == sender {
                bgp.adj_rib_out(0).advertise(table.clone(), 0..ROUTES, Packing::default());
                continue;
            }
            let expected = Expected {
                source: RouteSource::External,
                as_path_prefix: vec![DUT, asn(sender)],
                next_hop: Some(address(n, 1).into()),
                check_attributes: true,
                times: false,
                labels: false,
                label: None,
            };
            let expectation = bgp.adj_rib_in_mut(0).expect(now, table.clone(), 0..ROUTES, expected);
            expectations.push((*id, expectation));
        }
        tables.push(table);
    }
    let complete = |w: &World| expectations.iter().all(|(id, e)| w.routers(*id).adj_rib_in(0).is_complete(*e));
    let done = world.run(Duration::from_secs(10), complete);
    let truth = *world.router.truth();
    assert!(done, "{truth:?}");
    for (id, expectation) in &expectations {
        let report = world.routers(*id).adj_rib_in(0).report(*expectation);
        assert!(report.is_right() && report.present == ROUTES, "{report:?}");
    }
    assert_eq!(truth.bgp.paths, u64::from(SENDERS) * u64::from(ROUTES));
    assert_eq!(truth.bgp.routes_sent, truth.bgp.routes * u64::from(DEVICES - 1));
    assert_eq!((truth.unknown_vlan, truth.bgp.sessions, truth.bgp.established), (0, DEVICES.into(), DEVICES.into()));

    // Frames to a route leave with the tags of the device that advertised it.
    for (from, to) in [(DEVICES - 1, 3), (7, 2)] {
        let IpAddr::V4(destination) = tables[usize::from(to)].prefix(0).address() else { panic!("IPv4") };
        let frame = packet(Link { source: mac(from), destination: DUT_MAC }, address(from, 2), destination);
        let arrives = packet(Link { source: DUT_MAC, destination: mac(to) }, address(from, 2), destination);
        let mut arrives = tagged(to, &arrives);
        let ttl = arrives.len() - 46 + 8;
        arrives[ttl] -= 1;
        let sum = u16::from_be_bytes([arrives[ttl + 2], arrives[ttl + 3]]);
        let before = u16::from_be_bytes([64, arrives[ttl + 1]]);
        let sum = checksum::update(sum, before, before - 0x0100);
        arrives[ttl + 2..ttl + 4].copy_from_slice(&sum.to_be_bytes());
        world.router.receive(world.now, 0, &tagged(from, &frame));
        assert_eq!(polled(&mut world.router, world.now), [arrives]);
    }
    assert_eq!(world.router.truth().fib.ipv4, u64::from(ROUTES) * u64::from(SENDERS));
    // The link goes down, and all sessions with it.
    world.router.set_link(world.now, 0, false);
    assert_eq!((world.router.truth().bgp.sessions, world.router.truth().fib.ipv4), (0, 0));
}

/// An IPv4 packet of 46 bytes with an unknown protocol.
fn packet(link: Link, source: Ipv4Addr, destination: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0; 46];
    let ip = drophammer_wire::ipv4::Repr {
        tos: 0,
        identification: 1,
        dont_fragment: true,
        ttl: 64,
        protocol: 253,
        source,
        destination,
        payload_len: 26,
    };
    ip.emit(&mut packet);
    let mut frame = vec![0; link::frame_len(&packet)];
    link::write_frame(&mut frame, link, &packet);
    frame
}

#[test]
fn a_station_is_asked_for_within_its_tags() {
    let (mut world, _) = World::new(2);
    let now = Instant(MS);
    let own = IpAddr::V4(address(1, 2));
    let frame = packet(Link { source: MacAddr::local(9), destination: DUT_MAC }, address(0, 2), address(1, 2));
    world.router.receive(now, 0, &tagged(0, &frame));
    let asked = polled(&mut world.router, now);
    assert_eq!(asked[0][..12 + 8], tagged(1, &asked[0][..12])[..], "the tags of the station");
    let ask = arp::Repr::parse(&asked[0][14 + 8..]).unwrap();
    assert_eq!((ask.target_ip, ask.sender_ip), (address(1, 2), address(1, 1)));
    assert_eq!(world.router.neighbour(2, own), None);
    // The answer counts only with the right tags.
    let mut answers = Vec::new();
    assert!(world.devices.receive(now, &asked[0], &mut |answer| answers.push(answer.to_vec())));
    let untagged = [&answers[0][..12], &answers[0][12 + 8..]].concat();
    world.router.receive(now, 0, &tagged(0, &untagged));
    assert_eq!(world.router.neighbour(2, own), None);
    world.router.receive(now, 0, &answers[0]);
    assert_eq!(world.router.neighbour(2, own), Some(mac(1)));
    let sent = polled(&mut world.router, now);
    assert_eq!(sent[0][..12 + 8], tagged(1, &sent[0][..12])[..], "the packet that waited");
    // Tags with another priority are the same tags; other tags belong to no station.
    for (tags, unknown) in [([0x81, 0, 0xe7, 0xd0], 0), ([0x81, 0, 0x07, 0xd1], 1), ([0x88, 0xa8, 0x07, 0xd0], 1)] {
        let before = *world.router.truth();
        world.router.receive(now, 0, &[&frame[..12], &tags, &frame[12..]].concat());
        let truth = world.router.truth();
        assert_eq!((truth.unknown_vlan - before.unknown_vlan, truth.transit - before.transit), (unknown, 1 - unknown));
    }
}

#[test]
fn sub_interfaces_that_cannot_be_are_refused() {
    let refused = |change: fn(&mut Config)| {
        let mut config = config(2);
        change(&mut config);
        Router::new(config).err().expect("refused").to_string()
    };
    assert_eq!(refused(|c| c.sub_interfaces[1].port = 1), ConfigError::NoSuchPort(1).to_string());
    for (change, part) in [
        ((|c| c.sub_interfaces[1].tags.clear()) as fn(&mut Config), "one tag or two"),
        (|c| c.sub_interfaces[1].tags = [vlan_tags(1), vlan_tags(0)].concat(), "one tag or two"),
        (|c| c.sub_interfaces[1].tags[0].vid = 4095, "1 to 4094"),
        (|c| c.sub_interfaces[1].tags[0].tpid = 0x9100, "0x8100 or 0x88a8"),
        (|c| c.sub_interfaces[1].tags = vlan_tags(0), "the same tags"),
    ] {
        let error = refused(change);
        assert!(error.contains(part) && error.contains("port 0"), "{error}");
    }
}
