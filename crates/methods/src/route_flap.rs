//! Route flap: a part of the table is withdrawn and advertised again while traffic goes to all of it; every withdrawn route has
//! alternates behind other ports (core router test of 2001; terms of RFC 4098).

use crate::Method;
use crate::parameters::{self, count, seconds};
use crate::report::{SeriesKind, note, plot, point, row, table};
use crate::route_forwarding::{Way, load_paths};
use crate::route_tests::{self, for_each_family, one_per_port, routes, thousands};
use crate::route_traffic::{self, RouteTrial, Stream, smallest};
use crate::routing::RouteAction;
use crate::testbed::{TestError, Testbed};
use crate::throughput_search::{estimate, zero_loss_goal};
use drophammer_model::outcome::{Outcome, PlotKind, Point, RankFigure, Row};
use drophammer_model::registry::{FigureSpec, ParamKind, ParamSpec, TestSpec};
use drophammer_model::suite::Params;
use drophammer_model::trial::{Bin, Family, GroupCounts, TrialResult};
use std::time::Duration;

/// The test.
pub struct RouteFlap;

static SPEC: TestSpec = TestSpec {
    name: "route_flap",
    title: "Route flap",
    summary: "what traffic on stable and on flapped paths suffers while routes are withdrawn and advertised again",
    source: "core router test of 2001: 50,000 of 200,000 routes, three times, 30 s apart; terms of RFC 4098",
    needs: route_traffic::NEEDS,
    params: &parameters::joined::<19>(&[
        &[
            route_tests::FAMILIES,
            route_tests::TABLE,
            ParamSpec::new("routes", ParamKind::Count, "40000", "200000", "routes in all"),
            ParamSpec::new(
                "flapped",
                ParamKind::Count,
                "10000",
                "50000",
                "routes that are withdrawn and advertised again",
            ),
            ParamSpec::new("interval", ParamKind::Duration, "2 s", "30 s", "time between two changes"),
            ParamSpec::new(
                "cycles",
                ParamKind::Count,
                "3",
                "3",
                "times that routes are withdrawn and advertised again",
            ),
            ParamSpec::new("bin", ParamKind::Duration, "50 ms", "1 s", "width of time bins"),
        ],
        &route_traffic::LOADED,
        &route_tests::SESSIONS,
    ]),
    figures: &[
        FigureSpec { key: "flap_stable_loss_ipv4_percent", help: "share of lost frames on stable IPv4 paths" },
        FigureSpec { key: "flap_stable_loss_ipv6_percent", help: "the same for IPv6" },
        FigureSpec { key: "flap_flapped_loss_ipv4_percent", help: "share of lost frames on flapped IPv4 paths" },
        FigureSpec { key: "flap_flapped_loss_ipv6_percent", help: "the same for IPv6" },
    ],
};

const TABLE: &str = "route_flap";
const EVENTS: &str = "route_flap_events";
const STABLE: &str = "stable";
const FLAPPED: &str = "flapped";

impl Method for RouteFlap {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        prepare(outcome);
        let mut notes = Vec::new();
        let result = for_each_family(bed, params, &mut notes, |bed, family, _| flap(bed, family, params, outcome));
        notes.into_iter().for_each(|text| note(outcome, text));
        result
    }

    fn estimate(&self, params: &Params) -> Duration {
        estimate(params, &[zero_loss_goal(params)]) + self.estimate_known(params)
    }

    fn estimate_known(&self, params: &Params) -> Duration {
        let trial = seconds(params, "interval", 30.0) * f64::from(2 * count(params, "cycles") + 1);
        let load = f64::from(routes(params, "routes")) * 6.0 / 60_000.0 + 6.0;
        Duration::from_secs_f64((trial + load + 3.0) * route_tests::families(params).len() as f64)
    }

    fn deviations(&self, params: &Params) -> Vec<String> {
        let interval = seconds(params, "interval", 30.0);
        (interval < 30.0).then(|| format!("{interval} s between changes instead of 30 s")).into_iter().collect()
    }
}

fn prepare(outcome: &mut Outcome) {
    table(
        outcome,
        TABLE,
        "Route flap",
        &[
            ("family", "Family", ""),
            ("paths", "Paths", ""),
            ("routes", "Routes", ""),
            ("offered", "Offered", "frames"),
            ("received", "Received", "frames"),
            ("lost", "Lost", "frames"),
            ("loss_percent", "Loss", "%"),
            ("alternate", "Over alternate paths", "frames"),
            ("lowest_pps", "Lowest rate", "fps"),
            ("mean_pps", "Mean rate", "fps"),
        ],
    );
    table(
        outcome,
        EVENTS,
        "Route flap, event by event",
        &[
            ("family", "Family", ""),
            ("event", "Event", ""),
            ("at_s", "At", "s"),
            ("stable_lost", "Lost on stable paths", "frames"),
            ("flapped_lost", "Lost on flapped paths", "frames"),
            ("outage_s", "Last loss on flapped paths after", "s"),
        ],
    );
    plot(
        outcome,
        TABLE,
        "Forwarding rate on stable and flapped paths",
        PlotKind::Line,
        "time, s",
        "arrivals, fps",
        false,
    );
    note(
        outcome,
        "Each route has a second path behind another port, and a third one where the suite has a fourth port, so that there is \
         always somewhere to send to. Nothing is to be lost on stable paths.",
    );
}

