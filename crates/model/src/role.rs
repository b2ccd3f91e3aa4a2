//! The role of a DUT as data: the configuration that a router needs between the ports of a suite.

use crate::capabilities::Need;
use crate::label_edge::{self, CoreProtocol};
use crate::routes::{RouteKind, VpnId};
use crate::suite::{Addressing, BgpProtection, FecConfig, LabelConfig, Mask, PortConfig, VlanTag};
use crate::trial::Family;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::time::Duration;

/// The configuration of a DUT. Every kind gets the same role and translates it into its own configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouterRole {
    /// Its interfaces: interface i faces port i of the tester. In a system, interfaces to other routers follow.
    pub interfaces: Vec<Interface>,
    /// Static routes, IPv4 before IPv6, in the order of the interfaces. In a system, routes to other routers follow in
    /// each family.
    pub routes: Vec<StaticRoute>,
    /// Static label entries, in the order of the interfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<LabelRoute>,
    /// Networks for which the router pushes labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pushed: Vec<PushedRoute>,
    /// GRE tunnels to other routers of its system.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tunnels: Vec<Tunnel>,
    /// Policy routing: packets that do not follow the routes, by source. Each source occurs only once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<Policy>,
    /// BGP, if the router speaks it.
    pub bgp: Option<BgpRole>,
    /// Label switching with P routers, if it has core ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<CoreRole>,
    /// Its VRFs, an entry for each site, in order of port and VLAN. It is then a PE router (RFC 4364) with one session for VPN routes for each core port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vrfs: Vec<VrfRole>,
    /// Its place in a system of several routers; `None` for a single router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<Member>,
}

/// The place of a router in a system of several ([`crate::topology::System`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its number, from 1. Its name is `r1`.
    pub number: usize,
    /// Number of routers in the system.
    pub routers: usize,
    /// Number of interfaces that face the tester; these come first.
    pub edges: usize,
    /// Its BGP identifier (RFC 4271 section 4.2), unique in the system.
    pub router_id: Ipv4Addr,
    /// Its loopback addresses, one per family in use, IPv4 before IPv6.
    pub loopbacks: Vec<IpAddr>,
}

/// A label switching router in the core of a provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreRole {
    /// Its loopback address, with a prefix of 32 bits: LSR-ID, transport address of LDP, router ID of OSPF, BGP identifier, and its end of the
    /// BGP sessions with PE routers. OSPF advertises it.
    pub loopback: Ipv4Addr,
    /// Its core links, in order of their ports. In a chain, links to other routers of the DUT follow.
    pub links: Vec<CoreLink>,
    /// Networks for which LDP hands out no labels, in a chain. The router before would push them, and nobody behind the chain
    /// has a label to replace them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unlabelled: Vec<(Ipv4Addr, u8)>,
}

/// A link to a P router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreLink {
    /// Index of the interface, which is also the index of the port.
    pub port: usize,
    /// Protocols on the link.
    pub protocols: Vec<CoreProtocol>,
    /// Address of the DUT on the link.
    pub local: Ipv4Addr,
    /// Length of the prefix of the link.
    pub prefix_len: u8,
    /// Address of the P router.
    pub neighbour: Ipv4Addr,
    /// Identifier of the P router in OSPF, LDP and RSVP-TE.
    pub neighbour_id: Ipv4Addr,
    /// Loopback address of the PE router behind it, which has the remote sites of VRFs; `None` if the P router is another router of
    /// the DUT.
    pub pe: Option<Ipv4Addr>,
}

impl CoreLink {
    /// True if the link has this protocol.
    pub fn has(&self, protocol: CoreProtocol) -> bool {
        self.protocols.contains(&protocol)
    }
}

/// A site of a VRF (RFC 4364): one VLAN sub-interface of the VRF, and one external BGP session with the CE router there, or one for each family.
/// Most VRFs have one site.
///
/// The router redistributes nothing else into it: neither the link nor static routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VrfRole {
    /// Number of the VRF, from 0. Its name is `v1` for number 0.
    pub number: u32,
    /// Index of the site within its VRF, from 0.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub site: u32,
    /// Index of the interface.
    pub port: usize,
    /// VLAN identifier of the sub-interface (IEEE 802.1Q).
    pub vid: u16,
    /// Address of the DUT on the link; every VRF has the same.
    pub local: Ipv4Addr,
    /// Length of the prefix of the link.
    pub prefix_len: u8,
    /// Address of the CE router.
    pub ce: Ipv4Addr,
    /// The link's IPv6 addresses, if the VRF has IPv6 (RFC 4659).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<VrfLinkIpv6>,
    /// AS of the CE router.
    pub ce_as: u32,
    /// Route distinguisher of its routes.
    pub distinguisher: VpnId,
    /// The only route target that it exports and imports.
    pub target: VpnId,
    /// True if a BFD session (RFC 5881) with the CE router, over IPv4, protects the BGP session over IPv4.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub bfd: bool,
}

