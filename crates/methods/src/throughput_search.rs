//! The search for the throughput of one traffic pattern on a testbed, for the test of that name and for all that need to
//! know the throughput first.

use crate::mlrsearch::{Budget, GoalError, GoalResult, Irregular, Measurement, Search, SearchEnd, SearchGoal};
use crate::parameters::{pause, seconds};
use crate::pattern::{Limits, Pattern};
use crate::testbed::{TestError, Testbed};
use drophammer_model::quantity::FrameRate;
use drophammer_model::suite::Params;
use drophammer_model::trial::Load;
use std::time::Duration;

/// Trials after which a search gives up, whatever its time.
const TRIALS_MAX: u32 = 2_000;
/// The smallest load is this share of the largest; the grid is logarithmic, so that a small one costs little.
const MIN_SHARE: f64 = 1e-4;

/// One trial of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchTrial {
    /// Number in the run.
    pub trial: u64,
    /// Measured offered load per sending port.
    pub offered: FrameRate,
    /// Share of offered frames that were lost, 0 to 1.
    pub loss_ratio: f64,
    /// Duration in seconds.
    pub duration_s: f64,
}

/// What a search found, also when it was stopped.
#[derive(Clone, Debug)]
pub struct Searched {
    /// Per goal.
    pub results: Vec<GoalResult>,
    /// Every trial.
    pub trials: Vec<SearchTrial>,
    /// How it ended; running when it was stopped by an error.
    pub end: SearchEnd,
    /// The bounds of the pattern.
    pub limits: Limits,
    /// What stopped it.
    pub error: Option<TestError>,
}

impl Searched {
    /// Throughput per sending port: the figure of the first goal, `None` where there is none.
    pub fn throughput(&self) -> Option<FrameRate> {
        self.results.first().and_then(GoalResult::rate_pps).map(FrameRate)
    }
}

/// The zero-loss goal of the parameters `goal`, `final_trial_duration` and `width`.
pub fn zero_loss_goal(params: &Params) -> SearchGoal {
    let mut goal = match params.text("goal").as_deref() {
        Some("rfc2544") => SearchGoal::rfc2544(),
        Some("tst009") => SearchGoal::tst009(),
        Some("csit") => SearchGoal::csit_ndr(),
        Some("ci-quick") => SearchGoal::ci_quick(),
        _ => SearchGoal::quick(),
    };
    if let Some(duration) = params.duration("final_trial_duration").map(|d| d.as_secs_f64()).filter(|d| *d > 0.0) {
        // The number of full-length trials that decide a load stays what the goal has it be.
        goal.duration_sum_s *= duration / goal.final_trial_duration_s;
        goal.final_trial_duration_s = duration;
        goal.initial_trial_duration_s = goal.initial_trial_duration_s.min(duration);
    }
    if let Some(width) = params.number("width").filter(|w| *w > 0.0 && *w < 100.0) {
        goal.relative_width = width / 100.0;
    }
    goal
}

/// All goals: zero loss, and 0.5 % loss where the parameter `pdr` or the CSIT goal asks for it.
pub fn goals(params: &Params) -> Vec<SearchGoal> {
    let zero = zero_loss_goal(params);
    let partial = params.flag("pdr").unwrap_or(false) || params.text("goal").as_deref() == Some("csit");
    let partial = partial.then(|| zero.partial_drop(0.005));
    std::iter::once(zero).chain(partial).collect()
}

/// In what a goal deviates from RFC 2544.
pub fn goal_deviations(params: &Params) -> Vec<String> {
    let goal = zero_loss_goal(params);
    let mut deviations = Vec::new();
    if goal.final_trial_duration_s < 60.0 {
        deviations.push(format!(
            "throughput: trials of {} s instead of 60 s (RFC 2544 section 24)",
            goal.final_trial_duration_s
        ));
    }
    if goal.exceed_ratio > 0.0 {
        deviations.push(format!(
            "throughput: up to {} % of the trial time at a load may have loss, RFC 2544 section 26.1 has none",
            goal.exceed_ratio * 100.0
        ));
    }
    deviations
}

fn budget(params: &Params) -> Budget {
    Budget { trial_seconds: seconds(params, "search_duration_max", 7_200.0), trials: TRIALS_MAX }
}

fn failed(error: GoalError) -> TestError {
    TestError::NotApplicable(error.to_string())
}

