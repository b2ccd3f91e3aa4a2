//! An emulated OSPFv2 router (RFC 2328): one interface of a device, and a topology behind it.
//!
//! `interface.rs` has the interface and its neighbours: Hellos, the election of the Designated Router, adjacencies. `exchange.rs` has
//! Database Descriptions and Link State Requests, `flooding.rs` Updates, acknowledgments, retransmission and aging, `origination.rs`
//! the LSAs of the device. The database consists of [`originals`], whose bodies are computed from the configuration (`emulated.rs`),
//! and of [`learned`], the LSAs that neighbours have sent.
//!
//! To its neighbours, the device is a router that floods the LSAs of the routers behind it. Those routers do not exist, so the
//! device also originates their LSAs. It supersedes or flushes newer instances from an earlier run, as section 13.4 says.

pub mod config;
mod emulated;
mod exchange;
mod flooding;
mod interface;
pub mod learned;
mod neighbour;
mod originals;
mod origination;

pub use config::{Externals, NetworkType, Networks, OspfConfig, Part, Secret, Shape, Topology};
pub use interface::InterfaceState;
pub use learned::Expected;
pub use neighbour::{NeighbourReport, NeighbourState};
pub use origination::OspfCommand;

use crate::agenda::Agenda;
use crate::device::DeviceConfig;
use crate::device::neighbours::multicast_mac;
use crate::expectation::{Expectation, KeyList, Verification};
use crate::protocol::{Command, Input, Match, Output, Packet, Protocol, Refused, State};
use crate::reasons::Reasons;
use drophammer_model::Instant;
use drophammer_wire::ospf::{
    ALL_D_ROUTERS, ALL_SPF_ROUTERS, Authentication, Header, LsaHeader, LsaKey, Opened, kind, lsa_type, packet,
};
use drophammer_wire::{MacAddr, ipv4};
use emulated::Emulated;
use learned::LearnedLsas;
use neighbour::Neighbour;
use originals::Originals;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Its name.
pub const NAME: &str = "ospf";

const MATCHES: [Match; 3] = [
    Match::IpProtocol(ipv4::protocol::OSPF),
    Match::Group(IpAddr::V4(ALL_SPF_ROUTERS)),
    Match::Group(IpAddr::V4(ALL_D_ROUTERS)),
];
/// Type of service of OSPF packets: precedence internetwork control (appendix A.1).
const TOS: u8 = 0xc0;
/// Time before which an LSA is not originated again (MinLSInterval).
const MIN_LS_INTERVAL: Duration = Duration::from_secs(5);
/// Time before which a new instance is not accepted (MinLSArrival).
const MIN_LS_ARRIVAL: Duration = Duration::from_secs(1);
/// Age at which an LSA is originated again (LSRefreshTime).
const LS_REFRESH_TIME: Duration = Duration::from_secs(1800);
/// Maximum number of originations per poll.
const MOST_ORIGINATIONS: usize = 512;

/// One more than the largest type of an LSA.
const LSA_TYPES: usize = 12;
/// LSA of a not-so-stubby area (RFC 3101), which is only counted here.
const NSSA: u8 = 7;
/// Types of LSAs, and the names of their counters.
const COUNTED: [(u8, [&str; 2]); 9] = [
    (lsa_type::ROUTER, ["router_lsas_sent", "router_lsas_received"]),
    (lsa_type::NETWORK, ["network_lsas_sent", "network_lsas_received"]),
    (lsa_type::SUMMARY_NETWORK, ["summary_lsas_sent", "summary_lsas_received"]),
    (lsa_type::SUMMARY_ASBR, ["asbr_summary_lsas_sent", "asbr_summary_lsas_received"]),
    (lsa_type::EXTERNAL, ["external_lsas_sent", "external_lsas_received"]),
    (NSSA, ["nssa_lsas_sent", "nssa_lsas_received"]),
    (lsa_type::OPAQUE_LINK, ["opaque_link_lsas_sent", "opaque_link_lsas_received"]),
    (lsa_type::OPAQUE_AREA, ["opaque_area_lsas_sent", "opaque_area_lsas_received"]),
    (lsa_type::OPAQUE_AS, ["opaque_as_lsas_sent", "opaque_as_lsas_received"]),
];

