//! ICMP for IPv4 (RFC 792; next-hop MTU: RFC 1191).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |     Type      |     Code      |           Checksum            |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |  echo: Identifier             |        Sequence Number        |
//! |  unreachable: unused          |         Next-Hop MTU          |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |  echo: data; errors: Internet header + 64 bits of the original |
//! ```

use crate::{Malformed, checksum};

/// Length in bytes of the header that all messages share.
pub const LEN: usize = 8;

pub use crate::numbers::icmpv4_unreachable as unreachable;

/// An ICMP message. `data` and `original` follow its first 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repr<'a> {
    /// Type 8.
    EchoRequest {
        /// Identifier.
        identifier: u16,
        /// Sequence number.
        sequence: u16,
        /// Data that the reply must return.
        data: &'a [u8],
    },
    /// Type 0.
    EchoReply {
        /// Identifier of the request.
        identifier: u16,
        /// Sequence number of the request.
        sequence: u16,
        /// Data of the request.
        data: &'a [u8],
    },
    /// Type 3.
    DestinationUnreachable {
        /// See [`unreachable`].
        code: u8,
        /// MTU of the next hop for code 4, otherwise 0.
        next_hop_mtu: u16,
        /// Start of the packet that could not be delivered.
        original: &'a [u8],
    },
    /// Type 11.
    TimeExceeded {
        /// 0: TTL in transit; 1: reassembly.
        code: u8,
        /// Start of the packet that was dropped.
        original: &'a [u8],
    },
    /// Any other message. Bytes 4 to 7 and the rest are not interpreted.
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
    /// Parses and checks a message, which must be the whole payload of the IPv4 packet.
    ///
    /// # Errors
    /// The message has fewer than 8 bytes, or its checksum is wrong.
    pub fn parse(message: &'a [u8]) -> Result<Repr<'a>, Malformed> {
        let Parts { kind, code, word, data } = Parts::read("icmpv4", message, 0)?;
        let first = u16::from_be_bytes([word[0], word[1]]);
        let second = u16::from_be_bytes([word[2], word[3]]);
        Ok(match (kind, code) {
            (8, 0) => Repr::EchoRequest { identifier: first, sequence: second, data },
            (0, 0) => Repr::EchoReply { identifier: first, sequence: second, data },
            // RFC 4884 stores a length in byte 5 of multi-part messages. It does not affect these fields.
            (3, code) => Repr::DestinationUnreachable { code, next_hop_mtu: second, original: data },
            (11, code) => Repr::TimeExceeded { code, original: data },
            (kind, code) => Repr::Other { kind, code, word, data },
        })
    }

    fn parts(&self) -> Parts<'a> {
        let pair = |a: u16, b: u16| (u32::from(a) << 16 | u32::from(b)).to_be_bytes();
        let (kind, code, word, data) = match *self {
            Repr::EchoRequest { identifier, sequence, data } => (8, 0, pair(identifier, sequence), data),
            Repr::EchoReply { identifier, sequence, data } => (0, 0, pair(identifier, sequence), data),
            Repr::DestinationUnreachable { code, next_hop_mtu, original } => (3, code, pair(0, next_hop_mtu), original),
            Repr::TimeExceeded { code, original } => (11, code, [0; 4], original),
            Repr::Other { kind, code, word, data } => (kind, code, word, data),
        };
        Parts { kind, code, word, data }
    }

    /// Returns the length of the message in bytes.
    pub fn message_len(&self) -> usize {
        self.parts().len()
    }

    /// Writes the message with its checksum to the front of `buffer`, which has at least [`Repr::message_len`] bytes.
    pub fn emit(&self, buffer: &mut [u8]) {
        self.parts().write(buffer, 0);
    }
}

/// An ICMP or ICMPv6 message: the header that all messages share, and the bytes after it.
pub(crate) struct Parts<'a> {
    pub kind: u8,
    pub code: u8,
    /// Bytes 4 to 7.
    pub word: [u8; 4],
    pub data: &'a [u8],
}

impl<'a> Parts<'a> {
    /// Splits a message and verifies its checksum, which includes `pseudo_sum`.
    pub fn read(protocol: &'static str, message: &'a [u8], pseudo_sum: u64) -> Result<Parts<'a>, Malformed> {
        let Some(([kind, code, _, _, word @ ..], data)) = message.split_first_chunk::<LEN>() else {
            return Err(Malformed::new(protocol, "fewer than 8 bytes"));
        };
        if checksum::fold(pseudo_sum + checksum::sum(message)) != 0xffff {
            return Err(Malformed::new(protocol, "wrong checksum"));
        }
        Ok(Parts { kind: *kind, code: *code, word: *word, data })
    }

    pub fn len(&self) -> usize {
        LEN + self.data.len()
    }

    pub fn write(&self, buffer: &mut [u8], pseudo_sum: u64) {
        let buffer = &mut buffer[..self.len()];
        buffer[..2].copy_from_slice(&[self.kind, self.code]);
        buffer[4..8].copy_from_slice(&self.word);
        buffer[8..].copy_from_slice(self.data);
        seal(buffer, pseudo_sum);
    }
}