/// Searches. Steps of progress count from `done` to `of`.
///
/// # Errors
/// Only where no trial could be started at all; an error in between is in [`Searched::error`] beside what was found.
pub fn search(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    goals: Vec<SearchGoal>,
    params: &Params,
) -> Result<Searched, TestError> {
    let mut limits = pattern.limits(bed);
    if let Some(max) = params.rate("max_load") {
        limits.max = FrameRate(limits.max.pps().min(max.pps()));
    }
    let max = limits.max.pps();
    // At least ten frames in the shortest trial, or a load would be decided by rounding.
    let shortest = goals.iter().map(|g| g.initial_trial_duration_s).fold(f64::INFINITY, f64::min);
    let min = (max * MIN_SHARE).max(10.0 / shortest).min(max);
    let expected = expected_trials(&goals).0;
    let mut search = Search::new(goals, min, max, budget(params)).map_err(failed)?;
    let mut trials: Vec<SearchTrial> = Vec::new();
    let mut run = |duration_s: f64, load_pps: f64| {
        bed.progress(&format!("throughput, {}", pattern.size_text()), trials.len() as u32, expected);
        let purpose = format!("throughput {}: {load_pps:.0} fps per port", pattern.size);
        let spec = pattern.trial(bed.ports(), purpose, Load::Constant { rate_pps: load_pps }, duration_s)?;
        let result = bed.trial(&spec)?;
        let offered = result.offered_load();
        trials.push(SearchTrial { trial: result.trial, offered, loss_ratio: result.loss_ratio(), duration_s });
        bed.settle(pause(params))?;
        Ok(Measurement {
            duration_s,
            effective_duration_s: duration_s,
            // The testbed repeats trials that fall short of the load, so that what is left is the tester's tolerance:
            // loss is of offered frames, and the offered load is what a result claims.
            intended: result.offered(),
            received: result.received(),
            offered_pps: offered.pps(),
            trial: result.trial,
        })
    };
    let error = search.run(&mut run).err();
    Ok(Searched { results: search.results(), trials, end: search.end(), limits, error })
}

/// Throughput per sending port of this pattern: what an earlier test found, else a search with the zero-loss goal of
/// `params`. `None` when the DUT loses frames at every load.
///
/// # Errors
/// Those of the trials.
pub fn known_throughput(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    params: &Params,
) -> Result<Option<FrameRate>, TestError> {
    let key = pattern.key();
    if let Some(known) = bed.known().throughput.get(&key) {
        return Ok(*known);
    }
    let searched = search(bed, pattern, vec![zero_loss_goal(params)], params)?;
    if let Some(error) = searched.error {
        return Err(error);
    }
    let found = searched.throughput();
    if found.is_none() && searched.results.iter().any(|r| r.irregular.contains(&Irregular::Unfinished)) {
        return Err(TestError::Failed(format!(
            "the throughput of {} was not found within the time for its search",
            pattern.size_text()
        )));
    }
    bed.known().throughput.insert(key, found);
    Ok(found)
}

/// Trials and trial seconds that a search for these goals takes on an ordinary device.
pub fn expected_trials(goals: &[SearchGoal]) -> (u32, f64) {
    let Ok(mut search) = Search::new(goals.to_vec(), 100.0, 1e6, Budget { trial_seconds: f64::INFINITY, trials: 500 })
    else {
        return (0, 0.0);
    };
    // A device of 300,000 fps with a small buffer.
    while let Some((duration_s, load)) = search.next_trial() {
        let intended = (duration_s * load) as u64;
        search.record(Measurement {
            duration_s,
            effective_duration_s: duration_s,
            intended,
            received: intended.min((duration_s * 3e5) as u64 + 1_000),
            offered_pps: load,
            trial: 0,
        });
    }
    (search.spent().trials, search.spent().trial_seconds)
}

/// About how long the searches for all sizes take.
pub fn estimate(params: &Params, goals: &[SearchGoal]) -> Duration {
    let (trials, trial_s) = expected_trials(goals);
    let pause = pause(params).as_secs_f64() + TRIAL_OVERHEAD_S;
    let sizes = crate::parameters::sizes(params).len() as f64;
    Duration::from_secs_f64(sizes * (trial_s + f64::from(trials) * pause))
}

/// What a trial takes beside sending: set-up and drain, about, for estimates.
pub const TRIAL_OVERHEAD_S: f64 = 0.3;
