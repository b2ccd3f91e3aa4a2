//! An emulated device, as the DUT sees it on one of its links. It has a MAC address, VLAN tags, IP addresses, a
//! gateway, TCP, and a list of protocols.
//!
//! A device takes and returns whole frames without FCS. It parses Ethernet, tags, IP and UDP, and passes the payload to
//! the protocols that match. Arbitrary bytes never cause a panic; the device counts malformed frames. [`Devices`]
//! contains the devices of one port.

mod addresses;
mod devices;
mod dispatch;
mod fragments;
pub mod neighbours;
pub(crate) mod output;
mod registry;
pub(crate) mod resolution;
pub mod tags;
#[cfg(test)]
mod tests;

pub use addresses::{Address, Addresses, MOST as MOST_ADDRESSES};
pub use devices::{DeviceId, Devices};
pub use output::Oddities;
pub use registry::Collision;
pub use resolution::REFRESH;
pub use tags::{Tag, Tags};

use crate::protocol::{Command, Match, Output, Protocol, ProtocolConfig, Refused};
use crate::tcp::{ConnectionId, TcpConfig, TcpStack};
use drophammer_model::Instant;
use drophammer_model::trial::Family;
use drophammer_wire::MacAddr;
use output::Link;
use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Memory for the buffers of the TCP connections of one device, or of many devices together, in bytes.
pub const TCP_MEMORY: usize = 256 << 20;

/// Configuration of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Name of the device in messages.
    pub name: String,
    /// Ethernet address.
    pub mac: MacAddr,
    /// VLAN tags of its frames.
    pub tags: Tags,
    /// IPv4, if used.
    pub ipv4: Option<Address<Ipv4Addr>>,
    /// IPv6, if used.
    pub ipv6: Option<Address<Ipv6Addr>>,
    /// Seed of its random choices: identifiers, sequence numbers, ports.
    pub seed: u64,
    /// Configuration of its TCP.
    pub tcp: TcpConfig,
    /// Bytes for the buffers of its BGP sessions. One of many devices must have its part of [`TCP_MEMORY`] only: sessions that all come
    /// back at once need new buffers at once.
    pub tcp_memory: usize,
}

impl DeviceConfig {
    /// A device without addresses and tags on a link of 1500 bytes.
    pub fn new(name: impl Into<String>, mac: MacAddr, seed: u64) -> DeviceConfig {
        DeviceConfig {
            name: name.into(),
            mac,
            tags: Tags::NONE,
            ipv4: None,
            ipv6: None,
            seed,
            // A peer in the same kernel may leave checksums for its interface to complete. Ethernet has its own
            // checksum.
            tcp: TcpConfig { verify_checksums: false, ..TcpConfig::new(1500, seed) },
            tcp_memory: TCP_MEMORY,
        }
    }
}

/// Callback for sent frames.
pub type Out<'a> = &'a mut dyn FnMut(&[u8]);

/// A protocol that is bound to a device.
struct Bound {
    protocol: Box<dyn Protocol>,
    matches: Vec<Match>,
}

/// An emulated device.
pub struct Device {
    config: DeviceConfig,
    link: Link,
    tcp: TcpStack,
    protocols: Vec<Bound>,
    /// Reused memory.
    ready: Vec<ConnectionId>,
}

impl Device {
    /// A device with the standard protocols (ARP, Neighbor Discovery, ping, banner). It starts to resolve its gateways
    /// at the first [`Device::poll`].
    pub fn new(config: DeviceConfig) -> Device {
        let mut device = Device {
            link: Link {
                mac: config.mac,
                tags: config.tags,
                addresses: Addresses::new(config.mac, config.ipv4, config.ipv6),
                neighbours: Default::default(),
                oddities: Oddities::default(),
                fragments: Default::default(),
                scratch: Vec::with_capacity(2048),
            },
            tcp: TcpStack::new(config.tcp),
            protocols: Vec::new(),
            ready: Vec::new(),
            config,
        };
        for standard in ProtocolConfig::STANDARD {
            device.bind(standard.create(&device.config).expect("a standard protocol needs no configuration"));
        }
        device
    }

    /// Its configuration.
    pub fn config(&self) -> &DeviceConfig {
        &self.config
    }

    /// Its Ethernet address.
    pub fn mac(&self) -> MacAddr {
        self.link.mac
    }

    /// Its addresses.
    pub fn addresses(&self) -> &Addresses {
        &self.link.addresses
    }

    /// Adds `count` addresses starting with `first`: the device answers requests, solicitations and pings for them as
    /// it does for its own address. At most [`MOST_ADDRESSES`] at a time; false if the count is 0 or too large, or the
    /// range exceeds the address space. The addresses have an effect only if the device uses their family. If the
    /// gateway's address is among them, it still belongs to the gateway.
    pub fn add_addresses(&mut self, first: IpAddr, count: u32) -> bool {
        self.link.addresses.add(first, count)
    }

