//! Configuration of a rig: ports, the devices behind them, and the protocols on the devices, all with names.
//!
//! It is plain data that serde reads and writes, so one process can configure the rig of another one. Suites (`testbed/src/config.rs`), a BGP speaker
//! (`testbed/src/speaker.rs`) and `drophammer blast` build the same types. Flows are the other half: a `TrialSpec`, which serde reads and writes too. A rig
//! keeps its devices while flows come and go.

use drophammer_emulation::bgp::PeerConfig;
use drophammer_emulation::device::{Address, Device, DeviceId, Devices, TCP_MEMORY, Tags};
use drophammer_emulation::protocol::ProtocolConfig;
use drophammer_emulation::tcp::TcpConfig;
use drophammer_wire::MacAddr;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// All emulated devices of a rig.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Seed of all pseudo-random choices of the emulated devices.
    pub seed: u64,
    /// One entry per port, in order.
    pub ports: Vec<PortConfig>,
}

/// The emulated devices behind one port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortConfig {
    /// Name, in messages.
    pub name: String,
    /// MTU of the link in bytes.
    pub mtu: u32,
    /// The devices, at least one. Test frames leave from the MAC address of the first device and must arrive at it, with or
    /// without tags. A flow behind tags is refused if no device with these tags has that address.
    pub devices: Vec<DeviceConfig>,
    /// MAC address of the DUT at the other end of the link. If it is set, no device asks for it by ARP or Neighbor
    /// Discovery.
    pub dut: Option<MacAddr>,
}

/// An emulated device, and the protocols on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceConfig {
    /// Name, in messages.
    pub name: String,
    /// MAC address. Devices with different tags may have the same one.
    pub mac: MacAddr,
    /// VLAN tags of its frames.
    #[serde(default)]
    pub tags: Tags,
    /// IPv4 address and gateway.
    pub ipv4: Option<Address<Ipv4Addr>>,
    /// IPv6 address and gateway.
    pub ipv6: Option<Address<Ipv6Addr>>,
    /// Protocols in addition to the protocols of every device. Their sessions are not started.
    #[serde(default)]
    pub protocols: Vec<ProtocolConfig>,
    /// Ranges of additional addresses that the device answers for: first address and count.
    #[serde(default)]
    pub also: Vec<(IpAddr, u32)>,
}

impl Config {
    /// Checks that the configuration has `ports` ports, that no two ports and no two devices of a port have the same name, and that all
    /// devices can be distinguished.
    ///
    /// # Errors
    /// A message that names what does not fit.
    pub fn check(&self, ports: usize) -> Result<(), String> {
        if self.ports.len() != ports {
            return Err(format!("{} ports are configured, but there are {ports}", self.ports.len()));
        }
        let mut macs: Vec<(MacAddr, usize)> = Vec::new();
        if let Some(name) = repeated(self.ports.iter().map(|port| &port.name)) {
            return Err(format!("two ports are called `{name}`; give each port a name of its own"));
        }
        for (i, port) in self.ports.iter().enumerate() {
            if let Some(name) = repeated(port.devices.iter().map(|device| &device.name)) {
                return Err(format!(
                    "port {} has two devices called `{name}`; give each device a name of its own",
                    port.name
                ));
            }
            self.devices(i)?;
            macs.extend(port.devices.iter().map(|device| (device.mac, i)));
        }
        macs.sort_unstable();
        match macs.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1) {
            Some(pair) => {
                let (mac, [first, second]) = (pair[0].0, [pair[0].1, pair[1].1].map(|at| &self.ports[at].name));
                Err(format!("devices on ports {first} and {second} have the same MAC address, {mac}"))
            }
            None => Ok(()),
        }
    }
}

impl Config {
    /// The devices of port `index` and their numbers.
    ///
    /// # Errors
    /// See [`PortConfig::devices`].
    pub(crate) fn devices(&self, index: usize) -> Result<(Devices, Vec<DeviceId>), String> {
        let sessions: usize = self.ports.iter().flat_map(|port| &port.devices).map(|device| device.bgp().len()).sum();
        self.ports[index].devices(self.seed, index, TCP_MEMORY / sessions.max(1))
    }
}

impl PortConfig {
    /// A port with a device without IP address on a link with this MTU.
    pub fn new(name: &str, mac: MacAddr, mtu: u32) -> PortConfig {
        PortConfig { name: name.into(), mtu, devices: vec![DeviceConfig::new(name, mac)], dut: None }
    }

