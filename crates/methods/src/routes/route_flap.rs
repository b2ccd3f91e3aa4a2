//! Route flap: a part of the table is withdrawn and advertised again while traffic goes to the whole table. Every
//! withdrawn route has alternate paths behind other ports (core router test of 2001; terms of RFC 4098). With fully
//! meshed traffic, each port has a part of the table and flaps its share of it, all ports at the same time.

use crate::figure::of_family;
use crate::kit::prelude::*;
use crate::route_forwarding::{least_probes, load_paths};
use crate::route_spread::{Behind, Spread};
use crate::route_tests::{self, Case, for_each_family, thousands};
use crate::route_traffic::{self, RouteTrial, Stream};
use crate::routes_sent;
use crate::routing::Change;
use drophammer_model::trial::{Bin, GroupCounts};
use std::ops::Range;

/// The test.
pub struct RouteFlap;

const ROUTES: Param<u32> = Param::new("routes", "40000", "200000", "routes in total");
const FLAPPED_ROUTES: Param<u32> =
    Param::new("flapped", "10000", "50000", "routes that are withdrawn and advertised again");
const INTERVAL: Param<Duration> = Param::new("interval", "2 s", "30 s", "time between two changes");
const CYCLES: Param<u32> = Param::fixed("cycles", "3", "how often routes are withdrawn and advertised again");
const BIN: Param<Duration> = Param::new("bin", "50 ms", "1 s", "width of time bins");

const STABLE_LOSS: [FigureSpec; 2] = [
    FigureSpec::lower_by_difference("flap_stable_loss_ipv4_percent", "%", "share of lost frames on stable IPv4 paths")
        .by(LEAST_LOSS_PERCENT),
    FigureSpec::lower_by_difference("flap_stable_loss_ipv6_percent", "%", "share of lost frames on stable IPv6 paths")
        .by(LEAST_LOSS_PERCENT),
];
const FLAPPED_LOSS: [FigureSpec; 2] = [
    FigureSpec::lower_by_difference(
        "flap_flapped_loss_ipv4_percent",
        "%",
        "share of lost frames on flapped IPv4 paths",
    )
    .by(LEAST_LOSS_PERCENT),
    FigureSpec::lower_by_difference(
        "flap_flapped_loss_ipv6_percent",
        "%",
        "share of lost frames on flapped IPv6 paths",
    )
    .by(LEAST_LOSS_PERCENT),
];

static SPEC: TestSpec = TestSpec {
    name: "route_flap",
    title: "Route flap",
    summary: "loss and rate on stable and flapped paths while routes are withdrawn and advertised again",
    source: "core router test of 2001: 50,000 of 200,000 routes, three times, 30 s apart; terms of RFC 4098",
    needs: route_traffic::NEEDS,
    params: params![
        &route_tests::TABLES,
        &[ROUTES.spec(), FLAPPED_ROUTES.spec(), INTERVAL.spec(), CYCLES.spec(), BIN.spec()],
        &route_traffic::SPREAD_ONE,
        &route_traffic::LOADED,
        &route_tests::SESSIONS,
    ],
    figures: &[STABLE_LOSS[0].shape(), STABLE_LOSS[1].shape(), FLAPPED_LOSS[0].shape(), FLAPPED_LOSS[1].shape()],
    tables: &[PATHS.shape(), EVENTS.shape(), routes_sent::SHAPE],
};

columns! {
    /// Stable or flapped paths, over the whole trial.
    struct PathsRow {
        family: Family,
        paths: String,
        routes: u64,
        offered: u64 ["frames"],
        received: u64 ["frames"],
        lost: u64 ["frames"],
        loss_percent: Option<f64> ["%"],
        alternate: u64 = "Over alternate paths" ["frames"],
        lowest_pps: Option<f64> = "Lowest rate" ["fps"],
        mean_pps: Option<f64> = "Mean rate" ["fps"],
        of_throughput_percent: Option<f64> = "Relative to their share of the throughput" ["%"],
    }
}

