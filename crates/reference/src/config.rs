//! Configuration of a reference device.

use crate::classes::Class;
use crate::faults::Faults;
use crate::igp::CoreConfig;
use crate::interfaces::SubInterface;
use crate::labels::LabelRoute;
use crate::rsvp::RsvpConfig;
use drophammer_model::Bandwidth;
use drophammer_model::filter::FilterRule;
use drophammer_model::role::{Policy, PushedRoute, Tunnel};
use drophammer_model::routes::VpnId;
use drophammer_model::suite::BgpProtection;
use drophammer_wire::MacAddr;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// A reference device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Its ports.
    pub ports: Vec<PortConfig>,
    /// VLAN sub-interfaces of the ports. Interface numbers count all ports first, then all sub-interfaces, each in
    /// their order.
    pub sub_interfaces: Vec<SubInterface>,
    /// A loopback address: the device answers pings to it on every port, and has its ends of the sessions with PE
    /// routers there.
    pub loopback: Option<Ipv4Addr>,
    /// VRFs (RFC 4364), each with one sub-interface. A VRF carries IPv4 alone.
    pub vrfs: Vec<Vrf>,
    /// Static routes in addition to the connected ones.
    pub routes: Vec<Route>,
    /// Static label entries.
    pub labels: Vec<LabelRoute>,
    /// Routes on which the device sends packets with labels.
    pub pushed: Vec<PushedRoute>,
    /// If true, labels have their own TTL, 255 when pushed (pipe model, RFC 3443); otherwise they copy the packet's TTL
    /// (uniform model).
    pub pipe: bool,
    /// GRE tunnels, each from an address of the device.
    pub tunnels: Vec<Tunnel>,
    /// Policies that replace the routes for IPv4 packets from an interface or a tunnel; at most one for each interface
    /// or tunnel.
    pub policies: Vec<Policy>,
    /// Frames per second that the device serves, 1 to 10^9; `None` for no limit and no service time.
    pub capacity_pps: Option<u64>,
    /// Maximum number of frames that are waiting or in service, at least 1. Without a capacity nothing ever waits.
    pub buffer: usize,
    /// Classes with separate queues by DSCP, instead of `buffer`; an empty list means one queue. Classes need a
    /// capacity, and do not support a sag.
    pub classes: Vec<Class>,
    /// Delay between the end of service and the line.
    pub delay: Duration,
    /// Width of an additional uniform delay, drawn per frame.
    pub jitter: Duration,
    /// Seed of all random choices.
    pub seed: u64,
    /// Time after its last answer when the device resolves a neighbour again; `None` for never.
    pub neighbour_lifetime: Option<Duration>,
    /// Maximum number of frames that wait for a neighbour to answer; more are dropped.
    pub pending_per_neighbour: usize,
    /// Maximum number of ICMP errors in each second of the clock, 0 for none.
    pub icmp_errors_per_second: u32,
    /// Maximum number of routes in the forwarding table (FIB), not counting the device's own addresses. Routes beyond
    /// the limit are accepted, but packets to them are silently dropped; `None` for no limit.
    pub fib_limit: Option<usize>,
    /// The same limit for IPv4 routes alone. BGP routes count too.
    pub fib_limit_ipv4: Option<usize>,
    /// The same limit for IPv6 routes alone.
    pub fib_limit_ipv6: Option<usize>,
    /// Rules for transit frames on ingress of all ports; the first rule that matches decides.
    /// [`crate::Router::set_filter`] replaces them.
    pub filter: Vec<FilterRule>,
    /// Additional service time of a frame for each rule that is examined. Not supported with classes.
    pub filter_time_per_rule: Duration,
    /// Additional service time of an IPv6 packet with extension headers. Not supported with classes.
    pub extension_time: Duration,
    /// BGP configuration, if the device speaks BGP.
    pub bgp: Option<BgpConfig>,
    /// OSPF, LDP and BFD, if the device has core links.
    pub core: Option<CoreConfig>,
    /// RSVP-TE, if the device is a transit router of LSPs.
    pub rsvp: Option<RsvpConfig>,
    /// True if an SSH server sends its banner to clients that connect to port 22 of its addresses.
    pub ssh: bool,
    /// Configured faults.
    pub faults: Faults,
}

