//! BGP pass-through time: from the advertisement of a route by one peer until another peer receives it, one route at a
//! time (RFC 7747 section 5.1.2, RIB-OUT; RFC 4098 section 3.6).

use crate::figure::of_family;
use crate::kit::prelude::*;
use crate::route_tests::{self, Case, ESTABLISH, PATIENCE, TABLES, follow, for_each_family, must_be_complete};
use crate::routes_sent;

/// The test.
pub struct BgpPassThrough;

const SAMPLES: Param<u32> =
    Param::new("samples", "50", "1000", "routes that are advertised and withdrawn, one at a time");

const MEDIAN: [FigureSpec; 2] = [
    FigureSpec::lower("bgp_pass_through_ipv4_median_ms", "ms", "median of an IPv4 route's time through the router"),
    FigureSpec::lower("bgp_pass_through_ipv6_median_ms", "ms", "median of an IPv6 route's time through the router"),
];

static SPEC: TestSpec = TestSpec {
    name: "bgp_pass_through",
    title: "BGP pass-through time",
    summary: "time from the advertisement or withdrawal of a single route until another peer receives it",
    source: "RFC 7747 section 5.1.2 (RIB-OUT); RFC 4098",
    needs: route_tests::NEEDS,
    params: params![&TABLES, &[SAMPLES.spec(), PATIENCE.spec(), ESTABLISH.spec()]],
    figures: &[MEDIAN[0].shape(), MEDIAN[1].shape()],
    tables: &[TABLE.shape(), routes_sent::SHAPE],
};

columns! {
    /// All advertisements, or all withdrawals.
    struct ChangeRow {
        family: Family,
        change: String,
        samples: u64,
        min_ms: Option<f64> = "Minimum" ["ms"],
        median_ms: Option<f64> ["ms"],
        mean_ms: f64 ["ms"],
        p99_ms: Option<f64> = "99 %" ["ms"],
        max_ms: Option<f64> = "Maximum" ["ms"],
    }
}

const TABLE: TableSpec<ChangeRow> = TableSpec::new("bgp_pass_through", "BGP pass-through time");
const PLOT: PlotSpec = PlotSpec::new(
    "bgp_pass_through",
    "Pass-through time, sorted",
    PlotKind::Sorted,
    "share of the routes, %",
    "time, ms",
)
.logarithmic();

impl Method for BgpPassThrough {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        Plan::by_family(&SPEC, params).taking(f64::from(SAMPLES.get(params)) * 0.1 + 3.0).deviating(fewer(
            params,
            &SAMPLES,
            "samples",
            1_000,
            route_tests::CONFORMANT,
        ))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        PLOT.begin(outcome);
        for_each_family(bed, params, outcome, |bed, family, outcome| pass(bed, family, params, outcome))
    }
}

fn pass(bed: &mut dyn Testbed, family: Family, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
    let samples = SAMPLES.get(params);
    let case = Case::new(bed, family, params, 2, samples)?;
    let (origin, observer) = (case.peers[0], case.peers[1]);
    route_tests::establish(bed, &[origin, observer], params)?;
    let watch = bed.routing()?.watch(observer, origin, &case.all);
    let (mut up, mut down) = (Vec::new(), Vec::new());
    let sample = |index: u32| -> Result<(), TestError> {
        bed.progress(&format!("BGP pass-through time, {family}: sample {} of {samples}", index + 1));
        let part = index..index + 1;
        for (action, times, change) in [
            (case.advertise(origin, part.clone()), &mut up, "re-advertised"),
            (case.withdraw(origin, part), &mut down, "withdrawn"),
        ] {
            let settled = follow(bed, params, &action, watch)?;
            let lost = || format!("route {} was not {change}", case.all.prefix(index));
            must_be_complete(bed, watch, &settled, lost)?;
            times.push(settled.last_change_s * 1e3);
        }
        Ok(())
    };
    let ended = (0..samples.min(case.all.len())).try_for_each(sample);
    for (change, times) in [("advertised", &mut up), ("withdrawn", &mut down)] {
        if times.is_empty() {
            continue;
        }
        times.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let rank = (share * times.len() as f64).ceil() as usize;
            times.get(rank.max(1) - 1).copied()
        };
        let (least, most) = extremes(times).unzip();
        TABLE.add(
            outcome,
            ChangeRow {
                family,
                change: change.into(),
                samples: times.len() as u64,
                min_ms: least,
                median_ms: at(0.5),
                mean_ms: mean(times),
                p99_ms: at(0.99),
                max_ms: most,
            },
            [],
            [],
        );
        for (index, y) in times.iter().enumerate() {
            let x = (index + 1) as f64 / times.len() as f64 * 100.0;
            PLOT.curve(outcome, &format!("{family}, {change}"), xy(x, *y));
        }
        if change == "advertised" && ended.is_ok() {
            let title = format!("BGP pass-through time, median, {family}");
            outcome.ranks.push(of_family(&MEDIAN, family).of(&[], title, at(0.5)));
        }
    }
    ended
}
