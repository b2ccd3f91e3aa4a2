//! Parses the fields of received packets that dispatching needs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Protocol number of TCP in IPv4 and IPv6.
const TCP: u8 = 6;
/// Length of the TCP header without options.
const TCP_LEN: usize = 20;

/// Both ends of a connection, as seen from this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tuple {
    pub local: IpAddr,
    pub local_port: u16,
    pub remote: IpAddr,
    pub remote_port: u16,
}

/// A received TCP segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment<'a> {
    pub tuple: Tuple,
    /// True if RST is set.
    pub reset: bool,
    /// True for SYN without ACK and RST: the first segment of a connection.
    pub opens: bool,
    /// The IP packet without the bytes after it in the frame.
    pub packet: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Reads an IP packet that carries a whole TCP header; `None` for anything else, including fragments and IPv6
    /// extension headers. Checksums are verified later, when the segment is processed.
    pub fn read(packet: &'a [u8]) -> Option<Segment<'a>> {
        let (local, remote, header, len) = match packet.first()? >> 4 {
            4 => read_ipv4(packet)?,
            6 => read_ipv6(packet)?,
            _ => return None,
        };
        let packet = packet.get(..len)?;
        let tcp = packet.get(header..)?;
        if tcp.len() < TCP_LEN {
            return None;
        }
        let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let flags = tcp[13];
        let (syn, reset, ack) = (flags & 2 != 0, flags & 4 != 0, flags & 16 != 0);
        let tuple = Tuple { local, local_port: port(2), remote, remote_port: port(0) };
        (tuple.local_port != 0 && tuple.remote_port != 0).then_some(Segment {
            tuple,
            reset,
            opens: syn && !reset && !ack,
            packet,
        })
    }
}

/// Tracks how much of its data a connection has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    /// Sequence number after the last sent byte.
    next: u32,
    /// Bytes of data sent, each counted once.
    pub bytes: u64,
}

impl Sent {
    /// Records one of our own packets, as the stack wrote it.
    pub fn note(&mut self, packet: &[u8]) {
        let header = match packet.first().map(|b| b >> 4) {
            Some(4) => usize::from(packet[0] & 15) * 4,
            _ => 40,
        };
        let Some(tcp) = packet.get(header..).filter(|tcp| tcp.len() >= TCP_LEN) else { return };
        let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
        if tcp[13] & 2 != 0 {
            // A SYN uses one sequence number; our SYNs carry no data.
            *self = Sent { next: sequence.wrapping_add(1), bytes: 0 };
            return;
        }
        let data = tcp.len().saturating_sub(usize::from(tcp[12] >> 4) * 4);
        // Retransmissions end before `next`; an RST may have any sequence number and carries no data.
        let ahead = sequence.wrapping_add(data as u32).wrapping_sub(self.next);
        if data > 0 && ahead as i32 > 0 {
            self.next = self.next.wrapping_add(ahead);
            self.bytes += u64::from(ahead);
        }
    }
}

/// Destination, source, length of the header, length of the packet.
type Ends = (IpAddr, IpAddr, usize, usize);

fn read_ipv4(packet: &[u8]) -> Option<Ends> {
    let at = |i: usize| packet.get(i..i + 4).map(|b| Ipv4Addr::new(b[0], b[1], b[2], b[3]));
    let (source, destination) = (at(12)?, at(16)?);
    let header = usize::from(packet[0] & 15) * 4;
    let len = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    // The packet has more fragments, or a fragment offset.
    let fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0;
    (header >= 20 && packet[9] == TCP && !fragment).then_some((destination.into(), source.into(), header, len))
}

fn read_ipv6(packet: &[u8]) -> Option<Ends> {
    let at = |i: usize| packet.get(i..i + 16).and_then(|b| <[u8; 16]>::try_from(b).ok()).map(Ipv6Addr::from);
    let (source, destination) = (at(8)?, at(24)?);
    let len = 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]]));
    (packet[6] == TCP).then_some((destination.into(), source.into(), 40, len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    #[test]
    fn reads_what_the_oracle_builds() {
        let mut packet = Vec::new();
        PacketBuilder::ipv4([198, 18, 0, 2], [198, 18, 0, 1], 64)
            .tcp(1000, 179, 7, 100)
            .syn()
            .write(&mut packet, b"abc")
            .unwrap();
        let len = packet.len();
        packet.extend_from_slice(&[0; 9]);
        let segment = Segment::read(&packet).unwrap();
        assert_eq!(segment.packet.len(), len);
        assert!(segment.opens && !segment.reset);
        let tuple = Tuple {
            local: "198.18.0.1".parse().unwrap(),
            local_port: 179,
            remote: "198.18.0.2".parse().unwrap(),
            remote_port: 1000,
        };
        assert_eq!(segment.tuple, tuple);
        packet[6] |= 0x20;
        assert!(Segment::read(&packet).is_none(), "a fragment");

        let mut packet = Vec::new();
        let [a, b] = [1, 2].map(|n| Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, n).octets());
        PacketBuilder::ipv6(a, b, 64).tcp(1000, 179, 7, 100).rst().ack(3).write(&mut packet, b"").unwrap();
        let segment = Segment::read(&packet).unwrap();
        assert!(!segment.opens && segment.reset);
        assert_eq!((segment.tuple.local, segment.tuple.remote), (IpAddr::from(b), IpAddr::from(a)));
        assert!(Segment::read(&packet[..packet.len() - 1]).is_none(), "cut off");
    }

    #[test]
    fn bytes_that_are_sent_again_count_once() {
        let mut sent = Sent::default();
        let mut send = |sequence: u32, syn: bool, data: &[u8]| {
            let mut packet = Vec::new();
            let tcp = PacketBuilder::ipv4([198, 18, 0, 2], [198, 18, 0, 1], 64).tcp(1000, 179, sequence, 100);
            if syn { tcp.syn().write(&mut packet, data) } else { tcp.ack(1).write(&mut packet, data) }.unwrap();
            sent.note(&packet);
            sent.bytes
        };
        // This passes the wrap of sequence numbers.
        assert_eq!((send(u32::MAX - 3, true, b""), send(u32::MAX - 2, false, b"12345")), (0, 5));
        assert_eq!((send(u32::MAX - 2, false, b"12345"), send(1, false, b"2"), send(2, false, b"")), (5, 5, 5));
        assert_eq!((send(1, false, b"xyz"), send(4, false, b"!")), (7, 8));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(mut packet in proptest::collection::vec(any::<u8>(), 0..80), version in 0u8..4) {
            if let Some(first) = packet.first_mut().filter(|_| version > 0) {
                *first = [0x45, 0x46, 0x60][usize::from(version - 1)];
            }
            if let Some(segment) = Segment::read(&packet) {
                prop_assert!(segment.packet.len() <= packet.len());
            }
        }
    }
}
