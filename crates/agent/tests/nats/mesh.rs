//! Hosts, each in a network namespace of its own, with a management interface and a port. The ports are connected by a
//! router, and the server asks for TLS and passwords, because it is on another host than the agents.

use crate::anew::Checked;
use crate::bench::{Bed, Bench, ORDINARY, Process, command, connect, ensure, until, whole};
use crate::random::{Tally, fails, instant, rounds};
use crate::worked;
use drophammer_agent::Controller;
use drophammer_agent::bed::{self, Bed as Server};
use drophammer_lab::{Lab, Netns};
use drophammer_model::trial::{AddressRange, FlowSpec, Load, TrialSpec};
use drophammer_rig::Address;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SERVER: &str = "10.9.0.1";
/// Frames per second of all ports together.
const RATE: f64 = 4_000.0;

struct Mesh {
    bench: Bench,
    agents: Vec<Process>,
    // Before the bed, whose lab they belong to. The last one is the router's.
    namespaces: Vec<Netns>,
    _server: Process,
    bed: Bed,
}

fn address(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, host, 2)
}

/// The same number of frames from each port, in turn to all others.
fn mesh_of<const HOSTS: u8>(duration: Duration) -> TrialSpec {
    let range = |host: u8| AddressRange { first: address(host).into(), step: 1, count: 1 };
    let ways = (0..HOSTS).flat_map(|from| (0..HOSTS).filter(move |to| *to != from).map(move |to| (from, to)));
    let flow =
        |(from, to): (u8, u8)| FlowSpec::new(format!("{from}-{to}"), from.into(), to.into(), range(from), range(to));
    TrialSpec {
        purpose: "test".into(),
        size: "64".parse().unwrap(),
        flows: ways.map(flow).collect(),
        load: Load::Constant { rate_pps: RATE / f64::from(HOSTS) },
        duration_s: duration.as_secs_f64(),
        bin_s: None,
        drain_s: 2.0,
        events: vec![],
    }
}

/// Makes the management network, the router and the hosts. The last namespace is the router's.
fn wire(lab: &Lab, hosts: u8) -> Result<Vec<Netns>, String> {
    let text = |e: drophammer_lab::LabError| e.to_string();
    let lines = |lines: &[String], at: &Netns| at.ip(lines).map_err(text);
    let (tester, router) = (lab.tester().map_err(text)?, lab.namespace("router").map_err(text)?);
    let bridge =
        ["link add mgmt type bridge".into(), format!("address add {SERVER}/24 dev mgmt"), "link set mgmt up".into()];
    lines(&bridge, &tester)?;
    let forward = || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1");
    router.run(forward).map_err(text)?.map_err(|e| e.to_string())?;
    let mut all = Vec::new();
    for i in 0..hosts {
        let host = lab.namespace(&format!("host{i}")).map_err(text)?;
        lines(
            &[
                format!("link add m{i} type veth peer name eth0 netns {}", host.path()),
                format!("link set m{i} master mgmt addrgenmode none up"),
                format!("link add r{i} type veth peer name p0 netns {}", host.path()),
                format!("link set r{i} netns {}", router.path()),
            ],
            &tester,
        )?;
        lines(
            &[
                format!("address add 10.9.0.{}/24 dev eth0", 10 + i),
                "link set eth0 addrgenmode none up".into(),
                "link set p0 arp off multicast off addrgenmode none up".into(),
            ],
            &host,
        )?;
        lines(
            &[format!("address add 198.18.{i}.1/24 dev r{i}"), format!("link set r{i} addrgenmode none up")],
            &router,
        )?;
        all.push(host);
    }
    all.push(router);
    Ok(all)
}

/// A server at `address` with a certificate and passwords, as the documentation says.
pub fn server(folder: &Path, address: &str) -> Result<Server, String> {
    let (certificate, key) = (folder.join("server.pem"), folder.join("server.key"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "2", "-subj", "/CN=drophammer"]);
    openssl.args(["-addext", &format!("subjectAltName=IP:{address}"), "-addext", "basicConstraints=critical,CA:FALSE"]);
    openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate).stderr(Stdio::null());
    ensure(openssl.status().is_ok_and(|status| status.success()), "openssl makes no certificate")?;
    let listen = bed::address(address).map_err(|e| e.0)?;
    Ok(Server { folder: folder.to_owned(), listen, tls: Some((certificate, key)) })
}

/// Starts the agent of a host.
fn agent(bed: &Bed, hosts: &[Netns], number: usize, more: &[(&str, String)]) -> Result<Process, String> {
    let name = format!("host{number}");
    let more = more.iter().map(|(name, value)| (*name, value.as_str()));
    let variables: Vec<(&str, &str)> = [("NAME", name.as_str()), ("PORT", "p0")].into_iter().chain(more).collect();
    let mut command = command("agent", bed, &variables)?;
    let started = hosts[number].run(move || command.spawn()).map_err(|e| e.to_string())?;
    started.map(Process).map_err(|e| e.to_string())
}