columns! {
    /// One withdrawal or advertisement.
    struct EventRow {
        family: Family,
        event: String,
        at_s: f64 ["s"],
        stable_lost: Option<u64> = "Lost on stable paths" ["frames"],
        flapped_lost: Option<u64> = "Lost on flapped paths" ["frames"],
        outage_s: Option<f64> = "Last loss on flapped paths after" ["s"],
        resolution_s: f64 ["s"],
    }
}

const PATHS: TableSpec<PathsRow> = TableSpec::new("route_flap", "Route flap");
const EVENTS: TableSpec<EventRow> = TableSpec::new("route_flap_events", "Route flap, event by event");
const PLOT: PlotSpec = PlotSpec::new(
    "route_flap",
    "Forwarding rate on stable and flapped paths",
    PlotKind::Line,
    "time, s",
    "arrivals per sending port, fps",
);
const STABLE: &str = "stable";
const FLAPPED: &str = "flapped";
/// Maximum number of paths to each route: the best one, a second and a third.
const PATHS_TO_EACH: usize = 3;
/// Mark of an event whose outage cannot be told apart from earlier loss.
const LOST_BEFORE: &str = "frames were also lost before this event, so no outage is given";

impl Method for RouteFlap {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let interval = INTERVAL.seconds(params);
        let load_s = f64::from(ROUTES.get(params)) * 6.0 / 60_000.0 + 6.0;
        let Percent(percent) = route_traffic::LOAD.get(params);
        let load = match route_traffic::RATE.get(params) {
            Some(rate) => Some(format!("{rate}")),
            None => (percent != 90.0).then(|| format!("{percent} %")),
        };
        let load = load
            .map(|load| format!("a load of {load} instead of 90 % of the throughput ({})", route_tests::CONFORMANT));
        Plan::by_family(&SPEC, params)
            // There are two or three origins.
            .counting(TrialCount::exactly(1 + least_probes(2)).or_more())
            .taking(interval * f64::from(2 * CYCLES.get(params) + 1) + load_s + 3.0)
            .deviating((interval < 30.0).then(|| format!("{interval} s between changes instead of 30 s")))
            .deviating(fewer(params, &ROUTES, "routes", 200_000, route_tests::CONFORMANT))
            .deviating(fewer(params, &FLAPPED_ROUTES, "flapped routes", 50_000, route_tests::CONFORMANT))
            .deviating(fewer(params, &CYCLES, "cycles", 3, route_tests::CONFORMANT))
            .deviating(load)
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        PATHS.begin(outcome);
        EVENTS.begin(outcome);
        PLOT.begin(outcome);
        note(
            outcome,
            "Each route has a second path behind another port, and a third one if the suite has a fourth port, so there is \
             always a path left. No frame should be lost on stable paths.",
        );
        for_each_family(bed, params, outcome, |bed, family, outcome| flap(bed, family, params, outcome))
    }
}

/// The frames to the stable or to the flapped routes behind one port.
struct Aim {
    paths: &'static str,
    /// Name of the flow group.
    group: String,
    /// Port of the best path.
    primary: PortIndex,
}

