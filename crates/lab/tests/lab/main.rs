//! The lab with real namespaces, links and daemons.
//!
//! The program runs itself for each scenario, as root and as an ordinary user, and compares the state of the host before
//! and after.

#[path = "../anew/mod.rs"]
mod anew;
mod bgp;
mod cases;
mod edges;
mod external;
mod hosts;
mod own;
#[path = "../../../model/tests/ports/mod.rs"]
mod ports;
#[path = "../ports_with_bgp/mod.rs"]
mod ports_with_bgp;
mod processes;
mod resets;
mod snmp;
mod system;

use anew::Checked;
use drophammer_lab::kinds::uml::guest;
use drophammer_lab::{Dut, Lab, LabOptions, Where, find};
use drophammer_model::role::RouterRole;
use drophammer_model::suite::{DutConfig, Params, PortConfig, VlanConfig, VlanTag};
use drophammer_model::trial::Family;
use external::external;
use hosts::{ROUNDS, exchange, is_tap, kernel_hosts};
use ports::addressing;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Longer than what happens at once takes on a busy machine.
const SOON: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name, folder] = args.as_slice()
        && flag == "--scenario"
    {
        return match scenario(name, Path::new(folder)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("{e}");
                ExitCode::FAILURE
            }
        };
    }
    if args.first().is_some_and(|a| a == guest::SUBCOMMAND) {
        let arguments: Vec<_> = args[1..].iter().map(Into::into).collect();
        return match guest::run(&arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("{e}");
                ExitCode::FAILURE
            }
        };
    }
    anew::run(cases::all())
}

/// The second port has a different MTU.
fn ports() -> Vec<PortConfig> {
    let mut ports = ports::two_ports();
    ports[1].mtu = 9000;
    ports
}

fn scenario(name: &str, work: &Path) -> Checked {
    let text = |e: drophammer_lab::LabError| e.to_string();
    let start = Instant::now();
    let mut lab = Lab::enter(&LabOptions { keep: vec![work.to_path_buf()], ..LabOptions::default() }).map_err(text)?;
    println!("entered in {:.3} s", start.elapsed().as_secs_f64());
    if name == "external-snmp" {
        return snmp::external(&mut lab, work);
    }
    if name.starts_with("external") {
        return external(&mut lab, name, work);
    }
    match name.split_once('-') {
        Some(("bgp", "refused")) => return bgp::refused(&mut lab, work),
        Some(("bgp", kind)) => return bgp::speaks(&mut lab, kind, work),
        Some(("peers", kind)) => return bgp::many(&mut lab, kind, work),
        Some(("core", kind)) => return edges::core_link(&mut lab, kind, work),
        Some(("own", "linux")) => return own::rules(&mut lab, work),
        Some(("own", kind)) => return own::routes(&mut lab, kind, work),
        _ => {}
    }
    match name {
        "loop" => joined(&lab),
        "reset-frr" => resets::reset(&mut lab, "frr", work),
        "reset-bird" => resets::reset(&mut lab, "bird", work),
        "reset-beside" => resets::beside(&mut lab, work),
        "snmp-link" => snmp::over_the_link(&mut lab, work),
        "broken" => broken(&mut lab, work),
        "never-ready" => never_ready(&mut lab, work),
        "twice" => ["linux", "frr", "bird", "frr"].iter().try_for_each(|kind| {
            let dut = up(&mut lab, kind, work)?;
            dut.take_down().map_err(text)
        }),
        "vlans" => vlans(&mut lab, work),
        "pe-uml" => edges::provider_edge(&mut lab, work),
        "system" => system::forwards(&mut lab, work),
        "killed" | "ovs-killed" | "uml-killed" | "system-killed" => {
            let _dut = match name {
                "system-killed" => system::up(&mut lab, work)?,
                _ => up(&mut lab, name.split_once('-').map_or("frr", |(kind, _)| kind), work)?,
            };
            println!("READY");
            std::io::stdout().flush().unwrap();
            loop {
                std::thread::park();
            }
        }
        kind => {
            let dut = up(&mut lab, kind, work)?;
            works(&lab, dut)
        }
    }
}

fn up(lab: &mut Lab, kind: &str, work: &Path) -> Result<Box<dyn Dut>, String> {
    up_with(lab, kind, work, &ports())
}

