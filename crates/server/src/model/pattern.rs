//! The values of a header field over the frames of a flow: all patterns of the API are one generic type.

use super::read::{Object, whole};
use super::tag;
use drophammer_model::mac::MacAddr;
use drophammer_model::traffic::{Bits, Field, FieldValue};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, Ipv6Addr};

/// A value of a pattern, as it is written in JSON.
pub trait Written: FieldValue {
    /// The value, or what is accepted.
    ///
    /// # Errors
    /// What is accepted.
    fn read(value: &Value) -> Result<Self, String>;

    /// What is accepted, as a JSON Schema.
    fn accepted() -> Value;
}

/// The largest number of a field.
fn most<T: FieldValue>() -> u128 {
    u128::MAX >> (128 - T::WIDTH)
}

fn whole_numbers<T: FieldValue>() -> Value {
    json!({"type": "integer", "minimum": 0, "maximum": most::<T>() as u64})
}

fn number<T: FieldValue>(value: &Value) -> Result<T, String> {
    let most = most::<T>();
    let fits = whole(value).map(u128::from).filter(|number| *number <= most);
    fits.map(T::from_bits).ok_or_else(|| format!("{value} is not a whole number from 0 to {most}"))
}

fn text<T: std::str::FromStr>(value: &Value, what: &str) -> Result<T, String> {
    let text = value.as_str().ok_or_else(|| format!("{value} is not {what}"))?;
    text.parse().map_err(|_| format!("`{text}` is not {what}"))
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl Written for $type {
            fn read(value: &Value) -> Result<Self, String> {
                number(value)
            }

            fn accepted() -> Value {
                whole_numbers::<Self>()
            }
        }
    )*};
}
numbers!(u8, u16, u32, bool);

impl<const N: u32> Written for Bits<N> {
    fn read(value: &Value) -> Result<Self, String> {
        number(value)
    }

    fn accepted() -> Value {
        whole_numbers::<Self>()
    }
}

impl Written for Ipv4Addr {
    fn read(value: &Value) -> Result<Self, String> {
        text(value, "an IPv4 address")
    }

    fn accepted() -> Value {
        json!({"type": "string", "format": "ipv4"})
    }
}

impl Written for Ipv6Addr {
    fn read(value: &Value) -> Result<Self, String> {
        // The default of the model is written `::0`.
        text(value, "an IPv6 address")
    }

    fn accepted() -> Value {
        json!({"type": "string", "format": "ipv6"})
    }
}

impl Written for MacAddr {
    fn read(value: &Value) -> Result<Self, String> {
        text(value, "a MAC address")
    }

    fn accepted() -> Value {
        json!({"type": "string", "format": "mac"})
    }
}

/// Takes the pattern `key` with its tags; `None` if it is absent or `auto`.
pub fn pattern<T: Written>(header: &mut Object<'_>, key: &str, default: T) -> Option<Field<T>> {
    let mut pattern = header.object(key)?;
    let one = |o: &mut Object<'_>, key: &str, default: T| match o.take(key, T::accepted).map(|value| T::read(&value)) {
        None => default,
        Some(Ok(value)) => value,
        Some(Err(why)) => {
            o.wrong(key, why);
            default
        }
    };
    let field = match pattern.choice(&["value", "values", "increment", "decrement", "random", "auto"], "value") {
        "auto" => {
            pattern.ignore("auto");
            tag::read::<T>(&mut pattern, key, None);
            return None;
        }
        "values" => {
            let errors = pattern.errors();
            let path = pattern.path_of("values");
            let accepted = || json!({"type": "array", "items": T::accepted()});
            let list = pattern.take("values", accepted).unwrap_or_default();
            let read = |(i, value): (usize, &Value)| {
                T::read(value).unwrap_or_else(|why| {
                    errors.add(&format!("{path}[{i}]"), why);
                    default
                })
            };
            let values: Vec<T> = list.as_array().into_iter().flatten().enumerate().map(read).collect();
            Field::Values(if values.is_empty() { vec![default] } else { values })
        }
        "random" => {
            let mut o = pattern.object_or_empty("random");
            let (min, max) = (one(&mut o, "min", T::from_bits(0)), one(&mut o, "max", T::from_bits(u128::MAX)));
            let (seed, count) = (o.number_or("seed", u64::MAX, 1), o.number_or("count", u64::MAX, 1));
            Field::Random { min, max, count, seed }
        }
        way @ ("increment" | "decrement") => {
            let mut o = pattern.object_or_empty(way);
            let (start, step) = (one(&mut o, "start", default), one(&mut o, "step", T::from_bits(1)));
            let count = o.number_or("count", u64::MAX, 1);
            let step = if way == "increment" { step } else { T::from_bits(step.to_bits().wrapping_neg()) };
            Field::Increment { start, step, count }
        }
        _ => Field::Value(one(&mut pattern, "value", default)),
    };
    if let Err(e) = field.check() {
        pattern.errors().add(pattern.path(), e);
        pattern.ignore("metric_tags");
        return Some(Field::Value(default));
    }
    tag::read(&mut pattern, key, Some(&field));
    Some(field)
}

