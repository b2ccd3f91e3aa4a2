//! TCP (RFC 9293) for many local addresses at once: IP packets and an instant in, IP packets and the next deadline out.
//!
//! A [`TcpStack`] is what speaks TCP behind one tester port. It has any number of hosts (local addresses, IPv4 and IPv6),
//! which open connections and accept them. Frames are not its business: [`link`] joins it to the Ethernet of a port,
//! and a [`crate::device::Device`] answers ARP and Neighbor Discovery for its addresses.
//!
//! Segments and timers are smoltcp's; nothing of it is visible outside. Each connection is found by its ends, is touched only
//! when a packet for it arrives, a deadline of it is due or the user acts, and waits in a heap otherwise: a thousand
//! idle peers cost next to nothing. Packets of the network are never trusted: what is not a whole TCP segment for one of
//! our addresses is ignored, half-open connections per listener and answers that wait are bounded.
//!
//! The same calls give the same packets, bit by bit: all that is chosen (sequence numbers, ports) follows from the seed and
//! the address of the host.

mod calls;
mod connection;
mod host;
pub mod link;
mod protection;
mod segment;
mod stack;
#[cfg(test)]
mod tests;

pub use protection::{Protection, Refusals};
pub use stack::TcpStack;

use std::time::Duration;

/// What all connections of a stack have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// Longest IP packet sent, in bytes; the MSS follows from it. Longer ones are taken all the same.
    pub mtu: usize,
    /// Seed of sequence numbers and ports.
    pub seed: u64,
    /// Bytes of a connection's send buffer: what is not yet acknowledged and what waits. There is no congestion control, so
    /// this is also the most that is under way.
    pub send_buffer: usize,
    /// Bytes of a connection's receive buffer, and so the window offered to its peer.
    pub receive_buffer: usize,
    /// How long a segment may wait for a second one until it is acknowledged (RFC 9293 section 3.8.6.3); `None`: not at all.
    pub ack_delay: Option<Duration>,
    /// Are segments with a wrong TCP checksum dropped? Segments of a peer in the same kernel arrive with only the
    /// pseudo-header summed unless its transmit offload is off: then this must be false.
    pub verify_checksums: bool,
    /// TTL or hop limit of what is sent.
    pub hop_limit: u8,
    /// How long a handshake may take.
    pub connect_timeout: Duration,
    /// How long a peer may be silent while something waits to be acknowledged.
    pub timeout: Duration,
    /// Connections per listener that may be half open or wait to be accepted; more are left unanswered.
    pub backlog: usize,
}

impl TcpConfig {
    /// Buffers of 256 KiB, checksums verified.
    pub fn new(mtu: usize, seed: u64) -> TcpConfig {
        TcpConfig {
            mtu,
            seed,
            send_buffer: 256 << 10,
            receive_buffer: 256 << 10,
            ack_delay: None,
            verify_checksums: true,
            hop_limit: 64,
            connect_timeout: connection::CONNECT_TIMEOUT,
            timeout: connection::TIMEOUT,
            backlog: 4096,
        }
    }
}

impl Default for TcpConfig {
    fn default() -> TcpConfig {
        TcpConfig::new(1500, 0)
    }
}

/// A connection of one stack. It never names another one, even after [`TcpStack::remove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    slot: u32,
    generation: u32,
}

/// A listening port of one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(u32);

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnState {
    /// The handshake is under way.
    Connecting,
    /// Data may come; data may be sent unless [`TcpStack::close`] was called.
    Established,
    /// The peer sends no more, but still takes data.
    PeerClosed,
    /// It is over. What came before can still be read.
    Closed(CloseReason),
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// The peer answered the first segment with RST: nobody listens there.
    Refused,
    /// The peer sent RST later.
    Reset,
    /// The peer did not answer for too long.
    TimedOut,
    /// The peer closed first, then this side.
    Peer,
    /// This side closed first or aborted.
    Local,
    /// It was never tried: the local address is no host of the stack, is of another family than the peer's, or has no port left.
    Unaddressable,
}

impl std::fmt::Display for CloseReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            CloseReason::Refused => "the peer refused the connection",
            CloseReason::Reset => "the peer reset the connection",
            CloseReason::TimedOut => "the peer did not answer",
            CloseReason::Peer => "the peer closed the connection",
            CloseReason::Local => "closed by this side",
            CloseReason::Unaddressable => "there is no such local address, or no port left",
        })
    }
}
