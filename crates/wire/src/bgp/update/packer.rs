//! Packs routes into UPDATE messages, directly in a send buffer.
//!
//! A message contains one group of routes. They share the attributes, which are encoded in advance. IPv4 unicast routes
//! are in the message's own fields. Routes of other families are in MP_REACH_NLRI, which is the first attribute (RFC
//! 7606 section 5.1).

use super::super::AfiSafi;
use super::super::message::{HEADER_LEN, emit_header, kind as message_kind};
use super::attributes::{flag, kind};
use super::nlri::{Frame, LONGEST};
use std::net::IpAddr;

/// Result of packing one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Length of the message; 0 if nothing was written because the buffer is too short.
    pub bytes: usize,
    /// Number of routes in the message.
    pub routes: u32,
}

/// The attributes leave no room for a route, even in the longest message that the peer accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// Writes the messages of one group of routes.
#[derive(Clone, Copy, Debug)]
pub struct Packer<'a> {
    /// Parts before each prefix.
    pub frame: Frame,
    /// Encoded attributes without MP_REACH_NLRI; for IPv4 unicast they include NEXT_HOP. Withdrawals do not use them.
    pub attributes: &'a [u8],
    /// The next hop of MP_REACH_NLRI: 4, 16 or 32 bytes. For VPN routes, a distinguisher of 8 bytes precedes it.
    pub next_hop: &'a [u8],
    /// Longest message, header included.
    pub max_len: usize,
}

/// Length of the header and the two length fields.
const FIXED: usize = HEADER_LEN + 4;

