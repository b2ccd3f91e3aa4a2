//! Scale of a PE router: VRFs with routes on both sides, all of them forwarded to, none of them mixed up (the MPLS VPN test of 2004: 1,504 VRFs
//! with 100 routes each, 1,024 with 700, 80 with 10,000; RFC 4364).

use crate::kit::prelude::*;
use crate::mlrsearch::Irregular;
use crate::throughput_search::search_with;
use crate::vpn_traffic::{self, LEAKS, Mesh, Ready, Vpn, note_leaked_routes};
use crate::vpns::VpnRoutesSeen;
use drophammer_model::outcome::{Blame, Missing};

/// The test.
pub struct VpnScale;

const TRIAL: Param<Duration> =
    Param::new("trial_duration", "5 s", "300 s", "time for which every route gets traffic at the throughput");

const THROUGHPUT: FigureSpec = FigureSpec::higher(
    "vpn_throughput_pps",
    "fps",
    "highest load per port without loss, with traffic to every route of every VRF in both directions",
);
const LATENCY: FigureSpec = FigureSpec::lower("vpn_latency_us", "µs", "mean latency at that load");
const READY_S: FigureSpec = FigureSpec::lower(
    "vpn_ready_s",
    "s",
    "seconds from the first advertisement to traffic without loss to every route",
);
const ROUTES: FigureSpec =
    FigureSpec::higher("vpn_routes", "routes", "routes of all VRFs that the router holds and forwards to without loss");
const LEAKED_FRAMES: FigureSpec =
    FigureSpec::lower_by_difference("vpn_leaked_frames", "frames", "frames that arrived in another VRF").by(1.0);
const LEAKED_ROUTES: FigureSpec = FigureSpec::lower_by_difference(
    "vpn_leaked_routes",
    "routes",
    "routes advertised to a router of another VRF, counted at each router and at each advertisement",
)
.by(1.0);

static SPEC: TestSpec = TestSpec {
    name: "vpn_scale",
    title: "PE router scale",
    summary: "VRFs and routes that a PE router holds and forwards to, with throughput, latency and leaks between VRFs",
    source: "MPLS VPN test of 2004: 1,504 VRFs x 100, 1,024 x 700 and 80 x 10,000 routes; RFC 4364",
    needs: vpn_traffic::NEEDS,
    params: params![
        &[
            vpn_traffic::VRFS.spec(),
            vpn_traffic::ROUTES.spec(),
            vpn_traffic::FAMILIES.spec(),
            vpn_traffic::MESH.spec(),
            vpn_traffic::SIZE.spec(),
            TRIAL.spec(),
            vpn_traffic::CHECK_RATE.spec(),
            vpn_traffic::INSTALL.spec(),
            vpn_traffic::PATIENCE.spec(),
            vpn_traffic::ESTABLISH.spec(),
        ],
        &SEARCH,
    ],
    figures: &[
        ROUTES.shape(),
        THROUGHPUT.shape(),
        LATENCY.shape(),
        READY_S.shape(),
        LEAKED_FRAMES.shape(),
        LEAKED_ROUTES.shape(),
    ],
    tables: &[TABLE.shape(), LEAKS.shape()],
};

columns! {
    /// One scenario.
    struct ScaleRow {
        vrfs: u64 = "VRFs",
        families: String,
        mesh: String,
        routes_per_vrf: u64 = "Routes per VRF",
        routes: u64,
        core_s: f64 = "OSPF and LDP up after" ["s"],
        sessions_s: f64 = "BGP sessions up after" ["s"],
        advertise_s: Option<f64> = "Routes passed on after" ["s"],
        forward_s: Option<f64> = "Forwarded to after" ["s"],
        exact_s: Option<f64> = "Uncertainty" ["s"],
        throughput_pps: Option<f64> = "Throughput per port" ["fps"],
        total_pps: Option<f64> = "Throughput in all" ["fps"],
        latency_us: Option<f64> = "Mean latency" ["µs"],
        offered: Option<u64> ["frames"],
        lost: Option<u64> ["frames"],
        leaked: u64 = "In another VRF" ["frames"],
        leaked_routes: u64 = "Routes in another VRF",
        cpu_percent: Option<f64> = "DUT processor" ["%"],
        memory_mib: Option<f64> = "DUT memory" ["MiB"],
    }
}

const TABLE: TableSpec<ScaleRow> = TableSpec::new("vpn_scale", "PE router scale");

