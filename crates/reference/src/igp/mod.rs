//! The device as a router in the core of a provider: OSPF, LDP and BFD on its core links, and their way into the forwarding table.
//!
//! A route is the shortest path of OSPF together with the label that the next hop has advertised for the prefix. Each change of a route enters
//! the forwarding table like changes of BGP routes: after [`CoreConfig::fib_delay`], and at least [`CoreConfig::fib_time_per_route`] after the
//! one before. With it, the entry for the device's own label of the prefix changes: packets with that label leave with the label of the next
//! hop (without a label for implicit null), and are dropped while the next hop has advertised none. Packets without a label follow the route
//! in any case.

use crate::bfd;
use crate::faults::IgpFaults;
use crate::ldp::{self, Ldp};
use crate::moment::earlier;
use crate::ospf::spf::{Hop, Net4};
use crate::ospf::{self, Ospf};
use crate::rib::FibQueue;
use crate::truth::IgpTruth;
use drophammer_model::Instant;
use drophammer_model::label_edge::CoreProtocol;
use drophammer_model::role::CoreRole;
use drophammer_wire::bfd::{Control, HOP_LIMIT, PORT as BFD_PORT, SOURCE_PORTS};
use drophammer_wire::ldp::{GROUP as LDP_GROUP, PORT as LDP_PORT};
use drophammer_wire::{ipv4, udp};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::time::Duration;

/// OSPF, LDP and BFD of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreConfig {
    /// Loopback address, core links and their protocols. The device takes part in OSPF, LDP and BFD.
    pub role: CoreRole,
    /// Time from the change of a route until the forwarding table changes.
    pub fib_delay: Duration,
    /// Shortest time between two changes of the forwarding table.
    pub fib_time_per_route: Duration,
    /// Maximum number of label entries, both static and from LDP. Labels beyond the limit are advertised, but packets with them are
    /// dropped; `None` for no limit.
    pub label_limit: Option<usize>,
}

/// Type of service of routing protocols: precedence internetwork control.
const TOS: u8 = 0xc0;
/// TTL of OSPF packets and LDP hellos.
const TTL_ON_LINK: u8 = 1;

/// A packet to be sent.
pub enum Sent {
    /// To a group or a neighbour on the link of this interface.
    OnLink(usize, Ipv4Addr, Vec<u8>),
    /// By the routes.
    Routed(Vec<u8>),
}

/// A route: next hop, and the label to push, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    pub hop: Hop,
    pub label: Option<u32>,
}

/// A change of the forwarding table.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    pub net: Net4,
    /// `None` removes the route.
    pub way: Option<Way>,
    /// The device's label for the prefix.
    pub own: Option<u32>,
}

/// A link of the core.
struct Link {
    interface: usize,
    local: Ipv4Addr,
    neighbour: Ipv4Addr,
    bfd: Option<bfd::Session>,
}

/// The protocols and their routes.
pub struct Igp {
    loopback: Ipv4Addr,
    links: Vec<Link>,
    /// Prefixes for which the device hands out no labels.
    unlabelled: HashSet<Net4>,
    ospf: Ospf,
    ldp: Ldp,
    /// What the forwarding table will be after all pending changes.
    planned: HashMap<Net4, Way>,
    queue: FibQueue<Change>,
    label_limit: Option<usize>,
    faults: IgpFaults,
    wake: Option<Instant>,
    truth: IgpTruth,
}

impl Igp {
    /// The protocols of `config`. `mtu` contains the MTU of each interface, `reserved` the labels that LDP must not
    /// assign.
    pub fn new(config: &CoreConfig, mtu: &dyn Fn(usize) -> usize, seed: u64, reserved: &[u32]) -> Igp {
        let role = &config.role;
        let having = |protocol| role.links.iter().filter(move |link| link.has(protocol));
        let ospf: Vec<_> = having(CoreProtocol::Ospf).map(|l| (l.port, l.local, l.prefix_len, mtu(l.port))).collect();
        let ldp: Vec<_> = having(CoreProtocol::Ldp).map(|l| (l.port, l.local)).collect();
        let smallest = role.links.iter().map(|l| mtu(l.port)).min().unwrap_or(1500);
        let link = |(number, link): (u32, &drophammer_model::role::CoreLink)| Link {
            interface: link.port,
            local: link.local,
            neighbour: link.neighbour,
            bfd: link.has(CoreProtocol::Bfd).then(|| bfd::Session::new(number, seed)),
        };
        Igp {
            loopback: role.loopback,
            links: (1..).zip(&role.links).map(link).collect(),
            unlabelled: role.unlabelled.iter().copied().collect(),
            ospf: Ospf::new(role.loopback, &ospf),
            ldp: Ldp::new(role.loopback, &ldp, smallest, seed, reserved),
            planned: HashMap::new(),
            queue: FibQueue::new(config.fib_delay, config.fib_time_per_route),
            label_limit: config.label_limit,
            faults: IgpFaults::default(),
            wake: Some(Instant(0)),
            truth: IgpTruth::default(),
        }
    }

