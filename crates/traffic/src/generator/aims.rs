//! Chooses the addresses of a flow's next frame.

use super::flow_seed;
use crate::permutation::Permutation;
use drophammer_model::routes::{Prefix, Routes};
use drophammer_model::trial::{AddressRange, Family, FlowSpec, Targets};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Returns the order of the destinations of each flow in a run with this seed: frame s goes to the destination at place
/// s modulo `count`, the number of destinations. Flows to the same routes behind a port share one order. Flow k of n
/// starts at place count * k / n in it. If all of them send at the same rate, together they reach each route once per
/// `count` frames.
pub(crate) fn destination_orders(flows: &[FlowSpec], seed: u64) -> Vec<Permutation> {
    let own =
        |(id, flow): (usize, &FlowSpec)| Permutation::new(flow.destinations.count(), flow_seed(id, seed) ^ 0x5bd1_e995);
    let mut orders: Vec<Permutation> = flows.iter().enumerate().map(own).collect();
    let mut alike: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (id, flow) in flows.iter().enumerate() {
        flow.route_key().into_iter().for_each(|key| alike.entry(key).or_default().push(id));
    }
    for ids in alike.values() {
        let (order, all) = (orders[ids[0]], ids.len() as u64);
        for (k, id) in (0..).zip(ids) {
            orders[*id] = order.beginning_at((u64::from(order.len()) * k / all) as u32);
        }
    }
    orders
}

/// An address as a number; an IPv4 address is in the low 32 bits.
#[inline]
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u128::from(u32::from(a)),
        IpAddr::V6(a) => u128::from(a),
    }
}

/// Addresses of a range in pseudo-random order, endlessly.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    pub(super) first: u128,
    pub(super) step: u128,
    pub(super) order: Permutation,
    next: u32,
}

impl Addresses {
    pub(super) fn new(range: &AddressRange, order: Permutation) -> Addresses {
        Addresses { first: number(range.first), step: u128::from(range.step), order, next: 0 }
    }

    #[inline]
    pub(super) fn take(&mut self) -> u128 {
        let member = self.order.at(self.next);
        self.next += 1;
        if self.next == self.order.len() {
            self.next = 0;
        }
        self.first.wrapping_add(self.step * u128::from(member))
    }
}

/// Destinations of a flow in pseudo-random order, endlessly.
#[derive(Clone, Debug)]
pub(super) enum Aim {
    /// A range.
    Addresses(Addresses),
    /// An address within each route of a set.
    Routes(Box<Within>),
}

impl Aim {
    pub(super) fn new(targets: &Targets, order: Permutation) -> Aim {
        match targets {
            Targets::Addresses(range) => Aim::Addresses(Addresses::new(range, order)),
            Targets::Routes { routes, first, .. } => Aim::Routes(Box::new(Within::new(routes.clone(), *first, order))),
        }
    }

    #[inline]
    pub(super) fn take(&mut self) -> u128 {
        match self {
            Aim::Addresses(addresses) => addresses.take(),
            Aim::Routes(within) => within.take(),
        }
    }
}

/// Number of addresses computed together. Each is a chain of multiplications and divisions, and the processor overlaps
/// several chains.
const AHEAD: usize = 64;

/// An address within each route of a set, in pseudo-random order, and a different one in each round.
#[derive(Clone, Debug)]
pub(super) struct Within {
    ready: [u128; AHEAD],
    /// Index in `ready` of the next address.
    at: usize,
    routes: Arc<Routes>,
    first: u32,
    order: Permutation,
    /// Place in `order` of the first route that is not in `ready`.
    next: u32,
    round: u32,
    hosts: Hosts,
}

impl Within {
    fn new(routes: Arc<Routes>, first: u32, order: Permutation) -> Within {
        let hosts = Hosts::new(routes.family());
        Within { ready: [0; AHEAD], at: AHEAD, routes, first, order, next: 0, round: 0, hosts }
    }

    #[inline]
    fn take(&mut self) -> u128 {
        if self.at == AHEAD {
            self.refill();
        }
        let address = self.ready[self.at];
        self.at += 1;
        address
    }

    #[inline(never)]
    fn refill(&mut self) {
        let Within { ready, routes, first, order, next, round, hosts, .. } = self;
        for ready in ready.iter_mut() {
            let route = *first + order.at(*next);
            *ready = match &**routes {
                // No route of a range contains another, so any host of the prefix works.
                Routes::Range(_) => hosts.of(routes.prefix(route), *round),
                Routes::Table(_) => number(routes.address(route, *round)),
            };
            *next += 1;
            if *next == order.len() {
                (*next, *round) = (0, round.wrapping_add(1));
            }
        }
        self.at = 0;
    }
}

