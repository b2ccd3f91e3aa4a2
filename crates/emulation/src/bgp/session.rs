//! One session with one peer: the state machine of RFC 4271 section 8.
//!
//! The transport reports changes of the connection ([`Session::connected`], [`Session::closed`]), passes received bytes to
//! [`Session::receive_all`], and then calls [`Session::poll`] for actions, in this order if all happen at one instant. It fills its
//! send buffer with [`Session::write`]. The session does not handle UPDATEs: it passes received UPDATEs and the markers of refreshes to a
//! callback, and its user writes UPDATEs while the session is Established.
//!
//! Optional attributes of the RFC: `DampPeerOscillations` is a constant IdleHoldTime, `PassiveTcpEstablishment` is
//! [`SessionConfig::passive`], jitter is applied to ConnectRetryTimer and KeepaliveTimer. DelayOpen is not implemented: it delays
//! an OPEN to detect a collision early, and here [`super::collision`] decides between two whole sessions. Without DelayOpen, the
//! RFC's state machine goes to Idle when an attempt fails; here it goes to Active, as with DelayOpen, so that the peer's own
//! attempt is accepted.

#[cfg(test)]
mod tests;
mod timers;

use super::cause::{Cause, Closed};
use super::config::SessionConfig;
use super::negotiated::Negotiated;
use drophammer_model::Instant;
use drophammer_wire::bgp::message::{HEADER_LEN, MAX_LEN, emit_keepalive, kind};
use drophammer_wire::bgp::notification::{Notification, cease, code, fsm, header};
use drophammer_wire::bgp::{AfiSafi, Message, Open, RouteRefresh, frame, route_refresh};
use std::collections::VecDeque;
use std::time::Duration;
use timers::Timers;

/// Hold time until the peer's OPEN is received (RFC 4271 section 8.2.2).
pub const LARGE_HOLD_TIME: Duration = Duration::from_secs(240);
/// How long a last NOTIFICATION may wait for room before the connection is reset.
pub const LINGER: Duration = Duration::from_secs(5);
/// Maximum number of stored state changes.
pub const EVENTS_MAX: usize = 64;

/// State of a session (RFC 4271 section 8.2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Stopped, or waiting for the IdleHoldTime.
    #[default]
    Idle,
    /// Connecting.
    Connect,
    /// Waiting for the peer's connection, or for the next attempt.
    Active,
    /// The OPEN has been sent.
    OpenSent,
    /// The peer's OPEN has been accepted; waiting for its KEEPALIVE.
    OpenConfirm,
    /// UPDATEs may be exchanged.
    Established,
}

/// Requests to the transport. Each is returned once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpAction {
    /// Nothing.
    None,
    /// Connect to the peer.
    Connect,
    /// Accept a connection of the peer, unless the transport always listens.
    Listen,
    /// Close the connection in order after all written bytes are sent, and report no more about it.
    Close,
    /// Reset the connection or end the attempt at one, and report no more about it.
    Abort,
}

/// A change of state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time of the change.
    pub at: Instant,
    /// The state before.
    pub from: State,
    /// The state after.
    pub to: State,
    /// The cause, if something ended.
    pub cause: Option<Cause>,
}

/// What the peer says about its routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard<'a> {
    /// The body of an UPDATE.
    Update(&'a [u8]),
    /// It begins to advertise all routes of a family again (RFC 7313).
    RefreshBegins(AfiSafi),
    /// It has advertised all of them.
    RefreshEnds(AfiSafi),
}

/// Callback for what the peer says about its routes. For errors, see [`Updates`].
pub type Listener<'a> = &'a mut dyn FnMut(Heard<'_>, &Negotiated) -> Result<(), Notification>;

/// Callback for the body of an UPDATE. An error goes to the peer and ends the session; errors that RFC 7606 handles without
/// ending the session are not errors here.
pub type Updates<'a> = &'a mut dyn FnMut(&[u8], &Negotiated) -> Result<(), Notification>;

/// Number of received or written messages, by type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// OPENs.
    pub opens: u64,
    /// Received UPDATEs. The session does not count sent UPDATEs, because its user writes them.
    pub updates: u64,
    /// NOTIFICATIONs.
    pub notifications: u64,
    /// KEEPALIVEs.
    pub keepalives: u64,
    /// ROUTE-REFRESHes.
    pub route_refreshes: u64,
}

