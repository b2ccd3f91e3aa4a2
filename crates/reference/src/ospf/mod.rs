//! OSPFv2 of the device (RFC 2328): point-to-point interfaces in the backbone. It receives payloads of IP packets and instants, and
//! returns payloads and deadlines.
//!
//! Packets are answered at the instant when they arrive. The routing table is computed [`SPF_DELAY`] after the first change since the
//! last computation, so a flood causes few computations. Parts: `database.rs`, `neighbour.rs`, `exchange.rs` (Database Descriptions and
//! requests), `flooding.rs` (updates, acknowledgments, own LSAs), `spf.rs` (the routing table).

mod database;
mod exchange;
mod flooding;
mod neighbour;
pub mod spf;

use crate::faults::IgpFaults;
use database::Database;
use drophammer_model::Instant;
use drophammer_wire::ospf::{
    ALL_SPF_ROUTERS, Authentication, Header, Hello, LsaHeader, LsaKey, Opened, kind, option, packet,
};
use neighbour::{Neighbour, State};
use spf::{Attached, Hop, Net4};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Time from the first change of the database to the computation of routes.
pub const SPF_DELAY: Duration = Duration::from_millis(50);
/// Cost of each link.
const COST: u16 = 10;
const HELLO_INTERVAL: u16 = drophammer_model::label_edge::OSPF_HELLO_S;
const DEAD_INTERVAL: u32 = drophammer_model::label_edge::OSPF_DEAD_S;
/// RxmtInterval.
const RETRANSMIT: Duration = Duration::from_secs(5);
/// Options in all packets: the area takes AS-external-LSAs.
const OPTIONS: u8 = option::EXTERNAL;

/// A point-to-point interface.
struct Link {
    interface: usize,
    address: Ipv4Addr,
    length: u8,
    mtu: u16,
    down: bool,
    hello_at: Instant,
    neighbour: Option<Neighbour>,
    /// LSAs that wait to be flooded, the time of the next updates, and acknowledgments that wait.
    flood: VecDeque<LsaKey>,
    flood_at: Instant,
    acks: Vec<LsaHeader>,
}

impl Link {
    /// Maximum length of the body of a packet.
    fn room(&self) -> usize {
        usize::from(self.mtu) - drophammer_wire::ipv4::LEN - packet::LEN
    }

    fn next_deadline(&self, now: Instant) -> Option<Instant> {
        let neighbour = self.neighbour.as_ref().map(Neighbour::next_deadline);
        let flood = (!self.flood.is_empty()).then_some(self.flood_at);
        let acks = (!self.acks.is_empty()).then_some(now);
        [neighbour, flood, acks].into_iter().flatten().chain([self.hello_at]).min().filter(|_| !self.down)
    }
}

/// The state of the Router-LSA of this router.
#[derive(Default)]
struct Own {
    body: Vec<u8>,
    sequence: Option<i32>,
    originated: Option<Instant>,
    /// When the next instance is originated.
    due: Option<Instant>,
}

/// An LSA that a fault holds back.
struct Late {
    at: Instant,
    link: usize,
    bytes: Box<[u8]>,
}

/// A packet to be sent through an interface.
pub struct Sent {
    pub interface: usize,
    pub destination: Ipv4Addr,
    pub payload: Vec<u8>,
}

/// Counts of what OSPF did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub spf_runs: u64,
    pub late: u64,
    pub not_stored: u64,
}

/// The router.
pub struct Ospf {
    id: Ipv4Addr,
    loopback: Ipv4Addr,
    links: Vec<Link>,
    database: Database,
    /// LSAs with MaxAge that leave the database when all neighbours have acknowledged them.
    dying: BTreeSet<LsaKey>,
    own: Own,
    spf_at: Option<Instant>,
    routes: BTreeMap<Net4, Hop>,
    /// Prefixes whose route has changed.
    changed: Vec<Net4>,
    sequence: u32,
    faults: IgpFaults,
    /// Number of LSAs on which the fault could act.
    flooded: u64,
    late: VecDeque<Late>,
    out: Vec<Sent>,
    pub counts: Counts,
}

