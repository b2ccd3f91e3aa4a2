//! BGP session capacity: more and more emulated routers open sessions, and all of them must stay up (no RFC defines it; terms of RFC
//! 4098).

use crate::Method;
use crate::parameters::{self, count, shorter};
use crate::report::{SeriesKind, note, plot, point, row, table};
use crate::route_tests::{self, establish_within, memory_mib, thousands};
use crate::testbed::{TestError, Testbed};
use drophammer_model::outcome::{Outcome, PlotKind, Point, RankFigure, Row};
use drophammer_model::registry::{FigureSpec, ParamKind, ParamSpec, TestSpec};
use drophammer_model::suite::Params;
use std::time::Duration;

/// The test.
pub struct BgpSessionCapacity;

static SPEC: TestSpec = TestSpec {
    name: "bgp_session_capacity",
    title: "BGP session capacity",
    summary: "how many BGP sessions the router brings up and keeps",
    source: "terms of RFC 4098; sessions of RFC 4271",
    needs: route_tests::NEEDS,
    params: &[
        ParamSpec::new("step", ParamKind::Count, "10", "50", "sessions added per step, spread over the ports"),
        ParamSpec::new(
            "max_sessions",
            ParamKind::Count,
            "1000",
            "10000",
            "sessions at which the test ends; `peers_per_port` of the suite bounds it too",
        ),
        ParamSpec::new("hold", ParamKind::Duration, "1 s", "180 s", "time for which all sessions must stay at the end"),
        route_tests::ESTABLISH,
    ],
    figures: &[
        FigureSpec { key: "bgp_sessions", help: "sessions up at the same time" },
        FigureSpec { key: "bgp_sessions_s", help: "seconds until all of them were up, step by step" },
    ],
};

const TABLE: &str = "bgp_session_capacity";

impl Method for BgpSessionCapacity {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        table(
            outcome,
            TABLE,
            "BGP session capacity",
            &[
                ("sessions", "Sessions", ""),
                ("step_s", "Time for the step", "s"),
                ("slowest_s", "Slowest session", "s"),
                ("lost", "Sessions lost", ""),
                ("memory_mib", "DUT memory", "MiB"),
            ],
        );
        plot(outcome, TABLE, "Time for each step of sessions", PlotKind::Steps, "sessions", "time, s", false);
        let result = climb(bed, params, outcome);
        match &result {
            Err(TestError::DutDied(_) | TestError::Interrupted | TestError::Store(_)) => {}
            _ => bed.routing()?.reset(establish_within(params))?,
        }
        result
    }

    fn estimate(&self, params: &Params) -> Duration {
        Duration::from_secs_f64(parameters::seconds(params, "hold", 180.0) + 5.0)
    }

    fn deviations(&self, params: &Params) -> Vec<String> {
        shorter(params, "hold", "hold", 180.0, route_tests::CONFORMANT).into_iter().collect()
    }
}

fn climb(bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
    // One of each port in turn, so that a step is spread.
    let routing = bed.routing()?;
    let mut by_port: Vec<Vec<usize>> = Vec::new();
    for (index, peer) in routing.peers().iter().enumerate() {
        if by_port.len() <= peer.port {
            by_port.resize(peer.port + 1, Vec::new());
        }
        by_port[peer.port].push(index);
    }
    let longest = by_port.iter().map(Vec::len).max().unwrap_or(0);
    let order: Vec<usize> = (0..longest).flat_map(|i| by_port.iter().filter_map(move |p| p.get(i).copied())).collect();
    let most = order.len().min(count(params, "max_sessions") as usize);
    let step = count(params, "step") as usize;
    let (mut up, mut elapsed_s, mut stopped) = (0, 0.0, None);
    while up < most && stopped.is_none() {
        let end = (up + step).min(most);
        bed.progress(&format!("BGP session capacity: {end} sessions"), (up / step) as u32, most.div_ceil(step) as u32);
        let routing = bed.routing()?;
        let begun = routing.now_s();
        let result = routing.establish(&order[up..end], establish_within(params));
        let step_s = routing.now_s() - begun;
        let lost = order[..up].iter().filter(|peer| !routing.session(**peer).established).count();
        let memory = memory_mib(&routing.dut_memory());
        let mut marks = Vec::new();
        let mut slowest = None;
        match result {
            Ok(times) if lost == 0 => {
                up = end;
                elapsed_s += step_s;
                slowest = times.iter().max().map(Duration::as_secs_f64);
                point(
                    outcome,
                    TABLE,
                    "sessions",
                    SeriesKind::Curve,
                    Point { x: end as f64, y: step_s, ..Point::default() },
                );
            }
            Ok(_) => stopped = Some(format!("{lost} earlier sessions went down")),
            Err(TestError::Failed(why)) => stopped = Some(why),
            Err(other) => return Err(other),
        }
        marks.extend(stopped.clone());
        let cells = vec![(end as u64).into(), step_s.into(), slowest.into(), (lost as u64).into(), memory.into()];
        row(outcome, TABLE, Row { cells, trials: Vec::new(), marks });
    }
    if stopped.is_none() {
        bed.settle(params.duration("hold").unwrap_or(Duration::from_secs(180)))?;
        let routing = bed.routing()?;
        let lost: Vec<usize> = order[..up].iter().copied().filter(|p| routing.session(*p).losses > 0).collect();
        if let Some(first) = lost.first() {
            let (name, cause) = (routing.peers()[*first].name.clone(), routing.session(*first).cause);
            stopped = Some(format!("{} sessions did not stay, the first of them {name}: {cause}", lost.len()));
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
    for (key, title, unit, value, more) in [
        ("bgp_sessions", "BGP sessions", "sessions", Some(up as f64), true),
        ("bgp_sessions_s", "Time to bring all BGP sessions up", "s", stopped.is_none().then_some(elapsed_s), false),
    ] {
        outcome.ranks.push(RankFigure {
            key: key.into(),
            title: title.into(),
            unit: unit.into(),
            value,
            higher_is_better: more,
            tester_limited: false,
            resolution: if more { 0.0 } else { 0.05 },
        });
    }
    Ok(())
}
