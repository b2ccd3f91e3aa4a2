//! System recovery (RFC 2544 section 26.5): how long a router goes on losing frames after an overload has ended.
//!
//! The RFC says to subtract "Timestamp B from Timestamp A"; B, the last lost frame, is the later one, so meant is B - A.

use crate::Method;
use crate::parameters::{self, beside_s, common_deviations, count, pause, seconds, shorter, sizes};
use crate::pattern::Pattern;
use crate::report::{SeriesKind, extremes, for_each_size, mean, note, plot, point, row, table};
use crate::testbed::{TestError, Testbed};
use crate::throughput_search::{estimate, goal_deviations, known_throughput, zero_loss_goal};
use drophammer_model::outcome::{Outcome, PlotKind, Point, RankFigure, Row};
use drophammer_model::quantity::FrameRate;
use drophammer_model::registry::{FigureSpec, ParamKind, ParamSpec, TestSpec};
use drophammer_model::suite::Params;
use drophammer_model::trial::{Bin, Load, LoadStep, TrialResult};
use std::time::Duration;

/// The test.
pub struct SystemRecovery;

static SPEC: TestSpec = TestSpec {
    name: "system_recovery",
    title: "System recovery",
    summary: "how long the router goes on losing frames after an overload of 110 % of its throughput is halved",
    source: "RFC 2544 section 26.5",
    params: &[
        parameters::FRAME_SIZES,
        parameters::FAMILIES,
        parameters::DIRECTION,
        ParamSpec::new(
            "overload_duration",
            ParamKind::Duration,
            "1 s",
            "60 s",
            "time at 110 % of the throughput (RFC 2544 section 26.5: 60 s)",
        ),
        ParamSpec::new(
            "recovery_duration",
            ParamKind::Duration,
            "1 s",
            "60 s",
            "time at half of that, in which recovery is awaited",
        ),
        ParamSpec::new("repeats", ParamKind::Count, "1", "5", "trials per frame size (RFC 2544 section 26.5: several)"),
        ParamSpec::new("bin", ParamKind::Duration, "50 ms", "100 ms", "width of time bins of the forwarding rate"),
        parameters::GOAL,
        parameters::FINAL_TRIAL,
        parameters::WIDTH,
        parameters::MAX_LOAD,
        parameters::SEARCH_MAX,
        parameters::PAUSE,
        parameters::DRAIN,
    ],
    figures: &[FigureSpec {
        key: "system_recovery_{size}_ms",
        help: "mean time from the end of the overload to the last lost frame in ms",
    }],
    needs: &[],
};

const TABLE: &str = "system_recovery";

/// What one trial says.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Recovery {
    /// Lost frames until this many seconds after the step.
    After(f64),
    /// Lost nothing even under overload: nothing to recover from.
    NotOverloaded,
    /// Lost frames to the end of the trial.
    Never,
}

/// Reads the recovery off a trial whose load was halved `step_s` seconds after the first departure and that sent for
/// `total_s`; `gap_s` is the time between two departures after the step.
fn recovery(result: &TrialResult, step_s: f64, total_s: f64, gap_s: f64) -> Recovery {
    match result.groups.iter().filter_map(|g| g.last_loss_ns).max() {
        None => Recovery::NotOverloaded,
        // 20 frames in a row must have come through before the end, else nothing tells that losses were over.
        Some(ns) if ns as f64 / 1e9 > total_s - 20.0 * gap_s => Recovery::Never,
        Some(ns) => Recovery::After((ns as f64 / 1e9 - step_s).max(0.0)),
    }
}

impl Method for SystemRecovery {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        let overload_s = seconds(params, "overload_duration", 60.0);
        let recovery_s = seconds(params, "recovery_duration", 60.0);
        let bin_s = seconds(params, "bin", 0.1);
        let repeats = count(params, "repeats");
        prepare(outcome, overload_s);
        for_each_size(bed, params, outcome, |bed, pattern, outcome, index| {
            let Some(throughput) = known_throughput(bed, pattern, params, outcome)? else {
                return Err(TestError::NotApplicable("no throughput was found to overload".into()));
            };
            let limits = pattern.limits(bed);
            let overload = FrameRate((throughput.pps() * 1.1).min(limits.max.pps()));
            // Closer than the search is exact, it may be no overload at all.
            if overload.pps() <= throughput.pps() * (1.0 + zero_loss_goal(params).relative_width) {
                return Err(TestError::NotApplicable(format!(
                    "the throughput, {throughput}, is the highest rate that can be offered: no overload is possible"
                )));
            }
            let reduced = overload.scaled(0.5);
            let steps = vec![
                LoadStep { duration_s: overload_s, rate_pps: overload.pps() },
                LoadStep { duration_s: recovery_s, rate_pps: reduced.pps() },
            ];
            let mut results: Vec<TrialResult> = Vec::new();
            let stopped = (0..repeats).try_for_each(|repeat| {
                let what = format!("system recovery, {}", pattern.size_text());
                bed.progress(&what, index * repeats + repeat, sizes(params).len() as u32 * repeats);
                let purpose = format!("system recovery {}: trial {}", pattern.size, repeat + 1);
                let load = Load::Steps { steps: steps.clone() };
                let mut spec = pattern.trial(bed.ports(), purpose, load, overload_s + recovery_s)?;
                spec.bin_s = Some(bin_s);
                results.push(bed.trial(&spec)?);
                bed.settle(pause(params))
            });
            let times = Times { overload_s, total_s: overload_s + recovery_s, bin_s };
            write(outcome, pattern, throughput, overload, &results, times);
            stopped
        })
    }

    fn estimate(&self, params: &Params) -> Duration {
        estimate(params, &[zero_loss_goal(params)]) + self.estimate_known(params)
    }

    fn estimate_known(&self, params: &Params) -> Duration {
        let trial_s = seconds(params, "overload_duration", 60.0) + seconds(params, "recovery_duration", 60.0);
        let trials = f64::from(count(params, "repeats")) * sizes(params).len() as f64;
        Duration::from_secs_f64(trial_s * trials + beside_s(params, trials, 1.0))
    }

    fn deviations(&self, params: &Params) -> Vec<String> {
        let overload = shorter(params, "overload_duration", "overload", 60.0, "RFC 2544 section 26.5");
        common_deviations(params).into_iter().chain(overload).chain(goal_deviations(params)).collect()
    }
}

