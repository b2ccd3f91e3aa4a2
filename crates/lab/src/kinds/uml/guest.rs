//! The inside of a guest: this program as its first process.
//!
//! The guest's root is the host's file system, read-only; the guest writes files only to tmpfs.

use super::super::frr;
use super::links::{self, Link};
use super::{Job, Routing, agent, link_end};
use crate::link_delay::{self, LinkDelay};
use crate::links::{NO_IPV6, ROUTER, ROUTER_IPV6};
use crate::netns::kernel_has_ipv6;
use crate::process::{self, Daemon};
use crate::traffic_classes::{self, Given};
use crate::{LabError, bgp, label_edge, mounts, netns, probe, router, wait};
use drophammer_model::classes::EgressClasses;
use drophammer_model::role::RouterRole;
use drophammer_model::trial::Family;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::signal::{Signal, raise};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// First argument that makes this program a guest's first process; the lab adds more arguments. Its `main` must call
/// [`run`].
pub const SUBCOMMAND: &str = "uml-guest";
/// The next argument, which makes this program run the guest's kernel; the kernel, the job file and the kernel's
/// arguments follow.
pub(super) const KERNEL: &str = "kernel";

/// Folders that the guest has on its own tmpfs.
const OWN: [&str; 4] = ["/run", "/tmp", "/var/tmp", "/var/log"];
/// Folder of configurations, sockets and logs, on the guest's tmpfs.
const STATE: &str = "/run/drophammer";
/// Setting of the C library's malloc(3): it maps blocks from this size on one by one, and returns them. By default the size
/// grows with use, and daemons with many VRFs then take almost three times the memory.
const MAPPED_FROM: (&str, &str) = ("MALLOC_MMAP_THRESHOLD_", "131072");
/// Time limit for zebra to start to listen.
const START: Duration = Duration::from_secs(20);
/// Time limit for reading a question: it arrives immediately, or its sender is gone.
const QUESTION: Duration = Duration::from_secs(1);

/// Runs as the guest with the job file `JOB` until the lab asks it to halt. If the guest cannot start or continue, it
/// prints the reason and powers itself off, because nothing else runs in it.
pub fn run(arguments: &[OsString]) -> Result<(), String> {
    if let [first, kernel, job, rest @ ..] = arguments
        && first == KERNEL
    {
        return hold(kernel, job, rest);
    }
    if std::process::id() != 1 {
        return Err("this is the first process of a User Mode Linux guest; the lab starts it".into());
    }
    // The kernel adds arguments of its own (`console=tty0`).
    let [job, ..] = arguments else { return Err("the guest is started by the lab: JOB".into()) };
    if let Err(e) = Guest::start(Path::new(job)).and_then(|mut guest| guest.serve()) {
        // Nobody reads the return value: the console is the log of the guest.
        eprintln!("the guest cannot continue: {e}");
        halt();
    }
    Ok(())
}

/// Runs the guest's kernel as the first process of a PID namespace, and ends with the same status. The kernel traces
/// the processes of the guest and executes their system calls. If the kernel is killed, they continue with system calls
/// of this machine: once, the first process of a guest then powered off its machine, which ended the lab's PID
/// namespace. In a PID namespace, they all end with the kernel.
fn hold(kernel: &OsStr, job: &OsStr, arguments: &[OsString]) -> Result<(), String> {
    let told = read(Path::new(job)).map_err(|e| e.to_string())?;
    let ports = if told.raw { told.role.interfaces.len() } else { 0 };
    let mut links = (0..ports).map(Link::open).collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
    let words =
        links.iter().enumerate().map(|(index, link)| link.words(index, label_edge::link_mtu(&told.role, index)));
    let failed = |e: std::io::Error| format!("cannot start {}: {e}", kernel.to_string_lossy());
    unshare(CloneFlags::CLONE_NEWPID).map_err(|e| failed(e.into()))?;
    // Arguments after `--` are for the guest's first process.
    let mut command = Command::new(kernel);
    command.args(arguments).args(words).args(["--", SUBCOMMAND]).arg(job);
    let status = command.spawn().and_then(|mut kernel| links::attend(&mut kernel, &mut links)).map_err(failed)?;
    match status.signal().and_then(|signal| Signal::try_from(signal).ok()) {
        Some(signal) => raise(signal).map_err(|e| failed(e.into())),
        None if status.success() => Ok(()),
        None => Err(format!("the guest's kernel ended with {status}")),
    }
}

/// Reads the job file.
fn read(job: &Path) -> Result<Job, LabError> {
    let text = fs::read_to_string(job).map_err(LabError::file("read", job))?;
    serde_json::from_str(&text).map_err(LabError::file("read", job))
}

