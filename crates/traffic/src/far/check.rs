//! Checks reports that came from other hosts, before they are merged.

use crate::counts::{Arrivals, LaneCounts, PlaceCounts};
use crate::lane_report::{FlowReport, GroupReport, LaneReport, SenderReport};
use crate::plan::{MAX_BINS, MAX_CYCLE, Plan};
use drophammer_model::traffic::Deviation;
use std::collections::BTreeSet;

/// Largest count that a report may contain, so that sums of all lanes do not overflow.
pub(crate) const MOST: u64 = 1 << 48;
/// Largest time in ns.
const LATEST: u64 = 1 << 60;

/// Checks that these reports belong to `plan`, and that no index and no sum of [`crate::merge`] is out of range.
///
/// # Errors
/// What does not fit, for a message.
pub(super) fn check(plan: &Plan, reports: &[LaneReport]) -> Result<(), String> {
    let trial = plan.trial();
    let first = reports.first().ok_or("there is no report")?;
    let (mut sent, mut received) = (BTreeSet::new(), BTreeSet::new());
    let mut balance = vec![(0u64, 0u64); trial.groups.len()];
    for report in reports {
        require(report.trial == trial, "a report of another trial")?;
        require(report.groups.len() == trial.groups.len(), "other groups")?;
        require(report.arrivals.len() == trial.ports, "other ports")?;
        let most = [report.stale, report.other, report.receive_drops, report.misdelivered_elsewhere];
        require(most.iter().all(|n| *n <= MOST), "a count is too large")?;
        let times = [report.max_gap_ns, report.long_gaps_ns];
        require(times.iter().all(|ns| *ns <= LATEST), "a time is too large")?;
        let arrivals = report.arrivals.iter();
        require(arrivals.clone().all(|a| a.frames <= MOST && a.first_ns.max(a.last_ns) <= LATEST), "arrivals")?;
        require(report.misdelivered.iter().all(|m| m.frames <= MOST), "misdelivered frames")?;
        for (group, of_first) in report.groups.iter().zip(&first.groups) {
            require(group.bins.len() == of_first.bins.len(), "other time bins")?;
            check_group(group, trial.ports)?;
        }
        for sender in &report.senders {
            check_sender(plan, sender)?;
            require(sender.flows.iter().all(|(flow, _)| sent.insert(*flow)), "a flow is sent twice")?;
            sender.groups.iter().for_each(|group| balance[group.group].0 += group.offered);
        }
        let mut own = BTreeSet::new();
        for flow in &report.flows {
            check_flow(plan, flow)?;
            require(own.insert(flow.flow), "a flow is reported twice")?;
            require(received.insert(flow.flow) || flow.arrived.is_some(), "two lanes received a flow alone")?;
            balance[flow.group].1 += flow.received;
        }
    }
    require(sent.len() == plan.flows.len(), "nobody reports a flow as sent")?;
    // Copies of a frame at two lanes are subtracted only by the merge.
    require(balance.iter().all(|(sent, received)| received <= sent), "more frames arrived than were sent")
}

