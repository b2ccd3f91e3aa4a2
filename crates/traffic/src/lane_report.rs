//! The counts of a lane as data. [`crate::merge`] combines the reports of all lanes into a result.

use crate::analyzer::FlowExtras;
use crate::engine::LaneState;
use crate::flow_state::Arrived;
use crate::generator::controlled::only;
use crate::generator::{LatenessBuckets, PortGenerator};
use crate::losses::{Collector, Distance, LossRuns};
use crate::permutation::Permutation;
use crate::plan::{Layout, Plan};
use crate::schedule::Schedule;
use drophammer_model::trial::{Held, Misdelivered, PortIndex, Silences};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

/// Properties of the trial, known to all lanes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Names of the flow groups.
    pub groups: Vec<String>,
    /// Groups of background flows, which are counted separately.
    #[serde(default)]
    pub background: Vec<usize>,
    /// Number of ports.
    pub ports: usize,
    /// True if the load is the maximum that ports accept. In that case, offering less than scheduled is not a fault.
    pub maximum: bool,
    /// Labels of the events, in order of time.
    pub events: Vec<String>,
    /// Flows that are counted by destination, with the order of their destinations.
    pub destinations: Vec<(usize, Permutation)>,
}

/// All counts of one lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaneReport {
    /// Properties of the trial, the same in each report.
    pub trial: Trial,
    /// One per sending port of the lane.
    pub senders: Vec<SenderReport>,
    /// Counts of received frames for each group of the trial.
    pub groups: Vec<GroupReport>,
    /// The flows that the lane receives.
    pub flows: Vec<FlowReport>,
    /// Frames that arrived in another place than their flow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub misdelivered: Vec<Misdelivered>,
    /// Such frames that are not among these.
    #[serde(default)]
    pub misdelivered_elsewhere: u64,
    /// Counted arrivals at the lane's queues, by port of the trial.
    pub arrivals: Vec<PortArrivals>,
    /// Frames of earlier trials.
    pub stale: u64,
    /// Frames other than test traffic.
    pub other: u64,
    /// Frames that the tester lost in its own receive path.
    pub receive_drops: u64,
    /// Longest time between two passes of the loop, in ns.
    pub max_gap_ns: u64,
    /// Sum in ns of all such times above 1 ms.
    pub long_gaps_ns: u64,
    /// The longest of these times, in chronological order.
    #[serde(default)]
    pub longest_gaps: Vec<Held>,
    /// Periods without an arrival. `None` if nothing arrived, if ports do not know when frames arrived, and in virtual time.
    #[serde(default)]
    pub silences: Option<Silences>,
    /// Largest step of the wall clock during the trial in ns; 0 on all lanes except the first.
    pub clock_step_ns: i64,
    /// Events that this lane has performed, which are the first ones of the trial.
    pub events: Vec<EventReport>,
}

/// Frames that left one port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SenderReport {
    /// The port.
    pub port: PortIndex,
    /// Scheduled departures.
    pub schedule: Schedule,
    /// Flow of each frame in one round.
    pub round: Vec<u32>,
    /// Skipped parts of the schedule: `(frames sent before, frames skipped so far)`.
    pub skips: Vec<(u64, u64)>,
    /// Frames sent by flow: `(flow, frames)`.
    pub flows: Vec<(u32, u64)>,
    /// Frames that the tester's own ring refused: `(flow, frames)`, only for flows that have any.
    pub refused: Vec<(u32, u64)>,
    /// The refused frames: `(flow, first sequence number, frames)`, ascending within a flow. If there are too many, the
    /// last ones are missing.
    pub own_refusals: Vec<(u32, u64, u64)>,
    /// The first 256 stretches of the schedule, in order; empty if no flow was started or stopped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stretches: Vec<StretchReport>,
    /// The flows that were stopped or paused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stopped: Vec<StoppedReport>,
    /// Counts of the groups of its flows, in order.
    pub groups: Vec<GroupSentReport>,
    /// Frames that were due while their flows were sending, but were not offered. This includes refusals of the
    /// tester's own ring.
    pub unsent: u64,
    /// Time from the start to the end of the schedule or the last departure, whichever is later, in ns.
    pub sending_ns: u64,
    /// Departure errors by power of two in ns.
    pub lateness: Vec<u64>,
    /// True if the kernel generated the frames.
    pub in_kernel: bool,
}

