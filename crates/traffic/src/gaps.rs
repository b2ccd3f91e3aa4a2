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
    /// When the loop last took frames, and the longest time between two such passes in ns.
    pub(crate) arrived: Option<(Instant, u64)>,
    /// Frames that are not test traffic.
    pub(crate) other: u64,
}

impl Watch {
    /// The first gap begins at `start`, so that a loop that was held off before it and beyond it is noticed.
    pub(crate) fn begin(&mut self, start: Instant) {
        self.last = Some(start);
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

    /// The loop took frames.
    #[inline]
    pub(crate) fn arrival(&mut self, now: Instant) {
        let (last, longest) = self.arrived.unwrap_or((now, 0));
        self.arrived = Some((now, longest.max(now.0.saturating_sub(last.0))));
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
