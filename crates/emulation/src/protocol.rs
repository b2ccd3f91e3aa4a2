//! Interface of all emulated protocols: the input is bytes, commands and an instant, the output is bytes, the next deadline
//! and state.
//!
//! [`Protocol::matches`] selects the frames that a protocol wants, among the frames that reach its device. The device parses Ethernet, VLAN tags, IP
//! and UDP, and passes the rest as [`Input`]. A protocol sends through [`Output`], which has the device's MAC address, tags,
//! addresses, neighbours and TCP. `tests/exchanges/new_protocol.rs` is a complete example in one file.
//!
//! Each protocol of this crate has a folder. It contains, as needed: `mod.rs` (the protocol), `config.rs`,
//! `session.rs` (the state machine of one session), `database.rs` (its learned state), `timers.rs`, `tests.rs`. A new protocol needs
//! a folder and a variant of [`ProtocolConfig`], and one of [`Command`] if it has commands of its own.

pub use crate::device::output::Output;

use crate::arp::Arp;
use crate::banner::{AskBanner, Banner};
use crate::bfd::{self, Bfd};
use crate::bgp::{BgpCommand, PeerConfig, Routers};
use crate::device::DeviceConfig;
use crate::ldp::{LdpCommand, Lsr, LsrConfig};
use crate::nd::Nd;
use crate::ospf::{Ospf, OspfCommand, OspfConfig};
use crate::ping::{Echo, Ping};
use crate::rsvp::{Rsvp, RsvpCommand, RsvpConfig};
use crate::tcp::{ConnectionId, ListenerId};
use drophammer_model::Instant;
use drophammer_wire::MacAddr;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::fmt;
use std::net::IpAddr;

/// A protocol on one device.
pub trait Protocol: Any + Send {
    /// Its name, in commands and messages.
    fn name(&self) -> &'static str;

    /// The inputs that it wants. The list must not change after the protocol has been added to a device.
    fn matches(&self) -> &[Match];

    /// The device has a new TCP stack. The protocol must add its hosts and listening ports; earlier connections are gone.
    fn attach(&mut self, _tcp: &mut crate::tcp::TcpStack) {}

    /// Handles an input that arrived at `now`. The protocol processes it immediately; bulk data waits for [`Protocol::poll`].
    fn receive(&mut self, now: Instant, input: Input<'_>, out: &mut Output<'_>);

    /// Sends what is due, with at most about `budget` bytes of bulk data per session.
    fn poll(&mut self, now: Instant, budget: usize, out: &mut Output<'_>);

    /// When [`Protocol::poll`] has work: `Instant(0)` for now, `None` if only an input can cause work. The device asks after every
    /// input, poll and command.
    fn next_deadline(&self) -> Option<Instant>;

    /// Carries out a command of the user.
    ///
    /// # Errors
    /// [`Refused`] if the protocol does not know the command, or its configuration does not allow it.
    fn command(&mut self, now: Instant, command: &Command) -> Result<(), Refused>;

    /// Its state.
    fn state(&self) -> State;
}

/// Selects frames and packets that a protocol wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Match {
    /// Frames of this EtherType (1536 or more), as [`Input::Frame`].
    EtherType(u16),
    /// IEEE 802.3 frames whose LLC header has this destination service access point, as [`Input::Frame`] from the LLC header on.
    Llc(u8),
    /// Frames to this group address reach the device, in addition to frames to its own address.
    LinkGroup(MacAddr),
    /// Packets of this IP protocol to an address or group of the device, as [`Input::Packet`].
    IpProtocol(u8),
    /// IPv4 packets of this IP protocol with the Router Alert option (RFC 2113) to any other address, as [`Input::Packet`].
    RouterAlert(u8),
    /// ICMP messages of this type, as [`Input::Packet`].
    Icmp(u8),
    /// ICMPv6 messages of this type, as [`Input::Packet`].
    Icmpv6(u8),
    /// Packets to this multicast group reach the device.
    Group(IpAddr),
    /// UDP datagrams to this port, as [`Input::Datagram`].
    UdpPort(u16),
    /// TCP connections to this port, as [`Input::Accepted`], and [`Input::Connections`] for all connections that the protocol opens
    /// or accepts.
    TcpPort(u16),
    /// Changes of the neighbours on the link, as [`Input::Neighbour`].
    Neighbour,
}

