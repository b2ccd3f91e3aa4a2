//! Reassembles IPv4 packets from fragments (RFC 791 section 3.2). Only OSPF needs this: it sends packets that are longer than a frame in IP
//! fragments (RFC 2328 section A.1).

use drophammer_model::Instant;
use drophammer_wire::{checksum, ipv4};
use std::time::Duration;

/// Maximum number of incomplete packets. A new one replaces the oldest.
const MOST_PACKETS: usize = 8;
/// Maximum number of fragments of a packet.
const MOST_PARTS: usize = 128;
/// Maximum length of a packet after its header, in bytes.
const MOST_BYTES: usize = 65_535 - ipv4::LEN;
/// How long the rest of a packet may take.
const LIFETIME: Duration = Duration::from_secs(15);

/// A packet of which some fragments have arrived.
struct Incomplete {
    /// Source, destination and identification.
    of: ([u8; 8], [u8; 2]),
    begun: Instant,
    /// The header of the first fragment; empty before it arrives.
    header: Vec<u8>,
    /// Fragments: position and data.
    parts: Vec<(usize, Vec<u8>)>,
    /// Number of bytes after the header; known from the last fragment.
    length: Option<usize>,
}

/// Incomplete packets, the oldest first.
#[derive(Default)]
pub(super) struct Fragments {
    packets: Vec<Incomplete>,
}

impl Fragments {
    /// Takes a fragment with at least 20 bytes. Returns the whole packet if this was the last missing fragment. Malformed fragments are
    /// dropped, and fragments that overlap never become a packet.
    pub fn take(&mut self, now: Instant, packet: &[u8]) -> Option<Vec<u8>> {
        let header = usize::from(packet[0] & 15) * 4;
        let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
        let whole = packet[0] >> 4 == 4 && header >= ipv4::LEN && (header + 1..=packet.len()).contains(&total);
        if !whole || checksum::fold(checksum::sum(&packet[..header])) != 0xffff {
            return None;
        }
        let word = u16::from_be_bytes([packet[6], packet[7]]);
        let (more, at, data) = (word & 0x2000 != 0, usize::from(word & 0x1fff) * 8, &packet[header..total]);
        if more && !data.len().is_multiple_of(8) || at + data.len() > MOST_BYTES {
            return None;
        }
        self.packets.retain(|packet| now.since(packet.begun) < LIFETIME);
        let of = (*packet[12..].first_chunk::<8>()?, [packet[4], packet[5]]);
        let known = self.packets.iter().position(|packet| packet.of == of);
        let number = known.unwrap_or_else(|| {
            if self.packets.len() == MOST_PACKETS {
                self.packets.remove(0);
            }
            self.packets.push(Incomplete { of, begun: now, header: Vec::new(), parts: Vec::new(), length: None });
            self.packets.len() - 1
        });
        let incomplete = &mut self.packets[number];
        if incomplete.parts.iter().any(|(known, _)| *known == at) {
            return None;
        }
        let held: usize = incomplete.parts.iter().map(|(_, data)| data.len()).sum();
        if incomplete.parts.len() == MOST_PARTS || held + data.len() > MOST_BYTES {
            self.packets.remove(number);
            return None;
        }
        if at == 0 {
            incomplete.header = packet[..header].to_vec();
        }
        if !more {
            incomplete.length = Some(at + data.len());
        }
        incomplete.parts.push((at, data.to_vec()));
        if incomplete.length != Some(held + data.len()) {
            return None;
        }
        self.packets.remove(number).join()
    }
}

