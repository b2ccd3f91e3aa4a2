//! Actions of emulated devices on request.

use drophammer_emulation::banner::AskBanner;
use drophammer_emulation::bgp::Routers;
use drophammer_emulation::ping::Echo;
use drophammer_model::quantity::Instant;
use drophammer_model::routes::{Packing, Routes};
use drophammer_model::trial::PortIndex;
use std::ops::Range;
use std::sync::Arc;

/// What routers do at the events of a trial: for each event, the ports and their actions.
pub type Acts<'a> = &'a [Vec<(PortIndex, Act)>];

/// An action of a router or of the link of its port.
#[derive(Clone, Debug)]
pub enum Act {
    /// A router advertises or withdraws routes.
    Advertise {
        /// Index of its device on the port.
        device: usize,
        /// Its number among the routers of the device.
        router: usize,
        /// True to advertise, false to withdraw.
        advertise: bool,
        /// The route set.
        routes: Arc<Routes>,
        /// The part of the route set to use.
        part: Range<u32>,
        /// How routes are packed into UPDATE messages.
        packing: Packing,
    },
    /// A router ends its session.
    Stop {
        /// Index of its device on the port.
        device: usize,
        /// Its number among the routers of the device.
        router: usize,
    },
    /// The first device of the port sends an echo request if it has an address of the family.
    Ping(Echo),
    /// The first device of the port requests the SSH banner of its gateway if it has an address of the family.
    Banner(AskBanner),
    /// The link goes down or up.
    Link(bool),
}

impl Act {
    /// The device that acts; `None` for a change of the link.
    pub(crate) fn device(&self) -> Option<usize> {
        match self {
            Act::Advertise { device, .. } | Act::Stop { device, .. } => Some(*device),
            Act::Ping(_) | Act::Banner(_) | Act::Link(_) => None,
        }
    }

    /// Runs the action on the routers of its device.
    pub(crate) fn run(&self, now: Instant, routers: &mut Routers) {
        match self {
            Act::Advertise { router, advertise, routes, part, packing, .. } => {
                let adj_rib_out = routers.adj_rib_out(*router);
                if *advertise {
                    adj_rib_out.advertise(routes.clone(), part.clone(), *packing);
                } else {
                    adj_rib_out.withdraw(routes.clone(), part.clone(), *packing);
                }
            }
            Act::Stop { router, .. } => routers.stop(now, *router),
            Act::Ping(_) | Act::Banner(_) | Act::Link(_) => {}
        }
    }
}
