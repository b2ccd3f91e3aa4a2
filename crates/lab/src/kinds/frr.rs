//! FRRouting: zebra puts the routes of staticd, bgpd and ospfd into the kernel, which forwards.

use crate::environment::kernel_release;
use crate::namespace_dut::NamespaceDut;
use crate::{Dut, DutKind, LabError, Start, bgp, configuration, kinds, label_edge, mounts, process};
use drophammer_model::capabilities::{Capabilities, INSTALL_ROUTES};
use drophammer_model::label_edge::CoreProtocol;
use drophammer_model::registry::KindSpec;
use drophammer_model::role::{CorePeer, RouterRole};
use drophammer_model::suite::DutConfig;
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

static SPEC: KindSpec = KindSpec {
    name: "frr",
    summary: "FRRouting in a network namespace: zebra, staticd, bgpd and ospfd, the kernel forwards",
    capabilities: Capabilities {
        bgp: true,
        bgp_forwarding: true,
        bgp_protection: true,
        // This machine's kernel forwards, and few kernels have MPLS and VRFs: that is for kind `uml`.
        core: &[CoreProtocol::Ospf, CoreProtocol::Bfd],
        ..kinds::IN_NAMESPACE
    },
    needs: &[("zebra", "frr"), ("staticd", "frr"), ("ip", "iproute2"), ("ethtool", "ethtool")],
    params: kinds::ROUTING_PARAMS,
};

pub(crate) const TEMPLATE: &str = include_str!("../../templates/frr.conf.j2");
const BGP_TEMPLATE: &str = include_str!("../../templates/bgpd.conf.j2");
const OSPF_TEMPLATE: &str = include_str!("../../templates/ospfd.conf.j2");
const LDP_TEMPLATE: &str = include_str!("../../templates/ldpd.conf.j2");
const VPN_TEMPLATE: &str = include_str!("../../templates/vpn.conf.j2");

/// Receive buffer of zebra's netlink sockets, in bytes: a burst of a million routes overflows the default of 212,992. The
/// kernel gives ordinary users less.
const NETLINK_BUFFER: &str = "90000000";

/// Socket on which zebra serves the daemons, in their state folder.
pub(super) const ZEBRA_SOCKET: &str = "zserv.api";

/// Socket on which zebra answers questions.
pub(super) const ZEBRA_VTY: &str = "zebra.vty";

/// Groups that the daemons require.
const GROUPS: [&str; 2] = ["frr", "frrvty"];

/// Kind `frr`.
pub struct Frr;

impl DutKind for Frr {
    fn spec(&self) -> &'static KindSpec {
        &SPEC
    }

    fn configuration(&self, dut: &DutConfig, role: &RouterRole) -> Result<Vec<(String, String)>, LabError> {
        files(dut, role)
    }

    fn start(&self, start: Start<'_>) -> Result<Box<dyn Dut>, LabError> {
        let Start { lab, dut, role, work_dir, stop } = start;
        let zebra = process::find("zebra", "frr")?;
        let staticd = process::find("staticd", "frr")?;
        let version = format!("{}, Linux {}", version(process::command(&zebra, &lab.shared().mark))?, kernel_release());
        let state = lab.shared().fresh_state(&dut.name)?;
        own_surroundings(&lab.shared().state)?;

        let mut router = NamespaceDut::with_links(lab, dut, &SPEC, role, version)?;
        let configs = router.keep(work_dir, &state, role, &|role| files(dut, role))?;
        let daemons = daemons(role, &files(dut, role)?);
        let own = configuration::is_own(dut);
        if own {
            router.routes_of_the_user();
        }
        let socket = state.join(ZEBRA_SOCKET);
        let start = |name: &str, program: &Path, router: &mut NamespaceDut| {
            let mut command = router.netns().command(program);
            command.args(arguments(name, config_of(name, own).map(|file| configs.join(file)).as_deref(), &state));
            if name == "bgpd" && INSTALL_ROUTES.find(&dut.params) == Some(false) {
                command.arg("--no_kernel");
            }
            router.daemon(name, command, work_dir)
        };
        start("zebra", &zebra, &mut router)?;
        router.listens(&socket);
        // A daemon that cannot connect to zebra waits ten seconds before it tries again.
        router.wait(stop, |_| Ok(UnixStream::connect(&socket).err().map(|e| format!("zebra does not listen: {e}"))))?;
        let zebra_vty = state.join(ZEBRA_VTY);
        start("staticd", &staticd, &mut router)?;
        let mut last = "staticd";
        for name in daemons {
            router.wait(stop, |_| Ok(not_connected(&zebra_vty, last)))?;
            // Not looked up by name: OpenBGPD's program is called bgpd, too.
            start(name, &zebra.with_file_name(name), &mut router)?;
            last = name;
        }
        if let Some(bgp) = &role.bgp {
            let (vty, locals) = (state.join("bgpd.vty"), bgp::locals(bgp));
            router.wait(stop, |_| Ok(not_told(&vty, &locals).or_else(|| idle(&vty))))?;
            let own = vty.clone();
            router.idle = Some(Box::new(move || idle(&own)));
            router.session = Some(Box::new(move |_, peer| session_down(&vty, peer)));
        }
        router.with_agent(lab, dut, work_dir, stop)?;
        router.ready(stop)
    }
}

