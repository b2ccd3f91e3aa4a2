//! Longest match with covering prefixes: shorter masks that lead to another port must not draw a single frame while the longer ones are
//! there, and must take all of them when those are gone (core router test of 2001: 50,000 shorter masks beside the table).

use crate::Method;
use crate::parameters::{self, count, fewer, seconds};
use crate::report::{note, row, table};
use crate::route_forwarding::{Way, await_installed};
use crate::route_tests::{self, complaint, for_each_family, one_per_port, patience, routes, thousands};
use crate::route_traffic::{self, RouteTrial, Stream, smallest};
use crate::routing::{PeerIndex, RouteAction, Routing};
use crate::testbed::{TestError, Testbed};
use crate::throughput_search::{estimate, zero_loss_goal};
use drophammer_model::outcome::{Outcome, RankFigure, Row};
use drophammer_model::registry::{FigureSpec, ParamKind, ParamSpec, TestSpec};
use drophammer_model::routes::{Prefix, RouteAttributes, RouteTable, Routes};
use drophammer_model::suite::Params;
use drophammer_model::trial::{Family, TrialResult};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The test.
pub struct LongestMatch;

static SPEC: TestSpec = TestSpec {
    name: "longest_match",
    title: "Longest match with covering prefixes",
    summary: "do shorter masks leave the forwarding alone, and take over when the longer ones are withdrawn",
    source: "core router test of 2001; longest match of RFC 1812 section 5.2.4.3",
    needs: route_traffic::NEEDS,
    params: &parameters::joined::<18>(&[
        &[
            route_tests::FAMILIES,
            route_tests::TABLE,
            ParamSpec::new("routes", ParamKind::Count, "20000", "200000", "routes of the table"),
            ParamSpec::new(
                "covering",
                ParamKind::Count,
                "5000",
                "50000",
                "shorter masks that cover routes of the table, at most",
            ),
            ParamSpec::new("shorter_by", ParamKind::Count, "2", "2", "bits by which a covering mask is shorter"),
            ParamSpec::new("frames_per_route", ParamKind::Count, "5", "20", "frames to each route per trial"),
        ],
        &route_traffic::LOADED,
        &route_tests::SESSIONS,
    ]),
    figures: &[
        FigureSpec {
            key: "longest_match_ipv4_wrong_frames",
            help: "IPv4 frames that took a shorter mask than they had to",
        },
        FigureSpec { key: "longest_match_ipv6_wrong_frames", help: "the same for IPv6" },
    ],
};

const TABLE: &str = "longest_match";

impl Method for LongestMatch {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        table(
            outcome,
            TABLE,
            "Longest match with covering prefixes",
            &[
                ("family", "Family", ""),
                ("state", "Routes held", ""),
                ("routes", "Routes aimed at", ""),
                ("offered", "Offered", "frames"),
                ("right", "At the right port", "frames"),
                ("wrong", "At the other port", "frames"),
                ("lost", "Lost", "frames"),
                ("rate_pps", "Forwarding rate", "fps"),
                ("mean_us", "Latency, mean", "µs"),
                ("p99_us", "Latency, 99 %", "µs"),
            ],
        );
        note(
            outcome,
            "Routes of the table lead to one port, the covering prefixes to another. After the withdrawal only those routes are aimed at that \
             a covering prefix has.",
        );
        let mut notes = Vec::new();
        let result = for_each_family(bed, params, &mut notes, |bed, family, _| lookup(bed, family, params, outcome));
        notes.into_iter().for_each(|text| note(outcome, text));
        result
    }

    fn estimate(&self, params: &Params) -> Duration {
        estimate(params, &[zero_loss_goal(params)]) + self.estimate_known(params)
    }

    fn estimate_known(&self, params: &Params) -> Duration {
        let routes = f64::from(routes(params, "routes"));
        let traffic = 3.0 * routes * f64::from(count(params, "frames_per_route")) / 100e3;
        let each = traffic + routes / 15_000.0 + seconds(params, "pause", 5.0) + 5.0;
        Duration::from_secs_f64(each * route_tests::families(params).len() as f64)
    }

    fn deviations(&self, params: &Params) -> Vec<String> {
        fewer(params, "frames_per_route", "frames to each route", 20, route_tests::CONFORMANT).into_iter().collect()
    }
}

/// Masks shorter by `bits` than routes of `all`, from the first route on, none of them a route itself, `most` at most; and how many of
/// the first routes they cover without a gap.
fn covering(all: &Routes, bits: u8, most: usize) -> (Vec<Prefix>, u32) {
    let mut found = BTreeSet::new();
    let mut covered = 0;
    for index in 0..all.len() {
        let route = all.prefix(index);
        let shorter = route.length().checked_sub(bits).filter(|length| *length > 0);
        let Some(cover) = shorter.and_then(|length| Prefix::masked(route.address(), length)) else { break };
        if !found.contains(&cover) {
            if found.len() == most || all.index_of(&cover).is_some() {
                break;
            }
            found.insert(cover);
        }
        covered = index + 1;
    }
    (found.into_iter().collect(), covered)
}

