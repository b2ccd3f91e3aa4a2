//! VLAN sub-interfaces of the device: 1,000 stations behind one port, each behind its own tags and with a BGP session.

use crate::common::{MS, SECOND};
use drophammer_emulation::compose::{self, Link};
use drophammer_emulation::tcp::{ConnState, ConnectionId, TcpConfig, TcpStack, link};
use drophammer_model::Instant;
use drophammer_model::suite::VlanTag;
use drophammer_reference::{BgpConfig, BgpPeer, Config, ConfigError, PortConfig, Router, SubInterface};
use drophammer_wire::bgp::message::{HEADER_LEN, emit_header, kind};
use drophammer_wire::ethernet::ethertype;
use drophammer_wire::{MacAddr, arp, bgp, checksum};
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const DEVICE: MacAddr = MacAddr([2, 0, 0, 0, 1, 0]);
const DUT: u16 = 65_000;
/// Stations that advertise a route; the others only listen.
const TELLERS: u32 = 10;

/// Every second one has two tags.
fn tags_of(n: u32) -> Vec<VlanTag> {
    let inner = VlanTag { tpid: ethertype::VLAN, vid: (n % 500) as u16 + 1 };
    match n % 2 {
        0 => vec![VlanTag { vid: n as u16 + 1_000, ..inner }],
        _ => vec![VlanTag { tpid: ethertype::SERVICE_VLAN, vid: 100 + (n / 500) as u16 }, inner],
    }
}

/// Link number `n`: a network of four addresses.
fn address(n: u32, host: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a40_0000 + 4 * n + host)
}

fn message(code: u8, body: &[u8]) -> Vec<u8> {
    let mut out = [&[0; HEADER_LEN], body].concat();
    let len = out.len();
    emit_header(&mut out, code, len);
    out
}

/// An OPEN with the capabilities IPv4 unicast and four-octet AS numbers.
fn open(n: u32, asn: u32) -> Vec<u8> {
    let mut body = vec![4];
    body.extend((asn as u16).to_be_bytes());
    body.extend(90u16.to_be_bytes());
    body.extend((n + 1).to_be_bytes());
    body.extend([14, 2, 12, 1, 4, 0, 1, 0, 1, 65, 4]);
    body.extend(asn.to_be_bytes());
    message(kind::OPEN, &body)
}

fn asn(n: u32) -> u32 {
    1_000 + n
}

/// Prefix number `n`, a 24.
fn prefix(n: u32) -> [u8; 4] {
    [24, 172, 20, n as u8]
}

fn update(n: u32) -> Vec<u8> {
    let mut attributes = vec![0x40, 1, 1, 0, 0x40, 2, 6, 2, 1];
    attributes.extend(asn(n).to_be_bytes());
    attributes.extend([0x40, 3, 4]);
    attributes.extend(address(n, 2).octets());
    let body = [&[0, 0], &(attributes.len() as u16).to_be_bytes()[..], &attributes, &prefix(n)].concat();
    message(kind::UPDATE, &body)
}

struct Station {
    n: u32,
    tags: Vec<u8>,
    mac: MacAddr,
    device: Option<MacAddr>,
    stack: TcpStack,
    connection: Option<ConnectionId>,
    has_sent: bool,
    heard: Vec<u8>,
}

impl Station {
    fn new(n: u32) -> Station {
        let mut stack = TcpStack::new(TcpConfig::new(1500, n.into()));
        stack.add_host(address(n, 2).into());
        Station {
            n,
            tags: bytes(&tags_of(n)),
            mac: MacAddr::local(0x5000 + u64::from(n)),
            device: None,
            stack,
            connection: None,
            has_sent: false,
            heard: Vec::new(),
        }
    }

    fn tagged(&self, mut frame: Vec<u8>) -> Vec<u8> {
        frame.splice(12..12, self.tags.iter().copied());
        frame
    }

