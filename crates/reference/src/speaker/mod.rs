//! BGP of the device: sessions over TCP on the addresses of its interfaces and on its loopback address, and the routing
//! tables that they share. It receives packets and instants, and returns packets and deadlines.
//!
//! Everything is read, processed and answered at the instant when it arrives, unless delays are configured.
//! [`crate::rib`] documents the timing of routes.

mod import;
mod peer;
mod read;
mod stacks;
mod write;

use crate::config::{Beyond, BgpConfig, BgpPeer, Config, ConfigError, RibLimit, Vrf};
use crate::faults::BgpFaults;
use crate::interfaces::Interface;
use crate::rib::{FibChange, GLOBAL, Hop, Net, Path, PeerId, Rib, Scope, Source, TableId, Timing};
use crate::truth::BgpTruth;
use crate::vpn::take_targets;
use drophammer_emulation::bgp::Negotiated;
use drophammer_emulation::tcp::{ConnectionId, Protection, TcpConfig, TcpStack};
use drophammer_model::Instant;
use drophammer_wire::bgp::notification::{Notification, cease, code};
use drophammer_wire::bgp::{self, AfiSafi};
use import::Import;
use peer::{Peer, Place};
use read::Update;
use stacks::Stacks;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use write::VrfIds;

/// Memory for the buffers of all connections, and minimum and maximum size of one buffer, in bytes.
const BUFFERS: usize = 256 << 20;
const BUFFER: std::ops::RangeInclusive<usize> = 16 << 10..=256 << 10;
/// Bytes of labels for which the segments of sessions with PE routers leave room: a stack of four.
const LABELS: usize = 16;

/// Lookup that the device provides to the speaker: the number of the neighbour with this address on the link of this
/// interface, `None` if no such neighbour is possible. The number of the interfaces stands for the loopback address; its
/// neighbours are PE routers.
pub(crate) type Hops<'a> = &'a mut dyn FnMut(usize, IpAddr) -> Option<u32>;

pub(crate) struct Speaker {
    /// One stack per interface, and one for the loopback address.
    stacks: Stacks,
    peers: Vec<Peer>,
    /// Peers by interface and address.
    by_address: BTreeMap<(usize, IpAddr), PeerId>,
    by_connection: HashMap<(usize, ConnectionId), PeerId>,
    table: Table,
    faults: BgpFaults,
    /// Peers that have something to do, each once.
    busy: Vec<PeerId>,
    /// Times when peers need attention. Some entries are outdated.
    timers: BinaryHeap<Reverse<(Instant, PeerId)>>,
    /// Next deadline of [`Speaker::poll`], cached because it is queried often.
    wake: Option<Instant>,
    ready: Vec<ConnectionId>,
}

