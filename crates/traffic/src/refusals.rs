//! Frames that the tester's own ring refused, as ranges of sequence numbers, because there may be billions.

use crate::lane_report::SenderReport;
use std::collections::BTreeMap;
use std::ops::Range;

/// The parts of `range` outside `never_left`. Both ascend; parts may be empty.
pub(crate) fn without(range: Range<u64>, never_left: &[Range<u64>]) -> impl DoubleEndedIterator<Item = Range<u64>> {
    let first = never_left.partition_point(|gone| gone.end <= range.start);
    let end = never_left.partition_point(|gone| gone.start < range.end).max(first);
    let within = &never_left[first..end];
    (0..=within.len()).map(move |place| {
        let from = place.checked_sub(1).map_or(range.start, |before| within[before].end);
        from..within.get(place).map_or(range.end, |gone| gone.start)
    })
}

/// The stored sequence numbers of each flow, ascending.
pub(crate) fn by_flow<'a>(senders: impl Iterator<Item = &'a SenderReport>) -> BTreeMap<u32, Vec<Range<u64>>> {
    let mut by_flow: BTreeMap<u32, Vec<Range<u64>>> = BTreeMap::new();
    for (flow, first, frames) in senders.flat_map(|sender| &sender.own_refusals) {
        by_flow.entry(*flow).or_default().push(*first..first + frames);
    }
    by_flow
}

impl SenderReport {
    /// Frames of `flow` that the tester's own ring refused.
    pub(crate) fn refused_of(&self, flow: usize) -> u64 {
        self.refused.iter().find(|(of, _)| *of as usize == flow).map_or(0, |(_, frames)| *frames)
    }

    /// Their sequence numbers, ascending. `None` if not all are stored: then nobody knows which of the missing frames were lost.
    pub(crate) fn never_left(&self, flow: usize) -> Option<Vec<Range<u64>>> {
        let refused = self.refused_of(flow);
        if refused == 0 {
            return Some(Vec::new());
        }
        let own = self.own_refusals.iter().filter(|(of, ..)| *of as usize == flow);
        let ranges: Vec<Range<u64>> = own.map(|(_, first, frames)| *first..first + frames).collect();
        let stored: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        (stored == refused).then_some(ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_without_the_frames_that_never_left() {
        let never_left: [Range<u64>; 3] = [2..4, 6..7, 10..20];
        for from in 0..22 {
            for to in 0..22 {
                let parts: Vec<u64> = without(from..to, &never_left).flatten().collect();
                let expected: Vec<u64> =
                    (from..to).filter(|number| !never_left.iter().any(|gone| gone.contains(number))).collect();
                assert_eq!(parts, expected, "{from}..{to}");
                let last = without(from..to, &never_left).flatten().next_back();
                assert_eq!(last, expected.last().copied(), "{from}..{to}");
            }
        }
        assert_eq!(without(3..6, &[]).flatten().collect::<Vec<_>>(), [3, 4, 5]);
    }
}
