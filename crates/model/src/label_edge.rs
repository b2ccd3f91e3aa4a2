//! Layout of label switching and of VPNs around a DUT: addresses, VLANs and identifiers of the emulated CE, PE and P routers.
//!
//! Behind each core port is one P router at the host address of the port, and one PE router behind it. Behind each customer
//! port are CE routers, one for each VLAN. Each has a VRF of its own, or is a further site of a VRF of another port. The links and routes of all VRFs have the same private addresses
//! (RFC 1918, RFC 4193), so a packet in the wrong VRF finds a route there. Loopback addresses are from the shared space (RFC 6598).
//! VRFs have IPv4, and most often IPv6 too if their port has it; the core has IPv4.

use crate::role::VrfRole;
use crate::routes::{Prefix, VpnId};
use crate::suite::PortConfig;
use crate::trial::Family;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// AS of the DUT and of the emulated PE routers.
pub const PROVIDER_AS: u16 = 65_000;
/// AS of the CE router of the first site of each VRF. The ASes of further sites follow, so that each accepts the routes of the
/// others.
pub const CUSTOMER_AS: u32 = 65_100;
/// Loopback address of the DUT: its LSR-ID, router ID and BGP identifier.
pub const DUT_LOOPBACK: Ipv4Addr = Ipv4Addr::new(100, 127, 255, 1);
/// Address of the DUT on the link to the CE router of the first site of each VRF.
pub const DUT_TO_CE: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 1);
/// Address of this CE router.
pub const CE: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 2);
/// Length of the prefix of that link.
pub const CE_LINK_LENGTH: u8 = 30;
/// IPv6 address of the DUT on the link to each CE router.
pub const DUT_TO_CE_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 1, 0, 0, 0, 0, 1);
/// IPv6 address of each CE router.
pub const CE_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 1, 0, 0, 0, 0, 2);
/// Length of the IPv6 prefix of that link.
pub const CE_LINK_LENGTH_IPV6: u8 = 64;
/// VLAN of the first CE router of a port.
pub const FIRST_VLAN: u16 = 101;
/// Maximum number of CE routers of a port.
pub const MOST_CUSTOMERS: u32 = 3_994;
/// Time between two Hellos of OSPF on a core link, in seconds.
pub const OSPF_HELLO_S: u16 = 1;
/// Time without a Hello after which an OSPF neighbour is down, in seconds.
pub const OSPF_DEAD_S: u32 = 4;
/// Maximum number of VRFs of the DUT: the assigned number of a route distinguisher has 16 bits.
pub const MOST_VRFS: u32 = 65_535;
/// Maximum number of routes of each side of a VRF.
pub const MOST_ROUTES: u32 = 32_768;
/// Maximum number of sites of a VRF with CE routers.
pub const MOST_SITES: u32 = 4;

crate::choice! {
    /// A protocol between the DUT and the P router behind a core port.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum CoreProtocol {
        /// OSPFv2 (RFC 2328), point to point, in the backbone area.
        Ospf = "ospf",
        /// LDP (RFC 5036).
        Ldp = "ldp",
        /// RSVP-TE (RFC 3209).
        Rsvp = "rsvp",
        /// BFD (RFC 5881) for OSPF. CE routers have it for BGP.
        Bfd = "bfd",
    }
}

/// The first route of the CE router at site `site` of each VRF, from 0: /24 and /64 from the first half of a private block.
pub fn customer_routes(family: Family, site: u32) -> Prefix {
    site_routes(family, site * most_routes(MOST_SITES))
}

/// Maximum number of routes of each of `sites` sites of a VRF with CE routers.
pub fn most_routes(sites: u32) -> u32 {
    if sites > 1 { MOST_ROUTES / MOST_SITES } else { MOST_ROUTES }
}

/// The first route of each remote site, which has the other half of the block.
pub fn remote_routes(family: Family) -> Prefix {
    site_routes(family, MOST_ROUTES)
}

/// Prefix number `number` of the private block of a family.
fn site_routes(family: Family, number: u32) -> Prefix {
    let (address, length): (IpAddr, u8) = match family {
        Family::Ipv4 => (Ipv4Addr::from_bits(0x0a00_0000 + (number << 8)).into(), 24),
        Family::Ipv6 => (Ipv6Addr::from_bits((0xfd00 << 112) + (u128::from(number) << 64)).into(), 64),
    };
    Prefix::masked(address, length).expect("the length fits the family")
}

