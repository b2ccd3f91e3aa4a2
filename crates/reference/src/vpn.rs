//! What VPNs (RFC 4364) need in addition to sessions and tables: labels of VRFs, PE routers as next hops, route
//! targets.

use crate::rib::TableId;
use drophammer_model::routes::VpnId;
use std::collections::HashMap;
use std::net::Ipv4Addr;

/// Label of the routes of the first VRF.
pub const FIRST_VRF_LABEL: u32 = 500_000;

/// Maximum number of PE routers; routes through more are not used.
const MOST_PES: usize = 65_536;

/// The PE routers that are next hops of VPN routes, by number.
#[derive(Default)]
pub(crate) struct Pes {
    /// Address of each, and whether it was reachable when last asked.
    all: Vec<(Ipv4Addr, bool)>,
    numbers: HashMap<Ipv4Addr, u32>,
    /// True if some are new since the last [`Pes::renew`].
    grown: bool,
}

impl Pes {
    /// Number of a PE router; `None` if there are too many.
    pub fn intern(&mut self, address: Ipv4Addr) -> Option<u32> {
        if let Some(number) = self.numbers.get(&address) {
            return Some(*number);
        }
        if self.all.len() >= MOST_PES {
            return None;
        }
        let number = self.all.len() as u32;
        self.all.push((address, false));
        self.numbers.insert(address, number);
        self.grown = true;
        Some(number)
    }

    /// Address of a PE router.
    #[inline]
    pub fn address(&self, number: u32) -> Ipv4Addr {
        self.all[number as usize].0
    }

    /// True if a PE router has been added since the last renewal.
    pub fn has_grown(&self) -> bool {
        self.grown
    }

    /// Asks again which PE routers are reachable, and returns those for which this has changed.
    pub fn renew(&mut self, is_reachable: impl Fn(Ipv4Addr) -> bool) -> Vec<(u32, bool)> {
        self.grown = false;
        let mut changed = Vec::new();
        for (number, (address, before)) in (0..).zip(&mut self.all) {
            let reachable = is_reachable(*address);
            if std::mem::replace(before, reachable) != reachable {
                changed.push((number, reachable));
            }
        }
        changed
    }
}

/// Route distinguishers as they were received, and the VRFs that have imported routes with each.
#[derive(Default)]
pub(crate) struct Distinguishers {
    numbers: HashMap<[u8; 8], u32>,
    all: Vec<([u8; 8], Vec<TableId>)>,
}

impl Distinguishers {
    /// Number of a route distinguisher, from 1.
    pub fn intern(&mut self, distinguisher: [u8; 8]) -> u32 {
        let next = self.all.len() as u32 + 1;
        let number = *self.numbers.entry(distinguisher).or_insert(next);
        if number == next {
            self.all.push((distinguisher, Vec::new()));
        }
        number
    }

    /// The number of a route distinguisher with routes.
    pub fn find(&self, distinguisher: [u8; 8]) -> Option<u32> {
        self.numbers.get(&distinguisher).copied()
    }

    /// The route distinguisher with this number, and the tables that have imported routes of it.
    pub fn get(&self, number: u32) -> ([u8; 8], &[TableId]) {
        let (distinguisher, tables) = &self.all[number as usize - 1];
        (*distinguisher, tables)
    }

    /// Records that tables have routes of it.
    pub fn add(&mut self, number: u32, tables: &[TableId]) {
        let known = &mut self.all[number as usize - 1].1;
        for table in tables {
            if let Err(at) = known.binary_search(table) {
                known.insert(at, *table);
            }
        }
    }
}

/// Code of the extended communities among attributes.
const EXTENDED_COMMUNITIES: u8 = 16;
/// Flags: optional, transitive, length in two bytes.
const FLAGS: u8 = 0xc0;
const LONG: u8 = 0x10;

/// One attribute in a list of well-formed ones: code, whole attribute, value.
fn attribute(list: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[flags, code, first], rest) = list.split_first_chunk()?;
    let (head, len) = match rest.first() {
        Some(second) if flags & LONG != 0 => (4, usize::from(u16::from_be_bytes([first, *second]))),
        _ => (3, usize::from(first)),
    };
    Some((code, list.get(..head + len)?, list.get(head..head + len)?))
}