fn flap(bed: &mut dyn Testbed, family: Family, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
    let peers = one_per_port(bed, family, 3)?;
    let rate = route_traffic::load(bed, family, params, outcome)?;
    let packing = route_tests::packing(params)?;
    let all = route_tests::table(bed, params, family, routes(params, "routes"))?;
    let flapped = routes(params, "flapped").min(all.len());
    let (interval, bin_s) = (seconds(params, "interval", 30.0), seconds(params, "bin", 1.0));
    let cycles = count(params, "cycles");
    let (source, origins) = (peers[0], &peers[1..peers.len().min(4)]);
    let ports: Vec<usize> = bed.routing()?.peers().iter().map(|p| p.port).collect();
    let stream = |group: &str, part: std::ops::Range<u32>, also: Vec<usize>| Stream {
        group: group.to_owned(),
        from: ports[source],
        to: ports[origins[0]],
        also,
        routes: all.clone(),
        part,
    };
    let alternates: Vec<usize> = origins[1..].iter().map(|p| ports[*p]).collect();
    let part = all.len() - flapped..all.len();
    let mut changes = Vec::new();
    for cycle in 0..cycles {
        let at = f64::from(2 * cycle + 1) * interval;
        let peer = origins[0];
        let withdraw = RouteAction::Withdraw { peer, routes: all.clone(), part: part.clone(), packing };
        let announce = RouteAction::Announce { peer, routes: all.clone(), part: part.clone(), packing };
        changes.push((at, "withdrawn".to_owned(), vec![withdraw]));
        changes.push((at + interval, "advertised".to_owned(), vec![announce]));
    }
    let duration_s = f64::from(2 * cycles + 1) * interval;
    let mut streams = vec![stream(FLAPPED, part.clone(), alternates)];
    if part.start > 0 {
        streams.insert(0, stream(STABLE, 0..part.start, Vec::new()));
    }
    let trial = RouteTrial {
        purpose: format!(
            "route flap {family}: {} of {} routes",
            thousands(flapped.into()),
            thousands(all.len().into())
        ),
        size: smallest(family),
        streams,
        rate,
        duration_s,
        bin_s: Some(bin_s),
        per_route: false,
        changes,
    };
    bed.progress(&trial.purpose, 0, 1);
    let way = Way { from: ports[source], to: ports[origins[0]], routes: all.clone(), part: 0..all.len(), rate };
    let result = route_traffic::run(bed, params, &trial, |bed| {
        load_paths(bed, params, outcome, source, origins, &way, packing)
    })?;
    route_tests::note_losses(bed, family, &peers[..peers.len().min(4)], outcome)?;
    let shape = Shape { family, bin_s, duration_s, all: all.len(), flapped, primary: ports[origins[0]] };
    write(outcome, &result, &shape);
    Ok(())
}

struct Shape {
    family: Family,
    bin_s: f64,
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
        // The first bin and the last one of the traffic may be parts, and behind it nothing is sent.
        let whole = (shape.duration_s / bin_s + 1e-6) as usize;
        let inner = rates.get(1..whole.min(rates.len())).unwrap_or_default();
        let loss = if g.offered == 0 { None } else { Some(g.lost as f64 / g.offered as f64 * 100.0) };
        row(
            outcome,
            TABLE,
            Row {
                cells: vec![
                    family.to_string().into(),
                    paths.into(),
                    u64::from(routes).into(),
                    g.offered.into(),
                    g.received.into(),
                    g.lost.into(),
                    loss.into(),
                    elsewhere(g, shape.primary).into(),
                    inner.iter().copied().min_by(f64::total_cmp).into(),
                    (!inner.is_empty()).then(|| crate::report::mean(inner)).into(),
                ],
                trials: vec![result.trial],
                marks: Vec::new(),
            },
        );
        for (at, rate) in rates.iter().enumerate() {
            let dot = Point { x: at as f64 * bin_s, y: *rate, trial: Some(result.trial), ..Point::default() };
            point(outcome, TABLE, &format!("{family}, {paths}"), SeriesKind::Curve, dot);
        }
        outcome.ranks.push(RankFigure {
            key: format!("flap_{paths}_loss_{name}_percent"),
            title: format!("Loss on {paths} paths during route flap, {family}"),
            unit: "%".into(),
            value: loss,
            higher_is_better: false,
            tester_limited: false,
            resolution: 0.1,
        });
    }
    for (index, event) in result.events.iter().enumerate() {
        let until = result.events.get(index + 1).map_or(shape.duration_s, |next| next.at_s);
        let lost = |paths: &str| of(paths).map(|g| lost_between(&g.bins, bin_s, event.at_s, until));
        let (stable, flapped) = (lost(STABLE), lost(FLAPPED));
        let outage = flapped.map(|(_, last)| last.map_or(0.0, |at| (at - event.at_s).max(0.0)));
        row(
            outcome,
            EVENTS,
            Row {
                cells: vec![
                    family.to_string().into(),
                    event.label.clone().into(),
                    event.at_s.into(),
                    stable.map(|(lost, _)| lost).into(),
                    flapped.map(|(lost, _)| lost).into(),
                    outage.into(),
                ],
                trials: vec![result.trial],
                marks: Vec::new(),
            },
        );
        if let Some(plot) = outcome.plots.iter_mut().find(|p| p.key == TABLE) {
            plot.events.push((event.at_s, event.label.clone()));
        }
    }
}

/// Received frames that did not come by the primary path.
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
