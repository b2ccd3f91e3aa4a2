//! What the routers of a bed are configured with.

use drophammer_emulation::bgp::{NextHops, PeerConfig};
use drophammer_model::suite::PortBgp;
use drophammer_model::trial::{Family, PortIndex};
use drophammer_wire::bgp::AfiSafi;
use std::net::{IpAddr, Ipv4Addr};

fn unicast(family: Family) -> AfiSafi {
    match family {
        Family::Ipv4 => AfiSafi::IPV4_UNICAST,
        Family::Ipv6 => AfiSafi::IPV6_UNICAST,
    }
}

/// BGP identifier of router `index` of a port: of a block for shared addresses (RFC 6598), so that it is nobody's address here.
pub(super) fn router_id(port: PortIndex, index: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x6440_0001 + ((port as u32) << 16) + index)
}

fn next_hops(address: IpAddr) -> NextHops {
    match address {
        IpAddr::V4(a) => NextHops { ipv4: Some(a), ..NextHops::default() },
        IpAddr::V6(a) => NextHops { ipv6: Some(a), ..NextHops::default() },
    }
}

/// One side of a session: the router at `address`, the DUT at `dut`.
pub(crate) fn peer_config(address: IpAddr, dut: IpAddr, bgp: &PortBgp, router_id: Ipv4Addr) -> PeerConfig {
    let family = if address.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 };
    PeerConfig {
        address,
        dut,
        asn: bgp.asn,
        dut_as: bgp.dut_as,
        router_id,
        hold: bgp.hold,
        families: vec![unicast(family)],
        next_hops: next_hops(address),
        passive: false,
        protection: Default::default(),
    }
}
