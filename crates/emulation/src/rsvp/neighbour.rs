//! The neighbours of a device, and what waits to be sent to them.

use super::config::RsvpConfig;
use super::lsp::NEVER;
use crate::protocol::Output;
use drophammer_model::Instant;
use drophammer_wire::ipv4;
use drophammer_wire::rsvp::{Body, Hello, HelloObject, MessageIdAck, Object, Writer, flag, kind};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Maximum number of neighbours.
pub const MOST_NEIGHBOURS: usize = 16;
/// Largest message: a packet of 1500 bytes, without its IP header.
pub(super) const MOST_BYTES: usize = 1500 - ipv4::LEN_ROUTER_ALERT;
/// Acknowledgements in one message: each has 12 bytes.
const MOST_ACKS: usize = 120;
/// TTL of all messages but Hello.
pub(super) const TTL: u8 = 255;
/// TTL of Hello (RFC 3209 section 5.1).
const HELLO_TTL: u8 = 1;
/// Number of consecutive Hello requests with a wrong instance of this device that do not yet mean a lost neighbour.
const MOST_WRONG: u8 = 3;

/// A neighbour.
pub(super) struct Neighbour {
    pub address: Ipv4Addr,
    /// It supports refresh reduction.
    pub capable: bool,
    /// Epoch of its identifiers.
    pub epoch: Option<u32>,
    /// Identifiers of its messages with this epoch, each with the LSPs that the message is about.
    pub ids: BTreeSet<(u32, u32)>,
    /// Changes when it restarts or is lost.
    pub life: u8,
    /// Its Hello instance; 0 if unknown.
    pub instance: u32,
    /// The device's Hello instance for it.
    own_instance: u32,
    /// When it last sent a Hello.
    heard: Option<Instant>,
    /// When it last sent a Hello request.
    requested: Option<Instant>,
    /// Consecutive Hello requests with a wrong instance of this device.
    wrong: u8,
    /// Acknowledgements that wait.
    acks: Vec<MessageIdAck>,
    /// Messages that wait for a Bundle.
    bundle: Vec<u8>,
}

impl Neighbour {
    /// True if it sent no Hello and no identifiers that are in use, and nothing waits to be sent to it.
    fn is_unused(&self) -> bool {
        self.instance == 0 && self.ids.is_empty() && self.acks.is_empty() && self.bundle.is_empty()
    }
}

/// The neighbours, and how to reach them. The gateway is number 0.
pub(super) struct Neighbours {
    pub list: Vec<Neighbour>,
    /// Address of the device.
    pub own: Ipv4Addr,
    /// Flags of every message.
    flags: u8,
    bundles: bool,
    /// True if acknowledgements or messages wait.
    waiting: bool,
    /// The device's Hello instance for new neighbours.
    instance: u32,
    /// Sent and received messages by type.
    pub sent: [u64; 32],
    pub received: [u64; 32],
    /// Bytes of sent and received packets, without IP header.
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// Messages that could not be sent, because the next hop was not resolved.
    pub unresolved: u64,
    pub refused: u64,
    packet: Vec<u8>,
    identification: u16,
}

/// How a message is addressed.
#[derive(Clone, Copy)]
pub(super) enum To {
    /// To the neighbour, from the device.
    Neighbour,
    /// With Router Alert, from this address to that one.
    End(Ipv4Addr, Ipv4Addr),
}

impl Neighbours {
    pub fn new(config: &RsvpConfig, own: Ipv4Addr, gateway: Ipv4Addr) -> Neighbours {
        let mut neighbours = Neighbours {
            list: Vec::new(),
            own,
            flags: if config.refresh_reduction.is_some() { flag::REFRESH_REDUCTION_CAPABLE } else { 0 },
            bundles: config.refresh_reduction.as_ref().is_some_and(|reduction| reduction.bundle),
            waiting: false,
            instance: 0,
            sent: [0; 32],
            received: [0; 32],
            bytes_sent: 0,
            bytes_received: 0,
            unresolved: 0,
            refused: 0,
            packet: Vec::new(),
            identification: 0,
        };
        neighbours.number(gateway, |_| true);
        neighbours
    }

    /// Starts the device, with this Hello instance or another new one; it knows nothing about its neighbours.
    pub fn begin_life(&mut self, instance: u32) {
        let used = |instance| instance == 0 || self.list.iter().any(|n| n.own_instance == instance);
        let mut instance = instance;
        while used(instance) {
            instance = instance.wrapping_add(1);
        }
        self.instance = instance;
        for neighbour in &mut self.list {
            (neighbour.own_instance, neighbour.instance, neighbour.heard) = (instance, 0, None);
            (neighbour.capable, neighbour.epoch, neighbour.requested, neighbour.wrong) = (false, None, None, 0);
        }
    }

