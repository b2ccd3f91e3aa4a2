//! Routing tables: longest match over both families.

use crate::config::ConfigError;
use prefix_trie::PrefixMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The target of packets to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// An address of the device.
    Local,
    /// The broadcast address of a connected prefix: never forwarded (RFC 2644).
    Broadcast,
    /// On the link of this interface.
    Connected(usize),
    /// Through this neighbour.
    Via(usize),
    /// Through this neighbour, with this label pushed.
    Labelled {
        /// Number of the neighbour.
        next_hop: u32,
        /// The label.
        label: u32,
    },
    /// Into this tunnel; only policies have this target.
    Tunnel(usize),
    /// To this PE router with this label; only VRFs have this target.
    Pe { pe: u32, label: u32 },
    /// A route without room in the table: packets to it are silently dropped.
    Blackhole,
    /// A route that was learned but never reached the hardware ([`crate::BgpFaults::blackhole_every`]).
    Sink,
}

/// The tables of both families.
#[derive(Clone, Default)]
pub struct Table {
    v4: PrefixMap<(u32, u8), Target>,
    v6: PrefixMap<(u128, u8), Target>,
    /// The IPv4 routes as a list while there are few of them, because a short list is faster than a tree.
    few4: Few<u32>,
    few6: Few<u128>,
}

/// Maximum number of routes in such a list.
const FEW: usize = 16;

/// All routes of a table, the longest prefix first, while there are at most [`FEW`].
#[derive(Clone)]
struct Few<T> {
    /// Mask, prefix and target of each route.
    routes: Vec<(T, T, Target)>,
    complete: bool,
}

impl<T> Default for Few<T> {
    fn default() -> Few<T> {
        Few { routes: Vec::with_capacity(FEW), complete: true }
    }
}

impl<T: Copy + Eq + std::ops::BitAnd<Output = T>> Few<T> {
    /// Replaces the list by `all`, which are the current routes.
    fn renew(&mut self, count: usize, all: impl Iterator<Item = (T, T, u8, Target)>) {
        self.routes.clear();
        self.complete = count <= FEW;
        if self.complete {
            let mut all: Vec<_> = all.collect();
            all.sort_by_key(|route| std::cmp::Reverse(route.2));
            self.routes.extend(all.into_iter().map(|(mask, prefix, _, target)| (mask, prefix, target)));
        }
    }

    #[inline]
    fn find(&self, destination: T) -> Option<Target> {
        self.routes.iter().find(|(mask, prefix, _)| destination & *mask == *prefix).map(|(_, _, target)| *target)
    }
}

impl Table {
    /// Adds or replaces a route.
    pub fn insert(&mut self, prefix: IpAddr, len: u8, target: Target) -> Result<(), ConfigError> {
        match prefix {
            IpAddr::V4(p) if len <= 32 => {
                self.v4.insert((mask4(p, len), len), target);
                self.changed4();
            }
            IpAddr::V6(p) if len <= 128 => {
                self.v6.insert((mask6(p, len), len), target);
                self.changed6();
            }
            _ => return Err(ConfigError::PrefixLength(len)),
        }
        Ok(())
    }

    fn changed4(&mut self) {
        let all = self.v4.iter().map(|(p, target)| (ones4(p.1), p.0, p.1, *target));
        self.few4.renew(self.v4.len(), all);
    }

    fn changed6(&mut self) {
        let all = self.v6.iter().map(|(p, target)| (ones6(p.1), p.0, p.1, *target));
        self.few6.renew(self.v6.len(), all);
    }

    /// The route to exactly this prefix.
    pub fn exact(&self, prefix: IpAddr, len: u8) -> Option<Target> {
        match prefix {
            IpAddr::V4(p) if len <= 32 => self.v4.get(&(mask4(p, len), len)).copied(),
            IpAddr::V6(p) if len <= 128 => self.v6.get(&(mask6(p, len), len)).copied(),
            _ => None,
        }
    }

    /// Removes a route; false if there is none.
    pub fn remove(&mut self, prefix: IpAddr, len: u8) -> bool {
        match prefix {
            IpAddr::V4(p) => {
                let was_there = len <= 32 && self.v4.remove(&(mask4(p, len), len)).is_some();
                self.changed4();
                was_there
            }
            IpAddr::V6(p) => {
                let was_there = len <= 128 && self.v6.remove(&(mask6(p, len), len)).is_some();
                self.changed6();
                was_there
            }
        }
    }

