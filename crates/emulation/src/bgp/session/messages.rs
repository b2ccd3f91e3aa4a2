//! Effect of each message in each state.

use super::{Cause, Negotiated, Session, State, Updates};
use drophammer_model::Instant;
use drophammer_wire::bgp::message::{MAX_LEN, kind};
use drophammer_wire::bgp::notification::{Notification, code, fsm, header};
use drophammer_wire::bgp::{Message, Open, RouteRefresh, frame, route_refresh::subtype};

/// The end of a session and the NOTIFICATION to send.
pub(super) type End = (Cause, Option<Notification>);

fn malformed(answer: Notification) -> End {
    (Cause::Malformed(answer.clone()), Some(answer))
}

impl Session {
    /// Handles one message and returns its length; 0 if it is not complete yet.
    pub(super) fn take(&mut self, now: Instant, bytes: &[u8], updates: Updates<'_>) -> Result<usize, End> {
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
            _ => self.in_established(now, message, updates)?,
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

    fn in_established(&mut self, now: Instant, message: Message<'_>, updates: Updates<'_>) -> Result<(), End> {
        let Some(negotiated) = &self.negotiated else { return Ok(()) };
        match message.kind {
            kind::UPDATE => updates(message.body, negotiated).map_err(malformed)?,
            kind::KEEPALIVE => {}
            kind::ROUTE_REFRESH if self.config.route_refresh => {
                let asked = RouteRefresh::parse(message.body).map_err(malformed)?;
                // Requests for families that are not negotiated, and unknown subtypes, are ignored (RFC 2918 section 4,
                // RFC 7313 section 5).
                let new = negotiated.has(asked.family) && !self.refreshes.contains(&asked.family);
                if new && asked.subtype == subtype::REQUEST {
                    self.refreshes.push(asked.family);
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
