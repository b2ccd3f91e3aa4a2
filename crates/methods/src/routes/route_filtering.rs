//! Filters on half of the routes (core router test of 2001, "Focus on Filtering"): their effect on rate and latency,
//! and whether any frame leaks.

use crate::figure::word;
use crate::filter_lists::Action;
use crate::filters::FILTER_AT;
use crate::kit::prelude::*;
use crate::route_spread::Spread;
use crate::route_tests::{self, Case, REFUSED, for_each_family};
use crate::route_traffic::{self, must_fit};
use crate::routes_sent;
use crate::routing::{Change, PeerIndex};
use drophammer_model::filter::{FilterDirection, FilterList, FilterRule};
use drophammer_model::routes::{Prefix, Routes};
use drophammer_model::trial::{FlowSpec, Targets};
use std::collections::BTreeMap;
use std::ops::Range;

/// The test.
pub struct RouteFiltering;

const ROUTES: Param<u32> = Param::new("routes", "2000", "200000", "routes of the table, half of which are filtered");
const ACTIONS: Param<Vec<Action>> = Param::fixed(
    "actions",
    "[allow, deny, both]",
    "what the rules do: allow half of the routes, deny this half, or allow one half and deny the other",
);
const FRAMES_PER_ROUTE: Param<u32> =
    Param::new("frames_per_route", "5", "20", "minimum number of frames to each route per trial");
const TRIAL_DURATION: Param<Duration> = Param::new("trial_duration", "500 ms", "60 s", "minimum length of a trial");

const LOWEST: FigureSpec = FigureSpec::higher(
    "route_filtering_{family}_{size}_percent",
    "%",
    "lowest rate, over all cases, of the frames that must pass, in % of the same frames' rate without filters",
);
const LEAKED: FigureSpec = FigureSpec::lower_by_difference(
    "route_filtering_{family}_leaked",
    "frames",
    "frames to denied routes that passed, over all cases and frame sizes",
)
.by(1.0);

static SPEC: TestSpec = TestSpec {
    name: "route_filtering",
    title: "Filters on half of the routes",
    summary: "rate and latency with filters on half of the routes, relative to no filters, and frames that leak",
    source: "core router test of 2001, Focus on Filtering",
    needs: &[Need::Bgp, Need::BgpForwarding, Need::Filters],
    params: params![
        &route_tests::TABLES,
        &[ROUTES.spec(), ACTIONS.spec(), FILTER_AT.spec(), FRAMES_PER_ROUTE.spec(), TRIAL_DURATION.spec()],
        &route_traffic::SPREAD,
        &route_traffic::LOADED,
        &route_tests::SESSIONS,
    ],
    figures: &[LOWEST.shape(), LEAKED.shape()],
    tables: &[TABLE.shape(), LEAKS.shape(), routes_sent::SHAPE],
};

columns! {
    /// One filter, or none. Rates are per sending port.
    struct FilteringRow {
        family: Family,
        frame_size: PacketSize,
        filter_at: Option<String>,
        action: Option<String>,
        rules: u64,
        routes: u64,
        load_pps: f64 ["fps"],
        rate_pps: f64 = "Forwarding rate" ["fps"],
        of_throughput_percent: Option<f64> = "Share of throughput" ["%"],
        of_baseline_percent: Option<f64> = "Share of rate without filters" ["%"],
        expected_percent: f64 ["%"],
        latency_p50_us: Option<f64> = "Median latency" ["µs"],
        latency_percent: Option<f64> = "Share of latency without filters" ["%"],
        permitted: u64 = "Offered, permitted" ["frames"],
        permitted_lost: u64 = "Lost, permitted" ["frames"],
        denied: u64 = "Offered, denied" ["frames"],
        leaked: u64 ["frames"],
    }
}

columns! {
    /// Frames to one route that passed although a filter denies them.
    struct LeakRow {
        family: Family,
        frame_size: PacketSize,
        filter_at: String,
        action: String,
        route: String,
        frames: u64 ["frames"],
    }
}

const TABLE: TableSpec<FilteringRow> = TableSpec::new("route_filtering", "Filters on half of the routes");
const LEAKS: TableSpec<LeakRow> = TableSpec::new("route_filtering_leaks", "Routes whose frames leaked");
const BARS: PlotSpec = PlotSpec::new(
    "route_filtering",
    "Forwarding rate with filters on half of the routes",
    PlotKind::Bars,
    "filter",
    "% of the rate without filters",
);
const LATENCY_BARS: PlotSpec = PlotSpec::new(
    "route_filtering_latency",
    "Latency with filters on half of the routes",
    PlotKind::Bars,
    "filter",
    "% of the median latency without filters",
);

