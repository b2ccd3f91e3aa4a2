//! The fields of a frame that the data plane reads or a fault changes.

use super::routing::TCP;
use drophammer_model::traffic::HeaderKind;
use drophammer_wire::ipv4::protocol;
use drophammer_wire::stack::{Checksum, ChecksumKind, Stop, locate};
use drophammer_wire::{ethernet, ipv4, udp};
use std::net::Ipv4Addr;

/// Position of the tags in a frame.
pub(super) const TAGS: usize = 12;
/// Position of the IP header in a frame without tags.
pub(super) const IP: usize = ethernet::LEN;

/// Addresses that no forwarded packet may have: "this network", loopback, multicast, reserved.
pub(super) fn is_special4(address: Ipv4Addr) -> bool {
    matches!(address.octets()[0], 0 | 127 | 224..)
}

/// True if these options contain a loose (131) or strict (137) source route.
#[cold]
pub(super) fn has_source_route(mut options: &[u8]) -> bool {
    loop {
        match options {
            [131 | 137, ..] => return true,
            // The option "no operation" has no length.
            [1, rest @ ..] => options = rest,
            [kind, length, ..] if *kind != 0 && *length >= 2 => {
                let Some(rest) = options.get(usize::from(*length)..) else { return false };
                options = rest;
            }
            _ => return false,
        }
    }
}

/// The codepoint of an IP packet; 0 for a packet with labels.
pub(super) fn dscp(frame: &[u8]) -> u8 {
    match frame[12] {
        0x08 => frame[IP + 1] >> 2,
        0x86 => (frame[IP] << 4 | frame[IP + 1] >> 4) >> 2,
        _ => 0,
    }
}

/// Number of bytes of the tags in a frame that is ready for its line.
fn tag_bytes(frame: &[u8]) -> usize {
    let is_tag = |at: usize| matches!(frame.get(at..at + 2), Some([0x81, 0] | [0x88, 0xa8]));
    (0..).map(|n| 4 * n).find(|n| !is_tag(TAGS + n)).unwrap_or(0)
}

/// The codepoint of the packet in a frame that is ready for its line; 0 if it has none.
pub(super) fn dscp_on_line(frame: &[u8]) -> u8 {
    let untagged = &frame[tag_bytes(frame)..];
    if untagged.len() > IP + 1 { dscp(untagged) } else { 0 }
}

/// The contents of a frame that is ready for its line.
pub(super) fn contents_on_line(frame: &[u8]) -> Contents {
    contents(&frame[tag_bytes(frame)..])
}

/// The destination port of a TCP or UDP packet.
pub(super) fn port_at(protocol: u8, payload: &[u8]) -> Option<u16> {
    let ports: &[u8; 4] = payload.first_chunk()?;
    matches!(protocol, TCP | protocol::UDP).then_some(u16::from_be_bytes([ports[2], ports[3]]))
}

/// The contents of a transit frame, as faults and departures distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// A datagram, which no station answers.
    Datagram,
    /// TCP, ICMP echo, or any transport protocol after more than one IP header and its options.
    Transport,
    /// Fragments, other protocols, and unreadable frames.
    Other,
}

/// True if this next header is an extension header: hop-by-hop options, routing, fragment or destination options.
pub(super) fn is_extension(next_header: u8) -> bool {
    matches!(next_header, 0 | 43 | 44 | 60)
}

/// The contents of a frame without tags.
#[inline(always)]
pub(super) fn contents(frame: &[u8]) -> Contents {
    if is_datagram(frame) { Contents::Datagram } else { contents_by_layers(frame) }
}

#[cold]
fn contents_by_layers(frame: &[u8]) -> Contents {
    if locate(frame).stop() == Stop::Transport { Contents::Transport } else { Contents::Other }
}

/// A fast check for the most frequent frames: UDP after an IP header without extensions.
#[inline(always)]
fn is_datagram(frame: &[u8]) -> bool {
    let Some(frame) = frame.first_chunk::<{ IP + ipv4::LEN }>() else { return false };
    if frame[12..14] == [0x08, 0x00] {
        let fragment = u16::from_be_bytes([frame[IP + 6], frame[IP + 7]]) & 0x3fff != 0;
        let header = usize::from(frame[IP] & 15) * 4;
        let total = usize::from(u16::from_be_bytes([frame[IP + 2], frame[IP + 3]]));
        frame[IP + 9] == protocol::UDP && !fragment && total >= header + udp::LEN
    } else if frame[12] == 0x86 {
        let payload = usize::from(u16::from_be_bytes([frame[IP + 4], frame[IP + 5]]));
        frame[IP + 6] == protocol::UDP && payload >= udp::LEN
    } else {
        // Labels.
        false
    }
}

/// The bytes of the tags after the MAC addresses; empty if there are none.
pub(super) fn tags(frame: &[u8]) -> &[u8] {
    let layers = locate(frame);
    let last = layers.iter().skip(1).take_while(|layer| layer.kind == HeaderKind::Vlan).last();
    // A tag starts two bytes before its header, with the type.
    last.map_or(&[], |tag| &frame[TAGS..tag.offset() + 2])
}

/// Inverts all bits of one payload byte; false when there is no payload.
pub(super) fn flip(frame: &mut [u8], offset: usize, fix_checksum: bool) -> bool {
    let layers = locate(frame);
    let payload = layers.payload();
    if payload.is_empty() {
        return false;
    }
    let wrong: Vec<usize> = layers.wrong_checksums(frame).map(|c| c.header).collect();
    let absent = |c: &Checksum, frame: &[u8]| c.kind == ChecksumKind::Udp && frame[c.at..c.at + 2] == [0, 0];
    let right: Vec<_> = layers.checksums(frame).filter(|c| !wrong.contains(&c.header) && !absent(c, frame)).collect();
    frame[payload.start + offset % payload.len()] ^= 0xff;
    if fix_checksum {
        right.iter().for_each(|checksum| checksum.write(frame));
    }
    true
}
