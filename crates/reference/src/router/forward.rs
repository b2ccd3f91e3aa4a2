//! The data plane: from the check of the header to the line.

use super::Router;
use super::header::{Contents, IP, TAGS, contents, dscp, has_source_route, is_extension, is_special4, port_at, tags};
use crate::faults::{WrongFrame, is_nth};
use crate::filter::Packet;
use crate::labels::{self, Entry};
use crate::neighbours::Pending;
use crate::pool::Slot;
use crate::table::Target;
use crate::truth::Drops;
use drophammer_model::Instant;
use drophammer_model::filter::FilterDirection;
use drophammer_model::role::PolicySource;
use drophammer_wire::ethernet::ethertype;
use drophammer_wire::frame::Frame;
use drophammer_wire::{MacAddr, checksum, ethernet, icmpv4, icmpv6, ipv4, ipv6};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// When and where a frame arrived, and the MAC address that sent it.
#[derive(Clone, Copy)]
pub(super) struct Arrival {
    pub now: Instant,
    pub interface: usize,
    pub from: MacAddr,
}

/// Where the routes and policies send a packet.
pub(super) enum Way {
    NextHop(usize),
    Labelled(Entry),
    Tunnel(usize),
    Pe {
        pe: u32,
        label: u32,
    },
    /// No route; the source is to be informed.
    NoRoute,
    /// Dropped silently.
    Dropped,
}

/// A frame that the server has accepted.
pub(super) struct Served {
    pub slot: Slot,
    pub arrived: Instant,
    /// End of service.
    pub end: Instant,
    /// Port on which it arrived.
    pub ingress: usize,
    pub port: usize,
    pub contents: Contents,
}

/// A frame that waits in its class.
pub(super) struct Waiting {
    pub slot: Slot,
    pub arrived: Instant,
    /// Port on which it arrived.
    pub ingress: usize,
    pub port: usize,
    pub contents: Contents,
}

/// TTL of pushed labels in the pipe model.
pub(super) const PIPE: u8 = 255;

/// Removes the padding after a packet of `total` bytes, and pads the frame again if it is too short with `tags` bytes
/// of tags.
#[inline(always)]
pub(super) fn trim(frame: &mut Frame, total: usize, tags: usize) {
    let (end, shortest) = (IP + total, ethernet::MIN_WITHOUT_FCS - tags);
    if frame.len() != end || end < shortest {
        let bytes = frame.bytes_mut();
        bytes.truncate(end);
        bytes.resize(end.max(shortest), 0);
    }
}

/// Decrements the TTL of the IPv4 packet in an untagged frame (RFC 1812 section 5.3.1) and updates the header checksum.
#[inline(always)]
pub(super) fn count_down(frame: &mut Frame) {
    let header = &mut frame.head_mut()[IP..IP + ipv4::LEN];
    let before = u16::from_be_bytes([header[8], header[9]]);
    header[8] = header[8].wrapping_sub(1);
    let field = u16::from_be_bytes([header[10], header[11]]);
    let field = checksum::update(field, before, before.wrapping_sub(0x0100));
    header[10..12].copy_from_slice(&field.to_be_bytes());
}

/// Inserts tags after the MAC addresses.
pub(super) fn push_tags(frame: &mut Frame, tags: &[u8]) {
    if !tags.is_empty() {
        frame.bytes_mut().splice(TAGS..TAGS, tags.iter().copied());
    }
}

/// Sets the MAC addresses.
#[inline(always)]
fn address(frame: &mut Frame, destination: MacAddr, source: MacAddr) {
    let head = frame.head_mut();
    head[..6].copy_from_slice(&destination.0);
    head[6..12].copy_from_slice(&source.0);
}

