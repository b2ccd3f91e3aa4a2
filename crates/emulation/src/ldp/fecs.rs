//! Computed FECs: evenly spaced prefixes, and their labels.

use crate::expectation::Keys;
use drophammer_model::routes::Prefix;
use drophammer_wire::ldp::Label;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Evenly spaced prefixes of one length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FecRange {
    /// The first prefix.
    pub first: Prefix,
    /// Number of prefixes.
    pub count: u32,
    /// Distance from one prefix to the next, in prefixes.
    pub step: u32,
}

impl FecRange {
    /// `count` consecutive prefixes from `first` on.
    pub const fn new(first: Prefix, count: u32) -> FecRange {
        FecRange { first, count, step: 1 }
    }

    /// Checks it.
    ///
    /// # Errors
    /// The range is empty, or exceeds the address space.
    pub fn check(&self) -> Result<(), String> {
        if self.count == 0 || self.step == 0 {
            return Err(format!("the FECs from {} on need a count and a step of at least 1", self.first));
        }
        let last = u128::from(self.count - 1) * u128::from(self.step);
        let width = if self.first.address().is_ipv4() { 32 } else { 128 };
        let space = u32::from(self.first.length());
        // Number of prefixes that follow the first one in the address space.
        let following = number(self.first.address()).checked_shr(width - space).unwrap_or(0);
        let most = u128::MAX.checked_shr(128 - space).unwrap_or(0) - following;
        if last > most {
            return Err(format!(
                "{} FECs from {} on exceed the address space: reduce count or step",
                self.count, self.first
            ));
        }
        Ok(())
    }

    /// Distance from one prefix to the next, in addresses.
    fn distance(&self) -> u128 {
        let width = if self.first.address().is_ipv4() { 32 } else { 128 };
        // A prefix of length 0 has no successor.
        u128::from(self.step).checked_shl(width - u32::from(self.first.length())).unwrap_or(0)
    }

    /// The prefix with this number, which is below the count.
    pub fn prefix(&self, index: u32) -> Prefix {
        let at = number(self.first.address()).wrapping_add(u128::from(index).wrapping_mul(self.distance()));
        let address: IpAddr = match self.first.address() {
            IpAddr::V4(_) => std::net::Ipv4Addr::from(at as u32).into(),
            IpAddr::V6(_) => std::net::Ipv6Addr::from(at).into(),
        };
        Prefix::masked(address, self.first.length()).unwrap_or(self.first)
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl Keys for FecRange {
    type Key = Prefix;

    fn len(&self) -> u32 {
        self.count
    }

    fn index_of(&self, prefix: &Prefix) -> Option<u32> {
        if prefix.length() != self.first.length() || prefix.address().is_ipv4() != self.first.address().is_ipv4() {
            return None;
        }
        let offset = number(prefix.address()).checked_sub(number(self.first.address()))?;
        let index = match self.distance() {
            0 => offset,
            distance if offset.is_multiple_of(distance) => offset / distance,
            _ => return None,
        };
        u32::try_from(index).ok().filter(|index| *index < self.count)
    }

    fn key(&self, index: u32) -> Prefix {
        self.prefix(index)
    }
}

/// The labels of a range of FECs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum LabelPattern {
    /// A label of its own for each FEC.
    Counting {
        /// Label of the first FEC, 16 or more.
        first: u32,
        /// Distance from one label to the next; 0 gives all FECs the same label.
        step: u32,
    },
    /// The LSR is the egress, and the peer pops the label (penultimate hop popping).
    ImplicitNull,
    /// The LSR is the egress, and receives packets with the null label of the FEC's family.
    ExplicitNull,
}

/// FECs that an LSR can advertise, and their labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdvertisedFecs {
    /// The FECs.
    pub fecs: FecRange,
    /// Their labels.
    pub labels: LabelPattern,
}