fn halt() {
    let _ = reboot(RebootMode::RB_POWER_OFF);
}

/// Prefix of the interface names that the kernel assigns at first; a number follows.
const KERNEL_INTERFACE: &str = "vec";
/// Settings of interfaces that are created later.
const IPV6_DEFAULT: &str = "net/ipv6/conf/default/";
/// Settings of existing interfaces.
const IPV6_INTERFACES: &str = "/proc/sys/net/ipv6/conf";

struct Guest {
    job: Job,
    daemons: Vec<Daemon>,
    classes: Given,
}

impl Guest {
    /// Configures the kernel and starts the daemons.
    fn start(job: &Path) -> Result<Guest, LabError> {
        // Read it first: below, the guest covers /run, where the file is.
        let job = read(job)?;
        surroundings()?;
        process::allow_open_files();
        modules(&job)?;
        sysctls(&job.role)?;
        ip(&interfaces(&job))?;
        if job.raw {
            whole_frames(job.role.interfaces.len())?;
        }
        labels(&job.role)?;
        edge(&job.role)?;
        if job.label_ttl_is_own() {
            write_sysctl("net/mpls/ip_ttl_propagate", "0")?;
        }
        delays(&job.delays)?;
        policies(&job.role)?;
        let classes = Given::by(job.scheduler);
        let mut guest = Guest { job, daemons: Vec::new(), classes };
        match guest.job.routing {
            Routing::Static => ip(&router::route_lines(&guest.job.role))?,
            Routing::Frr => guest.frr()?,
        }
        ip(&router::pushed_lines(&guest.job.role, router::Names::Lab))?;
        Ok(guest)
    }

    fn frr(&mut self) -> Result<(), LabError> {
        let state = Path::new(STATE);
        frr::own_surroundings(state)?;
        for (name, text) in &self.job.files {
            let path = state.join(name);
            fs::write(&path, text).map_err(LabError::file("write", &path))?;
        }
        let zebra = process::find("zebra", "frr")?;
        self.daemon("zebra", &zebra)?;
        // A daemon that cannot connect to zebra waits ten seconds before it tries again.
        let socket = state.join(frr::ZEBRA_SOCKET);
        wait::while_missing(START, &|| false, || {
            self.check()?;
            Ok(UnixStream::connect(&socket).err().map(|e| format!("zebra does not listen: {e}")))
        })?;
        let zebra_vty = state.join(frr::ZEBRA_VTY);
        self.daemon("staticd", &process::find("staticd", "frr")?)?;
        let mut last = "staticd";
        for name in frr::daemons(&self.job.role, &self.job.files) {
            // Not looked up by name: OpenBGPD's program is called bgpd, too.
            wait::while_missing(START, &|| false, || {
                self.check()?;
                Ok(frr::not_connected(&zebra_vty, last))
            })?;
            self.daemon(name, &zebra.with_file_name(name))?;
            last = name;
        }
        Ok(())
    }

    fn daemon(&mut self, name: &str, program: &Path) -> Result<(), LabError> {
        let state = Path::new(STATE);
        let config: Option<PathBuf> = frr::config_of(name, self.job.own).map(|file| state.join(file));
        let mut command = command(program);
        command.args(frr::arguments(name, config.as_deref(), state)).env(MAPPED_FROM.0, MAPPED_FROM.1);
        self.daemons.push(Daemon::start(name, command, state)?);
        Ok(())
    }

    fn check(&mut self) -> Result<(), LabError> {
        self.daemons.iter_mut().try_for_each(Daemon::check)
    }

    /// Answers questions until it is asked to halt.
    fn serve(&mut self) -> Result<(), LabError> {
        let listener = TcpListener::bind((agent::GUEST, agent::PORT)).map_err(LabError::io("cannot listen on m0"))?;
        loop {
            let (stream, _) = listener.accept().map_err(LabError::io("cannot listen on m0"))?;
            // If a client disconnects, continue with the next one.
            if let Ok(Some(question)) = self.question(&stream) {
                let answer = self.answer(&question).unwrap_or_else(|e| agent::refusal(&e.to_string()));
                let _ = (&stream).write_all(format!("{answer}\n").as_bytes());
                if question == "halt" {
                    halt();
                }
            }
        }
    }

    fn question(&self, stream: &TcpStream) -> std::io::Result<Option<String>> {
        stream.set_read_timeout(Some(QUESTION))?;
        let mut line = String::new();
        let read = BufReader::new(stream).read_line(&mut line)?;
        Ok((read > 0).then(|| line.trim().to_owned()))
    }