impl Counters {
    fn count(&mut self, kind: u8) {
        match kind {
            kind::OPEN => self.opens += 1,
            kind::UPDATE => self.updates += 1,
            kind::NOTIFICATION => self.notifications += 1,
            kind::KEEPALIVE => self.keepalives += 1,
            _ => self.route_refreshes += 1,
        }
    }

    fn add(&mut self, other: Counters) {
        self.opens += other.opens;
        self.updates += other.updates;
        self.notifications += other.notifications;
        self.keepalives += other.keepalives;
        self.route_refreshes += other.route_refreshes;
    }
}

/// A session.
#[derive(Clone, Debug)]
pub struct Session {
    config: SessionConfig,
    state: State,
    /// True if started and not stopped: the session restarts after an end.
    running: bool,
    timers: Timers,
    tcp_actions: VecDeque<TcpAction>,
    /// Whole messages that wait to be written.
    out: VecDeque<Vec<u8>>,
    negotiated: Option<Negotiated>,
    ended: Option<(Instant, Cause)>,
    lost: Option<(Instant, Cause)>,
    established: Option<Instant>,
    events: VecDeque<Event>,
    events_dropped: u64,
    /// Families for which the peer requested a refresh that has not been handled yet.
    refreshes: Vec<AfiSafi>,
    sent: Counters,
    received: Counters,
}

impl Session {
    /// A session that is Idle until it is started.
    pub fn new(config: SessionConfig) -> Session {
        Session {
            timers: Timers::new(config.seed),
            config,
            state: State::Idle,
            running: false,
            tcp_actions: VecDeque::new(),
            out: VecDeque::new(),
            negotiated: None,
            ended: None,
            lost: None,
            established: None,
            events: VecDeque::new(),
            events_dropped: 0,
            refreshes: Vec::new(),
            sent: Counters::default(),
            received: Counters::default(),
        }
    }

    /// Starts it: it connects, or listens if it is passive. After an end it restarts by itself.
    pub fn start(&mut self, now: Instant) {
        if !self.running {
            self.running = true;
            self.begin(now);
        }
    }

    /// Ends it permanently, with a Cease of this subcode ([`cease`]) if there is a connection.
    pub fn stop(&mut self, now: Instant, subcode: u8) {
        self.stop_with(now, Notification::bare(code::CEASE, subcode));
    }

    /// Ends it permanently with any NOTIFICATION: a Cease with a text, a hard reset.
    pub fn stop_with(&mut self, now: Instant, last: Notification) {
        self.running = false;
        self.timers.idle_hold = None;
        match self.state {
            State::Idle => {}
            State::Connect | State::Active => self.end(now, Cause::LocalStop(None), None),
            _ => self.end(now, Cause::LocalStop(Some(last.clone())), Some(last)),
        }
    }

    /// Ends it with a NOTIFICATION if there is a connection; it restarts after the IdleHoldTime.
    pub fn reset(&mut self, now: Instant, why: Notification) {
        if self.state >= State::OpenSent {
            self.end(now, Cause::SentNotification(why.clone()), Some(why));
        }
    }

    /// Resets the connection without a NOTIFICATION, like a speaker that crashes; it restarts after the IdleHoldTime.
    pub fn abort(&mut self, now: Instant) {
        if self.state >= State::OpenSent {
            self.timers.linger = None;
            self.tcp_actions.push_back(TcpAction::Abort);
            self.finish(now, Cause::LocalAbort);
        }
    }

    /// Restarts gracefully (RFC 4724), if there is a connection: ends it with this NOTIFICATION (RFC 8538) or without a word, and comes
    /// back after `away`. The OPENs until then say that this speaker has restarted.
    pub fn restart(&mut self, now: Instant, away: Duration, last: Option<Notification>) {
        if self.state < State::OpenSent {
            return;
        }
        match last {
            Some(last) => self.reset(now, last),
            None => self.abort(now),
        }
        self.timers.idle_hold = self.running.then_some(now + away);
        self.set_restarted(true);
    }

    /// The peer has restarted without a NOTIFICATION and has opened a new connection (RFC 4724 section 5). Ends the session, and begins the
    /// next one, for [`Session::connected`].
    pub fn replace(&mut self, now: Instant) {
        if self.state >= State::OpenSent {
            self.finish(now, Cause::TcpReset);
            self.timers.idle_hold = None;
            self.begin(now);
        }
    }

    fn set_restarted(&mut self, restarted: bool) {
        if let Some(restart) = &mut self.config.graceful_restart {
            restart.restarted = restarted;
        }
    }