/// IPv6 addresses on the link of a VRF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VrfLinkIpv6 {
    /// Address of the DUT.
    pub local: Ipv6Addr,
    /// Length of the prefix.
    pub prefix_len: u8,
    /// Address of the CE router.
    pub ce: Ipv6Addr,
}

/// One family of the link of a VRF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VrfLink {
    /// Address of the DUT.
    pub local: IpAddr,
    /// Length of the prefix.
    pub prefix_len: u8,
    /// Address of the CE router.
    pub ce: IpAddr,
}

impl VrfRole {
    /// A site, given as the number of the VRF and the number of the site, on a VLAN of the interface `port`; with IPv6 too if `ipv6`, and without BFD.
    /// Each site has a link of its own.
    pub fn new((number, site): (u32, u32), port: usize, vid: u16, ipv6: bool) -> VrfRole {
        let of_ipv4 = |first: Ipv4Addr| Ipv4Addr::from_bits(first.to_bits() + (site << 2));
        let of_ipv6 = |first: Ipv6Addr| Ipv6Addr::from_bits(first.to_bits() + (u128::from(site) << 64));
        VrfRole {
            number,
            site,
            port,
            vid,
            local: of_ipv4(label_edge::DUT_TO_CE),
            prefix_len: label_edge::CE_LINK_LENGTH,
            ce: of_ipv4(label_edge::CE),
            ipv6: ipv6.then_some(VrfLinkIpv6 {
                local: of_ipv6(label_edge::DUT_TO_CE_IPV6),
                prefix_len: label_edge::CE_LINK_LENGTH_IPV6,
                ce: of_ipv6(label_edge::CE_IPV6),
            }),
            ce_as: label_edge::CUSTOMER_AS + site,
            distinguisher: label_edge::distinguisher(label_edge::DUT_LOOPBACK, number),
            target: label_edge::target(number),
            bfd: false,
        }
    }

    /// Name of the VRF: `v1`.
    pub fn name(&self) -> String {
        format!("v{}", self.number + 1)
    }

    /// Its link in a family, if it has that.
    pub fn link(&self, family: Family) -> Option<VrfLink> {
        match family {
            Family::Ipv4 => Some(VrfLink { local: self.local.into(), prefix_len: self.prefix_len, ce: self.ce.into() }),
            Family::Ipv6 => {
                let VrfLinkIpv6 { local, prefix_len, ce } = self.ipv6?;
                Some(VrfLink { local: local.into(), prefix_len, ce: ce.into() })
            }
        }
    }

    /// Its link in each family that it has, IPv4 first.
    pub fn links(&self) -> impl Iterator<Item = VrfLink> + use<> {
        FAMILIES.map(|family| self.link(family)).into_iter().flatten()
    }
}

/// An interface of the DUT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// MTU in bytes, for IP packets.
    pub mtu: u32,
    /// Addresses for untagged frames.
    pub addresses: Vec<InterfaceAddress>,
    /// VLAN sub-interfaces.
    pub vlans: Vec<SubInterface>,
}

/// A VLAN sub-interface: frames with exactly these tags.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubInterface {
    /// Tags, the outer one first; one or two.
    pub tags: Vec<VlanTag>,
    /// Addresses.
    pub addresses: Vec<InterfaceAddress>,
}

/// An address, and the length of its link's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceAddress {
    /// Address of the DUT.
    pub address: IpAddr,
    /// Length of the prefix.
    pub prefix_len: u8,
}

/// An interface or a sub-interface of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// Index of the interface, which is also the index of the port.
    pub port: usize,
    /// Index of the sub-interface; `None` for the interface itself.
    pub vlan: Option<usize>,
}

/// A static route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaticRoute {
    /// Destination: network address and length.
    pub prefix: (IpAddr, u8),
    /// Next hop: the tester's emulated router, or another router of the system.
    pub via: IpAddr,
    /// Where the next hop is.
    pub at: Place,
    /// Preference: 0 for the route in use while its link is up. While the link is down, the route with the next rank
    /// takes over, and so on.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub rank: u32,
}

