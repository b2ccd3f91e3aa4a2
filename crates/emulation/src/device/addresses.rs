//! IP addresses of a device: its own, additional ranges, and the gateway's.

use drophammer_wire::MacAddr;
use drophammer_wire::icmpv6::ndp;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum number of addresses in one range.
pub const MOST: u32 = 65_536;

/// Addresses of a device in one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Address<A> {
    /// The device's own address.
    pub address: A,
    /// Length of the prefix that it shares with the gateway.
    pub prefix_len: u8,
    /// Address of the DUT on this link.
    pub gateway: A,
}

/// All addresses of a device.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// IPv4, if used.
    pub ipv4: Option<Address<Ipv4Addr>>,
    /// IPv6, if used.
    pub ipv6: Option<Address<Ipv6Addr>>,
    link_local: Ipv6Addr,
    further: Further,
}

impl Addresses {
    /// The addresses of a device with this MAC address, which determines its link-local address.
    pub(super) fn new(mac: MacAddr, ipv4: Option<Address<Ipv4Addr>>, ipv6: Option<Address<Ipv6Addr>>) -> Addresses {
        Addresses { ipv4, ipv6, link_local: ndp::link_local(mac), further: Further::default() }
    }

    /// The link-local IPv6 address; the device has it if it uses IPv6.
    pub fn link_local(&self) -> Ipv6Addr {
        self.link_local
    }

    /// Adds `count` addresses starting with `first`. False if `count` is 0 or above [`MOST`], or if the range exceeds
    /// the address space of the family.
    pub(super) fn add(&mut self, first: IpAddr, count: u32) -> bool {
        self.further.add(first, count)
    }

    /// First and last address of each range, including the device's own addresses, and the gateway's address if it is
    /// in a range.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (IpAddr, IpAddr)> + '_ {
        let own4 = self.ipv4.map(|a| (a.address.into(), a.address.into()));
        let own6 = self.ipv6.map(|a| [a.address, self.link_local]).into_iter().flatten();
        let v4 = self.further.v4.iter().map(|(a, z)| (Ipv4Addr::from(*a).into(), Ipv4Addr::from(*z).into()));
        let v6 = self.further.v6.iter().map(|(a, z)| (Ipv6Addr::from(*a).into(), Ipv6Addr::from(*z).into()));
        own4.into_iter().chain(own6.map(|a| (a.into(), a.into()))).chain(v4).chain(v6)
    }

    /// True if this IPv4 address belongs to the device. The gateway's address does not, even if it is in a range.
    pub fn owns_v4(&self, address: Ipv4Addr) -> bool {
        self.ipv4.is_some_and(|a| a.address == address || a.gateway != address && self.further.has_v4(address))
    }

    /// True if this IPv6 address belongs to the device. The gateway's address does not, even if it is in a range.
    pub fn owns_v6(&self, address: Ipv6Addr) -> bool {
        self.ipv6.is_some_and(|a| {
            address == self.link_local || a.address == address || a.gateway != address && self.further.has_v6(address)
        })
    }

    /// The gateway for the address family of `like`.
    pub fn gateway(&self, like: IpAddr) -> Option<IpAddr> {
        match like {
            IpAddr::V4(_) => self.ipv4.map(|a| a.gateway.into()),
            IpAddr::V6(_) => self.ipv6.map(|a| a.gateway.into()),
        }
    }

    /// The next hop of a packet to `destination`: the destination itself if it shares the prefix or is link-local,
    /// otherwise the gateway. `None` if the device does not use this family.
    pub fn next_hop(&self, destination: IpAddr) -> Option<IpAddr> {
        let (on_link, gateway) = match destination {
            IpAddr::V4(to) => {
                let own = self.ipv4?;
                let differing = u64::from(own.address.to_bits() ^ to.to_bits());
                (differing >> (32 - u32::from(own.prefix_len.min(32))) == 0, own.gateway.into())
            }
            IpAddr::V6(to) => {
                let own = self.ipv6?;
                let differing = own.address.to_bits() ^ to.to_bits();
                let same = differing.checked_shr(128 - u32::from(own.prefix_len.min(128))).unwrap_or(0) == 0;
                (same || to.is_unicast_link_local(), own.gateway.into())
            }
        };
        Some(if on_link { destination } else { gateway })
    }
}

