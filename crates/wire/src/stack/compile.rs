//! Builds a frame from a stack of headers.

use super::checksums::Checksum;
use super::error::{Cause, StackError};
use super::extensions;
use super::locate::{Layer, Layers, MAX_LAYERS, Stop, is_ip};
use super::number::*;
use super::place::Place;
use crate::{ethernet, ipv4, ipv6, signature, udp};
use drophammer_model::size::FrameSize;
use drophammer_model::traffic::{Field, FieldName, Header, HeaderKind};

/// Length of the Ethernet FCS in bytes.
const FCS: usize = 4;

/// Content of a frame after its headers.
#[derive(Clone, Copy)]
pub enum Payload<'a> {
    /// Payload of a test frame: written by the function, followed by room for a signature.
    Signed(&'a dyn Fn(&mut [u8])),
    /// Payload written by the function.
    Plain(&'a dyn Fn(&mut [u8])),
}

impl Payload<'_> {
    fn smallest(&self) -> usize {
        match self {
            Payload::Signed(_) => signature::LEN,
            Payload::Plain(_) => 0,
        }
    }
}

/// A frame, and the positions of its parts. Fields with several values contain the first value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// The frame without FCS, at least 60 bytes, padded with zeros. All checksums are correct, except specified ones.
    pub bytes: Vec<u8>,
    /// All fields, header by header. If a tag follows a header, the tag's `tpid` is the type of that header.
    pub fields: Vec<Place>,
    /// The checksums to update when a field changes, innermost first: a checksum that covers another comes after it.
    /// Specified checksums are left out.
    pub checksums: Vec<Checksum>,
    /// Offset of the signature, which ends the payload of a test frame. It is all zeros until it is written.
    pub signature_at: Option<usize>,
    /// Offset of the first byte after the headers and raw bytes.
    pub payload_at: usize,
    /// The headers. Raw bytes count as payload here, as in [`super::locate`].
    pub layers: Layers,
}

impl Compiled {
    /// Returns the position of the field `name` of header `header`.
    pub fn place(&self, header: usize, name: FieldName) -> Option<&Place> {
        self.fields.iter().find(|place| place.header == header && place.field == name)
    }
}

/// Maximum length of IPv4 and TCP options in bytes: 15 words less the fixed header of 5 words.
const MAX_OPTIONS: usize = 40;

/// Checks that these headers form a valid frame.
fn check(headers: &[Header]) -> Result<(), StackError> {
    let Some(first) = headers.first() else {
        return Err(StackError { header: 0, kind: None, cause: Cause::Empty });
    };
    let wrong = |header: usize, cause| Err(StackError { header, kind: Some(headers[header].kind()), cause });
    if first.kind() != HeaderKind::Ethernet {
        return wrong(0, Cause::NoEthernet);
    }
    // Raw bytes are always last and do not count as a layer.
    if headers.get(MAX_LAYERS).is_some_and(|h| h.kind() != HeaderKind::Raw) {
        return wrong(MAX_LAYERS, Cause::TooMany);
    }
    for (i, pair) in headers.windows(2).enumerate() {
        let (below, kind) = (pair[0].kind(), pair[1].kind());
        if below == HeaderKind::Raw {
            return wrong(i, Cause::RawNotLast);
        }
        if !follows(below, kind) {
            return wrong(i + 1, Cause::Misplaced(below));
        }
    }
    for (i, header) in headers.iter().enumerate() {
        if let Err(cause) = itself(header, headers.get(i + 1)) {
            return wrong(i, cause);
        }
    }
    Ok(())
}

fn follows(below: HeaderKind, kind: HeaderKind) -> bool {
    use HeaderKind::*;
    match below {
        Ethernet | Vlan => matches!(kind, Vlan | Mpls | Ipv4 | Ipv6 | Raw),
        Mpls => matches!(kind, Mpls | Ipv4 | Ipv6 | Raw),
        Ipv4 | Ipv6 => matches!(kind, Ipv4 | Ipv6 | Gre | Udp | Tcp | IcmpEcho | Raw),
        Gre => matches!(kind, Ethernet | Mpls | Ipv4 | Ipv6 | Raw),
        Vxlan => matches!(kind, Ethernet | Raw),
        Udp => matches!(kind, Vxlan | Raw),
        Tcp | IcmpEcho => kind == Raw,
        Raw => false,
    }
}

