//! Whole runs and single trials on real routers, and on the reference device as a process behind real links.
//!
//! Each case has its own process and its own lab. A reference device, the fast path of a router of kind `xdp` and the
//! first process of a guest of kind `uml` are other instances of this program.

#[path = "../../../lab/tests/anew/mod.rs"]
mod anew;
#[path = "../common/mod.rs"]
mod common;
#[path = "../../examples/daemons/daemon.rs"]
mod daemon;
#[path = "../../examples/daemons/freertr.rs"]
mod freertr;
#[allow(dead_code)] // recordings use all of it
#[path = "../../../emulation/tests/bgp_daemons/plan.rs"]
mod scenes;
#[allow(dead_code)] // recordings use all of it
#[path = "../../examples/daemons/sessions.rs"]
mod sessions;
#[path = "../../examples/daemons/speaker.rs"]
mod speaker;
#[path = "../common/station.rs"]
mod station;

mod bgp_daemons;
mod classes_uml;
mod core_links;
mod fixed_rate_links;
mod forwarding_kinds;
mod kernel_tcp;
mod known_answers;
mod label_capture;
mod label_chain;
mod label_kinds;
mod lanes;
mod late_routes;
mod loop_uml;
mod loss_uml;
mod modifiers_real;
mod protected;
mod reflectors;
mod route_ceiling;
mod router_answers;
mod router_counters;
mod spoilt;
mod stopped;
mod systems;
mod systems_uml;
mod uml;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = common::program::as_device() {
        return code;
    }
    let all = [
        bgp_daemons::cases,
        classes_uml::cases,
        core_links::cases,
        fixed_rate_links::cases,
        forwarding_kinds::cases,
        kernel_tcp::cases,
        known_answers::cases,
        label_capture::cases,
        label_chain::cases,
        label_kinds::cases,
        lanes::cases,
        late_routes::cases,
        loop_uml::cases,
        loss_uml::cases,
        modifiers_real::cases,
        protected::cases,
        reflectors::cases,
        route_ceiling::cases,
        router_answers::cases,
        router_counters::cases,
        spoilt::cases,
        stopped::cases,
        systems::cases,
        systems_uml::cases,
        uml::cases,
    ];
    anew::run(all.into_iter().flat_map(|cases| cases()).collect())
}
