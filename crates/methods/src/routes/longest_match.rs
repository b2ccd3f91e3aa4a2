//! Longest match with covering prefixes: shorter masks that lead to another port must not attract a single frame while
//! the longer ones are present, and must attract all frames after the longer ones are withdrawn (core router test of
//! 2001: 50,000 shorter masks in addition to the table).

use crate::figure::word;
use crate::kit::prelude::*;
use crate::route_spread::{Behind, Spread};
use crate::route_tests::{self, Case, for_each_family, thousands};
use crate::route_traffic::{self, RouteTrial};
use crate::routes_sent;
use crate::routing::{Change, PeerIndex};
use drophammer_model::routes::{Prefix, RouteAttributes, RouteTable, Routes};
use std::collections::HashMap;
use std::sync::Arc;

/// The test.
pub struct LongestMatch;

const ROUTES: Param<u32> = Param::new("routes", "20000", "200000", "routes of the table");
const COVERING: Param<u32> =
    Param::new("covering", "5000", "50000", "maximum number of shorter masks that cover routes of the table");
const SHORTER_BY: Param<u32> = Param::fixed("shorter_by", "2", "bits by which a covering mask is shorter");
const FRAMES_PER_ROUTE: Param<u32> = Param::new("frames_per_route", "5", "20", "frames to each route per trial");

const WRONG: FigureSpec = FigureSpec::lower_by_difference(
    "longest_match_{family}_wrong_frames",
    "frames",
    "frames that followed a shorter mask although the longer one was present, over all frame sizes",
)
.by(1.0);
const STALE: FigureSpec = FigureSpec::lower_by_difference(
    "longest_match_{family}_stale_frames",
    "frames",
    "frames that did not follow the shorter mask after the longer ones were withdrawn, including lost frames, over all frame sizes",
)
.by(1.0);
const SHARE: FigureSpec = FigureSpec::higher(
    "longest_match_{family}_{size}_percent",
    "%",
    "forwarding rate with the covering prefixes, in % of the rate with the table alone",
);

static SPEC: TestSpec = TestSpec {
    name: "longest_match",
    title: "Longest match with covering prefixes",
    summary: "whether shorter masks do not affect forwarding while longer ones are present, and take over after their withdrawal",
    source: "core router test of 2001; longest match of RFC 1812 section 5.2.4.3",
    needs: route_traffic::NEEDS,
    params: params![
        &route_tests::TABLES,
        &[ROUTES.spec(), COVERING.spec(), SHORTER_BY.spec(), FRAMES_PER_ROUTE.spec()],
        &route_traffic::SPREAD,
        &route_traffic::LOADED,
        &route_tests::SESSIONS,
    ],
    figures: &[WRONG.shape(), STALE.shape(), SHARE.shape()],
    tables: &[TABLE.shape(), routes_sent::SHAPE],
};

columns! {
    /// Traffic in one state of the table.
    struct MatchRow {
        family: Family,
        frame_size: PacketSize,
        state: String = "Routes held",
        routes: u64 = "Target routes",
        offered: u64 ["frames"],
        right: u64 = "Arrived at the right port" ["frames"],
        wrong: u64 = "Arrived at the other port" ["frames"],
        lost: u64 ["frames"],
        load_pps: f64 ["fps"],
        rate_pps: f64 = "Forwarding rate" ["fps"],
        of_throughput_percent: Option<f64> = "Share of throughput" ["%"],
        of_baseline_percent: Option<f64> = "Share of rate with the table alone" ["%"],
        mean_us: Option<f64> = "Latency, mean" ["µs"],
        p99_us: Option<f64> = "Latency, 99 %" ["µs"],
        latency_percent: Option<f64> = "Share of mean latency with the table alone" ["%"],
    }
}

/// The state in which the longer masks are withdrawn.
const WITHDRAWN: &str = "covering prefixes alone";

const TABLE: TableSpec<MatchRow> = TableSpec::new("longest_match", "Longest match with covering prefixes");

