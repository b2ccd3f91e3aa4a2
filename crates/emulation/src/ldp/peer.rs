//! A neighbour: its hello adjacency, its session, and the labels of both sides.

use super::bindings::Bindings;
use super::config::LsrConfig;
use super::counters::Counters;
use super::session::{Cause, Event, Outbox, Session, State};
use crate::expectation::{Bitmap, Keys};
use crate::tcp::{CloseReason, ConnState, ConnectionId, TcpStack};
use drophammer_model::Instant;
use drophammer_wire::ldp::status::{Status, code};
use drophammer_wire::ldp::{self, Addresses, FecElement, Fecs, Hello, LdpId, Message, PduWriter, PrefixFec, kind};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Maximum number of a peer's addresses that are held.
pub const MOST_ADDRESSES: usize = 64;
/// Time between two attempts to connect. Short, so that tests need not wait.
const RETRY: Duration = Duration::from_secs(1);
/// Smallest and largest delay after a rejected Initialization (RFC 5036 section 2.5.3).
const BACKOFF: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(120)];

/// Labels to be sent to a peer: FECs of a range, from `next` to before `end`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub what: Action,
    pub range: usize,
    pub next: u32,
    pub end: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Map,
    Withdraw,
    Release,
}

/// State that all peers of an LSR share.
pub(super) struct Shared {
    pub config: LsrConfig,
    /// The device's own address, from which hellos come.
    pub address: Ipv4Addr,
    /// Advertised FECs of each range.
    pub advertised: Vec<Bitmap>,
    pub counters: Counters,
}

/// A neighbour.
pub struct Peer {
    id: LdpId,
    transport: Ipv4Addr,
    /// Configuration sequence number of its last hello.
    sequence: Option<u32>,
    /// Expiry of its adjacency; `Some(None)` for never.
    adjacency: Option<Option<Instant>>,
    /// The agreed hold time of hellos, in seconds; 65535 for ever.
    hold: u16,
    /// A command wants the connection to end.
    stopped: bool,
    pub(super) connection: Option<ConnectionId>,
    session: Option<Session>,
    /// Time of the next attempt to connect; `None` to connect now.
    retry: Option<Instant>,
    backoff: Duration,
    up_at: Option<Instant>,
    ended: Option<(Instant, Cause)>,
    bindings: Bindings,
    addresses: Vec<IpAddr>,
    pub(super) work: VecDeque<Work>,
    /// True if it has something to do now.
    pub(super) busy: bool,
}

impl Peer {
    pub(super) fn new(now: Instant, id: LdpId, config: &LsrConfig) -> Peer {
        Peer {
            id,
            transport: id.lsr,
            sequence: None,
            adjacency: None,
            hold: u16::MAX,
            stopped: false,
            connection: None,
            session: None,
            retry: None,
            backoff: Duration::ZERO,
            up_at: None,
            ended: None,
            bindings: Bindings::new(now, &config.expected),
            addresses: Vec::new(),
            work: VecDeque::new(),
            busy: false,
        }
    }

    /// Its LDP identifier.
    pub fn id(&self) -> LdpId {
        self.id
    }

    /// Its transport address.
    pub fn transport(&self) -> Ipv4Addr {
        self.transport
    }

    /// True if its hellos arrive.
    pub fn is_adjacent(&self) -> bool {
        self.adjacency.is_some()
    }

    /// Its session, if there is a connection.
    pub fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// True if the session is Operational.
    pub fn is_up(&self) -> bool {
        self.up_at.is_some()
    }

    /// Since when the session has been Operational.
    pub fn up_at(&self) -> Option<Instant> {
        self.up_at
    }

    /// When and why the last session or attempt ended.
    pub fn ended(&self) -> Option<(Instant, Cause)> {
        self.ended
    }

