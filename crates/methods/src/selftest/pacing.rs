//! How evenly the tester sends: how late each frame is handed over, against the schedule of its load.

use crate::Method;
use crate::parameters::{self, beside_s, pause, seconds, sizes};
use crate::pattern::Pattern;
use crate::report::{SeriesKind, for_each_size, note, plot, point, row, table};
use crate::testbed::{TestError, Testbed};
use drophammer_model::outcome::{Outcome, PlotKind, Point, RankFigure, Row};
use drophammer_model::quantity::group_digits;
use drophammer_model::registry::{ParamKind, ParamSpec, TestSpec};
use drophammer_model::suite::Params;
use drophammer_model::trial::{Load, TrialResult};
use std::time::Duration;

/// The test.
pub struct Pacing;

static SPEC: TestSpec = TestSpec {
    name: "pacing",
    title: "Pacing",
    summary: "how late the tester hands frames over, by load",
    source: "own; RFC 2544 section 21 asks for frames at the stated rate, not for bursts of that mean",
    params: &[
        parameters::FRAME_SIZES,
        parameters::FAMILIES,
        parameters::DIRECTION,
        ParamSpec::new("trial_duration", ParamKind::Duration, "1 s", "10 s", "length of a trial"),
        parameters::PAUSE,
        parameters::DRAIN,
    ],
    figures: &[],
    needs: &[],
};

const TABLE: &str = "pacing";
const PLOT: &str = "departure_errors";
/// Loads per sending port in frames per second, as far as the tester offers them.
const LOADS: [f64; 7] = [1e3, 1e4, 1e5, 2e5, 5e5, 1e6, 2e6];
/// Loads above this share of the ceiling are not asked for.
const OF_CEILING: f64 = 0.9;
/// Load by whose errors backends are ranked: all of them offer it.
const RANKED_PPS: f64 = 1e5;

impl Method for Pacing {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        table(
            outcome,
            TABLE,
            "How late frames are handed over",
            &[
                ("frame_size", "Frame size", ""),
                ("load_pps", "Load", "fps"),
                ("offered_load_pps", "Offered load", "fps"),
                ("unsent_percent", "Unsent", "%"),
                ("p50_us", "Median", "µs"),
                ("p99_us", "99 %", "µs"),
                ("p99_9_us", "99.9 %", "µs"),
                ("max_us", "Maximum", "µs"),
                ("longest_gap_us", "Longest gap of the loop", "µs"),
            ],
        );
        plot(outcome, PLOT, "Departure errors", PlotKind::Bars, "later than planned by at most", "% of frames", false);
        note(outcome, "Errors are upper ends of powers of two of nanoseconds. Frames are never early.");
        for_each_size(bed, params, outcome, |bed, pattern, outcome, _| {
            let ceiling = pattern.limits(bed).ceiling.map_or(f64::INFINITY, |c| c.pps() * OF_CEILING);
            let loads: Vec<f64> = LOADS.into_iter().filter(|l| *l <= ceiling).collect();
            for (step, load) in loads.iter().enumerate() {
                bed.progress("pacing", step as u32, loads.len() as u32);
                let purpose = format!("pacing {}: {load:.0} fps per port", pattern.size);
                let constant = Load::Constant { rate_pps: *load };
                let spec = pattern.trial(bed.ports(), purpose, constant, seconds(params, "trial_duration", 1.0))?;
                match bed.trial(&spec) {
                    Ok(result) => write(outcome, pattern, *load, &result),
                    Err(TestError::Unfit(why)) => {
                        note(outcome, format!("{load:.0} fps could not be offered: {}", why.join("; ")));
                        break;
                    }
                    Err(e) => return Err(e),
                }
                bed.settle(pause(params))?;
            }
            Ok(())
        })
    }

    fn estimate(&self, params: &Params) -> Duration {
        let trials = (LOADS.len() * sizes(params).len()) as f64;
        Duration::from_secs_f64(seconds(params, "trial_duration", 1.0) * trials + beside_s(params, trials, 0.0))
    }
}

fn write(outcome: &mut Outcome, pattern: &Pattern, load: f64, result: &TrialResult) {
    let health = &result.health;
    let error = |p: f64| health.departure_error.iter().find(|(at, _)| *at == p).map(|(_, ns)| *ns as f64 / 1e3);
    let unsent = health.unsent as f64 * 100.0 / result.intended().max(1) as f64;
    let cells = vec![
        pattern.size.to_string().into(),
        load.into(),
        result.offered_load().pps().into(),
        unsent.into(),
        error(50.0).into(),
        error(99.0).into(),
        error(99.9).into(),
        error(100.0).into(),
        (health.max_gap_ns as f64 / 1e3).into(),
    ];
    row(outcome, TABLE, Row { cells, trials: vec![result.trial], marks: Vec::new() });
    let series = format!("{} fps", group_digits(load as u64));
    let frames: u64 = health.departure_errors.iter().map(|(_, n)| n).sum();
    for (up_to_ns, n) in &health.departure_errors {
        let share = *n as f64 * 100.0 / frames.max(1) as f64;
        let label = Some(format!("{} µs", show_us(*up_to_ns)));
        let bar = Point {
            x: f64::from((up_to_ns + 1).ilog2()),
            y: share,
            label,
            trial: Some(result.trial),
            ..Point::default()
        };
        point(outcome, PLOT, &series, SeriesKind::Curve, bar);
    }
    if load == RANKED_PPS {
        outcome.ranks.push(RankFigure {
            key: "departure_error_p99_us".into(),
            title: "Departure error, 99 %, at 100,000 fps".into(),
            unit: "µs".into(),
            value: error(99.0),
            higher_is_better: false,
            tester_limited: false,
            // Powers of two.
            resolution: 0.5,
        });
    }
}

fn show_us(ns: u64) -> String {
    let us = ns as f64 / 1e3;
    if us < 10.0 { format!("{us:.1}") } else { format!("{us:.0}") }
}
