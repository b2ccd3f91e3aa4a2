//! OSPF, LDP and BFD of the device against emulated P routers, in virtual time.

use crate::common::{BUDGET, SECOND, Test, behind4, config, host, net4, read};
use drophammer_emulation::Device;
use drophammer_emulation::bfd::{Bfd, SessionConfig};
use drophammer_emulation::ldp::{AdvertisedFecs, FecRange, LabelPattern, LdpCommand, Lsr, LsrConfig};
use drophammer_emulation::ospf::{
    Expected, Externals, NetworkType, Networks, Ospf, OspfCommand, OspfConfig, Part, Topology,
};
use drophammer_emulation::ping::Echo;
use drophammer_emulation::protocol::{Command, Protocol};
use drophammer_model::Instant;
use drophammer_model::label_edge::{CoreProtocol, DUT_LOOPBACK, OSPF_DEAD_S, OSPF_HELLO_S, p_router, pe_router};
use drophammer_model::role::{CoreLink, CoreRole};
use drophammer_model::trial::Family;
use drophammer_reference::{CoreConfig, Faults, IgpFaults, IgpTruth, LDP_LABELS, Resolved, Router, SPF_DELAY};
use drophammer_wire::bfd::State;
use drophammer_wire::ethernet;
use std::net::Ipv4Addr;
use std::time::Duration;

const FIB_DELAY: Duration = Duration::from_millis(7);
const ALL: [CoreProtocol; 3] = [CoreProtocol::Ospf, CoreProtocol::Ldp, CoreProtocol::Bfd];
/// Labels of the P router on each port.
const LABELS: [u32; 2] = [1_000, 20_000];

/// External prefix `n` behind the P router on a port.
fn prefix(n: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x1400_0000 + (n << 8))
}

/// The device with emulated P routers on ports 0 and 1.
struct World {
    now: Instant,
    router: Router,
    hosts: Vec<Device>,
    /// Frames that left the device.
    sent: Vec<(Instant, usize, Vec<u8>)>,
}

fn core(fib_delay: Duration) -> CoreConfig {
    let link = |port: usize| CoreLink {
        port,
        protocols: ALL.to_vec(),
        local: net4(port, 1),
        prefix_len: 24,
        neighbour: net4(port, 2),
        neighbour_id: p_router(port),
        pe: Some(pe_router(port)),
    };
    let role = CoreRole { loopback: DUT_LOOPBACK, links: vec![link(0), link(1)], unlabelled: Vec::new() };
    CoreConfig { role, fib_delay, fib_time_per_route: Duration::ZERO, label_limit: None }
}

/// A P router with a PE router behind it, and `externals` external routes, which it does not advertise at first.
fn ospf(port: usize, externals: u32) -> OspfConfig {
    let networks = Networks { first: prefix(0), length: 24, count: externals, metric: 20 + port as u32 };
    OspfConfig {
        network: NetworkType::PointToPoint,
        topology: Some(Topology::loopback(pe_router(port), 10)),
        external: (externals > 0).then_some(Externals {
            networks,
            type_2: false,
            tag: 0,
            forwarding: Ipv4Addr::UNSPECIFIED,
        }),
        advertise_at_start: false,
        hello_interval: OSPF_HELLO_S,
        dead_interval: OSPF_DEAD_S,
        ..OspfConfig::new(p_router(port))
    }
}

/// An LSR with a label for the PE router's address and for each external prefix.
fn ldp(port: usize, externals: u32) -> LsrConfig {
    let fecs = |first: Ipv4Addr, length: u8, count| FecRange::new(format!("{first}/{length}").parse().unwrap(), count);
    let labels = |first| LabelPattern::Counting { first, step: 1 };
    let pe = AdvertisedFecs { fecs: fecs(pe_router(port), 32, 1), labels: LabelPattern::ImplicitNull };
    let rest = AdvertisedFecs { fecs: fecs(prefix(0), 24, externals), labels: labels(LABELS[port]) };
    LsrConfig {
        advertised: vec![pe, rest],
        expected: vec![fecs(DUT_LOOPBACK, 32, 1), fecs(prefix(0), 24, externals)],
        ..LsrConfig::new(p_router(port), net4(port, 2))
    }
}

