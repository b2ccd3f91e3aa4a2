//! The load up to which the tester loses nothing through a loop without router: up to this load, the router causes any
//! loss.

use crate::kit::prelude::*;
use crate::selftest::TRIAL_DURATION;
use drophammer_model::outcome::FPS_PER_PORT;

/// The test.
pub struct LossFloor;

/// `repeats`
pub const REPEATS: Param<u32> = Param::new("repeats", "3", "5", "trials in a row without loss");

const LOSS_FREE: FigureSpec =
    FigureSpec::higher("loss_free_{size}_pps", FPS_PER_PORT, "highest load at which the tester itself loses nothing");

static SPEC: TestSpec = TestSpec {
    name: "loss_floor",
    title: "Loss floor",
    summary: "the highest load at which the tester itself loses nothing in several trials",
    source: "own; compare RFC 2544 section 26.1 without a router",
    params: params![&TRAFFIC, &[TRIAL_DURATION.spec(), REPEATS.spec()], &AFTER_TRIAL],
    figures: &[],
    tables: &[],
    needs: &[],
};

columns! {
    /// One frame size. Rates are per sending port.
    pub struct FloorRow {
        frame_size: PacketSize,
        ceiling_pps: Option<f64> ["fps"],
        loss_free_pps: f64 = "Loss-free load" ["fps"],
        ceiling_percent: Option<f64> = "Share of the ceiling" ["%"],
        l2_mbps: f64 = "Layer 2" ["Mbit/s"],
        frames: u64 = "Frames without loss",
    }
}

/// The table; `loss_free_pps` is the load up to which the tester loses nothing.
pub const TABLE: TableSpec<FloorRow> = TableSpec::new("loss_floor", "Load up to which the tester loses nothing");
/// Factor by which the load is reduced, from the ceiling downwards, until trials are valid and lossless.
const STEP: f64 = 0.85;
/// Maximum number of steps, down to 2 % of the ceiling.
const STEPS: i32 = 24;

impl Method for LossFloor {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        // A few steps with one trial each, and the last one with all trials.
        let trials = TrialCount::about(4 + REPEATS.get(params) as usize);
        Plan::by_size(params).trials(trials, TRIAL_DURATION.seconds(params), 0.5)
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        let repeats = REPEATS.get(params);
        TABLE.begin(outcome);
        note(
            outcome,
            format!("Rates are per sending port; the test requires {repeats} valid trials in a row without loss."),
        );
        for_each_size(bed, params, outcome, |bed, pattern, outcome, _| {
            let limits = pattern.limits(bed);
            let from = limits.ceiling.unwrap_or(limits.line);
            for step in 0..STEPS {
                bed.progress("loss floor");
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
}

/// Runs trials at `rate` until one loses a frame or is spoilt; runs all requested trials if none does.
fn lossless(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    rate: FrameRate,
    params: &Params,
) -> Result<Vec<TrialResult>, TestError> {
    let mut results = Vec::new();
    for repeat in 0..REPEATS.get(params) {
        let purpose = format!("loss floor {}: {rate}, trial {}", pattern.size, repeat + 1);
        let load = Load::Constant { rate_pps: rate.pps() };
        let spec = pattern.trial(bed.ports(), purpose, load, TRIAL_DURATION.seconds(params))?;
        match bed.trial(&spec) {
            Ok(result) if result.lost() == 0 => results.push(result),
            Ok(_) | Err(TestError::Unfit(_)) => break,
            Err(e) => return Err(e),
        }
        bed.settle(PAUSE.get(params))?;
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
    let row = FloorRow {
        frame_size: pattern.size.clone(),
        ceiling_pps: ceiling.map(FrameRate::pps),
        loss_free_pps: rate.pps(),
        ceiling_percent: ceiling.map(|c| rate.pps() / c.pps() * 100.0),
        l2_mbps: pattern.l2_bps(rate) / 1e6,
        frames: results.iter().map(TrialResult::received).sum(),
    };
    TABLE.add(outcome, row, trials(results), []);
    let title = format!("Loss-free load, {}", pattern.size_text());
    outcome.ranks.push(RankFigure {
        resolution: 1.0 - STEP,
        ..LOSS_FREE.of(&[("size", &pattern.size)], title, Some(rate.pps()))
    });
}
