//! Database Descriptions and Link State Requests (RFC 2328 sections 10.6 to 10.9).

use super::neighbour::State;
use super::{OPTIONS, Ospf, RETRANSMIT};
use drophammer_model::Instant;
use drophammer_wire::ospf::exchange::{DESCRIPTION_LEN, REQUEST_LEN, flag};
use drophammer_wire::ospf::lsa::MAX_AGE;
use drophammer_wire::ospf::{DatabaseDescription, LinkStateRequest, LsaHeader, kind, lsa, lsa_type};
use std::cmp::Ordering;

/// Maximum number of LSAs that a neighbour is asked for; it may list any number.
const MOST_REQUESTS: usize = 200_000;

impl Ospf {
    /// Goes to ExStart and proposes to be the master. Also event SeqNumberMismatch and BadLSReq.
    pub(super) fn start_exchange(&mut self, now: Instant, link: usize) {
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        let Some(n) = &mut self.links[link].neighbour else { return };
        let was = n.state;
        n.reset(State::ExStart);
        (n.master, n.sequence) = (true, sequence);
        self.after_loss(now, link, was);
        self.describe_to(now, link, flag::INIT | flag::MORE | flag::MASTER);
    }

    /// Sends a Database Description with these flags; with the next headers, unless it is the first one.
    fn describe_to(&mut self, now: Instant, link: usize, flags: u8) {
        let (most, mtu) = ((self.links[link].room() - DESCRIPTION_LEN) / lsa::LEN, self.links[link].mtu);
        let Some(n) = &mut self.links[link].neighbour else { return };
        let count = if flags & flag::INIT == 0 { n.summary.len().min(most) } else { 0 };
        let headers: Vec<LsaHeader> = n.summary.drain(..count).collect();
        let more = flags & flag::INIT != 0 || !n.summary.is_empty();
        let flags = if more { flags | flag::MORE } else { flags };
        let mut body = Vec::new();
        DatabaseDescription { mtu, options: OPTIONS, flags, sequence: n.sequence }.emit(&mut body);
        headers.iter().for_each(|header| header.emit(&mut body));
        n.describe_at = n.master.then(|| now + RETRANSMIT);
        n.sent = Some((body.clone(), more));
        self.send(link, kind::DATABASE_DESCRIPTION, &body);
    }

    /// The rest of the exchange, from state Exchange on: lists the database.
    fn negotiated(&mut self, now: Instant, link: usize, master: bool, sequence: u32) {
        let headers = self.database.iter().map(|(_, entry)| entry.header(now)).filter(|h| h.age < MAX_AGE);
        let summary = headers.collect();
        let Some(n) = &mut self.links[link].neighbour else { return };
        (n.state, n.master, n.sequence, n.summary) = (State::Exchange, master, sequence, summary);
        n.describe_at = None;
    }

    /// Section 10.6.
    pub(super) fn description(&mut self, now: Instant, link: usize, body: &[u8]) {
        let Ok((said, headers)) = DatabaseDescription::parse(body) else { return };
        let mtu = self.links[link].mtu;
        let Some(n) = self.links[link].neighbour.as_ref().filter(|_| said.mtu <= mtu) else { return };
        if n.state == State::Init {
            self.start_exchange(now, link);
        }
        let own = self.id;
        let Some(n) = &mut self.links[link].neighbour else { return };
        let bits = said.flags & (flag::INIT | flag::MORE | flag::MASTER);
        match n.state {
            State::Init => {}
            State::ExStart => {
                if bits == flag::INIT | flag::MORE | flag::MASTER && headers.is_empty() && n.id > own {
                    n.received = Some(said);
                    self.negotiated(now, link, false, said.sequence);
                    self.describe_to(now, link, 0);
                } else if bits & (flag::INIT | flag::MASTER) == 0 && said.sequence == n.sequence && n.id < own {
                    self.negotiated(now, link, true, said.sequence);
                    self.accept(now, link, said, headers.iter());
                }
            }
            _ if n.received == Some(said) => {
                // A duplicate: the slave repeats its answer.
                let again = n.sent.clone().filter(|_| !n.master);
                if let Some((body, _)) = again {
                    self.send(link, kind::DATABASE_DESCRIPTION, &body);
                }
            }
            State::Exchange => {
                let expected = if n.master { n.sequence } else { n.sequence.wrapping_add(1) };
                let options = n.received.is_none_or(|last| last.options == said.options);
                let from_master = bits & flag::MASTER != 0;
                if from_master == n.master || bits & flag::INIT != 0 || !options || said.sequence != expected {
                    return self.start_exchange(now, link);
                }
                self.accept(now, link, said, headers.iter());
            }
            State::Loading | State::Full => self.start_exchange(now, link),
        }
    }

