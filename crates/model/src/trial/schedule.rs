//! A flow that leaves at a rate of its own.

use serde::{Deserialize, Serialize};

/// When the frames of one flow leave: evenly spaced, at a rate of its own.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowSchedule {
    /// Frames per second.
    pub rate_pps: f64,
    /// First departure after the start of the trial, in seconds.
    #[serde(default)]
    pub delay_s: f64,
    /// How much it sends.
    pub duration: FlowDuration,
}

/// How much a flow sends. Whatever it says, a flow ends with the sending time of its trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowDuration {
    /// Until the trial stops sending.
    Continuous,
    /// So many frames.
    Frames(u64),
    /// So many seconds.
    Seconds(f64),
}
