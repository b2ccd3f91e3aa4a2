//! The values of one header field over the frames of a flow.

use super::value::FieldValue;
use crate::routes::mix;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, IntoDeserializer, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// The sequence of values of a field, one per frame.
///
/// Written as a plain value (`dscp: 46`), as `{values: [10, 46]}`, as `{start: 100, step: 1, count: 50}` or as
/// `{random: {min: 1024, max: 65535, count: 1000, seed: 1}}`. A step is a value of the field's type (`0.0.1.0`) or a
/// whole number, which may be negative. Defaults: `step` is 1, `seed` is 1, and `count` of `random` is the whole range.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Field<T> {
    /// The same value in all frames.
    Value(T),
    /// One value after the other, cyclically.
    Values(Vec<T>),
    /// `start`, `start + step`, and so on, `count` values; wraps at the width of the field.
    Increment {
        /// The first value.
        start: T,
        /// Difference of consecutive values, modulo two to the power of the field's width.
        step: T,
        /// Number of values, after which they repeat.
        count: u64,
    },
    /// `count` different values between `min` and `max`, both included, in pseudo-random order (RFC 4814). The same seed
    /// gives the same values in every trial.
    Random {
        /// Lowest value.
        min: T,
        /// Highest value.
        max: T,
        /// Number of different values.
        count: u64,
        /// Determines the values and their order.
        seed: u64,
    },
}

/// Why a field has no valid values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum FieldError {
    #[error("the list of values is empty; write at least one")]
    Empty,
    #[error("`count` is 0; write how many values the field takes, at least 1")]
    NoCount,
    #[error("`min` is above `max`; swap them")]
    Reversed,
    #[error("`count` is {count}, but only {room} values lie between `min` and `max`; write at most {room}")]
    TooMany { count: u64, room: u64 },
}

/// Values between `min` and `max`; 0 stands for two to the power of 128.
fn room<T: FieldValue>(min: T, max: T) -> u128 {
    (max.to_bits().wrapping_sub(min.to_bits())).wrapping_add(1)
}

/// [`room`], limited to 64 bits.
fn countable(room: u128) -> u64 {
    if room == 0 { u64::MAX } else { u64::try_from(room).unwrap_or(u64::MAX) }
}

impl<T: FieldValue> Field<T> {
    /// Checks that there is a value for every frame.
    ///
    /// # Errors
    /// An empty list, a count of zero, an empty range, more random values than the range has.
    pub fn check(&self) -> Result<(), FieldError> {
        match self {
            Field::Values(values) if values.is_empty() => Err(FieldError::Empty),
            Field::Increment { count: 0, .. } | Field::Random { count: 0, .. } => Err(FieldError::NoCount),
            Field::Random { min, max, .. } if min.to_bits() > max.to_bits() => Err(FieldError::Reversed),
            Field::Random { min, max, count, .. } if *count > countable(room(*min, *max)) => {
                Err(FieldError::TooMany { count: *count, room: countable(room(*min, *max)) })
            }
            _ => Ok(()),
        }
    }

    /// Number of values after which they repeat: the length of a list, otherwise the number of different values. At
    /// least 1 for a field that passes [`Field::check`].
    pub fn count(&self) -> u64 {
        match self {
            Field::Value(_) => 1,
            Field::Values(values) => values.len() as u64,
            Field::Increment { step, count, .. } => {
                let zeros = step.to_bits().trailing_zeros().min(T::WIDTH);
                let period = 1u64.checked_shl(T::WIDTH - zeros).filter(|p| *p > 0).unwrap_or(u64::MAX);
                (*count).min(period)
            }
            Field::Random { count, .. } => *count,
        }
    }

