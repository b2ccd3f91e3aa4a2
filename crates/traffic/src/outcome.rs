//! What the lanes of a trial have counted becomes its result.

mod destinations;

use crate::analyzer::{Further, GroupReceived};
use crate::engine::Fared;
use crate::generator::{GroupSent, LatenessBuckets, PortGenerator};
use crate::plan::Plan;
use drophammer_model::traffic::Deviation;
use drophammer_model::trial::{Bin, EventRecord, GroupCounts, Health, TrialResult, Validity};
use std::collections::{BTreeMap, BTreeSet};

/// Adds up what the lanes of `plan` have counted; `fared` is one per lane. Of times the worst lane's counts.
pub(crate) fn result(plan: &mut Plan, fared: &[Fared], clock_step_ns: i64) -> TrialResult {
    plan.parts.iter_mut().for_each(|p| p.analyzer.settle());
    let plan = &*plan;
    let generators: Vec<&PortGenerator> = plan.parts.iter().flat_map(|p| &p.generators).collect();
    let mut groups: Vec<GroupCounts> =
        plan.groups.iter().enumerate().map(|(i, name)| group_counts(plan, &generators, i, name)).collect();
    let senders = senders(&generators);
    for (flow, group, state) in plan.parts.iter().flat_map(|p| p.analyzer.flows()) {
        let counts = &mut groups[group];
        counts.received += state.received();
        counts.duplicated += state.duplicated();
        counts.reordered += state.reordered();
        counts.reordered_3 += state.reordered_3();
        counts.in_sequence += state.in_sequence();
        counts.max_reordering_extent = counts.max_reordering_extent.max(state.max_extent());
        if let Some((generator, sent)) = senders[flow]
            && state.received() < sent
            && let Some(missing) = state.last_missing(sent, &generator.never_left(flow as u32))
        {
            let departure = generator.departures(flow as u32).map(|d| d.of(missing));
            counts.last_loss_ns = counts.last_loss_ns.max(departure);
        }
    }
    arrived_at(plan, &mut groups);
    let destinations = destinations::counts(plan, &senders);
    for counts in &mut groups {
        counts.lost = counts.offered - counts.received;
    }
    let unsent = if plan.maximum { 0 } else { generators.iter().map(|g| g.unsent() + g.refused_by_tester()).sum() };
    let sending_ns = generators.iter().map(|g| g.sending_ns()).max().unwrap_or(0);
    let receiving_ns = plan.parts.iter().map(|p| p.analyzer.receiving_ns()).max().unwrap_or(0);
    let worst = |time: fn(&Fared) -> u64| fared.iter().map(time).max().unwrap_or(0);
    TrialResult {
        trial: 0,
        sending_s: sending_ns as f64 / 1e9,
        receiving_s: receiving_ns as f64 / 1e9,
        elapsed_s: 0.0,
        groups,
        health: Health {
            unsent,
            receive_drops: fared.iter().map(|f| f.receive_drops).sum(),
            max_gap_ns: worst(|f| f.max_gap_ns),
            gaps_over_1ms_ns: worst(|f| f.long_gaps_ns),
            departure_error: departure_error(&lateness(&generators)),
            departure_errors: departure_errors(&lateness(&generators)),
            clock_step_ns,
            tester_stolen_ns: None,
            stale: plan.parts.iter().map(|p| p.analyzer.stale()).sum(),
            other_received: fared.iter().map(|f| f.other).sum(),
            kernel_generators: generators.iter().filter(|g| g.is_in_kernel()).count() as u32,
        },
        validity: Validity::Valid,
        dut_cpu: None,
        dut_counters: BTreeMap::new(),
        senders: generators.iter().map(|g| g.port()).collect::<BTreeSet<_>>().len() as u32,
        events: events(plan, fared),
        destination_summaries: destinations.iter().map(|d| d.summary()).collect(),
        destinations,
    }
}

/// Events that every lane was told; of times those of the last lane whose business it was, of all if it was nobody's.
fn events(plan: &Plan, fared: &[Fared]) -> Vec<EventRecord> {
    let all_told = fared.iter().map(|f| f.events.len()).min().unwrap_or(0);
    let record = |n: usize| {
        let last = fared.iter().map(|f| f.events[n]).max_by_key(|told| (told.own, told.from_ns))?;
        let (at_s, took_s) = (last.from_ns as f64 / 1e9, (last.to_ns - last.from_ns) as f64 / 1e9);
        Some(EventRecord { at_s, took_s, label: plan.events[n].label.clone() })
    };
    (0..all_told).filter_map(record).collect()
}

