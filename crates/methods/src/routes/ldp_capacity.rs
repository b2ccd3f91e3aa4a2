//! LDP capacity: a P router advertises labels for more and more prefixes, and packets with the DUT's label for each of them must leave
//! with the label of the P router (terms of RFC 5036; no RFC defines this test).

use crate::igp_traffic::{IgpCase, is_own_label, nulls};
use crate::kit::prelude::*;
use crate::rib_fib_capacity::proven;
use crate::route_outage::{UnreachableRow, list_unreachable};
use crate::route_steps::StepPlots;
use crate::route_tests::{self, ESTABLISH, PATIENCE, memory_mib, thousands};
use crate::routing::Change;
use drophammer_model::label_edge::CoreProtocol;
use drophammer_model::traffic::Deviation;

/// The test.
pub struct LdpCapacity;

const STEP: Param<u32> = Param::new("step", "250", "1000", "FECs added per step");
const MAX_FECS: Param<u32> =
    Param::new("max_fecs", "1000", "10000", "number of FECs at which the test ends in any case");
const FRAMES_PER_FEC: Param<u32> = Param::new("frames_per_fec", "2", "5", "frames to each FEC after each step");
const RATE: Param<FrameRate> =
    Param::new("rate", "20 kfps", "50 kfps", "load of the sending port, below the router's throughput");
const INSTALL: Param<Duration> = Param::new(
    "install",
    "10 s",
    "60 s",
    "time for the forwarding plane to follow; if frames are lost, the traffic is repeated until this time ends",
);

const HELD: FigureSpec =
    FigureSpec::higher("ldp_capacity_fecs", "FECs", "FECs for which the router has a label and forwards without loss");
const TIME: FigureSpec =
    FigureSpec::lower("ldp_capacity_s", "s", "seconds until the router had a label for all FECs and forwarded to them");

static SPEC: TestSpec = TestSpec {
    name: "ldp_capacity",
    title: "LDP capacity",
    summary: "for how many FECs the router has labels and swaps them without losing a frame, checked for every single FEC",
    source: "terms of RFC 5036; in steps as in RFC 3222 section 5",
    needs: &[Need::Ospf, Need::Ldp],
    params: params![&[
        STEP.spec(),
        MAX_FECS.spec(),
        FRAMES_PER_FEC.spec(),
        RATE.spec(),
        INSTALL.spec(),
        DRAIN.spec(),
        PATIENCE.spec(),
        ESTABLISH.spec(),
    ]],
    figures: &[HELD.shape(), TIME.shape()],
    tables: &[TABLE.shape(), WRONG.shape()],
};

columns! {
    /// One step.
    struct StepRow {
        fecs: u64 = "FECs",
        labels: u64 = "With a label of the router",
        labels_s: Option<f64> = "Labels after" ["s"],
        forward_s: Option<f64> = "Forwarded to after" ["s"],
        exact_s: Option<f64> = "Uncertainty" ["s"],
        offered: Option<u64> ["frames"],
        lost: Option<u64> ["frames"],
        stray: Option<u64> = "Arrived at a wrong port" ["frames"],
        unreachable: Option<u64> = "Unreachable FECs",
        memory_mib: Option<f64> = "DUT memory" ["MiB"],
    }
}

const TITLE: &str = "LDP capacity";
const TABLE: TableSpec<StepRow> = TableSpec::new("ldp_capacity", TITLE);
const WRONG: TableSpec<UnreachableRow> = TableSpec::new("ldp_capacity_unreachable", "Unreachable FECs");
const PLOTS: StepPlots = StepPlots {
    times: "ldp_capacity_time",
    time_of: "time until the router forwards to all, s",
    memory: "ldp_capacity_memory",
};
/// Minimum number of trials before giving up a step.
const TRIES: u32 = 3;