    fn begin(&mut self, now: Instant) {
        self.abort_unwritten();
        if self.config.passive {
            self.go(now, State::Active, None);
            self.tcp_actions.push_back(TcpAction::Listen);
        } else {
            self.go(now, State::Connect, None);
            self.timers.start_connect_retry(now, self.config.connect_timeout);
            self.tcp_actions.push_back(TcpAction::Connect);
        }
    }

    fn go(&mut self, now: Instant, to: State, cause: Option<Cause>) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
            self.events_dropped += 1;
        }
        if let Some(cause) = &cause {
            self.ended = Some((now, cause.clone()));
            if self.state == State::Established {
                self.lost.clone_from(&self.ended);
            }
        }
        self.events.push_back(Event { at: now, from: self.state, to, cause });
        self.state = to;
        self.established = (to == State::Established).then_some(now);
        if to == State::Established {
            self.set_restarted(false);
        }
    }

    /// Ends the connection after `last` is sent, or the attempt to connect.
    fn end(&mut self, now: Instant, cause: Cause, last: Option<Notification>) {
        match self.state {
            State::Connect => self.tcp_actions.push_back(TcpAction::Abort),
            State::OpenSent | State::OpenConfirm | State::Established => {
                match last {
                    Some(last) => {
                        let mut message = vec![0; last.message_len()];
                        last.emit(&mut message);
                        if self.state == State::OpenConfirm {
                            // The peer would read a KEEPALIVE as confirmation.
                            self.out.retain(|waits| waits[HEADER_LEN - 1] != kind::KEEPALIVE);
                        }
                        self.out.push_back(message);
                    }
                    // The peer will not read waiting messages.
                    None => self.out.clear(),
                }
                self.timers.linger = Some(now + LINGER);
                self.close_if_written();
            }
            State::Idle | State::Active => {}
        }
        self.finish(now, cause);
    }

    /// Goes to Idle; the connection is gone or being closed.
    fn finish(&mut self, now: Instant, cause: Cause) {
        if self.timers.linger.is_none() {
            self.out.clear();
        }
        self.timers.stop_session();
        self.timers.idle_hold = self.running.then_some(now + self.config.idle_hold);
        self.negotiated = None;
        self.refreshes.clear();
        self.go(now, State::Idle, Some(cause));
    }

    fn close_if_written(&mut self) {
        if self.timers.linger.is_some() && self.out.is_empty() {
            self.timers.linger = None;
            self.tcp_actions.push_back(TcpAction::Close);
        }
    }

    /// Next action for the transport; to be called until it returns [`TcpAction::None`]. Also runs due timers.
    pub fn poll(&mut self, now: Instant) -> TcpAction {
        self.run_timers(now);
        self.tcp_actions.pop_front().unwrap_or(TcpAction::None)
    }

    /// When [`Session::poll`] must be called again; `Instant(0)` for now.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.tcp_actions.is_empty() { self.timers.next() } else { Some(Instant(0)) }
    }

    /// Either side has opened a connection; the transport must end a pending attempt of this speaker. Returns false if the session
    /// wants no connection: the transport must reset it or pass it to a second session (see [`super::collision`]).
    pub fn connected(&mut self, now: Instant) -> bool {
        if !matches!(self.state, State::Connect | State::Active) {
            return false;
        }
        self.tcp_actions.retain(|action| !matches!(action, TcpAction::Connect | TcpAction::Listen));
        self.timers.connect_retry = None;
        match self.config.open_message() {
            Ok(open) => {
                self.out.push_back(open);
                self.timers.start_hold(now, LARGE_HOLD_TIME);
                self.go(now, State::OpenSent, None);
            }
            Err(why) => {
                self.tcp_actions.push_back(TcpAction::Abort);
                self.finish(now, Cause::BadConfiguration(why.reason));
            }
        }
        true
    }

    /// The connection is gone, or the attempt has failed. Bytes received earlier must be passed to [`Session::receive`]
    /// first.
    pub fn closed(&mut self, now: Instant, how: Closed) {
        match self.state {
            State::Idle => {
                if self.timers.linger.take().is_some() {
                    self.out.clear();
                }
            }
            State::Active => {}
            State::Connect | State::OpenSent => {
                self.timers.stop_session();
                self.out.clear();
                if !self.config.passive {
                    self.timers.start_connect_retry(now, self.config.connect_retry);
                }
                self.tcp_actions.push_back(TcpAction::Listen);
                self.go(now, State::Active, Some(how.into()));
            }
            State::OpenConfirm | State::Established => self.finish(now, how.into()),
        }
    }

    /// Like [`Session::receive_all`], for users who want nothing but the bodies of UPDATEs.
    pub fn receive(&mut self, now: Instant, bytes: &[u8], updates: Updates<'_>) -> usize {
        self.receive_all(now, bytes, &mut |heard, agreed| match heard {
            Heard::Update(body) => updates(body, agreed),
            Heard::RefreshBegins(_) | Heard::RefreshEnds(_) => Ok(()),
        })
    }

    /// Handles bytes from the peer, starting with the first one not consumed yet, and returns the number of consumed bytes: whole
    /// messages, or all if a message ends the session. UPDATEs and the markers of refreshes go to `listener`, in order.
    pub fn receive_all(&mut self, now: Instant, bytes: &[u8], listener: Listener<'_>) -> usize {
        let mut consumed = 0;
        while self.state >= State::OpenSent {
            match self.take(now, &bytes[consumed..], listener) {
                Ok(0) => return consumed,
                Ok(length) => consumed += length,
                Err((cause, answer)) => self.end(now, cause, answer),
            }
        }
        bytes.len()
    }

    /// Writes waiting control messages to the front of `buffer`, whole ones only, and returns their length. A NOTIFICATION is
    /// the last message. While the session is Established, UPDATEs may be written after them.
    pub fn write(&mut self, now: Instant, buffer: &mut [u8]) -> usize {
        let mut length = 0;
        while let Some(message) = self.out.front() {
            let Some(room) = buffer.get_mut(length..length + message.len()) else { break };
            room.copy_from_slice(message);
            length += message.len();
            self.sent.count(message[HEADER_LEN - 1]);
            self.out.pop_front();
        }
        if length > 0 {
            self.restart_keepalive(now);
        }
        self.close_if_written();
        length
    }

    /// True if [`Session::write`] has messages to write.
    pub fn wants_write(&self) -> bool {
        !self.out.is_empty()
    }

    /// UPDATEs were sent, so the next KEEPALIVE is postponed.
    pub fn wrote(&mut self, now: Instant) {
        self.restart_keepalive(now);
    }

    /// Requests all routes of `family` from the peer. False if the session is not Established or does not support it.
    pub fn request_refresh(&mut self, family: AfiSafi) -> bool {
        let can = self.negotiated.as_ref().is_some_and(|n| n.route_refresh && n.has(family));
        if can && self.state == State::Established {
            let mut message = vec![0; route_refresh::LEN];
            RouteRefresh::request(family).emit(&mut message);
            // One waiting request for a family is enough.
            if !self.out.contains(&message) {
                self.out.push_back(message);
            }
            return true;
        }
        false
    }

    /// True if the peer has requested all routes of `family` since the last call.
    pub fn refresh_requested(&mut self, family: AfiSafi) -> bool {
        let before = self.refreshes.len();
        self.refreshes.retain(|asked| *asked != family);
        self.refreshes.len() < before
    }

    /// Queues a KEEPALIVE unless one is waiting.
    fn push_keepalive(&mut self) {
        let mut message = vec![0; HEADER_LEN];
        emit_keepalive(&mut message);
        if !self.out.contains(&message) {
            self.out.push_back(message);
        }
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Its configuration.
    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// The negotiated parameters, from OpenConfirm to the end.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.negotiated.as_ref()
    }

    /// Why the last session ended or the last attempt failed.
    pub fn ended(&self) -> Option<&Cause> {
        self.ended.as_ref().map(|(_, cause)| cause)
    }

    /// When the last session ended or the last attempt failed.
    pub fn ended_at(&self) -> Option<Instant> {
        self.ended.as_ref().map(|(at, _)| *at)
    }

    /// Time and cause of its last loss after it had been Established; failed attempts since do not count.
    pub fn lost(&self) -> Option<(Instant, &Cause)> {
        self.lost.as_ref().map(|(at, cause)| (*at, cause))
    }

    /// When the session became Established.
    pub fn established_at(&self) -> Option<Instant> {
        self.established
    }

    /// The last state changes, at most [`EVENTS_MAX`], oldest first.
    pub fn events(&self) -> impl ExactSizeIterator<Item = &Event> {
        self.events.iter()
    }

    /// Number of older state changes that were dropped.
    pub fn events_dropped(&self) -> u64 {
        self.events_dropped
    }

    /// Messages written by [`Session::write`], over all connections.
    pub fn sent(&self) -> Counters {
        self.sent
    }

    /// Messages received, over all connections, including invalid ones with a valid header.
    pub fn received(&self) -> Counters {
        self.received
    }

    /// Adds the messages of a session with the same peer that has lost a collision ([`super::collision`]).
    pub fn take_counts(&mut self, closed: &Session) {
        self.sent.add(closed.sent);
        self.received.add(closed.received);
    }
}

