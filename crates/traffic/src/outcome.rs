//! Merges the reports of lanes into the result of a trial.
//!
//! # Reports
//!
//! A `LaneReport` contains everything that a lane has counted, as serde data. [`merge`] is a pure function from the
//! reports of all lanes to a `TrialResult`.

use crate::analyzer::extras::summary as ipdv_summary;
use crate::analyzer::{Deviations, count};
use crate::flow_state::Arrived;
use crate::generator::LatenessBuckets;
use crate::histogram::Latencies;
use crate::lane_report::{
    EventReport, FlowReport, GroupReport, GroupSentReport, LaneReport, MISSING, PortArrivals, SenderReport,
    StoppedReport,
};
use crate::losses::{Collector, Distance, LossRuns};
use crate::permutation::Permutation;
use drophammer_model::latency::LatencySummary;
use drophammer_model::traffic::Deviation;
use drophammer_model::trial::{
    Bin, DestinationCounts, EventRecord, GroupCounts, Health, Held, LossEpisode, Losses, MOST_EPISODES, Misdelivered,
    StoppedFlow, TrialResult, Validity, WayCounts,
};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// Merges the counts of all lanes of a trial, on whatever machines they ran. Times are taken from the slowest lane. The
/// caller fills in trial number, elapsed time, validity and DUT load.
///
/// # Panics
/// If there is no report.
pub fn merge(lanes: &[LaneReport]) -> TrialResult {
    let trial = &lanes.first().expect("a trial has a lane").trial;
    let senders: Vec<&SenderReport> = lanes.iter().flat_map(|lane| &lane.senders).collect();
    let mut sent: Vec<Vec<&GroupSentReport>> = vec![Vec::new(); trial.groups.len()];
    senders.iter().flat_map(|sender| &sender.groups).for_each(|group| sent[group.group].push(group));
    let numbered = trial.groups.iter().zip(&sent).enumerate();
    let mut groups: Vec<GroupCounts> =
        numbered.map(|(index, (name, sent))| group_counts(lanes, sent, index, name)).collect();
    add_stopped(&senders, &mut groups);
    let by_flow = by_flow(&senders);
    let distance = Distance::of(senders.iter().copied());
    let (flows, copies_apart) = merged_flows(lanes, &distance, &by_flow);
    let mut times_unknown = vec![false; groups.len()];
    for flow in &flows {
        let sender = by_flow.get(flow.flow).copied().flatten();
        let (sent, refused) = sender.map_or((0, 0), |(sender, sent)| (sent, sender.refused_of(flow.flow)));
        let all_arrived = flow.received + refused >= sent;
        let counts = &mut groups[flow.group];
        counts.received += flow.received;
        counts.duplicated += flow.duplicated;
        if flow.spread {
            counts.order_unknown += flow.received;
        } else {
            counts.reordered += flow.reordered;
            counts.reordered_3 += flow.reordered_3;
            // A frame that never left has used a sequence number. If nothing else is missing, all gaps are such frames.
            let in_sequence = refused > 0 && all_arrived && flow.reordered == 0;
            counts.in_sequence += if in_sequence { flow.received } else { flow.in_sequence };
            counts.max_reordering_extent = counts.max_reordering_extent.max(flow.max_extent);
        }
        let Some((sender, _)) = sender.filter(|_| !all_arrived) else { continue };
        let Some(never_left) = sender.never_left(flow.flow) else {
            times_unknown[flow.group] = true;
            continue;
        };
        if let Some(missing) = flow.missing(sent, &never_left).next_back() {
            let departure = sender.departures(flow.flow).map(|d| d.of(missing));
            counts.last_loss_ns = counts.last_loss_ns.max(departure);
        }
    }
    let unknown = groups.iter_mut().zip(times_unknown).filter(|(_, unknown)| *unknown);
    unknown.for_each(|(counts, _)| counts.last_loss_ns = None);
    add_deviations(lanes, &mut groups);
    arrived_at(lanes, &flows, &mut groups);
    let tested: Vec<Cow<'_, FlowReport>> =
        flows.into_iter().filter(|flow| !trial.background.contains(&flow.group)).collect();
    let ways = ways(&tested, &by_flow);
    let losses = loss_episodes(&tested, &by_flow, &distance);
    let destinations = destination_counts(lanes, &by_flow);
    for counts in &mut groups {
        counts.lost = counts.offered - counts.received;
    }
    let numbered = groups.into_iter().enumerate();
    let (background, groups): (Vec<_>, Vec<_>) = numbered.partition(|(group, _)| trial.background.contains(group));
    let counts = |groups: Vec<(usize, GroupCounts)>| -> Vec<GroupCounts> {
        groups.into_iter().map(|(_, counts)| counts).collect()
    };
    let unsent = if trial.maximum { 0 } else { senders.iter().map(|s| s.unsent).sum() };
    let sending_ns = senders.iter().map(|s| s.sending_ns).max().unwrap_or(0);
    let worst = |time: fn(&LaneReport) -> u64| lanes.iter().map(time).max().unwrap_or(0);
    let sum = |count: fn(&LaneReport) -> u64| lanes.iter().map(count).sum();
    let lateness = lateness(&senders);
    TrialResult {
        trial: 0,
        sending_s: sending_ns as f64 / 1e9,
        receiving_s: receiving_ns(lanes) as f64 / 1e9,
        elapsed_s: 0.0,
        groups: counts(groups),
        background: counts(background),
        health: Health {
            unsent,
            refused_by_tester: senders.iter().flat_map(|s| &s.refused).map(|(_, frames)| frames).sum(),
            receive_drops: sum(|lane| lane.receive_drops),
            max_gap_ns: worst(|lane| lane.max_gap_ns),
            gaps_over_1ms_ns: worst(|lane| lane.long_gaps_ns),
            gap_times: gap_times(lanes),
            // A lane without arrivals was silent the whole time.
            silences: lanes.iter().filter_map(|lane| lane.silences.clone()).reduce(|a, b| a.and(&b)),
            departure_error: departure_error(&lateness),
            departure_errors: departure_errors(&lateness),
            clock_step_ns: lanes.iter().map(|lane| lane.clock_step_ns).max_by_key(|step| step.abs()).unwrap_or(0),
            tester_stolen_ns: None,
            tester_waited_ns: None,
            dut_used_ns: None,
            tester_on_dut_ns: None,
            dut_processor: None,
            stale: sum(|lane| lane.stale),
            other_sent: None,
            other_received: sum(|lane| lane.other),
            kernel_generators: senders.iter().filter(|s| s.in_kernel).count() as u32,
            copies_apart,
            between_hosts: None,
        },
        validity: Validity::Valid,
        dut_cpu: None,
        dut_counters: BTreeMap::new(),
        senders: senders.iter().map(|s| s.port).collect::<BTreeSet<_>>().len() as u32,
        events: events(lanes),
        ways,
        destination_summaries: destinations.iter().map(|d| d.summary()).collect(),
        destinations,
        losses,
        misdelivered: misdelivered(lanes),
        misdelivered_elsewhere: sum(|lane| lane.misdelivered_elsewhere),
    }
}

