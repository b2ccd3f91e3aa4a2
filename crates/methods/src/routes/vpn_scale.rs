//! Scale of a PE router: VRFs with routes on both sides, all of them forwarded to, none of them mixed up (the MPLS VPN test of 2004: 1,504 VRFs
//! with 100 routes each, 1,024 with 700, 80 with 10,000; RFC 4364).

use crate::kit::prelude::*;
use crate::mlrsearch::Irregular;
use crate::rib_fib_capacity::proven;
use crate::route_steps::StepPlots;
use crate::route_tests::{memory_mib, thousands};
use crate::routing::Change;
use crate::throughput_search::search_with;
use crate::vpn_traffic::{self, LEAKS, Mesh, Ready, Vpn, note_leaked_routes};
use crate::vpns::{VpnRoutesSeen, VpnUp};
use drophammer_model::outcome::{Blame, Missing};
use std::ops::Range;

/// The test.
pub struct VpnScale;

const STEPS: Param<u32> = Param::fixed(
    "steps",
    "1",
    "number of parts in which the routes of each site are advertised, one after the other, until the router does not hold all of them",
);
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
            STEPS.spec(),
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
    tables: &[TABLE.shape(), BY_STEP.shape(), LEAKS.shape()],
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

columns! {
    /// One step.
    struct StepRow {
        step: u64,
        routes: u64,
        advertise_s: Option<f64> = "Passed on after" ["s"],
        forward_s: Option<f64> = "Forwarded to after" ["s"],
        exact_s: Option<f64> = "Uncertainty" ["s"],
        offered: Option<u64> ["frames"],
        lost: Option<u64> ["frames"],
        memory_mib: Option<f64> = "DUT memory" ["MiB"],
        cause: Option<String>,
    }
}

const TABLE: TableSpec<ScaleRow> = TableSpec::new("vpn_scale", "PE router scale");
const BY_STEP: TableSpec<StepRow> = TableSpec::new("vpn_scale_steps", "PE router scale, step by step");
const PLOTS: StepPlots = StepPlots {
    times: "vpn_scale_time",
    time_of: "time until the router forwards to all, s",
    memory: "vpn_scale_memory",
};

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
        let routes = vrfs * families * f64::from(vpn_traffic::ROUTES.get(params));
        // Each step sends traffic to all routes so far.
        let before = STEPS.get(params).min(vpn_traffic::ROUTES.get(params)).max(1) - 1;
        let checks_s = routes / 2.0 / vpn_traffic::CHECK_RATE.get(params).pps() * f64::from(before) / 2.0;
        Plan::of(params, vec![pattern(params)])
            .counting(search + TrialCount::about(2 + before as usize))
            // A router takes some hundred sessions and some thousand routes per minute or second.
            .taking(20.0 + vrfs / 5.0 + routes / 4_000.0 + checks_s + search_s + trial_s)
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
        let (mut vpn, up) = Vpn::sessions(bed, params, |_| Ok(()))?;
        let climb = climb(bed, params, &mut vpn, up, outcome)?;
        let found = measure(bed, params, &mut vpn, &climb, outcome);
        let taken = bed.vpns()?.take_down();
        found.and(taken)
    }
}

/// The steps up to the last one, or to the first one that the router did not hold.
struct Climb {
    up: VpnUp,
    /// The VRFs and the routes that the test asks for, as text.
    scenario: String,
    /// Number of these routes: of all VRFs, and of each.
    asked: u64,
    per_vrf: u64,
    /// Routes of all VRFs that the router held.
    held: u64,
    /// Time until the routes were passed on, summed over the steps, in s; `None` if a step failed in this.
    advertise_s: Option<f64>,
    /// Time until the routes were forwarded to, summed over the steps, in s; `None` if a step failed in this.
    forward_s: Option<f64>,
    /// Uncertainty of `forward_s`, in s.
    unsure_s: f64,
    /// True if the tester needed most of the time of a step.
    tester_late: bool,
    /// The last traffic to every route.
    check: Option<TrialResult>,
    failed: Option<Failed>,
}

/// A step that the router did not hold.
struct Failed {
    /// Its routes of each site.
    part: Range<u32>,
    /// Number of routes in all VRFs up to and including this step.
    routes: u64,
    why: String,
}

/// Divides `all` routes of each site into nearly equal parts: `steps` of them, or as many as there are routes.
fn parts(all: u32, steps: u32) -> Vec<Range<u32>> {
    let steps = steps.min(all).max(1);
    let end = |step: u32| (u64::from(all) * u64::from(step) / u64::from(steps)) as u32;
    (0..steps).map(|step| end(step)..end(step + 1)).collect()
}

