//! The position of each header field in a frame.

use super::extensions;
use super::locate::Layers;
use super::number::{GRE_CHECKSUM, GRE_KEY, GRE_SEQUENCE};
use drophammer_model::traffic::{FieldName, HeaderKind};

/// A field and its position in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Index of the header in the stack.
    pub header: usize,
    /// The field.
    pub field: FieldName,
    /// Offset of the field's most significant bit from the first bit of the frame.
    pub bit: usize,
    /// Width in bits.
    pub width: u32,
}

impl Place {
    /// Returns the offset of the byte that contains the most significant bit.
    pub fn byte(&self) -> usize {
        self.bit / 8
    }

    /// Returns the position of the most significant bit within its byte; 0 is the highest.
    pub fn bit_in_byte(&self) -> u32 {
        (self.bit % 8) as u32
    }

    /// Returns the bytes that contain the field, and the number of bits after it in the last byte.
    fn span(&self) -> (std::ops::Range<usize>, u32) {
        let end = self.bit + self.width as usize;
        (self.byte()..end.div_ceil(8), (end.next_multiple_of(8) - end) as u32)
    }

    /// Returns the value in `frame`; `None` if the field is beyond its end.
    pub fn read(&self, frame: &[u8]) -> Option<u128> {
        let (bytes, above) = self.span();
        let all = frame.get(bytes)?.iter().fold(0u128, |all, byte| all << 8 | u128::from(*byte));
        Some(all >> above & (u128::MAX >> (128 - self.width)))
    }

    /// Writes the low bits of `value` into the field.
    ///
    /// # Panics
    /// If the field is beyond the end of `frame`.
    pub fn write(&self, frame: &mut [u8], value: u128) {
        let (bytes, above) = self.span();
        let mask = (u128::MAX >> (128 - self.width)) << above;
        let mut value = value << above & mask;
        let mut mask = mask;
        for byte in frame[bytes].iter_mut().rev() {
            *byte = *byte & !(mask as u8) | value as u8;
            (value, mask) = (value >> 8, mask >> 8);
        }
    }
}

/// A field of a header: its first bit from the start of the header, its width, and whether it is derived from the rest
/// of the stack if it is not specified.
pub(super) struct Entry {
    pub(super) name: FieldName,
    bit: i32,
    pub(super) width: u32,
    pub(super) automatic: bool,
}

/// Tables of fields: name, first bit, width, and whether the field is automatic.
macro_rules! entries {
    (@) => { false };
    (@ automatic) => { true };
    ($kind:expr; $($header:ident { $($name:ident $bit:literal, $width:literal $($automatic:ident)?;)* })*) => {
        match $kind {
            $(HeaderKind::$header => const {
                &[$(Entry { name: FieldName::$name, bit: $bit, width: $width, automatic: entries!(@ $($automatic)?) }),*]
            },)*
        }
    };
}

/// Returns the fields of a header of this kind. [`Layers::place`] finds the fields without a constant position.
pub(super) fn entries(kind: HeaderKind) -> &'static [Entry] {
    entries! { kind;
        Ethernet {
            Destination 0, 48; Source 48, 48; Ethertype 96, 16 automatic;
        }
        Vlan {
            Tpid -16, 16 automatic; Pcp 0, 3; Dei 3, 1; Vid 4, 12; Ethertype 16, 16 automatic;
        }
        Mpls {
            Label 0, 20; Tc 20, 3; BottomOfStack 23, 1 automatic; Ttl 24, 8;
        }
        Ipv4 {
            Version 0, 4 automatic; HeaderLength 4, 4 automatic; Dscp 8, 6; Ecn 14, 2; TotalLength 16, 16 automatic;
            Identification 32, 16; Reserved 48, 1; DontFragment 49, 1; MoreFragments 50, 1; FragmentOffset 51, 13;
            Ttl 64, 8; Protocol 72, 8 automatic; HeaderChecksum 80, 16 automatic; Source 96, 32; Destination 128, 32;
        }
        Ipv6 {
            Version 0, 4 automatic; Dscp 4, 6; Ecn 10, 2; FlowLabel 12, 20; PayloadLength 32, 16 automatic;
            NextHeader 48, 8 automatic; HopLimit 56, 8; Source 64, 128; Destination 192, 128;
        }
        Gre {
            Protocol 16, 16 automatic; Checksum 32, 16 automatic; Key 32, 32; SequenceNumber 32, 32;
        }
        Vxlan {
            Vni 32, 24;
        }
        Udp {
            SourcePort 0, 16; DestinationPort 16, 16; Length 32, 16 automatic; Checksum 48, 16 automatic;
        }
        Tcp {
            SourcePort 0, 16; DestinationPort 16, 16; SequenceNumber 32, 32; AcknowledgmentNumber 64, 32;
            DataOffset 96, 4 automatic; Flags 100, 12; Window 112, 16; Checksum 128, 16 automatic;
            UrgentPointer 144, 16;
        }
        IcmpEcho {
            Code 8, 8; Checksum 16, 16 automatic; Identifier 32, 16; SequenceNumber 48, 16;
        }
        Raw {}
    }
}

impl Layers {
    /// Returns the position of the field `name` of header `index` of `frame`; `None` if that header has no such field.
    pub fn place(&self, frame: &[u8], index: usize, name: FieldName) -> Option<Place> {
        let layer = self.get(index)?;
        let Entry { bit, width, .. } = entries(layer.kind).iter().find(|entry| entry.name == name)?;
        let start = layer.offset() as i32 * 8;
        let bit = match (layer.kind, name) {
            (HeaderKind::Ipv6, FieldName::NextHeader) => {
                let headers = frame.get(layer.offset()..layer.offset() + layer.length())?;
                8 * extensions::next_header_at(headers) as i32
            }
            (HeaderKind::Gre, FieldName::Checksum | FieldName::Key | FieldName::SequenceNumber) => {
                // The three fields are adjacent. Each is present if its flag is set.
                let options = [
                    (GRE_CHECKSUM, FieldName::Checksum),
                    (GRE_KEY, FieldName::Key),
                    (GRE_SEQUENCE, FieldName::SequenceNumber),
                ];
                let flags = *frame.get(layer.offset())?;
                let there = || options.iter().filter(|(flag, _)| flags & flag != 0);
                bit + 32 * there().position(|(_, option)| *option == name)? as i32
            }
            _ => *bit,
        };
        Some(Place { header: index, field: name, bit: usize::try_from(start + bit).ok()?, width: *width })
    }
}