/// By which share the load is lowered if frames are lost during the time of the test, and how often.
const STEP: f64 = 0.1;
const LOWER: u32 = 7;
/// Why there is no throughput.
const LOSSY: &str = "the router lost frames at every load";
const OUT_OF_TIME: &str = "the search took too long; see `search_duration_max`";
/// Longest time for which a trial is lengthened so that every route gets a frame, in seconds.
const LONGEST_S: f64 = 300.0;

/// The pattern that limits the search: its line rate, and the tester's ceiling for it. Frames on core links carry two labels.
fn pattern(params: &Params) -> Pattern {
    let drain_s = DRAIN.seconds(params);
    let size = vpn_traffic::SIZE.get(params).with_tags(8);
    let one_way = Pattern::one_way(size, vpn_traffic::FAMILIES.get(params), drain_s);
    Pattern { direction: Direction::Bidirectional, ..one_way }
}

impl Method for VpnScale {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let trial_s = TRIAL.seconds(params);
        let goal = zero_loss_goal(params);
        let search = crate::throughput_search::search_trials(params, std::slice::from_ref(&goal), 1);
        let search_s = crate::throughput_search::estimate_one(params, &[goal]).as_secs_f64();
        let vrfs = f64::from(vpn_traffic::VRFS.get(params).unwrap_or(100));
        let families = vpn_traffic::FAMILIES.get(params).len() as f64;
        Plan::of(params, vec![pattern(params)])
            .counting(search + TrialCount::about(2))
            // A router takes some hundred sessions and some thousand routes per minute or second.
            .taking(
                20.0 + vrfs / 5.0
                    + vrfs * families * f64::from(vpn_traffic::ROUTES.get(params)) / 4_000.0
                    + search_s
                    + trial_s,
            )
            .deviating(
                (trial_s < 300.0).then(|| {
                    format!("{} of traffic to every route instead of 300 s", show_duration(TRIAL.get(params)))
                }),
            )
            .deviating(goal_deviations(params))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        LEAKS.begin(outcome);
        bed.progress("VRFs come up");
        let (mut vpn, ready) = Vpn::bring_up(bed, params, |_| Ok(()))?;
        let found = measure(bed, params, &mut vpn, &ready, outcome);
        let taken = bed.vpns()?.take_down();
        found.and(taken)
    }
}

/// What was found with traffic.
#[derive(Default)]
struct Found {
    /// The load without loss for the time of the test.
    throughput: Option<FrameRate>,
    bound: Option<LowerBound>,
    /// How exact it is, as a share of it.
    resolution: f64,
    /// Why there is none although the search ended.
    missing: Option<Missing>,
    /// The last trial of that length.
    result: Option<TrialResult>,
    /// Share of the routes that got a frame in it.
    reached: f64,
}

fn measure(
    bed: &mut dyn Testbed,
    params: &Params,
    vpn: &mut Vpn,
    ready: &Ready,
    outcome: &mut Outcome,
) -> Result<(), TestError> {
    let mut found = Found::default();
    let mut stopped = None;
    if !ready.seen.complete() {
        stopped = Some(format!("routes are not passed on: {}", ready.seen.cause));
    } else if ready.forwarded_s.is_none() {
        let lost = ready.check.as_ref().map_or(0, TrialResult::lost);
        let groups = ready.check.as_ref().map(vpn_traffic::arrived).unwrap_or_default();
        stopped = Some(format!(
            "{lost} frames of the last traffic to every route are lost or arrived in a wrong place ({groups})"
        ));
    }
    // A router that mixes VRFs up has no throughput.
    let searched = if stopped.is_none() { load(bed, params, vpn, &mut found, outcome) } else { Ok(()) };
    let seen = bed.vpns()?.seen();
    let leaked_routes = note_leaked_routes(outcome, &seen);
    let leaked = vpn.write_leaks(bed, outcome)?;
    let result = found.result.as_ref();
    let memory: u64 = bed.memory().iter().map(|(_, bytes)| bytes).sum();
    let clean = found.throughput.and(result);
    let mut marks: Vec<String> = found.bound.iter().map(ToString::to_string).collect();
    if clean.is_some() && found.reached < 1.0 {
        marks.push(format!("{:.0} % of the routes got a frame", found.reached * 100.0));
    }
    marks.extend(seen.lost_since(&VpnRoutesSeen::default()));
    if let Some(why) = &stopped {
        marks.push(why.clone());
        note(outcome, format!("{} VRFs: {why}.", vpn.count()));
    }
    let row = ScaleRow {
        vrfs: vpn.count().into(),
        families: vpn.family_names(),
        mesh: vpn.mesh.to_string(),
        routes_per_vrf: vpn.per_vrf(),
        routes: vpn.all_routes(),
        core_s: ready.up.core_s,
        sessions_s: ready.up.sessions_s,
        advertise_s: ready.seen.complete().then_some(ready.seen.last_change_s),
        forward_s: ready.forwarded_s,
        exact_s: ready.forwarded_s.map(|_| ready.unsure_s),
        throughput_pps: found.throughput.map(FrameRate::pps),
        total_pps: clean.map(|result| result.received() as f64 / result.sending_s.max(1e-9)),
        latency_us: clean.and_then(mean_latency_us),
        offered: result.map(TrialResult::offered),
        lost: result.map(TrialResult::lost),
        leaked,
        leaked_routes,
        cpu_percent: result.and_then(|result| result.dut_cpu).map(|share| share * 100.0),
        memory_mib: (memory > 0).then_some(memory as f64 / f64::from(1 << 20)),
    };
    let trials = result.or(ready.check.as_ref()).map(|result| result.trial);
    let missing = stopped.map(|why| Missing { why, by: Blame::Dut });
    rank(outcome, &row, &found, ready, missing, searched.as_ref().err());
    TABLE.add(outcome, row, trials, marks);
    searched
}

