//! Filters on half of the routes (core router test of 2001, "Focus on Filtering"): what they cost in rate and latency, and whether a single
//! frame leaks.

use crate::Method;
use crate::columns;
use crate::filter_lists::Action;
use crate::filters::FILTER_AT;
use crate::parameters::{DRAIN, PAUSE, params};
use crate::report::{PlotSpec, higher, lower_by_difference, note, percent_of, percent_ratio};
use crate::route_forwarding::{Way, await_installed};
use crate::route_tests::{self, Case, for_each_family, thousands};
use crate::route_traffic::{self, smallest};
use crate::table::TableSpec;
use crate::testbed::{TestError, Testbed};
use drophammer_model::capabilities::Need;
use drophammer_model::filter::{FilterDirection, FilterList, FilterRule};
use drophammer_model::outcome::{Outcome, PlotKind, Point};
use drophammer_model::param::Param;
use drophammer_model::quantity::FrameRate;
use drophammer_model::registry::{FigureSpec, TestSpec};
use drophammer_model::routes::{Prefix, Routes};
use drophammer_model::suite::Params;
use drophammer_model::trial::{Family, FlowSpec, Load, Targets, TrialResult, TrialSpec};
use std::ops::Range;
use std::time::Duration;

/// The test.
pub struct RouteFiltering;

const ROUTES: Param<u32> = Param::new("routes", "2000", "200000", "routes of the table, half of which are filtered");
const ACTIONS: Param<Vec<Action>> = Param::new(
    "actions",
    "[allow, deny, both]",
    "[allow, deny, both]",
    "what rules do: allow half of the routes, deny it, or allow one half and deny the other",
);
const FRAMES_PER_ROUTE: Param<u32> =
    Param::new("frames_per_route", "5", "20", "frames to each route per trial, at least");
const TRIAL_DURATION: Param<Duration> = Param::new("trial_duration", "500 ms", "60 s", "length of a trial, at least");

static SPEC: TestSpec = TestSpec {
    name: "route_filtering",
    title: "Filters on half of the routes",
    summary: "rate and latency with filters on half of the routes as a share of those without, and frames that leak through",
    source: "core router test of 2001, Focus on Filtering",
    needs: &[Need::Bgp, Need::BgpForwarding, Need::Filters],
    params: params![
        &route_tests::TABLES,
        &[ROUTES.spec(), ACTIONS.spec(), FILTER_AT.spec(), FRAMES_PER_ROUTE.spec(), TRIAL_DURATION.spec()],
        &route_traffic::LOADED,
        &route_tests::SESSIONS,
    ],
    figures: &[
        FigureSpec {
            key: "route_filtering_{family}_percent",
            help: "lowest forwarding rate of all cases, in % of what must pass of the rate without filters",
        },
        FigureSpec {
            key: "route_filtering_{family}_leaked",
            help: "frames to denied routes that passed, over all cases",
        },
    ],
};

columns! {
    /// One filter, or none. Rates are per sending port.
    struct FilteringRow {
        family: Family = "Family",
        filter_at: Option<String> = "Filter at",
        action: Option<String> = "Action",
        rules: u64 = "Rules",
        routes: u64 = "Routes",
        load_pps: f64 = "Load" ["fps"],
        rate_pps: f64 = "Forwarding rate" ["fps"],
        of_throughput_percent: Option<f64> = "Of the throughput" ["%"],
        of_baseline_percent: Option<f64> = "Of that without filters" ["%"],
        expected_percent: f64 = "Expected" ["%"],
        latency_p50_us: Option<f64> = "Median latency" ["µs"],
        latency_percent: Option<f64> = "Latency, of that without filters" ["%"],
        permitted: u64 = "Offered, to be permitted" ["frames"],
        permitted_lost: u64 = "Of these lost" ["frames"],
        denied: u64 = "Offered, to be denied" ["frames"],
        leaked: u64 = "Of these leaked" ["frames"],
    }
}

columns! {
    /// Frames to one route that a filter let pass and must deny.
    struct LeakRow {
        family: Family = "Family",
        filter_at: String = "Filter at",
        action: String = "Action",
        route: String = "Route",
        frames: u64 = "Frames" ["frames"],
    }
}

