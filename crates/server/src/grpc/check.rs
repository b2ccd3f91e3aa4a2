//! Checks the bytes of a message before they are decoded. Each field must be in the tables, with a value that it can have, and
//! the number of fields is limited. An error names the path of what is refused.

use super::table;
use prost::bytes::Buf;
use prost::encoding::{WireType, decode_key, decode_varint};
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use std::collections::HashMap;
use std::fmt::Display;

/// Maximum number of fields and list entries of one message, including nested messages. Each takes at least two bytes on the wire,
/// and up to 400 bytes in memory, including its JSON.
pub const MOST_VALUES: usize = 2_000_000;

/// Why bytes are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{reason}", path, if path.is_empty() { "" } else { ": " })]
pub struct Refused {
    /// Where, as in `flows[0].rate`; empty at the outermost message.
    pub path: String,
    /// Why.
    pub reason: String,
}

impl Refused {
    pub(super) fn new(reason: impl Into<String>) -> Refused {
        Refused { path: String::new(), reason: reason.into() }
    }

    /// The same error, with the path from the message around it.
    fn within(mut self, outer: &str) -> Refused {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path.insert_str(0, dot);
        self.path.insert_str(0, outer);
        self
    }
}

/// Checks that `bytes` are a message of this kind, with known fields only.
///
/// # Errors
/// [`Refused`], at the first field that is wrong.
pub(super) fn check(message: &MessageDescriptor, bytes: &[u8]) -> Result<(), Refused> {
    fields(message, bytes, &mut { MOST_VALUES })
}

/// Checks the fields of a message. The tables contain no message that contains itself, so the depth is limited.
fn fields(message: &MessageDescriptor, mut bytes: &[u8], left: &mut usize) -> Result<(), Refused> {
    let mut entries = HashMap::<u32, usize>::new();
    while !bytes.is_empty() {
        let (number, wire) = decode_key(&mut bytes).map_err(|e| Refused::new(format!("{}: {e}", message.name())))?;
        let field = message.get_field(number).ok_or_else(|| unknown(message, number))?;
        // Packed entries are in one piece, which has no number.
        let entry = (field.is_list() && !packed(&field, wire)).then(|| {
            let next = entries.entry(number).or_default();
            *next += 1;
            *next - 1
        });
        value(&field, wire, &mut bytes, left).map_err(|refused| match entry {
            Some(entry) => refused.within(&format!("[{entry}]")).within(field.name()),
            None => refused.within(field.name()),
        })?;
    }
    Ok(())
}

fn unknown(message: &MessageDescriptor, number: u32) -> Refused {
    let known = table::unsupported(message, number).map(|name| format!(" ({name})")).unwrap_or_default();
    Refused::new(format!("field {number}{known} of {} is not supported", message.name()))
}

fn packed(field: &FieldDescriptor, wire: WireType) -> bool {
    wire == WireType::LengthDelimited && !matches!(field.kind(), Kind::Message(_) | Kind::String)
}

/// Checks one value, or the packed entries of a list, and leaves in `bytes` what follows.
fn value(field: &FieldDescriptor, wire: WireType, bytes: &mut &[u8], left: &mut usize) -> Result<(), Refused> {
    let kind = field.kind();
    match (&kind, wire) {
        (Kind::Message(inner), WireType::LengthDelimited) => {
            count(left)?;
            fields(inner, delimited(bytes)?, left)
        }
        (Kind::String, WireType::LengthDelimited) => {
            count(left)?;
            std::str::from_utf8(delimited(bytes)?).map_err(|e| Refused::new(e.to_string()))?;
            Ok(())
        }
        (Kind::String | Kind::Message(_), _) => Err(mismatch(field, wire)),
        _ if field.is_list() && packed(field, wire) => {
            let mut entries = delimited(bytes)?;
            while !entries.is_empty() {
                scalar(&kind, &mut entries, left)?;
            }
            Ok(())
        }
        _ if wire == wire_type(&kind) => scalar(&kind, bytes, left),
        _ => Err(mismatch(field, wire)),
    }
}

fn wire_type(kind: &Kind) -> WireType {
    match kind {
        Kind::Float => WireType::ThirtyTwoBit,
        Kind::Double => WireType::SixtyFourBit,
        _ => WireType::Varint,
    }
}

fn scalar(kind: &Kind, bytes: &mut &[u8], left: &mut usize) -> Result<(), Refused> {
    count(left)?;
    match (wire_type(kind), kind) {
        // The largest value is out of range too, because its text is rounded up.
        (WireType::ThirtyTwoBit, _) => {
            let number = f32::from_le_bytes(array(bytes)?);
            finite(number.abs() < f32::MAX, number)
        }
        (WireType::SixtyFourBit, _) => {
            let number = f64::from_le_bytes(array(bytes)?);
            finite(number.is_finite(), number)
        }
        (_, Kind::Enum(values)) => match varint(bytes)? {
            number if i32::try_from(number).is_ok_and(|number| values.get_value(number).is_some()) => Ok(()),
            number => Err(Refused::new(format!("value {number} is not supported"))),
        },
        _ => varint(bytes).map(drop),
    }
}

