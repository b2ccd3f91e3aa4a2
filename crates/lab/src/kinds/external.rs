//! The user's own router on real interfaces of this machine.

use crate::dut::{TesterInterface, Where};
use crate::enter::Shared;
use crate::management::{self, ManagementPort};
use crate::wait::{self, Look};
use crate::{Dut, DutKind, Lab, LabError, Management, kinds, probe, process};
use drophammer_model::capabilities::{Capabilities, Counters, Placement, Vlans};
use drophammer_model::counters::{DutCounter, tester_counter, tester_port};
use drophammer_model::environment::DutRecord;
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

#[path = "external_free.rs"]
mod free;
#[path = "external_logs.rs"]
mod logs;
#[path = "external_mib.rs"]
mod mib;
#[path = "external_questions.rs"]
mod questions;

static SPEC: KindSpec = KindSpec {
    name: "external",
    summary: "your own router on real interfaces of this machine, with shell commands as hooks",
    capabilities: Capabilities {
        bgp: true,
        bgp_forwarding: true,
        bgp_protection: true,
        vlans: Vlans::Own,
        vlan_tags: 2,
        placement: Placement::Host,
        counters: &[Counters::Commands],
        ..Capabilities::ROUTER
    },
    needs: &[("ip", "iproute2"), ("sh", "dash")],
    params: &[
        ParamSpec::required("interfaces", ParamKind::Interfaces, "interface of each port, in the order of the ports"),
        ParamSpec::optional(
            "dut_macs",
            ParamKind::Text,
            "MAC addresses of the DUT's ports, separated by spaces, for a DUT that answers no ARP and ND",
        ),
        ParamSpec::optional(
            "setup",
            ParamKind::Command,
            "command that configures the DUT; sees DUT_PORTS and PORT_0_...",
        ),
        ParamSpec::optional("teardown", ParamKind::Command, "command that undoes it, also after an error"),
        ParamSpec::optional("counters", ParamKind::Command, "command that writes lines `name value`"),
        ParamSpec::new(
            "ssh",
            ParamKind::Flag,
            "false",
            "false",
            "it has an SSH server at its addresses on the links, which tests may ask for its banner",
        ),
        ParamSpec::optional(
            "management",
            ParamKind::Text,
            "address of its management port, where it is also asked whether it answers under load",
        ),
        ParamSpec::optional(
            "snmp_community_file",
            ParamKind::File,
            "file with the community of its SNMP agent (version 2c) at that address, which is then asked for sysUpTime",
        ),
        ParamSpec::optional(
            mib::KEY,
            ParamKind::DutInterfaces,
            "ifName or ifDescr of its interface at each port, whose counters its SNMP agent is then asked for",
        ),
        ParamSpec::optional("alive", ParamKind::Command, "command that succeeds while the DUT is well"),
        ParamSpec::new(
            "timeout",
            ParamKind::Duration,
            "60 s",
            "300 s",
            "time in which each command and link must be done",
        ),
    ],
};