impl World {
    fn new(fib_delay: Duration, externals: u32) -> World {
        let mut own = config(3);
        own.core = Some(core(fib_delay));
        let mut hosts: Vec<_> = (0..3).map(host).collect();
        for (port, device) in hosts.iter_mut().enumerate().take(2) {
            let config = device.config().clone();
            device.add_protocol(Box::new(Ospf::configured(&config, &ospf(port, externals)).unwrap()));
            device.add_protocol(Box::new(Lsr::new(&config, ldp(port, externals.max(1))).unwrap()));
            let session = SessionConfig { desired_min_tx: 100_000, ..SessionConfig::new(net4(port, 1).into()) };
            device.add_protocol(Box::new(Bfd::configured(&config, &[session]).unwrap()));
        }
        let router = Router::new(own).unwrap();
        let mut world = World { now: Instant(0), router, hosts, sent: Vec::new() };
        world.run_until(Instant(SECOND));
        world
    }

    fn run_until(&mut self, end: Instant) {
        loop {
            let hosts = self.hosts.iter().filter_map(Device::next_deadline);
            let Some(at) = hosts.chain(self.router.next_deadline()).min().filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            self.step();
        }
        self.now = end;
    }

    fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    /// Does everything that is due now.
    fn step(&mut self) {
        let (now, mut frames) = (self.now, Vec::new());
        for (port, host) in self.hosts.iter_mut().enumerate() {
            host.poll(now, BUDGET, &mut |frame| frames.push((port, frame.to_vec())));
        }
        for (port, frame) in frames {
            self.router.receive(now, port, &frame);
        }
        let mut sent = Vec::new();
        self.router.poll(now, &mut |at, port, frame| sent.push((at, port, frame.to_vec())));
        for (at, port, frame) in sent {
            let mut answers = Vec::new();
            self.hosts[port].receive(at, &frame, &mut |answer| answers.push(answer.to_vec()));
            answers.iter().for_each(|answer| self.router.receive(at, port, answer));
            self.sent.push((at, port, frame));
        }
    }

    fn command(&mut self, port: usize, protocol: &str, command: &Command) {
        self.hosts[port].command(self.now, protocol, command).unwrap();
    }

    fn ospf(&mut self, port: usize, command: OspfCommand) {
        self.command(port, "ospf", &Command::Ospf(command));
    }

    fn advertise(&mut self, port: usize, what: Part) {
        self.ospf(port, OspfCommand::Advertise(what));
    }

    fn start(&mut self, protocol: &str) {
        (0..2).for_each(|port| self.command(port, protocol, &Command::Start));
    }

    /// Waits until adjacencies are full and the routers behind the ports are known.
    fn with_ospf(fib_delay: Duration, externals: u32) -> World {
        let mut world = World::new(fib_delay, externals);
        world.start("ospf");
        (0..2).for_each(|port| world.advertise(port, Part::Routers(0..1)));
        world.run_for(Duration::from_secs(12));
        assert_eq!(world.truth().ospf_full, 2);
        world
    }

    fn truth(&self) -> IgpTruth {
        self.router.truth().igp
    }

    fn state<P: Protocol>(&self, port: usize) -> drophammer_emulation::protocol::State {
        self.hosts[port].protocol::<P>().unwrap().state()
    }

    fn to(&self, address: Ipv4Addr) -> Option<(usize, Vec<u32>)> {
        let Resolved { interface, next_hop, labels } = self.router.route_to(address.into())?;
        assert_eq!(next_hop, net4(interface, 2));
        Some((interface, labels))
    }

