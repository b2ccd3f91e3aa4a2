//! An IP prefix as a value.

use crate::trial::{AddressRange, Family};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An IP prefix: `1.2.0.0/16`. Bits beyond its length are zero. Ordered by family, address, length.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// Why a text is not a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum PrefixError {
    #[error("is not of the form `192.0.2.0/24`")]
    Form,
    #[error("is longer than an address")]
    Length,
    #[error("has bits set beyond its length")]
    HostBits,
}

/// Bits of an address of this family.
pub(crate) const fn width(family: Family) -> u8 {
    match family {
        Family::Ipv4 => 32,
        Family::Ipv6 => 128,
    }
}

/// The address as a number.
pub(crate) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u128::from(u32::from(a)),
        IpAddr::V6(a) => u128::from(a),
    }
}

/// The address with this number. IPv4 uses the low 32 bits.
#[inline]
pub(crate) fn address(family: Family, number: u128) -> IpAddr {
    match family {
        Family::Ipv4 => Ipv4Addr::from(number as u32).into(),
        Family::Ipv6 => Ipv6Addr::from(number).into(),
    }
}

impl Prefix {
    /// Returns `None` if `length` exceeds the address length, or if bits are set beyond it.
    pub fn new(address: IpAddr, length: u8) -> Option<Prefix> {
        Prefix::masked(address, length).filter(|p| p.address == address)
    }

    /// The prefix of this length that contains `address`; `None` if `length` exceeds the address length.
    pub fn masked(address: IpAddr, length: u8) -> Option<Prefix> {
        let address = match address {
            IpAddr::V4(a) if length <= 32 => {
                Ipv4Addr::from(u32::from(a) & u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)).into()
            }
            IpAddr::V6(a) if length <= 128 => {
                Ipv6Addr::from(u128::from(a) & u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)).into()
            }
            _ => return None,
        };
        Some(Prefix { address, length })
    }

    /// A prefix from a number that is known to have no host bits.
    #[inline]
    pub(crate) fn trusted(family: Family, number: u128, length: u8) -> Prefix {
        Prefix { address: address(family, number), length }
    }

    /// Network address.
    #[inline]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Length in bits.
    #[inline]
    pub fn length(&self) -> u8 {
        self.length
    }

    /// IP version.
    pub fn family(&self) -> Family {
        if self.address.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 }
    }

    /// True if the address is of this family and in this prefix.
    pub fn contains(&self, address: IpAddr) -> bool {
        Prefix::masked(address, self.length) == Some(*self)
    }

    /// True if `other` is this prefix or a part of it.
    pub fn covers(&self, other: &Prefix) -> bool {
        self.length <= other.length && self.contains(other.address)
    }

    /// The first host addresses in the prefix, at most `most`, without the first and last address of the prefix if
    /// there are others.
    pub fn hosts(&self, most: u32) -> AddressRange {
        let (first, last) = self.bounds();
        let reserved = u128::from(last - first >= 3);
        let count = (last - first + 1 - 2 * reserved).min(u128::from(most.max(1)));
        AddressRange { first: address(self.family(), first + reserved), step: 1, count: count as u32 }
    }

    /// First and last address as numbers.
    pub(crate) fn bounds(&self) -> (u128, u128) {
        let host_bits = u32::from(width(self.family()) - self.length);
        let first = number(self.address);
        (first, first | u128::MAX.checked_shl(host_bits).map_or(u128::MAX, |mask| !mask))
    }

    /// A host address in this prefix, chosen by `salt`. It is neither the first nor the last address (network and
    /// broadcast address; subnet-router anycast address of RFC 4291 section 2.6.1) if there are others.
    pub fn host(&self, salt: u32) -> IpAddr {
        let (first, last) = self.bounds();
        let mixed =
            u128::from(super::mix(u64::from(salt) ^ 0x5eed_ad00)) << 32 ^ u128::from(super::mix(u64::from(salt)));
        let inside = last - first;
        let offset = match inside {
            0 => 0,
            1 => mixed & 1,
            _ => 1 + mixed % (inside - 1),
        };
        address(self.family(), first + offset)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;
    fn from_str(text: &str) -> Result<Prefix, PrefixError> {
        let (address, length) = text.split_once('/').ok_or(PrefixError::Form)?;
        let (address, length): (IpAddr, u8) = match (address.parse(), length.parse()) {
            (Ok(address), Ok(length)) => (address, length),
            _ => return Err(PrefixError::Form),
        };
        let prefix = Prefix::masked(address, length).ok_or(PrefixError::Length)?;
        if prefix.address == address { Ok(prefix) } else { Err(PrefixError::HostBits) }
    }
}

impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Prefix, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|e| de::Error::custom(format!("`{text}` {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts() {
        for right in ["0.0.0.0/0", "1.2.0.0/16", "1.2.3.4/32", "::/0", "2a00:1::/32", "::1/128"] {
            let prefix: Prefix = right.parse().unwrap();
            assert_eq!(prefix.to_string(), right);
            assert_eq!(serde_json::to_string(&prefix).unwrap(), format!("\"{right}\""));
            assert_eq!(serde_json::from_str::<Prefix>(&format!("\"{right}\"")).unwrap(), prefix);
        }
        let error = |text: &str| text.parse::<Prefix>().unwrap_err();
        assert_eq!(error("1.2.3.4"), PrefixError::Form);
        assert_eq!(error("1.2.3.4/x"), PrefixError::Form);
        assert_eq!(error("1.2.3.4/33"), PrefixError::Length);
        assert_eq!(error("::/129"), PrefixError::Length);
        assert_eq!(error("1.2.3.4/24"), PrefixError::HostBits);
    }

    proptest! {
        #[test]
        fn hosts_lie_inside_and_off_the_ends(bits: u128, v6: bool, length in 0u8..=128, salt: u32) {
            let family = if v6 { Family::Ipv6 } else { Family::Ipv4 };
            let length = length.min(width(family));
            let prefix = Prefix::masked(address(family, bits), length).unwrap();
            let host = prefix.host(salt);
            prop_assert!(prefix.contains(host) && prefix.covers(&Prefix::new(host, width(family)).unwrap()));
            let (first, last) = prefix.bounds();
            prop_assert_eq!(number(prefix.address()), first);
            prop_assert!(last - first < 2 || (number(host) != first && number(host) != last));
            prop_assert_eq!(prefix.to_string().parse::<Prefix>().unwrap(), prefix);
        }
    }
}