impl Ospf {
    /// A router with these links: interface, address, length of its prefix, MTU. `loopback` is also the router ID.
    pub fn new(loopback: Ipv4Addr, links: &[(usize, Ipv4Addr, u8, usize)]) -> Ospf {
        let link = |(interface, address, length, mtu): &(usize, Ipv4Addr, u8, usize)| Link {
            interface: *interface,
            address: *address,
            length: *length,
            mtu: (*mtu).clamp(576, 65_535) as u16,
            down: false,
            hello_at: Instant(0),
            neighbour: None,
            flood: VecDeque::new(),
            flood_at: Instant(0),
            acks: Vec::new(),
        };
        Ospf {
            id: loopback,
            loopback,
            links: links.iter().map(link).collect(),
            database: Database::default(),
            dying: BTreeSet::new(),
            own: Own { due: Some(Instant(0)), ..Own::default() },
            spf_at: None,
            routes: BTreeMap::new(),
            changed: Vec::new(),
            sequence: 0,
            faults: IgpFaults::default(),
            flooded: 0,
            late: VecDeque::new(),
            out: Vec::new(),
            counts: Counts::default(),
        }
    }

    pub fn set_faults(&mut self, faults: IgpFaults) {
        self.faults = faults;
    }

    pub fn routes(&self) -> &BTreeMap<Net4, Hop> {
        &self.routes
    }

    /// Takes the prefixes whose route has changed.
    pub fn take_changed(&mut self) -> Vec<Net4> {
        std::mem::take(&mut self.changed)
    }

    /// Number of neighbours in state Full.
    pub fn full(&self) -> usize {
        self.neighbours().filter(|n| n.state == State::Full).count()
    }

    pub fn lsas(&self) -> usize {
        self.database.len()
    }

    fn neighbours(&self) -> impl Iterator<Item = &Neighbour> {
        self.links.iter().filter_map(|link| link.neighbour.as_ref())
    }

    /// Takes the payload of an OSPF packet that arrived on `interface`.
    pub fn receive(&mut self, now: Instant, interface: usize, source: Ipv4Addr, payload: &[u8]) {
        let Some(link) = self.links.iter().position(|link| link.interface == interface && !link.down) else { return };
        let Ok(opened) = Opened::parse(payload, &Authentication::Null) else { return };
        let Header { kind, router_id, area_id } = opened.header;
        if router_id == self.id || !area_id.is_unspecified() {
            return;
        }
        if kind == kind::HELLO {
            if let Ok(hello) = Hello::parse(opened.body) {
                self.hello(now, link, (router_id, source), &hello);
            }
            return;
        }
        if self.links[link].neighbour.as_ref().is_none_or(|n| n.id != router_id) {
            return;
        }
        match kind {
            kind::DATABASE_DESCRIPTION => self.description(now, link, opened.body),
            kind::LINK_STATE_REQUEST => self.request(now, link, opened.body),
            kind::LINK_STATE_UPDATE => self.update(now, link, opened.body),
            kind::LINK_STATE_ACK => self.acknowledged(now, link, opened.body),
            _ => {}
        }
    }

    /// Section 10.5.
    fn hello(&mut self, now: Instant, link: usize, (id, address): (Ipv4Addr, Ipv4Addr), hello: &Hello<'_>) {
        let agrees = hello.hello_interval == HELLO_INTERVAL && hello.dead_interval == DEAD_INTERVAL;
        if !agrees || hello.options & option::EXTERNAL == 0 {
            return;
        }
        let inactive_at = now + Duration::from_secs(DEAD_INTERVAL.into());
        if self.links[link].neighbour.as_ref().is_some_and(|n| n.id != id) {
            self.lose(now, link);
        }
        let new = self.links[link].neighbour.is_none();
        let n = self.links[link].neighbour.get_or_insert_with(|| Neighbour::new(id, address, inactive_at));
        (n.inactive_at, n.address) = (inactive_at, address);
        let heard = hello.neighbours.contains(&self.id.octets());
        let was = n.state;
        if !heard && was > State::Init {
            n.reset(State::Init);
            self.after_loss(now, link, was);
        }
        if new || !heard {
            // The neighbour need not wait for the next Hello.
            self.links[link].hello_at = now;
        }
        if heard && self.links[link].neighbour.as_ref().is_some_and(|n| n.state == State::Init) {
            self.start_exchange(now, link);
        }
    }

