//! Outage of each route: the route-specific method of RFC 6413 section 6.3, and its report.

use crate::columns;
use crate::report::{PlotSpec, lower_by_difference, note, xy_of};
use crate::route_tests::thousands;
use crate::table::TableSpec;
use drophammer_model::outcome::{Outcome, PlotKind};
use drophammer_model::routes::Routes;
use drophammer_model::trial::{DestinationCounts, Family, GroupCounts, TrialResult};

/// Outage of the routes of one flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Outage {
    /// Per route, in seconds, ascending; only routes whose frames arrived in the end.
    pub sorted_s: Vec<f64>,
    /// Routes, by index within the flow, whose frames still did not arrive at the end.
    pub unreachable: Vec<u32>,
    /// Total number of routes.
    pub routes: usize,
    /// Frames per second to each route.
    pub rate_per_route: f64,
    /// Frames lost because of the change, divided by the load (RFC 6413 section 6.2.3), in seconds.
    pub loss_derived_s: f64,
}

impl Outage {
    /// Derives the outage from the first flow of a trial that offered `rate_pps` for all routes together. With
    /// `event_s`, in seconds after the first departure, every route was unreachable until then, and that time does not
    /// count. `None` if frames were not counted per route.
    pub fn of(result: &TrialResult, rate_pps: f64, event_s: Option<f64>) -> Option<Outage> {
        result.destinations.first().map(|counts| Outage::count(counts, rate_pps, event_s))
    }

    fn count(counts: &DestinationCounts, rate_pps: f64, event_s: Option<f64>) -> Outage {
        let routes = counts.offered.len();
        let rate_per_route = rate_pps / routes.max(1) as f64;
        let before_s = event_s.unwrap_or(0.0);
        let mut outage =
            Outage { sorted_s: Vec::new(), unreachable: Vec::new(), routes, rate_per_route, loss_derived_s: 0.0 };
        let (mut lost_in_all, mut offered_in_all) = (0u64, 0u64);
        for (index, (offered, received)) in counts.offered.iter().zip(&counts.received).enumerate() {
            let lost = offered - received;
            lost_in_all += u64::from(lost);
            offered_in_all += u64::from(*offered);
            if *received == 0 && *offered > 0 {
                outage.unreachable.push(index as u32);
            } else {
                outage.sorted_s.push((f64::from(lost) / rate_per_route - before_s).max(0.0));
            }
        }
        outage.sorted_s.sort_by(f64::total_cmp);
        if offered_in_all > 0 {
            outage.loss_derived_s = (lost_in_all as f64 / rate_pps - before_s).max(0.0);
        }
        outage
    }

    /// The outage, in seconds, that the share `share` of the reachable routes does not exceed.
    pub fn percentile_s(&self, share: f64) -> Option<f64> {
        let last = self.sorted_s.len().checked_sub(1)?;
        let rank = (share * self.sorted_s.len() as f64).ceil() as usize;
        Some(self.sorted_s[rank.saturating_sub(1).min(last)])
    }

    /// Time between two frames to the same route, which is the resolution of an outage.
    pub fn resolution_s(&self) -> f64 {
        1.0 / self.rate_per_route
    }
}

columns! {
    /// The outages of one case.
    pub struct OutageRow {
        case: String = "Case",
        routes: u64 = "Routes",
        unreachable: u64 = "Unreachable to the end",
        min_ms: Option<f64> = "Minimum" ["ms"],
        median_ms: Option<f64> = "Median" ["ms"],
        p99_ms: Option<f64> = "99 %" ["ms"],
        max_ms: Option<f64> = "Maximum" ["ms"],
        loss_derived_ms: f64 = "Loss-derived" ["ms"],
        resolution_ms: f64 = "Resolution" ["ms"],
        rate_pps: f64 = "Load" ["fps"],
        duplicated: u64 = "Duplicates" ["frames"],
        reordered: Option<u64> = "Reordered" ["frames"],
    }
}

columns! {
    /// A route that stayed unreachable.
    pub struct UnreachableRow {
        prefix: String = "Prefix",
    }
}

/// Table and plot of the outages of a test.
#[derive(Debug)]
pub struct OutageReport {
    /// One row per case.
    pub table: TableSpec<OutageRow>,
    /// The routes that stayed unreachable.
    pub unreachable: TableSpec<UnreachableRow>,
    /// The outages of all routes, sorted.
    pub plot: PlotSpec<'static>,
}

impl OutageReport {
    /// The tables and the plot of a test. The plot has the same key as the table.
    pub const fn new(
        table: TableSpec<OutageRow>,
        unreachable: TableSpec<UnreachableRow>,
        plot_title: &'static str,
    ) -> OutageReport {
        let (x, y) = ("share of the routes, %", "time, ms");
        let plot = PlotSpec { key: table.key(), title: plot_title, kind: PlotKind::Sorted, x, y, log_y: true };
        OutageReport { table, unreachable, plot }
    }

    /// Adds the table and the plot.
    pub fn begin(&self, outcome: &mut Outcome) {
        self.table.begin(outcome);
        self.plot.begin(outcome);
    }

