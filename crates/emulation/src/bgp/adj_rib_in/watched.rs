//! Expected routes and their expected properties.

use super::labels::LearnedLabels;
use super::verdict::Verdict;
use super::vpn::{self, VpnFault, VpnFaultKind, VpnPart, VpnWatched};
use super::{Expected, Verified};
use crate::expectation::{Expectation, Keys};
use drophammer_model::Instant;
use drophammer_model::routes::{Prefix, Routes};
use drophammer_wire::bgp::AfiSafi;
use drophammer_wire::bgp::update::{Nlri, nlri};
use std::ops::Range;
use std::sync::Arc;

/// Distinguishes a route from all others of a session. Labels do not, and paths to the same prefix (RFC 7911) count as one route here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteKey {
    /// Its family.
    pub afi_safi: AfiSafi,
    /// Its route distinguisher, in families that have one.
    pub distinguisher: Option<[u8; 8]>,
    /// Its prefix.
    pub prefix: Prefix,
}

impl RouteKey {
    /// The key of a received route with this prefix.
    pub(super) fn of(route: &Nlri<'_>, prefix: Prefix) -> RouteKey {
        RouteKey { afi_safi: route.family, distinguisher: route.distinguisher, prefix }
    }
}

/// A part of some routes as the keys of an expectation: number `i` is route `part.start + i`.
#[derive(Clone)]
pub struct RoutePart {
    /// Family of the routes.
    pub afi_safi: AfiSafi,
    /// Their route distinguisher, in families that have one.
    pub distinguisher: Option<[u8; 8]>,
    /// Their prefixes and attributes.
    pub routes: Arc<Routes>,
    /// The part of `routes` that is meant.
    pub part: Range<u32>,
}

impl Keys for RoutePart {
    type Key = RouteKey;

    fn len(&self) -> u32 {
        self.part.end - self.part.start
    }

    fn index_of(&self, key: &RouteKey) -> Option<u32> {
        if (key.afi_safi, key.distinguisher) != (self.afi_safi, self.distinguisher) {
            return None;
        }
        self.routes.index_of(&key.prefix).filter(|i| self.part.contains(i)).map(|i| i - self.part.start)
    }

    fn key(&self, index: u32) -> RouteKey {
        let RoutePart { afi_safi, distinguisher, routes, part } = self;
        RouteKey { afi_safi: *afi_safi, distinguisher: *distinguisher, prefix: routes.prefix(part.start + index) }
    }
}

/// The routes of an expectation.
#[derive(Clone)]
pub(super) enum RouteKeys {
    Part(RoutePart),
    Vpn(VpnPart),
}

impl Keys for RouteKeys {
    type Key = RouteKey;

    fn len(&self) -> u32 {
        match self {
            RouteKeys::Part(part) => part.len(),
            RouteKeys::Vpn(part) => part.len(),
        }
    }

    fn index_of(&self, key: &RouteKey) -> Option<u32> {
        match self {
            RouteKeys::Part(part) => part.index_of(key),
            RouteKeys::Vpn(part) => part.index_of(key),
        }
    }

    fn key(&self, index: u32) -> RouteKey {
        match self {
            RouteKeys::Part(part) => part.key(index),
            RouteKeys::Vpn(part) => part.key(index),
        }
    }
}

/// A received route in an expectation.
#[derive(Clone, Copy)]
pub(super) struct Found {
    /// Its number among the keys.
    pub number: u32,
    /// Its VRF, and its number in the VRF; without VRFs, 0 and `number`.
    pub vrf: u32,
    pub route: u32,
    /// Its index in the prefixes and attributes.
    pub index: u32,
}

impl Found {
    /// Route `index` of a part.
    #[inline]
    pub fn in_part(keys: &RoutePart, index: u32) -> Found {
        let number = index - keys.part.start;
        Found { number, vrf: 0, route: number, index }
    }
}

/// An expectation of routes, with the counts specific to BGP.
pub(super) struct Watched {
    pub expected: Expected,
    pub routes: Expectation<RouteKeys>,
    pub vpn: Option<VpnWatched>,
    /// Learned labels, if they are stored.
    labels: Option<LearnedLabels>,
    wrong_next_hop: u64,
    wrong_as_path: u64,
    wrong_attributes: u64,
}

impl Watched {
    pub fn new(now: Instant, keys: RouteKeys, expected: Expected) -> Watched {
        let (blocks, per_block, vpn) = match &keys {
            RouteKeys::Part(part) => (1, part.len(), None),
            RouteKeys::Vpn(part) => {
                let routes = &part.routes;
                (routes.vrfs().count, routes.per_vrf(), Some(VpnWatched::new(part.clone())))
            }
        };
        let labels = expected.labels.then(|| LearnedLabels::new(blocks, per_block));
        let routes = Expectation::new(now, keys, expected.times);
        Watched { expected, routes, vpn, labels, wrong_next_hop: 0, wrong_as_path: 0, wrong_attributes: 0 }
    }

    /// The routes with their attributes, and their family.
    #[inline]
    pub fn attributes(&self) -> (&Arc<Routes>, AfiSafi) {
        match self.routes.keys() {
            RouteKeys::Part(part) => (&part.routes, part.afi_safi),
            RouteKeys::Vpn(part) => (part.routes.routes(), part.routes.afi_safi()),
        }
    }

