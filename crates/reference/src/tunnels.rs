//! GRE tunnels (RFC 2784) of IPv4 in IPv4: the two headers in front of a packet, and the counters of each tunnel.

use drophammer_model::role::{TUNNEL_OVERHEAD, TUNNEL_TTL, Tunnel};
use drophammer_wire::ethernet::{self, ethertype};
use drophammer_wire::ipv4;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Position of the outer header in a frame without tags.
const IP: usize = ethernet::LEN;
/// Bytes of a GRE header without checksum, key and sequence number.
const GRE: usize = 4;
/// Bits of the first two bytes that must be 0: checksum present, reserved bits 1 to 5 (RFC 2784 section 2.3), version. The bits in between are ignored.
const MUST_BE_ZERO: u16 = 0xfc07;

/// Counters of a tunnel. They count IP packets, without the headers of the tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelCounters {
    /// Packets received from the tunnel.
    pub in_packets: u64,
    /// Bytes of these packets.
    pub in_octets: u64,
    /// Packets sent into the tunnel.
    pub out_packets: u64,
    /// Bytes of these packets.
    pub out_octets: u64,
}

/// One end of a tunnel.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub tunnel: Tunnel,
    pub counters: TunnelCounters,
}

impl End {
    pub fn new(tunnel: Tunnel) -> End {
        End { tunnel, counters: TunnelCounters::default() }
    }
}

/// Puts the headers of a tunnel in front of the packet of `total` bytes in an untagged frame, and removes the padding.
/// The outer packet may not be fragmented, so it needs no identification (RFC 6864 section 4.1). The outer packet
/// copies the type of service of the inner packet.
pub(crate) fn wrap(frame: &mut Vec<u8>, total: usize, tunnel: &Tunnel) {
    frame.truncate(IP + total);
    let outer = ipv4::Repr {
        tos: frame[IP + 1],
        identification: 0,
        dont_fragment: true,
        ttl: TUNNEL_TTL,
        protocol: ipv4::protocol::GRE,
        source: tunnel.local,
        destination: tunnel.remote,
        payload_len: GRE + total,
    };
    let mut headers = [0; TUNNEL_OVERHEAD as usize];
    outer.emit(&mut headers);
    headers[ipv4::LEN + 2..].copy_from_slice(&ethertype::IPV4.to_be_bytes());
    frame.splice(IP..IP, headers);
}

/// Position of the inner packet in a tunnel packet. `None` if the inner packet is not IPv4, or if the outer one uses an
/// unsupported feature: checksum, key, sequence number, fragments.
pub fn carried(packet: &[u8]) -> Option<Range<usize>> {
    let (outer, payload) = ipv4::Repr::parse(packet).ok()?;
    let [a, b, c, d] = *payload.first_chunk::<GRE>()?;
    let (flags, protocol) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    let known = outer.protocol == ipv4::protocol::GRE && flags & MUST_BE_ZERO == 0 && protocol == ethertype::IPV4;
    let start = usize::from(packet[0] & 15) * 4 + GRE;
    let inner = &payload[GRE..];
    let total = inner.first_chunk::<4>().map(|head| usize::from(u16::from_be_bytes([head[2], head[3]])))?;
    (known && (ipv4::LEN..=inner.len()).contains(&total)).then_some(start..start + total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::traffic::HeaderKind;
    use drophammer_wire::stack::{is_intact, locate};
    use proptest::prelude::*;

    fn tunnel() -> Tunnel {
        Tunnel { local: [192, 0, 2, 1].into(), remote: [192, 0, 2, 2].into(), mtu: 1476 }
    }

    /// A frame with a datagram of `payload` bytes, padded.
    fn frame(payload: usize) -> Vec<u8> {
        let mut frame = vec![0; (IP + 28 + payload).max(60)];
        let ip = ipv4::Repr {
            tos: 0xb8,
            identification: 7,
            dont_fragment: false,
            ttl: 9,
            protocol: ipv4::protocol::UDP,
            source: [198, 51, 100, 1].into(),
            destination: [203, 0, 113, 1].into(),
            payload_len: 8 + payload,
        };
        frame[12..14].copy_from_slice(&ethertype::IPV4.to_be_bytes());
        ip.emit(&mut frame[IP..]);
        frame[IP + 20..IP + 28].copy_from_slice(&[0, 9, 0, 9, 0, 8 + payload as u8, 0, 0]);
        frame
    }

    #[test]
    fn a_packet_comes_out_as_it_went_in() {
        for payload in [0, 5, 100] {
            let before = frame(payload);
            let (mut wrapped, total) = (before.clone(), 28 + payload);
            wrap(&mut wrapped, total, &tunnel());
            assert_eq!(wrapped.len(), IP + 24 + total, "without padding");
            let kinds: Vec<_> = locate(&wrapped).iter().map(|layer| layer.kind).collect();
            assert_eq!(
                kinds,
                [HeaderKind::Ethernet, HeaderKind::Ipv4, HeaderKind::Gre, HeaderKind::Ipv4, HeaderKind::Udp]
            );
            assert!(is_intact(&wrapped));
            assert_eq!((wrapped[IP + 1], wrapped[IP + 8], wrapped[IP + 6]), (0xb8, TUNNEL_TTL, 0x40));
            let inner = carried(&wrapped[IP..]).unwrap();
            assert_eq!(wrapped[IP..][inner], before[IP..IP + total]);
        }
    }

    #[test]
    fn what_such_a_tunnel_does_not_carry_is_refused() {
        let mut good = frame(20);
        wrap(&mut good, 48, &tunnel());
        let packet = &good[IP..];
        let with = |at: usize, value: u8| {
            let mut packet = packet.to_vec();
            packet[at] = value;
            carried(&packet)
        };
        // Checksum, routing, key, sequence number, strict source route; version 1; IPv6 inside.
        for flags in [0x80, 0x40, 0x20, 0x10, 0x08, 0x04] {
            assert_eq!(with(20, flags), None, "{flags:#x}");
        }
        assert_eq!((with(21, 1), with(22, 0x86)), (None, None));
        // Bits 6 to 12 must be ignored (RFC 2784 section 2.3).
        assert!(with(20, 0x03).is_some() && with(21, 0xf8).is_some());
        assert_eq!((with(27, 49), with(27, 19)), (None, None), "longer than there is, shorter than a header");
        assert_eq!(carried(&packet[..22]), None);
        assert_eq!(with(8, 63), None, "the outer checksum is wrong");
    }

    proptest! {
        #[test]
        fn no_packet_leads_outside(mut packet in proptest::collection::vec(any::<u8>(), 0..100), valid: bool) {
            if valid && packet.len() >= 24 {
                // Use a correct outer checksum, so that the checks after it run.
                let payload_len = packet.len() - 20;
                let addresses = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
                let (source, destination) = addresses;
                let outer = ipv4::Repr { tos: 0, identification: 0, dont_fragment: true, ttl: 64, protocol: 47, source, destination, payload_len };
                outer.emit(&mut packet);
                packet[20..24].copy_from_slice(&[0, 0, 8, 0]);
            }
            if let Some(inner) = carried(&packet) {
                prop_assert!(inner.end <= packet.len() && inner.len() >= ipv4::LEN);
            }
        }
    }
}