impl Mesh {
    /// Makes `HOSTS` hosts with agents, each with the variables that `more` returns for it.
    fn up<const HOSTS: u8>(more: impl Fn(usize) -> Vec<(&'static str, String)>) -> Result<Mesh, String> {
        let mut namespaces = Vec::new();
        let bed = Bed::up_with(|lab, folder| {
            namespaces = wire(lab, HOSTS)?;
            server(folder, SERVER)
        })?;
        let server = monitored(&bed)?;
        // It prepares the new server, which agents would wait for.
        let controller = connect(crate::bench::access(&bed, "controller"), "tester")?;
        let all = usize::from(HOSTS);
        let agents = (0..all).map(|i| agent(&bed, &namespaces, i, &more(i)));
        let agents = agents.collect::<Result<Vec<_>, _>>()?;
        until("all agents", || controller.inventory().is_ok_and(|(agents, _)| agents.len() == all))?;
        let bench = bench_on::<HOSTS>(controller)?;
        Ok(Mesh { bench, agents, namespaces, _server: server, bed })
    }
}

/// A rig on the ports of the first `HOSTS` hosts.
fn bench_on<const HOSTS: u8>(controller: Controller) -> Result<Bench, String> {
    let names: Vec<String> = (0..HOSTS).map(|i| format!("host{i}/p0")).collect();
    let device = |i: usize| {
        let gateway = Ipv4Addr::new(198, 18, i as u8, 1);
        Address { address: address(i as u8), prefix_len: 24, gateway }
    };
    Bench::on(controller, &names, device, mesh_of::<HOSTS>)
}

/// The same for the next controller, as soon as the ports are free.
fn next_bench<const HOSTS: u8>(bed: &Bed) -> Result<Bench, String> {
    let mut next = None;
    until("the ports are free", || {
        let controller = connect(crate::bench::access(bed, "controller"), "the next");
        next = controller.and_then(bench_on::<HOSTS>).ok();
        next.is_some()
    })?;
    next.ok_or("no rig".into())
}

/// Starts the server of the bed again, with its monitoring.
fn monitored(bed: &Bed) -> Result<Process, String> {
    bed::down(&bed.server.folder).map_err(|e| e.0)?;
    let mut server = Command::new("nats-server");
    server.arg("-c").arg(bed.server.folder.join("server.conf")).args(["-m", "8222"]).stderr(Stdio::null());
    let server = server.spawn().map(Process).map_err(|e| e.to_string())?;
    until("the server", || messages().is_ok() && TcpStream::connect((SERVER, 4222)).is_ok())?;
    Ok(server)
}

/// Number of messages that the server has received from its clients, and sent to them.
fn messages() -> Result<[u64; 2], String> {
    let ask = || -> std::io::Result<String> {
        let mut server = TcpStream::connect((SERVER, 8222))?;
        server.write_all(b"GET /varz HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        server.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = ask().map_err(|e| e.to_string())?;
    let known = answer.split_once("\r\n\r\n").and_then(|(_, body)| {
        let body: serde_json::Value = serde_json::from_str(body).ok()?;
        Some([body["in_msgs"].as_u64()?, body["out_msgs"].as_u64()?])
    });
    known.ok_or_else(|| format!("no numbers of messages: {answer}"))
}

pub fn four() -> Checked {
    let mut four = Mesh::up::<4>(|_| Vec::new())?;
    let Mesh { bench, bed, .. } = &mut four;
    let result = bench.complete(&mesh_of::<4>(Duration::from_millis(600)))?;
    let counts = (result.intended(), result.offered(), result.received(), result.lost());
    ensure(counts == (2_400, 2_400, 2_400, 0), format!("{counts:?} {:?}", result.health))?;
    let each = result.groups.iter().all(|g| (g.offered, g.received, g.latency.frames) == (200, 200, 200));
    ensure(each && result.groups.len() == 12, format!("{:?}", result.groups))?;
    let between = result.health.between_hosts.clone().ok_or("no conditions between hosts")?;
    ensure((between.hosts, between.clock_uncertainty_ns) == (4, 0) && between.one_way_ns > 0, format!("{between:?}"))?;
    eprintln!("four hosts: {between:?}");
    let records = bed.records()?;
    ensure(records == 4, format!("{records} records of a trial on four hosts"))
}

/// Sixteen hosts, 240 flows: trials with exact counts; the messages of a trial; one in which an agent is killed; the next one.
pub fn sixteen() -> Checked {
    const HOSTS: usize = 16;
    // Each has a clock of its own. Their threads never sleep in a trial, and here they share the processors with everything else,
    // so they may not come before it.
    let more = |i: usize| vec![("CLOCK", format!("clock {i}")), (ORDINARY, String::new())];
    let mut mesh = Mesh::up::<16>(more)?;
    let Mesh { bench, agents, namespaces, bed, .. } = &mut mesh;
    for trial in 1..=3 {
        let (used, begun) = (processor_time(agents)?, Instant::now());
        let result = bench.complete(&mesh_of::<16>(Duration::from_millis(1_200)))?;
        let took = begun.elapsed();
        let counts = (result.intended(), result.offered(), result.received(), result.lost());
        ensure(counts == (4_800, 4_800, 4_800, 0), format!("trial {trial}: {counts:?} {:?}", result.health))?;
        let each = result.groups.iter().all(|g| (g.offered, g.received) == (20, 20));
        ensure(each && result.groups.len() == 240, format!("{:?}", result.groups))?;
        let between = result.health.between_hosts.clone().ok_or("no conditions between hosts")?;
        ensure(between.hosts == 16 && between.clock_uncertainty_ns > 0, format!("{between:?}"))?;
        let used: Vec<_> = processor_time(agents)?.iter().zip(used).map(|(now, then)| *now - then).collect();
        eprintln!(
            "trial {trial} in {took:?}: clocks within {} µs, start within {} µs, messages {} µs one way; processor time of an \
             agent {:?} to {:?}",
            between.clock_uncertainty_ns / 1_000,
            between.start_skew_ns / 1_000,
            between.one_way_ns / 1_000,
            used.iter().min(),
            used.iter().max()
        );
    }
    let records = bed.records()?;
    ensure(records >= 3 * HOSTS as u64, format!("{records} records of three trials on sixteen hosts"))?;
    let drive = |bench: &mut Bench, time: Duration| {
        let end = bench.rig.now() + time;
        bench.rig.drive(end, &|| false).map_err(|e| e.to_string())
    };
    let rates = bench.when_ready(|bench| {
        bench.start(&mesh_of::<16>(Duration::from_secs(600)))?;
        drive(bench, Duration::from_secs(1))?;
        let (before, begun) = (messages()?, Instant::now());
        drive(bench, Duration::from_secs(2))?;
        let (after, seconds) = (messages()?, begun.elapsed().as_secs_f64());
        Ok([0, 1].map(|way| (after[way] - before[way]) as f64 / seconds))
    })?;
    eprintln!(
        "while sixteen hosts send, the server gets {:.0} messages per second and sends {:.0}",
        rates[0], rates[1]
    );
    // Each host sends 5 and hears 10 per second; the controller hears 5 of each. If hosts heard each other, each would hear 80
    // and more. The rest is leases and announcements.
    ensure(rates[0] < 15.0 * HOSTS as f64 && rates[1] < 25.0 * HOSTS as f64, format!("{rates:?} messages per second"))?;
    agents[7].0.kill().map_err(|e| e.to_string())?;
    let Err(why) = bench.finish() else { return Err("a trial without one of its hosts has a result".into()) };
    ensure(why.contains("host7"), why)?;
    agents[7] = agent(bed, namespaces, 7, &more(7))?;
    whole(bench)
}

fn processor_time(agents: &[Process]) -> Result<Vec<Duration>, String> {
    agents.iter().map(|agent| worked(agent.0.id())).collect()
}

/// One host of four is cut off from the server for five seconds.
pub fn one_cut_off() -> Checked {
    let mut four = Mesh::up::<4>(|_| Vec::new())?;
    let Mesh { bench, bed, .. } = &mut four;
    let tester = bed.lab.tester().map_err(|e| e.to_string())?;
    let set = |state: &str| tester.ip(&[format!("link set m2 {state}")]).map_err(|e| e.to_string());
    let mut tally = Tally::default();
    for round in 0..rounds() {
        tally.trial(bench, || {
            std::thread::sleep(instant(round));
            set("down")?;
            std::thread::sleep(Duration::from_secs(5));
            set("up")
        })?;
    }
    tally.told("one host of four cut off for 5 s")?;
    whole(bench)
}

/// One host of four loses its power for good: its links are down, and its agent is gone without a word. The others can
/// be used again as soon as their controller has given up.
pub fn one_gone() -> Checked {
    const GONE: usize = 3;
    // In this order, so that the last one is dropped first.
    let Mesh { bed, _server, namespaces, mut agents, bench } = Mesh::up::<4>(|_| Vec::new())?;
    let tester = bed.lab.tester().map_err(|e| e.to_string())?;
    let router = namespaces.last().ok_or("no router")?;
    let links = |state: &str| {
        let set = |at: &Netns, name: &str| at.ip(&[format!("link set {name} {state}")]).map_err(|e| e.to_string());
        set(&tester, &format!("m{GONE}")).and_then(|()| set(router, &format!("r{GONE}")))
    };
    let (mut tally, mut bench) = (Tally::default(), Some(bench));
    for round in 1..=rounds() {
        let mut of_four = match bench.take() {
            Some(bench) => bench,
            None => next_bench::<4>(&bed)?,
        };
        tally.during(&mut of_four, || {
            std::thread::sleep(instant(round));
            links("down")?;
            agents[GONE].0.kill().map_err(|e| e.to_string())
        })?;
        if round == rounds() {
            fails(&mut of_four)?;
        }
        drop(of_four);
        whole(&mut next_bench::<2>(&bed)?)?;
        links("up")?;
        agents[GONE] = agent(&bed, &namespaces, GONE, &[])?;
    }
    tally.told("one host of four gone for good")
}