/// A static label entry (RFC 3031 section 3.10): how packets with this outermost label are forwarded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelRoute {
    /// Label of arriving packets, at any interface.
    pub label: u32,
    /// Labels that replace it, the outermost first; empty to pop it.
    pub out: Vec<u32>,
    /// Next hop: the tester's emulated router.
    pub via: IpAddr,
    /// Where the next hop is.
    pub at: Place,
}

/// A route that pushes labels (RFC 3031 section 3.11).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushedRoute {
    /// Destination: network address and length.
    pub prefix: (IpAddr, u8),
    /// The labels, the outermost first.
    pub out: Vec<u32>,
    /// Next hop: the tester's emulated router.
    pub via: IpAddr,
    /// Where the next hop is.
    pub at: Place,
}

/// A GRE tunnel (RFC 2784) for IPv4 in IPv4, without checksum, key and sequence numbers. Its outer packets have a TTL
/// of [`TUNNEL_TTL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnel {
    /// Local end: an address of the DUT.
    pub local: Ipv4Addr,
    /// Remote end.
    pub remote: Ipv4Addr,
    /// Largest packet that fits without fragmentation, in bytes: the MTU of the link below minus [`TUNNEL_OVERHEAD`].
    pub mtu: u32,
}

/// Bytes that a tunnel adds to each packet: an IPv4 and a GRE header.
pub const TUNNEL_OVERHEAD: u32 = 24;
/// TTL of the outer header.
pub const TUNNEL_TTL: u8 = 64;

/// Where a packet arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicySource {
    /// An interface, by its index.
    Interface(usize),
    /// A tunnel, by its index.
    Tunnel(usize),
}

/// Where a packet is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyTarget {
    /// A next hop on the link of an interface.
    NextHop {
        /// Its address.
        via: Ipv4Addr,
        /// Index of the interface.
        interface: usize,
    },
    /// A tunnel, by its index.
    Tunnel(usize),
}

/// Policy routing by incoming interface: every IPv4 packet from `from` goes to `to`, unless it is addressed to the
/// router itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Where the packets arrive.
    pub from: PolicySource,
    /// Where they are sent.
    pub to: PolicyTarget,
}

/// BGP-4 (RFC 4271) of the DUT, which advertises every peer's routes to every other peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BgpRole {
    /// AS number of the DUT.
    pub asn: u32,
    /// Hold Time that it proposes, in whole seconds.
    pub hold: Duration,
    /// True if it is the next hop of external routes that it advertises to internal peers (RFC 4271 section 5.1.3).
    pub next_hop_self: bool,
    /// What the routes of its peers at the tester have in addition to prefixes.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub routes: RouteKind,
    /// Protection of all sessions. Records do not contain it.
    #[serde(skip)]
    pub protection: BgpProtection,
    /// Its peers at the tester.
    pub groups: Vec<PeerGroup>,
    /// Its peers among the routers of its system: a full mesh, in which none is a route reflector client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub core: Vec<CorePeer>,
}

/// Another router of the same system. Sessions are internal, between loopback addresses, without protection, and either
/// side may connect. They carry the routes of peers at the tester, but not the routes of other core peers (RFC 4271
/// section 9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorePeer {
    /// Its number in the system, from 1.
    pub number: usize,
    /// IP version of the session and of its routes.
    pub family: Family,
    /// Own loopback address.
    pub local: IpAddr,
    /// Its loopback address.
    pub peer: IpAddr,
    /// True if external routes are advertised to this peer with the own loopback address as next hop, false if with the
    /// original next hop.
    pub next_hop_self: bool,
}

/// The peers behind one interface in one family: all in one AS, reached from one address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerGroup {
    /// Where they are.
    pub at: Place,
    /// IP version of the sessions and of their routes.
    pub family: Family,
    /// AS number of the peers.
    pub asn: u32,
    /// True if the peers are in the DUT's AS, as clients of the DUT as route reflector (RFC 4456).
    pub internal: bool,
    /// Address of the DUT.
    pub local: IpAddr,
    /// Addresses of the peers, at least one.
    pub peers: Vec<IpAddr>,
}

const FAMILIES: [Family; 2] = [Family::Ipv4, Family::Ipv6];

