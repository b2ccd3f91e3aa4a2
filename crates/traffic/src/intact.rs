//! The fast check that a frame belongs to this trial and is intact. It checks headers, checksums, signature, payload
//! and destination in one pass.
//!
//! The full check ([`crate::recognize`] and the analyzer) accepts every frame that this check accepts, and decides
//! about all others.

use crate::payload::Pattern;
use drophammer_wire::ethernet::ethertype;
use drophammer_wire::signature::{self, Signature, TrialKey};
use drophammer_wire::{checksum, ethernet, ipv4, ipv6, udp};

/// What the fast check expects of a frame.
#[derive(Clone, Copy)]
pub(crate) struct Expected<'a> {
    /// Address of the host on the port, in the form of [`crate::analyzer::destination`].
    pub(crate) host: u64,
    /// [`HOME`] if frames must have this address as destination, 0 if any destination is right.
    pub(crate) home: u64,
    pub(crate) key: TrialKey,
    pub(crate) pattern: &'a Pattern,
}

/// A signature, if one was found. It is small enough to be returned in two registers.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    /// Flow (upper half) and sequence number (lower half).
    identity: u64,
    /// Departure time as it is in the frame.
    time: u64,
}

impl Found {
    /// No signature: this flow number is never used.
    pub(crate) const NOTHING: Found = Found { identity: (u32::MAX as u64) << 32, time: 0 };

    #[inline(always)]
    fn of(signature: Signature) -> Found {
        let identity = u64::from(signature.flow) << 32 | u64::from(signature.sequence);
        Found { identity, time: signature.time.into() }
    }

    /// Returns the departure time as it is in the frame.
    #[inline(always)]
    pub(crate) fn time(self) -> u32 {
        self.time as u32
    }

    /// Returns the flow; `u32::MAX` if there is no signature.
    #[inline(always)]
    pub(crate) fn flow(self) -> u32 {
        (self.identity >> 32) as u32
    }

    #[inline(always)]
    pub(crate) fn sequence(self) -> u32 {
        self.identity as u32
    }

    #[inline(always)]
    pub(crate) fn is_nothing(self) -> bool {
        self.flow() == u32::MAX
    }
}

/// The bytes of the destination in the first eight bytes of a frame.
pub(crate) const HOME: u64 = u64::MAX >> 16;
/// Length of the shortest Ethernet frame without FCS. 64-byte frames have the highest frame rates.
const SHORTEST: usize = ethernet::MIN_WITHOUT_FCS;
/// Length of IPv4, UDP and signature without payload: the packet in the shortest frames with two or more tags.
pub(crate) const BARE: usize = ipv4::LEN + udp::LEN + signature::LEN;
/// Packet length in frames of [`SHORTEST`] bytes, without and with one tag or label.
const NO_TAG: usize = SHORTEST - ethernet::LEN;
const ONE_TAG: usize = NO_TAG - 4;

/// Reads `N` bytes at `at` as a little-endian number. The bounds are known at compile time if `frame` is an array.
macro_rules! word {
    ($frame:expr, $at:expr, $kind:ty) => {{
        let mut bytes = [0; size_of::<$kind>()];
        bytes.copy_from_slice(&$frame[$at..$at + size_of::<$kind>()]);
        <$kind>::from_le_bytes(bytes)
    }};
}

/// Returns eight bytes as a mask or a value for comparison.
const fn bytes(bytes: [u8; 8]) -> u64 {
    u64::from_le_bytes(bytes)
}

