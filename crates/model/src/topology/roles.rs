//! The role of each router of a system.

use super::core::{self, CoreLink, address, loopback, network, router_id};
use super::{Shape, Topology, Unsuited};
use crate::role::{BgpRole, CorePeer, Interface, LabelRoute, Member, Place, RouterRole, StaticRoute, TUNNEL_OVERHEAD};
use crate::suite::{LabelConfig, PortConfig};
use crate::trial::Family;
use std::net::IpAddr;
use std::ops::Range;

const FAMILIES: [Family; 2] = [Family::Ipv4, Family::Ipv6];

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
            let own = std::mem::take(&mut role.routes);
            for family in &families {
                role.routes.extend(own.iter().filter(|route| route.via.is_ipv4() == (*family == Family::Ipv4)));
                for other in (0..topology.routers).filter(|other| *other != router) {
                    let targets = targets(&ports[dealt[other].clone()], *family, other);
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

/// All prefixes that other routers reach through this one: links and networks behind its ports, and its loopback
/// address.
fn targets(ports: &[PortConfig], family: Family, router: usize) -> Vec<(IpAddr, u8)> {
    let own = ports.iter().filter_map(|port| port.addressing(family));
    let vlans = ports.iter().flat_map(|port| &port.vlans).filter_map(|vlan| vlan.addressing(family));
    let both = own.chain(vlans).flat_map(|a| [(network(a.dut, a.prefix_len), a.prefix_len), a.behind]);
    let pushed = ports.iter().flat_map(|port| &port.pushed).filter(move |entry| entry.to.family() == family);
    let pushed = pushed.map(|entry| (entry.to.address(), entry.to.length()));
    let host = if family == Family::Ipv4 { 32 } else { 128 };
    both.chain(pushed).chain([(loopback(family, router), host)]).collect()
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
