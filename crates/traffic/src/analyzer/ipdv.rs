//! Inter-packet delay variation (RFC 8219 section 7.3.2): the latency of a frame minus the latency of the frame before it in its flow.

use crate::histogram::Latencies;
use crate::lane_report::IpdvReport;
use drophammer_model::latency::IpdvSummary;

/// The frame of a flow that arrived last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Before {
    /// Number of the next frame; 0 before the first arrival.
    next: u64,
    latency: u64,
}

impl Before {
    /// Takes a distinct frame with its latency in ns. Returns the variation if the previous frame arrived directly before.
    #[inline]
    pub(super) fn take(&mut self, sequence: u64, latency: u64) -> Option<i64> {
        let variation = (sequence > 0 && sequence == self.next).then(|| latency as i64 - self.latency as i64);
        *self = Before { next: sequence + 1, latency };
        variation
    }
}

/// The variations of a group.
#[derive(Default)]
pub(super) struct Ipdv {
    /// Variations below 0, by amount.
    falls: Latencies,
    /// Variations from 0 on.
    rises: Latencies,
    /// The smallest and the largest variation; `None` before the first.
    range: Option<(i64, i64)>,
}

impl Ipdv {
    #[inline]
    pub(super) fn record(&mut self, variation: i64) {
        let amount = variation.unsigned_abs();
        if variation < 0 {
            self.falls.record(amount)
        } else {
            self.rises.record(amount)
        }
        let (min, max) = self.range.unwrap_or((variation, variation));
        self.range = Some((min.min(variation), max.max(variation)));
    }

    /// Counts as data.
    pub(super) fn report(&self) -> IpdvReport {
        IpdvReport { falls: self.falls.steps().collect(), rises: self.rises.steps().collect(), range: self.range }
    }
}

/// The variations of a group, counted by all lanes; `None` if no lane measured them.
pub(crate) fn summary<'a>(reports: impl Iterator<Item = &'a IpdvReport>) -> Option<IpdvSummary> {
    let (mut falls, mut rises, mut range, mut asked) = (Latencies::new(), Latencies::new(), None, false);
    for report in reports {
        asked = true;
        report.falls.iter().for_each(|(ns, pairs)| falls.record_n(*ns, *pairs));
        report.rises.iter().for_each(|(ns, pairs)| rises.record_n(*ns, *pairs));
        if let Some((min, max)) = report.range {
            let (least, most) = range.unwrap_or((min, max));
            range = Some((min.min(least), max.max(most)));
        }
    }
    let Some((min_ns, max_ns)) = range else { return asked.then(IpdvSummary::default) };
    let mut ascending: Vec<(i64, u64)> = falls.steps().map(|(ns, pairs)| (-(ns as i64), pairs)).collect();
    ascending.reverse();
    ascending.extend(rises.steps().map(|(ns, pairs)| (ns as i64, pairs)));
    let pairs: u64 = ascending.iter().map(|(_, pairs)| pairs).sum();
    let mut seen = 0;
    let median = ascending.iter().find(|(_, of_step)| {
        seen += *of_step;
        seen * 2 >= pairs
    });
    Some(IpdvSummary { pairs, min_ns, median_ns: median.map_or(0, |(ns, _)| (*ns).clamp(min_ns, max_ns)), max_ns })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_gap_and_a_late_frame_make_no_pair() {
        let mut before = Before::default();
        let arrivals =
            [(0, 10, None), (1, 30, Some(20)), (3, 50, None), (2, 90, None), (4, 60, None), (5, 55, Some(-5))];
        for (sequence, latency, expected) in arrivals {
            assert_eq!(before.take(sequence, latency), expected, "{sequence}");
        }
    }

    #[test]
    fn no_pair_is_a_summary_and_no_request_is_none() {
        assert_eq!(summary(std::iter::empty()), None);
        assert_eq!(summary([Ipdv::default().report()].iter()), Some(IpdvSummary::default()));
    }

    proptest! {
        #[test]
        fn lanes_together_have_the_median_of_all(variations in proptest::collection::vec(-1_000i64..1_000, 1..200), split in any::<prop::sample::Index>()) {
            let (one, other) = variations.split_at(split.index(variations.len()));
            let reports = [one, other].map(|part| {
                let mut ipdv = Ipdv::default();
                part.iter().for_each(|variation| ipdv.record(*variation));
                ipdv.report()
            });
            let mut sorted = variations.clone();
            sorted.sort_unstable();
            let expected = IpdvSummary {
                pairs: sorted.len() as u64,
                min_ns: sorted[0],
                median_ns: sorted[(sorted.len() - 1) / 2],
                max_ns: sorted[sorted.len() - 1],
            };
            prop_assert_eq!(summary(reports.iter()), Some(expected));
        }
    }
}
