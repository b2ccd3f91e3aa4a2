//! What all test setups of one run share: seed, profile, keys of trials.

use crate::validity::Tolerance;
use drophammer_model::suite::Profile;
use drophammer_rig::TrialKeys;

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
}

impl Session {
    /// Begins a run. `secret` distinguishes its frames from those of other runs; it should differ from run to run.
    pub fn new(seed: u64, profile: Profile, secret: u64) -> Session {
        Session { seed, profile, tolerance: Tolerance::of(profile), round: 1, keys: TrialKeys::new(secret) }
    }
}