impl Expected<'_> {
    /// Returns the signature of an intact frame without tags and labels. Returns [`Found::NOTHING`] for any other
    /// frame, and for a few that only the full check accepts.
    #[inline(always)]
    pub(crate) fn signature(&self, frame: &[u8]) -> Found {
        match <&[u8; SHORTEST]>::try_from(frame) {
            Ok(frame) if is_full(frame) => {
                let packet = frame.last_chunk().expect("a frame is longer than its packet");
                self.if_home(frame, self.short::<NO_TAG, true>(packet, || Signature::read(tail_of(packet))))
            }
            _ => self.plain(frame),
        }
    }

    /// Like [`Expected::signature`], but for a frame with an IP packet from `at` to the end. The caller has compared
    /// tags and labels.
    #[inline(never)]
    pub(crate) fn behind(&self, frame: &[u8], at: usize) -> Found {
        let packet = frame.get(at..).unwrap_or_default();
        let found = if let Ok(packet) = <&[u8; NO_TAG]>::try_from(packet) {
            self.short::<_, false>(packet, || Signature::read(tail_of(packet)))
        } else if let Ok(packet) = <&[u8; ONE_TAG]>::try_from(packet) {
            self.short::<_, false>(packet, || Signature::read(tail_of(packet)))
        } else {
            self.packet(packet).map_or(Found::NOTHING, Found::of)
        };
        self.if_home(frame, found)
    }

    /// Like [`Expected::signature`], but for any frame. Also returns the offset of its IP header.
    #[inline(never)]
    pub(crate) fn anywhere(&self, frame: &[u8]) -> (Found, usize) {
        let found = packet_at(frame).and_then(|at| Some((Found::of(self.packet(frame.get(at..)?)?), at)));
        let (found, at) = found.unwrap_or((Found::NOTHING, 0));
        (self.if_home(frame, found), at)
    }

    /// Returns `found` if `frame` is addressed to the host or may have any address, otherwise [`Found::NOTHING`].
    #[inline(always)]
    pub(crate) fn if_home(&self, frame: &[u8], found: Found) -> Found {
        let home =
            frame.first_chunk::<8>().is_some_and(|head| (u64::from_le_bytes(*head) ^ self.host) & self.home == 0);
        if home { found } else { Found::NOTHING }
    }

    /// Returns the signature of an IPv4 packet without options and with less than eight bytes before the signature.
    /// `read` returns the signature and its check. Calling it last is cheaper if the signature has not been read yet.
    /// `FULL` means that the caller has checked version, header length and total length.
    #[inline(always)]
    pub(crate) fn short<const N: usize, const FULL: bool>(
        &self,
        packet: &[u8; N],
        read: impl FnOnce() -> (Signature, u16),
    ) -> Found {
        const { assert!(N >= BARE && N < BARE + 8) };
        // More fragments and fragment offset; also version, header length and total length, unless the caller has checked them.
        let known = if FULL { 0 } else { 0xff };
        let mask = bytes([known, 0, known, known, 0, 0, 0x3f, 0xff]);
        let ip = bytes([0x45, 0, 0, N as u8, 0, 0, 0, 0]);
        // Length field.
        const UDP_MASK: u64 = bytes([0, 0, 0, 0, 0xff, 0xff, 0, 0]);
        let datagram = (N - ipv4::LEN) as u8;
        let udp = bytes([0, 0, 0, 0, 0, datagram, 0, 0]);
        let (head, ports) = (word!(packet, 0, u64), word!(packet, ipv4::LEN, u64));
        let payload = match N - BARE {
            0 => 0,
            length => (word!(packet, ipv4::LEN + udp::LEN, u64) ^ self.pattern.head()) << (8 * (8 - length)),
        };
        let differs =
            (head ^ ip) & mask | u64::from(packet[9] ^ ipv4::protocol::UDP) | (ports ^ udp) & UDP_MASK | payload;
        let addresses = u128::from(word!(packet, 12, u64));
        let header = addresses + u128::from(head) + u128::from(word!(packet, 8, u32));
        let mut sum = addresses + u128::from(ports) + u128::from(pseudo(datagram.into()));
        let mut at = ipv4::LEN + udp::LEN;
        while at + 8 <= N {
            sum += u128::from(word!(packet, at, u64));
            at += 8;
        }
        if at + 4 <= N {
            sum += u128::from(word!(packet, at, u32));
            at += 4;
        }
        if at + 2 <= N {
            sum += u128::from(word!(packet, at, u16));
        }
        if N % 2 == 1 {
            sum += u128::from(packet[N - 1]);
        }
        let (signature, check) = read();
        let whole = (differs == 0) & holds(header) & holds(sum) & signature.belongs_to(self.key, check);
        if whole { Found::of(signature) } else { Found::NOTHING }
    }

    /// Returns the signature of a frame of any length and family, without labels and with at most one priority tag.
    #[inline(never)]
    fn plain(&self, frame: &[u8]) -> Found {
        let Some((head, mut packet)) = frame.split_first_chunk::<{ ethernet::LEN }>() else { return Found::NOTHING };
        let version = match u16::from_be_bytes([head[12], head[13]]) {
            ethertype::IPV4 => 4,
            ethertype::IPV6 => 6,
            ethertype::VLAN | ethertype::SERVICE_VLAN => {
                let Some((tag, behind)) = packet.split_first_chunk::<4>() else { return Found::NOTHING };
                packet = behind;
                // A tag of VLAN 0 does not select a VLAN. Its first four bits are priority and drop eligibility.
                match (u16::from_be_bytes([tag[0], tag[1]]) & 0x0fff, u16::from_be_bytes([tag[2], tag[3]])) {
                    (0, ethertype::IPV4) => 4,
                    (0, ethertype::IPV6) => 6,
                    _ => return Found::NOTHING,
                }
            }
            _ => return Found::NOTHING,
        };
        match packet.first() {
            Some(first) if first >> 4 == version => {
                self.if_home(frame, self.packet(packet).map_or(Found::NOTHING, Found::of))
            }
            _ => Found::NOTHING,
        }
    }

    /// Returns the signature of a packet. If bytes equal the pattern, their sum is already known.
    fn packet(&self, packet: &[u8]) -> Option<Signature> {
        let head: &[u8; ipv4::LEN + udp::LEN] = packet.first_chunk()?;
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let (udp_at, addresses, length) = match head[0] >> 4 {
            4 => {
                let header = checksum::sum_le(&head[..ipv4::LEN]);
                // A fragment does not contain a whole datagram.
                if head[0] != 0x45 || head[9] != ipv4::protocol::UDP || word(6) & 0x3fff != 0 || !holds(header.into()) {
                    return None;
                }
                let addresses = checksum::halves(word!(head, 12, u64));
                (ipv4::LEN, addresses, usize::from(word(2)).checked_sub(ipv4::LEN)?)
            }
            6 => {
                if head[6] != ipv4::protocol::UDP {
                    return None;
                }
                let addresses = packet.get(8..ipv6::LEN)?;
                (ipv6::LEN, checksum::sum_le(addresses), usize::from(word(4)))
            }
            _ => return None,
        };
        let datagram = packet.get(udp_at..udp_at.checked_add(length)?)?;
        let (header, payload) = datagram.split_first_chunk::<{ udp::LEN }>()?;
        let (payload, tail) = payload.split_last_chunk::<{ signature::LEN }>()?;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        if usize::from(word(4)) != length || !self.pattern.starts_with(payload) {
            return None;
        }
        let mut end = checksum::sum_le(tail);
        if payload.len() % 2 == 1 {
            end = checksum::swap(end);
        }
        let sum = addresses
            + pseudo(length as u16)
            + checksum::halves(u64::from_le_bytes(*header))
            + self.pattern.sum(payload.len())
            + end;
        let (signature, check) = Signature::read(tail);
        (holds(sum.into()) && signature.belongs_to(self.key, check)).then_some(signature)
    }
}

