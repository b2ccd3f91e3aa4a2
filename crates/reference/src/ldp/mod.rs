//! LDP of the device (RFC 5036): downstream unsolicited, independent control, liberal retention. It receives datagrams, TCP packets and
//! instants, and returns packets and deadlines.
//!
//! Every prefix with an OSPF route gets a label of its own from [`LABELS`]. All peers learn it immediately, and the prefix keeps it while
//! it has a route. The loopback address has implicit null. `session.rs` has one session, `labels.rs` the device's labels.

mod labels;
mod session;

use crate::ospf::spf::Net4;
use drophammer_emulation::tcp::{ConnState, TcpConfig, TcpStack};
use drophammer_model::Instant;
use drophammer_wire::ldp::pdu::DEFAULT_MAX;
use drophammer_wire::ldp::status::{Status, code};
use drophammer_wire::ldp::{self, Hello, LdpId, Message, PduWriter, parse_hello};
use labels::OwnLabels;
pub use labels::{IMPLICIT_NULL, LABELS};
use session::{Session, Work};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Time between hellos, and how long they hold, in seconds.
const HELLO_INTERVAL: u64 = 5;
const HELLO_HOLD: u16 = 15;
/// Time between two attempts to connect; the second one after a session was rejected (section 2.5.3).
const RETRY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(15)];
/// Maximum number of peers; hellos of more are ignored.
const MOST_PEERS: usize = 64;

/// An interface with LDP.
struct Link {
    interface: usize,
    address: Ipv4Addr,
    down: bool,
    hello_at: Instant,
}

/// A hello adjacency.
struct Adjacency {
    interface: usize,
    peer: LdpId,
    source: Ipv4Addr,
    /// `None` for never.
    expires: Option<Instant>,
}

/// An LSR from which hellos have come.
struct Peer {
    id: LdpId,
    transport: Ipv4Addr,
    session: Option<Session>,
    retry_at: Instant,
}

/// A packet to be sent.
pub enum Sent {
    /// A hello: interface, payload of UDP.
    Hello(usize, Vec<u8>),
    /// An IP packet of a session, which follows the routes.
    Tcp(Vec<u8>),
}

/// The LSR.
pub struct Ldp {
    own: Ipv4Addr,
    links: Vec<Link>,
    adjacencies: Vec<Adjacency>,
    peers: Vec<Peer>,
    stack: TcpStack,
    labels: OwnLabels,
    hello_id: u32,
    /// Prefixes for which a label of a peer has changed.
    changed: Vec<Net4>,
    /// Sessions established so far.
    pub established: u64,
}

impl Ldp {
    /// An LSR with these interfaces and their addresses. `reserved` are labels that it may not give out.
    pub fn new(own: Ipv4Addr, links: &[(usize, Ipv4Addr)], mtu: usize, seed: u64, reserved: &[u32]) -> Ldp {
        let mut stack = TcpStack::new(TcpConfig::new(mtu, seed ^ 0x6c64_7000));
        stack.add_host(own.into());
        stack.listen(own.into(), ldp::PORT);
        let link = |(interface, address): &(usize, Ipv4Addr)| Link {
            interface: *interface,
            address: *address,
            down: false,
            hello_at: Instant(0),
        };
        Ldp {
            own,
            links: links.iter().map(link).collect(),
            adjacencies: Vec::new(),
            peers: Vec::new(),
            stack,
            labels: OwnLabels::new((own, 32), reserved),
            hello_id: 0,
            changed: Vec::new(),
            established: 0,
        }
    }

    /// Number of operational sessions.
    pub fn sessions(&self) -> usize {
        self.sessions_up().count()
    }

    fn sessions_up(&self) -> impl Iterator<Item = (&Peer, &Session)> {
        self.peers.iter().filter_map(|peer| Some((peer, peer.session.as_ref().filter(|s| s.is_up())?)))
    }

    /// Number of labels that peers have advertised.
    pub fn remote_labels(&self) -> usize {
        self.sessions_up().map(|(_, session)| session.remote.len()).sum()
    }

    /// Number of labels that the device advertises, without the label of its loopback address.
    pub fn own_labels(&self) -> usize {
        self.labels.len()
    }

    /// Advertises implicit null for every n-th prefix from now on, which is a fault; 0 for none.
    pub fn set_implicit_null_every(&mut self, every: u64) {
        self.labels.set_implicit_null_every(every);
    }

    /// Number of prefixes with implicit null by that fault.
    pub fn nulls(&self) -> u64 {
        self.labels.nulls()
    }

