//! Reads which received frames a capture keeps, and how.

use super::read::Object;
pub use drophammer_rig::CaptureSettings;
use drophammer_rig::{Filter, FilterField, FilterHeader, Filters, MOST_FILTERS};
use std::ops::Range;

/// Fields of a header: name, first bit, bits.
type Layout = [(&'static str, usize, usize)];

const ETHERNET: &Layout = &[("dst", 0, 48), ("src", 48, 48), ("ether_type", 96, 16)];
const VLAN: &Layout = &[("priority", 0, 3), ("cfi", 3, 1), ("id", 4, 12), ("protocol", 16, 16)];
const IPV4: &Layout = &[
    ("version", 0, 4),
    ("header_length", 4, 4),
    ("priority", 8, 8),
    ("total_length", 16, 16),
    ("identification", 32, 16),
    ("reserved", 48, 1),
    ("dont_fragment", 49, 1),
    ("more_fragments", 50, 1),
    ("fragment_offset", 51, 13),
    ("time_to_live", 64, 8),
    ("protocol", 72, 8),
    ("header_checksum", 80, 16),
    ("src", 96, 32),
    ("dst", 128, 32),
];
const IPV6: &Layout = &[
    ("version", 0, 4),
    ("traffic_class", 4, 8),
    ("flow_label", 12, 20),
    ("payload_length", 32, 16),
    ("next_header", 48, 8),
    ("hop_limit", 56, 8),
    ("src", 64, 128),
    ("dst", 192, 128),
];

/// Most bits that a custom filter compares.
const MOST_BITS: u64 = 64;
/// Most bytes in front of the bits of a custom filter.
const MOST_OFFSET: u64 = 8 * 16_384;

/// Reads the settings of a capture.
pub fn settings(o: &mut Object<'_>) -> CaptureSettings {
    CaptureSettings {
        next_generation: o.word("format", &["pcap", "pcapng"], 0) == 1,
        length: o.number("packet_size", u16::MAX.into()).filter(|length| *length > 0).map(|length| length as u32),
        overwrite: o.flag("overwrite", true),
        filters: filters(o),
    }
}

fn filters(capture: &mut Object<'_>) -> Filters {
    let list = capture.objects("filters");
    if list.len() > MOST_FILTERS {
        capture.wrong("filters", format_args!("a capture has at most {MOST_FILTERS} filters"));
    }
    let mut filters: Vec<Filter> = Vec::new();
    for mut o in list {
        let filter = filter(&mut o);
        // After a header comes one that it can carry, and bits can be anywhere.
        let follows = filters.last().is_none_or(|before| match (before.header, filter.header) {
            (_, FilterHeader::Custom(_)) | (FilterHeader::Vlan, FilterHeader::Vlan) => true,
            (before, after) => before < after && before < FilterHeader::Ipv4,
        });
        if !follows {
            o.errors().add(o.path(), "this header cannot follow the one of the filter before");
        }
        filters.push(filter);
    }
    filters.into()
}

fn filter(o: &mut Object<'_>) -> Filter {
    let kind = o.choice(&["custom", "ethernet", "vlan", "ipv4", "ipv6"], "custom");
    let mut of = o.object_or_empty(kind);
    let (header, layout) = match kind {
        "ethernet" => (FilterHeader::Ethernet, ETHERNET),
        "vlan" => (FilterHeader::Vlan, VLAN),
        "ipv4" => (FilterHeader::Ipv4, IPV4),
        "ipv6" => (FilterHeader::Ipv6, IPV6),
        _ => {
            let offset = of.number_or("offset", MOST_OFFSET, 0) as usize;
            let length = of.within("bit_length", [1, MOST_BITS], 8) as usize;
            let fields = field(&mut of, offset..offset + length).into_iter().collect();
            return Filter { header: FilterHeader::Custom(offset + length), fields };
        }
    };
    let fields = layout.iter().filter_map(|(name, first, bits)| field(&mut of.object(name)?, *first..first + bits));
    Filter { header, fields: fields.collect() }
}

/// Reads a comparison; `None` if it says nothing, and after an error.
fn field(o: &mut Object<'_>, bits: Range<usize>) -> Option<FilterField> {
    let width = bits.len() as u32;
    let [value, mask] = ["value", "mask"].map(|key| {
        let Some(text) = o.text(key) else { return 0 };
        let digits = text.strip_prefix("0x").unwrap_or(&text);
        let number = u128::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'));
        let number = number.filter(|number| width >= 128 || *number >> width == 0);
        if number.is_none() {
            o.wrong(key, format_args!("`{text}` is not a number of at most {width} bits in hexadecimal digits"));
        }
        number.unwrap_or(0)
    });
    let negate = o.flag("negate", false);
    if mask == 0 && (value != 0 || negate) {
        let all = u128::MAX >> (128 - width);
        o.wrong("mask", format_args!("no bit is compared: bits that are 1 in the mask are; `{all:x}` compares all"));
    }
    (mask != 0).then_some(FilterField { bits, value: value & mask, mask, negate })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::read::Errors;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn read(filters: Value) -> Result<Filters, Vec<String>> {
        let errors = Errors::default();
        let mut o = Object::document(json!({ "filters": filters }), &errors);
        let found = super::filters(&mut o);
        drop(o);
        errors.or(found)
    }

    /// A frame from 02:..:0a to 02:..:0b with these tags, IPv4 from 10.0.0.1 to 10.0.0.2 with TTL 64, and UDP to port 5001.
    fn frame(tags: &[u16]) -> Vec<u8> {
        let mut out = vec![2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa];
        for tag in tags {
            out.extend([0x81, 0, (tag >> 8) as u8, *tag as u8]);
        }
        out.extend([8, 0, 0x45, 0xb8, 0, 60, 0, 9, 0x40, 0, 64, 17, 0xbe, 0xef, 10, 0, 0, 1, 10, 0, 0, 2]);
        out.extend([0x13, 0x88, 0x13, 0x89, 0, 40, 0, 0]);
        out.extend([7; 32]);
        out
    }

    #[test]
    fn a_frame_must_have_every_header_and_every_value() {
        let passes =
            |filters: Value, frame: &[u8]| read(filters.clone()).unwrap_or_else(|e| panic!("{e:?}")).pass(frame);
        let (plain, tagged) = (frame(&[]), frame(&[0xa007, 9]));
        for (filters, expected) in [
            (json!([]), [true, true]),
            (json!([{"ethernet": {}}]), [true, true]),
            (json!([{"ethernet": {"src": {"value": "02000000000a", "mask": "ffffffffffff"}}}]), [true, true]),
            (
                json!([{"ethernet": {"src": {"value": "02000000000a", "mask": "ffffffffffff", "negate": true}}}]),
                [false; 2],
            ),
            (json!([{"ethernet": {"ether_type": {"value": "0x8100", "mask": "0xFFFF"}}}]), [false, true]),
            (json!([{"vlan": {}}]), [false, true]),
            (json!([{"ethernet": {}}, {"vlan": {"id": {"value": "7", "mask": "fff"}}}]), [false, true]),
            (json!([{"vlan": {"id": {"value": "7", "mask": "fff", "negate": true}}}]), [false, false]),
            (
                json!([{"vlan": {"priority": {"value": "5", "mask": "7"}, "cfi": {"value": "0", "mask": "1"}}}]),
                [false, true],
            ),
            (
                json!([{"vlan": {}}, {"vlan": {"id": {"value": "9", "mask": "fff"}, "protocol": {"value": "800", "mask": "ffff"}}}]),
                [false, true],
            ),
            (json!([{"vlan": {}}, {"vlan": {}}, {"vlan": {}}]), [false, false]),
            (json!([{"ipv4": {"dst": {"value": "0a000002", "mask": "ffffffff"}}}]), [true, true]),
            (
                json!([{"ethernet": {}}, {"ipv4": {"dst": {"value": "0a000000", "mask": "ffffff00"}, "time_to_live": {"value": "40", "mask": "ff"}}}]),
                [true, true],
            ),
            (
                json!([{"ipv4": {"priority": {"value": "b8", "mask": "fc"}, "dont_fragment": {"value": "1", "mask": "1"}}}]),
                [true, true],
            ),
            (json!([{"ipv4": {"fragment_offset": {"value": "0", "mask": "1fff", "negate": true}}}]), [false, false]),
            (json!([{"ipv6": {}}]), [false, false]),
            // The port of UDP behind IPv4, and the length behind the port.
            (
                json!([{"ipv4": {}}, {"custom": {"offset": 16, "bit_length": 16, "value": "1389", "mask": "ffff"}}]),
                [true, true],
            ),
            (
                json!([{"ipv4": {}}, {"custom": {"offset": 16, "bit_length": 16}}, {"custom": {"bit_length": 16, "value": "28", "mask": "ffff"}}]),
                [true, true],
            ),
            (json!([{"choice": "custom", "custom": {"offset": 4, "value": "20", "mask": "ff"}}]), [true, true]),
            // Bits behind the end of the frame have no value.
            (json!([{"custom": {"offset": 656, "value": "00", "mask": "01"}}]), [false, false]),
            (json!([{"custom": {"offset": 656, "value": "00", "mask": "01", "negate": true}}]), [false, false]),
        ] {
            assert_eq!([&plain, &tagged].map(|frame| passes(filters.clone(), frame)), expected, "{filters}");
        }
        let all =
            read(json!([{"ethernet": {}}, {"ipv6": {"dst": {"value": "0", "mask": "1", "negate": true}}}])).unwrap();
        let mut six = [&frame(&[])[..12], &[0x86, 0xdd, 0x60], &[0; 38], &[1]].concat();
        assert!(all.pass(&six));
        six.pop();
        assert!(!all.pass(&six), "the header is cut");
        assert!(
            (0..plain.len()).all(|length| !read(json!([{"ipv4": {}}, {"custom": {"offset": 312}}]))
                .unwrap()
                .pass(&plain[..length]))
        );
    }

    #[test]
    fn filters_that_cannot_be_meant_are_refused() {
        for (filters, error) in [
            (
                json!([{"ethernet": {"src": {"value": "02"}}}]),
                "filters[0].ethernet.src.mask: no bit is compared: bits that are 1 in the mask are; `ffffffffffff` compares all",
            ),
            (
                json!([{"vlan": {"id": {"value": "00", "mask": "00", "negate": true}}}]),
                "filters[0].vlan.id.mask: no bit is compared",
            ),
            (
                json!([{"vlan": {"id": {"value": "1000", "mask": "fff"}}}]),
                "filters[0].vlan.id.value: `1000` is not a number of at most 12 bits",
            ),
            (
                json!([{"ipv4": {"dst": {"value": "10.0.0.1", "mask": "ff"}}}]),
                "filters[0].ipv4.dst.value: `10.0.0.1` is not a number",
            ),
            (
                json!([{"ethernet": {"pfc_queue": {"value": "01", "mask": "07"}}}]),
                "filters[0].ethernet.pfc_queue: not supported",
            ),
            (
                json!([{"custom": {"bit_length": 65}}]),
                "filters[0].custom.bit_length: 65 is not a whole number from 0 to 64",
            ),
            (json!([{"custom": {}}, {"ethernet": {}}]), "filters[1]: this header cannot follow"),
            (json!([{"ipv4": {}}, {"ipv6": {}}]), "filters[1]: this header cannot follow"),
            (json!([{"vlan": {}}, {"ethernet": {}}]), "filters[1]: this header cannot follow"),
        ] {
            let found = read(filters).unwrap_err();
            assert!(found[0].starts_with(error), "{found:?}");
        }
    }

    proptest! {
        /// What passes depends on nothing but the frame, and a frame that is cut has at most what the whole one has.
        #[test]
        fn any_frame_passes_or_not(mut frame in prop::collection::vec(any::<u8>(), 0..100), kind in 0usize..4, cut in any::<prop::sample::Index>()) {
            if frame.len() > 20 {
                let ethertype = [[8u8, 0], [0x86, 0xdd], [0x81, 0], [0x88, 0xa8]][kind];
                frame[12..14].copy_from_slice(&ethertype);
            }
            let custom = json!({"custom": {"offset": 5, "bit_length": 63}});
            for filters in [
                json!([{"vlan": {}}, {"vlan": {}}, custom]),
                json!([{"ipv4": {"options": null}}, custom, custom]),
                json!([{"ethernet": {}}, {"ipv6": {}}, custom]),
                json!([custom, custom]),
            ] {
                let filters = read(filters).unwrap();
                let part = &frame[..cut.index(frame.len() + 1)];
                prop_assert!(filters.pass(&frame) || !filters.pass(part));
            }
        }
    }
}
