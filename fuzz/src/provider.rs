//! The reference router as a provider's: VRFs, OSPF, LDP, BFD, RSVP-TE and BGP with emulated CE, P and PE routers. Whatever is lost, damaged or
//! unplugged between them, and whatever it does wrong, its counts add up and its own packets have the right checksums.

use super::frames::{Stations, assert_checksums, frame, spoil};
use super::input::Input;
use drophammer_emulation::bfd::{Bfd, SessionConfig};
use drophammer_emulation::bgp::{PeerConfig, Routers};
use drophammer_emulation::device::{DeviceId, Tags};
use drophammer_emulation::ldp::{AdvertisedFecs, FecRange, LabelPattern, LdpCommand, Lsr, LsrConfig};
use drophammer_emulation::ospf::{Externals, NetworkType, Networks, Ospf, OspfCommand, OspfConfig, Part, Topology};
use drophammer_emulation::protocol::{Command, ProtocolConfig};
use drophammer_emulation::rsvp::{
    self, EgressRange, IngressRange, LabelPolicy, LspRange, Pace, RefreshReduction, RouteHop, RsvpCommand,
};
use drophammer_emulation::{Address, Device, DeviceConfig, Devices};
use drophammer_model::Instant;
use drophammer_model::label_edge::{
    self, CE, CE_LINK_LENGTH, CUSTOMER_AS, CoreProtocol, DUT_LOOPBACK, DUT_TO_CE, FIRST_VLAN, OSPF_DEAD_S,
    OSPF_HELLO_S, PROVIDER_AS, p_router, pe_router,
};
use drophammer_model::role::{CoreLink, CoreRole};
use drophammer_model::suite::VlanTag;
use drophammer_reference::{
    BgpConfig, BgpFaults, BgpPeer, Config, CoreConfig, FIRST_VRF_LABEL, Faults, IgpFaults, LDP_LABELS, PortConfig,
    Router, RsvpConfig, SubInterface, Vrf,
};
use drophammer_wire::MacAddr;
use drophammer_wire::bgp::AfiSafi;
use drophammer_wire::ethernet::{self, ethertype};
use std::net::Ipv4Addr;
use std::time::Duration;

const PORTS: usize = 3;
/// The port with the CE routers. The others are core ports.
const CUSTOMERS: usize = 0;
const VRFS: u32 = 2;
const LSPS: u32 = 4;
/// Prefixes of OSPF and LDP behind each P router.
const PREFIXES: u32 = 8;
const FIRST: Ipv4Addr = Ipv4Addr::new(20, 0, 0, 0);
const PROTOCOLS: [&str; 5] = ["ospf", "ldp", "bfd", "rsvp", "bgp"];
const BUDGET: usize = 64 << 10;
/// First label that the router hands out by RSVP-TE.
const RSVP_LABEL: u32 = 600_000;
/// Until all sessions are up.
const BRING_UP: Duration = Duration::from_secs(15);
/// Most actions of an input: they take virtual time.
const MOST: usize = 40;

fn address(port: usize, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, port as u8, host)
}

fn dut_mac(port: usize) -> MacAddr {
    MacAddr::local(0x100 + port as u64)
}

fn mac(port: usize) -> MacAddr {
    MacAddr::local(0x200 + port as u64)
}

fn lsps() -> LspRange {
    LspRange::new(LSPS, [10, 1, 0, 1].into(), [10, 2, 0, 1].into())
}