/// An input of a protocol.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A frame without its Ethernet header and tags.
    Frame {
        /// MAC address of the sender.
        source: MacAddr,
        /// Destination: the device's address or a group.
        destination: MacAddr,
        /// The bytes after the EtherType, padding included; for LLC the bytes that the length covers.
        payload: &'a [u8],
    },
    /// The payload of an IP packet.
    Packet(Packet<'a>),
    /// The payload of a UDP datagram, checksum verified.
    Datagram {
        /// The packet, with the payload of the UDP datagram.
        packet: Packet<'a>,
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
    },
    /// A new connection of a listener.
    Accepted {
        /// The listener.
        listener: ListenerId,
        /// The connection, which belongs to the protocol from now on.
        connection: ConnectionId,
    },
    /// Connections of the device's TCP that changed, or have new data or room to send, including those of other protocols.
    Connections(&'a [ConnectionId]),
    /// The link-layer address of this neighbour has been resolved or has changed.
    Neighbour(IpAddr),
}

/// An IP packet with a valid header. OSPF packets have been reassembled from their fragments; other fragments and IPv6 extension
/// headers are not supported.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Link-layer address of the sender.
    pub link_source: MacAddr,
    /// Source address.
    pub source: IpAddr,
    /// Destination address: one of the device's or a group; any for [`Match::RouterAlert`].
    pub destination: IpAddr,
    /// Protocol or next header.
    pub protocol: u8,
    /// TTL or hop limit, as it arrived.
    pub hop_limit: u8,
    /// Identification field of IPv4; 0 for IPv6.
    pub identification: u16,
    /// The bytes after the IP header.
    pub payload: &'a [u8],
    /// Sum of the pseudo header, for checksums of the upper protocol (RFC 1071).
    pub pseudo_sum: u64,
}

/// A command from the user. Each protocol has a type of its own for commands that no other protocol has.
#[derive(Clone, Debug)]
pub enum Command {
    /// Start sending, connect, open sessions.
    Start,
    /// End all sessions in order and stay silent.
    Stop,
    /// Send an echo request.
    Ping(Echo),
    /// Ask for a banner.
    Banner(AskBanner),
    /// A command of BGP.
    Bgp(BgpCommand),
    /// A command of LDP.
    Ldp(LdpCommand),
    /// A command of RSVP-TE.
    Rsvp(RsvpCommand),
    /// A command of OSPF.
    Ospf(OspfCommand),
}

/// Why a command or a configuration was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Name of the protocol.
    pub protocol: &'static str,
    /// What is wrong, and what would be accepted.
    pub reason: String,
}

impl Refused {
    /// A refusal by `protocol` for this reason.
    pub fn new(protocol: &'static str, reason: impl Into<String>) -> Refused {
        Refused { protocol, reason: reason.into() }
    }

    /// A refusal of a command that `protocol` does not have.
    pub fn unknown(protocol: &'static str) -> Refused {
        Refused::new(protocol, "this protocol has no such command")
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.protocol, self.reason)
    }
}

impl std::error::Error for Refused {}

/// State of a protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Number of configured sessions: BGP peers, neighbours to resolve. 0 for protocols without sessions.
    pub sessions: u32,
    /// Number of sessions that are up: Established, resolved.
    pub up: u32,
    /// Counters since the beginning, by name.
    pub counters: Vec<(&'static str, u64)>,
}

impl State {
    /// A counter by its name; 0 if it does not exist.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.iter().find(|(known, _)| *known == name).map_or(0, |(_, n)| *n)
    }
}

/// Configuration of a protocol on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProtocolConfig {
    /// Resolves the IPv4 addresses of neighbours by ARP, and answers requests for the device.
    Arp,
    /// Resolves the IPv6 addresses of neighbours by Neighbor Discovery, and answers solicitations for the device.
    Nd,
    /// Answers echo requests, and pings the gateway or a host behind it on command.
    Ping,
    /// Asks the gateway's SSH server for its banner on command.
    Banner,
    /// BGP-4 speakers that advertise tables of routes and verify received routes; at least one.
    Bgp(Vec<PeerConfig>),
    /// An LSR that speaks LDP with its neighbours on the link.
    Ldp(LsrConfig),
    /// RSVP-TE: LSPs that begin or end at the device.
    Rsvp(Box<RsvpConfig>),
    /// BFD sessions with these peers; one protocol for all of them.
    Bfd(Vec<bfd::SessionConfig>),
    /// An OSPFv2 router and the topology behind it.
    Ospf(Box<OspfConfig>),
}

impl ProtocolConfig {
    /// The protocols that every device has. Devices poll them in this order.
    pub const STANDARD: [ProtocolConfig; 4] =
        [ProtocolConfig::Arp, ProtocolConfig::Nd, ProtocolConfig::Ping, ProtocolConfig::Banner];

    /// The protocol for `device`. It sends nothing before it is polled, and opens no session before [`Command::Start`].
    ///
    /// # Errors
    /// The part of the configuration that the protocol cannot use.
    pub fn create(&self, device: &DeviceConfig) -> Result<Box<dyn Protocol>, Refused> {
        Ok(match self {
            ProtocolConfig::Arp => Box::new(Arp::new(device)),
            ProtocolConfig::Nd => Box::new(Nd::new(device)),
            ProtocolConfig::Ping => Box::new(Ping::new(device)),
            ProtocolConfig::Banner => Box::new(Banner::new(device)),
            ProtocolConfig::Bgp(peers) => Box::new(Routers::configured(device, peers)?),
            ProtocolConfig::Ldp(lsr) => Box::new(Lsr::new(device, lsr.clone())?),
            ProtocolConfig::Rsvp(config) => Box::new(Rsvp::new(device, (**config).clone())?),
            ProtocolConfig::Bfd(sessions) => Box::new(Bfd::configured(device, sessions)?),
            ProtocolConfig::Ospf(config) => Box::new(Ospf::configured(device, config)?),
        })
    }
}
