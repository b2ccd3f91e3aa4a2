//! Resvs, and errors and tears of them: reservations and labels from the next hop, passed on to the previous hop.

use super::lsp::{Half, Reservation};
use super::neighbour::{TTL, To};
use super::path::{MOST_RECORDED, lifetime};
use super::{From, LabelChange, Rsvp};
use drophammer_model::Instant;
use drophammer_wire::rsvp::{
    Body, ErrorSpec, Flow, Flows, HEADER_LEN, Hop, MAX_LABEL, RecordRoute, RecordedHop, Resv, ResvErr, ResvTear, Style,
    error, routing,
};

/// Labels below this one are reserved; a next hop may hand out explicit null and implicit null (RFC 3032 section 2.1).
const FIRST: u32 = 16;
const NULLS: [u32; 2] = [drophammer_wire::rsvp::EXPLICIT_NULL, drophammer_wire::rsvp::IMPLICIT_NULL];

impl Rsvp {
    /// Takes a Resv. Each flow is refused on its own (RFC 2205 section 3.1.8).
    pub(super) fn resv(&mut self, now: Instant, from: From, resv: &Resv<'_>) {
        for flow in resv.flows.iter() {
            if let Err((code, value)) = self.reserve(now, from, resv, flow) {
                self.refuse_flow(from, resv, flow, code, value);
            }
        }
    }

    fn reserve(&mut self, now: Instant, from: From, resv: &Resv<'_>, flow: Flow<'_>) -> Result<(), (u8, u16)> {
        if !resv.style.is(Style::FF) && !resv.style.is(Style::SE) {
            return Err((error::UNKNOWN_STYLE, 0));
        }
        let Some(slot) = self.lsps.find(&(resv.session, flow.filter)) else {
            let known = self.lsps.has_session(&resv.session);
            return Err((if known { error::NO_SENDER } else { error::NO_PATH }, 0));
        };
        let lsp = self.lsps.get(slot);
        let (own, next) = (lsp.label, lsp.next_hop());
        if next != from.neighbour {
            return Err((error::NO_PATH, 0));
        }
        let usable = |label: &u32| NULLS.contains(label) || (FIRST..=MAX_LABEL).contains(label);
        let Some(label) = flow.label.filter(usable) else {
            return Err((error::ROUTING_PROBLEM, routing::UNACCEPTABLE_LABEL));
        };
        if !self.note_id(slot, Half::Resv, from) {
            return Ok(());
        }
        let lsp = self.lsps.get(slot);
        lsp.heard[Half::Resv as usize].lifetime = lifetime(resv.refresh);
        let reservation = Reservation { label, style: resv.style, handle: resv.hop.interface };
        let before = lsp.reservation.replace(reservation);
        self.lsps.reserved += u64::from(before.is_none());
        if before.map(|before| before.label) != Some(label) {
            let neighbour = &self.neighbours.list[next];
            let to = Some((label, neighbour.interface, neighbour.address));
            self.label_changes.push(LabelChange { label: own, to });
        }
        let objects = self.resv_objects(slot, resv, flow);
        self.offer(slot, Half::Resv, objects, now);
        self.refreshed(slot, Half::Resv, now);
        Ok(())
    }

