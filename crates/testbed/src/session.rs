//! State that all test setups of a run share: seed, profile, keys of trials.

use crate::turnstile::Place;
use crate::validity::Tolerance;
use drophammer_model::suite::Profile;
use drophammer_rig::TrialKeys;
use drophammer_wire::signature::TrialKey;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// State of a run. Copies share its trials and the time for repeats.
#[derive(Clone, Debug)]
pub struct Session {
    /// Seed of every pseudo-random choice. It is in the report.
    pub seed: u64,
    /// The profile.
    pub profile: Profile,
    /// The profile's limits for valid trials.
    pub tolerance: Tolerance,
    /// Current round, from 1.
    pub round: u32,
    /// The DUT's place at the turnstile, if several DUTs are up.
    pub(crate) place: Option<Place>,
    trials: Arc<Mutex<Trials>>,
}

#[derive(Debug)]
struct Trials {
    keys: TrialKeys,
    /// Time left for repeating trials that the host spoilt, beyond the usual attempts.
    repeats: Duration,
}

impl Session {
    /// Starts a run. `secret` distinguishes its frames from frames of other runs, so it should differ from run to run.
    pub fn new(seed: u64, profile: Profile, secret: u64) -> Session {
        Session::with(seed, profile, TrialKeys::new(secret), Duration::MAX)
    }

    /// Like [`Session::new`], but with these keys, and with this much time for trials that the host spoils.
    pub(crate) fn with(seed: u64, profile: Profile, keys: TrialKeys, repeats: Duration) -> Session {
        let trials = Arc::new(Mutex::new(Trials { keys, repeats }));
        Session { seed, profile, tolerance: Tolerance::of(profile), round: 1, place: None, trials }
    }

    /// Returns a copy for a DUT whose tests wait at `place`.
    pub(crate) fn at(&self, place: Place) -> Session {
        Session { place: Some(place), ..self.clone() }
    }

    fn trials(&self) -> MutexGuard<'_, Trials> {
        // The data stay consistent even if a thread panicked: each change is complete before anything can panic.
        self.trials.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns number and key of the next trial, and the keys of the trials before it.
    pub(crate) fn next_trial(&self) -> (u64, TrialKey, Vec<TrialKey>) {
        self.trials().keys.next_trial()
    }

    /// Spends `took` on an attempt that the host spoilt. False if that much time was not left.
    pub(crate) fn spend(&self, took: Duration) -> bool {
        let mut trials = self.trials();
        let left = trials.repeats.checked_sub(took);
        trials.repeats = left.unwrap_or_default();
        left.is_some()
    }
}
