//! State of flows with alternate ports, counts by destination or by place in a cycle, or delay variation from frame to frame.

use crate::counts::PlaceCounts;
use crate::histogram::Latencies;
use crate::lane_report::IpdvReport;
use crate::plan::spaced;
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
    /// Counts by destination or by place in a cycle, if the flow has them.
    tally: Option<Tally>,
    /// The last frame, if the flow measures delay variation.
    before: Option<Before>,
}

impl FlowExtras {
    pub(super) fn new(flow: &FlowSpec) -> FlowExtras {
        let tally = match flow.cycle {
            0 => flow.per_destination.then(|| Tally::of_destinations(flow.destinations.count())),
            cycle => Some(Tally::of_cycle(cycle)),
        };
        FlowExtras { also: flow.also.clone(), elsewhere: 0, tally, before: flow.ipdv.then(Before::default) }
    }

    /// True if `flow` needs this state.
    pub(crate) fn asked_for(flow: &FlowSpec) -> bool {
        flow.per_destination || flow.cycle > 0 || flow.ipdv || !flow.also.is_empty()
    }

    /// Returns the frames by place in the order of destinations, if the flow is counted by destination.
    pub(crate) fn by_destination(&self) -> Option<&[u32]> {
        match &self.tally {
            Some(Tally::Destinations(_, frames)) => Some(frames),
            _ => None,
        }
    }

    /// Returns the counts by place in the flow's cycle, if it has one.
    pub(crate) fn by_place(&self) -> Option<&[PlaceCounts]> {
        match &self.tally {
            Some(Tally::Cycle(_, places)) => Some(places),
            _ => None,
        }
    }

    /// True if the flow has alternate ports.
    pub(crate) fn has_alternate(&self) -> bool {
        !self.also.is_empty()
    }

    /// Counts the distinct frame `sequence` of `bytes` bytes without FCS, which arrived at `at` with this latency in ns. Returns by
    /// how much the latency exceeds the latency of the frame before, if the flow measures it and that frame was the previous arrival.
    #[inline]
    pub(super) fn take(&mut self, sequence: u64, latency: u64, at: u64, bytes: u32) -> Option<i64> {
        match &mut self.tally {
            None => {}
            Some(Tally::Destinations(rounds, frames)) => frames[rounds.place(sequence)] += 1,
            Some(Tally::Cycle(rounds, places)) => places[rounds.place(sequence)].take(latency, at, bytes),
        }
        self.before.as_mut()?.take(sequence, latency)
    }
}

/// Counts of distinct frames by their place in a round of frames.
#[derive(Clone, Debug)]
enum Tally {
    /// Frames by place in the order of destinations, so that consecutive frames use neighbouring words.
    Destinations(Rounds, Vec<u32>),
    /// By place in the flow's cycle.
    Cycle(Rounds, Vec<PlaceCounts>),
}

impl Tally {
    fn of_destinations(count: u32) -> Tally {
        Tally::Destinations(Rounds::of(count), spaced(count as usize))
    }

    fn of_cycle(count: u32) -> Tally {
        Tally::Cycle(Rounds::of(count), spaced(count as usize))
    }
}

/// Finds the place of a frame in its round.
#[derive(Clone, Copy, Debug)]
struct Rounds {
    /// Frames of a round.
    count: u64,
    /// Sequence number at which the round of the last frame started.
    start: u64,
}

impl Rounds {
    fn of(count: u32) -> Rounds {
        Rounds { count: u64::from(count), start: 0 }
    }

    #[inline]
    fn place(&mut self, sequence: u64) -> usize {
        let mut place = sequence.wrapping_sub(self.start);
        if place >= self.count {
            place = sequence % self.count;
            self.start = sequence - place;
        }
        place as usize
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
    use crate::counts::Arrivals;
    use drophammer_model::quantity::Instant;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn in_any_order_a_frame_counts_at_its_place(count in 1u32..50, arrivals in proptest::collection::vec(0u64..500, 0..300)) {
            let extras = |tally| FlowExtras { also: Vec::new(), elsewhere: 0, tally: Some(tally), before: None };
            let (mut to, mut of) = (extras(Tally::of_destinations(count)), extras(Tally::of_cycle(count)));
            for s in &arrivals {
                to.take(*s, s * 3, s + 1_000, 60);
                of.take(*s, s * 3, s + 1_000, 60);
            }
            for place in 0..count {
                let here: Vec<u64> = arrivals.iter().copied().filter(|s| *s % u64::from(count) == u64::from(place)).collect();
                prop_assert_eq!(to.by_destination().unwrap()[place as usize] as usize, here.len());
                let frames = here.len() as u64;
                let expected = here.iter().min().zip(here.iter().max()).map(|(min, max)| Arrivals {
                    first: Instant(min + 1_000),
                    last: Instant(max + 1_000),
                    latency_min_ns: min * 3,
                    latency_sum_ns: u128::from(here.iter().sum::<u64>() * 3),
                });
                let latency_max_ns = here.iter().max().map_or(0, |max| max * 3);
                let counts = PlaceCounts { offered: 0, received: frames, bytes: frames * 64, latency_max_ns, arrivals: expected };
                prop_assert_eq!(of.by_place().unwrap()[place as usize], counts);
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