    /// Objects of the Resv to the previous hop.
    fn resv_objects(&mut self, slot: u32, resv: &Resv<'_>, flow: Flow<'_>) -> Vec<u8> {
        let lsp = self.lsps.get(slot);
        let (label, previous, neighbour) = (lsp.label, lsp.previous, lsp.heard[Half::Path as usize].neighbour);
        let own = self.own(neighbour);
        let mut recorded = Vec::new();
        if let Some(route) = flow.record_route {
            RecordedHop::Ipv4 { address: own, prefix_len: 32, flags: 0 }.emit(&mut recorded);
            // The ingress has asked for labels if the next hop records its own.
            if route.hops().any(|hop| matches!(hop, RecordedHop::Label { .. })) {
                RecordedHop::Label { flags: 0, label }.emit(&mut recorded);
            }
            route.hops().for_each(|hop| hop.emit(&mut recorded));
        }
        let fits = !recorded.is_empty() && recorded.len() <= MOST_RECORDED;
        let record_route = RecordRoute::new(&recorded).ok().filter(|_| fits);
        let mut list = Vec::new();
        Flow { label: Some(label), record_route, ..flow }.emit(&mut list);
        let passed = Resv {
            hop: Hop { address: own, interface: previous.interface },
            refresh: self.period(),
            flows: Flows::new(&list).expect("a list with one flow"),
            ..*resv
        };
        let mut objects = Vec::new();
        Body::Resv(passed).emit(0, 0, &[], &mut objects);
        objects.drain(..HEADER_LEN);
        objects
    }

    /// The previous hop has another logical interface handle, which its Resv must have.
    pub(super) fn offer_resv_again(&mut self, slot: u32, now: Instant) {
        let lsp = self.lsps.get(slot);
        let (previous, mut objects) = (lsp.previous, lsp.sent[Half::Resv as usize].objects.to_vec());
        // RSVP_HOP is the second object, after the 16 bytes of SESSION: header, address, handle.
        if let Some(handle) = objects.get_mut(24..28) {
            handle.copy_from_slice(&previous.interface.to_be_bytes());
            self.offer(slot, Half::Resv, objects, now);
        }
    }

    /// Refuses a flow of a Resv with a ResvErr, which has neither labels nor recorded routes.
    pub(super) fn refuse_flow(&mut self, from: From, resv: &Resv<'_>, flow: Flow<'_>, code: u8, value: u16) {
        let own = self.own(from.neighbour);
        let mut list = Vec::new();
        Flow { label: None, record_route: None, ..flow }.emit(&mut list);
        let body = ResvErr {
            session: resv.session,
            hop: Hop { address: own, interface: resv.hop.interface },
            error: ErrorSpec { node: own, flags: 0, code, value },
            style: resv.style,
            flows: Flows::new(&list).expect("a list with one flow"),
        };
        self.truth.errors_sent += 1;
        self.neighbours.send(from.neighbour, To::Neighbour, TTL, &Body::ResvErr(body));
    }

    /// Takes a ResvTear: only the next hop ends its reservation.
    pub(super) fn resv_tear(&mut self, from: From, tear: &ResvTear<'_>) {
        for flow in tear.flows.iter() {
            let Some(slot) = self.lsps.find(&(tear.session, flow.filter)) else { continue };
            if self.lsps.get(slot).next_hop() == from.neighbour && self.note_id(slot, Half::Resv, from) {
                self.unreserve(slot, true);
                self.lsps.schedule(slot);
            }
        }
    }

    /// Passes a ResvErr on to the next hop. It also acknowledges the Resv (RFC 2961 section 4.3).
    pub(super) fn resv_err(&mut self, now: Instant, from: From, error: &ResvErr<'_>) {
        for flow in error.flows.iter() {
            let Some(slot) = self.lsps.find(&(error.session, flow.filter)) else { continue };
            let lsp = self.lsps.get(slot);
            let (previous, next) = (lsp.heard[Half::Path as usize].neighbour, lsp.next_hop());
            let Some(reservation) = lsp.reservation.filter(|_| previous == from.neighbour) else { continue };
            self.confirmed(slot, Half::Resv, now);
            let hop = Hop { address: self.own(next), interface: reservation.handle };
            let mut list = Vec::new();
            flow.emit(&mut list);
            let flows = Flows::new(&list).expect("a list with one flow");
            self.truth.errors_sent += 1;
            let body = Body::ResvErr(ResvErr { hop, flows, ..*error });
            self.neighbours.send(next, To::Neighbour, TTL, &body);
        }
    }
}
