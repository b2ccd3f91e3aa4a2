//! Encodes path attributes (RFC 4271 section 5) once for all routes that share them.
//!
//! ```text
//! +---------------------------+
//! |  Flags (1)  |  Type (1)   |
//! +---------------------------+
//! |  Length (1, or 2 with EXTENDED_LENGTH)
//! +---------------------------+
//! |  Value                    |
//! +---------------------------+
//! ```

use super::as_path::{self, append_each};
use drophammer_model::routes::PathSegment;
use std::net::Ipv4Addr;

pub use crate::numbers::bgp_attribute_flag as flag;

pub use crate::numbers::bgp_attribute as kind;

/// Replaces a 4-octet AS where only 2 octets are available (RFC 6793).
pub const AS_TRANS: u16 = 23456;

/// Attributes of a route of any family. The next hop is only for IPv4 unicast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// ORIGIN: 0 IGP, 1 EGP, 2 incomplete.
    pub origin: u8,
    /// AS_PATH as one sequence, with the neighbour's own AS first. Can be empty.
    pub as_path: &'a [u32],
    /// AS_PATH as segments, instead of `as_path`.
    pub path: Option<&'a [PathSegment]>,
    /// NEXT_HOP of IPv4 unicast.
    pub next_hop: Option<Ipv4Addr>,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF.
    pub local_pref: Option<u32>,
    /// Communities.
    pub communities: &'a [u32],
    /// Extended communities.
    pub extended_communities: &'a [[u8; 8]],
    /// Large communities.
    pub large_communities: &'a [[u32; 3]],
    /// ATOMIC_AGGREGATE.
    pub atomic_aggregate: bool,
    /// AGGREGATOR: AS and identifier.
    pub aggregator: Option<(u32, Ipv4Addr)>,
    /// Other attributes, ascending by type, encoded as in a message. All their types are above the type of AGGREGATOR.
    pub others: &'a [u8],
}

/// Appends one attribute, with the flag for an extended length if necessary. A value has at most 65,535 bytes.
#[inline]
pub fn append(out: &mut Vec<u8>, flags: u8, kind: u8, value: &[u8]) {
    debug_assert!(value.len() <= 0xffff);
    match u8::try_from(value.len()) {
        Ok(length) => out.extend_from_slice(&[flags & !flag::EXTENDED_LENGTH, kind, length]),
        Err(_) => {
            let [high, low] = (value.len() as u16).to_be_bytes();
            out.extend_from_slice(&[flags | flag::EXTENDED_LENGTH, kind, high, low]);
        }
    }
    out.extend_from_slice(value);
}

/// Appends one attribute with a value of four bytes.
#[inline]
fn append4(out: &mut Vec<u8>, flags: u8, kind: u8, [a, b, c, d]: [u8; 4]) {
    out.extend_from_slice(&[flags, kind, 4, a, b, c, d]);
}

/// Appends one attribute whose value `write` appends. Appends nothing if the value is empty.
#[inline]
fn append_with(out: &mut Vec<u8>, flags: u8, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[flags & !flag::EXTENDED_LENGTH, kind, 0]);
    write(out);
    let length = out.len() - start - 3;
    match u8::try_from(length) {
        Ok(0) => out.truncate(start),
        Ok(length) => out[start + 2] = length,
        Err(_) => {
            debug_assert!(length <= 0xffff);
            let [high, low] = (length as u16).to_be_bytes();
            out.insert(start + 2, high);
            (out[start], out[start + 3]) = (flags | flag::EXTENDED_LENGTH, low);
        }
    }
}

