//! Gaps in which the loop of a lane did not check its ports.

use drophammer_model::quantity::Instant;
use drophammer_model::trial::Held;

/// Shortest gap of the loop that is recorded.
const LONG_GAP_NS: u64 = 1_000_000;

/// Number of gaps whose times are kept.
const LONGEST_GAPS: usize = 16;

/// Measures the gaps of the loop.
#[derive(Default)]
pub(crate) struct Watch {
    pub(crate) last: Option<Instant>,
    /// Longest time between two passes of the loop in ns, and the sum of those above 1 ms.
    pub(crate) max_gap_ns: u64,
    pub(crate) long_gaps_ns: u64,
    /// The longest of these gaps.
    pub(crate) longest: [(Instant, u64); LONGEST_GAPS],
    /// Arrival of the last frame, or the start of the trial before the first one.
    pub(crate) silent_since: Instant,
    /// Longest time without an arrival in ns, once a frame has arrived.
    pub(crate) silence_ns: Option<u64>,
    /// Frames that are not test traffic.
    pub(crate) other: u64,
}

impl Watch {
    /// The first gap begins at `start`, so that a loop that was held off before it and beyond it is noticed.
    pub(crate) fn begin(&mut self, start: Instant) {
        self.last = Some(start);
        self.silent_since = start;
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

    /// The last frame of a burst arrived at this time. A silence before it, or between frames of the burst, is not longer than the time
    /// since the frame before the burst.
    #[inline]
    pub(crate) fn arrival(&mut self, at: Instant) {
        let silence = at.0.saturating_sub(self.silent_since.0);
        self.silence_ns = Some(self.silence_ns.unwrap_or(0).max(silence));
        self.silent_since = self.silent_since.max(at);
    }

    /// The trial ended at `end`; the last frame left at `done`. A silence that began while frames left lasts until then.
    pub(crate) fn close(&mut self, done: Option<Instant>, end: Instant) {
        if let (Some(done), Some(longest)) = (done, self.silence_ns)
            && self.silent_since.0 + LONG_GAP_NS < done.0
        {
            self.silence_ns = Some(longest.max(end.0.saturating_sub(self.silent_since.0)));
        }
    }

    /// Longest time without an arrival in ns; `None` if nothing arrived, or the times of arrivals are not known.
    pub(crate) fn longest_silence_ns(&self) -> Option<u64> {
        self.silence_ns
    }

    #[cold]
    fn remember(&mut self, from: Instant, ns: u64) {
        if let Some(shortest) = self.longest.iter_mut().min_by_key(|(_, ns)| *ns)
            && shortest.1 < ns
        {
            *shortest = (from, ns);
        }
    }

    /// The longest gaps above 1 ms, in order of time, for a trial that started at `start`.
    pub(crate) fn longest_gaps(&self, start: Instant) -> Vec<Held> {
        let held = |(from, ns): &(Instant, u64)| Held { from_ns: from.0 as i64 - start.0 as i64, ns: *ns };
        let mut gaps: Vec<Held> = self.longest.iter().filter(|(_, ns)| *ns > 0).map(held).collect();
        gaps.sort_unstable_by_key(|gap| gap.from_ns);
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Longest silence of a trial from 100 ms on, whose last frame leaves at 200 ms and that ends at 400 ms, with these arrivals in ms.
    fn silence(arrivals: &[u64]) -> Option<u64> {
        let mut watch = Watch::default();
        watch.begin(Instant(100 * MS));
        arrivals.iter().for_each(|at| watch.arrival(Instant(at * MS)));
        watch.close(Some(Instant(200 * MS)), Instant(400 * MS));
        watch.longest_silence_ns().map(|ns| ns / MS)
    }

    #[test]
    fn a_silence_counts_at_the_start_amid_and_at_the_end() {
        assert_eq!(silence(&[]), None);
        assert_eq!(silence(&[130, 140, 200]), Some(60));
        assert_eq!(silence(&[101, 140, 141, 199]), Some(58));
        assert_eq!(silence(&[170, 171, 199]), Some(70), "before the first frame");
        assert_eq!(silence(&[150, 180, 230]), Some(50), "across the last departure");
        assert_eq!(silence(&[150, 198]), Some(202), "it began while frames left, and nothing came after it");
        assert_eq!(silence(&[150, 199]), Some(50), "a router that loses frames is silent after the last one");
        assert_eq!(silence(&[150, 140, 199]), Some(50), "another port");
    }
}
