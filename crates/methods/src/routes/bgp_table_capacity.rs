//! BGP table capacity in steps: one emulated router advertises more and more routes, and another one verifies that the
//! DUT re-advertises each of them, until a route is missing (the core router test of 2001; no RFC defines this test).

use crate::attempts::Attempts;
use crate::figure::of_family;
use crate::kit::prelude::*;
use crate::route_steps::{self, StepPlots, Steps};
use crate::route_tests::{self, Case, PATIENCE, complaint, for_each_family, thousands};
use crate::routes_sent;
use drophammer_model::routes::AfiSafi;

/// The test.
pub struct BgpTableCapacity;

const STEP: Param<u32> = Param::fixed("step", "40000", "routes added per step");
const MAX_ROUTES: Param<u32> =
    Param::new("max_routes", "200000", "2400000", "number of routes at which the test ends in any case");
const HOLD: Param<Duration> = Param::new("hold", "1 s", "120 s", "how long the last full table must stay");

const CAPACITY: [FigureSpec; 2] = [
    FigureSpec::higher(
        "bgp_capacity_ipv4_routes",
        "routes",
        "IPv4 routes learned and re-advertised without a missing route",
    ),
    FigureSpec::higher(
        "bgp_capacity_ipv6_routes",
        "routes",
        "IPv6 routes learned and re-advertised without a missing route",
    ),
];
const LOAD_TIME: [FigureSpec; 2] = [
    FigureSpec::lower("bgp_load_ipv4_s", "s", "seconds for all IPv4 steps together, each to its last verified route"),
    FigureSpec::lower("bgp_load_ipv6_s", "s", "seconds for all IPv6 steps together, each to its last verified route"),
];

static SPEC: TestSpec = TestSpec {
    name: "bgp_table_capacity",
    title: "BGP table capacity",
    summary: "how many routes the router learns from one peer and re-advertises to another, every one verified",
    source: "core router test of 2001, in steps of 40,000 routes; terms of RFC 4098",
    needs: route_tests::NEEDS,
    params: params![&route_tests::TABLES, &[STEP.spec(), MAX_ROUTES.spec(), HOLD.spec()], &route_tests::SESSIONS,],
    figures: &[CAPACITY[0].shape(), CAPACITY[1].shape(), LOAD_TIME[0].shape(), LOAD_TIME[1].shape()],
    tables: &[TABLE.shape(), routes_sent::SHAPE],
};

columns! {
    /// One step.
    struct StepRow {
        family: Family,
        routes: u64,
        verified: u64 = "Verified at peer 2",
        missing: u64,
        wrong: u64 = "Wrong attributes",
        step_s: f64 = "Time for the step" ["s"],
        rate_rps: Option<f64> ["routes/s"],
        tester_s: Option<f64> = "Tester alone" ["s"],
        memory_mib: Option<f64> = "DUT memory" ["MiB"],
        cpu_s: Option<f64> = "DUT processor time" ["s"],
    }
}

const TABLE: TableSpec<StepRow> = TableSpec::new("bgp_table_capacity", "BGP table capacity");
const PLOTS: StepPlots = StepPlots {
    times: "bgp_table_capacity_time",
    time_of: "time to the last route at peer 2, s",
    memory: "bgp_table_capacity_memory",
};

impl Method for BgpTableCapacity {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        // Routers accept some tens of thousands of routes per second, and withdraw them about as fast. The full table
        // is held once.
        let (hold, families) = (HOLD.seconds(params), route_tests::families(params));
        let each_s = f64::from(MAX_ROUTES.get(params)) / 30_000.0 + (hold + 3.0) / families;
        let short = (hold < 120.0).then(|| format!("the full table is held for {hold} s instead of 120 s"));
        // The capacity of a router that holds all routes of the test remains unknown.
        let few = fewer(params, &MAX_ROUTES, "routes at most", 2_400_000, route_tests::CONFORMANT);
        Plan::by_family(&SPEC, params).taking(each_s).deviating(short).deviating(few)
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        PLOTS.begin(outcome);
        note(
            outcome,
            "A step ends when peer 2 has every route of peer 1 with the right AS path, next hop and attributes; the test ends after the first \
             step in which a route is missing. 'Tester alone' is the time that the tester needs to send and verify as many routes without a router.",
        );
        for_each_family(bed, params, outcome, |bed, family, outcome| climb(bed, family, params, outcome))
    }
}

