//! Goal result (RFC 9971 section 4.8): the relevant bounds, the conditional throughput, and irregularities.

use super::goal::SearchGoal;
use super::load::LoadGrid;
use super::load_stats::LoadStats;
use super::relevant_bounds::relevant_bounds;
use super::target::Target;
use std::collections::BTreeMap;

/// A relevant bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// Index in the load grid.
    pub index: u32,
    /// Intended load in fps per sending port.
    pub load_pps: f64,
    /// Smallest measured offered load of the full-length trials, in fps per sending port; the intended load if only
    /// short trials decided.
    pub offered_pps: f64,
    /// The trials at this load.
    pub trials: Vec<u64>,
}

impl Bound {
    /// The rate that may be claimed for this bound: its load, or the offered load if that was lower.
    pub fn rate_pps(&self) -> f64 {
        self.load_pps.min(self.offered_pps)
    }
}

/// Why a result is irregular. A report must show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Irregular {
    /// Not even the smallest load meets the goal.
    NoLowerBound,
    /// The largest load meets the goal, so the answer may be anywhere above it.
    NoUpperBound,
    /// The search ended before the bounds were as close as the goal requires.
    Unfinished,
}

impl std::fmt::Display for Irregular {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Irregular::NoLowerBound => "irregular: no lower bound, even the smallest load misses the goal",
            Irregular::NoUpperBound => "irregular: no upper bound, the largest load meets the goal",
            Irregular::Unfinished => "irregular: the search ended early, the bounds are wider than the goal",
        })
    }
}

/// Result of a search for one goal.
#[derive(Clone, Debug, PartialEq)]
pub struct GoalResult {
    /// The goal.
    pub goal: SearchGoal,
    /// Relevant lower bound.
    pub lower: Option<Bound>,
    /// Relevant upper bound.
    pub upper: Option<Bound>,
    /// Rate of the lower bound times (1 - quantile loss ratio), in fps per sending port.
    pub conditional_throughput_pps: Option<f64>,
    /// Reasons why the result is irregular; empty for a regular result.
    pub irregular: Vec<Irregular>,
    /// True if some load above the upper bound met the goal.
    pub inverted: bool,
    /// If a search ended early: bounds (lower, upper) in fps of the finest coarser target that had both. They indicate
    /// the answer, but are based on shorter or fewer trials than the goal requires.
    pub preliminary: Option<(f64, f64)>,
}

impl GoalResult {
    /// Relevant width `(upper - lower) / upper`; `None` if a bound is missing.
    pub fn relative_width(&self) -> Option<f64> {
        let (lower, upper) = (self.lower.as_ref()?, self.upper.as_ref()?);
        Some((upper.load_pps - lower.load_pps) / upper.load_pps)
    }

    /// The rate that was shown to meet the goal, in fps per sending port: the lower bound, or the offered load there if
    /// that was lower.
    pub fn rate_pps(&self) -> Option<f64> {
        self.lower.as_ref().map(Bound::rate_pps)
    }

    /// Derives the result of a goal from all trials so far. `chain` contains its targets; the last one is the goal itself.
    pub(super) fn read(
        goal: &SearchGoal,
        chain: &[Target],
        grid: &LoadGrid,
        loads: &BTreeMap<u32, LoadStats>,
    ) -> Option<Self> {
        let target = chain.last()?;
        let bounds = relevant_bounds(loads, target);
        let bound = |index: Option<u32>| {
            let index = index?;
            let stats = loads.get(&index)?;
            let load_pps = grid.load(index);
            Some(Bound {
                index,
                load_pps,
                offered_pps: stats.offered_pps(target).unwrap_or(load_pps),
                trials: stats.trials.iter().map(|t| t.trial).collect(),
            })
        };
        let (lower, upper) = (bound(bounds.lower), bound(bounds.upper));
        let mut irregular = Vec::new();
        match (bounds.lower, bounds.upper) {
            (Some(lo), Some(hi)) if hi - lo <= target.width => {}
            (Some(lo), None) if lo == grid.last() => irregular.push(Irregular::NoUpperBound),
            (None, Some(0)) => irregular.push(Irregular::NoLowerBound),
            _ => irregular.push(Irregular::Unfinished),
        }
        let unfinished = irregular.contains(&Irregular::Unfinished);
        let coarse = |target: &Target| {
            let bounds = relevant_bounds(loads, target);
            Some((grid.load(bounds.lower?), grid.load(bounds.upper?)))
        };
        let quantile = bounds.lower.and_then(|i| loads.get(&i)).and_then(|s| s.quantile_loss_ratio(target));
        Some(GoalResult {
            goal: goal.clone(),
            conditional_throughput_pps: lower.as_ref().zip(quantile).map(|(b, q)| b.rate_pps() * (1.0 - q)),
            lower,
            upper,
            irregular,
            inverted: bounds.inverted,
            preliminary: if unfinished { chain.iter().rev().find_map(coarse) } else { None },
        })
    }
}
