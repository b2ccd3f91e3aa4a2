//! The user's own router on real interfaces of this machine.

use crate::dut::{TesterInterface, Where, capabilities};
use crate::enter::Shared;
use crate::management::{self, Asking, ManagementPort, Operator};
use crate::wait::{self, Look};
use crate::{Dut, DutKind, LabError, Management, Start, kinds, probe, process};
use drophammer_model::capabilities::{Capabilities, Counters, Placement};
use drophammer_model::counters::{DutCounter, tester_counter, tester_port};
use drophammer_model::environment::DutRecord;
use drophammer_model::label_edge::CoreProtocol;
use drophammer_model::management::Question;
use drophammer_model::registry::{KindSpec, ParamKind, ParamSpec};
use drophammer_model::role::RouterRole;
use drophammer_model::suite::{DutConfig, Mask};
use drophammer_model::trial::Family;
pub use free::refuse_in_use;
use free::refuse_unless_free;
use mib::Mib;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

mod free;
mod logs;
mod mib;

static SPEC: KindSpec = KindSpec {
    name: "external",
    summary: "your own router on real interfaces of this machine or of others, with shell commands as hooks",
    capabilities: Capabilities {
        core: &[CoreProtocol::Ospf, CoreProtocol::Ldp, CoreProtocol::Rsvp, CoreProtocol::Bfd],
        vrfs: true,
        placement: Placement::Host,
        counters: &[Counters::Commands],
        ..Capabilities::BGP_ROUTER
    },
    needs: &[("ip", "iproute2"), ("sh", "dash")],
    params: &[
        ParamSpec::required(
            "interfaces",
            ParamKind::Interfaces,
            "interface of each port, in the order of the ports; host/interface if an agent lends it",
        ),
        ParamSpec::optional(
            "dut_macs",
            ParamKind::Text,
            "MAC addresses of the DUT's ports, separated by spaces, for a DUT that does not answer ARP and ND",
        ),
        ParamSpec::optional(
            "setup",
            ParamKind::Command,
            "command that configures the DUT; it sees the variables DUT_PORTS and PORT_0_...",
        ),
        ParamSpec::optional("teardown", ParamKind::Command, "command that undoes `setup`; it also runs after an error"),
        ParamSpec::optional("counters", ParamKind::Command, "command that prints counters as lines `name value`"),
        ParamSpec::fixed(
            "ssh",
            ParamKind::Flag,
            "false",
            "whether the DUT has an SSH server on its link addresses; tests may read its banner",
        ),
        ParamSpec::optional(
            "management",
            ParamKind::Text,
            "address of the DUT's management port; tests under load also check that it answers there",
        ),
        ParamSpec::optional(
            "snmp_community_file",
            ParamKind::File,
            "file with the SNMP community (version 2c) of the agent at the `management` address, to query sysUpTime",
        ),
        ParamSpec::optional(
            mib::KEY,
            ParamKind::DutInterfaces,
            "ifName or ifDescr of the DUT's interface at each port, to query its counters by SNMP",
        ),
        ParamSpec::optional("alive", ParamKind::Command, "command that succeeds while the DUT works"),
        ParamSpec::new(
            "timeout",
            ParamKind::Duration,
            "60 s",
            "300 s",
            "time limit for each command, and for the links to come up",
        ),
    ],
};

/// The kernel's counters of the tester's interfaces; the report compares them with the tester's own counts.
const KERNEL: [&str; 2] = ["tx_packets", "rx_packets"];

/// Kind `external`.
pub struct External;