/// Maximum number of routes with leaks that have a row, in each case.
const MOST_NAMED: usize = 20;
const PERMITTED: &str = "permitted";
const DENIED: &str = "denied";

impl Method for RouteFiltering {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let cases = 1 + ACTIONS.get(params).len() * FILTER_AT.get(params).len();
        let (count, sizes) = (ROUTES.get(params), route_traffic::sizes(params));
        let routes = f64::from(count);
        let traffic = (routes * f64::from(FRAMES_PER_ROUTE.get(params)) / 100e3).max(TRIAL_DURATION.seconds(params));
        let trials = sizes as f64 * (traffic + PAUSE.seconds(params));
        let filters = routes / 50_000.0 + 0.3;
        let few = (count < 200_000).then(|| format!("{count} routes instead of 200,000 (core router test of 2001)"));
        Plan::by_family(&SPEC, params)
            // Probes run before the first case.
            .counting(TrialCount::exactly(cases * sizes).or_more())
            .taking(cases as f64 * (trials + filters + PAUSE.seconds(params)) + routes / 15_000.0 + 5.0)
            .deviating(few)
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        BARS.begin(outcome);
        LATENCY_BARS.begin(outcome);
        note(
            outcome,
            "A rule permits or denies the destinations of one route; destinations that no rule matches are permitted. All cases have the same \
             load, so the \
             expected share of the rate without filters is 100 % if all is permitted and 50 % if half is denied.",
        );
        for_each_family(bed, params, outcome, |bed, family, outcome| filtered(bed, family, params, outcome))
    }
}

/// Result of one trial.
struct Found {
    /// Position of the filter and the action of its rules; `None` without a filter.
    filter: Option<(FilterDirection, Action)>,
    rules: u64,
    result: TrialResult,
    /// Flows to denied routes, and the first route of each.
    denied_flows: BTreeMap<usize, u32>,
}

impl Found {
    fn counts(&self, group: &str) -> (u64, u64) {
        let found = self.result.groups.iter().find(|counts| counts.group == group);
        found.map_or((0, 0), |counts| (counts.offered, counts.received))
    }

    fn rate_pps(&self) -> f64 {
        self.result.forwarding_rate().pps()
    }

    /// Rate without the frames that leaked: leaked frames do not make up for lost ones.
    fn passed_pps(&self) -> f64 {
        let TrialResult { sending_s, receiving_s, senders, .. } = self.result;
        let groups = self.result.groups.iter().filter(|counts| counts.group == PERMITTED).cloned().collect();
        let permitted = TrialResult { sending_s, receiving_s, senders, groups, ..TrialResult::default() };
        permitted.forwarding_rate().pps()
    }

