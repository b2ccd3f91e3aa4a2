//! Receiving: what messages do to LSPs and neighbours.

use super::config::LspKey;
use super::lsp::{Phase, lsp_flag};
use super::neighbour::To;
use super::{ErrorKind, Rsvp};
use crate::protocol::{Output, Packet};
use drophammer_model::Instant;
use drophammer_wire::Malformed;
use drophammer_wire::rsvp::{
    Body, ErrorSpec, ExplicitHop, Flow, Flows, Hop, Ids, MAX_LABEL, Message, MessageId, MessageIdAck, Path, PathErr,
    Resv, ResvConf, ResvErr, Session, Style, UnknownObject, attribute_flag, error, flag, kind, routing,
};
use std::net::{IpAddr, Ipv4Addr};

/// EtherTypes that a label may be requested for: IPv4 and IPv6.
const L3PIDS: [u16; 2] = [0x0800, 0x86dd];

/// Where a message comes from.
#[derive(Clone, Copy)]
struct From {
    neighbour: usize,
    /// Its MESSAGE_ID.
    id: Option<MessageId>,
}

impl Rsvp {
    /// Handles a packet.
    pub(super) fn take(&mut self, now: Instant, packet: &Packet<'_>, out: &mut Output<'_>) {
        let IpAddr::V4(source) = packet.source else { return };
        let done = Message::parse(packet.payload).and_then(|message| {
            self.count(message.kind);
            if message.kind != kind::BUNDLE {
                return self.message(now, source, &message, out);
            }
            for sub in message.submessages() {
                let sub = sub?;
                self.count(sub.kind);
                self.message(now, source, &sub, out)?;
            }
            Ok(())
        });
        if done.is_err() {
            self.counts.malformed += 1;
            out.malformed();
        }
    }

    fn count(&mut self, kind: u8) {
        if let Some(count) = self.neighbours.received.get_mut(usize::from(kind)) {
            *count += 1;
        }
    }

    fn message(
        &mut self,
        now: Instant,
        source: Ipv4Addr,
        message: &Message<'_>,
        out: &mut Output<'_>,
    ) -> Result<(), Malformed> {
        let (body, refusal) = Body::parse(message)?;
        // A Path has the address of its sender, and a ResvConf that of the node that confirms, maybe far away.
        let address = match &body {
            Body::Path(path) => path.hop.address,
            Body::PathTear(tear) => tear.hop.address,
            Body::ResvConf(conf) => return self.confirmed(conf),
            _ => source,
        };
        if address == self.neighbours.own
            || address.is_unspecified()
            || address.is_multicast()
            || address.is_broadcast()
        {
            return Err(Malformed::new("rsvp", "the hop is no neighbour"));
        }
        // Errors come from far away, too.
        let error = match &body {
            Body::PathErr(PathErr { error, .. }) => Some((false, error)),
            Body::ResvErr(ResvErr { error, .. }) => Some((true, error)),
            _ => None,
        };
        if let Some((resv, ErrorSpec { code, value, .. })) = error {
            self.count_error(ErrorKind { resv, code: *code, value: *value });
        }
        if error.is_some() && !self.neighbours.knows(address) {
            return Ok(());
        }
        let Some(neighbour) = self.neighbours.number(address) else { return Ok(()) };
        self.neighbours.list[neighbour].capable = message.flags & flag::REFRESH_REDUCTION_CAPABLE != 0;
        if let Some(UnknownObject { code, value }) = refusal {
            self.counts.unknown_objects += 1;
            self.refuse(neighbour, &body, code, value, out);
            return Ok(());
        }
        let mut from = From { neighbour, id: None };
        for ids in message.ids() {
            match ids? {
                Ids::Own(id) => from.id = Some(id),
                Ids::Ack(ack) => self.acknowledged(now, &ack, out),
                Ids::List(list) if message.kind == kind::SREFRESH => {
                    for id in list.ids() {
                        self.summary(now, neighbour, list.epoch, id, out);
                    }
                }
                Ids::List(_) => {}
            }
        }
        if let Some(id) = from.id {
            self.note_epoch(from.neighbour, id.epoch);
        }
        let out_of_order = self.counts.out_of_order;
        match body {
            Body::Path(path) => self.path(now, from, &path, out),
            Body::Resv(resv) => self.resv(now, from, &resv, out),
            Body::PathTear(tear) => {
                let key = LspKey { session: tear.session, sender: tear.sender };
                if let Some(number) = self.lsps.find_egress(&key) {
                    self.end(number, now);
                }
            }
            Body::ResvTear(tear) => self.resv_tear(now, tear.session, tear.flows),
            Body::Hello(hello) => {
                if self.neighbours.hello_received(now, neighbour, &hello.hello) {
                    self.neighbour_down(neighbour);
                }
                if hello.hello.request {
                    self.neighbours.hello(neighbour, false, out);
                }
            }
            _ => {}
        }
        // RFC 2961 section 4.2: acknowledged after it was processed. Messages out of order are not.
        if let Some(id) = from.id.filter(|id| id.ack_desired() && self.counts.out_of_order == out_of_order) {
            let ack = MessageIdAck { known: true, flags: 0, epoch: id.epoch, id: id.id };
            self.neighbours.acknowledge(neighbour, ack, out);
        }
        Ok(())
    }

