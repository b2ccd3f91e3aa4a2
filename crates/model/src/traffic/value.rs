//! What a header field can hold: a number of a fixed width in bits.

use crate::mac::MacAddr;
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A value that fits a field of `WIDTH` bits.
pub trait FieldValue: Copy + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// Bits of the field on the wire.
    const WIDTH: u32;
    /// The value as a number below `2^WIDTH`, in network byte order (an address counts as one big number).
    fn to_bits(self) -> u128;
    /// The value of the low `WIDTH` bits; ignores higher bits.
    fn from_bits(bits: u128) -> Self;
}

macro_rules! number {
    ($($t:ty),*) => {$(
        impl FieldValue for $t {
            const WIDTH: u32 = <$t>::BITS;
            fn to_bits(self) -> u128 {
                self.into()
            }
            fn from_bits(bits: u128) -> Self {
                bits as $t
            }
        }
    )*};
}
number!(u8, u16, u32, u64);

impl FieldValue for bool {
    const WIDTH: u32 = 1;
    fn to_bits(self) -> u128 {
        self.into()
    }
    fn from_bits(bits: u128) -> Self {
        bits & 1 == 1
    }
}

impl FieldValue for Ipv4Addr {
    const WIDTH: u32 = 32;
    fn to_bits(self) -> u128 {
        u32::from(self).into()
    }
    fn from_bits(bits: u128) -> Self {
        (bits as u32).into()
    }
}

impl FieldValue for Ipv6Addr {
    const WIDTH: u32 = 128;
    fn to_bits(self) -> u128 {
        self.into()
    }
    fn from_bits(bits: u128) -> Self {
        bits.into()
    }
}

impl FieldValue for MacAddr {
    const WIDTH: u32 = 48;
    fn to_bits(self) -> u128 {
        self.0.iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte))
    }
    fn from_bits(bits: u128) -> Self {
        let b = (bits as u64).to_be_bytes();
        MacAddr([b[2], b[3], b[4], b[5], b[6], b[7]])
    }
}

/// A number of `N` bits, `N` at most 31: a DSCP is `Bits<6>`, a VLAN ID `Bits<12>`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Bits<const N: u32>(u32);

impl<const N: u32> Bits<N> {
    /// The largest value.
    pub const MAX: Bits<N> = Bits((1 << N) - 1);

    /// The number, for values that are known to fit; use `try_from` for input.
    ///
    /// # Panics
    /// `value` needs more than `N` bits.
    pub const fn new(value: u32) -> Bits<N> {
        assert!(value <= Self::MAX.0, "a value does not fit its field");
        Bits(value)
    }

    /// Returns the value as a plain number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl<const N: u32> fmt::Debug for Bits<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<const N: u32> fmt::Display for Bits<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<const N: u32> TryFrom<u64> for Bits<N> {
    type Error = String;
    fn try_from(value: u64) -> Result<Self, Self::Error> {
        match u32::try_from(value) {
            Ok(fits) if fits <= Self::MAX.0 => Ok(Bits(fits)),
            _ => Err(format!("{value} does not fit a field of {N} bits; write 0 to {}", Self::MAX)),
        }
    }
}

impl<'de, const N: u32> Deserialize<'de> for Bits<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read<const N: u32>;
        impl<const N: u32> Visitor<'_> for Read<N> {
            type Value = Bits<N>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a number from 0 to {}", Bits::<N>::MAX)
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<Bits<N>, E> {
                value.try_into().map_err(E::custom)
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Bits<N>, E> {
                u64::try_from(value)
                    .map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))?
                    .try_into()
                    .map_err(E::custom)
            }
            fn visit_str<E: Error>(self, value: &str) -> Result<Bits<N>, E> {
                // Only codepoints have names, and only they have six bits.
                match N {
                    6 => parse_dscp(value).map(|dscp| Bits(dscp.into())).map_err(E::custom),
                    _ => Err(E::invalid_type(Unexpected::Str(value), &self)),
                }
            }
        }
        deserializer.deserialize_any(Read)
    }
}

impl<const N: u32> FieldValue for Bits<N> {
    const WIDTH: u32 = N;
    fn to_bits(self) -> u128 {
        self.0.into()
    }
    fn from_bits(bits: u128) -> Self {
        Bits(bits as u32 & Self::MAX.0)
    }
}

/// Bytes, written as hexadecimal digits: `deadbeef`. Spaces, colons and a leading `0x` are allowed when read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Octets(pub Vec<u8>);

