//! A guest as a PE router (RFC 4364) between emulated CE, P and PE routers: OSPF, LDP and BFD with the P router, VPN routes with the PE
//! router, a session with a CE router in each VRF, protected by BFD. Routes go both ways, and frames follow them with the labels that were learned.
//!
//! `DROPHAMMER_VRFS=10,94` runs the test with these numbers of VRFs, one guest after the other, and `DROPHAMMER_VPN_ROUTES=100` with this
//! number of routes on each side of each VRF. The printed lines then contain the figures. `DROPHAMMER_MEMORY=316` is the memory of the
//! guest in MiB instead of the default.

use crate::common::{Memory, read_suite};
use drophammer_lab::Lab;
use drophammer_methods::vpns::{VpnSize, Vpns, VrfView, Way};
use drophammer_methods::{TestError, Testbed};
use drophammer_model::routes::Change;
use drophammer_model::size::{FrameSize, PacketSize};
use drophammer_model::trial::{Family, GroupCounts, Load, TrialSpec};
use drophammer_port::SystemClock;
use drophammer_rig::{Ports, Rig};
use drophammer_testbed::config::hosts_and_routers;
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::{Session, real};
use std::path::Path;
use std::time::{Duration, Instant};

/// Time limit for all sessions, in addition to [`PER_VRF`].
const UP: Duration = Duration::from_secs(60);
const PER_VRF: Duration = Duration::from_millis(500);
/// Time without any change after which the wait for routes ends.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time limit for the guest's kernel to have the routes that FRR has advertised.
const INSTALLED: Duration = Duration::from_secs(60);
/// Frames of each flow in a trial, and frames per second of each port.
const FRAMES: u64 = 20;
const RATE: f64 = 500.0;

/// Features of a case in addition to VRFs with IPv4.
#[derive(Clone, Copy, Default)]
struct More {
    /// BGP sessions of the ports, which end before the sessions of the VRFs begin.
    bgp: bool,
    /// IPv6 in the VRFs. The core has IPv4.
    ipv6: bool,
    /// A second site of each VRF behind a separate port, and a second core port.
    sites: bool,
}

impl More {
    fn families(self) -> &'static [Family] {
        if self.ipv6 { &[Family::Ipv4, Family::Ipv6] } else { &[Family::Ipv4] }
    }
}

fn suite(vrfs: u32, more: More) -> String {
    let (off, bgp) = (if more.ipv6 { "" } else { "ipv6: off, " }, if more.bgp { "bgp: {}\n" } else { "" });
    let more_ports = match more.sites {
        true => format!(
            "  - {{name: ce2, speed: 1 Gbit/s, {off}customers: {{count: {vrfs}, bfd: true}}, sites_of: ce}}\n  - {{name: core2, speed: 1 Gbit/s, {off}core: [ospf, ldp, bfd]}}\n"
        ),
        false => String::new(),
    };
    let memory = std::env::var("DROPHAMMER_MEMORY").map_or(String::new(), |mib| format!(", memory: {mib}"));
    format!(
        "suite: pe\nduts: [{{name: guest, kind: uml{memory}}}]\nports:\n  - {{name: core, speed: 1 Gbit/s, {off}core: [ospf, ldp, bfd]}}\n  \
         - {{name: ce, speed: 1 Gbit/s, {off}customers: {{count: {vrfs}, bfd: true}}}}\n{more_ports}tests: [throughput]\n{bgp}"
    )
}

/// Runs the test for each number of VRFs.
pub fn vpns(lab: &mut Lab, folder: &Path) -> Result<(), String> {
    each(lab, folder, More::default())
}

/// Like [`vpns`], but after BGP sessions of each port were up.
pub fn vpns_after_bgp(lab: &mut Lab, folder: &Path) -> Result<(), String> {
    each(lab, folder, More { bgp: true, ..More::default() })
}

