//! Events during a trial: a route is withdrawn, a link goes down.
//!
//! # Events
//!
//! A trial may change routes or links at given times (`RouteAction`). `testbed` translates each action into an `Act` at
//! a port. Every lane calls `Control::event` before it sends the frames that are due at the same instant; the lane of
//! the port acts. In virtual time this is exact to the nanosecond. The drain time starts after the last frame and the
//! last event.

use serde::{Deserialize, Serialize};

/// An event that the testbed triggers during a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedEvent {
    /// Time in seconds after the first departure, possibly at or after the last departure. Frames that are due at the
    /// same instant leave after the event.
    pub at_s: f64,
    /// Number of the event, whose meaning only the owner of the emulated routers knows.
    pub event: usize,
    /// Name in records and plots ("withdraw 1,000 routes").
    pub label: String,
    /// True if the event advertises the routes to all destinations of the trial, false if it withdraws the only routes
    /// to them. Until the first advertisement, and after a withdrawal, no frame can arrive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routed: Option<bool>,
}

impl TimedEvent {
    /// An event that leaves the routes as they are.
    pub fn new(at_s: f64, event: usize, label: impl Into<String>) -> TimedEvent {
        TimedEvent { at_s, event, label: label.into(), routed: None }
    }
}

/// An executed event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventRecord {
    /// Seconds after the first departure at which the last lane involved began.
    pub at_s: f64,
    /// Duration in seconds; 0 in virtual time.
    #[serde(default)]
    pub took_s: f64,
    /// [`TimedEvent::label`].
    pub label: String,
}
