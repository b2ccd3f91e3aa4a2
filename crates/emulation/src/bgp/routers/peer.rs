//! One router: its session with the DUT and the connection under it.

use super::port_of;
use super::pressure::Meter;
use crate::bgp::collision::{self, Initiator};
use crate::bgp::session::{Session, State, Wish};
use crate::bgp::{Cause, Closed, Inbox, NextHops, Outbox, SessionConfig};
use crate::tcp::{CloseReason, ConnState, ConnectionId, TcpStack};
use drophammer_model::Instant;
use drophammer_wire::bgp::AfiSafi;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// What a router is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// Its address on the link.
    pub address: IpAddr,
    /// The DUT's, of the same family.
    pub dut: IpAddr,
    /// Its AS number.
    pub asn: u32,
    /// The DUT's.
    pub dut_as: u32,
    /// BGP identifier.
    pub router_id: Ipv4Addr,
    /// Proposed hold time.
    pub hold: Duration,
    /// Families of routes in the session.
    pub families: Vec<AfiSafi>,
    /// Next hops of what it advertises.
    pub next_hops: NextHops,
    /// Never connects, only waits for the DUT to do so.
    pub passive: bool,
}

/// A second session, on a connection that the DUT opened while the first was busy (RFC 4271 section 6.8).
struct Rival {
    session: Session,
    connection: ConnectionId,
}

pub(super) struct Peer {
    config: PeerConfig,
    pub session: Session,
    pub connection: Option<ConnectionId>,
    /// Did the DUT open `connection`?
    accepted: bool,
    rival: Option<Rival>,
    pub outbox: Outbox,
    pub inbox: Inbox,
    up: bool,
    pub asked_to_end: bool,
    pub losses: u32,
    pub lost_by: Option<Cause>,
    pub meter: Meter,
    pub busy: bool,
    pub scheduled: Option<Instant>,
}

/// Time between two attempts to connect, and from the end of a session to the next attempt: a tester is impatient.
const RETRY: Duration = Duration::from_secs(1);
const IDLE_HOLD: Duration = Duration::from_millis(200);

impl Peer {
    pub fn new(config: PeerConfig, seed: u64) -> Peer {
        let mut session = SessionConfig::new(config.asn, config.dut_as, config.router_id);
        session.hold_time = config.hold;
        session.families = config.families.clone();
        session.passive = config.passive;
        session.connect_retry = RETRY;
        session.idle_hold = IDLE_HOLD;
        session.seed = seed ^ u64::from(config.router_id.to_bits());
        Peer {
            session: Session::new(session),
            connection: None,
            accepted: false,
            rival: None,
            outbox: Outbox::new(),
            inbox: Inbox::new(),
            up: false,
            asked_to_end: false,
            losses: 0,
            lost_by: None,
            meter: Meter::default(),
            busy: false,
            scheduled: None,
            config,
        }
    }

    /// Its connection, and the one that competes with it.
    pub fn connections(&self) -> [Option<ConnectionId>; 2] {
        [self.connection, self.rival.as_ref().map(|rival| rival.connection)]
    }

    /// When the outbox wants to go on, where a pace keeps it back.
    pub fn outbox_deadline(&self, now: Instant) -> Option<Instant> {
        self.outbox.next_deadline(now).filter(|due| self.up && *due > now)
    }

    /// A connection that the DUT opened.
    pub fn take_connection(&mut self, now: Instant, connection: ConnectionId, stack: &mut TcpStack) {
        if matches!(self.session.state(), State::Connect | State::Active) {
            if let Some(own) = self.connection.take() {
                stack.abort(own);
                stack.remove(own);
            }
            if self.session.connected(now) {
                self.connection = Some(connection);
                self.accepted = true;
                return;
            }
        } else if self.session.state() >= State::OpenSent && !self.accepted && self.rival.is_none() {
            let config = self.session.config().clone();
            let mut session = Session::new(config);
            session.start(now);
            if session.connected(now) {
                self.rival = Some(Rival { session, connection });
                return;
            }
        }
        stack.abort(connection);
        stack.remove(connection);
    }

    /// Does what can be done now; true when there is more to say than `quota` allows.
    pub fn serve(&mut self, now: Instant, stack: &mut TcpStack, quota: usize) -> bool {
        let mut more = false;
        // Each round may be the reason for another: an OPEN for an answer, an answer for a close.
        for _ in 0..16 {
            let before = self.session.state();
            self.read(now, stack);
            // What ended makes room for a connection of the DUT.
            self.carry_out(now, stack);
            self.settle_collision(now, stack);
            more = self.write(now, stack, quota);
            self.carry_out(now, stack);
            self.follow(now);
            if self.session.state() == before {
                break;
            }
        }
        more
    }

    /// Takes what has come in, and learns of the end of the connection behind it.
    pub fn read(&mut self, now: Instant, stack: &mut TcpStack) {
        let Some(connection) = self.connection else { return };
        if stack.state(connection) == ConnState::Established && self.session.state() == State::Connect {
            self.session.connected(now);
        }
        let Peer { session, inbox, .. } = self;
        stack.receive_with(connection, &mut |bytes| {
            session.receive(now, bytes, &mut |body, agreed| inbox.update(now, body, agreed))
        });
        let how = match stack.state(connection) {
            ConnState::Connecting | ConnState::Established => None,
            ConnState::PeerClosed => Some(Closed::ByPeer),
            ConnState::Closed(reason) => Some(closed(reason)),
        };
        if let Some(how) = how {
            self.session.closed(now, how);
            stack.close(connection);
            stack.remove(connection);
            self.connection = None;
        }
        self.follow(now);
    }

