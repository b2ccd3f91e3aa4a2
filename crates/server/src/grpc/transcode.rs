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
    // By way of text, where a float is as short as its client wrote it: 99.9 and not 99.9000015258789.
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

/// The message within the one around a request. Parts of it may be apart, and then they are one after the other.
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

/// The message around an answer.
pub(super) fn wrap(inner: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(inner.len() + 11);
    encode_key(ONLY, WireType::LengthDelimited, &mut bytes);
    encode_varint(inner.len() as u64, &mut bytes);
    bytes.extend_from_slice(inner);
    bytes
}
