//! Simultaneous RIB and FIB capacity: routes are advertised in steps and verified at a second peer; then traffic to
//! every route must pass without loss (the MPLS VPN test of 2004 with 1,000,000 IPv4 and 500,000 IPv6 routes; no RFC
//! defines this test).

use crate::figure::of_family;
use crate::kit::prelude::*;
use crate::route_outage::{UnreachableRow, list_unreachable};
use crate::route_steps::{self, StepPlots, Steps};
use crate::route_tests::{self, Case, complaint, for_each_family, thousands};
use crate::route_traffic::{self, RouteTrial, smallest};
use crate::routes_sent;

/// The test.
pub struct RibFibCapacity;

const STEP: Param<u32> = Param::new("step", "50000", "100000", "routes added per step");
const MAX_ROUTES: Param<u32> =
    Param::new("max_routes", "100000", "1000000", "number of routes at which the test ends in any case");
const FRAMES_PER_ROUTE: Param<u32> = Param::new("frames_per_route", "2", "5", "frames to each route after each step");
const RATE: Param<FrameRate> =
    Param::fixed("rate", "50 kfps", "load of the sending port, below the router's throughput");
const INSTALL: Param<Duration> = Param::new(
    "install",
    "10 s",
    "60 s",
    "time for the forwarding plane to follow the routing table; if frames are lost, the traffic is repeated until this time ends",
);

const HELD: [FigureSpec; 2] = [
    FigureSpec::higher(
        "rib_fib_ipv4_routes",
        "routes",
        "IPv4 routes that the router holds and forwards to without loss",
    ),
    FigureSpec::higher(
        "rib_fib_ipv6_routes",
        "routes",
        "IPv6 routes that the router holds and forwards to without loss",
    ),
];
const TIME: [FigureSpec; 2] = [
    FigureSpec::lower(
        "rib_fib_time_ipv4_s",
        "s",
        "seconds until the router had advertised all IPv4 routes and forwarded to them",
    ),
    FigureSpec::lower(
        "rib_fib_time_ipv6_s",
        "s",
        "seconds until the router had advertised all IPv6 routes and forwarded to them",
    ),
];

static SPEC: TestSpec = TestSpec {
    name: "rib_fib_capacity",
    title: "RIB and FIB capacity",
    summary: "how many routes the router holds and forwards to without losing a frame, checked for every single route",
    source: "MPLS VPN test of 2004: 1,000,000 IPv4 and 500,000 IPv6 routes; terms of RFC 3222",
    needs: route_traffic::NEEDS,
    params: params![
        &route_tests::TABLES,
        &[STEP.spec(), MAX_ROUTES.spec(), FRAMES_PER_ROUTE.spec(), RATE.spec(), INSTALL.spec(), DRAIN.spec()],
        &route_tests::SESSIONS,
    ],
    figures: &[HELD[0].shape(), HELD[1].shape(), TIME[0].shape(), TIME[1].shape()],
    tables: &[TABLE.shape(), UNREACHABLE.shape(), routes_sent::SHAPE],
};

columns! {
    /// One step.
    struct StepRow {
        family: Family,
        routes: u64,
        verified: u64 = "Verified at peer 2",
        fib: Option<u64> = "In the forwarding plane",
        advertise_s: Option<f64> = "Re-advertised after" ["s"],
        forward_s: Option<f64> = "Forwarded to after" ["s"],
        exact_s: Option<f64> = "Uncertainty" ["s"],
        offered: Option<u64> ["frames"],
        lost: Option<u64> ["frames"],
        stray: Option<u64> = "Arrived at a wrong port" ["frames"],
        unreachable: Option<u64> = "Unreachable routes",
        memory_mib: Option<f64> = "DUT memory" ["MiB"],
    }
}

const TABLE: TableSpec<StepRow> = TableSpec::new("rib_fib_capacity", TITLE);
const UNREACHABLE: TableSpec<UnreachableRow> = TableSpec::new("rib_fib_capacity_unreachable", "Unreachable routes");
/// Minimum number of trials before giving up a step. Routes that lost frames by chance in one trial receive them in
/// another.
const TRIES: u32 = 3;
const TITLE: &str = "RIB and FIB capacity";
const PLOTS: StepPlots = StepPlots {
    times: "rib_fib_capacity_time",
    time_of: "time until the router forwards to all, s",
    memory: "rib_fib_capacity_memory",
};