/// Sums the frames in another place than their flow over the lanes.
fn misdelivered(lanes: &[LaneReport]) -> Vec<Misdelivered> {
    let mut sums: BTreeMap<Misdelivered, u64> = BTreeMap::new();
    for one in lanes.iter().flat_map(|lane| &lane.misdelivered) {
        *sums.entry(Misdelivered { frames: 0, ..*one }).or_default() += one.frames;
    }
    sums.into_iter().map(|(place, frames)| Misdelivered { frames, ..place }).collect()
}

/// Counts the frames from each port to each other port, in order; empty unless some port sends to several ports.
fn ways(flows: &[Cow<'_, FlowReport>], by_flow: &[Option<Sender<'_>>]) -> Vec<WayCounts> {
    let mut ways: BTreeMap<(usize, usize), (u64, u64)> = BTreeMap::new();
    for flow in flows {
        let Some((sender, sent)) = by_flow.get(flow.flow).copied().flatten() else { continue };
        let offered = sent - sender.refused_of(flow.flow);
        let counts = ways.entry((sender.port, flow.to)).or_default();
        *counts = (counts.0 + offered, counts.1 + flow.received);
    }
    let mut from: Vec<usize> = ways.keys().map(|(from, _)| *from).collect();
    from.dedup();
    if from.len() == ways.len() {
        return Vec::new();
    }
    let way = |((from, to), (offered, received))| WayCounts { from, to, offered, received };
    ways.into_iter().map(way).collect()
}

