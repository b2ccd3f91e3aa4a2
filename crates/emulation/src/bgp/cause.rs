//! Why a session or an attempt at one ended.

use drophammer_wire::bgp::Notification;
use std::fmt;
use std::time::Duration;

/// How a TCP connection, or the attempt at one, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The peer closed it in order (FIN).
    ByPeer,
    /// The peer reset it (RST).
    Reset,
    /// No listener (RST in reply to SYN).
    Refused,
    /// No route to the peer (ICMP, or no answer to ARP or Neighbor Discovery).
    Unreachable,
    /// No answer for too long.
    TimedOut,
}

/// Why a session ended, or why it did not come up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The peer sent this NOTIFICATION.
    PeerNotification(Notification),
    /// This speaker sent this NOTIFICATION on its own initiative (reset, collision).
    SentNotification(Notification),
    /// The peer sent malformed bytes, or a message that is unexpected in this state; `0` is the NOTIFICATION sent.
    Malformed(Notification),
    /// The peer's OPEN is valid but not acceptable.
    Rejected {
        /// The NOTIFICATION sent.
        answer: Notification,
        /// A clause: `the peer says AS 65010, but AS 65000 was expected`.
        why: String,
    },
    /// No message was received within the hold time; the peer was notified.
    HoldTimerExpired(Duration),
    /// The connection was closed in order, without a NOTIFICATION.
    TcpClosed,
    /// The connection was reset.
    TcpReset,
    /// The peer does not listen.
    Refused,
    /// There is no route to the peer.
    Unreachable,
    /// The peer does not answer.
    TimedOut,
    /// [`super::Session::stop`], with the NOTIFICATION sent, if there was a connection.
    LocalStop(Option<Notification>),
    /// [`super::Session::abort`]: the connection was reset without a NOTIFICATION.
    LocalAbort,
    /// The OPEN of this speaker cannot be encoded.
    BadConfiguration(&'static str),
}

impl Cause {
    /// The NOTIFICATION that was sent or received, if there was one.
    pub fn notification(&self) -> Option<&Notification> {
        match self {
            Cause::PeerNotification(notification)
            | Cause::SentNotification(notification)
            | Cause::Malformed(notification)
            | Cause::Rejected { answer: notification, .. } => Some(notification),
            Cause::LocalStop(notification) => notification.as_ref(),
            _ => None,
        }
    }
}

impl From<Closed> for Cause {
    fn from(how: Closed) -> Cause {
        match how {
            Closed::ByPeer => Cause::TcpClosed,
            Closed::Reset => Cause::TcpReset,
            Closed::Refused => Cause::Refused,
            Closed::Unreachable => Cause::Unreachable,
            Closed::TimedOut => Cause::TimedOut,
        }
    }
}

impl fmt::Display for Cause {
    /// A sentence without its full stop.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::PeerNotification(notification) => write!(f, "the peer ended the session: {notification}"),
            Cause::SentNotification(notification) => write!(f, "the tester ended the session: {notification}"),
            Cause::Malformed(notification) => write!(f, "the peer sent a message that is not allowed: {notification}"),
            Cause::Rejected { answer, why } => write!(f, "{why}: {answer}"),
            Cause::HoldTimerExpired(hold) => {
                write!(f, "nothing was heard from the peer for the hold time of {} s", hold.as_secs())
            }
            Cause::TcpClosed => f.write_str("the peer closed the TCP connection without a NOTIFICATION"),
            Cause::TcpReset => f.write_str("the TCP connection was reset"),
            Cause::Refused => f.write_str("the peer refuses TCP connections"),
            Cause::Unreachable => f.write_str("the peer cannot be reached"),
            Cause::TimedOut => f.write_str("the peer does not answer on TCP"),
            Cause::LocalStop(Some(notification)) => write!(f, "the tester stopped the session: {notification}"),
            Cause::LocalStop(None) => f.write_str("the tester stopped before there was a session"),
            Cause::LocalAbort => f.write_str("the tester reset the TCP connection on purpose"),
            Cause::BadConfiguration(why) => write!(f, "the tester cannot write its OPEN: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_sentences() {
        let notification = Notification::cease(2, "bye");
        let text = Cause::PeerNotification(notification.clone()).to_string();
        assert_eq!(text, "the peer ended the session: Cease / Administrative Shutdown (6/2): \"bye\"");
        assert_eq!(Cause::from(Closed::Reset), Cause::TcpReset);
        assert_eq!(Cause::LocalStop(Some(notification.clone())).notification(), Some(&notification));
        assert_eq!(Cause::HoldTimerExpired(Duration::from_secs(9)).notification(), None);
    }
}
