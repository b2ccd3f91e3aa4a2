//! Messages about LSPs: refreshes, retransmissions, acknowledgements and tears.

use super::Rsvp;
use super::lsp::{Half, NEVER};
use super::neighbour::{MOST_IDS, TTL, To};
use drophammer_model::Instant;
use drophammer_wire::rsvp::{
    Body, Flow, Flows, Hop, MessageId, MessageIdAck, MessageIdList, Object, PathTear, ResvTear, kind,
};
use std::time::Duration;

/// Rf, Rl and Delta (RFC 2961 section 6): the first retransmission, transmissions in all, and the growth of the interval.
const RETRANSMIT: Duration = Duration::from_millis(500);
const TRANSMISSIONS: u8 = 3;

impl Rsvp {
    /// The refresh period in TIME_VALUES, in ms.
    pub(super) fn period(&self) -> u32 {
        self.config.refresh.as_millis() as u32
    }

    /// Time to the next refresh: 0.5 R to 1.5 R (RFC 2205 section 3.7).
    fn refresh_time(&mut self) -> Duration {
        let period = u64::try_from(self.config.refresh.as_nanos()).unwrap_or(u64::MAX / 2);
        Duration::from_nanos(period / 2 + self.random.below(period))
    }

    /// Sets the message of a state, and sends it if its objects have changed.
    pub(super) fn offer(&mut self, slot: u32, half: Half, objects: Vec<u8>, now: Instant) {
        if *self.lsps.get(slot).sent[half as usize].objects == *objects {
            return;
        }
        self.drop_own_id(slot, half);
        let sent = &mut self.lsps.get(slot).sent[half as usize];
        sent.objects = objects.into();
        self.send(slot, half, now);
        self.lsps.schedule(slot);
    }

    /// A changed message gets another identifier.
    fn drop_own_id(&mut self, slot: u32, half: Half) {
        let sent = &mut self.lsps.get(slot).sent[half as usize];
        let neighbour = sent.neighbour;
        (sent.acked, sent.attempts) = (false, 0);
        if let Some(id) = sent.id.take() {
            self.own_ids.remove(&id);
            self.neighbours.list[neighbour].summary.remove(&id);
        }
    }

    /// Refreshes a state no more.
    pub(super) fn stop(&mut self, slot: u32, half: Half) {
        self.drop_own_id(slot, half);
        let sent = &mut self.lsps.get(slot).sent[half as usize];
        (sent.objects, sent.next) = (Box::default(), NEVER);
    }

    /// Sends the message of a state, and determines the time of the next one.
    pub(super) fn send(&mut self, slot: u32, half: Half, now: Instant) {
        let lsp = self.lsps.get(slot);
        let ((session, sender), ttl) = (lsp.key, lsp.ttl);
        let sent = &mut lsp.sent[half as usize];
        let neighbour = sent.neighbour;
        let reduces = self.neighbours.reduces(neighbour);
        if reduces && sent.id.is_none() {
            self.last_id = self.last_id.wrapping_add(1);
            sent.id = Some(self.last_id);
            self.own_ids.insert(self.last_id, (slot, half));
        }
        let flags = if sent.acked { 0 } else { MessageId::ACK_DESIRED };
        let own = sent.id.filter(|_| reduces).map(|id| Object::MessageId(MessageId { flags, epoch: self.epoch, id }));
        let (to, ttl, kind) = match half {
            Half::Path => (To::End(sender.address, session.destination), ttl, kind::PATH),
            Half::Resv => (To::Neighbour, TTL, kind::RESV),
        };
        self.neighbours.send_objects(neighbour, to, ttl, kind, own, &sent.objects);
        let waits = reduces && !sent.acked;
        self.truth.retransmissions += u64::from(waits && (1..TRANSMISSIONS).contains(&sent.attempts));
        sent.attempts = sent.attempts.saturating_add(1);
        let attempts = sent.attempts;
        *(if half == Half::Path { &mut self.truth.path_sent } else { &mut self.truth.resv_sent }) += 1;
        let time = match waits && attempts < TRANSMISSIONS {
            true => RETRANSMIT * (1 << (attempts - 1)),
            false => self.refresh_time(),
        };
        self.lsps.get(slot).sent[half as usize].next = now + time;
    }

