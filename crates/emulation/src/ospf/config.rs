//! Configuration of an emulated OSPF router and of the topology behind it.

use super::NAME;
use crate::device::DeviceConfig;
use crate::protocol::Refused;
use drophammer_wire::ospf::body::{LINK_LEN, LS_INFINITY};
use drophammer_wire::ospf::{Authentication, lsa, packet};
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use std::ops::Range;

/// Type of the network (RFC 2328 section 1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkType {
    /// Two routers.
    PointToPoint,
    /// Any number of routers, which elect a Designated Router.
    Broadcast,
}

/// How packets are authenticated (RFC 2328 appendix D).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Secret {
    /// Not at all.
    None,
    /// A password of up to 8 bytes.
    Simple(String),
    /// A key of up to 16 bytes for keyed MD5.
    Md5 {
        /// Number of the key.
        key_id: u8,
        /// The key.
        key: String,
    },
}

/// How emulated routers are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Shape {
    /// A grid; each router is connected to its neighbours left, right, above and below.
    Grid {
        /// Number of routers in a row; not 0.
        columns: u32,
    },
    /// A random tree with additional links.
    Random {
        /// Number of links in addition to the tree.
        extra_links: u32,
        /// Seed of the choice.
        seed: u64,
    },
}

/// Emulated routers in the area of the device. The device has a point-to-point link to router 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Number of routers.
    pub routers: u32,
    /// How they are connected.
    pub shape: Shape,
    /// Router ID of router 0; the others follow.
    pub first_router_id: Ipv4Addr,
    /// Cost of the links between them.
    pub link_cost: u16,
    /// Number of stub networks of each router.
    pub stubs: u16,
    /// The first stub network of router 0; the others follow.
    pub first_stub: Ipv4Addr,
    /// Length of the stub networks' prefixes.
    pub stub_length: u8,
    /// Cost of the stub networks.
    pub stub_cost: u16,
}

impl Topology {
    /// One router whose only network is its own address, such as a PE router behind a P router.
    pub fn loopback(router_id: Ipv4Addr, link_cost: u16) -> Topology {
        Topology {
            routers: 1,
            shape: Shape::Grid { columns: 1 },
            first_router_id: router_id,
            link_cost,
            stubs: 1,
            first_stub: router_id,
            stub_length: 32,
            stub_cost: 0,
        }
    }
}

/// Consecutive networks of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Networks {
    /// The first network.
    pub first: Ipv4Addr,
    /// Length of the prefixes, 1 to 32.
    pub length: u8,
    /// Number of networks.
    pub count: u32,
    /// Metric, 24 bits.
    pub metric: u32,
}

/// External routes, one AS-external-LSA each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Externals {
    /// The networks.
    pub networks: Networks,
    /// Metric of type 2.
    pub type_2: bool,
    /// External route tag.
    pub tag: u32,
    /// Forwarding address; 0.0.0.0 for the device.
    pub forwarding: Ipv4Addr,
}

/// A part of what the device advertises, by index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Router-LSAs of the emulated routers.
    Routers(Range<u32>),
    /// Summary-LSAs.
    InterArea(Range<u32>),
    /// AS-external-LSAs.
    External(Range<u32>),
}

/// An OSPF router: the device with its interface, and the topology behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OspfConfig {
    /// Router ID; not 0.0.0.0.
    pub router_id: Ipv4Addr,
    /// Area of the interface.
    pub area: Ipv4Addr,
    /// True if the area takes no AS-external-LSAs.
    pub stub: bool,
    /// Type of the network.
    pub network: NetworkType,
    /// Priority in the election of the Designated Router; 0 for never.
    pub priority: u8,
    /// Cost of the interface.
    pub cost: u16,
    /// Seconds between Hellos (HelloInterval).
    pub hello_interval: u16,
    /// Seconds without a Hello after which a neighbour is down (RouterDeadInterval).
    pub dead_interval: u32,
    /// Seconds between retransmissions (RxmtInterval).
    pub retransmit_interval: u16,
    /// Largest IP packet of the interface, in bytes.
    pub mtu: u16,
    /// True if neighbours may have a larger MTU.
    pub ignore_mtu: bool,
    /// Authentication.
    pub secret: Secret,
    /// Cryptographic sequence number at the beginning of the device's clock; it grows by one per second. Neighbours discard lower numbers than the last
    /// one for RouterDeadInterval (RFC 2328 appendix D.3): use a clock in seconds that does not restart with the program.
    #[serde(default)]
    pub first_sequence: u32,
    /// Emulated routers.
    pub topology: Option<Topology>,
    /// Networks of other areas, in Summary-LSAs of the device.
    pub inter_area: Option<Networks>,
    /// Routes outside the AS, in AS-external-LSAs of the device.
    pub external: Option<Externals>,
    /// True if topology, networks and routes are advertised from the start, without a command.
    pub advertise_at_start: bool,
    /// Time between two Link State Updates of a flood, in µs.
    pub update_gap: u32,
    /// Maximum number of LSAs from neighbours that are stored. Further LSAs are acknowledged and counted.
    pub most_learned: u32,
}