/// Like [`vpns`], but also with IPv6. FRR passes VPN-IPv6 routes on in both directions and forwards to CE routers, but zebra refuses the routes of PE
/// routers, whose next hop is an IPv4-mapped address: frames to the core are printed and not judged.
pub fn vpns_with_ipv6(lab: &mut Lab, folder: &Path) -> Result<(), String> {
    each(lab, folder, More { ipv6: true, ..More::default() })
}

/// Like [`vpns`], but with two CE routers in each VRF, which also exchange frames.
pub fn vpns_with_two_sites(lab: &mut Lab, folder: &Path) -> Result<(), String> {
    each(lab, folder, More { sites: true, ..More::default() })
}

fn each(lab: &mut Lab, folder: &Path, more: More) -> Result<(), String> {
    let given = |key: &str, default: &str| std::env::var(key).unwrap_or_else(|_| default.to_owned());
    let number = |text: &str| text.trim().parse::<u32>().map_err(|_| format!("`{text}` is not a number"));
    let routes = number(&given("DROPHAMMER_VPN_ROUTES", "10"))?;
    for vrfs in given("DROPHAMMER_VRFS", "3").split(',') {
        let vrfs = number(vrfs)?;
        with(lab, folder, (vrfs, routes), more).map_err(|e| format!("{vrfs} VRFs: {e}"))?;
    }
    Ok(())
}

fn with(lab: &mut Lab, folder: &Path, (vrfs, routes): (u32, u32), more: More) -> Result<(), String> {
    let (suite, families) = (read_suite(&suite(vrfs, more)), more.families());
    let begun = Instant::now();
    let mut dut = real::bring_up(lab, &suite.duts[0], &suite, folder, &|| false).map_err(|e| e.to_string())?;
    let up = begun.elapsed();
    let clock = SystemClock::start();
    let open = real::open(lab, dut.interfaces(), &drophammer_port::INTERFACE_BACKENDS[0], 1, clock)?;
    let rig = Rig::new(Ports::real(open, clock, &[]), &hosts_and_routers(&suite.ports, families, suite.seed));
    let (mut session, mut memory) = (Session::new(suite.seed, suite.profile, 5), Memory::default());
    session.tolerance.host = drophammer_testbed::validity::HostTolerance::ANY;
    let mut setup = TestSetup::new("guest", &suite.ports, rig, dut.as_mut(), &mut session, &mut memory);
    let seen = setup
        .await_forwarding(families)
        .and_then(|()| if more.bgp { with_peers(&mut setup) } else { Ok(()) })
        .and_then(|()| routed(&mut setup, vrfs, routes, more))
        .map_err(|e| e.to_string());
    drop(setup);
    let (host, daemons) = super::peers::resident(dut.as_mut());
    dut.check().map_err(|e| e.to_string())?;
    let taken_down = real::take_down(dut, folder);
    let Seen { sessions, core_s, sessions_s, routes_s, installed_s } = seen?;
    println!(
        "    {vrfs} VRFs, {routes} routes on each side: ready in {:.1} s, core in {core_s:.1} s, {} sessions in {sessions_s:.1} s, all routes in \
         {routes_s:.1} s, all frames {installed_s:.1} s later; the guest's process has {host} MiB, {daemons}",
        up.as_secs_f64(),
        sessions,
    );
    taken_down?;
    super::nothing_left()
}

/// Brings up the BGP sessions of all ports.
fn with_peers(setup: &mut TestSetup<'_>) -> Result<(), TestError> {
    let routing = Testbed::routing(setup)?;
    let peers: Vec<_> = (0..routing.peers().len()).collect();
    routing.establish(&peers, UP).map(drop)
}

/// Times of the steps, in seconds.
struct Seen {
    sessions: u32,
    core_s: f64,
    sessions_s: f64,
    routes_s: f64,
    installed_s: f64,
}