/// FRR's version, as its `zebra` reports it.
pub(super) fn version(mut zebra: Command) -> Result<String, LabError> {
    zebra.arg("--version");
    let told = process::output(zebra, None)?;
    Ok(format!("FRR {}", told.lines().next().unwrap_or_default().trim_start_matches("zebra version ").trim()))
}

/// Configuration files: `frr.conf` with the static routes and a file for each other daemon of the role, or the user's
/// `frr.conf` for all daemons.
pub(super) fn files(dut: &DutConfig, role: &RouterRole) -> Result<Vec<(String, String)>, LabError> {
    if let Some(text) = configuration::own(dut, role)? {
        return Ok(vec![("frr.conf".into(), text)]);
    }
    let mut files = vec![("frr.conf".to_owned(), configuration::render(TEMPLATE, &dut.name, role)?)];
    for (daemon, template) in templates(role) {
        let (name, text) = (format!("{daemon}.conf"), configuration::render(template, &dut.name, role)?);
        match files.iter_mut().find(|(known, _)| *known == name) {
            Some((_, before)) => before.push_str(&text),
            None => files.push((name, text)),
        }
    }
    Ok(files)
}

/// Daemons with a configuration file of their own, and its templates. bgpd has one template for ordinary peers and one for VPNs.
pub(crate) fn templates(role: &RouterRole) -> Vec<(&'static str, &'static str)> {
    let all = [
        (label_edge::speaks(role, CoreProtocol::Ospf), "ospfd", OSPF_TEMPLATE),
        (label_edge::speaks(role, CoreProtocol::Ldp), "ldpd", LDP_TEMPLATE),
        (role.bgp.is_some(), "bgpd", BGP_TEMPLATE),
        (!role.vrfs.is_empty(), "bgpd", VPN_TEMPLATE),
    ];
    all.into_iter().filter(|(wanted, ..)| *wanted).map(|(_, daemon, template)| (daemon, template)).collect()
}

/// The daemons that the router needs in addition to zebra and staticd, in the order in which they start.
pub(crate) fn daemons(role: &RouterRole, files: &[(String, String)]) -> Vec<&'static str> {
    let speaks = |protocol| label_edge::speaks(role, protocol);
    let all = [
        (speaks(CoreProtocol::Bfd), "bfdd"),
        (speaks(CoreProtocol::Ospf), "ospfd"),
        (speaks(CoreProtocol::Ldp), "ldpd"),
        (speaks_bgp(role, files), "bgpd"),
    ];
    all.into_iter().filter(|(wanted, _)| *wanted).map(|(_, daemon)| daemon).collect()
}

/// True if the router needs bgpd.
fn speaks_bgp(role: &RouterRole, files: &[(String, String)]) -> bool {
    role.bgp.is_some()
        || !role.vrfs.is_empty()
        || files.iter().any(|(_, text)| text.lines().any(|l| l.starts_with("router bgp")))
}

/// The file that a daemon reads; `None` for an empty configuration. Each daemon reads its part of the user's `own` file
/// and ignores the rest.
pub(super) fn config_of(daemon: &str, own: bool) -> Option<&'static str> {
    match daemon {
        _ if own => Some("frr.conf"),
        "staticd" => Some("frr.conf"),
        "ospfd" => Some("ospfd.conf"),
        "ldpd" => Some("ldpd.conf"),
        "bgpd" => Some("bgpd.conf"),
        _ => None,
    }
}