impl Router {
    /// Takes any frame except untagged IP and ARP: finds the sub-interface for its tags, or the entry for its labels.
    #[cold]
    pub(super) fn take_tagged(&mut self, arrival: Arrival, group: bool, frame: &mut Frame) -> bool {
        let Arrival { now, interface: port, .. } = arrival;
        let tags = tags(frame);
        let length = tags.len();
        let found = if length == 0 { Some(port) } else { self.by_tags.find(port, tags) };
        let Some(interface) = found else {
            self.truth.ignored += 1;
            self.truth.unknown_vlan += u64::from(length > 0);
            return false;
        };
        let arrival = Arrival { interface, ..arrival };
        frame.bytes_mut().drain(TAGS..TAGS + length);
        match u16::from_be_bytes([frame[TAGS], frame[TAGS + 1]]) {
            ethertype::IPV4 => match self.interfaces[interface].vrf {
                None => self.take_ipv4(arrival, group, None, frame),
                vrf => self.take_ipv4(arrival, group, vrf, frame),
            },
            ethertype::IPV6 => self.take_ipv6(arrival, group, frame),
            ethertype::ARP => {
                self.take_arp(now, interface, &frame[IP..]);
                false
            }
            // A CE router may not send packets with labels (RFC 4364 section 13.2).
            ethertype::MPLS if !group && self.switches_labels() && self.interfaces[interface].vrf.is_none() => {
                self.take_labelled(arrival, frame)
            }
            _ if group && self.suffers_broadcast(now, port, frame) => false,
            _ => {
                self.truth.ignored += 1;
                false
            }
        }
    }

    /// Takes an IPv4 packet that belongs to this VRF, if it belongs to any.
    #[inline(always)]
    pub(super) fn take_ipv4(&mut self, arrival: Arrival, group: bool, vrf: Option<usize>, frame: &mut Frame) -> bool {
        let packet = &frame[IP..];
        // A header without options, whose length is constant.
        let Some(plain) = packet.first_chunk::<{ ipv4::LEN }>() else {
            self.truth.ignored += 1;
            return false;
        };
        let source = Ipv4Addr::new(plain[12], plain[13], plain[14], plain[15]);
        let destination = Ipv4Addr::new(plain[16], plain[17], plain[18], plain[19]);
        // RFC 1812 section 5.3.4 and 5.3.7: link broadcasts and addresses that no router forwards.
        let martian = is_special4(destination) || is_special4(source);
        if group || destination.is_link_local() || (martian && !self.lets_pass(WrongFrame::Martian)) {
            if group && self.igp.is_some() && self.take_group(arrival, packet) {
                return false;
            }
            self.truth.martians += u64::from(martian && !group);
            self.truth.ignored += 1;
            return false;
        }
        let target = match vrf {
            None => self.fib.find4(destination),
            Some(vrf) => self.fib.find_in_vrf(vrf, destination),
        };
        if plain[9] == ipv4::protocol::RSVP && vrf.is_none() && self.takes_rsvp(arrival, target, packet) {
            return false;
        }
        if target == Some(Target::Local) {
            if vrf.is_none()
                && plain[9] == ipv4::protocol::GRE
                && let Some(tunnel) = self.tunnel_between(destination, source)
            {
                return self.take_tunnelled(arrival, tunnel, frame);
            }
            self.truth.control += 1;
            self.take_own_ipv4(arrival, packet);
            return false;
        }
        self.truth.transit += 1;
        let header = usize::from(plain[0] & 15) * 4;
        let total = usize::from(u16::from_be_bytes([plain[2], plain[3]]));
        if plain[0] >> 4 != 4 || header < ipv4::LEN || total < header || packet.len() < total {
            self.truth.dropped.malformed += 1;
            return false;
        }
        let sum = if header == ipv4::LEN { checksum::sum_le(plain) } else { checksum::sum_le(&packet[..header]) };
        if checksum::fold(sum) != 0xffff && !self.lets_pass(WrongFrame::Checksum) {
            self.truth.dropped.checksum += 1;
            return false;
        }
        if header > ipv4::LEN
            && has_source_route(&packet[ipv4::LEN..header])
            && !self.lets_pass(WrongFrame::SourceRoute)
        {
            self.truth.dropped.source_route += 1;
            return false;
        }
        let filtered = (!self.filter.is_empty()).then(|| {
            let first = u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff == 0;
            let destination_port = first.then(|| port_at(packet[9], &packet[header..total])).flatten();
            Packet { source: source.into(), destination: destination.into(), protocol: packet[9], destination_port }
        });
        if filtered.is_some_and(|packet| !self.passes_ingress(arrival.interface, &packet)) {
            return false;
        }
        if plain[8] <= 1 && !self.lets_pass(WrongFrame::Ttl) {
            self.truth.dropped.ttl += 1;
            self.report4(arrival, packet, |original| icmpv4::Repr::TimeExceeded { code: 0, original });
            return false;
        }
        if vrf.is_none()
            && let Some(entry) = self.pushed.find(IpAddr::V4(destination))
        {
            let (entry, ttl) = (entry.clone(), plain[8] - 1);
            count_down(frame);
            return self.push(arrival, &entry, ttl, total, frame);
        }
        let target = if self.policies.is_empty() || vrf.is_some() {
            target
        } else {
            self.by_policy(PolicySource::Interface(arrival.interface), target)
        };
        let next_hop = match self.way(target, IpAddr::V4(destination)) {
            Way::NextHop(next_hop) => next_hop,
            Way::Labelled(entry) => {
                let ttl = plain[8] - 1;
                count_down(frame);
                return self.push(arrival, &entry, ttl, total, frame);
            }
            Way::Tunnel(tunnel) => return self.enter_tunnel(arrival, tunnel, total, frame),
            Way::Pe { pe, label } => {
                count_down(frame);
                return self.send_to_pe(arrival, (pe, label), total, frame);
            }
            Way::Dropped => return false,
            Way::NoRoute => {
                self.report_no_route4(arrival, packet);
                return false;
            }
        };
        if filtered.is_some_and(|packet| !self.passes_egress(next_hop, &packet)) {
            return false;
        }
        let out = &self.interfaces[self.neighbours.get(next_hop).interface];
        let (mtu, tags) = (out.mtu, out.tags.len());
        if total > mtu && !self.lets_pass(WrongFrame::Giant) {
            self.refuse_large(arrival, mtu, packet);
            return false;
        }
        trim(frame, total, tags);
        count_down(frame);
        self.forward(arrival.now, arrival.interface, next_hop, frame)
    }

