//! How evenly the tester sends: the delay of each frame relative to the schedule of its load.

use crate::kit::prelude::*;
use crate::selftest::TRIAL_DURATION;
use drophammer_model::quantity::group_digits;

/// The test.
pub struct Pacing;

const DEPARTURE_ERROR: FigureSpec =
    FigureSpec::lower("departure_error_p99_us", "µs", "99th percentile of the error of departure times");

static SPEC: TestSpec = TestSpec {
    name: "pacing",
    title: "Pacing",
    summary: "how late frames depart, by load",
    source: "own; RFC 2544 section 21 requires frames at the stated rate, not bursts with this mean",
    params: params![&TRAFFIC, &[TRIAL_DURATION.spec()], &AFTER_TRIAL],
    figures: &[],
    tables: &[],
    needs: &[],
};

columns! {
    /// One load.
    struct PacingRow {
        frame_size: PacketSize,
        load_pps: f64 ["fps"],
        offered_load_pps: f64 ["fps"],
        unsent_percent: f64 ["%"],
        p50_us: Option<f64> = "Median" ["µs"],
        p99_us: Option<f64> = "99 %" ["µs"],
        p99_9_us: Option<f64> = "99.9 %" ["µs"],
        max_us: Option<f64> = "Maximum" ["µs"],
        longest_gap_us: f64 = "Longest gap of the loop" ["µs"],
    }
}

const TABLE: TableSpec<PacingRow> = TableSpec::new("pacing", "How late frames depart");
const PLOT: PlotSpec = PlotSpec::new(
    "departure_errors",
    "Departure errors",
    PlotKind::Bars,
    "later than planned by at most",
    "% of frames",
);
/// Loads per sending port in frames per second, if the tester can offer them.
const LOADS: [f64; 7] = [1e3, 1e4, 1e5, 2e5, 5e5, 1e6, 2e6];
/// Loads above this share of the ceiling are skipped.
const OF_CEILING: f64 = 0.9;
/// Load at which errors rank backends, because all backends can offer it.
const RANKED_PPS: f64 = 1e5;

impl Method for Pacing {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        Plan::by_size(params).trials(LOADS.len(), TRIAL_DURATION.seconds(params), 0.0)
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        PLOT.begin(outcome);
        note(outcome, "Errors are rounded up to powers of two, in nanoseconds. Frames are never early.");
        for_each_size(bed, params, outcome, |bed, pattern, outcome, _| {
            let ceiling = pattern.limits(bed).ceiling.map_or(f64::INFINITY, |c| c.pps() * OF_CEILING);
            for load in LOADS.into_iter().filter(|load| *load <= ceiling) {
                bed.progress("pacing");
                let purpose = format!("pacing {}: {load:.0} fps per port", pattern.size);
                let constant = Load::Constant { rate_pps: load };
                let spec = pattern.trial(bed.ports(), purpose, constant, TRIAL_DURATION.seconds(params))?;
                match bed.trial(&spec) {
                    Ok(result) => write(outcome, pattern, load, &result),
                    Err(TestError::Unfit(why)) => {
                        note(outcome, format!("{load:.0} fps could not be offered: {}", why.join("; ")));
                        break;
                    }
                    Err(e) => return Err(e),
                }
                bed.settle(PAUSE.get(params))?;
            }
            Ok(())
        })
    }
}

fn write(outcome: &mut Outcome, pattern: &Pattern, load: f64, result: &TrialResult) {
    let health = &result.health;
    let error = |p: f64| health.departure_error.iter().find(|(at, _)| *at == p).map(|(_, ns)| *ns as f64 / 1e3);
    let unsent = health.unsent as f64 * 100.0 / result.intended().max(1) as f64;
    let row = PacingRow {
        frame_size: pattern.size.clone(),
        load_pps: load,
        offered_load_pps: result.offered_load().pps(),
        unsent_percent: unsent,
        p50_us: error(50.0),
        p99_us: error(99.0),
        p99_9_us: error(99.9),
        max_us: error(100.0),
        longest_gap_us: health.max_gap_ns as f64 / 1e3,
    };
    TABLE.add(outcome, row, [result.trial], []);
    let series = format!("{} fps", group_digits(load as u64));
    let frames: u64 = health.departure_errors.iter().map(|(_, n)| n).sum();
    for (up_to_ns, n) in &health.departure_errors {
        let share = *n as f64 * 100.0 / frames.max(1) as f64;
        let label = Some(format!("{} µs", show_us(*up_to_ns)));
        let bar = xy_of(f64::from((up_to_ns + 1).ilog2()), share, result.trial);
        PLOT.curve(outcome, &series, Point { label, ..bar });
    }
    if load == RANKED_PPS {
        let title = "Departure error, 99 %, at 100,000 fps";
        // Errors are known only to powers of two.
        let resolution = 0.5;
        outcome.ranks.push(RankFigure { resolution, ..DEPARTURE_ERROR.of(&[], title, error(99.0)) });
    }
}

fn show_us(ns: u64) -> String {
    let us = ns as f64 / 1e3;
    if us < 10.0 { format!("{us:.1}") } else { format!("{us:.0}") }
}
