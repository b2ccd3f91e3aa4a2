//! What all beds of one run share: seed, keys of trials, their numbers.

use drophammer_model::suite::Profile;
use drophammer_wire::signature::TrialKey;
use std::collections::VecDeque;

/// Trials whose late frames are still recognised.
const REMEMBERED: usize = 16;

/// The thread of a run.
#[derive(Debug)]
pub struct Session {
    /// Seed of every pseudo-random choice, reported.
    pub seed: u64,
    /// Profile.
    pub profile: Profile,
    secret: u64,
    trial: u64,
    earlier: VecDeque<TrialKey>,
}

impl Session {
    /// A run. `secret` tells its frames from those of any other run; it should differ from run to run.
    pub fn new(seed: u64, profile: Profile, secret: u64) -> Session {
        Session { seed, profile, secret, trial: 0, earlier: VecDeque::with_capacity(REMEMBERED) }
    }

    /// Number and key of the next trial, and the keys of those before it.
    pub fn next_trial(&mut self) -> (u64, TrialKey, Vec<TrialKey>) {
        self.trial += 1;
        let key = TrialKey::new(self.secret, self.trial);
        let earlier = self.earlier.iter().copied().collect();
        if self.earlier.len() == REMEMBERED {
            self.earlier.pop_front();
        }
        self.earlier.push_back(key);
        (self.trial, key, earlier)
    }
}
