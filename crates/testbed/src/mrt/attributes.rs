//! Attributes of a route in a RIB (RFC 6396 section 4.3.4): all AS numbers in paths have 4 octets, and MP_REACH_NLRI is
//! abbreviated.

use super::LeftOut;
use drophammer_model::routes::{Origin, RouteAttributes};
use drophammer_wire::bgp::update::attributes::{self, Raw, flag, kind, raw};
use std::net::Ipv4Addr;

/// Maximum number of ASes in a path, as in [`RouteAttributes::as_path`].
const LONGEST_PATH: usize = 254;
/// Segment type of a path (RFC 4271 section 4.3).
const AS_SET: u8 = 1;
const AS_SEQUENCE: u8 = 2;
/// Segment types of confederations (RFC 5065 section 3).
const CONFEDERATION: std::ops::RangeInclusive<u8> = 3..=4;
/// Bit in the first byte of an extended community that must not leave its AS (RFC 4360 section 2).
const NOT_TRANSITIVE: u8 = 0x40;

/// Reads the attributes of a route that a peer in AS `asn` advertised, as this AS would pass them on (RFC 4271 section 9). Optional
/// non-transitive attributes are dropped. Transitive attributes that this program does not know get the flag PARTIAL.
///
/// # Errors
/// A description of the error.
pub(super) fn read(bytes: &[u8], asn: u32, left_out: &mut LeftOut) -> Result<RouteAttributes, String> {
    let mut found = RouteAttributes::default();
    let mut path = None;
    let mut others: Vec<Raw<'_>> = Vec::new();
    let mut seen = [false; 256];
    for raw in raw(bytes) {
        let raw = raw.ok_or("its attributes are cut off")?;
        if std::mem::replace(&mut seen[usize::from(raw.kind)], true) {
            return Err(format!("it has attribute {} twice", raw.kind));
        }
        let wrong = || format!("attribute {} has {} bytes, which is not possible", raw.kind, raw.value.len());
        let number = || raw.value.try_into().map(u32::from_be_bytes).map_err(|_| wrong());
        match raw.kind {
            kind::ORIGIN => {
                let code = raw.value.first().filter(|_| raw.value.len() == 1);
                found.origin = code.and_then(|code| Origin::from_code(*code)).ok_or("its ORIGIN is unknown")?;
            }
            kind::AS_PATH => path = Some(as_path(raw.value).ok_or("it has no readable AS_PATH")?),
            kind::MULTI_EXIT_DISC => found.med = Some(number()?),
            kind::LOCAL_PREF => found.local_pref = Some(number()?),
            kind::ATOMIC_AGGREGATE => found.atomic_aggregate = true,
            kind::AGGREGATOR => found.aggregator = Some(aggregator(raw.value).ok_or_else(wrong)?),
            kind::COMMUNITIES => found.communities = each(raw.value, u32::from_be_bytes).ok_or_else(wrong)?,
            kind::LARGE_COMMUNITIES => {
                found.large_communities = each(raw.value, |bytes: [u8; 12]| {
                    let (parts, _) = bytes.as_chunks::<4>();
                    [0, 1, 2].map(|i| u32::from_be_bytes(parts[i]))
                })
                .ok_or_else(wrong)?;
            }
            kind::EXTENDED_COMMUNITIES => {
                found.extended_communities = each(raw.value, |bytes: [u8; 8]| bytes).ok_or_else(wrong)?;
                found.extended_communities.retain(|community| community[0] & NOT_TRANSITIVE == 0);
            }
            // The speaker is the next hop. The other attributes are for sessions with 2-octet AS numbers, or already
            // part of the path.
            kind::NEXT_HOP | kind::MP_REACH_NLRI | kind::MP_UNREACH_NLRI | kind::AS4_PATH | kind::AS4_AGGREGATOR => {}
            _ if raw.flags & flag::OPTIONAL == 0 => {
                return Err(format!("attribute {} is unknown and not optional (RFC 4271 section 6.3)", raw.kind));
            }
            _ if raw.flags & flag::TRANSITIVE == 0 => {}
            _ => others.push(raw),
        }
    }
    let Path { mut ases, sets } = path.ok_or("it has no readable AS_PATH")?;
    if ases.first() == Some(&asn) {
        ases.remove(0);
    }
    left_out.sets += u64::from(sets);
    left_out.long_paths += u64::from(ases.len() > LONGEST_PATH);
    ases.truncate(LONGEST_PATH);
    found.as_path = ases;
    others.sort_by_key(|raw| raw.kind);
    for Raw { flags, kind, value, .. } in others {
        let known = kind == kind::IPV6_EXTENDED_COMMUNITIES;
        let partial = if known { 0 } else { flag::PARTIAL };
        attributes::append(&mut found.others, flags & !flag::EXTENDED_LENGTH | partial, kind, value);
    }
    Ok(found)
}

/// The ASes of all sequences, and whether the path had sets.
struct Path {
    ases: Vec<u32>,
    sets: bool,
}

fn as_path(mut rest: &[u8]) -> Option<Path> {
    let mut path = Path { ases: Vec::new(), sets: false };
    while let [segment, count, after @ ..] = rest {
        let (members, after) = after.split_at_checked(usize::from(*count) * 4)?;
        rest = after;
        match *segment {
            AS_SEQUENCE => path.ases.extend(members.as_chunks::<4>().0.iter().map(|asn| u32::from_be_bytes(*asn))),
            AS_SET => path.sets = true,
            // Confederation segments do not leave the confederation.
            segment if CONFEDERATION.contains(&segment) => {}
            _ => return None,
        }
    }
    rest.is_empty().then_some(path)
}

fn aggregator(value: &[u8]) -> Option<(u32, Ipv4Addr)> {
    match *value {
        [a, b, c, d, e, f, g, h] => Some((u32::from_be_bytes([a, b, c, d]), Ipv4Addr::new(e, f, g, h))),
        [a, b, c, d, e, f] => Some((u16::from_be_bytes([a, b]).into(), Ipv4Addr::new(c, d, e, f))),
        _ => None,
    }
}

/// Returns the members of a list in ascending order, without duplicates.
fn each<const N: usize, T: Ord>(value: &[u8], read: impl Fn([u8; N]) -> T) -> Option<Vec<T>> {
    let (members, rest) = value.as_chunks::<N>();
    let mut members: Vec<T> = members.iter().map(|bytes| read(*bytes)).collect();
    members.sort_unstable();
    members.dedup();
    rest.is_empty().then_some(members)
}