fn up_with(lab: &mut Lab, kind: &str, work: &Path, ports: &[PortConfig]) -> Result<Box<dyn Dut>, String> {
    let config = DutConfig { name: format!("{kind}-1"), kind: kind.into(), params: Params::default(), topology: None };
    let start = Instant::now();
    let found = find(kind).ok_or("no such kind")?;
    let dut = found.bring_up(lab, &config, &RouterRole::of(ports), work, &|| false).map_err(|e| e.to_string())?;
    let took = start.elapsed();
    println!("{kind} up in {:.3} s: {}", took.as_secs_f64(), dut.record().version);
    let many = ports.iter().any(|p| p.bgp.as_ref().is_some_and(|b| b.peers > 100));
    let limit = if many || kind == "uml" { 60 } else { 30 };
    ensure(took < Duration::from_secs(limit), "bring-up takes too long")?;
    Ok(dut)
}

fn ensure(holds: bool, what: &str) -> Checked {
    if holds { Ok(()) } else { Err(format!("wrong: {what}")) }
}

fn memory_of(dut: &mut dyn Dut) -> Vec<(String, u64)> {
    dut.usage().map(|usage| usage.memory()).unwrap_or_default()
}

fn cpu_time(dut: &mut dyn Dut) -> Result<Duration, String> {
    dut.usage().and_then(|usage| usage.cpu_time()).ok_or("no processor time".into())
}

/// Forwards frames of both families through the DUT between two hosts played by the kernel, and calls all methods of the
/// DUT.
fn works(lab: &Lab, mut dut: Box<dyn Dut>) -> Checked {
    let record = dut.record();
    println!("{}", record.confinement);
    ensure(dut.interfaces().iter().map(|i| i.name.as_str()).eq(["t0", "t1"]), "interfaces t0 and t1")?;
    ensure(
        dut.interfaces().iter().all(|i| i.netns == Where::Tester && i.dut_mac.is_none()),
        "in the tester's namespace",
    )?;
    ensure(record.version.contains(char::is_numeric), "a version")?;
    ensure(record.config.values().any(|t| t.contains("2001:2:0:c000::/50")), "configuration in the record")?;
    if record.kind != "uml" {
        // The input queue in the record must be the kernel's.
        let shown = Command::new("tc").args(["qdisc", "show", "dev", "t0"]).output().map_err(|e| e.to_string())?;
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        let (there, told) = (shown.contains("pfifo") && shown.contains("limit 2048p"), "2048 frames per link");
        ensure(there == record.confinement.contains(told), &format!("input queue: {shown}; {}", record.confinement))?;
    }
    let mtu = |name: &str| fs::read_to_string(format!("/sys/class/net/{name}/mtu")).unwrap_or_default();
    ensure(mtu("t0").trim() == "1500" && mtu("t1").trim() == "9000", "MTU of each port")?;
    let before = dut.counters().map_err(|e| e.to_string())?;
    ensure(before.contains_key("d1.rx_dropped") && before.contains_key("t0.tx_dropped"), "counters of both ends")?;

    // Port 0 becomes a host in the tester's namespace, port 1 a host in another one, so frames must cross the DUT. The
    // addresses are behind the emulated routers, which proves the routes.
    let far = lab.namespace("far").map_err(|e| e.to_string())?;
    let near = lab.tester().map_err(|e| e.to_string())?;
    kernel_hosts(&near, &far).map_err(|e| e.to_string())?;
    let pairs = [("198.18.64.7", "198.19.64.9"), ("2001:2:0:8000::7", "2001:2:0:c000::9")];
    let cpu_before = cpu_time(dut.as_mut())?;
    let mut again = 0;
    for (from, to) in pairs {
        let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
        again += exchange(&near, &far, from, to)?;
    }
    if !is_tap("t1") {
        far.ip(&[format!("link set t1 netns {}", near.path())]).map_err(|e| e.to_string())?;
        // The kernel takes a link down when it is moved.
        near.ip(&["link set t1 up".into()]).map_err(|e| e.to_string())?;
    }
    let after = dut.counters().map_err(|e| e.to_string())?;
    if record.kind == "ovs" {
        by_the_switch(&before, &after)?;
    } else {
        for counter in ["ip.ForwDatagrams", "ip6.OutForwDatagrams"] {
            let grown = after[counter] - before[counter];
            let right = (2 * ROUNDS..=2 * ROUNDS + again).contains(&grown);
            ensure(right, &format!("{counter} grew by {grown} and not by {}, {again} sent again", 2 * ROUNDS))?;
        }
    }
    // If frames bypass the NAPI of a veth pair, the sender's processor forwards them, and the NAPI threads use almost no
    // time.
    let used = cpu_time(dut.as_mut())?.saturating_sub(cpu_before);
    let datagrams = 4 * ROUNDS;
    println!("{:.2} us of the DUT's processor for each datagram", used.as_secs_f64() * 1e6 / datagrams as f64);
    ensure(used > Duration::from_nanos(200 * datagrams), "the DUT's threads do its work")?;
    let guest = record.kind == "uml";
    ensure(guest || record.confinement.contains("kernel thread"), "threaded NAPI")?;
    if guest {
        let fib = dut.fib_routes(Family::Ipv4).map_err(|e| e.to_string())?;
        ensure(fib.is_some_and(|n| n >= 4), &format!("routes of the guest: {fib:?}"))?;
        ensure(
            memory_of(dut.as_mut()).iter().any(|(n, bytes)| n == "zebra" && *bytes > 1_000_000),
            &format!("{:?}", memory_of(dut.as_mut())),
        )?;
    } else if lab.is_root() {
        pinned(lab, &mut *dut)?;
    } else {
        ensure(record.confinement.contains("only root"), "the record says that it is not pinned")?;
    }
    println!(
        "cpu time {:?}, processor {:?}",
        dut.usage().and_then(|usage| usage.cpu_time()),
        dut.usage().and_then(|usage| usage.processor())
    );
    ensure(!lab.environment(1).kernel.is_empty(), "environment")?;
    // The kernel reports the returning carrier of d1 with a delay.
    let start = Instant::now();
    while let Err(e) = dut.check() {
        ensure(start.elapsed() < SOON, &e.to_string())?;
        std::thread::yield_now();
    }

    // `check` detects the end of a daemon and names it.
    let daemon = match record.kind.as_str() {
        "frr" => Some("staticd"),
        "bird" => Some("bird"),
        "ovs" => Some("ovs-vswitchd"),
        "uml" => Some("uml"),
        _ => None,
    };
    if let Some(daemon) = daemon {
        kill_ours(if guest { "linux.uml" } else { daemon })?;
        let start = Instant::now();
        let error = loop {
            match dut.check() {
                Err(e) => break e.to_string(),
                Ok(()) => ensure(start.elapsed() < SOON, "a dead daemon is noticed")?,
            }
        };
        ensure(error.contains(daemon) && error.contains("signal: 9"), &format!("the error names the daemon: {error}"))?;
    }
    drop(far);
    dut.take_down().map_err(|e| e.to_string())?;
    ensure(!Path::new("/sys/class/net/t0").exists(), "t0 is gone")
}