    /// The value of frame `i`, counted from 0.
    ///
    /// # Panics
    /// The field does not pass [`Field::check`].
    pub fn at(&self, i: u64) -> T {
        match self {
            Field::Value(value) => *value,
            Field::Values(values) => values[(i % values.len() as u64) as usize],
            Field::Increment { start, step, count } => {
                let offset = step.to_bits().wrapping_mul(u128::from(i % count));
                T::from_bits(start.to_bits().wrapping_add(offset))
            }
            Field::Random { min, max, count, seed } => {
                let member = Permutation::new(room(*min, *max), *seed).at(u128::from(i % count));
                T::from_bits(min.to_bits().wrapping_add(member))
            }
        }
    }

    /// The value of the first frame.
    ///
    /// # Panics
    /// The field does not pass [`Field::check`].
    pub fn first(&self) -> T {
        self.at(0)
    }

    /// The field with the values of frames `first`, `first + step`, `first + 2 * step` and so on, if `first` is less than `step`. `None` if
    /// that would be a list of more than [`LONGEST_LIST`] values.
    ///
    /// # Panics
    /// The field does not pass [`Field::check`].
    pub fn every(&self, first: u64, step: u64) -> Option<Field<T>> {
        let round = match self {
            Field::Value(_) => return Some(self.clone()),
            Field::Increment { step: each, count, .. } if count.is_multiple_of(step) && *count > step => {
                let each = T::from_bits(each.to_bits().wrapping_mul(step.into()));
                return Some(Field::Increment { start: self.at(first), step: each, count: count / step });
            }
            Field::Values(values) => values.len() as u64,
            Field::Increment { count, .. } | Field::Random { count, .. } => *count,
        };
        let length = round / gcd(round, step);
        if length > LONGEST_LIST {
            return None;
        }
        let values: Vec<T> = (0..length).map(|i| self.at(first + i * step)).collect();
        Some(if let [value] = values[..] { Field::Value(value) } else { Field::Values(values) })
    }
}

/// Most values in a list made by [`Field::every`].
const LONGEST_LIST: u64 = 65_536;

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A [`Field`] of any value type: values are numbers below two to the power of [`AnyField::width`].
pub trait AnyField {
    /// Bits of the field.
    fn width(&self) -> u32;
    /// See [`Field::check`].
    ///
    /// # Errors
    /// Errors of [`Field::check`].
    fn check(&self) -> Result<(), FieldError>;
    /// See [`Field::count`].
    fn count(&self) -> u64;
    /// See [`Field::at`].
    ///
    /// # Panics
    /// If [`Field::at`] does.
    fn bits(&self, i: u64) -> u128;
    /// A shared copy.
    fn shared(&self) -> Arc<dyn AnyField + Send + Sync>;
}

impl<T: FieldValue> AnyField for Field<T> {
    fn width(&self) -> u32 {
        T::WIDTH
    }
    fn check(&self) -> Result<(), FieldError> {
        self.check()
    }
    fn count(&self) -> u64 {
        self.count()
    }
    fn bits(&self, i: u64) -> u128 {
        self.at(i).to_bits()
    }
    fn shared(&self) -> Arc<dyn AnyField + Send + Sync> {
        Arc::new(self.clone())
    }
}

impl<T> From<T> for Field<T> {
    fn from(value: T) -> Self {
        Field::Value(value)
    }
}

impl<T: Default> Default for Field<T> {
    fn default() -> Self {
        Field::Value(T::default())
    }
}

#[derive(Serialize)]
struct Draw<'a, T> {
    min: &'a T,
    max: &'a T,
    count: u64,
    seed: u64,
}

impl<T: Serialize> Serialize for Field<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Field::Value(value) = self {
            return value.serialize(serializer);
        }
        let mut map = serializer.serialize_map(None)?;
        match self {
            Field::Value(_) => {}
            Field::Values(values) => map.serialize_entry("values", values)?,
            Field::Increment { start, step, count } => {
                map.serialize_entry("start", start)?;
                map.serialize_entry("step", step)?;
                map.serialize_entry("count", count)?;
            }
            Field::Random { min, max, count, seed } => {
                map.serialize_entry("random", &Draw { min, max, count: *count, seed: *seed })?;
            }
        }
        map.end()
    }
}

