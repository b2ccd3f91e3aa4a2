//! How long each route was out of reach: the route-specific method of RFC 6413 section 6.3, and how it is told.

use crate::report::{self, SeriesKind, note, point, row};
use crate::route_tests::thousands;
use drophammer_model::outcome::{Column, Outcome, PlotKind, Point, RankFigure, Row, Table};
use drophammer_model::routes::Routes;
use drophammer_model::trial::{DestinationCounts, Family, GroupCounts, TrialResult};

/// Outage of the routes of one flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Outage {
    /// Per route, in seconds, ascending; only routes that frames came through to.
    pub sorted_s: Vec<f64>,
    /// Routes, by index within the flow, to which nothing came through at the end.
    pub unreachable: Vec<u32>,
    /// Routes in all.
    pub routes: usize,
    /// Frames per second to each route.
    pub rate_per_route: f64,
    /// Frames lost because of the change, divided by the load (RFC 6413 section 6.2.3), in seconds.
    pub loss_derived_s: f64,
}

impl Outage {
    /// Reads it off the first flow of a trial that offered `rate_pps` for all routes together. With `event_s`, seconds after the first
    /// departure, every route was out of reach until then and that time is none of the outage. `None` if nothing was counted per route.
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

    /// The outage that `share` of the reachable routes do not exceed, in seconds.
    pub fn percentile_s(&self, share: f64) -> Option<f64> {
        let last = self.sorted_s.len().checked_sub(1)?;
        let rank = (share * self.sorted_s.len() as f64).ceil() as usize;
        Some(self.sorted_s[rank.saturating_sub(1).min(last)])
    }

    /// Time between two frames to the same route: no outage is known more exactly.
    pub fn resolution_s(&self) -> f64 {
        1.0 / self.rate_per_route
    }
}

/// Columns of a table of outages.
pub const PER_ROUTE_TABLE: &[(&str, &str, &str)] = &[
    ("case", "Case", ""),
    ("routes", "Routes", ""),
    ("unreachable", "Unreachable to the end", ""),
    ("min_ms", "Minimum", "ms"),
    ("median_ms", "Median", "ms"),
    ("p99_ms", "99 %", "ms"),
    ("max_ms", "Maximum", "ms"),
    ("loss_derived_ms", "Loss-derived", "ms"),
    ("resolution_ms", "Resolution", "ms"),
    ("rate_pps", "Load", "fps"),
    ("duplicated", "Duplicates", "frames"),
    ("reordered", "Reordered", "frames"),
];

/// Adds the plot of [`write`].
pub fn plot(outcome: &mut Outcome, key: &str, title: &str, kind: PlotKind) {
    report::plot(outcome, key, title, kind, "share of the routes, %", "time, ms", true);
}

/// Points of a curve at most; more do not show.
const POINTS: usize = 2_000;

/// Adds a row and a curve.
pub fn write(outcome: &mut Outcome, key: &str, family: Family, case: &str, outage: &Outage, result: &TrialResult) {
    let ms = |share: f64| outage.percentile_s(share).map(|s| s * 1e3);
    row(
        outcome,
        key,
        Row {
            cells: vec![
                case.into(),
                (outage.routes as u64).into(),
                (outage.unreachable.len() as u64).into(),
                outage.sorted_s.first().map(|s| s * 1e3).into(),
                ms(0.5).into(),
                ms(0.99).into(),
                outage.sorted_s.last().map(|s| s * 1e3).into(),
                (outage.loss_derived_s * 1e3).into(),
                (outage.resolution_s() * 1e3).into(),
                (outage.rate_per_route * outage.routes as f64).into(),
                result.sum(|g| g.duplicated).into(),
                reordered(result).into(),
            ],
            trials: vec![result.trial],
            marks: if outage.unreachable.is_empty() {
                Vec::new()
            } else {
                vec!["times are those of the reachable routes".into()]
            },
        },
    );
    let count = outage.sorted_s.len();
    let steps = count.min(POINTS);
    for step in 0..steps {
        let index = if steps < 2 { 0 } else { step * (count - 1) / (steps - 1) };
        let share = (index + 1) as f64 / outage.routes as f64 * 100.0;
        let y = outage.sorted_s[index] * 1e3;
        point(
            outcome,
            key,
            case,
            SeriesKind::Curve,
            Point { x: share, y, trial: Some(result.trial), ..Point::default() },
        );
    }
    if outage.resolution_s() > 0.1 {
        note(
            outcome,
            format!(
                "{family}, {case}: frames go to each route every {:.0} ms, so a single time is no more exact than that.",
                outage.resolution_s() * 1e3
            ),
        );
    }
}

