//! The routes of a peer with their attributes, for users who want to see them. Expectations need none of this.

use super::RouteKey;
use drophammer_model::routes::{AfiSafi, Origin, PathSegment, PathSegmentKind};
use drophammer_wire::bgp::update::{Nlri, Update, as_path};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Maximum memory for the routes of a session, in bytes.
const ROOM: usize = 256 << 20;
/// Bytes of a route without its labels.
const ROUTE: usize = 128;
/// Bytes of attributes without their lists.
const ATTRIBUTES: usize = 160;

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnedRoute {
    /// Path identifier, if the session uses them.
    pub path_id: Option<u32>,
    /// Labels from the top of the stack; empty in families without.
    pub labels: Box<[u32]>,
    /// Its attributes, the same for all routes of an UPDATE.
    pub attributes: Arc<LearnedAttributes>,
    /// The number of its UPDATE.
    update: u64,
}

/// The attributes of a route as received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LearnedAttributes {
    /// ORIGIN.
    pub origin: Option<Origin>,
    /// AS_PATH, or one sequence if its end was in AS4_PATH.
    pub path: Vec<PathSegment>,
    /// Next hop, the global one for IPv6.
    pub next_hop: Option<IpAddr>,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF.
    pub local_pref: Option<u32>,
    /// Communities (RFC 1997).
    pub communities: Vec<u32>,
    /// Extended communities (RFC 4360).
    pub extended_communities: Vec<[u8; 8]>,
}

impl LearnedAttributes {
    fn of(update: &Update<'_>, key: &RouteKey) -> LearnedAttributes {
        let received = &update.attributes;
        let path = match (received.as_path, received.as4_path) {
            (Some(path), Some(far)) => {
                let ases = as_path::merged(path, Some(far)).collect();
                vec![PathSegment { kind: PathSegmentKind::Sequence, ases }]
            }
            (Some(path), None) => {
                let segment = |(kind, ases): (u8, _)| {
                    Some(PathSegment { kind: PathSegmentKind::from_code(kind)?, ases: Iterator::collect(ases) })
                };
                path.segments().filter_map(segment).collect()
            }
            (None, _) => Vec::new(),
        };
        let communities = received.communities.as_chunks::<4>().0;
        LearnedAttributes {
            origin: received.origin.and_then(Origin::from_code),
            path,
            next_hop: update.next_hop(key.afi_safi),
            med: received.med,
            local_pref: received.local_pref,
            communities: communities.iter().map(|four| u32::from_be_bytes(*four)).collect(),
            extended_communities: received.extended_communities.as_chunks::<8>().0.to_vec(),
        }
    }

    fn bytes(&self) -> usize {
        let path: usize = self.path.iter().map(|segment| 32 + 4 * segment.ases.len()).sum();
        ATTRIBUTES + path + 4 * self.communities.len() + 8 * self.extended_communities.len()
    }
}

/// The routes that are present.
#[derive(Default)]
pub(super) struct Learned {
    /// By key and path identifier.
    pub routes: BTreeMap<(RouteKey, Option<u32>), LearnedRoute>,
    /// Announcements that were not stored, because there was no room.
    pub refused: u64,
    /// Bytes in use.
    used: usize,
    /// The attributes of the last UPDATE, and its number. Each family has its own next hop.
    last: Option<((u64, AfiSafi), Arc<LearnedAttributes>)>,
}

impl Learned {
    /// A route of the UPDATE with this number was announced.
    pub fn announced(&mut self, key: RouteKey, route: &Nlri<'_>, number: u64, update: &Update<'_>) {
        self.withdrawn(&key, route.path_id);
        if self.used >= ROOM {
            self.refused += 1;
            return;
        }
        let of = (number, key.afi_safi);
        let attributes = match &self.last {
            Some((known, attributes)) if *known == of => attributes.clone(),
            _ => {
                let attributes = Arc::new(LearnedAttributes::of(update, &key));
                self.used += attributes.bytes();
                let last = self.last.replace((of, attributes.clone()));
                last.into_iter().for_each(|(_, before)| self.release(before));
                attributes
            }
        };
        let labels: Box<[u32]> = (0..).map_while(|n| route.label(n)).collect();
        self.used += ROUTE + 4 * labels.len();
        let path_id = route.path_id;
        self.routes.insert((key, path_id), LearnedRoute { path_id, labels, attributes, update: number });
    }