/// Command line of a daemon whose sockets are in the folder `state`.
pub(super) fn arguments(daemon: &str, config: Option<&Path>, state: &Path) -> Vec<OsString> {
    let mut all: Vec<OsString> =
        ["-u", "root", "-g", "root", "-P", "0", "--log", "stdout", "--log-level", "informational"]
            .map(Into::into)
            .into();
    let mut add = |option: &str, value: &Path| all.extend([option.into(), value.into()]);
    add("-f", config.unwrap_or(Path::new("/dev/null")));
    add("-z", &state.join(ZEBRA_SOCKET));
    add("--vty_socket", state);
    add("-i", &state.join(format!("{daemon}.pid")));
    match daemon {
        "zebra" => add("-s", Path::new(NETLINK_BUFFER)),
        "bfdd" => add("--bfdctl", &state.join("bfdd.sock")),
        // ldpd takes the folder.
        "ldpd" => add("--ctl_socket", state),
        _ => {}
    }
    all
}

/// Returns a message if this daemon has not connected to zebra yet. If all daemons connect at the same time, zebra's queue of
/// connections has no room for some of them, which then wait ten seconds before they try again.
pub(super) fn not_connected(zebra_vty: &Path, daemon: &str) -> Option<String> {
    match ask_all(zebra_vty, &["enable", "show zebra client summary"]) {
        Ok(told) => (!connected(&told, daemon)).then(|| format!("{daemon} has not connected to zebra")),
        Err(e) => Some(format!("zebra does not answer: {e}")),
    }
}

/// True if zebra lists this daemon, under its protocol's name: `static` for staticd.
fn connected(summary: &str, daemon: &str) -> bool {
    let name = daemon.strip_suffix('d').unwrap_or(daemon);
    summary.lines().any(|line| line.split_whitespace().next() == Some(name))
}

/// Returns a message about the first address that bgpd does not know yet. bgpd listens before it knows its neighbours
/// and interfaces, and rejects such early connections.
pub(super) fn not_told(vty: &Path, locals: &[IpAddr]) -> Option<String> {
    let told = match ask(vty, "show bgp martian next-hop") {
        Ok(told) => told,
        Err(e) => return Some(format!("bgpd does not answer: {e}")),
    };
    let missing = locals.iter().find(|a| !told.contains(&format!("addr: {a},")));
    missing.map(|address| format!("bgpd does not know its address {address} yet"))
}

/// Returns a message about a neighbour that bgpd keeps in state Idle. Contrary to RFC 4271 section 8.2.2, bgpd accepts
/// its connection, but ends the new session if the neighbour's start timer fires at that moment.
pub(super) fn idle(vty: &Path) -> Option<String> {
    match ask(vty, "show bgp summary json") {
        Ok(told) => idle_in(&told).map(|peer| format!("bgpd keeps its neighbour {peer} in state Idle")),
        Err(e) => Some(format!("bgpd does not answer: {e}")),
    }
}

/// The first neighbour in state Idle in `show bgp summary json`. A neighbour that is shut down has another state.
fn idle_in(summary: &str) -> Option<String> {
    let all: Value = serde_json::from_str(summary).ok()?;
    let families = all.as_object()?.values();
    let mut peers = families.filter_map(|family| family.get("peers")?.as_object()).flatten();
    peers
        .find(|(_, peer)| peer.get("state").and_then(Value::as_str) == Some("Idle"))
        .map(|(address, _)| address.clone())
}

/// Returns a message if, according to bgpd, the session with another router of the system is not up.
pub(super) fn session_down(vty: &Path, peer: &CorePeer) -> Option<String> {
    match ask(vty, &format!("show bgp neighbors {}", peer.peer)) {
        Ok(told) => bgp::session_down(peer, bgp::state_in(&told)),
        Err(e) => Some(format!("bgpd does not answer: {e}")),
    }
}

/// Returns a message if, according to ldpd, the session with the LSR of this identifier is not up.
pub(super) fn ldp_down(vty: &Path, lsr: Ipv4Addr) -> Option<String> {
    match ask(vty, "show mpls ldp neighbor json") {
        Ok(told) => (!ldp_is_up(&told, lsr)).then(|| format!("the LDP session with {lsr} is not up")),
        Err(e) => Some(format!("ldpd does not answer: {e}")),
    }
}

/// True if the session with this LSR is in state Operational in `show mpls ldp neighbor json`.
fn ldp_is_up(neighbours: &str, lsr: Ipv4Addr) -> bool {
    let all: Value = serde_json::from_str(neighbours).unwrap_or_default();
    let text = |neighbour: &Value, key: &str| neighbour.get(key).and_then(Value::as_str).map(str::to_owned);
    let up = |neighbour: &Value| {
        text(neighbour, "neighborId") == Some(lsr.to_string())
            && text(neighbour, "state").is_some_and(|state| state.eq_ignore_ascii_case("operational"))
    };
    all.get("neighbors").and_then(Value::as_array).into_iter().flatten().any(up)
}