    pub fn set_faults(&mut self, faults: IgpFaults) {
        self.faults = faults;
        self.ospf.set_faults(faults);
        self.ldp.set_implicit_null_every(faults.implicit_null_every);
    }

    /// The link of a port goes down or comes up.
    pub fn set_link(&mut self, now: Instant, interface: usize, up: bool) {
        self.ospf.set_link(now, interface, up);
        self.ldp.set_link(now, interface, up);
        self.settle(now);
    }

    /// True if a packet to this group is for the device.
    pub fn joins(destination: Ipv4Addr) -> bool {
        [drophammer_wire::ospf::ALL_SPF_ROUTERS, LDP_GROUP].contains(&destination)
    }

    /// Takes an IPv4 packet for the device or for a group; false if it belongs to none of the protocols.
    pub fn receive(&mut self, now: Instant, interface: usize, packet: &[u8]) -> bool {
        let Ok((ip, payload)) = ipv4::Repr::parse(packet) else { return false };
        match ip.protocol {
            ipv4::protocol::OSPF => self.ospf.receive(now, interface, ip.source, payload),
            ipv4::protocol::UDP => {
                let Ok((ports, datagram)) = udp::Repr::parse_ipv4(payload, ip.pseudo_header_sum()) else {
                    return false;
                };
                match ports.destination {
                    LDP_PORT if ip.destination == LDP_GROUP => self.ldp.hello(now, interface, ip.source, datagram),
                    BFD_PORT if ip.ttl == HOP_LIMIT => self.take_bfd(now, interface, ip.source, datagram),
                    _ => return false,
                }
            }
            TCP if ip.destination == self.loopback && is_ldp(payload) => self.ldp.receive(now, packet),
            _ => return false,
        }
        self.settle(now);
        true
    }

    fn take_bfd(&mut self, now: Instant, interface: usize, source: Ipv4Addr, datagram: &[u8]) {
        let Some(link) = self.links.iter_mut().find(|l| l.interface == interface && l.neighbour == source) else {
            return;
        };
        let (Some(session), Ok(control)) = (&mut link.bfd, Control::parse(datagram)) else { return };
        if session.receive(now, &control) {
            self.ospf.neighbour_down(now, interface);
        }
    }

    /// Does everything that is due until `now`; passes each packet to `out`.
    pub fn poll(&mut self, now: Instant, out: &mut dyn FnMut(Sent)) {
        if self.wake.is_none_or(|wake| wake > now) {
            return;
        }
        for link in &mut self.links {
            let Some(session) = &mut link.bfd else { continue };
            if session.expire(now) {
                self.ospf.neighbour_down(now, link.interface);
            }
            if let Some(control) = session.transmit(now, self.faults.bfd_packet_missing) {
                let ends = ((link.local, *SOURCE_PORTS.start()), (link.neighbour, BFD_PORT));
                out(Sent::OnLink(link.interface, link.neighbour, datagram(ends, HOP_LIMIT, &control)));
            }
        }
        let local = |links: &[Link], interface| links.iter().find(|l| l.interface == interface).map(|l| l.local);
        let links = &self.links;
        self.ospf.poll(now, &mut |ospf::Sent { interface, destination, payload }| {
            let Some(source) = local(links, interface) else { return };
            let packet = packet((source, destination), ipv4::protocol::OSPF, TTL_ON_LINK, &payload);
            out(Sent::OnLink(interface, destination, packet));
        });
        self.settle(now);
        let links = &self.links;
        self.ldp.poll(now, &mut |sent| match sent {
            ldp::Sent::Hello(interface, hello) => {
                let Some(source) = local(links, interface) else { return };
                let ends = ((source, LDP_PORT), (LDP_GROUP, LDP_PORT));
                out(Sent::OnLink(interface, LDP_GROUP, datagram(ends, TTL_ON_LINK, &hello)));
            }
            ldp::Sent::Tcp(packet) => out(Sent::Routed(packet)),
        });
        self.settle(now);
    }

