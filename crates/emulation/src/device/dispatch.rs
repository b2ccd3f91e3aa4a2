//! Dispatches a received frame to the protocols of a device.

use super::{Bound, Device, Link, Out};
use crate::protocol::{Input, Match, Output, Packet};
use crate::tcp::{ConnectionId, TcpStack};
use drophammer_model::Instant;
use drophammer_wire::ethernet::ethertype;
use drophammer_wire::icmpv6::ndp;
use drophammer_wire::ipv4::protocol;
use drophammer_wire::{MacAddr, Malformed, ipv4, ipv6, udp};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::tags::Tags;

/// Smallest EtherType; smaller values are the length of an 802.3 frame.
const LEAST_ETHERTYPE: u16 = 1536;

/// A received frame after its tags.
#[derive(Clone, Copy)]
pub(super) struct Arrived<'a> {
    pub destination: MacAddr,
    pub source: MacAddr,
    /// The tags of the frame, without priority tags.
    pub tags: Tags,
    /// EtherType or length.
    pub kind: u16,
    pub payload: &'a [u8],
}

impl<'a> Arrived<'a> {
    /// Reads the link layer of a frame; `None` if it ends before its EtherType.
    #[inline]
    pub fn read(frame: &'a [u8]) -> Option<Arrived<'a>> {
        let (tags, kind, payload) = Tags::read(frame)?;
        let mac = |at: usize| frame.get(at..)?.first_chunk().copied().map(MacAddr);
        Some(Arrived { destination: mac(0)?, source: mac(6)?, tags, kind, payload })
    }
}

impl Device {
    /// Handles a frame that arrived at `now`, and sends immediate answers. Returns false if the frame is not for this
    /// device.
    pub fn receive(&mut self, now: Instant, frame: &[u8], frames: Out<'_>) -> bool {
        let Some(arrived) = Arrived::read(frame) else {
            self.link.oddities.malformed += 1;
            return false;
        };
        let mine = arrived.tags == self.link.tags.vlans()
            && (arrived.destination == self.link.mac || arrived.destination.is_group());
        if mine {
            self.take(now, &arrived, frames);
        }
        mine
    }

    /// Handles a frame with the tags of the device that is addressed to the device or a group.
    ///
    /// The device is the end of every label-switched path to it, so it takes packets with any labels.
    pub(super) fn take(&mut self, now: Instant, arrived: &Arrived<'_>, frames: Out<'_>) {
        let unlabelled;
        let arrived = match arrived.kind {
            ethertype::MPLS => match without_labels(arrived.payload) {
                Some((kind, payload)) => {
                    unlabelled = Arrived { kind, payload, ..*arrived };
                    &unlabelled
                }
                None => return self.link.oddities.malformed += 1,
            },
            _ => arrived,
        };
        let group = arrived.destination.is_group();
        if matches!(arrived.kind, ethertype::IPV4 | ethertype::IPV6) && !group && self.tcp.receive(now, arrived.payload)
        {
            // Protocols process received data immediately; answers wait for the next poll.
            self.tcp_news(now, frames, false);
            return;
        }
        let Device { link, tcp, protocols, .. } = self;
        let done = match arrived.kind {
            ethertype::IPV4 => take_ipv4(now, arrived, link, tcp, protocols, frames),
            ethertype::IPV6 => take_ipv6(now, arrived, link, tcp, protocols, frames),
            kind => {
                let (wanted, payload) = match arrived.payload {
                    payload if kind >= LEAST_ETHERTYPE => (Match::EtherType(kind), payload),
                    payload => {
                        let payload = &payload[..payload.len().min(usize::from(kind))];
                        (Match::Llc(payload.first().copied().unwrap_or(0)), payload)
                    }
                };
                let Arrived { source, destination, .. } = *arrived;
                let input = Input::Frame { source, destination, payload };
                give(now, protocols, &mut Output { tcp, link, frames }, wanted, input);
                Ok(())
            }
        };
        if done.is_err() {
            self.link.oddities.malformed += 1;
        }
        self.neighbour_news(now, frames);
    }

    /// Informs protocols of new and changed connections. Only a poll accepts connections.
    pub(super) fn tcp_news(&mut self, now: Instant, frames: Out<'_>, accept: bool) {
        let Device { link, tcp, protocols, ready, .. } = self;
        while accept && let Some((listener, connection)) = tcp.accept_any() {
            let wanted = tcp.listener(listener).map(|at| Match::TcpPort(at.port()));
            match protocols.iter_mut().find(|bound| wanted.is_some_and(|w| bound.matches.contains(&w))) {
                Some(bound) => {
                    let mut out = Output { tcp, link, frames };
                    bound.protocol.receive(now, Input::Accepted { listener, connection }, &mut out);
                }
                None => {
                    tcp.abort(connection);
                    tcp.remove(connection);
                }
            }
        }
        tcp.take_ready(ready);
        if !ready.is_empty() {
            tell(now, protocols, &mut Output { tcp, link, frames }, ready);
        }
    }