impl Method for LdpCapacity {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let steps = MAX_FECS.get(params).div_ceil(STEP.get(params).max(1));
        let frames = f64::from(MAX_FECS.get(params)) * f64::from(FRAMES_PER_FEC.get(params));
        let trial_s = frames / RATE.get(params).pps() / 2.0 + DRAIN.seconds(params) + 1.0;
        let few = fewer(params, &MAX_FECS, "FECs at most", 10_000, route_tests::CONFORMANT);
        Plan::times(params, 1)
            .counting(TrialCount::exactly(steps as usize + 1).or_more())
            .taking(f64::from(steps) * trial_s + 20.0)
            .deviating(few)
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        PLOTS.begin(outcome);
        let most = MAX_FECS.get(params);
        let case = IgpCase::new(bed, CoreProtocol::Ldp, most, RATE.get(params))?;
        bed.progress(&format!("{TITLE}: sessions"));
        bed.igp()?.start(&case.plan, ESTABLISH.get(params))?;
        case.await_links(bed, params, PATIENCE.get(params))?;
        let (mut capacity, mut elapsed_s, mut unsure_s, mut stopped) = (0, 0.0, 0.0, None);
        while capacity < most && stopped.is_none() {
            let end = (capacity + STEP.get(params).max(1)).min(most);
            match step(bed, params, outcome, &case, capacity..end) {
                Ok(Ok((took_s, exact_s))) => {
                    (capacity, elapsed_s, unsure_s) = (end, elapsed_s + took_s, unsure_s + exact_s);
                }
                Ok(Err(why)) => stopped = Some(why),
                Err(TestError::Unfit(why)) => {
                    outcome.ranks.push(proven(HELD.of(&[], TITLE, Some(f64::from(capacity))), &why));
                    return Err(TestError::Unfit(why));
                }
                Err(other) => return Err(other),
            }
        }
        match &stopped {
            Some(why) => note(outcome, format!("stopped after {} FECs: {why}", thousands(capacity.into()))),
            None => note(outcome, format!("at least {} FECs; higher numbers were not tried", thousands(most.into()))),
        }
        let whole = stopped.is_none();
        let held = HELD.of(&[], TITLE, Some(f64::from(capacity)));
        outcome.ranks.push(RankFigure { capped: whole, ..held });
        let time = TIME.of(&[], "Time until the router forwarded to every FEC", whole.then_some(elapsed_s));
        let resolution = if elapsed_s > 0.0 { unsure_s / elapsed_s } else { 0.0 };
        outcome.ranks.push(RankFigure { resolution, ..time }.because("the router did not forward to every FEC"));
        Ok(())
    }
}

