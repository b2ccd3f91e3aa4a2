//! Interface of a protocol to its device: sending frames, packets and TCP, and access to link and addresses.

use super::addresses::Addresses;
use super::fragments::Fragments;
use super::neighbours::Neighbours;
use super::tags::Tags;
use crate::tcp::TcpStack;
use drophammer_model::Instant;
use drophammer_wire::ethernet::{self, ethertype};
use drophammer_wire::{MacAddr, ipv4, ipv6, udp};
use std::net::IpAddr;

/// Traffic class of datagrams: CS6, which routers use for control protocols (RFC 4594 section 3.2).
const CS6: u8 = 0xc0;

/// Counts of frames that a device could not handle, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oddities {
    /// The frame is malformed, or has a wrong checksum.
    pub malformed: u64,
    /// Another station claims an address of this device.
    pub conflicts: u64,
}

/// The link layer of a device.
pub(super) struct Link {
    pub mac: MacAddr,
    pub tags: Tags,
    pub addresses: Addresses,
    pub neighbours: Neighbours,
    pub oddities: Oddities,
    pub fragments: Fragments,
    /// Reused memory of one frame.
    pub scratch: Vec<u8>,
}

/// A device as seen by its protocols.
pub struct Output<'a> {
    /// TCP of the device.
    pub tcp: &'a mut TcpStack,
    pub(super) link: &'a mut Link,
    pub(super) frames: &'a mut dyn FnMut(&[u8]),
}

impl Output<'_> {
    /// MAC address of the device.
    pub fn mac(&self) -> MacAddr {
        self.link.mac
    }

    /// Addresses of the device.
    pub fn addresses(&self) -> &Addresses {
        &self.link.addresses
    }

    /// The neighbours on the link.
    pub fn neighbours(&mut self) -> &mut Neighbours {
        &mut self.link.neighbours
    }

    /// Counts a malformed input.
    pub fn malformed(&mut self) {
        self.link.oddities.malformed += 1;
    }

    /// Counts a conflict: another station claims an address of this device.
    pub fn conflict(&mut self) {
        self.link.oddities.conflicts += 1;
    }

    /// Sends a frame of `len` bytes of payload, which is zeroed first and filled by `write`. The device adds addresses,
    /// tags and padding.
    pub fn frame(&mut self, destination: MacAddr, ethertype: u16, len: usize, write: impl FnOnce(&mut [u8])) {
        let Link { mac, tags, scratch, .. } = &mut *self.link;
        let header = ethernet::LEN + tags.len_bytes();
        scratch.clear();
        scratch.resize((header + len).max(ethernet::MIN_WITHOUT_FCS), 0);
        scratch[..6].copy_from_slice(&destination.0);
        scratch[6..12].copy_from_slice(&mac.0);
        let at = tags.write(scratch, ethertype);
        write(&mut scratch[at..at + len]);
        (self.frames)(scratch);
    }

    /// Sends an IPv4 packet to the station `to` on the link; `write` fills the payload of `header.payload_len` bytes.
    pub fn ipv4(&mut self, to: MacAddr, header: &ipv4::Repr, write: impl FnOnce(&mut [u8])) {
        self.frame(to, ethertype::IPV4, ipv4::LEN + header.payload_len, |packet| {
            header.emit(packet);
            write(&mut packet[ipv4::LEN..]);
        });
    }

    /// Sends an IPv6 packet to the station `to` on the link; `write` fills the payload of `header.payload_len` bytes.
    pub fn ipv6(&mut self, to: MacAddr, header: &ipv6::Repr, write: impl FnOnce(&mut [u8])) {
        self.frame(to, ethertype::IPV6, ipv6::LEN + header.payload_len, |packet| {
            header.emit(packet);
            write(&mut packet[ipv6::LEN..]);
        });
    }

    /// Sends a whole IP packet to its destination: directly to a multicast group or an address on the link, through the gateway to
    /// any other address. If the station is not resolved yet, drops the packet, resolves the station, and returns false.
    pub fn packet(&mut self, packet: &[u8]) -> bool {
        send_packet(self.link, self.frames, packet)
    }

    /// Sends a UDP datagram of a control protocol with TTL or hop limit `hop_limit`. Both addresses must belong to the same family. If the
    /// next hop is not resolved yet, or the families differ, drops the datagram and returns false.
    pub fn udp(&mut self, ends: [(IpAddr, u16); 2], hop_limit: u8, data: &[u8]) -> bool {
        let [(source, source_port), (destination, port)] = ends;
        let repr = udp::Repr { source: source_port, destination: port };
        let payload_len = udp::LEN + data.len();
        let mut packet;
        let (header, sum) = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                packet = vec![0; ipv4::LEN + payload_len];
                let ip = ipv4::Repr {
                    tos: CS6,
                    identification: 0,
                    dont_fragment: true,
                    ttl: hop_limit,
                    protocol: ipv4::protocol::UDP,
                    source,
                    destination,
                    payload_len,
                };
                ip.emit(&mut packet);
                (ipv4::LEN, ip.pseudo_header_sum())
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                packet = vec![0; ipv6::LEN + payload_len];
                let ip = ipv6::Repr {
                    traffic_class: CS6,
                    flow_label: 0,
                    next_header: ipv4::protocol::UDP,
                    hop_limit,
                    source,
                    destination,
                    payload_len,
                };
                ip.emit(&mut packet);
                (ipv6::LEN, ip.pseudo_header_sum())
            }
            _ => return false,
        };
        packet[header + udp::LEN..].copy_from_slice(data);
        repr.emit(&mut packet[header..], sum);
        self.packet(&packet)
    }

    /// Makes TCP send due and waiting segments.
    pub fn send_tcp(&mut self, now: Instant) {
        let Output { tcp, link, frames } = self;
        tcp.poll(now, &mut |packet| {
            send_packet(link, frames, packet);
        });
    }
}

/// See [`Output::packet`].
fn send_packet(link: &mut Link, frames: &mut dyn FnMut(&[u8]), packet: &[u8]) -> bool {
    let Some(destination) = destination(packet) else { return false };
    let Some(to) = link.neighbours.next_hop(&link.addresses, destination) else { return false };
    let ethertype = if destination.is_ipv4() { ethertype::IPV4 } else { ethertype::IPV6 };
    let Link { mac, tags, scratch, .. } = link;
    let header = ethernet::LEN + tags.len_bytes();
    scratch.resize((header + packet.len()).max(ethernet::MIN_WITHOUT_FCS), 0);
    scratch[..6].copy_from_slice(&to.0);
    scratch[6..12].copy_from_slice(&mac.0);
    let at = tags.write(scratch, ethertype);
    scratch[at..at + packet.len()].copy_from_slice(packet);
    scratch[at + packet.len()..].fill(0);
    frames(scratch);
    true
}

/// Destination address of an IP packet.
#[inline]
fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(IpAddr::from(*packet.get(16..)?.first_chunk::<4>()?)),
        6 => Some(IpAddr::from(*packet.get(24..)?.first_chunk::<16>()?)),
        _ => None,
    }
}
