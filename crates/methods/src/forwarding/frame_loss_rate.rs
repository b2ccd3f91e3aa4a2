//! Frame loss rate (RFC 2544 section 26.3, RFC 1242 section 3.6): share of lost frames as a function of the load.
//!
//! The RFC refers to the maximum rate in "section 18"; it means section 20 and Appendix B.

use crate::kit::prelude::*;
use crate::{modifiers, routed};

/// The test.
pub struct FrameLossRate;

const STEP: Param<Percent> = Param::new(
    "step",
    "20",
    "10",
    "step between loads, in % of the highest load (RFC 2544 section 26.3: at most 10 %), 0.1 or more",
);
const TRIAL_DURATION: Param<Duration> = trial_of_60_s("500 ms");

const LOSS: FigureSpec =
    FigureSpec::lower_by_difference("frame_loss_{size}_percent", "%", "share of frames lost at the highest load in %")
        .by(LEAST_LOSS_PERCENT);

static SPEC: TestSpec = TestSpec {
    name: "frame_loss_rate",
    title: "Frame loss rate",
    summary: "share of frames lost at each load, from the highest downwards, until two loads in a row lose nothing",
    source: "RFC 2544 section 26.3",
    params: params![&TRAFFIC, &LABELLED, &MODIFIED, &[STEP.spec(), TRIAL_DURATION.spec()], &AFTER_TRIAL],
    figures: &[LOSS.shape()],
    tables: &[TABLE.shape(), routed::SHAPE, modifiers::SHAPE],
    needs: &[],
};

columns! {
    /// One load. Rates are per sending port, frames over all ports.
    struct LossRow {
        frame_size: PacketSize,
        protocol: String,
        load_percent: f64 = "Share of the highest load" ["%"],
        line_percent: f64 = "Offered load, of line rate" ["%"],
        intended_load_pps: f64 ["fps"],
        offered_load_pps: f64 ["fps"],
        offered: u64 ["frames"],
        received: u64 ["frames"],
        lost: u64 ["frames"],
        loss_percent: f64 ["%"],
    }
}

const TABLE: TableSpec<LossRow> = TableSpec::new("frame_loss_rate", "Frame loss rate");
const PLOT: PlotSpec =
    PlotSpec::new("frame_loss_rate", "Frame loss rate", PlotKind::Line, "intended load, % of line rate", "loss, %");

/// Smallest step in %. It allows a thousand loads, which is enough.
const LEAST_STEP: f64 = 0.1;

/// Loads in % of the highest: 100, then down by `step`, all above 0.
fn loads(params: &Params) -> Vec<f64> {
    let step = STEP.get(params).0.max(LEAST_STEP);
    (0..).map(|i| 100.0 - f64::from(i) * step).take_while(|load| *load > 1e-9).collect()
}

/// The figure of a size: `loss` in % at the highest load.
fn rank(pattern: &Pattern, rate_pps: f64, loss: Option<f64>) -> RankFigure {
    let title = format!("Frame loss at the highest load, {}", pattern.size_text());
    RankFigure { load_pps: Some(rate_pps), ..LOSS.of(&[("size", &pattern.size)], title, loss) }
}

impl Method for FrameLossRate {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn plan(&self, params: &Params) -> Plan {
        let most = loads(params).len();
        let step = Some(STEP.get(params).0).filter(|s| *s > 10.0);
        Plan::by_size(params)
            .trials(TrialCount::between(most.min(2), most), TRIAL_DURATION.seconds(params), 0.7)
            .counts_alone()
            .deviating(common_deviations(params))
            .deviating(step.map(|s| format!("steps of {s} % instead of at most 10 % (RFC 2544 section 26.3)")))
            .deviating(shorter(params, &TRIAL_DURATION, "trials", 60.0, "RFC 2544 section 24"))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        PLOT.begin(outcome);
        note(outcome, "Rates are frames per second per sending port; frames are counted over all ports.");
        let loads = loads(params);
        let each = watched(|bed, pattern, outcome, _| {
            let limits = pattern.limits(bed);
            note_of(outcome, pattern, limits.statement());
            let (mut clean, mut measured, mut unfit) = (0, 0, Vec::new());
            for (at, load) in loads.iter().enumerate() {
                bed.progress(&format!("frame loss rate, {}", pattern.size_text()));
                let rate_pps = limits.max.pps() * load / 100.0;
                let purpose = format!("frame loss rate {}: {load:.0} %", pattern.size);
                let duration_s = TRIAL_DURATION.seconds(params);
                let spec = pattern.trial(bed.ports(), purpose, Load::Constant { rate_pps }, duration_s)?;
                let result = match bed.trial(&spec) {
                    Err(TestError::Unfit(why)) => {
                        let what = format!("{load:.1} % left out,");
                        note_unfit(outcome, pattern, &what, FrameRate(rate_pps), &why);
                        if at == 0 {
                            outcome.ranks.push(rank(pattern, rate_pps, None).spoilt(why.join("; ")));
                        }
                        unfit.push(why.join("; "));
                        // Two loads are not successive if the load between them is unknown.
                        clean = 0;
                        continue;
                    }
                    other => other?,
                };
                measured += 1;
                let offered = result.offered_load();
                let loss = result.loss_ratio() * 100.0;
                let line_percent = offered.pps() / limits.line.pps() * 100.0;
                let near_ceiling = limits.tester_limited(offered).then(|| "near the tester's ceiling".into());
                let unreached = note_reached(bed, outcome, pattern, &format!("at {load:.1} %"), &[result.trial]);
                TABLE.add(
                    outcome,
                    LossRow {
                        frame_size: pattern.size.clone(),
                        protocol: pattern.protocol(),
                        load_percent: *load,
                        line_percent,
                        intended_load_pps: rate_pps,
                        offered_load_pps: offered.pps(),
                        offered: result.offered(),
                        received: result.received(),
                        lost: result.lost(),
                        loss_percent: loss,
                    },
                    [result.trial],
                    near_ceiling.into_iter().chain(unreached),
                );
                // The offered load differs a little from round to round, which would leave the curve without a median.
                let dot = xy_of(rate_pps / limits.line.pps() * 100.0, loss, result.trial);
                PLOT.curve(outcome, &pattern.size_text(), dot.clone());
                PLOT.dot(outcome, &pattern.size_text(), dot);
                // Without the highest load there is no figure: a lower load is not comparable.
                if at == 0 {
                    let tester_limited = limits.below_line() && result.lost() == 0;
                    outcome.ranks.push(RankFigure { tester_limited, ..rank(pattern, rate_pps, Some(loss)) });
                }
                bed.settle(PAUSE.get(params))?;
                clean = if result.lost() == 0 { clean + 1 } else { 0 };
                if clean == 2 {
                    return Ok(());
                }
            }
            if measured == 0 {
                return Err(TestError::Unfit(unfit));
            }
            note_of(outcome, pattern, "no two successive loads were free of loss");
            Ok(())
        });
        for_each_size(bed, params, outcome, each)
    }
}
