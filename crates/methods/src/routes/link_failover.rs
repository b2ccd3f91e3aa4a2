//! Link down to alternate path (RFC 7747 section 5.2, RFC 6413 section 8): the link of the best path fails under
//! traffic to every route, and the outage of each route is measured.

use crate::kit::prelude::*;
use crate::route_forwarding::{least_probes, load_paths};
use crate::route_outage::{Event, Outage, OutageReport};
use crate::route_tests::{self, Case, for_each_family, thousands};
use crate::route_traffic::{self, RouteTrial, Stream, smallest};
use crate::routes_sent;
use crate::routing::RouteAction;

/// The test.
pub struct LinkFailover;

drophammer_model::choice! {
    /// What fails.
    enum Failure {
        /// The link of the best path.
        Link = "link",
        /// The BGP session of the best path.
        Session = "session",
    }
}

const ROUTES: Param<u32> = Param::new("routes", "10000", "200000", "routes with a second path");
const FAILURE: Param<Failure> = Param::fixed(
    "failure",
    "link",
    "what fails: the link, as if a cable was pulled, or the BGP session, by a NOTIFICATION",
);
const WINDOW: Param<Duration> = Param::new("window", "4 s", "60 s", "how long traffic continues after the failure");

/// Times are equal if they differ by at most the time between two frames to a route.
const MEDIAN: [FigureSpec; 2] = [
    FigureSpec::lower_by_difference("link_failover_ipv4_median_ms", "ms", "median outage of an IPv4 route, in ms"),
    FigureSpec::lower_by_difference("link_failover_ipv6_median_ms", "ms", "median outage of an IPv6 route, in ms"),
];
const MAX: [FigureSpec; 2] = [
    FigureSpec::lower_by_difference("link_failover_ipv4_max_ms", "ms", "longest outage of an IPv4 route, in ms"),
    FigureSpec::lower_by_difference("link_failover_ipv6_max_ms", "ms", "longest outage of an IPv6 route, in ms"),
];

static SPEC: TestSpec = TestSpec {
    name: "link_failover",
    title: "Link down to alternate path",
    summary: "how long each route is unreachable when the link or the session of its best path goes down",
    source: "RFC 7747 sections 5.2 and 5.3; route-specific method of RFC 6413 section 6.3",
    needs: route_traffic::NEEDS,
    params: params![
        &route_tests::TABLES,
        &[ROUTES.spec(), FAILURE.spec(), WINDOW.spec()],
        &route_traffic::LOADED,
        &route_tests::SESSIONS,
    ],
    figures: &[MEDIAN[0].shape(), MEDIAN[1].shape(), MAX[0].shape(), MAX[1].shape()],
    tables: &[REPORT.table.shape(), REPORT.unreachable.shape(), routes_sent::SHAPE],
};

const REPORT: OutageReport = OutageReport::new(
    TableSpec::new("link_failover", "Outage of each route"),
    TableSpec::new("link_failover_unreachable", "Unreachable routes"),
    "Outage of a route, over all routes",
    [&MEDIAN, &MAX],
);
/// Traffic runs for this long before the failure, in seconds.
const BEFORE_S: f64 = 1.0;

impl Method for LinkFailover {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        Plan::by_family(&SPEC, params)
            .counting(TrialCount::exactly(1 + least_probes(2)).or_more())
            .taking(BEFORE_S + WINDOW.seconds(params) + f64::from(ROUTES.get(params)) / 7_500.0 + 8.0)
            .deviating(shorter(params, &WINDOW, "traffic after the change", 60.0, route_tests::CONFORMANT))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        REPORT.begin(outcome);
        note(
            outcome,
            "The outage of a route is the number of lost frames to it, divided by the rate of frames to it (RFC 6413 \
             section 6.3.3). Frames may arrive at either port.",
        );
        for_each_family(bed, params, outcome, |bed, family, outcome| fail(bed, family, params, outcome))
    }
}

fn fail(bed: &mut dyn Testbed, family: Family, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
    let case = Case::new(bed, family, params, 3, ROUTES.get(params))?;
    let rate = route_traffic::load(bed, family, params, outcome)?;
    let (source, best, alternate) = (case.peers[0], case.peers[1], case.peers[2]);
    let port = case.port(best);
    let (label, failure) = match FAILURE.get(params) {
        Failure::Link => ("link down", RouteAction::Link { port, up: false }),
        Failure::Session => ("session ended", RouteAction::Close { peer: best }),
    };
    let trial = RouteTrial {
        purpose: format!("{label} {family}: {} routes", thousands(case.all.len().into())),
        size: smallest(family),
        streams: vec![Stream { also: vec![case.port(alternate)], ..case.stream(source, best, case.whole()) }],
        rate,
        duration_s: BEFORE_S + WINDOW.seconds(params),
        bin_s: None,
        per_route: true,
        changes: vec![(BEFORE_S, label.into(), vec![failure])],
    };
    bed.progress(&trial.purpose);
    let link = FAILURE.get(params) == Failure::Link;
    let up = RouteAction::Link { port, up: true };
    let result = route_traffic::run(bed, params, &trial, |bed| {
        if link {
            bed.routing()?.act(&up)?;
        }
        load_paths(bed, params, outcome, &case, source, &[best, alternate], rate)
    });
    if link {
        bed.routing()?.act(&up)?;
    }
    let result = result?;
    // The session of the best path is expected to end.
    route_tests::note_losses(bed, family, &[source, alternate], outcome)?;
    let failed = Event::Failed(result.events.first().map_or(BEFORE_S, |event| event.at_s));
    let Some(outage) = Outage::of(&result, rate.pps(), failed) else {
        return Err(TestError::Failed("nothing was counted per route".into()));
    };
    REPORT.add(outcome, "Outage", &format!("{family}, {label}"), &case.all, &outage, &result);
    let alternate_frames: u64 = result.groups.iter().filter_map(|g| g.arrived_at.get(case.port(alternate))).sum();
    if alternate_frames == 0 {
        note(outcome, format!("{family}: no frame took the alternate path."));
    }
    Ok(())
}