fn itself(header: &Header, next: Option<&Header>) -> Result<(), Cause> {
    for (field, values) in header.fields() {
        values.map_or(Ok(()), |v| v.check()).map_err(|error| Cause::Field(field, error))?;
    }
    let options = match header {
        Header::Ipv4(ipv4) => ipv4.options.0.len(),
        Header::Tcp(tcp) => tcp.options.0.len(),
        _ => 0,
    };
    if options > MAX_OPTIONS {
        return Err(Cause::OptionsTooLong { length: options, most: MAX_OPTIONS });
    }
    match header {
        Header::Ipv6(ipv6) => extensions::check(&ipv6.extensions),
        Header::Mpls(mpls) => match next {
            None => Err(Cause::LabelsOnNothing),
            Some(Header::Mpls(_)) => Ok(()),
            // Any value of the field may be sent, so all of them must be true.
            Some(_) => match &mpls.bottom_of_stack {
                Some(bottom) if (0..bottom.count().min(MOST_VALUES)).any(|i| !bottom.at(i)) => {
                    Err(Cause::EndlessLabels)
                }
                _ => Ok(()),
            },
        },
        Header::Udp(udp) if matches!(next, Some(Header::Vxlan(_))) => match udp.destination_port {
            Field::Value(VXLAN_PORT) => Ok(()),
            _ => Err(Cause::VxlanPort),
        },
        _ => Ok(()),
    }
}

/// Maximum number of values of a flag that are checked, because lists have no maximum length.
const MOST_VALUES: u64 = 65_536;

fn length(header: &Header) -> usize {
    match header {
        Header::Ethernet(_) => ethernet::LEN,
        Header::Vlan(_) | Header::Mpls(_) => 4,
        Header::Ipv4(ipv4) => ipv4::LEN + ipv4.options.0.len().next_multiple_of(4),
        Header::Ipv6(ipv6) => ipv6::LEN + extensions::total(&ipv6.extensions),
        Header::Gre(gre) => {
            let options =
                [gre.checksum_present || gre.checksum.is_some(), gre.key.is_some(), gre.sequence_number.is_some()];
            4 + 4 * options.into_iter().filter(|there| *there).count()
        }
        Header::Vxlan(_) => VXLAN_LEN,
        Header::Udp(_) => udp::LEN,
        Header::Tcp(tcp) => 20 + tcp.options.0.len().next_multiple_of(4),
        Header::IcmpEcho(_) => 8,
        Header::Raw(raw) => raw.bytes.0.len(),
    }
}

/// Returns the offset of the outermost IP header.
fn ip_at(headers: &[Header]) -> Option<usize> {
    let index = headers.iter().position(|header| is_ip(header.kind()))?;
    Some(headers[..index].iter().map(length).sum())
}

/// Returns `size`, or the smallest size of the same kind with room for these headers and, in a test frame, the signature.
///
/// # Errors
/// The stack is invalid, or the frame would exceed 65,535 bytes.
pub fn fit(headers: &[Header], size: FrameSize, payload: Payload<'_>) -> Result<FrameSize, StackError> {
    match end_of(headers, size, payload) {
        Ok(_) => Ok(size),
        Err(StackError { cause: Cause::TooSmall { needed, .. }, .. }) => Ok(match size {
            FrameSize::Frame(_) => FrameSize::Frame(needed as u16),
            FrameSize::Ip(_) => FrameSize::Ip(needed as u16),
        }),
        Err(other) => Err(other),
    }
}

