//! Compares the steady clocks of two hosts.

use drophammer_port::{Clock, SystemClock};
use serde::{Deserialize, Serialize};

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

    /// Returns how far the clocks may be apart now, if the other one was set by `then`.
    pub fn uncertainty_since(self, then: Offset) -> u64 {
        self.ns.abs_diff(then.ns).saturating_add(self.error_ns)
    }

    /// True if the clocks have certainly drifted apart since `then`.
    pub fn has_moved_since(self, then: Offset) -> bool {
        self.ns.abs_diff(then.ns) > self.error_ns.saturating_add(then.error_ns)
    }
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

    #[test]
    fn a_step_of_the_other_clock_is_seen() {
        let then = Offset { ns: 1_000, error_ns: 300 };
        let now = Offset { ns: 1_900, error_ns: 200 };
        assert!(now.has_moved_since(then) && !Offset { ns: 1_400, ..now }.has_moved_since(then));
        assert_eq!(now.uncertainty_since(then), 1_100);
        assert_eq!(Offset::of(&[]), None);
        assert_eq!(Offset::of(&[Exchange { asked_ns: 2, other_ns: 0, answered_ns: 1 }]), None);
        assert!(steady_ns() > 0 && !Domain::own().0.is_empty());
    }
}
