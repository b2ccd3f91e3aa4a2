//! BGP of the device: sessions over TCP on the addresses of its ports, and its routing table between them. Packets and instants
//! in, packets and deadlines out.
//!
//! What arrives at an instant is read, processed and answered at that instant, unless delays are configured; see
//! [`crate::rib`] for the instants of routes.

mod input;
mod peer;
mod read;
mod write;

use crate::config::{BgpConfig, Config, ConfigError};
use crate::faults::BgpFaults;
use crate::interfaces::Interface;
use crate::rib::{FibChange, PeerId, Rib, Timing};
use crate::truth::BgpTruth;
use drophammer_emulation::tcp::{ConnectionId, Protection, TcpConfig, TcpStack};
use drophammer_model::Instant;
use drophammer_wire::bgp;
use input::Table;
use peer::Peer;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::IpAddr;

/// Memory for the buffers of all connections, and the bounds of one buffer, in bytes.
const BUFFERS: usize = 256 << 20;
const BUFFER: std::ops::RangeInclusive<usize> = 16 << 10..=256 << 10;

/// Lookup that the device provides to the speaker: number of the neighbour with this address on the link of this
/// interface, `None` when there can be none.
pub(crate) type Hops<'a> = &'a mut dyn FnMut(usize, IpAddr) -> Option<u32>;

/// The speaker.
pub(crate) struct Speaker {
    /// One stack per interface.
    stacks: Vec<TcpStack>,
    peers: Vec<Peer>,
    by_address: HashMap<(usize, IpAddr), PeerId>,
    by_connection: HashMap<(usize, ConnectionId), PeerId>,
    table: Table,
    faults: BgpFaults,
    /// Peers that have something to do, each once.
    busy: Vec<PeerId>,
    /// When peers need attention; some entries are out of date.
    timers: BinaryHeap<Reverse<(Instant, PeerId)>>,
    /// Next deadline of [`Speaker::poll`], cached because it is queried often.
    wake: Option<Instant>,
    ready: Vec<ConnectionId>,
}

