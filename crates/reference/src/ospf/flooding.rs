//! Flooding (RFC 2328 section 13), ageing (section 14), and the Router-LSA of the device (section 12.4.1).

use super::neighbour::State;
use super::{COST, Late, Ospf, network};
use crate::faults::is_nth;
use drophammer_model::Instant;
use drophammer_wire::ospf::body::link;
use drophammer_wire::ospf::exchange::UPDATE_LEN;
use drophammer_wire::ospf::lsa::{INITIAL_SEQUENCE, MAX_AGE, MAX_SEQUENCE};
use drophammer_wire::ospf::{
    LinkStateAck, LinkStateUpdate, Lsa, LsaHeader, LsaKey, Router, RouterLink, kind, lsa, lsa_type,
};
use std::cmp::Ordering;
use std::net::Ipv4Addr;
use std::time::Duration;

/// MinLSInterval, MinLSArrival and LSRefreshTime.
const MIN_INTERVAL: Duration = Duration::from_secs(5);
const MIN_ARRIVAL: Duration = Duration::from_secs(1);
const REFRESH: Duration = Duration::from_secs(1800);
/// InfTransDelay, in seconds.
const TRANSIT_DELAY: u16 = 1;
/// Number of Updates that are flooded through a link at a time, and the time between two such groups.
const BURST: usize = 16;
const GAP: Duration = Duration::from_millis(1);
/// Maximum number of LSAs that the fault holds back.
const MOST_LATE: usize = 10_000;

impl Ospf {
    /// Takes a Link State Update.
    pub(super) fn update(&mut self, now: Instant, link: usize, body: &[u8]) {
        let Ok(update) = LinkStateUpdate::parse(body) else { return };
        for lsa in update.iter().flatten() {
            if self.links[link].neighbour.as_ref().is_none_or(|n| n.state < State::Exchange) {
                return;
            }
            self.take(now, link, &lsa);
        }
        self.continue_loading(now, link);
    }

    /// Section 13, for one LSA.
    fn take(&mut self, now: Instant, link: usize, lsa: &Lsa<'_>) {
        let (header, key) = (lsa.header, lsa.header.key);
        let exchanging = self.neighbours().any(|n| matches!(n.state, State::Exchange | State::Loading));
        let known = self.database.get(&key).map(|entry| (entry.header(now), entry.installed));
        if header.age == MAX_AGE && known.is_none() && !exchanging {
            self.links[link].acks.push(header);
            return;
        }
        if !self.database.has_room(&key) {
            self.counts.not_stored += 1;
            self.links[link].acks.push(header);
            return;
        }
        let newness = known.map_or(Ordering::Greater, |(known, _)| header.newness(&known));
        let Some(n) = &mut self.links[link].neighbour else { return };
        match newness {
            Ordering::Greater => {
                if known.is_some_and(|(_, installed)| now.since(installed) < MIN_ARRIVAL) && key.router != self.id {
                    return;
                }
                let flooded = n.state == State::Full && key.router != self.id;
                self.links[link].acks.push(header);
                if flooded && !self.faults.late_lsa_flooding.is_zero() {
                    self.flooded += 1;
                    let full = self.late.len() >= MOST_LATE;
                    if is_nth(self.flooded, self.faults.late_lsa_every) && !full {
                        let mut bytes = Vec::new();
                        header.emit(&mut bytes);
                        bytes.extend_from_slice(lsa.body);
                        let at = now + self.faults.late_lsa_flooding;
                        self.late.push_back(Late { at, link, bytes: bytes.into() });
                        self.counts.late += 1;
                        return;
                    }
                }
                self.install(now, Some(link), lsa);
            }
            Ordering::Equal => {
                // An implied acknowledgment, or a duplicate. What was requested has arrived another way.
                n.satisfied(&key);
                if !n.unacknowledged.remove(&key) {
                    self.links[link].acks.push(header);
                }
            }
            Ordering::Less => {
                if n.requests.contains_key(&key) {
                    return self.start_exchange(now, link);
                }
                let ends = known.is_some_and(|(known, _)| known.age == MAX_AGE && known.sequence == MAX_SEQUENCE);
                if !ends {
                    self.send_updates(now, link, vec![key]);
                }
            }
        }
    }

