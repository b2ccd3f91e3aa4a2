//! Paths, and errors and tears of them: state from the previous hop, passed on to the next hop.

use super::lsp::{Half, Lsp};
use super::neighbour::{TTL, To};
use super::{From, Routes, Rsvp, Way};
use drophammer_model::Instant;
use drophammer_wire::rsvp::{
    Adspec, Body, ExplicitHop, ExplicitRoute, HEADER_LEN, Message, Object, Path, PathErr, PathTear, RecordRoute,
    RecordedHop, UnknownClass, error, routing,
};
use std::net::Ipv4Addr;
use std::time::Duration;

/// EtherTypes that a label may be requested for: IPv4 and IPv6.
const L3PIDS: [u16; 2] = [0x0800, 0x86dd];
/// K (RFC 2205 section 3.7).
const KEEP_MULTIPLIER: u64 = 3;
/// Longest recorded route in bytes: 64 hops. A longer one is left out (RFC 3209 section 4.4.3).
pub(super) const MOST_RECORDED: usize = 512;

/// Lifetime of state with this refresh period in ms: (K + 0.5) * 1.5 * R (RFC 2205 section 3.7).
pub(super) fn lifetime(period: u32) -> Duration {
    Duration::from_millis((2 * KEEP_MULTIPLIER + 1) * 3 * u64::from(period) / 4)
}

impl Rsvp {
    /// Takes a Path.
    pub(super) fn path(
        &mut self,
        now: Instant,
        from: From,
        path: &Path<'_>,
        message: &Message<'_>,
        routes: Routes<'_>,
    ) {
        let (next, explicit) = match self.next_hop(path, from, routes) {
            Ok(found) => found,
            Err(value) => return self.refuse_path(from, path, error::ROUTING_PROBLEM, value),
        };
        let key = (path.session, path.sender);
        let mut known = self.lsps.find(&key);
        if let Some(slot) = known
            && let lsp = self.lsps.get(slot)
            && (lsp.heard[Half::Path as usize].neighbour, lsp.next_hop()) != (from.neighbour, next)
        {
            // The LSP has moved.
            self.remove(slot, true);
            known = None;
        }
        let added = known.or_else(|| self.lsps.add(key, path.hop, (from.neighbour, next)));
        let Some(slot) = added else {
            self.truth.refused += 1;
            return self.refuse_path(from, path, error::ROUTING_PROBLEM, routing::LABEL_ALLOCATION);
        };
        if !self.note_id(slot, Half::Path, from) {
            return;
        }
        let lsp = self.lsps.get(slot);
        let moved = lsp.previous != path.hop;
        (lsp.previous, lsp.tspec, lsp.ttl) = (path.hop, path.tspec, from.ttl - 1);
        lsp.heard[Half::Path as usize].lifetime = lifetime(path.refresh);
        let objects = self.path_objects(path, next, &explicit, message);
        self.offer(slot, Half::Path, objects, now);
        if moved {
            self.offer_resv_again(slot, now);
        }
        match known {
            Some(_) => self.refreshed(slot, Half::Path, now),
            None => {
                let heard = &mut self.lsps.get(slot).heard[Half::Path as usize];
                heard.expires = now + heard.lifetime;
                self.lsps.schedule(slot);
            }
        }
    }

