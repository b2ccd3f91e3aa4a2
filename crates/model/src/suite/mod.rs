//! A validated suite: routers, ports, and the tests of a run. Crate `suite` reads it from YAML.

mod expectation;
mod mask;
mod params;

pub use expectation::{BaselineFigure, Cells, Expectation};
pub use mask::{BgpProtection, Mask, Secret};
pub use params::{ParamValue, Params};

use crate::capabilities::Capabilities;
use crate::environment::About;
use crate::label_edge::CoreProtocol;
use crate::medium::Medium;
use crate::quantity::{Bandwidth, FrameRate, QuantityError, parse_frame_rate, parse_percent};
use crate::record::Baseline;
use crate::routes::{Prefix, RouteKind, address, number};
use crate::size::PacketSize;
use crate::topology::Topology;
use crate::traffic::{Arriving, Header};
use crate::trial::{AddressRange, Family, FlowDuration};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

/// Seed if neither suite nor command line sets one.
pub const DEFAULT_SEED: u64 = 2544;
/// A usual size in network cards, whose rings have 512 to 4,096 entries.
pub const DEFAULT_INPUT_QUEUE: u32 = 2_048;
/// Longer queues would add more delay than they prevent loss.
pub const MAX_INPUT_QUEUE: u64 = 1 << 20;
/// A limit that no real suite reaches.
pub const MAX_ROUNDS: u64 = 1_000;

/// Default durations and repetitions of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Seconds per trial; every report is marked as not conformant.
    Quick,
    /// The durations of the RFCs (60 s and more).
    Conformant,
}

impl std::fmt::Display for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Profile::Quick => "quick",
            Profile::Conformant => "conformant",
        })
    }
}

/// A validated suite.
#[derive(Clone, Debug, PartialEq)]
pub struct Suite {
    /// Name: letters, digits, dashes.
    pub name: String,
    /// One line for the report.
    pub title: String,
    /// Facts for the reader of the report: operator, place, serial numbers.
    pub about: About,
    /// Profile.
    pub profile: Profile,
    /// Seed of every pseudo-random choice; reported.
    pub seed: u64,
    /// Number of times that each DUT is brought up and runs all tests.
    pub rounds: u32,
    /// Time limit of the run, which a suite file cannot set. Without it, repeated trials can double the time of the
    /// suite.
    pub time: Option<Duration>,
    /// Frames that may wait in front of a router in a namespace while the ring of its link is full; 0 for only the
    /// ring.
    pub input_queue: u32,
    /// Routers under test, at least one, names unique.
    pub duts: Vec<DutConfig>,
    /// Ports of the tester, at least two, names unique. Port i of the tester faces port i of the DUT.
    pub ports: Vec<PortConfig>,
    /// BGP between tester and DUT, if the suite uses it.
    pub bgp: Option<BgpConfig>,
    /// Flows that the suite itself defines, names unique.
    pub flows: Vec<FlowConfig>,
    /// Tests in order, at least one.
    pub tests: Vec<TestConfig>,
    /// The earlier run to which bounds refer. Reading a suite only sets its folder.
    pub baseline: Option<Baseline>,
}

impl Suite {
    /// True if a bound is a share of a figure of an earlier run.
    pub fn needs_baseline(&self) -> bool {
        self.tests.iter().flat_map(|test| &test.expect).any(|expected| expected.baseline.is_some())
    }
}

/// A flow that the suite defines: an entry of `flows:`.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowConfig {
    /// Name, used for its counters.
    pub name: String,
    /// The end where it leaves the tester.
    pub from: Endpoint,
    /// The end where it must arrive.
    pub to: Endpoint,
    /// Family of the outermost IP header.
    pub family: Family,
    /// Headers of its frames, including the tags of its sub-interface; empty for Ethernet, IP and UDP.
    pub headers: Vec<Header>,
    /// Source addresses of the outermost IP header.
    pub source: AddressRange,
    /// Destination addresses of the outermost IP header.
    pub destination: AddressRange,
    /// Sizes of its frames.
    pub size: PacketSize,
    /// Its rate.
    pub rate: FlowRate,
    /// First departure after the start of the trial.
    pub start: Duration,
    /// How long it sends.
    pub duration: FlowDuration,
    /// True if loss is counted per destination.
    pub per_destination: bool,
    /// The encapsulation that must arrive; absent: no tags, no labels, and tunnels as sent.
    pub arrives: Option<Arriving>,
}

/// An end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Index of the port.
    pub port: usize,
    /// Index of its VLAN sub-interface, if it is one.
    pub vlan: Option<usize>,
}