/// The end of a session and the NOTIFICATION to send.
type End = (Cause, Option<Notification>);

fn malformed(answer: Notification) -> End {
    (Cause::Malformed(answer.clone()), Some(answer))
}

impl Session {
    /// Handles one message and returns its length; 0 if it is not complete yet.
    fn take(&mut self, now: Instant, bytes: &[u8], listener: Listener<'_>) -> Result<usize, End> {
        let max = self.negotiated.as_ref().map_or(MAX_LEN, |n| n.max_receive);
        let Some(message) = frame(bytes, max).map_err(malformed)? else { return Ok(0) };
        self.received.count(message.kind);
        if message.kind == kind::NOTIFICATION {
            let notification = Notification::parse(message.body).map_err(malformed)?;
            return Err((Cause::PeerNotification(notification), None));
        }
        match self.state {
            State::OpenSent => self.in_open_sent(now, message)?,
            State::OpenConfirm => self.in_open_confirm(now, message)?,
            _ => self.in_established(now, message, listener)?,
        }
        Ok(message.message_len())
    }

    fn in_open_sent(&mut self, now: Instant, message: Message<'_>) -> Result<(), End> {
        if message.kind != kind::OPEN {
            return Err(unexpected(fsm::OPEN_SENT, message.kind));
        }
        let theirs = Open::parse(message.body).map_err(malformed)?;
        let negotiated = Negotiated::from_opens(&self.config, theirs).map_err(|cause| {
            let answer = cause.notification().cloned();
            (cause, answer)
        })?;
        self.timers.start_hold(now, negotiated.hold);
        self.timers.start_keepalive(now, negotiated.keepalive);
        self.negotiated = Some(negotiated);
        self.push_keepalive();
        self.go(now, State::OpenConfirm, None);
        Ok(())
    }