/// Returns the offset of the end of the payload in a frame of this size.
fn end_of(headers: &[Header], size: FrameSize, payload: Payload<'_>) -> Result<usize, StackError> {
    check(headers)?;
    let wrong = |header: usize, cause| Err(StackError { header, kind: Some(headers[header].kind()), cause });
    let last = headers.len() - 1;
    let ip_at = ip_at(headers);
    let needed = headers.iter().map(length).sum::<usize>() + payload.smallest();
    if needed + FCS > usize::from(u16::MAX) {
        return wrong(last, Cause::TooLong(needed + FCS));
    }
    let (end, counted) = match (size, ip_at) {
        (FrameSize::Frame(n), _) => (usize::from(n).saturating_sub(FCS), needed + FCS),
        (FrameSize::Ip(n), Some(at)) => (at + usize::from(n), needed - at),
        (FrameSize::Ip(_), None) => return wrong(last, Cause::NoIp),
    };
    if end < needed {
        return wrong(last, Cause::TooSmall { asked: size, needed: counted });
    }
    if end + FCS > usize::from(u16::MAX) {
        return wrong(last, Cause::TooLong(end + FCS));
    }
    // Without a length field in any header, padding is payload.
    Ok(if ip_at.is_some() { end } else { end.max(ethernet::MIN_WITHOUT_FCS) })
}

/// Builds the frame of `size` with these headers.
///
/// A frame size counts as in RFC 2544: all headers, payload and FCS. A packet size counts the outermost IP packet; tags
/// and labels before it are added, and the frame is padded to 64 bytes.
///
/// # Errors
/// The stack is invalid; the error contains the header, the cause and the remedy. Or the size is too small; [`fit`]
/// returns one that is large enough.
pub fn compile(headers: &[Header], size: FrameSize, payload: Payload<'_>) -> Result<Compiled, StackError> {
    let end = end_of(headers, size, payload)?;
    let mut bytes = vec![0; end.max(ethernet::MIN_WITHOUT_FCS)];
    let mut layers = Layers::none(bytes.len(), Stop::Unknown);
    let (mut at, mut contents_end) = (0, bytes.len());
    for header in headers {
        if is_ip(header.kind()) {
            contents_end = end;
        }
        match header {
            Header::Raw(raw) => bytes[at..at + raw.bytes.0.len()].copy_from_slice(&raw.bytes.0),
            _ => {
                layers.push(Layer::new(header.kind(), at, length(header), contents_end));
            }
        }
        at += length(header);
    }
    if layers.last().is_some_and(|l| matches!(l.kind, HeaderKind::Udp | HeaderKind::Tcp | HeaderKind::IcmpEcho)) {
        layers = layers.stopped(Stop::Transport);
    }
    let signature_at = end.checked_sub(signature::LEN).filter(|_| matches!(payload, Payload::Signed(_)));
    let (Payload::Signed(fill) | Payload::Plain(fill)) = payload;
    fill(&mut bytes[at..signature_at.unwrap_or(end)]);

    for (header, layer) in headers.iter().zip(layers.iter()) {
        skeleton(header, &mut bytes[layer.offset()..layer.offset() + layer.length()]);
    }
    let mut compiled =
        Compiled { bytes, fields: Vec::new(), checksums: Vec::new(), signature_at, payload_at: at, layers };
    // Innermost first: a specified EtherType replaces the TPID that the tag after it has written.
    for index in (0..compiled.layers.len()).rev() {
        fields(headers, index, &mut compiled)?;
    }
    compiled.fields.sort_by_key(|place| (place.header, place.bit));
    for index in (0..layers.len()).rev() {
        let given = headers[index].field(FieldName::Checksum).or(headers[index].field(FieldName::HeaderChecksum));
        if let Some(checksum) = layers.checksum(&compiled.bytes, index).filter(|_| given.is_none()) {
            checksum.write(&mut compiled.bytes);
            compiled.checksums.push(checksum);
        }
    }
    Ok(compiled)
}

/// Writes the parts that are not fields: options, extension headers, flags for optional parts.
fn skeleton(header: &Header, bytes: &mut [u8]) {
    match header {
        Header::Ipv4(ipv4) => bytes[ipv4::LEN..][..ipv4.options.0.len()].copy_from_slice(&ipv4.options.0),
        Header::Ipv6(ipv6) => extensions::write(&ipv6.extensions, bytes),
        Header::Vxlan(_) => bytes[0] = VXLAN_VALID,
        Header::Tcp(tcp) => bytes[20..][..tcp.options.0.len()].copy_from_slice(&tcp.options.0),
        Header::Gre(gre) => {
            let flag = |there: bool, flag: u8| if there { flag } else { 0 };
            bytes[0] = flag(gre.checksum_present || gre.checksum.is_some(), GRE_CHECKSUM)
                | flag(gre.key.is_some(), GRE_KEY)
                | flag(gre.sequence_number.is_some(), GRE_SEQUENCE);
        }
        _ => {}
    }
}

