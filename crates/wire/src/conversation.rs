//! Classifies a received frame by its headers, for display.

use crate::ethernet::ethertype;
use crate::ipv4::protocol::{ICMP, ICMPV6, OSPF};
use crate::stack::{Layer, locate};
use drophammer_model::traffic::HeaderKind;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Identifies frames that agree in all fields of this struct.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Conversation {
    /// VLAN identifiers, outermost first.
    pub vlans: Vec<u16>,
    /// MPLS labels, outermost first.
    pub labels: Vec<u32>,
    /// Source and destination of the tunnels around the packet, outermost first.
    pub tunnels: Vec<(IpAddr, IpAddr)>,
    /// Content of the frame.
    pub what: What,
}

/// Content of a frame.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// An IP packet.
    Ip {
        /// Source address.
        source: IpAddr,
        /// Destination address.
        destination: IpAddr,
        /// Content of the packet.
        inside: Inside,
    },
    /// Any other content, by its EtherType.
    Other(u16),
    /// The frame is too short for an Ethernet header.
    Short,
}

/// Content of an IP packet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Inside {
    /// UDP: source and destination port.
    Udp(u16, u16),
    /// TCP: source and destination port.
    Tcp(u16, u16),
    /// ICMP or ICMPv6: type and code.
    Icmp(u8, u8),
    /// Another protocol, or a packet that is cut off before its ports or its type.
    Protocol(u8),
}

/// Classifies a frame without FCS. Accepts any bytes.
pub fn conversation(frame: &[u8]) -> Conversation {
    let layers = locate(frame);
    let of = |kind: HeaderKind| layers.iter().filter(move |layer| layer.kind == kind).map(|layer| bytes(frame, layer));
    let vlans = of(HeaderKind::Vlan).map(|b| u16::from_be_bytes([b[0], b[1]]) & 0x0fff).collect();
    let labels = of(HeaderKind::Mpls).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]) >> 12).collect();
    let mut ends: Vec<(IpAddr, IpAddr, u8)> = layers.iter().filter_map(|layer| addresses(frame, layer)).collect();
    let innermost = ends.pop();
    let what = match (innermost, layers.first()) {
        (Some((source, destination, protocol)), _) => {
            let rest = &frame[layers.payload()];
            let last = layers.last().map(|layer| (layer.kind, bytes(frame, layer)));
            let ports = |b: &[u8]| (u16::from_be_bytes([b[0], b[1]]), u16::from_be_bytes([b[2], b[3]]));
            let inside = match (last, protocol) {
                (Some((HeaderKind::Udp, header)), _) => Inside::Udp(ports(header).0, ports(header).1),
                (Some((HeaderKind::Tcp, header)), _) => Inside::Tcp(ports(header).0, ports(header).1),
                (Some((HeaderKind::IcmpEcho, header)), _) => Inside::Icmp(header[0], header[1]),
                (Some((HeaderKind::Ipv4 | HeaderKind::Ipv6, _)), ICMP | ICMPV6) if rest.len() >= 2 => {
                    Inside::Icmp(rest[0], rest[1])
                }
                _ => Inside::Protocol(protocol),
            };
            What::Ip { source, destination, inside }
        }
        (None, Some(_)) => {
            // The EtherType is the last field of the Ethernet header and of each tag.
            let before = layers.iter().rev().find(|l| matches!(l.kind, HeaderKind::Ethernet | HeaderKind::Vlan));
            let ethertype = before.map(|layer| bytes(frame, layer)).and_then(|b| b.last_chunk::<2>().copied());
            ethertype.map_or(What::Short, |b| What::Other(u16::from_be_bytes(b)))
        }
        (None, None) => What::Short,
    };
    let tunnels = ends.into_iter().map(|(source, destination, _)| (source, destination)).collect();
    Conversation { vlans, labels, tunnels, what }
}

/// Returns the bytes of a header.
fn bytes<'a>(frame: &'a [u8], layer: &Layer) -> &'a [u8] {
    &frame[layer.offset()..layer.offset() + layer.length()]
}

/// Returns source, destination and protocol of an IP header. The IPv6 header includes its extension headers; in that
/// case the protocol is the type of the first extension header.
fn addresses(frame: &[u8], layer: &Layer) -> Option<(IpAddr, IpAddr, u8)> {
    let header = bytes(frame, layer);
    match layer.kind {
        HeaderKind::Ipv4 => {
            let at = |i: usize| header.get(i..i + 4)?.try_into().ok().map(|b: [u8; 4]| Ipv4Addr::from(b).into());
            Some((at(12)?, at(16)?, header[9]))
        }
        HeaderKind::Ipv6 => {
            let at = |i: usize| header.get(i..i + 16)?.try_into().ok().map(|b: [u8; 16]| Ipv6Addr::from(b).into());
            Some((at(8)?, at(24)?, header[6]))
        }
        _ => None,
    }
}