/// Runs all steps, and repeats them if the host disturbed their times. The fastest attempt counts: a busy host only makes a
/// router slower.
fn climb(bed: &mut dyn Testbed, family: Family, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
    let mut attempts = Attempts::few(bed);
    let mut fastest: Option<(f64, Outcome)> = None;
    let mut repeated = Vec::new();
    let ended = loop {
        let mut attempt = outcome.clone();
        let Climb { elapsed_s, disturbed } = match attempt_to_climb(bed, family, params, &mut attempt) {
            Ok(climb) => climb,
            // A complete attempt must not hide that the router failed.
            Err(e @ (TestError::DutDied(_) | TestError::Failed(_))) => {
                fastest = Some((0.0, attempt));
                break Err(e);
            }
            Err(e) => {
                // An attempt that was stopped counts only if there is no complete one.
                fastest.get_or_insert((0.0, attempt));
                break Err(e);
            }
        };
        let last = disturbed.is_empty() || !attempts.again(bed, &disturbed, elapsed_s);
        if !last {
            repeated.push(format!("{family}: disturbed, so measured again: {}", disturbed.join("; ")));
        }
        if disturbed.is_empty() || fastest.as_ref().is_none_or(|(least, _)| elapsed_s < *least) {
            fastest = Some((elapsed_s, attempt));
        }
        if last {
            break Ok(());
        }
        if let Err(e) = bed.routing().and_then(|routing| routing.reset(PATIENCE.get(params))) {
            break Err(e);
        }
    };
    *outcome = fastest.map(|(_, outcome)| outcome).unwrap_or_default();
    outcome.notes.extend(repeated);
    ended
}

/// An attempt to run all steps.
struct Climb {
    /// Time of all complete steps, in seconds.
    elapsed_s: f64,
    /// Disturbances by the host during the attempt; empty if the router failed, because the host is no excuse for that.
    disturbed: Vec<String>,
}

