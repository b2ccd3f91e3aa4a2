//! Longest match with covering prefixes: shorter masks that lead to another port must not draw a single frame while the longer ones are
//! there, and must take all of them when those are gone (core router test of 2001: 50,000 shorter masks beside the table).

use crate::Method;
use crate::columns;
use crate::parameters::{PAUSE, fewer, params};
use crate::report::{higher, lower_by_difference, note, percent_ratio};
use crate::route_forwarding::{Way, await_installed};
use crate::route_tests::{self, Case, follow, for_each_family, must_be_complete, thousands};
use crate::route_traffic::{self, RouteTrial, smallest};
use crate::routing::{PeerIndex, RouteAction};
use crate::table::TableSpec;
use crate::testbed::{TestError, Testbed};
use drophammer_model::outcome::Outcome;
use drophammer_model::param::Param;
use drophammer_model::quantity::FrameRate;
use drophammer_model::registry::{FigureSpec, TestSpec};
use drophammer_model::routes::{Prefix, RouteAttributes, RouteTable, Routes};
use drophammer_model::suite::Params;
use drophammer_model::trial::{Family, TrialResult};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The test.
pub struct LongestMatch;

const ROUTES: Param<u32> = Param::new("routes", "20000", "200000", "routes of the table");
const COVERING: Param<u32> =
    Param::new("covering", "5000", "50000", "shorter masks that cover routes of the table, at most");
const SHORTER_BY: Param<u32> = Param::new("shorter_by", "2", "2", "bits by which a covering mask is shorter");
const FRAMES_PER_ROUTE: Param<u32> = Param::new("frames_per_route", "5", "20", "frames to each route per trial");

static SPEC: TestSpec = TestSpec {
    name: "longest_match",
    title: "Longest match with covering prefixes",
    summary: "do shorter masks leave the forwarding alone, and take over when the longer ones are withdrawn",
    source: "core router test of 2001; longest match of RFC 1812 section 5.2.4.3",
    needs: route_traffic::NEEDS,
    params: params![
        &route_tests::TABLES,
        &[ROUTES.spec(), COVERING.spec(), SHORTER_BY.spec(), FRAMES_PER_ROUTE.spec()],
        &route_traffic::LOADED,
        &route_tests::SESSIONS,
    ],
    figures: &[
        FigureSpec {
            key: "longest_match_ipv4_wrong_frames",
            help: "IPv4 frames that took a shorter mask than they had to",
        },
        FigureSpec { key: "longest_match_ipv6_wrong_frames", help: "the same for IPv6" },
        FigureSpec {
            key: "longest_match_ipv4_percent",
            help: "forwarding rate of IPv4 with the covering prefixes, in % of that with the table alone",
        },
        FigureSpec { key: "longest_match_ipv6_percent", help: "the same for IPv6" },
    ],
};

columns! {
    /// Traffic in one state of the table.
    struct MatchRow {
        family: Family = "Family",
        state: String = "Routes held",
        routes: u64 = "Routes aimed at",
        offered: u64 = "Offered" ["frames"],
        right: u64 = "At the right port" ["frames"],
        wrong: u64 = "At the other port" ["frames"],
        lost: u64 = "Lost" ["frames"],
        load_pps: f64 = "Load" ["fps"],
        rate_pps: f64 = "Forwarding rate" ["fps"],
        of_throughput_percent: Option<f64> = "Of the throughput" ["%"],
        of_baseline_percent: Option<f64> = "Of that with the table alone" ["%"],
        mean_us: Option<f64> = "Latency, mean" ["µs"],
        p99_us: Option<f64> = "Latency, 99 %" ["µs"],
        latency_percent: Option<f64> = "Mean latency, of that with the table alone" ["%"],
    }
}

const TABLE: TableSpec<MatchRow> = TableSpec::new("longest_match", "Longest match with covering prefixes");