fn lookup(bed: &mut dyn Testbed, family: Family, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
    let peers = one_per_port(bed, family, 3)?;
    let rate = route_traffic::load(bed, family, params, outcome)?;
    let (source, long, short) = (peers[0], peers[1], peers[2]);
    let packing = route_tests::packing(params)?;
    let all = route_tests::table(bed, params, family, routes(params, "routes"))?;
    let bits = u8::try_from(count(params, "shorter_by")).unwrap_or(u8::MAX);
    let (masks, covered) = covering(&all, bits, routes(params, "covering") as usize);
    if masks.is_empty() {
        return Err(TestError::NotApplicable("the table has no routes that could be covered".into()));
    }
    let count_of_masks = masks.len();
    let name = format!("{count_of_masks} covering prefixes");
    let masks = masks.into_iter().map(|prefix| (prefix, RouteAttributes::default()));
    let covers = Arc::new(Routes::Table(Arc::new(RouteTable::new(name, family, masks))));
    let ports: Vec<usize> = bed.routing()?.peers().iter().map(|p| p.port).collect();
    route_tests::establish(bed, &[source, long, short], params)?;

    let announce = |bed: &mut dyn Testbed, peer: PeerIndex, routes: &Arc<Routes>| -> Result<(), TestError> {
        let routing = bed.routing()?;
        let watch = routing.watch(source, peer, routes);
        routing.expect(watch, 0..routes.len(), true);
        let part = 0..routes.len();
        routing.act(&RouteAction::Announce { peer, routes: routes.clone(), part, packing })?;
        settled(routing, watch, params)
    };
    let frames_per_route = f64::from(count(params, "frames_per_route"));
    let trial = |state: &str, part: std::ops::Range<u32>, to: PeerIndex| RouteTrial {
        purpose: format!("longest match {family}: {state}"),
        size: smallest(family),
        duration_s: part.len() as f64 * frames_per_route / rate.pps(),
        streams: vec![Stream {
            group: family.to_string(),
            from: ports[source],
            to: ports[to],
            also: Vec::new(),
            routes: all.clone(),
            part,
        }],
        rate,
        bin_s: None,
        per_route: true,
        changes: Vec::new(),
    };
    let mut wrong = 0;
    let mut step = |bed: &mut dyn Testbed,
                    outcome: &mut Outcome,
                    state: &str,
                    held: u64,
                    part: std::ops::Range<u32>,
                    to: PeerIndex| {
        bed.progress(&format!("longest match {family}: {state}"), 0, 0);
        let way = Way { from: ports[source], to: ports[to], routes: all.clone(), part: part.clone(), rate };
        await_installed(bed, params, outcome, &way, held)?;
        let routes = part.len() as u64;
        let result = route_traffic::run(bed, params, &trial(state, part, to), |_| Ok(()))?;
        route_tests::note_losses(bed, family, &[source, long, short], outcome)?;
        wrong += write(outcome, family, state, routes, &result);
        Ok::<(), TestError>(())
    };
    let (specific, shorter) = (u64::from(all.len()), u64::from(covers.len()));
    announce(bed, long, &all)?;
    step(bed, outcome, "table alone", specific, 0..all.len(), long)?;
    announce(bed, short, &covers)?;
    step(bed, outcome, "table and covering prefixes", specific + shorter, 0..all.len(), long)?;
    let routing = bed.routing()?;
    let watch = routing.watch(source, long, &all);
    routing.expect(watch, 0..all.len(), false);
    routing.act(&RouteAction::Withdraw { peer: long, routes: all.clone(), part: 0..all.len(), packing })?;
    settled(routing, watch, params)?;
    step(bed, outcome, "covering prefixes alone", shorter, 0..covered, short)?;
    note(
        outcome,
        format!(
            "{family}: {} covering prefixes over {} routes.",
            thousands(count_of_masks as u64),
            thousands(covered.into())
        ),
    );
    outcome.ranks.push(RankFigure {
        key: format!("longest_match_{}_wrong_frames", family.to_string().to_lowercase()),
        title: format!("Frames by a wrong mask, {family}"),
        unit: "frames".into(),
        value: Some(wrong as f64),
        higher_is_better: false,
        tester_limited: false,
        resolution: 0.0,
    });
    Ok(())
}

fn settled(routing: &mut dyn Routing, watch: usize, params: &Params) -> Result<(), TestError> {
    let settled = routing.await_settled(&[watch], patience(params))?;
    if settled.complete {
        return Ok(());
    }
    Err(TestError::Failed(format!("the router did not follow: {}", complaint(routing, watch, &settled))))
}

/// Adds a row; returns the frames that came to the other port.
fn write(outcome: &mut Outcome, family: Family, state: &str, routes: u64, result: &TrialResult) -> u64 {
    let wrong = result.sum(|g| g.stray);
    let latency = result.groups.first().map(|g| &g.latency);
    let us = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e3);
    row(
        outcome,
        TABLE,
        Row {
            cells: vec![
                family.to_string().into(),
                state.into(),
                routes.into(),
                result.offered().into(),
                result.received().into(),
                wrong.into(),
                result.lost().saturating_sub(wrong).into(),
                result.forwarding_rate().pps().into(),
                latency.filter(|l| l.frames > 0).map(|l| l.mean_ns / 1e3).into(),
                us(latency.and_then(|l| l.percentile(99.0))).into(),
            ],
            trials: vec![result.trial],
            marks: Vec::new(),
        },
    );
    wrong
}
