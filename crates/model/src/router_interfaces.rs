//! Interface counters of the routers of a system (RFC 2863).

use serde::{Deserialize, Serialize};
use std::fmt;

/// The interface to which a counter belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InterfaceOf {
    /// An interface, by its index in the role.
    Interface(usize),
    /// A tunnel, by its index in the role.
    Tunnel(usize),
}

/// Display form: `interface 2`, `tunnel 0`.
impl fmt::Display for InterfaceOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterfaceOf::Interface(index) => write!(f, "interface {index}"),
            InterfaceOf::Tunnel(index) => write!(f, "tunnel {index}"),
        }
    }
}

/// Counters of one router at one interface since the router came up. Use the difference between two readings.
///
/// All packets that pass the interface count, including ARP and packets of the router itself. A packet in a tunnel
/// counts at the tunnel, and also at the interface that carries the tunnel's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterInterface {
    /// Index of the router in its system, from 0.
    pub router: usize,
    /// Interface or tunnel.
    pub at: InterfaceOf,
    /// Packets that arrived.
    pub in_packets: u64,
    /// Packets that were sent.
    pub out_packets: u64,
    /// Octets that arrived: of the inner IP packets at a tunnel, of frames without FCS at an interface. Some interfaces
    /// (veth pairs) also leave out the 14 octets of Ethernet, so compute bit rates from packets and their sizes.
    pub in_bytes: u64,
    /// Octets that were sent, counted in the same way.
    pub out_bytes: u64,
}
