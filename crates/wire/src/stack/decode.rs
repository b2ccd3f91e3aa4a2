//! Decodes bytes into a stack of headers with their values, for display.

use super::compile::{Payload, compile};
use super::extensions;
use super::locate::{Layer, Layers, is_ip, locate};
use super::number::{ECHO, ECHO6, GRE_CHECKSUM};
use super::place::entries;
use crate::{ethernet, ipv4};
use drophammer_model::size::FrameSize;
use drophammer_model::traffic::{
    Ethernet, FieldName, Gre, Header, HeaderKind, IcmpEcho, Ipv4, Ipv6, Mpls, Octets, Raw, Tcp, Udp, Vlan, Vxlan,
};

/// A frame as a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The frame's headers, followed by the payload as raw bytes. A type, length or checksum is `None` if it has the
    /// value that [`compile`] would write.
    pub headers: Vec<Header>,
    /// Size of the outermost IP packet if only padding follows it, otherwise size of the frame.
    pub size: FrameSize,
}

/// Decodes a frame without FCS. A frame shorter than 60 bytes is treated as if it were padded.
///
/// [`compile`] rebuilds the same bytes from the result, whatever they are: headers that it could not rebuild stay raw
/// bytes. A frame of more than 65,531 bytes becomes raw bytes as a whole.
pub fn decode(frame: &[u8]) -> Decoded {
    let mut whole = frame.to_vec();
    whole.resize(whole.len().max(ethernet::MIN_WITHOUT_FCS), 0);
    let layers = locate(&whole);
    let found = (1..=layers.len()).rev().find_map(|keep| again(&whole, &layers, keep));
    found.unwrap_or_else(|| Decoded {
        headers: vec![Header::Raw(Raw { bytes: Octets(frame.to_vec()) })],
        size: FrameSize::Frame(u16::try_from(frame.len() + 4).unwrap_or(u16::MAX)),
    })
}

/// Returns the description with the outermost `keep` headers, if it rebuilds the same frame.
fn again(frame: &[u8], layers: &Layers, keep: usize) -> Option<Decoded> {
    let last = layers.get(keep - 1)?;
    let packet_end = layers[..keep].iter().find(|l| is_ip(l.kind)).map(|ip| (ip.offset(), ip.end()));
    let (size, end) = match packet_end {
        Some((at, end))
            if frame.len() == end.max(ethernet::MIN_WITHOUT_FCS) && frame[end..].iter().all(|b| *b == 0) =>
        {
            (FrameSize::Ip((end - at) as u16), end)
        }
        _ => (FrameSize::Frame(u16::try_from(frame.len() + 4).ok()?), frame.len()),
    };
    let mut headers: Vec<Header> = layers[..keep].iter().map(|layer| header(frame, layer)).collect();
    for (i, header) in headers.iter_mut().enumerate() {
        for entry in entries(header.kind()).iter().filter(|entry| !entry.automatic) {
            if let Some(place) = layers.place(frame, i, entry.name) {
                header.set(entry.name, place.read(frame)?);
            }
        }
    }
    // Raw bytes do not determine the type field of the header before them.
    for name in [FieldName::Ethertype, FieldName::Protocol, FieldName::NextHeader] {
        if let Some(place) = layers.place(frame, keep - 1, name) {
            headers[keep - 1].set(name, place.read(frame)?);
        }
    }
    let rest = frame.get(last.offset() + last.length()..end)?;
    if !rest.is_empty() {
        headers.push(Header::Raw(Raw { bytes: Octets(rest.to_vec()) }));
    }
    let make = |headers: &[Header]| compile(headers, size, Payload::Plain(&|_| {})).ok();
    let compiled = make(&headers)?;
    for place in &compiled.fields {
        let value = place.read(frame)?;
        if place.read(&compiled.bytes)? != value {
            headers[place.header].set(place.field, value);
        }
    }
    (compiled.bytes == frame || make(&headers)?.bytes == frame).then_some(Decoded { headers, size })
}

/// Returns a header of this kind with the parts that are not fields: options, extension headers, flags for optional parts.
fn header(frame: &[u8], layer: &Layer) -> Header {
    let bytes = &frame[layer.offset()..layer.offset() + layer.length()];
    let options = |fixed: usize| Octets(bytes.get(fixed..).unwrap_or_default().to_vec());
    match layer.kind {
        HeaderKind::Ethernet => Header::Ethernet(Ethernet::default()),
        HeaderKind::Vlan => Header::Vlan(Vlan::default()),
        HeaderKind::Mpls => Header::Mpls(Mpls::default()),
        HeaderKind::Ipv4 => Header::Ipv4(Ipv4 { options: options(ipv4::LEN), ..Ipv4::default() }),
        HeaderKind::Ipv6 => Header::Ipv6(Ipv6 { extensions: extensions::read(bytes), ..Ipv6::default() }),
        HeaderKind::Gre => Header::Gre(Gre { checksum_present: bytes[0] & GRE_CHECKSUM != 0, ..Gre::default() }),
        HeaderKind::Vxlan => Header::Vxlan(Vxlan::default()),
        HeaderKind::Udp => Header::Udp(Udp::default()),
        HeaderKind::Tcp => Header::Tcp(Tcp { options: options(20), ..Tcp::default() }),
        HeaderKind::IcmpEcho => {
            Header::IcmpEcho(IcmpEcho { reply: [ECHO[1], ECHO6[1]].contains(&bytes[0]), ..IcmpEcho::default() })
        }
        HeaderKind::Raw => Header::Raw(Raw { bytes: options(0) }),
    }
}
