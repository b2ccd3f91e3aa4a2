//! Chooses the addresses of a flow's next frame.

use crate::permutation::Permutation;
use drophammer_model::routes::{Prefix, Routes};
use drophammer_model::trial::{AddressRange, Family, Targets};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

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