/// Returns the longest gaps of all lanes, in order of time.
fn gap_times(lanes: &[LaneReport]) -> Vec<Held> {
    let mut gaps: Vec<Held> = lanes.iter().flat_map(|lane| lane.longest_gaps.iter().copied()).collect();
    gaps.sort_by_key(|gap| gap.from_ns);
    gaps
}

/// Returns the time from the first to the last arrival plus one mean interval, in ns, at the port where it is longest.
fn receiving_ns(lanes: &[LaneReport]) -> u64 {
    let of_port = |port: usize| {
        let mut all = PortArrivals::default();
        lanes.iter().filter_map(|lane| lane.arrivals.get(port)).for_each(|arrivals| all.add(arrivals));
        all.ns()
    };
    (0..lanes[0].trial.ports).map(of_port).max().unwrap_or(0)
}

/// Returns the events with the times of the last lane that each event concerned, or of the last of all lanes if it concerned none.
fn events(lanes: &[LaneReport]) -> Vec<EventRecord> {
    let all_told = lanes.iter().map(|lane| lane.events.len()).min().unwrap_or(0);
    let record = |n: usize| {
        let last: EventReport =
            lanes.iter().map(|lane| lane.events[n]).max_by_key(|event| (event.own, event.from_ns))?;
        let (at_s, took_s) = (last.from_ns as f64 / 1e9, (last.to_ns - last.from_ns) as f64 / 1e9);
        Some(EventRecord { at_s, took_s, label: lanes[0].trial.events[n].clone() })
    };
    (0..all_told).filter_map(record).collect()
}

/// Fills in the ports of arrival for groups with alternate paths or strays.
fn arrived_at(lanes: &[LaneReport], flows: &[Cow<'_, FlowReport>], groups: &mut [GroupCounts]) {
    let mut arrived = vec![vec![0u64; lanes[0].trial.ports]; groups.len()];
    let mut asked = vec![false; groups.len()];
    for lane in lanes {
        for (group, received) in lane.groups.iter().enumerate() {
            asked[group] |= received.elsewhere.iter().any(|n| *n > 0);
            arrived[group].iter_mut().zip(&received.elsewhere).for_each(|(sum, n)| *sum += n);
        }
    }
    for flow in flows {
        asked[flow.group] |= flow.has_alternate;
        arrived[flow.group][flow.to] += flow.received - flow.elsewhere;
    }
    for ((counts, arrived), asked) in groups.iter_mut().zip(arrived).zip(asked) {
        if asked {
            counts.arrived_at = arrived;
        }
    }
}

/// The sender of a flow, and the number of frames that it has sent of this flow.
type Sender<'a> = (&'a SenderReport, u64);

/// Returns the sender of each flow.
fn by_flow<'a>(senders: &[&'a SenderReport]) -> Vec<Option<Sender<'a>>> {
    let mut by_flow = Vec::new();
    for sender in senders {
        for (flow, sent) in &sender.flows {
            let flow = *flow as usize;
            by_flow.resize(by_flow.len().max(flow + 1), None);
            by_flow[flow] = Some((*sender, *sent));
        }
    }
    by_flow
}

fn group_counts(lanes: &[LaneReport], sent: &[&GroupSentReport], index: usize, name: &str) -> GroupCounts {
    let sent = sent.iter().copied();
    let received = lanes.iter().map(|lane| &lane.groups[index]);
    let sum_sent = |count: fn(&GroupSentReport) -> u64| sent.clone().map(count).sum::<u64>();
    let sum = |count: fn(&GroupReport) -> u64| received.clone().map(count).sum::<u64>();
    let bins = (0..lanes[0].groups[index].bins.len()).map(|b| Bin {
        offered: sent.clone().map(|g| g.bins.get(b).copied().unwrap_or(0)).sum(),
        delivered: received.clone().map(|g| g.bins[b].0).sum(),
        arrived: received.clone().map(|g| g.bins[b].1).sum(),
    });
    let mut bins: Vec<Bin> = bins.collect();
    // Senders have bins up to the end of the planned drain. Later bins are part of the trial only if frames arrived in them.
    let planned = sent.clone().map(|g| g.bins.len()).max().unwrap_or(bins.len());
    let arrived = bins.iter().rposition(|bin| bin.arrived > 0).map_or(0, |last| last + 1);
    bins.truncate(planned.max(arrived));
    GroupCounts {
        group: name.to_owned(),
        intended: sum_sent(|g| g.intended),
        offered: sum_sent(|g| g.offered),
        refused: sum_sent(|g| g.refused),
        corrupted: sum(|g| g.corrupted),
        deviations: deviations(received.clone()),
        deviating_copies: sum(|g| g.deviating_copies),
        stray: sum(|g| g.stray),
        late: sum(|g| g.late),
        received_bytes: sum(|g| g.bytes),
        latency: latency(received.clone()),
        ipdv: ipdv_summary(received.clone().filter_map(|group| group.ipdv.as_ref())),
        bins,
        ..GroupCounts::default()
    }
}

