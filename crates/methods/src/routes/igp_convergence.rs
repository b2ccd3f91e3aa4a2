//! Convergence of OSPF and LDP (RFC 4061 and 4062: terms of OSPF; RFC 6413: method): prefixes appear behind a P router and disappear
//! again, under traffic to every one of them, and the time until the DUT forwards by each change is measured.

use crate::igp_traffic::{IgpCase, Timed};
use crate::kit::prelude::*;
use crate::route_outage::{Event, Outage, UnreachableRow, list_unreachable};
use crate::route_tests::{self, ESTABLISH, PATIENCE, thousands};
use crate::routing::Change;
use drophammer_model::label_edge::CoreProtocol;

/// The test.
pub struct IgpConvergence;

drophammer_model::choice! {
    /// What advertises the prefixes.
    enum Protocol {
        /// AS-external-LSAs.
        Ospf = "ospf",
        /// Labels.
        Ldp = "ldp",
    }
}

const PROTOCOL: Param<Protocol> = Param::new(
    "protocol",
    "ospf",
    "ospf",
    "`ospf`: the P router advertises and withdraws prefixes, and IP packets go to them; `ldp`: it advertises and withdraws labels for known \
     prefixes, and packets with the router's labels go to them",
);
const PREFIXES: Param<u32> =
    Param::new("prefixes", "200", "5000", "prefixes that are advertised, and later withdrawn, at the same time");
const RATE: Param<FrameRate> =
    Param::new("rate", "20 kfps", "100 kfps", "load of the sending port, below the router's throughput");
const WINDOW: Param<Duration> =
    Param::new("window", "4 s", "60 s", "how long traffic continues after the advertisement, and after the withdrawal");

/// Times are equal if they differ by at most the time between two frames to a prefix.
const UP: [FigureSpec; 2] = [
    FigureSpec::lower_by_difference(
        "igp_up_{protocol}_median_ms",
        "ms",
        "median time until the router forwards to an advertised prefix, in ms",
    ),
    FigureSpec::lower_by_difference(
        "igp_up_{protocol}_max_ms",
        "ms",
        "time until the router forwards to all advertised prefixes, in ms",
    ),
];
const DOWN: [FigureSpec; 2] = [
    FigureSpec::lower_by_difference(
        "igp_down_{protocol}_median_ms",
        "ms",
        "median time until the router no longer forwards a withdrawn prefix to its P router, in ms",
    ),
    FigureSpec::lower_by_difference(
        "igp_down_{protocol}_max_ms",
        "ms",
        "time until the router forwards no withdrawn prefix to its P router, in ms",
    ),
];

static SPEC: TestSpec = TestSpec {
    name: "igp_convergence",
    title: "OSPF and LDP convergence",
    summary: "time until the router follows the advertisement and the withdrawal of each prefix in OSPF, or of each label in LDP",
    source: "RFC 4061 and RFC 4062 (OSPF); route-specific method of RFC 6413 section 6.3",
    needs: &[Need::Ospf],
    params: params![
        &[PROTOCOL.spec(), PREFIXES.spec(), RATE.spec(), WINDOW.spec(), DRAIN.spec()],
        &[PATIENCE.spec(), ESTABLISH.spec()],
    ],
    figures: &[UP[0].shape(), UP[1].shape(), DOWN[0].shape(), DOWN[1].shape()],
    tables: &[TABLE.shape(), WRONG.shape()],
};

columns! {
    /// The times of one change.
    struct ChangeRow {
        change: String = "Change",
        prefixes: u64 = "Prefixes",
        not_followed: u64 = "Not followed",
        min_ms: Option<f64> = "Minimum" ["ms"],
        median_ms: Option<f64> = "Median" ["ms"],
        p99_ms: Option<f64> = "99 %" ["ms"],
        max_ms: Option<f64> = "Maximum" ["ms"],
        resolution_ms: f64 = "Resolution" ["ms"],
        rate_pps: f64 = "Load" ["fps"],
        lost: u64 = "Lost" ["frames"],
        moved: u64 = "By the second port" ["frames"],
        duplicated: u64 = "Duplicates" ["frames"],
    }
}

const TABLE: TableSpec<ChangeRow> = TableSpec::new("igp_convergence", "OSPF and LDP convergence");
const WRONG: TableSpec<UnreachableRow> = TableSpec::new("igp_convergence_wrong", "Prefixes that did not follow");
const PLOT: PlotSpec<'static> = PlotSpec {
    key: "igp_convergence",
    title: "Time until the router follows a change, over all prefixes",
    kind: PlotKind::Sorted,
    x: "share of the prefixes, %",
    y: "time, ms",
    log_y: true,
};
/// Maximum number of points of a curve.
const POINTS: usize = 500;
/// Traffic runs for this long before a change, in seconds: longer than MinLSArrival (RFC 2328 appendix B), during which the router may
/// ignore a new instance of an LSA.
const BEFORE_S: f64 = 1.5;
/// Time before a trial is repeated: longer than MinLSInterval, before which an LSA is not originated again.
const AGAIN: Duration = Duration::from_secs(6);

