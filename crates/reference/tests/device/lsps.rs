//! LSPs by RSVP-TE through the device, between an emulated ingress and an emulated egress, in virtual time.

use crate::common::{MS, SECOND, config, net4};
use drophammer_emulation::protocol::{Command, ProtocolConfig, State};
use drophammer_emulation::rsvp::{
    EgressRange, HelloConfig, IngressRange, LabelPolicy, LspRange, NAME, Pace, Phase, RefreshReduction, RouteHop, Rsvp,
    RsvpCommand, RsvpConfig,
};
use drophammer_emulation::{Address, Device, DeviceConfig};
use drophammer_model::Instant;
use drophammer_reference::{Faults, Router, RsvpTruth};
use drophammer_wire::MacAddr;
use drophammer_wire::ethernet::{self, ethertype};
use drophammer_wire::rsvp::{error, routing};
use proptest::prelude::*;
use std::ops::Range;
use std::time::Duration;

const INGRESS: usize = 0;
const EGRESS: usize = 1;
/// First label of the egress, and first label of the device.
const LABEL: u32 = 100_000;
const OWN: u32 = 600_000;
const BUDGET: usize = 64 << 10;

/// The device, and the P routers on its two ports.
struct World {
    router: Router,
    hosts: [Device; 2],
    now: Instant,
    /// Ports whose hosts are cut off.
    cut: [bool; 2],
    /// Labelled frames that arrived: port, label, TTL.
    labelled: Vec<(usize, u32, u8)>,
    /// Messages that the device sent on each port, and received.
    sent: [u64; 2],
    /// Frames to the device.
    received: Vec<(usize, Vec<u8>)>,
}

fn host(port: usize, config: RsvpConfig) -> Device {
    let ipv4 = Some(Address { address: net4(port, 2), prefix_len: 24, gateway: net4(port, 1) });
    let config_of_device = DeviceConfig {
        ipv4,
        ..DeviceConfig::new(format!("p{port}"), MacAddr::local(0x200 + port as u64), port as u64)
    };
    let mut host = Device::new(config_of_device.clone());
    host.add_protocol(ProtocolConfig::Rsvp(Box::new(config)).create(&config_of_device).unwrap());
    host
}

fn lsps(count: u32) -> LspRange {
    LspRange::new(count, [10, 1, 0, 1].into(), [10, 2, 0, 1].into())
}

fn strict(port: usize, host: u8) -> RouteHop {
    RouteHop { address: net4(port, host), prefix_len: 32, loose: false }
}

/// Both ends refresh every 10 s without jitter.
fn ends() -> RsvpConfig {
    RsvpConfig { refresh: Duration::from_secs(10), jitter_percent: 0, ..RsvpConfig::default() }
}

fn reduced() -> RsvpConfig {
    RsvpConfig { refresh_reduction: Some(RefreshReduction::default()), ..ends() }
}

impl World {
    fn new(count: u32, ends: &RsvpConfig) -> World {
        World::of(count, ends, &[strict(0, 1), strict(1, 2)], |_| {})
    }

    fn of(
        count: u32,
        ends: &RsvpConfig,
        route: &[RouteHop],
        change: impl FnOnce(&mut drophammer_reference::RsvpConfig),
    ) -> World {
        let range =
            IngressRange { explicit_route: route.to_vec(), record_route: true, ..IngressRange::new(lsps(count)) };
        let ingress = RsvpConfig { ingress: vec![range], ..ends.clone() };
        let egress = vec![EgressRange { lsps: lsps(count), labels: LabelPolicy::From(LABEL) }];
        let mut rsvp = drophammer_reference::RsvpConfig {
            interfaces: vec![0, 1],
            refresh: Duration::from_secs(10),
            ..Default::default()
        };
        change(&mut rsvp);
        let router = Router::new(drophammer_reference::Config { rsvp: Some(rsvp), ..config(2) }).unwrap();
        let hosts = [host(0, ingress), host(1, RsvpConfig { egress, ..ends.clone() })];
        let (labelled, sent) = (Vec::new(), [0; 2]);
        let received = Vec::new();
        let mut world = World { router, hosts, now: Instant(0), cut: [false; 2], labelled, sent, received };
        world.hosts.iter_mut().for_each(|host| host.command(Instant(0), NAME, &Command::Start).unwrap());
        // Everybody learns addresses.
        world.run_to(10 * MS);
        world
    }

