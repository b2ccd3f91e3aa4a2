//! Merges what several lanes report about one flow.

use super::Sender;
use crate::flow_state::Arrived;
use crate::lane_report::{FlowReport, LaneReport, MISSING};
use crate::losses::{Collector, Distance, LossRuns};
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// One report per flow, in order, and the number of frames with copies at several lanes.
pub(super) fn merged<'a>(
    lanes: &'a [LaneReport],
    distance: &Distance,
    by_flow: &[Option<Sender<'_>>],
) -> (Vec<Cow<'a, FlowReport>>, u64) {
    let senders = by_flow;
    let mut by_flow: BTreeMap<usize, Vec<&FlowReport>> = BTreeMap::new();
    lanes.iter().flat_map(|lane| &lane.flows).for_each(|flow| by_flow.entry(flow.flow).or_default().push(flow));
    let mut copies_apart = 0;
    let count = by_flow.len();
    let flows = by_flow.into_values().map(|reports| {
        let flow = reports[0].flow;
        let sender = senders.get(flow).copied().flatten();
        let told = sender.filter(|_| reports.len() > 1).and_then(|(sender, _)| sender.never_left(flow));
        let never_left = told.unwrap_or_default();
        let losses = LossRuns { apart: distance.apart(flow), runs: Vec::new() };
        let (report, copies) = of_flow(&reports, Collector::new(losses, count, &never_left));
        copies_apart += copies;
        report
    });
    (flows.collect(), copies_apart)
}

/// Merges the reports about one flow, at least one.
fn of_flow<'a>(reports: &[&'a FlowReport], mut losses: Collector<'_>) -> (Cow<'a, FlowReport>, u64) {
    if let [report] = reports {
        return (Cow::Borrowed(report), 0);
    }
    // Reports without received frames add nothing.
    let with_frames: Vec<&FlowReport> = reports.iter().copied().filter(|report| report.received > 0).collect();
    let [first, ..] = with_frames.as_slice() else { return (Cow::Borrowed(reports[0]), 0) };
    let next_expected = with_frames.iter().map(|report| report.next_expected).max().unwrap_or(0);
    let windows: Vec<&Arrived> = with_frames.iter().filter_map(|report| report.arrived.as_ref()).collect();
    let from = windows.iter().map(|window| window.from).max().unwrap_or(0);
    let word = |window: &Arrived, at: u64| window.bits.get(((at - window.from) / 64) as usize).copied().unwrap_or(0);
    let (mut all, mut each) = (0, 0);
    let mut missing = Gaps(VecDeque::new());
    for at in (from..next_expected).step_by(64) {
        let mut union = 0;
        for bits in windows.iter().map(|window| word(window, at)) {
            union |= bits;
            each += u64::from(bits.count_ones());
        }
        all += u64::from(union.count_ones());
        let never_came = !union & u64::MAX >> (64 - (next_expected - at).min(64));
        missing.take(at, never_came);
        losses.word(at, never_came);
    }
    let (received, duplicated) =
        with_frames.iter().fold((0, 0), |sum, report| (sum.0 + report.received, sum.1 + report.duplicated));
    let copies_apart = each - all;
    let one_lane = with_frames.len() == 1;
    let report = FlowReport {
        received: received - copies_apart,
        duplicated: duplicated + copies_apart,
        next_expected,
        missing: missing.0.into(),
        losses: losses.found(),
        tells_all: with_frames.iter().all(|report| report.tells_all),
        spread: first.spread || !one_lane,
        arrived: None,
        deviating: None,
        by_place: None,
        ..**first
    };
    (Cow::Owned(report), copies_apart)
}

/// The highest [`MISSING`] ranges of missing numbers, ascending.
struct Gaps(VecDeque<Range<u64>>);

impl Gaps {
    /// Adds the numbers, from `first` on, with a bit set in `missing`.
    fn take(&mut self, first: u64, mut missing: u64) {
        while missing != 0 {
            let skip = missing.trailing_zeros();
            let run = (missing >> skip).trailing_ones();
            let gap = first + u64::from(skip)..first + u64::from(skip + run);
            match self.0.back_mut() {
                Some(last) if last.end == gap.start => last.end = gap.end,
                _ => {
                    if self.0.len() == MISSING {
                        self.0.pop_front();
                    }
                    self.0.push_back(gap);
                }
            }
            missing &= u64::MAX.checked_shl(skip + run).unwrap_or(0);
        }
    }
}
