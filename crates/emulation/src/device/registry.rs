//! Maps addresses to the devices of a port, so that the devices for a frame are found without searching all of them.

use super::dispatch::{ALL_NODES, Arrived};
use super::neighbours::multicast_mac;
use super::tags::Tags;
use super::{Device, Match};
use crate::{arp, nd};
use drophammer_wire::MacAddr;
use drophammer_wire::ethernet::ethertype;
use drophammer_wire::icmpv6::ndp;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Error: two devices on a port cannot be distinguished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collision {
    /// Name of the device that was added first.
    pub first: String,
    /// Name of the device that was refused.
    pub second: String,
    /// The address that both devices have, such as `MAC address 02:00:00:00:00:01` or `198.18.0.2 to 198.18.0.9`.
    pub what: String,
    /// The tags of both devices.
    pub tags: Tags,
}

impl fmt::Display for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Collision { first, second, what, tags } = self;
        write!(
            f,
            "devices `{first}` and `{second}` both have {what} ({tags}): change the address or the tags of one of them"
        )
    }
}

impl std::error::Error for Collision {}

/// Index of a device on its port.
type Index = u32;

/// Last address and owner of ranges that do not overlap, by tags and first address.
type Ranges = BTreeMap<(Tags, IpAddr), (IpAddr, Index)>;

#[derive(Default)]
pub(super) struct Registry {
    by_mac: HashMap<(Tags, MacAddr), Index>,
    ranges: Ranges,
    by_gateway: HashMap<(Tags, IpAddr), Vec<Index>>,
    by_group: HashMap<(Tags, MacAddr), Vec<Index>>,
    by_tags: HashMap<Tags, Vec<Index>>,
}

impl Registry {
    /// Adds `device` as number `index`.
    ///
    /// # Errors
    /// If another device already has the MAC address or one of the IP addresses: the number of that device, and the
    /// address. The registry is then unchanged.
    pub fn add(&mut self, index: Index, device: &Device) -> Result<(), (Index, String)> {
        let (tags, mac) = (device.link.tags.vlans(), device.mac());
        if let Some(first) = self.by_mac.get(&(tags, mac)) {
            return Err((*first, format!("MAC address {mac}")));
        }
        let ranges: Vec<_> = device.addresses().ranges().collect();
        for (first, last) in &ranges {
            self.check(tags, index, *first, *last)?;
        }
        for (first, last) in ranges {
            self.insert(tags, index, first, last);
        }
        self.by_mac.insert((tags, mac), index);
        self.by_tags.entry(tags).or_default().push(index);
        let config = device.config();
        let gateways = [config.ipv4.map(|a| IpAddr::from(a.gateway)), config.ipv6.map(|a| IpAddr::from(a.gateway))];
        for gateway in gateways.into_iter().flatten() {
            self.by_gateway.entry((tags, gateway)).or_default().push(index);
        }
        device.protocols.iter().for_each(|bound| self.join(tags, index, &bound.matches));
        Ok(())
    }

    /// Adds the groups that a protocol has joined.
    pub fn join(&mut self, tags: Tags, index: Index, matches: &[Match]) {
        for wanted in matches {
            let mac = match wanted {
                Match::LinkGroup(mac) => *mac,
                Match::Group(IpAddr::V4(group)) => multicast_mac(group.octets()),
                Match::Group(IpAddr::V6(group)) => ndp::multicast_mac(*group),
                _ => continue,
            };
            let members = self.by_group.entry((tags, mac)).or_default();
            if !members.contains(&index) {
                members.push(index);
            }
        }
    }

    /// Ranges that overlap `first` to `last`, in descending order.
    fn overlapping(&self, tags: Tags, first: IpAddr, last: IpAddr) -> impl Iterator<Item = (IpAddr, IpAddr, Index)> {
        let below = self.ranges.range(..=(tags, last)).rev();
        let found = below.map(|((t, a), (z, owner))| (*t, *a, *z, *owner));
        let overlaps = move |(t, _, z, _): &(Tags, IpAddr, IpAddr, Index)| {
            *t == tags && z.is_ipv4() == first.is_ipv4() && *z >= first
        };
        found.take_while(overlaps).map(|(_, a, z, owner)| (a, z, owner))
    }

    /// Checks that the range from `first` to `last` is free or belongs to device `index` itself.
    ///
    /// # Errors
    /// See [`Registry::add`].
    pub fn check(&self, tags: Tags, index: Index, first: IpAddr, last: IpAddr) -> Result<(), (Index, String)> {
        match self.overlapping(tags, first, last).find(|(.., owner)| *owner != index) {
            Some((a, z, owner)) => {
                let (a, z) = (a.max(first), z.min(last));
                Err((owner, if a == z { a.to_string() } else { format!("{a} to {z}") }))
            }
            None => Ok(()),
        }
    }

    /// Adds a range that [`Registry::check`] has accepted; overlapping ranges of the same device are merged with it.
    pub fn insert(&mut self, tags: Tags, index: Index, first: IpAddr, last: IpAddr) {
        let own: Vec<_> = self.overlapping(tags, first, last).collect();
        let (mut low, mut high) = (first, last);
        for (a, z, _) in own {
            self.ranges.remove(&(tags, a));
            (low, high) = (low.min(a), high.max(z));
        }
        self.ranges.insert((tags, low), (high, index));
    }

    /// The device that has this address.
    pub fn owner(&self, tags: Tags, address: IpAddr) -> Option<Index> {
        self.overlapping(tags, address, address).next().map(|(.., owner)| owner)
    }

    /// Replaces the content of `to` with the devices that receive a frame. Each device appears once.
    #[inline]
    pub fn find(&self, arrived: &Arrived<'_>, to: &mut Vec<Index>) {
        to.clear();
        if !arrived.destination.is_group() {
            to.extend(self.by_mac.get(&(arrived.tags, arrived.destination)));
            return;
        }
        let tags = arrived.tags;
        let concerns = match arrived.kind {
            ethertype::ARP => arp::concerns(arrived.payload),
            ethertype::IPV6 => nd::concerns(arrived.payload),
            _ => None,
        };
        if let Some(concerns) = concerns {
            to.extend(self.owner(tags, concerns.target));
            to.extend(self.owner(tags, concerns.sender));
            if concerns.announcement {
                to.extend(self.by_gateway.get(&(tags, concerns.sender)).into_iter().flatten());
            }
            to.sort_unstable();
            to.dedup();
            return;
        }
        let all = arrived.destination == MacAddr::BROADCAST || arrived.destination == ndp::multicast_mac(ALL_NODES);
        let members = if all { self.by_tags.get(&tags) } else { self.by_group.get(&(tags, arrived.destination)) };
        to.extend(members.into_iter().flatten());
    }
}

/// The last of `count` addresses starting with `first`; `None` if there are fewer.
pub(super) fn last_of(first: IpAddr, count: u32) -> Option<IpAddr> {
    let more = count.checked_sub(1)?;
    Some(match first {
        IpAddr::V4(a) => Ipv4Addr::from_bits(a.to_bits().checked_add(more)?).into(),
        IpAddr::V6(a) => Ipv6Addr::from_bits(a.to_bits().checked_add(more.into())?).into(),
    })
}