    pub(super) fn take_ipv6(&mut self, arrival: Arrival, group: bool, frame: &mut Frame) -> bool {
        let packet = &frame[IP..];
        if packet.len() < ipv6::LEN {
            self.truth.ignored += 1;
            return false;
        }
        let (mut source, mut destination) = ([0; 16], [0; 16]);
        source.copy_from_slice(&packet[8..24]);
        destination.copy_from_slice(&packet[24..40]);
        let (source, destination) = (Ipv6Addr::from(source), Ipv6Addr::from(destination));
        if destination.is_multicast() || destination == self.interfaces[arrival.interface].link_local {
            self.take_own_ipv6(arrival, packet);
            return false;
        }
        // RFC 4291 sections 2.5.2 to 2.5.6: these are never forwarded.
        let unforwardable =
            destination.is_unicast_link_local() || destination.is_loopback() || destination.is_unspecified();
        if group || unforwardable || source.is_multicast() {
            self.truth.ignored += 1;
            return false;
        }
        let vrf = self.interfaces[arrival.interface].vrf;
        let target = match vrf {
            None => self.fib.find6(destination),
            Some(vrf) => self.fib.find6_in_vrf(vrf, destination),
        };
        if target == Some(Target::Local) {
            self.take_own_ipv6(arrival, packet);
            return false;
        }
        if source.is_unicast_link_local() || source.is_unspecified() || source.is_loopback() {
            self.truth.ignored += 1;
            return false;
        }
        self.truth.transit += 1;
        let total = ipv6::LEN + usize::from(u16::from_be_bytes([packet[4], packet[5]]));
        if packet[0] >> 4 != 6 || packet.len() < total {
            self.truth.dropped.malformed += 1;
            return false;
        }
        let filtered = (!self.filter.is_empty()).then(|| {
            let destination_port = port_at(packet[6], &packet[ipv6::LEN..total]);
            Packet { source: source.into(), destination: destination.into(), protocol: packet[6], destination_port }
        });
        if filtered.is_some_and(|packet| !self.passes_ingress(arrival.interface, &packet)) {
            return false;
        }
        if packet[7] <= 1 && !self.lets_pass(WrongFrame::Ttl) {
            self.truth.dropped.ttl += 1;
            self.report6(arrival, packet, |original| icmpv6::Repr::TimeExceeded { code: 0, original });
            return false;
        }
        if vrf.is_none()
            && let Some(entry) = self.pushed.find(IpAddr::V6(destination))
        {
            let (entry, ttl) = (entry.clone(), packet[7] - 1);
            frame.head_mut()[IP + 7] = ttl;
            return self.push(arrival, &entry, ttl, total, frame);
        }
        let next_hop = match self.way(target, IpAddr::V6(destination)) {
            Way::NextHop(next_hop) => next_hop,
            Way::Pe { pe, label } => {
                let hops = &mut frame.head_mut()[IP + 7];
                *hops = hops.wrapping_sub(1);
                return self.send_to_pe(arrival, (pe, label), total, frame);
            }
            // Tunnels and LDP carry IPv4 alone, and no policy applies to IPv6.
            Way::Tunnel(_) | Way::Labelled(_) | Way::Dropped => return false,
            Way::NoRoute => {
                let code = icmpv6::unreachable::NO_ROUTE;
                self.report6(arrival, packet, |original| icmpv6::Repr::DestinationUnreachable { code, original });
                return false;
            }
        };
        if filtered.is_some_and(|packet| !self.passes_egress(next_hop, &packet)) {
            return false;
        }
        let out = &self.interfaces[self.neighbours.get(next_hop).interface];
        let (mtu, tags) = (out.mtu, out.tags.len());
        if total > mtu && !self.lets_pass(WrongFrame::Giant) {
            self.truth.dropped.mtu += 1;
            let mtu = mtu as u32;
            self.report6(arrival, packet, |original| icmpv6::Repr::PacketTooBig { mtu, original });
            return false;
        }
        if is_extension(packet[6]) {
            self.extended += 1;
            if is_nth(self.extended, self.faults.extension_drop_every) {
                self.truth.dropped.fault_extension += 1;
                return false;
            }
            self.extension_ns.1 = self.extension_ns.0;
        }
        trim(frame, total, tags);
        let hops = &mut frame.head_mut()[IP + 7];
        *hops = hops.wrapping_sub(1);
        self.forward(arrival.now, arrival.interface, next_hop, frame)
    }

