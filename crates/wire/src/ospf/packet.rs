//! The header that all OSPF packets share (RFC 2328 appendix A.3.1), and their authentication (appendix D).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------+---------------+-------------------------------+
//! |   Version #   |     Type      |         Packet length         |
//! +---------------+---------------+-------------------------------+
//! |                          Router ID                            |
//! |                           Area ID                             |
//! +-------------------------------+-------------------------------+
//! |           Checksum            |             AuType            |
//! +-------------------------------+-------------------------------+
//! |       Authentication: password, or 0, Key ID, length, sequence number
//! +---------------------------------------------------------------+
//! ```

use super::{address_at, u16_at, u32_at};
use crate::{Malformed, checksum};
use md5::{Digest, Md5};
use std::net::Ipv4Addr;

/// Length of the header.
pub const LEN: usize = 24;
/// Length of the digest that follows a packet with cryptographic authentication.
pub const DIGEST_LEN: usize = 16;
const VERSION: u8 = 2;

/// How packets are authenticated, with the secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authentication {
    /// AuType 0: none.
    #[default]
    Null,
    /// AuType 1: a password that every packet carries.
    Simple([u8; 8]),
    /// AuType 2: a digest with a secret key (keyed MD5).
    Md5 {
        /// Number of the key.
        key_id: u8,
        /// The key, padded with zeros.
        key: [u8; 16],
    },
}

impl Authentication {
    /// AuType.
    pub fn kind(&self) -> u16 {
        match self {
            Authentication::Null => 0,
            Authentication::Simple(_) => 1,
            Authentication::Md5 { .. } => 2,
        }
    }

    /// Bytes that follow the packet.
    pub fn trailer_len(&self) -> usize {
        match self {
            Authentication::Md5 { .. } => DIGEST_LEN,
            _ => 0,
        }
    }
}

/// The fields of the header that do not depend on the rest of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// See [`kind`](super::kind).
    pub kind: u8,
    /// Router ID of the sender.
    pub router_id: Ipv4Addr,
    /// Area of the packet.
    pub area_id: Ipv4Addr,
}

/// A received packet that is authentic and has a valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened<'a> {
    /// The header.
    pub header: Header,
    /// The bytes after the header, up to the packet's length.
    pub body: &'a [u8],
    /// Cryptographic sequence number; `None` with other authentication. It must not decrease.
    pub sequence: Option<u32>,
}

fn digest(packet: &[u8], key: &[u8; 16]) -> [u8; DIGEST_LEN] {
    let mut md5 = Md5::new();
    md5.update(packet);
    md5.update(key);
    md5.finalize().into()
}

/// The checksum over a packet without its authentication field.
fn sum(packet: &[u8]) -> u64 {
    checksum::sum(&packet[..16]) + checksum::sum(&packet[LEN..])
}

