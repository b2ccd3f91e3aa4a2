//! Resets (RFC 6201): how long a router does not forward after a reset of its daemons or a link, and how long it takes
//! until its BGP sessions and routes are back.

mod interruption;

use crate::attempts::Attempts;
use crate::figure::word;
use crate::kit::prelude::*;
use crate::route_tests::{self, CONFORMANT, Case};
use crate::route_traffic::{self, smallest};
use crate::routing::WatchIndex;
use crate::trial::not_seen;
use drophammer_model::reset::{Reset, ResetKind, ResetSeen};
use drophammer_model::trial::{FlowSpec, Targets};
use interruption::Interruption;

/// The test.
pub struct ResetTest;

const RESETS: Param<Vec<ResetKind>> = Param::fixed(
    "resets",
    "[software, process, link]",
    "what to reset: daemons (asked to terminate), daemons (killed), or the link to the receiver",
);
const WINDOW: Param<Duration> =
    Param::new("window", "4 s", "60 s", "how long traffic continues after the beginning of the reset");
const DOWN: Param<Duration> = Param::new("down", "500 ms", "5 s", "how long a link is down");
const LIMIT: Param<Duration> =
    Param::new("limit", "30 s", "300 s", "time within which daemons, sessions and routes must be back");
const ROUTES: Param<u32> = Param::new(
    "routes",
    "1000",
    "100000",
    "number of BGP routes that get half of the traffic, if the suite has BGP; 0 for none",
);
const REPEATS: Param<u32> = Param::new("repeats", "1", "5", "resets of each kind");

const STATIC_MS: FigureSpec = FigureSpec::lower_by_difference(
    "reset_{reset}_{family}_ms",
    "ms",
    "time without forwarding to static routes, by frames lost, in ms: `reset` is software, process or link, `family` ipv4 or ipv6",
);
const BGP_MS: FigureSpec = FigureSpec::lower_by_difference(
    "reset_{reset}_{family}_bgp_ms",
    "ms",
    "time without forwarding to BGP routes, by frames lost, in ms",
);

static SPEC: TestSpec = TestSpec {
    name: "reset",
    title: "Reset",
    summary: "how long the router does not forward after a reset of its daemons or a link, and until sessions and routes are back",
    source: "RFC 6201 sections 3 and 4",
    needs: &[],
    params: params![
        &route_tests::TABLES,
        &[RESETS.spec(), WINDOW.spec(), DOWN.spec(), LIMIT.spec(), ROUTES.spec(), REPEATS.spec()],
        &route_traffic::LOADED,
        &route_tests::SESSIONS,
    ],
    figures: &[STATIC_MS.shape(), BGP_MS.shape()],
    tables: &[TABLE.shape()],
};

columns! {
    /// One reset and type of routes.
    struct ResetRow {
        reset: String,
        family: Family,
        routes: String,
        forwarding: String,
        rate_pps: f64 = "Load" ["fps"],
        offered: u64 ["frames"],
        lost: u64 ["frames"],
        loss_ms: Option<f64> = "Reset time, by loss" ["ms"],
        stamps_ms: Option<f64> = "Reset time, by time stamps" ["ms"],
        begins_ms: Option<f64> = "First loss after the reset" ["ms"],
        episodes: u64 = "Interruptions",
        resolution_ms: f64 ["ms"],
        restarted_ms: Option<f64> = "Daemons running again" ["ms"],
        sessions_lost: u64,
        sessions_ms: Option<f64> = "Sessions up again" ["ms"],
        routes_ms: Option<f64> = "Routes advertised again" ["ms"],
        what: String = "What was reset",
    }
}

const TABLE: TableSpec<ResetRow> = TableSpec::new("reset", "Resets");
const PLOT: PlotSpec =
    PlotSpec::new("reset", "Frames that arrived around a reset", PlotKind::Line, "time, s", "arrivals, fps");

/// Traffic runs for this long before the reset, in seconds.
const BEFORE_S: f64 = 1.0;
/// Width of the bins of the plot, in seconds.
const BIN_S: f64 = 0.05;
/// Group of the frames to static routes.
const STATIC: &str = "static routes";
/// Group of the frames to BGP routes.
const BGP: &str = "BGP routes";

/// The load and the routes of the tests of one family.
struct Setup {
    family: Family,
    rate: FrameRate,
    /// The BGP routes, advertised from the second port and verified at the first one.
    bgp: Option<Case>,
}