fn flap(bed: &mut dyn Testbed, family: Family, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
    let spread = Spread::new(Case::new(bed, family, params, 3, ROUTES.get(params))?, params)?;
    let mut loads = spread.loads(bed, params, outcome)?;
    let Some((size, rate)) = loads.pop() else { return Err(TestError::NotApplicable("no frame size".into())) };
    let (case, meshed) = (&spread.case, spread.is_meshed());
    let all = case.all.len();
    let parts = flapped_parts(&spread.behind, FLAPPED_ROUTES.get(params).min(all));
    let flapped: u32 = parts.iter().map(|part| part.len() as u32).sum();
    let (interval, bin_s) = (INTERVAL.seconds(params), BIN.seconds(params));
    let cycles = CYCLES.get(params);
    let mut changes = Vec::new();
    for cycle in 0..cycles {
        let at = f64::from(2 * cycle + 1) * interval;
        let all_do = |change: Change| {
            let origins = spread.behind.iter().zip(&parts).filter(|(_, part)| !part.is_empty());
            origins.map(|(behind, part)| case.change(change, behind.peer, part.clone())).collect()
        };
        changes.push((at, "withdrawn".to_owned(), all_do(Change::Withdraw)));
        changes.push((at + interval, "advertised".to_owned(), all_do(Change::Advertise)));
    }
    let duration_s = f64::from(2 * cycles + 1) * interval;
    let aims = |behind: &Behind| {
        let primary = case.port(behind.peer);
        let name = &bed.ports()[primary].name;
        [STABLE, FLAPPED].map(|paths| Aim {
            paths,
            group: if meshed { format!("{paths}, {name}") } else { paths.to_owned() },
            primary,
        })
    };
    let aims: Vec<[Aim; 2]> = spread.behind.iter().map(aims).collect();
    let mut streams = Vec::new();
    for (from, to) in spread.ways() {
        let Some(at) = spread.behind.iter().position(|behind| behind.peer == to.peer) else { continue };
        let ([stable, flapping], part) = (&aims[at], &parts[at]);
        let alternates = spread.holders(to, PATHS_TO_EACH)[1..].iter().map(|peer| case.port(*peer)).collect();
        let stream = |part: Range<u32>| case.stream(from, to.peer, part);
        streams.push(Stream { group: stable.group.clone(), ..stream(to.part.start..part.start) });
        streams.push(Stream { group: flapping.group.clone(), also: alternates, ..stream(part.clone()) });
    }
    streams.retain(|stream| !stream.part.is_empty());
    let trial = RouteTrial {
        purpose: format!("route flap {family}: {} of {} routes", thousands(flapped.into()), thousands(all.into())),
        size: size.clone(),
        streams,
        rate,
        duration_s,
        bin_s: Some(bin_s),
        per_route: false,
        changes,
    };
    bed.progress(&trial.purpose);
    let used = if meshed { spread.peers() } else { case.peers[..case.peers.len().min(PATHS_TO_EACH + 1)].to_vec() };
    let result = route_traffic::run(bed, params, &trial, |bed| match meshed {
        true => spread.load_paths(bed, params, outcome, PATHS_TO_EACH, rate),
        false => load_paths(bed, params, outcome, case, used[0], &used[1..], rate),
    })?;
    route_tests::note_losses(bed, family, &used, outcome)?;
    if meshed {
        note(
            outcome,
            format!(
                "{family}: {}, {} of them flapped, at all ports at the same time.",
                spread.text(),
                thousands(flapped.into())
            ),
        );
    }
    let throughput = route_traffic::baseline_of(bed, size, family, params);
    // No time is more exact than a bin, or than the time between two frames to a route.
    let resolution_s = bin_s.max(spread.every_s(rate));
    let aims = aims.into_iter().flatten().collect();
    write(outcome, &result, &Shape { family, bin_s, resolution_s, duration_s, all, flapped, aims, throughput });
    Ok(())
}

/// The flapped routes behind each port: the last ones, with the same share at each port.
fn flapped_parts(behind: &[Behind], flapped: u32) -> Vec<Range<u32>> {
    let ports = behind.len().max(1) as u64;
    let before = |place: u64| (u64::from(flapped) * place / ports) as u32;
    let part = |(place, behind): (u64, &Behind)| {
        let count = (before(place + 1) - before(place)).min(behind.part.len() as u32);
        behind.part.end - count..behind.part.end
    };
    (0..).zip(behind).map(part).collect()
}

struct Shape {
    family: Family,
    bin_s: f64,
    resolution_s: f64,
    duration_s: f64,
    all: u32,
    flapped: u32,
    aims: Vec<Aim>,
    throughput: Option<FrameRate>,
}