impl RouterRole {
    /// The role of a router between `ports`: an address on every link, a route to each network behind a port, and BGP
    /// for ports that have it.
    pub fn of(ports: &[PortConfig]) -> RouterRole {
        RouterRole {
            interfaces: ports.iter().map(Interface::of).collect(),
            routes: routes(ports),
            labels: labels(ports),
            pushed: pushed(ports),
            tunnels: Vec::new(),
            policies: Vec::new(),
            bgp: BgpRole::of(ports),
            core: CoreRole::of(ports),
            vrfs: label_edge::vrfs(ports),
            member: None,
        }
    }

    /// Capabilities that a router needs for this role, without BGP: a router without BGP can play the rest of the role,
    /// and tests that need BGP declare that.
    pub fn needs(&self) -> Vec<Need> {
        let addresses = || self.places().flat_map(|(_, _, addresses)| addresses);
        let tags = self.interfaces.iter().flat_map(|i| &i.vlans).map(|v| v.tags.len()).max().unwrap_or(0);
        let mut needs = Vec::new();
        needs.extend(addresses().any(|a| a.address.is_ipv4()).then_some(Need::Ipv4));
        needs.extend(addresses().any(|a| a.address.is_ipv6()).then_some(Need::Ipv6));
        needs.extend((tags >= 1).then_some(Need::Vlan));
        needs.extend((tags >= 2).then_some(Need::Qinq));
        needs.extend((!self.labels.is_empty() || !self.pushed.is_empty()).then_some(Need::Mpls));
        needs.extend((!self.tunnels.is_empty()).then_some(Need::Tunnels));
        needs.extend((!self.policies.is_empty()).then_some(Need::PolicyRouting));
        let links = || self.core.iter().flat_map(|core| &core.links);
        for (protocol, need) in [
            (CoreProtocol::Ospf, Need::Ospf),
            (CoreProtocol::Ldp, Need::Ldp),
            (CoreProtocol::Rsvp, Need::Rsvp),
            (CoreProtocol::Bfd, Need::Bfd),
        ] {
            let of_customers = protocol == CoreProtocol::Bfd && self.vrfs.iter().any(|vrf| vrf.bfd);
            needs.extend((of_customers || links().any(|link| link.has(protocol))).then_some(need));
        }
        needs.extend((!self.vrfs.is_empty()).then_some(Need::Vrfs));
        let protected = self.bgp.as_ref().is_some_and(|bgp| !bgp.protection.is_none());
        needs.extend(protected.then_some(Need::BgpProtection));
        let labels = self.bgp.as_ref().is_some_and(|bgp| bgp.routes != RouteKind::Unicast);
        needs.extend(labels.then_some(Need::LabelReflection));
        needs.extend(self.member.is_some().then_some(Need::Systems));
        needs
    }

    /// Returns a mask that hides the secrets of the role in other texts.
    pub fn mask(&self) -> Mask {
        self.bgp.as_ref().map(|bgp| bgp.protection.mask()).unwrap_or_default()
    }

    /// The role without secrets, for files that are stored.
    pub fn without_secrets(&self) -> RouterRole {
        let mut role = self.clone();
        if let Some(bgp) = &mut role.bgp {
            bgp.protection = bgp.protection.without_secrets();
        }
        role
    }

    /// Every interface and sub-interface with its tags and addresses, an interface before its sub-interfaces.
    pub fn places(&self) -> impl Iterator<Item = (Place, &[VlanTag], &[InterfaceAddress])> {
        self.interfaces.iter().enumerate().flat_map(|(port, interface)| {
            let own: (Place, &[VlanTag], &[InterfaceAddress]) = (Place { port, vlan: None }, &[], &interface.addresses);
            let vlans = interface.vlans.iter().enumerate();
            let vlans = vlans.map(move |(i, v)| (Place { port, vlan: Some(i) }, &v.tags[..], &v.addresses[..]));
            std::iter::once(own).chain(vlans)
        })
    }

    /// Tags of frames at a place, the outer one first; empty for an interface itself.
    pub fn tags(&self, at: Place) -> &[VlanTag] {
        let vlan = at.vlan.and_then(|i| self.interfaces.get(at.port)?.vlans.get(i));
        vlan.map_or(&[], |v| &v.tags)
    }

    /// BGP peers at the tester, on all interfaces.
    pub fn peers(&self) -> impl Iterator<Item = IpAddr> {
        self.bgp.iter().flat_map(|bgp| &bgp.groups).flat_map(|g| g.peers.iter().copied())
    }
}

fn addresses(ipv4: Option<&Addressing>, ipv6: Option<&Addressing>) -> Vec<InterfaceAddress> {
    let both = ipv4.into_iter().chain(ipv6);
    both.map(|a| InterfaceAddress { address: a.dut, prefix_len: a.prefix_len }).collect()
}