    fn command(&mut self, at: usize, command: RsvpCommand) {
        self.hosts[at].command(self.now, NAME, &Command::Rsvp(command)).unwrap();
    }

    fn set_up(&mut self, lsps: Range<u32>, per_second: u32) {
        self.command(INGRESS, RsvpCommand::SetUp(Pace { lsps, per_second }));
    }

    fn run_to(&mut self, end: u64) {
        loop {
            let hosts = self.hosts.iter().filter_map(Device::next_deadline).min();
            let due = [hosts, self.router.next_deadline()].into_iter().flatten().min();
            let Some(at) = due.map(|at| at.max(self.now)).filter(|at| at.0 <= end) else { break };
            self.now = at;
            let mut to_router = Vec::new();
            for (port, host) in self.hosts.iter_mut().enumerate() {
                host.poll(at, BUDGET, &mut |frame| to_router.push((port, frame.to_vec())));
            }
            let mut to_hosts = Vec::new();
            for (port, frame) in to_router.into_iter().filter(|(port, _)| !self.cut[*port]) {
                self.router.receive(at, port, &frame);
                self.received.push((port, frame));
            }
            self.router.poll(at, &mut |_, port, frame| to_hosts.push((port, frame.to_vec())));
            for (port, frame) in to_hosts.into_iter().filter(|(port, _)| !self.cut[*port]) {
                let (header, packet) = ethernet::Repr::parse(&frame).unwrap();
                if header.ethertype == ethertype::MPLS {
                    let word = u32::from_be_bytes(*packet.first_chunk().unwrap());
                    self.labelled.push((port, word >> 12, word as u8));
                    continue;
                }
                self.sent[port] += 1;
                let mut answers = Vec::new();
                self.hosts[port].receive(at, &frame, &mut |answer| answers.push(answer.to_vec()));
                for answer in answers {
                    self.router.receive(at, port, &answer);
                    self.received.push((port, answer));
                }
            }
        }
        self.now = Instant(end);
    }

    fn rsvp(&self, at: usize) -> &Rsvp {
        self.hosts[at].protocol().unwrap()
    }

    fn state(&self, at: usize) -> State {
        self.hosts[at].protocols().find(|protocol| protocol.name() == NAME).unwrap().state()
    }

    fn counter(&self, at: usize, name: &str) -> u64 {
        self.state(at).counter(name)
    }

    fn truth(&self) -> RsvpTruth {
        self.router.truth().rsvp
    }

    /// LSPs up at the ingress, in the device, and at the egress.
    fn up(&self) -> [u64; 3] {
        [self.state(INGRESS).up.into(), self.truth().reserved, self.state(EGRESS).up.into()]
    }

    /// Sends a labelled packet into the device; returns the label with which it arrived at the egress.
    fn through(&mut self, label: u32) -> Option<u32> {
        let mut frame = vec![0; 60];
        let (source, destination) = (MacAddr::local(0x200), MacAddr::local(0x100));
        ethernet::Repr { destination, source, ethertype: ethertype::MPLS }.emit(&mut frame);
        frame[14..18].copy_from_slice(&(label << 12 | 1 << 8 | 64).to_be_bytes());
        drophammer_wire::ipv4::Repr {
            tos: 0,
            identification: 0,
            dont_fragment: false,
            ttl: 64,
            protocol: 17,
            source: [198, 19, 0, 9].into(),
            destination: [198, 19, 1, 9].into(),
            payload_len: 22,
        }
        .emit(&mut frame[18..]);
        self.router.receive(self.now, INGRESS, &frame);
        self.labelled.clear();
        self.run_to(self.now.0 + MS);
        assert!(self.labelled.iter().all(|(port, _, ttl)| (*port, *ttl) == (EGRESS, 63)));
        self.labelled.first().map(|(_, label, _)| *label)
    }

    fn errors(&self, at: usize) -> Vec<(bool, u8, u16, u64)> {
        self.rsvp(at).errors().map(|(kind, count)| (kind.resv, kind.code, kind.value, count)).collect()
    }
}

