//! The BGP routers behind one tester port: their TCP, their sessions, what they advertise and what they are told. IP packets and
//! instants in, IP packets and the next deadline out.

mod peer;
mod pressure;
#[cfg(test)]
mod tests;

pub use peer::PeerConfig;
pub use pressure::Pressure;

use super::{Cause, Inbox, Outbox, Sent, Session, State};
use crate::tcp::{ConnectionId, ListenerId, TcpConfig, TcpStack};
use drophammer_model::Instant;
use drophammer_wire::bgp::AfiSafi;
use drophammer_wire::bgp::{self, notification::cease};
use peer::Peer;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

/// Memory for the buffers of all connections of a port, and the bounds of one buffer, in bytes.
const BUFFERS: usize = 256 << 20;
const BUFFER: std::ops::RangeInclusive<usize> = 16 << 10..=512 << 10;

/// The routers of a port.
pub struct Routers {
    stack: TcpStack,
    peers: Vec<Peer>,
    by_connection: HashMap<ConnectionId, usize>,
    by_listener: HashMap<ListenerId, usize>,
    /// Peers that have something to do, each once.
    busy: Vec<usize>,
    serving: Vec<usize>,
    /// Those that were looked at in this poll.
    served: Vec<usize>,
    /// When peers want to be looked at; some entries are out of date.
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    ready: Vec<ConnectionId>,
}

impl Routers {
    /// Routers that are not started, on a link with this MTU. Two peers of one address are one router with two sessions only if their DUT
    /// addresses differ.
    pub fn new(mtu: u32, seed: u64, peers: Vec<PeerConfig>) -> Routers {
        let buffer = (BUFFERS / 2 / peers.len().max(1)).clamp(*BUFFER.start(), *BUFFER.end());
        let mut config = TcpConfig::new(mtu as usize, seed);
        (config.send_buffer, config.receive_buffer) = (buffer, buffer);
        // Frames of a peer in the same kernel may carry sums that its device was to finish; Ethernet has its own.
        config.verify_checksums = false;
        let mut stack = TcpStack::new(config);
        let mut by_listener = HashMap::new();
        for (index, peer) in peers.iter().enumerate() {
            stack.add_host(peer.address);
            by_listener.insert(stack.listen(peer.address, bgp::PORT), index);
        }
        Routers {
            stack,
            peers: peers.into_iter().map(|config| Peer::new(config, seed)).collect(),
            by_connection: HashMap::new(),
            by_listener,
            busy: Vec::new(),
            serving: Vec::new(),
            served: Vec::new(),
            timers: BinaryHeap::new(),
            ready: Vec::new(),
        }
    }

    /// Number of routers.
    pub fn len(&self) -> usize {
        self.peers.len()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// Lets a router open its session; it comes back by itself when it ends.
    pub fn start(&mut self, now: Instant, peer: usize) {
        let at = &mut self.peers[peer];
        at.session.start(now);
        // A connection that is left over from before must not be taken for the new session's.
        let before = at.connections();
        at.carry_out(now, &mut self.stack);
        self.follow(peer, before);
        self.mark(peer);
    }

    /// Ends a session by a NOTIFICATION (Cease, Administrative Shutdown) and forgets what waits to be said; it stays down.
    pub fn stop(&mut self, now: Instant, peer: usize) {
        let at = &mut self.peers[peer];
        at.asked_to_end = true;
        at.outbox.clear();
        at.session.stop(now, cease::ADMINISTRATIVE_SHUTDOWN);
        self.mark(peer);
    }

    /// A session.
    pub fn session(&self, peer: usize) -> &Session {
        &self.peers[peer].session
    }

    /// Is it Established?
    pub fn established(&self, peer: usize) -> bool {
        self.peers[peer].session.state() == State::Established
    }

    /// Is it Idle, its last word said and its connection gone?
    pub fn idle(&self, peer: usize) -> bool {
        self.peers[peer].session.state() == State::Idle && self.peers[peer].connection.is_none()
    }

    /// Times that an established session ended without [`Routers::stop`], and why it did last.
    pub fn losses(&self, peer: usize) -> (u32, Option<&Cause>) {
        let at = &self.peers[peer];
        (at.losses, at.lost_by.as_ref())
    }

    /// What a router says; it is said while the session is Established.
    pub fn outbox(&mut self, peer: usize) -> &mut Outbox {
        self.mark(peer);
        &mut self.peers[peer].outbox
    }

    /// A router asks the DUT for all its routes of `family` again (RFC 2918); false where that is not agreed on.
    pub fn request_refresh(&mut self, peer: usize, family: AfiSafi) -> bool {
        self.mark(peer);
        self.peers[peer].session.request_refresh(family)
    }

    /// What a router has said.
    pub fn outbox_progress(&self, peer: usize) -> Sent {
        self.peers[peer].outbox.progress()
    }

    /// Nothing is expected any more, and nothing waits to be said.
    pub fn forget(&mut self, peer: usize) {
        let at = &mut self.peers[peer];
        (at.inbox, at.losses, at.lost_by) = (Inbox::new(), 0, None);
        at.outbox.clear();
    }

    /// What a router is told.
    pub fn inbox(&self, peer: usize) -> &Inbox {
        &self.peers[peer].inbox
    }

    /// What a router is told, to expect something.
    pub fn inbox_mut(&mut self, peer: usize) -> &mut Inbox {
        &mut self.peers[peer].inbox
    }

    /// Has the DUT's TCP acknowledged all that a router has to say? Not that it has read it.
    pub fn said(&self, peer: usize) -> bool {
        let at = &self.peers[peer];
        at.outbox.is_empty() && at.connection.is_none_or(|c| self.stack.unacknowledged(c) == 0)
    }

    /// Bytes of UPDATEs that the DUT's TCP has acknowledged, as far as that is known.
    pub fn taken(&self, peer: usize) -> u64 {
        let at = &self.peers[peer];
        let waiting = at.connection.map_or(0, |c| self.stack.unacknowledged(c));
        at.outbox.progress().bytes.saturating_sub(waiting as u64)
    }

    /// Who kept a router from saying what it has to say, up to `now`.
    pub fn pressure(&self, peer: usize, now: Instant) -> Pressure {
        self.peers[peer].meter.read(now)
    }

    /// Takes an IP packet that arrived at `now`; false when it is not of TCP for one of these routers. What it brings is read at once.
    pub fn receive(&mut self, now: Instant, packet: &[u8]) -> bool {
        if !self.stack.receive(now, packet) {
            return false;
        }
        self.wake_ready();
        // UPDATEs are read with the time of their arrival; answers wait for the next poll.
        for at in 0..self.busy.len() {
            let peer = self.busy[at];
            let before = self.peers[peer].connections();
            self.peers[peer].read(now, &mut self.stack);
            self.peers[peer].heard(now, &self.stack);
            self.follow(peer, before);
        }
        true
    }

    /// Does what is due and sends what waits, of UPDATEs about `quota` bytes per router at most.
    pub fn poll(&mut self, now: Instant, quota: usize, out: &mut dyn FnMut(&[u8])) {
        while let Some(Reverse((at, peer))) = self.timers.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            self.timers.pop();
            if self.peers[peer].scheduled == Some(at) {
                self.peers[peer].scheduled = None;
                self.mark(peer);
            }
        }
        // A close or a first segment leaves at once; more data waits for the next call.
        for _ in 0..2 {
            self.accept(now);
            self.wake_ready();
            let mut serving = std::mem::replace(&mut self.busy, std::mem::take(&mut self.serving));
            for peer in serving.drain(..) {
                self.peers[peer].busy = false;
                self.serve(now, peer, quota);
                self.served.push(peer);
            }
            self.serving = serving;
            self.stack.poll(now, out);
            if self.busy.is_empty() {
                break;
            }
        }
        for peer in self.served.drain(..) {
            self.peers[peer].sent(now, &self.stack);
        }
    }

