//! Flood: the highest load that the tester can offer, to networks that the router forwards to, to its own address, and
//! to addresses to which it has no route. Does the router still answer its operator, and do its BGP sessions stay up?

use crate::kit::prelude::*;
use crate::maximum_load::at_maximum;
use crate::overload::{AFTERWARDS, INTERVAL, MANAGEMENT, note_unasked, state};
use crate::route_tests::{self, ESTABLISH};
use crate::routing::PeerIndex;
use drophammer_model::management::{Answered, Inquiry};
use drophammer_model::trial::AddressRange;
use std::net::IpAddr;

/// The test.
pub struct Flood;

drophammer_model::choice! {
    /// Destination of a flood.
    pub enum Target {
        /// To hosts behind the other port of the pair.
        Forwarded = "forwarded",
        /// To the router's own address at the port.
        Own = "own",
        /// To addresses to which the router has no route.
        Unroutable = "unroutable",
    }
}

const TARGETS: Param<Vec<Target>> = Param::fixed(
    "targets",
    "[forwarded, own, unroutable]",
    "where the frames go: to networks that the router forwards to, to its own address, to addresses without a route",
);
const TRIAL_DURATION: Param<Duration> = Param::new("trial_duration", "1 s", "60 s", "length of a trial");
/// Trial duration that the source of the test requires, in seconds.
const SOURCE_S: f64 = 60.0;

const ANSWERED: FigureSpec = FigureSpec::higher(
    "flood_{target}_{size}_answered_percent",
    "%",
    "share of the queries that the router answered during the flood, in %, for the kind answered least; `target` is forwarded, own or unroutable",
);
const SESSIONS_LOST: FigureSpec = FigureSpec::lower_by_difference(
    "flood_{target}_{size}_sessions_lost",
    "sessions",
    "BGP sessions that went down during the flood, if the suite has BGP",
)
.by(1.0);

static SPEC: TestSpec = TestSpec {
    name: "flood",
    title: "Flood",
    summary: "whether the router answers and keeps its sessions under a flood: to networks that it forwards to, to itself, to addresses without a \
         route",
    source: "RFC 2285 section 3.5.3; Bradner 1989 (flood); RFC 6192",
    params: params![&[
        FRAME_SIZES.spec(),
        FAMILIES.spec(),
        DIRECTION.spec(),
        TARGETS.spec(),
        TRIAL_DURATION.spec(),
        MANAGEMENT.spec(),
        INTERVAL.spec(),
        AFTERWARDS.spec(),
        ESTABLISH.spec(),
        PAUSE.spec(),
        DRAIN.spec()
    ],],
    figures: &[ANSWERED.shape(), SESSIONS_LOST.shape()],
    tables: &[TABLE.shape()],
    needs: &[],
};

columns! {
    /// One flood and kind of query. Rates are per sending port.
    struct FloodRow {
        frame_size: PacketSize,
        protocol: String,
        target: String,
        offered_load_pps: f64 ["fps"],
        offered: u64 ["frames"],
        forwarded: u64 ["frames"],
        forwarding_rate_pps: f64 ["fps"],
        icmp_errors: Option<u64> = "ICMP errors",
        cpu_percent: Option<f64> = "CPU of the router" ["%"],
        question: Option<String> = "Query",
        state: Option<String> = "Management",
        asked: Option<u64> = "Queries",
        answered: Option<u64>,
        median_ms: Option<f64> = "Answer, median" ["ms"],
        worst_ms: Option<f64> = "Answer, worst" ["ms"],
        state_after: Option<String> = "Management, afterwards",
        sessions: Option<u64> = "BGP sessions",
        sessions_lost: Option<u64>,
    }
}

const TABLE: TableSpec<FloodRow> = TableSpec::new("flood", "Floods and the router's answers");

/// Result of one flood.
struct Found {
    target: Target,
    seen: Seen,
    /// Limit of the load per sending port.
    limit: FrameRate,
    /// Number of sessions, and the causes of those that went down; `None` without BGP.
    sessions: Option<(usize, Vec<String>)>,
}

fn patterns(params: &Params) -> Vec<Pattern> {
    let pattern = |size| Pattern {
        direction: DIRECTION.get(params),
        ..Pattern::one_way(size, FAMILIES.get(params), DRAIN.seconds(params))
    };
    FRAME_SIZES.get(params).into_iter().map(pattern).collect()
}