/// Times at which something is due. Neighbours have the key of `Ospf::neighbours`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Timer {
    Hello,
    /// The end of Waiting.
    Wait,
    /// Delayed acknowledgments.
    Acks,
    /// The next Update of a flood.
    Flood,
    /// A neighbour was silent for RouterDeadInterval.
    Inactive(Ipv4Addr),
    /// Database Descriptions, Requests and Updates to repeat.
    Description(Ipv4Addr),
    Request(Ipv4Addr),
    Again(Ipv4Addr),
    /// A learned LSA reaches MaxAge.
    Expire(LsaKey),
}

/// Destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    /// AllSPFRouters.
    All,
    /// All routers of the network that must receive an LSA or an acknowledgment: AllSPFRouters or AllDRouters (section
    /// 13.3).
    Flood,
    /// A neighbour.
    Neighbour(Ipv4Addr),
}

/// Counts since the router was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    sent: [u64; 6],
    received: [u64; 6],
    full: u64,
    lost: u64,
    lsas_sent: u64,
    /// LSAs by their type: sent, received.
    of_type: [[u64; 2]; LSA_TYPES],
    /// LSA headers in acknowledgments: sent, received.
    headers: [u64; 2],
    flooding_us: u64,
    lsas_retransmitted: u64,
    lsas_acknowledged: u64,
    lsas_received: u64,
    duplicates: u64,
    originated: u64,
    flushed: u64,
    overflow: u64,
    early: u64,
    unexpected: u64,
    malformed: u64,
}

/// Progress of the advertisement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// LSAs of the device and the emulated routers that are advertised.
    pub advertised: u32,
    /// LSAs that wait to be originated or sent for the first time.
    pub waiting: usize,
    /// LSAs that neighbours have not acknowledged, summed over the neighbours.
    pub unacknowledged: usize,
}

impl Progress {
    /// True if the neighbours have acknowledged everything.
    pub fn is_settled(&self) -> bool {
        self.waiting == 0 && self.unacknowledged == 0
    }
}

/// OSPF of one device.
pub struct Ospf {
    config: OspfConfig,
    authentication: Authentication,
    address: Ipv4Addr,
    mask: Ipv4Addr,
    state: InterfaceState,
    designated: Ipv4Addr,
    backup: Ipv4Addr,
    /// By router ID on a point-to-point network, else by address (section 10).
    neighbours: BTreeMap<Ipv4Addr, Neighbour>,
    originals: Originals,
    learned: LearnedLsas,
    timers: Agenda<Timer>,
    /// Own LSAs that wait to be originated, because their contents changed or a command advertises or withdraws them.
    originations: Agenda<u32>,
    refreshes: Agenda<u32>,
    /// LSAs to send to all adjacent neighbours.
    flood: VecDeque<LsaKey>,
    flooding: HashSet<LsaKey>,
    /// When the next Update of a flood may leave.
    flood_at: Instant,
    /// When the last Update of the flood was sent, if LSAs wait for the next one.
    flood_waits: Option<Instant>,
    acks: Vec<LsaHeader>,
    /// LSAs of MaxAge that leave the database when all neighbours have acknowledged them.
    dying: BTreeSet<LsaKey>,
    /// When a newer instance was last sent to a neighbour that sent an old one.
    sent_back: HashMap<LsaKey, Instant>,
    /// The device's own LSAs may have changed.
    changed: bool,
    /// A last Hello, without neighbours, is due.
    farewell: bool,
    dd_sequence: u32,
    counters: Counters,
    rejected: Reasons,
}

