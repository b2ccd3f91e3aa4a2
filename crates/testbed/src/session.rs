//! What all test setups of one run share: seed, profile, keys of trials.

use crate::validity::Tolerance;
use drophammer_model::suite::Profile;
use drophammer_rig::TrialKeys;
use std::time::Duration;

/// State of a run.
#[derive(Debug)]
pub struct Session {
    /// Seed of every pseudo-random choice, reported.
    pub seed: u64,
    /// Profile.
    pub profile: Profile,
    /// Limits within which a trial is valid; those of the profile.
    pub tolerance: Tolerance,
    /// Current round, from 1.
    pub round: u32,
    /// Numbers and keys of its trials.
    pub keys: TrialKeys,
    /// Time left for trials that the host spoils and that are repeated beyond the usual attempts.
    pub repeats: Duration,
}

impl Session {
    /// Begins a run. `secret` distinguishes its frames from those of other runs; it should differ from run to run.
    pub fn new(seed: u64, profile: Profile, secret: u64) -> Session {
        let (tolerance, keys) = (Tolerance::of(profile), TrialKeys::new(secret));
        Session { seed, profile, tolerance, round: 1, keys, repeats: Duration::MAX }
    }

    /// Spends `took` on an attempt that the host spoilt; false if that much time was not left.
    pub(crate) fn spend(&mut self, took: Duration) -> bool {
        let left = self.repeats.checked_sub(took);
        self.repeats = left.unwrap_or_default();
        left.is_some()
    }
}
