//! Gaps in which a lane's loop did not poll its ports, and silences in which nothing arrived there.

use drophammer_model::quantity::Instant;
use drophammer_model::trial::{Held, Silences};

/// Shortest gap of the loop, and shortest silence, that is recorded.
const LONG_GAP_NS: u64 = 1_000_000;

/// Maximum number of gaps whose times are stored.
const LONGEST_GAPS: usize = 16;

/// Maximum number of silences whose times are stored.
const LONGEST_SILENCES: usize = 64;

/// Measures gaps and silences.
#[derive(Default)]
pub(crate) struct Watch {
    pub(crate) last: Option<Instant>,
    /// Longest gap between two passes of the loop in ns, and the sum of all gaps above 1 ms.
    pub(crate) max_gap_ns: u64,
    pub(crate) long_gaps_ns: u64,
    /// The longest gaps.
    pub(crate) longest: [(Instant, u64); LONGEST_GAPS],
    /// Arrival of the last frame, or the start of the trial before the first one.
    pub(crate) silent_since: Instant,
    /// True if a frame with a known arrival time has arrived.
    pub(crate) heard: bool,
    /// The longest periods without an arrival.
    pub(crate) silences: Vec<(Instant, u64)>,
    /// Longest silence that is not in `silences`, in ns.
    pub(crate) other_silences_ns: u64,
    /// Frames other than test traffic.
    pub(crate) other: u64,
}

impl Watch {
    /// The first gap starts at `start`, so that a loop that was held up across the start is noticed.
    pub(crate) fn begin(&mut self, start: Instant) {
        self.last = Some(start);
        self.silent_since = start;
        // Allocates now, because nothing must be allocated while frames pass.
        self.silences.reserve_exact(LONGEST_SILENCES);
    }

    #[inline]
    pub(crate) fn look(&mut self, now: Instant) {
        if let Some(last) = self.last {
            let gap = now.0 - last.0.min(now.0);
            self.max_gap_ns = self.max_gap_ns.max(gap);
            if gap > LONG_GAP_NS {
                self.long_gaps_ns += gap;
                self.remember(last, gap);
            }
        }
        self.last = Some(now);
    }

    /// Notes that frames of one port arrived, in order of time.
    #[inline]
    pub(crate) fn arrivals(&mut self, count: usize, at: impl Fn(usize) -> Instant) {
        let Some(last) = count.checked_sub(1) else { return };
        self.heard = true;
        let last = at(last);
        // Usually all frames of a burst are close together.
        if last.0.saturating_sub(self.silent_since.0) > LONG_GAP_NS {
            (0..count).for_each(|i| self.arrival(at(i)));
        }
        self.silent_since = self.silent_since.max(last);
    }

    #[cold]
    fn arrival(&mut self, at: Instant) {
        self.silent_until(at);
        self.silent_since = self.silent_since.max(at);
    }

    /// Notes that the trial ended at `end`.
    pub(crate) fn close(&mut self, end: Instant) {
        self.silent_until(end);
    }

    fn silent_until(&mut self, end: Instant) {
        let mut ns = end.0.saturating_sub(self.silent_since.0);
        if ns <= LONG_GAP_NS {
            return;
        }
        if self.silences.len() < LONGEST_SILENCES {
            self.silences.push((self.silent_since, ns));
            return;
        }
        if let Some(shortest) = self.silences.iter_mut().min_by_key(|(_, ns)| *ns)
            && shortest.1 < ns
        {
            ns = std::mem::replace(shortest, (self.silent_since, ns)).1;
        }
        self.other_silences_ns = self.other_silences_ns.max(ns);
    }

    /// Returns the silences of a trial that started at `start`; `None` if nothing arrived or arrival times are unknown.
    pub(crate) fn silences(&self, start: Instant) -> Option<Silences> {
        self.heard.then(|| Silences {
            longest: held(self.silences.iter(), start),
            others_ns: self.other_silences_ns.max(LONG_GAP_NS),
        })
    }

    #[cold]
    fn remember(&mut self, from: Instant, ns: u64) {
        if let Some(shortest) = self.longest.iter_mut().min_by_key(|(_, ns)| *ns)
            && shortest.1 < ns
        {
            *shortest = (from, ns);
        }
    }

    /// Returns the longest gaps above 1 ms of a trial that started at `start`, in order of time.
    pub(crate) fn longest_gaps(&self, start: Instant) -> Vec<Held> {
        held(self.longest.iter().filter(|(_, ns)| *ns > 0), start)
    }
}

/// Returns periods of a trial that started at `start`, in order of time.
fn held<'p>(periods: impl Iterator<Item = &'p (Instant, u64)>, start: Instant) -> Vec<Held> {
    let held = |(from, ns): &(Instant, u64)| Held { from_ns: from.0 as i64 - start.0 as i64, ns: *ns };
    let mut all: Vec<Held> = periods.map(held).collect();
    all.sort_unstable_by_key(|held| held.from_ns);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Returns the silences of a trial from 100 ms to 400 ms with these bursts: start after the trial's start, and length, in ms.
    fn silences(bursts: &[&[u64]]) -> Option<Vec<(i64, u64)>> {
        let mut watch = Watch::default();
        watch.begin(Instant(100 * MS));
        bursts.iter().for_each(|burst| watch.arrivals(burst.len(), |i| Instant(burst[i] * MS)));
        watch.close(Instant(400 * MS));
        let found = watch.silences(Instant(100 * MS))?;
        assert_eq!(found.others_ns, MS);
        Some(found.longest.iter().map(|held| (held.from_ns / MS as i64, held.ns / MS)).collect())
    }

    #[test]
    fn a_silence_counts_at_the_start_amid_and_at_the_end() {
        assert_eq!(silences(&[]), None);
        assert_eq!(silences(&[&[]]), None);
        assert_eq!(silences(&[&[130], &[131], &[200]]), Some(vec![(0, 30), (31, 69), (100, 200)]));
        assert_eq!(silences(&[&[101], &[399]]), Some(vec![(1, 298)]), "a millisecond is not silence");
    }

    #[test]
    fn frames_that_waited_at_the_port_count_when_they_arrived() {
        // The loop was held up from 110 ms to 200 ms, and the router stood still from 150 ms to 190 ms.
        let burst: Vec<u64> = (110..=150).chain(190..=200).collect();
        let end: Vec<u64> = (200..=400).collect();
        assert_eq!(silences(&[&[101], &burst, &end]), Some(vec![(1, 9), (50, 40)]));
        // Frames of another port that were read later do not shorten the silence, so it is an upper bound.
        assert_eq!(silences(&[&[101], &burst, &[120, 160], &end]), Some(vec![(1, 9), (50, 40)]));
    }

    #[test]
    fn the_longest_silences_are_kept_and_the_others_bounded() {
        let mut watch = Watch::default();
        watch.begin(Instant(0));
        let mut at = 0;
        for ms in 2..=70 {
            at += ms * MS;
            watch.arrivals(1, |_| Instant(at));
        }
        let found = watch.silences(Instant(0)).unwrap();
        assert_eq!((found.longest.len(), found.others_ns), (64, 6 * MS), "silences of 2 ms to 6 ms are left out");
        assert_eq!(found.longest.iter().map(|held| held.ns).min(), Some(7 * MS));
        assert!(found.longest.is_sorted_by_key(|held| held.from_ns));
    }
}
