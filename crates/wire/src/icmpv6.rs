//! ICMPv6 (RFC 4443) with Neighbor Discovery (RFC 4861, messages in [`ndp`]).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |     Type      |     Code      |          Checksum             |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |  echo: Identifier, Sequence; packet too big: MTU; else unused |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |  echo: data; errors: as much of the original as fits 1280     |
//! ```

pub mod ndp;

use crate::Malformed;
use crate::icmpv4::{Parts, seal};

pub use crate::icmpv4::LEN;

pub use crate::numbers::icmpv6_kind as kind;

pub use crate::numbers::icmpv6_unreachable as unreachable;

/// An ICMPv6 message. `data` and `original` follow its first 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repr<'a> {
    /// Type 1.
    DestinationUnreachable {
        /// See [`unreachable`].
        code: u8,
        /// Start of the packet that could not be delivered.
        original: &'a [u8],
    },
    /// Type 2.
    PacketTooBig {
        /// MTU of the next link.
        mtu: u32,
        /// Start of the packet.
        original: &'a [u8],
    },
    /// Type 3.
    TimeExceeded {
        /// 0: hop limit in transit; 1: reassembly.
        code: u8,
        /// Start of the packet that was dropped.
        original: &'a [u8],
    },
    /// Type 128.
    EchoRequest {
        /// Identifier.
        identifier: u16,
        /// Sequence number.
        sequence: u16,
        /// Data that the reply must return.
        data: &'a [u8],
    },
    /// Type 129.
    EchoReply {
        /// Identifier of the request.
        identifier: u16,
        /// Sequence number of the request.
        sequence: u16,
        /// Data of the request.
        data: &'a [u8],
    },
    /// Types 133 to 136. The receiver must still check that the hop limit was 255 (RFC 4861 sections 6.1 and 7.1).
    Ndp(ndp::Repr),
    /// Any other message (MLD and so on). Bytes 4 to 7 and the rest are not interpreted.
    Other {
        /// Type, other than the types above.
        kind: u8,
        /// Code.
        code: u8,
        /// Bytes 4 to 7.
        word: [u8; 4],
        /// The bytes after byte 7.
        data: &'a [u8],
    },
}

impl<'a> Repr<'a> {
    /// Parses and checks a message, which must be the whole payload of the IPv6 packet. `pseudo_sum` is
    /// [`crate::ipv6::Repr::pseudo_header_sum`].
    ///
    /// # Errors
    /// The message has fewer than 8 bytes, its checksum is wrong, or it is a Neighbor Discovery message that RFC 4861
    /// requires to be discarded.
    pub fn parse(message: &'a [u8], pseudo_sum: u64) -> Result<Repr<'a>, Malformed> {
        let Parts { kind, code, word, data } = Parts::read("icmpv6", message, pseudo_sum)?;
        let identifier = u16::from_be_bytes([word[0], word[1]]);
        let sequence = u16::from_be_bytes([word[2], word[3]]);
        Ok(match (kind, code) {
            (kind::DESTINATION_UNREACHABLE, code) => Repr::DestinationUnreachable { code, original: data },
            (kind::PACKET_TOO_BIG, 0) => Repr::PacketTooBig { mtu: u32::from_be_bytes(word), original: data },
            (kind::TIME_EXCEEDED, code) => Repr::TimeExceeded { code, original: data },
            (kind::ECHO_REQUEST, 0) => Repr::EchoRequest { identifier, sequence, data },
            (kind::ECHO_REPLY, 0) => Repr::EchoReply { identifier, sequence, data },
            (kind::ROUTER_SOLICITATION..=kind::NEIGHBOR_ADVERTISEMENT, _) => Repr::Ndp(ndp::Repr::parse(message)?),
            (kind, code) => Repr::Other { kind, code, word, data },
        })
    }

    /// Returns the parts of a message other than Neighbor Discovery.
    fn parts(&self) -> Result<Parts<'a>, ndp::Repr> {
        let pair = |a: u16, b: u16| u32::from(a) << 16 | u32::from(b);
        let (kind, code, word, data) = match *self {
            Repr::Ndp(ndp) => return Err(ndp),
            Repr::DestinationUnreachable { code, original } => (kind::DESTINATION_UNREACHABLE, code, 0, original),
            Repr::PacketTooBig { mtu, original } => (kind::PACKET_TOO_BIG, 0, mtu, original),
            Repr::TimeExceeded { code, original } => (kind::TIME_EXCEEDED, code, 0, original),
            Repr::EchoRequest { identifier, sequence, data } => {
                (kind::ECHO_REQUEST, 0, pair(identifier, sequence), data)
            }
            Repr::EchoReply { identifier, sequence, data } => (kind::ECHO_REPLY, 0, pair(identifier, sequence), data),
            Repr::Other { kind, code, word, data } => (kind, code, u32::from_be_bytes(word), data),
        };
        Ok(Parts { kind, code, word: word.to_be_bytes(), data })
    }

    /// Returns the length of the message in bytes.
    pub fn message_len(&self) -> usize {
        self.parts().map_or_else(|ndp| ndp.message_len(), |parts| parts.len())
    }