/// Asks a daemon over the socket for vtysh.
fn ask(vty: &Path, command: &str) -> std::io::Result<String> {
    ask_all(vty, &[command])
}

/// Gives a daemon these commands one after the other, and returns the answer to the last one. A command ends with NUL, its answer with
/// three NULs and a status.
fn ask_all(vty: &Path, commands: &[&str]) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(vty)?;
    stream.set_read_timeout(Some(Duration::from_millis(500)))?;
    let mut answer = Vec::new();
    for command in commands {
        answer.clear();
        stream.write_all(command.as_bytes())?;
        stream.write_all(&[0])?;
        let mut bytes = [0; 4096];
        while !(answer.len() >= 4 && answer[answer.len() - 4..].starts_with(&[0, 0, 0])) {
            match stream.read(&mut bytes)? {
                0 => break,
                n => answer.extend_from_slice(&bytes[..n]),
            }
        }
    }
    Ok(String::from_utf8_lossy(&answer).trim_end_matches('\0').to_owned())
}

/// Gives FRR an empty /etc/frr, so that the host's configuration has no effect, and groups that exist in every user
/// namespace. Done once per lab or guest; only processes there see it.
pub(super) fn own_surroundings(state: &Path) -> Result<(), LabError> {
    let group = state.join("group");
    if group.exists() {
        return Ok(());
    }
    mounts::empty_over(Path::new("/etc/frr"))?;
    let path = Path::new("/etc/group");
    let text = fs::read_to_string(path).map_err(LabError::file("read", path))?;
    fs::write(&group, with_groups(&text)).map_err(LabError::file("write", &group))?;
    mounts::show_at(&group, path)
}