impl Speaker {
    pub fn new(config: &Config, bgp: &BgpConfig, interfaces: &[Interface]) -> Result<Speaker, ConfigError> {
        check(config, interfaces, bgp)?;
        let one = BUFFERS / 2 / (bgp.peers.len() + bgp.pe_peers.len()).max(1);
        let buffer = one.clamp(*BUFFER.start(), *BUFFER.end());
        let stack = |mtu, addresses: &mut dyn Iterator<Item = IpAddr>| {
            let mut tcp = TcpConfig::new(mtu, config.seed);
            (tcp.send_buffer, tcp.receive_buffer) = (buffer, buffer);
            tcp.ack_delay = Some(bgp.ack_delay).filter(|delay| !delay.is_zero());
            let mut stack = TcpStack::new(tcp);
            for own in addresses {
                stack.add_host(own);
                stack.listen(own, bgp::PORT);
            }
            stack
        };
        let mut stacks: Vec<_> = interfaces.iter().map(|i| stack(i.mtu, &mut i.addresses())).collect();
        let smallest = interfaces.iter().map(|i| i.mtu).min().unwrap_or_default();
        stacks.push(stack(smallest - smallest.min(LABELS), &mut config.loopback.map(IpAddr::V4).into_iter()));
        let protection = Protection::from(&bgp.protection);
        protection.check().map_err(|_| ConfigError::Limit("length of the TCP MD5 key"))?;
        for peer in &bgp.peers {
            for own in interfaces[peer.port].addresses().filter(|own| own.is_ipv4() == peer.address.is_ipv4()) {
                stacks[peer.port].protect(own, peer.address, protection.clone());
            }
        }
        for (own, pe) in config.loopback.iter().flat_map(|own| bgp.pe_peers.iter().map(move |pe| (*own, *pe))) {
            stacks[interfaces.len()].protect(own.into(), pe.into(), protection.clone());
        }
        let timing = Timing {
            propagation_delay: bgp.propagation_delay,
            fib_delay: bgp.fib_delay,
            fib_time_per_route: bgp.fib_time_per_route,
        };
        let count = bgp.peers.len() + bgp.pe_peers.len();
        let rib = Rib::new(timing, count, config.vrfs.len(), bgp.rib_limit.map(|l| l.paths));
        let ids =
            |vrf: &Vrf| VrfIds { distinguisher: vrf.distinguisher.distinguisher(), target: vrf.target.route_target() };
        let table = Table {
            rib,
            asn: bgp.asn,
            router_id: bgp.router_id.to_bits(),
            next_hop_self: bgp.next_hop_self,
            limit: bgp.rib_limit,
            until_reset: None,
            until_malformed: None,
            vrfs: config.vrfs.iter().map(ids).collect(),
            import: Import::new(&config.vrfs),
            truth: BgpTruth::default(),
        };
        let mut peers: Vec<Peer> = Vec::with_capacity(count);
        for peer in &bgp.peers {
            let interface = &interfaces[peer.port];
            let own = [interface.ipv4.map(|a| a.0.into()), interface.ipv6.map(|a| a.0.into())];
            let table = interface.vrf.map_or(GLOBAL, |vrf| vrf as TableId + 1);
            let family = if peer.address.is_ipv4() { AfiSafi::IPV4_UNICAST } else { AfiSafi::IPV6_UNICAST };
            peers.push(Peer::new(config.seed, bgp, peer, Place { own, scope: Scope::Table(table) }, &[family]));
        }
        let has_ipv6 = interfaces.iter().any(|interface| interface.vrf.is_some() && interface.ipv6.is_some());
        let vpn = if has_ipv6 { &[AfiSafi::VPNV4, AfiSafi::VPNV6][..] } else { &[AfiSafi::VPNV4] };
        for address in bgp.pe_peers.iter().map(|pe| IpAddr::V4(*pe)) {
            let port = interfaces.len();
            let peer = BgpPeer { port, address, asn: bgp.asn, connect: false, client: false };
            let own = [config.loopback.map(IpAddr::V4), None];
            peers.push(Peer::new(config.seed, bgp, &peer, Place { own, scope: Scope::Vrfs }, vpn));
        }
        let by_address = (0..).zip(&peers).map(|(id, peer)| ((peer.port, peer.address), id)).collect();
        let mut speaker = Speaker {
            stacks: Stacks::new(stacks),
            busy: Vec::new(),
            by_address,
            by_connection: HashMap::new(),
            table,
            faults: BgpFaults::default(),
            timers: BinaryHeap::new(),
            wake: None,
            ready: Vec::new(),
            peers,
        };
        for id in 0..speaker.peers.len() {
            speaker.peers[id].session.start(Instant(0));
            speaker.mark(id as PeerId);
        }
        speaker.set_faults(config.faults.bgp);
        speaker.wake = Some(Instant(0));
        Ok(speaker)
    }

    /// Replaces the faults from now on.
    pub fn set_faults(&mut self, faults: BgpFaults) {
        self.faults = faults;
        self.table.rib.set_withdraw_late(faults.withdraw_late);
        self.table.rib.set_flap(faults.flap_every, faults.flap_interval);
        self.table.until_reset = (faults.reset_after > 0).then_some(faults.reset_after);
        self.table.until_malformed = (faults.malformed_after > 0).then_some(faults.malformed_after);
        (0..self.peers.len()).for_each(|id| self.mark(id as PeerId));
        self.wake = Some(Instant(0));
    }