impl Method for ResetTest {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let resets = RESETS.get(params).len() * REPEATS.get(params) as usize;
        Plan::by_family(&SPEC, params)
            .counting(resets)
            .taking((BEFORE_S + WINDOW.seconds(params) + PAUSE.seconds(params) + 5.0) * resets as f64)
            .deviating(shorter(params, &WINDOW, "traffic after the reset", 60.0, CONFORMANT))
            .deviating(fewer(params, &REPEATS, "resets of each kind", 5, CONFORMANT))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        PLOT.begin(outcome);
        PLOT.event(outcome, BEFORE_S, "reset");
        note(
            outcome,
            "Reset time by loss: frames lost after the beginning of the reset, divided by the load. By time stamps: from the departure of the \
             first lost frame to the departure of the first frame after the last lost one. They differ if some frames arrived in between. \
             Other times are counted from the beginning of the reset.",
        );
        let (mut done, mut left_out, mut unfit) = (0, Vec::new(), None);
        for family in route_tests::FAMILIES.get(params) {
            let with_bgp = match without_bgp(bed, params, family)? {
                None => true,
                Some(why) => {
                    note(outcome, format!("{family}: static routes only, because {why}."));
                    false
                }
            };
            let rate = route_traffic::load(bed, family, params, outcome)?;
            for kind in RESETS.get(params) {
                let bgp = if with_bgp { Some(Case::new(bed, family, params, 2, ROUTES.get(params))?) } else { None };
                match resets(bed, params, outcome, &Setup { family, rate, bgp }, kind) {
                    Ok(()) => done += 1,
                    Err(TestError::NotApplicable(why)) => {
                        note(outcome, format!("{family}, {} reset left out: {why}.", kind.word()));
                        left_out.push(why);
                    }
                    // The other kinds can still be measured.
                    Err(TestError::Unfit(why)) => {
                        let text = why.join("; ");
                        note(
                            outcome,
                            format!("{family}, {} reset not finished, the tester was unfit: {text}.", kind.word()),
                        );
                        unfit.get_or_insert(TestError::Unfit(why));
                    }
                    Err(other) => return Err(other),
                }
            }
        }
        match (unfit, left_out.into_iter().next()) {
            (Some(error), _) => Err(error),
            (None, Some(why)) if done == 0 => Err(TestError::NotApplicable(why)),
            _ => Ok(()),
        }
    }
}

/// Why there are no BGP routes to send to; `None` if there are some. Tries to bring the sessions up, so that a router
/// without BGP is detected before any reset.
fn without_bgp(bed: &mut dyn Testbed, params: &Params, family: Family) -> Result<Option<String>, TestError> {
    if ROUTES.get(params) == 0 {
        return Ok(Some("`routes` is 0".into()));
    }
    let Ok(peers) = route_tests::one_per_port(bed, family, 2) else {
        return Ok(Some("the suite has no BGP on two ports".into()));
    };
    let tried = route_tests::establish(bed, &peers[..2], params).map(drop);
    route_tests::clear(bed, &tried, LIMIT.get(params))?;
    match tried {
        Ok(()) => Ok(None),
        Err(TestError::Failed(why)) => Ok(Some(why)),
        Err(other) => Err(other),
    }
}

