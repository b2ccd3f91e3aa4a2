//! System recovery (RFC 2544 section 26.5): how long a router continues to lose frames after an overload has ended.
//!
//! The RFC subtracts "Timestamp B from Timestamp A". But B, the last lost frame, is the later one, so B - A is meant.

use crate::episodes::{Episode, bins, episodes};
use crate::kit::prelude::*;
use crate::lossy::Lossy;
use crate::route_tests::CONFORMANT;
use crate::{modifiers, routed};
use drophammer_model::trial::{Bin, LoadStep};

/// The test.
pub struct SystemRecovery;

const OVERLOAD_DURATION: Param<Duration> =
    Param::new("overload_duration", "1 s", "60 s", "time at 110 % of the throughput (RFC 2544 section 26.5: 60 s)");
const RECOVERY_DURATION: Param<Duration> = Param::new(
    "recovery_duration",
    "1 s",
    "60 s",
    "time at half the overload rate, during which the router should recover",
);
const REPEATS: Param<u32> = Param::new("repeats", "1", "5", "trials per frame size (RFC 2544 section 26.5: several)");
const BIN: Param<Duration> = Param::new("bin", "50 ms", "100 ms", "width of time bins of the forwarding rate");

const RECOVERY: FigureSpec = FigureSpec::lower_by_difference(
    "system_recovery_{size}_ms",
    "ms",
    "mean time from the end of the overload to the last lost frame in ms",
);

static SPEC: TestSpec = TestSpec {
    name: "system_recovery",
    title: "System recovery",
    summary: "how long the router continues to lose frames after an overload of 110 % of its throughput is halved",
    source: "RFC 2544 section 26.5",
    params: params![
        &TRAFFIC,
        &LABELLED,
        &MODIFIED,
        &[OVERLOAD_DURATION.spec(), RECOVERY_DURATION.spec(), REPEATS.spec(), BIN.spec()],
        &SEARCH,
    ],
    figures: &[RECOVERY.shape()],
    tables: &[TABLE.shape(), routed::SHAPE, modifiers::SHAPE],
    needs: &[],
};

columns! {
    /// One frame size, over all its trials. Rates are per sending port.
    struct RecoveryRow {
        frame_size: PacketSize,
        protocol: String,
        throughput_pps: f64 ["fps"],
        overload_pps: f64 ["fps"],
        overload_percent: f64 = "Overload, relative to throughput" ["%"],
        reduced_pps: f64 = "Reduced load" ["fps"],
        loss_percent: Option<f64> = "Total loss" ["%"],
        recovery_ms: Option<f64> = "Recovery time, mean" ["ms"],
        min_ms: Option<f64> = "Minimum" ["ms"],
        max_ms: Option<f64> = "Maximum" ["ms"],
        resolution_ms: f64 ["ms"],
        trials: u64,
    }
}

const TABLE: TableSpec<RecoveryRow> = TableSpec::new("system_recovery", "System recovery");
const PLOT: PlotSpec =
    PlotSpec::new("system_recovery", "Forwarding rate over time", PlotKind::Line, "time, s", "arrivals, fps per port");

/// Result of one trial.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Recovery {
    /// Lost frames until this many seconds after the step.
    After(f64),
    /// Lost nothing even under overload, so there is no recovery.
    NotOverloaded,
    /// Lost frames to the end of the trial.
    Never,
}

/// The recovery of a trial, from its time bins and the departure of its last lost frame.
fn recovery_of(result: &TrialResult, times: Times, gap_s: f64) -> (Recovery, Vec<Episode>) {
    let last_loss = result.groups.iter().filter_map(|g| g.last_loss_ns).max();
    recovery(last_loss.map(|ns| ns as f64 / 1e9), &bins(result), times, gap_s)
}

/// The end of the loss that began under overload, and the episodes of loss that began later and have another cause.
/// `gap_s` is the time between two departures at the reduced load.
fn recovery(last_loss_s: Option<f64>, bins: &[Bin], times: Times, gap_s: f64) -> (Recovery, Vec<Episode>) {
    let Some(last_s) = last_loss_s else {
        return (Recovery::NotOverloaded, Vec::new());
    };
    let all = episodes(bins, times.bin_s);
    let began_later = |e: &Episode| e.from_s > times.overload_s + times.bin_s;
    let (later, under_load): (Vec<Episode>, Vec<Episode>) = all.into_iter().partition(began_later);
    let end_s = match under_load.last() {
        None => return (Recovery::NotOverloaded, later),
        // The time of the last lost frame is exact; the end of any other episode is known only to the width of a bin.
        Some(_) if later.is_empty() => last_s,
        Some(last) => last.to_s,
    };
    // The loss may have continued unless 20 frames in a row arrived before the end.
    if later.is_empty() && end_s > times.total_s - 20.0 * gap_s {
        return (Recovery::Never, later);
    }
    (Recovery::After((end_s - times.overload_s).max(0.0)), later)
}