impl Ospf {
    /// A router that is down until [`Command::Start`].
    ///
    /// # Errors
    /// The part of the configuration that cannot be used.
    pub fn configured(device: &DeviceConfig, config: &OspfConfig) -> Result<Ospf, Refused> {
        config.check(device)?;
        let authentication = config.authentication()?;
        let own = device.ipv4.expect("checked");
        let emulated = Emulated::new(config, &authentication)?;
        let (network, wanted) = ((own.address, config::mask(own.prefix_len)), config.advertise_at_start);
        Ok(Ospf {
            authentication,
            address: own.address,
            mask: network.1,
            state: InterfaceState::Down,
            designated: Ipv4Addr::UNSPECIFIED,
            backup: Ipv4Addr::UNSPECIFIED,
            neighbours: BTreeMap::new(),
            originals: Originals::new(config.router_id, network, config.stub, wanted, emulated),
            learned: LearnedLsas::new(config.most_learned),
            timers: Agenda::default(),
            originations: Agenda::default(),
            refreshes: Agenda::default(),
            flood: VecDeque::new(),
            flooding: HashSet::new(),
            flood_at: Instant(0),
            flood_waits: None,
            acks: Vec::new(),
            dying: BTreeSet::new(),
            sent_back: HashMap::new(),
            changed: false,
            farewell: false,
            dd_sequence: device.seed as u32,
            counters: Counters::default(),
            rejected: Reasons::default(),
            config: config.clone(),
        })
    }

    /// State of the interface.
    pub fn interface(&self) -> InterfaceState {
        self.state
    }

    /// Addresses of the Designated Router and the Backup Designated Router; 0.0.0.0 without one.
    pub fn designated(&self) -> (Ipv4Addr, Ipv4Addr) {
        (self.designated, self.backup)
    }

