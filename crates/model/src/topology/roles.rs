//! The role of each router of a system.

use super::core::{self, CoreLink, address, loopback, network, router_id};
use super::{Shape, Topology, Unsuited};
use crate::label_edge::CoreProtocol;
use crate::role::{
    self, BgpRole, CorePeer, CoreRole, Interface, LabelRoute, Member, Place, RouterRole, StaticRoute, TUNNEL_OVERHEAD,
};
use crate::suite::{LabelConfig, PortConfig};
use crate::trial::Family;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

const FAMILIES: [Family; 2] = [Family::Ipv4, Family::Ipv6];
/// Protocols on the links between routers, if a core port of the system has them.
const BETWEEN: [CoreProtocol; 2] = [CoreProtocol::Ospf, CoreProtocol::Ldp];

/// Refuses configurations that a single router supports but a system does not.
pub(super) fn refuse_impossible(ports: &[PortConfig]) -> Result<(), Unsuited> {
    let internal = |port: &&PortConfig| port.bgp.as_ref().is_some_and(|bgp| bgp.is_internal());
    if let Some(port) = ports.iter().find(internal) {
        return Err(Unsuited {
            what: format!(
                "the peers of `{}` are internal: they would see routes from several route reflectors, but the tester expects one",
                port.name
            ),
            remedy: "leave out `internal` or `topology`".into(),
        });
    }
    Ok(())
}

/// The role of each router; `dealt` contains their ports.
pub(super) fn roles(
    ports: &[PortConfig],
    topology: &Topology,
    dealt: &[Range<usize>],
    links: &[CoreLink],
) -> Vec<RouterRole> {
    let families: Vec<Family> = FAMILIES.into_iter().filter(|family| uses(ports, *family)).collect();
    let whole = BgpRole::of(ports);
    (0..topology.routers)
        .map(|router| {
            let mut role = RouterRole::of(&ports[dealt[router].clone()]);
            role.member = Some(Member {
                number: router + 1,
                routers: topology.routers,
                edges: role.interfaces.len(),
                router_id: router_id(router),
                loopbacks: families.iter().map(|family| loopback(*family, router)).collect(),
            });
            role.interfaces.extend(core_interfaces(ports, topology, &families, router, links));
            role.core = core_role(ports, dealt, links, router);
            let own = std::mem::take(&mut role.routes);
            for family in &families {
                role.routes.extend(own.iter().filter(|route| route.via.is_ipv4() == (*family == Family::Ipv4)));
                for other in (0..topology.routers).filter(|other| *other != router) {
                    let mut targets = targets(&ports[dealt[other].clone()], *family);
                    // OSPF advertises the IPv4 loopback addresses.
                    if *family == Family::Ipv6 || !speaks(ports, CoreProtocol::Ospf) {
                        targets.push((loopback(*family, other), host_length(*family)));
                    }
                    role.routes.extend(routes(topology, links, *family, (router, other), &targets));
                }
            }
            for other in (0..topology.routers).filter(|other| *other != router) {
                let entries = ports[dealt[other].clone()].iter().flat_map(|port| &port.labels);
                role.labels
                    .extend(entries.filter_map(|entry| label_path(topology, links, &families, (router, other), entry)));
            }
            role.bgp = whole.as_ref().map(|whole| bgp(whole, role.bgp.take(), topology, router));
            role
        })
        .collect()
}

fn speaks(ports: &[PortConfig], protocol: CoreProtocol) -> bool {
    ports.iter().any(|port| port.core.contains(&protocol))
}

/// OSPF and LDP of a router, with the P routers behind its own ports and with its neighbours in the system. `None` if the system has no core
/// ports.
fn core_role(ports: &[PortConfig], dealt: &[Range<usize>], links: &[CoreLink], router: usize) -> Option<CoreRole> {
    let protocols: Vec<_> = BETWEEN.into_iter().filter(|protocol| speaks(ports, *protocol)).collect();
    if protocols.is_empty() {
        return None;
    }
    let between = |(number, link): (usize, &CoreLink)| {
        let (own, other) = (link.end_at(router)?, link.beyond(router)?);
        let at = |router: usize| {
            let end = link.ends.iter().position(|end| end.router == router)?;
            let address = address(Family::Ipv4, number, end);
            Some((ipv4(address.address)?, address.prefix_len))
        };
        let ((local, prefix_len), (neighbour, _)) = (at(router)?, at(other)?);
        let (port, neighbour_id, protocols) = (own.interface, router_id(other), protocols.clone());
        Some(role::CoreLink { port, protocols, local, prefix_len, neighbour, neighbour_id, pe: None })
    };
    let to_tester = CoreRole::links_to_tester(ports, dealt[router].clone());
    let links = to_tester.into_iter().chain(links.iter().enumerate().filter_map(between)).collect();
    Some(CoreRole { loopback: router_id(router), links, unlabelled: unlabelled(ports, router) })
}

/// Networks for which a router of a chain hands out no labels: those behind ports, whose P routers have no labels for them; and at every
/// second router those on the links of ports. So neighbours have different labels for the same network, although all routers
/// count their labels from the same first one and in the same order: a router that forgets to swap is seen.
fn unlabelled(ports: &[PortConfig], router: usize) -> Vec<(Ipv4Addr, u8)> {
    let links = router.is_multiple_of(2);
    let networks = networks(ports, Family::Ipv4).map(|(link, behind)| (links.then_some(link), behind));
    let networks = networks.flat_map(|(link, behind)| link.into_iter().chain([behind]));
    let all = networks.chain(pushed(ports, Family::Ipv4));
    all.filter_map(|(address, length)| Some((ipv4(address)?, length))).collect()
}

