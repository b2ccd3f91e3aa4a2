//! Convergence skyline: a full table comes and goes, three times, under load, and the forwarding rate draws its outline (core
//! router test of 2001; terms of RFC 6413).

use crate::Method;
use crate::parameters::{self, count, seconds};
use crate::report::{SeriesKind, extremes, mean, note, plot, point, row, table};
use crate::route_tests::{self, for_each_family, one_per_port, patience, routes, thousands};
use crate::route_traffic::{self, RouteTrial, Stream, smallest};
use crate::routing::RouteAction;
use crate::testbed::{TestError, Testbed};
use crate::throughput_search::{estimate, zero_loss_goal};
use drophammer_model::outcome::{Outcome, PlotKind, Point, RankFigure, Row};
use drophammer_model::registry::{FigureSpec, ParamKind, ParamSpec, TestSpec};
use drophammer_model::suite::Params;
use drophammer_model::trial::{Bin, Family, TrialResult};
use std::time::Duration;

/// The test.
pub struct ConvergenceSkyline;

static SPEC: TestSpec = TestSpec {
    name: "convergence_skyline",
    title: "Convergence skyline",
    summary: "how fast the router forwards to a full table that appears and vanishes again and again, under load",
    source: "core router test of 2001: 0, 200,000 and 0 routes, 60 s each; terms of RFC 6413",
    needs: route_traffic::NEEDS,
    params: &parameters::joined::<18>(&[
        &[
            route_tests::FAMILIES,
            route_tests::TABLE,
            ParamSpec::new("routes", ParamKind::Count, "50000", "200000", "routes of the table"),
            ParamSpec::new("interval", ParamKind::Duration, "3 s", "60 s", "time between two changes"),
            ParamSpec::new("cycles", ParamKind::Count, "3", "3", "times that the table comes and goes"),
            ParamSpec::new("bin", ParamKind::Duration, "20 ms", "100 ms", "width of time bins: the resolution"),
        ],
        &route_traffic::LOADED,
        &route_tests::SESSIONS,
    ]),
    figures: &[
        FigureSpec { key: "convergence_up_ipv4_s", help: "mean seconds until traffic to all IPv4 routes arrives" },
        FigureSpec { key: "convergence_up_ipv6_s", help: "the same for IPv6" },
        FigureSpec { key: "convergence_down_ipv4_s", help: "mean seconds until traffic to no IPv4 route arrives" },
        FigureSpec { key: "convergence_down_ipv6_s", help: "the same for IPv6" },
    ],
};

const TABLE: &str = "convergence_skyline";
/// Share of the frames of a bin up to which the table counts as gone, and up to which the rest may be missing when it counts as
/// there: the load may be more than the router forwards while it works.
const EDGE: f64 = 0.01;
/// Bins in a row, or to the next change if those are fewer, that a table must be through for: convergence is what lasts (RFC 6413
/// section 3.3.2), and a router that stumbles later has lost frames, not convergence.
const SUSTAINED: usize = 10;

/// When the first and the last route went, in seconds after the change.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Edge {
    first: Option<f64>,
    last: Option<f64>,
    /// Frames that went wrong after the last: lost ones of a table that is there, received ones of one that is gone.
    after: u64,
}

/// Reads an edge off the bins between a change at `at_s` and the next one.
fn edge(bins: &[Bin], bin_s: f64, at_s: f64, until_s: f64, up: bool) -> Edge {
    let share = |bin: &Bin| if bin.offered == 0 { None } else { Some(bin.delivered as f64 / bin.offered as f64) };
    // The bin in which the next change comes is that one's.
    let range = (at_s / bin_s).floor() as usize..((until_s / bin_s + 1e-9).floor() as usize).min(bins.len());
    let after = |bin: usize| ((bin as f64 + 1.0) * bin_s - at_s).max(0.0);
    let shares: Vec<(usize, f64)> = range.filter_map(|i| Some((i, share(&bins[i])?))).collect();
    let began = |s: f64| if up { s > EDGE } else { s < 1.0 - EDGE };
    let ended = |s: f64| if up { s >= 1.0 - EDGE } else { s <= EDGE };
    let first = shares.iter().find(|(_, s)| began(*s)).map(|(i, _)| after(*i));
    let lasts = |from: &usize| shares[*from..].iter().take(SUSTAINED).all(|(_, s)| ended(*s));
    let place = (0..shares.len()).find(lasts);
    let wrong = |(i, _): &(usize, f64)| match up {
        true => bins[*i].offered.saturating_sub(bins[*i].delivered),
        false => bins[*i].delivered,
    };
    let last = place.map(|place| after(shares[place].0));
    Edge { first, last, after: place.map_or(0, |place| shares[place + 1..].iter().map(wrong).sum()) }
}