impl DutKind for External {
    fn spec(&self) -> &'static KindSpec {
        &SPEC
    }

    fn check(&self, dut: &DutConfig, role: &RouterRole) -> Result<(), LabError> {
        kinds::refuse_unless_able(&SPEC, role)?;
        mib::names(dut, role.interfaces.len())?;
        port_macs(dut, role.interfaces.len())?;
        ManagementPort::of(dut).map(drop)
    }

    fn refuse_host(&self, dut: &DutConfig, role: &RouterRole) -> Result<(), LabError> {
        let names = dut.params.texts("interfaces").unwrap_or_default();
        if all_lent(&names)? {
            return Ok(());
        }
        // A command may bring the links up.
        free::refuse_host(&names, role, dut.params.text("setup").is_none())
    }

    /// None: the user's commands configure it.
    fn configuration(&self, _dut: &DutConfig, _role: &RouterRole) -> Result<Vec<(String, String)>, LabError> {
        Ok(Vec::new())
    }

    fn start(&self, start: Start<'_>) -> Result<Box<dyn Dut>, LabError> {
        let Start { lab, dut, role, work_dir, stop } = start;
        let names = dut.params.texts("interfaces").unwrap_or_default();
        let ports = role.interfaces.len();
        let macs = port_macs(dut, ports)?;
        if names.len() != ports {
            return Err(LabError::unusable(
                format!("{ports} ports, {} interfaces", names.len()),
                "give `interfaces` one entry for each port",
            ));
        }
        let shared = Arc::clone(lab.shared());
        let lent = all_lent(&names)?;
        for (name, interface) in names.iter().zip(&role.interfaces).filter(|_| !lent) {
            refuse_unless_free(&shared, name, interface.mtu)?;
        }
        let interfaces = names.iter().enumerate().map(|(i, name)| TesterInterface {
            name: name.clone(),
            netns: if lent { Where::Agent } else { Where::Host },
            dut_mac: macs.get(i).copied(),
        });
        let limit = dut.params.duration("timeout").unwrap_or(Duration::from_secs(60));
        let mut router = ExternalDut {
            shared,
            name: dut.name.clone(),
            ssh: dut.params.flag("ssh") == Some(true),
            management: ManagementPort::of(dut)?,
            mib: None,
            interfaces: interfaces.collect(),
            hooks: ["setup", "teardown", "counters", "alive"]
                .into_iter()
                .filter_map(|key| Some((key, dut.params.text(key)?)))
                .collect(),
            environment: environment(&names, role),
            mask: role.mask(),
            work_dir: work_dir.to_path_buf(),
            limit,
            torn_down: false,
        };
        router.refuse_unless_it_can_be_pinged()?;
        router.must("setup", stop)?;
        wait::until(limit, stop, || match router.link_down()? {
            Some(name) => Ok(Look::NotYet(format!("{name} has no carrier"))),
            None if !router.hook("alive", stop)?.is_none_or(|status| status.success()) => {
                Ok(Look::NotYet(format!("the command `alive` fails{}", router.log_of("alive"))))
            }
            None => Ok(Look::Ready(())),
        })?;
        let names = mib::names(dut, ports)?;
        router.mib = Mib::begin(&router.shared, router.management.as_ref(), names, limit, stop)?;
        Ok(Box::new(router))
    }
}

struct ExternalDut {
    shared: Arc<Shared>,
    name: String,
    ssh: bool,
    management: Option<ManagementPort>,
    /// The router's SNMP agent and the interfaces it reports, if the suite asks for SNMP counters.
    mib: Option<Mib>,
    interfaces: Vec<TesterInterface>,
    hooks: BTreeMap<&'static str, String>,
    environment: Vec<(String, String)>,
    mask: Mask,
    work_dir: PathBuf,
    /// Time limit of each command. It also applies between trials, because a router may answer slowly after a flood.
    limit: Duration,
    torn_down: bool,
}

/// True if the interfaces are on other hosts, false if they are on this one.
fn all_lent(names: &[String]) -> Result<bool, LabError> {
    let lent = names.iter().filter(|name| name.contains('/')).count();
    match names.iter().find(|name| !name.contains('/')) {
        Some(own) if lent > 0 => Err(LabError::unusable(
            format!("{own} is on this machine, and other interfaces are on other hosts"),
            format!("start `drophammer agent` on this machine too, and write HOST/{own}"),
        )),
        _ => Ok(lent > 0),
    }
}

/// Hides secrets in an error: the user's command may contain a secret from a variable of the suite.
fn masked(mask: &Mask, error: LabError) -> LabError {
    let hide = |text: String| mask.text(&text).into_owned();
    match error {
        LabError::Command { command, status, output } => {
            LabError::Command { command: hide(command), status, output: hide(output) }
        }
        LabError::Io { what, source } => LabError::Io { what: hide(what), source },
        LabError::NotReady { condition, seconds, log } => {
            LabError::NotReady { condition: hide(condition), seconds, log: hide(log) }
        }
        other => other,
    }
}

