//! The data plane of a PE router (RFC 4364 section 5), and its loopback address.

use super::Router;
use super::forward::{Arrival, Way, trim};
use super::header::{IP, is_special4};
use crate::faults::WrongFrame;
use crate::labels::{self, Entry, Outermost};
use crate::table::Target;
use drophammer_model::Instant;
use drophammer_wire::frame::Frame;
use drophammer_wire::{checksum, ipv4};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl Router {
    /// True if an IPv4 packet is addressed to the loopback address.
    pub(super) fn is_for_loopback(&self, packet: &[u8]) -> bool {
        self.loopback.is_some_and(|own| packet[0] >> 4 == 4 && packet.get(16..20) == Some(&own.octets()))
    }

    /// The way to an address by the device's own routes: the next hop, and the labels that lead there.
    pub(super) fn towards(&mut self, address: Ipv4Addr) -> Option<Entry> {
        if let Some(entry) = self.pushed.find(IpAddr::V4(address)) {
            return Some(entry.clone());
        }
        let next_hop = match self.fib.find4(address)? {
            Target::Via(next_hop) => next_hop,
            Target::Labelled { next_hop, label } => {
                return Some(Entry { out: [label].into(), next_hop: next_hop as usize });
            }
            Target::Connected(out) => self.neighbours.intern(out, IpAddr::V4(address))?,
            _ => return None,
        };
        Some(Entry { out: Box::default(), next_hop })
    }

    /// True if the device has a route to an address over a link that is up.
    fn reaches(&self, address: Ipv4Addr) -> bool {
        let interface = match (self.pushed.find(IpAddr::V4(address)), self.fib.find4(address)) {
            (Some(Entry { next_hop, .. }), _) => self.neighbours.get(*next_hop).interface,
            (None, Some(Target::Via(next_hop))) => self.neighbours.get(next_hop).interface,
            (None, Some(Target::Labelled { next_hop, .. })) => self.neighbours.get(next_hop as usize).interface,
            (None, Some(Target::Connected(interface))) => interface,
            _ => return false,
        };
        !self.ports[self.interfaces[interface].port].down
    }

    /// Finds out which PE routers the device reaches now, if that may have changed. Returns true if it has.
    pub(super) fn resolve_pes(&mut self, now: Instant) -> bool {
        let state = self.fib.changes() + self.link_changes;
        if self.vrfs == 0 || state == self.resolved && !self.pes.has_grown() {
            return false;
        }
        self.resolved = state;
        let mut pes = std::mem::take(&mut self.pes);
        let changed = pes.renew(|pe| self.reaches(pe));
        self.pes = pes;
        let Some(speaker) = &mut self.speaker else { return false };
        for (pe, reachable) in &changed {
            speaker.set_reachable(now, *pe, *reachable);
        }
        !changed.is_empty()
    }

    /// Sends one of the device's own packets from the loopback address by the device's own routes.
    pub(super) fn send_from_loopback(&mut self, now: Instant, packet: &[u8]) {
        let Some(&[a, b, c, d]) = packet.get(16..).and_then(|rest| rest.first_chunk()) else { return };
        let Some(Entry { out, next_hop }) = self.towards(Ipv4Addr::new(a, b, c, d)) else { return };
        self.send_through(now, next_hop, packet, &out);
    }

    /// Sends a packet of `total` bytes, whose TTL has been decremented, to a PE router with a label for its VRF there.
    #[cold]
    pub(super) fn send_to_pe(
        &mut self,
        arrival: Arrival,
        (pe, label): (u32, u32),
        total: usize,
        frame: &mut Frame,
    ) -> bool {
        let Some(Entry { out, next_hop }) = self.towards(self.pes.address(pe)) else {
            // The route has just gone, and the routes of the VRF are about to follow.
            self.truth.dropped.no_route += 1;
            return false;
        };
        let labels: Box<[u32]> = out.iter().copied().chain([label]).collect();
        let ttl = frame[IP + if frame[IP] >> 4 == 4 { 8 } else { 7 }];
        self.push(arrival, &Entry { out: labels, next_hop }, ttl, total, frame)
    }

    /// Takes a packet with the label of a VRF: removes the label and forwards the packet by the routes of the VRF.
    #[cold]
    pub(super) fn leave_pe(&mut self, arrival: Arrival, vrf: usize, outermost: Outermost, frame: &mut Frame) -> bool {
        let swapped = match vrf {
            0 | 1 if self.faults.swap_vpn_labels && self.vrfs > 1 => 1 - vrf,
            _ => vrf,
        };
        let inner = &frame[IP + labels::ENTRY..];
        let header = usize::from(inner[0] & 15) * 4;
        let is_ipv4 = inner[0] >> 4 == 4;
        if !outermost.bottom || is_ipv4 && !(ipv4::LEN..=outermost.length - labels::ENTRY).contains(&header) {
            self.truth.dropped.malformed += 1;
            return false;
        }
        if is_ipv4 && checksum::fold(checksum::sum(&inner[..header])) != 0xffff {
            self.truth.dropped.checksum += 1;
            return false;
        }
        // With the uniform model, the TTL of the label replaces the TTL of the packet.
        if outermost.ttl <= 1 || self.pipe && inner[if is_ipv4 { 8 } else { 7 }] <= 1 {
            self.truth.dropped.ttl += 1;
            return false;
        }
        let (destination, target) = if is_ipv4 { self.in_vrf4(swapped, inner) } else { self.in_vrf6(swapped, inner) };
        let next_hop = match self.way(target, destination) {
            Way::NextHop(next_hop) => next_hop,
            Way::Pe { pe, label } => {
                labels::exchange(frame.bytes_mut(), outermost, &[], self.pipe);
                let total = frame.len() - IP;
                self.truth.vpn_swapped += u64::from(swapped != vrf);
                return self.send_to_pe(arrival, (pe, label), total, frame);
            }
            // No table of a VRF has such routes.
            Way::Tunnel(_) | Way::Labelled(_) | Way::NoRoute | Way::Dropped => return false,
        };
        labels::exchange(frame.bytes_mut(), outermost, &[], self.pipe);
        let out = &self.interfaces[self.neighbours.get(next_hop).interface];
        let (total, mtu, tags) = (frame.len() - IP, out.mtu, out.tags.len());
        if total > mtu && !self.lets_pass(WrongFrame::Giant) {
            self.truth.dropped.mtu += 1;
            return false;
        }
        self.truth.vpn_swapped += u64::from(swapped != vrf);
        trim(frame, total, tags);
        self.forward(arrival.now, arrival.interface, next_hop, frame)
    }

    /// Destination of an IPv4 packet, and the target of a VRF for it; `None` also for a packet that no router forwards.
    fn in_vrf4(&self, vrf: usize, packet: &[u8]) -> (IpAddr, Option<Target>) {
        let address = |at: usize| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]);
        let (source, destination) = (address(12), address(16));
        let martian = is_special4(destination) || is_special4(source) || destination.is_link_local();
        (destination.into(), if martian { None } else { self.fib.find_in_vrf(vrf, destination) })
    }

    /// As [`Router::in_vrf4`], for IPv6.
    fn in_vrf6(&self, vrf: usize, packet: &[u8]) -> (IpAddr, Option<Target>) {
        let address = |at: usize| packet[at..].first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets));
        let (Some(source), Some(destination)) = (address(8), address(24)) else { return (IP_NONE, None) };
        let special = |address: Ipv6Addr| {
            address.is_unicast_link_local()
                || address.is_loopback()
                || address.is_unspecified()
                || address.is_multicast()
        };
        let martian = special(source) || special(destination);
        (destination.into(), if martian { None } else { self.fib.find6_in_vrf(vrf, destination) })
    }
}

/// The destination of a packet without one.
const IP_NONE: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
