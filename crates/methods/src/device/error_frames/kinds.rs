//! The kinds of wrong frames: how each is built, and what a router must do with it.

use crate::kit::prelude::*;
use drophammer_model::beside::{ExtraFrame, IcmpError};
use drophammer_model::size::FrameSize;
use drophammer_model::traffic::{Bits, Ethernet, Field, Header, Ipv4, Ipv6, Octets, Raw, Udp};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What a router must report about a frame that it drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Nothing.
    Silence,
    /// An ICMP error of this type and code. There may be fewer than one per frame: a router must limit them (RFC 1812
    /// section 4.3.2.8, RFC 4443 section 2.4 f).
    Must(u8, u8),
    /// An ICMP error of one of these types, with any code, or no answer.
    May(&'static [u8]),
}

/// What a router must do with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Forward it as any other.
    Forward,
    /// Drop it.
    Drop(Answer),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Forward => f.write_str("forward"),
            Action::Drop(Answer::Silence) => f.write_str("drop, no ICMP"),
            Action::Drop(Answer::Must(kind, code)) => write!(f, "drop, ICMP {kind}/{code}"),
            Action::Drop(Answer::May(kinds)) => {
                let kinds: Vec<String> = kinds.iter().map(u8::to_string).collect();
                write!(f, "drop, ICMP type {} or none", kinds.join(" or "))
            }
        }
    }
}

/// Sender and receiver of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    /// Source, behind the sending port.
    pub source: IpAddr,
    /// Destination, behind the other port.
    pub destination: IpAddr,
    /// Address of the DUT at the sending port.
    pub dut: IpAddr,
    /// MTU of the sending port.
    pub mtu: u32,
}

/// How a frame is wrong.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// A complete packet in a frame of 58 bytes.
    Runt,
    /// A packet 32 bytes larger than the MTU.
    Giant,
    /// A field of IPv4 or an address.
    Ipv4(fn(&mut Ipv4)),
    /// The header checksum.
    Checksum,
    /// A field of IPv6.
    Ipv6(fn(&mut Ipv6)),
    /// Headers after the fixed header of IPv6: the number of the first one, and their bytes.
    Behind {
        /// True if the packet is for the DUT itself.
        to_dut: bool,
        /// Headers for this final destination.
        headers: fn(Ipv6Addr) -> (u8, Vec<u8>),
    },
    /// The FCS; no port of the tester can send a wrong one.
    Fcs,
}

/// A kind of wrong frame.
#[derive(Debug)]
pub(super) struct Kind {
    /// Name.
    pub name: &'static str,
    /// IP version.
    pub family: Family,
    /// What is wrong with the frame.
    pub fault: Fault,
    /// What a router must do.
    pub expected: Action,
    /// Document that requires this action.
    pub source: &'static str,
}

const fn v4(name: &'static str, fault: Fault, expected: Action, source: &'static str) -> Kind {
    Kind { name, family: Family::Ipv4, fault, expected, source }
}

const fn v6(name: &'static str, fault: Fault, expected: Action, source: &'static str) -> Kind {
    Kind { name, family: Family::Ipv6, fault, expected, source }
}

const SILENT: Action = Action::Drop(Answer::Silence);
/// The router may report which field is wrong: RFC 1812 section 5.2.2 allows this if only lengths are wrong, and
/// recommends it if the packet was cut off.
const PARAMETER_PROBLEM: Action = Action::Drop(Answer::May(&[12]));
const UNREACHABLE: Action = Action::Drop(Answer::May(&[3]));
const HEADER: &str = "RFC 1812 section 5.2.2";
const MARTIAN: &str = "RFC 1812 section 5.3.7";
const UNFORWARDABLE: &str = "RFC 1812 section 5.3.7, RFC 6890";
const HOP_LIMIT: &str = "RFC 8200 section 3, RFC 4443 section 3.3";

