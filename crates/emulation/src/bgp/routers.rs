//! BGP of a device: its sessions over the device's TCP, and the routes that they advertise and receive.

mod peer;
mod pressure;
mod protocol;
mod sending;
#[cfg(test)]
mod tests;

pub use peer::PeerConfig;
pub use pressure::Pressure;
pub use protocol::{BgpCommand, NAME};

use super::{AdjRibIn, AdjRibOut, Cause, Sent, Session, State};
use crate::device::TCP_MEMORY;
use crate::protocol::Output;
use crate::tcp::{ConnectionId, ListenerId, Refusals, TcpStack};
use drophammer_model::Instant;
use drophammer_wire::bgp::{self, AfiSafi, Notification};
use peer::Peer;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

/// Limits for one buffer of a connection, in bytes.
const BUFFER: std::ops::RangeInclusive<usize> = 16 << 10..=512 << 10;

/// The BGP speakers of a device: one for each peer of the DUT, with its own address.
pub struct Routers {
    peers: Vec<Peer>,
    /// Bytes of each buffer of a connection.
    buffer: usize,
    by_connection: HashMap<ConnectionId, usize>,
    /// By the listener and the address of the DUT.
    by_listener: HashMap<(ListenerId, IpAddr), usize>,
    /// Peers with work to do, each once.
    busy: Vec<usize>,
    serving: Vec<usize>,
    /// Peers that were served in this poll.
    served: Vec<usize>,
    /// Deadlines of peers; some entries are outdated.
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Segments that the device's TCP has refused so far.
    refusals: Refusals,
}

impl Routers {
    /// Routers with stopped sessions. Two peers with one address are one router with two sessions; their DUT addresses must differ.
    pub fn new(seed: u64, peers: Vec<PeerConfig>) -> Routers {
        let buffer = TCP_MEMORY / 2 / peers.len().max(1);
        let routers = Routers {
            buffer,
            peers: peers.into_iter().map(|config| Peer::new(config, seed)).collect(),
            by_connection: HashMap::new(),
            by_listener: HashMap::new(),
            busy: Vec::new(),
            serving: Vec::new(),
            served: Vec::new(),
            timers: BinaryHeap::new(),
            refusals: Refusals::default(),
        };
        routers.with_buffer(buffer)
    }

    /// The same routers with buffers of about this many bytes per connection and direction.
    pub fn with_buffer(mut self, bytes: usize) -> Routers {
        self.buffer = bytes.clamp(*BUFFER.start(), *BUFFER.end());
        self
    }

    /// Number of routers.
    pub fn len(&self) -> usize {
        self.peers.len()
    }

    /// True if there is no router.
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// Starts the session of a router. A session that ends restarts by itself.
    pub fn start(&mut self, now: Instant, peer: usize) {
        let at = &mut self.peers[peer];
        at.session.start(now);
        // The new session must not use a connection of an earlier one.
        at.starts = true;
        self.mark(peer);
    }

    /// Ends a session with a NOTIFICATION (Cease, Administrative Shutdown) and drops waiting routes. The session stays down.
    pub fn stop(&mut self, now: Instant, peer: usize) {
        self.peers[peer].stop(now);
        self.mark(peer);
    }

    /// Ends a session with a NOTIFICATION, if there is a connection (from OpenSent on). It counts as lost and comes back by itself.
    pub fn notify(&mut self, now: Instant, peer: usize, notification: Notification) {
        self.peers[peer].notify(now, notification);
        self.mark(peer);
    }

    /// Restarts a session gracefully (RFC 4724), if there is a connection: it ends with this NOTIFICATION or without a word, and is back
    /// after `away`, with its routes if [`Routers::keep_routes`] says so.
    pub fn restart(&mut self, now: Instant, peer: usize, away: Duration, notification: Option<Notification>) {
        self.peers[peer].restart(now, away, notification);
        self.mark(peer);
    }

    /// A session.
    pub fn session(&self, peer: usize) -> &Session {
        &self.peers[peer].session
    }

    /// True if the session is Established.
    pub fn established(&self, peer: usize) -> bool {
        self.peers[peer].session.state() == State::Established
    }

    /// True if the session is Idle, its last message is sent and its connection is gone.
    pub fn idle(&self, peer: usize) -> bool {
        self.peers[peer].session.state() == State::Idle && self.peers[peer].connection.is_none()
    }

    /// Number of times that an established session ended without [`Routers::stop`], and the last cause.
    pub fn losses(&self, peer: usize) -> (u32, Option<&Cause>) {
        let at = &self.peers[peer];
        (at.losses, at.lost_by.as_ref())
    }

