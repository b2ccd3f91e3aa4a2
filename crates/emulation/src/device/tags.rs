//! VLAN tags of a device (IEEE 802.1Q, 802.1ad).

use drophammer_wire::ethernet;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One VLAN tag: 16 bits of TPID, then 3 bits of priority, the drop eligible indicator and 12 bits of VLAN identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tag {
    /// Tag protocol identifier, one of [`TPIDS`].
    pub tpid: u16,
    /// VLAN identifier, 0 to 4094.
    pub vid: u16,
}

/// TPID of a customer tag (802.1Q).
pub const DOT1Q: u16 = ethernet::ethertype::VLAN;
/// TPID of a service tag (802.1ad).
pub const DOT1AD: u16 = 0x88a8;
/// TPIDs that count as tags: 802.1Q, 802.1ad, and the TPID of QinQ before 802.1ad.
pub const TPIDS: [u16; 3] = [DOT1Q, DOT1AD, 0x9100];
/// Maximum number of tags in a frame.
pub const MOST_TAGS: usize = 2;
/// Bytes of a tag.
pub const TAG_LEN: usize = 4;

/// The tags of a device, outer first: none, one or two. Priorities do not distinguish devices, and neither do priority tags
/// ([`Tags::vlans`]). Serialised as a list of tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Vec<Tag>", into = "Vec<Tag>")]
pub struct Tags {
    len: u8,
    tags: [Tag; MOST_TAGS],
}

impl Tags {
    /// No tag.
    pub const NONE: Tags = Tags { len: 0, tags: [Tag { tpid: 0, vid: 0 }; MOST_TAGS] };

    /// Makes a stack of these tags, outer first.
    ///
    /// # Errors
    /// More than two tags, an unknown TPID, or a VLAN identifier above 4094.
    pub fn new(tags: &[Tag]) -> Result<Tags, String> {
        if tags.len() > MOST_TAGS {
            return Err(format!("{} VLAN tags: a device has at most {MOST_TAGS}", tags.len()));
        }
        let mut all = Tags { len: tags.len() as u8, ..Tags::NONE };
        for (place, tag) in all.tags.iter_mut().zip(tags) {
            if !TPIDS.contains(&tag.tpid) {
                return Err(format!("TPID 0x{:04x} is not a VLAN tag: use 0x8100, 0x88a8 or 0x9100", tag.tpid));
            }
            if tag.vid > 4094 {
                return Err(format!("VLAN {} is out of range: use 0 to 4094", tag.vid));
            }
            *place = *tag;
        }
        Ok(all)
    }

    /// A stack of one 802.1Q tag.
    ///
    /// # Errors
    /// A VLAN identifier above 4094.
    pub fn dot1q(vid: u16) -> Result<Tags, String> {
        Tags::new(&[Tag { tpid: DOT1Q, vid }])
    }

    /// The tags, outer first.
    pub fn as_slice(&self) -> &[Tag] {
        &self.tags[..usize::from(self.len)]
    }

    /// These tags without priority tags. A priority tag has VLAN 0, which means no VLAN (IEEE 802.1Q section 9.6). A
    /// frame with only priority tags belongs to the devices without tags.
    pub fn vlans(&self) -> Tags {
        let mut vlans = Tags::NONE;
        self.as_slice().iter().filter(|tag| tag.vid != 0).for_each(|tag| vlans.push(*tag));
        vlans
    }

    fn push(&mut self, tag: Tag) {
        self.tags[usize::from(self.len)] = tag;
        self.len += 1;
    }

    /// The length of the tags in a frame, in bytes.
    pub fn len_bytes(&self) -> usize {
        usize::from(self.len) * TAG_LEN
    }

    /// Reads the tags of a frame after its addresses, without priority tags: `(tags, EtherType or length, payload)`. A
    /// third tag counts as payload. `None` if the frame ends before its EtherType.
    #[inline]
    pub fn read(frame: &[u8]) -> Option<(Tags, u16, &[u8])> {
        let word = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
        let mut tags = Tags::NONE;
        let mut at = ethernet::LEN - 2;
        loop {
            let kind = word(at)?;
            if usize::from(tags.len) == MOST_TAGS || !TPIDS.contains(&kind) {
                return Some((tags, kind, &frame[at + 2..]));
            }
            let vid = word(at + 2)? & 0xfff;
            if vid != 0 {
                tags.push(Tag { tpid: kind, vid });
            }
            at += TAG_LEN;
        }
    }

