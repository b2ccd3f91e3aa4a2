//! The search for the throughput of one traffic pattern on a testbed, for the test of that name and for all tests that
//! need to know the throughput first.

use crate::mlrsearch::{Budget, GoalError, GoalResult, Irregular, Measurement, Search, SearchEnd, SearchGoal};
use crate::modifiers;
use crate::parameters::{FINAL_TRIAL, GOAL, Goal, MAX_LOAD, PAUSE, SEARCH_MAX, WIDTH, beside_s};
use crate::pattern::{Limits, Pattern, RETREAT, RETREATS, load_was_too_high};
use crate::report::{deviate, note};
use crate::testbed::{LowerBound, TestError, Testbed};
use crate::trial_count::TrialCount;
use drophammer_model::outcome::Outcome;
use drophammer_model::param::Percent;
use drophammer_model::quantity::{FrameRate, show_duration};
use drophammer_model::suite::Params;
use drophammer_model::trial::{GroupCounts, Load, TrialResult};
use std::time::Duration;

/// Maximum number of trials of a search, regardless of its time.
const TRIALS_MAX: u32 = 2_000;
/// The smallest load is this share of the largest. Since the grid is logarithmic, a small share costs little.
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
    /// Time for which buffers drained after the load, in seconds: how much longer frames kept arriving than departing.
    pub drained_s: f64,
}

/// Result of a search, even if it was stopped.
#[derive(Clone, Debug)]
pub struct Searched {
    /// The result for each goal.
    pub results: Vec<GoalResult>,
    /// Every trial.
    pub trials: Vec<SearchTrial>,
    /// Trials at upper bounds that lost nothing when repeated; they no longer count.
    pub superseded: Vec<u64>,
    /// How the search ended; [`SearchEnd::Running`] if an error stopped it.
    pub end: SearchEnd,
    /// The limits of the pattern, with the highest load of the last start.
    pub limits: Limits,
    /// True if the suite sets the highest load (`max_load`), below the limits of line and tester.
    pub capped: bool,
    /// The load per sending port that the tester could not offer validly during the search, and why. The search ended
    /// there with the bounds so far.
    pub unfit: Option<(FrameRate, Vec<String>)>,
    /// The error that stopped the search.
    pub error: Option<TestError>,
}

impl Searched {
    /// Throughput per sending port: the figure of the first goal, or `None` if there is no figure.
    pub fn throughput(&self) -> Option<FrameRate> {
        self.results.first().and_then(GoalResult::rate_pps).map(FrameRate)
    }

    /// Why the throughput is only a lower bound; `None` if it is exact, or if there is none.
    pub fn lower_bound(&self) -> Option<LowerBound> {
        let result = self.results.first()?;
        let found = self.throughput()?;
        if self.capped && result.irregular.contains(&Irregular::NoUpperBound) {
            Some(LowerBound::MaxLoad)
        } else if result.irregular.contains(&Irregular::Unfinished) {
            Some(LowerBound::Unfinished)
        } else {
            self.limits.tester_limited(found).then_some(LowerBound::Tester)
        }
    }

    /// Records how the search deviated from the request.
    pub fn deviate(&self, pattern: &Pattern, outcome: &mut Outcome) {
        if self.results.iter().any(|result| result.irregular.contains(&Irregular::Unfinished)) {
            deviate(outcome, pattern, "the search for the throughput ended before its goal was reached");
        }
    }

    /// Stores the throughput for later tests, or the reason why it is unknown, which is also returned.
    pub fn keep(&self, bed: &mut dyn Testbed, pattern: &Pattern) -> Option<String> {
        let found = self.throughput();
        let unfinished = self.results.first().is_none_or(|r| r.irregular.contains(&Irregular::Unfinished));
        let why = match (&self.error, &self.unfit) {
            (Some(error), _) => Some(error.to_string()),
            // A proven lower bound is a throughput that later tests can use, even if it is not the highest.
            _ if found.is_some() => None,
            (None, Some((load, why))) => Some(unfit_text(*load, why)),
            // Running out of time does not prove that frames are lost at every load.
            (None, None) => unfinished.then(|| "it was not found within the time for its search".to_owned()),
        };
        let known = bed.known();
        let key = pattern.key();
        if let Some(why) = why {
            known.failed.insert(key, why.clone());
            return Some(why);
        }
        match self.lower_bound() {
            Some(bound) => known.bounds.insert(key.clone(), bound),
            None => known.bounds.remove(&key),
        };
        known.throughput.insert(key, found);
        None
    }
}

fn unfit_text(load: FrameRate, why: &[String]) -> String {
    format!("the tester could not offer {load} per port validly: {}", why.join("; "))
}

