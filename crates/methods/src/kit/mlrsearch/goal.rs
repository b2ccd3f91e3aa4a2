//! Search goal (RFC 9971 section 4.6): the conditions that a load must fulfil, and the required precision of the
//! answer.

/// One search goal.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchGoal {
    /// Readable name, which includes the tolerance: `NDR(0)`, `PDR(0.5%)`.
    pub name: String,
    /// Goal loss ratio, 0 to below 1: a trial with a larger share of lost frames is a high-loss trial.
    pub loss_ratio: f64,
    /// Goal exceed ratio, 0 to below 1: share of the trial time at a load that may be high-loss.
    pub exceed_ratio: f64,
    /// Goal width, `(upper - lower) / upper`, above 0 and below 1.
    pub relative_width: f64,
    /// Duration of the first, coarse trials in seconds, above 0 and at most the final one.
    pub initial_trial_duration_s: f64,
    /// Goal final trial duration in seconds; shorter trials can only count against a load.
    pub final_trial_duration_s: f64,
    /// Goal duration sum in seconds, at least the final trial duration: after this much trial time a load is decided.
    pub duration_sum_s: f64,
    /// Number of coarser targets before the final one.
    pub preceding_targets: u32,
    /// Factor, above 1, by which steps grow while a bound is searched outside the known interval.
    pub expansion: f64,
    /// Stops the whole search when even the smallest load misses this goal.
    pub fail_fast: bool,
}

/// A goal that cannot be searched for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("search goal {goal}: {why}")]
pub struct GoalError {
    /// Name of the search goal.
    pub goal: String,
    /// What is wrong with it.
    pub why: &'static str,
}

impl SearchGoal {
    fn base(name: &str) -> Self {
        SearchGoal {
            name: name.into(),
            loss_ratio: 0.0,
            exceed_ratio: 0.5,
            relative_width: 0.005,
            initial_trial_duration_s: 1.0,
            final_trial_duration_s: 1.0,
            duration_sum_s: 21.0,
            preceding_targets: 2,
            expansion: 2.0,
            fail_fast: true,
        }
    }

    /// Conforms to RFC 2544 section 26.1: 60 s, no loss, no second chance.
    pub fn rfc2544() -> Self {
        SearchGoal {
            exceed_ratio: 0.0,
            final_trial_duration_s: 60.0,
            duration_sum_s: 60.0,
            preceding_targets: 3,
            ..Self::base("NDR(0)")
        }
    }

    /// ETSI GS NFV-TST 009 section 12.3, binary search with loss verification: a lossy trial is repeated once.
    pub fn tst009() -> Self {
        SearchGoal { final_trial_duration_s: 60.0, duration_sum_s: 120.0, preceding_targets: 3, ..Self::base("NDR(0)") }
    }

    /// Non-drop rate as FD.io CSIT measures it.
    pub fn csit_ndr() -> Self {
        Self::base("NDR(0)")
    }

    /// No loss in 10 s; for continuous integration.
    pub fn ci_quick() -> Self {
        SearchGoal {
            exceed_ratio: 0.0,
            relative_width: 0.01,
            final_trial_duration_s: 10.0,
            duration_sum_s: 10.0,
            ..Self::base("NDR(0)")
        }
    }

    /// No loss in most of 1.5 s, within 3 %: about 15 trials, and 10 more for an additional partial drop rate.
    pub fn quick() -> Self {
        SearchGoal {
            relative_width: 0.03,
            initial_trial_duration_s: 0.3,
            final_trial_duration_s: 0.5,
            duration_sum_s: 1.5,
            ..Self::base("NDR(0)")
        }
    }

    /// This goal with a different loss ratio (0 to 1), and a matching name: `PDR(0.5%)`.
    pub fn partial_drop(&self, loss_ratio: f64) -> Self {
        // Rounded, because 0.07 * 100 is 7.000000000000001.
        let percent = (loss_ratio * 100.0 * 1e6).round() / 1e6;
        SearchGoal { name: format!("PDR({percent}%)"), loss_ratio, ..self.clone() }
    }

    /// Checks that every attribute is in range.
    ///
    /// # Errors
    /// The first attribute that violates the standard.
    pub fn check(&self) -> Result<(), GoalError> {
        // NaN fails these comparisons as well.
        let share = |x: f64| (0.0..1.0).contains(&x);
        let positive = |x: f64| x > 0.0 && x.is_finite();
        let rules = [
            (share(self.loss_ratio), "the loss ratio must be at least 0 and below 1"),
            (share(self.exceed_ratio), "the exceed ratio must be at least 0 and below 1"),
            (positive(self.relative_width) && self.relative_width < 1.0, "the width must be above 0 and below 1"),
            (positive(self.initial_trial_duration_s), "the initial trial duration must be above 0"),
            (
                positive(self.final_trial_duration_s) && self.final_trial_duration_s >= self.initial_trial_duration_s,
                "the final trial duration must not be below the initial one",
            ),
            (
                positive(self.duration_sum_s) && self.duration_sum_s >= self.final_trial_duration_s,
                "the duration sum must not be below the final trial duration",
            ),
            (positive(self.expansion) && self.expansion > 1.0, "the expansion must be above 1"),
        ];
        let Some((_, why)) = rules.into_iter().find(|(met, _)| !met) else { return Ok(()) };
        Err(GoalError { goal: self.name.clone(), why })
    }
}