impl ExternalDut {
    /// Runs the user's command of this name, if any, on the host, and removes secrets from its log.
    fn hook(&self, key: &str, stop: &dyn Fn() -> bool) -> Result<Option<ExitStatus>, LabError> {
        let status = self.unmasked(key, stop);
        let log = self.log(key);
        let hidden = logs::mask(&self.mask, &log).map_err(LabError::file("hide a key in", &log));
        let status = status?;
        hidden.map(|()| status)
    }

    /// Like [`ExternalDut::hook`], but leaves secrets in the log.
    fn unmasked(&self, key: &str, stop: &dyn Fn() -> bool) -> Result<Option<ExitStatus>, LabError> {
        let Some(text) = self.hooks.get(key) else { return Ok(None) };
        let log = &self.log(key);
        // `stop` cannot move to the other thread, so we poll it here while that thread runs.
        let stopped = std::sync::atomic::AtomicBool::new(false);
        let flag = &stopped;
        let (done, finished) = std::sync::mpsc::channel();
        let result = std::thread::scope(|scope| {
            let worker = scope.spawn(move || {
                let stop = || flag.load(std::sync::atomic::Ordering::Relaxed);
                let run = || process::shell(text, &self.shared.mark, &self.environment, log, self.limit, &stop);
                let result = self.shared.on_host(run).and_then(|r| r);
                // The receiver is gone only if this thread is already being joined.
                let _ = done.send(());
                result
            });
            while finished.recv_timeout(Duration::from_millis(20)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                if stop() {
                    stopped.store(true, std::sync::atomic::Ordering::Relaxed);
                }
            }
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        result.map(Some).map_err(|e| masked(&self.mask, e))
    }

    /// Runs a command of the user that must succeed.
    fn must(&self, key: &str, stop: &dyn Fn() -> bool) -> Result<(), LabError> {
        let status = self.hook(key, stop)?;
        self.succeeded(key, status)
    }

    fn succeeded(&self, key: &str, status: Option<ExitStatus>) -> Result<(), LabError> {
        match status {
            Some(status) if !status.success() => Err(masked(
                &self.mask,
                LabError::Command {
                    command: format!("{key}: {}", self.hooks.get(key).map(String::as_str).unwrap_or_default()),
                    status: status.to_string(),
                    output: self.log_of(key),
                },
            )),
            _ => Ok(()),
        }
    }

    fn log(&self, key: &str) -> PathBuf {
        self.work_dir.join(format!("{key}.log"))
    }

    fn log_of(&self, key: &str) -> String {
        let text = self.mask.text(&process::tail(&self.log(key))).into_owned();
        if text.is_empty() { text } else { format!("\n{text}") }
    }

    /// Pings to the management port need a route and the host's permission.
    fn refuse_unless_it_can_be_pinged(&self) -> Result<(), LabError> {
        let Some(ManagementPort { address, .. }) = &self.management else { return Ok(()) };
        match self.shared.on_host(|| management::cannot_ping(*address))? {
            None => Ok(()),
            Some(e) => Err(LabError::unusable(
                format!("the host cannot ping {address}: {e}"),
                format!("see `ip route get {address}`, or leave `management` out"),
            )),
        }
    }

    fn link_down(&self) -> Result<Option<String>, LabError> {
        let own = || self.interfaces.iter().filter(|i| i.netns == Where::Host);
        self.shared.on_host(|| own().find(|i| !free::has_link(&i.name)).map(|i| i.name.clone()))
    }

    /// The kernel's counters of the tester's interfaces, under the names of the lab's interfaces. Empty if any of them
    /// cannot be read: a partial set would look complete.
    fn kernel_counters(&self) -> Result<BTreeMap<String, u64>, LabError> {
        self.shared.on_host(|| {
            let read = |port: usize, interface: &TesterInterface, counter: &str| {
                Some((
                    tester_counter(port, counter),
                    probe::interface_counter(Path::new(probe::OWN), &interface.name, counter).ok()?,
                ))
            };
            let of =
                |(port, interface): (usize, &TesterInterface)| KERNEL.map(|counter| read(port, interface, counter));
            let all: Option<BTreeMap<String, u64>> = self.interfaces.iter().enumerate().flat_map(of).collect();
            all.unwrap_or_default()
        })
    }

    /// The counters that the command `counters` prints, if there is one.
    fn told_counters(&self) -> Result<BTreeMap<String, u64>, LabError> {
        if !self.hooks.contains_key("counters") {
            return Ok(BTreeMap::new());
        }
        let status = self.unmasked("counters", &|| false);
        let log = self.log("counters");
        // A secret may be part of a value, so read the values before hiding secrets.
        let text = logs::read(&log).map_err(LabError::file("read", &log));
        logs::mask(&self.mask, &log).map_err(LabError::file("hide a key in", &log))?;
        self.succeeded("counters", status?)?;
        Ok(parse_counters(&text?, &self.mask))
    }

    fn tear_down(&mut self) -> Result<(), LabError> {
        if std::mem::replace(&mut self.torn_down, true) {
            return Ok(());
        }
        let done = self.must("teardown", &|| false);
        // Processes that outlive their command may have written to the log since then, and may write again.
        let close = |key: &&str| {
            let log = self.log(key);
            logs::close(&self.mask, &log).map_err(LabError::file("hide a key in", &log))
        };
        let closed: Vec<_> = self.hooks.keys().map(close).collect();
        done.and(closed.into_iter().collect())
    }
}

impl Drop for ExternalDut {
    fn drop(&mut self) {
        let _ = self.tear_down();
    }
}

impl Dut for ExternalDut {
    capabilities!(management: Management);

    fn interfaces(&self) -> &[TesterInterface] {
        &self.interfaces
    }

    fn record(&self) -> DutRecord {
        DutRecord {
            name: self.name.clone(),
            kind: SPEC.name.into(),
            version: "not known to the tester".into(),
            confinement: format!(
                "own hardware on interfaces {} of {}",
                self.interfaces.iter().map(|i| i.name.as_str()).collect::<Vec<_>>().join(", "),
                if self.interfaces.iter().any(|i| i.netns == Where::Agent) { "other hosts" } else { "the host" }
            ),
            config: self
                .hooks
                .iter()
                .map(|(key, text)| ((*key).to_owned(), self.mask.text(text).into_owned()))
                .chain(self.mib.as_ref().map(Mib::record))
                .collect(),
            ..DutRecord::default()
        }
    }

    fn check(&mut self) -> Result<(), LabError> {
        if let Some(name) = self.link_down()? {
            self.shared.on_host(|| free::refuse_down(&name))??;
            return Err(LabError::unusable(format!("{name} lost its carrier"), "check the cable and the router"));
        }
        self.must("alive", &|| false)
    }

    fn counters(&mut self) -> Result<BTreeMap<String, u64>, LabError> {
        // Read them before the command, which may take a long time: the tester counts frames that arrive meanwhile
        // towards the next trial, not towards the one that has ended.
        let kernel = self.kernel_counters()?;
        let mut counters = self.told_counters()?;
        counters.retain(|name, _| KERNEL.iter().all(|counter| tester_port(name, counter).is_none()));
        counters.extend(kernel);
        Ok(counters)
    }

    /// From the user's command and from the SNMP agent.
    fn known_counters(&mut self) -> Result<Vec<DutCounter>, LabError> {
        let mut all = DutCounter::all_of("command", &self.counters()?);
        if let Some(mib) = &mut self.mib {
            all.extend(mib.counters(&self.shared)?);
        }
        Ok(all)
    }

    /// The user's command decides which counters it prints.
    fn counters_begin_at_zero(&self) -> bool {
        false
    }

    fn take_down(mut self: Box<Self>) -> Result<(), LabError> {
        self.tear_down()
    }
}

impl Management for ExternalDut {
    fn ask(&mut self, questions: &[Question], interval: Duration) -> Result<Vec<Asking>, LabError> {
        let Some(ManagementPort { address, community }) = &self.management else { return Ok(Vec::new()) };
        let (netns, cpu) = (self.shared.host_netns()?, self.shared.cpus.for_questions());
        let operator = Operator { netns, cpu, over: format!("management port {address}") };
        let possible = |question: &&Question| match question {
            Question::Ping => true,
            Question::Ssh => self.ssh,
            Question::Snmp => community.is_some(),
        };
        let community = community.as_deref().unwrap_or_default();
        let asked = questions.iter().filter(possible);
        asked.map(|question| operator.ask(*question, *address, community, interval)).collect()
    }

    fn has_ssh(&self) -> bool {
        self.ssh
    }
}

/// Parses lines `name value`, and skips others. Hides secrets in names, because the record contains the names.
fn parse_counters(text: &str, mask: &Mask) -> BTreeMap<String, u64> {
    let pair = |line: &str| {
        let (name, value) = line.trim().rsplit_once(char::is_whitespace)?;
        Some((mask.text(name.trim()).into_owned(), value.parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

/// The MAC addresses of the DUT's ports that the suite gives: one for each port, or none.
fn port_macs(dut: &DutConfig, ports: usize) -> Result<Vec<[u8; 6]>, LabError> {
    let macs = macs(&dut.params.text("dut_macs").unwrap_or_default())?;
    if !macs.is_empty() && macs.len() != ports {
        return Err(LabError::unusable(
            format!("`dut_macs` of `{}` has {} addresses, but the suite has {ports} ports", dut.name, macs.len()),
            "give `dut_macs` one address for each port, or leave it out",
        ));
    }
    Ok(macs)
}

/// MAC addresses separated by spaces or commas.
fn macs(text: &str) -> Result<Vec<[u8; 6]>, LabError> {
    let words = text.split([' ', ',']).filter(|w| !w.is_empty());
    words
        .map(|word| {
            let bytes: Option<Vec<u8>> =
                word.split(':').map(|b| (b.len() == 2).then(|| u8::from_str_radix(b, 16).ok())?).collect();
            bytes.and_then(|b| <[u8; 6]>::try_from(b).ok()).ok_or_else(|| {
                LabError::unusable(
                    format!("`{word}` in dut_macs is not a MAC address"),
                    "write it as 02:00:00:00:00:01",
                )
            })
        })
        .collect()
}

/// Environment variables of the user's commands: `DUT_PORTS`; the interface, addresses and routes of each port; the
/// same for each VLAN sub-interface, and its tags. With BGP also the AS numbers, the Hold Time and the number of peers.
fn environment(names: &[String], role: &RouterRole) -> Vec<(String, String)> {
    let mut variables = vec![("DUT_PORTS".to_owned(), role.interfaces.len().to_string())];
    if let Some(bgp) = &role.bgp {
        variables.push(("DUT_AS".to_owned(), bgp.asn.to_string()));
        variables.push(("DUT_HOLD_TIME".to_owned(), bgp.hold.as_secs().to_string()));
        if let Some(key) = &bgp.protection.md5 {
            variables.push(("DUT_MD5".to_owned(), key.expose().to_owned()));
        }
        if bgp.protection.gtsm {
            variables.push(("DUT_GTSM".to_owned(), "1".to_owned()));
        }
    }
    for (at, tags, addresses) in role.places() {
        let prefix = match at.vlan {
            None => format!("PORT_{}", at.port),
            Some(i) => format!("PORT_{}_VLAN_{i}", at.port),
        };
        let mut add = |name: &str, value: String| variables.push((format!("{prefix}_{name}"), value));
        if at.vlan.is_some() {
            let tags: Vec<String> = tags.iter().map(|t| format!("{:#06x}:{}", t.tpid, t.vid)).collect();
            add("TAGS", tags.join(" "));
        } else {
            add("INTERFACE", names.get(at.port).cloned().unwrap_or_default());
            add("VLANS", role.interfaces[at.port].vlans.len().to_string());
        }
        let groups = || role.bgp.iter().flat_map(|bgp| &bgp.groups).filter(|g| g.at == at);
        if let Some(group) = groups().next() {
            add("AS", group.asn.to_string());
        }
        for (family, short) in [(Family::Ipv4, "IPV4"), (Family::Ipv6, "IPV6")] {
            let ipv4 = family == Family::Ipv4;
            if let Some(a) = addresses.iter().find(|a| a.address.is_ipv4() == ipv4) {
                add(&format!("{short}_DUT"), format!("{}/{}", a.address, a.prefix_len));
            }
            if let Some(route) = role.routes.iter().find(|r| r.at == at && r.via.is_ipv4() == ipv4) {
                add(&format!("{short}_HOST"), route.via.to_string());
                add(&format!("{short}_BEHIND"), format!("{}/{}", route.prefix.0, route.prefix.1));
            }
            if let Some(group) = groups().find(|g| g.family == family) {
                add(&format!("{short}_PEERS"), group.peers.len().to_string());
            }
        }
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::free::objection;
    use super::*;
    use crate::kinds::tests_support;
    use drophammer_model::suite::{ParamValue, Params};
    use serde_json::{Value, json};

    fn link(name: &str) -> Value {
        json!({"ifname": name, "flags": ["BROADCAST", "UP"], "mtu": 1500, "addr_info": [{"local": "fe80::1", "scope": "link"}]})
    }

    #[test]
    fn a_free_interface_is_taken() {
        let routes = [json!({"dst": "fe80::/64", "dev": "eth1"}), json!({"dst": "default", "dev": "eth0"})];
        assert_eq!(objection("eth1", 1500, &[link("eth1")], &routes), None);
    }

    #[test]
    fn an_interface_in_use_is_refused_with_a_remedy() {
        let with = |key: &str, value: Value| {
            let mut l = link("eth1");
            l[key] = value;
            l
        };
        let default = vec![json!({"dst": "default", "dev": "eth1"})];
        let multipath = vec![json!({"dst": "default", "nexthops": [{"dev": "eth0"}, {"dev": "eth1"}]})];
        let route = vec![json!({"dst": "10.0.0.0/8", "dev": "eth1"})];
        let address = with("addr_info", json!([{"local": "192.0.2.1", "scope": "global"}]));
        for (link, routes, word) in [
            (link("eth1"), default, "default route"),
            (link("eth1"), multipath, "default route"),
            (link("eth1"), route, "10.0.0.0/8"),
            (address, vec![], "192.0.2.1"),
            (with("master", json!("br0")), vec![], "br0"),
            (with("flags", json!(["BROADCAST"])), vec![], "down"),
            (with("mtu", json!(1400)), vec![], "1400"),
            (link("eth2"), vec![], "no interface eth1"),
        ] {
            let (what, remedy) = objection("eth1", 1500, &[link], &routes).expect(word);
            assert!(what.contains(word), "{what}");
            assert!(!remedy.is_empty());
            assert!(!remedy.contains("flush") && !remedy.contains("nomaster"), "no command that could harm: {remedy}");
        }
        let mut loopback = with("addr_info", json!([{"local": "127.0.0.1", "scope": "host"}]));
        loopback["flags"] = json!(["LOOPBACK", "UP"]);
        let (what, _) = objection("eth1", 1500, &[loopback], &[]).unwrap();
        assert!(what.contains("is the loopback interface"), "{what}");
    }

    #[test]
    fn mac_addresses() {
        let two = macs("02:00:00:00:00:01, 02:00:00:00:00:Ff").unwrap();
        assert_eq!(two, [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 255]]);
        assert!(macs("").unwrap().is_empty());
        for bad in ["02:00", "02:00:00:00:00:0g", "2:0:0:0:0:1", "02:00:00:00:00:01:02"] {
            assert!(macs(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn wrong_mac_addresses_are_refused_before_the_run() {
        let check = |macs: &str| {
            let mut params = Params::default();
            params.0.insert("dut_macs".into(), ParamValue::Text(macs.into()));
            let dut = tests_support::dut("box", SPEC.name, params);
            External.check(&dut, &RouterRole::of(&tests_support::two_ports())).map_err(|e| e.to_string())
        };
        check("02:00:00:00:00:01 02:00:00:00:00:02").unwrap();
        let error = check("02:00:00:00:00:0g nonsense").unwrap_err();
        assert!(error.contains("`02:00:00:00:00:0g` in dut_macs is not a MAC address"), "{error}");
        let error = check("02:00:00:00:00:01").unwrap_err();
        assert!(error.contains("`dut_macs` of `box` has 1 addresses, but the suite has 2 ports"), "{error}");
    }

    #[test]
    fn counters_are_lines_of_name_and_value() {
        let found = parse_counters("# uptime 3 days\nge-0/0/0 in drops 12\ntx\t9\nbroken\n", &Mask::default());
        assert_eq!(found, BTreeMap::from([("ge-0/0/0 in drops".into(), 12), ("tx".into(), 9)]));
        let found = parse_counters("rx 14711\nsession 4711 resets 2\n", &Mask::of(["4711"]));
        assert_eq!(found, BTreeMap::from([("rx".into(), 14_711), ("session <secret> resets".into(), 2)]));
    }

    fn variables(ports: &[drophammer_model::suite::PortConfig]) -> BTreeMap<String, String> {
        environment(&["eth1".into(), "eth2".into()], &RouterRole::of(ports)).into_iter().collect()
    }

    #[test]
    fn commands_see_the_role() {
        let variables = variables(&tests_support::two_ports());
        assert_eq!(variables["PORT_0_IPV4_DUT"], "198.18.1.1/24");
        assert_eq!(variables["PORT_1_IPV6_BEHIND"], "2001:2:0:c000::/50");
        assert_eq!(variables["PORT_1_INTERFACE"], "eth2");
        assert!(variables.keys().all(|key| !key.ends_with("_AS") && !key.ends_with("_PEERS")));
    }

    #[test]
    fn commands_see_the_neighbours() {
        let plain = variables(&tests_support::two_ports_with_bgp(5));
        assert_eq!((&*plain["DUT_AS"], &*plain["DUT_HOLD_TIME"]), ("65000", "90"));
        assert_eq!((&*plain["PORT_0_AS"], &*plain["PORT_1_AS"]), ("65001", "65002"));
        assert_eq!((&*plain["PORT_0_IPV4_PEERS"], &*plain["PORT_1_IPV6_PEERS"]), ("5", "5"));
        assert!(!plain.contains_key("DUT_MD5") && !plain.contains_key("DUT_GTSM"));
        let variables = variables(&tests_support::two_protected_ports());
        assert_eq!((&*variables["DUT_MD5"], &*variables["DUT_GTSM"]), ("sesame", "1"));
    }

    #[test]
    fn commands_see_the_sub_interfaces() {
        let variables = variables(&tests_support::with_vlans(tests_support::two_ports()));
        assert_eq!((&*variables["PORT_0_VLANS"], &*variables["PORT_1_VLANS"]), ("3", "0"));
        assert_eq!(variables["PORT_0_VLAN_1_TAGS"], "0x88a8:100 0x8100:200");
        assert_eq!(variables["PORT_0_VLAN_1_IPV4_DUT"], "198.18.32.33/27");
        assert_eq!(variables["PORT_0_VLAN_2_IPV4_BEHIND"], "198.18.48.128/26");
        assert!(!variables.contains_key("PORT_0_VLAN_0_IPV6_DUT"));
    }

    #[test]
    fn the_key_of_a_session_is_in_no_record_and_no_error() {
        let mask = RouterRole::of(&tests_support::two_protected_ports()).mask();
        assert_eq!(mask.text("./set --key sesame --as 1"), "./set --key <secret> --as 1");
        let error = LabError::Command {
            command: "setup: ./set sesame".into(),
            status: "exit status: 1".into(),
            output: "\n    sesame is too short".into(),
        };
        let error = masked(&mask, error).to_string();
        assert_eq!(error, "`setup: ./set <secret>` failed (exit status: 1): \n    <secret> is too short");
        let error =
            LabError::NotReady { condition: "`x sesame` still runs".into(), seconds: 1.0, log: "\nsesame".into() };
        assert!(!masked(&mask, error).to_string().contains("sesame"));
        assert_eq!(RouterRole::of(&tests_support::two_ports()).mask().text("sesame"), "sesame");
    }
}
