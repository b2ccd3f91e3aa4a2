//! Back-to-back frames (RFC 9004, which updates RFC 2544 section 26.4): the longest burst at the highest rate that is
//! forwarded without loss, and the buffer time that follows from it.
//!
//! Each repetition is an independent search with loss verification (ETSI GS NFV-TST 009 section 12.3): a burst that lost
//! frames is sent again, and passes if any of the attempts does. The bracket is found by doubling from a short burst, so
//! that most bursts are about as long as the answer and not as the longest allowed; then it is halved.

use crate::Method;
use crate::parameters::{self, beside_s, common_deviations, count, fewer, pause, seconds, shorter, sizes};
use crate::pattern::{Limits, Pattern};
use crate::report::{SeriesKind, extremes, for_each_size, mean, note, plot, point, row, stdev, table};
use crate::testbed::{TestError, Testbed};
use crate::throughput_search::{estimate, goal_deviations, known_throughput, zero_loss_goal};
use drophammer_model::outcome::{Outcome, PlotKind, Point, RankFigure, Row};
use drophammer_model::quantity::FrameRate;
use drophammer_model::registry::{FigureSpec, ParamKind, ParamSpec, TestSpec};
use drophammer_model::suite::Params;
use drophammer_model::trial::Load;
use std::time::Duration;

/// The test.
pub struct BackToBack;

static SPEC: TestSpec = TestSpec {
    name: "back_to_back",
    title: "Back-to-back frames",
    summary: "longest burst at the highest rate that is forwarded without loss, and the buffer time behind it",
    source: "RFC 9004, RFC 2544 section 26.4",
    params: &[
        parameters::FRAME_SIZES,
        parameters::FAMILIES,
        parameters::DIRECTION,
        ParamSpec::new(
            "repeats",
            ParamKind::Count,
            "2",
            "50",
            "searches per frame size (RFC 2544 section 26.4: 50; RFC 9004 leaves it open)",
        ),
        ParamSpec::new(
            "max_burst_duration",
            ParamKind::Duration,
            "2 s",
            "30 s",
            "longest burst (RFC 9004 section 5.4: 2 s and more, to 30 s)",
        ),
        ParamSpec::new(
            "step",
            ParamKind::Count,
            "16",
            "1",
            "minimum step: the search ends when the bounds are this many frames apart",
        ),
        ParamSpec::new(
            "verify",
            ParamKind::Count,
            "1",
            "2",
            "attempts at a burst before it counts as lossy (TST 009 section 12.3)",
        ),
        parameters::GOAL,
        parameters::FINAL_TRIAL,
        parameters::WIDTH,
        parameters::MAX_LOAD,
        parameters::SEARCH_MAX,
        parameters::PAUSE,
        parameters::DRAIN,
    ],
    figures: &[FigureSpec {
        key: "back_to_back_{size}_frames",
        help: "average back-to-back value per sending port in frames",
    }],
    needs: &[],
};

const TABLE: &str = "back_to_back";
/// First burst of a search, in frames: about a ring of a network card. Half of the bursts of a search that starts far from
/// the answer go into finding the bracket.
const FIRST_BURST: u64 = 512;

/// One search.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// Longest burst without loss per sending port, in frames.
    frames: u64,
    /// Even the longest allowed burst lost nothing.
    at_maximum: bool,
    /// The tester could not send some burst validly: the search ended there and the answer may be longer.
    cut_short: bool,
}

/// What all searches of one size share.
struct Task<'a> {
    pattern: &'a Pattern,
    params: &'a Params,
    rate: FrameRate,
    longest: u64,
    repeat: u32,
}

