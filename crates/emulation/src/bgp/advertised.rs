//! Routes that a speaker has advertised and not withdrawn since, for a route refresh (RFC 2918).

use super::adj_rib_out::{Encapsulation, EncapsulationKind, Packing, RouteSet};
use drophammer_model::routes::Routes;
use std::iter;
use std::ops::Range;
use std::sync::Arc;

/// Advertised routes, as parts of their ranges.
#[derive(Default)]
pub(super) struct Advertised(Vec<Group>);

/// Routes of one range that were advertised in the same way.
struct Group {
    routes: Arc<Routes>,
    packing: Packing,
    encapsulation: Encapsulation,
    /// In ascending order, with gaps between them.
    parts: Vec<Range<u32>>,
}

impl Advertised {
    /// Records that `set` was advertised, which replaces earlier advertisements of the same routes.
    pub fn advertise(&mut self, set: &RouteSet) {
        self.withdraw(set);
        let RouteSet { routes, part, packing, encapsulation } = set.clone();
        // A refresh is sent without a pace.
        let packing = Packing { pace: None, ..packing };
        let like = |a: &&mut Group| {
            Arc::ptr_eq(&a.routes, &routes) && a.packing == packing && a.encapsulation == encapsulation
        };
        match self.0.iter_mut().find(like) {
            Some(group) => add(&mut group.parts, part),
            None => self.0.push(Group { routes, packing, encapsulation, parts: vec![part] }),
        }
    }

    /// Records that `set` was withdrawn, however it was advertised.
    pub fn withdraw(&mut self, set: &RouteSet) {
        for group in &mut self.0 {
            if Arc::ptr_eq(&group.routes, &set.routes) && same_routes(group.encapsulation, set.encapsulation) {
                remove(&mut group.parts, &set.part);
            }
        }
        self.0.retain(|group| !group.parts.is_empty());
    }

    /// Forgets all routes.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// All advertised routes, in the order of advertisement.
    pub fn all(&self) -> impl Iterator<Item = RouteSet> {
        self.0.iter().flat_map(|Group { routes, packing, encapsulation, parts }| {
            let set = |part: &Range<u32>| RouteSet {
                routes: routes.clone(),
                part: part.clone(),
                packing: *packing,
                encapsulation: *encapsulation,
            };
            parts.iter().map(set)
        })
    }
}

/// True if both name the same routes: family, distinguisher and path identifier distinguish routes; labels and communities do not.
fn same_routes(a: Encapsulation, b: Encapsulation) -> bool {
    let kind = match (a.kind, b.kind) {
        (EncapsulationKind::Unicast, EncapsulationKind::Unicast) => true,
        (EncapsulationKind::Labelled(_), EncapsulationKind::Labelled(_)) => true,
        (EncapsulationKind::Vpn { distinguisher: a, .. }, EncapsulationKind::Vpn { distinguisher: b, .. }) => a == b,
        _ => false,
    };
    kind && a.path_id == b.path_id
}

/// Adds `part`, which overlaps none of `parts`.
fn add(parts: &mut Vec<Range<u32>>, part: Range<u32>) {
    let first = parts.partition_point(|p| p.end < part.start);
    let behind = parts.partition_point(|p| p.start <= part.end);
    let start = parts[first..behind].first().map_or(part.start, |p| p.start.min(part.start));
    let end = parts[first..behind].last().map_or(part.end, |p| p.end.max(part.end));
    parts.splice(first..behind, iter::once(start..end));
}

/// Removes `part` from `parts`.
fn remove(parts: &mut Vec<Range<u32>>, part: &Range<u32>) {
    let first = parts.partition_point(|p| p.end <= part.start);
    let behind = parts.partition_point(|p| p.start < part.end);
    let overlapping = &parts[first..behind];
    let left = overlapping.first().map(|p| p.start..part.start).filter(|p| !p.is_empty());
    let right = overlapping.last().map(|p| part.end..p.end).filter(|p| !p.is_empty());
    parts.splice(first..behind, left.into_iter().chain(right));
}

#[cfg(test)]
mod tests {
    use super::*;
    use drophammer_model::routes::RouteRange;
    use drophammer_model::trial::Family;
    use drophammer_wire::bgp::AfiSafi;
    use proptest::prelude::*;

    /// Reference model with single routes: the last advertised packing of each.
    fn slow(standing: &Advertised, count: u32) -> Vec<Option<u8>> {
        let mut all = vec![None; count as usize];
        for set in standing.all() {
            for route in set.part {
                assert_eq!(all[route as usize].replace(set.packing.prepend), None, "said twice");
            }
        }
        all
    }

    proptest! {
        #[test]
        fn what_was_said_last_stands(
            history in prop::collection::vec((any::<bool>(), 0u32..40, 1u32..20, 0u8..3, 1u32..5), 0..60)
        ) {
            let routes: Arc<Routes> = Arc::new(RouteRange::internet(Family::Ipv4, 64, 1).unwrap().into());
            let (mut standing, mut expected) = (Advertised::default(), vec![None; 64]);
            for (advertise, start, len, prepend, pace) in history {
                let (part, packing) = (start..start + len, Packing { prepend, pace: Some(pace.into()), ..Packing::default() });
                let set = RouteSet::unicast(routes.clone(), part.clone(), packing);
                let told = if advertise {
                    standing.advertise(&set);
                    Some(prepend)
                } else {
                    standing.withdraw(&set);
                    None
                };
                part.for_each(|route| expected[route as usize] = told);
                prop_assert_eq!(slow(&standing, 64), expected.clone());
                for advertised in &standing.0 {
                    prop_assert!(advertised.parts.windows(2).all(|two| two[0].end < two[1].start), "{:?}", advertised.parts);
                }
            }
        }
    }

    #[test]
    fn families_distinguishers_and_paths_are_apart_and_labels_are_not() {
        let routes: Arc<Routes> = Arc::new(RouteRange::internet(Family::Ipv4, 10, 1).unwrap().into());
        let vpn = |label, distinguisher| EncapsulationKind::Vpn {
            labels: drophammer_wire::bgp::update::Labels::Same(label),
            distinguisher: [distinguisher; 8],
            communities: [0; 8],
        };
        let unicast = |part| RouteSet::unicast(routes.clone(), part, Packing::default());
        let as_vpn = |part, label, distinguisher, path_id| RouteSet {
            encapsulation: Encapsulation { kind: vpn(label, distinguisher), path_id },
            ..unicast(part)
        };
        let mut standing = Advertised::default();
        standing.advertise(&unicast(0..10));
        for (label, distinguisher, path_id) in [(1, 1, 0), (1, 2, 0), (1, 1, 7)] {
            standing.advertise(&as_vpn(0..10, label, distinguisher, path_id));
        }
        standing.withdraw(&as_vpn(2..10, 9, 1, 0));
        let all: Vec<_> = standing.all().map(|set| (set.afi_safi(), set.part.start, set.part.end)).collect();
        let vpn = AfiSafi::VPNV4;
        assert_eq!(all, [(AfiSafi::IPV4_UNICAST, 0, 10), (vpn, 0, 2), (vpn, 0, 10), (vpn, 0, 10)]);
    }
}
