//! TLVs (RFC 5036 section 3.3), and a writer of bytes.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |U|F|        Type               |            Length             |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

use super::status::{Status, code};

pub(super) use crate::numbers::ldp_tlv as tlv_kind;

/// Length of the header of a TLV.
pub(super) const TLV_HEADER: usize = 4;
/// Bit U: the receiver ignores the TLV if it does not know the type.
pub(super) const UNKNOWN: u16 = 0x8000;
const TYPE: u16 = 0x3fff;

/// A TLV.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tlv<'a> {
    /// Without the bits U and F.
    pub kind: u16,
    /// Bit U.
    pub ignorable: bool,
    pub value: &'a [u8],
}

/// The TLVs of a message. The iterator ends after an error.
pub(super) struct Tlvs<'a>(pub &'a [u8]);

impl<'a> Iterator for Tlvs<'a> {
    type Item = Result<Tlv<'a>, Status>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = std::mem::take(&mut self.0);
        if bytes.is_empty() {
            return None;
        }
        let whole = bytes.split_first_chunk::<TLV_HEADER>().and_then(|(&[a, b, c, d], rest)| {
            let (head, length) = (u16::from_be_bytes([a, b]), usize::from(u16::from_be_bytes([c, d])));
            let (value, rest) = rest.split_at_checked(length)?;
            self.0 = rest;
            Some(Tlv { kind: head & TYPE, ignorable: head & UNKNOWN != 0, value })
        });
        Some(whole.ok_or(Status::new(code::BAD_TLV_LENGTH)))
    }
}

/// The value of a TLV of fixed length.
pub(super) fn fixed<const N: usize>(value: &[u8]) -> Result<[u8; N], Status> {
    value.try_into().map_err(|_| Status::new(code::MALFORMED_TLV_VALUE))
}

/// Writes to the front of a buffer.
pub(super) struct Writer<'a> {
    buffer: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub fn new(buffer: &'a mut [u8]) -> Writer<'a> {
        Writer { buffer, at: 0 }
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.buffer[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    pub fn u16(&mut self, value: u16) {
        self.bytes(&value.to_be_bytes());
    }

    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_be_bytes());
    }

    /// Writes a TLV; `head` is its type with the bits U and F.
    pub fn tlv(&mut self, head: u16, value: &[u8]) {
        self.u16(head);
        self.u16(value.len() as u16);
        self.bytes(value);
    }
}