    /// The rate of this case in % of the rate without filters.
    fn share(&self, without: &Found) -> Option<f64> {
        percent_ratio(Some(self.rate_pps()), Some(without.rate_pps()))
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
    let table = Spread::new(Case::new(bed, family, params, 2, ROUTES.get(params))?, params)?;
    let all = &table.case.all;
    if let Some((one, other)) = nested(all) {
        let why = format!(
            "{one} and {other} of the table overlap: a rule for one matches frames to the other; choose another `table`"
        );
        return Err(TestError::NotApplicable(why));
    }
    let sizes = table.loads(bed, params, outcome)?;
    route_tests::establish(bed, &table.peers(), params)?;
    table.change(bed, params, Change::Advertise, REFUSED)?;
    table.await_installed(bed, params, outcome, sizes[0].1, all.len().into())?;

    let mut found: Vec<Vec<Found>> = sizes.iter().map(|_| Vec::new()).collect();
    let directions = FILTER_AT.get(params);
    let each =
        |direction: FilterDirection| ACTIONS.get(params).into_iter().map(move |action| Some((direction, action)));
    let cases: Vec<_> = std::iter::once(None).chain(directions.into_iter().flat_map(each)).collect();
    let (number, denying) = (cases.len(), cases.iter().flatten().any(|(_, action)| *action != Action::Allow));
    let measured = cases.into_iter().try_for_each(|filter| {
        let what = filter.map_or("none".into(), |(direction, action)| format!("{action}, {direction}"));
        let lists: Vec<FilterList> = filter.iter().map(|(at, action)| list(&table, *at, *action)).collect();
        let rules = lists.iter().map(|list| list.rules.len() as u64).sum();
        let denies = filter.is_some_and(|(_, action)| action != Action::Allow);
        bed.set(Setting::Filters(&lists))?;
        bed.settle(PAUSE.get(params))?;
        for (index, (size, rate)) in sizes.iter().enumerate() {
            let of_size = if sizes.len() > 1 { format!(", {size}") } else { String::new() };
            let purpose = format!("route filtering {family}{of_size}: {what}");
            bed.progress(&purpose);
            let spec = spec(bed, &table, (size, *rate), purpose, denies, params)?;
            let result = bed.trial(&spec)?;
            let first = |flow: &FlowSpec| match flow.destinations {
                Targets::Routes { first, .. } => first,
                Targets::Addresses(_) => 0,
            };
            let flows = spec.flows.iter().enumerate().filter(|(_, flow)| flow.denied);
            let denied_flows = flows.map(|(index, flow)| (index, first(flow))).collect();
            found[index].push(Found { filter, rules, result, denied_flows });
            bed.settle(PAUSE.get(params))?;
        }
        Ok(())
    });
    let measured = measured.and_then(|()| bed.set(Setting::Filters(&[])));
    let mut leaked = 0;
    for ((size, _), of_size) in sizes.iter().zip(&found) {
        let throughput = route_traffic::baseline_of(bed, size.clone(), family, params);
        leaked += write(outcome, (family, size), all, of_size, throughput);
        // A case without a result may be the one with the lowest rate. A figure without a value would mean that the
        // router failed.
        if of_size.len() == number {
            rank_lowest(outcome, (family, size), of_size);
        }
    }
    // Nothing can leak if no filter denies.
    if denying && found.iter().all(|of_size| of_size.len() == number) {
        let title = format!("Frames leaked to denied routes, {family}");
        outcome.ranks.push(LEAKED.of(&[("family", &word(family))], title, Some(leaked as f64)));
    }
    note(outcome, format!("{family}: {}, half of them filtered.", table.text()));
    route_tests::note_losses(bed, family, &table.peers(), outcome)?;
    measured
}

/// Splits the routes into the half to which the rules apply, and the other half.
fn halves(part: &Range<u32>) -> (Range<u32>, Range<u32>) {
    let half = part.start + part.len() as u32 / 2;
    (part.start..half, half..part.end)
}

/// The filter list of a case, for half of the routes behind each port. It applies at all ports at which test frames
/// arrive or leave.
fn list(table: &Spread, direction: FilterDirection, action: Action) -> FilterList {
    let rules = |part: Range<u32>, deny: bool| {
        part.map(move |i| table.case.all.prefix(i)).map(move |route| FilterRule {
            deny,
            destination: Some((route.address(), route.length())),
            ..FilterRule::default()
        })
    };
    let half = |deny: bool| table.behind.iter().flat_map(move |behind| rules(halves(&behind.part).0, deny));
    let other = table.behind.iter().flat_map(|behind| rules(halves(&behind.part).1, false));
    // Rules of one action are contiguous, so a router can keep them in one set.
    let rules: Vec<FilterRule> = match action {
        Action::Allow => half(false).collect(),
        Action::Deny => half(true).collect(),
        Action::Both => other.chain(half(true)).collect(),
    };
    let peers: Vec<PeerIndex> = match direction {
        FilterDirection::Ingress => table.senders.clone(),
        FilterDirection::Egress => table.behind.iter().map(|behind| behind.peer).collect(),
    };
    let interfaces = peers.into_iter().map(|peer| table.case.port(peer)).collect();
    FilterList { direction, interfaces, rules }
}

/// Frames of one size and rate to every route, the same in every case: frames to the filtered half, and frames to the
/// other half.
fn spec(
    bed: &dyn Testbed,
    table: &Spread,
    (size, rate): (&PacketSize, FrameRate),
    purpose: String,
    denies: bool,
    params: &Params,
) -> Result<TrialSpec, TestError> {
    let (case, mut flows) = (&table.case, Vec::new());
    for (from, behind) in table.ways() {
        let (from, to) = (case.port(from), case.port(behind.peer));
        let port = &bed.ports()[from];
        let sources = port.addressing(case.family).map(|a| a.destinations);
        let missing = || TestError::NotApplicable(format!("port {} has no {} addresses", port.name, case.family));
        let sources = sources.ok_or_else(missing)?;
        must_fit(size, case.family, [port, &bed.ports()[to]])?;
        let flow = |part: Range<u32>, denied: bool| {
            let (first, count) = (part.start, part.len() as u32);
            let targets = Targets::Routes { routes: case.all.clone(), first, count };
            let group = if denied { DENIED } else { PERMITTED };
            let weight = part.len() as f64;
            FlowSpec { weight, per_destination: denied, denied, ..FlowSpec::new(group, from, to, sources, targets) }
        };
        let (half, other) = halves(&behind.part);
        flows.extend((!half.is_empty()).then(|| flow(half, denies)));
        flows.push(flow(other, false));
    }
    Ok(TrialSpec {
        purpose,
        size: size.clone(),
        flows,
        load: Load::Constant { rate_pps: rate.pps() },
        duration_s: table.duration_s(FRAMES_PER_ROUTE.get(params), rate).max(TRIAL_DURATION.seconds(params)),
        bin_s: None,
        drain_s: DRAIN.seconds(params),
        events: vec![],
    })
}

/// Two prefixes of which one covers the other, if there are any.
fn nested(all: &Routes) -> Option<(Prefix, Prefix)> {
    let mut prefixes: Vec<Prefix> = (0..all.len()).map(|i| all.prefix(i)).collect();
    // After sorting, a covering prefix is directly followed by a prefix that it covers.
    prefixes.sort_unstable_by_key(|p| (p.address(), p.length()));
    prefixes.windows(2).find(|pair| pair[0].covers(&pair[1])).map(|pair| (pair[0], pair[1]))
}

/// Adds the rows of a frame size; returns the number of leaked frames.
fn write(
    outcome: &mut Outcome,
    (family, size): (Family, &PacketSize),
    all: &Routes,
    found: &[Found],
    throughput: Option<FrameRate>,
) -> u64 {
    let Some(without) = found.first() else { return 0 };
    let mut leaked_frames = 0;
    for (x, one) in found.iter().enumerate() {
        let share = one.share(without);
        let latency_percent = percent_ratio(one.latency_us(), without.latency_us());
        let ((permitted, passed), (denied, leaked)) = (one.counts(PERMITTED), one.counts(DENIED));
        leaked_frames += leaked;
        let mark = (leaked > 0).then(|| format!("leaked {leaked} frames that it must deny"));
        TABLE.add(
            outcome,
            FilteringRow {
                family,
                frame_size: size.clone(),
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
                latency_percent,
                permitted,
                permitted_lost: permitted - passed,
                denied,
                leaked,
            },
            [one.result.trial],
            mark,
        );
        let label = one.filter.map_or("none".into(), |(direction, action)| format!("{action}, {direction}"));
        for (bars, y) in [(BARS, share), (LATENCY_BARS, latency_percent)] {
            let Some(y) = y else { continue };
            let trial = Some(one.result.trial);
            let point = Point { x: x as f64, y, label: Some(label.clone()), range: None, trial };
            bars.curve(outcome, &format!("{family}, {size}"), point);
        }
        name_leaks(outcome, (family, size), all, one);
    }
    leaked_frames
}

/// Ranks the lowest rate, over all cases of a frame size, of the frames that must pass.
fn rank_lowest(outcome: &mut Outcome, (family, size): (Family, &PacketSize), found: &[Found]) {
    let Some((without, with)) = found.split_first() else { return };
    let of_expected = |one: &Found| {
        let share = percent_ratio(Some(one.passed_pps()), Some(without.rate_pps()));
        percent_ratio(share, Some(one.expected_percent()))
    };
    let lowest = with.iter().filter_map(of_expected).min_by(f64::total_cmp);
    let title = format!("Lowest rate with filters, relative to what must pass, {family}, {size}");
    outcome.ranks.push(LOWEST.of(&[("family", &word(family)), ("size", size)], title, lowest));
}

fn name_leaks(outcome: &mut Outcome, (family, size): (Family, &PacketSize), all: &Routes, one: &Found) {
    let Some((direction, action)) = one.filter else { return };
    let mut leaking: BTreeMap<u32, u64> = BTreeMap::new();
    for counts in &one.result.destinations {
        let Some(first) = one.denied_flows.get(&counts.flow) else { continue };
        for (route, received) in (*first..).zip(&counts.received).filter(|(_, received)| **received > 0) {
            *leaking.entry(route).or_default() += u64::from(*received);
        }
    }
    for (route, frames) in leaking.iter().take(MOST_NAMED) {
        let row = LeakRow {
            family,
            frame_size: size.clone(),
            filter_at: direction.to_string(),
            action: action.to_string(),
            route: all.prefix(*route).to_string(),
            frames: *frames,
        };
        LEAKS.add(outcome, row, [one.result.trial], []);
    }
    if leaking.len() > MOST_NAMED {
        let more = leaking.len() - MOST_NAMED;
        note(outcome, format!("{family}, {size}: {action}, {direction}: frames to {more} more routes leaked."));
    }
}
