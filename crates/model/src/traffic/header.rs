//! Headers and their fields. `None` in a field means automatic: a type, length or checksum follows from the rest of the
//! stack, and an address or label from the device that sends the flow. A given value is sent unchanged, even if it is
//! wrong.

use super::field::Field;
use super::value::{Bits, Octets};
use crate::mac::MacAddr;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Default TTL and hop limit.
pub const HOP_LIMIT: u8 = 64;
/// Default source port: the first dynamic port (RFC 6335).
const SOURCE_PORT: u16 = 49_152;
/// Default destination port: discard (RFC 863).
pub const DISCARD: u16 = 9;

/// One header of a stack, the outermost first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Header {
    /// Ethernet II.
    Ethernet(Ethernet),
    /// A tag of IEEE 802.1Q or 802.1ad.
    Vlan(Vlan),
    /// One entry of an MPLS label stack.
    Mpls(Mpls),
    /// IPv4.
    Ipv4(Ipv4),
    /// IPv6 with its extension headers.
    Ipv6(Ipv6),
    /// Generic Routing Encapsulation.
    Gre(Gre),
    /// UDP.
    Udp(Udp),
    /// TCP.
    Tcp(Tcp),
    /// An ICMP or ICMPv6 echo request or reply, depending on the IP header before it.
    IcmpEcho(IcmpEcho),
    /// Raw bytes; must be the last header of a stack.
    Raw(Raw),
}

/// Kind of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeaderKind {
    /// [`Header::Ethernet`].
    Ethernet,
    /// [`Header::Vlan`].
    Vlan,
    /// [`Header::Mpls`].
    Mpls,
    /// [`Header::Ipv4`].
    Ipv4,
    /// [`Header::Ipv6`].
    Ipv6,
    /// [`Header::Gre`].
    Gre,
    /// [`Header::Udp`].
    Udp,
    /// [`Header::Tcp`].
    Tcp,
    /// [`Header::IcmpEcho`].
    IcmpEcho,
    /// [`Header::Raw`].
    Raw,
}

impl fmt::Display for HeaderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HeaderKind::Ethernet => "ethernet",
            HeaderKind::Vlan => "vlan",
            HeaderKind::Mpls => "mpls",
            HeaderKind::Ipv4 => "ipv4",
            HeaderKind::Ipv6 => "ipv6",
            HeaderKind::Gre => "gre",
            HeaderKind::Udp => "udp",
            HeaderKind::Tcp => "tcp",
            HeaderKind::IcmpEcho => "icmp_echo",
            HeaderKind::Raw => "raw",
        })
    }
}

/// Ethernet II (IEEE 802.3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ethernet {
    /// Destination address; automatic: the address of the gateway or receiver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<Field<MacAddr>>,
    /// Source address; automatic: the address of the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Field<MacAddr>>,
    /// EtherType; automatic: the next header's. A given value also replaces the `tpid` of a tag that follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ethertype: Option<Field<u16>>,
}

/// A VLAN tag (IEEE 802.1Q). Its TPID replaces the EtherType of the header before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Vlan {
    /// Tag protocol identifier; automatic: 0x88a8 (802.1ad) if another tag follows, else 0x8100 (802.1Q).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpid: Option<Field<u16>>,
    /// Priority code point.
    pub pcp: Field<Bits<3>>,
    /// Drop eligible indicator.
    pub dei: Field<bool>,
    /// VLAN identifier.
    pub vid: Field<Bits<12>>,
    /// EtherType of the payload; automatic: the next header's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ethertype: Option<Field<u16>>,
}

/// A label stack entry (RFC 3032).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mpls {
    /// Label.
    pub label: Field<Bits<20>>,
    /// Traffic class (RFC 5462).
    pub tc: Field<Bits<3>>,
    /// Bottom of stack; automatic: no label follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bottom_of_stack: Option<Field<bool>>,
    /// Time to live.
    pub ttl: Field<u8>,
}

impl Default for Mpls {
    fn default() -> Self {
        Mpls { label: Field::default(), tc: Field::default(), bottom_of_stack: None, ttl: HOP_LIMIT.into() }
    }
}

