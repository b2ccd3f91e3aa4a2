//! Frames that come out of an input, and what every frame that we send must be.

use super::input::Input;
use drophammer_emulation::compose::{self, Link};
use drophammer_wire::icmpv6::ndp;
use drophammer_wire::ipv4::protocol;
use drophammer_wire::{MacAddr, arp, checksum, ethernet, icmpv4, icmpv6, ipv4, ipv6, udp};
use etherparse::{LinkSlice, NetSlice, SlicedPacket, TransportSlice};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Stations that the frames are from and to.
pub struct Stations {
    pub macs: [MacAddr; 2],
    pub ipv4: [Ipv4Addr; 4],
    pub ipv6: [Ipv6Addr; 4],
}

impl Stations {
    fn mac(&self, input: &mut Input) -> MacAddr {
        match input.below(6) {
            0 | 1 => self.macs[0],
            2 | 3 => self.macs[1],
            4 => MacAddr::BROADCAST,
            _ => MacAddr([input.u8(), input.u8(), 0x5e, 0, 0, 1]),
        }
    }

    fn v4(&self, input: &mut Input) -> Ipv4Addr {
        let i = input.below(8);
        self.ipv4.get(i).copied().unwrap_or_else(|| Ipv4Addr::from_bits(input.u32()))
    }

    fn v6(&self, input: &mut Input) -> Ipv6Addr {
        match input.below(9) {
            i @ 0..4 => self.ipv6[i],
            4 => Ipv6Addr::UNSPECIFIED,
            5 => ndp::solicited_node(self.ipv6[input.below(4)]),
            6 => ndp::link_local(self.macs[input.below(2)]),
            7 => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
            _ => Ipv6Addr::from_bits(u128::from(input.u64()) << 64 | u128::from(input.u64())),
        }
    }
}

/// A frame: something between a sound one of a known kind and arbitrary bytes.
pub fn frame(input: &mut Input, stations: &Stations) -> Vec<u8> {
    let mut out = Vec::new();
    let link = Link { source: stations.mac(input), destination: stations.mac(input) };
    match input.below(8) {
        0 => {
            let len = usize::from(input.u16()) % 2_000;
            out.extend_from_slice(input.bytes(len));
        }
        1 => {
            let (operation, sender_ip, target_ip) = (input.u16() % 4, stations.v4(input), stations.v4(input));
            let (sender_mac, target_mac) = (stations.mac(input), stations.mac(input));
            let packet = arp::Repr { operation: operation.into(), sender_mac, sender_ip, target_mac, target_ip };
            compose::arp(&mut out, link, &packet);
        }
        2 => {
            let (source, destination) = (stations.v4(input), stations.v4(input));
            let (identifier, sequence, len) = (input.u16(), input.u16(), input.below(120));
            let data = input.bytes(len);
            let message = match input.below(4) {
                0 => icmpv4::Repr::EchoRequest { identifier, sequence, data },
                1 => icmpv4::Repr::EchoReply { identifier, sequence, data },
                2 => icmpv4::Repr::DestinationUnreachable { code: 4, next_hop_mtu: sequence, original: data },
                _ => icmpv4::Repr::TimeExceeded { code: 0, original: data },
            };
            compose::icmpv4(&mut out, link, source, destination, identifier, &message);
        }
        3 => {
            let (source, destination, hops) = (stations.v6(input), stations.v6(input), [255, 64, 1][input.below(3)]);
            let (identifier, sequence, len) = (input.u16(), input.u16(), input.below(120));
            let data = input.bytes(len);
            let (target, mac) = (stations.v6(input), input.flag().then(|| stations.mac(input)));
            let message = match input.below(6) {
                0 => icmpv6::Repr::EchoRequest { identifier, sequence, data },
                1 => icmpv6::Repr::EchoReply { identifier, sequence, data },
                2 => icmpv6::Repr::Ndp(ndp::Repr::NeighborSolicitation { target, source_mac: mac }),
                3 => icmpv6::Repr::Ndp(ndp::Repr::NeighborAdvertisement {
                    router: input.flag(),
                    solicited: input.flag(),
                    over_ride: input.flag(),
                    target,
                    target_mac: mac,
                }),
                4 => icmpv6::Repr::Ndp(ndp::Repr::RouterSolicitation { source_mac: mac }),
                _ => icmpv6::Repr::TimeExceeded { code: 0, original: data },
            };
            compose::icmpv6(&mut out, link, source, destination, hops, &message);
        }
        4..6 => {
            let ip = ipv4::Repr {
                tos: 0,
                identification: 7,
                dont_fragment: input.flag(),
                ttl: [64, 1, 0, 2][input.below(4)],
                protocol: protocol::UDP,
                source: stations.v4(input),
                destination: stations.v4(input),
                payload_len: udp::LEN + usize::from(input.u16() % 1_600),
            };
            out.resize(ethernet::LEN + ipv4::LEN + ip.payload_len, 0);
            header(&mut out, link, ethernet::ethertype::IPV4);
            let packet = &mut out[ethernet::LEN..];
            ip.emit(packet);
            datagram(&mut packet[ipv4::LEN..], ip.pseudo_header_sum());
        }
        _ => {
            let ip = ipv6::Repr {
                traffic_class: 0,
                flow_label: 0,
                next_header: protocol::UDP,
                hop_limit: [64, 1, 0, 2][input.below(4)],
                source: stations.v6(input),
                destination: stations.v6(input),
                payload_len: udp::LEN + usize::from(input.u16() % 1_600),
            };
            out.resize(ethernet::LEN + ipv6::LEN + ip.payload_len, 0);
            header(&mut out, link, ethernet::ethertype::IPV6);
            let packet = &mut out[ethernet::LEN..];
            ip.emit(packet);
            datagram(&mut packet[ipv6::LEN..], ip.pseudo_header_sum());
        }
    }
    match input.below(8) {
        0 => spoil(input, &mut out),
        1 => out.truncate(usize::from(input.u16()) % (out.len() + 1)),
        2 => out.resize(out.len() + input.below(64), 0x55),
        _ => {}
    }
    out
}