    /// Installs a new instance, and floods it.
    fn install(&mut self, now: Instant, from: Option<usize>, lsa: &Lsa<'_>) {
        let (header, key) = (lsa.header, lsa.header.key);
        if key.router == self.id {
            return self.overtake(now, lsa);
        }
        self.dying.remove(&key);
        if self.database.install(now, header, lsa.body) {
            self.plan(now);
        }
        if header.age == MAX_AGE {
            self.dying.insert(key);
        }
        self.flood(now, &header, from);
    }

    /// Installs an LSA that a fault has held back, unless a newer one has arrived.
    pub(super) fn install_late(&mut self, now: Instant, late: &Late) {
        let Ok(lsa) = Lsa::parse(&late.bytes) else { return };
        let known = self.database.get(&lsa.header.key).map(|entry| entry.header(now));
        if known.is_none_or(|known| lsa.header.newness(&known) == Ordering::Greater) {
            self.install(now, Some(late.link), &lsa);
        }
    }

    /// A neighbour has an LSA of this router from an earlier life (section 13.4).
    fn overtake(&mut self, now: Instant, lsa: &Lsa<'_>) {
        let (header, key) = (lsa.header, lsa.header.key);
        self.links.iter_mut().filter_map(|link| link.neighbour.as_mut()).for_each(|n| n.satisfied(&key));
        if key == self.own_key() {
            self.own.sequence = Some(header.sequence);
            self.own.due = Some(now);
        } else {
            let end = LsaHeader { age: MAX_AGE, ..header };
            self.database.install(now, end, lsa.body);
            self.dying.insert(key);
            self.flood(now, &end, None);
        }
    }

    /// Section 13.3.
    fn flood(&mut self, now: Instant, header: &LsaHeader, from: Option<usize>) {
        let key = header.key;
        for (i, link) in self.links.iter_mut().enumerate() {
            let Some(n) = link.neighbour.as_mut().filter(|n| n.state >= State::Exchange) else { continue };
            n.unacknowledged.remove(&key);
            if let Some(requested) = n.requests.get(&key) {
                match header.newness(requested) {
                    Ordering::Less => continue,
                    Ordering::Equal => {
                        n.satisfied(&key);
                        continue;
                    }
                    Ordering::Greater => n.satisfied(&key),
                }
            }
            if from != Some(i) {
                n.unacknowledged.insert(key);
                n.retransmit_at = n.retransmit_at.or(Some(now + super::RETRANSMIT));
                link.flood.push_back(key);
                link.flood_at = link.flood_at.max(now);
            }
        }
    }

    /// Sends waiting acknowledgments, and the next updates of the flood.
    pub(super) fn send_floods(&mut self, now: Instant, at: usize) {
        let acks = std::mem::take(&mut self.links[at].acks);
        for some in acks.chunks(self.links[at].room() / lsa::LEN) {
            let mut body = Vec::new();
            some.iter().for_each(|header| header.emit(&mut body));
            self.send(at, kind::LINK_STATE_ACK, &body);
        }
        let room = self.links[at].room() - UPDATE_LEN;
        let link = &mut self.links[at];
        if link.flood.is_empty() || link.flood_at > now {
            return;
        }
        let (mut keys, mut bytes) = (Vec::new(), 0);
        while bytes < BURST * room
            && let Some(key) = link.flood.pop_front()
        {
            bytes += lsa::LEN + self.database.get(&key).map_or(0, |entry| entry.body.len());
            keys.push(key);
        }
        link.flood_at = now + GAP;
        self.send_updates(now, at, keys);
    }

    /// Sends LSAs of the database in as few updates as possible.
    pub(super) fn send_updates(&mut self, now: Instant, at: usize, keys: Vec<LsaKey>) {
        let room = self.links[at].room();
        let mut updates: Vec<(u32, Vec<u8>)> = Vec::new();
        for key in keys {
            let Some(entry) = self.database.get(&key) else { continue };
            let header = entry.header(now);
            let fits = |body: &Vec<u8>| body.len() + usize::from(header.length) <= room;
            if updates.last().is_none_or(|(_, body)| !fits(body)) {
                updates.push((0, vec![0; UPDATE_LEN]));
            }
            if let Some((count, body)) = updates.last_mut() {
                *count += 1;
                LsaHeader { age: (header.age + TRANSIT_DELAY).min(MAX_AGE), ..header }.emit(body);
                body.extend_from_slice(&entry.body);
            }
        }
        for (count, mut body) in updates {
            body[..UPDATE_LEN].copy_from_slice(&count.to_be_bytes());
            self.send(at, kind::LINK_STATE_UPDATE, &body);
        }
    }

