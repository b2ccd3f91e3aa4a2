//! FRR and BIRD in namespaces speak OSPF and BFD with the emulated P routers behind two core ports, and put the loopback addresses of
//! the PE routers behind them into the kernel.

use crate::anew::{Case, Checked};
use crate::common::read_suite;
use drophammer_lab::{Dut, Lab, LabOptions};
use drophammer_model::label_edge::{OSPF_DEAD_S, OSPF_HELLO_S, p_router, pe_router};
use drophammer_model::trial::Family;
use drophammer_port::{Clock, SystemClock};
use drophammer_rig::ospf::{NetworkType, OspfConfig, Topology};
use drophammer_rig::{Command, Ports, ProtocolConfig, Rig, Until, bfd};
use drophammer_testbed::config::hosts_and_routers;
use drophammer_testbed::real;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Time limit for all sessions, and for the routes after that.
const LIMIT: Duration = Duration::from_secs(30);
/// How often the kernel's routes are counted.
const LOOK: Duration = Duration::from_millis(50);

/// The cases.
pub fn cases() -> Vec<Case> {
    let case = |kind: &'static str| {
        Case::alone(format!("{kind}_speaks_ospf_and_bfd_on_core_links"), move || {
            let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
            let options = LabOptions { keep: vec![folder.path().to_path_buf()], queues: 1, ..LabOptions::default() };
            let mut lab = Lab::enter(&options).map_err(|e| e.to_string())?;
            speaks(&mut lab, kind, folder.path())
        })
        .long()
        .waits()
    };
    ["frr", "bird"].map(case).into()
}

/// A P router with the loopback address of a PE router behind it.
fn router(id: Ipv4Addr, behind: Ipv4Addr) -> OspfConfig {
    OspfConfig {
        network: NetworkType::PointToPoint,
        hello_interval: OSPF_HELLO_S,
        dead_interval: OSPF_DEAD_S,
        topology: Some(Topology::loopback(behind, 10)),
        ..OspfConfig::new(id)
    }
}

fn speaks(lab: &mut Lab, kind: &str, folder: &std::path::Path) -> Checked {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let port = |name: &str| format!("{{name: {name}, speed: 1 Gbit/s, ipv6: off, core: [ospf, bfd]}}");
    let suite = read_suite(&format!(
        "suite: core\nduts: [{{name: box, kind: {kind}}}]\nports: [{}, {}]\ntests: [throughput]\n",
        port("p1"),
        port("p2")
    ));
    let mut dut = real::bring_up(lab, &suite.duts[0], &suite, folder, &|| false).map_err(|e| text(&e))?;
    let routes = |dut: &mut dyn Dut| dut.fib_routes(Family::Ipv4).map_err(|e| text(&e));
    let before = routes(dut.as_mut())?.ok_or("the kernel does not count its routes")?;
    let clock = SystemClock::start();
    let open = real::open(lab, dut.interfaces(), &drophammer_port::INTERFACE_BACKENDS[0], 1, clock)?;
    let config = hosts_and_routers(&suite.ports, &[Family::Ipv4], suite.seed);
    let mut rig = Rig::new(Ports::real(open, clock, &[]), &config);
    let mut places = Vec::new();
    for (index, port) in suite.ports.iter().enumerate() {
        let dut = port.ipv4.as_ref().ok_or("a core port has IPv4")?.dut;
        let ospf = ProtocolConfig::Ospf(Box::new(router(p_router(index), pe_router(index))));
        for protocol in [ospf, ProtocolConfig::Bfd(vec![bfd::SessionConfig::new(dut)])] {
            let place = rig.set_protocol(index, 0, &protocol).map_err(|e| text(&e))?;
            rig.command_to(place, &Command::Start).map_err(|e| text(&e))?;
            places.push(place);
        }
    }
    let up = Until::All(places.iter().copied().map(Until::Up).collect());
    let begun = clock.now();
    rig.serve(&up.clone().or_at(begun + LIMIT), &|| false).map_err(|e| text(&e))?;
    if !rig.holds(&up) {
        let states: Vec<_> = places.iter().map(|place| (place.protocol, rig.hosts().state(*place))).collect();
        return Err(format!("not up after {LIMIT:?}: {states:?}"));
    }
    println!("{kind}: OSPF and BFD of two links up after {:.1} s", clock.now().since(begun).as_secs_f64());
    // The kernel gets a route to each PE router.
    let end = clock.now() + LIMIT;
    loop {
        let now = routes(dut.as_mut())?;
        if now == Some(before + 2) {
            break;
        }
        if clock.now() > end {
            return Err(format!("{now:?} routes in the kernel, {before} before"));
        }
        let look = clock.now() + LOOK;
        rig.serve(&Until::At(look), &|| false).map_err(|e| text(&e))?;
    }
    if !rig.holds(&up) {
        return Err("a session went down".into());
    }
    dut.check().map_err(|e| text(&e))?;
    real::take_down(dut, folder)
}