/// Writes the fields of header `index` and records their places.
fn fields(headers: &[Header], index: usize, compiled: &mut Compiled) -> Result<(), StackError> {
    let (header, next) = (&headers[index], headers.get(index + 1).map(Header::kind));
    let layer = compiled.layers[index];
    if let Header::IcmpEcho(echo) = header {
        let types = if headers[index - 1].kind() == HeaderKind::Ipv6 { ECHO6 } else { ECHO };
        compiled.bytes[layer.offset()] = types[usize::from(echo.reply)];
    }
    for (name, given) in header.fields() {
        let Some(place) = compiled.layers.place(&compiled.bytes, index, name) else { continue };
        let value = match given {
            Some(field) => field.bits(0),
            // The tag has already written its TPID here.
            None if name == FieldName::Ethertype && next == Some(HeaderKind::Vlan) => continue,
            None => match automatic(header.kind(), name, next, &layer) {
                Ok(value) => value,
                Err(cause) => return Err(StackError { header: index, kind: Some(header.kind()), cause }),
            },
        };
        place.write(&mut compiled.bytes, value);
        compiled.fields.push(place);
    }
    Ok(())
}

/// Returns the value of a field that is not specified; 0 for checksums, which are written last.
fn automatic(kind: HeaderKind, name: FieldName, next: Option<HeaderKind>, layer: &Layer) -> Result<u128, Cause> {
    let contents = layer.end() - layer.offset();
    Ok(match (kind, name) {
        (HeaderKind::Ethernet | HeaderKind::Vlan, FieldName::Ethertype) | (HeaderKind::Gre, FieldName::Protocol) => {
            ethertype(next).ok_or(Cause::NoType(name))?.into()
        }
        (HeaderKind::Ipv4 | HeaderKind::Ipv6, FieldName::Protocol | FieldName::NextHeader) => {
            protocol(kind, next).ok_or(Cause::NoType(name))?.into()
        }
        (_, FieldName::Tpid) => if next == Some(HeaderKind::Vlan) { SERVICE_VLAN } else { VLAN }.into(),
        (_, FieldName::BottomOfStack) => (next != Some(HeaderKind::Mpls)).into(),
        (HeaderKind::Ipv4, FieldName::Version) => 4,
        (_, FieldName::Version) => 6,
        (_, FieldName::HeaderLength | FieldName::DataOffset) => layer.length() as u128 / 4,
        (_, FieldName::TotalLength | FieldName::Length) => contents as u128,
        (_, FieldName::PayloadLength) => (contents - ipv6::LEN) as u128,
        (_, FieldName::Checksum | FieldName::HeaderChecksum) => 0,
        (_, field) => return Err(Cause::NoAddress(field)),
    })
}

fn ethertype(next: Option<HeaderKind>) -> Option<u16> {
    match next? {
        HeaderKind::Ipv4 => Some(IPV4),
        HeaderKind::Ipv6 => Some(IPV6),
        HeaderKind::Mpls => Some(MPLS),
        HeaderKind::Ethernet => Some(BRIDGING),
        _ => None,
    }
}

fn protocol(kind: HeaderKind, next: Option<HeaderKind>) -> Option<u8> {
    match next? {
        HeaderKind::Ipv4 => Some(IPV4_IN_IP),
        HeaderKind::Ipv6 => Some(IPV6_IN_IP),
        HeaderKind::Gre => Some(GRE),
        HeaderKind::Udp => Some(UDP),
        HeaderKind::Tcp => Some(TCP),
        HeaderKind::IcmpEcho if kind == HeaderKind::Ipv6 => Some(ICMPV6),
        HeaderKind::IcmpEcho => Some(ICMP),
        _ => None,
    }
}
