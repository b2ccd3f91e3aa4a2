//! Interfaces: the ports, and VLAN sub-interfaces of ports.

use crate::config::{Config, ConfigError};
use drophammer_model::suite::VlanTag;
use drophammer_wire::MacAddr;
use drophammer_wire::ethernet::ethertype;
use drophammer_wire::icmpv6::ndp;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum number of tags of a sub-interface.
const MAX_TAGS: usize = 2;
/// Bytes of a tag.
const TAG: usize = 4;

/// A VLAN sub-interface: IP behind one or two tags on a port. It shares the MAC address and the MTU of its port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubInterface {
    /// Port of the sub-interface.
    pub port: usize,
    /// One or two tags, the outermost first. Frames arrive with any priority and leave with priority 0.
    pub tags: Vec<VlanTag>,
    /// IPv4 address and length of the connected prefix.
    pub ipv4: Option<(Ipv4Addr, u8)>,
    /// IPv6 address and length of the connected prefix; there is always a link-local address as well.
    pub ipv6: Option<(Ipv6Addr, u8)>,
}

/// An interface with IP.
pub(crate) struct Interface {
    pub port: usize,
    pub mac: MacAddr,
    pub ipv4: Option<(Ipv4Addr, u8)>,
    pub ipv6: Option<(Ipv6Addr, u8)>,
    pub link_local: Ipv6Addr,
    pub mtu: usize,
    /// The tags of the interface as they appear in a frame, after the MAC addresses.
    pub tags: Vec<u8>,
    /// Index of its VRF.
    pub vrf: Option<usize>,
}

impl Interface {
    /// True if a neighbour on this link can have this address.
    pub fn on_link(&self, address: IpAddr) -> bool {
        matches!(address, IpAddr::V6(a) if a.is_unicast_link_local()) || self.is_neighbour(address)
    }

    /// True if an address is in one of the connected prefixes and is not the device's own.
    pub fn is_neighbour(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(a) => self.ipv4.is_some_and(|(own, len)| {
                a != own && (a.to_bits() ^ own.to_bits()).checked_shr(32 - u32::from(len)).unwrap_or(0) == 0
            }),
            IpAddr::V6(a) => self.ipv6.is_some_and(|(own, len)| {
                a != own && (a.to_bits() ^ own.to_bits()).checked_shr(128 - u32::from(len)).unwrap_or(0) == 0
            }),
        }
    }

    /// The addresses of the interface.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        [self.ipv4.map(|a| IpAddr::V4(a.0)), self.ipv6.map(|a| IpAddr::V6(a.0))].into_iter().flatten()
    }
}

/// The interfaces of a device: the ports in order, then the sub-interfaces in order.
pub(crate) fn interfaces(config: &Config) -> Result<Vec<Interface>, ConfigError> {
    let mut all: Vec<Interface> = Vec::with_capacity(config.ports.len() + config.sub_interfaces.len());
    for (port, p) in config.ports.iter().enumerate() {
        let (mac, ipv4, ipv6, mtu) = (p.mac, p.ipv4, p.ipv6, p.mtu as usize);
        all.push(Interface {
            port,
            mac,
            ipv4,
            ipv6,
            link_local: ndp::link_local(mac),
            mtu,
            tags: Vec::new(),
            vrf: None,
        });
    }
    for sub in &config.sub_interfaces {
        let port = config.ports.get(sub.port).ok_or(ConfigError::NoSuchPort(sub.port))?;
        if !(1..=MAX_TAGS).contains(&sub.tags.len()) {
            return Err(ConfigError::Tags { port: sub.port, why: "it has one tag or two" });
        }
        if sub.tags.iter().any(|tag| !(1..=4094).contains(&tag.vid)) {
            return Err(ConfigError::Tags { port: sub.port, why: "a VLAN identifier is 1 to 4094" });
        }
        if sub.tags.iter().any(|tag| ![ethertype::VLAN, ethertype::SERVICE_VLAN].contains(&tag.tpid)) {
            return Err(ConfigError::Tags { port: sub.port, why: "the type of a tag is 0x8100 or 0x88a8" });
        }
        let tags = sub.tags.iter().flat_map(|tag| [tag.tpid.to_be_bytes(), tag.vid.to_be_bytes()].concat());
        let (mac, mtu, link_local) = (port.mac, port.mtu as usize, ndp::link_local(port.mac));
        let (port, ipv4, ipv6, tags) = (sub.port, sub.ipv4, sub.ipv6, tags.collect());
        all.push(Interface { port, mac, ipv4, ipv6, link_local, mtu, tags, vrf: None });
    }
    let (mut distinguishers, mut targets) = (HashSet::new(), HashSet::new());
    for (i, vrf) in config.vrfs.iter().enumerate() {
        let refuse = |why| Err(ConfigError::Vrf(i, why));
        if vrf.interfaces.is_empty() {
            return refuse("it has no sub-interface");
        }
        for own in &vrf.interfaces {
            if *own < config.ports.len() {
                return refuse("it has sub-interfaces, not ports");
            }
            let interface = all.get_mut(*own).ok_or(ConfigError::NoSuchPort(*own))?;
            if interface.ipv4.is_none() {
                return refuse("each of its sub-interfaces has an IPv4 address");
            }
            if interface.vrf.replace(i).is_some() {
                return refuse("another VRF has its sub-interface, or it has it twice");
            }
        }
        if !distinguishers.insert(vrf.distinguisher) || !targets.insert(vrf.target) {
            return refuse("another VRF has its route distinguisher or its route target");
        }
    }
    Ok(all)
}

/// Sub-interfaces by the tags of a frame.
pub(crate) struct ByTags(HashMap<(usize, [u8; MAX_TAGS * TAG]), usize>);

impl ByTags {
    /// Finds the sub-interfaces among all interfaces of a device.
    pub fn new(interfaces: &[Interface]) -> Result<ByTags, ConfigError> {
        let mut map = HashMap::new();
        for (i, interface) in interfaces.iter().enumerate().filter(|(_, interface)| !interface.tags.is_empty()) {
            let mut key = [0; MAX_TAGS * TAG];
            key[..interface.tags.len()].copy_from_slice(&interface.tags);
            if map.insert((interface.port, key), i).is_some() {
                return Err(ConfigError::Tags { port: interface.port, why: "another one has the same tags" });
            }
        }
        Ok(ByTags(map))
    }

    /// The interface on `port` with `tags`, given as they appear in a frame.
    pub fn find(&self, port: usize, tags: &[u8]) -> Option<usize> {
        let mut key = [0; MAX_TAGS * TAG];
        key.get_mut(..tags.len())?.copy_from_slice(tags);
        // Priority and drop eligibility do not distinguish VLANs.
        for tag in key.as_chunks_mut::<TAG>().0 {
            tag[2] &= 0x0f;
        }
        self.0.get(&(port, key)).copied()
    }
}
