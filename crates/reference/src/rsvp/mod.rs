//! RSVP-TE of a transit label switching router (RFC 2205, RFC 3209, RFC 2961).
//!
//! An LSP has two states: the path, which the previous hop refreshes with Paths and the device refreshes at the next hop; and the
//! reservation, which comes back with Resvs and labels. While it is reserved, the device swaps labels for it.
//!
//! Each LSP is passed on in messages of its own, even if several share a session. Bandwidth is not accounted. Not supported: LSPs that
//! begin or end at the device, wildcard filters, policy, authentication, and Hello requests of its own; it answers the requests of
//! neighbours.

mod config;
mod lsp;
mod neighbour;
mod path;
mod resv;
mod send;

pub use config::{RsvpConfig, RsvpTruth};
pub(crate) use neighbour::Posted;

use crate::config::ConfigError;
use crate::interfaces::Interface;
use crate::moment::earlier;
use crate::random::Random;
use drophammer_model::Instant;
use drophammer_wire::rsvp::{
    Body, ErrorSpec, Hello, HelloObject, Hop, Ids, Message, MessageId, MessageIdAck, Path, PathErr, PathTear, Resv,
    ResvErr, ResvTear, UnknownObject, kind,
};
use drophammer_wire::{Malformed, ipv4};
use lsp::{HALVES, Half, Lsps, NEVER};
use neighbour::{Neighbours, OwnLink, To};
use std::collections::HashMap;
use std::net::Ipv4Addr;

/// Where packets to an address go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It is the device's own.
    Own,
    /// Interface and next hop.
    Via(usize, Ipv4Addr),
    /// There is no route.
    None,
}

/// Looks an address up in the forwarding table.
pub(crate) type Routes<'a> = &'a dyn Fn(Ipv4Addr) -> Way;

/// A change of the label table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LabelChange {
    /// Label of arriving packets.
    pub label: u32,
    /// New label, interface and next hop; `None` to remove the entry.
    pub to: Option<(u32, usize, Ipv4Addr)>,
}

/// What the device sends, and changes in its label table.
#[derive(Default)]
pub(crate) struct Effects {
    pub packets: Vec<Posted>,
    pub labels: Vec<LabelChange>,
}

/// Where a message comes from.
#[derive(Clone, Copy)]
struct From {
    neighbour: usize,
    /// Its MESSAGE_ID.
    id: Option<MessageId>,
    /// TTL of the packet.
    ttl: u8,
}

/// RSVP-TE of a device.
pub(crate) struct Rsvp {
    config: RsvpConfig,
    lsps: Lsps,
    neighbours: Neighbours,
    /// Epoch of the device's identifiers, and the last one used.
    epoch: u32,
    last_id: u32,
    own_ids: HashMap<u32, (u32, Half)>,
    random: Random,
    /// The refresh at which an LSP is forgotten, and the number of refreshes so far.
    forget_at: u64,
    refreshes: u64,
    label_changes: Vec<LabelChange>,
    truth: RsvpTruth,
}

impl Rsvp {
    pub fn new(config: &RsvpConfig, seed: u64, interfaces: &[Interface]) -> Result<Rsvp, ConfigError> {
        let mut links = vec![None; interfaces.len()];
        for number in &config.interfaces {
            let interface = interfaces.get(*number).ok_or(ConfigError::NoSuchPort(*number))?;
            let (address, prefix_len) =
                interface.ipv4.ok_or(ConfigError::Limit("an interface of RSVP without IPv4"))?;
            links[*number] = Some(OwnLink { address, prefix_len, mtu: interface.mtu as u32 });
        }
        if config.refresh.as_millis() < 1 || config.refresh.as_millis() > u128::from(u32::MAX) {
            return Err(ConfigError::Limit("refresh period of RSVP"));
        }
        let mut random = Random::new(seed ^ 0x7273_7670);
        Ok(Rsvp {
            lsps: Lsps::new(config.lsp_limit),
            neighbours: Neighbours::new(links, config.refresh_reduction),
            epoch: random.bits() as u32 & 0xff_ffff,
            last_id: 0,
            own_ids: HashMap::new(),
            random,
            forget_at: 0,
            refreshes: 0,
            label_changes: Vec::new(),
            truth: RsvpTruth::default(),
            config: config.clone(),
        })
    }

