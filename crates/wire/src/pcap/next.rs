//! pcapng (draft-ietf-opsawg-pcapng): blocks with a type and their length at both ends, in sections with a byte order each.

use super::{Captured, PcapError, frame, word};

/// Type of the block that begins a section, the same in both byte orders.
pub(super) const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Word behind type and length of this block, in the byte order of the section.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// Types of blocks: the description of an interface, a packet (in three forms).
const INTERFACE: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
/// Bytes of a block apart from its body: type, length, and length again.
const AROUND: usize = 12;

/// The frames of a pcapng file. Blocks without frames are skipped.
///
/// # Errors
/// See [`super::frames`].
pub(super) fn frames(file: &[u8]) -> Result<Vec<Captured<'_>>, PcapError> {
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
        // Interface, captured and original length, and offset of the frame. Half words have the byte order of the section too.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(kind: u32, body: &[u8], big: bool) -> Vec<u8> {
        let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
        let length = word((AROUND + body.len() + padding.len()) as u32);
        [&word(kind)[..], &length, body, &padding, &length].concat()
    }

    /// A section with two interfaces, Ethernet and SLL, and a frame in each form of a packet.
    fn section(big: bool) -> Vec<u8> {
        let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let half = |value: u16| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let words = |values: &[u32]| values.iter().flat_map(|value| word(*value)).collect::<Vec<u8>>();
        let interface = |link: u16, snap: u32| [&half(link)[..], &half(0), &word(snap)].concat();
        [
            block(u32::from_le_bytes(SECTION), &[&words(&[BYTE_ORDER])[..], &[1, 0, 0, 0], &[0xff; 8]].concat(), big),
            block(INTERFACE, &interface(1, 0), big),
            block(INTERFACE, &interface(113, 96), big),
            // Names of hosts: no frame.
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
            let found = super::super::frames(&file).unwrap();
            let seen: Vec<_> = found.iter().map(|frame| (frame.bytes.len(), frame.length, frame.link)).collect();
            assert_eq!(seen, one.repeat(found.len() / 3));
            assert!(found.iter().all(|frame| frame.bytes.iter().all(|b| usize::from(*b) == frame.bytes.len())));
        }
    }

    #[test]
    fn damaged_files_are_refused() {
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
            assert!(matches!(frames(&good[..end]), Err(PcapError::Cut(_))), "{end}");
        }
        let mut wrong = good.clone();
        wrong[8] = 0;
        assert_eq!(frames(&wrong), Err(PcapError::Format));
        let orphan = [&good[..28], &block(ENHANCED_PACKET, &[0; 20], false)].concat();
        assert_eq!(frames(&orphan), Err(PcapError::Length(1)), "no interface");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(change in any::<(prop::sample::Index, u8)>(), end in any::<prop::sample::Index>(), big: bool) {
            let mut file = section(big);
            let at = change.0.index(file.len());
            file[at] ^= change.1;
            let end = end.index(file.len() + 1);
            if let Ok(found) = frames(&file[..end]) {
                prop_assert!(found.len() <= 3 && found.iter().map(|frame| frame.bytes.len()).sum::<usize>() <= file.len());
            }
        }
    }
}
