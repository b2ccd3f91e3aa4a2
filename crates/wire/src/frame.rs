//! A frame that owns its memory, so that it can change hands without a copy.

use std::ops::Deref;

/// Length in bytes of the head that [`Frame::head_mut`] returns: room for headers up to UDP over IPv6, and a little more.
pub const HEAD: usize = 64;

/// A frame without FCS.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    bytes: Vec<u8>,
    /// Identifies the content after the head, as set by the last writer; 0 if unknown.
    body: u64,
}

impl Frame {
    /// Creates an empty frame with capacity for `room` bytes.
    pub fn with_room(room: usize) -> Frame {
        Frame { bytes: Vec::with_capacity(room), body: 0 }
    }

    /// True if the frame has any memory.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.bytes.capacity() > 0
    }

    /// Returns the first [`HEAD`] bytes, or all bytes of a shorter frame. The body identifier remains valid.
    #[inline]
    pub fn head_mut(&mut self) -> &mut [u8] {
        let head = self.bytes.len().min(HEAD);
        &mut self.bytes[..head]
    }

    /// Returns all bytes. Clears the body identifier, because the caller may change the body.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        self.body = 0;
        &mut self.bytes
    }

    /// Sets the length to `len` and the body identifier to `body`, which must not be 0 and must differ for different
    /// contents. Returns true if the frame already contains that body; otherwise the caller must write it.
    #[inline]
    pub fn hold(&mut self, body: u64, len: usize) -> (&mut [u8], bool) {
        let held = self.body == body && self.bytes.len() == len;
        self.body = body;
        if self.bytes.len() != len {
            self.bytes.resize(len, 0);
        }
        (&mut self.bytes, held)
    }
}

impl Deref for Frame {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_known_until_somebody_may_have_changed_it() {
        let mut frame = Frame::with_room(100);
        assert!(frame.has_room() && !Frame::default().has_room() && frame.head_mut().is_empty());
        assert_eq!(frame.hold(7, 90), (&mut [0; 90][..], false));
        frame.head_mut().fill(1);
        assert_eq!((frame.head_mut().len(), frame.iter().filter(|b| **b == 1).count()), (HEAD, HEAD));
        assert!(frame.hold(7, 90).1, "the head is not a part of it");
        assert!(!frame.hold(8, 90).1 && !frame.hold(7, 90).1, "another body was there");
        assert!(!frame.hold(7, 80).1 && frame.hold(7, 80).1);
        let mut copy = frame.clone();
        frame.bytes_mut()[70] = 3;
        assert!(!frame.hold(7, 80).1 && copy.hold(7, 80).1);
    }
}
