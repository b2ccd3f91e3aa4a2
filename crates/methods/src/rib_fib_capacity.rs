//! Simultaneous RIB and FIB capacity: in steps, routes are advertised, verified at a second peer, and then traffic goes to every one of
//! them and none of it may be lost (the MPLS VPN test of 2004 with 1,000,000 IPv4 and 500,000 IPv6 routes; no RFC defines it).

use crate::Method;
use crate::parameters::{self, count, seconds};
use crate::report::{note, row, table};
use crate::route_outage::list_unreachable;
use crate::route_steps::{self, StepPlots, Steps};
use crate::route_tests::{self, complaint, for_each_family, one_per_port, routes, thousands};
use crate::route_traffic::{self, RouteTrial, Stream, smallest};
use crate::testbed::{TestError, Testbed};
use drophammer_model::outcome::{Outcome, RankFigure, Row};
use drophammer_model::quantity::FrameRate;
use drophammer_model::registry::{FigureSpec, ParamKind, ParamSpec, TestSpec};
use drophammer_model::suite::Params;
use drophammer_model::trial::{Family, TrialResult};
use std::time::Duration;

/// The test.
pub struct RibFibCapacity;

static SPEC: TestSpec = TestSpec {
    name: "rib_fib_capacity",
    title: "RIB and FIB capacity",
    summary: "how many routes the router holds and forwards to, every single one, without a lost frame",
    source: "MPLS VPN test of 2004: 1,000,000 IPv4 and 500,000 IPv6 routes; terms of RFC 3222",
    needs: route_traffic::NEEDS,
    params: &parameters::joined::<11>(&[
        &[
            route_tests::FAMILIES,
            route_tests::TABLE,
            ParamSpec::new("step", ParamKind::Count, "50000", "100000", "routes added per step"),
            ParamSpec::new(
                "max_routes",
                ParamKind::Count,
                "100000",
                "1000000",
                "routes at which the test ends in any case",
            ),
            ParamSpec::new("frames_per_route", ParamKind::Count, "2", "5", "frames to each route after each step"),
            ParamSpec::new(
                "rate",
                ParamKind::Rate,
                "50 kfps",
                "50 kfps",
                "load of the sending port, below the router's throughput",
            ),
            ParamSpec::new(
                "install",
                ParamKind::Duration,
                "10 s",
                "60 s",
                "time for the forwarding plane to follow the routing table; the traffic is repeated until then if frames are lost",
            ),
            parameters::DRAIN,
        ],
        &route_tests::SESSIONS,
    ]),
    figures: &[
        FigureSpec { key: "rib_fib_ipv4_routes", help: "IPv4 routes held and forwarded to without loss" },
        FigureSpec { key: "rib_fib_ipv6_routes", help: "the same for IPv6" },
        FigureSpec {
            key: "rib_fib_time_ipv4_s",
            help: "seconds until all IPv4 routes were advertised and forwarded to",
        },
        FigureSpec { key: "rib_fib_time_ipv6_s", help: "the same for IPv6" },
    ],
};

const TABLE: &str = "rib_fib_capacity";
/// Trials of a step until it is given up, at least: which routes lost their frames by chance shows in the others.
const TRIES: u32 = 3;
const TITLE: &str = "RIB and FIB capacity";
const PLOTS: StepPlots = StepPlots {
    times: "rib_fib_capacity_time",
    time_of: "time until all are forwarded to, s",
    memory: "rib_fib_capacity_memory",
};

impl Method for RibFibCapacity {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        prepare(outcome);
        let mut notes = Vec::new();
        let result = for_each_family(bed, params, &mut notes, |bed, family, _| climb(bed, family, params, outcome));
        notes.into_iter().for_each(|text| note(outcome, text));
        result
    }

    fn estimate(&self, params: &Params) -> Duration {
        let (most, step) = (f64::from(routes(params, "max_routes")), f64::from(routes(params, "step")));
        let rate = params.rate("rate").map_or(50e3, |r| r.pps());
        let steps = (most / step).ceil();
        // Each step's traffic goes to all routes so far.
        let frames = f64::from(count(params, "frames_per_route")) * step * steps * (steps + 1.0) / 2.0;
        let families = route_tests::families(params).len() as f64;
        Duration::from_secs_f64((most / 25_000.0 + frames / rate + 2.0 * steps) * families)
    }

    fn deviations(&self, params: &Params) -> Vec<String> {
        let frames = count(params, "frames_per_route");
        (frames < 5).then(|| format!("{frames} frames to each route instead of 5")).into_iter().collect()
    }
}

fn prepare(outcome: &mut Outcome) {
    table(
        outcome,
        TABLE,
        "RIB and FIB capacity",
        &[
            ("family", "Family", ""),
            ("routes", "Routes", ""),
            ("verified", "Verified at peer 2", ""),
            ("fib", "In the forwarding plane", ""),
            ("advertise_s", "Passed on after", "s"),
            ("forward_s", "Forwarded to after", "s"),
            ("exact_s", "Exact to", "s"),
            ("offered", "Offered", "frames"),
            ("lost", "Lost", "frames"),
            ("stray", "At a wrong port", "frames"),
            ("unreachable", "Unreachable routes", ""),
            ("memory_mib", "DUT memory", "MiB"),
        ],
    );
    PLOTS.prepare(outcome);
    note(
        outcome,
        "A step is done when a second peer has every route and frames to every route so far arrive at the right port, none lost. 'Forwarded \
         to after' counts from the step's first advertisement to the start of the first traffic without a loss; after traffic with one \
         it may have been as much earlier as 'Exact to' says.",
    );
}

