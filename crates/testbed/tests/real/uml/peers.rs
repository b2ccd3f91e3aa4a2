//! BGP peers on VLAN sub-interfaces, one on each. Every session comes up, and one route of each peer reaches the peer
//! behind the other port.
//!
//! `DROPHAMMER_VLANS=10,100,1000` runs the test with these numbers of sub-interfaces, one guest after the other. The
//! printed lines then contain the figures. `DROPHAMMER_MEMORY=2048` is the memory of the guest in MiB.

use crate::common::{Memory, read_suite};
use drophammer_lab::{Dut, Lab};
use drophammer_methods::routing::TableChoice;
use drophammer_methods::{Packing, RouteAction, Routing, TestError};
use drophammer_model::routes::{AfiSafi, Change};
use drophammer_model::trial::Family;
use drophammer_port::SystemClock;
use drophammer_rig::{Ports, Rig};
use drophammer_testbed::config::hosts_and_routers;
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::{Session, real};
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Default number of sub-interfaces.
const VLANS: &str = "10";
/// Time limit for all sessions, in addition to [`PER_SESSION`].
const ESTABLISH: Duration = Duration::from_secs(60);
const PER_SESSION: Duration = Duration::from_millis(200);
/// Time without any change after which the wait for routes ends.
const PATIENCE: Duration = Duration::from_secs(30);

/// A suite with `vlans` sub-interfaces on the first port, each with a peer.
fn suite(vlans: usize, memory: &str) -> String {
    let mut text = format!(
        "suite: peers\nduts: [{{name: guest, kind: uml, memory: {memory}}}]\nports:\n  \
         - {{name: p2, speed: 1 Gbit/s, ipv6: off}}\n  - name: p1\n    speed: 1 Gbit/s\n    ipv6: off\n    vlans:\n"
    );
    for i in 0..vlans {
        let (high, low) = (i / 64, i % 64 * 4);
        let link = format!("dut: 10.1.{high}.{}/30, host: 10.1.{high}.{}", low + 1, low + 2);
        let _ = writeln!(text, "      - {{id: {}, ipv4: {{{link}, behind: 10.2.{high}.{low}/30}}}}", i + 1);
    }
    text + "bgp: {peers_per_vlan: 1, hold_time: 180 s}\ntests: [bgp_session_capacity]\n"
}

/// Runs the test for each number of sub-interfaces.
pub fn many(lab: &mut Lab, folder: &Path) -> Result<(), String> {
    let given = |key: &str, default: &str| std::env::var(key).unwrap_or_else(|_| default.to_owned());
    let memory = given("DROPHAMMER_MEMORY", "512");
    for vlans in given("DROPHAMMER_VLANS", VLANS).split(',') {
        let vlans = vlans.trim().parse().map_err(|_| format!("DROPHAMMER_VLANS: `{vlans}` is not a number"))?;
        with(lab, folder, vlans, &memory).map_err(|e| format!("{vlans} sub-interfaces: {e}"))?;
    }
    Ok(())
}

fn with(lab: &mut Lab, folder: &Path, vlans: usize, memory: &str) -> Result<(), String> {
    let suite = read_suite(&suite(vlans, memory));
    let begun = Instant::now();
    let mut dut = real::bring_up(lab, &suite.duts[0], &suite, folder, &|| false).map_err(|e| e.to_string())?;
    let up = begun.elapsed();
    let clock = SystemClock::start();
    let open = real::open(lab, dut.interfaces(), &drophammer_port::INTERFACE_BACKENDS[0], 1, clock)?;
    let rig = Rig::new(Ports::real(open, clock, &[]), &hosts_and_routers(&suite.ports, &[Family::Ipv4], suite.seed));
    let (mut session, mut memory) = (Session::new(suite.seed, suite.profile, 5), Memory::default());
    session.tolerance.host = drophammer_testbed::validity::HostTolerance::ANY;
    let mut setup = TestSetup::new("guest", &suite.ports, rig, dut.as_mut(), &mut session, &mut memory);
    let seen = setup
        .await_forwarding(&[Family::Ipv4])
        .and_then(|()| routes(&mut setup.routing, vlans))
        .map_err(|e| e.to_string());
    drop(setup);
    let host = resident(dut.as_mut());
    let Seen { established, settled } = seen?;
    println!(
        "    {vlans} sub-interfaces: ready in {:.1} s, {} sessions in {:.1} s, a route of each in {:.1} s; the guest's process has {} MiB, {}",
        up.as_secs_f64(),
        vlans + 2,
        established.as_secs_f64(),
        settled,
        host.0,
        host.1
    );
    real::take_down(dut, folder)?;
    super::nothing_left()
}

struct Seen {
    established: Duration,
    settled: f64,
}

/// Brings all sessions up. Then every peer on a sub-interface advertises one route, which the peer on the other port
/// must receive.
fn routes(routing: &mut dyn Routing, vlans: usize) -> Result<Seen, TestError> {
    let failed = |what: String| TestError::Failed(what);
    let origins: Vec<_> =
        (0..).zip(routing.peers()).filter(|(_, p)| p.name.starts_with("p1 VLAN")).map(|(i, _)| i).collect();
    let all: Vec<_> = (0..routing.peers().len()).collect();
    if origins.len() != vlans || all.len() != vlans + 2 {
        return Err(failed(format!("{} peers on sub-interfaces, {} in all", origins.len(), all.len())));
    }
    let begun = Instant::now();
    routing.establish(&all, ESTABLISH + PER_SESSION * all.len() as u32)?;
    let established = begun.elapsed();
    let table = routing.table(&TableChoice::named("internet"), AfiSafi::IPV4_UNICAST, vlans as u32)?;
    // All origins are in the same AS, so the routes that the observer must receive do not depend on the origin.
    let observer = 0;
    let watch = routing.watch(observer, origins[0], &table);
    routing.expect(watch, 0..vlans as u32, true);
    for (route, peer) in (0..).zip(&origins) {
        let (routes, part, packing) = (table.clone(), route..route + 1, Packing::default());
        routing.act(&RouteAction::Routes { peer: *peer, change: Change::Advertise, routes, part, packing })?;
    }
    let settled = routing.await_settled(&[watch], PATIENCE)?;
    let verified = routing.verified(watch);
    if !settled.complete || verified.present != vlans as u64 || verified.unexpected != 0 {
        return Err(failed(format!("{}: {verified:?}", settled.cause)));
    }
    // Advertised routes may not have reached the kernel yet.
    let advertised = Instant::now();
    loop {
        let held = routing.dut().fib_routes(Family::Ipv4);
        if held == Some(vlans as u64) {
            break;
        }
        if advertised.elapsed() > PATIENCE {
            return Err(failed(format!("the guest's kernel has {held:?} routes more than before")));
        }
    }
    let down: Vec<_> = all.iter().filter(|peer| !routing.session(**peer).established).collect();
    if !down.is_empty() {
        return Err(failed(format!("sessions went down: {down:?}")));
    }
    Ok(Seen { established, settled: settled.last_change_s })
}

/// Memory of the guest as seen by this machine, in MiB, and memory of its daemons as seen by the guest's kernel.
pub fn resident(dut: &mut dyn Dut) -> (u64, String) {
    let resident = |pid: u32| -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let all: u64 = super::guests().into_iter().filter_map(resident).sum();
    let memory = dut.usage().map(|usage| usage.memory()).unwrap_or_default();
    let daemons: Vec<_> = memory.iter().map(|(name, bytes)| format!("{name} {} MiB", bytes >> 20)).collect();
    (all >> 10, daemons.join(", "))
}
