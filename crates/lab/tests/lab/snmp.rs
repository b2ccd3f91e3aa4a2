//! Counters from an SNMP agent: over the management link of a router of the lab, and from the user's own router. The host
//! plays the latter, with Debian's snmpd and the far ends of the links as interfaces.

use super::bgp::await_that;
use super::{Checked, ensure, ports};
use drophammer_lab::{Dut, Lab, find};
use drophammer_model::counters::DutCounter;
use drophammer_model::role::RouterRole;
use drophammer_model::suite::{DutConfig, ParamValue, Params};
use std::fs;
use std::net::{Ipv6Addr, SocketAddrV6, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The source of the counters.
const SOURCE: &str = "SNMP";
/// Address of the agent on the host, where no other agent listens.
const AGENT: &str = "127.0.0.73";
/// Its community.
const COMMUNITY: &str = "laboratory";
/// Where frames go. It is link-local, because the host may use any other address.
const NEIGHBOUR: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
/// Frames to its first interface.
const FRAMES: u64 = 200;
/// Time limit in seconds for the agent to show them in its counters, which it caches.
const CACHED: u64 = 60;

fn counters(dut: &mut dyn Dut) -> Result<Vec<DutCounter>, String> {
    dut.known_counters().map_err(|e| e.to_string())
}

/// A counter of a port, or of the whole router.
fn value(all: &[DutCounter], source: &str, port: Option<usize>, name: &str) -> Result<u64, String> {
    let found = all.iter().find(|c| c.source == source && c.port == port && c.name == name);
    found.map(|counter| counter.value).ok_or_else(|| format!("no {source} {name} of port {port:?} in {all:?}"))
}

/// The lab asks the agent of a router over the management link, not over the loopback of its namespace.
pub fn over_the_link(lab: &mut Lab, work: &Path) -> Checked {
    let params = Params(["snmp", "management"].map(|key| (key.to_owned(), ParamValue::Flag(true))).into());
    let config = DutConfig { name: "managed".into(), kind: "linux".into(), params, topology: None };
    let kind = find("linux").ok_or("no such kind")?;
    let role = RouterRole::of(&ports());
    let mut dut = kind.bring_up(lab, &config, &role, work, &|| false).map_err(|e| e.to_string())?;
    let before = counters(&mut *dut)?;
    let after = counters(&mut *dut)?;
    let grown =
        |name: &str| Ok::<_, String>(value(&after, "kernel", None, name)? - value(&before, "kernel", None, name)?);
    let (asked, own) = (grown("management.questions")?, grown("lo.rx_packets")?);
    ensure(asked > 0 && own == 0, &format!("{asked} questions over the link, {own} packets over loopback"))?;
    // The questions are packets, too: without counting them, a counter of the router would look wrong.
    let received = grown("ip.InReceives")?;
    ensure(received == asked && grown("ip.OutRequests")? == asked, &format!("{received} packets, {asked} questions"))?;
    for port in 0..2 {
        value(&after, SOURCE, Some(port), "ifHCInUcastPkts")?;
    }
    dut.take_down().map_err(|e| e.to_string())
}

/// An agent of the host.
struct Agent(Child);

impl Agent {
    fn start(lab: &Lab, work: &Path) -> Result<Agent, String> {
        // The agent keeps a state file with the name of its configuration.
        let state = work.join("agent");
        fs::create_dir(&state).map_err(|e| e.to_string())?;
        let file = work.join("snmpd.conf");
        fs::write(&file, format!("rocommunity {COMMUNITY} 127.0.0.0/8\n")).map_err(|e| e.to_string())?;
        let mut command = Command::new("/usr/sbin/snmpd");
        command.args(["-f", "-Lo", "-C", "-I", "-smux", "-c"]).arg(&file).arg(format!("udp:{AGENT}:161"));
        command.env("SNMP_PERSISTENT_DIR", &state).env("SNMPCONFPATH", &state);
        // This mark makes it visible to the check that nothing is left.
        command.env("DROPHAMMER_LAB", format!("{}:", std::process::id()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let started = lab.in_host_netns(|| command.spawn()).map_err(|e| e.to_string())?;
        started.map(Agent).map_err(|e| format!("snmpd: {e}"))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends frames out of the host's interface at the first port.
fn send(count: u64) -> std::io::Result<()> {
    let interface = nix::net::if_::if_nametoindex("dhx0")?;
    let to = SocketAddrV6::new(NEIGHBOUR, 9, 0, interface);
    let socket = UdpSocket::bind("[::]:0")?;
    (0..count).try_for_each(|_| socket.send_to(&[0; 18], to).map(drop))
}

/// Runs ip(8) on the host.
fn ip(lab: &Lab, line: &str) -> Checked {
    let done = lab.in_host_netns(|| Command::new("ip").args(line.split(' ')).status()).map_err(|e| e.to_string())?;
    ensure(done.map_err(|e| e.to_string())?.success(), &format!("ip {line}"))
}

/// Brings up the user's router; its interfaces at the ports have these names.
fn bring_up(lab: &mut Lab, work: &Path, names: [&str; 2], timeout: u64) -> Result<Box<dyn Dut>, String> {
    let texts = |names: [&str; 2]| ParamValue::Texts(names.map(str::to_owned).into());
    let text = |text: &str| ParamValue::Text(text.into());
    let community = work.join("community");
    fs::write(&community, format!("{COMMUNITY}\n")).map_err(|e| e.to_string())?;
    let params = [
        ("interfaces", texts(["dhx0", "dhx1"])),
        ("dut_macs", text("02:00:00:00:00:01 02:00:00:00:00:02")),
        ("counters", text("echo d1.ifHCInUcastPkts 7")),
        ("management", text(AGENT)),
        ("snmp_community_file", text(&community.display().to_string())),
        ("snmp_interfaces", texts(names)),
        ("timeout", ParamValue::Duration(Duration::from_secs(timeout))),
    ];
    let params = Params(params.map(|(key, value)| (key.to_owned(), value)).into());
    let config = DutConfig { name: "box".into(), kind: "external".into(), params, topology: None };
    let kind = find("external").ok_or("no such kind")?;
    kind.bring_up(lab, &config, &RouterRole::of(&ports()), work, &|| false).map_err(|e| e.to_string())
}

/// The user's own router.
pub fn external(lab: &mut Lab, work: &Path) -> Checked {
    ip(lab, "link set dhx1 mtu 9000")?;
    let agent = Agent::start(lab, work)?;
    let error = bring_up(lab, work, ["dhy0", "ge-0/0/1"], 30).err().ok_or("an unknown name is taken")?;
    ensure(error.contains("no interface `ge-0/0/1`") && error.contains("dhy1") && error.contains(AGENT), &error)?;

    let mut dut = bring_up(lab, work, ["dhy0", "dhy1"], 30)?;
    let record = dut.record().config.get("snmp_interfaces").cloned();
    ensure(record.as_deref() == Some("d0 dhy0\nd1 dhy1\n"), &format!("{record:?}"))?;
    let before = counters(&mut *dut)?;
    ensure(value(&before, "command", Some(1), "ifHCInUcastPkts")? == 7, "the command's counters are there, too")?;
    ensure(before.iter().all(|c| c.source != "kernel"), "counters have the name of their source")?;
    // The agent counts its own questions here.
    let received = |c: &DutCounter| c.source == SOURCE && c.name.starts_with("ipSystemStatsInReceives");
    ensure(!before.iter().any(received), "packets received by the router are left out")?;
    value(&before, SOURCE, None, "ipSystemStatsInHdrErrors.ipv4")?;

    // Frames to the interface at the first port, counted there and not at the second.
    ip(lab, &format!("neighbour add {NEIGHBOUR} lladdr 02:00:00:00:00:09 dev dhx0 nud permanent"))?;
    await_that(CACHED, || {
        // Until the host knows that its own link-local address is unique, it cannot send.
        let _ = lab.in_host_netns(|| send(FRAMES / 4)).map_err(|e| e.to_string())?;
        let after = counters(&mut *dut)?;
        let grown = |port: usize| {
            let of = |all: &[DutCounter]| value(all, SOURCE, Some(port), "ifHCInUcastPkts");
            Ok::<_, String>(of(&after)?.wrapping_sub(of(&before)?))
        };
        let (first, second) = (grown(0)?, grown(1)?);
        ensure(first >= FRAMES && second < FRAMES, &format!("{first} and {second} frames at the interfaces"))
    })?;

    // An agent that is gone.
    drop(agent);
    let silent = |error: &str| {
        let right = error.contains(AGENT) && error.contains("no answer") && error.contains("`snmp_community_file`");
        ensure(right && !error.contains(COMMUNITY), error)
    };
    silent(&counters(&mut *dut).err().ok_or("counters without an agent")?)?;
    dut.take_down().map_err(|e| e.to_string())?;
    silent(&bring_up(lab, work, ["dhy0", "dhy1"], 2).err().ok_or("a router without an agent came up")?)
}