    /// Sends a packet with this number from port 2. Returns the port by which it leaves, and the frame.
    fn forward(&mut self, destination: Ipv4Addr, number: u32, labels: &[u32]) -> Option<(usize, Vec<u8>)> {
        let test = Test { destination: destination.into(), size: 100, ..Test::new(2, 1, Family::Ipv4) };
        let mut frame = test.frame(number);
        if !labels.is_empty() {
            let last = labels.len() - 1;
            let entry = |(i, label): (usize, &u32)| (label << 12 | u32::from(i == last) << 8 | 64).to_be_bytes();
            frame.splice(ethernet::LEN..ethernet::LEN, labels.iter().enumerate().flat_map(entry));
            frame[12..14].copy_from_slice(&[0x88, 0x47]);
        }
        self.sent.clear();
        self.router.receive(self.now, 2, &frame);
        self.step();
        let counted = |frame: &Vec<u8>| {
            let at = ethernet::LEN + if frame[12] == 0x88 { 4 } else { 0 };
            let mut plain = [&frame[..12], &[8, 0], &frame[at..]].concat();
            plain.truncate(96);
            read(&plain).is_some_and(|seen| seen.number == number)
        };
        self.sent.iter().find(|(_, _, frame)| counted(frame)).map(|(_, port, frame)| (*port, frame.clone()))
    }

    fn check_sums(&self) {
        let t = self.router.truth();
        assert_eq!(t.received, t.control + t.ignored + t.transit, "{t:?}");
        assert_eq!(t.transit + t.duplicated, t.forwarded + t.dropped.total() + t.queued, "{t:?}");
    }
}

fn label_of(frame: &[u8]) -> Option<u32> {
    (frame[12..14] == [0x88, 0x47]).then(|| u32::from_be_bytes([0, frame[14], frame[15], frame[16]]) >> 4)
}

#[test]
fn two_p_routers_become_adjacent_and_their_networks_reachable() {
    let mut world = World::with_ospf(FIB_DELAY, 3);
    for port in 0..2 {
        let state = world.state::<Ospf>(port);
        assert_eq!((state.up, state.counter("adjacencies_full"), state.counter("unexpected")), (1, 1, 0));
        assert_eq!((state.counter("lsas_retransmitted"), state.counter("malformed")), (0, 0));
        assert_eq!(world.to(pe_router(port)), Some((port, vec![])));
        let neighbour = world.hosts[port].protocol::<Ospf>().unwrap();
        // Two Hellos of the device arrived before the command to start.
        assert_eq!(neighbour.rejected().sum(), 2, "{:?}", neighbour.rejected());
    }
    // Router-LSAs of the device, of two P routers and of two PE routers. The links are connected routes, not OSPF routes.
    assert_eq!((world.truth().lsas, world.truth().routes), (5, 2));
    // Everything that the device itself advertises.
    let now = world.now;
    let own = |text: &str| Expected::Prefix(text.parse().unwrap());
    let expected = [own("100.127.255.1/32"), own("198.18.0.0/24"), own("198.18.1.0/24"), own("100.127.1.2/32")];
    let ospf = world.hosts[0].protocol_mut::<Ospf>().unwrap();
    ospf.expect(now, expected, false);
    let found = ospf.verification();
    assert_eq!((found.present, found.missing), (4, 0));

    world.advertise(1, Part::External(0..3));
    let start = world.now;
    world.run_until(start + SPF_DELAY + FIB_DELAY - Duration::from_nanos(1));
    assert_eq!((world.to(prefix(0)), world.truth().routes), (None, 5));
    world.run_until(start + SPF_DELAY + FIB_DELAY);
    assert!((0..3).all(|n| world.to(prefix(n)) == Some((1, vec![]))));
    assert_eq!(world.truth().fib_changed_at, (start + SPF_DELAY + FIB_DELAY).0);
    let (port, frame) = world.forward(prefix(2), 77, &[]).unwrap();
    assert_eq!((port, read(&frame[..96]).unwrap().ttl), (1, 63));
    assert_eq!(world.state::<Ospf>(0).counter("lsas_learned"), 1 + 2 + 3, "the device floods to the other side");

    // A path with a lower metric is better; when it is withdrawn, the other one is used again.
    world.advertise(0, Part::External(0..3));
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.to(prefix(1)).unwrap().0, 0);
    world.ospf(0, OspfCommand::Metric(Part::External(1..2), 500));
    world.run_for(Duration::from_secs(8));
    assert_eq!([0, 1, 2].map(|n| world.to(prefix(n)).unwrap().0), [0, 1, 0]);
    world.ospf(0, OspfCommand::Withdraw(Part::External(0..3)));
    world.run_for(Duration::from_secs(2));
    assert_eq!([0, 1, 2].map(|n| world.to(prefix(n)).unwrap().0), [1, 1, 1]);
    world.ospf(1, OspfCommand::Withdraw(Part::External(0..3)));
    world.run_for(Duration::from_secs(2));
    assert_eq!((world.to(prefix(0)), world.truth().lsas, world.truth().routes), (None, 5, 2));
    world.check_sums();
}

