//! Outage of each route: the route-specific method of RFC 6413 section 6.3, and its report.

use crate::figure::of_family;
use crate::kit::prelude::*;
use crate::route_tests::thousands;
use drophammer_model::routes::Routes;
use drophammer_model::trial::{DestinationCounts, GroupCounts};

/// The event of a trial, in seconds after the first departure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// The routes are advertised. Until then, every route is unreachable, and this time does not count.
    Advertised(f64),
    /// The best paths fail. Until then, every route is reachable.
    Failed(f64),
}

impl Event {
    /// Time before the event during which no frame arrives, in seconds.
    fn silent_s(self) -> f64 {
        match self {
            Event::Advertised(at_s) => at_s,
            Event::Failed(_) => 0.0,
        }
    }

    /// Time before the event during which every frame arrives, in seconds.
    fn reachable_s(self) -> f64 {
        match self {
            Event::Advertised(_) => 0.0,
            Event::Failed(at_s) => at_s,
        }
    }
}

/// Outage of the routes of one flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Outage {
    /// Outages by route, in seconds, ascending. Contains only routes whose frames arrived in the end.
    pub sorted_s: Vec<f64>,
    /// The routes of `sorted_s` in its order, by index within the flow.
    pub order: Vec<u32>,
    /// Routes, by index within the flow, whose frames did not arrive even at the end.
    pub unreachable: Vec<u32>,
    /// Number of routes to which no frame was offered.
    pub unsent: usize,
    /// Number of routes in `sorted_s` whose last frame was lost, possibly by chance.
    pub unsure: usize,
    /// Routes, by index within the flow, to which frames arrived before they were advertised. They have no time.
    pub early: Vec<u32>,
    /// Total number of routes.
    pub routes: usize,
    /// Frames per second to each route.
    pub rate_per_route: f64,
    /// Frames lost because of the change, divided by the load (RFC 6413 section 6.2.3), in seconds.
    pub loss_derived_s: f64,
}

impl Outage {
    /// Derives the outage from the first flow of a trial that offered `rate_pps` for all routes together. `None` if
    /// frames were not counted per route.
    pub fn of(result: &TrialResult, rate_pps: f64, event: Event) -> Option<Outage> {
        result.destinations.first().map(|counts| Outage::count(counts, rate_pps, event))
    }

    fn count(counts: &DestinationCounts, rate_pps: f64, event: Event) -> Outage {
        let routes = counts.offered.len();
        let rate_per_route = rate_pps / routes.max(1) as f64;
        let judge = Judge::new(counts, rate_per_route, event);
        let mut outage = Outage {
            sorted_s: Vec::new(),
            order: Vec::new(),
            unreachable: Vec::new(),
            unsent: 0,
            unsure: 0,
            early: Vec::new(),
            routes,
            rate_per_route,
            loss_derived_s: 0.0,
        };
        let (mut lost_in_all, mut offered_in_all) = (0u64, 0u64);
        let mut timed = Vec::new();
        for (index, offered) in counts.offered.iter().enumerate() {
            let lost = counts.lost(index);
            lost_in_all += u64::from(lost);
            offered_in_all += u64::from(*offered);
            let fate = judge.fate(index);
            match fate {
                Fate::Unsent => outage.unsent += 1,
                Fate::Unreachable => outage.unreachable.push(index as u32),
                // Frames go to each route at different times relative to the event.
                _ if f64::from(lost) + 1.01 < event.silent_s() * rate_per_route => outage.early.push(index as u32),
                Fate::Reachable | Fate::Unsure => {
                    outage.unsure += usize::from(fate == Fate::Unsure);
                    let outage_s = (f64::from(lost) / rate_per_route - event.silent_s()).max(0.0);
                    timed.push((outage_s, index as u32));
                }
            }
        }
        timed.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        (outage.sorted_s, outage.order) = timed.into_iter().unzip();
        if offered_in_all > 0 {
            outage.loss_derived_s = (lost_in_all as f64 / rate_pps - event.silent_s()).max(0.0);
        }
        outage
    }

