//! One session with one peer over one TCP connection: the state machine of RFC 5036 section 2.5.4.
//!
//! Its user creates it when the connection is established, passes received bytes to [`Session::receive`], runs [`Session::run_timers`],
//! and fills its send buffer with [`Session::write`]. When [`Session::ended`] has a cause, the user sends the notification, if any, and closes
//! the connection.

use super::config::LsrConfig;
pub use super::outbox::Outbox;
use crate::tcp::CloseReason;
use drophammer_model::Instant;
use drophammer_wire::ldp::pdu::DEFAULT_MAX;
use drophammer_wire::ldp::status::{Status, code};
use drophammer_wire::ldp::{Initialization, LdpId, Message, Pdu, PduWriter, frame, kind};
use std::fmt;
use std::time::Duration;

/// The session reads no more while this many bytes of answers wait to be sent.
const MOST_WAITING: usize = 4 << 20;

/// State of a session (RFC 5036 section 2.5.4); without a session, it is "non existent".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// The passive side waits for the peer's Initialization.
    Initialized,
    /// The active side has sent its Initialization.
    OpenSent,
    /// The peer's Initialization has been accepted; waiting for its KeepAlive.
    OpenRec,
    /// Labels may be exchanged.
    Operational,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// This side ends it with this notification.
    Sent(Status),
    /// The peer has ended it with this notification.
    Received(Status),
    /// The connection is gone.
    Connection(CloseReason),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Sent(status) => write!(f, "this side sent the notification {status}"),
            Cause::Received(status) => write!(f, "the peer sent the notification {status}"),
            Cause::Connection(reason) => reason.fmt(f),
        }
    }
}

/// What [`Session::receive`] passes to its user.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A message with its Message ID: addresses and labels while the session is Operational, the KeepAlive that makes it Operational, and
    /// notifications.
    Message(u32, Message<'a>),
    /// The session has notified the peer of this error in a message, and has ignored the message.
    Notified(Status),
}

