//! Additional results of the frames of a pattern over all its trials: the share of the routes that received a frame,
//! and the ways in which frames arrived wrong.

use super::Pattern;
use crate::report::note_of;
use crate::testbed::{TestError, Testbed};
use drophammer_model::outcome::Outcome;
use drophammer_model::quantity::group_digits;
use drophammer_model::traffic::Deviation;
use drophammer_model::trial::{FlowSpec, TrialResult, TrialSpec};
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
        let offers = Offers::of(spec, result);
        // For each set of routes, their number and the frames that each flow has offered.
        let mut sets: BTreeMap<_, (u64, Vec<u64>)> = BTreeMap::new();
        for flow in spec.flows.iter().filter(|flow| !flow.background) {
            if let Some(key) = flow.route_key() {
                let set = sets.entry(key).or_insert_with(|| (flow.destinations.count().into(), Vec::new()));
                set.1.push(offers.by(flow));
            }
        }
        let mut all = Reached::default();
        for (count, offered) in sets.values() {
            let senders = offered.len() as u64;
            let arc = |(k, offered): (u64, &u64)| (count * k / senders, *offered);
            all.routes += covered(*count, (0..).zip(offered).map(arc));
            all.of += count;
        }
        (!sets.is_empty()).then_some(all)
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

/// Offered frames of a trial, and the weight of the flows that share them.
#[derive(Clone, Copy, Default)]
struct Offered {
    frames: u64,
    weight: f64,
}

/// Offered frames by pair of ports, and by group.
struct Offers<'a> {
    ways: BTreeMap<(usize, usize), Offered>,
    groups: BTreeMap<&'a str, Offered>,
}

impl<'a> Offers<'a> {
    fn of(spec: &'a TrialSpec, result: &'a TrialResult) -> Offers<'a> {
        let offered = |frames| Offered { frames, weight: 0.0 };
        let mut offers = Offers {
            ways: result.ways.iter().map(|way| ((way.from, way.to), offered(way.offered))).collect(),
            groups: result.groups.iter().map(|group| (group.group.as_str(), offered(group.offered))).collect(),
        };
        for flow in &spec.flows {
            let of_way = offers.ways.get_mut(&(flow.from, flow.to));
            let of_group = offers.groups.get_mut(flow.group.as_str());
            of_way.into_iter().chain(of_group).for_each(|offered| offered.weight += flow.weight);
        }
        offers
    }

    /// Offered frames of a flow, as its share of the frames between its two ports, or of its group.
    fn by(&self, flow: &FlowSpec) -> u64 {
        let way = self.ways.get(&(flow.from, flow.to));
        let all = way.or_else(|| self.groups.get(flow.group.as_str())).copied().unwrap_or_default();
        (all.frames as f64 * (flow.weight / all.weight) + 1e-9) as u64
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
    use drophammer_model::routes::{RouteRange, Routes};
    use drophammer_model::trial::{AddressRange, Family, GroupCounts, Load, Targets, WayCounts};
    use std::sync::Arc;

    #[test]
    fn flows_to_the_same_routes_reach_them_together() {
        let sources = AddressRange { first: "198.18.0.1".parse().unwrap(), step: 1, count: 1 };
        let routes: Arc<Routes> = Arc::new(RouteRange::internet(Family::Ipv4, 150, 1).unwrap().into());
        let flow = |from, to, first, count, weight| {
            let destinations = Targets::Routes { routes: routes.clone(), first, count };
            FlowSpec { weight, ..FlowSpec::new("all", from, to, sources, destinations) }
        };
        let flows =
            vec![flow(0, 1, 0, 100, 1.0), flow(2, 1, 0, 100, 1.0), flow(1, 0, 100, 50, 1.0), flow(1, 0, 100, 50, 3.0)];
        let spec = TrialSpec {
            purpose: String::new(),
            size: "64".parse().unwrap(),
            flows,
            load: Load::Constant { rate_pps: 1.0 },
            duration_s: 1.0,
            bin_s: None,
            drain_s: 0.0,
            events: Vec::new(),
        };
        let reached = |result: &TrialResult| Reached::of(&spec, result).map(|reached| (reached.routes, reached.of));
        let ways = [(0, 1, 30), (2, 1, 40), (1, 0, 40)];
        let way = |(from, to, offered)| WayCounts { from, to, offered, received: 0 };
        // The second flow to port 1 starts at route 50. Of the 40 frames to port 0, 10 start at its first route and 30 at
        // the one in the middle.
        let by_way = TrialResult { ways: ways.map(way).to_vec(), ..TrialResult::default() };
        assert_eq!(reached(&by_way), Some((30 + 40 + 35, 150)));
        let group = GroupCounts { group: "all".into(), offered: 60, ..GroupCounts::default() };
        let by_group = TrialResult { groups: vec![group], ..TrialResult::default() };
        assert_eq!(reached(&by_group), Some((10 + 10 + 35, 150)));
        assert_eq!(reached(&TrialResult::default()), Some((0, 150)));
        let to_hosts = FlowSpec { destinations: sources.into(), ..spec.flows[0].clone() };
        assert_eq!(Reached::of(&TrialSpec { flows: vec![to_hosts], ..spec.clone() }, &by_way).map(|r| r.of), None);
    }

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