/// Counts of the stable or the flapped paths over all flows.
#[derive(Default)]
struct Counts {
    offered: u64,
    received: u64,
    lost: u64,
    alternate: u64,
    bins: Vec<Bin>,
}

impl Shape {
    /// `None` if no frame was sent to such paths.
    fn counts(&self, result: &TrialResult, paths: &str) -> Option<Counts> {
        let mut sum = None;
        for aim in self.aims.iter().filter(|aim| aim.paths == paths) {
            let Some(group) = result.groups.iter().find(|group| group.group == aim.group) else { continue };
            let sum = sum.get_or_insert_with(Counts::default);
            sum.offered += group.offered;
            sum.received += group.received;
            sum.lost += group.lost;
            sum.alternate += elsewhere(group, aim.primary);
            sum.bins.resize(sum.bins.len().max(group.bins.len()), Bin::default());
            for (bin, more) in sum.bins.iter_mut().zip(&group.bins) {
                bin.offered += more.offered;
                bin.delivered += more.delivered;
                bin.arrived += more.arrived;
            }
        }
        sum
    }
}

/// Frames lost in the bins from `from_s` to `to_s`, and the end of the last bin with a loss.
pub(crate) fn lost_between(bins: &[Bin], bin_s: f64, from_s: f64, to_s: f64) -> (u64, Option<f64>) {
    let range = (from_s / bin_s).floor() as usize..((to_s / bin_s).floor() as usize).min(bins.len());
    let lost = |i: usize| bins[i].offered.saturating_sub(bins[i].delivered);
    let last = range.clone().rev().find(|i| lost(*i) > 0).map(|i| (i as f64 + 1.0) * bin_s);
    (range.map(lost).sum(), last)
}

fn write(outcome: &mut Outcome, result: &TrialResult, shape: &Shape) {
    let Shape { family, bin_s, .. } = *shape;
    let found = [STABLE, FLAPPED].map(|paths| shape.counts(result, paths));
    let routes = [shape.all - shape.flapped, shape.flapped];
    for ((paths, routes), counts) in [STABLE, FLAPPED].into_iter().zip(routes).zip(&found) {
        let Some(sum) = counts else { continue };
        let senders = f64::from(result.senders.max(1));
        let rates: Vec<f64> = sum.bins.iter().map(|b| b.arrived as f64 / bin_s / senders).collect();
        // The first and the last bin may be partial; after the last one, no frames are sent.
        let whole = (shape.duration_s / bin_s + 1e-6) as usize;
        let inner = rates.get(1..whole.min(rates.len())).unwrap_or_default();
        let loss_percent = percent_of(sum.lost, sum.offered);
        let mean_pps = (!inner.is_empty()).then(|| mean(inner));
        let share = |rate: FrameRate| rate.pps() * f64::from(routes) / f64::from(shape.all);
        PATHS.add(
            outcome,
            PathsRow {
                family,
                paths: paths.into(),
                routes: routes.into(),
                offered: sum.offered,
                received: sum.received,
                lost: sum.lost,
                loss_percent,
                alternate: sum.alternate,
                lowest_pps: inner.iter().copied().min_by(f64::total_cmp),
                mean_pps,
                of_throughput_percent: percent_ratio(mean_pps, shape.throughput.map(share)),
            },
            [result.trial],
            [],
        );
        for (at, rate) in rates.iter().enumerate() {
            PLOT.curve(outcome, &format!("{family}, {paths}"), xy_of(at as f64 * bin_s, *rate, result.trial));
        }
        let title = format!("Loss on {paths} paths during route flap, {family}");
        let spec = of_family(if paths == STABLE { &STABLE_LOSS } else { &FLAPPED_LOSS }, family);
        outcome.ranks.push(spec.of(&[], title, loss_percent));
    }
    let [stable, flapped] = found.map(|counts| counts.map(|counts| counts.bins));
    let mut before_s = 0.0;
    for (index, event) in result.events.iter().enumerate() {
        let until = result.events.get(index + 1).map_or(shape.duration_s, |next| next.at_s);
        let lost = |bins: &Option<Vec<Bin>>| bins.as_ref().map(|bins| lost_between(bins, bin_s, event.at_s, until));
        let (stable, lost) = (lost(&stable), lost(&flapped));
        let outage = flapped.as_ref().and_then(|bins| outage_s(bins, bin_s, before_s, event.at_s, until));
        EVENTS.add(
            outcome,
            EventRow {
                family,
                event: event.label.clone(),
                at_s: event.at_s,
                stable_lost: stable.map(|(lost, _)| lost),
                flapped_lost: lost.map(|(lost, _)| lost),
                outage_s: outage,
                resolution_s: shape.resolution_s,
            },
            [result.trial],
            (lost.is_some() && outage.is_none()).then(|| LOST_BEFORE.to_owned()),
        );
        PLOT.event(outcome, event.at_s, &event.label);
        before_s = event.at_s;
    }
}

