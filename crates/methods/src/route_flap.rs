//! Route flap: a part of the table is withdrawn and advertised again while traffic goes to all of it; every withdrawn
//! route has alternate paths behind other ports (core router test of 2001; terms of RFC 4098).

use crate::Method;
use crate::columns;
use crate::parameters::params;
use crate::report::{LEAST_LOSS_PERCENT, PlotSpec, lower_by_difference, mean, note, percent_of, xy_of};
use crate::route_forwarding::{least_probes, load_paths};
use crate::route_tests::{self, Case, for_each_family, thousands};
use crate::route_traffic::{self, RouteTrial, Stream, smallest};
use crate::routes_sent;
use crate::table::TableSpec;
use crate::testbed::{TestError, Testbed};
use crate::throughput_search::known_trials;
use crate::trial_count::TrialCount;
use drophammer_model::outcome::{Outcome, PlotKind};
use drophammer_model::param::Param;
use drophammer_model::registry::{FigureSpec, TestSpec};
use drophammer_model::suite::Params;
use drophammer_model::trial::{Bin, Family, GroupCounts, TrialResult};
use std::time::Duration;

/// The test.
pub struct RouteFlap;

const ROUTES: Param<u32> = Param::new("routes", "40000", "200000", "routes in all");
const FLAPPED_ROUTES: Param<u32> =
    Param::new("flapped", "10000", "50000", "routes that are withdrawn and advertised again");
const INTERVAL: Param<Duration> = Param::new("interval", "2 s", "30 s", "time between two changes");
const CYCLES: Param<u32> = Param::new("cycles", "3", "3", "times that routes are withdrawn and advertised again");
const BIN: Param<Duration> = Param::new("bin", "50 ms", "1 s", "width of time bins");

static SPEC: TestSpec = TestSpec {
    name: "route_flap",
    title: "Route flap",
    summary: "what traffic on stable and on flapped paths suffers while routes are withdrawn and advertised again",
    source: "core router test of 2001: 50,000 of 200,000 routes, three times, 30 s apart; terms of RFC 4098",
    needs: route_traffic::NEEDS,
    params: params![
        &route_tests::TABLES,
        &[ROUTES.spec(), FLAPPED_ROUTES.spec(), INTERVAL.spec(), CYCLES.spec(), BIN.spec()],
        &route_traffic::LOADED,
        &route_tests::SESSIONS,
    ],
    figures: &[
        FigureSpec { key: "flap_stable_loss_ipv4_percent", help: "share of lost frames on stable IPv4 paths" },
        FigureSpec { key: "flap_stable_loss_ipv6_percent", help: "the same for IPv6" },
        FigureSpec { key: "flap_flapped_loss_ipv4_percent", help: "share of lost frames on flapped IPv4 paths" },
        FigureSpec { key: "flap_flapped_loss_ipv6_percent", help: "the same for IPv6" },
    ],
    tables: &[PATHS.shape(), EVENTS.shape(), routes_sent::SHAPE],
};

columns! {
    /// Stable or flapped paths, over the whole trial.
    struct PathsRow {
        family: Family = "Family",
        paths: String = "Paths",
        routes: u64 = "Routes",
        offered: u64 = "Offered" ["frames"],
        received: u64 = "Received" ["frames"],
        lost: u64 = "Lost" ["frames"],
        loss_percent: Option<f64> = "Loss" ["%"],
        alternate: u64 = "Over alternate paths" ["frames"],
        lowest_pps: Option<f64> = "Lowest rate" ["fps"],
        mean_pps: Option<f64> = "Mean rate" ["fps"],
    }
}

columns! {
    /// One withdrawal or advertisement.
    struct EventRow {
        family: Family = "Family",
        event: String = "Event",
        at_s: f64 = "At" ["s"],
        stable_lost: Option<u64> = "Lost on stable paths" ["frames"],
        flapped_lost: Option<u64> = "Lost on flapped paths" ["frames"],
        outage_s: Option<f64> = "Last loss on flapped paths after" ["s"],
        resolution_s: f64 = "Resolution" ["s"],
    }
}

