//! Link down to alternate path (RFC 7747 section 5.2, RFC 6413 section 8): the link of the best path fails under traffic to every
//! route, and each route's outage is told.

use crate::Method;
use crate::parameters::{self, seconds, shorter};
use crate::report::{note, table};
use crate::route_forwarding::{Way, load_paths};
use crate::route_outage::{self, Outage, PER_ROUTE_TABLE};
use crate::route_tests::{self, for_each_family, one_per_port, routes, thousands};
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
pub struct LinkFailover;

static SPEC: TestSpec = TestSpec {
    name: "link_failover",
    title: "Link down to alternate path",
    summary: "how long each route is out of reach when the link or the session of its best path goes down",
    source: "RFC 7747 sections 5.2 and 5.3; route-specific method of RFC 6413 section 6.3",
    needs: route_traffic::NEEDS,
    params: &parameters::joined::<17>(&[
        &[
            route_tests::FAMILIES,
            route_tests::TABLE,
            ParamSpec::new("routes", ParamKind::Count, "10000", "200000", "routes with a second path"),
            ParamSpec::new(
                "failure",
                ParamKind::Choice(&["link", "session"]),
                "link",
                "link",
                "what fails: the link, as a pulled cable would, or the BGP session by a NOTIFICATION",
            ),
            ParamSpec::new(
                "window",
                ParamKind::Duration,
                "4 s",
                "60 s",
                "time for which traffic goes on after the failure",
            ),
        ],
        &route_traffic::LOADED,
        &route_tests::SESSIONS,
    ]),
    figures: &[
        FigureSpec { key: "link_failover_ipv4_median_ms", help: "median outage of an IPv4 route" },
        FigureSpec { key: "link_failover_ipv6_median_ms", help: "the same for IPv6" },
        FigureSpec { key: "link_failover_ipv4_max_ms", help: "longest outage of an IPv4 route" },
        FigureSpec { key: "link_failover_ipv6_max_ms", help: "the same for IPv6" },
    ],
};

const KEY: &str = "link_failover";
/// Traffic runs for so long before the failure, in seconds.
const BEFORE_S: f64 = 1.0;

impl Method for LinkFailover {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        table(outcome, KEY, "Outage of each route", PER_ROUTE_TABLE);
        route_outage::plot(outcome, KEY, "Outage of a route, over all routes", PlotKind::Sorted);
        note(
            outcome,
            "The outage of a route is the number of frames to it that were lost, divided by the rate at which frames go to it (RFC 6413 \
             section 6.3.3). Frames may arrive behind either port.",
        );
        let mut notes = Vec::new();
        let result = for_each_family(bed, params, &mut notes, |bed, family, _| fail(bed, family, params, outcome));
        notes.into_iter().for_each(|text| note(outcome, text));
        result
    }

    fn estimate(&self, params: &Params) -> Duration {
        estimate(params, &[zero_loss_goal(params)]) + self.estimate_known(params)
    }

    fn estimate_known(&self, params: &Params) -> Duration {
        let each = BEFORE_S + seconds(params, "window", 60.0) + f64::from(routes(params, "routes")) / 7_500.0 + 8.0;
        Duration::from_secs_f64(each * route_tests::families(params).len() as f64)
    }

    fn deviations(&self, params: &Params) -> Vec<String> {
        shorter(params, "window", "traffic after the change", 60.0, route_tests::CONFORMANT).into_iter().collect()
    }
}

fn fail(bed: &mut dyn Testbed, family: Family, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
    let peers = one_per_port(bed, family, 3)?;
    let rate = route_traffic::load(bed, family, params, outcome)?;
    let (source, best, alternate) = (peers[0], peers[1], peers[2]);
    let packing = route_tests::packing(params)?;
    let all = route_tests::table(bed, params, family, routes(params, "routes"))?;
    let ports: Vec<usize> = bed.routing()?.peers().iter().map(|p| p.port).collect();
    let link = params.text("failure").is_none_or(|f| f == "link");
    let (label, failure) = if link {
        ("link down", RouteAction::Link { port: ports[best], up: false })
    } else {
        ("session ended", RouteAction::Close { peer: best })
    };
    let trial = RouteTrial {
        purpose: format!("{label} {family}: {} routes", thousands(all.len().into())),
        size: smallest(family),
        streams: vec![Stream {
            group: family.to_string(),
            from: ports[source],
            to: ports[best],
            also: vec![ports[alternate]],
            routes: all.clone(),
            part: 0..all.len(),
        }],
        rate,
        duration_s: BEFORE_S + seconds(params, "window", 60.0),
        bin_s: None,
        per_route: true,
        changes: vec![(BEFORE_S, label.into(), vec![failure])],
    };
    bed.progress(&trial.purpose, 0, 1);
    let way = Way { from: ports[source], to: ports[best], routes: all.clone(), part: 0..all.len(), rate };
    let up = RouteAction::Link { port: ports[best], up: true };
    let result = route_traffic::run(bed, params, &trial, |bed| {
        if link {
            bed.routing()?.act(&up)?;
        }
        load_paths(bed, params, outcome, source, &[best, alternate], &way, packing)
    });
    if link {
        bed.routing()?.act(&up)?;
    }
    let result = result?;
    // That of the best path is meant to end.
    route_tests::note_losses(bed, family, &[source, alternate], outcome)?;
    let Some(outage) = Outage::of(&result, rate.pps(), None) else {
        return Err(TestError::Failed("nothing was counted per route".into()));
    };
    route_outage::write(outcome, KEY, family, &format!("{family}, {label}"), &outage, &result);
    let alternate_frames: u64 = result.groups.iter().filter_map(|g| g.arrived_at.get(ports[alternate])).sum();
    if alternate_frames == 0 {
        note(outcome, format!("{family}: not one frame took the alternate path."));
    }
    route_outage::unreachable(outcome, KEY, &all, 0, &outage);
    route_outage::rank(outcome, KEY, "Outage", family, &outage);
    Ok(())
}