impl Method for Flood {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        Plan::of(params, patterns(params))
            .trials(TARGETS.get(params).len(), TRIAL_DURATION.seconds(params) + AFTERWARDS.seconds(params), 1.0)
            .deviating(common_deviations(params))
            .deviating(shorter(params, &TRIAL_DURATION, "trials", SOURCE_S, "flood"))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        note(
            outcome,
            "The router is queried during each flood and after it. Routers limit how many ICMP errors they send. Rates are frames per second per \
             sending port.",
        );
        let peers = speakers(bed, params, outcome)?;
        for_each_pattern(bed, patterns(params), outcome, |bed, pattern, outcome, _| {
            // A size is not finished if one of its floods is missing.
            let mut unfit = Ok(());
            for target in &TARGETS.get(params) {
                bed.progress(&format!("flood, {}", pattern.size_text()));
                match flood(bed, pattern, params, &peers, *target) {
                    Ok(found) => {
                        note_unasked(outcome, params, &found.seen.result, &found.seen.answered);
                        write(outcome, pattern, &found);
                    }
                    Err(TestError::Unfit(why)) => {
                        let highest = pattern.limits(bed).max;
                        note_unfit(outcome, pattern, &format!("flood to {target} left out,"), highest, &why);
                        if !MANAGEMENT.get(params).is_empty() {
                            push_spoilt(outcome, answered_figure(pattern, *target), &why);
                        }
                        if !peers.is_empty() {
                            push_spoilt(outcome, sessions_figure(pattern, *target, None), &why);
                        }
                        unfit = Err(TestError::Unfit(why));
                    }
                    Err(other) => return Err(other),
                }
                bed.settle(PAUSE.get(params))?;
            }
            unfit
        })
    }
}

/// Runs one flood, after bringing up the sessions of `peers`.
fn flood(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    params: &Params,
    peers: &[PeerIndex],
    target: Target,
) -> Result<Found, TestError> {
    if peers.is_empty() {
        let (seen, limit) = offered(bed, pattern, params, target)?;
        return Ok(Found { target, seen, limit, sessions: None });
    }
    // The sessions came up before. If they no longer do, a flood has harmed the router.
    let flooded = match route_tests::establish(bed, peers, params) {
        Ok(_) => offered(bed, pattern, params, target),
        Err(TestError::Failed(why)) => Err(TestError::Failed(format!("before the flood to {target}: {why}"))),
        Err(other) => Err(other),
    };
    let lost = bed.routing().map(|routing| route_tests::losses(routing, peers));
    route_tests::clear(bed, &flooded.as_ref().map(drop).map_err(Clone::clone), ESTABLISH.get(params))?;
    let (seen, limit) = flooded?;
    Ok(Found { target, seen, limit, sessions: Some((peers.len(), lost?)) })
}

/// One session of each port and family; none for a suite without BGP. If no session comes up, adds a note and returns
/// none.
fn speakers(bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<Vec<PeerIndex>, TestError> {
    let mut peers = Vec::new();
    for family in FAMILIES.get(params) {
        match route_tests::one_per_port(bed, family, 1) {
            Ok(found) => peers.extend(found),
            Err(TestError::NotApplicable(_)) => {}
            Err(other) => return Err(other),
        }
    }
    if peers.is_empty() {
        return Ok(peers);
    }
    let tried = route_tests::establish(bed, &peers, params).map(drop);
    route_tests::clear(bed, &tried, ESTABLISH.get(params))?;
    match tried {
        Ok(()) => Ok(peers),
        Err(TestError::Failed(why)) => {
            note(outcome, format!("BGP sessions are not monitored: {why}."));
            Ok(Vec::new())
        }
        Err(other) => Err(other),
    }
}

/// Floods the target while querying the router, and counts what comes back. Returns the limit of the load, too.
fn offered(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    params: &Params,
    target: Target,
) -> Result<(Seen, FrameRate), TestError> {
    let inquiry = Inquiry {
        questions: MANAGEMENT.get(params),
        interval: INTERVAL.get(params),
        afterwards: AFTERWARDS.get(params),
    };
    let flood = |bed: &mut dyn Testbed, limit: FrameRate| {
        let purpose = format!("flood {} to {target}", pattern.size);
        let load = Load::Maximum { limit_pps: limit.pps() };
        let spec = pattern.trial(bed.ports(), purpose, load, TRIAL_DURATION.seconds(params))?;
        let spec = aimed(spec, bed.ports(), target)?;
        bed.run(&Trial { ask: Some(inquiry.clone()), extra: Some(Vec::new()), ..Trial::new(spec) })
    };
    at_maximum(bed, pattern, flood)
}

/// Addresses that only a default route of the router matches: documentation (RFC 5737, RFC 3849).
fn nowhere(family: Family) -> AddressRange {
    let first: IpAddr = match family {
        Family::Ipv4 => [203, 0, 113, 1].into(),
        Family::Ipv6 => [0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1].into(),
    };
    AddressRange { first, step: 1, count: 200 }
}

/// The trial with its flows aimed at the target. Their frames must not arrive, unless the router should forward them.
fn aimed(mut spec: TrialSpec, ports: &[PortView], target: Target) -> Result<TrialSpec, TestError> {
    for flow in &mut spec.flows {
        let destinations = match target {
            Target::Forwarded => continue,
            Target::Own => {
                let addressing = ports[flow.from].addressing(flow.family);
                let missing = || {
                    TestError::NotApplicable(format!("port {} has no {} address", ports[flow.from].name, flow.family))
                };
                AddressRange { first: addressing.ok_or_else(missing)?.dut, step: 1, count: 1 }
            }
            Target::Unroutable => {
                let nowhere = nowhere(flow.family);
                let routed = |port: &PortView| {
                    port.addressing(flow.family).is_some_and(|a| a.behind.1 == 0 || holds(a.behind, nowhere.first))
                };
                if let Some(port) = ports.iter().find(|port| routed(port)) {
                    let why =
                        format!("{} is behind port {}: there is no address without a route", nowhere.first, port.name);
                    return Err(TestError::NotApplicable(why));
                }
                nowhere
            }
        };
        flow.destinations = destinations.into();
        flow.denied = true;
    }
    Ok(spec)
}

/// Returns true if the prefix contains the address.
fn holds((network, length): (IpAddr, u8), address: IpAddr) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(a) => u128::from(u32::from(a)) << 96,
        IpAddr::V6(a) => u128::from(a),
    };
    let shift = 128 - u32::from(length);
    network.is_ipv4() == address.is_ipv4()
        && bits(network).checked_shr(shift).unwrap_or(0) == bits(address).checked_shr(shift).unwrap_or(0)
}

