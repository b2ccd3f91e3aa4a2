//! Sending: messages of LSPs, their retransmissions and refreshes.

use super::config::{IngressRange, LspKey};
use super::lsp::{Lsp, NEVER, Phase, lsp_flag};
use super::neighbour::To;
use super::timers::lifetime;
use super::{CHUNK, Rsvp};
use crate::protocol::Output;
use drophammer_model::Instant;
use drophammer_wire::rsvp::{
    Adspec, Body, ExplicitHop, ExplicitRoute, Flow, Flows, Hop, MessageId, MessageIdList, Object, Path, PathTear,
    RecordRoute, RecordedHop, Resv, ResvTear, SessionAttribute, Style, Tspec, attribute_flag, kind,
};
use std::cmp::Reverse;
use std::fmt::Write;
use std::time::Duration;

/// EtherType of the packets that LSPs carry.
const L3PID: u16 = 0x0800;
/// MTU of paths in bytes.
const MTU: u32 = 1500;
/// Bandwidth in ADSPECs, in bytes per second: 10 Gbit/s.
const LINK: f32 = 1.25e9;
/// Time to the next attempt if the next hop was not resolved.
const RESOLVE: Duration = Duration::from_millis(500);

/// The configured hops as bytes.
pub(super) fn explicit_route(range: &IngressRange) -> Vec<u8> {
    let mut bytes = Vec::new();
    for hop in &range.explicit_route {
        ExplicitHop::Ipv4 { loose: hop.loose, address: hop.address, prefix_len: hop.prefix_len }.emit(&mut bytes);
    }
    bytes
}

impl Rsvp {
    /// The period in TIME_VALUES.
    fn period(&self) -> u32 {
        self.config.refresh.as_millis() as u32
    }

    /// Sends the Path of an LSP that does not exist yet; returns the number of bytes sent.
    pub(super) fn set_up(&mut self, number: u32, now: Instant, out: &mut Output<'_>) -> usize {
        if matches!(self.lsps.all[number as usize].phase, Phase::Signalled | Phase::Up) {
            return 0;
        }
        self.forget_ids(number);
        self.lsps.set_phase(number, now, Phase::Signalled);
        self.trigger(number);
        self.send_lsp(number, now, out)
    }

    /// Ends an LSP with a tear message.
    pub(super) fn tear(&mut self, number: u32, now: Instant, out: &mut Output<'_>) -> usize {
        if matches!(self.lsps.all[number as usize].phase, Phase::Idle | Phase::Tearing) {
            return 0;
        }
        self.lsps.set_phase(number, now, Phase::Tearing);
        self.lsps.all[number as usize].expires = NEVER;
        self.trigger(number);
        self.send_lsp(number, now, out)
    }

    /// Restarts an LSP whose neighbour has restarted.
    pub(super) fn renew(&mut self, number: u32, neighbour: usize, now: Instant, out: &mut Output<'_>) -> usize {
        let ingress = self.lsps.is_ingress(number);
        let lsp = &self.lsps.all[number as usize];
        let concerned = usize::from(lsp.neighbour) == neighbour || ingress && neighbour == 0;
        match lsp.phase {
            // The neighbour has sent this state since its restart.
            _ if lsp.life == self.neighbours.list[neighbour].life => 0,
            Phase::Signalled | Phase::Up if concerned && ingress => {
                self.end(number, now);
                self.set_up(number, now, out)
            }
            Phase::Up | Phase::Tearing if concerned => {
                self.end(number, now);
                0
            }
            _ => 0,
        }
    }

    /// Gives the LSP's message a new identifier that must be acknowledged, because its content changes.
    pub(super) fn trigger(&mut self, number: u32) {
        let lsp = &mut self.lsps.all[number as usize];
        if lsp.has(lsp_flag::HAS_ID) {
            self.own_ids.remove(&lsp.id);
        }
        lsp.set(lsp_flag::HAS_ID | lsp_flag::ACKED, false);
        lsp.attempts = 0;
    }

    /// Forgets both identifiers of an LSP.
    fn forget_ids(&mut self, number: u32) {
        self.trigger(number);
        let lsp = &mut self.lsps.all[number as usize];
        if lsp.has(lsp_flag::HAS_PEER_ID) {
            self.neighbours.list[usize::from(lsp.neighbour)].ids.remove(&(lsp.peer_id, number));
        }
        lsp.set(lsp_flag::HAS_PEER_ID, false);
    }

    /// Removes all state of an LSP.
    pub(super) fn end(&mut self, number: u32, now: Instant) {
        self.forget_ids(number);
        self.lsps.set_phase(number, now, Phase::Idle);
    }

    /// Handles the expiry of the state that the neighbour refreshes.
    pub(super) fn expire(&mut self, number: u32, now: Instant, out: &mut Output<'_>) {
        self.counts.timeouts += 1;
        if self.lsps.is_ingress(number) {
            self.lose_label(number, now);
            self.lsps.all[number as usize].next = now;
            self.send_lsp(number, now, out);
        } else {
            self.end(number, now);
        }
    }