fn header(out: &mut [u8], link: Link, ethertype: u16) {
    ethernet::Repr { destination: link.destination, source: link.source, ethertype }.emit(out);
}

fn datagram(bytes: &mut [u8], pseudo: u64) {
    udp::Repr { source: 50_000, destination: 9 }.emit(bytes, pseudo);
}

/// Changes up to four bytes.
pub fn spoil(input: &mut Input, frame: &mut [u8]) {
    for _ in 0..=input.below(4) {
        let at = usize::from(input.u16());
        let bits = input.u8();
        if let Some(len) = std::num::NonZero::new(frame.len()) {
            frame[at % len] ^= bits;
        }
    }
}

/// A frame that we send by ourselves: etherparse reads it to its end, its checksums hold, it is as long as Ethernet asks for.
pub fn assert_sound(frame: &[u8]) {
    assert!(frame.len() >= ethernet::MIN_WITHOUT_FCS, "{} bytes", frame.len());
    let sliced = SlicedPacket::from_ethernet(frame).unwrap_or_else(|e| panic!("{e}: {frame:02x?}"));
    let Some(LinkSlice::Ethernet2(link)) = &sliced.link else { panic!("no Ethernet") };
    assert_eq!(link.source()[0] & 1, 0, "from a group address: {frame:02x?}");
    assert_checksums(frame);
    match (&sliced.net, &sliced.transport) {
        (Some(NetSlice::Arp(packet)), None) => assert_eq!(packet.sender_hw_addr(), link.source()),
        (Some(NetSlice::Ipv4(_)), Some(TransportSlice::Icmpv4(message))) => {
            assert_eq!(checksum::fold(checksum::sum(message.slice())), 0xffff);
        }
        (Some(NetSlice::Ipv6(_)), Some(TransportSlice::Icmpv6(message))) => {
            let (ip, _) = ipv6::Repr::parse(&frame[ethernet::LEN..]).unwrap();
            assert_eq!(checksum::fold(ip.pseudo_header_sum() + checksum::sum(message.slice())), 0xffff);
        }
        (None, None) if u16::from(link.ether_type()) == ethernet::ethertype::LLDP => {}
        other => panic!("neither ARP nor ICMP nor LLDP: {other:?}"),
    }
}

/// Any frame that leaves a router: lengths of the IP header fit, and that of IPv4 has its checksum.
pub fn assert_checksums(frame: &[u8]) {
    let packet = &frame[ethernet::LEN..];
    match u16::from_be_bytes([frame[12], frame[13]]) {
        ethernet::ethertype::IPV4 => {
            let header = usize::from(packet[0] & 15) * 4;
            let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
            assert!(header >= ipv4::LEN && total >= header && total <= packet.len(), "{frame:02x?}");
            assert_eq!(checksum::fold(checksum::sum(&packet[..header])), 0xffff, "{frame:02x?}");
        }
        ethernet::ethertype::IPV6 => {
            ipv6::Repr::parse(packet).unwrap_or_else(|e| panic!("{e}: {frame:02x?}"));
        }
        _ => {}
    }
}
