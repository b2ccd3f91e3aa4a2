//! A PE router under test between emulated CE routers, one per VLAN on port 0, and an emulated PE router behind port 1.

use drophammer_emulation::bgp::{
    BgpCommand, Distinguishers, ExpectationId, Expected, Packing, PeerConfig, RouteSource, Routers, VpnPart,
    VpnRouteSet,
};
use drophammer_emulation::compose::Link;
use drophammer_emulation::device::{Address, Device, DeviceConfig, DeviceId, Devices, Tags};
use drophammer_emulation::protocol::Command;
use drophammer_emulation::tcp::link;
use drophammer_model::Instant;
use drophammer_model::label_edge::{
    self, CE, CE_IPV6, CUSTOMER_AS, DUT_LOOPBACK, DUT_TO_CE, DUT_TO_CE_IPV6, FIRST_VLAN, PROVIDER_AS,
};
use drophammer_model::role::{Place, PushedRoute};
use drophammer_model::routes::{
    AttributePattern, Change, Counting, GroupSizes, LabelPer, PrefixesPerVrf, RouteRange, Routes, VpnRoutes, VrfRange,
};
use drophammer_model::suite::VlanTag;
use drophammer_reference::{
    BgpConfig, BgpPeer, Config, FIRST_VRF_LABEL, Faults, PortConfig, Route, Router, SubInterface, Vrf,
};
use drophammer_wire::bgp::AfiSafi;
use drophammer_wire::bgp::message::{HEADER_LEN, kind};
use drophammer_wire::{MacAddr, ipv4};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub const CUSTOMERS: usize = 0;
pub const CORE: usize = 1;
pub const DUT_CORE: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 1);
pub const P: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 2);
/// First label of the emulated PE router.
pub const REMOTE_LABEL: u32 = 2_000;

/// Loopback address of the emulated PE router.
pub fn pe() -> Ipv4Addr {
    label_edge::pe_router(CORE)
}

pub fn mac(port: usize) -> MacAddr {
    MacAddr::local(0x200 + port as u64)
}

pub fn dut_mac(port: usize) -> MacAddr {
    MacAddr::local(0x100 + port as u64)
}

/// The 802.1Q tag of a VRF.
pub fn tag(vrf: u32) -> [u8; 4] {
    let [high, low] = (FIRST_VLAN + vrf as u16).to_be_bytes();
    [0x81, 0, high, low]
}

/// The static route to the PE router.
pub fn route_to_pe() -> Route {
    Route { prefix: pe().into(), prefix_len: 32, port: CORE, next_hop: P.into() }
}

/// A path to the PE router with these labels.
pub fn pushed(out: &[u32]) -> PushedRoute {
    PushedRoute { prefix: (pe().into(), 32), out: out.to_vec(), via: P.into(), at: Place { port: CORE, vlan: None } }
}

/// A device with this number of VRFs and a static route to the PE router.
pub fn config(vrfs: u32) -> Config {
    let port = |i, ipv4| PortConfig { ipv4, ..PortConfig::new(dut_mac(i)) };
    let sub = |n: u32| SubInterface {
        port: CUSTOMERS,
        tags: vec![VlanTag { tpid: 0x8100, vid: FIRST_VLAN + n as u16 }],
        ipv4: Some((DUT_TO_CE, label_edge::CE_LINK_LENGTH)),
        ipv6: None,
    };
    let vrf = |n: u32| Vrf {
        interfaces: vec![2 + n as usize],
        distinguisher: label_edge::distinguisher(DUT_LOOPBACK, n),
        target: label_edge::target(n),
        bfd: Vec::new(),
    };
    let ce =
        |n: u32| BgpPeer { port: 2 + n as usize, address: CE.into(), asn: CUSTOMER_AS, connect: false, client: false };
    Config {
        ports: vec![port(CUSTOMERS, None), port(CORE, Some((DUT_CORE, 24)))],
        sub_interfaces: (0..vrfs).map(sub).collect(),
        loopback: Some(DUT_LOOPBACK),
        vrfs: (0..vrfs).map(vrf).collect(),
        routes: vec![route_to_pe()],
        bgp: Some(BgpConfig {
            asn: PROVIDER_AS.into(),
            router_id: DUT_LOOPBACK,
            peers: (0..vrfs).map(ce).collect(),
            pe_peers: vec![pe()],
            ..BgpConfig::default()
        }),
        ..Config::default()
    }
}

/// As [`config`], with IPv6 in all VRFs.
pub fn dual_stack(vrfs: u32) -> Config {
    let mut config = config(vrfs);
    for sub in &mut config.sub_interfaces {
        sub.ipv6 = Some((DUT_TO_CE_IPV6, label_edge::CE_LINK_LENGTH_IPV6));
    }
    let bgp = config.bgp.as_mut().unwrap();
    let ipv6: Vec<_> = bgp.peers.iter().map(|peer| BgpPeer { address: CE_IPV6.into(), ..*peer }).collect();
    bgp.peers.extend(ipv6);
    config
}

