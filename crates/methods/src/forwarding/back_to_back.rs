//! Back-to-back frames (RFC 9004, which updates RFC 2544 section 26.4): the longest burst at the highest rate that the
//! router forwards without loss, and the buffer time that follows from it.
//!
//! Each repetition is an independent search with loss verification (ETSI GS NFV-TST 009 section 12.3): a burst that
//! lost frames is sent again, and passes if any attempt passes. The search starts with a short burst and doubles it
//! until one fails, so that most bursts are not much longer than the answer; then it halves the interval.

use crate::kit::prelude::*;
use crate::{modifiers, routed};

/// The test.
pub struct BackToBack;

const REPEATS: Param<u32> =
    Param::new("repeats", "2", "50", "searches per frame size (RFC 2544 section 26.4: 50; RFC 9004 sets no number)");
const MAX_BURST: Param<Duration> =
    Param::new("max_burst_duration", "2 s", "30 s", "longest burst (RFC 9004 section 5.4: 2 s to 30 s)");
const STEP: Param<u64> =
    Param::new("step", "16", "1", "minimum step: the search ends when the bounds are this many frames apart");
const VERIFY: Param<u32> =
    Param::new("verify", "1", "2", "attempts at a burst before it counts as lossy (TST 009 section 12.3)");

const FRAMES: FigureSpec =
    FigureSpec::higher("back_to_back_{size}_frames", "frames", "average back-to-back value per sending port in frames");

static SPEC: TestSpec = TestSpec {
    name: "back_to_back",
    title: "Back-to-back frames",
    summary: "longest burst at the highest rate that the router forwards without loss, and the buffer time that it implies",
    source: "RFC 9004, RFC 2544 section 26.4",
    params: params![
        &TRAFFIC,
        &LABELLED,
        &MODIFIED,
        &[REPEATS.spec(), MAX_BURST.spec(), STEP.spec(), VERIFY.spec()],
        &SEARCH
    ],
    figures: &[FRAMES.shape()],
    tables: &[TABLE.shape(), routed::SHAPE, modifiers::SHAPE],
    needs: &[],
};

columns! {
    /// One frame size, over all its searches (RFC 9004 section 6). Bursts and rates are per sending port.
    struct BurstRow {
        frame_size: PacketSize,
        protocol: String,
        theoretical_frames: u64 = "Theoretical" ["frames"],
        average_frames: Option<f64> = "Average" ["frames"],
        min_frames: Option<f64> = "Minimum" ["frames"],
        max_frames: Option<f64> = "Maximum" ["frames"],
        stdev_frames: Option<f64> = "Standard deviation" ["frames"],
        implied_buffer_s: Option<f64> = "Implied buffer time" ["s"],
        corrected_buffer_s: Option<f64> = "Corrected buffer time" ["s"],
        throughput_pps: f64 ["fps"],
        burst_rate_pps: f64 ["fps"],
        step_frames: u64 = "Minimum step" ["frames"],
        max_burst_frames: u64 = "Longest burst" ["frames"],
        max_burst_s: f64 = "Longest burst" ["s"],
        searches: u64,
    }
}

/// Mark of a row without an answer, in the words of Bradner's table of 1989.
const FASTER: &str = "faster than the tester";
const BELOW_LINE: &str = "bursts below line rate, the tester cannot send faster";

const TABLE: TableSpec<BurstRow> = TableSpec::new("back_to_back", "Back-to-back frames");
const PLOT: PlotSpec =
    PlotSpec::new("back_to_back", "Longest burst without loss", PlotKind::Bars, "frame size", "frames per port")
        .logarithmic();
/// First burst of a search, in frames: about the size of a network card's ring. If a search starts far from the answer,
/// half of its bursts are spent on finding the bracket.
const FIRST_BURST: u64 = 512;

/// Number of bursts of a search on an ordinary device up to the first lossy one, for estimates: from 512 frames up to
/// about 4,000.
const DOUBLINGS: f64 = 4.0;

/// Number of bursts that then halve the bracket, until it is no wider than the step.
fn halvings(params: &Params) -> f64 {
    (2_048.0 / STEP.get(params) as f64).log2().max(0.0)
}

/// Result of one search.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// Longest burst without loss per sending port, in frames.
    frames: u64,
    /// True if even the longest allowed burst lost nothing.
    at_maximum: bool,
    /// True if the tester could not send some burst validly. The search ended there, and the answer may be longer.
    cut_short: bool,
}

