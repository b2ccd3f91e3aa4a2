//! Flooding (RFC 2328 section 13): received LSAs, acknowledgments, retransmission, and the aging of LSAs (section 14).

use super::neighbour::NeighbourState;
use super::{InterfaceState, MIN_LS_ARRIVAL, Ospf, Timer, To};
use crate::protocol::Output;
use drophammer_model::Instant;
use drophammer_wire::ospf::exchange::UPDATE_LEN;
use drophammer_wire::ospf::lsa::{self, MAX_AGE, MAX_SEQUENCE};
use drophammer_wire::ospf::{Body, LinkStateAck, LinkStateUpdate, Lsa, LsaHeader, LsaKey, kind, lsa_type, packet};
use std::cmp::Ordering;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Time that LSAs need to reach a neighbour, in seconds (InfTransDelay).
const TRANSMIT_DELAY: u16 = 1;
/// Acknowledgments wait at most this long to share a packet.
const ACK_DELAY: Duration = Duration::from_secs(1);
/// Maximum number of LSAs for which the time of sending them back is stored.
const MOST_SENT_BACK: usize = 1024;

impl Ospf {
    /// The instance of an LSA in the database. An LSA of this router that came from a neighbour stays there until it is
    /// flushed.
    pub(super) fn current(&self, now: Instant, key: &LsaKey) -> Option<LsaHeader> {
        match self.learned.get(key) {
            Some(lsa) => Some(lsa.header(now)),
            None => self.originals.number_of(key).and_then(|number| self.originals.header(now, number)),
        }
    }