/// `count` prefixes from `first` on, all in one attribute group.
pub fn prefixes(first: &str, count: u32) -> Arc<Routes> {
    let pattern = AttributePattern { routes_per_group: GroupSizes::Fixed(u32::MAX), ..AttributePattern::default() };
    Arc::new(RouteRange::uniform(first.parse().unwrap(), count, 1, pattern).unwrap().into())
}

fn vrfs(count: u32, pe: Ipv4Addr, first_label: u32, label_per: LabelPer) -> VrfRange {
    VrfRange {
        count,
        distinguisher: Counting::from(label_edge::distinguisher(pe, 0)),
        targets: vec![Counting::from(label_edge::target(0))],
        first_label,
        label_per,
    }
}

/// Routes of the emulated PE router to the sites of `count` VRFs, each with a label of its own.
pub fn remote(count: u32, routes: Arc<Routes>, prefixes: PrefixesPerVrf) -> Arc<VpnRoutes> {
    let vrfs = vrfs(count, pe(), REMOTE_LABEL, LabelPer::Route);
    Arc::new(VpnRoutes::new(vrfs, routes, prefixes).unwrap())
}

pub struct World {
    pub now: Instant,
    pub router: Router,
    ports: [Devices; 2],
    pub ces: Vec<DeviceId>,
    pub pe: DeviceId,
    /// Data of the device's BGP session with the PE router.
    said: Vec<u8>,
}

fn ce(vrf: u32, ipv6: bool) -> Device {
    let of_ipv6 = Address { address: CE_IPV6, prefix_len: label_edge::CE_LINK_LENGTH_IPV6, gateway: DUT_TO_CE_IPV6 };
    let mut device = Device::new(DeviceConfig {
        tags: Tags::dot1q(FIRST_VLAN + vrf as u16).unwrap(),
        ipv4: Some(Address { address: CE, prefix_len: label_edge::CE_LINK_LENGTH, gateway: DUT_TO_CE }),
        ipv6: ipv6.then_some(of_ipv6),
        ..DeviceConfig::new(format!("ce {vrf}"), mac(CUSTOMERS), u64::from(vrf))
    });
    let id = Ipv4Addr::from_bits(0x6470_0001 + vrf);
    let peer = PeerConfig::new(CE.into(), DUT_TO_CE.into(), CUSTOMER_AS, PROVIDER_AS.into(), id);
    let second = PeerConfig::new(CE_IPV6.into(), DUT_TO_CE_IPV6.into(), CUSTOMER_AS, PROVIDER_AS.into(), id);
    let peers = [peer].into_iter().chain(ipv6.then_some(second)).collect();
    device.add_protocol(Box::new(Routers::new(u64::from(vrf), peers).with_buffer(16 << 10)));
    device
}

fn pe_device(ipv6: bool) -> Device {
    let mut device = Device::new(DeviceConfig {
        ipv4: Some(Address { address: P, prefix_len: 24, gateway: DUT_CORE }),
        ..DeviceConfig::new("pe", mac(CORE), 77)
    });
    assert!(device.add_addresses(pe().into(), 1));
    let asn = u32::from(PROVIDER_AS);
    let peer = PeerConfig::new(pe().into(), DUT_LOOPBACK.into(), asn, asn, pe());
    let families = [AfiSafi::VPNV4].into_iter().chain(ipv6.then_some(AfiSafi::VPNV6)).collect();
    let peer = PeerConfig { families, ..peer };
    device.add_protocol(Box::new(Routers::new(77, vec![peer])));
    device
}

impl World {
    /// All sessions are up.
    pub fn new(config: Config) -> World {
        let count = config.vrfs.len() as u32;
        let mut ports: [Devices; 2] = Default::default();
        let ipv6 = config.sub_interfaces.iter().any(|sub| sub.ipv6.is_some());
        let ces = (0..count).map(|n| ports[CUSTOMERS].add(ce(n, ipv6)).unwrap()).collect();
        let pe = ports[CORE].add(pe_device(ipv6)).unwrap();
        let router = Router::new(config).unwrap();
        let mut world = World { now: Instant(1_000_000), router, ports, ces, pe, said: Vec::new() };
        for vrf in 0..count {
            world.start(vrf);
        }
        world.command(CORE, pe, &Command::Start);
        assert!(world.run(|w| w.is_up()), "{:?}", world.router.truth());
        world.rest();
        world
    }

