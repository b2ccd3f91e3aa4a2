//! Headers and their fields. `None` in a field means automatic: a type, length or checksum follows from the rest of the
//! stack, and an address or label from the device that sends the flow. A given value is sent unchanged, even if it is
//! wrong.

use super::field::{AnyField, Field};
use super::value::{Bits, FieldValue, Octets};
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

/// A field that is computed from the rest of the stack if it is absent.
type Auto<T> = Option<Field<T>>;

/// A member of a header struct.
trait Member {
    /// True if records leave it out.
    fn is_absent(&self) -> bool;
}

impl<T> Member for Auto<T> {
    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl<T> Member for Field<T> {
    fn is_absent(&self) -> bool {
        false
    }
}

impl Member for bool {
    fn is_absent(&self) -> bool {
        !self
    }
}

impl Member for Octets {
    fn is_absent(&self) -> bool {
        self.0.is_empty()
    }
}

impl Member for Vec<Extension> {
    fn is_absent(&self) -> bool {
        self.is_empty()
    }
}

/// A field of a header struct, automatic or not.
trait Slot {
    fn get(&self) -> Option<&dyn AnyField>;
    fn put(&mut self, bits: u128);
    /// [`Field::every`]. Returns false if the field keeps its values.
    fn share(&mut self, first: u64, step: u64) -> bool;
}

impl<T: FieldValue> Slot for Field<T> {
    fn get(&self) -> Option<&dyn AnyField> {
        Some(self)
    }
    fn put(&mut self, bits: u128) {
        *self = Field::Value(T::from_bits(bits));
    }
    fn share(&mut self, first: u64, step: u64) -> bool {
        let shared = self.every(first, step);
        let is_shared = shared.is_some();
        shared.into_iter().for_each(|field| *self = field);
        is_shared
    }
}

impl<T: FieldValue> Slot for Auto<T> {
    fn get(&self) -> Option<&dyn AnyField> {
        self.as_ref().map(|field| field as &dyn AnyField)
    }
    fn put(&mut self, bits: u128) {
        *self = Some(Field::Value(T::from_bits(bits)));
    }
    fn share(&mut self, first: u64, step: u64) -> bool {
        self.as_mut().is_none_or(|field| field.share(first, step))
    }
}

macro_rules! initial {
    () => {
        Default::default()
    };
    ($value:expr) => {
        $value.into()
    };
}

/// Headers with their word in suites. Each member has its [`FieldName`] if it is a field, its type, and its initial
/// value if that is not the default of the type. Fields are in their order on the wire.
macro_rules! headers {
    ($($(#[$doc:meta])* $header:ident $word:literal {
        $($(#[$member_doc:meta])* $([$name:ident])? $member:ident: $type:ty $(= $value:expr)?,)*
    })*) => {
        /// One header of a stack, the outermost first.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Header {
            $($(#[$doc])* $header($header),)*
            /// Raw bytes; must be the last header of a stack.
            Raw(Raw),
        }

        /// Kind of a header.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum HeaderKind {
            $(#[doc = concat!("[`Header::", stringify!($header), "`].")] $header,)*
            /// [`Header::Raw`].
            Raw,
        }

        impl fmt::Display for HeaderKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(HeaderKind::$header => $word,)*
                    HeaderKind::Raw => "raw",
                })
            }
        }

        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
            #[serde(default, deny_unknown_fields)]
            pub struct $header {
                $($(#[$member_doc])* #[serde(skip_serializing_if = "Member::is_absent")] pub $member: $type,)*
            }

            impl Default for $header {
                fn default() -> Self {
                    $header { $($member: initial!($($value)?),)* }
                }
            }
        )*

        impl Header {
            /// Kind of the header.
            pub fn kind(&self) -> HeaderKind {
                match self {
                    $(Header::$header(_) => HeaderKind::$header,)*
                    Header::Raw(_) => HeaderKind::Raw,
                }
            }

            /// All fields in their order on the wire, `None` where they are automatic or left out.
            pub fn fields(&self) -> Vec<(FieldName, Option<&dyn AnyField>)> {
                match self {
                    $(Header::$header(header) => vec![$($((FieldName::$name, header.$member.get()),)?)*],)*
                    Header::Raw(_) => Vec::new(),
                }
            }

            /// Gives all fields the values of frames `first`, `first + step` and so on: see [`Field::every`]. Returns false if a
            /// field has too many values, and keeps them.
            pub fn share(&mut self, first: u64, step: u64) -> bool {
                match self {
                    $(Header::$header(header) => {
                        #[allow(unused_mut)]
                        let mut all = true;
                        $($(
                            let _ = FieldName::$name;
                            all &= header.$member.share(first, step);
                        )?)*
                        let _ = header;
                        all
                    })*
                    Header::Raw(_) => true,
                }
            }

            /// Sets a field to the low bits of `bits`, as many as the field is wide. Returns false if this header has
            /// no such field.
            pub fn set(&mut self, name: FieldName, bits: u128) -> bool {
                match (self, name) {
                    $($($((Header::$header(header), FieldName::$name) => header.$member.put(bits),)?)*)*
                    _ => return false,
                }
                true
            }
        }
    };
}
headers! {
    /// Ethernet II (IEEE 802.3).
    Ethernet "ethernet" {
        /// Destination address; automatic: the address of the gateway or receiver.
        [Destination] destination: Auto<MacAddr>,
        /// Source address; automatic: the address of the sender.
        [Source] source: Auto<MacAddr>,
        /// EtherType; automatic: the next header's. A given value also replaces the `tpid` of a tag that follows.
        [Ethertype] ethertype: Auto<u16>,
    }

    /// A VLAN tag (IEEE 802.1Q). Its TPID replaces the EtherType of the header before it.
    Vlan "vlan" {
        /// Tag protocol identifier; automatic: 0x88a8 (802.1ad) if another tag follows, else 0x8100 (802.1Q).
        [Tpid] tpid: Auto<u16>,
        /// Priority code point.
        [Pcp] pcp: Field<Bits<3>>,
        /// Drop eligible indicator.
        [Dei] dei: Field<bool>,
        /// VLAN identifier.
        [Vid] vid: Field<Bits<12>>,
        /// EtherType of the payload; automatic: the type of the next header.
        [Ethertype] ethertype: Auto<u16>,
    }

    /// A label stack entry (RFC 3032).
    Mpls "mpls" {
        /// Label.
        [Label] label: Field<Bits<20>>,
        /// Traffic class (RFC 5462).
        [Tc] tc: Field<Bits<3>>,
        /// Bottom of stack; automatic: no label follows.
        [BottomOfStack] bottom_of_stack: Auto<bool>,
        /// Time to live.
        [Ttl] ttl: Field<u8> = HOP_LIMIT,
    }

    /// IPv4 (RFC 791, RFC 2474).
    Ipv4 "ipv4" {
        /// Version; automatic: 4.
        [Version] version: Auto<Bits<4>>,
        /// Header length in words of four bytes.
        [HeaderLength] header_length: Auto<Bits<4>>,
        /// Differentiated services codepoint.
        [Dscp] dscp: Field<Bits<6>>,
        /// Explicit congestion notification (RFC 3168).
        [Ecn] ecn: Field<Bits<2>>,
        /// Length of the packet in bytes.
        [TotalLength] total_length: Auto<u16>,
        /// Identification.
        [Identification] identification: Field<u16>,
        /// The flag that must be zero.
        [Reserved] reserved: Field<bool>,
        /// Don't fragment; true by default.
        [DontFragment] dont_fragment: Field<bool> = true,
        /// More fragments.
        [MoreFragments] more_fragments: Field<bool>,
        /// Offset of this fragment in units of eight bytes.
        [FragmentOffset] fragment_offset: Field<Bits<13>>,
        /// Time to live.
        [Ttl] ttl: Field<u8> = HOP_LIMIT,
        /// Protocol of the payload.
        [Protocol] protocol: Auto<u8>,
        /// Header checksum.
        [HeaderChecksum] header_checksum: Auto<u16>,
        /// Source address.
        [Source] source: Auto<Ipv4Addr>,
        /// Destination address.
        [Destination] destination: Auto<Ipv4Addr>,
        /// Options, at most 40 bytes; padded with zeros to a multiple of four.
        options: Octets,
    }

    /// IPv6 (RFC 8200).
    Ipv6 "ipv6" {
        /// Version; automatic: 6.
        [Version] version: Auto<Bits<4>>,
        /// Differentiated services codepoint.
        [Dscp] dscp: Field<Bits<6>>,
        /// Explicit congestion notification (RFC 3168).
        [Ecn] ecn: Field<Bits<2>>,
        /// Flow label.
        [FlowLabel] flow_label: Field<Bits<20>>,
        /// Bytes after the fixed header, extension headers included.
        [PayloadLength] payload_length: Auto<u16>,
        /// Protocol after the extension headers.
        [NextHeader] next_header: Auto<u8>,
        /// Hop limit.
        [HopLimit] hop_limit: Field<u8> = HOP_LIMIT,
        /// Source address.
        [Source] source: Auto<Ipv6Addr>,
        /// Destination address.
        [Destination] destination: Auto<Ipv6Addr>,
        /// Extension headers in the order of RFC 8200 section 4.1.
        extensions: Vec<Extension>,
    }

    /// Generic Routing Encapsulation (RFC 2784, RFC 2890).
    Gre "gre" {
        /// True if there is a checksum. A given `checksum` implies it.
        checksum_present: bool,
        /// EtherType of the payload; automatic: the type of the next header.
        [Protocol] protocol: Auto<u16>,
        /// Checksum over header and payload.
        [Checksum] checksum: Auto<u16>,
        /// Key; absent from the header if not given.
        [Key] key: Auto<u32>,
        /// Sequence number; absent from the header if not given.
        [SequenceNumber] sequence_number: Auto<u32>,
    }

    /// VXLAN (RFC 7348), behind UDP to port 4789.
    Vxlan "vxlan" {
        /// VXLAN network identifier.
        [Vni] vni: Field<Bits<24>>,
    }

    /// UDP (RFC 768).
    Udp "udp" {
        /// Source port.
        [SourcePort] source_port: Field<u16> = SOURCE_PORT,
        /// Destination port.
        [DestinationPort] destination_port: Field<u16> = DISCARD,
        /// Length of header and payload in bytes.
        [Length] length: Auto<u16>,
        /// Checksum; 0 means none, which only IPv4 allows.
        [Checksum] checksum: Auto<u16>,
    }

    /// TCP (RFC 9293).
    Tcp "tcp" {
        /// Source port.
        [SourcePort] source_port: Field<u16> = SOURCE_PORT,
        /// Destination port.
        [DestinationPort] destination_port: Field<u16> = DISCARD,
        /// Sequence number.
        [SequenceNumber] sequence_number: Field<u32>,
        /// Acknowledgment number.
        [AcknowledgmentNumber] acknowledgment_number: Field<u32>,
        /// Header length in words of four bytes.
        [DataOffset] data_offset: Auto<Bits<4>>,
        /// Control bits and the reserved bits above them: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128.
        [Flags] flags: Field<Bits<12>> = Bits::new(16),
        /// Window.
        [Window] window: Field<u16> = u16::MAX,
        /// Checksum.
        [Checksum] checksum: Auto<u16>,
        /// Urgent pointer.
        [UrgentPointer] urgent_pointer: Field<u16>,
        /// Options, at most 40 bytes; padded with zeros to a multiple of four.
        options: Octets,
    }

    /// ICMP echo (RFC 792) or ICMPv6 echo (RFC 4443).
    IcmpEcho "icmp_echo" {
        /// A reply instead of a request.
        reply: bool,
        /// Code.
        [Code] code: Field<u8>,
        /// Checksum.
        [Checksum] checksum: Auto<u16>,
        /// Identifier.
        [Identifier] identifier: Field<u16>,
        /// Sequence number.
        [SequenceNumber] sequence_number: Field<u16>,
    }
}

impl Header {
    /// The field of that name, if this header has it and it has a value.
    pub fn field(&self, name: FieldName) -> Option<&dyn AnyField> {
        self.fields().into_iter().find(|(n, _)| *n == name)?.1
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

/// Raw bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    /// The bytes.
    pub bytes: Octets,
}

macro_rules! names {
    ($($name:ident $text:literal,)*) => {
        /// The name of a field. Names repeat in several headers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum FieldName {
            $(#[doc = concat!("`", $text, "`")] $name,)*
        }

        impl fmt::Display for FieldName {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(FieldName::$name => $text,)* })
            }
        }
    };
}
names! {
    Destination "destination", Source "source", Ethertype "ethertype", Tpid "tpid", Pcp "pcp", Dei "dei", Vid "vid",
    Label "label", Tc "tc", BottomOfStack "bottom_of_stack", Ttl "ttl", Version "version",
    HeaderLength "header_length", Dscp "dscp", Ecn "ecn", TotalLength "total_length", Identification "identification",
    Reserved "reserved", DontFragment "dont_fragment", MoreFragments "more_fragments",
    FragmentOffset "fragment_offset", Protocol "protocol", HeaderChecksum "header_checksum", FlowLabel "flow_label",
    PayloadLength "payload_length", NextHeader "next_header", HopLimit "hop_limit", Checksum "checksum", Key "key",
    SequenceNumber "sequence_number", SourcePort "source_port", DestinationPort "destination_port", Length "length",
    AcknowledgmentNumber "acknowledgment_number", DataOffset "data_offset", Flags "flags", Window "window",
    UrgentPointer "urgent_pointer", Code "code", Identifier "identifier", Vni "vni",
}

#[cfg(test)]
mod tests {
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
