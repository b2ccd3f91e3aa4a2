//! The load up to which the tester, through a loop without router, loses nothing: loss up to this load is the router's.

use crate::Method;
use crate::parameters::{self, beside_s, count, pause, seconds, sizes};
use crate::pattern::Pattern;
use crate::report::{for_each_size, note, row, table};
use crate::testbed::{TestError, Testbed};
use drophammer_model::outcome::{Outcome, RankFigure, Row};
use drophammer_model::quantity::FrameRate;
use drophammer_model::registry::{ParamKind, ParamSpec, TestSpec};
use drophammer_model::suite::Params;
use drophammer_model::trial::{Load, TrialResult};
use std::time::Duration;

/// The test.
pub struct LossFloor;

static SPEC: TestSpec = TestSpec {
    name: "loss_floor",
    title: "Loss floor",
    summary: "the highest load at which the tester itself loses nothing in several trials",
    source: "own; compare RFC 2544 section 26.1 without a router",
    params: &[
        parameters::FRAME_SIZES,
        parameters::FAMILIES,
        parameters::DIRECTION,
        ParamSpec::new("trial_duration", ParamKind::Duration, "1 s", "10 s", "length of a trial"),
        ParamSpec::new("repeats", ParamKind::Count, "3", "5", "trials in a row without loss"),
        parameters::PAUSE,
        parameters::DRAIN,
    ],
    figures: &[],
    needs: &[],
};

/// Key of the table; [`FLOOR`] is the column that says how far the tester is good.
pub const TABLE: &str = "loss_floor";
/// Column of the load.
pub const FLOOR: &str = "loss_free_pps";
/// From the ceiling down by this factor until trials are valid and lossless.
const STEP: f64 = 0.85;
/// Steps at most, down to 2 % of the ceiling.
const STEPS: i32 = 24;

impl Method for LossFloor {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        let repeats = count(params, "repeats");
        table(
            outcome,
            TABLE,
            "Load up to which the tester loses nothing",
            &[
                ("frame_size", "Frame size", ""),
                ("ceiling_pps", "Ceiling", "fps"),
                (FLOOR, "Loss-free load", "fps"),
                ("ceiling_percent", "Of the ceiling", "%"),
                ("l2_mbps", "Layer 2", "Mbit/s"),
                ("frames", "Frames without loss", ""),
            ],
        );
        note(
            outcome,
            format!("Rates are per sending port; {repeats} valid trials in a row without loss are asked for."),
        );
        for_each_size(bed, params, outcome, |bed, pattern, outcome, index| {
            let limits = pattern.limits(bed);
            let from = limits.ceiling.unwrap_or(limits.line);
            for step in 0..STEPS {
                bed.progress(
                    "loss floor",
                    index * STEPS as u32 + step as u32,
                    sizes(params).len() as u32 * STEPS as u32,
                );
                let rate = from.scaled(STEP.powi(step));
                let results = lossless(bed, pattern, rate, params)?;
                if results.len() == repeats as usize {
                    write(outcome, pattern, limits.ceiling, rate, &results);
                    return Ok(());
                }
            }
            Err(TestError::Unfit(vec![format!("frames are lost even at {}", from.scaled(STEP.powi(STEPS - 1)))]))
        })
    }

    fn estimate(&self, params: &Params) -> Duration {
        // A few steps with one trial each, and the last one in full.
        let trials = (4 + count(params, "repeats")) as f64 * sizes(params).len() as f64;
        Duration::from_secs_f64(seconds(params, "trial_duration", 1.0) * trials + beside_s(params, trials, 0.5))
    }
}

/// Trials at `rate` until one loses a frame or is spoilt; as many as asked for when none does.
fn lossless(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    rate: FrameRate,
    params: &Params,
) -> Result<Vec<TrialResult>, TestError> {
    let mut results = Vec::new();
    for repeat in 0..count(params, "repeats") {
        let purpose = format!("loss floor {}: {rate}, trial {}", pattern.size, repeat + 1);
        let load = Load::Constant { rate_pps: rate.pps() };
        let spec = pattern.trial(bed.ports(), purpose, load, seconds(params, "trial_duration", 1.0))?;
        match bed.trial(&spec) {
            Ok(result) if result.lost() == 0 => results.push(result),
            Ok(_) | Err(TestError::Unfit(_)) => break,
            Err(e) => return Err(e),
        }
        bed.settle(pause(params))?;
    }
    Ok(results)
}

fn write(
    outcome: &mut Outcome,
    pattern: &Pattern,
    ceiling: Option<FrameRate>,
    rate: FrameRate,
    results: &[TrialResult],
) {
    let cells = vec![
        pattern.size.to_string().into(),
        ceiling.map(|c| c.pps()).into(),
        rate.pps().into(),
        ceiling.map(|c| rate.pps() / c.pps() * 100.0).into(),
        (pattern.l2_bps(rate) / 1e6).into(),
        results.iter().map(TrialResult::received).sum::<u64>().into(),
    ];
    row(outcome, TABLE, Row { cells, trials: results.iter().map(|r| r.trial).collect(), marks: Vec::new() });
    outcome.ranks.push(RankFigure {
        key: format!("loss_free_{}_pps", pattern.size),
        title: format!("Loss-free load, {}", pattern.size_text()),
        unit: "fps".into(),
        value: Some(rate.pps()),
        higher_is_better: true,
        tester_limited: false,
        resolution: 1.0 - STEP,
    });
}
