//! One session with one peer: the state machine of RFC 4271 section 8.
//!
//! The transport asks [`Session::poll`] what it shall do, tells what became of the connection ([`Session::connected`],
//! [`Session::closed`]), hands over what it received ([`Session::receive`]), in that order before it polls at the same
//! instant, and fills its send buffer by [`Session::write`]. UPDATEs are not this machine's business: what is received goes
//! to a callback, what is sent is written beside it while the session is Established.
//!
//! Optional attributes of the RFC: `DampPeerOscillations` is a constant IdleHoldTime, `PassiveTcpEstablishment` is
//! [`SessionConfig::passive`], jitter is applied to ConnectRetryTimer and KeepaliveTimer. DelayOpen is not built: it keeps an OPEN
//! back to learn of a collision early, and here [`super::collision`] decides on two whole sessions. Without it an attempt that
//! fails would lead to Idle; here it leads to Active, as it does with DelayOpen, so that the peer's own attempt finds an open door.

mod counters;
mod messages;
#[cfg(test)]
mod tests;
mod timers;

use super::cause::{Cause, Closed};
use super::config::SessionConfig;
use super::negotiated::Negotiated;
pub use counters::Counters;
use drophammer_model::Instant;
use drophammer_wire::bgp::message::{HEADER_LEN, emit_keepalive, kind};
use drophammer_wire::bgp::notification::{Notification, cease, code};
use drophammer_wire::bgp::{AfiSafi, RouteRefresh, route_refresh};
use std::collections::VecDeque;
use std::time::Duration;
use timers::Timers;

/// The hold time until the peer's OPEN is there (RFC 4271 section 8.2.2).
pub const LARGE_HOLD_TIME: Duration = Duration::from_secs(240);
/// How long a last NOTIFICATION may wait for room in the connection before it is reset.
pub const LINGER: Duration = Duration::from_secs(5);
/// Changes of state that are remembered.
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
    /// The OPEN is sent.
    OpenSent,
    /// The peer's OPEN is accepted; its KEEPALIVE is awaited.
    OpenConfirm,
    /// UPDATEs may flow.
    Established,
}

/// What the transport shall do. Each is said once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpAction {
    /// Nothing.
    None,
    /// Connect to the peer.
    Connect,
    /// Take a connection of the peer, if it is not done anyway.
    Listen,
    /// Close the connection in order once what was written is sent, and report no more about it.
    Close,
    /// Reset the connection or end the attempt at one, and report no more about it.
    Abort,
}

/// A change of state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Instant,
    /// The state before.
    pub from: State,
    /// The state from now on.
    pub to: State,
    /// Why, when something ended.
    pub cause: Option<Cause>,
}

/// What takes the body of an UPDATE. An error is sent to the peer and ends the session; what RFC 7606 treats otherwise is
/// not an error here.
pub type Updates<'a> = &'a mut dyn FnMut(&[u8], &Negotiated) -> Result<(), Notification>;

/// A session.
#[derive(Clone, Debug)]
pub struct Session {
    config: SessionConfig,
    state: State,
    /// Started and not stopped: it comes back after an end.
    running: bool,
    timers: Timers,
    tcp_actions: VecDeque<TcpAction>,
    /// Whole messages that wait for room.
    out: VecDeque<Vec<u8>>,
    negotiated: Option<Negotiated>,
    ended: Option<(Instant, Cause)>,
    lost: Option<(Instant, Cause)>,
    established: Option<Instant>,
    events: VecDeque<Event>,
    events_dropped: u64,
    /// Families that the peer has asked for and nobody has taken yet.
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

    /// Starts it: it connects, or listens when it is passive. After an end it starts again by itself.
    pub fn start(&mut self, now: Instant) {
        if !self.running {
            self.running = true;
            self.begin(now);
        }
    }

    /// Ends it for good, with a Cease of this subcode ([`cease`]) when there is a connection.
    pub fn stop(&mut self, now: Instant, subcode: u8) {
        self.stop_with(now, Notification::bare(code::CEASE, subcode));
    }

    /// Ends it for good with any NOTIFICATION: a Cease with a text, a hard reset.
    pub fn stop_with(&mut self, now: Instant, last: Notification) {
        self.running = false;
        self.timers.idle_hold = None;
        match self.state {
            State::Idle => {}
            State::Connect | State::Active => self.end(now, Cause::LocalStop(None), None),
            _ => self.end(now, Cause::LocalStop(Some(last.clone())), Some(last)),
        }
    }

    /// Ends it with a NOTIFICATION if there is a connection; it starts again after the IdleHoldTime.
    pub fn reset(&mut self, now: Instant, why: Notification) {
        if self.state >= State::OpenSent {
            self.end(now, Cause::SentNotification(why.clone()), Some(why));
        }
    }

    /// Resets the connection without a word, as a speaker that dies does; it starts again after the IdleHoldTime.
    pub fn abort(&mut self, now: Instant) {
        if self.state >= State::OpenSent {
            self.timers.linger = None;
            self.tcp_actions.push_back(TcpAction::Abort);
            self.finish(now, Cause::LocalAbort);
        }
    }

