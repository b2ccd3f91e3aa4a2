//! A guest from the outside: starts it, connects its links to the tester, queries it, ends it.

use super::{Job, Routing, SPEC, agent};
use crate::dut::{Classes, SystemMember, TesterInterface, Usage, await_no_idle, capabilities};
use crate::links::{Ends, Links, silence, tap_lines};
use crate::probe::ThreadTimes;
use crate::process::{self, Daemon};
use crate::program::flatten;
use crate::wait::{self, Look};
use crate::{Dut, Lab, LabError, bgp, configuration, confine, label_edge, probe, router};
use drophammer_model::classes::EgressClasses;
use drophammer_model::environment::DutRecord;
use drophammer_model::role::RouterRole;
use drophammer_model::router_interfaces::RouterInterface;
use drophammer_model::suite::DutConfig;
use drophammer_model::trial::Family;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time limit for a guest to get ready: it boots in 3 s on an idle machine.
const READY: Duration = Duration::from_secs(60);
/// Additional time for each BGP neighbour.
const NEIGHBOUR: Duration = Duration::from_millis(150);
/// Pause between two checks of what a guest lacks, as a multiple of the duration of a check: a check costs the guest
/// processor time, and more with more routes.
const LOOKING: u32 = 5;
/// Milliseconds between two ARP requests for the guest's address on the management network.
const NEIGHBOUR_AGAIN_MS: &str = "200";
/// Device that makes taps.
const TAPS: &str = "/dev/net/tun";
/// Bytes of each arriving frame that neither the driver of the guest's interfaces nor a veth interface with NAPI counts:
/// the Ethernet header.
const UNCOUNTED_HEADER: u64 = 14;
/// Folder of the modules of Debian's kernel, one subfolder per version.
const MODULES: &str = "/usr/lib/uml/modules";

/// Time limit for a guest to end after we ask it to halt.
const HALT: Duration = Duration::from_secs(3);

/// Parameters for the start of a guest.
pub(super) struct Boot<'a> {
    pub(super) kernel: &'a Path,
    /// In MiB.
    pub(super) memory: u64,
    pub(super) job: Job,
    /// Its links to the tester.
    pub(super) links: Links,
    /// Its configuration files without secrets, for the record.
    pub(super) kept: Vec<(String, String)>,
}

/// A running guest.
pub(super) struct UmlDut {
    daemon: Option<Daemon>,
    ends: Ends,
    record: DutRecord,
    role: RouterRole,
    routing: Routing,
    /// Time of the next check, and what the guest lacked at the last one.
    lacked: Option<(Instant, String)>,
}

/// Refuses the router if this process is not permitted to make taps.
pub(super) fn refuse_without_taps() -> Result<(), LabError> {
    let opened = OpenOptions::new().read(true).write(true).open(TAPS);
    opened.map(drop).map_err(|e| {
        LabError::forbidden(
            format!("a router of kind `{}` needs taps, but {TAPS} cannot be opened: {e}", SPEC.name),
            "run as root, let this user read and write the device, or load the module (`modprobe tun`)",
        )
    })
}

/// Folder of the modules of the guest's kernel.
pub(super) fn modules() -> Result<String, LabError> {
    match Path::new(MODULES).is_dir() {
        true => Ok(MODULES.into()),
        false => Err(LabError::unusable(
            format!("the modules of User Mode Linux are not in {MODULES}"),
            "install the Debian package `user-mode-linux`",
        )),
    }
}

