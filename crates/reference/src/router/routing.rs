//! Routes of the router: BGP packets, the forwarding table, links that go down and come up.

use super::Router;
use super::forward::{Arrival, PIPE, push_tags};
use crate::config::{ConfigError, Route};
use crate::faults::is_nth;
use crate::greeter;
use crate::labels::{self, LabelRoute};
use crate::rib::{FibChange, Hop};
use crate::speaker::Speaker;
use crate::table::Target;
use drophammer_emulation::compose::Link;
use drophammer_emulation::tcp::link;
use drophammer_model::Instant;
use drophammer_model::role::PushedRoute;
use drophammer_wire::ethernet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The protocol number of TCP.
pub(super) const TCP: u8 = 6;

impl Router {
    /// Adds or replaces a route.
    ///
    /// # Errors
    /// [`ConfigError`] if the port, prefix length or families of the route are wrong.
    pub fn add_route(&mut self, route: Route) -> Result<(), ConfigError> {
        if route.prefix.is_ipv4() != route.next_hop.is_ipv4() {
            return Err(ConfigError::Family(route));
        }
        let next_hop = self.next_hop(route.port, route.next_hop)?;
        self.fib.add_static(route.prefix, route.prefix_len, next_hop)?;
        self.resolve_pes(self.now);
        Ok(())
    }

    /// The number of a neighbour on an interface.
    pub(super) fn next_hop(&mut self, interface: usize, address: IpAddr) -> Result<usize, ConfigError> {
        if self.interfaces.get(interface).is_none_or(|interface| interface.vrf.is_some()) {
            return Err(ConfigError::NoSuchPort(interface));
        }
        self.neighbours.intern(interface, address).ok_or(ConfigError::Limit("neighbours"))
    }

    /// Adds the routes of a configuration.
    pub(super) fn add_configured(
        &mut self,
        routes: Vec<Route>,
        labels: &[LabelRoute],
        pushed: &[PushedRoute],
    ) -> Result<(), ConfigError> {
        routes.into_iter().try_for_each(|route| self.add_route(route))?;
        for route in labels {
            let next_hop = self.next_hop(route.port, route.next_hop)?;
            self.labels.add(route, next_hop)?;
        }
        for route in pushed {
            let next_hop = self.next_hop(route.at.port, route.via)?;
            self.pushed.add(route, next_hop)?;
        }
        Ok(())
    }

    /// Removes a route; false if there is none. Its place in the forwarding table goes to the next new route, not to an
    /// earlier route that found no room.
    pub fn remove_route(&mut self, prefix: IpAddr, prefix_len: u8) -> bool {
        let removed = self.fib.remove_static(prefix, prefix_len);
        self.resolve_pes(self.now);
        removed
    }