impl Method for RibFibCapacity {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let (most, step) = (f64::from(MAX_ROUTES.get(params)), f64::from(STEP.get(params)));
        let steps = (most / step).ceil();
        // Each step sends traffic to all routes so far.
        let frames = f64::from(FRAMES_PER_ROUTE.get(params)) * step * steps * (steps + 1.0) / 2.0;
        let few = FRAMES_PER_ROUTE.get(params);
        Plan::by_family(&SPEC, params)
            // One trial for each step, if the router accepts all routes and forwards to them immediately.
            .counting(TrialCount::about(steps as usize))
            .taking(most / 25_000.0 + frames / RATE.get(params).pps() + 2.0 * steps)
            .deviating((few < 5).then(|| format!("{few} frames to each route instead of 5")))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        PLOTS.begin(outcome);
        note(
            outcome,
            "A step is done when a second peer has every route and frames to every route so far arrive at the right port without loss. 'Forwarded \
             to after' counts from the step's first advertisement to the start of the first traffic without loss; if earlier traffic had loss, \
             the true time may be earlier by up to 'Uncertainty'.",
        );
        for_each_family(bed, params, outcome, |bed, family, outcome| climb(bed, family, params, outcome))
    }
}

fn climb(bed: &mut dyn Testbed, family: Family, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
    let case = Case::new(bed, family, params, 2, MAX_ROUTES.get(params))?;
    let (observer, origin) = (case.peers[0], case.peers[1]);
    let rate = RATE.get(params);
    let frames_per_route = f64::from(FRAMES_PER_ROUTE.get(params));
    let install_s = INSTALL.seconds(params);
    let steps = Steps::begin(bed, params, case, (origin, observer), STEP.get(params))?;
    let (watch, most, case) = (steps.watch, steps.most, &steps.case);
    let (mut capacity, mut elapsed_s, mut unsure_s, mut stopped, mut limited) = (0, 0.0, 0.0, None, false);
    while capacity < most && stopped.is_none() {
        let part = steps.part(bed, TITLE, capacity);
        let begun = bed.routing()?.now_s();
        let settled = steps.advertise(bed, params, &part)?;
        let late = route_tests::tester_late(&settled, settled.last_change_s);
        limited |= late && settled.complete;
        let mut forwarded: Option<(f64, TrialResult)> = None;
        let mut first_at = None;
        let mut unreachable: Option<Vec<u32>> = None;
        if !settled.complete {
            stopped = Some(complaint(bed.routing()?, watch, &settled));
        } else {
            let trial = RouteTrial {
                purpose: steps.title(TITLE, &part),
                size: smallest(family),
                streams: vec![case.stream(observer, origin, 0..part.end)],
                rate,
                duration_s: f64::from(part.end) * frames_per_route / rate.pps(),
                bin_s: None,
                per_route: true,
                changes: Vec::new(),
            };
            let deadline = bed.routing()?.now_s() + install_s;
            for tries in 1.. {
                let mut at = begun;
                // A spoilt attempt is repeated, and only the last one counts.
                let ran = route_traffic::run(bed, params, &trial, |bed| {
                    at = bed.routing()?.now_s();
                    first_at.get_or_insert(at - begun);
                    Ok(())
                });
                let result = match ran {
                    Err(TestError::Unfit(why)) => {
                        let held = of_family(&HELD, family).of(&[], held_title(family), Some(f64::from(capacity)));
                        outcome.ranks.push(proven(held, &why));
                        return Err(TestError::Unfit(why));
                    }
                    other => other?,
                };
                let clean = result.lost() == 0 && result.sum(|g| g.stray) == 0;
                let mut never = silent(&result);
                if let Some(before) = &unreachable {
                    // Frames are also lost for other reasons, but hardly ever for the same routes in every trial.
                    never.retain(|route| before.binary_search(route).is_ok());
                }
                let reached = never.is_empty();
                unreachable = Some(never);
                forwarded = Some((at - begun, result));
                if clean {
                    break;
                }
                let lost = route_tests::losses(bed.routing()?, &[observer, origin]);
                if !lost.is_empty() {
                    stopped = Some(lost.join(", "));
                    break;
                }
                if tries >= TRIES && bed.routing()?.now_s() > deadline {
                    stopped = Some(match reached {
                        true => "frames are lost, but the router forwarded to every route".into(),
                        false => "frames are lost, to some routes always".into(),
                    });
                    break;
                }
            }
        }
        let memory = route_steps::memory(bed)?;
        let routing = bed.routing()?;
        let verified = routing.verified(watch);
        let fib = routing.dut().fib_routes(family);
        let result = forwarded.as_ref().map(|(_, result)| result);
        let time_s = forwarded.as_ref().filter(|_| stopped.is_none()).map(|(at, _)| *at);
        // An earlier loss may have been chance or due to a missing route, so the true time lies between the first and
        // the last trial.
        let exact_s = time_s.zip(first_at).map(|(at, first)| at - first);
        if stopped.is_none() {
            capacity = part.end;
            elapsed_s += time_s.unwrap_or(0.0);
            unsure_s += exact_s.unwrap_or(0.0);
        }
        let mut marks = Vec::new();
        if late && settled.complete {
            marks.push("tester-limited".into());
        }
        if let Some(why) = &stopped {
            marks.push(why.clone());
            list_unreachable(outcome, &UNREACHABLE, &case.all, unreachable.iter().flatten().copied());
        }
        TABLE.add(
            outcome,
            StepRow {
                family,
                routes: part.end.into(),
                verified: verified.present,
                fib,
                advertise_s: settled.complete.then_some(settled.last_change_s),
                forward_s: time_s,
                exact_s,
                offered: result.map(TrialResult::offered),
                lost: result.map(TrialResult::lost),
                stray: result.map(|r| r.sum(|g| g.stray)),
                unreachable: unreachable.map(|never| never.len() as u64),
                memory_mib: memory,
            },
            result.map(|r| r.trial),
            marks,
        );
        PLOTS.add(outcome, family, part.end, time_s, memory);
    }
    match stopped {
        Some(why) => note(outcome, format!("{family}: stopped after {} routes: {why}", thousands(capacity.into()))),
        None => route_steps::note_all_done(outcome, family, most),
    }
    rank(outcome, family, capacity, (capacity == most).then_some((elapsed_s, unsure_s)), limited);
    Ok(())
}