    fn in_open_confirm(&mut self, now: Instant, message: Message<'_>) -> Result<(), End> {
        if message.kind != kind::KEEPALIVE {
            return Err(unexpected(fsm::OPEN_CONFIRM, message.kind));
        }
        self.timers.restart_hold(now);
        self.go(now, State::Established, None);
        Ok(())
    }

    fn in_established(&mut self, now: Instant, message: Message<'_>, listener: Listener<'_>) -> Result<(), End> {
        let Some(negotiated) = &self.negotiated else { return Ok(()) };
        match message.kind {
            kind::UPDATE => listener(Heard::Update(message.body), negotiated).map_err(malformed)?,
            kind::KEEPALIVE => {}
            kind::ROUTE_REFRESH if self.config.route_refresh => {
                let asked = RouteRefresh::parse(message.body).map_err(malformed)?;
                // Families that are not negotiated, and unknown subtypes, are ignored (RFC 2918 section 4, RFC 7313 section 5).
                let family = Some(asked.family).filter(|family| negotiated.has(*family));
                match (asked.subtype, family) {
                    (route_refresh::subtype::REQUEST, Some(family)) if !self.refreshes.contains(&family) => {
                        self.refreshes.push(family);
                    }
                    (route_refresh::subtype::BEGIN, Some(family)) if negotiated.enhanced_route_refresh => {
                        listener(Heard::RefreshBegins(family), negotiated).map_err(malformed)?;
                    }
                    (route_refresh::subtype::END, Some(family)) if negotiated.enhanced_route_refresh => {
                        listener(Heard::RefreshEnds(family), negotiated).map_err(malformed)?;
                    }
                    _ => {}
                }
            }
            // Without the capability, the type does not exist.
            kind::ROUTE_REFRESH => {
                let answer = Notification::new(code::MESSAGE_HEADER, header::BAD_TYPE, [message.kind]);
                return Err(malformed(answer));
            }
            other => return Err(unexpected(fsm::ESTABLISHED, other)),
        }
        self.timers.restart_hold(now);
        Ok(())
    }
}

/// A message that is unexpected in this state; its type is the data of the NOTIFICATION (RFC 6608 section 4).
fn unexpected(state: u8, kind: u8) -> End {
    malformed(Notification::new(code::FINITE_STATE_MACHINE, state, [kind]))
}

/// The Cease that closes the loser of a collision.
pub(super) fn collision() -> Notification {
    Notification::bare(code::CEASE, cease::CONNECTION_COLLISION)
}