    pub fn truth(&self) -> BgpTruth {
        let rib = &self.table.rib;
        BgpTruth {
            paths: rib.paths() as u64,
            routes: rib.routes() as u64,
            fib_backlog: rib.fib_backlog() as u64,
            ..self.table.truth
        }
    }

    /// Takes a packet for an address of the device; false if it is not TCP.
    pub fn receive(&mut self, now: Instant, port: usize, packet: &[u8], hops: Hops<'_>) -> bool {
        if !self.stacks.get_mut(port).receive(now, packet) {
            return false;
        }
        self.work(now, hops);
        true
    }

    /// Does everything that is due until `now`; passes each outgoing packet and its interface to `out`.
    pub fn poll(&mut self, now: Instant, hops: Hops<'_>, out: &mut dyn FnMut(usize, &[u8])) {
        if self.wake.is_none_or(|wake| wake > now) {
            return;
        }
        self.work(now, hops);
        // After TCP has sent, it may have room for more data.
        for _ in 0..64 {
            self.stacks.list_due(now);
            for port in self.stacks.listed() {
                self.stacks.get_mut(port).poll(now, &mut |packet| out(port, packet));
            }
            self.work(now, hops);
            if self.wake.is_none_or(|wake| wake > now) {
                return;
            }
        }
    }

    /// The next time when [`Speaker::poll`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.wake
    }

    /// The time when the last change reaches the forwarding table.
    pub fn fib_end(&self) -> Option<Instant> {
        self.table.rib.fib_end()
    }

    /// The next change of the forwarding table until `now`.
    pub fn take_fib(&mut self, now: Instant) -> Option<FibChange> {
        self.table.rib.advance(now);
        let (at, change) = self.table.rib.take_fib(now)?;
        self.table.truth.fib_changes += 1;
        self.table.truth.fib_changed_at = at.0;
        Some(change)
    }

    /// Call it when the links of the interfaces marked in `over` went down: ends their sessions without a message.
    pub fn link_down(&mut self, now: Instant, over: &[bool], hops: Hops<'_>) {
        for id in 0..self.peers.len() {
            if over.get(self.peers[id].port) == Some(&true) {
                self.peers[id].session.abort(now);
                self.mark(id as PeerId);
            }
        }
        self.work(now, hops);
    }

    /// Ends the sessions on an interface whose BFD session went down (RFC 9384).
    pub fn bfd_down(&mut self, now: Instant, interface: usize, hops: Hops<'_>) {
        // When a link with thousands of sub-interfaces is silent, all of them come here one after the other.
        let first = (interface, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let peers: Vec<PeerId> =
            self.by_address.range(first..).take_while(|((port, _), _)| *port == interface).map(|(_, id)| *id).collect();
        for id in peers {
            self.peers[usize::from(id)].session.reset(now, Notification::bare(code::CEASE, cease::BFD_DOWN));
            self.mark(id);
        }
        self.work(now, hops);
    }

    fn mark(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.get_mut(usize::from(id))
            && !std::mem::replace(&mut peer.busy, true)
        {
            self.busy.push(id);
        }
    }

    /// Records whether the device has a route to a PE router.
    pub fn set_reachable(&mut self, now: Instant, pe: u32, reachable: bool) {
        self.table.rib.set_reachable(now, pe, reachable);
        self.wake = Some(now);
    }

    /// Does everything that can be done at `now`.
    fn work(&mut self, now: Instant, hops: Hops<'_>) {
        self.table.leak(now, self.faults.leak_vpn_route);
        loop {
            self.accept(now);
            for port in self.stacks.listed() {
                let mut ready = std::mem::take(&mut self.ready);
                self.stacks.get_mut(port).take_ready(&mut ready);
                for id in &ready {
                    if let Some(peer) = self.by_connection.get(&(port, *id)) {
                        self.mark(*peer);
                    }
                }
                self.ready = ready;
            }
            while let Some(Reverse((_, id))) = self.timers.peek().filter(|Reverse((at, _))| *at <= now).copied() {
                self.timers.pop();
                self.peers[usize::from(id)].scheduled = None;
                self.mark(id);
            }
            self.table.rib.advance(now);
            while let Some(id) = self.table.rib.take_awake() {
                self.mark(id);
            }
            if self.busy.is_empty() {
                break;
            }
            for id in std::mem::take(&mut self.busy) {
                self.peers[usize::from(id)].busy = false;
                self.serve(now, id, hops);
            }
        }
        self.stacks.settle();
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        self.wake = [self.stacks.next_deadline(), timer, self.table.rib.next_deadline()].into_iter().flatten().min();
    }

    /// Accepts connections that peers have opened.
    fn accept(&mut self, now: Instant) {
        for port in self.stacks.listed() {
            while let Some((_, connection)) = self.stacks.get_mut(port).accept_any() {
                let stack = self.stacks.get_mut(port);
                let remote = stack.ends(connection).map(|ends| ends.1.ip());
                let known = remote.and_then(|remote| self.by_address.get(&(port, remote)).copied());
                let wanted = known.filter(|id| {
                    let peer = &mut self.peers[usize::from(*id)];
                    peer.connection.is_none() && peer.session.connected(now)
                });
                match wanted {
                    Some(id) => {
                        self.peers[usize::from(id)].connection = Some(connection);
                        self.by_connection.insert((port, connection), id);
                        self.mark(id);
                    }
                    // The connection is from an unknown peer, or is a second connection of a peer.
                    None => {
                        stack.abort(connection);
                        stack.remove(connection);
                    }
                }
            }
        }
    }
}

