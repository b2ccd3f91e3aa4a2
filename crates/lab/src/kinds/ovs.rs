//! Open vSwitch as a router: a datapath in user space, static flows from the role, no kernel module.
//!
//! Database and switch run in the router's namespace with their own run folder. The links of the router are ports of
//! one bridge; the kernel of the namespace has the addresses, behind internal ports, and handles what the flows cannot
//! ([`flows`]).

mod flows;

use super::{TTL_MODEL, is_pipe};
use crate::environment::kernel_release;
use crate::links::{links_only, silence};
use crate::namespace_dut::NamespaceDut;
use crate::router::{address_line, dut_interface, prefix_of};
use crate::{Dut, DutKind, LabError, Netns, Start, probe, process};
use drophammer_model::capabilities::{Capabilities, Counters};
use drophammer_model::registry::KindSpec;
use drophammer_model::role::{Interface, RouterRole};
use drophammer_model::suite::DutConfig;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The bridge, its protocol, the package of its tools, and the switch's own socket.
const BRIDGE: &str = "br0";
const OPENFLOW: &str = "OpenFlow13";
const COMMON: &str = "openvswitch-common";
const CONTROL: &str = "vswitchd.ctl";
/// The schema of the database, as installed by Debian and by a build from source.
const SCHEMAS: [&str; 2] =
    ["/usr/share/openvswitch/vswitch.ovsschema", "/usr/local/share/openvswitch/vswitch.ovsschema"];
/// Package of database and switch.
const SWITCH: &str = "openvswitch-switch";

/// Maximum number of labels of a packet that the switch can match.
const MOST_LABELS: usize = 3;

static SPEC: KindSpec = KindSpec {
    name: "ovs",
    summary: "Open vSwitch in user space: static OpenFlow flows forward, the kernel answers for the router's addresses",
    capabilities: Capabilities { mpls: true, systems: true, counters: &[Counters::Interfaces], ..Capabilities::ROUTER },
    needs: &[
        ("ovs-vswitchd", SWITCH),
        ("ovsdb-server", SWITCH),
        ("ovsdb-tool", COMMON),
        ("ovs-vsctl", COMMON),
        ("ovs-ofctl", COMMON),
        ("ovs-appctl", COMMON),
        ("ip", "iproute2"),
        ("ethtool", "ethtool"),
    ],
    params: &[TTL_MODEL],
};

/// Kind `ovs`.
pub struct Ovs;

/// Arguments of ovs-vsctl(8) that make the bridge and its ports.
fn bridge(role: &RouterRole) -> Vec<String> {
    let mut words = format!(
        "--timeout=20 add-br {BRIDGE} -- set bridge {BRIDGE} datapath_type=netdev fail_mode=secure protocols={OPENFLOW}"
    );
    // A datapath flow learned from one packet covers the whole prefix, for IPv6 too.
    words += &format!(
        " -- --id=@routes create Flow_Table prefixes=nw_dst,ipv6_dst -- set bridge {BRIDGE} flow_tables:{}=@routes",
        flows::ROUTES
    );
    for (i, interface) in role.interfaces.iter().enumerate() {
        let (link, kernel) = (dut_interface(i), flows::kernel_interface(i));
        words += &format!(
            " -- add-port {BRIDGE} {link} -- set interface {link} ofport_request={} -- add-port {BRIDGE} {kernel} \
             -- set interface {kernel} type=internal ofport_request={} mtu_request={} mac=\"{}\"",
            flows::link_number(i),
            flows::kernel_number(i),
            interface.mtu,
            flows::mac(role, i),
        );
    }
    words.split_whitespace().map(str::to_owned).collect()
}

