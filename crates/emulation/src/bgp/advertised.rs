//! Routes that a speaker has advertised and not withdrawn since, for a route refresh (RFC 2918).

use super::adj_rib_out::{Encapsulation, EncapsulationKind, Packing, RouteSet, VpnRouteSet};
use drophammer_model::routes::{Routes, VpnRoutes};
use std::iter;
use std::ops::Range;
use std::sync::Arc;

/// Advertised routes, as parts of their ranges.
#[derive(Default)]
pub(super) struct Advertised {
    routes: Groups<Routes, Encapsulation>,
    /// Parts are numbers of routes over all VRFs, and the last member is the path identifier.
    vpn: Groups<VpnRoutes, u32>,
}

/// Routes of one range that were advertised in the same way.
struct Group<R, E> {
    routes: Arc<R>,
    packing: Packing,
    encapsulation: E,
    /// In ascending order, with gaps between them.
    parts: Vec<Range<u32>>,
}

struct Groups<R, E>(Vec<Group<R, E>>);

impl<R, E> Default for Groups<R, E> {
    fn default() -> Groups<R, E> {
        Groups(Vec::new())
    }
}

impl<R, E: Copy + PartialEq> Groups<R, E> {
    /// The parts of the group of routes that are advertised in this way. The group may be new.
    fn parts(&mut self, routes: &Arc<R>, packing: Packing, encapsulation: E) -> &mut Vec<Range<u32>> {
        // A refresh is sent without a pace.
        let packing = Packing { pace: None, ..packing };
        let like = |group: &Group<R, E>| {
            Arc::ptr_eq(&group.routes, routes) && group.packing == packing && group.encapsulation == encapsulation
        };
        let at = self.0.iter().position(like).unwrap_or_else(|| {
            self.0.push(Group { routes: routes.clone(), packing, encapsulation, parts: Vec::new() });
            self.0.len() - 1
        });
        &mut self.0[at].parts
    }

    /// Removes `parts`, however they were advertised, from the groups that have the `same` routes.
    fn remove(&mut self, routes: &Arc<R>, parts: impl Iterator<Item = Range<u32>> + Clone, same: impl Fn(E) -> bool) {
        for group in self.0.iter_mut().filter(|group| Arc::ptr_eq(&group.routes, routes) && same(group.encapsulation)) {
            parts.clone().for_each(|part| remove(&mut group.parts, &part));
        }
        self.0.retain(|group| !group.parts.is_empty());
    }
}

impl Advertised {
    /// Records that `set` was advertised, which replaces earlier advertisements of the same routes.
    pub fn advertise(&mut self, set: &RouteSet) {
        self.withdraw(set);
        add(self.routes.parts(&set.routes, set.packing, set.encapsulation), set.part.clone());
    }

    /// Records that `set` was withdrawn, however it was advertised.
    pub fn withdraw(&mut self, set: &RouteSet) {
        let same = |encapsulation| same_routes(encapsulation, set.encapsulation);
        self.routes.remove(&set.routes, iter::once(set.part.clone()), same);
    }

    /// Like [`Advertised::advertise`], for routes of VRFs.
    pub fn advertise_vpn(&mut self, set: &VpnRouteSet) {
        self.withdraw_vpn(set);
        let parts = self.vpn.parts(&set.routes, set.packing, set.path_id);
        set.parts().for_each(|part| add(parts, part));
    }

    /// Like [`Advertised::withdraw`], for routes of VRFs.
    pub fn withdraw_vpn(&mut self, set: &VpnRouteSet) {
        self.vpn.remove(&set.routes, set.parts(), |path_id| path_id == set.path_id);
    }

    /// Forgets all routes.
    pub fn clear(&mut self) {
        *self = Advertised::default();
    }

    /// All advertised routes outside VRFs, in the order of advertisement.
    pub fn all(&self) -> impl Iterator<Item = RouteSet> {
        self.routes.0.iter().flat_map(|Group { routes, packing, encapsulation, parts }| {
            let set = |part: &Range<u32>| RouteSet {
                routes: routes.clone(),
                part: part.clone(),
                packing: *packing,
                encapsulation: *encapsulation,
            };
            parts.iter().map(set)
        })
    }

    /// All advertised routes of VRFs, in the order of advertisement.
    pub fn all_vpn(&self) -> impl Iterator<Item = VpnRouteSet> {
        self.vpn.0.iter().flat_map(|Group { routes, packing, encapsulation, parts }| {
            let set = |(vrfs, part)| VpnRouteSet {
                routes: routes.clone(),
                vrfs,
                part,
                packing: *packing,
                path_id: *encapsulation,
            };
            parts.iter().flat_map(|part| rectangles(part, routes.per_vrf())).map(set)
        })
    }
}

/// Divides consecutive routes over all VRFs into VRFs with the same part of their routes: the rest of the first VRF, whole VRFs, the
/// beginning of the last one.
fn rectangles(part: &Range<u32>, per_vrf: u32) -> impl Iterator<Item = (Range<u32>, Range<u32>)> + use<> {
    let (first, last) = (part.start / per_vrf, part.end / per_vrf);
    let (start, end) = (part.start % per_vrf, part.end % per_vrf);
    let all = if first == last {
        [(first..first + 1, start..end), (0..0, 0..0), (0..0, 0..0)]
    } else {
        let whole = first + u32::from(start > 0);
        [(first..whole, start..per_vrf), (whole..last, 0..per_vrf), (last..last + 1, 0..end)]
    };
    all.into_iter().filter(|(vrfs, part)| !vrfs.is_empty() && !part.is_empty())
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
    use drophammer_model::routes::{Counting, LabelPer, PrefixesPerVrf, RouteRange, VpnId, VrfRange};
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
                for advertised in &standing.routes.0 {
                    prop_assert!(advertised.parts.windows(2).all(|two| two[0].end < two[1].start), "{:?}", advertised.parts);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn routes_of_vrfs_that_were_said_last_stand(
            history in prop::collection::vec((any::<bool>(), 0u32..5, 1u32..6, 0u32..8, 1u32..9, 0u8..2), 0..40)
        ) {
            let ids = Counting::from(VpnId::as2(1, 1));
            let vrfs =
                VrfRange { count: 5, distinguisher: ids, targets: vec![ids], first_label: 16, label_per: LabelPer::Vrf };
            let routes = Arc::new(RouteRange::internet(Family::Ipv4, 8, 1).unwrap().into());
            let routes = Arc::new(VpnRoutes::new(vrfs, routes, PrefixesPerVrf::Same).unwrap());
            let (mut standing, mut expected) = (Advertised::default(), vec![None; 40]);
            for (advertise, vrf, vrfs, first, count, prepend) in history {
                let packing = Packing { prepend, ..Packing::default() };
                let (vrfs, part) = (vrf..(vrf + vrfs).min(5), first..(first + count).min(8));
                let set = VpnRouteSet { vrfs: vrfs.clone(), part: part.clone(), ..VpnRouteSet::all(routes.clone(), packing) };
                if advertise { standing.advertise_vpn(&set) } else { standing.withdraw_vpn(&set) };
                for vrf in vrfs {
                    part.clone().for_each(|route| expected[(vrf * 8 + route) as usize] = advertise.then_some(prepend));
                }
                let mut all = vec![None; 40];
                for set in standing.all_vpn() {
                    for part in set.parts() {
                        part.for_each(|i| assert_eq!(all[i as usize].replace(set.packing.prepend), None, "said twice"));
                    }
                }
                prop_assert_eq!(all, expected.clone());
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
