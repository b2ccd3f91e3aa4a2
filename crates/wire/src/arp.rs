//! ARP for IPv4 over Ethernet (RFC 826).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |      Hardware type = 1        |     Protocol type = 0x0800    |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! | Hw length = 6 | Pr length = 4 |           Operation           |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |               Sender hardware address (6 bytes)               |
//! +                               +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                               |  Sender protocol address ...  |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                               |   Target hardware address     |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+                               +
//! |                                                               |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                    Target protocol address                    |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

use crate::{MacAddr, Malformed, mac_at};
use std::net::Ipv4Addr;

/// Length of an ARP packet for IPv4 over Ethernet, in bytes.
pub const LEN: usize = 28;

/// The fixed fields of IPv4 over Ethernet: hardware type, protocol type and both lengths.
const PREFIX: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// Operation of an ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// 1: asks who has the target address.
    Request,
    /// 2: the sender owns the sender address.
    Reply,
    /// Any other operation (RARP, InARP), which the tester does not answer.
    Other(u16),
}

impl From<u16> for Operation {
    fn from(code: u16) -> Operation {
        match code {
            1 => Operation::Request,
            2 => Operation::Reply,
            other => Operation::Other(other),
        }
    }
}

impl From<Operation> for u16 {
    fn from(operation: Operation) -> u16 {
        match operation {
            Operation::Request => 1,
            Operation::Reply => 2,
            Operation::Other(other) => other,
        }
    }
}

/// A parsed ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Operation.
    pub operation: Operation,
    /// Hardware address of the sender.
    pub sender_mac: MacAddr,
    /// Protocol address of the sender; 0.0.0.0 in a probe (RFC 5227).
    pub sender_ip: Ipv4Addr,
    /// Hardware address of the target; zero in a request.
    pub target_mac: MacAddr,
    /// Protocol address of the target; the sender's own in an announcement ("gratuitous ARP").
    pub target_ip: Ipv4Addr,
}

impl Repr {
    /// Parses a packet, which starts after the Ethernet header. Ignores bytes after the first 28 (Ethernet padding).
    ///
    /// # Errors
    /// The packet has fewer than 28 bytes, or is not for IPv4 over Ethernet.
    pub fn parse(packet: &[u8]) -> Result<Repr, Malformed> {
        let packet: &[u8; LEN] = packet.first_chunk().ok_or(Malformed::new("arp", "fewer than 28 bytes"))?;
        if packet[..6] != PREFIX {
            return Err(Malformed::new("arp", "not IPv4 over Ethernet"));
        }
        let ip = |at: usize| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]);
        Ok(Repr {
            operation: u16::from_be_bytes([packet[6], packet[7]]).into(),
            sender_mac: mac_at(packet, 8),
            sender_ip: ip(14),
            target_mac: mac_at(packet, 18),
            target_ip: ip(24),
        })
    }

    /// Creates the request "who has `target`? tell `sender`".
    pub fn request(sender_mac: MacAddr, sender_ip: Ipv4Addr, target_ip: Ipv4Addr) -> Repr {
        Repr { operation: Operation::Request, sender_mac, sender_ip, target_mac: MacAddr([0; 6]), target_ip }
    }

    /// Creates the reply to `request`: the requested address is at `mac`.
    pub fn reply_to(request: &Repr, mac: MacAddr) -> Repr {
        Repr {
            operation: Operation::Reply,
            sender_mac: mac,
            sender_ip: request.target_ip,
            target_mac: request.sender_mac,
            target_ip: request.sender_ip,
        }
    }

    /// Writes the packet to the front of `buffer`, which has at least 28 bytes.
    pub fn emit(&self, buffer: &mut [u8]) {
        let buffer = &mut buffer[..LEN];
        buffer[..6].copy_from_slice(&PREFIX);
        buffer[6..8].copy_from_slice(&u16::from(self.operation).to_be_bytes());
        buffer[8..14].copy_from_slice(&self.sender_mac.0);
        buffer[14..18].copy_from_slice(&self.sender_ip.octets());
        buffer[18..24].copy_from_slice(&self.target_mac.0);
        buffer[24..28].copy_from_slice(&self.target_ip.octets());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A request as Linux sends it: who has 192.168.0.1? tell 192.168.0.114.
    const REQUEST: [u8; 28] = [
        0x00, 0x01, 0x08, 0x00, 0x06, 0x04, 0x00, 0x01, 0x00, 0x1b, 0x21, 0x0f, 0x91, 0x9b, 0xc0, 0xa8, 0x00, 0x72,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xc0, 0xa8, 0x00, 0x01,
    ];

    #[test]
    fn a_request_is_read_and_written() {
        let repr = Repr::parse(&REQUEST).unwrap();
        let me = MacAddr([0x00, 0x1b, 0x21, 0x0f, 0x91, 0x9b]);
        assert_eq!(repr, Repr::request(me, Ipv4Addr::new(192, 168, 0, 114), Ipv4Addr::new(192, 168, 0, 1)));
        let mut out = [0xff; LEN];
        repr.emit(&mut out);
        assert_eq!(out, REQUEST);
    }

    #[test]
    fn a_reply_swaps_sides() {
        let request = Repr::parse(&REQUEST).unwrap();
        let reply = Repr::reply_to(&request, MacAddr([2, 0, 0, 0, 0, 9]));
        assert_eq!(reply.operation, Operation::Reply);
        assert_eq!((reply.sender_ip, reply.target_ip), (request.target_ip, request.sender_ip));
        assert_eq!((reply.sender_mac, reply.target_mac), (MacAddr([2, 0, 0, 0, 0, 9]), request.sender_mac));
    }

    #[test]
    fn what_is_short_or_foreign_is_refused() {
        assert!(Repr::parse(&REQUEST[..27]).is_err());
        for at in 0..6 {
            let mut foreign = REQUEST;
            foreign[at] ^= 0x10;
            assert!(Repr::parse(&foreign).is_err(), "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn parse_undoes_emit_and_etherparse_agrees(
            operation in any::<u16>(), sender_mac in any::<[u8; 6]>(), sender_ip in any::<[u8; 4]>(),
            target_mac in any::<[u8; 6]>(), target_ip in any::<[u8; 4]>(),
        ) {
            let repr = Repr {
                operation: operation.into(),
                sender_mac: MacAddr(sender_mac),
                sender_ip: sender_ip.into(),
                target_mac: MacAddr(target_mac),
                target_ip: target_ip.into(),
            };
            let mut out = [0xff; LEN];
            repr.emit(&mut out);
            prop_assert_eq!(Repr::parse(&out).unwrap(), repr);
            let oracle = etherparse::ArpPacketSlice::from_slice(&out).unwrap();
            prop_assert_eq!(oracle.operation().0, operation);
            prop_assert_eq!(oracle.sender_hw_addr(), &sender_mac[..]);
            prop_assert_eq!(oracle.sender_protocol_addr(), &sender_ip[..]);
            prop_assert_eq!(oracle.target_hw_addr(), &target_mac[..]);
            prop_assert_eq!(oracle.target_protocol_addr(), &target_ip[..]);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), prefix in any::<bool>()) {
            let mut bytes = bytes;
            if prefix && bytes.len() >= 6 {
                bytes[..6].copy_from_slice(&PREFIX);
            }
            if let Ok(repr) = Repr::parse(&bytes) {
                let mut out = [0; LEN];
                repr.emit(&mut out);
                prop_assert_eq!(&out[..], &bytes[..LEN]);
            }
        }
    }
}