    /// MAC address of test frames.
    ///
    /// # Panics
    /// If the port has no device.
    pub fn mac(&self) -> MacAddr {
        self.devices[0].mac
    }

    /// The devices of port `index` and their numbers. Each BGP session has `memory` bytes for its buffers.
    ///
    /// # Errors
    /// If the port has no device, two devices cannot be distinguished, or addresses are invalid.
    fn devices(&self, seed: u64, index: usize, memory: usize) -> Result<(Devices, Vec<DeviceId>), String> {
        if self.devices.is_empty() {
            return Err(format!("port {} has no device; give it one, if necessary without addresses", self.name));
        }
        let mut devices = Devices::new();
        let mut ids = Vec::new();
        for (number, config) in (0..).zip(&self.devices) {
            let seed = seed.wrapping_add(index as u64).wrapping_add(number << 32);
            let name = &config.name;
            let device = Device::new(drophammer_emulation::DeviceConfig {
                tags: config.tags,
                ipv4: config.ipv4,
                ipv6: config.ipv6,
                tcp: TcpConfig { verify_checksums: false, ..TcpConfig::new(self.mtu as usize, seed) },
                tcp_memory: memory * config.bgp().len().max(1),
                ..drophammer_emulation::DeviceConfig::new(name.clone(), config.mac, seed)
            });
            let id = devices.add(device).map_err(|e| e.to_string())?;
            ids.push(id);
            self.dut.iter().for_each(|mac| devices.fix_gateway(id, *mac));
            for protocol in &config.protocols {
                let protocol = protocol.create(devices.get(id).config()).map_err(|e| format!("{name}: {e}"))?;
                devices.add_protocol(id, protocol);
            }
            for (first, count) in &config.also {
                if !devices.add_addresses(id, *first, *count).map_err(|e| e.to_string())? {
                    return Err(format!("{name} cannot have {count} addresses from {first} on"));
                }
            }
        }
        Ok((devices, ids))
    }
}

impl DeviceConfig {
    /// A device without IP address and tags.
    pub fn new(name: &str, mac: MacAddr) -> DeviceConfig {
        let (tags, protocols, also) = (Tags::NONE, Vec::new(), Vec::new());
        DeviceConfig { name: name.into(), mac, tags, ipv4: None, ipv6: None, protocols, also }
    }

    /// Gives the device an address and a gateway, which must be of one family.
    pub fn set_address(&mut self, address: IpAddr, prefix_len: u8, gateway: IpAddr) {
        match (address, gateway) {
            (IpAddr::V4(address), IpAddr::V4(gateway)) => {
                self.ipv4 = Some(Address { address, prefix_len, gateway });
            }
            (IpAddr::V6(address), IpAddr::V6(gateway)) => {
                self.ipv6 = Some(Address { address, prefix_len, gateway });
            }
            // Without a gateway of its family, nothing can be sent.
            _ => {}
        }
    }

    /// Adds BGP routers, which are numbered after those that the device already has.
    pub fn add_bgp(&mut self, routers: impl IntoIterator<Item = PeerConfig>) {
        let bgp = self.protocols.iter_mut().find_map(|protocol| match protocol {
            ProtocolConfig::Bgp(peers) => Some(peers),
            _ => None,
        });
        match bgp {
            Some(peers) => peers.extend(routers),
            None => self.protocols.push(ProtocolConfig::Bgp(routers.into_iter().collect())),
        }
    }

    /// Its BGP peers.
    pub fn bgp(&self) -> &[PeerConfig] {
        let bgp = self.protocols.iter().find_map(|protocol| match protocol {
            ProtocolConfig::Bgp(peers) => Some(peers.as_slice()),
            _ => None,
        });
        bgp.unwrap_or_default()
    }
}

/// The first name that appears a second time.
fn repeated<'a>(names: impl Iterator<Item = &'a String>) -> Option<&'a str> {
    let mut seen = HashSet::new();
    names.map(String::as_str).find(|name| !seen.insert(*name))
}

