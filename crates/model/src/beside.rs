//! Frames outside the measurement: single frames that a test sends on purpose, and all received frames that are not
//! test frames.

use crate::size::FrameSize;
use crate::traffic::Header;
use crate::trial::{Family, PortIndex};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// A frame that a test sends in addition to the traffic of a trial, usually a malformed frame.
///
/// Missing Ethernet addresses are filled in: the addresses of port and DUT. The identification of the outermost IPv4
/// header, or the flow label of the outermost IPv6 header, is the number of the frame: it shows which frame an ICMP
/// error quotes. The payload repeats a mark that identifies the frame even if its headers have changed.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtraFrame {
    /// Port that sends it.
    pub port: PortIndex,
    /// Departure, relative to the start of the trial.
    pub at: Duration,
    /// Its headers. Lengths and checksums are sent as given.
    pub headers: Vec<Header>,
    /// Its size.
    pub size: FrameSize,
    /// Offsets of bytes in which one bit is inverted after all checksums are written.
    pub inverted: Vec<usize>,
    /// True if the frame ends with its packet, without the padding to 64 bytes.
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

impl IcmpError {
    /// The error in words, with type and code: `host unreachable (3/1)` (RFC 792, RFC 1812 section 5.2.7, RFC 4443).
    pub fn words(&self) -> String {
        let words = match (self.family, self.kind, self.code) {
            (Family::Ipv4, 3, 0) => "network unreachable",
            (Family::Ipv4, 3, 1) => "host unreachable",
            (Family::Ipv4, 3, 2) => "protocol unreachable",
            (Family::Ipv4, 3, 3) | (Family::Ipv6, 1, 4) => "port unreachable",
            (Family::Ipv4, 3, 4) => "fragmentation needed",
            (Family::Ipv4, 3, 9 | 10 | 13) | (Family::Ipv6, 1, 1) => "administratively prohibited",
            (Family::Ipv6, 1, 0) => "no route to destination",
            (Family::Ipv6, 1, 3) => "address unreachable",
            (Family::Ipv4, 11, 0) | (Family::Ipv6, 3, 0) => "TTL or hop limit exceeded in transit",
            (Family::Ipv4, 11, 1) | (Family::Ipv6, 3, 1) => "reassembly time exceeded",
            _ => return self.to_string(),
        };
        format!("{words} ({}/{})", self.kind, self.code)
    }
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

/// A difference between the sent and the returned frame that forwarding does not explain. A router must change the
/// addresses of the link, the padding, the header checksum, and the TTL or hop limit, which each router lowers by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alteration {
    /// TTL or hop limit is not lower by exactly one for each router on the way.
    Ttl,
    /// The header checksum was sent wrong but arrived right.
    ChecksumMended,
    /// Another field of the IP header.
    Header,
    /// Bytes after the first 20 of IPv4, or the first 40 of IPv6.
    Contents,
    /// The frame is truncated.
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

/// Result of an [`ExtraFrame`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraFate {
    /// True if the frame left the tester.
    pub sent: bool,
    /// Number of arrivals, at any port.
    pub arrived: u32,
    /// Differences found in any arrival.
    pub altered: BTreeSet<Alteration>,
    /// ICMP errors that quote the frame.
    pub errors: BTreeMap<IcmpError, u32>,
}

impl ExtraFate {
    /// ICMP errors of all kinds.
    pub fn answers(&self) -> u64 {
        self.errors.values().map(|n| u64::from(*n)).sum()
    }
}

/// ICMP errors of one kind received at one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorCount {
    /// The port.
    pub port: PortIndex,
    /// The error.
    pub error: IcmpError,
    /// MTU of the link that was too small, in bytes, if the error contains it (RFC 1191 section 4, RFC 4443 section
    /// 3.2).
    pub mtu: Option<u32>,
    /// Number of errors.
    pub frames: u64,
}

/// Frames of one protocol received at one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolCount {
    /// The port.
    pub port: PortIndex,
    /// The protocol, by name: `ARP request`, `LLDP`.
    pub protocol: String,
    /// Number of frames.
    pub frames: u64,
    /// Frames that answer requests of the tester's emulated devices.
    pub answers: u64,
    /// Bytes with FCS, at least 64 per frame.
    pub bytes: u64,
    /// Maximum number of frames in one second, with seconds counted from the start.
    pub most_per_second: u64,
}

/// All received frames that were not test frames, over a period of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherTraffic {
    /// Length of the period.
    pub time: Duration,
    /// Counts ordered by port, then by name of the protocol, without returned extra frames.
    pub protocols: Vec<ProtocolCount>,
    /// Results of the extra frames, in their order.
    pub extra: Vec<ExtraFate>,
    /// ICMP errors that quote no extra frame.
    pub unmatched_errors: u64,
    /// The same errors by port and kind, at most 16 kinds per port.
    pub errors: Vec<ErrorCount>,
    /// Frames received in the period, by the kernel's counters for the interface at each port; `None` if unknown.
    pub received_by_kernel: Option<Vec<u64>>,
}
