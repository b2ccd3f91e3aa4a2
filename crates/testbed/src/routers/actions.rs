//! What a test's actions are at the ports.

use super::RoutingState;
use drophammer_emulation::bgp::Packing as OutPacking;
use drophammer_model::routes::{Change, Packing, RouteAction};
use drophammer_model::trial::PortIndex;
use drophammer_rig::{Act, Hosts};

impl RoutingState {
    /// What an action is at the ports.
    pub(super) fn act(hosts: &Hosts, action: &RouteAction) -> (PortIndex, Act) {
        let packing =
            |p: &Packing| OutPacking { routes_per_update: p.routes_per_update, pace: p.pace, prepend: p.prepend };
        match action {
            RouteAction::Routes { peer, change, routes, part, packing: how } => {
                let (port, router) = hosts.place(*peer);
                let announce = *change == Change::Advertise;
                let (routes, part, packing) = (routes.clone(), part.clone(), packing(how));
                (port, Act::Say { router, announce, routes, part, packing })
            }
            RouteAction::Close { peer } => {
                let (port, router) = hosts.place(*peer);
                (port, Act::Stop(router))
            }
            RouteAction::Link { port, up } => (*port, Act::Link(*up)),
        }
    }

    /// Keeps in mind who has something to say and who must be up.
    pub(super) fn note(&mut self, action: &RouteAction) {
        match action {
            RouteAction::Routes { peer, .. } => {
                self.speaking.insert(*peer);
            }
            RouteAction::Close { peer } => {
                self.wanted.remove(peer);
                self.ended_some = true;
            }
            RouteAction::Link { .. } => {}
        }
    }
}
