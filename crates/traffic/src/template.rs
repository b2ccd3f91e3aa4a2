//! A test frame with everything that does not change, and the sums over it, so that per frame only addresses, signature
//! and checksums are written.

use crate::payload::Pattern;
use drophammer_model::size::FrameSize;
use drophammer_model::trial::Family;
use drophammer_wire::frame::HEAD;
use drophammer_wire::signature::{self, TEST_PORT};
use drophammer_wire::{MacAddr, checksum, ethernet, ipv4, ipv6, udp};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Hop limit of test frames; a router lowers it by one.
pub const HOP_LIMIT: u8 = 64;

/// Bytes of the shortest frame.
const SHORTEST: usize = ethernet::MIN_WITHOUT_FCS;

/// A name for `bytes` that other bytes do not have (FNV-1a, 64 bits); never 0.
fn name(bytes: &[u8]) -> u64 {
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, hash).max(1)
}

/// A frame of one size of one flow.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    family: Family,
    /// Sum (of little-endian words, as all sums here) over the IPv4 header with both addresses zero.
    ip_sum: u64,
    /// Sum over pseudo header and datagram with addresses, signature and checksum zero.
    udp_sum: u64,
    signature_at: usize,
    signature_is_odd: bool,
    /// Tells what is behind the head apart.
    body: u64,
}

/// What a template is made from.
#[derive(Clone, Copy, Debug)]
pub struct Headers {
    /// IP version.
    pub family: Family,
    /// Tester's address.
    pub source_mac: MacAddr,
    /// The device's address.
    pub destination_mac: MacAddr,
    /// UDP source port: constant per flow, so that a router that spreads by hash keeps its order.
    pub source_port: u16,
    /// Type of service / traffic class.
    pub traffic_class: u8,
}

impl Template {
    /// Builds the frame of `size`.
    pub fn new(headers: &Headers, size: FrameSize, pattern: &Pattern) -> Template {
        let v6 = headers.family == Family::Ipv6;
        let ip_len = usize::from(size.ip_bytes(v6));
        let frame_len = usize::from(size.frame_bytes(v6)) - 4;
        let ip_header = if v6 { ipv6::LEN } else { ipv4::LEN };
        let ip_at = ethernet::LEN;
        let udp_at = ip_at + ip_header;
        let end = ip_at + ip_len;
        let signature_at = end - signature::LEN;
        let payload_at = udp_at + udp::LEN;
        let mut bytes = vec![0u8; frame_len];

        ethernet::Repr {
            destination: headers.destination_mac,
            source: headers.source_mac,
            ethertype: if v6 { ethernet::ethertype::IPV6 } else { ethernet::ethertype::IPV4 },
        }
        .emit(&mut bytes);
        bytes[payload_at..signature_at].copy_from_slice(pattern.bytes(signature_at - payload_at));
        let pseudo = if v6 {
            let ip = ipv6::Repr {
                traffic_class: headers.traffic_class,
                flow_label: 0,
                next_header: ipv4::protocol::UDP,
                hop_limit: HOP_LIMIT,
                source: Ipv6Addr::UNSPECIFIED,
                destination: Ipv6Addr::UNSPECIFIED,
                payload_len: ip_len - ip_header,
            };
            ip.emit(&mut bytes[ip_at..]);
            ip.pseudo_header_sum()
        } else {
            let ip = ipv4::Repr {
                tos: headers.traffic_class,
                identification: 0,
                dont_fragment: true,
                ttl: HOP_LIMIT,
                protocol: ipv4::protocol::UDP,
                source: Ipv4Addr::UNSPECIFIED,
                destination: Ipv4Addr::UNSPECIFIED,
                payload_len: ip_len - ip_header,
            };
            ip.emit(&mut bytes[ip_at..]);
            ip.pseudo_header_sum()
        };
        bytes[ip_at + ip_header..][..2].copy_from_slice(&headers.source_port.to_be_bytes());
        bytes[udp_at + 2..][..2].copy_from_slice(&TEST_PORT.to_be_bytes());
        bytes[udp_at + 4..][..2].copy_from_slice(&((end - udp_at) as u16).to_be_bytes());
        let ip_sum = if v6 {
            0
        } else {
            bytes[ip_at + 10..ip_at + 12].fill(0);
            checksum::sum_le(&bytes[ip_at..udp_at])
        };
        Template {
            family: headers.family,
            ip_sum,
            udp_sum: u64::from(checksum::fold(pseudo).swap_bytes()) + checksum::sum_le(&bytes[udp_at..end]),
            signature_at,
            signature_is_odd: (signature_at - udp_at) % 2 == 1,
            body: name(bytes.get(HEAD..).unwrap_or_default()),
            bytes,
        }
    }

    /// Length of the frame without FCS.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Never true.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes on the line, FCS included.
    pub fn frame_bytes(&self) -> u64 {
        self.bytes.len() as u64 + 4
    }

    /// The frame with addresses, signature and checksums zero.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// IP version.
    pub(crate) fn family(&self) -> Family {
        self.family
    }

    /// Sums (of little-endian words) over the IPv4 header, and over pseudo header and datagram, with zeros as above.
    pub(crate) fn sums(&self) -> (u64, u64) {
        (self.ip_sum, self.udp_sum)
    }

