//! The latency that the tester measures without a router: it is part of every router's measured latency, and its spread
//! limits the comparison of two routers.

use crate::kit::prelude::*;
use crate::selftest::TRIAL_DURATION;

/// The test.
pub struct LatencyFloor;

/// `repeats`
pub const REPEATS: Param<u32> = Param::new("repeats", "3", "5", "trials per load; the report shows their medians");

const FLOOR: FigureSpec = FigureSpec::lower("latency_floor_{size}_us", "µs", "latency that the tester itself adds");

static SPEC: TestSpec = TestSpec {
    name: "latency_floor",
    title: "Latency floor",
    summary: "latency that the tester measures without a router, and its spread",
    source: "own; RFC 2544 section 26.2 without a router",
    params: params![&TRAFFIC, &[TRIAL_DURATION.spec(), REPEATS.spec()], &AFTER_TRIAL],
    figures: &[],
    tables: &[],
    needs: &[],
};

columns! {
    /// One load.
    pub struct FloorRow {
        frame_size: PacketSize,
        load_pps: f64 ["fps"],
        min_us: Option<f64> = "Minimum" ["µs"],
        floor_us: Option<f64> = "Floor (median)" ["µs"],
        p99_us: Option<f64> = "99 %" ["µs"],
        p99_9_us: Option<f64> = "99.9 %" ["µs"],
        max_us: Option<f64> = "Maximum" ["µs"],
        resolution_us: Option<f64> = "Resolution (90 % - 10 %)" ["µs"],
    }
}

/// The table.
pub const TABLE: TableSpec<FloorRow> = TableSpec::new("latency_floor", "Latency of the tester itself");
const PLOT: PlotSpec = PlotSpec::new(
    "latency_floor_percentiles",
    "Latency of the tester itself",
    PlotKind::Percentiles,
    "percentile",
    "latency, µs",
)
.logarithmic();
/// Loads per sending port in frames per second: one frame at a time, and a typical load of a latency test.
const LOADS: [f64; 2] = [1e3, 5e4];

impl Method for LatencyFloor {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let trials = REPEATS.get(params) as usize * LOADS.len();
        Plan::by_size(params).trials(trials, TRIAL_DURATION.seconds(params), 0.0)
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        PLOT.begin(outcome);
        note(
            outcome,
            "A router's latency includes the floor. The test cannot distinguish the medians of two routers that are closer than the \
             resolution.",
        );
        let repeats = REPEATS.get(params);
        for_each_size(bed, params, outcome, |bed, pattern, outcome, _| {
            for load in LOADS {
                bed.progress("latency floor");
                let mut results = Vec::new();
                for repeat in 0..repeats {
                    let purpose = format!("latency floor {}: {load:.0} fps, trial {}", pattern.size, repeat + 1);
                    let constant = Load::Constant { rate_pps: load };
                    let spec = pattern.trial(bed.ports(), purpose, constant, TRIAL_DURATION.seconds(params))?;
                    results.push(bed.trial(&spec)?);
                    bed.settle(PAUSE.get(params))?;
                }
                write(outcome, pattern, load, &results);
            }
            Ok(())
        })
    }
}

fn write(outcome: &mut Outcome, pattern: &Pattern, load: f64, results: &[TrialResult]) {
    let groups = || results.iter().flat_map(|r| &r.groups).map(|g| &g.latency).filter(|l| l.frames > 0);
    let us = |ns: u64| ns as f64 / 1e3;
    let at = |p: f64| median(&groups().filter_map(|l| l.percentile(p)).map(us).collect::<Vec<_>>());
    let resolution = at(90.0).zip(at(10.0)).map(|(high, low)| high - low);
    let row = FloorRow {
        frame_size: pattern.size.clone(),
        load_pps: load,
        min_us: groups().map(|l| us(l.min_ns)).min_by(f64::total_cmp),
        floor_us: at(50.0),
        p99_us: at(99.0),
        p99_9_us: at(99.9),
        max_us: groups().map(|l| us(l.max_ns)).max_by(f64::total_cmp),
        resolution_us: resolution,
    };
    TABLE.add(outcome, row, trials(results), []);
    let series = format!("{} at {load:.0} fps", pattern.size_text());
    for percentile in drophammer_model::latency::PERCENTILES {
        if let Some(y) = at(percentile) {
            PLOT.curve(outcome, &series, xy(percentile, y));
        }
    }
    if load == LOADS[0] {
        let title = format!("Latency floor, {}", pattern.size_text());
        outcome.ranks.push(RankFigure { resolution: 0.1, ..FLOOR.of(&[("size", &pattern.size)], title, at(50.0)) });
    }
}