    /// True if every route has a time. Otherwise the test has no figure.
    pub fn is_whole(&self) -> bool {
        self.unreachable.is_empty() && self.unsent == 0 && self.early.is_empty()
    }

    /// Remarks about the times, for the report.
    fn marks(&self) -> Vec<String> {
        let mut marks = Vec::new();
        if !self.unreachable.is_empty() {
            marks.push("times cover only the reachable routes".into());
        }
        if self.unsent > 0 {
            marks.push(format!("routes that got no frame: {}", thousands(self.unsent as u64)));
        }
        if !self.early.is_empty() {
            let early = thousands(self.early.len() as u64);
            marks.push(format!(
                "routes without a time, because frames to them arrived before the advertisement: {early}"
            ));
        }
        if self.unsure > 0 {
            marks.push(format!(
                "routes with a time although their last frame was lost: {}",
                thousands(self.unsure as u64)
            ));
        }
        marks
    }

    /// The outage, in seconds, that this share of the reachable routes does not exceed.
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

/// What the frames to a route show about the route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// No frame was sent to the route.
    Unsent,
    /// Its last frame arrived.
    Reachable,
    /// Its last frame was lost, possibly by chance.
    Unsure,
    /// Its frames did not arrive even at the end.
    Unreachable,
}

/// Distinguishes routes that are unreachable at the end from routes that lose a frame by chance.
struct Judge<'a> {
    counts: &'a DestinationCounts,
    rate_per_route: f64,
    /// Maximum number of frames that arrive if a route is unreachable after the event. The event takes a moment, so one
    /// frame may still arrive.
    most_received: f64,
    /// Maximum number of frames that a reachable route loses, judged by the routes whose last frame arrived.
    most_lost: u32,
}

/// Number of frames by which the loss of a route may exceed the loss of others: one lost by chance, and one because the
/// frames to each route are sent at different times relative to the event.
const MARGIN: u32 = 2;

