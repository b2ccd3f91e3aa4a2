//! Maps frames to protocol names with a table.

use drophammer_wire::ethernet::{self, ethertype};
use drophammer_wire::ipv6;

/// A property of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Match {
    /// ARP operation.
    Arp(u16),
    /// EtherType.
    Type(u16),
    /// Destination SAP of a frame with a length field in place of the EtherType (IEEE 802.2).
    Llc(u8),
    /// OUI and type after SAP 0xaa.
    Snap(u32, u16),
    /// ICMPv6 type. For a neighbor advertisement, the flag is true if it was solicited.
    Icmp6(u8, bool),
    /// ICMP type.
    Icmp(u8),
    /// Either TCP port.
    Tcp(u16),
    /// Either UDP port.
    Udp(u16),
    /// Protocol number in IPv4 or IPv6.
    Ip(u8),
    /// A fragment of a packet.
    Fragment,
}
use Match::{Arp, Fragment, Icmp, Icmp6, Ip, Llc, Snap, Tcp, Type, Udp};

/// OUI of Cisco.
const CISCO: u32 = 0x00_00_0c;

/// Fragment header of IPv6 (RFC 8200 section 4.5).
const FRAGMENT: u8 = 44;

/// Property, protocol name, and true if a unicast frame with this property answers its receiver. The first match counts.
static PROTOCOLS: &[(Match, &str, bool)] = &[
    (Arp(1), "ARP request", false),
    (Arp(2), "ARP reply", true),
    (Type(ethertype::ARP), "ARP, other", false),
    (Type(ethertype::LLDP), "LLDP", false),
    (Type(0x8809), "slow protocols (LACP)", false),
    (Type(0x888e), "EAPOL", false),
    (Type(0x8902), "CFM", false),
    (Type(0x88f7), "PTP", false),
    (Type(0x8863), "PPPoE discovery", false),
    (Type(0x9000), "loopback test", false),
    (Type(ethertype::MPLS), "MPLS", false),
    (Llc(0x42), "STP", false),
    (Llc(0xfe), "IS-IS", false),
    (Snap(CISCO, 0x2000), "CDP", false),
    (Snap(CISCO, 0x2003), "VTP", false),
    (Snap(CISCO, 0x2004), "DTP", false),
    (Snap(CISCO, 0x010b), "PVST+", false),
    (Icmp6(133, false), "router solicitation", false),
    (Icmp6(134, false), "router advertisement", false),
    (Icmp6(135, false), "neighbor solicitation", false),
    (Icmp6(136, true), "neighbor advertisement, solicited", true),
    (Icmp6(136, false), "neighbor advertisement, unsolicited", false),
    (Icmp6(137, false), "ICMPv6 redirect", false),
    (Icmp6(130, false), "MLD", false),
    (Icmp6(131, false), "MLD", false),
    (Icmp6(132, false), "MLD", false),
    (Icmp6(143, false), "MLD", false),
    (Icmp6(128, false), "ICMPv6 echo request", false),
    (Icmp6(129, false), "ICMPv6 echo reply", true),
    (Icmp(8), "ICMP echo request", false),
    (Icmp(0), "ICMP echo reply", true),
    (Icmp(9), "ICMP router advertisement", false),
    (Tcp(179), "BGP", false),
    (Tcp(646), "LDP session", false),
    (Tcp(22), "SSH", false),
    (Udp(646), "LDP", false),
    (Udp(520), "RIP", false),
    (Udp(521), "RIPng", false),
    (Udp(3784), "BFD", false),
    (Udp(1985), "HSRP", false),
    (Udp(67), "DHCP", false),
    (Udp(547), "DHCPv6", false),
    (Udp(123), "NTP", false),
    (Udp(161), "SNMP", false),
    (Udp(162), "SNMP trap", false),
    (Udp(514), "syslog", false),
    (Udp(5353), "mDNS", false),
    (Udp(5678), "MNDP", false),
    (Ip(1), "ICMP, other", false),
    (Ip(58), "ICMPv6, other", false),
    (Ip(2), "IGMP", false),
    (Ip(89), "OSPF", false),
    (Ip(88), "EIGRP", false),
    (Ip(103), "PIM", false),
    (Ip(112), "VRRP", false),
    (Ip(46), "RSVP", false),
    (Fragment, "fragment of a packet", false),
    (Ip(6), "TCP, other", false),
    (Ip(17), "UDP, other", false),
];