impl Task<'_> {
    /// Does a burst of `frames` pass?
    fn passes(&self, bed: &mut dyn Testbed, frames: u64, trials: &mut Vec<u64>) -> Result<bool, TestError> {
        for _ in 0..count(self.params, "verify") {
            let load = Load::Burst { frames, rate_pps: self.rate.pps() };
            let purpose = format!("back-to-back {}: search {}, {frames} frames", self.pattern.size, self.repeat + 1);
            let duration_s = frames as f64 / self.rate.pps();
            let spec = self.pattern.trial(bed.ports(), purpose, load, duration_s)?;
            let result = bed.trial(&spec)?;
            trials.push(result.trial);
            bed.settle(pause(self.params))?;
            if result.lost() == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// # Errors
    /// Those of the trials; unfit only when not a single burst was shown to pass before.
    fn search(&self, bed: &mut dyn Testbed, trials: &mut Vec<u64>) -> Result<Found, TestError> {
        let mut good = 0;
        match self.bisect(bed, trials, &mut good) {
            Ok(at_maximum) => Ok(Found { frames: good, at_maximum, cut_short: false }),
            Err(TestError::Unfit(_)) if good > 0 => Ok(Found { frames: good, at_maximum: false, cut_short: true }),
            Err(error) => Err(error),
        }
    }

    /// Moves `good` up to the longest burst that passes; true when that is the longest allowed one.
    fn bisect(&self, bed: &mut dyn Testbed, trials: &mut Vec<u64>, good: &mut u64) -> Result<bool, TestError> {
        let step = self.params.count("step").unwrap_or(1).max(1);
        let mut next = FIRST_BURST.min(self.longest);
        let mut bad = loop {
            if !self.passes(bed, next, trials)? {
                break next;
            }
            *good = next;
            if *good == self.longest {
                return Ok(true);
            }
            next = next.saturating_mul(2).min(self.longest);
        };
        while bad - *good > step {
            let middle = *good + (bad - *good) / 2;
            if self.passes(bed, middle, trials)? {
                *good = middle;
            } else {
                bad = middle;
            }
        }
        Ok(false)
    }
}

impl Method for BackToBack {
    fn spec(&self) -> &'static TestSpec {
        &SPEC
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        prepare(outcome);
        let width = zero_loss_goal(params).relative_width;
        let repeats = count(params, "repeats");
        for_each_size(bed, params, outcome, |bed, pattern, outcome, index| {
            let throughput = known_throughput(bed, pattern, params, outcome)?.unwrap_or_default();
            let limits = pattern.limits(bed);
            note(outcome, format!("{}: {}.", pattern.size_text(), limits.statement()));
            if throughput.pps() >= limits.max.pps() * (1.0 - width) {
                // RFC 9004 section 4: where throughput is the highest rate no burst can overflow a buffer.
                return Err(TestError::NotApplicable(format!(
                    "the throughput, {throughput}, is the highest rate that can be offered, so no burst fills a buffer"
                )));
            }
            let longest =
                limits.max.frames_in(params.duration("max_burst_duration").unwrap_or(Duration::from_secs(30)));
            let (mut found, mut trials, mut stopped, mut unfit) = (Vec::new(), Vec::new(), Ok(()), None);
            for repeat in 0..repeats {
                let what = format!("back-to-back, {}", pattern.size_text());
                bed.progress(&what, index * repeats + repeat, sizes(params).len() as u32 * repeats);
                let task = Task { pattern, params, rate: limits.max, longest: longest.max(1), repeat };
                match task.search(bed, &mut trials) {
                    Ok(result) => found.push(result),
                    Err(TestError::Unfit(why)) => unfit = Some(TestError::Unfit(why)),
                    Err(error) => {
                        stopped = Err(error);
                        break;
                    }
                }
            }
            write(outcome, pattern, params, &limits, throughput, &found, trials, f64::from(index));
            stopped?;
            // One search that came to something is an answer, the row says of how many.
            unfit.filter(|_| found.is_empty()).map_or(Ok(()), Err)
        })
    }

    fn estimate(&self, params: &Params) -> Duration {
        estimate(params, &[zero_loss_goal(params)]) + self.estimate_known(params)
    }

    fn estimate_known(&self, params: &Params) -> Duration {
        // From 512 frames up to some 4,000, and down to the step: a burst itself takes milliseconds.
        let step = params.count("step").unwrap_or(1).max(1) as f64;
        let bursts = 4.0 + (2_048.0 / step).log2().max(0.0);
        let bursts = bursts * f64::from(count(params, "repeats")) * sizes(params).len() as f64;
        Duration::from_secs_f64(beside_s(params, bursts, 0.5))
    }

    fn deviations(&self, params: &Params) -> Vec<String> {
        let few = fewer(params, "repeats", "searches per frame size", 50, "RFC 2544 section 26.4");
        let short = shorter(params, "max_burst_duration", "longest burst", 2.0, "RFC 2544 section 26.4");
        common_deviations(params).into_iter().chain(few).chain(short).chain(goal_deviations(params)).collect()
    }
}

