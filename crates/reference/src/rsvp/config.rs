//! Configuration and counts of RSVP-TE.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Labels that the device hands out to RSVP-TE: all labels from this one on.
pub const FIRST_LABEL: u32 = 600_000;

/// RSVP-TE of a device, which is a transit router of LSPs (RFC 3209).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RsvpConfig {
    /// Interfaces with RSVP, by their numbers; each needs an IPv4 address.
    pub interfaces: Vec<usize>,
    /// Refresh period R (RFC 2205 section 3.7). Each refresh comes after 0.5 R to 1.5 R, drawn from the seed.
    pub refresh: Duration,
    /// Maximum number of LSPs; more are refused with a PathErr: routing problem, MPLS label allocation failure. `None`: as many as
    /// there are labels.
    pub lsp_limit: Option<u32>,
    /// Refresh reduction (RFC 2961) with neighbours that support it.
    pub refresh_reduction: bool,
}

impl Default for RsvpConfig {
    /// No interface; R is 30 s; refresh reduction.
    fn default() -> RsvpConfig {
        RsvpConfig {
            interfaces: Vec::new(),
            refresh: Duration::from_secs(30),
            lsp_limit: None,
            refresh_reduction: true,
        }
    }
}

/// Counters of RSVP since the device started. Messages in a Bundle count on their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RsvpTruth {
    /// LSPs with path state now.
    pub lsps: u64,
    /// LSPs with a reservation now: their labels are in the label table.
    pub reserved: u64,
    /// LSPs refused because of [`RsvpConfig::lsp_limit`].
    pub refused: u64,
    /// Path states that timed out.
    pub path_timeouts: u64,
    /// Reservations that timed out.
    pub resv_timeouts: u64,
    /// LSPs that a fault forgot; see [`crate::Faults::forget_lsp_on_refresh`].
    pub forgotten: u64,
    /// Refreshes of known path states that arrived, as messages or in summaries.
    pub path_refreshes: u64,
    /// Malformed messages.
    pub malformed: u64,
    /// Messages that were older than another one about the same state (RFC 2961 section 4.3).
    pub out_of_order: u64,
    /// Neighbours that have restarted (RFC 3209 section 5.3).
    pub restarts: u64,
    /// Path received.
    pub path_received: u64,
    /// Path sent.
    pub path_sent: u64,
    /// Resv received.
    pub resv_received: u64,
    /// Resv sent.
    pub resv_sent: u64,
    /// PathErr and ResvErr received.
    pub errors_received: u64,
    /// PathErr and ResvErr sent, including those passed on.
    pub errors_sent: u64,
    /// PathTear and ResvTear received.
    pub tears_received: u64,
    /// PathTear and ResvTear sent.
    pub tears_sent: u64,
    /// Bundle received.
    pub bundles_received: u64,
    /// Bundle sent.
    pub bundles_sent: u64,
    /// Srefresh received.
    pub summaries_received: u64,
    /// Srefresh sent.
    pub summaries_sent: u64,
    /// Acknowledgements sent.
    pub acks_sent: u64,
    /// MESSAGE_ID_NACKs sent.
    pub nacks_sent: u64,
    /// Acknowledgements received.
    pub acks_received: u64,
    /// MESSAGE_ID_NACKs received.
    pub nacks_received: u64,
    /// Messages sent again because no acknowledgement came.
    pub retransmissions: u64,
    /// Hello sent.
    pub hellos_sent: u64,
}
