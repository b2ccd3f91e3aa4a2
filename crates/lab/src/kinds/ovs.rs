//! Open vSwitch as a router: its datapath in user space, static flows from the role, no kernel module.
//!
//! Database and switch run in the router's namespace with their own run folder. The links of the router are ports of
//! one bridge; the kernel of the namespace has the addresses, behind internal ports, and handles what the flows cannot
//! ([`flows`]).

mod counters;
mod flows;

use crate::dut::NamespaceDut;
use crate::environment::kernel_release;
use crate::router::{dut_interface, prefix_of};
use crate::topology::{links_only, silence};
use crate::ttl_model::{TTL_MODEL, is_pipe};
use crate::{Dut, DutKind, Lab, LabError, process};
use drophammer_model::capabilities::{Capabilities, Counters};
use drophammer_model::registry::KindSpec;
use drophammer_model::role::{Interface, RouterRole};
use drophammer_model::suite::DutConfig;
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

/// Most labels of a packet that the switch can match.
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
        let mut lines = vec![format!("link set {name} up")];
        lines.extend(interface.addresses.iter().map(|a| {
            // Duplicate address detection would keep the address silent for a second.
            let no_dad = if a.address.is_ipv6() { " nodad" } else { "" };
            format!("address add {}/{} dev {name}{no_dad}", a.address, a.prefix_len)
        }));
        lines
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
        let unusable = |what: String, remedy: &str| {
            Err(LabError::Unusable { what: format!("`{}` {what}", dut.name), remedy: remedy.into() })
        };
        if let Some(entry) = role.labels.iter().find(|entry| entry.out.len() > MOST_LABELS) {
            let what = format!("cannot give a packet the {} labels of entry {}", entry.out.len(), entry.label);
            return unusable(what, &format!("give at most {MOST_LABELS} labels; Open vSwitch supports no more"));
        }
        if let Some(route) = role.pushed.iter().find(|route| route.out.len() > MOST_LABELS) {
            let (address, length) = route.prefix;
            let what = format!("cannot give packets to {address}/{length} {} labels", route.out.len());
            return unusable(what, &format!("give at most {MOST_LABELS} labels; Open vSwitch supports no more"));
        }
        let popped = role.labels.iter().find(|entry| entry.out.is_empty());
        if let Some(entry) = popped.filter(|_| flows::of_one_family(role).is_none()) {
            let what = format!("cannot take label {} off: nothing says whether IPv4 or IPv6 is behind it", entry.label);
            return unusable(what, "write `ipv4: off` or `ipv6: off` on all ports");
        }
        let slow_path = kernel_lines(role).join("\n") + "\n";
        Ok(vec![("flows.txt".into(), flows::render(role, is_pipe(&dut.params))), ("slow-path.ip".into(), slow_path)])
    }

    fn start(
        &self,
        lab: &mut Lab,
        dut: &DutConfig,
        role: &RouterRole,
        work_dir: &Path,
        stop: &dyn Fn() -> bool,
    ) -> Result<Box<dyn Dut>, LabError> {
        let program = |name: &str, package: &str| process::find(name, package);
        let mut ask = process::command(&program("ovs-vswitchd", SWITCH)?, &lab.shared().mark);
        ask.arg("--version");
        let told = process::output(ask, None)?;
        let version = told.lines().next().unwrap_or_default().replace("ovs-vswitchd (Open vSwitch)", "Open vSwitch");
        let version = format!("{version}, Linux {}", kernel_release());

        let run = lab.shared().fresh_state(&dut.name)?;
        let mut router = NamespaceDut::links(lab, dut, &SPEC, &links_only(role), version)?;
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

        // The kernel threads that receive for the switch have priority over other work and would leave it no time.
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
        // Returns once the switch has made the bridge.
        let words = [vec![format!("--db={database}")], bridge(role)].concat();
        tell(&router, "ovs-vsctl", &words)?;
        // What follows is not in the database: flows, and addresses and routes behind internal ports.
        router.needs_lab();
        let managed = format!("unix:{}", socket(&format!("{BRIDGE}.mgmt")).display());
        let flows = files.join("flows.txt").display().to_string();
        tell(&router, "ovs-ofctl", &["-O".into(), OPENFLOW.into(), "add-flows".into(), managed, flows])?;

        router.netns().ip(&kernel_lines(role))?;
        router.topology.also_counts(Box::new(move |netns, to| counters::read(netns, &run, to)));
        router.ready(stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests_support::{two_ports, two_ports_with_bgp, with_vlans};

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
        let dut =
            DutConfig { name: "switch".into(), kind: SPEC.name.into(), topology: None, params: Default::default() };
        let role = RouterRole::of(&with_vlans(two_ports()));
        let error = Ovs.check(&dut, &role).unwrap_err().to_string();
        assert!(error.contains("`vlan`") && error.contains("kind `ovs`"), "{error}");
        // A kind without BGP plays the rest of the role beside routers with BGP.
        Ovs.check(&dut, &RouterRole::of(&two_ports_with_bgp(1))).unwrap();
    }
}
