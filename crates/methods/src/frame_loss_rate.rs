//! Frame loss rate (RFC 2544 section 26.3, RFC 1242 section 3.6): share of frames lost over the load.
//!
//! The RFC takes the maximum rate from "section 18"; meant are section 20 and Appendix B.

use crate::Method;
use crate::parameters::{self, beside_s, common_deviations, pause, seconds, shorter, sizes};
use crate::report::{SeriesKind, for_each_size, note, plot, point, row, table};
use crate::testbed::{TestError, Testbed};
use drophammer_model::outcome::{Outcome, PlotKind, Point, RankFigure, Row};
use drophammer_model::quantity::FrameRate;
use drophammer_model::registry::{FigureSpec, ParamKind, ParamSpec, TestSpec};
use drophammer_model::suite::Params;
use drophammer_model::trial::Load;
use std::time::Duration;

/// The test.
pub struct FrameLossRate;

static SPEC: TestSpec = TestSpec {
    name: "frame_loss_rate",
    title: "Frame loss rate",
    summary: "share of frames lost from the highest load downwards until two loads in a row lose nothing",
    source: "RFC 2544 section 26.3",
    params: &[
        parameters::FRAME_SIZES,
        parameters::FAMILIES,
        parameters::DIRECTION,
        ParamSpec::new(
            "step",
            ParamKind::Percent,
            "20",
            "10",
            "step between loads in % of the highest (RFC 2544 section 26.3: at most 10 %), 0.1 or more",
        ),
        ParamSpec::new(
            "trial_duration",
            ParamKind::Duration,
            "500 ms",
            "60 s",
            "length of a trial (RFC 2544 section 24: 60 s)",
        ),
        parameters::PAUSE,
        parameters::DRAIN,
    ],
    figures: &[FigureSpec { key: "frame_loss_{size}_percent", help: "share of frames lost at the highest load in %" }],
    needs: &[],
};

const TABLE: &str = "frame_loss_rate";

/// Smallest step in %: a thousand loads are enough.
const LEAST_STEP: f64 = 0.1;

/// Loads in % of the highest: 100, then down by `step`, all above 0.
fn loads(params: &Params) -> Vec<f64> {
    let step = params.number("step").filter(|s| *s > 0.0).unwrap_or(10.0).max(LEAST_STEP);
    (0..).map(|i| 100.0 - f64::from(i) * step).take_while(|load| *load > 1e-9).collect()
}

impl Method for FrameLossRate {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        table(
            outcome,
            TABLE,
            "Frame loss rate",
            &[
                ("frame_size", "Frame size", ""),
                ("protocol", "Protocol", ""),
                ("load_percent", "Load, of the highest", "%"),
                ("line_percent", "Offered load, of line rate", "%"),
                ("intended_load_pps", "Intended load", "fps"),
                ("offered_load_pps", "Offered load", "fps"),
                ("offered", "Offered", "frames"),
                ("received", "Received", "frames"),
                ("lost", "Lost", "frames"),
                ("loss_percent", "Loss", "%"),
            ],
        );
        plot(outcome, TABLE, "Frame loss rate", PlotKind::Line, "offered load, % of line rate", "loss, %", false);
        note(outcome, "Rates are frames per second per sending port; frames are counted over all ports.");
        let loads = loads(params);
        for_each_size(bed, params, outcome, |bed, pattern, outcome, index| {
            let limits = pattern.limits(bed);
            note(outcome, format!("{}: {}.", pattern.size_text(), limits.statement()));
            let (mut clean, mut measured, mut unfit) = (0, 0, Vec::new());
            for (at, load) in loads.iter().enumerate() {
                let steps = loads.len() as u32;
                let what = format!("frame loss rate, {}", pattern.size_text());
                bed.progress(&what, index * steps + at as u32, sizes(params).len() as u32 * steps);
                let rate_pps = limits.max.pps() * load / 100.0;
                let purpose = format!("frame loss rate {}: {load:.0} %", pattern.size);
                let duration_s = seconds(params, "trial_duration", 60.0);
                let spec = pattern.trial(bed.ports(), purpose, Load::Constant { rate_pps }, duration_s)?;
                let result = match bed.trial(&spec) {
                    Err(TestError::Unfit(why)) => {
                        let (size, why) = (pattern.size_text(), why.join("; "));
                        let text = format!("the tester could not offer {} per port validly", FrameRate(rate_pps));
                        note(outcome, format!("{size}: {load:.1} % left out, {text} ({why})."));
                        unfit.push(why);
                        // Two loads are not in a row with an unknown one between them.
                        clean = 0;
                        continue;
                    }
                    other => other?,
                };
                measured += 1;
                let offered = result.offered_load();
                let loss = result.loss_ratio() * 100.0;
                let line_percent = offered.pps() / limits.line.pps() * 100.0;
                row(
                    outcome,
                    TABLE,
                    Row {
                        cells: vec![
                            pattern.size.to_string().into(),
                            pattern.protocol().into(),
                            (*load).into(),
                            line_percent.into(),
                            rate_pps.into(),
                            offered.pps().into(),
                            result.offered().into(),
                            result.received().into(),
                            result.lost().into(),
                            loss.into(),
                        ],
                        trials: vec![result.trial],
                        marks: limits
                            .tester_limited(offered)
                            .then(|| "near the tester's ceiling".into())
                            .into_iter()
                            .collect(),
                    },
                );
                let dot = Point { x: line_percent, y: loss, trial: Some(result.trial), ..Point::default() };
                point(outcome, TABLE, &pattern.size_text(), SeriesKind::Curve, dot.clone());
                point(outcome, TABLE, &pattern.size_text(), SeriesKind::Dots, dot);
                // Without the highest load there is no figure: that of a lower one is not comparable.
                if at == 0 {
                    outcome.ranks.push(RankFigure {
                        key: format!("frame_loss_{}_percent", pattern.size),
                        title: format!("Frame loss at the highest load, {}", pattern.size_text()),
                        unit: "%".into(),
                        value: Some(loss),
                        higher_is_better: false,
                        tester_limited: limits.below_line() && result.lost() == 0,
                        resolution: 0.05,
                    });
                }
                bed.settle(pause(params))?;
                clean = if result.lost() == 0 { clean + 1 } else { 0 };
                if clean == 2 {
                    return Ok(());
                }
            }
            if measured == 0 {
                return Err(TestError::Unfit(unfit));
            }
            note(outcome, format!("{}: no two successive loads were free of loss.", pattern.size_text()));
            Ok(())
        })
    }

    fn estimate(&self, params: &Params) -> Duration {
        let trials = loads(params).len() as f64 * sizes(params).len() as f64;
        Duration::from_secs_f64(seconds(params, "trial_duration", 60.0) * trials + beside_s(params, trials, 0.7))
    }

    fn deviations(&self, params: &Params) -> Vec<String> {
        let step = params.number("step").filter(|s| *s > 10.0);
        let step = step.map(|s| format!("steps of {s} % instead of at most 10 % (RFC 2544 section 26.3)"));
        let trial = shorter(params, "trial_duration", "trials", 60.0, "RFC 2544 section 24");
        common_deviations(params).into_iter().chain(step).chain(trial).collect()
    }
}