    #[inline]
    pub fn find4(&self, destination: Ipv4Addr) -> Option<Target> {
        if self.few4.complete {
            return self.few4.find(destination.to_bits());
        }
        self.v4.get_lpm(&(destination.to_bits(), 32)).map(|(_, t)| *t)
    }

    #[inline]
    pub fn find6(&self, destination: Ipv6Addr) -> Option<Target> {
        if self.few6.complete {
            return self.few6.find(destination.to_bits());
        }
        self.v6.get_lpm(&(destination.to_bits(), 128)).map(|(_, t)| *t)
    }
}

fn ones4(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}

fn ones6(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

fn mask4(p: Ipv4Addr, len: u8) -> u32 {
    p.to_bits() & ones4(len)
}

fn mask6(p: Ipv6Addr, len: u8) -> u128 {
    p.to_bits() & ones6(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn longest_match_equals_a_scan(
            routes in proptest::collection::vec((any::<u32>(), 0u8..=32), 0..60), probes in proptest::collection::vec(any::<u32>(), 20),
        ) {
            let mut table = Table::default();
            for (i, (prefix, len)) in routes.iter().enumerate() {
                table.insert(Ipv4Addr::from_bits(*prefix).into(), *len, Target::Via(i)).unwrap();
                table.insert(Ipv6Addr::from_bits(u128::from(*prefix) << 96).into(), *len, Target::Via(i)).unwrap();
            }
            // Short and long tables use different lookups.
            prop_assert_eq!(table.few4.complete, table.v4.len() <= FEW);
            // Some probes are certain to match.
            for probe in probes.iter().copied().chain(routes.iter().map(|r| r.0)) {
                let covers = |(prefix, len): &(u32, u8)| (prefix ^ probe).checked_shr(32 - u32::from(*len)).unwrap_or(0) == 0;
                let expected = routes.iter().enumerate().filter(|(_, r)| covers(r)).max_by_key(|(i, r)| (r.1, *i));
                let expected = expected.map(|(i, _)| Target::Via(i));
                prop_assert_eq!(table.find4(Ipv4Addr::from_bits(probe)), expected);
                prop_assert_eq!(table.find6(Ipv6Addr::from_bits(u128::from(probe) << 96 | 7)), expected);
            }
            // A long table becomes short again.
            let (gone, left) = routes.split_at(routes.len() * 3 / 4);
            for (prefix, len) in gone {
                table.remove(Ipv4Addr::from_bits(*prefix).into(), *len);
            }
            prop_assert_eq!(table.few4.complete, table.v4.len() <= FEW);
            for probe in routes.iter().map(|r| r.0) {
                let covers = |(prefix, len): &(u32, u8)| (prefix ^ probe).checked_shr(32 - u32::from(*len)).unwrap_or(0) == 0;
                let same = |a: &(u32, u8), b: &(u32, u8)| (mask4(Ipv4Addr::from_bits(a.0), a.1), a.1) == (mask4(Ipv4Addr::from_bits(b.0), b.1), b.1);
                let expected = left.iter().enumerate().filter(|(_, r)| covers(r) && !gone.iter().any(|g| same(g, r)));
                let expected = expected.max_by_key(|(i, r)| (r.1, *i)).map(|(i, _)| Target::Via(gone.len() + i));
                prop_assert_eq!(table.find4(Ipv4Addr::from_bits(probe)), expected);
            }
        }
    }

    #[test]
    fn routes_go_and_default_is_length_zero() {
        let mut table = Table::default();
        let zero = Ipv4Addr::UNSPECIFIED.into();
        table.insert(zero, 0, Target::Via(0)).unwrap();
        assert_eq!(table.find4(Ipv4Addr::new(9, 9, 9, 9)), Some(Target::Via(0)));
        assert!(table.remove(zero, 0) && !table.remove(zero, 0));
        assert_eq!(table.find4(Ipv4Addr::new(9, 9, 9, 9)), None);
        assert_eq!(table.insert(zero, 33, Target::Local), Err(ConfigError::PrefixLength(33)));
    }
}