impl UmlDut {
    /// Starts a guest, and returns when it plays its role.
    pub(super) fn bring_up(
        lab: &mut Lab,
        dut: &DutConfig,
        mut boot: Boot,
        work_dir: &Path,
        stop: &dyn Fn() -> bool,
    ) -> Result<UmlDut, LabError> {
        let ends = ends(lab, dut, &boot)?;
        if let Ends::Veth(links) = &ends {
            boot.job.delays = links.delays().to_vec();
        }
        let shared = lab.shared();
        let state = shared.fresh_state(&dut.name)?;
        let job = &boot.job;
        configuration::store(work_dir, work_dir, &boot.kept, &boot.kept)?;
        // Use a copy in a folder that the guest sees: somebody may replace or hide the program's own file.
        let (init, told) = (state.join("init"), state.join("job.json"));
        fs::copy("/proc/self/exe", &init).map_err(LabError::file("write", &init))?;
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).map_err(LabError::file("protect", &init))?;
        let text = serde_json::to_string_pretty(job).map_err(LabError::file("write", &told))?;
        configuration::write_private(&told, &text)?;

        let ports = job.role.interfaces.len();
        let mut command = ends.netns().command(&init);
        command.args([super::guest::SUBCOMMAND, super::guest::KERNEL]).arg(boot.kernel).arg(&told);
        // The guest's memory is an unnamed file in this folder: on the lab's tmpfs, so that the size of the host's /dev/shm
        // does not matter.
        command.env("TMPDIR", &state).current_dir(&state);
        command.arg(format!("mem={}M", boot.memory));
        command.args(["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet", "selinux=0", "panic=1"]);
        command.args(["con=null", "con0=null,fd:1", "ssl=null", "umid=guest"]);
        command.arg(format!("uml_dir={}/", state.display()));
        // The process that starts the guest's kernel opens veth links.
        if let Ends::Tap { interfaces, .. } = &ends {
            for (i, tap) in interfaces.iter().enumerate() {
                let mtu = label_edge::link_mtu(&job.role, i);
                command.arg(format!("vec{i}:transport=tap,ifname={},mtu={mtu}", tap.name));
            }
        }
        command.arg(format!("vec{ports}:transport=tap,ifname={}", agent::INTERFACE));
        command.arg(format!("init={}", init.display()));
        let cpu = shared.cpus.dut;
        let record = DutRecord {
            name: dut.name.clone(),
            kind: SPEC.name.into(),
            confinement: format!(
                "User Mode Linux with {} MiB, a process on processor {cpu}; {}",
                boot.memory,
                confinement(&ends, shared.root)
            ),
            config: boot.kept.into_iter().collect(),
            ..DutRecord::default()
        };
        let (role, routing) = (job.role.clone(), job.routing);
        let mut up = UmlDut { daemon: None, ends, record, role, routing, lacked: None };
        let neighbours = (job.role.bgp.as_ref().map_or(0, bgp::neighbours) + job.role.vrfs.len()) as u32;
        let limit = READY + NEIGHBOUR * neighbours;
        up.make_taps(&job.role)?;
        up.daemon = Some(Daemon::start_in(up.ends.netns(), cpu, "uml", command, work_dir)?);
        // It leads a process group; the processes that it starts inherit the priority.
        if shared.root && up.pid().is_some_and(|pid| confine::favour("-g", std::iter::once(pid))) {
            up.record.confinement.push_str("; it runs before other work there (nice -20)");
        }
        let kernel = up.await_guest(limit, stop)?;
        up.record.version = match up.routing {
            Routing::Frr => {
                let zebra = process::find("zebra", "frr")?;
                let frr = super::frr::version(process::command(&zebra, &shared.mark))?;
                format!("{frr}, User Mode Linux {kernel}")
            }
            Routing::Static => format!("User Mode Linux {kernel}"),
        };
        Ok(up)
    }

    /// Makes the taps, and sets their near ends up before the guest opens them: a tap that is down refuses frames, and
    /// after one refused frame the guest's driver gives up its interface permanently.
    fn make_taps(&self, role: &RouterRole) -> Result<(), LabError> {
        let mut lines: Vec<String> = self.taps().map(|name| format!("tuntap add dev {name} mode tap")).collect();
        if let Ends::Tap { interfaces, .. } = &self.ends {
            lines.extend(tap_lines(interfaces, role));
        }
        lines.push(format!("address add {}/{} dev {}", agent::TESTER, agent::PREFIX, agent::INTERFACE));
        lines.push(format!("link set {} up", agent::INTERFACE));
        let home = self.ends.netns();
        home.ip(&lines)?;
        // By default the kernel asks for the guest's address once a second, so it may find a running guest up to a
        // second late. The namespaces of ordinary users do not have this setting.
        let setting = format!("net/ipv4/neigh/{}/retrans_time_ms", agent::INTERFACE);
        let _ = home.sysctl(&[(setting, NEIGHBOUR_AGAIN_MS)]);
        // The guest treats frames as complete, even those whose checksums or segmentation are left to the tap.
        let mut ports = self.taps().filter(|name| *name != agent::INTERFACE);
        ports.try_for_each(|name| home.output("ethtool", "ethtool", &["-K", name, "tx", "off"], None).map(drop))
    }

    /// All taps; the tap of the management network is the last.
    fn taps(&self) -> impl Iterator<Item = &str> {
        let ports = match &self.ends {
            Ends::Tap { interfaces, .. } => &interfaces[..],
            Ends::Veth(_) => &[],
        };
        ports.iter().map(|i| i.name.as_str()).chain([agent::INTERFACE])
    }

    /// Waits until the guest reports that it plays its role. Returns the release of its kernel.
    fn await_guest(&mut self, limit: Duration, stop: &dyn Fn() -> bool) -> Result<String, LabError> {
        let (mut next, mut last) = (Instant::now(), String::new());
        let look = |dut: &UmlDut, answer: Result<Value, LabError>| match answer {
            Ok(told) => Ok(match (told.get("waiting").and_then(Value::as_str), dut.ends.link_not_up()) {
                (Some(why), _) => Look::NotYet(why.to_owned()),
                (None, Some(link)) => Look::NotYet(format!("{link} has no carrier")),
                (None, None) => Look::Ready(told.get("kernel").and_then(Value::as_str).unwrap_or_default().to_owned()),
            }),
            Err(e @ LabError::Io { .. }) => Ok(Look::NotYet(e.to_string())),
            Err(e) => Err(e),
        };
        let ready = self.wait(limit, stop, |dut| {
            let begun = Instant::now();
            if begun < next {
                return Ok(Look::NotYet(last.clone()));
            }
            let answer = agent::ask_once(dut.ends.netns(), "ready", || Ok(()));
            // A guest whose kernel is not up yet spends no processor time on the question.
            let silent = matches!(&answer, Err(LabError::Io { source, .. }) if agent::is_busy(source.kind()));
            let found = look(dut, answer)?;
            next = begun + if silent { Duration::ZERO } else { begun.elapsed() * LOOKING };
            if let Look::NotYet(why) = &found {
                last.clone_from(why);
            }
            Ok(found)
        });
        ready.map_err(|e| {
            let told = agent::ask_once(self.ends.netns(), "logs", || Ok(())).ok();
            let logs = told.and_then(|told| Some(told.get("logs")?.as_str()?.to_owned()));
            let console = self.daemon.as_ref().map(Daemon::log_tail).unwrap_or_default();
            e.with_log(&logs.unwrap_or_default()).with_log(&console)
        })
    }

    fn wait<T>(
        &mut self,
        limit: Duration,
        stop: &dyn Fn() -> bool,
        mut look: impl FnMut(&UmlDut) -> Result<Look<T>, LabError>,
    ) -> Result<T, LabError> {
        wait::until(limit, stop, || {
            self.check_process()?;
            look(self)
        })
    }

    fn check_process(&mut self) -> Result<(), LabError> {
        self.daemon.as_mut().map_or(Ok(()), works)
    }

    fn pid(&self) -> Option<u32> {
        self.daemon.as_ref().map(Daemon::pid)
    }

    /// Process of the guest's kernel: the child of the process that we started.
    fn kernel(&self) -> Option<u32> {
        let pid = self.pid()?;
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?.split_whitespace().next()?.parse().ok()
    }

    /// Asks the guest. Fails if the guest has ended.
    fn ask(&mut self, question: &str) -> Result<Value, LabError> {
        let UmlDut { daemon, ends, .. } = self;
        let answer = agent::ask(ends.netns(), question, || daemon.as_mut().map_or(Ok(()), works));
        answer.map_err(|e| with_cause(e, || self.daemon.as_ref().map_or(String::new(), Daemon::log_tail)))
    }

    /// Ends every process of the guest and removes the taps, even if the lab's PID namespace has already ended.
    fn remove(&mut self) -> Result<(), LabError> {
        if let Some(daemon) = self.daemon.take() {
            kill(daemon);
        }
        let home = self.ends.netns();
        let there = |name: &&str| home.sys(&format!("class/net/{name}")).exists();
        let lines: Vec<_> = self.taps().filter(there).map(|name| format!("link del {name}")).collect();
        if lines.is_empty() { Ok(()) } else { home.ip_unheld(&lines) }
    }
}

