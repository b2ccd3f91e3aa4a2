//! Frames beside the measurement: single frames that a test sends on purpose, and all that comes in and is no test frame.

use crate::size::FrameSize;
use crate::traffic::Header;
use crate::trial::{Family, PortIndex};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// A frame that a test sends beside the traffic of a trial, most often a wrong one.
///
/// Addresses of Ethernet that are not given are those of the port and of the DUT. The identification of the outermost IPv4 header, or
/// the flow label of the outermost IPv6 header, is the number of the frame: by it an ICMP error is matched with the frame that it quotes.
/// The payload holds a mark, again and again, by which the frame is found again whatever became of its headers.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtraFrame {
    /// Port that sends it.
    pub port: PortIndex,
    /// When, after the start of the trial.
    pub at: Duration,
    /// Its headers. Lengths and checksums that are given are sent as they are.
    pub headers: Vec<Header>,
    /// Its size.
    pub size: FrameSize,
    /// Bytes of the frame, from the first one of Ethernet, of which one bit is inverted when all checksums are written.
    pub inverted: Vec<usize>,
    /// Ends where its packet ends, without the padding to 64 bytes.
    pub unpadded: bool,
}

/// An ICMP or ICMPv6 error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IcmpError {
    /// ICMP or ICMPv6.
    pub family: Family,
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
}

impl fmt::Display for IcmpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match (self.family, self.kind) {
            (Family::Ipv4, 3) | (Family::Ipv6, 1) => "destination unreachable",
            (Family::Ipv6, 2) => "packet too big",
            (Family::Ipv4, 4) => "source quench",
            (Family::Ipv4, 5) => "redirect",
            (Family::Ipv4, 11) | (Family::Ipv6, 3) => "time exceeded",
            (Family::Ipv4, 12) | (Family::Ipv6, 4) => "parameter problem",
            _ => "other",
        };
        write!(f, "{name} ({}/{})", self.kind, self.code)
    }
}

/// A difference between a frame as it was sent and as it came back, beyond what a router changes: the addresses of the link, the
/// padding, a TTL or hop limit that is one less for each router, and the header checksum that follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alteration {
    /// TTL or hop limit is not one less for each router on the way.
    Ttl,
    /// The header checksum was wrong and is right.
    ChecksumMended,
    /// Another field of the IP header.
    Header,
    /// What is behind the first 20 bytes of IPv4, or the first 40 of IPv6.
    Contents,
    /// Its end is missing.
    Cut,
}

impl fmt::Display for Alteration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Alteration::Ttl => "TTL not one less per router",
            Alteration::ChecksumMended => "checksum mended",
            Alteration::Header => "header changed",
            Alteration::Contents => "contents changed",
            Alteration::Cut => "cut short",
        })
    }
}

/// What became of an [`ExtraFrame`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraFate {
    /// It left the tester.
    pub sent: bool,
    /// How often it came back, at whatever port.
    pub arrived: u32,
    /// What was different about any of these arrivals.
    pub altered: BTreeSet<Alteration>,
    /// ICMP errors that quote it.
    pub errors: BTreeMap<IcmpError, u32>,
}

impl ExtraFate {
    /// ICMP errors of all kinds.
    pub fn answers(&self) -> u64 {
        self.errors.values().map(|n| u64::from(*n)).sum()
    }
}

/// Frames of one protocol that came in at one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolCount {
    /// The port.
    pub port: PortIndex,
    /// The protocol, by name: `ARP request`, `LLDP`.
    pub protocol: String,
    /// Frames.
    pub frames: u64,
    /// Of these: answers to what the tester's emulated devices asked.
    pub answers: u64,
    /// Bytes with FCS, of 64 at least for each frame.
    pub bytes: u64,
    /// The most within one second, counted from the start.
    pub most_per_second: u64,
}

/// All that came in and was no test frame, over some time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherTraffic {
    /// The time.
    pub time: Duration,
    /// By port, then by name of the protocol. Extra frames that came back are not among them.
    pub protocols: Vec<ProtocolCount>,
    /// What became of each extra frame, in their order.
    pub extra: Vec<ExtraFate>,
    /// ICMP errors that quote no extra frame.
    pub unmatched_errors: u64,
}