/// MAC address of the emulated devices on port `index`. It differs from the address of the interface, so the kernel drops test
/// frames instead of routing them.
pub fn host_mac(seed: u64, index: usize) -> MacAddr {
    MacAddr::local((seed & 0xff_ffff) << 16 | (index as u64 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_emulation::tcp::Protection;

    fn config() -> Config {
        let mut port = PortConfig::new("p1", host_mac(3, 0), 1_500);
        let device = &mut port.devices[0];
        device.set_address("198.18.0.2".parse().unwrap(), 24, "198.18.0.1".parse().unwrap());
        device.set_address("2001:2::2".parse().unwrap(), 64, "2001:2::1".parse().unwrap());
        device.also.push(("198.18.0.3".parse().unwrap(), 5));
        let own = Ipv4Addr::new(198, 18, 0, 2);
        let protection = Protection { md5_key: Some(b"key".to_vec()), ttl_security_hops: Some(1) };
        let peer = PeerConfig::new(own.into(), "198.18.0.1".parse().unwrap(), 4_200_000_000, 65_000, own);
        device.add_bgp([PeerConfig { protection, ..peer }]);
        let vlan = DeviceConfig { tags: Tags::dot1q(7).unwrap(), ..DeviceConfig::new("p1.7", port.mac()) };
        port.devices.push(vlan);
        let other = PortConfig { dut: Some(port.mac()), ..PortConfig::new("p2", host_mac(3, 1), 9_000) };
        Config { seed: u64::MAX, ports: vec![port, other] }
    }

    #[test]
    fn a_configuration_is_plain_data() {
        let text = serde_json::to_string(&config()).unwrap();
        assert_eq!(serde_json::from_str::<Config>(&text).unwrap(), config());
        let device = r#"{"name": "d", "mac": "02:00:00:00:00:01"}"#;
        let short: DeviceConfig = serde_json::from_str(device).unwrap();
        assert_eq!(short, DeviceConfig::new("d", MacAddr::local(1)));
        for (wrong, reason) in [
            (text.replace("\"mtu\"", "\"mut\""), "unknown field `mut`"),
            (text.replace("\"hold\"", "\"holds\""), "unknown field `holds`"),
            (text.replace("\"vid\":7", "\"vid\":4095"), "VLAN 4095 is out of range"),
            (text.replace("\"bgp\"", "\"rip\""), "unknown variant `rip`"),
        ] {
            let error = serde_json::from_str::<Config>(&wrong).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn the_sessions_of_all_ports_share_the_memory_for_buffers() {
        let own = Ipv4Addr::new(198, 18, 0, 2);
        let peer = PeerConfig::new(own.into(), "198.18.0.1".parse().unwrap(), 65_001, 65_000, own);
        let config = |ports: usize, devices: u16| {
            let port = |index| {
                let mut port = PortConfig::new(&format!("p{index}"), host_mac(3, index), 1_500);
                for vid in 1..=devices {
                    let tags = Tags::dot1q(vid).unwrap();
                    let mut device = DeviceConfig { tags, ..DeviceConfig::new(&format!("d{vid}"), port.mac()) };
                    device.set_address(own.into(), 24, "198.18.0.1".parse().unwrap());
                    device.add_bgp([peer.clone()]);
                    port.devices.push(device);
                }
                port
            };
            Config { seed: 3, ports: (0..ports).map(port).collect() }
        };
        // Bytes for all sessions: of the second device of each port, the first one with a session.
        let memory = |config: &Config| {
            let sessions: usize = config.ports.iter().map(|port| port.devices.len() - 1).sum();
            let (devices, ids) = config.devices(0).unwrap();
            devices.get(ids[1]).config().tcp_memory * sessions
        };
        for (ports, devices) in [(1, 1), (2, 47), (16, 94)] {
            let all = memory(&config(ports, devices));
            let sessions = ports * usize::from(devices);
            assert!((TCP_MEMORY - sessions..=TCP_MEMORY).contains(&all), "{ports} ports: {all} bytes");
        }
    }

    #[test]
    fn names_are_unique() {
        assert_eq!(config().check(2), Ok(()));
        let renamed = |change: fn(&mut Config)| {
            let mut config = config();
            change(&mut config);
            config.check(2).unwrap_err()
        };
        assert!(renamed(|config| config.ports[1].name = "p1".into()).contains("two ports are called `p1`"));
        let twice = renamed(|config| config.ports[0].devices[1].name = "p1".into());
        assert!(twice.contains("port p1 has two devices called `p1`"), "{twice}");
    }
}
