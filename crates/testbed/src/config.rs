//! The ports of a suite as the rig's configuration.

use drophammer_emulation::bgp::PeerConfig;
use drophammer_model::label_edge::{self, PROVIDER_AS};
use drophammer_model::routes::AfiSafi;
use drophammer_model::suite::{Addressing, PeerLink, PortBgp, PortConfig, VlanConfig};
use drophammer_model::trial::{Family, PortIndex};
use drophammer_rig::{Config, DeviceConfig, ProtocolConfig, Tag, Tags, bfd, host_mac};
use drophammer_wire::MacAddr;
use std::net::{IpAddr, Ipv4Addr};

/// A device per port and one per VLAN sub-interface, with their addresses of `families`. Without families they have no
/// addresses: a loop needs none. All devices of a port have its MAC address.
pub fn hosts(ports: &[PortConfig], families: &[Family], seed: u64) -> Config {
    let host = |(index, port): (usize, &PortConfig)| {
        let mut host = drophammer_rig::PortConfig::new(&port.name, host_mac(seed, index), port.mtu);
        address(&mut host.devices[0], families.iter().filter_map(|family| port.addressing(*family)));
        host.devices.extend(port.vlans.iter().map(|vlan| {
            let tags = tags(vlan);
            let vids = vlan.tags.iter().map(|tag| format!(".{}", tag.vid)).collect::<String>();
            let name = format!("{}{vids}", port.name);
            let mut device = DeviceConfig { tags, ..DeviceConfig::new(&name, host_mac(seed, index)) };
            address(&mut device, families.iter().filter_map(|family| vlan.addressing(*family)));
            device
        }));
        host
    };
    Config { seed, ports: ports.iter().enumerate().map(host).collect() }
}

/// Gives `device` the host's address of each addressing.
fn address<'a>(device: &mut DeviceConfig, addressing: impl Iterator<Item = &'a Addressing>) {
    addressing.for_each(|a| device.set_address(a.host, a.prefix_len, a.dut));
}

/// The tags of a sub-interface.
fn tags(vlan: &VlanConfig) -> Tags {
    let tags: Vec<_> = vlan.tags.iter().map(|tag| Tag { tpid: tag.tpid, vid: tag.vid }).collect();
    Tags::new(&tags).expect("a suite has tags that can be")
}

/// As [`hosts`], with the emulated BGP routers of the ports that have them.
pub fn hosts_and_routers(ports: &[PortConfig], families: &[Family], seed: u64) -> Config {
    let mut config = hosts(ports, families, seed);
    for (index, port) in ports.iter().enumerate() {
        let Some(bgp) = &port.bgp else { continue };
        // One per family: both families have the same number of routers, or one family has none.
        let mut numbers = [0, 0];
        for link in port.peer_links() {
            let device = &mut config.ports[index].devices[device_of(&link)];
            if let Some(second) = link.peers.get(1) {
                device.also.push((*second, link.peers.len() as u32 - 1));
            }
            let number = &mut numbers[usize::from(link.family == Family::Ipv6)];
            let router = |address| {
                *number += 1;
                peer(address, link.addressing.dut, bgp, router_id(index, *number - 1))
            };
            device.add_bgp(link.peers.iter().copied().map(router));
        }
    }
    add_edges(&mut config, ports);
    config
}

/// Index of the device that has the peers of a link, among the devices of its port.
pub(crate) fn device_of(link: &PeerLink<'_>) -> usize {
    link.vlan.map_or(0, |vlan| vlan + 1)
}

/// Adds the speakers of VPNs. Each VLAN of a customer port has a CE router with a BGP session for each family, and with BFD over IPv4 if the port has it.
/// Each core port has a PE router behind it. Tests add the other protocols of core ports.
fn add_edges(config: &mut Config, ports: &[PortConfig]) {
    let vrfs = label_edge::vrfs(ports);
    for (site, vrf) in (0..).zip(&vrfs) {
        let port = &mut config.ports[vrf.port];
        let tags = Tags::dot1q(vrf.vid).expect("a suite has VLANs that can be");
        let name = format!("{}.{}", ports[vrf.port].name, vrf.vid);
        let mut ce = DeviceConfig { tags, ..DeviceConfig::new(&name, port.mac()) };
        let id = Ipv4Addr::from_bits(CE_ROUTER_IDS + site);
        for link in vrf.links() {
            ce.set_address(link.ce, link.prefix_len, link.local);
            ce.add_bgp([PeerConfig::new(link.ce, link.local, vrf.ce_as, PROVIDER_AS.into(), id)]);
        }
        if vrf.bfd {
            ce.protocols.push(ProtocolConfig::Bfd(vec![bfd::SessionConfig::new(vrf.local.into())]));
        }
        port.devices.push(ce);
    }
    for port in label_edge::core_ports(ports) {
        let (pe, dut) = (label_edge::pe_router(port), label_edge::DUT_LOOPBACK);
        let device = &mut config.ports[port].devices[0];
        // The core needs IPv4 even if a test sends no IPv4 frames.
        address(device, ports[port].ipv4.iter());
        device.also.push((pe.into(), 1));
        if !vrfs.is_empty() {
            let asn = u32::from(PROVIDER_AS);
            let peer = PeerConfig::new(pe.into(), dut.into(), asn, asn, pe);
            let ipv6 = vrfs.iter().any(|vrf| vrf.ipv6.is_some()).then_some(AfiSafi::VPNV6);
            let families = std::iter::once(AfiSafi::VPNV4).chain(ipv6).collect();
            device.add_bgp([PeerConfig { families, ..peer }]);
        }
    }
}

/// Hosts of a loop without a DUT: each port faces the other port of its pair, so the number of ports must be even.
pub fn joined_in_pairs(ports: &[PortConfig], seed: u64) -> Config {
    joined_in_pairs_of(ports, &[], seed)
}

/// As [`joined_in_pairs`], with addresses of `families`.
pub fn joined_in_pairs_of(ports: &[PortConfig], families: &[Family], seed: u64) -> Config {
    let mut config = hosts(ports, families, seed);
    let macs: Vec<MacAddr> = config.ports.iter().map(drophammer_rig::PortConfig::mac).collect();
    config.ports.iter_mut().enumerate().for_each(|(i, port)| port.dut = Some(macs[i ^ 1]));
    config
}

/// BGP identifiers of CE routers, from the block of shared addresses.
const CE_ROUTER_IDS: u32 = 0x647e_0001;

/// BGP identifier of router `index` of a port: from the block of shared addresses (RFC 6598), so no interface has it.
fn router_id(port: PortIndex, index: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x6440_0001 + ((port as u32) << 16) + index)
}

/// One side of a session: the router has `address`, the DUT has `dut`.
pub(crate) fn peer(address: IpAddr, dut: IpAddr, bgp: &PortBgp, router_id: Ipv4Addr) -> PeerConfig {
    let peer = PeerConfig::new(address, dut, bgp.asn, bgp.dut_as, router_id);
    let family = if address.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 };
    let families = vec![bgp.routes.afi_safi(family)];
    PeerConfig { families, hold: bgp.hold, protection: (&bgp.protection).into(), ..peer }
}