/// Routes to which frames were sent but none arrived, in order.
fn silent(result: &TrialResult) -> Vec<u32> {
    let Some(counts) = result.destinations.first() else { return Vec::new() };
    let pairs = counts.offered.iter().zip(&counts.received).enumerate();
    pairs.filter(|(_, (offered, received))| **offered > 0 && **received == 0).map(|(i, _)| i as u32).collect()
}

fn held_title(family: Family) -> String {
    format!("RIB and FIB capacity, {family}")
}

/// A capacity after which the tester could run no valid trial: the steps so far are a lower bound.
pub(crate) fn proven(held: RankFigure, why: &[String]) -> RankFigure {
    match held.value {
        Some(value) if value > 0.0 => RankFigure { tester_limited: true, ..held },
        _ => held.spoilt(why.join("; ")),
    }
}

/// `time_s`: the time of all steps, and the amount by which it may be too long.
fn rank(outcome: &mut Outcome, family: Family, capacity: u32, time_s: Option<(f64, f64)>, limited: bool) {
    let whole = time_s.is_some();
    let routes = of_family(&HELD, family).of(&[], held_title(family), Some(f64::from(capacity)));
    // If the test ended at its own maximum, the router may hold more routes.
    outcome.ranks.push(RankFigure { capped: whole, ..routes });
    let title = format!("Time until the router forwarded to every route, {family}");
    outcome.ranks.push(RankFigure {
        tester_limited: limited,
        resolution: time_s.map_or(0.0, |(time, unsure)| unsure / time),
        ..of_family(&TIME, family).of(&[], title, time_s.map(|(time, _)| time))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::outcome::Blame;

    #[test]
    fn steps_before_an_unfit_tester_are_a_lower_bound() {
        let after = |capacity| proven(HELD[0].of(&[], "", Some(capacity)), &["late".to_owned(), "busy".to_owned()]);
        let some = after(500.0);
        assert_eq!((some.value, some.tester_limited, some.missing), (Some(500.0), true, None));
        let none = after(0.0);
        let missing = none.missing.expect("a figure without a step has a cause");
        assert_eq!((none.value, missing.why.as_str(), missing.by), (None, "late; busy", Blame::Spoilt));
    }
}