/// A router under test.
#[derive(Clone, Debug, PartialEq)]
pub struct DutConfig {
    /// Name: letters, digits, dashes, dots.
    pub name: String,
    /// Kind, an entry of the registry.
    pub kind: String,
    /// Parameters of the kind.
    pub params: Params,
    /// The system of routers; `None` for a single router.
    pub topology: Option<Topology>,
}

/// One port of the tester and the DUT's port that faces it.
#[derive(Clone, Debug, PartialEq)]
pub struct PortConfig {
    /// Name: `p1`.
    pub name: String,
    /// Line speed to which loads in per cent and theoretical rates refer (RFC 2544 Appendix B).
    pub speed: Bandwidth,
    /// Overhead of the line in addition to frames (layer 1).
    pub medium: Medium,
    /// MTU in bytes (IP packet).
    pub mtu: u32,
    /// IPv4 addressing, if IPv4 is used.
    pub ipv4: Option<Addressing>,
    /// IPv6 addressing, if IPv6 is used.
    pub ipv6: Option<Addressing>,
    /// BGP on this port, if the suite uses it.
    pub bgp: Option<PortBgp>,
    /// VLAN sub-interfaces of the DUT's port, each with separate networks behind it.
    pub vlans: Vec<VlanConfig>,
    /// Static label entries of the DUT for packets that leave through its port.
    pub labels: Vec<LabelConfig>,
    /// Networks behind this port's emulated router for which the DUT pushes labels.
    pub pushed: Vec<FecConfig>,
    /// Protocols with an emulated P router behind the port; empty if the port does not face the core.
    pub core: Vec<CoreProtocol>,
    /// Number of VRFs of the DUT's port, each on a VLAN with an emulated CE router.
    pub customers: u32,
    /// True if each of these CE routers has a BFD session with the DUT.
    pub customer_bfd: bool,
    /// True if these VRFs have IPv6 too, provided that the port has it.
    pub customer_ipv6: bool,
    /// The port whose VRFs these are: its customers are further sites of them, in the same order. `None` if they are its own.
    pub sites_of: Option<usize>,
}

/// A forwarding equivalence class: packets to one network, which leave with labels (RFC 3031 sections 2.1 and 3.11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FecConfig {
    /// The network.
    pub to: Prefix,
    /// The labels, the outermost first, at least one.
    pub out: Vec<u32>,
}

/// What the DUT does with packets whose outermost label is this one (RFC 3031 section 3.10: the incoming label map).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelConfig {
    /// The label, 16 to 1,048,575.
    pub label: u32,
    /// Labels that replace it, the outermost first: no label pops it, one label swaps it, more labels also push.
    pub out: Vec<u32>,
}

/// A VLAN sub-interface on one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VlanConfig {
    /// Tags, the outer one first; one (IEEE 802.1Q) or two (IEEE 802.1ad).
    pub tags: Vec<VlanTag>,
    /// IPv4 addressing, if IPv4 is used.
    pub ipv4: Option<Addressing>,
    /// IPv6 addressing, if IPv6 is used.
    pub ipv6: Option<Addressing>,
}

/// A VLAN tag without priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VlanTag {
    /// EtherType: 0x8100 (IEEE 802.1Q, C-TAG), 0x88a8 (IEEE 802.1ad, S-TAG).
    pub tpid: u16,
    /// VLAN identifier, 1 to 4094.
    pub vid: u16,
}

/// BGP peers of one family on the link of a port or of one of its sub-interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerLink<'a> {
    /// Index of the sub-interface; `None` for the port itself.
    pub vlan: Option<usize>,
    /// Family of the sessions.
    pub family: Family,
    /// Addresses of the link.
    pub addressing: &'a Addressing,
    /// Addresses of the peers, at least one.
    pub peers: Vec<IpAddr>,
}

/// Display form: `VLAN 100`, `VLAN 100.200`.
impl std::fmt::Display for VlanConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids: Vec<String> = self.tags.iter().map(|t| t.vid.to_string()).collect();
        write!(f, "VLAN {}", ids.join("."))
    }
}

impl VlanConfig {
    /// Addressing of `family`.
    pub fn addressing(&self, family: Family) -> Option<&Addressing> {
        match family {
            Family::Ipv4 => self.ipv4.as_ref(),
            Family::Ipv6 => self.ipv6.as_ref(),
        }
    }
}

impl PortConfig {
    /// The port in front of a router with these capabilities: without the protocols of links that it does not speak, and without
    /// customers if it has no VRFs.
    pub fn in_front_of(&self, capabilities: &Capabilities) -> PortConfig {
        let core = self.core.iter().copied().filter(|protocol| capabilities.core.contains(protocol)).collect();
        let customers = if capabilities.vrfs { self.customers } else { 0 };
        let customer_bfd = customers > 0 && self.customer_bfd && capabilities.core.contains(&CoreProtocol::Bfd);
        PortConfig { core, customers, customer_bfd, ..self.clone() }
    }