fn config(input: &mut Input) -> Config {
    let port = |i: usize| {
        let ipv4 = (i != CUSTOMERS).then(|| (address(i, 1), 24));
        PortConfig { ipv4, ..PortConfig::new(dut_mac(i)) }
    };
    let sub = |n: u32| SubInterface {
        port: CUSTOMERS,
        tags: vec![VlanTag { tpid: 0x8100, vid: FIRST_VLAN + n as u16 }],
        ipv4: Some((DUT_TO_CE, CE_LINK_LENGTH)),
        ipv6: None,
    };
    let interface = |n: u32| PORTS + n as usize;
    let vrf = |n: u32| Vrf {
        interfaces: vec![interface(n)],
        distinguisher: label_edge::distinguisher(DUT_LOOPBACK, n),
        target: label_edge::target(n),
        bfd: vec![(interface(n), CE)],
    };
    let ce =
        |n: u32| BgpPeer { port: interface(n), address: CE.into(), asn: CUSTOMER_AS, connect: false, client: false };
    let link = |port: usize| CoreLink {
        port,
        protocols: vec![CoreProtocol::Ospf, CoreProtocol::Ldp, CoreProtocol::Bfd],
        local: address(port, 1),
        prefix_len: 24,
        neighbour: address(port, 2),
        neighbour_id: p_router(port),
        pe: Some(pe_router(port)),
    };
    let role = CoreRole { loopback: DUT_LOOPBACK, links: vec![link(1), link(2)], unlabelled: Vec::new() };
    Config {
        ports: (0..PORTS).map(port).collect(),
        sub_interfaces: (0..VRFS).map(sub).collect(),
        loopback: Some(DUT_LOOPBACK),
        vrfs: (0..VRFS).map(vrf).collect(),
        bgp: Some(BgpConfig {
            asn: PROVIDER_AS.into(),
            router_id: DUT_LOOPBACK,
            peers: (0..VRFS).map(ce).collect(),
            pe_peers: vec![pe_router(1)],
            ..BgpConfig::default()
        }),
        core: Some(CoreConfig {
            role,
            fib_delay: Duration::from_millis(input.u8().into()),
            fib_time_per_route: Duration::ZERO,
            label_limit: input.flag().then_some(3),
        }),
        rsvp: Some(RsvpConfig {
            interfaces: vec![1, 2],
            refresh: Duration::from_secs(1 + u64::from(input.u8() % 4)),
            lsp_limit: input.flag().then_some(2),
            refresh_reduction: input.flag(),
        }),
        pipe: input.flag(),
        seed: 3,
        ..Config::default()
    }
}

fn faults(input: &mut Input) -> Faults {
    let chosen = input.u8();
    let every = u64::from(input.u8() % 4);
    let on = |bit: u32| if chosen & 1 << bit != 0 { every } else { 0 };
    let time = Duration::from_millis(u64::from(input.u8()) * 4);
    Faults {
        igp: IgpFaults {
            late_lsa_flooding: time,
            late_lsa_every: on(0),
            bfd_packet_missing: on(1),
            implicit_null_every: on(2),
        },
        bgp: BgpFaults { leak_vpn_route: on(3) > 0, lost_route_every: on(4), ..BgpFaults::default() },
        forget_lsp_on_refresh: on(5),
        label_pop_every: on(6),
        swap_vpn_labels: on(7) > 0,
        ..Faults::default()
    }
}

fn ce(vrf: u32) -> Device {
    let config = DeviceConfig {
        tags: Tags::dot1q(FIRST_VLAN + vrf as u16).unwrap(),
        ipv4: Some(Address { address: CE, prefix_len: CE_LINK_LENGTH, gateway: DUT_TO_CE }),
        ..DeviceConfig::new(format!("ce {vrf}"), mac(CUSTOMERS), u64::from(vrf))
    };
    let mut device = Device::new(config.clone());
    let id = Ipv4Addr::from_bits(0x6470_0001 + vrf);
    let peer = PeerConfig::new(CE.into(), DUT_TO_CE.into(), CUSTOMER_AS, PROVIDER_AS.into(), id);
    device.add_protocol(Box::new(Routers::new(u64::from(vrf), vec![peer])));
    device.add_protocol(Box::new(Bfd::configured(&config, &[SessionConfig::new(DUT_TO_CE.into())]).unwrap()));
    device
}