impl Method for LongestMatch {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let (routes, sizes) = (f64::from(ROUTES.get(params)), route_traffic::sizes(params));
        let traffic_s = 3.0 * sizes as f64 * routes * f64::from(FRAMES_PER_ROUTE.get(params)) / 100e3;
        Plan::by_family(&SPEC, params)
            // Probes run before the first size in each of the three states.
            .counting(TrialCount::exactly(3 * sizes).or_more())
            .taking(traffic_s + routes / 15_000.0 + PAUSE.seconds(params) + 5.0)
            .deviating(fewer(params, &FRAMES_PER_ROUTE, "frames to each route", 20, route_tests::CONFORMANT))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        note(
            outcome,
            "Routes of the table lead to one port, prefixes that cover them to another. After the withdrawal, frames aim only at routes that \
             have a covering prefix.",
        );
        for_each_family(bed, params, outcome, |bed, family, outcome| lookup(bed, family, params, outcome))
    }
}

/// Prefixes that cover routes of a table, and the routes under them.
struct Covering {
    /// The prefixes; each is behind a different port than the routes that it covers.
    masks: Spread,
    /// The covered routes, each behind the port of the covering prefix that longest match selects after the table is
    /// withdrawn.
    covered: Spread,
}

/// Masks that are `bits` shorter than routes of the table, starting with the first route behind each port. None of them
/// is itself a route, and there are at most `most` over all ports. Masks for the routes behind one port are behind the
/// next port.
fn covering(table: &Spread, bits: u8, most: u32) -> Covering {
    let Case { all, peers, family, .. } = &table.case;
    let parts = table.behind.len() as u32;
    let (mut masks, mut covered) = (HashMap::<Prefix, PeerIndex>::new(), HashMap::<Prefix, PeerIndex>::new());
    let mut found: Vec<(PeerIndex, Prefix)> = Vec::new();
    for (behind, part) in table.behind.iter().zip(0..) {
        let next = peers.iter().position(|peer| *peer == behind.peer).map_or(0, |at| (at + 1) % peers.len());
        let room = most / parts + u32::from(part < most % parts);
        let full = found.len() + room as usize;
        for index in behind.part.clone() {
            let route = all.prefix(index);
            let shorter = route.length().checked_sub(bits).filter(|length| *length > 0);
            let Some(mask) = shorter.and_then(|length| Prefix::masked(route.address(), length)) else { continue };
            let owner = match masks.get(&mask) {
                // The mask leads to the port of the route itself, so a trial could not show which of the two was used.
                Some(owner) if *owner == behind.peer => continue,
                Some(owner) => *owner,
                None if all.index_of(&mask).is_some() => continue,
                None if found.len() == full => break,
                None => {
                    masks.insert(mask, peers[next]);
                    found.push((peers[next], mask));
                    peers[next]
                }
            };
            covered.insert(route, owner);
        }
    }
    // Masks of different lengths may cover each other: longest match decides. A route is omitted if its addresses
    // belong to several owners.
    let shorter = |prefix: &Prefix, from: u8| {
        let address = prefix.address();
        (1..=from).rev().filter_map(move |length| Prefix::masked(address, length))
    };
    covered.retain(|route, owner| {
        let longest = shorter(route, route.length()).find_map(|mask| masks.get(&mask));
        longest.is_some_and(|longest| longest == owner)
    });
    for (owner, mask) in &found {
        for outer in shorter(mask, mask.length()) {
            if covered.get(&outer).is_some_and(|of| of != owner) {
                covered.remove(&outer);
            }
        }
    }
    // Keeps the order of the table.
    let routes = (0..all.len()).map(|index| all.prefix(index));
    let covered: Vec<(PeerIndex, Prefix)> =
        routes.filter_map(|route| covered.get(&route).map(|owner| (*owner, route))).collect();
    let name = |what: &str, count: usize| format!("{} {what}", thousands(count as u64));
    let spread = |name: String, mut routes: Vec<(PeerIndex, Prefix)>| {
        routes.sort_by_key(|(owner, _)| *owner);
        let mut behind: Vec<Behind> = Vec::new();
        for ((owner, _), index) in routes.iter().zip(0..) {
            match behind.last_mut() {
                Some(last) if last.peer == *owner => last.part.end = index + 1,
                _ => behind.push(Behind { peer: *owner, part: index..index + 1 }),
            }
        }
        let routes = routes.into_iter().map(|(_, prefix)| (prefix, RouteAttributes::default()));
        let all = Arc::new(Routes::Table(Arc::new(RouteTable::new(name, *family, routes))));
        Spread { case: Case { all, ..table.case.clone() }, behind, senders: table.senders.clone() }
    };
    Covering {
        covered: spread(name("covered routes", covered.len()), covered),
        masks: spread(name("covering prefixes", found.len()), found),
    }
}

