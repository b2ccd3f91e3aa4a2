//! Link types of captures, and the Ethernet frames that they stand for.

use super::Captured;
use crate::ethernet;
use crate::ethernet::ethertype;
use std::borrow::Cow;

/// Ethernet.
pub(super) const ETHERNET: u32 = 1;
/// A loopback interface of BSD: the address family in the byte order of the host, or of the network, before the packet.
const LOOPBACK: [u32; 2] = [0, 108];
/// Bare IP packets: of either version (101, and 12 and 14 of some systems), IPv4, IPv6.
const RAW: [u32; 5] = [12, 14, 101, 228, 229];
/// The interface `any` of Linux: 16 bytes, the last two are the EtherType.
const COOKED: u32 = 113;
/// The second version of it: 20 bytes, the first two are the EtherType.
const COOKED_2: u32 = 276;

/// Whether [`ethernet()`] knows this link type.
pub(super) fn is_known(link: u32) -> bool {
    link == ETHERNET || LOOPBACK.contains(&link) || RAW.contains(&link) || link == COOKED || link == COOKED_2
}

/// The captured bytes as an Ethernet frame, and its length on the line. A frame of another link type gets the Ethernet header that its
/// contents need, with addresses of zeros.
///
/// # Errors
/// The reason why there is none.
pub fn ethernet<'a>(frame: &Captured<'a>) -> Result<(Cow<'a, [u8]>, usize), &'static str> {
    const SHORT: &str = "cut off before its IP header";
    let word = |at: usize| frame.bytes.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes));
    let (header, kind) = match frame.link {
        ETHERNET => return Ok((frame.bytes.into(), frame.length)),
        COOKED => (16, word(14)),
        COOKED_2 => (20, word(0)),
        link if LOOPBACK.contains(&link) => (4, version(frame.bytes.get(4..))),
        link if RAW.contains(&link) => (0, version(Some(frame.bytes))),
        _ => return Err("of a link type without Ethernet, IP or a known header"),
    };
    let (kind, packet) = kind.zip(frame.bytes.get(header..)).ok_or(SHORT)?;
    let mut whole = vec![0; ethernet::LEN - 2];
    whole.extend(kind.to_be_bytes());
    whole.extend_from_slice(packet);
    let length = frame.length.checked_sub(header).ok_or(SHORT)? + ethernet::LEN;
    Ok((whole.into(), length.max(ethernet::MIN_WITHOUT_FCS)))
}

/// The EtherType of an IP packet by its first bits.
fn version(packet: Option<&[u8]>) -> Option<u16> {
    match packet?.first()? >> 4 {
        4 => Some(ethertype::IPV4),
        6 => Some(ethertype::IPV6),
        // Left out later as no IP packet.
        _ => Some(0xffff),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_link_type_gives_the_ethernet_frame_of_its_packet() {
        let packet = [&[0x45, 0, 0, 60][..], &[7; 56]].concat();
        let six = [&[0x60, 0, 0, 0][..], &[7; 56]].concat();
        let tagged = [&[0, 100, 8, 0][..], &packet].concat();
        let cooked = |kind: u16| [&[0; 14][..], &kind.to_be_bytes()].concat();
        let cooked_2 = |kind: u16| [&kind.to_be_bytes()[..], &[0; 18]].concat();
        for (link, header, contents, kind) in [
            (113, cooked(0x0800), &packet, 0x0800u16),
            (113, cooked(0x8100), &tagged, 0x8100),
            (276, cooked_2(0x86dd), &six, 0x86dd),
            (276, cooked_2(0x0806), &packet, 0x0806),
            (101, vec![], &packet, 0x0800),
            (12, vec![], &six, 0x86dd),
            (228, vec![], &packet, 0x0800),
            (229, vec![], &six, 0x86dd),
            (0, vec![2, 0, 0, 0], &packet, 0x0800),
            (108, vec![0, 0, 0, 30], &six, 0x86dd),
        ] {
            assert!(is_known(link));
            let bytes = [header.as_slice(), contents].concat();
            let frame = Captured { bytes: &bytes, length: bytes.len() + 9, link };
            let (whole, length) = ethernet(&frame).unwrap();
            assert_eq!((&whole[14..], length), (&contents[..], contents.len() + 14 + 9), "{link}");
            assert_eq!(whole[12..14], kind.to_be_bytes(), "{link}");
            (0..header.len()).for_each(|end| {
                let cut = Captured { bytes: &bytes[..end], length: bytes.len(), link };
                assert!(ethernet(&cut).is_err(), "{link}, {end}");
            });
        }
        let bytes = [1, 2, 3];
        assert!(ethernet(&Captured { bytes: &bytes, length: 3, link: 105 }).is_err() && !is_known(105));
        assert_eq!(ethernet(&Captured { bytes: &bytes, length: 3, link: 1 }).unwrap(), ((&bytes[..]).into(), 3));
        // Captured shorter than its own header.
        assert!(ethernet(&Captured { bytes: &[0; 16], length: 3, link: 113 }).is_err());
    }
}