    /// The neighbours that were heard recently.
    pub fn neighbours(&self) -> impl Iterator<Item = NeighbourReport> + '_ {
        self.neighbours.values().map(Neighbour::report)
    }

    /// Headers of the LSAs that neighbours have sent, with their ages at `now`.
    pub fn learned(&self, now: Instant) -> impl Iterator<Item = LsaHeader> + '_ {
        self.learned.iter().map(move |(_, lsa)| lsa.header(now))
    }

    /// The LSAs that neighbours have sent: headers with their ages at `now`, and bodies.
    pub fn learned_lsas(&self, now: Instant) -> impl Iterator<Item = (LsaHeader, &[u8])> + '_ {
        self.learned.iter().map(move |(_, lsa)| (lsa.header(now), lsa.body()))
    }

    /// Number of LSAs that neighbours have sent.
    pub fn learned_len(&self) -> usize {
        self.learned.len()
    }

    /// Expects neighbours to advertise exactly these LSAs and prefixes of them, from `now` on. `times` is true to store the time of each.
    pub fn expect(&mut self, now: Instant, expected: impl IntoIterator<Item = Expected>, times: bool) {
        self.learned.expect(now, expected, times);
    }

    /// How the received LSAs compare with the expected ones.
    pub fn verification(&self) -> Verification {
        self.learned.verification()
    }

    /// The expectation of [`Ospf::expect`].
    pub fn expectation(&self) -> Option<&Expectation<KeyList<Expected>>> {
        self.learned.expectation()
    }

    /// The expectation of [`Ospf::expect`], to change which of its keys must be present.
    pub fn expectation_mut(&mut self) -> Option<&mut Expectation<KeyList<Expected>>> {
        self.learned.expectation_mut()
    }

    /// Progress of the advertisement.
    pub fn progress(&self) -> Progress {
        Progress {
            advertised: self.originals.present(),
            waiting: self.originations.len() + self.flood.len(),
            unacknowledged: self.neighbours.values().map(|n| n.unacknowledged.len()).sum(),
        }
    }

    /// Received packets and LSAs that were rejected, by reason.
    pub fn rejected(&self) -> &Reasons {
        &self.rejected
    }

    fn is_broadcast(&self) -> bool {
        self.config.network == NetworkType::Broadcast
    }

    fn most_body(&self) -> usize {
        self.config.most_body(&self.authentication)
    }

    fn retransmit_interval(&self) -> Duration {
        Duration::from_secs(self.config.retransmit_interval.into())
    }

    /// A packet without its body.
    fn blank() -> Vec<u8> {
        vec![0; packet::LEN]
    }

    /// Sends a packet whose body begins after [`Ospf::blank`].
    fn send(&mut self, now: Instant, kind: u8, to: To, mut packet: Vec<u8>, out: &mut Output<'_>) {
        // It must never decrease, not even in a later run. It may stay the same, so it need not run ahead of the clock.
        let crypto_sequence = self.config.first_sequence.saturating_add((now.0 / 1_000_000_000) as u32);
        let header = Header { kind, router_id: self.config.router_id, area_id: self.config.area };
        header.seal(&mut packet, &self.authentication, crypto_sequence);
        let group = |group: Ipv4Addr| (group, multicast_mac(group.octets()));
        let important = matches!(self.state, InterfaceState::Dr | InterfaceState::Backup);
        let (destination, mac): (Ipv4Addr, MacAddr) = match to {
            // Physical point-to-point networks use no other address (section 8.1).
            _ if !self.is_broadcast() => group(ALL_SPF_ROUTERS),
            To::All => group(ALL_SPF_ROUTERS),
            To::Flood => group(if important { ALL_SPF_ROUTERS } else { ALL_D_ROUTERS }),
            To::Neighbour(id) => match self.neighbours.get(&id) {
                Some(neighbour) => (neighbour.address, neighbour.mac),
                None => return,
            },
        };
        self.counters.sent[usize::from(kind)] += 1;
        let header = ipv4::Repr {
            tos: TOS,
            identification: 0,
            dont_fragment: false,
            ttl: 1,
            protocol: ipv4::protocol::OSPF,
            source: self.address,
            destination,
            payload_len: packet.len(),
        };
        out.ipv4(mac, &header, |payload| payload.copy_from_slice(&packet));
    }

    /// Checks a packet as section 8.2 says, and handles it.
    fn take(&mut self, now: Instant, received: &Packet<'_>, out: &mut Output<'_>) -> Result<(), &'static str> {
        let IpAddr::V4(source) = received.source else { return Ok(()) };
        if self.state == InterfaceState::Down {
            return Err("interface is down");
        }
        let opened = Opened::parse(received.payload, &self.authentication).map_err(|e| {
            self.counters.malformed += 1;
            e.reason
        })?;
        let Header { kind, router_id, area_id } = opened.header;
        if area_id != self.config.area {
            return Err("different area");
        }
        let near = (source.to_bits() ^ self.address.to_bits()) & self.mask.to_bits() == 0;
        if self.is_broadcast() && !near {
            return Err("sender is not on the network");
        }
        if router_id == self.config.router_id || source == self.address {
            return Err("sender has the router ID or the address of this router");
        }
        let for_designated = received.destination == IpAddr::V4(ALL_D_ROUTERS);
        if for_designated && !matches!(self.state, InterfaceState::Dr | InterfaceState::Backup) {
            return Err("for the Designated Router");
        }
        let id = if self.is_broadcast() { source } else { router_id };
        if let (Some(sequence), Some(neighbour)) = (opened.sequence, self.neighbours.get_mut(&id)) {
            if sequence < neighbour.crypto_sequence {
                return Err("cryptographic sequence number decreases");
            }
            neighbour.crypto_sequence = sequence;
        }
        if let Some(count) = self.counters.received.get_mut(usize::from(kind)) {
            *count += 1;
        }
        match kind {
            kind::HELLO => self.take_hello(now, id, source, received.link_source, &opened, out),
            _ if !self.neighbours.contains_key(&id) => Err("unknown neighbour"),
            kind::DATABASE_DESCRIPTION => self.take_description(now, id, opened.body, out),
            kind::LINK_STATE_REQUEST => self.take_request(now, id, opened.body, out),
            kind::LINK_STATE_UPDATE => self.take_update(now, id, opened.body, out),
            kind::LINK_STATE_ACK => self.take_ack(now, id, opened.body),
            _ => Err("unknown type of packet"),
        }
    }

    fn expired(&mut self, now: Instant, timer: Timer, out: &mut Output<'_>) {
        match timer {
            Timer::Hello => self.send_hello(now, out),
            Timer::Wait => {
                if self.state == InterfaceState::Waiting {
                    self.elect(now, out);
                }
            }
            Timer::Acks => self.send_acks(now, out),
            Timer::Flood => self.send_flood(now, out),
            Timer::Inactive(id) => self.kill(now, id, out),
            Timer::Description(id) => self.repeat_description(now, id, out),
            Timer::Request(id) => {
                if let Some(neighbour) = self.neighbours.get_mut(&id) {
                    neighbour.asked.clear();
                    self.send_request(now, id, out);
                }
            }
            Timer::Again(id) => self.retransmit(now, id, out),
            Timer::Expire(key) => self.expire(now, key),
        }
    }
}