/// Advertises the routes step by step, and ends with the first step whose routes the router does not hold.
fn climb(
    bed: &mut dyn Testbed,
    params: &Params,
    vpn: &mut Vpn,
    up: VpnUp,
    outcome: &mut Outcome,
) -> Result<Climb, TestError> {
    let parts = parts(vpn.per_site, STEPS.get(params));
    let many = parts.len() > 1;
    let ipv6 = if vpn.families.contains(&Family::Ipv6) { format!(" ({})", vpn.family_names()) } else { String::new() };
    let mesh = if vpn.mesh == Mesh::Partial { ", partial mesh" } else { "" };
    let mut climb = Climb {
        up,
        scenario: format!("{} VRFs with {} routes each{ipv6}{mesh}", vpn.count(), vpn.per_vrf()),
        asked: vpn.all_routes(),
        per_vrf: vpn.per_vrf(),
        held: 0,
        advertise_s: Some(0.0),
        forward_s: Some(0.0),
        unsure_s: 0.0,
        tester_late: false,
        check: None,
        failed: None,
    };
    if many {
        BY_STEP.begin(outcome);
        PLOTS.begin(outcome);
    }
    let mut before = bed.vpns()?.seen();
    for (step, part) in (1..).zip(parts) {
        let changed = vpn.change(bed, params, up, Change::Advertise, part.clone());
        let routes = vpn.all_routes();
        let ready = match changed {
            Ok(ready) => ready,
            Err(error) => {
                after_error(outcome, &climb, (step, routes), &error);
                return Err(error);
            }
        };
        let why = ready.complaint();
        let now = bed.vpns()?.seen();
        let cause = why.as_ref().map(|_| cause_of(&ready, &before, &now));
        before = now;
        let Ready { seen, forwarded_s, unsure_s, .. } = &ready;
        let late = seen.tester_late_s > 0.0 && seen.tester_late_s * 2.0 > seen.last_change_s;
        climb.tester_late |= late;
        let passed_on_s = seen.complete().then_some(seen.last_change_s);
        climb.advertise_s = climb.advertise_s.zip(passed_on_s).map(|(before, own)| before + own);
        climb.forward_s = climb.forward_s.zip(*forwarded_s).map(|(before, own)| before + own);
        climb.unsure_s += unsure_s;
        if many {
            let memory = memory_mib(&bed.memory());
            let marks = why.clone().into_iter().chain(late.then(|| "tester-limited".to_owned()));
            let row = row_of((step, routes), Some(&ready), memory, cause);
            BY_STEP.add(outcome, row, ready.check.as_ref().map(|check| check.trial), marks);
            PLOTS.add(outcome, vpn.family_names(), routes as f64, *forwarded_s, memory);
        }
        climb.check = ready.check.or(climb.check);
        match why.zip(cause) {
            None => climb.held = routes,
            Some((why, cause)) => {
                let [held, asked, tried] = [climb.held, climb.asked, routes].map(thousands);
                let whole = format!("{held} of {asked} routes held, {tried} did not ({cause}): {why}");
                let why = if many { whole } else { why };
                climb.failed = Some(Failed { part, routes, why });
                break;
            }
        }
    }
    Ok(climb)
}

/// What failed in a step, in a few words.
fn cause_of(ready: &Ready, before: &VpnRoutesSeen, now: &VpnRoutesSeen) -> &'static str {
    let wrong_place = ready.check.as_ref().is_some_and(|check| !check.misdelivered.is_empty());
    if (now.sessions_lost, now.bfd_lost) != (before.sessions_lost, before.bfd_lost) {
        "session lost"
    } else if ready.seen.present < ready.seen.expected {
        "routes missing"
    } else if !ready.seen.complete() {
        "wrong routes"
    } else if wrong_place {
        "frames in a wrong place"
    } else {
        "frames lost"
    }
}

/// The row of a step with its number and its routes. `ready` is absent if the step ended with an error.
fn row_of((step, routes): (u64, u64), ready: Option<&Ready>, memory_mib: Option<f64>, cause: Option<&str>) -> StepRow {
    let seen = ready.map(|ready| &ready.seen).filter(|seen| seen.complete());
    let check = ready.and_then(|ready| ready.check.as_ref());
    let forward_s = ready.and_then(|ready| ready.forwarded_s);
    StepRow {
        step,
        routes,
        advertise_s: seen.map(|seen| seen.last_change_s),
        forward_s,
        exact_s: forward_s.and(ready).map(|ready| ready.unsure_s),
        offered: check.map(TrialResult::offered),
        lost: check.map(TrialResult::lost),
        memory_mib,
        cause: cause.map(str::to_owned),
    }
}