/// Datagrams of both families passed the switch in both directions. The kernel forwarded only the few that arrived before
/// the neighbours were known.
fn by_the_switch(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> Checked {
    let grown = |counter: &str| after[counter] - before.get(counter).copied().unwrap_or_default();
    let through = grown("ovs.lookups_hit") + grown("ovs.lookups_missed");
    ensure(through >= 4 * ROUNDS, &format!("{through} packets through the switch"))?;
    ensure(grown("ovs.2.tx_pkts") >= 2 * ROUNDS, &format!("{} packets to t1", grown("ovs.2.tx_pkts")))?;
    let slow = grown("slow_path.ip.ForwDatagrams") + grown("slow_path.ip6.OutForwDatagrams");
    println!("{slow} packets forwarded by the kernel behind the switch");
    // The switch gives the datapath the flows to a new neighbour at its next revalidation, which can take a while on a busy
    // machine.
    ensure(slow <= through / 20, "the switch forwards by itself")?;
    ensure(grown("ovs.d0.socket_dropped") + grown("ovs.d1.socket_dropped") == 0, "sockets with room")
}

/// The DUT's kernel threads run only on its processor.
fn pinned(lab: &Lab, dut: &mut dyn Dut) -> Checked {
    let mut seen = BTreeMap::new();
    for thread in dut.usage().and_then(|usage| usage.threads()).ok_or("no times of threads")? {
        let status = fs::read_to_string(format!("/proc/{}/status", thread.id)).unwrap_or_default();
        let field = |key: &str| status.lines().find_map(|l| l.strip_prefix(key)).unwrap_or_default().trim().to_owned();
        if field("Name:").starts_with("napi/d") {
            seen.insert(field("Name:"), field("Cpus_allowed_list:"));
        }
    }
    let cpu = lab.cpus().dut.to_string();
    ensure(seen.values().filter(|list| **list == cpu).count() >= 2, &format!("pinned to {cpu}: {seen:?}"))
}

/// Kills the process `name` that was started by this process, or by the program that holds a guest.
fn kill_ours(name: &str) -> Checked {
    let us = std::process::id().to_string();
    let status = |pid: &str| fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let parent = |status: &str| status.lines().find_map(|l| l.strip_prefix("PPid:\t")).unwrap_or_default().to_owned();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let own = status(entry.file_name().to_str().unwrap());
        let above = status(&parent(&own));
        let ours = parent(&own) == us || above.starts_with("Name:\tinit\n") && parent(&above) == us;
        if ours && own.starts_with(&format!("Name:\t{name}\n")) {
            let pid: i32 = entry.file_name().to_str().unwrap().parse().unwrap();
            return nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)
                .map_err(|e| e.to_string());
        }
    }
    Err(format!("{name} is not our child"))
}

