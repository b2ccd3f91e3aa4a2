//! What every emulated protocol looks like: bytes and an instant in, bytes and the next deadline out, commands, state.
//!
//! A protocol says by [`Protocol::matches`] which of the frames that reach its device it wants. The device parses Ethernet, VLAN tags,
//! IP and UDP, and hands over the rest as [`Input`]. A protocol sends by [`Output`], which knows the device's MAC address, tags,
//! addresses, neighbours and TCP. `tests/new_protocol.rs` is a complete example in one file.
//!
//! Each protocol of this crate has a folder, with the same names of files in it as far as they apply: `mod.rs` (the protocol),
//! `config.rs`, `session.rs` (the state machine of one session), `database.rs` (what it has learned), `timers.rs`, `tests.rs`. A new
//! one is a folder and a line in [`PROTOCOLS`].

pub use crate::device::output::Output;

use crate::device::DeviceConfig;
use crate::tcp::{ConnectionId, ListenerId};
use drophammer_model::Instant;
use drophammer_wire::MacAddr;
use std::any::Any;
use std::fmt;
use std::net::IpAddr;

/// A protocol on one device.
pub trait Protocol: Any + Send {
    /// Its name in [`PROTOCOLS`], and in messages.
    fn name(&self) -> &'static str;

    /// What it receives. The list must not change after the protocol has been added to a device.
    fn matches(&self) -> &[Match];

    /// The device has a TCP stack for it, a new one: hosts and listening ports are to be added. Earlier connections are gone.
    fn attach(&mut self, _tcp: &mut crate::tcp::TcpStack) {}

    /// Something arrived at `now`. It is read at once; bulk data waits for [`Protocol::poll`].
    fn receive(&mut self, now: Instant, input: Input<'_>, out: &mut Output<'_>);

    /// Sends what is due, of bulk data about `budget` bytes per session at most.
    fn poll(&mut self, now: Instant, budget: usize, out: &mut Output<'_>);

    /// When [`Protocol::poll`] has something to do: `Instant(0)` for at once, `None` while only an input changes anything. It is asked
    /// after every input, poll and command.
    fn next_deadline(&self) -> Option<Instant>;

    /// Does what the user asks.
    ///
    /// # Errors
    /// [`Refused`] when the protocol does not know the command, or cannot carry it out as it is configured.
    fn command(&mut self, now: Instant, command: &Command<'_>) -> Result<(), Refused>;

    /// How it stands.
    fn state(&self) -> State;
}

/// Which frames and packets a protocol wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Match {
    /// Frames of this EtherType (1536 or more), as [`Input::Frame`].
    EtherType(u16),
    /// IEEE 802.3 frames whose LLC header has this destination service access point, as [`Input::Frame`] from the LLC header on.
    Llc(u8),
    /// Frames to this group address reach the device, beside those to its own address.
    LinkGroup(MacAddr),
    /// Packets of this IP protocol to an address or group of the device, as [`Input::Packet`].
    IpProtocol(u8),
    /// ICMP messages of this type, as [`Input::Packet`].
    Icmp(u8),
    /// ICMPv6 messages of this type, as [`Input::Packet`].
    Icmpv6(u8),
    /// Packets to this multicast group reach the device.
    Group(IpAddr),
    /// UDP datagrams to this port, as [`Input::Datagram`].
    UdpPort(u16),
    /// TCP connections to this port, as [`Input::Accepted`], and [`Input::Connections`] for all that the protocol opens or accepts.
    TcpPort(u16),
    /// News of the neighbours of the link, as [`Input::Neighbour`].
    Neighbour,
}

/// What arrived.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A frame without its Ethernet header and tags.
    Frame {
        /// Who sent it.
        source: MacAddr,
        /// To whom: the device's address or a group.
        destination: MacAddr,
        /// What follows the EtherType, padding included; for LLC what the length covers.
        payload: &'a [u8],
    },
    /// The payload of an IP packet.
    Packet(Packet<'a>),
    /// The payload of a UDP datagram, checksum verified.
    Datagram {
        /// The packet; its payload is that of UDP.
        packet: Packet<'a>,
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
    },
    /// A connection that a listener has got.
    Accepted {
        /// Which listener.
        listener: ListenerId,
        /// The connection, which is the protocol's from now on.
        connection: ConnectionId,
    },
    /// Connections of the device's TCP that changed, got data or got room to send. Those of other protocols are among them.
    Connections(&'a [ConnectionId]),
    /// The link-layer address of this neighbour has become known or has changed.
    Neighbour(IpAddr),
}

/// An IP packet whose header was read and found right. Fragments and IPv6 extension headers are not taken.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Link-layer address of the sender.
    pub link_source: MacAddr,
    /// Source address.
    pub source: IpAddr,
    /// Destination address: one of the device's, or a group.
    pub destination: IpAddr,
    /// Protocol or next header.
    pub protocol: u8,
    /// TTL or hop limit, as it arrived.
    pub hop_limit: u8,
    /// Identification field of IPv4; 0 of IPv6.
    pub identification: u16,
    /// What follows the IP header.
    pub payload: &'a [u8],
    /// Sum of the pseudo header, for checksums of the protocol above (RFC 1071).
    pub pseudo_sum: u64,
}

/// What a user asks of a protocol.
#[derive(Clone, Copy)]
pub enum Command<'a> {
    /// Start sending, connect, open sessions.
    Start,
    /// End all sessions in order and stay silent.
    Stop,
    /// Something that only this protocol does, of a type in its folder.
    Own(&'a dyn Any),
}

/// Why a command or a configuration was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Name of the protocol.
    pub protocol: &'static str,
    /// What is wrong, and what would be right.
    pub reason: String,
}

impl Refused {
    /// `protocol` refuses for this reason.
    pub fn new(protocol: &'static str, reason: impl Into<String>) -> Refused {
        Refused { protocol, reason: reason.into() }
    }

    /// `protocol` has no such command.
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

/// How a protocol stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Sessions that are configured: BGP peers, neighbours to resolve. 0 for protocols without sessions.
    pub sessions: u32,
    /// Of these, those that are up: Established, resolved.
    pub up: u32,
    /// Counters since the beginning, by name.
    pub counters: Vec<(&'static str, u64)>,
}

impl State {
    /// A counter by its name; 0 when there is none.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.iter().find(|(known, _)| *known == name).map_or(0, |(_, n)| *n)
    }
}

/// Makes a protocol for a device, from its configuration.
pub type Create = fn(&DeviceConfig, &dyn Any) -> Result<Box<dyn Protocol>, Refused>;

/// A kind of protocol.
pub struct ProtocolKind {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Does every device have it, without being asked?
    pub standard: bool,
    /// Makes one for a device. `config` is of the type that the protocol's folder names; `()` where it needs none.
    pub create: Create,
}

/// All protocols of this crate. Devices poll them in this order.
pub const PROTOCOLS: &[ProtocolKind] =
    &[crate::arp::KIND, crate::nd::KIND, crate::ping::KIND, crate::banner::KIND, crate::bgp::KIND];
