//! ICMP errors about packets that the router does not forward, with a rate limit.

use super::Router;
use super::forward::Arrival;
use crate::faults::is_nth;
use crate::pool::Slot;
use crate::table::Target;
use drophammer_emulation::compose::{self, Link};
use drophammer_model::Instant;
use drophammer_wire::ipv4::protocol;
use drophammer_wire::{MacAddr, ethernet, icmpv4, icmpv6, ipv4, ipv6};
use std::net::{Ipv4Addr, Ipv6Addr};

/// An ICMPv6 error must fit the smallest MTU of IPv6 (RFC 4443 section 2.4 c).
const ORIGINAL_V6: usize = 1280 - ipv6::LEN - icmpv6::LEN;

impl Router {
    fn may_report(&mut self, now: Instant) -> bool {
        let allowed = self.errors.allows(now);
        if allowed {
            self.truth.icmp_errors += 1;
        } else {
            self.truth.icmp_suppressed += 1;
        }
        allowed
    }

    /// How many times the current error is sent.
    fn times(&mut self) -> u32 {
        let twice = is_nth(self.truth.icmp_errors, self.faults.icmp_twice_every);
        self.truth.icmp_repeated += u64::from(twice);
        1 + u32::from(twice)
    }

    /// Sends an error about `packet` to its source: by the routes if they lead to a known neighbour and the packet does not
    /// belong to a VRF, otherwise on the link on which the packet arrived. Sends no error about ICMP errors and about fragments other than the first (RFC
    /// 1812 section 4.3.2.7).
    pub(super) fn report4<'p>(
        &mut self,
        arrival: Arrival,
        packet: &'p [u8],
        message: impl FnOnce(&'p [u8]) -> icmpv4::Repr<'p>,
    ) {
        let source = Ipv4Addr::new(packet[12], packet[13], packet[14], packet[15]);
        let Arrival { now, interface, from } = arrival;
        // A packet of a VRF came from its CE router.
        let way = if self.interfaces[interface].vrf.is_some() { None } else { self.way_to(source) };
        let (interface, to) = way.unwrap_or((interface, from));
        let Some((own, _)) = self.interfaces[interface].ipv4 else { return };
        let header = usize::from(packet[0] & 15) * 4;
        let later_fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff != 0;
        let is_error = packet[9] == protocol::ICMP && !matches!(packet.get(header), Some(0 | 8));
        if later_fragment || is_error || !self.may_report(now) {
            return;
        }
        // The header and the next 64 bits (RFC 792).
        let message = message(&packet[..packet.len().min(header.max(ipv4::LEN) + 8)]);
        let link = Link { source: self.interfaces[interface].mac, destination: to };
        for _ in 0..self.times() {
            self.send(now, interface, |out| compose::icmpv4(out, link, own, source, 0, &message));
        }
    }

    /// Reports that no route leads to the destination of an IPv4 packet.
    pub(super) fn report_no_route4(&mut self, arrival: Arrival, packet: &[u8]) {
        self.report4(arrival, packet, |original| icmpv4::Repr::DestinationUnreachable {
            code: icmpv4::unreachable::NET,
            next_hop_mtu: 0,
            original,
        });
    }

    /// Drops an IPv4 packet larger than `mtu`, and informs its source if the packet may not be fragmented (RFC 1191
    /// section 4).
    pub(super) fn refuse_large(&mut self, arrival: Arrival, mtu: usize, packet: &[u8]) {
        self.truth.dropped.mtu += 1;
        if packet[6] & 0x40 != 0 {
            self.report4(arrival, packet, |original| icmpv4::Repr::DestinationUnreachable {
                code: icmpv4::unreachable::FRAGMENTATION_NEEDED,
                next_hop_mtu: mtu.min(0xffff) as u16,
                original,
            });
        }
    }

    /// Interface and MAC address of the next hop to a destination, if known.
    fn way_to(&self, destination: Ipv4Addr) -> Option<(usize, MacAddr)> {
        let next_hop = match self.fib.find4(destination)? {
            Target::Via(next_hop) => next_hop,
            Target::Connected(out) => self.neighbours.find(out, destination.into())?,
            _ => return None,
        };
        let neighbour = self.neighbours.get(next_hop);
        Some((neighbour.interface, neighbour.mac?))
    }

    /// Like `report4`, for IPv6 (RFC 4443 section 2.4 e).
    pub(super) fn report6<'p>(
        &mut self,
        arrival: Arrival,
        packet: &'p [u8],
        message: impl FnOnce(&'p [u8]) -> icmpv6::Repr<'p>,
    ) {
        let Arrival { now, interface, from: to } = arrival;
        let is_error = packet[6] == protocol::ICMPV6 && packet.get(ipv6::LEN).is_none_or(|kind| *kind < 128);
        let mut source = [0; 16];
        source.copy_from_slice(&packet[8..24]);
        let source = Ipv6Addr::from(source);
        if is_error || source.is_unspecified() || source.is_multicast() || !self.may_report(now) {
            return;
        }
        let own = self.interfaces[interface].ipv6.map_or(self.interfaces[interface].link_local, |a| a.0);
        let length = ipv6::LEN + usize::from(u16::from_be_bytes([packet[4], packet[5]]));
        let message = message(&packet[..packet.len().min(length).min(ORIGINAL_V6)]);
        let link = Link { source: self.interfaces[interface].mac, destination: to };
        for _ in 0..self.times() {
            self.send(now, interface, |out| compose::icmpv6(out, link, own, source, 64, &message));
        }
    }

    /// Reports that the next hop of the frame in `slot` did not answer. The frame's Ethernet header no longer contains
    /// addresses, so the report goes to any known neighbour on the ingress interface.
    pub(super) fn report_unreachable_host(&mut self, now: Instant, interface: usize, slot: Slot) {
        let Some(from) = self.neighbours.any_on(interface) else { return };
        let arrival = Arrival { now, interface, from };
        let frame = std::mem::take(self.pool.get_mut(slot));
        let packet = &frame[ethernet::LEN..];
        if frame[12] == 0x08 {
            self.report4(arrival, packet, |original| icmpv4::Repr::DestinationUnreachable {
                code: icmpv4::unreachable::HOST,
                next_hop_mtu: 0,
                original,
            });
        } else {
            self.report6(arrival, packet, |original| icmpv6::Repr::DestinationUnreachable {
                code: icmpv6::unreachable::ADDRESS,
                original,
            });
        }
        *self.pool.get_mut(slot) = frame;
    }
}

/// Allows at most `limit` errors in each second of the clock.
pub(super) struct ErrorLimit {
    pub limit: u32,
    pub second: u64,
    pub used: u32,
}

impl ErrorLimit {
    fn allows(&mut self, now: Instant) -> bool {
        let second = now.0 / 1_000_000_000;
        if second != self.second {
            (self.second, self.used) = (second, 0);
        }
        let allowed = self.used < self.limit;
        self.used += u32::from(allowed);
        allowed
    }
}