impl Method for ConvergenceSkyline {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        prepare(outcome);
        let mut notes = Vec::new();
        let result = for_each_family(bed, params, &mut notes, |bed, family, _| skyline(bed, family, params, outcome));
        notes.into_iter().for_each(|text| note(outcome, text));
        result
    }

    fn estimate(&self, params: &Params) -> Duration {
        estimate(params, &[zero_loss_goal(params)]) + self.estimate_known(params)
    }

    fn estimate_known(&self, params: &Params) -> Duration {
        let trial = seconds(params, "interval", 60.0) * f64::from(2 * count(params, "cycles") + 1);
        Duration::from_secs_f64((trial + 3.0) * route_tests::families(params).len() as f64)
    }

    fn deviations(&self, params: &Params) -> Vec<String> {
        let interval = seconds(params, "interval", 60.0);
        (interval < 60.0).then(|| format!("{interval} s between changes instead of 60 s")).into_iter().collect()
    }
}

fn prepare(outcome: &mut Outcome) {
    table(
        outcome,
        TABLE,
        "Convergence of a full table",
        &[
            ("family", "Family", ""),
            ("event", "Event", ""),
            ("routes", "Routes", ""),
            ("first_s", "First route after", "s"),
            ("last_s", "Last route after", "s"),
            ("rate_rps", "Rate", "routes/s"),
            ("after_frames", "Wrong frames after that", "frames"),
            ("resolution_s", "Resolution", "s"),
        ],
    );
    plot(
        outcome,
        TABLE,
        "Forwarding rate while a table comes and goes",
        PlotKind::Area,
        "time, s",
        "arrivals, fps",
        false,
    );
    note(
        outcome,
        "The traffic aims at every route in turn. First and last route are the ends of the first time bin with more than 1 % of its \
         frames delivered and of the first of ten bins in a row (or of all to the next event) with more than 99 %; the other way round when \
         the table goes. 'Wrong frames after that' are those that were lost while the table was there, or delivered while it was gone.",
    );
}

fn skyline(bed: &mut dyn Testbed, family: Family, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
    let peers = one_per_port(bed, family, 2)?;
    let rate = route_traffic::load(bed, family, params, outcome)?;
    let (source, origin) = (peers[0], peers[1]);
    let packing = route_tests::packing(params)?;
    let all = route_tests::table(bed, params, family, routes(params, "routes"))?;
    let (interval, bin_s) = (seconds(params, "interval", 60.0), seconds(params, "bin", 0.1));
    let cycles = count(params, "cycles");
    let ports: Vec<usize> = bed.routing()?.peers().iter().map(|p| p.port).collect();
    let part = 0..all.len();
    let mut changes = Vec::new();
    for cycle in 0..cycles {
        let at = f64::from(2 * cycle) * interval + interval.min(1.0);
        let announce = RouteAction::Announce { peer: origin, routes: all.clone(), part: part.clone(), packing };
        let withdraw = RouteAction::Withdraw { peer: origin, routes: all.clone(), part: part.clone(), packing };
        changes.push((at, "routes up".to_owned(), vec![announce]));
        changes.push((at + interval, "routes down".to_owned(), vec![withdraw]));
    }
    let duration_s = f64::from(2 * cycles) * interval + interval.min(1.0);
    let trial = RouteTrial {
        purpose: format!("convergence skyline {family}: {} routes, {cycles} times", thousands(all.len().into())),
        size: smallest(family),
        streams: vec![Stream {
            group: family.to_string(),
            from: ports[source],
            to: ports[origin],
            also: Vec::new(),
            routes: all.clone(),
            part,
        }],
        rate,
        duration_s,
        bin_s: Some(bin_s),
        per_route: false,
        changes,
    };
    bed.progress(&trial.purpose, 0, 1);
    let result = route_traffic::run(bed, params, &trial, |bed| {
        bed.routing()?.reset(patience(params))?;
        route_tests::establish(bed, &[source, origin], params).map(drop)
    })?;
    route_tests::note_losses(bed, family, &[source, origin], outcome)?;
    write(outcome, family, &result, all.len(), bin_s, duration_s);
    Ok(())
}