/// A P router with a PE router behind it. LSPs begin at port 1 and end at port 2.
fn core(port: usize, input: &mut Input) -> Device {
    let own = Address { address: address(port, 2), prefix_len: 24, gateway: address(port, 1) };
    let config = DeviceConfig { ipv4: Some(own), ..DeviceConfig::new(format!("p{port}"), mac(port), port as u64) };
    let mut device = Device::new(config.clone());
    assert!(device.add_addresses(pe_router(port).into(), 1));
    let networks = Networks { first: FIRST, length: 24, count: PREFIXES, metric: 20 + port as u32 };
    let ospf = OspfConfig {
        network: NetworkType::PointToPoint,
        topology: Some(Topology::loopback(pe_router(port), 10)),
        external: Some(Externals { networks, type_2: false, tag: 0, forwarding: Ipv4Addr::UNSPECIFIED }),
        hello_interval: OSPF_HELLO_S,
        dead_interval: OSPF_DEAD_S,
        ..OspfConfig::new(p_router(port))
    };
    let fecs = |first: Ipv4Addr, length: u8, count| FecRange::new(format!("{first}/{length}").parse().unwrap(), count);
    let labels = LabelPattern::Counting { first: 1_000 * port as u32, step: 1 };
    let pe = AdvertisedFecs { fecs: fecs(pe_router(port), 32, 1), labels: LabelPattern::ImplicitNull };
    let ldp = LsrConfig {
        advertised: vec![pe, AdvertisedFecs { fecs: fecs(FIRST, 24, PREFIXES), labels }],
        expected: vec![fecs(DUT_LOOPBACK, 32, 1), fecs(FIRST, 24, PREFIXES)],
        ..LsrConfig::new(p_router(port), own.address)
    };
    let hop = |address| RouteHop { address, prefix_len: 32, loose: false };
    let route = vec![hop(address(1, 1)), hop(address(2, 2))];
    let ingress = IngressRange { explicit_route: route, ..IngressRange::new(lsps()) };
    let egress = EgressRange { lsps: lsps(), labels: LabelPolicy::From(100_000) };
    let rsvp = rsvp::RsvpConfig {
        ingress: if port == 1 { vec![ingress] } else { vec![] },
        egress: if port == 1 { vec![] } else { vec![egress] },
        refresh: Duration::from_secs(2),
        refresh_reduction: input.flag().then(RefreshReduction::default),
        ..rsvp::RsvpConfig::default()
    };
    device.add_protocol(Box::new(Ospf::configured(&config, &ospf).unwrap()));
    device.add_protocol(Box::new(Lsr::new(&config, ldp).unwrap()));
    device.add_protocol(Box::new(Bfd::configured(&config, &[SessionConfig::new(own.gateway.into())]).unwrap()));
    device.add_protocol(ProtocolConfig::Rsvp(Box::new(rsvp)).create(&config).unwrap());
    if port == 1 {
        let asn = u32::from(PROVIDER_AS);
        let peer = PeerConfig::new(pe_router(port).into(), DUT_LOOPBACK.into(), asn, asn, pe_router(port));
        device.add_protocol(Box::new(Routers::new(77, vec![PeerConfig { families: vec![AfiSafi::VPNV4], ..peer }])));
    }
    device
}

struct World {
    now: Instant,
    router: Router,
    ports: [Devices; PORTS],
    devices: Vec<(usize, DeviceId)>,
    received: u64,
    /// So many of the next frames to the router are lost, and of those after them damaged.
    lost: usize,
    damaged: usize,
}

impl World {
    fn new(input: &mut Input) -> World {
        let router = Router::new(config(input)).unwrap();
        let mut ports: [Devices; PORTS] = Default::default();
        let mut devices = Vec::new();
        for vrf in 0..VRFS {
            devices.push((CUSTOMERS, ports[CUSTOMERS].add(ce(vrf)).unwrap()));
        }
        for (port, own) in ports.iter_mut().enumerate().skip(1) {
            devices.push((port, own.add(core(port, input)).unwrap()));
        }
        World { now: Instant(1_000_000), router, ports, devices, received: 0, lost: 0, damaged: 0 }
    }

    /// Gives a command to a protocol of a device; one that it does not have is refused.
    fn command(&mut self, device: usize, protocol: &str, command: &Command) {
        let (port, id) = self.devices[device];
        let _ = self.ports[port].command(self.now, id, protocol, command);
    }

    fn hand_over(&mut self, port: usize, frame: &[u8]) {
        self.router.receive(self.now, port, frame);
        self.received += 1;
        let truth = self.router.truth();
        assert_eq!(truth.received, self.received);
        assert_eq!(truth.received, truth.control + truth.ignored + truth.transit, "{truth:?}");
        let gone = truth.forwarded + truth.dropped.total() + truth.queued;
        assert_eq!(truth.transit + truth.duplicated, gone, "{truth:?}");
    }

    /// A frame of a device, as far as it gets.
    fn deliver(&mut self, input: &mut Input, port: usize, mut frame: Vec<u8>) {
        if self.lost > 0 {
            self.lost -= 1;
            return;
        }
        if self.damaged > 0 {
            self.damaged -= 1;
            spoil(input, &mut frame);
        }
        self.hand_over(port, &frame);
    }

    /// Does everything that is due at this instant.
    fn step(&mut self, input: &mut Input) {
        let now = self.now;
        let mut frames = Vec::new();
        for (port, devices) in self.ports.iter_mut().enumerate() {
            devices.poll(now, BUDGET, &mut |frame| frames.push((port, frame.to_vec())));
        }
        frames.into_iter().for_each(|(port, frame)| self.deliver(input, port, frame));
        let before = self.router.truth().forwarded;
        let mut sent = Vec::new();
        self.router.poll(now, &mut |at, port, frame| {
            assert!(at <= now && port < PORTS, "{at:?}, polled at {now:?}");
            sent.push((port, frame.to_vec()));
        });
        if self.router.truth().forwarded == before {
            sent.iter().for_each(|(_, frame)| assert_checksums(frame));
        }
        let mut answers = Vec::new();
        for (port, frame) in &sent {
            self.ports[*port].receive(now, frame, &mut |answer| answers.push((*port, answer.to_vec())));
        }
        answers.into_iter().for_each(|(port, frame)| self.deliver(input, port, frame));
    }