/// Prefix of counters at the outer ends of a guest's links.
const OUTSIDE: &str = "outside.";

/// Prefixes the counters of a namespace that contains only the links of a guest, because the ends in this namespace
/// have the same names as the guest's interfaces. Leaves out the IP counters, which are not the guest's.
fn outside(counters: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let is_ip = |name: &str| name.starts_with("ip.") || name.starts_with("ip6.");
    let far = |name: &str| name.strip_prefix('d').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let kept = counters.into_iter().filter(|(name, _)| !is_ip(name));
    kept.map(|(name, value)| (if far(&name) { format!("{OUTSIDE}{name}") } else { name }, value)).collect()
}

/// Makes the links of a guest to the tester, and to other routers of its system.
fn ends(lab: &mut Lab, dut: &DutConfig, boot: &Boot<'_>) -> Result<Ends, LabError> {
    let role = &boot.job.role;
    match lab.take_site(&dut.name) {
        Some(links) => {
            silence(links.netns(), role.interfaces.len())?;
            Ok(Ends::Veth(links))
        }
        None => Ends::make(lab, &dut.name, role, boot.links),
    }
}

fn confinement(ends: &Ends, root: bool) -> String {
    match ends {
        Ends::Veth(links) => {
            // Ordinary users cannot get more than the kernel's default.
            let room = if root { " of 2,048 frames" } else { "" };
            format!("it reads veth links by packet sockets{room}; {}", links.confinement())
        }
        Ends::Tap { .. } => "its ports are the far ends of taps, whose near ends are the tester's interfaces".into(),
    }
}

