//! What happens during a trial beside its traffic: a route is withdrawn, a link goes down.

use serde::{Deserialize, Serialize};

/// Something that the testbed is to do during a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedEvent {
    /// When, in seconds after the first departure; at or after the last one too. Frames that are due at the same instant
    /// leave after it.
    pub at_s: f64,
    /// What; the trial hands the number on, and whoever owns the emulated routers knows it.
    pub event: usize,
    /// What it is called in records and plots ("withdraw 1,000 routes").
    pub label: String,
}

/// An event that was carried out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventRecord {
    /// When it was begun, in seconds after the first departure; by the last lane whose business it was.
    pub at_s: f64,
    /// How long that took, in seconds; 0 in virtual time.
    #[serde(default)]
    pub took_s: f64,
    /// [`TimedEvent::label`].
    pub label: String,
}
