//! What a rig is at, at one moment.

use drophammer_model::Instant;
use drophammer_traffic::Snapshot;

/// Counts of ports, flows and sessions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// When, on the clock of the ports.
    pub at: Instant,
    /// Of the traffic by flow, group and port; `None` where there is none.
    pub traffic: Option<Snapshot>,
    /// Of each session.
    pub sessions: Vec<SessionMetrics>,
}

/// What a BGP session is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionMetrics {
    /// Is it established?
    pub established: bool,
    /// Times that it went down without being asked to.
    pub losses: u32,
    /// Bytes of UPDATE messages that it has taken.
    pub bytes_sent: u64,
    /// UPDATE messages received.
    pub updates_received: u64,
    /// Bytes received.
    pub bytes_received: u64,
}