    /// True if all sessions are up on both sides.
    pub fn is_up(&self) -> bool {
        let all_up = |ce: &Routers| (0..ce.len()).all(|router| ce.established(router));
        let of_ces: usize = (0..self.ces.len() as u32).map(|vrf| self.ce(vrf).len()).sum();
        self.router.truth().bgp.sessions == of_ces as u64 + 1
            && self.pe().established(0)
            && (0..self.ces.len() as u32).all(|vrf| all_up(self.ce(vrf)))
    }

    fn command(&mut self, port: usize, id: DeviceId, command: &Command) {
        self.ports[port].command(self.now, id, "bgp", command).unwrap();
    }

    /// Starts the session of a CE router.
    pub fn start(&mut self, vrf: u32) {
        self.command(CUSTOMERS, self.ces[vrf as usize], &Command::Start);
    }

    pub fn ce(&self, vrf: u32) -> &Routers {
        self.ports[CUSTOMERS].get(self.ces[vrf as usize]).protocol().unwrap()
    }

    pub fn ce_mut(&mut self, vrf: u32) -> &mut Routers {
        let id = self.ces[vrf as usize];
        self.ports[CUSTOMERS].protocol_mut(id).unwrap()
    }

    pub fn pe(&self) -> &Routers {
        self.ports[CORE].get(self.pe).protocol().unwrap()
    }

    pub fn pe_mut(&mut self) -> &mut Routers {
        self.ports[CORE].protocol_mut(self.pe).unwrap()
    }

    pub fn device(&mut self, port: usize, vrf: u32) -> &Device {
        let id = if port == CORE { self.pe } else { self.ces[vrf as usize] };
        self.ports[port].get(id)
    }

    /// Gives a command to the emulated device of a VRF or of the core.
    pub fn tell(&mut self, port: usize, vrf: u32, protocol: &str, command: &Command) {
        let id = if port == CORE { self.pe } else { self.ces[vrf as usize] };
        self.ports[port].command(self.now, id, protocol, command).unwrap();
    }

    /// A CE router advertises these routes, or withdraws them.
    pub fn ce_says(&mut self, vrf: u32, change: Change, routes: &Arc<Routes>, part: Range<u32>) {
        let out = self.ce_mut(vrf).adj_rib_out(0);
        match change {
            Change::Advertise => out.advertise(routes.clone(), part, Packing::default()),
            Change::Withdraw => out.withdraw(routes.clone(), part, Packing::default()),
        }
    }

    /// The PE router advertises these routes, or withdraws them.
    pub fn pe_says(&mut self, change: Change, routes: &Arc<VpnRoutes>, vrfs: Range<u32>, part: Range<u32>) {
        let set = VpnRouteSet { vrfs, part, ..VpnRouteSet::all(routes.clone(), Packing::default()) };
        self.command(CORE, self.pe, &Command::Bgp(BgpCommand::VpnRoutes { peer: 0, change, set }));
    }

    /// The PE router expects these routes of all CE routers, with the device's identifiers, labels and attributes.
    pub fn pe_expects(&mut self, count: u32, routes: &Arc<Routes>) -> ExpectationId {
        let vrfs = vrfs(count, DUT_LOOPBACK, FIRST_VRF_LABEL, LabelPer::Vrf);
        let routes = Arc::new(VpnRoutes::new(vrfs, routes.clone(), PrefixesPerVrf::Same).unwrap());
        let expected = Expected {
            source: RouteSource::External,
            as_path_prefix: vec![CUSTOMER_AS],
            next_hop: Some(DUT_LOOPBACK.into()),
            check_attributes: true,
            labels: true,
            ..Expected::default()
        };
        let keys = VpnPart { routes, distinguishers: Distinguishers::Configured };
        let now = self.now;
        self.pe_mut().adj_rib_in_mut(0).expect_vpn(now, keys, expected)
    }

    /// A CE router expects these routes of the PE router.
    pub fn ce_expects(&mut self, vrf: u32, routes: &Arc<Routes>, part: Range<u32>) -> ExpectationId {
        let expected = Expected {
            source: RouteSource::External,
            as_path_prefix: vec![PROVIDER_AS.into()],
            next_hop: Some(DUT_TO_CE.into()),
            check_attributes: true,
            ..Expected::default()
        };
        let now = self.now;
        self.ce_mut(vrf).adj_rib_in_mut(0).expect(now, routes.clone(), part, expected)
    }

    /// Does everything that is due at this instant.
    fn step(&mut self) {
        let World { now, router, ports, said, .. } = self;
        let now = *now;
        let mut outgoing = Vec::new();
        for (port, devices) in ports.iter_mut().enumerate() {
            devices.poll(now, 64 << 10, &mut |frame| outgoing.push((port, frame.to_vec())));
        }
        outgoing.iter().for_each(|(port, frame)| router.receive(now, *port, frame));
        let mut sent = Vec::new();
        router.poll(now, &mut |_, port, frame| sent.push((port, frame.to_vec())));
        outgoing.clear();
        for (port, frame) in &sent {
            said.extend(spoken(*port, frame));
            let answer = &mut |answer: &[u8]| outgoing.push((*port, answer.to_vec()));
            assert!(ports[*port].receive(now, frame, answer), "each frame has its device");
        }
        outgoing.iter().for_each(|(port, frame)| router.receive(now, *port, frame));
    }