/// Computes [`Prefix::host`] for one salt at a time. All prefixes of the same length have the same host part.
#[derive(Clone, Debug)]
struct Hosts {
    unspecified: IpAddr,
    salt: u32,
    /// Host parts by prefix length for the current salt; `None` if not yet computed.
    parts: [Option<u128>; 129],
}

impl Hosts {
    fn new(family: Family) -> Hosts {
        let unspecified = match family {
            Family::Ipv4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::Ipv6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        Hosts { unspecified, salt: 0, parts: [None; 129] }
    }

    #[inline]
    fn of(&mut self, prefix: Prefix, salt: u32) -> u128 {
        if salt != self.salt {
            (self.salt, self.parts) = (salt, [None; 129]);
        }
        let length = prefix.length();
        let part = match self.parts[usize::from(length)] {
            Some(part) => part,
            None => self.learn(length),
        };
        number(prefix.address()) | part
    }

    #[cold]
    fn learn(&mut self, length: u8) -> u128 {
        let part = Prefix::new(self.unspecified, length).map_or(0, |all| number(all.host(self.salt)));
        self.parts[usize::from(length)] = Some(part);
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::routes::{AttributePattern, RouteRange};
    use proptest::prelude::*;

    /// The order of the destinations of flow `id`, computed from all other flows.
    fn order_of(flows: &[FlowSpec], id: usize, seed: u64) -> Permutation {
        let flow = &flows[id];
        let own = |id: usize| Permutation::new(flow.destinations.count(), flow_seed(id, seed) ^ 0x5bd1_e995);
        let alike = |other: &&FlowSpec| match (&flow.destinations, &other.destinations) {
            (
                Targets::Routes { routes, first, count },
                Targets::Routes { routes: others, first: of_other, count: count_of_other },
            ) => (flow.to, first, count) == (other.to, of_other, count_of_other) && Arc::ptr_eq(routes, others),
            _ => false,
        };
        let Some(first) = flows.iter().position(|other| alike(&other)) else { return own(id) };
        let before = flows[..id].iter().filter(alike).count() as u64;
        let (order, all) = (own(first), flows.iter().filter(alike).count() as u64);
        order.beginning_at((u64::from(order.len()) * before / all) as u32)
    }

    proptest! {
        #[test]
        fn flows_to_the_same_routes_share_one_order(
            flows in proptest::collection::vec((0usize..3, 0usize..3, 0u32..2, 1u32..4), 1..60), seed: u64
        ) {
            let address = AddressRange { first: "198.18.0.1".parse().unwrap(), step: 1, count: 1 };
            // Equal routes of two tables are different routes.
            let table = || Arc::new(Routes::from(RouteRange::internet(Family::Ipv4, 100, 1).unwrap()));
            let tables = [table(), table()];
            let flow = |(table, to, first, tens): &(usize, usize, u32, u32)| {
                let (first, count) = (first * 10, tens * 10);
                let destinations = match tables.get(*table) {
                    Some(routes) => Targets::Routes { routes: routes.clone(), first, count },
                    None => AddressRange { count, ..address }.into(),
                };
                FlowSpec::new("", 3, *to, address, destinations)
            };
            let flows: Vec<FlowSpec> = flows.iter().map(flow).collect();
            let expected: Vec<_> = (0..flows.len()).map(|id| order_of(&flows, id, seed)).collect();
            prop_assert_eq!(destination_orders(&flows, seed), expected);
        }
    }

    proptest! {
        #[test]
        fn made_ahead_or_not_the_addresses_are_those_of_the_routes(
            v6: bool, uniform: bool, length in 9u8..=32, count in 1u32..300, first in 0u32..50, seed: u64
        ) {
            let family = if v6 { Family::Ipv6 } else { Family::Ipv4 };
            let start = if v6 { "2400::" } else { "20.0.0.0" };
            let range = if uniform {
                let prefix = Prefix::masked(start.parse().unwrap(), if v6 { length * 4 } else { length }).unwrap();
                RouteRange::uniform(prefix, first + count, 1, AttributePattern::default())
            } else {
                RouteRange::internet(family, first + count, seed)
            };
            let routes: Arc<Routes> = Arc::new(range.unwrap().into());
            let order = Permutation::new(count, seed);
            let mut aim = Aim::new(&Targets::Routes { routes: routes.clone(), first, count }, order);
            for n in 0..3 * count + 1 {
                let expected = routes.address(first + order.at(n % count), n / count);
                prop_assert_eq!(aim.take(), number(expected), "frame {}", n);
            }
        }
    }
}