/// A group file in which FRR's groups have the id of root's group: a user namespace of one user has no other group.
fn with_groups(text: &str) -> String {
    let foreign = |line: &&str| !GROUPS.iter().any(|g| line.strip_prefix(g).is_some_and(|rest| rest.starts_with(':')));
    let mut lines: Vec<String> = text.lines().filter(foreign).map(str::to_owned).collect();
    lines.extend(GROUPS.iter().map(|g| format!("{g}:x:0:root")));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests_support::{
        dut, edge_ports, one_internal_port, two_ports, two_ports_with_bgp, two_protected_ports, with_bgp,
    };
    use drophammer_model::topology::{Shape, System, Topology};

    #[test]
    fn an_idle_neighbour_is_found_in_either_family() {
        let summary = |state: &str| {
            format!(
                r#"{{"ipv4Unicast":{{"as":65000,"peers":{{"198.18.1.2":{{"state":"Active (passive)"}}}},"totalPeers":1}},
                "ipv6Unicast":{{"peers":{{"2001:2::2":{{"state":"{state}"}}}}}}}}"#
            )
        };
        assert_eq!(idle_in(&summary("Idle")).as_deref(), Some("2001:2::2"));
        for other in ["Idle (Admin)", "Active", "Established"] {
            assert_eq!(idle_in(&summary(other)), None);
        }
        assert_eq!(idle_in("% Unknown command"), None);
    }

    #[test]
    fn a_session_of_ldp_is_up_when_it_is_operational() {
        let told = |state: &str| {
            format!(
                r#"{{"neighbors":[{{"addressFamily":"ipv4","neighborId":"100.127.0.1","state":"OPERATIONAL"}},
                {{"addressFamily":"ipv4","neighborId":"100.127.255.2","state":"{state}"}}]}}"#
            )
        };
        let up = |text: &str| ldp_is_up(text, Ipv4Addr::new(100, 127, 255, 2));
        assert!(up(&told("OPERATIONAL")) && !up(&told("OPENREC")));
        assert!(!up(r#"{"neighbors":[]}"#) && !up("% Unknown command"));
    }

    #[test]
    fn routers_of_a_chain_have_labels_for_what_is_behind_it() {
        use CoreProtocol::{Ldp, Ospf};
        let mut ports = two_ports();
        ports.iter_mut().for_each(|port| port.core = vec![Ospf, Ldp]);
        let topology = Topology { shape: Shape::Chain, routers: 2, core_speed: None, wan: None };
        let system = System::of(&ports, &topology).unwrap();
        let ldpd = |router: usize| configuration::render(LDP_TEMPLATE, "p", &system.routers[router].role).unwrap();
        let first = "access-list labelled deny 198.18.1.0/24\naccess-list labelled deny 198.18.64.0/18\n\
                     access-list labelled deny 198.19.1.0/24\naccess-list labelled deny 198.19.64.0/18\n\
                     access-list labelled permit any\n!\nmpls ldp\n router-id 100.127.255.1\n";
        assert!(ldpd(0).contains(first), "{}", ldpd(0));
        let second = "!\naccess-list labelled deny 198.18.64.0/18\naccess-list labelled deny 198.19.64.0/18\n\
                      access-list labelled permit any\n!\nmpls ldp\n router-id 100.127.255.2\n discovery hello interval 1\n !\n \
                      address-family ipv4\n  discovery transport-address 100.127.255.2\n  label local allocate for labelled\n  !\n  \
                      interface d0\n  exit\n  !\n  interface d1\n  exit\n";
        assert!(ldpd(1).contains(second), "{}", ldpd(1));
        let alone = configuration::render(LDP_TEMPLATE, "p", &RouterRole::of(&ports)).unwrap();
        assert!(!alone.contains("access-list") && !alone.contains("allocate"), "{alone}");
        let ospfd = configuration::render(OSPF_TEMPLATE, "p", &system.routers[1].role).unwrap();
        assert_eq!(ospfd.matches(" ip ospf area 0\n").count(), 3, "{ospfd}");
        assert!(ospfd.contains(" ospf router-id 100.127.255.2\n"), "{ospfd}");
    }

    #[test]
    fn a_daemon_is_connected_when_zebra_lists_it() {
        let summary = "Name    Connect Time    Last Read  Last Write      IPv4 Routes     IPv6 Routes\n\
                       ------------\nstatic  00:00:05  00:00:05  00:00:05  2/0  0/0\nldp  00:00:01\n";
        assert!(connected(summary, "staticd") && connected(summary, "ldpd") && !connected(summary, "ospfd"));
    }

    #[test]
    fn the_configuration_holds_every_route() {
        let text = configuration::render(TEMPLATE, "frr", &RouterRole::of(&two_ports())).unwrap();
        for line in ["ip route 198.18.64.0/18 198.18.1.2 d0", "ipv6 route 2001:2:0:8000::/50 2001:2::2 d0"] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert_eq!(text.lines().filter(|l| l.starts_with("ip route") || l.starts_with("ipv6 route")).count(), 4);
    }

    #[test]
    fn the_configuration_holds_every_peer() {
        let text = configuration::render(BGP_TEMPLATE, "frr", &RouterRole::of(&two_ports_with_bgp(1000))).unwrap();
        assert_eq!(text.matches(" peer-group p").count(), 4000);
        for line in [
            "router bgp 65000",
            " neighbor p1_ipv4 remote-as 65002",
            " neighbor 198.18.1.2 peer-group p0_ipv4",
            " neighbor 2001:2:0:1::3e9 peer-group p1_ipv6",
            " timers bgp 30 90",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}");
        }
        assert_eq!(text.matches(" activate").count(), 4);
        assert!(!text.contains("route-reflector-client"), "all are external");
    }

    #[test]
    fn each_protocol_of_core_links_and_vrfs_has_its_daemon_and_file() {
        use CoreProtocol::{Bfd, Ldp, Ospf};
        let role = RouterRole::of(&edge_ports(&[Ospf, Ldp, Bfd], 2));
        let files_of = |role: &RouterRole| files(&dut("pe", "frr", Default::default()), role).unwrap();
        let files = files_of(&role);
        let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["frr.conf", "ospfd.conf", "ldpd.conf", "bgpd.conf"]);
        assert_eq!(daemons(&role, &files), ["bfdd", "ospfd", "ldpd", "bgpd"]);
        let ospf = "interface d0\n ip ospf network point-to-point\n ip ospf hello-interval 1\n ip ospf dead-interval 4\n \
                    ip ospf retransmit-interval 2\n ip ospf area 0\n ip ospf bfd\nexit\n";
        assert!(files[1].1.contains(ospf) && !files[1].1.contains("interface d1"), "{}", files[1].1);
        let ldp = " address-family ipv4\n  discovery transport-address 100.127.255.1\n  !\n  interface d0\n  exit\n exit-address-family\n";
        assert!(files[2].1.contains(ldp), "{}", files[2].1);
        let vrf = "router bgp 65000 vrf v2\n bgp router-id 100.127.255.1\n no bgp ebgp-requires-policy\n no bgp default ipv4-unicast\n \
                   neighbor 192.168.0.2 remote-as 65100\n neighbor 192.168.0.2 passive\n neighbor 192.168.0.2 advertisement-interval 0\n \
                   neighbor fd00:0:1::2 remote-as 65100\n neighbor fd00:0:1::2 passive\n neighbor fd00:0:1::2 advertisement-interval 0\n !\n \
                   address-family ipv4 unicast\n  neighbor 192.168.0.2 activate\n  neighbor 192.168.0.2 filter-list not-65100 out\n  \
                   label vpn export auto\n  rd vpn export 100.127.255.1:2\n  rt vpn both 65000:2\n  export vpn\n  import vpn\n \
                   exit-address-family\n !\n \
                   address-family ipv6 unicast\n  neighbor fd00:0:1::2 activate\n  neighbor fd00:0:1::2 filter-list not-65100 out\n  \
                   label vpn export auto\n  rd vpn export 100.127.255.1:2\n  rt vpn both 65000:2\n  export vpn\n  import vpn\n \
                   exit-address-family\nexit\n";
        assert!(files[3].1.contains(vrf), "{}", files[3].1);
        let core = " address-family ipv6 vpn\n  neighbor 100.127.0.2 activate\n exit-address-family\nexit\n";
        assert!(files[3].1.contains(core), "{}", files[3].1);
        assert!(files[3].1.contains(" neighbor 100.127.0.2 update-source 100.127.255.1\n"), "{}", files[3].1);
        // BFD with CE routers needs bfdd, even if no core link has it.
        let mut ports = edge_ports(&[Ospf, Ldp], 2);
        ports[1].customer_bfd = true;
        let with_bfd = RouterRole::of(&ports);
        let files = files_of(&with_bfd);
        assert_eq!(daemons(&with_bfd, &files), ["bfdd", "ospfd", "ldpd", "bgpd"]);
        assert_eq!(files[3].1.matches(" neighbor 192.168.0.2 bfd\n").count(), 2, "{}", files[3].1);
        // With peers, one file holds both roles of bgpd.
        let both = RouterRole::of(&with_bgp(edge_ports(&[Ospf, Ldp], 2), 1));
        let files = files_of(&both);
        let bgpd: Vec<_> = files.iter().filter(|(name, _)| name == "bgpd.conf").collect();
        assert_eq!(bgpd.len(), 1);
        for line in [" neighbor p1_ipv4 remote-as 65002", " neighbor 100.127.0.2 activate", "router bgp 65000 vrf v2"] {
            assert!(bgpd[0].1.contains(&format!("{line}\n")), "{line}");
        }
        let igp = RouterRole::of(&edge_ports(&[Ospf], 0));
        assert_eq!(daemons(&igp, &[]), ["ospfd"]);
        assert_eq!(templates(&igp).len(), 1);
    }

    #[test]
    fn internal_peers_are_clients() {
        for own in [false, true] {
            let ports = one_internal_port(own);
            let text = configuration::render(BGP_TEMPLATE, "frr", &RouterRole::of(&ports)).unwrap();
            let lines = |line: &str| text.lines().filter(|l| *l == line).count();
            assert_eq!(lines(" neighbor p0_ipv4 remote-as 65000"), 1);
            assert_eq!(text.matches("route-reflector-client").count(), 2);
            assert_eq!(lines("  neighbor p0_ipv6 route-reflector-client"), 1);
            assert_eq!(lines("  neighbor p0_ipv6 next-hop-self"), usize::from(own));
            assert!(!text.contains("p1_ipv6 next-hop-self"));
        }
    }

    #[test]
    fn sessions_are_protected_and_kept_files_do_not_show_the_key() {
        let role = RouterRole::of(&two_protected_ports());
        let text = configuration::render(BGP_TEMPLATE, "frr", &role).unwrap();
        assert_eq!(text.matches(" password sesame\n").count(), 4);
        assert_eq!(text.matches(" ttl-security hops 1\n").count(), 4);
        let kept = configuration::render(BGP_TEMPLATE, "frr", &role.without_secrets()).unwrap();
        assert!(!kept.contains("sesame") && kept.contains(" password <secret>\n"), "{kept}");
    }

    #[test]
    fn groups_are_replaced_not_doubled() {
        let text = with_groups("root:x:0:\nfrrvty:x:110:frr\nfrrother:x:9:\n");
        assert_eq!(text, "root:x:0:\nfrrother:x:9:\nfrr:x:0:root\nfrrvty:x:0:root\n");
    }
}
