//! What emulated routers do: advertise and withdraw routes, end sessions; and what happens to links.

use super::Routes;
use crate::trial::PortIndex;
use std::ops::Range;
use std::sync::Arc;

/// Index of the BGP session of an emulated router, over all ports of a testbed.
pub type PeerIndex = usize;

/// How routes go into UPDATE messages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Packing {
    /// Routes in an UPDATE at most; 0 for as many as share attributes and fit into 4096 bytes (RFC 4271 section 4).
    pub routes_per_update: u16,
    /// Routes per second; `None` for as fast as the peer takes them.
    pub pace: Option<f64>,
    /// Times that the router prepends its own AS beyond the first, so that shorter paths are preferred. In a session within
    /// one AS, where it does not prepend at all, LOCAL_PREF is lower by this number.
    pub prepend: u8,
}

/// What an UPDATE says of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// They are reachable.
    Advertise,
    /// They are not any more.
    Withdraw,
}

/// Something that emulated routers do.
#[derive(Clone, Debug)]
pub enum RouteAction {
    /// Advertise or withdraw a part of `routes`.
    Routes {
        /// Router that does it.
        peer: PeerIndex,
        /// Which of the two.
        change: Change,
        /// The routes.
        routes: Arc<Routes>,
        /// Indices within `routes`.
        part: Range<u32>,
        /// How they are sent.
        packing: Packing,
    },
    /// End a session with a NOTIFICATION (Cease, RFC 4486). It stays down until it is established again.
    Close {
        /// Router that does it.
        peer: PeerIndex,
    },
    /// Take the link of a port down, as a pulled cable would, or up again.
    Link {
        /// The port.
        port: PortIndex,
        /// True for up.
        up: bool,
    },
}