#[test]
fn lsps_are_set_up_forwarded_and_torn_down() {
    for ends in [ends(), reduced()] {
        let mut world = World::new(5, &ends);
        world.set_up(0..5, 0);
        world.run_to(SECOND);
        assert_eq!(world.up(), [5; 3]);
        assert_eq!([0, 4].map(|lsp| world.rsvp(INGRESS).label_of(lsp)), [Some(OWN), Some(OWN + 4)]);
        assert_eq!([OWN, OWN + 4, OWN + 5].map(|label| world.through(label)), [Some(LABEL), Some(LABEL + 4), None]);
        assert_eq!(world.router.truth().dropped.no_label, 1);
        // The egress ends one reservation, the ingress two LSPs.
        world.command(EGRESS, RsvpCommand::Release(Pace { lsps: 4..5, per_second: 0 }));
        world.run_to(2 * SECOND);
        assert_eq!((world.up(), world.rsvp(INGRESS).ingress_phase(4)), ([4; 3], Phase::Signalled));
        assert_eq!((world.through(OWN + 4), world.through(OWN + 3)), (None, Some(LABEL + 3)));
        world.command(INGRESS, RsvpCommand::TearDown(Pace { lsps: 0..2, per_second: 0 }));
        world.run_to(3 * SECOND);
        assert_eq!((world.up(), world.truth().lsps), ([2; 3], 3));
        assert_eq!((world.through(OWN), world.through(OWN + 2)), (None, Some(LABEL + 2)));
        let truth = world.truth();
        assert_eq!((truth.tears_received, truth.tears_sent), (3, 3));
        assert_eq!((truth.malformed, truth.errors_sent, truth.out_of_order), (0, 0, 0));
        assert_eq!([INGRESS, EGRESS].map(|at| world.counter(at, "malformed")), [0, 0]);
    }
}

#[test]
fn refreshes_keep_state_without_reduction() {
    // Both ends refresh 100 LSPs exactly every 10 s: 10, 20, ... 100 s after the first message.
    let mut world = World::new(100, &ends());
    world.set_up(0..100, 0);
    world.run_to(105 * SECOND);
    assert_eq!(world.up(), [100; 3]);
    let truth = world.truth();
    assert_eq!((truth.path_received, truth.resv_received, truth.path_refreshes), (1_100, 1_100, 1_000));
    assert_eq!(
        (truth.path_sent, truth.resv_sent),
        (world.counter(EGRESS, "path_received"), world.counter(INGRESS, "resv_received"))
    );
    // The device refreshes after 5 to 15 s, on average 10 s.
    for sent in [truth.path_sent, truth.resv_sent] {
        assert!((1_040..1_160).contains(&sent), "{sent}");
    }
    assert_eq!(truth.acks_sent + truth.acks_received + truth.summaries_sent + truth.summaries_received, 0);
    assert_eq!((truth.path_timeouts, truth.resv_timeouts, world.counter(INGRESS, "timeouts")), (0, 0, 0));
}

#[test]
fn summaries_refresh_state_with_reduction() {
    // The neighbours learn from each other's Hellos that they support refresh reduction.
    let hello = Some(HelloConfig { interval: Duration::from_secs(3) });
    let mut world = World::new(1_000, &RsvpConfig { hello, ..reduced() });
    world.run_to(5 * SECOND);
    world.set_up(0..1_000, 0);
    world.run_to(110 * SECOND);
    assert_eq!(world.up(), [1_000; 3]);
    let truth = world.truth();
    // Each state was sent once, and was acknowledged.
    assert_eq!([truth.path_received, truth.path_sent, truth.resv_received, truth.resv_sent], [1_000; 4]);
    assert_eq!((truth.acks_sent, truth.acks_received, truth.retransmissions), (2_000, 2_000, 0));
    // Each end refreshes three lists of at most 350 identifiers 10 times.
    assert_eq!((truth.summaries_received, truth.path_refreshes), (2 * 3 * 10, 10_000));
    assert_eq!(
        truth.summaries_sent,
        world.counter(INGRESS, "srefresh_received") + world.counter(EGRESS, "srefresh_received")
    );
    assert!((2 * 3 * 8..=2 * 3 * 12).contains(&truth.summaries_sent), "{}", truth.summaries_sent);
    // The ends send Bundles, so the device does too.
    assert!(truth.bundles_received > 0 && truth.bundles_sent > 0);
    assert_eq!((truth.nacks_sent, truth.nacks_received, world.counter(INGRESS, "timeouts")), (0, 0, 0));
}

