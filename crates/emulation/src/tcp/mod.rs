//! TCP (RFC 9293) for many local addresses: the input is IP packets and an instant, the output is IP packets and the next
//! deadline.
//!
//! A [`TcpStack`] is the TCP behind one tester port. It has any number of hosts (local addresses, IPv4 and IPv6), which
//! open and accept connections. It does not handle frames: [`link`] connects it to the Ethernet of a port, and a
//! [`crate::device::Device`] answers ARP and Neighbor Discovery for its addresses.
//!
//! smoltcp makes the segments and runs the timers; it is not visible outside this module. A hash map finds a connection
//! by its two ends. The stack touches a connection only when a packet for it arrives, one of its deadlines is due or
//! the user acts; otherwise the connection waits in a heap, so a thousand idle peers cost almost nothing. The stack
//! trusts no packet from the network: it ignores everything except whole TCP segments for one of our addresses, and
//! limits half-open connections per listener and waiting answers.
//!
//! The same calls produce the same packets, bit for bit: all random choices (sequence numbers, ports) depend on the
//! seed and the address of the host.

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

/// Configuration of all connections of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// Longest sent IP packet in bytes, which determines the MSS. Longer packets are accepted.
    pub mtu: usize,
    /// Seed of sequence numbers and ports.
    pub seed: u64,
    /// Bytes of a connection's send buffer: unacknowledged and waiting bytes. There is no congestion control, so this
    /// is also the maximum number of bytes in flight.
    pub send_buffer: usize,
    /// Bytes of a connection's receive buffer, which is the window offered to its peer.
    pub receive_buffer: usize,
    /// Maximum time for which the acknowledgment of a segment waits for a second segment (RFC 9293 section 3.8.6.3);
    /// `None` for no wait.
    pub ack_delay: Option<Duration>,
    /// If true, segments with a wrong TCP checksum are dropped. A peer in the same kernel whose transmit offload is on
    /// sends segments with only the pseudo-header summed; this must then be false.
    pub verify_checksums: bool,
    /// TTL or hop limit of sent packets.
    pub hop_limit: u8,
    /// Maximum duration of a handshake.
    pub connect_timeout: Duration,
    /// Maximum time for which a peer may be silent while sent data is unacknowledged.
    pub timeout: Duration,
    /// Maximum number of half-open connections and connections waiting to be accepted, per listener. Additional SYNs
    /// get no answer.
    pub backlog: usize,
}

impl TcpConfig {
    /// Uses buffers of 256 KiB, and verifies checksums.
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

/// Identifies a connection of one stack. It never refers to another connection, even after [`TcpStack::remove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    slot: u32,
    generation: u32,
}

/// Identifies a listening port of one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(u32);

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnState {
    /// The handshake is in progress.
    Connecting,
    /// Data may arrive. Data may be sent unless [`TcpStack::close`] was called.
    Established,
    /// The peer has ended sending, but still accepts data.
    PeerClosed,
    /// The connection is closed. Data that was received before can still be read.
    Closed(CloseReason),
}

/// The reason why a connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// The peer answered the first segment with RST: it has no listener on that port.
    Refused,
    /// The peer sent RST after the handshake.
    Reset,
    /// The peer did not answer for too long.
    TimedOut,
    /// The peer closed first, then this side.
    Peer,
    /// This side closed first or aborted.
    Local,
    /// The connection is not possible: the local address is not a host of the stack, has a different IP version from
    /// the peer's, or has no free port.
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
