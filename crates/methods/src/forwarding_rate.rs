//! Forwarding rate at maximum offered load, FRMOL (RFC 2285 section 3.6.2, RFC 2889 section 5.6; the maximum receive rate
//! of FD.io CSIT).

use crate::Method;
use crate::parameters::{self, beside_s, common_deviations, count, pause, seconds, shorter, sizes};
use crate::pattern::{RETREAT, RETREATS, TESTER_LIMITED_SHARE};
use crate::report::{SeriesKind, extremes, for_each_size, mean, note, plot, point, row, stdev, table};
use crate::testbed::{TestError, Testbed};
use drophammer_model::outcome::{Outcome, PlotKind, Point, RankFigure, Row};
use drophammer_model::quantity::FrameRate;
use drophammer_model::registry::{FigureSpec, ParamKind, ParamSpec, TestSpec};
use drophammer_model::suite::Params;
use drophammer_model::trial::{Load, TrialResult};
use std::time::Duration;

/// The test.
pub struct ForwardingRate;

static SPEC: TestSpec = TestSpec {
    name: "forwarding_rate",
    title: "Forwarding rate at maximum load",
    summary: "what the router still forwards when it is offered as much as the line or the tester can",
    source: "RFC 2285 section 3.6.2, RFC 2889 section 5.6",
    params: &[
        parameters::FRAME_SIZES,
        parameters::FAMILIES,
        parameters::DIRECTION,
        ParamSpec::new(
            "trial_duration",
            ParamKind::Duration,
            "500 ms",
            "30 s",
            "length of a trial (RFC 2889 section 5.6.3: 30 s)",
        ),
        ParamSpec::new("repeats", ParamKind::Count, "3", "10", "trials per frame size"),
        parameters::PAUSE,
        parameters::DRAIN,
    ],
    figures: &[FigureSpec {
        key: "forwarding_rate_{size}_pps",
        help: "forwarding rate per sending port at maximum offered load in fps, mean",
    }],
    needs: &[],
};

const TABLE: &str = "forwarding_rate";

impl Method for ForwardingRate {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        table(
            outcome,
            TABLE,
            "Forwarding rate at maximum offered load",
            &[
                ("frame_size", "Frame size", ""),
                ("protocol", "Protocol", ""),
                ("intended_load_pps", "Intended load", "fps"),
                ("offered_load_pps", "Offered load", "fps"),
                ("forwarding_rate_pps", "FRMOL, mean", "fps"),
                ("stdev_pps", "Standard deviation", "fps"),
                ("min_pps", "Minimum", "fps"),
                ("max_pps", "Maximum", "fps"),
                ("loss_percent", "Loss", "%"),
                ("trials", "Trials", ""),
            ],
        );
        plot(outcome, TABLE, "Forwarding rate at maximum load", PlotKind::Bars, "frame size", "fps per port", false);
        note(
            outcome,
            "Rates are frames per second per sending port. The intended load is line rate, or less where the tester \
             cannot; the offered load is what it sent of it. Frames that left a buffer after the last departure count as received, not as rate.",
        );
        let repeats = count(params, "repeats");
        for_each_size(bed, params, outcome, |bed, pattern, outcome, index| {
            let limits = pattern.limits(bed);
            let mut limit = limits.line;
            let mut retreats = 0;
            let mut results: Vec<TrialResult> = Vec::new();
            let mut stopped = Ok(());
            while results.len() < repeats as usize {
                bed.progress(
                    &format!("forwarding rate, {}", pattern.size_text()),
                    index * repeats + results.len() as u32,
                    sizes(params).len() as u32 * repeats,
                );
                let load = Load::Maximum { limit_pps: limit.pps() };
                let purpose = format!("forwarding rate {}: trial {}", pattern.size, results.len() + 1);
                let spec = pattern.trial(bed.ports(), purpose, load, seconds(params, "trial_duration", 1.0))?;
                match bed.trial(&spec) {
                    Ok(result) => results.push(result),
                    Err(TestError::Unfit(_)) if retreats < RETREATS => {
                        retreats += 1;
                        // Line rate itself may be far beyond what the tester ever offers.
                        let highest = limits.ceiling.map_or(limit, |c| FrameRate(c.pps().min(limit.pps())));
                        limit = highest.scaled(RETREAT);
                        // Trials of another load are no repetitions of these.
                        results.clear();
                        continue;
                    }
                    Err(error) => {
                        stopped = Err(error);
                        break;
                    }
                }
                if let Err(error) = bed.settle(pause(params)) {
                    stopped = Err(error);
                    break;
                }
            }
            if retreats > 0 {
                let size = pattern.size_text();
                note(outcome, format!("{size}: the tester cannot offer more than {limit} per port validly."));
            }
            let rates: Vec<f64> = results.iter().map(|r| r.forwarding_rate().pps()).collect();
            let Some((least, most)) = extremes(&rates) else { return stopped };
            let average = mean(&rates);
            let offered: u64 = results.iter().map(TrialResult::offered).sum();
            let lost: u64 = results.iter().map(TrialResult::lost).sum();
            let offered_loads: Vec<f64> = results.iter().map(|r| r.offered_load().pps()).collect();
            let near_limit = retreats > 0 && average >= TESTER_LIMITED_SHARE * limit.pps();
            let tester_limited = near_limit || limits.tester_limited(FrameRate(average));
            let mut marks = Vec::new();
            if retreats > 0 {
                marks.push("the tester could not offer line rate validly".to_owned());
            }
            if tester_limited {
                marks.push("tester-limited".to_owned());
            }
            if rates.len() < repeats as usize {
                marks.push(format!("{} of {repeats} trials", rates.len()));
            }
            row(
                outcome,
                TABLE,
                Row {
                    cells: vec![
                        pattern.size.to_string().into(),
                        pattern.protocol().into(),
                        limit.pps().into(),
                        mean(&offered_loads).into(),
                        average.into(),
                        stdev(&rates).into(),
                        least.into(),
                        most.into(),
                        (offered > 0).then(|| lost as f64 / offered as f64 * 100.0).into(),
                        (results.len() as u64).into(),
                    ],
                    trials: results.iter().map(|r| r.trial).collect(),
                    marks,
                },
            );
            let bar =
                |y, range| Point { x: f64::from(index), y, label: Some(pattern.size.to_string()), range, trial: None };
            point(outcome, TABLE, "theoretical line rate", SeriesKind::Reference, bar(limits.line.pps(), None));
            point(outcome, TABLE, "offered", SeriesKind::Curve, bar(mean(&offered_loads), None));
            point(outcome, TABLE, "forwarded", SeriesKind::Curve, bar(average, Some((least, most))));
            outcome.ranks.push(RankFigure {
                key: format!("forwarding_rate_{}_pps", pattern.size),
                title: format!("Forwarding rate at maximum load, {}", pattern.size_text()),
                unit: "fps".into(),
                value: Some(average),
                higher_is_better: true,
                tester_limited,
                // What the repetitions themselves differ by cannot tell two routers apart.
                resolution: ((most - least) / most.max(1.0)).max(0.01),
            });
            stopped
        })
    }

    fn estimate(&self, params: &Params) -> Duration {
        let trials = f64::from(count(params, "repeats")) * sizes(params).len() as f64;
        Duration::from_secs_f64(seconds(params, "trial_duration", 1.0) * trials + beside_s(params, trials, 1.0))
    }

    fn deviations(&self, params: &Params) -> Vec<String> {
        let trial = shorter(params, "trial_duration", "trials", 30.0, "RFC 2889 section 5.6.3");
        common_deviations(params).into_iter().chain(trial).collect()
    }
}