    /// True if a neighbour has this address.
    pub fn knows(&self, address: Ipv4Addr) -> bool {
        self.list.iter().any(|neighbour| neighbour.address == address)
    }

    /// The number of the neighbour with this address, which may be new; `None` if there are too many. If all places are taken, a new one gets
    /// the place of a neighbour that has no LSPs, according to `has_lsps`, and sent no Hello.
    pub fn number(&mut self, address: Ipv4Addr, has_lsps: impl Fn(usize) -> bool) -> Option<usize> {
        if let Some(known) = self.list.iter().position(|neighbour| neighbour.address == address) {
            return Some(known);
        }
        let mut new = Neighbour {
            address,
            capable: false,
            epoch: None,
            ids: BTreeSet::new(),
            life: 0,
            instance: 0,
            own_instance: self.instance,
            heard: None,
            requested: None,
            wrong: 0,
            acks: Vec::new(),
            bundle: Vec::new(),
        };
        if self.list.len() < MOST_NEIGHBOURS {
            self.list.push(new);
            return Some(self.list.len() - 1);
        }
        // The gateway keeps its place.
        let unused = (1..self.list.len()).find(|at| self.list[*at].is_unused() && !has_lsps(*at));
        match unused {
            Some(at) => {
                new.life = self.list[at].life.wrapping_add(1);
                self.list[at] = new;
            }
            None => self.refused += 1,
        }
        unused
    }

    /// True if the neighbour and the device support refresh reduction.
    pub fn reduces(&self, neighbour: usize) -> bool {
        self.flags & flag::REFRESH_REDUCTION_CAPABLE != 0 && self.list[neighbour].capable
    }

    /// Sends a message, or adds it to the Bundle of the neighbour; returns its length. `None` if the next hop is not resolved.
    pub fn send(
        &mut self,
        neighbour: usize,
        to: To,
        body: &Body<'_>,
        ids: &[Object<'_>],
        out: &mut Output<'_>,
    ) -> Option<usize> {
        if self.bundles && self.list[neighbour].capable && body.kind() != kind::HELLO {
            let start = self.list[neighbour].bundle.len();
            body.emit(self.flags, TTL, ids, &mut self.list[neighbour].bundle);
            let length = self.list[neighbour].bundle.len() - start;
            if self.list[neighbour].bundle.len() > MOST_BYTES - 8 && start > 0 {
                let last = self.list[neighbour].bundle.split_off(start);
                self.flush_bundle(neighbour, out);
                self.list[neighbour].bundle = last;
            }
            self.waiting = true;
            self.sent[usize::from(body.kind())] += 1;
            return Some(length);
        }
        let ttl = if body.kind() == kind::HELLO { HELLO_TTL } else { TTL };
        let mut packet = self.begin(to);
        let header = packet.len();
        body.emit(self.flags, ttl, ids, &mut packet);
        let length = packet.len() - header;
        let done = self.finish(neighbour, to, ttl, packet, out);
        self.sent[usize::from(body.kind())] += u64::from(done);
        done.then_some(length)
    }

    /// A packet with room for its IP header.
    fn begin(&mut self, to: To) -> Vec<u8> {
        let mut packet = std::mem::take(&mut self.packet);
        packet.clear();
        packet.resize(if matches!(to, To::Neighbour) { ipv4::LEN } else { ipv4::LEN_ROUTER_ALERT }, 0);
        packet
    }

    /// Writes the IP header and sends the packet.
    fn finish(&mut self, neighbour: usize, to: To, ttl: u8, mut packet: Vec<u8>, out: &mut Output<'_>) -> bool {
        self.identification = self.identification.wrapping_add(1);
        let (source, destination) = match to {
            To::Neighbour => (self.own, self.list[neighbour].address),
            To::End(source, destination) => (source, destination),
        };
        let mut header = ipv4::Repr {
            // Internetwork control.
            tos: 0xc0,
            identification: self.identification,
            dont_fragment: false,
            ttl,
            protocol: ipv4::protocol::RSVP,
            source,
            destination,
            payload_len: packet.len() - ipv4::LEN,
        };
        match to {
            To::Neighbour => header.emit(&mut packet),
            To::End(..) => {
                header.payload_len = packet.len() - ipv4::LEN_ROUTER_ALERT;
                header.emit_with_router_alert(&mut packet);
            }
        }
        let done = out.packet(&packet);
        self.bytes_sent += if done { header.payload_len as u64 } else { 0 };
        self.unresolved += u64::from(!done);
        self.packet = packet;
        done
    }

    /// Sends the neighbour a message that consists of the objects or messages that `write` appends.
    pub fn send_bare(&mut self, neighbour: usize, kind: u8, out: &mut Output<'_>, write: impl FnOnce(&mut Writer<'_>)) {
        let mut packet = self.begin(To::Neighbour);
        let mut writer = Writer::new(&mut packet, kind, self.flags, TTL);
        write(&mut writer);
        writer.finish();
        let done = self.finish(neighbour, To::Neighbour, TTL, packet, out);
        self.sent[usize::from(kind)] += u64::from(done);
    }