    /// A neighbour has acknowledged a message, or does not know its identifier.
    pub(super) fn acknowledged(&mut self, now: Instant, ack: &MessageIdAck) {
        *(if ack.known { &mut self.truth.acks_received } else { &mut self.truth.nacks_received }) += 1;
        let Some(&(slot, half)) = self.own_ids.get(&ack.id).filter(|_| ack.epoch == self.epoch) else { return };
        if ack.known {
            return self.confirmed(slot, half, now);
        }
        // RFC 2961 section 5.4: the whole message follows.
        let sent = &mut self.lsps.get(slot).sent[half as usize];
        if std::mem::take(&mut sent.acked) {
            let neighbour = sent.neighbour;
            sent.attempts = 0;
            self.neighbours.list[neighbour].summary.remove(&ack.id);
            self.send(slot, half, now);
            self.lsps.schedule(slot);
        }
    }

    /// The message of a state has arrived: from now on, summaries refresh it.
    pub(super) fn confirmed(&mut self, slot: u32, half: Half, now: Instant) {
        let sent = &mut self.lsps.get(slot).sent[half as usize];
        let Some(id) = sent.id.filter(|_| !sent.acked) else { return };
        (sent.acked, sent.next) = (true, NEVER);
        let neighbour = sent.neighbour;
        self.lsps.schedule(slot);
        self.neighbours.list[neighbour].summary.insert(id);
        if self.neighbours.list[neighbour].summary_at == NEVER {
            let time = self.refresh_time();
            self.neighbours.list[neighbour].summary_at = now + time;
        }
    }

    /// Refreshes all acknowledged messages to a neighbour by their identifiers.
    pub(super) fn summarize(&mut self, number: usize, now: Instant) {
        self.neighbours.list[number].summary_at = NEVER;
        if !self.neighbours.reduces(number) {
            // The neighbour has lost the ability: whole messages again.
            for id in std::mem::take(&mut self.neighbours.list[number].summary) {
                let Some(&(slot, half)) = self.own_ids.get(&id) else { continue };
                self.drop_own_id(slot, half);
                self.send(slot, half, now);
                self.lsps.schedule(slot);
            }
            return;
        }
        let ids: Vec<[u8; 4]> = self.neighbours.list[number].summary.iter().map(|id| id.to_be_bytes()).collect();
        for part in ids.chunks(MOST_IDS) {
            let mut objects = Vec::new();
            Object::MessageIdList(MessageIdList::new(self.epoch, part)).emit(&mut objects);
            self.truth.summaries_sent += 1;
            self.neighbours.send_objects(number, To::Neighbour, TTL, kind::SREFRESH, None, &objects);
        }
        if !ids.is_empty() {
            let time = self.refresh_time();
            self.neighbours.list[number].summary_at = now + time;
        }
    }

    pub(super) fn send_path_tear(&mut self, slot: u32) {
        let neighbour = self.lsps.get(slot).next_hop();
        let hop = self.hop(neighbour);
        let lsp = self.lsps.get(slot);
        let ((session, sender), ttl) = (lsp.key, lsp.ttl);
        let tear = Body::PathTear(PathTear { session, hop, sender, tspec: Some(lsp.tspec), adspec: None });
        self.truth.tears_sent += 1;
        self.neighbours.send(neighbour, To::End(sender.address, session.destination), ttl, &tear);
    }

    pub(super) fn send_resv_tear(&mut self, slot: u32) {
        let lsp = self.lsps.get(slot);
        let (neighbour, (session, filter)) = (lsp.sent[Half::Resv as usize].neighbour, lsp.key);
        let (handle, Some(reservation)) = (lsp.previous.interface, lsp.reservation) else { return };
        let hop = Hop { address: self.own(neighbour), interface: handle };
        let mut list = Vec::new();
        Flow { flowspec: None, filter, label: None, record_route: None }.emit(&mut list);
        let flows = Flows::new(&list).expect("a list with one flow");
        self.truth.tears_sent += 1;
        let tear = Body::ResvTear(ResvTear { session, hop, style: reservation.style, flows });
        self.neighbours.send(neighbour, To::Neighbour, TTL, &tear);
    }
}