impl CoreRole {
    /// The role between `ports`; `None` if none of them faces the core.
    fn of(ports: &[PortConfig]) -> Option<CoreRole> {
        let links = CoreRole::links_to_tester(ports, 0..ports.len());
        (!links.is_empty()).then_some(CoreRole { loopback: label_edge::DUT_LOOPBACK, links, unlabelled: Vec::new() })
    }

    /// The links of a router that has the ports `own`, numbered from its first port.
    pub(crate) fn links_to_tester(ports: &[PortConfig], own: Range<usize>) -> Vec<CoreLink> {
        let link = |port: usize| {
            let config = &ports[port];
            let addressing = config.ipv4.as_ref()?;
            let (IpAddr::V4(local), IpAddr::V4(neighbour)) = (addressing.dut, addressing.host) else { return None };
            Some(CoreLink {
                port: port - own.start,
                protocols: config.core.clone(),
                local,
                prefix_len: addressing.prefix_len,
                neighbour,
                neighbour_id: label_edge::p_router(port),
                pe: Some(label_edge::pe_router(port)),
            })
        };
        label_edge::core_ports(ports).into_iter().filter(|port| own.contains(port)).filter_map(link).collect()
    }
}

impl Interface {
    fn of(port: &PortConfig) -> Interface {
        let vlan = |v: &crate::suite::VlanConfig| SubInterface {
            tags: v.tags.clone(),
            addresses: addresses(v.ipv4.as_ref(), v.ipv6.as_ref()),
        };
        Interface {
            mtu: port.mtu,
            addresses: addresses(port.ipv4.as_ref(), port.ipv6.as_ref()),
            vlans: port.vlans.iter().map(vlan).collect(),
        }
    }
}

fn routes(ports: &[PortConfig]) -> Vec<StaticRoute> {
    let mut routes = Vec::new();
    for family in FAMILIES {
        for (port, config) in ports.iter().enumerate() {
            let own = config.addressing(family).map(|a| (None, a));
            let vlans = config.vlans.iter().enumerate().filter_map(|(i, v)| Some((Some(i), v.addressing(family)?)));
            routes.extend(own.into_iter().chain(vlans).map(|(vlan, a)| StaticRoute {
                prefix: a.behind,
                via: a.host,
                at: Place { port, vlan },
                rank: 0,
            }));
        }
    }
    routes
}

fn labels(ports: &[PortConfig]) -> Vec<LabelRoute> {
    let of_port = |(port, config): (usize, &PortConfig)| {
        // A label entry does not depend on the packet's family, so either address of the router works.
        let via = config.ipv4.as_ref().or(config.ipv6.as_ref()).map(|a| a.host);
        let route = move |entry: &LabelConfig| {
            let (label, out) = (entry.label, entry.out.clone());
            Some(LabelRoute { label, out, via: via?, at: Place { port, vlan: None } })
        };
        config.labels.iter().filter_map(route).collect::<Vec<_>>()
    };
    ports.iter().enumerate().flat_map(of_port).collect()
}

fn pushed(ports: &[PortConfig]) -> Vec<PushedRoute> {
    let of_port = |(port, config): (usize, &PortConfig)| {
        let route = move |entry: &FecConfig| {
            let via = config.addressing(entry.to.family())?.host;
            let prefix = (entry.to.address(), entry.to.length());
            Some(PushedRoute { prefix, out: entry.out.clone(), via, at: Place { port, vlan: None } })
        };
        config.pushed.iter().filter_map(route).collect::<Vec<_>>()
    };
    ports.iter().enumerate().flat_map(of_port).collect()
}

impl BgpRole {
    pub(crate) fn of(ports: &[PortConfig]) -> Option<BgpRole> {
        let first = ports.iter().find_map(|p| p.bgp.as_ref())?;
        let mut groups = Vec::new();
        for (port, config) in ports.iter().enumerate() {
            let Some(bgp) = &config.bgp else { continue };
            groups.extend(config.peer_links().map(|link| PeerGroup {
                at: Place { port, vlan: link.vlan },
                family: link.family,
                asn: bgp.asn,
                internal: bgp.is_internal(),
                local: link.addressing.dut,
                peers: link.peers,
            }));
        }
        Some(BgpRole {
            asn: first.dut_as,
            hold: first.hold,
            next_hop_self: first.next_hop_self,
            routes: first.routes,
            protection: first.protection.clone(),
            groups,
            core: Vec::new(),
        })
    }
}