/// A part of a schedule in which the same flows send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StretchReport {
    /// First frame of the stretch, counted among all frames of the schedule.
    pub from: u64,
    /// For each place of a round: true if its flow sends.
    pub keep: Vec<bool>,
    /// Number of frames sent before the stretch.
    pub sent: u64,
    /// Number of frames skipped before the stretch.
    pub skipped: u64,
    /// First sequence number of each flow, in the order of [`SenderReport::flows`].
    pub sequences: Vec<u64>,
}

/// A flow that did not send all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoppedReport {
    /// The flow.
    pub flow: u32,
    /// The flow's group.
    pub group: usize,
    /// Number of times that the flow was stopped or paused.
    pub stops: u64,
    /// Time for which the flow was stopped or paused, in ns.
    pub stopped_ns: u64,
    /// End of the flow's schedule, in ns after the start.
    pub end_ns: u64,
}

/// Frames of a group sent at one port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupSentReport {
    /// Number of the group in the trial.
    pub group: usize,
    /// Number of planned frames.
    pub intended: u64,
    /// Number of frames handed over, including refused frames.
    pub offered: u64,
    /// Offered frames that the device's ring refused.
    pub refused: u64,
    /// Offered frames by time bin.
    pub bins: Vec<u64>,
}

/// Frames of a group received by a lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    /// Intact frames at the wrong port, or at the right port with another host's MAC address.
    pub stray: u64,
    /// Frames that are not intact.
    pub corrupted: u64,
    /// Sent frames that arrived intact at the right port, but only in a different encapsulation, by the deviation of
    /// the first arrival, in the order of [`drophammer_model::traffic::Deviation::ALL`]. The others are in
    /// [`FlowReport::deviating`].
    pub deviations: Vec<u64>,
    /// All other arrivals with a deviation.
    pub deviating_copies: u64,
    /// Frames with a latency above the limit.
    pub late: u64,
    /// Bytes of distinct intact frames, FCS included.
    pub bytes: u64,
    /// Distinct frames by time bin of departure, and by time bin of arrival.
    pub bins: Vec<(u64, u64)>,
    /// Stray frames, and frames received at an alternate port, by port of arrival.
    pub elsewhere: Vec<u64>,
    /// Latencies: `(lower end of the histogram's bucket in ns, frames)`, ascending.
    pub latencies: Vec<(u64, u64)>,
    /// Sum of all latencies in ns.
    pub latency_sum_ns: u128,
    /// Lowest latency in ns; `u64::MAX` if no frame was received.
    pub latency_min_ns: u64,
    /// By how much a frame arrived before it was sent, in ns: the clocks of sender and receiver differ at least by that.
    #[serde(default)]
    pub early_ns: u64,
    /// Highest latency in ns.
    pub latency_max_ns: u64,
    /// Variations of latency from frame to frame, if the group's flows measure them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipdv: Option<IpdvReport>,
}

/// How much latency varied between consecutive frames of a flow, as counted by one lane.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IpdvReport {
    /// Decreases: `(lower end of the histogram's bucket in ns, pairs)`, ascending by amount.
    pub falls: Vec<(u64, u64)>,
    /// Increases, and pairs with equal latency, in the same form as the decreases.
    pub rises: Vec<(u64, u64)>,
    /// The smallest and the largest variation in ns; `None` without a pair.
    pub range: Option<(i64, i64)>,
}

/// Counted arrivals at the queues of one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortArrivals {
    /// Distinct frames.
    pub frames: u64,
    /// Arrival of the first frame, in ns on the clock of the ports.
    pub first_ns: u64,
    /// Arrival of the last frame.
    pub last_ns: u64,
}