    /// Ends the adjacency on an interface, because BFD or the link is down.
    pub fn neighbour_down(&mut self, now: Instant, interface: usize) {
        if let Some(link) = self.links.iter().position(|link| link.interface == interface) {
            self.lose(now, link);
        }
    }

    /// The link of an interface goes down or comes up.
    pub fn set_link(&mut self, now: Instant, interface: usize, up: bool) {
        let Some(at) = self.links.iter().position(|link| link.interface == interface) else { return };
        if self.links[at].down == up {
            (self.links[at].down, self.links[at].hello_at) = (!up, now);
            self.lose(now, at);
            self.describe(now);
        }
    }

    /// Event KillNbr, InactivityTimer or LLDown.
    fn lose(&mut self, now: Instant, link: usize) {
        if let Some(lost) = self.links[link].neighbour.take() {
            self.after_loss(now, link, lost.state);
        }
    }

    fn after_loss(&mut self, now: Instant, link: usize, was: State) {
        let link = &mut self.links[link];
        link.flood.clear();
        link.acks.clear();
        if was == State::Full {
            self.describe(now);
        }
    }

    fn say_hello(&mut self, now: Instant, link: usize) {
        let Link { address, length, neighbour, .. } = &self.links[link];
        let ids: Vec<[u8; 4]> = neighbour.iter().map(|n| n.id.octets()).collect();
        let none = Ipv4Addr::UNSPECIFIED;
        let hello = Hello {
            mask: network(*address, *length).1,
            hello_interval: HELLO_INTERVAL,
            options: OPTIONS,
            priority: 0,
            dead_interval: DEAD_INTERVAL,
            designated: none,
            backup: none,
            neighbours: &ids,
        };
        let mut body = Vec::new();
        hello.emit(&mut body);
        self.send(link, kind::HELLO, &body);
        self.links[link].hello_at = now + Duration::from_secs(HELLO_INTERVAL.into());
    }

    /// Sends a packet. On point-to-point networks, all packets go to AllSPFRouters (section 8.1), except retransmissions, for which this
    /// makes no difference.
    fn send(&mut self, link: usize, kind: u8, body: &[u8]) {
        let mut payload = vec![0; packet::LEN];
        payload.extend_from_slice(body);
        let header = Header { kind, router_id: self.id, area_id: Ipv4Addr::UNSPECIFIED };
        header.seal(&mut payload, &Authentication::Null, 0);
        let interface = self.links[link].interface;
        self.out.push(Sent { interface, destination: ALL_SPF_ROUTERS, payload });
    }

    /// Does everything that is due until `now`; passes each packet to `out`.
    pub fn poll(&mut self, now: Instant, out: &mut dyn FnMut(Sent)) {
        while self.late.front().is_some_and(|late| late.at <= now) {
            if let Some(late) = self.late.pop_front() {
                self.install_late(now, &late);
            }
        }
        self.age(now);
        for link in 0..self.links.len() {
            if self.links[link].down {
                continue;
            }
            if self.links[link].neighbour.as_ref().is_some_and(|n| n.inactive_at <= now) {
                self.lose(now, link);
            }
            if self.links[link].hello_at <= now {
                self.say_hello(now, link);
            }
            self.repeat(now, link);
        }
        if self.own.due.is_some_and(|due| due <= now) {
            self.originate(now);
        }
        for link in (0..self.links.len()).filter(|link| !self.links[*link].down).collect::<Vec<_>>() {
            self.send_floods(now, link);
        }
        self.bury();
        if self.spf_at.is_some_and(|at| at <= now) {
            self.compute(now);
        }
        self.out.drain(..).for_each(out);
    }

