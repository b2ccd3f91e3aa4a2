//! The control plane: ARP, Neighbor Discovery, echo, and other frames that the device originates.

use super::Router;
use super::forward::{Arrival, push_tags};
use super::routing::TCP;
use crate::faults::is_nth;
use crate::interfaces::Interface;
use crate::pool::Slot;
use drophammer_emulation::compose::{self, Link};
use drophammer_model::Instant;
use drophammer_wire::ethernet::{self, ethertype};
use drophammer_wire::icmpv6::ndp;
use drophammer_wire::ipv4::protocol;
use drophammer_wire::{MacAddr, arp, icmpv4, icmpv6, ipv4, ipv6};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

impl Router {
    /// Sends the frames of the fault [`crate::Faults::own_frames`].
    pub(super) fn speak_unasked(&mut self, now: Instant) {
        let Some(own) = self.faults.own_frames else { return };
        while self.next_own <= now {
            let slot = self.pool.take();
            lldp(self.pool.get_mut(slot).bytes_mut(), self.ports[own.port].mac, own.port);
            self.departures.schedule_other(self.next_own, own.port, slot, false);
            self.truth.own_frames += 1;
            self.next_own = self.next_own + own.interval.max(Duration::from_micros(1));
        }
    }

    /// Sends one of the device's own frames, which `compose` writes.
    pub(super) fn send(&mut self, now: Instant, interface: usize, compose: impl FnOnce(&mut Vec<u8>)) {
        let Interface { port, tags, .. } = &self.interfaces[interface];
        let port = *port;
        if self.ports[port].down {
            return;
        }
        let slot: Slot = self.pool.take();
        let frame = self.pool.get_mut(slot);
        compose(frame.bytes_mut());
        push_tags(frame, tags);
        self.departures.schedule_other(now, port, slot, false);
    }

    /// Asks for the address of a neighbour: the neighbour itself if its address is known, otherwise everybody on the
    /// link.
    pub(super) fn ask(&mut self, now: Instant, i: usize, known: Option<MacAddr>) {
        let neighbour = self.neighbours.get(i);
        let (interface, address) = (neighbour.interface, neighbour.address);
        let own = &self.interfaces[interface];
        let source = own.mac;
        match address {
            IpAddr::V4(target) => {
                let Some((sender, _)) = own.ipv4 else { return };
                let link = Link { source, destination: known.unwrap_or(MacAddr::BROADCAST) };
                self.send(now, interface, |out| compose::arp(out, link, &arp::Repr::request(source, sender, target)));
            }
            IpAddr::V6(target) => {
                let sender = own.ipv6.map_or(own.link_local, |a| a.0);
                self.send(now, interface, |out| match known {
                    None => compose::solicitation(out, source, sender, target),
                    Some(destination) => {
                        let ask = ndp::Repr::NeighborSolicitation { target, source_mac: Some(source) };
                        let link = Link { source, destination };
                        compose::icmpv6(out, link, sender, target, 255, &icmpv6::Repr::Ndp(ask));
                    }
                });
            }
        }
        self.truth.resolution_requests += 1;
    }

    /// Learns the MAC address of a station. Creates an entry only if the message was for this device (`asked`).
    fn learn(&mut self, now: Instant, interface: usize, address: IpAddr, mac: MacAddr, asked: bool) {
        if mac.is_group() || mac == MacAddr::default() || !self.interfaces[interface].on_link(address) {
            return;
        }
        let known = self.neighbours.find(interface, address);
        let entry = if asked { known.or_else(|| self.neighbours.intern(interface, address)) } else { known };
        if let Some(i) = entry {
            self.neighbours.confirm(i, now, mac);
            self.serve_pending(now, i);
        }
    }

    pub(super) fn take_arp(&mut self, now: Instant, interface: usize, packet: &[u8]) {
        self.truth.control += 1;
        let Ok(packet) = arp::Repr::parse(packet) else { return };
        let Some((own, _)) = self.interfaces[interface].ipv4 else { return };
        let mine = packet.target_ip == own;
        self.learn(now, interface, packet.sender_ip.into(), packet.sender_mac, mine);
        if mine && packet.operation == arp::Operation::Request {
            let source = self.interfaces[interface].mac;
            let link = Link { source, destination: packet.sender_mac };
            self.send(now, interface, |out| compose::arp(out, link, &arp::Repr::reply_to(&packet, source)));
            self.truth.resolution_replies += 1;
        }
    }