/// The error `e` of a guest with this log, with the remedy if this machine ended a process of the guest because it had too many memory
/// mappings. Such a process needs one for nearly every page.
fn with_cause(e: LabError, log: impl FnOnce() -> String) -> LabError {
    match e {
        LabError::Unusable { what, .. } if log().contains("vm.max_map_count has been reached") => LabError::unusable(
            format!("{what}\n  cause: this machine allows a process too few memory mappings"),
            "run `sysctl -w vm.max_map_count=1048576`, and start the run again",
        ),
        e => e,
    }
}

/// Fails if the guest has ended. After a panic of its kernel, its process waits forever.
fn works(guest: &mut Daemon) -> Result<(), LabError> {
    guest.check_works("Kernel panic")
}

/// Ends every process of a guest. If the guest works and `halt` succeeds, it has `limit` to end on its own. Then kills
/// the remaining processes.
fn end(mut guest: Daemon, halt: impl FnOnce(&mut Daemon) -> Result<(), LabError>, limit: Duration) {
    if works(&mut guest).is_ok() && halt(&mut guest).is_ok() {
        guest.await_end(limit);
    }
    kill(guest);
}

/// Kills every process of a guest. The process leads a group; the guest's processes are its children and do not all end
/// with it.
fn kill(mut guest: Daemon) {
    guest.end(false);
}

impl Drop for UmlDut {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

impl Dut for UmlDut {
    capabilities!(usage: Usage, classes: Classes, member: SystemMember);

    fn interfaces(&self) -> &[TesterInterface] {
        self.ends.interfaces()
    }