    fn begin(&mut self, now: Instant) {
        self.abort_unwritten();
        if self.config.passive {
            self.go(now, State::Active, None);
            self.tcp_actions.push_back(TcpAction::Listen);
        } else {
            self.go(now, State::Connect, None);
            self.timers.start_connect_retry(now, self.config.connect_retry);
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
    }

    /// Ends what there is: the connection after `last` is sent, or the attempt at one.
    fn end(&mut self, now: Instant, cause: Cause, last: Option<Notification>) {
        match self.state {
            State::Connect => self.tcp_actions.push_back(TcpAction::Abort),
            State::OpenSent | State::OpenConfirm | State::Established => {
                match last {
                    Some(last) => {
                        let mut message = vec![0; last.message_len()];
                        last.emit(&mut message);
                        if self.state == State::OpenConfirm {
                            // It would be taken for a consent.
                            self.out.retain(|waits| waits[HEADER_LEN - 1] != kind::KEEPALIVE);
                        }
                        self.out.push_back(message);
                    }
                    // Nobody is there to read it.
                    None => self.out.clear(),
                }
                self.timers.linger = Some(now + LINGER);
                self.close_if_written();
            }
            State::Idle | State::Active => {}
        }
        self.finish(now, cause);
    }

    /// Idle from now on; the connection is gone or being closed.
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

    /// What the transport shall do now; to be asked until it is [`TcpAction::None`]. Timers that are due run.
    pub fn poll(&mut self, now: Instant) -> TcpAction {
        self.run_timers(now);
        self.tcp_actions.pop_front().unwrap_or(TcpAction::None)
    }

    /// When [`Session::poll`] wants to be called again; `Instant(0)` for at once.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.tcp_actions.is_empty() { self.timers.next() } else { Some(Instant(0)) }
    }

    /// There is a connection, whoever opened it; an attempt of this speaker beside it is the transport's to end. False when
    /// none is wanted: the transport has to reset it, or to hand it to a second session (see [`super::collision`]).
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

    /// The connection is gone, or the attempt has failed. What was received before belongs to [`Session::receive`] first.
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

    /// Takes what the peer sent, the front of what has not been consumed, and gives how many bytes are consumed: whole messages, or all
    /// when the session ends over one of them. The bodies of UPDATEs go to `updates`.
    pub fn receive(&mut self, now: Instant, bytes: &[u8], updates: Updates<'_>) -> usize {
        let mut consumed = 0;
        while self.state >= State::OpenSent {
            match self.take(now, &bytes[consumed..], updates) {
                Ok(0) => return consumed,
                Ok(length) => consumed += length,
                Err((cause, answer)) => self.end(now, cause, answer),
            }
        }
        bytes.len()
    }

    /// Writes control messages that wait to the front of `buffer`, whole ones only, and gives their length. A NOTIFICATION is
    /// the last one. While the session is Established, UPDATEs may be written after what this has written.
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

    /// Is there something to [`Session::write`]?
    pub fn wants_write(&self) -> bool {
        !self.out.is_empty()
    }

    /// UPDATEs were sent: no KEEPALIVE is needed for a while.
    pub fn wrote(&mut self, now: Instant) {
        self.restart_keepalive(now);
    }

    /// Asks the peer for all its routes of `family`. False when the session is not Established, or not for it.
    pub fn request_refresh(&mut self, family: AfiSafi) -> bool {
        let can = self.negotiated.as_ref().is_some_and(|n| n.route_refresh && n.has(family));
        if can && self.state == State::Established {
            let mut message = vec![0; route_refresh::LEN];
            RouteRefresh::request(family).emit(&mut message);
            // One that still waits asks for the same.
            if !self.out.contains(&message) {
                self.out.push_back(message);
            }
            return true;
        }
        false
    }

    /// Has the peer asked for all routes of `family` since this was asked last?
    pub fn refresh_requested(&mut self, family: AfiSafi) -> bool {
        let before = self.refreshes.len();
        self.refreshes.retain(|asked| *asked != family);
        self.refreshes.len() < before
    }

    /// Queues a KEEPALIVE unless one still waits.
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

    /// What it was made with.
    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// What is agreed on, from OpenConfirm to the end.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.negotiated.as_ref()
    }

    /// Why the last session ended or the last attempt failed.
    pub fn ended(&self) -> Option<&Cause> {
        self.ended.as_ref().map(|(_, cause)| cause)
    }

    /// When that was.
    pub fn ended_at(&self) -> Option<Instant> {
        self.ended.as_ref().map(|(at, _)| *at)
    }

    /// When and why it was last lost after it had been Established; attempts that failed since do not count.
    pub fn lost(&self) -> Option<(Instant, &Cause)> {
        self.lost.as_ref().map(|(at, cause)| (*at, cause))
    }

    /// Since when it is Established.
    pub fn established_at(&self) -> Option<Instant> {
        self.established
    }

    /// The last changes of state, at most [`EVENTS_MAX`], oldest first.
    pub fn events(&self) -> impl ExactSizeIterator<Item = &Event> {
        self.events.iter()
    }

    /// How many older ones are forgotten.
    pub fn events_dropped(&self) -> u64 {
        self.events_dropped
    }

    /// Messages written by [`Session::write`], over all connections.
    pub fn sent(&self) -> Counters {
        self.sent
    }

    /// Messages received, over all connections, wrong ones too if their header is right.
    pub fn received(&self) -> Counters {
        self.received
    }
}

/// The Cease by which the loser of a collision is closed.
pub(super) fn collision() -> Notification {
    Notification::bare(code::CEASE, cease::CONNECTION_COLLISION)
}
