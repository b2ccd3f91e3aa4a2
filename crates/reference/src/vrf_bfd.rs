//! BFD of the device with the neighbours of its VRFs ([`crate::Vrf::bfd`]), one session for each sub-interface.

use crate::bfd::Session;
use crate::config::Vrf;
use crate::igp::datagram;
use crate::interfaces::Interface;
use crate::truth::BfdTruth;
use drophammer_model::Instant;
use drophammer_wire::bfd::{Control, HOP_LIMIT, PORT, SOURCE_PORTS};
use drophammer_wire::{ipv4, udp};
use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;

/// Discriminator of the first session. Those of core links are lower.
const FIRST_DISCRIMINATOR: u32 = 0x0001_0000;

/// The session on a sub-interface.
struct Link {
    interface: usize,
    local: Ipv4Addr,
    neighbour: Ipv4Addr,
    session: Session,
    /// Its place in the order of deadlines.
    due: Option<Instant>,
}

/// The sessions of all VRFs.
#[derive(Default)]
pub struct VrfBfd {
    links: Vec<Link>,
    by_interface: HashMap<usize, usize>,
    /// Deadlines with the session that each belongs to.
    order: BTreeSet<(Instant, usize)>,
    /// Every n-th packet of a session is suppressed; 0 for none.
    missing: u64,
    truth: BfdTruth,
}

impl VrfBfd {
    /// The sessions of `vrfs`. They wait for their neighbours.
    pub fn new(vrfs: &[Vrf], interfaces: &[Interface], seed: u64) -> VrfBfd {
        let mut all = VrfBfd::default();
        for (interface, neighbour) in vrfs.iter().flat_map(|vrf| vrf.bfd.iter().copied()) {
            let Some((local, _)) = interfaces.get(interface).and_then(|interface| interface.ipv4) else { continue };
            let number = all.links.len();
            let session = Session::new(FIRST_DISCRIMINATOR + number as u32, seed);
            all.by_interface.insert(interface, number);
            all.links.push(Link { interface, local, neighbour, session, due: None });
        }
        all
    }

    /// Suppresses every `missing`-th packet of each session from now on; 0 for none.
    pub fn suppress(&mut self, missing: u64) {
        self.missing = missing;
    }

    /// Takes an IPv4 packet from an interface; `None` if it belongs to no session. Returns true if the session has gone down.
    pub fn receive(&mut self, now: Instant, interface: usize, packet: &[u8]) -> Option<bool> {
        let number = *self.by_interface.get(&interface)?;
        let (ip, payload) = ipv4::Repr::parse(packet).ok()?;
        let (ports, datagram) = udp::Repr::parse_ipv4(payload, ip.pseudo_header_sum()).ok()?;
        let link = &mut self.links[number];
        let ends = (ip.source, ip.destination) == (link.neighbour, link.local);
        if ports.destination != PORT || ip.ttl != HOP_LIMIT || !ends {
            return None;
        }
        let was_up = link.session.is_up();
        let went_down = Control::parse(datagram).is_ok_and(|control| link.session.receive(now, &control));
        self.settle(number, was_up);
        Some(went_down)
    }

    /// Does everything that is due until `now`. Passes each packet with its interface to `out`, and the interface of each session that
    /// has gone down to `lost`.
    pub fn poll(&mut self, now: Instant, out: &mut dyn FnMut(usize, Vec<u8>), lost: &mut dyn FnMut(usize)) {
        while let Some((_, number)) = self.order.first().copied().filter(|(at, _)| *at <= now) {
            let link = &mut self.links[number];
            let (was_up, before) = (link.session.is_up(), link.session.suppressed);
            if link.session.expire(now) {
                lost(link.interface);
            }
            if let Some(control) = link.session.transmit(now, self.missing) {
                let ends = ((link.local, *SOURCE_PORTS.start()), (link.neighbour, PORT));
                out(link.interface, datagram(ends, HOP_LIMIT, &control));
            }
            self.truth.missing += link.session.suppressed - before;
            self.settle(number, was_up);
        }
    }

    /// Follows a change of a session: its deadline, and whether it is up.
    fn settle(&mut self, number: usize, was_up: bool) {
        let link = &mut self.links[number];
        let due = link.session.next_deadline();
        if due != link.due {
            if let Some(before) = std::mem::replace(&mut link.due, due) {
                self.order.remove(&(before, number));
            }
            self.order.extend(due.map(|at| (at, number)));
        }
        match (was_up, link.session.is_up()) {
            (false, true) => self.truth.up += 1,
            (true, false) => (self.truth.up, self.truth.downs) = (self.truth.up - 1, self.truth.downs + 1),
            _ => {}
        }
    }

    /// The next time when [`VrfBfd::poll`] has something to do.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    pub fn truth(&self) -> BfdTruth {
        self.truth
    }
}