impl Packer<'_> {
    /// Returns the length in bytes of an announcement without its routes.
    pub fn overhead(&self) -> usize {
        let reach = if self.is_plain() { 0 } else { 4 + 5 + self.next_hop.len() };
        FIXED + reach + self.attributes.len()
    }

    fn is_plain(&self) -> bool {
        self.frame.family == AfiSafi::IPV4_UNICAST
    }

    /// Returns the number of bytes that a buffer needs for a message with at least one route.
    ///
    /// # Errors
    /// [`Packer::max_len`] is too short for such a message.
    pub fn needs(&self) -> Result<usize, TooLong> {
        let needs = self.overhead() + self.frame.longest();
        if needs <= self.max_len { Ok(needs) } else { Err(TooLong) }
    }

    /// Writes one message that announces the next routes: as many as fit, but at most `most`. Routes that are not
    /// written stay in `routes`.
    #[inline]
    pub fn announce(&self, buffer: &mut [u8], most: u32, routes: &mut impl Iterator<Item = (IpAddr, u8)>) -> Packed {
        let end = buffer.len().min(self.max_len);
        if self.overhead() + self.frame.longest() > end {
            return Packed::default();
        }
        let at = HEADER_LEN;
        buffer[at..at + 2].fill(0);
        if self.is_plain() {
            put16(buffer, at + 2, self.attributes.len());
            let start = FIXED + self.attributes.len();
            buffer[FIXED..start].copy_from_slice(self.attributes);
            let (end, n) = self.routes(&mut buffer[..end], start, most, routes);
            return self.finish(buffer, end, n);
        }
        let head = FIXED + 4;
        buffer[FIXED] = flag::OPTIONAL | flag::EXTENDED_LENGTH;
        buffer[FIXED + 1] = kind::MP_REACH_NLRI;
        let mut at = self.family(buffer, head);
        buffer[at] = self.next_hop.len() as u8;
        buffer[at + 1..at + 1 + self.next_hop.len()].copy_from_slice(self.next_hop);
        at += 1 + self.next_hop.len();
        buffer[at] = 0;
        let (at, n) = self.routes(&mut buffer[..end - self.attributes.len()], at + 1, most, routes);
        put16(buffer, FIXED + 2, at - head);
        let end = at + self.attributes.len();
        buffer[at..end].copy_from_slice(self.attributes);
        put16(buffer, HEADER_LEN + 2, end - FIXED);
        self.finish(buffer, end, n)
    }

    /// Writes one message that withdraws the next routes, like [`Packer::announce`].
    #[inline]
    pub fn withdraw(&self, buffer: &mut [u8], most: u32, routes: &mut impl Iterator<Item = (IpAddr, u8)>) -> Packed {
        let end = buffer.len().min(self.max_len);
        let overhead = if self.is_plain() { FIXED } else { FIXED + 4 + 3 };
        if overhead + self.frame.longest() > end {
            return Packed::default();
        }
        if self.is_plain() {
            let start = HEADER_LEN + 2;
            let (end, n) = self.routes(&mut buffer[..end - 2], start, most, routes);
            put16(buffer, HEADER_LEN, end - start);
            put16(buffer, end, 0);
            return self.finish(buffer, end + 2, n);
        }
        buffer[HEADER_LEN..HEADER_LEN + 2].fill(0);
        let head = FIXED + 4;
        buffer[FIXED] = flag::OPTIONAL | flag::EXTENDED_LENGTH;
        buffer[FIXED + 1] = kind::MP_UNREACH_NLRI;
        let at = self.family(buffer, head);
        let (end, n) = self.routes(&mut buffer[..end], at, most, routes);
        put16(buffer, FIXED + 2, end - head);
        put16(buffer, HEADER_LEN + 2, end - FIXED);
        self.finish(buffer, end, n)
    }

    /// Withdraws more routes in the message at the front of `buffer`, which [`Packer::withdraw`] wrote for a family other than IPv4
    /// unicast and perhaps another distinguisher. `packed` is the length of the message and the result the new length, with the
    /// number of added routes.
    #[inline]
    pub fn extend(
        &self,
        buffer: &mut [u8],
        packed: usize,
        most: u32,
        routes: &mut impl Iterator<Item = (IpAddr, u8)>,
    ) -> Packed {
        let limit = buffer.len().min(self.max_len);
        if packed + self.frame.longest() > limit {
            return Packed { bytes: packed, routes: 0 };
        }
        let (end, n) = self.routes(&mut buffer[..limit], packed, most, routes);
        put16(buffer, FIXED + 2, end - FIXED - 4);
        put16(buffer, HEADER_LEN + 2, end - FIXED);
        emit_header(buffer, message_kind::UPDATE, end);
        Packed { bytes: end, routes: n }
    }

    fn family(&self, buffer: &mut [u8], at: usize) -> usize {
        buffer[at..at + 2].copy_from_slice(&self.frame.family.afi.to_be_bytes());
        buffer[at + 2] = self.frame.family.safi;
        at + 3
    }

    /// Writes routes from `at` on. Returns the end offset and their number.
    #[inline]
    fn routes(
        &self,
        buffer: &mut [u8],
        mut at: usize,
        most: u32,
        routes: &mut impl Iterator<Item = (IpAddr, u8)>,
    ) -> (usize, u32) {
        let longest = self.frame.longest();
        let mut n = 0;
        while n < most && buffer.len() - at >= longest {
            let Some((address, length)) = routes.next() else { break };
            at += match buffer.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<LONGEST>()) {
                Some(room) => self.frame.emit(room, n, address, length),
                None => {
                    let mut room = [0; LONGEST];
                    let bytes = self.frame.emit(&mut room, n, address, length);
                    buffer[at..at + bytes].copy_from_slice(&room[..bytes]);
                    bytes
                }
            };
            n += 1;
        }
        (at, n)
    }

    fn finish(&self, buffer: &mut [u8], end: usize, routes: u32) -> Packed {
        if routes == 0 {
            return Packed::default();
        }
        emit_header(buffer, message_kind::UPDATE, end);
        Packed { bytes: end, routes }
    }
}

fn put16(buffer: &mut [u8], at: usize, value: usize) {
    buffer[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
}

/// Length of the longest End-of-RIB.
pub const END_OF_RIB_MAX: usize = FIXED + 6;

/// Writes the End-of-RIB marker of a family (RFC 4724 section 2) and returns its length; 0 if the buffer is too short.
pub fn end_of_rib(buffer: &mut [u8], family: AfiSafi) -> usize {
    let length = if family == AfiSafi::IPV4_UNICAST { FIXED } else { END_OF_RIB_MAX };
    let Some(message) = buffer.get_mut(..length) else { return 0 };
    message[HEADER_LEN..].fill(0);
    if length > FIXED {
        put16(message, HEADER_LEN + 2, length - FIXED);
        message[FIXED..FIXED + 3].copy_from_slice(&[flag::OPTIONAL, kind::MP_UNREACH_NLRI, 3]);
        message[FIXED + 3..FIXED + 5].copy_from_slice(&family.afi.to_be_bytes());
        message[FIXED + 5] = family.safi;
    }
    emit_header(message, message_kind::UPDATE, length);
    length
}