/// Runs all resets of a kind.
fn resets(
    bed: &mut dyn Testbed,
    params: &Params,
    outcome: &mut Outcome,
    setup: &Setup,
    kind: ResetKind,
) -> Result<(), TestError> {
    let mut found: Vec<Found> = Vec::new();
    let (mut problem, mut stopped) = (None, Ok(()));
    for _ in 0..REPEATS.get(params) {
        bed.progress(&format!("{} reset, {}", kind.word(), setup.family));
        let one = one_reset(bed, params, outcome, setup, kind);
        // The next reset starts without sessions and routes.
        let cleared = match setup.bgp {
            Some(_) => route_tests::clear(bed, &one.as_ref().map(drop).map_err(Clone::clone), LIMIT.get(params)),
            None => Ok(()),
        };
        stopped = match one {
            Ok((of_one, broken)) => {
                found.push(of_one);
                problem = broken;
                if problem.is_some() {
                    break;
                }
                cleared.and_then(|()| bed.settle(PAUSE.get(params)))
            }
            Err(error @ (TestError::DutDied(_) | TestError::Failed(_))) => Err(error),
            Err(error) => cleared.and(Err(error)),
        };
        // Figures of the other resets must not hide the one in which the router failed.
        if matches!(stopped, Err(TestError::DutDied(_) | TestError::Failed(_))) {
            return stopped;
        }
        if stopped.is_err() {
            break;
        }
    }
    for name in [STATIC, BGP] {
        let of: Vec<&Interruption> =
            found.iter().flatten().filter(|(group, _)| group == name).map(|(_, i)| i).collect();
        rank(outcome, setup.family, kind, name, &of);
    }
    if let Err(TestError::Unfit(why)) = &stopped {
        let groups: &[&str] = if setup.bgp.is_some() { &[STATIC, BGP] } else { &[STATIC] };
        let resolution_s = groups.len() as f64 / setup.rate.pps();
        for name in groups {
            push_spoilt(outcome, figure(setup.family, kind, name, resolution_s, None), why);
        }
    }
    match problem {
        // Another reset would measure a broken router.
        Some(problem) => {
            Err(TestError::Failed(format!("the router has not recovered from a {} reset: {problem}", kind.word())))
        }
        None => stopped,
    }
}

/// Result for each group of frames.
type Found = Vec<(String, Interruption)>;

/// Runs one reset: advertises the routes, sends traffic, resets the router and waits for its recovery. Returns the
/// interruptions, and what has not recovered.
fn one_reset(
    bed: &mut dyn Testbed,
    params: &Params,
    outcome: &mut Outcome,
    setup: &Setup,
    kind: ResetKind,
) -> Result<(Found, Option<String>), TestError> {
    let reset = Reset { kind, at_s: BEFORE_S, down: DOWN.get(params), limit: LIMIT.get(params) };
    let spec = trial(bed, params, setup, kind)?;
    let request = Trial { reset: Some((reset, spec.flows[0].to)), ..Trial::new(spec) };
    let mut attempts = Attempts::begin(bed);
    let (result, seen, watch) = loop {
        let watch = match &setup.bgp {
            Some(case) => Some(case.load(bed, params, case.peers[1], case.peers[0])?),
            None => None,
        };
        let found = bed.attempt(&request, attempts.number())?;
        let (result, seen) = (found.result, found.reset.ok_or_else(|| not_seen("a reset"))?);
        if attempts.passed(bed, &result)? {
            break (result, seen, watch);
        }
        if setup.bgp.is_some() {
            route_tests::clear(bed, &Ok(()), LIMIT.get(params))?;
        }
        bed.settle(PAUSE.get(params))?;
    };
    let routes_s = match watch {
        Some(watch) => routes_back(bed, params, outcome, &seen, watch)?,
        None => None,
    };
    let mut found = Vec::new();
    let share = setup.rate.pps() / result.groups.len().max(1) as f64;
    for (index, group) in result.groups.iter().enumerate() {
        let interruption = Interruption::of(&result, index, share, seen.at_s);
        row(outcome, setup.family, kind, share, &result, index, &interruption, &seen, routes_s);
        found.push((group.group.clone(), interruption));
        let series = format!("{}, {} reset, {}", setup.family, kind.word(), group.group);
        for (at, bin) in group.bins.iter().enumerate().take(((BEFORE_S + WINDOW.seconds(params)) / BIN_S) as usize) {
            PLOT.curve(outcome, &series, xy_of(at as f64 * BIN_S, bin.arrived as f64 / BIN_S, result.trial));
        }
    }
    Ok((found, seen.problem))
}

/// Frames from the first port to the second: to the networks behind it, and to the routes that the emulated router
/// there advertises.
fn trial(bed: &mut dyn Testbed, params: &Params, setup: &Setup, kind: ResetKind) -> Result<TrialSpec, TestError> {
    let family = setup.family;
    let pattern = Pattern::one_way(smallest(family), vec![family], DRAIN.seconds(params));
    let purpose = format!("{} reset, {family}", kind.word());
    let load = Load::Constant { rate_pps: setup.rate.pps() };
    let mut spec = pattern.trial(bed.ports(), purpose, load, BEFORE_S + WINDOW.seconds(params))?;
    spec.bin_s = Some(BIN_S);
    // More pairs of ports would share neither link nor routes with the first pair.
    spec.flows.truncate(1);
    spec.flows[0].group = STATIC.into();
    if let Some(case) = &setup.bgp {
        let (from, to) = (case.port(case.peers[0]), case.port(case.peers[1]));
        let static_flow = spec.flows[0].clone();
        let routes = Targets::Routes { routes: case.all.clone(), first: 0, count: case.all.len() };
        spec.flows[0] = FlowSpec { from, to, ..static_flow };
        spec.flows.push(FlowSpec::new(BGP, from, to, spec.flows[0].sources, routes));
    }
    Ok(spec)
}