impl Protocol for Ospf {
    fn name(&self) -> &'static str {
        NAME
    }

    fn matches(&self) -> &[Match] {
        &MATCHES
    }

    fn receive(&mut self, now: Instant, input: Input<'_>, out: &mut Output<'_>) {
        let Input::Packet(packet) = input else { return };
        // A packet to AllSPFRouters matches by its protocol alone.
        if let Err(reason) = self.take(now, &packet, out) {
            self.rejected.count(reason);
        }
        self.describe(now);
    }

    fn poll(&mut self, now: Instant, budget: usize, out: &mut Output<'_>) {
        let updates = self.counters.sent[usize::from(kind::LINK_STATE_UPDATE)];
        let most = (budget / usize::from(self.config.mtu)).max(1) as u64;
        while self.counters.sent[usize::from(kind::LINK_STATE_UPDATE)] - updates < most
            && let Some(timer) = self.timers.take_due(now)
        {
            self.expired(now, timer, out);
        }
        self.describe(now);
        self.originate_due(now);
    }

    fn next_deadline(&self) -> Option<Instant> {
        [self.timers.next(), self.originations.next(), self.refreshes.next()].into_iter().flatten().min()
    }

    fn command(&mut self, now: Instant, command: &Command) -> Result<(), Refused> {
        match command {
            Command::Start => self.start(now),
            Command::Stop => self.stop(now),
            Command::Ospf(command) => return self.carry_out(now, command),
            _ => return Err(Refused::unknown(NAME)),
        }
        Ok(())
    }

    fn state(&self) -> State {
        let c = &self.counters;
        let of = |counts: &[u64; 6], kind: u8| counts[usize::from(kind)];
        let mut counters = vec![
            ("hellos_sent", of(&c.sent, kind::HELLO)),
            ("hellos_received", of(&c.received, kind::HELLO)),
            ("descriptions_sent", of(&c.sent, kind::DATABASE_DESCRIPTION)),
            ("descriptions_received", of(&c.received, kind::DATABASE_DESCRIPTION)),
            ("requests_sent", of(&c.sent, kind::LINK_STATE_REQUEST)),
            ("requests_received", of(&c.received, kind::LINK_STATE_REQUEST)),
            ("updates_sent", of(&c.sent, kind::LINK_STATE_UPDATE)),
            ("updates_received", of(&c.received, kind::LINK_STATE_UPDATE)),
            ("acks_sent", of(&c.sent, kind::LINK_STATE_ACK)),
            ("acks_received", of(&c.received, kind::LINK_STATE_ACK)),
            ("adjacencies_full", c.full),
            ("adjacencies_lost", c.lost),
            ("lsas_sent", c.lsas_sent),
            ("flooding_us", c.flooding_us),
            ("lsas_retransmitted", c.lsas_retransmitted),
            ("lsas_acknowledged", c.lsas_acknowledged),
            ("lsas_received", c.lsas_received),
            ("lsas_duplicate", c.duplicates),
            ("lsas_originated", c.originated),
            ("lsas_flushed", c.flushed),
            ("lsas_learned", self.learned.len() as u64),
            ("lsas_not_stored", c.overflow),
            ("lsas_too_early", c.early),
            ("unexpected", c.unexpected),
            ("malformed", c.malformed),
        ];
        for (kind, names) in COUNTED {
            counters.extend(names.into_iter().zip(c.of_type[usize::from(kind)]));
        }
        counters.extend([("lsa_headers_sent", c.headers[0]), ("lsa_headers_received", c.headers[1])]);
        counters.extend(self.rejected.iter());
        State {
            // On a broadcast network, routers that are not designated stay 2-Way with each other (RFC 2328 section 10.4).
            sessions: self.neighbours.values().filter(|n| n.state != NeighbourState::TwoWay).count() as u32,
            up: self.neighbours.values().filter(|n| n.state == NeighbourState::Full).count() as u32,
            counters,
        }
    }
}
