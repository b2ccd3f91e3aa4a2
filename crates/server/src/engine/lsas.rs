//! LSAs that OSPFv2 routers have learned.

use super::answers::Selection;
use super::bench::Bench;
use crate::build::RouterKind;
use drophammer_wire::ospf::body::link;
use drophammer_wire::ospf::lsa::MAX_AGE;
use drophammer_wire::ospf::{Body, LsaHeader, lsa_type};
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// Lists of LSAs in an answer, present even if they are empty.
const LISTS: [&str; 7] = [
    "router_lsas",
    "network_lsas",
    "network_summary_lsas",
    "summary_as_lsas",
    "external_as_lsas",
    "nssa_lsas",
    "opaque_lsas",
];

/// The list that an LSA belongs to, and its entry there. `None` for unknown types.
fn row(header: &LsaHeader, body: &[u8]) -> Option<(&'static str, Value)> {
    let key = header.key;
    let (list, mut row) = match Body::parse(key.kind, body).ok()? {
        Body::Router(router) => {
            let links = router.links().filter_map(|known| {
                let kind = match known.kind {
                    link::POINT_TO_POINT => "point_to_point",
                    link::TRANSIT => "transit",
                    link::STUB => "stub",
                    link::VIRTUAL => "virtual",
                    _ => return None,
                };
                let [id, data] = [known.id, known.data].map(|address| address.to_string());
                Some(json!({"type": kind, "id": id, "data": data, "metric": known.metric}))
            });
            ("router_lsas", json!({"links": links.collect::<Vec<_>>()}))
        }
        Body::Network(network) => {
            let routers = network.routers.iter().map(|router| Ipv4Addr::from(*router).to_string());
            let routers: Vec<_> = routers.collect();
            ("network_lsas", json!({"network_mask": network.mask.to_string(), "neighbor_router_ids": routers}))
        }
        Body::Summary(summary) => {
            let list = if key.kind == lsa_type::SUMMARY_NETWORK { LISTS[2] } else { LISTS[3] };
            (list, json!({"network_mask": summary.mask.to_string(), "metric": summary.metric}))
        }
        Body::External(external) => {
            let metric_type = if external.type_2 { 2 } else { 1 };
            let mask = external.mask.to_string();
            ("external_as_lsas", json!({"network_mask": mask, "metric": external.metric, "metric_type": metric_type}))
        }
        Body::Opaque(_) => {
            let scope = match key.kind {
                lsa_type::OPAQUE_LINK => "local",
                lsa_type::OPAQUE_AREA => "area",
                lsa_type::OPAQUE_AS => "domain",
                _ => return None,
            };
            let [kind, id @ ..] = key.id.octets();
            let information = json!({"choice": "unknown", "unknown": {"opaque_type": kind}});
            let id = u32::from_be_bytes([0, id[0], id[1], id[2]]);
            ("opaque_lsas", json!({"type": scope, "id": id, "tlv_information": information}))
        }
    };
    row["header"] = json!({
        "lsa_id": key.id.to_string(), "advertising_router_id": key.router.to_string(),
        "sequence_number": header.sequence as u32, "age": header.age, "option_bits": header.options,
    });
    Some((list, row))
}

impl Bench {
    /// The LSAs of routers that store them.
    pub(super) fn ospf_lsas(&self, selection: &Selection) -> Vec<Value> {
        let (now, mut rows) = (self.rig.now(), Vec::new());
        for router in self.built.routers.iter().filter(|router| selection.has(&router.name)) {
            let RouterKind::Ospf { stores: true, .. } = router.kind else { continue };
            let Some(ospf) = self.ospf(router) else { continue };
            let mut lists = json!({"router_name": router.name});
            LISTS.iter().for_each(|list| lists[*list] = json!([]));
            let alive = ospf.learned_lsas(now).filter(|(header, _)| header.age < MAX_AGE);
            for (list, row) in alive.filter_map(|(header, body)| row(&header, body)) {
                if let Some(list) = lists[list].as_array_mut() {
                    list.push(row);
                }
            }
            rows.push(lists);
        }
        rows
    }
}