impl Method for SystemRecovery {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let trial_s = OVERLOAD_DURATION.seconds(params) + RECOVERY_DURATION.seconds(params);
        Plan::by_size(params)
            .searching()
            .trials(REPEATS.get(params) as usize, trial_s, 1.0)
            .deviating(common_deviations(params))
            .deviating(shorter(params, &OVERLOAD_DURATION, "overload", 60.0, "RFC 2544 section 26.5"))
            .deviating(fewer(params, &REPEATS, "trials per frame size", 5, CONFORMANT))
            .deviating(goal_deviations(params))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        let (overload_s, recovery_s) = (OVERLOAD_DURATION.seconds(params), RECOVERY_DURATION.seconds(params));
        let bin_s = BIN.seconds(params);
        let repeats = REPEATS.get(params);
        prepare(outcome, overload_s);
        let mut lossy = Lossy::default();
        let each = |bed: &mut dyn Testbed, pattern: &Pattern, outcome: &mut Outcome, _| {
            let Some(throughput) = known_throughput(bed, pattern, params, outcome)? else {
                lossy.leave_out(outcome, pattern);
                return Ok(());
            };
            let bound = known_bound(bed, pattern);
            let limits = pattern.limits(bed);
            let overload = FrameRate((throughput.pps() * 1.1).min(limits.max.pps()));
            // If the load is closer to the throughput than the precision of the search, it may not be an overload.
            if overload.pps() <= throughput.pps() * (1.0 + zero_loss_goal(params).relative_width) {
                let why = format!(
                    "the throughput, {throughput}, is the highest rate that the tester can offer: no overload is possible"
                );
                outcome.ranks.push(figure(pattern, None, bin_s).nothing(why.clone()));
                return Err(TestError::NotApplicable(why));
            }
            let reduced = overload.scaled(0.5);
            let steps = vec![
                LoadStep { duration_s: overload_s, rate_pps: overload.pps() },
                LoadStep { duration_s: recovery_s, rate_pps: reduced.pps() },
            ];
            let mut results: Vec<TrialResult> = Vec::new();
            let stopped = (0..repeats).try_for_each(|repeat| {
                let what = format!("system recovery, {}", pattern.size_text());
                bed.progress(&what);
                let purpose = format!("system recovery {}: trial {}", pattern.size, repeat + 1);
                let load = Load::Steps { steps: steps.clone() };
                let mut spec = pattern.trial(bed.ports(), purpose, load, overload_s + recovery_s)?;
                spec.bin_s = Some(bin_s);
                results.push(bed.trial(&spec)?);
                bed.settle(PAUSE.get(params))
            });
            let times = Times { overload_s, total_s: overload_s + recovery_s, bin_s };
            // The trial in which a router died is missing, so the other trials must not replace it.
            let failed = matches!(stopped, Err(TestError::DutDied(_) | TestError::Failed(_)));
            write(outcome, pattern, (throughput, bound), overload, &results, times, failed);
            stopped
        };
        for_each_size(bed, params, outcome, or_spoilt(|pattern| vec![figure(pattern, None, bin_s)], each))?;
        lossy.end()
    }
}

fn prepare(outcome: &mut Outcome, overload_s: f64) {
    TABLE.begin(outcome);
    PLOT.begin(outcome);
    PLOT.event(outcome, overload_s, "overload ends");
    note(
        outcome,
        "Recovery time is the departure of the last lost frame minus the instant at which the load is halved. Loss that begins \
         again later, after two time bins without loss, has another cause: it is marked and not part of the time. Rates are frames \
         per second per sending port.",
    );
}

#[derive(Clone, Copy)]
struct Times {
    overload_s: f64,
    total_s: f64,
    bin_s: f64,
}

