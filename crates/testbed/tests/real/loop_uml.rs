//! A routing loop of four real routers (User Mode Linux), with policy routing and a GRE tunnel: packets to the looping
//! prefix circle until their TTL ends, and each router counts them at each interface and in the tunnel exactly as often
//! as they pass there. Ordinary traffic passes at the same time, and a link with a delay delays it.

use crate::anew::{Case, Checked};
use crate::common::{Memory, read_suite};
use drophammer_lab::kinds::uml;
use drophammer_lab::{Dut, Lab};
use drophammer_methods::{Testbed, Trial};
use drophammer_model::beside::{ExtraFrame, IcmpError, OtherTraffic};
use drophammer_model::router_interfaces::{InterfaceOf, RouterInterface};
use drophammer_model::size::{FrameSize, PacketSize};
use drophammer_model::topology::{LOOP_PREFIX, System};
use drophammer_model::traffic::{Ethernet, Header, Ipv4, Udp};
use drophammer_model::trial::{Family, FlowSpec, Load, TrialResult, TrialSpec};
use drophammer_port::{INTERFACE_BACKENDS, SystemClock};
use drophammer_rig::{Ports, Rig};
use drophammer_testbed::setup::TestSetup;
use drophammer_testbed::validity::HostTolerance;
use drophammer_testbed::{Session, config, real};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

/// Number of packets that circle.
const CIRCLING: u64 = 100;
/// Size of their frames and of ordinary frames, in bytes with FCS.
const FRAME: u16 = 256;
/// Size of the frame without FCS, as interfaces count it, and of the IP packet in it.
const COUNTED: u64 = FRAME as u64 - 4;
const PACKET: u64 = COUNTED - 14;
/// Number of bytes that the tunnel adds.
const TUNNEL: u64 = 24;
/// Number of ordinary frames from each port to the other.
const ORDINARY: u64 = 50;
/// Size of a time exceeded message. It must quote as much of the packet as RFC 1812 section 4.3.2.3 requires, here all
/// of it.
const ERROR: u64 = 14 + 20 + 8 + PACKET;
/// Counters must have their expected values within this time after a trial.
const SETTLED: Duration = Duration::from_secs(10);
/// Delay of the link in the middle, in the second system.
const DELAY: Duration = Duration::from_millis(60);
/// Tolerance for the least delay of frames that pass four guests on one busy processor.
const OWN: Duration = Duration::from_millis(40);

fn text<E: ToString>(e: E) -> String {
    e.to_string()
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}

/// Counters of core interfaces and tunnels: packets in, packets out, octets in, octets out.
type Counts = BTreeMap<(usize, InterfaceOf), [u64; 4]>;

fn is_core(system: &System, router: usize, at: InterfaceOf) -> bool {
    match at {
        InterfaceOf::Interface(interface) => interface >= system.routers[router].ports.len(),
        InterfaceOf::Tunnel(_) => true,
    }
}

/// Counters of the core. The tester's ports are left out, because the devices also send their own frames there.
fn counts(system: &System, all: &[RouterInterface]) -> Counts {
    let core = all.iter().filter(|i| is_core(system, i.router, i.at));
    core.map(|i| ((i.router, i.at), [i.in_packets, i.out_packets, i.in_bytes, i.out_bytes])).collect()
}

fn add(to: &mut Counts, router: usize, at: InterfaceOf, out: bool, packets: u64, bytes: u64) {
    let count = to.entry((router, at)).or_default();
    count[usize::from(out)] += packets;
    count[2 + usize::from(out)] += packets * bytes;
}

/// Adds `packets` packets of `bytes` each that follow the routes from router to router.
fn add_way(to: &mut Counts, system: &System, from: usize, end: usize, packets: u64, bytes: u64) -> Checked {
    let mut at = from;
    while at != end {
        let next = if end > at { at + 1 } else { at - 1 };
        let leads = |link: &&drophammer_model::topology::CoreLink| link.beyond(at) == Some(next);
        let link = system.links.iter().find(leads).ok_or("no link")?;
        let [Some(own), Some(other)] = [link.end_at(at), link.end_at(next)] else { return Err("no ends".into()) };
        add(to, at, InterfaceOf::Interface(own.interface), true, packets, bytes);
        add(to, next, InterfaceOf::Interface(other.interface), false, packets, bytes);
        at = next;
    }
    Ok(())
}

