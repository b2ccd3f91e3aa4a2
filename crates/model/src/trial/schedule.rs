//! The schedule of a flow with a separate rate.

use serde::{Deserialize, Serialize};

/// Departures of the frames of one flow: evenly spaced, at a separate rate.
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

/// How long a flow sends. In any case it ends with the sending time of its trial.
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