/// Identifier of the P router behind core port `port`.
pub fn p_router(port: usize) -> Ipv4Addr {
    behind(port, 1)
}

/// Loopback address of the PE router behind core port `port`.
pub fn pe_router(port: usize) -> Ipv4Addr {
    behind(port, 2)
}

fn behind(port: usize, host: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x647f_0000 + ((port as u32) << 8) + host)
}

/// Indices of the core ports.
pub fn core_ports(ports: &[PortConfig]) -> Vec<usize> {
    (0..ports.len()).filter(|port| !ports[*port].core.is_empty()).collect()
}

/// The VRFs of the DUT between these ports, an entry for each site with a CE router, in order of port and VLAN.
pub fn vrfs(ports: &[PortConfig]) -> Vec<VrfRole> {
    // The number of the first VRF of a port that has its own.
    let first = |port: usize| ports[..port].iter().filter(|p| p.sites_of.is_none()).map(|p| p.customers).sum::<u32>();
    let mut all = Vec::new();
    for (port, config) in ports.iter().enumerate() {
        let owner = config.sites_of.unwrap_or(port);
        let before = ports[..port].iter().filter(|p| p.sites_of == Some(owner)).count() as u32;
        let site = before + u32::from(config.sites_of.is_some());
        let vrf = |customer: u32| {
            let vid = FIRST_VLAN + customer as u16;
            let ipv6 = config.ipv6.is_some() && config.customer_ipv6;
            let role = VrfRole::new((first(owner) + customer, site), port, vid, ipv6);
            VrfRole { bfd: config.customer_bfd, ..role }
        };
        all.extend((0..config.customers).map(vrf));
    }
    all
}

/// Index of the core port behind which the remote sites of `vrf` are: customer ports with VRFs of their own and core ports are paired in order,
/// one core port for each of these customer ports at least.
pub fn remote_port(ports: &[PortConfig], vrf: &VrfRole) -> Option<usize> {
    let customers = (0..ports.len()).filter(|port| ports[*port].customers > 0 && ports[*port].sites_of.is_none());
    let core = core_ports(ports);
    let owner = ports.get(vrf.port)?.sites_of.unwrap_or(vrf.port);
    let place = customers.into_iter().position(|port| port == owner)?;
    core.get(place).copied()
}

/// Route distinguisher of a VRF on the PE with this loopback address (RFC 4364 section 4.2, type 1).
pub fn distinguisher(pe: Ipv4Addr, vrf: u32) -> VpnId {
    VpnId { administrator: crate::routes::Administrator::Ipv4(pe), number: vrf + 1 }
}

/// Route target of a VRF, imported and exported by every PE.
pub fn target(vrf: u32) -> VpnId {
    VpnId::as2(PROVIDER_AS, vrf + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_site_has_routes_and_a_link_of_its_own() {
        let routes = |family, site| customer_routes(family, site).to_string();
        assert_eq!([0, 1, 3].map(|site| routes(Family::Ipv4, site)), ["10.0.0.0/24", "10.32.0.0/24", "10.96.0.0/24"]);
        assert_eq!([0, 1].map(|site| routes(Family::Ipv6, site)), ["fd00::/64", "fd00:0:0:2000::/64"]);
        assert_eq!(remote_routes(Family::Ipv4).to_string(), "10.128.0.0/24");
        assert_eq!(remote_routes(Family::Ipv6).to_string(), "fd00:0:0:8000::/64");
        let [first, second] = [0, 1].map(|site| VrfRole::new((6, site), 0, FIRST_VLAN, true));
        assert_eq!((first.name(), first.local, first.ce, first.ce_as), ("v7".into(), DUT_TO_CE, CE, CUSTOMER_AS));
        assert_eq!((second.local, second.ce), ([192, 168, 0, 5].into(), [192, 168, 0, 6].into()));
        assert_eq!((second.target, second.distinguisher, second.ce_as), (first.target, first.distinguisher, 65_101));
        let links: Vec<_> =
            second.links().map(|link| format!("{}/{} {}", link.local, link.prefix_len, link.ce)).collect();
        assert_eq!(links, ["192.168.0.5/30 192.168.0.6", "fd00:0:1:1::1/64 fd00:0:1:1::2"]);
    }
}