    /// The next time when [`Ospf::poll`] has something to do, as of `now`.
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        if !self.out.is_empty() {
            return Some(now);
        }
        let late = self.late.front().map(|late| late.at);
        let own = [late, self.own.due, self.spf_at, self.database.next_expiry()];
        let links = self.links.iter().filter_map(|link| link.next_deadline(now));
        links.chain(own.into_iter().flatten()).min()
    }

    /// Plans the computation of the routes.
    fn plan(&mut self, now: Instant) {
        self.spf_at = self.spf_at.or(Some(now + SPF_DELAY));
    }

    fn compute(&mut self, now: Instant) {
        self.spf_at = None;
        self.counts.spf_runs += 1;
        let attached = |link: &Link| Attached {
            interface: link.interface,
            own: link.address,
            network: (network(link.address, link.length).0, link.length),
            neighbour: link.neighbour.as_ref().filter(|n| n.state == State::Full).map(|n| (n.id, n.address)),
        };
        let links: Vec<_> = self.links.iter().filter(|link| !link.down).map(attached).collect();
        let routes = spf::routes(now, self.id, &self.database, &links);
        let before = std::mem::replace(&mut self.routes, routes);
        let new = self.routes.iter().filter(|(net, hop)| before.get(*net) != Some(*hop)).map(|(net, _)| *net);
        let gone = before.keys().filter(|net| !self.routes.contains_key(*net)).copied();
        let mut changed: Vec<_> = new.chain(gone).collect();
        changed.sort_unstable();
        self.changed.append(&mut changed);
    }
}