/// Fills in where the frames of each group came to, for groups that have an alternate path or strays.
fn arrived_at(plan: &Plan, groups: &mut [GroupCounts]) {
    let mut arrived = vec![vec![0u64; plan.layout.ports()]; groups.len()];
    let mut asked = vec![false; groups.len()];
    for analyzer in plan.parts.iter().map(|p| &p.analyzer) {
        for (group, received) in analyzer.groups().iter().enumerate() {
            asked[group] |= received.elsewhere.iter().any(|n| *n > 0);
            arrived[group].iter_mut().zip(&received.elsewhere).for_each(|(sum, n)| *sum += n);
        }
        for (place, ((_, group, state), to)) in analyzer.flows().zip(analyzer.to()).enumerate() {
            let further = analyzer.further().get(place);
            asked[group] |= further.is_some_and(Further::has_alternate);
            arrived[group][to] += state.received() - further.map_or(0, |f| f.elsewhere);
        }
    }
    for ((counts, arrived), asked) in groups.iter_mut().zip(arrived).zip(asked) {
        if asked {
            counts.arrived_at = arrived;
        }
    }
}

/// Generator of a flow and frames that it has sent of it.
type Sender<'a> = (&'a PortGenerator, u64);

/// Of each flow.
fn senders<'a>(generators: &[&'a PortGenerator]) -> Vec<Option<Sender<'a>>> {
    let mut senders = Vec::new();
    for generator in generators {
        for (flow, sent) in generator.sent_by_flow() {
            let flow = flow as usize;
            senders.resize(senders.len().max(flow + 1), None);
            senders[flow] = Some((*generator, sent));
        }
    }
    senders
}

fn group_counts(plan: &Plan, generators: &[&PortGenerator], index: usize, name: &str) -> GroupCounts {
    let sent = generators.iter().map(|g| &g.groups()[index]);
    let sum = |count: fn(&GroupSent) -> u64| sent.clone().map(count).sum::<u64>();
    let merged;
    let received = match plan.parts.as_slice() {
        [part] => &part.analyzer.groups()[index],
        parts => {
            let bins = parts[0].analyzer.groups()[index].bins.delivered.len();
            let mut all = GroupReceived::new(bins, plan.layout.ports());
            parts.iter().for_each(|part| all.add(&part.analyzer.groups()[index]));
            merged = all;
            &merged
        }
    };
    let bins =
        received.bins.delivered.iter().zip(&received.bins.arrived).enumerate().map(|(b, (delivered, arrived))| Bin {
            offered: sent.clone().map(|g| g.bins.get(b).copied().unwrap_or(0)).sum(),
            delivered: *delivered,
            arrived: *arrived,
        });
    GroupCounts {
        group: name.to_owned(),
        intended: sum(|g| g.intended),
        offered: sum(|g| g.offered),
        refused: sum(|g| g.refused),
        corrupted: received.corrupted,
        deviations: Deviation::ALL.iter().copied().zip(received.deviations).filter(|(_, n)| *n > 0).collect(),
        stray: received.stray,
        late: received.late,
        received_bytes: received.bytes,
        latency: received.latency_summary(),
        bins: bins.collect(),
        ..GroupCounts::default()
    }
}

/// How late frames were handed to the port, all senders together.
fn lateness(generators: &[&PortGenerator]) -> LatenessBuckets {
    let mut buckets: LatenessBuckets = [0; 40];
    for generator in generators {
        buckets.iter_mut().zip(generator.lateness()).for_each(|(sum, n)| *sum += n);
    }
    buckets
}

/// The histogram of them, from the first to the last bucket that holds a frame.
fn departure_errors(buckets: &LatenessBuckets) -> Vec<(u64, u64)> {
    let last = buckets.iter().rposition(|n| *n > 0).map_or(0, |last| last + 1);
    let first = buckets.iter().position(|n| *n > 0).unwrap_or(0);
    (first..last).map(|b| ((1u64 << b) - 1, buckets[b])).collect()
}

/// Percentiles of them, as upper ends of powers of two.
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

#[cfg(test)]
mod tests;