const TABLE: TableSpec<FilteringRow> = TableSpec::new("route_filtering", "Filters on half of the routes");
const LEAKS: TableSpec<LeakRow> = TableSpec::new("route_filtering_leaks", "Routes whose frames leaked");
const BARS: PlotSpec = PlotSpec {
    key: "route_filtering",
    title: "Forwarding rate with filters on half of the routes",
    kind: PlotKind::Bars,
    x: "filter",
    y: "% of the rate without filters",
    log_y: false,
};

/// Routes with leaks that have a row, in each case.
const MOST_NAMED: usize = 20;
const PERMITTED: &str = "permitted";
const DENIED: &str = "denied";

impl Method for RouteFiltering {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        BARS.begin(outcome);
        note(
            outcome,
            "A rule permits or denies the destinations of one route; what no rule matches is permitted. All cases have the same load, so the \
             rate that is expected of that without filters is 100 % where all is permitted and 50 % where half is denied.",
        );
        for_each_family(bed, params, outcome, |bed, family, outcome| filtered(bed, family, params, outcome))
    }

    fn estimate(&self, params: &Params) -> Duration {
        route_traffic::estimate_search(params) + self.estimate_known(params)
    }

    fn estimate_known(&self, params: &Params) -> Duration {
        let cases = ACTIONS.get(params).len() as f64 * FILTER_AT.get(params).len() as f64 + 1.0;
        let routes = f64::from(ROUTES.get(params));
        let traffic = (routes * f64::from(FRAMES_PER_ROUTE.get(params)) / 100e3).max(TRIAL_DURATION.seconds(params));
        let filters = routes / 50_000.0 + 0.3;
        let each = cases * (traffic + filters + 2.0 * PAUSE.seconds(params)) + routes / 15_000.0 + 5.0;
        Duration::from_secs_f64(each * route_tests::families(params))
    }

    fn deviations(&self, params: &Params) -> Vec<String> {
        let few = ROUTES.get(params) < 200_000;
        let few = few.then(|| format!("{} routes instead of 200,000 (core router test of 2001)", ROUTES.get(params)));
        few.into_iter().collect()
    }
}

/// What a trial found.
struct Found {
    /// Where the filter applies and what its rules do; `None` without one.
    filter: Option<(FilterDirection, Action)>,
    rules: u64,
    result: TrialResult,
    denied_flows: Vec<usize>,
}

impl Found {
    fn counts(&self, group: &str) -> (u64, u64) {
        let found = self.result.groups.iter().find(|counts| counts.group == group);
        found.map_or((0, 0), |counts| (counts.offered, counts.received))
    }

    fn rate_pps(&self) -> f64 {
        self.result.forwarding_rate().pps()
    }

    fn latency_us(&self) -> Option<f64> {
        let groups = self.result.groups.iter().filter(|counts| counts.group == PERMITTED);
        groups.filter_map(|counts| counts.latency.percentile(50.0)).max().map(|ns| ns as f64 / 1e3)
    }

    /// Share of the rate without filters that must pass, in %.
    fn expected_percent(&self) -> f64 {
        let ((permitted, _), (denied, _)) = (self.counts(PERMITTED), self.counts(DENIED));
        percent_of(permitted, permitted + denied).unwrap_or(100.0)
    }
}