fn write(outcome: &mut Outcome, family: Family, result: &TrialResult, routes: u32, bin_s: f64, duration_s: f64) {
    let Some(group) = result.groups.first() else { return };
    let (mut ups, mut downs, mut never) = (Vec::new(), Vec::new(), [0; 2]);
    for (index, event) in result.events.iter().enumerate() {
        let up = index % 2 == 0;
        let until = result.events.get(index + 1).map_or(duration_s, |next| next.at_s);
        let found = edge(&group.bins, bin_s, event.at_s, until, up);
        let times = if up { &mut ups } else { &mut downs };
        times.extend(found.last);
        let mut marks = Vec::new();
        if found.last.is_none() {
            never[usize::from(!up)] += 1;
            marks.push("not before the next event".to_owned());
        }
        row(
            outcome,
            TABLE,
            Row {
                cells: vec![
                    family.to_string().into(),
                    event.label.clone().into(),
                    u64::from(routes).into(),
                    found.first.into(),
                    found.last.into(),
                    found.last.map(|s| f64::from(routes) / s.max(bin_s)).into(),
                    found.last.map(|_| found.after).into(),
                    bin_s.into(),
                ],
                trials: vec![result.trial],
                marks,
            },
        );
        if let Some(plot) = outcome.plots.iter_mut().find(|p| p.key == TABLE) {
            plot.events.push((event.at_s, event.label.clone()));
        }
    }
    for (at, bin) in group.bins.iter().enumerate() {
        let dot = Point {
            x: at as f64 * bin_s,
            y: bin.arrived as f64 / bin_s,
            trial: Some(result.trial),
            ..Point::default()
        };
        point(outcome, TABLE, &family.to_string(), SeriesKind::Curve, dot);
    }
    let name = family.to_string().to_lowercase();
    for (word, times, never) in [("up", &ups, never[0]), ("down", &downs, never[1])] {
        if let Some((least, most)) = extremes(times).filter(|_| times.len() > 1) {
            note(outcome, format!("{family}, {word}: {least:.2} to {most:.2} s in {} events", times.len()));
        }
        outcome.ranks.push(RankFigure {
            key: format!("convergence_{word}_{name}_s"),
            title: format!("Convergence of {} routes, {word}, {family}", thousands(routes.into())),
            unit: "s".into(),
            // A mean over the events that came to an end would flatter a router that sometimes does not.
            value: (never == 0 && !times.is_empty()).then(|| mean(times)),
            higher_is_better: false,
            tester_limited: false,
            // Means that differ by no more than a bin are the same.
            resolution: (1.01 * bin_s / mean(times).max(bin_s)).max(0.05),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bins(shares: &[f64]) -> Vec<Bin> {
        let bin = |s: &f64| Bin { offered: 1000, delivered: (s * 1000.0) as u64, arrived: (s * 1000.0) as u64 };
        shares.iter().map(bin).collect()
    }

    #[test]
    fn edges_are_found_to_the_bin() {
        let all = bins(&[0.0, 0.0, 0.0, 0.3, 0.7, 1.0, 1.0, 1.0, 0.6, 0.0, 0.0]);
        // The change came at 0.2 s; 30 % were delivered of the bin that ends at 0.4 s, all from the one that ends at 0.6 s.
        let up = edge(&all, 0.1, 0.2, 0.75, true);
        assert!((up.first.unwrap() - 0.2).abs() < 1e-9 && (up.last.unwrap() - 0.4).abs() < 1e-9, "{up:?}");
        let down = edge(&all, 0.1, 0.8, 1.1, false);
        assert!((down.first.unwrap() - 0.1).abs() < 1e-9 && (down.last.unwrap() - 0.2).abs() < 1e-9, "{down:?}");
    }

    #[test]
    fn the_next_change_and_a_stumble_are_no_lack_of_convergence() {
        // Through from 0.3 s on; a stumble at 1.5 s; the bin of the next change, at 1.95 s, is not looked at.
        let mut shares = [0.0, 0.0, 0.4].to_vec();
        shares.extend([1.0; 12]);
        shares.extend([0.5, 1.0, 1.0, 1.0, 0.3, 0.0]);
        let up = edge(&bins(&shares), 0.1, 0.2, 1.95, true);
        assert!((up.last.unwrap() - 0.2).abs() < 1e-9, "{up:?}");
        assert_eq!(up.after, 500);
        let down = edge(&bins(&[1.0, 0.5, 0.0, 0.0, 0.02, 0.0]), 0.1, 0.1, 0.6, false);
        assert!((down.last.unwrap() - 0.5).abs() < 1e-9 && down.after == 0, "{down:?}");
    }

    #[test]
    fn a_table_that_never_comes_has_no_last_route() {
        let found = edge(&bins(&[0.0, 0.0, 0.5, 0.5, 0.5]), 0.1, 0.1, 0.5, true);
        assert!(found.first.is_some() && found.last.is_none());
        assert_eq!(edge(&bins(&[0.0; 5]), 0.1, 0.1, 0.5, true), Edge::default());
    }
}