fn put(out: &mut Vec<u8>, communities: &[u8]) {
    match u8::try_from(communities.len()) {
        Ok(0) => return,
        Ok(len) => out.extend([FLAGS, EXTENDED_COMMUNITIES, len]),
        Err(_) => {
            out.extend([FLAGS | LONG, EXTENDED_COMMUNITIES]);
            out.extend((communities.len() as u16).to_be_bytes());
        }
    }
    out.extend_from_slice(communities);
}

/// Removes the route targets from a list of attributes, and returns them.
pub(crate) fn take_targets(list: &[u8]) -> (Vec<u8>, Vec<VpnId>) {
    let (mut out, mut targets, mut rest) = (Vec::with_capacity(list.len()), Vec::new(), list);
    while let Some((code, whole, value)) = attribute(rest) {
        rest = &rest[whole.len()..];
        if code != EXTENDED_COMMUNITIES {
            out.extend_from_slice(whole);
            continue;
        }
        let mut others = Vec::new();
        for community in value.as_chunks().0 {
            match VpnId::from_route_target(*community) {
                Some(target) => targets.push(target),
                None => others.extend(community),
            }
        }
        put(&mut out, &others);
    }
    (out, targets)
}

/// Adds a route target to a list of attributes in the order of their codes.
pub(crate) fn with_target(list: &[u8], target: [u8; 8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(list.len() + 12), list);
    let mut communities = Vec::new();
    while let Some((code, whole, value)) = attribute(rest).filter(|(code, ..)| *code <= EXTENDED_COMMUNITIES) {
        rest = &rest[whole.len()..];
        if code == EXTENDED_COMMUNITIES {
            communities.extend_from_slice(value);
        } else {
            out.extend_from_slice(whole);
        }
    }
    communities.extend(target);
    put(&mut out, &communities);
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMUNITIES: [u8; 7] = [0xc0, 8, 4, 0, 1, 0, 2];
    const LARGE: [u8; 15] = [0xc0, 32, 12, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3];
    /// A site of origin (RFC 4364 section 7).
    const SITE: [u8; 8] = [0, 3, 0xfd, 0xe8, 0, 0, 0, 9];

    #[test]
    fn targets_come_and_go_and_the_rest_stays() {
        let target = VpnId::as2(65_000, 7);
        let plain = [&COMMUNITIES[..], &LARGE].concat();
        let tagged = with_target(&plain, target.route_target());
        let own = [&[0xc0, 16, 8][..], &[0, 2, 0xfd, 0xe8, 0, 0, 0, 7]].concat();
        assert_eq!(tagged, [&COMMUNITIES[..], &own, &LARGE].concat());
        assert_eq!(take_targets(&tagged), (plain.clone(), vec![target]));
        let with_site = [&COMMUNITIES[..], &[0xc0, 16, 8], &SITE, &LARGE].concat();
        assert_eq!(take_targets(&with_site), (with_site.clone(), vec![]));
        let both = with_target(&with_site, target.route_target());
        assert_eq!(take_targets(&both), (with_site, vec![target]));
        // Forty communities have a length of two bytes.
        let mut many = Vec::new();
        for _ in 0..40 {
            many = with_target(&many, target.route_target());
        }
        assert_eq!(many[..4], [0xd0, 16, 1, 64]);
        assert_eq!(take_targets(&many), (vec![], vec![target; 40]));
    }

    #[test]
    fn a_pe_is_reported_when_its_state_changes() {
        let mut pes = Pes::default();
        let [a, b] = [1, 2].map(|n| Ipv4Addr::new(192, 0, 2, n));
        assert_eq!((pes.intern(a), pes.intern(b), pes.intern(a)), (Some(0), Some(1), Some(0)));
        assert!(pes.has_grown());
        assert_eq!((pes.renew(|pe| pe == b), pes.renew(|pe| pe == b)), (vec![(1, true)], vec![]));
        assert!(!pes.has_grown());
        assert_eq!(pes.renew(|pe| pe == a), [(0, true), (1, false)]);
        assert_eq!(pes.address(1), b);
    }
}
