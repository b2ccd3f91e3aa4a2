//! A frame as a stack of headers: [`compile`] builds bytes from a description and returns the places of all fields,
//! checksums and the signature; [`locate`] finds headers in bytes; [`decode`] builds a description from bytes.
//!
//! ```text
//! [Header], size --compile--> bytes, places --locate--> Layers --decode--> [Header], size
//! ```
//!
//! Nothing here panics on bytes from the network. `locate` and the functions on [`Layers`] do not allocate.

mod checksums;
mod compile;
mod decode;
mod error;
mod extensions;
mod layers;
mod locate;
mod order;
mod place;

pub use checksums::{Checksum, ChecksumKind, Span, is_intact};
pub use compile::{Compiled, Payload, compile, fit};
pub use decode::{Decoded, decode};
pub use error::{Cause, StackError};
pub use layers::{Layer, Layers, MAX_LAYERS, Stop};
pub use locate::locate;
pub use place::Place;

#[cfg(test)]
mod tests;

/// Numbers of types and protocols that lead from one header to the next.
mod number {
    pub(super) use crate::ethernet::ethertype::{IPV4, IPV6, MPLS, VLAN};
    pub(super) use crate::ipv4::protocol::{GRE, ICMP, ICMPV6, TCP, UDP};

    /// 802.1ad service tag.
    pub(super) const SERVICE_VLAN: u16 = 0x88a8;
    /// TPID of a second tag before 802.1ad.
    pub(super) const OLD_SERVICE_VLAN: u16 = 0x9100;
    /// MPLS with an upstream-assigned label (RFC 5332).
    pub(super) const MPLS_UPSTREAM: u16 = 0x8848;
    /// Transparent Ethernet bridging: an Ethernet frame in GRE.
    pub(super) const BRIDGING: u16 = 0x6558;
    /// IPv4 in IP.
    pub(super) const IPV4_IN_IP: u8 = 4;
    /// IPv6 in IP.
    pub(super) const IPV6_IN_IP: u8 = 41;
    /// Hop-by-hop options of IPv6.
    pub(super) const HOP_BY_HOP: u8 = 0;
    /// Routing header of IPv6.
    pub(super) const ROUTING: u8 = 43;
    /// Fragment header of IPv6.
    pub(super) const FRAGMENT: u8 = 44;
    /// Destination options of IPv6.
    pub(super) const DESTINATION_OPTIONS: u8 = 60;
    /// Segment routing, a routing type (RFC 8754).
    pub(super) const SEGMENT_ROUTING: u8 = 4;
    /// Echo request and reply of ICMP.
    pub(super) const ECHO: [u8; 2] = [8, 0];
    /// Echo request and reply of ICMPv6.
    pub(super) const ECHO6: [u8; 2] = [128, 129];
    /// GRE: checksum present.
    pub(super) const GRE_CHECKSUM: u8 = 0x80;
    /// GRE: key present.
    pub(super) const GRE_KEY: u8 = 0x20;
    /// GRE: sequence number present.
    pub(super) const GRE_SEQUENCE: u8 = 0x10;
}