    /// Forgets the LSP of the n-th refresh from now on; 0 for none.
    pub fn forget_at(&mut self, refresh: u64) {
        (self.forget_at, self.refreshes) = (refresh, 0);
    }

    /// True if a packet with the protocol number of RSVP, which is addressed to another node, is for every router on the way.
    pub fn is_for_routers(packet: &[u8]) -> bool {
        let header = usize::from(packet[0] & 15) * 4;
        ipv4::has_router_alert(packet) && packet.get(header + 1) != Some(&kind::RESV_CONF)
    }

    /// Takes an IPv4 packet.
    pub fn receive(&mut self, now: Instant, interface: usize, packet: &[u8], routes: Routes<'_>) {
        let Ok((ip, payload)) = ipv4::Repr::parse(packet) else { return };
        if self.neighbours.link(interface).is_none() {
            return;
        }
        let done = Message::parse(payload).and_then(|message| {
            let from = (interface, ip.source, ip.ttl);
            if message.kind != kind::BUNDLE {
                return self.message(now, from, &message, false, routes);
            }
            self.truth.bundles_received += 1;
            message.submessages().try_for_each(|sub| self.message(now, from, &sub?, true, routes))
        });
        self.truth.malformed += u64::from(done.is_err());
    }

    fn message(
        &mut self,
        now: Instant,
        (interface, source, ttl): (usize, Ipv4Addr, u8),
        message: &Message<'_>,
        bundled: bool,
        routes: Routes<'_>,
    ) -> Result<(), Malformed> {
        let (body, refusal) = Body::parse(message)?;
        // RFC 2961 section 4.3: RSVP_HOP names the node that made the message; the source of a Path is the sender of the LSP.
        let address = match &body {
            Body::Path(Path { hop, .. })
            | Body::PathTear(PathTear { hop, .. })
            | Body::Resv(Resv { hop, .. })
            | Body::ResvTear(ResvTear { hop, .. })
            | Body::ResvErr(ResvErr { hop, .. }) => hop.address,
            _ => source,
        };
        let instance = self.random.bits() as u32;
        let Some(neighbour) = self.neighbours.number(interface, address, instance) else {
            return Err(Malformed::new("rsvp", "the hop is not a neighbour"));
        };
        self.neighbours.heard(neighbour, message.flags, bundled);
        self.count(&body);
        let mut from = From { neighbour, id: None, ttl };
        if let Some(UnknownObject { code, value }) = refusal {
            self.refuse(from, &body, code, value);
            return Ok(());
        }
        for ids in message.ids() {
            match ids? {
                Ids::Own(id) => from.id = Some(id),
                Ids::Ack(ack) => self.acknowledged(now, &ack),
                Ids::List(list) if message.kind == kind::SREFRESH => {
                    list.ids().for_each(|id| self.summary(now, neighbour, list.epoch, id));
                }
                Ids::List(_) => {}
            }
        }
        if let Some(id) = from.id {
            self.neighbours.note_epoch(neighbour, id.epoch);
        }
        let out_of_order = self.truth.out_of_order;
        match &body {
            Body::Path(path) => self.path(now, from, path, message, routes),
            Body::PathTear(tear) => self.path_tear(from, tear),
            Body::PathErr(error) => self.path_err(now, from, error),
            Body::Resv(resv) => self.resv(now, from, resv),
            Body::ResvTear(tear) => self.resv_tear(from, tear),
            Body::ResvErr(error) => self.resv_err(now, from, error),
            Body::Hello(hello) => self.hello(neighbour, &hello.hello),
            Body::ResvConf(_) | Body::Ack | Body::Srefresh => {}
        }
        if let Some(id) = from.id.filter(|id| id.ack_desired() && self.truth.out_of_order == out_of_order) {
            self.neighbours.acknowledge(neighbour, MessageIdAck { known: true, flags: 0, epoch: id.epoch, id: id.id });
        }
        Ok(())
    }

    fn count(&mut self, body: &Body<'_>) {
        let truth = &mut self.truth;
        let count = match body {
            Body::Path(_) => &mut truth.path_received,
            Body::Resv(_) => &mut truth.resv_received,
            Body::PathErr(_) | Body::ResvErr(_) => &mut truth.errors_received,
            Body::PathTear(_) | Body::ResvTear(_) => &mut truth.tears_received,
            Body::Srefresh => &mut truth.summaries_received,
            Body::ResvConf(_) | Body::Hello(_) | Body::Ack => return,
        };
        *count += 1;
    }