impl PortArrivals {
    /// Adds arrivals at other queues.
    pub(crate) fn add(&mut self, other: &PortArrivals) {
        if other.frames == 0 {
            return;
        }
        self.first_ns = if self.frames == 0 { other.first_ns } else { self.first_ns.min(other.first_ns) };
        self.last_ns = self.last_ns.max(other.last_ns);
        self.frames += other.frames;
    }

    /// Returns the time that these frames represent, in ns. n frames span n - 1 intervals, so one mean interval is
    /// added. Otherwise the rate would be too high.
    pub(crate) fn ns(&self) -> u64 {
        let span = u128::from(self.last_ns.saturating_sub(self.first_ns));
        match u128::from(self.frames) {
            0 | 1 => 0,
            n => u64::try_from(span * n / (n - 1)).unwrap_or(u64::MAX),
        }
    }
}

/// Frames of a flow received by a lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowReport {
    /// The flow.
    pub flow: usize,
    /// The flow's group.
    pub group: usize,
    /// Port to which the flow is sent.
    pub to: PortIndex,
    /// Distinct frames.
    pub received: u64,
    /// Copies after the first.
    pub duplicated: u64,
    /// Frames that are RFC 4737 type-P-reordered.
    pub reordered: u64,
    /// Frames that are RFC 4737 n-reordered with n = 3.
    pub reordered_3: u64,
    /// Frames in sequence, as the 2001 core router test counts them.
    pub in_sequence: u64,
    /// Largest reordering extent of RFC 4737.
    pub max_extent: u64,
    /// Highest sequence number plus one.
    pub next_expected: u64,
    /// Missing sequence numbers below `next_expected`, ascending. If the flow is counted by destination, this contains
    /// all of them within the receiver's window; otherwise the highest ones, more than the known refusals.
    pub missing: Vec<Range<u64>>,
    /// Lost frames below `next_expected`, within the receiver's window; empty if `arrived` is `Some`.
    #[serde(default)]
    pub losses: LossRuns,
    /// True if the receiver's window covers every frame.
    pub tells_all: bool,
    /// True if the flow's frames arrived at several queues, so that their order is unknown.
    pub spread: bool,
    /// Frames that have arrived. `Some` if other lanes may receive the flow too; `missing` is then empty.
    pub arrived: Option<Arrived>,
    /// Frames that arrived in a different encapsulation, if there are any and other lanes may receive the flow too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviating: Option<DeviatingReport>,
    /// Distinct frames that arrived at an alternate port.
    pub elsewhere: u64,
    /// True if the flow's frames may arrive at an alternate port.
    pub has_alternate: bool,
    /// Distinct frames by place in the order of destinations, if the flow is counted by destination.
    pub by_place: Option<Vec<u32>>,
}

/// Frames of a flow that a lane received in an unexpected encapsulation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviatingReport {
    /// Frames that have left the window and never arrived as expected, in the order of
    /// [`drophammer_model::traffic::Deviation::ALL`].
    pub frames: Vec<u64>,
    /// All other deviating arrivals.
    pub copies: u64,
    /// Frames in the window that first arrived with a deviation, with the index of that deviation. Each frame is listed
    /// once.
    pub first: Vec<(usize, Arrived)>,
}

/// An event as performed by a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventReport {
    /// Start, in ns after the start of the trial.
    pub from_ns: u64,
    /// End, in ns after the start of the trial.
    pub to_ns: u64,
    /// True if the event concerned a port of this lane.
    pub own: bool,
}

/// Frames that the tester's own rings refused, by flow, ascending. They used sequence numbers, but never left. A host whose
/// lanes receive flows of other hosts needs the refusals of these before it reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals(BTreeMap<u32, Vec<Range<u64>>>);

