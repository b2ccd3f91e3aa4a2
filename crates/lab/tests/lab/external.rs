//! The kind `external`, on interfaces of the host.

use super::{Checked, ensure, ports};
use drophammer_lab::{Asking, Dut, Lab, Where, find};
use drophammer_model::management::Question;
use drophammer_model::role::RouterRole;
use drophammer_model::suite::{DutConfig, ParamValue, Params};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Interval of the questions.
const EACH: Duration = Duration::from_millis(10);

/// Brings the router up.
type Attempt<'a> = dyn FnMut(&BTreeMap<String, ParamValue>) -> Result<Box<dyn Dut>, String> + 'a;

/// Two veth pairs on the host, so that the kind `external` has unused interfaces.
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

/// The user's own router, played by two links of the host.
pub fn external(lab: &mut Lab, name: &str, work: &Path) -> Checked {
    let journal = work.join("journal");
    let text = |t: String| ParamValue::Text(t);
    let say = |word: &str| text(format!("echo {word} $PORT_1_IPV4_DUT >> {}", journal.display()));
    let mut params = BTreeMap::from([
        ("interfaces".to_owned(), ParamValue::Texts(vec!["dhx0".into(), "dhx1".into()])),
        ("dut_macs".to_owned(), text("02:00:00:00:00:01 02:00:00:00:00:02".into())),
        ("setup".to_owned(), say("setup")),
        ("teardown".to_owned(), say("teardown")),
        ("counters".to_owned(), text("echo drops 7; echo t1.rx_packets 123456789012; echo d0.rx_packets 9".into())),
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
        // The second port requires 9000 bytes.
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
    counted(dut.as_mut())?;
    ensure(asking(dut.as_mut(), &[Question::Ping])?.is_empty(), "no management port is known")?;
    dut.take_down().map_err(|e| e.to_string())?;
    let told = fs::read_to_string(&journal).map_err(|e| e.to_string())?;
    ensure(told == "setup 198.19.1.1/24\nteardown 198.19.1.1/24\n", &told)?;

    managed(work, &mut params, &mut attempt)?;
    limited(work, params.clone(), &mut attempt)?;
    fs::write(&journal, told).map_err(|e| e.to_string())?;

    params.insert("setup".into(), text("echo no console; exit 7".into()));
    let error = attempt(&params).err().ok_or("a failed setup is taken")?;
    ensure(error.contains("exit status: 7") && error.contains("no console"), &error)?;
    let told = fs::read_to_string(&journal).map_err(|e| e.to_string())?;
    ensure(told.lines().count() == 3, "teardown after a failed setup")
}

fn asking(dut: &mut dyn Dut, questions: &[Question]) -> Result<Vec<Asking>, String> {
    let management = dut.management().ok_or("it cannot be asked")?;
    management.ask(questions, EACH).map_err(|e| e.to_string())
}

/// The counters come from the command and, for the tester's interfaces, from the kernel.
fn counted(dut: &mut dyn Dut) -> Checked {
    let counters = dut.counters().map_err(|e| e.to_string())?;
    ensure(counters.get("drops") == Some(&7), "counters of the command")?;
    let names: Vec<&str> = counters.keys().map(String::as_str).collect();
    let expected = ["d0.rx_packets", "drops", "t0.rx_packets", "t0.tx_packets", "t1.rx_packets", "t1.tx_packets"];
    ensure(names == expected, &format!("{names:?}"))?;
    ensure(counters["t1.rx_packets"] != 123_456_789_012, "a command does not replace the kernel's counters")?;
    let known = dut.known_counters().map_err(|e| e.to_string())?;
    let [of_router] = known.as_slice() else { return Err(format!("{known:?}")) };
    ensure((of_router.port, of_router.value) == (Some(0), 9), "the tester's interfaces are not the router's")
}

/// The management port of the user's router, played by the loopback of the host.
fn managed(work: &Path, params: &mut BTreeMap<String, ParamValue>, attempt: &mut Attempt<'_>) -> Checked {
    let community = work.join("community");
    fs::write(&community, "of the laboratory\n").map_err(|e| e.to_string())?;
    let mut set = |key: &str, value: &str| params.insert(key.into(), ParamValue::Text(value.into()));
    set("snmp_community_file", &community.display().to_string());
    let refused = |params: &_, attempt: &mut Attempt<'_>| attempt(params).err().ok_or("was taken");
    let error = refused(params, attempt)?;
    ensure(error.contains("no address to ask"), &error)?;
    params.insert("management".into(), ParamValue::Text("router.example".into()));
    let error = refused(params, attempt)?;
    ensure(error.contains("is not an IP address"), &error)?;
    params.insert("management".into(), ParamValue::Text("127.0.0.1".into()));
    let mut dut = attempt(params)?;
    // A router without `ssh: true` is not asked for a banner. This host has no agent that would answer.
    let asking = asking(dut.as_mut(), &[Question::Ping, Question::Ssh, Question::Snmp])?;
    let ended: Vec<_> = asking.into_iter().map(|one| (one.question, one.over.clone(), one.end())).collect();
    let [(Question::Ping, over, pings), (Question::Snmp, _, asked)] = ended.as_slice() else {
        return Err(format!("{ended:?}"));
    };
    ensure(over == "management port 127.0.0.1" && !asked.is_empty(), &format!("{ended:?}"))?;
    ensure(!pings.is_empty() && pings.iter().all(|(_, took)| took.is_some()), &format!("{pings:?}"))?;
    dut.take_down().map_err(|e| e.to_string())?;
    params.retain(|key, _| key != "management" && key != "snmp_community_file");
    Ok(())
}

/// The user's time limit also applies to the commands that run between trials.
fn limited(work: &Path, mut params: BTreeMap<String, ParamValue>, attempt: &mut Attempt<'_>) -> Checked {
    let slow = work.join("slow");
    let command = ParamValue::Text(format!("test ! -e {} || sleep 6", slow.display()));
    params.extend(["alive", "counters"].map(|key| (key.to_owned(), command.clone())));
    params.insert("timeout".into(), ParamValue::Duration(Duration::from_secs(2)));
    let mut dut = attempt(&params)?;
    dut.check().map_err(|e| e.to_string())?;
    dut.counters().map_err(|e| e.to_string())?;
    fs::write(&slow, "").map_err(|e| e.to_string())?;
    ensure(dut.check().is_err(), "`alive` ends at the limit")?;
    ensure(dut.counters().is_err(), "`counters` ends at the limit")?;
    dut.take_down().map_err(|e| e.to_string())?;
    ensure(attempt(&params).is_err(), "`alive` ends at the limit while the router starts")
}

fn default_route_interface() -> Option<String> {
    // The scenario already runs in the lab; its parent has the host's routes.
    let path = PathBuf::from(format!("/proc/{}/net/route", std::os::unix::process::parent_id()));
    let table = fs::read_to_string(path).ok()?;
    table
        .lines()
        .skip(1)
        .map(|l| l.split_whitespace().collect::<Vec<_>>())
        .find(|f| f[1] == "00000000")
        .map(|f| f[0].into())
}
