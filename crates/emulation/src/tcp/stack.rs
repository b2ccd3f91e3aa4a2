//! The stack: hosts, listeners and connections, and the schedule of their work.

use super::connection::{Connection, Holder};
use super::host::{Device, Host, Link, to_inner};
use super::protection::Protections;
use super::segment::{Segment, Tuple};
use super::{CloseReason, ConnState, ConnectionId, ListenerId, TcpConfig};
use drophammer_model::Instant;
use smoltcp::iface::SocketSet;
use smoltcp::wire::IpAddress;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// Maximum number of answers (acknowledgments of gaps, RSTs) that are waiting for the next poll; more are dropped.
const MOST_REPLIES: usize = 4096;

/// Answers to received packets, which wait for the next poll.
#[derive(Default)]
struct Replies {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Replies {
    fn push(&mut self, packet: &[u8]) {
        if self.ends.len() < MOST_REPLIES {
            self.bytes.extend_from_slice(packet);
            self.ends.push(self.bytes.len());
        }
    }

    fn flush(&mut self, out: &mut dyn FnMut(&[u8])) {
        let mut start = 0;
        for end in self.ends.drain(..) {
            out(&self.bytes[start..end]);
            start = end;
        }
        self.bytes.clear();
    }
}

pub(super) struct Listener {
    pub local: IpAddr,
    pub port: u16,
    /// Number of connections that are half open or are waiting to be accepted.
    pub pending: usize,
}

#[derive(Default)]
pub(super) struct Slot {
    generation: u32,
    pub connection: Option<Box<Connection>>,
}

/// TCP behind one tester port. See [the module](super).
pub struct TcpStack {
    pub(super) config: TcpConfig,
    pub(super) link: Link,
    pub(super) protections: Protections,
    pub(super) now: Instant,
    pub(super) hosts: Vec<Host>,
    pub(super) by_address: HashMap<IpAddr, usize>,
    pub(super) slots: Vec<Slot>,
    pub(super) free: Vec<u32>,
    pub(super) by_tuple: HashMap<Tuple, u32>,
    pub(super) listeners: Vec<Listener>,
    pub(super) by_port: HashMap<(IpAddr, u16), ListenerId>,
    pub(super) accepted: VecDeque<(ListenerId, ConnectionId)>,
    /// Connections that may have segments to send.
    dirty: Vec<u32>,
    serving: Vec<u32>,
    pub(super) ready: Vec<ConnectionId>,
    deadlines: BinaryHeap<Reverse<(Instant, ConnectionId)>>,
    replies: Replies,
    /// An empty socket set: packets for no connection are answered with RST.
    nobody: SocketSet<'static>,
    scratch: Vec<u8>,
    segments_received: u64,
    pub(super) stage: Vec<u8>,
}

impl TcpStack {
    /// A stack without hosts. An MTU outside 256 to 65,535 bytes is replaced by the nearest valid value.
    pub fn new(config: TcpConfig) -> TcpStack {
        let mtu = config.mtu.clamp(256, 65_535);
        TcpStack {
            link: Link { mtu, verify_checksums: config.verify_checksums },
            protections: Protections::default(),
            config,
            now: Instant(0),
            hosts: Vec::new(),
            by_address: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            by_tuple: HashMap::new(),
            listeners: Vec::new(),
            by_port: HashMap::new(),
            accepted: VecDeque::new(),
            dirty: Vec::new(),
            serving: Vec::new(),
            ready: Vec::new(),
            deadlines: BinaryHeap::new(),
            replies: Replies::default(),
            nobody: SocketSet::new(Vec::new()),
            scratch: vec![0; mtu],
            segments_received: 0,
            stage: Vec::new(),
        }
    }

    /// Adds a local address. Ignores an address that already exists or is not a unicast address.
    pub fn add_host(&mut self, address: IpAddr) {
        let broadcast = matches!(address, IpAddr::V4(a) if a.is_broadcast());
        if address.is_multicast() || address.is_unspecified() || broadcast || self.by_address.contains_key(&address) {
            return;
        }
        self.by_address.insert(address, self.hosts.len());
        self.hosts.push(Host::new(address, self.config.seed, self.link));
    }

    /// Local addresses, in order of addition.
    pub fn hosts(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.hosts.iter().map(|h| h.address)
    }

    /// Sets the buffer sizes, in bytes, of connections that begin from now on.
    pub fn set_buffers(&mut self, send: usize, receive: usize) {
        (self.config.send_buffer, self.config.receive_buffer) = (send, receive);
    }

    /// Handles an IP packet that arrived at `now` (bytes after its end are ignored); answers wait for
    /// [`TcpStack::poll`]. False if the packet is not a whole TCP segment for a host of this stack.
    pub fn receive(&mut self, now: Instant, packet: &[u8]) -> bool {
        self.now = self.now.max(now);
        let Some(segment) = Segment::read(packet) else { return false };
        let Some(&host) = self.by_address.get(&segment.tuple.local) else { return false };
        self.segments_received += 1;
        if self.protections.is_empty() {
            self.take(host, &segment);
            return true;
        }
        let mut protections = std::mem::take(&mut self.protections);
        if let Some(packet) = protections.verify((segment.tuple.local, segment.tuple.remote), segment.packet) {
            self.take(host, &Segment { packet, ..segment });
        }
        self.protections = protections;
        true
    }

