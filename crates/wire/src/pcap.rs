//! Capture files as written by tcpdump and Wireshark: pcap (draft-ietf-opsawg-pcap) and pcapng (draft-ietf-opsawg-pcapng).
//!
//! # Captures
//!
//! `wire/src/pcap.rs` reads a file. `rig/src/templates.rs` turns its frames into templates for `blast --pcap`: the
//! headers without the fields that differ from packet to packet.

use crate::ethernet::{self, ethertype};
use std::borrow::Cow;
use std::fmt;

/// Number of bytes before the first frame.
const FILE_HEADER: usize = 24;
/// Number of bytes before each frame.
const FRAME_HEADER: usize = 16;
/// Magic numbers of files with times in microseconds and in nanoseconds.
const MAGIC: [u32; 2] = [0xa1b2_c3d4, 0xa1b2_3c4d];
/// Longest valid frame.
const LONGEST: u32 = 262_144;

/// The reason why a file cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcapError {
    /// The file starts with neither a pcap nor a pcapng header.
    Format,
    /// No frame has a link type that can be converted to Ethernet. Contains the link type of the first frame.
    LinkType(u32),
    /// The file ends within a frame, or within a block of pcapng. Contains the number of the frame, from 1.
    Cut(usize),
    /// A frame or a block of pcapng has an invalid length. Contains the number of the frame, from 1.
    Length(usize),
}

impl fmt::Display for PcapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PcapError::Format => f.write_str("it is not a capture file; write one with `tcpdump -w FILE`"),
            PcapError::LinkType(found) => {
                write!(
                    f,
                    "its frames have link type {found}; capture on an Ethernet interface (link type 1), on `any`, or on an interface \
                     with bare IP packets"
                )
            }
            PcapError::Cut(frame) => {
                write!(f, "it ends within frame {frame}; capture it again, or repair it with `editcap`")
            }
            PcapError::Length(frame) => write!(f, "frame {frame} has an impossible length; the file is damaged"),
        }
    }
}

impl std::error::Error for PcapError {}

/// A captured frame without FCS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'a> {
    /// The captured bytes.
    pub bytes: &'a [u8],
    /// Length of the frame on the line. It is larger than the number of captured bytes if the capture truncated the frame.
    pub length: usize,
    /// Link type, which determines the first header. [`ethernet()`] turns the bytes into an Ethernet frame.
    pub link: u32,
}

/// Reads a number of four bytes; 0 beyond the end.
fn word(bytes: &[u8], at: usize, big: bool) -> u32 {
    let bytes = bytes.get(at..at + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok()).unwrap_or_default();
    if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

/// Returns the frames of a file, in order.
///
/// # Errors
/// [`PcapError`]. The lengths in the file are not trusted: nothing is read beyond its end.
pub fn frames(file: &[u8]) -> Result<Vec<Captured<'_>>, PcapError> {
    let found = if file.starts_with(&SECTION) { next_generation(file)? } else { classic(file)? };
    match found.first() {
        Some(first) if !found.iter().any(|frame| is_known(frame.link)) => Err(PcapError::LinkType(first.link)),
        _ => Ok(found),
    }
}

/// Returns the frames of a pcap file.
fn classic(file: &[u8]) -> Result<Vec<Captured<'_>>, PcapError> {
    let head = file.first_chunk::<FILE_HEADER>().ok_or(PcapError::Format)?;
    let big = match [false, true].into_iter().find(|big| MAGIC.contains(&word(head, 0, *big))) {
        Some(big) => big,
        None => return Err(PcapError::Format),
    };
    // The upper bits contain whether there is an FCS, and its length.
    let link = word(head, 20, big) & 0xffff;
    let mut found = Vec::new();
    let mut rest = &file[FILE_HEADER..];
    while !rest.is_empty() {
        let number = found.len() + 1;
        if rest.len() < FRAME_HEADER {
            return Err(PcapError::Cut(number));
        }
        let (kept, length) = (word(rest, 8, big), word(rest, 12, big));
        found.push(frame(&rest[FRAME_HEADER..], kept, length, link, number)?);
        rest = &rest[FRAME_HEADER + kept as usize..];
    }
    Ok(found)
}

/// Returns the frame at the front of `bytes`. The capture contains `kept` of its `length` bytes.
fn frame(bytes: &[u8], kept: u32, length: u32, link: u32, number: usize) -> Result<Captured<'_>, PcapError> {
    if kept > LONGEST || length > LONGEST || kept > length {
        return Err(PcapError::Length(number));
    }
    let bytes = bytes.get(..kept as usize).ok_or(PcapError::Cut(number))?;
    Ok(Captured { bytes, length: length as usize, link })
}

// pcapng consists of blocks with a type, and their length at both ends, in sections that each have their own byte order.

/// Type of the block that starts a section. It is the same in both byte orders.
const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Word after type and length of such a block, in the byte order of the section.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// Types of blocks: an interface description, and a packet in three forms.
const INTERFACE: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
/// Number of bytes of a block in addition to its body: type, length, and length again.
const AROUND: usize = 12;