impl Incomplete {
    /// The packet; `None` if the fragments overlap.
    fn join(mut self) -> Option<Vec<u8>> {
        self.parts.sort_unstable_by_key(|(at, _)| *at);
        let mut packet = self.header;
        let header = packet.len();
        for (at, data) in &self.parts {
            if header + at != packet.len() {
                return None;
            }
            packet.extend_from_slice(data);
        }
        let total = u16::try_from(packet.len()).ok().filter(|_| header >= ipv4::LEN)?;
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet[6..8].fill(0);
        packet[10..12].fill(0);
        let sum = checksum::finish(checksum::sum(&packet[..header]));
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A fragment of packet `identification`.
    fn fragment(identification: u16, at: usize, data: &[u8], more: bool) -> Vec<u8> {
        let repr = ipv4::Repr {
            tos: 0xc0,
            identification,
            dont_fragment: false,
            ttl: 1,
            protocol: ipv4::protocol::OSPF,
            source: [198, 18, 0, 1].into(),
            destination: [224, 0, 0, 5].into(),
            payload_len: data.len(),
        };
        let mut packet = [&[0; ipv4::LEN], data].concat();
        repr.emit(&mut packet);
        let word = (at / 8) as u16 | if more { 0x2000 } else { 0 };
        packet[6..8].copy_from_slice(&word.to_be_bytes());
        packet[10..12].fill(0);
        let sum = checksum::finish(checksum::sum(&packet[..ipv4::LEN]));
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    fn data(packet: Option<Vec<u8>>) -> Option<Vec<u8>> {
        packet.map(|packet| ipv4::Repr::parse(&packet).unwrap().1.to_vec())
    }

    #[test]
    fn a_packet_is_whole_with_its_last_fragment_in_any_order() {
        let all: Vec<u8> = (0..40).collect();
        let parts = [(0, 16, true), (16, 32, true), (32, 40, false)];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut fragments = Fragments::default();
            for (n, part) in order.into_iter().enumerate() {
                let (from, to, more) = parts[part];
                let packet = fragment(7, from, &all[from..to], more);
                // Another packet in between, and the same fragment again.
                assert_eq!(fragments.take(Instant(n as u64), &fragment(8, 0, &[n as u8; 8], true)), None);
                let found = data(fragments.take(Instant(n as u64), &packet));
                assert_eq!(found, (n == 2).then(|| all.clone()), "{order:?}");
                assert!(n == 2 || fragments.take(Instant(n as u64), &packet).is_none());
            }
            assert_eq!(fragments.packets.len(), 1, "the other packet");
        }
    }

    #[test]
    fn what_is_not_whole_in_time_is_forgotten() {
        let mut fragments = Fragments::default();
        assert_eq!(fragments.take(Instant(0), &fragment(1, 0, &[1; 8], true)), None);
        assert_eq!(fragments.take(Instant(0) + LIFETIME, &fragment(1, 8, &[2; 8], false)), None);
        let whole = data(fragments.take(Instant(1) + LIFETIME, &fragment(1, 0, &[3; 8], true)));
        assert_eq!(whole, Some([[3; 8], [2; 8]].concat()));
        assert!(fragments.packets.is_empty());
        // Overlapping fragments, lengths that do not fit, a wrong checksum.
        fragments.take(Instant(1), &fragment(1, 0, &[1; 16], true));
        assert_eq!(fragments.take(Instant(1), &fragment(1, 8, &[1; 16], false)), None);
        assert_eq!(fragments.take(Instant(1), &fragment(2, 0, &[1; 9], true)), None);
        assert_eq!(fragments.take(Instant(1), &fragment(2, 65_528, &[1; 8], false)), None);
        let mut wrong = fragment(2, 0, &[1; 8], true);
        wrong[8] ^= 1;
        assert_eq!(fragments.take(Instant(1), &wrong), None);
        assert!(fragments.packets.len() <= 1);
    }

    #[test]
    fn memory_is_bounded() {
        let mut fragments = Fragments::default();
        for n in 0..200u16 {
            for at in 0..60 {
                fragments.take(Instant(1), &fragment(n % 11, at * 1_024, &[n as u8; 1_400], true));
            }
        }
        let held = |packet: &Incomplete| packet.parts.iter().map(|(_, data)| data.len()).sum::<usize>();
        assert!(fragments.packets.len() <= MOST_PACKETS && fragments.packets.iter().all(|p| held(p) <= MOST_BYTES));
    }

    proptest! {
        #[test]
        fn arbitrary_fragments_never_panic(
            pieces in prop::collection::vec((0u16..3, 0usize..12, 0usize..40, any::<bool>(), any::<bool>()), 0..30),
        ) {
            let mut fragments = Fragments::default();
            for (identification, at, length, more, cut) in pieces {
                let mut packet = fragment(identification, at * 8, &vec![5; length], more);
                if cut {
                    packet.truncate(ipv4::LEN + length / 2);
                }
                if let Some(whole) = fragments.take(Instant(1), &packet) {
                    prop_assert!(ipv4::Repr::parse(&whole).is_ok());
                }
            }
        }
    }
}
