//! The exchange of databases: Database Descriptions (RFC 2328 sections 10.6 and 10.8) and Link State Requests (10.7 and 10.9).

use super::neighbour::NeighbourState;
use super::{Ospf, Timer, To};
use crate::protocol::Output;
use drophammer_model::Instant;
use drophammer_wire::ospf::exchange::{DESCRIPTION_LEN, Headers, REQUEST_LEN, flag};
use drophammer_wire::ospf::lsa::{self, MAX_AGE};
use drophammer_wire::ospf::{DatabaseDescription, LinkStateRequest, LsaKey, kind, lsa_type, option};
use std::net::Ipv4Addr;

const FIRST: u8 = flag::INIT | flag::MORE | flag::MASTER;

impl Ospf {
    /// Enters ExStart and proposes to be the master.
    pub(super) fn negotiate(&mut self, now: Instant, id: Ipv4Addr, out: &mut Output<'_>) {
        self.leave(now, id, NeighbourState::ExStart);
        let Some(neighbour) = self.neighbours.get_mut(&id) else { return };
        neighbour.dd_sequence = neighbour.dd_sequence.wrapping_add(1);
        neighbour.is_master = true;
        self.send_description(now, id, out);
    }

    /// Describes the next part of the database.
    fn send_description(&mut self, now: Instant, id: Ipv4Addr, out: &mut Output<'_>) {
        let room = self.most_body().saturating_sub(DESCRIPTION_LEN) / lsa::LEN;
        let (mtu, options) = (self.config.mtu, self.options() | option::OPAQUE);
        let mut headers = Vec::new();
        let starting = self.neighbours.get(&id).is_some_and(|n| n.state == NeighbourState::ExStart);
        while !starting
            && headers.len() < room
            && let Some(key) = self.neighbours.get_mut(&id).and_then(|n| n.summary.pop_front())
        {
            headers.extend(self.current(now, &key).filter(|header| header.age < MAX_AGE));
        }
        let Some(neighbour) = self.neighbours.get_mut(&id) else { return };
        let master = if neighbour.is_master { flag::MASTER } else { 0 };
        let more = if neighbour.summary.is_empty() { 0 } else { flag::MORE };
        let flags = if starting { FIRST } else { more | master };
        neighbour.sent_more = flags & flag::MORE != 0;
        let description = DatabaseDescription { mtu, options, flags, sequence: neighbour.dd_sequence };
        neighbour.last_sent = Self::blank();
        description.emit(&mut neighbour.last_sent);
        headers.iter().for_each(|header| header.emit(&mut neighbour.last_sent));
        self.repeat_description(now, id, out);
    }

    /// Sends or repeats the last Database Description. The master repeats it until it is answered.
    pub(super) fn repeat_description(&mut self, now: Instant, id: Ipv4Addr, out: &mut Output<'_>) {
        let Some(neighbour) = self.neighbours.get(&id) else { return };
        let (packet, repeats) = (neighbour.last_sent.clone(), neighbour.is_master);
        self.send(now, kind::DATABASE_DESCRIPTION, To::Neighbour(id), packet, out);
        if repeats {
            self.timers.set(Timer::Description(id), now + self.retransmit_interval());
        }
    }

