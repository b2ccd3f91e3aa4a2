//! Sent and received frames of a flow, by destination.

use super::Sender;
use crate::lane_report::LaneReport;
use crate::permutation::Permutation;
use drophammer_model::trial::DestinationCounts;

/// Counts of every flow that is counted by destination.
pub(super) fn counts(lanes: &[LaneReport], by_flow: &[Option<Sender<'_>>]) -> Vec<DestinationCounts> {
    lanes[0].trial.destinations.iter().map(|(flow, order)| of_flow(lanes, *flow, order, by_flow)).collect()
}

fn of_flow(
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
            // Every frame that left has arrived, whichever these were.
            counts.offered.clone_from(&counts.received);
            counts.first_lost_us = vec![DestinationCounts::NEVER; order.len() as usize];
            counts.last_lost_us = counts.first_lost_us.clone();
            return counts;
        }
        // Nobody knows the destinations of all lost frames. The trial is invalid.
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
        for sequence in received.missing(sent, &never_left) {
            let us = (departures.of(sequence) / 1000).min(u64::from(DestinationCounts::NEVER - 1)) as u32;
            let destination = destination_of(sequence);
            let first = &mut counts.first_lost_us[destination];
            *first = us.min(*first);
            counts.last_lost_us[destination] = us;
        }
    }
    counts
}