fn count(left: &mut usize) -> Result<(), Refused> {
    *left = left.checked_sub(1).ok_or_else(|| {
        Refused::new(format!("the message has more than {MOST_VALUES} values; send it in several parts"))
    })?;
    Ok(())
}

fn mismatch(field: &FieldDescriptor, wire: WireType) -> Refused {
    Refused::new(format!("field {} is not a {wire:?}", field.number()))
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Refused> {
    decode_varint(bytes).map_err(|e| Refused::new(e.to_string()))
}

fn finite(finite: bool, number: impl Display) -> Result<(), Refused> {
    if finite { Ok(()) } else { Err(Refused::new(format!("{number} is out of range"))) }
}

fn array<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Refused> {
    take(bytes, N).map(|taken| taken.try_into().expect("as many bytes as were asked for"))
}

/// Takes a length and as many bytes.
pub(super) fn delimited<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], Refused> {
    let length = varint(bytes)?;
    take(bytes, usize::try_from(length).unwrap_or(usize::MAX))
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], Refused> {
    let all = *bytes;
    let taken = all.get(..length).ok_or_else(|| {
        Refused::new(format!("the message ends {} bytes too early", length.saturating_sub(all.len())))
    })?;
    bytes.advance(length);
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field with a length.
    fn delimited(number: u8, inner: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, inner.len() as u8], inner].concat()
    }

    fn refused(message: &str, bytes: &[u8]) -> String {
        check(&table::message(message), bytes).unwrap_err().to_string()
    }

    #[test]
    fn what_is_refused_is_named_by_its_path() {
        let header = |inner: &[u8]| delimited(6, &[delimited(2, &[]), delimited(2, inner)].concat());
        let flows = |inner: &[u8]| [delimited(6, &[]), header(inner)].concat();
        assert_eq!(
            refused("Config", &flows(&[0xba, 1, 0])),
            "flows[1].packet[1]: field 23 (macsec) of FlowHeader is not supported"
        );
        assert_eq!(
            refused("Config", &flows(&[0x98, 6, 0])),
            "flows[1].packet[1]: field 99 of FlowHeader is not supported"
        );
        assert_eq!(refused("Config", &flows(&[8, 200, 1])), "flows[1].packet[1].choice: value 200 is not supported");
        assert_eq!(
            refused("Config", &flows(&[0x32, 5, 0])),
            "flows[1].packet[1].ipv4: the message ends 4 bytes too early"
        );
        assert_eq!(refused("Config", &flows(&[0x30, 5])), "flows[1].packet[1].ipv4: field 6 is not a Varint");
        assert!(refused("Config", &delimited(1, &delimited(2, &[0xff]))).starts_with("ports[0].name: invalid utf-8"));
        assert_eq!(refused("FlowRate", &[0x3d, 0, 0, 0xc0, 0x7f]), "percentage: NaN is out of range");
        assert_eq!(refused("FlowRate", &[0x3d, 0, 0, 0xc0]), "percentage: the message ends 1 bytes too early");
        assert!(refused("FlowRate", &[0]).starts_with("FlowRate: "));
    }

    #[test]
    fn lists_of_numbers_are_packed_or_not() {
        let values = table::message("PatternFlowVlanId");
        assert_eq!(check(&values, &[0x18, 1, 0x1a, 2, 2, 3]), Ok(()));
        assert_eq!(refused("PatternFlowVlanId", &[0x18, 1, 0x1a, 2, 2, 0x80]).split(':').next(), Some("values"));
        assert_eq!(refused("PatternFlowVlanId", &[0x12, 1, 1]), "value: field 2 is not a LengthDelimited");
    }

    #[test]
    fn the_number_of_values_is_limited() {
        let config = table::message("Config");
        let three = [0x32, 0, 0x32, 0, 0x32, 2, 0x22, 0];
        assert_eq!(fields(&config, &three, &mut 4), Ok(()));
        assert_eq!(fields(&config, &three, &mut 3).unwrap_err().path, "flows[2].rate");
        let packed = [0x1a, 3, 1, 2, 3];
        assert_eq!(fields(&table::message("PatternFlowVlanId"), &packed, &mut 3), Ok(()));
        assert_eq!(fields(&table::message("PatternFlowVlanId"), &packed, &mut 2).unwrap_err().path, "values");
    }
}
