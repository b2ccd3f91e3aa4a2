//! The latency that the tester measures where there is no router: what it adds to every router's, and how finely it can
//! tell two routers apart.

use crate::Method;
use crate::parameters::{self, beside_s, count, pause, seconds, sizes};
use crate::pattern::Pattern;
use crate::report::{SeriesKind, for_each_size, median, note, plot, point, row, table};
use crate::testbed::{TestError, Testbed};
use drophammer_model::outcome::{Outcome, PlotKind, Point, RankFigure, Row};
use drophammer_model::registry::{ParamKind, ParamSpec, TestSpec};
use drophammer_model::suite::Params;
use drophammer_model::trial::{Load, TrialResult};
use std::time::Duration;

/// The test.
pub struct LatencyFloor;

static SPEC: TestSpec = TestSpec {
    name: "latency_floor",
    title: "Latency floor",
    summary: "latency that the tester measures without a router, and its spread",
    source: "own; RFC 2544 section 26.2 without a router",
    params: &[
        parameters::FRAME_SIZES,
        parameters::FAMILIES,
        parameters::DIRECTION,
        ParamSpec::new("trial_duration", ParamKind::Duration, "1 s", "10 s", "length of a trial"),
        ParamSpec::new("repeats", ParamKind::Count, "3", "5", "trials per load; medians of them are reported"),
        parameters::PAUSE,
        parameters::DRAIN,
    ],
    figures: &[],
    needs: &[],
};

/// Key of the table.
pub const TABLE: &str = "latency_floor";
/// Column of the floor, in µs.
pub const FLOOR: &str = "floor_us";
/// Column of the resolution, in µs.
pub const RESOLUTION: &str = "resolution_us";
const PLOT: &str = "latency_floor_percentiles";
/// Loads per sending port in frames per second: one frame at a time, and a load like that of a latency test.
const LOADS: [f64; 2] = [1e3, 5e4];

impl Method for LatencyFloor {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        table(
            outcome,
            TABLE,
            "Latency of the tester itself",
            &[
                ("frame_size", "Frame size", ""),
                ("load_pps", "Load", "fps"),
                ("min_us", "Minimum", "µs"),
                (FLOOR, "Floor (median)", "µs"),
                ("p99_us", "99 %", "µs"),
                ("p99_9_us", "99.9 %", "µs"),
                ("max_us", "Maximum", "µs"),
                (RESOLUTION, "Resolution (90 % - 10 %)", "µs"),
            ],
        );
        plot(outcome, PLOT, "Latency of the tester itself", PlotKind::Percentiles, "percentile", "latency, µs", true);
        note(
            outcome,
            "A router's latency contains the floor. Medians of two routers that are closer together than the resolution are \
             not told apart.",
        );
        let repeats = count(params, "repeats");
        for_each_size(bed, params, outcome, |bed, pattern, outcome, index| {
            for (at, load) in LOADS.into_iter().enumerate() {
                let step = index * LOADS.len() as u32 + at as u32;
                bed.progress("latency floor", step, (sizes(params).len() * LOADS.len()) as u32);
                let mut results = Vec::new();
                for repeat in 0..repeats {
                    let purpose = format!("latency floor {}: {load:.0} fps, trial {}", pattern.size, repeat + 1);
                    let constant = Load::Constant { rate_pps: load };
                    let spec = pattern.trial(bed.ports(), purpose, constant, seconds(params, "trial_duration", 1.0))?;
                    results.push(bed.trial(&spec)?);
                    bed.settle(pause(params))?;
                }
                write(outcome, pattern, load, &results);
            }
            Ok(())
        })
    }

    fn estimate(&self, params: &Params) -> Duration {
        let trials = f64::from(count(params, "repeats")) * (LOADS.len() * sizes(params).len()) as f64;
        Duration::from_secs_f64(seconds(params, "trial_duration", 1.0) * trials + beside_s(params, trials, 0.0))
    }
}

fn write(outcome: &mut Outcome, pattern: &Pattern, load: f64, results: &[TrialResult]) {
    let groups = || results.iter().flat_map(|r| &r.groups).map(|g| &g.latency).filter(|l| l.frames > 0);
    let us = |ns: u64| ns as f64 / 1e3;
    let at = |p: f64| median(&groups().filter_map(|l| l.percentile(p)).map(us).collect::<Vec<_>>());
    let resolution = at(90.0).zip(at(10.0)).map(|(high, low)| high - low);
    let cells = vec![
        pattern.size.to_string().into(),
        load.into(),
        groups().map(|l| us(l.min_ns)).min_by(f64::total_cmp).into(),
        at(50.0).into(),
        at(99.0).into(),
        at(99.9).into(),
        groups().map(|l| us(l.max_ns)).max_by(f64::total_cmp).into(),
        resolution.into(),
    ];
    row(outcome, TABLE, Row { cells, trials: results.iter().map(|r| r.trial).collect(), marks: Vec::new() });
    let series = format!("{} at {load:.0} fps", pattern.size_text());
    for percentile in drophammer_model::latency::PERCENTILES {
        if let Some(y) = at(percentile) {
            point(outcome, PLOT, &series, SeriesKind::Curve, Point { x: percentile, y, ..Point::default() });
        }
    }
    if load == LOADS[0] {
        outcome.ranks.push(RankFigure {
            key: format!("latency_floor_{}_us", pattern.size),
            title: format!("Latency floor, {}", pattern.size_text()),
            unit: "µs".into(),
            value: at(50.0),
            higher_is_better: false,
            tester_limited: false,
            resolution: 0.1,
        });
    }
}