    /// Addressing of `family`.
    pub fn addressing(&self, family: Family) -> Option<&Addressing> {
        match family {
            Family::Ipv4 => self.ipv4.as_ref(),
            Family::Ipv6 => self.ipv6.as_ref(),
        }
    }

    /// Addresses of the BGP peers that the tester emulates on the port itself for `family`; empty if BGP does not
    /// exchange routes of this family.
    pub fn peers(&self, family: Family) -> Vec<IpAddr> {
        self.peer_links().find(|l| l.vlan.is_none() && l.family == family).map_or_else(Vec::new, |l| l.peers)
    }

    /// All links of this port with BGP peers: the port's own link, then its sub-interfaces, each with IPv4 before IPv6.
    /// This is the order of the sessions.
    pub fn peer_links(&self) -> impl Iterator<Item = PeerLink<'_>> {
        let places = std::iter::once(None).chain((0..self.vlans.len()).map(Some));
        let all = places.flat_map(|vlan| [Family::Ipv4, Family::Ipv6].map(|family| (vlan, family)));
        all.filter_map(|(vlan, family)| {
            let bgp = self.bgp.as_ref().filter(|b| b.families.contains(&family))?;
            let (addressing, count) = match vlan {
                None => (self.addressing(family)?, bgp.peers),
                Some(i) => (self.vlans[i].addressing(family)?, bgp.vlan_peers),
            };
            let peers: Vec<_> = PortBgp::addresses(addressing, count).collect();
            (!peers.is_empty()).then_some(PeerLink { vlan, family, addressing, peers })
        })
    }
}

/// Addresses on one port in one family. Defaults follow RFC 2544 Appendix C.2.2 with the block corrected to
/// 198.18.0.0/15, and RFC 5180 section 8 with the block corrected by erratum to 2001:2::/48.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addressing {
    /// The DUT's address on this port.
    pub dut: IpAddr,
    /// The tester's emulated router on this port, which is the next hop to the networks behind the port.
    pub host: IpAddr,
    /// Length of the prefix that both share.
    pub prefix_len: u8,
    /// Prefix behind the emulated router, to which the DUT must have a route: `(address, length)`.
    pub behind: (IpAddr, u8),
    /// Test addresses within `behind`: the destinations of traffic to this port.
    pub destinations: AddressRange,
}

/// A test with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct TestConfig {
    /// Name, an entry of the registry.
    pub test: String,
    /// Id that distinguishes it from other tests of the same name in the suite.
    pub id: Option<String>,
    /// Names of the only DUTs that it runs on; all if empty.
    pub duts: Vec<String>,
    /// Parameters, defaults of the profile filled in.
    pub params: Params,
    /// Criteria for pass or fail.
    pub expect: Vec<Expectation>,
}

impl TestConfig {
    /// True if `word` is its name or its id.
    pub fn is_called(&self, word: &str) -> bool {
        self.test == word || self.id.as_deref() == Some(word)
    }

    /// True if the suite runs it on this DUT.
    pub fn is_for(&self, dut: &str) -> bool {
        self.duts.is_empty() || self.duts.iter().any(|name| name == dut)
    }

    /// Its name, with its id if it has one: `throughput (small)`.
    pub fn label(&self) -> String {
        self.id.as_ref().map_or_else(|| self.test.clone(), |id| format!("{} ({id})", self.test))
    }
}

/// Parameters common to all ports (RFC 4271). The DUT is one AS. Each port of the tester is another AS, unless its
/// peers are internal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BgpConfig {
    /// AS number of the DUT.
    pub dut_as: u32,
    /// AS number of the peers on the first port; peers on port i have `tester_as` + i.
    pub tester_as: u32,
    /// Emulated routers on each port, at least 1.
    pub peers_per_port: u32,
    /// Emulated routers on each VLAN sub-interface of the ports.
    #[serde(default)]
    pub peers_per_vlan: u32,
    /// IP versions whose routes BGP exchanges, each in sessions of the same version; at least one.
    pub families: Vec<Family>,
    /// Hold Time that both sides propose (RFC 4271 section 4.2): 3 to 65,535 whole seconds.
    pub hold_time: Duration,
    /// Names of the ports whose peers are in the DUT's AS, as clients of the DUT, their route reflector (RFC 4456).
    #[serde(default)]
    pub internal: Vec<String>,
    /// True if the DUT advertises external routes to internal peers with itself as next hop (RFC 4271 section 5.1.3).
    #[serde(default)]
    pub next_hop_self: bool,
    /// What the routes of the sessions have in addition to prefixes.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub routes: RouteKind,
    /// Protection of all sessions. Records do not contain it.
    #[serde(skip)]
    pub protection: BgpProtection,
}