    /// Refuses a Path or Resv with an error.
    fn refuse(&mut self, from: From, body: &Body<'_>, code: u8, value: u16) {
        match body {
            Body::Path(path) => self.refuse_path(from, path, code, value),
            Body::Resv(resv) => resv.flows.iter().for_each(|flow| self.refuse_flow(from, resv, flow, code, value)),
            _ => {}
        }
    }

    fn refuse_path(&mut self, from: From, path: &Path<'_>, code: u8, value: u16) {
        let node = self.own(from.neighbour);
        let error = ErrorSpec { node, flags: 0, code, value };
        let body = PathErr { session: path.session, error, sender: path.sender, tspec: Some(path.tspec) };
        self.truth.errors_sent += 1;
        self.neighbours.send(from.neighbour, To::Neighbour, neighbour::TTL, &Body::PathErr(body));
    }

    /// The device's address on the link to a neighbour.
    fn own(&self, neighbour: usize) -> Ipv4Addr {
        let link = self.neighbours.link(self.neighbours.list[neighbour].interface);
        link.map_or(Ipv4Addr::UNSPECIFIED, |link| link.address)
    }

    /// RSVP_HOP of messages to a neighbour that makes the paths or reservations; the handle is the number of the interface.
    fn hop(&self, neighbour: usize) -> Hop {
        Hop { address: self.own(neighbour), interface: self.neighbours.list[neighbour].interface as u32 + 1 }
    }

    /// Answers a Hello (RFC 3209 section 5.3). If the neighbour has restarted, its state is gone.
    fn hello(&mut self, number: usize, hello: &HelloObject) {
        let neighbour = &mut self.neighbours.list[number];
        let other = neighbour.instance != 0 && neighbour.instance != hello.source;
        let forgotten = hello.destination != 0 && hello.destination != neighbour.own_instance;
        neighbour.instance = hello.source;
        if other || forgotten {
            self.truth.restarts += 1;
            self.lose_neighbour(number);
        }
        if hello.request {
            let neighbour = &self.neighbours.list[number];
            let (source, destination) = (neighbour.own_instance, neighbour.instance);
            let answer = Body::Hello(Hello { hello: HelloObject { request: false, source, destination } });
            self.truth.hellos_sent += 1;
            // RFC 3209 section 5.1: Hellos go no further than the neighbour.
            self.neighbours.send(number, To::Neighbour, 1, &answer);
        }
    }

    fn lose_neighbour(&mut self, number: usize) {
        for slot in self.lsps.all() {
            if self.lsps.get(slot).heard[Half::Path as usize].neighbour == number {
                self.remove(slot, true);
            } else if self.lsps.get(slot).next_hop() == number {
                self.unreserve(slot, true);
                self.lsps.schedule(slot);
            }
        }
    }

    /// Stores the identifier of a message about an LSP; false if the message is older than another one (RFC 2961 section 4.3).
    fn note_id(&mut self, slot: u32, half: Half, from: From) -> bool {
        let heard = &mut self.lsps.get(slot).heard[half as usize];
        let neighbour = &mut self.neighbours.list[from.neighbour];
        if let (Some((epoch, old)), Some(new)) = (heard.id, from.id)
            && epoch == new.epoch
            && (new.id.wrapping_sub(old) as i32) < 0
        {
            self.truth.out_of_order += 1;
            return false;
        }
        let before = std::mem::replace(&mut heard.id, from.id.map(|id| (id.epoch, id.id)));
        if let Some((_, id)) = before {
            neighbour.ids.remove(&(id, half, slot));
        }
        if let Some((_, id)) = heard.id {
            neighbour.ids.insert((id, half, slot));
        }
        true
    }

    /// Forgets the identifier of the neighbour's message about a state.
    fn forget_id(&mut self, slot: u32, half: Half) {
        let heard = &mut self.lsps.get(slot).heard[half as usize];
        heard.expires = NEVER;
        let neighbour = heard.neighbour;
        if let Some((_, id)) = heard.id.take() {
            self.neighbours.list[neighbour].ids.remove(&(id, half, slot));
        }
    }

