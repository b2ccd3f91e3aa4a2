//! Counts latencies with the resolution of the HDR histogram from which percentiles are computed.

use crate::plan::spaced;
use hdrhistogram::Histogram;

/// Latencies up to 10 s are resolved; resolving up to the next power of two, 17.18 s, costs nothing more. Longer
/// latencies are recorded as 10 s.
const MAX_NS: u64 = 10_000_000_000;
/// Significant decimal digits.
const DIGITS: u8 = 3;
/// Number of leading bits that count: 2^11 is the power of two that covers 2 * 10^3 values.
const BITS: u32 = 11;
const HALF: usize = 1 << (BITS - 1);

/// Counts of latencies with three significant digits. Recording takes a shift and an addition. The bookkeeping of the
/// HDR histogram (smallest, largest, total) is done when it is requested.
pub struct Latencies {
    /// Lower halves of the counts. They are separate, so that the ones in use stay in the cache.
    counts: Vec<u32>,
    /// Upper halves of the counts: the number of overflows of the lower half.
    wraps: Vec<u32>,
}

/// Returns the index of the count for `ns`. Each doubling has a row of 2^10; the first row is twice as long.
#[inline]
fn place(ns: u64) -> usize {
    let shift = u64::BITS - BITS - (ns | ((1 << BITS) - 1)).leading_zeros();
    shift as usize * HALF + (ns >> shift) as usize
}

/// Returns the smallest value with this index.
fn smallest_at(place: usize) -> u64 {
    let shift = (place / HALF).saturating_sub(1);
    ((place - shift * HALF) as u64) << shift
}

impl Latencies {
    /// Creates empty counts.
    pub fn new() -> Latencies {
        let places = place(MAX_NS.next_power_of_two() - 1) + 1;
        Latencies { counts: spaced(places), wraps: spaced(places) }
    }

    /// Counts one latency.
    #[inline(always)]
    pub fn record(&mut self, ns: u64) {
        let place = place(ns);
        match self.counts.get_mut(place) {
            Some(count) => {
                *count = count.wrapping_add(1);
                if *count == 0 {
                    self.wrap(place);
                }
            }
            None => self.record_longest(),
        }
    }

    #[cold]
    fn wrap(&mut self, place: usize) {
        self.wraps[place] += 1;
    }

    #[cold]
    fn record_longest(&mut self) {
        self.add_at(place(MAX_NS), 1);
    }

    /// Counts `frames` latencies of `ns`.
    pub fn record_n(&mut self, ns: u64, frames: u64) {
        let place = place(ns);
        self.add_at(if place < self.counts.len() { place } else { self::place(MAX_NS) }, frames);
    }

    /// Returns the counts in ascending order: `(lower end of a bucket in ns, number)`.
    pub fn steps(&self) -> impl Iterator<Item = (u64, u64)> {
        (0..self.counts.len()).map(|place| (smallest_at(place), self.at(place))).filter(|(_, count)| *count > 0)
    }

    fn at(&self, place: usize) -> u64 {
        u64::from(self.wraps[place]) << 32 | u64::from(self.counts[place])
    }

    fn add_at(&mut self, place: usize, more: u64) {
        let sum = self.at(place) + more;
        (self.wraps[place], self.counts[place]) = ((sum >> 32) as u32, sum as u32);
    }

    /// Returns the HDR histogram of all recorded latencies.
    pub fn histogram(&self) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1, MAX_NS, DIGITS).expect("constant bounds are valid");
        self.steps().for_each(|(ns, count)| histogram.saturating_record_n(ns, count));
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

    #[test]
    fn counts_go_on_beyond_32_bits() {
        let (mut latencies, most) = (Latencies::new(), u64::from(u32::MAX));
        latencies.add_at(place(70_000), most);
        latencies.add_at(place(MAX_NS), most);
        for ns in [70_000, 70_001, u64::MAX, u64::MAX] {
            latencies.record(ns);
        }
        assert_eq!((latencies.at(place(70_000)), latencies.at(place(MAX_NS))), (most + 2, most + 2));
        let mut sum = Latencies::new();
        for _ in 0..2 {
            latencies.steps().for_each(|(ns, frames)| sum.record_n(ns, frames));
        }
        assert_eq!(sum.histogram().len(), 4 * (most + 2));
        assert_eq!(sum.histogram().count_at(70_000), 2 * (most + 2));
    }

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
