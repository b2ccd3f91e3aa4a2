//! Metrics of RSVP-TE routers, and their LSPs.

use super::answers::Selection;
use super::bench::Bench;
use crate::build::{RouterKind, RouterName};
use drophammer_emulation::rsvp::{IngressRange, Phase, Rsvp};
use drophammer_model::Instant;
use serde_json::{Value, json};

/// Metrics: the column and its counter. Columns without a counter are about functions that no router here has.
const COLUMNS: [(&str, &str); 27] = [
    ("lsp_flap_count", "lsps_lost"),
    ("paths_tx", "path_sent"),
    ("paths_rx", "path_received"),
    ("resvs_tx", "resv_sent"),
    ("resvs_rx", "resv_received"),
    ("path_tears_tx", "path_tear_sent"),
    ("path_tears_rx", "path_tear_received"),
    ("resv_tears_tx", "resv_tear_sent"),
    ("resv_tears_rx", "resv_tear_received"),
    ("path_errors_tx", "path_err_sent"),
    ("path_errors_rx", "path_err_received"),
    ("resv_errors_tx", "resv_err_sent"),
    ("resv_errors_rx", "resv_err_received"),
    ("resv_conf_tx", "resv_conf_sent"),
    ("resv_conf_rx", "resv_conf_received"),
    ("hellos_tx", "hello_sent"),
    ("hellos_rx", "hello_received"),
    ("acks_tx", "ack_sent"),
    ("acks_rx", "ack_received"),
    ("nacks_tx", "nacks_sent"),
    ("nacks_rx", "nacks_received"),
    ("srefresh_tx", "srefresh_sent"),
    ("srefresh_rx", "srefresh_received"),
    ("bundle_tx", "bundle_sent"),
    ("bundle_rx", "bundle_received"),
    ("path_reevaluation_request_tx", ""),
    ("path_reoptimizations", ""),
];

impl Bench {
    /// The selected RSVP-TE routers with the LSPs that begin there.
    fn rsvp_routers(&self, selection: &Selection) -> impl Iterator<Item = (&RouterName, &Rsvp, &[IngressRange])> {
        self.built.routers.iter().filter(|router| selection.has(&router.name)).filter_map(|router| {
            let RouterKind::Rsvp(lsps) = &router.kind else { return None };
            let rsvp = self.rig.hosts().device(router.place.port, router.place.device)?.protocol()?;
            Some((router, rsvp, lsps.as_slice()))
        })
    }

    pub(super) fn rsvp_metrics(&self, selection: &Selection) -> Vec<Value> {
        let mut rows = Vec::new();
        for (router, rsvp, lsps) in self.rsvp_routers(selection) {
            let state = self.rig.hosts().state(router.place).unwrap_or_default();
            let begin = (0..rsvp.ingress_len()).filter(|lsp| rsvp.ingress_phase(*lsp) == Phase::Up).count();
            let mut row = json!({
                "name": router.name, "ingress_p2p_lsps_configured": lsps.len(), "ingress_p2p_lsps_up": begin,
                "egress_p2p_lsps_up": rsvp.ends().count(),
            });
            for (column, counter) in COLUMNS {
                row[column] = json!(state.counter(counter));
            }
            rows.push(row);
        }
        rows
    }

    /// LSPs that begin at routers, and those that end there and are up.
    pub(super) fn rsvp_lsps(&self, selection: &Selection) -> Vec<Value> {
        let (now, mut rows) = (self.rig.now(), Vec::new());
        let up_time = |since: Instant| now.since(since).as_millis() as u64;
        for (router, rsvp, lsps) in self.rsvp_routers(selection) {
            let mut list = Vec::new();
            for (number, range) in (0..).zip(lsps) {
                let key = range.lsps.key(0);
                let mut lsp = json!({
                    "tunnel_id": key.session.tunnel_id, "lsp_id": key.sender.lsp_id, "session_name": range.name,
                    "session_status": "down", "up_time": 0,
                });
                if let Some((label, since)) = rsvp.label_of(number).zip(rsvp.up_since(number)) {
                    lsp["session_status"] = json!("up");
                    lsp["label_in"] = json!(label);
                    lsp["up_time"] = json!(up_time(since));
                }
                let hop = |hop: &drophammer_emulation::rsvp::RouteHop| json!({"prefix": format!("{}/{}", hop.address, hop.prefix_len), "type": "ipv4"});
                // The last hop of every route is the egress itself.
                let mut hops: Vec<Value> = range.explicit_route.iter().map(hop).collect();
                hops.push(json!({"prefix": format!("{}/32", key.session.destination), "type": "ipv4"}));
                list.push(json!({
                    "source_address": key.sender.address.to_string(),
                    "destination_address": key.session.destination.to_string(), "lsp": lsp, "rros": [], "eros": hops,
                }));
            }
            for (key, label, since) in rsvp.ends() {
                list.push(json!({
                    "source_address": key.sender.address.to_string(),
                    "destination_address": key.session.destination.to_string(),
                    "lsp": {
                        "tunnel_id": key.session.tunnel_id, "lsp_id": key.sender.lsp_id, "session_status": "up",
                        "label_out": label, "up_time": up_time(since),
                    },
                    "rros": [], "eros": [],
                }));
            }
            rows.push(json!({"rsvp_router_name": router.name, "ipv4_lsps": list}));
        }
        rows
    }
}