/// Adds the flows that did not send all the time to their groups, in order.
fn add_stopped(senders: &[&SenderReport], groups: &mut [GroupCounts]) {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let mut all: Vec<&StoppedReport> = senders.iter().flat_map(|sender| &sender.stopped).collect();
    all.sort_unstable_by_key(|stopped| stopped.flow);
    for stopped in all {
        groups[stopped.group].stopped.push(StoppedFlow {
            flow: stopped.flow as usize,
            stops: stopped.stops,
            stopped_s: seconds(stopped.stopped_ns),
            sending_s: seconds(stopped.end_ns - stopped.stopped_ns),
        });
    }
}

/// Returns the frames that arrived in a different encapsulation, by deviation.
fn deviations<'a>(received: impl Iterator<Item = &'a GroupReport>) -> BTreeMap<Deviation, u64> {
    let mut sum = BTreeMap::new();
    for group in received {
        let counted = Deviation::ALL.iter().zip(&group.deviations).filter(|(_, n)| **n > 0);
        counted.for_each(|(deviation, n)| *sum.entry(*deviation).or_default() += n);
    }
    sum
}

/// Summarizes the latency of a group's frames over all lanes.
fn latency<'a>(received: impl Iterator<Item = &'a GroupReport>) -> LatencySummary {
    let (mut latencies, mut sum, mut min, mut max) = (Latencies::default(), 0, u64::MAX, 0);
    for group in received {
        // The longest one first, which makes room for all others.
        group.latencies.iter().rev().for_each(|(ns, frames)| latencies.record_n(*ns, *frames));
        sum += group.latency_sum_ns;
        min = min.min(group.latency_min_ns);
        max = max.max(group.latency_max_ns);
    }
    latencies.summary(min, max, sum)
}

/// Returns the departure errors of all senders together.
fn lateness(senders: &[&SenderReport]) -> LatenessBuckets {
    let mut buckets: LatenessBuckets = [0; 40];
    for sender in senders {
        buckets.iter_mut().zip(sender.lateness()).for_each(|(sum, n)| *sum += n);
    }
    buckets
}

/// Returns the histogram of departure errors, from the first to the last bucket with a frame.
fn departure_errors(buckets: &LatenessBuckets) -> Vec<(u64, u64)> {
    let last = buckets.iter().rposition(|n| *n > 0).map_or(0, |last| last + 1);
    let first = buckets.iter().position(|n| *n > 0).unwrap_or(0);
    (first..last).map(|b| ((1u64 << b) - 1, buckets[b])).collect()
}

/// Returns percentiles of departure errors, as upper ends of buckets.
fn departure_error(buckets: &LatenessBuckets) -> Vec<(f64, u64)> {
    let total: u64 = buckets.iter().sum();
    if total == 0 {
        return Vec::new();
    }
    [50.0, 99.0, 99.9, 100.0]
        .iter()
        .map(|percentile| {
            let rank = (total as f64 * percentile / 100.0).ceil() as u64;
            let mut seen = 0;
            let bucket = buckets.iter().position(|n| {
                seen += n;
                seen >= rank
            });
            (*percentile, bucket.map_or(0, |b| (1u64 << b) - 1))
        })
        .collect()
}