    /// Updates the routes after a change, and the time of the next deadline.
    fn settle(&mut self, now: Instant) {
        for net in self.ospf.take_changed() {
            self.update(now, net);
        }
        for net in self.ldp.take_changed() {
            self.update(now, net);
        }
        let bfd = self.links.iter().filter_map(|l| l.bfd.as_ref()?.next_deadline()).min();
        self.wake = earlier(bfd, earlier(self.ospf.next_deadline(now), self.ldp.next_deadline()));
    }

    /// Plans the change of a route, if it has changed.
    fn update(&mut self, now: Instant, net: Net4) {
        let hop = self.ospf.routes().get(&net).copied();
        let own = if self.unlabelled.contains(&net) { None } else { self.ldp.set_fec(net, hop.is_some()) };
        let way = hop.map(|hop| Way { hop, label: self.ldp.remote_label(net, hop.address) });
        let before = match way {
            Some(way) => self.planned.insert(net, way),
            None => self.planned.remove(&net),
        };
        if before != way {
            self.queue.push(now, Change { net, way, own });
        }
    }

    /// The next time when [`Igp::poll`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.wake
    }

    /// The time when the last change reaches the forwarding table.
    pub fn fib_end(&self) -> Option<Instant> {
        self.queue.end()
    }

    /// True if there is room for another label entry in addition to `entries`.
    pub fn has_room(&self, entries: usize) -> bool {
        self.label_limit.is_none_or(|limit| entries < limit)
    }

    /// The next change of the forwarding table until `now`.
    pub fn take_fib(&mut self, now: Instant) -> Option<Change> {
        let (at, change) = self.queue.take(now)?;
        self.truth.fib_changes += 1;
        self.truth.fib_changed_at = at.0;
        Some(change)
    }

    pub fn truth(&self) -> IgpTruth {
        let sessions = || self.links.iter().filter_map(|l| l.bfd.as_ref());
        IgpTruth {
            ospf_full: self.ospf.full() as u64,
            lsas: self.ospf.lsas() as u64,
            lsas_late: self.ospf.counts.late,
            lsas_not_stored: self.ospf.counts.not_stored,
            spf_runs: self.ospf.counts.spf_runs,
            routes: self.ospf.routes().len() as u64,
            fib_backlog: self.queue.backlog() as u64,
            ldp_sessions: self.ldp.sessions() as u64,
            ldp_established: self.ldp.established,
            labels_received: self.ldp.remote_labels() as u64,
            labels_sent: self.ldp.own_labels() as u64,
            labels_null: self.ldp.nulls(),
            bfd_up: sessions().filter(|s| s.is_up()).count() as u64,
            bfd_missing: sessions().map(|s| s.suppressed).sum(),
            ..self.truth
        }
    }
}

const TCP: u8 = 6;

/// True if a TCP segment comes from or goes to the port of LDP.
fn is_ldp(segment: &[u8]) -> bool {
    let port = LDP_PORT.to_be_bytes();
    segment.len() >= 4 && (segment[..2] == port || segment[2..4] == port)
}

/// An IPv4 packet.
fn packet((source, destination): (Ipv4Addr, Ipv4Addr), protocol: u8, ttl: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; ipv4::LEN];
    packet.extend_from_slice(payload);
    let (tos, identification, dont_fragment, payload_len) = (TOS, 0, true, payload.len());
    ipv4::Repr { tos, identification, dont_fragment, ttl, protocol, source, destination, payload_len }
        .emit(&mut packet);
    packet
}

/// A UDP datagram in an IPv4 packet.
pub(crate) fn datagram((from, to): ((Ipv4Addr, u16), (Ipv4Addr, u16)), ttl: u8, payload: &[u8]) -> Vec<u8> {
    let whole = [&[0; udp::LEN][..], payload].concat();
    let mut packet = packet((from.0, to.0), ipv4::protocol::UDP, ttl, &whole);
    if let Ok((ip, _)) = ipv4::Repr::parse(&packet) {
        udp::Repr { source: from.1, destination: to.1 }.emit(&mut packet[ipv4::LEN..], ip.pseudo_header_sum());
    }
    packet
}