    /// Takes a frame without tags; answers are written to `out`.
    fn receive(&mut self, now: Instant, frame: &[u8], out: &mut Vec<Vec<u8>>) {
        if let Some(packet) = link::packet(frame, self.mac) {
            self.stack.receive(now, packet);
            return;
        }
        let Ok(packet) = arp::Repr::parse(&frame[14..]) else { panic!("{frame:x?}") };
        assert_eq!((packet.sender_mac, packet.sender_ip), (DEVICE, address(self.n, 1)));
        self.device = Some(packet.sender_mac);
        if packet.operation == arp::Operation::Request && packet.target_ip == address(self.n, 2) {
            let mut answer = Vec::new();
            let link = Link { source: self.mac, destination: packet.sender_mac };
            compose::arp(&mut answer, link, &arp::Repr::reply_to(&packet, self.mac));
            out.push(self.tagged(answer));
        }
    }

    fn work(&mut self, now: Instant, out: &mut Vec<Vec<u8>>) {
        let (own, dut) = (address(self.n, 2), address(self.n, 1));
        let Some(device) = self.device else {
            if !std::mem::replace(&mut self.has_sent, true) {
                let mut ask = Vec::new();
                compose::request(&mut ask, self.mac, own, dut);
                out.push(self.tagged(ask));
            }
            return;
        };
        let stack = &mut self.stack;
        let connection = *self.connection.get_or_insert_with(|| {
            self.has_sent = false;
            stack.connect(now, own.into(), SocketAddr::new(dut.into(), bgp::PORT))
        });
        if !self.has_sent && stack.state(connection) == ConnState::Established {
            self.has_sent = true;
            let mut all = [open(self.n, asn(self.n)), message(kind::KEEPALIVE, &[])].concat();
            if self.n < TELLERS {
                all.extend(update(self.n));
            }
            let sent = stack.send_with(connection, &mut |room| {
                room[..all.len()].copy_from_slice(&all);
                all.len()
            });
            assert_eq!(sent, all.len());
        }
        stack.receive_with(connection, &mut |bytes| {
            self.heard.extend_from_slice(bytes);
            bytes.len()
        });
        let link = Link { source: self.mac, destination: device };
        let mut packets = Vec::new();
        self.stack.poll(now, &mut |packet| packets.push(packet.to_vec()));
        for packet in packets {
            let mut frame = vec![0; link::frame_len(&packet)];
            link::write_frame(&mut frame, link, &packet);
            out.push(self.tagged(frame));
        }
    }

    /// Last byte of the prefixes that were advertised to it, with their first AS numbers and next hop.
    fn routes(&self) -> BTreeSet<(u8, Vec<u32>, Ipv4Addr)> {
        let (mut routes, mut rest) = (BTreeSet::new(), &self.heard[..]);
        while rest.len() >= HEADER_LEN {
            let len = usize::from(u16::from_be_bytes([rest[16], rest[17]]));
            let body = &rest[HEADER_LEN..len];
            // An UPDATE with a prefix, which follows ORIGIN, AS_PATH of two and NEXT_HOP.
            if rest[18] == kind::UPDATE && body.len() > 4 {
                let word = |at: usize| u32::from_be_bytes(body[at..at + 4].try_into().unwrap());
                assert_eq!(body[8..13], [0x40, 2, 10, 2, 2], "{body:x?}");
                assert_eq!(body[body.len() - 4..][..3], prefix(0)[..3]);
                routes.insert((body[body.len() - 1], vec![word(13), word(17)], Ipv4Addr::from_bits(word(24))));
            }
            rest = &rest[len..];
        }
        routes
    }
}

fn bytes(tags: &[VlanTag]) -> Vec<u8> {
    tags.iter().flat_map(|tag| [tag.tpid.to_be_bytes(), tag.vid.to_be_bytes()].concat()).collect()
}

