//! BGP session capacity: a growing number of emulated routers open sessions, and all of them must stay up (no RFC
//! defines this test; terms of RFC 4098).

use crate::kit::prelude::*;
use crate::route_tests::{self, ESTABLISH, memory_mib, thousands};

/// The test.
pub struct BgpSessionCapacity;

const STEP: Param<u32> = Param::new("step", "10", "50", "sessions added per step, spread over the ports");
const MAX_SESSIONS: Param<u32> = Param::new(
    "max_sessions",
    "1000",
    "10000",
    "number of sessions at which the test ends; `peers_per_port` of the suite also limits it",
);
const HOLD: Param<Duration> = Param::new("hold", "1 s", "180 s", "how long all sessions must stay up at the end");

const SESSIONS: FigureSpec = FigureSpec::higher("bgp_sessions", "sessions", "sessions up at the same time");
const TIME: FigureSpec = FigureSpec::lower("bgp_sessions_s", "s", "seconds until all sessions were up, step by step");

static SPEC: TestSpec = TestSpec {
    name: "bgp_session_capacity",
    title: "BGP session capacity",
    summary: "how many BGP sessions the router brings up and keeps",
    source: "terms of RFC 4098; sessions of RFC 4271",
    needs: route_tests::NEEDS,
    params: &[STEP.spec(), MAX_SESSIONS.spec(), HOLD.spec(), ESTABLISH.spec()],
    figures: &[SESSIONS.shape(), TIME.shape()],
    tables: &[TABLE.shape()],
};

columns! {
    /// One step.
    struct StepRow {
        sessions: u64,
        step_s: f64 = "Time for the step" ["s"],
        slowest_s: Option<f64> = "Slowest session" ["s"],
        lost: u64 = "Sessions lost",
        memory_mib: Option<f64> = "DUT memory" ["MiB"],
    }
}

const TABLE: TableSpec<StepRow> = TableSpec::new("bgp_session_capacity", "BGP session capacity");
const PLOT: PlotSpec =
    PlotSpec::new("bgp_session_capacity", "Time for each step of sessions", PlotKind::Steps, "sessions", "time, s");

impl Method for BgpSessionCapacity {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let hold = shorter(params, &HOLD, "hold", 180.0, route_tests::CONFORMANT);
        Plan::times(params, 1).taking(HOLD.seconds(params) + 5.0).deviating(hold)
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        PLOT.begin(outcome);
        let result = climb(bed, params, outcome);
        route_tests::clear(bed, &result, ESTABLISH.get(params))?;
        result
    }
}

fn climb(bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
    // Takes one peer of each port in turn, so that every step is spread over all ports.
    let routing = bed.routing()?;
    // Before the first step, because the router may refuse sessions for some seconds after the sessions of an earlier
    // test have ended.
    routing.ready_for_sessions()?;
    let mut by_port: Vec<Vec<usize>> = Vec::new();
    for (index, peer) in routing.peers().iter().enumerate() {
        if by_port.len() <= peer.port {
            by_port.resize(peer.port + 1, Vec::new());
        }
        by_port[peer.port].push(index);
    }
    let longest = by_port.iter().map(Vec::len).max().unwrap_or(0);
    let order: Vec<usize> = (0..longest).flat_map(|i| by_port.iter().filter_map(move |p| p.get(i).copied())).collect();
    let most = order.len().min(MAX_SESSIONS.get(params) as usize);
    let step = STEP.get(params) as usize;
    let (mut up, mut elapsed_s, mut stopped) = (0, 0.0, None);
    while up < most && stopped.is_none() {
        let end = (up + step).min(most);
        bed.progress(&format!("BGP session capacity: {end} sessions"));
        let routing = bed.routing()?;
        let begun = routing.now_s();
        let result = routing.establish(&order[up..end], ESTABLISH.get(params));
        let step_s = routing.now_s() - begun;
        let lost = order[..up].iter().filter(|peer| !routing.session(**peer).established).count();
        let memory = memory_mib(&routing.dut().memory());
        let mut slowest = None;
        match result {
            Ok(times) if lost == 0 => {
                up = end;
                elapsed_s += step_s;
                slowest = times.iter().max().map(Duration::as_secs_f64);
                PLOT.curve(outcome, "sessions", xy(end as f64, step_s));
            }
            Ok(_) => stopped = Some(format!("{lost} earlier sessions went down")),
            Err(TestError::Failed(why)) => stopped = Some(why),
            Err(other) => return Err(other),
        }
        let row = StepRow { sessions: end as u64, step_s, slowest_s: slowest, lost: lost as u64, memory_mib: memory };
        TABLE.add(outcome, row, [], stopped.clone());
    }
    if stopped.is_none() {
        bed.settle(HOLD.get(params))?;
        let routing = bed.routing()?;
        let lost: Vec<usize> = order[..up].iter().copied().filter(|p| routing.session(*p).losses > 0).collect();
        if let Some(first) = lost.first() {
            let (name, cause) = (routing.peers()[*first].name.clone(), routing.session(*first).cause);
            stopped = Some(format!("{} sessions did not stay up, the first one {name}: {cause}", lost.len()));
            up -= lost.len();
        }
    }
    match &stopped {
        Some(why) => note(outcome, format!("stopped after {up} sessions: {why}")),
        None => note(
            outcome,
            format!(
                "at least {} sessions; the suite has no more (`peers_per_port`, `max_sessions`)",
                thousands(up as u64)
            ),
        ),
    }
    let sessions = SESSIONS.of(&[], "BGP sessions", Some(up as f64));
    outcome.ranks.push(RankFigure { capped: stopped.is_none(), ..sessions });
    let value = stopped.is_none().then_some(elapsed_s);
    let why = format!("only {up} sessions came up");
    outcome.ranks.push(TIME.of(&[], "Time to bring all BGP sessions up", value).because(why));
    Ok(())
}
