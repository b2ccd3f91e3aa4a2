//! What a test will do, as far as its parameters determine it in advance: number and duration of trials, traffic, and
//! deviations from the source of the test.
//!
//! Progress, estimates, the number of trials, the throughputs to search and the tester's own ceilings are all derived
//! from the [`Plan`].

use crate::modifiers;
use crate::parameters::beside_s;
use crate::pattern::Pattern;
use crate::route_tests;
use crate::route_traffic::load_patterns;
use crate::routed::routes;
use crate::throughput_search::{estimate_one, known_trials, zero_loss_goal};
use crate::trial_count::TrialCount;
use drophammer_model::registry::{Arrivals, TestSpec};
use drophammer_model::suite::Params;
use std::time::Duration;

/// Longest estimate. All estimates of a run add up to less than the longest duration.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// What a test will do on one DUT.
///
/// A test by frame size declares it in one expression:
///
/// ```text
/// Plan::by_size(params)
///     .searching()
///     .trials(REPEATS.get(params) as usize, TRIAL_DURATION.seconds(params), 0.2)
///     .deviating(common_deviations(params))
/// ```
#[derive(Clone, Debug)]
pub struct Plan {
    params: Params,
    /// How often the test repeats its steps: once for each pattern, or for each IP version.
    times: usize,
    /// True if frames go to routes. A router that does not report its number of routes is probed before the first
    /// trial.
    probed: bool,
    /// Patterns that the test offers; the tester's own ceiling must be measured for them.
    pub patterns: Vec<Pattern>,
    /// Patterns whose throughput the test needs. The test searches those that no earlier test has found, and later
    /// tests use the result.
    pub searched: Vec<Pattern>,
    /// Duration of one of these searches.
    search: Duration,
    /// Trials in addition to these searches.
    pub(crate) trials: TrialCount,
    /// Seconds in addition to these searches.
    time_s: f64,
    /// What the test needs to know about arrivals. A rate needs only counts, and a backend without arrival times is
    /// faster.
    pub arrivals: Arrivals,
    /// True if the router may be idle for a while between two steps of the test
    /// ([`Testbed::progress`](crate::Testbed::progress)).
    pub may_pause: bool,
    /// Tolerated stall of the DUT's processor in a trial with events, as a share of that trial, if this is longer than
    /// the limit of other trials. It is 0 in a test that counts losses; a test that only measures times of seconds
    /// tolerates more. Trials without events, such as those of a search, never use it.
    pub tolerated_stall: f64,
    /// Deviations of the parameters from the source of the test ("trials of 1 s instead of 60 s (RFC 2544 section
    /// 24)"). They omit the test's name, so that a run prints what several tests share only once; empty for a
    /// conformant run.
    pub deviations: Vec<String>,
}

impl Plan {
    /// A test that repeats its steps `times` times, with traffic that is not compared with the tester's ceiling.
    pub fn times(params: &Params, times: usize) -> Plan {
        Plan {
            params: params.clone(),
            times,
            probed: false,
            patterns: Vec::new(),
            searched: Vec::new(),
            search: Duration::ZERO,
            trials: TrialCount::exactly(0),
            time_s: 0.0,
            arrivals: Arrivals::Stamped,
            may_pause: true,
            tolerated_stall: 0.0,
            deviations: Vec::new(),
        }
    }

    /// A test that repeats its steps for each of these patterns.
    pub fn of(params: &Params, patterns: Vec<Pattern>) -> Plan {
        Plan { probed: routes(params) > 0, patterns: patterns.clone(), ..Plan::times(params, patterns.len()) }
    }

    /// A test by frame size: each size with each modifier.
    pub fn by_size(params: &Params) -> Plan {
        Plan::of(params, modifiers::patterns(params))
    }

    /// A route test, which repeats its steps for each IP version. It needs the throughput if its load is a share of the
    /// throughput.
    pub fn by_family(spec: &TestSpec, params: &Params) -> Plan {
        let patterns = load_patterns(spec, params);
        let plan = Plan { patterns: patterns.clone(), ..Plan::times(params, route_tests::FAMILIES.get(params).len()) };
        if patterns.is_empty() { plan } else { plan.searching_for(patterns) }
    }

    /// Declares that the test offers these patterns.
    pub fn offering(self, patterns: Vec<Pattern>) -> Plan {
        Plan { patterns, ..self }
    }

    /// Declares that the test searches the throughput of each of its patterns, known or not. Later tests use the
    /// result.
    pub fn finding(self) -> Plan {
        Plan { searched: self.patterns.clone(), ..self }
    }

    /// Declares that the test needs the throughput of each of its patterns.
    pub fn searching(self) -> Plan {
        let patterns = self.patterns.clone();
        self.searching_for(patterns)
    }

    /// Declares that the test needs the throughput of these patterns.
    pub fn searching_for(self, searched: Vec<Pattern>) -> Plan {
        let search = estimate_one(&self.params, &[zero_loss_goal(&self.params)]);
        Plan { searched, search, ..self }
    }

    /// Adds `count` trials per step, each sending for `trial_s` seconds. The share `lossy` of the trials (0 to 1) loses
    /// frames and waits for them until the drain time ends.
    pub fn trials(self, count: impl Into<TrialCount>, trial_s: f64, lossy: f64) -> Plan {
        let count = count.into();
        let trials = count.about as f64;
        let each_s = trials * trial_s + beside_s(&self.params, trials, lossy);
        self.counting(count).taking(each_s)
    }

    /// Adds `count` trials per step. [`Plan::taking`] adds their duration.
    pub fn counting(self, count: impl Into<TrialCount>) -> Plan {
        let all = count.into().times(self.times);
        Plan { trials: self.trials + all, ..self }
    }

    /// Adds `each_s` seconds per step.
    pub fn taking(self, each_s: f64) -> Plan {
        Plan { time_s: self.time_s + each_s * self.times as f64, ..self }
    }

    /// Declares that the test needs the number of arrivals, not their times.
    pub fn counts_alone(self) -> Plan {
        Plan { arrivals: Arrivals::Counted, ..self }
    }

    /// Adds deviations from the source of the test.
    pub fn deviating(mut self, deviations: impl IntoIterator<Item = String>) -> Plan {
        self.deviations.extend(deviations);
        self
    }

    /// Number of trials if `searches` of the throughputs that the test needs are not known from an earlier test.
    /// Repetitions of invalid trials are not counted.
    pub fn trial_count(&self, searches: usize) -> TrialCount {
        let own = if self.probed { self.trials.or_more() } else { self.trials };
        let searching = !self.search.is_zero() && searches > 0;
        if searching { own + known_trials(&self.params, searches) } else { own }
    }

    /// Approximate duration, for progress before any trial has been timed. `searches` is the same as in
    /// [`Plan::trial_count`].
    pub fn estimate(&self, searches: usize) -> Duration {
        let searched = if searches == 0 { 0 } else { self.searched.len() as u32 };
        let own = Duration::from_secs_f64(self.time_s.min(LONGEST.as_secs_f64()));
        own.saturating_add(self.search.saturating_mul(searched)).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_can_be_added_up() {
        let plan = Plan::times(&Params::default(), 64).taking(f64::from(u32::MAX) * 744.0 * 3600.0);
        assert_eq!(plan.estimate(0), LONGEST);
        assert!(LONGEST.checked_mul(u32::MAX).is_some());
        assert_eq!(Plan::times(&Params::default(), 2).taking(1.5).estimate(0), Duration::from_secs(3));
    }
}
