//! What a rig has behind its ports.

use drophammer_emulation::bgp::PeerConfig;
use drophammer_emulation::device::Address;
use drophammer_wire::MacAddr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Everything behind all ports.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Seed of all pseudo-random choices of the emulated devices.
    pub seed: u64,
    /// One entry per port, in order.
    pub ports: Vec<PortConfig>,
}

/// The host behind one port, and the routers at its addresses.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// MTU of the link in bytes.
    pub mtu: u32,
    /// MAC address of the host.
    pub mac: MacAddr,
    /// IPv4 address of the host and its gateway.
    pub ipv4: Option<Address<Ipv4Addr>>,
    /// IPv6 address of the host and its gateway.
    pub ipv6: Option<Address<Ipv6Addr>>,
    /// MAC address of the device at the other end of the link. When it is set, the host does not ask for it by ARP or
    /// Neighbor Discovery.
    pub device: Option<MacAddr>,
    /// BGP sessions of the emulated routers. They are not started.
    pub routers: Vec<PeerConfig>,
    /// Further addresses that the host answers for: the first address and their number.
    pub also: Vec<(IpAddr, u32)>,
}

impl Config {
    /// Does it fit `ports` ports?
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self, ports: usize) -> Result<(), String> {
        if self.ports.len() != ports {
            return Err(format!("{} ports are configured, and there are {ports}", self.ports.len()));
        }
        for (i, port) in self.ports.iter().enumerate() {
            if let Some(other) = self.ports[..i].iter().position(|other| other.mac == port.mac) {
                return Err(format!("the hosts on ports {other} and {i} have the same MAC address, {}", port.mac));
            }
        }
        Ok(())
    }
}

impl PortConfig {
    /// A host without IP address on a link with this MTU.
    pub fn new(mac: MacAddr, mtu: u32) -> PortConfig {
        PortConfig { mtu, mac, ipv4: None, ipv6: None, device: None, routers: Vec::new(), also: Vec::new() }
    }
}

/// MAC address of the emulated host on port `index`. It differs from the interface's own, so the kernel drops test frames at
/// once instead of routing them.
pub fn host_mac(seed: u64, index: usize) -> MacAddr {
    MacAddr::local((seed & 0xff_ffff) << 16 | (index as u64 + 1))
}
