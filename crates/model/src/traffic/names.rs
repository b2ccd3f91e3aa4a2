//! Names of header fields.

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
    Destination "destination", Source "source", Ethertype "ethertype", Tpid "tpid", Pcp "pcp", Dei "dei", Vid "vid",
    Label "label", Tc "tc", BottomOfStack "bottom_of_stack", Ttl "ttl", Version "version",
    HeaderLength "header_length", Dscp "dscp", Ecn "ecn", TotalLength "total_length", Identification "identification",
    Reserved "reserved", DontFragment "dont_fragment", MoreFragments "more_fragments",
    FragmentOffset "fragment_offset", Protocol "protocol", HeaderChecksum "header_checksum", FlowLabel "flow_label",
    PayloadLength "payload_length", NextHeader "next_header", HopLimit "hop_limit", Checksum "checksum", Key "key",
    SequenceNumber "sequence_number", SourcePort "source_port", DestinationPort "destination_port", Length "length",
    AcknowledgmentNumber "acknowledgment_number", DataOffset "data_offset", Flags "flags", Window "window",
    UrgentPointer "urgent_pointer", Code "code", Identifier "identifier",
}
