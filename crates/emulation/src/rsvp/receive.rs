//! Receiving: what messages do to LSPs and neighbours.

use super::config::LspKey;
use super::config::ReservationStyle;
use super::lsp::{Phase, lsp_flag};
use super::neighbour::To;
use super::{ErrorKind, Rsvp};
use crate::protocol::{Output, Packet};
use drophammer_model::Instant;
use drophammer_wire::rsvp::{
    Body, ErrorSpec, ExplicitHop, Flow, Flows, Hop, Ids, MAX_LABEL, Message, MessageId, MessageIdAck, Path, PathErr,
    PathTear, RecordRoute, RecordedHop, Resv, ResvConf, ResvErr, ResvTear, Style, UnknownObject, attribute_flag, error,
    flag, kind, routing,
};
use drophammer_wire::{MacAddr, Malformed};
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
        self.neighbours.bytes_received += packet.payload.len() as u64;
        let done = Message::parse(packet.payload).and_then(|message| {
            self.count(message.kind);
            let hop = (source, packet.link_source);
            if message.kind != kind::BUNDLE {
                return self.message(now, hop, &message, out);
            }
            for sub in message.submessages() {
                let sub = sub?;
                self.count(sub.kind);
                self.message(now, hop, &sub, out)?;
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
        (source, link_source): (Ipv4Addr, MacAddr),
        message: &Message<'_>,
        out: &mut Output<'_>,
    ) -> Result<(), Malformed> {
        let (body, refusal) = Body::parse(message)?;
        // RFC 2961 section 4.3: RSVP_HOP names the node that made the message. The source may be the sender of the LSP, far away.
        let address = match &body {
            Body::Path(Path { label_request: None, .. }) if refusal.is_none() => {
                return Err(Malformed::new("rsvp", "a Path without LABEL_REQUEST"));
            }
            Body::Path(Path { hop, .. })
            | Body::PathTear(PathTear { hop, .. })
            | Body::Resv(Resv { hop, .. })
            | Body::ResvTear(ResvTear { hop, .. })
            | Body::ResvErr(ResvErr { hop, .. }) => hop.address,
            _ => source,
        };
        if address == self.neighbours.own
            || address.is_unspecified()
            || address.is_multicast()
            || address.is_broadcast()
        {
            return Err(Malformed::new("rsvp", "the hop is not a neighbour"));
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
        if let Body::ResvConf(conf) = &body {
            self.confirmed(conf);
        }
        if (error.is_some() || matches!(body, Body::ResvConf(_))) && !self.neighbours.knows(address) {
            return Ok(());
        }
        let of_neighbour = &self.lsps.of_neighbour;
        let has_lsps = |number: usize| of_neighbour[number] > 0;
        let Some(neighbour) = self.neighbours.number(address, has_lsps) else { return Ok(()) };
        let capable = message.flags & flag::REFRESH_REDUCTION_CAPABLE != 0;
        self.neighbours.list[neighbour].capable = capable;
        let gateway = IpAddr::from(self.neighbours.list[0].address);
        if out.neighbours().mac(gateway) == Some(link_source) {
            // The gateway may send from another of its addresses.
            self.neighbours.list[0].capable = capable;
        }
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
                // RFC 2205 section 3.1.5: only the previous hop tears the path down.
                if let Some(number) = self.lsps.find_egress(&key).filter(|number| self.is_from(*number, neighbour))
                    && !self.out_of_order(number, from)
                {
                    self.end(number, now);
                }
            }
            Body::ResvTear(tear) => self.resv_tear(now, from, &tear),
            Body::PathErr(PathErr { session, sender, .. }) => {
                self.implicit_ack(now, self.lsps.find_ingress(&LspKey { session, sender }));
            }
            Body::ResvErr(ResvErr { session, flows, .. }) => {
                for Flow { filter: sender, .. } in flows.iter() {
                    self.implicit_ack(now, self.lsps.find_egress(&LspKey { session, sender }));
                }
            }
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
        // RFC 2961 section 4.2: a message is acknowledged after it was processed. Messages out of order are not
        // acknowledged.
        if let Some(id) = from.id.filter(|id| id.ack_desired() && self.counts.out_of_order == out_of_order) {
            let ack = MessageIdAck { known: true, flags: 0, epoch: id.epoch, id: id.id };
            self.neighbours.acknowledge(neighbour, ack, out);
        }
        Ok(())
    }

    /// Forgets the identifiers of a neighbour whose epoch has changed: it has restarted.
    fn note_epoch(&mut self, neighbour: usize, epoch: u32) {
        if self.neighbours.list[neighbour].epoch.replace(epoch) != Some(epoch) {
            self.neighbours.list[neighbour].ids.clear();
        }
    }

    /// True if this neighbour has sent the state of the LSP.
    fn is_from(&self, number: u32, neighbour: usize) -> bool {
        usize::from(self.lsps.all[number as usize].neighbour) == neighbour
    }

    /// True, and counted, if a message about an LSP is older than another one of its neighbour (RFC 2961 section 4.3).
    fn out_of_order(&mut self, number: u32, from: From) -> bool {
        let lsp = &self.lsps.all[number as usize];
        let Some(id) = from.id.filter(|_| lsp.has(lsp_flag::HAS_PEER_ID) && self.is_from(number, from.neighbour))
        else {
            return false;
        };
        // A restart of the neighbour makes its old identifiers invalid.
        let known = self.neighbours.list[from.neighbour].ids.contains(&(lsp.peer_id, number));
        let old = known && (id.id.wrapping_sub(lsp.peer_id) as i32) < 0;
        self.counts.out_of_order += u64::from(old);
        old
    }

    /// Stores the identifier of the neighbour's message about an LSP; false if it is older than the stored one.
    fn note_id(&mut self, number: u32, from: From) -> bool {
        if self.out_of_order(number, from) {
            return false;
        }
        let lsp = &self.lsps.all[number as usize];
        if lsp.has(lsp_flag::HAS_PEER_ID) {
            self.neighbours.list[usize::from(lsp.neighbour)].ids.remove(&(lsp.peer_id, number));
        }
        let neighbour = &mut self.neighbours.list[from.neighbour];
        self.lsps.set_neighbour(number, from.neighbour);
        let lsp = &mut self.lsps.all[number as usize];
        lsp.life = neighbour.life;
        lsp.set(lsp_flag::HAS_PEER_ID, from.id.is_some());
        let Some(MessageId { id, .. }) = from.id else { return true };
        lsp.peer_id = id;
        // A message is about one session: all senders of a Resv (SE) have its identifier.
        if let Some(&(_, other)) = neighbour.ids.range((id, 0)..=(id, u32::MAX)).next()
            && (self.lsps.is_ingress(other) != self.lsps.is_ingress(number)
                || self.lsps.key(other).session != self.lsps.key(number).session)
        {
            while let Some(&other) = neighbour.ids.range((id, 0)..=(id, u32::MAX)).next() {
                neighbour.ids.remove(&other);
            }
        }
        neighbour.ids.insert((id, number));
        true
    }

    /// RFC 2961 section 4.3: an error acknowledges the message of the LSP.
    fn implicit_ack(&mut self, now: Instant, number: Option<u32>) {
        if let Some(number) = number
            && let lsp = &self.lsps.all[number as usize]
            && lsp.has(lsp_flag::HAS_ID)
            && lsp.attempts > 0
            && lsp.phase != Phase::Tearing
        {
            self.acked(number, now);
        }
    }

    /// Handles an acknowledgement, or the report that the neighbour does not know a message.
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

    /// Refreshes the state that a neighbour names by its identifier.
    fn summary(&mut self, now: Instant, neighbour: usize, epoch: u32, id: u32, out: &mut Output<'_>) {
        self.counts.summary_ids_received += 1;
        let valid = self.neighbours.list[neighbour].epoch == Some(epoch);
        let mut next = (id, 0);
        while valid && let Some(&(_, number)) = self.neighbours.list[neighbour].ids.range(next..=(id, u32::MAX)).next()
        {
            self.refreshed(number, now);
            next = (id, number + 1);
        }
        if next == (id, 0) {
            self.counts.nacks_sent += 1;
            let nack = MessageIdAck { known: false, flags: 0, epoch, id };
            self.neighbours.acknowledge(neighbour, nack, out);
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
            Body::Resv(resv) => return self.refuse_flows(neighbour, resv, resv.flows.iter(), (code, value), out),
            _ => return,
        };
        self.neighbours.send(neighbour, To::Neighbour, &answer, &[], out);
    }

    /// Answers flows of a Resv with an error.
    fn refuse_flows<'a>(
        &mut self,
        neighbour: usize,
        resv: &Resv<'_>,
        flows: impl Iterator<Item = Flow<'a>>,
        (code, value): (u8, u16),
        out: &mut Output<'_>,
    ) {
        let own = self.neighbours.own;
        let mut list = std::mem::take(&mut self.stage[0]);
        list.clear();
        // ResvErr has neither labels nor recorded routes.
        flows.for_each(|flow| Flow { label: None, record_route: None, ..flow }.emit(&mut list));
        let answer = Body::ResvErr(ResvErr {
            session: resv.session,
            hop: Hop { address: own, interface: resv.hop.interface },
            error: ErrorSpec { node: own, flags: 0, code, value },
            style: resv.style,
            flows: Flows::new(&list).expect("a list of flows"),
        });
        self.neighbours.send(neighbour, To::Neighbour, &answer, &[], out);
        self.stage[0] = list;
    }

    /// Handles a Path: the device is the egress, or must report that it is not.
    fn path(&mut self, now: Instant, from: From, path: &Path<'_>, out: &mut Output<'_>) {
        let key = LspKey { session: path.session, sender: path.sender };
        let own = |address: Ipv4Addr| address == path.session.destination || out.addresses().owns_v4(address);
        let wrong_hop = match path.explicit_route.map(|route| route.hops().next()) {
            Some(None) => Some(routing::BAD_EXPLICIT_ROUTE),
            Some(Some(ExplicitHop::Ipv4 { address, prefix_len: 32, .. })) if own(address) => None,
            // Only the sender knows whether the device belongs to a prefix or an AS.
            Some(Some(ExplicitHop::Ipv4 { prefix_len: ..=31, .. } | ExplicitHop::AsNumber { .. })) | None => None,
            Some(Some(_)) => Some(routing::BAD_INITIAL_SUBOBJECT),
        };
        let visited = |route: RecordRoute<'_>| {
            route.hops().any(|hop| matches!(hop, RecordedHop::Ipv4 { address, .. } if address == self.neighbours.own))
        };
        let looped = path.record_route.is_some_and(visited);
        let known = self.lsps.find_egress(&key);
        let problem = match path.label_request {
            _ if known.is_none() && !out.addresses().owns_v4(path.session.destination) => Some(routing::NO_ROUTE),
            _ if wrong_hop.is_some() => wrong_hop,
            _ if looped => Some(routing::LOOP),
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
        let shared = match self.config.style {
            ReservationStyle::Asked => flags & attribute_flag::SE_STYLE != 0,
            style => style == ReservationStyle::SharedExplicit,
        };
        lsp.set(lsp_flag::SHARED, shared);
        lsp.set(lsp_flag::RECORD, path.record_route.is_some());
        lsp.set(lsp_flag::LABELS, flags & attribute_flag::LABEL_RECORDING != 0);
        let noted = |l: &super::lsp::Lsp| {
            let id = l.has(lsp_flag::HAS_PEER_ID).then_some(l.peer_id);
            (id, l.neighbour, l.word, l.flags & (lsp_flag::SHARED | lsp_flag::RECORD | lsp_flag::LABELS))
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

    /// Handles a Resv: the device is the ingress, and learns labels.
    fn resv(&mut self, now: Instant, from: From, resv: &Resv<'_>, out: &mut Output<'_>) {
        // Each flow is refused separately (RFC 2205 section 3.1.8).
        let refuse = |rsvp: &mut Rsvp, flow, code, value, out: &mut Output<'_>| {
            rsvp.refuse_flows(from.neighbour, resv, std::iter::once(flow), (code, value), out);
        };
        if !resv.style.is(Style::FF) && !resv.style.is(Style::SE) {
            return self.refuse(from.neighbour, &Body::Resv(*resv), error::UNKNOWN_STYLE, 0, out);
        }
        for flow in resv.flows.iter() {
            let key = LspKey { session: resv.session, sender: flow.filter };
            let found = self.lsps.find_ingress(&key);
            self.counts.foreign_refused += u64::from(found.is_none());
            let (number, phase) = found.map_or((0, Phase::Idle), |n| (n, self.lsps.all[n as usize].phase));
            match (phase, flow.label) {
                // The tear message has already been sent.
                (Phase::Tearing, _) => {}
                (Phase::Idle, _) => {
                    let known = self.lsps.has_path(&resv.session);
                    refuse(self, flow, if known { error::NO_SENDER } else { error::NO_PATH }, 0, out);
                }
                (_, Some(label @ ..=MAX_LABEL)) if self.note_id(number, from) => {
                    let lsp = &mut self.lsps.all[number as usize];
                    (lsp.word, lsp.period) = (label, resv.refresh);
                    lsp.set(lsp_flag::SHARED, resv.style.is(Style::SE));
                    self.lsps.set_phase(number, now, Phase::Up);
                    self.refreshed(number, now);
                    if let Some(receiver) = resv.confirm {
                        self.confirm(from.neighbour, resv, receiver, &flow, out);
                    }
                }
                (_, Some(..=MAX_LABEL)) => {}
                _ => refuse(self, flow, error::ROUTING_PROBLEM, routing::UNACCEPTABLE_LABEL, out),
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

    fn confirmed(&mut self, conf: &ResvConf<'_>) {
        for flow in conf.flows.iter() {
            if let Some(number) = self.lsps.find_egress(&LspKey { session: conf.session, sender: flow.filter }) {
                self.lsps.all[number as usize].set(lsp_flag::CONFIRM, false);
            }
        }
    }

    /// Handles a ResvTear: it ends the reservation that the same next hop has made with the same style (RFC 2205 section
    /// 3.1.6).
    fn resv_tear(&mut self, now: Instant, from: From, tear: &ResvTear<'_>) {
        for flow in tear.flows.iter() {
            let key = LspKey { session: tear.session, sender: flow.filter };
            let Some(number) = self.lsps.find_ingress(&key).filter(|number| self.is_from(*number, from.neighbour))
            else {
                continue;
            };
            let lsp = &self.lsps.all[number as usize];
            let style = if lsp.has(lsp_flag::SHARED) { Style::SE } else { Style::FF };
            if lsp.phase == Phase::Up && tear.style.is(style) && !self.out_of_order(number, from) {
                self.lose_label(number, now);
            }
        }
    }
}