    fn record(&self) -> DutRecord {
        self.record.clone()
    }

    fn check(&mut self) -> Result<(), LabError> {
        self.check_process()?;
        if let Some(link) = self.ends.link_not_up() {
            return Err(LabError::lost_carrier(&link));
        }
        self.ask("check").map(drop)
    }

    /// From now on, the links of its system lose frames.
    fn forwards(&mut self) -> Result<(), LabError> {
        if self.role.member.is_some() { self.ask("forwards").map(drop) } else { Ok(()) }
    }

    /// The counters of the guest's kernel.
    fn router_interfaces(&mut self) -> Result<Option<Vec<RouterInterface>>, LabError> {
        let mut counters = BTreeMap::new();
        flatten("", &self.ask("counters")?, &mut counters);
        Ok(router::counted(&self.role, &counters, UNCOUNTED_HEADER))
    }

    fn fib_routes(&mut self, family: Family) -> Result<Option<u64>, LabError> {
        let told = self.ask("fib")?;
        Ok(told.get(if family == Family::Ipv4 { "ipv4" } else { "ipv6" }).and_then(Value::as_u64))
    }

    fn sessions_ended(&mut self) -> Result<(), LabError> {
        await_no_idle(|| Ok(self.ask("idle")?.get("waiting").and_then(Value::as_str).map(str::to_owned)))
    }

    fn counters(&mut self) -> Result<BTreeMap<String, u64>, LabError> {
        let mut counters = self.ends.counters()?;
        if let Ends::Veth(links) = &self.ends {
            counters = outside(counters);
            let dropped = probe::socket_drops(links.netns())?.into_iter();
            counters.extend(dropped.map(|(link, frames)| (format!("{OUTSIDE}{link}.socket_dropped"), frames)));
        }
        flatten("", &self.ask("counters")?, &mut counters);
        Ok(counters)
    }

    fn lost_by_tester(&mut self) -> Result<Option<Vec<u64>>, LabError> {
        self.ends.lost_by_tester()
    }

    fn drops_at_tester_tx_are_dut(&self) -> bool {
        true
    }

    fn take_down(mut self: Box<Self>) -> Result<(), LabError> {
        if let Some(daemon) = self.daemon.take() {
            let home = self.ends.netns();
            end(daemon, |daemon| agent::ask(home, "halt", || works(daemon)).map(drop), HALT);
        }
        self.remove()
    }
}

impl SystemMember for UmlDut {
    fn lacking(&mut self) -> Result<Option<String>, LabError> {
        if let Some(link) = self.ends.link_not_up() {
            return Ok(Some(format!("{link} has no carrier")));
        }
        let begun = Instant::now();
        if let Some((_, why)) = self.lacked.as_ref().filter(|(next, _)| begun < *next) {
            return Ok(Some(why.clone()));
        }
        let told = self.ask("lacking")?;
        let why = told.get("waiting").and_then(Value::as_str).map(str::to_owned);
        self.lacked = why.clone().map(|why| (begun + begun.elapsed() * LOOKING, why));
        Ok(why)
    }

    fn link_leaves(&mut self, interface: usize) -> Result<(), LabError> {
        self.ask(&format!("down {interface}")).map(drop)
    }

    fn link_returned(&mut self, interface: usize) -> Result<(), LabError> {
        self.ask(&format!("up {interface}")).map(drop)
    }
}

impl Classes for UmlDut {
    /// Sends `classes` and the lists as JSON.
    fn set_classes(&mut self, lists: &[EgressClasses]) -> Result<(), LabError> {
        let lists = serde_json::to_string(lists).map_err(LabError::io("cannot write the classes"))?;
        self.ask(&format!("classes {lists}")).map(drop)
    }
}

impl Usage for UmlDut {
    /// Includes the guest with its kernel and daemons, and the kernel's work at its links.
    fn cpu_time(&mut self) -> Option<Duration> {
        Some(self.ends.cpu_time()? + probe::tree_time(self.pid()?)?)
    }

