//! Blocks of addresses: those for laboratories, and those that no router forwards.

use super::addresses::Prefix;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const fn v4(a: u8, b: u8, c: u8, d: u8, len: u8) -> (IpAddr, u8) {
    (IpAddr::V4(Ipv4Addr::new(a, b, c, d)), len)
}

const fn v6(a: u16, b: u16, len: u8) -> (IpAddr, u8) {
    (IpAddr::V6(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0)), len)
}

/// Blocks with no owner on the Internet: benchmarking (RFC 6815 asks for it), private, documentation.
pub(super) const HARMLESS: [(IpAddr, u8); 11] = [
    v4(198, 18, 0, 0, 15),
    v4(10, 0, 0, 0, 8),
    v4(172, 16, 0, 0, 12),
    v4(192, 168, 0, 0, 16),
    v4(192, 0, 2, 0, 24),
    v4(198, 51, 100, 0, 24),
    v4(203, 0, 113, 0, 24),
    v6(0x2001, 2, 48),
    v6(0xfc00, 0, 7),
    v6(0x2001, 0xdb8, 32),
    v6(0x3fff, 0, 20),
];

/// True if `address` is from a block with no owner on the Internet: benchmarking (RFC 2544 and RFC 5180), private,
/// documentation. Traffic of a tester must use no other addresses (RFC 6815).
pub fn is_lab_address(address: IpAddr) -> bool {
    HARMLESS.iter().any(|(block, len)| Prefix::around(*block, *len).contains(address))
}

/// Blocks that no router forwards as unicast: this network, loopback, link-local, multicast and what is above it.
pub(super) const UNUSABLE: [(IpAddr, u8); 8] = [
    v4(0, 0, 0, 0, 8),
    v4(127, 0, 0, 0, 8),
    v4(169, 254, 0, 0, 16),
    v4(224, 0, 0, 0, 3),
    v6(0, 0, 8),
    v6(0xfe80, 0, 10),
    v6(0xfec0, 0, 10),
    v6(0xff00, 0, 8),
];