/// Lines of ip(8) that give the kernel behind the internal ports the router's addresses and routes.
fn kernel_lines(role: &RouterRole) -> Vec<String> {
    let interface = |(i, interface): (usize, &Interface)| {
        let name = flows::kernel_interface(i);
        let addresses = interface.addresses.iter().map(|a| address_line("add", a, &name));
        [format!("link set {name} up")].into_iter().chain(addresses).collect::<Vec<_>>()
    };
    let interfaces = role.interfaces.iter().enumerate().flat_map(interface);
    let best = role.routes.iter().filter(|route| route.rank == 0);
    let routes =
        best.map(|r| format!("route add {} via {} dev {}", prefix_of(r), r.via, flows::kernel_interface(r.at.port)));
    interfaces.chain(routes).collect()
}

impl DutKind for Ovs {
    fn spec(&self) -> &'static KindSpec {
        &SPEC
    }

    fn of_kernel(&self, role: &RouterRole) -> RouterRole {
        links_only(role)
    }

    fn configuration(&self, dut: &DutConfig, role: &RouterRole) -> Result<Vec<(String, String)>, LabError> {
        let unusable = |what: String, remedy: &str| Err(LabError::unusable(format!("`{}` {what}", dut.name), remedy));
        let entries = role.labels.iter().map(|entry| (&entry.out[..], format!("of entry {}", entry.label)));
        let pushed = role.pushed.iter().map(|r| (&r.out[..], format!("of packets to {}/{}", r.prefix.0, r.prefix.1)));
        if let Some((out, of)) = entries.chain(pushed).find(|(out, _)| out.len() > MOST_LABELS) {
            let remedy = format!("give at most {MOST_LABELS} labels; Open vSwitch supports no more");
            return unusable(format!("cannot push the {} labels {of}", out.len()), &remedy);
        }
        let popped = role.labels.iter().find(|entry| entry.out.is_empty());
        if let Some(entry) = popped.filter(|_| flows::of_one_family(role).is_none()) {
            let what = format!("cannot remove label {}: it does not say whether IPv4 or IPv6 follows", entry.label);
            return unusable(what, "write `ipv4: off` or `ipv6: off` on all ports");
        }
        let slow_path = kernel_lines(role).join("\n") + "\n";
        Ok(vec![("flows.txt".into(), flows::render(role, is_pipe(&dut.params))), ("slow-path.ip".into(), slow_path)])
    }

    fn start(&self, start: Start<'_>) -> Result<Box<dyn Dut>, LabError> {
        let Start { lab, dut, role, work_dir, stop } = start;
        let program = |name: &str, package: &str| process::find(name, package);
        let mut ask = process::command(&program("ovs-vswitchd", SWITCH)?, &lab.shared().mark);
        ask.arg("--version");
        let told = process::output(ask, None)?;
        let version = told.lines().next().unwrap_or_default().replace("ovs-vswitchd (Open vSwitch)", "Open vSwitch");
        let version = format!("{version}, Linux {}", kernel_release());

        let run = lab.shared().fresh_state(&dut.name)?;
        let mut router = NamespaceDut::with_links(lab, dut, &SPEC, &links_only(role), version)?;
        let files = router.keep(work_dir, &run, role, &|role| self.configuration(dut, role))?;
        silence(router.netns(), role.interfaces.len())?;

        let socket = |name: &str| run.join(name);
        let database = format!("unix:{}", socket("db.sock").display());
        let command = |router: &NamespaceDut, name: &str, package: &str| -> Result<Command, LabError> {
            let mut command = router.netns().command(&program(name, package)?);
            for folder in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
                command.env(folder, &run);
            }
            Ok(command)
        };
        let tell = |router: &NamespaceDut, name: &str, args: &[String]| -> Result<String, LabError> {
            let mut command = command(router, name, COMMON)?;
            command.args(args);
            router.netns().run(|| process::output(command, None))?
        };
        let schema = SCHEMAS.iter().find(|file| Path::new(file).exists()).unwrap_or(&SCHEMAS[0]);
        let file = socket("conf.db").display().to_string();
        tell(&router, "ovsdb-tool", &["create".into(), file.clone(), (*schema).to_owned()])?;
        let mut server = command(&router, "ovsdb-server", SWITCH)?;
        server.arg(file).arg(format!("--remote=p{database}")).arg("--no-chdir");
        server.arg(format!("--unixctl={}", socket("ovsdb.ctl").display()));
        router.daemon("ovsdb-server", server, work_dir)?;
        router.wait(stop, |_| Ok((!socket("db.sock").exists()).then(|| "ovsdb-server does not listen".into())))?;
        tell(&router, "ovs-vsctl", &[format!("--db={database}"), "--no-wait".into(), "init".into()])?;

        // The kernel threads that receive for the switch have priority. Without this, the switch would get no processor
        // time.
        let mut switch = command(&router, "nice", "coreutils")?;
        switch
            .args(["-n", "-20"])
            .arg(program("ovs-vswitchd", SWITCH)?)
            .arg(&database)
            .arg("--no-chdir")
            .arg("--disable-system");
        switch.arg(format!("--unixctl={}", socket(CONTROL).display()));
        router.daemon("ovs-vswitchd", switch, work_dir)?;
        router.wait(stop, |_| Ok((!socket(CONTROL).exists()).then(|| "ovs-vswitchd does not listen".into())))?;
        // This returns when the switch has made the bridge.
        let words = [vec![format!("--db={database}")], bridge(role)].concat();
        tell(&router, "ovs-vsctl", &words)?;
        // The database does not contain flows, nor addresses and routes behind internal ports.
        router.needs_lab = true;
        let managed = format!("unix:{}", socket(&format!("{BRIDGE}.mgmt")).display());
        let flows = files.join("flows.txt").display().to_string();
        tell(&router, "ovs-ofctl", &["-O".into(), OPENFLOW.into(), "add-flows".into(), managed, flows])?;

        router.netns().ip(&kernel_lines(role))?;
        router.links.also_counts(Box::new(move |netns, to| add_counters(netns, &run, to)));
        router.ready(stop)
    }
}

