//! Four hosts, each in a network namespace of its own, with a management interface and a port. The ports are connected by a
//! router, and the server asks for TLS and passwords, because it is on another host than three of them.

use crate::anew::Checked;
use crate::bench::{Bed, Bench, Process, command, connect, ensure, until, whole};
use crate::random::{Tally, instant, rounds};
use drophammer_agent::bed::{self, Bed as Server};
use drophammer_lab::{Lab, Netns};
use drophammer_model::trial::{AddressRange, FlowSpec, Load, TrialSpec};
use drophammer_rig::Address;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const HOSTS: u8 = 4;
const SERVER: &str = "10.9.0.1";

struct Four {
    bench: Bench,
    _agents: Vec<Process>,
    // Before the bed, whose lab they belong to.
    _namespaces: Vec<Netns>,
    bed: Bed,
}

fn address(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, host, 2)
}

/// 1,000 frames per second from each port, in turn to all others.
fn mesh_of(duration: Duration) -> TrialSpec {
    let range = |host: u8| AddressRange { first: address(host).into(), step: 1, count: 1 };
    let ways = (0..HOSTS).flat_map(|from| (0..HOSTS).filter(move |to| *to != from).map(move |to| (from, to)));
    let flow =
        |(from, to): (u8, u8)| FlowSpec::new(format!("{from}{to}"), from.into(), to.into(), range(from), range(to));
    TrialSpec {
        purpose: "test".into(),
        size: "64".parse().unwrap(),
        flows: ways.map(flow).collect(),
        load: Load::Constant { rate_pps: 1_000.0 },
        duration_s: duration.as_secs_f64(),
        bin_s: None,
        drain_s: 2.0,
        events: vec![],
    }
}

/// Makes the management network, the router and the hosts. The last namespace is the router's.
fn wire(lab: &Lab) -> Result<Vec<Netns>, String> {
    let text = |e: drophammer_lab::LabError| e.to_string();
    let lines = |lines: &[String], at: &Netns| at.ip(lines).map_err(text);
    let (tester, router) = (lab.tester().map_err(text)?, lab.namespace("router").map_err(text)?);
    let bridge =
        ["link add mgmt type bridge".into(), format!("address add {SERVER}/24 dev mgmt"), "link set mgmt up".into()];
    lines(&bridge, &tester)?;
    let forward = || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1");
    router.run(forward).map_err(text)?.map_err(|e| e.to_string())?;
    let mut all = Vec::new();
    for i in 0..HOSTS {
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

/// Makes a certificate as the documentation says.
fn server(folder: &Path) -> Result<Server, String> {
    let (certificate, key) = (folder.join("server.pem"), folder.join("server.key"));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "2", "-subj", "/CN=drophammer"]);
    openssl.args(["-addext", &format!("subjectAltName=IP:{SERVER}"), "-addext", "basicConstraints=critical,CA:FALSE"]);
    openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate).stderr(Stdio::null());
    ensure(openssl.status().is_ok_and(|status| status.success()), "openssl makes no certificate")?;
    let listen = bed::address(SERVER).map_err(|e| e.0)?;
    Ok(Server { folder: folder.to_owned(), listen, tls: Some((certificate, key)) })
}

fn four() -> Result<Four, String> {
    let mut namespaces = Vec::new();
    let bed = Bed::up_with(|lab, folder| {
        namespaces = wire(lab)?;
        server(folder)
    })?;
    let mut agents = Vec::new();
    for (i, host) in namespaces.iter().take(HOSTS.into()).enumerate() {
        let name = format!("host{i}");
        let variables = [("NAME", name.as_str()), ("PORT", "p0")];
        let mut command = command("agent", &bed, &variables)?;
        let started = host.run(move || command.spawn()).map_err(|e| e.to_string())?;
        agents.push(Process(started.map_err(|e| e.to_string())?));
    }
    let controller = connect(crate::bench::access(&bed, "controller"), "tester")?;
    let all = usize::from(HOSTS);
    until("four agents", || controller.inventory().is_ok_and(|(agents, _)| agents.len() == all))?;
    let names: Vec<String> = (0..HOSTS).map(|i| format!("host{i}/p0")).collect();
    let device =
        |i: usize| Address { address: address(i as u8), prefix_len: 24, gateway: Ipv4Addr::new(198, 18, i as u8, 1) };
    let bench = Bench::on(controller, &names, device, mesh_of)?;
    Ok(Four { bench, _agents: agents, _namespaces: namespaces, bed })
}

pub fn mesh() -> Checked {
    let mut four = four()?;
    let Four { bench, bed, .. } = &mut four;
    let result = bench.complete(&mesh_of(Duration::from_millis(600)))?;
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

/// One host of four is cut off from the server for five seconds.
pub fn one_cut_off() -> Checked {
    let mut four = four()?;
    let Four { bench, bed, .. } = &mut four;
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
