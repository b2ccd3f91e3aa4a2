//! Counts latencies with the resolution of the HDR histogram, and computes percentiles from the counts.

use crate::plan::spaced;
use drophammer_model::latency::{LatencySummary, PERCENTILES};
use std::collections::BTreeMap;

/// Latencies from the next power of two on, 17.18 s, are recorded as 10 s.
const MAX_NS: u64 = 10_000_000_000;
/// Number of leading bits that count: 2^11 is the power of two that covers 2 * 10^3 values, for three significant
/// decimal digits.
const BITS: u32 = 11;
const HALF: usize = 1 << (BITS - 1);
/// The first latency that is not resolved.
const END_NS: u64 = MAX_NS.next_power_of_two();
/// Number of places of all latencies.
const PLACES: usize = place(END_NS - 1) + 1;

/// Counts of latencies with three significant digits. Recording takes a shift and an addition. There are places for all
/// latencies up to a power of two, and a longer latency adds those that it needs.
#[derive(Default)]
pub struct Latencies {
    /// Lower 32 bits of the counts.
    counts: Vec<u32>,
    /// Upper 32 bits by place, without zeros. They are separate, so that the counts in use stay in the cache.
    wraps: BTreeMap<usize, u32>,
}

/// Returns the index of the count for `ns`. Each doubling has a row of 2^10; the first row is twice as long.
#[inline]
const fn place(ns: u64) -> usize {
    let shift = u64::BITS - BITS - (ns | ((1 << BITS) - 1)).leading_zeros();
    shift as usize * HALF + (ns >> shift) as usize
}

/// Returns the smallest value with this index.
fn smallest_at(place: usize) -> u64 {
    let shift = (place / HALF).saturating_sub(1);
    ((place - shift * HALF) as u64) << shift
}

