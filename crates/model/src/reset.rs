//! Resets of a DUT (RFC 6201) and their results.

use std::time::Duration;

crate::choice! {
    /// The part of the DUT that is reset.
    pub enum ResetKind {
        /// Asks the router's daemons to terminate, and starts them again (RFC 6201 section 4.2.1).
        Software = "software",
        /// Kills the daemons, and starts them again (RFC 6201 section 4.2.2).
        Process = "process",
        /// Takes the link to the receiver down and up again (compare RFC 6201 section 4.1).
        Link = "link",
    }
}

/// A reset that a test requests during a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reset {
    /// What is reset.
    pub kind: ResetKind,
    /// Beginning, in seconds after the first departure.
    pub at_s: f64,
    /// How long a link is down.
    pub down: Duration,
    /// Time limit for full recovery, from the beginning of the reset.
    pub limit: Duration,
}

/// Report of the DUT after a reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResetDone {
    /// Beginning of the reset, relative to the request.
    pub began: Duration,
    /// Time when everything that was stopped ran again, relative to the request.
    pub ended: Duration,
    /// What was stopped and started.
    pub what: String,
    /// What did not come back, with the reason.
    pub problem: Option<String>,
}

/// A reset as the tester observed it, with times in seconds after its beginning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResetSeen {
    /// What was stopped and started.
    pub what: String,
    /// Beginning, on the clock of the emulated routers.
    pub began_s: f64,
    /// Beginning, in seconds after the first departure. It may differ from [`Reset::at_s`], because a reset of daemons
    /// uses a separate clock, which starts before the traffic.
    pub at_s: f64,
    /// Time until everything that was stopped ran again; `None` if the time limit ended first.
    pub restarted_s: Option<f64>,
    /// Established BGP sessions that ended.
    pub sessions_lost: u64,
    /// Time until all lost sessions were established again; `None` if none was lost or the time limit ended first.
    pub sessions_s: Option<f64>,
    /// What did not come back, with the reason.
    pub problem: Option<String>,
}
