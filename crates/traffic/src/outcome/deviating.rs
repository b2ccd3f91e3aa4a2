//! Frames of one flow that arrived in an unexpected encapsulation at several lanes: each counts once.

use crate::analyzer::{Deviations, count};
use crate::flow_state::Arrived;
use crate::lane_report::{FlowReport, LaneReport};
use drophammer_model::traffic::Deviation;
use drophammer_model::trial::GroupCounts;
use std::collections::BTreeMap;

/// Adds deviations of flows to ports with queues on several lanes to the counts of their groups.
pub(super) fn add(lanes: &[LaneReport], groups: &mut [GroupCounts]) {
    let mut by_flow: BTreeMap<usize, Vec<&FlowReport>> = BTreeMap::new();
    lanes.iter().flat_map(|lane| &lane.flows).for_each(|flow| by_flow.entry(flow.flow).or_default().push(flow));
    for reports in by_flow.values().filter(|reports| reports.iter().any(|report| report.deviating.is_some())) {
        let all = of_flow(reports);
        let counts = &mut groups[reports[0].group];
        counts.deviating_copies += all.copies;
        let counted = Deviation::ALL.iter().zip(all.frames).filter(|(_, frames)| *frames > 0);
        counted.for_each(|(deviation, frames)| *counts.deviations.entry(*deviation).or_default() += frames);
    }
}

/// Deviations of one flow. If a frame arrived at several lanes, the first report decides, because nobody knows which copy arrived first. For frames
/// that have left the window of a lane, arrivals at other lanes are unknown.
fn of_flow(reports: &[&FlowReport]) -> Deviations {
    let mut all = Deviations::default();
    // A bit for each frame already counted.
    let mut counted: BTreeMap<u64, u64> = BTreeMap::new();
    for deviating in reports.iter().filter_map(|report| report.deviating.as_ref()) {
        all.copies += deviating.copies;
        all.frames.iter_mut().zip(&deviating.frames).for_each(|(sum, frames)| *sum += frames);
        for (kind, window) in &deviating.first {
            for (word, first) in window.bits.iter().zip((window.from..).step_by(64)).filter(|(word, _)| **word != 0) {
                let known = counted.entry(first).or_default();
                let received = reports.iter().fold(*known, |bits, report| bits | received(report, first));
                for bit in (0..64).map(|bit| 1u64 << bit).filter(|bit| word & bit != 0) {
                    count(&mut all, *kind, received & bit != 0);
                }
                *known |= word;
            }
        }
    }
    all
}

/// A bit for each of the 64 frames from `first` (a multiple of 64) on: set if the lane has received the frame, or it has left the window.
fn received(report: &FlowReport, first: u64) -> u64 {
    let Some(Arrived { from, bits }) = &report.arrived else { return 0 };
    match first.checked_sub(*from) {
        None => u64::MAX,
        Some(above) => bits.get((above / 64) as usize).copied().unwrap_or(0),
    }
}
