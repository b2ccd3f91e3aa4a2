//! Full-table dump: how fast a router advertises its whole table to a peer that comes up (RFC 7747 section 5.1.2, RIB-OUT, with a
//! full table).

use crate::attempts::Attempts;
use crate::figure::of_family;
use crate::kit::prelude::*;
use crate::route_tests::{self, Case, PATIENCE, complaint, for_each_family, thousands};
use crate::routes_sent;
use crate::routing::RouteAction;

/// The test.
pub struct BgpTableDump;

const ROUTES: Param<u32> = Param::new("routes", "100000", "1000000", "routes of the table");
const REPEATS: Param<u32> = Param::new("repeats", "2", "5", "how often the new peer comes up");

const DUMP: [FigureSpec; 2] = [
    FigureSpec::lower("bgp_dump_ipv4_s", "s", "mean time until a new peer has all IPv4 routes, in seconds"),
    FigureSpec::lower("bgp_dump_ipv6_s", "s", "mean time until a new peer has all IPv6 routes, in seconds"),
];

static SPEC: TestSpec = TestSpec {
    name: "bgp_table_dump",
    title: "Full table to a new peer",
    summary: "time from a new session until the peer has the whole table, every route verified",
    source: "RFC 7747 section 5.1.2; terms of RFC 4098",
    needs: route_tests::NEEDS,
    params: params![&route_tests::TABLES, &[ROUTES.spec(), REPEATS.spec()], &route_tests::SESSIONS],
    figures: &[DUMP[0].shape(), DUMP[1].shape()],
    tables: &[TABLE.shape(), routes_sent::SHAPE],
};

columns! {
    /// One dump. Times count from the establishment of the session.
    struct DumpRow {
        family: Family,
        repeat: u64,
        routes: u64,
        missing: u64,
        first_s: Option<f64> = "First route after" ["s"],
        last_s: Option<f64> = "Last route after" ["s"],
        rate_rps: Option<f64> ["routes/s"],
    }
}

const TABLE: TableSpec<DumpRow> = TableSpec::new("bgp_table_dump", "Full table to a new peer");
const PLOT: PlotSpec = PlotSpec::new(
    "bgp_table_dump",
    "Routes at the new peer",
    PlotKind::Area,
    "time since the session came up, s",
    "routes",
);

impl Method for BgpTableDump {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let routes = f64::from(ROUTES.get(params));
        Plan::by_family(&SPEC, params)
            .taking(routes / 30_000.0 + f64::from(REPEATS.get(params)) * (routes / 100_000.0 + 1.0) + 2.0)
            .deviating(fewer(params, &REPEATS, "dumps", 5, route_tests::CONFORMANT))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        PLOT.begin(outcome);
        for_each_family(bed, params, outcome, |bed, family, outcome| dump(bed, family, params, outcome))
    }
}

fn dump(bed: &mut dyn Testbed, family: Family, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
    let case = Case::new(bed, family, params, 2, ROUTES.get(params))?;
    let (origin, observer) = (case.peers[0], case.peers[1]);
    let routes = u64::from(case.all.len());
    let repeats = REPEATS.get(params);
    // The table is complete when the first observer has it. Each dump goes to the same other peer, whose session comes
    // up again.
    case.load(bed, params, origin, observer)?;
    let mut times = Vec::new();
    let mut limited = false;
    let (mut repeat, mut attempts) = (0, Attempts::few(bed));
    while repeat < repeats {
        bed.progress(&format!("table dump, {family}: {} routes, {} of {repeats}", thousands(routes), repeat + 1));
        let routing = bed.routing()?;
        routing.act(&RouteAction::Close { peer: observer })?;
        routing.await_settled(&[], PATIENCE.get(params))?;
        // Before timing starts, because the router may refuse sessions for some seconds after a session has ended.
        routing.ready_for_sessions()?;
        let watched = routing.now_s();
        let watch = routing.watch(observer, origin, &case.all);
        let expected = routing.now_s();
        routing.expect(watch, case.whole(), true);
        routing.watch_host();
        let begun = routing.now_s();
        // Setting up the watch of a million routes takes time, and the times of a trace start before that.
        let (since_watch, since_expect) = (begun - watched, begun - expected);
        let up = route_tests::establish(bed, &[observer], params)?.first().map_or(0.0, Duration::as_secs_f64);
        let routing = bed.routing()?;
        let settled = routing.await_settled(&[watch], PATIENCE.get(params))?;
        let disturbed = routing.disturbed();
        let disturbed = if settled.complete { disturbed } else { Vec::new() };
        if !disturbed.is_empty() && attempts.again(bed, &disturbed, settled.last_change_s) {
            note(outcome, format!("{family}: disturbed, so dumped again: {}", disturbed.join("; ")));
            continue;
        }
        // No attempts are left, so this time is an upper bound.
        limited |= !disturbed.is_empty();
        let routing = bed.routing()?;
        let verified = routing.verified(watch);
        // Times count from the establishment of the session; routes may follow immediately.
        let last_s = verified.last_change_s.map(|at| (at - begun - up).max(0.0)).filter(|_| settled.complete);
        let first = routing.trace(watch).times.into_iter().flatten().min_by(f64::total_cmp);
        let first_s = first.map(|at| (at - since_expect - up).max(0.0));
        times.extend(last_s);
        let incomplete = (!settled.complete).then(|| complaint(routing, watch, &settled));
        TABLE.add(
            outcome,
            DumpRow {
                family,
                repeat: (repeat + 1).into(),
                routes,
                missing: verified.missing,
                first_s,
                last_s,
                rate_rps: last_s.and_then(|s| route_tests::rate(routes, s)),
            },
            [],
            incomplete.into_iter().chain(disturbed),
        );
        if repeat == 0 {
            for (at, routes) in bed.routing()?.trace(watch).skyline {
                let at = (at - since_watch - up).max(0.0);
                PLOT.curve(outcome, &family.to_string(), xy(at, f64::from(routes)));
            }
        }
        (repeat, attempts) = (repeat + 1, Attempts::few(bed));
    }
    let title = format!("Full table of {} routes to a new peer, {family}", thousands(routes));
    let value = (times.len() == repeats as usize).then(|| mean(&times));
    let figure = of_family(&DUMP, family).of(&[], title, value).because("a dump was incomplete");
    outcome.ranks.push(RankFigure { tester_limited: limited, ..figure });
    Ok(())
}
