//! Search target: a goal in coarser form. The chain of targets leads from short trials and wide intervals to the goal.

use super::goal::SearchGoal;
use super::load::LoadGrid;

/// One link of the chain; the last one is the goal itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// Loss ratio of the goal.
    pub loss_ratio: f64,
    /// Exceed ratio of the goal.
    pub exceed_ratio: f64,
    /// Duration of trials in seconds; shorter trials are "short" for this target.
    pub trial_duration_s: f64,
    /// Duration sum in seconds.
    pub duration_sum_s: f64,
    /// Maximum distance between lower and upper bound, in steps of the load grid, at least 1.
    pub width: u32,
}

/// The chain of `goal`, coarse to final, `preceding_targets + 1` long: duration sums grow geometrically from the initial
/// trial duration to the goal's sum, and widths halve towards the goal's width.
pub fn chain(goal: &SearchGoal, grid: &LoadGrid) -> Vec<Target> {
    let last = goal.preceding_targets;
    let width = grid.width_of(goal.relative_width);
    (0..=last)
        .map(|i| {
            let duration_sum_s = if i == last {
                goal.duration_sum_s
            } else {
                let share = f64::from(i) / f64::from(last);
                goal.initial_trial_duration_s * (goal.duration_sum_s / goal.initial_trial_duration_s).powf(share)
            };
            Target {
                loss_ratio: goal.loss_ratio,
                exceed_ratio: goal.exceed_ratio,
                trial_duration_s: duration_sum_s.min(goal.final_trial_duration_s),
                duration_sum_s,
                width: width.saturating_mul(1u32.checked_shl(last - i).unwrap_or(u32::MAX)).min(grid.last().max(1)),
            }
        })
        .collect()
}