impl Refusals {
    /// True if the frames of each flow ascend, and none has a number that no trial reaches.
    pub fn is_sound(&self) -> bool {
        let most = crate::far::check::MOST;
        let ranges = |ranges: &Vec<Range<u64>>| {
            ranges.iter().all(|range| range.start <= range.end && range.end <= most)
                && ranges.is_sorted_by(|a, b| a.end <= b.start)
        };
        self.0.values().all(ranges)
    }

    /// Adds the refusals of another host.
    pub fn join(&mut self, other: Refusals) {
        self.0.extend(other.0);
    }
}

/// Maximum number of ranges of missing frames that a lane reports.
pub(crate) const MISSING: usize = 1 << 20;

impl Plan {
    /// Returns the properties of the trial, known to all lanes.
    pub(crate) fn trial(&self) -> Trial {
        Trial {
            groups: self.groups.clone(),
            background: self.background.clone(),
            ports: self.layout.ports(),
            maximum: self.maximum,
            events: self.events.iter().map(|e| e.label.clone()).collect(),
            destinations: self.destinations.clone(),
        }
    }

    /// Returns the frames that the lanes' own rings refused.
    pub(crate) fn refusals(&self) -> Refusals {
        let senders = self.parts.iter().flat_map(|part| part.generators.iter().map(PortGenerator::report));
        let senders: Vec<SenderReport> = senders.collect();
        Refusals(refusals_by_flow(senders.iter()))
    }

    /// Returns the report of each lane; `lanes` are their states, and `elsewhere` the refusals on other hosts.
    pub(crate) fn reports(
        &mut self,
        lanes: &[&LaneState],
        clock_step_ns: i64,
        elsewhere: &Refusals,
    ) -> Vec<LaneReport> {
        self.parts.iter_mut().for_each(|p| p.analyzer.settle());
        let trial = self.trial();
        let senders: Vec<Vec<SenderReport>> =
            self.parts.iter().map(|part| part.generators.iter().map(PortGenerator::report).collect()).collect();
        let of_lanes = || Distance::of(senders.iter().flatten());
        let distance = self.distance.clone().unwrap_or_else(of_lanes);
        let mut refused = refusals_by_flow(senders.iter().flatten());
        // One host sends a flow, so these are other flows.
        elsewhere.0.iter().for_each(|(flow, ranges)| _ = refused.entry(*flow).or_insert_with(|| ranges.clone()));
        let report =
            |(number, ((part, lane), senders)): (usize, ((&crate::plan::Part, &&LaneState), Vec<SenderReport>))| {
                LaneReport {
                    trial: trial.clone(),
                    senders,
                    groups: part.group_reports(&self.layout),
                    flows: part.flow_reports(&self.layout, &distance, &refused),
                    misdelivered: part.analyzer.misdelivered(),
                    misdelivered_elsewhere: part.analyzer.misdelivered_elsewhere(),
                    arrivals: part.analyzer.arrivals(),
                    stale: part.analyzer.stale(),
                    other: lane.watch.other,
                    receive_drops: lane.receive_drops.iter().map(|(_, frames)| frames).sum(),
                    max_gap_ns: lane.watch.max_gap_ns,
                    long_gaps_ns: lane.watch.long_gaps_ns,
                    longest_gaps: lane.watch.longest_gaps(lane.start),
                    silences: lane.watch.silences(lane.start),
                    clock_step_ns: if number == 0 { clock_step_ns } else { 0 },
                    events: lane.events.clone(),
                }
            };
        self.parts.iter().zip(lanes).zip(senders).enumerate().map(report).collect()
    }
}

impl crate::plan::Part {
    fn group_reports(&self, layout: &Layout) -> Vec<GroupReport> {
        let deviations = self.analyzer.deviations(|port| !layout.is_split(port));
        self.analyzer.groups().iter().zip(&deviations).map(|(group, deviations)| group.report(deviations)).collect()
    }