/// Results of the trials in one state of the table, by frame size.
struct Found<'a> {
    family: Family,
    sizes: &'a [(PacketSize, FrameRate)],
    /// Results with the table alone.
    alone: Vec<TrialResult>,
    /// Rates with the covering prefixes, in % of the rates with the table alone.
    shares: Vec<Option<f64>>,
    /// Frames at the other port in the first two states: they followed too short a mask.
    wrong: u64,
    /// Frames that did not arrive at the port of their covering prefix in the third state: they followed a withdrawn
    /// route, or were lost.
    stale: u64,
}

fn lookup(bed: &mut dyn Testbed, family: Family, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
    let table = Spread::new(Case::new(bed, family, params, 3, ROUTES.get(params))?, params)?;
    let sizes = table.loads(bed, params, outcome)?;
    let bits = u8::try_from(SHORTER_BY.get(params)).unwrap_or(u8::MAX);
    let Covering { masks, covered } = covering(&table, bits, COVERING.get(params));
    if masks.behind.is_empty() || covered.ways().next().is_none() {
        return Err(TestError::NotApplicable(
            "no prefix covers a route; give more `routes`, or a smaller `shorter_by`".into(),
        ));
    }
    let mut peers = table.peers();
    peers.extend(masks.peers());
    peers.sort_unstable();
    peers.dedup();
    route_tests::establish(bed, &peers, params)?;

    let mut found = Found { family, sizes: &sizes, alone: Vec::new(), shares: Vec::new(), wrong: 0, stale: 0 };
    let count = |spread: &Spread| u64::from(spread.case.all.len());
    let unfollowed = "the router did not follow the change";
    table.change(bed, params, Change::Advertise, unfollowed)?;
    found.state(bed, params, outcome, "table alone", &table, count(&table))?;
    masks.change(bed, params, Change::Advertise, unfollowed)?;
    found.state(bed, params, outcome, "table and covering prefixes", &table, count(&table) + count(&masks))?;
    // The figures of the first two states remain valid, whatever happens in the third one.
    let withdrawn = table
        .change(bed, params, Change::Withdraw, unfollowed)
        .and_then(|_| found.state(bed, params, outcome, WITHDRAWN, &covered, count(&masks)));
    let (followed, ended) = match withdrawn {
        // This state costs the tester more, because its frames go to a list of routes.
        Err(e @ TestError::Unfit(_)) => {
            note(outcome, format!("{family}, {WITHDRAWN}: not measured for all frame sizes: {e}"));
            (false, Ok(()))
        }
        other => (other.is_ok(), other),
    };
    route_tests::note_losses(bed, family, &peers, outcome)?;
    note(
        outcome,
        format!(
            "{family}: {}; {} covering prefixes over {} of them.",
            table.text(),
            thousands(count(&masks)),
            thousands(count(&covered))
        ),
    );
    let word = word(family);
    let stale = followed.then_some((STALE, "Frames that did not follow the covering prefix", found.stale));
    let wrong = (WRONG, "Frames that followed too short a mask", found.wrong);
    for (spec, title, frames) in std::iter::once(wrong).chain(stale) {
        outcome.ranks.push(spec.of(&[("family", &word)], format!("{title}, {family}"), Some(frames as f64)));
    }
    for ((size, _), share) in sizes.iter().zip(&found.shares) {
        let title = format!("Rate with covering prefixes, relative to none, {family}, {size}");
        outcome.ranks.push(SHARE.of(&[("family", &word), ("size", size)], title, *share));
    }
    ended
}