    fn answer(&mut self, question: &str) -> Result<Value, LabError> {
        let (word, rest) = question.split_once(' ').unwrap_or((question, ""));
        Ok(match word {
            "ready" => {
                self.check()?;
                let waiting = self.not_ready()?.or_else(|| self.idle());
                json!({ "waiting": waiting, "kernel": crate::environment::kernel_release() })
            }
            "idle" => json!({ "waiting": self.idle() }),
            "lacking" => {
                self.check()?;
                json!({ "waiting": self.not_ready()?.or_else(|| self.session_down()) })
            }
            "check" => {
                self.check()?;
                json!({})
            }
            "forwards" => {
                let losses: Vec<_> = self.job.delays.iter().filter_map(LinkDelay::loss_line).collect();
                tc_batch(&losses)?;
                json!({})
            }
            "up" | "down" => {
                let interface = rest.parse().unwrap_or(usize::MAX);
                link_end::set(&self.job.role, self.job.routing, interface, word == "up")?;
                json!({})
            }
            "classes" => {
                let lists: Vec<EgressClasses> =
                    serde_json::from_str(rest).map_err(LabError::io("cannot read the classes"))?;
                if !lists.is_empty() {
                    load(&traffic_classes::MODULES)?;
                }
                self.classes.set(&tc, &self.job.role, &lists)?;
                json!({})
            }
            "logs" => json!({ "logs": self.daemons.iter().map(Daemon::log_tail).collect::<Vec<_>>().join("\n") }),
            "counters" => json!(self.counters()?),
            "memory" => {
                let resident = |d: &Daemon| Some((d.name().to_owned(), probe::resident(d.pid())?));
                json!(self.daemons.iter().filter_map(resident).collect::<BTreeMap<_, _>>())
            }
            "fib" => json!({
                "ipv4": probe::fib_routes(Family::Ipv4),
                "ipv6": probe::fib_routes(Family::Ipv6),
            }),
            "halt" => json!({}),
            _ => agent::refusal(&format!("there is no question `{question}`")),
        })
    }

    /// Returns a message about what is still missing; `None` when the guest plays its role.
    fn not_ready(&self) -> Result<Option<String>, LabError> {
        let role = &self.job.role;
        if !self.job.own {
            let asked =
                |option: &str| netns::ip_json(&process::output(ip_command(&["-j", option, "route", "show"])?, None)?);
            if let Some(missing) = router::missing_of(role, asked)? {
                return Ok(Some(missing));
            }
        }
        if !self.job.own && !role.vrfs.is_empty() {
            let labels = netns::ip_json(&process::output(ip_command(&["-j", "-f", "mpls", "route", "show"])?, None)?)?;
            if let Some(missing) = label_edge::missing(role, &labels) {
                return Ok(Some(missing));
            }
        }
        let Some(bgp) = &role.bgp else { return Ok(None) };
        Ok(frr::not_told(&bgpd(), &bgp::locals(bgp)).or_else(|| bgp::deaf_here(bgp)))
    }

    /// Returns a message if a neighbour cannot have a session yet.
    fn idle(&self) -> Option<String> {
        self.job.role.bgp.as_ref().and_then(|_| frr::idle(&bgpd()))
    }

    /// Returns a message if a session with another router of its system is not up.
    fn session_down(&self) -> Option<String> {
        let mut peers = self.job.role.bgp.iter().flat_map(|bgp| &bgp.core);
        let mut lsrs = label_edge::ldp_neighbours(&self.job.role);
        let by_bgp = peers.find_map(|peer| frr::session_down(&bgpd(), peer));
        by_bgp.or_else(|| lsrs.find_map(|lsr| frr::ldp_down(&Path::new(STATE).join("ldpd.vty"), lsr)))
    }

    fn counters(&self) -> Result<BTreeMap<String, u64>, LabError> {
        let mut counters = probe::ip()?;
        let role = &self.job.role;
        let interfaces = role.places().map(|(at, _, _)| router::interface_at(role, at));
        for name in interfaces.chain((0..role.tunnels.len()).map(router::tunnel_name)) {
            probe::interface(Path::new(probe::OWN), &name, &mut counters)?;
        }
        self.classes.counters(&tc, &mut counters)?;
        link_delay::count_drops(&tc, role, &self.job.delays, &mut counters)?;
        Ok(counters)
    }
}

fn bgpd() -> PathBuf {
    Path::new(STATE).join("bgpd.vty")
}