    /// A neighbour refreshes state by its identifier.
    fn summary(&mut self, now: Instant, neighbour: usize, epoch: u32, id: u32) {
        let known = &self.neighbours.list[neighbour].ids;
        let of_id = (id, Half::Path, 0)..=(id, Half::Resv, u32::MAX);
        let about: Vec<_> = if self.neighbours.has_epoch(neighbour, epoch) {
            known.range(of_id).map(|(_, half, slot)| (*half, *slot)).collect()
        } else {
            Vec::new()
        };
        if about.is_empty() {
            self.neighbours.acknowledge(neighbour, MessageIdAck { known: false, flags: 0, epoch, id });
        }
        for (half, slot) in about {
            // A fault may have forgotten the LSP.
            if self.lsps.exists(slot) {
                self.refreshed(slot, half, now);
            }
        }
    }

    /// Restarts the lifetime of a state.
    fn refreshed(&mut self, slot: u32, half: Half, now: Instant) {
        let heard = &mut self.lsps.get(slot).heard[half as usize];
        heard.expires = now + heard.lifetime;
        self.lsps.schedule(slot);
        if half == Half::Path {
            self.truth.path_refreshes += 1;
            self.refreshes += 1;
            if self.forget_at == self.refreshes {
                self.truth.forgotten += 1;
                self.remove(slot, false);
            }
        }
    }

    /// Removes a reservation and its label; tells the previous hop.
    fn unreserve(&mut self, slot: u32, tell: bool) {
        let label = self.lsps.get(slot).label;
        if self.lsps.get(slot).reservation.is_none() {
            return;
        }
        if tell {
            self.send_resv_tear(slot);
        }
        self.lsps.get(slot).reservation = None;
        self.lsps.reserved -= 1;
        self.label_changes.push(LabelChange { label, to: None });
        self.forget_id(slot, Half::Resv);
        self.stop(slot, Half::Resv);
    }

    /// Removes an LSP; tells the next hop.
    fn remove(&mut self, slot: u32, tell: bool) {
        self.unreserve(slot, false);
        if tell {
            self.send_path_tear(slot);
        }
        for half in HALVES {
            self.forget_id(slot, half);
            self.stop(slot, half);
        }
        self.lsps.remove(slot);
    }

    /// Does what is due.
    pub fn poll(&mut self, now: Instant) {
        while let Some((_, slot)) = self.lsps.next().filter(|(at, _)| *at <= now) {
            self.due(slot, now);
        }
        for number in 0..self.neighbours.list.len() {
            if self.neighbours.list[number].summary_at <= now {
                self.summarize(number, now);
            }
        }
        self.neighbours.flush();
    }

    fn due(&mut self, slot: u32, now: Instant) {
        let expired = |half: Half, lsps: &mut Lsps| lsps.get(slot).heard[half as usize].expires <= now;
        if expired(Half::Path, &mut self.lsps) {
            self.truth.path_timeouts += 1;
            return self.remove(slot, true);
        }
        if expired(Half::Resv, &mut self.lsps) {
            self.truth.resv_timeouts += 1;
            self.unreserve(slot, true);
        }
        for half in HALVES {
            if self.lsps.get(slot).sent[half as usize].next <= now {
                self.send(slot, half, now);
            }
        }
        self.lsps.schedule(slot);
    }

    /// Packets to send and labels to change.
    pub fn take_effects(&mut self) -> Effects {
        let (packets, labels) = (&mut self.neighbours.out, &mut self.label_changes);
        Effects { packets: std::mem::take(packets), labels: std::mem::take(labels) }
    }

    /// When [`Rsvp::poll`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        let summaries = self.neighbours.list.iter().map(|neighbour| neighbour.summary_at);
        let summary = summaries.min().filter(|at| *at != NEVER);
        let waiting = self.neighbours.waiting.then_some(Instant(0));
        earlier(waiting, earlier(summary, self.lsps.next().map(|(at, _)| at)))
    }

    pub fn truth(&self) -> RsvpTruth {
        let Neighbours { acks_sent, nacks_sent, bundles_sent, .. } = self.neighbours;
        RsvpTruth {
            lsps: self.lsps.len() as u64,
            reserved: self.lsps.reserved,
            acks_sent,
            nacks_sent,
            bundles_sent,
            ..self.truth
        }
    }
}