/// One step: advertises a part, and sends traffic to all FECs so far. Returns the time that the DUT took and the
/// amount by which it may be too long, in seconds, or why it failed.
fn step(
    bed: &mut dyn Testbed,
    params: &Params,
    outcome: &mut Outcome,
    case: &IgpCase,
    part: std::ops::Range<u32>,
) -> Result<Result<(f64, f64), String>, TestError> {
    let purpose = format!("{TITLE}: {} FECs", thousands(part.end.into()));
    bed.progress(&purpose);
    let (begun, before) = (bed.now_s().unwrap_or_default(), case.counts(bed)?);
    for protocol in [CoreProtocol::Ospf, CoreProtocol::Ldp] {
        bed.igp()?.act(&case.action(case.to(), protocol, Change::Advertise, part.clone()))?;
    }
    let all = 0..part.end;
    let labels_s = bed.igp()?.await_labels(case.sender, all.clone(), PATIENCE.get(params))?.map(|d| d.as_secs_f64());
    let labelled_s = bed.now_s().unwrap_or_default() - begun;
    let labels = bed.igp()?.labels(case.sender, all.clone());
    let known = labels.iter().filter(|label| is_own_label(**label)).count() as u64;
    let null = nulls(&labels);
    let reserved = labels.iter().flatten().count() as u64 - known - null;
    let mut row = StepRow {
        fecs: part.end.into(),
        labels: known,
        labels_s,
        forward_s: None,
        exact_s: None,
        offered: None,
        lost: None,
        stray: None,
        unreachable: None,
        memory_mib: None,
    };
    if known < part.end.into() {
        let mut why = format!("the router has labels for {} of {} FECs", thousands(known), thousands(part.end.into()));
        if null > 0 {
            why += &format!(", and implicit null for {}, {NOT_LAST}", thousands(null));
        }
        if reserved > 0 {
            why += &format!(", and another reserved one for {}", thousands(reserved));
        }
        row.memory_mib = memory_mib(&bed.memory());
        TABLE.add(outcome, row, [], [why.clone()]);
        return Ok(Err(why));
    }
    let duration_s = f64::from(part.end) * f64::from(FRAMES_PER_FEC.get(params)) / case.rate.pps();
    // FECs to which no frame arrived in any trial.
    let mut silent: Option<Vec<u32>> = None;
    let (mut tries, mut waited_s) = (0, 0.0);
    let (result, at_s, lost) = loop {
        let ran = case.run(
            bed,
            |_, _| Ok(()),
            |bed| {
                let flows = case.flows(bed, all.clone())?;
                case.trial(bed, params, purpose.clone(), flows, duration_s, &[])
            },
        )?;
        let (result, at_s) = (ran.result, ran.begun_s.unwrap_or_default() - begun);
        let counts = result.destinations.first();
        let none = |i: &u32| counts.is_none_or(|c| c.received.get(*i as usize).is_none_or(|frames| *frames == 0));
        let before_this = silent.take().unwrap_or_else(|| (0..part.end).collect());
        silent = Some(before_this.into_iter().filter(none).collect());
        let lost = (case.counts(bed)? - before.clone()).lost;
        let clean = result.lost() == 0;
        tries += 1;
        waited_s += result.elapsed_s;
        if clean || lost > 0 || tries >= TRIES && waited_s > INSTALL.seconds(params) {
            break (result, (clean && lost == 0).then_some(at_s), lost);
        }
    };
    let silent = silent.unwrap_or_default();
    // The router forwarded at some time after its last label and before the clean traffic.
    let took = at_s.map(|at_s| (at_s, at_s - labelled_s));
    (row.forward_s, row.exact_s) = (at_s, took.map(|(_, exact_s)| exact_s));
    row.offered = Some(result.offered());
    row.lost = Some(result.lost());
    row.stray = Some(result.sum(|group| group.stray));
    row.unreachable = Some(silent.len() as u64);
    row.memory_mib = memory_mib(&bed.memory());
    let why = match silent.len() {
        _ if at_s.is_some() => None,
        _ if lost > 0 => Some(format!("adjacencies and sessions went down: {}", thousands(lost))),
        0 => Some("frames are lost, but the router forwarded to every FEC".to_owned()),
        _ => Some("frames are lost, to some FECs always".to_owned()),
    };
    let why = match why {
        Some(why) if lost == 0 => Some(why + &signs(bed, case, all, &result)?),
        why => why,
    };
    PLOTS.add(outcome, Family::Ipv4, part.end, at_s, row.memory_mib);
    TABLE.add(outcome, row, [result.trial], why.clone());
    if why.is_some() {
        list_unreachable(outcome, &WRONG, &case.routes, silent.into_iter());
    }
    Ok(took.ok_or_else(|| why.unwrap_or_default()))
}

/// What implicit null means for a FEC behind the tester's P router.
const NOT_LAST: &str = "as if it were the last router before them";

/// Signs of why frames are lost: implicit null where the tester's P router behind the DUT hears it, and frames that arrived otherwise.
fn signs(
    bed: &mut dyn Testbed,
    case: &IgpCase,
    part: std::ops::Range<u32>,
    result: &TrialResult,
) -> Result<String, TestError> {
    let mut signs = String::new();
    let null = nulls(&bed.igp()?.labels(case.to(), part));
    if null > 0 {
        let port = &bed.ports()[case.to()].name;
        signs +=
            &format!("; the router at port {port} advertises implicit null for {} FECs, {NOT_LAST}", thousands(null));
    }
    for deviation in Deviation::ALL {
        let frames = result.sum(|group| group.deviations.get(deviation).copied().unwrap_or(0));
        if frames > 0 {
            // The next router pushes the right label again, but two routers have counted down the packet's own TTL.
            let popped =
                if *deviation == Deviation::Ttl { ", as after a label that was removed too early" } else { "" };
            signs += &format!("; {} frames arrived otherwise: {deviation}{popped}", thousands(frames));
        }
    }
    Ok(signs)
}
