//! Exact times: whole nanoseconds plus a fraction with a fixed denominator.

use drophammer_model::Instant;

/// A point in time or a duration: `ns + part / denominator`, `part < denominator`. The caller keeps the denominator, at
/// most 10^18, and compares only moments with the same denominator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    ns: u64,
    part: u64,
}

impl Moment {
    /// `numerator / denominator` ns.
    pub fn ratio(numerator: u128, denominator: u64) -> Moment {
        let denominator = u128::from(denominator);
        let ns = u64::try_from(numerator / denominator).unwrap_or(u64::MAX);
        Moment { ns, part: (numerator % denominator) as u64 }
    }

    #[inline]
    pub fn at(instant: Instant) -> Moment {
        Moment { ns: instant.0, part: 0 }
    }

    #[inline]
    pub fn plus(self, length: Moment, denominator: u64) -> Moment {
        let part = self.part + length.part;
        let carry = part >= denominator;
        let ns = self.ns.saturating_add(length.ns).saturating_add(u64::from(carry));
        Moment { ns, part: if carry { part - denominator } else { part } }
    }

    /// `self` plus `ns` whole nanoseconds.
    #[inline]
    pub fn later(self, ns: u64) -> Moment {
        Moment { ns: self.ns.saturating_add(ns), ..self }
    }

    /// The first whole nanosecond at or after this moment.
    #[inline]
    pub fn ceil(self) -> Instant {
        Instant(self.ns.saturating_add(u64::from(self.part > 0)))
    }
}

/// The earlier of two instants. `None` means never.
pub(crate) fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_are_those_of_fractions(denominator in 1u64..1_000_000_000_000_000_000, steps in proptest::collection::vec(0u64..u64::MAX, 1..50)) {
            let (mut sum, mut exact) = (Moment::default(), 0u128);
            for step in steps {
                sum = sum.plus(Moment::ratio(step.into(), denominator), denominator);
                exact += u128::from(step);
            }
            prop_assert_eq!(sum, Moment::ratio(exact, denominator));
            prop_assert_eq!(u128::from(sum.ceil().0), exact.div_ceil(denominator.into()));
        }
    }
}
