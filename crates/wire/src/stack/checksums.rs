//! The checksums of a frame: where they are, and what they cover.

use super::extensions::final_destination_at;
use super::layers::{Layer, Layers, Stop};
use super::locate::locate;
use super::number::*;
use crate::{checksum, udp};
use drophammer_model::traffic::{FieldName, HeaderKind};
use std::ops::Range;

/// Which checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChecksumKind {
    /// Of the IPv4 header.
    Ipv4Header,
    /// Of UDP.
    Udp,
    /// Of TCP.
    Tcp,
    /// Of ICMP.
    Icmp,
    /// Of ICMPv6.
    Icmpv6,
    /// Of GRE.
    Gre,
}

/// Bytes of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// First byte.
    pub offset: usize,
    /// How many; 0 where there is nothing.
    pub length: usize,
}

impl Span {
    fn new(offset: usize, length: usize) -> Span {
        Span { offset, length }
    }

    /// As a range.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.length
    }
}

/// A checksum (RFC 1071) of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Checksum {
    /// Which.
    pub kind: ChecksumKind,
    /// Index of its header in the stack.
    pub header: usize,
    /// Where its two bytes are.
    pub at: usize,
    /// What it covers: addresses of the pseudo header in the first two, header and contents in the last. Only the last may
    /// have an odd length; each is summed as if it began at an even offset.
    pub covers: [Span; 3],
    /// What the pseudo header adds to the addresses: protocol and length.
    pub constant: u64,
}

impl Checksum {
    /// Sum over all that is covered, the checksum's own bytes as they are; big-endian words, not folded.
    pub fn sum(&self, frame: &[u8]) -> u64 {
        self.covers.iter().filter_map(|span| frame.get(span.range())).map(checksum::sum).sum::<u64>() + self.constant
    }

    /// Is it right? Bytes beyond the end of the frame count as nothing.
    pub fn holds(&self, frame: &[u8]) -> bool {
        checksum::fold(self.sum(frame)) == 0xffff
    }

    /// Makes it right. That of UDP is never zero, which means "none" (RFC 768): all ones say the same.
    ///
    /// # Panics
    /// The checksum is beyond the end of `frame`.
    pub fn write(&self, frame: &mut [u8]) {
        let field = &mut frame[self.at..self.at + 2];
        field.fill(0);
        let sum = self.sum(frame);
        let value = if self.kind == ChecksumKind::Udp { udp::field(sum) } else { checksum::finish(sum) };
        frame[self.at..self.at + 2].copy_from_slice(&value.to_be_bytes());
    }

    /// Has the sender left it out? Only that of UDP over IPv4 may be (RFC 768).
    fn is_absent(&self, frame: &[u8]) -> bool {
        // The addresses of IPv4 are the shorter ones.
        self.kind == ChecksumKind::Udp && self.covers[0].length == 4 && frame.get(self.at..self.at + 2) == Some(&[0, 0])
    }
}

impl Layers {
    /// The checksum of header `index` of `frame`, `None` if it has none. A checksum that the sender has left out, as UDP
    /// over IPv4 may, is described as well.
    pub fn checksum(&self, frame: &[u8], index: usize) -> Option<Checksum> {
        let layer = self.get(index)?;
        let below = index.checked_sub(1).and_then(|i| self.get(i));
        let contents = Span::new(layer.offset(), layer.end().checked_sub(layer.offset())?);
        let (kind, covers, constant) = match layer.kind {
            HeaderKind::Ipv4 => (
                ChecksumKind::Ipv4Header,
                [Span::default(), Span::default(), Span::new(layer.offset(), layer.length())],
                0,
            ),
            HeaderKind::Gre => (ChecksumKind::Gre, [Span::default(), Span::default(), contents], 0),
            HeaderKind::Udp => {
                let (a, b) = addresses(frame, below?)?;
                (ChecksumKind::Udp, [a, b, contents], u64::from(UDP) + contents.length as u64)
            }
            HeaderKind::Tcp => {
                let (a, b) = addresses(frame, below?)?;
                (ChecksumKind::Tcp, [a, b, contents], u64::from(TCP) + contents.length as u64)
            }
            HeaderKind::IcmpEcho if below?.kind == HeaderKind::Ipv6 => {
                let (a, b) = addresses(frame, below?)?;
                (ChecksumKind::Icmpv6, [a, b, contents], u64::from(ICMPV6) + contents.length as u64)
            }
            HeaderKind::IcmpEcho => (ChecksumKind::Icmp, [Span::default(), Span::default(), contents], 0),
            _ => return None,
        };
        let name = if kind == ChecksumKind::Ipv4Header { FieldName::HeaderChecksum } else { FieldName::Checksum };
        let at = self.place(frame, index, name)?.byte();
        Some(Checksum { kind, header: index, at, covers, constant })
    }

    /// The checksums of `frame`, the innermost first: one that covers another comes after it.
    pub fn checksums<'a>(&'a self, frame: &'a [u8]) -> impl Iterator<Item = Checksum> + 'a {
        (0..self.len()).rev().filter_map(|index| self.checksum(frame, index))
    }

    /// The checksums of `frame` that are wrong.
    pub fn wrong_checksums<'a>(&'a self, frame: &'a [u8]) -> impl Iterator<Item = Checksum> + 'a {
        self.checksums(frame).filter(|c| !c.is_absent(frame) && !c.holds(frame))
    }
}

/// The addresses of the pseudo header over an IP header: source and final destination.
fn addresses(frame: &[u8], ip: &Layer) -> Option<(Span, Span)> {
    let at = ip.offset();
    match ip.kind {
        HeaderKind::Ipv4 => Some((Span::new(at + 12, 4), Span::new(at + 16, 4))),
        HeaderKind::Ipv6 => {
            let headers = frame.get(at..at + ip.length())?;
            Some((Span::new(at + 8, 16), Span::new(at + final_destination_at(headers), 16)))
        }
        _ => None,
    }
}

/// Is every header whole that can be recognised, and every checksum right that is there?
pub fn is_intact(frame: &[u8]) -> bool {
    let layers = locate(frame);
    !matches!(layers.stop(), Stop::Cut | Stop::Malformed | Stop::Length)
        && layers.wrong_checksums(frame).next().is_none()
}
