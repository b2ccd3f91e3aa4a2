//! Additional results of the frames of a pattern over all its trials: the share of the routes that received a frame,
//! and the ways in which frames arrived wrong.

use super::Pattern;
use crate::report::note_of;
use crate::testbed::{TestError, Testbed};
use drophammer_model::outcome::Outcome;
use drophammer_model::quantity::group_digits;
use drophammer_model::traffic::Deviation;
use drophammer_model::trial::{FlowSpec, Targets, TrialResult, TrialSpec};
use std::collections::BTreeMap;
use std::fmt;

/// Number of routes to which a trial sent a frame, out of all routes of its flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    routes: u64,
    of: u64,
}

impl Reached {
    /// `None` if the trial has no routes. Computed from the offered frames: all flows to the same routes traverse them
    /// in the same order, and flow k of n begins at position count * k / n.
    pub fn of(spec: &TrialSpec, result: &TrialResult) -> Option<Reached> {
        let aimed = |flow: &&FlowSpec| matches!(flow.destinations, Targets::Routes { .. }) && !flow.background;
        let mut left: Vec<&FlowSpec> = spec.flows.iter().filter(aimed).collect();
        if left.is_empty() {
            return None;
        }
        let mut all = Reached::default();
        while let Some(first) = left.first().copied() {
            let (alike, others): (Vec<_>, Vec<_>) = left.into_iter().partition(|flow| first.shares_routes(flow));
            left = others;
            let (count, senders) = (u64::from(first.destinations.count()), alike.len() as u64);
            let arc = |(k, flow): (u64, &&FlowSpec)| (count * k / senders, offered(spec, result, flow));
            all.routes += covered(count, (0..).zip(&alike).map(arc));
            all.of += count;
        }
        Some(all)
    }

    /// Mark for the row of a trial; `None` if every route got a frame.
    fn mark(self) -> Option<String> {
        (self.routes < self.of).then(|| self.to_string())
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frames to {} of {} routes", group_digits(self.routes), group_digits(self.of))
    }
}

/// Offered frames of a flow, as its share of the frames between its two ports, or of its group.
fn offered(spec: &TrialSpec, result: &TrialResult, flow: &FlowSpec) -> u64 {
    let share = |frames: u64, of: &dyn Fn(&FlowSpec) -> bool| {
        let weights: f64 = spec.flows.iter().filter(|other| of(other)).map(|other| other.weight).sum();
        (frames as f64 * (flow.weight / weights) + 1e-9) as u64
    };
    match result.ways.iter().find(|way| (way.from, way.to) == (flow.from, flow.to)) {
        Some(way) => share(way.offered, &|other| (other.from, other.to) == (flow.from, flow.to)),
        None => {
            let group = result.groups.iter().find(|group| group.group == flow.group);
            share(group.map_or(0, |group| group.offered), &|other| other.group == flow.group)
        }
    }
}

/// Number of positions, on a circle of `count`, that these arcs (start and length) cover together.
fn covered(count: u64, arcs: impl Iterator<Item = (u64, u64)>) -> u64 {
    let mut pieces: Vec<(u64, u64)> = Vec::new();
    for (start, length) in arcs {
        let end = start + length.min(count);
        pieces.push((start, end.min(count)));
        pieces.push((0, end.saturating_sub(count)));
    }
    pieces.sort_unstable();
    let (mut covered, mut up_to) = (0, 0);
    for (from, to) in pieces {
        covered += to.saturating_sub(from.max(up_to));
        up_to = up_to.max(to);
    }
    covered
}

/// Results of the frames over all trials of a pattern.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    reached: BTreeMap<u64, Reached>,
    wrong: BTreeMap<Deviation, u64>,
}

/// Runs a test of a pattern while recording its arrivals. When the test ends, in whatever way, adds a note if frames
/// arrived wrong.
pub(crate) fn watched(
    mut each: impl FnMut(&mut dyn Testbed, &Pattern, &mut Outcome, u32) -> Result<(), TestError>,
) -> impl FnMut(&mut dyn Testbed, &Pattern, &mut Outcome, u32) -> Result<(), TestError> {
    move |bed: &mut dyn Testbed, pattern: &Pattern, outcome: &mut Outcome, index: u32| {
        bed.known().ongoing.arrivals = Some(Arrivals::default());
        let ended = each(bed, pattern, outcome, index);
        if let Some(arrivals) = bed.known().ongoing.arrivals.take() {
            arrivals.note_wrong(outcome, pattern);
        }
        ended
    }
}

/// Notes how many routes got frames in the trial that reached most of them, because all trials traverse the routes in
/// the same order. Returns a mark if some routes got none.
pub(crate) fn note_reached(
    bed: &mut dyn Testbed,
    outcome: &mut Outcome,
    pattern: &Pattern,
    at: &str,
    trials: &[u64],
) -> Option<String> {
    let arrivals = bed.known().ongoing.arrivals.as_ref()?;
    let most = trials.iter().filter_map(|trial| arrivals.reached.get(trial)).max_by_key(|reached| reached.routes)?;
    note_of(outcome, pattern, format!("{at}: {most}"));
    most.mark()
}

impl Arrivals {
    /// Records the arrivals of a trial.
    pub(crate) fn saw(&mut self, spec: &TrialSpec, result: &TrialResult) {
        if let Some(reached) = Reached::of(spec, result) {
            self.reached.insert(result.trial, reached);
        }
        for (deviation, frames) in result.groups.iter().flat_map(|group| &group.deviations) {
            *self.wrong.entry(*deviation).or_default() += frames;
        }
    }

    fn note_wrong(&self, outcome: &mut Outcome, pattern: &Pattern) {
        let all: u64 = self.wrong.values().sum();
        if all == 0 {
            return;
        }
        let what = if pattern.labels.is_some() { "a wrong label or TTL" } else { "wrong headers" };
        let one = |(deviation, frames): (&Deviation, &u64)| format!("{deviation} {}", group_digits(*frames));
        let each = self.wrong.iter().map(one).collect::<Vec<_>>().join(", ");
        let all = group_digits(all);
        note_of(outcome, pattern, format!("{all} of the frames that count as lost arrived with {what}: {each}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arcs_that_overlap_or_go_round_count_once() {
        for (arcs, expected) in [
            (vec![(0, 40)], 40),
            (vec![(0, 34), (33, 34), (66, 34)], 100),
            (vec![(0, 10), (50, 10)], 20),
            (vec![(90, 30), (10, 15)], 35),
            (vec![(50, 1_000)], 100),
            (vec![(0, 0)], 0),
            (vec![], 0),
        ] {
            assert_eq!(covered(100, arcs.clone().into_iter()), expected, "{arcs:?}");
        }
    }
}
