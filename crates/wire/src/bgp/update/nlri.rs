//! One route in an UPDATE: a length in bits, and a prefix of that length (RFC 4271 section 4.3). A path identifier
//! precedes it if both speakers have agreed on that (RFC 7911). In families that have labels (RFC 8277) and a route
//! distinguisher (RFC 4364), these follow the length.
//!
//! ```text
//! +---------------------------+
//! |  Path Identifier (4)      |  add-path only
//! +---------------------------+
//! |  Length in bits (1)       |  of all that follows
//! +---------------------------+
//! |  Labels (3 each)          |  SAFI 4 and 128; bit 0 of the last one is set
//! +---------------------------+
//! |  Route Distinguisher (8)  |  SAFI 128
//! +---------------------------+
//! |  Prefix (0 to 16)         |
//! +---------------------------+
//! ```

use super::super::AfiSafi;
use drophammer_model::trial::Family;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length of the longest route that is written: path identifier, length, one label, route distinguisher, IPv6 address.
pub const LONGEST: usize = 4 + 1 + 3 + 8 + 16;
/// Value in place of labels in a withdrawal (RFC 8277 section 2.4).
pub const WITHDRAWN_LABEL: [u8; 3] = [0x80, 0, 0];

/// Labels of the routes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labels {
    /// All routes have this label.
    Same(u32),
    /// The first route has this label, and each route after it the next number.
    Counting(u32),
    /// Route `n` has label `first + (n + start) / shared`: consecutive routes share a label. `start` may wrap around.
    Blocks {
        /// Label of the first block.
        first: u32,
        /// Number of routes with one label, at least 1.
        shared: u32,
        /// Added to `n` to get the route's position, counted from the start of the first block.
        start: u32,
    },
    /// The routes are withdrawn, which needs no label.
    Withdrawn,
}

impl Labels {
    /// The labels of the routes from number `n` on.
    #[inline]
    pub fn from(self, n: u32) -> Labels {
        match self {
            Labels::Counting(first) => Labels::Counting(first.wrapping_add(n)),
            Labels::Blocks { first, shared, start } => Labels::Blocks { first, shared, start: start.wrapping_add(n) },
            Labels::Same(_) | Labels::Withdrawn => self,
        }
    }

    /// Returns the three bytes for route number `n`: label and bottom of stack.
    #[inline]
    fn bytes(self, n: u32) -> [u8; 3] {
        let label = match self {
            Labels::Same(label) => label,
            Labels::Counting(first) => first.wrapping_add(n),
            Labels::Blocks { first, shared, start } => first.wrapping_add(n.wrapping_add(start) / shared.max(1)),
            Labels::Withdrawn => return WITHDRAWN_LABEL,
        };
        self::label(label)
    }
}

/// A label that is the only one of its route: 20 bits, and bottom of stack (RFC 8277 section 2.2).
#[inline]
pub fn label(label: u32) -> [u8; 3] {
    let [_, bytes @ ..] = ((label & 0xf_ffff) << 4 | 1).to_be_bytes();
    bytes
}

/// The parts before the prefixes, the same for all routes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Family.
    pub family: AfiSafi,
    /// Path identifier, if the session uses them.
    pub path_id: Option<u32>,
    /// Labels, if the family has them.
    pub labels: Labels,
    /// Route distinguisher, if the family has one.
    pub distinguisher: [u8; 8],
}

impl Frame {
    /// Returns a frame for this family with defaults: label 3 (implicit null), distinguisher 0.
    pub const fn plain(family: AfiSafi) -> Frame {
        Frame { family, path_id: None, labels: Labels::Same(3), distinguisher: [0; 8] }
    }

    /// Returns the length in bytes of the longest possible route with this frame.
    pub fn longest(&self) -> usize {
        let address = usize::from(self.family.address_bits().unwrap_or(128) / 8);
        let path_id = if self.path_id.is_some() { 4 } else { 0 };
        let labels = if self.family.is_labelled() { 3 } else { 0 };
        let distinguisher = if self.family.is_vpn() { 8 } else { 0 };
        path_id + 1 + labels + distinguisher + address
    }