/// Seconds from an event at `at_s` to the last loss before the next event. `None` if frames were also lost in the
/// second half of the time between the previous event at `before_s` and this one, because the previous event alone does
/// not explain that loss.
fn outage_s(bins: &[Bin], bin_s: f64, before_s: f64, at_s: f64, until_s: f64) -> Option<f64> {
    let (before, _) = lost_between(bins, bin_s, (before_s + at_s) / 2.0, at_s);
    let (_, last) = lost_between(bins, bin_s, at_s, until_s);
    match last {
        Some(_) if before > 0 => None,
        last => Some(last.map_or(0.0, |last| (last - at_s).max(0.0))),
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

    #[test]
    fn loss_that_goes_on_before_an_event_is_no_outage_of_it() {
        let mut bins = vec![Bin { offered: 10, delivered: 10, arrived: 10 }; 20];
        // The event at 2.5 s loses frames until 3.5 s, the next one at 5 s until 5.5 s.
        for bin in [5, 6, 10] {
            bins[bin].delivered = 4;
        }
        assert_eq!(outage_s(&bins, 0.5, 0.0, 2.5, 5.0), Some(1.0));
        assert_eq!(outage_s(&bins, 0.5, 2.5, 5.0, 7.5), Some(0.5));
        assert_eq!(outage_s(&bins, 0.5, 5.0, 7.5, 10.0), Some(0.0));
        // Frames are lost in the second half of the time before the event.
        bins[9].delivered = 9;
        assert_eq!(outage_s(&bins, 0.5, 2.5, 5.0, 7.5), None);
        bins[10].delivered = 10;
        assert_eq!(outage_s(&bins, 0.5, 2.5, 5.0, 7.5), Some(0.0), "no loss after it");
    }

    #[test]
    fn each_port_flaps_its_share() {
        // Numbers that are not evenly divisible, and numbers up to all routes of a port.
        for (all, flapped, ports) in [(2_000u32, 500, 4), (1_999, 301, 12), (8, 7, 5), (7, 0, 3)] {
            let start = |i: u32| all * i / ports;
            let behind =
                (0..ports).map(|i| Behind { peer: i as usize, part: start(i)..start(i + 1) }).collect::<Vec<_>>();
            let parts = flapped_parts(&behind, flapped);
            for (behind, part) in behind.iter().zip(&parts) {
                assert!(part.start >= behind.part.start && part.end == behind.part.end, "{part:?} of {behind:?}");
                assert!(part.len() as u32 <= flapped.div_ceil(ports), "{part:?}");
            }
            let sum: usize = parts.iter().map(|part| part.len()).sum();
            assert!(sum as u32 <= flapped && (all < 10 || sum as u32 == flapped), "{sum}");
        }
    }
}
