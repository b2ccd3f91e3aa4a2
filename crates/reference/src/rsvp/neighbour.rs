//! The neighbours of the device, and the packets to them.

use super::lsp::{Half, NEVER};
use drophammer_model::Instant;
use drophammer_wire::ipv4;
use drophammer_wire::rsvp::{Body, MessageIdAck, Object, Writer, flag, kind};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// Maximum number of neighbours; messages of more are ignored.
const MOST: usize = 256;
/// Largest message of several parts: a packet of 1500 bytes, without its IP header.
const MOST_BYTES: usize = 1500 - ipv4::LEN_ROUTER_ALERT;
/// Acknowledgements in a message: 12 bytes each.
const MOST_ACKS: usize = 120;
/// Identifiers in a Srefresh.
pub(super) const MOST_IDS: usize = 350;

/// An interface with RSVP.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnLink {
    pub address: Ipv4Addr,
    pub prefix_len: u8,
    pub mtu: u32,
}

impl OwnLink {
    /// True if a neighbour on the link can have this address.
    pub fn has(&self, address: Ipv4Addr) -> bool {
        let differs = address.to_bits() ^ self.address.to_bits();
        differs != 0 && differs.checked_shr(32 - u32::from(self.prefix_len)).unwrap_or(0) == 0
    }
}

/// A neighbour.
pub(super) struct Neighbour {
    pub interface: usize,
    pub address: Ipv4Addr,
    /// It supports refresh reduction.
    pub capable: bool,
    /// It sends Bundles.
    bundling: bool,
    /// Epoch of its identifiers.
    epoch: Option<u32>,
    /// Its identifiers, each with the state that the message is about.
    pub ids: BTreeSet<(u32, Half, u32)>,
    /// Its Hello instance; 0 if unknown.
    pub instance: u32,
    /// The device's Hello instance for it.
    pub own_instance: u32,
    /// The device's identifiers that it has acknowledged.
    pub summary: BTreeSet<u32>,
    /// When they are refreshed.
    pub summary_at: Instant,
    acks: Vec<MessageIdAck>,
    bundle: Vec<u8>,
}

/// A packet to a neighbour.
pub(crate) struct Posted {
    pub interface: usize,
    pub next_hop: Ipv4Addr,
    pub packet: Vec<u8>,
}

/// How a message is addressed.
#[derive(Clone, Copy)]
pub(super) enum To {
    Neighbour,
    /// With Router Alert, from this address to that one.
    End(Ipv4Addr, Ipv4Addr),
}

/// All neighbours.
pub(super) struct Neighbours {
    pub list: Vec<Neighbour>,
    /// By number of the interface.
    pub links: Vec<Option<OwnLink>>,
    reduction: bool,
    identification: u16,
    /// Packets to send.
    pub out: Vec<Posted>,
    /// Acknowledgements or parts of a Bundle wait.
    pub waiting: bool,
    pub acks_sent: u64,
    pub nacks_sent: u64,
    pub bundles_sent: u64,
}

impl Neighbours {
    pub fn new(links: Vec<Option<OwnLink>>, reduction: bool) -> Neighbours {
        Neighbours {
            list: Vec::new(),
            links,
            reduction,
            identification: 0,
            out: Vec::new(),
            waiting: false,
            acks_sent: 0,
            nacks_sent: 0,
            bundles_sent: 0,
        }
    }

    /// The device's link at an interface, if it has RSVP.
    pub fn link(&self, interface: usize) -> Option<OwnLink> {
        self.links.get(interface).copied().flatten()
    }

    /// True if the device has this address.
    pub fn is_own(&self, address: Ipv4Addr) -> bool {
        self.links.iter().flatten().any(|link| link.address == address)
    }

    /// The number of a neighbour, which may be new; `None` if it cannot be on the link, or there are too many. A new one gets this
    /// Hello instance.
    pub fn number(&mut self, interface: usize, address: Ipv4Addr, instance: u32) -> Option<usize> {
        let known = self.list.iter().position(|n| n.interface == interface && n.address == address);
        if known.is_some() || self.list.len() >= MOST || !self.link(interface)?.has(address) {
            return known;
        }
        self.list.push(Neighbour {
            interface,
            address,
            capable: false,
            bundling: false,
            epoch: None,
            ids: BTreeSet::new(),
            instance: 0,
            own_instance: instance.max(1),
            summary: BTreeSet::new(),
            summary_at: NEVER,
            acks: Vec::new(),
            bundle: Vec::new(),
        });
        Some(self.list.len() - 1)
    }

    /// Notes what a message says about its sender.
    pub fn heard(&mut self, number: usize, flags: u8, bundled: bool) {
        let neighbour = &mut self.list[number];
        neighbour.capable = flags & flag::REFRESH_REDUCTION_CAPABLE != 0;
        neighbour.bundling |= bundled;
    }

    /// Notes an epoch. If it has changed, the neighbour has restarted, and its identifiers are gone.
    pub fn note_epoch(&mut self, number: usize, epoch: u32) {
        if self.list[number].epoch.replace(epoch) != Some(epoch) {
            self.list[number].ids.clear();
        }
    }