    /// Names of all LSAs in the database, and of original LSAs that are not in it.
    pub(super) fn database_keys(&self) -> impl Iterator<Item = LsaKey> + '_ {
        (0..self.originals.len()).map(|n| self.originals.key(n)).chain(self.learned.iter().map(|(key, _)| *key))
    }

    /// Appends an LSA to `out`, with its age increased by the transmission delay. False if it is not in the database.
    fn write_lsa(&self, now: Instant, key: &LsaKey, out: &mut Vec<u8>) -> bool {
        let Some(header) = self.current(now, key) else { return false };
        let at = out.len();
        match (self.learned.get(key), self.originals.number_of(key)) {
            (Some(lsa), _) => {
                header.emit(out);
                out.extend_from_slice(lsa.body());
            }
            (None, Some(number)) => self.originals.write(now, number, out),
            (None, None) => return false,
        }
        out[at..at + 2].copy_from_slice(&(header.age + TRANSMIT_DELAY).min(MAX_AGE).to_be_bytes());
        true
    }

    /// Sends LSAs in as few Updates as possible.
    pub(super) fn send_updates(&mut self, now: Instant, keys: &[LsaKey], to: To, out: &mut Output<'_>) {
        let mut rest = keys;
        while !rest.is_empty() {
            rest = &rest[self.send_update(now, rest, to, out)..];
        }
    }

    /// Sends the first of `keys` in one Update. Returns how many fitted.
    fn send_update(&mut self, now: Instant, keys: &[LsaKey], to: To, out: &mut Output<'_>) -> usize {
        let most = packet::LEN + self.most_body();
        let mut packet = Self::blank();
        packet.extend([0; UPDATE_LEN]);
        let (mut count, mut taken) = (0u32, 0);
        for key in keys {
            let before = packet.len();
            if !self.write_lsa(now, key, &mut packet) {
                taken += 1;
                continue;
            }
            // An LSA that is longer than a packet arrived in one, so it can leave in one.
            if packet.len() > most && count > 0 {
                packet.truncate(before);
                break;
            }
            (count, taken) = (count + 1, taken + 1);
            self.count_lsa(key.kind, 0);
        }
        if count > 0 {
            packet[packet::LEN..packet::LEN + UPDATE_LEN].copy_from_slice(&count.to_be_bytes());
            self.counters.lsas_sent += u64::from(count);
            self.send(now, kind::LINK_STATE_UPDATE, to, packet, out);
        }
        taken
    }

    /// Counts an LSA by its type; `way` is 0 for sent, 1 for received.
    fn count_lsa(&mut self, kind: u8, way: usize) {
        if let Some(counts) = self.counters.of_type.get_mut(usize::from(kind)) {
            counts[way] += 1;
        }
    }

    /// Sends an LSA to all adjacent neighbours with the next Updates.
    pub(super) fn enqueue(&mut self, now: Instant, key: LsaKey) {
        if self.flooding.insert(key) {
            self.flood.push_back(key);
            self.timers.set(Timer::Flood, now.max(self.flood_at));
        }
    }

    /// Sends one Update of the flood.
    pub(super) fn send_flood(&mut self, now: Instant, out: &mut Output<'_>) {
        if let Some(before) = self.flood_waits.take() {
            self.counters.flooding_us += now.since(before).as_micros() as u64;
        }
        // More do not fit into a packet.
        let most = self.most_body() / lsa::LEN;
        let keys: Vec<_> = self.flood.iter().take(most).copied().collect();
        let taken = self.send_update(now, &keys, To::Flood, out);
        let interval = self.retransmit_interval();
        for key in &keys[..taken] {
            self.flood.pop_front();
            self.flooding.remove(key);
            self.neighbours.values_mut().for_each(|n| n.unacknowledged.sent(now, interval, key));
        }
        let ids: Vec<_> = self.neighbours.keys().copied().collect();
        ids.into_iter().for_each(|id| self.plan_retransmission(now, id));
        self.flood_at = now + Duration::from_micros(self.config.update_gap.into());
        if !self.flood.is_empty() {
            self.flood_waits = Some(now);
            self.timers.set(Timer::Flood, self.flood_at);
        }
    }

    fn plan_retransmission(&mut self, now: Instant, id: Ipv4Addr) {
        match self.neighbours.get(&id).and_then(|n| n.unacknowledged.next()) {
            Some(at) => self.timers.set(Timer::Again(id), at.max(now)),
            None => drop(self.timers.cancel(&Timer::Again(id))),
        }
    }

    /// Sends one Update with the next LSAs that a neighbour has not acknowledged in time.
    pub(super) fn retransmit(&mut self, now: Instant, id: Ipv4Addr, out: &mut Output<'_>) {
        let (most, interval) = (self.most_body() / lsa::LEN, self.retransmit_interval());
        let Some(neighbour) = self.neighbours.get_mut(&id) else { return };
        let mut keys = Vec::new();
        while keys.len() < most
            && let Some(key) = neighbour.unacknowledged.take_due(now)
        {
            keys.push(key);
        }
        let taken = self.send_update(now, &keys, To::Neighbour(id), out);
        self.counters.lsas_retransmitted += taken as u64;
        let Some(neighbour) = self.neighbours.get_mut(&id) else { return };
        keys[taken..].iter().rev().for_each(|key| neighbour.unacknowledged.put_back(*key));
        keys[..taken].iter().for_each(|key| neighbour.unacknowledged.sent(now, interval, key));
        self.plan_retransmission(now + Duration::from_micros(self.config.update_gap.into()), id);
    }

    /// Floods an LSA that is new in the database (section 13.3). `from` is the neighbour that sent it. True if it leaves by this
    /// interface.
    pub(super) fn flood_lsa(&mut self, now: Instant, header: &LsaHeader, from: Option<Ipv4Addr>) -> bool {
        let key = header.key;
        let mut wanted = false;
        for (id, neighbour) in &mut self.neighbours {
            neighbour.unacknowledged.remove(&key);
            if neighbour.state < NeighbourState::Exchange || !neighbour.takes(key.kind) {
                continue;
            }
            if let Some(requested) = neighbour.requests.get(&key) {
                let newness = header.newness(requested);
                if newness == Ordering::Less {
                    continue;
                }
                neighbour.satisfied(&key);
                if newness == Ordering::Equal {
                    continue;
                }
            }
            if from != Some(*id) {
                neighbour.unacknowledged.add(key);
                wanted = true;
            }
        }
        let sender = from.and_then(|id| self.neighbours.get(&id)).map(|n| n.address);
        let from_designated =
            sender.is_some_and(|a| self.is_broadcast() && [self.designated, self.backup].contains(&a));
        if !wanted || from_designated || from.is_some() && self.state == InterfaceState::Backup {
            if let Some(id) = from.filter(|_| wanted) {
                // The Designated Router floods it; without an acknowledgment it is sent again.
                let interval = self.retransmit_interval();
                let others = self.neighbours.iter_mut().filter(|(other, _)| **other != id);
                others.for_each(|(_, n)| n.unacknowledged.sent(now, interval, &key));
                let ids: Vec<_> = self.neighbours.keys().copied().collect();
                ids.into_iter().for_each(|id| self.plan_retransmission(now, id));
            }
            return false;
        }
        self.enqueue(now, key);
        true
    }

    /// Section 13.
    pub(super) fn take_update(
        &mut self,
        now: Instant,
        id: Ipv4Addr,
        body: &[u8],
        out: &mut Output<'_>,
    ) -> Result<(), &'static str> {
        let update = LinkStateUpdate::parse(body).map_err(|e| {
            self.counters.malformed += 1;
            e.reason
        })?;
        if self.neighbours.get(&id).is_none_or(|n| n.state < NeighbourState::Exchange) {
            self.counters.unexpected += 1;
            return Ok(());
        }
        let (mut direct, mut back, mut result) = (Vec::new(), Vec::new(), Ok(()));
        for lsa in update.iter() {
            let lsa = match lsa.and_then(|lsa| Body::parse(lsa.header.key.kind, lsa.body).map(|_| lsa)) {
                Ok(lsa) => lsa,
                Err(e) => {
                    self.counters.malformed += 1;
                    self.rejected.count(e.reason);
                    continue;
                }
            };
            self.counters.lsas_received += 1;
            self.count_lsa(lsa.header.key.kind, 1);
            let of_as = matches!(lsa.header.key.kind, lsa_type::EXTERNAL | lsa_type::OPAQUE_AS);
            if self.config.stub && of_as {
                self.rejected.count("AS-wide LSA in a stub area");
                continue;
            }
            if !self.take_lsa(now, id, &lsa, &mut direct, &mut back, out) {
                result = self.mismatch(now, id, "requested LSA is older than described", out);
                break;
            }
        }
        self.send_headers(now, &direct, To::Neighbour(id), out);
        self.send_updates(now, &back, To::Neighbour(id), out);
        // An LSA may have satisfied the requests to other neighbours as well.
        let ids: Vec<_> = self.neighbours.keys().copied().collect();
        ids.into_iter().for_each(|id| self.request_or_finish(now, id, out));
        result
    }

    /// Steps 4 to 8 of section 13. `direct` gets the LSAs to acknowledge immediately, `back` the newer instances to send back.
    /// False for BadLSReq.
    fn take_lsa(
        &mut self,
        now: Instant,
        id: Ipv4Addr,
        lsa: &Lsa<'_>,
        direct: &mut Vec<LsaHeader>,
        back: &mut Vec<LsaKey>,
        out: &mut Output<'_>,
    ) -> bool {
        let (header, key) = (lsa.header, lsa.header.key);
        let current = self.current(now, &key);
        if header.age == MAX_AGE && current.is_none() && !self.is_exchanging() {
            direct.push(header);
            return true;
        }
        let newness = current.map_or(Ordering::Greater, |own| header.newness(&own));
        if newness == Ordering::Greater {
            self.take_newer(now, id, lsa, out);
            return true;
        }
        let Some(neighbour) = self.neighbours.get_mut(&id) else { return true };
        if neighbour.requests.contains_key(&key) {
            return false;
        }
        if newness == Ordering::Equal {
            self.counters.duplicates += 1;
            let implied = neighbour.unacknowledged.remove(&key);
            if implied {
                self.counters.lsas_acknowledged += 1;
                self.plan_retransmission(now, id);
                self.bury(now, key);
                if self.state == InterfaceState::Backup && self.is_designated(id) {
                    self.delay_ack(now, header, out);
                }
            } else {
                direct.push(header);
            }
            return true;
        }
        let own = current.filter(|own| own.age < MAX_AGE || own.sequence != MAX_SEQUENCE);
        if own.is_some() && self.may_send_back(now, key) {
            back.push(key);
        }
        true
    }

    /// Step 5: the LSA is newer than the instance in the database.
    fn take_newer(&mut self, now: Instant, id: Ipv4Addr, lsa: &Lsa<'_>, out: &mut Output<'_>) {
        let (header, key) = (lsa.header, lsa.header.key);
        if self.originals.owns(&key) {
            self.delay_ack(now, header, out);
            self.overtake(now, lsa);
            return;
        }
        if let Some(old) = self.learned.get(&key)
            && now.since(old.installed) < MIN_LS_ARRIVAL
        {
            self.counters.early += 1;
            return;
        }
        if !self.learned.has_room(&key) {
            self.counters.overflow += 1;
            if let Some(neighbour) = self.neighbours.get_mut(&id) {
                neighbour.satisfied(&key);
            }
            self.delay_ack(now, header, out);
            return;
        }
        self.install(now, header, lsa.body);
        let flooded_back = self.flood_lsa(now, &header, Some(id));
        let silent = self.state == InterfaceState::Backup && !self.is_designated(id);
        if !flooded_back && !silent {
            self.delay_ack(now, header, out);
        }
        self.bury(now, key);
    }

    /// Stores an LSA of another router, or an unknown LSA of this router that is being flushed.
    pub(super) fn install(&mut self, now: Instant, header: LsaHeader, body: &[u8]) {
        self.learned.install(now, header, body);
        if header.age == MAX_AGE {
            self.dying.insert(header.key);
            self.timers.cancel(&Timer::Expire(header.key));
        } else if let Some(lsa) = self.learned.get(&header.key) {
            self.dying.remove(&header.key);
            self.timers.set(Timer::Expire(header.key), lsa.expires());
        }
    }

    /// Floods and removes a learned LSA that has reached MaxAge (section 14).
    pub(super) fn expire(&mut self, now: Instant, key: LsaKey) {
        if self.learned.age_out(now, &key)
            && let Some(header) = self.current(now, &key)
        {
            self.dying.insert(key);
            self.flood_lsa(now, &header, None);
            self.bury(now, key);
        }
    }

    /// True if a neighbour is in Exchange or Loading.
    fn is_exchanging(&self) -> bool {
        let exchanging = |state| matches!(state, NeighbourState::Exchange | NeighbourState::Loading);
        self.neighbours.values().any(|n| exchanging(n.state))
    }

    fn is_designated(&self, id: Ipv4Addr) -> bool {
        self.neighbours.get(&id).is_some_and(|n| n.address == self.designated)
    }

    /// True if a newer instance may be sent back: at most once per MinLSArrival.
    fn may_send_back(&mut self, now: Instant, key: LsaKey) -> bool {
        let recent = |at: &Instant| now.since(*at) < MIN_LS_ARRIVAL;
        if self.sent_back.get(&key).is_some_and(recent) {
            return false;
        }
        if self.sent_back.len() >= MOST_SENT_BACK {
            self.sent_back.retain(|_, at| recent(at));
        }
        let may = self.sent_back.len() < MOST_SENT_BACK;
        if may {
            self.sent_back.insert(key, now);
        }
        may
    }

    /// Removes an LSA of MaxAge from the database if no neighbour needs it any more (section 14).
    pub(super) fn bury(&mut self, now: Instant, key: LsaKey) {
        if !self.dying.contains(&key) || self.is_exchanging() {
            return;
        }
        if self.neighbours.values().any(|n| n.unacknowledged.contains(&key)) {
            return;
        }
        self.dying.remove(&key);
        self.learned.remove(&key);
        self.timers.cancel(&Timer::Expire(key));
        if let Some(number) = self.originals.number_of(&key) {
            self.originals.flushed(number);
            if self.originals.is_wanted(number) {
                self.plan(now, number);
            }
        }
    }

    /// Removes all LSAs of MaxAge that no neighbour needs any more.
    pub(super) fn sweep(&mut self, now: Instant) {
        if !self.dying.is_empty() && !self.is_exchanging() {
            let keys: Vec<_> = self.dying.iter().copied().collect();
            keys.into_iter().for_each(|key| self.bury(now, key));
        }
    }

    /// Acknowledges an LSA later, together with others.
    fn delay_ack(&mut self, now: Instant, header: LsaHeader, out: &mut Output<'_>) {
        self.acks.push(header);
        if self.acks.len() >= self.most_body() / lsa::LEN {
            self.send_acks(now, out);
        } else if self.timers.get(&Timer::Acks).is_none() {
            // Less than the RxmtInterval, which is the same on both sides (section 13.5).
            self.timers.set(Timer::Acks, now + ACK_DELAY.min(self.retransmit_interval() / 2));
        }
    }

    /// Sends the delayed acknowledgments.
    pub(super) fn send_acks(&mut self, now: Instant, out: &mut Output<'_>) {
        self.timers.cancel(&Timer::Acks);
        let acks = std::mem::take(&mut self.acks);
        self.send_headers(now, &acks, To::Flood, out);
    }

    fn send_headers(&mut self, now: Instant, headers: &[LsaHeader], to: To, out: &mut Output<'_>) {
        for part in headers.chunks((self.most_body() / lsa::LEN).max(1)) {
            let mut packet = Self::blank();
            part.iter().for_each(|header| header.emit(&mut packet));
            self.counters.headers[0] += part.len() as u64;
            self.send(now, kind::LINK_STATE_ACK, to, packet, out);
        }
    }

    /// Section 13.7.
    pub(super) fn take_ack(&mut self, now: Instant, id: Ipv4Addr, body: &[u8]) -> Result<(), &'static str> {
        let headers = LinkStateAck::parse(body).map_err(|e| {
            self.counters.malformed += 1;
            e.reason
        })?;
        for header in headers.iter() {
            self.counters.headers[1] += 1;
            let key = header.key;
            let Some(own) = self.current(now, &key) else {
                self.counters.unexpected += 1;
                continue;
            };
            let Some(neighbour) = self.neighbours.get_mut(&id) else { return Ok(()) };
            if own.is_same(&header) && neighbour.unacknowledged.remove(&key) {
                self.counters.lsas_acknowledged += 1;
                self.bury(now, key);
            }
        }
        self.plan_retransmission(now, id);
        Ok(())
    }
}
