//! A deliberate routing loop that multiplies load: packets to [`LOOP_PREFIX`] circulate until their TTL expires.
//!
//! ```text
//!      1-2        2-3        3-4
//!  r1 ===== r2 --------- r3 ===== r4
//!               tunnel
//! ```
//!
//! r1 routes the prefix over the first link to r2, r2 over 2-3 to r3, and r3 over the first link to r4. r4 sends the
//! packets back over the second link. r3 sends all packets from that link into a GRE tunnel to r2 (policy routing). r2
//! sends all packets from the tunnel over the second link to r1, where the next round begins. So each round has six
//! hops, passes r2 and r3 twice and 2-3 once in each direction.
//!
//! # Loops
//!
//! Such packets never come back, so the test `routing_loop` reads the routers' counters: `Dut::router_interfaces`
//! counts at each interface and tunnel (`model::router_interfaces`), and `Usage::router_cpu` has the processor time of
//! each router. `methods::Trial::routers` (`testbed/src/circling.rs`) reads both before each attempt at a trial, and
//! again when the counters have settled. Flows into a loop are `denied`, because no frame may arrive.

use super::core::{CoreLink, address};
use super::{Shape, System};
use crate::role::{Place, Policy, PolicySource, PolicyTarget, RouterRole, StaticRoute, TUNNEL_OVERHEAD, Tunnel};
use crate::trial::Family;
use std::net::{IpAddr, Ipv4Addr};

/// Destination of circulating packets. It is in the block for links between routers, so no suite uses it.
pub const LOOP_PREFIX: (Ipv4Addr, u8) = (Ipv4Addr::new(100, 126, 0, 0), 16);
/// Number of routers of a loop.
pub const LOOP_ROUTERS: usize = 4;
/// Links, each as the two routers that it connects. If two links connect the same routers, routes use the first one.
pub(super) const JOINED: [(usize, usize); 5] = [(0, 1), (0, 1), (1, 2), (2, 3), (2, 3)];
/// The long-distance link.
pub(super) const WAN: (usize, usize) = (1, 2);
/// The hops of a round: router, index of the incoming link, index of the outgoing link.
const ROUND: [(usize, usize, usize); 6] = [(0, 1, 0), (1, 0, 2), (2, 2, 3), (3, 3, 4), (2, 4, 2), (1, 2, 1)];
/// The hops that leave over the long-distance link, one in each direction.
pub const WAN_HOPS: [usize; 2] = [1, 4];
/// The hops where packets enter and leave the tunnel.
const INTO_TUNNEL: usize = 4;
const OUT_OF_TUNNEL: usize = 5;

/// One hop of a packet on its way around the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CycleHop {
    /// Index of the router.
    pub router: usize,
    /// Index of the incoming interface.
    pub from: usize,
    /// Index of the outgoing interface.
    pub to: usize,
    /// True if the packet arrives in the tunnel.
    pub from_tunnel: bool,
    /// True if the packet leaves in the tunnel.
    pub to_tunnel: bool,
}

impl System {
    /// The hops of one round of the loop, from the first router on; `None` if the topology is not a loop.
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

    /// How often each hop of [`System::cycle`] forwards a packet that enters through `port` with this TTL. The TTL is
    /// the number of routers that it reaches; the last one drops it (RFC 1812 section 5.3.1). `None` if the topology is
    /// not a loop or there is no such port.
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

    /// Index of the router where the TTL expires of a packet that enters through `port` with this TTL. `None` in the
    /// cases of [`System::passes`], and for a TTL of 0.
    pub fn expires_at(&self, port: usize, ttl: u8) -> Option<usize> {
        let cycle = self.cycle()?;
        let entry = self.edge(port)?.0;
        let first = cycle.iter().position(|hop| hop.router == entry)?;
        Some(cycle[(first + usize::from(ttl.checked_sub(1)?)) % cycle.len()].router)
    }
}

/// Adds the routes to the prefix, the tunnel and the policies.
pub(super) fn add(roles: &mut [RouterRole], links: &[CoreLink]) {
    // The next hop from router `at` over link number `link`: address of the neighbour, and index of the own interface.
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
