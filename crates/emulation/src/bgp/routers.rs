//! BGP of a device: its sessions over the device's TCP, what they advertise and what they receive.

mod peer;
mod pressure;
mod protocol;
#[cfg(test)]
mod tests;

pub use peer::PeerConfig;
pub use pressure::Pressure;
pub use protocol::{BgpCommand, KIND};

use super::{AdjRibIn, AdjRibOut, Cause, Sent, Session, State};
use crate::protocol::Output;
use crate::tcp::{ConnectionId, ListenerId, Refusals, TcpStack};
use drophammer_model::Instant;
use drophammer_wire::bgp::AfiSafi;
use drophammer_wire::bgp::{self, notification::cease};
use peer::Peer;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

/// Memory for the buffers of all connections of a device, and the bounds of one buffer, in bytes.
const BUFFERS: usize = 256 << 20;
const BUFFER: std::ops::RangeInclusive<usize> = 16 << 10..=512 << 10;

/// The BGP speakers of a device: one for each peer of the DUT's, with an address of its own.
pub struct Routers {
    peers: Vec<Peer>,
    /// Bytes of a connection's buffers.
    buffer: usize,
    by_connection: HashMap<ConnectionId, usize>,
    by_listener: HashMap<ListenerId, usize>,
    /// Peers that have something to do, each once.
    busy: Vec<usize>,
    serving: Vec<usize>,
    /// Those that were looked at in this poll.
    served: Vec<usize>,
    /// When peers want to be looked at; some entries are out of date.
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Segments that the device's TCP has refused so far.
    refusals: Refusals,
}

impl Routers {
    /// Routers that are not started. Two peers of one address are one router with two sessions only if their DUT addresses differ.
    pub fn new(seed: u64, peers: Vec<PeerConfig>) -> Routers {
        Routers {
            buffer: (BUFFERS / 2 / peers.len().max(1)).clamp(*BUFFER.start(), *BUFFER.end()),
            peers: peers.into_iter().map(|config| Peer::new(config, seed)).collect(),
            by_connection: HashMap::new(),
            by_listener: HashMap::new(),
            busy: Vec::new(),
            serving: Vec::new(),
            served: Vec::new(),
            timers: BinaryHeap::new(),
            refusals: Refusals::default(),
        }
    }

    /// The same with buffers of this many bytes per connection and direction, for a port with many devices.
    pub fn with_buffer(mut self, bytes: usize) -> Routers {
        self.buffer = bytes.clamp(*BUFFER.start(), *BUFFER.end());
        self
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
        at.starts = true;
        self.mark(peer);
    }