impl Method for LongestMatch {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        note(
            outcome,
            "Routes of the table lead to one port, the covering prefixes to another. After the withdrawal only those routes are aimed at that \
             a covering prefix has.",
        );
        for_each_family(bed, params, outcome, |bed, family, outcome| lookup(bed, family, params, outcome))
    }

    fn estimate(&self, params: &Params) -> Duration {
        route_traffic::estimate_search(params) + self.estimate_known(params)
    }

    fn estimate_known(&self, params: &Params) -> Duration {
        let routes = f64::from(ROUTES.get(params));
        let traffic = 3.0 * routes * f64::from(FRAMES_PER_ROUTE.get(params)) / 100e3;
        let each = traffic + routes / 15_000.0 + PAUSE.seconds(params) + 5.0;
        Duration::from_secs_f64(each * route_tests::families(params))
    }

    fn deviations(&self, params: &Params) -> Vec<String> {
        fewer(params, &FRAMES_PER_ROUTE, "frames to each route", 20, route_tests::CONFORMANT).into_iter().collect()
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
    let table = Case::new(bed, family, params, 3, ROUTES.get(params))?;
    let rate = route_traffic::load(bed, family, params, outcome)?;
    let (source, long, short) = (table.peers[0], table.peers[1], table.peers[2]);
    let bits = u8::try_from(SHORTER_BY.get(params)).unwrap_or(u8::MAX);
    let (masks, covered) = covering(&table.all, bits, COVERING.get(params) as usize);
    if masks.is_empty() {
        return Err(TestError::NotApplicable("the table has no routes that could be covered".into()));
    }
    let name = format!("{} covering prefixes", masks.len());
    let masks = masks.into_iter().map(|prefix| (prefix, RouteAttributes::default()));
    let all = Arc::new(Routes::Table(Arc::new(RouteTable::new(name, family, masks))));
    let covers = Case { all, ..table.clone() };
    route_tests::establish(bed, &[source, long, short], params)?;

    let change = |bed: &mut dyn Testbed, of: &Case, peer: PeerIndex, action: RouteAction| {
        let watch = bed.routing()?.watch(source, peer, &of.all);
        let settled = follow(bed, params, &action, watch)?;
        must_be_complete(bed, watch, &settled, || "the router did not follow".into())
    };
    let frames_per_route = f64::from(FRAMES_PER_ROUTE.get(params));
    let throughput = route_traffic::baseline(bed, family, params);
    let mut wrong = 0;
    let mut found: Vec<TrialResult> = Vec::new();
    let mut step = |bed: &mut dyn Testbed,
                    outcome: &mut Outcome,
                    state: &str,
                    held: u64,
                    part: std::ops::Range<u32>,
                    to: PeerIndex| {
        let trial = RouteTrial {
            purpose: format!("longest match {family}: {state}"),
            size: smallest(family),
            duration_s: part.len() as f64 * frames_per_route / rate.pps(),
            streams: vec![table.stream(source, to, part)],
            rate,
            bin_s: None,
            per_route: true,
            changes: Vec::new(),
        };
        bed.progress(&trial.purpose, 0, 0);
        let way = Way { stream: trial.streams[0].clone(), rate };
        await_installed(bed, params, outcome, &way, held)?;
        let result = route_traffic::run(bed, params, &trial, |_| Ok(()))?;
        route_tests::note_losses(bed, family, &[source, long, short], outcome)?;
        wrong += write(outcome, family, state, way.routes(), &result, (throughput, found.first()));
        found.push(result);
        Ok::<(), TestError>(())
    };
    let (specific, shorter) = (u64::from(table.all.len()), u64::from(covers.all.len()));
    change(bed, &table, long, table.advertise(long, table.whole()))?;
    step(bed, outcome, "table alone", specific, table.whole(), long)?;
    change(bed, &covers, short, covers.advertise(short, covers.whole()))?;
    step(bed, outcome, "table and covering prefixes", specific + shorter, table.whole(), long)?;
    change(bed, &table, long, table.withdraw(long, table.whole()))?;
    step(bed, outcome, "covering prefixes alone", shorter, 0..covered, short)?;
    note(
        outcome,
        format!("{family}: {} covering prefixes over {} routes.", thousands(shorter), thousands(covered.into())),
    );
    let key = format!("longest_match_{}_wrong_frames", family.to_string().to_lowercase());
    let title = format!("Frames by a wrong mask, {family}");
    outcome.ranks.push(lower_by_difference(key, title, "frames", Some(wrong as f64), 1.0));
    let rate = |result: &TrialResult| result.forwarding_rate().pps();
    let share = percent_ratio(found.get(1).map(rate), found.first().map(rate));
    let key = format!("longest_match_{}_percent", family.to_string().to_lowercase());
    let title = format!("Rate with covering prefixes, of that without, {family}");
    outcome.ranks.push(higher(key, title, "%", share));
    Ok(())
}

/// Adds a row; returns the frames that came to the other port. `whole` is what rates are compared with: the throughput, where it is known, and the
/// trial with the table alone, where there was one before.
fn write(
    outcome: &mut Outcome,
    family: Family,
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
    use drophammer_model::trial::{GroupCounts, Health, Validity};

    /// A second of 1,000 frames, of which so many arrived at the right port.
    fn result(received: u64) -> TrialResult {
        let group = GroupCounts { offered: 1_000, received, lost: 1_000 - received, ..GroupCounts::default() };
        TrialResult {
            trial: 1,
            sending_s: 1.0,
            receiving_s: 1.0,
            elapsed_s: 1.0,
            groups: vec![group],
            health: Health::default(),
            validity: Validity::Valid,
            dut_cpu: None,
            dut_counters: Default::default(),
            senders: 1,
            ways: vec![],
            background: Default::default(),
            events: vec![],
            destinations: vec![],
            destination_summaries: vec![],
            losses: Default::default(),
        }
    }

    #[test]
    fn a_router_that_covering_prefixes_slow_down_shows_it_as_a_share() {
        let mut outcome = Outcome::default();
        let alone = result(800);
        let throughput = Some(FrameRate(1_600.0));
        write(&mut outcome, Family::Ipv4, "table alone", 9, &alone, (throughput, None));
        write(&mut outcome, Family::Ipv4, "table and covering prefixes", 9, &result(200), (throughput, Some(&alone)));
        write(&mut outcome, Family::Ipv4, "covering prefixes alone", 9, &result(0), (None, Some(&alone)));
        let rows = TABLE.rows(&outcome.tables);
        let shares = |i: usize| (rows[i].of_throughput_percent, rows[i].of_baseline_percent);
        assert_eq!(shares(0), (Some(50.0), Some(100.0)));
        assert_eq!(shares(1), (Some(12.5), Some(25.0)));
        assert_eq!((shares(2), rows[2].latency_percent), ((None, Some(0.0)), None));
    }
}