/// A step: a value, or a whole number.
struct Step<T>(T);

impl<'de, T: FieldValue + Deserialize<'de>> Deserialize<'de> for Step<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read<T>(PhantomData<T>);
        fn fits<T: FieldValue, E: Error>(size: u64, negative: bool) -> Result<Step<T>, E> {
            let bits = u128::from(size);
            if T::WIDTH < 64 && bits >> T::WIDTH != 0 {
                return Err(E::custom(format!("a step of {size} does not fit a field of {} bits", T::WIDTH)));
            }
            Ok(Step(T::from_bits(if negative { bits.wrapping_neg() } else { bits })))
        }
        impl<'de, T: FieldValue + Deserialize<'de>> Visitor<'de> for Read<T> {
            type Value = Step<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a step: a whole number or a value of the field")
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<Step<T>, E> {
                fits(value, false)
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Step<T>, E> {
                fits(value.unsigned_abs(), value < 0)
            }
            fn visit_str<E: Error>(self, value: &str) -> Result<Step<T>, E> {
                T::deserialize(value.into_deserializer()).map(Step)
            }
        }
        deserializer.deserialize_any(Read(PhantomData))
    }
}

/// The keys inside the braces of a field.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound = "T: FieldValue + Deserialize<'de>")]
struct Many<T> {
    values: Option<Vec<T>>,
    start: Option<T>,
    step: Option<Step<T>>,
    count: Option<u64>,
    random: Option<ReadDraw<T>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadDraw<T> {
    min: T,
    max: T,
    count: Option<u64>,
    seed: Option<u64>,
}

impl<T: FieldValue> Many<T> {
    fn field<E: Error>(self) -> Result<Field<T>, E> {
        let field = match self {
            Many { values: Some(values), start: None, step: None, count: None, random: None } => Field::Values(values),
            Many { values: None, start: Some(start), step, count: Some(count), random: None } => {
                Field::Increment { start, step: step.map_or(T::from_bits(1), |s| s.0), count }
            }
            Many { values: None, start: None, step: None, count: None, random: Some(draw) } => {
                let all = || countable(room(draw.min, draw.max)).max(1);
                let count = draw.count.unwrap_or_else(all);
                Field::Random { min: draw.min, max: draw.max, count, seed: draw.seed.unwrap_or(1) }
            }
            _ => {
                return Err(E::custom(
                    "these do not make a field; write a plain value, `{values: [..]}`, `{start: .., step: .., count: ..}` \
                     or `{random: {min: .., max: ..}}`",
                ));
            }
        };
        field.check().map_err(E::custom)?;
        Ok(field)
    }
}

impl<'de, T: FieldValue + Deserialize<'de>> Deserialize<'de> for Field<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read<T>(PhantomData<T>);
        impl<'de, T: FieldValue + Deserialize<'de>> Visitor<'de> for Read<T> {
            type Value = Field<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value, or `values`, `start` with `count`, or `random` in braces")
            }
            fn visit_bool<E: Error>(self, value: bool) -> Result<Field<T>, E> {
                T::deserialize(value.into_deserializer()).map(Field::Value)
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<Field<T>, E> {
                T::deserialize(value.into_deserializer()).map(Field::Value)
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Field<T>, E> {
                T::deserialize(value.into_deserializer()).map(Field::Value)
            }
            fn visit_str<E: Error>(self, value: &str) -> Result<Field<T>, E> {
                T::deserialize(value.into_deserializer()).map(Field::Value)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Field<T>, A::Error> {
                Many::deserialize(MapAccessDeserializer::new(map))?.field()
            }
        }
        deserializer.deserialize_any(Read(PhantomData))
    }
}

/// A seeded permutation of `0..n`: a Feistel network on the smallest even number of bits that holds `n` members.
#[derive(Clone, Copy, Debug)]
struct Permutation {
    n: u128,
    half_bits: u32,
    keys: [u64; 4],
}

