//! Time that the tester alone needs for routes, over a loop of the lab. All routes must arrive each time, and be right.

use crate::anew::{Case, Checked};
use crate::common::program::run_in_lab;
use crate::common::{read_suite, rows};
use drophammer_lab::{Lab, LabOptions};
use drophammer_model::record::TestStatus;
use drophammer_model::routes::{RouteRange, Routes};
use drophammer_model::trial::Family;
use drophammer_port::{INTERFACE_BACKENDS, SystemClock};
use drophammer_rig::{Ports, Rig};
use drophammer_testbed::config::joined_in_pairs;
use drophammer_testbed::{real, route_ceiling};
use std::sync::Arc;

const SUITE: &str = "suite: loop\nprofile: quick\nseed: 11\nduts:\n  - {name: box, kind: bird}\nbgp: {peers_per_port: 3}\n\
                     ports:\n  - {name: p1, speed: 1 Gbit/s}\n  - {name: p2, speed: 1 Gbit/s}\n\
                     tests:\n  - bgp_table_capacity: {families: [ipv4, ipv6]}\n";
const ROUTES: u32 = 50_000;

fn checked() -> Result<(), String> {
    let suite = read_suite(SUITE);
    let lab = Lab::enter(&LabOptions::default()).map_err(|e| e.to_string())?;
    let cpus = lab.cpus().clone();
    lab.pin_current_thread(cpus.tester).map_err(|e| e.to_string())?;
    let without = lab.loop_without_dut(&suite.ports).map_err(|e| e.to_string())?;
    without.keep_segments_apart().map_err(|e| e.to_string())?;
    let clock = SystemClock::start();
    // With one thread, and with two threads of which the first handles the routes.
    for (seed, processors) in [(1, vec![]), (2, vec![cpus.tester, cpus.dut])] {
        let opened = real::open(&lab, without.interfaces(), &INTERFACE_BACKENDS[0], 1, clock)?;
        let hosts = joined_in_pairs(&suite.ports, suite.seed);
        let mut rig = Rig::new(Ports::real(opened, clock, &processors), &hosts);
        for (salt, family) in [(0, Family::Ipv4), (8, Family::Ipv6)] {
            let range = RouteRange::internet(family, ROUTES, 5).map_err(|e| e.to_string())?;
            let routes = Arc::new(Routes::Range(range));
            for (turn, per_update) in [(16, 0), (32, 5)] {
                let seed = (seed + salt + turn) << 16;
                let seconds = route_ceiling::once(&mut rig, &suite.ports, seed, &routes, per_update, &|| false)
                    .map_err(|e| e.to_string())?;
                // Outside these limits the time is impossible, or longer than a retransmission can explain.
                if !(1e-4..20.0).contains(&seconds) {
                    return Err(format!("{ROUTES} {family} routes, {per_update} per UPDATE, in {seconds} s"));
                }
            }
            let stop = route_ceiling::once(&mut rig, &suite.ports, seed, &routes, 0, &|| true);
            if !matches!(stop, Err(route_ceiling::LoopError::Interrupted)) {
                return Err(format!("not stopped: {stop:?}"));
            }
        }
    }
    without.take_down().map_err(|e| e.to_string())
}

/// With three ports, the loop joins the first two and leaves out the third.
fn three_ports(lab: &mut Lab) -> Checked {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let suite = "suite: three\nprofile: quick\nrounds: 1\nduts:\n  - {name: dut, kind: bird}\nbgp: {families: [ipv4]}\nports:\n  \
                 - {name: p1, speed: 100 Mbit/s}\n  - {name: p2, speed: 100 Mbit/s}\n  - {name: p3, speed: 100 Mbit/s}\n\
                 tests:\n  - bgp_table_capacity: {families: [ipv4], step: 1000, max_routes: 1000, hold: 100 ms}\n";
    let memory = run_in_lab(lab, suite, folder.path())?;
    let tests: Vec<_> = memory.tests().into_iter().map(|test| (test.dut.as_str(), test.test.as_str(), test)).collect();
    if let Some((_, name, test)) = tests.iter().find(|(.., test)| test.status != TestStatus::Completed) {
        return Err(format!("{name}: {:?} {:?}", test.status, test.outcome.notes));
    }
    let of_loop = tests.iter().find(|test| test.1 == route_ceiling::NAME).ok_or("no ceiling of routes")?;
    let of_dut = tests.iter().filter(|test| test.0 == "dut").count();
    if (rows(&of_loop.2.outcome, route_ceiling::NAME).len(), of_dut) != (1, 1) {
        return Err(format!("{:?}, {of_dut} tests of the router", of_loop.2.outcome));
    }
    Ok(())
}

/// The tests.
pub fn cases() -> Vec<Case> {
    vec![
        Case::alone("routes_through_the_loop", checked),
        Case::in_lab("a_run_with_an_odd_number_of_ports", three_ports),
    ]
}