/// Returns the offset of the IP header of `frame` after tags and labels; `None` if another header follows.
#[inline]
fn packet_at(frame: &[u8]) -> Option<usize> {
    let word = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let mut at = ethernet::LEN;
    loop {
        match word(at - 2)? {
            ethertype::IPV4 => return (frame.get(at)? >> 4 == 4).then_some(at),
            ethertype::IPV6 => return (frame.get(at)? >> 4 == 6).then_some(at),
            ethertype::VLAN | ethertype::SERVICE_VLAN | ethertype::OLD_SERVICE_VLAN => at += 4,
            ethertype::MPLS => {
                // The lowest bit of an entry's third byte is the bottom-of-stack bit.
                while frame.get(at + 2)? & 1 == 0 {
                    at += 4;
                }
                return matches!(frame.get(at + 4)? >> 4, 4 | 6).then_some(at + 4);
            }
            _ => return None,
        }
    }
}

/// Returns the signature and its check.
#[inline(always)]
fn tail_of<const N: usize>(packet: &[u8; N]) -> &[u8; signature::LEN] {
    packet.last_chunk().expect("a packet is longer than a signature")
}

/// True for an IPv4 packet without options that fills the frame.
#[inline(always)]
fn is_full(frame: &[u8; SHORTEST]) -> bool {
    const TOTAL: u8 = NO_TAG as u8;
    // EtherType, version and header length, total length.
    const IP: u64 = bytes([0x08, 0x00, 0x45, 0, 0, TOTAL, 0, 0]);
    const MASK: u64 = bytes([0xff, 0xff, 0xff, 0, 0xff, 0xff, 0, 0]);
    word!(frame, 12, u64) & MASK == IP
}

/// Returns protocol and length of a pseudo-header as little-endian words.
#[inline]
fn pseudo(length: u16) -> u64 {
    u64::from(ipv4::protocol::UDP) << 8 | u64::from(length.swap_bytes()) << 16
}