const PATHS: TableSpec<PathsRow> = TableSpec::new("route_flap", "Route flap");
const EVENTS: TableSpec<EventRow> = TableSpec::new("route_flap_events", "Route flap, event by event");
const PLOT: PlotSpec = PlotSpec {
    key: "route_flap",
    title: "Forwarding rate on stable and flapped paths",
    kind: PlotKind::Line,
    x: "time, s",
    y: "arrivals, fps",
    log_y: false,
};
const STABLE: &str = "stable";
const FLAPPED: &str = "flapped";

impl Method for RouteFlap {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        PATHS.begin(outcome);
        EVENTS.begin(outcome);
        PLOT.begin(outcome);
        note(
            outcome,
            "Each route has a second path behind another port, and a third one where the suite has a fourth port, so that there is \
             always somewhere to send to. Nothing is to be lost on stable paths.",
        );
        for_each_family(bed, params, outcome, |bed, family, outcome| flap(bed, family, params, outcome))
    }

    fn estimate(&self, params: &Params) -> Duration {
        route_traffic::estimate_search(params) + self.estimate_known(params)
    }

    fn estimate_known(&self, params: &Params) -> Duration {
        let trial = INTERVAL.seconds(params) * f64::from(2 * CYCLES.get(params) + 1);
        let load = f64::from(ROUTES.get(params)) * 6.0 / 60_000.0 + 6.0;
        Duration::from_secs_f64((trial + load + 3.0) * route_tests::families(params))
    }

    fn trials(&self, params: &Params, searches: usize) -> Option<TrialCount> {
        // There are two or three origins.
        let each = TrialCount::exactly(1 + least_probes(2)).or_more();
        Some(each.times(route_tests::FAMILIES.get(params).len()) + known_trials(params, searches))
    }

    fn deviations(&self, params: &Params) -> Vec<String> {
        let interval = INTERVAL.seconds(params);
        (interval < 30.0).then(|| format!("{interval} s between changes instead of 30 s")).into_iter().collect()
    }
}

fn flap(bed: &mut dyn Testbed, family: Family, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
    let case = Case::new(bed, family, params, 3, ROUTES.get(params))?;
    let rate = route_traffic::load(bed, family, params, outcome)?;
    let all = case.all.len();
    let flapped = FLAPPED_ROUTES.get(params).min(all);
    let (interval, bin_s) = (INTERVAL.seconds(params), BIN.seconds(params));
    let cycles = CYCLES.get(params);
    let used = &case.peers[..case.peers.len().min(4)];
    let (source, origins) = (used[0], &used[1..]);
    let alternates: Vec<usize> = origins[1..].iter().map(|peer| case.port(*peer)).collect();
    let part = all - flapped..all;
    let mut changes = Vec::new();
    for cycle in 0..cycles {
        let at = f64::from(2 * cycle + 1) * interval;
        changes.push((at, "withdrawn".to_owned(), vec![case.withdraw(origins[0], part.clone())]));
        changes.push((at + interval, "advertised".to_owned(), vec![case.advertise(origins[0], part.clone())]));
    }
    let duration_s = f64::from(2 * cycles + 1) * interval;
    let stable = Stream { group: STABLE.into(), ..case.stream(source, origins[0], 0..part.start) };
    let flapping = Stream { group: FLAPPED.into(), also: alternates, ..case.stream(source, origins[0], part) };
    let streams = [stable, flapping].into_iter().filter(|stream| !stream.part.is_empty()).collect();
    let trial = RouteTrial {
        purpose: format!("route flap {family}: {} of {} routes", thousands(flapped.into()), thousands(all.into())),
        size: smallest(family),
        streams,
        rate,
        duration_s,
        bin_s: Some(bin_s),
        per_route: false,
        changes,
    };
    bed.progress(&trial.purpose, 0, 1);
    let result =
        route_traffic::run(bed, params, &trial, |bed| load_paths(bed, params, outcome, &case, source, origins, rate))?;
    route_tests::note_losses(bed, family, used, outcome)?;
    // No time is more exact than a bin, or than the time between two frames to a route.
    let resolution_s = bin_s.max(f64::from(all) / rate.pps());
    let shape = Shape { family, bin_s, resolution_s, duration_s, all, flapped, primary: case.port(origins[0]) };
    write(outcome, &result, &shape);
    Ok(())
}