impl<'a> Opened<'a> {
    /// Parses the payload of an IP packet, and verifies version, length, checksum and authentication.
    ///
    /// # Errors
    /// What is wrong. Checking that the sequence number does not decrease is left to the caller, who knows the last
    /// one.
    pub fn parse(payload: &'a [u8], authentication: &Authentication) -> Result<Opened<'a>, Malformed> {
        let bad = |reason| Err(Malformed::new("ospf", reason));
        if payload.len() < LEN {
            return bad("fewer than 24 bytes");
        }
        if payload[0] != VERSION {
            return bad("version is not 2");
        }
        let length = usize::from(u16_at(payload, 2));
        if length < LEN || length > payload.len() {
            return bad("length does not fit");
        }
        if u16_at(payload, 14) != authentication.kind() {
            return bad("different authentication type");
        }
        let (packet, trailer) = payload.split_at(length);
        if !matches!(authentication, Authentication::Md5 { .. }) && checksum::fold(sum(packet)) != 0xffff {
            return bad("wrong checksum");
        }
        let sequence = match authentication {
            Authentication::Null => None,
            Authentication::Simple(password) if packet[16..LEN] == *password => None,
            Authentication::Simple(_) => return bad("wrong password"),
            Authentication::Md5 { key_id, key } => {
                if packet[18] != *key_id {
                    return bad("unknown Key ID");
                }
                if usize::from(packet[19]) != DIGEST_LEN || trailer.get(..DIGEST_LEN) != Some(&digest(packet, key)) {
                    return bad("wrong digest");
                }
                Some(u32_at(packet, 20))
            }
        };
        let header = Header { kind: packet[1], router_id: address_at(packet, 4), area_id: address_at(packet, 8) };
        Ok(Opened { header, body: &packet[LEN..], sequence })
    }
}

impl Header {
    /// Completes `packet`, whose body begins at [`LEN`]: writes the header, and appends the digest if there is one.
    /// `sequence` is the cryptographic sequence number.
    ///
    /// # Panics
    /// If `packet` is shorter than [`LEN`].
    pub fn seal(&self, packet: &mut Vec<u8>, authentication: &Authentication, sequence: u32) {
        let length = packet.len() as u16;
        packet[..2].copy_from_slice(&[VERSION, self.kind]);
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        packet[4..8].copy_from_slice(&self.router_id.octets());
        packet[8..12].copy_from_slice(&self.area_id.octets());
        packet[12..14].fill(0);
        packet[14..16].copy_from_slice(&authentication.kind().to_be_bytes());
        packet[16..LEN].fill(0);
        match authentication {
            Authentication::Md5 { key_id, key } => {
                packet[18..20].copy_from_slice(&[*key_id, DIGEST_LEN as u8]);
                packet[20..LEN].copy_from_slice(&sequence.to_be_bytes());
                let digest = digest(packet, key);
                packet.extend_from_slice(&digest);
            }
            Authentication::Null | Authentication::Simple(_) => {
                let sum = checksum::finish(sum(packet));
                packet[12..14].copy_from_slice(&sum.to_be_bytes());
                if let Authentication::Simple(password) = authentication {
                    packet[16..LEN].copy_from_slice(password);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: Header =
        Header { kind: 1, router_id: Ipv4Addr::new(10, 0, 0, 1), area_id: Ipv4Addr::new(0, 0, 0, 0) };

    fn sealed(authentication: &Authentication) -> Vec<u8> {
        let mut packet = [&[0; LEN][..], b"body of it  "].concat();
        HEADER.seal(&mut packet, authentication, 77);
        packet
    }

    #[test]
    fn each_type_refuses_the_others_and_wrong_secrets() {
        let md5 = |key_id, byte| Authentication::Md5 { key_id, key: [byte; 16] };
        let all = [Authentication::Null, Authentication::Simple(*b"password"), md5(3, 9)];
        for sender in &all {
            for receiver in &all {
                let packet = sealed(sender);
                let opened = Opened::parse(&packet, receiver);
                if sender == receiver {
                    let sequence = (sender.kind() == 2).then_some(77);
                    assert_eq!(opened, Ok(Opened { header: HEADER, body: b"body of it  ", sequence }));
                } else {
                    assert_eq!(opened.unwrap_err().reason, "different authentication type");
                }
            }
        }
        let reason = |packet: &[u8], with: Authentication| Opened::parse(packet, &with).unwrap_err().reason;
        assert_eq!(reason(&sealed(&all[1]), Authentication::Simple(*b"Password")), "wrong password");
        assert_eq!(reason(&sealed(&all[2]), md5(4, 9)), "unknown Key ID");
        assert_eq!(reason(&sealed(&all[2]), md5(3, 8)), "wrong digest");
        let mut cut = sealed(&all[2]);
        cut.pop();
        assert_eq!(reason(&cut, all[2]), "wrong digest");
        let mut other = sealed(&all[0]);
        other[30] ^= 1;
        assert_eq!(reason(&other, all[0]), "wrong checksum");
        other[0] = 3;
        assert_eq!(reason(&other, all[0]), "version is not 2");
        (other[0], other[3]) = (2, 200);
        assert_eq!(reason(&other, all[0]), "length does not fit");
    }

    #[test]
    fn bytes_after_the_packet_are_ignored() {
        // Link-local signaling (RFC 5613) follows the packet, and the digest.
        for authentication in [Authentication::Null, Authentication::Md5 { key_id: 1, key: [1; 16] }] {
            let mut packet = sealed(&authentication);
            packet.extend([0xff, 0xf6, 0, 3, 0, 1, 0, 4, 0, 0, 0, 1]);
            assert_eq!(Opened::parse(&packet, &authentication).unwrap().body.len(), 12);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), kind in 0usize..3) {
            let with = [Authentication::Null, Authentication::Simple([0; 8]), Authentication::Md5 { key_id: 0, key: [0; 16] }];
            let _ = Opened::parse(&bytes, &with[kind]);
            let mut packet = [&[0; LEN][..], &bytes].concat();
            HEADER.seal(&mut packet, &with[kind], 1);
            prop_assert_eq!(Opened::parse(&packet, &with[kind]).unwrap().body, &bytes[..]);
        }
    }
}