fn attempt_to_climb(
    bed: &mut dyn Testbed,
    family: Family,
    params: &Params,
    outcome: &mut Outcome,
) -> Result<Climb, TestError> {
    let case = Case::new(bed, family, params, 2, MAX_ROUTES.get(params))?;
    let (origin, observer) = (case.peers[0], case.peers[1]);
    let steps = Steps::begin(bed, params, case, (origin, observer), STEP.get(params))?;
    let (watch, most) = (steps.watch, steps.most);
    let mut capacity = 0;
    let (mut elapsed_s, mut limited) = (0.0, false);
    let (mut failure, mut disturbed) = (None, Vec::new());
    while capacity < most && failure.is_none() {
        let part = steps.part(bed, "BGP table capacity", capacity);
        let cpu = bed.routing()?.dut().cpu_time();
        bed.routing()?.watch_host();
        let settled = steps.advertise(bed, params, &part)?;
        let held_up = bed.routing()?.disturbed();
        let memory = route_steps::memory(bed)?;
        let routing = bed.routing()?;
        let verified = routing.verified(watch);
        let time_s = settled.last_change_s;
        let cpu_s = cpu.zip(routing.dut().cpu_time()).map(|(a, b)| b.saturating_sub(a).as_secs_f64());
        let own =
            routing.ceiling(AfiSafi::unicast(family), part.len() as u32, steps.case.packing).map(|d| d.as_secs_f64());
        let slow = own.is_some_and(|own| own > route_tests::TESTER_LIMITED * time_s)
            || route_tests::tester_late(&settled, time_s);
        let complaint = complaint(routing, watch, &settled);
        let mut marks = Vec::new();
        if settled.complete {
            capacity = part.end;
            elapsed_s += time_s;
            limited |= slow;
            if slow {
                marks.push("tester-limited".into());
            }
            // The host cannot make a route go missing, so disturbances only matter for times.
            limited |= !held_up.is_empty();
            marks.extend(held_up.iter().cloned());
            disturbed.extend(held_up);
        } else {
            marks.push(complaint.clone());
            failure = Some(format!("{family}: stopped at {} routes: {complaint}", thousands(part.end.into())));
            let missing = routing.missing(watch, 5);
            if !missing.is_empty() {
                let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
                note(outcome, format!("{family}: among the missing routes: {}", missing.join(", ")));
            }
        }
        let rate_rps = route_tests::rate(part.len() as u64, time_s).filter(|_| settled.complete);
        TABLE.add(
            outcome,
            StepRow {
                family,
                routes: part.end.into(),
                verified: verified.present,
                missing: verified.missing,
                wrong: verified.wrong,
                step_s: time_s,
                rate_rps,
                tester_s: own,
                memory_mib: memory,
                cpu_s,
            },
            [],
            marks,
        );
        PLOTS.add(outcome, family, part.end, settled.complete.then_some(time_s), memory);
    }
    let stayed = if failure.is_none() { hold(bed, params, watch, &[origin, observer], most)? } else { None };
    if let Some(why) = &stayed {
        note(outcome, format!("{family}: the table was complete but did not stay complete: {why}"));
    }
    if let Some(failure) = &failure {
        note(outcome, failure.clone());
    } else if stayed.is_none() {
        route_steps::note_all_done(outcome, family, most);
    }
    rank(outcome, family, stayed.is_none().then_some(capacity), elapsed_s, capacity == most, limited);
    let failed = failure.is_some() || stayed.is_some();
    Ok(Climb { elapsed_s, disturbed: if failed { Vec::new() } else { disturbed } })
}

/// Waits for the time that the full table must stay. Returns the reason if it did not stay.
fn hold(
    bed: &mut dyn Testbed,
    params: &Params,
    watch: usize,
    peers: &[usize],
    routes: u32,
) -> Result<Option<String>, TestError> {
    bed.settle(HOLD.get(params))?;
    let routing = bed.routing()?;
    let verified = routing.verified(watch);
    let lost: Vec<String> = peers
        .iter()
        .map(|peer| (routing.peers()[*peer].name.clone(), routing.session(*peer)))
        // A session that went down and came back did not stay up either.
        .filter(|(_, session)| !session.established || session.losses > 0)
        .map(|(name, session)| format!("the session of {name} ended: {}", session.cause))
        .collect();
    if !lost.is_empty() {
        return Ok(Some(lost.join("; ")));
    }
    let gone = u64::from(routes) - verified.present;
    Ok((gone > 0).then(|| format!("{} routes were withdrawn or changed", thousands(gone))))
}

fn rank(outcome: &mut Outcome, family: Family, capacity: Option<u32>, elapsed_s: f64, whole: bool, limited: bool) {
    let title = format!("BGP table capacity, {family}");
    let routes = of_family(&CAPACITY, family).of(&[], title, capacity.map(f64::from));
    // If the test ended at its own maximum, the router may hold more routes.
    outcome.ranks.push(RankFigure { capped: whole, ..routes });
    // Times for tables of different sizes are not comparable.
    let value = (whole && capacity.is_some()).then_some(elapsed_s);
    let title = format!("Time to learn and re-advertise the table, {family}");
    let time = of_family(&LOAD_TIME, family).of(&[], title, value);
    let why = "the table did not become complete, or did not stay complete";
    outcome.ranks.push(RankFigure { tester_limited: limited, ..time.because(why) });
}
