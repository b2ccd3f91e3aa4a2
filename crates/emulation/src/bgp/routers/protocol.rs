//! BGP as a protocol of a device.

use super::{PeerConfig, Routers};
use crate::bgp::{RouteSet, VpnRouteSet};
use crate::device::DeviceConfig;
use crate::protocol::{Command, Input, Match, Output, Protocol, Refused, State};
use crate::tcp::TcpStack;
use drophammer_model::Instant;
use drophammer_model::routes::Change;
use drophammer_wire::bgp::{self, Notification};
use std::collections::HashMap;
use std::time::Duration;

/// Its name.
pub const NAME: &str = "bgp";

/// Commands of BGP. Peers are numbered from 0, in the order of the configuration.
#[derive(Clone, Debug)]
pub enum BgpCommand {
    /// Starts the session of one peer.
    Start(usize),
    /// Ends the session of one peer with a Cease (Administrative Shutdown); it stays down.
    Stop(usize),
    /// Ends the session of one peer with this NOTIFICATION, if there is a connection; it comes back by itself.
    Notify {
        /// Number of the peer.
        peer: usize,
        /// What the peer is told.
        notification: Notification,
    },
    /// Restarts the session of one peer gracefully (RFC 4724), if there is a connection.
    Restart {
        /// Number of the peer.
        peer: usize,
        /// Time until it connects again.
        away: Duration,
        /// What the peer is told; `None` to end the connection without a word.
        notification: Option<Notification>,
    },
    /// Advertises routes to one peer, or withdraws them.
    Routes {
        /// Number of the peer.
        peer: usize,
        /// Advertise or withdraw.
        change: Change,
        /// The routes.
        set: RouteSet,
    },
    /// Advertises routes of VRFs to one peer, or withdraws them.
    VpnRoutes {
        /// Number of the peer.
        peer: usize,
        /// Advertise or withdraw.
        change: Change,
        /// The routes.
        set: VpnRouteSet,
    },
}

impl BgpCommand {
    fn peer(&self) -> usize {
        match self {
            BgpCommand::Start(peer)
            | BgpCommand::Stop(peer)
            | BgpCommand::Notify { peer, .. }
            | BgpCommand::Restart { peer, .. }
            | BgpCommand::Routes { peer, .. }
            | BgpCommand::VpnRoutes { peer, .. } => *peer,
        }
    }
}

impl Routers {
    /// The speakers of a device.
    ///
    /// # Errors
    /// There are no peers, two peers have the same addresses, or a session cannot be protected.
    pub(crate) fn configured(device: &DeviceConfig, peers: &[PeerConfig]) -> Result<Routers, Refused> {
        if peers.is_empty() {
            return Err(Refused::new(NAME, "its configuration needs at least one peer"));
        }
        for (index, peer) in peers.iter().enumerate() {
            peer.protection.check().map_err(|e| Refused::new(NAME, format!("peer {index}: {e}")))?;
        }
        let mut ends = HashMap::new();
        for (index, PeerConfig { address, dut, .. }) in peers.iter().enumerate() {
            if let Some(other) = ends.insert((address, dut), index) {
                let reason = format!("peer {index}: peer {other} has a session from {address} to {dut} already");
                return Err(Refused::new(NAME, reason));
            }
        }
        Ok(Routers::new(device.seed, peers.to_vec()).with_buffer(device.tcp_memory / 2 / peers.len()))
    }
}

impl Protocol for Routers {
    fn name(&self) -> &'static str {
        NAME
    }

    fn matches(&self) -> &[Match] {
        &[Match::TcpPort(bgp::PORT)]
    }

    fn attach(&mut self, tcp: &mut TcpStack) {
        Routers::attach(self, tcp);
    }

    fn receive(&mut self, now: Instant, input: Input<'_>, out: &mut Output<'_>) {
        match input {
            Input::Connections(ready) => self.read(now, ready, out.tcp),
            Input::Accepted { listener, connection } => self.take_connection(now, listener, connection, out.tcp),
            _ => {}
        }
    }

    fn poll(&mut self, now: Instant, budget: usize, out: &mut Output<'_>) {
        self.work(now, budget, out);
    }

    fn next_deadline(&self) -> Option<Instant> {
        if !self.busy.is_empty() {
            return Some(Instant(0));
        }
        self.timers.peek().map(|timer| timer.0.0)
    }

    fn command(&mut self, now: Instant, command: &Command) -> Result<(), Refused> {
        let own = match command {
            Command::Start => {
                (0..self.len()).for_each(|peer| self.start(now, peer));
                return Ok(());
            }
            Command::Stop => {
                (0..self.len()).for_each(|peer| self.stop(now, peer));
                return Ok(());
            }
            Command::Bgp(own) => own,
            _ => return Err(Refused::unknown(NAME)),
        };
        if own.peer() >= self.len() {
            let reason =
                format!("there is no peer {}: the device has {} peers, numbered from 0", own.peer(), self.len());
            return Err(Refused::new(NAME, reason));
        }
        match own {
            BgpCommand::Start(peer) => self.start(now, *peer),
            BgpCommand::Stop(peer) => self.stop(now, *peer),
            BgpCommand::Notify { peer, notification } => self.notify(now, *peer, notification.clone()),
            BgpCommand::Restart { peer, away, notification } => {
                self.restart(now, *peer, *away, notification.clone());
            }
            BgpCommand::Routes { peer, change, set } => self.adj_rib_out(*peer).push(*change, set.clone()),
            BgpCommand::VpnRoutes { peer, change, set } => self.adj_rib_out(*peer).push_vpn(*change, set.clone()),
        }
        Ok(())
    }

    fn state(&self) -> State {
        let sum = |of: fn(&Routers, usize) -> u64| (0..self.len()).map(|peer| of(self, peer)).sum();
        State {
            sessions: self.len() as u32,
            up: (0..self.len()).filter(|peer| self.established(*peer)).count() as u32,
            counters: vec![
                ("sessions_lost", sum(|r, peer| r.losses(peer).0.into())),
                ("md5_missing", self.refusals.md5_missing),
                ("md5_wrong", self.refusals.md5_wrong),
                ("ttl_low", self.refusals.ttl_low),
                ("updates_sent", sum(|r, peer| r.session(peer).sent().updates)),
                ("updates_received", sum(|r, peer| r.session(peer).received().updates)),
                ("routes_advertised", sum(|r, peer| r.advertised(peer).advertised)),
                ("routes_withdrawn", sum(|r, peer| r.advertised(peer).withdrawn)),
                ("routes_received", sum(|r, peer| r.adj_rib_in(peer).totals().announcements)),
            ],
        }
    }
}