fn check(config: &Config, interfaces: &[Interface], bgp: &BgpConfig) -> Result<(), ConfigError> {
    let mut seen = HashMap::new();
    if bgp.asn == 0 || bgp.router_id.is_unspecified() {
        return Err(ConfigError::Limit("AS or BGP identifier 0"));
    }
    let hold = bgp.hold_time.as_secs();
    if matches!(hold, 1 | 2) || hold > 65_535 {
        return Err(ConfigError::Limit("hold time"));
    }
    if bgp.peers.len() + bgp.pe_peers.len() >= usize::from(PeerId::MAX) {
        return Err(ConfigError::Limit("BGP peers"));
    }
    for peer in &bgp.peers {
        let interface = interfaces.get(peer.port).ok_or(ConfigError::NoSuchPort(peer.port))?;
        if !interface.is_neighbour(peer.address)
            || peer.asn == 0
            || seen.insert((peer.port, peer.address), ()).is_some()
        {
            return Err(ConfigError::Peer(peer.address));
        }
    }
    for pe in &bgp.pe_peers {
        let address = IpAddr::V4(*pe);
        if config.loopback.is_none_or(|own| own == *pe) || seen.insert((interfaces.len(), address), ()).is_some() {
            return Err(ConfigError::Peer(address));
        }
    }
    Ok(())
}

/// The routing table and related state.
struct Table {
    pub rib: Rib,
    pub asn: u32,
    /// BGP identifier of the device and of its cluster.
    pub router_id: u32,
    /// True if the device is the next hop of external routes for internal peers.
    pub next_hop_self: bool,
    pub limit: Option<RibLimit>,
    /// Number of routes still to be received before the session is reset.
    pub until_reset: Option<u64>,
    /// Number of routes still to be advertised before a malformed UPDATE.
    pub until_malformed: Option<u64>,
    pub vrfs: Vec<VrfIds>,
    pub import: Import,
    pub truth: BgpTruth,
}

/// The sender of an UPDATE.
struct Sender<'a, 'b> {
    pub now: Instant,
    pub peer: PeerId,
    pub port: usize,
    pub scope: Scope,
    /// True if the session is over IPv6.
    pub ipv6: bool,
    /// True if the routes of this peer are reflected.
    pub client: bool,
    pub hops: &'a mut Hops<'b>,
}