#[test]
fn state_of_a_silent_ingress_times_out_after_five_and_a_quarter_periods() {
    for ends in [ends(), reduced()] {
        let mut world = World::new(3, &ends);
        world.set_up(0..3, 0);
        world.run_to(25 * SECOND);
        // The last refresh was 20 s after the first message.
        world.cut[INGRESS] = true;
        world.run_to(72 * SECOND);
        assert_eq!((world.truth().lsps, world.through(OWN)), (3, Some(LABEL)));
        world.run_to(73 * SECOND);
        let truth = world.truth();
        assert_eq!((truth.lsps, truth.reserved, truth.path_timeouts, truth.resv_timeouts), (0, 0, 3, 0));
        assert_eq!((world.state(EGRESS).up, world.counter(EGRESS, "path_tear_received")), (0, 3));
        assert_eq!(world.through(OWN), None);
    }
}

#[test]
fn reservations_of_a_silent_egress_time_out() {
    let mut world = World::new(3, &ends());
    world.set_up(0..3, 0);
    world.run_to(25 * SECOND);
    world.cut[EGRESS] = true;
    world.run_to(73 * SECOND);
    let truth = world.truth();
    assert_eq!((truth.lsps, truth.reserved, truth.resv_timeouts), (3, 0, 3));
    assert_eq!((world.state(INGRESS).up, world.counter(INGRESS, "resv_tear_received")), (0, 3));
    // The LSPs come back with the egress.
    world.cut[EGRESS] = false;
    world.run_to(100 * SECOND);
    assert_eq!(world.up(), [3; 3]);
}

#[test]
fn lsps_beyond_the_limit_are_refused() {
    for ends in [ends(), reduced()] {
        let mut world = World::of(10, &ends, &[strict(0, 1), strict(1, 2)], |rsvp| rsvp.lsp_limit = Some(7));
        world.set_up(0..10, 100);
        world.run_to(SECOND);
        assert_eq!(world.up(), [7; 3]);
        let refused = world.truth().refused;
        assert_eq!(
            world.errors(INGRESS),
            [(false, error::ROUTING_PROBLEM, routing::LABEL_ALLOCATION, refused)],
            "each refused Path has its error"
        );
        assert!(refused >= 3);
        // Freed room is used again.
        world.command(INGRESS, RsvpCommand::TearDown(Pace { lsps: 0..2, per_second: 0 }));
        world.run_to(25 * SECOND);
        assert_eq!((world.up(), world.rsvp(INGRESS).label_of(9).is_some()), ([7; 3], false));
    }
}

#[test]
fn a_wrong_explicit_route_is_refused() {
    let cases: [(&[RouteHop], u16); 4] = [
        (&[strict(1, 2)], routing::BAD_INITIAL_SUBOBJECT),
        (
            &[strict(0, 1), RouteHop { address: [10, 9, 9, 9].into(), prefix_len: 32, loose: false }],
            routing::BAD_STRICT_NODE,
        ),
        (
            &[strict(0, 1), RouteHop { address: [10, 9, 9, 9].into(), prefix_len: 32, loose: true }],
            routing::BAD_LOOSE_NODE,
        ),
        // The endpoint follows as a loose hop, but there is no route to it.
        (&[strict(0, 1)], routing::BAD_LOOSE_NODE),
    ];
    for (route, value) in cases {
        let mut world = World::of(1, &ends(), route, |_| {});
        world.set_up(0..1, 0);
        world.run_to(SECOND);
        assert_eq!(world.errors(INGRESS), [(false, error::ROUTING_PROBLEM, value, 1)]);
        assert_eq!(world.truth().lsps, 0);
    }
}

