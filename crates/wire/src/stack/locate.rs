//! Finds the headers of a frame, and describes their kinds and positions.

use super::extensions;
use super::number::*;
use crate::{ethernet, ipv4, ipv6, udp};
use drophammer_model::traffic::HeaderKind;
use std::ops::{Deref, Range};

/// Maximum number of headers in a frame.
pub const MAX_LAYERS: usize = 16;

/// One header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Kind of the header.
    pub kind: HeaderKind,
    offset: u16,
    length: u16,
    end: u16,
}

impl Layer {
    pub(super) fn new(kind: HeaderKind, offset: usize, length: usize, end: usize) -> Layer {
        Layer { kind, offset: offset as u16, length: length as u16, end: end as u16 }
    }

    /// Returns the offset of the first byte from the start of the frame.
    #[inline]
    pub fn offset(&self) -> usize {
        self.offset.into()
    }

    /// Returns the length of the header in bytes, including options and IPv6 extension headers.
    #[inline]
    pub fn length(&self) -> usize {
        self.length.into()
    }

    /// Returns the end of the header's contents, according to its own length field and the headers around it.
    #[inline]
    pub fn end(&self) -> usize {
        self.end.into()
    }

    /// Returns the range of header and contents.
    #[inline]
    pub fn range(&self) -> Range<usize> {
        self.offset()..self.end()
    }
}

/// The reason why the search for headers ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// UDP, TCP or ICMP echo was found, so an application payload follows.
    Transport,
    /// The type of the next header is unknown, or labels are not followed by an IP packet.
    Unknown,
    /// The frame ends within a header.
    Cut,
    /// The header is invalid: a wrong version, or a header length below its minimum.
    Malformed,
    /// The length field of the last header exceeds the available bytes, or is smaller than the header.
    Length,
    /// A fragment of an IP packet, which lacks the next header or a part of the payload.
    Fragment,
    /// There are more than [`MAX_LAYERS`] headers.
    Depth,
}

/// The headers of a frame, outermost first. It derefs to a slice of [`Layer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    list: [Layer; MAX_LAYERS],
    count: u8,
    payload: (u16, u16),
    stop: Stop,
}

impl Layers {
    /// Creates an empty list for a frame of `len` bytes.
    pub(super) fn none(len: usize, stop: Stop) -> Layers {
        let nothing = Layer { kind: HeaderKind::Raw, offset: 0, length: 0, end: 0 };
        Layers { list: [nothing; MAX_LAYERS], count: 0, payload: (0, len as u16), stop }
    }

    /// Appends a header. Returns false if there is no room. The header's contents become the payload.
    #[inline]
    pub(super) fn push(&mut self, layer: Layer) -> bool {
        let Some(slot) = self.list.get_mut(usize::from(self.count)) else { return false };
        *slot = layer;
        self.count += 1;
        self.payload = (layer.offset + layer.length, layer.end);
        true
    }

    #[inline]
    pub(super) fn stopped(mut self, stop: Stop) -> Layers {
        self.stop = stop;
        self
    }

    /// Returns the payload of the innermost header, without padding after an IP packet. The end is never before the start.
    #[inline]
    pub fn payload(&self) -> Range<usize> {
        self.payload.0.into()..self.payload.1.into()
    }

    /// Returns why the search for headers ended.
    #[inline]
    pub fn stop(&self) -> Stop {
        self.stop
    }

    /// Returns the index of the outermost header of this kind.
    pub fn find(&self, kind: HeaderKind) -> Option<usize> {
        self.iter().position(|layer| layer.kind == kind)
    }

    /// Returns the index of the outermost IP header.
    pub fn outermost_ip(&self) -> Option<usize> {
        self.iter().position(|layer| is_ip(layer.kind))
    }

    /// Returns the index of the innermost IP header.
    pub fn innermost_ip(&self) -> Option<usize> {
        self.iter().rposition(|layer| is_ip(layer.kind))
    }
}

pub(super) fn is_ip(kind: HeaderKind) -> bool {
    matches!(kind, HeaderKind::Ipv4 | HeaderKind::Ipv6)
}

impl Deref for Layers {
    type Target = [Layer];