impl<'a> Judge<'a> {
    fn new(counts: &'a DestinationCounts, rate_per_route: f64, event: Event) -> Judge<'a> {
        let most_received = event.reachable_s() * rate_per_route + 1.0;
        let judge = Judge { counts, rate_per_route, most_received, most_lost: MARGIN };
        let reached = (0..counts.offered.len()).filter(|i| judge.lost_last(*i) == Some(false));
        let most = reached.map(|i| counts.lost(i)).max().unwrap_or(0);
        Judge { most_lost: most.saturating_add(MARGIN), ..judge }
    }

    fn fate(&self, i: usize) -> Fate {
        let (received, lost) = (self.counts.received[i], self.counts.lost(i));
        if self.counts.offered[i] == 0 {
            return Fate::Unsent;
        }
        if received == 0 {
            return Fate::Unreachable;
        }
        let lost_last = self.lost_last(i);
        if lost_last == Some(false) {
            return Fate::Reachable;
        }
        let never_back = f64::from(received) <= self.most_received;
        let lost_again = lost_last == Some(true) && lost > self.most_lost;
        // A single lost frame proves nothing.
        if lost > 1 && (never_back || lost_again) {
            Fate::Unreachable
        } else if lost_last == Some(true) {
            Fate::Unsure
        } else {
            Fate::Reachable
        }
    }

    /// True if the last frame to a route was lost; `None` if the trial does not show which frames were lost.
    fn lost_last(&self, i: usize) -> Option<bool> {
        match *self.counts.last_lost_us.get(i)? {
            DestinationCounts::NEVER => Some(false),
            // The largest value also stands for all later times.
            us if us == DestinationCounts::NEVER - 1 => None,
            us => {
                // Frames go to all routes in rounds. Times are rounded down to a microsecond.
                let round = (f64::from(us) + 1.0) * self.rate_per_route / 1e6;
                Some((round as u32).saturating_add(1) >= self.counts.offered[i])
            }
        }
    }
}

columns! {
    /// The outages of one case.
    pub struct OutageRow {
        case: String,
        routes: u64,
        unreachable: u64 = "Unreachable at the end",
        min_ms: Option<f64> = "Minimum" ["ms"],
        median_ms: Option<f64> ["ms"],
        p99_ms: Option<f64> = "99 %" ["ms"],
        max_ms: Option<f64> = "Maximum" ["ms"],
        loss_derived_ms: f64 = "Loss-derived" ["ms"],
        resolution_ms: f64 ["ms"],
        rate_pps: f64 = "Load" ["fps"],
        duplicated: u64 = "Duplicates" ["frames"],
        reordered: Option<u64> ["frames"],
    }
}

columns! {
    /// A route that stayed unreachable.
    pub struct UnreachableRow {
        prefix: String,
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
    /// The median and the longest outage of each family.
    pub figures: [&'static [FigureSpec; 2]; 2],
}

impl OutageReport {
    /// The tables and the plot of a test. The plot has the same key as the table.
    pub const fn new(
        table: TableSpec<OutageRow>,
        unreachable: TableSpec<UnreachableRow>,
        plot_title: &'static str,
        figures: [&'static [FigureSpec; 2]; 2],
    ) -> OutageReport {
        let (x, y) = ("share of the routes, %", "time, ms");
        let plot = PlotSpec::new(table.key(), plot_title, PlotKind::Sorted, x, y).logarithmic();
        OutageReport { table, unreachable, plot, figures }
    }

    /// Adds the table and the plot.
    pub fn begin(&self, outcome: &mut Outcome) {
        self.table.begin(outcome);
        self.plot.begin(outcome);
    }

    /// Adds a row, a curve, the unreachable routes of `routes` and, with `title`, the figures of the median and of the
    /// longest outage.
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
        let figures = self.figures.map(|both| of_family(both, routes.family()));
        rank(outcome, figures, title, routes.family(), outage);
    }

    fn write(&self, outcome: &mut Outcome, family: Family, case: &str, outage: &Outage, result: &TrialResult) {
        let ms = |share: f64| outage.percentile_s(share).map(|s| s * 1e3);
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
            outage.marks(),
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
                    "{family}, {case}: each route gets a frame every {every_ms:.0} ms, so no single time is more exact than that."
                ),
            );
        }
    }
}

/// Maximum number of points of a curve; more are not visible.
const POINTS: usize = 2_000;

/// Frames out of order; `None` if the frames of a group arrived at several ports or queues, because no order is defined
/// between them.
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