impl Method for IgpConvergence {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let trial_s = BEFORE_S + WINDOW.seconds(params) + DRAIN.seconds(params);
        let few = fewer(params, &PREFIXES, "prefixes", 5_000, route_tests::CONFORMANT);
        Plan::times(params, 1)
            .counting(TrialCount::exactly(4).or_more())
            .taking(2.0 * trial_s + 20.0)
            .deviating(few)
            .deviating(shorter(params, &WINDOW, "traffic after the change", 60.0, route_tests::CONFORMANT))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        PLOT.begin(outcome);
        let protocol = match PROTOCOL.get(params) {
            Protocol::Ospf => CoreProtocol::Ospf,
            Protocol::Ldp => CoreProtocol::Ldp,
        };
        let case = IgpCase::new(bed, protocol, PREFIXES.get(params), RATE.get(params))?;
        note(
            outcome,
            "The time of an advertised prefix is the number of lost frames to it, divided by the rate of frames to it, less the time before \
             the advertisement (RFC 6413 section 6.3.3). The time of a withdrawn prefix is the number of frames that arrived at the port of \
             its P router, divided by this rate, less the time before the withdrawal.",
        );
        bed.progress(&format!("{protocol} convergence: sessions"));
        bed.igp()?.start(&case.plan, ESTABLISH.get(params))?;
        case.await_links(bed, params, PATIENCE.get(params))?;
        if protocol == CoreProtocol::Ldp {
            await_labels(bed, params, &case)?;
        }
        appear(bed, params, outcome, &case)?;
        disappear(bed, params, outcome, &case)
    }
}

/// Advertises the prefixes of LDP by OSPF, and waits until the DUT has a label for each.
fn await_labels(bed: &mut dyn Testbed, params: &Params, case: &IgpCase) -> Result<(), TestError> {
    let patience = PATIENCE.get(params);
    bed.igp()?.act(&case.action(case.to(), CoreProtocol::Ospf, Change::Advertise, case.whole()))?;
    case.settle(bed, patience)?;
    // Without labels, the first trial says which prefix has none.
    bed.igp()?.await_labels(case.sender, case.whole(), patience)?;
    Ok(())
}

/// One change under traffic: returns the result and the time of the change.
fn change(
    bed: &mut dyn Testbed,
    params: &Params,
    case: &IgpCase,
    change: Change,
    prepare: impl FnMut(&mut dyn Testbed, u32) -> Result<(), TestError>,
) -> Result<(TrialResult, f64), TestError> {
    let label = if change == Change::Advertise { "advertised" } else { "withdrawn" };
    let purpose = format!("{} convergence: {} prefixes {label}", case.protocol, thousands(case.plan.prefixes.into()));
    bed.progress(&purpose);
    let flows = case.flows(bed, case.whole())?;
    let timed: Timed = (BEFORE_S, label, case.action(case.to(), case.protocol, change, case.whole()));
    let duration_s = BEFORE_S + WINDOW.seconds(params);
    let trial = case.trial(bed, params, purpose, flows, duration_s, &[timed])?;
    let result = IgpCase::run(bed, &trial, prepare)?;
    let at_s = result.events.first().map_or(BEFORE_S, |event| event.at_s);
    Ok((result, at_s))
}

fn appear(bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome, case: &IgpCase) -> Result<(), TestError> {
    let patience = PATIENCE.get(params);
    let (result, at_s) = change(bed, params, case, Change::Advertise, |bed, attempt| {
        if attempt == 1 {
            return Ok(());
        }
        bed.igp()?.act(&case.action(case.to(), case.protocol, Change::Withdraw, case.whole()))?;
        case.settle(bed, patience)?;
        bed.settle(AGAIN)
    })?;
    let outage = Outage::of(&result, case.rate.pps(), Event::Advertised(at_s))
        .ok_or_else(|| TestError::Failed("nothing was counted per prefix".into()))?;
    let wrong: Vec<u32> = outage.unreachable.clone();
    report(outcome, case, "advertised", &outage.sorted_s, &wrong, &result);
    rank(outcome, case, &UP, "Time until forwarding", &outage.sorted_s, wrong.is_empty() && outage.unsent == 0);
    Ok(())
}