/// Adds the frames of `packets` packets with this TTL that enter through `port`: their own way around the loop, and the
/// way of the returned errors.
fn add_circle(to: &mut Counts, system: &System, port: usize, ttl: u8, packets: u64) -> Checked {
    let (cycle, passes) = system.cycle().zip(system.passes(port, ttl)).ok_or("no loop")?;
    let entry = system.edge(port).ok_or("no such port")?.0;
    for (at, (hop, times)) in cycle.iter().zip(&passes).enumerate() {
        let next = &cycle[(at + 1) % cycle.len()];
        let (sent, bytes) = (times * packets, if hop.to_tunnel { COUNTED + TUNNEL } else { COUNTED });
        add(to, hop.router, InterfaceOf::Interface(hop.to), true, sent, bytes);
        add(to, next.router, InterfaceOf::Interface(next.from), false, sent, bytes);
        if hop.to_tunnel {
            ensure(next.from_tunnel, || "a tunnel ends where it begins".into())?;
            add(to, hop.router, InterfaceOf::Tunnel(0), true, sent, PACKET);
            add(to, next.router, InterfaceOf::Tunnel(0), false, sent, PACKET);
        }
    }
    let first = cycle.iter().position(|hop| hop.router == entry).ok_or("the entry is not in the loop")?;
    let last = &cycle[(first + usize::from(ttl) - 1) % cycle.len()];
    add_way(to, system, last.router, entry, packets, ERROR)
}

/// A packet with this TTL to the looping prefix.
fn circling(setup: &TestSetup<'_>, port: usize, ttl: u8, number: u64) -> Result<ExtraFrame, String> {
    let own = setup.ports()[port].ipv4.as_ref().ok_or("no IPv4")?;
    let IpAddr::V4(source) = own.destinations.first else { return Err("no IPv4".into()) };
    let target = Ipv4Addr::from(u32::from(LOOP_PREFIX.0) + 1 + number as u32);
    let ip = Ipv4 { source: Some(source.into()), destination: Some(target.into()), ttl: ttl.into(), ..Ipv4::default() };
    Ok(ExtraFrame {
        port,
        at: Duration::from_micros(2_000 * number),
        headers: vec![Header::Ethernet(Ethernet::default()), Header::Ipv4(ip), Header::Udp(Udp::default())],
        size: FrameSize::Frame(FRAME),
        inverted: Vec::new(),
        unpadded: false,
    })
}

/// Ordinary traffic between the two ports, in both directions. The trial waits `drain_s` seconds for late frames.
fn ordinary(setup: &TestSetup<'_>, drain_s: f64) -> Result<TrialSpec, String> {
    let mut flows = Vec::new();
    for (from, to) in [(0, 1), (1, 0)] {
        let [a, b] = [from, to].map(|port| setup.ports()[port].ipv4.as_ref().map(|a| a.destinations));
        let (a, b) = a.zip(b).ok_or("no IPv4")?;
        flows.push(FlowSpec::new(format!("{from} to {to}"), from, to, a, b));
    }
    Ok(TrialSpec {
        purpose: "loop".into(),
        size: PacketSize::Fixed(FrameSize::Frame(FRAME)),
        flows,
        load: Load::Burst { frames: ORDINARY, rate_pps: 200.0 },
        duration_s: 0.0,
        bin_s: None,
        drain_s,
        events: Vec::new(),
    })
}

fn read(setup: &mut TestSetup<'_>) -> Result<Vec<RouterInterface>, String> {
    setup.bench().device.router_interfaces().map_err(text)?.ok_or_else(|| "no counters of interfaces".into())
}

