//! Conditions that end serving the emulated devices.

use crate::hosts::{Hosts, ProtocolPlace, SessionIndex};
use drophammer_emulation::bgp::{ExpectationId, Routers};
use drophammer_model::Instant;

/// Condition for the rig to stop serving its devices. It is checked whenever the devices may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Until {
    /// This instant on the clock of the ports.
    At(Instant),
    /// All devices have resolved the MAC address of the DUT.
    Resolved,
    /// All sessions of this protocol are up, and there is at least one.
    Up(ProtocolPlace),
    /// At least this many sessions of this protocol are up.
    AtLeast(ProtocolPlace, u32),
    /// No session of this protocol is up, and the protocol has nothing more to send.
    Ended(ProtocolPlace),
    /// These sessions are Established.
    Established(Vec<SessionIndex>),
    /// These sessions are Idle, and their connections are gone.
    Idle(Vec<SessionIndex>),
    /// The DUT's TCP has acknowledged all UPDATEs of these sessions.
    Acknowledged(Vec<SessionIndex>),
    /// These sessions have received the routes of these expectations, all with the expected attributes, and no route
    /// that must be absent.
    Received(Vec<(SessionIndex, ExpectationId)>),
    /// A session came up or went down. The list contains true for each session of the rig that was up.
    SessionChange(Vec<bool>),
    /// All of these conditions are true.
    All(Vec<Until>),
    /// At least one of these conditions is true.
    Any(Vec<Until>),
}

impl Until {
    /// Returns this condition, with `end` as time limit.
    pub fn or_at(self, end: Instant) -> Until {
        Until::Any(vec![Until::At(end), self])
    }

    /// True if the condition is true at `now`.
    pub fn holds(&self, now: Instant, hosts: &Hosts) -> bool {
        let each = |sessions: &[SessionIndex], holds: fn(&Routers, usize) -> bool| {
            sessions
                .iter()
                .all(|session| hosts.session(*session).is_none_or(|(routers, router)| holds(routers, router)))
        };
        match self {
            Until::At(end) => now >= *end,
            Until::Resolved => hosts.unresolved().is_none(),
            Until::Up(place) => hosts.state(*place).is_some_and(|state| state.up > 0 && state.up >= state.sessions),
            Until::AtLeast(place, sessions) => hosts.state(*place).is_some_and(|state| state.up >= *sessions),
            Until::Ended(place) => hosts
                .protocol(*place)
                .is_none_or(|protocol| protocol.state().up == 0 && protocol.next_deadline().is_none()),
            Until::Established(sessions) => each(sessions, Routers::established),
            Until::Idle(sessions) => each(sessions, Routers::idle),
            Until::Acknowledged(sessions) => each(sessions, Routers::all_acknowledged),
            Until::Received(expectations) => expectations.iter().all(|(session, id)| {
                hosts.session(*session).is_none_or(|(routers, router)| {
                    let adj_rib_in = routers.adj_rib_in(router);
                    adj_rib_in.is_complete(*id) && adj_rib_in.report(*id).wrong == 0
                })
            }),
            Until::SessionChange(before) => hosts.up().ne(before.iter().copied()),
            Until::All(conditions) => conditions.iter().all(|condition| condition.holds(now, hosts)),
            Until::Any(conditions) => conditions.iter().any(|condition| condition.holds(now, hosts)),
        }
    }

    /// Returns the next instant after `now` at which the condition can become true without a change in the devices.
    pub(crate) fn next(&self, now: Instant) -> Instant {
        match self {
            Until::At(end) if *end > now => *end,
            Until::All(conditions) | Until::Any(conditions) => {
                conditions.iter().map(|condition| condition.next(now)).min().unwrap_or(Instant(u64::MAX))
            }
            _ => Instant(u64::MAX),
        }
    }
}