/// Searches the throughput, and sends at it for the time of the test.
fn load(
    bed: &mut dyn Testbed,
    params: &Params,
    vpn: &mut Vpn,
    found: &mut Found,
    outcome: &mut Outcome,
) -> Result<(), TestError> {
    let traffic = vpn.traffic(bed)?;
    let pattern = pattern(params);
    let mut trial = |bed: &mut dyn Testbed, load: f64, duration_s: f64| {
        bed.progress("throughput with traffic to every route");
        let purpose = format!("VPN throughput: {load:.0} fps per port");
        let spec = vpn.trial(params, &traffic, purpose, load, duration_s);
        let result = bed.run(&Trial::new(spec))?.result;
        vpn.count_leaks(&traffic, &result);
        Ok(result)
    };
    let searched = search_with(bed, &pattern, vec![zero_loss_goal(params)], params, &mut trial)?;
    searched.deviate(&pattern, outcome);
    found.bound = searched.lower_bound();
    let (rate, unfit) = (searched.throughput(), searched.unfit.clone());
    if let Some(error) = searched.error {
        return Err(error);
    }
    let Some(mut rate) = rate else {
        if let Some((_, why)) = unfit {
            return Err(TestError::Unfit(why));
        }
        let unfinished = searched.results.first().is_none_or(|r| r.irregular.contains(&Irregular::Unfinished));
        let (text, why, by) = match unfinished {
            true => ("The search found no load without loss within its time", OUT_OF_TIME, Blame::Spoilt),
            false => ("The router lost frames at every load of the search", LOSSY, Blame::Dut),
        };
        note(outcome, format!("{text}, so there is no throughput."));
        found.missing = Some(Missing { why: why.into(), by });
        return Ok(());
    };
    let width = searched.results.first().map(|r| r.relative_width().unwrap_or_default().max(r.goal.relative_width));
    found.resolution = width.unwrap_or_default();
    let mut lowest = rate;
    // The trials of the search are shorter. The load must hold for the time of the test.
    for _ in 0..=LOWER {
        // Every route gets a frame.
        let least_s = vpn.round_s(rate) * 1.02;
        let duration_s = TRIAL.seconds(params).max(least_s.min(LONGEST_S));
        let purpose = format!("VPN: every route for {duration_s:.1} s");
        bed.progress(&purpose);
        let spec = vpn.trial(params, &traffic, purpose, rate.pps(), duration_s);
        let result = bed.run(&Trial::new(spec))?.result;
        vpn.count_leaks(&traffic, &result);
        let lost = result.lost();
        found.reached = (duration_s / least_s).min(1.0);
        found.result = Some(result);
        if lost == 0 {
            found.throughput = Some(rate);
            return Ok(());
        }
        // The tester is not the limit where the router loses frames.
        found.bound = None;
        found.resolution = found.resolution.max(STEP);
        lowest = rate;
        rate = rate.scaled(1.0 - STEP);
    }
    note(
        outcome,
        format!("The router lost frames at every load down to {lowest} per port, so there is no throughput."),
    );
    found.missing = Some(Missing { why: LOSSY.into(), by: Blame::Dut });
    Ok(())
}

