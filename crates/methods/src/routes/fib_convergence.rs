//! FIB convergence (RFC 7747 section 5.1.1) by the route-specific method of RFC 6413 section 6.3: the outage of each
//! single route after its advertisement, derived from lost frames.

use crate::kit::prelude::*;
use crate::route_outage::{Event, Outage, OutageReport};
use crate::route_tests::{self, Case, PATIENCE, for_each_family, thousands};
use crate::route_traffic::{self, RouteTrial, smallest};
use crate::routes_sent;

/// The test.
pub struct FibConvergence;

const ROUTES: Param<u32> = Param::new("routes", "10000", "200000", "routes that are advertised at the same time");
const WINDOW: Param<Duration> =
    Param::new("window", "4 s", "60 s", "how long traffic continues after the advertisement");

/// Times are equal if they differ by at most the time between two frames to a route.
const MEDIAN: [FigureSpec; 2] = [
    FigureSpec::lower_by_difference(
        "fib_convergence_ipv4_median_ms",
        "ms",
        "median time until the router forwards to an IPv4 route, in ms",
    ),
    FigureSpec::lower_by_difference(
        "fib_convergence_ipv6_median_ms",
        "ms",
        "median time until the router forwards to an IPv6 route, in ms",
    ),
];
const MAX: [FigureSpec; 2] = [
    FigureSpec::lower_by_difference(
        "fib_convergence_ipv4_max_ms",
        "ms",
        "time until the router forwards to all IPv4 routes, in ms",
    ),
    FigureSpec::lower_by_difference(
        "fib_convergence_ipv6_max_ms",
        "ms",
        "time until the router forwards to all IPv6 routes, in ms",
    ),
];

static SPEC: TestSpec = TestSpec {
    name: "fib_convergence",
    title: "FIB convergence",
    summary: "time from the advertisement of routes until the router forwards to each of them",
    source: "RFC 7747 section 5.1.1 (RIB-IN); route-specific method of RFC 6413 section 6.3",
    needs: route_traffic::NEEDS,
    params: params![
        &route_tests::TABLES,
        &[ROUTES.spec(), WINDOW.spec()],
        &route_traffic::LOADED,
        &route_tests::SESSIONS,
    ],
    figures: &[MEDIAN[0].shape(), MEDIAN[1].shape(), MAX[0].shape(), MAX[1].shape()],
    tables: &[REPORT.table.shape(), REPORT.unreachable.shape(), routes_sent::SHAPE],
};

const REPORT: OutageReport = OutageReport::new(
    TableSpec::new("fib_convergence", "FIB convergence"),
    TableSpec::new("fib_convergence_unreachable", "Unreachable routes"),
    "Time until the router forwards to a route, over all routes",
    [&MEDIAN, &MAX],
);
/// Traffic runs for this long before the routes are advertised, in seconds.
const BEFORE_S: f64 = 0.5;

impl Method for FibConvergence {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        Plan::by_family(&SPEC, params).counting(1).taking(BEFORE_S + WINDOW.seconds(params) + 4.0).deviating(shorter(
            params,
            &WINDOW,
            "traffic after the change",
            60.0,
            route_tests::CONFORMANT,
        ))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        REPORT.begin(outcome);
        note(
            outcome,
            "The time of a route is the number of lost frames to it, divided by the rate of frames to it, less the time during which \
             frames were sent before the routes were advertised (RFC 6413 section 6.3.3).",
        );
        for_each_family(bed, params, outcome, |bed, family, outcome| converge(bed, family, params, outcome))
    }
}

fn converge(bed: &mut dyn Testbed, family: Family, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
    let case = Case::new(bed, family, params, 2, ROUTES.get(params))?;
    let rate = route_traffic::load(bed, family, params, outcome)?;
    let (source, origin) = (case.peers[0], case.peers[1]);
    let trial = RouteTrial {
        purpose: format!("FIB convergence {family}: {} routes", thousands(case.all.len().into())),
        size: smallest(family),
        streams: vec![case.stream(source, origin, case.whole())],
        rate,
        duration_s: BEFORE_S + WINDOW.seconds(params),
        bin_s: None,
        per_route: true,
        changes: vec![(BEFORE_S, "advertised".into(), vec![case.advertise(origin, case.whole())])],
    };
    bed.progress(&trial.purpose);
    let result = route_traffic::run(bed, params, &trial, |bed| {
        bed.routing()?.reset(PATIENCE.get(params))?;
        route_tests::establish(bed, &[source, origin], params).map(drop)
    })?;
    route_tests::note_losses(bed, family, &[source, origin], outcome)?;
    let advertised = Event::Advertised(result.events.first().map_or(BEFORE_S, |event| event.at_s));
    let Some(outage) = Outage::of(&result, rate.pps(), advertised) else {
        return Err(TestError::Failed("nothing was counted per route".into()));
    };
    REPORT.add(outcome, "FIB convergence", &family.to_string(), &case.all, &outage, &result);
    Ok(())
}