    /// Writes route number `n` of the message and returns its length. `out` has [`LONGEST`] bytes; bytes after the
    /// route are overwritten too. Bits beyond `length` must be zero.
    #[inline]
    pub fn emit(&self, out: &mut [u8; LONGEST], n: u32, address: IpAddr, length: u8) -> usize {
        let mut at = 0;
        if let Some(id) = self.path_id {
            out[..4].copy_from_slice(&id.to_be_bytes());
            at = 4;
        }
        let bits_at = at;
        let mut bits = length;
        at += 1;
        if self.family.is_labelled() {
            out[at..at + 3].copy_from_slice(&self.labels.bytes(n));
            at += 3;
            bits += 24;
            if self.family.is_vpn() {
                out[at..at + 8].copy_from_slice(&self.distinguisher);
                at += 8;
                bits += 64;
            }
        }
        out[bits_at] = bits;
        match address {
            IpAddr::V4(a) => out[at..at + 4].copy_from_slice(&a.octets()),
            IpAddr::V6(a) => out[at..at + 16].copy_from_slice(&a.octets()),
        }
        at + usize::from(length).div_ceil(8)
    }
}

/// A received route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nlri<'a> {
    /// Family.
    pub family: AfiSafi,
    /// Path identifier, if the session uses them.
    pub path_id: Option<u32>,
    /// Labels, 3 bytes each; empty if the family has none.
    pub labels: &'a [u8],
    /// Route distinguisher, if the family has one.
    pub distinguisher: Option<[u8; 8]>,
    /// Length of the prefix in bits.
    pub length: u8,
    /// The bytes of the prefix; bits beyond its length may be set.
    pub bytes: &'a [u8],
}

impl Nlri<'_> {
    /// Returns the network address, with bits beyond the length cleared.
    #[inline]
    pub fn address(&self) -> IpAddr {
        let shift = |width: u32| width - u32::from(self.length);
        if self.family.ip_version() == Some(Family::Ipv4) {
            let mask = u32::MAX.checked_shl(shift(32)).unwrap_or(0);
            Ipv4Addr::from(leading4(self.bytes) & mask).into()
        } else {
            let mask = u128::MAX.checked_shl(shift(128)).unwrap_or(0);
            Ipv6Addr::from(leading16(self.bytes) & mask).into()
        }
    }

    /// Returns label number `n`, counted from the top.
    pub fn label(&self, n: usize) -> Option<u32> {
        let bytes = self.labels.chunks_exact(3).nth(n)?;
        Some(u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) >> 4)
    }
}

/// Returns the first bytes of a number, at most 4. Missing bytes are 0. Reads two words that overlap: copying single
/// bytes and reading them back as a word would stall the processor.
#[inline]
fn leading4(bytes: &[u8]) -> u32 {
    match (bytes.first_chunk::<2>(), bytes.last_chunk::<2>()) {
        (Some(first), Some(last)) if bytes.len() <= 4 => {
            let missing = 8 * (4 - bytes.len() as u32);
            u32::from(u16::from_be_bytes(*first)) << 16 | u32::from(u16::from_be_bytes(*last)) << missing
        }
        _ => bytes.first().map_or(0, |byte| u32::from(*byte) << 24),
    }
}

/// Like [`leading4`], but for at most 16 bytes.
#[inline]
fn leading16(bytes: &[u8]) -> u128 {
    let n = bytes.len() as u32;
    let word4 = |chunk: Option<&[u8; 4]>| u64::from(chunk.map_or(0, |bytes| u32::from_be_bytes(*bytes)));
    let word8 = |chunk: Option<&[u8; 8]>| u128::from(chunk.map_or(0, |bytes| u64::from_be_bytes(*bytes)));
    match n {
        9..=16 => word8(bytes.first_chunk()) << 64 | word8(bytes.last_chunk()) << (8 * (16 - n)),
        4..=8 => u128::from(word4(bytes.first_chunk()) << 32 | word4(bytes.last_chunk()) << (8 * (8 - n))) << 64,
        _ => u128::from(leading4(bytes)) << 96,
    }
}