/// Mean latency over both directions.
fn mean_latency_us(result: &TrialResult) -> Option<f64> {
    if hidden_latency(result, None).is_some() {
        return None;
    }
    let frames: u64 = result.groups.iter().map(|group| group.latency.frames).sum();
    let sum: f64 = result.groups.iter().map(|group| group.latency.mean_ns * group.latency.frames as f64).sum();
    (frames > 0).then(|| sum / frames as f64 / 1e3)
}

/// Why there is no throughput after this error; `None` if the end was wanted, which is not a result of the router.
fn missing_after(error: &TestError) -> Option<Missing> {
    match error {
        TestError::Interrupted | TestError::Store(_) => None,
        TestError::Unfit(why) => Some(Missing { why: why.join("; "), by: Blame::Spoilt }),
        other => Some(Missing { why: other.to_string(), by: Blame::Dut }),
    }
}

/// Reports the figures. Those that were not measured because the router failed before, say so: `missing`. `ended`: the error that ended
/// the search or the traffic after it.
fn rank(
    outcome: &mut Outcome,
    row: &ScaleRow,
    found: &Found,
    ready: &Ready,
    missing: Option<Missing>,
    ended: Option<&TestError>,
) {
    let ipv6 = row.families.contains(&Family::Ipv6.to_string());
    let families = if ipv6 { format!(" ({})", row.families) } else { String::new() };
    let mesh = if row.mesh == Mesh::Partial.to_string() { ", partial mesh" } else { "" };
    let scenario = format!("{} VRFs with {} routes each{families}{mesh}", row.vrfs, row.routes_per_vrf);
    let held = row.forward_s.map(|_| row.routes as f64).or(Some(0.0));
    // The test ends at its own number of routes.
    outcome.ranks.push(RankFigure {
        capped: row.forward_s.is_some(),
        ..ROUTES.of(&[], format!("Routes held, {scenario}"), held)
    });
    let without_load = match ended {
        Some(error) => missing_after(error),
        None => missing.clone().or_else(|| found.missing.clone()),
    };
    if ended.is_none() || without_load.is_some() {
        let capped = found.bound == Some(LowerBound::MaxLoad);
        let tester_limited = found.bound.is_some() && !capped;
        let throughput = THROUGHPUT.of(&[], format!("Throughput, {scenario}"), row.throughput_pps);
        outcome.ranks.push(RankFigure {
            tester_limited,
            capped,
            resolution: found.resolution,
            missing: without_load.clone(),
            ..throughput
        });
        let latency = LATENCY.of(&[], format!("Mean latency, {scenario}"), row.latency_us);
        let at_load = found.throughput.and(found.result.as_ref()).filter(|_| without_load.is_none());
        let hidden = at_load.and_then(|result| hidden_latency(result, None));
        let latency = RankFigure { load_pps: row.throughput_pps, missing: without_load, ..latency };
        outcome.ranks.push(match hidden {
            Some(why) => latency.beyond(why),
            None => latency,
        });
    }
    let resolution = row.forward_s.map_or(0.0, |time| ready.unsure_s / time.max(1e-9));
    let time = READY_S.of(&[], format!("Time until all routes are forwarded to, {scenario}"), row.forward_s);
    let late = ready.seen.tester_late_s * 2.0 > ready.seen.last_change_s;
    let tester_limited = late && ready.seen.tester_late_s > 0.0;
    outcome.ranks.push(RankFigure { resolution, tester_limited, missing, ..time });
    outcome.ranks.push(LEAKED_FRAMES.of(&[], format!("Frames in another VRF, {scenario}"), Some(row.leaked as f64)));
    let routes = LEAKED_ROUTES.of(&[], format!("Routes in another VRF, {scenario}"), Some(row.leaked_routes as f64));
    outcome.ranks.push(routes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfit_tester_is_not_the_routers_fault_and_a_wanted_end_nobodys() {
        let by = |error: &TestError| missing_after(error).map(|missing| (missing.why, missing.by));
        let unfit = TestError::Unfit(vec!["late".into(), "busy".into()]);
        assert_eq!(by(&unfit), Some(("late; busy".into(), Blame::Spoilt)));
        assert_eq!(by(&TestError::DutDied("gone".into())).map(|(_, by)| by), Some(Blame::Dut));
        assert_eq!((by(&TestError::Interrupted), by(&TestError::Store("full".into()))), (None, None));
    }
}
