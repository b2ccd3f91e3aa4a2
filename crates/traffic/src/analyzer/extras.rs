//! State of flows with alternate ports, counts by destination, or delay variation from frame to frame.

use crate::histogram::Latencies;
use crate::lane_report::IpdvReport;
use drophammer_model::latency::IpdvSummary;
use drophammer_model::trial::{FlowSpec, PortIndex};

/// State that only some flows need. It is not in the same cache line as the state of all flows.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct FlowExtras {
    /// Alternate ports, where frames of the flow may also arrive.
    pub(super) also: Vec<PortIndex>,
    /// Distinct frames that arrived at alternate ports.
    pub(crate) elsewhere: u64,
    /// Counts by destination, if the flow has them.
    pub(crate) tally: Option<Tally>,
    /// The last frame, if the flow measures delay variation.
    before: Option<Before>,
}

impl FlowExtras {
    pub(super) fn new(flow: &FlowSpec) -> FlowExtras {
        let tally = flow.per_destination.then(|| Tally::new(flow.destinations.count()));
        FlowExtras { also: flow.also.clone(), elsewhere: 0, tally, before: flow.ipdv.then(Before::default) }
    }

    /// True if `flow` needs this state.
    pub(super) fn asked_for(flow: &FlowSpec) -> bool {
        flow.per_destination || flow.ipdv || !flow.also.is_empty()
    }

    /// True if the flow has alternate ports.
    pub(crate) fn has_alternate(&self) -> bool {
        !self.also.is_empty()
    }

    /// Counts the distinct frame `sequence` with its latency in ns. Returns by how much the latency exceeds the latency
    /// of the frame before, if the flow measures it and that frame was the previous arrival.
    #[inline]
    pub(super) fn take(&mut self, sequence: u64, latency: u64) -> Option<i64> {
        if let Some(tally) = &mut self.tally {
            tally.take(sequence);
        }
        self.before.as_mut()?.take(sequence, latency)
    }
}

/// Distinct frames by destination. They are counted by place in the order of destinations, so that consecutive frames
/// use neighbouring words.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    count: u64,
    /// Sequence number at which the round of the last frame started.
    round: u64,
    frames: Vec<u32>,
}

/// See [`crate::plan::spaced`]; these words are half as large.
const GAP: usize = 16;

impl Tally {
    fn new(count: u32) -> Tally {
        let mut frames = Vec::with_capacity(count as usize + GAP);
        // Touches every page now, so that the trial does not have to.
        frames.resize(count as usize, 0);
        Tally { count: u64::from(count), round: 0, frames }
    }

    #[inline]
    fn take(&mut self, sequence: u64) {
        let mut place = sequence.wrapping_sub(self.round);
        if place >= self.count {
            place = sequence % self.count;
            self.round = sequence - place;
        }
        self.frames[place as usize] += 1;
    }

    /// Returns the number of frames by place.
    pub(crate) fn frames(&self) -> &[u32] {
        &self.frames
    }
}

/// The frame of a flow that arrived last, for inter-packet delay variation (RFC 8219 section 7.3.2): the latency of a
/// frame minus the latency of the frame before it in its flow.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    /// Number of the next frame; 0 before the first arrival.
    next: u64,
    latency: u64,
}

impl Before {
    /// Takes a distinct frame with its latency in ns. Returns the variation if the frame before it was the previous arrival.
    #[inline]
    fn take(&mut self, sequence: u64, latency: u64) -> Option<i64> {
        let variation = (sequence > 0 && sequence == self.next).then(|| latency as i64 - self.latency as i64);
        *self = Before { next: sequence + 1, latency };
        variation
    }
}

/// The delay variations of a group.
pub(super) struct Ipdv {
    /// Variations below 0, by amount.
    falls: Latencies,
    /// Variations of 0 and above.
    rises: Latencies,
    /// The smallest and the largest variation; `None` before the first.
    range: Option<(i64, i64)>,
}

impl Ipdv {
    /// Creates empty counts, both of which have places for as many variations as fit into `bytes`.
    pub(super) fn within(bytes: usize) -> Ipdv {
        Ipdv { falls: Latencies::within(bytes), rises: Latencies::within(bytes), range: None }
    }

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

    /// Returns the counts as data.
    pub(super) fn report(&self) -> IpdvReport {
        IpdvReport { falls: self.falls.steps().collect(), rises: self.rises.steps().collect(), range: self.range }
    }
}

/// Summarizes the variations of a group, as counted by all lanes; `None` if no lane measured them.
pub(crate) fn summary<'a>(reports: impl Iterator<Item = &'a IpdvReport>) -> Option<IpdvSummary> {
    let (mut falls, mut rises, mut range, mut asked) = (Latencies::default(), Latencies::default(), None, false);
    for report in reports {
        asked = true;
        report.falls.iter().rev().for_each(|(ns, pairs)| falls.record_n(*ns, *pairs));
        report.rises.iter().rev().for_each(|(ns, pairs)| rises.record_n(*ns, *pairs));
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

    proptest! {
        #[test]
        fn in_any_order_a_frame_counts_at_its_place(count in 1u32..50, arrivals in proptest::collection::vec(0u64..500, 0..300)) {
            let mut tally = Tally::new(count);
            arrivals.iter().for_each(|s| tally.take(*s));
            for place in 0..count {
                let expected = arrivals.iter().filter(|s| *s % u64::from(count) == u64::from(place)).count();
                prop_assert_eq!(tally.frames()[place as usize] as usize, expected);
            }
        }
    }

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
        assert_eq!(summary([Ipdv::within(0).report()].iter()), Some(IpdvSummary::default()));
    }

    proptest! {
        #[test]
        fn lanes_together_have_the_median_of_all(variations in proptest::collection::vec(-1_000i64..1_000, 1..200), split in any::<prop::sample::Index>()) {
            let (one, other) = variations.split_at(split.index(variations.len()));
            let reports = [one, other].map(|part| {
                let mut ipdv = Ipdv::within(0);
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
