//! What all test setups of one run share: seed, profile, keys of trials.

use drophammer_model::suite::Profile;
use drophammer_rig::TrialKeys;

/// The thread of a run.
#[derive(Debug)]
pub struct Session {
    /// Seed of every pseudo-random choice, reported.
    pub seed: u64,
    /// Profile.
    pub profile: Profile,
    /// Round that runs, from 1.
    pub round: u32,
    /// Numbers and keys of its trials.
    pub keys: TrialKeys,
}

impl Session {
    /// A run. `secret` distinguishes its frames from those of other runs; it should differ from run to run.
    pub fn new(seed: u64, profile: Profile, secret: u64) -> Session {
        Session { seed, profile, round: 1, keys: TrialKeys::new(secret) }
    }
}