    /// True if this is the epoch of the neighbour.
    pub fn has_epoch(&self, number: usize, epoch: u32) -> bool {
        self.list[number].epoch == Some(epoch)
    }

    /// True if the neighbour and the device support refresh reduction.
    pub fn reduces(&self, number: usize) -> bool {
        self.reduction && self.list[number].capable
    }

    fn flags(&self) -> u8 {
        if self.reduction { flag::REFRESH_REDUCTION_CAPABLE } else { 0 }
    }

    /// Sends a message.
    pub fn send(&mut self, number: usize, to: To, ttl: u8, body: &Body<'_>) {
        let mut message = Vec::new();
        body.emit(self.flags(), ttl, &[], &mut message);
        self.post(number, to, ttl, body.kind(), message);
    }

    /// Sends a message of this type with these objects.
    pub fn send_objects(&mut self, number: usize, to: To, ttl: u8, kind: u8, id: Option<Object<'_>>, objects: &[u8]) {
        let mut message = Vec::with_capacity(objects.len() + 32);
        let mut writer = Writer::new(&mut message, kind, self.flags(), ttl);
        id.iter().for_each(|id| writer.object(id));
        writer.bytes(objects);
        writer.finish();
        self.post(number, to, ttl, kind, message);
    }

    /// Sends a whole message, or adds it to the Bundle of a neighbour that sends Bundles itself.
    fn post(&mut self, number: usize, to: To, ttl: u8, kind: u8, message: Vec<u8>) {
        let neighbour = &mut self.list[number];
        let bundled = self.reduction && neighbour.capable && neighbour.bundling;
        if !bundled || [kind::HELLO, kind::BUNDLE, kind::ACK].contains(&kind) {
            return self.packet(number, to, ttl, &message);
        }
        if neighbour.bundle.len() + message.len() > MOST_BYTES - 8 {
            self.flush_bundle(number);
        }
        self.list[number].bundle.extend(message);
        self.waiting = true;
    }

    fn packet(&mut self, number: usize, to: To, ttl: u8, message: &[u8]) {
        let Neighbour { interface, address, .. } = self.list[number];
        let Some(own) = self.link(interface) else { return };
        let (source, destination, header) = match to {
            To::Neighbour => (own.address, address, ipv4::LEN),
            To::End(source, destination) => (source, destination, ipv4::LEN_ROUTER_ALERT),
        };
        self.identification = self.identification.wrapping_add(1);
        let mut packet = vec![0; header];
        packet.extend_from_slice(message);
        let repr = ipv4::Repr {
            // Internetwork control.
            tos: 0xc0,
            identification: self.identification,
            dont_fragment: false,
            ttl,
            protocol: ipv4::protocol::RSVP,
            source,
            destination,
            payload_len: message.len(),
        };
        match to {
            To::Neighbour => repr.emit(&mut packet),
            To::End(..) => repr.emit_with_router_alert(&mut packet),
        }
        self.out.push(Posted { interface, next_hop: address, packet });
    }

    /// Acknowledges a message, or reports that its identifier is unknown, soon.
    pub fn acknowledge(&mut self, number: usize, ack: MessageIdAck) {
        if !self.reduction {
            return;
        }
        *(if ack.known { &mut self.acks_sent } else { &mut self.nacks_sent }) += 1;
        self.list[number].acks.push(ack);
        self.waiting = true;
    }

    fn flush_bundle(&mut self, number: usize) {
        let bundle = std::mem::take(&mut self.list[number].bundle);
        if !bundle.is_empty() {
            self.bundles_sent += 1;
            self.send_objects(number, To::Neighbour, TTL, kind::BUNDLE, None, &bundle);
        }
    }

    /// Sends what waits.
    pub fn flush(&mut self) {
        if !std::mem::take(&mut self.waiting) {
            return;
        }
        for number in 0..self.list.len() {
            self.flush_bundle(number);
            let acks = std::mem::take(&mut self.list[number].acks);
            for part in acks.chunks(MOST_ACKS) {
                let mut objects = Vec::new();
                part.iter().for_each(|ack| Object::MessageIdAck(*ack).emit(&mut objects));
                self.send_objects(number, To::Neighbour, TTL, kind::ACK, None, &objects);
            }
        }
    }
}

/// TTL of messages to a neighbour.
pub(super) const TTL: u8 = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_on_the_link() {
        let link = OwnLink { address: [198, 18, 0, 1].into(), prefix_len: 30, mtu: 1500 };
        let mut neighbours = Neighbours::new(vec![None, Some(link)], true);
        let mut number = |interface, last| neighbours.number(interface, [198, 18, 0, last].into(), 0);
        assert_eq!([number(1, 2), number(1, 2), number(1, 3)], [Some(0), Some(0), Some(1)]);
        assert_eq!([number(1, 1), number(1, 5), number(0, 2), number(9, 2)], [None; 4]);
    }
}