/// Returns all properties of a frame, in no particular order.
fn facts(frame: &[u8]) -> Vec<Match> {
    let word = |at: usize| frame.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    let mut at = ethernet::LEN;
    let mut kind = word(at - 2).unwrap_or_default();
    while matches!(kind, ethertype::VLAN | ethertype::SERVICE_VLAN | ethertype::OLD_SERVICE_VLAN) && at < 30 {
        at += 4;
        kind = word(at - 2).unwrap_or_default();
    }
    let payload = frame.get(at..).unwrap_or_default();
    match kind {
        ethertype::ARP => word(at + 6).map(Arp).into_iter().chain([Type(kind)]).collect(),
        ethertype::IPV4 => match payload.first_chunk::<20>() {
            Some(ip) => {
                let fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff;
                let first = payload.get(usize::from(ip[0] & 15) * 4..).filter(|_| fragment & 0x1fff == 0);
                let mut facts = upper(ip[9], first.unwrap_or_default());
                facts.extend((fragment != 0).then_some(Fragment));
                facts
            }
            None => vec![Type(kind)],
        },
        ethertype::IPV6 if payload.len() >= ipv6::LEN => {
            let (mut next, mut rest) = (payload[6], &payload[ipv6::LEN..]);
            // Skips extension headers before the upper-layer header.
            while matches!(next, 0 | 43 | 60) && rest.len() >= 8 {
                let length = (usize::from(rest[1]) + 1) * 8;
                next = rest[0];
                rest = rest.get(length..).unwrap_or_default();
            }
            match (next, rest.first_chunk::<8>()) {
                (FRAGMENT, Some(header)) => vec![Ip(header[0]), Fragment],
                _ => upper(next, rest),
            }
        }
        // The field is a length (IEEE 802.3).
        0..0x0600 => {
            let sap = payload.first().copied().unwrap_or_default();
            let snap = payload.first_chunk::<8>().filter(|_| sap == 0xaa);
            let snap = snap.map(|p| Snap(u32::from_be_bytes([0, p[3], p[4], p[5]]), u16::from_be_bytes([p[6], p[7]])));
            snap.into_iter().chain([Llc(sap)]).collect()
        }
        kind => vec![Type(kind)],
    }
}

/// Returns the properties of the IP payload `payload`.
fn upper(protocol: u8, payload: &[u8]) -> Vec<Match> {
    let mut facts = vec![Ip(protocol)];
    let ports =
        payload.first_chunk::<4>().map(|p| [u16::from_be_bytes([p[0], p[1]]), u16::from_be_bytes([p[2], p[3]])]);
    match (protocol, ports) {
        (6, Some(ports)) => facts.extend(ports.map(Tcp)),
        (17, Some(ports)) => facts.extend(ports.map(Udp)),
        (1, Some(_)) => facts.push(Icmp(payload[0])),
        (58, Some(_)) => {
            let solicited = payload[0] == 136 && payload.get(4).is_some_and(|flags| flags & 0x40 != 0);
            facts.push(Icmp6(payload[0], solicited));
        }
        _ => {}
    }
    facts
}