/// True if the checksum is correct. `sum` adds words of up to 64 bits that are not all zero. Modulo 2^16 - 1, a word
/// equals the sum of its 16-bit words, because 2^16 is 1. A sum that folds to 0xffff is a multiple of 2^16 - 1.
#[inline(always)]
fn holds(sum: u128) -> bool {
    const DIVISOR: u64 = 0xffff;
    // DIVISOR * INVERSE = 1 modulo 2^64. For multiples of the divisor, the product with INVERSE is the quotient; for
    // all other numbers it is larger than any quotient.
    const INVERSE: u64 = {
        let mut inverse = DIVISOR;
        let mut bits = 3;
        while bits < u64::BITS {
            inverse = inverse.wrapping_mul(2u64.wrapping_sub(DIVISOR.wrapping_mul(inverse)));
            bits *= 2;
        }
        inverse
    };
    const { assert!(DIVISOR.wrapping_mul(INVERSE) == 1) };
    // 2^64 is also 1 modulo the divisor, so the overflow is added at the lowest bit.
    let (low, carry) = (sum as u64).overflowing_add((sum >> 64) as u64);
    (low + u64::from(carry)).wrapping_mul(INVERSE) <= u64::MAX / DIVISOR
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyzer::destination;
    use crate::headers;
    use crate::plan::Neighbour;
    use crate::recognize::candidate;
    use crate::template::Template;
    use drophammer_model::size::FrameSize;
    use drophammer_model::trial::{AddressRange, Family, FlowSpec};
    use drophammer_wire::MacAddr;
    use proptest::prelude::*;

    const HOST: MacAddr = MacAddr([2, 3, 4, 5, 6, 7]);

    /// Computes the same result as [`Expected::signature`], step by step.
    fn at_length(expected: &Expected<'_>, frame: &[u8]) -> Option<Signature> {
        let found = candidate(frame).filter(|c| c.whole && c.sums_hold)?;
        let (signature, check) = Signature::read(found.signature);
        let ours = signature.belongs_to(expected.key, check) && destination(frame) == expected.host;
        (ours && expected.pattern.starts_with(found.payload)).then_some(signature)
    }

    /// Returns the signature, if there is one.
    fn some(found: Found) -> Option<Signature> {
        let signature = Signature { flow: found.flow(), sequence: found.sequence(), time: found.time() };
        (found.flow() != u32::MAX).then_some(signature)
    }

    /// Builds a frame on its way to [`HOST`].
    fn frame(v6: bool, size: FrameSize, pattern: &Pattern, ends: (u128, u128), signature: Signature) -> Vec<u8> {
        let family = if v6 { Family::Ipv6 } else { Family::Ipv4 };
        let range = AddressRange { first: "198.18.0.1".parse().unwrap(), step: 1, count: 1 };
        let flow = FlowSpec { family, ..FlowSpec::new("all", 0, 1, range, range) };
        let link = Neighbour {
            mac: MacAddr::local(1),
            device_ipv4: Some(HOST),
            device_ipv6: Some(HOST),
            ..Neighbour::default()
        };
        let template = Template::new(&headers::complete(&flow, 0, 1, &link), family, size, pattern).unwrap();
        let mut frame = vec![0; template.len()];
        template.write(&mut frame);
        template.patch(&mut frame, 0, ends.0, ends.1, &signature.emit(TrialKey::new(1, 1)));
        frame
    }

    fn expected(pattern: &Pattern) -> Expected<'_> {
        let host = destination(&[HOST.0.as_slice(), &[0; 2]].concat());
        Expected { host, home: HOME, key: TrialKey::new(1, 1), pattern }
    }

    #[test]
    fn every_change_of_a_bit_is_seen_as_the_long_way_sees_it() {
        let pattern = Pattern::new(9);
        let expected = expected(&pattern);
        let signature = Signature { flow: 70_000, sequence: 12_345, time: 4_000_000_000 };
        for (v6, size) in [(false, "64"), (false, "65"), (true, "78"), (false, "ip-40"), (true, "128"), (false, "1518")]
        {
            let size = match size.strip_prefix("ip-") {
                Some(bytes) => FrameSize::Ip(bytes.parse().unwrap()),
                None => FrameSize::Frame(size.parse().unwrap()),
            };
            let mut frame = frame(v6, size, &pattern, (0x0a00_0001 << 96 | 7, 0x0b00_0002 << 96 | 9), signature);
            assert_eq!(some(expected.signature(&frame)), Some(signature), "{size:?} is known");
            let mut differ = 0;
            for bit in 0..frame.len() * 8 {
                frame[bit / 8] ^= 1 << (bit % 8);
                let found = some(expected.signature(&frame));
                assert_eq!(found, at_length(&expected, &frame), "{size:?}, bit {bit}");
                differ += usize::from(found.is_none());
                frame[bit / 8] ^= 1 << (bit % 8);
            }
            // Bits that no check covers: the source address; in IPv6 everything except lengths, next header and
            // addresses; padding.
            assert!(differ >= (frame.len() - 20) * 8 - 40, "{size:?}: {differ} of {}", frame.len() * 8);
        }
    }

    #[test]
    fn flows_that_may_go_to_any_destination_are_found_at_any() {
        let pattern = Pattern::new(9);
        let signature = Signature { flow: 3, sequence: 7, time: 5 };
        for (v6, size) in [(false, 64), (true, 78), (false, 1518)] {
            let mut frame = frame(v6, FrameSize::Frame(size), &pattern, (1 << 96 | 7, 2 << 96 | 9), signature);
            frame[5] ^= 1;
            let found = |home| some(Expected { home, ..expected(&pattern) }.signature(&frame));
            assert_eq!((found(HOME), found(0)), (None, Some(signature)), "{size}");
        }
    }

    #[test]
    fn a_priority_tag_is_no_tag() {
        let pattern = Pattern::new(9);
        let expected = expected(&pattern);
        let signature = Signature { flow: 3, sequence: 7, time: 5 };
        for (v6, size) in [(false, 64), (true, 78), (false, 1518)] {
            let plain = frame(v6, FrameSize::Frame(size), &pattern, (1 << 96 | 7, 2 << 96 | 9), signature);
            for (tag, known) in [
                ([0x81, 0x00, 0x00, 0x00], true),
                ([0x81, 0x00, 0xf0, 0x00], true),
                ([0x88, 0xa8, 0xa0, 0x00], true),
                ([0x81, 0x00, 0x00, 0x01], false),
                ([0x81, 0x00, 0x08, 0x00], false),
            ] {
                let mut tagged = plain.clone();
                tagged.splice(12..12, tag);
                assert_eq!(some(expected.signature(&tagged)), known.then_some(signature), "{size}, {tag:02x?}");
                (0..18).for_each(|end| assert_eq!(some(expected.signature(&tagged[..end])), None));
            }
        }
    }

    #[test]
    fn no_sum_but_multiples_hold() {
        for sum in (1..200_000u64).chain(u64::MAX - 200_000..=u64::MAX) {
            assert_eq!(holds(sum.into()), checksum::fold(sum) == 0xffff, "{sum:#x}");
            let high = u128::from(sum) << 64 | 0xfffe;
            assert_eq!(holds(high), high % 0xffff == 0, "{high:#x}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3_000))]

        #[test]
        fn what_the_long_way_finds_whole_is_found_whole(
            v6: bool, size in prop_oneof![Just(64u16), 64u16..200, 64u16..1519], ends: (u128, u128), flow in 0u32..1 << 20,
            sequence in 0u32..1 << 28, time: u32, seed: u64, padding in prop_oneof![3 => Just(0usize), 1 => 0usize..20],
            changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..3), mended: bool
        ) {
            let pattern = Pattern::new(seed);
            let expected = expected(&pattern);
            let mut frame = frame(v6, FrameSize::Frame(size), &pattern, ends, Signature { flow, sequence, time });
            frame.resize(frame.len() + padding, 0xa5);
            prop_assert!(some(expected.signature(&frame)).is_some());
            for (at, change) in &changes {
                let at = usize::from(*at) % frame.len().min(80);
                frame[at] ^= change;
            }
            if mended && !v6 && changes.len() == 1 {
                // A router changes the header and corrects the checksum.
                frame[24..26].fill(0);
                let sum = checksum::finish(checksum::sum_le(&frame[14..34]));
                frame[24..26].copy_from_slice(&sum.to_le_bytes());
            }
            prop_assert_eq!(some(expected.signature(&frame)), at_length(&expected, &frame));
        }

        #[test]
        fn arbitrary_bytes_are_judged_alike(bytes in proptest::collection::vec(any::<u8>(), 0..100), seed: u64) {
            let pattern = Pattern::new(seed);
            let expected = expected(&pattern);
            prop_assert_eq!(some(expected.signature(&bytes)), at_length(&expected, &bytes));
        }
    }
}