    /// The time when the device answers its operator; `None` for never.
    pub(super) fn answers_at(&mut self, now: Instant) -> Option<Instant> {
        let Some(fault) = self.faults.management else { return Some(now) };
        if self.server.waiting(now) < fault.waiting {
            return (!self.management_dead).then_some(now);
        }
        self.asked_busy += 1;
        self.management_dead |= fault.dies;
        let answered = !self.management_dead && !is_nth(self.asked_busy, fault.drop_every);
        answered.then(|| now + fault.delay)
    }

    /// Takes an IPv4 packet for an address of this device.
    pub(super) fn take_own_ipv4(&mut self, arrival: Arrival, packet: &[u8]) {
        let Arrival { now, interface, from } = arrival;
        let Ok((ip, payload)) = ipv4::Repr::parse(packet) else { return };
        if ip.protocol == protocol::UDP && self.take_vrf_bfd(arrival, packet) {
            return;
        }
        if ip.protocol != protocol::ICMP && self.take_core(arrival, packet) {
            return;
        }
        if ip.protocol != protocol::ICMP {
            if ip.protocol == TCP {
                self.take_tcp(now, interface, packet);
            }
            if ip.protocol == protocol::UDP {
                self.report4(arrival, packet, |original| icmpv4::Repr::DestinationUnreachable {
                    code: icmpv4::unreachable::PORT,
                    next_hop_mtu: 0,
                    original,
                });
            }
            return;
        }
        if let Ok(icmpv4::Repr::EchoRequest { identifier, sequence, data }) = icmpv4::Repr::parse(payload) {
            let link = Link { source: self.interfaces[interface].mac, destination: from };
            let reply = icmpv4::Repr::EchoReply { identifier, sequence, data };
            let Some(at) = self.answers_at(now) else { return };
            self.send(at, interface, |out| {
                compose::icmpv4(out, link, ip.destination, ip.source, ip.identification, &reply);
            });
            self.truth.echo_replies += 1;
        }
    }

    /// Takes an IPv6 packet for an address of this device or for a group.
    pub(super) fn take_own_ipv6(&mut self, arrival: Arrival, packet: &[u8]) {
        let Arrival { now, interface, from } = arrival;
        let group = packet[24] == 0xff;
        let Ok((ip, payload)) = ipv6::Repr::parse(packet) else {
            self.truth.ignored += 1;
            return;
        };
        if !group && let Some((code, pointer)) = unprocessable(packet) {
            self.truth.control += 1;
            let (kind, word) = (PARAMETER_PROBLEM, u32::from(pointer).to_be_bytes());
            self.report6(arrival, packet, |data| icmpv6::Repr::Other { kind, code, word, data });
            return;
        }
        let message = match ip.next_header {
            protocol::ICMPV6 => icmpv6::Repr::parse(payload, ip.pseudo_header_sum()).ok(),
            protocol::UDP if !group => {
                self.report6(arrival, packet, |original| icmpv6::Repr::DestinationUnreachable {
                    code: icmpv6::unreachable::PORT,
                    original,
                });
                None
            }
            TCP if !group => {
                self.take_tcp(now, interface, packet);
                None
            }
            _ => None,
        };
        match message {
            Some(icmpv6::Repr::Ndp(message)) => {
                self.truth.control += 1;
                if ip.hop_limit == 255 {
                    self.take_ndp(now, interface, ip.source, from, message);
                }
            }
            Some(icmpv6::Repr::EchoRequest { identifier, sequence, data }) if !group => {
                self.truth.control += 1;
                let link = Link { source: self.interfaces[interface].mac, destination: from };
                let reply = icmpv6::Repr::EchoReply { identifier, sequence, data };
                let Some(at) = self.answers_at(now) else { return };
                self.send(at, interface, |out| compose::icmpv6(out, link, ip.destination, ip.source, 64, &reply));
                self.truth.echo_replies += 1;
            }
            _ if group => self.truth.ignored += 1,
            _ => self.truth.control += 1,
        }
    }