    /// Section 10.6.
    pub(super) fn take_description(
        &mut self,
        now: Instant,
        id: Ipv4Addr,
        body: &[u8],
        out: &mut Output<'_>,
    ) -> Result<(), &'static str> {
        let (description, headers) = DatabaseDescription::parse(body).map_err(|e| {
            self.counters.malformed += 1;
            e.reason
        })?;
        if description.mtu > self.config.mtu && !self.config.ignore_mtu {
            return Err("larger Interface MTU");
        }
        if self.neighbours.get(&id).is_some_and(|n| n.state == NeighbourState::Init) {
            self.two_way(now, id, out);
            self.neighbour_change(now, out);
        }
        let own_id = self.config.router_id;
        let Some(neighbour) = self.neighbours.get_mut(&id) else { return Ok(()) };
        let is_first = description.flags & FIRST == FIRST && headers.is_empty();
        let is_duplicate = neighbour.last_received == Some(description);
        match neighbour.state {
            NeighbourState::Init | NeighbourState::TwoWay => {
                self.counters.unexpected += 1;
                return Ok(());
            }
            NeighbourState::ExStart => {
                if is_first && neighbour.router_id > own_id {
                    (neighbour.is_master, neighbour.dd_sequence) = (false, description.sequence);
                } else if description.flags & (flag::INIT | flag::MASTER) != 0
                    || description.sequence != neighbour.dd_sequence
                    || neighbour.router_id > own_id
                {
                    return Ok(());
                }
                neighbour.opaque = description.options & option::OPAQUE != 0;
                self.timers.cancel(&Timer::Description(id));
                self.negotiation_done(now, id);
            }
            NeighbourState::Exchange => {
                if is_duplicate {
                    if !neighbour.is_master {
                        self.repeat_description(now, id, out);
                    }
                    return Ok(());
                }
                let says_master = description.flags & flag::MASTER != 0;
                let next = neighbour.dd_sequence.wrapping_add(u32::from(!neighbour.is_master));
                if says_master == neighbour.is_master
                    || description.flags & flag::INIT != 0
                    || neighbour.last_received.is_some_and(|last| last.options != description.options)
                    || description.sequence != next
                {
                    return self.mismatch(now, id, "unexpected Database Description", out);
                }
            }
            NeighbourState::Loading | NeighbourState::Full => {
                if !is_duplicate {
                    return self.mismatch(now, id, "Database Description after the exchange", out);
                }
                if !neighbour.is_master {
                    self.repeat_description(now, id, out);
                }
                return Ok(());
            }
        }
        self.accept_description(now, id, description, headers, out)
    }

    /// Enters Exchange with a list of the whole database.
    fn negotiation_done(&mut self, now: Instant, id: Ipv4Addr) {
        let keys: Vec<LsaKey> = self.database_keys().collect();
        let keeps = |key: &LsaKey| !(self.config.stub && matches!(key.kind, lsa_type::EXTERNAL | lsa_type::OPAQUE_AS));
        let (mut summary, mut aged) = (Vec::new(), Vec::new());
        for key in keys.into_iter().filter(keeps) {
            match self.current(now, &key) {
                Some(header) if header.age < MAX_AGE => summary.push(key),
                Some(_) => aged.push(key),
                None => {}
            }
        }
        let Some(neighbour) = self.neighbours.get_mut(&id) else { return };
        neighbour.state = NeighbourState::Exchange;
        neighbour.summary =
            summary.into_iter().filter(|key| neighbour.opaque || key.kind <= lsa_type::EXTERNAL).collect();
        // Such LSAs are flooded instead (section 10.3).
        aged.iter().for_each(|key| neighbour.unacknowledged.add(*key));
        aged.iter().for_each(|key| self.enqueue(now, *key));
    }

    /// Takes the headers of the next Database Description in sequence, and answers it.
    fn accept_description(
        &mut self,
        now: Instant,
        id: Ipv4Addr,
        description: DatabaseDescription,
        headers: Headers<'_>,
        out: &mut Output<'_>,
    ) -> Result<(), &'static str> {
        for header in headers.iter() {
            let key = header.key;
            if !matches!(key.kind, 1..=5 | 9..=11) {
                return self.mismatch(now, id, "unknown type in a Database Description", out);
            }
            // AS-wide opaque LSAs are treated like external ones (RFC 5250 section 3).
            if self.config.stub && matches!(key.kind, lsa_type::EXTERNAL | lsa_type::OPAQUE_AS) {
                return self.mismatch(now, id, "AS-wide LSA in a Database Description of a stub area", out);
            }
            if self.current(now, &key).is_some_and(|own| own.newness(&header).is_ge()) {
                continue;
            }
            let has_room = self.originals.number_of(&key).is_some() || self.learned.has_room(&key);
            let Some(neighbour) = self.neighbours.get_mut(&id) else { return Ok(()) };
            if has_room && self.learned.len() + neighbour.requests.len() < self.config.most_learned as usize {
                neighbour.requests.insert(key, header);
            } else {
                self.counters.overflow += 1;
            }
        }
        let Some(neighbour) = self.neighbours.get_mut(&id) else { return Ok(()) };
        neighbour.last_received = Some(description);
        let more = description.flags & flag::MORE != 0;
        let done = if neighbour.is_master {
            neighbour.dd_sequence = neighbour.dd_sequence.wrapping_add(1);
            let done = !neighbour.sent_more && !more;
            self.timers.cancel(&Timer::Description(id));
            if !done {
                self.send_description(now, id, out);
            }
            done
        } else {
            neighbour.dd_sequence = description.sequence;
            self.send_description(now, id, out);
            !more && self.neighbours.get(&id).is_some_and(|n| !n.sent_more)
        };
        if done && let Some(neighbour) = self.neighbours.get_mut(&id) {
            neighbour.state = NeighbourState::Loading;
        }
        self.request_or_finish(now, id, out);
        Ok(())
    }

    /// Requests LSAs that are missing. If nothing is missing, a neighbour in Loading becomes Full.
    pub(super) fn request_or_finish(&mut self, now: Instant, id: Ipv4Addr, out: &mut Output<'_>) {
        let Some(neighbour) = self.neighbours.get(&id) else { return };
        if neighbour.state < NeighbourState::Exchange {
            return;
        }
        if !neighbour.requests.is_empty() {
            self.send_request(now, id, out);
        } else if neighbour.state == NeighbourState::Loading {
            self.become_full(now, id);
        }
    }

    /// SeqNumberMismatch, BadLSReq: restarts the exchange.
    pub(super) fn mismatch(
        &mut self,
        now: Instant,
        id: Ipv4Addr,
        reason: &'static str,
        out: &mut Output<'_>,
    ) -> Result<(), &'static str> {
        self.negotiate(now, id, out);
        Err(reason)
    }

    /// Requests the next LSAs if no request is outstanding.
    pub(super) fn send_request(&mut self, now: Instant, id: Ipv4Addr, out: &mut Output<'_>) {
        let room = self.most_body() / REQUEST_LEN;
        let Some(neighbour) = self.neighbours.get_mut(&id) else { return };
        if !neighbour.asked.is_empty() || neighbour.requests.is_empty() {
            return;
        }
        let mut packet = Self::blank();
        for key in neighbour.requests.keys().take(room) {
            LinkStateRequest::push(&mut packet, key);
            neighbour.asked.insert(*key);
        }
        self.send(now, kind::LINK_STATE_REQUEST, To::Neighbour(id), packet, out);
        self.timers.set(Timer::Request(id), now + self.retransmit_interval());
    }

    /// Section 10.7.
    pub(super) fn take_request(
        &mut self,
        now: Instant,
        id: Ipv4Addr,
        body: &[u8],
        out: &mut Output<'_>,
    ) -> Result<(), &'static str> {
        let request = LinkStateRequest::parse(body).map_err(|e| {
            self.counters.malformed += 1;
            e.reason
        })?;
        if self.neighbours.get(&id).is_none_or(|n| n.state < NeighbourState::Exchange) {
            self.counters.unexpected += 1;
            return Ok(());
        }
        let found: Option<Vec<LsaKey>> =
            request.iter().map(|key| key.filter(|key| self.current(now, key).is_some())).collect();
        match found {
            Some(keys) => {
                self.send_updates(now, &keys, To::Neighbour(id), out);
                Ok(())
            }
            None => self.mismatch(now, id, "request for an LSA that is not in the database", out),
        }
    }
}
