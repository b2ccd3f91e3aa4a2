//! Keys that distinguish the frames of one trial from the frames of all other trials.

use drophammer_wire::signature::TrialKey;
use std::collections::VecDeque;

/// Number of earlier trials whose late frames are still recognised.
const REMEMBERED: usize = 16;

/// Numbers trials and gives each of them a key.
#[derive(Debug)]
pub struct TrialKeys {
    secret: u64,
    trial: u64,
    earlier: VecDeque<TrialKey>,
}

impl TrialKeys {
    /// Creates the keys of a run. `secret` distinguishes the run's frames from the frames of all other runs, and should
    /// differ from run to run.
    pub fn new(secret: u64) -> TrialKeys {
        TrialKeys { secret, trial: 0, earlier: VecDeque::with_capacity(REMEMBERED) }
    }

    /// Creates the keys of a run that continues after trial `last`.
    pub fn after(secret: u64, last: u64) -> TrialKeys {
        TrialKeys { trial: last, ..TrialKeys::new(secret) }
    }

    /// Returns number and key of the next trial, and the keys of earlier trials.
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