/// One port with this many sub-interfaces.
fn config(stations: u32) -> Config {
    let sub = |n| SubInterface { port: 0, tags: tags_of(n), ipv4: Some((address(n, 1), 30)), ipv6: None };
    let peer =
        |n| BgpPeer { port: 1 + n as usize, address: address(n, 2).into(), asn: asn(n), connect: false, client: false };
    let bgp = BgpConfig { asn: DUT.into(), peers: (0..stations).map(peer).collect(), ..BgpConfig::default() };
    Config {
        ports: vec![PortConfig::new(DEVICE)],
        sub_interfaces: (0..stations).map(sub).collect(),
        bgp: Some(bgp),
        seed: 3,
        ..Config::default()
    }
}

struct World {
    now: Instant,
    router: Router,
    stations: Vec<Station>,
    by_tags: HashMap<Vec<u8>, usize>,
}

impl World {
    fn new(stations: u32) -> World {
        let stations: Vec<_> = (0..stations).map(Station::new).collect();
        let by_tags = stations.iter().enumerate().map(|(i, s)| (s.tags.clone(), i)).collect();
        World { now: Instant(0), router: Router::new(config(stations.len() as u32)).unwrap(), stations, by_tags }
    }

    /// The station of a frame, and the frame without tags.
    fn untagged(&self, frame: &[u8]) -> (usize, Vec<u8>) {
        let length = if frame[12..14] == ethertype::SERVICE_VLAN.to_be_bytes() { 8 } else { 4 };
        let station = self.by_tags[&frame[12..12 + length]];
        (station, [&frame[..12], &frame[12 + length..]].concat())
    }

    /// Runs until `end`, or until there is nothing to do.
    fn run_until(&mut self, end: Instant) {
        let mut busy: BTreeSet<usize> = (0..self.stations.len()).collect();
        loop {
            let now = self.now;
            let mut sent = Vec::new();
            self.router.poll(now, &mut |_, _, frame| sent.push(frame.to_vec()));
            let mut outgoing = Vec::new();
            for frame in sent {
                let (station, frame) = self.untagged(&frame);
                self.stations[station].receive(now, &frame, &mut outgoing);
                busy.insert(station);
            }
            for station in std::mem::take(&mut busy) {
                self.stations[station].work(now, &mut outgoing);
            }
            outgoing.iter().for_each(|frame| self.router.receive(now, 0, frame));
            if self.router.next_deadline().is_some_and(|at| at <= now) {
                continue;
            }
            let timers = self.stations.iter().enumerate();
            let timers = timers.filter_map(|(i, s)| Some((s.stack.next_deadline()?, i))).collect::<Vec<_>>();
            let next = timers.iter().map(|t| t.0).chain(self.router.next_deadline()).min();
            let Some(next) = next.filter(|at| *at <= end) else { break };
            self.now = next.max(Instant(now.0 + 1));
            busy.extend(timers.iter().filter(|t| t.0 <= self.now).map(|t| t.1));
        }
        self.now = self.now.max(end);
    }
}