/// Waits until the counters have increased by exactly the expected amount.
fn await_counts(setup: &mut TestSetup<'_>, system: &System, before: &Counts, expected: &Counts) -> Checked {
    let deadline = Instant::now() + SETTLED;
    loop {
        let now = counts(system, &read(setup)?);
        let wrong = now.iter().filter_map(|(place, count)| {
            let before = before.get(place).copied().unwrap_or_default();
            let grown: [u64; 4] = std::array::from_fn(|i| count[i].wrapping_sub(before[i]));
            let wanted = expected.get(place).copied().unwrap_or_default();
            let (router, at) = place;
            (grown != wanted).then(|| format!("r{} {at}: {grown:?}, not {wanted:?}", router + 1))
        });
        let wrong: Vec<_> = wrong.collect();
        if wrong.is_empty() {
            return ensure(expected.keys().all(|place| now.contains_key(place)), || "counters are missing".into());
        }
        ensure(Instant::now() < deadline, || wrong.join("; "))?;
        setup.settle(Duration::from_millis(50)).map_err(text)?;
    }
}

/// Sends circling packets with this TTL, and ordinary packets at the same time. The longer the way, the longer it waits
/// for answers: 2 s with the highest TTL.
fn send(setup: &mut TestSetup<'_>, port: usize, ttl: u8) -> Result<(TrialResult, OtherTraffic), String> {
    let spec = ordinary(setup, 1.0 + f64::from(ttl) / 255.0)?;
    let extra = (0..CIRCLING).map(|number| circling(setup, port, ttl, number)).collect::<Result<Vec<_>, _>>()?;
    let seen = setup.run(&Trial { extra: Some(extra), ..Trial::new(spec) }).map_err(text)?;
    Ok((seen.result, seen.other.ok_or("no other traffic was observed")?))
}

/// Checks that packets with this TTL circle, and that ordinary packets pass.
fn circles(setup: &mut TestSetup<'_>, system: &System, port: usize, ttl: u8) -> Checked {
    let before = counts(system, &read(setup)?);
    let cpu =
        setup.bench().device.usage().and_then(|usage| usage.router_cpu()).ok_or("no processor time of each router")?;
    let (result, other) = send(setup, port, ttl)?;
    for group in &result.groups {
        ensure((group.offered, group.received) == (ORDINARY, ORDINARY), || format!("ordinary traffic: {group:?}"))?;
    }
    let mut expected = Counts::new();
    add_circle(&mut expected, system, port, ttl, CIRCLING)?;
    for (from, to) in [(0, 3), (3, 0)] {
        add_way(&mut expected, system, from, to, ORDINARY, COUNTED)?;
    }
    await_counts(setup, system, &before, &expected).map_err(|e| format!("TTL {ttl} from port {port}: {e}"))?;
    let exceeded = IcmpError { family: Family::Ipv4, kind: 11, code: 0 };
    let answered = other.extra.iter().filter(|fate| fate.errors == BTreeMap::from([(exceeded, 1)]));
    let answered = answered.count() as u64;
    ensure(answered == CIRCLING, || format!("{answered} of {CIRCLING} packets with TTL {ttl} were answered"))?;
    let arrived: u32 = other.extra.iter().map(|fate| fate.arrived).sum();
    ensure(arrived == 0, || format!("{arrived} packets left the loop"))?;
    let now =
        setup.bench().device.usage().and_then(|usage| usage.router_cpu()).ok_or("no processor time of each router")?;
    ensure(now.len() == 4 && now.iter().zip(&cpu).all(|(now, before)| now > before), || format!("{cpu:?}, {now:?}"))
}

