//! Expected routes and their expected properties.

use super::verdict::Verdict;
use super::{Expected, Verified};
use crate::expectation::{Expectation, Keys};
use drophammer_model::Instant;
use drophammer_model::routes::{Prefix, Routes};
use drophammer_wire::bgp::AfiSafi;
use std::ops::Range;
use std::sync::Arc;

/// A part of a route set as the keys of an expectation: number `i` is route `part.start + i`.
#[derive(Clone)]
pub struct RoutePart {
    /// The route set.
    pub routes: Arc<Routes>,
    /// The part; all its routes exist.
    pub part: Range<u32>,
}

impl RoutePart {
    /// The routes of `part` that exist.
    fn new(routes: Arc<Routes>, part: Range<u32>) -> RoutePart {
        let end = part.end.min(routes.len());
        RoutePart { part: part.start.min(end)..end, routes }
    }
}

impl Keys for RoutePart {
    type Key = Prefix;

    fn len(&self) -> u32 {
        self.part.end - self.part.start
    }

    fn index_of(&self, prefix: &Prefix) -> Option<u32> {
        self.routes.index_of(prefix).filter(|i| self.part.contains(i)).map(|i| i - self.part.start)
    }

    fn key(&self, index: u32) -> Prefix {
        self.routes.prefix(self.part.start + index)
    }
}

/// An expectation of routes in one family, with the counts specific to BGP.
pub(super) struct Watched {
    pub family: AfiSafi,
    pub distinguisher: Option<[u8; 8]>,
    pub expected: Expected,
    pub routes: Expectation<RoutePart>,
    wrong_next_hop: u64,
    wrong_as_path: u64,
    wrong_attributes: u64,
}

impl Watched {
    pub fn new(
        now: Instant,
        family: AfiSafi,
        distinguisher: Option<[u8; 8]>,
        routes: Arc<Routes>,
        part: Range<u32>,
        expected: Expected,
    ) -> Watched {
        let routes = Expectation::new(now, RoutePart::new(routes, part), expected.times);
        Watched { family, distinguisher, expected, routes, wrong_next_hop: 0, wrong_as_path: 0, wrong_attributes: 0 }
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