/// True if the counts of a lane in a running trial belong to `plan`, and their sums do not overflow.
pub(super) fn is_sound(plan: &Plan, lane: &LaneCounts) -> bool {
    let flows = plan.flows.len();
    let received = |r: &crate::Received| [r.frames, r.missing, r.duplicated, r.reordered, r.order_unknown];
    let group = |g: &crate::GroupCounts| [g.refused, g.corrupted, g.stray, g.bytes];
    lane.at.0 <= LATEST
        && lane.groups.len() == plan.groups.len()
        && lane.ports.len() == plan.layout.ports()
        && lane.ports.iter().all(|(sent, arrived)| *sent.max(arrived) <= MOST)
        && lane.arrived.len() == lane.ports.len()
        && lane.arrived.iter().all(|(frames, bytes)| *frames.max(bytes) <= MOST)
        && lane.sent.iter().all(|(flow, group, n)| (*flow as usize) < flows && *group < plan.groups.len() && *n <= MOST)
        && lane.departures.iter().all(|(late, all)| *late.max(all) <= MOST)
        && lane.drops.iter().all(|(port, n)| *port < lane.ports.len() && *n <= MOST)
        && lane.quiet.iter().all(|(flow, _)| (*flow as usize) < flows)
        && lane.never_left.iter().all(|(flow, n)| (*flow as usize) < flows && *n <= MOST)
        && lane.received.iter().all(|(flow, r)| *flow < flows && received(r).iter().all(|n| *n <= MOST))
        && lane.groups.iter().all(|g| {
            let latencies = g.latencies.iter().all(|(ns, frames)| *ns <= LATEST && *frames <= MOST);
            latencies && are_possible(g.arrivals) && group(g).iter().all(|n| *n <= MOST)
        })
        && lane.places.iter().all(|(flow, places)| {
            let place = |p: &PlaceCounts| {
                let counts = [p.offered, p.received, p.bytes].iter().all(|n| *n <= MOST);
                counts && p.latency_max_ns <= LATEST && are_possible(p.arrivals)
            };
            *flow < flows && places.len() <= MAX_CYCLE as usize && places.iter().all(place)
        })
}

/// True if no such times, or sums of them over all lanes, overflow.
fn are_possible(arrivals: Option<Arrivals>) -> bool {
    arrivals.is_none_or(|at| {
        at.first.max(at.last).0.max(at.latency_min_ns) <= LATEST && at.latency_sum_ns <= u128::from(LATEST) << 32
    })
}

fn require(fits: bool, what: &str) -> Result<(), String> {
    if fits { Ok(()) } else { Err(what.into()) }
}

fn check_group(group: &GroupReport, ports: usize) -> Result<(), String> {
    let counts = [group.stray, group.corrupted, group.deviating_copies, group.late, group.bytes];
    let bins = group.bins.iter().flat_map(|(delivered, arrived)| [*delivered, *arrived]);
    let all = counts.into_iter().chain(bins).chain(group.deviations.iter().copied());
    let all = all.chain(group.elsewhere.iter().copied()).chain(group.latencies.iter().map(|(_, frames)| *frames));
    require(all.max().unwrap_or(0) <= MOST, "a count of a group is too large")?;
    let pairs = group.ipdv.iter().flat_map(|ipdv| ipdv.falls.iter().chain(&ipdv.rises));
    require(pairs.clone().all(|(ns, pairs)| *ns <= LATEST && *pairs <= MOST), "a variation is too large")?;
    require(group.elsewhere.len() == ports, "other ports of a group")?;
    require(group.deviations.len() == Deviation::ALL.len(), "other deviations")?;
    require(group.bins.len() <= MAX_BINS, "too many time bins")?;
    require(group.latency_sum_ns <= u128::from(LATEST) << 32, "a sum of latencies is too large")
}