/// Mounts the guest's own folders, then makes the state folder.
fn surroundings() -> Result<(), LabError> {
    let none: Option<&str> = None;
    for (kind, target) in [("proc", "/proc"), ("sysfs", "/sys")] {
        mount(Some(kind), target, Some(kind), MsFlags::empty(), none)
            .map_err(LabError::io(format!("cannot mount {target}")))?;
    }
    OWN.iter().try_for_each(|folder| mounts::empty_over(Path::new(folder)))?;
    fs::create_dir_all(STATE).map_err(LabError::file("create", Path::new(STATE)))
}

/// Folder below the state folder in which modprobe(8) looks for modules.
const MODULES: &str = "modules";

fn has_ipv6(role: &RouterRole) -> bool {
    role.places().any(|(_, _, addresses)| addresses.iter().any(|a| a.address.is_ipv6()))
}

/// Loads the modules that are not built into Debian's kernel.
fn modules(job: &Job) -> Result<(), LabError> {
    let library = Path::new(STATE).join(MODULES).join("lib");
    fs::create_dir_all(&library).map_err(LabError::file("create", &library))?;
    let link = library.join("modules");
    std::os::unix::fs::symlink(&job.modules, &link).map_err(LabError::file("create", &link))?;
    let vrfs = !job.role.vrfs.is_empty();
    let vlans = vrfs || job.role.places().any(|(_, tags, _)| !tags.is_empty());
    let wanted = [
        (has_ipv6(&job.role), &["ipv6"][..]),
        (vlans, &["8021q"]),
        (!job.role.labels.is_empty(), &["mpls_router"]),
        (!job.role.pushed.is_empty(), &["mpls_router", "mpls_iptunnel"]),
        (label_edge::switches_labels(&job.role), &["mpls_router", "mpls_iptunnel"]),
        (vrfs, &["vrf"]),
        (!job.role.tunnels.is_empty(), &["ip_gre"]),
        (!job.delays.is_empty(), &link_delay::MODULES),
    ];
    wanted.iter().filter(|(wanted, _)| *wanted).try_for_each(|(_, modules)| load(modules))
}

/// Loads kernel modules, unless they are loaded already.
fn load(modules: &[&str]) -> Result<(), LabError> {
    modules.iter().try_for_each(|module| {
        let mut load = command(&process::find("modprobe", "kmod")?);
        load.arg("-d").arg(Path::new(STATE).join(MODULES)).arg(module);
        process::output(load, None).map(drop)
    })
}

/// Makes the kernel send complete frames: with checksums, and no longer than the link permits.
fn whole_frames(ports: usize) -> Result<(), LabError> {
    (0..ports).map(router::dut_interface).try_for_each(|name| {
        let mut set = command(&process::find("ethtool", "ethtool")?);
        set.args(["-K", &name, "tx", "off", "sg", "off", "tso", "off", "gso", "off", "gro", "off"]);
        process::output(set, None).map(drop)
    })
}

/// Gives the kernel the label entries, and makes it accept labels at every interface.
fn labels(role: &RouterRole) -> Result<(), LabError> {
    let Some(highest) = role.labels.iter().map(|entry| entry.label).max() else { return Ok(()) };
    write_sysctl("net/mpls/platform_labels", &(highest + 1).to_string())?;
    for (at, _, _) in role.places() {
        // In the names of settings, a dot of an interface name becomes a slash.
        let interface = router::interface_at(role, at).replace('.', "/");
        write_sysctl(&format!("net/mpls/conf/{interface}/input"), "1")?;
    }
    ip_batch(&["-f", "mpls", "-batch", "-"], &router::label_lines(role, router::Names::Lab))
}

/// Makes the VRFs, and the kernel accept labels on core links.
fn edge(role: &RouterRole) -> Result<(), LabError> {
    label_edge::settings(role, router::Names::Lab).iter().try_for_each(|(key, value)| write_sysctl(key, value))?;
    let lines = label_edge::vrf_lines(role, router::Names::Lab);
    if lines.is_empty() { Ok(()) } else { ip(&lines) }
}

/// Makes the delays of packets from other routers.
fn delays(delays: &[LinkDelay]) -> Result<(), LabError> {
    if delays.is_empty() {
        return Ok(());
    }
    ip(&delays.iter().flat_map(LinkDelay::ip_lines).collect::<Vec<_>>())?;
    tc_batch(&delays.iter().flat_map(LinkDelay::tc_lines).collect::<Vec<_>>())
}