    /// Resolves a target of the forwarding table, and counts a packet if the target drops it.
    #[inline(always)]
    pub(super) fn way(&mut self, target: Option<Target>, destination: IpAddr) -> Way {
        let dropped = &mut self.truth.dropped;
        let count = match target {
            Some(Target::Via(next_hop)) => return Way::NextHop(next_hop),
            Some(Target::Labelled { next_hop, label }) => {
                return Way::Labelled(Entry { out: [label].into(), next_hop: next_hop as usize });
            }
            Some(Target::Tunnel(tunnel)) => return Way::Tunnel(tunnel),
            Some(Target::Pe { pe, label }) => return Way::Pe { pe, label },
            Some(Target::Connected(out)) => match self.neighbours.intern(out, destination) {
                Some(next_hop) => return Way::NextHop(next_hop),
                None => &mut dropped.unresolved,
            },
            Some(Target::Blackhole) => &mut dropped.fib_full,
            Some(Target::Sink) => &mut dropped.fault_blackhole,
            Some(Target::Broadcast | Target::Local) | None => {
                dropped.no_route += 1;
                return Way::NoRoute;
            }
        };
        *count += 1;
        Way::Dropped
    }

    /// Forwards a frame to `next_hop`. Its headers are final, except for the MAC addresses.
    #[inline(always)]
    pub(super) fn forward(&mut self, now: Instant, ingress: usize, next_hop: usize, frame: &mut Frame) -> bool {
        let extension_ns = std::mem::take(&mut self.extension_ns.1);
        let neighbour = self.neighbours.get(next_hop);
        let (Some(mac), None) = (neighbour.mac, &self.classes) else {
            self.truth.queued += 1;
            let slot = self.pool.adopt(frame);
            return self.resolve(now, ingress, next_hop, slot);
        };
        let out = &self.interfaces[neighbour.interface];
        let port = out.port;
        let longer = self.rules_read.saturating_mul(self.filter_ns_per_rule).saturating_add(extension_ns);
        let Some(end) = self.server.offer(now, longer) else {
            self.ports[self.interfaces[ingress].port].counters.in_discards += 1;
            self.truth.dropped.buffer += 1;
            return true;
        };
        address(frame, mac, out.mac);
        let contents = contents(frame);
        push_tags(frame, &out.tags);
        self.truth.queued += 1;
        let slot = self.pool.adopt(frame);
        let ingress = self.interfaces[ingress].port;
        self.served(Served { slot, arrived: now, end, ingress, port, contents })
    }