/// The zero-loss goal of the parameters `goal`, `final_trial_duration` and `width`.
pub fn zero_loss_goal(params: &Params) -> SearchGoal {
    let mut goal = match GOAL.get(params) {
        Goal::Rfc2544 => SearchGoal::rfc2544(),
        Goal::Tst009 => SearchGoal::tst009(),
        Goal::Csit => SearchGoal::csit_ndr(),
        Goal::CiQuick => SearchGoal::ci_quick(),
        Goal::Quick => SearchGoal::quick(),
    };
    if let Some(duration) = FINAL_TRIAL.get(params).map(|d| d.as_secs_f64()) {
        // The number of full-length trials that decide a load still comes from the goal.
        goal.duration_sum_s *= duration / goal.final_trial_duration_s;
        goal.final_trial_duration_s = duration;
        goal.initial_trial_duration_s = goal.initial_trial_duration_s.min(duration);
    }
    if let Some(Percent(width)) = WIDTH.get(params).filter(|w| w.0 > 0.0 && w.0 < 100.0) {
        goal.relative_width = width / 100.0;
    }
    goal
}

/// The zero-loss goal, and also the goal of 0.5 % loss with `pdr` or the CSIT goal.
pub fn goals(params: &Params, pdr: bool) -> Vec<SearchGoal> {
    let zero = zero_loss_goal(params);
    let partial = pdr || GOAL.get(params) == Goal::Csit;
    let partial = partial.then(|| zero.partial_drop(0.005));
    // If a router occasionally loses a frame at any load, it has no throughput but still a partial drop rate.
    let zero = SearchGoal { fail_fast: partial.is_none(), ..zero };
    std::iter::once(zero).chain(partial).collect()
}

/// Deviations of a goal from RFC 2544. The wording is the same for every test that searches.
pub fn goal_deviations(params: &Params) -> Vec<String> {
    let goal = zero_loss_goal(params);
    let trial = show_duration(Duration::from_secs_f64(goal.final_trial_duration_s));
    let short = (goal.final_trial_duration_s < 60.0)
        .then(|| format!("throughput search with trials of {trial} instead of 60 s (RFC 2544 section 24)"));
    let exceed = (goal.exceed_ratio > 0.0).then(|| {
        let percent = goal.exceed_ratio * 100.0;
        format!("throughput with loss in up to {percent} % of the trial time at its load (RFC 2544 section 26.1: none)")
    });
    let capped = MAX_LOAD.get(params);
    let capped = capped.map(|max| format!("loads up to {max} at most (RFC 2544 section 20: line rate)"));
    short.into_iter().chain(exceed).chain(capped).collect()
}

fn failed(error: GoalError) -> TestError {
    TestError::NotApplicable(error.to_string())
}

/// Runs a search. If the tester cannot offer the highest load or a load near it validly, the search starts again below
/// that load, [`RETREATS`] times at most, and [`Known`](crate::Known) stores the highest load for later tests. If the
/// tester cannot offer another load, the search ends.
///
/// # Errors
/// Only if no trial could be started at all. A later error is in [`Searched::error`], in addition to the results so
/// far.
pub fn search(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    goals: Vec<SearchGoal>,
    params: &Params,
) -> Result<Searched, TestError> {
    let mut trial = |bed: &mut dyn Testbed, load: f64, duration_s: f64| {
        let purpose = format!("throughput {}: {load:.0} fps per port", pattern.size);
        let spec = pattern.trial(bed.ports(), purpose, Load::Constant { rate_pps: load }, duration_s)?;
        bed.trial(&spec)
    };
    search_with(bed, pattern, goals, params, &mut trial)
}

/// Runs a trial at a load in fps per sending port, for a time in seconds.
pub type RunTrial<'a> = dyn FnMut(&mut dyn Testbed, f64, f64) -> Result<TrialResult, TestError> + 'a;