impl OspfConfig {
    /// A router on a broadcast network in the backbone, with the timers of RFC 2328 appendix C.3, and nothing behind it.
    pub fn new(router_id: Ipv4Addr) -> OspfConfig {
        OspfConfig {
            router_id,
            area: Ipv4Addr::UNSPECIFIED,
            stub: false,
            network: NetworkType::Broadcast,
            priority: 1,
            cost: 10,
            hello_interval: 10,
            dead_interval: 40,
            retransmit_interval: 5,
            mtu: 1500,
            ignore_mtu: false,
            secret: Secret::None,
            first_sequence: 0,
            topology: None,
            inter_area: None,
            external: None,
            advertise_at_start: true,
            update_gap: 1000,
            most_learned: 100_000,
        }
    }

    /// The authentication of its packets.
    pub(super) fn authentication(&self) -> Result<Authentication, Refused> {
        fn padded<const N: usize>(text: &str) -> Result<[u8; N], Refused> {
            let mut bytes = [0; N];
            match bytes.get_mut(..text.len()) {
                Some(front) => front.copy_from_slice(text.as_bytes()),
                None => return Err(Refused::new(NAME, format!("the secret has more than {N} bytes: shorten it"))),
            }
            Ok(bytes)
        }
        Ok(match &self.secret {
            Secret::None => Authentication::Null,
            Secret::Simple(password) => Authentication::Simple(padded(password)?),
            Secret::Md5 { key_id, key } => Authentication::Md5 { key_id: *key_id, key: padded(key)? },
        })
    }

    /// Maximum length of the body of a packet.
    pub(super) fn most_body(&self, authentication: &Authentication) -> usize {
        usize::from(self.mtu).saturating_sub(20 + packet::LEN + authentication.trailer_len())
    }

    /// Maximum number of links of a Router-LSA, so that the LSA fits into one packet.
    pub(super) fn most_links(&self, authentication: &Authentication) -> usize {
        (self.most_body(authentication).saturating_sub(4 + lsa::LEN + 4)) / LINK_LEN
    }

    /// Checks everything except the number of links.
    pub(super) fn check(&self, device: &DeviceConfig) -> Result<(), Refused> {
        let problem = |text: String| Err(Refused::new(NAME, text));
        if device.ipv4.is_none() {
            return problem("the device has no IPv4 address: give it one".into());
        }
        if self.router_id.is_unspecified() {
            return problem("the router ID is 0.0.0.0: give it another".into());
        }
        if self.hello_interval == 0 || self.dead_interval == 0 || self.retransmit_interval == 0 || self.mtu < 576 {
            return problem("intervals must be 1 s or more, the MTU 576 or more".into());
        }
        if self.stub && self.external.is_some() {
            return problem("a stub area has no external routes: remove them, or make the area a normal one".into());
        }
        if let Some(topology) = &self.topology {
            let first = topology.first_router_id.to_bits();
            let own = self.router_id.to_bits();
            let last = u64::from(first) + u64::from(topology.routers);
            if topology.routers == 0 || last > 1 << 32 || first == 0 || (u64::from(first)..last).contains(&own.into()) {
                return problem(format!(
                    "{} routers from {} on: there must be 1 or more, without 0.0.0.0 and the device's router ID",
                    topology.routers, topology.first_router_id
                ));
            }
            let stubs = topology.routers.checked_mul(topology.stubs.into());
            let networks = |count| Networks {
                first: topology.first_stub,
                length: topology.stub_length,
                count,
                metric: topology.stub_cost.into(),
            };
            match stubs {
                Some(0) => {}
                Some(count) => networks(count).check("stub networks")?,
                None => return problem("too many stub networks: use fewer".into()),
            }
            if matches!(topology.shape, Shape::Grid { columns: 0 }) {
                return problem("a row of a grid has 1 router or more".into());
            }
        }
        if let Some(networks) = &self.inter_area {
            networks.check("networks of other areas")?;
        }
        if let Some(external) = &self.external {
            external.networks.check("external routes")?;
        }
        Ok(())
    }
}

impl Networks {
    fn check(&self, what: &str) -> Result<(), Refused> {
        let Networks { first, length, count, metric } = *self;
        let problem = if !(1..=32).contains(&length) {
            "the length must be 1 to 32"
        } else if first.to_bits() & !mask(length).to_bits() != 0 {
            "the first one has bits set beyond its length"
        } else if u64::from(first.to_bits()) + (u64::from(count) << (32 - length)) > 1 << 32 {
            "they go beyond 255.255.255.255"
        } else if metric > LS_INFINITY {
            "the metric must be below 16777216"
        } else {
            return Ok(());
        };
        Err(Refused::new(NAME, format!("{count} {what} from {first}/{length} on: {problem}")))
    }

    /// The network with this number.
    pub(super) fn network(&self, index: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.first.to_bits() + (index << (32 - self.length)))
    }

    /// The number of the network; `None` if it is not one of them.
    pub(super) fn index_of(&self, network: Ipv4Addr) -> Option<u32> {
        let distance = network.to_bits().checked_sub(self.first.to_bits())?;
        let index = distance >> (32 - self.length);
        (index < self.count && index << (32 - self.length) == distance).then_some(index)
    }
}

/// The mask of a prefix length from 1 to 32.
pub(super) fn mask(length: u8) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0))
}