impl Attributes<'_> {
    /// Appends all attributes in order of their types. Without `four_octet_as` the path has 2 octets per AS, and
    /// AS4_PATH is added if necessary.
    pub fn append(&self, four_octet_as: bool, out: &mut Vec<u8>) {
        use flag::{OPTIONAL, TRANSITIVE};
        out.extend_from_slice(&[TRANSITIVE, kind::ORIGIN, 1, self.origin]);
        if self.ases(false).next().is_none() {
            append(out, TRANSITIVE, kind::AS_PATH, &[]);
        } else {
            append_with(out, TRANSITIVE, kind::AS_PATH, |out| self.append_path(false, four_octet_as, out));
        }
        if let Some(next_hop) = self.next_hop {
            append4(out, TRANSITIVE, kind::NEXT_HOP, next_hop.octets());
        }
        if let Some(med) = self.med {
            append4(out, OPTIONAL, kind::MULTI_EXIT_DISC, med.to_be_bytes());
        }
        if let Some(local_pref) = self.local_pref {
            append4(out, TRANSITIVE, kind::LOCAL_PREF, local_pref.to_be_bytes());
        }
        if self.atomic_aggregate {
            append(out, TRANSITIVE, kind::ATOMIC_AGGREGATE, &[]);
        }
        let both = OPTIONAL | TRANSITIVE;
        match self.aggregator {
            None => {}
            Some((asn, id)) if four_octet_as => append(out, both, kind::AGGREGATOR, &aggregator(asn, id)),
            Some((asn, id)) => {
                let [a, b] = u16::try_from(asn).unwrap_or(AS_TRANS).to_be_bytes();
                let [c, d, e, f] = id.octets();
                append(out, both, kind::AGGREGATOR, &[a, b, c, d, e, f]);
            }
        }
        if !self.communities.is_empty() {
            append_with(out, both, kind::COMMUNITIES, |out| append_each(out, self.communities, |c| c.to_be_bytes()));
        }
        if !self.extended_communities.is_empty() {
            append_with(out, both, kind::EXTENDED_COMMUNITIES, |out| {
                append_each(out, self.extended_communities, |c| *c)
            });
        }
        if !four_octet_as && self.ases(true).any(|asn| *asn > 0xffff) {
            append_with(out, both, kind::AS4_PATH, |out| self.append_path(true, true, out));
        }
        if let Some((asn, id)) = self.aggregator.filter(|(asn, _)| !four_octet_as && *asn > 0xffff) {
            append(out, both, kind::AS4_AGGREGATOR, &aggregator(asn, id));
        }
        let (before, after) = self.others.split_at(upto(self.others, kind::LARGE_COMMUNITIES));
        out.extend_from_slice(before);
        if !self.large_communities.is_empty() {
            append_with(out, both, kind::LARGE_COMMUNITIES, |out| {
                append_each(out, self.large_communities.as_flattened(), |part| part.to_be_bytes());
            });
        }
        out.extend_from_slice(after);
    }
}

impl<'a> Attributes<'a> {
    /// The segments of `path`. Those `outside` confederations are in AS4_PATH (RFC 6793 section 3).
    fn segments(&self, outside: bool) -> impl Iterator<Item = &'a PathSegment> {
        let all = self.path.unwrap_or_default().iter();
        all.filter(move |segment| !outside || segment.kind.code() < as_path::AS_CONFED_SEQUENCE)
    }

    fn ases(&self, outside: bool) -> impl Iterator<Item = &'a u32> {
        let whole = if self.path.is_some() { &[] } else { self.as_path };
        whole.iter().chain(self.segments(outside).flat_map(|segment| &segment.ases))
    }

    fn append_path(&self, outside: bool, four_octet_as: bool, out: &mut Vec<u8>) {
        match self.path {
            None => as_path::append(out, self.as_path, four_octet_as),
            Some(_) => {
                self.segments(outside).for_each(|segment| as_path::append_segment(out, segment, four_octet_as));
            }
        }
    }
}

/// Returns the value of AGGREGATOR with a 4-octet AS (RFC 6793).
fn aggregator(asn: u32, id: Ipv4Addr) -> [u8; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (asn.to_be_bytes(), id.octets());
    [a, b, c, d, e, f, g, h]
}

/// One attribute of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw<'a> {
    /// The attribute's flags.
    pub flags: u8,
    /// The attribute's type.
    pub kind: u8,
    /// The attribute's value.
    pub value: &'a [u8],
    /// All bytes of the attribute.
    pub whole: &'a [u8],
}

/// Iterates over the attributes in `bytes`. If one is cut off, it is the last and is returned as `None`.
pub fn raw(bytes: &[u8]) -> impl Iterator<Item = Option<Raw<'_>>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let found = next(rest).ok();
        rest = found.map_or(&[], |(_, rest)| rest);
        Some(found.map(|(raw, _)| raw))
    })
}