    /// Ends a session by a NOTIFICATION (Cease, Administrative Shutdown) and forgets what waits to be sent; it stays down.
    pub fn stop(&mut self, now: Instant, peer: usize) {
        let at = &mut self.peers[peer];
        at.asked_to_end = true;
        at.adj_rib_out.clear();
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

    /// Is it Idle, with its last message sent and its connection gone?
    pub fn idle(&self, peer: usize) -> bool {
        self.peers[peer].session.state() == State::Idle && self.peers[peer].connection.is_none()
    }

    /// Times that an established session ended without [`Routers::stop`], and why it did last.
    pub fn losses(&self, peer: usize) -> (u32, Option<&Cause>) {
        let at = &self.peers[peer];
        (at.losses, at.lost_by.as_ref())
    }

    /// Routes that a router advertises; they are sent while the session is Established.
    pub fn adj_rib_out(&mut self, peer: usize) -> &mut AdjRibOut {
        self.mark(peer);
        &mut self.peers[peer].adj_rib_out
    }

    /// Does a router advertise its routes again once a session that ended by itself is back? It does not unless it is told so.
    pub fn keep_routes(&mut self, peer: usize, keep: bool) {
        self.peers[peer].keeps_routes = keep;
    }

    /// A router asks the DUT for all its routes of `family` again (RFC 2918); false where that is not agreed on.
    pub fn request_refresh(&mut self, peer: usize, family: AfiSafi) -> bool {
        self.mark(peer);
        self.peers[peer].session.request_refresh(family)
    }

    /// What a router has sent.
    pub fn advertised(&self, peer: usize) -> Sent {
        self.peers[peer].adj_rib_out.progress()
    }

    /// Expects and advertises nothing any more.
    pub fn clear_tables(&mut self, peer: usize) {
        let at = &mut self.peers[peer];
        (at.adj_rib_in, at.losses, at.lost_by) = (AdjRibIn::new(), 0, None);
        at.adj_rib_out.clear();
    }

    /// Routes that a router receives.
    pub fn adj_rib_in(&self, peer: usize) -> &AdjRibIn {
        &self.peers[peer].adj_rib_in
    }

    /// The same, to expect something.
    pub fn adj_rib_in_mut(&mut self, peer: usize) -> &mut AdjRibIn {
        &mut self.peers[peer].adj_rib_in
    }

    /// Has the DUT's TCP acknowledged all UPDATEs of a router? It need not have read them.
    pub fn all_acknowledged(&self, peer: usize) -> bool {
        let at = &self.peers[peer];
        at.adj_rib_out.is_empty() && at.unacknowledged == 0
    }

    /// Bytes of UPDATEs that the DUT's TCP has acknowledged, as far as that is known.
    pub fn acknowledged_bytes(&self, peer: usize) -> u64 {
        let at = &self.peers[peer];
        at.adj_rib_out.progress().bytes.saturating_sub(at.unacknowledged as u64)
    }

    /// Which side delayed what a router has to send, up to `now`.
    pub fn pressure(&self, peer: usize, now: Instant) -> Pressure {
        self.peers[peer].meter.read(now)
    }

    /// Adds the peers' addresses to the device's TCP, and listens on them.
    fn attach(&mut self, tcp: &mut TcpStack) {
        tcp.set_buffers(self.buffer, self.buffer);
        self.by_connection.clear();
        self.by_listener.clear();
        for (index, peer) in self.peers.iter_mut().enumerate() {
            let PeerConfig { address, dut, protection, .. } = peer.config();
            tcp.add_host(*address);
            tcp.protect(*address, *dut, protection.clone());
            self.by_listener.insert(tcp.listen(peer.config().address, bgp::PORT), index);
            peer.forget_connections();
        }
    }

    /// These connections changed. What they bring is read at once, with the time of its arrival; answers wait for the next poll.
    fn read(&mut self, now: Instant, ready: &[ConnectionId], tcp: &mut TcpStack) {
        for connection in ready {
            if let Some(peer) = self.by_connection.get(connection) {
                self.mark(*peer);
            }
        }
        for at in 0..self.busy.len() {
            let peer = self.busy[at];
            let before = self.peers[peer].connections();
            self.peers[peer].read(now, tcp);
            self.peers[peer].heard(now, tcp);
            self.follow(peer, before);
        }
    }

    /// Does what is due and sends what waits, of UPDATEs about `quota` bytes per router at most.
    fn work(&mut self, now: Instant, quota: usize, out: &mut Output<'_>) {
        while let Some(Reverse((at, peer))) = self.timers.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            self.timers.pop();
            if self.peers[peer].scheduled == Some(at) {
                self.peers[peer].scheduled = None;
                self.mark(peer);
            }
        }
        let mut serving = std::mem::replace(&mut self.busy, std::mem::take(&mut self.serving));
        for peer in serving.drain(..) {
            self.peers[peer].busy = false;
            self.serve(now, peer, quota, out.tcp);
            self.served.push(peer);
        }
        self.serving = serving;
        out.send_tcp(now);
        self.refusals = out.tcp.refusals();
        for peer in self.served.drain(..) {
            self.peers[peer].sent(now, out.tcp);
        }
    }

    fn mark(&mut self, peer: usize) {
        if !std::mem::replace(&mut self.peers[peer].busy, true) {
            self.busy.push(peer);
        }
    }

    /// A connection that the DUT opened.
    fn take_connection(&mut self, now: Instant, listener: ListenerId, connection: ConnectionId, tcp: &mut TcpStack) {
        let Some(&peer) = self.by_listener.get(&listener) else {
            tcp.abort(connection);
            tcp.remove(connection);
            return;
        };
        let before = self.peers[peer].connections();
        self.peers[peer].take_connection(now, connection, tcp);
        self.follow(peer, before);
        self.mark(peer);
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

    fn serve(&mut self, now: Instant, peer: usize, quota: usize, tcp: &mut TcpStack) {
        let at = &mut self.peers[peer];
        let before = at.connections();
        let more = at.serve(now, tcp, quota);
        self.follow(peer, before);
        let at = &mut self.peers[peer];
        let due = [at.session.next_deadline(), at.adj_rib_out_deadline(now)].into_iter().flatten().min();
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