fn climb(bed: &mut dyn Testbed, family: Family, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
    let peers = one_per_port(bed, family, 2)?;
    let (observer, origin) = (peers[0], peers[1]);
    let rate = params.rate("rate").unwrap_or(FrameRate(50e3));
    let frames_per_route = f64::from(count(params, "frames_per_route"));
    let install_s = seconds(params, "install", 60.0);
    let steps = Steps::begin(bed, params, family, origin, observer)?;
    let (watch, most, all) = (steps.watch, steps.most, &steps.all);
    let ports: Vec<usize> = bed.routing()?.peers().iter().map(|p| p.port).collect();
    let (mut capacity, mut elapsed_s, mut unsure_s, mut stopped, mut limited) = (0, 0.0, 0.0, None, false);
    while capacity < most && stopped.is_none() {
        let part = steps.part(bed, TITLE, capacity);
        let begun = bed.routing()?.now_s();
        let settled = steps.tell(bed, params, &part)?;
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
                streams: vec![Stream {
                    group: family.to_string(),
                    from: ports[observer],
                    to: ports[origin],
                    also: Vec::new(),
                    routes: all.clone(),
                    part: 0..part.end,
                }],
                rate,
                duration_s: f64::from(part.end) * frames_per_route / rate.pps(),
                bin_s: None,
                per_route: true,
                changes: Vec::new(),
            };
            let deadline = bed.routing()?.now_s() + install_s;
            for tries in 1.. {
                let at = bed.routing()?.now_s();
                let result = route_traffic::run(bed, params, &trial, |_| Ok(()))?;
                let clean = result.lost() == 0 && result.sum(|g| g.stray) == 0;
                let mut never = silent(&result);
                if let Some(before) = &unreachable {
                    // Frames are lost for other reasons too, but hardly always those to the same routes.
                    never.retain(|route| before.binary_search(route).is_ok());
                }
                let reached = never.is_empty();
                unreachable = Some(never);
                first_at.get_or_insert(at - begun);
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
                        true => "frames are lost, but every route was forwarded to".into(),
                        false => "frames are lost, those to some routes always".into(),
                    });
                    break;
                }
            }
        }
        let memory = route_steps::memory(bed)?;
        let routing = bed.routing()?;
        let verified = routing.verified(watch);
        let fib = routing.dut_fib_routes(family);
        let result = forwarded.as_ref().map(|(_, result)| result);
        let time_s = forwarded.as_ref().filter(|_| stopped.is_none()).map(|(at, _)| *at);
        // What was lost before was lost by chance or for want of a route: the time is one between these two.
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
            list_unreachable(outcome, TABLE, all, unreachable.iter().flatten().copied());
        }
        row(
            outcome,
            TABLE,
            Row {
                cells: vec![
                    family.to_string().into(),
                    u64::from(part.end).into(),
                    verified.present.into(),
                    fib.into(),
                    settled.complete.then_some(settled.last_change_s).into(),
                    time_s.into(),
                    exact_s.into(),
                    result.map(TrialResult::offered).into(),
                    result.map(TrialResult::lost).into(),
                    result.map(|r| r.sum(|g| g.stray)).into(),
                    unreachable.map(|never| never.len() as u64).into(),
                    memory.into(),
                ],
                trials: result.map(|r| r.trial).into_iter().collect(),
                marks,
            },
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

/// Routes to which frames went and none came through, in their order.
fn silent(result: &TrialResult) -> Vec<u32> {
    let Some(counts) = result.destinations.first() else { return Vec::new() };
    let pairs = counts.offered.iter().zip(&counts.received).enumerate();
    pairs.filter(|(_, (offered, received))| **offered > 0 && **received == 0).map(|(i, _)| i as u32).collect()
}

/// `time_s`: of all steps, and what it may be too long by.
fn rank(outcome: &mut Outcome, family: Family, capacity: u32, time_s: Option<(f64, f64)>, limited: bool) {
    let name = family.to_string().to_lowercase();
    outcome.ranks.push(RankFigure {
        key: format!("rib_fib_{name}_routes"),
        title: format!("RIB and FIB capacity, {family}"),
        unit: "routes".into(),
        value: Some(f64::from(capacity)),
        higher_is_better: true,
        tester_limited: false,
        resolution: 0.0,
    });
    outcome.ranks.push(RankFigure {
        key: format!("rib_fib_time_{name}_s"),
        title: format!("Time until every route was forwarded to, {family}"),
        unit: "s".into(),
        value: time_s.map(|(time, _)| time),
        higher_is_better: false,
        tester_limited: limited,
        resolution: time_s.map_or(0.0, |(time, unsure)| unsure / time).max(0.05),
    });
}