fn ipv4(address: IpAddr) -> Option<Ipv4Addr> {
    if let IpAddr::V4(address) = address { Some(address) } else { None }
}

fn uses(ports: &[PortConfig], family: Family) -> bool {
    ports.iter().any(|p| p.addressing(family).is_some() || p.vlans.iter().any(|v| v.addressing(family).is_some()))
}

/// Interfaces of a router to the others, in the order of the links. Their MTU is the largest of all ports, so that it
/// does not restrict packet sizes; a loop adds room for the tunnel's headers.
fn core_interfaces<'a>(
    ports: &[PortConfig],
    topology: &Topology,
    families: &'a [Family],
    router: usize,
    links: &'a [CoreLink],
) -> impl Iterator<Item = Interface> + use<'a> {
    let room = if topology.shape == Shape::Loop { TUNNEL_OVERHEAD } else { 0 };
    let mtu = room + ports.iter().map(|port| port.mtu).max().unwrap_or_default();
    let ends = links.iter().enumerate().filter_map(move |(number, link)| {
        let end = link.ends.iter().position(|end| end.router == router)?;
        Some((number, end))
    });
    ends.map(move |(number, end)| Interface {
        mtu,
        addresses: families.iter().map(|family| address(*family, number, end)).collect(),
        vlans: Vec::new(),
    })
}

/// All prefixes that other routers reach through the router with these ports, apart from its loopback address: links and networks
/// behind the ports.
fn targets(ports: &[PortConfig], family: Family) -> Vec<(IpAddr, u8)> {
    networks(ports, family).flat_map(|(link, behind)| [link, behind]).chain(pushed(ports, family)).collect()
}

/// For each port and sub-interface: the network of its link, and the network behind it.
fn networks(ports: &[PortConfig], family: Family) -> impl Iterator<Item = ((IpAddr, u8), (IpAddr, u8))> {
    let own = ports.iter().filter_map(move |port| port.addressing(family));
    let vlans = ports.iter().flat_map(|port| &port.vlans).filter_map(move |vlan| vlan.addressing(family));
    own.chain(vlans).map(|a| ((network(a.dut, a.prefix_len), a.prefix_len), a.behind))
}

/// Networks behind the ports for which a router pushes labels.
fn pushed(ports: &[PortConfig], family: Family) -> impl Iterator<Item = (IpAddr, u8)> {
    let entries = ports.iter().flat_map(|port| &port.pushed).filter(move |entry| entry.to.family() == family);
    entries.map(|entry| (entry.to.address(), entry.to.length()))
}

fn host_length(family: Family) -> u8 {
    if family == Family::Ipv4 { 32 } else { 128 }
}

/// Routes from router `at` to `targets` at router `to`, the best next hop of each prefix first.
fn routes(
    topology: &Topology,
    links: &[CoreLink],
    family: Family,
    (at, to): (usize, usize),
    targets: &[(IpAddr, u8)],
) -> Vec<StaticRoute> {
    let neighbours = topology.next(at, to).into_iter();
    let hops: Vec<_> = neighbours.filter_map(|neighbour| hop(links, family, at, neighbour)).collect();
    let route = |prefix: (IpAddr, u8)| {
        hops.iter().enumerate().map(move |(rank, (via, port))| StaticRoute {
            prefix,
            via: *via,
            at: Place { port: *port, vlan: None },
            rank: rank as u32,
        })
    };
    targets.iter().flat_map(|prefix| route(*prefix)).collect()
}

/// One hop of a label-switched path (RFC 3031 section 3.15) from router `at` to router `to`, which has the label
/// entry of the suite: packets keep their label until they arrive there. There is no alternative path if the link fails.
fn label_path(
    topology: &Topology,
    links: &[CoreLink],
    families: &[Family],
    (at, to): (usize, usize),
    entry: &LabelConfig,
) -> Option<LabelRoute> {
    let (via, port) = hop(links, *families.first()?, at, *topology.next(at, to).first()?)?;
    Some(LabelRoute { label: entry.label, out: vec![entry.label], via, at: Place { port, vlan: None } })
}

/// Address of a neighbour of router `at`, and index of the interface that leads to it.
fn hop(links: &[CoreLink], family: Family, at: usize, neighbour: usize) -> Option<(IpAddr, usize)> {
    let number = links.iter().position(|link| link.beyond(at) == Some(neighbour))?;
    let link = links[number];
    let end = link.ends.iter().position(|end| end.router == neighbour)?;
    Some((address(family, number, end).address, link.end_at(at)?.interface))
}

/// BGP of one router: its own peers from `own`, and a session with every other router for each family of the `whole`
/// system.
fn bgp(whole: &BgpRole, own: Option<BgpRole>, topology: &Topology, router: usize) -> BgpRole {
    let others = (0..topology.routers).filter(|other| *other != router);
    let spoken = |family: &Family| whole.groups.iter().any(|group| group.family == *family);
    let families: Vec<Family> = FAMILIES.into_iter().filter(spoken).collect();
    let session = |other: usize, family: &Family| CorePeer {
        number: other + 1,
        family: *family,
        local: core::loopback(*family, router),
        peer: core::loopback(*family, other),
        next_hop_self: true,
    };
    BgpRole {
        groups: own.map(|own| own.groups).unwrap_or_default(),
        core: others.flat_map(|other| families.iter().map(move |family| session(other, family))).collect(),
        ..whole.clone()
    }
}