/// Brings up sessions, exchanges routes in both directions, and sends frames to all of them. Then withdraws all routes.
fn routed(setup: &mut TestSetup<'_>, vrfs: u32, routes: u32, more: More) -> Result<Seen, TestError> {
    let families = more.families();
    // Each of two PE routers gets the routes of both sites. Each CE router gets the routes of the other CE router and of the
    // remote site.
    let seen_per_route = if more.sites { 8 } else { 2 };
    let failed = |what: String| TestError::Failed(what);
    let vpns: &mut dyn Vpns = setup;
    let size = VpnSize { vrfs, routes, families: families.to_vec() };
    let up = vpns.bring_up(&size, UP + PER_VRF * vrfs)?;
    vpns.change_all(Change::Advertise)?;
    let seen = vpns.await_routes(PATIENCE)?;
    if !seen.complete()
        || seen.present != seen_per_route * u64::from(vrfs * routes) * families.len() as u64
        || seen.leaked + seen.bfd_lost != 0
    {
        return Err(failed(format!("{seen:?}")));
    }
    let installed = Instant::now();
    // Advertised routes may not have reached the kernel yet.
    while let Some(lost) = incomplete(&trial(setup, routes, Family::Ipv4)?) {
        if installed.elapsed() > INSTALLED {
            return Err(failed(format!("after {} s: {lost}", INSTALLED.as_secs())));
        }
    }
    let installed_s = installed.elapsed().as_secs_f64();
    if more.ipv6 {
        let (to_core, others): (Vec<_>, Vec<_>) =
            trial(setup, routes, Family::Ipv6)?.into_iter().partition(|group| group.group.ends_with("ToCore"));
        for group in to_core {
            println!("    IPv6, {}: {} of {} frames arrived", group.group, group.received, group.offered);
        }
        if let Some(lost) = incomplete(&others) {
            return Err(failed(format!("IPv6: {lost}")));
        }
    }
    let vpns: &mut dyn Vpns = setup;
    vpns.change_all(Change::Withdraw)?;
    let gone = vpns.await_routes(PATIENCE)?;
    if !gone.complete() || gone.present + gone.lingering != 0 {
        return Err(failed(format!("withdrawn: {gone:?}")));
    }
    vpns.take_down()?;
    Ok(Seen {
        sessions: up.sessions,
        core_s: up.core_s,
        sessions_s: up.sessions_s,
        routes_s: seen.last_change_s,
        installed_s,
    })
}

/// The largest frames in both directions of every VRF, with a group of flows for each VRF.
fn trial(setup: &mut TestSetup<'_>, routes: u32, family: Family) -> Result<Vec<GroupCounts>, TestError> {
    let size = PacketSize::Fixed(FrameSize::Frame(1518));
    let vpns: &dyn Vpns = setup;
    let mut flows = Vec::new();
    for vrf in vpns.used() {
        for way in [Way::ToCore, Way::ToCustomers, Way::BetweenCustomers] {
            flows.extend(vpns.flows(vrf, way, family, 0..routes, &size, &group(vrf, way))?);
        }
    }
    let per_port = FRAMES * vpns.used().len() as u64;
    let spec = TrialSpec {
        purpose: "VPN traffic".into(),
        size,
        flows,
        load: Load::Burst { frames: per_port, rate_pps: RATE },
        duration_s: per_port as f64 / RATE,
        bin_s: None,
        drain_s: 1.0,
        events: Vec::new(),
    };
    Ok(Testbed::trial(setup, &spec)?.groups)
}

fn group(vrf: &VrfView, way: Way) -> String {
    format!("{} {way:?}", vrf.site_name())
}

/// The first group of flows that did not arrive completely, at the right place and in the right form.
fn incomplete(groups: &[GroupCounts]) -> Option<String> {
    let right = |g: &GroupCounts| {
        g.offered == FRAMES
            && g.received == FRAMES
            && g.deviations.is_empty()
            && g.stray + g.corrupted + g.duplicated == 0
    };
    groups.iter().find(|group| !right(group)).map(|group| format!("{group:?}"))
}
