//! Translates the actions of a test into acts at ports.

use super::{RoutingState, carried};
use drophammer_emulation::bgp::BgpCommand;
use drophammer_model::routes::RouteAction;
use drophammer_model::trial::PortIndex;
use drophammer_rig::{Act, Hosts, RouterPlace};

impl RoutingState {
    /// Returns the port and act for an action.
    pub(super) fn act(&self, hosts: &Hosts, action: &RouteAction) -> (PortIndex, Act) {
        match action {
            RouteAction::Routes { peer, change, routes, part, packing } => {
                let RouterPlace { port, device, router } = hosts.place(self.sessions[*peer]);
                let set = carried::set(self.kind, routes.clone(), part.clone(), *packing);
                (port, Act::bgp(device, BgpCommand::Routes { peer: router, change: *change, set }))
            }
            RouteAction::Close { peer } => {
                let RouterPlace { port, device, router } = hosts.place(self.sessions[*peer]);
                (port, Act::bgp(device, BgpCommand::Stop(router)))
            }
            RouteAction::Link { port, up } => (*port, Act::Link(*up)),
            RouteAction::Igp { port, protocol, change, part } => {
                (*port, crate::igp::act(*protocol, *change, part.clone()))
            }
        }
    }

    /// Records which sessions have UPDATEs to send, and which must stay up.
    pub(super) fn note(&mut self, action: &RouteAction) {
        match action {
            RouteAction::Routes { peer, .. } => {
                self.advertising.insert(*peer);
            }
            RouteAction::Close { peer } => {
                self.wanted.remove(peer);
                self.ended_some = true;
            }
            RouteAction::Link { .. } | RouteAction::Igp { .. } => {}
        }
    }
}
