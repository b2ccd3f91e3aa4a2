//! The cases, and how their figures are printed.

use crate::codec::{self, Codec};
use crate::common::read_suite;
use crate::worlds::{Device, World, seconds, with_world};
use crate::{on_processor_s, status_mib};
use drophammer_methods::igp::IgpPlan;
use drophammer_methods::vpns::VpnSize;
use drophammer_methods::{LspPlan, Testbed};
use drophammer_model::Instant;
use drophammer_model::label_edge::CoreProtocol;
use drophammer_model::routes::{Change, RouteAction};
use drophammer_model::trial::Family;
use drophammer_reference::BfdTruth;
use drophammer_rig::Until;
use drophammer_testbed::setup::TestSetup;
use drophammer_wire::bgp::AfiSafi;
use std::time::Duration;

/// A case by its name, for a share of its numbers.
pub type Case = fn(World, f64);

/// All cases.
pub const CASES: [(&str, Case); 6] = [
    ("sessions", |world, scale| sessions(world, scale, Duration::ZERO)),
    ("sessions-stalled", |world, scale| sessions(world, scale, STALL)),
    ("routes", routes),
    ("lsps", |world, scale| lsps(world, scale, false)),
    ("lsps-reduced", |world, scale| lsps(world, scale, true)),
    ("lsas", lsas),
];

/// How long the tester does nothing in `sessions-stalled`.
const STALL: Duration = Duration::from_secs(5);

/// Time limit of each step.
const WITHIN: Duration = Duration::from_secs(600);

/// Processor time, time and memory since a step began.
struct Step {
    world: World,
    at: Instant,
    tester_s: f64,
    device_s: f64,
    mib: f64,
}

impl Step {
    fn begin(world: World, bed: &mut TestSetup<'_>, device: &dyn Device) -> Step {
        let (at, mib) = (bed.rig().now(), status_mib("VmRSS"));
        Step { world, at, tester_s: on_processor_s(), device_s: device.processor_s(), mib }
    }

    /// Prints what the step took, for each of `count` things. `codec_s` is what the codec alone takes for the tester's messages; 0 if
    /// nothing is to be compared.
    fn end(self, bed: &mut TestSetup<'_>, device: &dyn Device, what: &str, (count, unit): (u64, &str), codec_s: f64) {
        let tester_s = on_processor_s() - self.tester_s;
        let device_s = device.processor_s() - self.device_s;
        let (took_s, mib) = (seconds(self.at, bed.rig().now()), status_mib("VmRSS") - self.mib);
        let whose = if self.world == World::Virtual { "tester and device" } else { "tester" };
        let ratio = if codec_s > 0.0 { format!(", {:.1} times the codec", tester_s / codec_s) } else { String::new() };
        println!(
            "{:8} {what}: {took_s:.2} s; processor {tester_s:.2} s ({whose}), {:.2} us per {unit}{ratio}; device {device_s:.2} s; memory \
             {mib:+.1} MiB, {:.2} KiB per {unit}",
            self.world.name(),
            tester_s * 1e6 / count as f64,
            mib * 1024.0 / count as f64
        );
    }
}

fn scaled(number: u32, scale: f64) -> u32 {
    ((f64::from(number) * scale) as u32).max(1)
}

/// VRFs with this number of IPv4 routes at each site.
fn size(vrfs: u32, routes: u32) -> VpnSize {
    VpnSize { vrfs, routes, families: vec![Family::Ipv4] }
}

/// Serves the emulated routers for this long.
fn hold(bed: &mut TestSetup<'_>, time: Duration) {
    let end = bed.rig().now() + time;
    bed.rig().serve(&Until::At(end), &|| false).unwrap_or_else(|e| panic!("{e}"));
}

/// Does nothing for this long, as if the host had no processor for the tester.
fn stall(bed: &mut TestSetup<'_>, time: Duration) {
    let ports = bed.rig().parts().0;
    let end = ports.clock().now() + time;
    while ports.clock().now() < end {
        ports.clock_mut().wait(end);
    }
}

/// `customers` CE routers on each of `ports` ports, and as many core ports.
fn pe_suite(ports: usize, customers: &str) -> String {
    let customer = |n: usize| format!("  - {{name: c{n}, speed: 10 Gbit/s, ipv6: off, customers: {customers}}}\n");
    let core = |n: usize| format!("  - {{name: n{n}, speed: 10 Gbit/s, ipv6: off, mtu: 1600, core: [ospf, ldp]}}\n");
    let ports: String = (1..=ports).map(customer).chain((1..=ports).map(core)).collect();
    format!("suite: scale\nduts: [{{name: known, kind: reference}}]\nports:\n{ports}tests: [vpn_scale]\n")
}

