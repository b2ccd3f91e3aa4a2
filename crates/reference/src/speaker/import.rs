//! VPN routes of PE routers: which VRFs import them (RFC 4364 section 4.3.1).

use super::read::{Update, VpnNet};
use super::{Sender, Table};
use crate::config::Vrf;
use crate::rib::{Attributes, Hop, LEAKED, Net, Path, PeerId, Source, TableId};
use crate::vpn::{Distinguishers, take_targets};
use drophammer_emulation::bgp::Negotiated;
use drophammer_model::Instant;
use drophammer_model::routes::{FIRST_LABEL, VpnId};
use drophammer_wire::bgp::notification::Notification;
use std::collections::HashMap;

/// What is known about imports.
pub(super) struct Import {
    by_target: HashMap<VpnId, TableId>,
    distinguishers: Distinguishers,
    /// True while the fault of the same name is set.
    leaks: bool,
    leaked: Option<Leaked>,
}

/// The route that is imported into a wrong VRF.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Leaked {
    peer: PeerId,
    distinguisher: [u8; 8],
    net: Net,
    to: TableId,
}

impl Import {
    pub fn new(vrfs: &[Vrf]) -> Import {
        let by_target = (1..).zip(vrfs).map(|(table, vrf)| (vrf.target, table)).collect();
        Import { by_target, distinguishers: Distinguishers::default(), leaks: false, leaked: None }
    }

    /// Call it when no path is left.
    pub fn forget(&mut self) {
        self.distinguishers = Distinguishers::default();
    }

    /// The tables that import routes with these targets, ascending.
    fn tables(&self, targets: &[VpnId]) -> Vec<TableId> {
        let mut tables: Vec<_> = targets.iter().filter_map(|target| self.by_target.get(target).copied()).collect();
        tables.sort_unstable();
        tables.dedup();
        tables
    }

    /// The next table after the first of `tables`, in a circle, that is not one of them: a wrong table for the route.
    fn wrong_table(&self, tables: &[TableId]) -> Option<TableId> {
        let (first, count) = (*tables.first()?, self.by_target.len() as TableId);
        (first..first + count).map(|before| before % count + 1).find(|table| !tables.contains(table))
    }

    /// The wrong table that a route is imported into.
    fn leak_of(&self, peer: PeerId, route: &VpnNet) -> Option<TableId> {
        let same = |l: &Leaked| (l.peer, l.distinguisher, l.net) == (peer, route.distinguisher, route.net);
        self.leaked.filter(same).map(|leaked| leaked.to)
    }
}

impl Table {
    /// Processes VPN routes.
    pub fn vpn(&mut self, from: Sender<'_, '_>, update: Update<'_>, with: &Negotiated) -> Result<(), Notification> {
        let Sender { now, peer, port, hops, .. } = from;
        for route in update.vpn_withdrawn {
            self.truth.withdrawals_received += 1;
            self.remove_from_all_but(now, peer, &route, &[]);
        }
        self.forget();
        let (routes, next_hop) = update.vpn_announced;
        let Some(mut attributes) = update.attributes else {
            for route in routes {
                self.truth.routes_received += 1;
                self.truth.treated_as_withdrawn += 1;
                self.remove_from_all_but(now, peer, &route, &[]);
            }
            return Ok(());
        };
        attributes.next_hop = next_hop;
        attributes.originator = attributes.originator.or(Some(with.peer_id.to_bits()));
        let (others, targets) = take_targets(&attributes.others);
        attributes.others = others;
        let looped = attributes.passed(self.asn) || attributes.reflected_by(self.router_id);
        let pe = if looped { None } else { hops(port, next_hop) };
        let tables = self.import.tables(&targets);
        for route in routes {
            self.truth.routes_received += 1;
            self.truth.looped += u64::from(looped);
            let hop = pe.filter(|_| route.label >= FIRST_LABEL).map(|pe| Hop::Pe { pe, label: route.label });
            self.truth.unreachable += u64::from(!looped && hop.is_none());
            self.remove_from_all_but(now, peer, &route, &tables);
            self.import(now, peer, &route, hop, &attributes, &tables)?;
            self.count_to_reset()?;
        }
        Ok(())
    }

    /// Removes a route of a peer from the tables that have imported it and are not listed.
    fn remove_from_all_but(&mut self, now: Instant, peer: PeerId, route: &VpnNet, listed: &[TableId]) {
        let Some(distinguisher) = self.import.distinguishers.find(route.distinguisher) else { return };
        let (_, tables) = self.import.distinguishers.get(distinguisher);
        for table in tables.iter().filter(|table| !listed.contains(table)) {
            self.rib.withdraw(now, *table, route.net, Source { distinguisher, peer });
        }
        if listed.is_empty()
            && let Some(to) = self.import.leak_of(peer, route)
        {
            self.rib.withdraw(now, to, route.net, Source { distinguisher: distinguisher | LEAKED, peer });
        }
    }

    /// Adds a route to the tables that import it.
    fn import(
        &mut self,
        now: Instant,
        peer: PeerId,
        route: &VpnNet,
        hop: Option<Hop>,
        attributes: &Attributes,
        tables: &[TableId],
    ) -> Result<(), Notification> {
        if tables.is_empty() {
            self.truth.not_imported += 1;
            return Ok(());
        }
        let distinguisher = self.import.distinguishers.intern(route.distinguisher);
        self.import.distinguishers.add(distinguisher, tables);
        let attributes = self.rib.intern(attributes);
        let source = Source { distinguisher, peer };
        let path = Path { attributes, hop, source, internal: true, client: false };
        for table in tables {
            self.announce(now, *table, route.net, path)?;
        }
        let Import { leaks, leaked, .. } = self.import;
        if leaks && leaked.is_none() {
            let VpnNet { distinguisher, net, .. } = *route;
            let to = self.import.wrong_table(tables);
            self.import.leaked = to.map(|to| Leaked { peer, distinguisher, net, to });
        }
        if let Some(to) = self.import.leak_of(peer, route) {
            self.leak_path(now, to, route.net, path);
        }
        Ok(())
    }

    fn leak_path(&mut self, now: Instant, to: TableId, net: Net, path: Path) {
        let Source { distinguisher, peer } = path.source;
        let source = Source { distinguisher: distinguisher | LEAKED, peer };
        self.truth.leaked += u64::from(self.rib.announce(now, to, net, Path { source, ..path }));
    }

    /// Begins or ends to import a route into a wrong VRF ([`crate::BgpFaults::leak_vpn_route`]).
    pub fn leak(&mut self, now: Instant, leaks: bool) {
        if std::mem::replace(&mut self.import.leaks, leaks) == leaks {
            return;
        }
        if !leaks {
            if let Some(Leaked { peer, distinguisher, net, to }) = self.import.leaked.take()
                && let Some(number) = self.import.distinguishers.find(distinguisher)
            {
                self.rib.withdraw(now, to, net, Source { distinguisher: number | LEAKED, peer });
            }
            return;
        }
        let Some((_, net, path)) = self.rib.first_imported() else { return };
        let (distinguisher, tables) = self.import.distinguishers.get(path.source.distinguisher);
        let Some(to) = self.import.wrong_table(tables) else { return };
        self.import.leaked = Some(Leaked { peer: path.source.peer, distinguisher, net, to });
        self.leak_path(now, to, net, path);
    }
}
