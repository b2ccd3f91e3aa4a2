//! FIB convergence (RFC 7747 section 5.1.1) by the route-specific method of RFC 6413 section 6.3: how long each single route is
//! out of reach after it was advertised, from the frames to it that were lost.

use crate::Method;
use crate::parameters::{self, seconds, shorter};
use crate::report::{note, table};
use crate::route_outage::{self, Outage, PER_ROUTE_TABLE};
use crate::route_tests::{self, for_each_family, one_per_port, patience, routes, thousands};
use crate::route_traffic::{self, RouteTrial, Stream, smallest};
use crate::routing::RouteAction;
use crate::testbed::{TestError, Testbed};
use crate::throughput_search::{estimate, zero_loss_goal};
use drophammer_model::outcome::{Outcome, PlotKind};
use drophammer_model::registry::{FigureSpec, ParamKind, ParamSpec, TestSpec};
use drophammer_model::suite::Params;
use drophammer_model::trial::Family;
use std::time::Duration;

/// The test.
pub struct FibConvergence;

static SPEC: TestSpec = TestSpec {
    name: "fib_convergence",
    title: "FIB convergence",
    summary: "time from the advertisement of routes until the router forwards to each of them",
    source: "RFC 7747 section 5.1.1 (RIB-IN); route-specific method of RFC 6413 section 6.3",
    needs: route_traffic::NEEDS,
    params: &parameters::joined::<16>(&[
        &[
            route_tests::FAMILIES,
            route_tests::TABLE,
            ParamSpec::new("routes", ParamKind::Count, "10000", "200000", "routes that are advertised at once"),
            ParamSpec::new(
                "window",
                ParamKind::Duration,
                "4 s",
                "60 s",
                "time for which traffic goes on after the advertisement",
            ),
        ],
        &route_traffic::LOADED,
        &route_tests::SESSIONS,
    ]),
    figures: &[
        FigureSpec { key: "fib_convergence_ipv4_median_ms", help: "median time until an IPv4 route is forwarded to" },
        FigureSpec { key: "fib_convergence_ipv6_median_ms", help: "the same for IPv6" },
        FigureSpec { key: "fib_convergence_ipv4_max_ms", help: "time until all IPv4 routes are forwarded to" },
        FigureSpec { key: "fib_convergence_ipv6_max_ms", help: "the same for IPv6" },
    ],
};

const KEY: &str = "fib_convergence";
/// Traffic runs for so long before the routes come, in seconds.
const BEFORE_S: f64 = 0.5;

impl Method for FibConvergence {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        table(outcome, KEY, "FIB convergence", PER_ROUTE_TABLE);
        route_outage::plot(outcome, KEY, "Time until a route is forwarded to, over all routes", PlotKind::Sorted);
        note(
            outcome,
            "The time of a route is the number of frames to it that were lost, divided by the rate at which frames go to it, less the time \
             for which they went before the routes were advertised (RFC 6413 section 6.3.3).",
        );
        let mut notes = Vec::new();
        let result = for_each_family(bed, params, &mut notes, |bed, family, _| converge(bed, family, params, outcome));
        notes.into_iter().for_each(|text| note(outcome, text));
        result
    }

    fn estimate(&self, params: &Params) -> Duration {
        estimate(params, &[zero_loss_goal(params)]) + self.estimate_known(params)
    }

    fn estimate_known(&self, params: &Params) -> Duration {
        let each = BEFORE_S + seconds(params, "window", 60.0) + 4.0;
        Duration::from_secs_f64(each * route_tests::families(params).len() as f64)
    }

    fn deviations(&self, params: &Params) -> Vec<String> {
        shorter(params, "window", "traffic after the change", 60.0, route_tests::CONFORMANT).into_iter().collect()
    }
}

fn converge(bed: &mut dyn Testbed, family: Family, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
    let peers = one_per_port(bed, family, 2)?;
    let rate = route_traffic::load(bed, family, params, outcome)?;
    let (source, origin) = (peers[0], peers[1]);
    let packing = route_tests::packing(params)?;
    let all = route_tests::table(bed, params, family, routes(params, "routes"))?;
    let ports: Vec<usize> = bed.routing()?.peers().iter().map(|p| p.port).collect();
    let announce = RouteAction::Announce { peer: origin, routes: all.clone(), part: 0..all.len(), packing };
    let trial = RouteTrial {
        purpose: format!("FIB convergence {family}: {} routes", thousands(all.len().into())),
        size: smallest(family),
        streams: vec![Stream {
            group: family.to_string(),
            from: ports[source],
            to: ports[origin],
            also: Vec::new(),
            routes: all.clone(),
            part: 0..all.len(),
        }],
        rate,
        duration_s: BEFORE_S + seconds(params, "window", 60.0),
        bin_s: None,
        per_route: true,
        changes: vec![(BEFORE_S, "advertised".into(), vec![announce])],
    };
    bed.progress(&trial.purpose, 0, 1);
    let result = route_traffic::run(bed, params, &trial, |bed| {
        bed.routing()?.reset(patience(params))?;
        route_tests::establish(bed, &[source, origin], params).map(drop)
    })?;
    route_tests::note_losses(bed, family, &[source, origin], outcome)?;
    let Some(outage) = Outage::of(&result, rate.pps(), Some(result.events.first().map_or(BEFORE_S, |e| e.at_s))) else {
        return Err(TestError::Failed("nothing was counted per route".into()));
    };
    route_outage::write(outcome, KEY, family, &family.to_string(), &outage, &result);
    route_outage::unreachable(outcome, KEY, &all, 0, &outage);
    route_outage::rank(outcome, KEY, "FIB convergence", family, &outage);
    Ok(())
}