    /// Handles the loss of the reservation of an LSP that begins here. Its Path continues.
    pub(super) fn lose_label(&mut self, number: u32, now: Instant) {
        self.lsps.set_phase(number, now, Phase::Signalled);
        self.lsps.all[number as usize].expires = NEVER;
    }

    /// Restarts the lifetime of state, with the refresh period of this LSP's neighbour.
    pub(super) fn refreshed(&mut self, number: u32, now: Instant) {
        let lsp = &mut self.lsps.all[number as usize];
        lsp.expires = now + lifetime(self.config.keep_multiplier, lsp.period);
        self.deadlines.schedule(number, &mut self.lsps.all);
    }

    /// Sends the message of an LSP and determines the time of the next one; returns the number of bytes.
    pub(super) fn send_lsp(&mut self, number: u32, now: Instant, out: &mut Output<'_>) -> usize {
        let ingress = self.lsps.is_ingress(number);
        let neighbour = if ingress { 0 } else { usize::from(self.lsps.all[number as usize].neighbour) };
        let reduces = self.neighbours.reduces(neighbour);
        let lsp = &mut self.lsps.all[number as usize];
        if reduces && !lsp.has(lsp_flag::HAS_ID) {
            self.last_id = self.last_id.wrapping_add(1);
            (lsp.id, lsp.attempts) = (self.last_id, 0);
            lsp.set(lsp_flag::HAS_ID, true);
            self.own_ids.insert(lsp.id, number);
        }
        let own = (reduces && lsp.has(lsp_flag::HAS_ID)).then(|| {
            let flags = if lsp.has(lsp_flag::ACKED) { 0 } else { MessageId::ACK_DESIRED };
            Object::MessageId(MessageId { flags, epoch: self.epoch, id: lsp.id })
        });
        let lsp = lsp.clone();
        let sent = if ingress {
            self.send_path(number, &lsp, own.as_slice(), out)
        } else {
            self.send_resv(number, neighbour, &lsp, own.as_slice(), out)
        };
        self.plan(number, now, sent.is_some(), own.is_some());
        sent.unwrap_or(8)
    }

    /// Determines when an LSP sends its message again.
    fn plan(&mut self, number: u32, now: Instant, sent: bool, identified: bool) {
        let reduction = self.config.refresh_reduction.as_ref().filter(|_| identified);
        let lsp = &mut self.lsps.all[number as usize];
        let limit = reduction.map_or(1, |reduction| reduction.retransmit_limit.max(1));
        let acked = lsp.has(lsp_flag::ACKED);
        self.counts.retransmissions += u64::from(sent && !acked && (1..limit).contains(&lsp.attempts));
        lsp.attempts = lsp.attempts.saturating_add(sent.into());
        let next = match reduction {
            _ if !sent => Some(RESOLVE),
            Some(reduction) if !acked && lsp.attempts < limit => {
                Some(reduction.retransmit.saturating_mul(1 << u32::from(lsp.attempts - 1).min(16)))
            }
            _ if lsp.phase == Phase::Tearing => None,
            Some(reduction) if acked && reduction.summary_refresh => {
                lsp.next = NEVER;
                return;
            }
            _ => Some(self.jitter.refresh()),
        };
        match next {
            Some(time) => lsp.next = now + time,
            None => self.end(number, now),
        }
    }