    /// Takes a Link State Acknowledgment (section 13.7).
    pub(super) fn acknowledged(&mut self, now: Instant, link: usize, body: &[u8]) {
        let Ok(headers) = LinkStateAck::parse(body) else { return };
        let Some(n) = self.links[link].neighbour.as_mut().filter(|n| n.state >= State::Exchange) else { return };
        for header in headers.iter() {
            if self.database.get(&header.key).is_some_and(|entry| entry.header(now).is_same(&header)) {
                n.unacknowledged.remove(&header.key);
            }
        }
        if n.unacknowledged.is_empty() {
            n.retransmit_at = None;
        }
    }

    /// Lets LSAs reach MaxAge.
    pub(super) fn age(&mut self, now: Instant) {
        while let Some(key) = self.database.take_expired(now) {
            self.database.age_out(now, &key);
            self.dying.insert(key);
            self.plan(now);
            if let Some(header) = self.database.get(&key).map(|entry| entry.header(now)) {
                self.flood(now, &header, None);
            }
        }
    }

    /// Removes LSAs with MaxAge from the database once no neighbour needs them (section 14).
    pub(super) fn bury(&mut self) {
        let busy = |state| matches!(state, State::Exchange | State::Loading);
        if self.dying.is_empty() || self.neighbours().any(|n| busy(n.state)) {
            return;
        }
        let links = &self.links;
        let waits =
            |key: &LsaKey| links.iter().filter_map(|l| l.neighbour.as_ref()).any(|n| n.unacknowledged.contains(key));
        let gone: Vec<_> = self.dying.iter().filter(|key| !waits(key)).copied().collect();
        for key in gone {
            self.dying.remove(&key);
            self.database.remove(&key);
        }
    }

    fn own_key(&self) -> LsaKey {
        LsaKey { kind: lsa_type::ROUTER, id: self.id, router: self.id }
    }

    /// Plans a new instance of the Router-LSA, if its contents have changed.
    pub(super) fn describe(&mut self, now: Instant) {
        if self.router_body() != self.own.body || self.own.sequence.is_none() {
            let earliest = self.own.originated.map_or(now, |at| at + MIN_INTERVAL);
            self.own.due = Some(earliest.max(now));
        }
    }

    fn router_body(&self) -> Vec<u8> {
        let mut links = Vec::new();
        for at in self.links.iter().filter(|link| !link.down) {
            let full = at.neighbour.as_ref().filter(|n| n.state == State::Full);
            links.extend(full.map(|n| RouterLink {
                id: n.id,
                data: at.address,
                kind: link::POINT_TO_POINT,
                metric: COST,
            }));
            let (id, data) = network(at.address, at.length);
            links.push(RouterLink { id, data, kind: link::STUB, metric: COST });
        }
        links.push(RouterLink { id: self.loopback, data: Ipv4Addr::BROADCAST, kind: link::STUB, metric: 0 });
        let mut body = Vec::new();
        Router::emit(0, links.len() as u16, &mut body);
        links.iter().for_each(|link| link.emit(&mut body));
        body
    }

    /// Originates the Router-LSA, and plans its refresh.
    pub(super) fn originate(&mut self, now: Instant) {
        self.own.body = self.router_body();
        // 2^31 instances take longer than any run, so the sequence number does not wrap.
        let sequence = self.own.sequence.map_or(INITIAL_SEQUENCE, |last| last.saturating_add(1));
        (self.own.sequence, self.own.originated, self.own.due) = (Some(sequence), Some(now), Some(now + REFRESH));
        let header =
            LsaHeader { age: 0, options: super::OPTIONS, key: self.own_key(), sequence, checksum: 0, length: 0 };
        let mut bytes = Vec::new();
        header.emit(&mut bytes);
        bytes.extend_from_slice(&self.own.body);
        lsa::seal(&mut bytes);
        let Ok(Lsa { header, body }) = Lsa::parse(&bytes) else { return };
        if self.database.install(now, header, body) {
            self.plan(now);
        }
        self.flood(now, &header, None);
    }
}
