//! BGP pass-through time: from a route's advertisement by one peer until another peer has it, one route at a time (RFC 7747 section
//! 5.1.2, RIB-OUT; RFC 4098 section 3.6).

use crate::Method;
use crate::parameters::{count, fewer};
use crate::report::{SeriesKind, extremes, mean, note, plot, point, row, table};
use crate::route_tests::{self, complaint, for_each_family, one_per_port, patience};
use crate::routing::RouteAction;
use crate::testbed::{TestError, Testbed};
use drophammer_model::outcome::{Outcome, PlotKind, Point, RankFigure, Row};
use drophammer_model::registry::{FigureSpec, ParamKind, ParamSpec, TestSpec};
use drophammer_model::suite::Params;
use drophammer_model::trial::Family;
use std::time::Duration;

/// The test.
pub struct BgpPassThrough;

static SPEC: TestSpec = TestSpec {
    name: "bgp_pass_through",
    title: "BGP pass-through time",
    summary: "time from the advertisement or withdrawal of a single route until another peer is told",
    source: "RFC 7747 section 5.1.2 (RIB-OUT); RFC 4098",
    needs: route_tests::NEEDS,
    params: &[
        route_tests::FAMILIES,
        route_tests::TABLE,
        ParamSpec::new("samples", ParamKind::Count, "50", "1000", "routes that come and go, one at a time"),
        route_tests::PATIENCE,
        route_tests::ESTABLISH,
    ],
    figures: &[
        FigureSpec {
            key: "bgp_pass_through_ipv4_median_ms",
            help: "median of an IPv4 route's time through the router",
        },
        FigureSpec { key: "bgp_pass_through_ipv6_median_ms", help: "the same for IPv6" },
    ],
};

const TABLE: &str = "bgp_pass_through";

impl Method for BgpPassThrough {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        table(
            outcome,
            TABLE,
            "BGP pass-through time",
            &[
                ("family", "Family", ""),
                ("change", "Change", ""),
                ("samples", "Samples", ""),
                ("min_ms", "Minimum", "ms"),
                ("median_ms", "Median", "ms"),
                ("mean_ms", "Mean", "ms"),
                ("p99_ms", "99 %", "ms"),
                ("max_ms", "Maximum", "ms"),
            ],
        );
        plot(outcome, TABLE, "Pass-through time, sorted", PlotKind::Sorted, "share of the routes, %", "time, ms", true);
        let mut notes = Vec::new();
        let result = for_each_family(bed, params, &mut notes, |bed, family, _| pass(bed, family, params, outcome));
        notes.into_iter().for_each(|text| note(outcome, text));
        result
    }

    fn estimate(&self, params: &Params) -> Duration {
        let samples = f64::from(count(params, "samples"));
        Duration::from_secs_f64((samples * 0.1 + 3.0) * route_tests::families(params).len() as f64)
    }

    fn deviations(&self, params: &Params) -> Vec<String> {
        fewer(params, "samples", "samples", 1_000, route_tests::CONFORMANT).into_iter().collect()
    }
}

fn pass(bed: &mut dyn Testbed, family: Family, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
    let peers = one_per_port(bed, family, 2)?;
    let (origin, observer) = (peers[0], peers[1]);
    let samples = count(params, "samples");
    let all = route_tests::table(bed, params, family, samples)?;
    let packing = route_tests::packing(params)?;
    route_tests::establish(bed, &[origin, observer], params)?;
    let watch = bed.routing()?.watch(observer, origin, &all);
    let (mut up, mut down) = (Vec::new(), Vec::new());
    for index in 0..samples.min(all.len()) {
        bed.progress(&format!("BGP pass-through time, {family}"), index, samples);
        let part = index..index + 1;
        let announce = RouteAction::Announce { peer: origin, routes: all.clone(), part: part.clone(), packing };
        let withdraw = RouteAction::Withdraw { peer: origin, routes: all.clone(), part: part.clone(), packing };
        for (action, present) in [(announce, true), (withdraw, false)] {
            let routing = bed.routing()?;
            routing.expect(watch, part.clone(), present);
            routing.act(&action)?;
            let settled = routing.await_settled(&[watch], patience(params))?;
            if !settled.complete {
                let why = complaint(routing, watch, &settled);
                return Err(TestError::Failed(format!("route {} was not passed on: {why}", all.prefix(index))));
            }
            if present { &mut up } else { &mut down }.push(settled.last_change_s * 1e3);
        }
    }
    for (change, times) in [("advertised", &mut up), ("withdrawn", &mut down)] {
        times.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let rank = (share * times.len() as f64).ceil() as usize;
            times.get(rank.max(1) - 1).copied()
        };
        let (least, most) = extremes(times).unzip();
        row(
            outcome,
            TABLE,
            Row {
                cells: vec![
                    family.to_string().into(),
                    change.into(),
                    (times.len() as u64).into(),
                    least.into(),
                    at(0.5).into(),
                    mean(times).into(),
                    at(0.99).into(),
                    most.into(),
                ],
                ..Row::default()
            },
        );
        for (index, y) in times.iter().enumerate() {
            let x = (index + 1) as f64 / times.len() as f64 * 100.0;
            point(
                outcome,
                TABLE,
                &format!("{family}, {change}"),
                SeriesKind::Curve,
                Point { x, y: *y, ..Point::default() },
            );
        }
        if change == "advertised" {
            outcome.ranks.push(RankFigure {
                key: format!("bgp_pass_through_{}_median_ms", family.to_string().to_lowercase()),
                title: format!("BGP pass-through time, median, {family}"),
                unit: "ms".into(),
                value: at(0.5),
                higher_is_better: false,
                tester_limited: false,
                resolution: 0.05,
            });
        }
    }
    Ok(())
}
