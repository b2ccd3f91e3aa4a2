//! The controller (RFC 9971 section 4.9): requests trials until every goal is reached or cannot be reached, or the
//! budget is spent.

use super::goal::{GoalError, SearchGoal};
use super::goal_result::GoalResult;
use super::load::LoadGrid;
use super::load_stats::{Classification, LoadStats};
use super::measurement::{Measurement, Measurer};
use super::relevant_bounds::{RelevantBounds, relevant_bounds};
use super::strategy::{self, Next, Situation};
use super::target::{Target, chain};
use std::collections::BTreeMap;

/// Maximum cost of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Sum of intended trial durations in seconds.
    pub trial_seconds: f64,
    /// Number of trials.
    pub trials: u32,
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchEnd {
    /// Still running: [`Search::next_trial`] has more trials.
    Running,
    /// Every goal has an answer, or is marked as having its answer outside the range of loads.
    Completed,
    /// A goal with `fail_fast` has no lower bound; goals after it were not searched.
    FailedFast,
    /// The budget is spent; the bounds are the best known so far.
    OutOfBudget,
}

/// How often per goal the search may use the forwarding rate at the upper bound as the next load: near a soft knee, it
/// would approach the answer in tiny steps.
const GUESSES: u32 = 3;

/// How often per goal the search measures an upper bound again.
const RECHECKS: u32 = 4;

/// A search in progress.
#[derive(Clone, Debug)]
pub struct Search {
    grid: LoadGrid,
    goals: Vec<(SearchGoal, Vec<Target>)>,
    budget: Budget,
    loads: BTreeMap<u32, LoadStats>,
    spent: Budget,
    end: SearchEnd,
    /// Load that is measured until it is decided, for target (goal, target).
    focus: Option<(usize, usize, u32)>,
    /// Outward steps taken for target (goal, target).
    steps: (usize, usize, u32),
    /// Guesses used per goal.
    guesses: Vec<u32>,
    /// Index of the last trial that was returned.
    asked: Option<u32>,
    /// Goal whose upper bound the pending trial measures again.
    rechecking: Option<usize>,
    /// Upper bounds that were measured again, by goal.
    rechecked: Vec<Vec<u32>>,
    /// Trials replaced by a repetition without loss.
    superseded: Vec<u64>,
}

impl Search {
    /// Prepares a search between two loads in fps per sending port.
    ///
    /// # Errors
    /// If a goal is out of range, if there is none, or if the loads are not `0 < min <= max`.
    pub fn new(goals: Vec<SearchGoal>, min_pps: f64, max_pps: f64, budget: Budget) -> Result<Self, GoalError> {
        for goal in &goals {
            goal.check()?;
        }
        let error = |why| GoalError { goal: goals.iter().map(|g| g.name.as_str()).collect::<Vec<_>>().join(", "), why };
        let finest = goals.iter().map(|g| g.relative_width).min_by(f64::total_cmp);
        let finest = finest.ok_or_else(|| error("at least one goal is needed"))?;
        let grid = LoadGrid::new(min_pps, max_pps, finest)
            .ok_or_else(|| error("the smallest load must be above 0 and not above the largest"))?;
        let guesses = vec![0; goals.len()];
        let rechecked = vec![Vec::new(); goals.len()];
        let goals = goals
            .into_iter()
            .map(|g| {
                let c = chain(&g, &grid);
                (g, c)
            })
            .collect();
        Ok(Search {
            grid,
            goals,
            budget,
            loads: BTreeMap::new(),
            spent: Budget { trial_seconds: 0.0, trials: 0 },
            end: SearchEnd::Running,
            focus: None,
            steps: (0, 0, 0),
            guesses,
            asked: None,
            rechecking: None,
            rechecked,
            superseded: Vec::new(),
        })
    }

    /// The next trial as (duration in s, load in fps per sending port); `None` if the search has ended, see
    /// [`Search::end`].
    pub fn next_trial(&mut self) -> Option<(f64, f64)> {
        if self.end != SearchEnd::Running {
            return None;
        }
        let Some((index, duration)) = self.select() else {
            if self.end == SearchEnd::Running {
                self.end = SearchEnd::Completed;
            }
            return None;
        };
        let too_long = self.spent.trial_seconds + duration > self.budget.trial_seconds * (1.0 + 1e-9);
        if too_long || self.spent.trials >= self.budget.trials {
            self.end = SearchEnd::OutOfBudget;
            return None;
        }
        self.asked = Some(index);
        Some((duration, self.grid.load(index)))
    }

    /// Records the result of the trial from [`Search::next_trial`]; ignored if no trial is pending.
    pub fn record(&mut self, measurement: Measurement) {
        if let Some(index) = self.asked.take() {
            self.spent.trial_seconds += measurement.duration_s;
            self.spent.trials += 1;
            let trials = &mut self.loads.entry(index).or_default().trials;
            if let Some(goal) = self.rechecking.take()
                && measurement.loss_ratio() <= self.goals[goal].0.loss_ratio
            {
                self.superseded.extend(trials.drain(..).map(|trial| trial.trial));
                self.end = SearchEnd::Running;
            }
            trials.push(measurement);
        }
    }