/// All kinds, in the order of the table.
pub(super) static KINDS: &[Kind] = &[
    v4("bad FCS", Fault::Fcs, SILENT, "RFC 2889 section 5.9"),
    v4("runt", Fault::Runt, SILENT, "RFC 2889 section 5.9"),
    v4("giant", Fault::Giant, SILENT, "RFC 2889 section 5.9"),
    v4("header checksum", Fault::Checksum, SILENT, HEADER),
    v4("version 6", Fault::Ipv4(|ip| ip.version = Some(Bits::new(6).into())), SILENT, HEADER),
    v4("header length 16", Fault::Ipv4(|ip| ip.header_length = Some(Bits::new(4).into())), PARAMETER_PROBLEM, HEADER),
    v4(
        "header longer than the packet",
        // Has options, so that the checksum is right and only the length is wrong.
        Fault::Ipv4(|ip| {
            ip.options = Octets(vec![0; 40]);
            ip.total_length = Some(40.into());
        }),
        PARAMETER_PROBLEM,
        HEADER,
    ),
    v4(
        "total length beyond the frame",
        Fault::Ipv4(|ip| ip.total_length = Some(1_000.into())),
        PARAMETER_PROBLEM,
        HEADER,
    ),
    v4("total length below the header", Fault::Ipv4(|ip| ip.total_length = Some(16.into())), PARAMETER_PROBLEM, HEADER),
    v4("TTL 1", Fault::Ipv4(|ip| ip.ttl = 1.into()), Action::Drop(Answer::Must(11, 0)), "RFC 1812 section 5.3.1"),
    v4("TTL 0", Fault::Ipv4(|ip| ip.ttl = 0.into()), Action::Drop(Answer::Must(11, 0)), "RFC 1812 section 5.3.1"),
    v4("loose source route", Fault::Ipv4(|ip| ip.options = source_route(131)), UNREACHABLE, "RFC 7126 section 4.3"),
    v4("strict source route", Fault::Ipv4(|ip| ip.options = source_route(137)), UNREACHABLE, "RFC 7126 section 4.4"),
    v4("source 0.0.0.0", Fault::Ipv4(|ip| ip.source = from([0, 0, 0, 0])), SILENT, MARTIAN),
    v4("source 127.0.0.1", Fault::Ipv4(|ip| ip.source = from([127, 0, 0, 1])), SILENT, MARTIAN),
    v4("source 240.0.0.1", Fault::Ipv4(|ip| ip.source = from([240, 0, 0, 1])), SILENT, UNFORWARDABLE),
    v4("source multicast", Fault::Ipv4(|ip| ip.source = from([224, 0, 0, 5])), SILENT, MARTIAN),
    v4("source broadcast", Fault::Ipv4(|ip| ip.source = from([255; 4])), SILENT, MARTIAN),
    v4("destination 0.0.0.0", Fault::Ipv4(|ip| ip.destination = from([0, 0, 0, 0])), UNREACHABLE, MARTIAN),
    v4("destination 127.0.0.1", Fault::Ipv4(|ip| ip.destination = from([127, 0, 0, 1])), UNREACHABLE, MARTIAN),
    v4("destination 240.0.0.1", Fault::Ipv4(|ip| ip.destination = from([240, 0, 0, 1])), UNREACHABLE, UNFORWARDABLE),
    // No error is sent about a packet to the broadcast address (RFC 1812 section 4.3.2.7).
    v4("destination broadcast", Fault::Ipv4(|ip| ip.destination = from([255; 4])), SILENT, "RFC 1812 section 5.3.5.1"),
    v6("version 4", Fault::Ipv6(|ip| ip.version = Some(Bits::new(4).into())), SILENT, "RFC 8200 section 3"),
    v6(
        "payload length beyond the frame",
        Fault::Ipv6(|ip| ip.payload_length = Some(1_000.into())),
        Action::Drop(Answer::May(&[4])),
        "RFC 8200 section 3, RFC 4443 section 3.4",
    ),
    v6("hop limit 1", Fault::Ipv6(|ip| ip.hop_limit = 1.into()), Action::Drop(Answer::Must(3, 0)), HOP_LIMIT),
    v6("hop limit 0", Fault::Ipv6(|ip| ip.hop_limit = 0.into()), Action::Drop(Answer::Must(3, 0)), HOP_LIMIT),
    v6(
        "unknown header in transit",
        Fault::Behind { to_dut: false, headers: unknown },
        Action::Forward,
        "RFC 8200 section 4, RFC 7045 section 2.1",
    ),
    v6(
        "unknown header for the router",
        Fault::Behind { to_dut: true, headers: unknown },
        Action::Drop(Answer::Must(4, 1)),
        "RFC 8200 section 4, RFC 4443 section 3.4",
    ),
    v6(
        "routing type 0",
        Fault::Behind { to_dut: true, headers: routing_0 },
        Action::Drop(Answer::Must(4, 0)),
        "RFC 5095 section 3, RFC 8200 section 4.4",
    ),
    v6(
        "hop-by-hop not first",
        Fault::Behind { to_dut: true, headers: late_hop_by_hop },
        Action::Drop(Answer::Must(4, 1)),
        "RFC 8200 section 4",
    ),
];

fn from(address: [u8; 4]) -> Option<Field<Ipv4Addr>> {
    Some(Ipv4Addr::from(address).into())
}

/// A source route with one unused hop, and the end of the options.
fn source_route(kind: u8) -> Octets {
    Octets(vec![kind, 7, 4, 198, 19, 255, 254, 0])
}

/// A number that is neither a protocol nor an extension header: the first one for experiments (RFC 3692).
const EXPERIMENT: u8 = 253;
const ROUTING: u8 = 43;
const DESTINATION_OPTIONS: u8 = 60;
const UDP: u8 = 17;
/// Options of 6 bytes without meaning (PadN).
const PADDING: [u8; 6] = [1, 4, 0, 0, 0, 0];