    fn flow_reports(
        &self,
        layout: &Layout,
        distance: &Distance,
        refused: &BTreeMap<u32, Vec<Range<u64>>>,
    ) -> Vec<FlowReport> {
        let analyzer = &self.analyzer;
        let count = analyzer.flows().count().max(1);
        let report =
            |(place, ((flow, group, state), to)): (usize, ((usize, usize, &crate::flow_state::FlowState), usize))| {
                let extras = analyzer.extras().get(place);
                let tally = extras.and_then(FlowExtras::by_destination);
                let arrived = layout.is_split(to).then(|| state.arrived());
                let never_left = refused.get(&(flow as u32)).map(Vec::as_slice).unwrap_or_default();
                let losses = LossRuns { apart: distance.apart(flow), runs: Vec::new() };
                let mut losses = Collector::new(losses, count, never_left);
                if arrived.is_none() {
                    state.each_missing(|first, missing| losses.word(first, missing));
                }
                // Refused frames cannot fill all these ranges, so a lost frame is reported too.
                let most = if tally.is_some() { usize::MAX } else { (MISSING / count).max(64) + never_left.len() };
                FlowReport {
                    flow,
                    group,
                    to,
                    received: state.received(),
                    duplicated: state.duplicated(),
                    reordered: state.reordered(),
                    reordered_3: state.reordered_3(),
                    in_sequence: state.in_sequence(),
                    max_extent: state.max_extent(),
                    next_expected: state.next_expected(),
                    missing: if arrived.is_some() { Vec::new() } else { state.gaps(most) },
                    losses: losses.found(),
                    tells_all: state.tells_all(),
                    spread: analyzer.is_spread(place),
                    deviating: if arrived.is_some() { analyzer.deviating(place) } else { None },
                    arrived,
                    elsewhere: extras.map_or(0, |f| f.elsewhere),
                    has_alternate: extras.is_some_and(FlowExtras::has_alternate),
                    by_place: tally.map(<[u32]>::to_vec),
                }
            };
        analyzer.flows().zip(analyzer.to()).enumerate().map(report).collect()
    }
}

impl SenderReport {
    /// Returns the departure errors.
    pub(crate) fn lateness(&self) -> LatenessBuckets {
        let mut buckets: LatenessBuckets = [0; 40];
        buckets.iter_mut().zip(&self.lateness).for_each(|(bucket, n)| *bucket = *n);
        buckets
    }

    /// Returns the nominal departures of `flow`; `None` if it does not leave here.
    pub(crate) fn departures(&self, flow: usize) -> Option<Departures<'_>> {
        let places = places_of(&self.round, flow);
        let whole = Stretch { places, round: self.round.len() as u64, ..Stretch::default() };
        if whole.places.is_empty() {
            return None;
        }
        let number = self.flows.iter().position(|(f, _)| *f as usize == flow)?;
        let stretch = |report: &StretchReport| {
            let round = only(&self.round, &report.keep);
            let schedule = self.schedule.only(&report.keep, u64::MAX);
            let places = places_of(&round, flow);
            let first = schedule.before_place(report.from);
            let (sequence, sent, skipped) = (report.sequences[number], report.sent, report.skipped);
            Stretch { places, round: round.len() as u64, schedule: Some(schedule), first, sequence, sent, skipped }
        };
        // Only stretches in which the flow sends.
        let stretches: Vec<_> = self.stretches.iter().map(stretch).filter(|s| !s.places.is_empty()).collect();
        Some(Departures { sender: self, stretches: if self.stretches.is_empty() { vec![whole] } else { stretches } })
    }
}

/// Returns the places of `flow` in a round.
fn places_of(round: &[u32], flow: usize) -> Vec<u64> {
    let own = round.iter().enumerate().filter(|(_, f)| **f as usize == flow);
    own.map(|(place, _)| place as u64).collect()
}

/// A stretch of the schedule, for one flow that sends in it.
#[derive(Default)]
struct Stretch {
    /// Places of the flow in a round, at least one.
    places: Vec<u64>,
    /// Number of frames in a round.
    round: u64,
    /// The stretch's schedule, if it differs from the sender's.
    schedule: Option<Schedule>,
    /// Index of the stretch's first frame in the stretch's schedule.
    first: u64,
    /// First sequence number of the flow.
    sequence: u64,
    /// Number of frames sent and skipped before the stretch.
    sent: u64,
    skipped: u64,
}

