//! Capture files as written by tcpdump and Wireshark: pcap (draft-ietf-opsawg-pcap) and pcapng (draft-ietf-opsawg-pcapng).
//!
//! # Captures
//!
//! `wire/src/pcap.rs` reads a file. `rig/src/templates.rs` makes templates of its frames for `blast --pcap`: the
//! headers, without the fields that differ from packet to packet.

mod link;
mod next;

pub use link::ethernet;
use std::fmt;

/// Bytes before the first frame.
const FILE_HEADER: usize = 24;
/// Bytes before each frame.
const FRAME_HEADER: usize = 16;
/// Magic numbers of files with times in microseconds and in nanoseconds.
const MAGIC: [u32; 2] = [0xa1b2_c3d4, 0xa1b2_3c4d];
/// Largest valid length of a frame.
const LONGEST: u32 = 262_144;

/// Why a file cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcapError {
    /// The file begins with neither a pcap nor a pcapng header.
    Format,
    /// All frames are of a link type from which no Ethernet frame can be made; the link type.
    LinkType(u32),
    /// The file ends within a frame, or within a block of pcapng; the number of the frame, from 1.
    Cut(usize),
    /// A frame or a block of pcapng has an invalid length; the number of the frame, from 1.
    Length(usize),
}

impl fmt::Display for PcapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PcapError::Format => f.write_str("it is no capture; write one with `tcpdump -w FILE`"),
            PcapError::LinkType(found) => {
                write!(
                    f,
                    "its frames are of link type {found}; capture on an Ethernet interface (link type 1), on `any`, or on an interface \
                     with bare IP packets"
                )
            }
            PcapError::Cut(frame) => {
                write!(f, "it ends within frame {frame}; capture it again, or repair it with `editcap`")
            }
            PcapError::Length(frame) => write!(f, "frame {frame} has a length that no frame has; the file is damaged"),
        }
    }
}

impl std::error::Error for PcapError {}

/// A captured frame without FCS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'a> {
    /// The captured bytes.
    pub bytes: &'a [u8],
    /// Length of the frame on the line; larger than the captured bytes if the capture truncated it.
    pub length: usize,
    /// Link type: what the bytes begin with. [`ethernet`] makes an Ethernet frame of them.
    pub link: u32,
}

/// A number of four bytes; 0 beyond the end.
fn word(bytes: &[u8], at: usize, big: bool) -> u32 {
    let bytes = bytes.get(at..at + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok()).unwrap_or_default();
    if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

/// The frames of a file, in order.
///
/// # Errors
/// [`PcapError`]. The lengths in the file are not trusted: nothing is read beyond its end.
pub fn frames(file: &[u8]) -> Result<Vec<Captured<'_>>, PcapError> {
    let found = if file.starts_with(&next::SECTION) { next::frames(file)? } else { classic(file)? };
    match found.first() {
        Some(first) if !found.iter().any(|frame| link::is_known(frame.link)) => Err(PcapError::LinkType(first.link)),
        _ => Ok(found),
    }
}

/// The frames of a pcap file.
fn classic(file: &[u8]) -> Result<Vec<Captured<'_>>, PcapError> {
    let head = file.first_chunk::<FILE_HEADER>().ok_or(PcapError::Format)?;
    let big = match [false, true].into_iter().find(|big| MAGIC.contains(&word(head, 0, *big))) {
        Some(big) => big,
        None => return Err(PcapError::Format),
    };
    // The upper bits tell whether there is an FCS, and its length.
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

/// The frame at the front of `bytes`, of which `kept` bytes of `length` were captured.
fn frame(bytes: &[u8], kept: u32, length: u32, link: u32, number: usize) -> Result<Captured<'_>, PcapError> {
    if kept > LONGEST || length > LONGEST || kept > length {
        return Err(PcapError::Length(number));
    }
    let bytes = bytes.get(..kept as usize).ok_or(PcapError::Cut(number))?;
    Ok(Captured { bytes, length: length as usize, link })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcap::link::ETHERNET;
    use proptest::prelude::*;

    /// A capture file of frames, each with its length on the line.
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
}