    /// Memory of the host's processes: all pages that the guest has ever used, since it returns none.
    fn router_memory(&mut self) -> Option<Vec<u64>> {
        Some(vec![probe::proportional(self.pid()?)?])
    }

    fn threads(&mut self) -> Option<Vec<ThreadTimes>> {
        let mut threads = self.ends.threads()?;
        threads.extend(probe::family_tree(self.pid()?).into_iter().filter_map(probe::process_threads).flatten());
        Some(threads)
    }

    /// The values from the guest's kernel.
    fn memory(&mut self) -> Vec<(String, u64)> {
        match self.routing {
            Routing::Frr => {
                let told = self.ask("memory").unwrap_or_default();
                told.as_object().into_iter().flatten().filter_map(|(n, v)| Some((n.clone(), v.as_u64()?))).collect()
            }
            Routing::Static => {
                let resident = self.kernel().and_then(probe::resident);
                resident.map(|bytes| ("linux.uml".to_owned(), bytes)).into_iter().collect()
            }
        }
    }

    fn processor(&mut self) -> Option<usize> {
        self.ends.processor()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests_support::{await_gone, with_child};
    use nix::sys::signal::Signal;
    use nix::unistd::Pid;

    /// Longer than any of these tests should take.
    const LONG: Duration = Duration::from_secs(60);
    /// A guest of two processes that never ends by itself.
    const ENDLESS: &str = "sleep 600 & echo $!; wait";

    /// Ends a guest that runs this shell script. When none of its processes is left, returns how long that took, and
    /// the guest's log.
    fn ended(
        script: &str,
        halt: impl FnOnce(&mut Daemon) -> Result<(), LabError>,
        limit: Duration,
    ) -> (Duration, String) {
        let folder = tempfile::tempdir().unwrap();
        let (guest, child) = with_child(script, folder.path());
        let (leader, begun) = (guest.pid(), Instant::now());
        end(guest, halt, limit);
        let took = begun.elapsed();
        [leader, child].into_iter().for_each(await_gone);
        (took, std::fs::read_to_string(folder.path().join("guest.log")).unwrap())
    }

    #[test]
    fn a_guest_that_does_not_halt_in_time_is_killed_with_its_processes() {
        let limit = Duration::from_millis(50);
        let (took, _) = ended(ENDLESS, |_| Ok(()), limit);
        assert!(took >= limit && took < LONG, "{took:?}");
    }

    #[test]
    fn a_guest_that_cannot_halt_is_killed_at_once() {
        let (took, _) = ended(ENDLESS, |_| Err(LabError::Stopped), LONG);
        assert!(took < LONG, "it does not answer: {took:?}");
        let panicked = format!("echo 'Kernel panic: BUG!'; {ENDLESS}");
        let (took, _) = ended(&panicked, |_| panic!("it is asked"), LONG);
        assert!(took < LONG, "it works no more: {took:?}");
    }

    #[test]
    fn a_process_without_mappings_is_told_with_the_remedy() {
        let died = || LabError::unusable("the guest: bgpd ended by itself", "see uml.log");
        let said = "UML ran out of memory on the host side! ... or vm.max_map_count has been reached.";
        let text = with_cause(died(), || said.into()).to_string();
        assert!(text.contains("bgpd ended") && text.contains("sysctl -w vm.max_map_count"), "{text}");
        assert!(with_cause(died(), || "Failed to flush".into()).to_string().contains("see uml.log"));
    }

    #[test]
    fn a_guest_that_halts_is_not_killed_before() {
        let halt = |guest: &mut Daemon| {
            nix::sys::signal::kill(Pid::from_raw(guest.pid().cast_signed()), Signal::SIGTERM).unwrap();
            Ok(())
        };
        let (took, log) = ended(&format!("trap 'echo halted; exit' TERM; {ENDLESS}"), halt, LONG);
        assert!(log.ends_with("\nhalted\n") && took < LONG, "{took:?}: {log}");
    }
}