#[test]
fn ten_thousand_externals_cost_few_computations_and_survive_a_refresh() {
    let mut world = World::with_ospf(Duration::ZERO, 10_000);
    let runs = world.truth().spf_runs;
    world.advertise(1, Part::External(0..10_000));
    world.run_for(Duration::from_secs(3));
    assert_eq!((world.truth().routes, world.truth().lsas), (10_002, 10_005));
    assert!(world.truth().spf_runs - runs < 40, "{:?}", world.truth());
    assert!((0..10_000).step_by(997).all(|n| world.to(prefix(n)) == Some((1, vec![]))));
    let progress = |world: &World, port: usize| world.hosts[port].protocol::<Ospf>().unwrap().progress();
    assert_eq!((progress(&world, 1).unacknowledged, world.state::<Ospf>(0).counter("lsas_learned")), (0, 10_003));
    let (fib, runs) = (world.truth().fib_changes, world.truth().spf_runs);
    world.run_for(Duration::from_secs(1_900));
    assert_eq!((world.truth().fib_changes, world.truth().spf_runs), (fib, runs), "a refresh changes nothing");
    assert_eq!((world.truth().lsas, world.truth().ospf_full), (10_005, 2));
    // If a neighbour falls silent, its routes disappear; the other neighbour keeps its routes.
    world.command(1, "ospf", &Command::Stop);
    world.run_for(Duration::from_secs(41));
    assert_eq!((world.truth().ospf_full, world.truth().routes), (1, 1));
    world.check_sums();
}

#[test]
fn a_link_that_goes_down_and_up_loses_and_regains_its_routes() {
    let mut world = World::with_ospf(FIB_DELAY, 0);
    let at = world.now;
    world.router.set_link(at, 0, false);
    world.run_for(SPF_DELAY + FIB_DELAY);
    assert_eq!((world.to(pe_router(0)), world.truth().ospf_full), (None, 1));
    world.run_for(Duration::from_secs(60));
    let at = world.now;
    world.router.set_link(at, 0, true);
    world.run_for(Duration::from_secs(30));
    assert_eq!((world.to(pe_router(0)), world.truth().ospf_full), (Some((0, vec![])), 2));
}

