//! A DUT that consists of several routers: ports and role of each router, and the links between them.
//!
//! Together the routers play the role of one router between the same ports. They have static routes to the networks
//! behind each other's ports, and internal BGP among themselves, but no other routing protocol. See [`System`] for the
//! failures that they survive.

mod core;
mod cycle;
mod roles;

pub use core::{CORE_BLOCKS, CoreEnd, CoreLink, CoreLinkName, CoreLinksDown, LinkLoss};
pub use cycle::{CycleHop, LOOP_PREFIX, LOOP_ROUTERS, WAN_HOPS};

use crate::classes::{EgressClasses, WayOut, counter_name};
use crate::quantity::Bandwidth;
use crate::role::RouterRole;
use crate::suite::PortConfig;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::time::Duration;

/// Maximum number of routers of a system.
pub const MOST_ROUTERS: usize = 64;

/// How the routers of a system are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// Each router has a link to every other router. All have the same number of ports, in the order of the suite.
    Mesh,
    /// Each router has links to the previous and the next one. The first router has the first half of the ports, the
    /// last router the second half.
    Chain,
    /// Four routers in a row, with two links between the first two, and two links between the last two. A route to
    /// [`LOOP_PREFIX`] sends packets in circles, see [`System::cycle`]. Ports are distributed as in a chain.
    Loop,
}

/// A link over a long distance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wan {
    /// Speed in each direction; absent for the speed of the other links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<Bandwidth>,
    /// Delay in each direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// Share of the frames that it loses in each direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<LinkLoss>,
}

impl Wan {
    /// True if it does not differ from the other links.
    pub fn is_plain(&self) -> bool {
        let lossless = self.loss.is_none_or(LinkLoss::is_none);
        self.speed.is_none() && self.delay.is_none_or(|delay| delay.is_zero()) && lossless
    }
}

/// The key `topology` of a DUT that consists of several routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// How the routers are connected.
    pub shape: Shape,
    /// Number of routers, 2 to [`MOST_ROUTERS`].
    pub routers: usize,
    /// Speed of each link between two routers, in each direction; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_speed: Option<Bandwidth>,
    /// The link between the second and the third router of a [`Shape::Loop`], if it differs from the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wan: Option<Wan>,
}

/// Display form: `4 routers, fully meshed, core links of 100 Mbit/s`.
impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = match self.shape {
            Shape::Mesh => "fully meshed",
            Shape::Chain => "in a chain",
            Shape::Loop => "in a loop",
        };
        write!(f, "{} routers, {shape}", self.routers)?;
        if let Some(speed) = self.core_speed {
            write!(f, ", core links of {speed}")?;
        }
        let Some(wan) = self.wan else { return Ok(()) };
        f.write_str(", the link in the middle")?;
        if let Some(speed) = wan.speed {
            write!(f, " of {speed}")?;
        }
        if let Some(delay) = wan.delay {
            write!(f, " delayed by {delay:?}")?;
        }
        wan.loss.map_or(Ok(()), |loss| write!(f, " with a loss of {loss}"))
    }
}

/// Why the ports of a suite do not fit a topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {remedy}")]
pub struct Unsuited {
    /// What is wrong.
    pub what: String,
    /// How to correct it.
    pub remedy: String,
}

impl Topology {
    /// Divides this many ports among the routers.
    ///
    /// # Errors
    /// [`Unsuited`] if they cannot be divided equally.
    pub fn deal(&self, ports: usize) -> Result<Vec<Range<usize>>, Unsuited> {
        let (holders, rule) = match self.shape {
            Shape::Mesh => (self.routers, "the same number of ports, at least one"),
            Shape::Chain | Shape::Loop => (2, "half of the ports at its first and half at its last router"),
        };
        if self.routers < 2 || self.routers > MOST_ROUTERS {
            return Err(Unsuited {
                what: format!("a system of {} routers", self.routers),
                remedy: format!("write 2 to {MOST_ROUTERS}; leave `topology` out for one router"),
            });
        }
        if ports == 0 || !ports.is_multiple_of(holders) {
            let (what, each) = match self.shape {
                Shape::Mesh => (format!("{ports} ports for a mesh of {} routers", self.routers), "gives each router"),
                Shape::Chain => (format!("{ports} ports for a chain"), "has"),
                Shape::Loop => (format!("{ports} ports for a loop"), "has"),
            };
            let shape = match self.shape {
                Shape::Mesh => "a mesh",
                Shape::Chain => "a chain",
                Shape::Loop => "a loop",
            };
            // A suite has an even number of ports.
            let least = if holders.is_multiple_of(2) { holders } else { 2 * holders };
            return Err(Unsuited {
                what,
                remedy: format!("{shape} {each} {rule}; write for instance {least} or {} ports", 2 * least),
            });
        }
        let block = ports / holders;
        let of = |router: usize| match self.shape {
            Shape::Mesh => router * block..(router + 1) * block,
            Shape::Chain | Shape::Loop if router == 0 => 0..block,
            Shape::Chain | Shape::Loop if router + 1 == self.routers => block..ports,
            Shape::Chain | Shape::Loop => block..block,
        };
        Ok((0..self.routers).map(of).collect())
    }