/// Returns the counts of every flow that is counted by destination.
fn destination_counts(lanes: &[LaneReport], by_flow: &[Option<Sender<'_>>]) -> Vec<DestinationCounts> {
    lanes[0].trial.destinations.iter().map(|(flow, order)| counts_of_flow(lanes, *flow, order, by_flow)).collect()
}

fn counts_of_flow(
    lanes: &[LaneReport],
    flow: usize,
    order: &Permutation,
    by_flow: &[Option<Sender<'_>>],
) -> DestinationCounts {
    let nothing = vec![0u32; order.len() as usize];
    let mut counts =
        DestinationCounts { flow, offered: nothing.clone(), received: nothing, ..DestinationCounts::default() };
    let Some((sender, sent)) = by_flow.get(flow).copied().flatten() else { return counts };
    let (rounds, rest) = ((sent / u64::from(order.len())) as u32, sent % u64::from(order.len()));
    let found = lanes.iter().flat_map(|lane| &lane.flows).find(|f| f.flow == flow);
    let found = found.and_then(|f| Some((f, f.by_place.as_ref()?)));
    for place in 0..order.len() {
        let destination = order.at(place) as usize;
        counts.offered[destination] = rounds + u32::from(u64::from(place) < rest);
        counts.received[destination] = found.map_or(0, |(_, frames)| frames[place as usize]);
    }
    let arrived = found.map_or(0, |(report, _)| report.received);
    let nothing_lost = arrived + sender.refused_of(flow) >= sent;
    let never_left = match sender.never_left(flow) {
        Some(never_left) => never_left,
        None if nothing_lost => {
            // Every frame that left has arrived, whichever frames these were.
            counts.offered.clone_from(&counts.received);
            counts.first_lost_us = vec![DestinationCounts::NEVER; order.len() as usize];
            counts.last_lost_us = counts.first_lost_us.clone();
            return counts;
        }
        // The destinations of some lost frames are unknown. The trial is invalid.
        None => return counts,
    };
    let destination_of = |sequence: u64| order.at((sequence % u64::from(order.len())) as u32) as usize;
    for gone in &never_left {
        let (frames, places) = (gone.end - gone.start, u64::from(order.len()));
        let rounds = (frames / places) as u32;
        if rounds > 0 {
            counts.offered.iter_mut().for_each(|offered| *offered -= rounds);
        }
        let rest = gone.start..gone.start + frames % places;
        rest.for_each(|sequence| counts.offered[destination_of(sequence)] -= 1);
    }
    if let Some((received, _)) = found
        && let Some(departures) = sender.departures(flow)
        && received.tells_all
    {
        counts.first_lost_us = vec![DestinationCounts::NEVER; order.len() as usize];
        counts.last_lost_us = counts.first_lost_us.clone();
        let places = u64::from(order.len());
        // Every destination is in the first round of a range, and in the last. So a long outage costs no more than a short one.
        let ends = received.missing_ranges(sent, &never_left).flat_map(|range| {
            let first = range.start..range.end.min(range.start.saturating_add(places));
            let last = range.end.saturating_sub(places).max(first.end)..range.end;
            first.chain(last)
        });
        for sequence in ends {
            let us = (departures.of(sequence) / 1000).min(u64::from(DestinationCounts::NEVER - 1)) as u32;
            let destination = destination_of(sequence);
            let first = &mut counts.first_lost_us[destination];
            *first = us.min(*first);
            counts.last_lost_us[destination] = us;
        }
    }
    counts
}

/// Adds the deviations of flows to ports with queues on several lanes to the counts of their groups.
fn add_deviations(lanes: &[LaneReport], groups: &mut [GroupCounts]) {
    let mut by_flow: BTreeMap<usize, Vec<&FlowReport>> = BTreeMap::new();
    lanes.iter().flat_map(|lane| &lane.flows).for_each(|flow| by_flow.entry(flow.flow).or_default().push(flow));
    for reports in by_flow.values().filter(|reports| reports.iter().any(|report| report.deviating.is_some())) {
        let all = deviations_of_flow(reports);
        let counts = &mut groups[reports[0].group];
        counts.deviating_copies += all.copies;
        let counted = Deviation::ALL.iter().zip(all.frames).filter(|(_, frames)| *frames > 0);
        counted.for_each(|(deviation, frames)| *counts.deviations.entry(*deviation).or_default() += frames);
    }
}

/// Returns the deviations of one flow. If a frame arrived at several lanes, the first report decides, because it is
/// unknown which copy arrived first. For frames that have left the window of a lane, arrivals at other lanes are
/// unknown.
fn deviations_of_flow(reports: &[&FlowReport]) -> Deviations {
    let mut all = Deviations::default();
    // One bit for each frame that is already counted.
    let mut counted: BTreeMap<u64, u64> = BTreeMap::new();
    for deviating in reports.iter().filter_map(|report| report.deviating.as_ref()) {
        all.copies += deviating.copies;
        all.frames.iter_mut().zip(&deviating.frames).for_each(|(sum, frames)| *sum += frames);
        for (kind, window) in &deviating.first {
            for (word, first) in window.bits.iter().zip((window.from..).step_by(64)).filter(|(word, _)| **word != 0) {
                let known = counted.entry(first).or_default();
                let received = reports.iter().fold(*known, |bits, report| bits | received_from(report, first));
                for bit in (0..64).map(|bit| 1u64 << bit).filter(|bit| word & bit != 0) {
                    count(&mut all, *kind, received & bit != 0);
                }
                *known |= word;
            }
        }
    }
    all
}

/// Returns one bit for each of the 64 frames from `first` (a multiple of 64) on. A bit is set if the lane has received
/// the frame, or the frame has left the window.
fn received_from(report: &FlowReport, first: u64) -> u64 {
    let Some(Arrived { from, bits }) = &report.arrived else { return 0 };
    match first.checked_sub(*from) {
        None => u64::MAX,
        Some(above) => bits.get((above / 64) as usize).copied().unwrap_or(0),
    }
}

/// Returns one report per flow, in order, and the number of frames with copies at several lanes.
fn merged_flows<'a>(
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
        let (report, copies) = merged_flow(&reports, Collector::new(losses, count, &never_left));
        copies_apart += copies;
        report
    });
    (flows.collect(), copies_apart)
}