impl Default for Config {
    /// No ports, no limit, no delay, no fault; neighbours are kept as in Linux, and one hundred ICMP errors per second
    /// are allowed.
    fn default() -> Config {
        Config {
            ports: Vec::new(),
            sub_interfaces: Vec::new(),
            loopback: None,
            vrfs: Vec::new(),
            routes: Vec::new(),
            labels: Vec::new(),
            pushed: Vec::new(),
            pipe: false,
            tunnels: Vec::new(),
            policies: Vec::new(),
            capacity_pps: None,
            buffer: 1024,
            classes: Vec::new(),
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            seed: 0,
            neighbour_lifetime: Some(Duration::from_secs(60)),
            pending_per_neighbour: 3,
            icmp_errors_per_second: 100,
            fib_limit: None,
            fib_limit_ipv4: None,
            fib_limit_ipv6: None,
            filter: Vec::new(),
            filter_time_per_rule: Duration::ZERO,
            extension_time: Duration::ZERO,
            bgp: None,
            core: None,
            rsvp: None,
            ssh: false,
            faults: Faults::default(),
        }
    }
}

/// BGP-4 configuration of a device. Its sessions use the addresses of its ports (RFC 4271).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BgpConfig {
    /// AS number of the device.
    pub asn: u32,
    /// BGP identifier.
    pub router_id: Ipv4Addr,
    /// Its neighbours. The device waits for them to connect, and advertises the routes of each neighbour to all others.
    /// It advertises routes from one internal neighbour to another only if one of the two is a client.
    pub peers: Vec<BgpPeer>,
    /// PE routers: internal neighbours for VPN-IPv4 routes, and VPN-IPv6 routes if a VRF has an IPv6 address. Each session is
    /// between its address and [`Config::loopback`]. The device waits for them to connect, and is the next hop of all
    /// routes that it advertises to them.
    pub pe_peers: Vec<Ipv4Addr>,
    /// If true, external routes are advertised to internal neighbours with the device as next hop (RFC 4271 section
    /// 5.1.3).
    pub next_hop_self: bool,
    /// Proposed hold time, in whole seconds.
    pub hold_time: Duration,
    /// Time from the reception of a route to its re-advertisement.
    pub propagation_delay: Duration,
    /// Time from the change of a best path until the forwarding table changes.
    pub fib_delay: Duration,
    /// Shortest time between two changes of the forwarding table.
    pub fib_time_per_route: Duration,
    /// Limit on the number of paths from all peers together; `None` for no limit.
    pub rib_limit: Option<RibLimit>,
    /// How long its TCP delays an acknowledgement to wait for more data, as many implementations do; zero for no delay.
    pub ack_delay: Duration,
    /// Protection of all sessions. It is not serialized, so that no file contains the key.
    #[serde(skip)]
    pub protection: BgpProtection,
}

impl Default for BgpConfig {
    /// AS 65000, no neighbours, no delays, no limit, a hold time of 90 s.
    fn default() -> BgpConfig {
        BgpConfig {
            asn: 65_000,
            router_id: Ipv4Addr::new(192, 0, 2, 1),
            peers: Vec::new(),
            pe_peers: Vec::new(),
            next_hop_self: false,
            hold_time: Duration::from_secs(90),
            propagation_delay: Duration::ZERO,
            fib_delay: Duration::ZERO,
            fib_time_per_route: Duration::ZERO,
            rib_limit: None,
            ack_delay: Duration::ZERO,
            protection: BgpProtection::default(),
        }
    }
}

/// A BGP neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BgpPeer {
    /// Port of the neighbour, or its interface number (see [`Config::sub_interfaces`]). On the sub-interface of a VRF,
    /// the neighbour is the CE router of this VRF.
    pub port: usize,
    /// Its address on that link. A session over IPv4 carries IPv4 routes, one over IPv6 carries IPv6 routes.
    pub address: IpAddr,
    /// AS number of the neighbour.
    pub asn: u32,
    /// True if the device opens the connection instead of waiting for the neighbour.
    #[serde(default)]
    pub connect: bool,
    /// True if the device reflects routes for the neighbour (RFC 4456); only for internal neighbours.
    #[serde(default)]
    pub client: bool,
}

