//! Counts latencies by magnitude, with the resolution of the HDR histogram that they are read off from.

use crate::plan::spaced;
use hdrhistogram::Histogram;

/// Latencies up to 10 s are resolved, and those up to the next power of two, 17.18 s, because they cost nothing more. Longer
/// ones are kept at 10 s.
const MAX_NS: u64 = 10_000_000_000;
/// Significant decimal digits.
const DIGITS: u8 = 3;
/// Values are told apart by so many leading bits: 2^11 is the power of two that holds 2 * 10^3 values.
const BITS: u32 = 11;
const HALF: usize = 1 << (BITS - 1);

/// Counts of latencies, three digits exact. Recording is a shift and an addition; the bookkeeping of the HDR
/// histogram (smallest, largest, total) is done when it is asked for.
pub struct Latencies {
    counts: Vec<u64>,
}

/// Place of `ns` among the counts: a row of 2^10 for every doubling, the first one twice as long.
#[inline]
fn place(ns: u64) -> usize {
    let shift = u64::BITS - BITS - (ns | ((1 << BITS) - 1)).leading_zeros();
    shift as usize * HALF + (ns >> shift) as usize
}

/// Smallest value that has this place.
fn smallest_at(place: usize) -> u64 {
    let shift = (place / HALF).saturating_sub(1);
    ((place - shift * HALF) as u64) << shift
}

impl Latencies {
    /// None yet.
    pub fn new() -> Latencies {
        Latencies { counts: spaced(place(MAX_NS.next_power_of_two() - 1) + 1) }
    }

    /// Counts one.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        match self.counts.get_mut(place(ns)) {
            Some(count) => *count += 1,
            None => self.counts[place(MAX_NS)] += 1,
        }
    }

    /// Adds all that `other` has recorded.
    pub(crate) fn add(&mut self, other: &Latencies) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, n)| *sum += n);
    }

    /// The HDR histogram of all that was recorded.
    pub fn histogram(&self) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1, MAX_NS, DIGITS).expect("constant bounds are valid");
        for (place, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            histogram.saturating_record_n(smallest_at(place), *count);
        }
        histogram
    }
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn percentiles_are_those_of_the_hdr_histogram(
            values in proptest::collection::vec((any::<u64>(), 0u32..64), 1..300), percentiles in proptest::collection::vec(0.0f64..=100.0, 20)
        ) {
            let (mut ours, mut theirs) = (Latencies::new(), Histogram::<u64>::new_with_bounds(1, MAX_NS, DIGITS).unwrap());
            for (value, shift) in values {
                ours.record(value >> shift);
                theirs.saturating_record(value >> shift);
            }
            let ours = ours.histogram();
            prop_assert_eq!(ours.len(), theirs.len());
            for percentile in percentiles.into_iter().chain([0.0, 100.0]) {
                prop_assert_eq!(ours.value_at_percentile(percentile), theirs.value_at_percentile(percentile));
            }
        }

        #[test]
        fn places_are_those_of_the_hdr_histogram(ns in 0..=MAX_NS) {
            let histogram = Histogram::<u64>::new_with_bounds(1, MAX_NS, DIGITS).unwrap();
            prop_assert_eq!(smallest_at(place(ns)), histogram.lowest_equivalent(ns));
            prop_assert_eq!(place(smallest_at(place(ns))), place(ns));
        }
    }
}