fn prepare(outcome: &mut Outcome) {
    table(
        outcome,
        TABLE,
        "Back-to-back frames",
        &[
            ("frame_size", "Frame size", ""),
            ("protocol", "Protocol", ""),
            ("average_frames", "Average", "frames"),
            ("min_frames", "Minimum", "frames"),
            ("max_frames", "Maximum", "frames"),
            ("stdev_frames", "Standard deviation", "frames"),
            ("implied_buffer_s", "Implied buffer time", "s"),
            ("corrected_buffer_s", "Corrected buffer time", "s"),
            ("throughput_pps", "Throughput", "fps"),
            ("burst_rate_pps", "Burst rate", "fps"),
            ("step_frames", "Minimum step", "frames"),
            ("max_burst_frames", "Longest burst", "frames"),
            ("max_burst_s", "Longest burst", "s"),
            ("searches", "Searches", ""),
        ],
    );
    plot(outcome, TABLE, "Longest burst without loss", PlotKind::Bars, "frame size", "frames per port", true);
    note(outcome, "Bursts and rates are per sending port; all sending ports burst at once.");
}

#[allow(clippy::too_many_arguments)] // everything that a row of RFC 9004 section 6 reports
fn write(
    outcome: &mut Outcome,
    pattern: &Pattern,
    params: &Params,
    limits: &Limits,
    throughput: FrameRate,
    found: &[Found],
    trials: Vec<u64>,
    x: f64,
) {
    let values: Vec<f64> = found.iter().map(|f| f.frames as f64).collect();
    let Some((least, most)) = extremes(&values) else { return };
    let average = mean(&values);
    let rate = limits.max.pps();
    let implied = average / rate;
    let at_maximum = found.iter().filter(|f| f.at_maximum).count();
    let mut marks = Vec::new();
    if at_maximum > 0 {
        marks.push(format!(
            "in {at_maximum} of {} searches even the longest burst lost nothing: at least that",
            found.len()
        ));
    }
    let cut_short = found.iter().filter(|f| f.cut_short).count();
    if cut_short > 0 {
        marks.push(format!(
            "in {cut_short} of {} searches the tester could not send a burst validly: at least that",
            found.len()
        ));
    }
    if least == 0.0 {
        marks.push("a burst shorter than the minimum step lost frames".to_owned());
    }
    if limits.below_line() {
        marks.push("bursts below line rate, the tester cannot send faster".to_owned());
    }
    if found.len() < count(params, "repeats") as usize {
        marks.push(format!("{} of {} searches", found.len(), count(params, "repeats")));
    }
    let step = params.count("step").unwrap_or(1).max(1);
    row(
        outcome,
        TABLE,
        Row {
            cells: vec![
                pattern.size.to_string().into(),
                pattern.protocol().into(),
                average.into(),
                least.into(),
                most.into(),
                stdev(&values).into(),
                implied.into(),
                // RFC 9004 section 6: frames that the router forwards during the burst take no buffer.
                (implied - implied * throughput.pps() / rate).into(),
                throughput.pps().into(),
                rate.into(),
                step.into(),
                limits.max.frames_in(params.duration("max_burst_duration").unwrap_or(Duration::from_secs(30))).into(),
                seconds(params, "max_burst_duration", 30.0).into(),
                (found.len() as u64).into(),
            ],
            trials,
            marks,
        },
    );
    let label = Some(pattern.size.to_string());
    let bar = Point { x, y: average, label, range: Some((least, most)), trial: None };
    point(outcome, TABLE, "back-to-back frames", SeriesKind::Curve, bar);
    outcome.ranks.push(RankFigure {
        key: format!("back_to_back_{}_frames", pattern.size),
        title: format!("Back-to-back frames, {}", pattern.size_text()),
        unit: "frames".into(),
        value: Some(average),
        higher_is_better: true,
        tester_limited: at_maximum + cut_short > 0,
        resolution: ((most - least).max(step as f64) / most.max(1.0)).clamp(0.01, 1.0),
    });
}