    /// The labels that it has advertised.
    pub fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// Its interface addresses, at most [`MOST_ADDRESSES`].
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// True if all labels have been handed to TCP.
    pub fn all_sent(&self) -> bool {
        self.work.is_empty() && self.session.as_ref().is_none_or(|session| !session.wants_write())
    }

    /// The longest interval of hellos to this peer: a third of the hold time (RFC 5036 section 3.5.2.1); `None` if there is no limit.
    pub(super) fn longest_hello_interval(&self) -> Option<Duration> {
        (self.adjacency.is_some() && self.hold != u16::MAX).then(|| Duration::from_secs(self.hold.into()) / 3)
    }

    /// Handles a hello. Returns true if the peer needs a hello now: it may not know this LSR, because it is new or has restarted, or the
    /// hold time has changed.
    pub(super) fn greeted(&mut self, now: Instant, hello: &Hello, source: Ipv4Addr, own_hold: u16) -> bool {
        let proposal = |hold: u16| if hold == 0 { 15 } else { hold };
        let hold = proposal(hello.hold).min(proposal(own_hold));
        let new = self.adjacency.is_none() || self.sequence != hello.sequence || self.hold != hold;
        self.hold = hold;
        self.adjacency = Some((hold != u16::MAX).then(|| now + Duration::from_secs(hold.into())));
        if self.session.is_none() && self.connection.is_none() {
            self.transport = hello.ipv4_transport.unwrap_or(source);
        }
        // A peer with a new configuration may accept what it has rejected (RFC 5036 section 2.5.3).
        if self.sequence != hello.sequence {
            self.sequence = hello.sequence;
            (self.retry, self.backoff) = (None, Duration::ZERO);
        }
        self.busy = true;
        new
    }

    /// The side with the larger transport address opens the connection (RFC 5036 section 2.5.2).
    fn is_active(&self, shared: &Shared) -> bool {
        shared.config.transport_address > self.transport
    }

    /// True if the peer may open a session from this address.
    pub(super) fn awaits(&self, shared: &Shared, id: LdpId, from: IpAddr) -> bool {
        self.id == id && self.adjacency.is_some() && self.transport == from && !self.is_active(shared)
    }

    /// Takes a connection that the peer has opened.
    pub(super) fn accept(&mut self, now: Instant, shared: &Shared, connection: ConnectionId) {
        self.connection = Some(connection);
        self.session = Some(Session::new(now, &shared.config, self.id, false));
        self.busy = true;
    }

    /// Forgets its connections, which were dropped with the TCP stack.
    pub(super) fn forget_connection(&mut self, now: Instant, shared: &mut Shared) {
        self.connection = None;
        if self.session.is_some() {
            self.finish(now, shared, Cause::Connection(CloseReason::Local));
        }
    }

    /// Ends adjacency and session by command.
    pub(super) fn stop(&mut self) {
        (self.adjacency, self.retry, self.backoff) = (None, None, Duration::ZERO);
        (self.stopped, self.busy) = (self.connection.is_some(), true);
    }

