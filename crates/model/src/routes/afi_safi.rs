//! Families of routes.

use crate::trial::Family;
use serde::{Deserialize, Serialize};
use std::fmt;

const AFI_IPV4: u16 = 1;
const AFI_IPV6: u16 = 2;
const SAFI_UNICAST: u8 = 1;
const SAFI_LABELLED: u8 = 4;
const SAFI_VPN: u8 = 128;

/// A family of routes: address family identifier (AFI) and subsequent address family identifier (SAFI), as in RFC 4760.
/// It identifies routes in sessions, RIBs and expectations; the IP version of an address, a session or a flow is a
/// [`Family`].
///
/// The constants are the families in which routes can be sent and verified. A peer may use any other family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AfiSafi {
    /// Address family identifier.
    pub afi: u16,
    /// Subsequent address family identifier.
    pub safi: u8,
}

crate::choice! {
    /// What the routes of a session have in addition to a prefix.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum RouteKind {
        /// Nothing: unicast routes.
        #[default]
        Unicast = "unicast",
        /// A label (RFC 8277).
        Labelled = "labelled",
        /// A label and a route distinguisher (RFC 4364, RFC 4659).
        Vpn = "vpn",
    }
}

impl RouteKind {
    /// The family of such routes with prefixes of an IP version.
    pub const fn afi_safi(self, family: Family) -> AfiSafi {
        match (self, family) {
            (RouteKind::Unicast, family) => AfiSafi::unicast(family),
            (RouteKind::Labelled, Family::Ipv4) => AfiSafi::IPV4_LABELLED,
            (RouteKind::Labelled, Family::Ipv6) => AfiSafi::IPV6_LABELLED,
            (RouteKind::Vpn, Family::Ipv4) => AfiSafi::VPNV4,
            (RouteKind::Vpn, Family::Ipv6) => AfiSafi::VPNV6,
        }
    }
}

impl AfiSafi {
    /// IPv4 unicast, the family of a session without the multiprotocol capability.
    pub const IPV4_UNICAST: AfiSafi = AfiSafi::new(AFI_IPV4, SAFI_UNICAST);
    /// IPv6 unicast.
    pub const IPV6_UNICAST: AfiSafi = AfiSafi::new(AFI_IPV6, SAFI_UNICAST);
    /// IPv4 unicast with labels (RFC 8277).
    pub const IPV4_LABELLED: AfiSafi = AfiSafi::new(AFI_IPV4, SAFI_LABELLED);
    /// IPv6 unicast with labels (RFC 8277), as for 6PE.
    pub const IPV6_LABELLED: AfiSafi = AfiSafi::new(AFI_IPV6, SAFI_LABELLED);
    /// VPN routes of IPv4 (RFC 4364).
    pub const VPNV4: AfiSafi = AfiSafi::new(AFI_IPV4, SAFI_VPN);
    /// VPN routes of IPv6 (RFC 4659).
    pub const VPNV6: AfiSafi = AfiSafi::new(AFI_IPV6, SAFI_VPN);

    /// All families. In a set of families, the position of a family here is the number of its bit.
    pub const ALL: [AfiSafi; 6] = [
        AfiSafi::IPV4_UNICAST,
        AfiSafi::IPV6_UNICAST,
        AfiSafi::IPV4_LABELLED,
        AfiSafi::IPV6_LABELLED,
        AfiSafi::VPNV4,
        AfiSafi::VPNV6,
    ];

    /// Creates a family from its two numbers.
    pub const fn new(afi: u16, safi: u8) -> AfiSafi {
        AfiSafi { afi, safi }
    }

    /// The unicast routes of an IP version.
    pub const fn unicast(family: Family) -> AfiSafi {
        match family {
            Family::Ipv4 => AfiSafi::IPV4_UNICAST,
            Family::Ipv6 => AfiSafi::IPV6_UNICAST,
        }
    }

    /// IP version of the prefixes; `None` if the prefixes are not IP prefixes.
    pub const fn ip_version(self) -> Option<Family> {
        match self.afi {
            AFI_IPV4 => Some(Family::Ipv4),
            AFI_IPV6 => Some(Family::Ipv6),
            _ => None,
        }
    }

    /// Bits of an address: 32 or 128; `None` if the prefixes are not IP prefixes.
    pub const fn address_bits(self) -> Option<u8> {
        match self.ip_version() {
            Some(Family::Ipv4) => Some(32),
            Some(Family::Ipv6) => Some(128),
            None => None,
        }
    }

    /// True if its prefixes carry labels (SAFI 4 and 128).
    pub const fn is_labelled(self) -> bool {
        matches!(self.safi, SAFI_LABELLED | SAFI_VPN)
    }

    /// True if its prefixes carry a route distinguisher (SAFI 128).
    pub const fn is_vpn(self) -> bool {
        self.safi == SAFI_VPN
    }
}

impl fmt::Display for AfiSafi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            AfiSafi::IPV4_UNICAST => f.write_str("IPv4 unicast"),
            AfiSafi::IPV6_UNICAST => f.write_str("IPv6 unicast"),
            AfiSafi::IPV4_LABELLED => f.write_str("IPv4 labelled unicast"),
            AfiSafi::IPV6_LABELLED => f.write_str("IPv6 labelled unicast"),
            AfiSafi::VPNV4 => f.write_str("VPNv4"),
            AfiSafi::VPNV6 => f.write_str("VPNv6"),
            AfiSafi { afi, safi } => write!(f, "AFI {afi} SAFI {safi}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_know_their_kind_and_name() {
        assert_eq!(AfiSafi::VPNV6, AfiSafi::new(2, 128));
        assert!(AfiSafi::VPNV6.is_vpn() && AfiSafi::VPNV6.is_labelled());
        assert!(AfiSafi::IPV4_LABELLED.is_labelled() && !AfiSafi::IPV4_LABELLED.is_vpn());
        assert!(!AfiSafi::IPV6_UNICAST.is_labelled());
        assert_eq!([AfiSafi::VPNV4, AfiSafi::IPV6_LABELLED].map(AfiSafi::address_bits), [Some(32), Some(128)]);
        for family in [Family::Ipv4, Family::Ipv6] {
            assert_eq!(AfiSafi::unicast(family).ip_version(), Some(family));
            let of = [RouteKind::Unicast, RouteKind::Labelled, RouteKind::Vpn].map(|kind| kind.afi_safi(family));
            assert_eq!(of.map(|of| (of.ip_version(), of.safi)), [1, 4, 128].map(|safi| (Some(family), safi)));
        }
        let other = AfiSafi::new(25, 70);
        assert_eq!((other.address_bits(), other.to_string()), (None, "AFI 25 SAFI 70".into()));
        assert_eq!(AfiSafi::IPV6_UNICAST.to_string(), "IPv6 unicast");
    }
}
