//! Prefixes that BGP peers have learned, with their attributes.

use super::bench::Bench;
use crate::api::Failure;
use crate::model::read::Object;
use drophammer_emulation::bgp::{LearnedRoute, RouteKey};
use drophammer_model::routes::{AfiSafi, Origin, PathSegmentKind};
use serde_json::{Map, Value, json};
use std::net::IpAddr;

/// Maximum number of prefixes in an answer.
const MOST_PREFIXES: usize = 200_000;

/// The families of an answer: word of the filter, key of the list, family.
const FAMILIES: [(&str, &str, AfiSafi); 4] = [
    ("ipv4_unicast", "ipv4_unicast_prefixes", AfiSafi::IPV4_UNICAST),
    ("ipv6_unicast", "ipv6_unicast_prefixes", AfiSafi::IPV6_UNICAST),
    ("ipv4_mpls_unicast", "ipv4_mpls_unicast_prefixes", AfiSafi::IPV4_LABELLED),
    ("ipv6_mpls_unicast", "ipv6_mpls_unicast_prefixes", AfiSafi::IPV6_LABELLED),
];
const ORIGINS: [&str; 3] = ["igp", "egp", "incomplete"];

/// Which prefixes a client wants.
pub struct Wanted {
    /// For each of [`FAMILIES`].
    families: [bool; 4],
    /// For each of [`FAMILIES`]. An empty list of filters selects all prefixes. The model has filters for routes without labels only.
    filters: [Vec<Filter>; 4],
}

/// Prefixes that have all given properties.
struct Filter {
    addresses: Vec<String>,
    length: Option<u64>,
    origin: Option<usize>,
    path_id: Option<u64>,
}

impl Wanted {
    /// Reads the part of a request after the names of peers.
    pub fn read(request: &mut Object<'_>) -> Wanted {
        let words = request.words("prefix_filters", &FAMILIES.map(|(word, ..)| word));
        let filter = |mut o: Object<'_>| Filter {
            addresses: o.texts("addresses"),
            length: o.number("prefix_length", 128),
            origin: o.has("origin").then(|| o.word("origin", &ORIGINS, 0)),
            path_id: o.number("path_id", u32::MAX.into()),
        };
        let mut filters = |key| request.objects(key).into_iter().map(filter).collect();
        Wanted {
            filters: [filters("ipv4_unicast_filters"), filters("ipv6_unicast_filters"), Vec::new(), Vec::new()],
            families: FAMILIES.map(|(word, ..)| words.is_empty() || words.iter().any(|known| known == word)),
        }
    }
}

impl Filter {
    fn has(&self, key: &RouteKey, route: &LearnedRoute) -> bool {
        let address = key.prefix.address();
        let is = |text: &String| text.parse::<IpAddr>().is_ok_and(|known| known == address);
        (self.addresses.is_empty() || self.addresses.iter().any(is))
            && self.length.is_none_or(|length| length == u64::from(key.prefix.length()))
            && self
                .origin
                .is_none_or(|at| route.attributes.origin.is_some_and(|origin| usize::from(origin.code()) == at))
            && self.path_id.is_none_or(|id| route.path_id.is_some_and(|known| u64::from(known) == id))
    }
}

impl Bench {
    /// The unicast prefixes, with and without labels, that peers with these names have learned, peer by peer.
    ///
    /// # Errors
    /// There are too many prefixes for an answer, or for the memory of a peer.
    pub fn bgp_prefixes(&self, has: impl Fn(&str) -> bool, wanted: &Wanted) -> Result<Vec<Value>, Failure> {
        let mut out = Vec::new();
        let mut left = MOST_PREFIXES;
        for (i, name) in self.built.sessions.iter().enumerate() {
            let Some((routers, router)) = self.rig.session(i).filter(|_| has(&name.name)) else { continue };
            let adj_rib_in = routers.adj_rib_in(router);
            let refused = adj_rib_in.learned_refused();
            if refused > 0 {
                let text =
                    format!("peer `{}` had no memory for {refused} more prefixes; advertise fewer to it", name.name);
                return Err(Failure::internal(text));
            }
            let mut row = json!({"bgp_peer_name": name.name});
            for (at, (_, list, family)) in FAMILIES.into_iter().enumerate() {
                if !wanted.families[at] || !name.learns[at] {
                    continue;
                }
                let filters = &wanted.filters[at];
                let is_wanted = |(key, route): &(&RouteKey, &LearnedRoute)| {
                    key.afi_safi == family
                        && (filters.is_empty() || filters.iter().any(|filter| filter.has(key, route)))
                };
                let found = adj_rib_in.learned().filter(is_wanted).map(|(key, route)| prefix(key, route));
                let found: Vec<Value> = found.take(left + 1).collect();
                left = left.checked_sub(found.len()).ok_or_else(|| {
                    Failure::internal(format!(
                        "an answer has at most {MOST_PREFIXES} prefixes; ask for one peer, or filter"
                    ))
                })?;
                row[list] = found.into();
            }
            out.push(row);
        }
        Ok(out)
    }
}

/// A prefix. Attributes that it does not have are absent.
fn prefix(key: &RouteKey, route: &LearnedRoute) -> Value {
    let attributes = &route.attributes;
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| _ = out.insert(key.to_owned(), value);
    let of = |address: IpAddr| if address.is_ipv4() { "ipv4" } else { "ipv6" };
    let address = key.prefix.address();
    put(&format!("{}_address", of(address)), json!(address.to_string()));
    put("prefix_length", json!(key.prefix.length()));
    if key.afi_safi.is_labelled() {
        put("labels", json!(route.labels));
    }
    if let Some(next_hop) = attributes.next_hop {
        put(&format!("{}_next_hop", of(next_hop)), json!(next_hop.to_string()));
    }
    if let Some(origin) = attributes.origin {
        put("origin", json!(ORIGINS[usize::from(Origin::code(origin))]));
    }
    for (key, value) in [
        ("path_id", route.path_id),
        ("local_preference", attributes.local_pref),
        ("multi_exit_discriminator", attributes.med),
    ] {
        value.into_iter().for_each(|value| put(key, json!(value)));
    }
    let segments = attributes.path.iter().map(|segment| {
        let kind = match segment.kind {
            PathSegmentKind::Sequence => "as_seq",
            PathSegmentKind::Set => "as_set",
            PathSegmentKind::ConfederationSequence => "as_confed_seq",
            PathSegmentKind::ConfederationSet => "as_confed_set",
        };
        json!({"type": kind, "as_numbers": segment.ases})
    });
    put("as_path", json!({"segments": segments.collect::<Vec<_>>()}));
    let communities = attributes.communities.iter().map(|value| community(*value));
    put("communities", communities.collect());
    let raw = |bytes: &[u8; 8]| json!({"raw": format!("{:016x}", u64::from_be_bytes(*bytes))});
    put("extended_communities", attributes.extended_communities.iter().map(raw).collect());
    Value::Object(out)
}

fn community(value: u32) -> Value {
    let known = match value {
        0xffff_ff01 => "no_export",
        0xffff_ff02 => "no_advertised",
        0xffff_ff03 => "no_export_subconfed",
        0xffff_0006 => "llgr_stale",
        0xffff_0007 => "no_llgr",
        _ => "manual_as_number",
    };
    json!({"type": known, "as_number": value >> 16, "as_custom": value & 0xffff})
}