fn filtered(bed: &mut dyn Testbed, family: Family, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
    let table = Case::new(bed, family, params, 2, ROUTES.get(params))?;
    if let Some((one, other)) = nested(&table.all) {
        let why = format!(
            "the table has {one} and {other}, of which one covers the other: rules would not be of half of the routes"
        );
        return Err(TestError::NotApplicable(why));
    }
    let rate = route_traffic::load(bed, family, params, outcome)?;
    let (source, origin) = (table.peers[0], table.peers[1]);
    table.load(bed, params, origin, source)?;
    let way = Way { stream: table.stream(source, origin, table.whole()), rate };
    await_installed(bed, params, outcome, &way, u64::from(table.all.len()))?;

    let mut all: Vec<Found> = Vec::new();
    let directions = FILTER_AT.get(params);
    let each =
        |direction: FilterDirection| ACTIONS.get(params).into_iter().map(move |action| Some((direction, action)));
    let cases: Vec<_> = std::iter::once(None).chain(directions.into_iter().flat_map(each)).collect();
    let of = cases.len() as u32;
    let measured = cases.into_iter().try_for_each(|filter| {
        let what = filter.map_or("none".into(), |(direction, action)| format!("{action}, {direction}"));
        let purpose = format!("route filtering {family}: {what}");
        bed.progress(&purpose, all.len() as u32, of);
        let ends = (table.port(source), table.port(origin));
        let lists: Vec<FilterList> = filter.iter().map(|(at, action)| list(&table.all, *at, *action, ends)).collect();
        bed.filter(&lists)?;
        bed.settle(PAUSE.get(params))?;
        let denies = filter.is_some_and(|(_, action)| action != Action::Allow);
        let spec = spec(bed, &table, ends, purpose, rate, denies, params)?;
        let result = bed.trial(&spec)?;
        let denied_flows = (0..spec.flows.len()).filter(|i| spec.flows[*i].denied).collect();
        all.push(Found { filter, rules: lists.iter().map(|list| list.rules.len() as u64).sum(), result, denied_flows });
        bed.settle(PAUSE.get(params))
    });
    let measured = measured.and_then(|()| bed.filter(&[]));
    let throughput = route_traffic::baseline(bed, family, params);
    write(outcome, family, &table.all, &all, throughput);
    route_tests::note_losses(bed, family, &[source, origin], outcome)?;
    measured
}

/// Routes of the half that rules deny, and those of the other half.
fn halves(all: &Routes) -> (Range<u32>, Range<u32>) {
    let half = all.len() / 2;
    (0..half, half..all.len())
}

/// The list of a case; `ends` are the ports by which test frames arrive and leave.
fn list(all: &Routes, direction: FilterDirection, action: Action, ends: (usize, usize)) -> FilterList {
    let (half, other) = halves(all);
    let rules = |part: Range<u32>, deny| {
        part.map(move |i| all.prefix(i)).map(move |route| FilterRule {
            deny,
            destination: Some((route.address(), route.length())),
            ..FilterRule::default()
        })
    };
    let rules = match action {
        Action::Allow => rules(half, false).collect(),
        Action::Deny => rules(half, true).collect(),
        Action::Both => rules(other, false).chain(rules(half, true)).collect(),
    };
    let port = if direction == FilterDirection::Ingress { ends.0 } else { ends.1 };
    FilterList { direction, interfaces: vec![port], rules }
}

/// Frames to every route, the same in every case: those of the filtered half, and those of the other one.
fn spec(
    bed: &dyn Testbed,
    table: &Case,
    ends: (usize, usize),
    purpose: String,
    rate: FrameRate,
    denies: bool,
    params: &Params,
) -> Result<TrialSpec, TestError> {
    let port = &bed.ports()[ends.0];
    let sources = port.addressing(table.family).map(|a| a.destinations);
    let missing = || TestError::NotApplicable(format!("port {} has no {} addresses", port.name, table.family));
    let sources = sources.ok_or_else(missing)?;
    let (half, other) = halves(&table.all);
    let flow = |part: Range<u32>, denied: bool| {
        let (first, count) = (part.start, part.len() as u32);
        let targets = Targets::Routes { routes: table.all.clone(), first, count };
        let group = if denied { DENIED } else { PERMITTED };
        FlowSpec {
            weight: part.len() as f64,
            per_destination: true,
            denied,
            ..FlowSpec::new(group, ends.0, ends.1, sources, targets)
        }
    };
    let all_routes_s = f64::from(table.all.len()) * f64::from(FRAMES_PER_ROUTE.get(params)) / rate.pps();
    Ok(TrialSpec {
        purpose,
        size: smallest(table.family),
        flows: vec![flow(half, denies), flow(other, false)],
        load: Load::Constant { rate_pps: rate.pps() },
        duration_s: all_routes_s.max(TRIAL_DURATION.seconds(params)),
        bin_s: None,
        drain_s: DRAIN.seconds(params),
        events: vec![],
    })
}