    /// Forgets the identifiers of a neighbour whose epoch has changed: it has restarted.
    fn note_epoch(&mut self, neighbour: usize, epoch: u32) {
        if self.neighbours.list[neighbour].epoch.replace(epoch) != Some(epoch) {
            self.peer_ids.retain(|(known, _), _| usize::from(*known) != neighbour);
        }
    }

    /// Stores the identifier of the neighbour's message about an LSP; false if it is older than the stored one.
    fn note_id(&mut self, number: u32, from: From) -> bool {
        let lsp = &mut self.lsps.all[number as usize];
        let neighbour = from.neighbour as u8;
        let old = lsp.has(lsp_flag::HAS_PEER_ID).then_some((lsp.neighbour, lsp.peer_id));
        // After a restart of the neighbour its old identifiers are gone.
        let known = old.filter(|old| self.peer_ids.get(old) == Some(&number));
        let Some(id) = from.id else {
            known.map(|old| self.peer_ids.remove(&old));
            lsp.neighbour = neighbour;
            lsp.set(lsp_flag::HAS_PEER_ID, false);
            return true;
        };
        if let Some((old_neighbour, old_id)) = known {
            if old_neighbour == neighbour && (id.id.wrapping_sub(old_id) as i32) < 0 {
                self.counts.out_of_order += 1;
                return false;
            }
            self.peer_ids.remove(&(old_neighbour, old_id));
        }
        (lsp.neighbour, lsp.peer_id) = (neighbour, id.id);
        lsp.set(lsp_flag::HAS_PEER_ID, true);
        self.peer_ids.insert((neighbour, id.id), number);
        true
    }

    /// The neighbour has acknowledged a message, or does not know it.
    fn acknowledged(&mut self, now: Instant, ack: &MessageIdAck, out: &mut Output<'_>) {
        let count = if ack.known { &mut self.counts.acks_received } else { &mut self.counts.nacks_received };
        *count += 1;
        let Some(&number) = self.own_ids.get(&ack.id).filter(|_| ack.epoch == self.epoch) else { return };
        if ack.known {
            return self.acked(number, now);
        }
        // RFC 2961 section 5.4: the whole message follows. Only a message that was acknowledged is in a summary.
        let lsp = &mut self.lsps.all[number as usize];
        if lsp.has(lsp_flag::ACKED) {
            lsp.set(lsp_flag::ACKED, false);
            lsp.attempts = 0;
            self.send_lsp(number, now, out);
            self.deadlines.schedule(number, &mut self.lsps.all);
        }
    }