/// Consecutive routes of one family.
#[derive(Clone, Debug)]
pub struct Routes<'a> {
    family: AfiSafi,
    width: u8,
    path_ids: bool,
    /// True if labels end with the bottom of the stack.
    stacks: bool,
    rest: &'a [u8],
}

/// A route that cannot be parsed: it extends beyond the end, or is longer than an address (RFC 7606 section 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

impl<'a> Routes<'a> {
    /// Returns the routes of `family`; `None` if the family is not supported.
    #[inline]
    pub fn new(family: AfiSafi, path_ids: bool, bytes: &'a [u8]) -> Option<Routes<'a>> {
        let width = family.address_bits().filter(|_| super::is_known(family))?;
        Some(Routes { family, width, path_ids, stacks: false, rest: bytes })
    }

    /// The same bytes, where each route has a label stack, if `stacks` (RFC 8277 section 2.3). Otherwise it has exactly one label, and the
    /// bottom of stack is ignored (section 2.2); a withdrawn route has the Compatibility field instead, whose value is ignored
    /// (section 2.4).
    #[inline]
    pub fn with_stacks(self, stacks: bool) -> Routes<'a> {
        Routes { stacks, ..self }
    }

    /// Returns no routes.
    pub fn none() -> Routes<'a> {
        Routes { family: AfiSafi::IPV4_UNICAST, width: 32, path_ids: false, stacks: false, rest: &[] }
    }

    /// Returns the family.
    pub fn family(&self) -> AfiSafi {
        self.family
    }

    /// True if no route is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// True if all remaining routes can be parsed.
    pub fn are_readable(&self) -> bool {
        if !self.path_ids && !self.family.is_labelled() {
            // The common case needs only the lengths.
            let mut rest = self.rest;
            while let [length, tail @ ..] = rest {
                let bytes = usize::from(*length).div_ceil(8);
                if *length > self.width || tail.len() < bytes {
                    return false;
                }
                rest = &tail[bytes..];
            }
            return true;
        }
        self.clone().all(|route| route.is_ok())
    }

    #[inline]
    fn take(&mut self, n: usize) -> Result<&'a [u8], Unreadable> {
        let (head, tail) = self.rest.split_at_checked(n).ok_or(Unreadable)?;
        self.rest = tail;
        Ok(head)
    }

    #[inline]
    fn read(&mut self) -> Result<Nlri<'a>, Unreadable> {
        let path_id = match self.path_ids {
            true => Some(u32::from_be_bytes(self.take(4)?.try_into().map_err(|_| Unreadable)?)),
            false => None,
        };
        let mut bits = self.take(1)?[0];
        let (mut labels, mut distinguisher): (&[u8], _) = (&[], None);
        if self.family.is_labelled() {
            let body = self.rest;
            let mut end = 0;
            loop {
                let label = self.take(3)?;
                bits = bits.checked_sub(24).ok_or(Unreadable)?;
                end += 3;
                if label[2] & 1 == 1 || !self.stacks {
                    break;
                }
            }
            labels = &body[..end];
            if self.family.is_vpn() {
                bits = bits.checked_sub(64).ok_or(Unreadable)?;
                distinguisher = Some(self.take(8)?.try_into().map_err(|_| Unreadable)?);
            }
        }
        if bits > self.width {
            return Err(Unreadable);
        }
        let bytes = self.take(usize::from(bits).div_ceil(8))?;
        Ok(Nlri { family: self.family, path_id, labels, distinguisher, length: bits, bytes })
    }
}