/// Reports the routes that the router held before an error ended a step.
fn after_error(outcome: &mut Outcome, climb: &Climb, (step, routes): (u64, u64), error: &TestError) {
    if climb.held == 0 {
        return;
    }
    let [held, asked] = [climb.held, climb.asked].map(thousands);
    note(outcome, format!("{}: {held} of {asked} routes held; the next step ended: {error}.", climb.scenario));
    let figure = routes_held(climb);
    match error {
        TestError::Interrupted | TestError::Store(_) => {}
        TestError::DutDied(_) => {
            let row = row_of((step, routes), None, None, Some("router died"));
            BY_STEP.add(outcome, row, [], [error.to_string()]);
            let resolution = one_step(climb, routes);
            outcome.ranks.push(RankFigure { resolution, ..figure });
        }
        // The router may hold more.
        other => outcome.ranks.push(proven(figure, &[other.reason()])),
    }
}

fn routes_held(climb: &Climb) -> RankFigure {
    ROUTES.of(&[], format!("Routes held, {}", climb.scenario), Some(climb.held as f64))
}

/// A step to `routes` as a share of the routes that the router held.
fn one_step(climb: &Climb, routes: u64) -> f64 {
    if climb.held == 0 { 0.0 } else { (routes - climb.held) as f64 / climb.held as f64 }
}