    /// Informs protocols of newly resolved neighbours.
    pub(super) fn neighbour_news(&mut self, now: Instant, frames: Out<'_>) {
        let Device { link, tcp, protocols, .. } = self;
        while let Some(address) = link.neighbours.take_changed() {
            let mut out = Output { tcp, link, frames };
            give(now, protocols, &mut out, Match::Neighbour, Input::Neighbour(address));
        }
    }
}

/// The EtherType of the packet below a label stack (RFC 3032 section 2.1), and the packet; `None` if there is neither an IPv4 nor an
/// IPv6 packet.
fn without_labels(payload: &[u8]) -> Option<(u16, &[u8])> {
    let entries = payload.chunks_exact(4).position(|entry| entry[2] & 1 == 1)? + 1;
    let packet = &payload[4 * entries..];
    match packet.first()? >> 4 {
        4 => Some((ethertype::IPV4, packet)),
        6 => Some((ethertype::IPV6, packet)),
        _ => None,
    }
}

fn tell(now: Instant, protocols: &mut [Bound], out: &mut Output<'_>, ready: &[ConnectionId]) {
    for bound in protocols {
        if bound.matches.iter().any(|m| matches!(m, Match::TcpPort(_))) {
            bound.protocol.receive(now, Input::Connections(ready), out);
        }
    }
}

/// Passes an input to all protocols that match `wanted`.
fn give(now: Instant, protocols: &mut [Bound], out: &mut Output<'_>, wanted: Match, input: Input<'_>) {
    for bound in protocols {
        if bound.matches.contains(&wanted) {
            bound.protocol.receive(now, input, out);
        }
    }
}

/// True if any protocol has joined this group.
fn joined(protocols: &[Bound], group: IpAddr) -> bool {
    protocols.iter().any(|bound| bound.matches.contains(&Match::Group(group)))
}

fn take_ipv4(
    now: Instant,
    arrived: &Arrived<'_>,
    link: &mut Link,
    tcp: &mut TcpStack,
    protocols: &mut [Bound],
    frames: Out<'_>,
) -> Result<(), Malformed> {
    if link.addresses.ipv4.is_none() {
        return Ok(());
    }
    let whole;
    let mut packet = arrived.payload;
    // Fragments of protocols other than OSPF, which `parse` refuses, and packets for other hosts are legitimate, but the
    // device does not handle them.
    let mut alert = None;
    if packet.len() >= ipv4::LEN {
        let to = Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19]);
        let mine = link.addresses.owns_v4(to) || to.is_broadcast() || to.is_multicast() && joined(protocols, to.into());
        alert = (!mine).then_some(Match::RouterAlert(packet[9]));
        let examined = |wanted| ipv4::has_router_alert(packet) && protocols.iter().any(|p| p.matches.contains(&wanted));
        if alert.is_some_and(|wanted| !examined(wanted)) {
            return Ok(());
        }
        if u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0 {
            let ospf = Match::IpProtocol(protocol::OSPF);
            let wanted = packet[9] == protocol::OSPF && protocols.iter().any(|bound| bound.matches.contains(&ospf));
            let Some(complete) = wanted.then(|| link.fragments.take(now, packet)).flatten() else { return Ok(()) };
            whole = complete;
            packet = &whole;
        }
    }
    let (ip, payload) = ipv4::Repr::parse(packet)?;
    let packet = Packet {
        link_source: arrived.source,
        source: ip.source.into(),
        destination: ip.destination.into(),
        protocol: ip.protocol,
        hop_limit: ip.ttl,
        identification: ip.identification,
        payload,
        pseudo_sum: ip.pseudo_header_sum(),
    };
    if let Some(alert) = alert {
        give(now, protocols, &mut Output { tcp, link, frames }, alert, Input::Packet(packet));
        return Ok(());
    }
    let icmp = payload.first().filter(|_| ip.protocol == protocol::ICMP).map(|kind| Match::Icmp(*kind));
    take_packet(now, packet, icmp, protocols, &mut Output { tcp, link, frames })
}

fn take_ipv6(
    now: Instant,
    arrived: &Arrived<'_>,
    link: &mut Link,
    tcp: &mut TcpStack,
    protocols: &mut [Bound],
    frames: Out<'_>,
) -> Result<(), Malformed> {
    if link.addresses.ipv6.is_none() {
        return Ok(());
    }
    let (ip, payload) = ipv6::Repr::parse(arrived.payload)?;
    let group = |to: Ipv6Addr| to == ALL_NODES || is_solicited_node(to) || joined(protocols, to.into());
    if !(link.addresses.owns_v6(ip.destination) || ip.destination.is_multicast() && group(ip.destination)) {
        return Ok(());
    }
    let packet = Packet {
        link_source: arrived.source,
        source: ip.source.into(),
        destination: ip.destination.into(),
        protocol: ip.next_header,
        hop_limit: ip.hop_limit,
        identification: 0,
        payload,
        pseudo_sum: ip.pseudo_header_sum(),
    };
    let icmp = payload.first().filter(|_| ip.next_header == protocol::ICMPV6).map(|kind| Match::Icmpv6(*kind));
    take_packet(now, packet, icmp, protocols, &mut Output { tcp, link, frames })
}

fn take_packet(
    now: Instant,
    packet: Packet<'_>,
    icmp: Option<Match>,
    protocols: &mut [Bound],
    out: &mut Output<'_>,
) -> Result<(), Malformed> {
    if let Some(icmp) = icmp {
        give(now, protocols, out, icmp, Input::Packet(packet));
    }
    give(now, protocols, out, Match::IpProtocol(packet.protocol), Input::Packet(packet));
    let udp_wanted = |bound: &Bound| bound.matches.iter().any(|m| matches!(m, Match::UdpPort(_)));
    if packet.protocol == protocol::UDP && protocols.iter().any(udp_wanted) {
        let parse = if packet.source.is_ipv4() { udp::Repr::parse_ipv4 } else { udp::Repr::parse };
        let (header, payload) = parse(packet.payload, packet.pseudo_sum)?;
        let packet = Packet { payload, ..packet };
        let input = Input::Datagram { packet, source: header.source, destination: header.destination };
        give(now, protocols, out, Match::UdpPort(header.destination), input);
    }
    Ok(())
}

/// The group of all nodes of a link (RFC 4291 section 2.7.1).
pub(super) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// True for a solicited-node multicast group (RFC 4291 section 2.7.1).
pub(super) fn is_solicited_node(group: Ipv6Addr) -> bool {
    ndp::solicited_node(group) == group
}