/// Like [`search`], but for other traffic than the pattern's own. The pattern determines the highest load.
///
/// # Errors
/// Errors of [`search`].
pub fn search_with(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    goals: Vec<SearchGoal>,
    params: &Params,
    trial: &mut RunTrial<'_>,
) -> Result<Searched, TestError> {
    let mut limits = pattern.limits(bed);
    let mut capped = false;
    if let Some(max) = MAX_LOAD.get(params).filter(|max| max.pps() < limits.max.pps()) {
        capped = true;
        limits = Limits { max, retreated: false, ..limits };
    }
    let mut trials: Vec<SearchTrial> = Vec::new();
    let mut spent_s = 0.0;
    let mut retreats = 0;
    loop {
        let max = limits.max.pps();
        // Requires at least ten frames in the shortest trial; otherwise rounding would decide a load.
        let shortest = goals.iter().map(|g| g.initial_trial_duration_s).fold(f64::INFINITY, f64::min);
        let min = (max * MIN_SHARE).max(10.0 / shortest).min(max);
        let trial_seconds = SEARCH_MAX.seconds(params) - spent_s;
        let budget = Budget { trial_seconds, trials: TRIALS_MAX };
        let mut search = Search::new(goals.clone(), min, max, budget).map_err(failed)?;
        let stopped = one_search(bed, pattern, PAUSE.get(params), &mut search, &mut trials, trial);
        spent_s += search.spent().trial_seconds;
        let ended = |unfit, error| Searched {
            results: search.results(),
            trials: trials.clone(),
            superseded: search.superseded().to_vec(),
            end: search.end(),
            limits,
            capped,
            unfit,
            error,
        };
        match stopped {
            Ok(()) => return Ok(ended(None, None)),
            Err((load, TestError::Unfit(why))) if load >= max * RETREAT => {
                if retreats == RETREATS {
                    return Ok(ended(None, Some(TestError::Unfit(why))));
                }
                retreats += 1;
                limits = limits.retreat(FrameRate(load * RETREAT));
                capped = false;
                if load_was_too_high(&why) {
                    bed.known().highest.constant.insert(pattern.key(), limits.max);
                }
            }
            Err((load, TestError::Unfit(why))) => return Ok(ended(Some((FrameRate(load), why)), None)),
            Err((_, error)) => return Ok(ended(None, Some(error))),
        }
    }
}

/// Time for which buffers drained after the load, in seconds: how much longer frames kept arriving than departing.
fn drained_s(result: &TrialResult) -> f64 {
    let longer_s = (result.receiving_s - result.sending_s).max(0.0);
    // A buffer that fills delays frames by half of this on average. A few late frames do not.
    let waited = |group: &GroupCounts| (group.latency.mean_ns - group.latency.min_ns as f64) / 1e9;
    let waited_s = result.groups.iter().map(waited).fold(0.0, f64::max);
    longer_s.min(4.0 * waited_s)
}

/// Runs a search until it ends or a trial fails; then returns the load in fps and the error.
fn one_search(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    pause: Duration,
    search: &mut Search,
    trials: &mut Vec<SearchTrial>,
    trial: &mut RunTrial<'_>,
) -> Result<(), (f64, TestError)> {
    let mut run = |duration_s: f64, load_pps: f64| {
        bed.progress(&format!("throughput, {}", pattern.size_text()));
        let result = trial(bed, load_pps, duration_s)?;
        let offered = result.offered_load();
        trials.push(SearchTrial {
            trial: result.trial,
            offered,
            loss_ratio: result.loss_ratio(),
            duration_s,
            drained_s: drained_s(&result),
        });
        bed.settle(pause)?;
        Ok(Measurement {
            duration_s,
            effective_duration_s: duration_s,
            // The testbed repeats trials that fall short of the load, so any remaining shortfall is within the tester's
            // tolerance: loss refers to offered frames, and the result claims the offered load.
            intended: result.offered(),
            received: result.received(),
            offered_pps: offered.pps(),
            trial: result.trial,
        })
    };
    let mut measure = |duration_s: f64, load: f64| run(duration_s, load).map_err(|e| (load, e));
    search.run(&mut measure)?;
    // A disturbance that has ended must not determine an upper bound.
    while let Some((duration_s, load)) = search.recheck() {
        let measurement = match measure(duration_s, load) {
            // The bound then stays as it is.
            Err((_, TestError::Unfit(_))) => break,
            other => other?,
        };
        search.record(measurement);
        search.run(&mut measure)?;
    }
    Ok(())
}