/// Withdraws the routes that the router did not hold, so that the others can be measured. Returns why nothing can be measured.
fn fall_back(
    bed: &mut dyn Testbed,
    params: &Params,
    vpn: &mut Vpn,
    climb: &Climb,
) -> Result<Option<String>, TestError> {
    let Some(Failed { part, why, .. }) = &climb.failed else { return Ok(None) };
    if climb.held == 0 {
        return Ok(Some(why.clone()));
    }
    let ready = vpn.change(bed, params, climb.up, Change::Withdraw, part.clone())?;
    Ok(ready.complaint().map(|also| format!("{why}; not measured with fewer, because after their withdrawal {also}")))
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
    climb: &Climb,
    outcome: &mut Outcome,
) -> Result<(), TestError> {
    let (mut found, mut unmeasured) = (Found::default(), None);
    // A router that mixes VRFs up has no throughput.
    let searched = match fall_back(bed, params, vpn, climb) {
        Ok(None) => load(bed, params, vpn, &mut found, outcome),
        Ok(why) => {
            unmeasured = why;
            Ok(())
        }
        Err(error) => Err(error),
    };
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
    if let Some(why) = unmeasured.as_ref().or(climb.failed.as_ref().map(|failed| &failed.why)) {
        marks.push(why.clone());
        note(outcome, format!("{} VRFs: {why}.", vpn.count()));
    }
    if climb.failed.is_some() && clean.is_some() {
        let text = format!("throughput and latency with {} routes", thousands(climb.held));
        note(outcome, format!("{} VRFs: {text}.", vpn.count()));
        marks.push(text);
    }
    let row = ScaleRow {
        vrfs: vpn.count().into(),
        families: vpn.family_names(),
        mesh: vpn.mesh.to_string(),
        routes_per_vrf: climb.per_vrf,
        routes: climb.asked,
        core_s: climb.up.core_s,
        sessions_s: climb.up.sessions_s,
        advertise_s: climb.advertise_s,
        forward_s: climb.forward_s,
        exact_s: climb.forward_s.map(|_| climb.unsure_s),
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
    let trials = result.or(climb.check.as_ref()).map(|result| result.trial);
    let unmeasured = unmeasured.map(|why| Missing { why, by: Blame::Dut });
    rank(outcome, &row, &found, climb, unmeasured, searched.as_ref().err());
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

/// Reports the figures. Throughput and latency that were not measured because the router failed before, say so: `unmeasured`. `ended`: the error
/// that ended the search or the traffic after it.
fn rank(
    outcome: &mut Outcome,
    row: &ScaleRow,
    found: &Found,
    climb: &Climb,
    unmeasured: Option<Missing>,
    ended: Option<&TestError>,
) {
    let scenario = &climb.scenario;
    // The test ends at its own number of routes.
    outcome.ranks.push(RankFigure {
        capped: climb.failed.is_none(),
        resolution: climb.failed.as_ref().map_or(0.0, |failed| one_step(climb, failed.routes)),
        ..routes_held(climb)
    });
    let without_load = match ended {
        Some(error) => missing_after(error),
        None => unmeasured.or_else(|| found.missing.clone()),
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
    let resolution = row.forward_s.map_or(0.0, |time| climb.unsure_s / time.max(1e-9));
    let time = READY_S.of(&[], format!("Time until all routes are forwarded to, {scenario}"), row.forward_s);
    let missing = climb.failed.as_ref().map(|failed| Missing { why: failed.why.clone(), by: Blame::Dut });
    outcome.ranks.push(RankFigure { resolution, tester_limited: climb.tester_late, missing, ..time });
    outcome.ranks.push(LEAKED_FRAMES.of(&[], format!("Frames in another VRF, {scenario}"), Some(row.leaked as f64)));
    let routes = LEAKED_ROUTES.of(&[], format!("Routes in another VRF, {scenario}"), Some(row.leaked_routes as f64));
    outcome.ranks.push(routes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::trial::Misdelivered;

    fn held(held: u64) -> Climb {
        Climb {
            up: VpnUp::default(),
            scenario: "7 VRFs".into(),
            asked: 3_000,
            per_vrf: 500,
            held,
            advertise_s: None,
            forward_s: None,
            unsure_s: 0.0,
            tester_late: false,
            check: None,
            failed: None,
        }
    }

    #[test]
    fn the_parts_are_nearly_equal_and_none_is_empty() {
        let ends = |all, steps| parts(all, steps).into_iter().map(|part| (part.start, part.end)).collect::<Vec<_>>();
        assert_eq!(ends(20, 4), [(0, 5), (5, 10), (10, 15), (15, 20)]);
        assert_eq!(ends(5, 3), [(0, 1), (1, 3), (3, 5)]);
        assert_eq!(ends(2, 9), [(0, 1), (1, 2)]);
        assert_eq!([ends(7, 1), ends(7, 0), ends(0, 3)], [[(0, 7)], [(0, 7)], [(0, 0)]]);
    }

    #[test]
    fn what_failed_in_a_step_is_named() {
        let ready = |seen: &VpnRoutesSeen, misdelivered| Ready {
            up: VpnUp::default(),
            seen: seen.clone(),
            forwarded_s: None,
            unsure_s: 0.0,
            check: Some(TrialResult { misdelivered, ..TrialResult::default() }),
        };
        let before = VpnRoutesSeen { expected: 9, present: 9, sessions_lost: 2, ..VpnRoutesSeen::default() };
        let cause = |seen: VpnRoutesSeen, wrong| cause_of(&ready(&seen, wrong), &before, &seen);
        let few = VpnRoutesSeen { present: 8, cause: "of 9 routes 1 missing".into(), ..before.clone() };
        assert_eq!(cause(VpnRoutesSeen { sessions_lost: 3, ..few.clone() }, vec![]), "session lost");
        assert_eq!(cause(VpnRoutesSeen { bfd_lost: 1, ..before.clone() }, vec![]), "session lost");
        assert_eq!(cause(few, vec![]), "routes missing");
        assert_eq!(cause(VpnRoutesSeen { cause: "1 not withdrawn".into(), ..before.clone() }, vec![]), "wrong routes");
        let wrong = Misdelivered { flow: 0, port: 1, vlan: Some(101), label: None, frames: 3 };
        assert_eq!(cause(before.clone(), vec![wrong]), "frames in a wrong place");
        assert_eq!(cause(before.clone(), vec![]), "frames lost");
    }

    #[test]
    fn routes_that_held_before_an_error_are_reported() {
        let after = |climb: &Climb, error: &TestError| {
            let mut outcome = Outcome::default();
            after_error(&mut outcome, climb, (3, 3_000), error);
            outcome
        };
        let died = TestError::DutDied("gone".into());
        let outcome = after(&held(2_000), &died);
        let figure = &outcome.ranks[0];
        assert_eq!((figure.value, figure.resolution, figure.tester_limited), (Some(2_000.0), 0.5, false));
        let row = row_of((3, 3_000), None, None, Some("router died"));
        assert_eq!(BY_STEP.rows(&outcome.tables), [row]);
        assert!(outcome.notes[0].starts_with("7 VRFs: 2,000 of 3,000 routes held; the next step ended: "));
        let outcome = after(&held(2_000), &TestError::Unfit(vec!["late".into()]));
        assert_eq!((outcome.ranks[0].value, outcome.ranks[0].tester_limited), (Some(2_000.0), true));
        assert!(after(&held(2_000), &TestError::Interrupted).ranks.is_empty(), "the end was wanted");
        assert_eq!(after(&held(0), &died), Outcome::default(), "no step held");
    }

    #[test]
    fn an_unfit_tester_is_not_the_routers_fault_and_a_wanted_end_nobodys() {
        let by = |error: &TestError| missing_after(error).map(|missing| (missing.why, missing.by));
        let unfit = TestError::Unfit(vec!["late".into(), "busy".into()]);
        assert_eq!(by(&unfit), Some(("late; busy".into(), Blame::Spoilt)));
        assert_eq!(by(&TestError::DutDied("gone".into())).map(|(_, by)| by), Some(Blame::Dut));
        assert_eq!((by(&TestError::Interrupted), by(&TestError::Store("full".into()))), (None, None));
    }
}
