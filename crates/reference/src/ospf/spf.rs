//! The routing table (RFC 2328 section 16) of one area: shortest paths over Router-LSAs and Network-LSAs, then stub networks, networks
//! of other areas and external routes. Of paths with equal costs, the one with the lowest next hop counts.

use super::database::Database;
use drophammer_model::Instant;
use drophammer_wire::ospf::body::{LS_INFINITY, link, router_flag};
use drophammer_wire::ospf::lsa::MAX_AGE;
use drophammer_wire::ospf::{Body, External, LsaKey, RouterLink, lsa_type};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::net::Ipv4Addr;

/// A prefix.
pub type Net4 = (Ipv4Addr, u8);

/// The next hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hop {
    pub address: Ipv4Addr,
    pub interface: usize,
}

/// A link of this router.
#[derive(Clone, Copy, Debug)]
pub struct Attached {
    pub interface: usize,
    pub own: Ipv4Addr,
    pub network: Net4,
    /// Router ID and address of the adjacent neighbour.
    pub neighbour: Option<(Ipv4Addr, Ipv4Addr)>,
}

/// A node of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Node {
    Network(Ipv4Addr),
    Router(Ipv4Addr),
}

/// A path: cost, and the next hop; `None` for this router's own networks.
type Path = (u32, Option<Hop>);

/// Preference of a route: the class (intra-area, inter-area, type 1, type 2), the metric of type 2, then the path.
type Rank = (u8, u32, Path);

/// Computes the routes of `own`, in order of their prefixes.
pub fn routes(now: Instant, own: Ipv4Addr, database: &Database, links: &[Attached]) -> BTreeMap<Net4, Hop> {
    let tree = Tree::grow(now, own, database, links);
    let mut table: BTreeMap<Net4, Rank> = BTreeMap::new();
    let mut offer = |net: Option<Net4>, rank: Rank| {
        let Some(net) = net else { return };
        let known = table.entry(net).or_insert(rank);
        *known = rank.min(*known);
    };
    for (id, path) in &tree.routers {
        for link in tree.links.get(id).into_iter().flatten().filter(|l| l.kind == link::STUB) {
            offer(net(link.id, link.data), (0, 0, longer(*path, link.metric.into())));
        }
    }
    for (id, (path, mask)) in &tree.networks {
        offer(net(*id, *mask), (0, 0, *path));
    }
    let mut boundary = tree.boundary.clone();
    for (key, body) in alive(now, database).filter(|(key, _)| key.router != own) {
        let Some(path) = tree.borders.get(&key.router) else { continue };
        let Ok(Body::Summary(summary)) = Body::parse(key.kind, body) else { continue };
        if summary.metric >= LS_INFINITY {
            continue;
        }
        let path = longer(*path, summary.metric);
        match key.kind {
            lsa_type::SUMMARY_NETWORK => offer(net(key.id, summary.mask), (1, 0, path)),
            // Paths inside the area are preferred (section 16.4.1).
            _ if tree.boundary.contains_key(&key.id) => {}
            _ => drop(boundary.entry(key.id).and_modify(|known| *known = path.min(*known)).or_insert(path)),
        }
    }
    let internal = table.clone();
    for (key, body) in alive(now, database).filter(|(key, _)| key.kind == lsa_type::EXTERNAL && key.router != own) {
        let Ok(Body::External(external)) = Body::parse(key.kind, body) else { continue };
        let Some(path) = boundary.get(&key.router).filter(|_| external.metric < LS_INFINITY) else { continue };
        let Some(path) = forwarding(&external, *path, &internal, links) else { continue };
        let rank = match external.type_2 {
            false => (2, 0, longer(path, external.metric)),
            true => (3, external.metric, path),
        };
        let to = net(key.id, external.mask);
        let known = to.and_then(|to| table.get(&to)).copied();
        if let Some(to) = to.filter(|_| known.is_none_or(|known| rank < known)) {
            table.insert(to, rank);
        }
    }
    table.into_iter().filter_map(|(net, (_, _, (_, hop)))| Some((net, hop?))).collect()
}

/// The path to the forwarding address of an external route; `path` leads to the router that advertises it (section 16.4).
fn forwarding(external: &External, path: Path, internal: &BTreeMap<Net4, Rank>, links: &[Attached]) -> Option<Path> {
    let to = external.forwarding;
    if to.is_unspecified() {
        return Some(path);
    }
    let length = |len: u8| net(to, mask(len));
    if let Some(link) = links.iter().find(|link| length(link.network.1) == Some(link.network)) {
        return (to != link.own).then_some((0, Some(Hop { address: to, interface: link.interface })));
    }
    let (.., path) = (0..=32).rev().find_map(|len| internal.get(&length(len)?))?;
    path.1.map(|_| *path)
}

