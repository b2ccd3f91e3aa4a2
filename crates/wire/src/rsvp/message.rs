//! The common header (RFC 2205 section 3.1.1), and the objects of a message as bytes.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-------+-------+---------------+-------------------------------+
//! | Vers  | Flags |   Msg Type    |         RSVP Checksum         |
//! +-------+-------+---------------+-------------------------------+
//! |    Send_TTL   |   (Reserved)  |          RSVP Length          |
//! +---------------+---------------+-------------------------------+
//! |        Length (bytes)         |   Class-Num   |    C-Type     |  first object
//! +-------------------------------+---------------+---------------+
//! |                       Object contents                         |
//! ```

use super::{Object, kind, malformed};
use crate::{Malformed, checksum};

/// Length of the common header in bytes.
pub const HEADER_LEN: usize = 8;
/// Length of the header of an object in bytes.
const OBJECT_HEADER_LEN: usize = 4;
const VERSION: u8 = 1;

/// Flags of the common header.
pub mod flag {
    /// The sender supports the refresh reduction extensions (RFC 2961 section 2).
    pub const REFRESH_REDUCTION_CAPABLE: u8 = 1;
}

/// A message: its header, and objects whose lengths fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Flags of the header, 4 bits, see [`flag`].
    pub flags: u8,
    /// One of [`kind`].
    pub kind: u8,
    /// TTL with which the message was sent.
    pub ttl: u8,
    body: &'a [u8],
}

impl<'a> Message<'a> {
    /// Parses a message, which is the whole payload of the IP packet. A checksum of 0 means that there is none.
    ///
    /// # Errors
    /// Wrong version, length or checksum; an object whose length does not fit.
    pub fn parse(packet: &'a [u8]) -> Result<Message<'a>, Malformed> {
        let message = Message::front(packet)?;
        match packet.len() - HEADER_LEN == message.body.len() {
            true => Ok(message),
            false => Err(malformed("bytes after the message")),
        }
    }

    /// The message at the front of `bytes`.
    fn front(bytes: &'a [u8]) -> Result<Message<'a>, Malformed> {
        let Some([first, kind, sum @ .., ttl, _, high, low]) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(malformed("fewer than 8 bytes"));
        };
        if first >> 4 != VERSION {
            return Err(malformed("version is not 1"));
        }
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let Some(whole) = bytes.get(..length).filter(|_| length >= HEADER_LEN && length % 4 == 0) else {
            return Err(malformed("length does not fit"));
        };
        if *sum != [0, 0] && checksum::fold(checksum::sum(whole)) != 0xffff {
            return Err(malformed("wrong checksum"));
        }
        let message = Message { flags: first & 15, kind: *kind, ttl: *ttl, body: &whole[HEADER_LEN..] };
        if *kind != kind::BUNDLE {
            let mut objects = message.objects();
            objects.by_ref().for_each(drop);
            if !objects.0.is_empty() {
                return Err(malformed("length of an object does not fit"));
            }
        }
        Ok(message)
    }

    /// Its objects, in order; none for a Bundle.
    pub fn objects(&self) -> Objects<'a> {
        Objects(if self.kind == kind::BUNDLE { &[] } else { self.body })
    }

    /// The messages of a Bundle (RFC 2961 section 3), up to the first malformed one; none for another message. A Bundle in a Bundle
    /// is malformed.
    pub fn submessages(&self) -> impl Iterator<Item = Result<Message<'a>, Malformed>> + use<'a> {
        let mut rest = if self.kind == kind::BUNDLE { self.body } else { &[] };
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let sub = Message::front(rest).and_then(|sub| match sub.kind {
                kind::BUNDLE => Err(malformed("a Bundle in a Bundle")),
                _ => Ok(sub),
            });
            rest = sub.map_or(&[], |sub| &rest[HEADER_LEN + sub.body.len()..]);
            Some(sub)
        })
    }
}

/// An object: its class, type and contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawObject<'a> {
    /// Class number, see [`super::class`].
    pub class: u8,
    /// C-Type within the class.
    pub ctype: u8,
    /// Contents, a multiple of 4 bytes.
    pub body: &'a [u8],
}

/// Iterates over objects; ends at an object whose length does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Objects<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Objects<'a> {
    type Item = RawObject<'a>;

    #[inline]
    fn next(&mut self) -> Option<RawObject<'a>> {
        let [high, low, class, ctype] = *self.0.first_chunk::<OBJECT_HEADER_LEN>()?;
        let length = usize::from(u16::from_be_bytes([high, low]));
        let body = self.0.get(OBJECT_HEADER_LEN..length).filter(|_| length % 4 == 0)?;
        self.0 = &self.0[length..];
        Some(RawObject { class, ctype, body })
    }
}

/// Writes a message at the end of a buffer.
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Writer<'a> {
    /// Begins a message after the bytes in `out`.
    pub fn new(out: &'a mut Vec<u8>, kind: u8, flags: u8, ttl: u8) -> Writer<'a> {
        let start = out.len();
        out.extend([VERSION << 4 | flags & 15, kind, 0, 0, ttl, 0, 0, 0]);
        Writer { out, start }
    }

    /// Appends an object.
    pub fn object(&mut self, object: &Object<'_>) {
        object.emit(self.out);
    }

    /// Appends whole objects, or the messages of a Bundle.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Length of the message so far, in bytes.
    pub fn message_len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Completes the message with its length and checksum.
    ///
    /// # Panics
    /// If it is longer than 65535 bytes.
    pub fn finish(self) {
        let message = &mut self.out[self.start..];
        let length = u16::try_from(message.len()).expect("a message of at most 65535 bytes");
        message[6..8].copy_from_slice(&length.to_be_bytes());
        // A checksum of zero means none; ones' complement has another zero.
        let sum = match checksum::finish(checksum::sum(message)) {
            0 => 0xffff,
            sum => sum,
        };
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Appends an object whose contents `write` appends, padded with zeros to a multiple of 4 bytes.
pub(super) fn emit_object(out: &mut Vec<u8>, class: u8, ctype: u8, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0, 0, class, ctype]);
    write(out);
    out.resize(start + (out.len() - start).next_multiple_of(4), 0);
    let length = u16::try_from(out.len() - start).expect("an object of at most 65535 bytes");
    out[start..start + 2].copy_from_slice(&length.to_be_bytes());
}