    /// The links in order: the two routers that each connects, the lower index first.
    fn joined(&self) -> Vec<(usize, usize)> {
        if self.shape == Shape::Loop {
            return cycle::JOINED.to_vec();
        }
        let pairs = (0..self.routers).flat_map(|a| (a + 1..self.routers).map(move |b| (a, b)));
        pairs.filter(|(a, b)| self.shape == Shape::Mesh || a + 1 == *b).collect()
    }

    /// Number of routers on the path from router `a` to router `b`, including both, while all links are up.
    pub fn hops(&self, a: usize, b: usize) -> usize {
        match self.shape {
            Shape::Mesh => 1 + usize::from(a != b),
            Shape::Chain | Shape::Loop => 1 + a.abs_diff(b),
        }
    }

    /// The neighbours to which router `at` may send packets for router `to`, the best first.
    ///
    /// In a mesh the alternatives follow in the order of a ring through all routers: up the ring if router `to` has an
    /// odd number, down if it has an even number. So a packet that avoids a link moves along the ring and never returns
    /// to a router. The two directions spread the diverted traffic: in a mesh of four in which two links without a
    /// common router are down, all other links carry the same load.
    fn next(&self, at: usize, to: usize) -> Vec<usize> {
        match self.shape {
            Shape::Chain | Shape::Loop if at == to => Vec::new(),
            Shape::Chain | Shape::Loop => vec![if to > at { at + 1 } else { at - 1 }],
            Shape::Mesh => {
                let along = |step: usize| if to.is_multiple_of(2) { at + step } else { at + self.routers - step };
                let others = (1..self.routers).map(|step| along(step) % self.routers).filter(|other| *other != to);
                std::iter::once(to).chain(others).filter(|_| at != to).take(1 + ALTERNATIVES).collect()
            }
        }
    }
}

/// Number of alternative next hops of a route between the routers of a mesh.
pub const ALTERNATIVES: usize = 3;

/// One router of a system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemRouter {
    /// Its role. Interfaces to the tester come first, in the order of the ports, then interfaces to other routers, in
    /// the order of the links.
    pub role: RouterRole,
    /// Its ports of the suite: interface i of its role faces port `ports.start + i`.
    pub ports: Range<usize>,
}

/// A system of routers between the ports of a suite.
///
/// # Failures
/// Routes between routers are static, and a router only detects failures of its own links. In a mesh of three or more,
/// it sends packets around a broken link, through one of [`ALTERNATIVES`] other routers. So all traffic still arrives
/// if one link is down, if several links without a common router are down, and if up to [`ALTERNATIVES`] links of one
/// router are down and it has another one. With other sets of broken links, packets may be lost, or circle until their
/// TTL expires. There is no alternative in a chain, in a mesh of two, or for packets with a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// How the routers are connected.
    pub topology: Topology,
    /// The routers, `r1` first.
    pub routers: Vec<SystemRouter>,
    /// Links between the routers, in order: `1-2`, `1-3`, `2-3`. Two links between the same routers have the same name.
    pub links: Vec<CoreLink>,
}