/// BGP on one port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortBgp {
    /// AS number of the tester's peers on this port.
    pub asn: u32,
    /// AS number of the DUT.
    pub dut_as: u32,
    /// Number of emulated routers on this port: the first at the host's address, the others at the addresses after it.
    pub peers: u32,
    /// Number of emulated routers on each VLAN sub-interface of this port, counted in the same way.
    #[serde(default)]
    pub vlan_peers: u32,
    /// Hold Time that both sides propose; whole seconds.
    pub hold: Duration,
    /// IP versions whose routes BGP exchanges, each in sessions of the same version.
    pub families: Vec<Family>,
    /// True if the DUT is the next hop of external routes for internal peers.
    #[serde(default)]
    pub next_hop_self: bool,
    /// What the routes of the sessions have in addition to prefixes.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub routes: RouteKind,
    /// Protection of the sessions. Records do not contain it.
    #[serde(skip)]
    pub protection: BgpProtection,
}

impl PortBgp {
    /// True if the peers are in the DUT's AS and therefore its clients (RFC 4456).
    pub fn is_internal(&self) -> bool {
        self.asn == self.dut_as
    }

    /// Addresses of `peers` peers on a link with this addressing: the host's address and those after it.
    pub fn addresses(addressing: &Addressing, peers: u32) -> impl Iterator<Item = IpAddr> + use<> {
        let (host, first) = (addressing.host, number(addressing.host));
        let family = if host.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 };
        (0..peers).map(move |i| address(family, first + u128::from(i)))
    }
}

/// Rate of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FlowRate {
    /// Frames per second.
    Frames(FrameRate),
    /// Bits per second, with FCS, without preamble and gap (layer 2).
    Bits(Bandwidth),
    /// Share of the sending port's line rate in per cent (RFC 2544 Appendix B).
    Percent(f64),
}

impl FromStr for FlowRate {
    type Err = QuantityError;

    /// Parses `10 kfps`, `10k`, `10000`; `100 Mbit/s`, `1G`; `5 %`. Refuses `100M`, which can mean bits or frames.
    fn from_str(text: &str) -> Result<FlowRate, QuantityError> {
        let bad = |why: &str| {
            let kinds = "write frames per second (`10 kfps`), bits per second (`100 Mbit/s`) or a share of the line above 0 and at most \
                         100 % (`5 %`)";
            QuantityError(format!("`{}` is not a rate{why}; {kinds}", text.trim()))
        };
        if text.trim_end().ends_with('%') {
            let share = parse_percent(text).ok_or_else(|| bad(""))?;
            return match share > 0.0 && share <= 100.0 {
                true => Ok(FlowRate::Percent(share)),
                false => Err(bad(", because it is out of range")),
            };
        }
        // No tester sends 1 Gfps, so `1G`, which is refused as a frame rate, is read as 1 Gbit/s.
        let last = text.trim_end().chars().last().unwrap_or_default();
        match (parse_frame_rate(text), text.parse().map(FlowRate::Bits)) {
            (_, Ok(_)) if matches!(last, 'm' | 'M') => {
                Err(bad(&format!(", because it can be {0}bit/s or {0}fps", text.trim())))
            }
            (Ok(frames), _) => Ok(FlowRate::Frames(frames)),
            (_, Ok(bits)) => Ok(bits),
            _ => Err(bad("")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_one_meaning_are_read_and_others_are_refused() {
        for (text, rate) in [
            ("10 kfps", FlowRate::Frames(FrameRate(10_000.0))),
            ("100k", FlowRate::Frames(FrameRate(100_000.0))),
            ("100000", FlowRate::Frames(FrameRate(100_000.0))),
            ("1G", FlowRate::Bits(Bandwidth(1_000_000_000))),
            ("8 Mbit/s", FlowRate::Bits(Bandwidth(8_000_000))),
            ("5 %", FlowRate::Percent(5.0)),
        ] {
            assert_eq!(text.parse(), Ok(rate), "{text}");
        }
        for (text, why) in [
            ("100M", "it can be 100Mbit/s or 100Mfps"),
            ("0 %", "out of range"),
            ("101%", "out of range"),
            ("fast", "is not a rate;"),
            ("0", "is not a rate;"),
        ] {
            let QuantityError(error) = text.parse::<FlowRate>().unwrap_err();
            assert!(error.contains(why) && error.contains("at most 100 %"), "{text}: {error}");
        }
    }
}