    /// Expects the routes of `part` to be present, or absent, from `now` on. Routes of VRFs are numbered over all VRFs.
    pub fn change(&mut self, now: Instant, part: Range<u32>, present: bool) {
        let first = match self.routes.keys() {
            RouteKeys::Part(keys) => keys.part.start,
            RouteKeys::Vpn(_) => 0,
        };
        self.routes.change(now, part.start.max(first) - first..part.end.saturating_sub(first), present);
    }

    /// Expects the routes `part` of each of `vrfs` to be present, or absent, from `now` on.
    pub fn change_vpn(&mut self, now: Instant, vrfs: Range<u32>, part: Range<u32>, present: bool) {
        if let Some(vpn) = &self.vpn {
            self.routes.change_parts(now, vpn::parts(&vpn.part.routes, vrfs, part), present);
        }
    }

    /// A route was advertised with these labels. Returns true if it was absent.
    #[inline]
    pub fn received(&mut self, now: Instant, found: Found, mut verdict: Verdict, route: &Nlri<'_>) -> bool {
        verdict.attributes |= self.expected.label.is_some_and(|label| route.labels != nlri::label(label));
        let wrong = verdict.is_wrong();
        if wrong {
            self.wrong_next_hop += u64::from(verdict.next_hop);
            self.wrong_as_path += u64::from(verdict.as_path);
            self.wrong_attributes += u64::from(verdict.attributes);
            if let Some(kind) = verdict.vpn {
                self.fault(found.vrf, kind, route);
            }
        }
        if let Some(labels) = &mut self.labels {
            labels.set(found.vrf, found.route, route.labels);
        }
        if let Some(vpn) = &mut self.vpn {
            vpn.moved(route.distinguisher, found.vrf, found.route, true);
        }
        self.routes.received(now, found.number, wrong)
    }

    /// A route was withdrawn. Returns true if it was present and is absent now.
    #[inline]
    pub fn withdrawn(&mut self, now: Instant, found: Found, route: &Nlri<'_>) -> bool {
        let vpn = self.vpn.as_mut();
        let stays = vpn.is_some_and(|vpn| vpn.moved(route.distinguisher, found.vrf, found.route, false));
        !stays && self.routes.withdrawn(now, found.number)
    }

    /// Learns the VRF of the route distinguisher of a route; true if it was unknown and is known now.
    pub fn learn(&mut self, route: &Nlri<'_>, prefix: &Prefix, communities: &[u8]) -> bool {
        let Some((vpn, distinguisher)) = self.vpn.as_mut().zip(route.distinguisher) else { return false };
        let is_new = vpn.part.routes.afi_safi() == route.family && vpn.vrf_of(distinguisher).is_none();
        is_new && vpn.learn(distinguisher, prefix, communities, &self.routes).is_some()
    }

    /// A route that no VRF expects has the route distinguisher of one of them.
    pub fn not_expected(&mut self, route: &Nlri<'_>, prefix: &Prefix) {
        let Some((vpn, distinguisher)) = self.vpn.as_ref().zip(route.distinguisher) else { return };
        if let Some(vrf) = vpn.vrf_of(distinguisher)
            && let Some(other) = vpn.vrf_of_prefix(prefix)
        {
            self.fault(vrf, VpnFaultKind::WrongVrf(other), route);
        }
    }

    #[cold]
    fn fault(&mut self, vrf: u32, kind: VpnFaultKind, route: &Nlri<'_>) {
        let Some(prefix) = Prefix::masked(route.address(), route.length) else { return };
        if let Some(vpn) = &mut self.vpn {
            vpn.fault(VpnFault { key: RouteKey::of(route, prefix), vrf, kind });
        }
    }

    /// The labels of route `route` of VRF `vrf` if it is present and labels are stored.
    pub fn label_of(&self, vrf: u32, route: u32) -> Option<&[u32]> {
        let per_block = self.vpn.as_ref().map_or(self.routes.keys().len(), |vpn| vpn.part.routes.per_vrf());
        let number = vrf.checked_mul(per_block)?.checked_add(route)?;
        let labels = self.labels.as_ref()?;
        (route < per_block && self.routes.is_present(number)).then(|| labels.get(vrf, route))?
    }

    /// The session has ended, and all routes with it.
    pub fn lost(&mut self, now: Instant) {
        self.routes.lost(now);
        self.labels.iter_mut().for_each(LearnedLabels::clear);
        self.vpn.iter_mut().for_each(VpnWatched::lost);
    }

    /// The peer begins to advertise all routes again.
    pub fn refresh_begins(&mut self) {
        self.routes.refresh_begins();
        self.vpn.iter_mut().for_each(VpnWatched::refresh_begins);
    }

    /// Removes the routes that the peer has not advertised again, and returns their number.
    pub fn refresh_ends(&mut self, now: Instant) -> u32 {
        let gone = self.vpn.as_mut().map(VpnWatched::refresh_ends).unwrap_or_default();
        let routes = &mut self.routes;
        let gone = gone.into_iter().filter(|i| routes.is_present(*i) && routes.withdrawn(now, *i)).count() as u32;
        gone + routes.refresh_ends(now)
    }

    pub fn report(&self) -> Verified {
        let (wrong_target, wrong_vrf) = self.vpn.as_ref().map_or((0, 0), |vpn| (vpn.wrong_target, vpn.wrong_vrf));
        Verified {
            routes: self.routes.verification(),
            wrong_next_hop: self.wrong_next_hop,
            wrong_as_path: self.wrong_as_path,
            wrong_attributes: self.wrong_attributes,
            wrong_target,
            wrong_vrf,
        }
    }
}
