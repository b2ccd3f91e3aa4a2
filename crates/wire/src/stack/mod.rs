//! A frame as a stack of headers: [`compile`] builds bytes from a description and returns the positions of all fields,
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
mod locate;
mod place;

pub use checksums::{Checksum, ChecksumKind, Span, is_intact};
pub use compile::{Compiled, Payload, compile, fit};
pub use decode::{Decoded, decode};
pub use error::{Cause, StackError};
pub use locate::{Layer, Layers, MAX_LAYERS, Stop, locate};
pub use place::Place;

#[cfg(test)]
mod tests;

/// Type and protocol numbers that lead from one header to the next.
mod number {
    pub(super) use crate::ethernet::ethertype::*;
    pub(super) use crate::ipv4::protocol::*;

    /// Segment routing, which is a routing type (RFC 8754).
    pub(super) const SEGMENT_ROUTING: u8 = 4;
    /// ICMP echo request and reply.
    pub(super) const ECHO: [u8; 2] = [8, 0];
    /// ICMPv6 echo request and reply.
    pub(super) const ECHO6: [u8; 2] = [128, 129];
    /// GRE: checksum present.
    pub(super) const GRE_CHECKSUM: u8 = 0x80;
    /// GRE: key present.
    pub(super) const GRE_KEY: u8 = 0x20;
    /// GRE: sequence number present.
    pub(super) const GRE_SEQUENCE: u8 = 0x10;
    /// UDP port of VXLAN (RFC 7348).
    pub(super) const VXLAN_PORT: u16 = 4_789;
    /// VXLAN: the network identifier is valid.
    pub(super) const VXLAN_VALID: u8 = 0x08;
    /// Length of a VXLAN header.
    pub(super) const VXLAN_LEN: usize = 8;
}