    /// Takes the prefixes for which a label of a peer has changed.
    pub fn take_changed(&mut self) -> Vec<Net4> {
        std::mem::take(&mut self.changed)
    }

    /// The label that the router with this address on a link has advertised for a prefix.
    pub fn remote_label(&self, net: Net4, hop: Ipv4Addr) -> Option<u32> {
        let is_there = |peer: &Peer| self.adjacencies.iter().any(|a| a.peer == peer.id && a.source == hop);
        let mut sessions = self.sessions_up();
        let (_, session) = sessions.find(|(peer, s)| s.addresses.contains(&hop) || is_there(peer))?;
        session.remote.get(&net).copied()
    }

    /// The prefix has a route, or has none. Returns the device's label for it, which it may just have lost. `None` if there are no labels
    /// left.
    pub fn set_fec(&mut self, net: Net4, has_route: bool) -> Option<u32> {
        let before = self.labels.get(&net);
        let work = match (has_route, before) {
            (true, None) => Work::Map(self.labels.allocate(net).map(|_| net)?),
            (false, Some(label)) => {
                self.labels.free(&net);
                Work::Withdraw(net, label)
            }
            _ => return before,
        };
        for session in self.peers.iter_mut().filter_map(|peer| peer.session.as_mut()).filter(|s| s.is_up()) {
            session.work.push_back(work.clone());
        }
        self.labels.get(&net).or(before)
    }

    /// The link of an interface goes down or comes up.
    pub fn set_link(&mut self, now: Instant, interface: usize, up: bool) {
        for link in self.links.iter_mut().filter(|link| link.interface == interface) {
            (link.down, link.hello_at) = (!up, now);
        }
        if !up {
            self.adjacencies.retain(|adjacency| adjacency.interface != interface);
        }
        self.work(now);
    }

    /// Takes a datagram to the port of hellos (section 2.5.5).
    pub fn hello(&mut self, now: Instant, interface: usize, source: Ipv4Addr, datagram: &[u8]) {
        let Some(link) = self.links.iter_mut().find(|link| link.interface == interface && !link.down) else { return };
        let Ok((id, hello)) = parse_hello(datagram) else { return };
        if hello.targeted || id.lsr == self.own {
            return;
        }
        let proposal = if hello.hold == 0 { HELLO_HOLD } else { hello.hold.min(HELLO_HOLD) };
        let expires = Some(now + Duration::from_secs(proposal.into()));
        let transport = hello.ipv4_transport.unwrap_or(source);
        let known = self.adjacencies.iter().position(|a| a.interface == interface && a.peer == id);
        if let Some(known) = known {
            (self.adjacencies[known].expires, self.adjacencies[known].source) = (expires, source);
        } else if self.adjacencies.len() < MOST_PEERS {
            // The peer must know this LSR before it can connect.
            link.hello_at = now;
            self.adjacencies.push(Adjacency { interface, peer: id, source, expires });
        } else {
            return;
        }
        match self.peers.iter_mut().find(|peer| peer.id == id) {
            Some(known) if known.session.is_none() => known.transport = transport,
            Some(_) => {}
            None => self.peers.push(Peer { id, transport, session: None, retry_at: now }),
        }
        self.work(now);
    }

    /// Takes a TCP packet for the loopback address.
    pub fn receive(&mut self, now: Instant, packet: &[u8]) {
        if self.stack.receive(now, packet) {
            self.work(now);
        }
    }

    /// Does everything that is due until `now`; passes each packet to `out`.
    pub fn poll(&mut self, now: Instant, out: &mut dyn FnMut(Sent)) {
        self.work(now);
        for at in 0..self.links.len() {
            if !self.links[at].down && self.links[at].hello_at <= now {
                self.links[at].hello_at = now + Duration::from_secs(HELLO_INTERVAL);
                let hello = self.say_hello();
                out(Sent::Hello(self.links[at].interface, hello));
            }
        }
        // After TCP has sent, it may have room for more data.
        for _ in 0..64 {
            self.stack.poll(now, &mut |packet| out(Sent::Tcp(packet.to_vec())));
            self.work(now);
            if self.stack.next_deadline().is_none_or(|at| at > now) {
                return;
            }
        }
    }

    fn say_hello(&mut self) -> Vec<u8> {
        self.hello_id = self.hello_id.wrapping_add(1);
        let mut datagram = [0; 64];
        let mut pdus = PduWriter::new(&mut datagram, LdpId::platform(self.own), DEFAULT_MAX);
        pdus.push(self.hello_id, &Message::Hello(Hello::link(HELLO_HOLD, self.own)));
        let length = pdus.written();
        datagram[..length].to_vec()
    }

