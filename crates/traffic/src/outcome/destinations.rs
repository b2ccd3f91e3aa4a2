//! What was sent and received of a flow, by destination.

use super::Sender;
use crate::permutation::Permutation;
use crate::plan::Plan;
use drophammer_model::trial::DestinationCounts;

/// Of every flow of `plan` that is counted so; `senders` is by flow.
pub(super) fn counts(plan: &Plan, senders: &[Option<Sender<'_>>]) -> Vec<DestinationCounts> {
    plan.destinations.iter().map(|(flow, order)| of_flow(plan, *flow, order, senders)).collect()
}

fn of_flow(plan: &Plan, flow: usize, order: &Permutation, senders: &[Option<Sender<'_>>]) -> DestinationCounts {
    let nothing = vec![0u32; order.len() as usize];
    let mut counts =
        DestinationCounts { flow, offered: nothing.clone(), received: nothing, ..DestinationCounts::default() };
    let Some((generator, sent)) = senders.get(flow).copied().flatten() else { return counts };
    let (rounds, rest) = ((sent / u64::from(order.len())) as u32, sent % u64::from(order.len()));
    let found = plan.parts.iter().find_map(|part| {
        let place = part.analyzer.flows().position(|(id, ..)| id == flow)?;
        Some((part.analyzer.flows().nth(place)?.2, part.analyzer.further().get(place)?.tally.as_ref()?))
    });
    for place in 0..order.len() {
        let destination = order.at(place) as usize;
        counts.offered[destination] = rounds + u32::from(u64::from(place) < rest);
        counts.received[destination] = found.map_or(0, |(_, tally)| tally.at(place));
    }
    let never_left = generator.never_left(flow as u32);
    let destination_of = |sequence: u64| order.at((sequence % u64::from(order.len())) as u32) as usize;
    never_left.iter().for_each(|sequence| counts.offered[destination_of(*sequence)] -= 1);
    if let Some((state, _)) = found
        && let Some(departures) = generator.departures(flow as u32)
        && state.tells_all()
    {
        counts.first_lost_us = vec![DestinationCounts::NEVER; order.len() as usize];
        counts.last_lost_us = counts.first_lost_us.clone();
        for sequence in state.missing(sent, &never_left) {
            let us = (departures.of(sequence) / 1000).min(u64::from(DestinationCounts::NEVER - 1)) as u32;
            let destination = destination_of(sequence);
            let first = &mut counts.first_lost_us[destination];
            *first = us.min(*first);
            counts.last_lost_us[destination] = us;
        }
    }
    counts
}