/// Display form: `vlan 10, label 100, 198.18.1.2 > 198.19.1.2 udp 49152 > 9`
impl fmt::Display for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for vlan in &self.vlans {
            write!(f, "vlan {vlan}, ")?;
        }
        for label in &self.labels {
            write!(f, "label {label}, ")?;
        }
        for (source, destination) in &self.tunnels {
            write!(f, "tunnel {source} > {destination}, ")?;
        }
        match &self.what {
            What::Ip { source, destination, inside } => write!(f, "{source} > {destination} {inside}"),
            What::Other(ethertype::ARP) => f.write_str("arp"),
            What::Other(ethertype::LLDP) => f.write_str("lldp"),
            // IEEE 802.3: this is a length, not a type.
            What::Other(length) if *length < 0x0600 => f.write_str("llc"),
            What::Other(ethertype) => write!(f, "ethertype 0x{ethertype:04x}"),
            What::Short => f.write_str("too short for Ethernet"),
        }
    }
}

impl fmt::Display for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Inside::Udp(source, destination) => write!(f, "udp {source} > {destination}"),
            Inside::Tcp(source, destination) => write!(f, "tcp {source} > {destination}"),
            Inside::Icmp(kind, code) => write!(f, "icmp type {kind} code {code}"),
            Inside::Protocol(OSPF) => f.write_str("ospf"),
            Inside::Protocol(protocol) => write!(f, "protocol {protocol}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::{Payload, compile};
    use drophammer_model::size::FrameSize;
    use drophammer_model::traffic::{Bits, Ethernet, Gre, Header, Ipv4, Ipv6, Mpls, Tcp, Udp, Vlan};
    use proptest::prelude::*;

    fn text(headers: &[Header]) -> String {
        let frame = compile(headers, FrameSize::Frame(200), Payload::Plain(&|_| {})).unwrap();
        conversation(&frame.bytes).to_string()
    }

    fn ipv4(source: [u8; 4], destination: [u8; 4]) -> Header {
        let at = |a: [u8; 4]| Some(Ipv4Addr::from(a).into());
        Header::Ipv4(Ipv4 { source: at(source), destination: at(destination), ..Ipv4::default() })
    }

    fn ethernet() -> Header {
        let mac = |last| Some(crate::MacAddr::local(last).into());
        Header::Ethernet(Ethernet { destination: mac(1), source: mac(2), ethertype: None })
    }

    #[test]
    fn headers_are_told_from_the_outside_in() {
        let (a, b) = ([198, 18, 1, 2], [198, 19, 1, 2]);
        let udp = || Header::Udp(Udp::default());
        let vlan = |vid| Header::Vlan(Vlan { vid: Bits::new(vid).into(), ..Vlan::default() });
        let label = |label| Header::Mpls(Mpls { label: Bits::new(label).into(), ..Mpls::default() });
        assert_eq!(text(&[ethernet(), ipv4(a, b), udp()]), "198.18.1.2 > 198.19.1.2 udp 49152 > 9");
        assert_eq!(
            text(&[ethernet(), vlan(10), vlan(20), label(100), label(16), ipv4(a, b), udp()]),
            "vlan 10, vlan 20, label 100, label 16, 198.18.1.2 > 198.19.1.2 udp 49152 > 9"
        );
        let tunnelled =
            [ethernet(), ipv4([10, 0, 0, 1], [10, 0, 0, 2]), Header::Gre(Gre::default()), ipv4(a, b), udp()];
        assert_eq!(text(&tunnelled), "tunnel 10.0.0.1 > 10.0.0.2, 198.18.1.2 > 198.19.1.2 udp 49152 > 9");
        let v6 = |last: u16| Some(Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, last).into());
        let ipv6 = Header::Ipv6(Ipv6 { source: v6(1), destination: v6(2), ..Ipv6::default() });
        assert_eq!(
            text(&[ethernet(), ipv6, Header::Tcp(Tcp::default())]).split(" tcp ").next(),
            Some("2001:2::1 > 2001:2::2")
        );
    }

    #[test]
    fn what_is_no_ip_packet_is_told_by_its_type() {
        let mut frame = vec![0u8; 60];
        frame[12..14].copy_from_slice(&[0x08, 0x06]);
        assert_eq!(conversation(&frame).to_string(), "arp");
        frame[12..14].copy_from_slice(&[0x12, 0x34]);
        assert_eq!(conversation(&frame).to_string(), "ethertype 0x1234");
        frame[12..14].copy_from_slice(&[0x00, 0x26]);
        assert_eq!(conversation(&frame).to_string(), "llc");
        assert_eq!(conversation(&frame[..9]).to_string(), "too short for Ethernet");
        // Time exceeded: type 11.
        let mut frame = vec![0u8; 60];
        frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0]);
        (frame[17], frame[23], frame[34]) = (46, 1, 11);
        assert_eq!(conversation(&frame).to_string(), "0.0.0.0 > 0.0.0.0 icmp type 11 code 0");
    }

    proptest! {
        #[test]
        fn any_bytes_are_something(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in any::<prop::sample::Index>()) {
            let mut bytes = bytes;
            let kinds = [0x0800u16, 0x86dd, 0x8100, 0x88a8, 0x8847, 0x0806];
            if bytes.len() > 14 {
                bytes[12..14].copy_from_slice(&kinds[kind.index(kinds.len())].to_be_bytes());
            }
            prop_assert!(!conversation(&bytes).to_string().is_empty());
        }
    }
}
