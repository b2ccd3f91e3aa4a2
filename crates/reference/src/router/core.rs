//! OSPF, LDP and BFD of the router, and their routes in the forwarding table.

use super::Router;
use super::forward::Arrival;
use crate::config::ConfigError;
use crate::igp::{Change, CoreConfig, Igp, Sent, Way};
use crate::interfaces::Interface;
use crate::labels::Entry;
use crate::ldp::IMPLICIT_NULL;
use crate::table::Target;
use drophammer_emulation::compose::Link;
use drophammer_emulation::tcp::link;
use drophammer_model::Instant;
use drophammer_wire::MacAddr;
use std::net::{IpAddr, Ipv4Addr};

/// How packets to an address leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Output interface.
    pub interface: usize,
    /// Neighbour on its link.
    pub next_hop: IpAddr,
    /// Labels to push, the outermost first.
    pub labels: Vec<u32>,
}

impl Router {
    /// How packets of the device to an address leave, by the forwarding table; `None` if they cannot.
    pub fn route_to(&self, address: IpAddr) -> Option<Resolved> {
        let target = match address {
            IpAddr::V4(address) => self.fib.find4(address),
            IpAddr::V6(address) => self.fib.find6(address),
        };
        let (next_hop, label) = match target? {
            Target::Via(next_hop) => (next_hop, None),
            Target::Labelled { next_hop, label } => (next_hop as usize, Some(label)),
            Target::Connected(interface) => {
                return Some(Resolved { interface, next_hop: address, labels: Vec::new() });
            }
            Target::Local
            | Target::Broadcast
            | Target::Tunnel(_)
            | Target::Pe { .. }
            | Target::Blackhole
            | Target::Sink => return None,
        };
        let neighbour = self.neighbours.get(next_hop);
        let labels = label.into_iter().collect();
        Some(Resolved { interface: neighbour.interface, next_hop: neighbour.address, labels })
    }

    /// True if the device takes part in label switching.
    pub(super) fn switches_labels(&self) -> bool {
        !self.labels.is_empty() || self.igp.is_some()
    }

    /// Takes an IPv4 packet for the device or a group, if it belongs to OSPF, LDP or BFD.
    pub(super) fn take_core(&mut self, arrival: Arrival, packet: &[u8]) -> bool {
        let Arrival { now, interface, .. } = arrival;
        let Some(igp) = &mut self.igp else { return false };
        let taken = igp.receive(now, interface, packet);
        if taken {
            self.truth.igp = igp.truth();
            self.run_core(now);
            self.install_core(now);
        }
        taken
    }

    /// Takes a packet to a group of routers; false if the device has not joined it.
    pub(super) fn take_group(&mut self, arrival: Arrival, packet: &[u8]) -> bool {
        let destination = packet.get(16..20).and_then(|octets| <[u8; 4]>::try_from(octets).ok());
        let taken = destination.is_some_and(|octets| Igp::joins(octets.into())) && self.take_core(arrival, packet);
        self.truth.control += u64::from(taken);
        taken
    }

    /// Runs the protocols until `now`, and sends their packets.
    pub(super) fn run_core(&mut self, now: Instant) {
        let Some(mut igp) = self.igp.take_if(|igp| igp.next_deadline().is_some_and(|at| at <= now)) else { return };
        let mut sent = Vec::new();
        igp.poll(now, &mut |packet| sent.push(packet));
        self.truth.igp = igp.truth();
        self.igp = Some(igp);
        for packet in sent {
            match packet {
                Sent::OnLink(interface, destination, packet) if destination.is_multicast() => {
                    let [_, b, c, d] = destination.octets();
                    let group = MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d]);
                    let source = self.interfaces[interface].mac;
                    self.send(now, interface, |frame| {
                        frame.resize(link::frame_len(&packet), 0);
                        link::write_frame(frame, Link { source, destination: group }, &packet);
                    });
                }
                Sent::OnLink(interface, _, packet) => self.send_packet(now, interface, &packet),
                Sent::Routed(packet) => self.send_routed(now, &packet),
            }
        }
    }

    /// Sends one of the device's own IPv4 packets by the forwarding table, without labels.
    fn send_routed(&mut self, now: Instant, packet: &[u8]) {
        let Some(octets) = packet.get(16..20).and_then(|octets| <[u8; 4]>::try_from(octets).ok()) else { return };
        let Some(resolved) = self.route_to(Ipv4Addr::from(octets).into()) else { return };
        self.send_packet_to(now, resolved.interface, resolved.next_hop, packet);
    }

    /// Makes the changes to the forwarding table and the label entries that are due until `now`; false if there were none.
    pub(super) fn install_core(&mut self, now: Instant) -> bool {
        let Router { igp: Some(igp), fib, labels, neighbours, truth, .. } = self else { return false };
        let mut changed = false;
        while let Some(Change { net: (address, length), way, own }) = igp.take_fib(now) {
            let way =
                way.and_then(|Way { hop, label }| Some((neighbours.intern(hop.interface, hop.address.into())?, label)));
            let target = way.map(|(next_hop, label)| match label {
                Some(label) if label != IMPLICIT_NULL => Target::Labelled { next_hop: next_hop as u32, label },
                _ => Target::Via(next_hop),
            });
            fib.set_ospf((address.into(), length), target);
            if let Some(own) = own.filter(|own| *own != IMPLICIT_NULL) {
                let entry = way.and_then(|(next_hop, label)| Some(Entry::swap(label?, next_hop)));
                let fits = labels.find(own).is_some() || igp.has_room(labels.len());
                labels.set(own, entry.filter(|_| fits));
            }
            changed = true;
        }
        if changed {
            truth.igp = igp.truth();
            truth.fib = *fib.truth();
        }
        changed
    }
}

/// Checks the core links of a configuration.
pub(super) fn check(core: &CoreConfig, interfaces: &[Interface]) -> Result<(), ConfigError> {
    for (i, link) in core.role.links.iter().enumerate() {
        let interface = interfaces.get(link.port).ok_or(ConfigError::NoSuchPort(link.port))?;
        let twice = core.role.links[..i].iter().any(|other| other.port == link.port);
        if interface.ipv4 != Some((link.local, link.prefix_len)) || twice || link.prefix_len > 32 {
            return Err(ConfigError::CoreLink(link.port));
        }
    }
    Ok(())
}
