//! One router: its session with the DUT and the TCP connection of the session.

use super::port_of;
use super::pressure::Meter;
use super::sending::Sending;
use crate::bgp::collision::{self, Initiator};
use crate::bgp::session::{Session, State, TcpAction};
use crate::bgp::{AdjRibIn, AdjRibOut, Cause, Closed, GracefulRestartConfig, NextHops, SessionConfig};
use crate::tcp::{CloseReason, ConnState, ConnectionId, Protection, TcpStack};
use drophammer_model::Instant;
use drophammer_wire::bgp::notification::cease;
use drophammer_wire::bgp::{AfiSafi, Notification, PathDirection};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Configuration of a router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerConfig {
    /// Its address on the link.
    pub address: IpAddr,
    /// Address of the DUT, of the same family.
    pub dut: IpAddr,
    /// Its AS number.
    pub asn: u32,
    /// True if it offers AS numbers of 4 octets (RFC 6793); otherwise `asn` has 2 octets.
    pub four_octet_as: bool,
    /// AS number of the DUT; 0 for any.
    pub dut_as: u32,
    /// BGP identifier.
    pub router_id: Ipv4Addr,
    /// Proposed hold time.
    pub hold: Duration,
    /// Families of routes in the session.
    pub families: Vec<AfiSafi>,
    /// Families in which the DUT may send several labels per route, each with their highest number (RFC 8277 section 2.1).
    pub multiple_labels: Vec<(AfiSafi, u8)>,
    /// Families in which it sends and receives several paths per prefix, if the DUT does too (RFC 7911).
    pub add_path: Vec<AfiSafi>,
    /// Graceful restart, if it offers that; then it marks the end of its routes (RFC 4724). It forgets the routes of a DUT that restarts.
    pub graceful_restart: Option<GracefulRestartConfig>,
    /// Next hops of the routes that it advertises.
    pub next_hops: NextHops,
    /// True to only wait for the DUT to connect.
    pub passive: bool,
    /// TCP MD5 and GTSM.
    pub protection: Protection,
}

impl PeerConfig {
    /// A router that connects to the DUT with a hold time of 90 s, and exchanges unicast routes of the IP version of its address, which is
    /// their next hop.
    pub fn new(address: IpAddr, dut: IpAddr, asn: u32, dut_as: u32, router_id: Ipv4Addr) -> PeerConfig {
        let (family, next_hops) = match address {
            IpAddr::V4(own) => (AfiSafi::IPV4_UNICAST, NextHops { ipv4: Some(own), ..NextHops::default() }),
            IpAddr::V6(own) => (AfiSafi::IPV6_UNICAST, NextHops { ipv6: Some(own), ..NextHops::default() }),
        };
        PeerConfig {
            address,
            dut,
            asn,
            four_octet_as: true,
            dut_as,
            router_id,
            hold: Duration::from_secs(90),
            families: vec![family],
            multiple_labels: Vec::new(),
            add_path: Vec::new(),
            graceful_restart: None,
            next_hops,
            passive: false,
            protection: Protection::default(),
        }
    }
}

/// A second session, on a connection that the DUT opened while the first was busy (RFC 4271 section 6.8).
struct Colliding {
    session: Session,
    connection: ConnectionId,
}

pub(super) struct Peer {
    config: PeerConfig,
    pub session: Session,
    pub connection: Option<ConnectionId>,
    /// True if the DUT opened `connection`.
    accepted: bool,
    colliding: Option<Colliding>,
    pub adj_rib_out: AdjRibOut,
    pub adj_rib_in: AdjRibIn,
    /// True if the router advertises its routes again after a session that ended by itself.
    pub keeps_routes: bool,
    up: bool,
    pub asked_to_end: bool,
    pub losses: u32,
    pub lost_by: Option<Cause>,
    /// True if the session ended by itself and is not up again.
    pub broken: bool,
    pub meter: Meter,
    pub busy: bool,
    pub scheduled: Option<Instant>,
    /// True if the session was started since the last poll; until then received bytes belong to an earlier one.
    pub starts: bool,
    /// Bytes of this router that the DUT's TCP has not acknowledged.
    pub unacknowledged: usize,
    pub sending: Sending,
    /// Address of the last connection that was refused since the session was up, because it is not the DUT's.
    pub stranger: Option<IpAddr>,
}

