//! A DUT that is several routers: which router has which ports, how they are joined, and the role of each.
//!
//! All routers together play the part that one router would play between the same ports. They have static routes to what is behind
//! the ports of the others, and internal BGP among themselves. There is no routing protocol beside BGP: see [`System`] for the
//! failures that a system survives.

mod core;
mod cycle;
mod loads;
mod roles;
mod ways;

pub use core::{CORE_BLOCKS, CoreEnd, CoreLink, CoreLinkName, CoreLinksDown};
pub use cycle::{CycleHop, LOOP_PREFIX, LOOP_ROUTERS, WAN_HOPS};
pub use loads::CoreLoads;
pub use ways::CoreWay;

use crate::quantity::Bandwidth;
use crate::role::RouterRole;
use crate::suite::PortConfig;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

/// Most routers of a system.
pub const MOST_ROUTERS: usize = 64;

/// How the routers of a system are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// Each router has a link to every other one. Each has as many ports as the others, in the order of the suite.
    Mesh,
    /// Each router has a link to the one before and the one behind it. The first router has the first half of the ports, the last one the
    /// second half.
    Chain,
    /// Four routers in a row, of which the first two and the last two are joined by two links, with a route to [`LOOP_PREFIX`] that leads packets in
    /// a circle: see [`System::cycle`]. Ports are as in a chain.
    Loop,
}

/// A link over a long distance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wan {
    /// Speed in each direction; that of the other links where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<Bandwidth>,
    /// Delay in each direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
}

impl Wan {
    /// Is it like any other link?
    pub fn is_plain(&self) -> bool {
        self.speed.is_none() && self.delay.is_none_or(|delay| delay.is_zero())
    }
}

/// A DUT that is several routers: the key `topology` of a DUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// How they are joined.
    pub shape: Shape,
    /// How many there are, 2 to [`MOST_ROUTERS`].
    pub routers: usize,
    /// Speed of each link between two of them, in each direction; as fast as it goes where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core_speed: Option<Bandwidth>,
    /// The link between the second and the third router of a [`Shape::Loop`]; like the others where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wan: Option<Wan>,
}

/// `4 routers, fully meshed, core links of 100 Mbit/s`
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
        wan.delay.map_or(Ok(()), |delay| write!(f, " delayed by {delay:?}"))
    }
}

/// Why ports do not suit a topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; remedy: {remedy}")]
pub struct Unsuited {
    /// What is wrong.
    pub what: String,
    /// What helps.
    pub remedy: String,
}

impl Topology {
    /// The ports of each router, of `ports` in all.
    ///
    /// # Errors
    /// [`Unsuited`] where they cannot be dealt in equal parts.
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
            // A suite has pairs of ports.
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

    /// Which two routers are joined, the lower index first, in order; once for each link.
    fn joined(&self) -> Vec<(usize, usize)> {
        if self.shape == Shape::Loop {
            return cycle::JOINED.to_vec();
        }
        let pairs = (0..self.routers).flat_map(|a| (a + 1..self.routers).map(move |b| (a, b)));
        pairs.filter(|(a, b)| self.shape == Shape::Mesh || a + 1 == *b).collect()
    }

    /// Routers that a packet passes from router `a` to router `b`, both included, while all links are up.
    pub fn hops(&self, a: usize, b: usize) -> usize {
        match self.shape {
            Shape::Mesh => 1 + usize::from(a != b),
            Shape::Chain | Shape::Loop => 1 + a.abs_diff(b),
        }
    }

    /// The routers to which router `at` may send what router `to` shall have, the best first. All are its neighbours.
    ///
    /// In a mesh the others follow in the order of a ring that leads through all routers: up the ring to routers of an odd number, down to the
    /// others. So a packet that must go around a link goes ever further along the ring, and not back to where it has been. The two directions
    /// spread what goes around: in a mesh of four without two links that have no router in common, all other links carry the same.
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

/// Further next hops of a route between the routers of a mesh.
pub const ALTERNATIVES: usize = 3;

/// One router of a system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemRouter {
    /// Its role. Interfaces to the tester come first, in the order of the ports; those to other routers follow, in the order of the links.
    pub role: RouterRole,
    /// Ports of the suite that it has: interface i of its role faces port `ports.start + i`.
    pub ports: Range<usize>,
}

/// A system of routers between the ports of a suite.
///
/// # Failures that it survives
/// Routes between routers are static, and a router sees only links of its own. In a mesh of three and more it sends around a link that is
/// down, by one of [`ALTERNATIVES`] other routers. So traffic goes on while one link is down, while several are that have no router in
/// common, and while up to [`ALTERNATIVES`] links of one router are, if it has another. With other sets of broken links packets may be
/// lost, or go in circles until their TTL is used up. A chain, or a mesh of two, has one way only, and so has a packet with a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// How the routers are joined.
    pub topology: Topology,
    /// The routers, `r1` first.
    pub routers: Vec<SystemRouter>,
    /// Links between them, in order: `1-2`, `1-3`, `2-3`. Two between the same routers have the same name.
    pub links: Vec<CoreLink>,
}

impl System {
    /// The system that `topology` makes between `ports`.
    ///
    /// # Errors
    /// [`Unsuited`]: a number of ports that cannot be dealt, addresses of the links between the routers, or internal peers of the
    /// tester.
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

    /// Indices of the router and of its interface that face a port; `None` for a port that there is not.
    pub fn edge(&self, port: usize) -> Option<(usize, usize)> {
        let router = self.routers.iter().position(|router| router.ports.contains(&port))?;
        Some((router, port - self.routers[router].ports.start))
    }

    /// The routers that a packet passes from one port to another while these links are down. `None` where it is lost on the way, and for
    /// ports that there are not.
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

    /// Routers that a packet passes from one port to another while all links are up; 1 where both are at the same router.
    pub fn hops(&self, from: usize, to: usize) -> Option<usize> {
        Some(self.topology.hops(self.edge(from)?.0, self.edge(to)?.0))
    }
}
