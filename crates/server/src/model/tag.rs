//! Tags of header fields (`metric_tags`). A flow with tags is also counted by the values that its frames have there when they leave.

use super::flow::gcd;
use super::read::Object;
use drophammer_model::traffic::{Field, FieldValue};
use std::collections::HashMap;

/// Longest cycle of frames after which all tagged fields of a flow repeat.
pub const MOST_PLACES: u64 = 4_096;

/// Maximum number of tags of a flow.
const MOST_TAGS: usize = 16;

/// Fields that `bidirectional` swaps.
const SWAPPED: [&str; 4] = ["src", "dst", "src_port", "dst_port"];

/// A tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    name: String,
    /// Values of the tagged bits, one per frame, cyclically.
    values: Vec<u128>,
    path: String,
    swapped: bool,
}

/// The tags of a flow. All of them repeat after a cycle of frames, whose places are combinations of values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    /// Names of the tags.
    pub names: Vec<String>,
    /// The different combinations in the order of the frames, each with a value per tag.
    pub combinations: Vec<Vec<u128>>,
    /// The combination at each place of the cycle; empty without tags.
    pub of_place: Vec<usize>,
}

/// Frames after which the values repeat. A counter may return to its start before it has wrapped as often as it can.
fn cycle<T: FieldValue>(field: &Field<T>) -> u64 {
    match field {
        Field::Increment { count, .. } if !count.is_multiple_of(field.count()) => *count,
        _ => field.count(),
    }
}

/// Takes the tags of the pattern of the header field `key`, which has these values; `None` for automatic ones.
pub fn read<T: FieldValue>(pattern: &mut Object<'_>, key: &str, field: Option<&Field<T>>) {
    for mut o in pattern.objects("metric_tags") {
        let (errors, path, width) = (o.errors(), o.path().to_owned(), u64::from(T::WIDTH));
        let name = o.name("name");
        let offset = o.number_or("offset", width - 1, 0);
        let length = o.within("length", [1, width], width - offset);
        if length == 0 {
            continue;
        }
        let Some(field) = field else {
            errors.add(&path, "an automatic value has no tag; write the value");
            continue;
        };
        if offset + length > width {
            o.wrong(
                "length",
                format_args!("the field has {width} bits, of which {} begin at `offset`", width - offset),
            );
            continue;
        }
        let frames = cycle(field);
        if frames > MOST_PLACES {
            errors.add(&path, format_args!("the field repeats after {frames} frames; tags need at most {MOST_PLACES}"));
            continue;
        }
        if let Err(why) = errors.spend_tagged(frames) {
            errors.add(&path, why);
            continue;
        }
        let shift = width - offset - length;
        let bits = |frame| field.at(frame).to_bits() >> shift & u128::MAX >> (128 - length);
        let values = (0..frames).map(bits).collect();
        errors.add_tag(Tag { name, values, path, swapped: SWAPPED.contains(&key) });
    }
}

