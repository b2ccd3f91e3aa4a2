//! Sends segments of one TCP connection with one call: the kernel takes a frame of up to 64 KiB and cuts it into
//! exactly these segments.
//!
//! A call per segment costs more than the segment itself. And if the far end of a veth pair receives on the sender's
//! processor, it would receive the segments one by one. The link carries the same frames as in the slots, except for
//! the IPv4 identification, which counts up within a run. It has no meaning if fragmentation is forbidden (RFC 6864
//! section 4.1), and other packets are not combined.

use super::sys;
use crate::device::number;
use crate::{BURST, Batch};
use drophammer_wire::checksum;
use drophammer_wire::ethernet::{self, ethertype};
use std::fs::File;
use std::io::{IoSlice, Write};

/// Minimum number of segments in a run. Fewer segments are sent one by one.
pub const LEAST: usize = 4;
/// Longest IP packet.
const LONGEST: usize = 65_535;
/// Protocol number of TCP in IPv4 and IPv6 headers.
const TCP: u8 = 6;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const ACK: u8 = 0x10;
const PUSH: u8 = 0x08;

/// A frame with a TCP segment.
#[derive(Clone, Copy)]
struct Segment<'a> {
    frame: &'a [u8],
    ipv6: bool,
    /// Offsets of the TCP header and of its payload.
    tcp: usize,
    payload: usize,
}

impl<'a> Segment<'a> {
    /// Parses a segment with payload, ACK and optionally PSH, in a packet that fills its frame; `None` for everything else.
    fn read(frame: &'a [u8]) -> Option<Segment<'a>> {
        let ip = frame.get(ethernet::LEN..)?;
        let word = |at: usize| ip.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
        let (ipv6, header) = match u16::from_be_bytes([frame[12], frame[13]]) {
            // No options, Don't Fragment set, not a fragment.
            ethertype::IPV4 if *ip.first()? == 0x45 && word(6)? == 0x4000 && *ip.get(9)? == TCP => {
                (usize::from(word(2)?) == ip.len()).then_some((false, IPV4_LEN))?
            }
            ethertype::IPV6 if ip.first()? >> 4 == 6 && *ip.get(6)? == TCP => {
                (usize::from(word(4)?) + IPV6_LEN == ip.len()).then_some((true, IPV6_LEN))?
            }
            _ => return None,
        };
        let tcp = ethernet::LEN + header;
        let payload = tcp + usize::from(frame.get(tcp + 12)? >> 4) * 4;
        let plain = frame.get(tcp + 13)? & !PUSH == ACK;
        (plain && payload >= tcp + 20 && payload < frame.len()).then_some(Segment { frame, ipv6, tcp, payload })
    }

    fn sequence(&self) -> u32 {
        let b = &self.frame[self.tcp + 4..];
        u32::from_be_bytes([b[0], b[1], b[2], b[3]])
    }

    fn is_pushed(&self) -> bool {
        self.frame[self.tcp + 13] & PUSH != 0
    }

    fn len(&self) -> usize {
        self.frame.len() - self.payload
    }

    /// True if the headers are equal except for lengths, checksums, PSH and the sequence number.
    fn is_like(&self, other: &Segment<'_>) -> bool {
        let same = |part: std::ops::Range<usize>| self.frame[part.clone()] == other.frame[part];
        let (ip, tcp) = (ethernet::LEN, self.tcp);
        let network = match self.ipv6 {
            true => same(ip..ip + 4) && same(ip + 6..tcp),
            false => same(ip..ip + 2) && same(ip + 4..ip + 10) && same(ip + 12..tcp),
        };
        self.ipv6 == other.ipv6
            && self.payload == other.payload
            && same(0..ip)
            && network
            && same(tcp..tcp + 4)
            && same(tcp + 8..tcp + 13)
            && same(tcp + 14..tcp + 16)
            && same(tcp + 18..self.payload)
    }
}

/// Segments that are sent together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Number of slots.
    pub frames: usize,
    /// Length of the headers of each segment in bytes.
    pub headers: usize,
    /// Bytes of payload of each segment except the last, which may have fewer.
    pub segment: usize,
    /// Offset of the TCP header.
    pub tcp: usize,
    /// True for IPv6.
    pub ipv6: bool,
}

