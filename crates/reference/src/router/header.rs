//! What the data plane looks at in a frame, and what a fault changes there.

use super::routing::TCP;
use drophammer_wire::ipv4::protocol;
use drophammer_wire::{checksum, ethernet, ipv4, ipv6, udp};
use std::net::Ipv4Addr;

/// Where the IP header starts.
pub(super) const IP: usize = ethernet::LEN;

/// Addresses that are neither source nor destination of anything that is forwarded: "this network", loopback, multicast,
/// reserved.
pub(super) fn is_special4(address: Ipv4Addr) -> bool {
    matches!(address.octets()[0], 0 | 127 | 224..)
}

/// The codepoint of an IP packet.
pub(super) fn dscp(frame: &[u8]) -> u8 {
    if frame[12] == 0x08 { frame[IP + 1] >> 2 } else { (frame[IP] << 4 | frame[IP + 1] >> 4) >> 2 }
}

/// The destination port of a TCP or UDP packet.
pub(super) fn port_at(protocol: u8, payload: &[u8]) -> Option<u16> {
    let ports: &[u8; 4] = payload.first_chunk()?;
    matches!(protocol, TCP | protocol::UDP).then_some(u16::from_be_bytes([ports[2], ports[3]]))
}

/// Where the UDP header of a whole, well-formed test frame starts.
#[inline(always)]
pub(super) fn udp_at(frame: &[u8]) -> Option<usize> {
    let frame: &[u8; IP + ipv4::LEN] = frame.first_chunk()?;
    let at = match frame[12..14] {
        [0x08, 0x00] => {
            let fragment = u16::from_be_bytes([frame[IP + 6], frame[IP + 7]]) & 0x3fff != 0;
            let header = usize::from(frame[IP] & 15) * 4;
            let total = usize::from(u16::from_be_bytes([frame[IP + 2], frame[IP + 3]]));
            (frame[IP + 9] == protocol::UDP && !fragment && total >= header + udp::LEN).then_some(IP + header)?
        }
        _ => {
            let payload = usize::from(u16::from_be_bytes([frame[IP + 4], frame[IP + 5]]));
            (frame[IP + 6] == protocol::UDP && payload >= udp::LEN).then_some(IP + ipv6::LEN)?
        }
    };
    Some(at)
}

/// Inverts all bits of one payload byte; false when there is no payload.
pub(super) fn flip(datagram: &mut [u8], offset: usize, fix_checksum: bool) -> bool {
    let length = usize::from(u16::from_be_bytes([datagram[4], datagram[5]])).min(datagram.len());
    let Some(payload) = length.checked_sub(udp::LEN).filter(|l| *l > 0) else { return false };
    let at = udp::LEN + offset % payload;
    let word = |d: &[u8]| {
        let even = at & !1;
        // The last byte of an odd length is summed with a zero behind it.
        u16::from_be_bytes([d[even], if even + 1 < length { d[even + 1] } else { 0 }])
    };
    let before = word(datagram);
    datagram[at] ^= 0xff;
    let after = word(datagram);
    let field = u16::from_be_bytes([datagram[6], datagram[7]]);
    if fix_checksum && field != 0 {
        let field = match checksum::update(field, before, after) {
            0 => 0xffff,
            field => field,
        };
        datagram[6..8].copy_from_slice(&field.to_be_bytes());
    }
    true
}