/// Merges the reports about one flow. There must be at least one.
fn merged_flow<'a>(reports: &[&'a FlowReport], mut losses: Collector<'_>) -> (Cow<'a, FlowReport>, u64) {
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
    /// Adds the numbers from `first` on whose bit in `missing` is set.
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

/// Losses of one flow that are close together.
struct Run {
    from_ns: u64,
    to_ns: u64,
    lost: u64,
    flow: usize,
    group: usize,
}

/// Returns episodes by the scheduled departures of lost frames, without flows whose times are unknown.
fn loss_episodes(flows: &[Cow<'_, FlowReport>], by_flow: &[Option<Sender<'_>>], distance: &Distance) -> Losses {
    let (mut runs, mut within_ns) = (Vec::new(), distance.within_ns);
    for flow in flows {
        let Some((sender, sent)) = by_flow.get(flow.flow).copied().flatten() else { continue };
        if flow.received + sender.refused_of(flow.flow) >= sent {
            continue;
        }
        let Some(departures) = sender.departures(flow.flow) else { continue };
        let Some(never_left) = sender.never_left(flow.flow) else { continue };
        let apart = distance.apart(flow.flow);
        let mut found = flow.losses.clone();
        found.apart = found.apart.max(apart);
        let mut collector = Collector::new(found, flows.len(), &never_left);
        collector.range(flow.next_expected..sent);
        let found = collector.found();
        if found.apart > apart {
            within_ns = within_ns.max(distance.ns(flow.flow, found.apart));
        }
        runs.extend(found.runs.iter().map(|run| Run {
            from_ns: departures.of(run.first),
            to_ns: departures.of(run.last),
            lost: run.lost,
            flow: flow.flow,
            group: flow.group,
        }));
    }
    if runs.is_empty() {
        return Losses::default();
    }
    runs.sort_unstable_by_key(|run| (run.from_ns, run.flow));
    // Time without a loss before each run.
    let mut end = runs[0].to_ns;
    let mut quiet: Vec<u64> = Vec::new();
    for run in &runs {
        quiet.push(run.from_ns.saturating_sub(end));
        end = end.max(run.to_ns);
    }
    while quiet.iter().filter(|ns| **ns > within_ns).count() >= MOST_EPISODES {
        within_ns *= 2;
    }
    let mut episodes: Vec<LossEpisode> = Vec::new();
    let mut lossy: BTreeSet<usize> = BTreeSet::new();
    for (run, quiet) in runs.iter().zip(quiet) {
        if quiet > within_ns || episodes.is_empty() {
            lossy.clear();
            episodes.push(LossEpisode { from_ns: run.from_ns, to_ns: run.to_ns, ..LossEpisode::default() });
        }
        let Some(episode) = episodes.last_mut() else { continue };
        episode.to_ns = episode.to_ns.max(run.to_ns);
        episode.lost += run.lost;
        episode.flows += u64::from(lossy.insert(run.flow));
        if let Err(place) = episode.groups.binary_search(&run.group) {
            episode.groups.insert(place, run.group);
        }
    }
    Losses { within_ns, episodes }
}

#[cfg(test)]
mod tests;
