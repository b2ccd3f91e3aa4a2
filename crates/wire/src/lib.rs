//! Headers and messages as bytes, without I/O: one file per header, the test signature, and [`stack`], which builds
//! frames from headers and finds headers in frames.
//!
//! Contract of every parser: it parses any byte string or refuses it with [`Malformed`], and never panics. Emitters
//! write into a buffer that the caller has sized with the header's `LEN`, and panic only if it is shorter.
//!
//! # Frames
//!
//! A frame is a stack of headers (`model::traffic::Header`). Each field is a value, a list, an increment, or
//! pseudo-random values that are the same in every trial. Lengths, types and checksums that are not specified are
//! derived from the rest of the stack. Specified ones are sent unchanged, so invalid frames can be built. `wire::stack`
//! converts:
//!
//! - `compile(headers, size, payload)` builds a frame, with the position of every field (`Place`), the checksums to
//!   keep correct (`Checksum`) and the position of the signature. An impossible stack is a `StackError` with header,
//!   cause and remedy; `fit` returns the next size that is large enough.
//! - `locate(bytes)` finds the headers of a received frame (`Layers`, at most 16, no allocation, no panic) and its
//!   payload without padding.
//! - `decode(bytes)` returns a description from which `compile` builds the same bytes. Headers that it cannot describe
//!   stay raw.
//!
//! `wire/tests/independent/header_stacks.rs` and the fuzz target `stack` compare these functions with each other,
//! `wire/tests/independent/stack_tshark.rs` compares them with tshark. The kernel programs of `port` take the layout of a test
//! frame from `compile` (`port/src/bpf/plain.rs`). `model::Medium` defines what a line adds to each frame (20 bytes for
//! Ethernet; PPP over SONET is also supported).
//!
//! Every test frame has a signature in the last 12 bytes of its UDP payload ([`mod@signature`]), which fits into an IP
//! packet of 40 bytes. `traffic/src/recognize.rs` selects candidates by UDP port or signature behind any headers. The
//! analyzer then verifies the signature.

pub mod arp;
pub mod bfd;
pub mod bgp;
pub mod checksum;
pub mod conversation;
pub mod ethernet;
pub mod frame;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod ldp;
mod numbers;
pub mod ospf;
pub mod pcap;
pub mod rsvp;
pub mod signature;
pub mod stack;
pub mod udp;

pub use drophammer_model::mac::MacAddr;

/// The reason why bytes are not a valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Name of the header, for example `ipv4`.
    pub header: &'static str,
    /// What is wrong with the header.
    pub reason: &'static str,
}

/// Returns the MAC address at offset `at`.
#[inline]
fn mac_at(bytes: &[u8], at: usize) -> MacAddr {
    let mut mac = [0; 6];
    mac.copy_from_slice(&bytes[at..at + 6]);
    MacAddr(mac)
}

/// Returns the IPv6 address at offset `at`.
fn ipv6_at(bytes: &[u8], at: usize) -> std::net::Ipv6Addr {
    let mut address = [0; 16];
    address.copy_from_slice(&bytes[at..at + 16]);
    address.into()
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "malformed {}: {}", self.header, self.reason)
    }
}

impl std::error::Error for Malformed {}

impl Malformed {
    /// Creates the error that `header` is invalid because of `reason`.
    pub const fn new(header: &'static str, reason: &'static str) -> Self {
        Malformed { header, reason }
    }
}
