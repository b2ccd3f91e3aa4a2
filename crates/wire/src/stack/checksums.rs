//! The checksums of a frame: their positions, and the bytes that they cover.

use super::extensions::final_destination_at;
use super::locate::{Layer, Layers, Stop, locate};
use super::number::*;
use crate::{checksum, udp};
use drophammer_model::traffic::{FieldName, HeaderKind};
use std::ops::Range;

/// Kind of a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChecksumKind {
    /// Header checksum of IPv4.
    Ipv4Header,
    /// UDP checksum.
    Udp,
    /// TCP checksum.
    Tcp,
    /// ICMP checksum.
    Icmp,
    /// ICMPv6 checksum.
    Icmpv6,
    /// GRE checksum.
    Gre,
}

/// A range of bytes in a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// Offset of the first byte.
    pub offset: usize,
    /// Number of bytes; 0 for an empty span.
    pub length: usize,
}

impl Span {
    fn new(offset: usize, length: usize) -> Span {
        Span { offset, length }
    }

    /// Returns the span as a range.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.length
    }
}

/// A checksum (RFC 1071) of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Checksum {
    /// Kind of the checksum.
    pub kind: ChecksumKind,
    /// Index of the checksum's header in the stack.
    pub header: usize,
    /// Offset of the checksum's two bytes.
    pub at: usize,
    /// The covered bytes: the addresses of the pseudo-header in the first two spans, header and contents in the last.
    /// Only the last span can have an odd length. Each span is summed as if it started at an even offset.
    pub covers: [Span; 3],
    /// Sum of the pseudo-header without the addresses: protocol and length.
    pub constant: u64,
}

impl Checksum {
    /// Returns the sum over all covered bytes, including the checksum itself, as big-endian words, not folded.
    pub fn sum(&self, frame: &[u8]) -> u64 {
        self.covers.iter().filter_map(|span| frame.get(span.range())).map(checksum::sum).sum::<u64>() + self.constant
    }

    /// True if the checksum is correct. Bytes beyond the end of the frame count as zero.
    pub fn holds(&self, frame: &[u8]) -> bool {
        checksum::fold(self.sum(frame)) == 0xffff
    }

    /// Writes the correct checksum. A UDP checksum is never written as zero, which means "none" (RFC 768), but as the
    /// equivalent all ones.
    ///
    /// # Panics
    /// If the checksum is beyond the end of `frame`.
    pub fn write(&self, frame: &mut [u8]) {
        let field = &mut frame[self.at..self.at + 2];
        field.fill(0);
        let sum = self.sum(frame);
        let value = if self.kind == ChecksumKind::Udp { udp::field(sum) } else { checksum::finish(sum) };
        frame[self.at..self.at + 2].copy_from_slice(&value.to_be_bytes());
    }

    /// True if the sender left the checksum out, which is allowed only for UDP over IPv4 (RFC 768).
    fn is_absent(&self, frame: &[u8]) -> bool {
        // Addresses of 4 bytes mean IPv4.
        self.kind == ChecksumKind::Udp && self.covers[0].length == 4 && frame.get(self.at..self.at + 2) == Some(&[0, 0])
    }
}

impl Layers {
    /// Returns the checksum of header `index` of `frame`; `None` if that header has none. A checksum that the sender
    /// left out (UDP over IPv4) is also described.
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

    /// Iterates over the checksums of `frame`, innermost first: a checksum that covers another comes after it.
    pub fn checksums<'a>(&'a self, frame: &'a [u8]) -> impl Iterator<Item = Checksum> + 'a {
        (0..self.len()).rev().filter_map(|index| self.checksum(frame, index))
    }

    /// Iterates over the wrong checksums of `frame`.
    pub fn wrong_checksums<'a>(&'a self, frame: &'a [u8]) -> impl Iterator<Item = Checksum> + 'a {
        self.checksums(frame).filter(|c| !c.is_absent(frame) && !c.holds(frame))
    }
}

/// Returns the addresses of the pseudo-header for an IP header: source and final destination.
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

/// True if all recognised headers are complete, and all checksums that are present are correct.
pub fn is_intact(frame: &[u8]) -> bool {
    let layers = locate(frame);
    !matches!(layers.stop(), Stop::Cut | Stop::Malformed | Stop::Length)
        && layers.wrong_checksums(frame).next().is_none()
}