#[test]
fn hellos_are_answered_and_a_restart_ends_the_state() {
    let hello = Some(HelloConfig { interval: Duration::from_secs(3) });
    let mut world = World::new(2, &RsvpConfig { hello, ..ends() });
    world.set_up(0..2, 0);
    world.run_to(31 * SECOND);
    assert_eq!((world.up(), world.counter(INGRESS, "lost_neighbours"), world.truth().restarts), ([2; 3], 0, 0));
    assert_eq!(
        world.truth().hellos_sent,
        world.counter(INGRESS, "hello_received") + world.counter(EGRESS, "hello_received")
    );
    // The ingress is stopped without anybody noticing, and starts again.
    world.cut[INGRESS] = true;
    world.hosts[INGRESS].command(world.now, NAME, &Command::Stop).unwrap();
    world.run_to(32 * SECOND);
    world.cut[INGRESS] = false;
    world.hosts[INGRESS].command(world.now, NAME, &Command::Start).unwrap();
    world.run_to(36 * SECOND);
    assert_eq!((world.up(), world.truth().restarts, world.truth().lsps), ([0; 3], 1, 0));
}

#[test]
fn a_forgotten_lsp_is_gone_without_a_word_until_its_path_comes_again() {
    for (ends, nacks) in [(ends(), 0), (reduced(), 1)] {
        let mut world = World::new(4, &ends);
        world.set_up(0..4, 0);
        world.run_to(SECOND);
        // The second refresh, of LSP 1.
        world.router.set_faults(Faults { forget_lsp_on_refresh: 2, ..Faults::default() }).unwrap();
        world.run_to(10 * SECOND + 500 * MS);
        let truth = world.truth();
        assert_eq!((truth.forgotten, truth.lsps, truth.tears_sent), (1, 3, 0));
        assert_eq!((world.state(INGRESS).up, world.rsvp(INGRESS).label_of(1)), (4, Some(OWN + 1)), "nobody knows");
        assert_eq!([OWN, OWN + 1, OWN + 2].map(|label| world.through(label)), [Some(LABEL), None, Some(LABEL + 2)]);
        // The next refresh brings it back, with another label.
        world.run_to(22 * SECOND);
        assert_eq!((world.up(), world.truth().nacks_sent >= nacks), ([4; 3], true));
        assert_eq!(world.rsvp(INGRESS).label_of(1), Some(OWN + 4));
        assert_eq!((world.through(OWN + 1), world.through(OWN + 4)), (None, Some(LABEL + 1)));
    }
}

/// A world with LSPs, and the RSVP packets that its hosts have sent, which include all types of messages.
fn talkative(ends: &RsvpConfig) -> (World, Vec<(usize, Vec<u8>)>) {
    let hello = Some(HelloConfig { interval: Duration::from_secs(3) });
    let mut world = World::new(6, &RsvpConfig { hello, confirm: true, ..ends.clone() });
    world.run_to(4 * SECOND);
    world.set_up(0..6, 0);
    world.run_to(20 * SECOND);
    world.command(EGRESS, RsvpCommand::Release(Pace { lsps: 4..5, per_second: 0 }));
    world.command(INGRESS, RsvpCommand::TearDown(Pace { lsps: 0..2, per_second: 0 }));
    world.run_to(21 * SECOND);
    let is_rsvp = |frame: &[u8]| frame[12..14] == [8, 0] && frame[23] == 46;
    let packets = std::mem::take(&mut world.received).into_iter().filter(|(_, frame)| is_rsvp(frame)).collect();
    (world, packets)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_message_makes_the_device_panic(
        reduces: bool,
        changes in proptest::collection::vec(
            (any::<prop::sample::Index>(), any::<bool>(), proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4)),
            1..60,
        ),
    ) {
        let (mut world, packets) = talkative(&if reduces { reduced() } else { ends() });
        prop_assert!(packets.len() > 12);
        for (which, swapped, bytes) in changes {
            let (port, mut frame) = packets[which.index(packets.len())].clone();
            let rsvp = 14 + usize::from(frame[14] & 15) * 4;
            for (at, byte) in bytes {
                let at = rsvp + at.index(frame.len() - rsvp);
                frame[at] = byte;
            }
            // No checksum.
            frame[rsvp + 2..rsvp + 4].fill(0);
            let port = if swapped { 1 - port } else { port };
            let mac = MacAddr::local(0x100 + port as u64);
            frame[..6].copy_from_slice(&mac.0);
            world.router.receive(world.now, port, &frame);
            world.run_to(world.now.0 + 200 * MS);
        }
        // Everything that is left is refreshed or times out.
        world.run_to(world.now.0 + 200 * SECOND);
        let truth = world.truth();
        prop_assert!(truth.reserved <= truth.lsps && truth.lsps <= 64, "{truth:?}");
    }
}