/// The LSAs that have not reached MaxAge.
fn alive(now: Instant, database: &Database) -> impl Iterator<Item = (&LsaKey, &[u8])> {
    let alive = database.iter().filter(move |(_, entry)| entry.header(now).age < MAX_AGE);
    alive.map(|(key, entry)| (key, &*entry.body))
}

fn longer((cost, hop): Path, more: u32) -> Path {
    (cost.saturating_add(more), hop)
}

fn mask(length: u8) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0))
}

/// The network of an address; `None` if the mask has gaps.
pub fn net(address: Ipv4Addr, mask: Ipv4Addr) -> Option<Net4> {
    let length = mask.to_bits().leading_ones();
    (mask.to_bits().count_ones() == length).then_some((address & mask, length as u8))
}

/// The shortest paths inside the area (section 16.1).
#[derive(Default)]
struct Tree {
    links: HashMap<Ipv4Addr, Vec<RouterLink>>,
    routers: BTreeMap<Ipv4Addr, Path>,
    networks: BTreeMap<Ipv4Addr, (Path, Ipv4Addr)>,
    /// Area border routers.
    borders: BTreeMap<Ipv4Addr, Path>,
    /// AS boundary routers.
    boundary: BTreeMap<Ipv4Addr, Path>,
}

impl Tree {
    fn grow(now: Instant, own: Ipv4Addr, database: &Database, attached: &[Attached]) -> Tree {
        let mut tree = Tree::default();
        let (mut flags, mut members) = (HashMap::new(), HashMap::new());
        for (key, body) in alive(now, database).take_while(|(key, _)| key.kind <= lsa_type::NETWORK) {
            match Body::parse(key.kind, body) {
                Ok(Body::Router(router)) if key.id == key.router => {
                    flags.insert(key.router, router.flags);
                    tree.links.insert(key.router, router.links().collect());
                }
                Ok(Body::Network(network)) => {
                    members.insert(key.id, (network.mask, network.routers));
                }
                _ => {}
            }
        }
        let mut heap = BinaryHeap::from([Reverse((0u32, None::<Hop>, Node::Router(own)))]);
        while let Some(Reverse((cost, hop, node))) = heap.pop() {
            let path = (cost, hop);
            match node {
                Node::Router(id) if !tree.routers.contains_key(&id) && tree.links.contains_key(&id) => {
                    tree.routers.insert(id, path);
                    let back = |to: Ipv4Addr| {
                        let links = tree.links.get(&to);
                        links.is_some_and(|all| all.iter().any(|l| l.kind == link::POINT_TO_POINT && l.id == id))
                    };
                    for l in &tree.links[&id] {
                        let next = cost.saturating_add(l.metric.into());
                        match l.kind {
                            link::POINT_TO_POINT if back(l.id) => {
                                let hop = if id == own { neighbour(attached, l) } else { hop };
                                if hop.is_some() {
                                    heap.push(Reverse((next, hop, Node::Router(l.id))));
                                }
                            }
                            // This router is on no transit network.
                            link::TRANSIT if id != own => {
                                let (_, routers): &(Ipv4Addr, &[[u8; 4]]) = match members.get(&l.id) {
                                    Some(known) => known,
                                    None => continue,
                                };
                                if routers.contains(&id.octets()) {
                                    heap.push(Reverse((next, hop, Node::Network(l.id))));
                                }
                            }
                            _ => {}
                        }
                    }
                }
                Node::Network(id) if !tree.networks.contains_key(&id) => {
                    let Some((mask, routers)) = members.get(&id) else { continue };
                    tree.networks.insert(id, (path, *mask));
                    for to in routers.iter().map(|octets| Ipv4Addr::from(*octets)) {
                        let links = tree.links.get(&to);
                        if links.is_some_and(|all| all.iter().any(|l| l.kind == link::TRANSIT && l.id == id)) {
                            heap.push(Reverse((cost, hop, Node::Router(to))));
                        }
                    }
                }
                _ => {}
            }
        }
        let with = |flag: u8| {
            let has = |id: &Ipv4Addr| *id != own && flags.get(id).is_some_and(|all: &u8| all & flag != 0);
            tree.routers.iter().filter(|(id, _)| has(id)).map(|(id, path)| (*id, *path)).collect()
        };
        (tree.borders, tree.boundary) = (with(router_flag::BORDER), with(router_flag::EXTERNAL));
        tree
    }
}

/// The next hop of a link of this router.
fn neighbour(attached: &[Attached], to: &RouterLink) -> Option<Hop> {
    let link = attached.iter().find(|a| a.own == to.data && a.neighbour.is_some_and(|(id, _)| id == to.id))?;
    Some(Hop { address: link.neighbour?.1, interface: link.interface })
}
