//! The encapsulation with which a flow's frames should arrive, and the possible deviations from it.

use super::value::Bits;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// The encapsulation with which a flow's frames should arrive. A frame with a different encapsulation does not count as
/// received, but as a [`Deviation`].
///
/// Tags, labels and tunnels are always compared: if they are absent here, the frame must not have any. Other absent
/// fields are not compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Arriving {
    /// VLAN tags, the outermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vlans: Vec<ArrivingTag>,
    /// MPLS labels, the outermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<ArrivingLabel>,
    /// The expected tunnel around the packet; without it, the packet must arrive outside of any tunnel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<ArrivingTunnel>,
    /// Differentiated services codepoint of the innermost IP header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp: Option<Bits<6>>,
    /// Explicit congestion notification of the innermost IP header.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn: Option<Bits<2>>,
    /// TTL or hop limit of the innermost IP header: 63 after one router, if it was sent with 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u8>,
}

impl Arriving {
    /// Name of tunnels in the result of [`Arriving::contradicts`].
    pub const TUNNEL: &'static str = "tunnels";

    /// The first part in which no frame can match both `self` and `other`: `VLAN tags`, `labels`; `None` if some frame
    /// matches both.
    pub fn contradicts(&self, other: &Arriving) -> Option<&'static str> {
        fn differ<T: PartialEq>(a: Option<T>, b: Option<T>) -> bool {
            matches!((a, b), (Some(a), Some(b)) if a != b)
        }
        let tags = self.vlans.iter().zip(&other.vlans).any(|(a, b)| a.vid != b.vid || differ(a.pcp, b.pcp));
        let labels = self.labels.iter().zip(&other.labels);
        let labels = labels.into_iter().any(|(a, b)| a.label != b.label || differ(a.tc, b.tc) || differ(a.ttl, b.ttl));
        let tunnels = match (&self.tunnel, &other.tunnel) {
            (None, None) => false,
            (Some(a), Some(b)) => {
                a.gre != b.gre
                    || differ(a.key, b.key)
                    || differ(a.source, b.source)
                    || differ(a.destination, b.destination)
            }
            _ => true,
        };
        let found = [
            (tags || self.vlans.len() != other.vlans.len(), "VLAN tags"),
            (labels || self.labels.len() != other.labels.len(), "labels"),
            (tunnels, Arriving::TUNNEL),
            (differ(self.dscp, other.dscp), "DSCP"),
            (differ(self.ecn, other.ecn), "ECN"),
            (differ(self.ttl, other.ttl), "TTL"),
        ];
        found.into_iter().find(|(differs, _)| *differs).map(|(_, what)| what)
    }
}

/// An expected VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrivingTag {
    /// VLAN identifier.
    pub vid: Bits<12>,
    /// Priority code point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcp: Option<Bits<3>>,
}

/// An expected label stack entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrivingLabel {
    /// Label.
    pub label: Bits<20>,
    /// Traffic class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tc: Option<Bits<3>>,
    /// Time to live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u8>,
}

/// An expected tunnel around the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArrivingTunnel {
    /// True for GRE. Otherwise the inner packet follows the outer IP header directly (IP in IP).
    pub gre: bool,
    /// Key of GRE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<u32>,
    /// Source address of the outer packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// Destination address of the outer packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<IpAddr>,
}

macro_rules! deviations {
    ($($name:ident $key:literal $text:literal $doc:literal,)*) => {
        /// A difference between an arrived frame and the expected encapsulation. A sent frame counts once, by the
        /// outermost difference of its first arrival.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Deviation {
            $(#[doc = $doc] $name,)*
        }

        impl Deviation {
            /// All deviations, in order of the headers.
            pub const ALL: &'static [Deviation] = &[$(Deviation::$name,)*];

            /// Their names in suites and records, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($key,)*];

            /// Its name in suites and records.
            pub fn name(self) -> &'static str {
                match self { $(Deviation::$name => $key,)* }
            }

            /// Description for reports.
            pub fn text(self) -> &'static str {
                match self { $(Deviation::$name => $text,)* }
            }
        }
    };
}
deviations! {
    VlanMissing "vlan_missing" "VLAN tag missing" "Fewer VLAN tags than expected.",
    VlanUnexpected "vlan_unexpected" "VLAN tag too many" "More VLAN tags than expected.",
    VlanId "vlan_id" "wrong VLAN" "A tag with another VLAN identifier.",
    VlanPriority "vlan_priority" "wrong VLAN priority" "A tag with another priority code point.",
    LabelMissing "label_missing" "label missing" "Fewer MPLS labels than expected.",
    LabelUnexpected "label_unexpected" "label too many" "More MPLS labels than expected.",
    Label "label" "wrong label" "Another MPLS label.",
    LabelTc "label_tc" "wrong label TC" "A label with another traffic class.",
    LabelTtl "label_ttl" "wrong label TTL" "A label with another time to live.",
    TunnelMissing "tunnel_missing" "not in its tunnel" "The packet is not in the expected tunnel.",
    TunnelUnexpected "tunnel_unexpected" "in a tunnel" "The packet is in an unexpected tunnel.",
    TunnelKind "tunnel_kind" "wrong kind of tunnel" "GRE instead of IP in IP, or the other way round.",
    TunnelKey "tunnel_key" "wrong tunnel key" "Another GRE key, or none.",
    TunnelAddress "tunnel_address" "wrong tunnel address" "Another source or destination of the outer packet.",
    Fragmented "fragmented" "in fragments" "The packet arrived in fragments (RFC 791 section 3.2, RFC 8200 section 4.5).",
    Dscp "dscp" "wrong DSCP" "Another differentiated services codepoint.",
    Ecn "ecn" "wrong ECN" "Another explicit congestion notification.",
    Ttl "ttl" "wrong TTL" "Another time to live or hop limit.",
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_records_say() {
        assert_eq!(Deviation::ALL.len(), Deviation::NAMES.len());
        for (deviation, name) in Deviation::ALL.iter().zip(Deviation::NAMES) {
            assert_eq!(serde_json::to_value(deviation).unwrap(), *name);
            assert_eq!(deviation.name(), *name);
        }
    }
}
