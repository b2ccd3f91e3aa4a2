//! The schedule of a flow with its own rate.

use serde::{Deserialize, Serialize};

/// Evenly spaced departures of one flow's frames, at the flow's own rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowSchedule {
    /// Frames per second.
    pub rate_pps: f64,
    /// First departure after the start of the trial, in seconds.
    #[serde(default)]
    pub delay_s: f64,
    /// How long it sends.
    pub duration: FlowDuration,
}

/// How long a flow sends. It always ends with the sending time of its trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowDuration {
    /// Until the trial stops sending.
    Continuous,
    /// A number of frames.
    Frames(u64),
    /// A number of seconds.
    Seconds(f64),
}
