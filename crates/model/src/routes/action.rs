//! Actions of emulated routers (advertise and withdraw routes, end sessions) and of links.

use super::Routes;
use crate::trial::PortIndex;
use std::ops::Range;
use std::sync::Arc;

/// Index of the BGP session of an emulated router, over all ports of a testbed.
pub type PeerIndex = usize;

/// How routes are packed into UPDATE messages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Packing {
    /// Most routes in an UPDATE; 0 for all routes with the same attributes that fit into 4096 bytes (RFC 4271 section
    /// 4).
    pub routes_per_update: u16,
    /// Routes per second; `None` for as fast as the peer accepts them.
    pub pace: Option<f64>,
    /// How many more times the router prepends its own AS, which makes the route less preferred. Within one AS, where
    /// nothing is prepended, it lowers LOCAL_PREF by this number instead.
    pub prepend: u8,
}

/// Whether an UPDATE advertises or withdraws routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The routes are reachable.
    Advertise,
    /// The routes are no longer reachable.
    Withdraw,
}

/// An action of the emulated routers.
#[derive(Clone, Debug)]
pub enum RouteAction {
    /// Advertise or withdraw a part of `routes`.
    Routes {
        /// Router that sends the UPDATEs.
        peer: PeerIndex,
        /// Advertise or withdraw.
        change: Change,
        /// The routes.
        routes: Arc<Routes>,
        /// Indices within `routes`.
        part: Range<u32>,
        /// How to pack them into UPDATEs.
        packing: Packing,
    },
    /// End a session with a NOTIFICATION (Cease, RFC 4486). It stays down until it is established again.
    Close {
        /// Router that ends the session.
        peer: PeerIndex,
    },
    /// Take the link of a port down, like a pulled cable, or up again.
    Link {
        /// The port.
        port: PortIndex,
        /// True for up.
        up: bool,
    },
}