    /// After a completed search: one more trial at the upper bound of a goal, as (duration in s, load in fps per
    /// sending port). If it meets the loss ratio of the goal, it replaces all earlier trials at this load, and the
    /// search continues: [`Search::next_trial`] may return more trials. Otherwise the bound stays. Returns `None` when
    /// every upper bound has been measured again, or if the budget does not allow another trial. RFC 9971 does not
    /// define this; it prevents a disturbance of a few trials from being mistaken for the limit of the DUT.
    pub fn recheck(&mut self) -> Option<(f64, f64)> {
        if self.end != SearchEnd::Completed || self.spent.trials >= self.budget.trials {
            return None;
        }
        for (goal, (settings, chain)) in self.goals.iter().enumerate() {
            let Some(index) = chain.last().and_then(|target| relevant_bounds(&self.loads, target).upper) else {
                continue;
            };
            let duration = settings.final_trial_duration_s;
            let too_long = self.spent.trial_seconds + duration > self.budget.trial_seconds * (1.0 + 1e-9);
            // The same bound may already have been measured again for a different goal.
            let looked = self.rechecked.iter().any(|seen| seen.contains(&index));
            let last = self.loads.get(&index).and_then(|stats| stats.trials.last());
            let lossy = looked && last.is_some_and(|last| last.loss_ratio() > settings.loss_ratio);
            let seen = &mut self.rechecked[goal];
            if lossy || too_long || seen.contains(&index) || seen.len() >= RECHECKS as usize {
                continue;
            }
            seen.push(index);
            self.asked = Some(index);
            self.rechecking = Some(goal);
            return Some((duration, self.grid.load(index)));
        }
        None
    }

    /// Numbers of the trials replaced by a repetition without loss.
    pub fn superseded(&self) -> &[u64] {
        &self.superseded
    }

    /// Runs the search to its end.
    ///
    /// # Errors
    /// Errors of the measurer; the results so far remain readable.
    pub fn run<M: Measurer>(&mut self, measurer: &mut M) -> Result<SearchEnd, M::Error> {
        while let Some((duration, load)) = self.next_trial() {
            let measurement = measurer.measure(duration, load)?;
            self.record(measurement);
        }
        Ok(self.end)
    }

    /// How the search ended.
    pub fn end(&self) -> SearchEnd {
        self.end
    }

    /// Trials and trial seconds so far.
    pub fn spent(&self) -> Budget {
        self.spent
    }

    /// Results so far for each goal, in the order of the goals; available even while the search runs.
    pub fn results(&self) -> Vec<GoalResult> {
        self.goals.iter().filter_map(|(goal, chain)| GoalResult::read(goal, chain, &self.grid, &self.loads)).collect()
    }

    /// Index and duration of the next trial; `None` if no trial is left.
    fn select(&mut self) -> Option<(u32, f64)> {
        for goal in 0..self.goals.len() {
            for at in 0..self.goals[goal].1.len() {
                let target = self.goals[goal].1[at];
                if let Some(index) = self.focused(goal, at, &target) {
                    return Some((index, target.trial_duration_s));
                }
                if let Some(index) = self.advance(goal, at, &target) {
                    self.focus = Some((goal, at, index));
                    return Some((index, target.trial_duration_s));
                }
            }
            let (settings, targets) = &self.goals[goal];
            let no_lower = targets.last().is_some_and(|t| relevant_bounds(&self.loads, t).lower.is_none());
            if settings.fail_fast && no_lower {
                self.end = SearchEnd::FailedFast;
                return None;
            }
        }
        None
    }

    /// The load in focus, if it belongs to this target and is still undecided.
    fn focused(&self, goal: usize, at: usize, target: &Target) -> Option<u32> {
        let (_, _, index) = self.focus.filter(|f| (f.0, f.1) == (goal, at))?;
        let stats = self.loads.get(&index)?;
        (stats.classify(target) == Classification::Undecided).then_some(index)
    }

    fn advance(&mut self, goal: usize, at: usize, target: &Target) -> Option<u32> {
        let bounds = relevant_bounds(&self.loads, target);
        let hints = match at {
            0 => RelevantBounds::default(),
            _ => relevant_bounds(&self.loads, &self.goals[goal].1[at - 1]),
        };
        let taken = if (self.steps.0, self.steps.1) == (goal, at) { self.steps.2 } else { 0 };
        let grown = f64::from(target.width) * self.goals[goal].0.expansion.powi(taken.min(64) as i32);
        let situation = Situation {
            grid: &self.grid,
            target,
            bounds,
            hints,
            guess: (at == 0 && self.guesses[goal] < GUESSES).then(|| self.guess(bounds.upper?, target)).flatten(),
            step: grown.min(f64::from(self.grid.last().max(1))) as u32,
        };
        match strategy::next(&situation) {
            Next::Done => None,
            Next::Try(index) => Some(index),
            Next::Step(index) => {
                self.steps = (goal, at, taken + 1);
                Some(index)
            }
            Next::Guess(index) => {
                self.guesses[goal] += 1;
                Some(index)
            }
        }
    }

    /// Load that the forwarding rate at load `upper` suggests: if the DUT forwards the same rate there, exactly the
    /// loss that the goal allows remains.
    fn guess(&self, upper: u32, target: &Target) -> Option<u32> {
        let trials = &self.loads.get(&upper)?.trials;
        let loss =
            trials.iter().map(Measurement::loss_ratio).filter(|l| *l > target.loss_ratio).max_by(f64::total_cmp)?;
        Some(
            self.grid
                .floor(self.grid.load(upper) * (1.0 - loss) / (1.0 - target.loss_ratio))
                .min(upper.saturating_sub(1)),
        )
    }
}