    pub fn withdrawn(&mut self, key: &RouteKey, path_id: Option<u32>) {
        if let Some(route) = self.routes.remove(&(*key, path_id)) {
            self.used -= ROUTE + 4 * route.labels.len();
            self.release(route.attributes);
        }
    }

    fn release(&mut self, attributes: Arc<LearnedAttributes>) {
        if let Some(unused) = Arc::into_inner(attributes) {
            self.used -= unused.bytes();
        }
    }

    /// Removes the routes of `family` of UPDATEs with numbers up to `last`.
    pub fn remove_old(&mut self, family: AfiSafi, last: u64) {
        let old = self.routes.iter().filter(|((key, _), route)| key.afi_safi == family && route.update <= last);
        let old: Vec<_> = old.map(|(key, _)| *key).collect();
        old.iter().for_each(|(key, path_id)| self.withdrawn(key, *path_id));
    }

    /// The session has ended.
    pub fn lost(&mut self) {
        *self = Learned::default();
    }

    #[cfg(test)]
    fn used(&self) -> usize {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::super::AdjRibIn;
    use super::*;
    use crate::bgp::{Negotiated, SessionConfig};
    use drophammer_model::Instant;
    use drophammer_wire::bgp::PathDirection;
    use std::net::Ipv4Addr;

    /// The body of an UPDATE: withdrawn routes, attributes, announced routes.
    fn update(withdrawn: &[u8], attributes: &[u8], announced: &[u8]) -> Vec<u8> {
        let part = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
        [part(withdrawn), part(attributes), announced.to_vec()].concat()
    }

    /// EGP, a set of AS 1111 before a sequence of 1112 and 1113, next hop 1.1.1.3, MED 50, community 1:2.
    const ATTRIBUTES: &[u8] = &[
        0x40, 1, 1, 1, 0x40, 2, 16, 1, 1, 0, 0, 4, 87, 2, 2, 0, 0, 4, 88, 0, 0, 4, 89, 0x40, 3, 4, 1, 1, 1, 3, 0x80, 4,
        4, 0, 0, 0, 50, 0xc0, 8, 4, 0, 1, 0, 2,
    ];

    fn agreed() -> Negotiated {
        let config = |local, peer, id: u32| SessionConfig::new(local, peer, Ipv4Addr::from(id));
        Negotiated::from_opens(&config(65_001, 65_000, 1), config(65_000, 65_001, 2).open()).unwrap()
    }

    #[test]
    fn routes_have_the_attributes_of_their_update_until_they_are_withdrawn() {
        let mut adj_rib_in = AdjRibIn::new();
        adj_rib_in.keep_learned();
        let mut receive = |body: Vec<u8>| {
            adj_rib_in.update(Instant(0), &body, &agreed()).unwrap();
            let routes: Vec<_> =
                adj_rib_in.learned().map(|(key, route)| (key.prefix.to_string(), route.clone())).collect();
            (routes, adj_rib_in.learned.as_ref().unwrap().used())
        };
        let (routes, used) = receive(update(&[], ATTRIBUTES, &[24, 10, 0, 0, 24, 10, 0, 1]));
        let sequence = |kind, ases: &[u32]| PathSegment { kind, ases: ases.to_vec() };
        assert_eq!(
            *routes[0].1.attributes,
            LearnedAttributes {
                origin: Some(Origin::Egp),
                path: vec![
                    sequence(PathSegmentKind::Set, &[1_111]),
                    sequence(PathSegmentKind::Sequence, &[1_112, 1_113])
                ],
                next_hop: Some("1.1.1.3".parse().unwrap()),
                med: Some(50),
                communities: vec![0x1_0002],
                ..LearnedAttributes::default()
            }
        );
        assert!(Arc::ptr_eq(&routes[0].1.attributes, &routes[1].1.attributes));
        // Attributes count as long as somebody has them.
        drop(routes);
        // The same attributes again, in an UPDATE that is not parsed for expectations.
        let (routes, more) = receive(update(&[], ATTRIBUTES, &[24, 10, 0, 2]));
        assert_eq!(routes.len(), 3);
        assert_eq!(routes[2].1.attributes, routes[0].1.attributes);
        assert!(more > used);
        drop(routes);
        let (routes, _) = receive(update(&[24, 10, 0, 0, 24, 10, 0, 1], &[], &[]));
        assert_eq!(routes.iter().map(|(prefix, _)| prefix.as_str()).collect::<Vec<_>>(), ["10.0.2.0/24"]);
        drop(routes);
        let (routes, left) = receive(update(&[24, 10, 0, 2], &[], &[]));
        assert_eq!((routes, left), (Vec::new(), more - used - ROUTE), "only the last attributes are left");
        adj_rib_in.session_lost(Instant(1));
        assert_eq!(adj_rib_in.learned.as_ref().unwrap().used(), 0);
    }

    #[test]
    fn each_family_of_an_update_has_its_next_hop() {
        // MP_REACH_NLRI: 2001:db8::/32 via 2001:db8::1, in an UPDATE that announces 10.0.0.0/24 too.
        let mut reach: Vec<u8> = vec![0x80, 14, 26, 0, 2, 1, 16, 0x20, 1, 0x0d, 0xb8];
        reach.extend([0; 11]);
        reach.extend([1, 0, 32, 0x20, 1, 0x0d, 0xb8]);
        let mut adj_rib_in = AdjRibIn::new();
        adj_rib_in.keep_learned();
        let body = update(&[], &[ATTRIBUTES, &reach[..]].concat(), &[24, 10, 0, 0]);
        adj_rib_in.update(Instant(0), &body, &agreed()).unwrap();
        let mut found: Vec<_> = adj_rib_in
            .learned()
            .map(|(key, route)| (key.prefix.to_string(), route.attributes.next_hop.unwrap().to_string()))
            .collect();
        found.sort();
        let expected = [("10.0.0.0/24", "1.1.1.3"), ("2001:db8::/32", "2001:db8::1")];
        assert_eq!(found, expected.map(|(prefix, next_hop)| (prefix.to_owned(), next_hop.to_owned())));
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let mut adj_rib_in = AdjRibIn::new();
        adj_rib_in.keep_learned();
        adj_rib_in.learned.as_mut().unwrap().used = ROOM;
        adj_rib_in.update(Instant(0), &update(&[], ATTRIBUTES, &[24, 10, 0, 0]), &agreed()).unwrap();
        assert_eq!((adj_rib_in.learned().count(), adj_rib_in.learned_refused()), (0, 1));
    }

    #[test]
    fn paths_to_one_prefix_are_several_routes() {
        let config = |local, peer, id: u32| SessionConfig {
            add_path: vec![(AfiSafi::IPV4_UNICAST, PathDirection { receive: true, send: true })],
            ..SessionConfig::new(local, peer, Ipv4Addr::from(id))
        };
        let agreed = Negotiated::from_opens(&config(65_001, 65_000, 1), config(65_000, 65_001, 2).open()).unwrap();
        let mut adj_rib_in = AdjRibIn::new();
        adj_rib_in.keep_learned();
        let path = |id: u8| [0, 0, 0, id, 24, 10, 0, 0];
        for (body, ids) in [
            (update(&[], ATTRIBUTES, &[path(1), path(2)].concat()), vec![1, 2]),
            (update(&[], ATTRIBUTES, &path(2)), vec![1, 2]),
            (update(&path(1), &[], &[]), vec![2]),
            (update(&path(2), &[], &[]), vec![]),
        ] {
            adj_rib_in.update(Instant(0), &body, &agreed).unwrap();
            let found: Vec<u32> = adj_rib_in.learned().filter_map(|(_, route)| route.path_id).collect();
            assert_eq!(found, ids);
        }
    }
}