fn disappear(bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome, case: &IgpCase) -> Result<(), TestError> {
    let patience = PATIENCE.get(params);
    let (result, at_s) = change(bed, params, case, Change::Withdraw, |bed, attempt| {
        if attempt > 1 {
            bed.settle(AGAIN)?;
            bed.igp()?.act(&case.action(case.to(), case.protocol, Change::Advertise, case.whole()))?;
        }
        for second in case.plan.behind.iter().skip(1) {
            bed.igp()?.act(&case.action(*second, CoreProtocol::Ospf, Change::Advertise, case.whole()))?;
        }
        case.settle(bed, patience)?;
        case.await_prefixes(bed, params, case.whole(), patience)
    })?;
    let counts =
        result.destinations.first().ok_or_else(|| TestError::Failed("nothing was counted per prefix".into()))?;
    let each_pps = case.rate.pps() / f64::from(case.plan.prefixes);
    let (mut times, mut wrong) = (Vec::new(), Vec::new());
    for (index, received) in (0..).zip(&counts.received) {
        // A frame may be lost by chance, but a prefix that is gone loses more.
        if counts.lost(index as usize) <= 1 {
            wrong.push(index);
        } else {
            times.push((f64::from(*received) / each_pps - at_s).max(0.0));
        }
    }
    times.sort_by(f64::total_cmp);
    report(outcome, case, "withdrawn", &times, &wrong, &result);
    rank(outcome, case, &DOWN, "Time until withdrawn", &times, wrong.is_empty());
    Ok(())
}

/// The time that this share of the prefixes does not exceed, in ms.
fn percentile(sorted_s: &[f64], share: f64) -> Option<f64> {
    let last = sorted_s.len().checked_sub(1)?;
    let rank = (share * sorted_s.len() as f64).ceil() as usize;
    Some(sorted_s[rank.saturating_sub(1).min(last)] * 1e3)
}

/// Time between two frames to a prefix, in ms.
fn resolution_ms(case: &IgpCase) -> f64 {
    f64::from(case.plan.prefixes) / case.rate.pps() * 1e3
}

fn report(outcome: &mut Outcome, case: &IgpCase, change: &str, sorted_s: &[f64], wrong: &[u32], result: &TrialResult) {
    let moved = result.sum(|group| group.stray);
    let row = ChangeRow {
        change: change.into(),
        prefixes: case.plan.prefixes.into(),
        not_followed: wrong.len() as u64,
        min_ms: percentile(sorted_s, 0.0),
        median_ms: percentile(sorted_s, 0.5),
        p99_ms: percentile(sorted_s, 0.99),
        max_ms: percentile(sorted_s, 1.0),
        resolution_ms: resolution_ms(case),
        rate_pps: case.rate.pps(),
        lost: result.lost().saturating_sub(moved),
        moved,
        duplicated: result.sum(|group| group.duplicated),
    };
    let marks = (!wrong.is_empty()).then(|| "times cover only the prefixes that followed".to_owned());
    TABLE.add(outcome, row, [result.trial], marks);
    list_unreachable(outcome, &WRONG, &case.routes, wrong.iter().copied());
    let (count, steps) = (sorted_s.len(), sorted_s.len().min(POINTS));
    for step in 0..steps {
        let index = if steps < 2 { 0 } else { step * (count - 1) / (steps - 1) };
        let share = (index + 1) as f64 / f64::from(case.plan.prefixes) * 100.0;
        let curve = format!("{}, {change}", case.protocol);
        PLOT.curve(outcome, &curve, xy_of(share, sorted_s[index] * 1e3, result.trial));
    }
}

fn rank(outcome: &mut Outcome, case: &IgpCase, figures: &[FigureSpec; 2], title: &str, sorted_s: &[f64], whole: bool) {
    for (spec, word, share) in [(&figures[0], "median", 0.5), (&figures[1], "max", 1.0)] {
        let value = percentile(sorted_s, share).filter(|_| whole);
        let title = format!("{title}, {} prefixes, {word}, {}", thousands(case.plan.prefixes.into()), case.protocol);
        let figure = spec.by(resolution_ms(case)).of(&[("protocol", &case.protocol)], title, value);
        outcome.ranks.push(figure.because("some prefixes did not follow the change in the end"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_of_prefixes() {
        let sorted: Vec<f64> = (1..=100).map(|n| f64::from(n) / 1e3).collect();
        let of = |share| percentile(&sorted, share).unwrap();
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|share| of(share).round()), [1.0, 50.0, 99.0, 100.0]);
        assert_eq!(percentile(&[], 0.5), None);
    }
}
