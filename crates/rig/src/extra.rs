//! Recognises returned extra frames, whatever the DUT changed in their headers, and ICMP errors about them.

use drophammer_emulation::device::Tags;
use drophammer_model::beside::{Alteration, IcmpError};
use drophammer_model::trial::Family;
use drophammer_wire::ethernet::{self, ethertype};
use drophammer_wire::{checksum, ipv4, ipv6};
use std::collections::BTreeSet;

/// Length of a mark in bytes: the key of the frames and the number of one frame.
pub const MARK: usize = 12;

/// Fills `payload` with copies of the mark of frame `number`; an incomplete mark at the end is not written.
pub fn mark(payload: &mut [u8], key: u64, number: u32) {
    for chunk in payload.chunks_exact_mut(MARK) {
        chunk[..8].copy_from_slice(&key.to_be_bytes());
        chunk[8..].copy_from_slice(&number.to_be_bytes());
    }
}

/// Returns the identification in the IPv4 header of frame `number`. It is never 0, which means no identification.
pub fn identification(number: u32) -> u16 {
    (number % 0xffff) as u16 + 1
}

/// Classification of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// An ICMP error, the MTU that it reports, and the number of the extra frame that it quotes.
    Error(IcmpError, Option<u32>, Option<usize>),
    /// The extra frame with this number.
    Frame(usize),
    /// Any other frame.
    Other,
}

fn type_and_packet(frame: &[u8]) -> Option<(u16, &[u8])> {
    let kind = frame.get(12..ethernet::LEN)?;
    Some((u16::from_be_bytes([kind[0], kind[1]]), &frame[ethernet::LEN..]))
}

/// Returns the ICMP error in `frame`, after any tags; the MTU that it reports (RFC 1191 section 4, RFC 4443 section
/// 3.2); and the packet that it quotes.
fn error(frame: &[u8]) -> Option<(IcmpError, Option<u32>, &[u8])> {
    let (_, kind, packet) = Tags::read(frame)?;
    let (family, message) = match kind {
        ethertype::IPV4 if packet.len() >= ipv4::LEN && packet[9] == ipv4::protocol::ICMP => {
            (Family::Ipv4, packet.get(usize::from(packet[0] & 15) * 4..)?)
        }
        ethertype::IPV6 if packet.len() >= ipv6::LEN && packet[6] == ipv4::protocol::ICMPV6 => {
            (Family::Ipv6, &packet[ipv6::LEN..])
        }
        _ => return None,
    };
    let head = message.first_chunk::<8>()?;
    let is_error = match family {
        Family::Ipv4 => matches!(head[0], 3 | 4 | 5 | 11 | 12),
        Family::Ipv6 => head[0] < 128,
    };
    let error = IcmpError { family, kind: head[0], code: head[1] };
    let word = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
    let mtu = match (family, head[0], head[1]) {
        (Family::Ipv4, 3, 4) => Some(word & 0xffff),
        (Family::Ipv6, 2, _) => Some(word),
        _ => None,
    };
    is_error.then(|| (error, mtu.filter(|mtu| *mtu > 0), &message[8..]))
}

/// The frames that were sent, by number.
#[derive(Debug)]
pub(crate) struct Sent {
    key: u64,
    frames: Vec<Vec<u8>>,
    hops: Vec<Vec<u8>>,
}

impl Sent {
    /// Creates the list. Each frame comes with the number of routers that it passes on its way to each port.
    pub(crate) fn new(key: u64, frames: Vec<(Vec<u8>, Vec<u8>)>) -> Sent {
        let (frames, hops) = frames.into_iter().unzip();
        Sent { key, frames, hops }
    }

    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns the number of routers that a frame passes on its way to a port.
    pub(crate) fn hops(&self, number: usize, port: usize) -> u8 {
        self.hops[number].get(port).copied().unwrap_or(1)
    }

    pub(crate) fn frame(&self, number: usize) -> &[u8] {
        &self.frames[number]
    }

