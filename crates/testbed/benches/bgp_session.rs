//! How fast an emulated router sends its routes, and how fast another one verifies them, in the loop that serves them in tests.
//!
//! - Into a kernel over a veth pair: UPDATEs through an AF_PACKET port, from the first until the reader in the other namespace has them, who
//!   speaks just enough BGP and throws them away; against the kernel's own TCP without segmentation offload (one frame per segment, as
//!   ours) and as many bytes. Alternating, medians, and the ratio.
//! - Into another emulated router over the loop of the tester's ceiling: sent *and* verified.
//! - `into`: the first of these alone.
//! - `memory`: what 1,000,000 IPv4 and 500,000 IPv6 routes, sent and verified within this process, add to the memory in RAM at most.
//! - `ten_million`: 10,000,000 IPv4 routes, the same way.
//!
//! `cargo bench -p drophammer-testbed --bench bgp_session [-- into|memory|ten_million]`; the lab needs a user namespace or root.

#[path = "../tests/common/mod.rs"]
mod common;
mod kernel;
#[path = "../tests/common/wired.rs"]
mod wired;

use drophammer_emulation::bgp::{Packing, PeerConfig};
use drophammer_lab::{Lab, LabOptions, Netns};
use drophammer_model::routes::{AttributePattern, GroupSizes, RouteRange, Routes};
use drophammer_model::suite::Suite;
use drophammer_model::trial::Family;
use drophammer_port::af_packet::AfPacket;
use drophammer_port::{INTERFACE_BACKENDS, SystemClock};
use drophammer_rig::{Action, Ports, Rig, Select, Until};
use drophammer_testbed::config::{hosts, joined_in_pairs};
use drophammer_testbed::{real, route_ceiling};
use kernel::{Outcome, median, text};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: usize = 11;
const ROUTES: u32 = 1_000_000;
const PER_UPDATE: [u32; 2] = [500, 5];
const LIMIT: Duration = Duration::from_secs(20);
const SEED: u64 = 11;
const SUITE: &str = "suite: session\nprofile: quick\nseed: 11\nduts:\n  - {name: box, kind: bird}\nbgp: {}\n\
                     ports:\n  - {name: p1, speed: 10 Gbit/s}\n  - {name: p2, speed: 10 Gbit/s}\ntests:\n  - bgp_table_capacity\n";

/// Messages of the kernel's side of a session: an OPEN (RFC 4271 section 4.2) with IPv4 unicast (RFC 4760) and its
/// 4-octet AS number (RFC 6793), and a KEEPALIVE.
fn open(asn: u32, id: Ipv4Addr) -> Vec<u8> {
    let mut capabilities = vec![1, 4, 0, 1, 0, 1, 65, 4];
    capabilities.extend(asn.to_be_bytes());
    let mut message = vec![0xff; 16];
    message.extend((29 + 2 + capabilities.len() as u16).to_be_bytes());
    message.extend([1, 4]);
    message.extend(u16::try_from(asn).unwrap_or(23_456).to_be_bytes());
    message.extend([0, 90]);
    message.extend(id.octets());
    message.extend([2 + capabilities.len() as u8, 2, capabilities.len() as u8]);
    message.extend(capabilities);
    message.extend([0xff; 16]);
    message.extend([0, 19, 4]);
    message
}

/// Sends `greeting` and reads until the end; returns the number of bytes, and when the last one arrived.
fn sink(listener: &TcpListener, greeting: &[u8]) -> Outcome<(usize, Instant)> {
    let mut stream = listener.accept().map_err(text)?.0;
    stream.write_all(greeting).map_err(text)?;
    let (mut buffer, mut total, mut last) = (vec![0; 256 << 10], 0, Instant::now());
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return Ok((total, last)),
            Ok(n) => (total, last) = (total + n, Instant::now()),
        }
    }
}

struct Bench {
    suite: Suite,
    peer: Netns,
    /// Addresses of the emulated router and of the kernel.
    router: Ipv4Addr,
    kernel: Ipv4Addr,
}