/// Throughput, NDR(0), per sending port of this pattern: from an earlier test, or else from a search with the zero-loss
/// goal of `params`. `None` if the DUT loses frames at every load. Adds remarks to `outcome`.
///
/// # Errors
/// Errors of the trials; [`TestError::NotApplicable`] if the throughput cannot be found, also if the search of an
/// earlier test failed.
pub fn known_throughput(
    bed: &mut dyn Testbed,
    pattern: &Pattern,
    params: &Params,
    outcome: &mut Outcome,
) -> Result<Option<FrameRate>, TestError> {
    let key = pattern.key();
    let unknown = |why: &str| TestError::NotApplicable(format!("no throughput known: {why}"));
    let known = bed.known().throughput.get(&key).copied();
    let found = match known {
        Some(found) => found,
        None => {
            if let Some(why) = bed.known().failed.get(&key) {
                return Err(unknown(why));
            }
            let searched = search(bed, pattern, vec![zero_loss_goal(params)], params)?;
            let why = searched.keep(bed, pattern);
            searched.deviate(pattern, outcome);
            if let Some(error) = searched.error {
                return Err(error);
            }
            if let Some(why) = why {
                return Err(unknown(&why));
            }
            if let Some((load, why)) = &searched.unfit {
                note(outcome, format!("{}: at least; {}.", pattern.size_text(), unfit_text(*load, why)));
            }
            searched.throughput()
        }
    };
    let size = pattern.size_text();
    match (found, known_bound(bed, pattern)) {
        (Some(found), Some(LowerBound::Tester)) => {
            note(outcome, format!("{size}: the throughput, {found}, is the tester's limit; the router may have more."));
        }
        (Some(found), Some(bound)) => {
            let why = match bound {
                LowerBound::MaxLoad => "the suite allows no higher load (`max_load`)",
                LowerBound::Tester | LowerBound::Unfinished => "the search for it ended early",
            };
            note(outcome, format!("{size}: the throughput, {found}, is only a lower bound: {why}."));
        }
        _ => {}
    }
    Ok(found)
}

/// Why the throughput of [`known_throughput`] is only a lower bound; the test that found it may have had a lower
/// `max_load`. `None` if the throughput is exact or unknown.
pub fn known_bound(bed: &mut dyn Testbed, pattern: &Pattern) -> Option<LowerBound> {
    let key = pattern.key();
    let known = bed.known();
    let found = known.throughput.get(&key).copied().flatten()?;
    let bound = known.bounds.get(&key).copied();
    bound.or_else(|| pattern.limits(bed).tester_limited(found).then_some(LowerBound::Tester))
}

/// Expected cost of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expected {
    /// Number of trials.
    pub trials: u32,
    /// Number of lossy trials.
    pub lossy: u32,
    /// Sending time of all trials in seconds.
    pub trial_seconds: f64,
}

/// Cost of a search for these goals on an ordinary device.
pub fn expected_trials(goals: &[SearchGoal]) -> Expected {
    expected_within(goals, f64::INFINITY)
}

/// Like [`expected_trials`], but for a search that ends after this many seconds of trials.
fn expected_within(goals: &[SearchGoal], trial_seconds: f64) -> Expected {
    let Ok(mut search) = Search::new(goals.to_vec(), 100.0, 1e6, Budget { trial_seconds, trials: 500 }) else {
        return Expected::default();
    };
    let mut lossy = 0;
    // A device with a knee, like software routers: above 200,000 fps it forwards 80 % of the additional frames.
    while let Some((duration_s, load)) = search.next_trial() {
        let intended = (duration_s * load) as u64;
        let received = (duration_s * (load.min(2e5) + 0.8 * (load - 2e5).max(0.0))) as u64;
        lossy += u32::from(received < intended);
        search.record(Measurement {
            duration_s,
            effective_duration_s: duration_s,
            intended,
            received,
            offered_pps: load,
            trial: 0,
        });
    }
    // Adds the recheck of each upper bound, unless there is no time left.
    let looked: &[SearchGoal] = if search.end() == SearchEnd::OutOfBudget { &[] } else { goals };
    let last = looked.len() as u32;
    let last_s: f64 = looked.iter().map(|goal| goal.final_trial_duration_s).sum();
    Expected {
        trials: search.spent().trials + last,
        lossy: lossy + last,
        trial_seconds: search.spent().trial_seconds + last_s,
    }
}

/// Number of trials of this many searches for these goals.
pub fn search_trials(params: &Params, goals: &[SearchGoal], searches: usize) -> TrialCount {
    let expected = expected_within(goals, SEARCH_MAX.seconds(params));
    TrialCount::about(expected.trials as usize).times(searches)
}

/// Number of trials of [`known_throughput`] for this many patterns with unknown throughput.
pub fn known_trials(params: &Params, searches: usize) -> TrialCount {
    search_trials(params, &[zero_loss_goal(params)], searches)
}

/// Approximate duration of the searches for all sizes.
pub fn estimate(params: &Params, goals: &[SearchGoal]) -> Duration {
    estimate_one(params, goals) * modifiers::count(params) as u32
}

/// Approximate duration of the search for one pattern.
pub fn estimate_one(params: &Params, goals: &[SearchGoal]) -> Duration {
    let expected = expected_trials(goals);
    let trials = f64::from(expected.trials);
    let lossy = f64::from(expected.lossy) / trials.max(1.0);
    let search_s = expected.trial_seconds.min(SEARCH_MAX.seconds(params)) + beside_s(params, trials, lossy);
    Duration::from_secs_f64(search_s)
}