/// Writes the checksum of a message.
pub(crate) fn seal(message: &mut [u8], pseudo_sum: u64) {
    message[2..4].fill(0);
    let sum = checksum::finish(pseudo_sum + checksum::sum(message));
    message[2..4].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{Icmpv4Slice, Icmpv4Type, icmpv4::DestUnreachableHeader};
    use proptest::prelude::*;

    fn repr(kind: u8, code: u8, a: u16, b: u16, data: &[u8]) -> Repr<'_> {
        match kind {
            8 => Repr::EchoRequest { identifier: a, sequence: b, data },
            0 => Repr::EchoReply { identifier: a, sequence: b, data },
            3 => Repr::DestinationUnreachable { code, next_hop_mtu: b, original: data },
            11 => Repr::TimeExceeded { code, original: data },
            kind => Repr::Other { kind, code, word: [0, 1, 2, 3], data },
        }
    }

    #[test]
    fn an_echo_request_of_a_real_host() {
        // A 32-byte ping of Windows with its alphabet, identifier 0x0200, sequence 0x0d00.
        let mut bytes = vec![0x08, 0x00, 0x3e, 0x5c, 0x02, 0x00, 0x0d, 0x00];
        bytes.extend_from_slice(b"abcdefghijklmnopqrstuvwabcdefghi");
        let repr = Repr::parse(&bytes).unwrap();
        assert_eq!(repr, Repr::EchoRequest { identifier: 0x200, sequence: 0xd00, data: &bytes[8..] });
        let mut out = vec![0xff; repr.message_len()];
        repr.emit(&mut out);
        assert_eq!(out, bytes);
    }

    #[test]
    fn wrong_checksum_and_short_messages_are_refused() {
        let mut out = [0; 12];
        repr(8, 0, 1, 2, b"data").emit(&mut out);
        out[9] ^= 1;
        assert_eq!(Repr::parse(&out).unwrap_err().reason, "wrong checksum");
        assert!(Repr::parse(&out[..7]).is_err());
    }

    proptest! {
        #[test]
        fn parse_undoes_emit_and_etherparse_agrees(
            kind in prop_oneof![Just(0u8), Just(3), Just(8), Just(11), 12u8..], code in 0u8..5, a: u16, b: u16,
            data in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let repr = repr(kind, code, a, b, &data);
            let mut out = vec![0xff; repr.message_len()];
            repr.emit(&mut out);
            prop_assert_eq!(Repr::parse(&out), Ok(repr));
            let oracle = Icmpv4Slice::from_slice(&out);
            // etherparse requires a fixed length for timestamps (13, 14), which this test does not use.
            prop_assume!(!matches!(kind, 13 | 14));
            let oracle = oracle.unwrap();
            match (repr, oracle.icmp_type()) {
                (Repr::EchoRequest { identifier, sequence, .. }, Icmpv4Type::EchoRequest(h))
                | (Repr::EchoReply { identifier, sequence, .. }, Icmpv4Type::EchoReply(h)) => {
                    prop_assert_eq!((identifier, sequence), (h.id, h.seq));
                }
                (Repr::DestinationUnreachable { next_hop_mtu, .. }, Icmpv4Type::DestinationUnreachable(h)) => {
                    prop_assert_eq!(h.code_u8(), code);
                    if let DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: mtu } = h {
                        prop_assert_eq!(mtu, next_hop_mtu);
                    }
                }
                (Repr::TimeExceeded { .. }, Icmpv4Type::TimeExceeded(h)) => prop_assert_eq!(h.code_u8(), code),
                (Repr::TimeExceeded { .. }, Icmpv4Type::Unknown { .. }) => prop_assert!(code > 1),
                (Repr::Other { .. }, _) => prop_assert_eq!(oracle.type_u8(), kind),
                (ours, theirs) => prop_assert!(false, "{ours:?} is {theirs:?} to etherparse"),
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..64), fix: bool) {
            if fix && bytes.len() >= LEN {
                seal(&mut bytes, 0);
                prop_assert!(Repr::parse(&bytes).is_ok());
            }
            let _ = Repr::parse(&bytes);
        }
    }
}