/// Returns the protocol name of `frame`, and true if the frame answers a request of its receiver.
pub(crate) fn protocol(frame: &[u8]) -> (String, bool) {
    let facts = facts(frame);
    if let Some((_, name, answers)) = PROTOCOLS.iter().find(|(known, ..)| facts.contains(known)) {
        let to_one = frame.first().is_some_and(|byte| byte & 1 == 0);
        return ((*name).to_owned(), *answers && to_one);
    }
    let name = match facts.first() {
        Some(Type(kind)) => format!("EtherType 0x{kind:04x}"),
        Some(Llc(sap)) => format!("LLC 0x{sap:02x}"),
        Some(Snap(organisation, kind)) => format!("SNAP {organisation:06x}/0x{kind:04x}"),
        Some(Ip(protocol)) => format!("IP protocol {protocol}"),
        _ => "unreadable".into(),
    };
    (name, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(to: u8, rest: &[u8]) -> Vec<u8> {
        let mut frame = vec![to, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1];
        frame.extend_from_slice(rest);
        frame.resize(frame.len().max(60), 0);
        frame
    }

    fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet.extend_from_slice(payload);
        frame(2, &packet)
    }

    fn fragment(protocol: u8, word: u16) -> Vec<u8> {
        let mut frame = ipv4(protocol, &[0, 9, 0, 9]);
        frame[20..22].copy_from_slice(&word.to_be_bytes());
        frame
    }

    fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x86, 0xdd, 0x60, 0, 0, 0, 0, 40, next, 255];
        packet.extend_from_slice(&[0xfe; 32]);
        packet.extend_from_slice(payload);
        frame(2, &packet)
    }

    #[test]
    fn frames_are_named() {
        let arp = |operation| frame(2, &[8, 6, 0, 1, 8, 0, 6, 4, 0, operation]);
        let cases: Vec<(Vec<u8>, &str, bool)> = vec![
            (arp(1), "ARP request", false),
            (arp(2), "ARP reply", true),
            (arp(9), "ARP, other", false),
            (frame(1, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]), "ARP reply", false),
            (frame(1, &[0x88, 0xcc, 2, 7]), "LLDP", false),
            // After a VLAN tag.
            (frame(1, &[0x81, 0, 0, 7, 0x88, 0xcc]), "LLDP", false),
            (frame(1, &[0, 38, 0x42, 0x42, 3]), "STP", false),
            (frame(1, &[0, 38, 0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0]), "CDP", false),
            (frame(1, &[0, 38, 0xaa, 0xaa, 3, 0, 0, 0x0c, 0x99, 0]), "SNAP 00000c/0x9900", false),
            (frame(1, &[0, 38, 0xe0, 0xe0]), "LLC 0xe0", false),
            (frame(1, &[0x12, 0x34]), "EtherType 0x1234", false),
            (ipv4(89, &[2, 1]), "OSPF", false),
            (ipv4(6, &[0, 179, 0x80, 0]), "BGP", false),
            (ipv4(17, &[0x80, 0, 2, 8]), "RIP", false),
            (ipv4(17, &[0x80, 0, 0x80, 1]), "UDP, other", false),
            (ipv4(1, &[0, 0, 0, 0]), "ICMP echo reply", true),
            (fragment(17, 0x2000), "fragment of a packet", false),
            (fragment(17, 0x0001), "fragment of a packet", false),
            (fragment(89, 0x2000), "OSPF", false),
            (ipv6(44, &[17, 0, 0, 1, 0, 0, 0, 9]), "fragment of a packet", false),
            (ipv4(77, &[]), "IP protocol 77", false),
            (ipv6(58, &[134, 0, 0, 0]), "router advertisement", false),
            (ipv6(58, &[136, 0, 0, 0, 0x60]), "neighbor advertisement, solicited", true),
            (ipv6(58, &[136, 0, 0, 0, 0x20]), "neighbor advertisement, unsolicited", false),
            // MLD follows a hop-by-hop header (RFC 3810 section 5).
            (ipv6(0, &[58, 0, 5, 2, 0, 0, 1, 0, 143, 0, 0, 0]), "MLD", false),
            (ipv6(89, &[3, 1]), "OSPF", false),
        ];
        for (bytes, name, answer) in cases {
            assert_eq!(protocol(&bytes), (name.to_owned(), answer));
        }
    }

    #[test]
    fn no_frame_is_too_short_to_be_named() {
        let long = ipv6(0, &[58, 200, 5, 2, 0, 0, 1, 0, 143, 0, 0, 0]);
        for frame in [long, ipv4(17, &[1, 2, 3, 4]), frame(1, &[0x81, 0, 0, 7, 0x81, 0, 0, 7, 0x86, 0xdd, 0x60])] {
            for end in 0..=frame.len() {
                assert!(!protocol(&frame[..end]).0.is_empty());
            }
        }
    }
}