/// A kernel router with VLANs comes up, or fails with an error that says how to get VLANs in the kernel and which kinds
/// have their own.
fn vlans(lab: &mut Lab, work: &Path) -> Checked {
    let mut ports = ports();
    let tags = vec![VlanTag { tpid: 0x88a8, vid: 100 }, VlanTag { tpid: 0x8100, vid: 200 }];
    let ipv4 = Some(addressing("198.18.16.1", "198.18.16.2", 27, "198.18.32.0", 26));
    ports[0].vlans.push(VlanConfig { tags, ipv4, ipv6: None });
    match up_with(lab, "linux", work, &ports) {
        Ok(dut) => {
            println!("this kernel makes VLAN sub-interfaces");
            let routes = dut.record().config.get("routes.ip").cloned().unwrap_or_default();
            ensure(routes.contains("198.18.32.0/26 via 198.18.16.2 dev d0.s100.200"), &routes)?;
            dut.take_down().map_err(|e| e.to_string())
        }
        Err(e) => {
            ensure(e.contains("kind `linux`") && e.contains("modprobe 8021q") && e.contains("uml"), &e)?;
            ensure(!Path::new("/sys/class/net/t0").exists(), "nothing was started")
        }
    }
}

/// The loop without a DUT.
fn joined(lab: &Lab) -> Checked {
    let made = lab.loop_without_dut(&ports()).map_err(|e| e.to_string())?;
    println!("{}", made.confinement());
    ensure(made.interfaces().len() == 2, "two interfaces")?;
    ensure(Path::new("/sys/class/net/t1").exists(), "t1 is there")?;
    // With more queues than needed, the queueing discipline passes on several frames together, which can reorder them.
    for end in ["t0", "t1"] {
        let told = Command::new("ip").args(["-d", "link", "show", end]).output().map_err(|e| e.to_string())?;
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        ensure(told.contains("numtxqueues 1 "), &told)?;
    }
    made.take_down().map_err(|e| e.to_string())?;
    ensure(!Path::new("/sys/class/net/t1").exists(), "t1 is gone")
}

/// Brings up a router of `kind` whose next hop is on no link, and returns the error. Nothing must be left that hinders the
/// next DUT.
fn attempt(lab: &mut Lab, kind: &str, work: &Path, stop: &dyn Fn() -> bool) -> Result<String, String> {
    let mut ports = ports();
    ports[1].ipv4 = Some(addressing("198.19.1.1", "198.19.77.2", 24, "198.19.64.0", 19));
    let config = DutConfig { name: "broken".into(), kind: kind.into(), params: Params::default(), topology: None };
    let refused = find(kind).unwrap().bring_up(lab, &config, &RouterRole::of(&ports), work, stop).err();
    refused.map(|e| e.to_string()).ok_or_else(|| "came up".into())
}

fn broken(lab: &mut Lab, work: &Path) -> Checked {
    let error = attempt(lab, "linux", work, &|| false)?;
    ensure(error.contains("route add 198.19.64.0/19 via 198.19.77.2"), &error)?;
    let error = attempt(lab, "bird", work, &|| true)?;
    ensure(error == "stopped by the user", &error)?;
    up(lab, "linux", work)?.take_down().map_err(|e| e.to_string())
}

fn never_ready(lab: &mut Lab, work: &Path) -> Checked {
    let start = Instant::now();
    let error = attempt(lab, "frr", work, &|| false)?;
    println!("{error}");
    ensure(error.contains("198.19.64.0/19 via 198.19.77.2 on d1"), &error)?;
    ensure(start.elapsed() < Duration::from_secs(30), "a deadline")?;
    up(lab, "linux", work)?.take_down().map_err(|e| e.to_string())
}