struct Shape {
    family: Family,
    bin_s: f64,
    resolution_s: f64,
    duration_s: f64,
    all: u32,
    flapped: u32,
    primary: usize,
}

/// Frames lost in the bins from `from_s` to `to_s`, and the end of the last bin with a loss.
fn lost_between(bins: &[Bin], bin_s: f64, from_s: f64, to_s: f64) -> (u64, Option<f64>) {
    let range = (from_s / bin_s).floor() as usize..((to_s / bin_s).floor() as usize).min(bins.len());
    let lost = |i: usize| bins[i].offered.saturating_sub(bins[i].delivered);
    let last = range.clone().rev().find(|i| lost(*i) > 0).map(|i| (i as f64 + 1.0) * bin_s);
    (range.map(lost).sum(), last)
}

fn write(outcome: &mut Outcome, result: &TrialResult, shape: &Shape) {
    let Shape { family, bin_s, .. } = *shape;
    let of = |name: &str| result.groups.iter().find(|g| g.group == name);
    let name = family.to_string().to_lowercase();
    for (paths, routes) in [(STABLE, shape.all - shape.flapped), (FLAPPED, shape.flapped)] {
        let Some(g) = of(paths) else { continue };
        let rates: Vec<f64> = g.bins.iter().map(|b| b.arrived as f64 / bin_s).collect();
        // The first and the last bin may be partial, and no frames are sent after that.
        let whole = (shape.duration_s / bin_s + 1e-6) as usize;
        let inner = rates.get(1..whole.min(rates.len())).unwrap_or_default();
        let loss_percent = percent_of(g.lost, g.offered);
        PATHS.add(
            outcome,
            PathsRow {
                family,
                paths: paths.into(),
                routes: routes.into(),
                offered: g.offered,
                received: g.received,
                lost: g.lost,
                loss_percent,
                alternate: elsewhere(g, shape.primary),
                lowest_pps: inner.iter().copied().min_by(f64::total_cmp),
                mean_pps: (!inner.is_empty()).then(|| mean(inner)),
            },
            [result.trial],
            [],
        );
        for (at, rate) in rates.iter().enumerate() {
            PLOT.curve(outcome, &format!("{family}, {paths}"), xy_of(at as f64 * bin_s, *rate, result.trial));
        }
        let key = format!("flap_{paths}_loss_{name}_percent");
        let title = format!("Loss on {paths} paths during route flap, {family}");
        outcome.ranks.push(lower_by_difference(key, title, "%", loss_percent, LEAST_LOSS_PERCENT));
    }
    for (index, event) in result.events.iter().enumerate() {
        let until = result.events.get(index + 1).map_or(shape.duration_s, |next| next.at_s);
        let lost = |paths: &str| of(paths).map(|g| lost_between(&g.bins, bin_s, event.at_s, until));
        let (stable, flapped) = (lost(STABLE), lost(FLAPPED));
        EVENTS.add(
            outcome,
            EventRow {
                family,
                event: event.label.clone(),
                at_s: event.at_s,
                stable_lost: stable.map(|(lost, _)| lost),
                flapped_lost: flapped.map(|(lost, _)| lost),
                outage_s: flapped.map(|(_, last)| last.map_or(0.0, |at| (at - event.at_s).max(0.0))),
                resolution_s: shape.resolution_s,
            },
            [result.trial],
            [],
        );
        PLOT.event(outcome, event.at_s, &event.label);
    }
}

/// Received frames that did not take the primary path.
fn elsewhere(group: &GroupCounts, primary: usize) -> u64 {
    let other = |(port, frames): (usize, &u64)| if port == primary { 0 } else { *frames };
    group.arrived_at.iter().enumerate().map(other).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_belong_to_the_event_before_them() {
        let mut bins = vec![Bin { offered: 10, delivered: 10, arrived: 10 }; 12];
        bins[5].delivered = 4;
        bins[6].delivered = 9;
        bins[9].delivered = 0;
        assert_eq!(lost_between(&bins, 0.5, 2.5, 4.0), (7, Some(3.5)));
        assert_eq!(lost_between(&bins, 0.5, 4.0, 6.0), (10, Some(5.0)));
        assert_eq!(lost_between(&bins, 0.5, 0.0, 2.5), (0, None));
    }
}