/// A UDP header without checksum, with the length of the data after it. It follows headers that no router in this test
/// processes.
fn udp() -> [u8; 8] {
    let [port, to] = [SOURCE_PORT.to_be_bytes(), PORT.to_be_bytes()];
    [port[0], port[1], to[0], to[1], 0, 8, 0, 0]
}

fn unknown(_: Ipv6Addr) -> (u8, Vec<u8>) {
    (EXPERIMENT, [&[UDP, 0][..], &PADDING, &udp()].concat())
}

fn routing_0(last: Ipv6Addr) -> (u8, Vec<u8>) {
    // With one segment left, the router would send the packet on to `last`.
    (ROUTING, [&[UDP, 2, 0, 1, 0, 0, 0, 0][..], &last.octets(), &udp()].concat())
}

fn late_hop_by_hop(_: Ipv6Addr) -> (u8, Vec<u8>) {
    (DESTINATION_OPTIONS, [&[0, 0][..], &PADDING, &[UDP, 0], &PADDING, &udp()].concat())
}

/// Size of a wrong frame, unless the size is what is wrong.
const SIZE: u16 = 128;
/// Size of a runt: IPv4, UDP and one mark.
const RUNT: u16 = 58;
/// Bytes by which the packet of a giant exceeds the MTU.
const BEYOND_MTU: u32 = 32;
/// Bytes of Ethernet header and FCS.
const ETHERNET: u32 = 18;
/// Second byte of the header checksum of IPv4 in a frame without tags.
const CHECKSUM_AT: usize = 14 + 11;
/// UDP ports that test frames do not use.
const SOURCE_PORT: u16 = 49_152;
const PORT: u16 = 33_433;

impl Kind {
    /// Size of the frame, including the FCS.
    pub(super) fn frame_bytes(&self, mtu: u32) -> u32 {
        match self.fault {
            Fault::Runt => RUNT.into(),
            Fault::Giant => mtu + BEYOND_MTU + ETHERNET,
            _ => SIZE.into(),
        }
    }

    /// A frame between `ends`, which are of its family, sent from `port` at `at` after the start.
    pub(super) fn frame(&self, ends: Ends, port: usize, at: Duration) -> ExtraFrame {
        let size = u16::try_from(self.frame_bytes(ends.mtu)).unwrap_or(u16::MAX);
        let ip = match (ends.source, ends.destination, ends.dut) {
            (IpAddr::V4(source), IpAddr::V4(destination), _) => {
                let mut ip =
                    Ipv4 { source: Some(source.into()), destination: Some(destination.into()), ..Ipv4::default() };
                if let Fault::Ipv4(spoil) = self.fault {
                    spoil(&mut ip);
                }
                vec![Header::Ipv4(ip), udp_header()]
            }
            (IpAddr::V6(source), IpAddr::V6(destination), IpAddr::V6(dut)) => {
                let mut ip =
                    Ipv6 { source: Some(source.into()), destination: Some(destination.into()), ..Ipv6::default() };
                match self.fault {
                    Fault::Behind { to_dut, headers } => {
                        let (number, bytes) = headers(destination);
                        ip.next_header = Some(number.into());
                        if to_dut {
                            ip.destination = Some(dut.into());
                        }
                        vec![Header::Ipv6(ip), Header::Raw(Raw { bytes: Octets(bytes) })]
                    }
                    Fault::Ipv6(spoil) => {
                        spoil(&mut ip);
                        vec![Header::Ipv6(ip), udp_header()]
                    }
                    _ => vec![Header::Ipv6(ip), udp_header()],
                }
            }
            _ => Vec::new(),
        };
        ExtraFrame {
            port,
            at,
            headers: std::iter::once(Header::Ethernet(Ethernet::default())).chain(ip).collect(),
            size: FrameSize::Frame(size),
            inverted: if matches!(self.fault, Fault::Checksum) { vec![CHECKSUM_AT] } else { Vec::new() },
            unpadded: matches!(self.fault, Fault::Runt),
        }
    }

    /// Returns true if a router may answer with this error.
    pub(super) fn allows(&self, error: &IcmpError) -> bool {
        match self.expected {
            _ if error.family != self.family => false,
            Action::Forward | Action::Drop(Answer::Silence) => false,
            Action::Drop(Answer::Must(kind, code)) => (error.kind, error.code) == (kind, code),
            Action::Drop(Answer::May(kinds)) => kinds.contains(&error.kind),
        }
    }
}

fn udp_header() -> Header {
    Header::Udp(Udp { source_port: SOURCE_PORT.into(), destination_port: PORT.into(), ..Udp::default() })
}
