//! IPv4 (RFC 791).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-------+-------+---------------+-------------------------------+
//! |Version|  IHL  |Type of Service|          Total Length         |
//! +-------+-------+---------------+-----+-------------------------+
//! |         Identification        |Flags|      Fragment Offset    |
//! +---------------+---------------+-----+-------------------------+
//! |  Time to Live |    Protocol   |         Header Checksum       |
//! +---------------+---------------+-------------------------------+
//! |                       Source Address                          |
//! |                    Destination Address                        |
//! +---------------------------------------------------------------+
//! ```

use crate::{Malformed, checksum};
use std::net::Ipv4Addr;

/// Length of a header without options, in bytes.
pub const LEN: usize = 20;

pub use crate::numbers::protocol;

/// A header without options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Type of service / DSCP and ECN.
    pub tos: u8,
    /// Identification.
    pub identification: u16,
    /// True if the packet must not be fragmented.
    pub dont_fragment: bool,
    /// Time to live.
    pub ttl: u8,
    /// Protocol.
    pub protocol: u8,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// Number of bytes after the header.
    pub payload_len: usize,
}

impl Repr {
    /// Parses and checks a packet: `(header, payload)`. The payload excludes padding after the total length.
    ///
    /// # Errors
    /// The version is not 4, lengths are inconsistent, the header checksum is wrong, or the packet is a fragment.
    /// Options are skipped.
    pub fn parse(packet: &[u8]) -> Result<(Repr, &[u8]), Malformed> {
        let bad = |reason| Err(Malformed::new("ipv4", reason));
        if packet.len() < LEN {
            return bad("fewer than 20 bytes");
        }
        if packet[0] >> 4 != 4 {
            return bad("version is not 4");
        }
        let header = usize::from(packet[0] & 15) * 4;
        let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
        if header < LEN || total < header || packet.len() < total {
            return bad("lengths do not fit");
        }
        if checksum::fold(checksum::sum(&packet[..header])) != 0xffff {
            return bad("wrong header checksum");
        }
        let fragment = u16::from_be_bytes([packet[6], packet[7]]);
        if fragment & 0x3fff != 0 {
            return bad("a fragment");
        }
        let repr = Repr {
            tos: packet[1],
            identification: u16::from_be_bytes([packet[4], packet[5]]),
            dont_fragment: fragment & 0x4000 != 0,
            ttl: packet[8],
            protocol: packet[9],
            source: Ipv4Addr::new(packet[12], packet[13], packet[14], packet[15]),
            destination: Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19]),
            payload_len: total - header,
        };
        Ok((repr, &packet[header..total]))
    }

    /// Writes the header with its checksum to the front of `packet`, which has at least 20 bytes.
    pub fn emit(&self, packet: &mut [u8]) {
        packet[0] = 0x45;
        packet[1] = self.tos;
        packet[2..4].copy_from_slice(&((LEN + self.payload_len) as u16).to_be_bytes());
        packet[4..6].copy_from_slice(&self.identification.to_be_bytes());
        packet[6..8].copy_from_slice(&if self.dont_fragment { 0x4000u16 } else { 0 }.to_be_bytes());
        packet[8] = self.ttl;
        packet[9] = self.protocol;
        packet[10..12].fill(0);
        packet[12..16].copy_from_slice(&self.source.octets());
        packet[16..20].copy_from_slice(&self.destination.octets());
        let sum = checksum::finish(checksum::sum(&packet[..LEN]));
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }

    /// Returns the sum of the pseudo-header that TCP and UDP checksums cover.
    pub fn pseudo_header_sum(&self) -> u64 {
        checksum::sum(&self.source.octets())
            + checksum::sum(&self.destination.octets())
            + u64::from(self.protocol)
            + self.payload_len as u64
    }
}