impl<'a> Iterator for Routes<'a> {
    type Item = Result<Nlri<'a>, Unreadable>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let route = self.read();
        if route.is_err() {
            self.rest = &[];
        }
        Some(route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(family: AfiSafi, path_ids: bool, bytes: &[u8]) -> Result<Nlri<'_>, Unreadable> {
        Routes::new(family, path_ids, bytes).unwrap().next().unwrap()
    }

    #[test]
    fn bytes_of_each_kind() {
        let mut out = [0; LONGEST];
        let v4: IpAddr = "1.2.240.0".parse().unwrap();
        let plain = Frame::plain(AfiSafi::IPV4_UNICAST);
        assert_eq!((plain.emit(&mut out, 0, v4, 20), &out[..4]), (4, &[20, 1, 2, 240][..]));
        assert_eq!(plain.emit(&mut out, 0, "0.0.0.0".parse().unwrap(), 0), 1);
        let vpn = Frame {
            path_id: Some(7),
            labels: Labels::Counting(1000),
            distinguisher: [0, 0, 0xfd, 0xe8, 0, 0, 0, 9],
            ..Frame::plain(AfiSafi::VPNV4)
        };
        let length = vpn.emit(&mut out, 24, v4, 20);
        assert_eq!(out[..length], [0, 0, 0, 7, 108, 0, 0x40, 0x01, 0, 0, 0xfd, 0xe8, 0, 0, 0, 9, 1, 2, 240]);
        assert_eq!(vpn.longest(), 20);
        let route = one(AfiSafi::VPNV4, true, &out[..length]).unwrap();
        assert_eq!((route.path_id, route.label(0), route.length, route.address()), (Some(7), Some(1024), 20, v4));
        assert_eq!(route.distinguisher, Some(vpn.distinguisher));
    }

    #[test]
    fn labels_of_many_routes() {
        let label = |labels: Labels, n| {
            let [a, b, c] = labels.bytes(n);
            assert_eq!(c & 15, 1, "bottom of stack");
            u32::from_be_bytes([0, a, b, c]) >> 4
        };
        let blocks = Labels::Blocks { first: 100, shared: 4, start: 0 };
        assert_eq!([0, 3, 4, 11].map(|n| label(blocks, n)), [100, 100, 101, 102]);
        assert_eq!([0, 1, 2].map(|n| label(blocks.from(6), n)), [101, 101, 102]);
        let own = Labels::Blocks { first: 100, shared: 4, start: 0u32.wrapping_sub(1_000) };
        assert_eq!([0, 4].map(|n| label(own.from(1_003), n)), [100, 101]);
        assert_eq!((label(Labels::Counting(7).from(5), 1), label(Labels::Same(7).from(5), 1)), (13, 7));
        assert_eq!(Labels::Withdrawn.from(5).bytes(3), WITHDRAWN_LABEL);
    }

    #[test]
    fn leading_bytes_of_a_number() {
        let bytes: Vec<u8> = (0xf1..=0xff).chain([7]).collect();
        for n in 0..=16 {
            let mut octets = [0; 16];
            octets[..n].copy_from_slice(&bytes[..n]);
            assert_eq!(leading16(&bytes[..n]), u128::from_be_bytes(octets), "{n}");
            let four = u32::from_be_bytes([octets[0], octets[1], octets[2], octets[3]]);
            assert!(n > 4 || leading4(&bytes[..n]) == four, "{n}");
        }
    }

    #[test]
    fn labels_end_where_they_say() {
        let family = AfiSafi::IPV4_LABELLED;
        let stack = |bytes: &'static [u8]| Routes::new(family, false, bytes).unwrap().with_stacks(true).next().unwrap();
        let two = stack(&[56, 0, 0, 0x10, 0, 0, 0x21, 10]).unwrap();
        assert_eq!((two.label(0), two.label(1), two.label(2), two.length), (Some(1), Some(2), None, 8));
        assert_eq!(stack(&[56, 0, 0, 0x10, 0, 0, 0x20, 10]), Err(Unreadable));
        // Without the capability, a route has one label, and a withdrawn one has three bytes of any value.
        for value in [WITHDRAWN_LABEL, [0; 3], [0, 0, 0x10], [0, 0, 0x11]] {
            let bytes = [&[32], &value[..], &[10]].concat();
            let route = one(family, false, &bytes).unwrap();
            assert_eq!((route.length, route.labels, route.bytes), (8, &value[..], &[10][..]));
        }
        assert_eq!(one(family, false, &[20, 0, 0, 0x11]), Err(Unreadable));
    }