    fn resolve(&mut self, now: Instant, ingress: usize, next_hop: usize, slot: Slot) -> bool {
        let neighbour = self.neighbours.get_mut(next_hop);
        if let Some(mac) = neighbour.mac {
            let out = neighbour.interface;
            return self.serve(now, ingress, out, mac, slot);
        }
        if neighbour.pending.len() < self.pending_limit {
            neighbour.pending.push(Pending { slot, ingress });
        } else {
            self.pool.release(slot);
            self.truth.queued -= 1;
            self.truth.dropped.unresolved += 1;
        }
        if self.neighbours.start(next_hop, now) {
            self.ask(now, next_hop, None);
        }
        false
    }

    /// Passes the frames that waited for a neighbour to the server when the neighbour has answered.
    pub(super) fn serve_pending(&mut self, now: Instant, next_hop: usize) {
        let neighbour = self.neighbours.get_mut(next_hop);
        let Some(mac) = neighbour.mac else { return };
        let out = neighbour.interface;
        let mut pending = std::mem::take(&mut neighbour.pending);
        for Pending { slot, ingress } in pending.drain(..) {
            self.serve(now, ingress, out, mac, slot);
        }
        // Returns the memory, so that the next time allocates nothing.
        let neighbour = self.neighbours.get_mut(next_hop);
        neighbour.pending = pending;
        let port = self.interfaces[out].port;
        for slot in std::mem::take(&mut neighbour.own) {
            if self.ports[port].down {
                self.pool.release(slot);
                continue;
            }
            self.pool.get_mut(slot).head_mut()[..6].copy_from_slice(&mac.0);
            self.departures.schedule_other(now, port, slot, false);
        }
    }

    fn serve(&mut self, now: Instant, ingress: usize, out: usize, mac: MacAddr, slot: Slot) -> bool {
        let (out, ingress) = (&self.interfaces[out], self.interfaces[ingress].port);
        let port = out.port;
        let frame = self.pool.get_mut(slot);
        address(frame, mac, out.mac);
        let (contents, dscp) = (contents(frame), dscp(frame));
        push_tags(frame, &out.tags);
        if let Some(classes) = &mut self.classes {
            let class = classes.of(dscp);
            let waiting = Waiting { slot, arrived: now, ingress, port, contents };
            if classes.offer(now, class, frame.len() + 4, waiting).is_err() {
                self.ports[ingress].counters.in_discards += 1;
                self.discard(slot, |d| &mut d.buffer);
            }
            return false;
        }
        let Some(end) = self.server.offer(now, 0) else {
            self.ports[ingress].counters.in_discards += 1;
            self.discard(slot, |d| &mut d.buffer);
            return true;
        };
        self.served(Served { slot, arrived: now, end, ingress, port, contents })
    }