/// Adds the counters of the switch, given the folder with its sockets, and of the sockets of its links.
fn add_counters(netns: &Netns, run: &Path, to: &mut BTreeMap<String, u64>) -> Result<(), LabError> {
    probe::rename_slow_path(to);
    let ask = |program: &str, package: &str, args: &[&str]| -> Result<String, LabError> {
        let path = process::find(program, package)?;
        netns.run(|| {
            let mut command = netns.command(&path);
            command.env("OVS_RUNDIR", run).args(args);
            process::output(command, None)
        })?
    };
    let bridge = format!("unix:{}", run.join(BRIDGE.to_owned() + ".mgmt").display());
    ports(&ask("ovs-ofctl", COMMON, &["-O", OPENFLOW, "dump-ports", &bridge])?, to);
    let target = run.join(CONTROL).display().to_string();
    lookups(&ask("ovs-appctl", COMMON, &["--target", &target, "dpctl/show"])?, to);
    to.extend(probe::socket_drops(netns)?.into_iter().map(|(link, n)| (format!("ovs.{link}.socket_dropped"), n)));
    Ok(())
}

/// The counters in `ovs-ofctl dump-ports`: `port "d0": rx pkts=1, bytes=60, drop=?, ...`, then a line `tx pkts=...`.
fn ports(text: &str, to: &mut BTreeMap<String, u64>) {
    let mut port = String::new();
    for line in text.lines().map(str::trim) {
        let counters = match line.strip_prefix("port ").and_then(|rest| rest.split_once(": ")) {
            Some((name, counters)) => {
                port = name.trim().trim_matches('"').to_owned();
                counters
            }
            None => line,
        };
        let Some((way, counters)) = counters.split_once(' ').filter(|(way, _)| matches!(*way, "rx" | "tx")) else {
            continue;
        };
        // A question mark means that the value is unknown.
        let known =
            counters.split(", ").filter_map(|c| c.split_once('=')).filter_map(|(k, v)| Some((k, v.parse().ok()?)));
        to.extend(known.map(|(key, value): (_, u64)| (format!("ovs.{port}.{way}_{key}"), value)));
    }
}