/// CE routers with BGP, a VLAN and BFD: the way to all sessions, and the time with them. At first, the tester does nothing for `stalled`.
fn sessions(world: World, scale: f64, stalled: Duration) {
    const SETTLE: Duration = Duration::from_secs(5);
    const HOLD: Duration = Duration::from_secs(30);
    let each = scaled(94, scale);
    let suite = read_suite(&pe_suite(16, &format!("{{count: {each}, bfd: true}}")));
    let count = u64::from(16 * each);
    // Before there are sessions: they must not wait for it.
    let codec = codec::bfd();
    with_world(world, &suite, |bed, device| {
        let step = Step::begin(world, bed, device);
        let up =
            bed.vpns().and_then(|vpns| vpns.bring_up(&size(count as u32, 1), WITHIN)).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(u64::from(up.sessions), count + 16);
        step.end(bed, device, &format!("{count} CE routers up, BGP and BFD"), (count, "CE router"), 0.0);
        hold(bed, SETTLE);
        bed.rig().forget_late();
        let step = Step::begin(world, bed, device);
        let before = bfd_packets(bed);
        stall(bed, stalled);
        hold(bed, HOLD);
        let after = bfd_packets(bed);
        let (sent, received) = (after.0 - before.0, after.1 - before.1);
        let codec_s = codec.write_s * sent as f64 + codec.parse_s * received as f64;
        let after_stall = match stalled.as_secs() {
            0 => String::new(),
            some => format!(" after {some} s in which the tester did nothing"),
        };
        let what =
            format!("{} s with them{after_stall}, {sent} BFD packets sent and {received} received", HOLD.as_secs());
        step.end(bed, device, &what, (sent + received, "packet"), codec_s);
        let seen = bed.vpns().unwrap_or_else(|e| panic!("{e}")).seen();
        let lost = seen.lost_since(&drophammer_methods::vpns::VpnRoutesSeen::default());
        let truth = device.truth().vrf_bfd;
        if world == World::Virtual {
            let ended = if stalled.is_zero() { 0 } else { count };
            assert_eq!((truth.up, truth.downs, seen.bfd_not_judged), (count, ended, ended), "{lost:?}");
            assert_eq!((seen.bfd_lost, seen.sessions_lost), (0, 0), "{lost:?}");
        }
        let lost = if lost.is_empty() { String::new() } else { format!(": {}", lost.join("; ")) };
        let late = (0..16).map(|port| bed.rig().hosts().late(port)).max().unwrap_or_default().as_secs_f64() * 1e3;
        let (name, BfdTruth { up, downs, .. }) = (world.name(), truth);
        println!(
            "{name:8} {up} sessions are up at the device, {downs} times one went down{lost}; the latest poll came {late:.1} ms late"
        );
    });
}

/// BFD packets that the CE routers have sent and received.
fn bfd_packets(bed: &mut TestSetup<'_>) -> (u64, u64) {
    let rig = bed.rig();
    let mut sum = (0, 0);
    for port in 0..16 {
        let devices = (1..).map_while(|device| rig.hosts().device(port, device));
        for bfd in devices.filter_map(|device| device.protocol::<drophammer_emulation::bfd::Bfd>()) {
            let state = drophammer_emulation::protocol::Protocol::state(bfd);
            sum = (sum.0 + state.counter("packets_sent"), sum.1 + state.counter("packets_received"));
        }
    }
    sum
}

/// VPN routes: half of them behind CE routers, half at remote sites, all verified at the other end.
fn routes(world: World, scale: f64) {
    const VRFS: u32 = 80;
    let per_site = scaled(5_000, scale);
    let suite = read_suite(&pe_suite(1, &VRFS.to_string()));
    let count = u64::from(2 * VRFS * per_site);
    let (plain, vpn) = (codec::route(AfiSafi::IPV4_UNICAST), codec::route(AfiSafi::VPNV4));
    let all = |codec: Codec| (codec.write_s + codec.parse_s) * (count / 2) as f64;
    with_world(world, &suite, |bed, device| {
        let vpns = bed.vpns().unwrap_or_else(|e| panic!("{e}"));
        vpns.bring_up(&size(VRFS, per_site), WITHIN).unwrap_or_else(|e| panic!("{e}"));
        let step = Step::begin(world, bed, device);
        let vpns = bed.vpns().unwrap_or_else(|e| panic!("{e}"));
        vpns.change_all(Change::Advertise).unwrap_or_else(|e| panic!("{e}"));
        let seen = vpns.await_routes(WITHIN).unwrap_or_else(|e| panic!("{e}"));
        assert!(seen.complete() && seen.present == count, "{seen:?}");
        let what = format!("{count} VPN routes advertised and verified");
        step.end(bed, device, &what, (count, "route"), all(plain) + all(vpn));
    });
}

