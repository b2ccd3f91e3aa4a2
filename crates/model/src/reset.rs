//! Resets of a DUT (RFC 6201): what is reset, and what came of it.

use std::time::Duration;

crate::choice! {
    /// What is reset.
    pub enum ResetKind {
        /// The router's daemons are asked to end, and started again (RFC 6201 section 4.2.1).
        Software = "software",
        /// They are killed, and started again (RFC 6201 section 4.2.2).
        Process = "process",
        /// The link behind which the receiver is goes down and comes up again (compare RFC 6201 section 4.1).
        Link = "link",
    }
}

/// A reset that a test asks for during a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reset {
    /// What is reset.
    pub kind: ResetKind,
    /// When it begins, in seconds after the first departure.
    pub at_s: f64,
    /// How long a link is down.
    pub down: Duration,
    /// How long after its beginning the router has to be whole again.
    pub limit: Duration,
}

/// What a DUT says of a reset that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResetDone {
    /// When it began, after it was asked for.
    pub began: Duration,
    /// When all that was ended runs again, after it was asked for.
    pub ended: Duration,
    /// What was ended and started.
    pub what: String,
    /// What did not come back, and why.
    pub problem: Option<String>,
}

/// A reset as the tester saw it. Times are seconds from its beginning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResetSeen {
    /// What was ended and started.
    pub what: String,
    /// When it began, on the clock of the emulated routers.
    pub began_s: f64,
    /// Until all that was ended ran again; `None` where it did not within the limit.
    pub restarted_s: Option<f64>,
    /// BGP sessions that were up and ended.
    pub sessions_lost: u64,
    /// Until all of these were up again; `None` where none ended or not all were within the limit.
    pub sessions_s: Option<f64>,
    /// What did not come back, and why.
    pub problem: Option<String>,
}