    /// Accepts the contents of a Database Description, and answers it.
    fn accept(
        &mut self,
        now: Instant,
        link: usize,
        said: DatabaseDescription,
        headers: impl Iterator<Item = LsaHeader>,
    ) {
        let Some(n) = &mut self.links[link].neighbour else { return };
        n.received = Some(said);
        for header in headers {
            let known = self.database.get(&header.key).map(|entry| entry.header(now));
            if matches!(header.key.kind, lsa_type::ROUTER..=lsa_type::EXTERNAL | lsa_type::OPAQUE_LINK..=lsa_type::OPAQUE_AS)
                && known.is_none_or(|known| header.newness(&known) == Ordering::Greater)
                && self.database.has_room(&header.key)
                && n.requests.len() < MOST_REQUESTS
            {
                n.requests.insert(header.key, header);
            }
        }
        let (more, all_sent) = (said.flags & flag::MORE != 0, n.sent.as_ref().is_some_and(|(_, more)| !more));
        let done = if n.master {
            n.sequence = n.sequence.wrapping_add(1);
            n.describe_at = None;
            let done = all_sent && !more;
            if !done {
                self.describe_to(now, link, flag::MASTER);
            }
            done
        } else {
            n.sequence = said.sequence;
            self.describe_to(now, link, 0);
            let sent = self.links[link].neighbour.as_ref().and_then(|n| n.sent.as_ref());
            !more && sent.is_some_and(|(_, more)| !more)
        };
        if done && let Some(n) = &mut self.links[link].neighbour {
            n.state = State::Loading;
        }
        self.continue_loading(now, link);
    }

    /// Sends the next Link State Request when the last one is answered. Without anything to request after the exchange, the neighbour is
    /// Full.
    pub(super) fn continue_loading(&mut self, now: Instant, link: usize) {
        let most = self.links[link].room() / REQUEST_LEN;
        let Some(n) = &mut self.links[link].neighbour else { return };
        if !n.requested.is_empty() {
            return;
        }
        n.request_at = None;
        if n.requests.is_empty() {
            if n.state == State::Loading {
                n.state = State::Full;
                self.describe(now);
                self.plan(now);
            }
            return;
        }
        n.requested = n.requests.keys().take(most).copied().collect();
        self.ask_for(now, link);
    }

    /// Sends the Link State Request for what is missing of the last one.
    fn ask_for(&mut self, now: Instant, link: usize) {
        let Some(n) = &mut self.links[link].neighbour else { return };
        let mut body = Vec::new();
        n.requested.iter().for_each(|key| LinkStateRequest::push(&mut body, key));
        n.request_at = Some(now + RETRANSMIT);
        self.send(link, kind::LINK_STATE_REQUEST, &body);
    }

    /// Section 10.7.
    pub(super) fn request(&mut self, now: Instant, link: usize, body: &[u8]) {
        let Ok(request) = LinkStateRequest::parse(body) else { return };
        if self.links[link].neighbour.as_ref().is_none_or(|n| n.state < State::Exchange) {
            return;
        }
        let mut found = Vec::new();
        for key in request.iter() {
            match key.filter(|key| self.database.get(key).is_some()) {
                Some(key) => found.push(key),
                None => return self.start_exchange(now, link),
            }
        }
        self.send_updates(now, link, found);
    }

    /// Repeats what a neighbour has not answered.
    pub(super) fn repeat(&mut self, now: Instant, link: usize) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let Some(n) = &mut self.links[link].neighbour else { return };
        let (describe, request, again) = (due(n.describe_at), due(n.request_at), due(n.retransmit_at));
        if describe {
            n.describe_at = Some(now + RETRANSMIT);
            if let Some((body, _)) = n.sent.clone() {
                self.send(link, kind::DATABASE_DESCRIPTION, &body);
            }
        }
        if request {
            self.ask_for(now, link);
        }
        if again && let Some(n) = &mut self.links[link].neighbour {
            let keys: Vec<_> = n.unacknowledged.iter().copied().collect();
            n.retransmit_at = (!keys.is_empty()).then(|| now + RETRANSMIT);
            self.send_updates(now, link, keys);
        }
    }
}