/// Callback for events. It answers through the outbox.
pub type Events<'a> = &'a mut dyn FnMut(Event<'_>, &mut Outbox);

/// A session.
#[derive(Clone, Debug)]
pub struct Session {
    own: LdpId,
    peer: LdpId,
    proposed: Initialization,
    state: State,
    max_pdu: u16,
    keepalive: Duration,
    /// The peer has been silent for too long then.
    expires: Instant,
    /// A KeepAlive is due then.
    alive_due: Option<Instant>,
    outbox: Outbox,
    ended: Option<Cause>,
}

impl Session {
    /// A session of the LSR `own` with `peer` over a new connection. The active side has opened the connection.
    pub fn new(now: Instant, config: &LsrConfig, peer: LdpId, active: bool) -> Session {
        let keepalive = Duration::from_secs(config.keepalive.into());
        let mut session = Session {
            own: LdpId::platform(config.lsr_id),
            peer,
            proposed: Initialization { max_pdu: config.max_pdu, ..Initialization::new(config.keepalive, peer) },
            state: if active { State::OpenSent } else { State::Initialized },
            max_pdu: DEFAULT_MAX,
            keepalive,
            expires: now + keepalive,
            alive_due: None,
            outbox: Outbox::default(),
            ended: None,
        };
        if active {
            session.outbox.push(&Message::Initialization(session.proposed));
        }
        session
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Why the session must end.
    pub fn ended(&self) -> Option<Cause> {
        self.ended
    }

    /// The negotiated keepalive time.
    pub fn keepalive(&self) -> Duration {
        self.keepalive
    }

    /// The negotiated maximum PDU Length in bytes.
    pub fn max_pdu(&self) -> u16 {
        self.max_pdu
    }

    /// Messages that wait to be sent.
    pub fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// True if messages wait to be sent.
    pub fn wants_write(&self) -> bool {
        self.outbox.waiting() > 0
    }

    /// True if it reads no more until waiting messages have been sent.
    pub fn is_full(&self) -> bool {
        self.outbox.waiting() >= MOST_WAITING
    }

    /// Handles bytes from the peer, starting with the first one not consumed yet, and returns the number of consumed bytes: whole PDUs.
    pub fn receive(&mut self, now: Instant, bytes: &[u8], events: Events<'_>) -> usize {
        let mut consumed = 0;
        while self.ended.is_none() && !self.is_full() {
            let done = match frame(&bytes[consumed..], self.max_pdu) {
                Ok(None) => break,
                Ok(Some(pdu)) => {
                    consumed += pdu.pdu_len();
                    self.take(now, &pdu, events)
                }
                Err(status) => Err(status),
            };
            if let Err(status) = done {
                self.ended = Some(Cause::Sent(status));
            }
        }
        consumed
    }

    /// Handles a PDU. An error ends the session.
    fn take(&mut self, now: Instant, pdu: &Pdu<'_>, events: Events<'_>) -> Result<(), Status> {
        if pdu.id != self.peer {
            return Err(Status::new(code::BAD_LDP_IDENTIFIER));
        }
        self.expires = now + self.keepalive;
        for raw in pdu.messages() {
            let raw = raw?;
            let opens = matches!(raw.kind, kind::NOTIFICATION | kind::INITIALIZATION | kind::KEEPALIVE);
            let parsed = raw.parse();
            // Before the session is Operational, bit U does not count, and nothing is ignored (RFC 5036 section 2.5.3).
            if self.state != State::Operational && !(opens && parsed.is_ok_and(|found| found.is_some())) {
                let fatal = parsed.err().filter(|status| opens && status.fatal);
                return Err(fatal.unwrap_or(Status::new(code::SHUTDOWN).about(raw.id, raw.kind)));
            }
            match parsed {
                Ok(Some(message)) => {
                    self.handle(now, raw.id, message, events).map_err(|status| status.about(raw.id, raw.kind))?;
                }
                Ok(None) => {}
                Err(status) if status.fatal => return Err(status),
                Err(status) => {
                    self.outbox.push(&Message::Notification(status));
                    events(Event::Notified(status), &mut self.outbox);
                }
            }
            if self.ended.is_some() {
                break;
            }
        }
        Ok(())
    }

    fn handle(&mut self, now: Instant, id: u32, message: Message<'_>, events: Events<'_>) -> Result<(), Status> {
        match (self.state, message) {
            (_, Message::Notification(status)) if status.fatal || self.state == State::Operational => {
                if status.fatal {
                    self.ended = Some(Cause::Received(status));
                }
                events(Event::Message(id, message), &mut self.outbox);
            }
            (State::Initialized | State::OpenSent, Message::Initialization(theirs)) => self.negotiate(now, theirs)?,
            (State::OpenRec, Message::KeepAlive) => {
                self.state = State::Operational;
                events(Event::Message(id, message), &mut self.outbox);
            }
            // Section 2.5.4: an Operational session stays Operational, whatever else arrives.
            (State::Operational, Message::KeepAlive | Message::Hello(_) | Message::Initialization(_)) => {}
            (State::Operational, _) => events(Event::Message(id, message), &mut self.outbox),
            _ => return Err(Status::new(code::SHUTDOWN)),
        }
        Ok(())
    }

    /// Accepts the peer's parameters (RFC 5036 section 3.5.3).
    fn negotiate(&mut self, now: Instant, theirs: Initialization) -> Result<(), Status> {
        if theirs.receiver != self.own {
            return Err(Status::new(code::NO_HELLO));
        }
        if theirs.keepalive == 0 {
            return Err(Status::new(code::BAD_KEEPALIVE_TIME));
        }
        self.keepalive = Duration::from_secs(theirs.keepalive.min(self.proposed.keepalive).into());
        let their_max = if theirs.max_pdu <= 255 { DEFAULT_MAX } else { theirs.max_pdu };
        self.max_pdu = their_max.min(self.proposed.max_pdu);
        if self.state == State::Initialized {
            self.outbox.push(&Message::Initialization(self.proposed));
        }
        self.outbox.push(&Message::KeepAlive);
        self.state = State::OpenRec;
        self.expires = now + self.keepalive;
        self.alive_due = Some(now + self.keepalive / 3);
        Ok(())
    }

    /// Handles timers that have expired at `now`.
    pub fn run_timers(&mut self, now: Instant) {
        if self.expires <= now && self.ended.is_none() {
            self.ended = Some(Cause::Sent(Status::new(code::KEEPALIVE_TIMER_EXPIRED)));
        }
        if self.alive_due.is_some_and(|due| due <= now) {
            self.alive_due = Some(now + self.keepalive / 3);
            // Waiting messages also show the peer that this side is alive.
            if !self.wants_write() {
                self.outbox.push(&Message::KeepAlive);
            }
        }
    }

    /// When [`Session::run_timers`] has work.
    pub fn next_deadline(&self) -> Instant {
        self.alive_due.map_or(self.expires, |due| due.min(self.expires))
    }

    /// Writes waiting messages to the front of `room` as whole PDUs; if none are left and the session is Operational, `more` adds messages
    /// with IDs of the outbox. Returns the number of written bytes.
    pub fn write(&mut self, now: Instant, room: &mut [u8], more: &mut dyn FnMut(&mut PduWriter, &mut Outbox)) -> usize {
        let mut pdus = PduWriter::new(room, self.own, self.max_pdu);
        self.outbox.send(&mut pdus);
        if self.state == State::Operational && !self.wants_write() {
            more(&mut pdus, &mut self.outbox);
        }
        let written = pdus.written();
        if written > 0 {
            self.alive_due = self.alive_due.map(|_| now + self.keepalive / 3);
        }
        written
    }
}
