//! Capture files as written by tcpdump and Wireshark (pcap, draft-ietf-opsawg-pcap). The newer pcapng is a different
//! format.

use std::fmt;

/// Bytes before the first frame.
const FILE_HEADER: usize = 24;
/// Bytes before each frame.
const FRAME_HEADER: usize = 16;
/// Magic numbers of files with times in microseconds and in nanoseconds.
const MAGIC: [u32; 2] = [0xa1b2_c3d4, 0xa1b2_3c4d];
/// Beginning of a pcapng file: type of its first block.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Link type Ethernet.
const ETHERNET: u32 = 1;
/// Largest valid length of a frame.
const LONGEST: u32 = 262_144;

/// Why a file cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcapError {
    /// The file does not begin with a pcap header.
    Format,
    /// The file is in pcapng format.
    Pcapng,
    /// The frames are not Ethernet; their link type.
    LinkType(u32),
    /// The file ends within a frame; the number of the frame, from 1.
    Cut(usize),
    /// A frame has an invalid length; its number, from 1.
    Length(usize),
}

impl fmt::Display for PcapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PcapError::Format => f.write_str("it is no capture; write one with `tcpdump -w FILE`"),
            PcapError::Pcapng => f.write_str("it is pcapng; convert it with `editcap -F pcap FILE NEW`"),
            PcapError::LinkType(found) => {
                write!(
                    f,
                    "its frames are of link type {found}; capture on an Ethernet interface (link type 1), not on `any`"
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
}

/// The frames of a file, in order.
///
/// # Errors
/// [`PcapError`]. The lengths in the file are not trusted: nothing is read beyond its end.
pub fn frames(file: &[u8]) -> Result<Vec<Captured<'_>>, PcapError> {
    let head = file.first_chunk::<FILE_HEADER>().ok_or(PcapError::Format)?;
    if head.starts_with(&PCAPNG) {
        return Err(PcapError::Pcapng);
    }
    let word = |bytes: &[u8], at: usize, big: bool| {
        let bytes = bytes.get(at..at + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok()).unwrap_or_default();
        if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    };
    let big = match [false, true].into_iter().find(|big| MAGIC.contains(&word(head, 0, *big))) {
        Some(big) => big,
        None => return Err(PcapError::Format),
    };
    // The upper bits tell whether there is an FCS, and its length.
    let link = word(head, 20, big) & 0xffff;
    if link != ETHERNET {
        return Err(PcapError::LinkType(link));
    }
    let mut found = Vec::new();
    let mut rest = &file[FILE_HEADER..];
    while !rest.is_empty() {
        let number = found.len() + 1;
        if rest.len() < FRAME_HEADER {
            return Err(PcapError::Cut(number));
        }
        let (kept, length) = (word(rest, 8, big), word(rest, 12, big));
        if kept > LONGEST || length > LONGEST || kept > length {
            return Err(PcapError::Length(number));
        }
        let bytes = rest.get(FRAME_HEADER..FRAME_HEADER + kept as usize).ok_or(PcapError::Cut(number))?;
        found.push(Captured { bytes, length: length as usize });
        rest = &rest[FRAME_HEADER + kept as usize..];
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert_eq!(frames(&file(MAGIC[0], false, 113, &[])), Err(PcapError::LinkType(113)));
        assert_eq!(frames(&file(MAGIC[0], false, ETHERNET, &[(&[1; 60], 59)])), Err(PcapError::Length(1)));
        assert_eq!(frames(&file(u32::from_le_bytes(PCAPNG), false, ETHERNET, &[])), Err(PcapError::Pcapng));
        for error in [PcapError::Format, PcapError::Pcapng, PcapError::LinkType(113), PcapError::Cut(1)] {
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