    #[inline]
    fn deref(&self) -> &[Layer] {
        &self.list[..self.count.into()]
    }
}

/// Type of the next header, as determined by the header before it.
#[derive(Clone, Copy)]
enum Next {
    Ethernet,
    /// An EtherType.
    Type(u16),
    Label,
    Vxlan,
    /// The header after the last label, whose type is unknown.
    UnderLabels,
    /// A protocol number, from IPv6 or IPv4.
    Protocol {
        number: u8,
        v6: bool,
    },
    Nothing(Stop),
}

/// A header that was found.
struct Read {
    kind: HeaderKind,
    length: usize,
    /// End of the header's contents.
    end: usize,
    next: Next,
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Finds the headers of a frame without FCS. Bytes after the first 65,535 are ignored.
///
/// Each length field limits the search, so padding and trailers do not count as payload. A header with an invalid
/// length field is the last one in the result.
pub fn locate(frame: &[u8]) -> Layers {
    let frame = &frame[..frame.len().min(usize::from(u16::MAX))];
    let (mut at, mut end, mut next) = (0, frame.len(), Next::Ethernet);
    let mut layers = Layers::none(end, Stop::Unknown);
    loop {
        if let Next::Nothing(stop) = next {
            return layers.stopped(stop);
        }
        let read = match read(&frame[at..end], next) {
            Ok(read) => read,
            Err(stop) => return layers.stopped(stop),
        };
        end = at + read.end;
        if !layers.push(Layer::new(read.kind, at, read.length, end)) {
            return layers.stopped(Stop::Depth);
        }
        at += read.length;
        next = read.next;
    }
}

/// Parses the header at the front of `bytes`, which must be limited to the contents of the previous header.
fn read(bytes: &[u8], next: Next) -> Result<Read, Stop> {
    match next {
        Next::Ethernet => fixed(bytes, HeaderKind::Ethernet, ethernet::LEN, |b| Next::Type(word(b, 12))),
        Next::Type(VLAN | SERVICE_VLAN | OLD_SERVICE_VLAN) => {
            fixed(bytes, HeaderKind::Vlan, 4, |b| Next::Type(word(b, 2)))
        }
        Next::Type(MPLS | MPLS_UPSTREAM) | Next::Label => {
            fixed(bytes, HeaderKind::Mpls, 4, |b| if b[2] & 1 == 1 { Next::UnderLabels } else { Next::Label })
        }
        Next::Type(IPV4) | Next::Protocol { number: IPV4_IN_IP, .. } => read_ipv4(bytes),
        Next::Type(IPV6) | Next::Protocol { number: IPV6_IN_IP, .. } => read_ipv6(bytes),
        Next::UnderLabels => match bytes.first().map(|b| b >> 4) {
            Some(4) => read_ipv4(bytes),
            Some(6) => read_ipv6(bytes),
            _ => Err(Stop::Unknown),
        },
        Next::Vxlan => fixed(bytes, HeaderKind::Vxlan, VXLAN_LEN, |_| Next::Ethernet),
        Next::Protocol { number: GRE, .. } => read_gre(bytes),
        Next::Protocol { number: UDP, .. } => read_udp(bytes),
        Next::Protocol { number: TCP, .. } => read_tcp(bytes),
        Next::Protocol { number: ICMP, v6: false } => read_echo(bytes, ECHO),
        Next::Protocol { number: ICMPV6, v6: true } => read_echo(bytes, ECHO6),
        Next::Type(_) | Next::Protocol { .. } => Err(Stop::Unknown),
        Next::Nothing(stop) => Err(stop),
    }
}

/// Parses a header of fixed length without a length field.
fn fixed(bytes: &[u8], kind: HeaderKind, length: usize, next: impl Fn(&[u8]) -> Next) -> Result<Read, Stop> {
    let header = bytes.get(..length).ok_or(Stop::Cut)?;
    Ok(Read { kind, length, end: bytes.len(), next: next(header) })
}

fn read_ipv4(bytes: &[u8]) -> Result<Read, Stop> {
    let head: &[u8; ipv4::LEN] = bytes.first_chunk().ok_or(Stop::Cut)?;
    let length = usize::from(head[0] & 15) * 4;
    if head[0] >> 4 != 4 || length < ipv4::LEN {
        return Err(Stop::Malformed);
    }
    if length > bytes.len() {
        return Err(Stop::Cut);
    }
    let read = |end, next| Ok(Read { kind: HeaderKind::Ipv4, length, end, next });
    let total = usize::from(word(head, 2));
    if !(length..=bytes.len()).contains(&total) {
        return read(bytes.len(), Next::Nothing(Stop::Length));
    }
    // The fragment offset is not zero, or more fragments follow.
    if word(head, 6) & 0x3fff != 0 {
        return read(total, Next::Nothing(Stop::Fragment));
    }
    read(total, Next::Protocol { number: head[9], v6: false })
}

fn read_ipv6(bytes: &[u8]) -> Result<Read, Stop> {
    let head: &[u8; ipv6::LEN] = bytes.first_chunk().ok_or(Stop::Cut)?;
    if head[0] >> 4 != 6 {
        return Err(Stop::Malformed);
    }
    let total = ipv6::LEN + usize::from(word(head, 4));
    let end = total.min(bytes.len());
    let (length, next) = match extensions::skip(&bytes[..end]) {
        _ if total > bytes.len() => (ipv6::LEN, Next::Nothing(Stop::Length)),
        (length, Ok(number)) => (length, Next::Protocol { number, v6: true }),
        (length, Err(stop)) => (length, Next::Nothing(stop)),
    };
    Ok(Read { kind: HeaderKind::Ipv6, length, end, next })
}

fn read_gre(bytes: &[u8]) -> Result<Read, Stop> {
    let head: &[u8; 4] = bytes.first_chunk().ok_or(Stop::Cut)?;
    // Reserved bits (including the routing bit of RFC 1701) and version must be zero.
    if head[0] & !(GRE_CHECKSUM | GRE_KEY | GRE_SEQUENCE) != 0 || head[1] != 0 {
        return Err(Stop::Malformed);
    }
    let options = [GRE_CHECKSUM, GRE_KEY, GRE_SEQUENCE].into_iter().filter(|flag| head[0] & flag != 0).count();
    fixed(bytes, HeaderKind::Gre, 4 + 4 * options, |b| match word(b, 2) {
        BRIDGING => Next::Ethernet,
        VLAN | SERVICE_VLAN | OLD_SERVICE_VLAN => Next::Nothing(Stop::Unknown),
        other => Next::Type(other),
    })
}

fn read_udp(bytes: &[u8]) -> Result<Read, Stop> {
    let head: &[u8; udp::LEN] = bytes.first_chunk().ok_or(Stop::Cut)?;
    let length = usize::from(word(head, 4));
    let fits = (udp::LEN..=bytes.len()).contains(&length);
    let (end, next) = match fits {
        true if word(head, 2) == VXLAN_PORT && is_vxlan(&bytes[udp::LEN..length]) => (length, Next::Vxlan),
        true => (length, Next::Nothing(Stop::Transport)),
        false => (bytes.len(), Next::Nothing(Stop::Length)),
    };
    Ok(Read { kind: HeaderKind::Udp, length: udp::LEN, end, next })
}

/// True for a VXLAN header with a network identifier and without extensions. Anything else to its port counts as payload.
fn is_vxlan(payload: &[u8]) -> bool {
    matches!(payload, [VXLAN_VALID, 0, 0, 0, _, _, _, 0, ..])
}

fn read_tcp(bytes: &[u8]) -> Result<Read, Stop> {
    let head: &[u8; 20] = bytes.first_chunk().ok_or(Stop::Cut)?;
    match usize::from(head[12] >> 4) * 4 {
        length @ 20.. => fixed(bytes, HeaderKind::Tcp, length, |_| Next::Nothing(Stop::Transport)),
        _ => Err(Stop::Malformed),
    }
}

fn read_echo(bytes: &[u8], types: [u8; 2]) -> Result<Read, Stop> {
    match bytes.first() {
        Some(kind) if !types.contains(kind) => Err(Stop::Unknown),
        _ => fixed(bytes, HeaderKind::IcmpEcho, 8, |_| Next::Nothing(Stop::Transport)),
    }
}