fn write(outcome: &mut Outcome, pattern: &Pattern, found: &Found) {
    let Found { target, seen: Seen { result, answered, other, .. }, limit, sessions } = found;
    let load_pps = Some(limit.pps());
    let mut marks = Vec::new();
    if *target != Target::Forwarded && result.received() > 0 {
        marks.push(format!("forwarded {} frames that it must not forward", result.received()));
    }
    for lost in sessions.iter().flat_map(|(_, lost)| lost) {
        marks.push(lost.clone());
    }
    let row = |answered: Option<&Answered>| {
        let times =
            answered.map_or(Vec::new(), |a| a.during.times.iter().map(|t| t.as_secs_f64() * 1e3).collect::<Vec<f64>>());
        FloodRow {
            frame_size: pattern.size.clone(),
            protocol: pattern.protocol(),
            target: target.to_string(),
            offered_load_pps: result.offered_load().pps(),
            offered: result.offered(),
            forwarded: result.received(),
            forwarding_rate_pps: result.forwarding_rate().pps(),
            icmp_errors: other.as_ref().map(|other| other.unmatched_errors),
            cpu_percent: result.dut_cpu.map(|share| share * 100.0),
            question: answered.map(|a| a.question.word().to_owned()),
            state: answered.map(|a| state(&a.during)),
            asked: answered.map(|a| a.during.asked),
            answered: answered.map(|a| a.during.times.len() as u64),
            median_ms: median(&times),
            worst_ms: times.iter().copied().max_by(f64::total_cmp),
            state_after: answered.map(|a| &a.afterwards).filter(|after| after.asked > 0).map(state),
            sessions: sessions.as_ref().map(|(all, _)| *all as u64),
            sessions_lost: sessions.as_ref().map(|(_, lost)| lost.len() as u64),
        }
    };
    let rows: Vec<FloodRow> =
        if answered.is_empty() { vec![row(None)] } else { answered.iter().map(|a| row(Some(a))).collect() };
    for row in rows {
        TABLE.add(outcome, row, [result.trial], marks.clone());
    }
    if let Some((_, lost)) = sessions.as_ref().filter(|(_, lost)| !lost.is_empty()) {
        note_of(outcome, pattern, format!("flood to {target}: {}", lost.join("; ")));
    }
    let shares = answered.iter().filter_map(|a| percent_of(a.during.times.len() as u64, a.during.asked));
    if let Some(least) = shares.min_by(f64::total_cmp) {
        outcome.ranks.push(RankFigure { value: Some(least), load_pps, ..answered_figure(pattern, *target) });
    }
    if let Some((_, lost)) = sessions {
        let lost = Some(lost.len() as f64);
        outcome.ranks.push(RankFigure { load_pps, ..sessions_figure(pattern, *target, lost) });
    }
}

/// The share of queries answered during a flood, without a value yet.
fn answered_figure(pattern: &Pattern, target: Target) -> RankFigure {
    let title = format!("Queries answered, flood to {target}, {}", pattern.size_text());
    ANSWERED.of(&[("target", &target), ("size", &pattern.size)], title, None)
}

fn sessions_figure(pattern: &Pattern, target: Target, lost: Option<f64>) -> RankFigure {
    let title = format!("BGP sessions lost, flood to {target}, {}", pattern.size_text());
    SESSIONS_LOST.of(&[("target", &target), ("size", &pattern.size)], title, lost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Columns;

    #[test]
    fn a_prefix_holds_its_addresses_and_no_others() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(holds((ip("203.0.112.0"), 23), ip("203.0.113.1")));
        assert!(!holds((ip("203.0.112.0"), 24), ip("203.0.113.1")));
        assert!(holds((ip("2001:db8::"), 32), nowhere(Family::Ipv6).first));
        assert!(holds((ip("::"), 0), ip("2001:db8::1")) && !holds((ip("0.0.0.0"), 0), ip("::1")));
    }

    #[test]
    fn the_page_names_every_column() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tests/flood.md");
        let page = std::fs::read_to_string(path).unwrap();
        for key in FloodRow::KEYS {
            assert!(page.contains(&format!("`{key}`")), "{key}");
        }
    }
}