/// A VRF. The device assigns the label [`crate::FIRST_VRF_LABEL`] to the routes of the first VRF, and the following
/// labels to the routes of the other VRFs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vrf {
    /// Its sub-interfaces, by interface number (see [`Config::sub_interfaces`]): one for each site.
    pub interfaces: Vec<usize>,
    /// Route distinguisher of its routes; no other VRF has it.
    pub distinguisher: VpnId,
    /// The route target that it exports and imports; no other VRF has it.
    pub target: VpnId,
    /// Neighbours with which the device has a BFD session (RFC 5881), in the passive role, each with its sub-interface, which is one of the VRF's.
    /// When a session goes down, so do the BGP sessions on the sub-interface, over IPv6 too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bfd: Vec<(usize, Ipv4Addr)>,
}

/// A limit on the memory for routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RibLimit {
    /// Maximum number of paths.
    pub paths: usize,
    /// What happens to paths beyond the limit.
    pub beyond: Beyond,
}

/// What a device does with a path for which it has no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Beyond {
    /// Drop it silently.
    #[default]
    Ignore,
    /// End the session on which it was announced with a NOTIFICATION: Cease, Maximum Number of Prefixes Reached (RFC
    /// 4486).
    Reset,
}

/// One port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortConfig {
    /// Ethernet address.
    #[serde(with = "mac")]
    pub mac: MacAddr,
    /// IPv4 address and length of the connected prefix.
    pub ipv4: Option<(Ipv4Addr, u8)>,
    /// IPv6 address and length of the connected prefix; the port always has a link-local address too.
    pub ipv6: Option<(Ipv6Addr, u8)>,
    /// Largest IP packet that leaves through this port, in bytes.
    pub mtu: u32,
    /// Speed of the output line; `None` if frames take no time on the line.
    pub speed: Option<Bandwidth>,
    /// Maximum number of frames that wait for the line or are on it. Without a speed nothing waits.
    pub egress_buffer: usize,
}

impl PortConfig {
    /// A port without addresses, MTU 1500, no line speed.
    pub fn new(mac: MacAddr) -> PortConfig {
        PortConfig { mac, ipv4: None, ipv6: None, mtu: 1500, speed: None, egress_buffer: 1024 }
    }
}

/// A static route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Prefix; bits beyond its length are ignored.
    pub prefix: IpAddr,
    /// Length of the prefix.
    pub prefix_len: u8,
    /// Output port, or interface number (see [`Config::sub_interfaces`]).
    pub port: usize,
    /// Neighbour on that link, of the same family as the prefix.
    pub next_hop: IpAddr,
}

