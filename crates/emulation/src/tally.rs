//! What a port said that is no test traffic, by protocol: the idle traffic of a DUT.

use drophammer_wire::ethernet::{self, ethertype};
use drophammer_wire::ipv4::protocol;
use drophammer_wire::{ipv4, ipv6};

/// A protocol that routers speak by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// ARP.
    Arp,
    /// Neighbor Discovery (ICMPv6 types 133 to 137).
    Ndp,
    /// ICMP, and ICMPv6 that is not another entry of this list.
    Icmp,
    /// IGMP and MLD (group membership).
    Membership,
    /// OSPF, version 2 or 3.
    Ospf,
    /// TCP from or to port 179.
    Bgp,
    /// Other TCP.
    Tcp,
    /// UDP: RIP, LDP, BFD, DHCP and so on.
    Udp,
    /// LLDP.
    Lldp,
    /// Whatever else, malformed frames included.
    Other,
}

impl Protocol {
    /// All, in the order in which a table shows them.
    pub const ALL: [Protocol; 10] = [
        Protocol::Arp,
        Protocol::Ndp,
        Protocol::Icmp,
        Protocol::Membership,
        Protocol::Ospf,
        Protocol::Bgp,
        Protocol::Tcp,
        Protocol::Udp,
        Protocol::Lldp,
        Protocol::Other,
    ];

    /// Name for people.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Arp => "ARP",
            Protocol::Ndp => "ND",
            Protocol::Icmp => "ICMP",
            Protocol::Membership => "IGMP/MLD",
            Protocol::Ospf => "OSPF",
            Protocol::Bgp => "BGP",
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Lldp => "LLDP",
            Protocol::Other => "other",
        }
    }

    /// What an Ethernet frame carries. Reads the types and ports alone, checks nothing, never fails.
    pub fn of(frame: &[u8]) -> Protocol {
        let Some(packet) = frame.get(ethernet::LEN..) else { return Protocol::Other };
        match u16::from_be_bytes([frame[12], frame[13]]) {
            ethertype::ARP => Protocol::Arp,
            ethertype::LLDP => Protocol::Lldp,
            ethertype::IPV4 if packet.len() >= ipv4::LEN => {
                let header = usize::from(packet[0] & 15) * 4;
                let first = u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff == 0;
                Self::of_ip(packet[9], if first { packet.get(header..).unwrap_or(&[]) } else { &[] })
            }
            ethertype::IPV6 if packet.len() >= ipv6::LEN => {
                let rest = &packet[ipv6::LEN..];
                match (packet[6], rest) {
                    // MLD carries its router alert in a hop-by-hop header.
                    (0, [next, units, ..]) => {
                        Self::of_ip(*next, rest.get(8 + usize::from(*units) * 8..).unwrap_or(&[]))
                    }
                    (next, _) => Self::of_ip(next, rest),
                }
            }
            _ => Protocol::Other,
        }
    }

    fn of_ip(number: u8, payload: &[u8]) -> Protocol {
        const IGMP: u8 = 2;
        match number {
            protocol::ICMP => Protocol::Icmp,
            IGMP => Protocol::Membership,
            protocol::OSPF => Protocol::Ospf,
            protocol::UDP => Protocol::Udp,
            protocol::TCP => match payload {
                [a, b, c, d, ..] if [*a, *b] == [0, 179] || [*c, *d] == [0, 179] => Protocol::Bgp,
                _ => Protocol::Tcp,
            },
            protocol::ICMPV6 => match payload.first() {
                Some(133..=137) => Protocol::Ndp,
                Some(130..=132 | 143) => Protocol::Membership,
                _ => Protocol::Icmp,
            },
            _ => Protocol::Other,
        }
    }
}

/// Frames and bytes by protocol. Bytes include the FCS, as frame sizes do everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    counts: [Count; Protocol::ALL.len()],
}

/// Frames and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Frames.
    pub frames: u64,
    /// Their bytes, FCS included.
    pub bytes: u64,
}

impl Tally {
    /// Counts one frame, given without its FCS, and says what it was.
    pub fn count(&mut self, frame: &[u8]) -> Protocol {
        let protocol = Protocol::of(frame);
        let count = &mut self.counts[protocol as usize];
        count.frames += 1;
        count.bytes += frame.len() as u64 + 4;
        protocol
    }

    /// What was counted for `protocol`.
    pub fn get(&self, protocol: Protocol) -> Count {
        self.counts[protocol as usize]
    }

    /// What was counted in all.
    pub fn total(&self) -> Count {
        self.counts
            .iter()
            .fold(Count::default(), |sum, c| Count { frames: sum.frames + c.frames, bytes: sum.bytes + c.bytes })
    }

    /// Protocols that were seen, with their counts.
    pub fn seen(&self) -> impl Iterator<Item = (Protocol, Count)> + '_ {
        Protocol::ALL.into_iter().map(|p| (p, self.get(p))).filter(|(_, c)| c.frames > 0)
    }

    /// Adds the counts of another tally.
    pub fn add(&mut self, other: &Tally) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            mine.frames += theirs.frames;
            mine.bytes += theirs.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ip(number: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 34];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[23] = number;
        frame.extend_from_slice(payload);
        frame
    }

    fn ip6(number: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 54];
        frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
        frame[20] = number;
        frame.extend_from_slice(payload);
        frame
    }

    #[test]
    fn protocols_are_told_apart_and_counted() {
        let lldp = [&[0u8; 12][..], &[0x88, 0xcc, 0, 0]].concat();
        let frames = [
            (ip(89, &[]), Protocol::Ospf),
            (ip6(89, &[]), Protocol::Ospf),
            (ip(6, &[0x80, 0, 0, 179]), Protocol::Bgp),
            (ip6(6, &[0, 179, 0x80, 0]), Protocol::Bgp),
            (ip(6, &[0, 22, 0x80, 0]), Protocol::Tcp),
            (ip(17, &[0, 9]), Protocol::Udp),
            (ip(2, &[]), Protocol::Membership),
            (ip6(58, &[135]), Protocol::Ndp),
            (ip6(58, &[128]), Protocol::Icmp),
            (ip6(0, &[58, 0, 5, 2, 0, 0, 0, 0, 143]), Protocol::Membership),
            (lldp, Protocol::Lldp),
            (vec![1, 2, 3], Protocol::Other),
        ];
        let mut tally = Tally::default();
        for (frame, protocol) in &frames {
            assert_eq!(tally.count(frame), *protocol, "{frame:02x?}");
        }
        assert_eq!(tally.total().frames, frames.len() as u64);
        assert_eq!(tally.total().bytes, frames.iter().map(|(f, _)| f.len() as u64 + 4).sum::<u64>());
        assert_eq!(tally.get(Protocol::Ospf).frames, 2);
        assert_eq!(tally.seen().map(|(_, c)| c.frames).sum::<u64>(), frames.len() as u64);
    }

    #[test]
    fn order_of_all_is_that_of_the_counts() {
        for (i, protocol) in Protocol::ALL.into_iter().enumerate() {
            assert_eq!(protocol as usize, i);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(mut frame in proptest::collection::vec(any::<u8>(), 0..80), kind in 0usize..4) {
            if frame.len() > 14 {
                frame[12..14].copy_from_slice(&[[8, 0], [0x86, 0xdd], [8, 6], [0, 0]][kind]);
            }
            Protocol::of(&frame);
        }
    }
}
