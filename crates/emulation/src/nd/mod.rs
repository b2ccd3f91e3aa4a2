//! Neighbor Discovery for IPv6 (RFC 4861): answers solicitations for the addresses of its device, including
//! solicitations of duplicate address detection, and keeps the gateway and other neighbours resolved.

use crate::arp::Concerns;
use crate::device::DeviceConfig;
use crate::device::resolution::{Ask, Resolver};
use crate::protocol::{Command, Input, Match, Output, Packet, Protocol, Refused, State};
use drophammer_model::Instant;
use drophammer_wire::icmpv6::{self, ndp};
use drophammer_wire::ipv4::protocol;
use drophammer_wire::{MacAddr, Malformed, ipv6};
use std::net::{IpAddr, Ipv6Addr};

const NAME: &str = "nd";
/// ICMPv6 types of router and neighbor solicitations and advertisements, and of redirects (RFC 4861 section 4).
const MATCHES: [Match; 5] =
    [Match::Icmpv6(133), Match::Icmpv6(134), Match::Icmpv6(135), Match::Icmpv6(136), Match::Icmpv6(137)];
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Neighbor Discovery of one device.
pub struct Nd {
    /// The device's own address; without an address, Neighbor Discovery is silent.
    own: Option<Ipv6Addr>,
    resolver: Resolver,
    solicitations_answered: u64,
    solicitations_sent: u64,
}

impl Nd {
    /// Neighbor Discovery for `device`. It solicits the gateway at the first poll.
    pub fn new(device: &DeviceConfig) -> Nd {
        let gateway = device.ipv6.map(|a| a.gateway.into());
        Nd {
            own: device.ipv6.map(|a| a.address),
            resolver: Resolver::new(gateway),
            solicitations_answered: 0,
            solicitations_sent: 0,
        }
    }

    fn take(&mut self, now: Instant, packet: &Packet<'_>, out: &mut Output<'_>) -> Result<(), Malformed> {
        let (Some(_), IpAddr::V6(source)) = (self.own, packet.source) else { return Ok(()) };
        let icmpv6::Repr::Ndp(message) = icmpv6::Repr::parse(packet.payload, packet.pseudo_sum)? else { return Ok(()) };
        if packet.hop_limit != 255 {
            return Err(Malformed::new("ndp", "hop limit is not 255"));
        }
        match message {
            ndp::Repr::NeighborSolicitation { target, source_mac } => {
                if let Some(mac) = source_mac {
                    self.resolver.confirm(now, source.into(), mac, out.neighbours());
                }
                if out.addresses().owns_v6(target) {
                    self.solicitations_answered += 1;
                    answer(source, source_mac.unwrap_or(packet.link_source), target, out);
                }
            }
            ndp::Repr::NeighborAdvertisement { over_ride, target, target_mac, .. } => {
                if out.addresses().owns_v6(target) {
                    if packet.link_source != out.mac() {
                        out.conflict();
                    }
                    return Ok(());
                }
                // The answer to a unicast solicitation may lack the option; it then confirms the known address. A
                // different address counts only with the override flag (RFC 4861 section 7.2.5).
                let known = out.neighbours().get(target.into()).map(|n| n.mac);
                if let Some(mac) = target_mac.or(known).filter(|m| over_ride || known.is_none_or(|k| k == *m)) {
                    self.resolver.confirm(now, target.into(), mac, out.neighbours());
                }
            }
            ndp::Repr::RouterSolicitation { .. } | ndp::Repr::RouterAdvertisement(_) => {}
        }
        Ok(())
    }
}

/// Advertises `target` to `source`, whose MAC address is `mac`.
fn answer(source: Ipv6Addr, mac: MacAddr, target: Ipv6Addr, out: &mut Output<'_>) {
    // Duplicate address detection sends from the unspecified address; the answer goes to all nodes (RFC 4861 section
    // 7.2.4).
    let solicited = !source.is_unspecified();
    let (to, mac) = if solicited { (source, mac) } else { (ALL_NODES, ndp::multicast_mac(ALL_NODES)) };
    let (router, over_ride, target_mac) = (false, true, Some(out.mac()));
    send(out, mac, [target, to], ndp::Repr::NeighborAdvertisement { router, solicited, over_ride, target, target_mac });
}

fn send(out: &mut Output<'_>, to: MacAddr, [source, destination]: [Ipv6Addr; 2], message: ndp::Repr) {
    let message = icmpv6::Repr::Ndp(message);
    let header = ipv6::Repr {
        traffic_class: 0,
        flow_label: 0,
        next_header: protocol::ICMPV6,
        hop_limit: 255,
        source,
        destination,
        payload_len: message.message_len(),
    };
    out.ipv6(to, &header, |payload| message.emit(payload, header.pseudo_header_sum()));
}

/// Reads the addresses in a message to a group, given as the IPv6 packet that carries it; `None` if it is not a
/// neighbor solicitation or advertisement.
pub fn concerns(packet: &[u8]) -> Option<Concerns> {
    let (ip, message) = ipv6::Repr::parse(packet).ok()?;
    if ip.next_header != protocol::ICMPV6 || !matches!(message.first(), Some(135 | 136)) {
        return None;
    }
    let icmpv6::Repr::Ndp(message) = icmpv6::Repr::parse(message, ip.pseudo_header_sum()).ok()? else { return None };
    let sender = ip.source.into();
    match message {
        ndp::Repr::NeighborSolicitation { target, .. } => {
            Some(Concerns { target: target.into(), sender, announcement: false })
        }
        ndp::Repr::NeighborAdvertisement { target, .. } => {
            Some(Concerns { target: target.into(), sender: target.into(), announcement: true })
        }
        _ => None,
    }
}

impl Protocol for Nd {
    fn name(&self) -> &'static str {
        NAME
    }

    fn matches(&self) -> &[Match] {
        &MATCHES
    }

    fn receive(&mut self, now: Instant, input: Input<'_>, out: &mut Output<'_>) {
        if let Input::Packet(packet) = input
            && self.take(now, &packet, out).is_err()
        {
            out.malformed();
        }
    }

    fn poll(&mut self, now: Instant, _: usize, out: &mut Output<'_>) {
        let Some(own) = self.own else { return };
        for (address, ask) in self.resolver.poll(now, true, out.neighbours()) {
            let IpAddr::V6(target) = address else { continue };
            let group = ndp::solicited_node(target);
            let (mac, to) = match ask {
                Ask::Everybody => (ndp::multicast_mac(group), group),
                Ask::Unicast(mac) => (mac, target),
            };
            self.solicitations_sent += 1;
            let source_mac = Some(out.mac());
            send(out, mac, [own, to], ndp::Repr::NeighborSolicitation { target, source_mac });
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.resolver.next_deadline()
    }

    fn command(&mut self, _: Instant, _: &Command) -> Result<(), Refused> {
        Err(Refused::unknown(NAME))
    }

    fn state(&self) -> State {
        State {
            sessions: self.resolver.len() as u32,
            up: self.resolver.resolved() as u32,
            counters: vec![
                ("solicitations_sent", self.solicitations_sent),
                ("solicitations_answered", self.solicitations_answered),
            ],
        }
    }
}
