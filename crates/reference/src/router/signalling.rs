//! RSVP-TE of the router: its packets, and the labels of LSPs.

use super::Router;
use super::forward::Arrival;
use crate::labels::Entry;
use crate::rsvp::{LabelChange, Posted, Rsvp, Way};
use crate::table::Target;
use drophammer_model::Instant;
use std::net::Ipv4Addr;

impl Router {
    /// Takes an IPv4 packet with the protocol number of RSVP, if it is for this device or for every router on the way. False for a packet
    /// to be treated as any other.
    #[cold]
    pub(super) fn takes_rsvp(&mut self, arrival: Arrival, target: Option<Target>, packet: &[u8]) -> bool {
        let taken = target == Some(Target::Local) || Rsvp::is_for_routers(packet);
        if !taken || self.rsvp.is_none() {
            return false;
        }
        self.truth.control += 1;
        self.with_rsvp(arrival.now, |rsvp, routes| rsvp.receive(arrival.now, arrival.interface, packet, routes));
        true
    }

    /// Does what is due in RSVP.
    pub(super) fn signal(&mut self, now: Instant) {
        if self.rsvp.as_ref().and_then(|rsvp| rsvp.next_deadline()).is_some_and(|at| at <= now) {
            self.with_rsvp(now, |rsvp, _| rsvp.poll(now));
        }
    }

    fn with_rsvp(&mut self, now: Instant, act: impl FnOnce(&mut Rsvp, &dyn Fn(Ipv4Addr) -> Way)) {
        let Router { rsvp, fib, neighbours, truth, .. } = self;
        let Some(rsvp) = rsvp else { return };
        act(rsvp, &|address| match fib.find4(address) {
            Some(Target::Local) => Way::Own,
            Some(Target::Connected(interface)) => Way::Via(interface, address),
            Some(Target::Via(next_hop)) => {
                let neighbour = neighbours.get(next_hop);
                match neighbour.address {
                    std::net::IpAddr::V4(next_hop) => Way::Via(neighbour.interface, next_hop),
                    std::net::IpAddr::V6(_) => Way::None,
                }
            }
            _ => Way::None,
        });
        truth.rsvp = rsvp.truth();
        let effects = rsvp.take_effects();
        for LabelChange { label, to } in effects.labels {
            let to = to.and_then(|(out, interface, next_hop)| {
                Some((out, self.neighbours.intern(interface, next_hop.into())?))
            });
            self.labels.set(label, to.map(|(out, next_hop)| Entry::swap(out, next_hop)));
        }
        for Posted { interface, next_hop, packet } in effects.packets {
            self.send_packet_to(now, interface, next_hop.into(), &packet);
        }
    }
}
