//! One connection: a smoltcp socket, the reason for its end, and the time-outs for its peer.

use super::segment::{Sent, Tuple};
use super::{CloseReason, ConnState, ListenerId, TcpConfig};
use drophammer_model::Instant;
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use std::time::Duration;

/// Owner of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// The listener, during the handshake.
    Embryo(ListenerId),
    /// A listener; the connection waits to be accepted.
    Queued(ListenerId),
    /// The user.
    User,
    /// No owner; the stack drops the connection when it is closed.
    Nobody,
}

/// Maximum number of staged bytes if a ring buffer wraps. The longest message of the protocols above TCP fits (an
/// extended BGP message, RFC 8654).
pub(super) const STAGE: usize = 65_536;

pub(super) struct Connection {
    pub tuple: Tuple,
    pub host: usize,
    pub holder: Holder,
    pub sockets: SocketSet<'static>,
    handle: SocketHandle,
    /// True if the connection is in the list of connections that may have segments to send.
    pub dirty: bool,
    /// True if the connection is in the list of connections for the user.
    pub ready: bool,
    /// Earliest entry of the connection in the heap of deadlines.
    pub scheduled: Option<Instant>,
    ended: Option<CloseReason>,
    /// State when it was last observed.
    seen: State,
    peer_closed: bool,
    /// Time since which the peer has been silent although an answer is expected.
    silent_since: Option<Instant>,
    /// How long the peer may be silent while the connection is open, if that is longer than the time-out of the stack.
    pub patience: Duration,
    /// Bytes that the user has written.
    written: u64,
    pub sent: Sent,
}

impl Connection {
    pub fn new(tuple: Tuple, host: usize, holder: Holder, config: &TcpConfig) -> Connection {
        let buffer = |bytes: usize| SocketBuffer::new(vec![0; bytes.clamp(1 << 10, 1 << 29)]);
        let mut socket = Socket::new(buffer(config.receive_buffer), buffer(config.send_buffer));
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(
            config.ack_delay.map(|delay| smoltcp::time::Duration::from_micros(delay.as_micros() as u64)),
        );
        socket.set_hop_limit(Some(config.hop_limit.max(1)));
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let handle = sockets.add(socket);
        Connection {
            tuple,
            host,
            holder,
            sockets,
            handle,
            dirty: false,
            ready: false,
            scheduled: None,
            ended: None,
            seen: State::Closed,
            peer_closed: false,
            silent_since: None,
            patience: Duration::ZERO,
            written: 0,
            sent: Sent::default(),
        }
    }