#[test]
fn labels_are_swapped_pushed_and_popped() {
    let mut world = World::with_ospf(FIB_DELAY, 10);
    world.advertise(1, Part::External(0..10));
    world.run_for(Duration::from_secs(2));
    world.start("ldp");
    for port in 0..2 {
        world.command(port, "ldp", &Command::Ldp(LdpCommand::Advertise { range: 0, part: 0..1 }));
    }
    world.run_for(Duration::from_secs(8));
    assert_eq!((world.truth().ldp_sessions, world.truth().labels_sent, world.truth().labels_received), (2, 12, 2));
    for port in 0..2 {
        let state = world.state::<Lsr>(port);
        assert_eq!((state.up, state.counter("mappings_received"), state.counter("malformed")), (1, 13, 0));
        let lsr = world.hosts[port].protocol::<Lsr>().unwrap();
        let label = |text: String| lsr.label_for(text.parse().unwrap()).map(|label| label.value());
        assert_eq!(label(format!("{DUT_LOOPBACK}/32")), Some(3));
        assert!(label(format!("{}/24", prefix(4))).is_some_and(|label| LDP_LABELS.contains(&label)));
    }
    let label = |world: &World, n: u32| {
        let lsr = world.hosts[0].protocol::<Lsr>().unwrap();
        lsr.label_for(format!("{}/24", prefix(n)).parse().unwrap()).unwrap().value()
    };
    let incoming = label(&world, 4);
    // Without a label from the next hop, labelled packets are dropped, and others follow the route.
    assert_eq!(world.forward(prefix(4), 1, &[incoming]), None);
    assert_eq!(world.router.truth().dropped.no_label, 1);
    assert_eq!(label_of(&world.forward(prefix(4), 2, &[]).unwrap().1), None);

    let part = 0..10;
    world.command(1, "ldp", &Command::Ldp(LdpCommand::Advertise { range: 1, part: part.clone() }));
    // Labels from a router that is not the next hop are kept but not used.
    world.command(0, "ldp", &Command::Ldp(LdpCommand::Advertise { range: 1, part: part.clone() }));
    let start = world.now;
    world.run_for(FIB_DELAY - Duration::from_nanos(1));
    assert_eq!(world.forward(prefix(4), 3, &[incoming]), None);
    world.run_until(start + FIB_DELAY);
    let (port, frame) = world.forward(prefix(4), 4, &[incoming]).unwrap();
    assert_eq!((port, label_of(&frame), frame[17]), (1, Some(LABELS[1] + 4), 63));
    let (port, frame) = world.forward(prefix(4), 5, &[]).unwrap();
    assert_eq!((port, label_of(&frame), frame[17]), (1, Some(LABELS[1] + 4), 63));
    assert_eq!(world.to(prefix(9)), Some((1, vec![LABELS[1] + 9])));
    // Implicit null: no label to push, and the device pops its own.
    assert_eq!(world.to(pe_router(1)), Some((1, vec![])));
    let lsr = world.hosts[0].protocol::<Lsr>().unwrap();
    let popped = lsr.label_for(format!("{}/32", pe_router(1)).parse().unwrap()).unwrap().value();
    let (port, frame) = world.forward(pe_router(1), 6, &[popped]).unwrap();
    assert_eq!((port, label_of(&frame)), (1, None));

    // The better path over port 0 uses the label of the router there; the device's own label stays.
    world.advertise(0, Part::External(4..5));
    world.run_for(Duration::from_secs(2));
    let (port, frame) = world.forward(prefix(4), 7, &[incoming]).unwrap();
    assert_eq!((port, label_of(&frame), label(&world, 4)), (0, Some(LABELS[0] + 4), incoming));

    // Withdrawn labels are released, and no longer used.
    world.command(1, "ldp", &Command::Ldp(LdpCommand::Withdraw { range: 1, part }));
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.state::<Lsr>(1).counter("releases_received"), 10);
    assert_eq!((world.forward(prefix(5), 8, &[label(&world, 5)]), world.to(prefix(5))), (None, Some((1, vec![]))));

    // A prefix without a route has no label. When a session ends, its labels disappear.
    world.ospf(1, OspfCommand::Withdraw(Part::External(9..10)));
    world.run_for(Duration::from_secs(1));
    assert_eq!((world.truth().labels_sent, world.state::<Lsr>(0).counter("withdraws_received")), (11, 1));
    world.command(0, "ldp", &Command::Stop);
    world.run_for(Duration::from_secs(1));
    assert_eq!((world.truth().ldp_sessions, world.truth().labels_received), (1, 1));
    assert_eq!(world.to(prefix(4)), Some((0, vec![])));
    world.start("ldp");
    world.run_for(Duration::from_secs(8));
    assert_eq!((world.truth().ldp_sessions, world.truth().ldp_established), (2, 3));
    assert_eq!(world.to(prefix(4)), Some((0, vec![LABELS[0] + 4])));
    world.check_sums();
}

