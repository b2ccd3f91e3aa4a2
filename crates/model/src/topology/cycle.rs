//! A routing loop on purpose, which multiplies load: packets to [`LOOP_PREFIX`] go around until their TTL is used up.
//!
//! ```text
//!      1-2        2-3        3-4
//!  r1 ===== r2 --------- r3 ===== r4
//!               tunnel
//! ```
//!
//! From r1 the route to the prefix leads over the first link to r2, over 2-3 to r3, over the first link to r4. r4 sends back over the second link. At
//! r3 whatever comes over that link goes into a GRE tunnel to r2 (policy routing), and at r2 whatever comes out of the tunnel goes over the second
//! link to r1, where it all begins again. So each round has six hops, passes r2 and r3 twice and 2-3 once in each direction.

use super::core::{CoreLink, address};
use super::{Shape, System};
use crate::role::{Place, Policy, PolicySource, PolicyTarget, RouterRole, StaticRoute, TUNNEL_OVERHEAD, Tunnel};
use crate::trial::Family;
use std::net::{IpAddr, Ipv4Addr};

/// Where packets go in circles: in the block of the links between routers, so that no suite uses it.
pub const LOOP_PREFIX: (Ipv4Addr, u8) = (Ipv4Addr::new(100, 126, 0, 0), 16);
/// Routers of a loop.
pub const LOOP_ROUTERS: usize = 4;
/// Links: which two routers each joins. The first of two is that of the routes.
pub(super) const JOINED: [(usize, usize); 5] = [(0, 1), (0, 1), (1, 2), (2, 3), (2, 3)];
/// The link over a long distance.
pub(super) const WAN: (usize, usize) = (1, 2);
/// Each hop of a round: router, index of the link that it comes over, index of the one that it leaves by.
const ROUND: [(usize, usize, usize); 6] = [(0, 1, 0), (1, 0, 2), (2, 2, 3), (3, 3, 4), (2, 4, 2), (1, 2, 1)];
/// The hops of a round that leave over the long distance, one in each direction.
pub const WAN_HOPS: [usize; 2] = [1, 4];
/// The hops between which the tunnel is.
const INTO_TUNNEL: usize = 4;
const OUT_OF_TUNNEL: usize = 5;

/// A packet at one router on its way around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CycleHop {
    /// Index of the router.
    pub router: usize,
    /// Index of the interface that it comes by.
    pub from: usize,
    /// Index of the interface that it leaves by.
    pub to: usize,
    /// It comes in the tunnel.
    pub from_tunnel: bool,
    /// It leaves in the tunnel.
    pub to_tunnel: bool,
}

impl System {
    /// The hops of one round of the loop, from the first router on; `None` where there is no loop.
    pub fn cycle(&self) -> Option<Vec<CycleHop>> {
        if self.topology.shape != Shape::Loop {
            return None;
        }
        let hop = |(index, (router, from, to)): (usize, &(usize, usize, usize))| {
            let interface = |link: usize| Some(self.links.get(link)?.end_at(*router)?.interface);
            Some(CycleHop {
                router: *router,
                from: interface(*from)?,
                to: interface(*to)?,
                from_tunnel: index == OUT_OF_TUNNEL,
                to_tunnel: index == INTO_TUNNEL,
            })
        };
        ROUND.iter().enumerate().map(hop).collect()
    }

    /// How often a packet with this TTL that comes in by `port` is sent on at each hop of [`System::cycle`]. The TTL says at how many routers it
    /// arrives; the last one drops it (RFC 1812 section 5.3.1). `None` without a loop, and for a port that there is not.
    pub fn passes(&self, port: usize, ttl: u8) -> Option<Vec<u64>> {
        let cycle = self.cycle()?;
        let entry = self.edge(port)?.0;
        let first = cycle.iter().position(|hop| hop.router == entry)?;
        let mut passes = vec![0; cycle.len()];
        for step in 0..usize::from(ttl.saturating_sub(1)) {
            passes[(first + step) % cycle.len()] += 1;
        }
        Some(passes)
    }

    /// Index of the router at which the TTL of a packet that comes in by `port` with this TTL is used up, so that it drops it. `None` as for
    /// [`System::passes`], and for a TTL of 0.
    pub fn expires_at(&self, port: usize, ttl: u8) -> Option<usize> {
        let cycle = self.cycle()?;
        let entry = self.edge(port)?.0;
        let first = cycle.iter().position(|hop| hop.router == entry)?;
        Some(cycle[(first + usize::from(ttl.checked_sub(1)?)) % cycle.len()].router)
    }
}

/// Adds routes to the prefix, tunnel and policies.
pub(super) fn add(roles: &mut [RouterRole], links: &[CoreLink]) {
    // The way on from router `at` over link number `link`: address of the neighbour, and own interface.
    let hop = |at: usize, link: usize| {
        let end = links[link].ends.iter().position(|end| end.router != at)?;
        let IpAddr::V4(via) = address(Family::Ipv4, link, end).address else { return None };
        Some((via, links[link].end_at(at)?.interface))
    };
    for (router, _, link) in &ROUND[..INTO_TUNNEL] {
        let Some((via, port)) = hop(*router, *link) else { continue };
        roles[*router].routes.push(StaticRoute {
            prefix: (LOOP_PREFIX.0.into(), LOOP_PREFIX.1),
            via: via.into(),
            at: Place { port, vlan: None },
            rank: 0,
        });
    }
    let ends = [ROUND[INTO_TUNNEL], ROUND[OUT_OF_TUNNEL]];
    for ((router, _, _), (other, _, _)) in [(ends[0], ends[1]), (ends[1], ends[0])] {
        let (tunnelled, back) = (ends[0].2, hop(router, ends[0].2).zip(hop(other, ends[0].2)));
        let Some(((remote, interface), (local, _))) = back else { continue };
        debug_assert!(links[tunnelled].end_at(router).is_some());
        let mtu = roles[router].interfaces[interface].mtu.saturating_sub(TUNNEL_OVERHEAD);
        roles[router].tunnels.push(Tunnel { local, remote, mtu });
    }
    let (router, link, _) = ROUND[INTO_TUNNEL];
    if let Some(end) = links[link].end_at(router) {
        let policy = Policy { from: PolicySource::Interface(end.interface), to: PolicyTarget::Tunnel(0) };
        roles[router].policies.push(policy);
    }
    let (router, _, link) = ROUND[OUT_OF_TUNNEL];
    if let Some((via, interface)) = hop(router, link) {
        let policy = Policy { from: PolicySource::Tunnel(0), to: PolicyTarget::NextHop { via, interface } };
        roles[router].policies.push(policy);
    }
}