    /// The next hop of a Path and the explicit route from there, or the value of the routing problem.
    fn next_hop(&mut self, path: &Path<'_>, from: From, routes: Routes<'_>) -> Result<(usize, Vec<u8>), u16> {
        match path.label_request {
            Some(protocol) if L3PIDS.contains(&protocol) => {}
            _ => return Err(routing::UNSUPPORTED_L3PID),
        }
        let is_own = |address: Ipv4Addr| self.neighbours.is_own(address) || routes(address) == Way::Own;
        let visited = |route: RecordRoute<'_>| {
            route.hops().any(|hop| matches!(hop, RecordedHop::Ipv4 { address, .. } if is_own(address)))
        };
        if path.record_route.is_some_and(visited) {
            return Err(routing::LOOP);
        }
        let mut rest = Vec::new();
        let mut target = path.session.destination;
        let mut strict = false;
        if let Some(route) = path.explicit_route {
            let mut hops = route.hops().peekable();
            let here = |hop: &ExplicitHop<'_>| matches!(hop, ExplicitHop::Ipv4 { address, .. } if is_own(*address));
            // RFC 3209 section 4.3.4.1: the first hop is this node. All hops that are this node are removed.
            match hops.peek() {
                None => return Err(routing::BAD_EXPLICIT_ROUTE),
                Some(hop) if !here(hop) => return Err(routing::BAD_INITIAL_SUBOBJECT),
                Some(_) => while hops.next_if(here).is_some() {},
            }
            match hops.peek() {
                Some(ExplicitHop::Ipv4 { loose, address, .. }) => (target, strict) = (*address, !loose),
                Some(ExplicitHop::AsNumber { loose, .. } | ExplicitHop::Other { loose, .. }) => {
                    return Err(if *loose { routing::BAD_LOOSE_NODE } else { routing::BAD_STRICT_NODE });
                }
                None => {}
            }
            hops.for_each(|hop| hop.emit(&mut rest));
        }
        let no_way = match (rest.is_empty(), strict) {
            (true, _) => routing::NO_ROUTE,
            (false, true) => routing::BAD_STRICT_NODE,
            (false, false) => routing::BAD_LOOSE_NODE,
        };
        let Way::Via(interface, next) = routes(target) else { return Err(no_way) };
        if from.ttl <= 1 || strict && next != target {
            return Err(no_way);
        }
        let instance = self.random.bits() as u32;
        let number = self.neighbours.number(interface, next, instance).ok_or(no_way)?;
        Ok((number, rest))
    }

    /// Objects of the Path to the next hop.
    fn path_objects(&self, path: &Path<'_>, next: usize, explicit: &[u8], message: &Message<'_>) -> Vec<u8> {
        let hop = self.hop(next);
        let mtu = self.neighbours.link(self.neighbours.list[next].interface).map_or(0, |link| link.mtu);
        let adspec =
            |offered: Adspec| Adspec { hops: offered.hops.saturating_add(1), mtu: offered.mtu.min(mtu), ..offered };
        let mut recorded = Vec::new();
        if let Some(route) = path.record_route {
            RecordedHop::Ipv4 { address: hop.address, prefix_len: 32, flags: 0 }.emit(&mut recorded);
            route.hops().for_each(|hop| hop.emit(&mut recorded));
        }
        let record = !recorded.is_empty() && recorded.len() <= MOST_RECORDED;
        let passed = Path {
            hop,
            refresh: self.period(),
            explicit_route: ExplicitRoute::new(explicit).ok().filter(|_| !explicit.is_empty()),
            adspec: path.adspec.map(adspec),
            record_route: RecordRoute::new(&recorded).ok().filter(|_| record),
            ..*path
        };
        let mut objects = Vec::new();
        Body::Path(passed).emit(0, 0, &[], &mut objects);
        objects.drain(..HEADER_LEN);
        // RFC 2205 section 3.10: these objects are passed on unexamined.
        for raw in message.objects().filter(|raw| UnknownClass::of(raw.class) == UnknownClass::Forward) {
            if let Ok(object @ Object::Other { .. }) = Object::parse(raw) {
                object.emit(&mut objects);
            }
        }
        objects
    }

    /// Takes a PathTear: only the previous hop tears the path down (RFC 2205 section 3.1.5).
    pub(super) fn path_tear(&mut self, from: From, tear: &PathTear) {
        let is_from = |lsp: &Lsp| lsp.heard[Half::Path as usize].neighbour == from.neighbour;
        let Some(slot) = self.lsps.find(&(tear.session, tear.sender)) else { return };
        if is_from(self.lsps.get(slot)) && self.note_id(slot, Half::Path, from) {
            self.remove(slot, true);
        }
    }

    /// Passes a PathErr of the next hop on to the previous hop. It also acknowledges the Path (RFC 2961 section 4.3).
    pub(super) fn path_err(&mut self, now: Instant, from: From, error: &PathErr) {
        let Some(slot) = self.lsps.find(&(error.session, error.sender)) else { return };
        if self.lsps.get(slot).next_hop() != from.neighbour {
            return;
        }
        self.confirmed(slot, Half::Path, now);
        let previous = self.lsps.get(slot).heard[Half::Path as usize].neighbour;
        self.truth.errors_sent += 1;
        self.neighbours.send(previous, To::Neighbour, TTL, &Body::PathErr(*error));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_lives_for_five_and_a_quarter_periods() {
        assert_eq!(lifetime(30_000), Duration::from_millis(157_500));
        assert_eq!(lifetime(1), Duration::from_millis(5));
    }
}