/// The kernel's counters of the tester's interfaces that the report compares with the tester's own counts.
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
        ManagementPort::of(dut).map(drop)
    }

    fn refuse_host(&self, dut: &DutConfig, role: &RouterRole) -> Result<(), LabError> {
        let names = dut.params.texts("interfaces").unwrap_or_default();
        // A command may bring the links up.
        free::refuse_host(&names, role, dut.params.text("setup").is_none())
    }

    /// The user's commands configure it.
    fn configuration(&self, _dut: &DutConfig, _role: &RouterRole) -> Result<Vec<(String, String)>, LabError> {
        Ok(Vec::new())
    }

    fn start(
        &self,
        lab: &mut Lab,
        dut: &DutConfig,
        role: &RouterRole,
        work_dir: &Path,
        stop: &dyn Fn() -> bool,
    ) -> Result<Box<dyn Dut>, LabError> {
        let names = dut.params.texts("interfaces").unwrap_or_default();
        let macs = macs(&dut.params.text("dut_macs").unwrap_or_default())?;
        let ports = role.interfaces.len();
        if names.len() != ports || !(macs.is_empty() || macs.len() == ports) {
            return Err(LabError::Unusable {
                what: format!("{ports} ports, {} interfaces, {} MAC addresses", names.len(), macs.len()),
                remedy: "give `interfaces` one entry for each port, and `dut_macs` as many or none".into(),
            });
        }
        let shared = Arc::clone(lab.shared());
        for (name, interface) in names.iter().zip(&role.interfaces) {
            refuse_unless_free(&shared, name, interface.mtu)?;
        }
        let interfaces = names.iter().enumerate().map(|(i, name)| TesterInterface {
            name: name.clone(),
            netns: Where::Host,
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
    /// Its SNMP agent and its interfaces there, if it is to be asked for counters.
    mib: Option<Mib>,
    interfaces: Vec<TesterInterface>,
    hooks: BTreeMap<&'static str, String>,
    environment: Vec<(String, String)>,
    mask: Mask,
    work_dir: PathBuf,
    /// Time limit of each command, also between trials: a router may answer slowly after a flood.
    limit: Duration,
    torn_down: bool,
}

/// The error without secrets, which a command of the user may contain by a variable of the suite.
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
    /// Runs a command of the user on the host; `None` if there is none of this name. Its log has no secrets afterwards.
    fn hook(&self, key: &str, stop: &dyn Fn() -> bool) -> Result<Option<ExitStatus>, LabError> {
        let status = self.unmasked(key, stop);
        let log = self.log(key);
        let hidden = logs::mask(&self.mask, &log).map_err(LabError::file("hide a key in", &log));
        let status = status?;
        hidden.map(|()| status)
    }

    /// As [`ExternalDut::hook`], but the log is as the command wrote it.
    fn unmasked(&self, key: &str, stop: &dyn Fn() -> bool) -> Result<Option<ExitStatus>, LabError> {
        let Some(text) = self.hooks.get(key) else { return Ok(None) };
        let log = &self.log(key);
        // `stop` cannot move to the other thread, so it is polled here while that thread runs.
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

    /// Pings to the management port need a route, and the host's permission.
    fn refuse_unless_it_can_be_pinged(&self) -> Result<(), LabError> {
        let Some(ManagementPort { address, .. }) = &self.management else { return Ok(()) };
        match self.shared.on_host(|| management::cannot_ping(*address))? {
            None => Ok(()),
            Some(e) => Err(LabError::Unusable {
                what: format!("the host cannot ping {address}: {e}"),
                remedy: format!("see `ip route get {address}`, or leave `management` out"),
            }),
        }
    }

    fn link_down(&self) -> Result<Option<String>, LabError> {
        self.shared.on_host(|| self.interfaces.iter().find(|i| !free::has_link(&i.name)).map(|i| i.name.clone()))
    }

    /// The kernel's counters of the tester's interfaces, named as those of the lab's interfaces. None at all if one of
    /// them cannot be read: the rest would look like the whole.
    fn kernel_counters(&self) -> Result<BTreeMap<String, u64>, LabError> {
        self.shared.on_host(|| {
            let read = |port: usize, interface: &TesterInterface, counter: &str| {
                Some((tester_counter(port, counter), probe::own_counter(&interface.name, counter).ok()?))
            };
            let of =
                |(port, interface): (usize, &TesterInterface)| KERNEL.map(|counter| read(port, interface, counter));
            let all: Option<BTreeMap<String, u64>> = self.interfaces.iter().enumerate().flat_map(of).collect();
            all.unwrap_or_default()
        })
    }

    /// What the command `counters` prints; nothing without one.
    fn told_counters(&self) -> Result<BTreeMap<String, u64>, LabError> {
        if !self.hooks.contains_key("counters") {
            return Ok(BTreeMap::new());
        }
        let status = self.unmasked("counters", &|| false);
        let log = self.log("counters");
        // A secret may be a part of a value, so they are read before secrets are hidden.
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
        // Processes that the commands have left may have written since, and may do so later.
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
    fn interfaces(&self) -> &[TesterInterface] {
        &self.interfaces
    }

    fn record(&self) -> DutRecord {
        DutRecord {
            name: self.name.clone(),
            kind: SPEC.name.into(),
            version: "not known to the tester".into(),
            confinement: format!(
                "own hardware on interfaces {} of the host",
                self.interfaces.iter().map(|i| i.name.as_str()).collect::<Vec<_>>().join(", ")
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
            return Err(LabError::Unusable {
                what: format!("{name} lost its carrier"),
                remedy: "check the cable and the router".into(),
            });
        }
        self.must("alive", &|| false)
    }

    fn counters(&mut self) -> Result<BTreeMap<String, u64>, LabError> {
        // Before the command, which may take long: the tester counts frames that arrive meanwhile for the trial that
        // follows, and not for the one that has ended.
        let kernel = self.kernel_counters()?;
        let mut counters = self.told_counters()?;
        counters.retain(|name, _| KERNEL.iter().all(|counter| tester_port(name, counter).is_none()));
        counters.extend(kernel);
        Ok(counters)
    }

    /// Those of the user's command, and those of the SNMP agent.
    fn known_counters(&mut self) -> Result<Vec<DutCounter>, LabError> {
        let mut all = DutCounter::all_of("command", &self.counters()?);
        if let Some(mib) = &mut self.mib {
            all.extend(mib.counters(&self.shared)?);
        }
        Ok(all)
    }

    /// The command decides which counters it writes.
    fn counters_begin_at_zero(&self) -> bool {
        false
    }

    fn management(&mut self) -> Option<&mut dyn Management> {
        Some(self)
    }

    fn take_down(mut self: Box<Self>) -> Result<(), LabError> {
        self.tear_down()
    }
}

/// Parses lines `name value`; others are skipped. Names are recorded, so secrets in them are hidden.
fn parse_counters(text: &str, mask: &Mask) -> BTreeMap<String, u64> {
    let pair = |line: &str| {
        let (name, value) = line.trim().rsplit_once(char::is_whitespace)?;
        Some((mask.text(name.trim()).into_owned(), value.parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

/// MAC addresses separated by spaces or commas.
fn macs(text: &str) -> Result<Vec<[u8; 6]>, LabError> {
    let words = text.split([' ', ',']).filter(|w| !w.is_empty());
    words
        .map(|word| {
            let bytes: Option<Vec<u8>> =
                word.split(':').map(|b| (b.len() == 2).then(|| u8::from_str_radix(b, 16).ok())?).collect();
            bytes.and_then(|b| <[u8; 6]>::try_from(b).ok()).ok_or_else(|| LabError::Unusable {
                what: format!("`{word}` in dut_macs is no MAC address"),
                remedy: "write it as 02:00:00:00:00:01".into(),
            })
        })
        .collect()
}

/// Environment of the user's commands: `DUT_PORTS`, and per port its interface, addresses and routes, the same per VLAN
/// sub-interface with its tags; with BGP also the AS numbers, the Hold Time and the number of peers.
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
#[path = "external_tests.rs"]
mod tests;
