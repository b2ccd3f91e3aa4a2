//! The forwarding tables of the device and of its VRFs: longest match over connected, static, OSPF and BGP routes, with a
//! limited size of all together.

use crate::config::ConfigError;
use crate::rib::{GLOBAL, Net, TableId, net};
use crate::table::{Table, Target};
use crate::truth::FibTruth;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Room for routes, not counting the device's own.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    pub all: usize,
    pub ipv4: usize,
    pub ipv6: usize,
}

/// The tables. For one prefix, the device's own and static routes take precedence over OSPF, and OSPF over BGP.
pub struct Fib {
    /// The device's own table, followed by the tables of the VRFs.
    tables: Vec<Table>,
    /// Number of changes of the device's own table.
    changes: u64,
    room: Room,
    used: [usize; 2],
    /// Prefixes with an own or static route.
    fixed: HashSet<(TableId, Net)>,
    /// OSPF's target for each of its prefixes, in the device's own table.
    ospf: HashMap<Net, Target>,
    /// BGP's target for each of these prefixes.
    shadowed: HashMap<(TableId, Net), Target>,
    truth: FibTruth,
}

fn of(net: Net) -> usize {
    usize::from(net.0.is_ipv6())
}

impl Fib {
    /// Empty tables of the device and its `vrfs` VRFs.
    pub fn new(room: Room, vrfs: usize) -> Fib {
        Fib {
            tables: vec![Table::default(); 1 + vrfs],
            changes: 0,
            room,
            used: [0; 2],
            fixed: HashSet::new(),
            ospf: HashMap::new(),
            shadowed: HashMap::new(),
            truth: FibTruth::default(),
        }
    }

    /// Adds a route to an address of the device itself in one of the tables, which uses no room.
    pub fn add_own(&mut self, table: TableId, prefix: IpAddr, len: u8, target: Target) -> Result<(), ConfigError> {
        let net = net(prefix, len).ok_or(ConfigError::PrefixLength(len))?;
        self.fixed.insert((table, net));
        self.changes += u64::from(table == GLOBAL);
        self.tables[table as usize].insert(net.0, net.1, target)
    }

    /// Number of changes of the device's own table so far.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Adds or replaces a static route through a neighbour.
    pub fn add_static(&mut self, prefix: IpAddr, len: u8, neighbour: usize) -> Result<(), ConfigError> {
        let net = net(prefix, len).ok_or(ConfigError::PrefixLength(len))?;
        if !self.fixed.contains(&(GLOBAL, net)) {
            self.shadow(net);
            self.fixed.insert((GLOBAL, net));
        }
        let before = self.exact(GLOBAL, net);
        self.place(GLOBAL, net, before, Some(Target::Via(neighbour)));
        Ok(())
    }

    /// Removes a static route; false if there is none.
    pub fn remove_static(&mut self, prefix: IpAddr, len: u8) -> bool {
        let Some(net) = net(prefix, len).filter(|net| self.fixed.remove(&(GLOBAL, *net))) else { return false };
        self.fall_back(net);
        true
    }

    /// Sets OSPF's target for a prefix; `None` removes it.
    pub fn set_ospf(&mut self, net: Net, target: Option<Target>) {
        let fixed = self.fixed.contains(&(GLOBAL, net));
        match target {
            Some(target) => {
                self.shadow(net);
                self.ospf.insert(net, target);
                if !fixed {
                    let before = self.exact(GLOBAL, net);
                    self.place(GLOBAL, net, before, Some(target));
                }
            }
            None => {
                if self.ospf.remove(&net).is_some() && !fixed {
                    self.fall_back(net);
                }
            }
        }
    }

    /// Moves BGP's target for a prefix out of the device's own table, if it is there.
    fn shadow(&mut self, net: Net) {
        if !self.fixed.contains(&(GLOBAL, net))
            && !self.ospf.contains_key(&net)
            && let Some(target) = self.exact(GLOBAL, net)
        {
            self.set_bgp(GLOBAL, net, None);
            self.shadowed.insert((GLOBAL, net), target);
        }
    }

    /// Replaces a route of the device's own table that is gone by the next best one.
    fn fall_back(&mut self, net: Net) {
        let before = self.exact(GLOBAL, net);
        let ospf = self.ospf.get(&net).copied();
        self.place(GLOBAL, net, before, ospf);
        if ospf.is_none()
            && let Some(target) = self.shadowed.remove(&(GLOBAL, net))
        {
            self.set_bgp(GLOBAL, net, Some(target));
        }
    }