#[test]
fn a_thousand_stations_in_vlans_of_their_own_speak_bgp_behind_one_port() {
    const STATIONS: u32 = 1_000;
    let mut world = World::new(STATIONS);
    world.run_until(Instant(2 * SECOND));
    let truth = *world.router.truth();
    assert_eq!((truth.bgp.sessions, truth.bgp.established, truth.unknown_vlan), (STATIONS.into(), STATIONS.into(), 0));
    assert_eq!((truth.bgp.routes, truth.fib.ipv4), (TELLERS.into(), TELLERS.into()));
    for station in &world.stations {
        let tellers = (0..TELLERS).filter(|n| *n != station.n);
        let expected = tellers.map(|n| (n as u8, vec![DUT.into(), asn(n)], address(station.n, 1)));
        assert_eq!(station.routes(), expected.collect(), "station {}", station.n);
    }
    // Frames to a route leave with the tags of the station that advertised it.
    for (from, to) in [(STATIONS - 1, 3), (7, 4)] {
        let (sender, receiver) = (&world.stations[from as usize], &world.stations[to as usize]);
        let [_, a, b, c] = prefix(to);
        let mut frame = packet(Link { source: sender.mac, destination: DEVICE }, address(from, 2), [a, b, c, 9].into());
        let arrives = packet(Link { source: DEVICE, destination: receiver.mac }, address(from, 2), [a, b, c, 9].into());
        frame = sender.tagged(frame);
        let mut arrives = receiver.tagged(arrives);
        let ttl = 14 + receiver.tags.len() + 8;
        arrives[ttl] -= 1;
        let sum = u16::from_be_bytes([arrives[ttl + 2], arrives[ttl + 3]]);
        let before = u16::from_be_bytes([64, arrives[ttl + 1]]);
        let sum = checksum::update(sum, before, before - 0x0100);
        arrives[ttl + 2..ttl + 4].copy_from_slice(&sum.to_be_bytes());
        world.router.receive(world.now, 0, &frame);
        let mut sent = Vec::new();
        world.router.poll(world.now, &mut |_, _, frame| sent.push(frame.to_vec()));
        assert_eq!(sent, [arrives]);
    }
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
    let mut world = World::new(2);
    let dut_asks = |router: &mut Router, to: u32| {
        let frame = packet(Link { source: MacAddr::local(9), destination: DEVICE }, address(0, 2), address(to, 2));
        router.receive(Instant(MS), 0, &[&frame[..12], &bytes(&tags_of(0)), &frame[12..]].concat());
        let mut sent = Vec::new();
        router.poll(Instant(MS), &mut |_, _, frame| sent.push(frame.to_vec()));
        sent
    };
    let asked = dut_asks(&mut world.router, 1);
    let (station, frame) = world.untagged(&asked[0]);
    let ask = arp::Repr::parse(&frame[14..]).unwrap();
    assert_eq!((station, ask.target_ip, ask.sender_ip), (1, address(1, 2), address(1, 1)));
    assert_eq!(world.router.neighbour(2, IpAddr::V4(address(1, 2))), None);
    // The answer counts only with the right tags.
    let mut outgoing = Vec::new();
    world.stations[1].receive(Instant(MS), &frame, &mut outgoing);
    let mut wrong = outgoing[0].clone();
    wrong.splice(12..20, bytes(&tags_of(0)));
    world.router.receive(Instant(MS), 0, &wrong);
    assert_eq!(world.router.neighbour(2, IpAddr::V4(address(1, 2))), None);
    world.router.receive(Instant(MS), 0, &outgoing[0]);
    assert_eq!(world.router.neighbour(2, IpAddr::V4(address(1, 2))), Some(world.stations[1].mac));
    let mut sent = Vec::new();
    world.router.poll(Instant(MS), &mut |_, _, frame| sent.push(frame.to_vec()));
    assert_eq!(world.untagged(&sent[0]).0, 1, "the packet that waited");
    // Tags with another priority are the same tags; other tags belong to no station.
    let frame = packet(Link { source: MacAddr::local(9), destination: DEVICE }, address(0, 2), address(1, 2));
    for (tags, unknown) in [([0x81, 0, 0xe3, 0xe8], 0), ([0x81, 0, 0x03, 0xe9], 1), ([0x88, 0xa8, 0x03, 0xe8], 1)] {
        let before = *world.router.truth();
        world.router.receive(Instant(MS), 0, &[&frame[..12], &tags, &frame[12..]].concat());
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
        (|c| c.sub_interfaces[1].tags = [tags_of(1), tags_of(0)].concat(), "one tag or two"),
        (|c| c.sub_interfaces[1].tags[0].vid = 4095, "1 to 4094"),
        (|c| c.sub_interfaces[1].tags[0].tpid = 0x9100, "0x8100 or 0x88a8"),
        (|c| c.sub_interfaces[1].tags = tags_of(0), "the same tags"),
    ] {
        let error = refused(change);
        assert!(error.contains(part) && error.contains("port 0"), "{error}");
    }
}
