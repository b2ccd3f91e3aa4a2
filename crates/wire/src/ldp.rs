//! LDP (RFC 5036): PDUs and messages as bytes.
//!
//! [`pdu`] splits a TCP byte stream into PDUs and packs messages into PDUs; [`message`] parses and writes the messages, [`fec`] their FEC
//! elements. An error in received bytes is returned as the [`Status`] with which the RFC says to answer.

pub mod fec;
pub mod message;
pub mod pdu;
pub mod status;
mod tlv;

pub use crate::numbers::ldp_message as kind;
pub use fec::{FecElement, Fecs, PrefixFec};
pub use message::{Addresses, Capabilities, Hello, Initialization, Message};
pub use pdu::{Pdu, PduWriter, RawMessage, frame, parse_hello};
pub use status::Status;

use std::fmt;
use std::net::Ipv4Addr;

/// The UDP port of hellos, and the TCP port of sessions.
pub const PORT: u16 = 646;
/// The group of all routers on the subnet, to which link hellos go.
pub const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);

/// LDP identifier (RFC 5036 section 2.2.2): `192.0.2.1:0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LdpId {
    /// Identifies the LSR.
    pub lsr: Ipv4Addr,
    /// Label space of the LSR; 0 is the platform-wide one.
    pub space: u16,
}

impl LdpId {
    /// The platform-wide label space of an LSR.
    pub const fn platform(lsr: Ipv4Addr) -> LdpId {
        LdpId { lsr, space: 0 }
    }

    fn from_bytes(bytes: [u8; 6]) -> LdpId {
        let [a, b, c, d, high, low] = bytes;
        LdpId { lsr: Ipv4Addr::new(a, b, c, d), space: u16::from_be_bytes([high, low]) }
    }

    fn to_bytes(self) -> [u8; 6] {
        let ([a, b, c, d], [high, low]) = (self.lsr.octets(), self.space.to_be_bytes());
        [a, b, c, d, high, low]
    }
}

impl fmt::Display for LdpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.lsr, self.space)
    }
}

/// A generic label (RFC 5036 section 3.4.2.1): 16 to 1,048,575, or a null label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(u32);

impl Label {
    /// IPv4 explicit null (RFC 3032).
    pub const EXPLICIT_NULL: Label = Label(0);
    /// IPv6 explicit null (RFC 3032).
    pub const IPV6_EXPLICIT_NULL: Label = Label(2);
    /// Implicit null: the peer pops the label (RFC 3032).
    pub const IMPLICIT_NULL: Label = Label(3);
    /// Largest label.
    pub const MAX: u32 = 0x000f_ffff;

    /// `None` for values that LDP cannot advertise: reserved values, and values of more than 20 bits.
    pub const fn new(value: u32) -> Option<Label> {
        match value {
            0 | 2 | 3 | 16..=Label::MAX => Some(Label(value)),
            _ => None,
        }
    }

    /// Its value.
    pub const fn value(self) -> u32 {
        self.0
    }
}