/// Address and mask of the network of an address.
fn network(address: Ipv4Addr, length: u8) -> (Ipv4Addr, Ipv4Addr) {
    let mask = Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0));
    (address & mask, mask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_wire::ospf::exchange::flag;
    use drophammer_wire::ospf::{DatabaseDescription, External, lsa};
    use proptest::prelude::*;

    const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
    const OWN: Ipv4Addr = Ipv4Addr::new(100, 127, 255, 1);

    fn packet(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut payload = [&[0; packet::LEN][..], body].concat();
        let header = Header { kind, router_id: NEIGHBOUR, area_id: Ipv4Addr::UNSPECIFIED };
        header.seal(&mut payload, &Authentication::Null, 0);
        payload
    }

    /// A router whose neighbour is the slave of the exchange, or Full.
    fn router(full: bool) -> Ospf {
        let mut ospf = Ospf::new(OWN, &[(0, [10, 0, 0, 1].into(), 24, 1500)]);
        let mut say = |kind, body: &[u8]| ospf.receive(Instant(1), 0, NEIGHBOUR, &packet(kind, body));
        let mut hello = Vec::new();
        let (mask, none) = ([255, 255, 255, 0].into(), Ipv4Addr::UNSPECIFIED);
        let (hello_interval, dead_interval) = (HELLO_INTERVAL, DEAD_INTERVAL);
        let neighbours = &[OWN.octets()];
        let options = OPTIONS;
        let said = Hello {
            mask,
            hello_interval,
            options,
            priority: 0,
            dead_interval,
            designated: none,
            backup: none,
            neighbours,
        };
        said.emit(&mut hello);
        say(kind::HELLO, &hello);
        let mut describe = |flags, sequence| {
            let mut body = Vec::new();
            DatabaseDescription { mtu: 1500, options: OPTIONS, flags, sequence }.emit(&mut body);
            say(kind::DATABASE_DESCRIPTION, &body);
        };
        if full {
            describe(0, 1);
            describe(0, 2);
        }
        ospf
    }

    #[test]
    fn an_exchange_without_lsas_is_short() {
        let state = |ospf: &Ospf| ospf.links[0].neighbour.as_ref().unwrap().state;
        assert_eq!((state(&router(false)), state(&router(true))), (State::ExStart, State::Full));
        let mut ospf = router(true);
        // An initial Database Description restarts the exchange.
        let mut body = Vec::new();
        let flags = flag::INIT | flag::MORE | flag::MASTER;
        DatabaseDescription { mtu: 1500, options: OPTIONS, flags, sequence: 9 }.emit(&mut body);
        ospf.receive(Instant(2), 0, NEIGHBOUR, &packet(kind::DATABASE_DESCRIPTION, &body));
        assert_eq!((state(&ospf), ospf.full()), (State::ExStart, 0));
        ospf.neighbour_down(Instant(3), 0);
        assert!(ospf.links[0].neighbour.is_none());
    }

    proptest! {
        #[test]
        fn no_packet_of_a_neighbour_panics(
            full: bool,
            packets in proptest::collection::vec((1u8..7, proptest::collection::vec(any::<u8>(), 0..120), 0u64..3), 1..20),
            lsas in proptest::collection::vec((1u8..12, any::<[u8; 4]>(), prop_oneof![Just(OWN), Just(NEIGHBOUR), Just(Ipv4Addr::new(9, 9, 9, 9))], any::<i32>(), 0u16..=3600, proptest::collection::vec(any::<u8>(), 0..60)), 0..12),
        ) {
            let mut ospf = router(full);
            let mut now = Instant(10);
            let mut update = (lsas.len() as u32).to_be_bytes().to_vec();
            for (kind, id, router, sequence, age, body) in &lsas {
                let mut bytes = Vec::new();
                let key = LsaKey { kind: *kind, id: (*id).into(), router: *router };
                LsaHeader { age: *age, options: 2, key, sequence: *sequence, checksum: 0, length: 0 }.emit(&mut bytes);
                bytes.extend_from_slice(body);
                lsa::seal(&mut bytes);
                update.extend(bytes);
            }
            for (kind, body, seconds) in &packets {
                let body = if *kind == kind::LINK_STATE_UPDATE { &update } else { body };
                ospf.receive(now, 0, NEIGHBOUR, &packet(*kind, body));
                ospf.poll(now, &mut |_| {});
                now = now + Duration::from_secs(*seconds);
            }
            for _ in 0..50 {
                let Some(at) = ospf.next_deadline(now) else { break };
                now = now.max(at);
                ospf.poll(now, &mut |_| {});
            }
            prop_assert!(ospf.out.is_empty());
        }
    }

    #[test]
    fn a_forwarding_address_replaces_the_router_that_advertises() {
        let mut ospf = router(true);
        let mut external = |id: [u8; 4], forwarding: [u8; 4], type_2: bool, metric| {
            let mut bytes = Vec::new();
            let key = LsaKey { kind: 5, id: id.into(), router: NEIGHBOUR };
            LsaHeader { age: 1, options: 2, key, sequence: 1, checksum: 0, length: 0 }.emit(&mut bytes);
            let mask = [255, 255, 255, 0].into();
            External { mask, type_2, metric, forwarding: forwarding.into(), tag: 0 }.emit(&mut bytes);
            lsa::seal(&mut bytes);
            ospf.receive(
                Instant(5),
                0,
                NEIGHBOUR,
                &packet(kind::LINK_STATE_UPDATE, &[&[0, 0, 0, 1][..], &bytes].concat()),
            );
        };
        external([20, 0, 0, 0], [0; 4], true, 7);
        external([20, 0, 1, 0], [10, 0, 0, 7], false, 7);
        external([20, 0, 2, 0], [10, 0, 0, 1], false, 7);
        external([20, 0, 3, 0], [30, 0, 0, 1], false, 7);
        let mut body = Vec::new();
        drophammer_wire::ospf::Router::emit(2, 2, &mut body);
        for (id, data, kind) in [(OWN, NEIGHBOUR, 1), ([10, 0, 0, 0].into(), [255, 255, 255, 0].into(), 3)] {
            drophammer_wire::ospf::RouterLink { id, data, kind, metric: 10 }.emit(&mut body);
        }
        let key = LsaKey { kind: 1, id: NEIGHBOUR, router: NEIGHBOUR };
        let mut bytes = Vec::new();
        LsaHeader { age: 1, options: 2, key, sequence: 1, checksum: 0, length: 0 }.emit(&mut bytes);
        bytes.extend(body);
        lsa::seal(&mut bytes);
        ospf.receive(Instant(6), 0, NEIGHBOUR, &packet(kind::LINK_STATE_UPDATE, &[&[0, 0, 0, 1][..], &bytes].concat()));
        while let Some(at) = ospf.next_deadline(Instant(6)).filter(|at| *at <= Instant(6) + 2 * SPF_DELAY) {
            ospf.poll(at, &mut |_| {});
        }
        let hop = |last: u8| Hop { address: [10, 0, 0, last].into(), interface: 0 };
        let routes: Vec<_> = ospf.routes().iter().map(|(net, hop)| (net.0.octets(), *hop)).collect();
        assert_eq!(
            routes,
            [([20, 0, 0, 0], hop(2)), ([20, 0, 1, 0], hop(7))],
            "own and unreachable addresses forward nothing"
        );
    }
}