    /// Adds a protocol, or replaces the protocol with the same name. If one is replaced, the device's TCP restarts
    /// without its connections.
    pub fn add_protocol(&mut self, protocol: Box<dyn Protocol>) {
        let before = self.protocols.len();
        self.protocols.retain(|bound| bound.protocol.name() != protocol.name());
        if self.protocols.len() < before {
            self.tcp = TcpStack::new(self.config.tcp);
            self.protocols.iter_mut().for_each(|bound| bound.protocol.attach(&mut self.tcp));
        }
        self.bind(protocol);
    }

    fn bind(&mut self, mut protocol: Box<dyn Protocol>) {
        protocol.attach(&mut self.tcp);
        let matches = protocol.matches().to_vec();
        self.protocols.push(Bound { protocol, matches });
    }

    /// The protocols of the device.
    pub fn protocols(&self) -> impl Iterator<Item = &dyn Protocol> {
        self.protocols.iter().map(|bound| &*bound.protocol)
    }

    /// The protocol of this type.
    pub fn protocol<P: Protocol>(&self) -> Option<&P> {
        self.protocols.iter().find_map(|bound| (&*bound.protocol as &dyn Any).downcast_ref())
    }

    /// Like [`Device::protocol`], but mutable.
    pub fn protocol_mut<P: Protocol>(&mut self) -> Option<&mut P> {
        self.protocols.iter_mut().find_map(|bound| (&mut *bound.protocol as &mut dyn Any).downcast_mut())
    }

    /// Passes a command to the protocol with this name.
    ///
    /// # Errors
    /// If the device has no such protocol, or the protocol refuses the command.
    pub fn command(&mut self, now: Instant, protocol: &str, command: &Command) -> Result<(), Refused> {
        match self.protocols.iter_mut().find(|bound| bound.protocol.name() == protocol) {
            Some(bound) => bound.protocol.command(now, command),
            None => {
                let known: Vec<_> = self.protocols().map(Protocol::name).collect();
                let reason = format!("{} has no protocol `{protocol}`, only {}", self.config.name, known.join(", "));
                Err(Refused::new("device", reason))
            }
        }
    }

    /// Sends everything to this station, without address resolution.
    pub fn fix_gateway(&mut self, mac: MacAddr) {
        self.link.neighbours.fix(mac);
    }

    fn gateway(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::Ipv4 => self.config.ipv4.map(|a| a.gateway.into()),
            Family::Ipv6 => self.config.ipv6.map(|a| a.gateway.into()),
        }
    }

    /// Last known Ethernet address of the gateway; `None` until the gateway has answered once, or if the device does
    /// not use this family.
    pub fn gateway_mac(&self, family: Family) -> Option<MacAddr> {
        self.gateway(family).and_then(|gateway| self.link.neighbours.mac(gateway))
    }

    /// The time when the gateway last confirmed its address.
    pub fn gateway_confirmed(&self, family: Family) -> Option<Instant> {
        self.gateway(family).and_then(|gateway| self.link.neighbours.get(gateway)).map(|n| n.confirmed)
    }

    /// True if the gateway of every family in use is resolved.
    pub fn is_ready(&self) -> bool {
        [Family::Ipv4, Family::Ipv6]
            .into_iter()
            .filter_map(|family| self.gateway(family))
            .all(|gateway| self.link.neighbours.mac(gateway).is_some())
    }

    /// Counts of frames that the device could not handle.
    pub fn oddities(&self) -> Oddities {
        self.link.oddities
    }

    /// TCP of the device.
    pub fn tcp(&self) -> &TcpStack {
        &self.tcp
    }

    /// The time when [`Device::poll`] must be called again; `Instant(0)` for now. `None` if only a received frame or a
    /// command can cause work.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.link.neighbours.has_wanted() || self.tcp.has_news() {
            return Some(Instant(0));
        }
        let protocols = self.protocols.iter().filter_map(|bound| bound.protocol.next_deadline()).min();
        [protocols, self.tcp.next_deadline()].into_iter().flatten().min()
    }

    /// Does due work and sends waiting packets, with at most about `budget` bytes of bulk data per session.
    pub fn poll(&mut self, now: Instant, budget: usize, frames: Out<'_>) {
        // A close or a first segment is sent immediately; more data waits for the next call.
        for round in 0..2 {
            self.tcp_news(now, frames, true);
            let Device { link, tcp, protocols, .. } = self;
            let mut out = Output { tcp, link, frames };
            for bound in protocols.iter_mut() {
                if round == 0 || bound.protocol.next_deadline().is_some_and(|at| at <= now) {
                    bound.protocol.poll(now, budget, &mut out);
                }
            }
            out.send_tcp(now);
            self.neighbour_news(now, frames);
            let busy = |bound: &Bound| bound.protocol.next_deadline().is_some_and(|at| at <= now);
            if !self.tcp.has_news() && !self.protocols.iter().any(busy) {
                break;
            }
        }
    }
}
