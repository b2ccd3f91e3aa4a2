//! Fields by name.

use super::field::{AnyField, Field};
use super::header::{Header, HeaderKind};
use super::value::FieldValue;
use serde::{Deserialize, Serialize};
use std::fmt;

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
    Destination "destination",
    Source "source",
    Ethertype "ethertype",
    Tpid "tpid",
    Pcp "pcp",
    Dei "dei",
    Vid "vid",
    Label "label",
    Tc "tc",
    BottomOfStack "bottom_of_stack",
    Ttl "ttl",
    Version "version",
    HeaderLength "header_length",
    Dscp "dscp",
    Ecn "ecn",
    TotalLength "total_length",
    Identification "identification",
    Reserved "reserved",
    DontFragment "dont_fragment",
    MoreFragments "more_fragments",
    FragmentOffset "fragment_offset",
    Protocol "protocol",
    HeaderChecksum "header_checksum",
    FlowLabel "flow_label",
    PayloadLength "payload_length",
    NextHeader "next_header",
    HopLimit "hop_limit",
    Checksum "checksum",
    Key "key",
    SequenceNumber "sequence_number",
    SourcePort "source_port",
    DestinationPort "destination_port",
    Length "length",
    AcknowledgmentNumber "acknowledgment_number",
    DataOffset "data_offset",
    Flags "flags",
    Window "window",
    UrgentPointer "urgent_pointer",
    Code "code",
    Identifier "identifier",
}

/// A field of a header struct, automatic or not.
trait Slot {
    fn get(&self) -> Option<&dyn AnyField>;
    fn put(&mut self, bits: u128);
}

impl<T: FieldValue> Slot for Field<T> {
    fn get(&self) -> Option<&dyn AnyField> {
        Some(self)
    }
    fn put(&mut self, bits: u128) {
        *self = Field::Value(T::from_bits(bits));
    }
}

impl<T: FieldValue> Slot for Option<Field<T>> {
    fn get(&self) -> Option<&dyn AnyField> {
        self.as_ref().map(|field| field as &dyn AnyField)
    }
    fn put(&mut self, bits: u128) {
        *self = Some(Field::Value(T::from_bits(bits)));
    }
}

macro_rules! fields {
    ($($header:ident { $($name:ident $field:ident,)* })*) => {
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
                    $(Header::$header(header) => vec![$((FieldName::$name, header.$field.get()),)*],)*
                    Header::Raw(_) => Vec::new(),
                }
            }

            /// Sets a field to the low bits of `bits`, as many as the field is wide. Returns false if this header has
            /// no such field.
            pub fn set(&mut self, name: FieldName, bits: u128) -> bool {
                match (self, name) {
                    $($((Header::$header(header), FieldName::$name) => header.$field.put(bits),)*)*
                    _ => return false,
                }
                true
            }
        }
    };
}
fields! {
    Ethernet { Destination destination, Source source, Ethertype ethertype, }
    Vlan { Tpid tpid, Pcp pcp, Dei dei, Vid vid, Ethertype ethertype, }
    Mpls { Label label, Tc tc, BottomOfStack bottom_of_stack, Ttl ttl, }
    Ipv4 {
        Version version, HeaderLength header_length, Dscp dscp, Ecn ecn, TotalLength total_length,
        Identification identification, Reserved reserved, DontFragment dont_fragment, MoreFragments more_fragments,
        FragmentOffset fragment_offset, Ttl ttl, Protocol protocol, HeaderChecksum header_checksum,
        Source source, Destination destination,
    }
    Ipv6 {
        Version version, Dscp dscp, Ecn ecn, FlowLabel flow_label, PayloadLength payload_length,
        NextHeader next_header, HopLimit hop_limit, Source source, Destination destination,
    }
    Gre { Protocol protocol, Checksum checksum, Key key, SequenceNumber sequence_number, }
    Udp { SourcePort source_port, DestinationPort destination_port, Length length, Checksum checksum, }
    Tcp {
        SourcePort source_port, DestinationPort destination_port, SequenceNumber sequence_number,
        AcknowledgmentNumber acknowledgment_number, DataOffset data_offset, Flags flags, Window window,
        Checksum checksum, UrgentPointer urgent_pointer,
    }
    IcmpEcho { Code code, Checksum checksum, Identifier identifier, SequenceNumber sequence_number, }
}

impl Header {
    /// The field of that name, if this header has it and it has a value.
    pub fn field(&self, name: FieldName) -> Option<&dyn AnyField> {
        self.fields().into_iter().find(|(n, _)| *n == name)?.1
    }
}