/// Returns the frames of a pcapng file. Blocks without frames are skipped.
fn next_generation(file: &[u8]) -> Result<Vec<Captured<'_>>, PcapError> {
    let mut found: Vec<Captured<'_>> = Vec::new();
    // Link type and snap length of each interface of the section.
    let mut interfaces: Vec<(u32, u32)> = Vec::new();
    let (mut rest, mut big) = (file, false);
    while !rest.is_empty() {
        let number = found.len() + 1;
        if rest.starts_with(&SECTION) {
            big = match [false, true].into_iter().find(|big| word(rest, 8, *big) == BYTE_ORDER) {
                Some(big) => big,
                None => return Err(PcapError::Format),
            };
            interfaces.clear();
        }
        let length = word(rest, 4, big) as usize;
        if rest.len() < AROUND {
            return Err(PcapError::Cut(number));
        }
        if length < AROUND || !length.is_multiple_of(4) {
            return Err(PcapError::Length(number));
        }
        let block = rest.get(..length).ok_or(PcapError::Cut(number))?;
        let body = &block[8..length - 4];
        // Interface, captured and original length, and offset of the frame. Half words also have the byte order of the section.
        let half = |at: usize| if big { word(body, at, big) >> 16 } else { word(body, at, big) & 0xffff };
        let packet = match word(block, 0, big) {
            INTERFACE => {
                interfaces.push((half(0), word(body, 4, big)));
                None
            }
            ENHANCED_PACKET => Some((word(body, 0, big), word(body, 12, big), word(body, 16, big), 20)),
            PACKET => Some((half(0), word(body, 12, big), word(body, 16, big), 20)),
            SIMPLE_PACKET => {
                let original = word(body, 0, big);
                let snap = interfaces.first().map_or(0, |(_, snap)| *snap);
                let most = if snap == 0 { u32::MAX } else { snap };
                Some((0, original.min(most).min(body.len().saturating_sub(4) as u32), original, 4))
            }
            _ => None,
        };
        if let Some((interface, kept, original, at)) = packet {
            let (link, _) = *interfaces.get(interface as usize).ok_or(PcapError::Length(number))?;
            let bytes = body.get(at..).ok_or(PcapError::Length(number))?;
            found.push(frame(bytes, kept, original, link, number)?);
        }
        rest = &rest[length..];
    }
    Ok(found)
}

// Link types, and how they are converted to Ethernet.

/// Link type of Ethernet.
const ETHERNET: u32 = 1;
/// BSD loopback interface: the address family precedes the packet, in the byte order of the host or of the network.
const LOOPBACK: [u32; 2] = [0, 108];
/// Bare IP packets: of either version (101, or 12 and 14 on some systems), IPv4, IPv6.
const RAW: [u32; 5] = [12, 14, 101, 228, 229];
/// Linux interface `any`: 16 bytes, where the last two are the EtherType.
const COOKED: u32 = 113;
/// Second version of [`COOKED`]: 20 bytes, where the first two are the EtherType.
const COOKED_2: u32 = 276;

/// True if [`ethernet()`] supports this link type.
fn is_known(link: u32) -> bool {
    link == ETHERNET || LOOPBACK.contains(&link) || RAW.contains(&link) || link == COOKED || link == COOKED_2
}

/// Returns the captured bytes as an Ethernet frame, and its length on the line. A frame of another link type gets an
/// Ethernet header that matches its contents, with addresses of zeros.
///
/// # Errors
/// The reason why the frame cannot be converted.
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