impl System {
    /// Builds the system for `topology` between `ports`.
    ///
    /// # Errors
    /// [`Unsuited`] if the ports cannot be divided, if they use addresses of the links between the routers, if peers of
    /// the tester are internal, or if a loop has no IPv4.
    pub fn of(ports: &[PortConfig], topology: &Topology) -> Result<System, Unsuited> {
        let dealt = topology.deal(ports.len())?;
        core::refuse_addresses(ports)?;
        roles::refuse_impossible(ports)?;
        if topology.shape == Shape::Loop && !ports.iter().any(|port| port.ipv4.is_some()) {
            return Err(Unsuited {
                what: "a loop leads through a tunnel for IPv4, and no port has IPv4".into(),
                remedy: "leave `ipv4: none` out of a port".into(),
            });
        }
        let links = core::links(topology, &dealt);
        let mut roles = roles::roles(ports, topology, &dealt, &links);
        if topology.shape == Shape::Loop {
            cycle::add(&mut roles, &links);
        }
        let routers = roles.into_iter().zip(dealt).map(|(role, ports)| SystemRouter { role, ports }).collect();
        Ok(System { topology: *topology, routers, links })
    }

    /// Index of the router that faces a port, and index of its interface; `None` if there is no such port.
    pub fn edge(&self, port: usize) -> Option<(usize, usize)> {
        let router = self.routers.iter().position(|router| router.ports.contains(&port))?;
        Some((router, port - self.routers[router].ports.start))
    }

    /// The routers on the path from one port to another while the links in `down` are down. `None` if the packet is
    /// lost on the way, or if there are no such ports.
    pub fn route(&self, from: usize, to: usize, down: &BTreeSet<CoreLinkName>) -> Option<Vec<usize>> {
        let (mut at, end) = (self.edge(from)?.0, self.edge(to)?.0);
        let mut path = vec![at];
        while at != end {
            let is_up = |next: &usize| !down.contains(&CoreLinkName(at.min(*next) + 1, at.max(*next) + 1));
            at = self.topology.next(at, end).into_iter().find(is_up)?;
            path.push(at);
            if path.len() > 2 * self.routers.len() {
                return None;
            }
        }
        Some(path)
    }

    /// Number of routers on the path from one port to another while all links are up; 1 if both ports are at the same
    /// router.
    pub fn hops(&self, from: usize, to: usize) -> Option<usize> {
        Some(self.topology.hops(self.edge(from)?.0, self.edge(to)?.0))
    }
}

/// The path from one router of a system to a neighbour. Routers are numbered from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreWay {
    /// Number of the sending router.
    pub from: usize,
    /// Number of the router at the other end.
    pub to: usize,
}

impl CoreWay {
    /// The link of this path.
    pub fn link(&self) -> CoreLinkName {
        CoreLinkName(self.from.min(self.to), self.from.max(self.to))
    }
}

/// Display form: `r1 to r2`.
impl fmt::Display for CoreWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{} to r{}", self.from, self.to)
    }
}

impl System {
    /// The paths between routers that a packet takes from one port to another while the links in `down` are down; empty
    /// if both ports are at one router. `None` if the packet is lost.
    pub fn ways(&self, from: usize, to: usize, down: &BTreeSet<CoreLinkName>) -> Option<Vec<CoreWay>> {
        let path = self.route(from, to, down)?;
        Some(path.windows(2).map(|hop| CoreWay { from: hop[0] + 1, to: hop[1] + 1 }).collect())
    }

    /// Both directions of all links that are not down, in the order of the links.
    pub fn ways_up(&self, down: &BTreeSet<CoreLinkName>) -> Vec<CoreWay> {
        let names = self.links.iter().map(|link| link.name).filter(|name| !down.contains(name));
        names.flat_map(|CoreLinkName(a, b)| [CoreWay { from: a, to: b }, CoreWay { from: b, to: a }]).collect()
    }

    /// Index of the interface to this path in the role of the sending router; `None` if there is no such link.
    pub fn interface_of(&self, way: CoreWay) -> Option<usize> {
        let link = self.links.iter().find(|link| link.name == way.link())?;
        Some(link.end_at(way.from.checked_sub(1)?)?.interface)
    }

    /// Prefix of the counters of a class on this path, among the counters of a system: `r1.d3.gold`.
    pub fn class_counter(&self, way: CoreWay, class: &str) -> Option<String> {
        Some(format!("r{}.{}", way.from, counter_name(self.interface_of(way)?, class)))
    }