/// Takes the pattern `key`, which has `default` if it is absent or automatic.
pub fn pattern_or<T: Written>(header: &mut Object<'_>, key: &str, default: T) -> Field<T> {
    pattern(header, key, default).unwrap_or(Field::Value(default))
}

/// Takes the pattern `key`, which must have one value for all frames.
pub fn constant<T: Written>(header: &mut Object<'_>, key: &str, default: T) -> T {
    match pattern(header, key, default) {
        None => default,
        Some(Field::Value(value)) => value,
        Some(_) => {
            header.wrong(key, "only one value for all frames is supported here");
            default
        }
    }
}

/// Takes the checksum `key`: `None` for a correct one.
pub fn checksum(header: &mut Object<'_>, key: &str) -> Option<Field<u16>> {
    let mut pattern = header.object(key)?;
    match pattern.choice(&["generated", "custom"], "generated") {
        "custom" => Some(Field::Value(pattern.number_or("custom", u16::MAX.into(), 0) as u16)),
        _ => {
            pattern.word("generated", &["good"], 0);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::read::Errors;
    use serde_json::json;

    fn read<T: Written>(value: Value) -> Result<Option<Field<T>>, Vec<String>> {
        let errors = Errors::default();
        let mut header = Object::document(json!({ "f": value }), &errors);
        let found = pattern(&mut header, "f", T::from_bits(0));
        drop(header);
        errors.or(found)
    }

    #[test]
    fn each_form_is_a_field() {
        for (value, field) in [
            (json!({"value": 7}), Some(Field::Value(7u16))),
            (json!({"choice": "value", "value": "7"}), Some(Field::Value(7))),
            (json!({}), Some(Field::Value(0))),
            (json!({"choice": "auto"}), None),
            (json!({"values": [1, 2]}), Some(Field::Values(vec![1, 2]))),
            (
                json!({"increment": {"start": 5, "step": 2, "count": "3"}}),
                Some(Field::Increment { start: 5, step: 2, count: 3 }),
            ),
            (
                json!({"choice": "decrement", "decrement": {"start": 5, "count": 2}}),
                Some(Field::Increment { start: 5, step: u16::MAX, count: 2 }),
            ),
            (
                json!({"random": {"min": 1, "max": 9, "count": 4, "seed": 2}}),
                Some(Field::Random { min: 1, max: 9, count: 4, seed: 2 }),
            ),
        ] {
            assert_eq!(read(value.clone()), Ok(field), "{value}");
        }
        let up = json!({"increment": {"start": "10.0.0.1", "step": "0.0.1.0", "count": 2}});
        let (start, step) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(0, 0, 1, 0));
        assert_eq!(read(up), Ok(Some(Field::Increment { start, step, count: 2 })));
    }

    #[test]
    fn mistakes_have_their_path() {
        for (value, error) in [
            (json!({"value": 64}), "f.value: 64 is not a whole number from 0 to 63"),
            (json!({"values": [1, 99]}), "f.values[1]: 99 is not a whole number from 0 to 63"),
            (json!({"random": {"min": 2, "max": 1}}), "f: `min` is above `max`; swap them"),
        ] {
            assert_eq!(read::<Bits<6>>(value).unwrap_err(), [error]);
        }
    }
}