fn rank(outcome: &mut Outcome, [median, max]: [FigureSpec; 2], title: &str, family: Family, outage: &Outage) {
    let whole = outage.is_whole();
    let exact_ms = outage.resolution_s() * 1e3;
    // The router has not failed if the only routes without a time are those that got no frame.
    let unsent = outage.unsent > 0 && outage.unreachable.is_empty() && outage.early.is_empty();
    for (spec, word, share) in [(median, "median", 0.5), (max, "max", 1.0)] {
        // If a router does not forward to all routes in the end, or if some routes got no frame, there is no time.
        let value = outage.percentile_s(share).filter(|_| whole).map(|s| s * 1e3);
        let title = format!("{title} of {} routes, {word}, {family}", thousands(outage.routes as u64));
        // Times are equal if they differ by at most the time between two frames to a route.
        let figure = spec.by(exact_ms).of(&[], title, value);
        outcome.ranks.push(if unsent {
            figure.beyond("some routes got no frame; use fewer routes, a higher load or a longer window")
        } else {
            figure.because("frames to some routes did not arrive in the end, or arrived before the advertisement")
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::outcome::Blame;

    const OUTAGE: [FigureSpec; 2] =
        [FigureSpec::lower("outage_median_ms", "ms", ""), FigureSpec::lower("outage_max_ms", "ms", "")];

    #[test]
    fn lost_frames_become_time() {
        // 4 routes at 100 frames per second each; all frames are lost for one second before the event.
        let counts = DestinationCounts {
            offered: vec![400; 4],
            received: vec![300, 250, 0, 299],
            ..DestinationCounts::default()
        };
        let outage = Outage::count(&counts, 400.0, Event::Advertised(1.0));
        assert_eq!(outage.unreachable, [2]);
        let expected = [0.0, 0.01, 0.5];
        assert!(outage.sorted_s.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{outage:?}");
        assert_eq!(outage.percentile_s(1.0), outage.sorted_s.last().copied());
        assert_eq!(outage.percentile_s(0.5), Some(outage.sorted_s[1]));
        assert!((outage.resolution_s() - 0.01).abs() < 1e-12);
    }

    #[test]
    fn a_route_that_is_forwarded_to_before_its_advertisement_has_no_time() {
        let routes = [
            route(&[("x", 5), ("x", 3), (".", 32)]),
            route(&[("x", 4), (".", 36)]),
            route(&[("x", 3), (".", 37)]),
            route(&[(".", 40)]),
        ];
        let outage = seen(&routes, Event::Advertised(0.5));
        assert_eq!((outage.early.as_slice(), outage.unreachable.len()), (&[2, 3][..], 0));
        about(&outage.sorted_s, &[0.0, 0.3]);
        let marks = ["routes without a time, because frames to them arrived before the advertisement: 2"];
        assert_eq!(outage.marks(), marks);
        assert!(!has_figures(&outage));
    }

    #[test]
    fn routes_that_got_no_frame_are_not_the_routers_fault() {
        let blamed = |offered: &[u32], received: &[u32]| {
            let (offered, received) = (offered.to_vec(), received.to_vec());
            let counts = DestinationCounts { offered, received, ..DestinationCounts::default() };
            let mut outcome = Outcome::default();
            let outage = Outage::count(&counts, 200.0, Event::Failed(1.0));
            rank(&mut outcome, OUTAGE, "Outage", Family::Ipv4, &outage);
            outcome.ranks[0].missing.as_ref().map(|missing| missing.by)
        };
        assert_eq!(blamed(&[100, 100], &[100, 100]), None);
        assert_eq!(blamed(&[100, 0], &[100, 0]), Some(Blame::Beyond));
        // Another route is not forwarded to.
        assert_eq!(blamed(&[100, 0, 100], &[100, 0, 0]), Some(Blame::Dut));
    }

    #[test]
    fn times_within_a_frame_of_each_other_rank_the_same() {
        let least = |lost: u32| {
            let (offered, received) = (vec![100; 4], vec![100 - lost; 4]);
            let counts = DestinationCounts { offered, received, ..DestinationCounts::default() };
            let mut outcome = Outcome::default();
            let outage = Outage::count(&counts, 40.0, Event::Failed(1.0));
            rank(&mut outcome, OUTAGE, "Outage", Family::Ipv4, &outage);
            (outcome.ranks[1].value.unwrap(), outcome.ranks[1].least)
        };
        // A frame to each route every 100 ms.
        for (lost, ms) in [(0, 0.0), (1, 100.0), (10, 1_000.0)] {
            let (value, least) = least(lost);
            assert!((value - ms).abs() < 1e-6 && (least - 100.0).abs() < 1e-6, "{lost}: {value}, {least}");
        }
    }

    /// Counts of routes that get 10 frames per second each: '.' is a frame that arrives, 'x' one that is lost.
    fn seen(routes: &[String], event: Event) -> Outage {
        let count = routes.len() as u32;
        let mut counts = DestinationCounts::default();
        for (place, frames) in (0u32..).zip(routes) {
            let lost = (0u32..).zip(frames.bytes()).filter(|(_, frame)| *frame == b'x');
            let lost_us: Vec<u32> = lost.map(|(round, _)| (round * count + place) * 100_000 / count).collect();
            counts.offered.push(frames.len() as u32);
            counts.received.push((frames.len() - lost_us.len()) as u32);
            counts.first_lost_us.push(lost_us.first().copied().unwrap_or(DestinationCounts::NEVER));
            counts.last_lost_us.push(lost_us.last().copied().unwrap_or(DestinationCounts::NEVER));
        }
        Outage::count(&counts, f64::from(count) * 10.0, event)
    }

    /// A route made from runs of such frames.
    fn route(runs: &[(&str, usize)]) -> String {
        runs.iter().map(|(frame, times)| frame.repeat(*times)).collect()
    }

    #[track_caller]
    fn about(found_s: &[f64], expected_s: &[f64]) {
        let near = found_s.iter().zip(expected_s).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(near && found_s.len() == expected_s.len(), "{found_s:?}, not {expected_s:?}");
    }

    fn has_figures(outage: &Outage) -> bool {
        let mut outcome = Outcome::default();
        rank(&mut outcome, OUTAGE, "Outage", Family::Ipv4, outage);
        outcome.ranks.iter().all(|rank| rank.value.is_some())
    }

    #[test]
    fn a_route_that_is_not_back_at_the_end_is_unreachable_though_frames_arrived_before_the_failure() {
        let routes = [
            route(&[(".", 10), ("x", 5), (".", 35)]),
            route(&[(".", 10), ("x", 40)]),
            // The failure took effect one frame later.
            route(&[(".", 11), ("x", 39)]),
            // Back, then lost again.
            route(&[(".", 10), ("x", 5), (".", 15), ("x", 20)]),
            route(&[(".", 50)]),
        ];
        let outage = seen(&routes, Event::Failed(1.0));
        assert_eq!((outage.unreachable.as_slice(), outage.unsure), (&[1, 2, 3][..], 0));
        about(&outage.sorted_s, &[0.0, 0.5]);
        assert_eq!(outage.marks(), ["times cover only the reachable routes"]);
        assert!(!has_figures(&outage));
        // Back only for the last frame.
        let outage = seen(&[route(&[(".", 10), ("x", 39), (".", 1)])], Event::Failed(1.0));
        assert!(has_figures(&outage) && outage.marks().is_empty(), "{outage:?}");
        about(&outage.sorted_s, &[3.9]);
        // No route is back, and the old path carried traffic for a while.
        let lost = route(&[(".", 15), ("x", 35)]);
        let outage = seen(&[lost.clone(), lost], Event::Failed(1.0));
        assert_eq!(outage.unreachable, [0, 1]);
    }

    #[test]
    fn a_frame_that_is_lost_by_chance_at_the_end_does_not_make_a_route_unreachable() {
        let routes = [
            route(&[(".", 10), ("x", 5), (".", 35)]),
            route(&[(".", 49), ("x", 1)]),
            route(&[(".", 10), ("x", 5), (".", 34), ("x", 1)]),
        ];
        let outage = seen(&routes, Event::Failed(1.0));
        assert!(has_figures(&outage), "{outage:?}");
        about(&outage.sorted_s, &[0.1, 0.5, 0.6]);
        assert_eq!(outage.order, [1, 0, 2]);
        assert_eq!(outage.marks(), ["routes with a time although their last frame was lost: 2"]);
    }

    #[test]
    fn an_advertised_route_that_is_lost_again_until_the_end_is_unreachable() {
        let routes = [
            route(&[("x", 5), ("x", 3), (".", 32)]),
            route(&[("x", 5), ("x", 2), (".", 10), ("x", 23)]),
            route(&[("x", 5), ("x", 3), (".", 31), ("x", 1)]),
            route(&[("x", 40)]),
        ];
        let outage = seen(&routes, Event::Advertised(0.5));
        assert_eq!((outage.unreachable.as_slice(), outage.unsure), (&[1, 3][..], 1));
        about(&outage.sorted_s, &[0.3, 0.4]);
        assert!(!has_figures(&outage));
    }

    #[test]
    fn a_route_to_which_no_frame_was_sent_has_no_time_and_leaves_no_figure() {
        for event in [Event::Failed(1.0), Event::Advertised(0.5)] {
            let outage = seen(&[route(&[("x", 6), (".", 20)]), String::new(), String::new()], event);
            assert_eq!((outage.sorted_s.len(), outage.unreachable.len(), outage.unsent), (1, 0, 2));
            assert_eq!(outage.marks(), ["routes that got no frame: 2"]);
            assert!(!has_figures(&outage));
        }
    }
}
