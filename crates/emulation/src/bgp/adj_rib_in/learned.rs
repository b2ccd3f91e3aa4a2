//! Received routes with their attributes, for a user who reads them. Routes with the same attributes share them.

use super::watched::RouteKey;
use drophammer_wire::bgp::update::{Nlri, Update, as_path};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Attributes of a received route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LearnedAttributes {
    /// ORIGIN: 0 IGP, 1 EGP, 2 incomplete.
    pub origin: Option<u8>,
    /// Segments of AS_PATH: type and ASes. One sequence if it was merged from AS_PATH and AS4_PATH (RFC 6793 section 4.2.3).
    pub as_path: Vec<(u8, Vec<u32>)>,
    /// Next hop, the global one for IPv6.
    pub next_hop: Option<IpAddr>,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF.
    pub local_pref: Option<u32>,
    /// Communities in the order of the message.
    pub communities: Vec<u32>,
    /// Extended communities in the order of the message.
    pub extended_communities: Vec<[u8; 8]>,
}

/// A received route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedRoute {
    /// Its labels, from the top of the stack.
    pub labels: Vec<u32>,
    /// Its attributes.
    pub attributes: Arc<LearnedAttributes>,
}

/// Stored routes, by key and path identifier.
#[derive(Debug)]
pub(super) struct LearnedRoutes {
    routes: BTreeMap<(RouteKey, Option<u32>), LearnedRoute>,
    most: usize,
    /// Announcements that found no room since the session began.
    pub not_stored: u64,
}

impl LearnedRoutes {
    pub fn new(most: usize) -> LearnedRoutes {
        LearnedRoutes { routes: BTreeMap::new(), most, not_stored: 0 }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&RouteKey, Option<u32>, &LearnedRoute)> {
        self.routes.iter().map(|((key, path_id), route)| (key, *path_id, route))
    }

    /// Stores the routes of an UPDATE in place of earlier ones.
    pub fn announced<'a>(&mut self, update: &Update<'_>, routes: impl Iterator<Item = (RouteKey, Nlri<'a>)>) {
        // All routes of a message have the same attributes, but each family its next hop.
        let mut last: Option<(drophammer_wire::bgp::AfiSafi, Arc<LearnedAttributes>)> = None;
        for (key, route) in routes {
            let known = last.take().filter(|(family, _)| *family == route.family);
            let (_, attributes) =
                last.insert(known.unwrap_or_else(|| (route.family, Arc::new(attributes(update, &route)))));
            let place = (key, route.path_id);
            if self.routes.len() >= self.most && !self.routes.contains_key(&place) {
                self.not_stored += 1;
                continue;
            }
            let labels = (0..).map_while(|n| route.label(n)).collect();
            self.routes.insert(place, LearnedRoute { labels, attributes: attributes.clone() });
        }
    }

    pub fn withdrawn(&mut self, key: RouteKey, path_id: Option<u32>) {
        self.routes.remove(&(key, path_id));
    }

    /// The session has ended.
    pub fn clear(&mut self) {
        self.routes.clear();
        self.not_stored = 0;
    }
}

fn attributes(update: &Update<'_>, route: &Nlri<'_>) -> LearnedAttributes {
    let received = &update.attributes;
    let as_path = match (received.as_path, received.as4_path) {
        (Some(path), None) => path.segments().map(|(kind, ases)| (kind, ases.collect())).collect(),
        (Some(path), newer) => {
            let ases: Vec<u32> = as_path::merged(path, newer).collect();
            if ases.is_empty() { Vec::new() } else { vec![(as_path::AS_SEQUENCE, ases)] }
        }
        (None, _) => Vec::new(),
    };
    let (communities, _) = received.communities.as_chunks::<4>();
    let (extended, _) = received.extended_communities.as_chunks::<8>();
    LearnedAttributes {
        origin: received.origin,
        as_path,
        next_hop: update.next_hop(route.family),
        med: received.med,
        local_pref: received.local_pref,
        communities: communities.iter().map(|bytes| u32::from_be_bytes(*bytes)).collect(),
        extended_communities: extended.to_vec(),
    }
}