/// Time from a failed attempt to connect to the next one, and from the end of a session to the next attempt. Short, so that
/// tests need not wait.
const RETRY: Duration = Duration::from_secs(1);
const IDLE_HOLD: Duration = Duration::from_millis(200);
/// Maximum duration of an attempt to connect. TCP sends its second SYN after 1 s, so there is a SYN at least every second.
const CONNECT: Duration = Duration::from_secs(2);
/// A connection that the DUT opens sooner than this after the session came up belongs to a collision.
const COLLIDES: Duration = Duration::from_secs(5);

impl Peer {
    pub fn new(config: PeerConfig, seed: u64) -> Peer {
        let mut session = SessionConfig::new(config.asn, config.dut_as, config.router_id);
        session.hold_time = config.hold;
        session.families = config.families.clone();
        session.multiple_labels = config.multiple_labels.clone();
        let both = PathDirection { receive: true, send: true };
        session.add_path = config.add_path.iter().map(|family| (*family, both)).collect();
        session.graceful_restart = config.graceful_restart;
        session.four_octet_as = config.four_octet_as;
        session.passive = config.passive;
        (session.connect_timeout, session.connect_retry) = (CONNECT, RETRY);
        session.idle_hold = IDLE_HOLD;
        session.seed = seed ^ u64::from(config.router_id.to_bits());
        Peer {
            session: Session::new(session),
            connection: None,
            accepted: false,
            colliding: None,
            adj_rib_out: AdjRibOut::new(),
            keeps_routes: false,
            adj_rib_in: AdjRibIn::new(),
            up: false,
            asked_to_end: false,
            losses: 0,
            lost_by: None,
            broken: false,
            meter: Meter::default(),
            busy: false,
            scheduled: None,
            starts: false,
            unacknowledged: 0,
            sending: Sending::default(),
            stranger: None,
            config,
        }
    }

    /// Its configuration.
    pub fn config(&self) -> &PeerConfig {
        &self.config
    }

    /// Its connections were dropped with the TCP stack.
    pub fn forget_connections(&mut self) {
        if let Some(colliding) = self.colliding.take() {
            self.session.take_counts(&colliding.session);
        }
        (self.connection, self.unacknowledged) = (None, 0);
    }

    /// Ends its session, or both sessions of a collision, with a NOTIFICATION, and drops waiting routes.
    pub fn stop(&mut self, now: Instant) {
        (self.asked_to_end, self.broken) = (true, false);
        self.adj_rib_out.clear();
        self.session.stop(now, cease::ADMINISTRATIVE_SHUTDOWN);
        if let Some(colliding) = &mut self.colliding {
            colliding.session.stop(now, cease::ADMINISTRATIVE_SHUTDOWN);
        }
    }

    /// Ends its session, or both sessions of a collision, with a NOTIFICATION. It comes back by itself.
    pub fn notify(&mut self, now: Instant, notification: Notification) {
        if let Some(colliding) = &mut self.colliding {
            colliding.session.reset(now, notification.clone());
        }
        self.session.reset(now, notification);
    }

    /// Restarts its session gracefully. A session that collides with it ends in the same way.
    pub fn restart(&mut self, now: Instant, away: Duration, last: Option<Notification>) {
        if let Some(colliding) = &mut self.colliding {
            colliding.session.restart(now, away, last.clone());
        }
        self.session.restart(now, away, last);
    }

    /// Its connection, and the connection that collides with it.
    pub fn connections(&self) -> [Option<ConnectionId>; 2] {
        [self.connection, self.colliding.as_ref().map(|colliding| colliding.connection)]
    }

    /// When the Adj-RIB-Out continues, if a pace delays it.
    pub fn adj_rib_out_deadline(&self, now: Instant) -> Option<Instant> {
        self.adj_rib_out.next_deadline(now).filter(|due| self.up && *due > now)
    }