    /// Classifies `frame`. Checks for errors first, because an error may also quote a mark.
    pub(crate) fn find(&self, frame: &[u8]) -> Found {
        if let Some((error, mtu, quoted)) = error(frame) {
            let by_header = self.by_header(error.family, quoted);
            return Found::Error(error, mtu, by_header.or_else(|| self.by_mark(quoted)));
        }
        let by_header = || match type_and_packet(frame)? {
            (ethertype::IPV4, packet) => self.by_header(Family::Ipv4, packet),
            (ethertype::IPV6, packet) => self.by_header(Family::Ipv6, packet),
            _ => None,
        };
        self.by_mark(frame).or_else(by_header).map_or(Found::Other, Found::Frame)
    }

    fn by_mark(&self, bytes: &[u8]) -> Option<usize> {
        let key = self.key.to_be_bytes();
        let marks = bytes.windows(MARK).filter(|window| window[..8] == key);
        let mut numbers = marks.map(|m| u32::from_be_bytes([m[8], m[9], m[10], m[11]]) as usize);
        numbers.find(|number| *number < self.frames.len())
    }

    /// Finds a frame by its source address and its identification or flow label, which no router changes.
    fn by_header(&self, family: Family, packet: &[u8]) -> Option<usize> {
        let source = match family {
            Family::Ipv4 => 12..16,
            Family::Ipv6 => 8..24,
        };
        let found = packet.get(source.clone())?;
        let same = |number: &usize| {
            let Some((kind, sent)) = self.frames.get(*number).and_then(|frame| type_and_packet(frame)) else {
                return false;
            };
            let of_family = (kind == ethertype::IPV4) == (family == Family::Ipv4);
            of_family && sent.get(source.clone()) == Some(found) && numbered(family, sent) == numbered(family, packet)
        };
        match family {
            Family::Ipv4 => {
                let id = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
                let mut numbers = (0..self.frames.len()).skip(id.checked_sub(1)?).step_by(0xffff);
                numbers.find(same)
            }
            Family::Ipv6 => Some(numbered(family, packet) as usize).filter(same),
        }
    }
}

/// Returns the identification of an IPv4 packet or the flow label of an IPv6 packet.
fn numbered(family: Family, packet: &[u8]) -> u32 {
    match family {
        Family::Ipv4 => u32::from(u16::from_be_bytes([packet[4], packet[5]])),
        Family::Ipv6 => u32::from_be_bytes([0, packet[1] & 15, packet[2], packet[3]]),
    }
}

/// True if the checksum of this IPv4 header is correct. If the header length is invalid, the checksum covers the first 20
/// bytes.
fn checksum_holds(packet: &[u8]) -> bool {
    let length = usize::from(packet[0] & 15) * 4;
    let header = packet.get(..length).filter(|h| h.len() >= ipv4::LEN).unwrap_or(&packet[..ipv4::LEN]);
    checksum::fold(checksum::sum(header)) == 0xffff
}

