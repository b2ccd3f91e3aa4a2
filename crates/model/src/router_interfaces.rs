//! What routers of a system count at their interfaces (RFC 2863).

use serde::{Deserialize, Serialize};
use std::fmt;

/// Where a router counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InterfaceOf {
    /// An interface, by its index in the role.
    Interface(usize),
    /// A tunnel, by its index in the role.
    Tunnel(usize),
}

/// `interface 2`, `tunnel 0`
impl fmt::Display for InterfaceOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterfaceOf::Interface(index) => write!(f, "interface {index}"),
            InterfaceOf::Tunnel(index) => write!(f, "tunnel {index}"),
        }
    }
}

/// What one router counts at one interface since it was brought up. Only differences of two readings say something of a trial.
///
/// Packets are all that pass the interface, those of the router itself and of ARP included. A packet in a tunnel counts at the tunnel and at the
/// interface that the tunnel's packets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterInterface {
    /// Index of the router in its system, from 0.
    pub router: usize,
    /// Where.
    pub at: InterfaceOf,
    /// Packets that arrived.
    pub in_packets: u64,
    /// Packets that were sent.
    pub out_packets: u64,
    /// Octets that arrived: at a tunnel those of the IP packets that it carries, at an interface those of frames without FCS. Some interfaces leave the 14
    /// octets of Ethernet out as well (those of veth pairs), so rates in bits follow from packets and their sizes.
    pub in_bytes: u64,
    /// Octets that were sent, counted in the same way.
    pub out_bytes: u64,
}