    /// Handles a connection that the DUT opened.
    pub fn take_connection(&mut self, now: Instant, connection: ConnectionId, stack: &mut TcpStack) {
        if self.is_replaced(now) {
            if let Some(old) = self.connection.take() {
                stack.abort(old);
                stack.remove(old);
            }
            self.session.replace(now);
            self.follow(now, stack);
        }
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
        } else if self.session.state() >= State::OpenSent && !self.accepted && self.colliding.is_none() {
            let config = self.session.config().clone();
            let mut session = Session::new(config);
            session.start(now);
            if session.connected(now) {
                self.colliding = Some(Colliding { session, connection });
                return;
            }
        }
        stack.abort(connection);
        stack.remove(connection);
    }

    /// True if a connection of the DUT means that it has restarted: with graceful restart, it replaces the session (RFC 4724 section 5).
    fn is_replaced(&self, now: Instant) -> bool {
        let theirs = self.session.negotiated().and_then(|agreed| agreed.graceful_restart.as_ref());
        self.config.graceful_restart.is_some()
            && self.colliding.is_none()
            && theirs.is_some_and(|restart| !restart.families.is_empty())
            && self.session.established_at().is_some_and(|at| now.since(at) >= COLLIDES)
    }

    /// Does all possible work; returns true if more than `quota` bytes wait to be sent.
    pub fn serve(&mut self, now: Instant, stack: &mut TcpStack, quota: usize) -> bool {
        let mut more = false;
        if std::mem::take(&mut self.starts) {
            self.carry_out(now, stack);
        }
        // A round may require another: an OPEN requires an answer, an answer may require a close.
        for _ in 0..16 {
            let before = self.session.state();
            self.read(now, stack);
            // A closed connection makes room for a connection from the DUT.
            self.carry_out(now, stack);
            self.settle_collision(now, stack);
            more = self.write(now, stack, quota);
            self.carry_out(now, stack);
            self.follow(now, stack);
            if self.session.state() == before {
                break;
            }
        }
        more
    }

    /// Reads received bytes, then checks whether the connection has ended.
    pub fn read(&mut self, now: Instant, stack: &mut TcpStack) {
        let Some(connection) = self.connection.filter(|_| !self.starts) else { return };
        if stack.state(connection) == ConnState::Established && self.session.state() == State::Connect {
            self.session.connected(now);
        }
        let Peer { session, adj_rib_in, .. } = self;
        stack.receive_with(connection, &mut |bytes| {
            session.receive_all(now, bytes, &mut |heard, agreed| adj_rib_in.receive(now, heard, agreed))
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
        self.follow(now, stack);
    }

    /// Reads what the DUT's TCP has acknowledged.
    fn acknowledge(&mut self, now: Instant, stack: &TcpStack) {
        self.unacknowledged = self.connection.map_or(0, |c| stack.unacknowledged(c));
        if self.unacknowledged == 0 && self.adj_rib_out.is_empty() {
            self.sending.end(now);
        }
    }

    /// A packet from the DUT was received.
    pub fn heard(&mut self, now: Instant, stack: &TcpStack) {
        self.acknowledge(now, stack);
        self.meter.heard(now, self.connection, stack);
    }

    /// Everything that can be sent now has been sent.
    pub fn sent(&mut self, now: Instant, stack: &TcpStack) {
        self.acknowledge(now, stack);
        let agreed = self.session.negotiated().filter(|_| self.up);
        let says = self.connection.zip(agreed).map(|(connection, agreed)| (connection, agreed.max_send));
        self.meter.sent(now, says, &self.adj_rib_out, stack);
    }

    /// Detects that the session came up or ended.
    fn follow(&mut self, now: Instant, stack: &mut TcpStack) {
        let established = self.session.state() == State::Established;
        if established && !self.up {
            (self.broken, self.stranger) = (false, None);
            if let (Some(connection), Some(agreed)) = (self.connection, self.session.negotiated()) {
                // The hold timer ends the session, not TCP.
                stack.be_patient(connection, agreed.hold);
            }
            self.asked_to_end = false;
            let agreed = self.session.negotiated().filter(|_| self.config.graceful_restart.is_some());
            agreed.iter().flat_map(|agreed| &agreed.families).for_each(|family| self.adj_rib_out.end_of_rib(*family));
        }
        if self.up && !established {
            self.adj_rib_in.session_lost(now);
            // The DUT forgets the advertised routes, and waiting routes belong to a session that has ended.
            if self.keeps_routes && !self.asked_to_end {
                self.adj_rib_out.say_again();
            } else {
                self.adj_rib_out.clear();
            }
            if !std::mem::take(&mut self.asked_to_end) {
                self.losses += 1;
                self.lost_by = self.session.ended().cloned();
                self.broken = true;
            }
        }
        self.up = established;
    }

    /// Sends control messages, then UPDATEs. True if it could send more immediately.
    fn write(&mut self, now: Instant, stack: &mut TcpStack, quota: usize) -> bool {
        let Peer { session, adj_rib_out, config, .. } = self;
        let Some(connection) = self.connection else { return false };
        if stack.state(connection) == ConnState::Connecting {
            return false;
        }
        if session.wants_write() {
            stack.send_with(connection, &mut |room| session.write(now, room));
            if session.wants_write() {
                // TCP has no room; it reports when it has.
                return false;
            }
        }
        if session.state() != State::Established {
            return false;
        }
        for family in &config.families {
            if session.refresh_requested(*family) {
                adj_rib_out.refresh(*family, session.negotiated().is_some_and(|agreed| agreed.enhanced_route_refresh));
            }
        }
        let Some(agreed) = session.negotiated().filter(|_| !adj_rib_out.is_empty()) else { return false };
        let most = quota.max(agreed.max_send);
        let room_before = stack.can_send(connection);
        let written = stack.send_with(connection, &mut |room| {
            let end = room.len().min(most);
            adj_rib_out.write(now, agreed, config.next_hops, &mut room[..end])
        });
        if written > 0 {
            session.wrote(now);
        }
        written > 0 && room_before > most && adj_rib_out.next_deadline(now).is_some_and(|due| due <= now)
    }

    /// Handles a collision of two connections.
    fn settle_collision(&mut self, now: Instant, stack: &mut TcpStack) {
        let Some(colliding) = &mut self.colliding else { return };
        let Colliding { session, connection } = colliding;
        let adj_rib_in = &mut self.adj_rib_in;
        stack.receive_with(*connection, &mut |bytes| {
            session.receive_all(now, bytes, &mut |heard, agreed| adj_rib_in.receive(now, heard, agreed))
        });
        let over = !matches!(stack.state(*connection), ConnState::Established);
        // Resolves the collision before this side confirms a connection that must be closed.
        let lost = collision::resolve(now, &mut self.session, session);
        if session.wants_write() {
            stack.send_with(*connection, &mut |room| session.write(now, room));
        }
        let alone = self.connection.is_none() && self.session.state() < State::OpenSent;
        if lost == Some(Initiator::Local) || (alone && session.state() != State::Idle) {
            // The DUT's connection stays, and its session becomes the session of the router.
            if let Some(own) = self.connection.take() {
                stack.send_with(own, &mut |room| self.session.write(now, room));
                stack.close(own);
                stack.remove(own);
            }
            if let Some(colliding) = self.colliding.take() {
                let closed = std::mem::replace(&mut self.session, colliding.session);
                self.session.take_counts(&closed);
                self.connection = Some(colliding.connection);
                self.accepted = true;
            }
        } else if lost == Some(Initiator::Remote) || over || session.state() == State::Idle {
            stack.send_with(*connection, &mut |room| session.write(now, room));
            if session.poll(now) == TcpAction::Abort {
                stack.abort(*connection);
            } else {
                stack.close(*connection);
            }
            stack.remove(*connection);
            self.session.take_counts(session);
            self.colliding = None;
        }
    }

    /// Carries out the TCP actions of the session.
    pub fn carry_out(&mut self, now: Instant, stack: &mut TcpStack) {
        loop {
            match self.session.poll(now) {
                TcpAction::None => return,
                // Its port is always open.
                TcpAction::Listen => {}
                TcpAction::Connect => {
                    if self.connection.is_none() {
                        self.connection = Some(stack.connect(now, self.config.address, port_of(self.config.dut)));
                        self.accepted = false;
                    }
                }
                action @ (TcpAction::Close | TcpAction::Abort) => {
                    let Some(connection) = self.connection.take() else { continue };
                    if action == TcpAction::Close {
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