/// LSPs through the device: the way to all of them, and some refresh periods with them.
fn lsps(world: World, scale: f64, refresh_reduction: bool) {
    let count = scaled(100_000, scale);
    // Real time takes its time, so there the period is half as long, and two of them are enough.
    let (refresh, periods) = match world {
        World::Virtual => (Duration::from_secs(30), 3.5),
        World::Memory => (Duration::from_secs(15), 2.0),
    };
    let text = format!(
        "suite: scale\nduts: [{{name: known, kind: reference, rsvp_refresh_reduction: {refresh_reduction}}}]\nports:\n  \
         - {{name: n1, speed: 10 Gbit/s, ipv6: off, core: [rsvp]}}\n  - {{name: n2, speed: 10 Gbit/s, ipv6: off, core: [rsvp]}}\n\
         tests: [lsp_capacity]\n"
    );
    let suite = read_suite(&text);
    let codec = codec::rsvp();
    let kind = if refresh_reduction { "with" } else { "without" };
    with_world(world, &suite, |bed, device| {
        let step = Step::begin(world, bed, device);
        let ends = bed.lsps().unwrap_or_else(|e| panic!("{e}"));
        let plan = LspPlan { ingress: 0, egress: 1, count, refresh, refresh_reduction };
        ends.begin(&plan).unwrap_or_else(|e| panic!("{e}"));
        let before = ends.signalling();
        ends.set_up(0..count, 0).unwrap_or_else(|e| panic!("{e}"));
        let up = ends.await_up(count, WITHIN).unwrap_or_else(|e| panic!("{e}"));
        let after = ends.signalling();
        assert!(up, "not all LSPs are up: {:?}", ends.errors());
        let messages = [0, 1].map(|way| after.messages[way] - before.messages[way]);
        let codec_s = codec.write_s * messages[0] as f64 + codec.parse_s * messages[1] as f64;
        let what = format!("{count} LSPs up {kind} refresh reduction, {} messages", messages[0] + messages[1]);
        step.end(bed, device, &what, (count.into(), "LSP"), codec_s);
        let time = refresh.mul_f64(periods);
        let step = Step::begin(world, bed, device);
        let before = bed.lsps().unwrap_or_else(|e| panic!("{e}")).signalling();
        hold(bed, time);
        let ends = bed.lsps().unwrap_or_else(|e| panic!("{e}"));
        let after = ends.signalling();
        let kept = (0..count).filter(|lsp| ends.up(*lsp).is_some()).count();
        assert_eq!((kept, ends.errors()), (count as usize, Vec::new()));
        let messages = [0, 1].map(|way| after.messages[way] - before.messages[way]);
        // A summary refresh is no Path and no Resv.
        let codec_s = codec.write_s * messages[0] as f64 + codec.parse_s * messages[1] as f64;
        let period_s = refresh.as_secs();
        let what = format!(
            "{:.0} s with them at a period of {period_s} s, {} messages",
            time.as_secs_f64(),
            messages[0] + messages[1]
        );
        let codec_s = if refresh_reduction { 0.0 } else { codec_s };
        step.end(bed, device, &what, (count.into(), "LSP"), codec_s);
    });
}

/// AS-external-LSAs from one P router, through the device to another one.
fn lsas(world: World, scale: f64) {
    let count = scaled(10_000, scale);
    let text = "suite: scale\nduts: [{name: known, kind: reference}]\nports:\n  - {name: n1, speed: 10 Gbit/s, ipv6: off, core: [ospf]}\n  \
                - {name: n2, speed: 10 Gbit/s, ipv6: off, core: [ospf]}\ntests: [igp_convergence]\n";
    let suite = read_suite(text);
    let codec = codec::external();
    with_world(world, &suite, |bed, device| {
        let step = Step::begin(world, bed, device);
        let igp = bed.igp().unwrap_or_else(|e| panic!("{e}"));
        let plan = IgpPlan { prefixes: count, behind: vec![0], ldp: false };
        igp.start(&plan, WITHIN).unwrap_or_else(|e| panic!("{e}"));
        let (protocol, change) = (CoreProtocol::Ospf, Change::Advertise);
        let act = RouteAction::Igp { port: 0, protocol, change, part: 0..count };
        igp.act(&act).unwrap_or_else(|e| panic!("{e}"));
        let settled = igp.await_settled(WITHIN).unwrap_or_else(|e| panic!("{e}"));
        assert!(settled, "the device has not acknowledged all LSAs");
        let have = |bed: &mut TestSetup<'_>| bed.rig().hosts().device(1, 0)?.protocol().map(received);
        let end = bed.rig().now() + WITHIN;
        while have(bed).unwrap_or(0) < u64::from(count) && bed.rig().now() < end {
            hold(bed, Duration::from_millis(10));
        }
        assert!(have(bed).unwrap_or(0) >= u64::from(count), "{:?} LSAs at the other end", have(bed));
        let codec_s = (codec.write_s + codec.parse_s) * f64::from(count);
        let what = format!("{count} LSAs flooded through the device");
        step.end(bed, device, &what, (count.into(), "LSA"), codec_s);
        let step = Step::begin(world, bed, device);
        hold(bed, Duration::from_secs(10));
        step.end(bed, device, "10 s with them", (count.into(), "LSA"), 0.0);
    });
}

/// LSAs of other routers in the database of a router.
fn received(ospf: &drophammer_emulation::ospf::Ospf) -> u64 {
    drophammer_emulation::protocol::Protocol::state(ospf).counter("lsas_learned")
}
