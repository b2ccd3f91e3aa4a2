//! Which received frames a capture keeps, and how.

use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// How frames of a port are captured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureSettings {
    /// True for pcapng instead of pcap.
    pub next_generation: bool,
    /// Bytes of a frame that are kept; `None` for all.
    pub length: Option<u32>,
    /// True to replace the oldest frames when there is no room, instead of keeping them.
    pub overwrite: bool,
    /// What a frame must have to be kept.
    pub filters: Filters,
}

/// Filters that a frame must all pass. Each looks at the header behind the one that the previous filter looked at.
/// The first looks at the Ethernet header or at one behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Filters(Arc<[Filter]>);

/// A header, and what its fields must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// The header.
    pub header: FilterHeader,
    /// Its fields.
    pub fields: Vec<FilterField>,
}

/// What a filter is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FilterHeader {
    /// The Ethernet header.
    Ethernet,
    /// A VLAN tag.
    Vlan,
    /// The IPv4 header.
    Ipv4,
    /// The IPv6 header.
    Ipv6,
    /// This many bits, wherever they are.
    Custom(usize),
}

/// A comparison of a field: the bits that are set in `mask` must be those of `value`, or differ somewhere if it is negated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterField {
    /// Its bits in the header: up to 64, or up to 128 in whole octets.
    pub bits: Range<usize>,
    /// The value of the bits in the mask.
    pub value: u128,
    /// The bits that are compared.
    pub mask: u128,
    /// True if the field must not have the value.
    pub negate: bool,
}

/// Most filters of a capture.
pub const MOST_FILTERS: usize = 64;
/// Most fields of a filter.
const MOST_FIELDS: usize = 32;
/// Largest number of a bit in a filter.
const LAST_BIT: usize = 1 << 20;
/// Bits of the Ethernet header, of a VLAN tag, and of the type in front of the next header.
const ETHERNET_BITS: usize = 112;
const TAG_BITS: usize = 32;
const TYPE_BITS: usize = 16;
/// EtherTypes of VLAN tags, of IPv4 and of IPv6.
const TAGS: [u128; 3] = [0x8100, 0x88a8, 0x9100];
const TYPE_IPV4: u128 = 0x0800;
const TYPE_IPV6: u128 = 0x86dd;

impl From<Vec<Filter>> for Filters {
    fn from(filters: Vec<Filter>) -> Filters {
        Filters(filters.into())
    }
}

impl Filters {
    /// True if there are not too many filters and all bits are where [`Filters::pass`] can look, for filters from another host.
    pub fn are_sound(&self) -> bool {
        let field = |field: &FilterField| (1..=128).contains(&field.bits.len()) && field.bits.end <= LAST_BIT;
        let header = |header: FilterHeader| !matches!(header, FilterHeader::Custom(length) if length > LAST_BIT);
        let sound = |filter: &Filter| {
            header(filter.header) && filter.fields.len() <= MOST_FIELDS && filter.fields.iter().all(field)
        };
        self.0.len() <= MOST_FILTERS && self.0.iter().all(sound)
    }

    /// True if a frame passes all filters. `frame` is without FCS.
    pub fn pass(&self, frame: &[u8]) -> bool {
        let mut end = 0;
        self.0.iter().all(|filter| {
            let begin = filter.begin(frame, end);
            let passes = begin.is_some_and(|begin| filter.fields.iter().all(|field| field.passes(frame, begin)));
            let behind = begin.and_then(|begin| filter.end(frame, begin));
            end = behind.unwrap_or(end);
            passes && behind.is_some()
        })
    }
}

/// The type in front of the header at this bit.
fn type_before(frame: &[u8], begin: usize) -> Option<u128> {
    bits(frame, begin.checked_sub(TYPE_BITS)?..begin)
}

impl Filter {
    /// Where its header begins in a frame, if the filter before ends at bit `end`. `None` if the frame has no such header there.
    fn begin(&self, frame: &[u8], end: usize) -> Option<usize> {
        if let FilterHeader::Ethernet | FilterHeader::Custom(_) = self.header {
            return Some(end);
        }
        let mut begin = end.max(ETHERNET_BITS);
        if self.header == FilterHeader::Vlan {
            return TAGS.contains(&type_before(frame, begin)?).then_some(begin);
        }
        // Tags that no filter is about.
        while TAGS.contains(&type_before(frame, begin)?) {
            begin += TAG_BITS;
        }
        let wanted = if self.header == FilterHeader::Ipv4 { TYPE_IPV4 } else { TYPE_IPV6 };
        (type_before(frame, begin)? == wanted).then_some(begin)
    }

    /// Where its header ends. `None` if the frame ends before.
    fn end(&self, frame: &[u8], begin: usize) -> Option<usize> {
        let length = match self.header {
            FilterHeader::Ethernet => ETHERNET_BITS,
            FilterHeader::Vlan => TAG_BITS,
            FilterHeader::Ipv4 => (bits(frame, begin + 4..begin + 8)? as usize).max(5) * 32,
            FilterHeader::Ipv6 => 320,
            FilterHeader::Custom(length) => length,
        };
        (begin + length <= frame.len() * 8).then_some(begin + length)
    }
}

impl FilterField {
    /// Compares the field of the header that begins at this bit; false if the frame ends before.
    fn passes(&self, frame: &[u8], begin: usize) -> bool {
        let found = bits(frame, begin + self.bits.start..begin + self.bits.end);
        found.is_some_and(|found| (found & self.mask == self.value) != self.negate)
    }
}

/// These bits of a frame: up to 64, or whole octets.
fn bits(frame: &[u8], range: Range<usize>) -> Option<u128> {
    let octets = frame.get(range.start / 8..range.end.div_ceil(8))?;
    let value = octets.iter().fold(0, |value, octet| value << 8 | u128::from(*octet));
    let behind = range.end.next_multiple_of(8) - range.end;
    Some(value >> behind & u128::MAX >> (128 - range.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field() -> impl Strategy<Value = FilterField> {
        (0usize..2_000, 0usize..140, any::<u128>(), any::<bool>()).prop_map(|(first, length, value, negate)| {
            FilterField { bits: first..first + length, value, mask: !0, negate }
        })
    }

    proptest! {
        /// Whatever another host sends: sound filters look at any frame without a panic.
        #[test]
        fn sound_filters_look_at_any_frame(
            filters in prop::collection::vec((0usize..5, 0usize..3_000, prop::collection::vec(field(), 0..4)), 0..5),
            frame in prop::collection::vec(any::<u8>(), 0..200)
        ) {
            let header = |kind, length| match kind {
                0 => FilterHeader::Ethernet,
                1 => FilterHeader::Vlan,
                2 => FilterHeader::Ipv4,
                3 => FilterHeader::Ipv6,
                _ => FilterHeader::Custom(length),
            };
            let filters = filters.into_iter().map(|(kind, length, fields)| Filter { header: header(kind, length), fields });
            let filters = Filters::from(filters.collect::<Vec<_>>());
            let lengths: Vec<usize> = filters.0.iter().flat_map(|f| &f.fields).map(|field| field.bits.len()).collect();
            prop_assert_eq!(filters.are_sound(), lengths.iter().all(|length| (1..=128).contains(length)));
            if filters.are_sound() {
                let _ = filters.pass(&frame);
            }
            let text = serde_json::to_string(&filters).unwrap();
            prop_assert_eq!(serde_json::from_str::<Filters>(&text).unwrap(), filters);
        }
    }
}