    /// Handles a segment for a host of this stack.
    fn take(&mut self, host: usize, segment: &Segment<'_>) {
        let known = self.by_tuple.get(&segment.tuple).copied();
        if let Some(slot) = known.filter(|slot| !(segment.opens && self.gives_way(*slot))) {
            self.deliver(slot, segment);
            return;
        }
        let ends = (segment.tuple.local, segment.tuple.local_port);
        let listener = self.by_port.get(&ends).copied().filter(|_| segment.opens);
        if let Some(listener) = listener {
            // If there is no room, the peer will try again.
            if let Some(slot) = self.embryo(listener, host, segment.tuple) {
                self.deliver(slot, segment);
            }
            return;
        }
        let replies = &mut self.replies;
        let mut device = Device {
            link: self.link,
            arrived: Some(segment.packet),
            scratch: &mut self.scratch,
            out: &mut |packet| replies.push(packet),
            budget: 1,
        };
        self.hosts[host].interface.poll_ingress_single(to_inner(self.now), &mut device, &mut self.nobody);
    }

    fn gives_way(&self, slot: u32) -> bool {
        self.slots[slot as usize].connection.as_ref().is_none_or(|c| c.may_be_replaced())
    }

    /// Creates a connection for a segment that opens one, if the listener has room.
    fn embryo(&mut self, id: ListenerId, host: usize, tuple: Tuple) -> Option<u32> {
        let listener = self.listeners.get_mut(id.0 as usize)?;
        if listener.pending >= self.config.backlog {
            return None;
        }
        listener.pending += 1;
        let connection = self.insert(tuple, host, Holder::Embryo(id));
        self.by_tuple.insert(tuple, connection.slot);
        let socket = self.get_mut(connection)?.socket_mut();
        // The socket is closed and the port is not 0, so listening succeeds.
        let _ = socket.listen((IpAddress::from(tuple.local), tuple.local_port));
        Some(connection.slot)
    }

    fn deliver(&mut self, slot: u32, segment: &Segment<'_>) {
        let Some(connection) = &mut self.slots[slot as usize].connection else { return };
        let replies = &mut self.replies;
        let mut device = Device {
            link: self.link,
            arrived: Some(segment.packet),
            scratch: &mut self.scratch,
            out: &mut |packet| replies.push(packet),
            budget: 1,
        };
        let interface = &mut self.hosts[connection.host].interface;
        interface.poll_ingress_single(to_inner(self.now), &mut device, &mut connection.sockets);
        connection.heard(self.now);
        connection.observe(segment.reset);
        self.touch(slot);
        self.mark_ready(slot);
        self.settle(slot);
    }

    /// Sends due and waiting segments. Gives up peers that have been silent for too long.
    pub fn poll(&mut self, now: Instant, out: &mut dyn FnMut(&[u8])) {
        self.poll_some(now, usize::MAX, out);
    }

    /// Like [`TcpStack::poll`], but bounded, so that it does not flood the queue of a port: stops after `limit` packets
    /// or slightly more. The next call, which is due immediately, continues at that point.
    pub fn poll_some(&mut self, now: Instant, limit: usize, out: &mut dyn FnMut(&[u8])) {
        self.now = self.now.max(now);
        let protections = &mut self.protections;
        self.replies.flush(&mut |packet| protections.send(packet, out));
        while let Some(Reverse((_, id))) = self.deadlines.peek().filter(|Reverse((at, _))| *at <= self.now) {
            let (id, at) = (*id, self.deadlines.pop().map(|Reverse((at, _))| at));
            if let Some(connection) = self.get_mut(id).filter(|c| c.scheduled == at) {
                connection.scheduled = None;
                self.touch(id.slot);
            }
        }
        let mut budget = limit;
        let mut serving = std::mem::replace(&mut self.dirty, std::mem::take(&mut self.serving));
        let mut waiting = serving.drain(..);
        while budget > 0
            && let Some(slot) = waiting.next()
        {
            budget = self.serve(slot, budget, out);
        }
        // Connections that were served go to the end of the queue.
        let again = self.dirty.len();
        self.dirty.extend(waiting);
        self.dirty.rotate_left(again);
        self.serving = serving;
    }

