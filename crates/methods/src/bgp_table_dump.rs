//! Full-table dump: how fast a router tells its whole table to a peer that comes up (RFC 7747 section 5.1.2, RIB-OUT, with a full
//! table).

use crate::Method;
use crate::parameters::{self, count, fewer};
use crate::report::{SeriesKind, mean, note, plot, point, row, table};
use crate::route_tests::{self, complaint, for_each_family, one_per_port, patience, routes, thousands};
use crate::routing::RouteAction;
use crate::testbed::{TestError, Testbed};
use drophammer_model::outcome::{Outcome, PlotKind, Point, RankFigure, Row};
use drophammer_model::registry::{FigureSpec, ParamKind, ParamSpec, TestSpec};
use drophammer_model::suite::Params;
use drophammer_model::trial::Family;
use std::time::Duration;

/// The test.
pub struct BgpTableDump;

static SPEC: TestSpec = TestSpec {
    name: "bgp_table_dump",
    title: "Full table to a new peer",
    summary: "time from a new session until the peer has the whole table, every route verified",
    source: "RFC 7747 section 5.1.2; terms of RFC 4098",
    needs: route_tests::NEEDS,
    params: &parameters::joined::<7>(&[
        &[
            route_tests::FAMILIES,
            route_tests::TABLE,
            ParamSpec::new("routes", ParamKind::Count, "100000", "1000000", "routes of the table"),
            ParamSpec::new("repeats", ParamKind::Count, "2", "5", "times that the new peer comes up"),
        ],
        &route_tests::SESSIONS,
    ]),
    figures: &[
        FigureSpec { key: "bgp_dump_ipv4_s", help: "mean seconds until a new peer has all IPv4 routes" },
        FigureSpec { key: "bgp_dump_ipv6_s", help: "the same for IPv6" },
    ],
};

const TABLE: &str = "bgp_table_dump";

impl Method for BgpTableDump {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        table(
            outcome,
            TABLE,
            "Full table to a new peer",
            &[
                ("family", "Family", ""),
                ("repeat", "Repeat", ""),
                ("routes", "Routes", ""),
                ("missing", "Missing", ""),
                ("first_s", "First route after", "s"),
                ("last_s", "Last route after", "s"),
                ("rate_rps", "Rate", "routes/s"),
            ],
        );
        plot(
            outcome,
            TABLE,
            "Routes at the new peer",
            PlotKind::Area,
            "time since the session came up, s",
            "routes",
            false,
        );
        let mut notes = Vec::new();
        let result = for_each_family(bed, params, &mut notes, |bed, family, _| dump(bed, family, params, outcome));
        notes.into_iter().for_each(|text| note(outcome, text));
        result
    }

    fn estimate(&self, params: &Params) -> Duration {
        let routes = f64::from(routes(params, "routes"));
        let each = routes / 30_000.0 + f64::from(count(params, "repeats")) * (routes / 100_000.0 + 1.0) + 2.0;
        Duration::from_secs_f64(each * route_tests::families(params).len() as f64)
    }

    fn deviations(&self, params: &Params) -> Vec<String> {
        fewer(params, "repeats", "dumps", 5, route_tests::CONFORMANT).into_iter().collect()
    }
}

fn dump(bed: &mut dyn Testbed, family: Family, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
    let peers = one_per_port(bed, family, 2)?;
    let (origin, observer) = (peers[0], peers[1]);
    let packing = route_tests::packing(params)?;
    let all = route_tests::table(bed, params, family, routes(params, "routes"))?;
    let part = 0..all.len();
    let repeats = count(params, "repeats");
    // The table is there when a first observer has it; the dumps go to the same peer, coming up anew.
    route_tests::establish(bed, &[origin, observer], params)?;
    let routing = bed.routing()?;
    let watch = routing.watch(observer, origin, &all);
    routing.expect(watch, part.clone(), true);
    routing.act(&RouteAction::Announce { peer: origin, routes: all.clone(), part: part.clone(), packing })?;
    let settled = routing.await_settled(&[watch], patience(params))?;
    if !settled.complete {
        let why = complaint(routing, watch, &settled);
        return Err(TestError::Failed(format!("the router did not take the table: {why}")));
    }
    let mut times = Vec::new();
    for repeat in 0..repeats {
        bed.progress(&format!("table dump, {family}: {} routes", thousands(all.len().into())), repeat, repeats);
        let routing = bed.routing()?;
        routing.act(&RouteAction::Close { peer: observer })?;
        routing.await_settled(&[], patience(params))?;
        let watch = routing.watch(observer, origin, &all);
        routing.expect(watch, part.clone(), true);
        let begun = routing.now_s();
        let up = route_tests::establish(bed, &[observer], params)?.first().map_or(0.0, Duration::as_secs_f64);
        let routing = bed.routing()?;
        let settled = routing.await_settled(&[watch], patience(params))?;
        let verified = routing.verified(watch);
        // Counted from the session, which routes may follow at once.
        let last_s = verified.last_change_s.map(|at| (at - begun - up).max(0.0)).filter(|_| settled.complete);
        let first_s = routing.times(watch).into_iter().flatten().min_by(f64::total_cmp).map(|at| (at - up).max(0.0));
        let mut marks = Vec::new();
        times.extend(last_s);
        if !settled.complete {
            marks.push(complaint(routing, watch, &settled));
        }
        row(
            outcome,
            TABLE,
            Row {
                cells: vec![
                    family.to_string().into(),
                    u64::from(repeat + 1).into(),
                    u64::from(all.len()).into(),
                    verified.missing.into(),
                    first_s.into(),
                    last_s.into(),
                    last_s.and_then(|s| route_tests::rate(all.len().into(), s)).into(),
                ],
                trials: Vec::new(),
                marks,
            },
        );
        if repeat == 0 {
            for (at, routes) in bed.routing()?.skyline(watch) {
                let dot = Point { x: (at - up).max(0.0), y: f64::from(routes), ..Point::default() };
                point(outcome, TABLE, &family.to_string(), SeriesKind::Curve, dot);
            }
        }
    }
    outcome.ranks.push(RankFigure {
        key: format!("bgp_dump_{}_s", family.to_string().to_lowercase()),
        title: format!("Full table of {} routes to a new peer, {family}", thousands(all.len().into())),
        unit: "s".into(),
        value: (times.len() == repeats as usize).then(|| mean(&times)),
        higher_is_better: false,
        tester_limited: false,
        resolution: 0.05,
    });
    Ok(())
}