    fn run(&mut self, input: &mut Input, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step(input);
            let devices = self.ports.iter().filter_map(Devices::next_deadline);
            let next = devices.chain(self.router.next_deadline()).min();
            self.now = next.unwrap_or(end).max(self.now + Duration::from_micros(50)).min(end);
        }
        self.step(input);
    }

    fn act(&mut self, input: &mut Input, stations: &Stations) {
        match input.below(8) {
            0..3 => {
                let time = Duration::from_millis(u64::from(input.u16() % 4_000));
                self.run(input, time);
            }
            3 => self.lost = 1 + input.below(16),
            4 => self.damaged = 1 + input.below(16),
            5 => self.router.set_faults(faults(input)).unwrap(),
            6 => {
                let (port, up) = (input.below(PORTS), input.flag());
                self.router.set_link(self.now, port, up);
            }
            _ if input.flag() => {
                let port = input.below(PORTS);
                let mut frame = frame(input, stations);
                if input.flag() {
                    label(input, &mut frame);
                }
                self.hand_over(port, &frame);
            }
            _ => {
                let (device, protocol) = (input.below(self.devices.len()), PROTOCOLS[input.below(PROTOCOLS.len())]);
                let (part, pace) = (0..PREFIXES, Pace { lsps: 0..LSPS, per_second: 0 });
                let command = match input.below(9) {
                    0 | 1 => Command::Start,
                    2 => Command::Stop,
                    3 => Command::Ospf(OspfCommand::Advertise(Part::External(part))),
                    4 => Command::Ospf(OspfCommand::Withdraw(Part::External(part))),
                    5 => Command::Ldp(LdpCommand::Advertise { range: 1, part }),
                    6 => Command::Ldp(LdpCommand::Withdraw { range: 1, part }),
                    7 => Command::Rsvp(RsvpCommand::SetUp(pace)),
                    _ => Command::Rsvp(RsvpCommand::TearDown(pace)),
                };
                self.command(device, protocol, &command);
            }
        }
    }
}

/// Puts a label before the packet: one that the router may have handed out, or any other.
fn label(input: &mut Input, frame: &mut Vec<u8>) {
    if frame.len() < ethernet::LEN {
        return;
    }
    let near = input.below(8) as u32;
    let label = [FIRST_VRF_LABEL, LDP_LABELS.start, RSVP_LABEL, input.u32() & 0xf_ffff][input.below(4)] + near;
    let entry = (label & 0xf_ffff) << 12 | u32::from(input.flag()) << 8 | u32::from(input.u8());
    frame[12..14].copy_from_slice(&ethertype::MPLS.to_be_bytes());
    frame.splice(ethernet::LEN..ethernet::LEN, entry.to_be_bytes());
}

/// Everything comes up, and then the input decides what happens.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let stations = Stations {
        macs: [dut_mac(1), mac(1)],
        ipv4: [address(1, 1), address(1, 2), DUT_LOOPBACK, FIRST],
        ipv6: ["2001:2::1", "2001:2::2", "2001:2::9", "fe80::1"].map(|a| a.parse().unwrap()),
    };
    let mut world = World::new(&mut input);
    for device in 0..world.devices.len() {
        PROTOCOLS.iter().for_each(|protocol| world.command(device, protocol, &Command::Start));
    }
    // LDP advertises labels only by command.
    for device in VRFS as usize..world.devices.len() {
        for (range, part) in [(0, 0..1), (1, 0..PREFIXES)] {
            world.command(device, "ldp", &Command::Ldp(LdpCommand::Advertise { range, part }));
        }
    }
    let pace = Pace { lsps: 0..LSPS, per_second: 0 };
    world.command(VRFS as usize, "rsvp", &Command::Rsvp(RsvpCommand::SetUp(pace)));
    world.run(&mut input, BRING_UP);
    let truth = world.router.truth();
    let up = (truth.igp.ospf_full, truth.igp.bfd_up, truth.vrf_bfd.up);
    assert_eq!(up, (2, 2, VRFS.into()), "nothing has disturbed them: {truth:?}");
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        world.act(&mut input, &stations);
    }
    // Whatever it has not understood, it goes on.
    world.router.set_faults(Faults::default()).unwrap();
    (world.lost, world.damaged) = (0, 0);
    (0..PORTS).for_each(|port| world.router.set_link(world.now, port, true));
    world.run(&mut input, Duration::from_secs(5));
}