/// Checks that the counters by name include the tunnel and the drops of queues.
fn tells(dut: &mut dyn Dut, delayed: bool) -> Checked {
    let counters = dut.counters().map_err(text)?;
    let has = |name: &&str| counters.contains_key(*name);
    let names =
        ["r2.gre1.tx_packets", "r3.gre1.rx_bytes", "r3.d2.rx_packets", "r4.d0.tx_packets", "r3.d0.queue_dropped"];
    ensure(names.iter().all(has), || format!("{:?}", counters.keys()))?;
    let delays: Vec<_> = counters.keys().filter(|name| name.ends_with(".delay_dropped")).collect();
    let expected: &[&str] = if delayed { &["r2.d2.delay_dropped", "r3.d0.delay_dropped"] } else { &[] };
    ensure(delays == expected, || format!("{delays:?}"))?;
    let dropped: u64 = counters.iter().filter(|(name, _)| name.ends_with("_dropped")).map(|(_, n)| *n).sum();
    ensure(dropped == 0, || format!("{dropped} frames were dropped: {counters:?}"))?;
    let tunnel = dut.record().config.get("r3/policies.ip").cloned().unwrap_or_default();
    ensure(tunnel.contains("type gre") && tunnel.contains("iif d2"), || tunnel.clone())
}

/// The least latency of ordinary traffic in each direction.
fn least_latency(setup: &mut TestSetup<'_>) -> Result<Vec<Duration>, String> {
    let spec = ordinary(setup, 2.0)?;
    let result = setup.trial(&spec).map_err(text)?;
    Ok(result.groups.iter().map(|group| Duration::from_nanos(group.latency.min_ns)).collect())
}

fn system(lab: &mut Lab, topology: &str, delayed: bool) -> Checked {
    let folder = tempfile::tempdir().map_err(text)?;
    let suite = read_suite(&format!(
        "suite: loop\nseed: 11\nduts: [{{name: sut, kind: uml, routing: static, memory: 128, topology: {topology}}}]\n\
         ports:\n  - {{name: p1, speed: 100 Mbit/s, ipv6: off}}\n  - {{name: p2, speed: 100 Mbit/s, ipv6: off}}\n\
         tests: [latency]\n"
    ));
    let mut dut = real::bring_up(lab, &suite.duts[0], &suite, folder.path(), &|| false).map_err(text)?;
    let system = dut.system().cloned().ok_or("no system")?;
    let (clock, interfaces) = (SystemClock::start(), dut.interfaces().to_vec());
    let backend = INTERFACE_BACKENDS.iter().find(|backend| backend.spec.name == "af_packet").ok_or("no backend")?;
    let open = real::open(lab, &interfaces, backend, 1, clock)?;
    let rig = Rig::new(Ports::real(open, clock, &[]), &config::hosts(&suite.ports, &[Family::Ipv4], suite.seed));
    let mut session = Session::new(suite.seed, suite.profile, u64::from(std::process::id()));
    session.tolerance.host = HostTolerance::ANY;
    let mut memory = Memory::default();
    let mut setup = TestSetup::new("sut", &suite.ports, rig, &mut *dut, &mut session, &mut memory);
    setup.await_forwarding(&[Family::Ipv4]).map_err(text)?;
    let checked = (|| {
        // For the first packets each router resolves the neighbours of the loop, so the counters contain ARP.
        send(&mut setup, 0, 13)?;
        circles(&mut setup, &system, 0, 13)?;
        let all: &[(usize, u8)] = if delayed { &[(1, 7)] } else { &[(0, 64), (1, 64), (0, 255), (1, 2)] };
        all.iter().try_for_each(|(port, ttl)| circles(&mut setup, &system, *port, *ttl))?;
        let latency = least_latency(&mut setup)?;
        println!("    {topology}: least latency {latency:?}");
        let least = if delayed { DELAY } else { Duration::ZERO };
        ensure(latency.iter().all(|one| (least..least + OWN).contains(one)), || format!("latency {latency:?}"))
    })();
    drop(setup);
    checked?;
    tells(&mut *dut, delayed)?;
    dut.check().map_err(text)?;
    dut.take_down().map_err(text)
}

/// The test.
pub fn cases() -> Vec<Case> {
    let all = |lab: &mut Lab| {
        system(lab, "{loop: 4}", false)?;
        let wan = format!(
            "{{loop: 4, core_speed: 100 Mbit/s, wan_speed: 44.21 Mbit/s, wan_delay: {} ms}}",
            DELAY.as_millis()
        );
        system(lab, &wan, true)
    };
    vec![Case::in_lab("packets_go_around_a_loop_of_real_routers", all).again().long().unless(uml::unfit_processor())]
}