    /// Writes the message with its checksum to the front of `buffer`, which has at least [`Repr::message_len`] bytes.
    /// `pseudo_sum` is the sum of the pseudo-header, including the payload length.
    pub fn emit(&self, buffer: &mut [u8], pseudo_sum: u64) {
        match self.parts() {
            Ok(parts) => parts.write(buffer, pseudo_sum),
            Err(ndp) => {
                ndp.emit(buffer);
                seal(&mut buffer[..ndp.message_len()], pseudo_sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipv6;
    use etherparse::{Icmpv6Slice, Icmpv6Type};
    use proptest::prelude::*;

    fn repr(kind: u8, code: u8, a: u16, b: u16, data: &[u8]) -> Repr<'_> {
        match kind {
            1 => Repr::DestinationUnreachable { code, original: data },
            2 => Repr::PacketTooBig { mtu: u32::from(a) << 16 | u32::from(b), original: data },
            3 => Repr::TimeExceeded { code, original: data },
            128 => Repr::EchoRequest { identifier: a, sequence: b, data },
            129 => Repr::EchoReply { identifier: a, sequence: b, data },
            kind => Repr::Other { kind, code, word: [9, 1, 2, 3], data },
        }
    }

    #[test]
    fn a_whole_echo_request_of_a_real_host() {
        // 3ffe:507:0:1:200:86ff:fe05:80da pings 3ffe:501:0:1001::2, a packet captured on the 6bone.
        let mut packet = vec![0x60, 0, 0, 0, 0, 0x10, 0x3a, 0x40];
        packet.extend_from_slice(&"3ffe:507:0:1:200:86ff:fe05:80da".parse::<std::net::Ipv6Addr>().unwrap().octets());
        packet.extend_from_slice(&"3ffe:501:0:1001::2".parse::<std::net::Ipv6Addr>().unwrap().octets());
        packet.extend_from_slice(&[
            0x80, 0x00, 0, 0, 0x7b, 0x20, 0x00, 0x00, 0x1d, 0xc9, 0xe7, 0x36, 0xad, 0xb7, 0x0b, 0x00,
        ]);
        let (ip, _) = ipv6::Repr::parse(&packet).unwrap();
        let pseudo = ip.pseudo_header_sum();
        seal(&mut packet[40..], pseudo);
        let parsed = Repr::parse(&packet[40..], pseudo).unwrap();
        assert_eq!(parsed, Repr::EchoRequest { identifier: 0x7b20, sequence: 0, data: &packet[48..] });
        let mut out = [0xff; 16];
        parsed.emit(&mut out, pseudo);
        assert_eq!(out, packet[40..]);
        packet[50] ^= 1;
        assert_eq!(Repr::parse(&packet[40..], pseudo).unwrap_err().reason, "wrong checksum");
    }

    proptest! {
        #[test]
        fn parse_undoes_emit_and_etherparse_agrees(
            kind in prop_oneof![1u8..=3, Just(128u8), Just(129), 140u8..], code in 0u8..2, a: u16, b: u16,
            data in proptest::collection::vec(any::<u8>(), 0..80), source: [u8; 16], destination: [u8; 16],
        ) {
            let repr = repr(kind, code, a, b, &data);
            let ip = ipv6::Repr {
                traffic_class: 0, flow_label: 0, next_header: 58, hop_limit: 64,
                source: source.into(), destination: destination.into(), payload_len: repr.message_len(),
            };
            let mut out = vec![0xff; repr.message_len()];
            repr.emit(&mut out, ip.pseudo_header_sum());
            prop_assert_eq!(Repr::parse(&out, ip.pseudo_header_sum()), Ok(repr));
            let oracle = Icmpv6Slice::from_slice(&out).unwrap();
            prop_assert!(oracle.is_checksum_valid(source, destination));
            match (repr, oracle.icmp_type()) {
                (Repr::EchoRequest { identifier, sequence, .. }, Icmpv6Type::EchoRequest(h))
                | (Repr::EchoReply { identifier, sequence, .. }, Icmpv6Type::EchoReply(h)) => {
                    prop_assert_eq!((identifier, sequence), (h.id, h.seq));
                }
                (Repr::PacketTooBig { mtu, .. }, Icmpv6Type::PacketTooBig { mtu: theirs }) => prop_assert_eq!(mtu, theirs),
                (Repr::DestinationUnreachable { code, .. }, Icmpv6Type::DestinationUnreachable(h)) => {
                    prop_assert_eq!(code, h.code_u8());
                }
                (Repr::TimeExceeded { code, .. }, Icmpv6Type::TimeExceeded(h)) => prop_assert_eq!(code, h.code_u8()),
                (Repr::Other { .. }, _) => prop_assert_eq!(oracle.type_u8(), kind),
                (ours, theirs) => prop_assert!(false, "{ours:?} is {theirs:?} to etherparse"),
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..96), kind in 130u8..138, fix: bool) {
            if fix && bytes.len() >= LEN {
                bytes[0] = kind;
                seal(&mut bytes, 0);
            }
            let _ = Repr::parse(&bytes, 0);
        }
    }
}