    /// A neighbour refreshes state by its identifier.
    fn summary(&mut self, now: Instant, neighbour: usize, epoch: u32, id: u32, out: &mut Output<'_>) {
        self.counts.summary_ids_received += 1;
        let valid = self.neighbours.list[neighbour].epoch == Some(epoch);
        match self.peer_ids.get(&(neighbour as u8, id)).filter(|_| valid) {
            Some(&number) => self.refreshed(number, now),
            None => {
                self.counts.nacks_sent += 1;
                let nack = MessageIdAck { known: false, flags: 0, epoch, id };
                self.neighbours.acknowledge(neighbour, nack, out);
            }
        }
    }

    /// Answers a Path or Resv with an error.
    fn refuse(&mut self, neighbour: usize, body: &Body<'_>, code: u8, value: u16, out: &mut Output<'_>) {
        let own = self.neighbours.own;
        let error = ErrorSpec { node: own, flags: 0, code, value };
        let answer = match body {
            Body::Path(Path { session, sender, tspec, .. }) => {
                Body::PathErr(PathErr { session: *session, error, sender: *sender, tspec: Some(*tspec) })
            }
            Body::Resv(Resv { session, hop, style, flows, .. }) => {
                let hop = Hop { address: own, interface: hop.interface };
                Body::ResvErr(ResvErr { session: *session, hop, error, style: *style, flows: *flows })
            }
            _ => return,
        };
        self.neighbours.send(neighbour, To::Neighbour, &answer, &[], out);
    }

    /// A Path: the device is the egress, or must say that it is not.
    fn path(&mut self, now: Instant, from: From, path: &Path<'_>, out: &mut Output<'_>) {
        let key = LspKey { session: path.session, sender: path.sender };
        let own = |address: Ipv4Addr| address == path.session.destination || out.addresses().owns_v4(address);
        let first = path.explicit_route.and_then(|route| route.hops().next());
        let mine = match first {
            Some(ExplicitHop::Ipv4 { address, prefix_len: 32, .. }) => own(address),
            // Whether the device is in a prefix or an AS, only the sender knows.
            Some(ExplicitHop::Ipv4 { .. } | ExplicitHop::AsNumber { .. }) | None => true,
            Some(ExplicitHop::Other { .. }) => false,
        };
        let known = self.lsps.find_egress(&key);
        let problem = match path.label_request {
            _ if known.is_none() && !out.addresses().owns_v4(path.session.destination) => Some(routing::NO_ROUTE),
            _ if !mine => Some(routing::BAD_INITIAL_SUBOBJECT),
            Some(protocol) if L3PIDS.contains(&protocol) => None,
            _ => Some(routing::UNSUPPORTED_L3PID),
        };
        let number = match (problem, known) {
            (None, Some(number)) => Ok(number),
            (None, None) => self.lsps.add_foreign(key).ok_or(routing::LABEL_ALLOCATION),
            (Some(problem), _) => Err(problem),
        };
        let number = match number {
            Ok(number) => number,
            Err(value) => {
                self.counts.foreign_refused += u64::from(known.is_none());
                return self.refuse(from.neighbour, &Body::Path(*path), error::ROUTING_PROBLEM, value, out);
            }
        };
        let before = self.lsps.all[number as usize].clone();
        if !self.note_id(number, from) {
            return;
        }
        let flags = path.attribute.map_or(0, |attribute| attribute.flags);
        let lsp = &mut self.lsps.all[number as usize];
        (lsp.word, lsp.period) = (path.hop.interface, path.refresh);
        lsp.set(lsp_flag::SHARED, flags & attribute_flag::SE_STYLE != 0);
        lsp.set(lsp_flag::RECORD, path.record_route.is_some());
        let noted = |l: &super::lsp::Lsp| {
            let id = l.has(lsp_flag::HAS_PEER_ID).then_some(l.peer_id);
            (id, l.neighbour, l.word, l.flags & (lsp_flag::SHARED | lsp_flag::RECORD))
        };
        let same = before.phase == Phase::Up && noted(&before) == noted(lsp) && *self.lsps.tspec(number) == path.tspec;
        *self.lsps.tspec(number) = path.tspec;
        if !same {
            let confirm = self.config.confirm;
            self.lsps.all[number as usize].set(lsp_flag::CONFIRM, confirm);
            self.lsps.set_phase(number, now, Phase::Up);
            self.trigger(number);
            self.send_lsp(number, now, out);
        }
        self.refreshed(number, now);
    }

