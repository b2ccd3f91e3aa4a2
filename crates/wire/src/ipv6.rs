//! IPv6 (RFC 8200).
//!
//! ```text
//! +-------+---------------+---------------------------------------+
//! |Version| Traffic Class |           Flow Label                  |
//! +-------+---------------+-------+---------------+---------------+
//! |         Payload Length        |  Next Header  |   Hop Limit   |
//! +-------------------------------+---------------+---------------+
//! |                    Source Address (16)                        |
//! |                  Destination Address (16)                     |
//! +---------------------------------------------------------------+
//! ```

use crate::{Malformed, checksum, ipv6_at};
use std::net::Ipv6Addr;

/// Length of the fixed header in bytes.
pub const LEN: usize = 40;

/// The fixed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Next header.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
    /// Number of bytes after the header.
    pub payload_len: usize,
}

impl Repr {
    /// Parses and checks a packet: `(header, payload)`. The payload excludes padding, but includes extension headers.
    ///
    /// # Errors
    /// The version is not 6, or lengths are inconsistent.
    pub fn parse(packet: &[u8]) -> Result<(Repr, &[u8]), Malformed> {
        if packet.len() < LEN {
            return Err(Malformed::new("ipv6", "fewer than 40 bytes"));
        }
        if packet[0] >> 4 != 6 {
            return Err(Malformed::new("ipv6", "version is not 6"));
        }
        let payload_len = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
        if packet.len() < LEN + payload_len {
            return Err(Malformed::new("ipv6", "lengths do not fit"));
        }
        let word = u32::from_be_bytes([packet[0], packet[1], packet[2], packet[3]]);
        let repr = Repr {
            traffic_class: (word >> 20) as u8,
            flow_label: word & 0xf_ffff,
            next_header: packet[6],
            hop_limit: packet[7],
            source: ipv6_at(packet, 8),
            destination: ipv6_at(packet, 24),
            payload_len,
        };
        Ok((repr, &packet[LEN..LEN + payload_len]))
    }

    /// Writes the header to the front of `packet`, which has at least 40 bytes.
    pub fn emit(&self, packet: &mut [u8]) {
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | (self.flow_label & 0xf_ffff);
        packet[0..4].copy_from_slice(&word.to_be_bytes());
        packet[4..6].copy_from_slice(&(self.payload_len as u16).to_be_bytes());
        packet[6] = self.next_header;
        packet[7] = self.hop_limit;
        packet[8..24].copy_from_slice(&self.source.octets());
        packet[24..40].copy_from_slice(&self.destination.octets());
    }

    /// Returns the sum of the pseudo-header that TCP, UDP and ICMPv6 checksums cover (RFC 8200 section 8.1).
    pub fn pseudo_header_sum(&self) -> u64 {
        checksum::sum(&self.source.octets())
            + checksum::sum(&self.destination.octets())
            + u64::from(self.next_header)
            + self.payload_len as u64
    }
}