    /// Writes tags and `ethertype` after the addresses of a frame; returns the offset of the payload.
    ///
    /// # Panics
    /// If the frame is too short for them.
    #[inline]
    pub fn write(&self, frame: &mut [u8], ethertype: u16) -> usize {
        let mut at = ethernet::LEN - 2;
        for tag in self.as_slice() {
            frame[at..at + 2].copy_from_slice(&tag.tpid.to_be_bytes());
            frame[at + 2..at + 4].copy_from_slice(&tag.vid.to_be_bytes());
            at += TAG_LEN;
        }
        frame[at..at + 2].copy_from_slice(&ethertype.to_be_bytes());
        at + 2
    }
}

impl TryFrom<Vec<Tag>> for Tags {
    type Error = String;
    fn try_from(tags: Vec<Tag>) -> Result<Tags, String> {
        Tags::new(&tags)
    }
}

impl From<Tags> for Vec<Tag> {
    fn from(tags: Tags) -> Vec<Tag> {
        tags.as_slice().to_vec()
    }
}

impl fmt::Display for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_slice() {
            [] => f.write_str("untagged"),
            [tag] => write!(f, "VLAN {}", tag.vid),
            tags => {
                f.write_str("VLANs ")?;
                for (i, tag) in tags.iter().enumerate() {
                    write!(f, "{}{}", if i == 0 { "" } else { "." }, tag.vid)?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_written_and_read_again() {
        let two = Tags::new(&[Tag { tpid: DOT1AD, vid: 7 }, Tag { tpid: DOT1Q, vid: 4094 }]).unwrap();
        for tags in [Tags::NONE, Tags::dot1q(1).unwrap(), two] {
            let mut frame = vec![0xee; 60];
            let at = tags.write(&mut frame, 0x0800);
            assert_eq!(at, 14 + tags.len_bytes());
            let (read, ethertype, payload) = Tags::read(&frame).unwrap();
            assert_eq!((read, ethertype, payload.len()), (tags, 0x0800, 60 - at));
            (0..at).for_each(|len| assert_eq!(Tags::read(&frame[..len]), None));
        }
        // The priority is not part of the identity.
        let mut frame = vec![0; 60];
        Tags::dot1q(5).unwrap().write(&mut frame, 0x86dd);
        frame[14] |= 0xe0;
        assert_eq!(Tags::read(&frame).unwrap().0, Tags::dot1q(5).unwrap());
    }

    #[test]
    fn priority_tags_name_no_vlan() {
        let (zero, seven) = (Tag { tpid: DOT1Q, vid: 0 }, Tag { tpid: DOT1AD, vid: 7 });
        let outer = Tag { tpid: DOT1AD, vid: 0 };
        for (written, expected) in [
            (&[zero][..], &[][..]),
            (&[outer], &[]),
            (&[outer, zero], &[]),
            (&[zero, seven], &[seven]),
            (&[seven, zero], &[seven]),
        ] {
            let (written, expected) = (Tags::new(written).unwrap(), Tags::new(expected).unwrap());
            let mut frame = vec![0xee; 60];
            let at = written.write(&mut frame, 0x0806);
            // Set the highest priority.
            frame[14] |= 0xe0;
            let (read, ethertype, payload) = Tags::read(&frame).unwrap();
            assert_eq!((read, ethertype, payload.len()), (expected, 0x0806, 60 - at), "{written}");
            assert_eq!(written.vlans(), expected);
            (0..at).for_each(|len| assert_eq!(Tags::read(&frame[..len]), None));
        }
    }

    #[test]
    fn tags_that_cannot_be_are_refused() {
        let tag = Tag { tpid: DOT1Q, vid: 1 };
        assert!(Tags::new(&[tag; 3]).unwrap_err().contains("at most 2"));
        assert!(Tags::dot1q(4095).unwrap_err().contains("4095 is out of range"));
        assert!(Tags::new(&[Tag { tpid: 0x0800, vid: 1 }]).unwrap_err().contains("0x0800"));
        assert_eq!(
            format!("{} {} {}", Tags::NONE, Tags::dot1q(9).unwrap(), Tags::new(&[tag; 2]).unwrap()),
            "untagged VLAN 9 VLANs 1.1"
        );
    }
}
