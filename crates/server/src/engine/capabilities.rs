//! What clients may send. The readers of the requests tell it themselves, so it is what this server does.

use super::bench::Bench;
use super::change::change;
use crate::api::Call;
use crate::model::Config;
use crate::model::probe::accepted;
use drophammer_port::{Backend, INTERFACE_BACKENDS};
use serde_json::{Value, json};
use std::sync::OnceLock;

/// Range of compatible client versions.
pub(super) const VERSIONS: &str = ">=1.40.0,<2.0.0";

/// Version, backends, and the fields of each request by the name that clients have for it.
pub(super) fn capabilities(bench: &Bench, backend: &Backend) -> Value {
    let described = |backend: &Backend| json!({"name": backend.spec.name, "summary": backend.spec.summary});
    json!({
        "app_version": env!("CARGO_PKG_VERSION"),
        "api_spec_version": VERSIONS,
        "backend": backend.spec.name,
        "backends": INTERFACE_BACKENDS.iter().map(described).collect::<Vec<_>>(),
        "requests": requests(bench),
    })
}

/// The fields of each request, which are the same for every configuration.
fn requests(bench: &Bench) -> &'static Value {
    // The thread that drives the ports must not stop for long.
    static REQUESTS: OnceLock<Value> = OnceLock::new();
    let changed = |call| accepted(|o| change(o, call, &mut Vec::new()));
    REQUESTS.get_or_init(|| {
        json!({
            "set_config": Config::accepted(),
            "update_config": changed(Call::UpdateConfig),
            "append_config": changed(Call::AppendConfig),
            "delete_config": changed(Call::DeleteConfig),
            "set_control_state": accepted(|o| drop(bench.read_state(o))),
            "set_control_action": accepted(|o| drop(bench.read_action(o))),
            "get_metrics": accepted(|o| drop(bench.read_metrics(o))),
            "get_states": accepted(|o| drop(bench.read_states(o))),
            "get_capture": accepted(|o| _ = bench.read_capture(o)),
        })
    })
}
