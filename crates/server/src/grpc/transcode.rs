//! Messages of gRPC to the JSON of the REST API, and back: fields have the names of the model, enumerations are text, and
//! 64-bit numbers are text in the direction to JSON.

use super::check::{self, Refused};
use super::table;
use prost::Message;
use prost::encoding::{WireType, decode_key, encode_key, encode_varint};
use prost_reflect::{DeserializeOptions, DynamicMessage, SerializeOptions};
use serde_json::Value;

/// Number of the only field of the messages around requests and answers, and of the bytes in an answer.
const ONLY: u32 = 1;

/// The JSON of a message of this name, as in `Config`. An empty message is `{}`.
///
/// # Errors
/// [`Refused`]: the bytes are no such message, or have a field that is not supported.
///
/// # Panics
/// If the tables have no message of this name.
pub fn to_json(message: &str, bytes: &[u8]) -> Result<Value, Refused> {
    let message = table::message(message);
    check::check(&message, bytes)?;
    let decoded = DynamicMessage::decode(message, bytes).map_err(|e| Refused::new(e.to_string()))?;
    let options = SerializeOptions::new().use_proto_field_name(true).stringify_64_bit_integers(true);
    // Goes through text, so that a float is as short as its client wrote it: 99.9 and not 99.9000015258789.
    let mut text = serde_json::Serializer::new(Vec::new());
    decoded.serialize_with_options(&mut text, &options).map_err(|e| Refused::new(e.to_string()))?;
    drop(decoded);
    serde_json::from_slice(&text.into_inner()).map_err(|e| Refused::new(e.to_string()))
}

/// The bytes of a message of this name. `null` is the empty message.
///
/// # Errors
/// [`Refused`]: the JSON is no such message.
///
/// # Panics
/// If the tables have no message of this name.
pub fn from_json(message: &str, json: &Value) -> Result<Vec<u8>, Refused> {
    if json.is_null() {
        return Ok(Vec::new());
    }
    let options = DeserializeOptions::new().deny_unknown_fields(true);
    let encoded = DynamicMessage::deserialize_with_options(table::message(message), json, &options);
    Ok(encoded.map_err(|e| Refused::new(format!("{message}: {e}")))?.encode_to_vec())
}

/// Removes keys for which the API has no fields: they begin with `x-drophammer`, and only REST has them.
pub(super) fn drop_extensions(json: &mut Value) {
    match json {
        Value::Object(fields) => {
            fields.retain(|key, _| !key.starts_with("x-drophammer"));
            fields.values_mut().for_each(drop_extensions);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_extensions),
        _ => {}
    }
}

/// The message inside the outer message of a request. If it comes in several parts, they are concatenated.
pub(super) fn unwrap(mut bytes: &[u8]) -> Result<Vec<u8>, Refused> {
    let mut inner = Vec::new();
    while !bytes.is_empty() {
        match decode_key(&mut bytes).map_err(|e| Refused::new(e.to_string()))? {
            (ONLY, WireType::LengthDelimited) => inner.extend_from_slice(check::delimited(&mut bytes)?),
            (number, _) => return Err(Refused::new(format!("field {number} of the request is not supported"))),
        }
    }
    Ok(inner)
}