    /// Runs until `enough`, for at most 20 seconds. Returns true if `enough` became true.
    pub fn run(&mut self, enough: impl Fn(&World) -> bool) -> bool {
        self.run_for(Duration::from_secs(20), enough)
    }

    pub fn run_for(&mut self, time: Duration, enough: impl Fn(&World) -> bool) -> bool {
        let end = self.now + time;
        loop {
            self.step();
            if enough(self) || self.now >= end {
                return enough(self);
            }
            let devices = self.ports.iter().filter_map(Devices::next_deadline);
            let next = devices.chain(self.router.next_deadline()).min();
            self.now = next.unwrap_or(end).max(self.now + Duration::from_micros(50)).min(end);
        }
    }

    /// Waits until everything that is in flight has arrived.
    pub fn rest(&mut self) {
        assert!(!self.run_for(Duration::from_millis(500), |_| false));
    }

    /// The frames that the device immediately sends for a frame.
    pub fn offer(&mut self, port: usize, frame: &[u8]) -> Vec<(usize, Vec<u8>)> {
        self.router.receive(self.now, port, frame);
        let mut sent = Vec::new();
        self.router.poll(self.now, &mut |_, port, frame| sent.push((port, frame.to_vec())));
        sent
    }

    pub fn set_faults(&mut self, change: impl FnOnce(&mut Faults)) {
        let mut faults = Faults::default();
        change(&mut faults);
        self.router.set_faults(faults).unwrap();
    }

    /// The bodies of the UPDATEs to the PE router since the last call.
    pub fn updates(&mut self) -> Vec<Vec<u8>> {
        let said = std::mem::take(&mut self.said);
        let (mut rest, mut updates) = (&said[..], Vec::new());
        while let Some(head) = rest.first_chunk::<HEADER_LEN>() {
            let (message, after) = rest.split_at(usize::from(u16::from_be_bytes([head[16], head[17]])));
            if head[18] == kind::UPDATE {
                updates.push(message[HEADER_LEN..].to_vec());
            }
            rest = after;
        }
        updates
    }
}

/// The data of a TCP segment from port 179 to the core, with or without labels.
fn spoken(port: usize, frame: &[u8]) -> Vec<u8> {
    let labels = if frame[12..14] == [0x88, 0x47] {
        1 + frame[14..].chunks(4).position(|entry| entry[2] & 1 == 1).unwrap()
    } else {
        0
    };
    let Ok((ip, segment)) = ipv4::Repr::parse(&frame[14 + 4 * labels..]) else { return Vec::new() };
    if port != CORE || ip.protocol != 6 || segment[..2] != 179u16.to_be_bytes() {
        return Vec::new();
    }
    segment[usize::from(segment[12] >> 4) * 4..].to_vec()
}

/// An IPv4 packet of 46 bytes with an unknown protocol.
pub fn packet(source: Ipv4Addr, destination: Ipv4Addr, ttl: u8) -> Vec<u8> {
    let mut packet = vec![0; 46];
    let ip = ipv4::Repr {
        tos: 0,
        identification: 1,
        dont_fragment: true,
        ttl,
        protocol: 253,
        source,
        destination,
        payload_len: 26,
    };
    ip.emit(&mut packet);
    packet
}

/// A frame with this packet behind the tag of a VRF, to the device or from it.
pub fn tagged(vrf: u32, link: Link, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; link::frame_len(packet)];
    link::write_frame(&mut frame, link, packet);
    [&frame[..12], &tag(vrf), &frame[12..]].concat()
}

/// A frame with this packet behind labels with their TTLs, the outermost first.
pub fn labelled(link: Link, labels: &[(u32, u8)], packet: &[u8]) -> Vec<u8> {
    let mut frame = [&link.destination.0[..], &link.source.0, &[0x88, 0x47]].concat();
    for (i, (label, ttl)) in labels.iter().enumerate() {
        let last = u32::from(i + 1 == labels.len());
        frame.extend((label << 12 | last << 8 | u32::from(*ttl)).to_be_bytes());
    }
    frame.extend(packet);
    frame
}

pub fn to_dut(port: usize) -> Link {
    Link { source: mac(port), destination: dut_mac(port) }
}

pub fn from_dut(port: usize) -> Link {
    Link { source: dut_mac(port), destination: mac(port) }
}