    /// Acknowledges a message soon.
    pub fn acknowledge(&mut self, neighbour: usize, ack: MessageIdAck, out: &mut Output<'_>) {
        self.list[neighbour].acks.push(ack);
        self.waiting = true;
        if self.list[neighbour].acks.len() >= MOST_ACKS {
            self.flush_acks(neighbour, out);
        }
    }

    fn flush_acks(&mut self, neighbour: usize, out: &mut Output<'_>) {
        let mut acks = std::mem::take(&mut self.list[neighbour].acks);
        if !acks.is_empty() {
            self.send_bare(neighbour, kind::ACK, out, |writer| {
                acks.drain(..).for_each(|ack| writer.object(&Object::MessageIdAck(ack)));
            });
        }
        self.list[neighbour].acks = acks;
    }

    fn flush_bundle(&mut self, neighbour: usize, out: &mut Output<'_>) {
        let mut messages = std::mem::take(&mut self.list[neighbour].bundle);
        if !messages.is_empty() {
            self.send_bare(neighbour, kind::BUNDLE, out, |writer| writer.bytes(&messages));
        }
        messages.clear();
        self.list[neighbour].bundle = messages;
    }

    /// Sends what waits.
    pub fn flush(&mut self, out: &mut Output<'_>) {
        if std::mem::take(&mut self.waiting) {
            for neighbour in 0..self.list.len() {
                self.flush_bundle(neighbour, out);
                self.flush_acks(neighbour, out);
            }
        }
    }

    /// Sends a Hello.
    pub fn hello(&mut self, neighbour: usize, request: bool, out: &mut Output<'_>) {
        let Neighbour { own_instance, instance, .. } = self.list[neighbour];
        let hello = HelloObject { request, source: own_instance, destination: instance };
        self.send(neighbour, To::Neighbour, &Body::Hello(Hello { hello }), &[], out);
    }

    /// Handles a Hello (RFC 3209 section 5.3): true if the neighbour has restarted, or does not know this device any more.
    pub fn hello_received(&mut self, now: Instant, number: usize, hello: &HelloObject) -> bool {
        let neighbour = &mut self.list[number];
        let wrong = hello.destination != neighbour.own_instance;
        if neighbour.instance == 0 && (hello.source == 0 || wrong && !hello.request) {
            // Nothing can be lost yet. An answer to an earlier life of this device does not tell anything about the
            // neighbour.
            return false;
        }
        neighbour.heard = Some(now);
        if hello.request {
            neighbour.requested = Some(now);
            // The neighbour may have learned the right instance since it sent this request.
            let counts = wrong && hello.destination != 0;
            neighbour.wrong = if counts { neighbour.wrong.saturating_add(1) } else { 0 };
        }
        let restarted = neighbour.instance != 0 && hello.source != neighbour.instance;
        neighbour.instance = hello.source;
        let lost = restarted || neighbour.wrong > MOST_WRONG || wrong && !hello.request;
        if lost {
            self.reset(number, hello.source);
        }
        lost
    }

    /// Starts again with a neighbour whose instance is `instance`, 0 if unknown.
    fn reset(&mut self, number: usize, instance: u32) {
        let neighbour = &mut self.list[number];
        neighbour.instance = instance;
        neighbour.wrong = 0;
        neighbour.epoch = None;
        neighbour.life = neighbour.life.wrapping_add(1);
        if instance == 0 {
            // A device that was cut off comes back with another instance.
            neighbour.own_instance = neighbour.own_instance.wrapping_add(1).max(1);
            (neighbour.heard, neighbour.requested) = (None, None);
        }
    }

    /// When a neighbour that has sent Hellos is lost: after 3.5 intervals of silence (RFC 3209 section 5.3).
    pub fn lost_at(&self, number: usize, interval: Duration) -> Instant {
        self.list[number].heard.map_or(NEVER, |heard| heard + interval * 7 / 2)
    }

    /// Handles the loss of a neighbour.
    pub fn lose(&mut self, number: usize) {
        self.reset(number, 0);
    }

    /// True if the neighbour has sent a request in the last interval; then the device sends none (RFC 3209 section 5.3).
    pub fn requests(&self, number: usize, now: Instant, interval: Duration) -> bool {
        self.list[number].requested.is_some_and(|at| now.since(at) < interval)
    }

    /// When [`Neighbours::flush`] has work.
    pub fn soon(&self) -> Instant {
        if self.waiting { Instant(0) } else { NEVER }
    }
}