    /// The classes of one router (by index) from those of the system, numbered by the router's own interfaces.
    ///
    /// # Errors
    /// If a path uses a link that does not exist.
    pub fn classes_of(&self, router: usize, lists: &[EgressClasses]) -> Result<Vec<EgressClasses>, String> {
        let ports = &self.routers[router].ports;
        let mut own = Vec::new();
        for list in lists {
            let interface = match list.at {
                WayOut::Port(port) => ports.contains(&port).then(|| port - ports.start),
                WayOut::Core(way) => match self.interface_of(way) {
                    None => return Err(format!("there are classes for {way}, but no such link")),
                    Some(interface) => (way.from == router + 1).then_some(interface),
                },
            };
            own.extend(interface.map(|port| EgressClasses { at: WayOut::Port(port), ..list.clone() }));
        }
        Ok(own)
    }
}

/// Maximum number of sets of links that [`System::choose_down`] compares.
const MOST_SETS: usize = 20_000;
/// Loads that differ by less are equal, because they are sums of a few fractions.
const SAME: f64 = 1e-9;

/// Load of each path between routers, relative to the load that one port sends to all others together.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreLoads(pub BTreeMap<CoreWay, f64>);

impl CoreLoads {
    /// The largest load; 0 if there is none.
    pub fn most(&self) -> f64 {
        self.0.values().copied().fold(0.0, f64::max)
    }

    /// The smallest load.
    pub fn least(&self) -> f64 {
        self.0.values().copied().fold(f64::INFINITY, f64::min)
    }
}

impl System {
    /// The load in both directions of each link outside `down`, while the links in `down` are down and every port sends
    /// the same load to each other port. Diverted traffic follows [`System::route`]. `None` if some port does not reach
    /// another.
    pub fn full_mesh_loads(&self, down: &BTreeSet<CoreLinkName>) -> Option<CoreLoads> {
        let ports: usize = self.routers.iter().map(|router| router.ports.len()).sum();
        let mut loads: BTreeMap<CoreWay, f64> = self.ways_up(down).into_iter().map(|way| (way, 0.0)).collect();
        let edges = || self.routers.iter().filter(|router| !router.ports.is_empty());
        for from in edges() {
            for to in edges().filter(|to| to.ports != from.ports) {
                let share = (from.ports.len() * to.ports.len()) as f64 / (ports - 1) as f64;
                for way in self.ways(from.ports.start, to.ports.start, down)? {
                    *loads.entry(way).or_default() += share;
                }
            }
        }
        Some(CoreLoads(loads))
    }

    /// Selects `count` links whose failure overloads the others as evenly as possible, for traffic from every port to
    /// every other port, while every port still reaches every other port. The best set has the smallest load on the
    /// most loaded path; if there are several, the largest load on the least loaded path; then the first in the order
    /// of the links.
    ///
    /// # Errors
    /// If each set cuts off some port, or if there are too many sets to compare.
    pub fn choose_down(&self, count: usize) -> Result<BTreeSet<CoreLinkName>, String> {
        let names: Vec<CoreLinkName> = self.links.iter().map(|link| link.name).collect();
        if count > names.len() {
            return Err(format!("there are {} links between routers, not {count}", names.len()));
        }
        let sets = (0..count).try_fold(1usize, |sets, i| Some(sets.checked_mul(names.len() - i)? / (i + 1)));
        if sets.is_none_or(|sets| sets > MOST_SETS) {
            return Err(format!("there are too many sets of {count} links; name the links to take down"));
        }
        let mut best: Option<(f64, f64, BTreeSet<CoreLinkName>)> = None;
        for down in subsets(&names, count) {
            let Some(loads) = self.full_mesh_loads(&down) else { continue };
            let (most, least) = (loads.most(), loads.least());
            let better = best.as_ref().is_none_or(|(best_most, best_least, _)| {
                most < best_most - SAME || (most <= best_most + SAME && least > best_least + SAME)
            });
            if better {
                best = Some((most, least, down));
            }
        }
        best.map(|(_, _, down)| down)
            .ok_or_else(|| format!("without {count} of its {} links, some port does not reach another", names.len()))
    }
}

/// All sets of `count` of these names, in their order.
fn subsets(names: &[CoreLinkName], count: usize) -> Vec<BTreeSet<CoreLinkName>> {
    let Some(rest) = count.checked_sub(1) else { return vec![BTreeSet::new()] };
    let with_first = |first: usize| {
        subsets(&names[first + 1..], rest).into_iter().map(move |mut set| {
            set.insert(names[first]);
            set
        })
    };
    (0..names.len()).flat_map(with_first).collect()
}