impl Table {
    /// Processes the body of an UPDATE. Routes of other families than the session's family are ignored.
    pub fn update(&mut self, from: Sender<'_, '_>, body: &[u8], with: &Negotiated) -> Result<(), Notification> {
        let update = read::read(body, with.ibgp)?;
        self.truth.updates_received += 1;
        match from.scope {
            Scope::Table(table) => self.unicast(from, table, update, with),
            Scope::Vrfs => self.vpn(from, update, with),
        }
    }

    /// Processes unicast routes for one table. A VRF takes only routes of the family of its session.
    fn unicast(
        &mut self,
        from: Sender<'_, '_>,
        table: TableId,
        update: Update<'_>,
        with: &Negotiated,
    ) -> Result<(), Notification> {
        let Sender { now, peer, port, ipv6, client, hops, .. } = from;
        let source = Source::peer(peer);
        let belongs = |net: &Net| table == GLOBAL || net.0.is_ipv6() == ipv6;
        for net in update.withdrawn.into_iter().flatten().filter(belongs) {
            self.truth.withdrawals_received += 1;
            self.rib.withdraw(now, table, net, source);
        }
        self.forget();
        for (nets, next_hop) in update.announced {
            let nets = nets.filter(belongs);
            let Some(attributes) = update.attributes.clone().zip(next_hop) else {
                for net in nets {
                    self.truth.routes_received += 1;
                    self.truth.treated_as_withdrawn += 1;
                    self.rib.withdraw(now, table, net, source);
                }
                continue;
            };
            let (mut attributes, next_hop) = attributes;
            attributes.next_hop = next_hop;
            if with.ibgp {
                // The originator of the route in this AS, for the peers to which the route is reflected.
                attributes.originator = attributes.originator.or(Some(with.peer_id.to_bits()));
            }
            if table != GLOBAL {
                // A CE router does not decide who imports its routes.
                attributes.others = take_targets(&attributes.others).0;
            }
            let looped = attributes.passed(self.asn) || attributes.reflected_by(self.router_id);
            let hop = if looped { None } else { hops(port, next_hop).map(Hop::Neighbour) };
            let id = self.rib.intern(&attributes);
            for net in nets {
                self.truth.routes_received += 1;
                self.truth.looped += u64::from(looped);
                self.truth.unreachable += u64::from(!looped && hop.is_none());
                self.announce(now, table, net, Path { attributes: id, hop, source, internal: with.ibgp, client })?;
                self.count_to_reset()?;
            }
        }
        Ok(())
    }

    /// Forgets everything about routes if none is left.
    fn forget(&mut self) {
        if self.rib.paths() == 0 && self.rib.forget() {
            self.import.forget();
        }
    }

    /// Adds a path.
    ///
    /// # Errors
    /// There is no room for it, and the session ends then.
    fn announce(&mut self, now: Instant, table: TableId, net: Net, path: Path) -> Result<(), Notification> {
        if !self.rib.announce(now, table, net, path) {
            self.truth.over_limit += 1;
            if let Some(RibLimit { paths, beyond: Beyond::Reset }) = self.limit {
                return Err(too_many(net.0, paths));
            }
        }
        Ok(())
    }

    /// Counts a received route for [`BgpFaults::reset_after`].
    fn count_to_reset(&mut self) -> Result<(), Notification> {
        if let Some(left) = &mut self.until_reset {
            *left -= 1;
            if *left == 0 {
                self.until_reset = None;
                return Err(Notification::bare(code::CEASE, cease::ADMINISTRATIVE_RESET));
            }
        }
        Ok(())
    }
}

/// The NOTIFICATION of RFC 4486 section 4, with family and upper bound.
fn too_many(address: IpAddr, bound: usize) -> Notification {
    let mut data = vec![0, if address.is_ipv4() { 1 } else { 2 }, 1];
    data.extend((bound.min(u32::MAX as usize) as u32).to_be_bytes());
    Notification::new(code::CEASE, cease::MAXIMUM_PREFIXES, data)
}
