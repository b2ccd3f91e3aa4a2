//! What a test's actions are at the ports.

use super::RoutingState;
use crate::hosts::Act;
use drophammer_emulation::bgp::Packing as OutPacking;
use drophammer_methods::{Packing, RouteAction};
use drophammer_model::trial::PortIndex;

impl RoutingState {
    /// What an action is at the ports.
    pub(super) fn act(&self, action: &RouteAction) -> (PortIndex, Act) {
        let packing =
            |p: &Packing| OutPacking { routes_per_update: p.routes_per_update, pace: p.pace, prepend: p.prepend };
        match action {
            RouteAction::Announce { peer, routes, part, packing: how }
            | RouteAction::Withdraw { peer, routes, part, packing: how } => {
                let (port, router) = self.at(*peer);
                let advertise = matches!(action, RouteAction::Announce { .. });
                let (routes, part, packing) = (routes.clone(), part.clone(), packing(how));
                (port, Act::Advertise { router, advertise, routes, part, packing })
            }
            RouteAction::Close { peer } => {
                let (port, router) = self.at(*peer);
                (port, Act::Stop(router))
            }
            RouteAction::Link { port, up } => (*port, Act::Link(*up)),
        }
    }

    /// Keeps in mind who has something to say and who must be up.
    pub(super) fn note(&mut self, action: &RouteAction) {
        match action {
            RouteAction::Announce { peer, .. } | RouteAction::Withdraw { peer, .. } => {
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