/// Returns how `got` differs from `sent` after `hops` routers forwarded it. Zero bytes at the end of either frame are padding.
pub(crate) fn alterations(sent: &[u8], got: &[u8], hops: u8) -> BTreeSet<Alteration> {
    let mut altered = BTreeSet::new();
    let (Some((kind, sent)), Some((got_kind, got))) = (type_and_packet(sent), type_and_packet(got)) else {
        return BTreeSet::from([Alteration::Cut]);
    };
    let v4 = kind == ethertype::IPV4;
    let (header, ttl) = if v4 { (ipv4::LEN, 8) } else { (ipv6::LEN, 7) };
    if kind != got_kind {
        altered.insert(Alteration::Header);
    }
    let both = sent.len().min(got.len());
    if sent[both..].iter().any(|byte| *byte != 0) {
        altered.insert(Alteration::Cut);
    }
    if got[both..].iter().any(|byte| *byte != 0) {
        altered.insert(Alteration::Contents);
    }
    if both < header {
        return altered;
    }
    if got[ttl] != sent[ttl].wrapping_sub(hops) {
        altered.insert(Alteration::Ttl);
    }
    if v4 && checksum_holds(sent) != checksum_holds(got) {
        altered.insert(if checksum_holds(got) { Alteration::ChecksumMended } else { Alteration::Header });
    }
    let follows = |at: usize| at == ttl || (v4 && (10..12).contains(&at));
    if (0..header).any(|at| !follows(at) && sent[at] != got[at]) {
        altered.insert(Alteration::Header);
    }
    // A frame that was shortened and padded again differs only in its padding, which is not part of the contents.
    let end = got[..both].iter().rposition(|byte| *byte != 0).map_or(header, |last| (last + 1).max(header));
    if sent[header..end] != got[header..end] {
        altered.insert(Alteration::Contents);
    } else if sent[end..both].iter().any(|byte| *byte != 0) {
        altered.insert(Alteration::Cut);
    }
    altered
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: u64 = 0x1122_3344_5566_7788;

    /// Builds a frame with 40 bytes of payload. `number` is in its header and in its marks.
    fn frame(v6: bool, number: u32) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, number as u8, 0, 40, 17, 64]);
            frame.extend([0x20; 16]);
            frame.extend([0x30; 16]);
        } else {
            frame.extend([8, 0, 0x45, 0, 0, 60]);
            frame.extend(identification(number).to_be_bytes());
            frame.extend([0x40, 0, 64, 17, 0, 0, 198, 18, 1, 9, 198, 19, 1, 9]);
            let sum = checksum::finish(checksum::sum(&frame[14..34]));
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        let at = frame.len();
        frame.resize(at + 40, 7);
        mark(&mut frame[at..], KEY, number);
        frame
    }

    fn forwarded(sent: &[u8]) -> Vec<u8> {
        let mut got = sent.to_vec();
        got[..6].copy_from_slice(&[6; 6]);
        if got[12] == 8 {
            got[22] -= 1;
            got[24..26].copy_from_slice(&[0; 2]);
            let sum = checksum::finish(checksum::sum(&got[14..34]));
            got[24..26].copy_from_slice(&sum.to_be_bytes());
        } else {
            got[21] -= 1;
        }
        got
    }

    fn sent() -> Sent {
        Sent::new(KEY, [frame(false, 0), frame(true, 1), frame(false, 2)].map(|frame| (frame, Vec::new())).to_vec())
    }

    #[test]
    fn a_frame_is_found_by_its_mark_or_by_its_header() {
        let sent = sent();
        for number in 0..3 {
            let whole = forwarded(sent.frame(number));
            assert_eq!(sent.find(&whole), Found::Frame(number));
            // The header is missing, the frame is shifted, and one mark is left.
            assert_eq!(sent.find(&whole[whole.len() - 30..]), Found::Frame(number));
            let mut tagged = whole.clone();
            tagged.splice(12..12, [0x81, 0, 0, 9]);
            tagged[20..44].fill(0xff);
            assert_eq!(sent.find(&tagged), Found::Frame(number));
            // The payload is missing.
            assert_eq!(sent.find(&whole[..if number == 1 { 54 } else { 34 }]), Found::Frame(number));
        }
        let mut other = forwarded(sent.frame(0));
        other[26] = 99;
        other[34..].fill(0);
        assert_eq!(sent.find(&other), Found::Other, "the identification alone says little");
        let foreign = Sent::new(KEY + 1, vec![(frame(false, 0), Vec::new())]);
        let mut other = forwarded(sent.frame(2));
        other[18..20].fill(0);
        assert_eq!(foreign.find(&other), Found::Other, "the mark of others");
        for end in 0..other.len() {
            sent.find(&other[..end]);
        }
    }

    #[test]
    fn an_error_is_matched_with_what_it_quotes() {
        let sent = sent();
        let icmp = |v6: bool, head: [u8; 2], quoted: &[u8]| {
            let mut error = frame(v6, 77);
            error.truncate(if v6 { 54 } else { 34 });
            error[if v6 { 20 } else { 23 }] = if v6 { 58 } else { 1 };
            error.extend([head[0], head[1], 0, 0, 0, 0, 0, 0]);
            error.extend_from_slice(quoted);
            error
        };
        let expired = IcmpError { family: Family::Ipv4, kind: 11, code: 0 };
        assert_eq!(sent.find(&icmp(false, [11, 0], &sent.frame(2)[14..42])), Found::Error(expired, None, Some(2)));
        assert_eq!(sent.find(&icmp(false, [11, 0], &frame(false, 9)[14..42])), Found::Error(expired, None, None));
        let unknown = IcmpError { family: Family::Ipv6, kind: 4, code: 1 };
        assert_eq!(sent.find(&icmp(true, [4, 1], &sent.frame(1)[14..])), Found::Error(unknown, None, Some(1)));
        let too_big = IcmpError { family: Family::Ipv4, kind: 3, code: 4 };
        let mut error = icmp(false, [3, 4], &sent.frame(2)[14..42]);
        error[40..42].copy_from_slice(&1_500u16.to_be_bytes());
        assert_eq!(sent.find(&error), Found::Error(too_big, Some(1_500), Some(2)));
        // The same after a VLAN tag.
        error.splice(12..12, [0x81, 0, 0, 100]);
        assert_eq!(sent.find(&error), Found::Error(too_big, Some(1_500), Some(2)));
        let mut error = icmp(true, [2, 0], &sent.frame(1)[14..]);
        error[58..62].copy_from_slice(&1_280u32.to_be_bytes());
        let too_big = IcmpError { family: Family::Ipv6, kind: 2, code: 0 };
        assert_eq!(sent.find(&error), Found::Error(too_big, Some(1_280), Some(1)));
        // An echo request is not an error.
        assert_eq!(sent.find(&icmp(false, [8, 0], &[])), Found::Other);
        assert_eq!(
            (expired.to_string(), unknown.to_string()),
            ("time exceeded (11/0)".into(), "parameter problem (4/1)".into())
        );
    }

    #[test]
    fn alterations_are_named() {
        use Alteration::*;
        let sent = sent();
        type Spoil = fn(&mut Vec<u8>);
        let cases: [(Spoil, &[Alteration]); 8] = [
            (|_| {}, &[]),
            (|got| got.extend([0; 6]), &[]),
            (|got| got.extend([1]), &[Contents]),
            (|got| got.truncate(50), &[Cut]),
            (
                |got| {
                    got.truncate(60);
                    got.resize(74, 0);
                },
                &[Cut],
            ),
            (|got| got[15] = 4, &[Header]),
            (|got| got[60] ^= 1, &[Contents]),
            (|got| got[13] ^= 1, &[Header]),
        ];
        for (spoil, expected) in cases {
            let mut got = forwarded(sent.frame(0));
            spoil(&mut got);
            if got[15] == 4 {
                got[24..26].copy_from_slice(&[0; 2]);
                let sum = checksum::finish(checksum::sum(&got[14..34]));
                got[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            assert_eq!(alterations(sent.frame(0), &got, 1), expected.iter().copied().collect());
        }
        // The router does not decrement the TTL.
        assert_eq!(alterations(sent.frame(1), sent.frame(1), 1), BTreeSet::from([Ttl]));
        // Two routers in a row decrement it twice.
        for v6 in [0, 1] {
            let behind_two = forwarded(&forwarded(sent.frame(v6)));
            assert_eq!(alterations(sent.frame(v6), &behind_two, 2), BTreeSet::new());
            assert_eq!(alterations(sent.frame(v6), &behind_two, 1), BTreeSet::from([Ttl]));
        }
        let known = Sent::new(KEY, vec![(frame(false, 0), vec![1, 2])]);
        assert_eq!([0, 1, 2].map(|port| known.hops(0, port)), [1, 2, 1]);
        // One router repairs a frame that it should drop, another one forwards it unchanged.
        let mut wrong = sent.frame(0).to_vec();
        wrong[25] ^= 1;
        let right = forwarded(sent.frame(0));
        assert_eq!(alterations(&wrong, &right, 1), BTreeSet::from([ChecksumMended]));
        let mut kept = right;
        kept[25] ^= 1;
        assert_eq!(alterations(&wrong, &kept, 1), BTreeSet::new());
        for end in 0..kept.len() {
            alterations(&wrong, &kept[..end], 1);
        }
    }
}