/// Returns the run that starts with slot `from`; `None` if there are fewer than [`LEAST`] consecutive segments.
pub fn run(slots: &Batch, from: usize, to: usize) -> Option<Run> {
    let first = Segment::read(slots.frame(from))?;
    let (mut last, mut end, mut payload) = (first, from + 1, first.len());
    while end < to && !last.is_pushed() && last.len() == first.len() {
        let Some(next) = Segment::read(slots.frame(end)) else { break };
        let follows = next.sequence() == last.sequence().wrapping_add(last.len() as u32);
        let fits = next.len() <= first.len() && first.payload - ethernet::LEN + payload + next.len() <= LONGEST;
        if !(follows && fits && next.is_like(&first)) {
            break;
        }
        (last, end, payload) = (next, end + 1, payload + next.len());
    }
    let frames = end - from;
    (frames >= LEAST).then_some(Run {
        frames,
        headers: first.payload,
        segment: first.len(),
        tcp: first.tcp,
        ipv6: first.ipv6,
    })
}

impl Run {
    /// Writes the headers of the large frame for the run that starts with slot `from`.
    pub fn write_headers(&self, slots: &Batch, from: usize, out: &mut Vec<u8>) {
        let last = slots.frame(from + self.frames - 1);
        let payload = self.segment * (self.frames - 1) + last.len() - self.headers;
        let length = self.headers - self.tcp + payload;
        out.clear();
        out.extend_from_slice(&slots.frame(from)[..self.headers]);
        let ip = ethernet::LEN;
        let addresses = if self.ipv6 {
            out[ip + 4..ip + 6].copy_from_slice(&(length as u16).to_be_bytes());
            ip + 8..self.tcp
        } else {
            out[ip + 2..ip + 4].copy_from_slice(&((length + IPV4_LEN) as u16).to_be_bytes());
            out[ip + 10..ip + 12].fill(0);
            let sum = checksum::finish(checksum::sum(&out[ip..self.tcp]));
            out[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
            ip + 12..self.tcp
        };
        out[self.tcp + 13] |= last[self.tcp + 13] & PUSH;
        // Sum of the pseudo-header only, not complemented: the kernel adds the rest when it cuts the frame.
        let pseudo = checksum::sum(&out[addresses]) + u64::from(TCP) + length as u64;
        out[self.tcp + 16..self.tcp + 18].copy_from_slice(&checksum::fold(pseudo).to_be_bytes());
    }
}

/// Socket for runs of segments.
pub struct Streams {
    /// The socket's frames start with [`Directions`] and pass through the queueing discipline, because the kernel does
    /// not cut frames that bypass it.
    socket: File,
    /// Number of frames that the link has dropped. The kernel reports the result only for the last frame of a run.
    dropped: File,
    drops: u64,
    headers: Vec<u8>,
}

/// Result of sending a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// All segments left.
    Sent,
    /// The send buffer was full.
    Refused,
    /// The link dropped some segments; it is unknown which.
    Torn,
    /// The link is down.
    Down,
    /// The kernel does not accept such frames.
    Impossible,
}

/// Instructions to the kernel for a frame (`struct virtio_net_hdr` of linux/virtio_net.h): flags and type, header
/// length, segment length, start of the checksummed bytes, and offset of the checksum in them.
type Directions = [u8; 10];

const NEEDS_CHECKSUM: u8 = 1;
const CUT_TCP_OF_IPV4: u8 = 1;
const CUT_TCP_OF_IPV6: u8 = 4;
/// Offset of the checksum in a TCP header.
const CHECKSUM_AT: u16 = 16;

impl Streams {
    /// Returns `None` if the kernel has no such sockets, or the device would forward the uncut frame.
    pub fn open(interface: &str, index: i32, buffer: usize) -> Option<Streams> {
        if sys::cuts_segments(interface).ok()? {
            return None;
        }
        let socket = sys::packet_socket(0).ok()?;
        sys::configure_stream(&socket, buffer).ok()?;
        sys::bind(&socket, index, 0).ok()?;
        let dropped = File::open(format!("/sys/class/net/{interface}/statistics/tx_dropped")).ok()?;
        let drops = number(&dropped)?;
        Some(Streams { socket: File::from(socket), dropped, drops, headers: Vec::new() })
    }