/// First and last address of a range, as numbers.
type Range<N> = (N, N);

/// Additional addresses: ranges of both families.
#[derive(Clone, Debug, Default)]
struct Further {
    v4: Vec<Range<u32>>,
    v6: Vec<Range<u128>>,
}

impl Further {
    /// Adds `count` consecutive addresses; false if `count` is 0 or above [`MOST`], or if the range exceeds the address
    /// space of the family.
    pub fn add(&mut self, first: IpAddr, count: u32) -> bool {
        if !(1..=MOST).contains(&count) {
            return false;
        }
        let last = count - 1;
        match first {
            IpAddr::V4(a) => a.to_bits().checked_add(last).map(|z| self.v4.push((a.to_bits(), z))).is_some(),
            IpAddr::V6(a) => a.to_bits().checked_add(last.into()).map(|z| self.v6.push((a.to_bits(), z))).is_some(),
        }
    }

    pub fn has_v4(&self, address: Ipv4Addr) -> bool {
        self.v4.iter().any(|(a, z)| (*a..=*z).contains(&address.to_bits()))
    }

    pub fn has_v6(&self, address: Ipv6Addr) -> bool {
        self.v6.iter().any(|(a, z)| (*a..=*z).contains(&address.to_bits()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_both_ends_and_no_more() {
        let mut also = Further::default();
        assert!(also.add("198.18.0.250".parse().unwrap(), 10) && also.add("2001:2::fffe".parse().unwrap(), 3));
        for (address, has) in
            [("198.18.0.249", false), ("198.18.0.250", true), ("198.18.1.3", true), ("198.18.1.4", false)]
        {
            assert_eq!(also.has_v4(address.parse().unwrap()), has, "{address}");
        }
        for (address, has) in [("2001:2::fffd", false), ("2001:2::1:0", true), ("2001:2::1:1", false)] {
            assert_eq!(also.has_v6(address.parse().unwrap()), has, "{address}");
        }
    }

    #[test]
    fn what_is_no_range_is_refused() {
        let mut also = Further::default();
        let (v4, v6): (IpAddr, IpAddr) = ("198.18.0.0".parse().unwrap(), "2001:2::".parse().unwrap());
        assert!([(v4, 0), (v6, MOST + 1)].iter().all(|(first, count)| !also.add(*first, *count)));
        assert!(!also.add("255.255.255.255".parse().unwrap(), 2) && also.add("255.255.255.255".parse().unwrap(), 1));
        assert!(also.add(v4, MOST) && also.has_v4("198.18.255.255".parse().unwrap()));
    }

    #[test]
    fn packets_leave_the_link_by_the_gateway() {
        let own = Address { address: [198, 18, 1, 1].into(), prefix_len: 24, gateway: [198, 18, 1, 2].into() };
        let six = |text: &str| text.parse::<Ipv6Addr>().unwrap();
        let own6 = Address { address: six("2001:2::1"), prefix_len: 64, gateway: six("2001:2::2") };
        let mut all = Addresses::new(MacAddr::local(1), Some(own), Some(own6));
        let hop = |to: &str| all.next_hop(to.parse().unwrap()).unwrap().to_string();
        assert_eq!(
            [hop("198.18.1.255"), hop("198.18.2.0"), hop("10.0.0.1")],
            ["198.18.1.255", "198.18.1.2", "198.18.1.2"]
        );
        assert_eq!([hop("2001:2::ffff"), hop("2001:3::1"), hop("fe80::7")], ["2001:2::ffff", "2001:2::2", "fe80::7"]);
        all.ipv4 = Some(Address { prefix_len: 0, ..own });
        all.ipv6 = None;
        assert_eq!(all.next_hop("10.0.0.1".parse().unwrap()), Some("10.0.0.1".parse().unwrap()));
        assert_eq!(all.next_hop("2001:2::ffff".parse().unwrap()), None);
        assert!(!all.owns_v6(all.link_local()), "without the family");
    }
}