/// Waits until all routes are advertised again. Returns the time of the last one in seconds after the reset; `None` if
/// some are missing, or if no route changed after the reset.
fn routes_back(
    bed: &mut dyn Testbed,
    params: &Params,
    outcome: &mut Outcome,
    seen: &ResetSeen,
    watch: WatchIndex,
) -> Result<Option<f64>, TestError> {
    let routing = bed.routing()?;
    let settled = routing.await_settled(&[watch], LIMIT.get(params))?;
    if !settled.complete {
        let why = route_tests::complaint(routing, watch, &settled);
        note(outcome, format!("not all routes came back within {}: {why}.", show_duration(LIMIT.get(params))));
        return Ok(None);
    }
    let last = routing.verified(watch).last_change_s;
    Ok(last.map(|at_s| at_s - seen.began_s).filter(|after_s| *after_s > 0.0))
}

#[allow(clippy::too_many_arguments)] // a row needs all of these
fn row(
    outcome: &mut Outcome,
    family: Family,
    kind: ResetKind,
    rate_pps: f64,
    result: &TrialResult,
    index: usize,
    interruption: &Interruption,
    seen: &ResetSeen,
    routes_s: Option<f64>,
) {
    let group = &result.groups[index];
    let ms = |s: Option<f64>| s.map(|s| s * 1e3);
    let mut marks: Vec<String> = seen.problem.iter().cloned().collect();
    if interruption.lost_before > 0 {
        marks.push(format!("{} frames lost before the reset are not included in the times", interruption.lost_before));
    }
    if interruption.lossy {
        marks.push("frames were already being lost when the reset began; the times include this".into());
    }
    if !interruption.back {
        let at_least = interruption.loss_s * 1e3;
        marks.push(format!("still losing frames at the end of the trial: at least {at_least:.0} ms"));
    }
    TABLE.add(
        outcome,
        ResetRow {
            reset: kind.word().into(),
            family,
            routes: group.group.clone(),
            forwarding: interruption.text().into(),
            rate_pps,
            offered: group.offered,
            lost: group.lost,
            loss_ms: interruption.back.then_some(interruption.loss_s * 1e3),
            stamps_ms: ms(interruption.stamps_s.filter(|_| interruption.back)),
            begins_ms: ms(interruption.begins_s),
            episodes: interruption.episodes,
            resolution_ms: 1e3 / rate_pps,
            restarted_ms: ms(seen.restarted_s),
            sessions_lost: seen.sessions_lost,
            sessions_ms: ms(seen.sessions_s),
            routes_ms: ms(routes_s).filter(|_| group.group == BGP),
            what: seen.what.clone(),
        },
        [result.trial],
        marks,
    );
}

fn rank(outcome: &mut Outcome, family: Family, kind: ResetKind, routes: &str, found: &[&Interruption]) {
    let Some(first) = found.first() else { return };
    let times: Vec<f64> = found.iter().map(|i| i.loss_s * 1e3).collect();
    // A median over only the resets with a recovery would favour a router that sometimes does not recover.
    let value = if found.iter().all(|i| i.back) { median(&times) } else { None };
    outcome.ranks.push(figure(family, kind, routes, first.resolution_s, value));
}

fn figure(family: Family, kind: ResetKind, routes: &str, resolution_s: f64, ms: Option<f64>) -> RankFigure {
    let spec = if routes == BGP { BGP_MS } else { STATIC_MS };
    let title = format!("Time without forwarding to {routes}, {} reset, {family}", kind.word());
    let spec = spec.by(resolution_s * 1e3);
    spec.of(&[("reset", &kind.word()), ("family", &word(family))], title, ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Columns;

    #[test]
    fn the_page_names_every_column() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tests/reset.md");
        let page = std::fs::read_to_string(path).unwrap();
        for key in ResetRow::KEYS {
            assert!(page.contains(&format!("`{key}`")), "{key}");
        }
    }
}