    /// `cause` as text, with the address from which a connection was refused since the session was up, if there was one.
    pub fn explain(&self, peer: usize, cause: Option<&Cause>) -> Option<String> {
        let at = &self.peers[peer];
        let dut = at.config().dut;
        let hint =
            |from: IpAddr| format!("a connection from {from} was refused; the router must use {dut} (update-source)");
        let refused = at.stranger.map(hint);
        match (cause, refused) {
            (Some(cause), Some(refused)) => Some(format!("{cause}; {refused}")),
            (cause, refused) => refused.or(cause.map(ToString::to_string)),
        }
    }

    /// Routes that a router advertises; they are sent while the session is Established.
    pub fn adj_rib_out(&mut self, peer: usize) -> &mut AdjRibOut {
        self.mark(peer);
        &mut self.peers[peer].adj_rib_out
    }

    /// Sets whether a router advertises its routes again when a session that ended by itself is back. The default is not to.
    pub fn keep_routes(&mut self, peer: usize, keep: bool) {
        self.peers[peer].keeps_routes = keep;
    }

    /// Requests all routes of `family` from the DUT again (RFC 2918); false if route refresh is not negotiated.
    pub fn request_refresh(&mut self, peer: usize, family: AfiSafi) -> bool {
        self.mark(peer);
        self.peers[peer].session.request_refresh(family)
    }

    /// Counts of routes and messages that a router has sent.
    pub fn advertised(&self, peer: usize) -> Sent {
        self.peers[peer].adj_rib_out.progress()
    }

    /// The last periods, 64 at most, in which a router was sending routes, the oldest first: when it had some to send, and when the DUT's
    /// TCP had acknowledged all of them. The current one is not included.
    pub fn sending(&self, peer: usize) -> impl DoubleEndedIterator<Item = (Instant, Instant)> + ExactSizeIterator + '_ {
        self.peers[peer].sending.periods()
    }

    /// Clears all expectations and advertised routes.
    pub fn clear_tables(&mut self, peer: usize) {
        let at = &mut self.peers[peer];
        (at.adj_rib_in, at.losses, at.lost_by) = (AdjRibIn::new(), 0, None);
        at.adj_rib_out.clear();
    }

    /// Routes that a router receives.
    pub fn adj_rib_in(&self, peer: usize) -> &AdjRibIn {
        &self.peers[peer].adj_rib_in
    }

    /// Like [`Routers::adj_rib_in`], but mutable, for setting expectations.
    pub fn adj_rib_in_mut(&mut self, peer: usize) -> &mut AdjRibIn {
        &mut self.peers[peer].adj_rib_in
    }

    /// True if the DUT's TCP has acknowledged all UPDATEs of a router. The DUT may not have read them yet. False from the loss of a session
    /// until it is up again.
    pub fn all_acknowledged(&self, peer: usize) -> bool {
        let at = &self.peers[peer];
        !at.broken && at.adj_rib_out.is_empty() && at.unacknowledged == 0
    }

    /// Bytes of UPDATEs that the DUT's TCP is known to have acknowledged.
    pub fn acknowledged_bytes(&self, peer: usize) -> u64 {
        let at = &self.peers[peer];
        at.adj_rib_out.progress().bytes.saturating_sub(at.unacknowledged as u64)
    }

    /// Delays of a router's messages up to `now`, by the side that caused them.
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
            self.by_listener.insert((tcp.listen(*address, bgp::PORT), *dut), index);
            peer.forget_connections();
        }
    }

    /// Handles connections that changed. Processes received messages immediately, with their time of arrival; answers wait for
    /// the next poll.
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

    /// Does due work and sends waiting messages, with at most about `quota` bytes of UPDATEs per router.
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

    /// Handles a connection to a router. Only the DUT of one of its sessions may open it.
    fn take_connection(&mut self, now: Instant, listener: ListenerId, connection: ConnectionId, tcp: &mut TcpStack) {
        let ends = tcp.ends(connection).map(|(own, remote)| (own.ip(), remote.ip()));
        let Some(&peer) = ends.and_then(|(_, from)| self.by_listener.get(&(listener, from))) else {
            if let Some((own, from)) = ends {
                let is_meant =
                    |peer: &&mut Peer| peer.config().address == own && peer.session.state() != State::Established;
                self.peers.iter_mut().filter(is_meant).for_each(|peer| peer.stranger = Some(from));
            }
            tcp.abort(connection);
            tcp.remove(connection);
            return;
        };
        let before = self.peers[peer].connections();
        self.peers[peer].take_connection(now, connection, tcp);
        self.follow(peer, before);
        self.mark(peer);
    }

    /// Updates the index after the connections of a peer changed from `before`.
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
        if !at.adj_rib_out.is_empty() {
            at.sending.begin(now);
        }
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

/// Address and port at which a DUT with this address listens.
pub(crate) fn port_of(address: IpAddr) -> std::net::SocketAddr {
    std::net::SocketAddr::new(address, bgp::PORT)
}
