//! Counts latencies with the resolution of the HDR histogram from which percentiles are computed.

use hdrhistogram::Histogram;

/// Latencies up to 10 s are resolved; resolving up to the next power of two, 17.18 s, costs nothing more. Longer
/// latencies are recorded as 10 s.
const MAX_NS: u64 = 10_000_000_000;
/// Significant decimal digits.
const DIGITS: u8 = 3;
/// Number of leading bits that count: 2^11 is the power of two that covers 2 * 10^3 values.
const BITS: u32 = 11;
const HALF: usize = 1 << (BITS - 1);
/// Room for counts beyond 32 bits that needs no allocation: each of them takes 2^32 frames.
const FEW_WRAPS: usize = 64;

/// Number of rows of [`HALF`] counts.
const ROWS: usize = (MAX_NS.next_power_of_two().trailing_zeros() - BITS + 2) as usize;

/// Counts of latencies with three significant digits. Recording takes a shift and an addition. The bookkeeping of the
/// HDR histogram (smallest, largest, total) is done when it is requested.
///
/// Most latencies of a flow are in few rows, so a trial of thousands of flows makes a row only when it needs one.
#[derive(Default)]
pub struct Latencies {
    /// Lower halves of the counts. They are separate, so that the ones in use stay in the cache.
    rows: [Option<Box<Row>>; ROWS],
    /// Upper halves of the counts that have any: place, and number of overflows of the lower half.
    wraps: Vec<(usize, u32)>,
}

/// The counts of a doubling, in cache lines of their own (see `plan::spaced`).
#[repr(align(64))]
struct Row([u32; HALF]);

impl Row {
    fn new() -> Box<Row> {
        Box::new(Row([0; HALF]))
    }
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
    /// Creates empty counts without rows.
    pub fn new() -> Latencies {
        Latencies::default()
    }

    /// Creates empty counts with all rows, for a packet path that must not allocate.
    pub fn prepared() -> Latencies {
        Latencies { rows: std::array::from_fn(|_| Some(Row::new())), wraps: Vec::with_capacity(FEW_WRAPS) }
    }

    /// Counts one latency.
    #[inline(always)]
    pub fn record(&mut self, ns: u64) {
        let place = place(ns);
        match self.rows.get_mut(place / HALF) {
            Some(Some(row)) => {
                let count = &mut row.0[place % HALF];
                *count = count.wrapping_add(1);
                if *count == 0 {
                    self.wrap(place, 1);
                }
            }
            _ => self.record_n(ns, 1),
        }
    }

    #[cold]
    fn wrap(&mut self, place: usize, times: u32) {
        match self.wraps.iter_mut().find(|(at, _)| *at == place) {
            Some((_, known)) => *known += times,
            None => self.wraps.push((place, times)),
        }
    }

    /// Counts `frames` latencies of `ns`.
    #[cold]
    pub fn record_n(&mut self, ns: u64, frames: u64) {
        let place = place(ns);
        self.add_at(if place < ROWS * HALF { place } else { self::place(MAX_NS) }, frames);
    }

    /// Returns the counts in ascending order: `(lower end of a bucket in ns, number)`.
    pub fn steps(&self) -> impl Iterator<Item = (u64, u64)> {
        let rows = self.rows.iter().enumerate().filter(|(_, row)| row.is_some());
        let places = rows.flat_map(|(row, _)| row * HALF..(row + 1) * HALF);
        places.map(|place| (smallest_at(place), self.at(place))).filter(|(_, count)| *count > 0)
    }

    fn at(&self, place: usize) -> u64 {
        let wraps = self.wraps.iter().find(|(at, _)| *at == place).map_or(0, |(_, times)| *times);
        let count = self.rows[place / HALF].as_ref().map_or(0, |row| row.0[place % HALF]);
        u64::from(wraps) << 32 | u64::from(count)
    }

    fn add_at(&mut self, place: usize, more: u64) {
        let count = &mut self.rows[place / HALF].get_or_insert_with(Row::new).0[place % HALF];
        let sum = u64::from(*count) + more;
        *count = sum as u32;
        if sum >> 32 > 0 {
            self.wrap(place, (sum >> 32) as u32);
        }
    }

    /// Returns the HDR histogram of all recorded latencies.
    pub fn histogram(&self) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1, MAX_NS, DIGITS).expect("constant bounds are valid");
        self.steps().for_each(|(ns, count)| histogram.saturating_record_n(ns, count));
        histogram
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

    #[test]
    fn rows_are_made_when_they_are_needed_and_all_in_advance_if_asked_for() {
        let rows = |latencies: &Latencies| latencies.rows.iter().flatten().count();
        let (mut few, mut all) = (Latencies::new(), Latencies::prepared());
        for ns in [0, 2_047, 40_000, 65_535, u64::MAX] {
            few.record(ns);
            all.record(ns);
        }
        assert_eq!((rows(&few), rows(&all)), (4, ROWS));
        let steps: Vec<_> = few.steps().collect();
        assert_eq!(steps, all.steps().collect::<Vec<_>>());
        let longest = smallest_at(place(MAX_NS));
        assert_eq!(steps, [(0, 1), (2_047, 1), (40_000, 1), (65_504, 1), (longest, 1)]);
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