/// The outer message of an answer.
pub(super) fn wrap(inner: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(inner.len() + 11);
    encode_key(ONLY, WireType::LengthDelimited, &mut bytes);
    encode_varint(inner.len() as u64, &mut bytes);
    bytes.extend_from_slice(inner);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use prost_reflect::{Kind, MessageDescriptor};
    use serde_json::{Map, json};

    #[test]
    fn numbers_and_names_are_those_of_rest() {
        let json = json!({
            "ports": [{"name": "p1"}, {}],
            "flows": [{
                "name": "f",
                "rate": {"choice": "percentage", "percentage": 99.9, "pps": "18446744073709551615"},
                "duration": {"burst": {"inter_burst_gap": {"nanoseconds": 0.30000000000000004}}},
                "packet": [{"ethernet": {}}, {"vlan": {"id": {"choice": "values", "values": [0, 4095]}}}],
            }],
        });
        assert_eq!(to_json("Config", &from_json("Config", &json).unwrap()), Ok(json));
    }

    #[test]
    fn extensions_are_left_out() {
        let mut answer = json!({"choice": "flow_metrics", "flow_metrics": [{
            "name": "f", "frames_tx": "1", "timestamps": {"first_timestamp_ns": 1_790_000_000_000_000_512_u64},
            "x-drophammer": {"valid": true},
        }]});
        assert!(from_json("MetricsResponse", &answer).is_err());
        drop_extensions(&mut answer);
        let bytes = from_json("MetricsResponse", &answer).unwrap();
        let row = &to_json("MetricsResponse", &bytes).unwrap()["flow_metrics"][0];
        assert_eq!(
            (&row["frames_tx"], row["timestamps"]["first_timestamp_ns"].as_f64()),
            (&json!("1"), Some(1.790_000_000_000_000_5e18))
        );
    }

    /// A field with a length, whose number and type are in its first byte.
    fn delimited(key: u8, inner: &[u8]) -> Vec<u8> {
        [&[key, inner.len() as u8], inner].concat()
    }

    #[test]
    fn tags_have_the_numbers_of_the_model() {
        let name = delimited(0x0a, b"vlan");
        let filter = [name.clone(), delimited(0x12, b"64")].concat();
        let tagged = [vec![0x08, 1, 0x1a, 2, 2, 16], delimited(0x22, &filter)].concat();
        let request = [vec![0x08, 2], delimited(0x1a, &delimited(0x22, &tagged))].concat();
        let filters = json!([{"name": "vlan", "values": ["64"]}]);
        let wanted = json!({"include": true, "metric_names": ["frames_rx", "rx_rate_mbps"], "filters": filters});
        let json = json!({"choice": "flow", "flow": {"tagged_metrics": wanted}});
        assert_eq!(to_json("MetricsRequest", &request), Ok(json));

        let value = [vec![0x08, 1], delimited(0x12, b"64")].concat();
        let tag = [name, delimited(0x12, &value)].concat();
        let tagged = [delimited(0x0a, &tag), vec![0x10, 3, 0x45, 0, 0, 0xc8, 0x42, 0x52, 0]].concat();
        let row = [delimited(0x0a, b"f"), delimited(0x7a, &tagged)].concat();
        let answer = [vec![0x08, 1], delimited(0x1a, &row)].concat();
        let tags = json!([{"name": "vlan", "value": {"choice": "hex", "hex": "64"}}]);
        let tagged = json!([{"tags": tags, "frames_tx": "3", "loss": 100.0, "latency": {}}]);
        let json = json!({"choice": "flow_metrics", "flow_metrics": [{"name": "f", "tagged_metrics": tagged}]});
        assert_eq!(to_json("MetricsResponse", &answer), Ok(json.clone()));
        assert_eq!(from_json("MetricsResponse", &json), Ok(answer));
    }

    #[test]
    fn nothing_is_the_empty_message() {
        assert_eq!(to_json("Config", &[]), Ok(json!({})));
        assert_eq!(from_json("Config", &Value::Null), Ok(Vec::new()));
        assert_eq!(from_json("Config", &json!({})), Ok(Vec::new()));
        assert_eq!(unwrap(&[]), Ok(Vec::new()));
    }

    #[test]
    fn json_that_is_no_message_is_refused() {
        let refused = |json: Value| from_json("FlowRate", &json).unwrap_err().reason;
        assert_eq!(refused(json!({"pqs": 1})), "FlowRate: unrecognized field name 'pqs'");
        assert_eq!(refused(json!({"choice": "fast"})), "FlowRate: unrecognized enum value 'fast'");
        assert!(refused(json!({"pps": -1})).starts_with("FlowRate: "));
        assert!(refused(json!([])).starts_with("FlowRate: "));
    }

    #[test]
    fn the_message_around_a_request_has_one_field() {
        let inner = vec![7; 300];
        assert_eq!(unwrap(&wrap(&inner)), Ok(inner));
        assert_eq!(unwrap(&[0x0a, 1, 8, 0x0a, 1, 9]), Ok(vec![8, 9]));
        assert_eq!(unwrap(&[0x12, 0]).unwrap_err().reason, "field 2 of the request is not supported");
        assert_eq!(unwrap(&[0x0a, 2, 0]).unwrap_err().reason, "the message ends 1 bytes too early");
    }

    /// JSON of a message, with fields and values that the bytes select.
    fn chosen(message: &MessageDescriptor, choices: &mut impl Iterator<Item = u8>) -> Value {
        let mut fields = Map::new();
        for field in message.fields() {
            let count = choices.next().unwrap_or(0) % 4;
            if count == 0 {
                continue;
            }
            let mut one = || match field.kind() {
                Kind::Message(inner) => chosen(&inner, choices),
                Kind::Enum(values) => {
                    let at = usize::from(choices.next().unwrap_or(0)) % values.values().len();
                    json!(values.values().nth(at).unwrap().name())
                }
                Kind::String => json!("\u{1}\"ä".repeat(choices.next().unwrap_or(0).into())),
                Kind::Bool => json!(choices.next() == Some(1)),
                Kind::Float | Kind::Double => json!(f64::from(choices.next().unwrap_or(0)) / 8.0),
                Kind::Int32 => json!(i32::from(choices.next().unwrap_or(0)) - 100),
                Kind::Uint64 => json!((u64::MAX - u64::from(choices.next().unwrap_or(0))).to_string()),
                _ => json!(u32::MAX - u32::from(choices.next().unwrap_or(0))),
            };
            let value = if field.is_list() { Value::Array((0..count).map(|_| one()).collect()) } else { one() };
            fields.insert(field.name().into(), value);
        }
        Value::Object(fields)
    }

    proptest! {
        #[test]
        fn json_stays_the_same_on_its_way_to_a_message_and_back(choices in prop::collection::vec(any::<u8>(), 0..400)) {
            for name in ["Config", "Flow", "FlowHeader", "BgpV4Peer", "ControlState", "MetricsResponse", "StatesResponse"] {
                let json = chosen(&table::message(name), &mut choices.iter().copied());
                let bytes = from_json(name, &json).unwrap();
                prop_assert_eq!(to_json(name, &bytes).unwrap(), json);
            }
        }
    }
}