impl Bench {
    /// `b0` here, `d0` with the DUT's address in a separate namespace; the kernel here has an address too, for its own stream.
    fn new(lab: &Lab) -> Outcome<Bench> {
        let suite = common::read_suite(SUITE);
        let a = suite.ports[0].addressing(Family::Ipv4).ok_or("no IPv4")?;
        let (IpAddr::V4(router), IpAddr::V4(kernel)) = (a.host, a.dut) else { return Err("family".into()) };
        let peer = lab.namespace("peer").map_err(text)?;
        let own = Ipv4Addr::from_bits(router.to_bits() + 100);
        let ours = [
            format!("link add b0 type veth peer name d0 netns {}", peer.path()),
            "link set b0 addrgenmode none up".to_owned(),
            format!("addr add {own}/{} dev b0", a.prefix_len),
        ];
        lab.tester().and_then(|t| t.ip(&ours)).map_err(text)?;
        let theirs =
            ["link set d0 addrgenmode none up".to_owned(), format!("addr add {kernel}/{} dev d0", a.prefix_len)];
        peer.ip(&theirs).map_err(text)?;
        let off = Command::new("ethtool").args(["-K", "b0", "tso", "off", "gso", "off"]).output().map_err(text)?;
        if !off.status.success() {
            return Err(String::from_utf8_lossy(&off.stderr).into_owned());
        }
        Ok(Bench { suite, peer, router, kernel })
    }

    fn listen(&self) -> Outcome<TcpListener> {
        self.peer.run(|| TcpListener::bind((self.kernel, 179))).map_err(text)?.map_err(text)
    }

    /// Seconds until the reader has all routes, and the bytes of their messages.
    fn ours(&self, routes: &Arc<Routes>) -> Outcome<(f64, usize)> {
        let config = &self.suite.ports[0];
        let bgp = config.bgp.as_ref().ok_or("no BGP")?;
        let (listener, greeting) = (self.listen()?, open(bgp.dut_as, self.kernel));
        let reader = thread::spawn(move || sink(&listener, &greeting));
        let clock = SystemClock::start();
        let port = AfPacket::open("b0", clock).map_err(text)?;
        let ports = Ports::real(vec![Box::new(port)], clock, &[]);
        let peer = PeerConfig {
            hold: bgp.hold,
            ..PeerConfig::new(self.router.into(), self.kernel.into(), bgp.asn, bgp.dut_as, self.router)
        };
        let mut config = hosts(&self.suite.ports[..1], &[Family::Ipv4], SEED);
        config.ports[0].devices[0].add_bgp([peer]);
        let mut rig = Rig::new(ports, &config);
        let until = |rig: &mut Rig, what: &str, condition: Until| {
            let end = rig.now() + LIMIT;
            rig.serve(&condition.clone().or_at(end), &|| false).map_err(text)?;
            if rig.holds(&condition) { Ok(()) } else { Err(format!("not {what} within {LIMIT:?}")) }
        };
        until(&mut rig, "resolved", Until::Resolved)?;
        rig.protocols(Select::All, Action::Start);
        until(&mut rig, "established", Until::All(vec![Until::Established(vec![0]), Until::Acknowledged(vec![0])]))?;
        let begun = Instant::now();
        let (routers, router) = rig.session_mut(0).ok_or("no routers")?;
        routers.adj_rib_out(router).advertise(routes.clone(), 0..routes.len(), Packing::default());
        until(&mut rig, "sent", Until::Acknowledged(vec![0]))?;
        rig.protocols(Select::All, Action::Stop);
        until(&mut rig, "ended", Until::Idle(vec![0]))?;
        let (routers, router) = rig.session(0).ok_or("no routers")?;
        let sent = routers.advertised(router);
        let end = rig.now() + LIMIT;
        rig.serve(&Until::At(end), &|| reader.is_finished()).map_err(text)?;
        if !reader.is_finished() {
            return Err(format!("not closed within {LIMIT:?}"));
        }
        let (read, done) = reader.join().map_err(|_| "panicked")??;
        if sent.advertised != u64::from(routes.len()) || (read as u64) < sent.bytes {
            return Err(format!("{sent:?}, {read} bytes were read"));
        }
        Ok(((done - begun).as_secs_f64(), sent.bytes as usize))
    }

    /// Seconds in which the kernel's own TCP transfers as many bytes.
    fn kernel(&self, bytes: usize) -> Outcome<f64> {
        let listener = self.listen()?;
        let reader = thread::spawn(move || sink(&listener, &[]));
        let begun = kernel::send(self.kernel.into(), bytes)?;
        let (read, done) = reader.join().map_err(|_| "panicked")??;
        if read == bytes { Ok((done - begun).as_secs_f64()) } else { Err(format!("{read} of {bytes} came")) }
    }
}

fn internet(family: Family, count: u32) -> Outcome<Arc<Routes>> {
    RouteRange::internet(family, count, SEED).map(|range| Arc::new(Routes::Range(range))).map_err(text)
}