impl Found<'_> {
    /// Runs a trial of each frame size to the routes of `aimed`, after the DUT forwards to them and has the expected
    /// number of routes.
    fn state(
        &mut self,
        bed: &mut dyn Testbed,
        params: &Params,
        outcome: &mut Outcome,
        state: &str,
        aimed: &Spread,
        held: u64,
    ) -> Result<(), TestError> {
        let family = self.family;
        for (index, (size, rate)) in self.sizes.iter().enumerate() {
            let of_size = if self.sizes.len() > 1 { format!(", {size}") } else { String::new() };
            let trial = RouteTrial {
                purpose: format!("longest match {family}{of_size}: {state}"),
                size: size.clone(),
                duration_s: aimed.duration_s(FRAMES_PER_ROUTE.get(params), *rate),
                streams: aimed.streams(),
                rate: *rate,
                bin_s: None,
                // Identifies routes that lose frames. With every route at every sender, there would be millions of
                // counters.
                per_route: !aimed.is_meshed(),
                changes: Vec::new(),
            };
            bed.progress(&trial.purpose);
            if index == 0 {
                aimed.await_installed(bed, params, outcome, *rate, held)?;
            }
            let result = route_traffic::run(bed, params, &trial, |_| Ok(()))?;
            let throughput = route_traffic::baseline_of(bed, size.clone(), family, params);
            let whole = (throughput, self.alone.get(index));
            let routes = aimed.case.all.len().into();
            let astray = write(outcome, family, size, state, routes, &result, whole);
            if state == WITHDRAWN {
                // A router without the covering prefixes drops the frames and misdirects none. Stray frames are among
                // the lost ones, except for second copies.
                self.stale += result.lost().max(astray);
            } else {
                self.wrong += astray;
            }
            match self.alone.get(index) {
                None => self.alone.push(result),
                Some(alone) if self.shares.len() == index => {
                    let pps = |result: &TrialResult| result.forwarding_rate().pps();
                    self.shares.push(percent_ratio(Some(pps(&result)), Some(pps(alone))));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// Adds a row; returns the number of frames that arrived at the other port. `whole` is the baseline for rates: the
/// throughput, if known, and the earlier trial with the table alone, if there was one.
fn write(
    outcome: &mut Outcome,
    family: Family,
    size: &PacketSize,
    state: &str,
    routes: u64,
    result: &TrialResult,
    whole: (Option<FrameRate>, Option<&TrialResult>),
) -> u64 {
    let wrong = result.sum(|g| g.stray);
    let latency = result.groups.first().map(|g| &g.latency);
    let rate = |result: &TrialResult| result.forwarding_rate().pps();
    let mean = |result: &TrialResult| {
        let latency = result.groups.first().map(|g| &g.latency);
        latency.filter(|l| l.frames > 0).map(|l| l.mean_ns)
    };
    let alone = whole.1.unwrap_or(result);
    let us = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e3);
    TABLE.add(
        outcome,
        MatchRow {
            family,
            frame_size: size.clone(),
            state: state.into(),
            routes,
            offered: result.offered(),
            right: result.received(),
            wrong,
            lost: result.lost().saturating_sub(wrong),
            load_pps: result.offered_load().pps(),
            rate_pps: rate(result),
            of_throughput_percent: percent_ratio(Some(rate(result)), whole.0.map(|rate| rate.pps())),
            of_baseline_percent: percent_ratio(Some(rate(result)), Some(rate(alone))),
            mean_us: mean(result).map(|ns| ns / 1e3),
            p99_us: us(latency.and_then(|l| l.percentile(99.0))),
            latency_percent: percent_ratio(mean(result), mean(alone)),
        },
        [result.trial],
        [],
    );
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::trial::GroupCounts;

    /// A second of 1,000 frames, of which `received` arrived at the right port.
    fn result(received: u64) -> TrialResult {
        let group = GroupCounts { offered: 1_000, received, lost: 1_000 - received, ..GroupCounts::default() };
        TrialResult {
            trial: 1,
            sending_s: 1.0,
            receiving_s: 1.0,
            elapsed_s: 1.0,
            groups: vec![group],
            senders: 1,
            ..TrialResult::default()
        }
    }

    #[test]
    fn a_router_that_covering_prefixes_slow_down_shows_it_as_a_share() {
        let mut outcome = Outcome::default();
        let alone = result(800);
        let throughput = Some(FrameRate(1_600.0));
        let size = route_traffic::smallest(Family::Ipv4);
        write(&mut outcome, Family::Ipv4, &size, "table alone", 9, &alone, (throughput, None));
        write(
            &mut outcome,
            Family::Ipv4,
            &size,
            "table and covering prefixes",
            9,
            &result(200),
            (throughput, Some(&alone)),
        );
        write(&mut outcome, Family::Ipv4, &size, WITHDRAWN, 9, &result(0), (None, Some(&alone)));
        let rows = TABLE.rows(&outcome.tables);
        let shares = |i: usize| (rows[i].of_throughput_percent, rows[i].of_baseline_percent);
        assert_eq!(shares(0), (Some(50.0), Some(100.0)));
        assert_eq!(shares(1), (Some(12.5), Some(25.0)));
        assert_eq!((shares(2), rows[2].latency_percent), ((None, Some(0.0)), None));
    }
}
