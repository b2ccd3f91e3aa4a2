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

/// The Router Alert option (RFC 2113): every router on the way examines the packet.
pub const ROUTER_ALERT: [u8; 4] = [0x94, 4, 0, 0];
/// Length of a header with the Router Alert option.
pub const LEN_ROUTER_ALERT: usize = LEN + ROUTER_ALERT.len();

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

    /// Writes the header with the Router Alert option and its checksum to the front of `packet`, at least 24 bytes.
    pub fn emit_with_router_alert(&self, packet: &mut [u8]) {
        Repr { payload_len: self.payload_len + ROUTER_ALERT.len(), ..*self }.emit(packet);
        packet[0] = 0x46;
        packet[LEN..LEN_ROUTER_ALERT].copy_from_slice(&ROUTER_ALERT);
        packet[10..12].fill(0);
        let sum = checksum::finish(checksum::sum(&packet[..LEN_ROUTER_ALERT]));
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

/// True if the header has the Router Alert option with value 0. Wrong lengths end the search.
pub fn has_router_alert(packet: &[u8]) -> bool {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    let header = packet.first().map_or(0, |first| usize::from(first & 15) * 4);
    let mut options = packet.get(LEN..header).unwrap_or(&[]);
    while let Some(&kind) = options.first().filter(|kind| **kind != END) {
        if options.starts_with(&ROUTER_ALERT) {
            return true;
        }
        let length =
            if kind == NO_OPERATION { 1 } else { options.get(1).map_or(0, |length| usize::from(*length).max(2)) };
        options = options.get(length.max(1)..).unwrap_or(&[]);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn router_alert_is_written_and_found() {
        let repr = Repr {
            tos: 0xc0,
            identification: 7,
            dont_fragment: false,
            ttl: 255,
            protocol: protocol::RSVP,
            source: Ipv4Addr::new(192, 0, 2, 1),
            destination: Ipv4Addr::new(198, 51, 100, 9),
            payload_len: 3,
        };
        let mut packet = [0xff; LEN_ROUTER_ALERT + 3];
        repr.emit_with_router_alert(&mut packet);
        assert_eq!(Repr::parse(&packet), Ok((repr, &[0xff; 3][..])));
        assert!(has_router_alert(&packet));
        let slice = etherparse::Ipv4HeaderSlice::from_slice(&packet).unwrap();
        assert_eq!((slice.options(), slice.ihl()), (&ROUTER_ALERT[..], 6));
        // After another option; behind the end of the options; in a header without options.
        let with = |options: &[u8]| [&[0x40 + 5 + options.len() as u8 / 4][..], &[0; 19], options].concat();
        assert!(has_router_alert(&with(&[1, 0x44, 4, 0, 0, 0x94, 4, 0, 0, 0, 0, 0])));
        assert!(!has_router_alert(&with(&[0, 0, 0, 0, 0x94, 4, 0, 0])));
        assert!(!has_router_alert(&with(&[0x94, 4, 0, 1])), "another value");
        assert!(!has_router_alert(&[&with(&[])[..], &ROUTER_ALERT].concat()));
    }

    proptest! {
        #[test]
        fn options_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = has_router_alert(&bytes);
        }
    }
}