/// Settings shared by all searches of one size.
struct Task<'a> {
    pattern: &'a Pattern,
    params: &'a Params,
    rate: FrameRate,
    longest: u64,
    repeat: u32,
}

impl Task<'_> {
    /// Returns true if a burst of `frames` passes.
    fn passes(&self, bed: &mut dyn Testbed, frames: u64, trials: &mut Vec<u64>) -> Result<bool, TestError> {
        for _ in 0..VERIFY.get(self.params) {
            let load = Load::Burst { frames, rate_pps: self.rate.pps() };
            let purpose = format!("back-to-back {}: search {}, {frames} frames", self.pattern.size, self.repeat + 1);
            let duration_s = frames as f64 / self.rate.pps();
            let spec = self.pattern.trial(bed.ports(), purpose, load, duration_s)?;
            let result = bed.trial(&spec)?;
            trials.push(result.trial);
            bed.settle(PAUSE.get(self.params))?;
            if result.lost() == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// # Errors
    /// Errors of the trials; [`TestError::Unfit`] only if no burst has passed before.
    fn search(&self, bed: &mut dyn Testbed, trials: &mut Vec<u64>) -> Result<Found, TestError> {
        let mut good = 0;
        match self.bisect(bed, trials, &mut good) {
            Ok(at_maximum) => Ok(Found { frames: good, at_maximum, cut_short: false }),
            Err(TestError::Unfit(_)) if good > 0 => Ok(Found { frames: good, at_maximum: false, cut_short: true }),
            Err(error) => Err(error),
        }
    }

    /// Moves `good` up to the longest burst that passes. Returns true if this is the longest allowed one.
    fn bisect(&self, bed: &mut dyn Testbed, trials: &mut Vec<u64>, good: &mut u64) -> Result<bool, TestError> {
        let step = STEP.get(self.params);
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

    fn plan(&self, params: &Params) -> Plan {
        // Assumes that the last doubling is lossy, and so is every other halving. Lossy bursts are sent again.
        let (repeats, halvings) = (f64::from(REPEATS.get(params)), halvings(params));
        let again = f64::from(VERIFY.get(params).saturating_sub(1)) * (1.0 + halvings / 2.0);
        let bursts = TrialCount::about((DOUBLINGS + halvings + again).round() as usize);
        Plan::by_size(params)
            .searching()
            .counting(bursts.times(repeats as usize))
            // A burst itself takes milliseconds.
            .taking(beside_s(params, (DOUBLINGS + halvings) * repeats, 0.5))
            .counts_alone()
            .deviating(common_deviations(params))
            .deviating(fewer(params, &REPEATS, "searches per frame size", 50, "RFC 2544 section 26.4"))
            .deviating(shorter(params, &MAX_BURST, "longest burst", 2.0, "RFC 2544 section 26.4"))
            .deviating(goal_deviations(params))
    }

    fn run(&self, bed: &mut dyn Testbed, params: &Params, outcome: &mut Outcome) -> Result<(), TestError> {
        TABLE.begin(outcome);
        PLOT.begin(outcome);
        note(outcome, "Bursts and rates are per sending port; all sending ports burst at the same time.");
        let width = zero_loss_goal(params).relative_width;
        let repeats = REPEATS.get(params);
        let each = |bed: &mut dyn Testbed, pattern: &Pattern, outcome: &mut Outcome, index| {
            let throughput = known_throughput(bed, pattern, params, outcome)?.unwrap_or_default();
            let limits = pattern.limits(bed);
            note_of(outcome, pattern, limits.statement());
            if throughput.pps() >= limits.max.pps() * (1.0 - width) {
                // RFC 9004 section 4: if the throughput is the highest possible rate, no burst overflows a buffer.
                faster(outcome, pattern, params, &limits, throughput);
                return Ok(());
            }
            let bound = known_bound(bed, pattern);
            let longest = limits.max.frames_in(MAX_BURST.get(params));
            let (mut found, mut trials, mut stopped, mut unfit) = (Vec::new(), Vec::new(), Ok(()), None);
            for repeat in 0..repeats {
                let what = format!("back-to-back, {}", pattern.size_text());
                bed.progress(&what);
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
            // The search in which a router died is missing, so the other searches must not replace it.
            let failed = matches!(stopped, Err(TestError::DutDied(_) | TestError::Failed(_)));
            write(outcome, pattern, params, &limits, (throughput, bound), (&found, failed), trials, f64::from(index));
            stopped?;
            // One successful search is enough for a result; the row shows the number of searches.
            unfit.filter(|_| found.is_empty()).map_or(Ok(()), Err)
        };
        for_each_size(bed, params, outcome, or_spoilt(|pattern| vec![figure(pattern)], each))
    }
}

/// A row without bursts.
fn row(pattern: &Pattern, params: &Params, limits: &Limits, throughput: FrameRate) -> BurstRow {
    BurstRow {
        frame_size: pattern.size.clone(),
        protocol: pattern.protocol(),
        theoretical_frames: limits.line.frames_in(MAX_BURST.get(params)),
        average_frames: None,
        min_frames: None,
        max_frames: None,
        stdev_frames: None,
        implied_buffer_s: None,
        corrected_buffer_s: None,
        throughput_pps: throughput.pps(),
        burst_rate_pps: limits.max.pps(),
        step_frames: STEP.get(params),
        max_burst_frames: limits.max.frames_in(MAX_BURST.get(params)),
        max_burst_s: MAX_BURST.seconds(params),
        searches: 0,
    }
}

/// The row of a router that forwards the highest rate and therefore has no longest burst.
fn faster(outcome: &mut Outcome, pattern: &Pattern, params: &Params, limits: &Limits, throughput: FrameRate) {
    let below = limits.below_line().then(|| BELOW_LINE.to_owned());
    let marks = std::iter::once(FASTER.to_owned()).chain(below);
    TABLE.add(outcome, row(pattern, params, limits, throughput), [], marks);
    let why = format!(
        "the throughput, {throughput}, is the highest rate that the tester can offer, so no burst fills a buffer"
    );
    note_of(outcome, pattern, why.clone());
    outcome.ranks.push(figure(pattern).nothing(why));
}

/// Adds the row and the figure. If the router failed after the searches `found`, the figure has no value.
#[allow(clippy::too_many_arguments)] // everything that a row of RFC 9004 section 6 reports
fn write(
    outcome: &mut Outcome,
    pattern: &Pattern,
    params: &Params,
    limits: &Limits,
    (throughput, bound): (FrameRate, Option<LowerBound>),
    (found, failed): (&[Found], bool),
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
            "in {at_maximum} of {} searches even the longest burst lost nothing: the value is a lower bound",
            found.len()
        ));
    }
    let cut_short = found.iter().filter(|f| f.cut_short).count();
    if cut_short > 0 {
        marks.push(format!(
            "in {cut_short} of {} searches the tester could not send a burst validly: the value is a lower bound",
            found.len()
        ));
    }
    if least == 0.0 {
        marks.push("a burst shorter than the minimum step lost frames".to_owned());
    }
    if limits.below_line() {
        marks.push(BELOW_LINE.to_owned());
    }
    if let Some(bound) = bound {
        marks.push(format!("corrected buffer time unknown, the throughput is a lower bound: {bound}"));
    }
    if found.len() < REPEATS.get(params) as usize {
        marks.push(format!("{} of {} searches", found.len(), REPEATS.get(params)));
    }
    let step = STEP.get(params);
    TABLE.add(
        outcome,
        BurstRow {
            average_frames: Some(average),
            min_frames: Some(least),
            max_frames: Some(most),
            stdev_frames: stdev(&values),
            implied_buffer_s: Some(implied),
            // RFC 9004 section 6: frames that the router forwards during the burst take no buffer. A throughput that is
            // only a lower bound would give too large a buffer.
            corrected_buffer_s: bound.is_none().then(|| implied - implied * throughput.pps() / rate),
            searches: found.len() as u64,
            ..row(pattern, params, limits, throughput)
        },
        trials,
        marks,
    );
    let label = Some(pattern.label());
    let bar = Point { x, y: average, label, range: Some((least, most)), trial: None };
    PLOT.curve(outcome, "back-to-back frames", bar);
    outcome.ranks.push(RankFigure {
        value: (!failed).then_some(average),
        tester_limited: cut_short > 0,
        // The suite asks for no longer burst (`max_burst_duration`).
        capped: at_maximum > 0 && cut_short == 0,
        // At another rate, another burst fits into the same buffer.
        load_pps: Some(rate),
        resolution: (step as f64 / most.max(1.0)).min(1.0),
        ..figure(pattern).because("the router failed in one of the searches")
    });
}

/// The longest burst of a pattern, without a value yet.
fn figure(pattern: &Pattern) -> RankFigure {
    let title = format!("Back-to-back frames, {}", pattern.size_text());
    FRAMES.of(&[("size", &pattern.size)], title, None)
}