    fn take_ndp(&mut self, now: Instant, interface: usize, source: Ipv6Addr, from: MacAddr, message: ndp::Repr) {
        let own = &self.interfaces[interface];
        let (mac, link_local, address) = (own.mac, own.link_local, own.ipv6.map(|a| a.0));
        match message {
            ndp::Repr::NeighborSolicitation { target, source_mac }
                if target == link_local || Some(target) == address =>
            {
                if let Some(mac) = source_mac.filter(|_| !source.is_unspecified()) {
                    self.learn(now, interface, source.into(), mac, true);
                }
                let solicited = !source.is_unspecified();
                let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
                let (to, destination) = if solicited {
                    (source, source_mac.unwrap_or(from))
                } else {
                    (all_nodes, ndp::multicast_mac(all_nodes))
                };
                let (router, over_ride, target_mac) = (true, true, Some(mac));
                let reply = ndp::Repr::NeighborAdvertisement { router, solicited, over_ride, target, target_mac };
                let link = Link { source: mac, destination };
                self.send(now, interface, |out| compose::icmpv6(out, link, target, to, 255, &icmpv6::Repr::Ndp(reply)));
                self.truth.resolution_replies += 1;
            }
            ndp::Repr::NeighborAdvertisement { over_ride, target, target_mac, .. } => {
                let known = self.neighbour(interface, target.into());
                let told = target_mac.or(known).filter(|m| over_ride || known.is_none_or(|k| k == *m));
                if let Some(mac) = told {
                    self.learn(now, interface, target.into(), mac, false);
                }
            }
            _ => {}
        }
    }
}

/// Type of "parameter problem" (RFC 4443 section 3.4).
const PARAMETER_PROBLEM: u8 = 4;

/// The first extension header of `packet` that its destination cannot process: the code of the parameter problem, and
/// the position in the packet.
fn unprocessable(packet: &[u8]) -> Option<(u8, u16)> {
    let (mut next, mut next_at, mut at) = (packet[6], 6, ipv6::LEN);
    loop {
        match next {
            // Hop-by-hop options must directly follow the fixed header (RFC 8200 section 4.1).
            0 if at > ipv6::LEN => return Some((1, next_at)),
            // A routing header of an unknown or withdrawn type with segments left (RFC 8200 section 4.4, RFC 5095).
            43 if packet.get(at + 3).is_some_and(|left| *left > 0) => return Some((0, at as u16 + 2)),
            0 | 43 | 60 => {}
            // Fragments, TCP, UDP, ICMPv6, nothing.
            44 | TCP | protocol::UDP | protocol::ICMPV6 | 59 => return None,
            _ => return Some((1, next_at)),
        }
        let [following, length] = *packet.get(at..)?.first_chunk::<2>()?;
        (next, next_at) = (following, at as u16);
        at += (usize::from(length) + 1) * 8;
    }
}

/// An LLDP frame (IEEE 802.1AB) with the three mandatory TLVs: chassis, port, time to live.
pub(super) fn lldp(out: &mut Vec<u8>, mac: MacAddr, port: usize) {
    let destination = MacAddr([0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e]);
    out.clear();
    out.resize(ethernet::MIN_WITHOUT_FCS, 0);
    ethernet::Repr { destination, source: mac, ethertype: ethertype::LLDP }.emit(out);
    let tlvs = &mut out[ethernet::LEN..];
    // Type in 7 bits, length in 9; chassis by MAC address (4), port by local number (7).
    tlvs[..3].copy_from_slice(&[1 << 1, 7, 4]);
    tlvs[3..9].copy_from_slice(&mac.0);
    let number = (port as u32).to_be_bytes();
    tlvs[9..12].copy_from_slice(&[2 << 1, 5, 7]);
    tlvs[12..16].copy_from_slice(&number);
    tlvs[16..20].copy_from_slice(&[3 << 1, 2, 0, 120]);
}