    /// Adds a row, a curve, the unreachable routes of `routes` and, with `title`, the figures
    /// `{key}_{family}_median_ms` and `_max_ms`.
    pub fn add(
        &self,
        outcome: &mut Outcome,
        title: &str,
        case: &str,
        routes: &Routes,
        outage: &Outage,
        result: &TrialResult,
    ) {
        self.write(outcome, routes.family(), case, outage, result);
        list_unreachable(outcome, &self.unreachable, routes, outage.unreachable.iter().copied());
        rank(outcome, self.table.key(), title, routes.family(), outage);
    }

    fn write(&self, outcome: &mut Outcome, family: Family, case: &str, outage: &Outage, result: &TrialResult) {
        let ms = |share: f64| outage.percentile_s(share).map(|s| s * 1e3);
        let some_left = !outage.unreachable.is_empty();
        self.table.add(
            outcome,
            OutageRow {
                case: case.into(),
                routes: outage.routes as u64,
                unreachable: outage.unreachable.len() as u64,
                min_ms: outage.sorted_s.first().map(|s| s * 1e3),
                median_ms: ms(0.5),
                p99_ms: ms(0.99),
                max_ms: outage.sorted_s.last().map(|s| s * 1e3),
                loss_derived_ms: outage.loss_derived_s * 1e3,
                resolution_ms: outage.resolution_s() * 1e3,
                rate_pps: outage.rate_per_route * outage.routes as f64,
                duplicated: result.sum(|g| g.duplicated),
                reordered: reordered(result),
            },
            [result.trial],
            some_left.then(|| "times are those of the reachable routes".into()),
        );
        let count = outage.sorted_s.len();
        let steps = count.min(POINTS);
        for step in 0..steps {
            let index = if steps < 2 { 0 } else { step * (count - 1) / (steps - 1) };
            let share = (index + 1) as f64 / outage.routes as f64 * 100.0;
            self.plot.curve(outcome, case, xy_of(share, outage.sorted_s[index] * 1e3, result.trial));
        }
        if outage.resolution_s() > 0.1 {
            let every_ms = outage.resolution_s() * 1e3;
            note(
                outcome,
                format!(
                    "{family}, {case}: frames go to each route every {every_ms:.0} ms, so a single time is no more exact than that."
                ),
            );
        }
    }
}

/// Maximum number of points of a curve; more are not visible.
const POINTS: usize = 2_000;

/// Frames out of order; `None` if the frames of a group arrived at several ports or queues, between which there is no
/// order.
fn reordered(result: &TrialResult) -> Option<u64> {
    let ports = |g: &GroupCounts| g.arrived_at.iter().filter(|frames| **frames > 0).count();
    let of_group = |g: &GroupCounts| g.known_reordered().filter(|_| ports(g) < 2);
    result.groups.iter().map(of_group).sum()
}

/// Writes routes as a table of prefixes.
pub fn list_unreachable(
    outcome: &mut Outcome,
    table: &TableSpec<UnreachableRow>,
    routes: &Routes,
    indices: impl Iterator<Item = u32>,
) {
    for index in indices {
        table.add(outcome, UnreachableRow { prefix: routes.prefix(index).to_string() }, [], []);
    }
}

fn rank(outcome: &mut Outcome, key: &str, title: &str, family: Family, outage: &Outage) {
    let name = family.to_string().to_lowercase();
    let whole = outage.unreachable.is_empty();
    let exact_ms = outage.resolution_s() * 1e3;
    for (word, share) in [("median", 0.5), ("max", 1.0)] {
        // A router that never reached all routes has no time.
        let value = outage.percentile_s(share).filter(|_| whole).map(|s| s * 1e3);
        let title = format!("{title} of {} routes, {word}, {family}", thousands(outage.routes as u64));
        // Times that differ by no more than one frame to a route are equal.
        outcome.ranks.push(lower_by_difference(format!("{key}_{name}_{word}_ms"), title, "ms", value, exact_ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_frames_become_time() {
        // 4 routes at 100 frames per second each; all frames are lost for one second before the event.
        let counts = DestinationCounts {
            offered: vec![400; 4],
            received: vec![300, 250, 0, 299],
            ..DestinationCounts::default()
        };
        let outage = Outage::count(&counts, 400.0, Some(1.0));
        assert_eq!(outage.unreachable, [2]);
        let expected = [0.0, 0.01, 0.5];
        assert!(outage.sorted_s.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{outage:?}");
        assert_eq!(outage.percentile_s(1.0), outage.sorted_s.last().copied());
        assert_eq!(outage.percentile_s(0.5), Some(outage.sorted_s[1]));
        assert!((outage.resolution_s() - 0.01).abs() < 1e-12);
    }

    #[test]
    fn times_within_a_frame_of_each_other_rank_the_same() {
        let least = |lost: u32| {
            let (offered, received) = (vec![100; 4], vec![100 - lost; 4]);
            let counts = DestinationCounts { offered, received, ..DestinationCounts::default() };
            let mut outcome = Outcome::default();
            rank(&mut outcome, "outage", "Outage", Family::Ipv4, &Outage::count(&counts, 40.0, None));
            (outcome.ranks[1].value.unwrap(), outcome.ranks[1].least)
        };
        // A frame to each route every 100 ms.
        for (lost, ms) in [(0, 0.0), (1, 100.0), (10, 1_000.0)] {
            let (value, least) = least(lost);
            assert!((value - ms).abs() < 1e-6 && (least - 100.0).abs() < 1e-6, "{lost}: {value}, {least}");
        }
    }
}