    fn exact(&self, table: TableId, (address, len): Net) -> Option<Target> {
        self.tables[table as usize].exact(address, len)
    }

    /// Sets BGP's target for a prefix in one of the tables; `None` removes it.
    pub fn set_bgp(&mut self, table: TableId, net: Net, target: Option<Target>) {
        if self.fixed.contains(&(table, net)) || table == GLOBAL && self.ospf.contains_key(&net) {
            match target {
                Some(target) => self.shadowed.insert((table, net), target),
                None => self.shadowed.remove(&(table, net)),
            };
            return;
        }
        let before = self.exact(table, net);
        let after = self.place(table, net, before, target);
        for (target, grows) in [(before, false), (after, true)] {
            let count = match target {
                Some(Target::Via(_) | Target::Pe { .. }) if table != GLOBAL => &mut self.truth.vpn,
                Some(Target::Via(_)) if net.0.is_ipv4() => &mut self.truth.ipv4,
                Some(Target::Via(_)) => &mut self.truth.ipv6,
                Some(Target::Sink) => &mut self.truth.sunk,
                Some(Target::Blackhole) => &mut self.truth.without_room,
                _ => continue,
            };
            *count = if grows { *count + 1 } else { *count - 1 };
        }
    }

    /// Replaces or removes the route of a prefix, and returns the new one. A changed route keeps its place; packets to
    /// a route without room are dropped. A place that becomes free goes to the next new route, not to an earlier route
    /// that found no room.
    fn place(&mut self, table: TableId, net: Net, before: Option<Target>, target: Option<Target>) -> Option<Target> {
        let takes_place = |t: Option<Target>| {
            matches!(t, Some(Target::Via(_) | Target::Labelled { .. } | Target::Pe { .. } | Target::Sink))
        };
        let Room { all, ipv4, ipv6 } = self.room;
        let own = if net.0.is_ipv4() { ipv4 } else { ipv6 };
        self.used[of(net)] -= usize::from(takes_place(before));
        let has_room = self.used[of(net)] < own && self.used[0] + self.used[1] < all;
        let after = target.map(|target| if takes_place(before) || has_room { target } else { Target::Blackhole });
        self.used[of(net)] += usize::from(takes_place(after));
        self.changes += u64::from(table == GLOBAL);
        let table = &mut self.tables[table as usize];
        match after {
            // The length has already been checked.
            Some(target) => drop(table.insert(net.0, net.1, target)),
            None => drop(table.remove(net.0, net.1)),
        }
        after
    }

    pub fn truth(&self) -> &FibTruth {
        &self.truth
    }

    #[inline]
    pub fn find4(&self, destination: Ipv4Addr) -> Option<Target> {
        self.tables[0].find4(destination)
    }

    /// The route of VRF `vrf` to a destination.
    #[inline]
    pub fn find_in_vrf(&self, vrf: usize, destination: Ipv4Addr) -> Option<Target> {
        self.tables[1 + vrf].find4(destination)
    }

    #[inline]
    pub fn find6(&self, destination: Ipv6Addr) -> Option<Target> {
        self.tables[0].find6(destination)
    }

