//! Devices and their sessions.

use super::routers::RouterName;
use super::{Link, Place};
use crate::model::Config;
use crate::model::device::{Address, Device, Interface, Peer};
use crate::model::read::Errors;
use drophammer_emulation::bgp::{Encapsulation, EncapsulationKind, NextHops, PeerConfig};
use drophammer_emulation::tcp::Protection;
use drophammer_model::mac::MacAddr;
use drophammer_model::routes::{AfiSafi, RouteTable, Routes};
use drophammer_model::trial::Family;
use drophammer_rig::{Config as RigConfig, DeviceConfig, PortConfig, host_mac};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// A BGP session of the rig.
#[derive(Clone, Debug)]
pub struct SessionName {
    /// Name of the peer.
    pub name: String,
    /// True for a session over IPv6.
    pub v6: bool,
    /// Its route ranges: name and routes.
    pub routes: Vec<SessionRange>,
    /// True if it can restart gracefully.
    pub restarts: bool,
    /// True for each family whose received prefixes are kept: IPv4 and IPv6 unicast, IPv4 and IPv6 with labels.
    pub learns: [bool; 4],
}

/// Routes that a session advertises or withdraws together.
#[derive(Clone, Debug)]
pub struct SessionRange {
    /// Their name.
    pub name: String,
    /// The routes.
    pub routes: Arc<Routes>,
    /// Unicast routes, or labelled ones, and their path identifier.
    pub encapsulation: Encapsulation,
}

/// The gateway of a device in one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighbourName {
    /// Name of the interface.
    pub ethernet: String,
    /// Its port.
    pub port: usize,
    /// Index of the device on the port.
    pub device: usize,
    /// Address of the gateway.
    pub gateway: IpAddr,
}

/// First MAC address for devices that have none configured; it follows the addresses of the ports.
const FIRST_MAC: usize = 0x4000;
/// Path identifier of routes without one, in sessions with path identifiers.
const FIRST_PATH: u32 = 1;

pub(super) struct Builder<'a> {
    rig: RigConfig,
    pub links: &'a [Link],
    /// Sessions of each device of each port, in the order of its routers.
    sessions: HashMap<(usize, usize), Vec<SessionName>>,
    neighbours: Vec<NeighbourName>,
    pub routers: Vec<RouterName>,
    pub places: &'a mut HashMap<String, Place>,
    pub errors: &'a Errors,
    made_up: usize,
}

pub(super) fn devices(
    config: &Config,
    links: &[Link],
    seed: u64,
    places: &mut HashMap<String, Place>,
    errors: &Errors,
) -> (RigConfig, Vec<SessionName>, Vec<NeighbourName>, Vec<RouterName>) {
    let port = |(i, (port, link)): (usize, (&crate::model::Port, &Link))| {
        PortConfig::new(&port.name, host_mac(seed, i), link.mtu)
    };
    let ports = config.ports.iter().zip(links).enumerate().map(port).collect();
    let rig = RigConfig { seed, ports };
    let (sessions, neighbours, routers) = Default::default();
    let mut builder = Builder { rig, links, sessions, neighbours, routers, places, errors, made_up: FIRST_MAC };
    for (i, device) in config.devices.iter().enumerate() {
        builder.device(config, device, &format!("devices[{i}]"));
    }
    let Builder { rig, mut sessions, neighbours, routers, .. } = builder;
    let mut ordered = Vec::new();
    for (at, port) in rig.ports.iter().enumerate() {
        ordered.extend((0..port.devices.len()).filter_map(|device| sessions.remove(&(at, device))).flatten());
    }
    (rig, ordered, neighbours, routers)
}