#[test]
fn the_loopback_address_answers_over_any_port() {
    let mut world = World::with_ospf(Duration::ZERO, 0);
    for port in 0..3 {
        let echo = Echo { to: Some(DUT_LOOPBACK.into()), ..Echo::gateway(Family::Ipv4) };
        let before = world.router.truth().echo_replies;
        world.command(port, "ping", &Command::Ping(echo));
        world.run_for(Duration::from_millis(10));
        assert_eq!(world.router.truth().echo_replies, before + 1, "port {port}");
    }
}

#[test]
fn bfd_ends_the_adjacency_within_the_detection_time() {
    let mut world = World::with_ospf(Duration::ZERO, 0);
    world.start("bfd");
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.truth().bfd_up, 2);
    let report = |world: &World, port: usize| world.hosts[port].protocol::<Bfd>().unwrap().sessions().next().unwrap();
    // The larger of the device's 50 ms and the 300 ms at which the tester can receive; in the other direction 100 ms.
    assert_eq!(report(&world, 0).detection_time, Duration::from_millis(900));
    // A router that falls silent is lost after three of its intervals.
    world.hosts[0] = host(0);
    let silent = world.now;
    world.run_until(silent + Duration::from_millis(300));
    assert_eq!((world.truth().ospf_full, world.truth().bfd_up), (1, 1));
    assert_eq!(world.to(pe_router(0)).map(|(port, _)| port), Some(0), "until the next computation of the routes");
    world.run_for(SPF_DELAY);
    assert_eq!(world.to(pe_router(0)), None);
    // A router that announces that it goes down is lost immediately.
    world.command(1, "bfd", &Command::Stop);
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.truth().bfd_up, 0);
}

#[test]
fn the_faults_of_ospf_and_bfd_are_exact() {
    let mut world = World::with_ospf(Duration::ZERO, 20);
    let late = Duration::from_millis(400);
    let igp = IgpFaults { late_lsa_flooding: late, late_lsa_every: 10, bfd_packet_missing: 1, ..IgpFaults::default() };
    world.router.set_faults(Faults { igp, ..Faults::default() }).unwrap();
    let start = world.now;
    world.advertise(1, Part::External(0..20));
    world.run_until(start + SPF_DELAY);
    let there = |world: &World| (0..20).filter(|n| world.to(prefix(*n)).is_some()).collect::<Vec<_>>();
    assert_eq!((there(&world).len(), world.truth().lsas_late), (18, 2));
    assert!(!there(&world).contains(&9) && !there(&world).contains(&19));
    assert_eq!(world.state::<Ospf>(0).counter("lsas_learned"), 1 + 2 + 18, "they are not flooded either");
    world.run_until(start + late + SPF_DELAY - Duration::from_nanos(1));
    assert_eq!(there(&world).len(), 18);
    world.run_until(start + late + SPF_DELAY);
    assert_eq!((there(&world).len(), world.state::<Ospf>(0).counter("lsas_learned")), (20, 23));
    assert_eq!(world.state::<Ospf>(1).counter("lsas_retransmitted"), 0, "they are acknowledged in time");
    world.start("bfd");
    world.run_for(Duration::from_secs(5));
    assert!(world.truth().bfd_missing > 2 && world.truth().bfd_up == 0, "{:?}", world.truth());
    let report = world.hosts[0].protocol::<Bfd>().unwrap().sessions().next().unwrap();
    assert_eq!(report.state, State::Down);
}

#[test]
fn a_core_link_must_be_that_of_its_port() {
    let mut own = config(3);
    own.core = Some(core(Duration::ZERO));
    own.ports[1].ipv4 = Some((net4(1, 9), 24));
    let error = Router::new(own).err().unwrap().to_string();
    assert!(error.contains("core link of port 1"), "{error}");
    assert_eq!(behind4(0, 0).octets()[..2], [198, 19], "static routes do not collide with the loopback");
}