    /// When [`Routers::poll`] wants to be called again; `Instant(0)` for at once.
    pub fn next_deadline(&self) -> Option<Instant> {
        if !self.busy.is_empty() {
            return Some(Instant(0));
        }
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        [timer, self.stack.next_deadline()].into_iter().flatten().min()
    }

    fn mark(&mut self, peer: usize) {
        if !std::mem::replace(&mut self.peers[peer].busy, true) {
            self.busy.push(peer);
        }
    }

    fn wake_ready(&mut self) {
        let mut ready = std::mem::take(&mut self.ready);
        self.stack.take_ready(&mut ready);
        for connection in &ready {
            if let Some(peer) = self.by_connection.get(connection) {
                self.mark(*peer);
            }
        }
        self.ready = ready;
    }

    fn accept(&mut self, now: Instant) {
        while let Some((listener, connection)) = self.stack.accept_any() {
            let Some(&peer) = self.by_listener.get(&listener) else {
                self.stack.abort(connection);
                self.stack.remove(connection);
                continue;
            };
            let before = self.peers[peer].connections();
            self.peers[peer].take_connection(now, connection, &mut self.stack);
            self.follow(peer, before);
            self.mark(peer);
        }
    }

    /// Notes which connections a peer has that had those of `before`.
    fn follow(&mut self, peer: usize, before: [Option<ConnectionId>; 2]) {
        let after = self.peers[peer].connections();
        if before == after {
            return;
        }
        for gone in before.into_iter().flatten().filter(|c| !after.contains(&Some(*c))) {
            self.by_connection.remove(&gone);
        }
        for new in after.into_iter().flatten().filter(|c| !before.contains(&Some(*c))) {
            self.by_connection.insert(new, peer);
        }
    }

    fn serve(&mut self, now: Instant, peer: usize, quota: usize) {
        let at = &mut self.peers[peer];
        let before = at.connections();
        let more = at.serve(now, &mut self.stack, quota);
        self.follow(peer, before);
        let at = &mut self.peers[peer];
        let due = [at.session.next_deadline(), at.outbox_deadline(now)].into_iter().flatten().min();
        if let Some(due) = due
            && at.scheduled.is_none_or(|scheduled| due < scheduled)
        {
            let due = due.max(now + Duration::from_nanos(1));
            at.scheduled = Some(due);
            self.timers.push(Reverse((due, peer)));
        }
        if more {
            self.mark(peer);
        }
    }
}

/// Is this packet TCP to or from the port of BGP? So whoever captures a port knows what is worth keeping.
pub fn is_bgp(packet: &[u8]) -> bool {
    let header = match packet.first().map(|b| b >> 4) {
        Some(4) if packet.get(9) == Some(&6) => usize::from(packet[0] & 15) * 4,
        Some(6) if packet.get(6) == Some(&6) => 40,
        _ => return false,
    };
    let port = |at: usize| packet.get(header + at..header + at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    port(0) == Some(bgp::PORT) || port(2) == Some(bgp::PORT)
}

/// Where a DUT with this address listens.
pub(crate) fn port_of(address: IpAddr) -> std::net::SocketAddr {
    std::net::SocketAddr::new(address, bgp::PORT)
}
