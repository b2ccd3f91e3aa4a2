//! Composes whole control frames (Ethernet, without FCS, padded to 60 bytes) in a reused buffer.

use drophammer_wire::ethernet::{self, ethertype};
use drophammer_wire::ipv4::protocol;
use drophammer_wire::{MacAddr, arp, icmpv4, icmpv6, ipv4, ipv6};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The two ends of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Source.
    pub source: MacAddr,
    /// Destination.
    pub destination: MacAddr,
}

fn ethernet(out: &mut Vec<u8>, link: Link, ethertype: u16, payload: usize) -> &mut [u8] {
    out.clear();
    out.resize((ethernet::LEN + payload).max(ethernet::MIN_WITHOUT_FCS), 0);
    ethernet::Repr { destination: link.destination, source: link.source, ethertype }.emit(out);
    &mut out[ethernet::LEN..ethernet::LEN + payload]
}

/// Replaces the content of `out` with an ARP frame.
pub fn arp(out: &mut Vec<u8>, link: Link, packet: &arp::Repr) {
    packet.emit(ethernet(out, link, ethertype::ARP, arp::LEN));
}

/// Replaces the content of `out` with an ICMP message from `source` to `destination`.
pub fn icmpv4(
    out: &mut Vec<u8>,
    link: Link,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    identification: u16,
    message: &icmpv4::Repr<'_>,
) {
    let ip = ipv4::Repr {
        tos: 0,
        identification,
        dont_fragment: false,
        ttl: 64,
        protocol: protocol::ICMP,
        source,
        destination,
        payload_len: message.message_len(),
    };
    let packet = ethernet(out, link, ethertype::IPV4, ipv4::LEN + ip.payload_len);
    ip.emit(packet);
    message.emit(&mut packet[ipv4::LEN..]);
}

/// Replaces the content of `out` with an ICMPv6 message from `source` to `destination`; For Neighbor Discovery,
/// `hop_limit` must be 255 (RFC 4861).
pub fn icmpv6(
    out: &mut Vec<u8>,
    link: Link,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    hop_limit: u8,
    message: &icmpv6::Repr<'_>,
) {
    let ip = ipv6::Repr {
        traffic_class: 0,
        flow_label: 0,
        next_header: protocol::ICMPV6,
        hop_limit,
        source,
        destination,
        payload_len: message.message_len(),
    };
    let packet = ethernet(out, link, ethertype::IPV6, ipv6::LEN + ip.payload_len);
    ip.emit(packet);
    message.emit(&mut packet[ipv6::LEN..], ip.pseudo_header_sum());
}

/// Replaces the content of `out` with a multicast neighbor solicitation for `target`.
pub fn solicitation(out: &mut Vec<u8>, mac: MacAddr, source: Ipv6Addr, target: Ipv6Addr) {
    let group = icmpv6::ndp::solicited_node(target);
    let link = Link { source: mac, destination: icmpv6::ndp::multicast_mac(group) };
    let ask = icmpv6::ndp::Repr::NeighborSolicitation { target, source_mac: Some(mac) };
    icmpv6(out, link, source, group, 255, &icmpv6::Repr::Ndp(ask));
}

/// Replaces the content of `out` with a broadcast ARP request for `target`.
pub fn request(out: &mut Vec<u8>, mac: MacAddr, source: Ipv4Addr, target: Ipv4Addr) {
    let link = Link { source: mac, destination: MacAddr::BROADCAST };
    arp(out, link, &arp::Repr::request(mac, source, target));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oracle_reads_what_is_composed() {
        let (a, b) = (MacAddr::local(1), MacAddr::local(2));
        let link = Link { source: a, destination: b };
        let mut out = vec![0xee; 2000];
        let echo = icmpv4::Repr::EchoRequest { identifier: 1, sequence: 2, data: b"0123456789" };
        icmpv4(&mut out, link, [198, 18, 1, 2].into(), [198, 18, 1, 1].into(), 7, &echo);
        assert_eq!(out.len(), 60);
        let sliced = etherparse::SlicedPacket::from_ethernet(&out).unwrap();
        assert!(matches!(sliced.transport, Some(etherparse::TransportSlice::Icmpv4(_))));
        drop(sliced);
        let (source, target) = ("2001:2::2".parse().unwrap(), "2001:2::1".parse().unwrap());
        solicitation(&mut out, a, source, target);
        let sliced = etherparse::SlicedPacket::from_ethernet(&out).unwrap();
        let Some(etherparse::TransportSlice::Icmpv6(message)) = sliced.transport else { panic!("not ICMPv6") };
        let group: Ipv6Addr = "ff02::1:ff00:1".parse().unwrap();
        assert!(message.is_checksum_valid(source.octets(), group.octets()));
    }
}
