//! Places of the fields of a header.

use super::extensions;
use super::layers::Layers;
use super::number::{GRE_CHECKSUM, GRE_KEY, GRE_SEQUENCE};
use drophammer_model::traffic::{FieldName, HeaderKind};

/// A field in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Index of the header in the stack.
    pub header: usize,
    /// The field.
    pub field: FieldName,
    /// Offset of its most significant bit, counted from the first bit of the frame.
    pub bit: usize,
    /// Width in bits.
    pub width: u32,
}

impl Place {
    /// Offset of the byte with the most significant bit.
    pub fn byte(&self) -> usize {
        self.bit / 8
    }

    /// Position of the most significant bit within its byte, 0 being the highest.
    pub fn bit_in_byte(&self) -> u32 {
        (self.bit % 8) as u32
    }

    /// Bytes that contain the field, and the number of bits after it in the last one.
    fn span(&self) -> (std::ops::Range<usize>, u32) {
        let end = self.bit + self.width as usize;
        (self.byte()..end.div_ceil(8), (end.next_multiple_of(8) - end) as u32)
    }

    /// The value in `frame`; `None` if the field is beyond its end.
    pub fn read(&self, frame: &[u8]) -> Option<u128> {
        let (bytes, above) = self.span();
        let all = frame.get(bytes)?.iter().fold(0u128, |all, byte| all << 8 | u128::from(*byte));
        Some(all >> above & (u128::MAX >> (128 - self.width)))
    }

    /// Writes the low bits of `value`.
    ///
    /// # Panics
    /// The field is beyond the end of `frame`.
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
/// of the stack if it is not given.
pub(super) struct Entry {
    pub(super) name: FieldName,
    bit: i32,
    pub(super) width: u32,
    pub(super) automatic: bool,
}

const fn field(name: FieldName, bit: i32, width: u32, automatic: bool) -> Entry {
    Entry { name, bit, width, automatic }
}

const GIVEN: bool = false;
const AUTOMATIC: bool = true;

/// The fields of a header of that kind. [`Layers::place`] finds those without a constant place.
pub(super) fn entries(kind: HeaderKind) -> &'static [Entry] {
    use FieldName::*;
    match kind {
        HeaderKind::Ethernet => {
            const { &[field(Destination, 0, 48, GIVEN), field(Source, 48, 48, GIVEN), field(Ethertype, 96, 16, AUTOMATIC)] }
        }
        HeaderKind::Vlan => {
            const {
                &[
                    field(Tpid, -16, 16, AUTOMATIC),
                    field(Pcp, 0, 3, GIVEN),
                    field(Dei, 3, 1, GIVEN),
                    field(Vid, 4, 12, GIVEN),
                    field(Ethertype, 16, 16, AUTOMATIC),
                ]
            }
        }
        HeaderKind::Mpls => {
            const {
                &[
                    field(Label, 0, 20, GIVEN),
                    field(Tc, 20, 3, GIVEN),
                    field(BottomOfStack, 23, 1, AUTOMATIC),
                    field(Ttl, 24, 8, GIVEN),
                ]
            }
        }
        HeaderKind::Ipv4 => {
            const {
                &[
                    field(Version, 0, 4, AUTOMATIC),
                    field(HeaderLength, 4, 4, AUTOMATIC),
                    field(Dscp, 8, 6, GIVEN),
                    field(Ecn, 14, 2, GIVEN),
                    field(TotalLength, 16, 16, AUTOMATIC),
                    field(Identification, 32, 16, GIVEN),
                    field(Reserved, 48, 1, GIVEN),
                    field(DontFragment, 49, 1, GIVEN),
                    field(MoreFragments, 50, 1, GIVEN),
                    field(FragmentOffset, 51, 13, GIVEN),
                    field(Ttl, 64, 8, GIVEN),
                    field(Protocol, 72, 8, AUTOMATIC),
                    field(HeaderChecksum, 80, 16, AUTOMATIC),
                    field(Source, 96, 32, GIVEN),
                    field(Destination, 128, 32, GIVEN),
                ]
            }
        }
        HeaderKind::Ipv6 => {
            const {
                &[
                    field(Version, 0, 4, AUTOMATIC),
                    field(Dscp, 4, 6, GIVEN),
                    field(Ecn, 10, 2, GIVEN),
                    field(FlowLabel, 12, 20, GIVEN),
                    field(PayloadLength, 32, 16, AUTOMATIC),
                    field(NextHeader, 48, 8, AUTOMATIC),
                    field(HopLimit, 56, 8, GIVEN),
                    field(Source, 64, 128, GIVEN),
                    field(Destination, 192, 128, GIVEN),
                ]
            }
        }
        HeaderKind::Gre => {
            const {
                &[
                    field(Protocol, 16, 16, AUTOMATIC),
                    field(Checksum, 32, 16, AUTOMATIC),
                    field(Key, 32, 32, GIVEN),
                    field(SequenceNumber, 32, 32, GIVEN),
                ]
            }
        }
        HeaderKind::Udp => {
            const {
                &[
                    field(SourcePort, 0, 16, GIVEN),
                    field(DestinationPort, 16, 16, GIVEN),
                    field(Length, 32, 16, AUTOMATIC),
                    field(Checksum, 48, 16, AUTOMATIC),
                ]
            }
        }
        HeaderKind::Tcp => {
            const {
                &[
                    field(SourcePort, 0, 16, GIVEN),
                    field(DestinationPort, 16, 16, GIVEN),
                    field(SequenceNumber, 32, 32, GIVEN),
                    field(AcknowledgmentNumber, 64, 32, GIVEN),
                    field(DataOffset, 96, 4, AUTOMATIC),
                    field(Flags, 100, 12, GIVEN),
                    field(Window, 112, 16, GIVEN),
                    field(Checksum, 128, 16, AUTOMATIC),
                    field(UrgentPointer, 144, 16, GIVEN),
                ]
            }
        }
        HeaderKind::IcmpEcho => {
            const {
                &[
                    field(Code, 8, 8, GIVEN),
                    field(Checksum, 16, 16, AUTOMATIC),
                    field(Identifier, 32, 16, GIVEN),
                    field(SequenceNumber, 48, 16, GIVEN),
                ]
            }
        }
        HeaderKind::Raw => &[],
    }
}

impl Layers {
    /// Place of the field `name` of header `index` of `frame`; `None` if that header has no such field.
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
                // The three follow each other; each is present if its flag is set.
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