    #[test]
    fn what_cannot_be_read() {
        assert_eq!(one(AfiSafi::IPV4_UNICAST, false, &[33, 1, 2, 3, 4, 5]), Err(Unreadable));
        assert_eq!(one(AfiSafi::IPV4_UNICAST, false, &[24, 1, 2]), Err(Unreadable));
        assert_eq!(one(AfiSafi::IPV4_UNICAST, true, &[0, 0, 1]), Err(Unreadable));
        assert_eq!(one(AfiSafi::IPV4_UNICAST, false, &[12, 1, 0xff]).unwrap().address().to_string(), "1.240.0.0");
        assert!(Routes::new(AfiSafi::new(25, 70), false, &[]).is_none());
    }

    proptest! {
        #[test]
        fn read_what_is_written(
            family in prop::sample::select(AfiSafi::ALL.to_vec()), path_id: Option<u32>, label in 0u32..1 << 20,
            distinguisher: [u8; 8], all in prop::collection::vec((any::<u128>(), 0u8..=128), 1..20),
        ) {
            let frame = Frame { family, path_id, labels: Labels::Counting(label), distinguisher };
            let width = family.address_bits().unwrap();
            let mut bytes = Vec::new();
            let mut routes = Vec::new();
            let mut last = 0;
            for (n, (bits, length)) in all.iter().enumerate() {
                let length = length.min(&width);
                let bits = bits & u128::MAX.checked_shl(128 - u32::from(*length)).unwrap_or(0);
                let address: IpAddr = match width {
                    32 => Ipv4Addr::from((bits >> 96) as u32).into(),
                    _ => Ipv6Addr::from(bits).into(),
                };
                let mut out = [0; LONGEST];
                let end = frame.emit(&mut out, n as u32, address, *length);
                prop_assert!(end <= frame.longest());
                bytes.extend_from_slice(&out[..end]);
                routes.push((address, *length));
                last = end;
            }
            let read = Routes::new(family, path_id.is_some(), &bytes).unwrap();
            prop_assert!(read.are_readable());
            for (n, (route, (address, length))) in read.zip(&routes).enumerate() {
                let route = route.unwrap();
                prop_assert_eq!((route.address(), route.length, route.path_id), (*address, *length, path_id));
                let label = family.is_labelled().then_some((label + n as u32) & 0xf_ffff);
                prop_assert_eq!(route.label(0), label);
                prop_assert_eq!(route.distinguisher, family.is_vpn().then_some(distinguisher));
            }
            let cut = Routes::new(family, path_id.is_some(), &bytes[..bytes.len() - 1]).unwrap();
            // If the last route has only one byte, removing that byte removes the whole route.
            prop_assert_eq!(cut.are_readable(), last == 1);
            prop_assert!(last > 1 || cut.count() == routes.len() - 1);
        }

        #[test]
        fn readable_is_what_can_be_read(
            family in prop::sample::select(AfiSafi::ALL.to_vec()), ids: bool,
            bytes in prop::collection::vec(prop_oneof![0u8..40, any::<u8>()], 0..60),
        ) {
            let routes = Routes::new(family, ids, &bytes).unwrap();
            prop_assert_eq!(routes.are_readable(), routes.clone().all(|r| r.is_ok()));
            for route in routes.flatten() {
                prop_assert!(route.address().is_ipv4() == (family.afi == 1));
            }
        }
    }
}