impl Speaker {
    /// A new speaker.
    ///
    /// # Errors
    /// A peer on a port or address where none can be.
    pub fn new(config: &Config, bgp: &BgpConfig, interfaces: &[Interface]) -> Result<Speaker, ConfigError> {
        check(interfaces, bgp)?;
        let one = BUFFERS / 2 / bgp.peers.len().max(1);
        let buffer = one.clamp(*BUFFER.start(), *BUFFER.end());
        let mut stacks: Vec<TcpStack> = Vec::with_capacity(interfaces.len());
        for interface in interfaces {
            let mut tcp = TcpConfig::new(interface.mtu, config.seed);
            (tcp.send_buffer, tcp.receive_buffer) = (buffer, buffer);
            tcp.ack_delay = Some(bgp.ack_delay).filter(|delay| !delay.is_zero());
            let mut stack = TcpStack::new(tcp);
            for own in interface.addresses() {
                stack.add_host(own);
                stack.listen(own, bgp::PORT);
            }
            stacks.push(stack);
        }
        let protection = Protection::from(&bgp.protection);
        protection.check().map_err(|_| ConfigError::Limit("length of the TCP MD5 key"))?;
        for peer in &bgp.peers {
            for own in interfaces[peer.port].addresses().filter(|own| own.is_ipv4() == peer.address.is_ipv4()) {
                stacks[peer.port].protect(own, peer.address, protection.clone());
            }
        }
        let timing = Timing {
            propagation_delay: bgp.propagation_delay,
            fib_delay: bgp.fib_delay,
            fib_time_per_route: bgp.fib_time_per_route,
        };
        let rib = Rib::new(timing, bgp.peers.len(), bgp.rib_limit.map(|l| l.paths));
        let table = Table {
            rib,
            asn: bgp.asn,
            router_id: bgp.router_id.to_bits(),
            next_hop_self: bgp.next_hop_self,
            limit: bgp.rib_limit,
            until_reset: None,
            until_malformed: None,
            truth: BgpTruth::default(),
        };
        let peers: Vec<Peer> =
            bgp.peers.iter().map(|peer| Peer::new(config.seed, bgp, peer, &interfaces[peer.port])).collect();
        let by_address = (0..).zip(&bgp.peers).map(|(id, peer)| ((peer.port, peer.address), id)).collect();
        let mut speaker = Speaker {
            stacks,
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

    /// Replaces its faults from now on.
    pub fn set_faults(&mut self, faults: BgpFaults) {
        self.faults = faults;
        self.table.rib.set_withdraw_late(faults.withdraw_late);
        self.table.rib.set_flap(faults.flap_every, faults.flap_interval);
        self.table.until_reset = (faults.reset_after > 0).then_some(faults.reset_after);
        self.table.until_malformed = (faults.malformed_after > 0).then_some(faults.malformed_after);
        (0..self.peers.len()).for_each(|id| self.mark(id as PeerId));
        self.wake = Some(Instant(0));
    }

    /// What it did.
    pub fn truth(&self) -> BgpTruth {
        let rib = &self.table.rib;
        BgpTruth {
            paths: rib.paths() as u64,
            routes: rib.routes() as u64,
            fib_backlog: rib.fib_backlog() as u64,
            ..self.table.truth
        }
    }

    /// A packet for an address of the device arrives; false if it is not TCP.
    pub fn receive(&mut self, now: Instant, port: usize, packet: &[u8], hops: Hops<'_>) -> bool {
        if !self.stacks[port].receive(now, packet) {
            return false;
        }
        self.work(now, hops);
        true
    }

    /// Does what is due until `now` and hands out the packets that leave, each with its interface.
    pub fn poll(&mut self, now: Instant, hops: Hops<'_>, out: &mut dyn FnMut(usize, &[u8])) {
        if self.wake.is_none_or(|wake| wake > now) {
            return;
        }
        self.work(now, hops);
        // What TCP has sent may make room for more.
        for _ in 0..64 {
            for (port, stack) in self.stacks.iter_mut().enumerate() {
                stack.poll(now, &mut |packet| out(port, packet));
            }
            self.work(now, hops);
            if self.wake.is_none_or(|wake| wake > now) {
                return;
            }
        }
    }

    /// When [`Speaker::poll`] has something to do next.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.wake
    }

    /// When the last change on its way to the forwarding table is done.
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

    /// The links of the interfaces that `over` marks went down: their sessions end silently.
    pub fn link_down(&mut self, now: Instant, over: &[bool], hops: Hops<'_>) {
        for id in 0..self.peers.len() {
            if over[self.peers[id].port] {
                self.peers[id].session.abort(now);
                self.mark(id as PeerId);
            }
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

    /// Everything that can be done at `now`.
    fn work(&mut self, now: Instant, hops: Hops<'_>) {
        loop {
            self.accept(now);
            for port in 0..self.stacks.len() {
                let mut ready = std::mem::take(&mut self.ready);
                self.stacks[port].take_ready(&mut ready);
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
        let tcp = self.stacks.iter().filter_map(TcpStack::next_deadline).min();
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        self.wake = [tcp, timer, self.table.rib.next_deadline()].into_iter().flatten().min();
    }

    /// Accepts connections that peers have opened.
    fn accept(&mut self, now: Instant) {
        for port in 0..self.stacks.len() {
            while let Some((_, connection)) = self.stacks[port].accept_any() {
                let stack = &mut self.stacks[port];
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
                    // From no configured peer, or a second one of a peer.
                    None => {
                        stack.abort(connection);
                        stack.remove(connection);
                    }
                }
            }
        }
    }
}

fn check(interfaces: &[Interface], bgp: &BgpConfig) -> Result<(), ConfigError> {
    let mut seen = HashMap::new();
    if bgp.asn == 0 || bgp.router_id.is_unspecified() {
        return Err(ConfigError::Limit("AS or BGP identifier 0"));
    }
    let hold = bgp.hold_time.as_secs();
    if matches!(hold, 1 | 2) || hold > 65_535 {
        return Err(ConfigError::Limit("hold time"));
    }
    if bgp.peers.len() >= usize::from(PeerId::MAX) {
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
    Ok(())
}
