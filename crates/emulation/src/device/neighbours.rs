//! The neighbours of a device on its link: addresses that ARP and Neighbor Discovery have resolved or should resolve.

use super::addresses::Addresses;
use drophammer_model::Instant;
use drophammer_wire::MacAddr;
use drophammer_wire::icmpv6::ndp;
use std::collections::HashMap;
use std::net::IpAddr;

/// Maximum number of addresses that are waiting to be resolved.
const MOST_WANTED: usize = 64;

/// A neighbour that has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Link-layer address of the neighbour.
    pub mac: MacAddr,
    /// Time when the address was last confirmed.
    pub confirmed: Instant,
}

/// Neighbours by address.
#[derive(Debug, Default)]
pub struct Neighbours {
    known: HashMap<IpAddr, Neighbour>,
    /// If set, every packet goes to this address, and ARP and ND send no requests.
    fixed: Option<MacAddr>,
    wanted: Vec<IpAddr>,
    changed: Vec<IpAddr>,
}

impl Neighbours {
    /// The neighbour with this address, if resolved.
    pub fn get(&self, address: IpAddr) -> Option<Neighbour> {
        self.known.get(&address).copied()
    }

    /// Link-layer address of a neighbour, if resolved.
    pub fn mac(&self, address: IpAddr) -> Option<MacAddr> {
        self.fixed.or_else(|| self.get(address).map(|n| n.mac))
    }

    /// Number of resolved neighbours.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// True if no neighbour is resolved.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Sends every packet to this station, without address resolution.
    pub(super) fn fix(&mut self, mac: MacAddr) {
        self.fixed = Some(mac);
        self.wanted.clear();
    }

    /// True if every packet goes to one fixed station.
    pub fn is_fixed(&self) -> bool {
        self.fixed.is_some()
    }

    /// Records that a neighbour announced that it is at `mac`. Group addresses are ignored.
    pub fn confirm(&mut self, now: Instant, address: IpAddr, mac: MacAddr) -> bool {
        if mac.is_group() || mac == MacAddr::default() {
            return false;
        }
        let before = self.known.insert(address, Neighbour { mac, confirmed: now });
        if before.is_none_or(|before| before.mac != mac) {
            self.changed.push(address);
        }
        true
    }

    /// Removes a neighbour that is no longer reachable.
    pub fn forget(&mut self, address: IpAddr) {
        self.known.remove(&address);
    }

    /// The station that receives a packet to `destination`. If the station is unknown, ARP or ND resolves it at its
    /// next poll.
    #[inline]
    pub(super) fn next_hop(&mut self, addresses: &Addresses, destination: IpAddr) -> Option<MacAddr> {
        match destination {
            IpAddr::V4(group) if group.is_multicast() => return Some(multicast_mac(group.octets())),
            IpAddr::V4(all) if all.is_broadcast() => return Some(MacAddr::BROADCAST),
            IpAddr::V6(group) if group.is_multicast() => return Some(ndp::multicast_mac(group)),
            _ => {}
        }
        if self.fixed.is_some() {
            return self.fixed;
        }
        let hop = addresses.next_hop(destination)?;
        let known = self.known.get(&hop).map(|n| n.mac);
        // The gateway is resolved in any case.
        if known.is_none()
            && addresses.gateway(hop) != Some(hop)
            && self.wanted.len() < MOST_WANTED
            && !self.wanted.contains(&hop)
        {
            self.wanted.push(hop);
        }
        known
    }

    /// True if addresses are waiting to be resolved.
    pub(super) fn has_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Takes an address of this family that is waiting to be resolved.
    pub fn take_wanted(&mut self, v6: bool) -> Option<IpAddr> {
        let at = self.wanted.iter().position(|address| address.is_ipv6() == v6)?;
        Some(self.wanted.swap_remove(at))
    }

    /// Takes a neighbour that was resolved or has changed since the last call.
    pub(super) fn take_changed(&mut self) -> Option<IpAddr> {
        self.changed.pop()
    }
}

/// Link-layer address of an IPv4 group (RFC 1112 section 6.4).
pub fn multicast_mac(group: [u8; 4]) -> MacAddr {
    MacAddr([0x01, 0x00, 0x5e, group[1] & 0x7f, group[2], group[3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Address;

    #[test]
    fn an_unknown_neighbour_is_wanted_once_and_the_gateway_never() {
        let own = Address { address: [198, 18, 1, 1].into(), prefix_len: 24, gateway: [198, 18, 1, 2].into() };
        let addresses = Addresses::new(MacAddr::local(1), Some(own), None);
        let (far, near, gateway) = ([10, 0, 0, 1].into(), [198, 18, 1, 9].into(), IpAddr::from([198, 18, 1, 2]));
        let mut neighbours = Neighbours::default();
        assert_eq!((neighbours.next_hop(&addresses, far), neighbours.has_wanted()), (None, false));
        assert_eq!((neighbours.next_hop(&addresses, near), neighbours.next_hop(&addresses, near)), (None, None));
        assert_eq!((neighbours.take_wanted(true), neighbours.take_wanted(false)), (None, Some(near)));
        assert!(!neighbours.has_wanted() && !neighbours.confirm(Instant(1), gateway, MacAddr::BROADCAST));
        assert!(neighbours.confirm(Instant(1), gateway, MacAddr::local(2)));
        assert!(neighbours.confirm(Instant(2), gateway, MacAddr::local(2)));
        assert_eq!((neighbours.take_changed(), neighbours.take_changed()), (Some(gateway), None));
        assert_eq!(neighbours.next_hop(&addresses, far), Some(MacAddr::local(2)));
        assert_eq!(neighbours.next_hop(&addresses, [224, 0, 0, 5].into()), Some("01:00:5e:00:00:05".parse().unwrap()));
        neighbours.fix(MacAddr::local(3));
        assert_eq!(neighbours.next_hop(&addresses, near), Some(MacAddr::local(3)));
    }
}