/// IPv4 (RFC 791, RFC 2474).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ipv4 {
    /// Version; automatic: 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Field<Bits<4>>>,
    /// Header length in words of four bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header_length: Option<Field<Bits<4>>>,
    /// Differentiated services codepoint.
    pub dscp: Field<Bits<6>>,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: Field<Bits<2>>,
    /// Length of the packet in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_length: Option<Field<u16>>,
    /// Identification.
    pub identification: Field<u16>,
    /// The flag that must be zero.
    pub reserved: Field<bool>,
    /// Don't fragment; true by default.
    pub dont_fragment: Field<bool>,
    /// More fragments.
    pub more_fragments: Field<bool>,
    /// Offset of this fragment in units of eight bytes.
    pub fragment_offset: Field<Bits<13>>,
    /// Time to live.
    pub ttl: Field<u8>,
    /// Protocol of the payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Field<u8>>,
    /// Header checksum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header_checksum: Option<Field<u16>>,
    /// Source address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Field<Ipv4Addr>>,
    /// Destination address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<Field<Ipv4Addr>>,
    /// Options, at most 40 bytes; padded with zeros to a multiple of four.
    #[serde(skip_serializing_if = "is_empty")]
    pub options: Octets,
}

impl Default for Ipv4 {
    fn default() -> Self {
        Ipv4 {
            version: None,
            header_length: None,
            dscp: Field::default(),
            ecn: Field::default(),
            total_length: None,
            identification: Field::default(),
            reserved: Field::default(),
            dont_fragment: true.into(),
            more_fragments: Field::default(),
            fragment_offset: Field::default(),
            ttl: HOP_LIMIT.into(),
            protocol: None,
            header_checksum: None,
            source: None,
            destination: None,
            options: Octets::default(),
        }
    }
}

/// IPv6 (RFC 8200).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ipv6 {
    /// Version; automatic: 6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Field<Bits<4>>>,
    /// Differentiated services codepoint.
    pub dscp: Field<Bits<6>>,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: Field<Bits<2>>,
    /// Flow label.
    pub flow_label: Field<Bits<20>>,
    /// Bytes after the fixed header, extension headers included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_length: Option<Field<u16>>,
    /// Protocol after the extension headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_header: Option<Field<u8>>,
    /// Hop limit.
    pub hop_limit: Field<u8>,
    /// Source address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Field<Ipv6Addr>>,
    /// Destination address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<Field<Ipv6Addr>>,
    /// Extension headers in the order of RFC 8200 section 4.1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<Extension>,
}

impl Default for Ipv6 {
    fn default() -> Self {
        Ipv6 {
            version: None,
            dscp: Field::default(),
            ecn: Field::default(),
            flow_label: Field::default(),
            payload_length: None,
            next_header: None,
            hop_limit: HOP_LIMIT.into(),
            source: None,
            destination: None,
            extensions: Vec::new(),
        }
    }
}

/// An extension header of IPv6 (RFC 8200 section 4). Types and lengths follow from the list.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Extension {
    /// Hop-by-hop options.
    HopByHop {
        /// Options as type, length and value; padded with padding options.
        #[serde(default)]
        options: Octets,
    },
    /// Destination options.
    DestinationOptions {
        /// Options as type, length and value; padded with padding options.
        #[serde(default)]
        options: Octets,
    },
    /// Routing header.
    Routing {
        /// Routing type: 4 is segment routing (RFC 8754).
        routing_type: u8,
        /// Segments left.
        segments_left: u8,
        /// Data after the fixed part: 4 bytes and any multiple of 8.
        data: Octets,
    },
    /// Fragment header.
    Fragment {
        /// Offset of this fragment in units of eight bytes.
        #[serde(default)]
        offset: Bits<13>,
        /// Another fragment follows.
        #[serde(default)]
        more: bool,
        /// Identification.
        #[serde(default)]
        identification: u32,
    },
}

/// Generic Routing Encapsulation (RFC 2784, RFC 2890).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gre {
    /// True if there is a checksum. A given `checksum` implies it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub checksum_present: bool,
    /// EtherType of the payload; automatic: the next header's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Field<u16>>,
    /// Checksum over header and payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Field<u16>>,
    /// Key; absent from the header if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Field<u32>>,
    /// Sequence number; absent from the header if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence_number: Option<Field<u32>>,
}

/// UDP (RFC 768).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Udp {
    /// Source port.
    pub source_port: Field<u16>,
    /// Destination port.
    pub destination_port: Field<u16>,
    /// Length of header and payload in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<Field<u16>>,
    /// Checksum; 0 means none, which only IPv4 allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Field<u16>>,
}

impl Default for Udp {
    fn default() -> Self {
        Udp { source_port: SOURCE_PORT.into(), destination_port: DISCARD.into(), length: None, checksum: None }
    }
}

/// TCP (RFC 9293).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tcp {
    /// Source port.
    pub source_port: Field<u16>,
    /// Destination port.
    pub destination_port: Field<u16>,
    /// Sequence number.
    pub sequence_number: Field<u32>,
    /// Acknowledgment number.
    pub acknowledgment_number: Field<u32>,
    /// Header length in words of four bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_offset: Option<Field<Bits<4>>>,
    /// Control bits and the reserved bits above them: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128.
    pub flags: Field<Bits<12>>,
    /// Window.
    pub window: Field<u16>,
    /// Checksum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Field<u16>>,
    /// Urgent pointer.
    pub urgent_pointer: Field<u16>,
    /// Options, at most 40 bytes; padded with zeros to a multiple of four.
    #[serde(skip_serializing_if = "is_empty")]
    pub options: Octets,
}