    #[inline(always)]
    pub(super) fn served(&mut self, served: Served) -> bool {
        let (slot, ingress, port) = (served.slot, served.ingress, served.port);
        if served.contents != Contents::Datagram && (served.contents == Contents::Other || !self.mistreats(port)) {
            self.truth.test_frames += u64::from(served.contents == Contents::Transport);
            let ready = self.ready(served.end);
            if let Some(at) = self.line(ingress, port, ready, slot) {
                self.departures.schedule_other(at, port, slot, true);
            }
            return false;
        }
        if !self.mistreats(port) {
            self.truth.test_frames += 1;
            let ready = self.ready(served.end);
            if let Some(at) = self.line(ingress, port, ready, slot) {
                // Read it now, while the frame is in the cache.
                let unicast = self.pool.get(slot)[0] & 1 == 0;
                self.departures.schedule(at, port, slot, unicast);
            }
            return true;
        }
        // Parked frames change the time of the next notice.
        let parks = self.faults.reorder.is_some() || self.parked > 0;
        let noticed = served.contents != Contents::Datagram;
        self.mistreat(served);
        !parks && !noticed
    }

    /// True if test frames to a port go through the faults.
    #[inline(always)]
    fn mistreats(&self, port: usize) -> bool {
        self.faulty || !self.ports[port].parked.is_empty()
    }

    /// Takes a packet with labels.
    fn take_labelled(&mut self, arrival: Arrival, frame: &mut Frame) -> bool {
        let Arrival { now, interface: port, .. } = arrival;
        self.truth.transit += 1;
        self.rules_read = 0;
        let Some(outermost) = labels::outermost(frame) else {
            self.truth.dropped.malformed += 1;
            return false;
        };
        if let Some(vrf) = self.labels.vrf(outermost.label) {
            return self.leave_pe(arrival, vrf, outermost, frame);
        }
        let Some(entry) = self.labels.find(outermost.label) else {
            self.truth.dropped.no_label += 1;
            return false;
        };
        if outermost.ttl <= 1 {
            self.truth.dropped.ttl += 1;
            return false;
        }
        let (next_hop, swapped) = (entry.next_hop, !entry.out.is_empty());
        self.swaps += u64::from(swapped);
        let popped = swapped && is_nth(self.swaps, self.faults.label_pop_every);
        self.truth.label_popped += u64::from(popped);
        let out = &self.interfaces[self.neighbours.get(next_hop).interface];
        labels::exchange(frame.bytes_mut(), outermost, if popped { &[] } else { &entry.out }, self.pipe);
        if frame.len() - IP > out.mtu {
            self.truth.dropped.mtu += 1;
            return false;
        }
        let total = frame.len() - IP;
        trim(frame, total, out.tags.len());
        self.forward(now, port, next_hop, frame)
    }

    /// Pushes the labels of `entry` onto a packet of `total` bytes, whose TTL has been decremented to `ttl`.
    pub(super) fn push(&mut self, arrival: Arrival, entry: &Entry, ttl: u8, total: usize, frame: &mut Frame) -> bool {
        let out = &self.interfaces[self.neighbours.get(entry.next_hop).interface];
        let (mtu, tags) = (out.mtu, out.tags.len());
        labels::push(frame.bytes_mut(), &entry.out, if self.pipe { PIPE } else { ttl }, total);
        let total = frame.len() - IP;
        if total > mtu {
            self.truth.dropped.mtu += 1;
            return false;
        }
        trim(frame, total, tags);
        self.forward(arrival.now, arrival.interface, entry.next_hop, frame)
    }

    /// True if the ingress filter permits a packet that arrived on interface `ingress`.
    #[inline(never)]
    fn passes_ingress(&mut self, ingress: usize, packet: &Packet) -> bool {
        self.rules_read = 0;
        self.passes(FilterDirection::Ingress, ingress, packet)
    }