impl fmt::Display for Octets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::str::FromStr for Octets {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || {
            format!("`{text}` is not a row of bytes; write two hexadecimal digits for each, for instance `de ad be ef`")
        };
        let digits = text.strip_prefix("0x").unwrap_or(text).chars().filter(|c| !matches!(c, ' ' | ':'));
        let digits = digits.map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<Vec<_>>>().ok_or_else(bad)?;
        let (pairs, odd) = digits.as_chunks::<2>();
        if odd.is_empty() { Ok(Octets(pairs.iter().map(|[a, b]| a << 4 | b).collect())) } else { Err(bad()) }
    }
}

impl Serialize for Octets {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Octets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Names other than `cs0` to `cs7` and `af11` to `af43`: the default (RFC 2474), lower effort (RFC 8622), voice admit (RFC
/// 5865), expedited forwarding (RFC 3246).
const NAMES: [(&str, u8); 7] =
    [("be", 0), ("df", 0), ("default", 0), ("le", 1), ("va", 44), ("voice-admit", 44), ("ef", 46)];

/// Reads a codepoint: a number from 0 to 63, or a name such as `ef`, `af41` or `cs6`.
///
/// # Errors
/// The message lists the valid forms.
pub fn parse_dscp(text: &str) -> Result<u8, String> {
    let word = text.trim().to_ascii_lowercase();
    let digit = |at: usize, least: u8, most: u8| {
        let digit = word.as_bytes().get(at).map(|byte| byte.wrapping_sub(b'0'));
        digit.filter(|digit| (least..=most).contains(digit))
    };
    let class = match word.get(..2) {
        // RFC 2474 section 4.2.2.
        Some("cs") if word.len() == 3 => digit(2, 0, 7).map(|class| class * 8),
        // RFC 2597 section 6.
        Some("af") if word.len() == 4 => digit(2, 1, 4).zip(digit(3, 1, 3)).map(|(class, drop)| class * 8 + drop * 2),
        _ => None,
    };
    let named = || NAMES.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    let number = || word.parse::<u8>().ok().filter(|number| *number <= 63);
    class.or_else(named).or_else(number).ok_or_else(|| {
        let names = "`ef`, `af11` to `af43`, `cs0` to `cs7`, `va`, `le` or `be`";
        let what = if word.bytes().all(|b| b.is_ascii_digit()) { "is not in 0..=63" } else { "is not a DSCP" };
        format!("{} {what}; write 0 to 63, or {names}", text.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both_ways<T: FieldValue>(value: T) {
        assert_eq!(T::from_bits(value.to_bits()), value);
        let high = if T::WIDTH < 128 { 1 << T::WIDTH } else { 0 };
        assert_eq!(T::from_bits(value.to_bits() | high), value, "higher bits are ignored");
    }

    #[test]
    fn bits_and_back() {
        both_ways(7u8);
        both_ways(0xfedc_u16);
        both_ways(u32::MAX);
        both_ways(true);
        both_ways(Bits::<20>::MAX);
        both_ways("192.0.2.1".parse::<Ipv4Addr>().unwrap());
        both_ways("2001:db8::1".parse::<Ipv6Addr>().unwrap());
        both_ways(MacAddr([2, 3, 4, 5, 6, 7]));
        assert_eq!(MacAddr([2, 0, 0, 0, 0, 1]).to_bits(), 0x0200_0000_0001);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(serde_json::from_str::<Bits<6>>("63").unwrap().get(), 63);
        assert_eq!(serde_json::from_str::<Bits<6>>("\"af41\"").unwrap().get(), 34);
        assert!(serde_json::from_str::<Bits<12>>("\"ef\"").is_err());
        let error = serde_json::from_str::<Bits<6>>("64").unwrap_err().to_string();
        assert!(error.contains("64 does not fit a field of 6 bits; write 0 to 63"), "{error}");
        assert!(serde_json::from_str::<Bits<6>>("-1").is_err());
    }

    #[test]
    fn bytes_are_hexadecimal() {
        let octets: Octets = "0xDE ad:be ef".parse().unwrap();
        assert_eq!(octets.0, [0xde, 0xad, 0xbe, 0xef]);
        assert_eq!(serde_json::to_string(&octets).unwrap(), r#""deadbeef""#);
        assert!("abc".parse::<Octets>().is_err() && "zz".parse::<Octets>().is_err());
        assert_eq!("".parse::<Octets>().unwrap(), Octets::default());
    }

    #[test]
    fn names_stand_for_the_codepoints_of_the_rfcs() {
        for (text, value) in
            [("ef", 46), ("EF", 46), ("af41", 34), ("af11", 10), ("AF43", 38), ("cs6", 48), ("be", 0), ("46", 46)]
        {
            assert_eq!(parse_dscp(text), Ok(value), "{text}");
        }
        for text in ["64", "af44", "af51", "af4", "cs8", "cs", "-1", "", "eff", "ä1"] {
            let error = parse_dscp(text).unwrap_err();
            assert!(error.contains("; write 0 to 63, or `ef`"), "{text}: {error}");
        }
    }
}