impl Default for Tcp {
    fn default() -> Self {
        Tcp {
            source_port: SOURCE_PORT.into(),
            destination_port: DISCARD.into(),
            sequence_number: Field::default(),
            acknowledgment_number: Field::default(),
            data_offset: None,
            flags: Bits::new(16).into(),
            window: u16::MAX.into(),
            checksum: None,
            urgent_pointer: Field::default(),
            options: Octets::default(),
        }
    }
}

/// ICMP echo (RFC 792) or ICMPv6 echo (RFC 4443).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IcmpEcho {
    /// A reply instead of a request.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reply: bool,
    /// Code.
    pub code: Field<u8>,
    /// Checksum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Field<u16>>,
    /// Identifier.
    pub identifier: Field<u16>,
    /// Sequence number.
    pub sequence_number: Field<u16>,
}

/// Raw bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    /// The bytes.
    pub bytes: Octets,
}

fn is_empty(octets: &Octets) -> bool {
    octets.0.is_empty()
}

#[cfg(test)]
mod tests {
    use super::super::FieldName;
    use super::*;

    const STACK: &str = "
- ethernet: {source: 02:00:00:00:00:01, destination: {start: 02:00:00:00:01:00, count: 4}}
- vlan: {vid: {start: 100, count: 50}, pcp: 5}
- vlan: {tpid: 0x8100, vid: 7, dei: true}
- mpls: {label: 16, ttl: 3}
- ipv4: {source: 192.0.2.1, destination: 198.51.100.1, dscp: {values: [10, 46]}, options: 94040000}
- gre: {key: 7, checksum_present: true}
- ipv6:
    source: 2001:db8::1
    destination: 2001:db8::2
    extensions:
    - hop_by_hop: {options: 05020000}
    - routing: {routing_type: 4, segments_left: 0, data: '00000000'}
    - fragment: {identification: 3}
    - destination_options: {}
- tcp: {flags: 2}
- raw: {bytes: de ad}
";

    #[test]
    fn a_stack_is_read_and_written() {
        let stack: Vec<Header> = serde_saphyr::from_str(STACK).unwrap();
        let kinds: Vec<_> = stack.iter().map(|h| h.kind().to_string()).collect();
        assert_eq!(kinds, ["ethernet", "vlan", "vlan", "mpls", "ipv4", "gre", "ipv6", "tcp", "raw"]);
        let Header::Ipv4(ipv4) = &stack[4] else { panic!() };
        assert_eq!((ipv4.options.to_string(), ipv4.ttl.first(), ipv4.protocol.clone()), ("94040000".into(), 64, None));
        let Header::Ipv6(ipv6) = &stack[6] else { panic!() };
        assert_eq!(ipv6.extensions.len(), 4);
        let json = serde_json::to_string(&stack).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Header>>(&json).unwrap(), stack);
    }

    #[test]
    fn mistakes_are_named() {
        for (yaml, part) in [
            ("- vlan: {vid: 4096}", "4096 does not fit a field of 12 bits"),
            ("- vlan: {id: 1}", "id"),
            ("- ethernet: {source: 02:00}", "is not a MAC address"),
            ("- token_ring: {}", "token_ring"),
            ("- ipv6: {extensions: [{fragment: {offset: 8192}}]}", "13 bits"),
        ] {
            let error = serde_saphyr::from_str::<Vec<Header>>(yaml).unwrap_err().to_string();
            assert!(error.contains(part), "{yaml}: {error}");
        }
    }

    #[test]
    fn every_field_is_set_by_its_name() {
        let stack: Vec<Header> = serde_saphyr::from_str(STACK).unwrap();
        for mut header in stack {
            let names: Vec<_> = header.fields().into_iter().map(|(name, _)| name).collect();
            for (i, name) in names.iter().enumerate() {
                assert!(header.set(*name, i as u128));
                let field = header.field(*name).unwrap();
                let mask = u128::MAX >> (128 - field.width());
                assert_eq!((field.count(), field.bits(0)), (1, i as u128 & mask), "{} {name}", header.kind());
                assert_eq!(serde_json::to_string(name).unwrap(), format!("\"{name}\""));
            }
            assert!(!header.set(FieldName::Tpid, 0) || header.kind() == HeaderKind::Vlan);
        }
    }
}
