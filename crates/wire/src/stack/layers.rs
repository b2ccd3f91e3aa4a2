//! The headers of a frame by kind and place.

use drophammer_model::traffic::HeaderKind;
use std::ops::{Deref, Range};

/// Most headers of a frame.
pub const MAX_LAYERS: usize = 16;

/// One header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Kind of the header.
    pub kind: HeaderKind,
    offset: u16,
    length: u16,
    end: u16,
}

impl Layer {
    pub(super) fn new(kind: HeaderKind, offset: usize, length: usize, end: usize) -> Layer {
        Layer { kind, offset: offset as u16, length: length as u16, end: end as u16 }
    }

    /// First byte, counted from the start of the frame.
    #[inline]
    pub fn offset(&self) -> usize {
        self.offset.into()
    }

    /// Length of the header in bytes, including options and the extension headers of IPv6.
    #[inline]
    pub fn length(&self) -> usize {
        self.length.into()
    }

    /// End of the header's contents, according to its own length field and the headers around it.
    #[inline]
    pub fn end(&self) -> usize {
        self.end.into()
    }

    /// Header and contents.
    #[inline]
    pub fn range(&self) -> Range<usize> {
        self.offset()..self.end()
    }
}

/// Why the search for headers ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// UDP, TCP or ICMP echo was found: an application payload follows.
    Transport,
    /// The type of what follows is unknown, or labels are not followed by an IP packet.
    Unknown,
    /// The frame ends within a header.
    Cut,
    /// The header is invalid: a wrong version, or a header length below its minimum.
    Malformed,
    /// The length field of the last header exceeds the available bytes, or is smaller than the header.
    Length,
    /// A fragment of an IP packet, which lacks the next header or a part of the payload.
    Fragment,
    /// There are more than [`MAX_LAYERS`] headers.
    Depth,
}

/// The headers of a frame, the outermost first. A slice of [`Layer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    list: [Layer; MAX_LAYERS],
    count: u8,
    payload: (u16, u16),
    stop: Stop,
}

impl Layers {
    /// An empty list for a frame of `len` bytes.
    pub(super) fn none(len: usize, stop: Stop) -> Layers {
        let nothing = Layer { kind: HeaderKind::Raw, offset: 0, length: 0, end: 0 };
        Layers { list: [nothing; MAX_LAYERS], count: 0, payload: (0, len as u16), stop }
    }

    /// Appends a header; false if there is no room. Its contents become the payload.
    #[inline]
    pub(super) fn push(&mut self, layer: Layer) -> bool {
        let Some(slot) = self.list.get_mut(usize::from(self.count)) else { return false };
        *slot = layer;
        self.count += 1;
        self.payload = (layer.offset + layer.length, layer.end);
        true
    }

    #[inline]
    pub(super) fn stopped(mut self, stop: Stop) -> Layers {
        self.stop = stop;
        self
    }

    /// The payload of the innermost header, without padding after an IP packet. The end is not before the start.
    #[inline]
    pub fn payload(&self) -> Range<usize> {
        self.payload.0.into()..self.payload.1.into()
    }

    /// Why the search for headers ended.
    #[inline]
    pub fn stop(&self) -> Stop {
        self.stop
    }

    /// Index of the outermost header of that kind.
    pub fn find(&self, kind: HeaderKind) -> Option<usize> {
        self.iter().position(|layer| layer.kind == kind)
    }

    /// Index of the outermost IP header.
    pub fn outermost_ip(&self) -> Option<usize> {
        self.iter().position(|layer| is_ip(layer.kind))
    }

    /// Index of the innermost IP header.
    pub fn innermost_ip(&self) -> Option<usize> {
        self.iter().rposition(|layer| is_ip(layer.kind))
    }
}

pub(super) fn is_ip(kind: HeaderKind) -> bool {
    matches!(kind, HeaderKind::Ipv4 | HeaderKind::Ipv6)
}

impl Deref for Layers {
    type Target = [Layer];

    #[inline]
    fn deref(&self) -> &[Layer] {
        &self.list[..self.count.into()]
    }
}