    /// Sends the run that starts with slot `from`.
    pub fn send(&mut self, slots: &Batch, from: usize, run: &Run) -> Fate {
        run.write_headers(slots, from, &mut self.headers);
        let mut directions: Directions = [0; 10];
        directions[0] = NEEDS_CHECKSUM;
        directions[1] = if run.ipv6 { CUT_TCP_OF_IPV6 } else { CUT_TCP_OF_IPV4 };
        let numbers = [run.headers as u16, run.segment as u16, run.tcp as u16, CHECKSUM_AT];
        for (to, number) in directions[2..].as_chunks_mut::<2>().0.iter_mut().zip(numbers) {
            *to = number.to_ne_bytes();
        }
        let mut parts = [IoSlice::new(&[]); BURST + 2];
        (parts[0], parts[1]) = (IoSlice::new(&directions), IoSlice::new(&self.headers));
        for (part, at) in parts[2..].iter_mut().zip(from..from + run.frames) {
            *part = IoSlice::new(&slots.frame(at)[run.headers..]);
        }
        let result = (&self.socket).write_vectored(&parts[..run.frames + 2]);
        match result.map_err(|e| e.raw_os_error()) {
            Ok(_) => {}
            Err(Some(libc::EAGAIN | libc::ENOMEM | libc::EINTR)) => return Fate::Refused,
            // The last segment was dropped; others may have left.
            Err(Some(libc::ENOBUFS)) => return Fate::Torn,
            Err(Some(libc::ENETDOWN)) => return Fate::Down,
            Err(_) => return Fate::Impossible,
        }
        let drops = number(&self.dropped);
        let torn = drops != Some(self.drops);
        self.drops = drops.unwrap_or(self.drops);
        if torn { Fate::Torn } else { Fate::Sent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a frame with a TCP segment of one connection.
    fn segment(ipv6: bool, sequence: u32, flags: u8, payload: usize) -> Vec<u8> {
        let (header, ethertype) = if ipv6 { (IPV6_LEN, 0x86dd_u16) } else { (IPV4_LEN, 0x0800) };
        let length = (20 + payload) as u16;
        let mut f = vec![2; 12];
        f.extend(ethertype.to_be_bytes());
        if ipv6 {
            f.extend([0x60, 0, 0, 0]);
            f.extend(length.to_be_bytes());
            f.extend([6, 64]);
            f.extend([0x20; 32]);
        } else {
            f.extend([0x45, 0]);
            f.extend((length + 20).to_be_bytes());
            f.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 198, 18, 0, 2, 198, 18, 0, 1]);
        }
        f.extend([0xc0, 0, 0, 179]);
        f.extend(sequence.to_be_bytes());
        f.extend([0, 0, 0, 9, 0x50, flags, 0x10, 0, 0xab, 0xcd, 0, 0]);
        f.extend((0..payload).map(|i| (sequence as usize + i) as u8));
        assert_eq!(f.len(), 14 + header + usize::from(length));
        f
    }

    /// Builds consecutive segments of these lengths. Their sequence numbers wrap around.
    fn slots(ipv6: bool, lengths: &[usize]) -> Batch {
        let mut batch = Batch::new(BURST, 2_112);
        let mut sequence = u32::MAX - 2_000;
        for (i, length) in lengths.iter().enumerate() {
            batch.put(i, &segment(ipv6, sequence, ACK, *length));
            sequence = sequence.wrapping_add(*length as u32);
        }
        batch
    }

    fn frames(batch: &Batch, from: usize, to: usize) -> Option<usize> {
        run(batch, from, to).map(|run| run.frames)
    }

