//! OSPF version 2 (RFC 2328): packets and LSAs as bytes.
//!
//! [`packet`] has the header that all packets share, with their authentication (appendix D); [`hello`], [`exchange`] and
//! [`lsa`] have the bodies of packets, [`body`] the bodies of LSAs. Lists in received packets stay bytes that are read on
//! demand, so a parser allocates nothing.

pub mod body;
pub mod exchange;
pub mod hello;
pub mod lsa;
pub mod packet;

pub use body::{Body, External, Network, Router, RouterLink, Summary};
pub use exchange::{DatabaseDescription, LinkStateAck, LinkStateRequest, LinkStateUpdate};
pub use hello::Hello;
pub use lsa::{Lsa, LsaHeader, LsaKey};
pub use packet::{Authentication, Header, Opened};

use std::net::Ipv4Addr;

/// Group of all OSPF routers (appendix A.1).
pub const ALL_SPF_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 5);
/// Group of the Designated Router and the Backup Designated Router.
pub const ALL_D_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 6);

pub use crate::numbers::ospf_lsa as lsa_type;
pub use crate::numbers::ospf_option as option;
pub use crate::numbers::ospf_packet as kind;

/// The address at offset `at`.
fn address_at(bytes: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3])
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
