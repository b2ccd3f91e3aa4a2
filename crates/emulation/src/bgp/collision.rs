//! Collision of two connections with one peer (RFC 4271 section 6.8): each side has opened one, and one of the two must
//! close.
//!
//! The owner of the transport keeps a second [`Session`] for a connection that the peer opens while the first one is busy.
//! It calls [`resolve`] after every [`Session::receive`], and drops the closed session when its connection is gone.

use super::session::{Session, State, collision};
use drophammer_model::Instant;
use std::net::Ipv4Addr;

/// The side that opened a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initiator {
    /// This speaker.
    Local,
    /// The peer.
    Remote,
}

/// The side whose connection stays: the speaker with the higher BGP identifier, or, if identifiers are equal, with the higher AS
/// (RFC 6286 section 2.3). Each speaker is `(identifier, AS)`.
pub fn survivor(local: (Ipv4Addr, u32), peer: (Ipv4Addr, u32)) -> Initiator {
    if local > peer { Initiator::Local } else { Initiator::Remote }
}

/// If two sessions with the same peer collide, closes one session and returns which. `local` is on the connection that this
/// speaker opened. Sessions collide when one of them has received the peer's OPEN, which identifies the peer. So neither side
/// confirms a connection that must close, and the two sides cannot reach Established on different connections. If one session
/// is Established earlier, the other closes as soon as its OPEN is sent. The closed session does not start again.
pub fn resolve(now: Instant, local: &mut Session, remote: &mut Session) -> Option<Initiator> {
    if local.state().min(remote.state()) < State::OpenSent {
        return None;
    }
    let loser = match (local.state(), remote.state()) {
        (State::Established, State::OpenSent | State::OpenConfirm) => Initiator::Remote,
        (State::OpenSent | State::OpenConfirm, State::Established) => Initiator::Local,
        _ => {
            let agreed = local.negotiated().or(remote.negotiated())?;
            match survivor((agreed.local_id, agreed.local_as), (agreed.peer_id, agreed.peer_as)) {
                Initiator::Local => Initiator::Remote,
                Initiator::Remote => Initiator::Local,
            }
        }
    };
    match loser {
        Initiator::Local => local.stop_with(now, collision()),
        Initiator::Remote => remote.stop_with(now, collision()),
    }
    Some(loser)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_higher_identifier_then_the_higher_as() {
        let id = |last| Ipv4Addr::new(10, 0, 0, last);
        assert_eq!(survivor((id(200), 1), (id(100), 9)), Initiator::Local);
        assert_eq!(survivor((id(100), 9), (id(200), 1)), Initiator::Remote);
        assert_eq!(survivor((Ipv4Addr::new(9, 255, 0, 0), 1), (Ipv4Addr::new(10, 0, 0, 0), 1)), Initiator::Remote);
        assert_eq!(survivor((id(7), 9), (id(7), 1)), Initiator::Local);
        assert_eq!(survivor((id(7), 1), (id(7), 9)), Initiator::Remote);
    }
}
