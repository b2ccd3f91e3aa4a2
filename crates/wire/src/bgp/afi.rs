//! Address families (RFC 4760) of the routes in an UPDATE, a capability or a ROUTE-REFRESH.

use std::fmt;

/// Address family identifier: IPv4.
pub const AFI_IPV4: u16 = 1;
/// Address family identifier: IPv6.
pub const AFI_IPV6: u16 = 2;
/// Subsequent identifier: unicast.
pub const SAFI_UNICAST: u8 = 1;
/// Subsequent identifier: unicast with MPLS labels (RFC 8277).
pub const SAFI_LABELLED: u8 = 4;
/// Subsequent identifier: VPN routes (RFC 4364, RFC 4659).
pub const SAFI_VPN: u8 = 128;

/// A family of routes: address family (AFI) and subsequent address family (SAFI), known or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AfiSafi {
    /// Address family: [`AFI_IPV4`], [`AFI_IPV6`], or any other.
    pub afi: u16,
    /// Subsequent address family: [`SAFI_UNICAST`] and so on, or any other.
    pub safi: u8,
}

impl AfiSafi {
    /// IPv4 unicast, the family of a session without the multiprotocol capability.
    pub const IPV4_UNICAST: AfiSafi = AfiSafi::new(AFI_IPV4, SAFI_UNICAST);
    /// IPv6 unicast.
    pub const IPV6_UNICAST: AfiSafi = AfiSafi::new(AFI_IPV6, SAFI_UNICAST);
    /// IPv4 unicast with labels.
    pub const IPV4_LABELLED: AfiSafi = AfiSafi::new(AFI_IPV4, SAFI_LABELLED);
    /// IPv6 unicast with labels (6PE).
    pub const IPV6_LABELLED: AfiSafi = AfiSafi::new(AFI_IPV6, SAFI_LABELLED);
    /// VPN routes of IPv4.
    pub const VPNV4: AfiSafi = AfiSafi::new(AFI_IPV4, SAFI_VPN);
    /// VPN routes of IPv6.
    pub const VPNV6: AfiSafi = AfiSafi::new(AFI_IPV6, SAFI_VPN);

    /// A family by its two numbers.
    pub const fn new(afi: u16, safi: u8) -> AfiSafi {
        AfiSafi { afi, safi }
    }

    /// True if its prefixes carry labels (SAFI 4 and 128).
    pub const fn is_labelled(self) -> bool {
        matches!(self.safi, SAFI_LABELLED | SAFI_VPN)
    }

    /// True if its prefixes carry a route distinguisher (SAFI 128).
    pub const fn is_vpn(self) -> bool {
        self.safi == SAFI_VPN
    }

    /// Bits of an address of this family: 32 or 128; `None` if the family is not supported.
    pub const fn address_bits(self) -> Option<u8> {
        match self.afi {
            AFI_IPV4 => Some(32),
            AFI_IPV6 => Some(128),
            _ => None,
        }
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
        assert_eq!(AfiSafi::new(25, 70).address_bits(), None);
        assert_eq!(AfiSafi::IPV6_UNICAST.to_string(), "IPv6 unicast");
        assert_eq!(AfiSafi::new(25, 70).to_string(), "AFI 25 SAFI 70");
    }
}