impl Latencies {
    /// Creates empty counts with places for as many latencies, from 0 on, as fit into `bytes`.
    pub fn within(bytes: usize) -> Latencies {
        let places = bytes / size_of::<u32>() / HALF * HALF;
        Latencies { counts: spaced(places.min(PLACES)), wraps: BTreeMap::new() }
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
            None => self.record_beyond(ns),
        }
    }

    #[cold]
    fn wrap(&mut self, place: usize) {
        *self.wraps.entry(place).or_default() += 1;
    }

    /// Counts a latency that has no place yet.
    #[cold]
    fn record_beyond(&mut self, ns: u64) {
        self.record_n(ns, 1);
    }

    /// Counts `frames` latencies of `ns`.
    pub fn record_n(&mut self, ns: u64, frames: u64) {
        let place = place(if ns < END_NS { ns } else { MAX_NS });
        if place >= self.counts.len() {
            let mut more = spaced((place / HALF + 1) * HALF);
            more[..self.counts.len()].copy_from_slice(&self.counts);
            self.counts = more;
        }
        let sum = self.at(place) + frames;
        self.counts[place] = sum as u32;
        if sum >> 32 > 0 {
            self.wraps.insert(place, (sum >> 32) as u32);
        }
    }

    /// Returns the counts in ascending order: `(lower end of a bucket in ns, number)`.
    pub fn steps(&self) -> impl Iterator<Item = (u64, u64)> {
        self.in_use().map(|(place, count)| (smallest_at(place), count))
    }

    /// Iterates over the counts above 0 with their places.
    fn in_use(&self) -> impl Iterator<Item = (usize, u64)> {
        (0..self.counts.len()).map(|place| (place, self.at(place))).filter(|(_, count)| *count > 0)
    }

    fn at(&self, place: usize) -> u64 {
        u64::from(self.wraps.get(&place).copied().unwrap_or(0)) << 32 | u64::from(self.counts[place])
    }

    /// Summarizes the latencies. The smallest, the largest and the sum of all are known exactly; a percentile is the
    /// largest value that has the same place.
    pub fn summary(&self, min_ns: u64, max_ns: u64, sum_ns: u128) -> LatencySummary {
        let frames: u64 = self.in_use().map(|(_, count)| count).sum();
        if frames == 0 {
            return LatencySummary::default();
        }
        let mut left = self.in_use();
        let (mut seen, mut last) = (0, 0);
        let percentile = |percentile: f64| {
            let rank = ((percentile / 100.0 * frames as f64).ceil() as u64).max(1);
            while seen < rank
                && let Some((place, count)) = left.next()
            {
                (seen, last) = (seen + count, place);
            }
            (percentile, (smallest_at(last + 1) - 1).clamp(min_ns, max_ns))
        };
        let percentiles = PERCENTILES.map(percentile).to_vec();
        LatencySummary { frames, min_ns, mean_ns: sum_ns as f64 / frames as f64, max_ns, percentiles }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::Histogram;
    use proptest::prelude::*;

    /// Creates counts with places for all latencies.
    fn whole() -> Latencies {
        Latencies::within(usize::MAX)
    }

    #[test]
    fn counts_go_on_beyond_32_bits() {
        let (mut latencies, most) = (whole(), u64::from(u32::MAX));
        latencies.record_n(70_000, most);
        latencies.record_n(MAX_NS, most);
        for ns in [70_000, 70_001, u64::MAX, u64::MAX] {
            latencies.record(ns);
        }
        assert_eq!((latencies.at(place(70_000)), latencies.at(place(MAX_NS))), (most + 2, most + 2));
        let mut sum = Latencies::default();
        for _ in 0..2 {
            latencies.steps().for_each(|(ns, frames)| sum.record_n(ns, frames));
        }
        let in_use = [(place(70_000), 2 * (most + 2)), (place(MAX_NS), 2 * (most + 2))];
        assert_eq!(sum.in_use().collect::<Vec<_>>(), in_use);
        assert_eq!(sum.summary(70_000, u64::MAX, 0).frames, 4 * (most + 2));
    }

    #[test]
    fn a_latency_adds_the_places_that_it_needs() {
        let places = |latencies: &Latencies| latencies.counts.len() / HALF;
        assert_eq!((places(&whole()), places(&Latencies::within(4 * HALF - 1))), (25, 0));
        let mut latencies = Latencies::within(8 * HALF);
        for (ns, expected) in [(2_047, 2), (2_048, 3), (100_000, 8), (0, 8), (1 << 33, 25), (u64::MAX, 25)] {
            latencies.record(ns);
            assert_eq!(places(&latencies), expected, "{ns}");
        }
        let all = [(0, 1), (2_047, 1), (2_048, 1), (99_968, 1), (1 << 33, 1), (9_999_220_736, 1)];
        assert_eq!(latencies.steps().collect::<Vec<_>>(), all);
    }

    proptest! {
        #[test]
        fn percentiles_are_those_of_the_hdr_histogram(
            values in proptest::collection::vec((any::<u64>(), 0u32..64, 1u64..1_000), 1..300), rows in 0usize..30
        ) {
            let mut ours = Latencies::within(rows * HALF * 4);
            let mut theirs = Histogram::<u64>::new_with_bounds(1, MAX_NS, 3).unwrap();
            for (value, shift, frames) in values {
                ours.record(value >> shift);
                ours.record_n(value >> shift, frames);
                theirs.saturating_record_n(value >> shift, 1 + frames);
            }
            let summary = ours.summary(0, u64::MAX, 0);
            prop_assert_eq!(summary.frames, theirs.len());
            for (percentile, ns) in summary.percentiles {
                prop_assert_eq!(ns, theirs.value_at_percentile(percentile));
            }
        }

        #[test]
        fn places_are_those_of_the_hdr_histogram(ns in 0..=MAX_NS) {
            let histogram = Histogram::<u64>::new_with_bounds(1, MAX_NS, 3).unwrap();
            prop_assert_eq!(smallest_at(place(ns)), histogram.lowest_equivalent(ns));
            prop_assert_eq!(smallest_at(place(ns) + 1) - 1, histogram.highest_equivalent(ns));
            prop_assert_eq!(place(smallest_at(place(ns))), place(ns));
        }
    }
}