impl Tags {
    /// Takes the tags of the headers that were read for `flow`. With `both_ways`, its frames also go from the receivers to the
    /// senders.
    pub fn take(flow: &Object<'_>, both_ways: bool) -> Tags {
        let (errors, tags) = (flow.errors(), flow.errors().take_tags());
        if tags.len() > MOST_TAGS {
            flow.wrong("packet", format_args!("it has {} tags; at most {MOST_TAGS} are supported", tags.len()));
            return Tags::default();
        }
        for (i, tag) in tags.iter().enumerate() {
            if tags[..i].iter().any(|other| other.name == tag.name) {
                errors.add(&tag.path, format_args!("another tag of this flow has the name `{}`", tag.name));
            }
            if both_ways && tag.swapped {
                let text = "`bidirectional` swaps this field, so it has no tag; write a flow for each direction";
                errors.add(&tag.path, text);
            }
        }
        if tags.is_empty() {
            return Tags::default();
        }
        let places = tags.iter().fold(1, |all: u64, tag| {
            let own = tag.values.len() as u64;
            all.saturating_mul(own / gcd(all, own))
        });
        if places > MOST_PLACES {
            let text =
                format_args!("all tagged fields repeat after {places} frames; at most {MOST_PLACES} are supported");
            flow.wrong("packet", text);
            return Tags::default();
        }
        if let Err(why) = errors.spend_tagged(places) {
            flow.wrong("packet", why);
            return Tags::default();
        }
        let mut found = Tags { names: tags.iter().map(|tag| tag.name.clone()).collect(), ..Tags::default() };
        let mut known: HashMap<Vec<u128>, usize> = HashMap::new();
        for place in 0..places as usize {
            let combination: Vec<u128> = tags.iter().map(|tag| tag.values[place % tag.values.len()]).collect();
            let next = found.combinations.len();
            let number = *known.entry(combination).or_insert_with_key(|combination| {
                found.combinations.push(combination.clone());
                next
            });
            found.of_place.push(number);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::flow::{Flow, flow};
    use super::super::read::{Errors, Object};
    use super::*;
    use serde_json::{Value, json};

    fn read(packet: Value) -> Result<Flow, Vec<String>> {
        let errors = Errors::default();
        let text = json!({"name": "f", "tx_rx": {"port": {"tx_name": "a", "rx_name": "b"}}, "packet": packet});
        let found = flow(Object::document(text, &errors));
        errors.or(found)
    }

    #[test]
    fn a_place_is_a_combination_of_values() {
        let tags = |name| json!([{"name": name}]);
        let flow = read(json!([
            {"ethernet": {}},
            {"vlan": {"id": {"values": [100, 101], "metric_tags": tags("vlan")}}},
            {"ipv4": {
                "priority": {"dscp": {"phb": {"values": [46, 0, 46], "metric_tags": tags("dscp")}}},
                "time_to_live": {"value": 64, "metric_tags": [{"name": "ttl", "offset": 1, "length": 2}]},
                "dst": {"increment": {"start": "10.0.0.254", "count": 3}, "metric_tags": [{"name": "last", "offset": 24}]},
            }},
        ]));
        let Tags { names, combinations, of_place } = flow.unwrap().tags;
        assert_eq!(names, ["vlan", "dscp", "ttl", "last"]);
        let of = [
            [100, 46, 2, 254],
            [101, 0, 2, 255],
            [100, 46, 2, 0],
            [101, 46, 2, 254],
            [100, 0, 2, 255],
            [101, 46, 2, 0],
        ];
        assert_eq!((combinations, of_place), (of.map(Vec::from).to_vec(), vec![0, 1, 2, 3, 4, 5]));
    }

    #[test]
    fn equal_values_are_one_combination() {
        let tags = |field: Value| read(json!([{"ethernet": {}}, {"ipv4": {"time_to_live": field}}])).unwrap().tags;
        let upper = tags(json!({"increment": {"start": 14, "count": 4}, "metric_tags": [{"name": "t", "length": 4}]}));
        assert_eq!((upper.combinations, upper.of_place), (vec![vec![0], vec![1]], vec![0, 0, 1, 1]));
        // It wraps after two frames and starts again after three.
        let counter = json!({"increment": {"start": 0, "step": 128, "count": 3}, "metric_tags": [{"name": "t"}]});
        assert_eq!(tags(counter).of_place, [0, 1, 0]);
        let random = json!([{"tcp": {"src_port": {"random": {"min": 1, "max": 2, "count": 2}, "metric_tags": [{"name": "t"}]}}}]);
        let mut values = read(random).unwrap().tags.combinations;
        values.sort();
        assert_eq!(values, [[1], [2]]);
        assert_eq!(read(json!([{"ethernet": {}}])).unwrap().tags, Tags::default());
    }

    #[test]
    fn mistakes_have_their_path() {
        let port = |field: Value| json!([{"udp": {"src_port": field}}]);
        let many = json!({"increment": {"count": 5_000}, "metric_tags": [{"name": "t"}]});
        let tagged = |count: u64, name| json!({"increment": {"count": count}, "metric_tags": [{"name": name}]});
        for (packet, error) in [
            (port(json!({"metric_tags": [{}]})), "packet[0].udp.src_port.metric_tags[0].name: this is required"),
            (
                port(json!({"metric_tags": [{"name": "t", "offset": 16}]})),
                "packet[0].udp.src_port.metric_tags[0].offset: 16 is not a whole number from 0 to 15",
            ),
            (
                port(json!({"metric_tags": [{"name": "t", "offset": 12, "length": 5}]})),
                "packet[0].udp.src_port.metric_tags[0].length: the field has 16 bits, of which 4 begin at `offset`",
            ),
            (
                port(json!({"metric_tags": [{"name": "t", "length": 0}]})),
                "packet[0].udp.src_port.metric_tags[0].length: the smallest value is 1",
            ),
            (
                port(many),
                "packet[0].udp.src_port.metric_tags[0]: the field repeats after 5000 frames; tags need at most 4096",
            ),
            (
                json!([{"ethernet": {"dst": {"choice": "auto", "metric_tags": [{"name": "t"}]}}}]),
                "packet[0].ethernet.dst.metric_tags[0]: an automatic value has no tag; write the value",
            ),
            (
                json!([{"udp": {"src_port": tagged(4, "t"), "dst_port": tagged(2, "t")}}]),
                "packet[0].udp.dst_port.metric_tags[0]: another tag of this flow has the name `t`",
            ),
            (
                json!([{"udp": {"src_port": tagged(1_000, "s"), "dst_port": tagged(999, "d")}}]),
                "packet: all tagged fields repeat after 999000 frames; at most 4096 are supported",
            ),
            (
                json!([{"custom": {"bytes": "00", "metric_tags": [{"name": "t"}]}}]),
                "packet[0].custom.metric_tags: not supported",
            ),
        ] {
            assert_eq!(read(packet).unwrap_err(), [error]);
        }
    }

    #[test]
    fn tags_have_bounds() {
        let tags = |count: usize| -> Value { (0..count).map(|i| json!({"name": format!("t{i}")})).collect() };
        let port = |count: usize| json!([{"udp": {"src_port": {"metric_tags": tags(count)}}}]);
        assert_eq!(read(port(16)).unwrap().tags.combinations, [[0; 16]]);
        assert_eq!(read(port(17)).unwrap_err(), ["packet: it has 17 tags; at most 16 are supported"]);
        // 16 tags of 4,096 values each leave nothing for their combinations.
        let port = json!([{"udp": {"src_port": {"increment": {"count": 4_096}, "metric_tags": tags(16)}}}]);
        assert_eq!(read(port).unwrap_err(), ["packet: all tags together have at most 65536 values"]);
    }

    #[test]
    fn fields_that_are_swapped_have_no_tags_in_flows_with_two_directions() {
        let errors = Errors::default();
        let tags = json!([{"name": "t"}]);
        let text = json!({
            "name": "f", "tx_rx": {"device": {"tx_names": ["a"], "rx_names": ["b"], "bidirectional": true}},
            "packet": [{"ethernet": {}}, {"ipv4": {"time_to_live": {"metric_tags": tags}, "dst": {"metric_tags": [{"name": "d"}]}}}],
        });
        let found = flow(Object::document(text, &errors));
        let error = "packet[1].ipv4.dst.metric_tags[0]: `bidirectional` swaps this field, so it has no tag; write a flow for each direction";
        assert_eq!(errors.or(found).unwrap_err(), [error]);
    }
}
