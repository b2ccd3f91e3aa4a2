//! What a test's actions are at the ports.

use super::RoutingState;
use drophammer_model::routes::{Change, RouteAction};
use drophammer_model::trial::PortIndex;
use drophammer_rig::{Act, Hosts, RouterPlace};

impl RoutingState {
    /// What an action is at the ports.
    pub(super) fn act(hosts: &Hosts, action: &RouteAction) -> (PortIndex, Act) {
        match action {
            RouteAction::Routes { peer, change, routes, part, packing } => {
                let RouterPlace { port, device, router } = hosts.place(*peer);
                let advertise = *change == Change::Advertise;
                let (routes, part, packing) = (routes.clone(), part.clone(), *packing);
                (port, Act::Advertise { device, router, advertise, routes, part, packing })
            }
            RouteAction::Close { peer } => {
                let RouterPlace { port, device, router } = hosts.place(*peer);
                (port, Act::Stop { device, router })
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