/// Returns the first attribute and the bytes after it; an error if lengths are inconsistent (RFC 7606 section 4).
#[inline]
pub(super) fn next(bytes: &[u8]) -> Result<(Raw<'_>, &[u8]), &'static str> {
    let (head, length) = match *bytes {
        [flags, _, high, low, ..] if flags & flag::EXTENDED_LENGTH != 0 => {
            (4, usize::from(u16::from_be_bytes([high, low])))
        }
        [flags, _, length, ..] if flags & flag::EXTENDED_LENGTH == 0 => (3, usize::from(length)),
        _ => return Err("too few bytes for another attribute"),
    };
    let (whole, rest) = bytes.split_at_checked(head + length).ok_or("an attribute exceeds the others' length")?;
    Ok((Raw { flags: whole[0], kind: whole[1], value: &whole[head..], whole }, rest))
}

/// Returns the number of bytes of the leading attributes whose types are below `kind`.
fn upto(bytes: &[u8], kind: u8) -> usize {
    let mut rest = bytes;
    while let Ok((raw, after)) = next(rest)
        && raw.kind < kind
    {
        rest = after;
    }
    bytes.len() - rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::routes::PathSegmentKind;

    #[test]
    fn bytes_of_all() {
        let attributes = Attributes {
            origin: 2,
            as_path: &[65_001, 70_000],
            path: None,
            next_hop: Some(Ipv4Addr::new(198, 18, 1, 2)),
            med: Some(9),
            local_pref: Some(100),
            communities: &[0x0001_0002],
            extended_communities: &[[0, 2, 0, 1, 0, 0, 0, 5]],
            large_communities: &[[1, 2, 3]],
            atomic_aggregate: true,
            aggregator: Some((70_000, Ipv4Addr::new(192, 0, 2, 9))),
            others: &[0xc0, 23, 1, 7, 0xe0, 222, 2, 8, 9],
        };
        let mut out = Vec::new();
        attributes.append(true, &mut out);
        #[rustfmt::skip]
        assert_eq!(out, [
            0x40, 1, 1, 2,
            0x40, 2, 10, 2, 2, 0, 0, 0xfd, 0xe9, 0, 1, 0x11, 0x70,
            0x40, 3, 4, 198, 18, 1, 2,
            0x80, 4, 4, 0, 0, 0, 9,
            0x40, 5, 4, 0, 0, 0, 100,
            0x40, 6, 0,
            0xc0, 7, 8, 0, 1, 0x11, 0x70, 192, 0, 2, 9,
            0xc0, 8, 4, 0, 1, 0, 2,
            0xc0, 16, 8, 0, 2, 0, 1, 0, 0, 0, 5,
            0xc0, 23, 1, 7,
            0xc0, 32, 12, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3,
            0xe0, 222, 2, 8, 9,
        ]);
        let kinds: Vec<_> = raw(&out).map(|raw| raw.unwrap().kind).collect();
        assert_eq!(kinds, [1, 2, 3, 4, 5, 6, 7, 8, 16, 23, 32, 222]);
        assert_eq!(raw(&out[..out.len() - 1]).last(), Some(None));
        let mut out = Vec::new();
        Attributes { aggregator: attributes.aggregator, ..Attributes::default() }.append(false, &mut out);
        #[rustfmt::skip]
        assert_eq!(out[7..], [
            0xc0, 7, 6, 0x5b, 0xa0, 192, 0, 2, 9,
            0xc0, 18, 8, 0, 1, 0x11, 0x70, 192, 0, 2, 9,
        ]);
        let mut out = Vec::new();
        Attributes { as_path: &[65_001, 70_000], ..Attributes::default() }.append(false, &mut out);
        #[rustfmt::skip]
        assert_eq!(out, [
            0x40, 1, 1, 0,
            0x40, 2, 6, 2, 2, 0xfd, 0xe9, 0x5b, 0xa0,
            0xc0, 17, 10, 2, 2, 0, 0, 0xfd, 0xe9, 0, 1, 0x11, 0x70,
        ]);
    }

    #[test]
    fn segments_of_a_confederation_are_not_in_as4_path() {
        let segment = |kind, asn| PathSegment { kind, ases: vec![asn] };
        let inner = segment(PathSegmentKind::ConfederationSequence, 80_000);
        let path = [inner.clone(), segment(PathSegmentKind::Sequence, 70_000)];
        let mut out = Vec::new();
        Attributes { path: Some(&path), ..Attributes::default() }.append(false, &mut out);
        #[rustfmt::skip]
        assert_eq!(out[4..], [
            0x40, 2, 8, 3, 1, 0x5b, 0xa0, 2, 1, 0x5b, 0xa0,
            0xc0, 17, 6, 2, 1, 0, 1, 0x11, 0x70,
        ]);
        let mut out = Vec::new();
        Attributes { path: Some(&[inner]), ..Attributes::default() }.append(false, &mut out);
        assert_eq!(out[4..], [0x40, 2, 4, 3, 1, 0x5b, 0xa0]);
    }

    #[test]
    fn long_ones_say_so() {
        let mut out = Vec::new();
        append(&mut out, 0xc0, 8, &[7; 256]);
        assert_eq!((&out[..4], out.len()), (&[0xd0, 8, 1, 0][..], 260));
        let mut out = Vec::new();
        Attributes { as_path: &[1; 300], ..Attributes::default() }.append(true, &mut out);
        assert_eq!(out[4..10], [0x50, 2, 0x04, 0xb4, 2, 255]);
    }
}