    /// Adds messages to those that wait to be sent.
    pub(super) fn say(&mut self, messages: &[Message<'_>]) {
        if let Some(session) = &mut self.session {
            messages.iter().for_each(|message| session.outbox().push(message));
            self.busy = true;
        }
    }

    /// Does all possible work, with at most about `budget` bytes of labels.
    pub(super) fn serve(&mut self, now: Instant, shared: &mut Shared, stack: &mut TcpStack, budget: usize) {
        self.busy = false;
        // Since then, the LSR may have started again, and a hello may have arrived.
        if self.stopped {
            self.end(now, shared, stack, Cause::Sent(Status::new(code::SHUTDOWN)));
        }
        if self.adjacency.flatten().is_some_and(|expires| expires <= now) {
            self.adjacency = None;
            shared.counters.adjacencies_lost += 1;
        }
        if self.adjacency.is_none() {
            if self.connection.is_some() {
                self.end(now, shared, stack, Cause::Sent(Status::new(code::HOLD_TIMER_EXPIRED)));
            }
            return;
        }
        self.connect(now, shared, stack);
        self.read(now, shared, stack);
        if let Some(session) = &mut self.session {
            session.run_timers(now);
            if let Some(cause) = session.ended() {
                self.end(now, shared, stack, cause);
                return;
            }
        }
        self.write(now, shared, stack, budget);
    }

    /// Opens a connection if this side is active, and the session when the connection is established.
    fn connect(&mut self, now: Instant, shared: &mut Shared, stack: &mut TcpStack) {
        let Some(connection) = self.connection else {
            if self.is_active(shared) && self.retry.is_none_or(|retry| retry <= now) {
                let remote = SocketAddr::new(self.transport.into(), ldp::PORT);
                self.connection = Some(stack.connect(now, shared.config.transport_address.into(), remote));
            }
            return;
        };
        if self.session.is_some() {
            return;
        }
        match stack.state(connection) {
            ConnState::Connecting => {}
            ConnState::Established => self.session = Some(Session::new(now, &shared.config, self.id, true)),
            ConnState::PeerClosed => self.end(now, shared, stack, Cause::Connection(CloseReason::Peer)),
            ConnState::Closed(reason) => self.end(now, shared, stack, Cause::Connection(reason)),
        }
    }

    /// Reads received bytes, then checks whether the connection has ended.
    pub(super) fn read(&mut self, now: Instant, shared: &mut Shared, stack: &mut TcpStack) {
        let Peer { session: Some(session), connection: Some(connection), bindings, addresses, .. } = self else {
            return;
        };
        let connection = *connection;
        stack.receive_with(connection, &mut |bytes| {
            session.receive(now, bytes, &mut |event, outbox| {
                handle(now, event, outbox, shared, bindings, addresses);
            })
        });
        if session.state() == State::Operational && self.up_at.is_none() {
            stack.be_patient(connection, session.keepalive());
            self.opened(now, shared);
        }
        let how = match stack.state(connection) {
            ConnState::Connecting | ConnState::Established => return,
            ConnState::PeerClosed => CloseReason::Peer,
            ConnState::Closed(reason) => reason,
        };
        let cause = self.session.as_ref().and_then(Session::ended).unwrap_or(Cause::Connection(how));
        self.end(now, shared, stack, cause);
    }

    /// Advertises all FECs, because the session has become Operational.
    fn opened(&mut self, now: Instant, shared: &mut Shared) {
        self.up_at = Some(now);
        self.backoff = Duration::ZERO;
        shared.counters.sessions_established += 1;
        for (range, advertised) in shared.advertised.iter().enumerate() {
            for index in advertised.numbers() {
                match self.work.back_mut() {
                    Some(last) if last.range == range && last.end == index => last.end += 1,
                    _ => self.work.push_back(Work { what: Action::Map, range, next: index, end: index + 1 }),
                }
            }
        }
    }

    /// Sends waiting messages, then labels.
    fn write(&mut self, now: Instant, shared: &mut Shared, stack: &mut TcpStack, budget: usize) {
        let Peer { session: Some(session), connection: Some(connection), work, bindings, .. } = self else { return };
        if !session.wants_write() && work.is_empty() {
            return;
        }
        let (full, most) = (session.is_full(), budget.max(session.max_pdu().into()));
        let room_before = stack.can_send(*connection);
        let written = stack.send_with(*connection, &mut |room| {
            let end = room.len().min(most);
            session.write(now, &mut room[..end], &mut |pdus, outbox| {
                while let Some(front) = work.front_mut() {
                    if !send(now, front, pdus, outbox, shared, bindings) {
                        break;
                    }
                    work.pop_front();
                }
            })
        });
        let waits = session.wants_write() || !work.is_empty();
        // If there is no room, TCP reports when there is some.
        self.busy = written > 0 && waits && room_before > most || full && !session.is_full();
    }

    /// Ends the session, or the attempt to open one, with a notification if the cause has one. A Shutdown is answered with a Shutdown
    /// (RFC 5036 section 2.5.4).
    fn end(&mut self, now: Instant, shared: &mut Shared, stack: &mut TcpStack, cause: Cause) {
        if let Some(connection) = self.connection.take() {
            let last = match cause {
                Cause::Sent(status) => Some(status),
                Cause::Received(_) if self.is_up() => Some(Status::new(code::SHUTDOWN)),
                _ => None,
            };
            if let (Some(status), Some(session)) = (last, &mut self.session) {
                session.outbox().clear();
                session.outbox().push(&Message::Notification(status));
                if stack.send_with(connection, &mut |room| session.write(now, room, &mut |_, _| {})) > 0 {
                    shared.counters.notified(&status);
                }
                shared.counters.malformed += u64::from(is_malformed(&status));
            }
            stack.close(connection);
            stack.remove(connection);
        }
        self.finish(now, shared, cause);
    }

    fn finish(&mut self, now: Instant, shared: &mut Shared, cause: Cause) {
        let by_command = std::mem::take(&mut self.stopped);
        let delay = match (self.up_at.take(), cause) {
            _ if by_command => Duration::ZERO,
            (Some(_), _) => {
                shared.counters.sessions_lost += 1;
                RETRY
            }
            (None, Cause::Sent(_) | Cause::Received(_)) => {
                shared.counters.sessions_rejected += 1;
                self.backoff = (self.backoff * 2).clamp(BACKOFF[0], BACKOFF[1]);
                self.backoff
            }
            (None, Cause::Connection(_)) => RETRY,
        };
        self.retry = Some(now + delay);
        self.ended = Some((now, cause));
        self.session = None;
        self.work.clear();
        self.addresses.clear();
        self.bindings.lost(now);
    }

    /// When it must be served again; `Instant(0)` for now.
    pub(super) fn next_deadline(&self, shared: &Shared) -> Option<Instant> {
        if self.busy {
            return Some(Instant(0));
        }
        let retry =
            self.retry.filter(|_| self.connection.is_none() && self.adjacency.is_some() && self.is_active(shared));
        let session = self.session.as_ref().map(Session::next_deadline);
        [self.adjacency.flatten(), retry, session].into_iter().flatten().min()
    }
}

/// True if the status says that something received was malformed.
fn is_malformed(status: &Status) -> bool {
    matches!(status.code, code::BAD_LDP_IDENTIFIER..=code::MALFORMED_TLV_VALUE | code::MISSING_MESSAGE_PARAMETERS)
}

/// Handles a message of the peer.
fn handle(
    now: Instant,
    event: Event<'_>,
    outbox: &mut Outbox,
    shared: &mut Shared,
    bindings: &mut Bindings,
    addresses: &mut Vec<IpAddr>,
) {
    let counters = &mut shared.counters;
    let (id, message) = match event {
        Event::Message(id, message) => (id, message),
        Event::Notified(status) => {
            counters.notified(&status);
            counters.malformed += u64::from(is_malformed(&status));
            return;
        }
    };
    match message {
        Message::Notification(status) => counters.notification_received(&status),
        Message::Address(list) => {
            for address in list.iter() {
                if addresses.len() < MOST_ADDRESSES && !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
        }
        Message::AddressWithdraw(list) => list.iter().for_each(|gone| addresses.retain(|address| *address != gone)),
        Message::LabelMapping { fecs, label, .. } => {
            for prefix in fecs.prefixes() {
                counters.mappings_received += 1;
                // RFC 5036 appendix A.1.2: release the label that this one replaces.
                if let Some(before) = bindings.mapped(now, prefix, label) {
                    let fec = PrefixFec::new(prefix);
                    outbox.push(&Message::LabelRelease { fecs: fec.fecs(), label: Some(before) });
                    counters.releases_sent += 1;
                }
            }
        }
        Message::LabelWithdraw { fecs, label } => {
            for fec in fecs.iter() {
                counters.withdraws_received += 1;
                match fec {
                    FecElement::Prefix(prefix) => _ = bindings.removed(now, prefix, label),
                    FecElement::Wildcard => bindings.all_removed(now, label, None),
                    FecElement::PrefixWildcard { ipv6 } => bindings.all_removed(now, label, Some(!ipv6)),
                }
            }
            outbox.push(&Message::LabelRelease { fecs, label });
            counters.releases_sent += fecs.iter().count() as u64;
        }
        Message::LabelRelease { fecs, .. } => counters.releases_received += fecs.iter().count() as u64,
        Message::LabelRequest { fecs } => answer(id, fecs, outbox, shared),
        // The session is Operational. Addresses go before labels (RFC 5036 section 3.5.5.1), and the peer may request labels
        // immediately.
        Message::KeepAlive => {
            let own = [shared.address.octets(), shared.config.transport_address.octets()];
            let distinct = if own[0] == own[1] { 1 } else { 2 };
            outbox.push(&Message::Address(Addresses::ipv4(&own[..distinct])));
        }
        // Requests are answered immediately, so there is nothing to abort. The session handles the other messages.
        Message::LabelAbortRequest { .. } | Message::Hello(_) | Message::Initialization(_) => {}
    }
}

/// Answers a label request: a mapping for each FEC that is advertised, otherwise No Route.
fn answer(id: u32, fecs: Fecs<'_>, outbox: &mut Outbox, shared: &mut Shared) {
    let Shared { config, advertised, counters, .. } = shared;
    for prefix in fecs.prefixes() {
        counters.requests_received += 1;
        let label = config.advertised.iter().zip(advertised.iter()).find_map(|(range, bits)| {
            let index = range.fecs.index_of(&prefix)?;
            bits.get(index).then(|| range.label(index))
        });
        match label {
            Some(label) => {
                let fec = PrefixFec::new(prefix);
                outbox.push(&Message::LabelMapping { fecs: fec.fecs(), label, request: Some(id) });
                counters.mappings_sent += 1;
            }
            None => {
                let status = Status::new(code::NO_ROUTE).about(id, kind::LABEL_REQUEST);
                outbox.push(&Message::Notification(status));
                counters.notified(&status);
            }
        }
    }
}

/// Sends labels; false if there is no room for all.
fn send(
    now: Instant,
    work: &mut Work,
    pdus: &mut PduWriter<'_>,
    outbox: &mut Outbox,
    shared: &mut Shared,
    bindings: &mut Bindings,
) -> bool {
    let Shared { config, counters, .. } = shared;
    let Work { what, range, .. } = *work;
    while work.next < work.end {
        let (prefix, label) = if what == Action::Release {
            let Some(label) = bindings.expected_label(range, work.next) else {
                work.next += 1;
                continue;
            };
            (config.expected[range].prefix(work.next), label)
        } else {
            let advertised = &config.advertised[range];
            (advertised.fecs.prefix(work.next), advertised.label(work.next))
        };
        let fec = PrefixFec::new(prefix);
        let fecs = fec.fecs();
        let (message, counter) = match what {
            Action::Map => (Message::LabelMapping { fecs, label, request: None }, &mut counters.mappings_sent),
            Action::Withdraw => (Message::LabelWithdraw { fecs, label: Some(label) }, &mut counters.withdraws_sent),
            Action::Release => (Message::LabelRelease { fecs, label: Some(label) }, &mut counters.releases_sent),
        };
        if !pdus.push(outbox.next_id(), &message) {
            outbox.unused_id();
            return false;
        }
        *counter += 1;
        if what == Action::Release {
            bindings.removed(now, prefix, Some(label));
        }
        work.next += 1;
    }
    true
}
