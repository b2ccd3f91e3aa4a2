//! Where the fields of a header are.

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
    /// Its most significant bit, counted from the first bit of the frame.
    pub bit: usize,
    /// Bits.
    pub width: u32,
}

impl Place {
    /// The byte with the most significant bit.
    pub fn byte(&self) -> usize {
        self.bit / 8
    }

    /// The most significant bit within its byte, 0 being the highest.
    pub fn bit_in_byte(&self) -> u32 {
        (self.bit % 8) as u32
    }

    /// Bytes that contain the field, and by how many bits it stands above the end of the last one.
    fn span(&self) -> (std::ops::Range<usize>, u32) {
        let end = self.bit + self.width as usize;
        (self.byte()..end.div_ceil(8), (end.next_multiple_of(8) - end) as u32)
    }

    /// The value in `frame`, `None` beyond its end.
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

/// A field of a header: its first bit from the start of the header, its width, and whether it follows from the rest of the
/// stack where nothing is given.
pub(super) struct Entry(pub(super) FieldName, i32, u32, pub(super) bool);

const GIVEN: bool = false;
const AUTOMATIC: bool = true;

/// The fields of a header of that kind. Those that have no constant place are found by [`Layers::place`].
pub(super) fn entries(kind: HeaderKind) -> &'static [Entry] {
    use FieldName::*;
    match kind {
        HeaderKind::Ethernet => {
            const { &[Entry(Destination, 0, 48, GIVEN), Entry(Source, 48, 48, GIVEN), Entry(Ethertype, 96, 16, AUTOMATIC)] }
        }
        HeaderKind::Vlan => {
            const {
                &[
                    Entry(Tpid, -16, 16, AUTOMATIC),
                    Entry(Pcp, 0, 3, GIVEN),
                    Entry(Dei, 3, 1, GIVEN),
                    Entry(Vid, 4, 12, GIVEN),
                    Entry(Ethertype, 16, 16, AUTOMATIC),
                ]
            }
        }
        HeaderKind::Mpls => {
            const {
                &[
                    Entry(Label, 0, 20, GIVEN),
                    Entry(Tc, 20, 3, GIVEN),
                    Entry(BottomOfStack, 23, 1, AUTOMATIC),
                    Entry(Ttl, 24, 8, GIVEN),
                ]
            }
        }
        HeaderKind::Ipv4 => {
            const {
                &[
                    Entry(Version, 0, 4, AUTOMATIC),
                    Entry(HeaderLength, 4, 4, AUTOMATIC),
                    Entry(Dscp, 8, 6, GIVEN),
                    Entry(Ecn, 14, 2, GIVEN),
                    Entry(TotalLength, 16, 16, AUTOMATIC),
                    Entry(Identification, 32, 16, GIVEN),
                    Entry(Reserved, 48, 1, GIVEN),
                    Entry(DontFragment, 49, 1, GIVEN),
                    Entry(MoreFragments, 50, 1, GIVEN),
                    Entry(FragmentOffset, 51, 13, GIVEN),
                    Entry(Ttl, 64, 8, GIVEN),
                    Entry(Protocol, 72, 8, AUTOMATIC),
                    Entry(HeaderChecksum, 80, 16, AUTOMATIC),
                    Entry(Source, 96, 32, GIVEN),
                    Entry(Destination, 128, 32, GIVEN),
                ]
            }
        }
        HeaderKind::Ipv6 => {
            const {
                &[
                    Entry(Version, 0, 4, AUTOMATIC),
                    Entry(Dscp, 4, 6, GIVEN),
                    Entry(Ecn, 10, 2, GIVEN),
                    Entry(FlowLabel, 12, 20, GIVEN),
                    Entry(PayloadLength, 32, 16, AUTOMATIC),
                    Entry(NextHeader, 48, 8, AUTOMATIC),
                    Entry(HopLimit, 56, 8, GIVEN),
                    Entry(Source, 64, 128, GIVEN),
                    Entry(Destination, 192, 128, GIVEN),
                ]
            }
        }
        HeaderKind::Gre => {
            const {
                &[
                    Entry(Protocol, 16, 16, AUTOMATIC),
                    Entry(Checksum, 32, 16, AUTOMATIC),
                    Entry(Key, 32, 32, GIVEN),
                    Entry(SequenceNumber, 32, 32, GIVEN),
                ]
            }
        }
        HeaderKind::Udp => {
            const {
                &[
                    Entry(SourcePort, 0, 16, GIVEN),
                    Entry(DestinationPort, 16, 16, GIVEN),
                    Entry(Length, 32, 16, AUTOMATIC),
                    Entry(Checksum, 48, 16, AUTOMATIC),
                ]
            }
        }
        HeaderKind::Tcp => {
            const {
                &[
                    Entry(SourcePort, 0, 16, GIVEN),
                    Entry(DestinationPort, 16, 16, GIVEN),
                    Entry(SequenceNumber, 32, 32, GIVEN),
                    Entry(AcknowledgmentNumber, 64, 32, GIVEN),
                    Entry(DataOffset, 96, 4, AUTOMATIC),
                    Entry(Flags, 100, 12, GIVEN),
                    Entry(Window, 112, 16, GIVEN),
                    Entry(Checksum, 128, 16, AUTOMATIC),
                    Entry(UrgentPointer, 144, 16, GIVEN),
                ]
            }
        }
        HeaderKind::IcmpEcho => {
            const {
                &[
                    Entry(Code, 8, 8, GIVEN),
                    Entry(Checksum, 16, 16, AUTOMATIC),
                    Entry(Identifier, 32, 16, GIVEN),
                    Entry(SequenceNumber, 48, 16, GIVEN),
                ]
            }
        }
        HeaderKind::Raw => &[],
    }
}

impl Layers {
    /// Where the field `name` of header `index` of `frame` is; `None` if that header has no such field.
    pub fn place(&self, frame: &[u8], index: usize, name: FieldName) -> Option<Place> {
        let layer = self.get(index)?;
        let Entry(_, bit, width, _) = entries(layer.kind).iter().find(|entry| entry.0 == name)?;
        let start = layer.offset() as i32 * 8;
        let bit = match (layer.kind, name) {
            (HeaderKind::Ipv6, FieldName::NextHeader) => {
                let headers = frame.get(layer.offset()..layer.offset() + layer.length())?;
                8 * extensions::next_header_at(headers) as i32
            }
            (HeaderKind::Gre, FieldName::Checksum | FieldName::Key | FieldName::SequenceNumber) => {
                // The three follow each other, each if its flag says so.
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