    /// The next time when [`Ldp::poll`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        let hellos = self.links.iter().filter(|link| !link.down).map(|link| link.hello_at);
        let adjacencies = self.adjacencies.iter().filter_map(|a| a.expires);
        let sessions = self.peers.iter().filter_map(|peer| match &peer.session {
            Some(session) => Some(session.next_deadline()),
            None => (self.connects(peer) && self.is_adjacent(peer)).then_some(peer.retry_at),
        });
        hellos.chain(adjacencies).chain(sessions).chain(self.stack.next_deadline()).min()
    }

    /// The side with the larger transport address opens the connection (section 2.5.2).
    fn connects(&self, peer: &Peer) -> bool {
        self.own > peer.transport
    }

    fn is_adjacent(&self, peer: &Peer) -> bool {
        self.adjacencies.iter().any(|a| a.peer == peer.id)
    }

    /// Does everything that can be done at `now`.
    fn work(&mut self, now: Instant) {
        self.adjacencies.retain(|a| a.expires.is_none_or(|at| at > now));
        while let Some((_, connection)) = self.stack.accept_any() {
            let from = self.stack.ends(connection).map(|(_, remote)| remote.ip());
            let own = self.own;
            let wanted =
                self.peers.iter_mut().find(|peer| from == Some(IpAddr::V4(peer.transport)) && own < peer.transport);
            match wanted.filter(|peer| peer.session.is_none()) {
                Some(peer) => peer.session = Some(Session::new(now, connection, peer.id, false)),
                None => {
                    self.stack.abort(connection);
                    self.stack.remove(connection);
                }
            }
        }
        let mut ready = Vec::new();
        self.stack.take_ready(&mut ready);
        for at in 0..self.peers.len() {
            self.serve(now, at);
        }
        self.peers.retain(|peer| peer.session.is_some() || self.adjacencies.iter().any(|a| a.peer == peer.id));
    }

    /// Opens, reads and writes the session of a peer, or ends it.
    fn serve(&mut self, now: Instant, at: usize) {
        let adjacent = self.is_adjacent(&self.peers[at]);
        let connects = self.connects(&self.peers[at]);
        let peer = &mut self.peers[at];
        let Some(session) = &mut peer.session else {
            if connects && adjacent && peer.retry_at <= now {
                let remote = SocketAddr::new(peer.transport.into(), ldp::PORT);
                let connection = self.stack.connect(now, self.own.into(), remote);
                peer.session = Some(Session::new(now, connection, peer.id, true));
            }
            return;
        };
        if !adjacent {
            return self.end(now, at, Some(Status::new(code::HOLD_TIMER_EXPIRED)));
        }
        let was_up = session.is_up();
        let read = session.read(now, self.own, &mut self.stack, &mut self.changed, &self.labels);
        if session.is_up() && !was_up {
            self.established += 1;
            let addresses: Vec<_> =
                self.links.iter().map(|link| link.address.octets()).chain([self.own.octets()]).collect();
            session.work.push_back(Work::Addresses(addresses));
            session.work.extend(self.labels.nets().map(Work::Map));
        }
        if let Err(status) = read {
            return self.end(now, at, status);
        }
        match self.stack.state(session.connection) {
            ConnState::Connecting => return,
            ConnState::Established => {}
            ConnState::PeerClosed | ConnState::Closed(_) => return self.end(now, at, None),
        }
        if let Err(status) = session.run_timers(now) {
            return self.end(now, at, Some(status));
        }
        session.write(now, self.own, &mut self.stack, &self.labels);
    }

    /// Ends the session of a peer, with a notification if there is one.
    fn end(&mut self, now: Instant, at: usize, status: Option<Status>) {
        let peer = &mut self.peers[at];
        let Some(mut session) = peer.session.take() else { return };
        let rejected = !session.is_up() && session.was_notified();
        peer.retry_at = now + RETRY[usize::from(rejected)];
        if let Some(status) = status {
            session.work.clear();
            session.work.push_back(Work::Notify(status));
            session.write(now, self.own, &mut self.stack, &self.labels);
        }
        self.stack.close(session.connection);
        self.stack.remove(session.connection);
        let mut lost: BTreeMap<Net4, u32> = std::mem::take(&mut session.remote);
        self.changed.extend(std::mem::take(&mut lost).into_keys());
    }
}