    /// True if the egress filter of the output port to `next_hop` permits a packet.
    #[inline(never)]
    fn passes_egress(&mut self, next_hop: usize, packet: &Packet) -> bool {
        self.passes(FilterDirection::Egress, self.neighbours.get(next_hop).interface, packet)
    }

    fn passes(&mut self, direction: FilterDirection, interface: usize, packet: &Packet) -> bool {
        let port = self.interfaces[interface].port;
        let Some(decision) = self.filter.decide(direction, port, packet) else { return true };
        self.rules_read += decision.looked_at;
        if decision.permits {
            self.decisions.0 += 1;
            let dropped = is_nth(self.decisions.0, self.faults.filter_deny_every);
            self.truth.dropped.fault_filter += u64::from(dropped);
            return !dropped;
        }
        self.decisions.1 += 1;
        let leaks = is_nth(self.decisions.1, self.faults.filter_leak_every);
        let count = if leaks { &mut self.truth.leaked } else { &mut self.truth.dropped.filtered };
        *count += 1;
        leaks
    }

    pub(super) fn discard(&mut self, slot: Slot, cause: impl FnOnce(&mut Drops) -> &mut u64) {
        *cause(&mut self.truth.dropped) += 1;
        self.truth.queued -= 1;
        self.pool.release(slot);
    }

    /// Applies the faults to a broadcast or multicast frame of an unknown type. Returns true if the frame is forwarded.
    fn suffers_broadcast(&mut self, now: Instant, port: usize, frame: &mut Frame) -> bool {
        for _ in 0..self.faults.broadcast_services {
            // If the buffer is full, the frame takes no service time.
            let _ = self.server.offer(now, 0);
        }
        if !self.faults.broadcast_flooded {
            return false;
        }
        let next = (port + 1) % self.ports.len();
        self.truth.transit += 1;
        self.truth.queued += 1;
        let slot = self.pool.adopt(frame);
        if let Some(at) = self.line(port, next, now, slot) {
            self.departures.schedule_other(at, next, slot, true);
        }
        true
    }

    #[inline]
    pub(super) fn ready(&mut self, end: Instant) -> Instant {
        let aged = self.faults.ageing.map_or(0, |ageing| ageing.delay_ns(end));
        let ready = Instant((end + self.delay).0.saturating_add(aged));
        if self.jitter.is_zero() {
            return ready;
        }
        let width = u64::try_from(self.jitter.as_nanos()).unwrap_or(u64::MAX).saturating_add(1);
        Instant(ready.0.saturating_add(self.delay_random.below(width)))
    }

    #[inline(always)]
    pub(super) fn line(&mut self, ingress: usize, port: usize, ready: Instant, slot: Slot) -> Option<Instant> {
        let out = &mut self.ports[port];
        if out.down {
            self.discard(slot, |d| &mut d.link_down);
            return None;
        }
        if out.classes.is_some() {
            self.queue_on_line(port, ready, slot);
            return None;
        }
        let ready = if self.faults.input_queue == 0 { ready } else { self.leave_input(ingress, port, ready, slot)? };
        let out = &mut self.ports[port];
        let departure = out.line.offer(ready, self.pool.get(slot).len());
        if departure.is_none() {
            out.counters.out_discards += 1;
            self.discard(slot, |d| &mut d.egress);
        }
        departure
    }

    /// The time when a frame that is ready at `ready` leaves the input queue of its ingress port
    /// ([`crate::Faults::input_queue`]); `None` if that queue is full.
    #[cold]
    fn leave_input(&mut self, ingress: usize, port: usize, ready: Instant, slot: Slot) -> Option<Instant> {
        let Some(first) = self.ports[ingress].input.behind(ready, self.faults.input_queue) else {
            self.ports[ingress].counters.in_discards += 1;
            self.discard(slot, |d| &mut d.fault_input_queue);
            return None;
        };
        let leave = self.ports[port].line.room_at(first);
        self.ports[ingress].input.push(leave);
        Some(leave)
    }
}