impl AdvertisedFecs {
    /// Checks FECs and labels.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), String> {
        self.fecs.check()?;
        if let LabelPattern::Counting { first, step } = self.labels {
            let last = u64::from(first) + u64::from(step) * u64::from(self.fecs.count - 1);
            if first < 16 || last > Label::MAX.into() {
                return Err(format!("the labels {first} to {last} are not all in 16 to {}", Label::MAX));
            }
        }
        Ok(())
    }

    /// The label of the FEC with this number, which is below the count.
    pub fn label(&self, index: u32) -> Label {
        let null = match self.fecs.first.address() {
            IpAddr::V4(_) => Label::EXPLICIT_NULL,
            IpAddr::V6(_) => Label::IPV6_EXPLICIT_NULL,
        };
        match self.labels {
            LabelPattern::Counting { first, step } => {
                Label::new(first.wrapping_add(step.wrapping_mul(index))).unwrap_or(Label::IMPLICIT_NULL)
            }
            LabelPattern::ImplicitNull => Label::IMPLICIT_NULL,
            LabelPattern::ExplicitNull => null,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(first: &str, count: u32, step: u32) -> FecRange {
        FecRange { first: first.parse().unwrap(), count, step }
    }

    #[test]
    fn prefixes_have_numbers() {
        let fecs = range("10.0.0.0/30", 100, 3);
        assert_eq!(
            (fecs.prefix(0).to_string(), fecs.prefix(99).to_string()),
            ("10.0.0.0/30".into(), "10.0.4.164/30".into())
        );
        for (text, index) in [
            ("10.0.4.164/30", Some(99)),
            ("10.0.4.176/30", None),
            ("10.0.0.4/30", None),
            ("10.0.0.0/24", None),
            ("9.0.0.0/30", None),
            ("::/30", None),
        ] {
            assert_eq!(fecs.index_of(&text.parse().unwrap()), index, "{text}");
        }
        assert_eq!(range("0.0.0.0/0", 1, 1).index_of(&"0.0.0.0/0".parse().unwrap()), Some(0));
    }

    #[test]
    fn ranges_that_do_not_fit_are_refused() {
        for (first, count, step, fits) in [
            ("255.255.255.254/32", 2, 1, true),
            ("255.255.255.254/32", 3, 1, false),
            ("255.255.255.254/32", 2, 2, false),
            ("0.0.0.0/0", 1, 9, true),
            ("0.0.0.0/0", 2, 1, false),
            ("::/0", 2, 1, false),
            ("ffff:ffff:ffff:ffff::/64", 1, 1, true),
            ("ffff:ffff:ffff:ffff::/64", 2, 1, false),
            ("::/128", u32::MAX, u32::MAX, true),
            ("10.0.0.0/24", 0, 1, false),
            ("10.0.0.0/24", 1, 0, false),
        ] {
            assert_eq!(range(first, count, step).check().is_ok(), fits, "{first} {count} {step}");
        }
        let labels = |first, step| {
            let labels = LabelPattern::Counting { first, step };
            AdvertisedFecs { fecs: range("10.0.0.0/24", 11, 1), labels }.check().is_ok()
        };
        assert!(labels(16, 1) && labels(Label::MAX - 10, 1) && labels(Label::MAX, 0));
        assert!(!labels(15, 1) && !labels(Label::MAX - 9, 1) && !labels(16, 1 << 30));
    }

    #[test]
    fn labels_by_pattern() {
        let of = |first: &str, labels| AdvertisedFecs { fecs: range(first, 5, 1), labels }.label(4).value();
        assert_eq!(of("10.0.0.0/24", LabelPattern::Counting { first: 100, step: 2 }), 108);
        assert_eq!(of("10.0.0.0/24", LabelPattern::ImplicitNull), 3);
        assert_eq!(of("10.0.0.0/24", LabelPattern::ExplicitNull), 0);
        assert_eq!(of("2001:db8::/48", LabelPattern::ExplicitNull), 2);
    }

    proptest! {
        #[test]
        fn numbers_are_found_again(bits: u128, v6: bool, length in 0u8..=128, count in 1u32..=u32::MAX, step in 1u32..=u32::MAX, at: u32) {
            let (address, most): (IpAddr, u8) = if v6 { (std::net::Ipv6Addr::from(bits).into(), 128) } else { (std::net::Ipv4Addr::from(bits as u32).into(), 32) };
            let fecs = FecRange { first: Prefix::masked(address, length.min(most)).unwrap(), count, step };
            prop_assume!(fecs.check().is_ok());
            let index = at % count;
            prop_assert_eq!(fecs.index_of(&fecs.prefix(index)), Some(index));
        }
    }
}
