//! The kind `external`, on interfaces of the host.

use super::{Checked, ensure, ports};
use drophammer_lab::{Lab, Where, find};
use drophammer_model::role::RouterRole;
use drophammer_model::suite::{DutConfig, ParamValue, Params};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Two veth pairs on the host, so that the kind `external` has interfaces that are free.
pub struct ExternalLinks;

impl ExternalLinks {
    pub fn make() -> ExternalLinks {
        let made = ExternalLinks;
        made.ip("link add dhx0 type veth peer name dhy0");
        made.ip("link add dhx1 type veth peer name dhy1");
        for name in ["dhx0", "dhx1", "dhy0", "dhy1"] {
            made.ip(&format!("link set {name} up"));
        }
        made
    }

    fn ip(&self, line: &str) {
        assert!(Command::new("ip").args(line.split(' ')).status().unwrap().success(), "ip {line}");
    }
}

impl Drop for ExternalLinks {
    fn drop(&mut self) {
        self.ip("link del dhx0");
        self.ip("link del dhx1");
    }
}

/// The user's own router, here two links that the host holds.
pub fn external(lab: &mut Lab, name: &str, work: &Path) -> Checked {
    let journal = work.join("journal");
    let text = |t: String| ParamValue::Text(t);
    let say = |word: &str| text(format!("echo {word} $PORT_1_IPV4_DUT >> {}", journal.display()));
    let mut params = BTreeMap::from([
        ("interfaces".to_owned(), ParamValue::Texts(vec!["dhx0".into(), "dhx1".into()])),
        ("dut_macs".to_owned(), text("02:00:00:00:00:01 02:00:00:00:00:02".into())),
        ("setup".to_owned(), say("setup")),
        ("teardown".to_owned(), say("teardown")),
        ("counters".to_owned(), text("echo drops 7".into())),
        ("alive".to_owned(), text(format!("test -e {}", journal.display()))),
        ("timeout".to_owned(), ParamValue::Duration(Duration::from_secs(5))),
    ]);
    let kind = find("external").unwrap();
    let mut attempt = |params: &BTreeMap<String, ParamValue>| {
        let config =
            DutConfig { name: "box".into(), kind: "external".into(), params: Params(params.clone()), topology: None };
        kind.bring_up(lab, &config, &RouterRole::of(&ports()), work, &|| false).map_err(|e| e.to_string())
    };
    if name == "external-refused" {
        let mut with = |interface: &str| {
            params.insert("interfaces".into(), ParamValue::Texts(vec!["dhx0".into(), interface.into()]));
            attempt(&params).err().ok_or(format!("{interface} was taken"))
        };
        let error = with("no-such-nic")?;
        ensure(error.contains("no interface no-such-nic") && error.contains("dhx0"), &error)?;
        let default = default_route_interface();
        if let Some(interface) = default {
            let error = with(&interface)?;
            ensure(error.contains("default route"), &error)?;
        }
        // The second port wants 9000 bytes.
        let error = with("dhx1")?;
        ensure(error.contains("MTU of 1500") && error.contains("ip link set dhx1 mtu 9000"), &error)?;
        return ensure(!journal.exists(), "no command ran on a refused interface");
    }
    let mtu = |lab: &Lab, name: &str| lab.in_host_netns(|| fs::read_to_string(format!("/sys/class/net/{name}/mtu")));
    drop(attempt(&params).err());
    let set = lab.in_host_netns(|| Command::new("ip").args(["link", "set", "dhx1", "mtu", "9000"]).status());
    ensure(set.map_err(|e| e.to_string())?.is_ok_and(|s| s.success()), "commands run on the host")?;
    ensure(mtu(lab, "dhx1").map_err(|e| e.to_string())?.is_ok_and(|m| m.trim() == "9000"), "the host's /sys is seen")?;
    let mut attempt = |params: &BTreeMap<String, ParamValue>| {
        let config =
            DutConfig { name: "box".into(), kind: "external".into(), params: Params(params.clone()), topology: None };
        kind.bring_up(lab, &config, &RouterRole::of(&ports()), work, &|| false).map_err(|e| e.to_string())
    };
    let mut dut = attempt(&params)?;
    ensure(dut.interfaces()[1].netns == Where::Host, "on the host")?;
    ensure(dut.interfaces()[1].dut_mac == Some([2, 0, 0, 0, 0, 2]), "MAC address as told")?;
    ensure(!dut.drops_at_tester_tx_are_dut(), "refused frames are the tester's")?;
    dut.check().map_err(|e| e.to_string())?;
    ensure(dut.counters().map_err(|e| e.to_string())?.get("drops") == Some(&7), "counters of the command")?;
    dut.take_down().map_err(|e| e.to_string())?;
    let told = fs::read_to_string(&journal).map_err(|e| e.to_string())?;
    ensure(told == "setup 198.19.1.1/24\nteardown 198.19.1.1/24\n", &told)?;

    params.insert("setup".into(), text("echo no console; exit 7".into()));
    let error = attempt(&params).err().ok_or("a failed setup is taken")?;
    ensure(error.contains("exit status: 7") && error.contains("no console"), &error)?;
    let told = fs::read_to_string(&journal).map_err(|e| e.to_string())?;
    ensure(told.lines().count() == 3, "teardown after a failed setup")
}

fn default_route_interface() -> Option<String> {
    // The scenario is in the lab already; the host's routes are those of its parent.
    let path = PathBuf::from(format!("/proc/{}/net/route", std::os::unix::process::parent_id()));
    let table = fs::read_to_string(path).ok()?;
    table
        .lines()
        .skip(1)
        .map(|l| l.split_whitespace().collect::<Vec<_>>())
        .find(|f| f[1] == "00000000")
        .map(|f| f[0].into())
}