impl Permutation {
    /// A permutation of `0..n`; 0 stands for two to the power of 128.
    fn new(n: u128, seed: u64) -> Permutation {
        let bits = (u128::BITS - n.wrapping_sub(1).leading_zeros()).max(2);
        let key = |round: u64| mix(seed.wrapping_add(round.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        Permutation { n, half_bits: bits.div_ceil(2), keys: std::array::from_fn(|round| key(round as u64 + 1)) }
    }

    /// Member at place `i`, which must be below `n`.
    fn at(&self, i: u128) -> u128 {
        // Cycle walking: the block is less than four times n, so a few steps always return a member below n.
        let mut x = i;
        loop {
            x = self.encrypt(x);
            if self.n == 0 || x < self.n {
                return x;
            }
        }
    }

    fn encrypt(&self, x: u128) -> u128 {
        let mask = (1u128 << self.half_bits) - 1;
        let (mut left, mut right) = (x >> self.half_bits, x & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (u128::from(mix(right as u64 ^ key)) & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::Bits;
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;
    use std::net::Ipv4Addr;

    fn read<T: FieldValue + for<'a> Deserialize<'a>>(yaml: &str) -> Result<Field<T>, String> {
        serde_saphyr::from_str(yaml).map_err(|e| e.to_string())
    }

    #[test]
    fn every_form_is_read_and_written() {
        let cases: [(&str, Field<u16>); 7] = [
            ("46", Field::Value(46)),
            ("0x88a8", Field::Value(0x88a8)),
            ("{values: [1, 5, 1]}", Field::Values(vec![1, 5, 1])),
            ("{start: 10, step: 2, count: 3}", Field::Increment { start: 10, step: 2, count: 3 }),
            ("{start: 10, step: -1, count: 3}", Field::Increment { start: 10, step: u16::MAX, count: 3 }),
            ("{start: 10, count: 3}", Field::Increment { start: 10, step: 1, count: 3 }),
            ("{random: {min: 3, max: 9}}", Field::Random { min: 3, max: 9, count: 7, seed: 1 }),
        ];
        for (yaml, field) in cases {
            assert_eq!(read::<u16>(yaml).unwrap(), field, "{yaml}");
            let json = serde_json::to_string(&field).unwrap();
            assert_eq!(serde_json::from_str::<Field<u16>>(&json).unwrap(), field, "{json}");
        }
        assert_eq!(serde_json::to_string(&Field::Value(46u8)).unwrap(), "46");
        let addresses: Field<Ipv4Addr> = read("{start: 10.0.0.255, step: 0.0.1.1, count: 4}").unwrap();
        assert_eq!(addresses.at(1), Ipv4Addr::new(10, 0, 2, 0));
        let down: Field<Ipv4Addr> = read("{start: 10.0.0.0, step: -1, count: 4}").unwrap();
        assert_eq!(down.at(1), Ipv4Addr::new(9, 255, 255, 255));
        assert_eq!(read::<bool>("true").unwrap(), Field::Value(true));
    }

    #[test]
    fn mistakes_are_named() {
        for (yaml, part) in [
            ("64", "64 does not fit a field of 6 bits"),
            ("{values: []}", "at least one"),
            ("{values: [64]}", "does not fit"),
            ("{start: 1, count: 0}", "at least 1"),
            ("{start: 1}", "do not make a field"),
            ("{start: 1, step: 64, count: 2}", "a step of 64 does not fit"),
            ("{start: 1, count: 2, values: [3]}", "do not make a field"),
            ("{random: {min: 2, max: 1}}", "swap them"),
            ("{random: {min: 1, max: 2, count: 3}}", "at most 2"),
            ("{random: {min: 1, max: 2, seeds: 3}}", "seeds"),
            ("{first: 1}", "first"),
            ("gold", "gold"),
        ] {
            let error = read::<Bits<6>>(yaml).unwrap_err();
            assert!(error.contains(part), "{yaml}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_share_of_the_frames_has_their_values(
            first: u8, step in 1u64..20, count in 1u64..60, start: u16, each: u16, values in proptest::collection::vec(any::<u16>(), 1..40)
        ) {
            let first = u64::from(first) % step;
            let random = Field::Random { min: 0, max: 1_000, count, seed: 3 };
            for field in [Field::Increment { start, step: each, count }, Field::Values(values), random, Field::Value(start)] {
                let share = field.every(first, step).unwrap();
                prop_assert!(share.check().is_ok());
                for i in 0..200 {
                    prop_assert_eq!(share.at(i), field.at(first + i * step), "{:?} {:?} {}", &field, &share, i);
                }
            }
        }
    }

    #[test]
    fn a_share_of_many_values_is_short_or_none() {
        let many = |count| Field::Increment { start: 7u32, step: 2, count };
        assert_eq!(many(1_000_000).every(3, 4), Some(Field::Increment { start: 13, step: 8, count: 250_000 }));
        assert_eq!(many(4).every(3, 8), Some(Field::Value(13)));
        assert_eq!(many(1_000_000).every(1, 3), None);
    }

    #[test]
    fn rounds_are_as_long_as_their_values() {
        assert_eq!(Field::Value(1u8).count(), 1);
        assert_eq!(Field::Values(vec![1u8, 1]).count(), 2);
        assert_eq!(Field::Increment { start: 0u8, step: 64, count: 9 }.count(), 4, "0, 64, 128, 192, 0");
        assert_eq!(Field::Increment { start: 0u8, step: 0, count: 9 }.count(), 1);
        assert_eq!(Field::Increment { start: 0u8, step: 3, count: 1000 }.count(), 256);
        assert_eq!(Field::Increment { start: 0u64, step: 1, count: u64::MAX }.count(), u64::MAX);
    }

    proptest! {
        #[test]
        fn random_values_differ_stay_in_range_and_come_again(min in 0u16..60_000, span in 0u16..5_000, seed: u64, share in 1u64..5) {
            let max = min + span;
            let count = (u64::from(span) + 1).div_ceil(share);
            let field = Field::Random { min, max, count, seed };
            prop_assert!(field.check().is_ok());
            let values: Vec<u16> = (0..count).map(|i| field.at(i)).collect();
            prop_assert!(values.iter().all(|v| (min..=max).contains(v)));
            prop_assert_eq!(values.iter().collect::<HashSet<_>>().len() as u64, count);
            prop_assert_eq!(field.at(count), values[0]);
        }

        #[test]
        fn increments_differ_within_a_round(start: u8, step: u8, count in 1u64..600) {
            let field = Field::Increment { start, step, count };
            let values: HashSet<u8> = (0..count).map(|i| field.at(i)).collect();
            prop_assert_eq!(values.len() as u64, field.count());
            prop_assert_eq!(field.at(1 % count), start.wrapping_add(if count > 1 { step } else { 0 }));
        }
    }

    #[test]
    fn a_seed_is_an_order() {
        let of = |seed| {
            let field = Field::Random { min: u128::MIN as u64, max: u64::MAX, count: 1_000, seed };
            (0..1_000).map(|i| field.at(i)).collect::<Vec<_>>()
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        let half = of(3).iter().filter(|v| **v > u64::MAX / 2).count();
        assert!((400..600).contains(&half), "{half} of 1,000 in the upper half");
    }

    #[test]
    fn each_member_once() {
        for n in [1u128, 2, 3, 5, 16, 17, 1_000] {
            let mut members: Vec<_> = (0..n).map(|i| Permutation::new(n, 7).at(i)).collect();
            members.sort_unstable();
            assert!(members.into_iter().eq(0..n), "{n}");
        }
    }

    #[test]
    fn the_whole_of_128_bits_has_an_order() {
        let all = Permutation::new(0, 7);
        assert_ne!(all.at(0), all.at(u128::MAX));
        assert_eq!(all.half_bits, 64);
    }
}