    fn send_path(&mut self, number: u32, lsp: &Lsp, ids: &[Object<'_>], out: &mut Output<'_>) -> Option<usize> {
        let LspKey { session, sender } = self.lsps.key(number);
        let (range, index) = self.lsps.ingress_range(number);
        let config = &self.config.ingress[range];
        let hop = Hop { address: self.neighbours.own, interface: 0 };
        let tspec = Tspec::constant(config.bandwidth as f32 / 8.0, MTU);
        let adspec = Adspec { broken: false, hops: 1, bandwidth: LINK, latency: 0, mtu: MTU, controlled_load: true };
        let adspec = Some(adspec);
        let to = To::End(sender.address, session.destination);
        if lsp.phase == Phase::Tearing {
            // freeRtr ignores a PathTear without ADSPEC.
            let tear = Body::PathTear(PathTear { session, hop, sender, tspec: Some(tspec), adspec });
            return self.neighbours.send(0, to, &tear, ids, out);
        }
        let [route, record] = &mut self.stage;
        route.clone_from(&self.routes[range]);
        ExplicitHop::Ipv4 { loose: true, address: session.destination, prefix_len: 32 }.emit(route);
        record.clear();
        RecordedHop::Ipv4 { address: hop.address, prefix_len: 32, flags: 0 }.emit(record);
        self.name.clear();
        self.name.push_str(&config.name);
        if !config.whole_name {
            write!(self.name, "{index}").expect("memory for a name");
        }
        let path = Body::Path(Path {
            session,
            hop,
            refresh: self.config.refresh.as_millis() as u32,
            explicit_route: ExplicitRoute::new(route).ok(),
            label_request: Some(L3PID),
            attribute: Some(SessionAttribute {
                affinities: None,
                setup: config.setup_priority,
                holding: config.holding_priority,
                flags: config.flags | if config.shared_explicit { attribute_flag::SE_STYLE } else { 0 },
                name: self.name.as_bytes(),
            }),
            sender,
            tspec,
            adspec,
            record_route: RecordRoute::new(record).ok().filter(|_| config.record_route),
        });
        self.neighbours.send(0, to, &path, ids, out)
    }

    fn send_resv(
        &mut self,
        number: u32,
        neighbour: usize,
        lsp: &Lsp,
        ids: &[Object<'_>],
        out: &mut Output<'_>,
    ) -> Option<usize> {
        let LspKey { session, sender: filter } = self.lsps.key(number);
        let own = self.neighbours.own;
        let hop = Hop { address: own, interface: lsp.word };
        let style = if lsp.has(lsp_flag::SHARED) { Style::SE } else { Style::FF };
        let (tspec, label, refresh) = (*self.lsps.tspec(number), self.lsps.own_label(number), self.period());
        let tearing = lsp.phase == Phase::Tearing;
        let [list, record] = &mut self.stage;
        record.clear();
        RecordedHop::Ipv4 { address: own, prefix_len: 32, flags: 0 }.emit(record);
        if lsp.has(lsp_flag::LABELS) {
            RecordedHop::Label { flags: 0, label }.emit(record);
        }
        let record_route = RecordRoute::new(record).ok().filter(|_| lsp.has(lsp_flag::RECORD));
        list.clear();
        match tearing {
            // RFC 2205 section 3.1.6 lets a tear omit the FLOWSPEC, but freeRtr ignores a ResvTear without it.
            true => Flow { flowspec: Some(tspec), filter, label: None, record_route: None }.emit(list),
            false => Flow { flowspec: Some(tspec), filter, label: Some(label), record_route }.emit(list),
        }
        let flows = Flows::new(list).expect("a list with one flow");
        let body = match tearing {
            true => Body::ResvTear(ResvTear { session, hop, style, flows }),
            false => {
                let confirm = lsp.has(lsp_flag::CONFIRM).then_some(own);
                Body::Resv(Resv { session, hop, refresh, confirm, style, flows })
            }
        };
        self.neighbours.send(neighbour, To::Neighbour, &body, ids, out)
    }

    /// Handles the acknowledgement of an LSP's message.
    pub(super) fn acked(&mut self, number: u32, now: Instant) {
        let lsp = &mut self.lsps.all[number as usize];
        if lsp.has(lsp_flag::ACKED) {
            return;
        }
        lsp.set(lsp_flag::ACKED, true);
        if lsp.phase == Phase::Tearing {
            self.end(number, now);
            return;
        }
        // Instead of a retransmission, the first refresh comes after a whole period.
        let summary = self.config.refresh_reduction.as_ref().is_some_and(|reduction| reduction.summary_refresh);
        lsp.next = if summary { NEVER } else { now + self.jitter.refresh() };
        self.deadlines.schedule(number, &mut self.lsps.all);
        if summary {
            self.plan_chunk(number / CHUNK, now);
        }
    }

    fn plan_chunk(&mut self, chunk: u32, now: Instant) {
        let at = chunk as usize;
        if at >= self.chunk_scheduled.len() {
            self.chunk_scheduled.resize(at + 1, false);
        }
        if !std::mem::replace(&mut self.chunk_scheduled[at], true) {
            self.chunks.push(Reverse((now + self.jitter.refresh(), chunk)));
        }
    }

    /// Refreshes the acknowledged LSPs of a chunk: one Srefresh for each neighbour. Returns the number of bytes.
    pub(super) fn summarize(&mut self, chunk: u32, now: Instant, out: &mut Output<'_>) -> usize {
        self.chunk_scheduled[chunk as usize] = false;
        let first = chunk * CHUNK;
        let end = (first + CHUNK).min(self.lsps.all.len() as u32);
        let mut lists: Vec<Vec<[u8; 4]>> = vec![Vec::new(); self.neighbours.list.len()];
        for number in first..end {
            let lsp = &mut self.lsps.all[number as usize];
            if !(lsp.has(lsp_flag::ACKED) && matches!(lsp.phase, Phase::Signalled | Phase::Up)) {
                continue;
            }
            let neighbour = if number < self.lsps.ingress_count { 0 } else { usize::from(lsp.neighbour) };
            if self.neighbours.reduces(neighbour) {
                lists[neighbour].push(lsp.id.to_be_bytes());
            } else {
                lsp.next = now;
                self.deadlines.schedule(number, &mut self.lsps.all);
            }
        }
        let mut bytes = 0;
        for (neighbour, ids) in lists.iter().enumerate().filter(|(_, ids)| !ids.is_empty()) {
            self.counts.summary_ids_sent += ids.len() as u64;
            bytes += 20 + 4 * ids.len();
            let list = Object::MessageIdList(MessageIdList::new(self.epoch, ids));
            self.neighbours.send_bare(neighbour, kind::SREFRESH, out, |writer| writer.object(&list));
        }
        if bytes > 0 {
            self.plan_chunk(chunk, now);
        }
        bytes
    }
}