/// Makes the tunnels, and gives the kernel the policies.
fn policies(role: &RouterRole) -> Result<(), LabError> {
    if router::in_a_loop(role) {
        router::LOOP.iter().try_for_each(|(key, value)| write_sysctl(key, value))?;
        router::neighbour_settings(role).iter().try_for_each(|(key, value)| write_sysctl(key, value))?;
    }
    let (tunnels, policies) = (router::tunnel_lines(role), router::policy_lines(role));
    if !tunnels.is_empty() {
        ip(&tunnels)?;
        // The module of tunnels loads IPv6.
        router::tunnel_settings(role).iter().try_for_each(|(key, value)| write_sysctl(key, value))?;
    }
    if policies.is_empty() { Ok(()) } else { ip(&policies) }
}

fn sysctls(role: &RouterRole) -> Result<(), LabError> {
    let ipv6 = match kernel_has_ipv6() {
        true if has_ipv6(role) => &ROUTER_IPV6[..],
        true => &NO_IPV6,
        false => &[],
    };
    ROUTER.iter().chain(ipv6).try_for_each(|(key, value)| write_sysctl(key, value))?;
    // The ports existed before the module `ipv6` was loaded, so they have its defaults. Duplicate address detection
    // would add the routes of their link-local addresses after the guest is ready.
    for (key, value) in ipv6 {
        let Some(setting) = key.strip_prefix(IPV6_DEFAULT) else { continue };
        for interface in fs::read_dir(IPV6_INTERFACES).into_iter().flatten().flatten() {
            let name = interface.file_name().to_string_lossy().into_owned();
            if name.starts_with(KERNEL_INTERFACE) {
                write_sysctl(&format!("net/ipv6/conf/{name}/{setting}"), value)?;
            }
        }
    }
    // As with routers in namespaces, Linux before 6.3 by default forwards IPv6 to only 4,096 destinations at a time.
    let _ = fs::write("/proc/sys/net/ipv6/route/max_size", i32::MAX.to_string());
    Ok(())
}

/// Lines of ip(8) that name the interfaces, set them up and give them addresses. The last interface of the kernel
/// belongs to the management network.
fn interfaces(job: &Job) -> Vec<String> {
    let ports = job.role.interfaces.len();
    let mut lines = vec!["link set lo up".to_owned()];
    let names = (0..ports).map(router::dut_interface).chain([agent::INTERFACE.to_owned()]);
    for (i, name) in names.enumerate() {
        lines.push(format!("link set {KERNEL_INTERFACE}{i} name {name}"));
        lines.push(format!("link set {name} up"));
    }
    lines.push(format!("address add {}/{} dev {}", agent::GUEST, agent::PREFIX, agent::INTERFACE));
    lines.extend(router::vlan_lines(&job.role, router::Names::Lab));
    lines.extend(router::address_lines(&job.role, router::Names::Lab));
    lines
}

pub(super) fn write_sysctl(key: &str, value: &str) -> Result<(), LabError> {
    let path = Path::new("/proc/sys").join(key);
    fs::write(&path, value).map_err(LabError::file("write", &path))
}

fn command(program: &Path) -> Command {
    process::command(program, "guest")
}

fn ip_command(arguments: &[&str]) -> Result<Command, LabError> {
    let mut command = command(&process::find("ip", "iproute2")?);
    command.args(arguments);
    Ok(command)
}

fn tc(arguments: &[&str], input: Option<&str>) -> Result<String, LabError> {
    let mut command = command(&process::find("tc", "iproute2")?);
    command.args(arguments);
    process::output(command, input)
}

pub(super) fn ip(lines: &[String]) -> Result<(), LabError> {
    ip_batch(&["-batch", "-"], lines)
}

pub(super) fn ip_batch(arguments: &[&str], lines: &[String]) -> Result<(), LabError> {
    process::output(ip_command(arguments)?, Some(&(lines.join("\n") + "\n"))).map(drop)
}

fn tc_batch(lines: &[String]) -> Result<(), LabError> {
    if lines.is_empty() { Ok(()) } else { tc(&["-batch", "-"], Some(&(lines.join("\n") + "\n"))).map(drop) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests_support::{two_ports, with_vlans};

    #[test]
    fn the_last_interface_of_the_kernel_is_for_the_questions() {
        let role = RouterRole::of(&with_vlans(two_ports()));
        let lines = interfaces(&super::super::tests::job(role));
        let place = |line: &str| lines.iter().position(|l| l == line).unwrap_or_else(|| panic!("{line} in {lines:?}"));
        assert!(place("link set vec1 name d1") < place("link set vec2 name m0"));
        assert!(place("link set m0 up") < place("address add 169.254.77.2/30 dev m0"));
        assert!(place("link set d0.s100.200 up") < place("address add 198.18.32.33/27 dev d0.s100.200"));
    }

    #[test]
    fn nobody_else_is_a_guest() {
        assert!(run(&["job".into()]).unwrap_err().contains("the lab starts it"));
    }
}