    /// Takes the link of a port down, or up, at `now`. While the link is down, the port ignores (and counts) received
    /// frames and drops frames to its line. BGP sessions over the link end immediately.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn set_link(&mut self, now: Instant, port: usize, up: bool) {
        self.now = self.now.max(now);
        let now = self.now;
        self.serve_lines(now);
        self.install_routes(now);
        let was_down = std::mem::replace(&mut self.ports[port].down, !up);
        self.link_changes += 1;
        if let Some(igp) = self.igp.as_mut().filter(|_| was_down == up) {
            igp.set_link(now, port, up);
            self.truth.igp = igp.truth();
            self.run_core(now);
        }
        if was_down || up {
            self.resolve_pes(now);
            return;
        }
        let over = self.interfaces.iter().map(|interface| interface.port == port).collect::<Vec<_>>();
        self.with_speaker(|speaker, hops| speaker.link_down(now, &over, hops));
        self.speak(now);
        self.install_routes(now);
    }

    /// Takes a TCP segment for an address of the device.
    pub(super) fn take_tcp(&mut self, now: Instant, interface: usize, packet: &[u8]) {
        if greeter::is_for(packet)
            && let Some(mut greeter) = self.greeter.take()
        {
            greeter.receive(now, interface, packet, &mut |now| self.answers_at(now));
            self.greeter = Some(greeter);
            self.greet(now);
            return;
        }
        let end = if self.is_for_loopback(packet) { self.interfaces.len() } else { interface };
        let taken = self.with_speaker(|speaker, hops| speaker.receive(now, end, packet, hops));
        if taken == Some(true) {
            self.speak(now);
            self.install_routes(now);
        }
    }

    /// Takes an IPv4 packet for the device, if it belongs to BFD with the neighbour of a VRF.
    pub(super) fn take_vrf_bfd(&mut self, arrival: Arrival, packet: &[u8]) -> bool {
        let Arrival { now, interface, .. } = arrival;
        let Some(went_down) = self.vrf_bfd.receive(now, interface, packet) else { return false };
        if went_down {
            self.end_sessions(now, &[interface]);
        }
        self.run_vrf_bfd(now);
        true
    }

    /// Runs BFD with the neighbours of VRFs until `now`, and sends its packets.
    pub(super) fn run_vrf_bfd(&mut self, now: Instant) {
        if self.vrf_bfd.next_deadline().is_none_or(|at| at > now) {
            self.truth.vrf_bfd = self.vrf_bfd.truth();
            return;
        }
        let (mut packets, mut lost) = (Vec::new(), Vec::new());
        self.vrf_bfd.poll(now, &mut |interface, packet| packets.push((interface, packet)), &mut |i| lost.push(i));
        self.truth.vrf_bfd = self.vrf_bfd.truth();
        for (interface, packet) in packets {
            self.send_packet(now, interface, &packet);
        }
        self.end_sessions(now, &lost);
    }

    /// Ends the BGP sessions on interfaces whose BFD session went down.
    fn end_sessions(&mut self, now: Instant, interfaces: &[usize]) {
        if interfaces.is_empty() {
            return;
        }
        for interface in interfaces {
            self.with_speaker(|speaker, hops| speaker.bfd_down(now, *interface, hops));
        }
        self.speak(now);
        self.install_routes(now);
    }

    /// Runs the SSH server until `now`, and sends its packets.
    pub(super) fn greet(&mut self, now: Instant) {
        let Some(mut greeter) = self.greeter.take_if(|g| g.next_deadline().is_some_and(|at| at <= now)) else { return };
        let mut packets = Vec::new();
        greeter.poll(now, &mut |interface, packet| packets.push((interface, packet.to_vec())));
        self.greeter = Some(greeter);
        for (interface, packet) in packets {
            self.send_packet(now, interface, &packet);
        }
    }

    fn with_speaker<T>(
        &mut self,
        act: impl FnOnce(&mut Speaker, &mut dyn FnMut(usize, IpAddr) -> Option<u32>) -> T,
    ) -> Option<T> {
        let Router { speaker, interfaces, neighbours, pes, truth, .. } = self;
        let speaker = speaker.as_mut()?;
        let done = act(speaker, &mut |interface, address| {
            if interface == interfaces.len() {
                // The core has only IPv4.
                let IpAddr::V4(pe) = address else { return None };
                return pes.intern(pe);
            }
            let on_link = interfaces[interface].on_link(address);
            let neighbour = if on_link { neighbours.intern(interface, address) } else { None };
            neighbour.map(|i| i as u32)
        });
        truth.bgp = speaker.truth();
        Some(done)
    }

    /// Runs the speaker until `now`, and sends its packets.
    pub(super) fn speak(&mut self, now: Instant) {
        if self.speaker.as_ref().and_then(|s| s.next_deadline()).is_none_or(|at| at > now) {
            return;
        }
        let (mut bytes, mut ends) = std::mem::take(&mut self.spoken);
        self.with_speaker(|speaker, hops| {
            speaker.poll(now, hops, &mut |interface, packet| {
                bytes.extend_from_slice(packet);
                ends.push((interface, bytes.len()));
            });
        });
        let mut start = 0;
        for (interface, end) in ends.drain(..) {
            let packet = &bytes[start..end];
            if interface == self.interfaces.len() {
                self.send_from_loopback(now, packet);
            } else {
                self.send_packet(now, interface, packet);
            }
            start = end;
        }
        bytes.clear();
        self.spoken = (bytes, ends);
    }

    /// Sends one of the device's own IP packets to a neighbour. If the neighbour's MAC address is unknown, the device
    /// asks for it and the packet waits, with the same limit as for transit frames. Packets beyond the limit are lost;
    /// TCP retransmits them.
    pub(super) fn send_packet(&mut self, now: Instant, interface: usize, packet: &[u8]) {
        let destination: IpAddr = match packet.first().map(|b| b >> 4) {
            Some(4) if packet.len() >= 20 => Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19]).into(),
            Some(6) if packet.len() >= 40 => {
                let mut octets = [0; 16];
                octets.copy_from_slice(&packet[24..40]);
                Ipv6Addr::from(octets).into()
            }
            _ => return,
        };
        self.send_packet_to(now, interface, destination, packet);
    }

    /// As [`Router::send_packet`], but the packet goes to this next hop, whatever its destination is.
    pub(super) fn send_packet_to(&mut self, now: Instant, interface: usize, next_hop: IpAddr, packet: &[u8]) {
        if self.interfaces[interface].on_link(next_hop)
            && let Some(neighbour) = self.neighbours.intern(interface, next_hop)
        {
            self.send_through(now, neighbour, packet, &[]);
        }
    }

    /// Sends one of the device's own IP packets to a neighbour, with these labels.
    pub(super) fn send_through(&mut self, now: Instant, neighbour: usize, packet: &[u8], labels: &[u32]) {
        let interface = self.neighbours.get(neighbour).interface;
        let pipe = self.pipe;
        let (source, known) = (self.interfaces[interface].mac, self.neighbours.get(neighbour).mac);
        let write = |frame: &mut Vec<u8>| {
            frame.resize(link::frame_len(packet), 0);
            link::write_frame(frame, Link { source, destination: known.unwrap_or_default() }, packet);
            if !labels.is_empty() {
                labels::push(frame, labels, if pipe { PIPE } else { packet[8] }, packet.len());
                frame.resize(frame.len().max(ethernet::MIN_WITHOUT_FCS), 0);
            }
        };
        if known.is_some() {
            return self.send(now, interface, write);
        }
        if !self.ports[self.interfaces[interface].port].down
            && self.neighbours.get(neighbour).own.len() < self.pending_limit
        {
            let slot = self.pool.take();
            let frame = self.pool.get_mut(slot);
            write(frame.bytes_mut());
            push_tags(frame, &self.interfaces[interface].tags);
            self.neighbours.get_mut(neighbour).own.push(slot);
        }
        if self.neighbours.start(neighbour, now) {
            self.ask(now, neighbour, None);
        }
    }

    /// Makes the changes to the forwarding tables that are due until `now`; false if there were none.
    pub(super) fn install_routes(&mut self, now: Instant) -> bool {
        let mut changed = self.install_core(now);
        loop {
            let Some(speaker) = &mut self.speaker else { return changed };
            while let Some(FibChange { table, net, number, hop }) = speaker.take_fib(now) {
                let sunk = is_nth(number.into(), self.faults.bgp.blackhole_every);
                let target = hop.map(|hop| match hop {
                    _ if sunk => Target::Sink,
                    Hop::Neighbour(next_hop) => Target::Via(next_hop as usize),
                    Hop::Pe { pe, label } => Target::Pe { pe, label },
                });
                self.fib.set_bgp(table, net, target);
                changed = true;
            }
            if changed {
                self.truth.bgp = speaker.truth();
                self.truth.fib = *self.fib.truth();
            }
            // Imported routes follow the routes to their PE routers, even if these are BGP routes.
            if !self.resolve_pes(now) {
                return changed;
            }
            changed = true;
        }
    }
}