    /// The IPv6 route of VRF `vrf` to a destination.
    #[inline]
    pub fn find6_in_vrf(&self, vrf: usize, destination: Ipv6Addr) -> Option<Target> {
        self.tables[1 + vrf].find6(destination)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(all: usize, ipv4: usize, ipv6: usize) -> Fib {
        Fib::new(Room { all, ipv4, ipv6 }, 1)
    }

    fn v4(n: u8) -> Net {
        net([10, n, 0, 0].into(), 16).unwrap()
    }

    fn v6(n: u16) -> Net {
        net(Ipv6Addr::new(0x2001, 0xdb8, n, 0, 0, 0, 0, 0).into(), 48).unwrap()
    }

    fn via(fib: &Fib, n: u8) -> Option<Target> {
        fib.find4([10, n, 1, 1].into())
    }

    #[test]
    fn each_family_has_its_room_within_that_of_all() {
        let mut fib = room(5, 3, 4);
        (0..5).for_each(|n| fib.set_bgp(GLOBAL, v4(n), Some(Target::Via(7))));
        (0..5).for_each(|n| fib.set_bgp(GLOBAL, v6(n), Some(Target::Via(8))));
        assert_eq!(*fib.truth(), FibTruth { ipv4: 3, ipv6: 2, vpn: 0, without_room: 5, sunk: 0 });
        assert_eq!((via(&fib, 2), via(&fib, 3), via(&fib, 9)), (Some(Target::Via(7)), Some(Target::Blackhole), None));
        // A place that becomes free goes to the next new route, not to an earlier one that found no room.
        fib.set_bgp(GLOBAL, v4(0), None);
        assert_eq!((via(&fib, 0), via(&fib, 4)), (None, Some(Target::Blackhole)));
        fib.set_bgp(GLOBAL, v4(4), Some(Target::Via(7)));
        fib.set_bgp(GLOBAL, v4(3), None);
        fib.set_bgp(GLOBAL, v4(1), Some(Target::Sink));
        assert_eq!(*fib.truth(), FibTruth { ipv4: 2, ipv6: 2, vpn: 0, without_room: 3, sunk: 1 });
    }

    #[test]
    fn ospf_stands_between_static_routes_and_bgp() {
        let mut fib = room(1, 9, 9);
        let ((address, len), labelled) = (v4(1), Target::Labelled { next_hop: 5, label: 77 });
        fib.set_bgp(GLOBAL, v4(1), Some(Target::Via(1)));
        fib.set_ospf(v4(1), Some(labelled));
        assert_eq!((via(&fib, 1), *fib.truth()), (Some(labelled), FibTruth::default()));
        fib.add_static(address, len, 2).unwrap();
        fib.set_ospf(v4(1), Some(Target::Via(6)));
        fib.set_bgp(GLOBAL, v4(1), Some(Target::Via(3)));
        assert_eq!(via(&fib, 1), Some(Target::Via(2)));
        assert!(fib.remove_static(address, len));
        assert_eq!(via(&fib, 1), Some(Target::Via(6)));
        fib.set_ospf(v4(2), Some(Target::Via(6)));
        assert_eq!(via(&fib, 2), Some(Target::Blackhole), "there is one place");
        fib.set_ospf(v4(1), None);
        assert_eq!((via(&fib, 1), fib.truth().ipv4), (Some(Target::Via(3)), 1));
        fib.set_bgp(GLOBAL, v4(1), None);
        fib.set_ospf(v4(2), None);
        assert_eq!((via(&fib, 1), via(&fib, 2), fib.used), (None, None, [0, 0]));
    }

    #[test]
    fn a_static_route_stands_before_that_of_bgp() {
        let mut fib = room(1, 9, 9);
        let (address, len) = v4(1);
        fib.set_bgp(GLOBAL, v4(1), Some(Target::Via(1)));
        fib.add_static(address, len, 2).unwrap();
        assert_eq!(via(&fib, 1), Some(Target::Via(2)));
        fib.set_bgp(GLOBAL, v4(1), Some(Target::Via(3)));
        assert_eq!(via(&fib, 1), Some(Target::Via(2)));
        assert!(fib.remove_static(address, len) && !fib.remove_static(address, len));
        assert_eq!(via(&fib, 1), Some(Target::Via(3)), "and back, into the one place");
        fib.set_bgp(GLOBAL, v4(1), None);
        assert_eq!((via(&fib, 1), *fib.truth()), (None, FibTruth::default()));
        fib.add_own(GLOBAL, [10, 0, 0, 0].into(), 16, Target::Connected(0)).unwrap();
        fib.set_bgp(GLOBAL, v4(0), Some(Target::Via(3)));
        assert_eq!(via(&fib, 0), Some(Target::Connected(0)));
    }

    #[test]
    fn a_vrf_has_a_table_of_its_own_within_the_room_of_all() {
        let mut fib = room(2, 9, 9);
        let pe = Target::Pe { pe: 0, label: 77 };
        fib.set_bgp(GLOBAL, v4(1), Some(Target::Via(1)));
        fib.set_bgp(1, v4(1), Some(pe));
        let changes = fib.changes();
        fib.set_bgp(1, v4(2), Some(Target::Via(3)));
        assert_eq!(*fib.truth(), FibTruth { ipv4: 1, ipv6: 0, vpn: 1, without_room: 1, sunk: 0 });
        let in_vrf = |fib: &Fib, n| fib.find_in_vrf(0, [10, n, 1, 1].into());
        assert_eq!((via(&fib, 1), in_vrf(&fib, 1)), (Some(Target::Via(1)), Some(pe)));
        assert_eq!((via(&fib, 2), in_vrf(&fib, 2)), (None, Some(Target::Blackhole)));
        fib.set_bgp(1, v4(1), None);
        assert_eq!((via(&fib, 1), in_vrf(&fib, 1), fib.truth().vpn), (Some(Target::Via(1)), None, 0));
        assert_eq!(fib.changes(), changes, "the device's own table is unchanged");
    }
}