fn prepare(outcome: &mut Outcome, overload_s: f64) {
    table(
        outcome,
        TABLE,
        "System recovery",
        &[
            ("frame_size", "Frame size", ""),
            ("protocol", "Protocol", ""),
            ("throughput_pps", "Throughput", "fps"),
            ("overload_pps", "Overload", "fps"),
            ("overload_percent", "Overload, of throughput", "%"),
            ("reduced_pps", "Reduced load", "fps"),
            ("loss_percent", "Loss in all", "%"),
            ("recovery_ms", "Recovery time, mean", "ms"),
            ("min_ms", "Minimum", "ms"),
            ("max_ms", "Maximum", "ms"),
            ("resolution_ms", "Resolution", "ms"),
            ("trials", "Trials", ""),
        ],
    );
    plot(outcome, TABLE, "Forwarding rate over time", PlotKind::Line, "time, s", "arrivals, fps per port", false);
    if let Some(plot) = outcome.plots.last_mut() {
        plot.events.push((overload_s, "overload ends".into()));
    }
    note(
        outcome,
        "Recovery time is the departure of the last lost frame minus the instant at which the load is halved. Rates are \
         frames per second per sending port.",
    );
}

#[derive(Clone, Copy)]
struct Times {
    overload_s: f64,
    total_s: f64,
    bin_s: f64,
}

fn write(
    outcome: &mut Outcome,
    pattern: &Pattern,
    throughput: FrameRate,
    overload: FrameRate,
    results: &[TrialResult],
    times: Times,
) {
    let Some(first) = results.first() else { return };
    let reduced = overload.scaled(0.5);
    let gap_s = 1.0 / reduced.pps();
    let found: Vec<Recovery> = results.iter().map(|r| recovery(r, times.overload_s, times.total_s, gap_s)).collect();
    let after: Vec<f64> =
        found.iter().filter_map(|r| if let Recovery::After(s) = r { Some(s * 1e3) } else { None }).collect();
    let with = |what: Recovery| found.iter().filter(|r| **r == what).count();
    let (idle, never) = (with(Recovery::NotOverloaded), with(Recovery::Never));
    let mut marks = Vec::new();
    if idle > 0 {
        marks.push(format!("no loss under overload in {idle} of {} trials: nothing to recover from", found.len()));
    }
    if never > 0 {
        marks.push(format!("still losing frames at the end of {never} of {} trials", found.len()));
    }
    if overload.pps() < throughput.pps() * 1.0999 {
        marks.push(format!(
            "overload is {:.1} % of throughput, more cannot be offered",
            overload.pps() / throughput.pps() * 100.0
        ));
    }
    // A mean over the trials that did recover would flatter a router that sometimes does not.
    let mean_ms = (never == 0 && !after.is_empty()).then(|| mean(&after));
    let offered: u64 = results.iter().map(TrialResult::offered).sum();
    let lost: u64 = results.iter().map(TrialResult::lost).sum();
    row(
        outcome,
        TABLE,
        Row {
            cells: vec![
                pattern.size.to_string().into(),
                pattern.protocol().into(),
                throughput.pps().into(),
                overload.pps().into(),
                (overload.pps() / throughput.pps() * 100.0).into(),
                reduced.pps().into(),
                (offered > 0).then(|| lost as f64 / offered as f64 * 100.0).into(),
                mean_ms.into(),
                extremes(&after).map(|(least, _)| least).into(),
                extremes(&after).map(|(_, most)| most).filter(|_| never == 0).into(),
                (gap_s * 1e3).into(),
                (results.len() as u64).into(),
            ],
            trials: results.iter().map(|r| r.trial).collect(),
            marks,
        },
    );
    for (at, bin) in bins(first).into_iter().enumerate() {
        let rate = bin.arrived as f64 / times.bin_s / f64::from(first.senders.max(1));
        let dot = Point { x: at as f64 * times.bin_s, y: rate, trial: Some(first.trial), ..Point::default() };
        point(outcome, TABLE, &pattern.size_text(), SeriesKind::Curve, dot);
    }
    if idle < found.len() {
        outcome.ranks.push(RankFigure {
            key: format!("system_recovery_{}_ms", pattern.size),
            title: format!("System recovery, {}", pattern.size_text()),
            unit: "ms".into(),
            value: mean_ms,
            higher_is_better: false,
            tester_limited: false,
            resolution: 0.05,
        });
    }
}

/// Bins of all groups added up.
fn bins(result: &TrialResult) -> Vec<Bin> {
    let mut sum: Vec<Bin> = Vec::new();
    for group in &result.groups {
        sum.resize(sum.len().max(group.bins.len()), Bin::default());
        for (sum, bin) in sum.iter_mut().zip(&group.bins) {
            sum.offered += bin.offered;
            sum.delivered += bin.delivered;
            sum.arrived += bin.arrived;
        }
    }
    sum
}