impl Builder<'_> {
    fn device(&mut self, config: &Config, device: &Device, path: &str) {
        for (i, interface) in device.ethernets.iter().enumerate() {
            self.interface(config, interface, &format!("{path}.ethernets[{i}]"));
        }
        for loopback in &device.loopbacks {
            let Some(place) = self.places.get(&loopback.interface).cloned() else {
                self.errors.add(path, format_args!("there is no ethernet `{}`", loopback.interface));
                continue;
            };
            self.at(&place).also.push((loopback.address, 1));
            self.name(&loopback.name, Place { addresses: vec![loopback.address], ..place });
        }
        for (i, peer) in device.bgp.iter().flat_map(|bgp| &bgp.peers).enumerate() {
            let router_id = device.bgp.as_ref().map(|bgp| bgp.router_id);
            self.peer(peer, router_id.unwrap_or(std::net::Ipv4Addr::UNSPECIFIED), &format!("{path}.bgp peer {i}"));
        }
        if let Some(router) = &device.ospf {
            self.ospf(router, &format!("{path}.ospfv2"));
        }
        if let Some(router) = &device.rsvp {
            self.rsvp(router, &format!("{path}.rsvp"));
        }
        // A flow can name a device by its first interface.
        if let Some(place) = device.ethernets.first().and_then(|first| self.places.get(&first.name)).cloned() {
            self.name(&device.name, place);
        }
    }

    pub fn at(&mut self, place: &Place) -> &mut DeviceConfig {
        &mut self.rig.ports[place.port].devices[place.device]
    }

    pub fn name(&mut self, name: &str, place: Place) {
        self.places.insert(name.to_owned(), place);
    }

    fn interface(&mut self, config: &Config, interface: &Interface, path: &str) {
        let Some(port) = config.ports.iter().position(|port| port.name == interface.port) else {
            return self.errors.add(path, format_args!("there is no port `{}`", interface.port));
        };
        let mac = interface.mac.unwrap_or_else(|| {
            self.made_up += 1;
            host_mac(self.rig.seed, self.made_up)
        });
        let mac = MacAddr(mac.0);
        let mut device = DeviceConfig { tags: interface.tags, ..DeviceConfig::new(&interface.name, mac) };
        let place =
            Place { port, device: self.rig.ports[port].devices.len(), addresses: Vec::new(), routes: None, lsp: None };
        for address in &interface.addresses {
            if !add_address(&mut device, address) {
                let text = "an ethernet has one prefix and one gateway per family; give it a second ethernet";
                self.errors.add(path, format_args!("`{}`: {text}", address.name));
                continue;
            }
            self.name(&address.name, Place { addresses: vec![address.address], ..place.clone() });
            let gateway = address.gateway;
            let neighbour = NeighbourName { ethernet: interface.name.clone(), port, device: place.device, gateway };
            if !self.neighbours.contains(&neighbour) {
                self.neighbours.push(neighbour);
            }
        }
        let addresses = interface.addresses.iter().map(|address| address.address).collect();
        self.name(&interface.name, Place { addresses, ..place });
        self.rig.ports[port].devices.push(device);
    }

    fn peer(&mut self, peer: &Peer, router_id: std::net::Ipv4Addr, path: &str) {
        let Some(place) = self.places.get(&peer.address_name).cloned() else {
            return self.errors.add(path, format_args!("there is no address `{}`", peer.address_name));
        };
        let own = place.addresses.first().copied().filter(|own| own.is_ipv4() == peer.dut.is_ipv4());
        let Some(own) = own else {
            let text = format_args!("`{}` has no address of the family of {}", peer.address_name, peer.dut);
            return self.errors.add(path, text);
        };
        // An external peer may have any AS: 0 accepts all.
        let dut_as = if peer.internal { peer.asn } else { 0 };
        let mut config = PeerConfig::new(own, peer.dut, peer.asn, dut_as, router_id);
        config.four_octet_as = peer.four_octet_as;
        config.hold = peer.hold;
        config.passive = peer.passive;
        config.graceful_restart = peer.graceful_restart;
        config.protection =
            Protection { md5_key: peer.md5_key.clone().map(String::into_bytes), ..Protection::default() };
        let device = &self.rig.ports[place.port].devices[place.device];
        config.next_hops = NextHops {
            ipv4: if let IpAddr::V4(own) = own { Some(own) } else { device.ipv4.map(|ipv4| ipv4.address) },
            ipv6: if let IpAddr::V6(own) = own { Some(own) } else { device.ipv6.map(|ipv6| ipv6.address) },
            link_local: None,
        };
        let families = [AfiSafi::IPV4_UNICAST, AfiSafi::IPV6_UNICAST, AfiSafi::IPV4_LABELLED, AfiSafi::IPV6_LABELLED];
        let wanted = families.into_iter().zip([peer.unicast, peer.labelled].concat());
        config.families = wanted.filter(|(_, has)| *has).map(|(family, _)| family).collect();
        let several = families.into_iter().zip(peer.add_path);
        config.add_path = several.filter(|(_, several)| *several).map(|(family, _)| family).collect();
        let mut routes = Vec::new();
        for range in &peer.routes {
            let table = |family| {
                RouteTable::new(&range.name, family, range.prefixes.iter().map(|p| (*p, range.attributes.clone())))
            };
            let Some(family) = range.prefixes.first().map(|prefix| prefix.family()) else { continue };
            let next_hop = match family {
                Family::Ipv4 => config.next_hops.ipv4.is_some(),
                Family::Ipv6 => config.next_hops.ipv6.is_some(),
            };
            if !next_hop && range.attributes.next_hop.is_none() {
                let text = format_args!("`{}` needs a next hop: the device has no {family} address", range.name);
                self.errors.add(path, text);
            }
            let table: Arc<Routes> = Arc::new(table(family).into());
            let kind = range.labels.map_or(EncapsulationKind::Unicast, EncapsulationKind::Labelled);
            let encapsulation = Encapsulation { kind, path_id: range.path_id.unwrap_or(FIRST_PATH) };
            routes.push(SessionRange { name: range.name.clone(), routes: table.clone(), encapsulation });
            self.name(&range.name, Place { routes: Some(table), ..place.clone() });
        }
        self.at(&place).add_bgp([config]);
        let (name, restarts, learns) = (peer.name.clone(), peer.graceful_restart.is_some(), peer.learns);
        let session = SessionName { name, v6: own.is_ipv6(), routes, restarts, learns };
        self.sessions.entry((place.port, place.device)).or_default().push(session);
    }
}

/// Gives the device an address. False if it has one with another prefix or gateway.
fn add_address(device: &mut DeviceConfig, new: &Address) -> bool {
    let known = match new.address {
        IpAddr::V4(_) => device.ipv4.map(|a| (a.prefix_len, IpAddr::V4(a.gateway))),
        IpAddr::V6(_) => device.ipv6.map(|a| (a.prefix_len, IpAddr::V6(a.gateway))),
    };
    match known {
        None => device.set_address(new.address, new.prefix_len, new.gateway),
        Some(known) if known == (new.prefix_len, new.gateway) => device.also.push((new.address, 1)),
        Some(_) => return false,
    }
    true
}
