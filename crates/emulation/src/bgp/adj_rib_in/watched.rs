//! Expected routes and their expected properties.

use super::verdict::Verdict;
use super::{Expected, Verified};
use crate::expectation::{Expectation, Keys};
use drophammer_model::Instant;
use drophammer_model::routes::{Prefix, Routes};
use drophammer_wire::bgp::AfiSafi;
use drophammer_wire::bgp::update::Nlri;
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

/// An expectation of routes, with the counts specific to BGP.
pub(super) struct Watched {
    pub expected: Expected,
    pub routes: Expectation<RoutePart>,
    wrong_next_hop: u64,
    wrong_as_path: u64,
    wrong_attributes: u64,
}

impl Watched {
    pub fn new(now: Instant, keys: RoutePart, expected: Expected) -> Watched {
        let routes = Expectation::new(now, keys, expected.times);
        Watched { expected, routes, wrong_next_hop: 0, wrong_as_path: 0, wrong_attributes: 0 }
    }

    /// Expects the routes of `part` to be present, or absent, from `now` on.
    pub fn change(&mut self, now: Instant, part: Range<u32>, present: bool) {
        let first = self.routes.keys().part.start;
        self.routes.change(now, part.start.max(first) - first..part.end.saturating_sub(first), present);
    }

    /// Route `i` of the part was advertised. Returns true if it was absent.
    #[inline]
    pub fn received(&mut self, now: Instant, i: u32, verdict: Verdict) -> bool {
        let wrong = verdict.is_wrong();
        if wrong {
            self.wrong_next_hop += u64::from(verdict.next_hop);
            self.wrong_as_path += u64::from(verdict.as_path);
            self.wrong_attributes += u64::from(verdict.attributes);
        }
        self.routes.received(now, i, wrong)
    }

    pub fn report(&self) -> Verified {
        Verified {
            routes: self.routes.verification(),
            wrong_next_hop: self.wrong_next_hop,
            wrong_as_path: self.wrong_as_path,
            wrong_attributes: self.wrong_attributes,
        }
    }
}