    /// Where the signature is.
    pub(crate) fn signature_at(&self) -> usize {
        self.signature_at
    }

    /// Writes the unchanging bytes into `slot`, which has the template's length.
    #[inline]
    pub fn write(&self, slot: &mut [u8]) {
        slot.copy_from_slice(&self.bytes);
    }

    /// The name of the bytes behind the head, as [`drophammer_wire::frame::Frame::hold`] wants it.
    #[inline]
    pub(crate) fn body(&self) -> u64 {
        self.body
    }

    /// Writes the head into `slot`, which holds the template but for that.
    #[inline]
    pub(crate) fn write_head(&self, slot: &mut [u8]) {
        // Lengths that are known: that of most frames, and that of the shortest.
        match (slot.first_chunk_mut::<HEAD>(), self.bytes.first_chunk::<HEAD>()) {
            (Some(slot), Some(head)) => *slot = *head,
            _ => match (<&mut [u8; SHORTEST]>::try_from(&mut *slot), <&[u8; SHORTEST]>::try_from(&self.bytes[..])) {
                (Ok(slot), Ok(head)) => *slot = *head,
                _ => slot.copy_from_slice(&self.bytes),
            },
        }
    }

    /// Makes `slot`, which holds this template, the frame with these addresses (IPv4 in the low 32 bits) and signature.
    #[inline]
    pub fn patch(&self, slot: &mut [u8], source: u128, destination: u128, signature: &[u8; signature::LEN]) {
        let mut tail = checksum::sum_le(signature);
        if self.signature_is_odd {
            tail = checksum::swap(tail);
        }
        match self.family {
            Family::Ipv4 => {
                // One check of the length for all that is written.
                let head: &mut [u8; 42] = slot.first_chunk_mut().expect("a UDP frame has at least 42 bytes");
                // Both addresses as eight bytes in their order on the wire.
                let addresses = (u64::from(source as u32) << 32 | u64::from(destination as u32)).swap_bytes();
                head[26..34].copy_from_slice(&addresses.to_le_bytes());
                let addresses = checksum::halves(addresses);
                head[24..26].copy_from_slice(&checksum::finish(self.ip_sum + addresses).to_le_bytes());
                head[40..42].copy_from_slice(&udp::field(self.udp_sum + addresses + tail).to_le_bytes());
            }
            Family::Ipv6 => {
                let head: &mut [u8; 62] = slot.first_chunk_mut().expect("a UDP frame has at least 62 bytes");
                head[22..38].copy_from_slice(&source.to_be_bytes());
                head[38..54].copy_from_slice(&destination.to_be_bytes());
                let addresses = checksum::sum_le(&head[22..54]);
                head[60..62].copy_from_slice(&udp::field(self.udp_sum + addresses + tail).to_le_bytes());
            }
        }
        slot[self.signature_at..self.signature_at + signature::LEN].copy_from_slice(signature);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_wire::signature::{Signature, TrialKey};
    use proptest::prelude::*;

    fn headers(family: Family) -> Headers {
        Headers {
            family,
            source_mac: MacAddr::local(1),
            destination_mac: MacAddr::local(2),
            source_port: 50_000,
            traffic_class: 0,
        }
    }

    proptest! {
        #[test]
        fn every_frame_is_whole(
            size in 64u16..1519, v6: bool, a: u128, b: u128, a2: u128, b2: u128, flow in 0u32..1000, sequence in 0u32..1 << 28, time: u32
        ) {
            let family = if v6 { Family::Ipv6 } else { Family::Ipv4 };
            let pattern = Pattern::new(1);
            let template = Template::new(&headers(family), FrameSize::Frame(size), &pattern);
            let mut slot = vec![0; template.len()];
            template.write(&mut slot);
            let key = TrialKey::new(1, 1);
            // Patched twice: what the first frame left behind must not show in the second.
            template.patch(&mut slot, a2, b2, &Signature { flow: 1, sequence: 2, time: 3 }.emit(key));
            let signature = Signature { flow, sequence, time };
            template.patch(&mut slot, a, b, &signature.emit(key));

            let (_, packet) = ethernet::Repr::parse(&slot).unwrap();
            let (datagram, pseudo) = if v6 {
                let (ip, rest) = ipv6::Repr::parse(packet).unwrap();
                prop_assert_eq!((u128::from(ip.source), u128::from(ip.destination)), (a, b));
                (rest, ip.pseudo_header_sum())
            } else {
                let (ip, rest) = ipv4::Repr::parse(packet).unwrap();
                prop_assert_eq!((u32::from(ip.source), u32::from(ip.destination)), (a as u32, b as u32));
                (rest, ip.pseudo_header_sum())
            };
            let (udp, payload) = udp::Repr::parse(datagram, pseudo).unwrap();
            prop_assert_eq!(udp.destination, TEST_PORT);
            let at = payload.len() - signature::LEN;
            prop_assert_eq!(&payload[..at], pattern.bytes(at));
            let (read, check) = Signature::read(payload[at..].try_into().unwrap());
            prop_assert_eq!(read, signature);
            prop_assert!(read.belongs_to(key, check));
        }
    }
}