/// Two prefixes of which one covers the other, if there are any.
fn nested(all: &Routes) -> Option<(Prefix, Prefix)> {
    let mut prefixes: Vec<Prefix> = (0..all.len()).map(|i| all.prefix(i)).collect();
    // One that covers others then stands directly before one of these.
    prefixes.sort_unstable_by_key(|p| (p.address(), p.length()));
    prefixes.windows(2).find(|pair| pair[0].covers(&pair[1])).map(|pair| (pair[0], pair[1]))
}

fn write(outcome: &mut Outcome, family: Family, all: &Routes, found: &[Found], throughput: Option<FrameRate>) {
    let Some(without) = found.first() else { return };
    let (mut leaked_frames, mut lowest): (u64, Option<f64>) = (0, None);
    for (x, one) in found.iter().enumerate() {
        let share = percent_ratio(Some(one.rate_pps()), Some(without.rate_pps()));
        let ((permitted, passed), (denied, leaked)) = (one.counts(PERMITTED), one.counts(DENIED));
        leaked_frames += leaked;
        if one.filter.is_some()
            && let Some(of_expected) = percent_ratio(share, Some(one.expected_percent()))
        {
            lowest = Some(lowest.map_or(of_expected, |lowest| lowest.min(of_expected)));
        }
        let mark = (leaked > 0).then(|| format!("leaked {leaked} frames that it denies"));
        TABLE.add(
            outcome,
            FilteringRow {
                family,
                filter_at: one.filter.map(|(direction, _)| direction.to_string()),
                action: one.filter.map(|(_, action)| action.to_string()),
                rules: one.rules,
                routes: all.len().into(),
                load_pps: one.result.offered_load().pps(),
                rate_pps: one.rate_pps(),
                of_throughput_percent: percent_ratio(Some(one.rate_pps()), throughput.map(|rate| rate.pps())),
                of_baseline_percent: share,
                expected_percent: one.expected_percent(),
                latency_p50_us: one.latency_us(),
                latency_percent: percent_ratio(one.latency_us(), without.latency_us()),
                permitted,
                permitted_lost: permitted - passed,
                denied,
                leaked,
            },
            [one.result.trial],
            mark,
        );
        let label = one.filter.map_or("none".into(), |(direction, action)| format!("{action}, {direction}"));
        if let Some(y) = share {
            let point = Point { x: x as f64, y, label: Some(label), range: None, trial: Some(one.result.trial) };
            BARS.curve(outcome, &family.to_string(), point);
        }
        name_leaks(outcome, family, all, one);
    }
    let word = family.to_string().to_lowercase();
    let title = format!("Lowest rate with filters, of what must pass, {family}");
    outcome.ranks.push(higher(format!("route_filtering_{word}_percent"), title, "%", lowest));
    let title = format!("Frames leaked to denied routes, {family}");
    let leaked = Some(leaked_frames as f64).filter(|_| found.len() > 1);
    outcome.ranks.push(lower_by_difference(format!("route_filtering_{word}_leaked"), title, "frames", leaked, 1.0));
    note(outcome, format!("{family}: {} routes, half of them filtered.", thousands(all.len().into())));
}

fn name_leaks(outcome: &mut Outcome, family: Family, all: &Routes, one: &Found) {
    let Some((direction, action)) = one.filter else { return };
    for counts in one.result.destinations.iter().filter(|counts| one.denied_flows.contains(&counts.flow)) {
        // The flow of denied routes begins with the first one.
        let leaking: Vec<usize> = (0..counts.received.len()).filter(|i| counts.received[*i] > 0).collect();
        for i in leaking.iter().take(MOST_NAMED) {
            let row = LeakRow {
                family,
                filter_at: direction.to_string(),
                action: action.to_string(),
                route: all.prefix(*i as u32).to_string(),
                frames: counts.received[*i].into(),
            };
            LEAKS.add(outcome, row, [one.result.trial], []);
        }
        if leaking.len() > MOST_NAMED {
            let more = leaking.len() - MOST_NAMED;
            note(outcome, format!("{family}: {action}, {direction}: {more} more routes leaked."));
        }
    }
}