    #[test]
    fn runs_end_where_they_must() {
        for ipv6 in [false, true] {
            let batch = slots(ipv6, &[1000; 10]);
            assert_eq!(
                (frames(&batch, 0, 10), frames(&batch, 3, 10), frames(&batch, 0, 4)),
                (Some(10), Some(7), Some(4))
            );
            assert_eq!((frames(&batch, 0, 3), frames(&batch, 7, 10)), (None, None), "too few");
            let batch = slots(ipv6, &[1000, 1000, 1000, 1000, 999, 999, 999]);
            assert_eq!(frames(&batch, 0, 7), Some(5), "a short one is the last");
            let batch = slots(ipv6, &[900, 900, 900, 900, 901, 901]);
            assert_eq!(frames(&batch, 0, 6), Some(4), "a longer one is none of it");
            let batch = slots(ipv6, &[1448; 64]);
            // 45 times 1448 bytes and the headers are less than 64 KiB.
            assert_eq!((frames(&batch, 0, 64), frames(&batch, 45, 64)), (Some(45), Some(19)));
            let mut batch = slots(ipv6, &[100; 8]);
            let pushed = segment(ipv6, (u32::MAX - 2_000).wrapping_add(500), ACK | PUSH, 100);
            batch.put(5, &pushed);
            assert_eq!(frames(&batch, 0, 8), Some(6), "PSH ends it");
            batch.put(5, &segment(ipv6, 7, ACK, 100));
            assert_eq!(frames(&batch, 0, 8), Some(5), "bytes are missing");
            let mut padded = slots(ipv6, &[2; 8]);
            padded.put(4, &[padded.frame(4), &[0; 4]].concat());
            assert_eq!(frames(&padded, 0, 8), Some(4), "the frame is longer than its packet");
        }
        assert_eq!(
            run(&slots(false, &[1000; 5]), 0, 5),
            Some(Run { frames: 5, headers: 54, segment: 1000, tcp: 34, ipv6: false })
        );
        assert_eq!(
            run(&slots(true, &[1000; 5]), 0, 5),
            Some(Run { frames: 5, headers: 74, segment: 1000, tcp: 54, ipv6: true })
        );
    }

    #[test]
    fn whatever_differs_in_the_headers_ends_a_run() {
        for (ipv6, headers) in [(false, 54), (true, 74)] {
            // Checksums are allowed to differ, and do differ.
            let free = if ipv6 { vec![70, 71] } else { vec![24, 25, 50, 51] };
            for at in 0..headers {
                for bit in 0..8 {
                    let mut batch = slots(ipv6, &[300; 9]);
                    let mut frame = batch.frame(4).to_vec();
                    frame[at] ^= 1 << bit;
                    batch.put(4, &frame);
                    let pushed = at == headers - 7 && bit == 3;
                    let expected = if free.contains(&at) {
                        9
                    } else if pushed {
                        5
                    } else {
                        4
                    };
                    assert_eq!(frames(&batch, 0, 9), Some(expected), "byte {at}, bit {bit}");
                }
            }
        }
        // Frames that end a run at their first segment: other flags, a fragment, options, other protocols, a truncated packet.
        for (at, byte) in
            [(47, 0x18), (47, 0x12), (47, 0x11), (47, 0x14), (20, 0x20), (20, 0), (14, 0x46), (23, 17), (12, 9)]
        {
            let mut batch = slots(false, &[300; 9]);
            let mut frame = batch.frame(0).to_vec();
            frame[at] = byte;
            batch.put(0, &frame);
            assert_eq!(frames(&batch, 0, 9), None, "byte {at}");
        }
        let whole = segment(false, 1, ACK, 10);
        for length in 0..whole.len() {
            assert!(Segment::read(&whole[..length]).is_none());
        }
    }

    #[test]
    fn headers_of_the_whole() {
        let sum = |parts: &[&[u8]]| {
            let words = parts.iter().flat_map(|part| part.chunks(2)).map(|c| u32::from(c[0]) << 8 | u32::from(c[1]));
            let sum = words.sum::<u32>();
            let sum = (sum & 0xffff) + (sum >> 16);
            (sum & 0xffff) as u16 + (sum >> 16) as u16
        };
        for (ipv6, tcp) in [(false, 34), (true, 54)] {
            let mut batch = slots(ipv6, &[1000, 1000, 1000, 1000, 1000, 8]);
            let last = segment(ipv6, (u32::MAX - 2_000).wrapping_add(5000), ACK | PUSH, 8);
            batch.put(5, &last);
            let mut headers = Vec::new();
            run(&batch, 0, 6).unwrap().write_headers(&batch, 0, &mut headers);
            let first = batch.frame(0);
            assert_eq!(headers.len(), tcp + 20);
            assert_eq!((headers[tcp + 13], &headers[tcp..tcp + 13]), (ACK | PUSH, &first[tcp..tcp + 13]));
            let length = 5_028_u16.to_be_bytes();
            let pseudo = sum(&[&headers[if ipv6 { 22 } else { 26 }..tcp], &[0, 6], &length]);
            assert_eq!(headers[tcp + 16..tcp + 18], pseudo.to_be_bytes());
            match ipv6 {
                true => assert_eq!(headers[18..20], length),
                false => {
                    assert_eq!(headers[16..18], 5_048_u16.to_be_bytes());
                    assert_eq!(sum(&[&headers[14..34]]), 0xffff);
                }
            }
        }
    }
}