fn check_sender(plan: &Plan, sender: &SenderReport) -> Result<(), String> {
    let (flows, ports) = (plan.flows.len(), plan.layout.ports());
    let known = |flow: u32| sender.flows.iter().any(|(own, _)| *own == flow);
    require(sender.port < ports, "a sender at no port")?;
    let known_groups = sender.groups.iter().all(|g| g.group < plan.groups.len());
    require(known_groups && sender.groups.is_sorted_by(|a, b| a.group < b.group), "other groups of a sender")?;
    let own: BTreeSet<u32> = sender.flows.iter().map(|(flow, _)| *flow).collect();
    require(sender.flows.iter().all(|(flow, sent)| (*flow as usize) < flows && *sent <= MOST), "a flow")?;
    require(!sender.round.is_empty() && sender.round.iter().all(|flow| own.contains(flow)), "the round of a sender")?;
    require(sender.lateness.len() == 40 && sender.lateness.iter().all(|n| *n <= MOST), "departure errors")?;
    require(sender.unsent <= MOST && sender.sending_ns <= LATEST, "a sender's time")?;
    require(sender.schedule.is_sound(), "the schedule of a sender")?;
    let groups = sender.groups.iter();
    let counts = groups.flat_map(|g| [g.intended, g.offered, g.refused].into_iter().chain(g.bins.iter().copied()));
    require(counts.max().unwrap_or(0) <= MOST, "a count of a sender is too large")?;
    require(sender.groups.iter().all(|g| g.bins.len() <= MAX_BINS && g.refused <= g.offered), "a group of a sender")?;
    let refused = sender.refused.iter();
    require(refused.clone().all(|(flow, n)| known(*flow) && *n <= MOST), "refused frames")?;
    let runs = &sender.own_refusals;
    require(runs.iter().all(|(flow, first, n)| known(*flow) && *first <= MOST && *n <= MOST), "refused frames")?;
    let mut by_flow = std::collections::BTreeMap::new();
    let apart = |(flow, first, n): &(u32, u64, u64)| *first >= by_flow.insert(*flow, first + n).unwrap_or(0);
    require(runs.iter().all(apart), "refused frames are not in order")?;
    require(sender.skips.iter().all(|(sent, total)| *sent <= MOST && *total <= MOST), "skipped frames")?;
    require(sender.stopped.iter().all(|s| s.group < plan.groups.len() && s.stopped_ns <= s.end_ns), "a stopped flow")?;
    let stretch = |s: &crate::lane_report::StretchReport| {
        s.keep.len() == sender.round.len()
            && s.sequences.len() == sender.flows.len()
            && s.from.max(s.sent).max(s.skipped) <= MOST
            && s.sequences.iter().all(|n| *n <= MOST)
    };
    require(sender.stretches.iter().all(stretch), "a stretch of a schedule")?;
    let later = |a: &[u64], b: &[u64]| a.iter().zip(b).all(|(a, b)| a <= b);
    let in_order = sender.stretches.is_sorted_by(|a, b| later(&a.sequences, &b.sequences));
    let sends = sender.schedule.total() > 0 || sender.flows.iter().all(|(_, sent)| *sent == 0);
    require(in_order && sends, "stretches are not in order")
}

fn check_flow(plan: &Plan, report: &FlowReport) -> Result<(), String> {
    let FlowReport { flow, group, to, .. } = *report;
    require(plan.flows.group_of(flow) == Some(group) && to < plan.layout.ports(), "an unknown flow")?;
    let counts = [report.received, report.duplicated, report.reordered, report.reordered_3, report.in_sequence];
    let more = [report.max_extent, report.next_expected, report.elsewhere];
    require(counts.into_iter().chain(more).all(|n| n <= MOST), "a count of a flow is too large")?;
    require(report.elsewhere <= report.received, "a flow at alternate ports")?;
    let ascends = report.missing.is_sorted_by(|a, b| a.end <= b.start)
        && report.missing.iter().all(|gap| gap.start <= gap.end && gap.end <= MOST);
    require(ascends, "missing frames are not in order")?;
    let runs = &report.losses.runs;
    let in_order = runs.iter().all(|run| run.first <= run.last && run.last <= MOST && run.lost <= MOST)
        && runs.is_sorted_by(|a, b| a.last < b.first);
    require(in_order && report.losses.apart <= MOST, "losses are not in order")?;
    let places = plan.destinations.iter().find(|(counted, _)| *counted == flow).map(|(_, order)| order.len() as usize);
    require(report.by_place.as_ref().map(Vec::len) == places, "counts by destination")?;
    let windows = report.arrived.iter().chain(report.deviating.iter().flat_map(|d| d.first.iter().map(|(_, w)| w)));
    let fits = |w: &crate::Arrived| w.from.is_multiple_of(64) && w.from <= MOST && w.bits.len() <= 1 << 26;
    require(windows.clone().all(fits), "a window of frames")?;
    let kinds = Deviation::ALL.len();
    let deviating = |d: &crate::DeviatingReport| {
        d.frames.len() == kinds && d.copies <= MOST && d.first.iter().all(|(kind, _)| *kind < kinds)
    };
    require(report.deviating.iter().all(deviating), "deviating frames")
}