/// Frames out of order; `None` where the frames of a group came by several ports, between which there is no order.
fn reordered(result: &TrialResult) -> Option<u64> {
    let ports = |g: &GroupCounts| g.arrived_at.iter().filter(|frames| **frames > 0).count();
    result.groups.iter().all(|g| ports(g) < 2).then(|| result.sum(|g| g.reordered))
}

/// Names the routes that stayed out of reach, `first` being the index of the flow's first route.
pub fn unreachable(outcome: &mut Outcome, key: &str, routes: &Routes, first: u32, outage: &Outage) {
    list_unreachable(outcome, key, routes, outage.unreachable.iter().map(|index| first + index));
}

/// Lists routes as a table of prefixes.
pub fn list_unreachable(outcome: &mut Outcome, key: &str, routes: &Routes, indices: impl Iterator<Item = u32>) {
    let mut rows = indices.peekable();
    if rows.peek().is_none() {
        return;
    }
    let key = format!("{key}_unreachable");
    if outcome.tables.iter().all(|t| t.key != key) {
        outcome.tables.push(Table {
            key: key.clone(),
            title: "Unreachable routes".into(),
            columns: vec![Column::new("prefix", "Prefix", "")],
            rows: Vec::new(),
        });
    }
    for index in rows {
        row(outcome, &key, Row { cells: vec![routes.prefix(index).to_string().into()], ..Row::default() });
    }
}

/// Adds the figures `{key}_{family}_median_ms` and `_max_ms`.
pub fn rank(outcome: &mut Outcome, key: &str, title: &str, family: Family, outage: &Outage) {
    let name = family.to_string().to_lowercase();
    let whole = outage.unreachable.is_empty();
    let exact_ms = outage.resolution_s() * 1e3;
    for (word, share) in [("median", 0.5), ("max", 1.0)] {
        let value = outage.percentile_s(share).filter(|_| whole).map(|s| s * 1e3);
        outcome.ranks.push(RankFigure {
            key: format!("{key}_{name}_{word}_ms"),
            title: format!("{title} of {} routes, {word}, {family}", thousands(outage.routes as u64)),
            unit: "ms".into(),
            // A router that never got there has no time.
            value,
            higher_is_better: false,
            tester_limited: false,
            // Times that differ by no more than one frame to a route are the same.
            resolution: (1.01 * exact_ms / value.unwrap_or(0.0).max(exact_ms)).max(0.05),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_frames_become_time() {
        // 4 routes at 100 frames per second each; one second before the event, all of it lost.
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
        let resolution = |lost: u32| {
            let (offered, received) = (vec![100; 4], vec![100 - lost; 4]);
            let counts = DestinationCounts { offered, received, ..DestinationCounts::default() };
            let mut outcome = Outcome::default();
            rank(&mut outcome, "outage", "Outage", Family::Ipv4, &Outage::count(&counts, 40.0, None));
            outcome.ranks[1].resolution
        };
        // A frame to each route every 100 ms: none lost and one lost are the same, ten lost are known to a tenth.
        assert!(resolution(0) > 1.0 && resolution(1) > 1.0);
        assert!((resolution(10) - 0.101).abs() < 1e-9);
    }
}