/// The line `lookups: hit:1 missed:2 lost:3` in `dpctl/show`: packets with a known flow in the datapath, packets that
/// needed a lookup in the flow tables, and packets lost in that lookup.
fn lookups(text: &str, to: &mut BTreeMap<String, u64>) {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("lookups: "));
    let words = line.unwrap_or_default().split_whitespace().filter_map(|word| word.split_once(':'));
    to.extend(words.filter_map(|(key, value)| Some((format!("ovs.lookups_{key}"), value.parse().ok()?))));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests_support::{dut, two_ports, two_ports_with_bgp, with_vlans};

    #[test]
    fn each_link_has_an_internal_port_with_the_address_of_the_flows() {
        let words = bridge(&RouterRole::of(&two_ports())).join(" ");
        for wanted in [
            "datapath_type=netdev fail_mode=secure",
            "add-port br0 d1 -- set interface d1 ofport_request=2 --",
            "add-port br0 i1 -- set interface i1 type=internal ofport_request=1002 mtu_request=1500 mac=\"02:6f:76:73:00:01\"",
        ] {
            assert!(words.contains(wanted), "{wanted} in {words}");
        }
    }

    #[test]
    fn the_kernel_has_addresses_and_routes_behind_internal_ports_alone() {
        let role = RouterRole::of(&two_ports());
        let lines = kernel_lines(&role);
        assert!(lines.contains(&"address add 2001:2:0:1::1/64 dev i1 nodad".to_owned()), "{lines:?}");
        assert!(lines.contains(&"route add 198.18.64.0/18 via 198.18.1.2 dev i0".to_owned()), "{lines:?}");
        assert!(!lines.iter().any(|line| line.contains("dev d")), "{lines:?}");
        let bare = links_only(&role);
        assert!(bare.routes.is_empty() && bare.interfaces.iter().all(|i| i.addresses.is_empty() && i.mtu == 1500));
    }

    #[test]
    fn roles_that_flows_cannot_play_are_refused() {
        let dut = dut("switch", SPEC.name, Default::default());
        let role = RouterRole::of(&with_vlans(two_ports()));
        let error = Ovs.check(&dut, &role).unwrap_err().to_string();
        assert!(error.contains("`vlan`") && error.contains("kind `ovs`"), "{error}");
        // A kind without BGP plays the rest of a role with BGP.
        Ovs.check(&dut, &RouterRole::of(&two_ports_with_bgp(1))).unwrap();
    }

    fn of(read: fn(&str, &mut BTreeMap<String, u64>), text: &str) -> Vec<(String, u64)> {
        let mut to = BTreeMap::new();
        read(text, &mut to);
        to.into_iter().collect()
    }

    #[test]
    fn ports_are_named_by_their_numbers() {
        let text = "OFPST_PORT reply (OF1.3) (xid=0x2): 2 ports\n  \
                    port 1001: rx pkts=6, bytes=708, drop=?, errs=0\n           tx pkts=2, bytes=146, drop=3\n           duration=2.2s\n  \
                    port  2: rx pkts=9\n";
        let expected = [
            ("ovs.1001.rx_bytes", 708),
            ("ovs.1001.rx_errs", 0),
            ("ovs.1001.rx_pkts", 6),
            ("ovs.1001.tx_bytes", 146),
            ("ovs.1001.tx_drop", 3),
            ("ovs.1001.tx_pkts", 2),
            ("ovs.2.rx_pkts", 9),
        ];
        assert_eq!(of(ports, text), expected.map(|(name, n)| (name.to_owned(), n)));
    }

    #[test]
    fn lookups_are_found() {
        let text = "netdev@ovs-netdev:\n  lookups: hit:2806 missed:410 lost:7\n  flows: 410\n  port 1: d0\n";
        let expected = [("ovs.lookups_hit", 2806), ("ovs.lookups_lost", 7), ("ovs.lookups_missed", 410)];
        assert_eq!(of(lookups, text), expected.map(|(name, n)| (name.to_owned(), n)));
    }
}