    /// A Resv: the device is the ingress, and learns labels.
    fn resv(&mut self, now: Instant, from: From, resv: &Resv<'_>, out: &mut Output<'_>) {
        let refuse = |rsvp: &mut Rsvp, code, value, out: &mut Output<'_>| {
            rsvp.refuse(from.neighbour, &Body::Resv(*resv), code, value, out);
        };
        if !resv.style.is(Style::FF) && !resv.style.is(Style::SE) {
            return refuse(self, error::UNKNOWN_STYLE, 0, out);
        }
        for flow in resv.flows.iter() {
            let key = LspKey { session: resv.session, sender: flow.filter };
            let found = self.lsps.find_ingress(&key);
            let Some((number, phase)) = found.map(|n| (n, self.lsps.all[n as usize].phase)) else {
                self.counts.foreign_refused += 1;
                refuse(self, error::NO_PATH, 0, out);
                continue;
            };
            match (phase, flow.label) {
                // The tear message is on its way.
                (Phase::Tearing, _) => {}
                (Phase::Idle, _) => refuse(self, error::NO_PATH, 0, out),
                (_, Some(label @ ..=MAX_LABEL)) if self.note_id(number, from) => {
                    let lsp = &mut self.lsps.all[number as usize];
                    (lsp.word, lsp.period) = (label, resv.refresh);
                    self.lsps.set_phase(number, now, Phase::Up);
                    self.refreshed(number, now);
                    if let Some(receiver) = resv.confirm {
                        self.confirm(from.neighbour, resv, receiver, &flow, out);
                    }
                }
                (_, Some(..=MAX_LABEL)) => {}
                _ => refuse(self, error::ROUTING_PROBLEM, routing::UNACCEPTABLE_LABEL, out),
            }
        }
    }

    /// Confirms a reservation.
    fn confirm(
        &mut self,
        neighbour: usize,
        resv: &Resv<'_>,
        receiver: Ipv4Addr,
        flow: &Flow<'_>,
        out: &mut Output<'_>,
    ) {
        let own = self.neighbours.own;
        let mut list = std::mem::take(&mut self.stage[0]);
        list.clear();
        Flow { label: None, record_route: None, ..*flow }.emit(&mut list);
        let error = ErrorSpec { node: own, flags: 0, code: error::CONFIRMATION, value: 0 };
        let flows = Flows::new(&list).expect("a list with one flow");
        let conf = ResvConf { session: resv.session, error, confirm: receiver, style: resv.style, flows };
        self.neighbours.send(neighbour, To::End(own, receiver), &Body::ResvConf(conf), &[], out);
        self.stage[0] = list;
    }

    fn confirmed(&mut self, conf: &ResvConf<'_>) -> Result<(), Malformed> {
        for flow in conf.flows.iter() {
            if let Some(number) = self.lsps.find_egress(&LspKey { session: conf.session, sender: flow.filter }) {
                self.lsps.all[number as usize].set(lsp_flag::CONFIRM, false);
            }
        }
        Ok(())
    }

    fn resv_tear(&mut self, now: Instant, session: Session, flows: Flows<'_>) {
        for flow in flows.iter() {
            if let Some(number) = self.lsps.find_ingress(&LspKey { session, sender: flow.filter })
                && self.lsps.all[number as usize].phase == Phase::Up
            {
                self.lose_label(number, now);
            }
        }
    }
}
