//! State of the routers behind the ports: sessions, acknowledgements, completeness, progress.

use super::RoutingState;
use drophammer_methods::routing::{PeerIndex, WatchIndex};
use drophammer_rig::{Hosts, Until};

impl RoutingState {
    /// Returns the peers whose sessions must be up.
    pub(crate) fn wanted(&self) -> Vec<PeerIndex> {
        self.wanted.iter().copied().collect()
    }

    /// Returns the first session that should be up but is not, and why.
    pub(super) fn lost(&self, hosts: &Hosts) -> Option<(PeerIndex, String)> {
        self.wanted.iter().find_map(|peer| {
            let (routers, router) = self.router(hosts, *peer)?;
            if routers.established(router) {
                return None;
            }
            let cause = routers.explain(router, routers.session(router).ended());
            Some((*peer, cause.unwrap_or("it never came up".to_owned())))
        })
    }

    /// Returns an addition to an error message. It names the sessions that must be up but went down after they were
    /// established, and so lost their routes.
    pub(super) fn came_back(&self, hosts: &Hosts) -> String {
        let lost = |peer: &PeerIndex| {
            let (routers, router) = self.router(hosts, *peer)?;
            let (losses, cause) = routers.losses(router);
            let cause = cause.filter(|_| losses > 0)?;
            Some(format!("; the session of {} had ended: {cause}", self.peers[*peer].name))
        };
        self.wanted.iter().filter_map(lost).collect()
    }

    /// Returns the condition that the DUT has acknowledged all UPDATEs.
    pub(super) fn acknowledged(&self) -> Until {
        Until::Acknowledged(self.sessions_of(&self.advertising))
    }

    /// Returns the condition that all sessions that were asked to end have ended.
    pub(super) fn ended(&self) -> Until {
        let ended = (0..self.peers.len()).filter(|peer| !self.wanted.contains(peer));
        Until::Idle(ended.map(|peer| self.sessions[peer]).collect())
    }

    /// Returns the condition that the observers have received the expected routes, and all sessions that were asked to end have ended.
    pub(super) fn complete(&self, watches: &[WatchIndex]) -> Until {
        let expectation = |watch: &WatchIndex| (self.sessions[self.watches[*watch].observer], self.watches[*watch].id);
        Until::All(vec![Until::Received(watches.iter().map(expectation).collect()), self.ended()])
    }

    /// Sum of all traffic sent and received. It changes while routes are exchanged.
    pub(super) fn movement(&self, hosts: &Hosts) -> u64 {
        let of = |peer: &PeerIndex| {
            let (routers, router) = self.router(hosts, *peer)?;
            let (received, sent) = (routers.adj_rib_in(router).totals(), routers.advertised(router));
            Some(received.bytes + received.updates + sent.bytes)
        };
        self.wanted.iter().filter_map(of).sum()
    }
}