/// Returns the EtherType of an IP packet by its first bits.
fn version(packet: Option<&[u8]>) -> Option<u16> {
    match packet?.first()? >> 4 {
        4 => Some(ethertype::IPV4),
        6 => Some(ethertype::IPV6),
        // Not IP. Callers that build templates leave it out.
        _ => Some(0xffff),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Builds a capture file from frames, each with its length on the line.
    fn file(magic: u32, big: bool, link: u32, frames: &[(&[u8], u32)]) -> Vec<u8> {
        let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let mut bytes = [magic, 0, 0, 0, 65_535, link].into_iter().flat_map(word).collect::<Vec<u8>>();
        for (frame, length) in frames {
            bytes.extend([1, 2, frame.len() as u32, *length].into_iter().flat_map(word));
            bytes.extend_from_slice(frame);
        }
        bytes
    }

    #[test]
    fn both_byte_orders_and_both_clocks_are_read() {
        for (magic, big) in MAGIC.into_iter().flat_map(|magic| [(magic, false), (magic, true)]) {
            let bytes = file(magic, big, ETHERNET, &[(&[1; 60], 60), (&[2; 96], 1_500), (&[], 0)]);
            let found = frames(&bytes).unwrap();
            let seen: Vec<_> = found.iter().map(|frame| (frame.bytes.len(), frame.length)).collect();
            assert_eq!(seen, [(60, 60), (96, 1_500), (0, 0)]);
            assert_eq!(found[1].bytes[0], 2);
        }
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let good = file(MAGIC[0], false, ETHERNET, &[(&[1; 60], 60), (&[2; 60], 60)]);
        assert_eq!(frames(&good[..good.len() - 1]), Err(PcapError::Cut(2)));
        assert_eq!(frames(&good[..FILE_HEADER + 3]), Err(PcapError::Cut(1)));
        assert_eq!(frames(b"not a capture, but long enough for one"), Err(PcapError::Format));
        assert_eq!(frames(&[]), Err(PcapError::Format));
        assert_eq!(frames(&file(MAGIC[0], false, 105, &[(&[1; 60], 60)])), Err(PcapError::LinkType(105)));
        assert_eq!(frames(&file(MAGIC[0], false, ETHERNET, &[(&[1; 60], 59)])), Err(PcapError::Length(1)));
        for error in [PcapError::Format, PcapError::LinkType(105), PcapError::Cut(1)] {
            assert!(error.to_string().contains("capture") || error.to_string().contains("editcap"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), magic in 0..3usize) {
            let mut bytes = bytes;
            if let Some(magic) = MAGIC.get(magic) && bytes.len() >= FILE_HEADER {
                bytes[..4].copy_from_slice(&magic.to_le_bytes());
                bytes[20..24].copy_from_slice(&ETHERNET.to_le_bytes());
            }
            if let Ok(found) = frames(&bytes) {
                let kept: usize = found.iter().map(|frame| frame.bytes.len() + FRAME_HEADER).sum();
                prop_assert_eq!(kept + FILE_HEADER, bytes.len());
            }
        }
    }

    fn block(kind: u32, body: &[u8], big: bool) -> Vec<u8> {
        let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
        let length = word((AROUND + body.len() + padding.len()) as u32);
        [&word(kind)[..], &length, body, &padding, &length].concat()
    }

    /// Builds a section with two interfaces, Ethernet and SLL, and a frame in each form of a packet.
    fn section(big: bool) -> Vec<u8> {
        let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let half = |value: u16| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let words = |values: &[u32]| values.iter().flat_map(|value| word(*value)).collect::<Vec<u8>>();
        let interface = |link: u16, snap: u32| [&half(link)[..], &half(0), &word(snap)].concat();
        [
            block(u32::from_le_bytes(SECTION), &[&words(&[BYTE_ORDER])[..], &[1, 0, 0, 0], &[0xff; 8]].concat(), big),
            block(INTERFACE, &interface(1, 0), big),
            block(INTERFACE, &interface(113, 96), big),
            // A block with host names, not a frame.
            block(4, &[9; 10], big),
            block(ENHANCED_PACKET, &[&words(&[1, 7, 8, 5, 1_500])[..], &[5; 5]].concat(), big),
            block(PACKET, &[&half(0)[..], &half(0), &words(&[7, 8, 3, 3]), &[3; 3]].concat(), big),
            block(SIMPLE_PACKET, &[&words(&[6])[..], &[6; 6]].concat(), big),
        ]
        .concat()
    }

    #[test]
    fn frames_of_all_blocks_in_both_byte_orders_are_read() {
        let one = [(5, 1_500, 113), (3, 3, 1), (6, 6, 1)];
        for file in [section(false), section(true), [section(true), section(false)].concat()] {
            let found = frames(&file).unwrap();
            let seen: Vec<_> = found.iter().map(|frame| (frame.bytes.len(), frame.length, frame.link)).collect();
            assert_eq!(seen, one.repeat(found.len() / 3));
            assert!(found.iter().all(|frame| frame.bytes.iter().all(|b| usize::from(*b) == frame.bytes.len())));
        }
    }

    #[test]
    fn damaged_pcapng_files_are_refused() {
        let good = section(false);
        let ends: Vec<usize> = {
            let mut at = 0;
            std::iter::from_fn(|| {
                at += word(&good, at + 4, false) as usize;
                (at <= good.len() && at > 0).then_some(at)
            })
            .take_while(|end| *end < good.len())
            .collect()
        };
        for end in (12..good.len()).filter(|end| !ends.contains(end)) {
            assert!(matches!(next_generation(&good[..end]), Err(PcapError::Cut(_))), "{end}");
        }
        let mut wrong = good.clone();
        wrong[8] = 0;
        assert_eq!(next_generation(&wrong), Err(PcapError::Format));
        let orphan = [&good[..28], &block(ENHANCED_PACKET, &[0; 20], false)].concat();
        assert_eq!(next_generation(&orphan), Err(PcapError::Length(1)), "no interface");
    }

    proptest! {
        #[test]
        fn a_damaged_pcapng_file_is_read_or_refused(change in any::<(prop::sample::Index, u8)>(), end in any::<prop::sample::Index>(), big: bool) {
            let mut file = section(big);
            let at = change.0.index(file.len());
            file[at] ^= change.1;
            let end = end.index(file.len() + 1);
            if let Ok(found) = next_generation(&file[..end]) {
                prop_assert!(found.len() <= 3 && found.iter().map(|frame| frame.bytes.len()).sum::<usize>() <= file.len());
            }
        }
    }

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
        // Captured bytes that are shorter than the header.
        assert!(ethernet(&Captured { bytes: &[0; 16], length: 3, link: 113 }).is_err());
    }
}