    /// Something has come from the DUT.
    pub fn heard(&mut self, now: Instant, stack: &TcpStack) {
        self.meter.heard(now, self.connection, stack);
    }

    /// All that can be sent now has been.
    pub fn sent(&mut self, now: Instant, stack: &TcpStack) {
        let agreed = self.session.negotiated().filter(|_| self.up);
        let says = self.connection.zip(agreed).map(|(connection, agreed)| (connection, agreed.max_send));
        self.meter.sent(now, says, &self.outbox, stack);
    }

    /// Notes that the session came up or ended.
    fn follow(&mut self, now: Instant) {
        let established = self.session.state() == State::Established;
        if established && !self.up {
            self.asked_to_end = false;
        }
        if self.up && !established {
            self.inbox.session_lost(now);
            // What was said is forgotten by the DUT, and what was not belongs to a session that is no more.
            self.outbox.clear();
            if !std::mem::take(&mut self.asked_to_end) {
                self.losses += 1;
                self.lost_by = self.session.ended().cloned();
            }
        }
        self.up = established;
    }

    /// Control messages, then UPDATEs. True when there is room and something for it left.
    fn write(&mut self, now: Instant, stack: &mut TcpStack, quota: usize) -> bool {
        let Peer { session, outbox, config, .. } = self;
        let Some(connection) = self.connection else { return false };
        if stack.state(connection) == ConnState::Connecting {
            return false;
        }
        if session.wants_write() {
            stack.send_with(connection, &mut |room| session.write(now, room));
            if session.wants_write() {
                // TCP has no room; it tells when it has.
                return false;
            }
        }
        if session.state() != State::Established {
            return false;
        }
        for family in &config.families {
            if session.refresh_requested(*family) {
                outbox.refresh(*family, session.negotiated().is_some_and(|agreed| agreed.enhanced_route_refresh));
            }
        }
        let Some(agreed) = session.negotiated().filter(|_| !outbox.is_empty()) else { return false };
        let most = quota.max(agreed.max_send);
        let room_before = stack.can_send(connection);
        let written = stack.send_with(connection, &mut |room| {
            let end = room.len().min(most);
            outbox.write(now, agreed, config.next_hops, &mut room[..end])
        });
        if written > 0 {
            session.wrote(now);
        }
        written > 0 && room_before > most && outbox.next_deadline(now).is_some_and(|due| due <= now)
    }

    /// Two connections: one has to go.
    fn settle_collision(&mut self, now: Instant, stack: &mut TcpStack) {
        let Some(rival) = &mut self.rival else { return };
        let Rival { session, connection } = rival;
        let inbox = &mut self.inbox;
        stack.receive_with(*connection, &mut |bytes| {
            session.receive(now, bytes, &mut |body, agreed| inbox.update(now, body, agreed))
        });
        let over = !matches!(stack.state(*connection), ConnState::Established);
        // Before it says yes to one that has to go.
        let lost = collision::resolve(now, &mut self.session, session);
        if session.wants_write() {
            stack.send_with(*connection, &mut |room| session.write(now, room));
        }
        if lost == Some(Initiator::Local) || (self.connection.is_none() && self.session.state() < State::OpenSent) {
            // The DUT's connection stays: it is the session now.
            if let Some(own) = self.connection.take() {
                stack.send_with(own, &mut |room| self.session.write(now, room));
                stack.close(own);
                stack.remove(own);
            }
            if let Some(rival) = self.rival.take() {
                let mut session = rival.session;
                std::mem::swap(&mut self.session, &mut session);
                self.connection = Some(rival.connection);
                self.accepted = true;
            }
        } else if lost == Some(Initiator::Remote) || over || session.state() == State::Idle {
            stack.send_with(*connection, &mut |room| session.write(now, room));
            stack.close(*connection);
            stack.remove(*connection);
            self.rival = None;
        }
    }

    /// Carries out what the session wishes.
    pub fn carry_out(&mut self, now: Instant, stack: &mut TcpStack) {
        loop {
            match self.session.poll(now) {
                Wish::None => return,
                // Its port is always open.
                Wish::Listen => {}
                Wish::Connect => {
                    if self.connection.is_none() {
                        self.connection = Some(stack.connect(now, self.config.address, port_of(self.config.dut)));
                        self.accepted = false;
                    }
                }
                wish @ (Wish::Close | Wish::Abort) => {
                    let Some(connection) = self.connection.take() else { continue };
                    if wish == Wish::Close {
                        stack.close(connection)
                    } else {
                        stack.abort(connection)
                    }
                    stack.remove(connection);
                }
            }
        }
    }
}

fn closed(reason: CloseReason) -> Closed {
    match reason {
        CloseReason::Refused => Closed::Refused,
        CloseReason::Reset => Closed::Reset,
        CloseReason::TimedOut => Closed::TimedOut,
        CloseReason::Unaddressable => Closed::Unreachable,
        CloseReason::Peer | CloseReason::Local => Closed::ByPeer,
    }
}