    /// Sends up to `budget` packets of a connection; returns the rest of the budget.
    fn serve(&mut self, slot: u32, mut budget: usize, out: &mut dyn FnMut(&[u8])) -> usize {
        let Slot { generation, connection } = &mut self.slots[slot as usize];
        let Some(connection) = connection.as_mut().filter(|c| c.dirty) else { return budget };
        connection.dirty = false;
        let mut changed = false;
        if connection.gives_up_at(self.now, &self.config).is_some_and(|at| at <= self.now) {
            connection.abort(CloseReason::TimedOut);
            changed = true;
        }
        if let Some(host) = self.hosts.get_mut(connection.host) {
            let mut sent = connection.sent;
            let protections = &mut self.protections;
            let mut noted = |packet: &[u8]| {
                sent.note(packet);
                protections.send(packet, out);
            };
            let scratch = &mut self.scratch;
            let mut device = Device { link: self.link, arrived: None, scratch, out: &mut noted, budget };
            let now = to_inner(self.now);
            while host.interface.poll_egress(now, &mut device, &mut connection.sockets)
                == smoltcp::iface::PollResult::SocketStateChanged
            {}
            budget = device.budget;
            connection.sent = sent;
            changed |= connection.observe(false);
            let wanted = host.poll_at(self.now, &connection.sockets);
            let gives_up = connection.gives_up_at(self.now, &self.config);
            let deadline = [wanted, gives_up].into_iter().flatten().min();
            if let Some(at) = deadline.filter(|at| connection.scheduled.is_none_or(|s| *at < s)) {
                connection.scheduled = Some(at);
                self.deadlines.push(Reverse((at, ConnectionId { slot, generation: *generation })));
            }
        }
        if changed {
            self.mark_ready(slot);
        }
        if budget == 0 {
            // The connection may have more to send.
            self.touch(slot);
        }
        self.settle(slot);
        budget
    }

    /// The time when [`TcpStack::poll`] must be called again; `Instant(0)` for now. The call may find nothing to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        if !self.dirty.is_empty() || !self.replies.ends.is_empty() {
            return Some(Instant(0));
        }
        self.deadlines.peek().map(|Reverse((at, _))| *at)
    }

    /// Number of segments received for hosts of this stack.
    pub fn segments_received(&self) -> u64 {
        self.segments_received
    }

    /// True if there are connections to accept, or connections that changed ([`TcpStack::take_ready`]).
    pub fn has_news(&self) -> bool {
        !self.accepted.is_empty() || !self.ready.is_empty()
    }

    /// Address and port of a listener.
    pub fn listener(&self, id: ListenerId) -> Option<SocketAddr> {
        let listener = self.listeners.get(id.0 as usize)?;
        Some((listener.local, listener.port).into())
    }

    pub(super) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        let slot = self.slots.get(id.slot as usize)?;
        slot.connection.as_deref().filter(|c| slot.generation == id.generation && c.holder == Holder::User)
    }

    pub(super) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        slot.connection.as_deref_mut().filter(|_| slot.generation == id.generation)
    }

    pub(super) fn insert(&mut self, tuple: Tuple, host: usize, holder: Holder) -> ConnectionId {
        let connection = Box::new(Connection::new(tuple, host, holder, &self.config));
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let Slot { generation, connection: place } = &mut self.slots[slot as usize];
        *place = Some(connection);
        ConnectionId { slot, generation: *generation }
    }

    /// Schedules a connection that may have segments to send.
    pub(super) fn touch(&mut self, slot: u32) {
        if let Some(connection) = &mut self.slots[slot as usize].connection
            && !std::mem::replace(&mut connection.dirty, true)
        {
            self.dirty.push(slot);
        }
    }

    /// Adds a connection to the list for the user.
    pub(super) fn mark_ready(&mut self, slot: u32) {
        let Slot { generation, connection } = &mut self.slots[slot as usize];
        if let Some(connection) = connection
            && connection.holder == Holder::User
            && !std::mem::replace(&mut connection.ready, true)
        {
            self.ready.push(ConnectionId { slot, generation: *generation });
        }
    }

    /// After a change of state: passes an established connection to its listener's queue, and drops a closed connection
    /// without a user.
    pub(super) fn settle(&mut self, slot: u32) {
        let Slot { generation, connection } = &mut self.slots[slot as usize];
        let Some(c) = connection else { return };
        let id = ConnectionId { slot, generation: *generation };
        // If the peer resets a handshake, smoltcp returns the socket to listening.
        let over = c.is_over() || c.socket().is_listening();
        if let Holder::Embryo(listener) = c.holder
            && matches!(c.state(), ConnState::Established | ConnState::PeerClosed)
        {
            c.holder = Holder::Queued(listener);
            self.accepted.push_back((listener, id));
        }
        if !over {
            return;
        }
        let (tuple, holder) = (c.tuple, c.holder);
        if self.by_tuple.get(&tuple) == Some(&slot) {
            self.by_tuple.remove(&tuple);
        }
        if let Holder::Embryo(listener) = holder
            && let Some(listener) = self.listeners.get_mut(listener.0 as usize)
        {
            listener.pending -= 1;
        }
        if matches!(holder, Holder::Embryo(_) | Holder::Nobody) {
            let slot_memory = &mut self.slots[slot as usize];
            *slot_memory = Slot { generation: slot_memory.generation.wrapping_add(1), connection: None };
            self.free.push(slot);
        }
    }
}

/// The connection with the ID `id`.
pub(super) fn slot_of(slots: &mut [Slot], id: ConnectionId) -> Option<&mut Connection> {
    let slot = slots.get_mut(id.slot as usize)?;
    slot.connection.as_deref_mut().filter(|c| slot.generation == id.generation && c.holder == Holder::User)
}