    pub fn socket(&self) -> &Socket<'static> {
        self.sockets.get(self.handle)
    }

    pub fn socket_mut(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    pub fn state(&self) -> ConnState {
        if let Some(reason) = self.ended {
            return ConnState::Closed(reason);
        }
        match self.seen {
            State::Closed | State::Listen | State::SynSent | State::SynReceived => ConnState::Connecting,
            State::CloseWait | State::Closing | State::LastAck => ConnState::PeerClosed,
            State::Established | State::FinWait1 | State::FinWait2 | State::TimeWait => ConnState::Established,
        }
    }

    /// Detects a change of state; `reset` if a segment with RST caused it. Returns true if there was a change.
    pub fn observe(&mut self, reset: bool) -> bool {
        let (was, state) = (self.seen, self.socket().state());
        self.seen = state;
        let ended = match state {
            State::CloseWait => {
                self.peer_closed = true;
                None
            }
            State::TimeWait => Some(CloseReason::Local),
            State::Closed if !reset && self.peer_closed => Some(CloseReason::Peer),
            State::Closed if !reset => Some(CloseReason::Local),
            State::Closed if matches!(was, State::SynSent | State::SynReceived) => Some(CloseReason::Refused),
            State::Closed => Some(CloseReason::Reset),
            _ => None,
        };
        self.ended = self.ended.or(ended);
        was != state
    }

    /// Ends the connection immediately; the next packets include an RST to the peer, if it knows the connection.
    pub fn abort(&mut self, reason: CloseReason) {
        self.ended.get_or_insert(reason);
        self.socket_mut().abort();
        self.observe(false);
    }

    /// Records a packet from the peer.
    pub fn heard(&mut self, now: Instant) {
        // Repeated SYNs do not keep a handshake alive.
        if !matches!(self.seen, State::SynSent | State::SynReceived) {
            self.silent_since = self.silent_since.map(|_| now);
        }
    }

    /// The time when the stack gives the connection up unless the peer sends; `None` if no answer is expected.
    pub fn gives_up_at(&mut self, now: Instant, config: &TcpConfig) -> Option<Instant> {
        let opens = matches!(self.seen, State::SynSent | State::SynReceived);
        let closes = matches!(self.seen, State::FinWait1 | State::Closing | State::LastAck)
            || self.seen == State::FinWait2 && self.holder == Holder::Nobody;
        let open = !matches!(self.seen, State::Closed | State::Listen | State::TimeWait);
        if !(open && (opens || closes || self.socket().send_queue() > 0)) {
            self.silent_since = None;
            return None;
        }
        let since = *self.silent_since.get_or_insert(now);
        Some(match () {
            () if opens => since + config.connect_timeout,
            () if closes => since + config.timeout,
            () => since + config.timeout.max(self.patience),
        })
    }

    /// True if the connection will neither send nor receive again.
    pub fn is_over(&self) -> bool {
        self.socket().state() == State::Closed && self.socket().remote_endpoint().is_none()
    }

    /// True if the peer may open a new connection with the same ends (RFC 9293 section 3.6.1).
    pub fn may_be_replaced(&self) -> bool {
        matches!(self.socket().state(), State::Closed | State::TimeWait)
    }

    pub fn can_send(&self) -> usize {
        let socket = self.socket();
        if socket.may_send() { socket.send_capacity() - socket.send_queue() } else { 0 }
    }

    /// Offers the free space in the send buffer in one piece, or at least [`STAGE`] bytes of it.
    pub fn send_with(&mut self, stage: &mut Vec<u8>, fill: &mut dyn FnMut(&mut [u8]) -> usize) -> usize {
        let free = self.can_send();
        if free == 0 {
            return 0;
        }
        let wanted = free.min(STAGE);
        let socket = self.socket_mut();
        let direct = socket.send(|room| {
            let filled = (room.len() >= wanted).then(|| fill(room).min(room.len()));
            (filled.unwrap_or(0), filled)
        });
        let written = match direct {
            Ok(Some(filled)) => filled,
            // The ring buffer wraps before that: a writer of whole messages needs a contiguous buffer.
            Ok(None) => {
                stage.resize(stage.len().max(wanted), 0);
                let filled = fill(&mut stage[..wanted]).min(wanted);
                socket.send_slice(&stage[..filled]).unwrap_or(0)
            }
            Err(_) => 0,
        };
        self.written += written as u64;
        written
    }

    /// Written bytes that have never been sent.
    pub fn unsent(&self) -> u64 {
        self.written.saturating_sub(self.sent.bytes)
    }

    /// Passes received bytes to the user until the user takes no more. If the ring buffer wraps, the user gets the rest
    /// before the wrap again, together with the bytes after it.
    pub fn receive_with(&mut self, stage: &mut Vec<u8>, take: &mut dyn FnMut(&[u8]) -> usize) -> usize {
        let socket = self.socket_mut();
        let mut total = 0;
        while socket.recv_queue() > 0 {
            let Ok((taken, left)) = socket.recv(|bytes| {
                let taken = take(bytes).min(bytes.len());
                (taken, (taken, bytes.len() - taken))
            }) else {
                break;
            };
            total += taken;
            if left == 0 {
                continue;
            }
            let queued = socket.recv_queue();
            if queued == left || left >= STAGE {
                break;
            }
            let shown = queued.min(left + STAGE);
            stage.resize(stage.len().max(shown), 0);
            let shown = socket.peek_slice(&mut stage[..shown]).unwrap_or(0);
            let taken = take(&stage[..shown]).min(shown);
            let mut rest = taken;
            while rest > 0 {
                match socket.recv(|bytes| (rest.min(bytes.len()), rest.min(bytes.len()))) {
                    Ok(n) if n > 0 => rest -= n,
                    _ => break,
                }
            }
            total += taken - rest;
            if taken <= left {
                break;
            }
        }
        total
    }
}

/// Time-out of a handshake.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Time-out of an established connection (RFC 9293 section 3.8.3).
pub(super) const TIMEOUT: Duration = Duration::from_secs(100);
