//! Load stats and load classification: the normative part, RFC 9971 appendix "Load Classification".

use super::measurement::Measurement;
use super::target::Target;

/// Position of a load relative to the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Classification {
    /// The load meets the goal, whatever more trials would show.
    Lower,
    /// The load misses the goal, whatever more trials would show.
    Upper,
    /// More trials are needed.
    Undecided,
}

/// All trials at one load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadStats {
    /// In the order in which they were run.
    pub trials: Vec<Measurement>,
}

/// Sums of effective durations in seconds, by the length and the loss of the trials.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    full_low: f64,
    full_high: f64,
    short_low: f64,
    short_high: f64,
}

impl LoadStats {
    fn sums(&self, target: &Target) -> Sums {
        let mut sums = Sums::default();
        for trial in &self.trials {
            let low = trial.loss_ratio() <= target.loss_ratio;
            let full = trial.duration_s >= target.trial_duration_s;
            *match (full, low) {
                (true, true) => &mut sums.full_low,
                (true, false) => &mut sums.full_high,
                (false, true) => &mut sums.short_low,
                (false, false) => &mut sums.short_high,
            } += trial.effective_duration_s;
        }
        sums
    }

    /// Classifies this load twice: first as if all trials missing from the duration sum were high-loss, then as if they
    /// were all low-loss. If both agree, the load is decided.
    ///
    /// Short trials can only count against a load: their high-loss time, less the part that their low-loss time
    /// excuses, counts as full-length high-loss time.
    pub fn classify(&self, target: &Target) -> Classification {
        let sums = self.sums(target);
        let excused = sums.short_low * (target.exceed_ratio / (1.0 - target.exceed_ratio));
        let high = sums.full_high + (sums.short_high - excused).max(0.0);
        let whole = (sums.full_low + high).max(target.duration_sum_s);
        let quota = whole * target.exceed_ratio;
        let meets_at_worst = whole - sums.full_low <= quota;
        let meets_at_best = high <= quota;
        match (meets_at_worst, meets_at_best) {
            (true, true) => Classification::Lower,
            (false, false) => Classification::Upper,
            _ => Classification::Undecided,
        }
    }

    /// The loss ratio that determines the conditional throughput of a lower bound. It sorts the full-length trials by
    /// loss and takes the loss of the trial that reaches the share `1 - exceed ratio` of the duration sum, or 1 if the
    /// trials fill less than that. `None` if there is no full-length trial.
    pub fn quantile_loss_ratio(&self, target: &Target) -> Option<f64> {
        let sums = self.sums(target);
        let mut full: Vec<_> = self.trials.iter().filter(|t| t.duration_s >= target.trial_duration_s).collect();
        full.sort_by(|a, b| a.loss_ratio().total_cmp(&b.loss_ratio()));
        let whole = target.duration_sum_s.max(sums.full_low + sums.full_high);
        let mut missing = whole * (1.0 - target.exceed_ratio);
        // Sums of durations are not exact; without this tolerance, a load without any loss could end up with 100 %.
        let nothing = whole * 1e-9;
        let mut quantile = None;
        for trial in full {
            if quantile.is_some() && missing <= nothing {
                return quantile;
            }
            quantile = Some(trial.loss_ratio());
            missing -= trial.effective_duration_s;
        }
        if missing > nothing { quantile.map(|_| 1.0) } else { quantile }
    }

    /// Smallest measured offered load of the full-length trials in fps: the highest rate that may be claimed for this
    /// load.
    pub fn offered_pps(&self, target: &Target) -> Option<f64> {
        let full = self.trials.iter().filter(|t| t.duration_s >= target.trial_duration_s);
        full.map(|t| t.offered_pps).min_by(f64::total_cmp)
    }
}
