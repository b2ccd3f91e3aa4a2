//! Headers and messages as bytes, without I/O: one file per header, the test signature, and [`stack`], which builds
//! frames from headers and finds headers in frames.
//!
//! Contract of every parser: any byte string is either parsed or refused with [`Malformed`]; none panics. Emitters
//! write into a buffer that the caller has sized with the header's `LEN` and panic only if it is shorter.

pub mod arp;
pub mod bgp;
pub mod checksum;
pub mod conversation;
pub mod ethernet;
pub mod frame;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod pcap;
pub mod signature;
pub mod stack;
pub mod udp;

pub use drophammer_model::mac::MacAddr;

/// Why bytes are not a valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Header: `ipv4`.
    pub header: &'static str,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "malformed {}: {}", self.header, self.reason)
    }
}

impl std::error::Error for Malformed {}

impl Malformed {
    /// `header` is invalid, because of `reason`.
    pub const fn new(header: &'static str, reason: &'static str) -> Self {
        Malformed { header, reason }
    }
}
