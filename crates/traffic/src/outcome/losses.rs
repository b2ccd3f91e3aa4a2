//! Combines the lost frames of all flows into episodes.

use super::Sender;
use crate::lane_report::FlowReport;
use crate::losses::{Collector, Distance};
use drophammer_model::trial::{LossEpisode, Losses, MOST_EPISODES};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Losses of one flow, close to each other.
struct Run {
    from_ns: u64,
    to_ns: u64,
    lost: u64,
    flow: usize,
    group: usize,
}

/// Episodes by the scheduled departures of lost frames, without flows whose times are unknown.
pub(super) fn losses(flows: &[Cow<'_, FlowReport>], by_flow: &[Option<Sender<'_>>], distance: &Distance) -> Losses {
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