/// Scheduled departure of a flow's frames, computed from their sequence numbers.
pub(crate) struct Departures<'a> {
    sender: &'a SenderReport,
    stretches: Vec<Stretch>,
}

impl Departures<'_> {
    /// Returns the departure of the frame with `sequence`, in ns after the start.
    pub(crate) fn of(&self, sequence: u64) -> u64 {
        let SenderReport { skips, schedule, .. } = self.sender;
        let last = self.stretches.partition_point(|stretch| stretch.sequence <= sequence);
        let Some(Stretch { places, round, schedule: own, first, sequence: from, sent, skipped }) =
            last.checked_sub(1).map(|last| &self.stretches[last])
        else {
            return 0;
        };
        let schedule = own.as_ref().unwrap_or(schedule);
        let per_round = places.len() as u64;
        // Number of frames of the flow before the stretch, and index of the requested frame.
        let before = first / round * per_round + places.partition_point(|place| *place < first % round) as u64;
        let number = before + sequence - from;
        let index = number / per_round * round + places[(number % per_round) as usize];
        let sent = sent + index - first;
        let skips_before = skips.partition_point(|(sent_before, _)| *sent_before <= sent);
        let skipped = skips_before.checked_sub(1).map_or(0, |last| skips[last].1).saturating_sub(*skipped);
        schedule.departure((index + skipped).min(schedule.total().saturating_sub(1)))
    }
}

impl FlowReport {
    /// Returns the reported sequence numbers below `sent` that have not arrived and are not in `never_left`. Both lists ascend.
    pub(crate) fn missing(&self, sent: u64, never_left: &[Range<u64>]) -> impl DoubleEndedIterator<Item = u64> {
        self.missing_ranges(sent, never_left).flatten()
    }

    /// Returns the numbers of [`FlowReport::missing`] as ascending ranges, of which some may be empty.
    pub(crate) fn missing_ranges(
        &self,
        sent: u64,
        never_left: &[Range<u64>],
    ) -> impl DoubleEndedIterator<Item = Range<u64>> {
        let gaps = self.missing.iter().cloned().chain(std::iter::once(self.next_expected..sent));
        gaps.flat_map(move |gap| without(gap.start..gap.end.min(sent), never_left))
    }
}

/// Returns the parts of `range` outside `never_left`. Both ascend; parts may be empty.
pub(crate) fn without(range: Range<u64>, never_left: &[Range<u64>]) -> impl DoubleEndedIterator<Item = Range<u64>> {
    let first = never_left.partition_point(|gone| gone.end <= range.start);
    let end = never_left.partition_point(|gone| gone.start < range.end).max(first);
    let within = &never_left[first..end];
    (0..=within.len()).map(move |place| {
        let from = place.checked_sub(1).map_or(range.start, |before| within[before].end);
        from..within.get(place).map_or(range.end, |gone| gone.start)
    })
}

/// Returns the stored sequence numbers of each flow, ascending.
pub(crate) fn refusals_by_flow<'a>(senders: impl Iterator<Item = &'a SenderReport>) -> BTreeMap<u32, Vec<Range<u64>>> {
    let mut by_flow: BTreeMap<u32, Vec<Range<u64>>> = BTreeMap::new();
    for (flow, first, frames) in senders.flat_map(|sender| &sender.own_refusals) {
        by_flow.entry(*flow).or_default().push(*first..first + frames);
    }
    by_flow
}

impl SenderReport {
    /// Returns the number of frames of `flow` that the tester's own ring refused.
    pub(crate) fn refused_of(&self, flow: usize) -> u64 {
        self.refused.iter().find(|(of, _)| *of as usize == flow).map_or(0, |(_, frames)| *frames)
    }

    /// Returns the sequence numbers of these frames, ascending. `None` if not all are stored; it is then unknown which
    /// of the missing frames were lost.
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