/// Routes in groups of `each` that share attributes.
fn alike(count: u32, each: u32) -> Outcome<Arc<Routes>> {
    let pattern = AttributePattern { routes_per_group: GroupSizes::Fixed(each), ..AttributePattern::internet(SEED) };
    let first = "20.0.0.0/24".parse().map_err(text)?;
    RouteRange::uniform(first, count, 1, pattern).map(|range| Arc::new(Routes::Range(range))).map_err(text)
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("?").to_owned()
}

fn over_links(into_alone: bool) -> Outcome<()> {
    let lab = Lab::enter(&LabOptions::default()).map_err(text)?;
    let bench = Bench::new(&lab)?;
    println!("{ROUTES} IPv4 routes, medians of {ROUNDS} rounds in ms; load of the machine {}", load());
    for per_update in PER_UPDATE {
        let routes = alike(ROUTES, per_update)?;
        let (mut ours, mut kernel, mut ratios, mut bytes) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for _ in 0..ROUNDS {
            let (seconds, sent) = bench.ours(&routes)?;
            let theirs = bench.kernel(sent)?;
            bytes = sent;
            ours.push(seconds * 1e3);
            kernel.push(theirs * 1e3);
            ratios.push(seconds / theirs);
        }
        println!(
            "into a kernel, {per_update:3} per UPDATE ({:5.1} MB): {:6.1} (best {:6.1}), kernel's TCP without GSO {:6.1} (best {:6.1}), \
             ratio {:4.2}",
            bytes as f64 / 1e6,
            median(&mut ours),
            ours[0],
            median(&mut kernel),
            kernel[0],
            median(&mut ratios),
        );
    }
    if into_alone {
        return Ok(());
    }
    let without = lab.loop_without_dut(&bench.suite.ports).map_err(text)?;
    without.keep_segments_apart().map_err(text)?;
    let clock = SystemClock::start();
    let opened = real::open(&lab, without.interfaces(), &INTERFACE_BACKENDS[0], 1, clock)?;
    let mut rig = Rig::new(Ports::real(opened, clock, &[]), &joined_in_pairs(&bench.suite.ports, SEED));
    let tables = [
        ("IPv4 routes, 500 per UPDATE", alike(ROUTES, 500)?),
        ("IPv4 routes, 5 per UPDATE", alike(ROUTES, 5)?),
        ("IPv4 routes as in the Internet", internet(Family::Ipv4, ROUTES)?),
        ("IPv6 routes as in the Internet", internet(Family::Ipv6, ROUTES / 2)?),
    ];
    for (what, routes) in tables {
        let mut seconds = Vec::new();
        for round in 0..ROUNDS as u64 {
            let (configs, seed) = (&bench.suite.ports, round << 16);
            let once = route_ceiling::once(&mut rig, configs, seed, &routes, 0, &|| false);
            seconds.push(once.map_err(text)? * 1e3);
        }
        let middle = median(&mut seconds);
        println!(
            "sent and verified, {:7} {what:30}: {middle:6.1} (best {:6.1}), {:.2} M routes/s",
            routes.len(),
            seconds[0],
            f64::from(routes.len()) / middle / 1e3,
        );
    }
    without.take_down().map_err(text)
}

/// Sends and verifies routes between two routers of this process.
fn within(tables: &[(Family, Arc<Routes>)]) -> Outcome<()> {
    let before = wired::resident_kib("VmRSS")?;
    wired::forget_peak()?;
    let begun = Instant::now();
    let pairs = tables.iter().map(|(_, routes)| wired::verify(routes)).collect::<Outcome<Vec<_>>>()?;
    let seconds = begun.elapsed().as_secs_f64();
    let peak = wired::resident_kib("VmHWM")?;
    let names: Vec<_> = tables.iter().map(|(family, routes)| format!("{} {family}", routes.len())).collect();
    println!(
        "{} routes sent and verified within the process: {:.1} MiB more in RAM at most, {seconds:.2} s, {} messages; load {}",
        names.join(" and "),
        (peak - before) / 1024.0,
        pairs.iter().map(wired::Pair::messages).sum::<u64>(),
        load(),
    );
    Ok(())
}

fn bench() -> Outcome<()> {
    let asked: Vec<String> = std::env::args().collect();
    let wants = |what: &str| asked.iter().any(|a| a == what);
    let table = |family, count| internet(family, count).map(|routes| (family, routes));
    if wants("memory") {
        within(&[table(Family::Ipv4, 1_000_000)?, table(Family::Ipv6, 500_000)?])
    } else if wants("ten_million") {
        within(&[table(Family::Ipv4, 10_000_000)?])
    } else {
        over_links(wants("into"))
    }
}

fn main() {
    kernel::main(bench);
}
