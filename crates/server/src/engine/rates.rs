//! Finds when the receive rate of a row falls below a threshold and rises above it again, from the analyzer's time
//! bins.
//!
//! A bin is 1 ms wide and contains the frames that left within it. The rate of a bin is below the threshold if a smaller share of
//! its frames arrived, no matter when. So delayed frames do not make a rate fall, and low rates need no rounding: at 1,000 frames
//! per second, a bin has one frame.

use drophammer_model::Instant;
use drophammer_model::trial::Bin;
use std::collections::VecDeque;
use std::time::Duration;

/// Width of a bin.
pub const BIN: Duration = Duration::from_millis(1);
/// A bin is judged this long after it began, and frames that arrive later do not count in it. Traffic waits as long for its last frames.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum number of changes kept per row; the oldest are dropped first.
pub const MOST: usize = 1_000;

/// The rate of a row crossed the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// True if the rate rose, false if it fell.
    pub rose: bool,
    /// Start of the first bin with the new rate. It ends after [`BIN`].
    pub at: Instant,
}

/// Changes of a row's rate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// The next bin to judge.
    pub next: usize,
    below: bool,
    /// Start of the last bin with frames.
    last: Option<Instant>,
    crossings: VecDeque<Crossing>,
    /// True if there were more changes than are kept.
    pub overflowed: bool,
}

/// How long the rates of a flow took to return, for the API.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// From the first fall to the last rise.
    pub data_plane: Duration,
    /// From the cause to the last rise; 0 if there was no fall or the cause is unknown.
    pub from_cause: Duration,
}

impl Times {
    /// Times of a flow whose rows had these [gaps](Rates::gap) since `cause`.
    pub fn of(gaps: impl Iterator<Item = (Instant, Instant)>, cause: Option<Instant>) -> Times {
        let whole = gaps.reduce(|(first, last), (fall, end)| (first.min(fall), last.max(end)));
        let Some((fall, end)) = whole else { return Times::default() };
        Times { data_plane: end.since(fall), from_cause: cause.map_or(Duration::ZERO, |cause| end.since(cause)) }
    }
}

impl Rates {
    /// A row that starts at this bin.
    pub fn from(next: usize) -> Rates {
        Rates { next, ..Rates::default() }
    }

    /// Judges the next bins, of traffic that started at `start`. The threshold is in per cent.
    pub fn judge(&mut self, bins: &[Bin], start: Instant, threshold: f64) {
        for bin in bins {
            let at = start + BIN * self.next as u32;
            self.next += 1;
            // A time in which nothing was sent tells nothing.
            if bin.offered == 0 {
                continue;
            }
            self.last = Some(at);
            let below = (bin.delivered as f64) * 100.0 < threshold * bin.offered as f64;
            if std::mem::replace(&mut self.below, below) != below {
                if self.crossings.len() == MOST {
                    self.crossings.pop_front();
                    self.overflowed = true;
                }
                self.crossings.push_back(Crossing { rose: !below, at });
            }
        }
    }

    /// The changes, in order.
    pub fn crossings(&self) -> impl Iterator<Item = &Crossing> {
        self.crossings.iter()
    }

    /// The first fall since `cause`, or since the row started, and the last rise. While the rate is below the threshold, the end of
    /// the last bin stands for the rise. `None` without a fall.
    pub fn gap(&self, cause: Option<Instant>) -> Option<(Instant, Instant)> {
        // A bin that began before the cause may contain frames that left after it.
        let from = cause.map_or(Instant(0), |cause| cause - BIN);
        let first = self.crossings.iter().find(|crossing| !crossing.rose && crossing.at >= from)?;
        let end = if self.below { self.last.map(|last| last + BIN) } else { self.crossings.back().map(|last| last.at) };
        Some((first.at, end.unwrap_or(first.at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Bins of ten frames each; `delivered` says how many of them arrived.
    fn judged(delivered: &[u64]) -> Rates {
        let mut rates = Rates::from(0);
        let bins: Vec<Bin> = delivered.iter().map(|n| Bin { offered: 10, delivered: *n, arrived: 0 }).collect();
        // In pieces, as while traffic runs.
        bins.chunks(3).for_each(|bins| rates.judge(bins, Instant(100 * MS), 95.0));
        rates
    }

    fn times(rates: &Rates, cause: Option<Instant>) -> Times {
        Times::of(rates.gap(cause).into_iter(), cause)
    }

    #[test]
    fn a_gap_is_from_its_first_bin_to_the_first_good_one() {
        let rates = judged(&[10, 10, 10, 4, 0, 0, 9, 10, 10]);
        let crossings: Vec<_> = rates.crossings().map(|c| (c.rose, c.at.0 / MS)).collect();
        assert_eq!(crossings, [(false, 103), (true, 107)]);
        let found = times(&rates, Some(Instant(102 * MS + MS / 2)));
        assert_eq!((found.data_plane.as_micros(), found.from_cause.as_micros()), (4_000, 4_500));
        assert_eq!(times(&rates, None), Times { data_plane: 4 * BIN, from_cause: Duration::ZERO });
    }

    #[test]
    fn gaps_before_the_cause_do_not_count_and_later_ones_all_do() {
        let rates = judged(&[10, 0, 10, 10, 0, 10, 0, 10]);
        assert_eq!(times(&rates, Some(Instant(103 * MS))), Times { data_plane: 3 * BIN, from_cause: 4 * BIN });
        assert_eq!(times(&rates, Some(Instant(108 * MS))), Times::default());
    }

    #[test]
    fn a_rate_that_does_not_return_counts_so_far() {
        let rates = judged(&[10, 10, 0, 0, 0]);
        assert_eq!(times(&rates, None).data_plane, 3 * BIN);
    }

    #[test]
    fn time_without_frames_says_nothing() {
        let mut rates = judged(&[10, 10]);
        let nothing = [Bin::default(); 50];
        rates.judge(&nothing, Instant(0), 95.0);
        assert_eq!((rates.next, rates.crossings().count()), (52, 0));
    }

    #[test]
    fn memory_is_bounded() {
        let many: Vec<u64> = (0..5_000).map(|i| i % 2 * 10).collect();
        let rates = judged(&many);
        assert_eq!((rates.crossings().count(), rates.overflowed), (MOST, true));
        let rates = judged(&many[..MOST]);
        assert_eq!((rates.crossings().count(), rates.overflowed), (MOST, false), "all of them are kept");
    }

    #[test]
    fn the_gap_of_a_flow_is_from_the_first_fall_of_its_rows_to_their_last_rise() {
        let rows = [judged(&[10, 0, 0, 10, 10, 10, 10]), judged(&[10, 10, 10, 10, 10, 0, 10]), judged(&[10; 7])];
        let times = |cause: Option<Instant>| Times::of(rows.iter().filter_map(|row| row.gap(cause)), cause);
        assert_eq!(times(None), Times { data_plane: 5 * BIN, from_cause: Duration::ZERO });
        assert_eq!(times(Some(Instant(101 * MS))), Times { data_plane: 5 * BIN, from_cause: 5 * BIN });
        assert_eq!(times(Some(Instant(104 * MS))), Times { data_plane: BIN, from_cause: 2 * BIN });
        assert_eq!(times(Some(Instant(108 * MS))), Times::default());
    }
}