/// The reason why a configuration is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// A route, misroute, sub-interface, BGP peer or unsolicited frame refers to a port that does not exist.
    NoSuchPort(usize),
    /// A prefix length that exceeds the maximum of its family.
    PrefixLength(u8),
    /// The filter is invalid, for this reason.
    Filter(String),
    /// The classes of service are invalid, for this reason.
    Classes(String),
    /// Prefix and next hop of a route belong to different families.
    Family(Route),
    /// A BGP peer is not on a link of its port, is the device itself, or is configured twice.
    Peer(IpAddr),
    /// A sub-interface cannot have these tags.
    Tags {
        /// Port of the sub-interface.
        port: usize,
        /// The reason.
        why: &'static str,
    },
    /// A tunnel from this address is not possible.
    Tunnel(Ipv4Addr, &'static str),
    /// An entry for this label is not possible.
    Label(u32, &'static str),
    /// A core link that its interface cannot be.
    CoreLink(usize),
    /// A VRF, by its index, is not possible.
    Vrf(usize, &'static str),
    /// A capacity outside 1 to 10^9, a line of 0 bit/s or above 10^15, or a buffer of 0.
    Limit(&'static str),
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConfigError::NoSuchPort(port) => write!(f, "the reference device has no port {port}"),
            ConfigError::PrefixLength(len) => write!(f, "no prefix of this family has length {len}"),
            ConfigError::Filter(why) | ConfigError::Classes(why) => f.write_str(why),
            ConfigError::Family(r) => {
                write!(f, "{}/{} cannot lead to {}: different families", r.prefix, r.prefix_len, r.next_hop)
            }
            ConfigError::Peer(address) => write!(f, "{address} cannot be a BGP peer on its port"),
            ConfigError::Tags { port, why } => write!(f, "tags of a sub-interface of port {port}: {why}"),
            ConfigError::Tunnel(local, why) => write!(f, "the tunnel from {local}: {why}"),
            ConfigError::Label(label, why) => write!(f, "label {label}: {why}"),
            ConfigError::CoreLink(port) => {
                write!(f, "the core link of port {port} does not have the address of the port, or is there twice")
            }
            ConfigError::Vrf(vrf, why) => write!(f, "VRF {vrf}: {why}"),
            ConfigError::Limit(what) => write!(f, "out of range: {what}"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Checks the limits of a configuration that no constructor checks.
pub(crate) fn check(config: &Config) -> Result<(), ConfigError> {
    if config.capacity_pps.is_some_and(|c| !(1..=1_000_000_000).contains(&c)) {
        return Err(ConfigError::Limit("capacity_pps"));
    }
    if config.buffer == 0 {
        return Err(ConfigError::Limit("buffer"));
    }
    if !config.filter_time_per_rule.is_zero() && !config.classes.is_empty() {
        return Err(ConfigError::Limit("filter_time_per_rule, which cannot be combined with classes"));
    }
    if !config.extension_time.is_zero() && !config.classes.is_empty() {
        return Err(ConfigError::Limit("extension_time, which cannot be combined with classes"));
    }
    if config.faults.sag.is_some() && !config.classes.is_empty() {
        return Err(ConfigError::Limit("sag, which cannot be combined with classes"));
    }
    for port in &config.ports {
        if port.speed.is_some_and(|s| !(1..=1_000_000_000_000_000).contains(&s.0)) {
            return Err(ConfigError::Limit("speed"));
        }
        if port.speed.is_some() && port.egress_buffer == 0 {
            return Err(ConfigError::Limit("egress_buffer"));
        }
    }
    check_faults(&config.faults, config.ports.len())
}

pub(crate) fn check_faults(faults: &Faults, ports: usize) -> Result<(), ConfigError> {
    let named = [faults.misroute.map(|m| m.to_port), faults.own_frames.map(|o| o.port)];
    if let Some(port) = named.into_iter().flatten().find(|p| *p >= ports) {
        return Err(ConfigError::NoSuchPort(port));
    }
    if faults.sag.is_some_and(|s| !(1..=1_000_000_000).contains(&s.capacity_pps)) {
        return Err(ConfigError::Limit("capacity_pps of the sag"));
    }
    Ok(())
}

/// MAC addresses in the form `02:00:00:00:00:01`.
pub(crate) mod mac {
    use drophammer_wire::MacAddr;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(mac: &MacAddr, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(mac)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<MacAddr, D::Error> {
        let text = String::deserialize(from)?;
        let mut bytes = text.split(':').map(|b| u8::from_str_radix(b, 16).ok().filter(|_| b.len() == 2));
        let mac: Option<Vec<u8>> = bytes.by_ref().collect();
        let mac = mac.and_then(|m| <[u8; 6]>::try_from(m).ok());
        mac.map(MacAddr).ok_or_else(|| D::Error::custom(format!("`{text}` is not a MAC address")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_the_same_after_json() {
        let mut port = PortConfig::new(MacAddr([2, 0, 0xd0, 0, 0, 0xff]));
        port.ipv6 = Some(("2001:2::1".parse().unwrap(), 64));
        port.speed = Some(Bandwidth(1_000_000_000));
        let next_hop = "2001:2::2".parse().unwrap();
        let route = Route { prefix: "2001:2:0:8000::".parse().unwrap(), prefix_len: 49, port: 0, next_hop };
        let config = Config { ports: vec![port], routes: vec![route], capacity_pps: Some(7), ..Config::default() };
        let text = serde_json::to_string(&config).unwrap();
        assert!(text.contains("02:00:d0:00:00:ff"), "{text}");
        assert_eq!(serde_json::from_str::<Config>(&text).unwrap(), config);
        // Missing fields get their defaults; misspelt fields are errors.
        assert_eq!(serde_json::from_str::<Config>("{}").unwrap(), Config::default());
        assert!(serde_json::from_str::<Config>("{\"bufer\": 3}").is_err());
        for bad in ["02:00", "02:00:d0:00:00:fg", "2:0:d0:0:0:ff", "02:00:d0:00:00:ff:00"] {
            assert!(serde_json::from_str::<Config>(&text.replace("02:00:d0:00:00:ff", bad)).is_err(), "{bad}");
        }
    }
}
