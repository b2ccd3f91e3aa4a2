//! Compares the steady clocks of two hosts.

use drophammer_port::{Clock, SystemClock};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The most that steady clocks of two machines drift apart while nobody sets them, in ns per ms: time synchronization
/// slows a clock down or speeds it up by no more than this (adjtimex(2)).
const DRIFT: u64 = 500;

/// Which clock a host has. Hosts with the same domain read the same clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Domain(pub String);

impl Domain {
    /// Returns the domain of this process: the running kernel, and the offset of its time namespace.
    pub fn own() -> Domain {
        let read = |path: &str| {
            std::fs::read_to_string(path).unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        Domain(
            format!("{} {}", read("/proc/sys/kernel/random/boot_id"), read("/proc/self/timens_offsets")).trim().into(),
        )
    }
}

/// Returns the steady clock of this host in ns.
pub fn steady_ns() -> i64 {
    let clock = SystemClock::start();
    // The clock starts at 1 ns.
    i64::try_from(clock.origin_ns() + clock.now().0).unwrap_or(i64::MAX)
}

/// A two-way exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// When the request was sent, on this host's clock.
    pub asked_ns: i64,
    /// The other host's clock when it answered.
    pub other_ns: i64,
    /// When the answer arrived, on this host's clock.
    pub answered_ns: i64,
}

/// Difference between two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offset {
    /// The other host's clock minus this host's, in ns.
    pub ns: i64,
    /// Largest error of `ns`, whichever direction was slower.
    pub error_ns: u64,
}

impl Offset {
    /// Both hosts read the same clock.
    pub const NONE: Offset = Offset { ns: 0, error_ns: 0 };

    /// Computes the difference from the exchange with the shortest round trip. The other clock was read at some time
    /// between request and answer, so half of the round trip bounds the error. `None` without a valid exchange.
    pub fn of(exchanges: &[Exchange]) -> Option<Offset> {
        let round_trip = |e: &Exchange| e.answered_ns.checked_sub(e.asked_ns).filter(|ns| *ns >= 0);
        let (best, ns) = exchanges.iter().filter_map(|e| Some((e, round_trip(e)?))).min_by_key(|(_, ns)| *ns)?;
        let middle = best.asked_ns + ns / 2;
        Some(Offset { ns: best.other_ns.checked_sub(middle)?, error_ns: (ns as u64).div_ceil(2) })
    }

    /// Returns what two statements about the same difference say together: it is within both errors. `None` if they
    /// contradict each other.
    pub fn with(self, other: Offset) -> Option<Offset> {
        let least = |offset: Offset| i128::from(offset.ns) - i128::from(offset.error_ns);
        let most = |offset: Offset| i128::from(offset.ns) + i128::from(offset.error_ns);
        let (from, to) = (least(self).max(least(other)), most(self).min(most(other)));
        let error_ns = u64::try_from((to - from + 1) / 2).ok().filter(|_| from <= to)?;
        Some(Offset { ns: i64::try_from(from + (to - from) / 2).ok()?, error_ns })
    }

    /// Returns how far the clocks may be apart now, if the other one was set by `then`.
    pub fn uncertainty_since(self, then: Offset) -> u64 {
        self.ns.abs_diff(then.ns).saturating_add(self.error_ns)
    }

    /// True if the clocks have certainly moved against each other since `then`, by more than they drift within `elapsed`.
    pub fn has_moved_since(self, then: Offset, elapsed: Duration) -> bool {
        let drift = DRIFT.saturating_mul(elapsed.as_millis() as u64);
        self.ns.abs_diff(then.ns) > self.error_ns.saturating_add(then.error_ns).saturating_add(drift)
    }
}

/// Returns half of the median round trip in ns; 0 without a valid exchange.
pub fn one_way_ns(exchanges: &[Exchange]) -> u64 {
    let mut trips: Vec<u64> =
        exchanges.iter().filter_map(|e| u64::try_from(e.answered_ns.checked_sub(e.asked_ns)?).ok()).collect();
    trips.sort_unstable();
    trips.get(trips.len() / 2).map_or(0, |trip| trip / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the delays of request and answer, the true difference is within the error.
        #[test]
        fn the_error_bounds_the_true_difference(
            offset in -1_000_000_000_000i64..1_000_000_000_000, begin in 0i64..1_000_000_000_000,
            delays in proptest::collection::vec((0i64..50_000_000, 0i64..50_000_000), 1..20)
        ) {
            let mut now = begin;
            let exchanges: Vec<Exchange> = delays.iter().map(|(there, back)| {
                let asked_ns = now;
                now += there;
                let other_ns = now + offset;
                now += back;
                Exchange { asked_ns, other_ns, answered_ns: now }
            }).collect();
            let found = Offset::of(&exchanges).unwrap();
            prop_assert!(found.ns.abs_diff(offset) <= found.error_ns, "{found:?}");
            let shortest = delays.iter().map(|(there, back)| there + back).min().unwrap();
            prop_assert_eq!(found.error_ns, (shortest as u64).div_ceil(2));
        }
    }

    proptest! {
        /// Two true statements never contradict each other, and together they are at least as exact, and true.
        #[test]
        fn two_statements_about_a_difference_hold_together(
            truth in -1_000_000_000i64..1_000_000_000, errors: [u32; 2], parts in [-1.0f64..=1.0, -1.0..=1.0]
        ) {
            let [one, two] = [0, 1].map(|i| {
                let ns = truth + (f64::from(errors[i]) * parts[i]) as i64;
                Offset { ns, error_ns: errors[i].into() }
            });
            let both = one.with(two).unwrap();
            prop_assert!(both.ns.abs_diff(truth) <= both.error_ns, "{both:?}");
            prop_assert!(both.error_ns <= one.error_ns.min(two.error_ns));
            prop_assert_eq!(two.with(one), Some(both));
            let far = Offset { ns: one.ns + 2 * i64::from(errors[0]) + 1, error_ns: errors[0].into() };
            prop_assert_eq!(one.with(far), None);
        }
    }

    #[test]
    fn a_step_of_the_other_clock_is_seen() {
        let then = Offset { ns: 1_000, error_ns: 300 };
        let now = Offset { ns: 1_900, error_ns: 200 };
        let at_once = Duration::ZERO;
        assert!(now.has_moved_since(then, at_once) && !Offset { ns: 1_400, ..now }.has_moved_since(then, at_once));
        // The same change is drift within a second. A second is not, whichever clock stood still.
        let second = Duration::from_secs(1);
        assert!(!now.has_moved_since(then, second));
        for step in [1_000_000_000, -1_000_000_000] {
            assert!(Offset { ns: then.ns + step, ..now }.has_moved_since(then, second * 60));
        }
        assert_eq!(now.uncertainty_since(then), 1_100);
        assert_eq!(Offset::of(&[]), None);
        let trips = [(0, 30), (40, 44), (50, 70), (80, 0)];
        let exchange = |(asked_ns, answered_ns)| Exchange { asked_ns, other_ns: 0, answered_ns };
        assert_eq!((one_way_ns(&trips.map(exchange)), one_way_ns(&[])), (10, 0));
        assert_eq!(Offset::of(&[Exchange { asked_ns: 2, other_ns: 0, answered_ns: 1 }]), None);
        assert!(steady_ns() > 0 && !Domain::own().0.is_empty());
    }
}