/// Adds the row and the figure. If the router `failed`, the figure has no value.
fn write(
    outcome: &mut Outcome,
    pattern: &Pattern,
    (throughput, bound): (FrameRate, Option<LowerBound>),
    overload: FrameRate,
    results: &[TrialResult],
    times: Times,
    failed: bool,
) {
    let Some(first) = results.first() else { return };
    let reduced = overload.scaled(0.5);
    let gap_s = 1.0 / reduced.pps();
    let (found, later): (Vec<Recovery>, Vec<Vec<Episode>>) =
        results.iter().map(|r| recovery_of(r, times, gap_s)).unzip();
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
    for (result, episode) in results.iter().zip(&later).flat_map(|(r, all)| all.iter().map(move |e| (r, e))) {
        marks.push(format!(
            "trial {}: {} frames lost again from {:.3} to {:.3} s, not part of the recovery",
            result.trial, episode.lost, episode.from_s, episode.to_s
        ));
    }
    let smaller = smaller_overload(throughput, bound, overload);
    marks.extend(smaller.clone());
    // A mean over only the trials with a recovery would favour a router that sometimes does not recover.
    let mean_ms = (never == 0 && !after.is_empty()).then(|| mean(&after));
    TABLE.add(
        outcome,
        RecoveryRow {
            frame_size: pattern.size.clone(),
            protocol: pattern.protocol(),
            throughput_pps: throughput.pps(),
            overload_pps: overload.pps(),
            overload_percent: overload.pps() / throughput.pps() * 100.0,
            reduced_pps: reduced.pps(),
            loss_percent: loss_percent(results),
            recovery_ms: mean_ms,
            min_ms: extremes(&after).map(|(least, _)| least),
            max_ms: extremes(&after).map(|(_, most)| most).filter(|_| never == 0),
            resolution_ms: gap_s * 1e3,
            trials: results.len() as u64,
        },
        trials(results),
        marks,
    );
    for (at, bin) in bins(first).into_iter().enumerate() {
        let rate = bin.arrived as f64 / times.bin_s / f64::from(first.senders.max(1));
        PLOT.curve(outcome, &pattern.size_text(), xy_of(at as f64 * times.bin_s, rate, first.trial));
    }
    let figure =
        RankFigure { resolution: gap_s * 1e3, ..figure(pattern, mean_ms.filter(|_| !failed), times.bin_s.max(gap_s)) };
    outcome.ranks.push(match (failed, idle < found.len(), smaller) {
        (true, ..) => figure.because("the router failed in one of the trials"),
        // Another router had to recover from more. A router that does not even recover from less has failed.
        (false, true, Some(smaller)) if never == 0 => figure.beyond(smaller),
        (false, true, _) => figure.because("it still lost frames at the end of a trial"),
        (false, false, _) => figure.nothing("no loss under the overload: nothing to recover from"),
    });
}

/// Why the overload is, or may be, below 110 % of the throughput; `None` if it is not.
fn smaller_overload(throughput: FrameRate, bound: Option<LowerBound>, overload: FrameRate) -> Option<String> {
    let share = overload.pps() / throughput.pps();
    if share < 1.0999 {
        return Some(format!("overload is {:.1} % of throughput, the tester cannot offer more", share * 100.0));
    }
    bound.map(|_| "the throughput is only a lower bound, so the overload may be below 110 % of it".to_owned())
}

/// The recovery time of a pattern. Times that differ by at most a time bin, `least_s`, count as equal, although the
/// last lost frame gives each of them more exactly.
fn figure(pattern: &Pattern, ms: Option<f64>, least_s: f64) -> RankFigure {
    let title = format!("System recovery, {}", pattern.size_text());
    RECOVERY.by(least_s * 1e3).of(&[("size", &pattern.size)], title, ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times { overload_s: 1.0, total_s: 2.0, bin_s: 0.05 };

    /// The recovery of a trial of 40 bins that lost frames in the bins `lossy`, the last one at `last_s`.
    fn of(lossy: &[usize], last_s: Option<f64>) -> (Recovery, usize) {
        let bin = |at| Bin { offered: 100, delivered: if lossy.contains(&at) { 99 } else { 100 }, arrived: 100 };
        let bins: Vec<Bin> = (0..40).map(bin).collect();
        let (recovery, later) = recovery(last_s, &bins, TIMES, 0.0005);
        (recovery, later.len())
    }

    #[test]
    fn a_frame_that_is_lost_long_after_is_no_recovery() {
        let under_load = [3, 4, 5, 10, 18, 19, 20, 21];
        let exactly = |recovery: Recovery, s: f64| matches!(recovery, Recovery::After(t) if (t - s).abs() < 1e-9);
        let (recovery, later) = of(&under_load, Some(1.072));
        assert!(exactly(recovery, 0.072) && later == 0, "{recovery:?}");
        // With another episode at 1.7 s, the recovery is known only to the width of a bin.
        let (recovery, later) = of(&[&under_load[..], &[34]].concat(), Some(1.713));
        assert!(exactly(recovery, 0.1) && later == 1, "{recovery:?}");
        // The overload itself lost nothing.
        assert_eq!(of(&[34], Some(1.713)), (Recovery::NotOverloaded, 1));
        assert_eq!(of(&[], None), (Recovery::NotOverloaded, 0));
        // A router that loses frames until the end.
        assert_eq!(of(&(5..40).collect::<Vec<_>>(), Some(1.9999)), (Recovery::Never, 0));
        // Loss that ended before the load was halved.
        let (recovery, later) = of(&[3, 4], Some(0.21));
        assert!(exactly(recovery, 0.0) && later == 0, "{recovery:?}");
    }
}
